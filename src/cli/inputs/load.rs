//! Finds and reads the files that a command names, and compiles workloads with the command's arguments.

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use indexmap::IndexMap;

use crate::base::shell;
use crate::compile::{self, CompileError, Compiled, ModuleText, Parsed, RankCount, standard_module};
use crate::config::{Project, Settings, SyncSetting};
use crate::exec::ExecError;
use crate::measure::record::{RankWork, Workload};
use crate::model;
use crate::ops::DataFile;
use crate::syntax::ast::DeclKind;
use crate::syntax::{self, SyntaxLimits};

use super::{container, library, modules, project, wrong_kind};
use crate::cli::error::{CliError, InputError, Note};
use crate::cli::io::files;
use crate::cli::io::progress::TransientBar;
use crate::cli::{ConfigArgs, WorkloadArgs, environment};

pub use super::container::read;
pub use crate::cli::io::files::{FileKind, read_from};

/// A workload's text and its origin.
#[derive(Clone)]
pub struct WorkloadText {
    pub name: String,
    pub origin: String,
    pub text: String,
    /// The file that the text was read from; `None` for standard input and shipped workloads.
    pub path: Option<PathBuf>,
    /// The beginning of the command that checks this workload, without the arguments that set the program: `aorta check
    /// FILE`. Empty if this command itself checks.
    pub check: Vec<String>,
}

impl WorkloadText {
    /// A text without a file.
    pub fn new(name: impl Into<String>, origin: impl Into<String>, text: impl Into<String>) -> WorkloadText {
        WorkloadText { name: name.into(), origin: origin.into(), text: text.into(), path: None, check: Vec::new() }
    }

    /// The text of a shipped workload.
    pub fn shipped(shipped: library::Shipped) -> WorkloadText {
        WorkloadText::new(format!("{}.aorta", shipped.stem), LIBRARY, shipped.text)
    }

    /// The `aorta check` command with the same arguments; `None` if the text has no such command.
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

/// A compiled workload with its origin and its files.
pub struct Loaded {
    pub compiled: Compiled,
    /// Work of each rank of an emulated world, of which `compiled` has one rank; otherwise empty.
    pub world: Vec<RankWork>,
    /// Origin: `library`, `<stdin>`, or the path.
    pub origin: String,
    /// The command that checks the same; `None` if the text came on standard input, or this command checks it.
    pub check: Option<String>,
    /// The text and all files that it uses except shipped ones.
    pub files: WorkloadFiles,
}

/// A workload's text and the files that it uses, as a bundle or a record holds them.
#[derive(Clone, Debug, Default)]
pub struct WorkloadFiles {
    /// Name of the workload among `parts`.
    pub workload: String,
    /// The folder to which paths are relative, as [`container::location`] gives it: that of the workload, or the nearest
    /// one above it that has all files. Empty for a text without a file.
    pub folder: PathBuf,
    /// Contents by path.
    pub parts: IndexMap<String, Arc<[u8]>>,
    /// Files with data, by path: they are read only when the workload runs.
    pub data: IndexMap<String, Arc<DataFile>>,
}

impl WorkloadFiles {
    /// The files of a text, before it is linked.
    fn of(text: &WorkloadText) -> WorkloadFiles {
        let name = text.path.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
        let workload = name.map_or_else(|| text.name.replace("<stdin>", "stdin.aorta"), str::to_owned);
        let folder = |path: &PathBuf| match container::inside(path) {
            Ok(Some(_)) => container::location(path).ok()?.parent().map(Path::to_owned),
            // The file may be a link, but its modules are found beside the link.
            _ => container::location(files::folder_of(path)).ok(),
        };
        let folder = text.path.as_ref().and_then(folder).unwrap_or_default();
        let parts = IndexMap::from([(workload.clone(), text.text.as_bytes().into())]);
        WorkloadFiles { workload, folder, parts, data: IndexMap::new() }
    }

    /// Adds a file that the workload uses.
    fn add(&mut self, found: &ModuleText) {
        let Ok(location) = container::location(Path::new(&found.name)) else { return };
        while !location.starts_with(&self.folder) {
            if !self.rise() {
                return;
            }
        }
        let below = location.strip_prefix(&self.folder).unwrap_or(&location);
        let Some(name) = container::normal(below) else { return };
        match (&found.data, &found.code) {
            (Some(data), _) => drop(self.data.insert(name, data.clone())),
            (None, Some(code)) => drop(self.parts.insert(name, code.clone())),
            (None, None) => drop(self.parts.insert(name, found.text.as_bytes().into())),
        }
    }

    /// Makes all paths relative to the folder above; false if there is none.
    fn rise(&mut self) -> bool {
        let Some(name) = self.folder.file_name().and_then(|name| name.to_str()).map(str::to_owned) else {
            return false;
        };
        let above = |path: &str| format!("{name}/{path}");
        self.workload = above(&self.workload);
        self.parts = self.parts.drain(..).map(|(path, bytes)| (above(&path), bytes)).collect();
        self.data = self.data.drain(..).map(|(path, data)| (above(&path), data)).collect();
        self.folder.pop()
    }

    /// The text of a project that lets the workload use all files; `None` if they lie in its folder or below.
    pub fn project(&self) -> Option<String> {
        let (folder, _) = self.workload.rsplit_once('/')?;
        Some(Project::with_library(folder))
    }
}

impl Loaded {
    /// The description of the file for a record or a plan.
    pub fn workload(&self) -> Workload {
        let workload = Workload::of(&self.compiled);
        // A workload in a bundle or a record is compared by its own name.
        let inside = container::inside(Path::new(&self.origin)).ok().flatten();
        let name = inside.map_or(workload.name, |inside| inside.part);
        Workload { name, origin: self.origin.clone(), ..workload }
    }
}

/// Origin of shipped workloads.
pub const LIBRARY: &str = "library";

/// Argument that means standard input.
pub const STANDARD_INPUT: &str = "-";

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

/// Finds a workload: a path, or `-` for standard input. A bare name that is no file here is a shipped workload, even if
/// a folder has that name.
pub fn find(name: &str, settings: &Settings) -> Result<WorkloadText, CliError> {
    let kind = FileKind::Workload(settings.max_file_bytes);
    if name == STANDARD_INPUT {
        let text = read_from("standard input", std::io::stdin().lock(), kind)?;
        return Ok(WorkloadText::new("<stdin>", "<stdin>", text));
    }
    let name = project::resolve(name)?;
    let name = name.as_str();
    let path = Path::new(name);
    let shipped = library::find(name);
    if container::inside(path)?.is_some() || (project::is_there(name) && (shipped.is_none() || path.is_file())) {
        let text = read(path, kind)?;
        wrong_kind::check_runs(name, &text)?;
        return Ok(WorkloadText { path: Some(path.to_owned()), ..WorkloadText::new(name, name, text) });
    }
    Ok(shipped.map(WorkloadText::shipped).ok_or_else(|| library::unknown(name))?)
}

/// The shipped module with a name such as `std.ring`; `None` for any other name.
pub fn standard(name: &str) -> Option<Result<WorkloadText, CliError>> {
    Some(match standard_module(name)? {
        Ok(module) => Ok(WorkloadText::new(name, LIBRARY, module.text)),
        Err(known) => Err(InputError::UnknownWorkload { name: name.to_owned(), help: Some(known) }.into()),
    })
}

/// Size and nesting limits of a file.
pub fn limits(settings: &Settings) -> SyntaxLimits {
    SyntaxLimits { file_bytes: settings.max_file_bytes, nesting: settings.max_nesting }
}

/// The text of a module that a workload uses.
fn module(text: &WorkloadText, settings: &Settings, path: &str, by: Option<&str>) -> Result<ModuleText, String> {
    let user = modules::User { name: &text.name, file: text.path.as_deref() };
    let kind = FileKind::Workload(settings.max_file_bytes);
    let read_text = |path: &Path| read(path, kind).map_err(|error| error.to_string());
    modules::find(&user, path, by, read_text, |path| {
        container::read_bytes(path, kind).map_err(|error| error.to_string())
    })
}

/// Parses a workload. Syntax errors are part of the result, so that the valid part can be shown too.
pub fn parse(text: &WorkloadText, settings: &Settings) -> Result<Parsed, CliError> {
    let find = |path: &str, by: Option<&str>| module(text, settings, path, by);
    compile::parse(&text.name, &text.text, &limits(settings), &find).map_err(|error| failed(error, None))
}

/// A workload that only uses the module `text`; `None` if the text is no module: one has definitions, and neither a step
/// nor anything else that only a workload can have.
pub fn user_of_module(text: &WorkloadText, settings: &Settings) -> Result<Option<WorkloadText>, CliError> {
    let Some(path) = &text.path else { return Ok(None) };
    let (ast, _) = syntax::parse(&text.text, 0, &limits(settings));
    let defines = |kind: &DeclKind| matches!(kind, DeclKind::Def { .. } | DeclKind::Kernel { .. } | DeclKind::Let(_));
    let belongs = |kind: &DeclKind| defines(kind) || matches!(kind, DeclKind::Use { .. } | DeclKind::Meta(_));
    let is_module =
        ast.decls.iter().any(|decl| defines(&decl.kind)) && ast.decls.iter().all(|decl| belongs(&decl.kind));
    let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|_| is_module) else { return Ok(None) };
    Ok(Some(WorkloadText {
        text: format!("use {name:?}\nstep {{ nop() }}\n"),
        path: Some(path.with_file_name(format!("user of {name}"))),
        ..text.clone()
    }))
}

/// Compiles a workload for `ranks`. The error has all diagnostics of the file.
pub fn load(
    text: &WorkloadText,
    args: &WorkloadArgs,
    settings: &Settings,
    ranks: RankCount,
) -> Result<Loaded, CliError> {
    let (done, bar) = (Arc::new(AtomicU64::new(0)), RefCell::new(None));
    let progress = |finished, total| {
        done.store(finished, Ordering::Relaxed);
        let counted = done.clone();
        let count = move || counted.load(Ordering::Relaxed);
        bar.borrow_mut().get_or_insert_with(|| TransientBar::counting(count, total, "programs analyzed or planned"));
    };
    let files = RefCell::new(WorkloadFiles::of(text));
    let find = |path: &str, by: Option<&str>| {
        let found = module(text, settings, path, by)?;
        if standard_module(path).is_none() {
            files.borrow_mut().add(&found);
        }
        Ok(found)
    };
    let options = compile::CompileOptions {
        preset: args.preset.clone(),
        set: args.set.iter().map(|pair| name_and_value(pair)).collect::<Result<_, _>>()?,
        streams: args.streams.map(at_least_one).transpose()?,
        ranks,
        sync: args.sync.map(|sync| match sync {
            SyncSetting::Iteration => model::Sync::Iteration,
            SyncSetting::End => model::Sync::End,
        }),
        cycle: args.cycle.unwrap_or(settings.cycle),
        fuse: args.fuse,
        limits: limits(settings),
        find: &find,
        max_operations: settings.max_operations,
        max_memory: settings.max_memory.0,
        progress: Some(&progress),
    };
    match compile::compile(&text.name, &text.text, &options) {
        Ok(compiled) => {
            let check = text.check_command(args, compiled.ranks.len() as u32);
            Ok(Loaded { compiled, world: Vec::new(), origin: text.origin.clone(), check, files: files.into_inner() })
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

/// The error of a workload that could not be compiled. `check` is the command that reports the same diagnostics.
fn failed(error: CompileError, check: Option<String>) -> CliError {
    match error {
        CompileError::Mistakes(mistakes) => {
            let text = check.map(|check| format!("; `{check}` shows the same")).unwrap_or_default();
            let note = Note { text, ..Note::default() };
            CliError::Source { diagnostics: mistakes.all, sources: mistakes.sources, note }
        }
        CompileError::TooLarge { name } => InputError::unreadable(name, "it is too large", None).into(),
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
