//! RON to checked settings: device profiles, run settings, scenarios, suites, what is normal on a
//! device.
//!
//! Reads text, not files: the command line says where texts come from.

mod error;
pub mod expected;
mod links;
mod partition;
mod profile;
mod quantity;
mod scenario;
mod settings;
mod suite;
mod variables;

pub use error::ConfigError;
pub use expected::Expected;
pub use links::{Link, Links, Table, Wiring};
pub use profile::{CopyEngines, Figure, GraphCosts, HostCosts, HostLink, Profile, QueueRule, Queues};
pub use quantity::{Quantity, Span};
pub use scenario::Scenario;
pub use settings::{
    CacheSetting, DataSetting, Effort, EffortPlan, GateSetting, LaunchSetting, MAX_CYCLE, MAX_ITERATIONS, Settings,
};
pub use suite::{Needs, Suite, SuiteCase};
pub use variables::allowed as allowed_variables;
