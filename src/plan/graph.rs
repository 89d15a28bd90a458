//! The graph of an iteration's operations.

use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;

use crate::base::{OpId, SrcSpan, ViewId};

/// What waits for what, for each iteration of the program's cycle.
#[derive(Debug, Default)]
pub struct Plan {
    pub steps: Vec<StepPlan>,
}

/// The dependencies of one iteration. Operations are numbered in the order of the text, which is one that fits.
#[derive(Debug, Default)]
pub struct StepPlan {
    graph: DiGraph<(), Reason>,
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
    pub(super) fn new(operations: usize, edges: &[Edge], across: Vec<Across>) -> StepPlan {
        let mut graph = DiGraph::with_capacity(operations, edges.len());
        for _ in 0..operations {
            graph.add_node(());
        }
        for edge in edges {
            graph.add_edge(NodeIndex::new(edge.from.index()), NodeIndex::new(edge.to.index()), edge.reason);
        }
        StepPlan { graph, across }
    }

    /// What an operation waits for within its iteration, in the order of the text.
    pub fn before(&self, op: OpId) -> Vec<Edge> {
        let node = NodeIndex::new(op.index());
        let mut edges: Vec<Edge> = self
            .graph
            .edges_directed(node, petgraph::Direction::Incoming)
            .map(|edge| Edge { from: OpId::from(edge.source().index()), to: op, reason: *edge.weight() })
            .collect();
        edges.sort_unstable_by_key(|edge| edge.from);
        edges
    }

    /// What an operation waits for within its iteration, in no order.
    pub(super) fn sources(&self, op: OpId) -> impl Iterator<Item = OpId> {
        let incoming = petgraph::Direction::Incoming;
        self.graph.neighbors_directed(NodeIndex::new(op.index()), incoming).map(|node| OpId::from(node.index()))
    }

    pub fn operations(&self) -> usize {
        self.graph.node_count()
    }

    pub fn edges(&self) -> usize {
        self.graph.edge_count()
    }
}
