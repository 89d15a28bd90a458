//! Expands a suite to the cases that this machine can run, with their arguments.

use std::collections::BTreeMap;
use std::path::Path;

use crate::base::units::{self, Dimension};
use crate::base::{Bytes, Space, counted, shell, suggest};
use crate::cli::backends;
use crate::cli::commands::exec::{self, ExecArgs};
use crate::cli::commands::forwarded_options::exec_args;
use crate::cli::commands::scenario;
use crate::cli::error::{CliError, InputError};
use crate::cli::inputs::{container, library, load, project};
use crate::cli::processes::cases::PlannedCase;
use crate::cli::targets;
use crate::config::{BackendSetting, RonKind, Settings, SuiteCase, SuiteFile, SuiteTable, TableCell, TableColumn};
use crate::measure::cases::Status;
use crate::measure::record::Times;
use crate::schedule::Topology;

use super::args::SuiteArgs;

/// A case of a suite that has not run yet.
#[derive(Debug)]
pub struct SuitePlan {
    pub planned: PlannedCase,
    pub case: SuiteCase,
    /// The compiled case; `None` if it cannot run.
    compiled: Option<CompiledCase>,
    /// The mistake that prevents the case from running on any machine; `None` without one.
    pub mistake: Option<CaseMistake>,
}

/// Properties of a compiled case.
#[derive(Debug)]
struct CompiledCase {
    /// Bytes of device memory that the schedule takes on the rank that takes most.
    bytes: Bytes,
    /// Dimension of each figure that a table can show.
    figures: BTreeMap<String, Dimension>,
}

#[derive(Debug)]
pub struct CaseMistake {
    /// Names that lead to the wrong value within the case; empty if it is not known.
    pub field: Vec<String>,
    pub error: Box<CliError>,
}

/// Reason why a case cannot run.
struct Unfit {
    status: Status,
    why: String,
    mistake: Option<CaseMistake>,
}

impl From<CaseMistake> for Unfit {
    fn from(mistake: CaseMistake) -> Unfit {
        let why = format!("bad input: {}", mistake.error.text());
        Unfit { status: Status::Failed, why, mistake: Some(mistake) }
    }
}

/// A mistake in the field of a case to which names lead.
fn mistake(field: &[&str], error: impl Into<CliError>) -> CaseMistake {
    CaseMistake { field: field.iter().map(|name| (*name).to_owned()).collect(), error: Box::new(error.into()) }
}

/// The capabilities of this machine and backend.
pub struct MachineCapabilities {
    /// Number of GPUs; `None` for the simulator and the CPU, which run any number of ranks.
    gpus: Option<u32>,
    /// True if results are computed: on the CPU and GPUs, not on the simulator.
    computes: bool,
    /// Memory of each device; `None` until it is known.
    pub memory: Option<Bytes>,
    /// The hardware queues for which cases are scheduled.
    topology: Topology,
}

impl MachineCapabilities {
    /// The machine for the requested backend. Devices are not opened: each case does that in its own process.
    pub fn here(args: &ExecArgs, settings: &Settings) -> Result<MachineCapabilities, CliError> {
        let wanted = args.backend.unwrap_or(BackendSetting::Auto);
        let gpus = match wanted {
            BackendSetting::Cuda | BackendSetting::Hip => Some(backends::gpus(wanted, args.device).unwrap_or(0)),
            _ => backends::gpus(wanted, args.device).filter(|_| wanted == BackendSetting::Auto),
        };
        let simulated = gpus.is_none() && wanted != BackendSetting::Host;
        let profile = backends::profile(settings)?;
        let memory = simulated.then(|| Bytes(profile.memory.value() as u64));
        Ok(MachineCapabilities { gpus, computes: !simulated, memory, topology: Topology::of(&profile) })
    }

    /// The status of a case that takes more memory than the device has, and the reason: the suite's requirement, or the
    /// case's schedule. `None` if it fits or the memory is not known.
    pub fn too_small(&self, plan: &SuitePlan) -> Option<(Status, String)> {
        let there = self.memory?;
        let short = |needed: Option<Bytes>| needed.filter(|needed| *needed > there);
        if let Some(needed) = short(plan.case.needs.memory()) {
            let why = format!("it needs {needed} of device memory, and the device has {there}");
            return Some((Status::Skipped, why));
        }
        let why = |needed| format!("the program takes {needed} of device memory, and the device has {there}");
        short(plan.compiled.as_ref().map(|case| case.bytes)).map(|needed| (Status::OutOfMemory, why(needed)))
    }
}

/// Finds a suite by name or path: one of the project, or a shipped one. Returns its text too.
pub fn find(name: &str) -> Result<(SuiteFile, String), CliError> {
    let name = &project::resolve(name)?;
    if name.ends_with(".ron") || name.contains('/') {
        let text = load::read(Path::new(name), load::FileKind::Suite)?;
        if RonKind::of(&text) == RonKind::Scenario && text.contains("workload:") {
            let help = format!("`aorta exec {name}` runs it; a suite lists it: `cases: [(workload: \"moe\")]`");
            return Err(
                InputError::bad_value("a suite", name, "it is a scenario, which runs one workload", &help).into()
            );
        }
        return Ok((SuiteFile::parse(name, &text)?, text));
    }
    let (name, text) = SuiteFile::text(name)?;
    Ok((SuiteFile::parse(name, text)?, text.to_owned()))
}

/// Plans every case, in the suite's order.
pub fn plan(suite: &SuiteFile, args: &SuiteArgs, machine: &MachineCapabilities) -> Result<Vec<SuitePlan>, CliError> {
    let cases = suite.expanded().into_iter();
    let named = cases.map(|case| (case.name.clone().unwrap_or_default(), case));
    let only = args.only.as_deref().unwrap_or_default();
    let planned: Vec<SuitePlan> = named
        .filter(|(name, _)| name.contains(only))
        .map(|(name, case)| {
            let (command, compiled, mistake) = match command(suite, &case, args, machine) {
                Ok((command, compiled)) => (Ok(command), Some(compiled), None),
                Err(Unfit { status, why, mistake }) => (Err((status, why)), None, mistake),
            };
            let values = case.values.clone();
            let mut plan = SuitePlan { planned: PlannedCase { name, values, command }, case, compiled, mistake };
            if let (Ok(_), Some(without)) = (&plan.planned.command, machine.too_small(&plan)) {
                plan.planned.command = Err(without);
            }
            plan
        })
        .collect();
    if planned.is_empty() {
        let why = format!("no case of {} has a name that contains it", suite.name);
        let help = format!("`aorta suite {} --dry-run` prints the names of its cases", suite.name);
        return Err(InputError::bad_value("`--only`", only, &why, &help).into());
    }
    for (field, table) in [("table", &suite.table), ("csv", &suite.csv)] {
        table.as_ref().map_or(Ok(()), |table| check_figures(field, table, &planned))?;
    }
    Ok(planned)
}

/// Fails if a column shows a figure that no case has and another one resembles, or one in a unit of another dimension. A case that cannot run here may
/// have any figure.
fn check_figures(field: &str, table: &SuiteTable, planned: &[SuitePlan]) -> Result<(), InputError> {
    for TableColumn(name, cell) in &table.columns {
        let TableCell::Figure { of, unit, at, .. } = cell else { continue };
        let is_shown = |plan: &&SuitePlan| at.iter().all(|(axis, value)| plan.case.values.get(axis) == Some(value));
        let compiled: Option<Vec<&CompiledCase>> =
            planned.iter().filter(is_shown).map(|plan| plan.compiled.as_ref()).collect();
        let Some(compiled) = compiled.filter(|cases| !cases.is_empty()) else { continue };
        let what = format!("the column {name:?} of {field}");
        let Some(dimension) = compiled.iter().find_map(|case| case.figures.get(of)) else {
            let known = compiled.iter().flat_map(|case| case.figures.keys()).map(String::as_str);
            // A figure that no case has leaves its column empty; a misspelt one is a mistake.
            let Some(help) = suggest::did_you_mean(of, known) else { continue };
            return Err(InputError::bad_value(&what, of, "no case has such a figure", &help));
        };
        let wrong = unit.as_deref().filter(|name| units::unit(name).is_some_and(|unit| unit.dimension != *dimension));
        if let Some(wrong) = wrong {
            let why = format!("`{of}` is {}", dimension.describe());
            let help = match dimension.example() {
                Some(example) => format!("write a unit such as that of {example}, or leave it out"),
                None => "leave it out".to_owned(),
            };
            return Err(InputError::bad_value(&format!("the unit in {what}"), wrong, &why, &help));
        }
    }
    Ok(())
}

/// The arguments of a case, and its properties.
fn command(
    suite: &SuiteFile,
    case: &SuiteCase,
    args: &SuiteArgs,
    machine: &MachineCapabilities,
) -> Result<(Vec<String>, CompiledCase), Unfit> {
    let file = workload(suite, &case.workload).map_err(|error| mistake(&["workload"], error))?;
    let Some(file) = file else {
        let near = library::nearest(&case.workload);
        let near = near.map(|near| format!(" as `{}`, did you mean `{near}`?", case.workload)).unwrap_or_default();
        let folder = Path::new(&suite.name).parent().unwrap_or(Path::new(""));
        let mistake = Some(mistake(&["workload"], library::unknown_in(folder, &case.workload)));
        return Err(Unfit { status: Status::Missing, why: format!("there is no such workload{near}"), mistake });
    };
    let wanted = case.needs.gpus.max(case.ranks);
    if let (Some(wanted), Some(there)) = (wanted, machine.gpus)
        && there < wanted
    {
        let is = if there == 1 { "is" } else { "are" };
        let why = format!("it needs {}, and there {is} {there}", counted(wanted as usize, "GPU"));
        return Err(Unfit { status: Status::Skipped, why, mistake: None });
    }
    let arguments = arguments(file, case, args, machine);
    let compiled = examine(&arguments, case, machine.topology)?;
    Ok((arguments, compiled))
}

/// The arguments of `aorta exec` for a case.
fn arguments(file: String, case: &SuiteCase, args: &SuiteArgs, machine: &MachineCapabilities) -> Vec<String> {
    let mut arguments = vec![file];
    arguments.extend(case.preset.iter().map(|preset| format!("--preset={preset}")));
    arguments.extend(case.params.iter().map(|(name, value)| format!("--set={name}={value}")));
    arguments.extend(case.streams.iter().map(|streams| format!("--streams={streams}")));
    // If GPUs cannot be counted, a case gets as many ranks as it needs.
    let ranks = case.ranks.or(case.needs.gpus.filter(|_| machine.gpus.is_none()));
    arguments.extend(ranks.map(|ranks| format!("--ranks={ranks}")));
    arguments.extend(case.launch.map(|launch| format!("--launch={}", launch.name())));
    arguments.extend(case.effort.map(|effort| format!("--effort={}", effort.name())));
    arguments.extend(case.settings.iter().map(|(name, value)| format!("--config={name}={value}")));
    arguments.extend(case.fuse.then(|| "--fuse".to_owned()));
    arguments.extend((case.verify && machine.computes).then(|| "--verify".to_owned()));
    let same = args.same.words();
    [targets::without(&arguments, &same), same].concat()
}

/// Compiles and schedules the workload of a case and checks its limits, so that mistakes are found before any case runs.
fn examine(arguments: &[String], case: &SuiteCase, topology: Topology) -> Result<CompiledCase, CaseMistake> {
    let parsed =
        exec_args(arguments).map_err(|wrong| mistake(&[], wrong.of("the case", &shell::command(arguments))))?;
    let loaded = exec::examine(parsed).map_err(|error| mistake(&[], error))?;
    for (name, span) in &case.limits {
        exec::check_span("limit", name, span, &loaded).map_err(|error| mistake(&["limits", name], error))?;
    }
    let schedules = loaded.compiled.schedules(topology);
    let bytes = Bytes(schedules.iter().map(|schedule| schedule.bytes(Space::Device)).max().unwrap_or(0));
    let metrics = &loaded.compiled.program().metrics;
    let statistics = Times::default().statistics().map(|(name, _)| format!("time.{}", name.trim_end_matches("_ns")));
    let times = statistics.into_iter().chain(["time".to_owned()]).map(|name| (name, Dimension::TIME));
    let figures = times.chain(metrics.iter().map(|metric| (metric.name.clone(), metric.dimension))).collect();
    Ok(CompiledCase { bytes, figures })
}

/// The `FILE` argument for the workload of a case; `None` if there is no such file. A suite of the user's own names files
/// as a scenario does.
fn workload(suite: &SuiteFile, name: &str) -> Result<Option<String>, CliError> {
    let file =
        if suite.name.ends_with(".ron") { scenario::workload(Path::new(&suite.name), name)? } else { name.to_owned() };
    Ok(Some(file).filter(|file| library::find(file).is_some() || container::is_file(Path::new(file))))
}
