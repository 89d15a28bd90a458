//! `grad(f, dy -> dx, …)`: the gradients of the inputs of an operation or a call from those of its outputs.
//!
//! Gradients become ordinary operations at this position of the text. First, the operations of `f` are visited from the
//! last to the first, and the backward pass of each is recorded on a tape. Then memory is allocated for the steps of
//! the tape whose results are used.

mod emit;
mod join;
mod options;
mod walk;
mod writers;

use crate::base::{LabelId, OpId, SrcSpan, ViewId};
use crate::ops::backward::TensorId;
use crate::ops::{OpError, Tensor};
use crate::syntax::ast::{Call, Expr, ExprKind};
use crate::syntax::written;

use super::analyzer::Analyzer;
use super::error::{GradientError, LimitError, ModelError};
use super::expand::OutputState;
use super::limits::TURNS_PER_OPERATION;
use super::names::callee::GRADIENT;
use super::names::index::Index;
use super::names::labels::LabelData;
use super::program::{Gradient, Label, OpKind, path};
use super::values::functions::FUNCTIONS;
use super::values::value::Value;

use emit::Emission;
use options::{Accumulate, GradientOptions};
use walk::{GradientStop, GradientWalk};
pub(super) use writers::Writers;

/// Origin of steps that belong to no operation of the target.
const WHOLE: u32 = u32::MAX;

/// The labelled operation or call whose gradients are computed.
struct GradientTarget {
    label: LabelId,
    /// Label of the operation as it is written.
    text: String,
    ops: std::ops::Range<u32>,
    /// Number of definitions whose calls are open around the call; `None` for an operation.
    depth: Option<u8>,
    inputs: Vec<(String, ViewId)>,
    outputs: Vec<(String, ViewId)>,
}

/// The first argument of a `grad`, for messages.
const TARGET: &str = "the label of an operation or a call";

/// Ending of the help for a gradient of an 8-bit tensor that has another type.
const OF_FLOAT8: &str = ": gradients of 8-bit floats are f32";

/// A gradient of an output of the target.
enum OutputGradient {
    View(ViewId, SrcSpan),
    /// A number, used for every element.
    Number(f64),
}

/// The destination of the gradient of an input.
enum InputGradient {
    View(ViewId, SrcSpan),
    /// Scratch memory.
    Own,
    /// Scratch memory that becomes an output of the enclosing definition, given by its number.
    Cell(u32),
}

impl<'a> Analyzer<'a> {
    /// Expands a `grad`. Returns `None` if it has an error.
    pub(super) fn gradient(&mut self, call: &'a Call) -> Option<()> {
        if self.expansion.batch.is_some() {
            let help = "a group holds collectives, `send` and `recv`, which are issued together: move it out";
            self.not_in_group(&format!("`{GRADIENT}`"), help, call.span);
            return None;
        }
        let options = self.gradient_options(call)?;
        let target = self.target(call)?;
        let given = self.given(call, &target)?;
        let goals = self.goals(call, &target, &options.accumulate)?;
        self.apart(&given, &goals)?;
        if !self.room_for_turns(TURNS_PER_OPERATION, call.span) {
            return None;
        }
        let label = self.open_label(call);
        let first = self.expansion.step.ops.len() as u32;
        let members = self.expand_gradient(call, &target, (&given, &goals), &options, label)?;
        if let Some(label) = label {
            let ops = first..self.expansion.step.ops.len() as u32;
            let members =
                members.into_iter().map(|(name, view)| (self.names.intern(&name), Value::Tensor { view, family: 0 }));
            let members = members.collect();
            self.close_label(call, label, LabelData::call(ops, members));
        }
        Some(())
    }

    /// Evaluates the first argument, the operation or call to differentiate; `None` after an error.
    fn target(&mut self, call: &Call) -> Option<GradientTarget> {
        let Some(first) = call.inputs.first() else {
            let help = "it is `grad(f, dy -> dx)`, with a gradient for each output and each input of `f`";
            let expected = "a label and the gradients of its outputs";
            return self.fail(ModelError::argument_count(GRADIENT, expected, 0, call.span, help));
        };
        self.no_peer(first);
        let computes = match &first.value.kind {
            ExprKind::Binary { .. } | ExprKind::Negate(_) => true,
            // The names of other calls are no functions, which is an error of its own.
            ExprKind::Call { callee, .. } => FUNCTIONS.contains(&self.names.name(callee.symbol)),
            _ => false,
        };
        if computes {
            let text = written(&first.value, &self.names);
            return self.fail(ModelError::WrongType {
                expected: TARGET.to_owned(),
                found: "an expression".to_owned(),
                at: first.value.span.into(),
                help: Some(format!("let an operation compute it: `c: map({text})`, and write `grad(c, …)`")),
            });
        }
        let label = match self.eval(&first.value) {
            Value::Unknown => return None,
            Value::Label(label) => label,
            other => {
                let text = self.text_of(&first.value);
                let help = match other {
                    Value::Labels(_) => format!("`{text}` is a family of labels: pick one, `{text}[0]`"),
                    _ => "gradients are those of an operation or a call: give it a label, `f: …`, and write `grad(f, dy -> dx)`".to_owned(),
                };
                let found = other.describe(&self.names);
                let expected = TARGET.to_owned();
                return self.fail(ModelError::WrongType {
                    expected,
                    found,
                    at: first.value.span.into(),
                    help: Some(help),
                });
            }
        };
        let text = self.text_of(&first.value);
        let data = self.label_data(label);
        let ops = data.ops.clone();
        let named = |tensors: &[(crate::base::Symbol, ViewId)]| -> Vec<(String, ViewId)> {
            tensors.iter().map(|(name, view)| (self.names.name(*name).to_owned(), *view)).collect()
        };
        if let Some(tensors) = &data.tensors {
            if tensors.incomplete {
                return None;
            }
            let (inputs, outputs) = (named(&tensors.inputs), named(&tensors.outputs));
            return Some(GradientTarget { label, text, ops, depth: Some(tensors.depth), inputs, outputs });
        }
        let op = OpId(ops.start);
        let kind = self.expansion.step.ops.get(op.index()).map(|op| op.kind);
        let Some(OpKind::Run(spec)) = kind.filter(|_| data.is_operation()) else {
            let (why, help) = match kind {
                Some(OpKind::Run(_)) => (
                    "it is a part of a group, or a gradient itself".to_owned(),
                    "put it into a `def` with the operations that belong to it, and write `grad` of its call"
                        .to_owned(),
                ),
                _ => ("it computes nothing".to_owned(), "name an operation or a call that does".to_owned()),
            };
            let at = first.value.span.into();
            let place = "this is not an operation with gradients";
            return self.fail(GradientError::NotDifferentiable {
                what: text,
                why,
                help,
                asked: call.span.into(),
                at,
                place,
            });
        };
        let spec = self.program.spec(spec);
        let signature = spec.operation.signature();
        // The tensors of an expression have names of their own.
        let own = |view: ViewId| self.names.name(self.program.memory(self.program.views.memory(view)).name).to_owned();
        let name = |(place, view): (usize, &ViewId)| match signature.input(place) {
            Some(crate::ops::Input::Tensor(name) | crate::ops::Input::Optional(name)) => ((*name).to_owned(), *view),
            _ => (own(*view), *view),
        };
        let inputs = self.expansion.step.inputs(op).iter().enumerate().map(name);
        let names = spec.output_names().into_iter().map(str::to_owned);
        let outputs = names.zip(self.expansion.step.outputs(op).iter().copied());
        let outputs = outputs.take(spec.operation.outputs_with_gradients(spec)).collect();
        Some(GradientTarget { label, text, ops, depth: None, inputs: inputs.collect(), outputs })
    }

    /// Type and shape of a slice.
    pub(super) fn tensor(&self, view: ViewId) -> Tensor {
        *self.program.views.tensor(view)
    }

    /// Evaluates the gradients of the target's outputs, of those with a floating-point type; `None` after an error.
    fn given(&mut self, call: &Call, target: &GradientTarget) -> Option<Vec<(ViewId, OutputGradient)>> {
        let outputs: Vec<(String, ViewId)> =
            target.outputs.iter().filter(|(_, view)| self.tensor(*view).dtype.is_float()).cloned().collect();
        let args = &call.inputs[1..];
        if let (true, Some(given)) = (outputs.is_empty(), args.first()) {
            let error = GradientError::NotDifferentiable {
                what: target.text.clone(),
                why: "it has no output of a floating-point type".to_owned(),
                help:
                    "whole numbers, such as those of `argmax`, pass no gradient on: take that of an operation before it"
                        .to_owned(),
                asked: given.value.span.into(),
                at: call.inputs[0].value.span.into(),
                place: "no gradient goes through this",
            };
            return self.fail(error);
        }
        if args.len() != outputs.len() {
            let mut help = format!("write one for each output of `{0}`: `grad({0}", target.text);
            for (place, (name, _)) in outputs.iter().enumerate() {
                // A gradient that is missing may be that of an output without a name, which nothing uses.
                help += &if place > 0 && place >= args.len() { ", 0".to_owned() } else { format!(", d{name}") };
            }
            help += if outputs.len() > 1 { " -> …)`; 0 stands for an output that nothing uses" } else { " -> …)`" };
            let expected = match outputs.len() {
                1 => "the gradient of one output".to_owned(),
                count => format!("the gradients of {count} outputs"),
            };
            return self.fail(ModelError::argument_count(GRADIENT, expected, args.len(), call.span, help));
        }
        let mut given = Vec::with_capacity(args.len());
        let mut good = true;
        for (arg, (name, view)) in args.iter().zip(outputs) {
            self.no_peer(arg);
            let value = self.eval(&arg.value);
            if let Value::Number(number) = &value
                && number.dimension == crate::base::units::Dimension::NONE
            {
                given.push((view, OutputGradient::Number(number.value.float())));
                continue;
            }
            let output = self.tensor(view);
            let expected = Tensor { dtype: output.dtype.gradient(), ..output };
            let found = match value {
                Value::Type(dtype, dims) => {
                    let symbol = self.names.intern(GRADIENT);
                    Some(self.bare(dtype, *dims, symbol, arg.value.span))
                }
                value => self.view_of(&value, arg.value.span),
            };
            let Some(found) = found else {
                good = false;
                continue;
            };
            let tensor = self.tensor(found);
            good &= self.fits(
                &name,
                (expected, call.inputs[0].value.span),
                (tensor, &arg.value),
                (tensor.dtype == expected.dtype, if output.dtype.is_float8() { OF_FLOAT8 } else { "" }),
            );
            given.push((view, OutputGradient::View(found, arg.value.span)));
        }
        good.then_some(given)
    }

    /// Checks the shape and type of a gradient. `is_typed` is true if its type is correct; `or` names other types that would be, or
    /// gives the reason of the type.
    fn fits(
        &mut self,
        name: &str,
        (of, of_at): (Tensor, SrcSpan),
        (found, at): (Tensor, &Expr),
        (is_typed, or): (bool, &'static str),
    ) -> bool {
        if !found.space.on_device() {
            let help = "gradients are computed on the device: `copy` them from there";
            self.error(OpError::Space { op: GRADIENT, space: found.space.name(), help, at: at.span.into() });
            return false;
        }
        if found.dims == of.dims && is_typed {
            return true;
        }
        self.error(GradientError::Type {
            name: name.to_owned(),
            expected: of.dims.of(of.dtype),
            or,
            found: found.to_string(),
            at: at.span.into(),
            tensor: of_at.into(),
        });
        false
    }

    /// Evaluates the destinations of the gradients of the target's inputs; an inner `None` is a gradient that is not
    /// requested.
    fn goals(
        &mut self,
        call: &Call,
        target: &GradientTarget,
        accumulate: &Accumulate,
    ) -> Option<Vec<Option<InputGradient>>> {
        if call.outputs.len() > target.inputs.len() {
            let names: Vec<String> = target.inputs.iter().map(|(name, _)| format!("d{name}")).collect();
            let text = &target.text;
            let help = match target.ops.len() {
                1 => format!(
                    "`{text}` is one operation: `grad({text}, … -> {})`; for the gradient of several, call a `def` with all of \
                     them, `f: network(x, w -> y)`, and write `grad(f, …)`",
                    names.join(", ")
                ),
                _ => format!(
                    "write one for each tensor that `{text}` takes: `grad({text}, … -> {})`; for the gradient of a buffer that the \
                     `def` names itself, make it an argument",
                    names.join(", ")
                ),
            };
            let expected = match target.inputs.len() {
                1 => "at most one output".to_owned(),
                count => format!("at most {count} outputs"),
            };
            return self.fail(ModelError::argument_count(GRADIENT, expected, call.outputs.len(), call.span, help));
        }
        let mut goals = Vec::with_capacity(target.inputs.len());
        let mut good = true;
        for (place, (arg, (name, view))) in call.outputs.iter().zip(&target.inputs).enumerate() {
            if arg.value.as_name() == Some(self.builtins.unwanted) {
                goals.push(None);
                continue;
            }
            self.no_peer(arg);
            let of = self.tensor(*view);
            if !of.dtype.is_float() {
                self.whole_numbers(name, of, (call, target), arg.value.span);
                good = false;
                continue;
            }
            match self.output_argument(arg, call, name, target.inputs.len() > 1) {
                Value::Output(_) if accumulate.of(place) => {
                    let help =
                        "`accumulate: true` adds to the contents of an output: write a buffer that has been filled";
                    let at = arg.value.span.into();
                    self.error(OpError::OutputMissing { op: GRADIENT, help, some_given: true, at });
                    good = false;
                }
                Value::Output(cell) => goals.push(Some(InputGradient::Cell(cell))),
                Value::Tensor { view, .. } => {
                    let tensor = self.tensor(view);
                    let at = call.inputs[0].value.span;
                    let typed = (tensor.dtype.is_float(), ", or of another floating-point type");
                    good &= self.fits(name, (of, at), (tensor, &arg.value), typed);
                    goals.push(Some(InputGradient::View(view, arg.value.span)));
                }
                Value::Unknown => good = false,
                other => {
                    self.wrong_type::<()>("a buffer", &other, arg.value.span);
                    good = false;
                }
            }
        }
        if call.outputs.is_empty() {
            if accumulate.of(0) {
                let help = "`accumulate: true` adds to the contents of an output: write `-> dx`";
                let at = call.span.into();
                return self.fail(OpError::OutputMissing { op: GRADIENT, help, some_given: false, at });
            }
            let floats = target.inputs.iter().map(|(_, view)| self.tensor(*view).dtype.is_float());
            goals = floats.map(|float| float.then_some(InputGradient::Own)).collect();
        }
        goals.resize_with(target.inputs.len(), || None);
        good.then_some(goals)
    }

    fn whole_numbers(&mut self, name: &str, of: Tensor, (call, target): (&Call, &GradientTarget), at: SrcSpan) {
        let inputs: Vec<String> = target.inputs.iter().map(|(name, _)| format!("`{name}`")).collect();
        let order = match &inputs[..] {
            [] | [_] => String::new(),
            inputs => format!(": gradients are in the order of the inputs, {}", inputs.join(", ")),
        };
        let error = GradientError::NotDifferentiable {
            what: name.to_owned(),
            why: format!("it is {of}, and whole numbers do not change by small steps"),
            help: format!("write `_` in its place{order}"),
            asked: at.into(),
            at: call.inputs[0].value.span.into(),
            place: "an input of this",
        };
        self.error(error);
    }

    /// Checks that outputs differ from each other and from the gradients that are read.
    fn apart(&mut self, given: &[(ViewId, OutputGradient)], goals: &[Option<InputGradient>]) -> Option<()> {
        let reads = given.iter().filter_map(|(_, given)| match given {
            OutputGradient::View(view, span) => Some((*view, *span)),
            OutputGradient::Number(_) => None,
        });
        let mut others: Vec<(ViewId, SrcSpan)> = reads.collect();
        let reads = others.len();
        for goal in goals {
            let Some(InputGradient::View(view, span)) = goal else { continue };
            let found = others.iter().position(|(other, _)| self.program.views.overlap(*view, *other));
            if let Some(place) = found {
                let other = others[place].1;
                if place < reads {
                    self.overlap(*view, *span, other);
                } else {
                    let name = self.memory_name(*view);
                    let of = GRADIENT.to_owned();
                    self.error(ModelError::OutputTwice { name, of, first: other.into(), second: (*span).into() });
                }
                return None;
            }
            others.push((*view, *span));
        }
        Some(())
    }

    fn memory_name(&self, view: ViewId) -> String {
        let memory = self.program.views.memory(view);
        self.names.name(self.program.memory(memory).name).to_owned()
    }

    fn overlap(&mut self, view: ViewId, output: SrcSpan, other: SrcSpan) {
        let name = self.memory_name(view);
        let exception = "a gradient is several operations, and later ones may read it again";
        self.error(ModelError::Overlap { name, exception, output: output.into(), other: other.into() });
    }

    /// Adds the operations. Returns the gradients with the names of the inputs.
    fn expand_gradient(
        &mut self,
        call: &'a Call,
        target: &GradientTarget,
        (given, goals): (&[(ViewId, OutputGradient)], &[Option<InputGradient>]),
        options: &GradientOptions,
        label: Option<LabelId>,
    ) -> Option<Vec<(String, ViewId)>> {
        let wanted: Vec<(usize, ViewId)> =
            target.inputs.iter().enumerate().map(|(place, (_, view))| (place, *view)).collect();
        let wanted: Vec<(usize, ViewId)> = wanted.into_iter().filter(|(place, _)| goals[*place].is_some()).collect();
        // The walk borrows the program, so memory for its results is added before.
        let goal_views: Vec<ViewId> = wanted
            .iter()
            .map(|&(place, view)| match goals[place] {
                Some(InputGradient::View(view, _)) => view,
                _ => self.scratch_like(view, &target.inputs[place].0, call),
            })
            .collect();
        let step = std::mem::take(&mut self.expansion.step);
        let mut walk = GradientWalk::new(&self.program, &step, options.quantize);
        walk.tape.origin = WHOLE;
        for (view, given) in given {
            let tensor = self.program.views.tensor(*view);
            let value = match given {
                OutputGradient::View(found, _) => walk.value(*found, None),
                OutputGradient::Number(0.0) => continue,
                OutputGradient::Number(number) => {
                    let filled = walk.tape.scratch(tensor.dtype.gradient(), tensor.dims);
                    walk.tape.fill(*number, filled);
                    filled
                }
            };
            walk.add(*view, value);
        }
        let inputs: Vec<ViewId> = wanted.iter().map(|(_, view)| *view).collect();
        let mut found = walk.run(target.ops.clone(), &inputs);
        walk.tape.origin = WHOLE;
        let mut zero = None;
        let mut results: Vec<TensorId> = Vec::new();
        if found.is_ok() {
            for (&(place, view), &goal) in wanted.iter().zip(&goal_views) {
                match walk.write(view, goal, options.accumulate.of(place)) {
                    Ok(Some(to)) => results.push(to),
                    Ok(None) => zero = zero.or(Some(place)),
                    Err(stop) => found = Err(stop),
                }
            }
        }
        let GradientWalk { mut tape, used, .. } = walk;
        self.expansion.step = step;
        if let Err(stop) = found {
            self.stopped(stop, call);
            return None;
        }
        if let Some(place) = zero {
            let name = target.inputs[place].0.clone();
            let at = call.outputs.get(place).map_or(call.span, |arg| arg.value.span);
            return self.fail(GradientError::Zero { name, of: target.text.clone(), at: at.into() });
        }
        let goals_of: Vec<(TensorId, ViewId)> = results.iter().copied().zip(goal_views.iter().copied()).collect();
        join::join_products(&mut tape, |to| {
            let (_, view) = goals_of.iter().find(|(result, _)| *result == to)?;
            Some(self.tensor(*view))
        });
        let steps = emit::needed(&tape);
        self.check_reads(call, target, &tape, (&used, &steps), &goal_views)?;
        let base = label.unwrap_or_else(|| self.unnamed_label(target));
        let from = given.iter().filter_map(|(_, given)| match given {
            OutputGradient::View(view, _) => Some(*view),
            OutputGradient::Number(_) => None,
        });
        let own = from.chain(goal_views.iter().copied()).map(|view| self.program.views.memory(view)).collect();
        self.program.gradients.push(Gradient { label: base, of: target.label, own });
        let mut emission = Emission::new(&tape, &used, call.span, (base, target.label), target.depth);
        self.emit(&mut emission, &steps);
        for (&(place, _), &view) in wanted.iter().zip(&goal_views) {
            if let Some(InputGradient::Cell(cell)) = goals[place] {
                self.expansion.outputs[cell as usize] = OutputState::To(view);
            }
        }
        Some(wanted.iter().zip(goal_views).map(|(&(place, _), view)| (target.inputs[place].0.clone(), view)).collect())
    }

    /// Scratch memory for the gradient of an input.
    fn scratch_like(&mut self, view: ViewId, name: &str, call: &Call) -> ViewId {
        let tensor = self.tensor(view);
        let base = call.label.as_ref().map_or(GRADIENT, |label| self.names.name(label.name.symbol)).to_owned();
        let memory = super::program::Memory {
            name: self.names.intern(&format!("{base}.{name}")),
            kind: super::program::MemoryKind::Scratch,
            space: crate::base::Space::Device,
            family: 0,
            shape: self.program.shapes.intern(tensor.dtype.gradient(), tensor.dims),
            span: call.span,
        };
        let memory = self.add_memory(memory);
        self.all_of(memory)
    }

    /// Creates the label of a `grad` without one. No text can name it.
    fn unnamed_label(&mut self, target: &GradientTarget) -> LabelId {
        let path = self.label_path(target.label);
        let of = if target.text.contains('[') { last_parts(&path, &target.text) } else { &target.text };
        let name = self.names.intern(&format!("{GRADIENT}({of})"));
        self.inner_label(Label { name: Some(name), index: Index::default(), parent: self.expansion.label })
    }

    fn stopped(&mut self, stop: GradientStop, call: &Call) {
        match stop {
            GradientStop::TooMuch => {
                let max_operations = self.options.max_operations;
                let limit = max_operations.saturating_mul(TURNS_PER_OPERATION);
                self.error(LimitError::TooManyTurns { limit, max_operations, at: call.span.into() });
            }
            GradientStop::NoRule(op, why) => {
                let help = "write `_` for the inputs that it computes from, or write their gradients by hand";
                self.no_gradient_through(op, why, help, call);
            }
            GradientStop::ToPeer(op) => {
                let why =
                    "it goes to another rank, and gradients are written before it is known what arrives at a rank";
                let help = "use `send` and `recv` in a `group`, which have gradients; or end the `def` before the copy, \
                            and copy the gradient back to the sender: `copy(dy -> dx at sender)`";
                self.no_gradient_through(op, why, help, call);
            }
        }
    }

    fn no_gradient_through(&mut self, op: OpId, why: &str, help: &str, call: &Call) {
        let op = *self.expansion.step.op(op);
        let error = GradientError::NotDifferentiable {
            what: self.program.op_name(&op).to_owned(),
            why: why.to_owned(),
            help: help.to_owned(),
            asked: call.span.into(),
            at: op.span.into(),
            place: "no gradient goes through this",
        };
        self.error(error);
    }

    /// The path of a label, such as `f[3].up`.
    fn label_path(&self, label: LabelId) -> String {
        path(&self.names, &self.program.labels, label).unwrap_or_else(|| GRADIENT.to_owned())
    }
}

/// The end of the path of a label, with as many parts as the text that names it: `f[3].up` of `run.f[3].up` for `f[l].up`.
fn last_parts<'a>(path: &'a str, text: &str) -> &'a str {
    let mut depth = 0;
    let dots = text.chars().filter(|c| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        depth == 0 && *c == '.'
    });
    let start = path.rmatch_indices('.').nth(dots.count()).map_or(0, |(place, _)| place + 1);
    &path[start..]
}
