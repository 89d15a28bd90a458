//! NCCL and RCCL, by one table of functions: names, types and values of both libraries are the same.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::base::DType;
use crate::exec::{Comm as CommKey, ExecError, Fault};
use crate::ops::{Collective, CollectiveKind, PartSizes, Reduction};

use super::id_exchange::{IdExchange, Ids, UniqueId};
use super::libraries::{NotOpened, SearchPaths, functions};

/// A communicator handle of the library.
pub type Comm = *mut c_void;

functions! {
    /// The functions of NCCL or RCCL.
    Table {
        get_version = ncclGetVersion(*mut c_int);
        get_unique_id = ncclGetUniqueId(*mut UniqueId);
        comm_init_rank = ncclCommInitRank(*mut Comm, c_int, UniqueId, c_int);
        comm_destroy = ncclCommDestroy(Comm);
        comm_abort = ncclCommAbort(Comm);
        comm_error = ncclCommGetAsyncError(Comm, *mut c_int);
        group_start = ncclGroupStart();
        group_end = ncclGroupEnd();
        all_reduce = ncclAllReduce(*const c_void, *mut c_void, usize, c_int, c_int, Comm, *mut c_void);
        all_gather = ncclAllGather(*const c_void, *mut c_void, usize, c_int, Comm, *mut c_void);
        reduce_scatter = ncclReduceScatter(*const c_void, *mut c_void, usize, c_int, c_int, Comm, *mut c_void);
        broadcast = ncclBroadcast(*const c_void, *mut c_void, usize, c_int, c_int, Comm, *mut c_void);
        reduce = ncclReduce(*const c_void, *mut c_void, usize, c_int, c_int, c_int, Comm, *mut c_void);
        send = ncclSend(*const c_void, usize, c_int, c_int, Comm, *mut c_void);
        recv = ncclRecv(*mut c_void, usize, c_int, c_int, Comm, *mut c_void);
    }
    optional {
        all_to_all = ncclAlltoAll(*const c_void, *mut c_void, usize, c_int, Comm, *mut c_void);
    }
}

/// A collective with the addresses of its operands, ready to be issued.
#[derive(Clone, Debug)]
pub struct Exchange {
    collective: Collective,
    source: u64,
    target: u64,
    /// Address of the tensor that counts the rows; 0 if the sizes are known before the run.
    counts: u64,
    /// For row counts: for each rank of the group, offset and number of the elements sent to it, then offset and number
    /// of those received from it. Empty until [`Exchange::count`].
    transfers: Vec<[u64; 4]>,
}

impl Exchange {
    /// Resolves a collective. `at` returns the address of an operand. A barrier becomes an all-reduce of one element at
    /// `scratch`.
    pub fn new(collective: &Collective, scratch: u64, at: impl Fn(u8) -> u64) -> Exchange {
        let barrier = collective.kind == CollectiveKind::Barrier;
        let address = |operand: Option<u8>| if barrier { scratch } else { operand.map_or(0, &at) };
        let (source, target) = (address(collective.source), address(collective.target));
        let counts = collective.counted.map_or(0, |counted| at(counted.operand));
        let transfers = Vec::with_capacity(if counts == 0 { 0 } else { collective.ranks as usize });
        Exchange { collective: collective.clone(), source, target, counts, transfers }
    }

    /// Address and size in bytes of the row counts that the host must read first; `None` if the collective has none.
    pub fn counts(&self) -> Option<(u64, usize)> {
        let counted = self.collective.counted?;
        Some((self.counts, (counted.counts() * counted.dtype.size()) as usize))
    }

    /// Computes the elements that the rank exchanges with each other rank from the row counts, whose bytes the host has
    /// read.
    pub fn count(&mut self, counts: &[u8]) {
        let (Some(counted), Collective { rank, ranks, .. }) = (self.collective.counted, &self.collective) else {
            return;
        };
        let size = counted.dtype.size() as usize;
        let count = |place: u64| {
            let bytes = &counts[place as usize * size..][..size];
            counted.dtype.load(bytes) as i64
        };
        self.transfers.clear();
        self.transfers.extend((0..*ranks).map(|other| {
            let (sent, received) =
                (counted.rows_between(count, *rank, other), counted.rows_between(count, other, *rank));
            [sent.from, sent.rows, received.to, received.rows].map(|rows| rows * counted.row)
        }));
    }
}

/// The loaded library.
#[derive(Clone, Copy)]
pub struct Collectives {
    table: Table,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    path: &'static str,
}

/// The library's constant for an element type (`ncclDataType_t`).
fn number(dtype: DType) -> c_int {
    match dtype {
        DType::I8 => 0,
        DType::U8 => 1,
        DType::I32 => 2,
        DType::I64 => 4,
        DType::F16 => 6,
        DType::F32 => 7,
        DType::F64 => 8,
        DType::BF16 => 9,
        // NCCL from 2.24 on.
        DType::E4M3 => 10,
        DType::E5M2 => 11,
    }
}

/// The library's constant for a reduction (`ncclRedOp_t`).
fn reduction(reduction: Reduction) -> c_int {
    match reduction {
        Reduction::Sum => 0,
        Reduction::Product => 1,
        Reduction::Max => 2,
        Reduction::Min => 3,
        Reduction::Mean => 4,
    }
}

impl Collectives {
    /// Opens the library under the first of these names that exists; `missing` makes the error if none does.
    pub fn open(
        paths: &SearchPaths,
        names: [&str; 2],
        missing: impl FnOnce(NotOpened) -> ExecError,
    ) -> Result<Collectives, ExecError> {
        let opened = paths.open(&names.map(str::to_owned)).map_err(missing)?;
        let symbol = "ncclGetErrorString";
        // SAFETY: the type is that of the library's header.
        let error_string = unsafe { opened.find(symbol) }.ok_or_else(|| opened.missing_function(symbol))?;
        Ok(Collectives { table: Table::load(&opened)?, error_string, path: opened.path })
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<(), Box<Fault>> {
        if code == 0 { Ok(()) } else { Err(self.fault(call, code)) }
    }

    #[cold]
    fn fault(&self, call: &'static str, code: c_int) -> Box<Fault> {
        // SAFETY: the function takes any number and returns a constant text.
        let text = unsafe { CStr::from_ptr((self.error_string)(code)) };
        Box::new(Fault { call, code: i64::from(code), message: text.to_string_lossy().into_owned(), late: false })
    }

    /// The library's version, as in `2.28.3`; `None` if it does not report one.
    pub fn version(&self) -> Option<String> {
        let mut version = 0;
        // SAFETY: the output pointer is valid for the call.
        let code = unsafe { (self.table.get_version)(&mut version) };
        (code == 0).then(|| format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100))
    }

    /// The version and the path of the library.
    pub fn version_and_path(&self) -> String {
        format!("{}, {}", self.version().as_deref().unwrap_or("unknown"), self.path)
    }

    /// Creates the unique ids of those of the communicators whose first rank is `rank`.
    pub fn begin(&self, comms: &[CommKey], rank: u32) -> Result<Ids, Box<Fault>> {
        let mut ids = Ids::new();
        for comm in comms.iter().filter(|comm| comm.ranks.first() == Some(&rank)) {
            let mut id = UniqueId::EMPTY;
            // SAFETY: the output pointer is valid for the call.
            self.check("ncclGetUniqueId", unsafe { (self.table.get_unique_id)(&mut id) })?;
            ids.insert(comm.clone(), id);
        }
        Ok(ids)
    }

    /// Creates this rank's handle of a communicator on the current device. Blocks until all its ranks take part.
    pub fn join(&self, comm: &CommKey, rank: u32, (ids, id_exchange): (&Ids, &IdExchange)) -> Result<Comm, Box<Fault>> {
        let number = comm.ranks.iter().position(|&other| other == rank).unwrap_or(0);
        let nobody = || Fault::new("ncclCommInitRank", "no rank has begun this communicator: a bug of aorta");
        let id = *ids.get(comm).ok_or_else(nobody)?;
        if !id_exchange.begin_communicator(comm, rank) {
            return Err(Fault::new("ncclCommInitRank", "not called, since another rank has failed"));
        }
        let mut made: Comm = std::ptr::null_mut();
        // SAFETY: the output pointer is valid for the call.
        let code = unsafe { (self.table.comm_init_rank)(&mut made, comm.ranks.len() as c_int, id, number as c_int) };
        self.check("ncclCommInitRank", code)?;
        id_exchange.note_created(comm);
        Ok(made)
    }

    /// Issues collectives to a stream. Several collectives are issued as a group.
    ///
    /// # Safety
    ///
    /// The communicator must be alive, the stream must belong to its device, and all addresses must be memory of that
    /// device with the size that the collectives require.
    pub unsafe fn issue(&self, comm: Comm, exchanges: &[Exchange], stream: *mut c_void) -> Result<(), Box<Fault>> {
        // SAFETY: the caller vouches for handles and memory.
        let all = || exchanges.iter().try_for_each(|exchange| unsafe { self.issue_one(comm, exchange, stream) });
        if exchanges.len() > 1 { self.grouped(all) } else { all() }
    }

    /// Issues calls as one group. The group ends even if a call fails.
    fn grouped(&self, calls: impl FnOnce() -> Result<(), Box<Fault>>) -> Result<(), Box<Fault>> {
        // SAFETY: the function takes no arguments.
        self.check("ncclGroupStart", unsafe { (self.table.group_start)() })?;
        let issued = calls();
        // SAFETY: as above.
        issued.and(self.check("ncclGroupEnd", unsafe { (self.table.group_end)() }))
    }

    /// # Safety
    ///
    /// As for [`Collectives::issue`].
    unsafe fn issue_one(&self, comm: Comm, exchange: &Exchange, stream: *mut c_void) -> Result<(), Box<Fault>> {
        let Exchange { collective, source, target, .. } = exchange;
        let Table { all_reduce, all_gather, reduce_scatter, broadcast, reduce, send, recv, .. } = self.table;
        let (from, to) = (*source as *const c_void, *target as *mut c_void);
        let (count, kind) = (collective.count as usize, number(collective.dtype));
        let (op, peer) = (reduction(collective.reduction), collective.peer as c_int);
        // SAFETY: the caller vouches for handles and memory.
        unsafe {
            match collective.kind {
                CollectiveKind::AllReduce => {
                    self.check("ncclAllReduce", all_reduce(from, to, count, kind, op, comm, stream))
                }
                CollectiveKind::Barrier => {
                    let float = number(DType::F32);
                    self.check("ncclAllReduce", all_reduce(from, to, 1, float, 0, comm, stream))
                }
                CollectiveKind::AllGather => {
                    self.check("ncclAllGather", all_gather(from, to, count, kind, comm, stream))
                }
                CollectiveKind::ReduceScatter => {
                    self.check("ncclReduceScatter", reduce_scatter(from, to, count, kind, op, comm, stream))
                }
                CollectiveKind::Broadcast => {
                    self.check("ncclBroadcast", broadcast(from, to, count, kind, peer, comm, stream))
                }
                CollectiveKind::Reduce => {
                    self.check("ncclReduce", reduce(from, to, count, kind, op, peer, comm, stream))
                }
                CollectiveKind::Send => self.check("ncclSend", send(from, count, kind, peer, comm, stream)),
                CollectiveKind::Recv => self.check("ncclRecv", recv(to, count, kind, peer, comm, stream)),
                CollectiveKind::AllToAll if collective.counted.is_some() => {
                    self.issue_transfers(comm, exchange, stream)
                }
                CollectiveKind::AllToAll => match (&collective.parts, self.table.all_to_all) {
                    (None, Some(all_to_all)) => {
                        self.check("ncclAlltoAll", all_to_all(from, to, count, kind, comm, stream))
                    }
                    (parts, _) => self.parts(comm, exchange, parts.as_deref(), stream),
                },
            }
        }
    }

    /// Issues an all-to-all of known sizes as one transfer between each pair of ranks.
    ///
    /// # Safety
    ///
    /// As for [`Collectives::issue`].
    unsafe fn parts(
        &self,
        comm: Comm,
        exchange: &Exchange,
        parts: Option<&PartSizes>,
        stream: *mut c_void,
    ) -> Result<(), Box<Fault>> {
        let Exchange { collective, source, target, .. } = exchange;
        let (kind, size) = (number(collective.dtype), collective.dtype.size());
        let (mut from, mut to) = (*source, *target);
        let transfer = |rank: usize| {
            let (sent, received) =
                parts.map_or((collective.count, collective.count), |parts| (parts.sent[rank], parts.received[rank]));
            let peer = rank as c_int;
            let (out, into) = (from as *const c_void, to as *mut c_void);
            (from, to) = (from + sent * size, to + received * size);
            // SAFETY: the caller vouches for handles and memory.
            unsafe {
                self.check("ncclSend", (self.table.send)(out, sent as usize, kind, peer, comm, stream))?;
                self.check("ncclRecv", (self.table.recv)(into, received as usize, kind, peer, comm, stream))
            }
        };
        self.grouped(|| (0..collective.ranks as usize).try_for_each(transfer))
    }

    /// Issues an all-to-all of counted rows as one transfer between each pair of ranks. Empty transfers are left out.
    ///
    /// # Safety
    ///
    /// As for [`Collectives::issue`].
    unsafe fn issue_transfers(&self, comm: Comm, exchange: &Exchange, stream: *mut c_void) -> Result<(), Box<Fault>> {
        let Exchange { collective, source, target, transfers, .. } = exchange;
        let (kind, size) = (number(collective.dtype), collective.dtype.size());
        let transfer = |(peer, &[from, sent, to, received]): (c_int, &[u64; 4])| {
            let (from, to) = ((source + from * size) as *const c_void, (target + to * size) as *mut c_void);
            // SAFETY: the caller vouches for handles and memory; rows beyond the end of a tensor have been dropped.
            unsafe {
                if sent > 0 {
                    self.check("ncclSend", (self.table.send)(from, sent as usize, kind, peer, comm, stream))?;
                }
                match received {
                    0 => Ok(()),
                    _ => self.check("ncclRecv", (self.table.recv)(to, received as usize, kind, peer, comm, stream)),
                }
            }
        };
        self.grouped(|| (0..).zip(transfers).try_for_each(transfer))
    }

    /// Returns the asynchronous error of a communicator; `None` if it has none or if its work is still in progress.
    ///
    /// # Safety
    ///
    /// The communicator must be alive.
    pub unsafe fn failure(&self, comm: Comm) -> Option<Box<Fault>> {
        let mut state = 0;
        // SAFETY: the caller vouches for the communicator; the output pointer is valid for the call.
        unsafe { (self.table.comm_error)(comm, &mut state) };
        /// Status of a communicator with pending work.
        const IN_PROGRESS: c_int = 7;
        (state != 0 && state != IN_PROGRESS).then(|| self.fault("ncclCommGetAsyncError", state))
    }

    /// Aborts a communicator and the work on it.
    ///
    /// # Safety
    ///
    /// The communicator must be alive, and must not be used afterwards.
    pub unsafe fn abort(&self, comm: Comm) {
        // SAFETY: the caller vouches for it. A failure is ignored: the communicator is abandoned.
        unsafe { (self.table.comm_abort)(comm) };
    }

    /// # Safety
    ///
    /// The communicator must be alive, with no work under way.
    pub unsafe fn destroy(&self, comm: Comm) {
        // SAFETY: the caller vouches for it. A failure is ignored: the process no longer uses the communicator.
        unsafe { (self.table.comm_destroy)(comm) };
    }
}
