//! One device that stands for a rank among many: what it would do together with others becomes a kernel of its own.
//!
//! Each collective, and each copy to another rank, is replaced by a kernel that holds as many compute units as it, for the
//! time that the tables of a topology give. What it would leave in memory is not there, so nothing can be verified; that
//! other ranks come late is not in the time either.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::Nanos;
use crate::config::Profile;
use crate::cost;
use crate::exec::{Backend, DeviceInfo, Driver, ExecError, Image, ImageOp, NO_COMM, NO_CROSSING, Timer, Work};
use crate::ops::{self, Launch, Spec};
use crate::schedule::Topology;

/// A backend that runs one rank of a world.
pub struct Emulated {
    backend: Box<dyn Backend>,
    /// By which it is told how long anything takes between ranks.
    profile: Profile,
}

impl Emulated {
    /// What ranks do together takes as long as between devices of that profile.
    pub fn new(backend: Box<dyn Backend>, profile: Profile) -> Emulated {
        Emulated { backend, profile }
    }

    /// Replaces everything that an image does together with other ranks.
    fn replace(&self, image: &mut Image) {
        let mut known: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        for index in 0..image.ops.len() {
            let op = image.ops[index];
            let Some(spec) = self.kernel(image, &op) else { continue };
            let works = &mut image.works;
            let work = *known.entry((op.work, op.comm)).or_insert_with(|| {
                let launches = spec.launch().into();
                works.push(Work { spec: Arc::new(spec), launches, span: op.span });
                works.len() as u32 - 1
            });
            image.ops[index] = ImageOp { work, comm: NO_COMM, crossing: NO_CROSSING, ..op };
        }
        image.comms.clear();
        image.crossings = 0;
    }

    /// The kernel in place of an operation; nothing where it is this rank's alone.
    fn kernel(&self, image: &Image, op: &ImageOp) -> Option<Spec> {
        let work = &image.works[op.work as usize];
        let most = self.backend.device().units.unwrap_or(u32::MAX);
        let units = (self.profile.topology.units.value() as u32).clamp(1, most);
        match work.launches.first()? {
            Launch::Collective(collectives) => {
                let ranks = &image.comms[op.comm as usize].ranks;
                let times = collectives.iter().map(|one| cost::exchange(one, ranks, &self.profile.topology));
                Some(ops::held(nanos(times.fold(0.0, f64::max)), units))
            }
            Launch::Peer(peer) => {
                let task = cost::peer(&work.spec, &self.profile);
                let by_kernel = peer.sends.as_ref().is_some_and(|sent| matches!(*sent.launch, Launch::Kernel(_)));
                // A copy engine takes no unit, and what stands for it a single thread.
                let units = if by_kernel { units } else { 0 };
                Some(ops::held(nanos(cost::alone(&task, &self.profile)), units))
            }
            _ => None,
        }
    }
}

fn nanos(time: f64) -> Nanos {
    Nanos(time.round() as i64)
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

    fn timer(&self) -> Result<Option<Timer>, ExecError> {
        self.backend.timer()
    }

    fn open(&self, mut images: Vec<Image>) -> Result<Vec<Box<dyn Driver>>, ExecError> {
        images.iter_mut().for_each(|image| self.replace(image));
        self.backend.open(images)
    }
}
