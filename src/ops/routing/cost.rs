//! The cost of the kernels of `route`.

use super::choice::SelectionRules;
use super::kernel::{BLOCK_OF_ROWS, placing_threads, row_bytes};
use super::*;
use crate::ops::kernels::occupancy::{SECTOR, share};
use crate::ops::kernels::select::is_wide;

/// Expected number of bits that a search examines until it separates the largest of two random numbers. Each doubling of the numbers takes
/// one bit more.
const FEWEST_ROUNDS: u64 = 6;

/// Instructions of a thread per bit of a search.
const PER_ROUND: u64 = 4;
/// Time of a sum over a warp, in instructions: 16 lanes of an SM compute such sums at a time.
const PER_SUM: u64 = 4;

/// Instructions of a thread per element for its key and for its choice.
const PER_ELEMENT: u64 = 18;
/// Instructions of a thread per row.
const PER_ROW: u64 = 80;

/// Instructions of a thread per word of bits that it places.
const PER_WORD: u64 = 20;
/// Other instructions per thread.
const PER_THREAD: u64 = 120;

/// Returns the costs of the kernel that chooses and of the one that places.
pub fn of_launches(spec: &Spec) -> Vec<Cost> {
    let probs = &spec.inputs[0];
    let (tokens, experts, k) = (probs.dims[0], probs.dims[1], spec.attrs.int("k") as u64);
    let (words, held) = (tokens.div_ceil(THREADS_OF_A_ROW).max(1), experts.div_ceil(THREADS_OF_A_ROW));
    let choice = SelectionRules::of(spec);
    let of_groups = if choice.groups > 1 { choice.groups as u64 * (held * 3 + 40) } else { 0 };
    let of_key = if is_wide(probs.dtype) { 8 } else { 4 };
    let rounds = FEWEST_ROUNDS + u64::from(experts.max(1).ilog2());
    let each = PER_ROW + PER_ELEMENT * held + (of_key * held + PER_ROUND) * rounds + of_groups;
    let workspace = Traffic::of(Space::Device, experts * words * 4 + tokens * row_bytes(spec));
    let threads = tokens * THREADS_OF_A_ROW;
    let chooses = Cost {
        instructions: (threads * each) as f64,
        conflicts: (threads * PER_SUM * rounds) as f64,
        read: Spec::bytes_of(&spec.inputs),
        written: workspace,
        blocks: words,
        share: share(u64::from(BLOCK_OF_ROWS)),
        exchanges: 1.0,
        ..Cost::default()
    };
    let placing = u64::from(placing_threads(words));
    // A warp visits the words of a block one after the other. For each that names a row of its expert, it waits for shared memory and
    // for the elements.
    let passes = words.div_ceil(placing);
    let visits = words.div_ceil(placing / THREADS_OF_A_ROW);
    let is_named = 1.0 - (1.0 - k as f64 / experts as f64).powi(THREADS_OF_A_ROW as i32);
    let places = Cost {
        instructions: (experts * (placing * PER_THREAD + words * THREADS_OF_A_ROW * PER_WORD)) as f64,
        read: workspace,
        written: Spec::bytes_of(&spec.outputs),
        // Each chosen element is read alone.
        reread: Traffic::of(probs.space, tokens * k * SECTOR),
        blocks: experts,
        share: share(placing),
        waits: 2.0 * visits as f64 * is_named,
        exchanges: passes as f64,
        ..Cost::default()
    };
    vec![chooses, places]
}
