//! Samples of a launch mode and of the run on one stream, before they become a record.

use crate::base::Nanos;
use crate::exec::{LaunchMode, ObservedBy, Samples, Trace};

use super::blocks::MeasuredBlocks;
use crate::measure::observation::solo_durations::SoloDurations;
use crate::measure::record::WarmupRecord;

/// Samples of a launch mode.
pub(in crate::measure) struct VariantSamples {
    pub mode: LaunchMode,
    pub blocks: MeasuredBlocks,
    pub warmup: WarmupRecord,
    /// Samples of ungated iterations; `None` if the others are ungated.
    pub ungated: Option<Samples>,
    /// Observed iterations of each rank, slot by slot. Empty for ranks that were not observed, and for those of other
    /// processes unless this is rank 0.
    pub traces: Vec<Vec<Trace>>,
    /// The method that timed the operations of these iterations; `None` if the backend has only one method.
    pub observed_by: Option<ObservedBy>,
    pub notes: Vec<String>,
    /// Time that a compiler took for kernels; `None` if nothing is compiled.
    pub compile: Option<Nanos>,
}

impl VariantSamples {
    /// Samples of the same pace as those of the run on one stream: host-paced ones if that run could not be gated.
    pub fn beside_serial(&self, serial: Option<&Serial>) -> &Samples {
        let ungated = self.ungated.as_ref().filter(|_| serial.is_some_and(|serial| !serial.samples.gated));
        ungated.unwrap_or(&self.blocks.samples.slowest)
    }
}

/// Results of the run on one stream.
pub(in crate::measure) struct Serial {
    pub samples: Samples,
    /// Durations of single operations, for each rank.
    pub alone: Vec<SoloDurations>,
}
