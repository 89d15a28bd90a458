//! Samples: the times of one rank's measured iterations.

use serde::{Deserialize, Serialize};

use crate::base::Nanos;

/// Measured samples of one rank.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Samples {
    /// Number of the first measured iteration, counted from the first that was issued. Determines the slot of each
    /// sample.
    pub first: u64,
    /// Device time of each measured iteration.
    pub time: Vec<Nanos>,
    /// Host time for issuing each measured iteration.
    pub issue: Vec<Nanos>,
    /// True if iterations were gated.
    pub gated: bool,
    /// Number of measured iterations that began before they had been issued although they were gated.
    pub ungated: u64,
    /// True if the run was stopped before all iterations were measured.
    pub stopped: bool,
}

impl Samples {
    /// Appends samples of `iterations` iterations that are proved equal to those of the latest `period`.
    pub(super) fn repeat(&mut self, period: u64, iterations: u64) {
        for samples in [&mut self.time, &mut self.issue] {
            let from = samples.len() - period as usize;
            for index in 0..iterations as usize {
                samples.push(samples[from + index]);
            }
        }
    }

    /// Keeps the first `count` samples.
    pub(in crate::exec) fn truncate(&mut self, count: usize) {
        self.time.truncate(count);
        self.issue.truncate(count);
        self.ungated = self.ungated.min(self.time.len() as u64);
    }

    /// Appends samples of further iterations, the first of which is in the slot after the last one here.
    pub(in crate::exec) fn append(&mut self, later: Samples) {
        self.time.extend(later.time);
        self.issue.extend(later.issue);
        self.gated &= later.gated;
        self.ungated += later.ungated;
        self.stopped |= later.stopped;
    }
}
