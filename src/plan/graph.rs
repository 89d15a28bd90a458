//! The graph of an iteration's operations.

use petgraph::graph::{DiGraph, NodeIndex};

use crate::base::{OpId, SrcSpan, ViewId};

/// What waits for what, for each slot of the program's cycle.
#[derive(Debug, Default)]
pub struct Plan {
    pub steps: Vec<StepPlan>,
}

/// The dependencies of one iteration. Operations are numbered in the order of the text, which is one that fits.
#[derive(Debug, Default)]
pub struct StepPlan {
    graph: DiGraph<(), Reason>,
    /// For each operation, the first edge that leads to it or to one behind it: edges are added in that order.
    starts: Vec<u32>,
    /// Dependencies on earlier iterations, in the order of the operations that wait; none where an iteration begins
    /// when the last is complete.
    pub across: Vec<Across>,
}

/// Why one operation waits for another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// A stream runs its operations in order.
    Stream,
    /// The later operation touches, through `view`, memory that the earlier one touches too, there through `source`.
    Data { hazard: Hazard, view: ViewId, source: ViewId },
    /// The text says so.
    After { span: SrcSpan },
    /// A `sync()` lies between.
    Sync,
}

/// What two operations do to the same memory, the later first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hazard {
    ReadAfterWrite,
    WriteAfterRead,
    WriteAfterWrite,
}

/// A dependency within an iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Edge {
    pub from: OpId,
    pub to: OpId,
    pub reason: Reason,
}

/// A dependency on an earlier iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Across {
    pub from: OpId,
    pub to: OpId,
    /// How many iterations earlier `from` is, at least 1.
    pub distance: u32,
    pub reason: Reason,
}

impl StepPlan {
    pub(super) fn new(operations: usize) -> StepPlan {
        let mut graph = DiGraph::with_capacity(operations, operations);
        for _ in 0..operations {
            graph.add_node(());
        }
        StepPlan { graph, starts: Vec::with_capacity(operations), across: Vec::new() }
    }

    /// Adds what the next operation waits for within its iteration, in the order of the text.
    pub(super) fn push(&mut self, waits: impl Iterator<Item = (OpId, Reason)>) {
        let to = NodeIndex::new(self.starts.len());
        self.starts.push(self.graph.edge_count() as u32);
        for (from, reason) in waits {
            self.graph.add_edge(NodeIndex::new(from.index()), to, reason);
        }
    }

    /// Gives back the room that was taken ahead.
    pub(super) fn finish(mut self) -> StepPlan {
        self.graph.shrink_to_fit();
        self
    }

    /// What an operation waits for within its iteration, in the order of the text.
    pub fn before(&self, op: OpId) -> Vec<Edge> {
        self.incoming(op).collect()
    }

    /// As [`StepPlan::before`], one by one.
    pub fn incoming(&self, op: OpId) -> impl Iterator<Item = Edge> {
        let edges = self.graph.raw_edges();
        let end = self.starts.get(op.index() + 1).map_or(edges.len(), |&start| start as usize);
        edges[self.starts[op.index()] as usize..end].iter().map(edge)
    }

    /// Every dependency within the iteration, in the order of the text.
    pub fn all(&self) -> impl Iterator<Item = Edge> {
        self.graph.raw_edges().iter().map(edge)
    }

    pub fn operations(&self) -> usize {
        self.graph.node_count()
    }

    pub fn edges(&self) -> usize {
        self.graph.edge_count()
    }
}

fn edge(edge: &petgraph::graph::Edge<Reason>) -> Edge {
    Edge { from: OpId::from(edge.source().index()), to: OpId::from(edge.target().index()), reason: edge.weight }
}

impl Plan {
    /// How often each operation of an iteration is waited for by one of another queue, in its own iteration and in
    /// those that may be under way beside it, `depth` in all; `queue` tells the queue of a step's operation.
    pub fn waiters(&self, step: usize, depth: u32, queue: impl Fn(usize, OpId) -> u32) -> Vec<u32> {
        let mut waiters = vec![0; self.steps[step].operations()];
        for edge in self.steps[step].all() {
            waiters[edge.from.index()] += u32::from(queue(step, edge.from) != queue(step, edge.to));
        }
        for ahead in 1..depth {
            let later = (step + ahead as usize) % self.steps.len();
            for edge in self.steps[later].across.iter().filter(|edge| edge.distance == ahead) {
                waiters[edge.from.index()] += u32::from(queue(step, edge.from) != queue(later, edge.to));
            }
        }
        waiters
    }
}
