//! Everything that CUDA and HIP have in common: streams, events, memory, kernels, graphs, libraries, timing.
//!
//! Generic over an [`Api`], which is all that a vendor adds.

mod api;
mod driver;
pub mod gate;
mod kernels;
mod lower;
mod products;
pub mod stamps;
mod timer;

use std::path::PathBuf;
use std::sync::Arc;

use crate::backend::collective::Meeting;
use crate::backend::ranges::Ranges;
use crate::exec::{Backend, DeviceInfo, Driver, ExecError, Image, Timer};
use crate::schedule::Topology;

pub use api::{Api, Call};

/// A vendor's devices as a backend: one for each rank of the process, in their order.
pub struct Gpu<A: Api> {
    apis: Vec<Arc<A>>,
    /// Where compiled kernels are kept.
    cache: Option<PathBuf>,
    /// What tells a profiler of operations, where one is attached.
    ranges: Option<Arc<Ranges>>,
}

impl<A: Api> Gpu<A> {
    /// One device at least.
    pub fn new(apis: Vec<A>, cache: Option<PathBuf>) -> Self {
        assert!(!apis.is_empty(), "a backend needs a device");
        Gpu { apis: apis.into_iter().map(Arc::new).collect(), cache, ranges: None }
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
        self.apis[0].device()
    }

    fn topology(&self) -> Topology {
        self.apis[0].topology()
    }

    fn timer(&self) -> Result<Option<Timer>, ExecError> {
        timer::measure(self.apis[0].as_ref(), self.cache.as_deref()).map(Some)
    }

    fn open(&self, images: Vec<Image>) -> Result<Vec<Box<dyn Driver>>, ExecError> {
        if images.len() > self.apis.len() {
            return Err(ExecError::NoDevice {
                backend: A::NAME,
                why: format!("{} ranks need a device each, and {} are open", images.len(), self.apis.len()),
                help: None,
            });
        }
        let meeting = Meeting::new(images.len());
        let make = |api: &Arc<A>, image| -> Result<Box<dyn Driver>, ExecError> {
            let driver = driver::GpuDriver::new(api.clone(), image, self.cache.as_deref(), &meeting)?;
            Ok(Box::new(driver.with_ranges(self.ranges.clone())))
        };
        if images.len() == 1 {
            return images.into_iter().map(|image| make(&self.apis[0], image)).collect();
        }
        // Communicators are made by all ranks together.
        std::thread::scope(|scope| {
            let makers: Vec<_> =
                self.apis.iter().zip(images).map(|(api, image)| scope.spawn(|| make(api, image))).collect();
            let joined = makers.into_iter().map(|maker| maker.join());
            let mut made: Vec<_> =
                joined.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect();
            // What ended because another had failed tells nothing.
            let tells =
                |result: &Result<_, ExecError>| matches!(result, Err(error) if !matches!(error, ExecError::Ended));
            if let Some(index) = made.iter().position(tells) {
                made.swap(0, index);
            }
            made.into_iter().collect()
        })
    }
}
