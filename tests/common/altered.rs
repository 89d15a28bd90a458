//! A backend that wraps another one and changes one behaviour.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aorta::base::{Nanos, Space};
use aorta::exec::{
    Backend, CommMonitor, DeviceInfo, Driver, ExecError, Fault, Health, Image, Issued, LaneCompletion, Repeat,
};
use aorta::schedule::Topology;

/// Changes the image of a rank.
type Change<'a> = Box<dyn Fn(&mut Image) + 'a>;

/// Changes the times of a clock.
type Clock = Arc<dyn Fn(Nanos) -> Nanos + Send + Sync>;

/// The driver's message for a call that was made to fail.
pub const TOLD: &str = "told to fail";

/// Counts the calls of all drivers of a backend; one call may fail.
#[derive(Debug, Default)]
pub struct Calls {
    /// The name of the call that fails, and which of these calls, counted from 1.
    fails: Option<(&'static str, u64)>,
    made: Mutex<BTreeMap<&'static str, u64>>,
}

impl Calls {
    /// Counts calls; none fails.
    pub fn counted() -> Arc<Calls> {
        Arc::default()
    }

    pub fn failing(call: &'static str, turn: u64) -> Arc<Calls> {
        Arc::new(Calls { fails: Some((call, turn)), ..Calls::default() })
    }

    /// How often each call was made.
    pub fn made(&self) -> BTreeMap<&'static str, u64> {
        self.made.lock().expect("no test panics with it").clone()
    }

    /// True if the call that was to fail has been made.
    pub fn has_failed(&self) -> bool {
        self.fails.is_some_and(|(call, turn)| self.made().get(call).is_some_and(|&made| made >= turn))
    }

    fn make(&self, call: &'static str) -> Call {
        let mut made = self.made.lock().expect("no test panics with it");
        let count = made.entry(call).or_default();
        *count += 1;
        if self.fails == Some((call, *count)) { Err(Fault::new(call, TOLD)) } else { Ok(()) }
    }
}

pub struct Altered<'a> {
    backend: &'a dyn Backend,
    /// Changes images before they are opened.
    change: Option<Change<'a>>,
    /// Delayed launches by number, each with the launch that it follows.
    late: BTreeMap<u32, u32>,
    /// Index of the rank in this process that fails at its second launch.
    fails: Option<usize>,
    /// Changes the host clock's times; `None` keeps them.
    host_clock: Option<Clock>,
    /// Changes times between two stamps; `None` keeps them.
    stamps: Option<Clock>,
    /// Counts calls; `None` does not.
    calls: Option<Arc<Calls>>,
    /// True if lanes do not wait for stamps.
    unordered: bool,
    /// Number of launched operations.
    launches: Arc<AtomicU64>,
}

impl<'a> Altered<'a> {
    fn not(backend: &'a dyn Backend) -> Altered<'a> {
        Altered {
            backend,
            change: None,
            late: BTreeMap::new(),
            fails: None,
            host_clock: None,
            stamps: None,
            calls: None,
            unordered: false,
            launches: Arc::default(),
        }
    }

    /// Only counts launches.
    pub fn counting(backend: &'a dyn Backend, launches: Arc<AtomicU64>) -> Altered<'a> {
        Altered { launches, ..Altered::not(backend) }
    }

    /// Makes the second rank fail at its second launch.
    pub fn failing(backend: &'a dyn Backend) -> Altered<'a> {
        Altered { fails: Some(1), ..Altered::not(backend) }
    }

    /// Changes every image before it is opened.
    pub fn changing(backend: &'a dyn Backend, change: impl Fn(&mut Image) + 'a) -> Altered<'a> {
        Altered { change: Some(Box::new(change)), ..Altered::not(backend) }
    }

    /// Delays launches until after another one, as if they were not waited for.
    pub fn late(backend: &'a dyn Backend, late: BTreeMap<u32, u32>) -> Altered<'a> {
        Altered { late, ..Altered::not(backend) }
    }

    /// Removes waits for stamps, so that iterations are not ordered.
    pub fn unordered(backend: &'a dyn Backend) -> Altered<'a> {
        Altered { unordered: true, ..Altered::not(backend) }
    }

    /// Slows the host's clock down to a tenth, and yields the processor at each query. Short actions then complete
    /// within a time limit even on a busy machine.
    pub fn patient(backend: &'a dyn Backend) -> Altered<'a> {
        let slow = |now: Nanos| {
            std::thread::sleep(Duration::from_millis(1));
            Nanos(now.0 / 10)
        };
        Altered { host_clock: Some(Arc::new(slow)), ..Altered::not(backend) }
    }

    /// Counts the drivers' calls, one of which may fail.
    pub fn with_calls(backend: &'a dyn Backend, calls: Arc<Calls>) -> Altered<'a> {
        Altered { calls: Some(calls), ..Altered::not(backend) }
    }

    /// Replaces the host's clock by a function of it.
    pub fn with_host_clock(
        backend: &'a dyn Backend,
        clock: impl Fn(Nanos) -> Nanos + Send + Sync + 'static,
    ) -> Altered<'a> {
        Altered { host_clock: Some(Arc::new(clock)), ..Altered::not(backend) }
    }

    /// Replaces times between stamps by a function of the device's times.
    pub fn with_stamps(
        backend: &'a dyn Backend,
        clock: impl Fn(Nanos) -> Nanos + Send + Sync + 'static,
    ) -> Altered<'a> {
        Altered { stamps: Some(Arc::new(clock)), ..Altered::not(backend) }
    }
}

impl Backend for Altered<'_> {
    fn name(&self) -> &'static str {
        self.backend.name()
    }

    fn device(&self) -> DeviceInfo {
        self.backend.device()
    }

    fn topology(&self) -> Topology {
        self.backend.topology()
    }

    fn open(&self, mut images: Vec<Image>) -> Result<Vec<Box<dyn Driver>>, ExecError> {
        if let Some(calls) = &self.calls {
            calls.make("open").map_err(|fault| ExecError::Device { fault: fault.to_string(), help: None })?;
        }
        if let Some(change) = &self.change {
            images.iter_mut().for_each(change);
        }
        let drivers = self.backend.open(images)?.into_iter().enumerate();
        let altered = |(index, inner)| AlteredDriver {
            inner,
            fails: self.fails == Some(index),
            launches: 0,
            all_launches: self.launches.clone(),
            host_clock: self.host_clock.clone(),
            stamps: self.stamps.clone(),
            calls: self.calls.clone(),
            late: self.late.clone(),
            unordered: self.unordered,
        };
        Ok(drivers.map(|driver| Box::new(altered(driver)) as _).collect())
    }
}

struct AlteredDriver {
    inner: Box<dyn Driver>,
    fails: bool,
    launches: u32,
    all_launches: Arc<AtomicU64>,
    host_clock: Option<Clock>,
    stamps: Option<Clock>,
    calls: Option<Arc<Calls>>,
    late: BTreeMap<u32, u32>,
    unordered: bool,
}

type Call<T = ()> = Result<T, Box<Fault>>;

impl AlteredDriver {
    fn make(&self, call: &'static str) -> Call {
        self.calls.as_ref().map_or(Ok(()), |calls| calls.make(call))
    }

    fn on_host_clock(&self, time: Nanos) -> Nanos {
        self.host_clock.as_ref().map_or(time, |clock| clock(time))
    }
}

impl Driver for AlteredDriver {
    fn launch(&mut self, op: u32) -> Call {
        self.make("launch")?;
        self.launches += 1;
        self.all_launches.fetch_add(1, Ordering::Relaxed);
        match self.fails && self.launches == 2 {
            true => return Err(Fault::new("launch", TOLD)),
            false if self.late.contains_key(&op) => return Ok(()),
            false => self.inner.launch(op)?,
        }
        let behind = self.late.iter().filter(|(_, other)| **other == op);
        behind.map(|(late, _)| *late).collect::<Vec<_>>().into_iter().try_for_each(|late| self.inner.launch(late))
    }

    fn record(&mut self, event: u32, lane: u32) -> Call {
        self.make("record")?;
        self.inner.record(event, lane)
    }

    fn wait(&mut self, lane: u32, event: u32) -> Call {
        self.make("wait")?;
        self.inner.wait(lane, event)
    }

    fn stamp(&mut self, stamp: u32, lane: u32) -> Call {
        self.make("stamp")?;
        self.inner.stamp(stamp, lane)
    }

    fn wait_stamp(&mut self, lane: u32, stamp: u32) -> Call {
        self.make("wait_stamp")?;
        if self.unordered { Ok(()) } else { self.inner.wait_stamp(lane, stamp) }
    }

    fn launch_graph(&mut self, graph: u32, lane: u32) -> Call {
        self.make("launch_graph")?;
        self.inner.launch_graph(graph, lane)
    }

    fn reached(&mut self, stamp: u32) -> Call<bool> {
        self.make("reached")?;
        self.inner.reached(stamp)
    }

    fn elapsed(&mut self, from: u32, to: u32) -> Call<Nanos> {
        self.make("elapsed")?;
        let elapsed = self.inner.elapsed(from, to)?;
        Ok(self.stamps.as_ref().map_or(elapsed, |clock| clock(elapsed)))
    }

    fn issued(&mut self, wait: bool, issued: Issued) {
        self.inner.issued(wait, issued);
    }

    fn repeats(&mut self) -> Option<Repeat> {
        self.inner.repeats()
    }

    fn now(&self) -> Nanos {
        self.on_host_clock(self.inner.now())
    }

    fn host_clock(&self) -> u32 {
        self.inner.host_clock()
    }

    fn has_clock(&self) -> bool {
        self.inner.has_clock()
    }

    fn reached_at(&mut self, stamp: u32) -> Call<Nanos> {
        self.make("reached_at")?;
        let at = self.inner.reached_at(stamp)?;
        Ok(self.on_host_clock(at))
    }

    fn uncertainty(&self, elapsed: Nanos) -> Nanos {
        self.inner.uncertainty(elapsed)
    }

    fn runs_ranks_concurrently(&self) -> bool {
        self.inner.runs_ranks_concurrently()
    }

    fn gates(&self) -> bool {
        self.inner.gates()
    }

    fn hold(&mut self, gate: u32, lane: u32) -> Call {
        self.make("hold")?;
        self.inner.hold(gate, lane)
    }

    fn release(&mut self, gate: u32) {
        self.inner.release(gate);
    }

    fn forced(&mut self, gate: u32) -> bool {
        self.inner.forced(gate)
    }

    fn flushes(&self) -> bool {
        self.inner.flushes()
    }

    fn flush(&mut self, lane: u32) -> Call {
        self.make("flush")?;
        self.inner.flush(lane)
    }

    fn infer_copy_units(&mut self) -> Call<Vec<String>> {
        self.inner.infer_copy_units()
    }

    fn notes(&self) -> Vec<String> {
        self.inner.notes()
    }

    fn begin_capture(&mut self, lane: u32) -> Call {
        self.make("begin_capture")?;
        self.inner.begin_capture(lane)
    }

    fn end_capture(&mut self, lane: u32) -> Call<u32> {
        self.make("end_capture")?;
        self.inner.end_capture(lane)
    }

    fn enter(&mut self) -> Call {
        self.inner.enter()?;
        self.make("enter")
    }

    fn leave(&mut self) {
        self.inner.leave();
    }

    fn observing(&mut self, on: bool) {
        self.inner.observing(on);
    }

    fn synchronize(&mut self) -> Call {
        self.make("synchronize")?;
        self.inner.synchronize()
    }

    fn idle(&mut self, lane: u32) -> Call<bool> {
        self.make("idle")?;
        self.inner.idle(lane)
    }

    fn progress(&mut self, lane: u32) -> Option<LaneCompletion> {
        self.inner.progress(lane)
    }

    fn stuck(&mut self) -> bool {
        self.inner.stuck()
    }

    fn comm_monitor(&self) -> Option<Arc<dyn CommMonitor>> {
        self.inner.comm_monitor()
    }

    fn reset(&mut self) -> Call {
        self.make("reset")?;
        self.inner.reset()
    }

    fn read(&mut self, space: Space, offset: u64, out: &mut [u8]) -> Call<bool> {
        self.make("read")?;
        self.inner.read(space, offset, out)
    }

    fn abandon(&mut self) {
        self.inner.abandon();
    }

    fn health(&mut self) -> Option<Health> {
        self.inner.health()
    }
}
