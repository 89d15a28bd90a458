//! Products with few rows or few columns: generated kernels that read the large matrix once, at the speed of the memory. Rows of the large
//! matrix have any alignment; a thread loads as many bytes at once as it permits.
//!
//! Rows of the large matrix lie along the depth, so that threads share a row; or across the depth, so that each thread
//! has some columns. Blocks share the depth if there are fewer tiles than SMs; a second kernel then adds their sums.

use super::super::cost::Traffic;
use super::super::layout::in_packs;
use super::epilogue::Finish;
use super::{arithmetic, batches, is_odd, scales, sizes, thin_text as text};
use crate::ops::kernels::kernel::{Parameter, c_type, geometry_param, kernel, param, u32_param, u64_param};
use crate::ops::kernels::occupancy::{BUSY_BLOCKS, SECTOR, WARP, share};
use crate::ops::{Arg, Arithmetic, Cost, Kernel, Launch, Space, Spec, Tensor};

/// Maximum number of rows or columns of a thin product. With more, multiplying takes longer than reading the large matrix without
/// matrix units, and a library is as fast for `f32`.
const MAX_THIN: u64 = 4;

/// Minimum size in bytes of the large matrix if its rows lie along the depth. A library's kernel of a smaller product takes about as long as
/// its launch. For larger ones, it multiplies many terms one after the other, or a second kernel adds up parts of them.
const MIN_BYTES: u64 = 1 << 14;
/// As [`MIN_BYTES`], across the depth: blocks share the depth of small products, and a second kernel follows here, too.
const MIN_BYTES_ACROSS: u64 = 1 << 20;
/// As [`MIN_BYTES`], of a vector across the depth whose epilogue the kernel computes: blocks share the depth and a second kernel follows, as
/// it follows a library's product. In the time of a launch, memory delivers 8 MB.
const MIN_BYTES_OF_VECTOR: u64 = 1 << 23;

/// Number of bytes that a thread loads at once, if the rows of the large matrix are whole packs; otherwise half as many, and so on down to
/// an element.
const PACK_BYTES: u64 = 16;
/// Minimum number of bytes of a load along the depth of a product with several vectors: with fewer, a thread takes more instructions for
/// loading than the memory leaves time for.
const MIN_PACK_BYTES: u64 = 4;
/// As [`MIN_PACK_BYTES`], of a product with one vector. A library's kernels for vectors are as fast with smaller loads.
const MIN_VECTOR_BYTES: u64 = 8;

/// Threads of a block.
const THREADS: u64 = 256;

/// Maximum number of threads that share rows along the depth, and the number of packs of a row up to which these are enough.
const GROUPS: [(u64, u64); 3] = [(32, 512), (128, 1024), (256, u64::MAX)];

/// Maximum number of threads that share a row of a large matrix across the depth.
const ACROSS: u64 = 32;

/// Number of terms of the thin matrix that shared memory holds, for a large matrix across the depth.
const STAGED: u64 = 512;

/// Number of loads that a thread has in flight, for each of its rows.
const AHEAD: u64 = 4;
/// As [`AHEAD`], for loads of less than [`MIN_VECTOR_BYTES`].
const SMALL_AHEAD: u64 = 16;

/// Minimum number of steps of a thread along the depth if blocks share it.
const MIN_STEPS: u64 = 4;

/// Maximum number of blocks that share the depth of a tile.
const MAX_SPLITS: u64 = 64;
/// Maximum number of blocks of a kernel.
const MAX_BLOCKS: u64 = u32::MAX as u64 >> 1;

/// Instructions per element of a matrix, which is converted and multiplied.
const PER_ELEMENT: f64 = 1.5;
/// Instructions per load beyond those of [`MIN_VECTOR_BYTES`], which [`PER_ELEMENT`] contains.
const PER_LOAD: f64 = 2.0;
/// Number of sums that a thread of the second kernel loads at once.
const JOINED_AT_ONCE: u64 = 8;

/// Division of a thin product among blocks and threads.
struct Thin {
    /// Size of the large matrix along the dimension that is not the depth.
    wide: u64,
    /// Size of the thin matrix along the dimension that is not the depth.
    thin: u64,
    /// Number of terms of a sum.
    depth: u64,
    /// Number of products with these sizes.
    batch: u64,
    /// Whether the large matrix is `b`, so that results along it are columns.
    is_b: bool,
    /// Whether rows of the large matrix lie along the depth.
    along: bool,
    /// Number of neighbouring elements that a thread loads at once.
    pack: u64,
    /// Rows of a thread; 1 if the large matrix lies across the depth.
    rows: u64,
    /// Number of threads that share rows or, across the depth, columns.
    group: u64,
    /// Number of loads of a row, or of terms, that a thread has in flight.
    ahead: u64,
    /// Number of blocks that share the depth of a tile.
    splits: u64,
    /// Depth that each of the blocks of a tile computes.
    share: u64,
}

/// Whether generated kernels compute the product.
pub fn applies(spec: &Spec) -> bool {
    Thin::of(spec).is_some()
}

/// Returns the kernels that compute the product and its epilogue; `None` for a product that is not thin.
pub fn launches(spec: &Spec) -> Option<Vec<Launch>> {
    let thin = Thin::of(spec)?;
    let join = (thin.splits > 1).then(|| thin.join(spec));
    Some([thin.kernel(spec)].into_iter().chain(join).map(Launch::Kernel).collect())
}

/// Returns the costs of these kernels; `None` if a library computes the product.
pub fn costs(spec: &Spec) -> Option<Vec<Cost>> {
    Thin::of(spec).map(|thin| thin.costs(spec))
}

/// Returns the stride between the rows of a matrix, in elements.
fn row(tensor: &Tensor) -> u64 {
    tensor.strides[tensor.dims.len() - 2]
}

impl Thin {
    /// Returns the division; `None` if a library or another kernel computes the product.
    fn of(spec: &Spec) -> Option<Thin> {
        let (m, n, depth, batch) = sizes(spec);
        let floats =
            matches!(arithmetic(spec), Arithmetic::F16 | Arithmetic::BF16 | Arithmetic::F32 | Arithmetic::Tf32);
        let is_b = m <= n;
        let (thin, wide) = if is_b { (m, n) } else { (n, m) };
        let large = &spec.inputs[usize::from(is_b)];
        let size = large.dtype.size();
        // Products that share the large matrix are one product with more rows.
        let is_shared = batches(spec).strides[usize::from(is_b)].contains(&0);
        if !floats || scales(spec).is_some() || thin == 0 || thin > MAX_THIN || is_shared {
            return None;
        }
        // Rows of `b` lie along the depth if it is transposed, and those of `a` if it is not.
        let along = is_b == spec.attrs.bool(if is_b { "transpose_b" } else { "transpose_a" });
        let is_odd = is_odd(spec);
        let least = match (along, thin) {
            (false, 1) => MIN_BYTES_OF_VECTOR,
            (false, _) if !is_odd => MIN_BYTES_ACROSS,
            _ => MIN_BYTES,
        };
        if wide * depth * batch * size < least {
            return None;
        }
        // Across the depth, a library is as fast for 16-bit elements in whole packs, and for a vector without a kernel for its epilogue.
        if !along && if thin == 1 { size < 4 || !Finish::of(spec).has_epilogue() } else { size < 4 && !is_odd } {
            return None;
        }
        let packs = (0..=(PACK_BYTES / size).ilog2()).rev().map(|exponent| 1 << exponent);
        let pack: u64 = packs.into_iter().find(|&pack| in_packs(large, pack))?;
        let least = match (along, thin) {
            (_, 1) => MIN_VECTOR_BYTES,
            (true, _) => MIN_PACK_BYTES,
            (false, _) => size,
        };
        if pack * size < least {
            return None;
        }
        let mut all = Thin {
            wide,
            thin,
            depth,
            batch,
            is_b,
            along,
            pack,
            rows: 1,
            group: wide.div_ceil(pack).next_power_of_two().min(ACROSS),
            ahead: if pack * size < MIN_VECTOR_BYTES { SMALL_AHEAD } else { AHEAD },
            splits: 1,
            share: depth,
        };
        if along {
            all.divide_rows();
        } else {
            // A thread has no more terms of the part that shared memory holds.
            all.ahead = all.ahead.min(depth.min(STAGED).div_ceil(THREADS / all.group));
        }
        all.divide_depth();
        (all.blocks() <= MAX_BLOCKS).then_some(all)
    }

    /// Chooses how many threads share how many rows: no more than a row has packs, since the others would be idle. Threads with several
    /// rows read the thin matrix less often.
    fn divide_rows(&mut self) {
        self.rows = if self.thin == 1 { 1 } else { 2 };
        let packs = self.depth / self.pack;
        for (group, most) in GROUPS {
            self.group = packs.next_power_of_two().min(group);
            if packs <= most {
                break;
            }
        }
        if self.tiles() * self.batch < BUSY_BLOCKS {
            self.rows = 1;
        }
        if self.tiles() * self.batch < BUSY_BLOCKS && packs >= THREADS {
            self.group = THREADS;
        }
    }

    /// Divides the depth if there are fewer tiles than SMs.
    fn divide_depth(&mut self) {
        let step = if self.along { self.group * self.pack } else { THREADS / self.group };
        let step = step * self.ahead;
        // Columns have twice the blocks, since these read in parts of the depth.
        let blocks = if self.along { BUSY_BLOCKS } else { 2 * BUSY_BLOCKS };
        let wanted = (blocks / (self.tiles() * self.batch).max(1)).min(MAX_SPLITS);
        let splits = wanted.min(self.depth / (step * MIN_STEPS)).max(1);
        self.share = self.depth.div_ceil(splits).next_multiple_of(step);
        self.splits = self.depth.div_ceil(self.share);
    }

    /// Number of tiles of rows, or of columns, of each product.
    fn tiles(&self) -> u64 {
        match self.along {
            true => self.wide.div_ceil(THREADS / self.group * self.rows),
            false => self.wide.div_ceil(self.group * self.pack),
        }
    }

    /// Number of blocks of the first kernel.
    fn blocks(&self) -> u64 {
        self.tiles() * self.splits * self.batch
    }

    /// Bytes of the sums of blocks that share the depth; 0 if no blocks do.
    fn parts(&self) -> u64 {
        let count = if self.splits > 1 { self.splits * self.batch * self.wide * self.thin } else { 0 };
        4 * count
    }

    /// Returns the cost of each kernel, in the order of launches.
    fn costs(&self, spec: &Spec) -> Vec<Cost> {
        let size = spec.inputs[0].dtype.size();
        let (wide, thin, rows) = (self.wide as f64, self.thin as f64, self.rows as f64);
        let products = wide * (self.depth * self.batch) as f64;
        let parts = Traffic::of(Space::Device, self.parts());
        // Each block reads its part of the thin matrix.
        let again = self.tiles() * self.batch * self.thin * self.depth * size;
        let step = if self.along { self.group * self.pack } else { THREADS / self.group };
        let rounds = self.share.div_ceil(step * self.ahead);
        let expression = Finish::of(spec).expression();
        let results = wide * thin * self.batch as f64;
        let of_results = results * f64::from(expression.instructions());
        let loads = 1.0 / self.pack as f64 - size as f64 / MIN_VECTOR_BYTES as f64;
        let per_element = PER_ELEMENT + PER_LOAD * loads.max(0.0);
        let (written, join) = match self.splits {
            1 => (Spec::bytes_of(&spec.outputs), None),
            _ => (parts, Some(parts)),
        };
        let kernel = Cost {
            flops: 2.0 * products * thin + results * f64::from(expression.flops()),
            // Each element is converted, as are those of the thin matrix for the rows of a thread, and multiplied.
            instructions: products * (per_element + thin * (1.0 + per_element / rows)) + of_results,
            read: Spec::bytes_of(&spec.inputs),
            sectors: (Spec::bytes_of(&spec.inputs).total() + again) as f64 / SECTOR as f64,
            written,
            blocks: self.blocks(),
            share: share(THREADS),
            waits: rounds as f64,
            exchanges: if self.group > WARP || !self.along { 2.0 } else { 1.0 },
            ..Cost::default()
        };
        let join = join.map(|parts| Cost {
            instructions: results * (2 * self.splits) as f64,
            read: parts,
            written: Spec::bytes_of(&spec.outputs),
            blocks: (self.batch * self.wide * self.thin).div_ceil(THREADS).max(1),
            share: share(THREADS),
            waits: self.splits.div_ceil(JOINED_AT_ONCE) as f64,
            ..Cost::default()
        });
        std::iter::once(kernel).chain(join).collect()
    }

    /// Returns the parameters of both kernels.
    fn parameters(&self, spec: &Spec) -> Vec<Parameter> {
        let finish = Finish::of(spec);
        let c = &spec.outputs[0];
        let [along_row, along_column] = [row(c), 1];
        let steps = if self.is_b { [along_column, along_row] } else { [along_row, along_column] };
        vec![
            param("O* c", Arg::Operand(spec.inputs.len() as u8)),
            param("const O* bias", Arg::Operand(finish.bias.unwrap_or(0) as u8)),
            param("C* parts", Arg::Workspace(self.parts())),
            u64_param("bias_step", finish.bias.map_or(0, |bias| spec.inputs[bias].strides[0])),
            param("const Steps step", Arg::Words(steps.to_vec())),
            geometry_param("batches", &batches(spec)),
            u32_param("wide", self.wide),
            u32_param("splits", self.splits),
        ]
    }

    /// Returns the macro definitions of both kernels, followed by the text that they share.
    fn before(&self, spec: &Spec) -> String {
        let finish = Finish::of(spec);
        let small = &spec.inputs[usize::from(!self.is_b)];
        let [row_small, term_small] = self.small_steps(spec);
        let lead = &small.strides[..small.dims.len() - 2];
        let aligned = u64::from(small.align).is_multiple_of(self.pack * small.dtype.size())
            && lead.iter().all(|stride| stride.is_multiple_of(self.pack));
        let along = aligned && term_small == 1 && (self.thin == 1 || row_small.is_multiple_of(self.pack));
        let dense = aligned && row_small == 1 && term_small == self.thin;
        let define = |name: &str, value: u64| format!("#define {name} {value}\n");
        let numbers: String = [
            ("THREADS", THREADS),
            ("THIN", self.thin),
            ("V", self.pack),
            ("ROWS", self.rows),
            ("GROUP", self.group),
            ("LANES", self.group.min(WARP)),
            ("AHEAD", self.ahead),
            ("SLICES", THREADS / self.group),
            ("WARP", WARP),
            ("STAGED", STAGED),
            ("FACTORS", self.thin.next_power_of_two()),
            ("MANY", (self.rows * self.thin).next_power_of_two()),
            ("ALONG", u64::from(along)),
            ("DENSE", u64::from(dense && !along)),
            ("WIDE_COLUMNS", u64::from(self.is_b)),
            ("PARTS", u64::from(self.splits > 1)),
            ("BIAS", u64::from(finish.bias.is_some())),
            ("ADDS", u64::from(finish.before.is_some())),
        ]
        .map(|(name, value)| define(name, value))
        .concat();
        format!(
            "typedef {} T;\ntypedef {} O;\ntypedef f32 C;\n{}#undef BOUNDS\n#define BOUNDS __launch_bounds__({THREADS})\n\
             {numbers}{}",
            c_type(small.dtype),
            c_type(spec.outputs[0].dtype),
            finish.function_text(),
            text::COMMON
        )
    }

    /// Returns the strides of the thin matrix, in elements: along its own rows or columns, and along the depth.
    fn small_steps(&self, spec: &Spec) -> [u64; 2] {
        let small = &spec.inputs[usize::from(!self.is_b)];
        let (row, turned) = (row(small), if self.is_b { "transpose_a" } else { "transpose_b" });
        // Rows of `a` are along the depth, and those of `b` across it, unless they are transposed.
        if self.is_b != spec.attrs.bool(turned) { [row, 1] } else { [1, row] }
    }

    fn kernel(&self, spec: &Spec) -> Kernel {
        let mut params = self.parameters(spec);
        let [row_small, term_small] = self.small_steps(spec);
        params.extend([
            param("const T* a", Arg::Operand(0)),
            param("const T* b", Arg::Operand(1)),
            u32_param("depth", self.depth),
            u32_param("share", self.share),
            u32_param("tiles", self.tiles()),
            u64_param("row_large", row(&spec.inputs[usize::from(self.is_b)])),
            u64_param("row_small", row_small),
            u64_param("term_small", term_small),
        ]);
        let body = if self.along { text::ALONG_DEPTH } else { text::ACROSS_DEPTH };
        let body = format!("{}{body}", text::PLACE);
        kernel("gemm_thin", &self.before(spec), &params, &body, self.blocks(), THREADS as u32)
    }

    fn join(&self, spec: &Spec) -> Kernel {
        let mut params = self.parameters(spec);
        let count = self.batch * self.wide * self.thin;
        params.push(u64_param("count", count));
        let blocks = count.div_ceil(THREADS);
        kernel("gemm_thin_join", &self.before(spec), &params, text::JOIN, blocks, THREADS as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::DType;
    use crate::ops::Attr;

    /// Returns the division of a product of contiguous matrices, with a turned `b` or a bias.
    fn divided(dtype: DType, [m, k, n]: [u64; 3], is_turned: bool, has_bias: bool) -> Option<Thin> {
        let of = |dims: &[u64]| Tensor::packed(dtype, dims);
        let b = if is_turned { of(&[n, k]) } else { of(&[k, n]) };
        let mut inputs = vec![of(&[m, k]), b];
        inputs.extend(has_bias.then(|| of(&[n])));
        let spec = Spec::of_use("gemm", &[("transpose_b", Attr::Bool(is_turned))], inputs, &[None]);
        Thin::of(&spec.expect("a product"))
    }

    /// Threads load as many bytes at once as the rows of the large matrix permit.
    #[test]
    fn rows_of_any_length_are_read_in_the_largest_packs() {
        for (dtype, k, pack, ahead) in [
            (DType::BF16, 4096, 8, 4),
            (DType::BF16, 4100, 4, 4),
            (DType::BF16, 4098, 2, 16),
            (DType::F32, 4099, 1, 16),
        ] {
            let thin = divided(dtype, [3, k, 999], true, false).expect("a thin product");
            assert_eq!((thin.pack, thin.ahead), (pack, ahead), "{dtype} {k}");
        }
        assert!(divided(DType::BF16, [3, 4099, 999], true, false).is_none());
        for (k, group) in [(4, 1), (8, 2), (40, 16), (4096, 128)] {
            assert_eq!(divided(DType::F32, [7477, k, 3], true, false).map(|thin| thin.group), Some(group), "{k}");
        }
        let narrow = divided(DType::BF16, [4, 22057, 16], false, false).expect("a thin product");
        assert_eq!((narrow.pack, narrow.group, narrow.ahead, narrow.tiles()), (8, 2, 4, 1));
        assert!(narrow.splits > 1);
    }

    /// A library has kernels for vectors with rows of any alignment, but a second kernel follows them.
    #[test]
    fn a_library_multiplies_vectors_as_fast() {
        assert!(divided(DType::BF16, [1, 11641, 31], true, false).is_none());
        assert!(divided(DType::BF16, [1, 11640, 31], true, false).is_some());
        for (n, has_bias, applies) in [(10040, true, true), (10040, false, false), (10041, true, false)] {
            assert_eq!(divided(DType::F32, [1, 896, n], false, has_bias).is_some(), applies, "{n} {has_bias}");
        }
    }
}
