//! Launches of the forward kernels: how thread blocks divide queries and keys.

use super::super::cost::Tiling;
use super::super::layout::in_packs;
use super::cost::{PER_BIAS, SEARCH_EXCHANGES, TileCounts, WAIT, bias_again, searches};
use super::sequences_text::row_blocks;
use super::shape::{Axes, bias, bias_pack, copied_bias};
use super::tiles::{
    HELD, MANY_ROWS, NARROW, OPERATIONS, RESIDENT, SMALL_ROWS, SMALL_TILE_WAITS, STAGES, THREADS, Tiles, WIDE_STAGES,
    WIDEST, whole_tiles,
};
use super::*;
use crate::ops::kernels::kernel::{Parameter, bounds, c_type, geometry_param, kernel, param, u32_param, u64_param};
use crate::ops::kernels::occupancy::{UNIT_SHARED, UNITS, share};
use crate::ops::kernels::{mma, warpgroups};

/// Largest head dimension of the kernel for matrix units, which holds tiles of keys and values in shared memory.
const LARGEST_TILE: u64 = 256;

/// Minimum number of keys per block when several blocks share the keys of a row. A second kernel then combines their
/// results, which costs more than it saves for fewer keys.
const MIN_KEYS: u64 = 128;

/// [`MIN_KEYS`] of blocks with at most [`SMALL_ROWS`] rows, which mostly wait for memory.
const MIN_KEYS_SMALL: u64 = 64;

/// Instructions per score: scale, exponential, sum, maximum, and rounding.
const PER_SCORE: f64 = 6.0;

/// Instructions of the kernel that merges results, per element of a part.
const PER_PART: u64 = 4;
/// Instructions of the kernel that merges results, per element of the result.
const PER_MERGE: u64 = 30;

/// Largest mean number of keys of packed sequences for which a block has the rows of one warpgroup. With few keys, a block mostly waits for its
/// queries, its few tiles and its results. An SM holds two blocks of one warpgroup, so that one of them computes while the other waits.
const SHORT_KEYS: u64 = 1024;

/// Throughput of the products of these kernels divided by that of the library's products: the tiles of the kernels are smaller. With
/// [`MANY_ROWS`], it is that of one block on an SM.
const RATE: f64 = 0.8;

/// Time in ns per operation of the products of one block on an SM of an H100.
const PER_OPERATION: f64 = 1.0 / OPERATIONS;
/// Time in ns per instruction that one block on an SM of an H100 issues.
const PER_ISSUE: f64 = 1.0 / 182.0;
/// Time in ns per instruction of one thread of a block on an H100.
const PER_STEP: f64 = 1.1;
/// Bytes per ns that an SM of an H100 reads from the L2 cache.
const CACHE_RATE: f64 = 45.0;

/// Accesses for which a block of a paged call waits before its first keys: the length of its sequence, and its pages.
const PAGE_WAITS: f64 = 2.0;
/// Exchanges of a block that take as long as a launch of clusters takes besides that of blocks: 2.5 µs, as for grouped products with few steps.
const CLUSTER_EXCHANGES: f64 = 24.0;

/// Division of the work of the forward kernel among thread blocks.
pub struct ForwardPartition {
    pub shape: Shape,
    /// Tiles of the matrix units; `None` for the kernel without them, which has 32 threads for each row.
    tiles: Option<Tiles>,
    /// Number of heads whose queries are the rows of one index of the geometry.
    together: u64,
}

impl ForwardPartition {
    /// Returns the division of the work for a call of the forward operation.
    pub fn of(spec: &Spec) -> ForwardPartition {
        let shape = Shape::of(spec);
        let narrow = matches!(spec.inputs[0].dtype, DType::F16 | DType::BF16) && spec.attrs.word("algorithm") != NAIVE;
        let widest = shape.size.max(shape.value_size);
        if !narrow || widest > WIDEST {
            return ForwardPartition { shape, tiles: None, together: 1 };
        }
        let (large, wide) = (widest > LARGEST_TILE / 2, widest > LARGEST_TILE);
        let largest = match (wide, large) {
            (true, _) => Tiles::wide_rows(&shape),
            (_, true) => 64,
            _ => MANY_ROWS,
        };
        // If the queries of one head do not fill a block, heads that share its keys are processed together; also if the blocks of
        // all heads then need fewer waves, since the last block of a head is rarely full.
        let waves = |together: u64| {
            let blocks = shape.batch * shape.heads / together * row_blocks(&shape, shape.queries * together, largest);
            blocks.div_ceil(UNITS * if (large && !wide) || widest <= NARROW { RESIDENT } else { 1 })
        };
        let together = if shape.queries < largest || waves(shape.group) < waves(1) { shape.group } else { 1 };
        let rows = shape.queries * together;
        let heads = shape.batch * shape.heads / together;
        if wide {
            let tiles = Tiles::of_wide(&shape, heads * row_blocks(&shape, rows, largest).max(1));
            return ForwardPartition { tiles: Some(tiles), shape, together };
        }
        // A block has at most the rows of one packed sequence. A warpgroup has 64 rows, also where sequences have fewer.
        let of_sequence = shape.sequences.map_or(rows, |sequences| rows.div_ceil(sequences.max(1)).max(64));
        let short = of_sequence <= 64 || shape.sequences.is_some_and(|sequences| shape.keys <= SHORT_KEYS * sequences);
        let (block_rows, row_warps) = match of_sequence {
            0..=16 if !large => (16, [1, 1]),
            0..=32 => (32, [2, 2]),
            // Three quarters of the SMs with large blocks are as fast as all of them with small ones.
            _ if large || short || heads * rows.div_ceil(MANY_ROWS) * 4 < UNITS * 3 => (64, [4, 4]),
            _ => (MANY_ROWS, [4, 8]),
        };
        let others = match widest {
            // The steps of a warp wait for each other. With 128 keys, a warp of few rows has two chains of steps.
            0..=64 if block_rows == largest || block_rows <= SMALL_ROWS => 128,
            0..=128 => 64,
            _ => 32,
        };
        let keys = match block_rows == MANY_ROWS {
            true => [if widest <= NARROW { 64 } else { 128 }, 128, others],
            false => [others; 3],
        };
        let (width, value_width) = (whole_tiles(shape.size), whole_tiles(shape.value_size));
        let mut tiles = Tiles {
            rows: block_rows,
            keys,
            row_warps,
            width,
            value_width,
            wide,
            bias: copied_bias(spec),
            warpgroups: 2 * block_rows == if block_rows == MANY_ROWS { 2 * THREADS } else { THREADS },
            splits: 1,
            cluster: 1,
        };
        let blocks = (heads * rows.div_ceil(block_rows)).max(1);
        if shape.sequences.is_none() {
            let least = if block_rows <= SMALL_ROWS { MIN_KEYS_SMALL } else { MIN_KEYS };
            let part = 4.0 * heads as f64 * (rows * shape.value_size) as f64;
            (tiles.splits, tiles.cluster) = tiles.divided(shape.keys, blocks, shape.keys / least, part);
        }
        ForwardPartition { tiles: Some(tiles), shape, together }
    }

    /// True if warps divide the columns of wide heads.
    pub fn is_wide(&self) -> bool {
        self.tiles.as_ref().is_some_and(|tiles| tiles.wide)
    }

    /// True if the kernel multiplies tiles with matrix units.
    pub fn has_tiles(&self) -> bool {
        self.tiles.is_some()
    }

    /// Number of rows of each index of the geometry: all queries of the heads that are processed together.
    fn rows(&self) -> u64 {
        self.shape.queries * self.together
    }

    /// Number of indices of the geometry.
    fn indices(&self) -> u64 {
        self.shape.batch * self.shape.heads / self.together
    }

    /// Number of blocks of the first kernel.
    fn blocks(&self) -> u64 {
        match &self.tiles {
            Some(tiles) => self.indices() * row_blocks(&self.shape, self.rows(), tiles.rows) * tiles.splits,
            None => (self.indices() * self.rows()).div_ceil(THREADS / WARP),
        }
    }

    /// Returns the cost of each kernel, in the order of [`ForwardPartition::kernels`].
    pub fn costs(&self, spec: &Spec) -> Vec<Cost> {
        let first = self.cost(spec);
        let Some(tiles) = self.tiles.as_ref().filter(|tiles| tiles.splits > 1) else { return vec![first] };
        let parts =
            Traffic::of(Space::Device, if tiles.splits > tiles.cluster { self.workspace() / tiles.cluster } else { 0 });
        let written = Spec::bytes_of(&spec.outputs);
        let (threads, merge) = (self.indices() * self.rows() * self.shape.value_size, self.merge_kernel(spec, tiles));
        let merged = Cost {
            instructions: (threads * (PER_PART * tiles.splits / tiles.cluster + PER_MERGE)) as f64,
            written,
            scratch: parts,
            exchanges: 2.0,
            blocks: merge.grid.iter().product::<u64>().max(1),
            share: share(merge.block.iter().product::<u32>().into()),
            ..Cost::default()
        };
        let of_first = if parts == Traffic::NONE { written } else { Traffic::NONE };
        let of_last = if parts == Traffic::NONE { Traffic::NONE } else { written };
        vec![Cost { written: of_first, scratch: parts, ..first }, Cost { written: of_last, ..merged }]
    }

    /// Returns the cost of the first kernel.
    fn cost(&self, spec: &Spec) -> Cost {
        let shape = &self.shape;
        let pairs = shape.pairs();
        let elements = (shape.size + shape.value_size) as f64;
        let mut multiplied = 0.0;
        let [of_cap, special_of_cap] = softcap_text::cost(spec);
        let (instructions, share, matrix) = match &self.tiles {
            Some(tiles) => {
                let arithmetic = if spec.inputs[0].dtype == DType::F16 { Arithmetic::F16 } else { Arithmetic::BF16 };
                let of_shared = (tiles.shared() * u64::from(Cost::WHOLE_UNIT)).div_ceil(UNIT_SHARED) as u32;
                let of_block = Cost::WHOLE_UNIT.div_ceil(tiles.held() as u32);
                let of_a_score = PER_SCORE + if input(spec, BIAS).is_some() { PER_BIAS } else { 0.0 } + of_cap;
                let scores = self.scores(tiles);
                let rate = if tiles.wide { tiles.wide_rate() } else { RATE };
                multiplied = 2.0 * scores * (tiles.width + tiles.value_width) as f64 / rate;
                // Blocks with all columns of wide heads rescale the sums after each tile.
                let rescaled = if tiles.wide { tiles.value_width as f64 / tiles.keys[0] as f64 } else { 0.0 };
                ((of_a_score + rescaled) * scores, of_shared.min(Cost::WHOLE_UNIT).max(of_block), Some(arithmetic))
            }
            // Each thread multiplies its elements; shuffles sum the results over 32 threads. Every row reads the keys and values.
            None => (pairs * (elements + WARP as f64 * (16.0 + of_cap)), share(THREADS), None),
        };
        Cost {
            flops: 2.0 * pairs * elements,
            instructions,
            special: (1.0 + special_of_cap) * pairs,
            read: self.read(spec),
            reread: match self.tiles {
                Some(_) => bias_again(spec, pairs),
                None => Traffic::of(Space::Device, (pairs * elements) as u64 * spec.inputs[1].dtype.size()),
            },
            written: Spec::bytes_of(&spec.outputs),
            waits: self.tiles.as_ref().map_or(0.0, |tiles| {
                // A bias that warps do not copy beforehand makes each tile wait.
                let waits_for_bias = input(spec, BIAS).is_some() && tiles.bias == 0;
                self.waits(tiles) + if waits_for_bias { self.of_block(tiles) } else { 0.0 }
            }),
            exchanges: self.tiles.as_ref().map_or(0.0, |tiles| {
                let joined = if tiles.cluster > 1 { CLUSTER_EXCHANGES } else { 0.0 };
                3.0 + joined + SEARCH_EXCHANGES * searches(shape)
            }),
            blocks: self.blocks().max(1),
            share,
            matrix,
            alternates: matrix.is_some(),
            rate_alone: self.tiles.as_ref().is_some_and(|tiles| tiles.rows == MANY_ROWS),
            tiling: Tiling { flops: multiplied, ..Tiling::default() },
            ..Cost::default()
        }
    }

    /// Tiles of scores that blocks compute.
    fn visited(&self, tiles: &Tiles) -> TileCounts {
        match self.together > 1 {
            // A block has the queries of several heads, which attend to nearly the same keys.
            true => {
                let all = self.shape.parts().unwrap_or_else(|| vec![(self.shape.clone(), self.shape.batch)]);
                let of_part = |(part, count): &(Shape, u64)| {
                    let blocks =
                        count * part.heads / self.together * (part.queries * self.together).div_ceil(tiles.rows);
                    let each = part.keys.div_ceil(tiles.keys[0]);
                    TileCounts { blocks, all: blocks * each, longest: each }
                };
                all.iter().map(of_part).fold(TileCounts::NONE, TileCounts::beside).shared(tiles.splits)
            }
            false => {
                TileCounts::of(&self.shape, self.indices(), (tiles.rows, tiles.keys[0]), false).shared(tiles.splits)
            }
        }
    }

    /// Number of accesses for which a block waits: before its first tile, after its last, and for each tile that takes longer
    /// to load than the tile before takes to multiply.
    fn waits(&self, tiles: &Tiles) -> f64 {
        let scores = (tiles.rows * tiles.keys[0]) as f64;
        let multiplied = 2.0 * scores * (tiles.width + tiles.value_width) as f64 / RATE * PER_OPERATION;
        let issued = PER_SCORE * scores * (PER_ISSUE + PER_STEP / tiles.threads() as f64);
        let accesses = if tiles.rows <= SMALL_ROWS { SMALL_TILE_WAITS } else { 1.0 };
        let of_tile = (accesses - (multiplied + issued) / WAIT).max(0.0);
        let of_pages = if self.shape.page.is_some() { PAGE_WAITS } else { 0.0 };
        if tiles.wide {
            return 2.0 + of_pages + searches(&self.shape) + tiles.edge_bytes() as f64 / (CACHE_RATE * WAIT);
        }
        2.0 + of_pages + searches(&self.shape) + of_tile * tiles.waited(self.of_block(tiles))
    }

    /// Number of tiles of scores of each block, if all had as many.
    fn of_block(&self, tiles: &Tiles) -> f64 {
        self.visited(tiles).of_block(UNITS * tiles.held(), self.blocks())
    }

    /// Number of scores of whole tiles.
    fn scores(&self, tiles: &Tiles) -> f64 {
        self.of_block(tiles) * (self.blocks() * tiles.rows * tiles.keys[0]) as f64
    }

    /// Bytes read. Each page of a pool counts at most once, and no more pages count than the sequences have.
    fn read(&self, spec: &Spec) -> Traffic {
        let Some(page) = self.shape.page else { return Spec::bytes_of(&spec.inputs) };
        let blocks = spec.inputs[1].dims[0];
        let used = match &self.shape.lengths {
            Some(lengths) => lengths.iter().map(|[_, keys]| keys.div_ceil(page.max(1))).sum(),
            None => spec.inputs[3].elements(),
        };
        let of_pool = |tensor: &Tensor| Traffic::of(tensor.space, tensor.bytes() / blocks.max(1) * used.min(blocks));
        let pool: Traffic = spec.inputs[1..3].iter().map(of_pool).sum();
        Spec::bytes_of(&spec.inputs[..1]) + pool + Spec::bytes_of(&spec.inputs[3..])
    }

    /// Bytes of the partial results of blocks that share keys: `o` and `lse` of each part.
    fn workspace(&self) -> u64 {
        let splits = self.tiles.as_ref().map_or(1, |tiles| tiles.splits);
        let rows = self.indices().saturating_mul(self.rows()).saturating_mul(splits);
        rows.saturating_mul(self.shape.value_size + 1).saturating_mul(4)
    }

    /// Returns the geometry over the heads that the blocks process, with the strides of q, k, v, o, lse and the
    /// optional operands.
    fn geometry(&self, spec: &Spec) -> Geometry {
        let mut tensors = vec![&spec.inputs[0], &spec.inputs[1], &spec.inputs[2], &spec.outputs[0], &spec.outputs[1]];
        tensors.extend(self.shape.page.iter().flat_map(|_| &spec.inputs[3..]));
        let bias = bias(spec);
        tensors.extend(&bias);
        let q = &spec.inputs[0].dims;
        let (lead, rows) = (q.len().saturating_sub(3), Axes::of_rows(q.len()));
        let group = self.shape.group / self.together;
        let (mut dims, mut strides) = (Dims::from_slice(&q[..lead]).unwrap_or_default(), Vec::new());
        dims.push(self.shape.heads / self.shape.group);
        dims.push(group);
        for (index, tensor) in tensors.into_iter().enumerate() {
            if index > 4 && bias.is_none() {
                // The heads of a sequence share pages and lengths.
                strides.push(Dims::from_slice(&[tensor.strides[0], 0, 0]).expect("three dimensions"));
                continue;
            }
            // The sequences share a pool.
            let is_pool = self.shape.page.is_some() && (1..=2).contains(&index);
            let mut own = match is_pool {
                true => Dims::from_slice(&[0]).expect("a dimension"),
                false => Dims::from_slice(&tensor.strides[..lead]).unwrap_or_default(),
            };
            let axes = if index < 4 { self.shape.axes } else { rows };
            let step = axes.heads_of(&tensor.strides) * u64::from(axes.heads.is_some());
            let shared = index == 1 || index == 2;
            own.push(if shared { step } else { step * self.shape.group });
            own.push(if shared { 0 } else { step });
            strides.push(own);
        }
        layout::collapse(dims, &strides)
    }

    /// Returns the kernels in the order of their launches: one that computes the results, or parts of them that the
    /// second one combines.
    pub fn kernels(&self, spec: &Spec) -> Vec<Kernel> {
        let Some(tiles) = &self.tiles else { return vec![self.rows_kernel(spec)] };
        let mut all = vec![self.tiles_kernel(spec, tiles)];
        if tiles.splits > 1 {
            all.push(self.merge_kernel(spec, tiles));
        }
        all
    }

    /// Returns the parameters that all forward kernels have.
    fn parameters(&self, spec: &Spec) -> Vec<Parameter> {
        let geometry = self.geometry(spec);
        let [q, k, v] = [0, 1, 2].map(|input| &spec.inputs[input]);
        let outputs = spec.inputs.len() as u8;
        let mut params = vec![
            param("const T* q", Arg::Operand(0)),
            param("const T* k", Arg::Operand(1)),
            param("const T* v", Arg::Operand(2)),
            param("O* o", Arg::Operand(outputs)),
            param("L* lse", Arg::Operand(outputs + 1)),
            geometry_param("g", &geometry),
        ];
        let q_rank = q.dims.len();
        let all = [(q, "sq"), (k, "sk"), (v, "sv"), (&spec.outputs[0], "so"), (&spec.outputs[1], "sl")];
        params.extend(all.into_iter().enumerate().map(|(index, (tensor, name))| {
            let axes = if index < 4 { Some(self.shape.axes) } else { None };
            param(format!("const Steps {name}"), steps(tensor, axes, q_rank))
        }));
        params.extend(size_params(&self.shape, &[("rows", self.rows())]));
        if self.shape.page.is_some() {
            params.extend([
                param("const P* pages", Arg::Operand(3)),
                param("const N* lengths", Arg::Operand(4)),
                u64_param("pool_blocks", k.dims[0]),
                u64_param("k_page", k.strides[0]),
                u64_param("v_page", v.strides[0]),
                u64_param("column", spec.inputs[3].strides[1]),
            ]);
        }
        params.extend(sequences_text::params(spec));
        if let Some(bias) = bias(spec) {
            let place = input(spec, BIAS).expect("there is a bias") as u8;
            params.push(param(format!("const {}* bias", c_type(bias.dtype)), Arg::Operand(place)));
            params.push(param("const Steps sb", steps(&bias, Some(Axes::of_rows(q_rank)), q_rank)));
        }
        params
    }

    fn types(&self, spec: &Spec, threads: u64) -> String {
        let (more, has_bias) = (sequences_text::definitions(spec), input(spec, BIAS).is_some());
        let pool = match self.shape.page {
            Some(page) => {
                let [pages, lengths] = [3, 4].map(|input| c_type(spec.inputs[input].dtype));
                format!("#define PAGED 1\n#define PAGE {}\ntypedef {pages} P;\ntypedef {lengths} N;\n", page.max(1))
            }
            None => format!("#define PAGED 0\n{more}"),
        };
        format!(
            "{}{}typedef {} T;\ntypedef {} O;\ntypedef {} L;\n#define THREADS {threads}\n#define OPERANDS {}\n\
             #define GROUP {}\n#define CAUSAL {}\n{}",
            bounds(threads as u32),
            pool,
            c_type(spec.inputs[0].dtype),
            c_type(spec.outputs[0].dtype),
            c_type(spec.outputs[1].dtype),
            5 + if self.shape.page.is_some() { 2 } else { u64::from(has_bias) },
            self.together,
            self.shape.causal,
            bias_text::definitions(spec, if self.is_wide() { 0 } else { bias_pack(spec) })
                + &softcap_text::definitions(spec),
        )
    }

    fn tiles_kernel(&self, spec: &Spec, tiles: &Tiles) -> Kernel {
        let workspace = if tiles.splits > 1 { self.workspace() } else { 0 };
        let mut params = self.parameters(spec);
        params.extend([
            param("f32 scale", Arg::F32((self.shape.scale * std::f64::consts::LOG2_E) as f32)),
            u32_param("splits", tiles.splits),
            param("f32* parts", Arg::Workspace(workspace)),
        ]);
        let packs = spec.inputs[..3].iter().all(|tensor| in_packs(tensor, 8));
        let (dtype, [together, units, others], rows) = (spec.inputs[0].dtype, tiles.keys, tiles.row_warps);
        // Groups of four warps divide the keys and the columns of wide heads, and read the weights of all.
        let (divided, weights) = if tiles.wide { (2, Some(false)) } else { (1, None) };
        let before = format!(
            "{}{}#define BM {}\n#define HOPPER_KEYS {together}\n#define UNIT_KEYS {units}\n#define OTHER_KEYS {others}\n\
             #define UNIT_ROW_WARPS {}\n#define OTHER_ROW_WARPS {}\n#define UNIT_STAGES {}\n#define CLUSTER_BLOCKS {}\n#define RESIDENT_BLOCKS {}\n#define WIDE {}\n#define BY_WARPGROUPS {}\n#define FEW_ROWS {}\n#define WIDTH {}\n#define VALUE_WIDTH {}\n\
             #define PACKS {packs}\n#define PAIRS {}\n#define BIAS_SHARED {}\n{}{}{}{}{}{}{}{}",
            mma::FUNCTIONS,
            self.types(spec, tiles.threads()),
            tiles.rows,
            rows[0],
            rows[1],
            if tiles.wide { WIDE_STAGES } else { STAGES },
            tiles.cluster,
            tiles.resident(),
            u32::from(tiles.wide),
            u32::from(tiles.warpgroups),
            u32::from(tiles.rows <= SMALL_ROWS && !tiles.wide && self.rows() <= 8),
            tiles.width,
            tiles.value_width,
            in_packs(&spec.outputs[0], 2),
            tiles.mma_shared(),
            bias_text::BIAS,
            text::PLACES,
            sequences_text::SEQUENCES,
            merge_text::CLUSTERS,
            merge_text::CLUSTER_FUNCTIONS,
            text::DEVICES,
            text::TILES,
            warpgroups::functions(&[
                warpgroups::product("scores_of", dtype, together / divided, Some(false), false),
                warpgroups::product("values_of", dtype, tiles.value_width / divided, weights, true),
            ]),
        );
        let (memory, of_tiles) =
            if tiles.wide { (wide_text::MEMORY, wide_text::LOOP) } else { (text::MEMORY, text::LOOP) };
        let body = [memory, text::RANGE, of_tiles, text::RESULTS].concat();
        let bytes = tiles.shared() as u32;
        Kernel {
            shared: Shared::AtMost(bytes),
            ..kernel("attention", &before, &params, &body, self.blocks(), tiles.threads() as u32)
        }
    }

    fn merge_kernel(&self, spec: &Spec, tiles: &Tiles) -> Kernel {
        let count = self.indices() * self.rows();
        let mut params = self.parameters(spec);
        params.extend([
            u64_param("count", count),
            u32_param("splits", tiles.splits),
            param("f32* parts", Arg::Workspace(self.workspace())),
        ]);
        // Threads hold all parts, so that they wait for memory once.
        let divisions = match tiles.splits.div_ceil(HELD) {
            1 => 1,
            several => several.next_power_of_two().max(THREADS / WARP),
        };
        let threads = THREADS.max(divisions * WARP);
        let before = format!(
            "{}#define CLUSTER_BLOCKS {}\n#define DIVISIONS {divisions}\n#define HELD {HELD}\n{}{}",
            self.types(spec, threads),
            tiles.cluster,
            text::PLACES,
            merge_text::CLUSTERS,
        );
        let blocks = count * self.shape.value_size.div_ceil(threads / divisions);
        Kernel {
            without_clusters: tiles.splits == tiles.cluster,
            ..kernel("attention_merge", &before, &params, merge_text::MERGE, blocks, threads as u32)
        }
    }

    fn rows_kernel(&self, spec: &Spec) -> Kernel {
        let compute = spec.inputs[0].dtype.compute();
        let mut params = self.parameters(spec);
        params.push(param("C scale", Arg::real(compute, self.shape.scale)));
        params.push(u64_param("count", self.indices() * self.rows()));
        let before = format!(
            "{}typedef {} C;\n#define EACH_Q {}\n#define EACH_V {}\n{}{}",
            self.types(spec, THREADS),
            c_type(compute),
            self.shape.size.div_ceil(WARP).max(1),
            self.shape.value_size.div_ceil(WARP).max(1),
            text::PLACES,
            sequences_text::SEQUENCES,
        );
        kernel("attention_rows", &before, &params, rows_text::ROWS, self.blocks(), THREADS as u32)
    }
}

/// Returns parameters for the sizes in `own`, and for those of the shape.
pub fn size_params(shape: &Shape, own: &[(&str, u64)]) -> Vec<Parameter> {
    let of_shape = [
        ("queries", shape.queries),
        ("keys", shape.keys),
        ("d", shape.size),
        ("dv", shape.value_size),
        ("window", shape.window),
    ];
    let size = |(name, size): (&str, u64)| {
        let size = u32::try_from(size).expect("`needs_attention` bounds the positions of heads that share keys");
        param(format!("u32 {name}"), Arg::U32(size))
    };
    own.iter().copied().chain(of_shape).map(size).collect()
}

/// Returns the strides of an operand's positions, heads and elements, in elements. `axes` is `None` for an operand with one number
/// per query; `rank` is the rank of the queries.
pub fn steps(tensor: &Tensor, axes: Option<Axes>, rank: usize) -> Arg {
    let element = if axes.is_some() { tensor.strides[rank - 1] } else { 0 };
    let axes = axes.unwrap_or(Axes::of_rows(rank));
    let head = axes.heads.map_or(0, |axis| tensor.strides[axis]);
    Arg::Words(vec![tensor.strides[axes.positions], head, element])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::kernels::occupancy::RESERVED_SHARED;

    /// Rows of a block of packed sequences that have this many queries on average.
    fn block_rows(sequences: u64, queries: u64, size: u64) -> u64 {
        let q = Tensor::packed(DType::BF16, &[8, sequences * queries, size]);
        let ends = Tensor::packed(DType::I32, &[sequences]);
        let spec = Spec::of_use("ragged_attention", &[], vec![q, q, q, ends, ends], &[None; 2]).expect("a use");
        ForwardPartition::of(&spec).tiles.map_or(0, |tiles| tiles.rows)
    }

    /// A block has at most 227 KiB of shared memory on compute capability 9.0.
    #[test]
    fn blocks_have_room_for_a_bias_in_single_precision() {
        for (queries, size) in
            [16, 32, 64, 4096].into_iter().flat_map(|queries| [64, 128, 256].map(|size| (queries, size)))
        {
            let tensor = Tensor::packed(DType::BF16, &[64, queries, size]);
            let scores = Tensor::packed(DType::F32, &[queries, queries]);
            let spec = Spec::of_use("attention", &[], vec![tensor, tensor, tensor, scores], &[None; 2]).expect("a use");
            let tiles = ForwardPartition::of(&spec).tiles.expect("matrix units");
            assert_eq!(tiles.bias, 4);
            assert!(tiles.shared() <= 227 << 10, "{queries} queries, heads of {size}: {} bytes", tiles.shared());
        }
    }

    #[test]
    fn an_sm_has_room_for_its_resident_blocks() {
        let sizes = [16, 64, 80, 96, 128, 192, 256, 512];
        for (queries, size) in [1, 32, 64, 4096].into_iter().flat_map(|queries| sizes.map(|size| (queries, size))) {
            let [q, k] = [queries, 4096].map(|positions| Tensor::packed(DType::BF16, &[64, positions, size]));
            let spec = Spec::of_use("attention", &[], vec![q, k, k], &[None; 2]).expect("a use");
            let tiles = ForwardPartition::of(&spec).tiles.expect("matrix units");
            let taken = tiles.resident() * (tiles.shared() + RESERVED_SHARED);
            assert!(taken <= UNIT_SHARED, "{queries} queries, heads of {size}: {taken} bytes");
        }
    }

    #[test]
    fn blocks_of_short_packed_sequences_have_the_rows_of_a_warpgroup() {
        assert_eq!(block_rows(64, 32, 128), 64);
        assert_eq!(block_rows(8, SHORT_KEYS, 128), 64);
        assert_eq!(block_rows(8, SHORT_KEYS + 1, 128), MANY_ROWS);
    }
}
