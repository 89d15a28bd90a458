//! Matrix products on the CPU, in double precision.

use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2, Axis};

use crate::base::parallel;

use super::super::{Spec, Tensor};
use super::sizes;

/// Minimum number of rows or columns of the result per thread of the host, so that a thread uses each element of a
/// factor several times.
const MIN_LENGTH: usize = 64;

/// Factors of one product of a batch: `a` is m × k, `b` is k × n.
#[derive(Clone, Copy)]
pub struct Factors<'a> {
    pub a: ArrayView2<'a, f64>,
    pub b: ArrayView2<'a, f64>,
}

impl<'a> Factors<'a> {
    /// Returns the factors of each product of the batch, from the values of all inputs without gaps.
    pub fn of(spec: &Spec, inputs: &[&'a [f64]]) -> impl Iterator<Item = Factors<'a>> {
        let (m, n, k, batch) = sizes(spec);
        let (m, n, k) = (m as usize, n as usize, k as usize);
        let (transpose_a, transpose_b) = (spec.attrs.bool("transpose_a"), spec.attrs.bool("transpose_b"));
        // A matrix without leading dimensions is used by all products.
        let step = |tensor: &Tensor, size: usize| if tensor.dims.len() > 2 { size } else { 0 };
        let (step_a, step_b) = (step(&spec.inputs[0], m * k), step(&spec.inputs[1], k * n));
        let (all_a, all_b) = (inputs[0], inputs[1]);
        (0..batch as usize).map(move |index| Factors {
            a: Self::matrix(&all_a[index * step_a..], (m, k), transpose_a),
            b: Self::matrix(&all_b[index * step_b..], (k, n), transpose_b),
        })
    }

    /// Returns the matrix with this number of rows and columns from the first of `values`, which hold it without gaps;
    /// or its transpose, if `transposed`.
    pub fn matrix(values: &'a [f64], (rows, columns): (usize, usize), transposed: bool) -> ArrayView2<'a, f64> {
        let shape = if transposed { (columns, rows) } else { (rows, columns) };
        let view = ArrayView2::from_shape(shape, &values[..rows * columns]).expect("as many as the shape has");
        if transposed { view.reversed_axes() } else { view }
    }

    /// Returns the same factors, borrowed for a shorter time.
    pub fn view(&self) -> Factors<'_> {
        Factors { a: self.a.view(), b: self.b.view() }
    }

    /// Number of rows of `a` and of the product.
    pub fn rows(&self) -> usize {
        self.a.nrows()
    }

    /// Number of columns of `b` and of the product.
    pub fn columns(&self) -> usize {
        self.b.ncols()
    }

    /// Number of columns of `a` and of rows of `b`.
    pub fn depth(&self) -> usize {
        self.a.ncols()
    }

    /// Writes the product to `c`, in row-major order.
    pub fn multiply(&self, c: &mut [f64]) {
        let shape = (self.rows(), self.columns());
        multiply(self.a, self.b, ArrayViewMut2::from_shape(shape, c).expect("as many as the product has"));
    }
}

/// Writes the product of `a` and `b` to `c`. Threads of the host divide the longer dimension of `c`.
pub fn multiply(a: ArrayView2<f64>, b: ArrayView2<f64>, mut c: ArrayViewMut2<f64>) {
    let axis = if c.nrows() >= c.ncols() { Axis(0) } else { Axis(1) };
    let cores = std::thread::available_parallelism().map_or(1, |count| count.get());
    let length = c.len_of(axis).div_ceil(cores).max(MIN_LENGTH);
    let parts = c.axis_chunks_iter_mut(axis, length).enumerate().collect();
    parallel::each(parts, |(index, mut c)| {
        let reach = index * length..index * length + c.len_of(axis);
        let along = ndarray::Slice::from(reach);
        match axis {
            Axis(0) => general_mat_mul(1.0, &a.slice_axis(axis, along), &b, 0.0, &mut c),
            _ => general_mat_mul(1.0, &a, &b.slice_axis(axis, along), 0.0, &mut c),
        }
    });
}
