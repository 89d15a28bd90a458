//! Describes a run: its settings, scenario, bundle and project.

pub(super) mod bundle;
pub(super) mod project;
pub(super) mod scenario;
pub(super) mod settings;
pub(super) mod variables;
