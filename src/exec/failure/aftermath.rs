//! The state of a session whose run failed: the snapshot of a hang, and the error that the user sees.

use crate::exec::{Control, LaneCompletion, Session};

use super::error::ExecError;
use super::hang::{self, HangSnapshot, RankReport};

impl Session {
    /// Resets the snapshot and records the progress of each lane. Called on idle lanes before iterations begin.
    pub(in crate::exec) fn begin(&mut self) {
        self.base.clear();
        self.base.extend((0..self.lowered.outline.lanes.len() as u32).map(|lane| self.driver.progress(lane)));
        self.issued = 0;
        self.stamped = None;
        self.snapshot = None;
    }

    /// Takes a snapshot of each lane's position, then abandons the device. `stuck` is true if the driver is certain
    /// that the work never ends.
    pub(in crate::exec) fn give_up(&mut self, iteration: u64, stuck: bool) {
        let Session { driver, lowered, base, .. } = self;
        let outline = &lowered.outline;
        let lanes = 0..outline.lanes.len() as u32;
        let progress: Vec<Option<LaneCompletion>> = lanes
            .clone()
            .zip(base)
            .map(|(lane, base)| {
                let now = driver.progress(lane)?;
                Some(LaneCompletion { ended: now.ended - (*base)?.ended, ..now })
            })
            .collect();
        let lane_states = match (self.stamped, lowered.observed) {
            _ if progress.iter().any(Option::is_some) => outline.lane_states(self.issued, &progress),
            (Some(stamped), Some(first)) if stamped == iteration => outline.lane_states_by_stamps(iteration, |index| {
                let stamp = first + 2 * index as u32;
                let mut reached = |stamp| driver.reached(stamp).unwrap_or(false);
                (reached(stamp), reached(stamp + 1))
            }),
            _ => Vec::new(),
        };
        let busy = lanes.filter(|&lane| !driver.idle(lane).unwrap_or(false)).collect();
        self.snapshot = Some(HangSnapshot { iteration, block: outline.block, busy, lane_states, stuck });
        // With several ranks the driver is abandoned later, once every rank has taken its snapshot.
        if self.alone {
            self.driver.abandon();
        }
    }

    /// Abandons the device and returns the error of a hang in `iteration`.
    pub(in crate::exec) fn hang(&mut self, iteration: u64, stuck: bool) -> ExecError {
        self.give_up(iteration, stuck);
        hang::error(&[self.report(false)])
    }

    /// Returns this rank's part of the error of a hang. `completed` is true if the rank completed its iterations.
    pub(in crate::exec) fn report(&self, completed: bool) -> RankReport {
        RankReport {
            rank: self.rank,
            outline: self.lowered.outline.clone(),
            snapshot: self.snapshot.clone(),
            completed,
        }
    }

    /// Adds the operations in flight to an error that the device reported late, without naming an operation.
    pub(in crate::exec) fn explained(&mut self, error: ExecError, retired: u64, control: &Control) -> ExecError {
        match error {
            ExecError::Ended | ExecError::Hang { .. } => error,
            // A rank that ended because another one failed has nothing to add.
            _ if control.has_failed() => {
                let stuck = self.driver.stuck();
                self.give_up(retired, stuck);
                ExecError::Ended
            }
            _ if self.driver.stuck() => self.hang(retired, true),
            ExecError::Late { fault, at, .. } => self.lowered.outline.late(fault, at, retired..self.issued),
            _ => error,
        }
    }
}
