//! Accepts sides of `aorta ab` without quotes: `--a --set n=4 --b --set n=8`.

use std::ffi::OsString;

use clap::Args;

use super::AbArgs;
use super::args::SideOptions;
use crate::base::shell;
use crate::cli::commands::exec::ExecArgs;
use crate::cli::commands::forwarded_options::ForwardedArgs;

/// The options that introduce a side.
const SIDES: [&str; 2] = ["--a", "--b"];

/// Joins the words after `--a` and `--b` into one text each, as if they had been quoted. A side without quotes begins
/// with an option. It ends before the other side, before an option of `aorta ab` itself, and before a word that belongs
/// to no option.
pub fn quoted(words: Vec<OsString>) -> Vec<OsString> {
    if !is_ab(&words) {
        return words;
    }
    let texts: Option<Vec<&str>> = words.iter().map(|word| word.to_str()).collect();
    match texts {
        Some(texts) => KnownOptions::new().quoted(&texts).into_iter().map(OsString::from).collect(),
        None => words,
    }
}

/// True if the arguments call `aorta ab`.
fn is_ab(words: &[OsString]) -> bool {
    let mut rest = words.iter().skip(1);
    while let Some(word) = rest.next() {
        match word.to_str() {
            // The only global option, and its value.
            Some("--diagnostics") => {
                rest.next();
            }
            Some(word) if word.starts_with('-') => {}
            word => return word == Some("ab"),
        }
    }
    false
}

/// The options that a side can have.
struct KnownOptions {
    exec: clap::Command,
    /// Options of `aorta ab` that a side cannot have.
    own: Vec<String>,
}

impl KnownOptions {
    fn new() -> KnownOptions {
        let names = |command: &clap::Command| -> Vec<String> {
            command.get_arguments().filter_map(|arg| arg.get_long().map(str::to_owned)).collect()
        };
        let both = names(&ForwardedArgs::<SideOptions>::augment_args(clap::Command::new("both")));
        let ab_options = names(&AbArgs::augment_args(clap::Command::new("ab")));
        KnownOptions {
            exec: ExecArgs::augment_args(clap::Command::new("exec")),
            own: ab_options.into_iter().filter(|name| !both.contains(name)).collect(),
        }
    }

    fn quoted(&self, words: &[&str]) -> Vec<String> {
        let mut quoted = Vec::new();
        let mut rest = words;
        while let [word, behind @ ..] = rest {
            rest = behind;
            let words_of_side = if SIDES.contains(word) { self.side(rest) } else { 0 };
            let is_empty = rest.first().is_some_and(|next| SIDES.contains(next));
            if words_of_side == 0 && !(SIDES.contains(word) && is_empty) {
                quoted.push((*word).to_owned());
                continue;
            }
            let (side, behind) = rest.split_at(words_of_side);
            rest = behind;
            quoted.push(format!("{word}={}", shell::command(side)));
        }
        quoted
    }

    /// Number of leading words that are options of a side or their values; 0 if the first word is a quoted text, no
    /// option, or an option of `aorta ab` itself.
    fn side(&self, words: &[&str]) -> usize {
        let mut count = 0;
        while let Some(word) = words.get(count) {
            let Some(option) = word.strip_prefix("--").filter(|_| !word.contains(char::is_whitespace)) else { break };
            let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
            if self.own.iter().any(|own| own == name) {
                break;
            }
            let known = self.exec.get_arguments().find(|arg| arg.get_long() == Some(name));
            // An unknown option keeps the word that seems to be its value, so that reading the side reports the error.
            let has_value = match known {
                Some(known) => known.get_action().takes_values(),
                None => words.get(count + 1).is_some_and(|next| !next.starts_with('-')),
            };
            count += 1 + usize::from(has_value && value.is_none());
        }
        count.min(words.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_behind_a_side_are_its_own() {
        let read = |text: &str| {
            let words = shell::words(text).expect("quotes are closed");
            let quoted = quoted(words.into_iter().map(OsString::from).collect());
            quoted.into_iter().map(|word| word.into_string().expect("text")).collect::<Vec<_>>().join("|")
        };
        assert_eq!(
            read("aorta ab x --a --set n=4 --b --set n=8 --streams 2"),
            "aorta|ab|x|--a=--set n=4|--b=--set n=8 --streams 2"
        );
        assert_eq!(
            read("aorta --diagnostics json ab --b --streams=2 x"),
            "aorta|--diagnostics|json|ab|--b=--streams=2|x"
        );
        assert_eq!(
            read("aorta ab x --a --set 'n=[1, 2]' --verify --rounds 8 --b --env A=1 --iterations 5 --set m=1"),
            "aorta|ab|x|--a=--set 'n=[1, 2]' --verify|--rounds|8|--b=--env A=1|--iterations|5|--set|m=1",
            "options of `ab` itself end a side"
        );
        assert_eq!(read("aorta ab x --a --unknown 4 --b"), "aorta|ab|x|--a=--unknown 4|--b");
        assert_eq!(read("aorta ab x --a --b --set n=8"), "aorta|ab|x|--a=|--b=--set n=8");
        for same in [
            "aorta|ab|x|--a|--set n=4|--b|--set n=8",
            "aorta|ab|x|--a|y --streams 4|--set|n=4",
            "aorta|ab|x|--a|y|--b|z",
            "aorta|ab|x|--a=--set n=4|--rounds|8",
            "aorta|ab|x|--b",
            "aorta|exec|ab|--a|--set|n=4",
            "aorta",
        ] {
            let words: Vec<OsString> = same.split('|').map(OsString::from).collect();
            assert_eq!(quoted(words.clone()), words);
        }
    }
}
