//! A series of times in the record.

use serde::{Deserialize, Serialize};

use crate::base::Nanos;

use super::slots;
use crate::measure::statistics::summary::Summary;

/// A series of times with its statistics. For a program with several slots, statistics are over rounds: of the mean
/// time of an iteration.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Times {
    /// Number of iterations.
    pub n: usize,
    /// Median; this and the other statistics are `None` if there are too few samples, or if the times are refused.
    pub p50_ns: Option<Nanos>,
    /// Interval that contains the true median with 95 % confidence.
    pub p50_low_ns: Option<Nanos>,
    pub p50_high_ns: Option<Nanos>,
    pub mean_ns: Option<Nanos>,
    pub std_ns: Option<Nanos>,
    pub min_ns: Option<Nanos>,
    pub max_ns: Option<Nanos>,
    pub p5_ns: Option<Nanos>,
    pub p95_ns: Option<Nanos>,
    pub p99_ns: Option<Nanos>,
    /// Coefficient of variation: standard deviation over mean.
    pub cv: Option<f64>,
    /// Every sample, in the order in which it was taken.
    pub samples_ns: Vec<Nanos>,
    /// Slot of the first sample; those of the others follow.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub first_slot: usize,
    /// Times of each slot; empty if all iterations are alike.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<SlotTimes>,
}

/// Times of the iterations of one slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SlotTimes {
    /// Number of iterations.
    pub n: usize,
    /// Median; this and the other statistics are `None` if there are too few samples.
    pub p50_ns: Option<Nanos>,
    /// Interval that contains the true median with 95 % confidence.
    pub p50_low_ns: Option<Nanos>,
    pub p50_high_ns: Option<Nanos>,
    pub min_ns: Option<Nanos>,
    pub max_ns: Option<Nanos>,
}

fn is_zero(value: &usize) -> bool {
    *value == 0
}

impl Times {
    /// Times of iterations that are all alike.
    pub fn of(samples: &[Nanos]) -> Times {
        Times::of_slots(samples, 1, 0)
    }

    /// Times of iterations with `slots` slots; `first` is the number of the first iteration. Less than a round counts
    /// as one, and has no times of slots.
    pub fn of_slots(samples: &[Nanos], slots: usize, first: u64) -> Times {
        let floats: Vec<f64> = samples.iter().map(|sample| sample.0 as f64).collect();
        let bare = Times { first_slot: (first % slots.max(1) as u64) as usize, ..Times::bare(samples) };
        let Some(summary) = Summary::of(&slots::rounds(&floats, slots)) else { return bare };
        let each = match slots > 1 && floats.len() >= slots {
            true => slots::by_slot(&floats, slots, first),
            false => Vec::new(),
        };
        Times {
            p50_ns: Some(Nanos::rounded(summary.p50)),
            p50_low_ns: summary.interval.map(|(low, _)| Nanos::rounded(low)),
            p50_high_ns: summary.interval.map(|(_, high)| Nanos::rounded(high)),
            mean_ns: Some(Nanos::rounded(summary.mean)),
            std_ns: summary.std.map(Nanos::rounded),
            min_ns: Some(Nanos::rounded(summary.min)),
            max_ns: Some(Nanos::rounded(summary.max)),
            p5_ns: summary.p5.map(Nanos::rounded),
            p95_ns: summary.p95.map(Nanos::rounded),
            p99_ns: summary.p99.map(Nanos::rounded),
            cv: summary.cv(),
            slots: each.iter().map(|samples| SlotTimes::of(samples)).collect(),
            ..bare
        }
    }

    /// Samples without statistics, for times that are refused.
    pub fn bare(samples: &[Nanos]) -> Times {
        Times { n: samples.len(), samples_ns: samples.to_vec(), ..Times::default() }
    }

    /// The statistics, each by the name of its field.
    pub fn statistics(&self) -> [(&'static str, Option<Nanos>); 10] {
        [
            ("p50_ns", self.p50_ns),
            ("p50_low_ns", self.p50_low_ns),
            ("p50_high_ns", self.p50_high_ns),
            ("mean_ns", self.mean_ns),
            ("std_ns", self.std_ns),
            ("min_ns", self.min_ns),
            ("max_ns", self.max_ns),
            ("p5_ns", self.p5_ns),
            ("p95_ns", self.p95_ns),
            ("p99_ns", self.p99_ns),
        ]
    }

    /// Number of rounds; of iterations, if all are alike.
    pub fn rounds(&self) -> usize {
        self.n / self.slots.len().max(1)
    }
}

impl SlotTimes {
    fn of(samples: &[f64]) -> SlotTimes {
        let Some(summary) = Summary::of(samples) else { return SlotTimes::default() };
        SlotTimes {
            n: summary.n,
            p50_ns: Some(Nanos::rounded(summary.p50)),
            p50_low_ns: summary.interval.map(|(low, _)| Nanos::rounded(low)),
            p50_high_ns: summary.interval.map(|(_, high)| Nanos::rounded(high)),
            min_ns: Some(Nanos::rounded(summary.min)),
            max_ns: Some(Nanos::rounded(summary.max)),
        }
    }
}
