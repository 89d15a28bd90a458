//! Runs a case and determines its outcome.

use std::ffi::OsStr;
use std::io::Write;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::PlannedCase;
use crate::cli::error::{CliError, InputError};
use crate::cli::processes::child::{Child, ChildOutcome, Interrupt, LineError, not_started};
use crate::cli::{CHECK_FAILED, DONE, FAILED};
use crate::measure::RunRecord;
use crate::measure::cases::{Case, Status};

/// Code of the diagnostic for insufficient memory.
const OUT_OF_MEMORY: &str = "aorta::exec::out_of_memory";

/// Number of last lines of output that are reported for a process that died without an error.
const LAST_LINES: usize = 3;

/// Runs `aorta exec` and waits for its end. Its output does not reach the terminal. `None` if it was interrupted.
///
/// # Errors
///
/// The process cannot be started, or there is no room for its record.
pub fn run(planned: &PlannedCase, arguments: &[String], interrupt: &Interrupt) -> Result<Option<Case>, CliError> {
    if interrupt.stopped() {
        return Ok(None);
    }
    let failed = |error: std::io::Error| match full(&error) {
        true => InputError::OutputLost { why: no_room() },
        false => not_started(&error),
    };
    let folder = tempfile::Builder::new().prefix("aorta-case-").tempdir().map_err(failed)?;
    let path = folder.path().join("record.json");
    // `arguments` may contain any word, also `--`, so our own options come first.
    let fixed_arguments = ["--diagnostics", "json", "--until-input-ends", "--json"].map(OsStr::new);
    let words = fixed_arguments.into_iter().chain([path.as_os_str()]).chain(arguments.iter().map(OsStr::new));
    let began = Instant::now();
    let mut child = Child::start(words).map_err(failed)?;
    let mut errors = Vec::new();
    let silence = loop {
        match child.line(Duration::MAX, interrupt) {
            Ok(line) => errors.extend(Diagnostic::error(&line)),
            Err(silence) => break silence,
        }
    };
    let ended = child.end();
    let seconds = (began.elapsed().as_secs_f64() * 1000.0).round() / 1000.0;
    if silence == LineError::Interrupted || interrupt.stopped() || ended.was_interrupted() {
        return Ok(None);
    }
    let PlannedCase { name, values, .. } = planned;
    Ok(Some(match outcome(&ended, std::fs::read_to_string(&path).ok(), &errors) {
        Ok(record) => Case::measured(name, values, seconds, record),
        Err((status, _)) if status != Status::OutOfMemory && is_full() => {
            Case::without(name, values, seconds, Status::Failed, no_room())
        }
        Err((status, why)) => Case::without(name, values, seconds, status, why),
    }))
}

/// True for an error that means that a disk or a quota is full.
fn full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

/// True if the folder of temporary files is full. A case then fails for reasons that it cannot report.
fn is_full() -> bool {
    // Writes more than one block, since a nearly full disk may still have room for a few bytes.
    let tried = tempfile::tempfile().and_then(|mut file| file.write_all(&[0; 1 << 16]));
    tried.is_err_and(|error| full(&error))
}

fn no_room() -> String {
    let folder = std::env::temp_dir();
    format!("{}, the folder of temporary files, is full; set TMPDIR to another folder", folder.display())
}

/// A diagnostic in the format of `--diagnostics json`.
#[derive(Deserialize)]
struct Diagnostic {
    severity: String,
    code: Option<String>,
    message: String,
}

impl Diagnostic {
    /// Parses a line as an error diagnostic; `None` for any other line.
    fn error(line: &str) -> Option<Diagnostic> {
        serde_json::from_slice(line.as_bytes()).ok().filter(|diagnostic: &Diagnostic| diagnostic.severity == "error")
    }
}

/// The record of a completed run, otherwise the case's status and the reason.
fn outcome(
    ended: &ChildOutcome,
    record: Option<String>,
    errors: &[Diagnostic],
) -> Result<Box<RunRecord>, (Status, String)> {
    if let Some(DONE | CHECK_FAILED) = ended.code {
        let read = record.ok_or_else(|| "it wrote no record".to_owned()).and_then(|text| RunRecord::from_json(&text));
        // The file of cases contains the arguments once; the text of the workload in each record would make the file
        // many times larger.
        let without_text = |record| Box::new(RunRecord { source: None, ..record });
        return read.map(without_text).map_err(|why| (Status::Failed, why));
    }
    let short = errors.iter().any(|error| error.code.as_deref() == Some(OUT_OF_MEMORY));
    // A failure can be reported twice: when it occurred, and again with the operation found by diagnosis.
    let mut messages: Vec<&str> = errors.iter().map(|error| error.message.as_str()).collect();
    messages.dedup();
    let why = if messages.is_empty() { last_lines(&ended.stderr) } else { Some(messages.join("; ")) };
    let or = |what: &str| why.clone().unwrap_or_else(|| what.to_owned());
    Err(match ended.code {
        Some(2) => (Status::Skipped, or("its input was invalid")),
        Some(3) => (Status::Skipped, or("there is no such device")),
        Some(FAILED) if short => (Status::OutOfMemory, or("memory did not suffice")),
        Some(FAILED) => (Status::Failed, or("it failed without a message")),
        _ => (Status::Failed, why.map_or_else(|| ended.how.clone(), |why| format!("{}: {why}", ended.how))),
    })
}

/// The last lines that a dead process printed; `None` if it printed nothing.
fn last_lines(text: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    (!lines.is_empty()).then(|| lines[lines.len().saturating_sub(LAST_LINES)..].join("; "))
}
