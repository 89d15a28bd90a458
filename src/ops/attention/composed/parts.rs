//! Products of `f32` numbers by matrix units for `bf16`: each finite number from 2^-110 on is the exact sum of three numbers of
//! `bf16`. An infinite number gives NaN, since a part of its partner may be zero.
//!
//! A product of two numbers is the sum of the products of their parts, accumulated in `f32`. The three products of the smallest parts are
//! left out: together, they are less than 2^-20.9 of a product, towards zero, and about 2^-24 on average. The distance of adjacent `f32` numbers is 2^-23.
//! Matrix units truncate sums. The bounds of verification include that: the largest errors on an H200 were 3 and 6 % of the bound, and 1 %
//! with products in `f32` (docs/measurements/2026-11-28-attention-parts.md).

use super::*;

/// Number of parts of an `f32` number: 8 bits of its significand each, the largest first.
pub(super) const PARTS: u64 = 3;

/// Order of the parts in a row of queries, and in a row of keys, of which [`OF_A_ROW`] per element are stored. The product of both rows has
/// each product of two parts once, except those of the smallest parts.
const QUERY_PARTS: [u64; 6] = [0, 1, 2, 0, 1, 0];
const KEY_PARTS: [u64; 6] = [1, 0, 0, 0, 1, 2];

/// Number of parts in the row of a copy, per element of the operand.
pub(super) const OF_A_ROW: u64 = QUERY_PARTS.len() as u64;

/// Index of the first of [`PARTS`] parts in the order of their size, in [`QUERY_PARTS`] and in [`KEY_PARTS`].
pub(super) const IN_QUERY: u64 = 0;
pub(super) const IN_KEY: u64 = 3;

/// Returns the length of rows of parts: copies have zeros behind a row of an operand, so that each part begins at a multiple of a pack.
pub(super) fn padded(width: u64) -> u64 {
    width.next_multiple_of(PACK)
}

/// Returns the order of the parts in the rows of queries, or of keys if `shared`, as arguments of a template.
pub(super) fn order(shared: bool) -> String {
    let order = if shared { KEY_PARTS } else { QUERY_PARTS };
    order.map(|part| part.to_string()).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_multiply_each_pair_of_parts_once_except_the_smallest() {
        let mut pairs: Vec<(u64, u64)> = QUERY_PARTS.into_iter().zip(KEY_PARTS).collect();
        pairs.sort_unstable();
        assert_eq!(pairs, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0)]);
        for (order, first) in [(QUERY_PARTS, IN_QUERY), (KEY_PARTS, IN_KEY)] {
            assert_eq!(order[first as usize..][..PARTS as usize], [0, 1, 2]);
        }
    }
    #[test]
    fn large_products_in_f32_are_those_of_parts() {
        let of_type = |dtype: DType| {
            let (q, k) = (Tensor::packed(dtype, &[4, 1024, 317]), Tensor::packed(dtype, &[2, 1027, 317]));
            Spec::of_use("attention", &[], vec![q, k, k], &[None; 2]).expect("a use")
        };
        let has_parts = |dtype| Composed::of(&of_type(dtype)).is_some_and(|one| one.gathered == Gathered::Parts);
        assert_eq!([DType::F32, DType::F64, DType::BF16].map(has_parts), [true, false, false]);
        let spec = of_type(DType::F32);
        let composed = Composed::of(&spec).expect("products");
        let end = composed.regions(composed.at_once).end;
        let (mut sizes, mut accumulates) = (Vec::new(), Vec::new());
        for launch in composed.launches() {
            let Launch::Gemm(product, _) = launch else { continue };
            let Gemm { m, n, k, batch, .. } = product;
            sizes.push([m, n, k]);
            accumulates.push(product.accumulate);
            for (matrix, rows, columns) in [(product.a, m, k), (product.b, k, n), (product.c, m, n)] {
                let (rows, columns) = if matrix.transposed { (columns, rows) } else { (rows, columns) };
                assert!(columns <= matrix.row && matrix.operand == Matrix::WORKSPACE);
                let last = matrix.offset + (batch - 1) * matrix.batch + (rows - 1) * matrix.row + columns;
                assert!(last * matrix.dtype.size() <= end);
            }
        }
        // Rows have 320 columns for each part, and keys of zeros to a multiple of 8.
        assert_eq!(sizes, [[2048, 1032, 1920], [2048, 960, 1032], [2048, 640, 1032], [2048, 320, 1032]]);
        assert_eq!(accumulates, [false, false, true, true]);
    }
}
