//! `aorta completions`: prints a completion script for a shell. Names of files and suites are queried at each
//! completion, so that they match the current project.

use std::collections::BTreeSet;
use std::ffi::OsStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Args, Command, ValueEnum};
use clap_complete::Shell;

use crate::config::{SETTINGS, SuiteFile};

use super::suite;
use crate::cli::inputs::{library, project};
use crate::cli::io::output;
use crate::cli::{CliResult, DONE};

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(required_unless_present = "names")]
    shell: Option<Shell>,
    /// Print the names that an argument can be, those of the project and the shipped ones; the scripts call this
    #[arg(long, value_name = "OF", conflicts_with = "shell")]
    names: Option<NameKind>,
}

/// Values of `--names`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum NameKind {
    /// Workloads, scenarios and bundles
    Files,
    /// Suites
    Suites,
}

/// Wraps the generated function of bash: arguments that are no options can be names, too. Words come with the files.
const BASH: &str = r#"
_aorta_named() {
    _aorta "$@"
    local cur="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" of=files
    [[ "${COMP_WORDS[1]}" == suite ]] && of=suites
    if [[ ${COMP_CWORD} -ge 2 && "$cur" != -* && "$before" != -* ]]; then
        COMPREPLY+=($(compgen -W "$(aorta completions --names $of 2>/dev/null)" -- "$cur"))
        COMPREPLY+=($(compgen -f -- "$cur"))
    fi
}
complete -F _aorta_named -o nosort -o bashdefault -o default aorta
"#;

/// Completes names and files in zsh, in place of files alone.
const ZSH: &str = r#"
_aorta_named() {
    local of=files
    [[ "${words[1]}" == *suite* ]] && of=suites
    local -a found
    found=(${(f)"$(aorta completions --names $of 2>/dev/null)"})
    _alternative 'names:name:compadd -a found' 'files:file:_files'
}
"#;

/// Adds names to the files that fish completes.
const FISH: &str = r#"
complete -c aorta -n "not __fish_use_subcommand; and not __fish_seen_subcommand_from suite" -a "(aorta completions --names files 2>/dev/null)"
complete -c aorta -n "__fish_seen_subcommand_from suite" -a "(aorta completions --names suites 2>/dev/null)"
"#;

/// Prints a script that the shell reads, or names.
pub fn run(args: CompletionsArgs) -> CliResult {
    let Some(shell) = args.shell else {
        let names = names(args.names.unwrap_or(NameKind::Files));
        output::print(&names.iter().map(|name| format!("{name}\n")).collect::<String>());
        return Ok(DONE);
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut crate::cli::definition(), "aorta", &mut script);
    let script = String::from_utf8_lossy(&script);
    output::print(&match shell {
        Shell::Bash => format!("{script}{BASH}"),
        Shell::Zsh => with_names_in_zsh(&script),
        Shell::Fish => format!("{script}{FISH}"),
        _ => script.into_owned(),
    });
    Ok(DONE)
}

/// The script of zsh whose arguments without a name of their own complete names, too.
fn with_names_in_zsh(script: &str) -> String {
    let line = |line: &str| match line.trim_start_matches(['\'', '"', '*']).starts_with(':') {
        true => line.replace(":_default", ":_aorta_named"),
        false => line.to_owned(),
    };
    let (head, rest) = script.split_once("\n\n").unwrap_or(("#compdef aorta", script));
    let lines: Vec<String> = rest.lines().map(line).collect();
    format!("{head}\n{ZSH}\n{}\n", lines.join("\n"))
}

/// The names that an argument can be, sorted. A project that cannot be read has none. Shells expand words, so names with
/// other characters than those of plain paths are left out.
fn names(of: NameKind) -> BTreeSet<String> {
    let files = project::here().ok().flatten().map(|library| library.files).unwrap_or_default();
    let is_suite = |path: &str| path.ends_with(".ron") && suite::is_suite(path).unwrap_or(false);
    let of_project = files.iter().filter_map(|file| {
        let path = file.display().to_string();
        let stem = file.file_stem()?.to_str()?.to_owned();
        // A name that several files have means none of them.
        let means_it = project::meaning(&stem).is_ok_and(|found| found == path);
        (is_suite(&path) == (of == NameKind::Suites)).then_some(if means_it { stem } else { path })
    });
    let shipped: Vec<String> = match of {
        NameKind::Files => library::all().iter().map(|shipped| shipped.stem.to_owned()).collect(),
        NameKind::Suites => SuiteFile::names().map(str::to_owned).collect(),
    };
    let is_plain = |name: &String| name.chars().all(|c| c.is_ascii_alphanumeric() || "._/-".contains(c));
    of_project.chain(shipped).filter(is_plain).filter(|name| !name.starts_with('-')).collect()
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
