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
    /// Time of the wait of a graph's branch for a branch of its previous launch.
    pub branch_wait: Time,
    /// Number of hardware queues to which a graph assigns its branches in turn.
    pub queues: u64,
    /// Time between the starts of two root nodes of the same hardware queue, and of two root nodes of different ones.
    pub graph_roots: [Time; 2],
    /// Time in which the front end changes to the hardware queue of another branch.
    pub queue_switch: Time,
    /// Further time until a copy engine starts behind the engine of kernels, which executes stamps and launches graphs.
    pub gap_engine: Time,
    /// Time in which the front end reads the launch of a node: additional if the process has launched on several streams.
    pub graph_read: Time,
    pub depth: u32,
    /// Host time and task of a flush of the caches.
    pub flush: (Time, Task),
}

impl Costs {
    /// Reads the times of a profile. `is_cold` is true if the caches do not hold the commands of an iteration when it begins.
    pub fn new(profile: &Profile, is_cold: bool) -> Costs {
        let reads = [&profile.cache_wait, &profile.memory_wait].map(|wait| wait.value());
        // The device reads a wait in several steps, one after the other, and hot caches shorten each of them.
        let share = if is_cold || reads[1] == 0.0 { 1.0 } else { (reads[0] / reads[1]).min(1.0) };
        Costs {
            record: whole(profile.host.record.value()),
            wait: whole(profile.host.wait.value()),
            stamp: whole(profile.host.stamp.value()),
            gap_same: whole(profile.gap_same.value()),
            gap_event: whole(profile.gap_event.value()),
            gap_wait: whole(profile.gap_wait.value() * share),
            latency: whole(profile.launch_latency.value()),
            graph_launch: whole(profile.graph.launch.value()),
            graph_branch: whole(profile.graph.launch_branch.value()),
            graph_gap: whole(profile.graph.gap.value()),
            graph_start: whole(profile.graph.start.value()),
            graph_cold: if is_cold { whole(cost::cold_node(profile)) } else { 0 },
            branch_wait: whole(profile.graph.branch_wait.value()),
            queues: (profile.queues.count.value() as u64).max(1),
            graph_roots: [0.0, profile.graph.switch.value()]
                .map(|least| whole(profile.graph.dispatch.value().max(least))),
            queue_switch: whole(profile.graph.switch.value()),
            gap_engine: whole(profile.gap_engine.value()),
            graph_read: whole(reads[usize::from(is_cold)]),
            depth: profile.host.queue_depth.value() as u32,
            flush: (whole(profile.host.memset.value()), cost::flush(profile)),
        }
    }

    /// Time in ns by which a graph's root node starts later than the first one. `number` is its place among the `roots` root nodes in the
    /// order of the text. The front end launches those of one queue, and then changes to the next queue. Marks without
    /// dependencies count among the roots, but have no number of their own.
    pub fn root(&self, number: u64, roots: u64) -> Time {
        let queue = number % self.queues;
        let before: u64 =
            (0..queue).map(|queue| (roots - queue).div_ceil(self.queues)).sum::<u64>() + number / self.queues;
        let [same, change] = self.graph_roots;
        queue as Time * change + (before - queue) as Time * same
    }

    /// Time in ns by which the first of a graph's root nodes starts later than that of a graph with one root. The front end
    /// first starts each further queue that has a root, and so changes to it.
    pub fn forks(&self, roots: u64) -> Time {
        roots.min(self.queues).saturating_sub(1) as Time * self.queue_switch
    }

    /// Time by which the last root of a graph starts later than the first: the last one of the last queue.
    pub fn last_root(&self, roots: u64) -> Time {
        let queue = roots.min(self.queues) - 1;
        self.root(queue + (roots - 1 - queue) / self.queues * self.queues, roots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_of_one_queue_follow_each_other() {
        let profile = Profile::named("h200").expect("embedded");
        let mut costs = Costs::new(&profile, false);
        (costs.queues, costs.graph_roots, costs.queue_switch) = (2, [10, 100], 100);
        let starts = |roots: u64| (0..roots).map(|number| costs.root(number, roots)).collect::<Vec<_>>();
        assert_eq!(starts(2), [0, 100]);
        // The first queue has the roots 0, 2 and 4.
        assert_eq!(starts(5), [0, 120, 10, 130, 20]);
        assert!((1..40).all(|roots| Some(costs.last_root(roots)) == starts(roots).into_iter().max()));
        assert_eq!([0, 1, 2, 5].map(|roots| costs.forks(roots)), [0, 0, 100, 100]);
    }
}
