//! Expands a suite to the cases that this machine can run, with their arguments.

use std::path::Path;

use crate::base::{Bytes, Space, counted};
use crate::cli::backends;
use crate::cli::cases::Planned;
use crate::cli::error::{CliError, InputError};
use crate::cli::exec::ExecArgs;
use crate::cli::passed::exec_args;
use crate::cli::{container, exec, library, load, project, scenario};
use crate::config::{BackendSetting, RonKind, Settings, Suite, SuiteCase};
use crate::measure::cases::Status;
use crate::schedule::Topology;

use super::args::SuiteArgs;

/// A case of a suite that has not run yet.
#[derive(Debug)]
pub struct SuitePlan {
    pub planned: Planned,
    pub case: SuiteCase,
    /// Bytes of device memory that the schedule takes on the rank that takes most; `None` if the case cannot run.
    bytes: Option<Bytes>,
}

/// The capabilities of this machine and backend.
pub struct Machine {
    /// Number of GPUs; `None` for the simulator and the CPU, which run any number of ranks.
    gpus: Option<u32>,
    /// True if results are computed: on the CPU and GPUs, not on the simulator.
    computes: bool,
    /// Memory of each device; `None` until it is known.
    pub memory: Option<Bytes>,
    /// The hardware queues for which cases are scheduled.
    topology: Topology,
}

impl Machine {
    /// The machine for the requested backend. Devices are not opened: each case does that in its own process.
    pub fn here(args: &ExecArgs, settings: &Settings) -> Result<Machine, CliError> {
        let wanted = args.backend.unwrap_or(BackendSetting::Auto);
        let gpus = match wanted {
            BackendSetting::Cuda | BackendSetting::Hip => Some(backends::gpus(wanted, args.device).unwrap_or(0)),
            _ => backends::gpus(wanted, args.device).filter(|_| wanted == BackendSetting::Auto),
        };
        let simulated = gpus.is_none() && wanted != BackendSetting::Host;
        let profile = backends::profile(settings)?;
        let memory = simulated.then(|| Bytes(profile.memory.value() as u64));
        Ok(Machine { gpus, computes: !simulated, memory, topology: Topology::of(&profile) })
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
        short(plan.bytes).map(|needed| (Status::OutOfMemory, why(needed)))
    }
}

/// Finds a suite by name or path: one of the project, or a shipped one. Returns its text too.
pub fn find(name: &str) -> Result<(Suite, String), CliError> {
    let name = &project::resolve(name)?;
    if name.ends_with(".ron") || name.contains('/') {
        let text = load::read(Path::new(name), load::FileKind::Suite)?;
        if RonKind::of(&text) == RonKind::Scenario && text.contains("workload:") {
            let help = format!("`aorta exec {name}` runs it; a suite lists it: `cases: [(workload: \"moe\")]`");
            return Err(
                InputError::bad_value("a suite", name, "it is a scenario, which runs one workload", &help).into()
            );
        }
        return Ok((Suite::parse(name, &text)?, text));
    }
    let (name, text) = Suite::text(name)?;
    Ok((Suite::parse(name, text)?, text.to_owned()))
}

/// Plans every case, in the suite's order.
pub fn plan(suite: &Suite, args: &SuiteArgs, machine: &Machine) -> Result<Vec<SuitePlan>, CliError> {
    let cases = suite.expanded().into_iter();
    let named = cases.map(|case| (case.name.clone().unwrap_or_default(), case));
    let only = args.only.as_deref().unwrap_or_default();
    let planned: Vec<SuitePlan> = named
        .filter(|(name, _)| name.contains(only))
        .map(|(name, case)| {
            let (command, bytes) = match command(suite, &case, args, machine) {
                Ok((command, bytes)) => (Ok(command), Some(bytes)),
                Err(without) => (Err(without), None),
            };
            let values = case.values.clone();
            let mut plan = SuitePlan { planned: Planned { name, values, command }, case, bytes };
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
    Ok(planned)
}

/// The arguments of a case and the device memory that it takes, or its status and the reason if it cannot run.
fn command(
    suite: &Suite,
    case: &SuiteCase,
    args: &SuiteArgs,
    machine: &Machine,
) -> Result<(Vec<String>, Bytes), (Status, String)> {
    let file = match workload(suite, &case.workload) {
        Ok(Some(file)) => file,
        Ok(None) => {
            let near = library::nearest(&case.workload);
            let near = near.map(|near| format!(" as `{}`, did you mean `{near}`?", case.workload)).unwrap_or_default();
            return Err((Status::Missing, format!("there is no such workload{near}")));
        }
        Err(error) => return Err((Status::Failed, format!("bad input: {}", error.text()))),
    };
    let wanted = case.needs.gpus.max(case.ranks);
    if let (Some(wanted), Some(there)) = (wanted, machine.gpus)
        && there < wanted
    {
        let is = if there == 1 { "is" } else { "are" };
        let why = format!("it needs {}, and there {is} {there}", counted(wanted as usize, "GPU"));
        return Err((Status::Skipped, why));
    }
    let arguments = arguments(file, case, args, machine);
    match examine(&arguments, machine.topology) {
        Ok(bytes) => Ok((arguments, bytes)),
        Err(why) => Err((Status::Failed, format!("bad input: {why}"))),
    }
}

/// The arguments of `aorta exec` for a case.
fn arguments(file: String, case: &SuiteCase, args: &SuiteArgs, machine: &Machine) -> Vec<String> {
    let mut arguments = vec![file];
    arguments.extend(case.preset.iter().map(|preset| format!("--preset={preset}")));
    arguments.extend(case.params.iter().map(|(name, value)| format!("--set={name}={value}")));
    arguments.extend(case.streams.iter().map(|streams| format!("--streams={streams}")));
    // If GPUs cannot be counted, a case gets as many ranks as it needs.
    let ranks = case.ranks.or(case.needs.gpus.filter(|_| machine.gpus.is_none()));
    arguments.extend(ranks.map(|ranks| format!("--ranks={ranks}")));
    arguments.extend(case.launch.map(|launch| format!("--launch={}", launch.name())));
    arguments
        .extend(case.effort.filter(|_| !args.same.has("effort")).map(|effort| format!("--effort={}", effort.name())));
    arguments.extend(case.settings.iter().map(|(name, value)| format!("--config={name}={value}")));
    arguments.extend((case.fuse && !args.same.has("fuse")).then(|| "--fuse".to_owned()));
    arguments.extend((case.verify && machine.computes).then(|| "--verify".to_owned()));
    arguments.extend(args.same.words());
    arguments
}

/// Compiles and schedules what a case would run, so that mistakes are found before any case runs. Returns the bytes of
/// device memory of the rank that takes most.
fn examine(arguments: &[String], topology: Topology) -> Result<Bytes, String> {
    let parsed = exec_args(arguments).map_err(|mistake| mistake.why)?;
    let loaded = exec::examine(parsed).map_err(|error| error.text())?;
    let schedules = loaded.compiled.schedules(topology);
    Ok(Bytes(schedules.iter().map(|schedule| schedule.bytes(Space::Device)).max().unwrap_or(0)))
}

/// The `FILE` argument for the workload of a case; `None` if there is no such file. A suite of the user's own names files
/// as a scenario does.
fn workload(suite: &Suite, name: &str) -> Result<Option<String>, CliError> {
    let file =
        if suite.name.ends_with(".ron") { scenario::workload(Path::new(&suite.name), name)? } else { name.to_owned() };
    Ok(Some(file).filter(|file| library::find(file).is_some() || container::is_file(Path::new(file))))
}
