//! Plain values: expressions, functions, parameters, and draws.

pub(super) mod distribution;
pub(super) mod drawn;
pub(super) mod draws;
pub(super) mod eval;
pub(super) mod functions;
pub(super) mod lists;
pub(super) mod params;
pub(super) mod require;
pub(super) mod trace;
pub(super) mod value;
