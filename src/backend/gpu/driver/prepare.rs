//! Prepares an image on a device: streams, memory, kernels, communicators, and calls with resolved arguments. The
//! measured loop then only issues these calls.

use std::cell::OnceCell;
use std::path::Path;
use std::sync::Arc;

use crate::backend::exhausted::may_be_refused;
use crate::backend::id_exchange::{IdExchange, Ids};
use crate::backend::ranges::Ranges;
use crate::backend::system::available_memory;
use crate::base::{Bytes, Space, counted, stage};
use crate::exec::{Driver, ExecError, Fault, Image};
use crate::ops::{Launch, Tensor, workspace};

use super::GpuDriver;
use crate::backend::gpu::api::Api;
use crate::backend::gpu::choose::products::{Chooser, reserved};
use crate::backend::gpu::choose::trial::Way;
use crate::backend::gpu::host::lanes::HostLanes;
use crate::backend::gpu::host::pageable::{CapturedUses, Pageable};
use crate::backend::gpu::prepare::kernels::{Kernels, wanted};
use crate::backend::gpu::prepare::lower::{Args, Calls, Context, Prepared, address};
use crate::backend::gpu::prepare::streams;
use crate::backend::gpu::ranks::comms::{self, Comms};
use crate::backend::gpu::ranks::flags::Flags;
use crate::backend::gpu::ranks::inter_process::InterProcessMemory;
use crate::backend::gpu::ranks::peers::{self, PeerDevices};
use crate::backend::gpu::time::gate::{self, Gates};
use crate::backend::gpu::time::stamps::{self, Stamps};

/// Number of copies of its operands, in another order of dimensions, for which a library's convolution gets workspace.
const CONVOLUTION_COPIES: u64 = 2;

/// Workspace of a lane's matrix products in bytes: NVIDIA's recommendation for Hopper.
const WORKSPACE: u64 = 32 << 20;

/// Limit of all workspaces together, in bytes.
const ALL_WORKSPACES: u64 = 4 << 30;

/// Minimum size in bytes of a workspace for copies that is worth replacing: that of the library itself.
const FEW_BYTES: u64 = WORKSPACE;

/// Bytes that drivers keep free for code and handles.
const CODE_BYTES: u64 = 128 << 20;

/// Granularity in bytes at which drivers take memory from a device, and at which another process opens it.
const BLOCK: u64 = 2 << 20;

/// Device memory in bytes for the values that barriers reduce.
const SCRATCH: u64 = 256;

/// Number of times the size of the last-level cache that is written to flush it. Once is not enough, since caches do
/// not evict strictly by age.
const FLUSH_FACTOR: u64 = 2;

/// Maximum number of ways to compute an operation that are timed.
const MAX_WAYS: usize = 6;

/// Maximum number of ways of all operations together: to compile and time 94 tilings of ten grouped products took 6 s on a host with an
/// H200.
const MAX_ALL_WAYS: usize = 64;

/// Status code for a failed allocation, the same for both vendors.
const OUT_OF_MEMORY: i64 = 2;

impl<A: Api> GpuDriver<A> {
    /// Prepares everything that the image needs. The ranks of `id_exchange` do so concurrently, and wait for each
    /// other.
    pub fn new(
        api: Arc<A>,
        image: Image,
        cache: Option<&Path>,
        (id_exchange, devices): (&IdExchange, &PeerDevices<A>),
    ) -> Result<Self, ExecError> {
        let made = Self::make(api, image, cache).and_then(|mut driver| {
            let (api, count) = (driver.api.as_ref(), devices.count());
            driver.flags = match devices.processes() {
                Some(_) => Flags::of_process(api, &driver.image, count)?,
                None => Flags::new(api, &driver.image, count, driver.streams[0]).map_err(ExecError::device)?,
            };
            devices.publish(&driver.api, &driver.image, &driver.flags, driver.bases[0]);
            Ok((driver.begin_communicators()?, driver))
        });
        let (own, made) = match made {
            Ok((ids, driver)) => (Some(ids), Ok(driver)),
            Err(error) => (None, Err(error)),
        };
        let ids = match id_exchange.gather(own) {
            Ok(Some(ids)) => ids,
            Ok(None) => return made.and(Err(ExecError::Ended)),
            Err(lost) => return made.and(Err(lost)),
        };
        let mut driver = made?;
        let finished = driver.finish(&ids, id_exchange, devices);
        let Err(error) = finished else { return Ok(driver) };
        let first = id_exchange.fail();
        driver.abandon();
        // A failure caused by another rank's failure adds no information.
        Err(if first { error } else { ExecError::Ended })
    }

    /// Second half of the preparation, for which the other ranks must have finished the first half.
    fn finish(&mut self, ids: &Ids, id_exchange: &IdExchange, devices: &PeerDevices<A>) -> Result<(), ExecError> {
        self.make_communicators(ids, id_exchange)?;
        self.exchange_memory_handles(devices)?;
        self.host = HostLanes::start(self.api.as_ref(), &self.image, |place| address(self.bases, place))?;
        self.resolve(devices)?;
        self.reset().map_err(ExecError::device)?;
        id_exchange.note_progress();
        self.choose_products(id_exchange)?;
        if !id_exchange.wait_for_trials() {
            return Err(ExecError::Ended);
        }
        self.reset().map_err(ExecError::device)?;
        id_exchange.note_progress();
        Ok(())
    }

    /// First half of the preparation, which a rank does independently of others.
    fn make(api: Arc<A>, mut image: Image, cache: Option<&Path>) -> Result<Self, ExecError> {
        api.make_current().map_err(ExecError::device)?;
        let mut notes = spare_workspaces(api.as_ref(), &mut image)?;
        notes.extend(add_ways(api.as_ref(), &mut image)?);
        let kernels = Kernels::load(api.as_ref(), &wanted::<A>(&image), cache)?;
        let mut driver = GpuDriver {
            streams: Vec::new(),
            events: Vec::new(),
            stamps: Vec::new(),
            kernels,
            calls: Calls::with_capacity(0),
            products: Vec::new(),
            engines: Vec::new(),
            fills: Vec::new(),
            fill_args: Args::default(),
            bases: [0; Space::COUNT],
            workspaces: Vec::new(),
            comms: Vec::new(),
            shared: comms::none(),
            scratch: 0,
            flags: Flags::default(),
            host: HostLanes::default(),
            inter_process: InterProcessMemory::default(),
            collectives: None,
            graphs: Vec::new(),
            gates: None,
            cells: None,
            flush_memory: (0, 0),
            capturing: false,
            counts: Vec::new(),
            cache: cache.map(Path::to_owned),
            captured_uses: CapturedUses::default(),
            observing: false,
            recorder: None,
            abandoned: false,
            pageable: Pageable { words: Vec::new() },
            notes,
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

    /// Adds the named ranges by which a profiler shows each operation.
    pub fn with_ranges(mut self, ranges: Option<Arc<Ranges>>) -> Self {
        self.ranges = ranges.map(|ranges| {
            let names = self.image.ops.iter().map(|op| ranges.named(op.span)).collect();
            (ranges, names)
        });
        self
    }

    fn make_streams(&mut self) -> Result<(), ExecError> {
        let notes =
            streams::make(self.api.as_ref(), &self.image.lanes, &mut self.streams).map_err(ExecError::device)?;
        self.notes.extend(notes);
        for _ in 0..self.image.events {
            self.events.push(self.api.event(false).map_err(ExecError::device)?);
        }
        for _ in 0..self.image.stamps {
            self.stamps.push(self.api.event(true).map_err(ExecError::device)?);
        }
        Ok(())
    }

    /// Allocates the memory of each space, and a workspace for each lane that needs one.
    fn allocate(&mut self) -> Result<(), ExecError> {
        let [device_bytes, pinned_bytes, managed_bytes, host_bytes] = self.image.bytes;
        if managed_bytes > 0 && !self.api.shares_managed() {
            return Err(ExecError::NoManaged { device: self.api.device().name });
        }
        let available = self.api.free_memory().map_err(ExecError::device)?;
        let full = |bytes: u64, space: Space, available: u64, details: String| ExecError::OutOfMemory {
            needed: Bytes(bytes).to_string(),
            space: space.name(),
            available: format!("{} are available{details}", Bytes(available)),
            largest: "`aorta plan` shows them".to_owned(),
        };
        // An allocation that failed for another reason than lack of memory keeps its own error.
        let refused = |bytes: u64, space: Space, available: u64| {
            move |fault: Box<Fault>| match fault.code {
                OUT_OF_MEMORY => full(bytes, space, available, format!("; {fault}")),
                _ => ExecError::device(fault),
            }
        };
        let workspaces = workspace_bytes(self.api.as_ref(), &self.image, available.saturating_sub(device_bytes));
        let all_device = device_bytes + workspaces.iter().sum::<u64>();
        if all_device > available {
            return Err(full(all_device, Space::Device, available, String::new()));
        }
        if device_bytes > 0 {
            let refused = refused(device_bytes, Space::Device, available);
            // Another process always opens a whole block of the driver's. Rounding up keeps other allocations out of
            // that block.
            let block = if self.image.crossings > 0 { BLOCK } else { 1 };
            self.bases[0] = self.api.allocate(device_bytes.next_multiple_of(block)).map_err(refused)?;
        }
        if pinned_bytes > 0 {
            let available = available_memory().unwrap_or(0);
            let refused = refused(pinned_bytes, Space::Pinned, available);
            self.bases[1] = self.api.allocate_pinned(pinned_bytes).map_err(refused)?;
        }
        if managed_bytes > 0 {
            let available = available_memory().unwrap_or(0);
            let refused = refused(managed_bytes, Space::Managed, available);
            self.bases[Space::Managed.index()] = self.api.allocate_managed(managed_bytes).map_err(refused)?;
        }
        let words = host_bytes.div_ceil(8) as usize;
        if may_be_refused(|| self.pageable.words.try_reserve_exact(words)).is_err() {
            return Err(full(host_bytes, Space::Host, available_memory().unwrap_or(0), String::new()));
        }
        self.pageable.words.resize(words, 0);
        self.bases[Space::Host.index()] = self.pageable.words.as_mut_ptr() as u64;
        for bytes in workspaces {
            let address = if bytes > 0 { self.api.allocate(bytes).map_err(ExecError::device)? } else { 0 };
            self.workspaces.push((address, bytes));
        }
        Ok(())
    }

    /// Creates the unique ids of the communicators whose first member is this rank. The other members need them.
    fn begin_communicators(&self) -> Result<Ids, ExecError> {
        let Some(collectives) = self.collectives else { return Ok(Ids::new()) };
        collectives.begin(&self.image.comms, self.image.rank).map_err(ExecError::device)
    }

    /// Creates this rank's communicators, in an order that is the same on all ranks.
    fn make_communicators(&mut self, ids: &Ids, id_exchange: &IdExchange) -> Result<(), ExecError> {
        let Some(collectives) = self.collectives else { return Ok(()) };
        self.scratch = self.api.allocate(SCRATCH).map_err(ExecError::device)?;
        for comm in &self.image.comms {
            self.comms.push(collectives.join(comm, self.image.rank, (ids, id_exchange)).map_err(ExecError::device)?);
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
            self.cells = Some(cells.map_err(ExecError::device)?);
        }
        let bytes = FLUSH_FACTOR * self.api.cache_bytes();
        if !self.image.cold.is_empty() && bytes > 0 {
            self.flush_memory = (self.api.allocate(bytes).map_err(ExecError::device)?, bytes);
        }
        Ok(())
    }

    /// Exchanges the memory handles that processes need to copy to each other.
    fn exchange_memory_handles(&mut self, devices: &PeerDevices<A>) -> Result<(), ExecError> {
        let Some(processes) = devices.processes().filter(|_| self.image.crossings > 0) else { return Ok(()) };
        let Self { api, image, flags, inter_process, bases, .. } = self;
        inter_process.exchange((api, devices), (image, bases[0]), flags, processes)
    }

    fn resolve(&mut self, devices: &PeerDevices<A>) -> Result<(), ExecError> {
        let context = Context {
            api: self.api.as_ref(),
            image: &self.image,
            kernels: &self.kernels,
            streams: &self.streams,
            bases: self.bases,
            workspaces: &self.workspaces,
            comms: &self.comms,
            scratch: self.scratch,
            devices,
            host: &self.host,
        };
        let calls = context.calls()?;
        let notes = if self.image.crossings > 0 { peers::notes(devices, &self.image)? } else { Vec::new() };
        let mut fills = Vec::new();
        let mut args = Args::default();
        for fill in self.image.fills.iter().filter(|fill| fill.space.on_device()) {
            let operands = [context.address(crate::exec::Address { space: fill.space, offset: fill.offset })];
            for kernel in fill.init.kernels(fill.dtype, fill.elements) {
                fills.push(context.kernel(&kernel, self.streams[0], (&operands, 0), &mut args)?);
            }
        }
        args.seal();
        self.notes.extend(calls.notes.iter().cloned().chain(notes));
        self.calls = calls;
        self.fills = fills;
        self.fill_args = args;
        Ok(())
    }

    /// Chooses an algorithm for each matrix product, and a way to compute each operation that has several.
    fn choose_products(&mut self, id_exchange: &IdExchange) -> Result<(), ExecError> {
        let Calls { products, engine_operations, .. } = &self.calls;
        if products.is_empty() && engine_operations.is_empty() {
            return Ok(());
        }
        let event = |timed| self.api.event(timed).map_err(ExecError::device);
        let mut chooser = Chooser {
            api: self.api.as_ref(),
            streams: &self.streams,
            workspaces: &self.workspaces,
            candidates: self.image.gemm_candidates,
            kept: self.cache.as_deref().filter(|_| self.image.keep_algorithms),
            machine: OnceCell::new(),
            alternatives: &self.calls.alternatives,
            args: &self.calls.args,
            chosen: Vec::with_capacity(products.len()),
            from: event(true)?,
            to: event(true)?,
            order: event(false)?,
        };
        let stage =
            stage::enter_counted("choosing algorithms for", "operation", products.len() + engine_operations.len());
        let done = || {
            id_exchange.note_progress();
            stage.step();
        };
        let chosen = chooser.choose_products(products, &done);
        // Trials of convolutions multiply by the chosen algorithms.
        let ways = chosen.and_then(|chosen| {
            chooser.chosen = chosen;
            chooser.choose_engines(engine_operations, &done)
        });
        for event in [chooser.from, chooser.to, chooser.order] {
            // SAFETY: the event was made above, and nothing waits for it.
            unsafe { self.api.destroy_event(event) };
        }
        let (mut chosen, ways) = (chooser.chosen, ways?);
        let splits: Vec<bool> =
            chosen.iter().map(|chosen| chosen.as_ref().is_some_and(|chosen| chosen.split)).collect();
        // New numbers of the products that calls use. Products of convolutions that are computed in another way have none.
        let mut numbers = vec![None; chosen.len()];
        let Calls { calls, alternatives, .. } = &mut self.calls;
        for call in calls {
            let stands_in = match *call {
                Prepared::Epilogue { product, kernel } => Some((splits[product as usize], kernel)),
                Prepared::Alternative { operation, way, call } => {
                    let is_chosen = matches!(ways[operation as usize].0, Way::Own(chosen) if chosen == way as usize);
                    Some((is_chosen, call))
                }
                _ => None,
            };
            if let Some((stands_in, alternative)) = stands_in {
                *call = if stands_in { alternatives[alternative as usize] } else { Prepared::Nothing };
            }
            if let Prepared::Multiply { product, .. } = call {
                let old = *product as usize;
                *product = *numbers[old].get_or_insert_with(|| {
                    let chosen = chosen[old].take().expect("calls use products that have an algorithm");
                    self.products.push(chosen.product);
                    self.notes.extend(chosen.note);
                    self.products.len() as u32 - 1
                });
            }
        }
        for (way, note) in ways {
            self.engines.push(if let Way::Candidate(engine) = way { Some(engine) } else { None });
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        Ok(())
    }
}

/// Replaces the launches of all operations that have some with less workspace if the device has no room for all workspaces. Returns notes for
/// the record.
fn spare_workspaces<A: Api>(api: &A, image: &mut Image) -> Result<Vec<String>, ExecError> {
    let of_works = image.works.iter().map(|work| reserved(&work.launches).unwrap_or(0));
    if of_works.max().unwrap_or(0) < FEW_BYTES {
        return Ok(Vec::new());
    }
    let room = api.free_memory().map_err(ExecError::device)?.saturating_sub(image.bytes[0] + CODE_BYTES);
    let needed = |image: &Image| workspace_bytes(api, image, room).iter().sum::<u64>();
    let before = needed(image);
    if before <= room {
        return Ok(Vec::new());
    }
    let mut spared = 0;
    for work in &mut image.works {
        if let Some(launches) =
            work.spec.sparing_launch().filter(|launches| workspace(launches) < workspace(&work.launches))
        {
            work.launches = launches.into();
            spared += 1;
        }
    }
    if spared == 0 {
        return Ok(Vec::new());
    }
    let (before, after) = (Bytes(before), Bytes(needed(image)));
    Ok(vec![format!(
        "{} in a form with less workspace, since the device lacks memory: {after} of workspace instead of {before}",
        counted(spared, "operation")
    )])
}

/// Replaces the launches of operations that kernels compute in several ways by launches with these ways, between which a trial chooses.
/// Devices without clusters, and runs that time nothing, keep the way that is the fastest by estimate. Returns a note for the record if
/// operations keep it for another reason.
fn add_ways<A: Api>(api: &A, image: &mut Image) -> Result<Option<String>, ExecError> {
    // Kernels that report on compute units are altered already.
    let is_altered = image.ops.iter().any(|op| op.report.is_some());
    if image.gemm_candidates == 1 || is_altered || !api.has_clusters() {
        return Ok(None);
    }
    let count = image.works.iter().filter(|work| work.spec.launch_in_ways(2).is_some()).count();
    if count == 0 {
        return Ok(None);
    }
    let untimed = |why: &str| {
        let what = counted(count, "operation");
        Ok(Some(format!("{what} with several kernels: the fastest by estimate, not timed, since {why}")))
    };
    let most = ways_of_each(count);
    if most < 2 {
        return untimed(&format!("at most {} kernels are compiled to be timed", MAX_ALL_WAYS));
    }
    let room = api.free_memory().map_err(ExecError::device)?.saturating_sub(image.bytes[0] + CODE_BYTES);
    let before: Vec<Arc<[Launch]>> = image.works.iter().map(|work| work.launches.clone()).collect();
    for work in &mut image.works {
        if let Some(launches) = work.spec.launch_in_ways(most) {
            work.launches = launches.into();
        }
    }
    if workspace_bytes(api, image, room).iter().sum::<u64>() > room {
        image.works.iter_mut().zip(before).for_each(|(work, before)| work.launches = before);
        return untimed("the device lacks memory for their workspaces");
    }
    Ok(None)
}

/// Maximum number of ways of each operation if this many operations have several. Below 2, none is timed.
fn ways_of_each(operations: usize) -> usize {
    MAX_ALL_WAYS.checked_div(operations).unwrap_or(0).min(MAX_WAYS)
}

/// Size in bytes of each lane's workspace: the most that any of its matrix products, convolutions, attention and
/// kernels needs. A lane runs one operation at a time, so they share the workspace. `room` is the device memory
/// that is left.
fn workspace_bytes<A: Api>(api: &A, image: &Image, room: u64) -> Vec<u64> {
    // Libraries get a fixed budget; kernels state the bytes that they need.
    let wish = |launch: &Launch| match launch {
        Launch::Gemm(..) => WORKSPACE,
        Launch::Conv(conv, ..) if api.engine_library().is_some() => {
            let bytes: u64 = conv.pieces().0.tensors.iter().map(Tensor::bytes).sum();
            WORKSPACE + (CONVOLUTION_COPIES * bytes).min(room / 2 / image.lanes.len() as u64)
        }
        Launch::Conv(_, _, Some(_)) => WORKSPACE,
        Launch::Attention(attention, _) if api.engine_library().is_some() => {
            attention.scratch().min(room / 2 / image.lanes.len() as u64)
        }
        _ => 0,
    };
    let works = image.works.iter();
    let needs: Vec<(u64, u64)> = works
        .map(|work| {
            let of_all = |bytes: &dyn Fn(&Launch) -> u64| work.launches.iter().map(bytes).max().unwrap_or(0);
            let own = match reserved(&work.launches) {
                Some(bytes) => bytes + WORKSPACE,
                None => of_all(&Launch::workspace),
            };
            (of_all(&wish), own)
        })
        .collect();
    let mut lanes = vec![(0, 0); image.lanes.len()];
    for op in &image.ops {
        let (lane, (wanted, bytes)) = (&mut lanes[op.lane as usize], needs[op.work as usize]);
        *lane = (wanted.max(lane.0), bytes.max(lane.1));
    }
    let count = lanes.iter().filter(|lane| lane.0 > 0).count() as u64;
    let most = ALL_WORKSPACES.checked_div(count).unwrap_or(0);
    lanes.into_iter().map(|(wanted, bytes)| bytes.max(wanted.min(most))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program has at most 64 ways, which its operations share, so that from 33 operations on none has two.
    #[test]
    fn operations_share_the_ways_that_are_timed() {
        let each = [0, 1, 10, 11, 16, 17, 21, 22, 32, 33, 64, 65].map(ways_of_each);
        assert_eq!(each, [0, 6, 6, 5, 4, 3, 3, 2, 2, 1, 1, 0]);
    }
}
