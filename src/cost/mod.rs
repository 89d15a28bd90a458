//! The cost model: a roofline with waves of thread blocks, and links.
//!
//! Reports mark figures from this model as *simulated* or *modelled*, never as measured.

mod blocks;
pub mod cache;
mod emulated;
mod exchange;
pub mod floor;
mod ideal;
mod peer;
mod product;

use std::num::NonZeroU32;

use crate::base::Space;
use crate::config::Profile;
use crate::ops::{self, Arithmetic, Cost, Direction, Hold, Launch, Spec, Traffic};

use blocks::{Grid, issue_time, wave_time};
pub use emulated::OccupiedLinks;
pub use exchange::{Load, Path, exchange, link_rate, loads, receiver_load, sender_load};
pub use ideal::{Ideal, LinkTimes, Resource};
pub use peer::peer;

/// The resources of the device that one launch uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Task {
    /// Runs on compute units.
    Kernel {
        /// Number of thread blocks.
        blocks: u64,
        /// Share of a compute unit that each block occupies, in 1/32.
        share: u32,
        /// Duration of a block in ns, without the time of memory unless its threads exchange what they have read.
        block_time: f64,
        /// Time for which the task's traffic occupies memories and links.
        busy: Busy,
        /// Time from the start of the kernel until its blocks begin, in ns.
        floor: f64,
    },
    /// Moves bytes over the link to the host.
    Copy {
        direction: Direction,
        bytes: f64,
        /// True if the copy uses a staging buffer while the host waits.
        pageable: bool,
    },
    /// Moves bytes to another device.
    Peer {
        /// The receiving rank.
        to: u32,
        bytes: f64,
        /// Rate of the link in bytes per second.
        rate: f64,
    },
    /// Runs on threads of the CPU, on a host stream.
    Host {
        /// Time with the memory of the host to itself, in ns.
        time: f64,
        /// Share of the bandwidth of the host's memory that the task uses while it runs, from 0 to 1.
        share: f64,
    },
}

/// Time in ns for which a kernel occupies each memory, each link and the arithmetic of the whole device, without other work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Busy {
    /// Vector units of all compute units together, which issue the kernel's instructions.
    pub vector: f64,
    /// Matrix units of all compute units together.
    pub matrix: f64,
    /// Device memory.
    pub memory: f64,
    /// Link from the host, for data that the kernel reads there.
    pub to_device: f64,
    /// Link to the host, for data that the kernel writes there.
    pub to_host: f64,
    /// The receiving rank, and the time of the link to it; `None` if nothing is sent.
    pub peer: Option<(u32, f64)>,
}

impl Busy {
    /// The longest time of a memory or a link. All traffic overlaps, so this bounds the kernel. The time of a block contains its
    /// arithmetic.
    pub fn longest(&self) -> f64 {
        let peer = self.peer.map_or(0.0, |(_, time)| time);
        [self.memory, self.to_device, self.to_host, peer].into_iter().fold(0.0, f64::max)
    }

    /// The times of a fraction of the traffic.
    pub fn scaled(self, part: f64) -> Busy {
        Busy {
            vector: self.vector * part,
            matrix: self.matrix * part,
            memory: self.memory * part,
            to_device: self.to_device * part,
            to_host: self.to_host * part,
            peer: self.peer.map(|(to, time)| (to, time * part)),
        }
    }
}

/// The write of twice the size of the cache by which a driver flushes it.
pub fn flush(profile: &Profile) -> Task {
    let written = Traffic::of(Space::Device, 2 * profile.cache.value() as u64);
    let busy = busy(&Cost { written, ..Cost::default() }, 1.0, 0.0, profile);
    Task::Kernel { blocks: 1, share: 1, block_time: 0.0, busy, floor: profile.kernel_floor.value() }
}

/// Time in ns by which a node of a graph starts later after a flush, unless all nodes form one chain.
///
/// The device keeps the launch of each node in its memory: a description, and then the arguments. A flush removes both from the cache. The
/// front end reads a chain ahead, but not several branches.
pub fn cold_node(profile: &Profile) -> f64 {
    2.0 * (profile.memory_wait.value() - profile.cache_wait.value()).max(0.0)
}

/// Bytes of device memory that an operation brings into the cache if the cache has this share of its operands.
pub fn missed_bytes(spec: &Spec, cached: f64) -> f64 {
    let cost = spec.cost();
    (1.0 - cached) * (cost.read + cost.written + cost.scratch).device as f64
}

/// Adds to the first kernel of an operation the time for writing back modified lines of a flush, which this many bytes replace.
pub fn add_write_back(tasks: &mut [Task], replaced: f64, profile: &Profile) {
    let kernel = tasks.iter_mut().find_map(|task| if let Task::Kernel { busy, .. } = task { Some(busy) } else { None });
    if let Some(busy) = kernel {
        busy.memory += memory_time(replaced * profile.flush_modified.value(), 0.0, profile);
    }
}

/// True if a launch runs on a device. Some kernels replace the work of clusters of blocks, and run only on devices
/// without clusters.
pub fn runs(launch: &Launch, profile: &Profile) -> bool {
    !matches!(launch, Launch::Kernel(kernel) if kernel.without_clusters && profile.has_clusters())
}

/// The tasks of an operation, one for each launch that [`runs`]. `cached` is the share of its bytes in device memory that the cache
/// serves, from 0 to 1.
pub fn tasks(spec: &Spec, launches: &[Launch], cached: f64, profile: &Profile) -> Vec<Task> {
    match launches {
        [Launch::Peer(peer)] => return vec![peer::peer(spec, peer, profile)],
        [Launch::Host { threads }] => return vec![on_host(spec, *threads, profile)],
        _ => {}
    }
    match spec.launch_costs(launches.len()) {
        Some(costs) => {
            let of_launch =
                |(launch, cost): (&Launch, &Cost)| task(launch, cost, Grid::of(launch, cost), cached, profile);
            launches.iter().zip(&costs).filter(|(launch, _)| runs(launch, profile)).map(of_launch).collect()
        }
        // The work of all launches is divided evenly, and so are their blocks.
        None => {
            let run = launches.iter().filter(|launch| runs(launch, profile));
            let cost = spec.cost().each_of(run.clone().count().max(1) as u64);
            run.map(|launch| task(launch, &cost, Grid::unknown(&cost), cached, profile)).collect()
        }
    }
}

fn task(launch: &Launch, cost: &Cost, grid: Grid, cached: f64, profile: &Profile) -> Task {
    let busy = busy(cost, grid.waves(profile), cached, profile);
    // The first access has a latency, however few bytes there are. Threads wait for what they read from the host's memory, but not for
    // what they write there.
    let latency = match (cost.read + cost.reread, cost.matrix) {
        (Traffic { host: 1.., .. }, _) => profile.host_link.latency.value(),
        (_, None) if (cost.read + cost.written).total() > 0 => first_access(cost, cached, profile),
        // A product reads descriptions of its factors, and then the factors. Its floor contains both if the cache serves them. Blocks wait for
        // the slowest of their reads, so that any miss delays them.
        (_, Some(_)) => 2.0 * (first_access(cost, cached.floor(), profile) - first_access(cost, 1.0, profile)),
        _ => 0.0,
    };
    match launch {
        Launch::Copy(copy) if copy.direction != Direction::DeviceToDevice => {
            Task::Copy { direction: copy.direction, bytes: copy.bytes() as f64, pageable: copy.pageable }
        }
        Launch::Copy(_) | Launch::Memset { .. } => {
            let further = if let Launch::Memset { .. } = launch { profile.memset_latency.value() } else { 0.0 };
            let floor = profile.kernel_floor.value() + latency + further;
            Task::Kernel { blocks: 1, share: 1, block_time: 0.0, busy, floor }
        }
        Launch::Peer(_) | Launch::Host { .. } => {
            unreachable!("a copy between ranks and an operation of a host stream are one launch by themselves")
        }
        Launch::Collective(_) => Task::Kernel {
            // Vendors' libraries use one block per channel.
            blocks: 16,
            share: Cost::WHOLE_UNIT,
            block_time: 0.0,
            busy,
            floor: profile.collective_floor.value(),
        },
        Launch::Kernel(_) | Launch::Gemm(..) | Launch::Conv(..) | Launch::Attention(..) | Launch::Ways(..) => {
            let floor = match cost.matrix {
                Some(_) if cost.tiling.shares_depth => profile.matrix_floor.value() + profile.matrix_join.value(),
                Some(_) => profile.matrix_floor.value(),
                None => profile.kernel_floor.value(),
            };
            let floor = floor + latency + product::further_time(cost, cached, profile);
            let mut busy = busy;
            let block_time = match cost.hold {
                Some(Hold::Block(time)) => time.0 as f64,
                // Waves of blocks follow each other, so that each takes a part of the kernel's time.
                Some(Hold::Kernel(time)) => {
                    (time.0 as f64 - floor).max(0.0) / grid.blocks.div_ceil(room(grid.share, profile)) as f64
                }
                None => {
                    let units = profile.units.value();
                    // Tiles can take less time than their operations at the rate of a whole device, which power limits.
                    let flops = if cost.tiling.flops > 0.0 { cost.tiling.flops } else { cost.flops };
                    let arithmetic = flops / unit_rate(cost, profile) * 1e9;
                    let issued = issue_time(cost, grid, grid.blocks as f64, profile);
                    (busy.vector, busy.matrix) = match cost.matrix {
                        Some(_) => (issued / units, arithmetic / units),
                        None => (issued.max(arithmetic) / units, 0.0),
                    };
                    wave_time(cost, grid, cached, [arithmetic / grid.blocks as f64, busy.memory], profile)
                }
            };
            let block_time = block_time + product::last_stores(cost, grid.waves(profile), profile);
            Task::Kernel { blocks: grid.blocks, share: grid.share, block_time, busy, floor }
        }
    }
}

/// Time in ns of the first access of a kernel to the device's memory. The cache serves a share of the accesses, and no thread waits for
/// what it writes.
fn first_access(cost: &Cost, cached: f64, profile: &Profile) -> f64 {
    let [memory, cache] = [profile.memory_wait.value(), profile.cache_wait.value()];
    match cost.read.device + cost.reread.device + cost.scratch.device {
        0 if cache > 0.0 => cache,
        _ => profile.memory_latency.value() - cached * (memory - cache).max(0.0),
    }
}

/// An operation on threads of the CPU, each of which moves bytes and computes values in turn. All threads share the bandwidth of the
/// host's memory.
fn on_host(spec: &Spec, threads: NonZeroU32, profile: &Profile) -> Task {
    let cost = spec.cost();
    if let Some(Hold::Block(time)) = cost.hold {
        return Task::Host { time: time.0 as f64, share: 0.0 };
    }
    let memory = &profile.host_memory;
    let threads = f64::from(threads.get());
    let rate = (threads * memory.thread.value()).min(memory.bandwidth.value());
    let moving = (cost.read + cost.written).host as f64 / rate * 1e9;
    let time = moving + spec.host_values() as f64 * memory.value.value() / threads;
    Task::Host { time, share: if time > 0.0 { moving / time * rate / memory.bandwidth.value() } else { 0.0 } }
}

/// Operations per second of a unit.
fn unit_rate(cost: &Cost, profile: &Profile) -> f64 {
    let peak = match cost.matrix {
        Some(arithmetic) => {
            let share = if cost.tiling.unaligned > 0 { profile.unaligned_matrix.value() } else { 1.0 };
            matrix_peak(arithmetic, profile) * efficiency(arithmetic, profile) * share
        }
        None => profile.peak["vector"].value(),
    };
    peak / profile.units.value()
}

/// Peak rate of the device's matrix units in operations per second.
pub fn matrix_peak(arithmetic: Arithmetic, profile: &Profile) -> f64 {
    profile.peak[arithmetic.name()].value()
}

fn efficiency(arithmetic: Arithmetic, profile: &Profile) -> f64 {
    profile.matrix_efficiency[arithmetic.name()].value()
}

/// Times for which the traffic of a launch with this many waves of blocks occupies memories and links, each without other traffic.
fn busy(cost: &Cost, waves: f64, cached: f64, profile: &Profile) -> Busy {
    let link = &profile.host_link;
    let bytes = device_time(cost, waves, cached, profile) + reread_time(cost, cached, profile);
    let sectors = memory_time(cost.sectors * ops::SECTOR as f64, 1.0, profile);
    Busy {
        memory: bytes.max(sectors),
        // The device does not cache host memory.
        to_device: (cost.read + cost.reread).host as f64 / link.kernel_reads.value() * 1e9,
        to_host: cost.written.host as f64 / link.kernel_writes.value() * 1e9,
        ..Busy::default()
    }
}

/// Time of the device's memory and cache for the bytes that a launch with this many waves of blocks reads and writes once.
fn device_time(cost: &Cost, waves: f64, cached: f64, profile: &Profile) -> f64 {
    // Operands with unaligned rows move at a part of the bandwidth.
    let unaligned = cost.tiling.unaligned as f64 * (1.0 / profile.unaligned_bandwidth.value() - 1.0);
    let bytes = ((cost.read + cost.written + cost.scratch).device + cost.moved) as f64 + unaligned;
    let written = (cost.written.device + cost.scratch.device / 2) as f64;
    let in_cache = cache_time([bytes - written, written], cost.exchanges > 0.0, waves, profile);
    // Memory that only writes never changes its direction.
    let is_write = written > 0.0 && written == bytes && cost.reread.device == 0;
    let share = match profile.write_efficiency.value() {
        share if share > 0.0 && is_write => profile.bandwidth_efficiency.value() / share,
        _ => 1.0,
    };
    cached * in_cache + (1.0 - cached) * memory_time(bytes, 0.0, profile) * share
}

/// Time in which the cache serves bytes that are read, and accepts bytes that are written.
///
/// Reads and writes overlap if some threads read while others write. Threads that exchange what they have read write after that, so the
/// blocks of a wave read together, and then write together.
fn cache_time(bytes: [f64; 2], exchanges: bool, waves: f64, profile: &Profile) -> f64 {
    let rates = [profile.cache_reads.value(), profile.cache_writes.value()];
    let whole = memory_time(bytes[0] + bytes[1], 1.0, profile);
    if rates.contains(&0.0) {
        return whole;
    }
    let [read, written] = [bytes[0] / rates[0] * 1e9, bytes[1] / rates[1] * 1e9];
    let apart = if exchanges { read.min(written) / waves } else { 0.0 };
    whole.max(read.max(written) + apart)
}

/// Time of memory for this many bytes, a share of which the cache serves.
fn memory_time(bytes: f64, cached: f64, profile: &Profile) -> f64 {
    let memory = profile.bandwidth.value() * profile.bandwidth_efficiency.value();
    let cache = profile.cache_bandwidth.value().max(memory);
    bytes * (cached / cache + (1.0 - cached) / memory) * 1e9
}

/// Time for bytes that several blocks read. The cache serves them if it can hold the data that all concurrent blocks
/// read.
fn reread_time(cost: &Cost, cached: f64, profile: &Profile) -> f64 {
    let at_once = profile.units.value() * f64::from(Cost::WHOLE_UNIT) / f64::from(cost.share.max(1));
    let share = (at_once / cost.blocks.max(1) as f64).min(1.0);
    let bytes = cost.reread.device as f64;
    let fits = bytes * share <= cache_room(profile);
    memory_time(bytes, if fits { 1.0 } else { cached }, profile)
}

/// Usable size of the cache in bytes: less than all of it, since its sets fill unevenly.
pub fn cache_room(profile: &Profile) -> f64 {
    0.75 * profile.cache.value()
}

/// True if the cache can hold everything that an operation accesses, so that it is cached when nothing runs in between.
pub fn fits_cache(spec: &Spec, profile: &Profile) -> bool {
    let cost = spec.cost();
    ((cost.read + cost.written + cost.scratch).device + cost.sent + cost.received) as f64 <= cache_room(profile)
}

/// Number of groups in which a kernel's blocks start if it has the device alone. A kernel with more waves starts
/// several waves together.
pub const GROUPS: u64 = 8;

/// Number of waves in a group, which start together, if a kernel of `blocks` blocks starts in `groups` groups. A wave has
/// `fit` blocks, those that fit now; `room` blocks fit on an empty device. No group takes longer than the whole kernel alone.
pub fn rounds(blocks: u64, fit: u64, room: u64, groups: u64) -> u64 {
    blocks.div_ceil(groups * fit).min(blocks.div_ceil(room))
}

/// Number of blocks that fit on an empty device if each occupies this share of a compute unit, in 1/32.
fn room(share: u32, profile: &Profile) -> u64 {
    let capacity = profile.units.value() as u64 * u64::from(Cost::WHOLE_UNIT);
    (capacity / u64::from(share)).max(1)
}

/// Duration of a task without other work, in ns.
pub fn alone(task: &Task, profile: &Profile) -> f64 {
    match *task {
        Task::Kernel { blocks, share, block_time, busy, floor } => {
            let room = room(share, profile);
            let group = room * rounds(blocks, room, room, GROUPS);
            let time = |count: u64| {
                let part = count as f64 / blocks as f64;
                (count.div_ceil(room) as f64 * block_time).max(busy.longest() * part)
            };
            // Rounded like the simulator's times.
            floor.round() + ((blocks / group) as f64 * time(group) + time(blocks % group)).round()
        }
        Task::Copy { direction, bytes, pageable } => {
            let engines = engines(direction, profile);
            let rate = if pageable {
                profile.pageable_bandwidth.value()
            } else {
                engines.bandwidth.value().min(engines.link.value())
            };
            engines.latency.value() + bytes / rate * 1e9
        }
        Task::Host { time, .. } => time,
        Task::Peer { bytes, rate, .. } => profile.device_to_host.latency.value() + bytes / rate * 1e9,
    }
}

/// The copy engines of a direction.
pub fn engines(direction: Direction, profile: &Profile) -> &crate::config::CopyEngines {
    match direction {
        Direction::DeviceToHost => &profile.device_to_host,
        _ => &profile.host_to_device,
    }
}

/// Duration of an operation without other work and without late ranks, in ns. `ranks` are the group's members as ranks
/// of the world; `cached` is as for [`tasks`].
pub fn duration(spec: &Spec, ranks: &[u32], cached: f64, profile: &Profile) -> f64 {
    duration_of(spec, &spec.launch(), ranks, cached, profile)
}

/// [`duration`] of an operation with these launches.
pub fn duration_of(spec: &Spec, launches: &[Launch], ranks: &[u32], cached: f64, profile: &Profile) -> f64 {
    let tasks = tasks(spec, launches, cached, profile);
    let apart = profile.gap_same.value() * tasks.len().saturating_sub(1) as f64;
    let each = launches.iter().filter(|launch| runs(launch, profile)).zip(&tasks).map(|(launch, task)| match launch {
        Launch::Collective(collectives) if ranks.len() > 1 => {
            let times = collectives.iter().map(|one| exchange(one, ranks, &profile.topology));
            profile.kernel_floor.value().round() + times.fold(0.0, f64::max).round()
        }
        Launch::Peer(_) => alone(task, profile) + peer::flags(spec, profile),
        _ => alone(task, profile),
    });
    each.sum::<f64>() + apart
}

/// Host time of the launching call, in ns.
pub fn issue(launch: &Launch, profile: &Profile) -> f64 {
    let host = &profile.host;
    match launch {
        Launch::Kernel(_) => &host.kernel,
        Launch::Gemm(..) => &host.matrix,
        Launch::Conv(_, kernels, products) => {
            let of_kernels = products.as_ref().map_or(kernels.len(), |products| products.first_kernel);
            return host.kernel.value() * of_kernels as f64;
        }
        Launch::Attention(_, kernels) => return host.kernel.value() * kernels.len() as f64,
        Launch::Ways(ways, _) => return host.kernel.value() * ways.ways[0].kernels as f64,
        Launch::Copy(copy) if copy.direction == Direction::DeviceToDevice => &host.copy_on_device,
        Launch::Copy(_) => &host.copy,
        Launch::Memset { .. } => &host.memset,
        // Another thread takes the command, as a stream of the device does.
        Launch::Host { .. } => &host.record,
        Launch::Collective(_) => &host.collective,
        Launch::Peer(peer) => match &peer.sends {
            Some(sent) => return issue(&sent.launch, profile),
            None => &host.wait,
        },
    }
    .value()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a flush, memory also writes the modified lines that an operation's bytes replace.
    #[test]
    fn replaced_lines_of_a_flush_are_written_back() {
        let profile = Profile::named("h100").unwrap();
        let kernel = Task::Kernel {
            blocks: 1,
            share: 1,
            block_time: 0.0,
            busy: Busy::default(),
            floor: profile.kernel_floor.value(),
        };
        let copy = Task::Copy { direction: Direction::HostToDevice, bytes: 1e6, pageable: false };
        let mut tasks = [copy, kernel, kernel];
        add_write_back(&mut tasks, 16e6, &profile);
        assert_eq!((tasks[0], tasks[2]), (copy, kernel), "only the first kernel replaces lines");
        let further = alone(&tasks[1], &profile) - alone(&kernel, &profile);
        // 7.5 MB at 2.97 TB/s.
        assert!((2000.0..3000.0).contains(&further), "{further} ns");
    }
}
