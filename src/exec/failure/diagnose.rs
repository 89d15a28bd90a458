//! A diagnostic run that finds the operation at fault. It issues a few iterations as streams, with a stamp before and
//! after each operation; to find a failing operation it waits for each before it issues the next.
//!
//! Times of a diagnostic run are not meaningful. The run does not wait for single collectives, since ranks may issue
//! them in different orders.

use clap::ValueEnum;
use miette::LabeledSpan;

use crate::base::named::named;
use crate::exec::observe::Timing;
use crate::exec::prepare::image::ImageCommand;
use crate::exec::run::session::{RING, at_operation, device};
use crate::exec::{Control, Fault, LaunchMode, NO_COMM, Ranks, Session};

use super::error::ExecError;
use super::hang::{self, HangSnapshot, LaneState};

named! {
    /// The kind of failure to look for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
    pub enum Diagnosis {
        /// A hang: operations are issued as usual, and lanes are inspected when an iteration does not end.
        Hang = "hang",
        /// A failing operation: each operation completes before the next is issued.
        Fault = "fault",
    }
}

impl Ranks {
    /// Runs one period and returns the error that it finds; `Ok` if the failure does not occur again.
    pub fn diagnose(&mut self, diagnosis: Diagnosis, control: &Control) -> Result<(), ExecError> {
        self.each_or_none("the search", control, |session| session.diagnose(diagnosis, control), |_| ()).map(drop)
    }
}

impl Session {
    fn diagnose(&mut self, diagnosis: Diagnosis, control: &Control) -> Result<(), ExecError> {
        self.set_up(control)?;
        self.begin();
        for iteration in 0..self.period().max(2) as u64 {
            match diagnosis {
                Diagnosis::Hang => {
                    let observed = self.lowered.observed.map(Timing::Stamps);
                    self.issue(LaunchMode::Stream, iteration, observed, (1, None))?;
                }
                Diagnosis::Fault => self.one_by_one(iteration, control)?,
            }
            if self.retire(LaunchMode::Stream, iteration, control)?.is_none() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Issues an iteration; each operation is issued after the previous one has completed.
    fn one_by_one(&mut self, iteration: u64, control: &Control) -> Result<(), ExecError> {
        // Collectives that may still be running.
        let mut open = Vec::new();
        self.issue_by(iteration, |session, op, lane| {
            session.progress.begin_operation(op);
            let launched = session.driver.launch(op);
            launched.map_err(|fault| session.at_one(*fault, op, &open))?;
            match session.lowered.outline.comm_of[op as usize] {
                NO_COMM => session.until_ended(op, lane, &open, control)?,
                _ => open.push(op),
            }
            Ok(())
        })
    }

    /// Issues an iteration as streams, without holding it at a gate. `launch` launches each operation, given its number and
    /// its lane.
    pub(in crate::exec) fn issue_by(
        &mut self,
        iteration: u64,
        mut launch: impl FnMut(&mut Self, u32, u32) -> Result<(), ExecError>,
    ) -> Result<(), ExecError> {
        let index = self.index(iteration);
        let stamp_lane = self.stamp_lane(index);
        self.issued = iteration + 1;
        self.driver.stamp(Self::begin_stamp(iteration), stamp_lane).map_err(device)?;
        self.follow(index, stamp_lane, Self::begin_stamp(iteration))?;
        let period = self.lowered.outline.period.clone();
        for command in &period[index].commands {
            match *command {
                ImageCommand::Record { event, lane } => self.driver.record(event, lane).map_err(device)?,
                ImageCommand::Wait { event, lane, .. } => self.driver.wait(lane, event).map_err(device)?,
                ImageCommand::HostSync => self.driver.synchronize().map_err(device)?,
                ImageCommand::Launch { op, lane } => launch(self, op, lane)?,
            }
        }
        self.progress.wait_for_device();
        self.join(index, stamp_lane)?;
        self.driver.stamp(Self::end_stamp(iteration), stamp_lane).map_err(device)
    }

    /// Waits for the operation that was issued last.
    fn until_ended(&mut self, op: u32, lane: u32, open: &[u32], control: &Control) -> Result<(), ExecError> {
        // The last stamp of the ring is free: a diagnosis runs fewer iterations.
        let stamp = Self::end_stamp(RING - 1);
        self.driver.stamp(stamp, lane).map_err(|fault| self.at_one(*fault, op, open))?;
        let start = self.driver.now();
        while !self.driver.reached(stamp).map_err(|fault| self.at_one(*fault, op, open))? {
            self.progress.advance();
            if control.has_failed() {
                return Err(ExecError::Ended);
            }
            if self.driver.now() - start > self.lowered.outline.timeout {
                let lane_states = vec![LaneState { lane, op, begun: true, awaits: None }];
                let (iteration, block) = (self.issued - 1, self.lowered.outline.block);
                self.snapshot = Some(HangSnapshot { iteration, block, busy: vec![lane], lane_states, stuck: false });
                return Err(hang::error(&[self.report(false)]));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Returns the error for a fault at `op`. If collectives were running, the fault may be theirs, and the error names
    /// them too.
    fn at_one(&self, mut fault: Fault, op: u32, open: &[u32]) -> ExecError {
        let launches = &self.lowered.outline.launches;
        if fault.late && !open.is_empty() {
            let label = |(op, text): (u32, &str)| {
                let (name, span) = launches[op as usize];
                LabeledSpan::new_with_span(Some(format!("this {name} {text}")), span)
            };
            let under_way = open.iter().rev().take(4).map(|&op| (op, "was under way"));
            return ExecError::Late {
                fault: fault.to_string(),
                outstanding: "all operations before had ended but for collectives".to_owned(),
                at: [(op, "is where it showed")].into_iter().chain(under_way).map(label).collect(),
            };
        }
        fault.late = false;
        at_operation(&fault, launches[op as usize])
    }
}
