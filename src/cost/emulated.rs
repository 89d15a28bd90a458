//! Use of links by one rank of an emulated world, in which kernels stand for its operations with other ranks.

use std::collections::BTreeMap;

use crate::config::Profile;
use crate::ops::{self, Launch, Spec};

use super::exchange::{Load, Path, exchange, loads};
use super::ideal::loads_between;

/// Times in ns for which operations of one rank occupy each link that they use.
#[derive(Debug, Default)]
pub struct OccupiedLinks(BTreeMap<Path, f64>);

impl OccupiedLinks {
    /// Adds the times of an operation. `ranks` are the group's members as ranks of the world.
    ///
    /// A switch reduces data in transit, so that the bytes of a reduction may need more time than it takes. No call occupies a
    /// link for longer than its own duration.
    pub fn add(&mut self, spec: &Spec, ranks: &[u32], profile: &Profile) {
        if ops::crossing(spec).is_some() {
            return self.add_loads(loads_between(spec, ranks, profile), f64::INFINITY);
        }
        for call in spec.launch().iter().flat_map(Launch::collectives) {
            let time = exchange(call, ranks, &profile.topology);
            self.add_loads(loads(call, ranks, &profile.topology), time);
        }
    }

    fn add_loads(&mut self, loads: Vec<Load>, longest: f64) {
        for Load { path, bytes, capacity } in loads {
            *self.0.entry(path).or_default() += (bytes / capacity * 1e9).min(longest);
        }
    }

    /// The longest time of a link; 0 without any.
    pub fn busiest(&self) -> f64 {
        self.0.values().copied().fold(0.0, f64::max)
    }
}
