//! The time for which an operation occupies each resource of a device at its peak rate, and the resource that limits
//! it.

use std::collections::BTreeMap;

use crate::config::{Links, Profile, Wiring};
use crate::ops::{self, Arithmetic, Category, Collective, CollectiveKind, Direction, Launch, Spec};

use super::exchange::{Load, Path, loads, receiver_load, sender_load};

/// A resource with a peak rate: a part of a device, or a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resource {
    /// The matrix units, for one type of arithmetic.
    Matrix(Arithmetic),
    /// The vector units.
    Vector,
    /// The device's memory.
    Memory,
    /// The last-level cache.
    Cache,
    /// The link to the host, by direction.
    FromHost,
    ToHost,
    /// Links within a node and between nodes, in one direction.
    Within,
    Across,
}

impl Resource {
    /// Short name: `bf16`, `memory`, `h2d`, or the topology's name of the link.
    pub fn name(self, profile: &Profile) -> &str {
        match self {
            Resource::Matrix(arithmetic) => arithmetic.name(),
            Resource::Vector => "vector",
            Resource::Memory => "memory",
            Resource::Cache => "cache",
            Resource::FromHost => Direction::HostToDevice.name(),
            Resource::ToHost => Direction::DeviceToHost.name(),
            Resource::Within => &profile.topology.within.name,
            Resource::Across => &profile.topology.across.name,
        }
    }
}

/// Time in ns for which an operation occupies each resource.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ideal {
    /// The type of arithmetic of the matrix units; `None` if the vector units compute.
    matrix: Option<Arithmetic>,
    pub arithmetic: f64,
    pub memory: f64,
    pub cache: f64,
    from_host: f64,
    to_host: f64,
    /// Links between devices of a node.
    within: f64,
    /// Network cards between nodes.
    across: f64,
}

impl Ideal {
    /// Computes the times of an operation. `ranks` are the group's members as ranks of the world. `cached` is the share
    /// of its bytes in device memory that the cache serves, from 0 to 1. All times are 0 if a tensor determines how much an
    /// operation moves between ranks.
    pub fn of(spec: &Spec, ranks: &[u32], cached: f64, profile: &Profile) -> Ideal {
        let mut ideal = Ideal::default();
        // The CPU's peak rates are not known.
        if spec.threads.is_some() || ops::has_unknown_size(spec) {
            return ideal;
        }
        if let Some((direction, bytes)) = super::floor::link_bytes(spec) {
            *ideal.host_link(direction) = bytes / super::engines(direction, profile).peak() * 1e9;
            return ideal;
        }
        let cost = spec.cost();
        ideal.add_loads(loads_between(spec, ranks, profile), &profile.topology);
        if spec.operation.category() == Category::Collective {
            return ideal;
        }
        let peak = match cost.matrix {
            Some(arithmetic) => super::matrix_peak(arithmetic, profile),
            None => profile.peak["vector"].value(),
        };
        ideal.matrix = cost.matrix;
        ideal.arithmetic = cost.flops / peak * 1e9;
        let device = (cost.read + cost.written).device as f64;
        let memory = profile.bandwidth.value();
        ideal.memory = device * (1.0 - cached) / memory * 1e9;
        ideal.cache = device * cached / profile.cache_bandwidth.value().max(memory) * 1e9;
        let (read, written) = super::floor::host_bytes(spec);
        for (direction, bytes) in [(Direction::HostToDevice, read), (Direction::DeviceToHost, written)] {
            *ideal.host_link(direction) += bytes / super::engines(direction, profile).peak() * 1e9;
        }
        ideal
    }

    fn host_link(&mut self, direction: Direction) -> &mut f64 {
        if direction == Direction::DeviceToHost { &mut self.to_host } else { &mut self.from_host }
    }

    /// Adds the time of the busiest link of each kind.
    fn add_loads(&mut self, loads: Vec<Load>, links: &Links) {
        let mut busy = LinkTimes::default();
        busy.add_loads(loads, links);
        for ((resource, _), time) in busy.0 {
            let longest = if resource == Resource::Across { &mut self.across } else { &mut self.within };
            *longest = longest.max(time);
        }
    }

    /// Time of its memory traffic, from the cache and from memory, in ns.
    pub fn traffic(&self) -> f64 {
        self.memory + self.cache
    }

    /// The resource that the operation occupies longest, and that time in ns. `None` if it needs no resource.
    pub fn bound(&self) -> Option<(Resource, f64)> {
        let arithmetic = self.matrix.map_or(Resource::Vector, Resource::Matrix);
        let memory = if self.memory >= self.cache { Resource::Memory } else { Resource::Cache };
        let all = [
            (memory, self.traffic()),
            (arithmetic, self.arithmetic),
            (Resource::FromHost, self.from_host),
            (Resource::ToHost, self.to_host),
            (Resource::Within, self.within),
            (Resource::Across, self.across),
        ];
        // The first of equal ones.
        all.into_iter().rev().max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, time)| *time > 0.0)
    }
}

/// Times in ns for which operations together occupy each link at its peak.
#[derive(Debug, Default)]
pub struct LinkTimes(BTreeMap<(Resource, Option<Path>), f64>);

impl LinkTimes {
    /// Adds the times of an operation. `ranks` are the group's members as ranks of the world.
    pub fn add(&mut self, spec: &Spec, ranks: &[u32], profile: &Profile) {
        let Ideal { from_host, to_host, .. } = Ideal::of(spec, ranks, 0.0, profile);
        for (resource, time) in [(Resource::FromHost, from_host), (Resource::ToHost, to_host)] {
            *self.0.entry((resource, None)).or_default() += time;
        }
        if spec.threads.is_none() && !ops::has_unknown_size(spec) {
            self.add_loads(loads_between(spec, ranks, profile), &profile.topology);
        }
    }

    fn add_loads(&mut self, loads: Vec<Load>, links: &Links) {
        for Load { path, bytes, .. } in loads {
            let (resource, peak) = match path {
                Path::CardOut { .. } | Path::CardIn { .. } => (Resource::Across, links.peak_across()),
                Path::Out(_) | Path::In(_) | Path::Pair { .. } => (Resource::Within, links.peak_within()),
            };
            *self.0.entry((resource, Some(path))).or_default() += bytes / peak * 1e9;
        }
    }

    /// The link with the longest time, and that time; `None` without any traffic.
    pub fn longest(&self) -> Option<(Resource, f64)> {
        let times = self.0.iter().map(|(&(resource, _), &time)| (resource, time));
        times.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, time)| *time > 0.0)
    }
}

/// Minimum loads of one rank's part of an operation on links between ranks; none if it takes no part in a transfer.
pub(super) fn loads_between(spec: &Spec, ranks: &[u32], profile: &Profile) -> Vec<Load> {
    let (own, links) = (spec.team.rank, &profile.topology);
    if let Some(crossing) = ops::crossing(spec) {
        let port = links.port.copies.value();
        let sent = spec.cost().sent as f64;
        let out = crossing.sends.iter().filter_map(|(to, _)| sender_load(own, *to, sent, port, links));
        let from = crossing.from.iter().zip(&spec.outputs);
        let into =
            from.filter_map(|(from, output)| receiver_load(*from, own, crossing.bytes(output) as f64, port, links));
        return out.chain(into).collect();
    }
    if spec.operation.category() != Category::Collective || ranks.len() < 2 {
        return Vec::new();
    }
    let launches = spec.launch();
    launches.iter().flat_map(Launch::collectives).flat_map(|entry| least_loads(entry, ranks, links)).collect()
}

/// Minimum loads of one rank of a collective. A switch can reduce data in transit, so that an all-reduce crosses each
/// port once.
fn least_loads(collective: &Collective, ranks: &[u32], links: &Links) -> Vec<Load> {
    let mut loads = loads(collective, ranks, links);
    if collective.kind == CollectiveKind::AllReduce && links.wiring == Wiring::Switch {
        let whole = collective.bytes() as f64;
        let ports = loads.iter_mut().filter(|load| matches!(load.path, Path::Out(_) | Path::In(_)));
        ports.for_each(|load| load.bytes = load.bytes.min(whole));
    }
    loads
}
