//! Elements that a reduction covers: the shape of its expression, and the reduced dimensions.

use super::super::elementwise::evaluate_in;
use super::super::layout::{broadcast, broadcast_strides, collapse, offsets};
use super::*;

/// Shape of an expression, and its reduced dimensions.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Broadcast shape of the expression.
    pub dims: Dims,
    /// For each dimension, whether it is reduced.
    pub reduced: [bool; Dims::MAX],
}

impl Extent {
    /// Returns the extent of an operation with the option `dims`; its inputs are those of the expression.
    pub fn of(spec: &Spec) -> Extent {
        let dims = Self::shape(spec);
        let mut reduced = [false; Dims::MAX];
        match spec.attrs.axes("dims") {
            Some(axes) => axes.iter().for_each(|axis| reduced[axis.rem_euclid(dims.len() as i64) as usize] = true),
            None => reduced[..dims.len()].fill(true),
        }
        Extent { dims, reduced }
    }

    /// Returns the broadcast shape of the inputs.
    pub fn shape(spec: &Spec) -> Dims {
        spec.inputs.iter().skip(1).fold(spec.inputs[0].dims, |dims, input| {
            broadcast(dims, input.dims).expect("the shape rule has checked that the inputs fit together")
        })
    }

    /// Returns the extent that reduces one dimension of a shape.
    pub fn along(dims: Dims, axis: usize) -> Extent {
        let mut reduced = [false; Dims::MAX];
        reduced[axis] = true;
        Extent { dims, reduced }
    }

    /// Returns the extent that reduces all dimensions of the first input.
    pub fn all(spec: &Spec) -> Extent {
        Extent { dims: spec.inputs[0].dims, reduced: [true; Dims::MAX] }
    }

    /// Returns the sizes of the reduced dimensions of `all` if `reduced`, otherwise of the other dimensions.
    fn part(&self, all: &Dims, reduced: bool) -> Dims {
        let axes = (0..self.dims.len()).filter(|&axis| self.reduced[axis] == reduced);
        axes.map(|axis| all[axis]).collect()
    }

    /// Number of terms per result.
    pub fn terms(&self) -> u64 {
        self.part(&self.dims, true).iter().product()
    }

    /// Number of results.
    pub fn results(&self) -> u64 {
        self.part(&self.dims, false).iter().product()
    }

    /// Returns the shape of the result. With `keepdim`, reduced dimensions remain with size 1.
    pub fn result(&self, keepdim: bool) -> Dims {
        if !keepdim {
            return self.part(&self.dims, false);
        }
        let mut dims = self.dims;
        (0..dims.len()).filter(|&axis| self.reduced[axis]).for_each(|axis| dims.set(axis, 1));
        dims
    }

    /// Returns the strides of the output along the dimensions of the expression: 0 along reduced dimensions.
    fn output_strides(&self, output: &Tensor) -> Dims {
        let keeps = output.dims.len() == self.dims.len();
        let mut own = output.strides.iter();
        let mut strides = Dims::new();
        for axis in 0..self.dims.len() {
            let stride = match self.reduced[axis] && !keeps {
                true => 0,
                false => *own.next().expect("the output has a dimension for each that is kept"),
            };
            strides.push(if self.reduced[axis] { 0 } else { stride }).expect("no more than there are");
        }
        strides
    }

    /// Returns the output with all dimensions of the expression, of which reduced ones have one element.
    pub fn kept_output(&self, output: &Tensor) -> Tensor {
        let dims = self.result(true);
        let strides = if output.contiguous() { dims.contiguous_strides() } else { self.output_strides(output) };
        Tensor { dims, strides, ..*output }
    }

    /// Returns the geometry of the terms of a result if `reduced`, otherwise of the results. Its strides are those of
    /// the output, followed by those of each input.
    pub fn walk(&self, spec: &Spec, reduced: bool) -> Geometry {
        let inputs = spec.inputs.iter().map(|input| broadcast_strides(input, self.dims));
        let all = std::iter::once(self.output_strides(&spec.outputs[0])).chain(inputs);
        let strides: Vec<Dims> = all.map(|strides| self.part(&strides, reduced)).collect();
        collapse(self.part(&self.dims, reduced), &strides)
    }

    /// True if the innermost dimension is reduced.
    pub fn reduces_innermost(&self) -> bool {
        (0..self.dims.len()).rev().find(|&axis| self.dims[axis] > 1).is_none_or(|axis| self.reduced[axis])
    }

    /// Returns the values of the expression, in row-major order of the shape.
    pub fn values(&self, expression: &Expression, spec: &Spec, inputs: &[&[f64]]) -> Vec<f64> {
        self.values_of_each(expression, spec, inputs).swap_remove(0)
    }

    /// Returns the values of each output of the expression, in row-major order of the shape.
    pub fn values_of_each(&self, expression: &Expression, spec: &Spec, inputs: &[&[f64]]) -> Vec<Vec<f64>> {
        let count = self.dims.iter().product::<u64>() as usize;
        let mut all = vec![vec![0.0; count]; expression.outputs().len()];
        evaluate_in(self.dims, expression, spec, inputs, &mut all);
        all
    }

    /// Returns, for each result, the indices of its terms in these values.
    pub fn groups(&self) -> impl Iterator<Item = impl Iterator<Item = u64> + use<>> + use<> {
        let packed = self.dims.contiguous_strides();
        let [kept, reduced] =
            [false, true].map(|reduced| (self.part(&self.dims, reduced), self.part(&packed, reduced)));
        offsets(kept.0, kept.1).map(move |first| offsets(reduced.0, reduced.1).map(move |place| first + place))
    }

    /// Returns the division of a check along the first dimension; `None` if that dimension is reduced or has one element.
    pub fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        let &rows = self.dims.first()?;
        let along = |input: &Tensor| input.dims.len() == self.dims.len() && input.dims[0] == rows;
        (rows > 1 && !self.reduced[0]).then(|| Pieces::Rows(spec.inputs.iter().map(along).collect()))
    }
}
