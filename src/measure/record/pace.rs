//! Selects comparable times: of gated or of host-paced iterations.
//!
//! A gated iteration takes as long as the device needs. An ungated one may wait for the host. These are different
//! measurements of a program. A gated run has also measured ungated iterations, so cases of which some could not be
//! gated are compared by their host-paced times.

use super::{Times, Variant};

/// The kind of times that are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pace {
    /// The headline times.
    #[default]
    Headline,
    /// Host-paced times, since some of the runs could not be gated.
    Host,
}

/// True if iterations were gated; `None` for a graph, which one call launches.
pub fn gated(variant: &Variant) -> Option<bool> {
    (variant.launch == "stream").then_some(variant.ungated.is_some())
}

/// Beginning and end of a note about iterations that were not gated.
const NOT_GATED: (&str, &str) = ("not gated: ", "; times may include host time");

/// A variant's note that its iterations were not gated.
pub fn not_gated_note(why: &str) -> String {
    let (before, after) = NOT_GATED;
    format!("{before}{why}{after}")
}

/// A variant's note that its run on one stream was not gated, though its own iterations were.
pub fn serial_not_gated_note(why: &str) -> String {
    let not_gated = not_gated_note(why);
    format!("the run on one stream was {not_gated}, and `speedup` compares them with ungated times")
}

/// The reason in a note of [`not_gated_note`]; `None` for other notes.
pub fn why_not_gated(note: &str) -> Option<&str> {
    let (before, after) = NOT_GATED;
    note.strip_prefix(before)?.strip_suffix(after)
}

impl Pace {
    /// The kind of times that all variants have.
    pub fn common<'a>(variants: impl Iterator<Item = &'a Variant>) -> Pace {
        Pace::of(variants.map(gated))
    }

    /// The kind of times that all runs have, given whether each was gated.
    pub fn of(gated: impl Iterator<Item = Option<bool>>) -> Pace {
        let known: Vec<bool> = gated.flatten().collect();
        let mixed = known.iter().any(|gated| *gated) && known.iter().any(|gated| !gated);
        if mixed { Pace::Host } else { Pace::Headline }
    }

    /// The times of a variant that have this pace.
    pub fn times(self, variant: &Variant) -> &Times {
        match self {
            Pace::Headline => &variant.time,
            Pace::Host => variant.ungated.as_ref().unwrap_or(&variant.time),
        }
    }
}
