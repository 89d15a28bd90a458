//! Captured graphs of the simulated driver, and captures in progress.

use super::machine::{Action, TaskId, Time};

/// A node of a captured graph.
#[derive(Clone, Debug)]
pub struct GraphNode {
    pub action: Action,
    pub priority: i32,
    pub after: Vec<u32>,
    /// Stamps that the node's start and end record.
    pub observed: [Option<u32>; 2],
    /// Arguments of [`SimMachine::count`](super::machine::SimMachine::count); `None` if neither start nor end counts as that of an operation.
    pub counted: Option<(u32, [bool; 2])>,
}

/// A captured graph.
#[derive(Clone, Debug, Default)]
pub struct CapturedGraph {
    pub nodes: Vec<GraphNode>,
    /// Nodes without dependents in the graph.
    pub last: Vec<u32>,
    /// Number of nodes without dependencies.
    pub branches: u32,
    /// True if the nodes run one after the other: each depends on the one before it.
    pub is_chain: bool,
    /// The task that ends the last launch; `None` before the first.
    pub end: Option<TaskId>,
}

impl CapturedGraph {
    /// Number of waits if the graph is launched again before its end: each branch waits for the end of each other branch.
    pub fn waits_again(&self) -> Time {
        let (roots, leaves) = (Time::from(self.branches), self.last.len() as Time);
        roots * leaves - roots.min(leaves)
    }
}

/// A capture in progress.
#[derive(Debug, Default)]
pub struct Capture {
    pub nodes: Vec<GraphNode>,
    /// For each lane, the last captured node, and the nodes on which its next node depends besides that.
    pub lanes: Vec<(Option<u32>, Vec<u32>)>,
    pub events: Vec<Vec<u32>>,
}

impl Capture {
    /// The graph of the captured nodes.
    pub fn graph(self) -> CapturedGraph {
        let nodes = self.nodes;
        let mut waited = vec![false; nodes.len()];
        for node in &nodes {
            node.after.iter().for_each(|&before| waited[before as usize] = true);
        }
        let last = (0..nodes.len() as u32).filter(|&node| !waited[node as usize]).collect();
        let branches = nodes.iter().filter(|node| node.after.is_empty()).count() as u32;
        let is_chain = nodes.iter().zip(0..).skip(1).all(|(node, number): (_, u32)| node.after.contains(&(number - 1)));
        CapturedGraph { nodes, last, branches, is_chain, end: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_has_no_branches() {
        let is_chain = |dependencies: &[&[u32]]| {
            let node = |after: &&[u32]| GraphNode {
                action: Action::Mark(None),
                priority: 0,
                after: after.to_vec(),
                observed: [None; 2],
                counted: None,
            };
            Capture { nodes: dependencies.iter().map(node).collect(), ..Capture::default() }.graph().is_chain
        };
        assert!(is_chain(&[&[], &[0], &[1]]));
        assert!(is_chain(&[&[], &[0], &[0, 1]]), "a dependency of the one before, too");
        assert!(!is_chain(&[&[], &[], &[0, 1]]), "two roots");
        assert!(!is_chain(&[&[], &[0], &[0]]), "two dependents of one node");
    }
}
