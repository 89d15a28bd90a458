//! Where the stamps of a device with a clock of its own lie on the host's clock: what makes ranks comparable.
//!
//! An idle device is told to set a stamp, and the host looks at its clock before and after: the stamp was set in
//! between. Many such looks, each brought to the first one's stamp by the device's own clock, leave a narrow window for
//! it. Two of these, one before a pass and one after it, tell how the clocks drift; what lies between is between the
//! windows too. Nothing here runs while something is measured.

use crate::base::Nanos;

use super::error::ExecError;
use super::session::{Session, device};
use super::trace::{Moment, Trace};

/// Looks for one window. Each takes some 20 µs on a GPU.
const LOOKS: usize = 32;

/// How long the device has before the gate is opened, so that it stands at the gate by then.
const SETTLE: Nanos = Nanos(20_000);

/// How long a stamp may take on an idle device before nothing is said of its clock.
const PATIENCE: Nanos = Nanos(1_000_000_000);

/// Two clocks drift apart by no more than this: it is what a kernel slews its own by at most, and ten times what a quartz
/// is off by.
const DRIFT: f64 = 5e-4;

/// Stamps that a session needs for its clock: the first look's before and after a pass, and that of all other looks.
pub(super) const STAMPS: u32 = 3;

/// A look at a stamp.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// Between the first look's stamp and this one's, on the device, and how far that may be off.
    since: Nanos,
    uncertainty: Nanos,
    /// When the stamp had not been set, and when it had been, on the host.
    before: Nanos,
    after: Nanos,
}

/// Between which moments of the host's clock a stamp was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    low: Nanos,
    high: Nanos,
}

impl Window {
    /// What all looks leave for the first one's stamp; nothing where they contradict each other.
    fn of(looks: &[Look]) -> Option<Window> {
        let bounds = looks.iter().map(|look| {
            let slack = look.uncertainty.0 + (look.since.0.abs() as f64 * DRIFT).ceil() as i64;
            (look.before.0 - look.since.0 - slack, look.after.0 - look.since.0 + slack)
        });
        let (low, high) = bounds.reduce(|a, b| (a.0.max(b.0), a.1.min(b.1)))?;
        (low <= high).then_some(Window { low: Nanos(low), high: Nanos(high) })
    }
}

/// Windows before and after a pass, and how far their stamps lie apart on the device.
#[derive(Clone, Copy, Debug)]
struct Alignment {
    before: Window,
    after: Window,
    apart: Nanos,
}

impl Alignment {
    /// The moment of a stamp that was set between the two. While the clocks drift evenly, its share of the way on the
    /// device is its share of the way on the host.
    fn place(&self, since: Nanos, uncertainty: Nanos, clock: u32) -> Moment {
        let share = if self.apart.0 > 0 { (since.0 as f64 / self.apart.0 as f64).clamp(0.0, 1.0) } else { 0.0 };
        let between = |from: Nanos, to: Nanos| from.0 + ((to - from).0 as f64 * share).round() as i64;
        let low = between(self.before.low, self.after.low) - uncertainty.0;
        let high = between(self.before.high, self.after.high) + uncertainty.0;
        // Rounding is off by half a nanosecond, at most, in the middle as at the ends.
        Moment { at: Nanos(low + (high - low) / 2), error: Nanos((high - low + 1) / 2 + 1), clock }
    }
}

/// The host's time of what a pass observes, while it goes on.
#[derive(Debug)]
pub(super) enum Clock {
    /// Nobody compares this rank with others, or it cannot be.
    None,
    /// Stamps go by the host's clock.
    Host(Vec<Nanos>),
    /// They go by the device's: from the stamp of the window before the pass, and how far that may be off.
    Device { before: Window, since: Vec<(Nanos, Nanos)> },
}

impl Session {
    /// Before a pass, on an idle device.
    pub(super) fn begin_clock(&mut self) -> Result<Clock, ExecError> {
        let Some(first) = self.lowered.clock_stamps else { return Ok(Clock::None) };
        if !self.driver.has_clock() {
            return Ok(Clock::Host(Vec::new()));
        }
        let window = self.window(first)?;
        Ok(window.map_or(Clock::None, |before| Clock::Device { before, since: Vec::new() }))
    }

    /// Notes the stamp at which an observed iteration began, before it is set anew.
    pub(super) fn note_begin(&mut self, clock: &mut Clock, begin: u32) -> Result<(), ExecError> {
        match (clock, self.lowered.clock_stamps) {
            (Clock::Host(begins), _) => begins.push(self.driver.reached_at(begin).map_err(device)?),
            (Clock::Device { since, .. }, Some(first)) => {
                let elapsed = self.driver.elapsed(first, begin).map_err(device)?;
                since.push((elapsed, self.driver.uncertainty(elapsed)));
            }
            _ => {}
        }
        Ok(())
    }

    /// Behind a pass, on an idle device: says when each of its iterations began.
    pub(super) fn end_clock(&mut self, clock: Clock, traces: &mut [Trace]) -> Result<(), ExecError> {
        let host = self.driver.host_clock();
        let begins: Vec<Moment> = match (clock, self.lowered.clock_stamps) {
            (Clock::Host(begins), _) => {
                begins.into_iter().map(|at| Moment { at, error: Nanos(0), clock: host }).collect()
            }
            (Clock::Device { before, since }, Some(first)) => {
                let Some(after) = self.window(first + 1)? else { return Ok(()) };
                let apart = self.driver.elapsed(first, first + 1).map_err(device)?;
                let alignment = Alignment { before, after, apart };
                since.into_iter().map(|(since, uncertainty)| alignment.place(since, uncertainty, host)).collect()
            }
            _ => return Ok(()),
        };
        for (trace, begin) in traces.iter_mut().zip(begins) {
            trace.origin = Some(begin);
        }
        Ok(())
    }

    /// The window of `reference`, which the first look sets; nothing where the device does not answer in time.
    fn window(&mut self, reference: u32) -> Result<Option<Window>, ExecError> {
        let Some(first) = self.lowered.clock_stamps else { return Ok(None) };
        self.driver.synchronize().map_err(device)?;
        let mut looks: Vec<Look> = Vec::with_capacity(LOOKS);
        for turn in 0..LOOKS {
            let stamp = if turn == 0 { reference } else { first + STAMPS - 1 };
            let Some((before, after)) = self.look(stamp)? else { return Ok(None) };
            let (mut since, mut uncertainty) = (Nanos(0), Nanos(0));
            if turn > 0 {
                since = self.driver.elapsed(reference, stamp).map_err(device)?;
                uncertainty = self.driver.uncertainty(since);
            }
            looks.push(Look { since, uncertainty, before, after });
        }
        Ok(Window::of(&looks))
    }

    /// Sets a stamp, and says between which moments of the host's clock. With a gate before it, the first of these is
    /// that of opening the gate: what the way to the device takes is not in between.
    fn look(&mut self, stamp: u32) -> Result<Option<(Nanos, Nanos)>, ExecError> {
        let start = self.driver.now();
        let mut before = start;
        let held = self.lowered.gate.holds(false);
        if held {
            self.driver.hold(0, 0).map_err(device)?;
        }
        let stamped = self.driver.stamp(stamp, 0);
        if held {
            while before - start < SETTLE {
                before = self.driver.now();
            }
            self.driver.release(0);
        }
        stamped.map_err(device)?;
        let mut after = start;
        let mut reached = false;
        while !reached {
            if after - start > PATIENCE {
                return Ok(None);
            }
            reached = self.driver.reached(stamp).map_err(device)?;
            after = self.driver.now();
        }
        if held && self.driver.forced(0) {
            before = start;
        }
        Ok(Some((before, after)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A device whose clock began at `offset` of the host's and runs `drift` faster.
    #[derive(Clone, Copy, Debug)]
    struct Pair {
        offset: f64,
        drift: f64,
    }

    impl Pair {
        fn device(self, host: f64) -> f64 {
            (host - self.offset) * (1.0 + self.drift)
        }
    }

    /// Looks at moments of the host, each with what it takes before and after the stamp is set, and how far the
    /// device's clock is off.
    fn looks(pair: Pair, from: f64, noise: &[(u32, u32, i8)]) -> (f64, Vec<Look>) {
        let mut host = from;
        let mut first = None;
        let mut looks = Vec::new();
        for &(before, after, off) in noise {
            let set = host + f64::from(before);
            let told = pair.device(set) + f64::from(off);
            let reference = *first.get_or_insert(told);
            looks.push(Look {
                since: Nanos((told - reference).round() as i64),
                uncertainty: Nanos(if looks.is_empty() { 0 } else { STEP }),
                before: Nanos(host.floor() as i64),
                after: Nanos((set + f64::from(after)).ceil() as i64),
            });
            host = set + f64::from(after) + 100.0;
        }
        (first.expect("there is a look"), looks)
    }

    /// Twice what one time of the device is off by.
    const STEP: i64 = 258;

    fn noise() -> impl Strategy<Value = Vec<(u32, u32, i8)>> {
        prop::collection::vec((0u32..20_000, 0u32..20_000, -128i8..=127), 1..LOOKS)
    }

    proptest! {
        /// Whatever the clocks and the noise, the true moment lies within the error.
        #[test]
        fn the_truth_is_within_the_error(
            offset in 0.0..1e15f64,
            drift in -4e-4..4e-4f64,
            (before, after) in (noise(), noise()),
            apart in 0.0..1e10f64,
            share in 0.0..1.0f64,
            off in -128i8..=127,
        ) {
            let pair = Pair { offset: offset.round(), drift };
            let start = pair.offset + 1e6;
            let (reference, looks_before) = looks(pair, start, &before);
            let (later, looks_after) = looks(pair, start + 1e7 + apart, &after);
            let truth = start + 5e6 + apart * share;
            let alignment = Alignment {
                before: Window::of(&looks_before).expect("nothing contradicts"),
                after: Window::of(&looks_after).expect("nothing contradicts"),
                apart: Nanos((later - reference).round() as i64),
            };
            let told = pair.device(truth) + f64::from(off);
            let moment = alignment.place(Nanos((told - reference).round() as i64), Nanos(2 * STEP), 0);
            let wrong = (moment.at.0 as f64 - truth).abs();
            prop_assert!(wrong <= moment.error.0 as f64, "{wrong} ns off, and {moment:?}");
            // The error is no excuse: the narrowest look of each side bounds it.
            let narrowest = |noise: &[(u32, u32, i8)]| noise.iter().map(|(a, b, _)| a + b).min().unwrap_or(0);
            let most = narrowest(&before).max(narrowest(&after));
            prop_assert!(moment.error.0 <= i64::from(most) / 2 + 8 * STEP + 200, "{moment:?} of looks of {most} ns");
        }
    }

    #[test]
    fn looks_that_contradict_each_other_say_nothing() {
        let look = |before: i64, after: i64| Look {
            since: Nanos(0),
            uncertainty: Nanos(0),
            before: Nanos(before),
            after: Nanos(after),
        };
        assert_eq!(Window::of(&[look(10, 20), look(15, 30)]), Some(Window { low: Nanos(15), high: Nanos(20) }));
        assert_eq!(Window::of(&[look(10, 20), look(21, 30)]), None);
        assert_eq!(Window::of(&[]), None);
    }
}
