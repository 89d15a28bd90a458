//! Launches of a grouped product: how blocks divide the tiles of all groups.

use super::super::super::kernel::{c_type, kernel, launch, param, u32_param, u64_param};
use super::super::super::layout::in_packs;
use super::super::super::mma;
use super::super::super::occupancy::UNITS;
use super::super::super::warpgroups;
use super::*;

/// Division of a grouped product into tiles. A block computes one tile at a time and takes tiles until none is left (a
/// persistent kernel).
pub struct Tiling {
    shape: Shape,
    /// Rows and columns of a tile.
    rows: u64,
    columns: u64,
    /// Threads of a block, and maximum number of its warps that share the rows on devices without `wgmma`.
    threads: u64,
    row_warps: u64,
    /// Maximum number of stages, the parts of the depth that are in shared memory at the same time.
    stages: u64,
    /// Number of blocks that are resident on an SM or compute unit.
    resident: u64,
    /// Whether matrix units are used. Otherwise each thread computes 4 × 4 elements of a tile.
    by_units: bool,
    /// Whether blocks may share the depth of tiles. The kernel decides at run time, from the sizes of the groups.
    splits: bool,
}

/// Depth of a stage in terms.
const DEPTH: u64 = 64;

/// Mean number of rows per group up to which tiles have as many rows.
const SMALL_ROWS: u64 = 32;

/// Minimum number of steps in a block's share of the depth.
const LEAST_STEPS: u64 = 12;

/// Cost of adding the parts of a tile, as a number of steps.
const JOIN_STEPS: u64 = 10;

/// Cost of adding the parts of a tile of [`SMALL_ROWS`], in its shorter steps. Measured on an H100: 84 tiles of 40 steps took 21 µs whole and
/// 30 µs shared by blocks of 13 steps.
const SMALL_JOIN_STEPS: u64 = 46;

/// Cost of writing a tile, as a number of steps, if no other block on the SM computes meanwhile.
const WRITE_STEPS: u64 = 4;

/// Number of rounds of tiles beyond which idle blocks in the last round do not justify a second kernel.
const ROUNDS: u64 = 8;

/// Number of blocks that add the parts of one tile.
const JOINERS: u64 = 8;

/// Bytes of the description of a shared tile in the workspace.
const SHARED_TILE: u64 = 28;

/// Maximum number of groups for which four stages of the largest tiles fit in shared memory beside the table.
const FEW_GROUPS: u64 = 316;

impl Tiling {
    pub fn of(spec: &Spec) -> Tiling {
        let shape = Shape::of(spec);
        let with = |rows, columns, threads, row_warps, stages, resident| Tiling {
            shape,
            rows,
            columns,
            threads,
            row_warps,
            stages,
            resident,
            by_units: true,
            splits: false,
        };
        if spec.inputs[0].dtype.size() > 2 {
            return Tiling { by_units: false, ..with(64, 64, 256, 1, 1, 4) };
        }
        let small = with(32, 128, 128, 1, 4, 2);
        // Number of rows of a group if all groups have equal size. Tiles with transposed columns have at least 64
        // columns.
        let mean = shape.rows / shape.groups.max(1);
        if mean <= SMALL_ROWS && !shape.in_depth && !spec.attrs.bool("transpose_a") {
            return Tiling { splits: small.may_share(), ..small };
        }
        // Larger tiles read their factors less often. Each tiling has its speed relative to the first. That of the
        // second was measured on an H200 (480 and 490 TFLOP/s) and that of the third on an H100; the last is an estimate.
        let all = [
            (with(192, 256, 384, 3, 4, 1), 1.0),
            (with(128, 256, 256, 2, 4, 1), 0.97),
            (with(128, 128, 256, 2, 3, 2), 0.75),
            (with(64, 128, 128, 2, 4, 2), 0.55),
        ];
        let fitting = all.into_iter().filter(|(tiling, _)| tiling.rows < 192 || shape.groups <= FEW_GROUPS);
        let time = |(tiling, share): &(Tiling, f64)| {
            let (whole, shared) = tiling.steps();
            let writes = tiling.tiles().div_ceil(tiling.at_once()) * (WRITE_STEPS / tiling.resident);
            ((whole.min(shared) + writes) * tiling.rows * tiling.columns * tiling.resident) as f64 / share
        };
        let best = fitting.min_by(|one, other| time(one).total_cmp(&time(other)));
        let best = best.map_or(small, |(tiling, _)| tiling);
        Tiling { splits: best.may_share(), ..best }
    }

    /// Number of resident blocks on the device.
    fn at_once(&self) -> u64 {
        UNITS * self.resident
    }

    /// Maximum number of steps of the depth per block if the groups have equal sizes: if blocks compute whole tiles,
    /// and if they share them.
    fn steps(&self) -> (u64, u64) {
        let groups = if self.shape.in_depth { self.shape.groups.max(1) } else { 1 };
        let (tiles, steps) = (self.tiles(), (self.shape.depth / groups).div_ceil(DEPTH).max(1));
        let blocks = (tiles * steps / LEAST_STEPS).clamp(1, self.at_once());
        (tiles.div_ceil(self.at_once()) * steps, (tiles * steps).div_ceil(blocks) + self.join_steps())
    }

    /// Cost of adding the parts of a tile, as a number of steps.
    fn join_steps(&self) -> u64 {
        if self.rows == SMALL_ROWS { SMALL_JOIN_STEPS } else { JOIN_STEPS }
    }

    /// Whether blocks gain from sharing the depth for some sizes of the groups.
    fn may_share(&self) -> bool {
        let (whole, shared) = self.steps();
        // One group may have the whole depth.
        let uneven =
            self.shape.in_depth && self.shape.groups > 1 && self.shape.depth / DEPTH > 2 * (LEAST_STEPS + JOIN_STEPS);
        self.tiles() < ROUNDS * self.at_once() && (shared < whole || uneven)
    }

    /// Bytes of the partial sums of shared tiles, two for each block, and of the tiles' descriptions.
    fn workspace(&self) -> u64 {
        self.at_once() * (2 * 4 * self.rows * self.columns + SHARED_TILE)
    }

    /// Bytes of the table with the end of each group, the number of tiles up to it, and the steps that blocks share.
    fn table(&self) -> u64 {
        let of_blocks = if self.splits { 4 * self.at_once() } else { 0 };
        (2 * 4 * (self.shape.groups + 1) + of_blocks).next_multiple_of(512)
    }

    /// Number of tiles of all groups, if they have equal sizes.
    fn tiles(&self) -> u64 {
        let Shape { in_depth, groups, rows, columns, .. } = self.shape;
        let of_rows = match in_depth {
            true => groups * rows.div_ceil(self.rows),
            false => (rows / groups.max(1)).div_ceil(self.rows).max(1) * groups.min(rows),
        };
        of_rows * columns.div_ceil(self.columns)
    }

    /// Maximum number of tiles, over all sizes of groups.
    fn most_tiles(&self) -> u64 {
        let Shape { in_depth, groups, rows, columns, .. } = self.shape;
        let of_rows = match in_depth {
            true => groups * rows.div_ceil(self.rows),
            false => rows.div_ceil(self.rows) + groups.min(rows),
        };
        of_rows * columns.div_ceil(self.columns)
    }

    fn blocks(&self) -> u64 {
        if self.splits { self.at_once() } else { self.most_tiles().clamp(1, self.at_once()) }
    }

    pub fn cost(&self, spec: &Spec) -> Cost {
        let Shape { rows, columns, depth, .. } = self.shape;
        let of_epilogue = f64::from(finish(spec).expression().flops());
        Cost {
            flops: 2.0 * rows as f64 * columns as f64 * depth as f64 + of_epilogue * spec.outputs[0].elements() as f64,
            read: Spec::bytes_of(&spec.inputs),
            written: Spec::bytes_of(&spec.outputs),
            blocks: if self.splits { self.tiles().max(self.blocks()) } else { self.tiles().max(1) },
            share: Cost::WHOLE_UNIT / self.resident as u32,
            matrix: Some(arithmetic(spec)),
            ..Cost::default()
        }
    }

    pub fn launches(&self, spec: &Spec) -> Vec<Launch> {
        let [a, b, ends] = [0, 1, 2].map(|input| &spec.inputs[input]);
        let c = &spec.outputs[0];
        let Shape { in_depth, groups, rows, columns, depth } = self.shape;
        let turned = ["transpose_a", "transpose_b"].map(|name| spec.attrs.bool(name));
        let strides = |tensor: &Tensor| {
            let last = tensor.dims.len() - 1;
            let group = if last == 2 { tensor.strides[0] } else { 0 };
            Arg::Words(vec![group, tensor.strides[last - 1], tensor.strides[last]])
        };
        let mut params = vec![
            param("const T* a", Arg::Operand(0)),
            param("const T* b", Arg::Operand(1)),
            param("const I* ends", Arg::Operand(2)),
            param("O* c", Arg::Operand(3)),
            param("const Strides sa", strides(a)),
            param("const Strides sb", strides(b)),
            param("const Strides sc", strides(c)),
            u64_param("se", ends.strides[0]),
            u32_param("groups", groups),
            u32_param("rows", rows),
            u32_param("columns", columns),
            u32_param("depth", depth),
        ];
        let types = format!(
            "#undef BOUNDS\n#define BOUNDS __launch_bounds__({}, {})\ntypedef {} T;\ntypedef {} O;\ntypedef {} I;\n\
             typedef {} C;\n{}#define IN_DEPTH {}\n#define TURNED_A {}\n#define TURNED_B {}\n#define THREADS {}\n#define BM {}\n#define BN {}\n#define BK {DEPTH}\n#define SPLIT {}\n\
             #define MOST_GROUPS {MOST_GROUPS}\n",
            self.threads,
            if self.by_units { self.resident } else { 1 },
            c_type(a.dtype),
            c_type(c.dtype),
            c_type(ends.dtype),
            c_type(a.dtype.compute()),
            function(spec),
            u32::from(in_depth),
            u32::from(turned[0]),
            u32::from(turned[1]),
            self.threads,
            self.rows,
            self.columns,
            u32::from(self.splits),
        );
        // A group may begin at any position, so packs along it may be unaligned.
        let [along_a, along_b] = match in_depth {
            true => [!turned[0], turned[1]],
            false => [turned[0], false],
        };
        let (blocks, threads) = (self.blocks(), self.threads as u32);
        if !self.by_units {
            let before = format!("{types}{}", text::SCHEDULE);
            return vec![launch("grouped_gemm_elements", &before, &params, text::ELEMENTS, blocks, threads)];
        }
        let before = format!(
            "{}{types}#define PACKS_A {}\n#define PACKS_B {}\n#define PACKS_C {}\n#define LEAST_STEPS {LEAST_STEPS}\n\
             #define JOIN_STEPS {}\n#define ROW_WARPS_AT_MOST {}\n#define STAGES_AT_MOST {}\n\
             #define ALONE {}\n#define TABLE {}\n{}{}{}",
            mma::FUNCTIONS,
            !along_a && in_packs(a, 8),
            !along_b && in_packs(b, 8),
            in_packs(c, 16 / c.dtype.size()),
            self.join_steps(),
            self.row_warps,
            self.stages,
            u32::from(self.resident == 1),
            self.table(),
            text::SCHEDULE,
            text::TILES,
            warpgroups::functions(&[warpgroups::product(
                "multiply_together",
                a.dtype,
                self.columns,
                Some(turned[0]),
                !turned[1],
            )]),
        );
        if self.splits {
            params.push(param("Pack<f32, 4>* workspace", Arg::Workspace(self.workspace())));
        }
        let bytes = 2 * self.stages * (self.rows + self.columns) * DEPTH + self.table();
        let products = kernel("grouped_gemm", &before, &params, text::UNITS, blocks, threads);
        let mut launches = vec![Launch::Kernel(Kernel { shared: Shared::AtMost(bytes as u32), ..products })];
        if self.splits {
            let params = [
                param("O* c", Arg::Operand(3)),
                param("const Strides sc", strides(c)),
                u32_param("columns", columns),
                param("Pack<f32, 4>* workspace", Arg::Workspace(self.workspace())),
            ];
            let join = kernel("grouped_gemm_join", &before, &params, text::JOIN, blocks, threads);
            launches.push(Launch::Kernel(Kernel { grid: [blocks, JOINERS, 1], ..join }));
        }
        launches
    }
}

/// Returns kernel text that defines `finished`, the epilogue of a sum.
fn function(spec: &Spec) -> String {
    let expression = finish(spec).expression();
    let constants = expression.constants().iter().enumerate();
    let constants: String = constants.map(|(index, value)| format!("  const C c{index} = C({value:e});\n")).collect();
    format!("__device__ inline C finished(C x0) {{\n{constants}{}}}\n", expression.c_text())
}
