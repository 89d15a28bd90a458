//! Lowers an image's launches to resolved calls: handles, addresses and packed arguments.

use std::ffi::c_void;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::backend::collective::{Comm, Exchange};
use crate::backend::crossings::SyncSharing;
use crate::backend::gpu::api::library_work::LibraryOperation;
use crate::backend::gpu::api::runtime::{Function, Stream};
use crate::backend::gpu::api::{Addresses, Api, SyncStep};
use crate::backend::gpu::host::lanes::HostLanes;
use crate::backend::gpu::ranks::peers::{self, CopyPart, PeerDevices};
use crate::base::Space;
use crate::exec::{Address, ExecError, Image, ImageOp, NO_COMM};
use crate::ops::{Arg, CopyLaunch, DEFAULT_SHARED, Gemm, Kernel, Launch, MapBase, Peer, Sent, Shared, user_kernel};

use super::kernels::Kernels;
use super::timer;

/// A driver or library call, resolved during preparation, with every argument.
#[derive(Clone, Copy)]
pub enum Prepared {
    Kernel {
        function: Function,
        grid: [u32; 3],
        block: [u32; 3],
        shared: u32,
        stream: Stream,
        args: u32,
    },
    Multiply {
        product: u32,
        operands: Addresses,
        workspace: (u64, u64),
        stream: Stream,
    },
    /// A kernel for a product's epilogue, by its index in [`Calls::alternatives`]; removed if the library computes the
    /// epilogue.
    Epilogue {
        product: u32,
        kernel: u32,
    },
    /// A convolution or attention by the vendor's library; does nothing if another way computes it.
    Engine {
        /// Index in [`Calls::library`].
        operation: u32,
        /// Index of the operands' addresses in [`Calls::engine_operands`].
        operands: u32,
        workspace: (u64, u64),
        stream: Stream,
    },
    /// A kernel or a matrix product of one way to compute an operation, by its index in [`Calls::alternatives`]; does nothing if
    /// another way computes the operation.
    Alternative {
        operation: u32,
        /// Number of the way among those without the library.
        way: u32,
        call: u32,
    },
    Nothing,
    Copy {
        copy: u32,
        source: u64,
        target: u64,
        stream: Stream,
    },
    Memset {
        address: u64,
        value: u8,
        bytes: u64,
        stream: Stream,
    },
    /// Raises flags of other ranks or of host threads, and awaits those of this rank.
    Steps {
        /// Range in [`Calls::steps`].
        steps: (u32, u32),
        stream: Stream,
    },
    /// A copy to the memory of another device through host memory.
    Stage {
        copy: u32,
        source: u64,
        target: u64,
        /// Index of the other device in [`Calls::peers`].
        peer: u32,
        stream: Stream,
    },
    /// Several sends and receives as one group (`ncclGroupStart` to `ncclGroupEnd`).
    Exchange {
        comm: Comm,
        exchanges: (u32, u32),
        stream: Stream,
    },
}

/// The calls of an image, and the data that they refer to.
pub struct Calls<A: Api> {
    /// For each operation, first and end index of its calls in `calls`.
    pub ops: Vec<(u32, u32)>,
    /// For each operation, first and end index of its calls in observed iterations, in which copies to other ranks do
    /// not share a synchronization.
    pub observed: Vec<(u32, u32)>,
    /// For each operation, first and end index of its calls in observed iterations that the vendor's library records.
    /// Copies to other ranks begin and end with an empty kernel there, since records do not show how long a stream
    /// waits for a flag.
    pub traced: Vec<(u32, u32)>,
    pub calls: Vec<Prepared>,
    pub copies: Vec<CopyLaunch>,
    pub products: Vec<ImageProduct>,
    /// Operations that can be computed in several ways.
    pub engine_operations: Vec<LibraryOperation>,
    /// Addresses of the operands of each [`Prepared::Engine`].
    pub engine_operands: Vec<Arc<[u64]>>,
    /// Kernels and products that run only if they are chosen: epilogues of products, and the ways to compute an operation.
    pub alternatives: Vec<Prepared>,
    pub exchanges: Vec<Exchange>,
    /// Devices of the ranks to which data is copied through host memory.
    pub peers: Vec<Arc<A>>,
    pub steps: Vec<SyncStep>,
    /// Indices of the calls that write the memory of other ranks, in ascending order.
    pub remote_writes: Vec<u32>,
    pub args: Args,
    /// Notes for the report: registers, shared memory and resident blocks of each kernel that the file declares.
    pub notes: Vec<String>,
}

impl<A: Api> Calls<A> {
    /// Returns an empty list of calls with capacity for `ops` operations.
    pub fn with_capacity(ops: usize) -> Self {
        Calls {
            ops: Vec::with_capacity(ops),
            observed: Vec::with_capacity(ops),
            traced: Vec::with_capacity(ops),
            calls: Vec::with_capacity(ops),
            copies: Vec::new(),
            products: Vec::new(),
            engine_operations: Vec::new(),
            engine_operands: Vec::new(),
            alternatives: Vec::new(),
            exchanges: Vec::new(),
            peers: Vec::new(),
            steps: Vec::new(),
            remote_writes: Vec::new(),
            args: Args::default(),
            notes: Vec::new(),
        }
    }

    /// For each operation, the minimum number of kernels, copies and fills that it launches. Libraries may launch more.
    /// A collective of one rank launches nothing if its result is in place already.
    pub fn least_records(&self, image: &Image) -> Vec<u32> {
        let of_call = |call: &Prepared| match call {
            Prepared::Kernel { .. } | Prepared::Copy { .. } | Prepared::Memset { .. } | Prepared::Multiply { .. } => 1,
            _ => 0,
        };
        let least = |(op, &(first, end)): (&ImageOp, &(u32, u32))| {
            let known: u32 = self.calls[first as usize..end as usize].iter().map(of_call).sum();
            let alone = op.comm != NO_COMM && image.comms[op.comm as usize].ranks.len() == 1;
            if alone { known } else { known.max(1) }
        };
        image.ops.iter().zip(&self.traced).map(least).collect()
    }

    /// Ends an operation, whose calls are those from index `first` on, for all iterations alike.
    fn end_operation(&mut self, first: u32) {
        let range = (first, self.calls.len() as u32);
        self.ops.push(range);
        self.observed.push(range);
        self.traced.push(range);
    }

    /// Adds calls of one way to compute an operation, and returns their first and end index in `alternatives`.
    pub fn add_alternatives(&mut self, operation: u32, way: u32, prepared: Vec<Prepared>) -> (u32, u32) {
        let first = self.alternatives.len() as u32;
        self.alternatives.extend(prepared);
        let end = self.alternatives.len() as u32;
        self.calls.extend((first..end).map(|call| Prepared::Alternative { operation, way, call }));
        (first, end)
    }

    /// Adds a note unless it is there already.
    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Adds the rows and direction of a copy, and returns its index. The offsets become part of the call's addresses.
    fn copy(&mut self, copy: &CopyLaunch) -> u32 {
        let copy = CopyLaunch { source_offset: 0, target_offset: 0, ..copy.clone() };
        let index = self.copies.iter().position(|known| *known == copy).unwrap_or_else(|| {
            self.copies.push(copy);
            self.copies.len() - 1
        });
        index as u32
    }
}

/// The arguments of all kernels: their values, and a pointer to each value.
#[derive(Default)]
pub struct Args {
    values: Vec<u64>,
    /// For each argument, the index of its value in `values`.
    starts: Vec<u32>,
    /// For each argument, the address of its value. Empty until [`Args::seal`].
    pointers: Vec<*mut c_void>,
}

impl Args {
    /// Packs the arguments of a kernel, and returns the index of its first pointer. `maps` are its encoded tensor maps,
    /// in order.
    fn push(
        &mut self,
        args: &[Arg],
        (operands, workspace): (&[u64], u64),
        ticks: impl Fn(crate::base::Nanos) -> u64,
        maps: &[[u64; 16]],
    ) -> u32 {
        let mut maps = maps.iter();
        let first = self.starts.len() as u32;
        for arg in args {
            self.starts.push(self.values.len() as u32);
            match arg {
                Arg::Operand(index) => self.values.push(operands[usize::from(*index)]),
                // Devices and their hosts are little-endian, so the low bytes come first.
                Arg::U32(value) => self.values.push(u64::from(*value)),
                Arg::U64(value) => self.values.push(*value),
                Arg::F32(value) => self.values.push(u64::from(value.to_bits())),
                Arg::F64(value) => self.values.push(value.to_bits()),
                Arg::Ticks(time) => self.values.push(ticks(*time)),
                Arg::Words(words) => self.values.extend(words),
                Arg::Workspace(_) => self.values.push(workspace),
                Arg::WorkspaceAt { offset, .. } => self.values.push(workspace + offset),
                Arg::TensorMap(_) => self.values.extend(maps.next().into_iter().flatten()),
            }
        }
        first
    }

    /// Computes the pointers. Nothing may be added afterwards, since values would move.
    pub fn seal(&mut self) {
        let base = self.values.as_mut_ptr();
        self.pointers = self.starts.iter().map(|&start| base.wrapping_add(start as usize).cast()).collect();
    }

    /// The argument pointers of the kernel whose first index is `first`.
    pub fn pointers(&self, first: u32) -> *mut *mut c_void {
        // The cast is sound because drivers only read the pointers.
        self.pointers.as_ptr().wrapping_add(first as usize).cast_mut()
    }
}

/// Index in [`Calls::products`] by product and by reserved bytes of the workspace.
pub type Products = FxHashMap<(Gemm, u64), u32>;

/// A matrix product of an image, with all uses that differ in the operands' addresses only.
#[derive(Debug)]
pub struct ImageProduct {
    pub gemm: Gemm,
    /// Size in bytes of the operation's own data at the start of the lane's workspace.
    pub reserved: u64,
    /// The first use of the product on each lane.
    pub uses: Vec<ProductUse>,
    /// False if all uses have another way to compute their operation, so that the library may lack an algorithm.
    pub is_required: bool,
}

/// A use of a matrix product.
#[derive(Debug)]
pub struct ProductUse {
    pub operands: Addresses,
    pub lane: u32,
    /// Index in [`Calls::alternatives`] of the kernel that computes the epilogue; `None` if the product has none.
    pub epilogue: Option<u32>,
}

/// The device, image and kernels with which launches are resolved.
pub struct Context<'a, A: Api> {
    pub api: &'a A,
    pub image: &'a Image,
    pub kernels: &'a Kernels,
    pub streams: &'a [Stream],
    /// Base address of the memory of each space.
    pub bases: [u64; Space::COUNT],
    /// For each lane, address and size in bytes of its workspace.
    pub workspaces: &'a [(u64, u64)],
    /// The communicators, by their number in the image.
    pub comms: &'a [Comm],
    /// Address of the device memory that barriers reduce.
    pub scratch: u64,
    /// The devices of all ranks that exchange data.
    pub devices: &'a PeerDevices<A>,
    /// The threads of host streams.
    pub host: &'a HostLanes,
}

/// Address of a location, from the base address of each space.
pub fn address(bases: [u64; Space::COUNT], place: Address) -> u64 {
    bases[place.space.index()] + place.offset
}

impl<A: Api> Context<'_, A> {
    /// Converts an address of the image to an address on the device.
    pub fn address(&self, place: Address) -> u64 {
        address(self.bases, place)
    }

    /// Resolves every operation of the image.
    pub fn calls(&self) -> Result<Calls<A>, ExecError> {
        let mut calls = Calls::with_capacity(self.image.ops.len());
        let mut products = Products::default();
        let mut operands = Vec::new();
        for (number, op) in self.image.ops.iter().enumerate() {
            let first = calls.calls.len() as u32;
            let work = &self.image.works[op.work as usize];
            if let Some(steps) = self.host.steps(number) {
                self.add_steps(&steps, self.streams[op.lane as usize], &mut calls);
                calls.end_operation(first);
                continue;
            }
            operands.clear();
            operands.extend(self.image.operands(op).iter().chain(&op.report).map(|place| self.address(*place)));
            if let Some(Launch::Peer(peer)) = work.launches.first() {
                self.peer((peer, SyncSharing::Batched), op, &operands, &mut calls, &mut products)?;
                calls.ops.push((first, calls.calls.len() as u32));
                let marker = A::STEPS_ON_STREAMS.then(|| self.marker(self.streams[op.lane as usize], &mut calls.args));
                let begin = calls.calls.len() as u32;
                calls.calls.extend(marker);
                let first = calls.calls.len() as u32;
                self.peer((peer, SyncSharing::Unshared), op, &operands, &mut calls, &mut products)?;
                calls.observed.push((first, calls.calls.len() as u32));
                calls.calls.extend(marker);
                calls.traced.push((begin, calls.calls.len() as u32));
                continue;
            }
            for launch in work.launches.iter() {
                if let Launch::Kernel(kernel) = launch
                    && !self.launches(kernel)
                {
                    continue;
                }
                if self.add_library_work(launch, op, &operands, &mut calls, &mut products)? {
                    continue;
                }
                let call = self.call(launch, op, &operands, &mut calls, &mut products)?;
                calls.calls.push(call);
                if let (Launch::Gemm(_, Some(kernel)), Prepared::Multiply { product, stream, .. }) = (launch, call) {
                    let (workspace, _) = self.workspaces[op.lane as usize];
                    let kernel = self.kernel(kernel, stream, (&operands, workspace), &mut calls.args)?;
                    let index = calls.alternatives.len() as u32;
                    calls.alternatives.push(kernel);
                    calls.calls.push(Prepared::Epilogue { product, kernel: index });
                    let uses = &mut calls.products[product as usize].uses;
                    uses.iter_mut().filter(|one| one.lane == op.lane).for_each(|one| {
                        one.epilogue.get_or_insert(index);
                    });
                }
            }
            calls.end_operation(first);
        }
        calls.args.seal();
        Ok(calls)
    }

    /// The calls of this rank for a copy between ranks.
    fn peer(
        &self,
        (peer, sharing): (&Peer, SyncSharing),
        op: &ImageOp,
        operands: &[u64],
        calls: &mut Calls<A>,
        products: &mut Products,
    ) -> Result<(), ExecError> {
        let own = self.devices.own(self.image)?;
        let writes_remote = peer.sends.as_ref().is_some_and(|sent| sent.to != peer.rank);
        let stream = self.streams[op.lane as usize];
        for part in peers::parts(self.devices, &own, (op.crossing, peer), sharing)? {
            let call = match part {
                CopyPart::Steps(steps) => {
                    self.add_steps(&steps, stream, calls);
                    continue;
                }
                CopyPart::Send { launch, target } => {
                    let inputs = peer.sends.as_ref().map_or(0, Sent::inputs);
                    let with_target: Vec<u64> = operands[..inputs].iter().copied().chain([target]).collect();
                    self.call(launch, op, &with_target, calls, products)?
                }
                CopyPart::Stage { copy, target, to } => {
                    calls.peers.push(to);
                    let peer = calls.peers.len() as u32 - 1;
                    Prepared::Stage { copy: calls.copy(copy), source: operands[0], target, peer, stream }
                }
            };
            if writes_remote {
                calls.remote_writes.push(calls.calls.len() as u32);
            }
            calls.calls.push(call);
        }
        Ok(())
    }

    /// An empty kernel whose record shows when the stream has reached this point.
    fn marker(&self, stream: Stream, args: &mut Args) -> Prepared {
        let (function, args) = (self.kernels.get(&timer::null()), args.push(&[], (&[], 0), |_| 0, &[]));
        Prepared::Kernel { function, grid: [1; 3], block: [1; 3], shared: 0, stream, args }
    }

    /// Adds the calls that execute steps: one call of the stream itself, or kernels that each raise one flag and await
    /// one.
    fn add_steps(&self, steps: &[SyncStep], stream: Stream, calls: &mut Calls<A>) {
        if A::STEPS_ON_STREAMS {
            let first = calls.steps.len() as u32;
            calls.steps.extend(steps);
            calls.calls.push(Prepared::Steps { steps: (first, calls.steps.len() as u32), stream });
            return;
        }
        let function = self.kernels.get(&peers::source());
        let mut steps = steps.iter().copied().peekable();
        while let Some(step) = steps.next() {
            let (raised, value, awaited) = match (step, steps.peek()) {
                (SyncStep::Raise { flag, value }, Some(&SyncStep::Await(awaited))) => {
                    steps.next();
                    (flag, value, awaited)
                }
                (SyncStep::Raise { flag, value }, _) => (flag, value, 0),
                (SyncStep::Await(awaited), _) => (0, 0, awaited),
            };
            let args = [Arg::U64(raised), Arg::U32(value), Arg::U64(awaited)];
            let args = calls.args.push(&args, (&[], 0), |_| 0, &[]);
            calls.calls.push(Prepared::Kernel { function, grid: [1; 3], block: [1; 3], shared: 0, stream, args });
        }
    }

    fn call(
        &self,
        launch: &Launch,
        op: &ImageOp,
        operands: &[u64],
        calls: &mut Calls<A>,
        products: &mut Products,
    ) -> Result<Prepared, ExecError> {
        let lane = op.lane;
        let stream = self.streams[lane as usize];
        let at = |operand: u8| operands[usize::from(operand)];
        Ok(match launch {
            Launch::Kernel(kernel) => {
                let (workspace, _) = self.workspaces[lane as usize];
                if let Some(declared) = user_kernel(&self.image.works[op.work as usize].spec) {
                    let function = self.kernels.get(&kernel.source);
                    self.check_limits(declared, function)?;
                    calls.note(self.residency(declared, function)?);
                }
                self.kernel(kernel, stream, (operands, workspace), &mut calls.args)?
            }
            Launch::Gemm(gemm, _) => {
                let (product, call) = self.multiply(gemm, op, operands, calls, products);
                calls.products[product as usize].is_required = true;
                call
            }
            Launch::Copy(copy) => {
                let (source, target) = (at(copy.source) + copy.source_offset, at(copy.target) + copy.target_offset);
                Prepared::Copy { copy: calls.copy(copy), source, target, stream }
            }
            Launch::Memset { operand, value, bytes } => {
                Prepared::Memset { address: at(*operand), value: *value, bytes: *bytes, stream }
            }
            Launch::Peer(_) | Launch::Conv(..) | Launch::Attention(..) | Launch::Ways(..) => {
                unreachable!("it is several calls")
            }
            Launch::Host { .. } => unreachable!("it is two steps"),
            Launch::Collective(collectives) => {
                let first = calls.exchanges.len() as u32;
                calls.exchanges.extend(collectives.iter().map(|one| Exchange::new(one, self.scratch, at)));
                let exchanges = (first, calls.exchanges.len() as u32);
                Prepared::Exchange { comm: self.comms[op.comm as usize], exchanges, stream }
            }
        })
    }

    /// True if a kernel must be launched on this device. Kernels for devices without clusters are not launched on
    /// others.
    pub fn launches(&self, kernel: &Kernel) -> bool {
        !(kernel.without_clusters && self.api.has_clusters())
    }

    /// Resolves a kernel's call, with the addresses of its operands and its workspace.
    pub fn kernel(
        &self,
        kernel: &Kernel,
        stream: Stream,
        operands: (&[u64], u64),
        args: &mut Args,
    ) -> Result<Prepared, ExecError> {
        let function = self.kernels.get(&kernel.source);
        if let Some(blocks) = kernel.grid.iter().find(|blocks| **blocks > i32::MAX as u64) {
            return Err(ExecError::Device {
                fault: format!("a kernel of {blocks} blocks is too large for a launch"),
                help: Some("split the operation, or use smaller tensors".to_owned()),
            });
        }
        let grid = kernel.grid.map(|blocks| blocks as u32);
        let shared = match kernel.shared {
            Shared::Bytes(bytes) if u64::from(bytes) <= DEFAULT_SHARED => bytes,
            rule => {
                // SAFETY: the function is a loaded kernel of this device.
                let most = unsafe { self.api.take_all_shared(function) }.map_err(ExecError::device)?;
                match rule {
                    Shared::Bytes(bytes) => bytes,
                    Shared::AtMost(bytes) => bytes.min(most),
                    Shared::All => most,
                }
            }
        };
        let encoded = |arg: &Arg| match arg {
            Arg::TensorMap(map) => {
                let address = match map.base {
                    MapBase::Operand(operand) => operands.0[usize::from(operand)],
                    MapBase::Workspace(offset) => operands.1 + offset,
                };
                Some(self.api.tensor_map(map, address))
            }
            _ => None,
        };
        let maps = kernel.args.iter().filter_map(encoded).collect::<Result<Vec<_>, _>>().map_err(ExecError::device)?;
        let args = args.push(&kernel.args, operands, |time| self.api.ticks(time), &maps);
        Ok(Prepared::Kernel { function, grid, block: kernel.block, shared, stream, args })
    }
}
