//! Converts timestamps of a device's clock to the host's clock, so that ranks can be compared.
//!
//! The host reads its clock before and after an idle device records a stamp, so the stamp lies in between. Many such
//! samples, each shifted by the device's clock to the first stamp, give a narrow window for that stamp. One window
//! before a pass and one after it also determine the drift between the clocks. Nothing here runs while something is
//! measured.

use crate::base::Nanos;
use crate::exec::run::session::{clock_jump, device};
use crate::exec::{ExecError, Session};

use super::trace::{Moment, Trace};

/// Samples per window. Each takes about 20 µs on a GPU.
const SAMPLES: usize = 32;

/// Time for the device to reach the gate before the gate is opened.
const ARRIVAL_TIME: Nanos = Nanos(20_000);

/// Longest wait for a stamp on an idle device. After that, the rank's clock is not aligned.
const STAMP_TIMEOUT: Nanos = Nanos(1_000_000_000);

/// Largest drift between two clocks: the maximum slew rate of an operating system's clock, and ten times the error of a
/// quartz.
const DRIFT: f64 = 5e-4;

/// Stamps that a session needs for its clock: one before a pass, one after it, and one for all other samples.
pub(in crate::exec) const STAMPS: u32 = 3;

/// A stamp, with the host's clock read before and after it.
#[derive(Clone, Copy, Debug)]
struct ClockSample {
    /// Time from the first sample's stamp to this one, on the device's clock.
    since: Nanos,
    /// Possible error of `since`.
    uncertainty: Nanos,
    /// The host's clock before the stamp was recorded.
    before: Nanos,
    /// The host's clock after the stamp was recorded.
    after: Nanos,
}

/// Interval of the host's clock in which a stamp was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exec) struct StampWindow {
    low: Nanos,
    high: Nanos,
}

impl StampWindow {
    /// Returns the intersection of all samples' intervals for the first stamp; `None` if they contradict each other.
    fn of(samples: &[ClockSample]) -> Option<StampWindow> {
        let bounds = samples.iter().map(|sample| {
            let slack = sample.uncertainty.0 + (sample.since.0.abs() as f64 * DRIFT).ceil() as i64;
            (sample.before.0 - sample.since.0 - slack, sample.after.0 - sample.since.0 + slack)
        });
        let (low, high) = bounds.reduce(|a, b| (a.0.max(b.0), a.1.min(b.1)))?;
        (low <= high).then_some(StampWindow { low: Nanos(low), high: Nanos(high) })
    }
}

/// The windows of the host's clock before and after a pass.
#[derive(Clone, Copy, Debug)]
struct Alignment {
    before: StampWindow,
    after: StampWindow,
    /// Time between the stamps of the two windows, on the device's clock.
    apart: Nanos,
}

impl Alignment {
    /// Returns the host's time of a stamp recorded between the two windows, by linear interpolation: while the drift is
    /// constant, a stamp's relative position is the same on both clocks.
    fn place(&self, since: Nanos, uncertainty: Nanos, clock: u32) -> Moment {
        let share = if self.apart.0 > 0 { (since.0 as f64 / self.apart.0 as f64).clamp(0.0, 1.0) } else { 0.0 };
        let between = |from: Nanos, to: Nanos| from.0 + ((to - from).0 as f64 * share).round() as i64;
        let low = between(self.before.low, self.after.low) - uncertainty.0;
        let high = between(self.before.high, self.after.high) + uncertainty.0;
        // Adds the rounding error, at most half a nanosecond in the middle and at the ends.
        Moment { at: Nanos(low + (high - low) / 2), error: Nanos((high - low + 1) / 2 + 1), clock }
    }
}

/// The host's time of observed iterations, collected during a pass.
#[derive(Debug)]
pub(in crate::exec) enum ClockReadings {
    /// No other rank is compared with this one, or its clock cannot be aligned.
    None,
    /// Stamps already use the host's clock.
    Host(Vec<Nanos>),
    /// Stamps use the device's clock. `since` has the time from the stamp of the window before the pass, with its
    /// error.
    Device { before: StampWindow, since: Vec<(Nanos, Nanos)> },
}

impl Session {
    /// Begins a pass. The device must be idle.
    pub(super) fn begin_clock(&mut self) -> Result<ClockReadings, ExecError> {
        let Some(first) = self.lowered.clock_stamps else { return Ok(ClockReadings::None) };
        if !self.driver.has_clock() {
            return Ok(ClockReadings::Host(Vec::new()));
        }
        let window = self.window(first)?;
        Ok(window.map_or(ClockReadings::None, |before| ClockReadings::Device { before, since: Vec::new() }))
    }

    /// Saves the start stamp of an observed iteration, before a later iteration reuses it. The pass began at `began`.
    ///
    /// # Errors
    ///
    /// An error of the device, or a clock that jumped: the stamp is earlier than the start of the pass or later than
    /// now.
    pub(super) fn note_begin(&mut self, clock: &mut ClockReadings, begin: u32, began: Nanos) -> Result<(), ExecError> {
        match (clock, self.lowered.clock_stamps) {
            (ClockReadings::Host(begins), _) => {
                let at = self.driver.reached_at(begin).map_err(device)?;
                let now = self.driver.now();
                if !(began..=now).contains(&at) {
                    return Err(clock_jump(format!(
                        "an iteration began {} into a pass of {}",
                        at - began,
                        now - began
                    )));
                }
                begins.push(at);
            }
            (ClockReadings::Device { since, .. }, Some(first)) => {
                let elapsed = self.driver.elapsed(first, begin).map_err(device)?;
                since.push((elapsed, self.driver.uncertainty(elapsed)));
            }
            _ => {}
        }
        Ok(())
    }

    /// Ends a pass, on an idle device, and sets the origin of each trace.
    pub(super) fn end_clock(&mut self, clock: ClockReadings, traces: &mut [Trace]) -> Result<(), ExecError> {
        let host = self.driver.host_clock();
        let begins: Vec<Moment> = match (clock, self.lowered.clock_stamps) {
            (ClockReadings::Host(begins), _) => {
                begins.into_iter().map(|at| Moment { at, error: Nanos(0), clock: host }).collect()
            }
            (ClockReadings::Device { before, since }, Some(first)) => {
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

    /// Measures the window of stamp `reference`; `None` if the device does not answer in time.
    fn window(&mut self, reference: u32) -> Result<Option<StampWindow>, ExecError> {
        let Some(first) = self.lowered.clock_stamps else { return Ok(None) };
        self.driver.synchronize().map_err(device)?;
        let mut samples: Vec<ClockSample> = Vec::with_capacity(SAMPLES);
        for index in 0..SAMPLES {
            let stamp = if index == 0 { reference } else { first + STAMPS - 1 };
            let Some((before, after)) = self.sample(stamp)? else { return Ok(None) };
            let (mut since, mut uncertainty) = (Nanos(0), Nanos(0));
            if index > 0 {
                since = self.driver.elapsed(reference, stamp).map_err(device)?;
                uncertainty = self.driver.uncertainty(since);
            }
            samples.push(ClockSample { since, uncertainty, before, after });
        }
        Ok(StampWindow::of(&samples))
    }

    /// Records a stamp and returns the host's clock before and after it; `None` if the device does not answer in time.
    /// With a gate, the first time is that of opening the gate, which excludes the latency of the launch.
    fn sample(&mut self, stamp: u32) -> Result<Option<(Nanos, Nanos)>, ExecError> {
        let start = self.driver.now();
        let mut before = start;
        let is_gated = self.lowered.gate.holds(false);
        if is_gated {
            self.driver.hold(0, 0).map_err(device)?;
        }
        let stamped = self.driver.stamp(stamp, 0);
        if is_gated {
            while before - start < ARRIVAL_TIME {
                before = self.driver.now();
            }
            self.driver.release(0);
        }
        stamped.map_err(device)?;
        let mut after = start;
        let mut reached = false;
        while !reached {
            if after - start > STAMP_TIMEOUT {
                return Ok(None);
            }
            reached = self.driver.reached(stamp).map_err(device)?;
            after = self.driver.now();
        }
        if is_gated && self.driver.forced(0) {
            before = start;
        }
        Ok(Some((before, after)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A device whose clock started at `offset` on the host's clock and runs faster by the fraction `drift`.
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

    /// Simulates samples at moments of the host's clock. `noise` has, for each, the delays before and after the stamp
    /// and the error of the device's clock.
    fn samples(pair: Pair, from: f64, noise: &[(u32, u32, i8)]) -> (f64, Vec<ClockSample>) {
        let mut host = from;
        let mut first = None;
        let mut samples = Vec::new();
        for &(before, after, off) in noise {
            let set = host + f64::from(before);
            let told = pair.device(set) + f64::from(off);
            let reference = *first.get_or_insert(told);
            samples.push(ClockSample {
                since: Nanos::rounded(told - reference),
                uncertainty: Nanos(if samples.is_empty() { 0 } else { STEP }),
                before: Nanos(host.floor() as i64),
                after: Nanos((set + f64::from(after)).ceil() as i64),
            });
            host = set + f64::from(after) + 100.0;
        }
        (first.expect("there is a sample"), samples)
    }

    /// Twice the error of one timestamp of the device, in ns.
    const STEP: i64 = 258;

    fn noise() -> impl Strategy<Value = Vec<(u32, u32, i8)>> {
        prop::collection::vec((0u32..20_000, 0u32..20_000, -128i8..=127), 1..SAMPLES)
    }

    proptest! {
        /// For any clocks and noise, the true moment lies within the reported error.
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
            let (reference, looks_before) = samples(pair, start, &before);
            let (later, looks_after) = samples(pair, start + 1e7 + apart, &after);
            let truth = start + 5e6 + apart * share;
            let alignment = Alignment {
                before: StampWindow::of(&looks_before).expect("nothing contradicts"),
                after: StampWindow::of(&looks_after).expect("nothing contradicts"),
                apart: Nanos::rounded(later - reference),
            };
            let told = pair.device(truth) + f64::from(off);
            let moment = alignment.place(Nanos::rounded(told - reference), Nanos(2 * STEP), 0);
            let wrong = (moment.at.0 as f64 - truth).abs();
            prop_assert!(wrong <= moment.error.0 as f64, "{wrong} ns off, and {moment:?}");
            // The reported error is small: the narrowest sample of each window bounds it.
            let narrowest = |noise: &[(u32, u32, i8)]| noise.iter().map(|(a, b, _)| a + b).min().unwrap_or(0);
            let most = narrowest(&before).max(narrowest(&after));
            prop_assert!(moment.error.0 <= i64::from(most) / 2 + 8 * STEP + 200, "{moment:?} of samples of {most} ns");
        }
    }

    #[test]
    fn contradictory_samples_give_no_window() {
        let sample = |before: i64, after: i64| ClockSample {
            since: Nanos(0),
            uncertainty: Nanos(0),
            before: Nanos(before),
            after: Nanos(after),
        };
        assert_eq!(
            StampWindow::of(&[sample(10, 20), sample(15, 30)]),
            Some(StampWindow { low: Nanos(15), high: Nanos(20) })
        );
        assert_eq!(StampWindow::of(&[sample(10, 20), sample(21, 30)]), None);
        assert_eq!(StampWindow::of(&[]), None);
    }
}
