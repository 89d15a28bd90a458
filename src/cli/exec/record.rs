//! The record of a run, from what was measured and what is known around it.

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

/// The hash of a text that is written to it.
#[derive(Default)]
struct Hashing(Sha256);

impl fmt::Write for Hashing {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text);
        Ok(())
    }
}

impl Run<'_> {
    /// The record of what was measured; `schedules` has that of each rank, and `timer` is what timing costs on the device,
    /// where that is known.
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
            notes.push(format!("{variable} is set, so that every call waits: no iteration was held at a gate"));
        }
        for variant in &measured.variants {
            let told = timer.zip(variant.time.p50_ns).and_then(|(timer, time)| timer.too_short(time));
            notes.extend(told.map(|told| format!("{}: {told}", variant.launch)));
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
            environment: environment::describe(&self.part.facts, self.variables),
            program: ProgramRecord { plan: self.plan(schedules), ..record.program },
            ..record
        }
    }

    /// What timing costs on the device, where that can be measured. Asked behind the runs and not before: on an H200 it
    /// leaves the process in a state in which each kernel begins a sixth of a microsecond later.
    pub(super) fn timer(&self) -> Option<Timer> {
        // What is no measurement needs none of its timer either. A run that can go on without does.
        let timed = self.settings.effort != Effort::Sanity && environment::blocking_calls().is_none();
        let asked = timed.then(|| self.chosen.backend.timer()).transpose();
        let told = asked.unwrap_or_else(|error| {
            output::eprint(&format!(
                "What timing costs could not be measured, and is not part of the record: {error}\n"
            ));
            None
        });
        told.flatten()
    }

    /// The hash of what all ranks run. `None` for an interrupted run of very many operations: whoever has pressed Ctrl-C
    /// does not wait for it, and its figures are compared with no others.
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
