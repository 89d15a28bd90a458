//! Grouped products of a single group whose end the text determines. They are computed as `gemm` is.
//!
//! The library then has kernels for the sizes, and blocks need no table of groups.

use super::super::Gemm;
use super::*;

/// Description of a product that is computed by the launches of `gemm`.
pub const IMPLEMENTATION: &str = "computed as `gemm`, since the text determines the only group";

/// Returns the call of `gemm` that computes the product, if the text determines the end of the only group, and the group contains all
/// rows, or in a product of groups of the depth at least one term. Otherwise `None`; also with an epilogue, which `gemm` may apply to
/// rounded sums.
pub fn product(spec: &Spec) -> Option<Spec> {
    if spec.attrs.word("epilogue") != "none" {
        return None;
    }
    let sizes = spec.sizes.as_ref().filter(|_| spec.has_certain_sizes)?;
    let [end] = sizes[0][..] else { return None };
    let shape = Shape::of(spec);
    let end = end.clamp(0, shape.length() as i64) as u64;
    // Rows behind the group would have to be set to zero, and so would the result of a group without terms.
    let least = if shape.in_depth { 1 } else { shape.rows.max(1) };
    if end < least {
        return None;
    }
    let matrix = |tensor: &Tensor| {
        let of = |sizes: &Dims| Dims::from_slice(&sizes[sizes.len() - 2..]).unwrap_or_default();
        Tensor { dims: of(&tensor.dims), strides: of(&tensor.strides), ..*tensor }
    };
    let turned = ["transpose_a", "transpose_b"].map(|name| spec.attrs.bool(name));
    let [mut a, mut b, c] = [&spec.inputs[0], &spec.inputs[1], &spec.outputs[0]].map(matrix);
    if shape.in_depth {
        a.dims.set(usize::from(!turned[0]), end);
        b.dims.set(usize::from(turned[1]), end);
    }
    // Libraries support no gaps between the elements of a row.
    let has_rows = |tensor: &Tensor| tensor.strides[1] == 1 || tensor.dims[1] == 1;
    let attrs = [
        ("transpose_a", Attr::Bool(turned[0])),
        ("transpose_b", Attr::Bool(turned[1])),
        ("compute", Attr::Word("auto")),
        ("accumulate", Attr::Bool(false)),
        ("epilogue", Attr::Word("none")),
    ];
    [&a, &b, &c].into_iter().all(has_rows).then(|| Spec::new(&Gemm::Plain, Attrs::of(attrs), vec![a, b], vec![c]))
}

/// Returns the launches of the call of `gemm` for the operands of the grouped product, which include the ends of the groups.
pub fn launches(of_product: Vec<Launch>) -> Vec<Launch> {
    of_product.into_iter().map(|launch| launch.with_operands(&[0, 1, 3])).collect()
}
