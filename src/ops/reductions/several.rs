//! Several sums over the same elements in one pass, each of which is an output. Only gradients create this operation; no file can name it.

use super::super::layout::collapse;
use super::*;
use crate::ops::kernels::kernel::{c_type, geometry_param, param};

/// Sums of an expression with several outputs. Outputs of the operation are the sums in turn: with more outputs than sums, the first ones
/// are written again, in another type.
pub struct SeveralSums;

/// The only operation of this type.
pub static SEVERAL_SUMS: SeveralSums = SeveralSums;

/// Returns the expression and the number of its sums.
fn terms(spec: &Spec) -> (&Expression, usize) {
    let expression = spec.expression.as_deref().expect("gradients make sums with an expression");
    (expression, expression.outputs().len())
}

impl Operation for SeveralSums {
    signature! {
        name: "several_sums",
        summary: "sums of several expressions over dimensions",
        category: Category::RowWise,
        inputs: &[Input::Expressions],
        outputs: &["y", "y2", "y3", "y4"],
        options: OPTIONS,
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        if call.inputs.is_empty() {
            return Err(OpError::NoTensor { op: call.operation.name(), at: call.span.into() });
        }
        let (dtype, dims) = call.broadcast()?;
        let extent = Extent { dims, reduced: call.reduced_dims(dims)? };
        let result = extent.result(call.attrs.bool("keepdim"));
        let output = |place: usize| call.output(place, call.given_dtype(place).unwrap_or(dtype), result);
        (0..call.outputs.len()).map(output).collect()
    }

    fn outputs(&self, _: &Attrs, _: usize, given: usize) -> usize {
        given.clamp(1, self.signature().outputs.len())
    }

    fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        let (expression, sums) = terms(spec);
        let function = Function::Sums(sums as u8);
        Split::of(spec, &Extent::of(spec), compute_type(spec), function).launch_costs(spec, expression, function)
    }

    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        let ((expression, sums), extent) = (terms(spec), Extent::of(spec));
        let terms = Terms::of_each(expression, spec, &extent, inputs, compute_type(spec));
        let of_output = |(place, output): (usize, &mut Vec<f64>)| {
            let results = output.iter_mut().zip(extent.groups());
            let radii = results.map(|(result, places)| {
                let sum = terms[place % sums].sum(places);
                *result = sum.value;
                sum.radius
            });
            Tolerance::Within(radii.collect())
        };
        outputs.iter_mut().enumerate().map(of_output).collect()
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        Extent::of(spec).pieces(spec)
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let ((expression, sums), extent) = (terms(spec), Extent::of(spec));
        let mut finish = Finish { before: String::new(), params: Vec::new(), store: String::new(), of_row: None };
        for (place, output) in spec.outputs.iter().enumerate() {
            let to = match place {
                0 => "TO".to_owned(),
                _ => {
                    let kept = collapse(output.dims, &[output.strides]);
                    let operand = Arg::Operand((spec.inputs.len() + place) as u8);
                    finish.params.push(param(format!("{}* out{place}", c_type(output.dtype)), operand));
                    finish.params.push(geometry_param(&format!("kept{place}"), &kept));
                    format!("out{place}[kept{place}.offset(which, 0)]")
                }
            };
            finish.store += &format!("store<C>({to}, total.v[{}]); ", place % sums);
        }
        launches(self.name(), Function::Sums(sums as u8), expression, spec, &extent, compute_type(spec), finish)
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        let (_, sums) = terms(rule.spec);
        backward::several_sums(rule, sums)
    }
}
