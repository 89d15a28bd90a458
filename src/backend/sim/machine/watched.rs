//! Observation of tasks: stamps, progress of lanes, and occupied compute units.

use super::{SimMachine, TaskId, Time};

impl SimMachine {
    /// Removes and returns the stamps that were recorded since the last call, with their times in ns.
    pub fn take_stamps(&mut self) -> std::vec::Drain<'_, (u32, Time)> {
        self.stamps.drain(..)
    }

    /// Number of a lane's operations that have begun, and that have ended.
    pub fn pace(&self, lane: u32) -> [u64; 2] {
        self.paces[lane as usize]
    }

    /// Counts the start, the end, or both of a task that was just submitted as those of an operation of a lane.
    pub fn count(&mut self, task: TaskId, lane: u32, counted: [bool; 2]) {
        self.state(task).counted = Some((lane, counted));
    }

    /// Makes a task that was just submitted record stamps at its start and its end.
    pub fn observe(&mut self, task: TaskId, start: Option<u32>, end: Option<u32>) {
        let observed = &mut self.state(task).observed;
        *observed = [start.or(observed[0]), end.or(observed[1])];
    }

    /// Begins to record how many compute units of a device are occupied.
    pub fn watch_units(&mut self, device: usize) {
        self.watched[device] = Some(Vec::new());
        self.note_units(device);
    }

    /// Ends the recording of a device's units. Returns the times in ns at which the number of occupied units has
    /// changed, each with the new number in units of 1/32.
    pub fn take_units(&mut self, device: usize) -> Vec<(Time, u32)> {
        self.watched[device].take().unwrap_or_default()
    }

    /// Records the number of occupied units of a device that is watched.
    pub(super) fn note_units(&mut self, device: usize) {
        let occupied = (self.capacity - self.devices[device].free) as u32;
        let Some(changes) = &mut self.watched[device] else { return };
        match changes.last_mut().filter(|last| last.0 == self.now) {
            Some(last) => last.1 = occupied,
            None => changes.push((self.now, occupied)),
        }
    }

    /// Records a task's start at `time`: its stamp, and the count of its lane's operations.
    pub(super) fn started(&mut self, task: TaskId, time: Time) {
        if let [Some(stamp), _] = self.state(task).observed {
            self.stamps.push((stamp, time));
        }
        if let Some((lane, [opens, _])) = self.state(task).counted {
            self.paces[lane as usize][0] += u64::from(opens);
        }
    }
}
