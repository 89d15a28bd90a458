//! The measured loop: issues iterations, times them, and agrees with the other ranks on the last one.

pub(super) mod control;
pub(super) mod gate;
pub(super) mod health;
pub(super) mod samples;
pub(super) mod session;
pub(super) mod stopping;
pub(super) mod timer;
