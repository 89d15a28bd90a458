//! `cross_entropy`: the negative log-likelihood of each row's target class.

use crate::base::{DType, Dims};

use super::super::reductions::{Extent, Finish, Function, Group, Split, launches};
use super::super::*;
use crate::ops::expression::ball::Precision;
use crate::ops::kernels::kernel::{c_type, i64_param, param, u32_param};
use crate::ops::kernels::rows::row_length;

/// Options of the loss and of its gradient.
pub const OPTIONS: &[OptionSpec] = &[
    OptionSpec::int("ignore_index", i32::MIN as i64, i32::MAX as i64, -100, "target value whose rows have loss 0"),
    OptionSpec::number("label_smoothing", 0.0, "label smoothing, from 0 to 1"),
];

/// `cross_entropy(logits, targets)`.
pub struct CrossEntropy;

impl Operation for CrossEntropy {
    signature! {
        name: "cross_entropy",
        summary: "cross entropy loss between logits and class indices, for each row",
        category: Category::RowWise,
        inputs: &[Input::Tensor("logits"), Input::Tensor("targets")],
        outputs: &["loss"],
        options: OPTIONS,
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        let rows = rows_of(call)?;
        let smoothing = call.attrs.number("label_smoothing");
        if !(0.0..=1.0).contains(&smoothing) {
            return Err(call.bad_option("label_smoothing", format!("{smoothing} is no share"), "write 0 to 1: `0.1`"));
        }
        Ok(vec![call.float_output(0, call.inputs[0].tensor.dtype, rows)?])
    }

    fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        let spec = broadcast_targets(spec);
        let function = function(&spec);
        let split = Split::of(&spec, &extent(&spec), compute(&spec), function);
        split.launch_costs(&spec, &Expression::identity(), function)
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        let rows = inputs[0].chunks(row_length(spec)).zip(inputs[1]);
        for (loss, (row, &target)) in outputs[0].iter_mut().zip(rows) {
            *loss = target_of(spec, row, target).map_or(0.0, |logit| {
                let total = Function::LogSumExp.of(row);
                let smoothing = spec.attrs.number("label_smoothing");
                let alike = if smoothing > 0.0 { Function::Mean.of(row) } else { 0.0 };
                total - ((1.0 - smoothing) * logit + smoothing * alike)
            });
        }
    }

    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        self.reference(spec, inputs, outputs);
        let compute = compute(spec);
        let unit = Precision::of(compute).unit();
        let smoothing = spec.attrs.number("label_smoothing");
        let mut group = Group { terms: Vec::new(), radii: vec![0.0; row_length(spec)], compute };
        let rows = inputs[0].chunks(row_length(spec)).zip(inputs[1]);
        let radius = |(loss, (row, &target)): (&f64, (&[f64], &f64))| {
            let Some(logit) = target_of(spec, row, target) else { return 0.0 };
            if !loss.is_finite() {
                return 0.0;
            }
            group.terms.clear();
            group.terms.extend_from_slice(row);
            let total = group.radius(Function::LogSumExp, Function::LogSumExp.of(row));
            let alike = match smoothing > 0.0 {
                true => smoothing * (group.radius(Function::Mean, Function::Mean.of(row)) + unit * group.size()),
                false => 0.0,
            };
            total + alike + 6.0 * unit * (logit.abs() + loss.abs() + group.size() * smoothing)
        };
        vec![Tolerance::Within(outputs[0].iter().zip(rows).map(radius).collect())]
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        (spec.inputs[0].dims.len() > 1).then(|| Pieces::Rows(vec![true, true]))
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let extent = extent(spec);
        let spec = &broadcast_targets(spec);
        let function = function(spec);
        let compute = compute(spec);
        let (step, classes) = (*spec.inputs[0].strides.last().expect("it has rows"), extent.terms());
        let mut params = vec![
            param(format!("const {}* logits", c_type(spec.inputs[0].dtype)), Arg::Operand(0)),
            param(format!("const {}* targets", c_type(spec.inputs[1].dtype)), Arg::Operand(1)),
            i64_param("logit_step", step),
            u32_param("classes", classes),
            i64_param("ignored", spec.attrs.int("ignore_index") as u64),
        ];
        let smoothed = function == Function::LogSumExpAndSum;
        let taken = if smoothed { "smoothed(total, logit, classes, smoothing)" } else { "logit" };
        if smoothed {
            params.push(param("C smoothing", Arg::real(compute, spec.attrs.number("label_smoothing"))));
        }
        // The loss is a sum of two nonnegative numbers, so no digits cancel.
        let store = |logit: &str| {
            format!(
                "i64 target = targets[kept.offset(which, 2)];\n    C loss = 0;\n    \
                 if (target >= 0 && target < (i64)classes && target != ignored) {{\n      \
                 C logit = load<C>({logit});\n      \
                 loss = (total.most - {taken}) + f_log(total.sum);\n    }}\n    store<C>(TO, loss)"
            )
        };
        let of_row = Some(store("row[(u32)target]"));
        let store = store("logits[kept.offset(which, 1) + target * logit_step]");
        let before = if smoothed { SMOOTHED.to_owned() } else { String::new() };
        let finish = Finish { before, params, store, of_row };
        launches(self.name(), function, &Expression::identity(), spec, &extent, compute, finish)
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::cross_entropy(rule)
    }
}

/// Returns the shape of the targets, which are classes of the logits' rows, or an error.
pub fn rows_of(call: &Call) -> Result<Dims, OpError> {
    call.needs_rows()?;
    let [logits, targets] = [0, 1].map(|input| &call.inputs[input]);
    call.needs_float(logits, "floating-point logits")?;
    call.needs_indices(targets)?;
    let dims = &logits.tensor.dims;
    let rows = dims.part(..dims.len() - 1);
    if targets.tensor.dims != rows {
        let help = "there is a target for each row: the dimensions of the logits but the last";
        let (has, found) = (format!("this is {dims}"), format!("this is {}", targets.tensor.dims));
        return Err(call.differs(0, has, 1, found, help));
    }
    Ok(rows)
}

/// Kernel text of label smoothing: combines the target's logit with the mean logit of all classes.
const SMOOTHED: &str = "__device__ inline C smoothed(Acc total, C logit, u32 classes, C smoothing) {\n  \
                        return (C(1) - smoothing) * logit + smoothing * (total.total / C(classes));\n}\n";

/// Returns the spec with its targets broadcast along the classes.
fn broadcast_targets(spec: &Spec) -> Spec {
    let mut spec = spec.clone();
    let targets = &mut spec.inputs[1];
    let fits = "the logits have one dimension more";
    targets.dims.push(1).expect(fits);
    targets.strides.push(0).expect(fits);
    spec
}

/// The extent of the reduction: rows of logits.
fn extent(spec: &Spec) -> Extent {
    let dims = spec.inputs[0].dims;
    Extent::along(dims, dims.len() - 1)
}

/// The reduction that is applied to a row.
fn function(spec: &Spec) -> Function {
    match spec.attrs.number("label_smoothing") > 0.0 {
        true => Function::LogSumExpAndSum,
        false => Function::LogSumExp,
    }
}

/// Type in which a kernel computes, independent of the targets' type.
fn compute(spec: &Spec) -> DType {
    spec.inputs[0].dtype.compute().promote(spec.outputs[0].dtype.compute())
}

/// Returns the logit of a row's target; `None` if the row is ignored or the class does not exist.
fn target_of(spec: &Spec, row: &[f64], target: f64) -> Option<f64> {
    if target < 0.0 || target == spec.attrs.int("ignore_index") as f64 {
        return None;
    }
    row.get(target as usize).copied()
}
