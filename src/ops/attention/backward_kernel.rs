//! The launches of the gradients of attention.

use super::super::kernel::{bounds, c_type, geometry_param, geometry_words, source};
use super::super::layout::in_packs;
use super::super::mma;
use super::super::occupancy::{UNIT_SHARED, share};
use super::kernel::{bind_sizes, steps, whole_tiles};
use super::shape::Axes;
use super::*;

/// Threads of a block, which is four warps of 32 or two of 64.
const THREADS: u64 = 128;

/// The largest head that the matrix units take: the sums of both gradients of a block's keys lie in registers.
const LARGEST_TILE: u64 = 128;

/// Rows of a block: as many as its warps have tiles.
const BLOCK_ROWS: u64 = 64;

/// Products of queries with keys and of gradients with values, which both kernels compute, and those of each gradient.
const PRODUCTS: f64 = 7.0;

/// Instructions for each score in a kernel: its scale, its exponential, its slope, and two roundings.
const OF_A_SCORE: f64 = 8.0;

/// Operands as the operation has them: q, k, v, lse, dy, delta, dq, dk, dv.
const QUERIES: [usize; 8] = [0, 4, 1, 2, 3, 5, 6, 6];
const KEYS: [usize; 8] = [1, 2, 0, 4, 3, 5, 7, 8];

/// How blocks share the work.
pub struct Split {
    shape: Shape,
    /// Columns of a block's tiles, and the widths of rows; `None` if each row has 32 threads, which multiply without matrix
    /// units.
    tiles: Option<(u64, [u64; 2])>,
}

impl Split {
    pub fn of(spec: &Spec) -> Split {
        let shape = Shape::of(spec);
        let narrow = matches!(spec.inputs[0].dtype, DType::F16 | DType::BF16);
        let widest = shape.size.max(shape.value_size);
        let columns = if widest <= 64 { 64 } else { 32 };
        let tiles = narrow && widest <= LARGEST_TILE;
        let widths = [shape.size, shape.value_size].map(whole_tiles);
        Split { shape, tiles: tiles.then_some((columns, widths)) }
    }

    /// Rows and columns of each index of the geometry, and the number of indices.
    fn rows(&self, keys: bool) -> (u64, u64, u64) {
        let Shape { batch, heads, group, .. } = self.shape;
        match keys {
            true => (self.shape.keys, self.shape.queries * group, batch * heads / group),
            false => (self.shape.queries, self.shape.keys, batch * heads),
        }
    }

    fn blocks(&self, keys: bool) -> u64 {
        let (rows, _, indices) = self.rows(keys);
        match self.tiles {
            Some(_) => indices * rows.div_ceil(BLOCK_ROWS),
            None => (indices * rows).div_ceil(THREADS / WARP),
        }
    }

    /// Bytes of shared memory of a block: tiles of both sides, and a logarithm and a sum for each column.
    fn shared(&self) -> u64 {
        let Some((columns, widths)) = self.tiles else { return 0 };
        let row = |width: u64| if width.is_multiple_of(64) { width } else { width + 8 };
        2 * (BLOCK_ROWS + columns) * (row(widths[0]) + row(widths[1])) + 8 * columns
    }

    pub fn cost(&self, spec: &Spec) -> Cost {
        let pairs = self.shape.pairs();
        let elements = (self.shape.size + self.shape.value_size) as f64;
        let (instructions, share, matrix) = match self.tiles {
            Some(_) => {
                let arithmetic = if spec.inputs[0].dtype == DType::F16 { Arithmetic::F16 } else { Arithmetic::BF16 };
                let of_shared = (self.shared() * u64::from(Cost::WHOLE_UNIT)).div_ceil(UNIT_SHARED) as u32;
                (2.0 * OF_A_SCORE * pairs, of_shared.max(share(THREADS)), Some(arithmetic))
            }
            None => (pairs * (PRODUCTS / 2.0 * elements + 2.0 * WARP as f64 * 24.0), share(THREADS), None),
        };
        Cost {
            flops: PRODUCTS * pairs * elements,
            instructions,
            special: 2.0 * pairs,
            read: Spec::bytes_of(&spec.inputs),
            written: Spec::bytes_of(&spec.outputs),
            reread: Spec::bytes_of(&spec.inputs),
            blocks: (self.blocks(false) + self.blocks(true)).max(1),
            share,
            matrix,
            ..Cost::default()
        }
    }

    /// The walk over heads: those of keys if rows are keys, else those of queries.
    fn geometry(&self, spec: &Spec, keys: bool) -> Geometry {
        let order = if keys { KEYS } else { QUERIES };
        let q = &spec.inputs[0].dims;
        let (lead, rows) = (q.len().saturating_sub(3), Axes::of_rows(q.len()));
        let mut dims = Dims::from_slice(&q[..lead]).unwrap_or_default();
        dims.push(self.shape.heads / self.shape.group);
        if !keys {
            dims.push(self.shape.group);
        }
        let strides: Vec<Dims> = order
            .iter()
            .map(|&operand| {
                let tensor = spec.operand(operand);
                let mut own = Dims::from_slice(&tensor.strides[..lead]).unwrap_or_default();
                let axes = if matches!(operand, 3 | 5) { rows } else { self.shape.axes };
                let step = axes.heads_of(&tensor.strides) * u64::from(axes.heads.is_some());
                let shared = matches!(operand, 1 | 2 | 7 | 8);
                own.push(if shared { step } else { step * self.shape.group });
                if !keys {
                    own.push(if shared { 0 } else { step });
                }
                own
            })
            .collect();
        layout::collapse(dims, &strides)
    }

    /// The kernel whose rows are queries, or the one whose rows are keys.
    pub fn launch(&self, spec: &Spec, keys: bool) -> Launch {
        let order = if keys { KEYS } else { QUERIES };
        let names = ["own1", "own2", "other1", "other2", "lse", "delta", "out1", "out2"];
        let geometry = self.geometry(spec, keys);
        let (mut params, mut args, mut types) = (Vec::new(), Vec::new(), String::new());
        for (place, (&operand, name)) in order.iter().zip(names).enumerate() {
            let tensor = spec.operand(operand);
            let dtype = c_type(tensor.dtype);
            params.push(if place < 6 { format!("const {dtype}* {name}") } else { format!("{dtype}* {name}") });
            args.push(Arg::Operand(operand as u8));
        }
        params.push(geometry_param(&geometry));
        args.push(Arg::Words(geometry_words(&geometry)));
        for (place, (&operand, name)) in order.iter().zip(names).enumerate() {
            params.push(format!("const Steps s_{name}"));
            let axes = if (4..6).contains(&place) { None } else { Some(self.shape.axes) };
            args.push(steps(spec.operand(operand), axes, spec.inputs[0].dims.len()));
        }
        let (rows, others, indices) = self.rows(keys);
        bind_sizes(&self.shape, &[("rows", rows), ("others", others)], &mut params, &mut args);
        let compute = spec.inputs[0].dtype.compute();
        params.push("C scale".to_owned());
        args.push(Arg::real(compute, self.shape.scale));
        types += &format!(
            "{}typedef {} T;\ntypedef {} C;\n#define OPERANDS 8\n#define KEYS {}\n#define GROUP {}\n#define CAUSAL {}\n",
            bounds(THREADS as u32),
            c_type(spec.inputs[0].dtype),
            c_type(compute),
            u32::from(keys),
            if keys { self.shape.group } else { 1 },
            self.shape.causal,
        );
        let name = if keys { "attention_backward_keys" } else { "attention_backward_queries" };
        let (source, shared) = match &self.tiles {
            Some((columns, widths)) => {
                params.push("f32 scale_log2".to_owned());
                args.push(Arg::F32((self.shape.scale * std::f64::consts::LOG2_E) as f32));
                let packs = order[..4].iter().all(|&operand| in_packs(spec.operand(operand), 8));
                let before = format!(
                    "{}{types}#define THREADS {THREADS}\n#define BM {BLOCK_ROWS}\n#define BN {columns}\n\
                     #define ROW_WARPS_AT_MOST 4\n#define WIDTH {}\n#define VALUE_WIDTH {}\n#define PACKS {packs}\n{}{}{}",
                    mma::FUNCTIONS,
                    widths[0],
                    widths[1],
                    text::PLACES,
                    text::TILES,
                    backward_text::VIEW,
                );
                (source(name, &before, &params, backward_text::TILES), self.shared())
            }
            None => {
                let before = format!(
                    "{types}#define EACH_Q {}\n#define EACH_V {}\n{}{}",
                    self.shape.size.div_ceil(WARP).max(1),
                    self.shape.value_size.div_ceil(WARP).max(1),
                    text::PLACES,
                    backward_text::VIEW,
                );
                params.push("u64 count".to_owned());
                args.push(Arg::U64(indices * rows));
                (source(&format!("{name}_rows"), &before, &params, backward_text::ROWS), 0)
            }
        };
        Launch::Kernel(Kernel {
            source,
            grid: Kernel::along_x(self.blocks(keys)),
            block: Kernel::along_x(THREADS as u32),
            shared: Shared::Bytes(shared as u32),
            args,
        })
    }
}
