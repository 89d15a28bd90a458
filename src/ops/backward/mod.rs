//! Rules for gradients. The rule of each operation expresses its gradients as a few ordinary operations on a [`Tape`].
//!
//! A rule receives the gradients of an operation's outputs, can use its operands, and sets the gradients of the
//! inputs. Only steps that a wanted gradient depends on are executed. Therefore a rule does not check which gradients
//! are wanted, unless that saves work within a step.

mod attention;
mod collectives;
mod column_scatter;
mod expressions;
mod float8;
mod losses;
mod matrix;
mod movement;
mod norms;
mod rows;
mod scans;
mod tape;
mod windows;

use crate::base::{DType, Dims};

use super::expression::Unary;
use super::expression::formula::{Formula, Term, formula};
use super::kernels::kernel::compute_type;
use super::{Attr, Attrs, Expression, Spec, Tensor, find};

pub use tape::{Tape, TapeOperation, TapeTensor, TensorId, TensorOrigin};

pub(super) use attention::attention;
pub(super) use collectives::*;
pub(super) use expressions::*;
pub(super) use losses::{cross_entropy, cross_entropy_gradient};
pub(super) use matrix::{gemm, grouped_gemm};
pub(super) use movement::*;
pub(super) use norms::*;
pub(super) use rows::{row_sums, several_sums};
pub(super) use scans::*;
pub(super) use windows::{conv, conv_weights, pool};

/// Reason why an operation has no gradients, as the end of a sentence with its name as the subject.
pub type NoRule = &'static str;

/// Returns an operation with its 8-bit floats in the type of their gradients; `None` for an operation without such tensors.
/// Rules see this operation, so their steps compute gradients in that type.
pub fn widened(spec: &Spec) -> Option<Spec> {
    let is_narrow = |tensor: &Tensor| tensor.dtype.is_float8();
    if !spec.inputs.iter().chain(&spec.outputs).any(is_narrow) {
        return None;
    }
    let mut wide = spec.clone();
    wide.inputs.iter_mut().chain(&mut wide.outputs).for_each(|tensor| tensor.dtype = tensor.dtype.gradient());
    Some(wide)
}

/// The backward pass of one operation while its rule writes it.
pub struct Backward<'a> {
    /// The operation, with 8-bit floats as tensors of their gradients' type ([`widened`]).
    pub spec: &'a Spec,
    pub tape: &'a mut Tape,
    /// Type to which gradients are rounded before products with 8-bit factors; `None` leaves them as they are.
    pub quantize: Option<DType>,
    /// The operands in the types of `spec`.
    inputs: Vec<TensorId>,
    outputs: Vec<TensorId>,
    /// The inputs in the types that they have in memory.
    stored: &'a [TensorId],
    /// Gradient of each output; `None` if it is zero.
    given: &'a [Option<TensorId>],
    wanted: &'a [bool],
    gradients: Vec<Option<TensorId>>,
}

impl<'a> Backward<'a> {
    /// Starts the backward pass of an operation with these operands, whose types may be narrower than those of `spec`.
    /// `given` holds the gradient of each output; `wanted` is true for each input whose gradient is needed.
    pub fn new(
        spec: &'a Spec,
        tape: &'a mut Tape,
        (stored, results): (&'a [TensorId], &'a [TensorId]),
        given: &'a [Option<TensorId>],
        wanted: &'a [bool],
        quantize: Option<DType>,
    ) -> Backward<'a> {
        let gradients = vec![None; stored.len()];
        let (inputs, outputs) = (Vec::new(), Vec::new());
        let mut rule = Backward { spec, tape, quantize, inputs, outputs, stored, given, wanted, gradients };
        let mut typed = |all: &[TensorId], tensors: &[Tensor]| -> Vec<TensorId> {
            all.iter().zip(tensors).map(|(&value, tensor)| rule.convert(value, tensor.dtype)).collect()
        };
        (rule.inputs, rule.outputs) = (typed(stored, &spec.inputs), typed(results, &spec.outputs));
        rule
    }

    /// Writes the steps and returns the gradient of each input, with the input's type and shape; `None` for a gradient
    /// that is zero everywhere.
    pub fn run(mut self) -> Result<Vec<Option<TensorId>>, NoRule> {
        self.spec.operation.backward(&mut self)?;
        Ok(self.gradients)
    }

    /// An input of the forward operation, in the type that the operation computes in.
    pub fn input(&self, index: usize) -> TensorId {
        self.inputs[index]
    }

    /// An input in the type that it has in memory, for steps that accept operands of any type.
    pub fn stored(&self, index: usize) -> TensorId {
        self.stored[index]
    }

    /// An output of the forward operation.
    pub fn output(&self, index: usize) -> TensorId {
        self.outputs[index]
    }

    /// Gradient of an output; `None` if it is zero.
    pub fn given(&self, output: usize) -> Option<TensorId> {
        self.given[output]
    }

    /// Gradient of the first output; `None` only for operations with several outputs.
    pub fn gradient(&self) -> Option<TensorId> {
        self.given[0]
    }

    /// True if the gradient of an input is needed.
    pub fn wants(&self, input: usize) -> bool {
        self.wanted.get(input).copied().unwrap_or(false)
    }

    /// Type in which an expression of the operands is computed.
    pub fn compute(&self) -> DType {
        compute_type(self.spec)
    }

    /// Sets the gradient of an input. The gradient may have any view of the input's shape.
    pub fn set(&mut self, input: usize, gradient: TensorId) {
        let tensor = self.spec.inputs[input];
        let gradient = self.tape.reshape(gradient, tensor.dims);
        self.gradients[input] = Some(self.convert(gradient, tensor.dtype));
    }

    /// Converts a tensor to another type.
    pub fn convert(&mut self, value: TensorId, dtype: DType) -> TensorId {
        if self.tape.dtype(value) == dtype {
            return value;
        }
        let converted = self.tape.scratch(dtype, self.tape.dims(value));
        self.tape.move_to(value, converted);
        converted
    }

    /// Returns whole numbers, such as indices below `below`, and 0, 1, 2, … in these dimensions to compare them with, in the type in
    /// which the first input is computed: kernels that read `i32` compute in `f64`. Numbers that the type cannot hold stay `i32`.
    pub fn comparable(&mut self, numbers: TensorId, below: u64, dims: Dims) -> [TensorId; 2] {
        /// Numbers up to this one are exact in `f32`.
        const EXACT: u64 = 1 << 24;
        let dtype = if below <= EXACT { self.spec.inputs[0].dtype.compute() } else { DType::I32 };
        let numbers = if below <= EXACT { self.convert(numbers, dtype) } else { numbers };
        [numbers, self.tape.numbers(dtype, dims)]
    }

    /// Evaluates an expression elementwise on these tensors, broadcast together.
    pub fn map<const N: usize>(
        &mut self,
        inputs: [TensorId; N],
        dtype: DType,
        of: impl for<'f> FnOnce([Term<'f>; N]) -> Term<'f>,
    ) -> TensorId {
        let output = self.tape.scratch(dtype, self.tape.together(&inputs));
        self.tape.map(formula(|inputs| [of(inputs)]), &inputs, &[output]);
        output
    }

    /// Reduces an expression over dimensions, which keep size 1.
    pub fn reduce<const N: usize>(
        &mut self,
        function: &str,
        (inputs, axes): ([TensorId; N], &[usize]),
        dtype: DType,
        of: impl for<'f> FnOnce([Term<'f>; N]) -> Term<'f>,
    ) -> TensorId {
        let dims = self.tape.together(&inputs);
        self.reduced(function, formula(|inputs| [of(inputs)]), &inputs, (dims, axes), dtype)
    }

    /// Reduces a finished expression. `dims` is the broadcast shape of its inputs.
    fn reduced(
        &mut self,
        function: &str,
        expression: Expression,
        inputs: &[TensorId],
        (mut dims, axes): (Dims, &[usize]),
        dtype: DType,
    ) -> TensorId {
        axes.iter().for_each(|&axis| dims.set(axis, 1));
        let output = self.tape.scratch(dtype, dims);
        let list = axes.iter().map(|&axis| axis as i64).collect();
        let options = [("dims", Attr::Axes(list)), ("keepdim", Attr::Bool(true))];
        self.tape.expression(function, &options, expression, inputs, &[output]);
        output
    }

    /// Multiplies a tensor by a number.
    pub fn scaled(&mut self, factor: f64, value: TensorId) -> TensorId {
        if factor == 1.0 {
            return value;
        }
        let dtype = self.tape.dtype(value);
        self.map([value], dtype, |[x]| factor * x)
    }

    /// Returns a tensor of zeros.
    pub fn zeros(&mut self, dtype: DType, dims: Dims) -> TensorId {
        self.tape.operation("fill", &[("value", Attr::number(0.0))], &[], (dtype, dims))
    }

    /// Returns a view of a tensor with an additional last dimension of size 1.
    pub fn column(&mut self, value: TensorId) -> TensorId {
        let mut dims = self.tape.dims(value);
        match dims.push(1) {
            Some(()) => self.tape.reshape(value, dims),
            None => value,
        }
    }
}
