//! Leading dimensions of a product as rows.

use std::borrow::Cow;

use super::aligned::MAX_SIDE;
use super::collapse;
use super::*;

/// Returns a product in which leading dimensions of `a` and of the output are rows, where all of these multiply the same `b`: as far as their
/// strides allow. One product of many rows reads `b` once.
pub fn folded(spec: &Spec) -> Cow<'_, Spec> {
    let (a, b, c) = (&spec.inputs[0], &spec.inputs[1], &spec.outputs[0]);
    let rank = c.dims.len();
    if rank == 2 || a.dims.len() < rank || b.dims.len() > 2 || spec.attrs.bool("transpose_a") {
        return Cow::Borrowed(spec);
    }
    let [of_a, of_c] = [a, c].map(|tensor| tensor.strides.part(..rank - 1));
    let rows = collapse(c.dims.part(..rank - 1), &[of_a, of_c]);
    // Rows that overlap are no matrix of the library, nor are more rows than its sizes can be.
    let is_matrix = |tensor: &Tensor, strides: &Dims| strides.last().is_some_and(|&row| row >= tensor.dims[rank - 1]);
    if rows.dims.len() == rank - 1
        || rows.dims.iter().any(|&size| size >= MAX_SIDE)
        || ![a, c].into_iter().zip(&rows.strides).all(|(tensor, rows)| is_matrix(tensor, rows))
    {
        return Cow::Borrowed(spec);
    }
    let with_rows = |tensor: &Tensor, strides: &Dims| {
        let columns = [tensor.dims[rank - 1], tensor.strides[rank - 1]];
        let [dims, strides] = [&rows.dims, strides].map(|given| given.iter().copied());
        Tensor { dims: dims.chain([columns[0]]).collect(), strides: strides.chain([columns[1]]).collect(), ..*tensor }
    };
    let (a, c) = (with_rows(a, &rows.strides[0]), with_rows(c, &rows.strides[1]));
    let mut inputs = spec.inputs.clone();
    inputs[0] = a;
    if spec.attrs.bool("accumulate") {
        inputs.pop();
        inputs.push(c);
    }
    Cow::Owned(Spec { inputs, outputs: vec![c], ..spec.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::layout::offsets;

    /// Drawn layouts: folding keeps the order in which rows lie in memory, and rows that could overlap stay apart.
    #[test]
    fn folded_rows_are_those_of_the_given_product() {
        let mut state = 7u64;
        let mut below = |count: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % count
        };
        let mut merged = 0;
        for _ in 0..400 {
            let dims: Vec<u64> = (0..3 + below(2)).map(|_| [1, 2, 3, 5][below(4) as usize]).collect();
            let (rank, k, n) = (dims.len(), dims[dims.len() - 1], 1 + below(4));
            let mut with_gaps = |columns: u64| {
                let dims: Dims = dims[..rank - 1].iter().copied().chain([columns]).collect();
                let mut strides = dims.contiguous_strides();
                for axis in (0..rank - 1).rev() {
                    let next = dims[axis + 1] * strides[axis + 1];
                    strides.set(axis, next + [0, 0, 0, 7][below(4) as usize]);
                }
                Tensor { strides, ..Tensor::packed(DType::F32, &dims) }
            };
            let (a, c) = (with_gaps(k), with_gaps(n));
            let b = Tensor::packed(DType::F32, &[k, n]);
            let given = Spec::of_use("gemm", &[], vec![a, b], &[Some(c)]).expect("a product");
            let found = folded(&given);
            for (before, after) in [(given.inputs[0], found.inputs[0]), (given.outputs[0], found.outputs[0])] {
                assert!(
                    offsets(before.dims, before.strides).eq(offsets(after.dims, after.strides)),
                    "{before:?}, {after:?}"
                );
            }
            merged += usize::from(found.outputs[0].dims.len() < rank);
        }
        assert!(merged > 100, "{merged}");
    }
}
