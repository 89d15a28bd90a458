//! A backend that is another one but for one thing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aorta::base::{Nanos, Space};
use aorta::exec::{Backend, Breaker, DeviceInfo, Driver, ExecError, Fault, Health, Image, Issued, Progress, Repeat};
use aorta::schedule::Topology;

/// Does something to the image of a rank.
type Change<'a> = Box<dyn Fn(&mut Image) + 'a>;

pub struct Altered<'a> {
    backend: &'a dyn Backend,
    /// What is done to images before they are opened.
    change: Option<Change<'a>>,
    /// Launches that are late, by their numbers: each comes right behind another one.
    late: BTreeMap<u32, u32>,
    /// The rank, by its place in this process, that fails at its second launch.
    fails: Option<usize>,
    /// How many times slower the host's clock goes.
    slower: i64,
    /// Lanes do not wait for stamps.
    unordered: bool,
    /// Operations that were launched.
    launches: Arc<AtomicU64>,
}

impl<'a> Altered<'a> {
    fn not(backend: &'a dyn Backend) -> Altered<'a> {
        Altered {
            backend,
            change: None,
            late: BTreeMap::new(),
            fails: None,
            slower: 1,
            unordered: false,
            launches: Arc::default(),
        }
    }

    /// Nothing is altered; launches are counted.
    pub fn counting(backend: &'a dyn Backend, launches: Arc<AtomicU64>) -> Altered<'a> {
        Altered { launches, ..Altered::not(backend) }
    }

    /// The second rank fails at its second launch.
    pub fn failing(backend: &'a dyn Backend) -> Altered<'a> {
        Altered { fails: Some(1), ..Altered::not(backend) }
    }

    /// Every image is changed before it is opened.
    pub fn changing(backend: &'a dyn Backend, change: impl Fn(&mut Image) + 'a) -> Altered<'a> {
        Altered { change: Some(Box::new(change)), ..Altered::not(backend) }
    }

    /// Launches come too late, each right behind another one, as if that did not wait for it.
    pub fn late(backend: &'a dyn Backend, late: BTreeMap<u32, u32>) -> Altered<'a> {
        Altered { late, ..Altered::not(backend) }
    }

    /// Lanes do not wait for stamps, so that iterations are not in order.
    pub fn unordered(backend: &'a dyn Backend) -> Altered<'a> {
        Altered { unordered: true, ..Altered::not(backend) }
    }

    /// The host's clock goes ten times slower, and whoever asks it leaves the processor to others: what takes a moment has
    /// happened before a limit has passed, also on a machine that is busy with other things.
    pub fn patient(backend: &'a dyn Backend) -> Altered<'a> {
        Altered { slower: 10, ..Altered::not(backend) }
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
        if let Some(change) = &self.change {
            images.iter_mut().for_each(change);
        }
        let drivers = self.backend.open(images)?.into_iter().enumerate();
        let altered = |(index, inner)| AlteredDriver {
            inner,
            fails: self.fails == Some(index),
            launches: 0,
            all_launches: self.launches.clone(),
            slower: self.slower,
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
    slower: i64,
    late: BTreeMap<u32, u32>,
    unordered: bool,
}

type Call<T = ()> = Result<T, Box<Fault>>;

impl Driver for AlteredDriver {
    fn launch(&mut self, op: u32) -> Call {
        self.launches += 1;
        self.all_launches.fetch_add(1, Ordering::Relaxed);
        match self.fails && self.launches == 2 {
            true => return Err(Fault::new("launch", "told to fail")),
            false if self.late.contains_key(&op) => return Ok(()),
            false => self.inner.launch(op)?,
        }
        let behind = self.late.iter().filter(|(_, other)| **other == op);
        behind.map(|(late, _)| *late).collect::<Vec<_>>().into_iter().try_for_each(|late| self.inner.launch(late))
    }

    fn record(&mut self, event: u32, lane: u32) -> Call {
        self.inner.record(event, lane)
    }

    fn wait(&mut self, lane: u32, event: u32) -> Call {
        self.inner.wait(lane, event)
    }

    fn stamp(&mut self, stamp: u32, lane: u32) -> Call {
        self.inner.stamp(stamp, lane)
    }

    fn wait_stamp(&mut self, lane: u32, stamp: u32) -> Call {
        if self.unordered { Ok(()) } else { self.inner.wait_stamp(lane, stamp) }
    }

    fn launch_graph(&mut self, graph: u32, lane: u32) -> Call {
        self.inner.launch_graph(graph, lane)
    }

    fn reached(&mut self, stamp: u32) -> Call<bool> {
        self.inner.reached(stamp)
    }

    fn elapsed(&mut self, from: u32, to: u32) -> Call<Nanos> {
        self.inner.elapsed(from, to)
    }

    fn issued(&mut self, wait: bool, issued: Issued) {
        self.inner.issued(wait, issued);
    }

    fn repeats(&mut self) -> Option<Repeat> {
        self.inner.repeats()
    }

    fn now(&self) -> Nanos {
        if self.slower > 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
        Nanos(self.inner.now().0 / self.slower)
    }

    fn begin_capture(&mut self, lane: u32) -> Call {
        self.inner.begin_capture(lane)
    }

    fn end_capture(&mut self, lane: u32) -> Call<u32> {
        self.inner.end_capture(lane)
    }

    fn enter(&mut self) -> Call {
        self.inner.enter()
    }

    fn leave(&mut self) {
        self.inner.leave();
    }

    fn observing(&mut self, on: bool) {
        self.inner.observing(on);
    }

    fn synchronize(&mut self) -> Call {
        self.inner.synchronize()
    }

    fn idle(&mut self, lane: u32) -> Call<bool> {
        self.inner.idle(lane)
    }

    fn progress(&mut self, lane: u32) -> Option<Progress> {
        self.inner.progress(lane)
    }

    fn stuck(&mut self) -> bool {
        self.inner.stuck()
    }

    fn breaker(&self) -> Option<Arc<dyn Breaker>> {
        self.inner.breaker()
    }

    fn reset(&mut self) -> Call {
        self.inner.reset()
    }

    fn read(&mut self, space: Space, offset: u64, out: &mut [u8]) -> Call<bool> {
        self.inner.read(space, offset, out)
    }

    fn abandon(&mut self) {
        self.inner.abandon();
    }

    fn health(&mut self) -> Option<Health> {
        self.inner.health()
    }
}
