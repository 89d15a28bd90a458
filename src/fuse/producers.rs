//! Finds the operations that computed what an operation reads.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::{MemoryId, OpId, ViewId};
use crate::model::{Program, Step};

/// Number of the latest writes of a memory that are searched for those that overlap a slice.
const SEARCHED_WRITES: usize = 64;

/// The pairs of a writer and a reader in a step, in the order of the readers. The slices that they write and read need not be
/// equal, but overlap.
pub fn pairs(program: &Program, step: &Step) -> Vec<(OpId, OpId)> {
    let mut writes: FxHashMap<MemoryId, Vec<(OpId, ViewId)>> = FxHashMap::default();
    let mut pairs = Vec::new();
    let mut known = FxHashSet::default();
    for op in step.ids() {
        known.clear();
        let before = pairs.len();
        for &view in step.inputs(op) {
            let Some(writes) = writes.get(&program.views.memory(view)) else { continue };
            for &(writer, written) in writes.iter().rev().take(SEARCHED_WRITES) {
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
