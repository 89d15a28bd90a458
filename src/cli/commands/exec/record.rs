//! Assembles the record of a run from the measurements and the environment.

use crate::config::Effort;
use crate::exec::Timer;
use crate::measure::record::{AdviceRecord, DeviceRecord, ProgramRecord, RunRecord, launched};
use crate::measure::{self, Measured};
use crate::report::dump;
use crate::schedule::{self, Schedule};

use super::measuring::RunContext;
use super::{limits, source};
use crate::cli::io::output;
use crate::cli::{backends, environment};

/// Facts of a record that depend on the plans and schedules alone. Finding them can take seconds, so a run finds them once.
#[derive(Clone)]
pub(super) struct PlanFacts {
    /// Hash of all ranks' plans; `None` if it was left out.
    plan: Option<String>,
    advice: Vec<AdviceRecord>,
}

impl RunContext<'_> {
    /// The facts that depend on the plans and schedules alone.
    pub(super) fn plan_facts(&self, schedules: &[Schedule]) -> PlanFacts {
        PlanFacts { plan: self.plan(schedules), advice: self.advice(schedules) }
    }

    /// Assembles the record. `schedules` has one entry per rank; `timer` is the timing overhead of the device, if
    /// known.
    pub(super) fn assemble(
        &self,
        schedules: &[Schedule],
        PlanFacts { plan, advice }: PlanFacts,
        mut measured: Measured,
        started: String,
        timer: Option<Timer>,
    ) -> RunRecord {
        let mut notes = Vec::new();
        let program = &self.loaded.compiled.ranks[0].program;
        if let Some((world, rank)) = self.emulated {
            let waiting = match program.by_rank {
                true => ". The time in which it would wait for others, such as the bubble of a pipeline, is missing",
                false => "",
            };
            notes.push(format!(
                "emulated: the device runs rank {rank} of {world}; operations with other ranks take tabulated times \
                 and leave no results in memory{waiting}"
            ));
        }
        let alike = self.loaded.compiled.ranks.iter().all(|rank| rank.program.cycle.len() == 1);
        if let Some(slots) = self.args.workload.cycle.filter(|slots| *slots > 1 && alike) {
            notes.push(format!(
                "`--cycle {slots}` has no effect: all iterations are alike, since none uses `iteration` or a `draw`"
            ));
        }
        if self.args.ranges.is_some() {
            notes.push("the run was profiled: its figures are not a measurement".to_owned());
        }
        if let Some(variable) = self.blocking {
            notes.push(format!("{variable} is set, so every driver call is synchronous: no iteration was gated"));
        }
        for variant in &measured.variants {
            let note = timer.zip(variant.time.p50_ns).and_then(|(timer, time)| timer.too_short(time));
            notes.extend(note.map(|note| format!("{}: {note}", launched(&variant.launch))));
        }
        measured.warnings.splice(0..0, notes);
        let compiled = &self.loaded.compiled;
        let record = RunRecord::new(compiled, schedules, self.chosen.backend.as_ref(), self.settings, measured);
        let facts = record.device.facts.into_iter().chain(timer.iter().flat_map(Timer::facts)).collect();
        let ranks = if self.emulated.is_some() { self.loaded.world.clone() } else { record.program.ranks };
        let record = RunRecord {
            started,
            emulated: self.emulated.map(|(world, _)| world),
            workload: self.loaded.workload(),
            device: DeviceRecord { facts, ..record.device },
            environment: environment::describe(&self.role.facts, &self.args.env),
            program: ProgramRecord { plan, advice, ranks, ..record.program },
            source: self.settings.record_text.then(|| source::of(self.args, self.settings, self.loaded)),
            ..record
        };
        limits::judged(record, self.args.scenario.as_deref())
    }

    /// Measures the timing overhead of the device; `None` if it cannot be measured. Called after the runs: on an H200
    /// it leaves the process in a state in which each kernel starts a sixth of a microsecond later.
    pub(super) fn timer(&self) -> Option<Timer> {
        // Without measurements the timer does not matter either. If it fails, the run continues without it.
        let timed = self.settings.effort != Effort::Sanity && environment::blocking_calls().is_none();
        let asked = timed.then(|| self.chosen.backend.timer(self.settings.timeout)).transpose();
        let timer = asked.unwrap_or_else(|error| {
            output::eprint(&format!(
                "The overhead of timing could not be measured, and is not part of the record: {error}\n"
            ));
            None
        });
        timer.flatten()
    }

    /// Advice about the first rank's plan; none if the device has no profile, or for an interrupted run.
    fn advice(&self, schedules: &[Schedule]) -> Vec<AdviceRecord> {
        let compiled = &self.loaded.compiled;
        let profile = backends::known(&self.chosen.backend.device(), self.settings).ok().flatten();
        let Some(profile) = profile.filter(|_| !self.control.stopped()) else { return Vec::new() };
        let rank = &compiled.ranks[0];
        let advice = schedule::advise(&rank.program, &rank.plan, &schedules[0], &profile);
        advice.into_iter().map(|advice| AdviceRecord::of(advice, &|span| compiled.sources.place(span))).collect()
    }

    /// The hash of all ranks' plans. `None` for an interrupted run with very many operations: the user should not wait
    /// for it, and its figures are not compared with others.
    fn plan(&self, schedules: &[Schedule]) -> Option<String> {
        let operations = self.loaded.compiled.ranks.iter().flat_map(|rank| &rank.program.cycle);
        if self.control.stopped() && operations.map(|step| step.ops.len()).sum::<usize>() > measure::STOPPED_OPERATIONS
        {
            return None;
        }
        Some(dump::plan_hash(&self.loaded.compiled.ranks, schedules))
    }
}
