//! A run that stays: a process of `aorta exec --blocks`, which is asked for blocks.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use super::side::SideArgs;
use crate::base::shell;
use crate::cli::blocks::Ready;
use crate::cli::case::{Interrupt, died};
use crate::cli::error::InputError;
use crate::cli::{FAILED, INTERRUPTED};
use crate::measure::Block;

/// How often it is looked whether somebody has pressed Ctrl-C.
const GLANCE: Duration = Duration::from_millis(50);

/// How long a run may take until it has warmed up: it may compile kernels and fill a device's memory.
const PREPARES: Duration = Duration::from_secs(1800);

/// How long a block may take beyond an iteration that hangs, which the run finds by itself.
const BEYOND: Duration = Duration::from_secs(20);

/// How long a run may take to end once nobody asks it any more. It ends itself after ten seconds.
const ENDS: Duration = Duration::from_secs(15);

/// A side's process.
pub struct Standing {
    side: SideArgs,
    child: Child,
    /// It ends when this does.
    ask: Option<ChildStdin>,
    answers: Receiver<String>,
    said: Option<JoinHandle<String>>,
    patience: Duration,
}

/// Why a side gave no answer.
#[derive(Debug)]
pub enum Failure {
    /// Somebody has pressed Ctrl-C.
    Interrupted,
    /// The process has ended, or does not answer: what it said to people, and what is to be said of it.
    Ended { said: String, error: InputError },
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Failure {
        Failure::Ended { said: String::new(), error }
    }
}

impl Standing {
    /// Starts a side's run, and waits until it has warmed up.
    pub fn start(side: &SideArgs, interrupt: &Interrupt) -> Result<(Standing, Ready), Failure> {
        let failed = |why: std::io::Error| InputError::NoCase { why: why.to_string() };
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args(["exec", "--blocks"]).args(&side.arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let (send, answers) = mpsc::channel();
        let (ask, out, mut error) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let listen = move || {
            let lines = out.into_iter().flat_map(|out| BufReader::new(out).lines());
            // Who listens no more needs no answer.
            lines.map_while(Result::ok).all(|line| send.send(line).is_ok());
        };
        let hear = move || {
            let mut bytes = Vec::new();
            let _ = error.as_mut().map(|error| error.read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let thread = || std::thread::Builder::new();
        // The side ends by itself when it is not asked any more.
        let threads = thread().spawn(listen).and_then(|_| thread().spawn(hear));
        let said = threads.inspect_err(|_| drop(child.kill())).map_err(failed)?;
        let mut standing =
            Standing { side: side.clone(), child, ask, answers, said: Some(said), patience: Duration::ZERO };
        let ready: Ready = standing.answer(PREPARES, interrupt)?;
        standing.patience = Duration::from_nanos(ready.timeout.0.max(0) as u64) + BEYOND;
        Ok((standing, ready))
    }

    /// Measures a block. `expected` is how long it should take.
    pub fn block(&mut self, iterations: u64, expected: Duration, interrupt: &Interrupt) -> Result<Block, Failure> {
        // Short blocks are answered before anybody looks whether to stop.
        if interrupt.stopped() {
            return Err(Failure::Interrupted);
        }
        // A run that is gone says why when its answer is looked for.
        if let Some(ask) = &mut self.ask {
            let _ = writeln!(ask, "{iterations}").and_then(|()| ask.flush());
        }
        let block: Block = self.answer(self.patience + 20 * expected, interrupt)?;
        // What was cut short is no block.
        if block.stopped { Err(Failure::Interrupted) } else { Ok(block) }
    }

    fn answer<T: DeserializeOwned>(&mut self, patience: Duration, interrupt: &Interrupt) -> Result<T, Failure> {
        let asked = Instant::now();
        loop {
            match self.answers.recv_timeout(GLANCE) {
                Ok(line) => {
                    return serde_json::from_str(&line)
                        .map_err(|why| self.gone(format!("it answered `{line}`: {why}")));
                }
                Err(_) if interrupt.stopped() => return Err(Failure::Interrupted),
                Err(RecvTimeoutError::Timeout) if asked.elapsed() < patience => {}
                Err(RecvTimeoutError::Timeout) => {
                    let _ = self.child.kill();
                    let waited = patience.as_secs();
                    return Err(self.gone(format!("it did not answer for {waited} s, and was ended")));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let (status, said) = self.end();
                    return Err(self.ended(status, said, None));
                }
            }
        }
    }

    fn gone(&mut self, why: String) -> Failure {
        let (status, said) = self.end();
        self.ended(status, said, Some(why))
    }

    fn ended(&self, status: Option<ExitStatus>, said: String, why: Option<String>) -> Failure {
        let code = status.and_then(|status| status.code()).and_then(|code| u8::try_from(code).ok());
        if why.is_none() && code == Some(INTERRUPTED) {
            return Failure::Interrupted;
        }
        let how = || match (code, status) {
            (Some(code), _) => format!("its run ended with code {code}"),
            (None, Some(status)) => died(status),
            (None, None) => "nobody knows how it ended".to_owned(),
        };
        let error = InputError::SideFailed {
            side: self.side.side.name(),
            arguments: shell::command(&self.side.arguments),
            why: why.unwrap_or_else(how),
            code: code.filter(|code| matches!(code, 2 | 3)).unwrap_or(FAILED),
        };
        Failure::Ended { said, error }
    }

    /// Ends the run, and gives what it has said to people.
    pub fn finish(mut self) -> String {
        self.end().1
    }

    fn end(&mut self) -> (Option<ExitStatus>, String) {
        self.ask = None;
        let began = Instant::now();
        let mut status = None;
        while status.is_none() && began.elapsed() < ENDS {
            status = self.child.try_wait().ok().flatten();
            if status.is_none() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        if status.is_none() {
            let _ = self.child.kill();
            status = self.child.wait().ok();
        }
        let said = self.said.take().map(|said| said.join().unwrap_or_default());
        (status, said.unwrap_or_default())
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        if self.said.is_some() {
            self.end();
        }
    }
}
