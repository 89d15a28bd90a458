//! Processes of a run: children that run `aorta exec`, and ranks that a launcher has started.

pub(super) mod blocks;
pub(super) mod cases;
pub(super) mod child;
pub(super) mod launcher;
pub(super) mod secret;
