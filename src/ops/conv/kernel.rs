//! Launches of convolutions: how thread blocks divide the matrix product of each group.

use crate::ops::call::windows;
use std::sync::Arc;

use super::super::launch::ConvProducts;
use super::depthwise::{self, Depthwise};
use super::few::Few;
use super::fold::{self, Fold};
use super::lines::{self, Lines};
use super::products::Products;
use super::*;
use crate::ops::kernels::kernel::{Parameter, bounds, c_type, index_type, kernel, param, u32_param, u64_param};
use crate::ops::kernels::mma;
use crate::ops::kernels::occupancy::{BUSY_BLOCKS, RESIDENT_BLOCKS};

/// Maximum number of rows for which each thread computes one column, without tiles, if the depth is at most
/// [`SHALLOW`].
pub const FEW_ROWS: u64 = 8;
/// Maximum depth of a product with at most [`FEW_ROWS`] rows for which each thread computes one column.
const SHALLOW: u64 = 256;
/// Maximum number of rows for which each thread sums a few weights, without tiles, if there are at most
/// [`FEW_WEIGHTS`].
const FEW_WEIGHT_ROWS: u64 = 4;
/// Maximum number of weights of a group with at most [`FEW_WEIGHT_ROWS`] rows for which each thread sums a few weights.
const FEW_WEIGHTS: u64 = 1024;
/// Maximum number of columns for which each thread sums a few weights, whatever the number of rows.
const FEW_WEIGHT_COLUMNS: u64 = 16;

/// Maximum size in bytes of the sums of a thread.
const MAX_SUMS: u64 = 256;

/// Maximum number of rows of a thread without tiles.
const MAX_THREAD_ROWS: u64 = 16;

/// Minimum number of steps per block if several blocks share the depth of a product.
const MIN_STEPS: u64 = 8;

/// Number of partial sums of a result from which several threads add them.
const MANY_SPLITS: u64 = 32;
/// Number of threads that add the partial sums of a result that has at least [`MANY_SPLITS`].
const SHARERS: u64 = 8;

/// Columns of a tile, without matrix units, for the gradient of weights with at most [`MAX_WIDE_ROWS`] rows: multiples
/// of three, so that kernels of 3 × 3 elements leave few columns of a tile unused. Each thread has three columns.
const WIDE_COLUMNS: [u64; 3] = [192, 96, 48];
/// Maximum number of rows for tiles of [`WIDE_COLUMNS`].
const MAX_WIDE_ROWS: u64 = 64;

/// Kernel text before the body: moves the pointers of operands to the first elements of the phase.
const FIRST: &str = "  factor += first_factor;\n  out += first_out;\n";

/// Division of the work of a phase among thread blocks.
pub struct Split {
    phase: Phase,
    /// Sizes of the phase.
    pub shape: Shape,
    /// Kernel that computes it.
    pub method: Method,
    /// Number of blocks that share the depth of a product.
    pub splits: u64,
    /// Depth that each of the blocks of a product computes.
    pub share: u64,
}

/// Method of a kernel.
pub enum Method {
    /// Blocks multiply tiles in shared memory.
    Tiles(Tiles),
    /// Threads compute all rows of some positions, with their sums in registers.
    Few(Few),
    /// Blocks multiply windows, and threads add the terms of each result.
    Fold(Fold),
    /// Threads compute neighbouring results of one channel.
    Depthwise(Depthwise),
    /// Threads sum up the weights of some rows and of a line of kernel elements.
    Lines(Lines),
    /// Threads gather the elements that they multiply, without tiles.
    Direct,
}

/// Sizes of the tiles of a block.
pub struct Tiles {
    /// True if matrix units multiply the tiles.
    pub units: bool,
    pub rows: u64,
    pub columns: u64,
    /// Depth that a block multiplies in each step.
    pub step: u64,
    /// Number of neighbouring elements that a thread loads at once.
    pub pack: u64,
    /// Number of threads that divide the rows of a tile, without matrix units; the others divide its columns.
    row_threads: u64,
}

/// Returns the division of the work for each phase.
pub fn splits(spec: &Spec) -> Vec<Split> {
    let whole = Phase::whole(Shape::of(spec));
    let single =
        |phase: Phase, method| Split { phase, shape: phase.shape, method, splits: 1, share: phase.shape.product().2 };
    if let Some(depthwise) = Depthwise::of(spec, &whole.shape) {
        return vec![single(whole, Method::Depthwise(depthwise))];
    }
    let phase = whole.trimmed();
    // Blocks for few rows have one group each. Threads of blocks that span groups have work also if a group has few places.
    let shape = &phase.shape;
    let spans_groups = shape.form == Form::Forward && shape.gathered() == 1 && 2 * shape.positions() <= THREADS;
    match Few::of(spec, shape).filter(|_| !spans_groups) {
        Some(few) => {
            let fold = Fold::of(spec, shape, &few);
            vec![single(phase, fold.map_or(Method::Few(few), Method::Fold))]
        }
        None => phase.divided().into_iter().map(|phase| Split::of(spec, phase)).collect(),
    }
}

/// Returns the library's convolution with the kernels and products that can replace it; the kernels alone if operands or the bias
/// have gaps or more elements than libraries support.
pub fn launches(spec: &Spec) -> Vec<Launch> {
    let Shape { form, stride, padding, dilation, groups, .. } = Shape::of(spec);
    let mut kernels: Vec<Kernel> = splits(spec).iter().flat_map(|split| split.kernels(spec)).collect();
    let operands = form.operands(spec);
    let tensors = operands.map(|operand| *spec.operand(operand));
    if !tensors.iter().all(Tensor::contiguous) {
        return kernels.into_iter().map(Launch::Kernel).collect();
    }
    let bias = spec.inputs.get(2).filter(|bias| bias.contiguous()).map(|_| 2);
    if bias.is_none() && spec.inputs.len() > 2 {
        return kernels.into_iter().map(Launch::Kernel).collect();
    }
    let (operands, arithmetic) = (operands.map(|operand| operand as u8), arithmetic(spec));
    let conv = super::super::launch::Conv {
        form,
        operands,
        tensors,
        bias,
        stride,
        padding,
        dilation,
        groups,
        arithmetic,
        deterministic: spec.attrs.bool(DETERMINISTIC),
    };
    // Libraries take 32-bit sizes and strides.
    let counts = |tensor: &Tensor| tensor.elements() <= i32::MAX as u64;
    match conv.pieces().0.tensors.iter().all(counts) {
        true => {
            let products = Products::of(spec).map(|Products { gemms, copy, parts, spread }| {
                let (first_kernel, kernels_before) = (kernels.len(), usize::from(copy.is_some()));
                let adding = parts.map(|count| Split::adding(spec, count));
                kernels.extend(copy.into_iter().chain(adding).chain(spread));
                Box::new(ConvProducts { gemms, first_kernel, kernels_before })
            });
            vec![Launch::Conv(Arc::new(conv), kernels, products)]
        }
        false => kernels.into_iter().map(Launch::Kernel).collect(),
    }
}

impl Split {
    /// Returns the kernel that adds up this many gradients of weights in the workspace.
    fn adding(spec: &Spec, count: u64) -> Kernel {
        let phase = Phase::whole(Shape::of(spec));
        Split { phase, shape: phase.shape, method: Method::Direct, splits: count, share: 1 }.join_kernel(spec)
    }

    /// Returns the division of the work of a phase.
    fn of(spec: &Spec, phase: Phase) -> Split {
        let shape = phase.shape;
        let (rows, columns, depth) = shape.product();
        let direct = match shape.form {
            Form::Weights => rows <= FEW_WEIGHT_ROWS && rows * columns <= FEW_WEIGHTS || columns <= FEW_WEIGHT_COLUMNS,
            Form::Forward | Form::Transposed => rows <= FEW_ROWS && depth <= SHALLOW,
        };
        if direct {
            let mut all = Split { phase, shape, method: Method::Direct, splits: 1, share: depth };
            if shape.form == Form::Weights {
                let blocks = all.weight_parts(spec).iter().product::<u64>() * shape.groups;
                all.divide(spec, RESIDENT_BLOCKS / blocks, THREADS);
            }
            return all;
        }
        if let Some(lines) = Lines::of(spec, &shape) {
            let splits = lines.splits;
            return Split { phase, shape, method: Method::Lines(lines), splits, share: depth.div_ceil(splits) };
        }
        let units = spec.inputs[0].dtype.size() == 2;
        let blocks = |tile: u64, wide: u64| shape.groups * rows.div_ceil(tile) * columns.div_ceil(wide);
        // A wide tile must not have more idle columns than a narrow one.
        let least = columns.next_multiple_of(64);
        let wide = WIDE_COLUMNS.into_iter().find(|&wide| columns.next_multiple_of(wide) <= least);
        let may_be_wide = shape.form == Form::Weights && spec.inputs[0].dtype == DType::F32 && rows <= MAX_WIDE_ROWS;
        let tile = if rows <= 16 { 16 } else { rows.next_power_of_two().min(64) };
        let tiles = match (units, rows, wide.filter(|_| may_be_wide)) {
            (false, _, Some(columns)) => {
                Tiles { units, rows: tile, columns, step: 16, pack: 4, row_threads: THREADS / (columns / 3) }
            }
            (false, _, None) => Tiles { units, rows: tile, columns: 64, step: 16, pack: 4, row_threads: 16 },
            (true, ..) => {
                // Uses smaller tiles if larger ones would leave SMs idle.
                let largest = if blocks(128, 128) < BUSY_BLOCKS / 2 { 64 } else { 128 };
                let rows = rows.next_power_of_two().clamp(32, if rows <= 64 { 64 } else { largest });
                Tiles { units, rows, columns: 128, step: 32, pack: 8, row_threads: 1 }
            }
        };
        let (tile, wide, step) = (tiles.rows, tiles.columns, tiles.step);
        let mut all = Split { phase, shape, method: Method::Tiles(tiles), splits: 1, share: depth };
        all.divide(spec, BUSY_BLOCKS / blocks(tile, wide).max(1), step);
        all
    }

    /// Divides the depth among up to `wanted` blocks, in multiples of `step`; each block has at least [`MIN_STEPS`]
    /// steps.
    fn divide(&mut self, spec: &Spec, wanted: u64, step: u64) {
        let (rows, columns, depth) = self.shape.product();
        let parts = spec.inputs[0].dtype.compute().size() * self.shape.groups * rows * columns;
        let wanted = wanted.min(depth / (step * MIN_STEPS)).min(MAX_PARTS / parts.max(1)).max(1);
        self.share = depth.div_ceil(wanted).next_multiple_of(step);
        self.splits = depth.div_ceil(self.share);
    }

    /// Number of rows and of columns of the weights that a thread sums. The columns are all kernel elements of some
    /// channels, or one column if a channel has many.
    pub fn thread_weights(&self, spec: &Spec) -> (u64, u64) {
        let ((rows, ..), elements) = (self.shape.product(), self.shape.elements());
        let most = MAX_SUMS / spec.inputs[0].dtype.compute().size();
        let columns =
            if elements <= most { (most / 2 / elements).clamp(1, self.shape.gathered()) * elements } else { 1 };
        ((most / columns).min(MAX_THREAD_ROWS).min(rows).max(1), columns)
    }

    /// Number of parts into which threads divide the rows, and the columns, of the weights.
    fn weight_parts(&self, spec: &Spec) -> [u64; 2] {
        let ((rows, columns, _), own) = (self.shape.product(), self.thread_weights(spec));
        [rows.div_ceil(own.0), columns.div_ceil(own.1)]
    }

    /// Number of blocks of the kernel that computes the products.
    pub fn blocks(&self, spec: &Spec) -> u64 {
        let (rows, columns, _) = self.shape.product();
        let groups = self.shape.groups;
        match &self.method {
            Method::Few(few) => few.blocks(),
            Method::Depthwise(depthwise) => depthwise.blocks(),
            Method::Lines(lines) => groups * lines.blocks(),
            Method::Fold(fold) => groups * fold.group_blocks(),
            Method::Tiles(tiles) => groups * rows.div_ceil(tiles.rows) * columns.div_ceil(tiles.columns) * self.splits,
            Method::Direct if self.shape.form == Form::Weights => {
                groups * self.weight_parts(spec).iter().product::<u64>() * self.splits
            }
            Method::Direct => (groups * columns).div_ceil(THREADS),
        }
    }

    /// Size in bytes of the terms of results, or of the partial sums of blocks that share the depth; 0 if there are none.
    pub fn parts(&self, spec: &Spec) -> u64 {
        let (rows, columns, _) = self.shape.product();
        let each = spec.inputs[0].dtype.compute().size();
        if let Method::Fold(fold) = &self.method {
            return fold.parts() * self.shape.groups * each;
        }
        if self.splits > 1 { self.splits * self.shape.groups * rows * columns * each } else { 0 }
    }

    /// Returns one kernel; or two if blocks share the depth of a product: the second adds the partial sums.
    fn kernels(&self, spec: &Spec) -> Vec<Kernel> {
        let mut all = vec![match &self.method {
            Method::Tiles(tiles) => self.tiles_kernel(spec, tiles),
            Method::Few(few) => self.few_kernel(spec, few),
            Method::Depthwise(depthwise) => self.depthwise_kernel(spec, depthwise),
            Method::Lines(lines) => self.lines_kernel(spec, lines),
            Method::Fold(fold) => return self.fold_kernels(spec, fold).into(),
            Method::Direct => self.direct_kernel(spec),
        }];
        if self.splits > 1 {
            all.push(self.join_kernel(spec));
        }
        all
    }

    /// Returns the numbers of three operands in the call: the tensor whose elements are gathered, the other factor, and
    /// the result.
    fn operands(&self, spec: &Spec) -> [usize; 3] {
        let [x, w, y] = self.shape.form.operands(spec);
        match self.shape.form {
            Form::Forward => [x, w, y],
            Form::Transposed => [y, w, x],
            Form::Weights => [x, y, w],
        }
    }

    /// Returns the strides of an operand in elements: of groups; of samples or, for weights, of rows; of channels; and
    /// of each spatial dimension.
    fn steps(&self, spec: &Spec, operand: usize) -> Arg {
        let Shape { form, inputs, outputs, .. } = self.shape;
        let strides = spec.operand(operand).strides;
        let [x, w, _] = form.operands(spec);
        let group = if operand == w {
            outputs * strides[0]
        } else if operand == x {
            inputs * strides[1]
        } else {
            outputs * strides[1]
        };
        // For a transposed convolution, the rows of the factor are the second dimension of the weights.
        let turned = form == Form::Transposed && operand == w;
        let (outer, channel) = if turned { (strides[1], strides[0]) } else { (strides[0], strides[1]) };
        let spatial = self.spatial(spec, operand).into_iter().map(|(_, step)| step);
        Arg::Words([group, outer, channel].into_iter().chain(spatial).collect())
    }

    /// Returns, for each spatial dimension of an operand, the offset of the phase's first element and the stride to its
    /// next one, in elements.
    fn spatial(&self, spec: &Spec, operand: usize) -> Vec<(u64, u64)> {
        let [_, factor, out] = self.operands(spec);
        let strides = spec.operand(operand).strides;
        let of_axis = |(axis, &stride): (usize, &u64)| {
            let (first, step) = match operand {
                _ if operand == factor => self.phase.taps[axis],
                _ if operand == out => self.phase.places[axis],
                _ => (0, 1),
            };
            (first * stride, step * stride)
        };
        strides[2..].iter().enumerate().map(of_axis).collect()
    }

    /// Offset of the phase's first element in an operand, in elements.
    fn first(&self, spec: &Spec, operand: usize) -> u64 {
        self.spatial(spec, operand).into_iter().map(|(first, _)| first).sum()
    }

    /// Returns the parameters that all kernels have.
    fn parameters(&self, spec: &Spec) -> Vec<Parameter> {
        let (rows, columns, depth) = self.shape.product();
        let [gathered, factor, out] = self.operands(spec);
        let bias = if spec.inputs.len() > 2 { 2 } else { 0 };
        let (positions, sources) = (self.shape.position_dims(), self.shape.sources());
        let padding = self.phase.padding[..positions.len()].iter().map(|&size| size as u64);
        let sizes = positions.iter().chain(sources.iter()).copied().chain(padding).collect();
        let numbers = |value: u64| Arg::U32(u32::try_from(value).expect("`infer` limits the places"));
        let all = [
            ("const T* gathered", Arg::Operand(gathered as u8)),
            ("const T* factor", Arg::Operand(factor as u8)),
            ("const T* bias", Arg::Operand(bias)),
            ("T* out", Arg::Operand(out as u8)),
            ("C* parts", Arg::Workspace(self.parts(spec))),
            ("const Steps sg", self.steps(spec, gathered)),
            ("const Steps sf", self.steps(spec, factor)),
            ("const Steps so", self.steps(spec, out)),
            ("const Sizes sizes", Arg::Words(sizes)),
            ("u64 first_factor", Arg::U64(self.first(spec, factor))),
            ("u64 first_out", Arg::U64(self.first(spec, out))),
            ("u32 rows", numbers(rows)),
            ("u32 columns", numbers(columns)),
            ("u32 depth", numbers(depth)),
            ("u32 groups", numbers(self.shape.groups)),
        ];
        all.map(|(declaration, arg)| param(declaration, arg)).into()
    }

    /// Returns the macro definitions that the kernel texts use.
    fn definitions(&self, spec: &Spec) -> String {
        let Shape { form, stride, dilation, kernel, .. } = self.shape;
        let each = |name: &str, sizes: Dims| {
            let values: String =
                sizes.iter().enumerate().map(|(axis, size)| format!("j == {axis} ? {size} : ")).collect();
            format!("#define {name}(j) ({values}1)\n")
        };
        let dtype = spec.inputs[0].dtype;
        format!(
            "{}typedef {} T;\ntypedef {} C;\n#define THREADS {THREADS}\n#define DIMS {}\n#define ELEMENTS {}\n\
             #define TURNED {}\n#define WEIGHTS {}\n#define BIAS {}\n{}{}{}",
            bounds(THREADS as u32),
            c_type(dtype),
            c_type(dtype.compute()),
            kernel.len(),
            self.shape.elements(),
            u32::from(form == Form::Transposed),
            u32::from(form == Form::Weights),
            u32::from(spec.inputs.len() > 2),
            each("STRIDE", stride),
            each("DILATION", dilation),
            each("KERNEL", kernel),
        )
    }

    /// Returns whether the rows of the factor have no gaps, and whether threads can read them in packs.
    pub fn factor_rows(&self, spec: &Spec, tiles: &Tiles) -> [bool; 2] {
        let weights = &spec.inputs[1];
        let depth = self.shape.taps();
        let dense = self.shape.form == Form::Forward
            && Tensor { dims: windows::shape(1, weights.dims[1], self.shape.kernel), ..*weights }.contiguous();
        let bytes = tiles.pack * weights.dtype.size();
        let packs = dense
            && bytes <= 16
            && u64::from(weights.align).is_multiple_of(bytes)
            && [depth, self.share, weights.strides[0], self.first(spec, 1)]
                .iter()
                .all(|size| size.is_multiple_of(tiles.pack));
        [dense, packs]
    }

    fn tiles_kernel(&self, spec: &Spec, tiles: &Tiles) -> Kernel {
        let mut params = self.parameters(spec);
        params.extend([u32_param("splits", self.splits), u32_param("share", self.share)]);
        let [dense, packs] = self.factor_rows(spec, tiles);
        let before = format!(
            "{}{}#define BM {}\n#define BN {}\n#define BK {}\n#define V {}\n#define ROW_THREADS {}\n#define DENSE {}\n#define PACKS {}\n{}{}",
            if tiles.units { mma::FUNCTIONS } else { "" },
            self.definitions(spec),
            tiles.rows,
            tiles.columns,
            tiles.step,
            tiles.pack,
            tiles.row_threads,
            u32::from(dense),
            u32::from(packs),
            text::PLACES,
            if tiles.units { text::UNITS } else { text::THREADS },
        );
        let body = format!("{FIRST}{}", text::TILES);
        kernel(&self.name("tiles"), &before, &params, &body, self.blocks(spec), THREADS as u32)
    }

    fn join_kernel(&self, spec: &Spec) -> Kernel {
        let mut params = self.parameters(spec);
        let (rows, columns, _) = self.shape.product();
        let count = self.shape.groups * rows * columns;
        params.extend([u32_param("splits", self.splits), u64_param("count", count)]);
        // Many sums of few results are divided among threads.
        let sharers = if self.splits >= MANY_SPLITS { SHARERS } else { 1 };
        let before = format!("{}#define SHARERS {sharers}\n{}", self.definitions(spec), text::PLACES);
        let body = format!("{FIRST}{}", text::JOIN);
        let blocks = count.div_ceil(THREADS / sharers);
        kernel(&self.name("join"), &before, &params, &body, blocks, THREADS as u32)
    }

    fn direct_kernel(&self, spec: &Spec) -> Kernel {
        let mut params = self.parameters(spec);
        let (rows, columns, _) = self.shape.product();
        let (numbers, body) = match self.shape.form {
            Form::Weights => {
                params.extend([u32_param("splits", self.splits), u32_param("share", self.share)]);
                let (own_rows, own_columns) = self.thread_weights(spec);
                let gathered = spec.operand(self.operands(spec)[0]);
                let extent =
                    gathered.strides.iter().zip(gathered.dims.iter()).map(|(stride, size)| stride * (size - 1));
                let offset = index_type(extent.sum());
                let longest = self.shape.kernel.iter().max().copied().unwrap_or(1);
                let numbers = format!(
                    "typedef {offset} Offset;\n#define LONGEST {longest}\n#define ROWS {own_rows}\n#define COLUMNS {own_columns}\n"
                );
                (numbers, text::DIRECT_WEIGHTS)
            }
            Form::Forward | Form::Transposed => {
                params.push(u64_param("count", self.shape.groups * columns));
                (format!("#define ROWS {rows}\n"), text::DIRECT)
            }
        };
        let before = format!("{}{numbers}{}", self.definitions(spec), text::PLACES);
        kernel(&self.name("direct"), &before, &params, &format!("{FIRST}{body}"), self.blocks(spec), THREADS as u32)
    }

    fn few_kernel(&self, spec: &Spec, few: &Few) -> Kernel {
        let mut params = self.parameters(spec);
        params.extend(few.parameters());
        let [gathered, _, out] = self.operands(spec);
        let unit = |operand: usize| u32::from(spec.operand(operand).strides.last() == Some(&1));
        let before = format!(
            "{}{}#define UNIT_GATHERED {}\n#define UNIT_OUT {}\n{}{}",
            self.definitions(spec),
            few.definitions(&self.shape),
            unit(gathered),
            unit(out),
            text::PLACES,
            few_text::DIMENSIONS
        );
        let body = format!("{FIRST}{}", few_text::FEW);
        kernel(&self.name("few"), &before, &params, &body, few.blocks(), THREADS as u32)
    }

    fn depthwise_kernel(&self, spec: &Spec, depthwise: &Depthwise) -> Kernel {
        let mut params = self.parameters(spec);
        params.extend(depthwise.parameters());
        let narrow = spec.inputs[0].dtype.size() == 2;
        let before = format!("{}{}{}", self.definitions(spec), text::PLACES, depthwise.definitions(narrow));
        let body = format!("{FIRST}{}", depthwise::TEXT);
        kernel(&self.name("depthwise"), &before, &params, &body, depthwise.blocks(), THREADS as u32)
    }

    fn lines_kernel(&self, spec: &Spec, lines: &Lines) -> Kernel {
        let mut params = self.parameters(spec);
        params.extend(lines.parameters());
        let [gathered, factor, _] = self.operands(spec);
        let unit = [gathered, factor].map(|operand| spec.operand(operand).strides.last() == Some(&1));
        let extent = |operand: usize| -> u64 {
            let operand = spec.operand(operand);
            operand.strides.iter().zip(operand.dims.iter()).map(|(stride, size)| stride * (size - 1)).sum()
        };
        let offset = index_type(extent(gathered).max(extent(factor)));
        let definitions = lines.definitions(&self.shape, offset, unit);
        let before = format!("{}{definitions}{}{}", self.definitions(spec), text::PLACES, lines::TEXT);
        kernel(&self.name("lines"), &before, &params, lines::BODY, self.blocks(spec), THREADS as u32)
    }

    fn fold_kernels(&self, spec: &Spec, fold: &Fold) -> [Kernel; 2] {
        let mut params = self.parameters(spec);
        params.extend(fold.parameters());
        let before = format!("{}{}{}", self.definitions(spec), fold.definitions(&self.shape), text::PLACES);
        let (rows, columns, _) = self.shape.product();
        let folded = self.shape.groups * rows * columns.div_ceil(THREADS);
        [("terms", fold::TERMS, self.blocks(spec)), ("fold", fold::FOLD, folded)]
            .map(|(name, body, blocks)| kernel(&self.name(name), &before, &params, body, blocks, THREADS as u32))
    }

    /// Returns the name of a kernel with this method.
    fn name(&self, how: &str) -> String {
        let form = match self.shape.form {
            Form::Forward => "conv",
            Form::Transposed => "conv_transposed",
            Form::Weights => CONV_WEIGHTS,
        };
        format!("{form}_{how}")
    }
}
