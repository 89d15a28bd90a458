//! What sets the pace of an iteration, so that like is compared with like.
//!
//! An iteration that is held at the gate until the host has issued all of it takes as long as the device needs. One that
//! is not held may wait for the host. The two are different measurements of a program. A run that was held has measured
//! both, so that cases of which some could not be held are comparable by their host-paced times.

use super::record::{Times, Variant};

/// Which of a run's times are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pace {
    /// The headline of each.
    #[default]
    Headline,
    /// That without the gate: of several runs, some could not be held.
    Host,
}

/// Whether iterations were held until the host had issued them; `None` of a graph, which is issued by one call.
pub fn held(variant: &Variant) -> Option<bool> {
    (variant.launch == "stream").then_some(variant.ungated.is_some())
}

impl Pace {
    /// The times that all of these have alike.
    pub fn common<'a>(variants: impl Iterator<Item = &'a Variant>) -> Pace {
        Pace::of(variants.map(held))
    }

    /// The same of runs of which it is known whether they were held.
    pub fn of(held: impl Iterator<Item = Option<bool>>) -> Pace {
        let known: Vec<bool> = held.flatten().collect();
        let mixed = known.iter().any(|held| *held) && known.iter().any(|held| !held);
        if mixed { Pace::Host } else { Pace::Headline }
    }

    pub fn times(self, variant: &Variant) -> &Times {
        match self {
            Pace::Headline => &variant.time,
            Pace::Host => variant.ungated.as_ref().unwrap_or(&variant.time),
        }
    }
}
