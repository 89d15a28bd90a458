//! The formatter: nothing is lost, whatever the text; what has a meaning keeps it; what has been formatted stays as it
//! is; and everything shipped is formatted.

mod shipped;
mod soup;

use aorta::syntax::{self, Formatted, Limits};

fn format(text: &str) -> Formatted {
    syntax::format(text, &Limits::default())
}

/// What no formatter may touch: everything but white space and commas.
fn essence(text: &str) -> String {
    text.chars().filter(|c| !matches!(c, ' ' | '\t' | '\r' | '\n' | ',')).collect()
}

/// Formats a text, whatever it is, and checks what holds of every one.
#[track_caller]
fn formatted(text: &str) -> String {
    let once = format(text).text;
    assert_eq!(essence(text), essence(&once), "something was lost\n--- text\n{text}\n--- formatted\n{once}");
    let twice = format(&once).text;
    assert_eq!(once, twice, "formatting twice is not the same as once\n--- text\n{text}\n--- formatted\n{once}");
    once
}
