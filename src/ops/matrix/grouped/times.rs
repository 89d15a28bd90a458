//! Estimated times of a grouped product by its tiling, from which [`Tiling::of`] chooses.
//!
//! The constants follow from 16-bit products on an H100 (docs/measurements/2026-11-26-products.md). Groups have equal
//! sizes in these estimates, since their sizes are known only at run time.

use super::kernel::{DEPTH, MIN_STEPS_OF_PARTS, Tiling};
use super::*;

/// Clock cycles of an SM per ns while all matrix units are busy.
const CYCLES: f64 = 1.65;

/// Products of two 16-bit numbers that the matrix units of an SM add in a cycle: an instruction for 64 × 256 sums of 16
/// terms takes 128 cycles.
const PRODUCTS: f64 = 2048.0;

/// Bytes of a line of the L2 cache.
const LINE: u64 = 128;
/// Cycles that an SM takes to read a line while all SMs read.
const LINE_CYCLES: f64 = 3.3;

/// Cycles that a line takes to arrive at an SM, even if another block of the cluster has read it.
const ARRIVAL_CYCLES: f64 = 2.0;

/// Fraction of the shorter of two overlapping times, such as of copies and of arithmetic, that the longer one does not
/// hide.
const NOT_HIDDEN: f64 = 0.25;

/// Bytes of results that an SM writes per ns.
const WRITTEN: f64 = 75.0;

/// Bytes that the device reads from its memory, or writes, per ns.
const BANDWIDTH: f64 = 2500.0;

/// Time in ns of launching the kernel that adds the parts of tiles.
const JOIN_LAUNCH: u64 = 6000;
/// Time in ns of adding the parts, for each KiB of the tiles of all blocks, if all of them share tiles.
const JOIN_KIB: u64 = 1;

/// Additional time in ns of launching a kernel with clusters of several blocks.
const CLUSTER_LAUNCH: f64 = 2500.0;

/// Number of rounds of tiles from which idle blocks in the last round do not justify a second kernel.
const ROUNDS: u64 = 8;

/// Number of steps of a tile from which blocks share its depth if there are few tiles.
const DEEP: u64 = 48;
/// Number of steps of a tile up to which writing its results takes as long as computing them.
const SHALLOW: u64 = 4;

/// Returns the time of two activities of these durations that overlap.
fn overlapped(a: f64, b: f64) -> f64 {
    a.max(b) + NOT_HIDDEN * a.min(b)
}

/// Returns the mean number of lines of the L2 cache that hold a row of a box of the factor.
fn lines(factor: &Tensor) -> f64 {
    let last = factor.dims.len() - 1;
    match factor.strides[last - 1] * factor.dtype.size() {
        stride if stride.is_multiple_of(LINE) => 1.0,
        stride if stride.is_multiple_of(LINE / 2) => 1.5,
        _ => 2.0,
    }
}

impl Tiling {
    /// Returns the time in ns of a step of a block that copies by tensor maps.
    pub(super) fn mapped_step(&self) -> u64 {
        let [cluster_rows, cluster_columns] = self.cluster.unwrap_or([1, 1]);
        // Boxes beyond the last column are not copied.
        let across = self.shape.columns.div_ceil(self.columns);
        let columns = self.shape.columns.div_ceil(across).next_multiple_of(DEPTH).min(self.columns);
        let [lines_a, lines_b] = [0, 1].map(|factor: usize| lines(&self.sources[factor].tensor));
        let read = self.rows as f64 / cluster_columns as f64 * lines_a + columns as f64 / cluster_rows as f64 * lines_b;
        // Blocks share deep tiles, so that all SMs are busy.
        let busy =
            if self.depth_steps() >= DEEP { 1.0 } else { (self.tiles() as f64 / self.at_once() as f64).min(1.0) };
        let copies = (read * LINE_CYCLES * busy).max((self.rows + columns) as f64 * ARRIVAL_CYCLES);
        let arithmetic = (self.rows * self.columns * DEPTH) as f64 / PRODUCTS;
        (overlapped(copies, arithmetic) / CYCLES) as u64
    }

    /// Returns the time in ns of a product that reads and writes this many bytes in all.
    pub(super) fn time(&self, bytes: u64) -> u64 {
        let (whole, shared) = self.steps();
        let of_tile = self.rows.min(self.shape.rows) * self.columns.min(self.shape.columns) * self.resident;
        let write = (2 * of_tile) as f64 / WRITTEN / self.resident as f64;
        let rounds = self.tiles().div_ceil(self.at_once());
        let computed = (whole.min(shared) * self.step) as f64 + rounds as f64 * write;
        let launch = if self.together() > 1 { CLUSTER_LAUNCH } else { 0.0 };
        (overlapped(computed, bytes as f64 / BANDWIDTH) + launch) as u64
    }

    /// Number of steps of the depth of a tile.
    fn depth_steps(&self) -> u64 {
        let groups = if self.shape.in_depth { self.shape.groups.max(1) } else { 1 };
        (self.shape.depth / groups).div_ceil(DEPTH).max(1)
    }

    /// Whether tiles have so few steps that writing results takes as long as computing them. Two blocks on an SM, all
    /// of whose threads copy, can hide that.
    pub(super) fn is_shallow(&self) -> bool {
        self.depth_steps() <= SHALLOW
    }

    /// Returns the maximum number of steps of a block: if blocks compute whole tiles, and if they share the tiles of
    /// the last, incomplete round.
    pub(super) fn steps(&self) -> (u64, u64) {
        let (tiles, steps) = (self.tiles(), self.depth_steps());
        let (rounds, last) = (tiles / self.at_once(), tiles % self.at_once());
        let [launch, all_blocks] = self.join_steps();
        // Adding the parts of more blocks than that takes longer than they save.
        let worthwhile = ((last * steps * self.at_once()) as f64 / all_blocks as f64).sqrt() as u64;
        let most = if self.shape.in_depth { self.at_once() } else { worthwhile.clamp(1, self.at_once()) };
        let blocks = (last * steps / self.min_steps()).clamp(1, most);
        let whole = (rounds + u64::from(last > 0)) * steps;
        let join = launch + all_blocks * blocks / self.at_once();
        (whole, rounds * steps + (last * steps).div_ceil(blocks) + join)
    }

    /// Returns the time of adding the parts of tiles, in steps: of the launch, and of the parts if all blocks share
    /// tiles.
    pub(super) fn join_steps(&self) -> [u64; 2] {
        let kib = self.at_once() * self.together() * self.rows * self.columns * 4 / 1024;
        [JOIN_LAUNCH, kib * JOIN_KIB].map(|time| time.div_ceil(self.step))
    }

    /// Whether sharing the depth makes the product faster for some sizes of the groups.
    pub(super) fn may_share(&self) -> bool {
        let (whole, shared) = self.steps();
        // The sizes of the groups are data: a single group can have the whole depth, and sharing then pays even if it does not for
        // equal groups.
        let uneven = self.shape.in_depth
            && self.shape.groups > 1
            && self.shape.depth / DEPTH > 2 * (MIN_STEPS_OF_PARTS + self.join_steps().iter().sum::<u64>());
        self.tiles() < ROUNDS * self.at_once() && (shared < whole || uneven)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::DType;

    /// Blocks share few tiles of unaligned rows, although these are not deep.
    #[test]
    fn few_tiles_are_shared() {
        for (columns, shares) in [(137, true), (32768, false)] {
            let of = |dims: &[u64]| Tensor::packed(DType::BF16, dims);
            let attrs = Attrs::of([
                ("transpose_a", Attr::Bool(false)),
                ("transpose_b", Attr::Bool(false)),
                ("epilogue", Attr::Word("none")),
            ]);
            let inputs = vec![of(&[269, 1336]), of(&[2, 1336, columns]), Tensor::packed(DType::I32, &[2])];
            let tiling = Tiling::of(&Spec::new(&GroupedGemm, attrs, inputs, vec![of(&[269, columns])]));
            assert_eq!(tiling.may_share(), shares, "{columns} columns: {} x {}", tiling.rows, tiling.columns);
        }
    }
}
