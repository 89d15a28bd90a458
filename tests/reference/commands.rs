//! Every command with its arguments and options, from the definition of the command line.

use aorta::cli;
use clap::{Arg, Command};

use super::{code, table};

/// A section for each command: its description, usage, arguments and options.
pub fn commands() -> String {
    let mut aorta = cli::definition();
    aorta.build();
    let commands = aorta.get_subcommands().filter(|command| command.get_name() != "help");
    commands.map(section).collect::<Vec<_>>().join("\n")
}

/// The options that every command has, besides `--help`.
pub fn shared() -> String {
    let aorta = cli::definition();
    arguments(aorta.get_arguments().filter(|argument| argument.is_global_set()))
}

fn section(command: &Command) -> String {
    let name = command.get_name();
    let about = command.get_about().unwrap_or_else(|| panic!("`aorta {name}` has a description"));
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").trim_end();
    let own = command.get_arguments().filter(|argument| !argument.is_global_set() && argument.get_id() != "help");
    format!("## `aorta {name}`\n\n{about}.\n\n```text\n{usage}\n```\n\n{}", arguments(own))
}

fn arguments<'a>(arguments: impl Iterator<Item = &'a Arg>) -> String {
    let shown: Vec<&Arg> = arguments.filter(|argument| !argument.is_hide_set()).collect();
    if shown.is_empty() {
        return "It has no options of its own.\n".to_owned();
    }
    table(
        ["argument", "default", "meaning"],
        shown.into_iter().map(|argument| [code([form(argument).as_str()]), default(argument), meaning(argument)]),
    )
}

/// The argument as it is typed: `--set NAME=VALUE`, `-o, --output PATH`, `FILE`.
fn form(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    let values = names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" ");
    let Some(long) = argument.get_long() else { return values };
    let short = argument.get_short().map(|short| format!("-{short}, ")).unwrap_or_default();
    let value = match (argument.get_action().takes_values(), argument.is_require_equals_set()) {
        (false, _) => String::new(),
        (true, false) => format!(" {values}"),
        (true, true) => format!("[={values}]"),
    };
    format!("{short}--{long}{value}")
}

fn default(argument: &Arg) -> String {
    let hidden = argument.is_hide_default_value_set() || !argument.get_action().takes_values();
    let values = argument.get_default_values().iter().filter(|_| !hidden);
    code(values.filter_map(|value| value.to_str()))
}

fn meaning(argument: &Arg) -> String {
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let hidden = argument.is_hide_possible_values_set();
    let possible = argument.get_possible_values();
    let possible: Vec<&str> =
        possible.iter().filter(|value| !hidden && !value.is_hide_set()).map(|value| value.get_name()).collect();
    let possible = if possible.is_empty() { String::new() } else { format!(": {}", code(possible)) };
    format!("{help}{possible}").replace('\n', " ").replace('|', "\\|")
}
