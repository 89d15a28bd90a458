//! Checks that an operation can move past those between it and the one that it joins.

use crate::base::{OpId, StreamId, ViewId};
use crate::model::{OpKind, Program, Step, Views};

use super::node::Node;
use super::reason::Reason;

/// Most operations between two that are joined.
const MOST: usize = 512;

/// The operations of a step with what has been joined so far.
pub struct Line<'a> {
    pub program: &'a Program,
    pub step: &'a Step,
    /// A node for each operation so far, at the operation's place.
    pub nodes: Vec<Node>,
    /// For each operation so far the node that stands for it.
    pub node_of: Vec<usize>,
    /// For each operation, true if one of another stream waits for it.
    observed: Vec<bool>,
}

impl<'a> Line<'a> {
    pub fn new(program: &'a Program, slot: usize) -> Line<'a> {
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
        Line { program, step, nodes: Vec::new(), node_of: Vec::with_capacity(step.ops.len()), observed }
    }

    /// The place at which two nodes of one stream can be one: that of the later one, or of the earlier one.
    pub fn place(&self, first: usize, second: usize) -> Result<OpId, Reason> {
        let (from, to) = (OpId::from(first), OpId::from(second));
        if to.index() - from.index() > MOST {
            return Err(Reason::Far(MOST));
        }
        match self.passes(first, (from, to), true) {
            Ok(()) => Ok(to),
            Err(later) => self.passes(second, (from, to), false).map(|()| from).map_err(|_| later),
        }
    }

    /// Fails unless a node can move over all nodes between two places: forwards, as the first, or backwards.
    fn passes(&self, node: usize, (from, to): (OpId, OpId), forwards: bool) -> Result<(), Reason> {
        let moved = &self.nodes[node];
        // With `order: declared`, operations of other streams may rely on the order within this stream.
        let declared = self.program.step.declared_order;
        let is_observed = |node: &Node| declared && node.members.iter().any(|member| self.observed[member.index()]);
        let moved_waits = moved.members.iter().any(|member| self.waits(*member));
        let inside = |target: OpId| {
            let other = self.node_of[target.index()];
            self.nodes[other].stream == moved.stream && other >= from.index()
        };
        if !forwards {
            let waited = moved.members.iter().flat_map(|member| self.step.after(*member));
            let late = |target: &OpId| self.node_of[target.index()] > from.index();
            if let Some(target) = waited.filter(|after| !after.previous).map(|after| after.op).find(late) {
                return Err(self.between(self.node_of[target.index()]));
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
                    // Operations behind one that waits for another stream wait with it.
                    true => moved_waits || is_observed(other),
                    false => is_observed(moved) || (declared && afters().next().is_some()),
                };
            if is_marker || waits || relied_on || conflict(&self.program.views, moved, other) {
                return Err(self.between(between.index()));
            }
        }
        Ok(())
    }

    /// True if the file says that an operation waits for one of another stream, or for one of the iteration before.
    fn waits(&self, op: OpId) -> bool {
        let is_other = |target: OpId| self.step.op(target).stream != self.step.op(op).stream;
        self.step.after(op).iter().any(|after| after.previous || is_other(after.op))
    }

    fn between(&self, node: usize) -> Reason {
        let last = *self.nodes[node].members.last().expect("a node has an operation");
        let info = self.step.op(last);
        let streams = &self.program.streams;
        Reason::Between {
            operation: self.program.op_text(info),
            stream: (streams.len() > 1).then(|| streams[info.stream.index()].name.clone()),
            span: info.span,
        }
    }
}

/// True if one of two operations writes what the other accesses.
fn conflict(views: &Views, a: &Node, b: &Node) -> bool {
    let hits = |written: &[ViewId], used: &[ViewId]| {
        written.iter().any(|write| used.iter().any(|view| views.overlap(*write, *view)))
    };
    hits(&a.outputs, &b.outputs) || hits(&a.outputs, &b.inputs) || hits(&b.outputs, &a.inputs)
}
