//! A child process that runs `aorta exec`.
//!
//! A child never outlives its parent. Its standard input is a pipe that closes when the parent ends, also by Ctrl-C,
//! `kill -9` or a crash, and the child ends when its standard input does.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{self, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::backend::{leave, preserving_ignored_hangup};
use crate::base::threads;
use crate::exec::ExecError;

use crate::cli::INTERRUPTED;
use crate::cli::error::InputError;

/// Interval at which a waiting parent checks for an interruption.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Time allowed for a child to end after its standard input is closed. It ends itself after ten seconds.
const END_TIMEOUT: Duration = Duration::from_secs(15);

/// Set when the user presses Ctrl-C in a program that starts children.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Installs a handler for Ctrl-C and SIGTERM; a second signal ends the program at once. Call this once per program.
    pub fn watch() -> Interrupt {
        let interrupt = Interrupt::default();
        let seen = interrupt.clone();
        let handler = move || {
            if seen.0.swap(true, Ordering::Relaxed) {
                leave(INTERRUPTED);
            }
        };
        // Without a handler, Ctrl-C ends the program and with it the child.
        preserving_ignored_hangup(|| drop(ctrlc::set_handler(handler)));
        interrupt
    }

    /// True if nothing new may be started.
    pub fn stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Ends this process when its standard input ends. Called in a child.
pub fn until_input_ends() -> Result<(), ExecError> {
    let watch = || {
        // The parent writes nothing; an error is treated as the end.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        // A regular exit would wait for the device.
        leave(INTERRUPTED);
    };
    let thread = threads::spawn(Builder::new(), watch);
    thread.map(drop).map_err(|error| ExecError::no_thread("to watch standard input", &error))
}

/// A running `aorta exec`.
pub struct Child {
    process: process::Child,
    stdin: Option<ChildStdin>,
    /// Lines of the child's standard output.
    lines: Receiver<String>,
    /// Thread that collects standard error; `None` once the child has ended.
    stderr: Option<JoinHandle<String>>,
}

/// Reason why a child printed no further line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineError {
    /// This program was interrupted.
    Interrupted,
    /// The child exceeded the timeout.
    TimedOut,
    /// The child has closed its standard output, because it has ended.
    Ended,
}

/// Outcome of a child process.
#[derive(Debug)]
pub struct ChildOutcome {
    /// Exit code of the process; `None` if a signal ended it.
    pub code: Option<u8>,
    /// The end in words, such as `it crashed (SIGSEGV)`.
    pub how: String,
    /// Text that the child printed on standard error.
    pub stderr: String,
}

impl ChildOutcome {
    /// True if the child ended because of an interruption.
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
            // Stops once the parent has dropped the receiver.
            lines.map_while(Result::ok).all(|line| send.send(line).is_ok());
        };
        let collect = move || {
            let mut bytes = Vec::new();
            let _ = error.as_mut().map(|error| error.read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        };
        // The system may refuse to create a thread. The child then ends, and with it the thread that was created.
        let threads = threads::spawn(Builder::new(), listen).and_then(|_| threads::spawn(Builder::new(), collect));
        let stderr = threads.inspect_err(|_| drop(process.kill()))?;
        Ok(Child { process, stdin, lines, stderr: Some(stderr) })
    }

    /// Writes a line, with its end, to the child's standard input. If the child has ended, reading its answer reports why.
    pub fn ask(&mut self, line: &str) {
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(line.as_bytes()).and_then(|()| stdin.flush());
        }
    }

    /// Waits for the next line of the child's standard output.
    pub fn line(&self, timeout: Duration, interrupt: &Interrupt) -> Result<String, LineError> {
        let asked = Instant::now();
        loop {
            match self.lines.recv_timeout(POLL_INTERVAL) {
                Ok(line) => return Ok(line),
                Err(_) if interrupt.stopped() => return Err(LineError::Interrupted),
                Err(RecvTimeoutError::Timeout) if asked.elapsed() < timeout => {}
                Err(RecvTimeoutError::Timeout) => return Err(LineError::TimedOut),
                Err(RecvTimeoutError::Disconnected) => return Err(LineError::Ended),
            }
        }
    }

    /// Kills the process.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
    }

    /// Closes the child's standard input and waits for its end; kills it after a time limit.
    pub fn end(&mut self) -> ChildOutcome {
        self.stdin = None;
        let began = Instant::now();
        let mut status = None;
        while status.is_none() && began.elapsed() < END_TIMEOUT {
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
            (None, None) => "its exit status is unknown".to_owned(),
        };
        ChildOutcome { code, how, stderr }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.stderr.is_some() {
            self.end();
        }
    }
}

/// The error for a child that cannot be started.
pub fn not_started(error: &std::io::Error) -> InputError {
    InputError::NoCase { why: error.to_string() }
}

/// Describes how a process without an exit code ended.
fn died(status: ExitStatus) -> String {
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        let name = match signal {
            4 => "SIGILL",
            6 => "SIGABRT",
            7 => "SIGBUS",
            8 => "SIGFPE",
            9 => return "it was killed (SIGKILL), by a user or by the system when memory ran out".to_owned(),
            11 => "SIGSEGV",
            _ => return format!("it was ended by signal {signal}"),
        };
        return format!("it crashed ({name})");
    }
    format!("it ended without a code ({status})")
}
