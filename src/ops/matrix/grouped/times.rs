//! Estimated times of a grouped product by its tiling, from which [`Tiling::of`] chooses.
//!
//! The constants follow from 16-bit products on an H200 (docs/measurements/2026-11-28-blocks-that-exchange-sums.md). The sizes of the
//! groups are known only at run time, so that a tiling is chosen by its times for groups of equal sizes and for those of a random division.

use super::kernel::{MIN_STEPS, Tiling};
use super::lengths::Lengths;
use super::tiles::DEPTH;
use super::*;
use crate::ops::kernels::occupancy::{SECTOR, UNITS};

/// Clock cycles of an SM per ns while all matrix units are busy.
const CYCLES: f64 = 1.75;

/// Products of two 16-bit numbers that the matrix units of an SM add in a cycle: an instruction for 64 × 256 sums of 16
/// terms takes 128 cycles.
const PRODUCTS: f64 = 2048.0;

/// Bytes that the shared memory of an SM transfers in a cycle: a row of a box.
const SHARED_ROW: u64 = 128;

/// Cycles that an SM takes to read 128 bytes, a row of a box, from the L2 cache while all SMs read.
const ROW_CYCLES: f64 = 2.4;
/// Mean time of a row of a box whose rows begin at any 16 bytes, relative to one that begins at a sector: it can be in two lines of the
/// cache.
const UNALIGNED_ROW: f64 = 1.3;
/// Exponent of the sum of the cycles of copies and of products: each hides nearly all of the other if it takes much longer.
const SUM_EXPONENT: f64 = 5.0;
/// Cycles of a step in which neither is in progress.
const STEP_CYCLES: f64 = 35.0;

/// Rates at which blocks compute and write tiles, and hide one activity behind another.
struct Rates {
    /// Time in ns from the start of a block's first copies until it multiplies at the rate of its steps.
    fill: f64,
    /// Bytes of results that an SM writes per ns by tensor maps, by threads of tiles that tensor maps copy, and by threads of others.
    written: [f64; 3],
    /// Minimum time in ns from the last products of a tile until its results are written, in which a block multiplies nothing.
    min_write: f64,
    /// Bytes that the device reads from its memory, or writes, per ns.
    bandwidth: f64,
    /// Fraction of the shorter of two times, of the blocks and of the memory, that the longer one does not hide.
    not_hidden: f64,
    /// Additional time in ns of launching a kernel with clusters of several blocks.
    cluster_launch: f64,
}

/// Rates of tiles with more than [`SHALLOW`] steps (docs/measurements/2026-11-28-blocks-that-exchange-sums.md).
const RATES: Rates = Rates {
    fill: 1300.0,
    written: [80.0, 33.0, 75.0],
    min_write: 700.0,
    bandwidth: 4000.0,
    not_hidden: 0.48,
    cluster_launch: 400.0,
};

/// Rates of tiles with few steps: a block loads the next tile while it writes one, so that most of its time is hidden
/// (docs/measurements/2026-11-26-products.md).
const SHALLOW_RATES: Rates = Rates {
    fill: 0.0,
    written: [75.0; 3],
    min_write: 400.0,
    bandwidth: 2500.0,
    not_hidden: 0.25,
    cluster_launch: 2500.0,
};

/// Clock cycles of an SM per ns, for tiles with few steps.
const SHALLOW_CYCLES: f64 = 1.65;
/// As [`ROW_CYCLES`], for tiles with few steps.
const SHALLOW_ROW_CYCLES: f64 = 3.3;
/// As [`UNALIGNED_ROW`], for tiles with few steps.
const SHALLOW_UNALIGNED_ROW: f64 = 1.125;
/// Cycles that a line takes to arrive at an SM, even if another block of the cluster has read it, for tiles with few steps.
const SHALLOW_ARRIVAL_CYCLES: f64 = 2.0;

/// Time in ns of launching the kernel that adds the parts of tiles.
const JOIN_LAUNCH: u64 = 6000;
/// Time in ns of this kernel and of determining what it adds, if blocks share no tiles: on an H200, two products took 4.3 and 4.4 µs longer
/// with it (docs/measurements/2026-11-28-assignments-of-tiles.md).
const IDLE_JOIN: u64 = 4400;
/// Time in ns of adding the parts, for each KiB of the tiles of all blocks, if all of them share tiles.
const JOIN_KIB: u64 = 1;

/// Time in ns in which the blocks of a cluster wait for each other before and after they exchange sums.
const EXCHANGE: f64 = 1000.0;
/// Bytes of sums that a block sends to others of its cluster per ns.
const EXCHANGED: f64 = 20.0;

/// Number of rounds of tiles from which idle blocks in the last round do not justify a second kernel.
const ROUNDS: u64 = 8;

/// Number of steps of a tile from which blocks share its depth if there are few tiles.
const DEEP: u64 = 48;
/// Number of steps of a tile up to which writing its results takes as long as computing them.
const SHALLOW: u64 = 4;

/// Returns the time of two activities of these durations that overlap, if the longer one does not hide this fraction of the shorter one.
fn overlapped(a: f64, b: f64, not_hidden: f64) -> f64 {
    a.max(b) + not_hidden * a.min(b)
}

/// Returns the mean time of a row of a box of the factor, relative to one that begins at a sector. `unaligned` is that of a row at any
/// other address.
fn row_time(factor: &Tensor, unaligned: f64) -> f64 {
    let last = factor.dims.len() - 1;
    let bytes = factor.strides[last - 1] * factor.dtype.size();
    if bytes.is_multiple_of(SECTOR) { 1.0 } else { unaligned }
}

impl Tiling {
    /// Returns the time in ns of a step of a block that copies by tensor maps.
    pub(super) fn mapped_step(&self) -> u64 {
        let [cluster_rows, cluster_columns] = self.cluster.unwrap_or([1, 1]);
        // Boxes beyond the last column are not copied.
        let across = self.shape.columns.div_ceil(self.columns);
        let columns = self.shape.columns.div_ceil(across).next_multiple_of(DEPTH).min(self.columns);
        let arithmetic = (self.rows * self.columns * DEPTH) as f64 / PRODUCTS;
        if self.is_shallow() {
            let [row_a, row_b] =
                [0, 1].map(|factor: usize| row_time(&self.sources[factor].tensor, SHALLOW_UNALIGNED_ROW));
            let read = self.rows as f64 / cluster_columns as f64 * row_a + columns as f64 / cluster_rows as f64 * row_b;
            let busy = (self.tiles() as f64 / self.at_once() as f64).min(1.0);
            let arrivals = (self.rows + self.columns) as f64 * SHALLOW_ARRIVAL_CYCLES;
            let copies = (read * SHALLOW_ROW_CYCLES * busy).max(arrivals);
            return (overlapped(copies, arithmetic, SHALLOW_RATES.not_hidden) / SHALLOW_CYCLES) as u64;
        }
        let read = [(0, self.rows, self.rows, cluster_columns), (1, self.columns, columns, cluster_rows)];
        let read = read.into_iter().map(|(factor, tile, length, blocks)| {
            let tensor = &self.sources[factor].tensor;
            // Blocks that copy halves of boxes for each other take as long as those that copy whole ones for themselves.
            let shares = self.lies_along_depth[factor] || (tile / DEPTH).is_multiple_of(blocks);
            row_time(tensor, UNALIGNED_ROW) * length as f64 / if shares { blocks as f64 } else { 1.0 }
        });
        // An SM reads more in a cycle if fewer of them read. Blocks that share deep tiles are on all SMs.
        let is_busy = self.splits && self.depth_steps() >= DEEP;
        let blocks = self.tiles() * self.together();
        let busy = if is_busy { 1.0 } else { (blocks as f64 / UNITS as f64).min(1.0) };
        let copies = read.sum::<f64>() * ROW_CYCLES * busy.sqrt();
        // An instruction reads its 64 rows and all columns of 16 terms, and copies write each row of a box.
        let of_instructions = self.rows / 64 * (DEPTH / 16) * (64 + self.columns) * 16 * 2 / SHARED_ROW;
        let products = arithmetic.max((of_instructions + self.rows + self.columns) as f64);
        let both = (copies.powf(SUM_EXPONENT) + products.powf(SUM_EXPONENT)).powf(1.0 / SUM_EXPONENT);
        ((both + STEP_CYCLES) / CYCLES) as u64
    }

    /// Returns the time in ns of a product of groups of these lengths that reads and writes this many bytes in all, with the kernel that
    /// adds parts.
    pub(super) fn time(&self, bytes: u64, lengths: &Lengths) -> f64 {
        let (steps, shares) = self.fewest_steps(lengths);
        let join = if shares { JOIN_LAUNCH } else { IDLE_JOIN };
        self.time_of(steps, bytes, lengths) + if self.splits { join as f64 } else { 0.0 }
    }

    /// Returns the time in ns of the product's kernel, whose blocks have at most this many steps.
    pub(super) fn time_of(&self, steps: u64, bytes: u64, lengths: &Lengths) -> f64 {
        let of_tile = self.rows.min(self.shape.rows) * self.columns.min(self.shape.columns) * self.resident;
        let rates = if self.is_shallow() { SHALLOW_RATES } else { RATES };
        let written = rates.written[match (self.cluster.is_some(), self.shape.in_depth) {
            (true, true) => 0,
            (true, false) => 1,
            (false, _) => 2,
        }];
        let write =
            ((2 * of_tile) as f64 / written / self.resident as f64).max(rates.min_write) / self.depth_parts as f64;
        let rounds = self.tiles_of(lengths).div_ceil(self.at_once());
        let computed = rates.fill + (steps * self.step) as f64 + rounds as f64 * write;
        let launch = if self.together() > 1 { rates.cluster_launch } else { 0.0 };
        let exchange = match self.depth_parts {
            1 => 0.0,
            parts => {
                let sent = (4 * self.rows * self.columns * (parts - 1)) as f64 / parts as f64;
                rounds as f64 * (EXCHANGE + sent / EXCHANGED)
            }
        };
        overlapped(computed, bytes as f64 / rates.bandwidth, rates.not_hidden) + launch + exchange
    }

    /// Number of steps of a block for this depth of a tile.
    fn own_steps(&self, depth: u64) -> u64 {
        depth.div_ceil(DEPTH).div_ceil(self.depth_parts).max(1)
    }

    /// Number of steps of the depth of a tile.
    pub(super) fn depth_steps(&self) -> u64 {
        let groups = if self.shape.in_depth { self.shape.groups.max(1) } else { 1 };
        (self.shape.depth / groups).div_ceil(DEPTH).max(1)
    }

    /// True if tiles have so few steps that writing results takes as long as computing them. Two blocks on an SM, all
    /// of whose threads copy, can hide that.
    pub(super) fn is_shallow(&self) -> bool {
        self.depth_steps() <= SHALLOW
    }

    /// True if blocks compute so few tiles that some may be idle for long while others compute their last ones.
    pub(super) fn has_few_rounds(&self) -> bool {
        self.tiles() < ROUNDS * self.at_once()
    }

    /// Number of tiles of groups of these lengths; the tiles of a cluster count as one.
    pub(super) fn tiles_of(&self, lengths: &[(u64, u64)]) -> u64 {
        let Shape { in_depth, rows, columns, .. } = self.shape;
        let [tile_rows, tile_columns] = self.tile();
        let of_group = |length: u64| if in_depth { rows } else { length }.div_ceil(tile_rows);
        let of_rows: u64 = lengths.iter().map(|&(length, groups)| of_group(length) * groups).sum();
        of_rows * columns.div_ceil(tile_columns)
    }

    /// Returns the maximum number of steps of a block for groups of these lengths, and whether blocks share tiles, in the fastest way
    /// that the kernel has.
    pub(super) fn fewest_steps(&self, lengths: &Lengths) -> (u64, bool) {
        let at_once = self.at_once();
        // Number of steps of a tile, and number of tiles that have as many.
        let runs: Vec<(u64, u64)> = match self.shape.in_depth {
            true => lengths.iter().map(|run| (self.own_steps(run.0), self.tiles_of(&[*run]))).collect(),
            false => vec![(self.own_steps(self.shape.depth), self.tiles_of(lengths))],
        };
        let all_steps: u64 = runs.iter().map(|(steps, count)| steps * count).sum();
        let (even, full_rounds) = (all_steps / at_once, self.tiles_of(lengths) / at_once);
        // The first block takes the first tile of each round. No other tile of the round has more steps.
        let (mut tiles, mut whole) = (0u64, 0);
        // Whole tiles that blocks compute before they share the rest, and steps of a block for them: full rounds up to the mean of all blocks.
        let (mut own, mut own_steps, mut is_own) = (0, 0, true);
        // Lower bound for any order of whole tiles: if more tiles than blocks have this many steps, some block computes two of them.
        let mut least = even;
        for &(steps, count) in &runs {
            let first = tiles.div_ceil(at_once);
            tiles += count;
            let rounds = tiles.div_ceil(at_once) - first;
            if is_own {
                let full = tiles.div_ceil(at_once).min(full_rounds).saturating_sub(first);
                let fits = full.min(even.saturating_sub(whole) / steps);
                own += fits * at_once;
                own_steps += fits * steps;
                is_own = fits == rounds;
            }
            whole += rounds * steps;
            least = least.max(tiles.div_ceil(at_once) * steps);
        }
        if !self.splits {
            return (whole, false);
        }
        let has_lists = self.shape.in_depth && self.cluster.is_some() && tiles > at_once;
        // Blocks end within the time of a tile, so that the last one ends half of that time after the mean.
        let end = least.max(even + all_steps / tiles.max(1) / 2);
        let lists = if has_lists { end + 2 * self.assignment_steps() } else { u64::MAX };
        let [launch, all_blocks] = self.join_steps();
        let rest = all_steps.saturating_sub(own_steps * at_once);
        // Adding the parts of more blocks than that takes longer than they save.
        let worthwhile = ((rest * at_once) as f64 / all_blocks as f64).sqrt() as u64;
        let is_shared = own > 0 && self.shape.in_depth;
        let wanted = if is_shared { rest } else { (rest / MIN_STEPS).min(worthwhile) };
        let blocks = wanted.clamp(1, at_once);
        // Each block has a part, and another one if a tile begins among its steps.
        let parts = blocks + blocks.min(tiles - own);
        let shared = own_steps + rest.div_ceil(blocks) + all_blocks * parts / at_once;
        let in_whole = whole.min(lists);
        let waits = launch - launch.min(IDLE_JOIN / self.step);
        if shared + waits < in_whole { (shared, true) } else { (in_whole, false) }
    }

    /// Returns the time of adding the parts of tiles, in steps: of the launch, and of the parts if all blocks share
    /// tiles.
    pub(super) fn join_steps(&self) -> [u64; 2] {
        let kib = self.at_once() * self.together() * self.rows * self.columns * 4 / 1024;
        [JOIN_LAUNCH, kib * JOIN_KIB].map(|time| time.div_ceil(self.step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks share the rest of deep tiles, one more than there are units.
    #[test]
    fn a_rest_of_deep_tiles_is_shared() {
        for (depth, shares) in [(3200, true), (40, false)] {
            let tiling = Tiling::of(&product_of(true, [&[133 * depth, 64]; 2], 133));
            assert_eq!(tiling.splits, shares, "{depth} rows each: {}", tiling.describe());
        }
    }

    /// Blocks read a copy of an unaligned factor if tiles have many steps.
    #[test]
    fn factors_of_many_steps_are_copied() {
        for (depth, copies) in [(1336, true), (40, false)] {
            let tiling = Tiling::of(&product_of(false, [&[269, depth], &[2, depth, 137]], 2));
            assert_eq!(tiling.sources[1].offset.is_some(), copies, "{depth}: {}", tiling.describe());
        }
    }
}
