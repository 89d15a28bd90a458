//! Capacities that tasks of all devices share: arithmetic, memories, links to the host, and links between devices.

use rustc_hash::FxHashMap;

use crate::config::Profile;
use crate::cost::{self, Busy, Load, Path, Task};
use crate::ops::Direction;

use super::super::flows::{CapacityId, Demand, Flows};
use super::Owner;

/// Demands for a smaller share of a capacity are ignored.
const NEGLIGIBLE: f64 = 1e-3;

/// Number of the capacity of a device's memory among the device's capacities.
const MEMORY: u32 = 0;
/// Host link to the device.
const TO_DEVICE: u32 = 1;
/// Host link to the host.
const TO_HOST: u32 = 2;
/// Host link in both directions together.
const BOTH: u32 = 3;
/// Memory of the host as far as the rank's host streams share it.
const HOST: u32 = 4;
/// Vector units of all compute units.
const VECTOR: u32 = 5;
/// Matrix units of all compute units.
const MATRIX: u32 = 6;
/// The thread of the driver that moves pageable memory through the staging buffer.
const STAGING: u32 = 7;
/// Number of capacities of a device.
const OF_DEVICE: u32 = 8;

/// The capacities of all devices, and those of the links that were used so far.
#[derive(Debug)]
pub(super) struct Paths {
    /// Rank of each device.
    ranks: Vec<u32>,
    /// Capacities of the links between devices, added at their first use.
    between: FxHashMap<Path, CapacityId>,
    profile: Profile,
}

impl Paths {
    /// Adds the capacities of the devices to `flows`, which must be empty.
    pub(super) fn new(profile: &Profile, ranks: &[u32], flows: &mut Flows<Owner>) -> Paths {
        (0..ranks.len() as u32 * OF_DEVICE).for_each(|_| {
            flows.resource();
        });
        Paths { ranks: ranks.to_vec(), between: FxHashMap::default(), profile: profile.clone() }
    }

    fn of_device(device: usize, capacity: u32) -> CapacityId {
        device as u32 * OF_DEVICE + capacity
    }

    /// Demands of a part of a kernel that takes `time` ns without contention, and that keeps arithmetic, memories and links
    /// busy for the times in `busy`.
    pub(super) fn kernel(&mut self, device: usize, busy: &Busy, time: f64, flows: &mut Flows<Owner>) -> Vec<Demand> {
        let mut demands = Vec::new();
        let mut add = |capacity: u32, share: f64| {
            if share >= NEGLIGIBLE {
                demands.push(Demand { resource: Self::of_device(device, capacity), share: share.min(1.0) });
            }
        };
        if time <= 0.0 {
            return demands;
        }
        add(MEMORY, busy.memory / time);
        add(VECTOR, busy.vector / time);
        add(MATRIX, busy.matrix / time);
        if busy.to_device + busy.to_host > 0.0 {
            let link = &self.profile.host_link;
            let other_way = link.kernel_other_way.value();
            add(TO_DEVICE, busy.to_device.max(busy.to_host * other_way) / time);
            add(TO_HOST, busy.to_host.max(busy.to_device * other_way) / time);
            let bytes = busy.to_device * link.kernel_reads.value() + busy.to_host * link.kernel_writes.value();
            add(BOTH, bytes / link.both.value() / time);
        }
        if let Some((to, busy)) = busy.peer {
            let bytes = busy * 1e-9 * cost::link_rate(self.ranks[device], to, &self.profile.topology);
            demands.extend(self.peer(device, to, bytes, time, flows));
        }
        demands
    }

    /// Duration in ns, without contention, of a copy whose latency has passed or of work of the host; and its demands.
    pub(super) fn copy(&mut self, device: usize, task: &Task, flows: &mut Flows<Owner>) -> (f64, Vec<Demand>) {
        match *task {
            Task::Copy { direction, bytes, pageable } => {
                let engines = cost::engines(direction, &self.profile);
                let most = if pageable { self.profile.pageable_bandwidth.value() } else { f64::INFINITY };
                let rate = engines.bandwidth.value().min(engines.link.value()).min(most);
                let one_way = if direction == Direction::DeviceToHost { TO_HOST } else { TO_DEVICE };
                let demand = |capacity, share: f64| Demand {
                    resource: Self::of_device(device, capacity),
                    share: share.min(1.0),
                };
                let both = rate / self.profile.host_link.both.value();
                let mut demands = vec![demand(one_way, rate / engines.link.value()), demand(BOTH, both)];
                demands.extend(pageable.then(|| demand(STAGING, rate / most)));
                (bytes / rate * 1e9, demands)
            }
            Task::Peer { to, bytes, rate } => {
                let time = bytes / rate * 1e9;
                (time, self.peer(device, to, bytes, time, flows))
            }
            Task::Host { time, share } => {
                let demand = Demand { resource: Self::of_device(device, HOST), share };
                (time, Vec::from_iter((share > 0.0).then_some(demand)))
            }
            Task::Kernel { .. } => unreachable!("a kernel is no copy"),
        }
    }

    /// Demands of a copy of `bytes` bytes to rank `to` that takes `time` ns without contention.
    fn peer(&mut self, device: usize, to: u32, bytes: f64, time: f64, flows: &mut Flows<Owner>) -> Vec<Demand> {
        let (from, links) = (self.ranks[device], &self.profile.topology);
        let port = links.port.copies.value();
        let loads =
            [cost::sender_load(from, to, bytes, port, links), cost::receiver_load(from, to, bytes, port, links)];
        let loads: Vec<Load> = loads.into_iter().flatten().collect();
        self.between(&loads, time, flows)
    }

    /// Demands of a transfer that puts these loads on links and takes `time` ns without contention.
    pub(super) fn between(&mut self, loads: &[Load], time: f64, flows: &mut Flows<Owner>) -> Vec<Demand> {
        if time <= 0.0 {
            return Vec::new();
        }
        let mut shares: Vec<(Path, f64)> =
            loads.iter().map(|load| (load.path, load.bytes / load.capacity * 1e9 / time)).collect();
        shares.sort_unstable_by_key(|(path, _)| *path);
        shares.dedup_by(|other, first| {
            let same = other.0 == first.0;
            first.1 += if same { other.1 } else { 0.0 };
            same
        });
        let noticed = shares.into_iter().filter(|(_, share)| *share >= NEGLIGIBLE);
        let demand = |(path, share): (Path, f64)| {
            let resource = *self.between.entry(path).or_insert_with(|| flows.resource());
            Demand { resource, share: share.min(1.0) }
        };
        noticed.map(demand).collect()
    }
}
