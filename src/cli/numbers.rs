//! Messages for arguments that should be numbers.

use std::num::{IntErrorKind, ParseFloatError, ParseIntError};

/// The message for a value that is no whole number.
pub(super) const NO_NUMBER: &str = "a whole number is expected";

/// The message of an error in the arguments, in which the parser's words for a value that is no number are replaced by what is expected.
pub(super) fn parse_error_text(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let Some(source) = std::error::Error::source(error) else { return text };
    let expected = if let Some(source) = source.downcast_ref::<ParseIntError>() {
        match source.kind() {
            IntErrorKind::PosOverflow => "the number is too large",
            IntErrorKind::NegOverflow => "the number is too small",
            IntErrorKind::InvalidDigit if is_negative(error) => "a whole number from 0 on is expected",
            _ => NO_NUMBER,
        }
    } else if source.is::<ParseFloatError>() {
        "a number is expected"
    } else {
        return text;
    };
    text.replace(&source.to_string(), expected)
}

/// True if the value that an error names begins with a minus sign.
fn is_negative(error: &clap::Error) -> bool {
    let value = error.get(clap::error::ContextKind::InvalidValue);
    matches!(value, Some(clap::error::ContextValue::String(text)) if text.starts_with('-'))
}

/// The tip for an option that takes a whole number; `None` for other options.
pub(super) fn whole_number(argument: &str) -> Option<String> {
    let count = match argument {
        "--iterations" => 100,
        "--warmup" => 10,
        "--top" | "--cycle" => 5,
        "--rounds" => 16,
        "--budget" => 40,
        "--ranks" | "--emulate" | "--streams" => 4,
        _ => return None,
    };
    Some(format!("it takes a whole number, such as `{argument} {count}`"))
}
