//! Messages between `aorta ab` and `aorta exec --blocks`.
//!
//! Each line is JSON. The run reads a [`BlockRequest`] per line of its standard input, and prints a [`BlockMessage`] per line: `Ready`
//! once it has warmed up, then an answer to each request. It ends when its standard input ends, or with `Failed`.

use serde::{Deserialize, Serialize};

use crate::base::Nanos;
use crate::measure::record::WarmupRecord;
use crate::measure::{BlockResult, RunRecord};

/// A line that the run reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockRequest {
    /// Measure a block of this many iterations.
    Block(u64),
    /// Run the `teardown`, since no block follows.
    TearDown,
}

/// A line that the run prints.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockMessage {
    Ready(Box<WarmedUp>),
    Block(BlockResult),
    /// The `teardown` has run, if the file has one.
    TornDown,
    /// The run ends with an error, which it also prints on standard error.
    Failed {
        message: String,
    },
}

/// The run has warmed up and waits for requests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WarmedUp {
    /// Program, device and settings: a record without measurements.
    pub record: RunRecord,
    /// Launch mode: `stream` or `graph`.
    pub launch: String,
    /// Number of iterations after which the program repeats.
    pub period: usize,
    /// True if iterations are gated; `None` for a graph.
    pub gated: Option<bool>,
    pub warmup: WarmupRecord,
    /// Longest duration of an iteration before the run reports a hang.
    pub timeout: Nanos,
    pub notes: Vec<String>,
}
