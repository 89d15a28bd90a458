//! Launches of a grouped product: how blocks divide the tiles of all groups.

use super::super::super::layout::in_packs;
use super::super::align::{Source, tensor_map};
use super::lengths::{Lengths, equal_lengths, known_lengths, live_lengths, random_lengths, read};
use super::tiles::{DEPTH, mapped_tiles, row_warps, tile_threads};
use super::*;
use crate::ops::kernels::kernel::{bounds, c_type, kernel, launch, param, u32_param, u64_param};
use crate::ops::kernels::occupancy::{RESERVED_SHARED, UNIT_SHARED, UNITS, WARP};
use crate::ops::kernels::{mma, warpgroups};

/// Division of a grouped product into tiles. A block computes one tile at a time until no tile is left (a persistent
/// kernel).
#[derive(Clone)]
pub struct Tiling {
    pub(super) shape: Shape,
    /// Number of rows of a block's tile.
    pub(super) rows: u64,
    /// Number of columns of a block's tile.
    pub(super) columns: u64,
    /// Number of threads of a block that multiply.
    threads: u64,
    /// Maximum number of warps that divide the rows of a tile, on devices without `wgmma`.
    row_warps: u64,
    /// Maximum number of stages: parts of the depth that shared memory holds at the same time.
    stages: u64,
    /// Number of blocks that an SM or compute unit holds at the same time.
    pub(super) resident: u64,
    /// The two factors as the product reads them.
    pub(super) sources: [Source; 2],
    /// For each factor, true if its rows in memory lie along the depth.
    pub(super) lies_along_depth: [bool; 2],
    /// Number of blocks of a cluster along the rows and along the columns, if blocks copy by tensor maps on a device
    /// that can; `None` if all threads copy.
    pub(super) cluster: Option<[u64; 2]>,
    /// Time in ns that an SM takes for a step of the depth of all its resident blocks.
    pub(super) step: u64,
    /// True if matrix units multiply. Otherwise, each thread computes 4 × 4 elements of a tile.
    by_units: bool,
    /// True if blocks may share the depth of tiles. The kernel decides at run time, from the sizes of the groups.
    pub(super) splits: bool,
    /// Number of blocks of a cluster that divide the depth of each tile, and exchange their sums; 1 if a block has the whole depth.
    pub(super) depth_parts: u64,
    /// Lengths of the groups, for costs only: of equal groups if they are not known.
    lengths: Lengths,
}

/// Bytes of shared memory for the results of a warp, if a block copies factors by tensor maps.
const WARP_RESULTS: u64 = 16 * 176;
/// Bytes of shared memory for a box of results that a warp copies by a tensor map.
const BOX_RESULTS: u64 = 16 * DEPTH * 2;
/// Bytes of shared memory for barriers, if a block copies by tensor maps.
const BARRIERS: u64 = 256;

/// Mean number of rows per group up to which tiles have this number of rows.
const SMALL_ROWS: u64 = 32;

/// Number of elements of shared memory for [`DEPTH`] elements of a row at any alignment, copied in whole packs.
const SHIFTED_WIDTH: u64 = DEPTH + 8;

/// Minimum number of steps in a block's share of the depth: until its first loads arrive, a block could compute two or three.
pub const MIN_STEPS: u64 = 4;

/// Time in ns of a step of tiles of [`SMALL_ROWS`] rows.
const SMALL_STEP: u64 = 400;
/// Maximum number of whole tiles of a block that takes them from a list.
const MAX_OWN: u64 = 64;
/// Time in ns of assigning the tiles of a group to blocks: 26 µs for 34 groups on an H200 (docs/measurements/2026-11-28-lists-of-tiles.md).
const ASSIGNMENT: u64 = 760;

/// Time in ns of building the table of groups, and of each doubling of their number: two scans have a step for it, with two barriers,
/// as long as a block has a thread for each group (docs/measurements/2026-11-29-lost-commands.md).
const TABLE: f64 = 380.0;
const TABLE_STEP: f64 = 330.0;
/// Operations of an SM per ns in the fastest tiles.
const FASTEST: f64 = 5400.0;

/// Time of shifting the packs of an unaligned factor, in seconds per operation of the product: from products of 6 to 43
/// GFLOP on an H100.
const SHIFTING: f64 = 2.5e-15;

/// Bytes of shared memory for all stages of a block that copies by tensor maps.
const STAGES_BYTES: u64 = 200 << 10;

/// Number of SMs on which clusters of four or eight blocks run at the same time. An H200 does not run 16 clusters of eight blocks at once
/// (docs/measurements/2026-11-28-blocks-that-exchange-sums.md).
const LARGE_CLUSTER_UNITS: u64 = 112;

/// Number of blocks that add the parts of tiles.
const JOINERS: u64 = 2 * UNITS;
/// Number of threads of a block that adds the parts of tiles.
const JOIN_THREADS: u32 = 512;

/// Bytes of the description of a shared tile in the workspace.
const SHARED_TILE: u64 = 32;

/// Maximum number of groups for which shared memory holds four stages of the largest tiles as well as the table of
/// groups.
const FEW_GROUPS: u64 = 316;

impl Tiling {
    /// Returns the fastest division for a call, whatever the sizes of its groups, by the estimates of [`Tiling::time`].
    pub fn of(spec: &Spec) -> Tiling {
        let best = Tiling::estimated(spec, &likely_lengths(spec)).into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
        best.expect("tiles of all threads fit where no others do").1
    }

    /// Returns up to `most` divisions whose estimated times are below this multiple of the least, the fastest first. The times are those
    /// for the groups that the text determines, if it does.
    pub fn nearest(spec: &Spec, near: f64, most: usize) -> Vec<Tiling> {
        let known = known_lengths(spec, &Shape::of(spec));
        let mut all = Tiling::estimated(spec, &known.map_or_else(|| likely_lengths(spec), |known| vec![known]));
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let least = all.first().map_or(0.0, |(time, _)| *time);
        all.into_iter().take_while(|(time, _)| *time <= near * least).take(most).map(|(_, tiling)| tiling).collect()
    }

    /// Returns each division with its time in ns: the geometric mean of the estimates for these lengths of groups. Blocks read each factor
    /// as it lies, or a copy with aligned rows.
    fn estimated(spec: &Spec, lengths: &[Lengths]) -> Vec<(f64, Tiling)> {
        let has_units = spec.inputs[0].dtype.size() == 2;
        let [of_a, of_b] = [0, 1].map(|operand: u8| {
            let tensor = &spec.inputs[usize::from(operand)];
            let (given, copy) = (Source::given(operand, tensor), Source::aligned(operand, tensor));
            [Some(given), copy.filter(|_| has_units)].into_iter().flatten()
        });
        let pairs = of_a.flat_map(|a| of_b.clone().map(move |b| [a.clone(), b.after(&a)]));
        pairs.flat_map(|sources| Tiling::with_sources(spec, lengths, sources)).collect()
    }

    /// Returns the divisions with these sources of the factors, and their times in ns.
    fn with_sources(spec: &Spec, lengths: &[Lengths], sources: [Source; 2]) -> Vec<(f64, Tiling)> {
        let shape = Shape::of(spec);
        let copies: f64 = sources.iter().map(Source::copy_time).sum();
        let with = |rows, columns, threads, row_warps, stages, resident| Tiling {
            shape,
            rows,
            columns,
            threads,
            row_warps,
            stages,
            resident,
            sources: sources.clone(),
            lies_along_depth: [!spec.attrs.bool("transpose_a"), spec.attrs.bool("transpose_b")],
            cluster: None,
            depth_parts: 1,
            step: 1,
            by_units: true,
            splits: false,
            lengths: Lengths::new(),
        };
        if spec.inputs[0].dtype.size() > 2 {
            return vec![(0.0, Tiling { by_units: false, ..with(64, 64, 256, 1, 1, 4) })];
        }
        let small = with(SMALL_ROWS, 128, 128, 1, 4, 2).copying(SMALL_STEP);
        // Number of rows of a group if all groups have equal size. Tiles with transposed columns have at least 64
        // columns.
        let mean = shape.rows / shape.groups.max(1);
        let has_copies = sources.iter().any(|source| source.offset.is_some());
        let may_be_small = mean <= SMALL_ROWS && !shape.in_depth && !spec.attrs.bool("transpose_a") && !has_copies;
        let bytes = spec.inputs.iter().chain(&spec.outputs).map(Tensor::bytes).sum();
        let can_map = sources.iter().all(Source::is_aligned);
        // Times of steps on an H100 (docs/measurements/2026-11-26-products.md); that of the second is an estimate from an H200.
        let copied = [
            with(192, 256, 384, 3, 4, 1).copying(1400),
            with(128, 256, 256, 2, 4, 1).copying(960),
            with(128, 128, 256, 2, 3, 2).copying(1100),
            with(64, 128, 128, 2, 4, 2).copying(680),
        ];
        let mapped = mapped_tiles(spec.attrs.bool("transpose_b")).map(|(rows, columns, cluster)| {
            let (threads, ..) = tile_threads(rows);
            let stages = STAGES_BYTES / (2 * DEPTH * (rows + columns));
            let row_warps = row_warps(rows, columns, threads / WARP);
            Tiling { cluster: Some(cluster), ..with(rows, columns, threads, row_warps, stages, 1) }
        });
        // Blocks without common rows or columns can divide the depth of a tile instead.
        let mapped = mapped.flat_map(|tiling| {
            let parts = if tiling.together() > 1 { &[1][..] } else { &[1, 2, 4, 8] };
            parts.iter().map(move |&depth_parts| {
                let tiling = Tiling { depth_parts, ..tiling.clone() };
                Tiling { step: tiling.mapped_step(), ..tiling }
            })
        });
        let fits = |tiling: &Tiling| {
            let has_room = tiling.rows < 192 || shape.groups <= FEW_GROUPS;
            let is_copied = !may_be_small && (!can_map || tiling.is_shallow());
            has_room && tiling.can_exchange() && if tiling.cluster.is_some() { can_map } else { is_copied }
        };
        let others = copied.into_iter().chain(mapped).filter(fits);
        // A division of short groups matters as much as one of long groups.
        let timed = |tiling: Tiling| {
            let times = lengths.iter().map(|lengths| tiling.time(bytes, lengths));
            (copies + times.product::<f64>().powf(1.0 / lengths.len() as f64), tiling)
        };
        let all = may_be_small.then_some(small).into_iter().chain(others);
        let shared = |tiling: &Tiling| (tiling.depth_parts == 1 && tiling.has_few_rounds()).then(|| tiling.sharing());
        all.flat_map(|tiling| [shared(&tiling), Some(tiling)]).flatten().map(timed).collect()
    }

    /// Returns the tiles and what blocks share, for notes.
    pub fn describe(&self) -> String {
        let [rows, columns] = self.cluster.unwrap_or([1, 1]);
        let together = match self.depth_parts {
            1 if rows * columns == 1 => String::new(),
            1 => format!(" in clusters of {rows} × {columns}"),
            parts => format!(" in clusters of {parts} parts of the depth"),
        };
        let copies = if self.cluster.is_some() { "" } else { " without tensor maps" };
        let shares = if self.splits { ", some shared" } else { "" };
        let copied = |(source, name): (&Source, &str)| source.offset.map(|_| format!(", `{name}` copied"));
        let factors: String = self.sources.iter().zip(["a", "b"]).filter_map(copied).collect();
        format!("tiles of {} × {}{together}{copies}{shares}{factors}", self.rows, self.columns)
    }

    /// Returns the tiling of blocks all of whose threads copy, with the time of a step of aligned factors in ns. Threads shift each pack of
    /// an unaligned factor into place.
    fn copying(self, step: u64) -> Tiling {
        let unaligned = self.sources.iter().filter(|source| !source.in_packs()).count() as f64;
        let flops = 2.0 * (self.rows * self.columns * DEPTH * self.resident) as f64;
        Tiling { step: step + (unaligned * flops * SHIFTING * UNITS as f64 * 1e9) as u64, ..self }
    }

    /// Returns the tiling with blocks that may share the depth of tiles.
    fn sharing(&self) -> Tiling {
        let tiling = Tiling { splits: true, ..self.clone() };
        if tiling.cluster.is_some() { Tiling { step: tiling.mapped_step(), ..tiling } } else { tiling }
    }

    /// Number of blocks of a cluster; 1 without clusters.
    pub(super) fn together(&self) -> u64 {
        self.cluster.map_or(1, |[rows, columns]| rows * columns) * self.depth_parts
    }

    /// True if each block of a cluster that divides the depth has enough steps, and if the stages in the block's shared memory hold the
    /// sums that the other blocks send.
    fn can_exchange(&self) -> bool {
        let has_steps = self.depth_parts == 1 || self.depth_steps() >= self.depth_parts * MIN_STEPS;
        let others = self.table() + self.threads / WARP * WARP_RESULTS + BARRIERS;
        let stage = self.stages_bytes(1, [false; 2]);
        let stages = (UNIT_SHARED - RESERVED_SHARED).saturating_sub(others) / stage;
        has_steps && self.received() <= stages.min(self.stages) * stage
    }

    /// Bytes of the sums that a block of a cluster that divides the depth receives for a tile.
    fn received(&self) -> u64 {
        let warps = self.threads / WARP;
        // A piece has 16 rows and 32 columns.
        let pieces = self.rows * self.columns / (512 * warps);
        (self.depth_parts - 1) * warps * pieces.div_ceil(self.depth_parts) * 2048
    }

    /// Rows and columns that a cluster computes at once.
    pub(super) fn tile(&self) -> [u64; 2] {
        let [rows, columns] = self.cluster.unwrap_or([1, 1]);
        [self.rows * rows, self.columns * columns]
    }

    /// Number of tiles that the resident blocks of the device compute at the same time; the tiles of a cluster count as
    /// one.
    pub(super) fn at_once(&self) -> u64 {
        let units = if self.together() > 2 { LARGE_CLUSTER_UNITS } else { UNITS };
        units * self.resident / self.together()
    }

    /// Bytes of the workspace: copies of factors, partial sums of shared tiles, two for each block, and the tiles'
    /// descriptions.
    fn workspace(&self) -> u64 {
        let of_block = 2 * 4 * self.rows * self.columns + SHARED_TILE;
        self.parts_at() + self.at_once() * self.together() * of_block
    }

    /// Offset in bytes of the partial sums in the workspace, after the copies of factors.
    fn parts_at(&self) -> u64 {
        self.sources.iter().map(Source::end).max().unwrap_or(0).next_multiple_of(512)
    }

    /// Bytes of the table in shared memory: the end of each group, the number of tiles up to it, the steps that
    /// blocks share, and the whole tiles of the block.
    fn table(&self) -> u64 {
        let of_blocks = if self.splits { 4 * (self.at_once() + MAX_OWN + 2) } else { 0 };
        (2 * 4 * (self.shape.groups + 1) + of_blocks).next_multiple_of(512)
    }

    /// Bytes of shared memory for this many stages, and for a step of the factors that are shifted.
    fn stages_bytes(&self, stages: u64, shifts: [bool; 2]) -> u64 {
        let of =
            |length: u64, shifts: bool| length * if shifts { stages * SHIFTED_WIDTH + DEPTH } else { stages * DEPTH };
        2 * (of(self.rows, shifts[0]) + of(self.columns, shifts[1]))
    }

    /// Number of stages: fewer than the tiling's if packs are shifted and the shared memory of an SM has no room for
    /// all.
    fn stages_that_fit(&self, shifts: [bool; 2]) -> u64 {
        if shifts == [false; 2] {
            return self.stages;
        }
        let fits = |&stages: &u64| {
            self.stages_bytes(stages, shifts) + self.table() <= UNIT_SHARED / self.resident - RESERVED_SHARED
        };
        (2..=self.stages).rev().find(fits).unwrap_or(2)
    }

    /// Number of boxes of results of each warp: two if shared memory holds them beside all stages.
    fn rooms(&self) -> u64 {
        let boxes = self.threads / WARP * 2 * BOX_RESULTS;
        let bytes = self.stages_bytes(self.stages, [false; 2]) + self.table() + boxes + BARRIERS;
        if bytes <= UNIT_SHARED - RESERVED_SHARED { 2 } else { 1 }
    }

    /// Time in steps of assigning the tiles of all groups to blocks, one group after the other.
    pub(super) fn assignment_steps(&self) -> u64 {
        (self.shape.groups * ASSIGNMENT).div_ceil(self.step)
    }

    /// Number of tiles of all groups if these have equal sizes; the tiles of a cluster count as one.
    pub(super) fn tiles(&self) -> u64 {
        self.tiles_of(&equal_lengths(&self.shape))
    }

    /// Maximum number of tiles for any sizes of the groups.
    fn most_tiles(&self) -> u64 {
        let Shape { in_depth, groups, rows, columns, .. } = self.shape;
        let [tile_rows, tile_columns] = self.tile();
        let of_rows = match in_depth {
            true => groups * rows.div_ceil(tile_rows),
            false => rows.div_ceil(tile_rows) + groups.min(rows),
        };
        of_rows * columns.div_ceil(tile_columns)
    }

    /// Number of blocks of the product's kernel.
    fn blocks(&self) -> u64 {
        let tiles = if self.splits { self.at_once() } else { self.most_tiles().clamp(1, self.at_once()) };
        tiles * self.together()
    }

    /// Returns the tiling with the number of rows, or of terms of the depth, that belong to groups, for costs: blocks skip the others.
    pub fn of_live(mut self, spec: &Spec) -> Tiling {
        (self.shape, self.lengths) = live_lengths(spec, self.shape);
        self
    }

    /// Returns the cost of each launch.
    pub fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        let Shape { rows, columns, depth, in_depth, groups } = self.shape;
        let of_epilogue = f64::from(finish(spec).expression().flops());
        let results = if in_depth { groups * rows * columns } else { rows * columns };
        let read = read(spec, &self.shape, &self.lengths);
        let written = Spec::bytes_of(&spec.outputs);
        let resident = self.resident as u32;
        let beside = self.blocks().div_ceil(UNITS).min(self.resident) as f64;
        let products = Cost {
            flops: 2.0 * rows as f64 * columns as f64 * depth as f64 + of_epilogue * results as f64,
            read,
            written,
            blocks: self.blocks(),
            share: Cost::WHOLE_UNIT / resident,
            matrix: Some(arithmetic(spec)),
            tiling: super::super::super::Tiling {
                flops: if self.by_units {
                    self.block_time((read + written).total()) * FASTEST / beside * self.blocks() as f64
                } else {
                    0.0
                },
                stores: true,
                ..Default::default()
            },
            ..Cost::default()
        };
        let copies = self.sources.iter().filter_map(Source::copy_cost);
        let joins = self.splits.then(|| {
            let (_, shares) = self.fewest_steps(&self.lengths);
            let parts = if shares { 4 * self.blocks() * self.rows * self.columns } else { 0 };
            Cost {
                read: Traffic::of(Space::Device, parts),
                written: Traffic::of(Space::Device, parts / 4),
                blocks: self.blocks(),
                ..Cost::default()
            }
        });
        copies.chain([products]).chain(joins).collect()
    }

    /// Time of a block in ns, with the table of groups that it makes first. `bytes` are those of all operands.
    fn block_time(&self, bytes: u64) -> f64 {
        let (steps, _) = self.fewest_steps(&self.lengths);
        let is_small = self.rows == SMALL_ROWS;
        let table = TABLE + TABLE_STEP * f64::from(self.shape.groups.next_power_of_two().ilog2());
        table + if is_small { (steps * self.step) as f64 } else { self.time_of(steps, bytes, &self.lengths) }
    }

    /// The kernels of the product, in words; `None` if there is only one.
    pub fn implementation(&self) -> Option<&'static str> {
        let copies = self.sources.iter().any(|source| source.offset.is_some());
        match (copies, self.splits) {
            (false, false) if self.depth_parts > 1 => {
                Some("blocks of a cluster divide the depth of tiles, and exchange their sums")
            }
            (false, false) => None,
            (false, true) => Some("blocks may share the depth of tiles, and a second kernel adds up the parts"),
            (true, false) => Some("kernels first copy factors whose rows are not aligned to 16 bytes"),
            (true, true) => Some(
                "kernels first copy factors whose rows are not aligned to 16 bytes; blocks may share the depth of tiles, and a last \
                 kernel adds up the parts",
            ),
        }
    }

    pub fn launches(&self, spec: &Spec) -> Vec<Launch> {
        let [a, ends] = [0, 2].map(|input| &spec.inputs[input]);
        let c = &spec.outputs[0];
        let Shape { in_depth, groups, rows, columns, depth } = self.shape;
        let turned = ["transpose_a", "transpose_b"].map(|name| spec.attrs.bool(name));
        let [along_a, along_b] = along_groups(spec, &self.shape);
        let strides = |tensor: &Tensor| {
            let last = tensor.dims.len() - 1;
            let group = if last == 2 { tensor.strides[0] } else { 0 };
            Arg::Words(vec![group, tensor.strides[last - 1], tensor.strides[last]])
        };
        let mut params = vec![
            param("const T* a", self.sources[0].arg()),
            param("const T* b", self.sources[1].arg()),
            param("const I* ends", Arg::Operand(2)),
            param("O* c", Arg::Operand(3)),
            param("const Strides sa", strides(&self.sources[0].tensor)),
            param("const Strides sb", strides(&self.sources[1].tensor)),
            param("const Strides sc", strides(c)),
            u64_param("se", ends.strides[0]),
            u32_param("groups", groups),
            u32_param("rows", rows),
            u32_param("columns", columns),
            u32_param("depth", depth),
        ];
        let (_, copiers, registers) = if self.cluster.is_some() { tile_threads(self.rows) } else { (0, 0, [0; 2]) };
        let block = self.threads + copiers;
        let cluster = self.cluster.unwrap_or([1, 1]);
        let types = format!(
            "#undef BOUNDS\n#define BOUNDS CLUSTER_BOUNDS __launch_bounds__({}, {})\n#define MAPS {}\n#define CLUSTER_ROWS {}\n#define CLUSTER_COLUMNS {}\n#define DEPTH_PARTS {}\n#define COPIERS {copiers}\n#define REGISTERS {}\n#define COPIER_REGISTERS {}\ntypedef {} T;\ntypedef {} O;\ntypedef {} I;\n\
             typedef {} C;\n{}#define IN_DEPTH {}\n#define TURNED_A {}\n#define TURNED_B {}\n#define THREADS {}\n#define BM {}\n#define BN {}\n#define BK {DEPTH}\n#define SPLIT {}\n#define ALONG_A {}\n#define ALONG_B {}\n\
             #define MAX_GROUPS {MAX_GROUPS}\n",
            block,
            if self.by_units { self.resident } else { 1 },
            u32::from(self.cluster.is_some()),
            cluster[0],
            cluster[1],
            self.depth_parts,
            registers[0],
            registers[1],
            c_type(a.dtype),
            c_type(c.dtype),
            c_type(ends.dtype),
            c_type(a.dtype.compute()),
            finish(spec).function_text(),
            u32::from(in_depth),
            u32::from(turned[0]),
            u32::from(turned[1]),
            self.threads,
            self.rows,
            self.columns,
            u32::from(self.splits),
            u32::from(along_a),
            u32::from(along_b),
        );
        let (blocks, threads) = (self.blocks(), self.threads as u32);
        let [of_a, of_b] = &self.sources;
        let packs = [!along_a && of_a.in_packs(), !along_b && of_b.in_packs()];
        let lies = [of_a, of_b].map(|source| source.tensor.strides.last() == Some(&1));
        let shifts = [0, 1].map(|factor| self.cluster.is_none() && lies[factor] && !packs[factor]);
        let stages = self.stages_that_fit(shifts);
        let join_steps = self.join_steps();
        if !self.by_units {
            let before = format!("{types}{}", text::SCHEDULE);
            return vec![launch("grouped_gemm_elements", &before, &params, text::ELEMENTS, blocks, threads)];
        }
        let packs_c = in_packs(c, 16 / c.dtype.size());
        // Tensor maps would write rows of the next group, and threads write groups of rows faster
        // (docs/measurements/2026-11-28-rows-of-tensor-maps.md). A box with the swizzle of 128 bytes has rows of 128 bytes.
        let has_boxes = self.cluster.is_some() && self.columns.is_multiple_of(DEPTH);
        let maps_c = in_depth && has_boxes && packs_c && c.dtype.size() == 2 && self.depth_parts == 1;
        let before = format!(
            "{}{types}#define MAPS_C {}\n#define ROOMS {}\n#define PACKS_A {}\n#define PACKS_B {}\n#define LIES_A {}\n#define LIES_B {}\n#define PACKS_C {}\n#define MIN_STEPS {}\n\
             #define JOIN_LAUNCH_STEPS {}\n#define JOIN_STEPS {}\n#define AT_ONCE {}\n#define MAX_OWN {MAX_OWN}\n#define ASSIGNMENT_STEPS {}\n\
             #define MAX_ROW_WARPS {}\n#define MAX_STAGES {}\n#define ALONE {}\n#define TABLE {}\n{}{}{}{}{}{}{}",
            mma::FUNCTIONS,
            u32::from(maps_c),
            self.rooms(),
            packs[0],
            packs[1],
            lies[0],
            lies[1],
            packs_c,
            MIN_STEPS,
            join_steps[0],
            join_steps[1],
            self.at_once(),
            self.assignment_steps(),
            self.row_warps,
            stages,
            u32::from(self.resident == 1),
            self.table(),
            text::SCHEDULE,
            text::TILES,
            shares::SHARES,
            shifted::LOADS,
            stores::STORES,
            if self.cluster.is_some() { bulk::COPIES } else { "" },
            warpgroups::functions(&[warpgroups::product(
                "multiply_together",
                a.dtype,
                self.columns,
                Some(turned[0]),
                !turned[1],
            )]),
        );
        let workspace = Arg::WorkspaceAt { offset: self.parts_at(), bytes: self.workspace() };
        if self.splits {
            params.push(param("Pack<f32, 4>* workspace", workspace.clone()));
        }
        let mut bytes = self.stages_bytes(stages, shifts) + self.table();
        let mut body = format!("{}{}", text::MEMORY, text::UNITS);
        if self.cluster.is_some() {
            let map = |name: &str| format!("const __grid_constant__ TensorMap {name}");
            let maps = ["map_a", "map_b"].map(map);
            // Blocks that share the rows of a tile lie along the columns of the cluster.
            let extents = [extent(self.rows, cluster[1], !turned[0]), extent(self.columns, cluster[0], turned[1])];
            let maps = maps.into_iter().zip(self.sources.iter().zip(extents));
            params.extend(maps.map(|(name, (source, extent))| (name, source.map(extent))));
            if maps_c {
                params.push((map("map_c"), tensor_map(c, MapBase::Operand(3), [DEPTH as u32, 16])));
            }
            let of_warp = if maps_c { self.rooms() * BOX_RESULTS } else { WARP_RESULTS };
            bytes += self.threads / 32 * of_warp + BARRIERS;
            body = format!("{}#if BULK\n{}#else\n{}#endif\n", text::MEMORY, bulk::BODY, text::UNITS);
        }
        let products = kernel("grouped_gemm", &before, &params, &body, blocks, block as u32);
        let mut launches: Vec<Launch> = self.sources.iter().filter_map(Source::copy).collect();
        launches.push(Launch::Kernel(Kernel { shared: Shared::AtMost(bytes as u32), ..products }));
        if self.splits {
            let params = [
                param("O* c", Arg::Operand(3)),
                param("const Strides sc", strides(c)),
                u32_param("columns", columns),
                param("Pack<f32, 4>* workspace", workspace),
            ];
            let before = format!(
                "{before}{}#define BLOCKS {blocks}\n#define JOIN_THREADS {JOIN_THREADS}\n",
                bounds(JOIN_THREADS)
            );
            launches.push(launch("grouped_gemm_join", &before, &params, join::JOIN, JOINERS, JOIN_THREADS));
        }
        launches
    }
}

/// Returns lengths for which a tiling is chosen if the text determines none: those of equal groups, and of a random division.
fn likely_lengths(spec: &Spec) -> Vec<Lengths> {
    let shape = Shape::of(spec);
    vec![equal_lengths(&shape), random_lengths(&shape)]
}

/// For each factor, true if groups divide its rows in memory. A group may begin at any position, so its packs may be unaligned.
fn along_groups(spec: &Spec, shape: &Shape) -> [bool; 2] {
    let [turned_a, turned_b] = ["transpose_a", "transpose_b"].map(|name| spec.attrs.bool(name));
    if shape.in_depth { [!turned_a, turned_b] } else { [turned_a, false] }
}

/// Elements and rows of a copy for a tile of `length` rows or columns, which `blocks` blocks of a cluster share, as the text of the
/// kernel divides it. Rows of the factor lie along the depth or not.
fn extent(length: u64, blocks: u64, along_depth: bool) -> [u32; 2] {
    let rows = match along_depth {
        true => length / blocks,
        false if (length / DEPTH).is_multiple_of(blocks) => DEPTH,
        false => DEPTH / blocks,
    };
    [DEPTH as u32, rows as u32]
}

#[cfg(test)]
mod tests;
