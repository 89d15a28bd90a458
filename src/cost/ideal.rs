//! The time for which an operation keeps each resource of a device busy at the resource's peak rate, and which of them
//! bounds it.

use crate::config::{Links, Profile, Wiring};
use crate::ops::{self, Arithmetic, Category, Collective, CollectiveKind, Direction, Launch, Spec};

use super::exchange::{Load, Path, inwards, loads, outwards};

/// A part of a device, or of what connects it, that has a peak rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resource {
    /// The matrix units, in a type.
    Matrix(Arithmetic),
    /// The vector units.
    Vector,
    /// The device's memory.
    Memory,
    /// The last cache before the memory.
    Cache,
    /// The link to the host, by direction.
    FromHost,
    ToHost,
    /// What connects ranks of one node, and what connects nodes; in one direction.
    Within,
    Across,
}

impl Resource {
    /// Its short name: `bf16`, `memory`, `h2d`, or what the topology calls the link.
    pub fn name(self, profile: &Profile) -> &str {
        match self {
            Resource::Matrix(arithmetic) => arithmetic.name(),
            Resource::Vector => "vector",
            Resource::Memory => "memory",
            Resource::Cache => "cache",
            Resource::FromHost => Direction::HostToDevice.short(),
            Resource::ToHost => Direction::DeviceToHost.short(),
            Resource::Within => &profile.topology.within.name,
            Resource::Across => &profile.topology.across.name,
        }
    }
}

/// How long an operation keeps each resource busy, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ideal {
    /// The type in which matrix units multiply; `None` where vector units compute.
    matrix: Option<Arithmetic>,
    pub arithmetic: f64,
    pub memory: f64,
    pub cache: f64,
    from_host: f64,
    to_host: f64,
    within: f64,
    across: f64,
}

impl Ideal {
    /// Of an operation of one rank. `ranks` are those of its group, as the world counts them. `cached` is the share of its
    /// bytes in device memory that the cache serves, from 0 to 1.
    pub fn of(spec: &Spec, ranks: &[u32], cached: f64, profile: &Profile) -> Ideal {
        let mut ideal = Ideal::default();
        if let Some((direction, bytes)) = super::floor::link_bytes(spec) {
            *ideal.host_link(direction) = bytes / super::engines(direction, profile).peak() * 1e9;
            return ideal;
        }
        let cost = spec.cost();
        if let Some(crossing) = ops::crossing(spec) {
            let own = spec.team.rank;
            let links = &profile.topology;
            let port = links.port.copies.value();
            let out = crossing.sends.iter().filter_map(|(to, _)| outwards(own, *to, cost.sent as f64, port, links));
            let from = crossing.from.iter().zip(&spec.outputs);
            let into = from.filter_map(|(from, output)| inwards(*from, own, output.bytes() as f64, port, links));
            ideal.add_loads(out.chain(into), links);
        } else if spec.operation.category() == Category::Collective {
            if ranks.len() > 1 {
                let launches = spec.launch();
                let entries = launches.iter().flat_map(|launch| match launch {
                    Launch::Collective(entries) => &entries[..],
                    _ => &[],
                });
                let links = &profile.topology;
                ideal.add_loads(entries.flat_map(|entry| least_loads(entry, ranks, links)), links);
            }
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
    fn add_loads(&mut self, loads: impl Iterator<Item = Load>, links: &Links) {
        let mut busy: std::collections::BTreeMap<Path, f64> = std::collections::BTreeMap::new();
        for load in loads {
            *busy.entry(load.path).or_default() += load.bytes;
        }
        for (path, bytes) in busy {
            let (peak, time) = match path {
                Path::CardOut { .. } | Path::CardIn { .. } => (links.peak_across(), &mut self.across),
                Path::Out(_) | Path::In(_) | Path::Pair { .. } => (links.peak_within(), &mut self.within),
            };
            *time = time.max(bytes / peak * 1e9);
        }
    }

    /// How long its traffic with the device's memory takes, whatever serves it.
    pub fn traffic(&self) -> f64 {
        self.memory + self.cache
    }

    /// The resource that it keeps busy longest, and for how long. `None` where it needs none.
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
        // Of equal ones the first.
        all.into_iter().rev().max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, time)| *time > 0.0)
    }
}

/// The least that a rank's part of a collective puts on the links. Where a switch connects ranks, it can add up what they
/// send: an all-reduce then crosses each port once.
fn least_loads(collective: &Collective, ranks: &[u32], links: &Links) -> Vec<Load> {
    let mut loads = loads(collective, ranks, links);
    if collective.kind == CollectiveKind::AllReduce && links.wiring == Wiring::Switch {
        let whole = collective.bytes() as f64;
        let ports = loads.iter_mut().filter(|load| matches!(load.path, Path::Out(_) | Path::In(_)));
        ports.for_each(|load| load.bytes = load.bytes.min(whole));
    }
    loads
}
