//! Executes a prepared run: measures it, compares it with the CPU, and writes its buffers.

use std::path::Path;
use std::sync::Arc;

use crate::base::{DType, SrcSpan, stage};
use crate::config::{GateSetting, Settings};
use crate::exec::{self, Control, LaunchMode};
use crate::measure::{self, Measured, Request, RunRecord};
use crate::schedule::Schedule;
use crate::{backend, report};

use super::interrupt::without_results;
use super::prepare::PreparedRun;
use super::results::ResultOutputs;
use super::{ExecArgs, ProcessRole};
use crate::cli::backends::{self, OpenedBackend};
use crate::cli::error::CliError;
use crate::cli::inputs::load;
use crate::cli::io::output;
use crate::cli::io::progress::TransientBar;
use crate::cli::{INTERRUPTED, environment};

/// A run with everything that it needs.
pub(super) struct RunContext<'a> {
    pub(super) settings: &'a Settings,
    pub(super) args: &'a ExecArgs,
    pub(super) loaded: &'a load::Loaded,
    pub(super) chosen: &'a OpenedBackend,
    /// The environment variable that makes every driver call synchronous, so that nothing can be gated; `None` if none
    /// does.
    pub(super) blocking: Option<&'static str>,
    /// The emulated world's size and the rank in it; `None` without `--emulate`.
    pub(super) emulated: Option<(u32, u32)>,
    pub(super) role: &'a ProcessRole,
    pub(super) control: Arc<Control>,
    results: &'a ResultOutputs,
}

impl<'a> RunContext<'a> {
    pub(super) fn new(ready: &'a PreparedRun, role: &'a ProcessRole, results: &'a Arc<ResultOutputs>) -> Self {
        let PreparedRun { args, settings, loaded, chosen, .. } = ready;
        let blocking = environment::blocking_calls().filter(|_| settings.gate == GateSetting::Auto);
        let control = role.control.clone();
        if chosen.backend.processes().is_some() {
            control.link();
        }
        let (kept, interrupted) = (results.clone(), control.clone());
        role.interrupts.give_up_by(move || {
            let how = interrupted.interruption();
            let warning = format!("the run was {how}: its figures come from the completed phases");
            if kept.report_partial(&warning, &without_results(&how)) {
                backend::leave(INTERRUPTED);
            }
        });
        RunContext {
            settings,
            args,
            loaded,
            chosen,
            blocking,
            emulated: args.emulate.map(|world| (world, args.rank)),
            role,
            control,
            results,
        }
    }

    pub(super) fn failed(&self, error: exec::ExecError) -> CliError {
        CliError::Exec { error, sources: self.loaded.compiled.sources.clone() }
    }

    /// Settings of the sessions of this run.
    pub(super) fn exec_options(&self) -> exec::SessionOptions {
        let options = exec::SessionOptions::of(self.settings);
        exec::SessionOptions { gate_depth: if self.blocking.is_some() { 0 } else { options.gate_depth }, ..options }
    }

    /// Returns the same run with another workload.
    pub(super) fn with(self, loaded: &'a load::Loaded) -> RunContext<'a> {
        RunContext { loaded, ..self }
    }

    /// The run without merged operations, and the reason for it; `None` unless one of their kernels does not compile.
    pub(super) fn unfused(&self, error: &CliError) -> Option<(load::Loaded, String)> {
        let CliError::Exec { error: error @ exec::ExecError::Kernel { at, .. }, sources } = error else { return None };
        let load::Loaded { compiled, world: _, origin, check, files } = self.loaded;
        if !compiled.is_fused() {
            return None;
        }
        let span = SrcSpan::new(at.offset(), at.offset() + at.len());
        let why = format!("{error}, at {}", sources.place(span));
        let loaded = load::Loaded {
            compiled: compiled.unfused(why.clone()),
            // Other ranks of an emulated world are known with merged operations only.
            world: Vec::new(),
            origin: origin.clone(),
            check: check.clone(),
            files: files.clone(),
        };
        Some((loaded, why))
    }

    /// The schedule of each rank.
    pub(super) fn schedules(&self) -> Vec<Schedule> {
        self.loaded.compiled.schedules(self.chosen.backend.topology())
    }

    /// Writes `NAME.npy` for each buffer. NumPy has no bf16, so `NAME.bf16.npy` holds its bits. Each of several ranks
    /// has a folder, written by the process that ran it.
    pub(super) fn write_outputs(&self, folder: &Path, record: &mut RunRecord) -> Result<(), CliError> {
        let schedules = self.schedules();
        let ranks = exec::RankSchedule::all(0, &self.loaded.compiled.ranks, &schedules);
        let backend = self.chosen.backend.as_ref();
        let stage = stage::enter("computing the outputs");
        let buffers = measure::buffers(&ranks, backend, &self.exec_options(), &self.control);
        let Some(buffers) = buffers.map_err(|error| self.failed(error))? else {
            self.note_interruption(record, "its outputs were not written");
            return Ok(());
        };
        drop(stage);
        output::make_folder(folder)?;
        let processes = backend.processes();
        let is_in_this_process =
            |rank: &exec::RankSchedule| processes.as_ref().is_none_or(|processes| processes.rank() == rank.number);
        for (rank, buffers) in ranks.iter().zip(buffers).filter(|(rank, _)| is_in_this_process(rank)) {
            let folder = match ranks.len() {
                1 => folder.to_owned(),
                _ => folder.join(format!("rank{}", rank.number)),
            };
            output::make_folder(&folder)?;
            for (memory, bytes) in buffers {
                let (dtype, dims) = rank.program.shapes.get(rank.program.memory(memory).shape);
                let name = rank.program.names.name(rank.program.memory(memory).name);
                let mark = match dtype {
                    DType::BF16 | DType::E4M3 | DType::E5M2 => format!(".{dtype}"),
                    _ => String::new(),
                };
                output::write_file(&folder.join(format!("{name}{mark}.npy")), &report::npy(dtype, &dims, &bytes))?;
            }
        }
        Ok(())
    }

    /// Marks the record of an interrupted run as incomplete, with a warning that says what is missing.
    fn note_interruption(&self, record: &mut RunRecord, missing: &str) {
        record.complete = false;
        record.warnings.push(format!("the run was {}: {missing}", self.control.interruption()));
    }

    /// Prints a note if the CPU's reference will take long.
    fn announce_reference(&self) {
        let flops: f64 = self.loaded.compiled.ranks.iter().map(|rank| measure::totals(&rank.program).0).sum();
        if self.role.leads && flops > LONG_REFERENCE {
            let preset = if self.loaded.compiled.preset.is_none() {
                " A smaller preset takes less: `aorta show FILE`."
            } else {
                ""
            };
            output::eprint(&format!(
                "verifying: the CPU computes the reference, {:.1} TFLOP an iteration; that may take minutes.{preset}\n",
                flops / 1e12
            ));
        }
    }

    /// Adds the hardware counters of the operations with a name to the record, with a warning if there are none. Returns the
    /// error of a run that failed.
    fn count(&self, request: &Request, name: &str, record: &mut RunRecord) -> Option<exec::ExecError> {
        let _stage = stage::enter("reading hardware counters");
        let chosen = measure::counters::chosen(request.ranks[0].program, name);
        match measure::counters::count(request, &chosen) {
            Ok((counters, why)) => {
                let is_complete = why.is_some() || counters.len() == chosen.len();
                record.counters = counters;
                record.warnings.extend(why.map(|why| format!("no hardware counters of `{name}`: {why}")));
                if !is_complete {
                    self.note_interruption(record, "not all hardware counters were read");
                }
                None
            }
            Err(error) => {
                record.complete = false;
                record.warnings.push(format!("the hardware counters of `{name}` could not be read: {error}"));
                Some(error)
            }
        }
    }

    /// The record, and the error that ended the measurement early; only the error if nothing was measured.
    pub(super) fn record(&self) -> Result<(RunRecord, Option<CliError>), CliError> {
        let loaded = self.loaded;
        let backend = self.chosen.backend.as_ref();
        let schedules = self.schedules();
        let exec_options = self.exec_options();
        let started = jiff::Timestamp::now().to_string();
        let profile = backends::known(&backend.device(), self.settings)?;
        // Assembled once, so that the device does not idle between two phases while everything around the figures is
        // collected again.
        let nothing = Measured { variants: Vec::new(), warnings: Vec::new(), interruption: None, failure: None };
        let facts = self.plan_facts(&schedules);
        let around = self.assemble(&schedules, facts.clone(), nothing, started.clone(), None);
        let keep = |measured: Measured| {
            let mut record = RunRecord { complete: false, variants: measured.variants, ..around.clone() };
            record.warnings.extend(measured.warnings);
            self.results.keep(record);
        };
        let first = self.emulated.map_or(0, |(_, rank)| rank);
        let ranks = exec::RankSchedule::all(first, &loaded.compiled.ranks, &schedules);
        let request = Request {
            plans: &loaded.compiled.ranks,
            exec: exec_options,
            profile: profile.as_ref(),
            keep: &keep,
            ..Request::new(&ranks, backend, &loaded.compiled.sources, self.settings, &self.control)
        };
        let measured = {
            let total = measure::iterations(&request);
            let _progress = self.role.leads.then(|| TransientBar::start(self.control.clone(), total));
            measure::measure(&request).map_err(|error| self.failed(error))?
        };
        let mut failure = measured.failure.clone();
        let timer = if failure.is_none() { self.timer() } else { None };
        let mut record = self.assemble(&schedules, facts, measured, started, timer);
        if record.complete {
            self.results.keep(record.clone());
        }
        if let Some(name) = self.args.counters.as_deref().filter(|_| record.complete) {
            failure = failure.or(self.count(&request, name, &mut record));
        }
        if self.args.verify && record.complete {
            self.announce_reference();
            let ranks: Vec<_> = ranks.iter().map(|rank| (rank.number, rank.program, rank.plan)).collect();
            let verify_request = measure::VerifyRequest {
                ranks: &ranks,
                backend,
                streams: loaded.compiled.max_streams,
                modes: &[LaunchMode::Stream, LaunchMode::Graph],
                options: exec_options,
                control: &self.control,
            };
            match measure::verify(&verify_request) {
                Ok(Some(verification)) => {
                    record.verification = Some(verification.record);
                    record.warnings.extend(verification.warnings);
                }
                Ok(None) => self.note_interruption(&mut record, "its outputs were not compared with the CPU's"),
                Err(error) => {
                    record.complete = false;
                    record.warnings.push(format!("its outputs could not be compared with the CPU's: {error}"));
                    failure = Some(error);
                }
            }
        }
        Ok((record, failure.map(|error| self.failed(error))))
    }
}

/// Arithmetic of an iteration, in FLOP, above which the CPU's reference takes seconds.
const LONG_REFERENCE: f64 = 1e11;
