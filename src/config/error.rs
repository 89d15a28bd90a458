//! Errors in settings, profiles, scenarios, suites and normal ranges.

use miette::Diagnostic;
use thiserror::Error;

use crate::base::suggest;

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

/// The error of a RON text. `help` is used if there is no similar word to suggest.
pub(super) fn bad_ron(file: &str, error: &ron::error::SpannedError, help: &str) -> ConfigError {
    let near = match &error.code {
        ron::Error::NoSuchStructField { expected, found, .. }
        | ron::Error::NoSuchEnumVariant { expected, found, .. } => {
            suggest::nearest(found, expected.iter().copied()).map(|near| format!("did you mean `{near}`?"))
        }
        _ => None,
    };
    ConfigError::BadRon {
        file: file.to_owned(),
        line: error.span.start.line,
        column: error.span.start.col,
        message: match (&error.code, &near) {
            (ron::Error::NoSuchStructField { found, .. }, Some(_)) => format!("there is no field `{found}`"),
            (code, _) => explain(code),
        },
        help: near.unwrap_or_else(|| help.to_owned()),
    }
}

/// Describes a RON error without names from this program's source code.
pub(super) fn explain(error: &ron::Error) -> String {
    use ron::Error::*;
    match error {
        NoSuchStructField { expected, found, .. } => {
            format!("there is no field `{found}`, expected one of {}", suggest::listed(expected))
        }
        MissingStructField { field, .. } => format!("the field `{field}` is missing"),
        DuplicateStructField { field, .. } => format!("the field `{field}` is there twice"),
        NoSuchEnumVariant { expected, found, .. } => format!("`{found}` is none of {}", suggest::listed(expected)),
        ExpectedStructLike
        | ExpectedNamedStructLike(_)
        | ExpectedStructName(_)
        | ExpectedDifferentStructName { .. } => "Expected opening `(`".to_owned(),
        InvalidValueForType { expected, found } if expected.contains("struct ") => {
            format!("Expected `( … )` but found {found} instead")
        }
        ExpectedDifferentLength { expected, found } if expected.contains("struct ") => {
            format!("Expected `( … )` with another number of values than {found}")
        }
        Eof => "the text ends too early: a bracket is not closed".to_owned(),
        ExpectedComma => "a `,` or the closing bracket is expected".to_owned(),
        ExpectedArrayEnd => "a `,` or the `]` of this list is expected".to_owned(),
        ExpectedMapEnd => "a `,` or the `}` of this map is expected".to_owned(),
        ExpectedStructLikeEnd => "a `,` or the `)` of these fields is expected".to_owned(),
        ExpectedMapColon => "a `:` is expected between a name and its value".to_owned(),
        ExpectedString => "a text in quotes is expected, such as \"4\" or \"60s\"".to_owned(),
        ExpectedInteger | InvalidIntegerDigit { .. } | IntegerOutOfBounds => "a whole number is expected".to_owned(),
        ExpectedFloat => "a number is expected".to_owned(),
        ExpectedBoolean => "`true` or `false` is expected".to_owned(),
        ExpectedUnit | ExpectedIdentifier => "a word without quotes is expected".to_owned(),
        TrailingCharacters => "one value is expected, and there is more".to_owned(),
        error => error.to_string(),
    }
}
