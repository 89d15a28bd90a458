//! A vendor's library that records when kernels, copies and fills run, with the device's own timestamps.

use std::collections::HashSet;
use std::sync::Arc;

use crate::exec::activity::{Activity, ActivityLog, CallPurpose, GraphNode, LaunchCall};

/// A vendor's recording library. A process has one, shared by the devices of all its ranks.
pub trait Tracer: Send + Sync {
    /// Name and version of the library.
    fn name(&self) -> String;

    /// True if records name the node of the graph that they belong to.
    fn names_nodes(&self) -> bool;

    /// Starts recording for one more rank. The error is the reason in words.
    fn begin(&self) -> Result<(), String>;

    /// Announces the purpose of the calling thread's following calls; `None` for calls that are not observed.
    fn set_purpose(&self, purpose: Option<CallPurpose>);

    /// The calls and nodes that this rank's thread has noted since the last call.
    fn take_notes(&self) -> (Vec<LaunchCall>, Vec<GraphNode>);

    /// Ends the recording for one rank. Returns the records of the given calls, and the number of dropped records of all
    /// ranks. The devices of all ranks are idle.
    fn end(&self, calls: &HashSet<u32>) -> Result<(Vec<Activity>, u64), String>;
}

/// The recording of one rank. Dropping it ends the recording.
pub struct Recorder {
    tracer: Arc<dyn Tracer>,
    least: Vec<u32>,
    iteration: Option<u32>,
    launches: Vec<LaunchCall>,
    nodes: Vec<GraphNode>,
    ended: bool,
}

impl Recorder {
    /// Begins to record. `least` is the minimum number of records of each operation.
    pub fn begin(tracer: Arc<dyn Tracer>, least: Vec<u32>) -> Result<Recorder, String> {
        tracer.begin()?;
        Ok(Recorder { tracer, least, iteration: None, launches: Vec::new(), nodes: Vec::new(), ended: false })
    }

    /// Name of the library with its version.
    pub fn name(&self) -> String {
        self.tracer.name()
    }

    /// Sets the observed iteration that the following calls belong to. Called on the thread that makes them.
    pub fn set_iteration(&mut self, iteration: Option<u32>) {
        if iteration.is_none() && self.iteration.is_some() {
            let (launches, nodes) = self.tracer.take_notes();
            self.launches.extend(launches);
            self.nodes.extend(nodes);
        }
        self.iteration = iteration;
    }

    /// Announces the calls of an operation.
    #[inline]
    pub fn begin_operation(&self, op: u32) {
        if let Some(iteration) = self.iteration {
            self.tracer.set_purpose(Some(CallPurpose::Operation { iteration, op }));
        }
    }

    /// Announces the launch of a graph.
    pub fn begin_graph(&self) {
        if let Some(iteration) = self.iteration {
            self.tracer.set_purpose(Some(CallPurpose::Graph { iteration }));
        }
    }

    /// Announces the launch of the kernel that holds an iteration.
    pub fn begin_gate(&self) {
        if let Some(iteration) = self.iteration {
            self.tracer.set_purpose(Some(CallPurpose::Gate { iteration }));
        }
    }

    /// Ends the announced calls.
    #[inline]
    pub fn end_calls(&self) {
        if self.iteration.is_some() {
            self.tracer.set_purpose(None);
        }
    }

    /// Ends the recording and returns the records of this rank.
    pub fn end(mut self) -> Result<ActivityLog, String> {
        self.ended = true;
        let calls: HashSet<u32> = self.launches.iter().map(|call| call.correlation).collect();
        let (activities, dropped) = self.tracer.end(&calls)?;
        let (launches, nodes) = (std::mem::take(&mut self.launches), std::mem::take(&mut self.nodes));
        Ok(ActivityLog { launches, nodes, activities, dropped, least: std::mem::take(&mut self.least) })
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.tracer.end(&HashSet::new());
        }
    }
}
