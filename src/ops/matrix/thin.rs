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
use crate::ops::kernels::occupancy::{BUSY_BLOCKS, MOVED_AT_ONCE, RESIDENT_BLOCKS, SECTOR, WARP, share, share_with};
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
/// it follows a library's product. In the time of a launch, memory delivers 8 MB. Also of a product whose groups divide the depth, which needs
/// a second kernel instead of tiles.
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
/// Maximum number of rows of a thread, which keeps their sums in registers.
const MAX_ROWS: u64 = 8;

/// Maximum number of threads that share rows along the depth, and the number of packs of a row up to which these are enough.
const GROUPS: [(u64, u64); 3] = [(32, 512), (128, 1024), (256, u64::MAX)];

/// Maximum number of threads that share a row of a large matrix across the depth.
const ACROSS: u64 = 32;

/// Number of terms of the thin matrix that shared memory holds, for a large matrix across the depth.
const STAGED: u64 = 512;

/// Bytes that a thread has in flight.
const IN_FLIGHT: u64 = 64;
/// Maximum number of loads for these bytes.
const MAX_AHEAD: u64 = 16;

/// Minimum number of steps of a thread along the depth if blocks share it.
const MIN_STEPS: u64 = 4;

/// Maximum number of blocks that share the depth of a tile.
const MAX_SPLITS: u64 = 64;
/// Maximum number of blocks of a kernel.
const MAX_BLOCKS: u64 = u32::MAX as u64 >> 1;

/// Instructions per load with its address: along the depth; and across it, where a load beyond the last term is replaced. Counts in code for
/// sm_90a by NVRTC 13.0, as are those per conversion of an element of 16 bits, and of a thread for its place.
const PER_LOAD: [f64; 2] = [5.0, 12.0];
const PER_CONVERSION: f64 = 1.0;
const PER_THREAD: f64 = 130.0;
/// Registers of a thread besides its sums and loaded elements, along the depth and across it, in code of the same compiler; and number of
/// terms of the thin matrix that it loads at once into shared memory.
const OTHER_REGISTERS: [u64; 2] = [16, 36];
const STAGED_AT_ONCE: u64 = 4;
/// Number of sums that a thread of the second kernel loads at once.
const JOINED_AT_ONCE: u64 = 8;

/// Dimension that the groups of a thin grouped product divide.
#[derive(Clone, Copy)]
pub enum Groups {
    /// Rows of the large matrix, each group with its own thin matrix.
    Rows(u64),
    /// The depth, each group with its own result.
    Depth(u64),
}

/// Index of the input of a grouped product with the end of each group.
const ENDS: usize = 2;

/// Division of a thin product among blocks and threads.
pub struct Thin {
    /// Size of the large matrix along the dimension that is not the depth.
    wide: u64,
    /// Size of the thin matrix along the dimension that is not the depth.
    thin: u64,
    /// Number of terms of a sum.
    depth: u64,
    /// Number of products with these sizes.
    batch: u64,
    /// Groups of a grouped product; `None` for products of equal sizes.
    groups: Option<Groups>,
    /// Steps after the sums.
    finish: Finish,
    /// True if the large matrix is `b`, so that results along it are columns.
    is_b: bool,
    /// True if rows of the large matrix lie along the depth.
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

/// True if generated kernels compute the product.
pub fn applies(spec: &Spec) -> bool {
    Thin::of(spec).is_some()
}

/// Returns the kernels that compute the product and its epilogue; `None` for a product that is not thin.
pub fn launches(spec: &Spec) -> Option<Vec<Launch>> {
    Thin::of(spec).map(|thin| thin.launches(spec))
}

/// Returns the costs of these kernels; `None` if a library computes the product.
pub fn costs(spec: &Spec) -> Option<Vec<Cost>> {
    Thin::of(spec).map(|thin| thin.costs(spec, Spec::bytes_of(&spec.inputs)))
}

/// Returns the stride between the rows of a matrix, in elements.
fn row(tensor: &Tensor) -> u64 {
    tensor.strides[tensor.dims.len() - 2]
}

/// True if the rows of a factor lie along the depth: of `b` (`is_b`) if it is transposed, and of `a` if it is not.
fn lies_along_depth(spec: &Spec, is_b: bool) -> bool {
    is_b == spec.attrs.bool(if is_b { "transpose_b" } else { "transpose_a" })
}

impl Thin {
    /// Returns the division; `None` if a library or another kernel computes the product.
    fn of(spec: &Spec) -> Option<Thin> {
        let (m, n, depth, batch) = sizes(spec);
        let floats =
            matches!(arithmetic(spec), Arithmetic::F16 | Arithmetic::BF16 | Arithmetic::F32 | Arithmetic::Tf32);
        let is_b = m <= n;
        let (thin, wide) = if is_b { (m, n) } else { (n, m) };
        let size = spec.inputs[0].dtype.size();
        // Products that share the large matrix are one product with more rows.
        let is_shared = batches(spec).strides[usize::from(is_b)].contains(&0);
        if !floats || scales(spec).is_some() || thin == 0 || thin > MAX_THIN || is_shared {
            return None;
        }
        let along = lies_along_depth(spec, is_b);
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
        Thin { wide, thin, depth, batch, ..Thin::undivided(spec, Finish::of(spec), is_b)? }.divided(size)
    }

    /// Returns the division of a grouped product of these sizes, rows, columns and terms; `None` if tiles compute it.
    pub fn of_groups(spec: &Spec, finish: Finish, groups: Groups, [m, n, depth]: [u64; 3]) -> Option<Thin> {
        let floats = matches!(arithmetic(spec), Arithmetic::F16 | Arithmetic::BF16 | Arithmetic::F32);
        let in_depth = matches!(groups, Groups::Depth(_));
        let is_b = in_depth && m <= n;
        let (thin, wide) = if is_b { (m, n) } else { (n, m) };
        let fits = thin <= MAX_THIN && wide.min(thin).min(depth) > 0;
        let has_rows = |tensor: &Tensor| {
            let last = tensor.dims.len() - 1;
            tensor.strides[last] == 1 || tensor.dims[last] == 1
        };
        let have_rows = spec.inputs[..2].iter().chain(&spec.outputs).all(has_rows);
        if !floats || !fits || !have_rows || lies_along_depth(spec, is_b) == in_depth {
            return None;
        }
        let size = spec.inputs[0].dtype.size();
        // A second kernel adds up the parts of groups of the depth.
        if in_depth && wide * depth * size < MIN_BYTES_OF_VECTOR {
            return None;
        }
        let groups = Some(groups);
        Thin { wide, thin, depth, groups, ..Thin::undivided(spec, finish, is_b)? }.divided(size)
    }

    /// Returns the division with the numbers of rows, of columns and of terms that belong to groups, for costs: blocks skip the others.
    pub fn of_live(self, [m, n, depth]: [u64; 3]) -> Thin {
        Thin { wide: if self.is_b { n } else { m }, depth, ..self }
    }

    /// Returns a product whose threads load the largest packs that the large matrix permits; `None` if these are too small.
    fn undivided(spec: &Spec, finish: Finish, is_b: bool) -> Option<Thin> {
        let large = &spec.inputs[usize::from(is_b)];
        let size = large.dtype.size();
        let packs = (0..=(PACK_BYTES / size).ilog2()).rev().map(|exponent| 1 << exponent);
        let pack: u64 = packs.into_iter().find(|&pack| in_packs(large, pack))?;
        Some(Thin {
            wide: 0,
            thin: 0,
            depth: 0,
            batch: 1,
            groups: None,
            finish,
            is_b,
            along: lies_along_depth(spec, is_b),
            pack,
            rows: 1,
            group: 1,
            ahead: (IN_FLIGHT / (pack * size)).min(MAX_AHEAD),
            splits: 1,
            share: 0,
        })
    }

    /// Returns the product with its division.
    fn divided(mut self, size: u64) -> Option<Thin> {
        let least = match (self.along, self.thin) {
            _ if self.groups.is_some() => size,
            (_, 1) => MIN_VECTOR_BYTES,
            (true, _) => MIN_PACK_BYTES,
            (false, _) => size,
        };
        if self.pack * size < least {
            return None;
        }
        if self.along {
            self.divide_rows(size);
        } else {
            self.group = self.wide.div_ceil(self.pack).next_power_of_two().min(ACROSS);
            // A thread has no more terms of the part that shared memory holds.
            self.ahead = self.ahead.min(self.depth.min(STAGED).div_ceil(THREADS / self.group));
        }
        self.divide_depth();
        if let Some(Groups::Depth(groups)) = self.groups
            && self.splits == 1
        {
            self.batch = groups;
        }
        (self.blocks() <= MAX_BLOCKS).then_some(self)
    }

    /// Chooses how many threads share how many rows: no more than a row has packs, since the others would be idle. Threads with several
    /// rows read the thin matrix less often.
    ///
    /// A block of short rows takes about as long as its first loads. While more blocks wait than are resident, fewer threads share a row, or
    /// more rows, until each thread has [`IN_FLIGHT`] bytes to load.
    fn divide_rows(&mut self, size: u64) {
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
        let wait = |thin: &Thin| thin.tiles() * thin.batch >= 2 * RESIDENT_BLOCKS;
        let bytes = self.pack * size;
        while packs.div_ceil(self.group) < self.ahead && self.group * bytes > MOVED_AT_ONCE && wait(self) {
            self.group /= 2;
        }
        let steps = packs.div_ceil(self.group);
        while self.rows * steps < self.ahead && self.rows < MAX_ROWS && wait(self) {
            self.rows *= 2;
        }
        self.ahead = steps.div_ceil(steps.div_ceil(self.ahead));
    }

    /// Divides the depth if there are fewer tiles than SMs.
    fn divide_depth(&mut self) {
        let step = self.step();
        // Columns have twice the blocks, since these read in parts of the depth.
        let blocks = if self.along { BUSY_BLOCKS } else { 2 * BUSY_BLOCKS };
        // The blocks of all groups of the depth write about as many parts as the blocks of one.
        let most = if matches!(self.groups, Some(Groups::Depth(_))) { blocks } else { MAX_SPLITS };
        let wanted = (blocks / (self.tiles() * self.batch).max(1)).min(most);
        let few = wanted.min(self.depth / (step * MIN_STEPS));
        // If a second kernel follows, more blocks cost only their sums.
        let splits = if few > 1 { wanted.min(self.depth / step) } else { 1 };
        self.share = self.depth.div_ceil(splits).next_multiple_of(step);
        self.splits = self.depth.div_ceil(self.share);
    }

    /// Number of terms of the depth whose loads a block has in flight.
    fn step(&self) -> u64 {
        self.ahead * if self.along { self.group * self.pack } else { THREADS / self.group }
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
        let parts = match self.groups {
            _ if self.splits == 1 => 0,
            // Each block has a part of a group, and another one if a group begins among its terms.
            Some(Groups::Depth(groups)) => self.splits + groups,
            _ => self.splits * self.batch,
        };
        4 * parts * self.wide * self.thin
    }

    /// Number of results.
    fn results(&self) -> u64 {
        let products = if let Some(Groups::Depth(groups)) = self.groups { groups } else { self.batch };
        products * self.wide * self.thin
    }

    /// Returns the kernels of the product and its epilogue.
    pub fn launches(&self, spec: &Spec) -> Vec<Launch> {
        let join = (self.splits > 1).then(|| self.join(spec));
        [self.kernel(spec)].into_iter().chain(join).map(Launch::Kernel).collect()
    }

    /// Returns the cost of each kernel, in the order of launches. `read` are the bytes of the factors and of the epilogue's operands.
    pub fn costs(&self, spec: &Spec, read: Traffic) -> Vec<Cost> {
        let size = spec.inputs[0].dtype.size();
        let (wide, thin, rows) = (self.wide as f64, self.thin as f64, self.rows as f64);
        // Groups of the depth have all its terms together.
        let batch = if self.groups.is_some() { 1 } else { self.batch };
        let products = wide * (self.depth * batch) as f64;
        let parts = Traffic::of(Space::Device, self.parts());
        // Each block reads its part of the thin matrix.
        let again = self.tiles() * batch * self.thin * self.depth * size;
        let rounds = self.share.div_ceil(self.step());
        let expression = self.finish.expression();
        let results = self.results() as f64;
        let of_results = results * f64::from(expression.instructions());
        let conversion = if size < 4 { PER_CONVERSION } else { 0.0 };
        let of_load = |per_load: f64| conversion + per_load / self.pack as f64;
        let [along, across] = PER_LOAD;
        // A thread loads terms of the thin matrix for all of its rows. Across the depth, shared memory has them.
        let loading = if self.along { of_load(along) * (1.0 + thin / rows) } else { of_load(across) };
        let has_parts = self.splits > 1;
        // Blocks find the groups of their rows or terms first.
        let finding = if self.groups.is_some() { 1.0 } else { 0.0 };
        // Threads load terms of the thin matrix into shared memory, several at once.
        let staged = if self.along { 0 } else { (self.share * self.thin).div_ceil(THREADS * STAGED_AT_ONCE) };
        let kernel = Cost {
            flops: 2.0 * products * thin + results * f64::from(expression.flops()),
            instructions: products * self.padding() * (loading + thin)
                + of_results
                + (self.blocks() * THREADS) as f64 * self.of_thread(),
            read,
            sectors: (read.total() + again) as f64 / SECTOR as f64,
            written: if has_parts { parts } else { Spec::bytes_of(&spec.outputs) },
            blocks: self.blocks().max(1),
            share: share_with(THREADS, self.registers(size)),
            waits: (rounds + staged) as f64 + finding,
            exchanges: finding + if self.group > WARP || !self.along { 2.0 } else { 1.0 },
            ..Cost::default()
        };
        let added = (self.parts() / 4).div_ceil(self.results().max(1));
        let join = has_parts.then(|| Cost {
            instructions: results * (2 * added) as f64,
            read: parts,
            written: Spec::bytes_of(&spec.outputs),
            blocks: self.results().div_ceil(WARP).max(1),
            share: share(THREADS),
            waits: added.div_ceil(THREADS / WARP * JOINED_AT_ONCE) as f64 + finding,
            exchanges: 1.0,
            ..Cost::default()
        });
        std::iter::once(kernel).chain(join).collect()
    }

    /// Number of products of all threads for each product that exists. Threads behind the last row or term execute the instructions of
    /// their warps too.
    fn padding(&self) -> f64 {
        let (rows, terms) = match self.along {
            true => (THREADS / self.group * self.rows, self.group * self.pack),
            false => (self.group * self.pack, THREADS / self.group),
        };
        let padded = |size: u64, whole: u64| size.next_multiple_of(whole) as f64 / size.max(1) as f64;
        padded(self.wide, rows) * padded(self.share.min(self.depth), terms)
    }

    /// Registers of a thread. Across the depth, it loads the next elements while it adds the current ones.
    fn registers(&self, size: u64) -> u64 {
        let loaded = self.ahead * self.rows * (self.pack * size).div_ceil(4);
        let [along, across] = OTHER_REGISTERS;
        match self.along {
            true => along + loaded + self.thin * (self.rows + self.pack),
            false => across + 2 * loaded + self.thin * self.pack,
        }
    }

    /// Instructions of a thread besides its products: for its place, and to add the sums of threads that share rows or columns.
    fn of_thread(&self) -> f64 {
        let sums = match self.along {
            true => 4.0 * (self.rows * self.thin).next_power_of_two() as f64 + 4.0 * f64::from(self.group.ilog2()),
            false => (self.thin * 2 * self.pack) as f64 + 20.0 * self.thin as f64,
        };
        PER_THREAD + sums
    }

    /// Returns the parameters of both kernels.
    fn parameters(&self, spec: &Spec) -> Vec<Parameter> {
        let finish = self.finish;
        let c = &spec.outputs[0];
        let [along_row, along_column] = [row(c), 1];
        let steps = if self.is_b { [along_column, along_row] } else { [along_row, along_column] };
        let mut params = vec![
            param("O* c", Arg::Operand(spec.inputs.len() as u8)),
            param("const O* bias", Arg::Operand(finish.bias.unwrap_or(0) as u8)),
            param("C* parts", Arg::Workspace(self.parts())),
            u64_param("bias_step", finish.bias.map_or(0, |bias| spec.inputs[bias].strides[0])),
            param("const Steps step", Arg::Words(steps.to_vec())),
            geometry_param("batches", &batches(spec)),
            u32_param("wide", self.wide),
            u32_param("splits", self.splits),
            u32_param("depth", self.depth),
            u32_param("share", self.share),
        ];
        if let Some(Groups::Rows(groups) | Groups::Depth(groups)) = self.groups {
            params.extend([
                param("const I* ends", Arg::Operand(ENDS as u8)),
                u64_param("ends_step", spec.inputs[ENDS].strides[0]),
                u32_param("groups", groups),
                u64_param("group_step", spec.inputs[1].strides[0]),
            ]);
        }
        params
    }

    /// Returns the macro definitions of both kernels, followed by the text that they share.
    fn before(&self, spec: &Spec) -> String {
        let finish = self.finish;
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
            ("GROUPS_OF_ROWS", u64::from(matches!(self.groups, Some(Groups::Rows(_))))),
            ("GROUPS_OF_DEPTH", u64::from(matches!(self.groups, Some(Groups::Depth(_))))),
            ("BIAS", u64::from(finish.bias.is_some())),
            ("ADDS", u64::from(finish.before.is_some())),
        ]
        .map(|(name, value)| define(name, value))
        .concat();
        let of_groups = match self.groups {
            Some(_) => format!("typedef {} I;\n{}", c_type(spec.inputs[ENDS].dtype), text::GROUPS),
            None => String::new(),
        };
        format!(
            "typedef {} T;\ntypedef {} O;\ntypedef f32 C;\n{}#undef BOUNDS\n#define BOUNDS __launch_bounds__({THREADS})\n\
             {numbers}{of_groups}{}",
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
        let count = self.results();
        params.push(u64_param("count", count));
        let blocks = count.div_ceil(WARP);
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
        for (dtype, k, pack, ahead) in
            [(DType::BF16, 4096, 8, 2), (DType::BF16, 4100, 4, 5), (DType::BF16, 4098, 2, 9), (DType::F32, 4099, 1, 9)]
        {
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

    /// Threads of short rows have more loads, and more rows, while blocks wait for others.
    #[test]
    fn threads_of_many_short_rows_have_many_loads() {
        for (dtype, sizes, group, rows, ahead) in [
            (DType::F16, [135_168, 208, 1], 8, 1, 4),
            (DType::F32, [668_792, 8, 2], 2, 4, 1),
            (DType::F32, [1592, 44, 4], 16, 1, 1),
        ] {
            let thin = divided(dtype, sizes, true, false).expect("a thin product");
            assert_eq!((thin.group, thin.rows, thin.ahead), (group, rows, ahead), "{dtype} {sizes:?}");
        }
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
