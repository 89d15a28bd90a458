//! Operations: operands and options are worked out, outputs inferred, scratch memory made.

use std::sync::Arc;

use crate::base::{Bytes, DType, Dims, LabelId, MemoryId, OpId, Space, SpecId, SrcSpan, Symbol, ViewId, suggest};
use crate::ops::init::Init;
use crate::ops::{self, Attrs, Expression, Input, Operand, Operation, Preset, Spec};
use crate::syntax::ast::*;

use super::analyzer::Analyzer;
use super::error::ModelError;
use super::expand::Written;
use super::labels::LabelData;
use super::program::{After, Memory, MemoryKind, NewOp, OpKind};
use super::value::Value;

/// Statements that look like operations and launch nothing.
pub(super) const MARKERS: [&str; 3] = ["signal", "wait", "sync"];

/// Operations of the language that this version does not have.
const LATER: [&str; 30] = [
    "adamw",
    "all_gather",
    "all_reduce",
    "argmax",
    "attention",
    "barrier",
    "broadcast",
    "concat",
    "conv",
    "cross_entropy",
    "cumsum",
    "dropout",
    "embedding",
    "grad",
    "host_sync",
    "layer_norm",
    "max",
    "mean",
    "min",
    "pad",
    "pool",
    "recv",
    "reduce",
    "reduce_scatter",
    "rms_norm",
    "rope",
    "send",
    "sgd",
    "sum",
    "triad",
];

/// What other tools call an operation, and what it is here.
const ELSEWHERE: [(&str, &str); 9] = [
    ("relu", "`map(max(x, 0))`"),
    ("gelu", "`map(gelu(x))`"),
    ("add", "`map(x + y)`"),
    ("mul", "`map(x * y)`"),
    ("linear", "`gemm(x, w)`"),
    ("matmul", "`gemm(a, b)`"),
    ("mm", "`gemm(a, b)`"),
    ("bmm", "`gemm(a, b)`"),
    ("sleep", "`spin(10us)`"),
];

/// Definitions of a file that are listed beside the operations.
const MAX_SHOWN: usize = 20;

/// What stands behind the arrow.
enum Output {
    /// Scratch memory.
    None,
    Given(ViewId, SrcSpan),
    /// An output of the definition around, written here for the first time.
    Cell(u32),
}

/// An operation's inputs while they are collected.
#[derive(Default)]
struct Inputs {
    views: Vec<ViewId>,
    spans: Vec<SrcSpan>,
    expression: Option<Arc<Expression>>,
    failed: bool,
}

impl<'a> Analyzer<'a> {
    pub(super) fn call(&mut self, call: &'a Call) {
        let [callee] = call.callee.as_slice() else {
            self.not_yet("a name with dots", "`use` comes with a later version", call.callee[0].span);
            return;
        };
        if let Some(over) = &call.over {
            self.not_yet("`over`", "collectives run over all ranks", over.span);
        }
        let name = self.names.name(callee.symbol).to_owned();
        if let Some(&decl) = self.defs.get(&callee.symbol) {
            self.call_def(call, decl);
        } else if MARKERS.contains(&name.as_str()) {
            self.marker(&name, call);
        } else if let Some(operation) = ops::find(&name) {
            self.operation(operation, call);
        } else {
            // Reported by the check of names; here, only what it would have given is made known.
            self.give_unknown(call);
        }
    }

    /// The message for a callee that does not exist.
    pub(super) fn unknown_operation(name: &str, defs: &[&str], at: SrcSpan) -> ModelError {
        let instead = match ELSEWHERE.iter().find(|(other, _)| *other == name) {
            Some((_, here)) => Some(format!("here that is {here}")),
            None => LATER.contains(&name).then(|| format!("`{name}` comes with a later version")),
        };
        let known = ops::CATALOGUE.iter().map(|operation| operation.name()).chain(MARKERS);
        // A list of everything helps only where it can be read.
        let shown = if defs.len() <= MAX_SHOWN { defs } else { &[] };
        let all: Vec<&str> = known.clone().chain(shown.iter().copied()).collect();
        let known = known.chain(defs.iter().copied());
        let help = instead
            .or_else(|| suggest::nearest(name, known).map(|near| format!("did you mean `{near}`?")))
            .or_else(|| Some(format!("there are {}", suggest::listed(&all))));
        ModelError::UnknownOperation { name: name.to_owned(), at: at.into(), help }
    }

    /// Makes a failed call's label known without a meaning, so that its uses stay silent.
    pub(super) fn give_unknown(&mut self, call: &Call) {
        self.forget_label(call);
        for output in &call.outputs {
            // An output of the definition around counts as written.
            if let Some(name) = output.value.as_name()
                && let Some(Value::Output(cell)) = self.scopes.get(name)
                && let slot = &mut self.expansion.outputs[*cell as usize]
                && matches!(slot, Written::NotYet)
            {
                *slot = Written::Failed;
            }
        }
    }

    pub(super) fn forget_label(&mut self, call: &Call) {
        let Some(label) = &call.label else { return };
        let name = label.name.symbol;
        if label.index.is_empty() {
            self.scopes.declare(name, Value::Unknown);
        } else if !self.scopes.in_frame(name) || !matches!(self.scopes.get(name), Some(Value::Unknown)) {
            self.scopes.declare_in_frame(name, Value::Unknown);
        }
    }

    // --- Markers ----------------------------------------------------------------------------------------------

    fn marker(&mut self, name: &str, call: &'a Call) {
        let takes = usize::from(name == "wait");
        if call.inputs.len() != takes || !call.outputs.is_empty() || !call.options.is_empty() {
            let expected = if takes == 1 { "one label" } else { "nothing" };
            let given = call.inputs.len() + call.outputs.len() + call.options.len();
            self.error(ModelError::ArgumentCount {
                function: name.to_owned(),
                expected: expected.to_owned(),
                found: format!("{given} {}", if given == 1 { "is" } else { "are" }),
                at: call.span.into(),
                help: Some(format!("it is `{name}({})`", if takes == 1 { "label" } else { "" })),
            });
            self.give_unknown(call);
            return;
        }
        let kind = match name {
            "signal" => OpKind::Signal,
            "wait" => OpKind::Wait,
            _ => OpKind::Sync,
        };
        let mut after = Vec::new();
        if let Some(arg) = call.inputs.first() {
            let value = self.eval(&arg.value);
            after = self.waited_for(&value, arg.value.span);
        }
        let label = self.open_label(call);
        let Some(op) = self.push_op(kind, call, label, &[], &[]) else { return };
        for after in after {
            self.expansion.step.push_after(after);
        }
        if let Some(label) = label {
            self.close_label(call, label, LabelData::operation(op));
        }
    }

    /// Adds an operation, with what the open blocks wait for.
    fn push_op(
        &mut self,
        kind: OpKind,
        call: &Call,
        label: Option<LabelId>,
        inputs: &[ViewId],
        outputs: &[ViewId],
    ) -> Option<OpId> {
        if !self.room_for_operation(call.span) {
            return None;
        }
        let stream = self.current_stream();
        let new = NewOp {
            kind,
            stream,
            label: label.unwrap_or(self.expansion.label),
            phase: self.expansion.phase,
            span: call.span,
        };
        let op = self.expansion.step.push(new, inputs, outputs);
        let mut waiting = std::mem::take(&mut self.expansion.after);
        for block in &mut waiting {
            if block.done.insert(stream) {
                block.ops.iter().for_each(|&after: &After| self.expansion.step.push_after(after));
            }
        }
        self.expansion.after = waiting;
        Some(op)
    }

    // --- Operations -------------------------------------------------------------------------------------------

    fn operation(&mut self, operation: &'static dyn Operation, call: &'a Call) {
        let mut attrs = Attrs::default();
        let mut inputs = Inputs::default();
        self.inputs(operation, call, &mut inputs, &mut attrs);
        let options_good = self.op_options(operation, call, &mut attrs);
        let outputs = self.outputs(operation, call);
        let (Some(outputs), true, false) = (outputs, options_good, inputs.failed) else {
            self.give_unknown(call);
            return;
        };
        if let Some((dtype, dims)) = operation.own_input(&attrs) {
            let name = self.names.intern(operation.name());
            inputs.views.push(self.bare(dtype, dims, name, call.span));
            inputs.spans.push(call.span);
        }
        let Some(spec) = self.spec(operation, call, &inputs, attrs, &outputs) else {
            self.give_unknown(call);
            return;
        };
        let label_name = call.label.as_ref().map(|label| label.name.symbol);
        let mut views = Vec::with_capacity(outputs.len());
        for (index, output) in outputs.iter().enumerate() {
            let view = match output {
                Output::Given(view, _) => *view,
                Output::None | Output::Cell(_) => {
                    let tensor = self.program.spec(spec).outputs[index];
                    let mut name = label_name.unwrap_or_else(|| self.names.intern(operation.name()));
                    if let [_, _, ..] = operation.signature().outputs {
                        let text = format!("{}.{}", self.names.name(name), operation.signature().outputs[index]);
                        name = self.names.intern(&text);
                    }
                    self.scratch(tensor.dtype, tensor.dims, name, call.span)
                }
            };
            if let Output::Cell(cell) = output {
                self.expansion.outputs[*cell as usize] = Written::To(view);
            }
            views.push(view);
        }
        if !self.check_overlap(operation, call, &inputs, &views, &outputs) {
            self.give_unknown(call);
            return;
        }
        let label = self.open_label(call);
        let Some(op) = self.push_op(OpKind::Run(spec), call, label, &inputs.views, &views) else { return };
        if let Some(label) = label {
            self.close_label(call, label, LabelData::operation(op));
        }
    }

    /// An operation may not read memory that it writes, unless it goes element by element over the same slice.
    fn check_overlap(
        &mut self,
        operation: &dyn Operation,
        call: &Call,
        inputs: &Inputs,
        views: &[ViewId],
        outputs: &[Output],
    ) -> bool {
        for (index, &view) in views.iter().enumerate() {
            let Output::Given(_, at) = &outputs[index] else { continue };
            let others = inputs.views.iter().copied().zip(inputs.spans.iter().copied());
            let later =
                views[index + 1..].iter().copied().zip(call.outputs.iter().skip(index + 1).map(|arg| arg.value.span));
            let reads = inputs.views.len();
            for (place, (other, other_at)) in others.chain(later).enumerate() {
                let same = place < reads && other == view && operation.in_place();
                if !same && self.program.views.overlap(view, other) {
                    let memory = self.program.views.memory(view);
                    let name = self.names.name(self.program.memory(memory).name).to_owned();
                    self.error(ModelError::Overlap { name, output: (*at).into(), other: other_at.into() });
                    return false;
                }
            }
        }
        true
    }

    fn inputs(&mut self, operation: &dyn Operation, call: &Call, inputs: &mut Inputs, attrs: &mut Attrs) {
        let signature = operation.signature();
        let required = signature.inputs.iter().filter(|input| !matches!(input, Input::Optional(_))).count();
        if call.inputs.len() < required || call.inputs.len() > signature.inputs.len() {
            let expected = match (required, signature.inputs.len()) {
                (0, 0) => "no inputs".to_owned(),
                (1, 1) => "one input".to_owned(),
                (low, high) if low == high => format!("{low} inputs"),
                (low, high) => format!("{low} to {high} inputs"),
            };
            let given = call.inputs.len();
            self.error(ModelError::ArgumentCount {
                function: operation.name().to_owned(),
                expected,
                found: format!("{given} {}", if given == 1 { "is" } else { "are" }),
                at: call.span.into(),
                help: Some(format!("it is `{}`", usage(operation))),
            });
            inputs.failed = true;
        }
        for (arg, input) in call.inputs.iter().zip(signature.inputs) {
            self.no_peer(arg);
            match input {
                Input::Tensor(_) | Input::Optional(_) => {
                    match self.input_view(&arg.value, operation.name()) {
                        Some(view) => {
                            inputs.views.push(view);
                            inputs.spans.push(arg.value.span);
                        }
                        None => inputs.failed = true,
                    };
                }
                Input::Scalar(option) => match self.attr(option, &arg.value) {
                    Some(value) => attrs.push(option.name, value, Some(arg.value.span)),
                    None => inputs.failed = true,
                },
                Input::Expression => {
                    let lowered = self.lower(&arg.value, operation.name());
                    match lowered {
                        Some((expression, views, spans)) => {
                            inputs.expression = Some(expression);
                            inputs.views = views;
                            inputs.spans = spans;
                        }
                        None => inputs.failed = true,
                    }
                }
            }
        }
    }

    pub(super) fn no_peer(&mut self, arg: &Arg) {
        if let Some(at) = &arg.at {
            self.not_yet("an operand on another rank", "it comes with runs on several GPUs", at.span);
        }
    }

    /// The slice that an input stands for; a bare type is memory of its own.
    pub(super) fn input_view(&mut self, expr: &Expr, name: &str) -> Option<ViewId> {
        match self.eval(expr) {
            Value::Type(dtype, dims) => {
                let symbol = self.names.intern(name);
                Some(self.bare(dtype, dims, symbol, expr.span))
            }
            value => self.view_of(&value, expr.span),
        }
    }

    /// Memory of an input that was given as a type: its own for each place and loop turn, the same in each iteration.
    pub(super) fn bare(&mut self, dtype: DType, dims: Dims, name: Symbol, span: SrcSpan) -> ViewId {
        let turn = self.expansion.bare_turns.entry(span).or_insert(0);
        let key = (span, *turn);
        *turn += 1;
        let shape = self.program.shapes.intern(dtype, dims);
        let known = self.expansion.bare.get(&key).copied();
        let memory = known.filter(|&memory| self.program.memory(memory).shape == shape).unwrap_or_else(|| {
            let seed = self.program.memories.len() as u64 + 1;
            self.add_memory(Memory {
                name,
                kind: MemoryKind::Bare(Init::Random { seed, deviation: 1.0 }),
                space: Space::Device,
                family: 0,
                shape,
                span,
            })
        });
        self.expansion.bare.insert(key, memory);
        self.all_of(memory)
    }

    fn scratch(&mut self, dtype: DType, dims: Dims, name: Symbol, span: SrcSpan) -> ViewId {
        let shape = self.program.shapes.intern(dtype, dims);
        let memory =
            self.add_memory(Memory { name, kind: MemoryKind::Scratch, space: Space::Device, family: 0, shape, span });
        self.all_of(memory)
    }

    pub(super) fn all_of(&mut self, memory: MemoryId) -> ViewId {
        let layout = self.program.layout(memory);
        self.program.views.whole(memory, &layout)
    }

    fn outputs(&mut self, operation: &dyn Operation, call: &Call) -> Option<Vec<Output>> {
        let names = operation.signature().outputs;
        if call.outputs.len() > names.len() {
            let expected = match names.len() {
                0 => "no outputs".to_owned(),
                1 => "one output".to_owned(),
                count => format!("at most {count} outputs"),
            };
            self.error(ModelError::ArgumentCount {
                function: operation.name().to_owned(),
                expected,
                found: format!("{} are", call.outputs.len()),
                at: call.span.into(),
                help: Some(format!("it is `{}`", usage(operation))),
            });
            return None;
        }
        let mut outputs = Vec::with_capacity(names.len());
        let mut good = true;
        for arg in &call.outputs {
            if arg.value.as_name() == Some(self.builtins.unwanted) {
                outputs.push(Output::None);
                continue;
            }
            match self.output_argument(arg) {
                Value::Output(cell) => outputs.push(Output::Cell(cell)),
                Value::Tensor { view, .. } => outputs.push(Output::Given(view, arg.value.span)),
                Value::Unknown => good = false,
                other => {
                    self.wrong_type::<()>("a buffer", &other, arg.value.span);
                    good = false;
                }
            }
        }
        outputs.resize_with(names.len(), || Output::None);
        good.then_some(outputs)
    }

    /// An operand behind the arrow: a slice, or an output of the definition around that nothing has written.
    pub(super) fn output_argument(&mut self, arg: &Arg) -> Value {
        self.no_peer(arg);
        if let Some(name) = arg.value.as_name()
            && let Some(Value::Output(cell)) = self.scopes.get(name)
        {
            return self.output_value(*cell);
        }
        match self.eval(&arg.value) {
            Value::Type(..) | Value::DType(_) => {
                self.error(ModelError::WrittenType { at: arg.value.span.into() });
                Value::Unknown
            }
            Value::Label(label) => match self.single_output(&Value::Label(label), arg.value.span) {
                Some(view) => Value::Tensor { view, family: 0 },
                None => Value::Unknown,
            },
            Value::Tensor { view, family } => {
                let memory = self.program.views.memory(view);
                if matches!(self.program.memory(memory).kind, MemoryKind::Bare(_)) {
                    self.error(ModelError::WrittenType { at: arg.value.span.into() });
                    return Value::Unknown;
                }
                Value::Tensor { view, family }
            }
            value => value,
        }
    }

    // --- Specs ------------------------------------------------------------------------------------------------

    /// The spec of a call; the shape rule runs once for each distinct one.
    fn spec(
        &mut self,
        operation: &'static dyn Operation,
        call: &Call,
        inputs: &Inputs,
        attrs: Attrs,
        outputs: &[Output],
    ) -> Option<SpecId> {
        let place = ops::CATALOGUE.iter().position(|entry| entry.name() == operation.name()).unwrap_or(0);
        let attrs_key = match self.expansion.attrs.get_index_of(&attrs) {
            Some(index) => index,
            None => self.expansion.attrs.insert_full(attrs.clone()).0,
        };
        let expression_key = match &inputs.expression {
            None => u32::MAX,
            Some(expression) => self.expansion.expressions.insert_full(expression.clone()).0 as u32,
        };
        let mut key = std::mem::take(&mut self.expansion.scratch_key);
        key.clear();
        key.extend([place as u32, attrs_key as u32, expression_key, inputs.views.len() as u32]);
        key.extend(inputs.views.iter().map(|&view| self.program.views.tensor_key(view)));
        key.extend(outputs.iter().map(|output| match output {
            Output::Given(view, _) => self.program.views.tensor_key(*view),
            _ => u32::MAX,
        }));
        let known = self.expansion.spec_cache.get(key.as_slice()).copied();
        let spec = known.or_else(|| {
            let spec = self.infer(operation, call, inputs, attrs, outputs)?;
            let id = SpecId::from(self.program.specs.insert_full(spec).0);
            self.expansion.spec_cache.insert(key.as_slice().into(), id);
            Some(id)
        });
        self.expansion.scratch_key = key;
        spec
    }

    fn infer(
        &mut self,
        operation: &'static dyn Operation,
        call: &Call,
        inputs: &Inputs,
        attrs: Attrs,
        outputs: &[Output],
    ) -> Option<Spec> {
        let operand = |view: ViewId, span: SrcSpan| Operand { tensor: *self.program.views.tensor(view), span };
        let input_operands: Vec<Operand> =
            inputs.views.iter().zip(&inputs.spans).map(|(&view, &span)| operand(view, span)).collect();
        let output_operands: Vec<Option<Operand>> = outputs
            .iter()
            .map(|output| match output {
                Output::Given(view, span) => Some(operand(*view, *span)),
                _ => None,
            })
            .collect();
        let question = ops::Call {
            operation,
            span: call.span,
            inputs: &input_operands,
            outputs: &output_operands,
            attrs: &attrs,
            expression: inputs.expression.as_deref(),
            ranks: u64::from(self.options.world),
        };
        let types = match operation.infer(&question) {
            Ok(types) => types,
            Err(error) => {
                self.error(error.into());
                return None;
            }
        };
        // Below this, all outputs of the most operations that are possible can be added up.
        let limit = self.options.max_memory.min(1 << 41);
        for (dtype, dims) in &types {
            let bytes = dims.elements().and_then(|elements| elements.checked_mul(dtype.size()));
            if bytes.is_none_or(|bytes| bytes > limit) {
                self.error(ModelError::BadSize {
                    what: format!("the result of `{}`", operation.name()),
                    value: format!("{dtype}{dims}, more than {}", Bytes(limit)),
                    at: call.span.into(),
                    help: "lower a dimension of its inputs, or raise the limit: --config max_memory=…",
                });
                return None;
            }
        }
        let outputs = output_operands
            .iter()
            .zip(types)
            .map(|(given, (dtype, dims))| match given {
                Some(given) => given.tensor,
                None => {
                    ops::Tensor { dtype, dims, strides: dims.contiguous_strides(), space: Space::Device, align: 16 }
                }
            })
            .collect();
        Some(Spec {
            operation,
            attrs,
            expression: inputs.expression.clone(),
            inputs: input_operands.iter().map(|operand| operand.tensor).collect(),
            outputs,
            ranks: u64::from(self.options.world),
        })
    }
}

/// `gemm(a, b -> c, transpose_a:, …)`: an operation as it is used.
pub(super) fn usage(operation: &dyn Operation) -> String {
    let signature = operation.signature();
    let mut parts: Vec<String> = signature
        .inputs
        .iter()
        .map(|input| match input {
            Input::Tensor(name) => (*name).to_owned(),
            Input::Optional(name) => format!("[{name}]"),
            Input::Scalar(option) => option.name.to_owned(),
            Input::Expression => "expression".to_owned(),
        })
        .collect();
    parts.extend(signature.options.iter().map(|option| match option.default {
        Preset::Required => format!("{}:", option.name),
        _ => format!("[{}:]", option.name),
    }));
    let arrow = match signature.outputs {
        [] => String::new(),
        outputs => format!(" -> {}", outputs.join(", ")),
    };
    format!("{}({}{arrow})", operation.name(), parts.join(", "))
}
