//! Suggests a corrected call, if operands, options, outputs or groups are in the wrong place.

use rustc_hash::FxHashSet;

use crate::base::DType;
use crate::base::units::Dimension;
use crate::ops::{Input, Operation, OptionSpec, OptionType, Preset};
use crate::syntax::ast::{BinaryOp, Call, DeclKind, Expr, ExprKind};
use crate::syntax::{walk, written};

use crate::model::analyzer::Analyzer;
use crate::model::error::ModelError;
use crate::model::names::foreign_calls::input_place;
use crate::model::names::unknown::option_instead;
use crate::model::values::value::{Scalar, Value};

/// Names of operands in other tools.
const INPUTS: [&str; 6] = ["src", "source", "from", "input", "inputs", "x"];
const OUTPUTS: [&str; 8] = ["dst", "dest", "destination", "to", "out", "output", "outputs", "y"];

/// Names of the order of dimensions in other tools.
const PERMUTATIONS: [&str; 4] = ["dims", "perm", "permutation", "axes"];

/// Operations whose first output is the first argument in other tools.
const FIRST_OUTPUT: [&str; 2] = ["adamw", "sgd"];

/// A call with its arguments reordered.
#[derive(Default)]
struct ReorderedCall<'a> {
    inputs: Vec<&'a Expr>,
    outputs: Vec<&'a Expr>,
    options: Vec<(&'static str, &'a Expr)>,
    /// Options that are `true`, which the call has as words.
    flags: Vec<&'static str>,
    over: Option<&'a Expr>,
}

/// The role that an argument can have in a call.
enum ArgumentRole {
    /// Memory, or a value that refers to memory.
    Operand,
    Group,
    Value(Value),
    Unknown,
}

impl Analyzer<'_> {
    /// Returns true if arguments of a call are in the wrong place and a simple change corrects them. Reports the
    /// corrected call.
    pub(in crate::model) fn misplaced(&mut self, operation: &dyn Operation, call: &Call) -> bool {
        if let Some(error) = self.reordered_dims(operation, call).or_else(|| self.exchanged_dims(operation, call)) {
            self.error(error);
            return true;
        }
        if let Some(error) = self.left_arrow(operation, call).or_else(|| self.sizes_as_operands(operation, call)) {
            self.error(error);
            return true;
        }
        let options = operation.signature().options;
        let foreign = call
            .options
            .iter()
            .find(|given| options.iter().all(|known| known.name != self.names.name(given.key.symbol)));
        let literal = call.inputs.iter().find(|arg| literal_name(&arg.value).is_some());
        let literal = literal.filter(|_| takes_memory(operation));
        if foreign.is_none()
            && call.inputs.len() <= operation.signature().most()
            && !self.writes_value(operation, call)
            && literal.is_none()
            && !names_output(operation, call)
        {
            return false;
        }
        let Some(parts) = self.sorted(operation, call) else { return false };
        // A call cannot receive into memory without a name, so the corrected call would be wrong too.
        if parts.outputs.iter().any(|output| matches!(output.kind, ExprKind::Index { .. }) && self.is_type(output)) {
            return false;
        }
        // The same holds for a call that writes one output twice.
        let mut texts = FxHashSet::default();
        if !parts.outputs.iter().all(|output| texts.insert(written(output, &self.names))) {
            return false;
        }
        let mended = format!("write `{}`", self.written_call(operation, &parts));
        let of = operation.name().to_owned();
        let error = match foreign {
            Some(option) => ModelError::UnknownOption {
                of,
                name: self.names.name(option.key.symbol).to_owned(),
                at: option.key.span.into(),
                help: Some(mended),
            },
            None if call.inputs.len() <= operation.signature().most()
                && let Some(literal) = literal =>
            {
                ModelError::WrongType {
                    expected: "a tensor".to_owned(),
                    found: literal_name(&literal.value).unwrap_or_default().to_owned(),
                    at: literal.value.span.into(),
                    help: Some(mended),
                }
            }
            None if (operation.signature().least()..=operation.signature().most()).contains(&call.inputs.len()) => {
                let expected = "an output after an arrow";
                ModelError::argument_count(of, expected, call.outputs.len(), call.span, mended)
            }
            None => {
                let expected = super::call::expected_inputs(operation);
                ModelError::argument_count(of, expected, call.inputs.len(), call.span, mended)
            }
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
            (None, [_, dims @ ..])
                if dims.len() > 1 && dims.iter().all(|dim| matches!(dim.value.kind, ExprKind::Int(_))) =>
            {
                let dims: Vec<String> = dims.iter().map(|dim| written(&dim.value, &self.names)).collect();
                let help =
                    format!("`permute` sorts rows by expert: write `transpose({x}, dims: [{}])`", dims.join(", "));
                Some(ModelError::argument_count("permute", "2 inputs", call.inputs.len(), call.span, help))
            }
            (None, [_, dims]) if matches!(dims.value.kind, ExprKind::List(_)) => Some(ModelError::WrongType {
                expected: "a tensor of choices".to_owned(),
                found: "a list".to_owned(),
                at: dims.value.span.into(),
                help: help(&dims.value),
            }),
            _ => None,
        }
    }

    /// The error for an arrow that points to the left, `copy(y <- x)`, which is a comparison; `None` for other calls.
    fn left_arrow(&self, operation: &dyn Operation, call: &Call) -> Option<ModelError> {
        let [arg] = call.inputs.as_slice() else { return None };
        let ExprKind::Binary { op: BinaryOp::Less, left, right } = &arg.value.kind else { return None };
        let ExprKind::Negate(source) = &right.kind else { return None };
        takes_memory(operation).then(|| {
            let (source, target) = (written(source, &self.names), written(left, &self.names));
            ModelError::WrongType {
                expected: "a tensor".to_owned(),
                found: "a comparison".to_owned(),
                at: arg.value.span.into(),
                help: Some(format!("an arrow points to the output: `{}({source} -> {target})`", operation.name())),
            }
        })
    }

    /// The error for a `transpose` with two dimensions to exchange, as in PyTorch; `None` for other calls.
    fn exchanged_dims(&mut self, operation: &dyn Operation, call: &Call) -> Option<ModelError> {
        let [x, a, b] = call.inputs.as_slice() else { return None };
        if operation.name() != "transpose" || !matches!(self.role(&x.value), ArgumentRole::Operand) {
            return None;
        }
        let view = match self.eval(&x.value) {
            Value::Tensor { view, .. } => view,
            value => self.single_output(&value, x.value.span)?,
        };
        let count = self.tensor(view).dims.len();
        let dim = |role: ArgumentRole| match role {
            ArgumentRole::Value(Value::Number(number)) => {
                let dim = number.whole()?;
                usize::try_from(if dim < 0 { dim + count as i64 } else { dim }).ok().filter(|dim| *dim < count)
            }
            _ => None,
        };
        let (a, b) = (dim(self.role(&a.value))?, dim(self.role(&b.value))?);
        let mut order: Vec<usize> = (0..count).collect();
        order.swap(a, b);
        let x = written(&x.value, &self.names);
        let help = match a.min(b) + 2 == count && a.max(b) + 1 == count {
            true => format!("write `transpose({x})`, which exchanges the last two dimensions"),
            false => format!("write the new order of all dimensions: `transpose({x}, dims: {order:?})`"),
        };
        Some(ModelError::argument_count("transpose", "one input", call.inputs.len(), call.span, help))
    }

    /// The error for a call with sizes in place of operands, as benchmarks of products and collectives take them: `gemm(m, n, k)`,
    /// `all_reduce(bytes: 1GiB)`. `None` for other calls.
    fn sizes_as_operands(&mut self, operation: &dyn Operation, call: &Call) -> Option<ModelError> {
        let of = operation.name();
        if !takes_memory(operation) || operation.signature().least() == 0 {
            return None;
        }
        let named = |name: &str| {
            let option =
                call.options.iter().find(|option| self.names.name(option.key.symbol).eq_ignore_ascii_case(name))?;
            Some(written(&option.value, &self.names))
        };
        let key = call.options.first().map(|option| option.key.span);
        let of_product = of == "gemm";
        let names: &[&str] =
            if of_product { &["m", "n", "k"] } else { &["bytes", "size", "count", "nbytes", "elements"] };
        let named: Vec<String> = names.iter().filter_map(|name| named(name)).collect();
        let is_number = |this: &mut Self, arg: &Expr| matches!(this.role(arg), ArgumentRole::Value(Value::Number(_)));
        let (sizes, at) = match call.inputs.as_slice() {
            [] if of_product && named.len() < 3 => return None,
            [] if !named.is_empty() => (named, key?),
            [first, ..] if call.inputs.iter().all(|arg| is_number(self, &arg.value)) => {
                (call.inputs.iter().map(|arg| written(&arg.value, &self.names)).collect(), first.value.span)
            }
            _ => return None,
        };
        let help = match (of_product, sizes.as_slice()) {
            (true, [m, n, k]) => format!("the sizes are those of the operands: `gemm(bf16[{m}, {k}], bf16[{k}, {n}])`"),
            (false, [size]) => {
                let size = if size.ends_with('B') { format!("{size} / sizeof(f32)") } else { size.clone() };
                format!("the size is that of the operand, a buffer or a type: `{of}(f32[{size}])`")
            }
            _ => return None,
        };
        let (expected, found) = ("a tensor".to_owned(), "a size".to_owned());
        Some(ModelError::WrongType { expected, found, at: at.into(), help: Some(help) })
    }

    fn written_call(&mut self, operation: &dyn Operation, parts: &ReorderedCall) -> String {
        let options = operation.signature().options;
        let takes_list = |name: &str| options.iter().any(|known| known.name == name && known.kind == OptionType::Axes);
        let lists: Vec<bool> = (parts.options.iter())
            .map(|(name, value)| takes_list(name) && matches!(self.role(value), ArgumentRole::Value(Value::Number(_))))
            .collect();
        let list = |exprs: &[&Expr]| exprs.iter().map(|expr| written(expr, &self.names)).collect::<Vec<_>>();
        let mut items = list(&parts.inputs);
        items.extend(parts.options.iter().zip(lists).map(|((name, value), is_list)| {
            let value = written(value, &self.names);
            if is_list { format!("{name}: [{value}]") } else { format!("{name}: {value}") }
        }));
        items.extend(parts.flags.iter().map(|name| format!("{name}: true")));
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
    fn role(&mut self, expr: &Expr) -> ArgumentRole {
        let is_mesh_name = |name| {
            self.ast.decls.iter().any(|decl| match &decl.kind {
                DeclKind::Mesh(factors) => factors.iter().any(|factor| factor.name.symbol == name),
                _ => false,
            })
        };
        if let Some(name) = expr.as_name() {
            if is_mesh_name(name) {
                return ArgumentRole::Group;
            }
            match self.scopes.get(name) {
                Some(Value::Output(_)) => return ArgumentRole::Operand,
                None if DType::from_name(self.names.name(name)).is_none() => return ArgumentRole::Unknown,
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
            return ArgumentRole::Unknown;
        }
        match self.eval(expr) {
            Value::Tensor { .. } | Value::Label(_) | Value::Type(..) => ArgumentRole::Operand,
            Value::Group(_) => ArgumentRole::Group,
            Value::Unknown => ArgumentRole::Unknown,
            value => ArgumentRole::Value(value),
        }
    }

    /// The option that lists a bare word among its values; `None` if there is none.
    fn lists_word(&self, options: &[&'static OptionSpec], expr: &Expr) -> Option<&'static str> {
        let word = self.names.name(expr.as_name()?);
        let lists =
            |option: &&&'static OptionSpec| matches!(option.kind, OptionType::Word(words) if words.contains(&word));
        options.iter().find(lists).map(|option| option.name)
    }

    /// The boolean option that an undeclared word or a text names, as in `mask: causal`; `None` if there is none.
    fn names_flag(&self, options: &[&'static OptionSpec], expr: &Expr) -> Option<&'static str> {
        let word = match &expr.kind {
            ExprKind::Name(name) if self.scopes.get(*name).is_none() => self.names.name(*name),
            ExprKind::Text(text) => text,
            _ => return None,
        };
        let flags: Vec<&'static str> =
            options.iter().filter(|option| option.kind == OptionType::Bool).map(|option| option.name).collect();
        flags.iter().copied().find(|flag| *flag == word).or_else(|| option_instead(word, &flags))
    }

    /// True for the word by which other tools leave out an argument.
    fn is_nothing(&self, expr: &Expr) -> bool {
        expr.as_name().is_some_and(|name| ["None", "null", "nullptr"].contains(&self.names.name(name)))
    }

    /// Orders the tensors of an optimizer without an arrow: first the gradient, then what it updates. A name tells which is which;
    /// without one, the gradient is the second, as in PyTorch.
    fn order_of_update(&self, outputs: &[&str], tensors: &mut [&Expr]) {
        let name = |expr: &Expr| {
            let text = written(expr, &self.names);
            text.split(['[', '.']).next().unwrap_or_default().to_owned()
        };
        let mut gradients = (0..tensors.len()).filter(|&place| names_gradient(&name(tensors[place])));
        let gradient = match (gradients.next(), gradients.next()) {
            (Some(only), None) => only,
            _ => 1,
        };
        tensors[..=gradient].rotate_right(1);
        let place = |expr: &&Expr| outputs.iter().position(|output| *output == name(expr));
        let named = tensors[1..].iter().filter(|expr| place(expr).is_some()).count();
        // The remaining one takes the place that is left.
        if named + 1 >= outputs.len() && tensors.len() == outputs.len() + 1 {
            let free = (0..outputs.len()).find(|&slot| tensors[1..].iter().all(|expr| place(expr) != Some(slot)));
            tensors[1..].sort_by_key(|expr| place(expr).or(free));
        }
    }

    /// Each part of a call in its correct place; `None` if that is ambiguous.
    fn sorted<'b>(&mut self, operation: &dyn Operation, call: &'b Call) -> Option<ReorderedCall<'b>> {
        let signature = operation.signature();
        let takes_values = signature.inputs.iter().all(|input| matches!(input, Input::Scalar(_)));
        let mut parts = ReorderedCall { over: call.over.as_ref(), ..ReorderedCall::default() };
        parts.outputs = call.outputs.iter().map(|arg| &arg.value).collect();
        let takes_memory = takes_memory(operation);
        let mut extras = Vec::new();
        let takes_any = signature.inputs.iter().any(|input| matches!(input, Input::Tensors(_)));
        for arg in &call.inputs {
            if let ExprKind::List(items) = &arg.value.kind
                && takes_any
            {
                parts.inputs.extend(items);
                continue;
            }
            match self.role(&arg.value) {
                ArgumentRole::Operand if takes_values => parts.outputs.push(&arg.value),
                // PyTorch's norms take the sizes of the dimensions that they normalize.
                ArgumentRole::Value(Value::List(_)) if matches!(operation.name(), "layer_norm" | "rms_norm") => {}
                ArgumentRole::Value(_) if takes_memory => extras.push(&arg.value),
                _ => parts.inputs.push(&arg.value),
            }
        }
        let known = |name: &str| signature.options.iter().find(|option| option.name == name);
        let is_given = |name: &str| call.options.iter().any(|given| self.names.name(given.key.symbol) == name);
        let mut left: Vec<&'static OptionSpec> =
            signature.options.iter().filter(|option| !is_given(option.name)).collect();
        // Inputs with a name, by their places.
        let mut named: Vec<(usize, &Expr)> = Vec::new();
        for setting in &call.options {
            let name = self.names.name(setting.key.symbol).to_owned();
            if let Some(option) = known(&name) {
                parts.options.push((option.name, &setting.value));
                continue;
            }
            let names: Vec<&str> = left.iter().map(|option| option.name).collect();
            let near = option_instead(&name, &names);
            match self.role(&setting.value) {
                _ if let Some(place) = input_place(signature, &name) => match self.names_flag(&left, &setting.value) {
                    Some(flag) => parts.flags.push(flag),
                    None if self.is_nothing(&setting.value) => {}
                    None => named.push((place, &setting.value)),
                },
                ArgumentRole::Operand
                    if signature.outputs.contains(&name.as_str()) || OUTPUTS.contains(&name.as_str()) =>
                {
                    parts.outputs.push(&setting.value);
                }
                ArgumentRole::Group if parts.over.is_none() => parts.over = Some(&setting.value),
                ArgumentRole::Operand if INPUTS.contains(&name.as_str()) => parts.inputs.push(&setting.value),
                // PyTorch's optimizers take both decay rates as one list.
                ArgumentRole::Value(Value::List(_)) if name == "betas" => {
                    let ExprKind::List(betas) = &setting.value.kind else { return None };
                    let rates = left.iter().filter(|option| option.name.starts_with("beta"));
                    parts.options.extend(rates.map(|option| option.name).zip(betas));
                }
                ArgumentRole::Value(value) => {
                    let takes = |option: &OptionSpec| !matches!(value, Value::List(_)) || fits(&option.kind, &value);
                    let is_near = |option: &OptionSpec| near == Some(option.name) && takes(option);
                    let option = take_first(&mut left, is_near).or_else(|| {
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
        named.sort_by_key(|(place, _)| *place);
        parts.inputs.extend(named.into_iter().map(|(_, value)| value));
        // Other tools name the tensor that is updated before its gradient.
        if FIRST_OUTPUT.contains(&operation.name()) && parts.outputs.is_empty() && parts.inputs.len() > 1 {
            self.order_of_update(signature.outputs, &mut parts.inputs);
        }
        let most = if names_output(operation, call) { parts.inputs.len() - 1 } else { signature.most() };
        extras.extend(parts.inputs.split_off(most.min(parts.inputs.len())));
        for extra in extras {
            match self.role(extra) {
                // A size, which follows from the memory.
                ArgumentRole::Value(value @ Value::Number(_))
                    if takes_values
                        && !parts.outputs.is_empty()
                        && !left.iter().any(|option| is_required(option) && fits(&option.kind, &value)) => {}
                ArgumentRole::Group if parts.over.is_none() => parts.over = Some(extra),
                ArgumentRole::Value(value) => {
                    let numbers = left.iter().filter(|option| matches!(option.kind, OptionType::Int(..))).count();
                    let plain = |option: &&OptionSpec| option.kind == OptionType::Number(Dimension::NONE);
                    let fractions = left.iter().filter(|option| plain(option)).count();
                    let is_fraction = matches!(&value, Value::Number(number) if number.whole().is_none());
                    let clear = |option: &OptionSpec| match option.kind {
                        OptionType::Int(..) => numbers == 1,
                        OptionType::Number(Dimension::NONE) => fractions == 1 && is_fraction,
                        OptionType::DType | OptionType::Bool | OptionType::Axes | OptionType::Number(_) => true,
                        OptionType::Spatial(..) => option.name == "size",
                        _ => false,
                    };
                    let option = take_first(&mut left, |option| is_required(option) && fits(&option.kind, &value))
                        .or_else(|| take_first(&mut left, |option| clear(option) && fits(&option.kind, &value)))?;
                    parts.options.push((option.name, extra));
                }
                _ if parts.inputs.iter().any(|input| written(input, &self.names) == written(extra, &self.names)) => {
                    return None;
                }
                ArgumentRole::Group => return None,
                // A word that an option lists, such as the reduction of a collective.
                ArgumentRole::Unknown if let Some(option) = self.lists_word(&left, extra) => {
                    left.retain(|other| other.name != option);
                    parts.options.push((option, extra));
                }
                ArgumentRole::Operand | ArgumentRole::Unknown => parts.outputs.push(extra),
            }
        }
        let fits = parts.inputs.len() >= signature.least() && parts.outputs.len() <= signature.outputs.len();
        fits.then_some(parts)
    }
}

/// The word for a literal list or number in messages, such as `a list`; `None` for other expressions.
fn literal_name(expr: &Expr) -> Option<&'static str> {
    match &expr.kind {
        ExprKind::List(_) => Some("a list"),
        ExprKind::Int(_) | ExprKind::Float(_) => Some("a number"),
        ExprKind::Negate(inner) => literal_name(inner).filter(|_| !matches!(inner.kind, ExprKind::List(_))),
        _ => None,
    }
}

/// True if all inputs of an operation are memory: none is a number or an expression.
fn takes_memory(operation: &dyn Operation) -> bool {
    let is_memory = |input: &Input| matches!(input, Input::Tensor(_) | Input::Optional(_) | Input::Tensors(_));
    operation.signature().inputs.iter().all(is_memory)
}

/// True if a name is usual for a gradient, such as `g`, `dw` or `grad_w`.
fn names_gradient(name: &str) -> bool {
    name.starts_with(['g', 'd']) || name.contains("grad")
}

/// True if the last of several expressions is a tensor alone and nothing is written: it is probably meant to be the output,
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

/// Removes the first option that satisfies `asked`, and returns it; `None` if no option does.
fn take_first(left: &mut Vec<&'static OptionSpec>, asked: impl Fn(&OptionSpec) -> bool) -> Option<&'static OptionSpec> {
    let index = left.iter().position(|option| asked(option))?;
    Some(left.remove(index))
}

/// True if an option accepts this kind of value.
fn fits(kind: &OptionType, value: &Value) -> bool {
    match (kind, value) {
        (OptionType::Int(..) | OptionType::Spatial(..), Value::Number(number)) => {
            number.dimension == Dimension::NONE && matches!(number.value, Scalar::Int(_))
        }
        (OptionType::Number(dimension), Value::Number(number)) => number.dimension == *dimension,
        (OptionType::Axes, Value::Number(number)) => number.whole().is_some(),
        (OptionType::Bool, Value::Bool(_)) | (OptionType::DType, Value::DType(_)) => true,
        (OptionType::File, Value::Text(_)) => true,
        (
            OptionType::Axes | OptionType::Sizes | OptionType::List | OptionType::Spatial(..) | OptionType::Counts,
            Value::List(_),
        ) => true,
        _ => false,
    }
}
