//! `aorta suite`: runs the cases of a suite, each in a process of its own, and reports them on one page.

mod args;
mod mistake_location;
mod plan;

use std::collections::BTreeMap;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::base::{Bytes, counted, hex, shell};
use crate::config::{Mistakes, SuiteCase, SuiteFile};
use crate::measure::cases::{Case, CasesHeader, CasesKind, Status};
use crate::report;

use super::exec;
use super::forwarded_options::exec_args;
use crate::cli::error::{CliError, InputError};
use crate::cli::inputs::{container, library, load, project};
use crate::cli::io::output;
use crate::cli::processes::cases::{self, Runner};
use crate::cli::processes::child::Interrupt;
use crate::cli::{CliResult, ConfigArgs, DONE, INTERRUPTED};
use crate::render::DiagnosticFormat;

pub use args::{RunArgs, SuiteArgs};
use plan::{MachineCapabilities, SuitePlan};

/// Exit code of a suite with a case that is invalid on any machine.
const BAD_INPUT: u8 = 2;

pub fn run(args: SuiteArgs) -> CliResult {
    let Some(name) = &args.name else {
        output::print(&list()?);
        return Ok(DONE);
    };
    let (suite, text) = plan::find(name)?;
    run_suite(suite, text, args, |_| Ok(()))
}

/// Runs a suite with this text, if it has one. `finish` gets the cases that have ended, before the page is printed.
pub fn run_suite(
    suite: SuiteFile,
    text: String,
    args: SuiteArgs,
    finish: impl FnOnce(&[&Case]) -> Result<(), CliError>,
) -> CliResult {
    cases::check("suite", &args.run.page, &args.run.files)?;
    let name = &suite.name;
    let same = args.same.words();
    // A mistake in these options, or in the normal ranges, would fail every case.
    let exec = exec_args(&[std::slice::from_ref(name), &same[..]].concat())
        .map_err(|mistake| mistake.of("what all cases have", &shell::command(&same)))?;
    exec.expected.own()?;
    check_values(&suite, &exec.workload.set)?;
    let mut machine = MachineCapabilities::here(&exec, &load::settings(&exec.config)?)?;
    let mut planned = plan::plan(&suite, &args, &machine)?;
    let mut header = header(&suite, &text, &planned, same);
    header.divide(args.partition, &mut planned, |case| &case.planned.name);
    if planned.is_empty() {
        output::eprint(cases::NO_CASE);
        return Ok(DONE);
    }
    if args.run.dry_run {
        output::print(&commands(&planned));
        let bad = planned.iter().any(|case| matches!(case.planned.command, Err((Status::Failed, _))));
        return Ok(if bad { BAD_INPUT } else { DONE });
    }
    if !text.is_empty() {
        let (_, mistakes) = SuiteFile::read(name, &text);
        let bad = placed_mistakes(&mut planned, (&suite, &text), &mistakes);
        bad.values().for_each(|error| error.print(DiagnosticFormat::default()));
    }
    let mut runner = Runner::open(args.run.files.json.as_ref(), None, &header, args.run.resume, planned.len())?;
    // Cases that were skipped or failed may succeed now.
    let is_planned = |case: &Case| planned.iter().any(|plan| plan.planned.name == case.name);
    runner.keep(|case| case.status.is_measured() && is_planned(case));
    // The device's memory is known once a case has opened it.
    let memory = |case: &Case| case.record.as_ref()?.device.memory_bytes.map(Bytes);
    let known = || planned.iter().find_map(|case| memory(runner.known(&case.planned.name)?));
    machine.memory = machine.memory.or_else(known);
    let run = |index: usize, interrupt: &Interrupt| {
        let plan = &planned[index];
        if let (Ok(_), Some((status, why))) = (&plan.planned.command, machine.too_small(plan)) {
            return Ok(Some(plan.planned.without(status, &why)));
        }
        let ended = plan.planned.run(interrupt)?.map(|ended| limited(ended, &plan.case));
        machine.memory = machine.memory.or_else(|| memory(ended.as_ref()?));
        Ok(ended)
    };
    let (cases, complete) = runner.all(planned.iter().map(|case| &case.planned), 0..planned.len(), run)?;
    runner.print_location();
    let ended: Vec<&Case> = cases.iter().collect();
    finish(&ended)?;
    let (description, planned) = (suite.description.as_str(), planned.len());
    let page = report::suite(&report::SuiteReport { header: &header, description, cases: ended.clone(), planned });
    cases::show((&header, &ended), &page, None, (&args.run.page, &args.run.files))?;
    // The suite's own columns may have no space for the mark.
    let is_simulated = ended.iter().any(|case| case.record.as_ref().is_some_and(|record| record.simulated));
    if let (true, Some(path), Some(_)) = (is_simulated, &args.run.files.csv, &header.csv) {
        output::eprint(&format!("{}: every figure is simulated.\n", path.display()));
    }
    if !complete {
        return Ok(INTERRUPTED);
    }
    // In a suite with a table, a case that is out of memory is a result.
    let has_table = suite.table.is_some() || suite.csv.is_some();
    let failed = |status| status == Status::Failed || (status == Status::OutOfMemory && !has_table);
    let is_strict = |status| args.strict && matches!(status, Status::Skipped | Status::Missing);
    Ok(cases::exit_code(&cases, failed, |status| status == Status::NotHeld || is_strict(status)))
}

/// Fails if a value for all cases is that of a parameter that an axis sets, or that the name of a case shows: the page
/// would show values that did not run.
fn check_values(suite: &SuiteFile, set: &[String]) -> Result<(), InputError> {
    let given =
        |name: &String| set.iter().find(|pair| pair.split_once('=').is_some_and(|(given, _)| given.trim() == name));
    for axis in suite.cases.iter().flat_map(|case| &case.axes) {
        let of_cases = axis.cases.values().flat_map(|case| case.params.keys());
        if let Some(pair) = axis.param.iter().chain(of_cases).find_map(given) {
            let why = format!("the axis `{}` gives it values", axis.name);
            return Err(InputError::bad_value("`--set`", pair, &why, "leave it out; `--only TEXT` chooses cases"));
        }
    }
    for case in &suite.cases {
        let streams = (!case.streams.is_empty()).then(|| "streams".to_owned());
        let shown = case.params.keys().filter(|_| case.name.is_none());
        if let Some(pair) = shown.chain(&streams).find_map(given) {
            let why = format!("a case of `{}` has a value of its own, which its name shows", case.workload);
            return Err(InputError::bad_value("`--set`", pair, &why, "leave it out, or take it out of the case"));
        }
    }
    Ok(())
}

/// Lists all shipped suites.
fn list() -> Result<String, CliError> {
    let mut suites = Vec::new();
    for name in SuiteFile::names() {
        let (name, suite) = SuiteFile::text(name)?;
        suites.push((name.to_owned(), SuiteFile::parse(name, suite)?));
    }
    for file in project::here()?.map(|library| library.files).unwrap_or_default() {
        let name = file.display().to_string();
        let read = load::read(&file, load::FileKind::Suite)
            .ok()
            .filter(|text| name.ends_with(".ron") && SuiteFile::recognizes(text));
        if let Some(suite) = read.and_then(|text| SuiteFile::parse(&name, &text).ok()) {
            suites.push((file.file_stem().unwrap_or_default().display().to_string(), suite));
        }
    }
    let width = suites.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, suite) in &suites {
        let cases = counted(suite.expanded().len(), "case");
        text += &format!("{name:width$}  {cases:>9}  {}\n", suite.description);
    }
    text += "\n`aorta suite NAME` runs one; a suite of your own is named by its path.\n";
    Ok(text)
}

/// True if a file is a suite and no scenario.
pub fn is_suite(file: &str) -> Result<bool, CliError> {
    Ok(SuiteFile::recognizes(&load::read(Path::new(file), load::FileKind::Suite)?))
}

/// True if a name or a path means a suite and nothing that can run by itself.
pub fn is_named(name: &str) -> Result<bool, CliError> {
    let path = project::resolve(name)?;
    if path.ends_with(".ron") {
        return is_suite(&path);
    }
    let is_free = library::find(name).is_none() && !Path::new(name).exists();
    Ok(is_free && path == name && SuiteFile::names().any(|suite| suite == name))
}

/// The name of a case, and its arguments of `aorta exec` or why it has none.
pub type CaseCommand = (String, Result<Vec<String>, String>);

/// The cases of a suite with their commands for the simulator; each has been compiled.
///
/// # Errors
///
/// The suite cannot be read, or the settings are wrong.
pub fn commands_of(name: &str, config: &ConfigArgs) -> Result<Vec<CaseCommand>, CliError> {
    let planned = simulated(name, config)?.into_iter();
    Ok(planned.map(|case| (case.planned.name, case.planned.command.map_err(|(_, why)| why))).collect())
}

/// The cases of a suite, planned for the simulator.
fn simulated(name: &str, config: &ConfigArgs) -> Result<Vec<SuitePlan>, CliError> {
    let (suite, _) = plan::find(name)?;
    let args = SuiteArgs::simulated(name, config);
    let exec = exec_args(&[vec![name.to_owned()], args.same.words()].concat())
        .map_err(|mistake| mistake.of("the suite", name))?;
    plan::plan(&suite, &args, &MachineCapabilities::here(&exec, &load::settings(config)?)?)
}

/// Compiles the cases of a suite for the simulator and lists their commands. Prints the mistakes of all cases that the file
/// declares, except those of the last, which it returns.
///
/// # Errors
///
/// A case is invalid on any machine.
pub fn check(name: &str, config: &ConfigArgs, how: DiagnosticFormat) -> Result<String, CliError> {
    let mut planned = simulated(name, config)?;
    let (suite, text) = plan::find(name)?;
    let (_, mistakes) = SuiteFile::read(&suite.name, &text);
    let mut bad = placed_mistakes(&mut planned, (&suite, &text), &mistakes);
    let last = bad.pop_last();
    bad.values().for_each(|error| error.print(how));
    match last {
        Some((_, error)) => Err(error),
        None => Ok(format!("{name}: good: {}\n{}", counted(planned.len(), "case"), commands(&planned))),
    }
}

/// The first mistake of each case that the suite declares, at its place in the text, by the number of the case.
fn placed_mistakes(
    planned: &mut [SuitePlan],
    suite: (&SuiteFile, &str),
    mistakes: &Mistakes,
) -> BTreeMap<usize, CliError> {
    let mut bad = BTreeMap::new();
    for plan in planned {
        if let Some(mistake) = plan.mistake.take() {
            bad.entry(plan.case.declared)
                .or_insert_with(|| mistake_location::placed(mistake, &plan.case, suite, mistakes));
        }
    }
    bad
}

/// The command of each case, or why it has none.
fn commands(planned: &[SuitePlan]) -> String {
    let line = |SuitePlan { planned, .. }: &SuitePlan| match &planned.command {
        Ok(arguments) => format!("{}: aorta exec {}\n", planned.name, shell::command(arguments)),
        Err((status, why)) => format!("{}: {}: {why}\n", planned.name, status.name()),
    };
    planned.iter().map(line).collect()
}

/// The header of a file of cases. Its hash covers the suite and all files that its cases name.
fn header(suite: &SuiteFile, text: &str, planned: &[SuitePlan], same: Vec<String>) -> CasesHeader {
    let mut digest = Sha256::new();
    digest.update(text);
    for arguments in planned.iter().filter_map(|case| case.planned.command.as_ref().ok()) {
        // Shipped workloads change only with aorta's version, which the header contains.
        digest.update(container::read_bytes(Path::new(&arguments[0]), load::FileKind::Bundle).unwrap_or_default());
    }
    let header = CasesHeader::new(CasesKind::Suite, &suite.name, hex(digest.finalize()), same);
    CasesHeader { table: suite.table.clone(), csv: suite.csv.clone(), ..header }
}

/// Applies a case's limits to its result. They apply only to measurements.
fn limited(mut case: Case, planned: &SuiteCase) -> Case {
    let record = case.record.as_deref().filter(|record| record.measurement);
    let broken = record.and_then(|record| {
        planned
            .limits
            .iter()
            .find_map(|(name, span)| record.variants.iter().find_map(|variant| exec::broken_limit(variant, name, span)))
    });
    if let Some(why) = broken.filter(|_| case.status != Status::NotHeld) {
        (case.status, case.reason) = (Status::NotHeld, Some(why));
    }
    case
}
