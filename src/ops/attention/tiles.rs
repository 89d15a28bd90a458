//! Tiles of the forward kernels for matrix units.

use super::cost::WAIT;
use super::shape::Shape;
use super::wide_text::VALUE_SLICE;
use crate::ops::kernels::occupancy::{BANDWIDTH, LARGEST_CLUSTER, RESERVED_SHARED, UNIT_SHARED, UNITS, WARP};

/// Threads of a block with fewer than [`MANY_ROWS`] rows: four warps of 32 threads, or two of 64. A block with
/// [`MANY_ROWS`] rows has twice as many.
pub const THREADS: u64 = 128;

/// Rows of the largest blocks.
pub const MANY_ROWS: u64 = 128;

/// Maximum number of blocks that share the keys of a row.
const MAX_SPLITS: u64 = 256;

/// Number of tiles of keys and values that shared memory holds on devices with asynchronous loads: one is multiplied
/// while the others are loaded.
pub const STAGES: u64 = 2;

/// Minimum number of blocks that a compute unit should hold at the same time. Blocks with [`MANY_ROWS`] rows and heads wider than
/// [`NARROW`] have a compute unit to themselves.
pub const RESIDENT: u64 = 2;

/// Maximum number of blocks that a compute unit holds: [`THREADS`] threads each, of up to 128 registers.
const MAX_RESIDENT: u64 = 4;

/// Maximum number of rows of a block that mostly waits for memory.
pub const SMALL_ROWS: u64 = 32;

/// Bytes of keys and values that the blocks of a compute unit load at the same time, so that they read as fast as the memory provides:
/// blocks with at most [`SMALL_ROWS`] rows have one tile each in flight. Narrow heads have small tiles, and need more blocks.
const IN_FLIGHT: u64 = 64 << 10;

/// Largest head dimension for which an SM holds two blocks with [`MANY_ROWS`] rows and `wgmma`: a thread then has 32 scores and 32 sums,
/// which fit half of the registers. One block multiplies while the other computes weights, which takes longer than the products of narrow
/// heads.
pub const NARROW: u64 = 64;

/// Largest head dimension of blocks whose warps divide the columns of the sums.
pub const WIDEST: u64 = 1024;

/// Largest head dimension of values of those blocks with 64 rows; more has 32. Each thread then has 128 sums.
const WIDE_VALUES: u64 = 512;

/// Number of slices that shared memory holds for wide heads on devices with asynchronous loads, without `wgmma`.
pub const WIDE_STAGES: u64 = 4;

/// Columns of queries and keys of a slice.
const SLICE: u64 = 64;

/// Maximum shared memory of a block in bytes: 227 KiB for compute capability 9.0 (CUDA C++ Programming Guide, "Technical
/// Specifications per Compute Capability").
const BLOCK_SHARED: u64 = 227 << 10;

/// Floating-point operations of the matrix units of an H100's SM in a ns.
pub const OPERATIONS: f64 = 5454.0;

/// Time in ns of a kernel that merges parts, without that of their bytes (docs/measurements/2026-11-29-parts-and-ends.md).
const MERGE: f64 = 2200.0;

/// Maximum number of parts of an element that a thread of this kernel holds. With more parts, the warps of a block divide them.
pub const HELD: u64 = 8;

/// Maximum number of tiles per block for which blocks form a cluster. With more, a second kernel that joins the results
/// is faster: a cluster starts only when there is room for all of its blocks, and clusters do not fill the device.
const TILES_IN_CLUSTERS: u64 = 16;

/// Accesses for which a block of few rows waits in each tile: the tile is loaded while the one before is multiplied, which takes less time
/// than the memory's latency.
pub const SMALL_TILE_WAITS: f64 = 2.0;

/// Tiles of keys that a block could have loaded while it loads its queries and stores its sums.
const EDGE: u64 = 2;

/// Sizes of the tiles of a block.
pub struct Tiles {
    /// Number of rows: queries of one or several heads.
    pub rows: u64,
    /// Keys per tile: with `wgmma`, with `mma`, and on devices without NVIDIA's matrix instructions.
    pub keys: [u64; 3],
    /// Number of warps that divide the rows: with `mma`, and on devices without it. The other warps divide the keys of
    /// a tile.
    pub row_warps: [u64; 2],
    /// Head dimension of queries and keys, rounded up to whole tiles.
    pub width: u64,
    /// Head dimension of values, rounded up to whole tiles.
    pub value_width: u64,
    /// True if warps divide the columns of the sums instead of the keys of a tile.
    pub wide: bool,
    /// Bytes of the bias of a score that warps copy to shared memory.
    pub bias: u64,
    /// True if devices with `wgmma` use it: each group of four warps then has 64 rows.
    pub warpgroups: bool,
    /// Number of blocks that share the keys of a row; 1 if a block processes all of them.
    pub splits: u64,
    /// Number of blocks of a cluster: all that share the keys of a row if they join their results in shared memory, on devices with
    /// clusters; 1 if another kernel merges the results.
    pub cluster: u64,
}

impl Tiles {
    /// Number of threads of a block.
    pub fn threads(&self) -> u64 {
        if self.wide || self.rows == MANY_ROWS { 2 * THREADS } else { THREADS }
    }

    /// Number of blocks that a compute unit holds at the same time: for few rows, as many as its shared memory has room for.
    pub fn held(&self) -> u64 {
        match self.rows <= SMALL_ROWS && !self.wide {
            true => (UNIT_SHARED / (self.shared() + RESERVED_SHARED)).clamp(self.resident(), MAX_RESIDENT),
            false => self.resident(),
        }
    }

    /// Number of blocks of a compute unit for which the grid is made: as many as it holds, and for few rows as many as load enough bytes.
    pub fn resident(&self) -> u64 {
        let is_narrow = self.width.max(self.value_width) <= NARROW;
        match self.rows {
            rows if self.wide || (rows == MANY_ROWS && !is_narrow) => 1,
            0..=SMALL_ROWS => {
                let of_tile = 2 * self.keys[1] * (self.width + self.value_width);
                (IN_FLIGHT / of_tile).clamp(RESIDENT, MAX_RESIDENT)
            }
            _ => RESIDENT,
        }
    }

    /// Bytes of shared memory of a block, the maximum over all devices. With `wgmma`, the block holds the queries and
    /// two tiles of keys and values; otherwise the queries and [`STAGES`] tiles or one; at the end, the sums that warps
    /// with different keys exchange.
    pub fn shared(&self) -> u64 {
        if self.wide {
            let slices = WIDE_STAGES * ((self.rows + self.keys[1]) * SLICE).max(self.keys[1] * VALUE_SLICE);
            let (parts, value_parts) = (self.width.div_ceil(SLICE), self.value_width.div_ceil(SLICE));
            let whole = SLICE * (self.rows * parts + self.keys[0] * (parts + value_parts));
            let weights = self.rows * SLICE;
            let largest = 4 * self.rows * (self.threads() / WARP / self.row_warps[0]);
            return 2 * (weights + if self.warpgroups { whole.max(slices) } else { slices }) + largest;
        }
        let whole = |width: u64| width.next_multiple_of(64);
        let double = 2
            * (self.rows * whole(self.width) + 2 * self.keys[0] * (whole(self.width) + whole(self.value_width)))
            + self.rows * self.keys[0] * self.bias;
        let key_warps = self.threads() / WARP / self.row_warps[0];
        let joined = match key_warps > 1 || self.cluster > 1 {
            true => 4 * self.rows * (key_warps * (self.value_width + 10) + 2),
            false => 0,
        };
        let double = if self.warpgroups { double } else { 0 };
        self.mma_shared().max(self.single(self.keys[2], 1)).max(joined).max(double)
    }

    /// Bytes of shared memory that the tiles of a block take with `mma`.
    pub fn mma_shared(&self) -> u64 {
        self.single(self.keys[1], STAGES)
    }

    /// Bytes of the queries, of this many tiles of keys and values, and of the bias of one.
    fn single(&self, keys: u64, stages: u64) -> u64 {
        let row = |width: u64| if width.is_multiple_of(64) { width } else { width + 8 };
        2 * (self.rows * row(self.width) + stages * keys * (row(self.width) + row(self.value_width)))
            + self.rows * keys * self.bias
    }

    /// Returns the number of rows of a block of a wide head.
    pub fn wide_rows(shape: &Shape) -> u64 {
        if shape.value_size > WIDE_VALUES { 32 } else { 64 }
    }

    /// Returns the tiles of a wide head. `blocks` is the number of blocks if none share keys.
    pub fn of_wide(shape: &Shape, blocks: u64) -> Tiles {
        let rows = Tiles::wide_rows(shape);
        let mut tiles = Tiles {
            rows,
            keys: [64; 3],
            row_warps: [rows / 16; 2],
            width: whole_tiles(shape.size),
            value_width: shape.value_size.div_ceil(VALUE_SLICE).max(1) * VALUE_SLICE,
            wide: true,
            bias: 0,
            warpgroups: false,
            splits: 1,
            cluster: 1,
        };
        let fitting = [64, 32].into_iter().find(|&keys| {
            tiles.keys[0] = keys;
            Tiles { warpgroups: true, ..tiles }.shared() <= BLOCK_SHARED
        });
        tiles.warpgroups = rows == 64 && fitting.is_some();
        tiles.keys[0] = fitting.filter(|_| tiles.warpgroups).unwrap_or(64);
        if shape.sequences.is_none() {
            tiles.splits = tiles.fastest_splits(shape, blocks);
        }
        tiles
    }

    /// Throughput of the products of a wide head divided by that of the library's products, since warps multiply, weigh and load one
    /// after the other.
    pub fn wide_rate(&self) -> f64 {
        if self.warpgroups { 0.52 } else { 0.16 }
    }

    /// Bytes that a block of a wide head moves while it multiplies nothing: its queries, the first tile, and its sums.
    pub fn edge_bytes(&self) -> u64 {
        let stored = if self.splits > 1 { 4 } else { 2 };
        2 * (self.rows * self.width + self.keys[0] * (self.width + self.value_width))
            + stored * self.rows * self.value_width
    }

    /// Returns the number of blocks that share the keys of a row, up to `most`, and the blocks of a cluster. Blocks process whole tiles.
    /// Blocks of one cluster merge their results without another kernel. More blocks than a cluster holds have fewer tiles each, and a
    /// merging kernel follows, so that they form no clusters. `blocks` is the number of blocks if none share keys, and `part` the size in
    /// bytes of the sums of all rows over one part of the keys.
    ///
    /// Blocks that the device holds at once share keys until they load enough bytes at the same time. More blocks take several waves. The last
    /// one takes as long as the others, however few blocks it has; with more parts, each wave is shorter.
    pub fn divided(&self, keys: u64, blocks: u64, most: u64, part: f64) -> (u64, u64) {
        let (wanted, places) = (UNITS * self.resident(), UNITS * self.held());
        let is_few = self.rows <= SMALL_ROWS;
        let of_a_wave = if is_few && blocks > places { most } else { most.min(wanted / blocks) };
        let most = of_a_wave.clamp(1, MAX_SPLITS);
        let largest = (wanted / blocks).clamp(1, LARGEST_CLUSTER).min(most);
        let all = keys.div_ceil(self.keys[1]).max(1);
        let flops = 2 * self.rows * self.keys[1] * (self.width + self.value_width);
        let of_tile = (flops as f64 / OPERATIONS).max(SMALL_TILE_WAITS * WAIT);
        let joins = |splits: u64| splits <= largest && all.div_ceil(splits) <= TILES_IN_CLUSTERS;
        let time = |splits: u64| {
            let waves = (blocks * splits).div_ceil(places) as f64;
            let of_wave = (self.waited(all.div_ceil(splits) as f64) + EDGE as f64) * of_tile;
            let merging = MERGE + 2.0 * splits as f64 * part / BANDWIDTH;
            waves * of_wave + if splits == 1 || joins(splits) { 0.0 } else { merging }
        };
        let numbers = largest..=most;
        let fastest = numbers.min_by(|&one, &other| time(one).total_cmp(&time(other))).unwrap_or(1);
        // The fewest blocks that have no more tiles each.
        let splits = all.div_ceil(all.div_ceil(fastest));
        (splits, if joins(splits) { splits } else { 1 })
    }

    /// Returns how often a block waits for this many tiles. It loads its first tiles together and waits for them once; with `wgmma`, it waits
    /// for the values of a tile behind its keys.
    pub fn waited(&self, tiles: f64) -> f64 {
        let first = if self.warpgroups { 1 } else { STAGES };
        (tiles + 1.0 - first as f64).max(1.0)
    }

    /// Returns the number of parts of the keys for which blocks take the least time, by the waves of their products and by the bytes
    /// that they move. The result of a part is written and read once.
    fn fastest_splits(&self, shape: &Shape, blocks: u64) -> u64 {
        let keys = self.keys[1];
        let all = shape.keys.div_ceil(keys).max(1);
        let flops = 2 * self.rows * keys * (self.width + self.value_width);
        let of_tile = flops as f64 / (OPERATIONS * self.wide_rate());
        let heads = shape.batch * shape.heads;
        let loaded = heads / shape.group * shape.keys * (shape.size + shape.value_size) * 2;
        let stored = heads * shape.queries * shape.value_size * 8;
        let time = |splits: u64| {
            let computed = ((blocks * splits).div_ceil(UNITS) * (all.div_ceil(splits) + EDGE)) as f64 * of_tile;
            let (merged, moved) = if splits > 1 { (MERGE, splits * stored) } else { (0.0, 0) };
            computed.max((loaded + moved) as f64 / BANDWIDTH) + merged
        };
        (1..=all.min(MAX_SPLITS)).min_by(|&one, &other| time(one).total_cmp(&time(other))).unwrap_or(1)
    }
}

/// Rounds a head dimension up to whole tiles.
pub fn whole_tiles(size: u64) -> u64 {
    size.div_ceil(16).max(1) * 16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tiles of single queries with heads of this size.
    fn tiles_of_single_queries(size: u64) -> Tiles {
        Tiles {
            rows: 16,
            keys: [64; 3],
            row_warps: [1, 1],
            width: size,
            value_width: size,
            wide: false,
            bias: 0,
            warpgroups: false,
            splits: 1,
            cluster: 1,
        }
    }

    #[test]
    fn blocks_of_single_queries_have_enough_bytes_in_flight() {
        let resident = |size| tiles_of_single_queries(size).resident();
        assert_eq!([64, 80, 96, 128, 256].map(resident), [4, 3, 2, 2, 2]);
    }

    #[test]
    fn blocks_form_a_cluster_or_another_kernel_merges_their_results() {
        let tiles = tiles_of_single_queries(128);
        // An SM has two blocks that load at the same time.
        let divided = |keys: u64, blocks: u64| tiles.divided(keys * 64, blocks, keys, 512.0);
        assert_eq!(divided(8, 264), (1, 1));
        assert_eq!(divided(8, 66), (4, 4));
        // A cluster of eight has four tiles each, and no other kernel follows.
        assert_eq!(divided(32, 8), (8, 8));
        // A merging kernel takes less time than the six tiles that each of 32 blocks saves beside a cluster of eight.
        assert_eq!(divided(64, 8), (32, 1));
        // Blocks with more than 16 tiles form no cluster.
        assert_eq!(divided(800, 66), (4, 1));
        // Blocks with one tile each would take as long as those with two, which they load together.
        assert_eq!(divided(60, 4), (30, 1));
        assert_eq!(Tiles { warpgroups: true, ..tiles_of_single_queries(128) }.divided(60 * 64, 4, 60, 512.0), (60, 1));
        // The results of many rows take longer to merge than the tiles of a cluster.
        assert_eq!(tiles.divided(64 * 64, 8, 64, 1e6), (8, 8));
    }

    #[test]
    fn blocks_of_several_waves_share_keys_if_the_last_wave_is_nearly_empty() {
        let tiles = tiles_of_single_queries(128);
        let places = UNITS * tiles.held();
        assert_eq!(tiles.divided(64 * 64, places, 64, 512.0), (1, 1));
        let (splits, cluster) = tiles.divided(64 * 64, places + 1, 64, 512.0);
        assert!(splits > 1 && cluster == 1, "{splits} parts");
        // Short waves end so soon that merging would take longer.
        assert_eq!(tiles.divided(2 * 64, places + 1, 2, 512.0), (1, 1));
    }
}
