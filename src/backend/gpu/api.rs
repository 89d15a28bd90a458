//! What a vendor's runtime has to be able to do.

#![expect(clippy::missing_safety_doc, reason = "one contract for all unsafe methods stands at the trait")]

use std::ffi::c_void;

use crate::backend::collective::Collectives;
use crate::base::Nanos;
use crate::exec::{DeviceInfo, ExecError, Fault, Health};
use crate::model::Priority;
use crate::ops::{Copy as CopyLaunch, Gemm, Source};
use crate::schedule::Topology;

use super::parts::Part;

/// By which a process opens memory of another.
pub type Handle = [u8; 64];

pub type Call<T = ()> = Result<T, Box<Fault>>;

/// A step by which streams of several devices meet: 32 bits of memory are a flag, raised when they are 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Raises the flag at an address, of this device, of one that it reaches, or of the host.
    Raise(u64),
    /// Waits for the flag at an address of this device or of the host, and lowers it.
    Await(u64),
}

/// A vendor's runtime on one device, with everything resolved.
///
/// # Safety
/// For each `unsafe` method: handles come from the same value and have not been destroyed, addresses are memory that it
/// gave with room for what is done there, and the thread is the one that called [`Api::make_current`].
pub trait Api: Send + Sync + 'static {
    /// `cuda`.
    const NAME: &'static str;

    /// A timed event that is recorded from inside a graph has a time; where not, a kernel takes its place.
    const EVENTS_IN_GRAPHS: bool;

    /// A stream raises and awaits flags by itself, also inside of graphs; where not, a kernel does.
    const STEPS_ON_STREAMS: bool;

    /// The runtime may let a kernel copy to and from the host's pinned memory; where not, an engine always does.
    const HOST_COPIES_BY_KERNEL: bool;

    type Stream: Copy;
    type Event: Copy;
    type Module: Copy;
    type Function: Copy;
    /// A graph that can be launched.
    type Graph: Copy;
    /// A matrix product with its algorithm.
    type Product;

    fn device(&self) -> DeviceInfo;

    fn topology(&self) -> Topology;

    /// How the device is doing now, where the vendor has means to say so.
    fn health(&self) -> Option<Health>;

    /// Things worth knowing that showed since the device was opened.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Engines that copy beside kernels, as the driver counts them.
    fn copy_engines(&self) -> u32;

    /// Bytes of the last cache before the device's memory.
    fn cache_bytes(&self) -> u64;

    /// The device's clock that never changes its pace.
    fn ticks(&self, time: Nanos) -> u64;

    /// The most dynamic shared memory that a block may have, in bytes.
    fn shared_limit(&self) -> u32;

    /// Makes the device that of the calling thread.
    fn make_current(&self) -> Call;

    // --- Kernels --------------------------------------------------------------------------------------------------

    /// What code is compiled for, and by which compiler: part of the cache's key.
    fn compiler(&self) -> Result<String, ExecError>;

    /// Compiles a kernel to machine code; the error is the compiler's log. May be called from several threads.
    fn compile(&self, source: &Source) -> Result<Vec<u8>, String>;

    unsafe fn load(&self, code: &[u8]) -> Call<Self::Module>;
    unsafe fn unload(&self, module: Self::Module);
    unsafe fn function(&self, module: Self::Module, name: &str) -> Call<Self::Function>;
    /// Lets a function have as much dynamic shared memory as there is, and returns how much that is.
    unsafe fn take_all_shared(&self, function: Self::Function) -> Call<u32>;
    /// `args` points to as many pointers to values as the function has parameters.
    unsafe fn launch(
        &self,
        function: Self::Function,
        grid: u32,
        block: u32,
        shared: u32,
        stream: Self::Stream,
        args: *mut *mut c_void,
    ) -> Call;

    // --- Streams and events ---------------------------------------------------------------------------------------

    fn stream(&self, priority: Priority) -> Call<Self::Stream>;
    /// A stream that keeps to a part of the device's compute units; nothing where there are no such streams.
    fn stream_within(&self, _priority: Priority, _part: Part) -> Call<Option<Self::Stream>> {
        Ok(None)
    }
    /// The number of units that a part is a multiple of, so that each chip of the device has as many of it.
    fn unit_step(&self) -> u32 {
        1
    }
    unsafe fn destroy_stream(&self, stream: Self::Stream);
    /// Whether everything on the stream is done.
    unsafe fn idle(&self, stream: Self::Stream) -> Call<bool>;
    fn event(&self, timed: bool) -> Call<Self::Event>;
    unsafe fn destroy_event(&self, event: Self::Event);
    unsafe fn record(&self, event: Self::Event, stream: Self::Stream) -> Call;
    /// Records a timed event from inside a capture, so that each launch of the graph sets it; where `EVENTS_IN_GRAPHS`.
    unsafe fn record_in_graph(&self, event: Self::Event, stream: Self::Stream) -> Call;
    unsafe fn wait(&self, stream: Self::Stream, event: Self::Event) -> Call;
    unsafe fn reached(&self, event: Self::Event) -> Call<bool>;
    unsafe fn elapsed(&self, from: Self::Event, to: Self::Event) -> Call<Nanos>;
    fn synchronize(&self) -> Call;

    // --- Memory ---------------------------------------------------------------------------------------------------

    /// Bytes of device memory that can be had.
    fn free_memory(&self) -> Call<u64>;
    fn allocate(&self, bytes: u64) -> Call<u64>;
    unsafe fn free(&self, address: u64);
    /// Host memory that kernels and copy engines reach at the same address.
    fn allocate_pinned(&self, bytes: u64) -> Call<u64>;
    unsafe fn free_pinned(&self, address: u64);
    unsafe fn memset(&self, address: u64, value: u8, bytes: u64, stream: Self::Stream) -> Call;
    unsafe fn copy(&self, copy: &CopyLaunch, source: u64, target: u64, stream: Self::Stream) -> Call;
    /// Reads device memory, when everything is done.
    unsafe fn read(&self, address: u64, out: &mut [u8]) -> Call;

    // --- Other processes ------------------------------------------------------------------------------------------

    /// What another process opens memory by that `allocate` gave, from its beginning.
    unsafe fn export(&self, address: u64) -> Call<Handle>;
    /// Opens memory of another process, whose device this one reaches from now on.
    fn import(&self, handle: &Handle) -> Call<u64>;
    unsafe fn close(&self, address: u64);
    /// Lets devices use memory of the host, and returns where this one finds it.
    unsafe fn register(&self, address: u64, bytes: u64) -> Call<u64>;
    /// The memory at that address of the host is its own again.
    unsafe fn unregister(&self, address: u64);

    // --- Other devices --------------------------------------------------------------------------------------------

    /// Whether this device can read and write the memory of another.
    fn reaches(&self, other: &Self) -> Call<bool>;
    /// From now on it may.
    fn reach(&self, other: &Self) -> Call;
    /// A copy to memory of another device, which may go by way of the host.
    unsafe fn copy_staged(&self, copy: &CopyLaunch, source: u64, target: (u64, &Self), stream: Self::Stream) -> Call;
    /// Lets a stream take these steps when all before them is complete; where `STEPS_ON_STREAMS`.
    unsafe fn meet(&self, steps: &[Step], stream: Self::Stream) -> Call;
    /// The kind of link to another device, where the vendor says: `xGMI, 1 hop`.
    fn link(&self, _other: &Self) -> Option<String> {
        None
    }

    // --- Graphs ---------------------------------------------------------------------------------------------------

    unsafe fn begin_capture(&self, stream: Self::Stream) -> Call;
    /// Ends a capture, instantiates what it saw and uploads it.
    unsafe fn end_capture(&self, stream: Self::Stream) -> Call<Self::Graph>;
    unsafe fn destroy_graph(&self, graph: Self::Graph);
    unsafe fn launch_graph(&self, graph: Self::Graph, stream: Self::Stream) -> Call;

    // --- Libraries ------------------------------------------------------------------------------------------------

    /// The algorithms that the library proposes for a product, the best guess first.
    fn products(&self, gemm: &Gemm, workspace: u64, wanted: u32) -> Result<Vec<Self::Product>, ExecError>;

    unsafe fn multiply(
        &self,
        product: &Self::Product,
        operands: [u64; 3],
        workspace: (u64, u64),
        stream: Self::Stream,
    ) -> Call;

    /// The vendor's collectives, loaded when they are first asked for.
    fn collectives(&self) -> Result<Collectives, ExecError>;

    /// The stream as the collectives take it.
    fn raw_stream(stream: Self::Stream) -> *mut c_void;
}
