//! RCCL, whose functions have NCCL's names.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::capture;
use crate::clique::{Clique, Key, Kind, Part, Reduction};
use crate::device;
use crate::element::Element;
use crate::handles::Handles;
use crate::status::LAUNCH_FAILURE;
use crate::stream::{STREAMS, Task};

type Handle = *mut c_void;

/// `ncclResult_t`.
const SUCCESS: c_int = 0;
const HIP_ERROR: c_int = 1;
const INVALID_ARGUMENT: c_int = 4;
const INVALID_USAGE: c_int = 5;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId {
    bytes: [u8; 128],
}

/// One rank's end of a communicator.
struct Comm {
    clique: Arc<Clique>,
    rank: usize,
    device: i32,
    /// Its first collective has been issued: as with the library, that is when ranks open each other's memory.
    connected: AtomicBool,
    /// Collectives issued, and transfers by their pairs.
    issued: Mutex<HashMap<Option<(usize, usize)>, u64>>,
}

static COMMS: Handles<Comm> = Handles::new();

/// Communicators that are being made: by their numbers, the ranks that have come, and what they share.
static JOINING: Mutex<Vec<(u64, usize, Arc<Clique>)>> = Mutex::new(Vec::new());
static JOINED: Condvar = Condvar::new();

/// A collective that waits for the end of its group.
struct Pending {
    comm: Arc<Comm>,
    key: (Option<(usize, usize)>, u64),
    part: Part,
    stream: usize,
}

thread_local! {
    /// Nesting of open groups, and their collectives.
    static GROUP: RefCell<(u32, Vec<Pending>)> = const { RefCell::new((0, Vec::new())) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> c_int {
    crate::api::counted!(ncclGetVersion);
    // SAFETY: the output pointer is valid for the call.
    unsafe { version.write(22_203) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetUniqueId(id: *mut UniqueId) -> c_int {
    crate::api::counted!(ncclGetUniqueId);
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut bytes = [0; 128];
    bytes[..8].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    // SAFETY: the output pointer is valid for the call.
    unsafe { id.write(UniqueId { bytes }) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRank(to: *mut Handle, ranks: c_int, id: UniqueId, rank: c_int) -> c_int {
    crate::api::counted!(ncclCommInitRank);
    if ranks < 1 || !(0..ranks).contains(&rank) {
        return INVALID_ARGUMENT;
    }
    let ranks = ranks as usize;
    let number = u64::from_le_bytes(id.bytes[..8].try_into().unwrap_or_default());
    let mut joining = JOINING.lock().unwrap_or_else(PoisonError::into_inner);
    if !joining.iter().any(|(known, ..)| *known == number) {
        joining.push((number, 0, Clique::new(ranks)));
    }
    let Some(found) = joining.iter_mut().find(|(known, ..)| *known == number) else { return INVALID_USAGE };
    found.1 += 1;
    let clique = found.2.clone();
    JOINED.notify_all();
    let missing = |joining: &mut Vec<(u64, usize, Arc<Clique>)>| {
        joining.iter().any(|(known, come, _)| *known == number && *come < ranks)
    };
    drop(JOINED.wait_while(joining, missing));
    let (connected, issued) = (AtomicBool::new(false), Mutex::default());
    let comm = Comm { clique, rank: rank as usize, device: device::current(), connected, issued };
    // SAFETY: the output pointer is valid for the call.
    unsafe { to.write(COMMS.add(Arc::new(comm))) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclCommDestroy(comm: Handle) -> c_int {
    crate::api::counted!(ncclCommDestroy);
    if COMMS.remove(comm).is_ok() { SUCCESS } else { INVALID_ARGUMENT }
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclCommAbort(comm: Handle) -> c_int {
    crate::api::counted!(ncclCommAbort);
    match COMMS.remove(comm) {
        Ok(comm) => {
            comm.clique.abort();
            SUCCESS
        }
        Err(_) => INVALID_ARGUMENT,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommGetAsyncError(comm: Handle, state: *mut c_int) -> c_int {
    crate::api::counted!(ncclCommGetAsyncError);
    let Ok(comm) = COMMS.get(comm) else { return INVALID_ARGUMENT };
    let failed = device::get(comm.device).and_then(|device| device.check()).is_err();
    // SAFETY: the output pointer is valid for the call.
    unsafe { state.write(if failed { HIP_ERROR } else { SUCCESS }) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommCount(comm: Handle, count: *mut c_int) -> c_int {
    crate::api::counted!(ncclCommCount);
    let Ok(comm) = COMMS.get(comm) else { return INVALID_ARGUMENT };
    // SAFETY: the output pointer is valid for the call.
    unsafe { count.write(comm.clique.ranks as c_int) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommUserRank(comm: Handle, rank: *mut c_int) -> c_int {
    crate::api::counted!(ncclCommUserRank);
    let Ok(comm) = COMMS.get(comm) else { return INVALID_ARGUMENT };
    // SAFETY: the output pointer is valid for the call.
    unsafe { rank.write(comm.rank as c_int) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(code: c_int) -> *const c_char {
    let text = match code {
        SUCCESS => c"no error",
        HIP_ERROR => c"unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        INVALID_ARGUMENT => c"invalid argument (run with NCCL_DEBUG=WARN for details)",
        INVALID_USAGE => c"invalid usage (run with NCCL_DEBUG=WARN for details)",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupStart() -> c_int {
    crate::api::counted!(ncclGroupStart);
    GROUP.with_borrow_mut(|group| group.0 += 1);
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupEnd() -> c_int {
    crate::api::counted!(ncclGroupEnd);
    let pending = GROUP.with_borrow_mut(|group| {
        group.0 = group.0.checked_sub(1)?;
        Some(if group.0 == 0 { std::mem::take(&mut group.1) } else { Vec::new() })
    });
    pending.map_or(INVALID_USAGE, issue)
}

/// Issues what belongs together, a task for each stream: all parts are brought before any is waited for.
fn issue(mut pending: Vec<Pending>) -> c_int {
    while let Some(stream) = pending.first().map(|pending| pending.stream) {
        let own: Vec<Pending> = pending.extract_if(.., |pending| pending.stream == stream).collect();
        let Ok(stream) = STREAMS.get(stream as Handle) else { return INVALID_ARGUMENT };
        if own.iter().any(|pending| pending.comm.device != stream.device) {
            return INVALID_USAGE;
        }
        if own.iter().any(|pending| !pending.comm.connected.swap(true, Ordering::Relaxed)) && capture::forbid().is_err()
        {
            return HIP_ERROR;
        }
        let round = AtomicU64::new(0);
        let task = Task::new(move || {
            let round = round.fetch_add(1, Ordering::Relaxed);
            let keyed = |pending: &Pending| Key { pair: pending.key.0, issued: pending.key.1, round };
            let brought = own.iter().try_for_each(|one| one.comm.clique.bring(keyed(one), one.comm.rank, one.part));
            let met = brought.and_then(|()| own.iter().try_for_each(|one| one.comm.clique.part(keyed(one))));
            met.map_err(|_| LAUNCH_FAILURE)
        });
        let usable = device::get(stream.device).and_then(|device| device.check());
        if usable.and_then(|()| stream.issue(task)).is_err() {
            return HIP_ERROR;
        }
    }
    SUCCESS
}

fn reduction(number: c_int) -> Option<Reduction> {
    let all = [Reduction::Sum, Reduction::Product, Reduction::Max, Reduction::Min, Reduction::Mean];
    all.get(usize::try_from(number).ok()?).copied()
}

/// Adds a collective to the group, or issues it where there is none. Nothing for what the numbers do not say.
fn collective(
    kind: Option<Kind>,
    operands: (*const c_void, *mut c_void),
    count: usize,
    element: c_int,
    comm: Handle,
    stream: Handle,
) -> c_int {
    let (Some(kind), Some(element), Ok(comm)) = (kind, Element::of_collective(element), COMMS.get(comm)) else {
        return INVALID_ARGUMENT;
    };
    let pair = match kind {
        Kind::Send(peer) => Some((comm.rank, peer)),
        Kind::Recv(peer) => Some((peer, comm.rank)),
        _ => None,
    };
    if let Kind::Send(peer) | Kind::Recv(peer) | Kind::Broadcast(peer) | Kind::Reduce(_, peer) = kind
        && peer >= comm.clique.ranks
    {
        return INVALID_ARGUMENT;
    }
    let issued = comm.next(pair, kind);
    let (source, target) = (operands.0 as usize, operands.1 as usize);
    let part = Part { kind, element, count, source, target };
    let pending = Pending { comm, key: (pair, issued), part, stream: stream as usize };
    let alone = GROUP.with_borrow_mut(|group| match group.0 {
        0 => Some(pending),
        _ => {
            group.1.push(pending);
            None
        }
    });
    alone.map_or(SUCCESS, |pending| issue(vec![pending]))
}

impl Comm {
    /// The number of the next collective, or of the next transfer of a pair. A transfer to oneself has both its sides
    /// here, each of which counts.
    fn next(&self, pair: Option<(usize, usize)>, kind: Kind) -> u64 {
        let mut issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        let side = match (pair, kind) {
            // The receiving side of a transfer to oneself counts apart from the sending one.
            (Some((from, to)), Kind::Recv(_)) if from == to => Some((from, usize::MAX)),
            _ => pair,
        };
        let next = issued.entry(side).or_insert(0);
        *next += 1;
        *next
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclAllReduce(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    element: c_int,
    op: c_int,
    comm: Handle,
    stream: Handle,
) -> c_int {
    crate::api::counted!(ncclAllReduce);
    collective(reduction(op).map(Kind::AllReduce), (from, to), count, element, comm, stream)
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclReduceScatter(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    element: c_int,
    op: c_int,
    comm: Handle,
    stream: Handle,
) -> c_int {
    crate::api::counted!(ncclReduceScatter);
    collective(reduction(op).map(Kind::ReduceScatter), (from, to), count, element, comm, stream)
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclReduce(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    element: c_int,
    op: c_int,
    root: c_int,
    comm: Handle,
    stream: Handle,
) -> c_int {
    crate::api::counted!(ncclReduce);
    let kind = reduction(op).map(|reduction| Kind::Reduce(reduction, root as usize));
    collective(kind, (from, to), count, element, comm, stream)
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclAllGather(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    element: c_int,
    comm: Handle,
    stream: Handle,
) -> c_int {
    crate::api::counted!(ncclAllGather);
    collective(Some(Kind::AllGather), (from, to), count, element, comm, stream)
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclBroadcast(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    element: c_int,
    root: c_int,
    comm: Handle,
    stream: Handle,
) -> c_int {
    crate::api::counted!(ncclBroadcast);
    collective(Some(Kind::Broadcast(root as usize)), (from, to), count, element, comm, stream)
}

/// RCCL's spelling.
#[unsafe(no_mangle)]
pub extern "C" fn ncclAllToAll(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    element: c_int,
    comm: Handle,
    stream: Handle,
) -> c_int {
    crate::api::counted!(ncclAllToAll);
    collective(Some(Kind::AllToAll), (from, to), count, element, comm, stream)
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclSend(
    from: *const c_void,
    count: usize,
    element: c_int,
    peer: c_int,
    comm: Handle,
    stream: Handle,
) -> c_int {
    crate::api::counted!(ncclSend);
    collective(Some(Kind::Send(peer as usize)), (from, std::ptr::null_mut()), count, element, comm, stream)
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclRecv(
    to: *mut c_void,
    count: usize,
    element: c_int,
    peer: c_int,
    comm: Handle,
    stream: Handle,
) -> c_int {
    crate::api::counted!(ncclRecv);
    collective(Some(Kind::Recv(peer as usize)), (std::ptr::null(), to), count, element, comm, stream)
}
