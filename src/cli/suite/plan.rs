//! Expands a suite to the cases that this machine can run, with their arguments.

use std::path::Path;

use indexmap::IndexMap;

use crate::base::{Bytes, counted};
use crate::cli::backends::{self, BackendArg};
use crate::cli::cases::Planned;
use crate::cli::error::{CliError, InputError};
use crate::cli::exec::ExecArgs;
use crate::cli::passed::exec_args;
use crate::cli::{exec, file_access, library, load};
use crate::config::{Settings, Suite, SuiteCase};
use crate::measure::cases::Status;

use super::args::SuiteArgs;

/// A case of a suite that has not run yet.
#[derive(Debug)]
pub struct SuitePlan {
    pub planned: Planned,
    pub case: SuiteCase,
}

/// The capabilities of this machine and backend.
pub struct Machine {
    /// Number of GPUs; `None` for the simulator and the CPU, which run any number of ranks.
    gpus: Option<u32>,
    /// True if results are computed: on the CPU and GPUs, not on the simulator.
    computes: bool,
    /// Memory of each device; `None` until it is known.
    pub memory: Option<Bytes>,
}

impl Machine {
    /// The machine for the requested backend. Devices are not opened: each case does that in its own process.
    pub fn here(args: &ExecArgs, settings: &Settings) -> Result<Machine, CliError> {
        let wanted = args.backend.unwrap_or(BackendArg::Auto);
        let gpus = match wanted {
            BackendArg::Cuda | BackendArg::Hip => Some(backends::gpus(wanted, args.device).unwrap_or(0)),
            _ => backends::gpus(wanted, args.device).filter(|_| wanted == BackendArg::Auto),
        };
        let simulated = gpus.is_none() && wanted != BackendArg::Host;
        let memory = if simulated { Some(backends::profile(settings)?.memory.value()) } else { None };
        Ok(Machine { gpus, computes: !simulated, memory: memory.map(|bytes| Bytes(bytes as u64)) })
    }

    /// Why a case needs more memory than the device has; `None` if it fits or the memory is not known.
    pub fn too_small(&self, case: &SuiteCase) -> Option<String> {
        let (needed, there) = (case.needs.memory()?, self.memory?);
        (there < needed).then(|| format!("it needs {needed} of device memory, and there are {there}"))
    }
}

/// Finds a suite by name or path. Returns its text too.
pub fn find(name: &str) -> Result<(Suite, String), CliError> {
    if name.ends_with(".ron") || name.contains('/') {
        let text = load::read(Path::new(name), load::FileKind::Suite)?;
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
            let command = command(suite, &case, args, machine);
            SuitePlan { planned: Planned { name, values: IndexMap::new(), command }, case }
        })
        .collect();
    if planned.is_empty() {
        let why = format!("no case of {} contains that", suite.name);
        let help = format!("`aorta suite {} --dry-run` prints the names of its cases", suite.name);
        return Err(InputError::bad_value("`--only`", only, &why, &help).into());
    }
    Ok(planned)
}

/// The arguments of a case, or its status and the reason if it cannot run.
fn command(
    suite: &Suite,
    case: &SuiteCase,
    args: &SuiteArgs,
    machine: &Machine,
) -> Result<Vec<String>, (Status, String)> {
    let Some(file) = workload(&suite.name, &case.workload) else {
        let near = match library::unknown(&case.workload) {
            InputError::UnknownWorkload { help: Some(help), .. } if help.starts_with("did you mean") => Some(help),
            _ => None,
        };
        let near = near.map(|help| format!(" as `{}`, {help}", case.workload)).unwrap_or_default();
        return Err((Status::Missing, format!("there is no such workload{near}")));
    };
    if suite.name.ends_with(".ron")
        && library::find(&file).is_none()
        && let Err(error) = file_access::check(Path::new(&suite.name), Path::new(&file), "workload")
    {
        return Err((Status::Failed, format!("bad input: {error}")));
    }
    let wanted = case.needs.gpus.max(case.ranks);
    if let (Some(wanted), Some(there)) = (wanted, machine.gpus)
        && there < wanted
    {
        let is = if there == 1 { "is" } else { "are" };
        let why = format!("it needs {}, and there {is} {there}", counted(wanted as usize, "GPU"));
        return Err((Status::Skipped, why));
    }
    if let Some(why) = machine.too_small(case) {
        return Err((Status::Skipped, why));
    }
    let arguments = arguments(file, case, args, machine);
    match examine(&arguments) {
        Ok(()) => Ok(arguments),
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
    arguments.extend((case.verify && machine.computes).then(|| "--verify".to_owned()));
    arguments.extend(args.same.words());
    arguments
}

/// Compiles what a case would run, so that mistakes are found before any case runs.
fn examine(arguments: &[String]) -> Result<(), String> {
    let parsed = exec_args(arguments).map_err(|mistake| mistake.why)?;
    exec::examine(parsed).map(drop).map_err(|error| error.text())
}

/// The `FILE` argument for a workload: a file beside the suite, a shipped workload, or any other file. `None` if it
/// does not exist.
fn workload(suite: &str, name: &str) -> Option<String> {
    let beside = Path::new(suite).parent().map(|folder| folder.join(name)).filter(|_| suite.ends_with(".ron"));
    if let Some(beside) = beside.filter(|path| path.is_file()) {
        return Some(beside.display().to_string());
    }
    (library::find(name).is_some() || Path::new(name).is_file()).then(|| name.to_owned())
}
