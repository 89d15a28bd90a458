//! The process of a side of `aorta ab`, `aorta exec --blocks`: it warms up once, then measures blocks on request.

use std::time::Duration;

use super::side::SideArgs;
use crate::base::{json, shell};
use crate::cli::error::InputError;
use crate::cli::processes::blocks::{BlockMessage, BlockRequest, WarmedUp};
use crate::cli::processes::child::{Child, Interrupt, LineError, not_started};
use crate::cli::{FAILED, INTERRUPTED};
use crate::measure::BlockResult;

/// Time allowed for warm-up, which may compile kernels and fill a device's memory.
const WARM_UP_TIMEOUT: Duration = Duration::from_secs(1800);

/// Time allowed for a block in addition to the run's own timeout, with which it reports hung iterations itself.
const BLOCK_MARGIN: Duration = Duration::from_secs(20);

/// A side that is ready to measure.
pub struct SideProcess {
    side: SideArgs,
    child: Child,
    timeout: Duration,
}

/// The reason why a side gave no answer.
#[derive(Debug)]
pub enum Failure {
    /// This program was interrupted.
    Interrupted,
    /// The process has ended or does not answer.
    Ended {
        /// Text that the process printed on standard error.
        stderr: String,
        /// Error of the process in one line; `None` if it reported none.
        message: Option<String>,
        error: Box<InputError>,
    },
}

impl SideProcess {
    /// Starts a side's run and waits until it has warmed up.
    pub fn start(side: &SideArgs, interrupt: &Interrupt) -> Result<(SideProcess, WarmedUp), Failure> {
        let arguments = ["--blocks"].into_iter().chain(side.arguments.iter().map(String::as_str));
        let child = Child::start(arguments).map_err(|error| Failure::Ended {
            stderr: String::new(),
            message: None,
            error: Box::new(not_started(&error)),
        })?;
        let mut process = SideProcess { side: side.clone(), child, timeout: Duration::ZERO };
        match process.answer(WARM_UP_TIMEOUT, interrupt)? {
            BlockMessage::Ready(ready) => {
                process.timeout = ready.timeout.duration() + BLOCK_MARGIN;
                Ok((process, *ready))
            }
            other => Err(process.ended(Some(format!("it began with {other:?}")), None)),
        }
    }

    /// Measures a block. `expected` is its estimated duration.
    pub fn block(
        &mut self,
        iterations: u64,
        expected: Duration,
        interrupt: &Interrupt,
    ) -> Result<BlockResult, Failure> {
        // A short block would be answered before the wait checks for an interruption.
        if interrupt.stopped() {
            return Err(Failure::Interrupted);
        }
        self.child.ask(&json::line(&BlockRequest::Block(iterations)));
        match self.answer(self.timeout + 20 * expected, interrupt)? {
            // A block that was cut short is discarded.
            BlockMessage::Block(block) if block.stopped => Err(Failure::Interrupted),
            BlockMessage::Block(block) => Ok(block),
            other => Err(self.ended(Some(format!("it answered {other:?}")), None)),
        }
    }

    /// Waits for the next message. An error if the run reports a failure or ends.
    fn answer(&mut self, timeout: Duration, interrupt: &Interrupt) -> Result<BlockMessage, Failure> {
        match self.child.line(timeout, interrupt) {
            Ok(line) => match serde_json::from_slice(line.as_bytes()) {
                Ok(BlockMessage::Failed { message }) => Err(self.ended(None, Some(message))),
                Ok(message) => Ok(message),
                Err(why) => Err(self.ended(Some(format!("it answered `{line}`: {why}")), None)),
            },
            Err(LineError::Interrupted) => Err(Failure::Interrupted),
            Err(LineError::Ended) => Err(self.ended(None, None)),
            Err(LineError::TimedOut) => {
                self.child.kill();
                let why = format!("it did not answer for {} s and was stopped", timeout.as_secs());
                Err(self.ended(Some(why), None))
            }
        }
    }

    /// Ends the process. `why` describes an invalid answer, `message` is the run's own error.
    fn ended(&mut self, why: Option<String>, message: Option<String>) -> Failure {
        let ended = self.child.end();
        if why.is_none() && ended.code == Some(INTERRUPTED) {
            return Failure::Interrupted;
        }
        let error = InputError::SideFailed {
            side: self.side.side.name(),
            arguments: shell::command(&self.side.arguments),
            why: why.unwrap_or(ended.how),
            code: ended.code.filter(|code| matches!(code, 2 | 3)).unwrap_or(FAILED),
        };
        Failure::Ended { stderr: ended.stderr, message, error: Box::new(error) }
    }

    /// Runs the `teardown`, unless this program was interrupted, and ends the run. Returns the text that it printed on
    /// standard error. An error if the teardown fails.
    pub fn finish(mut self, interrupt: &Interrupt) -> Result<String, Failure> {
        if !interrupt.stopped() {
            self.child.ask(&json::line(&BlockRequest::TearDown));
            match self.answer(self.timeout, interrupt) {
                Ok(BlockMessage::TornDown) | Err(Failure::Interrupted) => {}
                Ok(other) => return Err(self.ended(Some(format!("it answered {other:?}")), None)),
                Err(failure) => return Err(failure),
            }
        }
        Ok(self.child.end().stderr)
    }
}
