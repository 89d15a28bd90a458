//! Advice about the plan of a run.

use serde::{Deserialize, Serialize};

use crate::base::SrcSpan;
use crate::schedule::{Gain, PlanAdvice};

/// A change of the text that would save operations, found in the plan.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AdviceRecord {
    /// The code that `aorta explain` takes.
    pub code: String,
    /// The finding in one sentence.
    pub message: String,
    /// The change to make.
    pub help: String,
    /// Source locations, that of the operation that decides first.
    pub places: Vec<String>,
    /// Number of occurrences per iteration, averaged over the cycle.
    pub times: f64,
    #[serde(flatten)]
    pub gain: Gain,
}

impl AdviceRecord {
    /// The record of advice; `place` formats a location as `file:line:column`.
    pub fn of(advice: PlanAdvice, place: &dyn Fn(SrcSpan) -> String) -> AdviceRecord {
        let PlanAdvice { code, message, help, places, times, gain } = advice;
        let places = places.iter().map(|(span, _)| place(*span)).collect();
        AdviceRecord { code: code.to_owned(), message, help, places, times, gain }
    }
}
