//! The part of the GPU backend that CUDA and HIP share: streams, events, memory, kernels, graphs, libraries, timing.
//!
//! Generic over [`Api`], which each vendor implements.

mod api;
mod choose;
mod driver;
mod host;
mod prepare;
mod ranks;
mod time;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use thiserror::Error;

use crate::backend::id_exchange::IdExchange;
use crate::backend::ranges::Ranges;
use crate::base::Nanos;
use crate::exec::{Backend, DeviceInfo, Driver, ExecError, Image, QueueMapping, RankProcesses, Timer};
use crate::ops::KernelSource;
use crate::schedule::Topology;

pub use api::library_work::{EngineNumber, LibraryWork};
pub use api::unit_ranges::UnitRange;
pub use api::{Addresses, Api, Call, MemoryHandle, PeerAccess, SyncStep};
use driver::GpuDriver;
use prepare::{copy_units, opening, queues, timer};
use ranks::peers;
use time::gate;
pub use time::stamps;

pub(in crate::backend) use api::{blas, required, rtc, runtime, tracer};

/// Kernels of the executor itself, which belong to no operation.
pub fn own_kernels() -> [Arc<KernelSource>; 5] {
    [gate::source(), stamps::source(), timer::null(), copy_units::source(), peers::source()]
}

/// The devices of one vendor as a backend: one for each rank of this process, in rank order. With `processes`, just one.
pub struct Gpu<A: Api> {
    apis: Vec<Arc<A>>,
    /// Folder of the cache of compiled kernels; `None` disables it.
    cache: Option<PathBuf>,
    /// Named ranges for a profiler; `None` if none is attached.
    ranges: Option<Arc<Ranges>>,
    /// The processes of the other ranks; `None` if this process runs all ranks.
    processes: Option<Arc<dyn RankProcesses>>,
    /// True if the device did not answer while the overhead of timestamps was measured.
    stuck: AtomicBool,
}

/// Reason why a vendor's driver cannot be used on this machine.
#[derive(Debug, Error)]
pub enum NoDriver {
    /// The driver's library is not installed; the text says which.
    #[error("{0}")]
    Absent(&'static str),
    /// The machine has no usable GPU of the vendor, for this reason.
    #[error("{0}")]
    NoDevice(String),
    /// The driver is installed and fails with this error.
    #[error("{0}")]
    Fails(ExecError),
}

impl NoDriver {
    /// The error for a run on the vendor's device. `no_device` makes it from a reason.
    pub(super) fn error(self, no_device: fn(String) -> ExecError) -> ExecError {
        match self {
            NoDriver::Fails(error) => error,
            why => no_device(why.to_string()),
        }
    }
}

/// Returns the reason if no device has this index among `count` devices; `none_seen` returns it if there are no
/// devices.
pub(super) fn check_index(index: u32, count: u32, none_seen: impl FnOnce() -> String) -> Result<(), String> {
    match count {
        count if index < count => Ok(()),
        0 => Err(none_seen()),
        1 => Err(format!("there is no device {index}; the only one is 0")),
        count => Err(format!("there is no device {index}; they go from 0 to {}", count - 1)),
    }
}

/// The error for a device that does not answer.
fn stuck() -> ExecError {
    ExecError::Device {
        fault: "an empty kernel does not complete: the device does not answer".to_owned(),
        help: Some(
            "another process may block the device, or an earlier kernel has left it in an error state: reset the \
             device, or restart the machine"
                .to_owned(),
        ),
    }
}

impl<A: Api> Gpu<A> {
    /// Creates the backend. `apis` must not be empty.
    pub fn new(apis: Vec<A>, cache: Option<PathBuf>) -> Self {
        assert!(!apis.is_empty(), "a backend needs a device");
        Gpu {
            apis: apis.into_iter().map(Arc::new).collect(),
            cache,
            ranges: None,
            processes: None,
            stuck: AtomicBool::new(false),
        }
    }

    /// Determines which of `streams` streams share a hardware queue on the first device. With `None`, tries one stream
    /// more than twice the documented number of queues.
    pub fn queues(&self, streams: Option<u32>) -> Result<QueueMapping, ExecError> {
        let api = self.apis[0].as_ref();
        let streams = streams.unwrap_or_else(|| api.topology().queues.saturating_mul(2).saturating_add(1));
        queues::probe(api, self.cache.as_deref(), streams)
    }

    /// Adds named ranges that show each operation in a profiler.
    pub fn with_ranges(self, ranges: Option<Ranges>) -> Self {
        Gpu { ranges: ranges.map(Arc::new), ..self }
    }

    /// Sets the processes that run the other ranks.
    pub fn with_processes(self, processes: Option<Arc<dyn RankProcesses>>) -> Self {
        Gpu { processes, ..self }
    }
}

impl<A: Api> Backend for Gpu<A> {
    fn name(&self) -> &'static str {
        A::NAME
    }

    fn device(&self) -> DeviceInfo {
        self.apis[0].device()
    }

    fn topology(&self) -> Topology {
        self.apis[0].topology()
    }

    fn timer(&self, timeout: Nanos) -> Result<Option<Timer>, ExecError> {
        match timer::measure(self.apis[0].as_ref(), self.cache.as_deref(), timeout) {
            timer::TimerMeasurement::Timer(timer) => Ok(Some(timer)),
            timer::TimerMeasurement::Failed(error) => Err(error),
            timer::TimerMeasurement::Stuck => {
                // Closing the device would wait for it.
                std::mem::forget(self.apis[0].clone());
                self.stuck.store(true, Ordering::Relaxed);
                Err(stuck())
            }
        }
    }

    fn processes(&self) -> Option<Arc<dyn RankProcesses>> {
        self.processes.clone()
    }

    fn open(&self, images: Vec<Image>) -> Result<Vec<Box<dyn Driver>>, ExecError> {
        if images.len() > self.apis.len() {
            return Err(ExecError::NoDevice {
                backend: A::NAME,
                why: format!("{} ranks need a device each, and {} are open", images.len(), self.apis.len()),
                help: None,
            });
        }
        if self.stuck.load(Ordering::Relaxed) {
            return Err(stuck());
        }
        let id_exchange = Arc::new(IdExchange::new(images.len(), self.processes.clone()));
        let devices = Arc::new(peers::PeerDevices::new(&images, self.processes.clone()));
        let make = |api: &Arc<A>, image, id_exchange: Arc<IdExchange>| {
            let (api, cache, ranges) = (api.clone(), self.cache.clone(), self.ranges.clone());
            let devices = devices.clone();
            move || -> Result<Box<dyn Driver>, ExecError> {
                let driver = GpuDriver::new(api, image, cache.as_deref(), (&id_exchange, &devices))?;
                Ok(Box::new(driver.with_ranges(ranges)))
            }
        };
        if images.len() == 1 {
            return images.into_iter().map(|image| make(&self.apis[0], image, id_exchange.clone())()).collect();
        }
        let timeout = images[0].timeout;
        let makers = self.apis.iter().zip(images).map(|(api, image)| make(api, image, id_exchange.clone())).collect();
        opening::together(makers, &id_exchange, timeout)
    }
}
