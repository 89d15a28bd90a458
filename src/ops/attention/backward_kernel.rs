//! Launches of the kernels that compute the gradients of attention.

mod costs;

use super::super::layout::in_packs;
use super::cost::TileCounts;
use super::kernel::{size_params, steps};
use super::sequences_text::row_blocks;
use super::shape::{Axes, bias, bias_pack, copied_bias};
use super::tiles::whole_tiles;
use super::*;
use crate::ops::kernels::kernel::{Parameter, bounds, c_type, geometry_param, kernel, param, u32_param, u64_param};
use crate::ops::kernels::occupancy::{UNITS, share, share_among};
use crate::ops::kernels::{mma, warpgroups};

/// Threads of a block: four warps of 32 threads, or two of 64.
const THREADS: u64 = 128;

/// Largest head dimension of the kernels for matrix units, which hold the gradients of a block's keys and values in registers.
const LARGEST_TILE: u64 = 128;

/// Bytes that a thread loads at once.
const LOAD: u64 = 16;

/// Rows per block: 16 for each of four warps.
const BLOCK_ROWS: u64 = 64;

/// Columns of a tile with `wgmma`.
const HOPPER_COLUMNS: u64 = 64;
/// Number of tiles of columns that shared memory holds with `wgmma`.
const STAGES: u64 = 2;

/// Number of blocks that an SM holds at the same time with `wgmma`. A thread has 64 scores and gradients of scores, up to 128 sums, and
/// factors and addresses. With a limit of registers for a third block, the compiler stores some of them in memory: gradients of packed
/// sequences take 5 to 18 % longer on an H200, and dense ones 6 to 9 % less (docs/measurements/2026-11-28-packed-gradients.md).
const RESIDENT: u64 = 2;
/// Minimum number of tiles of a block if several share the queries of their keys.
const MIN_TILES: u64 = 4;
/// Maximum number of these blocks.
const MAX_SPLITS: u64 = 16;

/// An operand of the kernels.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KernelOperand {
    /// Input of the operation with this index, other than the bias.
    Input(usize),
    /// Output of the operation with this index, other than the gradients of the biased scores.
    Output(usize),
    /// Row sums of `dy * o` in the workspace.
    Sums,
    /// Bias of the scores, as an input.
    Bias,
    /// Gradients of the biased scores, as an output.
    ScoreGradients,
}

/// Logsumexp of the queries. The inputs of the operation are q, k, v, o, lse, dy; its outputs dq, dk, dv.
const LSE: KernelOperand = KernelOperand::Input(4);
/// Gradients of the results.
const DY: KernelOperand = KernelOperand::Input(5);
/// Operands of the kernel whose rows are queries, in the order of its parameters. It has only one output, which counts
/// twice.
const QUERIES: [KernelOperand; 8] = [
    KernelOperand::Input(0),
    DY,
    KernelOperand::Input(1),
    KernelOperand::Input(2),
    LSE,
    KernelOperand::Sums,
    KernelOperand::Output(0),
    KernelOperand::Output(0),
];
/// Operands of the kernel whose rows are keys, in the order of its parameters.
const KEYS: [KernelOperand; 8] = [
    KernelOperand::Input(1),
    KernelOperand::Input(2),
    KernelOperand::Input(0),
    DY,
    LSE,
    KernelOperand::Sums,
    KernelOperand::Output(1),
    KernelOperand::Output(2),
];

/// Index of the gradients of the biased scores in the outputs of the operation.
const SCORE_GRADIENTS: usize = 3;

/// Returns the operands of a kernel with the names of their parameters: of the kernel whose rows are keys if `keys`,
/// otherwise of the one whose rows are queries.
fn order(spec: &Spec, keys: bool) -> Vec<(KernelOperand, &'static str)> {
    let names = ["own1", "own2", "other1", "other2", "lse", "delta", "out1", "out2"];
    let mut all: Vec<_> = if keys { KEYS } else { QUERIES }.into_iter().zip(names).collect();
    all.extend(input(spec, BIAS).map(|_| (KernelOperand::Bias, "bias")));
    all.extend((!keys && spec.outputs.len() > SCORE_GRADIENTS).then_some((KernelOperand::ScoreGradients, "slopes")));
    all
}

impl KernelOperand {
    /// Returns the number of the operand in the call, inputs first; `None` for data in the workspace.
    fn operand(self, spec: &Spec) -> Option<usize> {
        match self {
            KernelOperand::Input(input) => Some(input),
            KernelOperand::Output(output) => Some(spec.inputs.len() + output),
            KernelOperand::Bias => input(spec, BIAS),
            KernelOperand::ScoreGradients => Some(spec.inputs.len() + SCORE_GRADIENTS),
            KernelOperand::Sums => None,
        }
    }

    /// Returns the operand as a tensor. The row sums have one element for each of `lse`, without gaps; the bias is
    /// broadcast to the scores.
    fn tensor(self, spec: &Spec) -> Tensor {
        match (self.operand(spec), bias(spec)) {
            (Some(_), Some(bias)) if self == KernelOperand::Bias => bias,
            (Some(operand), _) => *spec.operand(operand),
            (None, _) => {
                let lse = spec.inputs[4];
                Tensor { strides: lse.dims.contiguous_strides(), ..lse }
            }
        }
    }

    /// True if several heads of queries can share the operand: for keys, values and their gradients.
    fn is_shared(self) -> bool {
        matches!(self, KernelOperand::Input(1 | 2) | KernelOperand::Output(1 | 2))
    }

    /// Returns the axes of heads and positions; `None` for an operand with one number per query. For the bias and the
    /// gradients of biased scores, the elements of a query are its keys.
    fn axes(self, shape: &Shape, rank: usize) -> Option<Axes> {
        match self {
            LSE | KernelOperand::Sums => None,
            KernelOperand::Bias | KernelOperand::ScoreGradients => Some(Axes::of_rows(rank)),
            _ => Some(shape.axes),
        }
    }
}

/// Division of the work of the gradient kernels among thread blocks.
pub struct BackwardPartition {
    shape: Shape,
    /// Columns of a tile on devices without `wgmma`, and the head dimensions of queries and of values, rounded up to whole tiles;
    /// `None` for the kernels without matrix units, which have 32 threads for each row.
    tiles: Option<(u64, [u64; 2])>,
    /// Bytes of the bias of a score that warps copy to shared memory.
    bias: u64,
    /// Number of blocks that share the queries of their keys, and whose results another kernel adds.
    splits: u64,
}

impl BackwardPartition {
    /// Returns the division of the work for a call of a gradient operation.
    pub fn of(spec: &Spec) -> BackwardPartition {
        let shape = Shape::of(spec);
        let narrow = matches!(spec.inputs[0].dtype, DType::F16 | DType::BF16) && spec.attrs.word("algorithm") != NAIVE;
        let widest = shape.size.max(shape.value_size);
        let columns = if widest <= 64 { 64 } else { 32 };
        // Tiles compute the derivative of a soft cap from the weight, which a bias has changed.
        let biased_cap = shape.softcap > 0.0 && input(spec, BIAS).is_some();
        let tiles = narrow && widest <= LARGEST_TILE && !biased_cap;
        let widths = [shape.size, shape.value_size].map(whole_tiles);
        // Kernels do not depend on lengths that the text determines.
        let unknown = Shape { lengths: None, ..shape.clone() };
        let tiles = tiles.then_some((columns, widths));
        let whole = BackwardPartition { shape: unknown, tiles, bias: copied_bias(spec), splits: 1 };
        BackwardPartition { shape, splits: whole.wanted_splits(), ..whole }
    }

    /// True if the kernels multiply tiles with matrix units.
    pub fn has_tiles(&self) -> bool {
        self.tiles.is_some()
    }

    /// Returns the number of rows and of columns per index of the geometry, and the number of indices: of the kernel
    /// whose rows are keys if `keys`.
    fn rows(&self, keys: bool) -> (u64, u64, u64) {
        let Shape { batch, heads, group, .. } = self.shape;
        match keys {
            true => (self.shape.keys, self.shape.queries * group, batch * heads / group),
            false => (self.shape.queries, self.shape.keys, batch * heads),
        }
    }

    /// Number of blocks whose rows are keys if `keys`, if each takes all columns of its rows.
    fn whole_blocks(&self, keys: bool) -> u64 {
        let (rows, _, indices) = self.rows(keys);
        indices * row_blocks(&self.shape, rows, BLOCK_ROWS)
    }

    /// Tiles of the blocks whose rows are keys if `keys`, if each takes all columns of its rows.
    fn work(&self, keys: bool) -> TileCounts {
        let sides = if keys { (HOPPER_COLUMNS, BLOCK_ROWS) } else { (BLOCK_ROWS, HOPPER_COLUMNS) };
        TileCounts::of(&self.shape, self.shape.batch * self.shape.heads, sides, keys)
    }

    /// Tiles of the launched blocks, whose rows are keys if `keys`, otherwise queries. A block of keys has the queries of all heads that
    /// share the keys, or a part of these queries.
    fn tiles_of_blocks(&self, keys: bool) -> TileCounts {
        let all = self.work(keys);
        if keys { all.joined(self.shape.group).shared(self.splits) } else { all }
    }

    /// Number of blocks among which the queries of some keys are divided, if the device has room for them. The longest
    /// block then has no more tiles than the longest block of queries, or than the device has for each block that it
    /// holds.
    fn wanted_splits(&self) -> u64 {
        if !self.has_tiles() {
            return 1;
        }
        let queries = self.shape.queries / self.shape.sequences.unwrap_or(1).max(1);
        let tiles = queries.div_ceil(HOPPER_COLUMNS) * self.shape.group;
        let [of_queries, of_keys] = [false, true].map(|keys| self.work(keys));
        let mean = (of_queries.all + of_keys.all) / (RESIDENT * UNITS);
        let splits = (of_keys.longest * self.shape.group).div_ceil(mean.max(of_queries.longest).max(1));
        splits.min(tiles / MIN_TILES).clamp(1, MAX_SPLITS)
    }

    /// Number of blocks of the kernel whose rows are keys if `keys`.
    fn blocks(&self, keys: bool) -> u64 {
        let (rows, _, indices) = self.rows(keys);
        match self.tiles {
            Some(_) => self.whole_blocks(keys) * if keys { self.splits } else { 1 },
            None => (indices * rows).div_ceil(THREADS / WARP),
        }
    }

    /// Bytes of shared memory of a block, the maximum over all devices: tiles of rows and of columns, `lse` and `delta` of each
    /// column, and the bias of a tile; 0 without tiles.
    fn shared(&self) -> u64 {
        let Some((columns, widths)) = self.tiles else { return 0 };
        let row = |width: u64| if width.is_multiple_of(64) { width } else { width + 8 };
        let of = |columns: u64, row: u64| 2 * (BLOCK_ROWS + columns) * row + 8 * columns;
        let whole = widths.iter().map(|width| width.next_multiple_of(64)).sum();
        let bias = |columns: u64| self.bias * BLOCK_ROWS * columns;
        let hopper = of(STAGES * HOPPER_COLUMNS, whole) + bias(HOPPER_COLUMNS);
        hopper.max(of(columns, row(widths[0]) + row(widths[1])) + bias(columns))
    }

    /// Returns the geometry over the heads that the blocks process: heads of keys if `keys`, otherwise heads of
    /// queries.
    fn geometry(&self, spec: &Spec, keys: bool) -> Geometry {
        let q = &spec.inputs[0].dims;
        let (lead, rows) = (q.len().saturating_sub(3), Axes::of_rows(q.len()));
        let mut dims = Dims::from_slice(&q[..lead]).unwrap_or_default();
        dims.push(self.shape.heads / self.shape.group);
        if !keys {
            dims.push(self.shape.group);
        }
        let strides: Vec<Dims> = order(spec, keys)
            .into_iter()
            .map(|(taken, _)| {
                let tensor = taken.tensor(spec);
                let mut own = Dims::from_slice(&tensor.strides[..lead]).unwrap_or_default();
                let axes = taken.axes(&self.shape, q.len()).unwrap_or(rows);
                let step = axes.heads_of(&tensor.strides) * u64::from(axes.heads.is_some());
                let shared = taken.is_shared();
                own.push(if shared { step } else { step * self.shape.group });
                if !keys {
                    own.push(if shared { 0 } else { step });
                }
                own
            })
            .collect();
        layout::collapse(dims, &strides)
    }

    /// Returns the kernels. The first one computes the row sums of `dy * o`. With matrix units, the next one computes
    /// all gradients; without them, one computes `dq` with queries as rows, and another `dk` and `dv` with keys as
    /// rows. If blocks share keys, a last one adds the parts of `dk` and `dv`.
    pub fn kernels(&self, spec: &Spec) -> Vec<Kernel> {
        let mut all = vec![self.sums(spec)];
        match self.tiles_text(spec) {
            Some(tiles) => all.push(self.merged(spec, &tiles)),
            None => all.extend([false, true].map(|keys| self.rows_kernel(spec, keys))),
        }
        all.extend((self.splits > 1).then(|| self.join(spec)));
        all
    }

    /// Number of gradients of keys and values of all heads.
    fn results(&self) -> u64 {
        let (rows, _, indices) = self.rows(true);
        indices * rows * (self.shape.size + self.shape.value_size)
    }

    /// Returns the argument for the parts of the gradients of keys and values, which follow the row sums in the workspace.
    fn parts(&self, spec: &Spec) -> Arg {
        let offset = self.workspace(spec).next_multiple_of(16);
        Arg::WorkspaceAt { offset, bytes: offset + 4 * self.splits * self.results() }
    }

    /// Returns the kernel that adds the parts of the gradients of keys and values.
    fn join(&self, spec: &Spec) -> Kernel {
        let order = order(spec, true);
        let count = self.results();
        let mut params =
            vec![param("const f32* parts", self.parts(spec)), geometry_param("g", &self.geometry(spec, true))];
        for &(taken, name) in &order[6..8] {
            let (tensor, rank) = (taken.tensor(spec), spec.inputs[0].dims.len());
            let operand = taken.operand(spec).expect("an output of the call") as u8;
            params.push(param(format!("{}* {name}", c_type(tensor.dtype)), Arg::Operand(operand)));
            params.push(param(format!("const Steps s_{name}"), steps(&tensor, taken.axes(&self.shape, rank), rank)));
        }
        params.extend([
            u32_param("all_rows", self.shape.keys),
            u32_param("d", self.shape.size),
            u32_param("dv", self.shape.value_size),
            u64_param("count", count),
        ]);
        let before = format!(
            "{}#define OPERANDS {}\n#define SPLITS {}\nstruct Steps {{ i64 query, head, element; }};\n",
            bounds(THREADS as u32),
            order.len(),
            self.splits,
        );
        let blocks = count.div_ceil(THREADS);
        kernel("attention_backward_join", &before, &params, backward_text::JOIN, blocks, THREADS as u32)
    }

    /// Returns the parameters of the kernel whose rows are keys if `keys`, otherwise of the one whose rows are queries.
    fn params(&self, spec: &Spec, keys: bool) -> Vec<Parameter> {
        let order = order(spec, keys);
        let mut params = Vec::new();
        for &(taken, name) in &order {
            let dtype = c_type(taken.tensor(spec).dtype);
            let written = matches!(taken, KernelOperand::Output(_) | KernelOperand::ScoreGradients);
            let arg = match taken.operand(spec) {
                Some(operand) => Arg::Operand(operand as u8),
                None => Arg::Workspace(self.workspace(spec)),
            };
            params.push(param(format!("{}{dtype}* {name}", if written { "" } else { "const " }), arg));
        }
        params.push(geometry_param("g", &self.geometry(spec, keys)));
        let rank = spec.inputs[0].dims.len();
        for &(taken, name) in &order {
            let steps = steps(&taken.tensor(spec), taken.axes(&self.shape, rank), rank);
            params.push(param(format!("const Steps s_{name}"), steps));
        }
        let (rows, others, indices) = self.rows(keys);
        params.extend(size_params(&self.shape, &[("rows", rows), ("others", others)]));
        params.extend(sequences_text::params(spec));
        params.push(param("C scale", Arg::real(spec.inputs[0].dtype.compute(), self.shape.scale)));
        if self.has_tiles() {
            let scale = (self.shape.scale * std::f64::consts::LOG2_E) as f32;
            params.push(param("f32 scale_log2", Arg::F32(scale)));
            if keys && self.splits > 1 {
                params.push(param("f32* parts", self.parts(spec)));
                params.extend([u32_param("indices", indices), u32_param("all_rows", rows)]);
            }
        } else {
            params.push(u64_param("count", indices * rows));
        }
        params
    }

    /// Returns the definitions that the texts of both kernels need.
    fn types(&self, spec: &Spec) -> String {
        let compute = spec.inputs[0].dtype.compute();
        format!(
            "{}{}typedef {} T;\ntypedef {} C;\n{}#define CAUSAL {}\n",
            bounds(THREADS as u32),
            sequences_text::definitions(spec),
            c_type(spec.inputs[0].dtype),
            c_type(compute),
            bias_text::definitions(spec, bias_pack(spec)) + &softcap_text::definitions(spec),
            self.shape.causal,
        )
    }

    /// Returns the definitions of the kernel whose rows are keys if `keys`, otherwise of the one whose rows are queries.
    fn definitions(&self, spec: &Spec, keys: bool) -> String {
        let order = order(spec, keys);
        let all = [
            ("OPERANDS", order.len() as u64),
            ("SLOPES", u64::from(order.iter().any(|(taken, _)| *taken == KernelOperand::ScoreGradients))),
            ("KEYS", u64::from(keys)),
            ("GROUP", if keys { self.shape.group } else { 1 }),
            ("SPLITS", if keys { self.splits } else { 1 }),
        ];
        all.iter().map(|(name, value)| format!("#undef {name}\n#define {name} {value}\n")).collect()
    }

    /// Returns the kernel without matrix units whose rows are keys if `keys`, otherwise the one whose rows are queries.
    fn rows_kernel(&self, spec: &Spec, keys: bool) -> Kernel {
        let name = if keys { "attention_backward_keys" } else { "attention_backward_queries" };
        let (blocks, threads, params) = (self.blocks(keys), THREADS as u32, self.params(spec, keys));
        let (types, definitions) = (self.types(spec), self.definitions(spec, keys));
        let before = format!(
            "{types}{definitions}#define EACH_Q {}\n#define EACH_V {}\n{}{}{}",
            self.shape.size.div_ceil(WARP).max(1),
            self.shape.value_size.div_ceil(WARP).max(1),
            text::PLACES,
            sequences_text::SEQUENCES,
            backward_text::VIEW,
        );
        kernel(&format!("{name}_rows"), &before, &params, backward_text::ROWS, blocks, threads)
    }

    /// Returns the kernel whose blocks have queries or keys as rows, with the text of its tiles. The blocks with more tiles start first.
    fn merged(&self, spec: &Spec, tiles: &str) -> Kernel {
        let mut before = format!("{}{}", self.types(spec), self.definitions(spec, false));
        before += tiles;
        let first = self.shape.queries * self.shape.group / self.splits >= self.shape.keys;
        let (mut all, mut calls) = (Vec::new(), Vec::new());
        for (keys, name) in [(true, "of_keys"), (false, "of_queries")] {
            let mut declarations = vec!["u32 block".to_owned()];
            let mut names = vec![if keys == first { "blockIdx.x" } else { "blockIdx.x - blocks_of_first" }.to_owned()];
            for (declaration, arg) in self.params(spec, keys) {
                let (kind, own) = declaration.rsplit_once(' ').expect("a type and a name");
                let by_reference = kind.starts_with("const ") && !kind.ends_with('*');
                declarations.push(format!("{kind}{} {own}", if by_reference { "&" } else { "" }));
                names.push(format!("{name}_{own}"));
                all.push(param(format!("{kind} {name}_{own}"), arg));
            }
            before += &self.definitions(spec, keys);
            before += &format!("__device__ __forceinline__ void {name}({}) {{\n", declarations.join(", "));
            before += &format!("{}}}\n", backward_text::TILES);
            calls.push(format!("{name}({});\n", names.join(", ")));
        }
        all.push(u32_param("blocks_of_first", self.blocks(first)));
        let (one, other) = (usize::from(!first), usize::from(first));
        let body = format!("  if (blockIdx.x < blocks_of_first) {}  else {}", calls[one], calls[other]);
        let blocks = self.blocks(false) + self.blocks(true);
        let both = kernel("attention_backward_both", &before, &all, &body, blocks, THREADS as u32);
        Kernel { shared: Shared::AtMost(self.shared() as u32), ..both }
    }

    /// Returns the text of functions that multiply tiles; `None` for the kernels without matrix units.
    fn tiles_text(&self, spec: &Spec) -> Option<String> {
        let (columns, widths) = self.tiles?;
        let dtype = spec.inputs[0].dtype;
        let packs = order(spec, true)[..4].iter().all(|(taken, _)| in_packs(&taken.tensor(spec), 8));
        let pairs = spec.outputs.iter().all(|output| in_packs(output, 2));
        Some(format!(
            "{}#define THREADS {THREADS}\n#define BM {BLOCK_ROWS}\n#define HOPPER_COLUMNS {HOPPER_COLUMNS}\n\
             #define OTHER_COLUMNS {columns}\n#define WIDTH {}\n#define VALUE_WIDTH {}\n#define PACKS {packs}\n#define PAIRS {pairs}\n{}{}{}{}{}{}{}",
            mma::FUNCTIONS,
            widths[0],
            widths[1],
            bias_text::BIAS,
            text::PLACES,
            sequences_text::SEQUENCES,
            backward_text::DEVICES,
            text::TILES,
            backward_text::VIEW,
            warpgroups::functions(&[
                warpgroups::product("scores_of", dtype, HOPPER_COLUMNS, Some(false), false),
                warpgroups::product("products_of", dtype, widths[0], None, true),
                warpgroups::product("values_of", dtype, widths[1], None, true),
            ]),
        ))
    }

    /// Bytes of the workspace, which holds the row sums of `dy * o`.
    fn workspace(&self, spec: &Spec) -> u64 {
        spec.inputs[4].bytes()
    }

    /// Number of neighbouring elements that a thread of the kernel for row sums loads at once, and number of threads per query.
    fn lanes_of_sums(&self, spec: &Spec) -> (u64, u64) {
        let [o, dy] = [3, 5].map(|input| &spec.inputs[input]);
        let pack = LOAD / o.dtype.size();
        let each = if o.dtype == dy.dtype && in_packs(o, pack) && in_packs(dy, pack) { pack } else { 1 };
        (each, self.shape.value_size.div_ceil(each).next_power_of_two().min(WARP))
    }

    /// Returns the kernel that computes the row sums of `dy * o`, minus `dlse` if it is given.
    fn sums(&self, spec: &Spec) -> Kernel {
        let (rank, rows) = (spec.inputs[0].dims.len(), Axes::of_rows(spec.inputs[0].dims.len()));
        let dlse = input(spec, DLSE);
        let mut operands = vec![(3, "o", Some(self.shape.axes)), (5, "dy", Some(self.shape.axes))];
        operands.extend(dlse.map(|place| (place, "dlse", None)));
        // Strides of each operand along batch and heads.
        let lead = rank.saturating_sub(3);
        let mut dims = Dims::from_slice(&spec.inputs[0].dims[..lead]).unwrap_or_default();
        dims.push(self.shape.heads);
        let strides: Vec<Dims> = operands
            .iter()
            .map(|(operand, _, axes)| {
                let (strides, axes) = (&spec.inputs[*operand].strides, axes.unwrap_or(rows));
                let mut own = Dims::from_slice(&strides[..lead]).unwrap_or_default();
                own.push(axes.heads_of(strides) * u64::from(axes.heads.is_some()));
                own
            })
            .collect();
        let geometry = layout::collapse(dims, &strides);
        let mut params = vec![geometry_param("g", &geometry)];
        for &(operand, name, axes) in &operands {
            let tensor = &spec.inputs[operand];
            params.push(param(format!("const {}* {name}", c_type(tensor.dtype)), Arg::Operand(operand as u8)));
            params.push(param(format!("const Steps s_{name}"), steps(tensor, axes, rank)));
        }
        let count = self.shape.batch * self.shape.heads * self.shape.queries;
        let (each, lanes) = self.lanes_of_sums(spec);
        params.extend([
            param("C* sums", Arg::Workspace(self.workspace(spec))),
            u32_param("queries", self.shape.queries),
            u32_param("dv", self.shape.value_size),
            u64_param("count", count),
        ]);
        let before = format!(
            "{}typedef {} T;\ntypedef {} C;\n#define EACH {each}\n#define ROW_LANES {lanes}\n#define OPERANDS {}\n#define DLSE {}\n\
             struct Steps {{ i64 query, head, element; }};\n",
            bounds(THREADS as u32),
            c_type(spec.inputs[3].dtype),
            c_type(spec.inputs[0].dtype.compute()),
            operands.len(),
            u32::from(dlse.is_some()),
        );
        let blocks = (count * lanes).div_ceil(THREADS);
        kernel("attention_backward_sums", &before, &params, backward_text::SUMS, blocks, THREADS as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of the kernels without their common prefix.
    fn kernels([heads, group, positions, size]: [u64; 4]) -> Vec<String> {
        let of = |heads: u64| Tensor::packed(DType::BF16, &[heads, positions, size]);
        let (q, k) = (of(heads * group), of(heads));
        let lse = Tensor::packed(DType::F32, &[heads * group, positions]);
        let options = [("algorithm", Attr::Word(FUSED))];
        let spec = Spec::of_use("attention_backward", &options, vec![q, k, k, q, lse, q], &[None; 3]).expect("a use");
        let all = BackwardPartition::of(&spec).kernels(&spec);
        all.iter().map(|kernel| kernel.source.name.replace("attention_backward_", "")).collect()
    }

    /// An SM has 228 KiB of shared memory on compute capability 9.0, and takes 1 KiB of them for each block.
    #[test]
    fn two_blocks_with_a_bias_in_single_precision_fit() {
        let q = Tensor::packed(DType::BF16, &[8, 512, LARGEST_TILE]);
        let (lse, scores) = (Tensor::packed(DType::F32, &[8, 512]), Tensor::packed(DType::F32, &[512, 512]));
        let inputs = vec![q, q, q, q, lse, q, scores];
        let spec = Spec::of_use("biased_attention_backward", &[], inputs, &[None; 4]).expect("a use");
        let partition = BackwardPartition::of(&spec);
        assert_eq!(partition.bias, 4);
        assert!(RESIDENT * (partition.shared() + 1024) <= 228 << 10, "{} bytes", partition.shared());
    }

    #[test]
    fn blocks_of_queries_and_keys_are_one_launch() {
        assert_eq!(kernels([16, 1, 4096, 128]), ["sums", "both"]);
        assert_eq!(kernels([16, 1, 4096, 64]), ["sums", "both"]);
        assert_eq!(kernels([16, 1, 4096, 320]), ["sums", "queries_rows", "keys_rows"]);
        // Keys that many heads share meet many queries, beside few blocks with as many keys.
        assert_eq!(kernels([1, 8, 1024, 128]), ["sums", "both", "join"]);
    }
}
