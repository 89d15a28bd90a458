//! Verification of a device's matrix product: a small one element by element, a large one by its products with random
//! vectors.
//!
//! Rounding errors of a sum depend on its terms: with terms of both signs, errors partly cancel; with terms of one
//! sign, they accumulate. Devices do not document the order in which they sum. Therefore the error of a plain sum in
//! the device's type is measured on a sample of the product's elements, and a device may be off by a small multiple of
//! it. If a sum is large relative to its terms, the terms have one sign, and all roundings may go in the same
//! direction; then the full bound is used.

use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView1, ArrayView2, Axis, Slice, s};

use crate::base::random::{bell, hash};
use crate::base::{DType, parallel};

use super::super::check::{Check, Method, Tolerance, Worst, compare};
use super::super::{Arithmetic, Spec};
use super::epilogue::{Added, Finish, Function};
use super::product::{Factors, multiply};
use super::{arithmetic, sizes, unscaled};
use crate::ops::kernels::kernel::compute_type;

/// Number of operations up to which every element of a product is verified.
const WHOLE: f64 = 4e9;

/// Number of columns that are combined with random factors. Fewer columns hide an error of a single element less.
const WIDTH: usize = 512;

/// Number of random vectors per block of columns.
const VECTORS: usize = 4;

/// Probability that the random vectors miss an error of ten times the tolerance: each vector has to hide it, which
/// requires a random number of less than 0.2 standard deviations.
pub const MISSES: f64 = 0.16 * 0.16 * 0.16 * 0.16;

/// Standard deviations that bound a random sum of rounding errors.
const DEVIATIONS: f64 = 6.0;

/// Maximum and minimum number of sampled elements. Elements of a small product can be sampled more than once.
const SAMPLES: usize = 1024;
const FEWEST: usize = 64;

/// Minimum number of samples for an estimate of the rounding of the whole product.
const ENOUGH: usize = 16;

/// Number of rows per unit of work when computing lengths; large enough for contiguous reads in column-major order.
const LENGTHS: usize = 256;

/// Number of rows of a large product per unit of work.
const ROWS: usize = 64;

/// Number of columns that are processed together, since they share cache lines.
const GROUP: usize = 8;

/// The largest relative error of a factor that is rounded or truncated to `tf32`.
const NARROWED: f64 = 1.0 / 1024.0;

/// Relative precision that Hopper's matrix units keep of a partial sum of 8-bit products: 13 bits below the point of
/// its largest term (DeepSeek-AI, "DeepSeek-V3 technical report", 2024, section 3.3.2).
const KEPT: f64 = 1.0 / 8192.0;

/// Number of products that a matrix unit sums before it truncates: 4 to 16 on NVIDIA.
const TERMS: usize = 4;

/// Smallest normal number of `f16`. Matrix units align products by their exponents, and a subnormal factor has the
/// exponent of this number: on an H200, sums with such factors have the rounding errors of this number.
const SMALLEST_NORMAL: f64 = 1.0 / 16384.0;

/// Properties of a product that determine how a device rounds it.
#[derive(Clone, Copy, Debug)]
pub struct Rounding {
    finish: Finish,
    /// Type of the output, and arithmetic of the products.
    dtype: DType,
    arithmetic: Arithmetic,
    /// Relative error of the roundings of sums before terms are added or the function is applied; 0 if there are none.
    early: f64,
    /// Type in which the function is computed.
    compute: DType,
}

impl Rounding {
    /// Returns the rounding of a product by a vendor's library.
    fn of_library(spec: &Spec) -> Rounding {
        let (finish, arithmetic) = (Finish::of(spec), arithmetic(spec));
        // Each of these roundings to the type of `c` is at most `epsilon` of the product plus the sizes of the added
        // terms. An H200 rounds a product before it adds the previous contents of `c`
        // (docs/measurements/2026-11-23-unseen-shapes.md); a separate kernel for bias and function reads rounded sums
        // from `c`. A product may have both roundings.
        let roundings = u8::from(finish.before.is_some()) + u8::from(finish.has_epilogue());
        let early = f64::from(roundings) * spec.outputs[0].dtype.epsilon();
        Rounding { early, ..Rounding::once(spec, finish, arithmetic) }
    }

    /// Returns the rounding of a product that is rounded once, after its function.
    pub fn once(spec: &Spec, finish: Finish, arithmetic: Arithmetic) -> Rounding {
        Rounding { finish, dtype: spec.outputs[0].dtype, arithmetic, early: 0.0, compute: compute_type(spec) }
    }

    /// Returns the error bound of each result: of a sum and the epilogue's function of it.
    pub fn radii(&self, factors: Factors, added: Option<Added>, sums: &[f64]) -> Vec<f64> {
        let radii = Checked::new(factors.view(), (added, self.early), sums, (self.dtype, self.arithmetic)).radii(sums);
        let of = |(radius, &sum): (f64, &f64)| self.finish.radius((self.compute, self.dtype), sum, radius);
        radii.into_iter().zip(sums).map(of).collect()
    }

    /// Compares one product of an operation. `flops` is the number of floating-point operations of all its products.
    pub fn check(&self, factors: Factors, added: Option<Added>, c: &[f64], flops: f64) -> Check {
        if self.finish.function == Function::Identity {
            return Checked::new(factors.view(), (added, self.early), c, (self.dtype, self.arithmetic)).compared(flops);
        }
        // Random vectors need linearity, which a function of sums lacks: a sample of rows is compared by element.
        let (m, n) = (factors.rows() as u64, factors.columns() as u64);
        let count = ((m as f64 * WHOLE / flops) as u64).clamp(1, m.max(1));
        let row = |number: u64| (m * number + hash(3, number) % m) / count;
        let rows: Vec<usize> = (0..count.min(m)).map(|number| row(number) as usize).collect();
        let found = self.by_rows((factors, added.as_ref(), c), &rows);
        let mut check = Check::none();
        check.add(&found, |index| rows[(index / n) as usize] as u64 * n + index % n);
        check
    }

    /// Compares some rows of a product.
    fn by_rows(&self, (factors, added, c): (Factors, Option<&Added>, &[f64]), rows: &[usize]) -> Check {
        let n = factors.columns();
        let some = |values: &[f64]| rows.iter().flat_map(|row| values[row * n..][..n].to_vec()).collect::<Vec<f64>>();
        let (a, actual) = (factors.a.select(Axis(0), rows), some(c));
        let added = added.map(|added| Added { sums: some(&added.sums), sizes: some(&added.sizes) });
        let factors = Factors { a: a.view(), b: factors.b };
        let mut sums = vec![0.0; rows.len() * n];
        factors.multiply(&mut sums);
        let terms = added.iter().flat_map(|added| &added.sums);
        sums.iter_mut().zip(terms).for_each(|(sum, added)| *sum += added);
        let radii = self.radii(factors, added, &sums);
        let expected: Vec<f64> = sums.iter().map(|&sum| self.finish.apply(sum)).collect();
        compare(self.dtype, &actual, &expected, &Tolerance::Within(radii))
    }
}

/// Compares all products of a batch.
pub fn check(spec: &Spec, inputs: &[&[f64]], actual: &[f64]) -> Check {
    let mut room = [Vec::new(), Vec::new()];
    let inputs = &*unscaled(spec, inputs, &mut room);
    let (m, n, ..) = sizes(spec);
    let size = (m * n).max(1) as usize;
    let (finish, rounding, flops) = (Finish::of(spec), Rounding::of_library(spec), spec.cost().flops);
    let mut all = Check::none();
    for (index, (factors, c)) in Factors::of(spec, inputs).zip(actual.chunks(size)).enumerate() {
        let found = rounding.check(factors, finish.added(inputs, (index, size, n as usize)), c, flops);
        all.add(&found, |place| (index * size) as u64 + place);
    }
    all
}

/// Returns the tolerance of each element of the output. `sums` are the inputs of the epilogue's function.
pub fn tolerance(spec: &Spec, inputs: &[&[f64]], sums: &[f64]) -> Tolerance {
    let mut room = [Vec::new(), Vec::new()];
    let inputs = &*unscaled(spec, inputs, &mut room);
    let (m, n, ..) = sizes(spec);
    let (finish, rounding) = (Finish::of(spec), Rounding::of_library(spec));
    let (size, mut radii) = ((m * n) as usize, Vec::with_capacity(sums.len()));
    for (index, (factors, sums)) in Factors::of(spec, inputs).zip(sums.chunks(size.max(1))).enumerate() {
        radii.extend(rounding.radii(factors, finish.added(inputs, (index, size, n as usize)), sums));
    }
    Tolerance::Within(radii)
}

/// Returns the error bound of each element of `c`, a product including the added terms. `early` is the relative error
/// of rounding the sums before terms are added; `kind` is the type of the result and the arithmetic.
pub fn product_radii<'a>(
    factors: Factors<'a>,
    added: (Option<Added>, f64),
    c: &'a [f64],
    kind: (DType, Arithmetic),
) -> Vec<f64> {
    Checked::new(factors, added, c, kind).radii(c)
}

/// A product and the device's result.
struct Checked<'a> {
    factors: Factors<'a>,
    /// The terms added to the product: per element, their sum and the sum of their absolute values.
    added: Option<(Array2<f64>, Array2<f64>)>,
    c: ArrayView2<'a, f64>,
    dtype: DType,
    /// Relative error of rounding the sums before the bias is added; 0 if they are not rounded.
    early: f64,
    /// Type in which products are accumulated.
    sum: DType,
    /// The relative error bound of a sum whose terms have one sign.
    growing: f64,
    /// Euclidean lengths of the rows of the first factor and of the columns of the second. Their product bounds the sum
    /// of the absolute terms of an element.
    rows: Vec<f64>,
    columns: Vec<f64>,
    samples: SampledRounding,
}

/// Rounding of a product, estimated from a sample of its elements.
struct SampledRounding {
    /// Error bound of an element, in unit roundoffs of its scale.
    roundings: f64,
    /// Root mean square error of the sample as a multiple of its tolerance, at the worst sampled element.
    worst: Worst,
}

impl<'a> Checked<'a> {
    fn new(
        factors: Factors<'a>,
        (added, early): (Option<Added>, f64),
        c: &'a [f64],
        (dtype, arithmetic): (DType, Arithmetic),
    ) -> Checked<'a> {
        let least = if arithmetic == Arithmetic::F16 { SMALLEST_NORMAL } else { 0.0 };
        let (rows, columns) = (lengths(factors.a, least), lengths(factors.b.t(), least));
        let shape = (factors.rows(), factors.columns());
        let fits = "as many as the product has";
        let of_shape = |values| Array2::from_shape_vec(shape, values).expect(fits);
        let added = added.map(|Added { sums, sizes }| (of_shape(sums), of_shape(sizes)));
        let c = ArrayView2::from_shape(shape, c).expect(fits);
        let exact = matches!(arithmetic, Arithmetic::F64 | Arithmetic::I8);
        let sum = if exact { DType::F64 } else { DType::F32 };
        // The roundings of an evenly growing sum add up to a third of those of a sum that always has its final size.
        let narrowed = match arithmetic {
            Arithmetic::Tf32 => 2.0 * NARROWED,
            // Libraries sum parts of 128 terms in f32; each part consists of four truncated sums.
            Arithmetic::F8 => 4.0 * KEPT,
            _ => 0.0,
        };
        let growing = factors.depth() as f64 / 3.0 * sum.epsilon() + narrowed;
        let samples = SampledRounding { roundings: 0.0, worst: Worst::default() };
        let mut product = Checked { factors, added, c, dtype, early, sum, growing, rows, columns, samples };
        product.samples = product.sample(arithmetic);
        product
    }

    /// Scale of an element's rounding errors: an upper bound on the partial sums of its terms.
    fn scale(&self, row: usize, column: usize) -> f64 {
        self.rows[row] * self.columns[column]
    }

    /// Returns the sum of the terms added to an element of the product, and the sum of their absolute values.
    fn added(&self, row: usize, column: usize) -> (f64, f64) {
        self.added.as_ref().map_or((0.0, 0.0), |(sums, sizes)| (sums[[row, column]], sizes[[row, column]]))
    }

    /// Relative error by adding the terms and by rounding the sums early, without the error of the sum itself.
    fn joined(&self) -> f64 {
        if self.added.is_some() { self.early + 2.0 * self.sum.epsilon() } else { self.early }
    }

    // --- Rounding ---------------------------------------------------------------------------------------------

    /// Estimates the rounding from elements all over the product.
    fn sample(&self, arithmetic: Arithmetic) -> SampledRounding {
        let (m, n) = (self.rows.len(), self.columns.len());
        let groups = n.div_ceil(GROUP);
        let wanted = m.max(n).clamp(FEWEST, SAMPLES).div_ceil(GROUP);
        let found = parallel::map(wanted, |group| {
            // Groups of neighbouring columns, spread over the whole product; each column with a random row.
            let first = if wanted < groups { hash(0, group as u64) as usize % groups } else { group % groups } * GROUP;
            let columns = first..n.min(first + GROUP);
            let b =
                self.factors.b.slice_axis(Axis(1), Slice::from(columns.clone())).t().as_standard_layout().into_owned();
            let one = |(place, column): (usize, usize)| {
                let row = hash(1, (group * GROUP + place) as u64) as usize % m;
                self.sampled(row, column, b.row(place), arithmetic)
            };
            columns.enumerate().filter_map(one).collect::<Vec<_>>()
        });
        let found = found.concat();
        let mean =
            |of: fn(&Sample) -> f64| (found.iter().map(|one| of(one).powi(2)).sum::<f64>() / found.len() as f64).sqrt();
        let largest = found.iter().map(|one| one.plain - one.growing).fold(0.0, f64::max);
        let depth = self.factors.depth() as f64;
        // With terms of both signs, errors of the factors partly cancel.
        let narrow = match arithmetic {
            Arithmetic::Tf32 => (1.25 / depth.sqrt()).min(1.0) * 2.0 * NARROWED / self.sum.epsilon(),
            Arithmetic::F8 => 2.0 * KEPT / self.sum.epsilon(),
            _ => 0.0,
        };
        // A product cannot be rounded more often than it has terms.
        let measured = (2.0 * largest + 8.0).max(typical_error(depth, arithmetic));
        let roundings = match arithmetic {
            Arithmetic::Tf32 | Arithmetic::F8 => measured + narrow,
            Arithmetic::F64 => 2.0 * measured,
            _ => measured.min(depth + 1.0),
        };
        let mut samples = SampledRounding { roundings, worst: Worst::default() };
        if found.len() >= ENOUGH {
            let allowed = 8.0 * mean(|one| one.plain) + 2.0 + narrow;
            let worst = found.iter().max_by(|a, b| a.actual.total_cmp(&b.actual)).expect("there are enough");
            let error = mean(|one| one.actual) / allowed;
            samples.worst = Worst { error, allowed: worst.worst.allowed * allowed, ..worst.worst };
        }
        samples
    }

    /// Returns the rounding of one element; `None` if it is infinite, NaN or too small to have one.
    fn sampled(&self, row: usize, column: usize, b: ArrayView1<f64>, arithmetic: Arithmetic) -> Option<Sample> {
        let a = self.factors.a.row(row);
        let exact = if self.sum == DType::F64 { accurate_dot(a, b) } else { dot(a, b) };
        let unit = self.sum.epsilon() * self.scale(row, column);
        let (added, size) = self.added(row, column);
        let actual = self.c[[row, column]] - added;
        if !(exact.is_finite() && actual.is_finite() && unit > self.sum.smallest()) {
            return None;
        }
        let joined = (self.dtype.epsilon() + self.joined()) * (exact.abs() + size);
        let stored = joined + self.growing * exact.abs() + self.dtype.smallest();
        let index = (row * self.columns.len() + column) as u64;
        Some(Sample {
            growing: self.growing * exact.abs() / unit,
            plain: (plain(a, b, arithmetic) - exact).abs() / unit,
            actual: ((actual - exact).abs() - stored).max(0.0) / unit,
            worst: Worst { error: 0.0, index, actual, expected: exact, allowed: unit },
        })
    }

    /// Compares element by element, or by random vectors if `flops`, the operations of all products, is large.
    fn compared(&self, flops: f64) -> Check {
        let found = if flops > WHOLE { self.by_vectors() } else { None };
        let mut found = found.unwrap_or_else(|| self.by_elements());
        found.worst = found.worst.larger(self.samples.worst);
        found
    }

    // --- Element by element -----------------------------------------------------------------------------------

    fn by_elements(&self) -> Check {
        let c = self.c.as_slice().expect("a device's product was given without gaps");
        let mut expected = vec![0.0; c.len()];
        self.factors.multiply(&mut expected);
        let added = self.added.iter().flat_map(|(sums, _)| sums);
        expected.iter_mut().zip(added).for_each(|(sum, added)| *sum += added);
        compare(self.dtype, c, &expected, &Tolerance::Within(self.radii(&expected)))
    }

    /// Returns the error bound of each element before it is stored.
    fn radii(&self, expected: &[f64]) -> Vec<f64> {
        let largest = if self.sum == DType::F64 { f64::MAX } else { f64::from(f32::MAX) };
        let unit = self.samples.roundings * self.sum.epsilon();
        let lost = self.factors.depth() as f64 * self.sum.smallest();
        let mut radii = Vec::with_capacity(expected.len());
        let joined = self.joined();
        for (place, (row, expected)) in self.rows.iter().zip(expected.chunks(self.columns.len().max(1))).enumerate() {
            radii.extend(self.columns.iter().zip(expected).enumerate().map(|(at, (column, expected))| {
                let scale = row * column;
                let (added, size) = self.added(place, at);
                let product = (expected - added).abs();
                match (expected.is_nan(), scale < largest / 4.0) {
                    (true, _) => 0.0,
                    // Integers are not rounded.
                    _ if self.dtype == DType::I32 => 0.0,
                    (false, true) => unit * scale + self.growing * product + joined * (product + size) + lost,
                    // A partial sum may be infinite although the total is finite, or have the opposite sign.
                    (false, false) => f64::INFINITY,
                }
            }));
        }
        radii
    }

    // --- By random vectors ------------------------------------------------------------------------------------

    /// Multiplies each row of each block of columns by random vectors, on both sides of the equation. Returns `None` if
    /// this is no less work than computing all elements, or if some elements are infinite or NaN.
    fn by_vectors(&self) -> Option<Check> {
        let Checked { factors, c, added, .. } = self;
        let (m, n) = (self.rows.len(), self.columns.len());
        let blocks = n.div_ceil(WIDTH);
        let largest = if self.sum == DType::F64 { f64::MAX.sqrt() } else { f64::from(f32::MAX) / 4.0 };
        let top = |lengths: &[f64]| lengths.iter().fold(0.0, |top, length| if *length > top { *length } else { top });
        let finite = |lengths: &[f64]| lengths.iter().all(|length| length.is_finite());
        let tame = finite(&self.rows) && finite(&self.columns) && top(&self.rows) * top(&self.columns) < largest;
        if blocks * VECTORS * 2 > n || !tame {
            return None;
        }
        let random =
            Array2::from_shape_fn((n, VECTORS), |(row, vector)| f64::from(bell(2, (row * VECTORS + vector) as u64)));
        let columns = |block: usize| block * WIDTH..n.min((block + 1) * WIDTH);
        // Multiplies some rows by the vectors of all blocks.
        let times = |rows: ArrayView2<f64>| {
            let mut products = Array2::zeros((rows.nrows(), blocks * VECTORS));
            for block in 0..blocks {
                let along = Slice::from(columns(block));
                let mut product = products.slice_mut(s![.., block * VECTORS..(block + 1) * VECTORS]);
                let (rows, random) = (rows.slice_axis(Axis(1), along), random.slice_axis(Axis(0), along));
                general_mat_mul(1.0, &rows, &random, 0.0, &mut product);
            }
            products
        };
        let mut combined = Array2::zeros((factors.depth(), blocks * VECTORS));
        let parts = combined.axis_chunks_iter_mut(Axis(0), ROWS).zip(factors.b.axis_chunks_iter(Axis(0), ROWS));
        parallel::each(parts.collect(), |(mut part, rows)| part.assign(&times(rows)));
        let mut expected = Array2::zeros((m, blocks * VECTORS));
        multiply(factors.a, combined.view(), expected.view_mut());
        let width =
            |block: usize| self.columns[columns(block)].iter().map(|length| length * length).sum::<f64>().sqrt();
        let widths: Vec<f64> = (0..blocks).map(width).collect();
        // For some rows, the largest error with its row and block; `None` if an element is NaN.
        let worst = parallel::map(m.div_ceil(ROWS), |part| {
            let rows = part * ROWS..m.min((part + 1) * ROWS);
            let along = Slice::from(rows.clone());
            let own = c.slice_axis(Axis(0), along);
            let of_rows = |all: &'_ Array2<f64>| all.slice_axis(Axis(0), along).to_owned();
            let added = added.as_ref().map(|(sums, sizes)| (of_rows(sums), of_rows(sizes)));
            let mut actual = times(own);
            if let Some((sums, _)) = &added {
                actual -= &times(sums.view());
            }
            let mut worst = (0.0, rows.start, 0);
            let first = rows.start;
            for (row, (own, actual)) in rows.zip(own.rows().into_iter().zip(actual.rows())) {
                for (block, width) in widths.iter().enumerate() {
                    let range = columns(block);
                    let length = |row: ArrayView1<f64>| {
                        let part = row.slice(s![range.clone()]);
                        part.dot(&part).sqrt()
                    };
                    let joined = added.as_ref().map_or(0.0, |(_, sizes)| length(sizes.row(row - first)));
                    let stored = length(own) + 2.0 * joined;
                    if !stored.is_finite() {
                        return None;
                    }
                    let allowed = DEVIATIONS * self.error_of(self.rows[row] * width, stored, range.len());
                    for vector in block * VECTORS..(block + 1) * VECTORS {
                        let error = (actual[vector] - expected[[row, vector]]).abs() / allowed;
                        worst = if error > worst.0 { (error, row, block) } else { worst };
                    }
                }
            }
            Some(worst)
        });
        let worst: Option<Vec<(f64, usize, usize)>> = worst.into_iter().collect();
        let (error, row, block) = worst?.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, 0, 0));
        let worst = Worst { error, ..self.worst_of_row(row, columns(block)) };
        Some(Check { method: Method::Vectors, elements: (m * n) as u64, undecided: 0, worst })
    }

    /// Returns the bound on the Euclidean length of the error vector. `scale` is the length of the vector of scales,
    /// `stored` that of the elements.
    fn error_of(&self, scale: f64, stored: f64, count: usize) -> f64 {
        let lost = (self.factors.depth() as f64 * self.sum.smallest() + self.dtype.smallest()) * (count as f64).sqrt();
        let stored = (self.growing + self.joined() + self.dtype.epsilon()) * stored;
        self.samples.roundings * self.sum.epsilon() * scale + stored + lost
    }

    /// Returns the element of a row with the largest error.
    fn worst_of_row(&self, row: usize, columns: std::ops::Range<usize>) -> Worst {
        let b = self.factors.b.slice_axis(Axis(1), Slice::from(columns.clone()));
        let expected = self.factors.a.row(row).dot(&b);
        let of = |(column, expected): (usize, &f64)| {
            let (added, size) = self.added(row, column);
            let (actual, expected) = (self.c[[row, column]], expected + added);
            let allowed = self.error_of(self.scale(row, column), expected.abs() + 2.0 * size, 1);
            let index = (row * self.columns.len() + column) as u64;
            Worst { error: (actual - expected).abs() / allowed, index, actual, expected, allowed }
        };
        columns.zip(&expected).map(of).fold(Worst::default(), Worst::larger)
    }
}

/// A sampled element. Errors are in unit roundoffs of its scale.
#[derive(Clone, Copy)]
struct Sample {
    /// Error of a plain sum in the device's type, and the part of it due to terms of one sign.
    plain: f64,
    growing: f64,
    /// Error of the device that exceeds the explanation by terms of one sign and by rounding the stored result.
    actual: f64,
    worst: Worst,
}

/// Returns the Euclidean lengths of the rows, without overflow. Elements count with a magnitude of at least `least`.
fn lengths(matrix: ArrayView2<f64>, least: f64) -> Vec<f64> {
    let parts: Vec<_> = matrix.axis_chunks_iter(Axis(0), LENGTHS).collect();
    let of = |part: usize| plain_lengths(parts[part], least).unwrap_or_else(|| lengths_of(parts[part], least));
    parallel::map(parts.len(), of).concat()
}

/// Returns the lengths from plain sums of squares; `None` if a sum may overflow, underflow or be NaN.
fn plain_lengths(matrix: ArrayView2<f64>, least: f64) -> Option<Vec<f64>> {
    let mut sums = vec![0.0f64; matrix.nrows()];
    match (matrix.strides()[1] == 1, least > 0.0) {
        (true, false) => matrix.rows().into_iter().zip(&mut sums).for_each(|(row, sum)| *sum = row.dot(&row)),
        // Visits the elements in memory order.
        (false, false) => matrix.columns().into_iter().for_each(|column| {
            sums.iter_mut().zip(column).for_each(|(sum, value)| *sum += value * value);
        }),
        (_, true) => return None,
    }
    let tame = |sum: &f64| (1e-200..1e200).contains(sum);
    sums.iter().all(tame).then(|| sums.into_iter().map(f64::sqrt).collect())
}

fn lengths_of(matrix: ArrayView2<f64>, least: f64) -> Vec<f64> {
    let (mut largest, mut sums) = (vec![0.0f64; matrix.nrows()], vec![0.0f64; matrix.nrows()]);
    // `f64::max` would hide NaN.
    let size = |value: &f64| if value.abs() < least { least } else { value.abs() };
    let larger = |largest: &mut f64, value: &f64| *largest = largest.max(size(value));
    // An infinite element or NaN makes the length infinite or NaN.
    let square = |largest: f64, value: &f64| match size(value) {
        0.0 => 0.0,
        size => (size / largest).powi(2),
    };
    // Visits the elements in memory order.
    if matrix.strides()[1] == 1 {
        for ((row, largest), sum) in matrix.rows().into_iter().zip(&mut largest).zip(&mut sums) {
            row.iter().for_each(|value| larger(largest, value));
            *sum = row.iter().map(|value| square(*largest, value)).sum();
        }
    } else {
        for column in matrix.columns() {
            largest.iter_mut().zip(column).for_each(|(largest, value)| larger(largest, value));
        }
        for column in matrix.columns() {
            let rows = sums.iter_mut().zip(&largest).zip(column);
            rows.for_each(|((sum, largest), value)| *sum += square(*largest, value));
        }
    }
    largest.iter().zip(sums).map(|(largest, sum)| largest * sum.sqrt()).collect()
}

fn dot(a: ArrayView1<f64>, b: ArrayView1<f64>) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// Computes the dot product with twice the precision (Ogita, Rump, Oishi, "Accurate sum and dot product", 2005).
fn accurate_dot(a: ArrayView1<f64>, b: ArrayView1<f64>) -> f64 {
    let (mut sum, mut lost) = (0.0f64, 0.0);
    for (x, y) in a.iter().zip(b) {
        let term = x * y;
        let next = sum + term;
        let kept = next - sum;
        lost += x.mul_add(*y, -term) + (sum - (next - kept)) + (term - kept);
        sum = next;
    }
    sum + lost
}

/// Typical error of a sum of terms of both signs, in unit roundoffs of its scale. Some columns may have such terms even
/// if no sampled element has.
fn typical_error(depth: f64, arithmetic: Arithmetic) -> f64 {
    match arithmetic {
        Arithmetic::F32 | Arithmetic::F64 | Arithmetic::I8 => depth.sqrt(),
        // Truncation moves the sum towards zero, and the sign of the sum seldom changes, so these errors accumulate.
        Arithmetic::F16 | Arithmetic::BF16 | Arithmetic::Tf32 | Arithmetic::F8 => 0.5 * depth / TERMS as f64,
    }
}

/// Sums products one by one, as the least accurate device would: rounds each sum, or truncates it as matrix units do.
fn plain(a: ArrayView1<f64>, b: ArrayView1<f64>, arithmetic: Arithmetic) -> f64 {
    let terms = a.iter().zip(b);
    let cut_off = |sum: f64| f64::from_bits(sum.to_bits() & !((1 << 29) - 1));
    match arithmetic {
        Arithmetic::F64 | Arithmetic::I8 => terms.fold(0.0, |sum, (x, y)| sum + x * y),
        Arithmetic::F32 => f64::from(terms.fold(0.0f32, |sum, (x, y)| sum + *x as f32 * *y as f32)),
        Arithmetic::F16 | Arithmetic::BF16 | Arithmetic::Tf32 | Arithmetic::F8 => {
            // Keeps 10 of the 52 bits of the fraction.
            let mask = if arithmetic == Arithmetic::Tf32 { !((1u64 << 42) - 1) } else { u64::MAX };
            let factor = |x: &f64| f64::from_bits(x.to_bits() & mask);
            let (mut sum, mut part) = (0.0, 0.0);
            for (index, (x, y)) in terms.enumerate() {
                part += factor(x) * factor(y);
                if index % TERMS == TERMS - 1 {
                    sum = cut_off(sum + part);
                    part = 0.0;
                }
            }
            cut_off(sum + part)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that truncates passes, although the terms of one element cancel and those of others have one sign.
    #[test]
    fn elements_may_differ() {
        let (m, n, k) = (3, 16, 2530);
        let a: Vec<f64> = (0..m * k).map(|index| DType::BF16.round(index as f64)).collect();
        for special in 0..n {
            let value = |index: usize| match index % n == special {
                // In the first row, the terms sum to zero.
                true => (index / n) as f64 / k as f64 - 2.0 / 3.0,
                false => f64::from(bell(1, index as u64)).abs(),
            };
            let b: Vec<f64> = (0..k * n).map(|index| DType::BF16.round(value(index))).collect();
            let matrix = |values, shape| ArrayView2::from_shape(shape, values).expect("as many as the shape has");
            let factors = Factors { a: matrix(&a, (m, k)), b: matrix(&b, (k, n)) };
            let element = |index: usize| plain(factors.a.row(index / n), factors.b.column(index % n), Arithmetic::BF16);
            let c: Vec<f64> = (0..m * n).map(element).collect();
            let found = Checked::new(factors, (None, 0.0), &c, (DType::F32, Arithmetic::BF16)).by_elements();
            assert!(found.held(), "column {special}: {found:?}");
        }
    }
}
