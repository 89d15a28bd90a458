//! From a suite to what there is to run: which cases this machine can run, and by which arguments.

use std::path::Path;

use indexmap::IndexMap;

use crate::base::{Bytes, counted};
use crate::cli::backends::{self, BackendArg};
use crate::cli::cases::Planned;
use crate::cli::error::{CliError, InputError};
use crate::cli::exec::ExecArgs;
use crate::cli::passed::exec_args;
use crate::cli::{exec, library, load, reach};
use crate::config::{Settings, Suite, SuiteCase};
use crate::measure::cases::Status;

use super::args::SuiteArgs;

/// A case of a suite before it has run.
#[derive(Debug)]
pub struct SuitePlan {
    pub planned: Planned,
    pub case: SuiteCase,
}

/// What cases can have here.
pub struct Machine {
    /// Of a GPU backend: how many there are. The simulator and the CPU run as many ranks as are asked for.
    gpus: Option<u32>,
    /// The CPU and GPUs compute results, the simulator none.
    computes: bool,
    /// Of each device, where that is known.
    pub memory: Option<Bytes>,
}

impl Machine {
    /// As the backend that was asked for has it. Devices are not opened: a case does that in its own process.
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

    /// Why a case does not fit, as far as the memory is known.
    pub fn too_small(&self, case: &SuiteCase) -> Option<String> {
        let (needed, there) = (case.needs.memory()?, self.memory?);
        (there < needed).then(|| format!("it needs {needed} of device memory, and there are {there}"))
    }
}

/// A suite by its name or its path, with its text.
pub fn find(name: &str) -> Result<(Suite, String), CliError> {
    if name.ends_with(".ron") || name.contains('/') {
        let text = load::read(Path::new(name), load::FileKind::Suite)?;
        return Ok((Suite::parse(name, &text)?, text));
    }
    let (name, text) = Suite::text(name)?;
    Ok((Suite::parse(name, text)?, text.to_owned()))
}

/// Every case with what becomes of it, in the order of the suite.
pub fn plan(suite: &Suite, args: &SuiteArgs, machine: &Machine) -> Result<Vec<SuitePlan>, CliError> {
    let cases = suite.expanded().into_iter();
    let named = cases.map(|case| (case.name.clone().unwrap_or_default(), case));
    let only = args.only.as_deref().unwrap_or_default();
    let planned: Vec<SuitePlan> = named
        .filter(|(name, _)| name.contains(only))
        .map(|(name, case)| {
            let fate = fate(suite, &case, args, machine);
            SuitePlan { planned: Planned { name, values: IndexMap::new(), fate }, case }
        })
        .collect();
    if planned.is_empty() {
        let why = format!("no case of {} contains that", suite.name);
        let help = format!("`aorta suite {} --dry-run` prints the names of its cases", suite.name);
        return Err(InputError::bad_value("`--only`", only, &why, &help).into());
    }
    Ok(planned)
}

/// The arguments of a case's run, or how it ends without one.
fn fate(suite: &Suite, case: &SuiteCase, args: &SuiteArgs, machine: &Machine) -> Result<Vec<String>, (Status, String)> {
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
        && let Err(error) = reach::check(Path::new(&suite.name), Path::new(&file), "workload")
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

/// What `aorta exec` is given for a case.
fn arguments(file: String, case: &SuiteCase, args: &SuiteArgs, machine: &Machine) -> Vec<String> {
    let mut arguments = vec![file];
    arguments.extend(case.preset.iter().map(|preset| format!("--preset={preset}")));
    arguments.extend(case.params.iter().map(|(name, value)| format!("--set={name}={value}")));
    arguments.extend(case.streams.iter().map(|streams| format!("--streams={streams}")));
    // Where no GPUs can be counted, a file has as many ranks as it needs.
    let ranks = case.ranks.or(case.needs.gpus.filter(|_| machine.gpus.is_none()));
    arguments.extend(ranks.map(|ranks| format!("--ranks={ranks}")));
    arguments.extend(case.launch.map(|launch| format!("--launch={}", launch.name())));
    arguments
        .extend(case.effort.filter(|_| !args.same.has("effort")).map(|effort| format!("--effort={}", effort.name())));
    arguments.extend((case.verify && machine.computes).then(|| "--verify".to_owned()));
    arguments.extend(args.same.words());
    arguments
}

/// Whether the arguments make a run, as far as that is known without a device: no time is lost on the cases before.
fn examine(arguments: &[String]) -> Result<(), String> {
    let parsed = exec_args(arguments).map_err(|mistake| mistake.why)?;
    exec::examine(parsed).map(drop).map_err(|error| error.text())
}

/// What `aorta exec` is given for a workload: a file beside the suite, a shipped one, or any other file.
fn workload(suite: &str, name: &str) -> Option<String> {
    let beside = Path::new(suite).parent().map(|folder| folder.join(name)).filter(|_| suite.ends_with(".ron"));
    if let Some(beside) = beside.filter(|path| path.is_file()) {
        return Some(beside.display().to_string());
    }
    (library::find(name).is_some() || Path::new(name).is_file()).then(|| name.to_owned())
}
