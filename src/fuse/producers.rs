//! Finds the operations that computed what an operation reads.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::{MemoryId, OpId, ViewId};
use crate::model::{Program, Step};

/// Writes of a memory that are looked through for those of a slice.
const WRITES: usize = 64;

/// The pairs of operations of a step of which the first wrote an element that the second reads, in the order of the second.
/// Slices need not be the same: they have an element in common.
pub fn pairs(program: &Program, step: &Step) -> Vec<(OpId, OpId)> {
    let mut writes: FxHashMap<MemoryId, Vec<(OpId, ViewId)>> = FxHashMap::default();
    let mut pairs = Vec::new();
    let mut known = FxHashSet::default();
    for op in step.ids() {
        known.clear();
        let before = pairs.len();
        for &view in step.inputs(op) {
            let Some(writes) = writes.get(&program.views.memory(view)) else { continue };
            for &(writer, written) in writes.iter().rev().take(WRITES) {
                if program.views.overlap(view, written) && known.insert(writer) {
                    pairs.push((writer, op));
                }
                if written == view {
                    // The earlier contents are overwritten.
                    break;
                }
            }
        }
        pairs[before..].sort_unstable_by(|a, b| b.cmp(a));
        for &view in step.outputs(op) {
            writes.entry(program.views.memory(view)).or_default().push((op, view));
        }
    }
    pairs
}
