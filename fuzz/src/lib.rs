//! What the fuzz targets assert, and how bytes become texts. Each target is named by the stage that it goes up to; what
//! it holds stands at its function in [`properties`].

pub mod grammar;
#[path = "../../tests/common/oracle.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
pub mod oracle;
pub mod properties;
#[cfg(not(aorta_language))]
pub mod records;
pub mod wire;

/// The byte that begins inputs from which a text is made. No text begins with it: it is no UTF-8.
const MADE: u8 = 0xff;

/// The text of an input: its own bytes, or made from them.
pub fn text(data: &[u8]) -> String {
    match data {
        [MADE, choices @ ..] => grammar::text(choices),
        bytes => String::from_utf8_lossy(bytes).into_owned(),
    }
}
