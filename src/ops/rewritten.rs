//! Uses of operations that no text has yet: what an operation would be on other operands, with other options, or as
//! another operation.

use super::*;

impl Spec {
    /// The use of an operation of the catalogue on these tensors; `None` if it cannot have these operands or options.
    /// Outputs that are not given are tensors of the device.
    pub fn of_use(
        name: &str,
        options: &[(&'static str, Attr)],
        inputs: Vec<Tensor>,
        outputs: &[Option<Tensor>],
    ) -> Option<Spec> {
        let operation = find(name)?;
        let attrs = operation.signature().attrs(options);
        let like =
            Spec { operation, attrs, expression: None, inputs, outputs: Vec::new(), team: Team::ALONE, threads: None };
        like.with_outputs(outputs)
    }

    /// The same operation on other inputs, with its own outputs; `None` if it cannot take them. With `free`, its outputs'
    /// types have to follow from the inputs, as they do where the text leaves them out.
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

    /// The same use with another value of a yes-or-no option; `None` if it has no such option.
    pub fn with_option(&self, name: &'static str, value: bool) -> Option<Spec> {
        self.option(name)?;
        Some(Spec { attrs: self.attrs.with(name, Attr::Bool(value)), ..self.clone() })
    }

    /// The value of a yes-or-no option; `None` if the operation has no such option.
    pub fn option(&self, name: &str) -> Option<bool> {
        let known = self.operation.signature().options.iter().any(|option| option.name == name);
        known.then(|| self.attrs.bool(name))
    }

    /// The same use with these outputs; those that are not given follow from the inputs, as tensors of the device. `None` if
    /// the operation refuses its operands.
    pub fn with_outputs(&self, outputs: &[Option<Tensor>]) -> Option<Spec> {
        let span = SrcSpan::default();
        let operand = |tensor: &Tensor| Operand { tensor: *tensor, span };
        let inputs: Vec<Operand> = self.inputs.iter().map(operand).collect();
        let given: Vec<Option<Operand>> = outputs.iter().map(|output| output.as_ref().map(operand)).collect();
        let types = self.operation.infer(&Call {
            operation: self.operation,
            span,
            inputs: &inputs,
            outputs: &given,
            attrs: &self.attrs,
            expression: self.expression.as_deref(),
            team: self.team,
        });
        let tensor = |(given, (dtype, dims)): (&Option<Tensor>, (DType, Dims))| {
            let strides = dims.contiguous_strides();
            given.unwrap_or(Tensor { dtype, dims, strides, space: Space::Device, align: 16 })
        };
        let outputs = outputs.iter().zip(types.ok()?).map(tensor).collect();
        Some(Spec { outputs, ..self.clone() })
    }
}

/// Whether an operation only puts the elements of its input elsewhere, in the order in which they lie: a `copy` of a slice.
/// A `transpose` is none, even if it moves dimensions of size 1 only: with other parameters it has work to do.
pub fn keeps_order(spec: &Spec) -> bool {
    let here = spec.operation.name() == "copy" && spec.threads.is_none() && crossing(spec).is_none();
    here && pages::indices(&spec.attrs).is_none() && Counted::of(spec).is_none()
}

/// The order in which the input's dimensions stand in the result of a `transpose`; `None` for another operation.
pub fn dims_order(spec: &Spec) -> Option<Vec<usize>> {
    let is_transpose = spec.operation.name() == "transpose";
    is_transpose.then(|| transpose::permutation(&spec.attrs, spec.inputs[0].dims.len()))
}

/// Whether an operation is a `transpose` that exchanges the last two dimensions and no others.
pub fn exchanges_last(spec: &Spec) -> bool {
    spec.operation.name() == "transpose" && transpose::exchanges_last(spec)
}
