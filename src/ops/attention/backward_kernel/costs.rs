//! Costs of the kernels that compute the gradients of attention.

use super::super::super::cost::Tiling;
use super::super::cost::{PER_BIAS, SEARCH_EXCHANGES, bias_again, searches};
use super::*;

/// Matrix products per pair of tiles: blocks of queries and blocks of keys compute queries × keys and gradients × values, and each of the
/// three gradients takes one more.
const PRODUCTS: f64 = 7.0;

/// Throughput of these products divided by that of the library's, whose tiles are larger. With this rate, modelled times fit those of
/// packed sequences and of dense attention on an H200 (docs/measurements/2026-11-28-packed-gradients.md).
const RATE: f64 = 0.75;

/// Exchanges that take as long as a block's start and end, 2.1 µs (the same page).
const EDGE_EXCHANGES: f64 = 20.0;

/// Instructions of the kernels before and after the products, per product of two elements.
const PER_PRODUCT: u64 = 6;
/// Instructions of these kernels per thread.
const PER_SUM: u64 = 60;
/// Instructions of these kernels per part that is added.
const PER_PART: u64 = 4;

/// Instructions per score and block: scale, exponential, gradient of the score, and two roundings.
const PER_SCORE: f64 = 8.0;

impl BackwardPartition {
    /// Returns the cost of each kernel in the order of [`BackwardPartition::kernels`], or of all together without matrix units.
    pub fn costs(&self, spec: &Spec) -> Vec<Cost> {
        let Some((_, widths)) = self.tiles else { return vec![self.cost_of_rows(spec)] };
        let bytes = |operands: &[usize]| operands.iter().map(|&operand| spec.operand(operand).bytes()).sum::<u64>();
        let of = |bytes: u64| Traffic::of(Space::Device, bytes);
        let (outputs, rows) = (spec.inputs.len(), self.shape.batch * self.shape.heads * self.shape.queries);
        let (_, lanes) = self.lanes_of_sums(spec);
        let sums = Cost {
            instructions: (rows * (PER_PRODUCT * self.shape.value_size + PER_SUM * lanes)) as f64,
            read: of(bytes(&[3, 5]) + input(spec, DLSE).map_or(0, |place| bytes(&[place]))),
            scratch: of(4 * rows),
            blocks: (rows * lanes).div_ceil(THREADS).max(1),
            share: share(THREADS),
            ..Cost::default()
        };
        let has_bias = input(spec, BIAS);
        let arithmetic = if spec.inputs[0].dtype == DType::F16 { Arithmetic::F16 } else { Arithmetic::BF16 };
        let parts = if self.splits > 1 { 4 * self.splits * self.results() } else { 0 };
        // Results of blocks whose rows are keys if `by_keys`.
        let results = |by_keys: bool| -> u64 {
            let slopes = spec.outputs.len() > SCORE_GRADIENTS;
            match by_keys {
                true if self.splits > 1 => 0,
                true => bytes(&[outputs + 1, outputs + 2]),
                false => bytes(&[outputs]) + if slopes { bytes(&[outputs + SCORE_GRADIENTS]) } else { 0 },
            }
        };
        // Blocks of queries and of keys are one launch.
        let tiles = self.tiles_of_blocks(false).beside(self.tiles_of_blocks(true));
        let grid = (self.blocks(false) + self.blocks(true)).max(1);
        let each = tiles.of_block(RESIDENT * UNITS, grid);
        let scores = each * (grid * BLOCK_ROWS * HOPPER_COLUMNS) as f64;
        // A bias that warps do not copy beforehand makes each tile wait.
        let waits_for_bias = has_bias.is_some() && self.bias == 0;
        let [of_cap, special_of_cap] = softcap_text::cost(spec);
        let both = Cost {
            flops: PRODUCTS * self.shape.pairs() * (self.shape.size + self.shape.value_size) as f64,
            instructions: (PER_SCORE + if has_bias.is_some() { PER_BIAS } else { 0.0 } + of_cap) * scores,
            special: 2.0 * (1.0 + special_of_cap) * self.shape.pairs(),
            read: of(bytes(&[0, 1, 2, 5]) + has_bias.map_or(0, |place| bytes(&[place]))),
            written: of(results(false) + results(true)),
            scratch: of(parts),
            blocks: grid,
            share: share_among(RESIDENT),
            matrix: Some(arithmetic),
            alternates: true,
            // Blocks of queries and blocks of keys read the bias of each score.
            reread: bias_again(spec, 2.0 * self.shape.pairs()),
            // A tile is loaded while the one before is multiplied.
            waits: 2.0 + searches(&self.shape) + if waits_for_bias { each } else { 0.0 },
            exchanges: EDGE_EXCHANGES + SEARCH_EXCHANGES * searches(&self.shape) + 2.0 * each,
            tiling: Tiling {
                flops: PRODUCTS / 2.0 * scores * (widths[0] + widths[1]) as f64 / RATE,
                ..Tiling::default()
            },
            ..Cost::default()
        };
        let mut all = vec![sums, both];
        if self.splits > 1 {
            let threads = self.results();
            all.push(Cost {
                instructions: (threads * (PER_PART * self.splits + PER_SUM)) as f64,
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
