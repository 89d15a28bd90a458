//! Calls of operations: evaluates operands and options, and infers outputs.

use crate::base::{LabelId, OpId, SpecId, SrcSpan, ViewId, counted};
use crate::ops::{self, Attrs, Input, Operation, Property, Team, usage};
use crate::syntax::ast::*;
use crate::syntax::written;

use super::lower::Lowering;
use crate::model::analyzer::Analyzer;
use crate::model::error::{IN_PLACE, ModelError, PeerError};
use crate::model::expand::{Expansion, OutputState};
use crate::model::names::callee::Callee;
use crate::model::names::labels::LabelData;
use crate::model::program::{After, MemoryKind, NewOp, OpKind};
use crate::model::ranks::mesh::WORLD;
use crate::model::values::value::Value;

/// An output after the arrow.
#[derive(Debug)]
pub(in crate::model) enum Output {
    /// No name: scratch memory.
    None,
    Given(ViewId, SrcSpan),
    /// An output of the enclosing definition, written here for the first time.
    Cell(u32),
}

/// Operands of an operation while they are collected.
#[derive(Debug, Default)]
pub(in crate::model) struct Inputs {
    pub views: Vec<ViewId>,
    pub spans: Vec<SrcSpan>,
    pub attrs: Attrs,
    pub lowering: Lowering,
    /// True if the operation has the expression in `lowering`.
    pub has_expression: bool,
    pub outputs: Vec<Output>,
    pub written: Vec<ViewId>,
    pub failed: bool,
}

impl Inputs {
    fn clear(&mut self) {
        self.views.clear();
        self.spans.clear();
        self.attrs.clear();
        self.lowering.clear();
        self.has_expression = false;
        self.outputs.clear();
        self.written.clear();
        self.failed = false;
    }
}

impl<'a> Analyzer<'a> {
    /// Expands a call of an operation, a kernel or a definition.
    pub(in crate::model) fn call(&mut self, call: &'a Call) {
        // The check of names has already reported other callees.
        let [callee] = call.callee.as_slice() else { return self.declare_failed_call(call) };
        match self.callee(callee.symbol) {
            Callee::Def(decl) => {
                self.no_group(call);
                self.call_def(call, decl);
            }
            Callee::Kernel => {
                self.no_group(call);
                let kernel = self.kernels.get(&callee.symbol).cloned().flatten();
                let fits = self.fits_host_stream("kernel", false, call);
                if kernel.filter(|_| fits).and_then(|kernel| self.call_kernel(call, &kernel)).is_none() {
                    self.declare_failed_call(call);
                }
            }
            Callee::Marker(name) => {
                self.no_group(call);
                self.marker(name, call);
            }
            Callee::Gradient => {
                self.no_group(call);
                if !self.fits_host_stream("grad", false, call) || self.gradient(call).is_none() {
                    self.declare_failed_call(call);
                }
            }
            Callee::Operation(place) => {
                // The vectors are reused from operation to operation.
                let mut inputs = std::mem::take(&mut self.expansion.inputs);
                inputs.clear();
                if self.operation(place, call, &mut inputs).is_none() {
                    self.declare_failed_call(call);
                }
                self.expansion.inputs = inputs;
            }
            // The check of names has reported the callee; here only its label and outputs become known.
            Callee::Unknown => self.declare_failed_call(call),
        }
    }

    /// Declares a failed call's label without a value, so that its uses are not reported.
    pub(in crate::model) fn declare_failed_call(&mut self, call: &Call) {
        self.expansion.failed += 1;
        self.declare_unknown_label(call);
        for output in &call.outputs {
            // An output of the enclosing definition counts as written.
            if let Some(name) = output.value.as_name()
                && let Some(Value::Output(cell)) = self.scopes.get(name)
                && let slot = &mut self.expansion.outputs[*cell as usize]
                && matches!(slot, OutputState::NotYet)
            {
                *slot = OutputState::Failed;
            }
        }
    }

    /// Declares the label of a failed call without a value, so that its uses are not reported.
    pub(in crate::model) fn declare_unknown_label(&mut self, call: &Call) {
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
        if self.expansion.batch.is_some() {
            let help = "a group holds collectives, `send` and `recv`, which are issued together: move it out";
            self.not_in_group(&format!("`{name}`"), help, call.span);
            return self.declare_failed_call(call);
        }
        let takes = usize::from(name == "wait");
        if call.inputs.len() != takes || !call.outputs.is_empty() || !call.options.is_empty() {
            let expected = if takes == 1 { "one label" } else { "nothing" };
            let given = call.inputs.len() + call.outputs.len() + call.options.len();
            let help = format!("it is `{name}({})`", if takes == 1 { "label" } else { "" });
            self.error(ModelError::argument_count(name, expected, given, call.span, help));
            self.declare_failed_call(call);
            return;
        }
        let kind = match name {
            "signal" => OpKind::Signal,
            "wait" => OpKind::Wait,
            "host_sync" => OpKind::HostSync,
            _ => OpKind::Sync,
        };
        let mut after = Vec::new();
        if let Some(arg) = call.inputs.first() {
            let value = self.eval(&arg.value);
            after = self.waited_for(&value, arg.value.span);
        }
        let label = self.open_label(call);
        let Some(op) = self.push_op(kind, call.span, label, &[], &[]) else { return };
        for after in after {
            self.expansion.step.push_after(after);
        }
        if let Some(label) = label {
            self.close_label(call, label, LabelData::operation(op));
        }
    }

    /// Adds an operation with the dependencies of the open blocks; `None` if that would exceed the limit of operations.
    pub(in crate::model) fn push_op(
        &mut self,
        kind: OpKind,
        span: SrcSpan,
        label: Option<LabelId>,
        inputs: &[ViewId],
        outputs: &[ViewId],
    ) -> Option<OpId> {
        if !self.room_for_operation(span) {
            return None;
        }
        let stream = self.current_stream();
        let Expansion { phase, turn, .. } = self.expansion;
        let new = NewOp { kind, stream, label: label.unwrap_or(self.expansion.label), phase, turn, span };
        let op = self.expansion.step.push(new, inputs, outputs);
        if self.expansion.on_depth > 0 {
            self.expansion.on_depths.resize(op.index(), 0);
            self.expansion.on_depths.push(self.expansion.on_depth);
        }
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

    /// Expands a call of an operation. Returns `None` if it has an error.
    fn operation(&mut self, place: usize, call: &'a Call, operands: &mut Inputs) -> Option<()> {
        let operation = ops::CATALOGUE[place];
        let peer = self.peer(operation, call);
        if !matches!(peer, Ok(Some(None))) || !operation.has(Property::WritesToPeers) {
            return self.expand_operation(place, call, peer, operands);
        }
        // The slices of a rank that sends nothing need not exist there. Where they do, a label has the output of its copy.
        let raised = self.mistakes.raised;
        self.mistakes.are_slices_muted = true;
        let done = self.expand_operation(place, call, peer, operands);
        self.mistakes.are_slices_muted = false;
        if done.is_none() && self.mistakes.raised == raised { self.receive(call) } else { done }
    }

    /// Expands a copy to another rank on a rank that sends nothing.
    fn receive(&mut self, call: &'a Call) -> Option<()> {
        let spec = ops::PeerCopy::of(None, Vec::new(), self.team(WORLD));
        let spec = SpecId::from(self.program.specs.insert_full(spec).0);
        let label = self.open_label(call);
        if let Some(op) = self.push_op(OpKind::Run(spec), call.span, label, &[], &[]) {
            self.expansion.step.push_peer(None);
            if let Some(label) = label {
                self.close_label(call, label, LabelData::operation(op));
            }
        }
        Some(())
    }

    /// Expands a call of an operation, given the result of [`Analyzer::peer`]. Returns `None` if the call has an error.
    fn expand_operation(
        &mut self,
        place: usize,
        call: &'a Call,
        peer: Result<Option<Option<u32>>, ()>,
        operands: &mut Inputs,
    ) -> Option<()> {
        let operation = ops::CATALOGUE[place];
        if self.misplaced(operation, call) {
            self.check_words(operation, call);
            return None;
        }
        if !self.fits_host_stream(operation.name(), operation.has(Property::OnHost), call)
            || !self.fits_device_stream(operation, call)
        {
            return None;
        }
        let fits = self.fits_group(operation, call);
        let group = self.group_over(operation, call);
        self.inputs(operation, call, operands);
        let options_good = self.op_options(operation, call, &mut operands.attrs);
        self.outputs(operation, call, &operands.attrs, &mut operands.outputs)?;
        let differ = self.outputs_differ(operation.name(), call, operands.outputs.iter().map(Some));
        let group = group.filter(|_| fits && differ && options_good && !operands.failed)?;
        let peer = peer.ok()?;
        for (dtype, dims) in operation.own_inputs(&operands.attrs) {
            let name = self.names.intern(operation.name());
            operands.views.push(self.bare(dtype, dims, name, call.span));
            operands.spans.push(call.span);
        }
        if operation.updates(&operands.attrs) {
            for output in &operands.outputs {
                if let Output::Given(view, span) = output {
                    operands.views.push(*view);
                    operands.spans.push(*span);
                }
            }
        }
        if !self.host_reaches(operation, call, operands, &operands.outputs) {
            return None;
        }
        let team = self.team(group);
        let spec = self.spec(place, call, operands, (&operands.attrs, team), &operands.outputs)?;
        for (index, output) in operands.outputs.iter().enumerate() {
            let view = match output {
                Output::Given(view, span) => {
                    self.name_typed_scratch(*view, *span, (operation, spec), call);
                    *view
                }
                Output::None | Output::Cell(_) => self.scratch(operation, spec, index, call),
            };
            if let Output::Cell(cell) = output {
                self.expansion.outputs[*cell as usize] = OutputState::To(view);
            }
            operands.written.push(view);
        }
        // A copy to other ranks is checked by `link`, when all ranks are known.
        let fits = match peer {
            Some(_) => self.fits_peer(call, operands),
            None => self.check_overlap(operation, operands, team),
        };
        if !fits {
            return None;
        }
        if self.expansion.batch.is_some() {
            return self.batch_part(operation, call, spec, operands);
        }
        let label = self.open_label(call);
        // If adding the operation fails, a limit was exceeded, which has been reported.
        let op = self.push_op(OpKind::Run(spec), call.span, label, &operands.views, &operands.written);
        if let (Some(to), Some(_)) = (peer, op) {
            self.expansion.step.push_peer(to.map(|to| (to, operands.written[0])));
        }
        if let (Some(label), Some(op)) = (label, op) {
            self.close_label(call, label, LabelData::operation(op));
        }
        Some(())
    }

    /// Checks that the outputs of a call are separate memory. `outputs` has those that the call names, in their order; `None` where
    /// one is not known.
    pub(super) fn outputs_differ<'o>(
        &mut self,
        of: &str,
        call: &Call,
        outputs: impl Iterator<Item = Option<&'o Output>>,
    ) -> bool {
        if call.outputs.len() < 2 {
            return true;
        }
        let outputs: Vec<Option<&Output>> = outputs.take(call.outputs.len()).collect();
        let shared = |one: &Output, other: &Output| match (one, other) {
            (Output::Given(one, _), Output::Given(other, _)) => self.program.views.overlap(*one, *other),
            (Output::Cell(one), Output::Cell(other)) => one == other,
            _ => false,
        };
        let pairs = outputs.iter().enumerate().flat_map(|(index, one)| {
            outputs.iter().enumerate().skip(index + 1).map(move |(later, other)| ((index, *one), (later, *other)))
        });
        let found = pairs.into_iter().find_map(|((index, one), (later, other))| {
            shared(one?, other?).then_some((&call.outputs[index].value, &call.outputs[later].value))
        });
        let Some((first, second)) = found else { return true };
        self.error(ModelError::OutputTwice {
            name: written(second, &self.names),
            of: of.to_owned(),
            first: first.span.into(),
            second: second.span.into(),
        });
        false
    }

    /// Checks that an operation does not read memory that it writes. Exceptions are elementwise operations on the same
    /// slice, and collectives in which a rank's own part is the other operand.
    pub(super) fn check_overlap(&mut self, operation: &dyn Operation, inputs: &Inputs, team: Team) -> bool {
        let views = &inputs.written;
        for (index, &view) in views.iter().enumerate() {
            let Output::Given(_, at) = &inputs.outputs[index] else { continue };
            let others = inputs.views.iter().copied().zip(inputs.spans.iter().copied());
            let reads = inputs.views.len();
            // An operation that updates its outputs reads them after its other inputs.
            let updated = if operation.updates(&inputs.attrs) { reads - views.len().min(reads)..reads } else { 0..0 };
            for (place, (other, other_at)) in others.enumerate() {
                let same = other == view && (operation.has(Property::InPlace) || updated.contains(&place));
                if !same
                    && self.program.views.overlap(view, other)
                    && !(operation.has(Property::OwnPart) && self.is_own_part(view, other, team))
                {
                    let memory = self.program.views.memory(view);
                    let name = self.names.name(self.program.memory(memory).name).to_owned();
                    self.error(ModelError::Overlap {
                        name,
                        exception: IN_PLACE,
                        output: (*at).into(),
                        other: other_at.into(),
                    });
                    return false;
                }
            }
        }
        true
    }

    /// True if the smaller of two slices is this rank's own part of the larger one.
    fn is_own_part(&mut self, a: ViewId, b: ViewId, team: Team) -> bool {
        // The part differs between ranks.
        self.program.by_rank = true;
        let dims = self.program.layout(self.program.views.memory(a)).dims;
        let place = |view| (self.program.views.offset(view, &dims), self.program.views.tensor(view).elements());
        let (small, large) = match place(a).1 < place(b).1 {
            true => (place(a), place(b)),
            false => (place(b), place(a)),
        };
        small.0 == large.0 + u64::from(team.rank) * small.1
    }

    /// Evaluates the inputs of a call, and adds them to `inputs`. Reports errors.
    pub(in crate::model) fn inputs(&mut self, operation: &dyn Operation, call: &Call, inputs: &mut Inputs) {
        let signature = operation.signature();
        if call.inputs.len() < signature.least() || call.inputs.len() > signature.most() {
            let expected = expected_inputs(operation);
            let given = call.inputs.len();
            let help = match operation.name() {
                "recv" => RECEIVED.to_owned(),
                name if signature.category == ops::Category::RowWise
                    && !signature.options.iter().any(|option| option.name.starts_with("dim"))
                    && call.inputs.last().is_some_and(|arg| is_dim(&arg.value)) =>
                {
                    match written(&call.inputs[call.inputs.len() - 1].value, &self.names).as_str() {
                        "-1" => "it works along the last dimension: leave out `-1`".to_owned(),
                        _ => crate::model::names::unknown::last_dimension(name),
                    }
                }
                _ => format!("it is `{}`", usage(operation)),
            };
            self.error(ModelError::argument_count(operation.name(), expected, given, call.span, help));
            inputs.failed = true;
            return;
        }
        let places = (0..).map_while(|place| signature.input(place));
        for (arg, input) in call.inputs.iter().zip(places) {
            self.no_peer(arg);
            match input {
                Input::Tensor(_) | Input::Optional(_) | Input::Tensors(_) => {
                    match self.input_view(&arg.value, operation.name()) {
                        Some(view) => {
                            inputs.views.push(view);
                            inputs.spans.push(arg.value.span);
                        }
                        None => inputs.failed = true,
                    };
                }
                Input::Scalar(option) => match self.attr(option, &arg.value) {
                    Some(value) => inputs.attrs.push(option.name, value, Some(arg.value.span)),
                    None => inputs.failed = true,
                },
                Input::Expression | Input::Expressions => {
                    match self.lower(&arg.value, operation.name(), &mut inputs.lowering) {
                        Some(()) => {
                            inputs.has_expression = true;
                            inputs.views.clone_from(&inputs.lowering.views);
                            inputs.spans.clone_from(&inputs.lowering.spans);
                        }
                        None => inputs.failed = true,
                    }
                }
            }
        }
    }

    /// Reports `at` after anything but the output of an operation that writes to other ranks.
    pub(in crate::model) fn no_peer(&mut self, arg: &Arg) {
        if let Some(at) = &arg.at {
            self.error(PeerError::Operand { at: at.rank.span.into() });
        }
    }

    /// Returns the slice of an input; creates memory for a bare type. `None` after an error, which has been reported.
    pub(super) fn input_view(&mut self, expr: &Expr, name: &str) -> Option<ViewId> {
        match self.eval(expr) {
            Value::Type(dtype, dims) => {
                let symbol = self.names.intern(name);
                Some(self.bare(dtype, *dims, symbol, expr.span))
            }
            value => self.view_of(&value, expr.span),
        }
    }

    fn outputs(
        &mut self,
        operation: &dyn Operation,
        call: &Call,
        attrs: &Attrs,
        outputs: &mut Vec<Output>,
    ) -> Option<()> {
        let count = operation.outputs(attrs, call.inputs.len(), call.outputs.len());
        if matches!(operation.signature().inputs, [Input::Expressions]) && self.outputs_of_expressions(operation, call)
        {
            return None;
        }
        if call.outputs.len() > count {
            let expected = match count {
                0 => "no outputs".to_owned(),
                1 => "one output".to_owned(),
                count => format!("at most {count} outputs"),
            };
            let (given, help) = (call.outputs.len(), format!("it is `{}`", usage(operation)));
            return self.fail(ModelError::argument_count(operation.name(), expected, given, call.span, help));
        }
        let mut good = true;
        for arg in &call.outputs {
            if arg.value.as_name() == Some(self.builtins.unwanted) {
                outputs.push(Output::None);
                continue;
            }
            if !operation.has(Property::WritesToPeers) {
                self.no_peer(arg);
            }
            let name = operation.signature().outputs[outputs.len()];
            match self.output_argument(arg, call, name, call.outputs.len() > 1) {
                Value::Output(cell) => outputs.push(Output::Cell(cell)),
                Value::Tensor { view, .. } => outputs.push(Output::Given(view, arg.value.span)),
                Value::Unknown => good = false,
                other => {
                    self.wrong_type::<()>("a buffer", &other, arg.value.span);
                    good = false;
                }
            }
        }
        outputs.resize_with(count, || Output::None);
        good.then_some(())
    }

    /// Reports a call with another number of outputs than expressions, and returns true. Outputs may be left out if there is a
    /// label, by which the others can be read.
    fn outputs_of_expressions(&mut self, operation: &dyn Operation, call: &Call) -> bool {
        let (expressions, outputs) = (call.inputs.len(), call.outputs.len());
        if outputs <= expressions && (outputs == expressions || outputs == 0 || call.label.is_some()) {
            return false;
        }
        let list = |args: &[Arg], missing: usize, other: &str| {
            let args = args.iter().map(|arg| written(&arg.value, &self.names));
            args.chain(std::iter::repeat_n(other.to_owned(), missing)).collect::<Vec<_>>().join(", ")
        };
        let inputs = list(&call.inputs, outputs.saturating_sub(expressions), "…");
        let all = list(&call.outputs, expressions.saturating_sub(outputs), "_");
        let discarded = if outputs < expressions { ", and `_` discards one" } else { "" };
        let help = format!("each expression has an output{discarded}: `{}({inputs} -> {all})`", operation.name());
        let expected = format!("{} for {}", counted(expressions, "output"), counted(expressions, "expression"));
        self.error(ModelError::argument_count(operation.name(), expected, outputs, call.span, help));
        true
    }

    /// Evaluates an operand after the arrow of a call: a slice, a type, which creates scratch memory, or an output of the
    /// enclosing definition that is not written yet. `output` is the name of the output in its signature, which may be one of
    /// `several`.
    pub(in crate::model) fn output_argument(&mut self, arg: &Arg, call: &Call, output: &str, several: bool) -> Value {
        if let Some(name) = arg.value.as_name()
            && let Some(Value::Output(cell)) = self.scopes.get(name)
        {
            return self.output_value(*cell);
        }
        match self.eval(&arg.value) {
            Value::Type(dtype, dims) => {
                let view = self.typed_scratch((dtype, *dims), arg.value.span, call, output, several);
                Value::Tensor { view, family: 0 }
            }
            Value::DType(_) => self.fail_value(self.written_type(arg, false)),
            Value::Label(label) => match self.single_output(&Value::Label(label), arg.value.span) {
                Some(view) => Value::Tensor { view, family: 0 },
                None => Value::Unknown,
            },
            Value::Tensor { view, family } => {
                let memory = self.program.views.memory(view);
                if matches!(self.program.memory(memory).kind, MemoryKind::Bare(_)) {
                    return self.fail_value(self.written_type(arg, true));
                }
                Value::Tensor { view, family }
            }
            value => value,
        }
    }

    /// The error for an output that is an element type, or an input of a definition that is called with a type.
    fn written_type(&self, arg: &Arg, is_input: bool) -> ModelError {
        let name = written(&arg.value, &self.names);
        let (why, help) = match is_input {
            true => (
                "the call gives a type here, not a buffer",
                "declare a buffer, `buffer y: f32[4, 8]`, and pass it to the call".to_owned(),
            ),
            false => (
                "this is an element type, not a buffer",
                format!(
                    "write its sizes too, `-> {name}[4, 8]`, or leave `-> …` out and convert the result: `y: cast(x, to: {name})`, \
                     where `x` is the label of this operation"
                ),
            ),
        };
        ModelError::WrittenType { name, why, help, at: arg.value.span.into() }
    }
}

/// True for a whole number, as which other tools pass a dimension.
fn is_dim(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Negate(inner) => matches!(inner.kind, ExprKind::Int(_)),
        kind => matches!(kind, ExprKind::Int(_)),
    }
}

/// Describes how many inputs an operation takes.
pub(super) fn expected_inputs(operation: &dyn Operation) -> String {
    let signature = operation.signature();
    match (signature.least(), signature.most()) {
        (0, 0) => "no inputs".to_owned(),
        (1, 1) => "one input".to_owned(),
        (low, high) if low == high => format!("{low} inputs"),
        (low, high) => format!("{low} to {high} inputs"),
    }
}

/// Help for a `recv` whose memory is not declared: nothing else determines the size of the received data.
const RECEIVED: &str = "write the memory of the received data after the arrow: a buffer, `recv(-> y, from: 0)`, or a type, \
     `y: recv(-> f32[4], from: 0)`";
