//! Compares memory contents up to rounding, for results of devices that are not deterministic.

use crate::base::DType;
use crate::model::Program;

use super::BEYOND;

/// Allowed error of a row, in multiples of that of the whole: some rows are numerically harder.
const ROW: f64 = 4.0;

/// Allowed error of an element, in multiples of that of the whole. Rounding errors are roughly normal; none is this
/// many standard deviations out if the whole is within its bound.
const ELEMENT: f64 = 8.0;

/// Number of roundings of the coarsest type that may explain a relative error. Typical chains have some tens of
/// operations.
const ROUNDINGS: f64 = 16.0;

/// Largest difference of an output from the expected one, and the bound for it.
#[derive(Clone, Debug)]
pub struct OutputDifference {
    /// Error of the output: of floats as [`compare`] defines it, of integers the share of elements that differ.
    pub error: f64,
    /// Largest allowed error.
    pub bound: f64,
}

/// Compares the results of two runs of the same operations. If bits differ, the difference must be explained by
/// rounding to the program's coarsest type.
pub fn unless_same(program: &Program, dtype: DType, row: usize, actual: &[u8], expected: &[u8]) -> OutputDifference {
    let tensors = program.specs.iter().flat_map(|spec| spec.inputs.iter().chain(&spec.outputs));
    let coarsest = tensors.map(|tensor| tensor.dtype.epsilon()).fold(0.0, f64::max);
    let bound = if dtype.is_float() { ROUNDINGS * coarsest } else { 0.0 };
    match actual == expected {
        true => OutputDifference { error: 0.0, bound },
        false => compare(dtype, row, actual, expected, bound),
    }
}

/// Compares two ranges of memory whose last dimension has `row` elements.
///
/// The error of floats is the largest of three relative errors, each divided by what rounding can explain:
///
/// - of the whole: the norm of the difference over that of the reference;
/// - of a row, to find one wrong row among many;
/// - of an element, to find one wrong element in a row.
///
/// A sum whose terms cancel has an error in proportion to its terms, however small the result. So a row is measured
/// against at least the root mean square of all rows, and an element against at least that of its row and of all
/// elements; small wrong values beside large ones can go unnoticed.
pub fn compare(dtype: DType, row: usize, actual: &[u8], expected: &[u8], bound: f64) -> OutputDifference {
    let size = dtype.size() as usize;
    let load = |bytes: &[u8]| bytes.chunks_exact(size).map(|bytes| dtype.load(bytes)).collect::<Vec<f64>>();
    let (actual, expected) = (load(actual), load(expected));
    let error = match dtype.is_float() {
        true => float_error(row.max(1), &actual, &expected).min(BEYOND),
        false => {
            let differing = actual.iter().zip(&expected).filter(|(a, b)| a != b).count();
            differing as f64 / expected.len().max(1) as f64
        }
    };
    OutputDifference { error, bound }
}

fn float_error(row: usize, actual: &[f64], expected: &[f64]) -> f64 {
    // Scale by the largest value, so that no square overflows or vanishes.
    let finite = expected.iter().map(|value| value.abs()).filter(|value| value.is_finite());
    let unit = finite.fold(0.0, f64::max);
    let mut pairs = Vec::with_capacity(expected.len());
    for (&a, &b) in actual.iter().zip(expected) {
        let same = a == b || (a.is_nan() && b.is_nan());
        let difference = if same { 0.0 } else { (a - b).abs() / unit };
        // A number compared with NaN or infinity, or a nonzero value with zeros only.
        if !difference.is_finite() {
            return BEYOND;
        }
        pairs.push((difference.powi(2), if b.is_finite() { (b / unit).powi(2) } else { 0.0 }));
    }
    // Sums of squares.
    let sums = |pairs: &[(f64, f64)]| pairs.iter().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
    let (difference, norm) = sums(&pairs);
    if difference == 0.0 {
        return 0.0;
    }
    let mean = norm / pairs.len() as f64;
    let mut worst = difference / norm;
    for row in pairs.chunks(row) {
        let (difference, norm) = sums(row);
        let length = row.len() as f64;
        worst = worst.max(difference / norm.max(mean * length) / ROW.powi(2));
        let scale = mean.max(norm / length);
        let elements = row.iter().map(|(difference, value)| difference / value.max(scale));
        worst = worst.max(elements.fold(0.0, f64::max) / ELEMENT.powi(2));
    }
    worst.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(dtype: DType, values: &[f64]) -> Vec<u8> {
        let mut bytes = vec![0; values.len() * dtype.size() as usize];
        for (value, place) in values.iter().zip(bytes.chunks_mut(dtype.size() as usize)) {
            dtype.store(*value, place);
        }
        bytes
    }

    fn limit(dtype: DType) -> f64 {
        ROUNDINGS * dtype.epsilon()
    }

    fn error(dtype: DType, row: usize, actual: &[f64], expected: &[f64]) -> f64 {
        compare(dtype, row, &bytes(dtype, actual), &bytes(dtype, expected), 0.0).error
    }

    /// 256 rows of 64 numbers of both signs; the rows' sizes differ by a factor of 256.
    fn matrix() -> Vec<f64> {
        (0..256 * 64).map(|i| (i as f64 * 0.7).sin() * (1 + i / 64) as f64).collect()
    }

    #[test]
    fn tells_rounding_from_mistakes() {
        let limit = limit(DType::BF16);
        let expected = [1.0, 2.0, 3.0];
        assert!(error(DType::BF16, 3, &[1.0, 2.01, 3.0], &expected) <= limit);
        assert!(error(DType::BF16, 3, &[1.0, 0.0, 3.0], &expected) > limit);
        assert!(error(DType::BF16, 3, &[1.0, f64::NAN, 3.0], &expected) > limit);
        assert_eq!(error(DType::BF16, 3, &expected, &[0.0; 3]), BEYOND);
        assert_eq!(error(DType::F64, 1, &[1e200, 1e-200], &[1e200, 1e-200]), 0.0);
        assert!(error(DType::F64, 2, &[1e200, 2e200], &[1e200, 1e200]) > 0.1);
        assert_eq!(error(DType::I32, 2, &[1.0, 2.0], &[1.0, 3.0]), 0.5);
    }

    #[test]
    fn rounding_is_within_the_bound() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            // Every element is off by four roundings in the same direction.
            let off = |value: &f64| value * (1.0 + 4.0 * dtype.epsilon());
            let (expected, actual) = (matrix(), matrix().iter().map(off).collect::<Vec<f64>>());
            let found = error(dtype, 64, &actual, &expected);
            assert!(found > dtype.epsilon() && found <= limit(dtype), "{dtype}: {found}");
        }
    }

    #[test]
    fn a_wrong_row_is_seen() {
        let limit = limit(DType::BF16);
        for row in [96, 128, 255] {
            let mut actual = matrix();
            // The row of another position: its norm is nearly the same.
            actual[row * 64..][..64].rotate_left(5);
            assert!(error(DType::BF16, 64, &actual, &matrix()) > limit, "row {row}");
            let mut missing = matrix();
            missing[row * 64..][..64].fill(0.0);
            assert!(error(DType::BF16, 64, &missing, &matrix()) > limit, "row {row}");
        }
        // The error is negligible relative to the whole.
        let mut actual = vec![1.0; 256 * 64];
        actual[..64].fill(0.5);
        assert!(error(DType::BF16, 256 * 64, &actual, &vec![1.0; 256 * 64]) <= limit);
        assert!(error(DType::BF16, 64, &actual, &vec![1.0; 256 * 64]) > limit);
    }

    #[test]
    fn a_wrong_element_is_seen() {
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            let mut actual = vec![1.0; 256 * 64];
            actual[1000] = 0.0;
            assert!(error(dtype, 64, &actual, &vec![1.0; 256 * 64]) > limit(dtype), "{dtype}");
        }
    }

    #[test]
    fn terms_that_cancel_are_no_mistake() {
        // A small value among large ones, off by the rounding error of the large ones; and a row of such values.
        let mut expected = matrix();
        expected[9000] = 1e-6;
        expected[64 * 200..][..64].fill(1e-6);
        let mut actual = expected.clone();
        actual[9000] = 0.5;
        actual[64 * 200..][..64].fill(0.5);
        assert!(error(DType::BF16, 64, &actual, &expected) <= limit(DType::BF16));
    }
}
