//! Types of the values in settings, scenarios and suites.

pub(super) mod choices;
pub(super) mod field;
pub(super) mod quantity;
pub(super) mod value;
pub(super) mod words;
