//! Pages of several runs: the sides of an A/B run, records, the cases of a sweep, search or suite.

pub(super) mod ab;
pub(super) mod cases;
pub(super) mod cases_csv;
pub mod compare;
pub(super) mod curve;
pub mod fast_p;
pub(super) mod search;
pub(super) mod suite;
pub(super) mod suite_table;
pub(super) mod sweep;
