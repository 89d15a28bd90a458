//! Finds and reads the files that a command names, and compiles workloads with the command's arguments.

use std::cell::RefCell;
use std::io::Read;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::shell;
use crate::compile::{self, CompileError, Compiled, ModuleText, Parsed, Ranks};
use crate::config::Settings;
use crate::exec::ExecError;
use crate::measure::record::Workload;
use crate::model;
use crate::syntax::Limits;

use super::error::{CliError, InputError};
use super::progress::Progress;
use super::{ConfigArgs, SyncArg, WorkloadArgs, environment, library, modules};

/// A workload's text and its origin.
#[derive(Clone)]
pub struct Text {
    pub name: String,
    pub origin: String,
    pub text: String,
    /// The file that it was read from; `None` for standard input and shipped workloads.
    pub path: Option<PathBuf>,
    /// The beginning of the command that checks this workload, without the arguments that set the program: `aorta check
    /// FILE`. Empty if this command itself checks.
    pub check: Vec<String>,
}

impl Text {
    /// The command that checks the text as it is loaded here.
    fn check_command(&self, args: &WorkloadArgs, world: u32) -> Option<String> {
        let mut words = self.check.clone();
        if words.is_empty() {
            return None;
        }
        words.extend(args.words());
        if world > 1 {
            words.extend(["--ranks".to_owned(), world.to_string()]);
        }
        Some(shell::command(words))
    }
}

/// A compiled workload with what the command line knows about it.
pub struct Loaded {
    pub compiled: Compiled,
    /// Origin: `library`, `<stdin>`, or the path.
    pub origin: String,
    /// The command that checks the same; `None` if the text came on standard input, or this command checks it.
    pub check: Option<String>,
}

impl Loaded {
    /// The description of the file for a record or a plan.
    pub fn workload(&self) -> Workload {
        Workload { origin: self.origin.clone(), ..Workload::of(&self.compiled) }
    }
}

/// Origin of shipped workloads.
pub const LIBRARY: &str = "library";

/// Argument that stands for standard input.
const STANDARD_INPUT: &str = "-";

/// The settings merged from all layers.
pub fn settings(args: &ConfigArgs) -> Result<Settings, CliError> {
    let user_file = environment::config_file();
    let path: Option<PathBuf> = args.config_file.clone().or_else(|| user_file.filter(|path| path.is_file()));
    let file = match &path {
        Some(path) => Some((path.display().to_string(), read(path, FileKind::Settings)?)),
        None => None,
    };
    let file = file.as_ref().map(|(name, text)| (name.as_str(), text.as_str()));
    Ok(Settings::layered(file, &args.config)?)
}

/// The purpose of a file that is read, which determines its limits and messages.
#[derive(Clone, Copy, Debug)]
pub enum FileKind {
    /// A workload of at most this many bytes.
    Workload(usize),
    Settings,
    Scenario,
    Profile,
    Topology,
    Expected,
    Suite,
    Record,
    /// Runs for `compare`.
    Runs,
    Plan,
}

impl FileKind {
    fn limit(self) -> usize {
        match self {
            FileKind::Workload(limit) => limit,
            FileKind::Settings
            | FileKind::Scenario
            | FileKind::Profile
            | FileKind::Topology
            | FileKind::Expected
            | FileKind::Suite => 1 << 20,
            FileKind::Record | FileKind::Runs | FileKind::Plan => 1 << 30,
        }
    }

    /// Description of the expected file, for the error if it does not exist.
    fn wanted(self) -> &'static str {
        match self {
            FileKind::Workload(_) => "a file with a workload was looked for",
            FileKind::Settings => "a file with settings was looked for",
            FileKind::Scenario => "a scenario was looked for, since the name ends in `.ron`",
            FileKind::Suite => {
                "a suite was looked for, since the name is a path; `aorta suite` lists those that are shipped"
            }
            FileKind::Expected => "a file with ranges was looked for, as `--expected=PATH` names it",
            FileKind::Profile => "a device profile was looked for, since the name ends in `.ron`",
            FileKind::Topology => "a topology was looked for, since the name ends in `.ron`",
            FileKind::Plan => {
                "a plan was looked for, since the name ends in `.json`: `aorta plan FILE --format json` writes one"
            }
            FileKind::Runs => {
                "a record, a file of cases or a folder of them was looked for: `aorta exec FILE --json PATH` writes one"
            }
            FileKind::Record => "a record was looked for: `aorta exec FILE --json PATH` writes one",
        }
    }
}

/// Reads a text file.
pub fn read(path: &Path, kind: FileKind) -> Result<String, InputError> {
    let name = path.display().to_string();
    text(&name, bytes_from(&name, open(path, kind)?, kind)?)
}

/// Reads a file of any contents.
fn read_bytes(path: &Path, kind: FileKind) -> Result<Vec<u8>, InputError> {
    bytes_from(&path.display().to_string(), open(path, kind)?, kind)
}

/// Opens a file, and nothing else that a path may lead to.
fn open(path: &Path, kind: FileKind) -> Result<std::fs::File, InputError> {
    let unreadable = |why: String, help: Option<&str>| InputError::Unreadable {
        name: path.display().to_string(),
        why,
        help: help.map(str::to_owned),
    };
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => unreadable("there is no such file".to_owned(), Some(kind.wanted())),
        _ => unreadable(error.to_string(), None),
    };
    let about = std::fs::metadata(path).map_err(failed)?;
    if about.is_dir() {
        return Err(unreadable("it is a folder".to_owned(), Some("name a file in it")));
    }
    if !about.is_file() {
        // Opening a pipe without a writer, or reading a device, may block forever.
        let help = match kind {
            FileKind::Workload(_) => {
                "give the text on standard input, with `-` in place of the file: `… | aorta check -`"
            }
            _ => "name a file",
        };
        return Err(unreadable(format!("it is {}, and no file", file_type_name(&about)), Some(help)));
    }
    std::fs::File::open(path).map_err(failed)
}

/// Names the type of a path that is neither a file nor a folder.
fn file_type_name(about: &std::fs::Metadata) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        let kind = about.file_type();
        if kind.is_fifo() {
            return "a pipe";
        }
        if kind.is_socket() {
            return "a socket";
        }
    }
    let _ = about;
    "a device"
}

/// Reads a text; `name` identifies it in errors.
pub fn read_from(name: &str, reader: impl Read, kind: FileKind) -> Result<String, InputError> {
    text(name, bytes_from(name, reader, kind)?)
}

fn bytes_from(name: &str, reader: impl Read, kind: FileKind) -> Result<Vec<u8>, InputError> {
    let unreadable = |why: String, help: Option<&str>| InputError::Unreadable {
        name: name.to_owned(),
        why,
        help: help.map(str::to_owned),
    };
    let limit = kind.limit();
    let mut bytes = Vec::new();
    // Reads one byte more than allowed, which detects large files also if they have no size or are growing.
    let read = reader.take(limit as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(error.to_string(), None))?;
    if bytes.len() > limit {
        let help = "write repetition as a `for` loop, or raise the limit: `--config max_file_bytes=…`";
        let help = matches!(kind, FileKind::Workload(_)).then_some(help);
        return Err(unreadable(format!("it is larger than {limit} bytes"), help));
    }
    Ok(bytes)
}

fn text(name: &str, bytes: Vec<u8>) -> Result<String, InputError> {
    String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        InputError::Unreadable {
            name: name.to_owned(),
            why: format!("it is no text: line {} is not UTF-8", line + 1),
            help: Some("save it as UTF-8".to_owned()),
        }
    })
}

/// Finds a workload: a path, or `-` for standard input. A bare name that is no file here is a shipped workload, even if
/// a folder has that name.
pub fn find(name: &str, settings: &Settings) -> Result<Text, CliError> {
    let kind = FileKind::Workload(settings.max_file_bytes);
    if name == STANDARD_INPUT {
        let text = read_from("standard input", std::io::stdin().lock(), kind)?;
        let name = "<stdin>".to_owned();
        return Ok(Text { origin: name.clone(), name, text, path: None, check: Vec::new() });
    }
    let path = Path::new(name);
    let shipped = library::find(name);
    // A path that exists but cannot be inspected (a cycle of links, a folder without permission) is not a missing file.
    let is_there = !matches!(std::fs::metadata(path), Err(error) if error.kind() == std::io::ErrorKind::NotFound);
    if is_there && (shipped.is_none() || path.is_file()) {
        let text = read(path, kind)?;
        let path = Some(path.to_owned());
        return Ok(Text { name: name.to_owned(), origin: name.to_owned(), text, path, check: Vec::new() });
    }
    if let Some(shipped) = shipped {
        let name = format!("{}.aorta", shipped.stem);
        let (origin, text) = (LIBRARY.to_owned(), shipped.text.to_owned());
        return Ok(Text { name, origin, text, path: None, check: Vec::new() });
    }
    Err(library::unknown(name).into())
}

/// Size and nesting limits of a file.
pub fn limits(settings: &Settings) -> Limits {
    Limits { file_bytes: settings.max_file_bytes, nesting: settings.max_nesting }
}

/// The text of a module that a workload uses.
fn module(text: &Text, settings: &Settings, path: &str, by: Option<&str>) -> Result<ModuleText, String> {
    let user = modules::User { name: &text.name, file: text.path.as_deref() };
    let kind = FileKind::Workload(settings.max_file_bytes);
    let read_text = |path: &Path| read(path, kind).map_err(|error| error.to_string());
    modules::find(&user, path, by, read_text, |path| read_bytes(path, kind).map_err(|error| error.to_string()))
}

/// Parses a workload. Syntax errors are part of the result, so that the valid part can be shown too.
pub fn parse(text: &Text, settings: &Settings) -> Result<Parsed, CliError> {
    let find = |path: &str, by: Option<&str>| module(text, settings, path, by);
    compile::parse(&text.name, &text.text, &limits(settings), &find).map_err(|error| failed(error, None))
}

/// Compiles a workload for `ranks`. The error has all diagnostics of the file.
pub fn load(text: &Text, args: &WorkloadArgs, settings: &Settings, ranks: Ranks) -> Result<Loaded, CliError> {
    let (done, bar) = (Arc::new(AtomicU64::new(0)), RefCell::new(None));
    let progress = |finished, total| {
        done.store(finished, Ordering::Relaxed);
        let counted = done.clone();
        let count = move || counted.load(Ordering::Relaxed);
        bar.borrow_mut().get_or_insert_with(|| Progress::counting(count, total, "programs analyzed or planned"));
    };
    let find = |path: &str, by: Option<&str>| module(text, settings, path, by);
    let options = compile::Options {
        preset: args.preset.clone(),
        set: args.set.iter().map(|pair| name_and_value(pair)).collect::<Result<_, _>>()?,
        streams: args.streams.map(at_least_one).transpose()?,
        ranks,
        sync: args.sync.map(|sync| match sync {
            SyncArg::Iteration => model::Sync::Iteration,
            SyncArg::End => model::Sync::End,
        }),
        cycle: args.cycle.unwrap_or(settings.cycle),
        limits: limits(settings),
        find: &find,
        max_operations: settings.max_operations,
        max_memory: settings.max_memory.0,
        progress: Some(&progress),
    };
    match compile::compile(&text.name, &text.text, &options) {
        Ok(compiled) => {
            let check = text.check_command(args, compiled.ranks.len() as u32);
            Ok(Loaded { compiled, origin: text.origin.clone(), check })
        }
        Err(error) => {
            let ranks = match &error {
                CompileError::Mistakes(mistakes) => mistakes.ranks,
                _ => 1,
            };
            // If no arguments are involved, users know how to check the file.
            let check = text.check_command(args, ranks);
            Err(failed(error, check.filter(|check| *check != shell::command(&text.check[..3]))))
        }
    }
}

/// The error of a workload that could not be compiled. `check` is the command that reports the same.
fn failed(error: CompileError, check: Option<String>) -> CliError {
    match error {
        CompileError::Mistakes(mistakes) => {
            CliError::Source { diagnostics: mistakes.all, sources: mistakes.sources, check }
        }
        CompileError::TooLarge { name } => {
            InputError::Unreadable { name, why: "it is too large".to_owned(), help: None }.into()
        }
        CompileError::NoThread(why) => ExecError::no_thread("to analyze the file", &why).into(),
    }
}

/// Splits the value of `--set NAME=VALUE`.
fn name_and_value(pair: &str) -> Result<(String, String), InputError> {
    let (name, value) = pair.split_once('=').ok_or_else(|| InputError::NoPair { given: pair.to_owned() })?;
    Ok((name.trim().to_owned(), value.to_owned()))
}

/// Checks the value of `--streams`.
fn at_least_one(streams: u32) -> Result<NonZeroU32, InputError> {
    let help = "write `--streams 1`, or leave it out";
    NonZeroU32::new(streams).ok_or_else(|| InputError::bad_value("`--streams`", "0", "a run needs a stream", help))
}
