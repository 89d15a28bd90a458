//! Reads RON files with all of their mistakes, explains the mistakes, and formats the files.

pub(super) mod bad_ron;
pub(super) mod format;
pub(super) mod kind;
pub(super) mod mistakes;
pub(super) mod places;
pub(super) mod punctuation;
pub(super) mod ron_file;
pub(super) mod tokens;
