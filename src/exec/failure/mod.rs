//! Errors of a run: finds the failing operation, and explains a hang.

pub(super) mod aftermath;
pub(super) mod constant_text;
pub(super) mod diagnose;
pub(super) mod error;
pub(super) mod hang;
pub(super) mod watchdog;
