//! Specs derived from others: with different operands, different options, or a different operation.

use super::*;
use crate::ops::movement::{pages, transpose};

impl Spec {
    /// Returns a call of a catalogue operation on these tensors; `None` if it does not accept them. Outputs that are
    /// not given become tensors of the device.
    pub fn of_use(
        name: &str,
        options: &[(&'static str, Attr)],
        inputs: Vec<Tensor>,
        outputs: &[Option<Tensor>],
    ) -> Option<Spec> {
        let operation = find(name)?;
        Spec::new(operation, operation.signature().attrs(options), inputs, Vec::new()).with_outputs(outputs)
    }

    /// Returns the spec with other inputs; `None` if the operation does not accept them. With `free`, the output types
    /// must follow from the inputs, as for outputs without a name.
    pub fn on(&self, inputs: Vec<Tensor>, free: bool) -> Option<Spec> {
        let given: Vec<Option<Tensor>> = self.outputs.iter().copied().map(Some).collect();
        let changed = Spec { inputs, ..self.clone() }.with_outputs(&given)?;
        let types = |spec: &Spec| spec.outputs.iter().map(|output| (output.dtype, output.dims)).collect::<Vec<_>>();
        let follows = || {
            let open = changed.with_outputs(&vec![None; self.outputs.len()]);
            open.is_some_and(|open| types(&open) == types(self))
        };
        (!free || follows()).then_some(changed)
    }

    /// Returns the spec with another value of a Boolean option; `None` if it has no such option.
    pub fn with_option(&self, name: &'static str, value: bool) -> Option<Spec> {
        self.option(name)?;
        Some(Spec { attrs: self.attrs.with(name, Attr::Bool(value)), ..self.clone() })
    }

    /// Value of a Boolean option; `None` if the operation has no such option.
    pub fn option(&self, name: &str) -> Option<bool> {
        let known = self.operation.signature().options.iter().any(|option| option.name == name);
        known.then(|| self.attrs.bool(name))
    }

    /// Returns the type and shape of each output, or the mistake in the operands; `outputs` has those that are given.
    pub fn infer(&self, outputs: &[Option<Tensor>], span: SrcSpan) -> Result<Vec<(DType, Dims)>, OpError> {
        let operand = |tensor: &Tensor| Operand { tensor: *tensor, span };
        let inputs: Vec<Operand> = self.inputs.iter().map(operand).collect();
        let outputs: Vec<Option<Operand>> = outputs.iter().map(|output| output.as_ref().map(operand)).collect();
        let call = Call {
            operation: self.operation,
            span,
            inputs: &inputs,
            outputs: &outputs,
            attrs: &self.attrs,
            expression: self.expression.as_deref(),
            team: self.team,
        };
        call.infer()
    }

    /// Returns the spec with these outputs. Types of those that are not given are inferred, as tensors of the device.
    /// `None` if the operation does not accept its operands.
    pub fn with_outputs(&self, outputs: &[Option<Tensor>]) -> Option<Spec> {
        let types = self.infer(outputs, SrcSpan::default());
        let tensor =
            |(given, (dtype, dims)): (&Option<Tensor>, (DType, Dims))| given.unwrap_or(Tensor::packed(dtype, &dims));
        let outputs = outputs.iter().zip(types.ok()?).map(tensor).collect();
        Some(Spec { outputs, ..self.clone() })
    }
}

/// True if an operation only copies the elements of a slice, in order. This excludes `transpose`, even if it only
/// moves dimensions of size 1, because with other parameters it reorders elements.
pub fn keeps_order(spec: &Spec) -> bool {
    let here = spec.operation.name() == "copy" && spec.threads.is_none() && crossing(spec).is_none();
    here && pages::indices(&spec.attrs).is_none() && RowCounts::of(spec).is_none()
}

/// For a `transpose`, the input dimension of each output dimension; `None` for other operations.
pub fn dims_order(spec: &Spec) -> Option<Vec<usize>> {
    let is_transpose = spec.operation.name() == "transpose";
    is_transpose.then(|| transpose::permutation(&spec.attrs, spec.inputs[0].dims.len()))
}
