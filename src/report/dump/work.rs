//! The work of a run as text, whose hash tells whether two runs execute the same.

use std::fmt::{self, Write};

use rustc_hash::FxHashMap;
use sha2::{Digest, Sha256};

use crate::base::{MemoryId, ViewId, hex};
use crate::model::Program;
use crate::ops::{Spec, Team};
use crate::plan::RankPlan;
use crate::schedule::Schedule;

use super::model::memory;
use super::schedule;

/// Hashes all text written to it.
#[derive(Default)]
struct Hashing(Sha256);

impl fmt::Write for Hashing {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text);
        Ok(())
    }
}

impl Hashing {
    fn short(self) -> String {
        let mut text = hex(self.0.finalize());
        text.truncate(16);
        text
    }
}

/// SHA-256, in hexadecimal, of the work that all ranks execute. `schedules` has one entry for each rank.
pub fn plan_hash(ranks: &[RankPlan], schedules: &[Schedule]) -> String {
    let mut hashing = Hashing::default();
    for (rank, schedule) in ranks.iter().zip(schedules) {
        work(&rank.program, schedule, &mut hashing).expect("hashing does not fail");
    }
    hex(hashing.0.finalize())
}

/// Hash of the names and the initial values of a rank's buffers: 16 hexadecimal digits.
pub fn initial_values(program: &Program) -> String {
    let mut hashing = Hashing::default();
    for id in (0..program.memories.len()).map(MemoryId::from) {
        let memory = program.memory(id);
        let name = program.names.name(memory.name);
        writeln!(hashing, "{name}: {:?}", memory.kind).expect("hashing does not fail");
    }
    hashing.short()
}

/// Hash of an operation's options, expression, constants and group of ranks: 16 hexadecimal digits. Operands and the size of the
/// world are not included.
pub fn computes(spec: &Spec) -> String {
    let mut hashing = Hashing::default();
    let Spec { operation, attrs, expression, team, .. } = spec;
    let group = (team.group != Team::ALONE.group).then_some(team);
    write!(hashing, "{operation:?} {attrs:?} {expression:?} {group:?}").expect("hashing does not fail");
    hashing.short()
}

/// Writes the work of one rank: memories with their contents, launches, operations with their slices, and the schedule.
/// Source locations, parameters and metrics are not included.
pub fn work(program: &Program, placed: &Schedule, out: &mut dyn Write) -> fmt::Result {
    for id in (0..program.memories.len()).map(MemoryId::from) {
        writeln!(out, "memory {}", memory(program, id))?;
    }
    for (number, spec) in program.specs.iter().enumerate() {
        writeln!(out, "spec {number}: team {:?}", spec.team)?;
        for launch in spec.launch() {
            for kernel in launch.kernels() {
                out.write_str(&kernel.source.text)?;
                if let Some(code) = &kernel.source.code {
                    writeln!(out, "{}", hex(Sha256::digest(code)))?;
                }
            }
            writeln!(out, "  {launch:?}")?;
        }
    }
    // Slots of a cycle access the same slices.
    let mut slices: FxHashMap<ViewId, String> = FxHashMap::default();
    for (slot, step) in program.cycle.iter().enumerate() {
        writeln!(out, "slot {slot}")?;
        for op in step.ids() {
            let info = step.op(op);
            write!(out, "#{} {:?} on {}", op.0, info.kind, info.stream.0)?;
            for &view in step.inputs(op).iter().chain(step.outputs(op)) {
                write!(out, ", {}", slices.entry(view).or_insert_with(|| program.view_text(view)))?;
            }
            writeln!(out, ", peer {:?}", step.peer(op))?;
        }
    }
    for (which, (block, placed)) in program.around.as_ref().zip(placed.around.as_ref()).iter() {
        writeln!(out, "{}", which.name())?;
        work(block, placed, out)?;
    }
    out.write_str(&schedule(program, placed))
}
