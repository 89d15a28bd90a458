//! Costs of attention by products.

use super::super::super::cost::{Tiling, Traffic};
use super::super::super::matrix::product_cost;
use super::super::composed_text::MAX_HELD;
use super::super::cost::PER_BIAS;
use super::products::length;
use super::*;
use crate::ops::kernels::occupancy::share;

/// Instructions per score: scale, maximum, two exponentials, sum, rounding, loads and stores.
const PER_SCORE: f64 = 30.0;

/// Instructions of the kernels between products, per score.
const PER_WEIGHT: f64 = 30.0;
/// Instructions of the kernels between products, per thread.
const PER_THREAD: f64 = 350.0;
/// Number of rounds of loads that a thread has under way.
const AHEAD: u64 = 4;

/// Instructions that divide a part from a number, and store it.
const PER_PART: f64 = 4.0;

impl Composed<'_> {
    /// Returns the costs of the launches in order.
    pub fn launch_costs(&self) -> Vec<Cost> {
        let of_launch = |launch: &Launch| match launch {
            Launch::Gemm(product, _) => product_cost(product),
            launch => launch.kernels().first().map(|kernel| self.kernel_cost(kernel)).unwrap_or_default(),
        };
        self.launches().iter().map(of_launch).collect()
    }

    /// Returns the cost of a kernel before, between or after the products.
    fn kernel_cost(&self, kernel: &Kernel) -> Cost {
        let Shape { keys, size, value_size, .. } = self.shape;
        let (sum, own) = (self.sums().size(), self.bytes_of_a_weight());
        let (blocks, threads) = (kernel.grid.iter().product::<u64>(), u64::from(kernel.block[0]));
        let copied = |read: u64, written: u64| Cost {
            read: Traffic::of(Space::Device, read),
            written: Traffic::of(Space::Device, written),
            blocks: blocks.max(1),
            share: share(threads),
            ..Cost::default()
        };
        let (passes, read, written) = match &*kernel.source.name {
            "attention_weights" if keys <= MAX_HELD * threads => (1, sum, own),
            "attention_weights" => (3, sum, own),
            "attention_slopes" => (1, 2 * sum, 2 * own),
            "attention_padding" => {
                // The keys of the padding are written only.
                let [read, written] =
                    [keys, self.columns()].map(|rows| blocks / self.columns() * rows * (size + value_size) * own);
                return copied(read, written);
            }
            "attention_rounding" => {
                let results = self.matrices.iter().filter(|one| one.shared && self.is_result(one));
                let written = results.map(|one| blocks * self.row_bytes(one)).sum();
                return copied(blocks * (size + value_size) * sum, written);
            }
            name => {
                let operands = self.gathered_operands(name == "attention_results");
                let of_a_unit = operands.iter().map(|(_, one)| self.copy_of(one).2).max().unwrap_or(1);
                let outside: u64 = operands.iter().map(|(_, one)| self.rows_of(one) * self.row_bytes(one)).sum();
                let of_copy = |(dtype, width, rows): (DType, u64, u64)| dtype.size() * width * rows;
                let inside: u64 = operands.iter().map(|(_, one)| of_copy(self.copy_of(one))).sum();
                let [read, written] = if name == "attention_results" { [inside, outside] } else { [outside, inside] };
                return copied(blocks / of_a_unit * read, blocks / of_a_unit * written);
            }
        };
        let scores = blocks * keys;
        let [of_cap, special_of_cap] = softcap_text::cost(self.spec);
        let stored = match self.gathered {
            Gathered::Parts => (written / self.factors().size()) as f64 * PER_PART,
            _ => 0.0,
        };
        Cost {
            instructions: (PER_WEIGHT + of_cap + stored) * scores as f64 + PER_THREAD * (blocks * threads) as f64,
            special: (1.0 + special_of_cap) * scores as f64,
            waits: (passes * keys.div_ceil(threads * AHEAD)) as f64,
            exchanges: if &*kernel.source.name == "attention_weights" { 2.0 } else { 1.0 },
            ..copied(scores * read, scores * written)
        }
    }

    /// Bytes of a weight or of the gradient of a score.
    fn bytes_of_a_weight(&self) -> u64 {
        self.factors().size() * self.parts_of_a_weight()
    }

    /// Bytes of a row of an operand.
    fn row_bytes(&self, one: &Operand) -> u64 {
        let tensor = self.tensor(one);
        tensor.dims[tensor.dims.len() - 1] * tensor.dtype.size()
    }

    /// Bytes of the workspace that products and kernels read and write for a matrix of scores.
    fn scratch_of_a_unit(&self) -> u64 {
        let (sum, own) = (self.sums().size(), self.bytes_of_a_weight());
        // A product writes scores and a kernel reads them; the kernel writes weights and a product reads them. Two products read the
        // gradients of scores.
        let of_a_score = if self.is_backward() { 4 * sum + 5 * own } else { 2 * sum + 2 * own };
        let regions = self.regions(1);
        self.rows() * self.columns() * of_a_score + 2 * (regions.end - regions.key_sums)
    }

    /// Returns the cost of all products and kernels together.
    pub fn cost(&self) -> Cost {
        let (spec, shape) = (self.spec, &self.shape);
        // A matrix of scores has the rows of all heads that are computed together.
        let of_a_matrix: u64 = self.extents(false).iter().map(|one| length(&one.rows) * length(&one.keys)).sum();
        let multiplied = (shape.batch * shape.heads / self.together * of_a_matrix) as f64;
        let scores = (shape.batch * shape.heads * shape.queries * shape.keys) as f64;
        let (products, passes) = if self.is_backward() { (5.0, 2) } else { (2.0, 1) };
        let sizes = (shape.size + shape.value_size) as f64 / 2.0;
        let of_a_bias = if input(spec, BIAS).is_some() { PER_BIAS } else { 0.0 };
        let [of_cap, special_of_cap] = softcap_text::cost(spec);
        let units = self.members() * self.units.dims.iter().product::<u64>();
        let flops = |scores: f64| 2.0 * products * scores * sizes;
        let of_parts = if self.gathered == Gathered::Parts { parts::OF_A_ROW as f64 } else { 1.0 };
        Cost {
            flops: flops(shape.pairs()),
            instructions: passes as f64 * (PER_SCORE + of_a_bias + of_cap) * scores,
            special: passes as f64 * (1.0 + special_of_cap) * scores,
            read: Spec::bytes_of(&spec.inputs),
            written: Spec::bytes_of(&spec.outputs),
            scratch: Traffic::of(Space::Device, self.scratch_of_a_unit() * units),
            blocks: (units * self.rows().div_ceil(TILE) * shape.keys.max(shape.value_size).div_ceil(TILE)).max(1),
            share: Cost::WHOLE_UNIT,
            matrix: Some(self.arithmetic()),
            // The products include the masked scores of their extents.
            tiling: Tiling { flops: flops(multiplied) * of_parts, ..Tiling::default() },
            ..Cost::default()
        }
    }
}
