//! Reads RON files: device profiles, run settings, scenarios, suites, projects, normal ranges. Checks their values.
//! Reads and writes bundles.
//!
//! Takes texts, not files: the command line reads the files.

mod device;
mod error;
mod ron;
mod run;
mod suite;
mod values;

pub use self::ron::format::format_ron;
pub use self::ron::kind::RonKind;
pub use self::ron::mistakes::Mistakes;
pub use device::expected::{self, Expected};
pub use device::figure::SourcedFigure;
pub use device::links::{CollectiveTimes, Link, Links, Wiring};
pub use device::profile::{
    CopyEngines, GraphCosts, HostCosts, HostLink, MAX_QUEUES, PEER_KERNEL_BYTES, Profile, QueueRule, Queues,
    queues_variable,
};
pub use error::ConfigError;
pub use run::bundle::{Bundle, BundledFile, BundledPlan, part_name, unhex};
pub use run::project::{PROJECT_FILE, Project};
pub use run::scenario::{FIELDS, Field, OPTIONS_WITHOUT_FIELD, Scenario, check_setting, check_variable};
pub use run::settings::{MAX_CYCLE, SETTINGS, Setting, Settings};
pub use run::variables::allowed as allowed_variables;
pub use suite::kernelbench::{Level, Problem, problem_number};
pub use suite::table::{SuiteTable, TableCell, TableColumn};
pub use suite::{Needs, SuiteAxis, SuiteCase, SuiteFile};
pub use values::choices::{
    BackendSetting, CacheSetting, CaseOrder, DataSetting, Effort, GateSetting, LaunchSetting, ObserveSetting,
    SyncSetting,
};
pub use values::quantity::{Quantity, QuantityRange};
pub use values::value::{EffortPlan, MAX_ITERATIONS};

/// True if a scenario may set the variable to this value.
pub fn is_allowed_variable(name: &str, value: &str) -> bool {
    run::variables::check(name, value).is_ok()
}
