//! Calls of definitions: expands the body in place of the call.

use crate::base::{DType, Dims, SrcSpan, Symbol, ViewId, counted};
use crate::syntax::ast::*;
use crate::syntax::walk;

use super::call::Output;
use crate::model::analyzer::Analyzer;
use crate::model::error::{LimitError, ModelError};
use crate::model::expand::OutputState;
use crate::model::limits::{CALLS, TURNS_PER_OPERATION};
use crate::model::names::labels::{LabelData, Tensors};
use crate::model::turns::TurnOrigin;
use crate::model::values::value::Value;

impl<'a> Analyzer<'a> {
    /// Expands a call of a definition into its operations.
    pub(super) fn call_def(&mut self, call: &'a Call, decl: &'a Decl) {
        let DeclKind::Def { name, signature, body } = &decl.kind else {
            unreachable!("the table of definitions holds nothing else");
        };
        let text = self.names.name(name.symbol).to_owned();
        if self.expansion.calls.contains(&name.symbol) {
            self.error(ModelError::Recursion { name: text, at: call.span.into() });
            return self.declare_failed_call(call);
        }
        if self.expansion.calls.len() >= CALLS {
            self.error(LimitError::TooDeep { limit: CALLS, at: call.span.into() });
            return self.declare_failed_call(call);
        }
        if !self.room_for_turns(TURNS_PER_OPERATION, call.span) {
            return;
        }
        for setting in &call.options {
            let option = self.names.name(setting.key.symbol).to_owned();
            self.error(ModelError::UnknownOption {
                of: text.clone(),
                name: option,
                at: setting.key.span.into(),
                help: Some(
                    "the arguments of a `def` have no names at the call: write the value in its place".to_owned(),
                ),
            });
        }
        let (inputs, outputs) = (&signature.inputs, &signature.outputs);
        if !call.options.is_empty() && call.inputs.len() < inputs.len() {
            return self.declare_failed_call(call);
        }
        if call.inputs.len() != inputs.len() || call.outputs.len() > outputs.len() {
            let list = |params: &[Param]| {
                let names: Vec<&str> = params.iter().map(|param| self.names.name(param.name.symbol)).collect();
                names.join(", ")
            };
            let arrow = if outputs.is_empty() { String::new() } else { format!(" -> {}", list(outputs)) };
            let help = format!("it is `{text}({}{arrow})`", list(inputs));
            let (expected, given) = match call.inputs.len() == inputs.len() {
                true => (format!("at most {}", counted(outputs.len(), "output")), call.outputs.len()),
                false => (counted(inputs.len(), "input"), call.inputs.len()),
            };
            self.error(ModelError::argument_count(text, expected, given, call.span, help));
            return self.declare_failed_call(call);
        }
        let mut values: Vec<Value> = Vec::new();
        for (arg, param) in call.inputs.iter().zip(inputs) {
            let value = self.argument(arg, param);
            values.push(value);
        }
        let named = |this: &Self, (param, value): (&Param, &Value)| Some((param.name.symbol, this.tensor_of(value)?));
        let read: Vec<(Symbol, ViewId)> = match call.label {
            Some(_) => inputs.iter().zip(&values).filter_map(|pair| named(self, pair)).collect(),
            None => Vec::new(),
        };
        let has_unknown = values.iter().any(|value| matches!(value, Value::Unknown));
        let mut cells = Vec::new();
        for (index, output) in outputs.iter().enumerate() {
            let given = call.outputs.get(index).filter(|arg| arg.value.as_name() != Some(self.builtins.unwanted));
            let value = given.map(|arg| {
                self.no_peer(arg);
                let name = self.names.name(output.name.symbol).to_owned();
                self.output_argument(arg, call, &name, outputs.len() > 1)
            });
            cells.push(value.unwrap_or_else(|| self.new_output()));
        }
        let given: Vec<Option<Output>> = cells
            .iter()
            .map(|value| match value {
                Value::Tensor { view, .. } => Some(Output::Given(*view, call.span)),
                Value::Output(cell) => Some(Output::Cell(*cell)),
                _ => None,
            })
            .collect();
        if !self.outputs_differ(&text, call, given.iter().map(Option::as_ref)) {
            return self.declare_failed_call(call);
        }
        self.scopes.enter_frame();
        for (param, value) in inputs.iter().zip(&values) {
            self.scopes.declare(param.name.symbol, value.clone());
        }
        let fits = self.declared_types(call, &text, signature, &mut cells);
        self.scopes.leave_frame();
        if !fits {
            return self.declare_failed_call(call);
        }
        let label = self.open_label(call);
        let first_op = self.expansion.step.ops.len();
        let outer_label = self.expansion.label;
        if let Some(label) = label {
            self.expansion.label = label;
        }
        let outer_turn = self.expansion.turn;
        let origin = TurnOrigin::Call { definition: name.symbol, span: call.span, label: self.expansion.label };
        self.expansion.turn = self.program.turns.enter(outer_turn, origin);
        self.expansion.calls.push(name.symbol);
        self.expansion.called += 1;
        let outer_call = std::mem::replace(&mut self.expansion.call, self.expansion.called);
        let (mistakes, raised, failed) = (self.mistakes.len(), self.mistakes.raised, self.expansion.failed);
        self.scopes.enter_frame();
        for (param, value) in inputs.iter().chain(outputs).zip(values.into_iter().chain(cells)) {
            self.scopes.declare(param.name.symbol, value);
        }
        self.block(body);
        if self.mistakes.len() > mistakes {
            let arguments = self.arguments_text(inputs);
            self.mistakes.called(mistakes, call.span, arguments);
        }
        if self.mistakes.raised > raised {
            // Readers of what was not written because of a mistake have none of their own.
            for output in outputs {
                if let Some(&Value::Output(cell)) = self.scopes.get(output.name.symbol)
                    && matches!(self.expansion.outputs[cell as usize], OutputState::NotYet)
                {
                    self.expansion.outputs[cell as usize] = OutputState::Failed;
                }
            }
        }
        let members = self.scopes.leave_frame();
        self.explain_arguments(mistakes, call.span);
        self.expansion.call = outer_call;
        self.expansion.calls.pop();
        self.expansion.turn = outer_turn;
        self.expansion.label = outer_label;
        if let Some(label) = label {
            let members: Vec<(Symbol, Value)> = members
                .into_iter()
                .map(|(name, value)| match value {
                    Value::Output(cell) => (name, self.output_value(cell)),
                    value => (name, value),
                })
                .collect();
            let found = |param: &Param| members.iter().find(|(name, _)| *name == param.name.symbol);
            let outputs_of = |param: &Param| Some((param.name.symbol, self.tensor_of(&found(param)?.1)?));
            let written: Vec<(Symbol, ViewId)> = outputs.iter().filter_map(outputs_of).collect();
            let incomplete = self.mistakes.raised > raised
                || self.expansion.failed > failed
                || (!self.mistakes.is_empty() && (has_unknown || written.len() < outputs.len()));
            let members = members
                .into_iter()
                .filter(|(name, value)| {
                    matches!(value, Value::Label(_) | Value::Labels(_) | Value::Unknown)
                        || outputs.iter().any(|output| output.name.symbol == *name)
                })
                .collect();
            let end = self.expansion.step.ops.len() + self.ops_of_batch();
            let ops = first_op as u32..end as u32;
            let depth = self.expansion.calls.len() as u8;
            let tensors = Tensors { inputs: read, outputs: written, depth, incomplete };
            self.close_label(call, label, LabelData::call(ops, members).with_tensors(tensors));
        }
    }

    /// Evaluates an argument of a definition. A bare type creates memory of its own; `world` is a group where the definition
    /// means one.
    fn argument(&mut self, arg: &Arg, param: &Param) -> Value {
        self.no_peer(arg);
        if let Some(group) = self.named_group(&arg.value).filter(|_| param.ty.is_none()) {
            return Value::Group(group);
        }
        let mut value = self.eval(&arg.value);
        if let Value::Type(dtype, dims) = value {
            let view = self.bare(dtype, *dims, param.name.symbol, arg.value.span);
            value = Value::Tensor { view, family: 0 };
        }
        value
    }

    /// Compares the arguments and outputs of a call with the types of the definition's signature, which may name its arguments.
    /// An output with a type that the call does not give becomes scratch of this type. `outputs` has a value for each output.
    /// Returns false after an error, which has been reported.
    fn declared_types(&mut self, call: &Call, of: &str, signature: &Signature, outputs: &mut [Value]) -> bool {
        let raised = self.mistakes.raised;
        for (index, param) in signature.inputs.iter().enumerate() {
            let Some((dtype, dims)) = self.declared_type(param, call, signature) else { continue };
            let span = call.inputs[index].value.span;
            let value = self.scopes.get(param.name.symbol).cloned().unwrap_or(Value::Unknown);
            self.expect_type((dtype, dims), (of, param), &value, span);
        }
        for (index, param) in signature.outputs.iter().enumerate() {
            let Some((dtype, dims)) = self.declared_type(param, call, signature) else { continue };
            let given = call.outputs.get(index).filter(|arg| arg.value.as_name() != Some(self.builtins.unwanted));
            match given {
                Some(arg) if !matches!(outputs[index], Value::Output(_)) => {
                    self.expect_type((dtype, dims), (of, param), &outputs[index], arg.value.span);
                }
                _ => {
                    let name = self.names.name(param.name.symbol).to_owned();
                    let several = signature.outputs.len() > 1;
                    let view = self.typed_scratch((dtype, dims), call.span, call, &name, several);
                    if let Value::Output(cell) = outputs[index] {
                        self.expansion.outputs[cell as usize] = OutputState::To(view);
                    }
                    outputs[index] = Value::Tensor { view, family: 0 };
                }
            }
        }
        self.mistakes.raised == raised
    }

    /// Checks the types in the signatures of definitions that consist of element types and numbers, and so are the same in every call.
    pub(in crate::model) fn signatures(&mut self) {
        for decl in &self.ast.decls {
            let DeclKind::Def { signature, .. } = &decl.kind else { continue };
            let params = || signature.inputs.iter().chain(&signature.outputs);
            for ty in params().filter_map(|param| param.ty.as_ref()) {
                let mut depends = false;
                // Other names may have no value here, or only values that a condition around the calls excludes.
                walk::expr(ty, &mut |part| {
                    depends |= part.as_name().is_some_and(|symbol| DType::from_name(self.names.name(symbol)).is_none());
                });
                if !depends {
                    self.tensor_type(ty);
                }
            }
        }
    }

    /// Evaluates the type of a parameter in its definition. `None` without a type, and after an error, which has been reported.
    fn declared_type(&mut self, param: &Param, call: &Call, signature: &Signature) -> Option<(DType, Dims)> {
        let mistakes = self.mistakes.len();
        let declared = self.tensor_type(param.ty.as_ref()?);
        if self.mistakes.len() > mistakes {
            let arguments = self.arguments_text(&signature.inputs);
            self.mistakes.called(mistakes, call.span, arguments);
        }
        declared
    }

    /// Reports a tensor of another type or shape than a signature declares.
    fn expect_type(&mut self, (dtype, dims): (DType, Dims), (of, param): (&str, &Param), value: &Value, span: SrcSpan) {
        if !matches!(value, Value::Tensor { .. } | Value::Label(_) | Value::Unknown) {
            self.error(ModelError::WrongType {
                expected: dims.of(dtype),
                found: value.describe(&self.names),
                at: span.into(),
                help: Some(format!(
                    "only tensors have a type in a signature: leave out that of `{}` in `{of}`",
                    self.names.name(param.name.symbol)
                )),
            });
            return;
        }
        let Some(view) = self.view_of(value, span) else { return };
        let tensor = *self.program.views.tensor(view);
        if tensor.dtype != dtype || tensor.dims != dims {
            self.error(ModelError::WrongType {
                expected: dims.of(dtype),
                found: tensor.to_string(),
                at: span.into(),
                help: Some(format!(
                    "`{of}` declares `{}` with this type: pass such a tensor, or change the signature",
                    self.names.name(param.name.symbol)
                )),
            });
        }
    }

    /// The arguments of the innermost call, for a message: `x: f32[8], n = 4`.
    pub(super) fn arguments_text(&self, inputs: &[Param]) -> String {
        const MAX_LENGTH: usize = 70;
        let mut text = String::new();
        for param in inputs {
            let name = self.names.name(param.name.symbol);
            let given = match self.scopes.get(param.name.symbol) {
                Some(Value::Tensor { view, .. }) => format!("{name}: {}", self.program.views.tensor(*view)),
                Some(Value::Stream { first, count: None, .. }) => {
                    format!("{name} = {}", self.program.streams[*first as usize].name)
                }
                Some(
                    value @ (Value::Number(_)
                    | Value::Bool(_)
                    | Value::Text(_)
                    | Value::Word(_)
                    | Value::DType(_)
                    | Value::List(_)),
                ) => format!("{name} = {}", value.text(&self.names)),
                _ => continue,
            };
            let comma = if text.is_empty() { "" } else { ", " };
            if text.len() + given.len() > MAX_LENGTH {
                return format!("{text}{comma}…");
            }
            text += comma;
            text += &given;
        }
        text
    }

    /// Creates an output of a definition whose memory is not known yet, and returns its value.
    pub(super) fn new_output(&mut self) -> Value {
        self.expansion.outputs.push(OutputState::NotYet);
        Value::Output(self.expansion.outputs.len() as u32 - 1)
    }

    pub(super) fn output_value(&self, cell: u32) -> Value {
        match self.expansion.outputs[cell as usize] {
            OutputState::To(view) => Value::Tensor { view, family: 0 },
            OutputState::NotYet => Value::Output(cell),
            OutputState::Failed => Value::Unknown,
        }
    }

    /// Evaluates an output of a definition used as an operand, which must have been written.
    pub(in crate::model) fn written_output(&mut self, cell: u32, name: Symbol, span: SrcSpan) -> Value {
        match self.output_value(cell) {
            Value::Output(_) => {
                let name = self.names.name(name).to_owned();
                self.fail_value(ModelError::ReadBeforeWrite { name, at: span.into() })
            }
            value => value,
        }
    }
}
