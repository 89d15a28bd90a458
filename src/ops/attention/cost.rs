//! The cost of attention: by the vendor's library, by the kernels of this folder, and by products.

use super::super::cost::{Tiling, Traffic};
use super::*;
use crate::ops::kernels::occupancy::{BANDWIDTH, INSTRUCTIONS, LAUNCH, MATRIX_OPERATIONS, UNITS, VECTOR_OPERATIONS};

/// Instructions per score for the bias: load, conversion, address and addition.
pub const PER_BIAS: f64 = 4.0;

/// Queries and keys of a tile of the library's kernels.
const TILE: u64 = 128;
/// Queries of a tile of the library's kernels for gradients.
const GRADIENT_QUERIES: u64 = 64;
/// Queries of a tile of the library's kernels for single queries.
const FEW_QUERIES: u64 = 16;

/// Threads of a block of the library's kernels for gradients that multiply.
const GRADIENT_THREADS: u64 = 256;
/// Elements of a bias for which such a thread waits once.
const BIAS_PER_WAIT: u64 = 4;

/// Head dimensions for which the library has kernels. It pads others.
const SIZES: [u64; 3] = [64, 128, 256];
/// Head dimensions to which gradients with the same bits in every run are padded: 64 elements take nearly as long as 128, 327 and 353 µs for
/// 8 heads of 4096 queries and keys (docs/measurements/2026-11-28-branches-and-hops.md).
const DETERMINISTIC_SIZES: [u64; 2] = [128, 256];

/// Instructions per score of the library's kernels: scale, exponential, sum, maximum and rounding.
const PER_SCORE: f64 = 5.0;
/// Instructions per score of the library's kernels for gradients, which also compute the gradient of the score and round it.
const PER_SLOPE: f64 = 10.0;

/// Accesses for which a block of the library's kernels waits before its first tile and after its last.
const WAITS: f64 = 2.0;
/// Exchanges for which such a block waits before its first tile and after its last.
const EXCHANGES: f64 = 3.0;
/// Accesses for which a block of the library's kernels for gradients waits.
const GRADIENT_WAITS: f64 = 5.0;
/// Accesses per tile for which a block waits: of single queries, and of the product of the gradients of scores, whose loads no
/// multiplication hides.
const LIBRARY_TILE_WAITS: f64 = 3.0;

/// Keys of a step of the product of the gradients of scores.
const STEP: u64 = 64;

/// Number of packed sequences whose ends a warp reads at once to find the sequence of its block.
const ENDS_AT_ONCE: u64 = 128;
/// Exchanges that take as long as a search among these ends: two sums over lanes, and loads of ends that the SM's cache holds.
pub const SEARCH_EXCHANGES: f64 = 1.0;

/// Time in ns of a wait on an H100.
pub const WAIT: f64 = 342.0;
/// Time in ns of an exchange on an H100.
const EXCHANGE: f64 = 105.0;

/// Tiles of scores that the blocks of a kernel compute, each its own one after the other.
#[derive(Clone, Copy)]
pub struct TileCounts {
    /// Number of blocks.
    pub blocks: u64,
    /// Number of tiles of all blocks.
    pub all: u64,
    /// Number of tiles of the block with most.
    pub longest: u64,
}

impl TileCounts {
    /// Tiles of this many queries and keys, for `heads` heads of all sequences. A block has the queries of a tile, or its keys if
    /// `by_keys`. Packed sequences of unknown lengths count as equally long.
    pub fn of(shape: &Shape, heads: u64, (queries, keys): (u64, u64), by_keys: bool) -> TileCounts {
        if let Some(parts) = shape.parts() {
            let of_each = heads / shape.batch.max(1);
            let tiles = |(part, count): &(Shape, u64)| TileCounts::of(part, of_each * count, (queries, keys), by_keys);
            return parts.iter().map(tiles).fold(TileCounts::NONE, TileCounts::beside);
        }
        let (rows, own) = if by_keys { (shape.keys, keys) } else { (shape.queries, queries) };
        let of_block = |block: u64| {
            let (first, last) = (block * own, ((block + 1) * own).min(rows) - 1);
            let (range, other) =
                if by_keys { (seeing(shape, first, last), queries) } else { (seen(shape, first, last), keys) };
            if range.is_empty() { 0 } else { range.end.div_ceil(other) - range.start / other }
        };
        let blocks = rows.div_ceil(own);
        let (all, longest) = match shape.causal {
            true => (0..blocks).map(of_block).fold((0, 0), |(all, longest), own| (all + own, longest.max(own))),
            false if blocks > 0 => (blocks * of_block(0), of_block(0)),
            false => (0, 0),
        };
        TileCounts { blocks: blocks * heads, all: all * heads, longest }
    }

    /// No tiles.
    pub const NONE: TileCounts = TileCounts { blocks: 0, all: 0, longest: 0 };

    /// The tiles of both, computed by one kernel.
    pub fn beside(self, other: TileCounts) -> TileCounts {
        TileCounts {
            blocks: self.blocks + other.blocks,
            all: self.all + other.all,
            longest: self.longest.max(other.longest),
        }
    }

    /// The same tiles, where several blocks share those of one.
    pub fn shared(self, splits: u64) -> TileCounts {
        TileCounts { blocks: self.blocks * splits, longest: self.longest.div_ceil(splits), ..self }
    }

    /// Returns the tiles of a grid in which one block processes the tiles of `blocks` of these.
    pub fn joined(self, blocks: u64) -> TileCounts {
        TileCounts { blocks: self.blocks.div_ceil(blocks), longest: self.longest * blocks, ..self }
    }

    /// Number of tiles that each block would have if all of a grid had as many and took as long on a device that holds `resident`
    /// blocks. Where blocks differ, one with many tiles may begin when others end. Blocks of the grid beyond those with tiles have none.
    pub fn of_block(self, resident: u64, grid: u64) -> f64 {
        let waves = |blocks: u64| blocks.div_ceil(resident.max(1)).max(1) as f64;
        let (own, longest) = (waves(self.blocks), self.longest as f64);
        let differ = self.all < self.longest * self.blocks;
        let lasts = match own > 1.0 && differ {
            true => (self.all as f64 / resident as f64 + longest / 2.0).min(own * longest),
            false => own * longest,
        };
        lasts / waves(grid)
    }

    /// Number of tiles of a grid whose blocks have [`TileCounts::of_block`] each.
    pub fn even(self, resident: u64, grid: u64) -> f64 {
        self.of_block(resident, grid) * grid as f64
    }
}

/// Bytes of the bias beyond one reading of it, where kernels read it for this number of scores.
pub fn bias_again(spec: &Spec, scores: f64) -> Traffic {
    let Some(bias) = input(spec, BIAS).map(|place| &spec.inputs[place]) else { return Traffic::NONE };
    Traffic::of(bias.space, ((scores * bias.dtype.size() as f64) as u64).saturating_sub(bias.bytes()))
}

/// Number of times that a block reads ends of packed sequences, one after the other, before it knows its own sequence: the mean of the
/// blocks of all sequences. 0 if sequences are not packed.
pub fn searches(shape: &Shape) -> f64 {
    let Some(sequences) = shape.sequences.filter(|&sequences| sequences > 0) else { return 0.0 };
    let all: u64 = (0..sequences).step_by(ENDS_AT_ONCE as usize).map(|first| sequences - first).sum();
    all as f64 / sequences as f64
}

/// Keys that queries `first` to `last` attend to.
pub fn seen(shape: &Shape, first: u64, last: u64) -> std::ops::Range<u64> {
    shape.seen(first).start..shape.seen(last).end.min(shape.keys)
}

/// Queries that attend to any of the keys `first` to `last`.
pub fn seeing(shape: &Shape, first: u64, last: u64) -> std::ops::Range<u64> {
    if !shape.causal {
        return 0..shape.queries;
    }
    // Query `q` attends up to key `q + keys - queries`.
    let query_of = |key: u64| (key + shape.queries).saturating_sub(shape.keys);
    let end = if shape.window > 0 { query_of(last + shape.window).min(shape.queries) } else { shape.queries };
    query_of(first).min(end)..end
}

/// Returns the cost of the cheaper of the library's kernels and of ours, whose costs are `own`.
pub fn cheaper(spec: &Spec, shape: &Shape, own: Vec<Cost>) -> Cost {
    let library = FusedAttention::of(spec).map(|fused| library(spec, shape, &fused));
    match library {
        Some(cost) if time(&cost) < total_time(&own) => cost,
        // The cost of a single launch stands for those of all kernels.
        Some(_) if own.len() > 1 => {
            let has_work = |cost: &&Cost| cost.bytes() + cost.scratch.total() > 0;
            let further = own[1..].iter().filter(has_work).count() as u64;
            let blocks = own.iter().filter(|cost| cost.matrix.is_some()).map(|cost| cost.blocks).max();
            let all: Cost = own.into_iter().sum();
            Cost { blocks: blocks.unwrap_or(all.blocks), tiling: Tiling { further, ..all.tiling }, ..all }
        }
        _ => own.into_iter().sum(),
    }
}

/// Time of kernels that run one after the other, in ns on an H100.
pub fn total_time(costs: &[Cost]) -> f64 {
    costs.iter().map(time).sum()
}

/// Time of kernels in ns on an H100.
fn time(cost: &Cost) -> f64 {
    let fit = u64::from(Cost::WHOLE_UNIT / cost.share.clamp(1, Cost::WHOLE_UNIT));
    let waves = cost.blocks.div_ceil(fit * UNITS) as f64;
    let beside = cost.blocks.div_ceil(UNITS).min(fit) as f64;
    let of_block = UNITS as f64 / cost.blocks as f64 * beside * waves;
    let rate = match cost.matrix {
        Some(Arithmetic::F32 | Arithmetic::F64) => VECTOR_OPERATIONS,
        Some(Arithmetic::Tf32) => MATRIX_OPERATIONS / 2.0,
        _ => MATRIX_OPERATIONS,
    };
    let multiplied = cost.flops.max(cost.tiling.flops) / rate;
    let computed = (multiplied + cost.instructions / INSTRUCTIONS) * of_block;
    let moved = (cost.bytes() + cost.scratch.total() + 2 * cost.tiling.converted) as f64 / BANDWIDTH;
    let waited = waves * (cost.waits * WAIT + cost.exchanges * EXCHANGE);
    (computed + waited).max(moved) + (1 + cost.tiling.further) as f64 * LAUNCH
}

/// The cost of the library's kernels.
fn library(spec: &Spec, shape: &Shape, fused: &FusedAttention) -> Cost {
    let arithmetic = if spec.inputs[0].dtype == DType::F16 { Arithmetic::F16 } else { Arithmetic::BF16 };
    let heads = shape.batch * shape.heads;
    let is_ordered = fused.form == AttentionForm::Backward && fused.deterministic;
    let sizes: &[u64] = if is_ordered { &DETERMINISTIC_SIZES } else { &SIZES };
    let padded = |size: u64| sizes.iter().copied().find(|&most| size <= most).unwrap_or(size) as f64;
    let [size, value_size] = [shape.size, shape.value_size].map(padded);
    let of_a_bias = if input(spec, BIAS).is_some() { PER_BIAS } else { 0.0 };
    let (read, written) = (Spec::bytes_of(&spec.inputs), Spec::bytes_of(&spec.outputs));
    let cost = |tiles: &TileCounts, scores: f64, per_score: f64| Cost {
        instructions: (per_score + of_a_bias) * scores,
        special: scores,
        read,
        written,
        blocks: tiles.blocks.max(1),
        share: Cost::WHOLE_UNIT,
        matrix: Some(arithmetic),
        alternates: true,
        waits: WAITS,
        exchanges: EXCHANGES,
        ..Cost::default()
    };
    let sums = if fused.deterministic { QuerySums::Stored } else { QuerySums::Atomic };
    let calls: u64 = fused.calls(sums).parts.iter().product();
    if fused.form == AttentionForm::Forward {
        let flops = 2.0 * (shape.size + shape.value_size) as f64 * shape.pairs();
        let is_few = shape.queries <= FEW_QUERIES;
        let queries = if is_few { FEW_QUERIES } else { TILE };
        let whole = TileCounts::of(shape, heads, (queries, TILE), false);
        // Blocks share the keys of single queries if there are few heads.
        let splits = if is_few { UNITS.div_ceil(whole.blocks.max(1)).min(whole.longest.max(1)) } else { 1 };
        let tiles = whole.shared(splits);
        let scores = tiles.even(UNITS, tiles.blocks) * (queries * TILE) as f64;
        let multiplied = 2.0 * (size + value_size) * scores;
        // A fill precedes the kernel, or another joins the parts.
        let further = calls * if is_few { 1 + u64::from(splits > 1) } else { 2 } - 1;
        return Cost {
            flops,
            waits: WAITS + if is_few { LIBRARY_TILE_WAITS * tiles.longest as f64 } else { 0.0 },
            tiling: Tiling { flops: multiplied, further, ..Tiling::default() },
            ..cost(&tiles, scores, PER_SCORE)
        };
    }
    let tiles = TileCounts::of(shape, heads, (GRADIENT_QUERIES, TILE), true);
    let scores = tiles.even(UNITS, tiles.blocks) * (GRADIENT_QUERIES * TILE) as f64;
    let flops = 2.0 * (3 * shape.size + 2 * shape.value_size) as f64 * shape.pairs();
    let all = heads * shape.queries * shape.keys;
    // The gradients of scores are stored, and a product reads all of them; or sums of the gradients of queries are added in memory and
    // then converted.
    let (products, stored, read_again) = match fused.deterministic {
        true => (4.0 * (size + value_size), shape.pairs() as u64 * 2, all * 2),
        false => (6.0 * size + 4.0 * value_size, 0, heads * shape.queries * shape.size * 10),
    };
    // A block of the product takes its steps one after the other, while others read memory.
    let steps = if fused.deterministic { shape.keys.div_ceil(STEP) } else { 0 };
    let chain = (LIBRARY_TILE_WAITS * steps as f64 - read_again as f64 / BANDWIDTH / WAIT).max(0.0);
    let waves = tiles.blocks.div_ceil(UNITS).max(1) as f64;
    // A thread loads a bias in pairs of elements, and waits for each sector of 16 elements once.
    let of_bias = match input(spec, BIAS) {
        Some(_) => (GRADIENT_QUERIES * TILE / GRADIENT_THREADS / BIAS_PER_WAIT) as f64,
        None => 0.0,
    };
    // Another kernel sums `dy * o` first, and two add up the gradients of keys and values over the heads that share them.
    let sums = heads * shape.queries * shape.value_size * 4;
    let is_shared = shape.group > 1;
    let joined = if is_shared { heads * shape.keys * (shape.size + shape.value_size) * 2 } else { 0 };
    let further = calls * if is_shared { 6 } else { 4 } - 1;
    Cost {
        flops,
        scratch: Traffic::of(Space::Device, stored),
        waits: GRADIENT_WAITS + chain / waves + of_bias * tiles.of_block(UNITS, tiles.blocks),
        tiling: Tiling {
            flops: products * scores,
            further,
            converted: (sums + read_again + joined) / 2,
            ..Tiling::default()
        },
        ..cost(&tiles, scores, PER_SLOPE)
    }
}
