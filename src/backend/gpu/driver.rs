//! An image on a device: everything is made once, then only resolved calls are issued.

use std::ffi::CString;
use std::path::Path;
use std::sync::Arc;

use crate::backend::collective::{Collectives, Comm, Ids, Meeting};
use crate::backend::ranges::Ranges;
use crate::backend::system::{self, available_memory};
use crate::base::{Bytes, DType, Nanos, Space};
use crate::exec::{Breaker, Driver, ExecError, Fault, Health, Image};
use crate::ops::Launch;

use super::api::{Api, Call};
use super::comms::{self, Comms};
use super::engines;
use super::gate::{self, Gates};
use super::kernels::{Kernels, wanted};
use super::lower::{Args, Calls, Context, Prepared};
use super::pageable::Pageable;
use super::peers::{self, Flags, Places};
use super::products::Chooser;
use super::stamps::{self, Stamps};
use super::streams;
use super::timer;

/// Memory that a lane's matrix products may use: what NVIDIA recommends for Hopper.
const WORKSPACE: u64 = 32 << 20;

/// Memory for all lanes' products together.
const ALL_WORKSPACES: u64 = 4 << 30;

/// Device memory for what the library needs beside operands.
const SCRATCH: u64 = 256;

/// How much of the last cache is written to empty it: more than the whole, since not every line goes by age.
const SWEEP: u64 = 2;

/// The number of a failed allocation, the same for both vendors.
const OUT_OF_MEMORY: i64 = 2;

pub struct GpuDriver<A: Api> {
    api: Arc<A>,
    image: Image,
    streams: Vec<A::Stream>,
    events: Vec<A::Event>,
    stamps: Vec<A::Event>,
    kernels: Kernels<A>,
    calls: Calls<A>,
    products: Vec<A::Product>,
    /// The kernels that give memory its contents.
    fills: Vec<Prepared<A>>,
    fill_args: Args,
    bases: [u64; 3],
    workspaces: Vec<(u64, u64)>,
    /// By their numbers in the image.
    comms: Vec<Comm>,
    /// The same, for whoever watches.
    shared: Arc<Comms>,
    /// Device memory that barriers use.
    scratch: u64,
    /// By which it meets others where they copy to each other.
    flags: Flags,
    collectives: Option<Collectives>,
    graphs: Vec<A::Graph>,
    gates: Option<Gates<A>>,
    /// What sets stamps inside of graphs, where events cannot.
    cells: Option<Stamps<A>>,
    /// Memory that is written to empty the caches, and its bytes.
    sweep: (u64, u64),
    capturing: bool,
    /// The device does not answer.
    abandoned: bool,
    pageable: Pageable,
    notes: Vec<String>,
    /// What tells a profiler of operations, with the name of each.
    ranges: Option<(Arc<Ranges>, Vec<CString>)>,
}

// SAFETY: a vendor's handles may be used from any thread that has made their device its own, and `Driver::enter` does
// that; the addresses are of memory that lives as long as the driver.
unsafe impl<A: Api> Send for GpuDriver<A> {}

fn device(fault: Box<Fault>) -> ExecError {
    ExecError::Device { fault: fault.to_string(), help: None }
}

impl<A: Api> GpuDriver<A> {
    /// Makes everything that the image needs. All ranks of the meeting come here side by side, or wait for each other.
    pub fn new(
        api: Arc<A>,
        image: Image,
        cache: Option<&Path>,
        (meeting, places): (&Meeting, &Places<A>),
    ) -> Result<Self, ExecError> {
        let made = Self::make(api, image, cache).and_then(|mut driver| {
            let count = places.count();
            driver.flags = Flags::new(driver.api.as_ref(), &driver.image, count, driver.streams[0]).map_err(device)?;
            places.publish(&driver.api, &driver.image, driver.flags, driver.bases[0]);
            Ok((driver.begin_communicators()?, driver))
        });
        let (own, made) = match made {
            Ok((ids, driver)) => (Some(ids), Ok(driver)),
            Err(error) => (None, Err(error)),
        };
        let ids = match meeting.gather(own) {
            Ok(Some(ids)) => ids,
            Ok(None) => return made.and(Err(ExecError::Ended)),
            Err(lost) => return made.and(Err(lost)),
        };
        let mut driver = made?;
        let finished = driver.finish(&ids, meeting, places);
        let Err(error) = finished else { return Ok(driver) };
        let first = meeting.fail();
        driver.abandon();
        // What fails since another rank has failed tells nothing.
        Err(if first { error } else { ExecError::Ended })
    }

    /// What a rank makes once all are sure to come.
    fn finish(&mut self, ids: &Ids, meeting: &Meeting, places: &Places<A>) -> Result<(), ExecError> {
        self.make_communicators(ids, meeting)?;
        self.resolve(places)?;
        self.reset().map_err(device)?;
        meeting.goes_on();
        self.choose_products(meeting)?;
        self.infer_engines(meeting)?;
        if !meeting.tried() {
            return Err(ExecError::Ended);
        }
        self.reset().map_err(device)?;
        meeting.goes_on();
        Ok(())
    }

    /// What a rank makes by itself.
    fn make(api: Arc<A>, image: Image, cache: Option<&Path>) -> Result<Self, ExecError> {
        api.make_current().map_err(device)?;
        let kernels = Kernels::load(api.as_ref(), &wanted::<A>(&image), cache)?;
        let mut driver = GpuDriver {
            streams: Vec::new(),
            events: Vec::new(),
            stamps: Vec::new(),
            kernels,
            calls: Calls::with_capacity(0),
            products: Vec::new(),
            fills: Vec::new(),
            fill_args: Args::default(),
            bases: [0; 3],
            workspaces: Vec::new(),
            comms: Vec::new(),
            shared: comms::none(),
            scratch: 0,
            flags: Flags::default(),
            collectives: None,
            graphs: Vec::new(),
            gates: None,
            cells: None,
            sweep: (0, 0),
            capturing: false,
            abandoned: false,
            pageable: Pageable { words: Vec::new() },
            notes: Vec::new(),
            ranges: None,
            api,
            image,
        };
        if !driver.image.comms.is_empty() {
            driver.collectives = Some(driver.api.collectives()?);
        }
        driver.make_streams()?;
        driver.allocate()?;
        driver.make_gates()?;
        Ok(driver)
    }

    /// Tells a profiler of each operation from now on.
    pub fn with_ranges(mut self, ranges: Option<Arc<Ranges>>) -> Self {
        self.ranges = ranges.map(|ranges| {
            let names = self.image.ops.iter().map(|op| ranges.named(op.span)).collect();
            (ranges, names)
        });
        self
    }

    fn make_streams(&mut self) -> Result<(), ExecError> {
        let notes = streams::make(self.api.as_ref(), &self.image.lanes, &mut self.streams).map_err(device)?;
        self.notes.extend(notes);
        for _ in 0..self.image.events {
            self.events.push(self.api.event(false).map_err(device)?);
        }
        for _ in 0..self.image.stamps {
            self.stamps.push(self.api.event(true).map_err(device)?);
        }
        Ok(())
    }

    /// Makes the memory of each space, and room for the products of each lane that has some.
    fn allocate(&mut self) -> Result<(), ExecError> {
        let [device_bytes, pinned_bytes, host_bytes] = self.image.bytes;
        let available = self.api.free_memory().map_err(device)?;
        let full = |bytes: u64, space: Space, available: u64, said: String| ExecError::OutOfMemory {
            needed: Bytes(bytes).to_string(),
            space: space.name(),
            available: format!("{} are there{said}", Bytes(available)),
            largest: "`aorta plan` shows them".to_owned(),
        };
        // What fails for another reason is told as such.
        let refused = |bytes: u64, space: Space, available: u64| {
            move |fault: Box<Fault>| match fault.code {
                OUT_OF_MEMORY => full(bytes, space, available, format!("; {fault}")),
                _ => device(fault),
            }
        };
        let lanes = self.lanes_with(|launch| matches!(launch, Launch::Gemm(_)));
        let each = match lanes.len() as u64 {
            0 => 0,
            count => WORKSPACE.min(ALL_WORKSPACES / count),
        };
        if device_bytes + each * lanes.len() as u64 > available {
            return Err(full(device_bytes, Space::Device, available, String::new()));
        }
        if device_bytes > 0 {
            let refused = refused(device_bytes, Space::Device, available);
            self.bases[0] = self.api.allocate(device_bytes).map_err(refused)?;
        }
        if pinned_bytes > 0 {
            let available = available_memory().unwrap_or(0);
            let refused = refused(pinned_bytes, Space::Pinned, available);
            self.bases[1] = self.api.allocate_pinned(pinned_bytes).map_err(refused)?;
        }
        let words = host_bytes.div_ceil(8) as usize;
        if self.pageable.words.try_reserve_exact(words).is_err() {
            return Err(full(host_bytes, Space::Host, available_memory().unwrap_or(0), String::new()));
        }
        self.pageable.words.resize(words, 0);
        self.bases[2] = self.pageable.words.as_mut_ptr() as u64;
        self.workspaces = vec![(0, 0); self.image.lanes.len()];
        for lane in lanes {
            let address = self.api.allocate(each).map_err(device)?;
            self.workspaces[lane as usize] = (address, each);
        }
        Ok(())
    }

    fn lanes_with(&self, wanted: impl Fn(&Launch) -> bool) -> Vec<u32> {
        let with: Vec<bool> = self.image.works.iter().map(|work| work.launches.iter().any(&wanted)).collect();
        let lanes = self.image.ops.iter().filter(|op| with[op.work as usize]).map(|op| op.lane);
        let mut lanes: Vec<u32> = lanes.collect();
        lanes.sort_unstable();
        lanes.dedup();
        lanes
    }

    /// What the others need for the communicators that begin with this rank.
    fn begin_communicators(&self) -> Result<Ids, ExecError> {
        let Some(collectives) = self.collectives else { return Ok(Ids::new()) };
        collectives.begin(&self.image.comms, self.image.rank).map_err(device)
    }

    /// This rank's end of each communicator, in an order that is the same on all ranks.
    fn make_communicators(&mut self, ids: &Ids, meeting: &Meeting) -> Result<(), ExecError> {
        let Some(collectives) = self.collectives else { return Ok(()) };
        self.scratch = self.api.allocate(SCRATCH).map_err(device)?;
        for comm in &self.image.comms {
            self.comms.push(collectives.join(comm, self.image.rank, (ids, meeting)).map_err(device)?);
            self.shared = Arc::new(Comms::new(Some(collectives), &self.comms));
        }
        Ok(())
    }

    fn make_gates(&mut self) -> Result<(), ExecError> {
        if self.image.gates > 0 {
            let function = self.kernels.get(&gate::source());
            let gates = Gates::new(self.api.as_ref(), function, self.image.gates);
            self.gates = Some(gates.map_err(|fault| gate::failed(&fault))?);
        }
        if !A::EVENTS_IN_GRAPHS {
            let function = self.kernels.get(&stamps::source());
            let cells = Stamps::new(self.api.as_ref(), function, self.image.stamps);
            self.cells = Some(cells.map_err(device)?);
        }
        let bytes = SWEEP * self.api.cache_bytes();
        if !self.image.cold.is_empty() && bytes > 0 {
            self.sweep = (self.api.allocate(bytes).map_err(device)?, bytes);
        }
        Ok(())
    }

    fn resolve(&mut self, places: &Places<A>) -> Result<(), ExecError> {
        let context = Context {
            api: self.api.as_ref(),
            image: &self.image,
            kernels: &self.kernels,
            streams: &self.streams,
            bases: self.bases,
            workspaces: &self.workspaces,
            comms: &self.comms,
            scratch: self.scratch,
            places,
        };
        let calls = context.calls()?;
        let notes = if self.image.crossings > 0 { peers::notes(places, &self.image)? } else { Vec::new() };
        let mut fills = Vec::new();
        let mut args = Args::default();
        for fill in self.image.fills.iter().filter(|fill| fill.space.on_device()) {
            if let Some(kernel) = fill.init.kernel(fill.dtype, fill.elements) {
                let place = crate::exec::Address { space: fill.space, offset: fill.offset };
                let operands = [context.address(place)];
                let call = context.kernel(&kernel, self.streams[0], &operands, &mut args)?;
                fills.push(call);
            }
        }
        args.seal();
        self.calls = calls;
        self.notes.extend(notes);
        self.fills = fills;
        self.fill_args = args;
        Ok(())
    }

    /// Chooses an algorithm for each matrix product.
    fn choose_products(&mut self, meeting: &Meeting) -> Result<(), ExecError> {
        if self.calls.products.is_empty() {
            return Ok(());
        }
        let event = |timed| self.api.event(timed).map_err(device);
        let chooser = Chooser {
            api: self.api.as_ref(),
            streams: &self.streams,
            workspaces: &self.workspaces,
            candidates: self.image.gemm_candidates,
            from: event(true)?,
            to: event(true)?,
            order: event(false)?,
        };
        let choose = |product| {
            meeting.goes_on();
            chooser.choose(product)
        };
        let chosen: Result<Vec<_>, ExecError> = self.calls.products.iter().map(choose).collect();
        for event in [chooser.from, chooser.to, chooser.order] {
            // SAFETY: it was made above, and nothing waits for it.
            unsafe { self.api.destroy_event(event) };
        }
        for (product, note) in chosen? {
            self.products.push(product);
            self.notes.extend(note);
        }
        Ok(())
    }

    /// Finds out what makes the copies, where the image has the kernel for it.
    fn infer_engines(&mut self, meeting: &Meeting) -> Result<(), ExecError> {
        if self.kernels.has(&engines::source()) {
            meeting.goes_on();
            let found = engines::infer(self.api.as_ref(), &self.kernels, &self.calls);
            self.notes.extend(found.map_err(device)?);
        }
        Ok(())
    }

    /// Makes one call. The measured loop ends here.
    fn issue(&mut self, index: u32) -> Call {
        let Self { api, calls, products, collectives, shared, .. } = self;
        // SAFETY: handles and addresses were made for this image and live as long as the driver.
        unsafe {
            match calls.calls[index as usize] {
                Prepared::Kernel { function, grid, block, shared, stream, args } => {
                    api.launch(function, grid, block, shared, stream, calls.args.pointers(args))
                }
                Prepared::Multiply { product, operands, workspace, stream } => {
                    api.multiply(&products[product as usize], operands, workspace, stream)
                }
                Prepared::Copy { copy, source, target, stream } => {
                    api.copy(&calls.copies[copy as usize], source, target, stream)
                }
                Prepared::Meet { steps: (first, last), stream } => {
                    api.meet(&calls.steps[first as usize..last as usize], stream)
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
                    let exchanges = &calls.exchanges[first as usize..last as usize];
                    collectives.issue(comm, exchanges, A::raw_stream(stream))
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
        let (first, end) = self.calls.ops[op as usize];
        if let Some((ranges, names)) = &self.ranges {
            ranges.enter(&names[op as usize]);
        }
        let issued = (first..end).try_for_each(|call| self.issue(call));
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
        // SAFETY: both live as long as the driver.
        unsafe { api.launch_graph(graphs[graph as usize], stream) }
    }

    fn reached(&mut self, stamp: u32) -> Call<bool> {
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
        match gates {
            Some(gates) => gates.hold(api.as_ref(), gate, streams[lane as usize]),
            None => Err(Fault::new("hold", "the image has no gates")),
        }
    }

    fn release(&mut self, gate: u32) {
        self.gates.iter().for_each(|gates| gates.release(gate));
    }

    fn forced(&mut self, gate: u32) -> bool {
        self.gates.as_ref().is_some_and(|gates| gates.forced(gate))
    }

    fn flushes(&self) -> bool {
        self.sweep.1 > 0
    }

    fn flush(&mut self, lane: u32) -> Call {
        let (address, bytes) = self.sweep;
        // SAFETY: the memory is there for this alone, and lives as long as the driver.
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
        let [device_bytes, pinned_bytes, _] = self.image.bytes;
        // SAFETY: the whole of each space's memory, which nothing uses while the device is idle.
        unsafe {
            if device_bytes > 0 {
                self.api.memset(self.bases[0], DType::POISON, device_bytes, stream)?;
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

    fn read(&mut self, space: Space, offset: u64, bytes: u64) -> Call<Option<Vec<u8>>> {
        self.api.make_current()?;
        self.api.synchronize()?;
        let mut out = vec![0; bytes as usize];
        match space {
            // SAFETY: the range lies in the space's memory, as the schedule placed it.
            Space::Device => unsafe { self.api.read(self.bases[0] + offset, &mut out)? },
            Space::Pinned => {
                // SAFETY: pinned memory is the host's, and nothing writes it while the device is idle.
                let pinned =
                    unsafe { std::slice::from_raw_parts((self.bases[1] + offset) as *const u8, bytes as usize) };
                out.copy_from_slice(pinned);
            }
            Space::Host => out.copy_from_slice(self.pageable.bytes_mut(offset as usize, bytes as usize)),
        }
        Ok(Some(out))
    }

    fn breaker(&self) -> Option<Arc<dyn Breaker>> {
        Some(self.shared.clone())
    }

    fn abandon(&mut self) {
        self.abandoned = true;
        self.gates.iter().for_each(Gates::release_all);
        self.shared.abort();
    }

    fn health(&mut self) -> Option<Health> {
        self.api.health()
    }

    fn notes(&self) -> Vec<String> {
        self.notes.iter().cloned().chain(self.api.notes()).collect()
    }
}

impl<A: Api> Drop for GpuDriver<A> {
    fn drop(&mut self) {
        if self.abandoned {
            // What waits for the device, or frees what it uses, would not come back. The context stays open too.
            std::mem::forget(self.api.clone());
            return;
        }
        // A device that failed cannot be waited for; what it has is given back all the same.
        let _ = self.api.make_current();
        self.gates.iter().for_each(Gates::release_all);
        let _ = self.api.synchronize();
        // SAFETY: everything was made by this driver, is destroyed once, and nothing of it is under way.
        unsafe {
            for graph in self.graphs.drain(..) {
                self.api.destroy_graph(graph);
            }
            self.shared.destroy();
            self.products.clear();
            for event in self.events.drain(..).chain(self.stamps.drain(..)) {
                self.api.destroy_event(event);
            }
            for stream in self.streams.drain(..) {
                self.api.destroy_stream(stream);
            }
            for (address, _) in self.workspaces.drain(..).filter(|(address, _)| *address != 0) {
                self.api.free(address);
            }
            self.flags.free(self.api.as_ref());
            if self.scratch != 0 {
                self.api.free(self.scratch);
            }
            if self.sweep.0 != 0 {
                self.api.free(self.sweep.0);
            }
            if let Some(gates) = self.gates.take() {
                gates.free(self.api.as_ref());
            }
            if let Some(cells) = self.cells.take() {
                cells.free(self.api.as_ref());
            }
            if self.bases[0] != 0 {
                self.api.free(self.bases[0]);
            }
            if self.bases[1] != 0 {
                self.api.free_pinned(self.bases[1]);
            }
        }
        self.kernels.unload(self.api.as_ref());
    }
}
