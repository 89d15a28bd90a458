//! Times of a profile by which the simulated driver places its tasks, in whole ns.

use crate::config::Profile;
use crate::cost::{self, Task};

use super::machine::{Time, whole};

/// Times of host calls, and gaps between tasks.
pub struct Costs {
    pub record: Time,
    pub wait: Time,
    pub stamp: Time,
    pub gap_same: Time,
    pub gap_event: Time,
    pub gap_wait: Time,
    pub latency: Time,
    pub graph_launch: Time,
    pub graph_branch: Time,
    pub graph_gap: Time,
    pub graph_start: Time,
    pub graph_cold: Time,
    /// Time between the starts of two nodes without dependencies.
    pub graph_root: Time,
    /// Time by which nodes start later in a process that has launched on several streams: with hot caches, and after a flush.
    pub graph_reads: [Time; 2],
    pub depth: u32,
    /// Host time and task of a flush of the caches.
    pub flush: (Time, Task),
}

impl Costs {
    /// Reads the times of a profile.
    pub fn new(profile: &Profile) -> Costs {
        Costs {
            record: whole(profile.host.record.value()),
            wait: whole(profile.host.wait.value()),
            stamp: whole(profile.host.stamp.value()),
            gap_same: whole(profile.gap_same.value()),
            gap_event: whole(profile.gap_event.value()),
            gap_wait: whole(profile.gap_wait.value()),
            latency: whole(profile.launch_latency.value()),
            graph_launch: whole(profile.graph.launch.value()),
            graph_branch: whole(profile.graph.launch_branch.value()),
            graph_gap: whole(profile.graph.gap.value()),
            graph_start: whole(profile.graph.start.value()),
            graph_cold: whole(cost::cold_node(profile)),
            graph_root: whole(profile.graph.dispatch_root.value()),
            graph_reads: [&profile.cache_wait, &profile.memory_wait].map(|wait| whole(wait.value())),
            depth: profile.host.queue_depth.value() as u32,
            flush: (whole(profile.host.memset.value()), cost::flush(profile)),
        }
    }
}
