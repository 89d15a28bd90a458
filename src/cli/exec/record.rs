//! The record of a run, from what was measured and what is known around it.

use crate::base::{Bytes, Space};
use crate::config::{Effort, LaunchSetting};
use crate::exec::Timer;
use crate::measure::record::{
    Device, LaneRecord, MemoryRecord, ProgramRecord, RunRecord, SCHEMA, Settings as SettingsRecord,
};
use crate::measure::{self, Measured};
use crate::model;
use crate::schedule::Schedule;

use super::measuring::Run;
use crate::cli::{environment, output};

impl Run<'_> {
    pub(super) fn assemble(&self, schedule: &Schedule, measured: Measured, started: String) -> RunRecord {
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
        let timer = if measured.failure.is_none() { self.timer() } else { None };
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
            measurement,
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
            environment: environment::describe(&self.part.facts),
            program: self.program(schedule),
            variants: measured.variants,
            verification: None,
            expected: Vec::new(),
            warnings,
        }
    }

    /// What timing costs on the device, where that can be measured. Asked behind the runs and not before: on an H200 it
    /// leaves the process in a state in which each kernel begins a sixth of a microsecond later.
    fn timer(&self) -> Option<Timer> {
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

    fn program(&self, schedule: &Schedule) -> ProgramRecord {
        let program = &self.loaded.program;
        let (flops, bytes) = measure::totals(program);
        let slots = model::slots(self.loaded.ranks.iter().map(|rank| &*rank.program));
        let own: usize = program.cycle.iter().map(|step| step.ops.len()).sum();
        ProgramRecord {
            operations: program.cycle.first().map_or(0, |step| step.ops.len()),
            cycle: slots,
            cycle_operations: own * slots / program.cycle.len().max(1),
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
