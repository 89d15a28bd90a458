//! `aorta sweep`: a workload with one value after the other, each case in a process of its own.

mod args;
mod axes;
pub mod journal;
mod preset;
pub mod progress;
mod values;

use std::collections::VecDeque;
use std::time::Duration;

use indexmap::IndexMap;
use sha2::{Digest, Sha256};

use crate::base::{counted, shell};
use crate::measure::cases::{self, Case, Header, Kind, Status};
use crate::measure::order::Order;
use crate::report;

use super::case::{self, Interrupt};
use super::diagnostics::DiagnosticsArg;
use super::error::{CliError, InputError};
use super::search::{self, Searching};
use super::{CliResult, DONE, FAILED, INTERRUPTED, NOT_HELD, exec, load, output};

pub use args::SweepArgs;
pub use axes::Planned;

use axes::Options;
use journal::Journal;
use progress::Progress;

/// A sweep that is ready to run.
struct Sweep {
    header: Header,
    /// In the order of the axes.
    planned: Vec<Planned>,
    /// Why a case cannot be run, for those of which that is so.
    unfit: IndexMap<String, String>,
    /// SHA-256 of the workload that every case is expected to run.
    workload: String,
    /// What the table is sorted by.
    order: Option<Order>,
}

pub fn run(args: SweepArgs, how: DiagnosticsArg) -> CliResult {
    case::alone("sweep")?;
    if let Some(path) = &args.csv {
        output::check_file(path)?;
    }
    let mut sweep = ready(&args, how)?;
    let path = args.json.clone().or_else(|| journal::own_path(&sweep.header));
    let opened = journal::open(path, args.json.is_some(), &sweep.header, args.resume)?;
    if opened.torn {
        output::eprint("The file ends in the middle of a line, of a case that was cut short: it runs again.\n");
    }
    if args.search {
        return search(&sweep, &args, opened.cases, opened.journal);
    }
    let mut known: IndexMap<String, Case> = IndexMap::new();
    for case in opened.cases {
        known.insert(case.name.clone(), case);
    }
    let mut journal = opened.journal;
    sweep.check(&known);
    note_unfit(&sweep, &mut known, &mut journal)?;
    let interrupt = Interrupt::watch();
    let complete = run_cases(&sweep, &args, &mut known, &mut journal, &interrupt)?;
    finish(&sweep, &args, &known, &journal, complete)
}

/// Looks for the best case. What the file has of it already is taken as it comes, so that the search goes the same way.
fn search(sweep: &Sweep, args: &SweepArgs, known: Vec<Case>, mut journal: Journal) -> CliResult {
    let mut known_by_name: IndexMap<String, VecDeque<Case>> = IndexMap::new();
    for case in known {
        known_by_name.entry(case.name.clone()).or_default().push_back(case);
    }
    let interrupt = Interrupt::watch();
    let progress = Progress::start(args.budget as usize, 0, Vec::new());
    let mut run = |planned: &Planned| {
        progress.begin(&planned.name);
        let case = match known_by_name.get_mut(&planned.name).and_then(VecDeque::pop_front) {
            Some(case) => case,
            None => {
                let Some(case) = sweep.run(planned, &interrupt)? else { return Ok(None) };
                journal.append(&case)?;
                case.light()
            }
        };
        progress.end(&case);
        Ok(Some(case))
    };
    let code = search::run(Searching {
        header: &sweep.header,
        budget: args.budget as usize,
        seed: args.seed,
        case: &|places| axes::at(&sweep.header.axes, places),
        fits: &|arguments| parse(arguments).and_then(exec::examine).is_ok(),
        run: &mut run,
        interrupt: &interrupt,
    });
    if let (Some(path), None) = (&journal.path, &args.json) {
        output::eprint(&format!("Every case with its record is in {}\n", path.display()));
    }
    code
}

/// Works out the cases, and finds one that can run.
fn ready(args: &SweepArgs, how: DiagnosticsArg) -> Result<Sweep, CliError> {
    if args.file == "-" {
        let why = "a sweep reads its file once for each case, and standard input can be read once".to_owned();
        return Err(InputError::Axes { why, help: "write the text to a file, and name that".to_owned() }.into());
    }
    let mut options = Options::default();
    for (option, given) in args.lists() {
        options.add(option, given)?;
    }
    preset_lists(args, &mut options)?;
    if options.axes.is_empty() {
        let why = "nothing varies: no option has several values".to_owned();
        let help = "give one of them a list, such as `--streams 1,2,4,8` or `--set tokens=1024,2048`; `aorta exec` \
                    runs a single case";
        return Err(InputError::Axes { why, help: help.to_owned() }.into());
    }
    let planned = if args.search { axes::some(&options.axes) } else { axes::cases(&options.axes, args.zip)? };
    let mut arguments = vec![args.file.clone()];
    arguments.extend(options.fixed);
    arguments.extend(args.plain());
    let (mut unfit, mut first, mut fit) = (IndexMap::new(), None, None);
    for case in &planned {
        match examine(&arguments, case) {
            Ok(loaded) => {
                fit = Some(loaded);
                break;
            }
            Err(error) => {
                unfit.insert(case.name.clone(), error.text());
                first = first.or(Some((case, error)));
            }
        }
    }
    let Some(loaded) = fit else {
        let (first, error) = first.expect("there is a case, and none that can run");
        error.print(how);
        let command = shell::command([&arguments, &first.arguments[..]].concat());
        return Err(InputError::NoValidCase { count: planned.len(), first: first.name.clone(), command }.into());
    };
    let workload = loaded.parsed.sha256;
    // A scenario says more than its workload.
    let scenario = args.file.ends_with(".ron").then(|| std::fs::read(&args.file).unwrap_or_default());
    let header = Header {
        schema: cases::SCHEMA.to_owned(),
        kind: Kind::Sweep,
        aorta: env!("CARGO_PKG_VERSION").to_owned(),
        name: loaded.parsed.name,
        sha256: scenario.map_or_else(|| workload.clone(), |text| sha256(&[&text, workload.as_bytes()].concat())),
        started: jiff::Timestamp::now().to_string(),
        arguments,
        axes: options.axes,
        zip: args.zip,
    };
    let metrics = loaded.program.metrics.iter().map(|metric| metric.name.as_str());
    let order = super::report::order(args.sort.as_deref(), &header, metrics)?;
    Ok(Sweep { header, planned, unfit, workload, order })
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Adds the lists of the preset that is taken, which a scenario may say.
fn preset_lists(args: &SweepArgs, options: &mut Options) -> Result<(), CliError> {
    let several = options.axes.iter().any(|axis| axis.option == "preset");
    let fixed = [vec![args.file.clone()], options.fixed.clone(), args.plain()].concat();
    let (settled, settings) = exec::settle(parse(&fixed)?)?;
    if let (Some(preset), false) = (&settled.workload.preset, several) {
        let (parsed, _) = load::parse(load::find(&settled.file, &settings)?, &settings)?;
        preset::lists(&parsed.ast, &parsed.sources, preset, options)?;
    }
    Ok(())
}

fn parse(arguments: &[String]) -> Result<exec::ExecArgs, CliError> {
    super::exec_args(arguments).map_err(|why| {
        // What follows behind an empty line is about the usage of another command.
        let lines = why.trim_start_matches("error: ").lines().map(str::trim).take_while(|line| !line.is_empty());
        let why = lines.collect::<Vec<_>>().join(" ");
        InputError::Axes { why, help: "`aorta exec --help` says what each option takes".to_owned() }.into()
    })
}

/// Whether a case can run, as far as that is known without a device.
fn examine(arguments: &[String], case: &Planned) -> Result<load::Loaded, CliError> {
    exec::examine(parse(&[arguments, &case.arguments[..]].concat())?)
}

/// Cases that cannot run have their lines first. One that could not run before may be able to now, where that hangs on
/// the machine.
fn note_unfit(sweep: &Sweep, known: &mut IndexMap<String, Case>, journal: &mut Journal) -> Result<(), CliError> {
    for planned in &sweep.planned {
        let Some(why) = sweep.unfit.get(&planned.name) else { continue };
        let told = known.get(&planned.name).is_some_and(|case| case.reason.as_ref() == Some(why));
        if !told {
            let case = Case::without(&planned.name, &planned.values, 0.0, Status::Skipped, why.clone());
            journal.append(&case)?;
            known.insert(planned.name.clone(), case);
        }
    }
    Ok(())
}

/// Runs what is to be run, and says whether that was all.
fn run_cases(
    sweep: &Sweep,
    args: &SweepArgs,
    known: &mut IndexMap<String, Case>,
    journal: &mut Journal,
    interrupt: &Interrupt,
) -> Result<bool, CliError> {
    let wanted = |planned: &&Planned| match known.get(&planned.name) {
        _ if sweep.unfit.contains_key(&planned.name) => false,
        None => true,
        Some(case) if case.status.is_measured() => false,
        // It hung on the machine: there may be a device now.
        Some(case) => args.retry || case.status == Status::Skipped,
    };
    let order = args.order.of(sweep.planned.len());
    let planned: Vec<&Planned> = order.into_iter().map(|index| &sweep.planned[index]).filter(wanted).collect();
    let took = known.values().filter(|case| case.seconds > 0.0).map(|case| case.seconds).collect();
    let progress = Progress::start(sweep.planned.len(), sweep.planned.len() - planned.len(), took);
    for planned in planned {
        progress.begin(&planned.name);
        let Some(case) = sweep.run(planned, interrupt)? else { return Ok(false) };
        journal.append(&case)?;
        progress.end(&case);
        known.insert(planned.name.clone(), case.light());
    }
    Ok(true)
}

impl Sweep {
    /// Looks at every case before anything runs, but at those that have been measured already.
    fn check(&mut self, known: &IndexMap<String, Case>) {
        for case in &self.planned {
            let measured = known.get(&case.name).is_some_and(|case| case.status.is_measured());
            if measured || self.unfit.contains_key(&case.name) {
                continue;
            }
            if let Err(error) = examine(&self.header.arguments, case) {
                self.unfit.insert(case.name.clone(), error.text());
            }
        }
    }

    /// Runs a case. Nothing where somebody has pressed Ctrl-C.
    fn run(&self, planned: &Planned, interrupt: &Interrupt) -> Result<Option<Case>, CliError> {
        let arguments = [&self.header.arguments[..], &planned.arguments[..]].concat();
        let (outcome, took): (_, Duration) = case::run(&arguments, interrupt)?;
        Ok(outcome.case(&planned.name, &planned.values, took).map(|case| self.checked(case)))
    }

    /// The case, unless it has run another text than the others.
    fn checked(&self, case: Case) -> Case {
        let other = case.record.as_ref().is_some_and(|record| record.workload.sha256 != self.workload);
        if !other {
            return case;
        }
        let why = format!("{} was changed while the sweep ran", self.header.name);
        Case::without(&case.name, &case.values, case.seconds, Status::Failed, why)
    }
}

/// Prints and writes what there is to say.
fn finish(
    sweep: &Sweep,
    args: &SweepArgs,
    known: &IndexMap<String, Case>,
    journal: &Journal,
    complete: bool,
) -> CliResult {
    let cases: Vec<&Case> = sweep.planned.iter().filter_map(|planned| known.get(&planned.name)).collect();
    output::print(&report::sweep(&sweep.header, &cases, sweep.order.as_ref()));
    let rows = sweep.order.as_ref().map_or_else(|| cases.clone(), |order| order.sorted(&sweep.header, &cases));
    let csv =
        args.csv.as_ref().map_or(Ok(()), |path| output::write_text(path, &report::cases_csv(&sweep.header, &rows)));
    if !complete {
        let left = counted(sweep.planned.len() - cases.len(), "case");
        output::eprint(&format!("Interrupted with {left} left: the same command with `--resume` goes on.\n"));
    } else if let (Some(path), None) = (&journal.path, &args.json) {
        output::eprint(&format!("Every case with its record is in {}\n", path.display()));
    }
    csv?;
    Ok(if complete { exit_code(&cases) } else { INTERRUPTED })
}

/// A case that failed counts more than one of which something did not hold. That a case cannot run, or that memory does
/// not suffice for it, is a result; but there has to be one that was measured.
fn exit_code(cases: &[&Case]) -> u8 {
    let any = |status: Status| cases.iter().any(|case| case.status == status);
    let measured = cases.iter().any(|case| case.status.is_measured());
    match () {
        () if any(Status::Failed) || !measured => FAILED,
        () if any(Status::NotHeld) => NOT_HELD,
        () => DONE,
    }
}
