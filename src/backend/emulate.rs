//! Runs one rank of a large world on one device: a kernel replaces each operation with other ranks.
//!
//! Each collective, and each copy to another rank, is replaced by a kernel that occupies the same number of compute
//! units for the time that the tables of a profile give, or for which it occupies its busiest link. Its results are missing
//! from memory, so nothing can be verified. Neither the late arrival of other ranks is modelled, nor the sharing of links by
//! operations of several streams.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::Nanos;
use crate::config::Profile;
use crate::cost::{self, OccupiedLinks, Task};
use crate::exec::{Backend, DeviceInfo, Driver, ExecError, Image, ImageOp, LoweredSpec, NO_COMM, NO_CROSSING, Timer};
use crate::ops::{self, Collective, Launch, Spec};
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
        let mut known: BTreeMap<(u32, u32, bool), u32> = BTreeMap::new();
        for index in 0..image.ops.len() {
            let op = image.ops[index];
            let operands = image.operands(&op);
            let is_in_place = |one: &Collective| one.is_in_place(|at| operands[usize::from(at)]);
            let launches = &image.works[op.work as usize].launches;
            let in_place = launches.iter().flat_map(Launch::collectives).all(is_in_place);
            let Some(spec) = self.kernel(image, &op, in_place) else { continue };
            let works = &mut image.works;
            let work = *known.entry((op.work, op.comm, in_place)).or_insert_with(|| {
                let launches = spec.launch().into();
                works.push(LoweredSpec { spec: Arc::new(spec), launches, span: op.span });
                works.len() as u32 - 1
            });
            image.ops[index] = ImageOp { work, comm: NO_COMM, crossing: NO_CROSSING, ..op };
        }
        image.comms.clear();
        image.crossings = 0;
    }

    /// Returns the kernel that replaces an operation; `None` for an operation without other ranks. `in_place` is true for
    /// collectives of one rank whose results are in place.
    fn kernel(&self, image: &Image, op: &ImageOp, in_place: bool) -> Option<Spec> {
        let work = &image.works[op.work as usize];
        let most = self.backend.device().units.unwrap_or(u32::MAX);
        let units = (self.profile.topology.units.value() as u32).clamp(1, most);
        let occupied = |ranks: &[u32]| {
            let mut links = OccupiedLinks::default();
            links.add(&work.spec, ranks, &self.profile);
            links.busiest()
        };
        match work.launches.first()? {
            Launch::Collective(collectives) => {
                let ranks = &image.comms[op.comm as usize].ranks;
                let times = collectives.iter().map(|one| cost::exchange(one, ranks, &self.profile.topology));
                let time = match ranks.len() {
                    1 if in_place => 0.0,
                    1 => cost::duration(&work.spec, ranks, 0.0, &self.profile),
                    _ => times.fold(occupied(ranks), f64::max),
                };
                Some(ops::stand_in(Nanos::rounded(time), units))
            }
            Launch::Peer(peer) => {
                let task = cost::peer(&work.spec, peer, &self.profile);
                // A copy to the rank itself has a single block.
                let by_kernel = matches!(task, Task::Kernel { blocks: 2.., .. });
                // A copy engine occupies no unit; its replacement runs a single thread.
                let units = if by_kernel { units } else { 0 };
                let time = cost::alone(&task, &self.profile).max(occupied(&[]));
                Some(ops::stand_in(Nanos::rounded(time), units))
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
