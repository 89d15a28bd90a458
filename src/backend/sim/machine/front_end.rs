//! The front end of a device: launches the kernels at the heads of all hardware queues, and the nodes of graphs, one after the other.

use std::collections::VecDeque;

use crate::config::{Profile, QueueRule};

use super::super::digest::Digest;
use super::agenda::EventKind;
use super::{Action, OFFERED, POLLED_LATER, READY, SimMachine, TaskId, Time, whole};

/// Times in ns of the front ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrontEndTimes {
    /// Time for which the launch of a kernel occupies the front end.
    launch: Time,
    /// Time in which the front end polls a queue.
    poll: Time,
    /// Time in which the front end changes to another queue.
    switch: Time,
    /// Time for which the launch of a graph's node, or the end of one of several branches, occupies the front end.
    node: Time,
}

impl FrontEndTimes {
    /// `is_cold` is true if iterations begin with a flush of the caches.
    pub(super) fn new(profile: &Profile, is_cold: bool) -> FrontEndTimes {
        // After a flush, the front end reads from memory what the head of a queue waits for.
        let read = if is_cold { profile.memory_wait.value() - profile.cache_wait.value() } else { 0.0 };
        FrontEndTimes {
            launch: whole(profile.queues.dispatch.value()),
            poll: whole(profile.queues.dispatch.value() + read.max(0.0)),
            switch: whole(profile.queues.switch.value()),
            node: whole(profile.graph.dispatch.value()),
        }
    }
}

/// The front end of one device.
#[derive(Debug, Default)]
pub(super) struct FrontEnd {
    /// Time in ns from which on the front end can launch the next kernel of the queue that it serves.
    free: Time,
    /// The queue that the front end serves; `None` before the first launch.
    queue: Option<u32>,
    /// Queues whose heads are ready, in the order in which these became ready.
    ready: VecDeque<u32>,
    /// True while the front end is reserved for the next launch, of a head that waits until the front end is free.
    is_reserved: bool,
    /// Nodes of graphs whose dependencies have ended, in the order in which they became ready.
    nodes: VecDeque<TaskId>,
    /// Ends of branches whose dependencies have ended, in the order in which they became ready.
    branch_ends: VecDeque<TaskId>,
    /// True while it launches a node or handles the end of a branch.
    is_launching: bool,
}

impl FrontEnd {
    /// Adds all state that affects the future.
    pub(super) fn digest(&self, digest: &mut Digest, now: Time, times: FrontEndTimes) {
        let FrontEnd { free, queue, ready, is_reserved, nodes, branch_ends, is_launching } = self;
        // A front end that has been free for longer launches no earlier.
        digest.moment((*free).max(now - times.switch));
        digest.word(queue.map_or(u64::MAX, u64::from));
        digest.size(ready.len());
        digest.words(ready.iter().copied());
        digest.word(*is_reserved);
        digest.tasks(nodes.iter().copied());
        digest.tasks(branch_ends.iter().copied());
        digest.word(*is_launching);
    }

    /// Removes and returns the queue to serve next: the present one as long as its head is ready, then the one that has been ready for
    /// the longest time. The choice is made when the launch before it begins. `None` if no queue is ready.
    fn next(&mut self) -> Option<u32> {
        let present = self.ready.iter().position(|&queue| Some(queue) == self.queue);
        self.ready.remove(present.unwrap_or(0))
    }
}

impl SimMachine {
    /// Delays the head of a hardware queue whose dependencies have ended: the front end first polls each other queue of the device whose head
    /// waits for a dependency, a gap or the end of such polls. Returns false if nothing delays the task.
    ///
    /// Heads of a later iteration do not count, so that an iteration takes the same time whether or not others follow
    /// it.
    pub(super) fn polls_first(&mut self, task: TaskId) -> bool {
        let state = self.state(task);
        let Some(queue) = state.placing.queue.filter(|_| state.open != POLLED_LATER) else { return false };
        if self.queues[queue as usize].front() != Some(&task) {
            return false;
        }
        let (device, stamps_before) = (self.device(task), self.state(task).placing.stamps_before);
        let now = self.now;
        let waits = |other: &&VecDeque<TaskId>| {
            let head = other.front().filter(|&&head| head != task);
            let head = head.map(|&head| &self.tasks[(head - self.first) as usize]);
            head.is_some_and(|head| {
                let is_here = self.device_of[head.placing.lane as usize] as usize == device;
                let is_of_iteration = head.placing.stamps_before == stamps_before;
                is_here && is_of_iteration && head.visible <= now && head.open <= POLLED_LATER
            })
        };
        let blocked = self.queues.iter().filter(waits).count();
        let delay = blocked as Time * self.front_end_times.poll;
        if delay > 0 {
            self.state(task).open = POLLED_LATER;
            self.at(self.now + delay, EventKind::Ready(task));
        }
        delay > 0
    }

    /// Starts the head of a hardware queue if it is ready, as soon as the front end is free.
    pub(super) fn start_ready(&mut self, queue: u32) {
        if let Some(device) = self.offer(queue) {
            self.serve(device);
        }
    }

    /// Adds a queue to those that wait for the front end if its head is ready. Returns the device; `None` if the head is not ready.
    fn offer(&mut self, queue: u32) -> Option<usize> {
        let head = *self.queues[queue as usize].front()?;
        let state = self.state(head);
        if state.open != READY {
            return None;
        }
        // Marks the head as offered, so that it starts only once.
        state.open = OFFERED;
        let device = self.device(head);
        self.devices[device].front_end.ready.push_back(queue);
        Some(device)
    }

    /// Launches heads of queues until the front end is busy, or no head is ready.
    fn serve(&mut self, device: usize) {
        let FrontEndTimes { launch, switch, .. } = self.front_end_times;
        let now = self.now;
        while !self.devices[device].front_end.is_reserved {
            let front_end = &mut self.devices[device].front_end;
            let Some(queue) = front_end.next() else { return };
            let changes = front_end.queue.is_some_and(|present| present != queue);
            let start = now.max(front_end.free + if changes { switch } else { 0 });
            front_end.queue = Some(queue);
            front_end.free = start + launch;
            front_end.is_reserved = start > now;
            let head = *self.queues[queue as usize].front().expect("its head is ready");
            match start > now {
                true => self.at(start, EventKind::Dispatch(head)),
                false => self.dispatch(head),
            }
        }
    }

    /// Launches the head for which the front end was reserved.
    pub(super) fn dispatch_reserved(&mut self, head: TaskId) {
        let device = self.device(head);
        self.devices[device].front_end.is_reserved = false;
        self.dispatch(head);
        self.serve(device);
    }

    /// Launches the head of a hardware queue, and offers the next one unless the queue waits for the end of this one.
    fn dispatch(&mut self, head: TaskId) {
        let state = self.state(head);
        let (action, placing) = (state.action, state.placing);
        let queue = placing.queue.expect("only tasks of a queue wait for the front end");
        self.launch(head, action);
        if self.rule != QueueRule::Serial {
            self.queues[queue as usize].pop_front();
            self.offer(queue);
        }
    }

    /// Launches the node of a graph or handles the end of a branch, whose dependencies have ended, as soon as the front end is free.
    pub(super) fn start_node(&mut self, node: TaskId) {
        let device = self.device(node);
        let is_end = matches!(self.state(node).action, Action::BranchEnd);
        let front_end = &mut self.devices[device].front_end;
        let waiting = if is_end { &mut front_end.branch_ends } else { &mut front_end.nodes };
        waiting.push_back(node);
        if !front_end.is_launching {
            self.serve_nodes(device);
        }
    }

    /// Launches the node that has been ready for the longest time. Ends of branches wait until no node is ready.
    fn serve_nodes(&mut self, device: usize) {
        let done = self.now + self.front_end_times.node;
        let front_end = &mut self.devices[device].front_end;
        let node = front_end.nodes.pop_front();
        let end = if node.is_none() { front_end.branch_ends.pop_front() } else { None };
        front_end.is_launching = node.is_some() || end.is_some();
        if let Some(node) = node {
            let action = self.state(node).action;
            self.launch(node, action);
        }
        if node.is_some() || end.is_some() {
            self.at(done, EventKind::Launched { device: device as u32, end });
        }
    }

    /// Continues after the front end has launched a node or handled the end of a branch.
    pub(super) fn launched_node(&mut self, device: u32, end: Option<TaskId>) {
        if let Some(end) = end {
            self.ended(end);
        }
        self.serve_nodes(device as usize);
    }
}
