//! `aorta exec`.

mod emulate;
mod failure;
mod interrupt;
mod restart;
mod scenario;
mod together;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};

use crate::backend::host::Host;
use crate::base::{Bytes, DType, Space, SrcSpan, counted};
use crate::config::{CacheSetting, Effort, EffortPlan, GateSetting, LaunchSetting, MAX_ITERATIONS, Settings};
use crate::exec::{self, Control, LaunchMode, Timer};
use crate::measure::record::{
    Device, LaneRecord, MemoryRecord, ProgramRecord, RunRecord, SCHEMA, Settings as SettingsRecord, Workload,
};
use crate::measure::{self, Measured};
use crate::plan::Rank;
use crate::report;
use crate::schedule::{self, Schedule};

use super::backends::{self, BackendArg, Chosen};
use super::conditions::{ConditionArgs, Conditions};
use super::diagnostics::{self, DiagnosticsArg};
use super::error::{CliError, InputError};
use super::progress::Progress;
use super::{
    CliResult, ConfigArgs, DONE, INTERRUPTED, NOT_HELD, WorkloadArgs, environment, launcher, list, load, output,
    profile, show,
};

const AFTER_HELP: &str = "\
Several processes: `torchrun --nproc-per-node 2 --no-python aorta exec FILE`, and `mpirun` and `srun`
likewise, give each rank a process and a GPU of its own, on one host or several. The first prints.";

/// Ranks at most: each has a thread.
pub const MAX_RANKS: u32 = 1024;

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct ExecArgs {
    /// A workload file, the name of a shipped workload, or a scenario (`.ron`)
    file: String,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// What runs it
    #[arg(long, value_name = "BACKEND")]
    backend: Option<BackendArg>,
    /// The GPU, by its number
    #[arg(long, value_name = "N")]
    device: Option<u32>,
    /// Ranks, each on a GPU of its own, or simulated; without it, a file with collectives takes all GPUs of this machine
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_RANKS)))]
    ranks: Option<u32>,
    /// Let one device stand for a rank of N: what ranks do together becomes a kernel that holds units for as long
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=i64::from(MAX_RANKS)))]
    #[arg(conflicts_with = "ranks")]
    emulate: Option<u32>,
    /// The rank that it stands for
    #[arg(long, value_name = "R", requires = "emulate", default_value = "0", hide_default_value = true)]
    rank: u32,
    /// How operations reach the device
    #[arg(long, value_name = "HOW")]
    launch: Option<LaunchArg>,
    #[command(flatten)]
    conditions: ConditionArgs,
    /// How long an iteration may take before the run is called hung, such as `10s`
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// How long to measure
    #[arg(long, value_name = "EFFORT")]
    effort: Option<EffortArg>,
    /// Warm-up iterations, in place of the effort's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_ITERATIONS)))]
    warmup: Option<u32>,
    /// Measured iterations, in place of the effort's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ITERATIONS)))]
    iterations: Option<u32>,
    /// Compare every output with the CPU's
    #[arg(long)]
    verify: bool,
    /// Show the N operations with the most time of their own, and what usually helps each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    top: Option<u32>,
    /// Write the record of the run
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
    /// Write the record as CSV
    #[arg(long, value_name = "PATH")]
    csv: Option<PathBuf>,
    /// Write one iteration for Perfetto
    #[arg(long, value_name = "PATH")]
    trace: Option<PathBuf>,
    /// Write every buffer, as it is after one iteration, as a NumPy file into this folder
    #[arg(long, value_name = "FOLDER")]
    outputs: Option<PathBuf>,
    /// Tell a profiler of each operation: `aorta profile` sets it.
    #[arg(long, hide = true)]
    ranges: Option<profile::RangesArg>,
    /// Set a variable for the vendor's driver
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// The variables are set: this is the child.
    #[arg(long, hide = true)]
    env_is_set: bool,
    /// A run has failed: find the operation. The program starts itself so.
    #[arg(long, hide = true)]
    diagnose: Option<failure::DiagnoseArg>,
    #[command(flatten)]
    config: ConfigArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LaunchArg {
    /// Each by a call of its own
    Stream,
    /// All of an iteration by one call
    Graph,
    /// One after the other, side by side in the report
    Both,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum EffortArg {
    /// One iteration, no measurement
    Sanity,
    /// 10 iterations to warm up and 5 measured
    Quick,
    /// As many and 100
    Full,
}

/// What a process does of a run, and what there is to note of how it was launched.
struct Part {
    /// It prints and writes files.
    leads: bool,
    /// A launcher has started it.
    launched: bool,
    facts: Vec<(String, String)>,
    /// What is done when it fails.
    aftermath: failure::Aftermath,
}

/// A run for which everything is there.
struct Ready {
    args: ExecArgs,
    settings: Settings,
    loaded: load::Loaded,
    chosen: Chosen,
}

pub fn run(mut args: ExecArgs, how: DiagnosticsArg) -> CliResult {
    // A flag comes after what `--config` says.
    args.config.config.extend(args.timeout.iter().map(|time| format!("timeout={time}")));
    let aftermath = failure::Aftermath::of(&args, how);
    let settled = settle(args);
    if let Ok((args, _)) = &settled
        && !args.env.is_empty()
        && !args.env_is_set
    {
        return restart::restart(&["--env-is-set"], &args.env);
    }
    match launcher::here()? {
        Some(launcher) => together::run(launcher, settled, how),
        None => {
            let alone = Part { leads: true, launched: false, facts: Vec::new(), aftermath };
            let done = settled.and_then(|(args, settings)| finish(&prepare(args, settings, None)?, &alone, how));
            done.inspect_err(|error| aftermath.look_again(error))
        }
    }
}

/// The arguments with what a scenario says, and the settings.
fn settle(args: ExecArgs) -> Result<(ExecArgs, Settings), CliError> {
    let mut settings = load::settings(&args.config)?;
    let args = scenario::with_scenario(args, &mut settings)?;
    Ok((args, settings))
}

/// Reads the file and opens the devices: those of all ranks, or of the one that is this process's.
fn prepare(args: ExecArgs, settings: Settings, process: Option<&together::Process>) -> Result<Ready, CliError> {
    let text = load::find(&args.file, &settings)?;
    let wanted = args.backend.unwrap_or(BackendArg::Auto);
    let world = match (process, args.emulate, args.ranks) {
        (Some(_), Some(world), _) => return Err(emulate::launched(world).into()),
        (Some(process), None, ranks) => load::World::Of(process.world(ranks)?),
        (None, Some(world), _) => load::World::Of(world),
        (None, None, Some(ranks)) => load::World::Of(ranks),
        (None, None, None) => load::World::OfCollectives(backends::gpus(wanted, args.device)),
    };
    let leads = process.is_none_or(|process| process.leads());
    let mut loaded = load::load_world(text, &args.workload, &settings, world)?;
    if let Some(world) = args.emulate {
        loaded = emulate::only(loaded, args.rank, world)?;
    }
    for path in [&args.json, &args.csv, &args.trace].into_iter().flatten().filter(|_| leads) {
        output::check_file(path)?;
    }
    if let Some(folder) = &args.outputs {
        output::check_folder(folder)?;
    }
    let ranges = args.ranges.and_then(|kind| profile::ranges(kind, &loaded));
    let one_of = process.map(|process| process.one_of());
    let ranks = loaded.ranks.len() as u32;
    let mut chosen = backends::choose(wanted, &settings, args.device, ranks, ranges, one_of.as_ref())?;
    if args.emulate.is_some() {
        chosen = emulate::with(chosen, &settings)?;
    }
    let computed = if args.verify { Some("--verify") } else { args.outputs.as_ref().map(|_| "--outputs") };
    if let Some(flag) = computed {
        check_results(flag, &chosen, args.emulate.is_some())?;
    }
    Ok(Ready { args, settings, loaded, chosen })
}

/// Runs what is ready, prints and writes what there is to say.
fn finish(ready: &Ready, part: &Part, how: DiagnosticsArg) -> CliResult {
    let Ready { args, loaded, chosen, .. } = ready;
    if part.leads {
        if let Some(why) = &chosen.why {
            output::eprint(&format!("{why}\n"));
        }
        remind(loaded, &args.file, how);
    }
    let run = Run::new(ready, part);
    let (sources, aftermath) = (loaded.sources.clone(), part.aftermath);
    run.control
        .when_stuck(move |error| aftermath.leave(CliError::Exec { error: error.clone(), sources: sources.clone() }));
    if let Some(what) = args.diagnose {
        return run.diagnose(what);
    }
    let (mut record, failure) = run.record()?;
    let outputs = match &args.outputs {
        Some(folder) if record.complete => run.write_outputs(folder, &mut record),
        _ => Ok(()),
    };
    if !part.leads {
        failure.map_or(outputs, Err)?;
        return Ok(exit_code(&record));
    }
    output::print(&report::table(&record));
    if let Some(top) = args.top {
        output::print(&report::top(&record, top as usize));
    }
    // What cannot be written does not keep the rest from it.
    let json = args.json.as_ref().map_or(Ok(()), |path| output::write_file(path, record.to_json().as_bytes()));
    let others = super::report::write(&record, args.csv.as_ref(), args.trace.as_ref());
    failure.map_or(outputs, Err)?;
    json.and(others)?;
    Ok(exit_code(&record))
}

/// Fails where nothing is computed that could be looked at.
fn check_results(flag: &'static str, chosen: &Chosen, emulated: bool) -> Result<(), InputError> {
    if emulated {
        let help = "run all ranks: `--ranks N` in place of `--emulate N`";
        return Err(InputError::NoResults { flag, who: "an emulated collective", help });
    }
    if chosen.backend.device().simulated {
        let help = "run it on a GPU, or take `--backend host`";
        return Err(InputError::NoResults { flag, who: "the simulator", help });
    }
    Ok(())
}

/// Says that the file has warnings, to whoever runs it without having checked it.
fn remind(loaded: &load::Loaded, file: &str, how: DiagnosticsArg) {
    let warnings = diagnostics::warnings(&diagnostics::lint(loaded));
    if warnings > 0 && how == DiagnosticsArg::Text {
        let them = if warnings == 1 { "it" } else { "them" };
        output::eprint(&format!("{}: `aorta check {file}` shows {them}.\n", counted(warnings, "warning")));
    }
}

fn exit_code(record: &RunRecord) -> u8 {
    let expected = record
        .variants
        .iter()
        .flat_map(|variant| &variant.expectations)
        .all(|expectation| expectation.verdict != "failed");
    let verified = record.verification.as_ref().is_none_or(|verification| verification.held);
    match record.complete {
        false => INTERRUPTED,
        true if expected && verified => DONE,
        true => NOT_HELD,
    }
}

/// Notes that a run was interrupted when it had been measured.
fn interrupted(record: &mut RunRecord, before: &str) {
    record.complete = false;
    record.warnings.push(format!("the run was interrupted before {before}"));
}

/// A run with everything that it needs to know.
struct Run<'a> {
    settings: &'a Settings,
    loaded: &'a load::Loaded,
    chosen: &'a Chosen,
    effort: Effort,
    plan: EffortPlan,
    launch: LaunchSetting,
    conditions: Conditions,
    /// A variable that makes every call wait for the device, so that nothing can be held.
    blocking: Option<&'static str>,
    /// What timing costs on the device, where it could be measured.
    timer: Option<Timer>,
    verify: bool,
    /// The world of which the device stands for a rank, and that rank.
    emulated: Option<(u32, u32)>,
    /// A profiler watches.
    profiled: bool,
    part: &'a Part,
    control: Arc<Control>,
}

impl<'a> Run<'a> {
    fn new(ready: &'a Ready, part: &'a Part) -> Self {
        let Ready { args, settings, loaded, chosen } = ready;
        let effort = match args.effort {
            None => settings.effort,
            Some(EffortArg::Sanity) => Effort::Sanity,
            Some(EffortArg::Quick) => Effort::Quick,
            Some(EffortArg::Full) => Effort::Full,
        };
        let mut plan = settings.plan(effort);
        plan.warmup = args.warmup.unwrap_or(plan.warmup);
        plan.iterations = args.iterations.unwrap_or(plan.iterations);
        let launch = match args.launch {
            None => settings.launch,
            Some(LaunchArg::Stream) => LaunchSetting::Stream,
            Some(LaunchArg::Graph) => LaunchSetting::Graph,
            Some(LaunchArg::Both) => LaunchSetting::Both,
        };
        let conditions = args.conditions.over(settings);
        let blocking = environment::blocking_calls().filter(|_| conditions.gate == GateSetting::Auto);
        // What is no measurement needs none of its timer either. A run that can go on without does.
        let timed = effort != Effort::Sanity && environment::blocking_calls().is_none();
        let timer = timed.then(|| chosen.backend.timer().ok().flatten()).flatten();
        let control = Arc::new(Control::default());
        if chosen.backend.peers().is_some() {
            control.link();
        }
        interrupt::watch(&control, part.launched);
        Run {
            settings,
            loaded,
            chosen,
            effort,
            plan,
            launch,
            conditions,
            blocking,
            timer,
            verify: args.verify,
            emulated: args.emulate.map(|world| (world, args.rank)),
            profiled: args.ranges.is_some(),
            part,
            control,
        }
    }

    fn modes(&self) -> &'static [LaunchMode] {
        match self.launch {
            LaunchSetting::Stream => &[LaunchMode::Stream],
            LaunchSetting::Graph => &[LaunchMode::Graph],
            LaunchSetting::Both => &[LaunchMode::Stream, LaunchMode::Graph],
        }
    }

    fn failed(&self, error: exec::ExecError) -> CliError {
        CliError::Exec { error, sources: self.loaded.sources.clone() }
    }

    fn exec_options(&self) -> exec::Options {
        exec::Options {
            in_flight: self.settings.in_flight,
            timeout: self.settings.timeout,
            gemm_candidates: if self.effort == Effort::Sanity { 1 } else { self.settings.gemm_candidates },
            observed_operations: self.settings.observed_operations,
            gate_depth: match (self.conditions.gate, self.blocking) {
                (GateSetting::Auto, None) => self.settings.gate_depth,
                _ => 0,
            },
            cold: self.conditions.cache == CacheSetting::Cold,
            contents: self.conditions.contents(),
        }
    }

    /// The schedule of each rank.
    fn schedules(&self) -> Vec<Schedule> {
        let options = schedule::Options { streams: self.loaded.ceiling, ..schedule::Options::default() };
        let topology = self.chosen.backend.topology();
        let place = |rank: &Rank| schedule::place(&rank.program, &rank.plan, topology, &options);
        self.loaded.ranks.iter().map(place).collect()
    }

    /// Writes `NAME.npy` for each buffer; for bf16, which NumPy does not know, `NAME.bf16.npy` holds the bits. Several
    /// ranks have a folder each, written by whichever process has run the rank.
    fn write_outputs(&self, folder: &Path, record: &mut RunRecord) -> Result<(), CliError> {
        let schedules = self.schedules();
        let ranks: Vec<exec::Rank> = (0..).zip(&self.loaded.ranks).zip(&schedules).map(one).collect();
        let backend = self.chosen.backend.as_ref();
        let buffers = measure::buffers(&ranks, backend, &self.exec_options(), &self.control);
        let Some(buffers) = buffers.map_err(|error| self.failed(error))? else {
            interrupted(record, "its outputs were computed");
            return Ok(());
        };
        output::make_folder(folder)?;
        let peers = backend.peers();
        let own = |rank: &exec::Rank| peers.as_ref().is_none_or(|peers| peers.rank() == rank.number);
        for (rank, buffers) in ranks.iter().zip(buffers).filter(|(rank, _)| own(rank)) {
            let folder = match ranks.len() {
                1 => folder.to_owned(),
                _ => folder.join(format!("rank{}", rank.number)),
            };
            output::make_folder(&folder)?;
            for (memory, bytes) in buffers {
                let (dtype, dims) = rank.program.shapes.get(rank.program.memory(memory).shape);
                let name = rank.program.names.name(rank.program.memory(memory).name);
                let mark = if dtype == DType::BF16 { ".bf16" } else { "" };
                output::write_file(&folder.join(format!("{name}{mark}.npy")), &report::npy(dtype, &dims, &bytes))?;
            }
        }
        Ok(())
    }

    /// What was measured, and what ended it too early; the error alone where nothing was.
    fn record(&self) -> Result<(RunRecord, Option<CliError>), CliError> {
        let loaded = self.loaded;
        let backend = self.chosen.backend.as_ref();
        let schedules = self.schedules();
        let exec_options = self.exec_options();
        let place = |span: SrcSpan| loaded.sources.place(span);
        let expectations = loaded
            .program
            .expectations
            .iter()
            .map(|expectation| (show::span_text(&loaded.sources, expectation.span), place(expectation.span)))
            .collect();
        let started = jiff::Timestamp::now().to_string();
        let profile = backends::known(&backend.device(), self.settings)?;
        let first = self.emulated.map_or(0, |(_, rank)| rank);
        let ranks: Vec<measure::RankRequest> = (first..)
            .zip(&loaded.ranks)
            .zip(&schedules)
            .map(|((number, rank), schedule)| measure::RankRequest {
                number,
                program: &rank.program,
                plan: &rank.plan,
                schedule,
            })
            .collect();
        let request = measure::Request {
            ranks: &ranks,
            backend,
            modes: self.modes(),
            effort: self.plan,
            observed_iterations: match self.effort {
                Effort::Sanity => self.settings.observed_iterations.min(1),
                Effort::Quick | Effort::Full => self.settings.observed_iterations,
            },
            exec: exec_options,
            control: &self.control,
            profile: profile.as_ref(),
            expectations,
            places: &place,
        };
        let measured = {
            let total = measure::iterations(&request);
            let _progress = self.part.leads.then(|| Progress::start(self.control.clone(), total));
            measure::measure(&request).map_err(|error| self.failed(error))?
        };
        let mut failure = measured.failure.clone();
        let mut record = self.assemble(&schedules[0], measured, started);
        if self.verify && record.complete {
            let ranks: Vec<_> = ranks.iter().map(|rank| (rank.number, rank.program, rank.plan)).collect();
            let question = measure::Question {
                ranks: &ranks,
                backend,
                reference: &Host,
                streams: loaded.ceiling,
                modes: &[LaunchMode::Stream, LaunchMode::Graph],
                options: exec_options,
                control: &self.control,
            };
            match measure::verify(&question) {
                Ok(Some(verification)) => {
                    record.verification = Some(verification.record);
                    record.warnings.extend(verification.warnings);
                }
                Ok(None) => interrupted(&mut record, "its outputs were compared with the CPU's"),
                Err(error) => {
                    record.complete = false;
                    record.warnings.push(format!("its outputs could not be compared with the CPU's: {error}"));
                    failure = Some(error);
                }
            }
        }
        Ok((record, failure.map(|error| self.failed(error))))
    }

    fn assemble(&self, schedule: &Schedule, measured: Measured, started: String) -> RunRecord {
        let loaded = self.loaded;
        let device = self.chosen.backend.device();
        let measurement = self.effort != Effort::Sanity;
        let mut warnings = Vec::new();
        if !measured.complete && measured.failure.is_none() {
            warnings.push("the run was interrupted: its figures are of the iterations before".to_owned());
        }
        if !measurement {
            warnings.push("one iteration without warm-up shows that the file runs; it is no measurement".to_owned());
        }
        if let Some((world, rank)) = self.emulated {
            warnings.push(format!(
                "emulated: the device stands for rank {rank} of {world}; what ranks do together takes the time of a \
                 table, and leaves nothing in memory"
            ));
        }
        if self.profiled {
            warnings.push("the run went under a profiler: its figures are no measurement".to_owned());
        }
        if let Some(variable) = self.blocking {
            warnings.push(format!("{variable} is set, so that every call waits: no iteration was held at a gate"));
        }
        for variant in &measured.variants {
            let told = self.timer.zip(variant.time.p50_ns).and_then(|(timer, time)| timer.too_short(time));
            warnings.extend(told.map(|told| format!("{}: {told}", variant.launch)));
        }
        warnings.extend(measured.warnings);
        RunRecord {
            schema: SCHEMA.to_owned(),
            aorta: env!("CARGO_PKG_VERSION").to_owned(),
            started,
            simulated: device.simulated,
            emulated: self.emulated.map(|(world, _)| world),
            measurement,
            complete: measured.complete,
            workload: self.workload(),
            settings: SettingsRecord {
                backend: self.chosen.backend.name().to_owned(),
                launch: match self.launch {
                    LaunchSetting::Stream => "stream",
                    LaunchSetting::Graph => "graph",
                    LaunchSetting::Both => "both",
                }
                .to_owned(),
                effort: self.effort.name().to_owned(),
                warmup: self.plan.warmup,
                iterations: self.plan.iterations,
                sync: schedule.sync.name().to_owned(),
                depth: schedule.depth,
                streams: loaded.ceiling,
                in_flight: self.settings.in_flight,
                ranks: loaded.ranks.len() as u32,
                gate: self.conditions.gate.name().to_owned(),
                cache: self.conditions.cache.name().to_owned(),
                data: self.conditions.data.name().to_owned(),
            },
            device: Device {
                name: device.name,
                index: device.index,
                units: device.units,
                memory_bytes: device.memory_bytes,
                facts: device.facts.into_iter().chain(self.timer.iter().flat_map(Timer::facts)).collect(),
            },
            environment: environment::describe(&self.part.facts),
            program: self.program(schedule),
            variants: measured.variants,
            verification: None,
            warnings,
        }
    }

    fn workload(&self) -> Workload {
        let parsed = &self.loaded.parsed;
        Workload {
            name: parsed.name.clone(),
            summary: parsed.ast.about.first().cloned().unwrap_or_default(),
            origin: parsed.origin.clone(),
            sha256: parsed.sha256.clone(),
            category: list::category_of(&parsed.ast),
            preset: parsed.preset.clone(),
            params: self.loaded.program.params.iter().cloned().collect(),
        }
    }

    fn program(&self, schedule: &Schedule) -> ProgramRecord {
        let program = &self.loaded.program;
        let (flops, bytes) = measure::totals(program, None);
        ProgramRecord {
            operations: program.cycle.first().map_or(0, |step| step.ops.len()),
            cycle: program.cycle.len(),
            cycle_operations: program.cycle.iter().map(|step| step.ops.len()).sum(),
            flops,
            bytes: bytes as u64,
            streams: program.streams.len(),
            lanes: schedule
                .lanes
                .iter()
                .map(|lane| LaneRecord {
                    name: lane.name.clone(),
                    streams: lane.streams.iter().map(|stream| program.streams[stream.index()].name.clone()).collect(),
                    priority: lane.priority.name(),
                    units: lane.units.map(crate::model::Units::text),
                    queue: lane.queue,
                })
                .collect(),
            waits: schedule.waits(),
            events: schedule.events,
            memory: MemoryRecord {
                device: Bytes(schedule.bytes(Space::Device)),
                pinned: Bytes(schedule.bytes(Space::Pinned)),
                host: Bytes(schedule.bytes(Space::Host)),
                scratch: Bytes(schedule.memory.scratch * u64::from(schedule.memory.slots)),
            },
        }
    }
}

/// A rank with its number and schedule.
fn one<'a>(((number, rank), schedule): ((u32, &'a Rank), &'a Schedule)) -> exec::Rank<'a> {
    exec::Rank { number, program: &rank.program, schedule }
}
