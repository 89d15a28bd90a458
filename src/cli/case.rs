//! A case: a run of `aorta exec` in a process of its own, one of those that a sweep, a suite or a comparison needs.
//!
//! Every case is a process of its own, whether or not its environment differs. A device that has failed does not work
//! again in the process that saw it fail, memory that ran out may stay taken, a call that hangs does not come back: none
//! of that reaches the next case. Variables of drivers are read once in a process, so they just work. It costs the start
//! of a process: milliseconds on the simulator, opening the device on a GPU.
//!
//! A case lives no longer than who has started it. Its standard input is a pipe that nobody writes to: when that ends,
//! by Ctrl-C, by `kill -9` or by a crash, so does the case.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use serde::Deserialize;

use crate::backend::{keeping_hang_ups, leave};
use crate::exec::ExecError;
use crate::measure::RunRecord;
use crate::measure::cases::{Case, Status};

use super::error::{CliError, InputError};
use super::{DONE, FAILED, INTERRUPTED, NOT_HELD, launcher};

/// The code of a run for which memory did not suffice.
const OUT_OF_MEMORY: &str = "aorta::exec::out_of_memory";

/// Lines at the end of what a case has said that are told of one that died without a reason.
const LAST_LINES: usize = 3;

/// How a case has ended.
#[derive(Debug)]
pub enum Outcome {
    Done(Box<RunRecord>),
    /// An expectation or the verification did not hold.
    NotHeld(Box<RunRecord>),
    OutOfMemory(String),
    /// The arguments, the file or the settings are wrong.
    BadInput(String),
    NoDevice(String),
    /// The run failed, or its process died.
    Failed(String),
    /// By Ctrl-C, or by a signal of the same meaning.
    Interrupted,
}

impl Outcome {
    fn is_failure(&self) -> bool {
        matches!(self, Outcome::Failed(_) | Outcome::BadInput(_))
    }

    /// The case as a file of cases has it; nothing of one that was interrupted.
    pub fn case(self, name: &str, values: &IndexMap<String, String>, took: Duration) -> Option<Case> {
        let seconds = (took.as_secs_f64() * 1000.0).round() / 1000.0;
        let (status, reason) = match self {
            Outcome::Done(record) | Outcome::NotHeld(record) => {
                return Some(Case::measured(name, values, seconds, record));
            }
            Outcome::OutOfMemory(why) => (Status::OutOfMemory, why),
            Outcome::BadInput(why) | Outcome::NoDevice(why) => (Status::Skipped, why),
            Outcome::Failed(why) => (Status::Failed, why),
            Outcome::Interrupted => return None,
        };
        Some(Case::without(name, values, seconds, status, reason))
    }
}

/// What Ctrl-C does to a program that runs cases: it ends the case under way, and no other begins.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    stopped: bool,
    /// The case under way ends when this does.
    lifeline: Option<ChildStdin>,
}

impl Interrupt {
    /// Watches for Ctrl-C and SIGTERM. The second ends the program at once. Once in a program.
    pub fn watch() -> Interrupt {
        let interrupt = Interrupt::default();
        let told = interrupt.clone();
        let handler = move || {
            if told.stop() {
                leave(INTERRUPTED);
            }
        };
        // Without a handler, Ctrl-C ends the program as it always does, and with it the case.
        keeping_hang_ups(|| drop(ctrlc::set_handler(handler)));
        interrupt
    }

    /// Whether nothing is to begin any more.
    pub fn stopped(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).stopped
    }

    /// Ends the case under way, and says whether that had been asked for before.
    fn stop(&self) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.lifeline = None;
        std::mem::replace(&mut state.stopped, true)
    }

    /// Holds what a case lives by. One that begins while the program is being stopped ends at once.
    fn hold(&self, lifeline: Option<ChildStdin>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.lifeline = lifeline.filter(|_| !state.stopped);
    }
}

/// Fails where a launcher has started this program: what runs cases starts its processes itself.
pub fn alone(command: &str) -> Result<(), InputError> {
    let Some(launcher) = launcher::here()? else { return Ok(()) };
    Err(InputError::Launcher {
        why: format!("`aorta {command}` was started by {}, and starts a process for each case itself", launcher.name),
        help: format!("start `aorta {command}` by itself; `--ranks N` runs N ranks in one process"),
    })
}

/// Runs `aorta exec` with these arguments, and waits for its end. What it prints is kept from the terminal.
///
/// # Errors
/// The process cannot be started, or there is no place for what it says.
pub fn run(arguments: &[String], interrupt: &Interrupt) -> Result<(Outcome, Duration), CliError> {
    if interrupt.stopped() {
        return Ok((Outcome::Interrupted, Duration::ZERO));
    }
    let failed = |error: std::io::Error| match full(&error) {
        true => InputError::OutputLost { why: no_room() },
        false => InputError::NoCase { why: error.to_string() },
    };
    let folder = tempfile::Builder::new().prefix("aorta-case-").tempdir().map_err(failed)?;
    let path = folder.path().join("record.json");
    let mut said = Said { out: tempfile::tempfile().map_err(failed)?, error: tempfile::tempfile().map_err(failed)? };
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    // A word of `arguments` may be anything, also `--`: what is ours comes before.
    command.args(["exec", "--diagnostics", "json", "--until-input-ends", "--json"]).arg(&path).args(arguments);
    command.stdin(Stdio::piped());
    command.stdout(said.out.try_clone().map_err(failed)?).stderr(said.error.try_clone().map_err(failed)?);
    let began = Instant::now();
    let mut child: Child = command.spawn().map_err(failed)?;
    interrupt.hold(child.stdin.take());
    let status = child.wait();
    interrupt.hold(None);
    let took = began.elapsed();
    let status = status.map_err(failed)?;
    if interrupt.stopped() {
        return Ok((Outcome::Interrupted, took));
    }
    let record = std::fs::read_to_string(&path).ok();
    let ended = outcome(status, record, &mut said);
    Ok((if ended.is_failure() && is_full() { Outcome::Failed(no_room()) } else { ended }, took))
}

/// Whether an error is that a disk, or the user's part of it, is full.
fn full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

/// Whether the folder of temporary files has no room left: a case then fails for reasons that it cannot tell.
fn is_full() -> bool {
    // More than one block, since a file's first bytes may have room where no others have.
    let tried = tempfile::tempfile().and_then(|mut file| file.write_all(&[0; 1 << 16]));
    tried.is_err_and(|error| full(&error))
}

fn no_room() -> String {
    let folder = std::env::temp_dir();
    format!("{} is full, where cases have their temporary files; TMPDIR names another folder", folder.display())
}

/// In the process of a case: ends it when its standard input ends.
pub fn until_input_ends() -> Result<(), ExecError> {
    let watch = || {
        // Nobody writes; an error is an end too.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        // A regular end would wait for the device.
        leave(INTERRUPTED);
    };
    let thread = std::thread::Builder::new().spawn(watch);
    thread.map(drop).map_err(|error| ExecError::no_thread("to watch standard input", &error))
}

/// What a case has said.
struct Said {
    out: std::fs::File,
    error: std::fs::File,
}

/// A diagnostic as `--diagnostics json` has it.
#[derive(Deserialize)]
struct Diagnostic {
    severity: String,
    code: Option<String>,
    message: String,
}

impl Said {
    /// The errors, the first first. What else is printed is no JSON of that form.
    fn errors(&mut self) -> Vec<Diagnostic> {
        let text = everything(&mut self.out);
        let parsed = text.lines().filter_map(|line| serde_json::from_str::<Diagnostic>(line).ok());
        parsed.filter(|diagnostic| diagnostic.severity == "error").collect()
    }

    /// The end of what it said to people: of a process that died, the best that there is.
    fn last_lines(&mut self) -> Option<String> {
        let text = everything(&mut self.error);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        (!lines.is_empty()).then(|| lines[lines.len().saturating_sub(LAST_LINES)..].join("; "))
    }
}

fn everything(file: &mut std::fs::File) -> String {
    use std::io::{Seek, SeekFrom};
    let mut bytes = Vec::new();
    let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut bytes));
    read.map_or_else(|_| String::new(), |_| String::from_utf8_lossy(&bytes).into_owned())
}

fn outcome(status: ExitStatus, record: Option<String>, said: &mut Said) -> Outcome {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    if let Some(DONE | NOT_HELD) = code {
        let read = record.ok_or_else(|| "it wrote no record".to_owned()).and_then(|text| RunRecord::from_json(&text));
        return match read {
            Ok(record) if code == Some(DONE) => Outcome::Done(Box::new(record)),
            Ok(record) => Outcome::NotHeld(Box::new(record)),
            Err(why) => Outcome::Failed(why),
        };
    }
    let errors = said.errors();
    let short = errors.iter().any(|error| error.code.as_deref() == Some(OUT_OF_MEMORY));
    let told: Option<String> = (!errors.is_empty()).then(|| {
        // A failure may be told twice: as it was met, and with the operation that was found then.
        let mut messages: Vec<&str> = errors.iter().map(|error| error.message.as_str()).collect();
        messages.dedup();
        messages.join("; ")
    });
    let why = told.or_else(|| said.last_lines());
    let because = |what: String| match &why {
        Some(why) => format!("{what}: {why}"),
        None => what,
    };
    match code {
        Some(INTERRUPTED) => Outcome::Interrupted,
        Some(2) => Outcome::BadInput(why.unwrap_or_else(|| "it was given something wrong".to_owned())),
        Some(3) => Outcome::NoDevice(why.unwrap_or_else(|| "there is no such device".to_owned())),
        Some(FAILED) if short => Outcome::OutOfMemory(why.unwrap_or_else(|| "memory did not suffice".to_owned())),
        Some(FAILED) => Outcome::Failed(why.unwrap_or_else(|| "it failed and did not say why".to_owned())),
        Some(code) => Outcome::Failed(because(format!("it ended with code {code}"))),
        None => Outcome::Failed(because(died(status))),
    }
}

/// How a process died that has no exit code.
pub fn died(status: ExitStatus) -> String {
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
