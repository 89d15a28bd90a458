//! Finds, reads and analyzes a workload.

use std::collections::HashSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};

use crate::base::{SourceMap, SrcSpan, shell};
use crate::config::Settings;
use crate::exec::ExecError;
use crate::measure::record::Workload;
use crate::model::{self, Program};
use crate::ops::{self, Category};
use crate::plan::{self, Plan, Rank};
use crate::syntax::ast::{DeclKind, StmtKind};
use crate::syntax::{self, Ast, Limits};

use super::diagnostics::{Boxed, boxed, first_offset, on_rank};
use super::error::{CliError, InputError};
use super::progress::Progress;
use super::{ConfigArgs, SyncArg, WorkloadArgs, environment, library, list};

/// A workload's text and where it is from.
#[derive(Clone)]
pub struct Text {
    pub name: String,
    pub origin: String,
    pub text: String,
    /// Where a command that runs the workload loads it, the words of the command that checks it, but for what makes the
    /// program: `aorta check FILE`. Else empty.
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

/// A workload that has been parsed.
pub struct Parsed {
    pub ast: Ast,
    pub sources: SourceMap,
    pub name: String,
    pub origin: String,
    pub sha256: String,
}

/// A workload that has been analyzed and planned, for each rank of a world.
pub struct Loaded {
    pub parsed: ParsedInfo,
    /// The program of rank 0 and its plan: the first of `ranks`.
    pub program: Arc<Program>,
    pub plan: Arc<Plan>,
    /// All ranks, in the order of their numbers; those whose programs are equal share one.
    pub ranks: Vec<Rank>,
    pub sources: Arc<SourceMap>,
    /// The ceiling of real streams: `--streams` where the file has no parameter of that name.
    pub ceiling: Option<u32>,
    /// The command that checks the same; `None` where that is what loads it.
    pub check: Option<String>,
}

impl Loaded {
    /// What a record and a plan say of the file.
    pub fn workload(&self) -> Workload {
        let parsed = &self.parsed;
        Workload {
            name: parsed.name.clone(),
            summary: parsed.ast.summary(),
            origin: parsed.origin.clone(),
            sha256: parsed.sha256.clone(),
            category: list::category_of(&parsed.ast),
            preset: parsed.preset.clone(),
            params: self.program.params.iter().cloned().collect(),
        }
    }
}

/// What stays of the parsed file.
pub struct ParsedInfo {
    pub ast: Ast,
    pub name: String,
    pub origin: String,
    pub sha256: String,
    pub preset: Option<String>,
}

/// Stands for standard input in the place of a file.
const STANDARD_INPUT: &str = "-";

/// The settings with all their layers.
pub fn settings(args: &ConfigArgs) -> Result<Settings, CliError> {
    let own = environment::config_file();
    let path: Option<PathBuf> = args.config_file.clone().or_else(|| own.filter(|path| path.is_file()));
    let file = match &path {
        Some(path) => Some((path.display().to_string(), read(path, FileKind::Settings)?)),
        None => None,
    };
    let file = file.as_ref().map(|(name, text)| (name.as_str(), text.as_str()));
    Ok(Settings::layered(file, &args.config)?)
}

/// What a file is read as.
#[derive(Clone, Copy, Debug)]
pub enum FileKind {
    /// With the bytes that it may have at most.
    Workload(usize),
    Settings,
    Scenario,
    Profile,
    Topology,
    Expected,
    Suite,
    Record,
    /// What `compare` takes.
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

    /// What was looked for, where there is no such file.
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
        // Opening a pipe that nobody writes to, or reading a device, may never end.
        let help = match kind {
            FileKind::Workload(_) => {
                "give the text on standard input, with `-` in place of the file: `… | aorta check -`"
            }
            _ => "name a file",
        };
        return Err(unreadable(format!("it is {}, and no file", what_else(&about)), Some(help)));
    }
    read_from(&path.display().to_string(), std::fs::File::open(path).map_err(failed)?, kind)
}

/// What a path is that is neither a file nor a folder.
fn what_else(about: &std::fs::Metadata) -> &'static str {
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

/// Reads a text from whatever `name` stands for.
pub fn read_from(name: &str, reader: impl Read, kind: FileKind) -> Result<String, InputError> {
    let unreadable = |why: String, help: Option<&str>| InputError::Unreadable {
        name: name.to_owned(),
        why,
        help: help.map(str::to_owned),
    };
    let limit = kind.limit();
    let mut bytes = Vec::new();
    // One byte more than allowed tells that it is too large, also where it has no size, or grows.
    let read = reader.take(limit as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(error.to_string(), None))?;
    if bytes.len() > limit {
        let help = "write repetition as a `for` loop, or raise the limit: `--config max_file_bytes=…`";
        let help = matches!(kind, FileKind::Workload(_)).then_some(help);
        return Err(unreadable(format!("it is larger than {limit} bytes"), help));
    }
    String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        unreadable(format!("it is no text: line {} is not UTF-8", line + 1), Some("save it as UTF-8"))
    })
}

/// A path is that file, `-` standard input; a bare name that is no file here is a shipped workload, whatever folders are
/// called so.
pub fn find(name: &str, settings: &Settings) -> Result<Text, CliError> {
    let kind = FileKind::Workload(settings.max_file_bytes);
    if name == STANDARD_INPUT {
        let text = read_from("standard input", std::io::stdin().lock(), kind)?;
        return Ok(Text { name: "<stdin>".to_owned(), origin: "<stdin>".to_owned(), text, check: Vec::new() });
    }
    let path = Path::new(name);
    let shipped = library::find(name);
    // What is there and cannot be looked at (links in a circle, a folder without permission) is no missing file.
    let is_there = !matches!(std::fs::metadata(path), Err(error) if error.kind() == std::io::ErrorKind::NotFound);
    if is_there && (shipped.is_none() || path.is_file()) {
        let text = read(path, kind)?;
        return Ok(Text { name: name.to_owned(), origin: name.to_owned(), text, check: Vec::new() });
    }
    if let Some(shipped) = shipped {
        let name = format!("{}.aorta", shipped.stem);
        return Ok(Text { name, origin: "library".to_owned(), text: shipped.text.to_owned(), check: Vec::new() });
    }
    Err(library::unknown(name).into())
}

/// How large and deep a file may be.
pub fn limits(settings: &Settings) -> Limits {
    Limits { file_bytes: settings.max_file_bytes, nesting: settings.max_nesting }
}

/// Parses a workload. Syntax errors are returned with the tree: what could be understood can be analyzed too.
pub fn parse(text: Text, settings: &Settings) -> Result<(Parsed, Vec<syntax::SyntaxError>), CliError> {
    let mut sources = SourceMap::new();
    let sha256 = Sha256::digest(text.text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    let too_large =
        || InputError::Unreadable { name: text.name.clone(), why: "it is too large".to_owned(), help: None };
    let base = sources.add(text.name.clone(), text.text.as_str()).ok_or_else(too_large)?;
    let (ast, errors) = syntax::parse(&text.text, base, &limits(settings));
    Ok((Parsed { ast, sources, name: text.name, origin: text.origin, sha256 }, errors))
}

/// Parses, analyzes and plans a workload for one rank. All errors of the file come at once.
pub fn load(text: Text, args: &WorkloadArgs, settings: &Settings) -> Result<Loaded, CliError> {
    load_world(text, args, settings, World::Of(1))
}

/// How many ranks there are.
#[derive(Clone, Copy, Debug)]
pub enum World {
    Of(u32),
    /// That many where the file has collectives, or copies to other ranks, else one.
    OfCollectives(u32),
}

/// Whether a step asks for something that ranks do together.
pub fn has_collectives(ast: &Ast) -> bool {
    let mut found = false;
    syntax::walk::stmts(ast, &mut |stmt| {
        if let StmtKind::Call(call) = &stmt.kind
            && let [name] = &call.callee[..]
        {
            let operation = ops::find(ast.names.name(name.symbol));
            found |= operation.is_some_and(|operation| operation.category() == Category::Collective);
        }
    });
    found
}

/// Whether a step may copy to other ranks: what is evaluated tells whether it does.
fn may_copy_to_others(ast: &Ast) -> bool {
    let mut found = false;
    syntax::walk::stmts(ast, &mut |stmt| {
        if let StmtKind::Call(call) = &stmt.kind {
            found |= call.outputs.iter().any(|output| output.at.is_some());
        }
    });
    found
}

/// Parses, analyzes and plans a workload for every rank of a world, and checks the ranks beside each other.
pub fn load_world(text: Text, args: &WorkloadArgs, settings: &Settings, world: World) -> Result<Loaded, CliError> {
    let (mut parsed, syntax_errors) = parse(text.clone(), settings)?;
    let (mut world, sure) = match world {
        World::Of(ranks) => (ranks, true),
        World::OfCollectives(ranks) if has_collectives(&parsed.ast) => (ranks, true),
        World::OfCollectives(ranks) if may_copy_to_others(&parsed.ast) => (ranks, false),
        World::OfCollectives(_) => (1, true),
    };
    let mut diagnostics = boxed(syntax_errors);
    let has_streams = parsed.ast.decls.iter().any(|decl| match &decl.kind {
        DeclKind::Param { name, .. } => parsed.ast.names.name(name.symbol) == "streams",
        _ => false,
    });
    let set = given(&mut parsed, args, settings, has_streams, &mut diagnostics)?;
    let mut options = model::Options {
        preset: args.preset.clone(),
        set,
        rank: 0,
        world,
        cycle: args.cycle.unwrap_or(settings.cycle),
        sync: args.sync.map(|sync| match sync {
            SyncArg::Iteration => model::Sync::Iteration,
            SyncArg::End => model::Sync::End,
        }),
        max_operations: settings.max_operations,
        max_memory: settings.max_memory.0,
    };
    let mut analyzed = analyze(&parsed.ast, &options)?;
    let copies = |program: &Program| program.cycle.iter().any(|step| !step.peers().is_empty());
    if !sure && !analyzed.as_ref().is_ok_and(copies) {
        (world, options.world) = (1, 1);
        analyzed = analyze(&parsed.ast, &options)?;
    }
    let check = text.check_command(args, world);
    // With the file alone, nobody has to be told how to check it.
    let again = check.clone().filter(|check| *check != shell::command(&text.check[..3]));
    let Parsed { ast, sources, name, origin, sha256 } = parsed;
    let sources = Arc::new(sources);
    let program = match analyzed {
        Ok(program) if diagnostics.is_empty() => program,
        other => {
            // Where the text itself is broken, a missing step or name may only be a consequence of that.
            let broken = !diagnostics.is_empty();
            let lost = ast.lost.iter().flat_map(|&span| syntax::declared(sources.text(span))).collect();
            let errors = other.err().unwrap_or_default();
            let told = errors.into_iter().filter(|mistake| !broken || !is_consequence(&mistake.error, &lost));
            diagnostics.extend(boxed(told));
            diagnostics.sort_by_key(|diagnostic| first_offset(diagnostic.as_ref()));
            return Err(CliError::Source { diagnostics, sources, check: again });
        }
    };
    let wrong =
        |diagnostics: Vec<Boxed>| CliError::Source { diagnostics, sources: sources.clone(), check: again.clone() };
    let on_rank = |all: Vec<Boxed>, rank: u32| match rank {
        0 => wrong(all),
        _ => wrong(all.into_iter().map(|one| on_rank(one, rank, world)).collect()),
    };
    let others = if program.by_rank { 1..world } else { 0..0 };
    // Each rank is analyzed, planned, and checked beside the others.
    let done = Arc::new(AtomicU64::new(0));
    let counted = done.clone();
    let total = 2 * others.len() as u64 + 1;
    let count = move || counted.load(Ordering::Relaxed);
    let _progress = Progress::counting(count, total, "programs analyzed or planned");
    let mut programs = vec![program];
    for rank in others {
        options.rank = rank;
        programs.push(analyze(&ast, &options)?.map_err(|errors| on_rank(boxed(errors), rank))?);
        done.fetch_add(1, Ordering::Relaxed);
    }
    model::link(&mut programs).map_err(|errors| wrong(boxed(errors)))?;
    let mut ranks = Vec::with_capacity(world as usize);
    for (rank, program) in (0..).zip(programs) {
        ranks.push(planned(program).map_err(|errors| on_rank(boxed(errors), rank))?);
        done.fetch_add(1, Ordering::Relaxed);
    }
    // Equal programs are one.
    ranks.resize(world as usize, ranks[0].clone());
    plan::ranks::check(&ranks).map_err(|errors| wrong(boxed(errors)))?;
    let parsed = ParsedInfo { ast, name, origin, sha256, preset: args.preset.clone() };
    let ceiling = args.streams.filter(|_| !has_streams);
    let (program, plan) = (ranks[0].program.clone(), ranks[0].plan.clone());
    Ok(Loaded { parsed, program, plan, ranks, sources, ceiling, check })
}

/// Works out the program of one rank, or what is wrong with the file. The outer error is that of a system without a thread.
fn analyze(ast: &Ast, options: &model::Options) -> Result<Result<Program, Vec<model::Mistake>>, ExecError> {
    model::try_analyze(ast, options).map_err(|error| ExecError::no_thread("to analyze the file", &error))
}

fn planned(program: Program) -> Result<Rank, Vec<plan::PlanError>> {
    let plan = plan::build(&program)?;
    Ok(Rank { program: Arc::new(program), plan: Arc::new(plan) })
}

/// The values of parameters that the caller gives.
fn given(
    parsed: &mut Parsed,
    args: &WorkloadArgs,
    settings: &Settings,
    has_streams: bool,
    diagnostics: &mut Vec<Boxed>,
) -> Result<Vec<model::Setting>, CliError> {
    let mut set = Vec::new();
    let mut given: Vec<String> = args.set.clone();
    if let Some(streams) = args.streams {
        if streams == 0 {
            return Err(InputError::BadValue {
                what: "`--streams`".to_owned(),
                value: "0".to_owned(),
                why: "a run needs a stream".to_owned(),
                help: "write `--streams 1`, or leave it away".to_owned(),
            }
            .into());
        }
        if has_streams {
            given.push(format!("streams={streams}"));
        }
    }
    for pair in &given {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(InputError::NoPair { given: pair.clone() }.into());
        };
        let too_long = || InputError::NoPair { given: pair.chars().take(60).collect() };
        let base = parsed.sources.add(format!("--set {}", name.trim()), value).ok_or_else(too_long)?;
        match syntax::parse_expr(value, base, &limits(settings), &mut parsed.ast.names) {
            Ok(expr) => {
                let span = SrcSpan::new(base as usize, base as usize + value.len());
                set.push(model::Setting { name: name.trim().to_owned(), value: expr, span });
            }
            Err(errors) => diagnostics.extend(boxed(errors)),
        }
    }
    Ok(set)
}

/// Whether an error may follow from text that could not be understood, which would have given the names `lost`.
fn is_consequence(error: &model::ModelError, lost: &HashSet<&str>) -> bool {
    use model::ModelError::*;
    match error {
        NoStep { .. } | NothingToRun { .. } | SlotOutOfRange { .. } => true,
        UnknownName { name, .. }
        | UnknownOperation { name, .. }
        | UnknownSet { name, .. }
        | UnknownFigure { name, .. }
        | UnknownParameter { name, .. }
        | NoMember { name, .. }
        | ReadBeforeWrite { name, .. } => lost.contains(name.as_str()),
        _ => false,
    }
}
