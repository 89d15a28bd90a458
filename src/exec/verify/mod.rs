//! Reads every result of a schedule, and verifies at run time that its dependencies hold.

pub(super) mod inspect;
pub(super) mod witness;
