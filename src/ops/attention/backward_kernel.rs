//! Launches of the kernels that compute the gradients of attention.

use super::super::cost::Tiling;
use super::super::kernel::{bounds, c_type, geometry_param, kernel, param, u32_param, u64_param};
use super::super::layout::in_packs;
use super::super::mma;
use super::super::occupancy::{UNIT_SHARED, UNITS, share};
use super::super::warpgroups;
use super::cost::PER_BIAS;
use super::cost::Tiles;
use super::kernel::{row_blocks, sequence_params, sequences_text, size_params, steps, whole_tiles};
use super::shape::{Axes, bias};
use super::*;

/// Threads of a block: four warps of 32 threads, or two of 64.
const THREADS: u64 = 128;

/// Largest head dimension of the kernels for matrix units, which hold the gradients of a block's keys and values in registers.
const LARGEST_TILE: u64 = 128;

/// Rows per block: 16 for each of four warps.
const BLOCK_ROWS: u64 = 64;

/// Columns of a tile with `wgmma`, and number of tiles of columns that shared memory then holds.
const HOPPER_COLUMNS: u64 = 64;
const STAGES: u64 = 2;

/// Number of blocks that an SM holds at the same time with `wgmma`.
const RESIDENT: u64 = 2;
/// Minimum number of tiles of a block if several share the queries of their keys.
const MIN_TILES: u64 = 4;
/// Maximum number of these blocks.
const MAX_SPLITS: u64 = 16;

/// Matrix products per pair of tiles in both kernels: each kernel computes queries × keys and gradients × values, and
/// each of the three gradients takes one more.
const PRODUCTS: f64 = 7.0;

/// Throughput of these products divided by that of the library's: each multiplication waits for the loads of its tile.
const RATE: f64 = 0.4;

/// Loads of a bias for which a thread waits once: it loads one element after the other, and four of them share a sector.
const PER_WAIT: f64 = 4.0;

/// Instructions of the kernels before and behind the products: per product of two elements, per row, and per part that is added.
const PER_PRODUCT: u64 = 6;
const PER_SUM: u64 = 60 * WARP;
const PER_PART: u64 = 4;

/// Instructions per score and kernel: scale, exponential, gradient of the score, and two roundings.
const PER_SCORE: f64 = 8.0;

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
    Slopes,
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
const SLOPES: usize = 3;

/// Returns the operands of a kernel with the names of their parameters: of the kernel whose rows are keys if `keys`,
/// otherwise of the one whose rows are queries.
fn order(spec: &Spec, keys: bool) -> Vec<(KernelOperand, &'static str)> {
    let names = ["own1", "own2", "other1", "other2", "lse", "delta", "out1", "out2"];
    let mut all: Vec<_> = if keys { KEYS } else { QUERIES }.into_iter().zip(names).collect();
    all.extend(input(spec, BIAS).map(|_| (KernelOperand::Bias, "bias")));
    all.extend((!keys && spec.outputs.len() > SLOPES).then_some((KernelOperand::Slopes, "slopes")));
    all
}

impl KernelOperand {
    /// Returns the number of the operand in the call, inputs first; `None` for data in the workspace.
    fn operand(self, spec: &Spec) -> Option<usize> {
        match self {
            KernelOperand::Input(input) => Some(input),
            KernelOperand::Output(output) => Some(spec.inputs.len() + output),
            KernelOperand::Bias => input(spec, BIAS),
            KernelOperand::Slopes => Some(spec.inputs.len() + SLOPES),
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

    /// Whether several heads of queries can share the operand: true for keys, values and their gradients.
    fn is_shared(self) -> bool {
        matches!(self, KernelOperand::Input(1 | 2) | KernelOperand::Output(1 | 2))
    }

    /// Returns the axes of heads and positions; `None` for an operand with one number per query. For the bias and the
    /// gradients of biased scores, the elements of a query are its keys.
    fn axes(self, shape: &Shape, rank: usize) -> Option<Axes> {
        match self {
            LSE | KernelOperand::Sums => None,
            KernelOperand::Bias | KernelOperand::Slopes => Some(Axes::of_rows(rank)),
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
}

impl BackwardPartition {
    /// Returns the division of the work for a call of a gradient operation.
    pub fn of(spec: &Spec) -> BackwardPartition {
        let shape = Shape::of(spec);
        let narrow = matches!(spec.inputs[0].dtype, DType::F16 | DType::BF16) && spec.attrs.word("algorithm") != NAIVE;
        let widest = shape.size.max(shape.value_size);
        let columns = if widest <= 64 { 64 } else { 32 };
        let tiles = narrow && widest <= LARGEST_TILE;
        let widths = [shape.size, shape.value_size].map(whole_tiles);
        BackwardPartition { shape, tiles: tiles.then_some((columns, widths)) }
    }

    /// Whether the kernels multiply tiles with matrix units.
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

    /// Number of blocks that share the queries of their keys, and whose results another kernel adds: as many as fill the device. With a
    /// causal mask, the longest blocks have twice the mean number of tiles, so twice as many keep the device busy.
    fn splits(&self) -> u64 {
        let (rows, _, indices) = self.rows(true);
        let blocks = indices * row_blocks(&self.shape, rows, BLOCK_ROWS);
        let queries = self.shape.queries / self.shape.sequences.unwrap_or(1).max(1);
        let tiles = queries.div_ceil(HOPPER_COLUMNS) * self.shape.group;
        let wanted = RESIDENT * UNITS * if self.shape.causal { 2 } else { 1 };
        match self.tiles {
            Some(_) => (wanted / blocks.max(1)).min(tiles / MIN_TILES).clamp(1, MAX_SPLITS),
            None => 1,
        }
    }

    /// Number of blocks of the kernel whose rows are keys if `keys`.
    fn blocks(&self, keys: bool) -> u64 {
        let (rows, _, indices) = self.rows(keys);
        let splits = if keys { self.splits() } else { 1 };
        match self.tiles {
            Some(_) => indices * row_blocks(&self.shape, rows, BLOCK_ROWS) * splits,
            None => (indices * rows).div_ceil(THREADS / WARP),
        }
    }

    /// Bytes of shared memory of a block, the maximum over all devices: tiles of rows and of columns, and `lse` and `delta` of each
    /// column; 0 without tiles.
    fn shared(&self) -> u64 {
        let Some((columns, widths)) = self.tiles else { return 0 };
        let row = |width: u64| if width.is_multiple_of(64) { width } else { width + 8 };
        let of = |columns: u64, row: u64| 2 * (BLOCK_ROWS + columns) * row + 8 * columns;
        let whole = widths.iter().map(|width| width.next_multiple_of(64)).sum();
        of(columns, row(widths[0]) + row(widths[1])).max(of(STAGES * HOPPER_COLUMNS, whole))
    }

    /// Returns the cost of each kernel in the order of [`BackwardPartition::kernels`], or of all together without matrix units.
    pub fn costs(&self, spec: &Spec) -> Vec<Cost> {
        let Some((_, widths)) = self.tiles else { return vec![self.cost_of_rows(spec)] };
        let bytes = |operands: &[usize]| operands.iter().map(|&operand| spec.operand(operand).bytes()).sum::<u64>();
        let of = |bytes: u64| Traffic::of(Space::Device, bytes);
        let (outputs, rows) = (spec.inputs.len(), self.shape.batch * self.shape.heads * self.shape.queries);
        let sums = Cost {
            instructions: (rows * (PER_PRODUCT * self.shape.value_size + PER_SUM)) as f64,
            read: of(bytes(&[3, 5]) + input(spec, DLSE).map_or(0, |place| bytes(&[place]))),
            scratch: of(4 * rows),
            blocks: rows.div_ceil(THREADS / WARP).max(1),
            share: share(THREADS),
            ..Cost::default()
        };
        let has_bias = input(spec, BIAS);
        let arithmetic = if spec.inputs[0].dtype == DType::F16 { Arithmetic::F16 } else { Arithmetic::BF16 };
        let of_shared = (self.shared() * u64::from(Cost::WHOLE_UNIT)).div_ceil(UNIT_SHARED) as u32;
        let share_of_block = of_shared.max(share(THREADS)).min(Cost::WHOLE_UNIT);
        let resident = UNITS * u64::from(Cost::WHOLE_UNIT / share_of_block);
        let splits = self.splits();
        let parts = if splits > 1 { 4 * splits * self.results() } else { 0 };
        let of_kernel = |by_keys: bool| {
            let sides = if by_keys { (HOPPER_COLUMNS, BLOCK_ROWS) } else { (BLOCK_ROWS, HOPPER_COLUMNS) };
            let all = Tiles::of(&self.shape, self.shape.batch * self.shape.heads, sides, by_keys);
            // A block has the queries of all heads that share its keys.
            let tiles = if by_keys { all.joined(self.shape.group).shared(splits) } else { all };
            let (grid, products) = (self.blocks(by_keys).max(1), if by_keys { 4.0 } else { 3.0 });
            let each = tiles.of_block(resident, grid);
            let scores = each * (grid * BLOCK_ROWS * HOPPER_COLUMNS) as f64;
            let of_thread = (BLOCK_ROWS * HOPPER_COLUMNS / THREADS) as f64;
            let slopes = !by_keys && spec.outputs.len() > SLOPES;
            let results: u64 = match by_keys {
                true if splits > 1 => 0,
                true => bytes(&[outputs + 1, outputs + 2]),
                false => bytes(&[outputs]) + if slopes { bytes(&[outputs + SLOPES]) } else { 0 },
            };
            Cost {
                flops: products * self.shape.pairs() * (self.shape.size + self.shape.value_size) as f64,
                instructions: (PER_SCORE + if has_bias.is_some() { PER_BIAS } else { 0.0 }) * scores,
                special: self.shape.pairs(),
                read: of(bytes(&[0, 1, 2, 5]) + has_bias.map_or(0, |place| bytes(&[place]))),
                written: of(results),
                scratch: of(if by_keys { parts } else { 0 }),
                blocks: grid,
                share: share_of_block,
                matrix: Some(arithmetic),
                alternates: true,
                waits: 2.0 + each * (1.0 + has_bias.map_or(0.0, |_| of_thread / PER_WAIT)),
                exchanges: 2.0 * each,
                tiling: Tiling {
                    flops: products * scores * (widths[0] + widths[1]) as f64 / RATE,
                    ..Tiling::default()
                },
                ..Cost::default()
            }
        };
        let mut all = vec![sums, of_kernel(false), of_kernel(true)];
        if splits > 1 {
            let threads = self.results();
            all.push(Cost {
                instructions: (threads * (PER_PART * splits + PER_SUM / WARP)) as f64,
                written: of(bytes(&[outputs + 1, outputs + 2])),
                scratch: of(parts),
                blocks: threads.div_ceil(THREADS).max(1),
                share: share(THREADS),
                ..Cost::default()
            });
        }
        all
    }

    /// Returns the cost of the kernels without matrix units.
    fn cost_of_rows(&self, spec: &Spec) -> Cost {
        let (pairs, elements) = (self.shape.pairs(), (self.shape.size + self.shape.value_size) as f64);
        // Every row reads two operands with as many elements as its pairs have.
        let again = (2.0 * pairs * elements) as u64 * spec.inputs[1].dtype.size();
        Cost {
            flops: PRODUCTS * pairs * elements,
            instructions: pairs * (PRODUCTS / 2.0 * elements + 2.0 * WARP as f64 * 24.0),
            special: 2.0 * pairs,
            read: Spec::bytes_of(&spec.inputs),
            written: Spec::bytes_of(&spec.outputs),
            reread: Traffic::of(Space::Device, again),
            // The two kernels run one after the other.
            blocks: self.blocks(false).max(self.blocks(true)).max(1),
            share: share(THREADS),
            ..Cost::default()
        }
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

    /// Returns three kernels: for the row sums of `dy * o`, for `dq` with queries as rows, and for `dk` and `dv` with
    /// keys as rows.
    pub fn kernels(&self, spec: &Spec) -> Vec<Kernel> {
        let mut all = vec![self.sums(spec), self.kernel(spec, false), self.kernel(spec, true)];
        all.extend((self.splits() > 1).then(|| self.join(spec)));
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
        Arg::WorkspaceAt { offset, bytes: offset + 4 * self.splits() * self.results() }
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
            self.splits(),
        );
        let blocks = count.div_ceil(THREADS);
        kernel("attention_backward_join", &before, &params, backward_text::JOIN, blocks, THREADS as u32)
    }

    /// Returns the kernel whose rows are keys if `keys`, otherwise the one whose rows are queries.
    fn kernel(&self, spec: &Spec, keys: bool) -> Kernel {
        let order = order(spec, keys);
        let geometry = self.geometry(spec, keys);
        let mut params = Vec::new();
        for &(taken, name) in &order {
            let dtype = c_type(taken.tensor(spec).dtype);
            let written = matches!(taken, KernelOperand::Output(_) | KernelOperand::Slopes);
            let arg = match taken.operand(spec) {
                Some(operand) => Arg::Operand(operand as u8),
                None => Arg::Workspace(self.workspace(spec)),
            };
            params.push(param(format!("{}{dtype}* {name}", if written { "" } else { "const " }), arg));
        }
        params.push(geometry_param("g", &geometry));
        let rank = spec.inputs[0].dims.len();
        for &(taken, name) in &order {
            let steps = steps(&taken.tensor(spec), taken.axes(&self.shape, rank), rank);
            params.push(param(format!("const Steps s_{name}"), steps));
        }
        let (rows, others, indices) = self.rows(keys);
        params.extend(size_params(&self.shape, &[("rows", rows), ("others", others)]));
        params.extend(sequence_params(spec));
        let compute = spec.inputs[0].dtype.compute();
        params.push(param("C scale", Arg::real(compute, self.shape.scale)));
        let types = format!(
            "{}{}typedef {} T;\ntypedef {} C;\n#define OPERANDS {}\n#define BIAS {}\n#define SLOPES {}\n#define KEYS {}\n\
             #define GROUP {}\n#define CAUSAL {}\n",
            bounds(THREADS as u32),
            sequences_text(spec),
            c_type(spec.inputs[0].dtype),
            c_type(compute),
            order.len(),
            u32::from(order.iter().any(|(taken, _)| *taken == KernelOperand::Bias)),
            u32::from(order.iter().any(|(taken, _)| *taken == KernelOperand::Slopes)),
            u32::from(keys),
            if keys { self.shape.group } else { 1 },
            self.shape.causal,
        );
        let name = if keys { "attention_backward_keys" } else { "attention_backward_queries" };
        let (blocks, threads) = (self.blocks(keys), THREADS as u32);
        match &self.tiles {
            Some((columns, widths)) => {
                let scale = (self.shape.scale * std::f64::consts::LOG2_E) as f32;
                params.push(param("f32 scale_log2", Arg::F32(scale)));
                let splits = if keys { self.splits() } else { 1 };
                if splits > 1 {
                    params.push(param("f32* parts", self.parts(spec)));
                    params.extend([u32_param("indices", indices), u32_param("all_rows", rows)]);
                }
                let packs = order[..4].iter().all(|(taken, _)| in_packs(&taken.tensor(spec), 8));
                let dtype = spec.inputs[0].dtype;
                let before = format!(
                    "{}{types}#define THREADS {THREADS}\n#define BM {BLOCK_ROWS}\n#define HOPPER_COLUMNS {HOPPER_COLUMNS}\n\
                     #define OTHER_COLUMNS {columns}\n#define SPLITS {splits}\n#define WIDTH {}\n#define VALUE_WIDTH {}\n#define PACKS {packs}\n{}{}{}{}{}{}",
                    mma::FUNCTIONS,
                    widths[0],
                    widths[1],
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
                );
                let tiles = kernel(name, &before, &params, backward_text::TILES, blocks, threads);
                Kernel { shared: Shared::AtMost(self.shared() as u32), ..tiles }
            }
            None => {
                let before = format!(
                    "{types}#define EACH_Q {}\n#define EACH_V {}\n{}{}{}",
                    self.shape.size.div_ceil(WARP).max(1),
                    self.shape.value_size.div_ceil(WARP).max(1),
                    text::PLACES,
                    sequences_text::SEQUENCES,
                    backward_text::VIEW,
                );
                params.push(u64_param("count", indices * rows));
                kernel(&format!("{name}_rows"), &before, &params, backward_text::ROWS, blocks, threads)
            }
        }
    }

    /// Bytes of the workspace, which holds the row sums of `dy * o`.
    fn workspace(&self, spec: &Spec) -> u64 {
        spec.inputs[4].bytes()
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
        params.extend([
            param("C* sums", Arg::Workspace(self.workspace(spec))),
            u32_param("queries", self.shape.queries),
            u32_param("dv", self.shape.value_size),
            u64_param("count", count),
        ]);
        let before = format!(
            "{}typedef {} C;\n#define OPERANDS {}\n#define DLSE {}\nstruct Steps {{ i64 query, head, element; }};\n",
            bounds(THREADS as u32),
            c_type(spec.inputs[0].dtype.compute()),
            operands.len(),
            u32::from(dlse.is_some()),
        );
        let blocks = count.div_ceil(THREADS / WARP);
        kernel("attention_backward_sums", &before, &params, backward_text::SUMS, blocks, THREADS as u32)
    }
}
