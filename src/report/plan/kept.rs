//! Finds the values that are kept for gradients: scratch memory of forward operations that a gradient reads.

use indexmap::IndexMap;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::base::{LabelId, MemoryId, OpId, ViewId};
use crate::model::{Gradient, MemoryKind, Program, Step};

use super::Iteration;

/// A value with the operations between which it is kept.
pub struct KeptValue {
    /// The slice that `from` writes.
    pub view: ViewId,
    /// The first operation that writes the value.
    pub from: OpId,
    /// The last operation of a gradient that reads it.
    pub to: OpId,
}

/// Finds all values that are kept in an iteration, in the order in which they are written. Gradients themselves are not
/// included.
pub fn find(program: &Program, step: &Step) -> Vec<KeptValue> {
    let gradients: FxHashMap<LabelId, &Gradient> =
        program.gradients.iter().map(|gradient| (gradient.label, gradient)).collect();
    if gradients.is_empty() {
        return Vec::new();
    }
    let gradient_of = |op: OpId| above(program, step.op(op).label).find_map(|label| gradients.get(&label).copied());
    // Memory is kept if a gradient reads it for its forward operation, whose writer must not belong to a gradient.
    let keeps = |gradient: &Gradient, memory: MemoryId, writer: OpId| {
        let is_forward = || above(program, step.op(writer).label).any(|label| label == gradient.of);
        !gradient.own.contains(&memory) && (gradient_of(writer).is_none() || is_forward())
    };
    let mut written: IndexMap<MemoryId, (KeptValue, bool), FxBuildHasher> = IndexMap::default();
    for op in step.ids() {
        let gradient = gradient_of(op);
        for &view in step.inputs(op) {
            let memory = program.views.memory(view);
            let Some((gradient, (found, is_kept))) = gradient.zip(written.get_mut(&memory)) else { continue };
            if keeps(gradient, memory, found.from) {
                (found.to, *is_kept) = (op, true);
            }
        }
        for &view in step.outputs(op) {
            let memory = program.views.memory(view);
            if program.memory(memory).kind == MemoryKind::Scratch {
                written.entry(memory).or_insert((KeptValue { view, from: op, to: op }, false));
            }
        }
    }
    written.into_values().filter_map(|(found, is_kept)| is_kept.then_some(found)).collect()
}

/// A label and the labels around it, the innermost first.
fn above(program: &Program, label: LabelId) -> impl Iterator<Item = LabelId> {
    let named = |label: LabelId| Some(label).filter(|label| *label != LabelId(0));
    std::iter::successors(named(label), move |label| named(program.labels[label.index()].parent))
}

impl Iteration {
    /// The most bytes that are kept for gradients at a time, if each operation begins at its earliest start; `None` if
    /// nothing is kept.
    pub(super) fn most_kept(&self) -> Option<u64> {
        let ends = self.kept.iter().flat_map(|kept| {
            let bytes = kept.bytes as i128;
            [(kept.from_ns, bytes), (kept.to_ns, -bytes)]
        });
        let mut ends: Vec<_> = ends.collect();
        // At one instant, memory is released before it is taken: releases are negative and sort first.
        ends.sort_unstable();
        let sums = ends.into_iter().scan(0, |sum, (_, change)| {
            *sum += change;
            Some(*sum)
        });
        sums.max().map(|most| most as u64)
    }
}
