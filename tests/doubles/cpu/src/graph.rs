//! Graphs: the nodes of a capture, each launch of which does them once.

use std::sync::{Arc, Mutex, PoisonError};

use crate::device;
use crate::event::{Mark, Recorded};
use crate::handles::Handles;
use crate::profiler::{self, Launch, Work};
use crate::status::Done;
use crate::stream::{Stream, Task};

#[derive(Clone)]
pub struct Node {
    pub task: Task,
    /// The nodes that it comes behind; all have smaller numbers.
    pub after: Vec<usize>,
    /// The number of the stream that it was captured on.
    pub lane: usize,
    pub device: i32,
}

#[derive(Clone)]
pub struct Graph {
    pub nodes: Vec<Node>,
    pub lanes: usize,
}

/// A graph that can be launched.
pub struct GraphExec {
    graph: Graph,
    /// Launches of one graph come one after the other, whatever the streams.
    last: Mutex<Option<Arc<Mark>>>,
}

pub static GRAPHS: Handles<Graph> = Handles::new();
pub static EXECS: Handles<GraphExec> = Handles::new();

impl GraphExec {
    pub fn new(graph: &Graph) -> GraphExec {
        GraphExec { graph: graph.clone(), last: Mutex::new(None) }
    }

    pub fn launch(self: &Arc<Self>, stream: &Arc<Stream>) -> Done {
        let marks: Arc<Vec<Arc<Mark>>> = Arc::new(self.graph.nodes.iter().map(|_| Arc::default()).collect());
        for (node, mark) in self.graph.nodes.iter().zip(marks.iter()) {
            if let Task::Record(event) = &node.task {
                event.set(Recorded::Live(mark.clone()));
            }
        }
        let exec = self.clone();
        let recorded = profiler::launch();
        let task = Task::of(Work::Host, move || {
            exec.run(&marks, recorded);
            Ok(())
        });
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let before = last.take().into_iter().collect();
        *last = Some(stream.push(task, before));
        device::get(stream.device)?.check()
    }

    /// Each captured stream is a thread again.
    fn run(&self, marks: &[Arc<Mark>], recorded: Option<Launch>) {
        std::thread::scope(|scope| {
            for lane in 1..self.graph.lanes {
                scope.spawn(move || self.run_lane(lane, marks, recorded));
            }
            self.run_lane(0, marks, recorded);
        });
    }

    fn run_lane(&self, lane: usize, marks: &[Arc<Mark>], recorded: Option<Launch>) {
        for (node, mark) in self.graph.nodes.iter().zip(marks).filter(|(node, _)| node.lane == lane) {
            node.after.iter().for_each(|&before| marks[before].wait());
            node.task.run(node.device, recorded);
            mark.reach();
        }
    }
}
