//! The traits `Api` and `PeerAccess`: everything that the GPU backend needs from a vendor's runtime.

#![expect(clippy::missing_safety_doc, reason = "`Api` states one contract for all unsafe methods")]

pub(in crate::backend) mod blas;
pub(super) mod library_work;
pub(in crate::backend) mod rtc;
pub(in crate::backend) mod runtime;
pub(in crate::backend) mod tracer;
pub(super) mod unit_ranges;

use std::ffi::{CString, c_int, c_uint, c_void};
use std::sync::Arc;

use crate::backend::collective::Collectives;
use crate::base::Nanos;
use crate::exec::counters::Counters;
use crate::exec::{DeviceInfo, ExecError, Fault, Health, KernelLaunch};
use crate::model::Priority;
use crate::ops::{CopyLaunch, Gemm, KernelSource, TensorMap};
use crate::schedule::Topology;

use library_work::{EngineNumber, LibraryWork};
use runtime::{Address, Event, Function, Graph, IpcHandle, Module, Residency, Runtime, Stream, number};
use tracer::Tracer;
use unit_ranges::UnitRange;

/// Addresses of the operands of a matrix product, in device memory.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    pub a: u64,
    pub b: u64,
    pub c: u64,
    /// Address of the bias; 0 if there is none.
    pub bias: u64,
    /// Addresses of the scaling factors of `a` and of `b`; 0 if there are none.
    pub scales: [u64; 2],
}

/// Handle by which a process opens memory of another process: `CUipcMemHandle` or `hipIpcMemHandle_t`.
pub type MemoryHandle = [u8; 64];

/// Result of a call of the vendor's runtime.
pub type Call<T = ()> = Result<T, Box<Fault>>;

/// Returns an optional function of the driver; an error if an old driver lacks it. `needs` is a clause about its use.
pub fn required<F>(function: Option<F>, symbol: &'static str, needs: &str) -> Call<F> {
    function.ok_or_else(|| Fault::new(symbol, format!("the installed version lacks the function, and {needs}")))
}

/// Clause about the use of functions for memory of other processes.
const SHARED_MEMORY: &str = "ranks in several processes need it";

/// A synchronization step of a stream with another device or with a CPU thread. A flag is a 32-bit word; 0 means
/// lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncStep {
    /// Raises a flag: writes `value`, which is not 0, to an address on this device, on another accessible one, or on
    /// the host.
    Raise { flag: u64, value: u32 },
    /// Waits until the flag at an address on this device or on the host is 1, and then lowers it.
    Await(u64),
}

/// Access from one device to memory of other devices, in this process or in others, and synchronization with them.
///
/// # Safety
///
/// The `unsafe` methods have the contract of [`Api`].
pub trait PeerAccess {
    /// True if this device can access the memory of another device directly.
    fn reaches(&self, other: &Self) -> Call<bool>;
    /// Enables this device to access the memory of another one.
    fn reach(&self, other: &Self) -> Call;
    /// Copies from this device to memory of another one, through host memory if neither can access the other.
    unsafe fn copy_staged(&self, copy: &CopyLaunch, source: u64, target: (u64, &Self), stream: Stream) -> Call;
    /// Appends steps to a stream, after its earlier work. Called only if `STEPS_ON_STREAMS`.
    unsafe fn execute_steps(&self, steps: &[SyncStep], stream: Stream) -> Call;
    /// The kind of link to another device, such as `xGMI, 1 hop`; `None` if the vendor does not report it.
    fn link(&self, _other: &Self) -> Option<String> {
        None
    }
}

/// A vendor's runtime on one device, with every function resolved. Methods with a body call the functions of `Runtime`,
/// which are the same for all vendors; a vendor implements the others.
///
/// # Safety
///
/// The `unsafe` methods require that handles come from the same value and have not been destroyed, that addresses are
/// memory allocated by it and large enough for the access, and that the calling thread has called
/// [`Api::make_current`].
pub trait Api: PeerAccess + Send + Sync + 'static {
    /// The vendor's name on the command line and in records, such as `cuda`.
    const NAME: &'static str;

    /// True if a timed event recorded inside a graph yields a time. Otherwise a kernel writes the timestamps.
    const EVENTS_IN_GRAPHS: bool;

    /// True if a stream can raise and await flags by itself, also inside graphs. Otherwise a kernel does it.
    const STEPS_ON_STREAMS: bool;

    /// True if the runtime may copy to and from pinned host memory by a kernel. Otherwise a copy engine always does it.
    const HOST_COPIES_BY_KERNEL: bool;

    /// Flags of pinned host memory that all devices access, also while a kernel runs.
    const PINNED: c_uint;

    /// A matrix product bound to an algorithm.
    type Product;

    /// A convolution or attention bound to an engine of the vendor's library.
    type Engine: Send;

    /// The functions that all vendors have.
    fn runtime(&self) -> &Runtime;

    /// Returns a fault if a call's status is not 0.
    fn check(&self, call: &'static str, code: c_int) -> Call;

    fn device(&self) -> DeviceInfo;

    fn topology(&self) -> Topology;

    /// Clocks, power and throttling of the device; `None` if the vendor's tools report nothing.
    fn health(&self) -> Option<Health>;

    /// Notes for the run's report that arose since the device was opened.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// True if the vendor's library that records when kernels and copies run can be attached to this run.
    fn has_tracer(&self) -> bool {
        false
    }

    /// Attaches the vendor's library of hardware counters to this device. The error is the reason in words why that is
    /// not possible.
    fn counters(&self) -> Result<Box<dyn Counters>, String> {
        Err(format!("aorta reads counters of NVIDIA's GPUs, by CUPTI, and the backend is {}", Self::NAME))
    }

    /// Computes the theoretical occupancy of a kernel, from 0 to 1; `None` if a limit of the device is not known.
    fn occupancy(&self, _kernel: &KernelLaunch) -> Option<f64> {
        None
    }

    /// Returns the vendor's library that records kernels and copies, loaded at the first call. The error is the reason
    /// in words why it cannot be used.
    fn tracer(&self) -> Result<Arc<dyn Tracer>, String> {
        Err(format!("the backend {} has no library for it", Self::NAME))
    }

    /// Number of copy engines that can work concurrently with kernels, as the driver reports it.
    fn copy_engines(&self) -> u32;

    /// Size of the last-level cache in bytes.
    fn cache_bytes(&self) -> u64;

    /// Converts a time to ticks of the device's constant-rate clock, which kernels read.
    fn ticks(&self, time: Nanos) -> u64;

    /// Maximum dynamic shared memory of a block, in bytes.
    fn shared_limit(&self) -> u32;

    /// Makes the device current on the calling thread.
    fn make_current(&self) -> Call;

    // --- Kernels --------------------------------------------------------------------------------------------------

    /// Name of the compiler and the architecture that it compiles for: a part of the key of cached kernels.
    fn compiler(&self) -> Result<String, ExecError>;

    /// Compiles a kernel to machine code. The error is the compiler's log. Several threads may call this at once.
    fn compile(&self, source: &KernelSource) -> Result<Vec<u8>, String>;

    unsafe fn load(&self, code: &[u8]) -> Call<Module> {
        let runtime = self.runtime();
        let mut module: Module = std::ptr::null_mut();
        // SAFETY: the output pointer is valid; the code is complete and contains its own length.
        let status = unsafe { (runtime.module_load)(&mut module, code.as_ptr().cast()) };
        self.check(runtime.names.module_load, status).map(|()| module)
    }

    unsafe fn unload(&self, module: Module) {
        // SAFETY: the caller vouches for the module.
        unsafe { (self.runtime().module_unload)(module) };
    }

    unsafe fn function(&self, module: Module, name: &str) -> Call<Function> {
        let runtime = self.runtime();
        let call = runtime.names.module_function;
        let mut function: Function = std::ptr::null_mut();
        let name = CString::new(name).map_err(|_| Fault::new(call, "a NUL in the name"))?;
        // SAFETY: the output pointer and the name are valid for the call; the caller vouches for the module.
        let status = unsafe { (runtime.module_function)(&mut function, module, name.as_ptr()) };
        self.check(call, status).map(|()| function)
    }

    /// Returns an attribute of a function, such as the maximum number of threads of a block (`number::FUNCTION_MAX_THREADS`).
    unsafe fn attribute(&self, function: Function, attribute: c_uint) -> Call<u32> {
        let runtime = self.runtime();
        let mut value = 0;
        // SAFETY: the output pointer is valid for the call; the caller vouches for the function.
        let code = unsafe { (runtime.function_attribute)(&mut value, attribute, function) };
        self.check(runtime.names.function_attribute, code)?;
        Ok(value.max(0) as u32)
    }

    /// Returns the registers and memory of a loaded kernel, and the number of its blocks that a compute unit holds at
    /// once. Blocks have `threads` threads and `shared` bytes of dynamic shared memory.
    unsafe fn residency(&self, function: Function, threads: u32, shared: u32) -> Call<Residency> {
        let runtime = self.runtime();
        // SAFETY: the caller vouches for the function.
        let attribute = |number| unsafe { self.attribute(function, number) };
        let (registers, local) = (attribute(number::FUNCTION_REGISTERS)?, attribute(number::FUNCTION_LOCAL)?);
        let shared_of_own = attribute(number::FUNCTION_SHARED)?;
        let mut blocks = 0;
        // SAFETY: the same.
        let code = unsafe { (runtime.resident_blocks)(&mut blocks, function, threads as c_int, shared as usize) };
        self.check(runtime.names.resident_blocks, code)?;
        Ok(Residency { registers, local, shared: shared_of_own + shared, blocks: blocks.max(0) as u32 })
    }

    /// Bytes of dynamic shared memory that a block of a function can have besides its static shared memory.
    unsafe fn free_shared(&self, function: Function) -> Call<u32> {
        // SAFETY: the caller vouches for the function.
        let own = unsafe { self.attribute(function, number::FUNCTION_SHARED) }?;
        Ok(self.shared_limit().saturating_sub(own))
    }

    /// Raises a function's limit of dynamic shared memory to the device's maximum, and returns this limit in bytes.
    unsafe fn take_all_shared(&self, function: Function) -> Call<u32> {
        // SAFETY: the same contract.
        unsafe { self.free_shared(function) }
    }

    /// Encodes a tensor map for the tensor at `address`; returns zeros if the device's kernels do not use tensor maps.
    fn tensor_map(&self, _map: &TensorMap, _address: u64) -> Call<[u64; 16]> {
        Ok([0; 16])
    }

    /// Launches a kernel. `args` points to one pointer per parameter of the function.
    #[inline]
    unsafe fn launch(
        &self,
        function: Function,
        grid: [u32; 3],
        block: [u32; 3],
        shared: u32,
        stream: Stream,
        args: *mut *mut c_void,
    ) -> Call {
        let runtime = self.runtime();
        let extra = std::ptr::null_mut();
        // SAFETY: the caller vouches for handles and arguments.
        let ([x, y, z], [i, j, k]) = (grid, block);
        let code = unsafe { (runtime.launch_kernel)(function, x, y, z, i, j, k, shared, stream, args, extra) };
        self.check(runtime.names.launch_kernel, code)
    }

    // --- Streams and events ---------------------------------------------------------------------------------------

    fn stream(&self, priority: Priority) -> Call<Stream> {
        self.make_stream(self.level(priority)?)
    }

    /// Converts a priority to the runtime's number, within the range that the device supports.
    fn level(&self, priority: Priority) -> Call<c_int> {
        let runtime = self.runtime();
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: both output pointers are valid for the call.
        let code = unsafe { (runtime.priority_range)(&mut least, &mut greatest) };
        self.check(runtime.names.priority_range, code)?;
        // Lower numbers are more urgent; `greatest` is the most urgent.
        let level = match priority {
            Priority::High => greatest,
            Priority::Normal => 0,
            Priority::Low => least,
            Priority::Level(level) => level,
        };
        Ok(level.clamp(greatest.min(least), least.max(greatest)))
    }

    /// Creates a stream with a priority given by the runtime's number.
    fn make_stream(&self, level: c_int) -> Call<Stream> {
        let runtime = self.runtime();
        let mut stream: Stream = std::ptr::null_mut();
        // SAFETY: the output pointer is valid for the call.
        let code = unsafe { (runtime.stream_create)(&mut stream, number::STREAM_NON_BLOCKING, level) };
        self.check(runtime.names.stream_create, code).map(|()| stream)
    }

    /// Creates a stream restricted to some compute units (SMs); `None` if the vendor has no such streams.
    fn stream_within(&self, _priority: Priority, _part: UnitRange) -> Call<Option<Stream>> {
        Ok(None)
    }
    /// Granularity of the unit ranges of streams: a multiple of it takes equally many units from each chip of the
    /// device.
    fn unit_step(&self) -> u32 {
        1
    }
    unsafe fn destroy_stream(&self, stream: Stream) {
        // SAFETY: the caller vouches for the stream.
        unsafe { (self.runtime().stream_destroy)(stream) };
    }

    /// True if all work on the stream has completed.
    unsafe fn idle(&self, stream: Stream) -> Call<bool> {
        let runtime = self.runtime();
        // SAFETY: the caller vouches for the stream.
        match unsafe { (runtime.stream_query)(stream) } {
            number::NOT_READY => Ok(false),
            code => self.check(runtime.names.stream_query, code).map(|()| true),
        }
    }

    /// Creates an event; `timed` if it is to have a timestamp.
    fn event(&self, timed: bool) -> Call<Event> {
        let runtime = self.runtime();
        let mut event: Event = std::ptr::null_mut();
        let flags = if timed { number::EVENT_DEFAULT } else { number::EVENT_DISABLE_TIMING };
        // SAFETY: the output pointer is valid for the call.
        let code = unsafe { (runtime.event_create)(&mut event, flags) };
        self.check(runtime.names.event_create, code).map(|()| event)
    }

    unsafe fn destroy_event(&self, event: Event) {
        // SAFETY: the caller vouches for the event.
        unsafe { (self.runtime().event_destroy)(event) };
    }

    #[inline]
    unsafe fn record(&self, event: Event, stream: Stream) -> Call {
        let runtime = self.runtime();
        // SAFETY: the caller vouches for both.
        self.check(runtime.names.event_record, unsafe { (runtime.event_record)(event, stream) })
    }

    /// Records a timed event inside a capture, so that each launch of the graph sets it. Called only if
    /// `EVENTS_IN_GRAPHS`.
    unsafe fn record_in_graph(&self, event: Event, stream: Stream) -> Call;

    #[inline]
    unsafe fn wait(&self, stream: Stream, event: Event) -> Call {
        let runtime = self.runtime();
        // SAFETY: the caller vouches for both.
        self.check(runtime.names.stream_wait_event, unsafe { (runtime.stream_wait_event)(stream, event, 0) })
    }

    /// True if the work before the event's last record has completed.
    unsafe fn reached(&self, event: Event) -> Call<bool> {
        let runtime = self.runtime();
        // SAFETY: the caller vouches for the event.
        match unsafe { (runtime.event_query)(event) } {
            number::NOT_READY => Ok(false),
            code => self.check(runtime.names.event_query, code).map(|()| true),
        }
    }

    /// Time between two timed events that have completed.
    unsafe fn elapsed(&self, from: Event, to: Event) -> Call<Nanos>;

    fn synchronize(&self) -> Call {
        let runtime = self.runtime();
        // SAFETY: the function takes nothing.
        self.check(runtime.names.synchronize, unsafe { (runtime.synchronize)() })
    }

    // --- Memory ---------------------------------------------------------------------------------------------------

    /// Free device memory in bytes.
    fn free_memory(&self) -> Call<u64> {
        let runtime = self.runtime();
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: both output pointers are valid for the call.
        let code = unsafe { (runtime.memory_info)(&mut free, &mut total) };
        self.check(runtime.names.memory_info, code).map(|()| free as u64)
    }

    /// Allocates device memory and returns its address. [`Api::free`] frees it.
    fn allocate(&self, bytes: u64) -> Call<u64> {
        let runtime = self.runtime();
        let mut address = std::ptr::null_mut();
        // SAFETY: the output pointer is valid for the call.
        let code = unsafe { (runtime.malloc)(&mut address, bytes as usize) };
        self.check(runtime.names.malloc, code).map(|()| address as u64)
    }

    unsafe fn free(&self, address: u64) {
        // SAFETY: the caller vouches for the address.
        unsafe { (self.runtime().free)(address as Address) };
    }

    /// Allocates pinned host memory that kernels and copy engines access at the same address.
    fn allocate_pinned(&self, bytes: u64) -> Call<u64> {
        let runtime = self.runtime();
        let mut address = std::ptr::null_mut();
        // SAFETY: the output pointer is valid for the call.
        let code = unsafe { (runtime.host_malloc)(&mut address, bytes as usize, Self::PINNED) };
        self.check(runtime.names.host_malloc, code).map(|()| address as u64)
    }

    unsafe fn free_pinned(&self, address: u64) {
        // SAFETY: the caller vouches for the address.
        unsafe { (self.runtime().host_free)(address as *mut c_void) };
    }

    /// True if the device and the host can access managed memory at the same time.
    fn shares_managed(&self) -> bool;

    /// Allocates managed memory, which the host accesses at the same address. [`Api::free`] frees it.
    fn allocate_managed(&self, bytes: u64) -> Call<u64> {
        let runtime = self.runtime();
        let mut address = std::ptr::null_mut();
        // SAFETY: the output pointer is valid for the call.
        let code = unsafe { (runtime.malloc_managed)(&mut address, bytes as usize, number::MEM_ATTACH_GLOBAL) };
        self.check(runtime.names.malloc_managed, code).map(|()| address as u64)
    }

    /// Creates the handle under which another process opens memory. `address` must be the start of an allocation.
    unsafe fn export(&self, address: u64) -> Call<MemoryHandle> {
        let runtime = self.runtime();
        let export = required(runtime.ipc_get_mem_handle, runtime.names.ipc_get_mem_handle, SHARED_MEMORY)?;
        let mut handle = IpcHandle([0; 64]);
        // SAFETY: the output pointer is valid for the call, and the caller vouches for the address.
        let code = unsafe { export(&mut handle, address as Address) };
        self.check(runtime.names.ipc_get_mem_handle, code).map(|()| handle.0)
    }

    /// Opens memory of another process and makes its device accessible from this one. Returns the address here.
    fn import(&self, handle: &MemoryHandle) -> Call<u64> {
        let runtime = self.runtime();
        let import = required(runtime.ipc_open_mem_handle, runtime.names.ipc_open_mem_handle, SHARED_MEMORY)?;
        let mut address = std::ptr::null_mut();
        // SAFETY: the output pointer is valid for the call; an invalid handle makes the call fail.
        let code = unsafe { import(&mut address, IpcHandle(*handle), number::IPC_LAZY_PEER_ACCESS) };
        self.check(runtime.names.ipc_open_mem_handle, code).map(|()| address as u64)
    }

    /// Closes memory of another process.
    unsafe fn close(&self, address: u64) {
        if let Some(close) = self.runtime().ipc_close_mem_handle {
            // SAFETY: the caller vouches for the address.
            unsafe { close(address as Address) };
        }
    }

    /// Makes host memory accessible to devices and returns its address on this device.
    unsafe fn register(&self, address: u64, bytes: u64) -> Call<u64> {
        let (runtime, names) = (self.runtime(), self.runtime().names);
        let register = required(runtime.host_register, names.host_register, SHARED_MEMORY)?;
        let find = required(runtime.host_device_pointer, names.host_device_pointer, SHARED_MEMORY)?;
        let flags = number::HOST_REGISTER_PORTABLE | number::HOST_REGISTER_MAPPED;
        // SAFETY: the caller vouches for the memory.
        self.check(names.host_register, unsafe { register(address as *mut c_void, bytes as usize, flags) })?;
        let mut there = std::ptr::null_mut();
        // SAFETY: the output pointer is valid for the call, and the memory is registered.
        let code = unsafe { find(&mut there, address as *mut c_void, 0) };
        self.check(names.host_device_pointer, code).map(|()| there as u64)
    }

    /// Undoes `register`.
    unsafe fn unregister(&self, address: u64) {
        if let Some(unregister) = self.runtime().host_unregister {
            // SAFETY: the caller vouches for the address.
            unsafe { unregister(address as *mut c_void) };
        }
    }

    unsafe fn memset(&self, address: u64, value: u8, bytes: u64, stream: Stream) -> Call;
    unsafe fn copy(&self, copy: &CopyLaunch, source: u64, target: u64, stream: Stream) -> Call;
    /// Reads device memory. All work that writes it must have completed.
    unsafe fn read(&self, address: u64, out: &mut [u8]) -> Call;

    // --- Graphs ---------------------------------------------------------------------------------------------------

    unsafe fn begin_capture(&self, stream: Stream) -> Call {
        let runtime = self.runtime();
        // Relaxed: at their first call, also in a capture, the collectives connect ranks. They then allocate and open
        // other devices' memory from this thread and from their own. SAFETY: the caller vouches for the stream.
        let code = unsafe { (runtime.begin_capture)(stream, number::CAPTURE_RELAXED) };
        self.check(runtime.names.begin_capture, code)
    }

    /// Adds notes about the effect of a graph on the open streams. Called before a capture ends.
    fn note_graph(&self) {}

    /// Ends a capture, instantiates the captured graph and uploads it.
    unsafe fn end_capture(&self, stream: Stream) -> Call<Graph> {
        let runtime = self.runtime();
        let names = runtime.names;
        let mut captured = std::ptr::null_mut();
        let mut graph: Graph = std::ptr::null_mut();
        self.note_graph();
        // SAFETY: all output pointers are valid for the calls; the caller vouches for the stream.
        unsafe {
            self.check(names.end_capture, (runtime.end_capture)(stream, &mut captured))?;
            let made = self.check(names.graph_instantiate, (runtime.graph_instantiate)(&mut graph, captured, 0));
            (runtime.graph_destroy)(captured);
            made?;
            // An older driver without this function uploads at the first launch.
            let uploaded = match runtime.graph_upload {
                Some(upload) => self.check(names.graph_upload, upload(graph, stream)),
                None => Ok(()),
            };
            let ready = uploaded.and_then(|()| self.synchronize());
            if ready.is_err() {
                (runtime.graph_exec_destroy)(graph);
            }
            ready.map(|()| graph)
        }
    }

    unsafe fn destroy_graph(&self, graph: Graph) {
        // SAFETY: the caller vouches for the graph.
        unsafe { (self.runtime().graph_exec_destroy)(graph) };
    }

    unsafe fn launch_graph(&self, graph: Graph, stream: Stream) -> Call {
        let runtime = self.runtime();
        // SAFETY: the caller vouches for both.
        self.check(runtime.names.graph_launch, unsafe { (runtime.graph_launch)(graph, stream) })
    }

    /// True if blocks of a cluster can access each other's shared memory: on NVIDIA's devices of compute capability 9.0 and later.
    fn has_clusters(&self) -> bool {
        false
    }

    // --- Libraries ------------------------------------------------------------------------------------------------

    /// Up to `wanted` algorithms that the library proposes for a product, the most promising first. `workspace` is the
    /// memory that they may use, in bytes.
    fn products(&self, gemm: &Gemm, workspace: u64, wanted: u32) -> Result<Vec<Self::Product>, ExecError>;

    /// True if two products, whose sizes may differ, are computed by the same algorithm.
    fn same_algorithm(one: &Self::Product, other: &Self::Product) -> bool;

    /// Launches a product. `workspace` is an address and a size in bytes.
    unsafe fn multiply(
        &self,
        product: &Self::Product,
        operands: Addresses,
        workspace: (u64, u64),
        stream: Stream,
    ) -> Call;

    /// Name and version of the library of convolutions and attention, loaded at the first call; `None` if there is none.
    fn engine_library(&self) -> Option<&str>;

    /// Engines that the library proposes, the most promising first: up to `wanted` of a convolution, or for each form of
    /// attention's graph. `workspace` is the memory that they may use, in bytes. With `engine`, returns this engine alone.
    /// Fails with the library's reason if it has none.
    fn engines(
        &self,
        work: &LibraryWork,
        workspace: u64,
        wanted: u32,
        engine: Option<EngineNumber>,
    ) -> Call<Vec<Self::Engine>>;

    /// The number of an engine; 0 for a convolution.
    fn engine_number(engine: &Self::Engine) -> EngineNumber;

    /// Launches an engine. `operands` are the addresses of its operands: `x`, `w`, `y` and bias of a convolution, with 0 for
    /// no bias; those of [`crate::ops::FusedAttention::operands`]. `workspace` is an address and a size in bytes.
    unsafe fn run_engine(&self, engine: &Self::Engine, operands: &[u64], workspace: (u64, u64), stream: Stream)
    -> Call;

    /// The vendor's collectives library, loaded at the first call.
    fn collectives(&self) -> Result<Collectives, ExecError>;
}
