//! Measures the overhead and the resolution of the device's timer, on a stream of its own while nothing else runs.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::gpu::api::runtime::{Event, Function, Stream};
use crate::backend::gpu::api::{Api, Call};
use crate::backend::gpu::time::gate::{self, Gates};
use crate::base::Nanos;
use crate::exec::{ExecError, Fault, Timer};
use crate::model::Priority;
use crate::ops::{KernelSource, kernel};

use super::kernels::{Kernels, RequestedKernel};

/// Number of pairs of stamps in a round. Together with the kernels between them, they fit into a queue.
const PAIRS: usize = 64;

/// Number of rounds, of which only the last counts: an idle device first raises its clock.
const ROUNDS: usize = 20;

/// Shortest time allowed for a round: an idle device, or one that other processes use, takes a while to begin.
const MIN_ROUND_TIMEOUT: Duration = Duration::from_millis(200);

/// Longest time allowed for a round. Its kernels take microseconds, so a device that takes longer is stuck.
const MAX_ROUND_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval between two polls of the stream.
const POLL_INTERVAL: Duration = Duration::from_micros(20);

/// Error of an event's timestamp: about half a microsecond according to the vendors.
const EVENT_STEP: Nanos = Nanos(500);

/// Fraction bits of the 32-bit float in which the time between two events is returned.
const EVENT_BITS: u32 = 23;

/// Uncertainty of the time `elapsed` between two events.
pub fn uncertainty(elapsed: Nanos) -> Nanos {
    EVENT_STEP + Nanos(elapsed.0.abs() >> EVENT_BITS)
}

/// An empty kernel.
pub fn null() -> Arc<KernelSource> {
    kernel::source("nop", "", &[], "")
}

/// The measured timer, or why it could not be measured.
pub enum TimerMeasurement {
    Timer(Timer),
    Failed(ExecError),
    /// A kernel never ends, so synchronizing with the device would block.
    Stuck,
}

impl From<Box<Fault>> for TimerMeasurement {
    fn from(fault: Box<Fault>) -> Self {
        TimerMeasurement::Failed(ExecError::device(fault))
    }
}

/// Measures the overhead of stamps and of an empty kernel. `cache` is the folder for the two kernels; `None` disables
/// caching. `timeout` is the time allowed for a round, clamped to `MIN_ROUND_TIMEOUT` and `MAX_ROUND_TIMEOUT`.
pub fn measure<A: Api>(api: &A, cache: Option<&Path>, timeout: Nanos) -> TimerMeasurement {
    let timeout = timeout.duration().clamp(MIN_ROUND_TIMEOUT, MAX_ROUND_TIMEOUT);
    match prepared(api, cache, timeout) {
        Ok(timer) => TimerMeasurement::Timer(timer),
        Err(other) => other,
    }
}

fn prepared<A: Api>(api: &A, cache: Option<&Path>, timeout: Duration) -> Result<Timer, TimerMeasurement> {
    api.make_current()?;
    let mut kernels =
        Kernels::load(api, &RequestedKernel::gate_and_null("timer"), cache).map_err(TimerMeasurement::Failed)?;
    let measured = on_stream(api, &kernels, timeout);
    if !matches!(measured, Err(TimerMeasurement::Stuck)) {
        kernels.unload(api);
    }
    measured
}

fn on_stream<A: Api>(api: &A, kernels: &Kernels, timeout: Duration) -> Result<Timer, TimerMeasurement> {
    let stream = api.stream(Priority::Normal)?;
    let mut events = Vec::with_capacity(2 * PAIRS);
    let mut gates = Gates::new(api, kernels.get(&gate::source()), 1)?;
    let mut run = || {
        for _ in 0..2 * PAIRS {
            events.push(api.event(true)?);
        }
        let mut bench = Bench { api, stream, events: &events, gates: &mut gates, null: kernels.get(&null()), timeout };
        bench.timer()
    };
    let timer = run();
    gates.release_all();
    if matches!(timer, Err(TimerMeasurement::Stuck)) || !ended(api, stream, timeout).unwrap_or(true) {
        // Freeing memory that the device uses would block too.
        return Err(TimerMeasurement::Stuck);
    }
    // SAFETY: all were made above, and no work that uses them is under way.
    unsafe {
        gates.free(api);
        events.into_iter().for_each(|event| api.destroy_event(event));
        api.destroy_stream(stream);
    }
    timer
}

/// Waits for a stream. Returns false if it did not complete within the timeout.
fn ended<A: Api>(api: &A, stream: Stream, timeout: Duration) -> Call<bool> {
    let start = Instant::now();
    // SAFETY: the stream is alive.
    while !unsafe { api.idle(stream)? } {
        if start.elapsed() > timeout {
            return Ok(false);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(true)
}

/// A stream with the events of a round.
struct Bench<'a, A: Api> {
    api: &'a A,
    stream: Stream,
    events: &'a [Event],
    gates: &'a mut Gates,
    null: Function,
    timeout: Duration,
}

impl<A: Api> Bench<'_, A> {
    fn timer(&mut self) -> Result<Timer, TimerMeasurement> {
        // The first launch may load the kernel and synchronize with the device, so it must not follow a gate.
        self.issue(true)?;
        self.wait()?;
        let mut last = None;
        for _ in 0..ROUNDS {
            let (empty, stamps) = self.round(false)?;
            let (full, calls) = self.round(true)?;
            last = Some((empty, full, stamps, calls));
        }
        let (empty, full, stamps, calls) = last.expect("there is more than one round");
        let resolution = smallest_step(empty.iter().chain(&full).copied());
        let each = |all: Nanos, count: usize| Nanos(all.0 / count as i64);
        Ok(Timer {
            resolution,
            empty: median(empty),
            null_kernel: median(full),
            stamp_call: each(stamps, 2 * PAIRS),
            launch_call: each(Nanos((calls - stamps).0.max(0)), PAIRS),
        })
    }

    /// Runs one round: returns the time between the stamps of each pair, with an empty kernel between them if `kernel`,
    /// and the time that the host's calls took. The gate is shut meanwhile, or the host's calls would determine the
    /// times.
    fn round(&mut self, kernel: bool) -> Result<(Vec<Nanos>, Nanos), TimerMeasurement> {
        self.gates.hold(self.api, 0, self.stream)?;
        let start = Instant::now();
        let issued = self.issue(kernel);
        let calls = Nanos(start.elapsed().as_nanos() as i64);
        self.gates.release(0);
        issued?;
        self.wait()?;
        if self.gates.forced(0) {
            let why = "every call is synchronous, so the kernel's own time cannot be measured";
            return Err(Fault::new("timer", why).into());
        }
        let pairs = self.events.chunks_exact(2);
        // SAFETY: the events are alive and have completed.
        let times: Call<Vec<Nanos>> = pairs.map(|pair| unsafe { self.api.elapsed(pair[0], pair[1]) }).collect();
        Ok((times?, calls))
    }

    fn wait(&self) -> Result<(), TimerMeasurement> {
        if ended(self.api, self.stream, self.timeout)? { Ok(()) } else { Err(TimerMeasurement::Stuck) }
    }

    fn issue(&self, kernel: bool) -> Call {
        for pair in self.events.chunks_exact(2) {
            // SAFETY: stream, events and kernel are alive, and the kernel takes no arguments.
            unsafe {
                self.api.record(pair[0], self.stream)?;
                if kernel {
                    self.api.launch(self.null, [1; 3], [1; 3], 0, self.stream, std::ptr::null_mut())?;
                }
                self.api.record(pair[1], self.stream)?;
            }
        }
        Ok(())
    }
}

fn median(mut times: Vec<Nanos>) -> Nanos {
    times.sort_unstable();
    times[times.len() / 2]
}

/// The smallest difference between distinct times; the smallest time if all are equal.
fn smallest_step(times: impl Iterator<Item = Nanos>) -> Nanos {
    let mut times: Vec<Nanos> = times.collect();
    times.sort_unstable();
    times.dedup();
    let steps = times.windows(2).map(|pair| pair[1] - pair[0]);
    // Times are 32-bit fractions of a millisecond, so rounding alone causes differences of one or two nanoseconds.
    let step = steps.filter(|step| step.0 > 2).min();
    step.or(times.first().copied()).unwrap_or(Nanos(1)).max(Nanos(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_s_step_shows_in_its_times() {
        let step = |times: &[i64]| smallest_step(times.iter().map(|&time| Nanos(time))).0;
        assert_eq!(step(&[1024, 1056, 1088, 1025]), 31, "rounding is no step");
        assert_eq!(step(&[2000, 2000, 2000]), 2000, "one value tells no more than itself");
        assert_eq!(step(&[1500, 2000, 3000]), 500);
    }
}
