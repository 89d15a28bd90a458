//! Costs of the kernels that compute the gradients of attention.

use super::super::super::cost::Tiling;
use super::super::cost::{PER_BIAS, SEARCH_EXCHANGES, searches};
use super::*;

/// Matrix products per pair of tiles in both kernels: each kernel computes queries × keys and gradients × values, and
/// each of the three gradients takes one more.
const PRODUCTS: f64 = 7.0;

/// Throughput of these products divided by that of the library's: each multiplication waits for the loads of its tile. With this rate,
/// modelled times fit those of seven gradients of 2048 to 16384 queries, 0.13 to 4.2 ms on an H200
/// (docs/measurements/2026-11-28-branches-and-hops.md).
const RATE: f64 = 0.75;

/// Exchanges that take as long as a block's start and end, 3.8 µs: blocks of packed sequences with one to four tiles take 5 to 9 µs on an
/// H200 (docs/measurements/2026-11-28-branches-and-hops.md).
const EDGE_EXCHANGES: f64 = 36.0;

/// Instructions of the kernels before and behind the products: per product of two elements, per row, and per part that is added.
const PER_PRODUCT: u64 = 6;
const PER_SUM: u64 = 60 * WARP;
const PER_PART: u64 = 4;

/// Instructions per score and kernel: scale, exponential, gradient of the score, and two roundings.
const PER_SCORE: f64 = 8.0;

impl BackwardPartition {
    /// Returns the cost of each kernel in the order of [`BackwardPartition::kernels`], or of all together without matrix units.
    pub fn costs(&self, spec: &Spec) -> Vec<Cost> {
        let Some((_, widths)) = self.tiles else { return vec![self.cost_of_rows(spec)] };
        let bytes = |operands: &[usize]| operands.iter().map(|&operand| spec.operand(operand).bytes()).sum::<u64>();
        let of = |bytes: u64| Traffic::of(Space::Device, bytes);
        let (outputs, rows) = (spec.inputs.len(), self.shape.batch * self.shape.heads * self.shape.queries);
        let sums = Cost {
            instructions: (rows * (PER_PRODUCT * self.shape.value_size + PER_SUM)) as f64,
            read: of(bytes(&[3, 5]) + input(spec, DLSE).map_or(0, |place| bytes(&[place]))),
            scratch: of(4 * rows),
            blocks: rows.div_ceil(THREADS / WARP).max(1),
            share: share(THREADS),
            ..Cost::default()
        };
        let has_bias = input(spec, BIAS);
        let arithmetic = if spec.inputs[0].dtype == DType::F16 { Arithmetic::F16 } else { Arithmetic::BF16 };
        let of_shared = (self.shared() * u64::from(Cost::WHOLE_UNIT)).div_ceil(UNIT_SHARED) as u32;
        let share_of_block = of_shared.max(share(THREADS)).min(Cost::WHOLE_UNIT);
        let resident = UNITS * u64::from(Cost::WHOLE_UNIT / share_of_block);
        let parts = if self.splits > 1 { 4 * self.splits * self.results() } else { 0 };
        // Results of blocks whose rows are keys if `by_keys`.
        let results = |by_keys: bool| -> u64 {
            let slopes = spec.outputs.len() > SLOPES;
            match by_keys {
                true if self.splits > 1 => 0,
                true => bytes(&[outputs + 1, outputs + 2]),
                false => bytes(&[outputs]) + if slopes { bytes(&[outputs + SLOPES]) } else { 0 },
            }
        };
        // A kernel whose blocks have rows of these kinds, of keys if true.
        let of_kernel = |kinds: &[bool]| {
            let tiles = kinds.iter().map(|&by_keys| self.tiles_of_blocks(by_keys)).fold(Tiles::NONE, Tiles::beside);
            let grid = kinds.iter().map(|&by_keys| self.blocks(by_keys)).sum::<u64>().max(1);
            let products: f64 = kinds.iter().map(|&by_keys| if by_keys { 4.0 } else { 3.0 }).sum();
            let each = tiles.of_block(resident, grid);
            let scores = each * (grid * BLOCK_ROWS * HOPPER_COLUMNS) as f64;
            let of_thread = (BLOCK_ROWS * HOPPER_COLUMNS / THREADS) as f64;
            Cost {
                flops: products * self.shape.pairs() * (self.shape.size + self.shape.value_size) as f64,
                instructions: (PER_SCORE + if has_bias.is_some() { PER_BIAS } else { 0.0 }) * scores,
                special: kinds.len() as f64 * self.shape.pairs(),
                read: of(bytes(&[0, 1, 2, 5]) + has_bias.map_or(0, |place| bytes(&[place]))),
                written: of(kinds.iter().map(|&by_keys| results(by_keys)).sum()),
                scratch: of(if kinds.contains(&true) { parts } else { 0 }),
                blocks: grid,
                share: share_of_block,
                matrix: Some(arithmetic),
                alternates: true,
                // Each load of a bias is in a branch of its own, so a thread waits for one after the other.
                waits: 2.0 + searches(&self.shape) + each * (1.0 + has_bias.map_or(0.0, |_| of_thread)),
                exchanges: EDGE_EXCHANGES + SEARCH_EXCHANGES * searches(&self.shape) + 2.0 * each,
                tiling: Tiling {
                    flops: products / kinds.len() as f64 * scores * (widths[0] + widths[1]) as f64 / RATE,
                    ..Tiling::default()
                },
                ..Cost::default()
            }
        };
        let mut all = vec![sums];
        match self.merges() {
            true => all.push(of_kernel(&[false, true])),
            false => all.extend([false, true].map(|by_keys| of_kernel(&[by_keys]))),
        }
        if self.splits > 1 {
            let threads = self.results();
            all.push(Cost {
                instructions: (threads * (PER_PART * self.splits + PER_SUM / WARP)) as f64,
                written: of(bytes(&[outputs + 1, outputs + 2])),
                scratch: of(parts),
                blocks: threads.div_ceil(THREADS).max(1),
                share: share(THREADS),
                ..Cost::default()
            });
        }
        all
    }

    /// Returns the cost of the kernels without matrix units.
    fn cost_of_rows(&self, spec: &Spec) -> Cost {
        let (pairs, elements) = (self.shape.pairs(), (self.shape.size + self.shape.value_size) as f64);
        // Every row reads two operands with as many elements as its pairs have.
        let again = (2.0 * pairs * elements) as u64 * spec.inputs[1].dtype.size();
        Cost {
            flops: PRODUCTS * pairs * elements,
            instructions: pairs * (PRODUCTS / 2.0 * elements + 2.0 * WARP as f64 * 24.0),
            special: 2.0 * pairs,
            read: Spec::bytes_of(&spec.inputs),
            written: Spec::bytes_of(&spec.outputs),
            reread: Traffic::of(Space::Device, again),
            // The two kernels run one after the other.
            blocks: self.blocks(false).max(self.blocks(true)).max(1),
            share: share(THREADS),
            ..Cost::default()
        }
    }
}
