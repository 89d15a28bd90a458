//! Finds values that a backward pass needs but that have been overwritten.

use rustc_hash::FxHashMap;

use crate::base::{MemoryId, OpId, ViewId};
use crate::model::analyzer::Analyzer;
use crate::model::error::GradientError;
use crate::model::program::{MemoryKind, Program, Step};
use crate::ops::backward::{Tape, TensorOrigin};
use crate::syntax::ast::Call;

use super::GradientTarget;
use super::walk::ProgramTensor;

/// The writes of the operations of a step, by memory, in their order.
#[derive(Debug, Default)]
pub struct Writers {
    by_memory: FxHashMap<MemoryId, Vec<(OpId, ViewId)>>,
    /// Number of operations that have been processed.
    seen: usize,
}

impl Writers {
    /// Processes the operations that were added since the last call.
    fn update(&mut self, program: &Program, step: &Step) {
        for op in (self.seen..step.ops.len()).map(OpId::from) {
            for &view in step.outputs(op) {
                self.by_memory.entry(program.views.memory(view)).or_default().push((op, view));
            }
        }
        self.seen = step.ops.len();
    }

    /// Returns the operations that write a part of a slice.
    fn of<'w>(&'w self, program: &'w Program, view: ViewId) -> impl Iterator<Item = OpId> + 'w {
        let all = self.by_memory.get(&program.views.memory(view)).into_iter().flatten();
        all.filter(move |(_, other)| program.views.overlap(view, *other)).map(|(op, _)| *op)
    }
}

impl Analyzer<'_> {
    /// Checks that the operands of these steps still have the values that the target's operations used, and that no
    /// gradient overwrites them; `None` if not, which has been reported. A buffer that the target only reads is used with its
    /// current contents, which may have been written again.
    pub(super) fn check_reads(
        &mut self,
        call: &Call,
        target: &GradientTarget,
        tape: &Tape,
        (used, steps): (&[ProgramTensor], &[usize]),
        goals: &[ViewId],
    ) -> Option<()> {
        let mut writers = std::mem::take(&mut self.expansion.writers);
        writers.update(&self.program, &self.expansion.step);
        let mut good = true;
        for &value in steps.iter().flat_map(|&index| &tape.steps[index].inputs) {
            let TensorOrigin::Program(number) = tape.get(tape.root(value)).source else { continue };
            let ProgramTensor { view, by: Some((op, is_output)) } = used[number as usize] else { continue };
            if let Some(place) = goals.iter().position(|goal| self.program.views.overlap(*goal, view)) {
                let read = self.expansion.step.op(op).span;
                let written = call.outputs.get(place).map_or(call.span, |arg| arg.value.span);
                self.overlap(view, written, read);
                good = false;
                continue;
            }
            let later = |writer: &OpId| if is_output { *writer > op } else { *writer >= op };
            let all: Vec<OpId> = writers.of(&self.program, view).collect();
            let Some(&by) = all.iter().find(|writer| later(writer)) else { continue };
            let inside = |writer: &OpId| target.ops.contains(&writer.0);
            let made_inside = is_output || all.iter().any(|writer| inside(writer) && *writer < op);
            let memory = self.program.memory(self.program.views.memory(view));
            if matches!(memory.kind, MemoryKind::Buffer(_))
                && !made_inside
                && !all.iter().any(|w| later(w) && inside(w))
            {
                continue;
            }
            let (reader, writer) = (*self.expansion.step.op(op), *self.expansion.step.op(by));
            let name = self.names.name(memory.name).to_owned();
            self.error(GradientError::Overwritten {
                name,
                reader: self.program.op_name(&reader).to_owned(),
                used: if is_output { "computed" } else { "read" },
                written: writer.span.into(),
                at: call.inputs.first().map_or(call.span, |arg| arg.value.span).into(),
            });
            good = false;
        }
        self.expansion.writers = writers;
        good.then_some(())
    }
}
