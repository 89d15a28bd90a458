//! RON to checked settings: device profiles, run settings, scenarios, suites, what is normal on a
//! device.
//!
//! Reads text, not files: the command line says where texts come from.

mod choices;
mod error;
pub mod expected;
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
pub use links::{Link, Links, Table, Wiring};
pub use profile::{CopyEngines, Figure, GraphCosts, HostCosts, HostLink, Profile, QueueRule, Queues};
pub use quantity::{Quantity, Span};
pub use scenario::Scenario;
pub use settings::{MAX_CYCLE, SETTINGS, Setting, Settings};
pub use suite::{Needs, Suite, SuiteCase};
pub use value::{EffortPlan, MAX_ITERATIONS};
pub use variables::allowed as allowed_variables;
