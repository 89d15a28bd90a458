//! Messages from `aorta exec --blocks` to `aorta ab`.
//!
//! The run prints one [`Message`] per line as JSON: `Ready` once it has warmed up, then a `Block` for each line on its
//! standard input, which is a number of iterations. It ends when its standard input ends, or with `Failed`.

use serde::{Deserialize, Serialize};

use crate::base::Nanos;
use crate::measure::record::WarmupRecord;
use crate::measure::{Block, RunRecord};

/// A line that the run prints.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    Ready(Box<Ready>),
    Block(Block),
    /// The run ends with an error, which it also prints on standard error.
    Failed {
        message: String,
    },
}

/// The run has warmed up and waits for requests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// Program, device and settings: a record without measurements.
    pub record: RunRecord,
    /// Launch mode: `stream` or `graph`.
    pub launch: String,
    /// Number of iterations after which the program repeats.
    pub period: usize,
    /// True if iterations are gated; `None` for a graph.
    pub held: Option<bool>,
    pub warmup: WarmupRecord,
    /// Longest duration of an iteration before the run reports a hang.
    pub timeout: Nanos,
    pub notes: Vec<String>,
}
