//! Conditions under which a vendor's library can compute attention.

use super::shape::bias;
use super::*;

/// Largest head dimension for which the library is used: cuDNN 9 computes gradients up to it on Hopper.
const LARGEST_HEAD: u64 = 256;

/// True if the type of the queries and the option `algorithm` permit the library.
pub fn may_take(spec: &Spec) -> bool {
    matches!(spec.inputs[0].dtype, DType::F16 | DType::BF16) && !matches!(spec.attrs.word("algorithm"), FUSED | NAIVE)
}

impl FusedAttention {
    /// Returns the attention that the library computes; `None` if the library does not compute this operation on these
    /// operands.
    pub fn of(spec: &Spec) -> Option<FusedAttention> {
        let is = |operation: Attention| spec.operation.name() == operation.name();
        let forward = is(Attention::Forward);
        // The library does not use gradients of `lse`, and is not asked for those of the biased scores.
        let backward = (is(Attention::Backward) || is(Attention::BiasedBackward))
            && spec.outputs.len() == 3
            && input(spec, DLSE).is_none();
        let form = match (forward, backward) {
            (true, _) => AttentionForm::Forward,
            (_, true) => AttentionForm::Backward,
            _ => return None,
        };
        let shape = Shape::of(spec);
        let (dtype, rank) = (spec.inputs[0].dtype, spec.inputs[0].dims.len());
        let widest = shape.size.max(shape.value_size);
        if !may_take(spec) || widest > LARGEST_HEAD || shape.pairs() == 0.0 || shape.value_size == 0 {
            return None;
        }
        // The library is not asked for soft caps.
        if shape.softcap > 0.0 {
            return None;
        }
        // Queries before the first key attend to nothing, and the library does not define their result.
        if shape.causal && shape.queries > shape.keys {
            return None;
        }
        // The library accesses 16 bytes at once.
        let moves = |tensor: &Tensor| tensor.dtype == dtype && layout::in_packs(tensor, 16 / dtype.size());
        let four = |operand: usize, is_lse: bool| {
            let tensor = spec.operand(operand);
            let four = in_four(tensor, (!is_lse).then_some(shape.axes), rank)?;
            let known = if is_lse { tensor.dtype == DType::F32 && tensor.contiguous() } else { moves(&four) };
            known.then_some((operand as u8, four))
        };
        // The fifth operand of both forms is `lse`. The library expects the bias last.
        let (given, results) = if forward { (3, 2) } else { (6, 3) };
        let places = (0..given).chain(spec.inputs.len()..spec.inputs.len() + results);
        let mut operands: Vec<(u8, Tensor)> =
            places.enumerate().map(|(index, operand)| four(operand, index == 4)).collect::<Option<_>>()?;
        operands.extend(library_bias(spec)?);
        let deterministic = forward || spec.attrs.bool(DETERMINISTIC);
        let window = if shape.window >= shape.keys { 0 } else { shape.window };
        let (causal, scale) = (shape.causal, shape.scale as f32);
        Some(FusedAttention { form, operands, causal, window, scale, deterministic })
    }
}

/// Returns the number of the bias in the call and the bias as `[1 or batch, 1 or heads, queries, keys]`; `Some(None)`
/// without a bias; `None` if the library does not support this bias. Its rows need no alignment, since the library
/// reads single elements.
fn library_bias(spec: &Spec) -> Option<Option<(u8, Tensor)>> {
    let Some(place) = input(spec, BIAS) else { return Some(None) };
    let rank = spec.inputs[0].dims.len();
    let mut four = in_four(&bias(spec)?, Some(Axes::of_rows(rank)), rank)?;
    for axis in [1, 0] {
        if four.strides[axis] == 0 {
            four.dims.set(axis, 1);
            four.strides.set(axis, four.dims[axis + 1] * four.strides[axis + 1]);
        }
    }
    let taken = four.dtype == spec.inputs[0].dtype && four.strides[3] == 1 && four.align >= 16;
    (taken && four.strides.iter().all(|stride| *stride > 0)).then_some(Some((place as u8, four)))
}

/// Returns an operand as `[batch, heads, positions, elements]`; `None` if the dimensions before heads cannot be merged
/// into one. `axes` is `None` for an operand without the dimension of elements, and `rank` is the rank of the queries.
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
    // A dimension of size 1 can have any stride. Uses the stride that it would have in a tensor without gaps.
    for axis in (0..3).rev().filter(|&axis| sizes[axis] == 1) {
        strides[axis] = strides[axis + 1] * sizes[axis + 1];
    }
    let (dims, strides) = (Dims::from_slice(&sizes)?, Dims::from_slice(&strides)?);
    Some(Tensor { dims, strides, ..*tensor })
}
