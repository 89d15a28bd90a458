//! Prepares a run: reads arguments, settings and the file, and opens devices.

use crate::base::{stage, suggest};
use crate::compile::RankCount;
use crate::config::{BackendSetting, Expected, ObserveSetting, Settings};
use crate::measure::counters;
use crate::ops::user_kernel;

use super::args::{ExecArgs, exec_args};
use super::{emulate, limits, multi_process, scenario};
use crate::cli::backends::{self, GpuRequest, OpenedBackend};
use crate::cli::commands::profile;
use crate::cli::error::{CliError, InputError};
use crate::cli::inputs::load;
use crate::cli::io::output;
use crate::cli::{ConfigArgs, WorkloadArgs};

/// A run that is ready to start.
pub(super) struct PreparedRun {
    pub args: ExecArgs,
    pub settings: Settings,
    pub loaded: load::Loaded,
    pub chosen: OpenedBackend,
    /// True if the file has collectives but runs as one rank, because no number was given and there were no GPUs to
    /// count.
    pub one_rank: bool,
    /// The user's own normal ranges; `None` if not given.
    pub expected: Option<Expected>,
}

/// Merges the arguments with a scenario, and the settings with the arguments.
pub fn resolve_args(args: ExecArgs) -> Result<(ExecArgs, Settings), CliError> {
    let mut args = scenario::with_scenario(args)?;
    // A flag overrides `--config`.
    args.config.config.extend(args.timeout.iter().map(|time| format!("timeout={time}")));
    let mut settings = load::settings(&args.config)?;
    args.change(&mut settings);
    // CUPTI cannot read counters in a process in which it has recorded operations.
    if args.counters.is_some() && settings.observe == ObserveSetting::Auto {
        settings.observe = ObserveSetting::Events;
    }
    if settings.observe == ObserveSetting::Vendor {
        backends::attach_recorder(args.backend.unwrap_or(BackendSetting::Auto));
    }
    Ok((args, settings))
}

/// Returns how a single process determines the number of ranks, and true if there were no GPUs to count.
fn ranks_alone(args: &ExecArgs) -> (RankCount, bool) {
    match args.emulate.or(args.ranks) {
        Some(ranks) => (RankCount::Exactly(ranks), false),
        None => {
            let gpus = backends::gpus(args.backend.unwrap_or(BackendSetting::Auto), args.device);
            (RankCount::IfCommunicating(gpus.unwrap_or(1)), gpus.is_none())
        }
    }
}

/// Reads the file, and determines the command that checks it.
fn find(args: &ExecArgs, settings: &Settings) -> Result<load::WorkloadText, CliError> {
    let mut text = load::find(&args.file, settings)?;
    // Standard input cannot be read again.
    if args.file != "-" {
        text.check = ["aorta", "check", &args.file].map(str::to_owned).into();
        for pair in args.config.config.iter().filter(|pair| !pair.starts_with("timeout=")) {
            text.check.extend(["--config".to_owned(), pair.clone()]);
        }
        if let Some(path) = &args.config.config_file {
            text.check.extend(["--config-file".to_owned(), path.display().to_string()]);
        }
    }
    Ok(text)
}

/// Compiles the workload that the arguments name. Finds every mistake that can be found without a device.
pub fn examine(args: ExecArgs) -> Result<load::Loaded, CliError> {
    let (args, settings) = resolve_args(args)?;
    if backends::simulates(args.backend.unwrap_or(BackendSetting::Auto)) {
        backends::profile(&settings)?;
    }
    compile(&args, &settings)
}

/// Merges the arguments that set the program of a file, which may be a scenario, a bundle or a record, for commands that
/// run nothing.
pub fn target(file: &str, workload: &WorkloadArgs, config: &ConfigArgs) -> Result<(ExecArgs, Settings), CliError> {
    let parsed = exec_args(&[file.to_owned()]).map_err(|mistake| mistake.of("the file", file))?;
    resolve_args(ExecArgs { workload: workload.clone(), config: config.clone(), ..parsed })
}

/// Compiles the workload that settled arguments name.
pub fn compile(args: &ExecArgs, settings: &Settings) -> Result<load::Loaded, CliError> {
    let text = find(args, settings).map_err(|error| scenario::placed(error, args))?;
    let loaded = load::load(&text, &args.workload, settings, ranks_alone(args).0);
    let loaded = loaded.map_err(|error| scenario::placed(error, args))?;
    match args.emulate {
        Some(world) => emulate::only(loaded, args.rank, world),
        None => Ok(loaded),
    }
}

/// Compiles the file and opens the devices: for all ranks, or for this process's rank.
pub(super) fn prepare(
    args: ExecArgs,
    settings: Settings,
    process: Option<&multi_process::Process>,
) -> Result<PreparedRun, CliError> {
    let text = find(&args, &settings).map_err(|error| scenario::placed(error, &args))?;
    let wanted = args.backend.unwrap_or(BackendSetting::Auto);
    let (ranks, uncounted) = match (process, args.emulate) {
        (Some(_), Some(world)) => return Err(emulate::launched(world).into()),
        (Some(process), None) => (RankCount::Exactly(process.world(args.ranks)?), false),
        (None, _) => ranks_alone(&args),
    };
    let leads = process.is_none_or(|process| process.leads());
    let loaded = load::load(&text, &args.workload, &settings, ranks);
    let mut loaded = loaded.map_err(|error| scenario::placed(error, &args))?;
    let one_rank = uncounted && loaded.compiled.may_communicate();
    if let Some(world) = args.emulate {
        loaded = emulate::only(loaded, args.rank, world)?;
    }
    if leads {
        args.output.check()?;
    }
    if let Some(folder) = &args.outputs {
        output::check_folder(folder)?;
    }
    limits::check(&args, &loaded)?;
    if let Some(name) = &args.counters {
        check_operation(name, &loaded)?;
    }
    let expected = args.expected.own()?;
    let ranges = args.ranges.and_then(|kind| profile::ranges(kind, &loaded));
    let launched_rank = process.map(|process| process.launched_rank());
    let ranks = loaded.compiled.ranks.len() as u32;
    let _stage = stage::enter("opening the device");
    let request = GpuRequest { device: args.device, ranks, ranges, launched_rank: launched_rank.as_ref() };
    let mut chosen = backends::choose(wanted, &settings, request)?;
    allowed(&loaded, &chosen, &settings)?;
    if args.emulate.is_some() {
        chosen = emulate::with(chosen, &settings)?;
    }
    let computed = if args.verify { Some("--verify") } else { args.outputs.as_ref().map(|_| "--outputs") };
    if let Some(flag) = computed {
        check_results(flag, &chosen, args.emulate.is_some())?;
    }
    Ok(PreparedRun { args, settings, loaded, chosen, one_rank, expected })
}

/// Fails if the run would load code of the file on a GPU without the user's permission. Shipped files need none.
fn allowed(loaded: &load::Loaded, chosen: &OpenedBackend, settings: &Settings) -> Result<(), InputError> {
    let runs_code = !matches!(chosen.backend.name(), "host") && !chosen.backend.device().simulated;
    if !runs_code || settings.allow_kernels || loaded.origin == load::LIBRARY {
        return Ok(());
    }
    let specs = loaded.compiled.ranks.iter().flat_map(|rank| &rank.program.specs);
    match specs.filter_map(user_kernel).next() {
        Some(kernel) => {
            let (file, kernel) = (loaded.compiled.name.clone(), kernel.name.to_string());
            Err(InputError::KernelsNotAllowed { file, kernel })
        }
        None => Ok(()),
    }
}

/// Fails if the first iteration has no operation with this name or label.
fn check_operation(name: &str, loaded: &load::Loaded) -> Result<(), InputError> {
    let program = &loaded.compiled.ranks[0].program;
    if !counters::chosen(program, name).is_empty() {
        return Ok(());
    }
    let names = counters::names(program);
    let help = suggest::did_you_mean(name, names.iter().map(String::as_str));
    Err(InputError::NoOperation { file: loaded.compiled.name.clone(), name: name.to_owned(), help })
}

/// Fails if `flag` needs results but nothing computes any.
fn check_results(flag: &'static str, chosen: &OpenedBackend, emulated: bool) -> Result<(), InputError> {
    if emulated {
        let help = "run all ranks: `--ranks N` in place of `--emulate N`";
        return Err(InputError::NoResults { flag, who: "an emulated collective", help });
    }
    if chosen.backend.device().simulated {
        let help = "run it on a GPU, or use `--backend host`";
        return Err(InputError::NoResults { flag, who: "the simulator", help });
    }
    Ok(())
}
