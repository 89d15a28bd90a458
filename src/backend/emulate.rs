//! Runs one rank of a large world on one device: a kernel replaces each operation with other ranks.
//!
//! Each collective, and each copy to another rank, is replaced by a kernel that occupies the same number of compute
//! units for the time that the tables of a profile give. Its results are missing from memory, so nothing can be
//! verified. The late arrival of other ranks is not modelled.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::Nanos;
use crate::config::Profile;
use crate::cost::{self, Task};
use crate::exec::{Backend, DeviceInfo, Driver, ExecError, Image, ImageOp, LoweredSpec, NO_COMM, NO_CROSSING, Timer};
use crate::ops::{self, Launch, Spec};
use crate::schedule::Topology;

/// A backend that emulates one rank of a world.
pub struct Emulated {
    backend: Box<dyn Backend>,
    /// Profile with the tables of transfer times.
    profile: Profile,
}

impl Emulated {
    /// Emulates other ranks with the transfer times of `profile`.
    pub fn new(backend: Box<dyn Backend>, profile: Profile) -> Emulated {
        Emulated { backend, profile }
    }

    /// Replaces all operations with other ranks in an image by kernels of the same duration.
    fn replace(&self, image: &mut Image) {
        let mut known: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        for index in 0..image.ops.len() {
            let op = image.ops[index];
            let Some(spec) = self.kernel(image, &op) else { continue };
            let works = &mut image.works;
            let work = *known.entry((op.work, op.comm)).or_insert_with(|| {
                let launches = spec.launch().into();
                works.push(LoweredSpec { spec: Arc::new(spec), launches, span: op.span });
                works.len() as u32 - 1
            });
            image.ops[index] = ImageOp { work, comm: NO_COMM, crossing: NO_CROSSING, ..op };
        }
        image.comms.clear();
        image.crossings = 0;
    }

    /// Returns the kernel that replaces an operation; `None` for an operation without other ranks.
    fn kernel(&self, image: &Image, op: &ImageOp) -> Option<Spec> {
        let work = &image.works[op.work as usize];
        let most = self.backend.device().units.unwrap_or(u32::MAX);
        let units = (self.profile.topology.units.value() as u32).clamp(1, most);
        match work.launches.first()? {
            Launch::Collective(collectives) => {
                let ranks = &image.comms[op.comm as usize].ranks;
                let times = collectives.iter().map(|one| cost::exchange(one, ranks, &self.profile.topology));
                Some(ops::stand_in(Nanos::rounded(times.fold(0.0, f64::max)), units))
            }
            Launch::Peer(peer) => {
                let task = cost::peer(&work.spec, peer, &self.profile);
                let by_kernel = matches!(task, Task::Kernel { .. });
                // A copy engine occupies no unit; its replacement runs a single thread.
                let units = if by_kernel { units } else { 0 };
                Some(ops::stand_in(Nanos::rounded(cost::alone(&task, &self.profile)), units))
            }
            _ => None,
        }
    }
}

impl Backend for Emulated {
    fn name(&self) -> &'static str {
        self.backend.name()
    }

    fn device(&self) -> DeviceInfo {
        self.backend.device()
    }

    fn topology(&self) -> Topology {
        self.backend.topology()
    }

    fn timer(&self, timeout: Nanos) -> Result<Option<Timer>, ExecError> {
        self.backend.timer(timeout)
    }

    fn open(&self, mut images: Vec<Image>) -> Result<Vec<Box<dyn Driver>>, ExecError> {
        images.iter_mut().for_each(|image| self.replace(image));
        self.backend.open(images)
    }
}
