//! Copies between ranks that are separate processes of one host. Every process publishes handles of its device memory
//! and of its flags, and opens those of the ranks that it exchanges data with.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::backend::crossings::{Crossings, peer_of};
use crate::backend::gpu::api::Api;
use crate::backend::shared::SharedMemory;
use crate::backend::system;
use crate::exec::{ExecError, Fault, Image, RankProcesses, agree};

use super::flags::{Flags, no_memory, registered};
use super::peers::PeerDevices;

/// Time that other processes have to close the memory that they opened. A process that has died never does.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Memory and flags of other processes that this one has opened.
#[derive(Debug, Default)]
pub struct InterProcessMemory {
    /// Addresses in this process of other ranks' device memory.
    memories: Vec<u64>,
    /// The flags of each rank.
    flags: Vec<(u32, SharedMemory)>,
}

/// The message by which a process lets others open its memory and flags.
#[derive(Serialize, Deserialize)]
struct PublishedMemory {
    /// Number that is equal for processes of the same host; see [`system::clock`].
    host: u32,
    /// Inter-process handle of the process's device memory; `None` if it has allocated none.
    memory: Option<Vec<u8>>,
    /// Name of the shared memory that holds the process's flags; `None` if it has none.
    flags: Option<String>,
    crossings: Crossings,
}

impl InterProcessMemory {
    /// Publishes this rank's memory and flags to all processes, and opens those that it needs. All processes must call
    /// this function. After an error, `self` holds what was opened before it.
    pub fn exchange<A: Api>(
        &mut self,
        (api, devices): (&Arc<A>, &PeerDevices<A>),
        (image, base): (&Image, u64),
        flags: &mut Flags,
        processes: &dyn RankProcesses,
    ) -> Result<(), ExecError> {
        // SAFETY: the memory begins at this address and stays allocated until nobody uses it.
        let memory = (base != 0).then(|| unsafe { api.export(base) }).transpose();
        let published = memory.map_err(|fault| closed(image.rank, &fault)).map(|memory| PublishedMemory {
            host: system::clock(),
            memory: memory.map(|handle| handle.to_vec()),
            flags: flags.name(),
            crossings: Crossings::of(image),
        });
        let all = agree(Some(processes), "memory", published)?;
        let partners = partners(image);
        let others = (0..).zip(all).filter(|(rank, _)| partners.contains(rank));
        let opened = others
            .map(|(rank, published)| self.open((api, devices), flags, (rank, published)))
            .collect::<Result<Vec<()>, _>>();
        agree(Some(processes), "memory of others", opened)?;
        flags.hide();
        Ok(())
    }

    fn open<A: Api>(
        &mut self,
        (api, devices): (&Arc<A>, &PeerDevices<A>),
        own: &Flags,
        (rank, published): (u32, PublishedMemory),
    ) -> Result<(), ExecError> {
        if published.host != system::clock() {
            return Err(ExecError::Device {
                fault: format!("a copy goes to or from rank {rank}, which runs on another host"),
                help: Some("copies reach the ranks of one host: write `send` and `recv`, or a collective".to_owned()),
            });
        }
        let base = match published.memory.as_deref().map(<[u8; 64]>::try_from) {
            Some(Ok(handle)) => {
                let base = api.import(&handle).map_err(|fault| closed(rank, &fault))?;
                self.memories.push(base);
                base
            }
            _ => 0,
        };
        let shared = own.open_other(published.flags.as_deref()).map_err(|error| no_memory(&error))?;
        let flags = registered(api.as_ref(), &shared)?;
        self.flags.push((rank, shared));
        devices.publish_other(rank, flags, base, published.crossings);
        Ok(())
    }

    /// True if nothing has been opened.
    pub fn is_empty(&self) -> bool {
        self.flags.is_empty()
    }

    /// Closes all opened memory, and waits until the others have closed this rank's, which may be freed only then.
    ///
    /// # Safety
    ///
    /// No work that this process has issued is under way.
    pub unsafe fn free<A: Api>(&mut self, api: &A, (rank, flags): (u32, &Flags)) {
        // SAFETY: each was opened here, and the caller guarantees that nothing uses it.
        self.memories.drain(..).for_each(|base| unsafe { api.close(base) });
        for (_, shared) in &self.flags {
            shared.word_from_end(rank as usize).iter().for_each(|word| word.store(1, Ordering::Release));
        }
        let start = Instant::now();
        while !self.flags.iter().all(|(other, _)| flags.closed(*other)) && start.elapsed() < CLOSE_TIMEOUT {
            std::thread::sleep(Duration::from_micros(100));
        }
        // SAFETY: as above.
        self.flags.drain(..).for_each(|(_, shared)| unsafe { api.unregister(shared.address()) });
    }
}

/// The ranks that this image exchanges data with.
fn partners(image: &Image) -> BTreeSet<u32> {
    let peers = image.ops.iter().filter_map(|op| peer_of(image, op));
    let ranks = peers.flat_map(|peer| peer.sends.iter().map(|sent| sent.to).chain(peer.from.iter().copied()));
    ranks.filter(|rank| *rank != image.rank).collect()
}

/// The error for device memory that other processes cannot open.
fn closed(rank: u32, fault: &Fault) -> ExecError {
    ExecError::Device {
        fault: format!("the memory of rank {rank} is not open to other processes: {fault}"),
        help: Some("run all ranks in one process: `--ranks N` without a launcher".to_owned()),
    }
}
