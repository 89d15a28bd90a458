//! `aorta sweep`: runs a workload for several values, each case in a process of its own.

mod args;
mod axes;
mod preset;
mod refused;
mod scenario;
mod search;
mod values;

use std::path::Path;

use sha2::{Digest, Sha256};

use crate::base::{hex, shell, suggest};
use crate::measure::cases::{Case, CasesHeader, CasesKind, Status};
use crate::measure::order::CaseOrder;
use crate::report;

use super::exec;
use super::forwarded_options::{ArgumentError, ForwardedOptions, exec_args};
use crate::cli::error::{CliError, InputError};
use crate::cli::inputs::load::{self, FileKind};
use crate::cli::inputs::project;
use crate::cli::io::output;
use crate::cli::processes::cases::{self, PlannedCase, Runner, journal};
use crate::cli::processes::child::Interrupt;
use crate::cli::{CliResult, DONE, INTERRUPTED};
use crate::render::DiagnosticFormat;

pub use args::SweepArgs;
pub use scenario::{check as check_axes, check_program, words as scenario_words};

use axes::SweepOptions;

/// True if an option can have several values in a sweep. `option` is its long name without dashes.
pub fn is_axis(option: &str) -> bool {
    args::Axes::OPTIONS.contains(&option)
}

/// A sweep that is ready to run.
struct Sweep {
    header: CasesHeader,
    /// Cases in the order of the axes.
    planned: Vec<PlannedCase>,
    /// SHA-256 of the workload that every case is expected to run.
    workload: String,
    /// Sort order of the table; `None` for the order of the axes.
    order: Option<CaseOrder>,
}

pub fn run(args: SweepArgs, how: DiagnosticFormat) -> CliResult {
    cases::check("sweep", &args.page, &args.files)?;
    let args = scenario::completed(args)?;
    let mut sweep = ready(&args, how)?;
    sweep.header.divide(args.partition, &mut sweep.planned, |case| &case.name);
    if sweep.planned.is_empty() && !args.search {
        output::eprint(cases::NO_CASE);
    }
    let total = if args.search { args.budget() } else { sweep.planned.len() };
    let default_path = journal::own_path(&sweep.header);
    let mut runner = Runner::open(args.files.json.as_ref(), default_path, &sweep.header, args.resume, total)?;
    if args.search {
        // Known cases are reused in the order in which they ran, so that the search takes the same path.
        let code = search::run(&sweep, args.budget(), args.seed(), &mut runner);
        runner.print_location();
        return code;
    }
    sweep.check(&runner);
    let unfit = |case: &Case| sweep.planned.iter().find(|planned| planned.name == case.name)?.command.as_ref().err();
    runner.keep(|case| match unfit(case) {
        Some((status, why)) => case.status == *status && case.reason.as_ref() == Some(why),
        // A skipped case depends on the machine, which may have a device now.
        None => case.status.is_measured() || !(args.retry || case.status == Status::Skipped),
    });
    let run = |index: usize, interrupt: &Interrupt| sweep.run(&sweep.planned[index], interrupt);
    let (cases, complete) = runner.all(&sweep.planned, args.order_of(sweep.planned.len()), run)?;
    let Sweep { header, planned, order, .. } = &sweep;
    let ended: Vec<&Case> = cases.iter().collect();
    let page = report::sweep(header, &ended, order.as_ref());
    cases::show((header, &ended), &page, order.as_ref(), (&args.page, &args.files))?;
    runner.print_location();
    // Cases that cannot run, or run out of memory, are valid results.
    Ok(match (complete, planned.is_empty()) {
        (false, _) => INTERRUPTED,
        (true, true) => DONE,
        (true, false) => {
            cases::exit_code(&cases, |status| status == Status::Failed, |status| status == Status::NotHeld)
        }
    })
}

/// Fails if the sweep of a scenario, given as an argument, cannot run.
pub fn check(file: &str, how: DiagnosticFormat) -> Result<(), CliError> {
    let args = exec::parsed::<SweepArgs>("sweep", &[file.to_owned()]);
    let args = args.map_err(|mistake| mistake.of("the scenario", file))?;
    ready(&scenario::completed(args)?, how).map(drop)
}

/// Plans the cases, and checks that at least one can run.
fn ready(args: &SweepArgs, how: DiagnosticFormat) -> Result<Sweep, CliError> {
    if args.file == "-" {
        let why = "a sweep reads its file once for each case, and standard input can be read once".to_owned();
        return Err(InputError::Axes { why, help: "write the text to a file, and name that file".to_owned() }.into());
    }
    let mut options = SweepOptions::default();
    for (option, given) in &args.lists.given {
        options.add(option, given.as_deref().unwrap_or_default())?;
    }
    scenario::add_axes(args, &mut options)?;
    preset_lists(args, &mut options)?;
    if options.axes.is_empty() {
        let why = "nothing varies: no option has several values".to_owned();
        let help = "give one of them a list, such as `--streams 1,2,4,8` or `--set tokens=1024,2048`; `aorta exec` \
                    runs a single case";
        return Err(InputError::Axes { why, help: help.to_owned() }.into());
    }
    let arguments = [vec![args.file.clone()], options.fixed, args.same.words()].concat();
    let places = if args.search { axes::covering(&options.axes) } else { axes::cases(&options.axes, args.zip)? };
    let mut planned: Vec<PlannedCase> =
        places.iter().map(|places| axes::case(&options.axes, &arguments, places)).collect();
    let (mut first, mut fit) = (None, None);
    for (case, places) in planned.iter_mut().zip(&places) {
        let command = case.command.clone().unwrap_or_default();
        match examine(case) {
            Ok(loaded) => {
                fit = loaded.zip(Some(places));
                break;
            }
            Err(error) => first = first.or(Some((case.name.clone(), command, error))),
        }
    }
    let Some((loaded, fitting)) = fit else {
        let (first, command, error) = first.expect("there is a case, and none that can run");
        error.print(how);
        let command = shell::command(command);
        return Err(InputError::NoValidCase { count: planned.len(), first, command }.into());
    };
    if !args.skip_invalid {
        let refused = refused::values(&options.axes, &arguments, &places, (fitting, args.zip));
        if !refused.is_empty() {
            let values: Vec<String> = refused.iter().map(|(value, _)| value.clone()).collect();
            for (_, error) in refused {
                scenario::placed(&args.file, error)?.print(how);
            }
            let values = suggest::listed(&values.iter().map(String::as_str).collect::<Vec<_>>());
            return Err(InputError::RefusedValues { values }.into());
        }
    }
    let workload = loaded.compiled.sha256.clone();
    // A scenario contains more than its workload.
    let file = project::resolve(&args.file)?;
    let scenario = file.ends_with(".ron").then(|| load::read(Path::new(&file), FileKind::Scenario).unwrap_or_default());
    let sha256 = scenario.map_or_else(
        || workload.clone(),
        |text| hex(Sha256::new().chain_update(text).chain_update(&workload).finalize()),
    );
    let mut header = CasesHeader::new(CasesKind::Sweep, &loaded.workload().name, sha256, arguments);
    (header.axes, header.zip) = (options.axes, args.zip);
    let metrics = loaded.compiled.program().metrics.iter().map(|metric| metric.name.as_str());
    let order = super::report::order(args.sort.as_deref(), &header, metrics)?;
    Ok(Sweep { header, planned, workload, order })
}

/// Adds the lists of the selected preset, which a scenario may name.
fn preset_lists(args: &SweepArgs, options: &mut SweepOptions) -> Result<(), CliError> {
    let several = options.axes.iter().any(|axis| axis.option == "preset");
    let fixed = [vec![args.file.clone()], options.fixed.clone(), args.same.words()].concat();
    let (settled, settings) = exec::resolve_args(parse(&fixed)?)?;
    if let (Some(preset), false) = (&settled.workload.preset, several) {
        let parsed = load::parse(&load::find(&settled.file, &settings)?, &settings)?;
        preset::lists(&parsed.ast, &parsed.sources, preset, options)?;
    }
    Ok(())
}

fn parse(arguments: &[String]) -> Result<exec::ExecArgs, CliError> {
    exec_args(arguments).map_err(|ArgumentError { why, help }| InputError::Axes { why, help }.into())
}

/// Compiles the workload that the arguments name. Finds every mistake that can be found without a device.
fn fits(arguments: &[String]) -> Result<load::Loaded, CliError> {
    exec::examine(parse(arguments)?)
}

/// Compiles a case; `None` if an earlier examination found that it cannot run. Marks a case that cannot run as skipped.
fn examine(case: &mut PlannedCase) -> Result<Option<load::Loaded>, CliError> {
    let Ok(arguments) = &case.command else { return Ok(None) };
    let loaded = fits(arguments);
    if let Err(error) = &loaded {
        case.command = Err((Status::Skipped, error.text()));
    }
    loaded.map(Some)
}

impl Sweep {
    /// Examines all cases before anything runs, except those that have been measured already.
    fn check(&mut self, runner: &Runner) {
        for case in &mut self.planned {
            if !runner.known(&case.name).is_some_and(|case| case.status.is_measured()) {
                // The case records why it cannot run.
                let _ = examine(case);
            }
        }
    }

    /// Runs a case. It fails if its workload differs from the others'. `None` if the user interrupted it.
    fn run(&self, planned: &PlannedCase, interrupt: &Interrupt) -> Result<Option<Case>, CliError> {
        let checked = |case: Case| match &case.record {
            Some(record) if record.workload.sha256 != self.workload => {
                let why = format!("{} was changed while the sweep ran", self.header.name);
                Case::without(&case.name, &case.values, case.seconds, Status::Failed, why)
            }
            _ => case,
        };
        Ok(planned.run(interrupt)?.map(checked))
    }
}
