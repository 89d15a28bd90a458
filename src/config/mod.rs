//! RON to checked settings: device profiles, run settings, scenarios.
//!
//! Reads text, not files: the command line says where texts come from.

mod error;
mod links;
mod partition;
mod profile;
mod scenario;
mod settings;

pub use error::ConfigError;
pub use links::{Link, Links, Table};
pub use profile::{CopyEngines, Figure, GraphCosts, HostCosts, Profile, QueueRule, Queues};
pub use scenario::Scenario;
pub use settings::{
    CacheSetting, DataSetting, Effort, EffortPlan, GateSetting, LaunchSetting, MAX_CYCLE, MAX_ITERATIONS, Settings,
};
