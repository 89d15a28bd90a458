//! The uses of attention that libraries have.

use std::sync::Arc;

use super::shape::Axes;
use super::*;

/// Bytes of a call's scratch memory at most, where fewer samples a call need less.
const MOST_SCRATCH: u64 = 2 << 30;

impl FusedAttention {
    /// Returns `None` for a use that no library computes as this operation does. `operands` are in the order of
    /// [`FusedAttention::operands`], and `lse` is the fifth.
    pub fn of(spec: &Spec, form: AttentionForm, operands: &[usize]) -> Option<FusedAttention> {
        if matches!(spec.attrs.word("algorithm"), FUSED | NAIVE) {
            return None;
        }
        let shape = Shape::of(spec);
        let dtype = spec.inputs[0].dtype;
        if !matches!(dtype, DType::F16 | DType::BF16) || shape.pairs() == 0.0 || shape.value_size == 0 {
            return None;
        }
        // Queries before the first key see nothing: libraries have no result for them.
        if shape.causal && shape.queries > shape.keys {
            return None;
        }
        let four = |&operand: &usize| {
            let tensor = spec.operand(operand);
            let is_lse = operand == operands[4];
            let known = if is_lse { tensor.dtype == DType::F32 && tensor.contiguous() } else { tensor.dtype == dtype };
            let tensor = in_four(tensor, if is_lse { None } else { Some(shape.axes) }, spec.inputs[0].dims.len())?;
            // Libraries move 16 bytes at once.
            (known && (is_lse || layout::in_packs(&tensor, 16 / dtype.size()))).then_some((operand as u8, tensor))
        };
        let operands: Vec<(u8, Tensor)> = operands.iter().map(four).collect::<Option<_>>()?;
        let scale = shape.scale as f32;
        let mut all = FusedAttention { form, operands, calls: 1, causal: shape.causal, window: shape.window, scale };
        if shape.window >= shape.keys {
            all.window = 0;
        }
        let batch = all.operands[0].1.dims[0];
        let calls = (1..=batch).find(|calls| {
            batch.is_multiple_of(*calls) && (*calls == batch || all.scratch_of(batch / calls) <= MOST_SCRATCH)
        })?;
        all.calls = calls;
        all.operands.iter_mut().for_each(|(_, tensor)| tensor.dims.set(0, batch / calls));
        Some(all)
    }
}

/// The operand as `[batch, heads, positions, elements]`; `axes` is `None` for one without elements. Returns `None` if the
/// dimensions before heads cannot be counted through with one stride.
fn in_four(tensor: &Tensor, axes: Option<Axes>, rank: usize) -> Option<Tensor> {
    let (positions, heads) = {
        let axes = axes.unwrap_or(Axes::of_rows(rank));
        (axes.positions, axes.heads)
    };
    let lead = rank.saturating_sub(3);
    let last = axes.map(|_| rank - 1);
    let before = Dims::from_slice(&tensor.dims[..lead])?;
    let batch = layout::collapse(before, &[Dims::from_slice(&tensor.strides[..lead])?]);
    let (count, step) = match batch.dims.len() {
        0 => (1, 0),
        1 => (batch.dims[0], batch.strides[0][0]),
        _ => return None,
    };
    let of = |axis: Option<usize>, dims: &Dims, absent: u64| axis.map_or(absent, |axis| dims[axis]);
    let sizes = [count, of(heads, &tensor.dims, 1), tensor.dims[positions], of(last, &tensor.dims, 1)];
    let mut strides = [step, of(heads, &tensor.strides, 0), tensor.strides[positions], of(last, &tensor.strides, 1)];
    // A dimension of size 1 may have any stride: the one that a tensor without gaps would have.
    for axis in (0..3).rev().filter(|&axis| sizes[axis] == 1) {
        strides[axis] = strides[axis + 1] * sizes[axis + 1];
    }
    let (dims, strides) = (Dims::from_slice(&sizes)?, Dims::from_slice(&strides)?);
    Some(Tensor { dims, strides, ..*tensor })
}

/// The launches of a use: a library's call with the kernels in its place, or the kernels alone.
pub fn launches(fused: Option<FusedAttention>, kernels: Vec<Kernel>) -> Vec<Launch> {
    match fused {
        Some(fused) => vec![Launch::Attention(Arc::new(fused), kernels)],
        None => kernels.into_iter().map(Launch::Kernel).collect(),
    }
}
