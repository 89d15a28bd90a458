//! A prepared image on a device: all resources are made once, then only resolved calls are issued.

mod prepare;

use std::ffi::CString;
use std::path::PathBuf;
use std::sync::Arc;

use crate::backend::collective::{Collectives, Comm};
use crate::backend::ranges::Ranges;
use crate::backend::system::{self};
use crate::base::{DType, Nanos, Space};
use crate::exec::activity::ActivityLog;
use crate::exec::counters::Counters;
use crate::exec::{CommMonitor, Driver, Fault, Health, Image};
use crate::ops::Direction;

use super::api::runtime::{Event, Graph, Stream};
use super::api::tracer::Recorder;
use super::api::{Api, Call};
use super::host::lanes::HostLanes;
use super::host::pageable::{CapturedUses, Pageable};
use super::prepare::copy_units;
use super::prepare::kernels::Kernels;
use super::prepare::lower::{Args, Calls, Prepared};
use super::prepare::timer;
use super::ranks::comms::Comms;
use super::ranks::flags::Flags;
use super::ranks::inter_process::InterProcessMemory;
use super::time::gate::Gates;
use super::time::stamps::Stamps;

/// An image that is prepared on a device.
pub struct GpuDriver<A: Api> {
    api: Arc<A>,
    image: Image,
    streams: Vec<Stream>,
    events: Vec<Event>,
    stamps: Vec<Event>,
    kernels: Kernels,
    calls: Calls<A>,
    products: Vec<A::Product>,
    /// For each operation of [`Calls::library`], the library's engine; `None` if kernels compute it.
    engines: Vec<Option<A::Engine>>,
    /// Kernels that initialize buffers.
    fills: Vec<Prepared>,
    fill_args: Args,
    /// Base address of the memory of each space; 0 for a space that the image does not use.
    bases: [u64; Space::COUNT],
    workspaces: Vec<(u64, u64)>,
    /// Communicators, by their number in the image.
    comms: Vec<Comm>,
    /// The communicators, shared with the watchdog.
    shared: Arc<Comms>,
    /// Address of the device memory that barriers reduce; its values are not used.
    scratch: u64,
    /// Flags by which copies between ranks synchronize.
    flags: Flags,
    /// Threads of host streams.
    host: HostLanes,
    /// Memory of other processes that this one has opened to copy to it.
    inter_process: InterProcessMemory,
    collectives: Option<Collectives>,
    graphs: Vec<Graph>,
    gates: Option<Gates>,
    /// Kernels that write timestamps inside graphs; `None` if events have timestamps there.
    cells: Option<Stamps>,
    /// Address and size in bytes of the memory that is overwritten to flush the caches.
    flush_memory: (u64, u64),
    capturing: bool,
    /// The folder of compiled kernels and chosen algorithms; `None` if nothing is kept.
    cache: Option<PathBuf>,
    /// The row counts that the host has read last, as bytes of the tensor that holds them.
    counts: Vec<u8>,
    captured_uses: CapturedUses,
    /// True while each operation is timed.
    observing: bool,
    /// The recording of the vendor's library; `None` while it does not record.
    recorder: Option<Recorder>,
    /// True if the device no longer answers, so that nothing may wait for it.
    abandoned: bool,
    pageable: Pageable,
    notes: Vec<String>,
    /// Named ranges for a profiler, with the name of each operation; `None` if no profiler is attached.
    ranges: Option<(Arc<Ranges>, Vec<CString>)>,
}

// SAFETY: a vendor's handles may be used from any thread on which their device is current, and `Driver::enter` makes it
// so. The addresses are of memory that lives as long as the driver.
unsafe impl<A: Api> Send for GpuDriver<A> {}

impl<A: Api> GpuDriver<A> {
    /// Issues one call. This is the innermost part of the measured loop.
    fn issue(&mut self, index: u32) -> Call {
        let Self { api, calls, products, engines, collectives, shared, host, capturing, counts, .. } = self;
        // SAFETY: handles and addresses were made for this image and live as long as the driver.
        unsafe {
            match calls.calls[index as usize] {
                Prepared::Kernel { function, grid, block, shared, stream, args } => {
                    api.launch(function, grid, block, shared, stream, calls.args.pointers(args))
                }
                Prepared::Multiply { product, operands, workspace, stream } => {
                    api.multiply(&products[product as usize], operands, workspace, stream)
                }
                Prepared::Engine { operation, operands, workspace, stream } => match &engines[operation as usize] {
                    Some(engine) => {
                        api.run_engine(engine, &calls.engine_operands[operands as usize], workspace, stream)
                    }
                    None => Ok(()),
                },
                Prepared::Epilogue { .. } | Prepared::Alternative { .. } | Prepared::Nothing => Ok(()),
                Prepared::Copy { copy, source, target, stream } => {
                    let copy = &calls.copies[copy as usize];
                    // The call itself reads pageable memory, which a host stream may not have written yet.
                    if copy.pageable && copy.direction == Direction::HostToDevice && host.is_used() && !*capturing {
                        while !api.idle(stream)? {
                            std::thread::yield_now();
                        }
                    }
                    api.copy(copy, source, target, stream)
                }
                Prepared::Steps { steps: (first, last), stream } => {
                    api.execute_steps(&calls.steps[first as usize..last as usize], stream)
                }
                Prepared::Stage { copy, source, target, peer, stream } => {
                    let other = calls.peers[peer as usize].as_ref();
                    api.copy_staged(&calls.copies[copy as usize], source, (target, other), stream)
                }
                Prepared::Memset { address, value, bytes, stream } => api.memset(address, value, bytes, stream),
                Prepared::Exchange { comm, exchanges: (first, last), stream } => {
                    if !shared.usable() {
                        return Err(Fault::new("issue", "the communicators have been ended"));
                    }
                    let collectives = collectives.as_ref().expect("loaded where an image has collectives");
                    let exchanges = &mut calls.exchanges[first as usize..last as usize];
                    for exchange in exchanges.iter_mut() {
                        let Some((address, bytes)) = exchange.counts() else { continue };
                        if *capturing {
                            return Err(Fault::counts_in_graph());
                        }
                        while !api.idle(stream)? {
                            std::thread::yield_now();
                        }
                        counts.resize(bytes, 0);
                        api.read(address, counts)?;
                        exchange.count(counts);
                    }
                    collectives.issue(comm, exchanges, stream)
                }
            }
        }
    }

    fn fill_host(&mut self) {
        for fill in self.image.fills.iter().filter(|fill| fill.space == Space::Host) {
            let size = fill.dtype.size() as usize;
            let bytes = self.pageable.bytes_mut(fill.offset as usize, fill.elements as usize * size);
            for (index, element) in bytes.chunks_exact_mut(size).enumerate() {
                fill.dtype.store(fill.init.value(fill.dtype, index as u64), element);
            }
        }
    }
}

impl<A: Api> Driver for GpuDriver<A> {
    fn launch(&mut self, op: u32) -> Call {
        if self.capturing {
            self.captured_uses.add(&self.image, op)?;
        }
        let ops = match (self.observing, &self.recorder) {
            (true, Some(_)) => &self.calls.traced,
            (true, None) => &self.calls.observed,
            (false, _) => &self.calls.ops,
        };
        let (first, end) = ops[op as usize];
        if let Some((ranges, names)) = &self.ranges {
            ranges.enter(&names[op as usize]);
        }
        self.recorder.iter().for_each(|recorder| recorder.begin_operation(op));
        let issued = (first..end).try_for_each(|call| self.issue(call));
        self.recorder.iter().for_each(Recorder::end_calls);
        if let Some((ranges, _)) = &self.ranges {
            ranges.leave();
        }
        issued
    }

    fn record(&mut self, event: u32, lane: u32) -> Call {
        // SAFETY: both live as long as the driver.
        unsafe { self.api.record(self.events[event as usize], self.streams[lane as usize]) }
    }

    fn wait(&mut self, lane: u32, event: u32) -> Call {
        // SAFETY: both live as long as the driver.
        unsafe { self.api.wait(self.streams[lane as usize], self.events[event as usize]) }
    }

    fn stamp(&mut self, stamp: u32, lane: u32) -> Call {
        let Self { api, cells, capturing, stamps, streams, .. } = self;
        let (event, stream) = (stamps[stamp as usize], streams[lane as usize]);
        // SAFETY: both live as long as the driver.
        unsafe {
            match (capturing, cells) {
                (false, None) => api.record(event, stream),
                (false, Some(cells)) => {
                    cells.by_event(stamp);
                    api.record(event, stream)
                }
                (true, None) => api.record_in_graph(event, stream),
                (true, Some(cells)) => cells.capture(api.as_ref(), stamp, stream),
            }
        }
    }

    fn wait_stamp(&mut self, lane: u32, stamp: u32) -> Call {
        // SAFETY: both live as long as the driver.
        unsafe { self.api.wait(self.streams[lane as usize], self.stamps[stamp as usize]) }
    }

    fn enter(&mut self) -> Call {
        self.api.make_current()
    }

    fn launch_graph(&mut self, graph: u32, lane: u32) -> Call {
        let Self { api, cells, graphs, streams, .. } = self;
        let stream = streams[lane as usize];
        if let Some(cells) = cells {
            cells.launch(api.as_ref(), graph, stream)?;
        }
        self.recorder.iter().for_each(Recorder::begin_graph);
        // SAFETY: both live as long as the driver.
        let launched = unsafe { api.launch_graph(graphs[graph as usize], stream) };
        self.recorder.iter().for_each(Recorder::end_calls);
        launched
    }

    fn reached(&mut self, stamp: u32) -> Call<bool> {
        if let Some(fault) = self.host.failure() {
            return Err(fault);
        }
        // SAFETY: the event lives as long as the driver.
        unsafe { self.api.reached(self.stamps[stamp as usize]) }
    }

    fn elapsed(&mut self, from: u32, to: u32) -> Call<Nanos> {
        if let Some(time) = self.cells.as_ref().and_then(|cells| cells.elapsed(from, to)) {
            return Ok(time);
        }
        // SAFETY: both live as long as the driver.
        unsafe { self.api.elapsed(self.stamps[from as usize], self.stamps[to as usize]) }
    }

    fn gates(&self) -> bool {
        true
    }

    fn hold(&mut self, gate: u32, lane: u32) -> Call {
        let Self { api, gates, streams, .. } = self;
        let Some(gates) = gates else { return Err(Fault::new("hold", "the image has no gates")) };
        self.recorder.iter().for_each(Recorder::begin_gate);
        let held = gates.hold(api.as_ref(), gate, streams[lane as usize]);
        self.recorder.iter().for_each(Recorder::end_calls);
        held
    }

    fn release(&mut self, gate: u32) {
        self.gates.iter().for_each(|gates| gates.release(gate));
    }

    fn forced(&mut self, gate: u32) -> bool {
        self.gates.as_ref().is_some_and(|gates| gates.forced(gate))
    }

    fn flushes(&self) -> bool {
        self.flush_memory.1 > 0
    }

    fn flush(&mut self, lane: u32) -> Call {
        let (address, bytes) = self.flush_memory;
        // SAFETY: the memory is reserved for this purpose and lives as long as the driver.
        unsafe { self.api.memset(address, 0, bytes, self.streams[lane as usize]) }
    }

    fn now(&self) -> Nanos {
        system::now()
    }

    fn host_clock(&self) -> u32 {
        system::clock()
    }

    fn uncertainty(&self, elapsed: Nanos) -> Nanos {
        timer::uncertainty(elapsed)
    }

    fn begin_capture(&mut self, lane: u32) -> Call {
        // SAFETY: the stream lives as long as the driver.
        unsafe { self.api.begin_capture(self.streams[lane as usize])? };
        self.capturing = true;
        Ok(())
    }

    fn end_capture(&mut self, lane: u32) -> Call<u32> {
        self.capturing = false;
        // SAFETY: the stream lives as long as the driver.
        let made = unsafe { self.api.end_capture(self.streams[lane as usize]) };
        let number = self.graphs.len() as u32;
        if let Some(cells) = &mut self.cells {
            cells.captured(made.is_ok().then_some(number));
        }
        self.graphs.push(made?);
        Ok(number)
    }

    fn observing(&mut self, on: bool) {
        self.observing = on;
    }

    fn has_recorder(&self) -> bool {
        self.api.has_tracer()
    }

    fn begin_records(&mut self, as_graph: bool) -> Result<String, String> {
        if self.host.is_used() {
            return Err("threads of the CPU do the work of a host stream, which no device records".to_owned());
        }
        let tracer = self.api.tracer()?;
        if as_graph && !tracer.names_nodes() {
            return Err(format!("{} does not say which node of a graph a record belongs to", tracer.name()));
        }
        let recorder = Recorder::begin(tracer, self.calls.least_records(&self.image))?;
        let name = recorder.name();
        self.recorder = Some(recorder);
        Ok(name)
    }

    fn record_iteration(&mut self, iteration: Option<u32>) {
        self.recorder.iter_mut().for_each(|recorder| recorder.set_iteration(iteration));
    }

    fn end_records(&mut self) -> Result<ActivityLog, String> {
        let recorder = self.recorder.take().ok_or_else(|| "nothing was recorded".to_owned())?;
        self.api.make_current().map_err(|fault| fault.to_string())?;
        let mut recorded = recorder.end()?;
        for kernel in recorded.activities.iter_mut().filter_map(|activity| activity.kernel.as_mut()) {
            kernel.occupancy = self.api.occupancy(kernel);
        }
        Ok(recorded)
    }

    fn counters(&mut self) -> Result<Box<dyn Counters>, String> {
        if self.host.is_used() {
            return Err("threads of the CPU do the work of a host stream, which a GPU cannot count".to_owned());
        }
        self.api.counters()
    }

    fn synchronize(&mut self) -> Call {
        self.api.synchronize()
    }

    fn idle(&mut self, lane: u32) -> Call<bool> {
        // SAFETY: the stream lives as long as the driver.
        unsafe { self.api.idle(self.streams[lane as usize]) }
    }

    fn reset(&mut self) -> Call {
        self.api.synchronize()?;
        let stream = self.streams[0];
        let [device_bytes, pinned_bytes, managed_bytes, _] = self.image.bytes;
        // SAFETY: the range is all memory of each space, which nothing uses while the device is idle.
        unsafe {
            if device_bytes > 0 {
                self.api.memset(self.bases[0], DType::POISON, device_bytes, stream)?;
            }
            if managed_bytes > 0 {
                self.api.memset(self.bases[Space::Managed.index()], DType::POISON, managed_bytes, stream)?;
            }
            if pinned_bytes > 0 {
                std::ptr::write_bytes(self.bases[1] as *mut u8, DType::POISON, pinned_bytes as usize);
            }
        }
        self.pageable.words.fill(u64::from_ne_bytes([DType::POISON; 8]));
        let Self { api, fills, fill_args, .. } = self;
        for call in fills.iter() {
            if let Prepared::Kernel { function, grid, block, shared, stream, args } = *call {
                // SAFETY: the kernel fills a buffer of this image.
                unsafe { api.launch(function, grid, block, shared, stream, fill_args.pointers(args))? };
            }
        }
        self.fill_host();
        self.api.synchronize()
    }

    fn read(&mut self, space: Space, offset: u64, out: &mut [u8]) -> Call<bool> {
        self.api.make_current()?;
        self.api.synchronize()?;
        match space {
            // SAFETY: the range lies in the space's memory as laid out by the schedule.
            Space::Device => unsafe { self.api.read(self.bases[0] + offset, out)? },
            Space::Pinned | Space::Managed => {
                let from = (self.bases[space.index()] + offset) as *const u8;
                // SAFETY: the host reaches this memory, and nothing writes it while the device is idle.
                out.copy_from_slice(unsafe { std::slice::from_raw_parts(from, out.len()) });
            }
            Space::Host => out.copy_from_slice(self.pageable.bytes_mut(offset as usize, out.len())),
        }
        Ok(true)
    }

    fn comm_monitor(&self) -> Option<Arc<dyn CommMonitor>> {
        Some(self.shared.clone())
    }

    fn abandon(&mut self) {
        self.abandoned = true;
        self.gates.iter().for_each(Gates::release_all);
        self.host.stop();
        self.shared.abort();
    }

    fn health(&mut self) -> Option<Health> {
        self.api.health()
    }

    fn compile_time(&self) -> Option<Nanos> {
        Some(self.kernels.took)
    }

    fn infer_copy_units(&mut self) -> Call<Vec<String>> {
        if self.abandoned || !self.kernels.has(&copy_units::source()) {
            return Ok(Vec::new());
        }
        self.api.make_current()?;
        // A process cannot synchronize with the other ranks here, so it writes only its own memory.
        copy_units::infer(self.api.as_ref(), &self.kernels, &self.calls, self.inter_process.is_empty())
    }

    fn notes(&self) -> Vec<String> {
        self.notes.iter().cloned().chain(self.api.notes()).collect()
    }
}

impl<A: Api> Drop for GpuDriver<A> {
    fn drop(&mut self) {
        if self.abandoned {
            // The device may still run work that never ends. Calls that synchronize or free memory would then block.
            // Therefore everything is leaked, including the context and the host memory that unfinished copies and
            // kernels use.
            std::mem::forget(self.api.clone());
            std::mem::forget(std::mem::take(&mut self.inter_process));
            self.flags.hide();
            // Ending a recording waits for the device.
            std::mem::forget(self.recorder.take());
            std::mem::forget(std::mem::take(&mut self.flags));
            std::mem::forget(std::mem::take(&mut self.pageable.words));
            return;
        }
        // Synchronizing a failed device is an error, but its resources are freed all the same.
        let _ = self.api.make_current();
        self.gates.iter().for_each(Gates::release_all);
        let _ = self.api.synchronize();
        self.host.end();
        // SAFETY: the driver made all of these, destroys each once, and no work that uses them is under way.
        unsafe {
            for graph in self.graphs.drain(..) {
                self.api.destroy_graph(graph);
            }
            self.shared.destroy();
            self.products.clear();
            self.engines.clear();
            for event in self.events.drain(..).chain(self.stamps.drain(..)) {
                self.api.destroy_event(event);
            }
            for stream in self.streams.drain(..) {
                self.api.destroy_stream(stream);
            }
            for (address, _) in self.workspaces.drain(..).filter(|(address, _)| *address != 0) {
                self.api.free(address);
            }
            self.inter_process.free(self.api.as_ref(), (self.image.rank, &self.flags));
            self.flags.free(self.api.as_ref());
            self.host.free(self.api.as_ref());
            if self.scratch != 0 {
                self.api.free(self.scratch);
            }
            if self.flush_memory.0 != 0 {
                self.api.free(self.flush_memory.0);
            }
            if let Some(gates) = self.gates.take() {
                gates.free(self.api.as_ref());
            }
            if let Some(cells) = self.cells.take() {
                cells.free(self.api.as_ref());
            }
            for (space, base) in Space::ALL.into_iter().zip(self.bases).filter(|(_, base)| *base != 0) {
                match space {
                    Space::Device | Space::Managed => self.api.free(base),
                    Space::Pinned => self.api.free_pinned(base),
                    Space::Host => {}
                }
            }
        }
        self.kernels.unload(self.api.as_ref());
    }
}
