//! What is seen of tasks as they go: stamps, and how far lanes have come.

use super::{Machine, TaskId, Time};

impl Machine {
    /// The stamps that have been reached since the last time, with their times in ns.
    pub fn take_stamps(&mut self) -> std::vec::Drain<'_, (u32, Time)> {
        self.stamps.drain(..)
    }

    /// How many operations of a lane have begun, and how many have ended.
    pub fn pace(&self, lane: u32) -> [u64; 2] {
        self.paces[lane as usize]
    }

    /// Counts a task that was just submitted for a lane: whether its start is that of an operation, and whether its end
    /// is that of one.
    pub fn count(&mut self, task: TaskId, lane: u32, counted: [bool; 2]) {
        self.state(task).counted = Some((lane, counted));
    }

    /// Lets a task that was just submitted set stamps when it starts and when it ends.
    pub fn observe(&mut self, task: TaskId, start: Option<u32>, end: Option<u32>) {
        let observed = &mut self.state(task).observed;
        *observed = [start.or(observed[0]), end.or(observed[1])];
    }

    pub(super) fn started(&mut self, task: TaskId) {
        let now = self.now;
        if let [Some(stamp), _] = self.state(task).observed {
            self.stamps.push((stamp, now));
        }
        if let Some((lane, [opens, _])) = self.state(task).counted {
            self.paces[lane as usize][0] += u64::from(opens);
        }
    }
}
