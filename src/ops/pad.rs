//! `pad`: a tensor with a border.

use crate::base::{DType, Dims};

use super::elementwise::compute_type;
use super::kernel::BLOCK;
use super::walk::{Operand, Task};
use super::*;

/// `pad(x -> y)`, as `torch.nn.functional.pad` with a constant.
pub struct Pad;

/// Elements that are added along each dimension: before, and after.
fn borders(attrs: &Attrs, rank: usize) -> [Vec<u64>; 2] {
    ["before", "after"].map(|name| match attrs.axes(name) {
        Some(sizes) => sizes.iter().map(|&size| size as u64).collect(),
        None => vec![0; rank],
    })
}

impl Operation for Pad {
    fn name(&self) -> &'static str {
        "pad"
    }

    fn summary(&self) -> &'static str {
        "a tensor with a border of one value"
    }

    fn category(&self) -> Category {
        Category::Movement
    }

    fn signature(&self) -> &'static Signature {
        const {
            &Signature {
                inputs: &[Input::Tensor("x")],
                outputs: &["y"],
                options: &[
                    OptionSpec {
                        name: "before",
                        kind: OptionType::Sizes,
                        default: Preset::Absent,
                        doc: "elements to add before the first one of each dimension; none where it is absent",
                    },
                    OptionSpec {
                        name: "after",
                        kind: OptionType::Sizes,
                        default: Preset::Absent,
                        doc: "elements to add behind the last one of each dimension; none where it is absent",
                    },
                    OptionSpec::number("value", 0.0, "what the border holds"),
                ],
            }
        }
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_device()?;
        let x = &call.inputs[0].tensor;
        let rank = x.dims.len();
        for name in ["before", "after"] {
            let Some(sizes) = call.attrs.axes(name) else { continue };
            let help = format!("write a list such as `{:?}`: the size of the border in each dimension", vec![1; rank]);
            if sizes.len() != rank {
                let why = format!("its length is {}, and the input, {x}, has {rank} dimensions", sizes.len());
                return Err(call.bad_option(name, why, help));
            }
            if sizes.iter().any(|size| !(0..1 << 40).contains(size)) {
                return Err(call.bad_option(name, "each number has to lie between 0 and 2^40".to_owned(), help));
            }
        }
        let [before, after] = borders(call.attrs, rank);
        let sizes: Vec<u64> = (0..rank).map(|axis| x.dims[axis] + before[axis] + after[axis]).collect();
        let dims = Dims::from_slice(&sizes).expect("as many as the input has");
        Ok(vec![call.output(0, x.dtype, dims)?])
    }

    fn cost(&self, spec: &Spec) -> Cost {
        spec.streaming_cost(0.0, u64::from(BLOCK) * 4)
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        let (x, y) = (spec.inputs[0].dims, spec.outputs[0].dims);
        let [before, _] = borders(&spec.attrs, x.len());
        let strides = y.contiguous_strides();
        let start: u64 = before.iter().zip(strides.iter()).map(|(before, stride)| before * stride).sum();
        outputs[0].fill(spec.attrs.number("value"));
        for (value, offset) in inputs[0].iter().zip(layout::offsets(x, strides)) {
            outputs[0][(start + offset) as usize] = *value;
        }
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        let [before, after] = borders(&spec.attrs, spec.inputs[0].dims.len());
        let rows_stay = before.first() == Some(&0) && after.first() == Some(&0);
        rows_stay.then(|| Pieces::Rows(vec![true]))
    }

    /// One kernel copies the input and fills slabs around it. The slabs of a dimension have the input's place in the
    /// dimensions before it, and all of those behind it.
    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let (x, whole) = (&spec.inputs[0], &spec.outputs[0]);
        let rank = x.dims.len();
        let [before, after] = borders(&spec.attrs, rank);
        let (identity, value) = (Expression::identity(), Expression::constant(spec.attrs.number("value")));
        let inside = |operand: Operand, axes: usize| {
            (0..axes).fold(operand, |operand, axis| operand.cut(axis, before[axis], x.dims[axis]))
        };
        let y = Operand::of(1, whole, whole.strides);
        let inner = Task {
            expression: &identity,
            dims: x.dims,
            outputs: vec![inside(y, rank)],
            inputs: vec![Operand::of(0, x, x.strides)],
        };
        let slabs = (0..rank).flat_map(|axis| {
            let behind = before[axis] + x.dims[axis];
            [(0, before[axis]), (behind, after[axis])].map(|(from, length)| (axis, from, length))
        });
        let slabs = slabs.filter(|(.., length)| *length > 0).map(|(axis, from, length)| {
            let slab = inside(y, axis).cut(axis, from, length);
            Task { expression: &value, dims: slab.tensor.dims, outputs: vec![slab], inputs: Vec::new() }
        });
        let tasks: Vec<Task> = std::iter::once(inner).chain(slabs).collect();
        walk::launches("pad", &tasks, compute_type(spec))
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        let [before, _] = borders(&rule.spec.attrs, rule.spec.inputs[0].dims.len());
        backward::pad(rule, &before)
    }
}
