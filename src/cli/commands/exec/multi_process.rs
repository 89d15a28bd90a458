//! A run in several processes, one per rank, started by a launcher. They connect, verify that they run the same
//! program, and exit with one code. Only rank 0 prints.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::backend::rendezvous::{JoinOptions, Rendezvous, Transport};
use crate::cli::backends::LaunchedRank;
use crate::cli::error::{CliError, InputError};
use crate::cli::processes::launcher::Launcher;
use crate::cli::processes::secret;
use crate::cli::{CliResult, DONE, environment};
use crate::config::Settings;
use crate::exec::{self, Control, ExecError, RankProcesses};
use crate::render::DiagnosticFormat;

use super::interrupt::Interrupts;
use super::{ExecArgs, PreparedRun, ProcessRole, failure, finish, prepare};

/// Description of the workload's arguments in [`Start::same`].
const PARAMETERS: &str = "other values of its parameters";

/// The place of this process among the processes of a run.
pub(super) struct Process {
    launcher: Launcher,
    rendezvous: Arc<Rendezvous>,
    control: Arc<Control>,
}

/// The message that a process sends before it begins.
#[derive(Serialize, Deserialize)]
struct Start {
    host: String,
    /// Unique name of the GPU that it has opened; `None` without one.
    gpu: Option<String>,
    /// Values that must be equal in all processes, by a description.
    same: BTreeMap<String, String>,
    /// Every parameter with its value.
    params: BTreeMap<String, String>,
    /// True if the process cannot begin.
    failed: bool,
}

#[derive(Serialize, Deserialize)]
struct ProcessOutcome {
    code: u8,
    /// The process's own error; `None` if there was none, or if it only failed because others did.
    error: Option<String>,
}

/// Runs this process's rank. `settled` has the merged arguments and settings, or the error from reading them.
pub(super) fn run(
    launcher: Launcher,
    settled: Result<(ExecArgs, Settings), CliError>,
    how: DiagnosticFormat,
) -> CliResult {
    let waits = |settings: &Settings| {
        // An iteration may take up to its own timeout without progress.
        (settings.rendezvous.duration(), settings.stall.duration().max(2 * settings.timeout.duration()))
    };
    let (timeout, stall) = match &settled {
        Ok((_, settings)) => waits(settings),
        Err(_) => waits(&Settings::layered(None, &[])?),
    };
    let transport = match secret::find()? {
        Some(secret) => Transport::Network { address: launcher.address.clone(), port: launcher.port, secret },
        None if launcher.one_host => {
            Transport::Host { folder: environment::runtime_folder(), advice: secret::advice() }
        }
        None => return Err(secret::missing(&launcher).into()),
    };
    let rank = launcher.rank;
    let place = JoinOptions { rank, world: launcher.world, transport, job: launcher.job.clone(), timeout, stall };
    let control = Arc::new(Control::default());
    let on_failure = failure::OnFailure::once(how, rank);
    // A thread inside a library may wait for a dead rank forever. So the communicators are aborted, and if that does
    // not help, this process reports its partial results and exits.
    let ended = control.clone();
    let rescue = move |error: ExecError| {
        if !ended.end(&error) {
            on_failure.leave(error.into());
        }
    };
    let rendezvous = Rendezvous::join(&place, Box::new(rescue))?;
    let counted = control.clone();
    rendezvous.count_work(move || counted.progress());
    let process = Process { launcher, rendezvous: Arc::new(rendezvous), control };
    let result = process.run(settled, how);
    process.conclude(result, how)
}

/// True if this process prints its error. Rank 0 reports a lost rank for all.
pub(super) fn prints_error(error: &CliError, rank: u32) -> bool {
    match error {
        CliError::Exec { error: ExecError::Ended, .. } => false,
        CliError::Exec { error: ExecError::LostRank { rank: lost, .. }, .. } => rank == 0 || *lost == 0,
        _ => true,
    }
}

impl Process {
    /// The number of ranks. `asked` is the value of `--ranks`.
    pub(super) fn world(&self, asked: Option<u32>) -> Result<u32, InputError> {
        let Launcher { name, world, .. } = self.launcher;
        match asked.filter(|&asked| asked != world) {
            None => Ok(world),
            Some(asked) => Err(InputError::Launcher {
                why: format!("`--ranks {asked}` was requested, but {name} has started {world} processes"),
                help: "each process is a rank: leave `--ranks` out, or start as many processes".to_owned(),
            }),
        }
    }

    /// True if this process prints and writes files.
    pub(super) fn leads(&self) -> bool {
        self.launcher.rank == 0
    }

    pub(super) fn launched_rank(&self) -> LaunchedRank {
        LaunchedRank { local_rank: self.launcher.local_rank, processes: self.rendezvous.clone() }
    }

    fn run(&self, settled: Result<(ExecArgs, Settings), CliError>, how: DiagnosticFormat) -> CliResult {
        let ready = settled.and_then(|(args, settings)| prepare(args, settings, Some(self)));
        let start = ready.as_ref().map_or_else(|_| Start::failed(), Start::of);
        let all: Vec<Start> = exec::gather(self.rendezvous.as_ref(), "beginning", &start)?;
        let ready = ready?;
        if all.iter().any(|start| start.failed) {
            return Err(ExecError::Ended.into());
        }
        check_same(&all)?;
        check_devices(&all)?;
        let role = ProcessRole {
            leads: self.leads(),
            facts: self.facts(&all),
            on_failure: failure::OnFailure::once(how, self.launcher.rank),
            control: self.control.clone(),
            interrupts: Interrupts::watch(&self.control, self.leads(), true),
        };
        if ready.chosen.backend.processes().is_none() {
            // Rank 0 runs all ranks; the others only exit with its code.
            if !self.leads() {
                return Ok(DONE);
            }
            // No call here waits for a lost process, so the run can end as after Ctrl-C.
            self.rendezvous.watch(Some(self.control.stop.clone()));
        }
        finish(&ready, &role, how)
    }

    /// Facts about the launch of the run, for its record.
    fn facts(&self, all: &[Start]) -> Vec<(String, String)> {
        let mut hosts: Vec<&str> = Vec::new();
        for start in all {
            if !hosts.contains(&start.host.as_str()) {
                hosts.push(&start.host);
            }
        }
        let facts = [
            ("launcher", self.launcher.name.to_owned()),
            ("processes", self.launcher.world.to_string()),
            ("hosts", hosts.join(", ")),
        ];
        facts.map(|(name, value)| (name.to_owned(), value)).into()
    }

    /// Collects how each process ended. An error that several have in common is printed by the first of them, and all
    /// exit with its code.
    fn conclude(&self, result: CliResult, how: DiagnosticFormat) -> CliResult {
        let ended = |error: &CliError| matches!(error, CliError::Exec { error: ExecError::Ended, .. });
        let own_outcome = match &result {
            Ok(code) => ProcessOutcome { code: *code, error: None },
            Err(error) => ProcessOutcome {
                code: error.code(),
                error: Some(error).filter(|error| !ended(error)).map(CliError::text),
            },
        };
        let all: Vec<ProcessOutcome> = match exec::gather(self.rendezvous.as_ref(), "outcome", &own_outcome) {
            Ok(all) => all,
            Err(lost) => {
                self.rendezvous.leave(Some(own_outcome.error.as_deref().unwrap_or("it has lost another rank")));
                let lost = CliError::from(lost);
                let error = result.err().filter(|error| !ended(error)).unwrap_or(lost);
                if prints_error(&error, self.launcher.rank) {
                    return Err(error);
                }
                return Ok(error.code());
            }
        };
        let before = all.iter().take(self.launcher.rank as usize);
        if let Err(error) = &result
            && own_outcome.error.is_some()
            && !before.into_iter().any(|outcome| outcome.error == own_outcome.error)
        {
            error.print(how);
        }
        self.rendezvous.leave(None);
        let first = all.iter().find(|outcome| outcome.error.is_some()).or(all.first());
        Ok(first.map_or(own_outcome.code, |outcome| outcome.code))
    }
}

impl Start {
    fn failed() -> Start {
        Start { host: environment::host(), gpu: None, same: BTreeMap::new(), params: BTreeMap::new(), failed: true }
    }

    fn of(ready: &PreparedRun) -> Start {
        let PreparedRun { args, settings, loaded, chosen, .. } = ready;
        let device = chosen.backend.device();
        let results = (args.verify, args.outputs.is_some(), args.ranges);
        let same = [
            ("another file", loaded.compiled.sha256.clone()),
            (PARAMETERS, format!("{:?}", args.workload)),
            ("another backend", format!("{} {:?}", chosen.backend.name(), chosen.backend.topology())),
            ("other settings", format!("{settings:?} {results:?}")),
        ];
        Start {
            host: environment::host(),
            gpu: device.facts.into_iter().find(|(name, _)| name == "uuid").map(|(_, id)| id),
            same: same.map(|(name, value)| (name.to_owned(), value)).into(),
            params: loaded.compiled.ranks[0].program.params.iter().cloned().collect(),
            failed: false,
        }
    }
}

/// Fails if a process would run something different from rank 0.
fn check_same(all: &[Start]) -> Result<(), InputError> {
    let Some(first) = all.first() else { return Ok(()) };
    for (name, value) in &first.same {
        let differs = |start: &Start| start.same.get(name) != Some(value);
        let differing: Vec<String> = (0..)
            .zip(all)
            .filter(|(_, start)| differs(start))
            .map(|(rank, start): (u32, _)| format!("rank {rank} on {}", start.host))
            .collect();
        if !differing.is_empty() {
            let verb = if differing.len() == 1 { "has" } else { "have" };
            let values = all.iter().filter(|start| name == PARAMETERS && differs(start)).find_map(|start| {
                let (param, other) =
                    start.params.iter().find(|(param, other)| first.params.get(*param) != Some(*other))?;
                Some(format!(": `{param}={other}`, not `{param}={}`", first.params.get(param)?))
            });
            return Err(InputError::RanksDiffer {
                why: format!(
                    "{} {verb} {name} than rank 0 on {}{}",
                    differing.join(", "),
                    first.host,
                    values.unwrap_or_default()
                ),
                help: "give all processes the same command, file and settings, also your own in `~/.config/aorta`; \
                       only one process gets standard input"
                    .to_owned(),
            });
        }
    }
    Ok(())
}

/// Fails if two processes have opened the same GPU, where they would wait for each other.
fn check_devices(all: &[Start]) -> Result<(), ExecError> {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (rank, start) in all.iter().enumerate() {
        let Some(gpu) = &start.gpu else { continue };
        if let Some(other) = seen.insert(gpu, rank) {
            return Err(ExecError::NoDevice {
                backend: "CUDA",
                why: format!("ranks {other} and {rank} on {} use the same GPU, but each needs its own", start.host),
                help: Some(
                    "start as many processes on a host as it has GPUs, without `--device`; a launcher that narrows \
                     CUDA_VISIBLE_DEVICES gives each another one"
                        .to_owned(),
                ),
            });
        }
    }
    Ok(())
}
