//! A session that is given up: where it was, and what is told of it.

use super::control::Control;
use super::driver::Progress;
use super::error::ExecError;
use super::hang::{self, HangSnapshot, Witnessed};
use super::session::Session;

impl Session {
    /// Lanes are idle, and iterations are about to begin.
    pub(super) fn begin(&mut self) {
        self.base.clear();
        self.base.extend((0..self.lowered.outline.lanes.len() as u32).map(|lane| self.driver.progress(lane)));
        self.issued = 0;
        self.stamped = None;
        self.stood = None;
    }

    /// Notes where each lane stands, now that an iteration is given up.
    pub(super) fn give_up(&mut self, iteration: u64, stuck: bool) {
        let Session { driver, lowered, base, .. } = self;
        let outline = &lowered.outline;
        let lanes = 0..outline.lanes.len() as u32;
        let progress: Vec<Option<Progress>> = lanes
            .clone()
            .zip(base)
            .map(|(lane, base)| {
                let now = driver.progress(lane)?;
                Some(Progress { ended: now.ended - (*base)?.ended, ..now })
            })
            .collect();
        let stands = match (self.stamped, lowered.observed) {
            _ if progress.iter().any(Option::is_some) => outline.stands(self.issued, &progress),
            (Some(stamped), Some(first)) if stamped == iteration => outline.stands_by_stamps(iteration, |turn| {
                let stamp = first + 2 * turn as u32;
                let mut reached = |stamp| driver.reached(stamp).unwrap_or(false);
                (reached(stamp), reached(stamp + 1))
            }),
            _ => Vec::new(),
        };
        let busy = lanes.filter(|&lane| !driver.idle(lane).unwrap_or(false)).collect();
        self.stood = Some(HangSnapshot { iteration, busy, stands, stuck });
        // Of several, all stand where they are until each has said so.
        if self.alone {
            self.driver.abandon();
        }
    }

    pub(super) fn hang(&mut self, iteration: u64, stuck: bool) -> ExecError {
        self.give_up(iteration, stuck);
        hang::error(&[self.witnessed(false)])
    }

    /// What this rank can say of a run that is given up.
    pub(super) fn witnessed(&self, through: bool) -> Witnessed {
        Witnessed { rank: self.rank, outline: self.lowered.outline.clone(), stood: self.stood.clone(), through }
    }

    /// An error with what was under way, where a device does not say what it is about.
    pub(super) fn explained(&mut self, error: ExecError, retired: u64, control: &Control) -> ExecError {
        match error {
            ExecError::Ended | ExecError::Hang { .. } => error,
            // What comes of another rank's failure tells nothing.
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
