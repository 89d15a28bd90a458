//! A process of `aorta exec` that this one has started.
//!
//! A child lives no longer than its parent: it ends when its standard input does, which is a pipe that closes with the
//! parent, by Ctrl-C, by `kill -9` or by a crash.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{self, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::backend::{keeping_hang_ups, leave};
use crate::exec::ExecError;

use super::INTERRUPTED;
use super::error::InputError;

/// How often a parent that waits looks whether it was interrupted.
const GLANCE: Duration = Duration::from_millis(50);

/// How long a child may take to end once its standard input is closed. It ends itself after ten seconds.
const ENDS: Duration = Duration::from_secs(15);

/// Whether Ctrl-C was pressed in a program that starts children.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Watches for Ctrl-C and SIGTERM. The second ends the program at once. Once in a program.
    pub fn watch() -> Interrupt {
        let interrupt = Interrupt::default();
        let seen = interrupt.clone();
        let handler = move || {
            if seen.0.swap(true, Ordering::Relaxed) {
                leave(INTERRUPTED);
            }
        };
        // Without a handler, Ctrl-C ends the program as it always does, and with it the child.
        keeping_hang_ups(|| drop(ctrlc::set_handler(handler)));
        interrupt
    }

    /// Whether nothing may begin any more.
    pub fn stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// In the process of a child: ends it when its standard input ends.
pub fn until_input_ends() -> Result<(), ExecError> {
    let watch = || {
        // Nobody writes; an error is an end too.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        // A regular end would wait for the device.
        leave(INTERRUPTED);
    };
    let thread = Builder::new().spawn(watch);
    thread.map(drop).map_err(|error| ExecError::no_thread("to watch standard input", &error))
}

/// A running `aorta exec`.
pub struct Child {
    process: process::Child,
    stdin: Option<ChildStdin>,
    /// The lines of its standard output.
    lines: Receiver<String>,
    /// All of its standard error; `None` once the child has ended.
    stderr: Option<JoinHandle<String>>,
}

/// Why a child has printed no further line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// This program was interrupted.
    Interrupted,
    /// Its patience was exceeded.
    TimedOut,
    /// The child has closed its standard output: it has ended.
    Ended,
}

/// How a child has ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code; `None` of one that a signal has ended.
    pub code: Option<u8>,
    /// The end in words: `it crashed (SIGSEGV)`.
    pub how: String,
    /// What it has printed to standard error, for people.
    pub stderr: String,
}

impl Ended {
    /// Whether an interruption ended it.
    pub fn was_interrupted(&self) -> bool {
        self.code == Some(INTERRUPTED)
    }
}

impl Child {
    /// Starts `aorta exec` with these arguments.
    pub fn start(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> std::io::Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("exec").args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn()?;
        let (send, lines) = mpsc::channel();
        let (stdin, out, mut error) = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        let listen = move || {
            let lines = out.into_iter().flat_map(|out| BufReader::new(out).lines());
            // Nobody listens any more once the parent has dropped the child.
            lines.map_while(Result::ok).all(|line| send.send(line).is_ok());
        };
        let collect = move || {
            let mut bytes = Vec::new();
            let _ = error.as_mut().map(|error| error.read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        };
        // The system may refuse a thread. The child then ends, and with it the thread that was given.
        let threads = Builder::new().spawn(listen).and_then(|_| Builder::new().spawn(collect));
        let stderr = threads.inspect_err(|_| drop(process.kill()))?;
        Ok(Child { process, stdin, lines, stderr: Some(stderr) })
    }

    /// Writes a line to its standard input. A child that has ended says why when its answer is read.
    pub fn ask(&mut self, line: &str) {
        if let Some(stdin) = &mut self.stdin {
            let _ = writeln!(stdin, "{line}").and_then(|()| stdin.flush());
        }
    }

    /// Waits for the next line of its standard output.
    pub fn line(&self, patience: Duration, interrupt: &Interrupt) -> Result<String, Silence> {
        let asked = Instant::now();
        loop {
            match self.lines.recv_timeout(GLANCE) {
                Ok(line) => return Ok(line),
                Err(_) if interrupt.stopped() => return Err(Silence::Interrupted),
                Err(RecvTimeoutError::Timeout) if asked.elapsed() < patience => {}
                Err(RecvTimeoutError::Timeout) => return Err(Silence::TimedOut),
                Err(RecvTimeoutError::Disconnected) => return Err(Silence::Ended),
            }
        }
    }

    /// Kills the process at once.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
    }

    /// Closes its standard input, and waits until it has ended; after a while it is killed.
    pub fn end(&mut self) -> Ended {
        self.stdin = None;
        let began = Instant::now();
        let mut status = None;
        while status.is_none() && began.elapsed() < ENDS {
            status = self.process.try_wait().ok().flatten();
            if status.is_none() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        if status.is_none() {
            self.kill();
            status = self.process.wait().ok();
        }
        let stderr = self.stderr.take().map(|stderr| stderr.join().unwrap_or_default()).unwrap_or_default();
        let code = status.and_then(|status| status.code()).and_then(|code| u8::try_from(code).ok());
        let how = match (code, status) {
            (Some(code), _) => format!("it ended with code {code}"),
            (None, Some(status)) => died(status),
            (None, None) => "nobody knows how it ended".to_owned(),
        };
        Ended { code, how, stderr }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.stderr.is_some() {
            self.end();
        }
    }
}

/// The error of a child that cannot be started.
pub fn not_started(error: &std::io::Error) -> InputError {
    InputError::NoCase { why: error.to_string() }
}

/// How a process without an exit code ended.
fn died(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        let name = match signal {
            4 => "SIGILL",
            6 => "SIGABRT",
            7 => "SIGBUS",
            8 => "SIGFPE",
            9 => return "it was killed (SIGKILL): by somebody, or by the system when memory ran out".to_owned(),
            11 => "SIGSEGV",
            _ => return format!("it was ended by signal {signal}"),
        };
        return format!("it crashed ({name})");
    }
    format!("it ended without a code ({status})")
}
