//! The properties that fuzz targets check, and the conversion of bytes to inputs.

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
#[path = "../../tests/common/records.rs"]
pub mod reports;
pub mod targets;
pub mod wire;
