//! Errors in settings, profiles, scenarios, suites and normal ranges.

use miette::Diagnostic;
use thiserror::Error;

use super::ron::mistakes::Mistakes;

/// An error in a configuration: a setting, a scenario, a profile, or another RON file.
#[derive(Clone, Debug, Error, Diagnostic)]
pub enum ConfigError {
    /// Every mistake that was found in a RON file, each with its place.
    #[error("{0}")]
    File(Box<Mistakes>),

    #[error("{message}")]
    #[diagnostic(code(aorta::config::bad_ron), help("{help}"))]
    BadRon { message: String, help: String },

    #[error("{file} names no workload")]
    #[diagnostic(code(aorta::config::no_workload), help("write `workload: \"moe\"`"))]
    NoWorkload { file: String },

    #[error("{file} sets the variable `{name}`, which no environment can hold")]
    #[diagnostic(
        code(aorta::config::bad_variable),
        help("a name is not empty and has no `=`; no name and no value holds a zero byte")
    )]
    BadVariable { file: String, name: String },

    #[error("{file} sets the variable `{name}`, {why}")]
    #[diagnostic(
        code(aorta::config::refused_variable),
        help(
            "a file may set only variables that cannot load code or open files (docs/security.md lists them); if you \
             trust this value, remove it from the file and give it yourself: `--env {pair}`"
        )
    )]
    RefusedVariable {
        file: String,
        name: String,
        why: String,
        /// `NAME=VALUE` in the syntax of a shell.
        pair: String,
    },

    #[error("{file} sets `{name}`, which only you may set")]
    #[diagnostic(
        code(aorta::config::refused_setting),
        help(
            "a file may not raise a limit or permit anything (docs/security.md lists these settings); if you want this, \
             remove it from the file and give it yourself: `--config {pair}`"
        )
    )]
    RefusedSetting {
        file: String,
        name: String,
        /// `NAME=VALUE` in the syntax of a shell.
        pair: String,
    },

    #[error("{file}, line {line}: {why}")]
    #[diagnostic(code(aorta::config::bad_bundle), help("{help}"))]
    BadBundle { file: String, line: usize, why: String, help: String },

    #[error("{file} was changed after it was bundled, in {parts}")]
    #[diagnostic(
        code(aorta::config::changed_part),
        help(
            "if the change is intended: `aorta unbundle {file}` makes a folder of it, and `aorta bundle` bundles that"
        )
    )]
    ChangedPart { file: String, parts: String },

    #[error("there is no setting `{name}`")]
    #[diagnostic(code(aorta::config::unknown_setting))]
    UnknownSetting {
        name: String,
        #[help]
        help: Option<String>,
    },

    #[error("`{name}` cannot be {value}: {why}")]
    #[diagnostic(code(aorta::config::bad_value), help("{help}"))]
    BadValue { name: String, value: String, why: String, help: String },

    #[error("`{given}` is no `key=value`")]
    #[diagnostic(code(aorta::config::no_pair), help("write the name, `=`, and the value without spaces between"))]
    NoPair { given: String },

    #[error("there is no suite `{name}`")]
    #[diagnostic(code(aorta::config::unknown_suite))]
    UnknownSuite {
        name: String,
        #[help]
        help: Option<String>,
    },

    #[error("there is no topology `{name}`")]
    #[diagnostic(code(aorta::config::unknown_topology))]
    UnknownTopology {
        name: String,
        #[help]
        help: Option<String>,
    },

    #[error("there is no device profile `{name}`")]
    #[diagnostic(code(aorta::config::unknown_profile))]
    UnknownProfile {
        name: String,
        #[help]
        help: Option<String>,
    },
}

impl Mistakes {
    /// Fails if there is a mistake.
    pub fn finish(mut self) -> Result<(), ConfigError> {
        if self.all.is_empty() {
            return Ok(());
        }
        self.all.sort_by_key(|mistake| mistake.at);
        Err(self.into())
    }
}

impl From<Mistakes> for ConfigError {
    fn from(mistakes: Mistakes) -> ConfigError {
        ConfigError::File(Box::new(mistakes))
    }
}
