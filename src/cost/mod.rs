//! What an operation costs on a device: a roofline with waves of blocks, and the links.
//!
//! A figure from here is a model's; it is printed as *simulated* or *modelled*, never as measured.

pub mod cache;
mod exchange;
pub mod floor;
mod ideal;
mod peer;

use crate::config::Profile;
use crate::ops::{self, Arithmetic, Cost, Direction, Launch, Spec, Traffic};

pub use exchange::{Load, Path, exchange, inwards, link_rate, loads, outwards};
pub use ideal::{Ideal, Resource};
pub use peer::peer;

/// What one launch takes from a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Task {
    /// Runs on compute units.
    Kernel {
        /// Thread blocks.
        blocks: u64,
        /// How much of a unit each occupies, in 1/32.
        share: u32,
        /// How long one takes when memory is no limit, in ns.
        block_time: f64,
        /// How long its traffic keeps memories and links busy.
        busy: Busy,
        /// From its start until its blocks begin, in ns.
        floor: f64,
    },
    /// Moves bytes over the link to the host.
    Copy {
        direction: Direction,
        bytes: f64,
        /// By way of a staging buffer, while the host waits.
        pageable: bool,
    },
    /// Moves bytes to another device.
    Peer {
        /// The rank that gets them.
        to: u32,
        bytes: f64,
        /// Bytes per second of the link.
        rate: f64,
    },
}

/// How long a kernel's traffic keeps each memory and link busy when the kernel has it alone, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Busy {
    /// The device's memory.
    pub memory: f64,
    /// The link from the host, by what the kernel reads there.
    pub to_device: f64,
    /// The link to the host, by what the kernel writes there.
    pub to_host: f64,
    /// The link to another rank; None where nothing goes to one.
    pub peer: Option<(u32, f64)>,
}

impl Busy {
    /// What limits the kernel: its traffic goes on side by side.
    pub fn longest(&self) -> f64 {
        let peer = self.peer.map_or(0.0, |(_, time)| time);
        [self.memory, self.to_device, self.to_host, peer].into_iter().fold(0.0, f64::max)
    }

    /// That of a part of the kernel's traffic.
    pub fn scaled(self, part: f64) -> Busy {
        Busy {
            memory: self.memory * part,
            to_device: self.to_device * part,
            to_host: self.to_host * part,
            peer: self.peer.map(|(to, time)| (to, time * part)),
        }
    }
}

/// The tasks of an operation, one for each of its launches; `cached` is the share of its bytes in device memory that the
/// device's cache serves, from 0 to 1.
pub fn tasks(spec: &Spec, launches: &[Launch], cached: f64, profile: &Profile) -> Vec<Task> {
    if let [Launch::Peer(_)] = launches {
        return vec![peer(spec, profile)];
    }
    let cost = spec.cost();
    let parts = launches.len() as f64;
    let busy = busy(spec, cached, profile).scaled(1.0 / parts);
    launches.iter().map(|launch| task(launch, &cost, parts, busy, profile)).collect()
}

fn task(launch: &Launch, cost: &Cost, parts: f64, busy: Busy, profile: &Profile) -> Task {
    // The first byte takes its time, however few there are.
    let latency = match (cost.read + cost.written, cost.matrix) {
        (Traffic { host: 1.., .. }, _) => profile.host_link.latency.value(),
        (Traffic { device: 1.., .. }, None) => profile.memory_latency.value(),
        _ => 0.0,
    };
    match launch {
        Launch::Copy(copy) if copy.direction != Direction::DeviceToDevice => {
            Task::Copy { direction: copy.direction, bytes: copy.bytes() as f64, pageable: copy.pageable }
        }
        Launch::Copy(_) | Launch::Memset { .. } => {
            Task::Kernel { blocks: 1, share: 1, block_time: 0.0, busy, floor: profile.kernel_floor.value() + latency }
        }
        Launch::Peer(_) => unreachable!("a copy between ranks is one launch by itself"),
        Launch::Collective(_) => Task::Kernel {
            // A channel a block, as the vendors' libraries use them.
            blocks: 16,
            share: Cost::WHOLE_UNIT,
            block_time: 0.0,
            busy,
            floor: profile.collective_floor.value(),
        },
        Launch::Kernel(_) | Launch::Gemm(_) => {
            let blocks = ((cost.blocks as f64 / parts).ceil() as u64).max(1);
            let block_time = match cost.hold {
                Some(time) => time.0 as f64,
                None => {
                    (cost.flops / block_rate(cost, profile)).max(issue_time(cost, profile)) / parts / blocks as f64
                        * 1e9
                }
            };
            let floor = match cost.matrix {
                Some(_) => profile.matrix_floor.value(),
                None => profile.kernel_floor.value(),
            };
            Task::Kernel { blocks, share: cost.share.max(1), block_time, busy, floor: floor + latency }
        }
    }
}

/// Operations per second of one block, when as many run as fit.
fn block_rate(cost: &Cost, profile: &Profile) -> f64 {
    let peak = match cost.matrix {
        Some(arithmetic) => matrix_peak(arithmetic, profile) * efficiency(arithmetic, profile),
        None => profile.peak["vector"].value(),
    };
    let resident = profile.units.value() * f64::from(Cost::WHOLE_UNIT) / f64::from(cost.share.max(1));
    peak / resident
}

/// How long a block's instructions would take, were it to have all of them, while as many blocks share its unit as there
/// are, in seconds.
///
/// Special-function units work beside the others, and what they do is issued like the rest: the longer of the two counts.
/// The sum of both at their peaks is already more than a chain of maps was measured to take
/// (docs/measurements/2026-11-21-beside-others.md, 132 µs for 118).
fn issue_time(cost: &Cost, profile: &Profile) -> f64 {
    // The peak counts a fused multiply-add as two, and it is one instruction.
    let issued = cost.instructions / (profile.peak["vector"].value() / 2.0 * profile.vector_efficiency.value());
    let special = cost.special / profile.peak["special"].value();
    let units = profile.units.value();
    let fit = f64::from(Cost::WHOLE_UNIT) / f64::from(cost.share.max(1));
    issued.max(special) * units * (cost.blocks as f64 / units).ceil().clamp(1.0, fit.max(1.0))
}

/// Operations per second that the device's matrix units can do at most.
pub fn matrix_peak(arithmetic: Arithmetic, profile: &Profile) -> f64 {
    profile.peak[arithmetic.name()].value()
}

fn efficiency(arithmetic: Arithmetic, profile: &Profile) -> f64 {
    profile.matrix_efficiency[arithmetic.name()].value()
}

/// How long an operation's traffic keeps memories and links busy, each alone.
fn busy(spec: &Spec, cached: f64, profile: &Profile) -> Busy {
    let cost = spec.cost();
    let device = (cost.read + cost.written).device as f64;
    let link = &profile.host_link;
    Busy {
        memory: memory_time(device, cached, profile) + reread_time(&cost, cached, profile),
        // No cache of the device keeps what lies on the host.
        to_device: (cost.read + cost.reread).host as f64 / link.kernel_reads.value() * 1e9,
        to_host: cost.written.host as f64 / link.kernel_writes.value() * 1e9,
        peer: None,
    }
}

/// How long memory takes for that many bytes, of which the cache serves a share.
fn memory_time(bytes: f64, cached: f64, profile: &Profile) -> f64 {
    let memory = profile.bandwidth.value() * profile.bandwidth_efficiency.value();
    let cache = profile.cache_bandwidth.value().max(memory);
    bytes * (cached / cache + (1.0 - cached) / memory) * 1e9
}

/// How long memory takes for what blocks read once more: the cache has it where it holds what all that run at once read.
fn reread_time(cost: &Cost, cached: f64, profile: &Profile) -> f64 {
    let at_once = profile.units.value() * f64::from(Cost::WHOLE_UNIT) / f64::from(cost.share.max(1));
    let share = (at_once / cost.blocks.max(1) as f64).min(1.0);
    let bytes = cost.reread.device as f64;
    let held = bytes * share <= cache_room(profile);
    memory_time(bytes, if held { 1.0 } else { cached }, profile)
}

/// Bytes that stay in the cache from one use to the next: not all of it, since its sets fill unevenly.
pub fn cache_room(profile: &Profile) -> f64 {
    0.75 * profile.cache.value()
}

/// Whether the cache holds all that an operation touches, so that it is found there when nothing comes between.
pub fn fits_cache(spec: &Spec, profile: &Profile) -> bool {
    let cost = spec.cost();
    ((cost.read + cost.written).device + cost.sent + cost.received) as f64 <= cache_room(profile)
}

/// Groups in which a kernel's blocks begin, where it has the device for itself: of a kernel that takes more rounds of the
/// device, several rounds go together.
pub const GROUPS: u64 = 8;

/// Rounds of the device that begin together when `fit` blocks of a kernel find room now, and `room` on an empty device. No
/// group lasts longer than all of the kernel on a device of its own.
pub fn rounds(blocks: u64, fit: u64, room: u64, groups: u64) -> u64 {
    blocks.div_ceil(groups * fit).min(blocks.div_ceil(room))
}

/// How long a task takes when it has the device alone, in ns.
pub fn alone(task: &Task, profile: &Profile) -> f64 {
    match *task {
        Task::Kernel { blocks, share, block_time, busy, floor } => {
            let capacity = profile.units.value() as u64 * u64::from(Cost::WHOLE_UNIT);
            let room = (capacity / u64::from(share)).max(1);
            let group = room * rounds(blocks, room, room, GROUPS);
            let time = |count: u64| {
                let part = count as f64 / blocks as f64;
                (count.div_ceil(room) as f64 * block_time).max(busy.longest() * part)
            };
            // Rounded as the simulator rounds them.
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

/// How long an operation takes when it has the device and all links alone, and no rank is late, in ns. `ranks` are those of
/// its group, as the world counts them; `cached` is as for [`tasks`].
pub fn duration(spec: &Spec, ranks: &[u32], cached: f64, profile: &Profile) -> f64 {
    let launches = spec.launch();
    let tasks = tasks(spec, &launches, cached, profile);
    let apart = profile.gap_same.value() * launches.len().saturating_sub(1) as f64;
    let each = launches.iter().zip(&tasks).map(|(launch, task)| match launch {
        Launch::Collective(collectives) if ranks.len() > 1 => {
            let times = collectives.iter().map(|one| exchange(one, ranks, &profile.topology));
            profile.kernel_floor.value().round() + times.fold(0.0, f64::max).round()
        }
        Launch::Peer(_) => alone(task, profile) + flags(spec, profile),
        _ => alone(task, profile),
    });
    each.sum::<f64>() + apart
}

/// How long a rank waits for the flags of a copy between ranks: until what arrives may be written, and has arrived.
fn flags(spec: &Spec, profile: &Profile) -> f64 {
    let rank = spec.team.rank;
    let crossing = ops::crossing(spec);
    let sends = crossing.and_then(|crossing| crossing.sends.as_ref()).is_some_and(|(to, _)| *to != rank);
    let receives = crossing.is_some_and(|crossing| crossing.from.iter().any(|from| *from != rank));
    let flags = match (sends, receives) {
        (_, true) => 2.0,
        (true, false) => 1.0,
        (false, false) => 0.0,
    };
    profile.topology.flag.value() * flags
}

/// What issuing a launch costs the host, until the call returns, in ns.
pub fn issue(launch: &Launch, profile: &Profile) -> f64 {
    let host = &profile.host;
    match launch {
        Launch::Kernel(_) => &host.kernel,
        Launch::Gemm(_) => &host.matrix,
        Launch::Copy(copy) if copy.direction == Direction::DeviceToDevice => &host.copy_on_device,
        Launch::Copy(_) => &host.copy,
        Launch::Memset { .. } => &host.memset,
        Launch::Collective(_) => &host.collective,
        Launch::Peer(peer) => match &peer.sends {
            Some(sent) => return issue(&sent.launch, profile),
            None => &host.wait,
        },
    }
    .value()
}
