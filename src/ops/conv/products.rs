//! Convolutions of kernels with one element as matrix products of the vendor's library.
//!
//! Each sample is a product of the weights, of [channels of `y`, channels of `x`], and of the sample's [channels, positions], whose
//! positions are contiguous. A batch with one product for each sample reads and writes the tensors as they lie. No kernel copies them
//! with the channels last, as engines of the library do. With a stride, a kernel first copies the elements of `x` that windows cover to
//! the workspace. The products of a transposed convolution with a stride lie in the workspace, and a kernel writes them with the zeros
//! between. The gradient of the weights is a sum over the samples: the products lie in the workspace, and a kernel adds them up in a fixed
//! order.

use super::super::launch::{Gemm, Matrix};
use super::*;
use crate::ops::call::windows;
use crate::ops::kernels::kernel::compute_type;
use crate::ops::kernels::occupancy::UNITS;
use crate::ops::kernels::walk::{self, Operand, Task};

/// Rows and columns of a large tile of the library's products.
const TILE: u64 = 128;

/// Minimum depth of a product that computes a part of the positions. A shallower one takes less time than its launch.
const MIN_DEPTH: u64 = 512;

/// Alignment in bytes of the copy of `x` in the workspace.
const ALIGN: u64 = 256;

/// Products that compute a convolution, with the kernels before and after them.
pub struct Products {
    pub gemms: Vec<Gemm>,
    /// Kernel that copies the elements of `x` that windows cover to the workspace; `None` if windows cover all of them.
    pub copy: Option<Kernel>,
    /// Number of gradients of weights in the workspace that a kernel adds up; `None` if the products write the result.
    pub parts: Option<u64>,
    /// Kernel that writes the result from products in the workspace and the zeros between them; `None` if there are no zeros between.
    pub spread: Option<Kernel>,
}

impl Products {
    /// Returns the products; `None` unless the kernel has one element, without groups, padding and bias.
    pub fn of(spec: &Spec) -> Option<Products> {
        let shape = Shape::of(spec);
        let operands = shape.form.operands(spec);
        // Libraries take 32-bit sizes.
        let is_dense = |operand: usize| {
            let tensor = spec.operand(operand);
            tensor.contiguous() && tensor.space == Space::Device && (1..=i32::MAX as u64).contains(&tensor.elements())
        };
        let is_apart = shape.stride.iter().any(|&stride| stride > 1);
        let fits = multiplies(&shape) && spec.inputs.len() == 2;
        if !fits || !operands.into_iter().all(is_dense) {
            return None;
        }
        let mut whole = product(spec, &shape);
        let division = if shape.form == Form::Weights { Division::of(&whole) } else { Division::NONE };
        let parts = (division != Division::NONE).then_some(division.samples * division.parts);
        let dtype = spec.inputs[0].dtype;
        let covered = is_apart.then(|| Tensor::packed(dtype, &windows::shape(shape.samples, shape.inputs, shape.y)));
        // The elements that windows cover are read from the workspace, or written to it.
        let (copied, spread) = if shape.form == Form::Transposed { (None, covered) } else { (covered, None) };
        // Results come first in the workspace, then the copy.
        let results = parts.map_or(0, |parts| parts * whole.m * whole.n * dtype.compute().size());
        let offset = results.next_multiple_of(ALIGN);
        // Engines of libraries get workspace for copies of all operands as well.
        let most = MAX_PARTS.max(operands.iter().map(|operand| spec.operand(*operand).bytes()).sum());
        if offset + covered.map_or(0, |covered| covered.bytes()) > most {
            return None;
        }
        if let Some(Tensor { align, .. }) = copied {
            whole.b = Matrix { operand: Matrix::WORKSPACE, offset: offset / dtype.size(), align, ..whole.b };
        }
        if let Some(Tensor { align, .. }) = spread {
            whole.c = Matrix { operand: Matrix::WORKSPACE, align, ..whole.c };
        }
        Some(Products {
            gemms: if parts.is_some() { division.products(&whole, dtype.compute()) } else { vec![whole] },
            copy: copied.map(|copied| copy(spec, &shape, (offset, copied))),
            parts,
            spread: spread.map(|_| spread::spread(&shape, operands[0], spec.operand(operands[0]))),
        })
    }
}

/// Returns the kernel that copies the elements of `x` that windows cover to an offset in bytes in the workspace.
fn copy(spec: &Spec, shape: &Shape, (offset, copied): (u64, Tensor)) -> Kernel {
    let x = &spec.inputs[0];
    let mut strides = x.strides;
    for (axis, &stride) in shape.stride.iter().enumerate() {
        strides.set(2 + axis, x.strides[2 + axis] * stride);
    }
    let expression = Expression::identity();
    let task = Task {
        expression: &expression,
        dims: copied.dims,
        outputs: vec![Operand::in_workspace(offset, &copied, copied.strides)],
        inputs: vec![Operand::of(0, x, strides)],
    };
    match walk::launch_all("conv_copy", &[task], compute_type(spec)) {
        Launch::Kernel(kernel) => kernel,
        _ => unreachable!("a walk is a kernel"),
    }
}

/// True if a convolution multiplies the channels of elements of `x` by the weights, and does nothing else.
pub fn multiplies(shape: &Shape) -> bool {
    shape.groups == 1 && shape.elements() == 1 && shape.padding.iter().all(|&size| size == 0)
}

/// True if a convolution multiplies the channels of each element of `x` by the weights, and does nothing else.
pub fn is_product(shape: &Shape) -> bool {
    multiplies(shape) && shape.stride.iter().all(|&stride| stride == 1)
}

/// Returns a convolution as a batch of products, one for each sample. For the gradient of weights, the caller must add
/// the products.
pub fn product(spec: &Spec, shape: &Shape) -> Gemm {
    let Shape { inputs, outputs, samples, .. } = *shape;
    let positions: u64 = shape.y.iter().product();
    let matrix = |place: usize, rows: u64, row: u64, transposed: bool| {
        let operand = shape.form.operands(spec)[place];
        let Tensor { dtype, align, .. } = *spec.operand(operand);
        // The samples share the weights.
        let batch = if place == 1 { 0 } else { rows * row };
        Matrix { operand: operand as u8, offset: 0, dtype, row, transposed, batch, align }
    };
    let x = matrix(0, inputs, positions, shape.form == Form::Weights);
    let w = matrix(1, outputs, inputs, shape.form == Form::Transposed);
    let y = matrix(2, outputs, positions, false);
    let (m, n, k, a, b, c) = match shape.form {
        Form::Forward => (outputs, positions, inputs, w, x, y),
        Form::Transposed => (inputs, positions, outputs, w, y, x),
        Form::Weights => (outputs, inputs, positions, y, x, w),
    };
    let arithmetic = arithmetic(spec);
    Gemm { m, n, k, batch: samples, a, b, c, arithmetic, accumulate: false, epilogue: None, scales: None }
}

/// Division of the gradient of weights into results in the workspace, which a kernel adds up.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Division {
    /// Number of samples whose products are stored apart.
    samples: u64,
    /// Number of parts of the positions whose products are stored apart. Products of further samples are added to them.
    parts: u64,
}

impl Division {
    /// A single product.
    const NONE: Division = Division { samples: 1, parts: 1 };

    /// Returns the division whose batches have more products: over the samples, or over equal parts of the positions, with a batch
    /// for each sample. Few products leave SMs idle.
    fn of(whole: &Gemm) -> Division {
        let (positions, samples) = (whole.k, whole.batch);
        let tiles = whole.m.div_ceil(TILE) * whole.n.div_ceil(TILE);
        let wanted = (UNITS / tiles).min(positions / MIN_DEPTH);
        // Parts begin at whole packs if the positions do.
        let pack = (u64::from(whole.a.align.min(whole.b.align)) / whole.a.dtype.size()).max(1);
        let step = if positions.is_multiple_of(pack) { pack } else { 1 };
        let parts = (1..=wanted).rev().find(|parts| positions.is_multiple_of(parts * step)).unwrap_or(1);
        if parts > samples { Division { samples: 1, parts } } else { Division { samples, parts: 1 } }
    }

    /// Returns the products with results of this type in the workspace.
    fn products(self, whole: &Gemm, dtype: DType) -> Vec<Gemm> {
        let results =
            Matrix { operand: Matrix::WORKSPACE, dtype, batch: whole.m * whole.n, align: 16, ..whole.c.clone() };
        if self.parts == 1 {
            return vec![Gemm { c: results, ..whole.clone() }];
        }
        let k = whole.k / self.parts;
        let of_sample = |matrix: &Matrix, sample: u64| {
            let offset = matrix.offset + sample * matrix.batch;
            // The library takes the alignment of the first sample for that of all.
            let align = 1 << (matrix.batch * matrix.dtype.size()).trailing_zeros().min(4);
            Matrix { offset, batch: k, align: matrix.align.min(align), ..matrix.clone() }
        };
        let product = |sample: u64| Gemm {
            k,
            batch: self.parts,
            a: of_sample(&whole.a, sample),
            b: of_sample(&whole.b, sample),
            c: results.clone(),
            accumulate: sample > 0,
            ..whole.clone()
        };
        (0..whole.batch).map(product).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(operation: &str, inputs: [&[u64]; 2], options: &[(&'static str, Attr)]) -> Spec {
        let inputs = inputs.map(|sizes| Tensor::packed(DType::BF16, sizes)).into();
        Spec::of_use(operation, options, inputs, &[None]).expect("a use")
    }

    fn weights(x: &[u64], channels: u64, stride: u64) -> Spec {
        let windows: Vec<u64> = x[2..].iter().map(|size| (size - 1) / stride + 1).collect();
        let dy = [&[x[0], channels], &windows[..]].concat();
        call("conv_weights", [x, &dy], &[("size", Attr::Int(1)), ("stride", Attr::Int(stride as i64))])
    }

    fn products(spec: &Spec) -> Products {
        Products::of(spec).expect("products")
    }

    /// Samples share the weights, and each matrix is an operand as it lies.
    #[test]
    fn single_elements_are_a_product_for_each_sample() {
        let Products { gemms, copy: None, parts: None, spread: None } =
            products(&call("conv", [&[8, 96, 28, 28], &[40, 96, 1, 1]], &[]))
        else {
            panic!("no kernels")
        };
        let [Gemm { m: 40, n: 784, k: 96, batch: 8, a, b, c, .. }] = &gemms[..] else { panic!("{gemms:?}") };
        assert_eq!((a.operand, a.batch, b.operand, b.batch, c.operand, c.batch), (1, 0, 0, 96 * 784, 2, 40 * 784));
        let transposed = [("transposed", Attr::Bool(true))];
        let Products { gemms, .. } = products(&call("conv", [&[8, 40, 28, 28], &[40, 96, 1, 1]], &transposed));
        let [Gemm { m: 96, n: 784, k: 40, batch: 8, a, .. }] = &gemms[..] else { panic!("{gemms:?}") };
        assert!(a.transposed && a.row == 96);
        for (sizes, option) in [
            ([&[8, 96, 28, 28][..], &[40, 96, 1, 1]], ("padding", Attr::Int(1))),
            ([&[8, 96, 28, 28], &[40, 48, 1, 1]], ("groups", Attr::Int(2))),
            ([&[8, 96, 28, 28], &[40, 96, 3, 3]], ("dilation", Attr::Int(1))),
        ] {
            assert!(Products::of(&call("conv", sizes, &[option])).is_none());
        }
    }

    /// Gradients of many samples are a result for each sample. Few samples are divided by positions, and the products of all but the
    /// first sample add to the results of the first. Each position of each sample is multiplied once.
    #[test]
    fn gradients_of_weights_are_divided_by_samples_or_positions() {
        for (x, channels, parts) in [
            (&[64, 256, 28, 28][..], 64, Some(64)),
            (&[2, 64, 112, 112], 64, Some(16)),
            (&[1, 64, 112, 112], 64, Some(16)),
            (&[4, 104, 229, 249], 104, Some(83)),
            (&[1, 512, 13, 13], 64, None),
            (&[3, 24, 1009], 40, Some(3)),
        ] {
            let Products { gemms, copy: None, parts: found, spread: None } = products(&weights(x, channels, 1)) else {
                panic!("{x:?}")
            };
            assert_eq!(found, parts, "{x:?}");
            let positions: u64 = x[2..].iter().product();
            let multiplied: u64 = gemms.iter().map(|gemm| gemm.k * gemm.batch).sum();
            assert_eq!(multiplied, x[0] * positions, "{x:?}");
            for (sample, gemm) in gemms.iter().enumerate() {
                assert_eq!(gemm.accumulate, sample > 0, "{x:?}");
                assert_eq!(gemm.a.offset, sample as u64 * channels * positions, "{x:?}");
                assert_eq!(gemm.uses_workspace(), parts.is_some(), "{x:?}");
                assert!(gemm.k >= MIN_DEPTH.min(positions) && gemm.batch <= UNITS, "{x:?}");
            }
        }
    }

    /// Products of a transposed convolution with a stride lie in the workspace; a kernel writes each element of the result.
    #[test]
    fn a_kernel_writes_the_zeros_between_products() {
        let options = [("transposed", Attr::Bool(true)), ("stride", Attr::Int(2)), ("output_padding", Attr::Int(1))];
        let spec = call("conv", [&[8, 40, 14, 15], &[40, 96, 1, 1]], &options);
        let Products { gemms, copy: None, parts: None, spread: Some(spread) } = products(&spec) else {
            panic!("a kernel follows")
        };
        let [Gemm { m: 96, n: 210, k: 40, batch: 8, c, .. }] = &gemms[..] else { panic!("{gemms:?}") };
        assert_eq!((c.operand, c.offset, c.row, c.batch), (Matrix::WORKSPACE, 0, 210, 96 * 210));
        assert_eq!(spread.args[0], Arg::Workspace(2 * 8 * 96 * 210));
        assert!(spread.grid[0] * THREADS * 8 >= 8 * 96 * 28 * 30);
        let [Launch::Conv(_, kernels, Some(products))] = &spec.launch()[..] else { panic!("one launch") };
        assert_eq!((&kernels[products.first_kernel..], products.kernels_before), (&[spread][..], 0));
    }

    /// A launch holds the kernels that need no product, then the one that copies and the one that adds up. Results and the copy do not
    /// overlap in the workspace.
    #[test]
    fn launches_hold_products_between_their_kernels() {
        for (stride, of_products) in [(1, 1), (2, 2)] {
            let spec = weights(&[64, 256, 28, 28], 64, stride);
            let [launch] = &spec.launch()[..] else { panic!("one launch") };
            let Launch::Conv(_, kernels, Some(products)) = launch else { panic!("products: {launch:?}") };
            assert!(products.first_kernel > 0);
            assert_eq!(kernels[products.first_kernel..].len(), of_products);
            assert_eq!(products.kernels_before, of_products - 1);
            let results = 64 * 256 * 64 * 4;
            let copied = if stride == 2 { 64 * 256 * 14 * 14 * 2 } else { 0 };
            assert!(launch.workspace() >= results + copied);
            let b = &products.gemms[0].b;
            assert_eq!(
                (b.operand == Matrix::WORKSPACE, b.offset * 2),
                (stride == 2, if stride == 2 { results } else { 0 })
            );
        }
    }
}
