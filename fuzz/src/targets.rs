//! The fuzz targets by name. Each takes the bytes of an input, and panics if a property does not hold.

use super::{grammar, properties, records, reports};

/// A target's name, which its program, its stored inputs and its failures have, and its function.
pub type Target = (&'static str, fn(&[u8]));

/// Every target. The documentation of [`properties`] and [`reports`] states the properties.
pub const TARGETS: [Target; 5] =
    [("text", text), ("plan", plan), ("record", record), ("journal", journal), ("frames", properties::frames)];

/// First byte of an input that is a list of choices rather than a text. It is not valid UTF-8, so no text begins with
/// it.
pub const CHOICES_MARK: u8 = 0xff;

/// The workload of an input: its bytes, or a file that they choose from the grammar.
pub fn workload(data: &[u8]) -> String {
    match data {
        [CHOICES_MARK, choices @ ..] => grammar::text(choices),
        bytes => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// Parses, formats and analyses a workload.
pub fn text(data: &[u8]) {
    properties::text(&workload(data));
}

/// Plans, schedules and simulates a workload.
pub fn plan(data: &[u8]) {
    properties::plan(&workload(data));
}

/// Reports on an edited record of a run.
pub fn record(data: &[u8]) {
    reports::show(&records::text(data, &records::RECORDS));
}

/// Reports on an edited file of cases.
pub fn journal(data: &[u8]) {
    reports::show_cases(&records::text(data, &records::JOURNALS));
}
