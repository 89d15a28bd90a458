//! `concat`: concatenates tensors along a dimension.

use crate::base::{DType, Dims};

use super::kernel::BLOCK;
use super::walk::{Operand, Task};
use super::*;

/// `concat(x, … -> y)`, as `torch.cat`.
pub struct Concat;

/// Dimension of the concatenation.
fn along(spec: &Spec) -> usize {
    axis::of(&spec.attrs, spec.outputs[0].dims.len())
}

impl Operation for Concat {
    fn signature(&self) -> &'static Signature {
        const {
            &Signature {
                name: "concat",
                summary: "concatenates tensors along a dimension",
                category: Category::Movement,
                inputs: &[Input::Tensors("x")],
                outputs: &["y"],
                options: &[axis::option(0, "the dimension to concatenate along; -1 is the last")],
            }
        }
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_device()?;
        call.needs_rank(0, 1, "to put others behind it")?;
        let first = &call.inputs[0].tensor;
        let rank = first.dims.len();
        let axis = call.axis(first.dims)?;
        let mut dims = first.dims;
        for (index, input) in call.inputs.iter().enumerate().skip(1) {
            let other = &input.tensor;
            let same = other.dtype == first.dtype
                && other.dims.len() == rank
                && (0..rank).all(|each| each == axis || other.dims[each] == first.dims[each]);
            if !same {
                return Err(call.differs(
                    0,
                    format!("this is {first}"),
                    index,
                    format!("this is {other}"),
                    &format!(
                        "tensors that are joined along dimension {axis} have one type, and equal sizes in all other dimensions"
                    ),
                ));
            }
            dims.set(axis, dims[axis].saturating_add(other.dims[axis]));
        }
        Ok(vec![call.output(0, first.dtype, dims)?])
    }

    fn cost(&self, spec: &Spec) -> Cost {
        let sectors = walk::sectors(&tasks(spec, &Expression::identity()));
        Cost { sectors, ..spec.streaming_cost(0.0, u64::from(BLOCK) * 4) }
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        let axis = along(spec);
        let length = |tensor: &Tensor| tensor.dims[axis..].iter().product::<u64>() as usize;
        let row = length(&spec.outputs[0]);
        let mut from = 0;
        for (tensor, input) in spec.inputs.iter().zip(inputs) {
            let own = length(tensor);
            for (to, part) in outputs[0].chunks_mut(row).zip(input.chunks(own)) {
                to[from..from + own].copy_from_slice(part);
            }
            from += own;
        }
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        (along(spec) > 0).then(|| Pieces::Rows(vec![true; spec.inputs.len()]))
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        walk::launches("concat", &tasks(spec, &Expression::identity()), DType::F32)
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::concat(rule, along(rule.spec))
    }
}

/// The copies of the inputs to their places in the output.
fn tasks<'a>(spec: &Spec, identity: &'a Expression) -> Vec<Task<'a>> {
    let (axis, whole) = (along(spec), &spec.outputs[0]);
    let mut from = 0;
    spec.inputs
        .iter()
        .enumerate()
        .map(|(place, x)| {
            let y = Operand::of(spec.inputs.len(), whole, whole.strides).cut(axis, from, x.dims[axis]);
            from += x.dims[axis];
            let inputs = vec![Operand::of(place, x, x.strides)];
            Task { expression: identity, dims: x.dims, outputs: vec![y], inputs }
        })
        .collect()
}
