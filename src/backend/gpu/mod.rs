//! Everything that CUDA and HIP have in common: streams, events, memory, kernels, graphs, libraries, timing.
//!
//! Generic over an [`Api`], which is all that a vendor adds.

mod api;
mod driver;
pub mod gate;
mod kernels;
mod lower;
mod products;
mod timer;

use std::path::PathBuf;
use std::sync::Arc;

use crate::backend::ranges::Ranges;
use crate::exec::{Backend, DeviceInfo, Driver, ExecError, Image, Timer};
use crate::schedule::Topology;

pub use api::{Api, Call};

/// A vendor's device as a backend.
pub struct Gpu<A: Api> {
    api: Arc<A>,
    /// Where compiled kernels are kept.
    cache: Option<PathBuf>,
    /// What tells a profiler of operations, where one is attached.
    ranges: Option<Arc<Ranges>>,
}

impl<A: Api> Gpu<A> {
    pub fn new(api: A, cache: Option<PathBuf>) -> Self {
        Gpu { api: Arc::new(api), cache, ranges: None }
    }

    /// Tells a profiler of each operation that is launched.
    pub fn with_ranges(self, ranges: Option<Ranges>) -> Self {
        Gpu { ranges: ranges.map(Arc::new), ..self }
    }
}

impl<A: Api> Backend for Gpu<A> {
    fn name(&self) -> &'static str {
        A::NAME
    }

    fn device(&self) -> DeviceInfo {
        self.api.device()
    }

    fn topology(&self) -> Topology {
        self.api.topology()
    }

    fn timer(&self) -> Result<Option<Timer>, ExecError> {
        timer::measure(self.api.as_ref(), self.cache.as_deref()).map(Some)
    }

    fn open(&self, image: Image) -> Result<Box<dyn Driver>, ExecError> {
        let driver = driver::GpuDriver::new(self.api.clone(), image, self.cache.as_deref())?;
        Ok(Box::new(driver.with_ranges(self.ranges.clone())))
    }
}
