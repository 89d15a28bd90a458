//! A call as it was probably meant: operands that were given by name, options and outputs in the place of inputs.

use crate::ops::{Input, Operation, Preset};
use crate::syntax::ast::{Call, Expr};
use crate::syntax::written;

use super::analyzer::Analyzer;
use super::error::ModelError;
use super::value::Value;

/// What operands are called elsewhere.
const INPUTS: [&str; 6] = ["src", "source", "from", "input", "inputs", "x"];
const OUTPUTS: [&str; 8] = ["dst", "dest", "destination", "to", "out", "output", "outputs", "y"];

/// A call, sorted anew.
struct Parts<'a> {
    inputs: Vec<&'a Expr>,
    outputs: Vec<&'a Expr>,
    options: Vec<(&'static str, &'a Expr)>,
}

impl Analyzer<'_> {
    /// Whether the operands of a call stand in places that are not theirs, where a simple change mends it. That is told.
    pub(super) fn misplaced(&mut self, operation: &dyn Operation, call: &Call) -> bool {
        let options = operation.signature().options;
        let foreign = call
            .options
            .iter()
            .find(|given| options.iter().all(|known| known.name != self.names.name(given.key.symbol)));
        if foreign.is_none()
            && call.inputs.len() <= operation.signature().inputs.len()
            && !self.writes_value(operation, call)
        {
            return false;
        }
        let Some(parts) = self.sorted(operation, call) else { return false };
        let list = |exprs: &[&Expr]| exprs.iter().map(|expr| written(expr, &self.names)).collect::<Vec<_>>();
        let mut items = list(&parts.inputs);
        items.extend(parts.options.iter().map(|(name, value)| format!("{name}: {}", written(value, &self.names))));
        let arrow = if parts.outputs.is_empty() { "" } else { " -> " };
        let outputs = list(&parts.outputs).join(", ");
        let mended = format!("write `{}({}{arrow}{outputs})`", operation.name(), items.join(", "));
        let (of, mended) = (operation.name().to_owned(), Some(mended.replace("( -> ", "(-> ")));
        let error = match foreign {
            Some(option) => ModelError::UnknownOption {
                of,
                name: self.names.name(option.key.symbol).to_owned(),
                at: option.key.span.into(),
                help: mended,
            },
            None => ModelError::ArgumentCount {
                function: of,
                expected: super::call::expected_inputs(operation),
                found: format!("{} are", call.inputs.len()),
                at: call.span.into(),
                help: mended,
            },
        };
        self.error(error);
        true
    }

    /// Whether a buffer stands where a value should, as in `fill(x, 0)`.
    fn writes_value(&mut self, operation: &dyn Operation, call: &Call) -> bool {
        match (operation.signature().inputs, call.inputs.as_slice()) {
            ([Input::Scalar(_)], [_, _]) => call.outputs.is_empty(),
            _ => false,
        }
    }

    /// Each part of a call in the place that is its own; nothing where that cannot be told.
    fn sorted<'b>(&mut self, operation: &dyn Operation, call: &'b Call) -> Option<Parts<'b>> {
        let signature = operation.signature();
        let mut outputs: Vec<&Expr> = call.outputs.iter().map(|arg| &arg.value).collect();
        let mut inputs: Vec<&Expr> = Vec::new();
        let mut options = Vec::new();
        for arg in &call.inputs {
            let takes_values = signature.inputs.iter().all(|input| matches!(input, Input::Scalar(_)));
            match takes_values && matches!(self.eval(&arg.value), Value::Tensor { .. }) {
                true => outputs.push(&arg.value),
                false => inputs.push(&arg.value),
            }
        }
        for setting in &call.options {
            let name = self.names.name(setting.key.symbol);
            let named = |input: &&Input| match input {
                Input::Tensor(known) | Input::Optional(known) => *known == name,
                Input::Scalar(option) => option.name == name,
                Input::Expression => false,
            };
            if let Some(option) = signature.options.iter().find(|option| option.name == name) {
                options.push((option.name, &setting.value));
            } else if signature.inputs.iter().any(|input| named(&input)) {
                inputs.push(&setting.value);
            } else if signature.outputs.contains(&name) || OUTPUTS.contains(&name) {
                outputs.push(&setting.value);
            } else if INPUTS.contains(&name) {
                inputs.push(&setting.value);
            } else {
                return None;
            }
        }
        // What is too much for the inputs is an option that is needed, or else an output.
        for extra in inputs.split_off(signature.inputs.len().min(inputs.len())) {
            let missing = |name: &str| options.iter().all(|(given, _)| *given != name);
            let required = signature
                .options
                .iter()
                .find(|option| matches!(option.default, Preset::Required) && missing(option.name));
            match required {
                Some(option) => options.push((option.name, extra)),
                None if inputs.iter().any(|input| written(input, &self.names) == written(extra, &self.names)) => {
                    return None;
                }
                None => outputs.push(extra),
            }
        }
        let required = signature.inputs.iter().filter(|input| !matches!(input, Input::Optional(_))).count();
        let fits = inputs.len() >= required && outputs.len() <= signature.outputs.len();
        fits.then_some(Parts { inputs, outputs, options })
    }
}
