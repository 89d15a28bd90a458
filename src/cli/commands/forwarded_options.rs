//! Options of `aorta exec` that other commands accept too and pass on to the runs that they start.

use std::marker::PhantomData;

use clap::builder::Str;
use clap::{Arg, ArgMatches, Args, FromArgMatches, value_parser};

use super::exec::ExecArgs;

pub use super::exec::{ArgumentError, exec_args};

/// Selects the options that a command passes on.
pub trait ForwardedOptions: Clone + std::fmt::Debug + Send + Sync + 'static {
    /// The heading for these options in the help.
    const HEADING: &str;
    /// Long names, in the order in which they are forwarded.
    const OPTIONS: &[&str];
    /// True if a value can be a list.
    const LISTS: bool = false;
}

/// Options as they were typed; the started runs parse their values.
#[derive(Clone, Debug)]
pub struct ForwardedArgs<P> {
    /// The long name of each option, and its value; `None` for a flag.
    pub given: Vec<(&'static str, Option<String>)>,
    of: PhantomData<P>,
}

impl<P: ForwardedOptions> ForwardedArgs<P> {
    /// Options with these long names and values.
    pub fn new(given: Vec<(&'static str, Option<String>)>) -> ForwardedArgs<P> {
        ForwardedArgs { given, of: PhantomData }
    }

    /// True if the option with this long name was given.
    pub fn has(&self, name: &str) -> bool {
        self.given.iter().any(|(given, _)| *given == name)
    }

    /// The options as arguments of `aorta exec`, one word each.
    pub fn words(&self) -> Vec<String> {
        let word = |(name, value): &(&str, Option<String>)| match value {
            Some(value) => format!("--{name}={value}"),
            None => format!("--{name}"),
        };
        self.given.iter().map(word).collect()
    }
}

impl<P: ForwardedOptions> FromArgMatches for ForwardedArgs<P> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = Vec::new();
        for &name in P::OPTIONS {
            match matches.try_get_many::<String>(name) {
                Ok(values) => given.extend(values.into_iter().flatten().map(|value| (name, Some(value.clone())))),
                Err(_) => given.extend(matches.get_flag(name).then_some((name, None))),
            }
        }
        Ok(ForwardedArgs { given, of: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<P: ForwardedOptions> Args for ForwardedArgs<P> {
    fn augment_args(command: clap::Command) -> clap::Command {
        let exec = ExecArgs::augment_args(clap::Command::new("exec"));
        P::OPTIONS.iter().fold(command, |command, name| {
            let option = exec.get_arguments().find(|option| option.get_long() == Some(name));
            command.arg(forwarded::<P>(name, option.expect("`aorta exec` has every option that is forwarded")))
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

/// Declares an option of `aorta exec` with any text as its value.
fn forwarded<P: ForwardedOptions>(name: &'static str, option: &Arg) -> Arg {
    let arg = Arg::new(name).long(name).help_heading(P::HEADING).action(option.get_action().clone());
    let help = option.get_help().cloned().unwrap_or_default();
    if !option.get_action().takes_values() {
        return arg.help(help);
    }
    let listed = option.get_possible_values().into_iter().filter(|_| !option.is_hide_possible_values_set());
    let possible: Vec<String> = listed.map(|value| format!("`{}`", value.get_name())).collect();
    let listed = if possible.is_empty() { String::new() } else { format!(": {}", possible.join(", ")) };
    let typed = |value: &Str| match value.as_str() {
        "NAME=VALUE" if P::LISTS => "NAME=LIST".into(),
        "KEY=VALUE" if P::LISTS => "KEY=LIST".into(),
        _ if P::LISTS => "LIST".into(),
        _ => value.clone(),
    };
    let values: Vec<Str> = option.get_value_names().unwrap_or_default().iter().map(typed).collect();
    let arg = arg.help(format!("{help}{listed}")).value_parser(value_parser!(String)).value_names(values).num_args(1);
    arg.require_equals(option.is_require_equals_set())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug)]
    struct Few;

    impl ForwardedOptions for Few {
        const HEADING: &str = "Few";
        const OPTIONS: &[&str] = &["backend", "set", "verify", "expected"];
    }

    #[test]
    fn options_are_passed_on_as_they_were_typed() {
        let command = || ForwardedArgs::<Few>::augment_args(clap::Command::new("x").no_binary_name(true));
        let words = |typed: &[&str]| {
            ForwardedArgs::<Few>::from_arg_matches(&command().get_matches_from(typed)).unwrap().words()
        };
        let typed = ["--verify", "--set", "n=[1, 2]", "--backend=no such", "--set=m=-1", "--expected=a b"];
        let forwarded = ["--backend=no such", "--set=n=[1, 2]", "--set=m=-1", "--verify", "--expected=a b"];
        assert_eq!(words(&typed), forwarded);
        assert_eq!(words(&[]), [""; 0]);
        // Options that `aorta exec` accepts once are accepted once here too.
        assert!(command().try_get_matches_from(["--backend=a", "--backend=b"]).is_err());
        let mistake = exec_args(&["x".to_owned(), "--backend=no such".to_owned()]).unwrap_err();
        assert!(mistake.why.contains("possible values: auto, cuda"), "{mistake:?}");
    }
}
