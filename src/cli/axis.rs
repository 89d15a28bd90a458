//! An axis of a sweep in the arguments of the command line.

use crate::measure::cases::Axis;

/// Options with the value `NAME=VALUE`, where each name is an axis of its own.
pub const NAMED: [&str; 3] = ["set", "env", "config"];

/// The argument that gives a case a value of an axis.
pub fn argument(axis: &Axis, value: &str) -> String {
    match NAMED.contains(&axis.option.as_str()) {
        true => format!("--{}={}={value}", axis.option, axis.name),
        false => format!("--{}={value}", axis.option),
    }
}

/// An axis as the user would type it.
pub fn typed(axis: &Axis) -> String {
    argument(axis, &axis.values.join(",")).replacen('=', " ", 1)
}
