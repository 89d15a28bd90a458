//! A mock backend that records its calls, and fails where its script says so.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use aorta::base::{Nanos, Space};
use aorta::exec::{Backend, CommMonitor, Control, DeviceInfo, Driver, ExecError, Fault, Health, Image};
use aorta::schedule::Topology;

/// Time that each query adds to the host's clock, in ns.
const TICK: i64 = 1_000;

/// Time from a query of the host's clock to the next stamp, in ns.
const SET: i64 = 400;

/// Resolution of the device's own clock, in ns.
pub const STEP: i64 = 32;

/// Time that the device reports for every iteration and operation.
pub const ELAPSED: Nanos = Nanos(20_000);

/// A fault to inject.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// A capture cannot be ended.
    pub refuses_capture: bool,
    /// A capture cannot be begun.
    pub knows_no_capture: bool,
    /// Number of the operation in the image whose launch fails.
    pub faulty: Option<u32>,
    /// The launch or the end of a capture that fails: its text in the log, and which occurrence, counted from 0.
    pub fails: Option<(&'static str, u32)>,
    /// The failure is asynchronous: an earlier operation may have caused it.
    pub late: bool,
    /// No stamp ever completes.
    pub hangs: bool,
    /// Stamps that never complete.
    pub never: Vec<u32>,
    /// The rank and the call, by its text in the log, that does not return before the rank is stopped.
    pub stays: Option<(u32, &'static str)>,
    /// Stopping is not enough; the call only returns after [`Mock::let_go`].
    pub stays_for_good: bool,
    /// The rank whose thread starts late: after another has queried the clock 200 times since the last phase, or has
    /// finished.
    pub enters_late: Option<u32>,
    /// The rank and the call in which it panics.
    pub panics: Option<(u32, &'static str)>,
    /// Its first communicator fails.
    pub comm_fails: bool,
    /// The run is interrupted at this call: its text in the log, and which occurrence, counted from 0.
    pub interrupt: Option<(Arc<Control>, &'static str, u32)>,
    pub memory_bytes: Option<u64>,
    /// Lanes can be gated.
    pub has_gates: bool,
    /// Caches can be flushed.
    pub has_caches: bool,
    /// Gates open by timeout.
    pub forces_gates: bool,
    /// Device states returned by consecutive queries; the last is repeated.
    pub health: Vec<Health>,
    /// The device has a running clock: its start in ns of the host, and its rate error in ppm. Other ranks have the
    /// opposite values. `None` for a clock that stands still.
    pub clock: Option<(i64, i64)>,
    /// Time between two queries of the host's clock, in ns; `None` for [`TICK`].
    pub tick: Option<i64>,
}

/// The backend. The log has the calls of all drivers in order.
#[derive(Debug, Default)]
pub struct Mock {
    pub script: Script,
    log: Option<Arc<Mutex<Vec<String>>>>,
    /// For each stamp that was set: rank, number, and host time.
    pub set: Arc<Mutex<Vec<(u32, u32, i64)>>>,
    /// How often the call at which the run is interrupted was made.
    seen: Arc<AtomicU32>,
    /// How often the failing call was made.
    tried: Arc<AtomicU32>,
    hold: Arc<Hold>,
}

/// Blocks a call that does not return.
#[derive(Debug, Default)]
struct Hold {
    gone: Mutex<bool>,
    changed: Condvar,
}

impl Hold {
    fn stay(&self) {
        let gone = self.gone.lock().expect("no test panics with it");
        drop(self.changed.wait_while(gone, |gone| !*gone).expect("no test panics with it"));
    }

    fn let_go(&self) {
        *self.gone.lock().expect("no test panics with it") = true;
        self.changed.notify_all();
    }
}

/// The watchdog's handle on a mock.
struct MockCommMonitor {
    script: Script,
    hold: Arc<Hold>,
    log: Arc<Mutex<Vec<String>>>,
}

impl CommMonitor for MockCommMonitor {
    fn failure(&self) -> Option<(u32, Box<Fault>)> {
        let fault = || Box::new(Fault { call: "commState", code: 6, message: "remote error".to_owned(), late: false });
        self.script.comm_fails.then(|| (0, fault()))
    }

    fn abort(&self) {
        self.log.lock().expect("no test panics with it").push("abort".to_owned());
        if !self.script.stays_for_good {
            self.hold.let_go();
        }
    }
}

impl Mock {
    /// Returns a function that releases a blocked call.
    pub fn let_go(&self) -> impl Fn() + Send + Sync + 'static {
        let hold = self.hold.clone();
        move || hold.let_go()
    }

    /// A mock that records every call.
    pub fn new(script: Script) -> Mock {
        Mock { script, log: Some(Arc::default()), ..Mock::default() }
    }

    /// A mock that records nothing and so does not allocate.
    pub fn silent() -> Mock {
        Mock::default()
    }

    /// Returns the recorded calls and clears the log.
    pub fn take(&self) -> Vec<String> {
        self.log
            .as_ref()
            .map(|log| std::mem::take(&mut *log.lock().expect("no test panics with it")))
            .unwrap_or_default()
    }
}

impl Backend for Mock {
    fn name(&self) -> &'static str {
        "mock"
    }

    fn device(&self) -> DeviceInfo {
        DeviceInfo { name: "a mock".to_owned(), memory_bytes: self.script.memory_bytes, ..DeviceInfo::default() }
    }

    fn topology(&self) -> Topology {
        Topology { queues: 8, by_priority: false, limits_units: false }
    }

    fn open(&self, images: Vec<Image>) -> Result<Vec<Box<dyn Driver>>, ExecError> {
        let driver = |image: Image| -> Box<dyn Driver> {
            Box::new(MockDriver {
                busy: vec![false; image.lanes.len()],
                script: self.script.clone(),
                log: self.log.clone(),
                clock: AtomicI64::new(0),
                set: self.set.clone(),
                stamps: vec![0; image.stamps as usize],
                held: None,
                image,
                seen: self.seen.clone(),
                tried: self.tried.clone(),
                hold: self.hold.clone(),
                asked: 0,
                capturing: false,
                captured: BTreeSet::new(),
                graphs: 0,
            })
        };
        Ok(images.into_iter().map(driver).collect())
    }
}

struct MockDriver {
    image: Image,
    script: Script,
    log: Option<Arc<Mutex<Vec<String>>>>,
    clock: AtomicI64,
    set: Arc<Mutex<Vec<(u32, u32, i64)>>>,
    /// Times of stamps on the device's clock.
    stamps: Vec<i64>,
    /// Stamps that are set when the gate opens; `None` while it is open.
    held: Option<Vec<u32>>,
    seen: Arc<AtomicU32>,
    tried: Arc<AtomicU32>,
    hold: Arc<Hold>,
    /// Number of queries of its health.
    asked: usize,
    /// Lanes with pending work.
    busy: Vec<bool>,
    capturing: bool,
    /// Events last recorded in a capture.
    captured: BTreeSet<u32>,
    graphs: u32,
}

impl MockDriver {
    /// Records a call. Returns true if it is the one that fails.
    fn fails(&self, text: impl FnOnce(&Image) -> String) -> bool {
        let Some(log) = &self.log else { return false };
        let text = text(&self.image);
        if let Some((control, call, turn)) = &self.script.interrupt
            && text == *call
        {
            if self.seen.load(Ordering::Relaxed) == *turn {
                control.stop.store(true, Ordering::Relaxed);
            }
            self.seen.fetch_add(1, Ordering::Relaxed);
        }
        if self.script.stays.is_some_and(|(rank, call)| rank == self.image.rank && text == call) {
            self.hold.stay();
            return true;
        }
        if self.script.panics.is_some_and(|(rank, call)| rank == self.image.rank && text == call) {
            panic!("the mock was told to");
        }
        let mut fails = false;
        if let Some((call, turn)) = self.script.fails
            && text == call
        {
            fails = self.tried.load(Ordering::Relaxed) == turn;
            self.tried.fetch_add(1, Ordering::Relaxed);
        }
        log.lock().expect("no test panics with it").push(text);
        fails
    }

    fn note(&self, text: impl FnOnce(&Image) -> String) {
        self.fails(text);
    }

    /// Executes a stamp on a lane.
    fn set(&mut self, stamp: u32) {
        let Some((offset, ppm)) = self.script.clock else { return };
        let host = self.clock.load(Ordering::Relaxed) + SET;
        let sign = if self.image.rank == 0 { 1 } else { -1 };
        let time = host - offset * sign;
        self.stamps[stamp as usize] = (time + time * ppm * sign / 1_000_000).div_euclid(STEP) * STEP;
        self.set.lock().expect("no test panics with it").push((self.image.rank, stamp, host));
    }
}

fn lane_name(image: &Image, lane: u32) -> &str {
    &image.lanes[lane as usize].name
}

impl Driver for MockDriver {
    fn launch(&mut self, op: u32) -> Result<(), Box<Fault>> {
        let fails = self.fails(|image| {
            let info = image.ops[op as usize];
            let name = image.works[info.work as usize].spec.operation.name();
            format!("launch #{op} {name} on {}", lane_name(image, info.lane))
        });
        if fails || self.script.faulty == Some(op) {
            return Err(Box::new(Fault {
                call: "launchKernel",
                code: 700,
                message: "illegal address".to_owned(),
                late: self.script.late,
            }));
        }
        // Captured commands are not executed.
        if !self.capturing {
            self.busy[self.image.ops[op as usize].lane as usize] = true;
        }
        Ok(())
    }

    fn record(&mut self, event: u32, lane: u32) -> Result<(), Box<Fault>> {
        self.note(|image| format!("record e{event} on {}", lane_name(image, lane)));
        match self.capturing {
            true => self.captured.insert(event),
            false => self.captured.remove(&event),
        };
        Ok(())
    }

    fn wait(&mut self, lane: u32, event: u32) -> Result<(), Box<Fault>> {
        self.note(|image| format!("{} waits for e{event}", lane_name(image, lane)));
        match !self.capturing && self.captured.contains(&event) {
            true => Err(Fault::new("streamWaitEvent", "the event was last recorded in a capture")),
            false => Ok(()),
        }
    }

    fn stamp(&mut self, stamp: u32, lane: u32) -> Result<(), Box<Fault>> {
        self.note(|image| format!("stamp t{stamp} on {}", lane_name(image, lane)));
        match &mut self.held {
            Some(held) => held.push(stamp),
            None => self.set(stamp),
        }
        Ok(())
    }

    fn wait_stamp(&mut self, lane: u32, stamp: u32) -> Result<(), Box<Fault>> {
        self.note(|image| format!("{} waits for t{stamp}", lane_name(image, lane)));
        Ok(())
    }

    fn launch_graph(&mut self, graph: u32, lane: u32) -> Result<(), Box<Fault>> {
        if self.fails(|image| format!("launch graph {graph} on {}", lane_name(image, lane))) {
            return Err(Box::new(Fault {
                call: "launchGraph",
                code: 700,
                message: "illegal address".to_owned(),
                late: self.script.late,
            }));
        }
        self.busy[lane as usize] = true;
        Ok(())
    }

    fn reached(&mut self, stamp: u32) -> Result<bool, Box<Fault>> {
        if self.fails(|_| format!("is t{stamp} reached?")) {
            let late = self.script.late;
            return Err(Box::new(Fault { call: "queryEvent", code: 700, message: "illegal address".to_owned(), late }));
        }
        Ok(!self.script.hangs && !self.script.never.contains(&stamp))
    }

    fn elapsed(&mut self, from: u32, to: u32) -> Result<Nanos, Box<Fault>> {
        self.note(|_| format!("from t{from} to t{to}?"));
        Ok(self.script.clock.map_or(ELAPSED, |_| Nanos(self.stamps[to as usize] - self.stamps[from as usize])))
    }

    fn uncertainty(&self, _elapsed: Nanos) -> Nanos {
        self.script.clock.map_or(Nanos(0), |_| Nanos(STEP))
    }

    fn gates(&self) -> bool {
        self.script.has_gates
    }

    fn hold(&mut self, gate: u32, lane: u32) -> Result<(), Box<Fault>> {
        self.note(|image| format!("hold {} at gate {gate} of {}", lane_name(image, lane), image.gates));
        self.held = Some(Vec::new());
        Ok(())
    }

    fn release(&mut self, gate: u32) {
        self.note(|_| format!("open gate {gate}"));
        self.held.take().into_iter().flatten().for_each(|stamp| self.set(stamp));
    }

    fn forced(&mut self, gate: u32) -> bool {
        self.note(|_| format!("did gate {gate} open by itself?"));
        self.script.forces_gates
    }

    fn flushes(&self) -> bool {
        self.script.has_caches
    }

    fn flush(&mut self, lane: u32) -> Result<(), Box<Fault>> {
        self.note(|image| format!("flush on {} before {:?}", lane_name(image, lane), image.cold));
        Ok(())
    }

    fn now(&self) -> Nanos {
        self.note(|_| "now?".to_owned());
        let tick = self.script.tick.unwrap_or(TICK);
        Nanos(self.clock.fetch_add(tick, Ordering::Relaxed) + tick)
    }

    fn begin_capture(&mut self, lane: u32) -> Result<(), Box<Fault>> {
        self.note(|image| format!("begin capture on {}", lane_name(image, lane)));
        if self.script.knows_no_capture {
            return Err(Fault::new("beginCapture", "this device makes no graphs"));
        }
        self.capturing = true;
        Ok(())
    }

    fn end_capture(&mut self, lane: u32) -> Result<u32, Box<Fault>> {
        let fails = self.fails(|image| format!("end capture on {}", lane_name(image, lane)));
        self.capturing = false;
        if fails || self.script.refuses_capture {
            return Err(Box::new(Fault {
                call: "endCapture",
                code: 901,
                message: "operation failed due to a previous error during capture".to_owned(),
                late: false,
            }));
        }
        self.graphs += 1;
        Ok(self.graphs - 1)
    }

    fn enter(&mut self) -> Result<(), Box<Fault>> {
        let late = || {
            let calls = self.log.as_ref().expect("it notes its calls").lock().expect("no test panics with it");
            let looks = calls.iter().filter(|call| *call == "now?").count();
            looks < 200 && !calls.contains(&"synchronize".to_owned())
        };
        while self.script.enters_late == Some(self.image.rank) && late() {
            std::thread::yield_now();
        }
        Ok(())
    }

    fn synchronize(&mut self) -> Result<(), Box<Fault>> {
        match self.fails(|_| "synchronize".to_owned()) {
            true => Err(Fault::new("synchronize", "told to fail")),
            false => Ok(()),
        }
    }

    fn idle(&mut self, lane: u32) -> Result<bool, Box<Fault>> {
        Ok(!self.busy[lane as usize])
    }

    fn comm_monitor(&self) -> Option<Arc<dyn CommMonitor>> {
        let Script { stays, comm_fails, .. } = self.script;
        let log = self.log.clone().filter(|_| stays.is_some() || comm_fails)?;
        Some(Arc::new(MockCommMonitor { script: self.script.clone(), hold: self.hold.clone(), log }))
    }

    fn reset(&mut self) -> Result<(), Box<Fault>> {
        self.note(|_| "reset".to_owned());
        Ok(())
    }

    fn health(&mut self) -> Option<Health> {
        let said = self.script.health.get(self.asked).or(self.script.health.last()).cloned();
        self.asked += 1;
        said
    }

    fn read(&mut self, _space: Space, _offset: u64, _out: &mut [u8]) -> Result<bool, Box<Fault>> {
        Ok(false)
    }
}
