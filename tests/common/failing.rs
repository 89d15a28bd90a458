//! A backend whose first rank but one fails at its second launch; everything else goes to another backend.

use std::sync::Arc;

use aorta::base::{Nanos, Space};
use aorta::exec::{Backend, Breaker, DeviceInfo, Driver, ExecError, Fault, Health, Image, Progress};
use aorta::schedule::Topology;

pub struct Failing<'a>(pub &'a dyn Backend);

impl Backend for Failing<'_> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn device(&self) -> DeviceInfo {
        self.0.device()
    }

    fn topology(&self) -> Topology {
        self.0.topology()
    }

    fn open(&self, images: Vec<Image>) -> Result<Vec<Box<dyn Driver>>, ExecError> {
        let drivers = self.0.open(images)?.into_iter().enumerate();
        Ok(drivers
            .map(|(index, inner)| Box::new(FailingDriver { inner, fails: index == 1, launches: 0 }) as _)
            .collect())
    }
}

struct FailingDriver {
    inner: Box<dyn Driver>,
    fails: bool,
    launches: u32,
}

type Call<T = ()> = Result<T, Box<Fault>>;

impl Driver for FailingDriver {
    fn launch(&mut self, op: u32) -> Call {
        self.launches += 1;
        match self.fails && self.launches == 2 {
            true => Err(Fault::new("launch", "told to fail")),
            false => self.inner.launch(op),
        }
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
        self.inner.wait_stamp(lane, stamp)
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

    fn now(&self) -> Nanos {
        self.inner.now()
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

    fn read(&mut self, space: Space, offset: u64, bytes: u64) -> Call<Option<Vec<u8>>> {
        self.inner.read(space, offset, bytes)
    }

    fn abandon(&mut self) {
        self.inner.abandon();
    }

    fn health(&mut self) -> Option<Health> {
        self.inner.health()
    }
}
