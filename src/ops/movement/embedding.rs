//! `embedding`: rows of a table, selected by index.

use super::gather::Gather;
use crate::ops::*;

/// `embedding(table, ids -> y)`, as `torch.nn.functional.embedding`: a [`Gather`] of a matrix's rows.
pub struct Embedding;

impl Operation for Embedding {
    signature! {
        name: "embedding",
        summary: "looks up a row of `table` for each id; an id out of range, such as -1, gives zeros",
        category: Category::Movement,
        inputs: &[Input::Tensor("table"), Input::Tensor("ids")],
        outputs: &["y"],
        options: &[],
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        let (table, ids) = (&call.inputs[0], &call.inputs[1]);
        if !table.tensor.dtype.is_float() && ids.tensor.dtype.is_float() {
            let (left, right) =
                (format!("these are ids, {}", table.tensor), format!("this is the table, {}", ids.tensor));
            return Err(call.differs(0, left, 1, right, "write the table first: `embedding(table, ids)`"));
        }
        if table.tensor.dims.len() != 2 {
            return Err(call.bad_shape(table, "a table of two dimensions: rows, and the features of each"));
        }
        Gather.infer(call)
    }

    fn cost(&self, spec: &Spec) -> Cost {
        Gather.cost(spec)
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        Gather.reference(spec, inputs, outputs);
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        Gather.launch(spec)
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::gather(rule)
    }
}
