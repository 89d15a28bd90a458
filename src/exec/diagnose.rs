//! A run that finds which operation a failure is of: a few iterations as streams, with a stamp before and behind each
//! operation, and where wanted, one operation after the other.
//!
//! It measures nothing. Collectives are not waited for one by one: their ranks may come to them in different orders.

use miette::LabeledSpan;

use super::control::Control;
use super::driver::Fault;
use super::error::ExecError;
use super::hang::{self, HangSnapshot, Stand};
use super::image::{NO_COMM, Step};
use super::ranks::Ranks;
use super::session::{LaunchMode, RING, Session, at_operation, device};

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Diagnosis {
    /// Where lanes stand when an iteration does not end: operations run as they do otherwise.
    Hang,
    /// Which operation fails: each ends before the next is issued.
    Fault,
}

impl Ranks {
    /// Runs a round of the period, and fails with what it finds. Nothing fails: there is nothing to be found this way.
    pub fn diagnose(&mut self, diagnosis: Diagnosis, control: &Control) -> Result<(), ExecError> {
        self.each_or_none("the search", control, |session| session.diagnose(diagnosis, control), |_| ()).map(drop)
    }
}

impl Session {
    fn diagnose(&mut self, diagnosis: Diagnosis, control: &Control) -> Result<(), ExecError> {
        self.begin();
        for iteration in 0..self.period().max(2) as u64 {
            match diagnosis {
                Diagnosis::Hang => self.issue(LaunchMode::Stream, iteration, true, (1, None))?,
                Diagnosis::Fault => self.one_by_one(iteration, control)?,
            }
            if self.retire(LaunchMode::Stream, iteration, control)?.is_none() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Issues an iteration, each operation when the one before has ended.
    fn one_by_one(&mut self, iteration: u64, control: &Control) -> Result<(), ExecError> {
        let index = self.index(iteration);
        let origin = self.origin(index);
        self.issued = iteration + 1;
        self.driver.stamp(Self::begin_stamp(iteration), origin).map_err(device)?;
        self.follow(index, origin, Self::begin_stamp(iteration))?;
        let period = self.lowered.outline.period.clone();
        // Collectives that may be under way.
        let mut open = Vec::new();
        for command in &period[index].commands {
            match *command {
                Step::Record { event, lane } => self.driver.record(event, lane).map_err(device)?,
                Step::Wait { event, lane, .. } => self.driver.wait(lane, event).map_err(device)?,
                Step::Launch { op, lane } => {
                    self.beat.issues(op);
                    let launched = self.driver.launch(op);
                    launched.map_err(|fault| self.at_one(*fault, op, &open))?;
                    match self.lowered.outline.comm_of[op as usize] {
                        NO_COMM => self.until_ended(op, lane, &open, control)?,
                        _ => open.push(op),
                    }
                }
            }
        }
        self.beat.waits();
        self.join(index, origin)?;
        self.driver.stamp(Self::end_stamp(iteration), origin).map_err(device)
    }

    /// Waits for the operation that was issued last.
    fn until_ended(&mut self, op: u32, lane: u32, open: &[u32], control: &Control) -> Result<(), ExecError> {
        // The last of the ring: so many iterations are not run here.
        let stamp = Self::end_stamp(RING - 1);
        self.driver.stamp(stamp, lane).map_err(|fault| self.at_one(*fault, op, open))?;
        let start = self.driver.now();
        while !self.driver.reached(stamp).map_err(|fault| self.at_one(*fault, op, open))? {
            self.beat.goes_on();
            if control.has_failed() {
                return Err(ExecError::Ended);
            }
            if self.driver.now() - start > self.lowered.outline.timeout {
                let stands = vec![Stand { lane, op, begun: true, awaits: None }];
                self.stood = Some(HangSnapshot { iteration: self.issued - 1, busy: vec![lane], stands, stuck: false });
                return Err(hang::error(&[self.witnessed(false)]));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// The error of a fault that is of this operation, or of a collective that was under way.
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
