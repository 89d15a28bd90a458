//! What `aorta ab` and the runs that it has started say to each other.
//!
//! A run prints a line of JSON, [`Ready`], when it has warmed up. Then each line that it reads is a number of iterations, and
//! it answers with a line that is a [`Block`](crate::measure::Block). It ends when its standard input does.

use serde::{Deserialize, Serialize};

use crate::base::Nanos;
use crate::measure::RunRecord;
use crate::measure::record::WarmupRecord;

/// A run has warmed up, and waits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// What runs, where and with which settings: a record without figures.
    pub record: RunRecord,
    /// `stream` or `graph`.
    pub launch: String,
    /// Iterations after which the program repeats.
    pub period: usize,
    /// Whether iterations are held until the host has issued them; `None` of a graph.
    pub held: Option<bool>,
    pub warmup: WarmupRecord,
    /// How long an iteration may take before the run calls itself hung.
    pub timeout: Nanos,
    pub notes: Vec<String>,
}
