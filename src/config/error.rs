//! Mistakes in settings, profiles and scenarios.

use miette::Diagnostic;
use thiserror::Error;

#[derive(Clone, Debug, Error, Diagnostic)]
pub enum ConfigError {
    #[error("{file}:{line}:{column}: {message}")]
    #[diagnostic(code(aorta::config::bad_ron))]
    BadRon {
        file: String,
        line: usize,
        column: usize,
        message: String,
        #[help]
        help: Option<String>,
    },

    #[error("there is no setting `{name}`")]
    #[diagnostic(code(aorta::config::unknown_setting))]
    UnknownSetting {
        name: String,
        #[help]
        help: Option<String>,
    },

    #[error("`{name}` cannot be {value}: {why}")]
    #[diagnostic(code(aorta::config::bad_value))]
    BadValue { name: String, value: String, why: String },

    #[error("`{given}` is no `key=value`")]
    #[diagnostic(code(aorta::config::no_pair), help("write the name, `=`, and the value without spaces between"))]
    NoPair { given: String },

    #[error("there is no device profile `{name}`")]
    #[diagnostic(code(aorta::config::unknown_profile))]
    UnknownProfile {
        name: String,
        #[help]
        help: Option<String>,
    },
}

/// The error of a RON text, with a suggestion where a field's name is not known.
pub(super) fn bad_ron(file: &str, error: &ron::error::SpannedError) -> ConfigError {
    let help = match &error.code {
        ron::Error::NoSuchStructField { expected, found, .. } => {
            crate::base::suggest::did_you_mean(found, expected.iter().copied())
        }
        _ => None,
    };
    ConfigError::BadRon {
        file: file.to_owned(),
        line: error.span.start.line,
        column: error.span.start.col,
        message: error.code.to_string(),
        help,
    }
}
