//! The launch of a grouped product: how blocks share the tiles of all groups.

use super::super::super::kernel::{bounds, c_type, kernel, launch, param, u32_param, u64_param};
use super::super::super::layout::in_packs;
use super::super::super::mma;
use super::super::super::occupancy::UNITS;
use super::super::super::warpgroups;
use super::*;

/// How a grouped product is cut into tiles, each of which a block computes at a time. Blocks stay until no tile is left.
pub struct Tiling {
    shape: Shape,
    /// Rows and columns of a tile.
    rows: u64,
    columns: u64,
    /// Threads of a block, and warps of it that share the rows at most, where there are no instructions for four warps together.
    threads: u64,
    row_warps: u64,
    /// Parts of the depth that are in shared memory at the same time, at most.
    stages: u64,
    /// Blocks that a compute unit holds at the same time.
    resident: u64,
    /// Whether matrix units multiply. Otherwise each thread has 4 × 4 elements of a tile.
    by_units: bool,
    /// Whether blocks may share the depth of tiles. The kernel decides by the ends of the groups.
    splits: bool,
}

/// Terms of the sums that are in shared memory together.
const DEPTH: u64 = 64;

/// The mean rows of a group up to which tiles have as many.
const SMALL_ROWS: u64 = 32;

/// Steps of a block's share of the depth, at least.
const LEAST_STEPS: u64 = 12;

/// Steps that joining the parts of a tile takes the time of.
const JOIN_STEPS: u64 = 10;

/// Rounds of tiles beyond which the blocks that the last round leaves idle are not worth a second kernel.
const ROUNDS: u64 = 8;

/// Blocks that join the parts of one tile.
const JOINERS: u64 = 16;

/// Bytes of a shared tile's description in the workspace.
const SHARED_TILE: u64 = 28;

/// Groups up to which four stages of the largest tiles fit beside what a block keeps of each group.
const FEW_GROUPS: u64 = 383;

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
        // The rows of a group, if all groups have the same number. Tiles that hold turned columns have 64 of them at least.
        let mean = shape.rows / shape.groups.max(1);
        if mean <= SMALL_ROWS && !shape.in_depth && !spec.attrs.bool("transpose_a") {
            return small;
        }
        // The larger a tile, the less often its factors are read: tilings with their speed beside the first one's. That of the
        // second was measured on an H200 (480 and 490 TFLOP/s), the others are estimates.
        let all = [
            (with(192, 256, 384, 3, 4, 1), 1.0),
            (with(128, 256, 256, 2, 4, 1), 0.97),
            (with(128, 128, 128, 2, 3, 2), 0.75),
            (with(64, 128, 128, 2, 4, 2), 0.55),
        ];
        let fitting = all.into_iter().filter(|(tiling, _)| tiling.rows < 192 || shape.groups <= FEW_GROUPS);
        let time = |(tiling, share): &(Tiling, f64)| {
            let (whole, shared) = tiling.steps();
            (whole.min(shared) * tiling.rows * tiling.columns * tiling.resident) as f64 / share
        };
        let best = fitting.min_by(|one, other| time(one).total_cmp(&time(other)));
        let best = best.map_or(small, |(tiling, _)| tiling);
        Tiling { splits: best.may_share(), ..best }
    }

    /// Blocks that the device holds at the same time.
    fn at_once(&self) -> u64 {
        UNITS * self.resident
    }

    /// Steps of the depth that a block takes at most if the groups have equal sizes: where blocks compute whole tiles, and where
    /// they share them.
    fn steps(&self) -> (u64, u64) {
        let groups = if self.shape.in_depth { self.shape.groups.max(1) } else { 1 };
        let (tiles, steps) = (self.tiles(), (self.shape.depth / groups).div_ceil(DEPTH).max(1));
        let blocks = (tiles * steps / LEAST_STEPS).clamp(1, self.at_once());
        (tiles.div_ceil(self.at_once()) * steps, (tiles * steps).div_ceil(blocks) + JOIN_STEPS)
    }

    /// Whether some sizes of the groups let blocks share the depth with a gain.
    fn may_share(&self) -> bool {
        let (whole, shared) = self.steps();
        // One group of the depth may have all of it.
        let uneven =
            self.shape.in_depth && self.shape.groups > 1 && self.shape.depth / DEPTH > 2 * (LEAST_STEPS + JOIN_STEPS);
        self.tiles() < ROUNDS * self.at_once() && (shared < whole || uneven)
    }

    /// Bytes of the sums of shared tiles, two for each block, and of their descriptions.
    fn workspace(&self) -> u64 {
        self.at_once() * (2 * 4 * self.rows * self.columns + SHARED_TILE)
    }

    /// Bytes for the end of each group and the tiles up to it.
    fn table(&self) -> u64 {
        (2 * 4 * (self.shape.groups + 1)).next_multiple_of(512)
    }

    /// Tiles of all groups, if their sizes are equal.
    fn tiles(&self) -> u64 {
        let Shape { in_depth, groups, rows, columns, .. } = self.shape;
        let of_rows = match in_depth {
            true => groups * rows.div_ceil(self.rows),
            false => (rows / groups.max(1)).div_ceil(self.rows).max(1) * groups.min(rows),
        };
        of_rows * columns.div_ceil(self.columns)
    }

    /// The most tiles that any sizes of groups give.
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
            "{}typedef {} T;\ntypedef {} O;\ntypedef {} I;\ntypedef {} C;\n{}#define IN_DEPTH {}\n#define TURNED_A {}\n\
             #define TURNED_B {}\n#define THREADS {}\n#define BM {}\n#define BN {}\n#define BK {DEPTH}\n#define SPLIT {}\n\
             #define MOST_GROUPS {MOST_GROUPS}\n",
            bounds(self.threads as u32),
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
        // A group may begin at any place, so packs of elements along it do not lie at multiples of their size.
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
            "{}{types}#define PACKS_A {}\n#define PACKS_B {}\n#define PAIRS {}\n#define LEAST_STEPS {LEAST_STEPS}\n\
             #define JOIN_STEPS {JOIN_STEPS}\n#define ROW_WARPS_AT_MOST {}\n#define STAGES_AT_MOST {}\n#define TABLE {}\n{}{}{}",
            mma::FUNCTIONS,
            !along_a && in_packs(a, 8),
            !along_b && in_packs(b, 8),
            in_packs(c, 2),
            self.row_warps,
            self.stages,
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

/// Kernel text that defines `finished`, the epilogue of a sum.
fn function(spec: &Spec) -> String {
    let expression = finish(spec).expression();
    let constants = expression.constants().iter().enumerate();
    let constants: String = constants.map(|(index, value)| format!("  const C c{index} = C({value:e});\n")).collect();
    format!("__device__ inline C finished(C x0) {{\n{constants}{}}}\n", expression.c_text())
}
