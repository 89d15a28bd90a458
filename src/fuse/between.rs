//! Checks that an operation can be moved, past the operations in between, to the one that it is fused with.

use crate::base::{OpId, StreamId, ViewId};
use crate::model::{OpKind, Program, Step, Views};

use super::node::FusionNode;
use super::reason::Obstacle;

/// Maximum distance of two operations that are fused, in operations of the step.
const MAX_DISTANCE: usize = 512;

/// The nodes of a step during fusion.
pub struct FusionGraph<'a> {
    pub program: &'a Program,
    pub step: &'a Step,
    /// A node for each operation so far, with the operation's index.
    pub nodes: Vec<FusionNode>,
    /// For each operation so far, the node that contains it.
    pub node_of: Vec<usize>,
    /// For each operation, true if an operation on another stream waits for it.
    observed: Vec<bool>,
}

impl<'a> FusionGraph<'a> {
    pub fn new(program: &'a Program, slot: usize) -> FusionGraph<'a> {
        let step = &program.cycle[slot];
        let mut observed = vec![false; step.ops.len()];
        let mut note = |by: StreamId, op: OpId| observed[op.index()] |= step.op(op).stream != by;
        for other in step.ids() {
            let afters = step.after(other).iter().filter(|after| !after.previous);
            afters.for_each(|after| note(step.op(other).stream, after.op));
        }
        // The next slot waits for operations of this one.
        let next = &program.cycle[(slot + 1) % program.cycle.len()];
        for other in next.ids() {
            let afters = next.after(other).iter().filter(|after| after.previous);
            afters.for_each(|after| note(next.op(other).stream, after.op));
        }
        FusionGraph { program, step, nodes: Vec::new(), node_of: Vec::with_capacity(step.ops.len()), observed }
    }

    /// The position at which two nodes of one stream can be fused: preferably that of the later one, otherwise that of the
    /// earlier one. The error is the reason why the earlier one cannot be moved.
    pub fn place(&self, first: usize, second: usize) -> Result<OpId, Obstacle> {
        let (from, to) = (OpId::from(first), OpId::from(second));
        if to.index() - from.index() > MAX_DISTANCE {
            return Err(Obstacle::Far(MAX_DISTANCE));
        }
        match self.check_move(first, (from, to), true) {
            Ok(()) => Ok(to),
            Err(later) => self.check_move(second, (from, to), false).map(|()| from).map_err(|_| later),
        }
    }

    /// Fails unless a node can be moved past all nodes between two positions: forwards from the first position, or backwards
    /// from the second.
    fn check_move(&self, node: usize, (from, to): (OpId, OpId), forwards: bool) -> Result<(), Obstacle> {
        let moved = &self.nodes[node];
        // With `order: declared`, operations of other streams may rely on the order within this stream.
        let declared = self.program.step.declared_order;
        let is_observed =
            |node: &FusionNode| declared && node.members.iter().any(|member| self.observed[member.index()]);
        let moved_waits = moved.members.iter().any(|member| self.waits(*member));
        let inside = |target: OpId| {
            let other = self.node_of[target.index()];
            self.nodes[other].stream == moved.stream && other >= from.index()
        };
        if !forwards {
            let waited = moved.members.iter().flat_map(|member| self.step.after(*member));
            let late = |target: &OpId| self.node_of[target.index()] > from.index();
            if let Some(target) = waited.filter(|after| !after.previous).map(|after| after.op).find(late) {
                return Err(self.blocked_by(self.node_of[target.index()]));
            }
        }
        for between in (from.0 + 1..to.0).map(OpId) {
            let other = &self.nodes[between.index()];
            if other.is_gone {
                continue;
            }
            let is_own = other.stream == moved.stream;
            let is_marker = !matches!(other.kind, OpKind::Run(_)) && (is_own || other.kind.joins_all());
            let afters = || other.members.iter().flat_map(|member| self.step.after(*member));
            let waits = forwards && afters().any(|after| !after.previous && inside(after.op));
            let relied_on = is_own
                && match forwards {
                    // Operations that follow one waiting for another stream wait too.
                    true => moved_waits || is_observed(other),
                    false => is_observed(moved) || (declared && afters().next().is_some()),
                };
            if is_marker || waits || relied_on || conflict(&self.program.views, moved, other) {
                return Err(self.blocked_by(between.index()));
            }
        }
        Ok(())
    }

    /// True if an operation waits for one on another stream, or for one of the previous iteration.
    fn waits(&self, op: OpId) -> bool {
        let is_other = |target: OpId| self.step.op(target).stream != self.step.op(op).stream;
        self.step.after(op).iter().any(|after| after.previous || is_other(after.op))
    }

    fn blocked_by(&self, node: usize) -> Obstacle {
        let last = *self.nodes[node].members.last().expect("a node has an operation");
        let info = self.step.op(last);
        let streams = &self.program.streams;
        Obstacle::Between {
            operation: self.program.op_text(info),
            stream: (streams.len() > 1).then(|| streams[info.stream.index()].name.clone()),
            span: info.span,
        }
    }
}

/// True if one of two nodes writes memory that the other accesses.
fn conflict(views: &Views, a: &FusionNode, b: &FusionNode) -> bool {
    let hits = |written: &[ViewId], used: &[ViewId]| {
        written.iter().any(|write| used.iter().any(|view| views.overlap(*write, *view)))
    };
    hits(&a.outputs, &b.outputs) || hits(&a.outputs, &b.inputs) || hits(&b.outputs, &a.inputs)
}
