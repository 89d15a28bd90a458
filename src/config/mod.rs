//! Reads RON files: device profiles, run settings, scenarios, suites, projects, normal ranges. Checks their values.
//! Reads and writes bundles.
//!
//! Takes texts, not files: the command line reads the files.

mod bad_ron;
mod bundle;
mod choices;
mod error;
pub mod expected;
mod field;
mod figure;
mod format;
mod kernelbench;
mod kind;
mod links;
mod mistakes;
mod partition;
mod places;
mod profile;
mod project;
mod punctuation;
mod quantity;
mod ron_file;
mod scenario;
mod settings;
mod suite;
mod suite_table;
mod tokens;
mod value;
mod variables;
mod words;

pub use bundle::{Bundle, BundledFile, BundledPlan, part_name, unhex};
pub use choices::{
    BackendSetting, CacheSetting, CaseOrder, DataSetting, Effort, GateSetting, LaunchSetting, ObserveSetting,
    SyncSetting,
};
pub use error::ConfigError;
pub use expected::Expected;
pub use figure::SourcedFigure;
pub use format::format_ron;
pub use kernelbench::{Level, Problem, problem_number};
pub use kind::RonKind;
pub use links::{CollectiveTimes, Link, Links, Wiring};
pub use mistakes::Mistakes;
pub use profile::{
    CopyEngines, GraphCosts, HostCosts, HostLink, MAX_QUEUES, PEER_KERNEL_BYTES, Profile, QueueRule, Queues,
    queues_variable,
};
pub use project::{PROJECT_FILE, Project};
pub use quantity::{Quantity, QuantityRange};
pub use scenario::{FIELDS, Field, OPTIONS_WITHOUT_FIELD, Scenario, check_setting, check_variable};
pub use settings::{MAX_CYCLE, SETTINGS, Setting, Settings};
pub use suite::{Needs, SuiteAxis, SuiteCase, SuiteFile};
pub use suite_table::{SuiteTable, TableCell, TableColumn};
pub use value::{EffortPlan, MAX_ITERATIONS};
pub use variables::allowed as allowed_variables;

/// True if a scenario may set the variable to this value.
pub fn is_allowed_variable(name: &str, value: &str) -> bool {
    variables::check(name, value).is_ok()
}
