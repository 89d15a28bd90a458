//! Builds the record of a run from its program and its measurements.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::base::hex;
use crate::compile::Compiled;
use crate::config::{Effort, EffortPlan, Settings as RunSettings};
use crate::exec::Backend;
use crate::model::{self, Program};
use crate::ops::{KernelSource, UserKernel, user_kernel};
use crate::plan::RankPlan;
use crate::schedule::{Schedule, Topology};

use crate::measure::metrics::work::totals;
use crate::measure::record::{
    DeviceRecord, FusionRecord, LaneRecord, MemoryRecord, ProgramRecord, RankWork, RunRecord, SCHEMA, SettingsRecord,
    Workload, lack_samples,
};
use crate::measure::request::Measured;

impl RunRecord {
    /// The record of a run of `compiled` with these settings. `schedules` has the schedule of each rank.
    ///
    /// The start time, the environment and [`ProgramRecord::plan`] are left empty for the caller to set.
    pub fn new(
        compiled: &Compiled,
        schedules: &[Schedule],
        backend: &dyn Backend,
        settings: &RunSettings,
        measured: Measured,
    ) -> RunRecord {
        let device = backend.device();
        let effort = settings.plan(settings.effort);
        let schedule = &schedules[0];
        let no_measurement = no_measurement(settings);
        let complete = measured.is_complete();
        let without_figures = lack_samples(&measured.variants);
        let interrupted = |how| match without_figures {
            true => format!("the run was {how}, before its first measured iteration: it has no figures"),
            false => format!("the run was {how}: its figures cover the iterations before"),
        };
        let mut warnings: Vec<String> = measured.interruption.map(interrupted).into_iter().collect();
        warnings.extend(no_measurement.map(str::to_owned));
        warnings.extend(measured.warnings);
        RunRecord {
            schema: SCHEMA.to_owned(),
            aorta: env!("CARGO_PKG_VERSION").to_owned(),
            simulated: device.simulated,
            measurement: no_measurement.is_none(),
            complete,
            workload: Workload::of(compiled),
            settings: SettingsRecord {
                backend: backend.name().to_owned(),
                launch: settings.launch.name().to_owned(),
                effort: settings.effort.name().to_owned(),
                warmup: effort.warmup,
                iterations: effort.iterations,
                sync: schedule.sync.name().to_owned(),
                depth: schedule.depth,
                streams: compiled.max_streams,
                in_flight: settings.in_flight,
                ranks: compiled.ranks.len() as u32,
                gate: settings.gate.name().to_owned(),
                cache: settings.cache.name().to_owned(),
                data: settings.data.name().to_owned(),
            },
            device: DeviceRecord {
                name: device.name,
                index: device.index,
                units: device.units,
                memory_bytes: device.memory_bytes,
                facts: device.facts.into_iter().collect(),
            },
            program: ProgramRecord::new(&compiled.ranks, schedule, backend.topology()),
            fusion: FusionRecord::of_rank(compiled, 0),
            variants: measured.variants,
            warnings,
            ..RunRecord::default()
        }
    }
}

/// Reason why a run with these settings is no measurement; `None` if it is one.
fn no_measurement(settings: &RunSettings) -> Option<&'static str> {
    let EffortPlan { warmup, iterations } = settings.plan(settings.effort);
    match (warmup, iterations, settings.effort) {
        (0, 1, _) => Some("one iteration without warm-up only shows that the file runs; it is not a measurement"),
        (_, 1, _) => Some("one iteration does not show how times vary; it is not a measurement"),
        (_, _, Effort::Sanity) => Some("`--effort sanity` only shows that the file runs; it is not a measurement"),
        _ => None,
    }
}

/// The name of a kernel, and the SHA-256 of its code.
fn named_code(kernel: &UserKernel) -> (String, String) {
    let KernelSource { text, code, .. } = &*kernel.code.source;
    let digest = Sha256::new().chain_update(text).chain_update(code.as_deref().unwrap_or_default());
    (kernel.name.to_string(), hex(digest.finalize()))
}

impl RankWork {
    /// Work of each rank in a world of several; empty for one rank.
    pub fn of_world(ranks: &[RankPlan]) -> Vec<RankWork> {
        let several = if ranks.len() > 1 { ranks } else { &[] };
        let slots = model::slots(ranks.iter().map(|rank| &*rank.program));
        let mut works: Vec<RankWork> = Vec::new();
        for (index, rank) in several.iter().enumerate() {
            // Most ranks share their program with the one before.
            let shares = index > 0 && Arc::ptr_eq(&rank.program, &ranks[index - 1].program);
            works.push(if shares { works[index - 1] } else { RankWork::of(&rank.program, slots) });
        }
        works
    }

    /// Work of a rank's program, whose world repeats after this number of slots.
    fn of(program: &Program, slots: usize) -> RankWork {
        let (flops, bytes) = totals(program);
        let operations_of_cycle: usize = program.cycle.iter().map(|step| step.ops.len()).sum();
        RankWork {
            operations: program.cycle.first().map_or(0, |step| step.ops.len()),
            cycle_operations: operations_of_cycle * slots / program.cycle.len().max(1),
            flops,
            bytes: bytes as u64,
        }
    }
}

impl ProgramRecord {
    /// The record of the first rank's program and schedule, without the hash of the plan.
    fn new(ranks: &[RankPlan], schedule: &Schedule, topology: Topology) -> ProgramRecord {
        let program = &ranks[0].program;
        let slots = model::slots(ranks.iter().map(|rank| &*rank.program));
        let RankWork { operations, cycle_operations, flops, bytes } = RankWork::of(program, slots);
        ProgramRecord {
            operations,
            cycle: slots,
            cycle_operations,
            flops,
            bytes,
            ranks: RankWork::of_world(ranks),
            streams: program.streams.len(),
            lanes: schedule.lanes.iter().map(|lane| LaneRecord::of(lane, program, topology)).collect(),
            waits: schedule.waits(),
            events: schedule.events,
            memory: MemoryRecord::of(program, schedule),
            kernels: program.specs.iter().filter_map(user_kernel).map(named_code).collect(),
            ..ProgramRecord::default()
        }
    }
}
