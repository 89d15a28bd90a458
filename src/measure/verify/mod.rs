//! Verification of a backend. First, each operation is checked against its reference, given the device's own inputs.
//! Then the whole run, with overlapping iterations as in a measurement, must give the same bits as streams and as a
//! graph.

mod collectives;
mod compare;
mod memory;
mod order;
pub mod record;
mod walk;

use crate::base::{MemoryId, stage};
use crate::exec::{self, Backend, Control, ExecError, LaunchMode, RankSchedule};
use crate::model::{MemoryKind, Program};
use crate::plan::Plan;
use crate::schedule::{self, Schedule};

pub use compare::{OutputDifference, compare};
use record::{OutputVerification, VariantVerification, VerificationRecord};
use walk::{Findings, Verifier, WalkOutcome};

/// Error that is recorded for a difference which is not a finite number.
const BEYOND: f64 = 1e30;

/// Result of a verification.
#[derive(Debug)]
pub struct Verification {
    pub record: VerificationRecord,
    pub warnings: Vec<String>,
}

pub struct VerifyRequest<'a> {
    /// The ranks of the world: the number, the program and the plan of each.
    pub ranks: &'a [(u32, &'a Program, &'a Plan)],
    pub backend: &'a dyn Backend,
    /// Maximum number of real streams; `None` for no limit.
    pub streams: Option<u32>,
    pub modes: &'a [LaunchMode],
    pub options: exec::SessionOptions,
    pub control: &'a Control,
}

/// Verifies each operation, and the contents of memory after several iterations; `None` if the run was stopped.
pub fn verify(request: &VerifyRequest) -> Result<Option<Verification>, ExecError> {
    let VerifyRequest { backend, streams, modes, ref options, control, .. } = *request;
    let _stage = stage::enter("verifying");
    // Scratch memory is not shared, so that intermediate results are still there after an iteration.
    let apart = schedule::ScheduleOptions { streams, share_scratch: false };
    let place =
        |(_, program, plan): &(u32, &Program, &Plan)| schedule::place(program, plan, backend.topology(), &apart);
    let schedules: Vec<Schedule> = request.ranks.iter().map(place).collect();
    let rank = |(&(number, program, plan), schedule)| RankSchedule { number, program, plan, schedule };
    let ranks: &[RankSchedule] = &request.ranks.iter().zip(&schedules).map(rank).collect::<Vec<_>>();
    // A full period and the first iteration again, which also covers data that an iteration leaves for the next.
    let iterations = schedules.iter().map(|schedule| schedule.period.len()).max().unwrap_or(0) as u64 + 1;

    let mut walk = Verifier::open(ranks, backend, options)?;
    let mut warnings = Vec::new();
    let mut variants = Vec::new();
    if walk.run(LaunchMode::Stream, iterations, control)? == WalkOutcome::Stopped {
        return Ok(None);
    }
    let outputs = outputs(ranks);
    for &mode in modes {
        if mode == LaunchMode::Graph
            && let Err(error) = walk.ranks().capture(control)
        {
            warnings.push(format!("the graph could not be verified: {error}"));
            continue;
        }
        let Some(mut compared) = repeated(&mut walk, ranks, &outputs, mode, iterations, control)? else {
            return Ok(None);
        };
        // A device may compute differently in this mode, or not deterministically. Then it is compared with itself in
        // this mode.
        if compared.iter().any(|output| output.error > 0.0) {
            if walk.run(mode, iterations, control)? == WalkOutcome::Stopped {
                return Ok(None);
            }
            let Some(anew) = repeated(&mut walk, ranks, &outputs, mode, iterations, control)? else { return Ok(None) };
            compared = anew;
        }
        if compared.is_empty() {
            warnings.push(format!("{}: nothing was verified: there was nothing to compare", mode.phrase()));
            continue;
        }
        let launch = mode.name().to_owned();
        variants.push(VariantVerification { launch, outputs: compared, witnessed: None, missed: Vec::new() });
    }
    let Findings { operations, mistakes, unread, taken } = walk.findings()?;
    drop(walk);
    if !order::witness(request, ranks, &mut variants)? {
        return Ok(None);
    }
    let all_passed = !variants.is_empty()
        && mistakes.is_empty()
        && variants.iter().all(|variant| variant.outputs.iter().all(|output| output.held) && variant.missed.is_empty());
    let record = VerificationRecord {
        iterations: iterations as u32,
        held: all_passed,
        operations,
        mistakes,
        unread,
        taken,
        variants,
    };
    Ok(Some(Verification { record, warnings }))
}

/// Runs the iterations back to back and compares the contents of memory with those of the verified run; `None` if the
/// run was stopped.
fn repeated(
    walk: &mut Verifier,
    ranks: &[RankSchedule],
    outputs: &[(usize, MemoryId)],
    mode: LaunchMode,
    iterations: u64,
    control: &Control,
) -> Result<Option<Vec<OutputVerification>>, ExecError> {
    walk.ranks().reset(control)?;
    if walk.ranks().iterate(mode, 0, iterations, control)?.slowest.stopped {
        return Ok(None);
    }
    walk.ranks().tear_down(control)?;
    // Each process compares the rank that it runs.
    let mut compared = || {
        let mut found = Vec::new();
        for &(rank, memory) in outputs {
            let Some((actual, expected)) = walk.current_and_previous(rank, memory)? else { continue };
            let RankSchedule { number, program, .. } = ranks[rank];
            let (dtype, dims) = program.shapes.get(program.memory(memory).shape);
            let row = dims.last().map_or(1, |&length| length as usize);
            let comparison = compare::unless_same(program, dtype, row, actual, expected);
            found.push(OutputVerification {
                name: match ranks.len() {
                    1 => name(program, memory),
                    _ => format!("{} on rank {number}", name(program, memory)),
                },
                shape: format!("{dtype}{dims}"),
                error: comparison.error,
                bound: comparison.bound,
                held: comparison.error <= comparison.bound,
            });
        }
        Ok(found)
    };
    let compared = compared();
    Ok(Some(walk.ranks().agree("outputs", compared)?.into_iter().flatten().collect()))
}

fn name(program: &Program, memory: MemoryId) -> String {
    let info = program.memory(memory);
    let name = program.names.name(info.name);
    match info.kind {
        MemoryKind::Scratch => format!("output of {name}"),
        _ => name.to_owned(),
    }
}

/// For each rank all memory that the first iteration of the period writes, and every buffer that any iteration or a
/// block around them writes.
fn outputs(ranks: &[RankSchedule]) -> Vec<(usize, MemoryId)> {
    let mut outputs: Vec<(usize, MemoryId)> = Vec::new();
    for (rank, RankSchedule { program, schedule, .. }) in ranks.iter().enumerate() {
        for (index, planned) in schedule.period.iter().enumerate() {
            let step = &program.cycle[planned.step];
            for &view in step.ids().flat_map(|op| step.outputs(op)) {
                let memory = program.views.memory(view);
                let scratch = program.memory(memory).kind == MemoryKind::Scratch;
                // The scratch memory of a `teardown` may be that of the iteration before it.
                if !scratch || (index == 0 && program.around.teardown.is_none()) {
                    outputs.push((rank, memory));
                }
            }
        }
        for (_, block) in program.around.iter() {
            let views = block.cycle.iter().flat_map(|step| step.ids().flat_map(|op| step.outputs(op)));
            let memories = views.map(|view| block.views.memory(*view));
            let buffers = memories.filter(|memory| program.memory(*memory).kind != MemoryKind::Scratch);
            outputs.extend(buffers.map(|memory| (rank, memory)));
        }
    }
    outputs.sort_unstable();
    outputs.dedup();
    outputs
}
