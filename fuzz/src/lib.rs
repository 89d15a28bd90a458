//! The properties that fuzz targets check, and the conversion of bytes to inputs. Each target is named after what it
//! reads; its function in [`properties`] or [`records`] documents what must hold.

pub mod grammar;
#[path = "../../tests/common/invariants.rs"]
pub mod invariants;
#[path = "../../tests/common/oracle.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
pub mod oracle;
pub mod properties;
pub mod records;
#[path = "../../tests/common/reparsed.rs"]
pub mod reparsed;
pub mod wire;

/// First byte of an input that is a list of choices rather than a text. It is not valid UTF-8, so no text begins with
/// it.
const CHOICES_MARK: u8 = 0xff;

/// The text of an input: its bytes, or a file that they choose from the grammar.
pub fn text(data: &[u8]) -> String {
    match data {
        [CHOICES_MARK, choices @ ..] => grammar::text(choices),
        bytes => String::from_utf8_lossy(bytes).into_owned(),
    }
}
