//! Input of the analysis of a rank's observed iterations.

use crate::base::{Nanos, OpId};
use crate::config::Profile;
use crate::cost::{Ideal, LinkTimes, Resource};
use crate::exec::LaunchMode;
use crate::model::Program;
use crate::ops::Spec;
use crate::plan::Plan;

use super::queue_waits::LaneQueues;
use super::solo_durations::SoloDurations;
use super::waiting::Iteration;

/// Input of the analysis.
pub struct Subject<'a> {
    pub program: &'a Program,
    pub plan: &'a Plan,
    /// Slot of the rank's own cycle.
    pub step: usize,
    /// Observed iterations of the slot.
    pub iterations: &'a [&'a Iteration<'a>],
    /// Durations of operations that run alone; `None` without a run on one stream.
    pub alone: Option<&'a SoloDurations>,
    /// The launch mode if the host limits the iteration.
    pub host_bound: Option<LaunchMode>,
    /// The iterations before the observed one, the nearest first, as far as their slots were observed; empty if iterations do
    /// not overlap.
    pub earlier: &'a [&'a Iteration<'a>],
    /// Hardware queues of the real streams; `None` if the launch uses none, as with a graph.
    pub queues: Option<LaneQueues>,
    /// Median of the headline; `None` if its times were refused.
    pub time: Option<Nanos>,
    /// Ideal times at the peaks of the device; `None` without a device profile.
    pub peaks: Option<&'a Peaks<'a>>,
}

/// Ideal times of one rank's operations at the peaks of its device.
#[derive(Debug)]
pub struct Peaks<'a> {
    pub program: &'a Program,
    pub rank: u32,
    pub profile: &'a Profile,
    /// Share of each operation's bytes that the cache serves, by slot and operation.
    pub cached: &'a [Vec<f64>],
}

impl Peaks<'_> {
    /// Time for which an operation keeps each resource busy at its peak; `None` for a marker.
    pub fn ideal(&self, step: usize, op: OpId) -> Option<Ideal> {
        let (spec, ranks) = self.spec(step, op)?;
        Some(Ideal::of(spec, &ranks, self.cached[step][op.index()], self.profile))
    }

    /// Ideal times of an iteration's arithmetic and of its memory traffic, in ns, averaged over the cycle.
    pub(in crate::measure) fn iteration(&self) -> (f64, f64) {
        let (mut flops, mut bytes) = (0.0, 0.0);
        for (number, step) in self.program.cycle.iter().enumerate() {
            for ideal in step.ids().filter_map(|op| self.ideal(number, op)) {
                (flops, bytes) = (flops + ideal.arithmetic, bytes + ideal.traffic());
            }
        }
        let cycle = self.program.cycle.len().max(1) as f64;
        (flops / cycle, bytes / cycle)
    }

    /// The link that the operations of an iteration together occupy longest, and that time at its peak in ns, averaged over the cycle.
    pub(super) fn busiest_link(&self) -> Option<(Resource, f64)> {
        let mut busy = LinkTimes::default();
        for (number, step) in self.program.cycle.iter().enumerate() {
            for op in step.ids() {
                let Some((spec, ranks)) = self.spec(number, op) else { continue };
                busy.add(spec, &ranks, self.profile);
            }
        }
        let cycle = self.program.cycle.len().max(1) as f64;
        busy.longest().map(|(link, time)| (link, time / cycle))
    }

    /// The spec of an operation, and the members of its group as ranks of the world; `None` for a marker.
    fn spec(&self, step: usize, op: OpId) -> Option<(&Spec, Vec<u32>)> {
        let spec = self.program.op_spec(self.program.cycle[step].op(op))?;
        Some((spec, self.program.groups[spec.team.group.index()].members_with(self.rank).collect()))
    }
}
