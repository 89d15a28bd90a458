//! Scaling factors of products of 8-bit floats.

use super::super::*;
use super::{Gemm, sizes};

/// Number of rows, and of columns, of the blocks of a matrix that share a scaling factor.
pub const BLOCK: u64 = 128;

/// Number of elements to a multiple of which the rows of the scaling factors of `b` are padded, as cuBLASLt requires.
const BLOCK_ROW: u64 = 4;

/// Fails unless there is one scaling factor for each matrix, for each row of `a` and column of `b`, or for each block.
pub fn factors_fit(call: &Call, (m, n, k): (u64, u64, u64), rank: usize) -> Result<(), OpError> {
    let [a, b] = [2, 3].map(|input| call.inputs[input].tensor);
    let row = |size: u64, tensor: &Tensor| tensor.dims.len() == 1 && tensor.dims[0] == size && rank == 2;
    let one = |tensor: &Tensor| tensor.dims.iter().all(|&size| size == 1);
    let depth = k.div_ceil(BLOCK);
    let blocks = rank == 2 && a.dims[..] == [depth, m] && b.dims[..] == [n.div_ceil(BLOCK), depth];
    if !(row(m, &a) && row(n, &b) || one(&a) && one(&b) || blocks) {
        let help = match rank {
            2 => format!(
                "give one factor for each matrix, `f32[1]`; or one for each row of `a` and one for each column of `b`; or \
                 `f32[{depth}, {m}]`, one for each {BLOCK} terms of each row of `a`, and `f32[{}, {depth}]`, one for each \
                 block of {BLOCK} × {BLOCK} of `b`",
                n.div_ceil(BLOCK)
            ),
            _ => "products of several matrices have one factor for all of `a`, `f32[1]`, and one for all of `b`"
                .to_owned(),
        };
        return Err(call.differs(
            2,
            format!("this is {}", a.dims),
            3,
            format!("this is {}, for a product of {m} × {n} with {k} terms", b.dims),
            &help,
        ));
    }
    let gaps = |help| move |input: usize| call.gaps(&call.inputs[input], help);
    if blocks && !one(&b) {
        let row = depth.next_multiple_of(BLOCK_ROW);
        if !a.contiguous() {
            return Err(gaps("factors of blocks of `a` have to be contiguous: copy the slice first")(2));
        }
        if b.dims[0] > 1 && b.strides[0] != row || b.strides[1] != 1 && depth > 1 {
            return Err(call.needs_padded_rows(3, row, BLOCK_ROW));
        }
        return Ok(());
    }
    match [2, 3].into_iter().find(|&input| !call.inputs[input].tensor.contiguous()) {
        Some(input) => Err(gaps("factors have to be contiguous: copy the slice first")(input)),
        None => Ok(()),
    }
}

/// Returns the scaling factors of both matrices; `None` for a product without scaling.
pub fn scales(spec: &Spec) -> Option<Scales> {
    let factors = spec.inputs.get(2..4).filter(|_| spec.operation.name() == Gemm::Scaled.name())?;
    let form = match factors {
        _ if factors.iter().all(|factor| factor.elements() == 1) => ScaleForm::Tensor,
        [a, _] if a.dims.len() == 2 => ScaleForm::Blocks,
        _ => ScaleForm::RowsAndColumns,
    };
    Some(Scales { operands: [2, 3], offsets: [0; 2], form })
}

/// Returns the inputs with both matrices multiplied by their scaling factors; the products are stored in `room`.
pub fn unscaled<'a>(spec: &Spec, inputs: &[&'a [f64]], room: &'a mut [Vec<f64>; 2]) -> Vec<&'a [f64]> {
    let mut all = inputs.to_vec();
    let Some(Scales { form, .. }) = scales(spec) else { return all };
    let (m, n, k, _) = sizes(spec);
    let depth = k.div_ceil(BLOCK);
    // Row and term in `a`, and column and term in `b`, of an element at an index in memory.
    let turned = ["transpose_a", "transpose_b"].map(|name| spec.attrs.bool(name));
    let in_a = |place: u64| if turned[0] { (place % m, place / m) } else { (place / k, place % k) };
    let in_b = |place: u64| if turned[1] { (place / k, place % k) } else { (place % n, place / n) };
    let factor_a = |place: u64| match (form, in_a(place)) {
        (ScaleForm::Tensor, _) => 0,
        (ScaleForm::RowsAndColumns, (row, _)) => row,
        (ScaleForm::Blocks, (row, term)) => term / BLOCK * m + row,
    };
    let factor_b = |place: u64| match (form, in_b(place)) {
        (ScaleForm::Tensor, _) => 0,
        (ScaleForm::RowsAndColumns, (column, _)) => column,
        (ScaleForm::Blocks, (column, term)) => column / BLOCK * depth + term / BLOCK,
    };
    let [a, b] = room;
    // The matrices of a batch have the same scaling factors.
    *a = inputs[0].iter().zip(0..).map(|(value, place)| value * inputs[2][factor_a(place) as usize]).collect();
    *b = inputs[1].iter().zip(0..).map(|(value, place)| value * inputs[3][factor_b(place) as usize]).collect();
    (all[0], all[1]) = (a, b);
    all
}
