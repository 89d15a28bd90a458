//! Suggests a corrected call, if operands, options, outputs or groups are in the wrong place.

use crate::base::DType;
use crate::ops::{Input, Operation, OptionSpec, OptionType, Preset};
use crate::syntax::ast::{Call, DeclKind, Expr, ExprKind};
use crate::syntax::{walk, written};

use super::analyzer::Analyzer;
use super::error::ModelError;
use super::unknown::option_instead;
use super::value::{Scalar, Value};

/// Names of operands in other tools.
const INPUTS: [&str; 6] = ["src", "source", "from", "input", "inputs", "x"];
const OUTPUTS: [&str; 8] = ["dst", "dest", "destination", "to", "out", "output", "outputs", "y"];

/// Names of the order of dimensions in other tools.
const PERMUTATIONS: [&str; 4] = ["dims", "perm", "permutation", "axes"];

/// Operations whose first output is the first argument in other tools.
const FIRST_OUTPUT: [&str; 2] = ["adamw", "sgd"];

/// A call with its arguments reordered.
#[derive(Default)]
struct Parts<'a> {
    inputs: Vec<&'a Expr>,
    outputs: Vec<&'a Expr>,
    options: Vec<(&'static str, &'a Expr)>,
    over: Option<&'a Expr>,
}

/// The role that an argument can have in a call.
enum Role {
    /// Memory, or a value that refers to memory.
    Operand,
    Group,
    Value(Value),
    Unknown,
}

impl Analyzer<'_> {
    /// Returns true if arguments of a call are in the wrong place and a simple change corrects them. Reports the
    /// corrected call.
    pub(super) fn misplaced(&mut self, operation: &dyn Operation, call: &Call) -> bool {
        if let Some(error) = self.reordered_dims(operation, call) {
            self.error(error);
            return true;
        }
        let options = operation.signature().options;
        let foreign = call
            .options
            .iter()
            .find(|given| options.iter().all(|known| known.name != self.names.name(given.key.symbol)));
        if foreign.is_none()
            && call.inputs.len() <= operation.signature().most()
            && !self.writes_value(operation, call)
            && !names_output(operation, call)
        {
            return false;
        }
        let Some(parts) = self.sorted(operation, call) else { return false };
        // A call cannot receive into memory without a name, so the corrected call would be wrong too.
        if parts.outputs.iter().any(|output| matches!(output.kind, ExprKind::Index { .. }) && self.is_type(output)) {
            return false;
        }
        let mended = Some(format!("write `{}`", self.written_call(operation, &parts)));
        let of = operation.name().to_owned();
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

    /// The error for a `permute` that is meant to reorder dimensions, as in PyTorch; `None` for other calls.
    fn reordered_dims(&self, operation: &dyn Operation, call: &Call) -> Option<ModelError> {
        let x = written(&call.inputs.first().filter(|_| operation.name() == "permute")?.value, &self.names);
        let help = |dims: &Expr| {
            let dims = written(dims, &self.names);
            Some(format!("`permute` sorts rows by expert: write `transpose({x}, dims: {dims})`"))
        };
        let dims = call.options.iter().find(|option| PERMUTATIONS.contains(&self.names.name(option.key.symbol)));
        match (dims, call.inputs.as_slice()) {
            (Some(option), _) => Some(ModelError::UnknownOption {
                of: "permute".to_owned(),
                name: self.names.name(option.key.symbol).to_owned(),
                at: option.key.span.into(),
                help: help(&option.value),
            }),
            (None, [_, dims]) if matches!(dims.value.kind, ExprKind::List(_)) => Some(ModelError::WrongType {
                expected: "a tensor of choices".to_owned(),
                found: "a list".to_owned(),
                at: dims.value.span.into(),
                help: help(&dims.value),
            }),
            _ => None,
        }
    }

    fn written_call(&mut self, operation: &dyn Operation, parts: &Parts) -> String {
        let options = operation.signature().options;
        let takes_list = |name: &str| options.iter().any(|known| known.name == name && known.kind == OptionType::Axes);
        let lists: Vec<bool> = (parts.options.iter())
            .map(|(name, value)| takes_list(name) && matches!(self.role(value), Role::Value(Value::Number(_))))
            .collect();
        let list = |exprs: &[&Expr]| exprs.iter().map(|expr| written(expr, &self.names)).collect::<Vec<_>>();
        let mut items = list(&parts.inputs);
        items.extend(parts.options.iter().zip(lists).map(|((name, value), is_list)| {
            let value = written(value, &self.names);
            if is_list { format!("{name}: [{value}]") } else { format!("{name}: {value}") }
        }));
        let outputs = match list(&parts.outputs).join(", ") {
            none if none.is_empty() => none,
            outputs if items.is_empty() => format!("-> {outputs}"),
            outputs => format!(" -> {outputs}"),
        };
        let over = parts.over.map(|over| format!(" over {}", written(over, &self.names))).unwrap_or_default();
        format!("{}({}{outputs}){over}", operation.name(), items.join(", "))
    }

    /// True if a buffer is used as a value, as in `fill(x, 0)`.
    fn writes_value(&mut self, operation: &dyn Operation, call: &Call) -> bool {
        match (operation.signature().inputs, call.inputs.as_slice()) {
            ([Input::Scalar(_)], [_, _]) => call.outputs.is_empty(),
            _ => false,
        }
    }

    /// True if an expression is a type with dimensions, such as `f32[4]`.
    fn is_type(&self, expr: &Expr) -> bool {
        let ExprKind::Index { base, .. } = &expr.kind else { return false };
        base.as_name().is_some_and(|name| DType::from_name(self.names.name(name)).is_some())
    }

    /// The role of an argument, as far as it is known without an error.
    fn role(&mut self, expr: &Expr) -> Role {
        let is_mesh_name = |name| {
            self.ast.decls.iter().any(|decl| match &decl.kind {
                DeclKind::Mesh(factors) => factors.iter().any(|factor| factor.name.symbol == name),
                _ => false,
            })
        };
        if let Some(name) = expr.as_name() {
            if is_mesh_name(name) {
                return Role::Group;
            }
            match self.scopes.get(name) {
                Some(Value::Output(_)) => return Role::Operand,
                None if DType::from_name(self.names.name(name)).is_none() => return Role::Unknown,
                _ => {}
            }
        }
        let path = matches!(expr.kind, ExprKind::Name(_) | ExprKind::Index { .. } | ExprKind::Field { .. });
        let mut computes = false;
        walk::expr(expr, &mut |part| {
            let value = part.as_name().and_then(|name| self.scopes.get(name));
            computes |= !path && matches!(value, Some(Value::Tensor { .. } | Value::Label(_) | Value::Output(_)));
        });
        if computes {
            return Role::Unknown;
        }
        match self.eval(expr) {
            Value::Tensor { .. } | Value::Label(_) | Value::Type(..) => Role::Operand,
            Value::Group(_) => Role::Group,
            Value::Unknown => Role::Unknown,
            value => Role::Value(value),
        }
    }

    /// Each part of a call in its correct place; `None` if that is ambiguous.
    fn sorted<'b>(&mut self, operation: &dyn Operation, call: &'b Call) -> Option<Parts<'b>> {
        let signature = operation.signature();
        let takes_values = signature.inputs.iter().all(|input| matches!(input, Input::Scalar(_)));
        let mut parts = Parts { over: call.over.as_ref(), ..Parts::default() };
        parts.outputs = call.outputs.iter().map(|arg| &arg.value).collect();
        for arg in &call.inputs {
            match takes_values && matches!(self.role(&arg.value), Role::Operand) {
                true => parts.outputs.push(&arg.value),
                false => parts.inputs.push(&arg.value),
            }
        }
        let known = |name: &str| signature.options.iter().find(|option| option.name == name);
        let is_given = |name: &str| call.options.iter().any(|given| self.names.name(given.key.symbol) == name);
        let mut left: Vec<&'static OptionSpec> =
            signature.options.iter().filter(|option| !is_given(option.name)).collect();
        for setting in &call.options {
            let name = self.names.name(setting.key.symbol).to_owned();
            let named = |input: &&Input| match input {
                Input::Tensor(known) | Input::Optional(known) => *known == name,
                Input::Scalar(option) => option.name == name,
                Input::Expression | Input::Expressions | Input::Tensors(_) => false,
            };
            if let Some(option) = known(&name) {
                parts.options.push((option.name, &setting.value));
                continue;
            }
            let names: Vec<&str> = left.iter().map(|option| option.name).collect();
            let near = option_instead(&name, &names);
            match self.role(&setting.value) {
                _ if signature.inputs.iter().any(|input| named(&input)) => parts.inputs.push(&setting.value),
                Role::Operand if signature.outputs.contains(&name.as_str()) || OUTPUTS.contains(&name.as_str()) => {
                    parts.outputs.push(&setting.value);
                }
                Role::Group if parts.over.is_none() => parts.over = Some(&setting.value),
                Role::Operand if INPUTS.contains(&name.as_str()) => parts.inputs.push(&setting.value),
                Role::Value(value) => {
                    let option = take_first(&mut left, |option| near == Some(option.name)).or_else(|| {
                        take_first(&mut left, |option| is_required(option) && fits(&option.kind, &value))
                    })?;
                    parts.options.push((option.name, &setting.value));
                }
                // A bare word is not a value, so its option must be identified by name.
                _ => {
                    let option = take_first(&mut left, |option| near == Some(option.name))?;
                    parts.options.push((option.name, &setting.value));
                }
            }
        }
        // Other tools name the tensor that is updated before its gradient.
        if FIRST_OUTPUT.contains(&operation.name()) && parts.outputs.is_empty() && parts.inputs.len() > 1 {
            parts.inputs.swap(0, 1);
        }
        let most = if names_output(operation, call) { parts.inputs.len() - 1 } else { signature.most() };
        for extra in parts.inputs.split_off(most.min(parts.inputs.len())) {
            match self.role(extra) {
                // A size, which follows from the memory.
                Role::Value(Value::Number(_)) if takes_values && !parts.outputs.is_empty() => {}
                Role::Group if parts.over.is_none() => parts.over = Some(extra),
                Role::Value(value) => {
                    let numbers = left.iter().filter(|option| matches!(option.kind, OptionType::Int(..))).count();
                    let clear = |option: &OptionSpec| match option.kind {
                        OptionType::Int(..) => numbers == 1,
                        OptionType::DType | OptionType::Bool => true,
                        _ => false,
                    };
                    let option = take_first(&mut left, |option| is_required(option) && fits(&option.kind, &value))
                        .or_else(|| take_first(&mut left, |option| clear(option) && fits(&option.kind, &value)))?;
                    parts.options.push((option.name, extra));
                }
                _ if parts.inputs.iter().any(|input| written(input, &self.names) == written(extra, &self.names)) => {
                    return None;
                }
                Role::Group => return None,
                Role::Operand | Role::Unknown => parts.outputs.push(extra),
            }
        }
        let fits = parts.inputs.len() >= signature.least() && parts.outputs.len() <= signature.outputs.len();
        fits.then_some(parts)
    }
}

/// Whether the last of several expressions is a tensor alone and nothing is written: it is probably meant to be the output,
/// as in `map(x + 1, y)`.
fn names_output(operation: &dyn Operation, call: &Call) -> bool {
    match (operation.signature().inputs, call.inputs.as_slice()) {
        ([Input::Expressions], [_, .., last]) if call.outputs.is_empty() => {
            matches!(last.value.kind, ExprKind::Name(_) | ExprKind::Index { .. })
        }
        _ => false,
    }
}

fn is_required(option: &OptionSpec) -> bool {
    matches!(option.default, Preset::Required)
}

/// Removes the first option that satisfies `asked`.
fn take_first(left: &mut Vec<&'static OptionSpec>, asked: impl Fn(&OptionSpec) -> bool) -> Option<&'static OptionSpec> {
    let index = left.iter().position(|option| asked(option))?;
    Some(left.remove(index))
}

/// True if an option accepts this kind of value.
fn fits(kind: &OptionType, value: &Value) -> bool {
    match (kind, value) {
        (OptionType::Int(..) | OptionType::Spatial(..), Value::Number(number)) => {
            number.dimension == crate::base::units::Dimension::NONE && matches!(number.value, Scalar::Int(_))
        }
        (OptionType::Number(dimension), Value::Number(number)) => number.dimension == *dimension,
        (OptionType::Bool, Value::Bool(_)) | (OptionType::DType, Value::DType(_)) => true,
        (OptionType::File, Value::Text(_)) => true,
        (
            OptionType::Axes | OptionType::Sizes | OptionType::List | OptionType::Spatial(..) | OptionType::Counts,
            Value::List(_),
        ) => true,
        _ => false,
    }
}
