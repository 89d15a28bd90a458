//! Preparation of ranks for collectives: they exchange the identifiers of communicators, and learn if another one has failed.

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::sync::{Arc, Condvar, Mutex};

use crate::base::threads::{lock, unpoisoned};
use crate::exec::{Comm as CommKey, ExecError, RankProcesses, gather};

/// Identifier of a communicator in the library, by which its ranks find each other.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId {
    bytes: [c_char; ID],
}

/// Bytes of a [`UniqueId`].
const ID: usize = 128;

impl UniqueId {
    /// An identifier for the library to fill in.
    pub const EMPTY: UniqueId = UniqueId { bytes: [0; ID] };

    fn to_bytes(self) -> Vec<u8> {
        self.bytes.iter().map(|&byte| byte as u8).collect()
    }

    /// Shorter input is zero-padded; the library rejects it.
    fn from_bytes(bytes: &[u8]) -> UniqueId {
        let mut id = UniqueId::EMPTY;
        id.bytes.iter_mut().zip(bytes).for_each(|(place, &byte)| *place = byte as c_char);
        id
    }
}

/// Unique ids, by communicator.
pub type Ids = BTreeMap<CommKey, UniqueId>;

/// Exchange between the ranks while they prepare: distributes the unique ids of communicators once, between threads of this
/// process or between processes, and notes which ranks have failed.
pub struct IdExchange {
    state: Mutex<IdExchangeState>,
    changed: Condvar,
    /// Connection to the other processes, if each rank has its own process; `None` if all ranks are threads of this
    /// process.
    processes: Option<Arc<dyn RankProcesses>>,
}

struct IdExchangeState {
    ids: Ids,
    /// For each communicator that is being created, the ranks that have begun, and the number of ranks that have
    /// finished.
    making: BTreeMap<CommKey, (Vec<u32>, usize)>,
    /// Number of steps in creating communicators that were begun or finished, by which a watchdog sees progress.
    count: u64,
    /// Number of ranks of this process that have not called [`IdExchange::gather`].
    coming: usize,
    /// Number of ranks of this process that have not called [`IdExchange::wait_for_trials`].
    trying: usize,
    /// Set once any rank has failed to prepare.
    failed: bool,
}

impl IdExchange {
    /// Creates the exchange for `ranks` ranks of this process. With `processes`, this process has one rank, and each
    /// other rank has a process.
    pub fn new(ranks: usize, processes: Option<Arc<dyn RankProcesses>>) -> IdExchange {
        let (ids, making) = (BTreeMap::new(), BTreeMap::new());
        let state = IdExchangeState { ids, making, count: 0, coming: ranks, trying: ranks, failed: false };
        IdExchange { state: Mutex::new(state), changed: Condvar::new(), processes }
    }

    /// Reports that a rank is ready, with the ids that it has created, or, with `None`, that it has failed. Waits for
    /// all other ranks and returns all ids; `None` if any rank has failed. No rank creates a communicator before all
    /// are ready: one that did would block forever if another rank had failed.
    pub fn gather(&self, created: Option<Ids>) -> Result<Option<Ids>, ExecError> {
        let Some(processes) = &self.processes else { return Ok(self.gather_here(created)) };
        let created: Option<Vec<(CommKey, Vec<u8>)>> =
            created.map(|ids| ids.into_iter().map(|(comm, id)| (comm, id.to_bytes())).collect());
        let all: Option<Vec<_>> = gather(processes.as_ref(), "communicators", &created)?.into_iter().collect();
        let ids = all.map(|all| all.into_iter().flatten());
        Ok(ids.map(|ids| ids.map(|(comm, id)| (comm, UniqueId::from_bytes(&id))).collect()))
    }

    /// Exchanges ids between threads of this process; `None` if any of them has failed.
    fn gather_here(&self, own: Option<Ids>) -> Option<Ids> {
        let mut state = lock(&self.state);
        state.coming = state.coming.saturating_sub(1);
        state.failed |= own.is_none();
        state.ids.extend(own.unwrap_or_default());
        self.changed.notify_all();
        let waited = self.changed.wait_while(state, |state| state.coming > 0 && !state.failed);
        let state = unpoisoned(waited);
        (!state.failed).then(|| state.ids.clone())
    }

    /// Waits until all ranks of this process have finished their trials, which may write each other's memory. Returns
    /// false if a rank has failed. Called once in a run.
    pub fn wait_for_trials(&self) -> bool {
        let mut state = lock(&self.state);
        state.trying = state.trying.saturating_sub(1);
        self.changed.notify_all();
        let waited = self.changed.wait_while(state, |state| state.trying > 0 && !state.failed);
        !unpoisoned(waited).failed
    }

    /// Reports that a rank has failed, and wakes those that wait for it. Returns true for the first failure.
    pub fn fail(&self) -> bool {
        let first = !std::mem::replace(&mut lock(&self.state).failed, true);
        self.changed.notify_all();
        first
    }

    /// Increments the progress counter.
    pub fn note_progress(&self) {
        lock(&self.state).count += 1;
    }

    /// Value of the progress counter.
    pub fn count(&self) -> u64 {
        lock(&self.state).count
    }

    /// Describes a communicator that is being created and the ranks that it waits for; `None` if none is being created.
    pub fn waiting(&self) -> Option<String> {
        let state = lock(&self.state);
        let (comm, (there, _)) = state.making.first_key_value()?;
        let missing: Vec<u32> = comm.ranks.iter().copied().filter(|rank| !there.contains(rank)).collect();
        Some(match missing.is_empty() || self.processes.is_some() {
            true => format!("the library does not finish creating the communicator of ranks {:?}", comm.ranks),
            false => format!("ranks {there:?} wait for ranks {missing:?} to create a communicator for {}", comm.stream),
        })
    }

    /// Notes that a rank begins to create a communicator. Returns false if any rank has failed: the failed rank may be
    /// a member that never takes part.
    pub fn begin_communicator(&self, comm: &CommKey, rank: u32) -> bool {
        let mut state = lock(&self.state);
        state.making.entry(comm.clone()).or_default().0.push(rank);
        state.count += 1;
        !state.failed
    }

    /// Notes that a rank has created its part of a communicator.
    pub fn note_created(&self, comm: &CommKey) {
        let mut state = lock(&self.state);
        state.count += 1;
        if let Some((there, through)) = state.making.get_mut(comm) {
            *through += 1;
            if *through == there.len() && there.len() == comm.ranks.len() {
                state.making.remove(comm);
            }
        }
    }
}
