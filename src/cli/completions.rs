//! `aorta completions`: prints a completion script for a shell.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Args, Command, CommandFactory};
use clap_complete::Shell;

use crate::config::SETTINGS;

use super::{Cli, CliResult, DONE, output};

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Prints a script that the shell reads.
pub fn run(args: CompletionsArgs) -> CliResult {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "aorta", &mut script);
    output::print(&String::from_utf8_lossy(&script));
    Ok(DONE)
}

/// Accepts any text as `KEY=VALUE`, since the settings check it themselves, and offers completions of the keys.
#[derive(Clone)]
pub struct SettingParser;

impl TypedValueParser for SettingParser {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(SETTINGS.iter().flat_map(|setting| {
            let words: &[&str] = if setting.words.is_empty() { &[""] } else { setting.words };
            words.iter().map(move |word| PossibleValue::new(format!("{}={word}", setting.name)))
        })))
    }
}
