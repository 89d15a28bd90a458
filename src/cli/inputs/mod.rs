//! Finds and reads the files that a command names.

pub(super) mod container;
pub(super) mod expected;
pub(super) mod file_access;
pub(super) mod kinds;
pub(super) mod library;
pub(super) mod load;
pub(super) mod mistake_location;
pub(super) mod modules;
pub(super) mod project;
pub(super) mod stored;
pub(super) mod wrong_kind;
