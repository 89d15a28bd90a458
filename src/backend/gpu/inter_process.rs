//! Copies between ranks that have a process each, on one host: every process tells the others where its device's memory
//! and its flags are, and opens those of the ranks that it copies to or gets something from.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::backend::crossings::{Crossings, peer_of};
use crate::backend::shared::SharedMemory;
use crate::backend::system;
use crate::exec::{ExecError, Fault, Image, Peers, agree};

use super::api::Api;
use super::flags::{Flags, no_memory, registered};
use super::peers::PeerDevices;

/// How long the others have to close what they opened: one that is gone does not.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a process has opened of others.
#[derive(Debug, Default)]
pub struct InterProcessMemory {
    /// Where the memory of other devices begins.
    memories: Vec<u64>,
    /// The flags of each rank.
    flags: Vec<(u32, SharedMemory)>,
}

/// What a process says of itself.
#[derive(Serialize, Deserialize)]
struct Told {
    /// Which host it is on: those that say the same share one.
    host: u32,
    /// By which others open its device's memory; nothing where it has none.
    memory: Option<Vec<u8>>,
    /// The name of its flags in the host's memory; `None` where it has none.
    flags: Option<String>,
    crossings: Crossings,
}

impl InterProcessMemory {
    /// Tells the other processes of this one's rank, and opens what it needs of theirs. All of them come here. What has
    /// been opened stays here also where it fails.
    pub fn meet<A: Api>(
        &mut self,
        (api, places): (&Arc<A>, &PeerDevices<A>),
        (image, base): (&Image, u64),
        flags: &mut Flags,
        peers: &dyn Peers,
    ) -> Result<(), ExecError> {
        // SAFETY: the memory begins there, and is the driver's until nobody uses it.
        let memory = (base != 0).then(|| unsafe { api.export(base) }).transpose();
        let told = memory.map_err(|fault| closed(image.rank, &fault)).map(|memory| Told {
            host: system::clock(),
            memory: memory.map(|handle| handle.to_vec()),
            flags: flags.name(),
            crossings: Crossings::of(image),
        });
        let all = agree(Some(peers), "memory", told)?;
        let partners = partners(image);
        let others = (0..).zip(all).filter(|(rank, _)| partners.contains(rank));
        let opened =
            others.map(|(rank, told)| self.open((api, places), flags, (rank, told))).collect::<Result<Vec<()>, _>>();
        agree(Some(peers), "memory of others", opened)?;
        flags.hide();
        Ok(())
    }

    fn open<A: Api>(
        &mut self,
        (api, places): (&Arc<A>, &PeerDevices<A>),
        own: &Flags,
        (rank, told): (u32, Told),
    ) -> Result<(), ExecError> {
        if told.host != system::clock() {
            return Err(ExecError::Device {
                fault: format!("a copy goes to or from rank {rank}, which runs on another host"),
                help: Some("copies reach the ranks of one host: write `send` and `recv`, or a collective".to_owned()),
            });
        }
        let base = match told.memory.as_deref().map(<[u8; 64]>::try_from) {
            Some(Ok(handle)) => {
                let base = api.import(&handle).map_err(|fault| closed(rank, &fault))?;
                self.memories.push(base);
                base
            }
            _ => 0,
        };
        let shared = own.open_other(told.flags.as_deref()).map_err(|error| no_memory(&error))?;
        let flags = registered(api.as_ref(), &shared)?;
        self.flags.push((rank, shared));
        places.publish_other(rank, flags, base, told.crossings);
        Ok(())
    }

    /// Whether nothing has been opened.
    pub fn is_empty(&self) -> bool {
        self.flags.is_empty()
    }

    /// Closes all, and waits until the others have closed what is this rank's: only then may its memory go.
    ///
    /// # Safety
    /// Nothing that this process has issued is under way.
    pub unsafe fn free<A: Api>(&mut self, api: &A, (rank, flags): (u32, &Flags)) {
        // SAFETY: each was opened here, and the caller says that nothing uses it.
        self.memories.drain(..).for_each(|base| unsafe { api.close(base) });
        for (_, shared) in &self.flags {
            shared.word_from_end(rank as usize).iter().for_each(|word| word.store(1, Ordering::Release));
        }
        let start = Instant::now();
        while !self.flags.iter().all(|(other, _)| flags.closed(*other)) && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_micros(100));
        }
        // SAFETY: as above.
        self.flags.drain(..).for_each(|(_, shared)| unsafe { api.unregister(shared.address()) });
    }
}

/// The ranks that one copies to or gets something from.
fn partners(image: &Image) -> BTreeSet<u32> {
    let peers = image.ops.iter().filter_map(|op| peer_of(image, op));
    let ranks = peers.flat_map(|peer| peer.sends.iter().map(|sent| sent.to).chain(peer.from.iter().copied()));
    ranks.filter(|rank| *rank != image.rank).collect()
}

/// The error of a device's memory that other processes cannot open.
fn closed(rank: u32, fault: &Fault) -> ExecError {
    ExecError::Device {
        fault: format!("the memory of rank {rank} is not open to other processes: {fault}"),
        help: Some("run all ranks in one process: `--ranks N` without a launcher".to_owned()),
    }
}
