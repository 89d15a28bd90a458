//! Calls of declared kernels: binds sizes and numbers, evaluates the fields with them, and adds the operation.

use std::rc::Rc;

use crate::base::units::Dimension;
use crate::base::{DType, Dims, Nanos, Space, SpecId, SrcSpan, Symbol, ViewId, counted};
use crate::ops::{self, Category, InputPart, OpError, Reference, Team, UserKernel};
use crate::syntax::ast::*;

use super::call::{Inputs, Output};
use super::kernel::{DeclaredKernel, KernelParam};
use crate::model::analyzer::Analyzer;
use crate::model::error::{IN_PLACE, KernelError, ModelError};
use crate::model::expand::OutputState;
use crate::model::names::callee::Callee;
use crate::model::names::labels::LabelData;
use crate::model::program::{Memory, MemoryKind, OpKind};
use crate::model::values::value::Value;

/// The operands of a call.
#[derive(Default)]
pub(super) struct Operands {
    /// For each input of the signature, its tensor or number.
    pub values: Vec<Value>,
    spans: Vec<SrcSpan>,
    /// For each output, the memory after the arrow.
    outputs: Vec<Option<(Output, SrcSpan)>>,
}

impl<'a> Analyzer<'a> {
    /// Adds the launch of a declared kernel. `None` after an error, which has been reported.
    pub(super) fn call_kernel(&mut self, call: &'a Call, kernel: &Rc<DeclaredKernel<'a>>) -> Option<()> {
        if self.expansion.batch.is_some() {
            let help = "a group holds collectives, `send` and `recv`, which are issued together: move it out";
            self.not_in_group(&format!("`{}`", kernel.name), help, call.span);
            return None;
        }
        if !self.kernel_counts(call, kernel) {
            return None;
        }
        let operands = self.kernel_operands(call, kernel)?;
        self.expansion.called += 1;
        let outer_call = std::mem::replace(&mut self.expansion.call, self.expansion.called);
        let mistakes = self.mistakes.len();
        self.scopes.enter_frame();
        let evaluated = self.in_kernel(call, kernel, &operands);
        if self.mistakes.len() > mistakes {
            let arguments = self.arguments_text(&kernel.params.inputs);
            self.mistakes.called(mistakes, call.span, arguments);
        }
        self.scopes.leave_frame();
        self.expansion.call = outer_call;
        let (spec, inputs) = evaluated?;
        for (index, output) in operands.outputs.iter().enumerate() {
            if let Some((Output::Cell(cell), _)) = output {
                self.expansion.outputs[*cell as usize] = OutputState::To(inputs.written[index]);
            }
        }
        let outputs = operands.outputs.iter().map(|output| output.as_ref().map(|(output, _)| output));
        if !self.outputs_differ(&kernel.name, call, outputs) || !self.kernel_overlap(kernel, &inputs) {
            return None;
        }
        let label = self.open_label(call);
        let op = self.push_op(OpKind::Run(spec), call.span, label, &inputs.views, &inputs.written);
        if let (Some(label), Some(op)) = (label, op) {
            self.close_label(call, label, LabelData::operation(op));
        }
        Some(())
    }

    /// Checks that outputs do not overlap inputs, except those that the kernel updates.
    fn kernel_overlap(&mut self, kernel: &DeclaredKernel, inputs: &Inputs) -> bool {
        let tensors: Vec<usize> = kernel
            .inputs
            .iter()
            .enumerate()
            .filter(|(_, input)| input.sizes.is_some())
            .map(|(index, _)| index)
            .collect();
        for (index, &view) in inputs.written.iter().enumerate() {
            let Output::Given(_, at) = inputs.outputs[index] else { continue };
            let own = kernel.updated(index);
            let reads = tensors.iter().zip(&inputs.views).zip(&inputs.spans);
            let others = reads.filter(|((input, _), _)| Some(**input) != own);
            let mut others = others.map(|((_, &other), &span)| (other, span));
            if let Some((other, other_at)) = others.find(|(other, _)| self.program.views.overlap(view, *other)) {
                let memory = self.program.views.memory(other);
                let name = self.names.name(self.program.memory(memory).name).to_owned();
                self.error(ModelError::Overlap {
                    name,
                    exception: IN_PLACE,
                    output: at.into(),
                    other: other_at.into(),
                });
                return false;
            }
        }
        true
    }

    /// Checks that the output which updates an input is given, as the memory of that input.
    fn kernel_updates(
        &mut self,
        (kernel, index): (&DeclaredKernel, usize),
        input: &Value,
        output: Option<ViewId>,
        at: SrcSpan,
    ) -> bool {
        let Value::Tensor { view, .. } = *input else { return false };
        if output == Some(view) {
            return true;
        }
        let memory = |view: ViewId| self.program.views.memory(view);
        let found = match output {
            Some(output) => {
                let name = self.names.name(self.program.memory(memory(output)).name);
                let part = if memory(output) == memory(view) { "another part of " } else { "" };
                format!("{part}`{name}`")
            }
            None => "left out".to_owned(),
        };
        let expected = "the input of that name, which the kernel updates in place".to_owned();
        let help = "write the same slice in both places: `k(x, y -> y)`";
        self.kernel_operand((kernel, &kernel.outputs[index]), expected, found, help, at);
        false
    }

    /// Checks the number of arguments, and that there are no options.
    fn kernel_counts(&mut self, call: &Call, kernel: &DeclaredKernel) -> bool {
        let list = |params: &[KernelParam]| {
            let names: Vec<&str> = params.iter().map(|param| self.names.name(param.name.symbol)).collect();
            names.join(", ")
        };
        let usage = format!("it is `{}({} -> {})`", kernel.name, list(&kernel.inputs), list(&kernel.outputs));
        for setting in &call.options {
            let name = self.names.name(setting.key.symbol).to_owned();
            let (of, at) = (kernel.name.to_string(), setting.key.span.into());
            self.error(ModelError::UnknownOption { of, name, at, help: Some(usage.clone()) });
        }
        let (expected, given) = match call.inputs.len() == kernel.inputs.len() {
            true if call.outputs.len() <= kernel.outputs.len() => return call.options.is_empty(),
            true => (format!("at most {}", counted(kernel.outputs.len(), "output")), call.outputs.len()),
            false => (counted(kernel.inputs.len(), "input"), call.inputs.len()),
        };
        self.error(ModelError::argument_count(&*kernel.name, expected, given, call.span, usage));
        false
    }

    /// Evaluates the arguments in the scope of the call.
    fn kernel_operands(&mut self, call: &Call, kernel: &DeclaredKernel) -> Option<Operands> {
        let mut operands = Operands::default();
        let mut good = true;
        for (arg, param) in call.inputs.iter().zip(&kernel.inputs) {
            self.no_peer(arg);
            let at = arg.value.span;
            let value = match param.sizes {
                Some(_) => self.input_view(&arg.value, &kernel.name).map(|view| Value::Tensor { view, family: 0 }),
                None => self.kernel_number(kernel, param, &arg.value),
            };
            good &= value.is_some();
            operands.values.push(value.unwrap_or(Value::Unknown));
            operands.spans.push(at);
        }
        for index in 0..kernel.outputs.len() {
            let arg = call.outputs.get(index);
            let Some(arg) = arg.filter(|arg| arg.value.as_name() != Some(self.builtins.unwanted)) else {
                operands.outputs.push(None);
                continue;
            };
            self.no_peer(arg);
            let at = arg.value.span;
            let name = self.names.name(kernel.outputs[index].name.symbol).to_owned();
            let output = match self.output_argument(arg, call, &name, kernel.outputs.len() > 1) {
                Value::Output(cell) => Some(Output::Cell(cell)),
                Value::Tensor { view, .. } => Some(Output::Given(view, at)),
                Value::Unknown => None,
                other => self.wrong_type("a buffer", &other, at),
            };
            good &= output.is_some();
            operands.outputs.push(output.map(|output| (output, at)));
        }
        good.then_some(operands)
    }

    /// Evaluates a number, which must be representable in the parameter's type.
    fn kernel_number(&mut self, kernel: &DeclaredKernel, param: &KernelParam, expr: &Expr) -> Option<Value> {
        let number = match self.eval(expr) {
            Value::Number(number) if number.dimension == Dimension::NONE => number,
            other => return self.wrong_type("a number without a unit", &other, expr.span),
        };
        if !param.dtype.is_float() {
            let whole = self.whole(number, expr.span)?;
            let fits = match param.dtype {
                DType::I32 => i32::try_from(whole).is_ok(),
                DType::I8 => i8::try_from(whole).is_ok(),
                DType::U8 => u8::try_from(whole).is_ok(),
                _ => true,
            };
            if !fits {
                self.kernel_operand(
                    (kernel, param),
                    param.dtype.to_string(),
                    number.text(),
                    "write a number that the type holds, or a wider type",
                    expr.span,
                );
                return None;
            }
            return Some(Value::int(whole));
        }
        Some(Value::Number(number))
    }

    fn kernel_operand(
        &mut self,
        (kernel, param): (&DeclaredKernel, &KernelParam),
        expected: String,
        found: String,
        help: &'static str,
        at: SrcSpan,
    ) {
        let (name, text) = (kernel.name.to_string(), self.names.name(param.name.symbol).to_owned());
        let (at, declared) = (at.into(), param.span.into());
        self.error(KernelError::Operand { name, param: text, expected, found, help, at, declared });
    }

    /// Evaluates everything that depends on the arguments, in the frame of the kernel.
    fn in_kernel(&mut self, call: &Call, kernel: &DeclaredKernel<'a>, operands: &Operands) -> Option<(SpecId, Inputs)> {
        self.bind_sizes(call, kernel, operands)?;
        for (param, value) in kernel.inputs.iter().zip(&operands.values) {
            self.scopes.declare(param.name.symbol, value.clone());
        }
        let mut inputs = Inputs::default();
        let mut good = true;
        for ((param, value), &at) in kernel.inputs.iter().zip(&operands.values).zip(&operands.spans) {
            if let Value::Tensor { view, .. } = *value {
                good &= self.kernel_fits((kernel, param), view, at);
                inputs.views.push(view);
                inputs.spans.push(at);
            }
        }
        for (index, (param, output)) in kernel.outputs.iter().zip(&operands.outputs).enumerate() {
            if let Some(input) = kernel.updated(index) {
                let (given, at) = match output {
                    Some((Output::Given(view, _), at)) => (Some(*view), *at),
                    Some((_, at)) => (None, *at),
                    None => (None, call.span),
                };
                if !self.kernel_updates((kernel, index), &operands.values[input], given, at) {
                    good = false;
                    continue;
                }
            }
            let view = match output {
                Some((Output::Given(view, at), _)) => {
                    good &= self.kernel_fits((kernel, param), *view, *at);
                    Some(*view)
                }
                _ => self.kernel_scratch(call, kernel, param),
            };
            let Some(view) = view else {
                good = false;
                continue;
            };
            self.scopes.declare(param.name.symbol, Value::Tensor { view, family: 0 });
            inputs.written.push(view);
            inputs.outputs.push(match output {
                Some((Output::Given(view, at), _)) => Output::Given(*view, *at),
                _ => Output::None,
            });
        }
        if !good {
            return None;
        }
        let block = match (&kernel.triton, kernel.fields.block) {
            (None, Some(block)) => self.kernel_extent(kernel, "block", block),
            (launch, _) => launch.as_ref().map(|launch| [launch.threads, 1, 1]),
        };
        let grid = self.kernel_extent(kernel, "grid", kernel.fields.grid);
        let shared = match &kernel.triton {
            Some(launch) => Some(launch.shared),
            None => self.kernel_shared(kernel),
        };
        let args = self.kernel_args(kernel, operands);
        let flops = self.kernel_count(kernel, "flops", kernel.fields.flops, Dimension::FLOPS);
        let bytes = self.kernel_count(kernel, "bytes", kernel.fields.bytes, Dimension::BYTES);
        let time = self.kernel_count(kernel, "time", kernel.fields.time, Dimension::TIME);
        let reference = match kernel.reference {
            Some(reference) => Some(Box::new(self.kernel_reference(kernel, reference, &inputs)?)),
            None => None,
        };
        let tensors = |views: &[ViewId]| views.iter().map(|&view| *self.program.views.tensor(view)).collect::<Vec<_>>();
        let (read, written) = (tensors(&inputs.views), tensors(&inputs.written));
        let call = UserKernel {
            name: kernel.name.clone(),
            code: kernel.code.clone(),
            grid: grid?,
            block: block?,
            shared: shared?,
            args: args?,
            outputs: kernel.output_names.clone(),
            flops: flops?.unwrap_or(0),
            bytes: bytes?,
            time: time?.map(|time| Nanos(time as i64)),
            reference,
        };
        let spec = SpecId::from(self.program.specs.insert_full(call.call(read, written)).0);
        Some((spec, inputs))
    }

    /// Declares the sizes of the signature, each by the first argument that has it.
    fn bind_sizes(&mut self, call: &Call, kernel: &DeclaredKernel, operands: &Operands) -> Option<()> {
        let given_inputs = operands.values.iter().map(|value| match value {
            Value::Tensor { view, .. } => Some(*view),
            _ => None,
        });
        let given_outputs = operands.outputs.iter().map(|output| match output {
            Some((Output::Given(view, _), _)) => Some(*view),
            _ => None,
        });
        let params = kernel.inputs.iter().chain(&kernel.outputs);
        let spans = operands.spans.iter().copied();
        let spans = spans.chain(operands.outputs.iter().map(|output| output.as_ref().map_or(call.span, |(_, at)| *at)));
        let mut bound: Vec<(Symbol, u64)> = Vec::new();
        let mut good = true;
        for ((param, view), at) in params.zip(given_inputs.chain(given_outputs)).zip(spans) {
            let (Some(sizes), Some(view)) = (param.sizes, view) else { continue };
            let tensor = *self.program.views.tensor(view);
            let dims = tensor.dims;
            if dims.len() != sizes.len() {
                let expected = format!("{} of {}", param.dtype, counted(sizes.len(), "dimension"));
                let help = "change the declaration of the buffer or the slice: `x[i]` takes a dimension away, \
                            `x[i..i + 1]` keeps it";
                self.kernel_operand((kernel, param), expected, tensor.to_string(), help, at);
                good = false;
            }
            for (size, &length) in sizes.iter().zip(dims.iter()) {
                if let Some(symbol) = size.as_name()
                    && bound.iter().all(|(known, _)| *known != symbol)
                {
                    bound.push((symbol, length));
                }
            }
        }
        if !good {
            return None;
        }
        for size in &kernel.sizes {
            match bound.iter().find(|(symbol, _)| *symbol == size.symbol) {
                Some(&(symbol, length)) => self.scopes.declare(symbol, Value::int(length as i64)),
                None => {
                    let (name, size_name) = (kernel.name.to_string(), self.names.name(size.symbol).to_owned());
                    let (at, call) = (size.span.into(), call.span.into());
                    self.error(KernelError::Size { name, size: size_name, at, call });
                    good = false;
                }
            }
        }
        good.then_some(())
    }

    /// Returns the dimensions of a tensor according to the signature.
    fn kernel_type(&mut self, param: &KernelParam) -> Option<Dims> {
        let mut dims = Dims::new();
        for size in param.sizes.unwrap_or_default() {
            let length = self.eval_whole(size)?;
            let Some(length) = u64::try_from(length).ok().filter(|length| *length > 0) else {
                return self.fail(ModelError::BadSize {
                    what: format!("a size of `{}`", self.names.name(param.name.symbol)),
                    value: length.to_string(),
                    at: size.span.into(),
                    help: "a size is at least 1",
                });
            };
            dims.push(length)?;
        }
        Some(dims)
    }

    /// Checks the type of a tensor, that it has no gaps, and that a kernel can access its memory.
    fn kernel_fits(&mut self, (kernel, param): (&DeclaredKernel, &KernelParam), view: ViewId, at: SrcSpan) -> bool {
        let tensor = *self.program.views.tensor(view);
        let Some(dims) = self.kernel_type(param) else { return false };
        let (expected, help) = if tensor.dtype != param.dtype || tensor.dims != dims {
            let help = "the sizes follow from the arguments before: change one of them, or the signature";
            (format!("{}{dims}", param.dtype), help)
        } else if !tensor.contiguous() {
            let help =
                "a kernel gets an address alone: copy the slice to a buffer of its own, or slice the first dimension";
            ("memory without gaps".to_owned(), help)
        } else if tensor.space == Space::Host {
            let help = "declare it `in pinned`, or `copy` it to the device first";
            ("in memory that a device reaches".to_owned(), help)
        } else {
            return true;
        };
        let found = match tensor.space {
            Space::Host => format!("{tensor} in `host`"),
            _ if !tensor.contiguous() => format!("{tensor} with gaps"),
            _ => tensor.to_string(),
        };
        self.kernel_operand((kernel, param), expected, found, help, at);
        false
    }

    /// Memory of an output without a name.
    fn kernel_scratch(&mut self, call: &Call, kernel: &DeclaredKernel, param: &KernelParam) -> Option<ViewId> {
        let dims = self.kernel_type(param)?;
        let shape = self.program.shapes.intern(param.dtype, dims);
        let label = call.label.as_ref().map(|label| self.names.name(label.name.symbol).to_owned());
        let mut name = label.unwrap_or_else(|| kernel.name.to_string());
        if kernel.outputs.len() > 1 {
            name = format!("{name}.{}", self.names.name(param.name.symbol));
        }
        let (name, kind) = (self.names.intern(&name), MemoryKind::Scratch);
        let memory = self.add_memory(Memory { name, kind, space: Space::Device, family: 0, shape, span: call.span });
        Some(self.all_of(memory))
    }

    // --- Reference --------------------------------------------------------------------------------------------

    /// Returns the reference operation, which computes the kernel's outputs from its inputs; `None` without a reference
    /// or after an error.
    fn kernel_reference(&mut self, kernel: &DeclaredKernel, call: &Call, operands: &Inputs) -> Option<Reference> {
        let wrong = |this: &mut Self, why: String, help: String, at: SrcSpan| {
            this.fail(KernelError::Reference { name: kernel.name.to_string(), why, help, at: at.into() })
        };
        let names: Vec<String> = call.callee.iter().map(|name| self.names.name(name.symbol).to_owned()).collect();
        let found = ops::CATALOGUE.iter().position(|operation| names == [operation.name()]);
        if found.is_none() && call.callee.iter().all(|name| matches!(self.callee(name.symbol), Callee::Unknown)) {
            // The check of names has reported the unknown operation.
            return None;
        }
        let computes = |category: Category| {
            matches!(category, Category::Matrix | Category::Elementwise | Category::RowWise | Category::Movement)
        };
        let place = found.filter(|&place| computes(ops::CATALOGUE[place].category()));
        let computes_nothing = |this: &mut Self| {
            let why = format!("is `{}`, which computes no new tensors from others", names.join("."));
            let help = "write an operation such as `map`, `gemm` or `softmax` on the inputs of the kernel".to_owned();
            wrong(this, why, help, call.span)
        };
        let Some(place) = place else { return computes_nothing(self) };
        if let Some(arg) = call.outputs.first() {
            let help = "remove the arrow and what follows it".to_owned();
            return wrong(self, "names outputs, but it writes those of the kernel".to_owned(), help, arg.value.span);
        }
        let operation = ops::CATALOGUE[place];
        let mut inner = Inputs::default();
        self.inputs(operation, call, &mut inner);
        let options_good = self.op_options(operation, call, &mut inner.attrs);
        if inner.failed || !options_good {
            return None;
        }
        if operation.updates(&inner.attrs) {
            return computes_nothing(self);
        }
        if !operation.own_inputs(&inner.attrs).is_empty() {
            let help = "write an operation on the inputs of the kernel".to_owned();
            return wrong(self, "reads memory of its own".to_owned(), help, call.span);
        }
        let mut parts = Vec::new();
        for (&view, &at) in inner.views.iter().zip(&inner.spans) {
            let Some(part) = self.input_part(view, &operands.views) else {
                let help = "write inputs of the kernel, or slices of them".to_owned();
                return wrong(self, "reads other memory than the kernel's inputs".to_owned(), help, at);
            };
            parts.push(part);
        }
        let count = operation.outputs(&inner.attrs, call.inputs.len(), operands.written.len());
        if count < operands.written.len() {
            let why = format!(
                "gives {}, and the kernel has {}",
                counted(count, "output"),
                counted(operands.written.len(), "output")
            );
            let help = "`map` with several expressions has an output for each: `map(x + 1, x - 1)`".to_owned();
            return wrong(self, why, help, call.span);
        }
        let given = |view: &ViewId| Output::Given(*view, call.span);
        let mut outputs: Vec<Output> = operands.written.iter().map(given).collect();
        outputs.resize_with(count, || Output::None);
        let expression = inner.has_expression.then(|| std::sync::Arc::new(inner.lowering.expression.clone()));
        match self.infer(operation, call, &inner, (&inner.attrs, expression, Team::ALONE, None), &outputs) {
            Ok(spec) => Some(Reference { spec, inputs: parts }),
            Err(error) => match *error {
                ModelError::Operation(OpError::Output { expected, found, .. }) => {
                    let why = format!("gives {expected}, and the kernel writes {found}");
                    let help = "change one of them, so that both have the same shapes".to_owned();
                    wrong(self, why, help, call.span)
                }
                error => self.fail(error),
            },
        }
    }

    /// Returns the part of a kernel's input that a slice covers; `None` if the slice belongs to no input.
    fn input_part(&mut self, view: ViewId, inputs: &[ViewId]) -> Option<InputPart> {
        let tensor = *self.program.views.tensor(view);
        let memory = self.program.views.memory(view);
        let dims = self.program.layout(memory).dims;
        let at = self.program.views.offset(view, &dims);
        inputs.iter().enumerate().find_map(|(input, &whole)| {
            if self.program.views.memory(whole) != memory {
                return None;
            }
            let all = self.program.views.tensor(whole);
            let offset = at.checked_sub(self.program.views.offset(whole, &dims))?;
            let end = offset + tensor.reach() / tensor.dtype.size();
            (end <= all.elements()).then_some(InputPart { input, offset, tensor })
        })
    }
}
