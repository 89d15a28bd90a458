//! Assembles the record of a run from the measurements and the environment.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::base::hex;
use crate::config::Effort;
use crate::exec::Timer;
use crate::measure::record::{Device, ProgramRecord, RunRecord};
use crate::measure::{self, Measured};
use crate::report::dump;
use crate::schedule::Schedule;

use super::measuring::Run;
use crate::cli::{environment, output};

/// Hashes all text written to it.
#[derive(Default)]
struct Hashing(Sha256);

impl fmt::Write for Hashing {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text);
        Ok(())
    }
}

impl Run<'_> {
    /// Assembles the record. `schedules` has one entry per rank; `timer` is the timing overhead of the device, if
    /// known.
    pub(super) fn assemble(
        &self,
        schedules: &[Schedule],
        mut measured: Measured,
        started: String,
        timer: Option<Timer>,
    ) -> RunRecord {
        let mut notes = Vec::new();
        if let Some((world, rank)) = self.emulated {
            notes.push(format!(
                "emulated: the device stands for rank {rank} of {world}; what ranks do together takes the time of a \
                 table, and leaves nothing in memory"
            ));
        }
        if self.profiled {
            notes.push("the run went under a profiler: its figures are no measurement".to_owned());
        }
        if let Some(variable) = self.blocking {
            notes.push(format!("{variable} is set, so every driver call is synchronous: no iteration was gated"));
        }
        for variant in &measured.variants {
            let note = timer.zip(variant.time.p50_ns).and_then(|(timer, time)| timer.too_short(time));
            notes.extend(note.map(|note| format!("{}: {note}", variant.launch)));
        }
        measured.warnings.splice(0..0, notes);
        let compiled = &self.loaded.compiled;
        let record = RunRecord::new(compiled, schedules, self.chosen.backend.as_ref(), self.settings, measured);
        let facts = record.device.facts.into_iter().chain(timer.iter().flat_map(Timer::facts)).collect();
        RunRecord {
            started,
            emulated: self.emulated.map(|(world, _)| world),
            workload: self.loaded.workload(),
            device: Device { facts, ..record.device },
            environment: environment::describe(&self.role.facts, self.variables),
            program: ProgramRecord { plan: self.plan(schedules), ..record.program },
            ..record
        }
    }

    /// Measures the timing overhead of the device; `None` if it cannot be measured. Called after the runs: on an H200
    /// it leaves the process in a state in which each kernel starts a sixth of a microsecond later.
    pub(super) fn timer(&self) -> Option<Timer> {
        // Without measurements the timer does not matter either. If it fails, the run continues without it.
        let timed = self.settings.effort != Effort::Sanity && environment::blocking_calls().is_none();
        let asked = timed.then(|| self.chosen.backend.timer()).transpose();
        let timer = asked.unwrap_or_else(|error| {
            output::eprint(&format!(
                "What timing costs could not be measured, and is not part of the record: {error}\n"
            ));
            None
        });
        timer.flatten()
    }

    /// The hash of all ranks' plans. `None` for an interrupted run with very many operations: the user should not wait
    /// for it, and its figures are not compared with others.
    fn plan(&self, schedules: &[Schedule]) -> Option<String> {
        let operations = self.loaded.compiled.ranks.iter().flat_map(|rank| &rank.program.cycle);
        if self.control.stopped() && operations.map(|step| step.ops.len()).sum::<usize>() > measure::STOPPED_OPERATIONS
        {
            return None;
        }
        let mut hashing = Hashing::default();
        for (rank, schedule) in self.loaded.compiled.ranks.iter().zip(schedules) {
            dump::work(&rank.program, schedule, &mut hashing).expect("hashing does not fail");
        }
        Some(hex(hashing.0.finalize()))
    }
}
