//! What the runs that `aorta ab` has started send to it.
//!
//! A run prints one [`Message`] a line, as JSON: `Ready` when it has warmed up, then a `Block` for each line of its
//! standard input, which is a number of iterations. It ends when its standard input does, or with `Failed`.

use serde::{Deserialize, Serialize};

use crate::base::Nanos;
use crate::measure::record::WarmupRecord;
use crate::measure::{Block, RunRecord};

/// A line from a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    Ready(Box<Ready>),
    Block(Block),
    /// The run ends with an error, which it also prints for people on standard error.
    Failed {
        message: String,
    },
}

/// A run that has warmed up, and waits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// The program, the device and the settings: a record without figures.
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
