//! The gradient of the logits of `cross_entropy`: a softmax whose kernels write another result. Only gradients create this operation; no
//! file can name it.

use super::super::*;
use super::cross_entropy::{OPTIONS, rows_of};
use crate::ops::expression::ball::Precision;
use crate::ops::kernels::kernel::{c_type, i64_param, param, u32_param};
use crate::ops::kernels::rows::{RowResult, RowSplit, row_length};
use crate::ops::norms::softmax::{self, Softmax};

/// Instructions per element besides those of a softmax: a comparison with the target, a difference and a product.
const PER_ELEMENT: f64 = 5.0;

/// The gradient of the loss of each row times the difference of a class's probability and its target; zero in rows without a loss.
pub struct CrossEntropyGradient;

/// The only operation of this type.
pub static CROSS_ENTROPY_GRADIENT: CrossEntropyGradient = CrossEntropyGradient;

impl Operation for CrossEntropyGradient {
    signature! {
        name: "cross_entropy_gradient",
        summary: "gradient of the logits of cross_entropy",
        category: Category::RowWise,
        inputs: &[Input::Tensor("logits"), Input::Tensor("targets"), Input::Tensor("slopes")],
        outputs: &["y"],
        options: OPTIONS,
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        let rows = rows_of(call)?;
        let [logits, slopes] = [0, 2].map(|input| call.inputs[input].tensor);
        if slopes.dims != rows {
            let (has, found) = (format!("this is {}", logits.dims), format!("this is {}", slopes.dims));
            return Err(call.differs(0, has, 2, found, "there is a gradient for each row"));
        }
        Ok(vec![call.output(0, logits.dtype, logits.dims)?])
    }

    fn cost(&self, spec: &Spec) -> Cost {
        softmax::cost(spec, &split(spec), PER_ELEMENT)
    }

    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        let attrs = softmax::Softmax.signature().attrs(&[]);
        let plain = Spec::new(&Softmax, attrs, spec.inputs[..1].to_vec(), spec.outputs.clone());
        let Some(Tolerance::Within(mut radii)) = Softmax.enclose(&plain, &inputs[..1], outputs).pop() else {
            unreachable!("a softmax has error bounds");
        };
        let precision = Precision::of(spec.inputs[0].dtype.compute());
        let unit = precision.unit();
        let (classes, [alike, certain]) = (row_length(spec), shares(spec));
        for (row, (values, radii)) in outputs[0].chunks_mut(classes).zip(radii.chunks_mut(classes)).enumerate() {
            let (target, slope) = (inputs[1][row], inputs[2][row]);
            let has_loss = (0.0..classes as f64).contains(&target) && target != spec.attrs.int("ignore_index") as f64;
            for (class, (value, radius)) in values.iter_mut().zip(radii).enumerate() {
                if !has_loss {
                    (*value, *radius) = (0.0, 0.0);
                    continue;
                }
                let share = alike + if class as f64 == target { certain } else { 0.0 };
                let difference = *value - share;
                *value = slope * difference;
                // The errors of the probability, of the share, of the slope, and of the difference and the product.
                *radius =
                    slope.abs() * (*radius + unit * (4.0 * share + 3.0 * difference.abs())) + precision.smallest();
            }
        }
        vec![Tolerance::Within(radii)]
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        (spec.inputs[0].dims.len() > 1).then(|| Pieces::Rows(vec![true, true, true]))
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let compute = spec.inputs[0].dtype.compute();
        let [alike, certain] = shares(spec);
        let of_rows = |input: usize, name: &str| {
            param(format!("const {}* {name}", c_type(spec.inputs[input].dtype)), Arg::Operand(input as u8))
        };
        let result = RowResult {
            params: vec![
                of_rows(1, "targets"),
                of_rows(2, "slopes"),
                i64_param("ignored", spec.attrs.int("ignore_index") as u64),
                u32_param("classes", row_length(spec) as u64),
                param("C alike", Arg::real(compute, alike)),
                param("C certain", Arg::real(compute, certain)),
            ],
            declared: DECLARED.into(),
            of_row: OF_ROW.into(),
            text: RESULT.into(),
        };
        softmax::launches((self.name(), result), spec, &split(spec), 1.0)
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::cross_entropy_gradient(rule)
    }
}

/// Kernel text: the slope of each row, and the class of its target, -1 if the row has no loss.
const DECLARED: &str = "  C slope[R];\n  i32 own[R];\n";

const OF_ROW: &str = r#"    const i64 target = (i64)targets[g.offset(at, 2)];
    const bool has_loss = target >= 0 && target < (i64)classes && target != ignored;
    slope[r] = has_loss ? load<C>(slopes[g.offset(at, 3)]) : C(0);
    own[r] = has_loss ? (i32)target : -1;
"#;

const RESULT: &str = "(own[r] < 0 ? C(0) : slope[r] * ((p) - (alike + ((i32)(e) == own[r] ? certain : C(0)))))";

/// Returns the division of the rows, with a target and a slope for each.
fn split(spec: &Spec) -> RowSplit {
    let dims = spec.inputs[0].dims;
    let of_rows = [1, 2].map(|input: usize| {
        let tensor = spec.inputs[input];
        Tensor { dims, strides: tensor.strides.iter().copied().chain([0]).collect(), ..tensor }
    });
    RowSplit::beside(spec, &of_rows)
}

/// Returns the share of the target that each class has, and the further share of the target's class.
fn shares(spec: &Spec) -> [f64; 2] {
    let smoothing = spec.attrs.number("label_smoothing");
    [smoothing / row_length(spec) as f64, 1.0 - smoothing]
}
