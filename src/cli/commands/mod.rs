//! The commands: a file for each, and the options that several of them share.

pub(super) mod ab;
pub(super) mod baseline;
pub(super) mod bundle;
pub(super) mod check;
pub(super) mod compare;
pub(super) mod completions;
pub(super) mod devices;
pub(super) mod dump;
pub(super) mod exec;
pub(super) mod explain;
pub(super) mod fast_p;
pub(super) mod fmt;
pub(super) mod forwarded_options;
pub(super) mod list;
pub(super) mod new;
pub(super) mod other_tools;
pub(super) mod plan;
pub(super) mod profile;
pub(super) mod report;
pub(super) mod scenario;
pub(super) mod show;
pub(super) mod suite;
pub(super) mod sweep;
pub(super) mod view;
