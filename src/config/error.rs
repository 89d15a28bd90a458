//! Errors in settings, profiles, scenarios, suites and normal ranges.

use miette::Diagnostic;
use thiserror::Error;

use crate::base::{SourceMap, SrcSpan};

#[derive(Clone, Debug, Error, Diagnostic)]
pub enum ConfigError {
    #[error("{}: {message}", .sources.place(*.at))]
    #[diagnostic(code(aorta::config::bad_ron))]
    BadRon {
        message: String,
        /// The text that cannot be read, under the name of its file.
        sources: SourceMap,
        #[label("{label}")]
        at: SrcSpan,
        label: String,
        #[help]
        help: String,
    },

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
    #[diagnostic(code(aorta::config::bad_bundle))]
    BadBundle {
        file: String,
        line: usize,
        why: String,
        #[help]
        help: String,
    },

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
    #[diagnostic(code(aorta::config::bad_value))]
    BadValue {
        name: String,
        value: String,
        why: String,
        #[help]
        help: String,
    },

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

impl ConfigError {
    /// Names the file that gives a setting its invalid value.
    pub(super) fn in_file(self, file: &str) -> ConfigError {
        match self {
            ConfigError::BadValue { name, value, why, help } => {
                ConfigError::BadValue { name: format!("{name} in {file}"), value, why, help }
            }
            other => other,
        }
    }

    /// The texts to which the labels refer; `None` for an error without labels.
    pub fn sources(&self) -> Option<&SourceMap> {
        match self {
            ConfigError::BadRon { sources, .. } => Some(sources),
            _ => None,
        }
    }
}
