//! What a vendor's runtime has to be able to do.

#![expect(clippy::missing_safety_doc, reason = "one contract for all unsafe methods stands at the trait")]

use std::ffi::{CString, c_int, c_void};

use crate::backend::collective::Collectives;
use crate::base::Nanos;
use crate::exec::{DeviceInfo, ExecError, Fault, Health};
use crate::model::Priority;
use crate::ops::{Copy as CopyLaunch, Gemm, Source};
use crate::schedule::Topology;

use super::parts::Part;
use super::runtime::{Event, Function, Graph, Module, Runtime, Stream, number};

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

/// A vendor's runtime on one device, with everything resolved. Methods with a body are the same for all vendors, by the
/// functions of `Runtime`; a vendor adds the others.
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

    /// A matrix product with its algorithm.
    type Product;

    /// The functions that vendors have alike.
    fn runtime(&self) -> &Runtime;

    /// The fault of a call that returned a number other than 0.
    fn check(&self, call: &'static str, code: c_int) -> Call;

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

    unsafe fn load(&self, code: &[u8]) -> Call<Module> {
        let runtime = self.runtime();
        let mut module: Module = std::ptr::null_mut();
        // SAFETY: the place is valid, and the code is whole, and carries its own length.
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
        // SAFETY: the place and the name are valid for the call; the caller vouches for the module.
        let status = unsafe { (runtime.module_function)(&mut function, module, name.as_ptr()) };
        self.check(call, status).map(|()| function)
    }

    /// The dynamic shared memory that a block of a function can have beside the function's own, in bytes.
    unsafe fn free_shared(&self, function: Function) -> Call<u32> {
        let runtime = self.runtime();
        let mut own = 0;
        // SAFETY: the place is valid for the call; the caller vouches for the function.
        let code = unsafe { (runtime.function_attribute)(&mut own, number::FUNCTION_SHARED, function) };
        self.check(runtime.names.function_attribute, code)?;
        Ok(self.shared_limit().saturating_sub(own.max(0) as u32))
    }

    /// Lets a function have as much dynamic shared memory as there is, and returns how much that is.
    unsafe fn take_all_shared(&self, function: Function) -> Call<u32> {
        // SAFETY: the same contract.
        unsafe { self.free_shared(function) }
    }

    /// `args` points to as many pointers to values as the function has parameters.
    #[inline]
    unsafe fn launch(
        &self,
        function: Function,
        grid: u32,
        block: u32,
        shared: u32,
        stream: Stream,
        args: *mut *mut c_void,
    ) -> Call {
        let runtime = self.runtime();
        let extra = std::ptr::null_mut();
        // SAFETY: the caller vouches for handles and arguments.
        let code = unsafe { (runtime.launch_kernel)(function, grid, 1, 1, block, 1, 1, shared, stream, args, extra) };
        self.check(runtime.names.launch_kernel, code)
    }

    // --- Streams and events ---------------------------------------------------------------------------------------

    fn stream(&self, priority: Priority) -> Call<Stream> {
        self.make_stream(self.level(priority)?)
    }

    /// The runtime's number of a priority, within the range that it has.
    fn level(&self, priority: Priority) -> Call<c_int> {
        let runtime = self.runtime();
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: both places are valid for the call.
        let code = unsafe { (runtime.priority_range)(&mut least, &mut greatest) };
        self.check(runtime.names.priority_range, code)?;
        // Lower numbers are more urgent: `greatest` is the most urgent.
        let level = match priority {
            Priority::High => greatest,
            Priority::Normal => 0,
            Priority::Low => least,
            Priority::Level(level) => level,
        };
        Ok(level.clamp(greatest.min(least), least.max(greatest)))
    }

    /// A stream with that number of the runtime for its priority.
    fn make_stream(&self, level: c_int) -> Call<Stream> {
        let runtime = self.runtime();
        let mut stream: Stream = std::ptr::null_mut();
        // SAFETY: the place is valid for the call.
        let code = unsafe { (runtime.stream_create)(&mut stream, number::STREAM_NON_BLOCKING, level) };
        self.check(runtime.names.stream_create, code).map(|()| stream)
    }

    /// A stream that keeps to a part of the device's compute units; nothing where there are no such streams.
    fn stream_within(&self, _priority: Priority, _part: Part) -> Call<Option<Stream>> {
        Ok(None)
    }
    /// The number of units that a part is a multiple of, so that each chip of the device has as many of it.
    fn unit_step(&self) -> u32 {
        1
    }
    unsafe fn destroy_stream(&self, stream: Stream) {
        // SAFETY: the caller vouches for the stream.
        unsafe { (self.runtime().stream_destroy)(stream) };
    }

    /// Whether everything on the stream is done.
    unsafe fn idle(&self, stream: Stream) -> Call<bool> {
        let runtime = self.runtime();
        // SAFETY: the caller vouches for the stream.
        match unsafe { (runtime.stream_query)(stream) } {
            number::NOT_READY => Ok(false),
            code => self.check(runtime.names.stream_query, code).map(|()| true),
        }
    }

    fn event(&self, timed: bool) -> Call<Event> {
        let runtime = self.runtime();
        let mut event: Event = std::ptr::null_mut();
        let flags = if timed { number::EVENT_DEFAULT } else { number::EVENT_DISABLE_TIMING };
        // SAFETY: the place is valid for the call.
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

    /// Records a timed event from inside a capture, so that each launch of the graph sets it; where `EVENTS_IN_GRAPHS`.
    unsafe fn record_in_graph(&self, event: Event, stream: Stream) -> Call;

    #[inline]
    unsafe fn wait(&self, stream: Stream, event: Event) -> Call {
        let runtime = self.runtime();
        // SAFETY: the caller vouches for both.
        self.check(runtime.names.stream_wait_event, unsafe { (runtime.stream_wait_event)(stream, event, 0) })
    }

    unsafe fn reached(&self, event: Event) -> Call<bool> {
        let runtime = self.runtime();
        // SAFETY: the caller vouches for the event.
        match unsafe { (runtime.event_query)(event) } {
            number::NOT_READY => Ok(false),
            code => self.check(runtime.names.event_query, code).map(|()| true),
        }
    }

    unsafe fn elapsed(&self, from: Event, to: Event) -> Call<Nanos>;

    fn synchronize(&self) -> Call {
        let runtime = self.runtime();
        // SAFETY: the function takes nothing.
        self.check(runtime.names.synchronize, unsafe { (runtime.synchronize)() })
    }

    // --- Memory ---------------------------------------------------------------------------------------------------

    /// Bytes of device memory that can be had.
    fn free_memory(&self) -> Call<u64> {
        let runtime = self.runtime();
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: both places are valid for the call.
        let code = unsafe { (runtime.memory_info)(&mut free, &mut total) };
        self.check(runtime.names.memory_info, code).map(|()| free as u64)
    }

    fn allocate(&self, bytes: u64) -> Call<u64>;
    unsafe fn free(&self, address: u64);
    /// Host memory that kernels and copy engines reach at the same address.
    fn allocate_pinned(&self, bytes: u64) -> Call<u64>;
    unsafe fn free_pinned(&self, address: u64);
    unsafe fn memset(&self, address: u64, value: u8, bytes: u64, stream: Stream) -> Call;
    unsafe fn copy(&self, copy: &CopyLaunch, source: u64, target: u64, stream: Stream) -> Call;
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
    unsafe fn copy_staged(&self, copy: &CopyLaunch, source: u64, target: (u64, &Self), stream: Stream) -> Call;
    /// Lets a stream take these steps when all before them is complete; where `STEPS_ON_STREAMS`.
    unsafe fn meet(&self, steps: &[Step], stream: Stream) -> Call;
    /// The kind of link to another device, where the vendor says: `xGMI, 1 hop`.
    fn link(&self, _other: &Self) -> Option<String> {
        None
    }

    // --- Graphs ---------------------------------------------------------------------------------------------------

    unsafe fn begin_capture(&self, stream: Stream) -> Call {
        let runtime = self.runtime();
        // Relaxed: the collectives connect ranks at their first call, also in a capture, and then allocate and open other
        // devices' memory, from this thread and from their own.
        // SAFETY: the caller vouches for the stream.
        let code = unsafe { (runtime.begin_capture)(stream, number::CAPTURE_RELAXED) };
        self.check(runtime.names.begin_capture, code)
    }

    /// Called before a capture ends: adds notes about a graph of the streams that are open.
    fn note_graph(&self) {}

    /// Ends a capture, instantiates what it saw and uploads it.
    unsafe fn end_capture(&self, stream: Stream) -> Call<Graph> {
        let runtime = self.runtime();
        let names = runtime.names;
        let mut captured = std::ptr::null_mut();
        let mut graph: Graph = std::ptr::null_mut();
        self.note_graph();
        // SAFETY: all places are valid for the calls; the caller vouches for the stream.
        unsafe {
            self.check(names.end_capture, (runtime.end_capture)(stream, &mut captured))?;
            let made = self.check(names.graph_instantiate, (runtime.graph_instantiate)(&mut graph, captured, 0));
            (runtime.graph_destroy)(captured);
            made?;
            // Without it, the first launch uploads.
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

    // --- Libraries ------------------------------------------------------------------------------------------------

    /// The algorithms that the library proposes for a product, the best guess first.
    fn products(&self, gemm: &Gemm, workspace: u64, wanted: u32) -> Result<Vec<Self::Product>, ExecError>;

    unsafe fn multiply(
        &self,
        product: &Self::Product,
        operands: [u64; 3],
        workspace: (u64, u64),
        stream: Stream,
    ) -> Call;

    /// The vendor's collectives, loaded when they are first asked for.
    fn collectives(&self) -> Result<Collectives, ExecError>;
}
