//! Observed iterations: each operation runs between two stamps, or the vendor's library records it, which gives a trace.

pub mod activity;
pub(super) mod clock;
pub(super) mod counter_runs;
pub mod counters;
pub(super) mod trace;
pub(super) mod unit_reports;
pub(super) mod vendor_observation;

use crate::base::{LaneId, Nanos, gcd};

use super::run::session::device;
use super::{Control, ExecError, LaunchMode, Session};
use trace::{Span, Trace};

/// Maximum number of observed slots. Of a longer cycle every second, third, … slot is observed, counted from slot 0.
const MAX_OBSERVED_SLOTS: u64 = 512;

/// Maximum number of slots that run before an observed iteration beside those that overlap it.
const MAX_LEAD: u64 = 16;

/// Maximum number of such slots in a pass, so that observing the slots of a long cycle takes at most about twice as long.
const MAX_LED: u64 = 1024;

/// Selects the observed iterations of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The way in which the iterations are launched.
    pub mode: LaunchMode,
    /// Number of iterations after which the programs of all ranks repeat.
    pub slots: u64,
    /// Number of times that each slot is observed.
    pub times: u64,
    /// Maximum number of observed iterations.
    pub most: u64,
}

impl Observation {
    /// Observes each slot once.
    pub fn once(mode: LaunchMode, slots: usize) -> Observation {
        Observation { mode, slots: slots as u64, times: 1, most: u64::MAX }
    }

    /// Number of overlapping iterations of different slots after which the device is as far behind as in the steady state: a round,
    /// or a part of a long one; 0 if all iterations are alike. The device is idle after each observed iteration.
    fn round(self) -> u64 {
        let most = MAX_LED / (self.slots * self.times).max(1);
        if self.slots > 1 { self.slots.min(MAX_LEAD).min(most) } else { 0 }
    }

    /// Returns the numbers of the observed iterations in increasing order. The first is of slot 0. At least `lead`
    /// unobserved iterations precede each.
    fn iterations(self, lead: u64) -> Vec<u64> {
        let slots = self.slots.max(1);
        let first = lead.next_multiple_of(slots);
        let apart = lead + 1;
        let most = usize::try_from(self.most).unwrap_or(usize::MAX);
        if slots > MAX_OBSERVED_SLOTS {
            let apart = apart.max(slots.div_ceil(MAX_OBSERVED_SLOTS));
            let round = |time: u64| (0..=slots - apart).step_by(apart as usize).map(move |slot| time * slots + slot);
            return (0..self.times).flat_map(round).map(|offset| first + offset).take(most).collect();
        }
        // Rounds of every `apart`-th iteration, each begun one iteration later, reach all slots with few iterations in between.
        let rounds = gcd(apart, slots);
        let later = |index: u64| if rounds > 1 { index / (slots / rounds) } else { 0 };
        (0..slots * self.times).map(|index| first + index * apart + later(index)).take(most).collect()
    }
}

/// Method of timing the operations of an observed iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timing {
    /// A stamp before and after each operation. The first stamp has this number.
    Stamps(u32),
    /// The records of the vendor's library.
    Records,
}

impl Timing {
    /// The first stamp around operations; `None` if there are none.
    pub(super) fn first_stamp(self) -> Option<u32> {
        match self {
            Timing::Stamps(first) => Some(first),
            Timing::Records => None,
        }
    }
}

impl Session {
    /// Traces some iterations, with a stamp before and after each operation. Unobserved iterations precede each, so
    /// that the host is ahead of the device. Returns no traces if an iteration has too many operations, and fewer if
    /// the run was stopped.
    pub fn observe(&mut self, observation: Observation, control: &Control) -> Result<Vec<Trace>, ExecError> {
        self.observe_by(observation, control, self.lowered.observed.map(Timing::Stamps))
    }

    /// Traces iterations as [`Session::observe`] does, with the given timing; `None` observes nothing. The caller adds
    /// the vendor's records to the traces later.
    pub(super) fn observe_by(
        &mut self,
        observation: Observation,
        control: &Control,
        timing: Option<Timing>,
    ) -> Result<Vec<Trace>, ExecError> {
        self.set_up(control)?;
        self.begin();
        let traces = match timing {
            Some(timing) => self.observations(observation, control, timing),
            None => Ok(Vec::new()),
        };
        let oldest = self.stamped.unwrap_or(0);
        traces.map_err(|error| self.explained(error, oldest, control))
    }

    fn observations(
        &mut self,
        observation: Observation,
        control: &Control,
        timing: Timing,
    ) -> Result<Vec<Trace>, ExecError> {
        let mode = observation.mode;
        // The end stamp of an overlapping iteration orders it only after those more than `ahead` before it.
        let overlapping = self.overlap(mode);
        let ahead = if overlapping { self.lowered.ahead } else { self.lowered.ahead.max(2) };
        let lead = if overlapping { ahead.max(2) - 1 + observation.round() } else { 1 };
        let wanted = observation.iterations(lead);
        if mode == LaunchMode::Graph {
            self.capture_observed(&wanted, timing)?;
        }
        let began = self.driver.now();
        let mut clock = self.begin_clock()?;
        let mut traces = Vec::with_capacity(wanted.len());
        let (mut issued, mut retired) = (0, 0);
        for observed in wanted {
            while issued <= observed {
                if !self.stopping.may_begin(issued, control.stopped()) {
                    self.driver.synchronize().map_err(device)?;
                    self.end_clock(clock, &mut traces)?;
                    return Ok(traces);
                }
                if retired + ahead <= issued {
                    if self.retire(mode, retired, control)?.is_none() {
                        return Ok(traces);
                    }
                    retired += 1;
                }
                if issued == observed {
                    self.driver.watch_units();
                }
                let this = (issued == observed).then_some(timing);
                let recorded = this.filter(|timing| *timing == Timing::Records).map(|_| traces.len() as u32);
                self.driver.record_iteration(recorded);
                self.lead_in(mode, issued, this, true)?;
                self.issue(mode, issued, this, (1, None))?;
                self.driver.record_iteration(None);
                issued += 1;
            }
            let Some(time) = self.retire(mode, observed, control)? else { return Ok(traces) };
            retired = issued;
            self.driver.synchronize().map_err(device)?;
            let begin = self.first_stamp(mode, observed);
            let slot = (observed % observation.slots.max(1)) as usize;
            let trace = self.trace(observed, slot, (begin, timing), time)?;
            let longest = trace.spans.iter().flat_map(|span| [span.start, span.end]).max_by_key(|time| time.0.abs());
            self.within(longest.unwrap_or_default(), began)?;
            self.recording.note(self.index(observed));
            traces.push(trace);
            self.note_begin(&mut clock, begin, began)?;
        }
        self.end_clock(clock, &mut traces)?;
        Ok(traces)
    }

    /// Captures the graphs of observed iterations.
    fn capture_observed(&mut self, iterations: &[u64], timing: Timing) -> Result<(), ExecError> {
        for iteration in iterations {
            let index = (iteration % self.period() as u64) as usize;
            if timing == Timing::Records {
                self.capture_recorded(index)?;
                continue;
            }
            if self.observed_graphs[index].is_none() {
                self.observed_graphs[index] = Some(self.capture_step(index, Some(timing))?);
            }
        }
        Ok(())
    }

    /// Returns the trace of a completed iteration, without spans if the vendor's records provide them later. Its time
    /// counts from stamp `begin`.
    fn trace(
        &mut self,
        iteration: u64,
        slot: usize,
        (begin, timing): (u32, Timing),
        time: Nanos,
    ) -> Result<Trace, ExecError> {
        let outline = self.lowered.outline.clone();
        let period = &outline.period;
        let step = &period[(iteration % period.len() as u64) as usize];
        let lanes = step.launches().map(|launch| LaneId(launch.lane));
        let mut spans = Vec::with_capacity(step.ops.len());
        let stamps = timing.first_stamp().into_iter().flat_map(|first| (first..).step_by(2));
        for ((&op, lane), stamp) in step.ops.iter().zip(lanes).zip(stamps) {
            let start = self.driver.elapsed(begin, stamp).map_err(device)?;
            let end = self.driver.elapsed(begin, stamp + 1).map_err(device)?;
            self.in_order(end - start)?;
            spans.push(Span { op, lane, start, end });
        }
        let occupied = self.driver.units_since(begin);
        Ok(Trace { step: step.step, slot, time, origin: None, spans, occupied, parts: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_slot_is_observed_as_often(slots in 1u64..=MAX_OBSERVED_SLOTS, times in 1u64..4, lead in 1u64..9) {
            let iterations = Observation { slots, times, ..Observation::once(LaunchMode::Stream, 1) }.iterations(lead);
            let mut counts = vec![0; slots as usize];
            iterations.iter().for_each(|iteration| counts[(iteration % slots) as usize] += 1);
            prop_assert!(counts.iter().all(|count| *count == times), "{:?}", counts);
            prop_assert_eq!(iterations[0] % slots, 0);
            prop_assert!(iterations[0] >= lead && iterations.windows(2).all(|pair| pair[1] - pair[0] > lead));
            // The number of iterations grows linearly with the number of slots.
            prop_assert!(iterations[iterations.len() - 1] <= (slots + 1) * times * (lead + 2) + lead);
        }

        #[test]
        fn of_a_long_cycle_some_slots_are_observed(slots in MAX_OBSERVED_SLOTS + 1..5000, times in 1u64..4, lead in 1u64..9) {
            let iterations = Observation { slots, times, ..Observation::once(LaunchMode::Stream, 1) }.iterations(lead);
            let mut seen: Vec<u64> = iterations.iter().map(|iteration| iteration % slots).collect();
            seen.sort_unstable();
            seen.dedup();
            prop_assert!(seen.len() as u64 <= MAX_OBSERVED_SLOTS);
            prop_assert!(seen.len() as u64 * (lead + 1).max(slots.div_ceil(MAX_OBSERVED_SLOTS)) > slots - slots / 16 - lead - 1);
            prop_assert_eq!(iterations.len() as u64, seen.len() as u64 * times);
            prop_assert!(iterations[0] >= lead && iterations.windows(2).all(|pair| pair[1] - pair[0] > lead));
        }
    }
}
