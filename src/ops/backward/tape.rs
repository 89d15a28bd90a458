//! The tape: the list of operations that compute gradients, on tensors without memory.

use crate::base::{DType, Dims};

use super::super::{Attr, Attrs, Expression, Operation, Team, find, layout};
use crate::ops::expression::formula::{Formula, Term};

/// A tensor on a tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TensorId(u32);

/// The origin of a tensor on a tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorOrigin {
    /// A tensor of the program, numbered by the caller.
    Program(u32),
    /// Output of a step, or of several steps that each write a part.
    Scratch,
    /// 0, 1, 2, … in row-major order.
    Iota,
    /// A slice of another tensor that starts at these indices.
    Slice(TensorId, Dims),
    /// A view of another tensor with other dimensions.
    Reshaped(TensorId),
}

/// A tensor on a tape, with its type and origin.
#[derive(Clone, Copy, Debug)]
pub struct TapeTensor {
    pub source: TensorOrigin,
    pub dtype: DType,
    pub dims: Dims,
}

/// An operation on a tape.
#[derive(Clone, Debug)]
pub struct TapeOperation {
    pub operation: &'static dyn Operation,
    pub attrs: Attrs,
    pub expression: Option<Expression>,
    pub inputs: Vec<TensorId>,
    pub outputs: Vec<TensorId>,
    pub team: Team,
    /// Number of the group of consecutive steps that are issued together; `None` for a step by itself.
    pub together: Option<u32>,
    /// Number of the operation to whose backward pass the step belongs: [`Tape::origin`] when the step was added.
    pub origin: u32,
}

impl TapeOperation {
    /// True if the step only moves elements, so that its output is a copy of its input in another layout.
    pub fn is_move(&self) -> bool {
        self.expression.as_ref().is_some_and(Expression::is_identity) && self.operation.name() == "map"
    }

    /// For a step that adds a tensor to another, the accumulator and the addend; `None` for any other step.
    pub fn addition(&self) -> Option<(TensorId, TensorId)> {
        let is_sum = self.operation.name() == "map" && self.expression.as_ref() == Some(&sum(2));
        match (&*self.inputs, &*self.outputs) {
            (&[to, from], &[output]) if is_sum && to == output => Some((to, from)),
            _ => None,
        }
    }
}

/// Operations in execution order, and their tensors.
#[derive(Debug, Default)]
pub struct Tape {
    entries: Vec<TapeTensor>,
    pub steps: Vec<TapeOperation>,
    /// Number of the operation whose backward pass is being written.
    pub origin: u32,
}

impl Tape {
    /// Returns a tensor of the tape.
    pub fn get(&self, value: TensorId) -> TapeTensor {
        self.entries[value.0 as usize]
    }

    /// Shape of a tensor.
    pub fn dims(&self, value: TensorId) -> Dims {
        self.get(value).dims
    }

    /// Element type of a tensor.
    pub fn dtype(&self, value: TensorId) -> DType {
        self.get(value).dtype
    }

    fn push(&mut self, source: TensorOrigin, dtype: DType, dims: Dims) -> TensorId {
        self.entries.push(TapeTensor { source, dtype, dims });
        TensorId(self.entries.len() as u32 - 1)
    }

    /// A tensor of the program.
    pub fn program(&mut self, number: u32, dtype: DType, dims: Dims) -> TensorId {
        self.push(TensorOrigin::Program(number), dtype, dims)
    }

    /// A tensor that steps write.
    pub fn scratch(&mut self, dtype: DType, dims: Dims) -> TensorId {
        self.push(TensorOrigin::Scratch, dtype, dims)
    }

    /// 0, 1, 2, … as `i32`.
    pub fn iota(&mut self, dims: Dims) -> TensorId {
        self.numbers(DType::I32, dims)
    }

    /// 0, 1, 2, … in a type that holds them exactly.
    pub fn numbers(&mut self, dtype: DType, dims: Dims) -> TensorId {
        self.push(TensorOrigin::Iota, dtype, dims)
    }

    /// Returns the slice of a tensor that starts at `start` and has these dimensions.
    pub fn slice(&mut self, of: TensorId, start: Dims, dims: Dims) -> TensorId {
        if self.dims(of) == dims {
            return of;
        }
        // Removes dimensions of size 1, so that the slice is taken in the tensor's own dimensions.
        if let TensorOrigin::Reshaped(base) = self.get(of).source
            && let Some((own_start, own_dims)) = in_dims_of(self.dims(base), self.dims(of), (start, dims))
        {
            let part = self.slice(base, own_start, own_dims);
            return self.reshape(part, dims);
        }
        self.push(TensorOrigin::Slice(of, start), self.dtype(of), dims)
    }

    /// Returns a view of a tensor in other dimensions with the same number of elements.
    pub fn reshape(&mut self, of: TensorId, dims: Dims) -> TensorId {
        let base = match self.get(of).source {
            TensorOrigin::Reshaped(base) => base,
            _ => of,
        };
        if self.dims(base) == dims {
            return base;
        }
        self.push(TensorOrigin::Reshaped(base), self.dtype(base), dims)
    }

    /// Returns the tensor that contains the value as a part or as a whole.
    pub fn root(&self, value: TensorId) -> TensorId {
        match self.get(value).source {
            TensorOrigin::Slice(of, _) | TensorOrigin::Reshaped(of) => self.root(of),
            _ => value,
        }
    }

    /// Returns the tensor whose elements are exactly those of the value; `None` for a part of a tensor.
    pub fn whole(&self, value: TensorId) -> Option<TensorId> {
        match self.get(value).source {
            TensorOrigin::Slice(..) => None,
            TensorOrigin::Reshaped(of) => self.whole(of),
            _ => Some(value),
        }
    }

    /// Adds an operation of the catalogue with these options, and returns its only output.
    pub fn operation(
        &mut self,
        name: &str,
        options: &[(&'static str, Attr)],
        inputs: &[TensorId],
        (dtype, dims): (DType, Dims),
    ) -> TensorId {
        let output = self.scratch(dtype, dims);
        self.write(name, options, inputs, &[output]);
        output
    }

    /// Adds an operation of the catalogue that writes to these tensors.
    pub fn write(&mut self, name: &str, options: &[(&'static str, Attr)], inputs: &[TensorId], outputs: &[TensorId]) {
        self.write_in(Team::ALONE, name, options, inputs, outputs);
    }

    /// Adds an operation of the catalogue in a group of ranks.
    pub fn write_in(
        &mut self,
        team: Team,
        name: &str,
        options: &[(&'static str, Attr)],
        inputs: &[TensorId],
        outputs: &[TensorId],
    ) {
        let operation = find(name).expect("rules name operations of the catalogue");
        self.step(operation, operation.signature().attrs(options), None, inputs, outputs);
        self.steps.last_mut().expect("just added").team = team;
    }

    /// Adds an operation, which the catalogue may lack.
    pub fn step(
        &mut self,
        operation: &'static dyn Operation,
        attrs: Attrs,
        expression: Option<Expression>,
        inputs: &[TensorId],
        outputs: &[TensorId],
    ) {
        self.add(TapeOperation {
            operation,
            attrs,
            expression,
            inputs: inputs.to_vec(),
            outputs: outputs.to_vec(),
            team: Team::ALONE,
            together: None,
            origin: self.origin,
        });
    }

    /// Adds a step.
    pub fn add(&mut self, step: TapeOperation) {
        self.steps.push(step);
    }

    /// Adds a `map` of an expression, whose inputs are broadcast to the outputs.
    pub fn map(&mut self, expression: Expression, inputs: &[TensorId], outputs: &[TensorId]) {
        self.expression("map", &[], expression, inputs, outputs);
    }

    /// Adds an operation that takes an expression.
    pub fn expression(
        &mut self,
        name: &str,
        options: &[(&'static str, Attr)],
        expression: Expression,
        inputs: &[TensorId],
        outputs: &[TensorId],
    ) {
        self.write(name, options, inputs, outputs);
        let added = self.steps.last_mut().expect("just added");
        added.expression = Some(expression);
    }

    /// Adds a copy of a tensor to another of the same dimensions, or to a larger one to which it is broadcast.
    pub fn move_to(&mut self, from: TensorId, to: TensorId) {
        self.map(Expression::identity(), &[from], &[to]);
    }

    /// Adds a tensor to another of the same dimensions.
    pub fn add_to(&mut self, from: TensorId, to: TensorId) {
        self.map(sum(2), &[to, from], &[to]);
    }

    /// Fills a tensor with a number.
    pub fn fill(&mut self, value: f64, to: TensorId) {
        self.write("fill", &[("value", Attr::number(value))], &[], &[to]);
    }

    /// Returns the sum of tensors of the same shape.
    pub fn sum_of(&mut self, values: &[TensorId], (dtype, dims): (DType, Dims)) -> TensorId {
        /// Less than the maximum number of inputs of a `map`.
        const TERMS: usize = 8;
        let mut left = values.to_vec();
        while left.len() > 1 {
            let terms: Vec<TensorId> = left.drain(..left.len().min(TERMS)).collect();
            let total = self.scratch(dtype, dims);
            self.map(sum(terms.len()), &terms, &[total]);
            left.insert(0, total);
        }
        left[0]
    }

    /// Returns the broadcast shape of these tensors.
    pub fn together(&self, values: &[TensorId]) -> Dims {
        values.iter().fold(Dims::new(), |dims, value| {
            layout::broadcast(dims, self.dims(*value)).expect("a rule combines tensors that fit together")
        })
    }
}

/// Returns a slice in dimensions that differ only by dimensions of size 1; `None` if they differ otherwise.
fn in_dims_of(base: Dims, other: Dims, (start, dims): (Dims, Dims)) -> Option<(Dims, Dims)> {
    let long = |dims: &Dims| (0..dims.len()).filter(|&axis| dims[axis] > 1).collect::<Vec<_>>();
    let (own, others) = (long(&base), long(&other));
    let alike = own.len() == others.len() && own.iter().zip(&others).all(|(&a, &b)| base[a] == other[b]);
    let (mut own_start, mut own_dims) = (base, base);
    (0..base.len()).for_each(|axis| own_start.set(axis, 0));
    for (&to, &from) in own.iter().zip(&others) {
        own_start.set(to, start[from]);
        own_dims.set(to, dims[from]);
    }
    alike.then_some((own_start, own_dims))
}

/// Returns the sum of `terms` inputs as an expression.
fn sum(terms: usize) -> Expression {
    let formula = Formula::default();
    let inputs: Vec<Term> = (0..terms).map(|input| formula.input(input as u8)).collect();
    let total = inputs[1..].iter().fold(inputs[0], |sum, &term| sum + term);
    formula.with_outputs([total])
}
