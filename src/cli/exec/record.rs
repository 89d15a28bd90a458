//! The record of a run, from what was measured and what is known around it.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::base::{Bytes, Space};
use crate::config::{Effort, LaunchSetting};
use crate::exec::Timer;
use crate::measure::record::{
    Device, LaneRecord, MemoryRecord, ProgramRecord, RunRecord, SCHEMA, Settings as SettingsRecord,
};
use crate::measure::{self, Measured};
use crate::model;
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
        measured: Measured,
        started: String,
        timer: Option<Timer>,
    ) -> RunRecord {
        let schedule = &schedules[0];
        let loaded = self.loaded;
        let device = self.chosen.backend.device();
        let no_measurement = self.no_measurement();
        let mut warnings = Vec::new();
        if !measured.complete && measured.failure.is_none() {
            warnings.push("the run was interrupted: its figures are of the iterations before".to_owned());
        }
        warnings.extend(no_measurement.map(str::to_owned));
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
            let told = timer.zip(variant.time.p50_ns).and_then(|(timer, time)| timer.too_short(time));
            warnings.extend(told.map(|told| format!("{}: {told}", variant.launch)));
        }
        warnings.extend(measured.warnings);
        RunRecord {
            schema: SCHEMA.to_owned(),
            aorta: env!("CARGO_PKG_VERSION").to_owned(),
            started,
            simulated: device.simulated,
            emulated: self.emulated.map(|(world, _)| world),
            measurement: no_measurement.is_none(),
            complete: measured.complete,
            workload: self.loaded.workload(),
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
                facts: device.facts.into_iter().chain(timer.iter().flat_map(Timer::facts)).collect(),
            },
            environment: environment::describe(&self.part.facts, self.variables),
            program: self.program(schedules),
            variants: measured.variants,
            verification: None,
            expected: Vec::new(),
            warnings,
        }
    }

    /// Why the run is no measurement, whatever it gives.
    fn no_measurement(&self) -> Option<&'static str> {
        match (self.plan.warmup, self.plan.iterations, self.effort) {
            (0, 1, _) => Some("one iteration without warm-up shows that the file runs; it is no measurement"),
            (_, 1, _) => Some("one iteration shows nothing of how times vary; it is no measurement"),
            (_, _, Effort::Sanity) => Some("`--effort sanity` shows that the file runs; it is no measurement"),
            _ => None,
        }
    }

    /// What timing costs on the device, where that can be measured. Asked behind the runs and not before: on an H200 it
    /// leaves the process in a state in which each kernel begins a sixth of a microsecond later.
    pub(super) fn timer(&self) -> Option<Timer> {
        // What is no measurement needs none of its timer either. A run that can go on without does.
        let timed = self.effort != Effort::Sanity && environment::blocking_calls().is_none();
        let asked = timed.then(|| self.chosen.backend.timer()).transpose();
        let told = asked.unwrap_or_else(|error| {
            output::eprint(&format!(
                "What timing costs could not be measured, and is not part of the record: {error}\n"
            ));
            None
        });
        told.flatten()
    }

    /// The hash of what all ranks run.
    fn plan(&self, schedules: &[Schedule]) -> String {
        let mut hashing = Hashing::default();
        for (rank, schedule) in self.loaded.ranks.iter().zip(schedules) {
            dump::work(&rank.program, schedule, &mut hashing).expect("hashing does not fail");
        }
        hashing.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn program(&self, schedules: &[Schedule]) -> ProgramRecord {
        let (program, schedule) = (&self.loaded.program, &schedules[0]);
        let (flops, bytes) = measure::totals(program);
        let slots = model::slots(self.loaded.ranks.iter().map(|rank| &*rank.program));
        let own: usize = program.cycle.iter().map(|step| step.ops.len()).sum();
        ProgramRecord {
            operations: program.cycle.first().map_or(0, |step| step.ops.len()),
            cycle: slots,
            cycle_operations: own * slots / program.cycle.len().max(1),
            flops,
            bytes: bytes as u64,
            plan: Some(self.plan(schedules)),
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
                scratch: Bytes(schedule.memory.scratch * u64::from(schedule.memory.copies)),
            },
        }
    }
}
