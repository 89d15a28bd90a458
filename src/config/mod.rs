//! Reads RON files: device profiles, run settings, scenarios, suites, normal ranges. Checks their values.
//!
//! Takes texts, not files: the command line reads the files.

mod choices;
mod error;
pub mod expected;
mod figure;
mod links;
mod partition;
mod profile;
mod quantity;
mod scenario;
mod settings;
mod suite;
mod value;
mod variables;

pub use choices::{CacheSetting, DataSetting, Effort, GateSetting, LaunchSetting};
pub use error::ConfigError;
pub use expected::Expected;
pub use figure::Figure;
pub use links::{Link, Links, Table, Wiring};
pub use profile::{CopyEngines, GraphCosts, HostCosts, HostLink, Profile, QueueRule, Queues};
pub use quantity::{Quantity, Span};
pub use scenario::Scenario;
pub use settings::{MAX_CYCLE, SETTINGS, Setting, Settings};
pub use suite::{Needs, Suite, SuiteCase};
pub use value::{EffortPlan, MAX_ITERATIONS};
pub use variables::allowed as allowed_variables;
