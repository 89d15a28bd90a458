//! The graph of dependencies between the operations of an iteration.

use std::sync::Arc;

use petgraph::graph::{DiGraph, NodeIndex};
use serde::{Deserialize, Serialize};

use crate::base::{Around, OpId, SrcSpan, ViewId};

/// The dependencies of a program.
#[derive(Debug, Default)]
pub struct Plan {
    /// The dependencies of each slot of the cycle.
    pub steps: Vec<StepPlan>,
    /// The dependencies of `setup` and of `teardown`.
    pub around: Around<Arc<Plan>>,
}

/// Dependencies of one iteration. Operations are numbered in the order of the text, which is topological.
#[derive(Debug, Default)]
pub struct StepPlan {
    graph: DiGraph<(), Reason>,
    /// For each operation, the index of the first edge whose target is this operation or a later one. Edges are sorted
    /// by target.
    starts: Vec<u32>,
    /// Dependencies on operations of earlier iterations, sorted by target. Empty if iterations do not overlap.
    pub across: Vec<Edge>,
}

/// Reason for which an operation waits for another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// The earlier and the later operation are on the same stream, which executes in order.
    Stream,
    /// The operations access overlapping memory: the later one through `view`, the earlier one through `source`.
    Data { hazard: Hazard, view: ViewId, source: ViewId },
    /// The file declares the dependency with `after`.
    After { span: SrcSpan },
    /// The file has a `sync()` between both operations.
    Sync,
}

/// Kind of conflict between two accesses to the same memory. The name has the later access first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hazard {
    ReadAfterWrite,
    WriteAfterRead,
    WriteAfterWrite,
}

/// A dependency between two operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Edge {
    pub from: OpId,
    pub to: OpId,
    /// Number of iterations by which the operation `from` is earlier; 0 within an iteration.
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

    /// Adds the dependencies of the next operation within its iteration, in the order of the text.
    pub(super) fn push(&mut self, waits: impl Iterator<Item = (OpId, Reason)>) {
        let to = NodeIndex::new(self.starts.len());
        self.starts.push(self.graph.edge_count() as u32);
        for (from, reason) in waits {
            self.graph.add_edge(NodeIndex::new(from.index()), to, reason);
        }
    }

    /// Releases unused capacity.
    pub(super) fn finish(mut self) -> StepPlan {
        self.graph.shrink_to_fit();
        self
    }

    /// Returns the dependencies of an operation within its iteration, in the order of the operations that it waits for.
    pub fn incoming(&self, op: OpId) -> impl Iterator<Item = Edge> {
        let edges = self.graph.raw_edges();
        let end = self.starts.get(op.index() + 1).map_or(edges.len(), |&start| start as usize);
        edges[self.starts[op.index()] as usize..end].iter().map(edge)
    }

    /// Returns the dependencies of an operation: those within its iteration, then those on earlier iterations.
    pub fn waits(&self, op: OpId) -> impl Iterator<Item = Edge> {
        let first = self.across.partition_point(|edge| edge.to < op);
        let across = self.across[first..].iter().take_while(move |edge| edge.to == op);
        self.incoming(op).chain(across.copied())
    }

    /// Returns all dependencies within the iteration, sorted by the operation that waits.
    pub fn all(&self) -> impl Iterator<Item = Edge> {
        self.graph.raw_edges().iter().map(edge)
    }

    /// Number of operations.
    pub fn operations(&self) -> usize {
        self.graph.node_count()
    }

    /// Number of dependencies within the iteration.
    pub fn edges(&self) -> usize {
        self.graph.edge_count()
    }
}

fn edge(edge: &petgraph::graph::Edge<Reason>) -> Edge {
    let [from, to] = [edge.source(), edge.target()].map(|node| OpId::from(node.index()));
    Edge { from, to, distance: 0, reason: edge.weight }
}

impl Plan {
    /// For each operation of slot `step`, counts the operations of other queues that wait for it, in its own iteration
    /// and in the following ones; `depth` iterations may be under way. `queue` returns the queue of an operation of a
    /// slot.
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
