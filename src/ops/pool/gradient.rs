//! `pool_backward`: the gradient of `pool`.

use super::*;
use crate::ops::call::windows;

/// `pool_backward(x, dy, [indices] -> dx)`.
pub struct PoolBackward;

impl Operation for PoolBackward {
    signature! {
        name: "pool_backward",
        summary: "the gradient of `pool` with respect to its input",
        category: Category::RowWise,
        inputs: &[Input::Tensor("x"), Input::Tensor("dy"), Input::Optional("indices")],
        outputs: &["dx"],
        options: OPTIONS,
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        (0..2).try_for_each(|index| call.needs_wide_float(index))?;
        call.needs_spatial(0, LAYOUT)?;
        call.needs_narrow_indices(&call.inputs[0], &[1])?;
        let [x, dy] = [0, 1].map(|input| &call.inputs[input].tensor);
        let expected = windows::shape(x.dims[0], x.dims[1], call.pooled(Some(dy.dims))?);
        if (dy.dtype, dy.dims) != (x.dtype, expected) {
            let help = format!("the result of this `pool` is {}{expected}, and so is its gradient", x.dtype);
            return Err(call.differs(0, format!("this is {x}"), 1, format!("this is {dy}"), &help));
        }
        // The comparison above guarantees that `dy` has the dimension of channels that this check reads.
        call.needs_narrow_indices(&call.inputs[1], &[1])?;
        if let Some(indices) = call.inputs.get(2) {
            call.needs_maxima()?;
            call.needs_dtype(indices, indices.tensor.dtype == DType::I32, "the indices of a `pool`, of type i32")?;
            if indices.tensor.dims != dy.dims {
                let (has, found) = (format!("this is {}", dy.dims), format!("this is {}", indices.tensor.dims));
                return Err(call.differs(1, has, 2, found, "there is an index for each window"));
            }
            if !indices.tensor.contiguous() {
                return Err(call.gaps(indices, CONTIGUOUS));
            }
        }
        Ok(vec![call.output(0, x.dtype, x.dims)?])
    }

    fn cost(&self, spec: &Spec) -> Cost {
        let kernels = Kernels::of(spec);
        kernels.cost(&kernels.gradient())
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        spread(spec, inputs, &mut outputs[0]);
    }

    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        vec![Tolerance::Within(spread(spec, inputs, &mut outputs[0]))]
    }

    /// Returns a piece for each sample, since results depend on a single sample.
    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        Some(Pieces::Rows(vec![true; spec.inputs.len()]))
    }

    /// Returns the kernels of `pool_backward`. The last one adds, for each element of the input, the gradients of the windows
    /// that contain it. Before it, for `mode: max` with overlapping windows and no given indices, one or two kernels find the position
    /// of each window's maximum.
    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let kernels = Kernels::of(spec);
        kernels.gradient().into_iter().flat_map(|task| kernels.launches(task)).collect()
    }

    fn backward(&self, _: &mut Backward) -> Result<(), NoRule> {
        Err("gradients of gradients of pools are not in this version")
    }
}

/// Computes the gradients and returns the tolerance of each element.
fn spread(spec: &Spec, inputs: &[&[f64]], dx: &mut [f64]) -> Vec<f64> {
    let shape = Shape::of(spec);
    let compute = spec.inputs[0].dtype.compute();
    let precision = Precision::of(compute);
    let (elements, count) = (shape.elements(), shape.windows());
    let mut allowed = Vec::with_capacity(dx.len());
    let planes = inputs[0].chunks(elements).zip(inputs[1].chunks(count)).zip(dx.chunks_mut(elements));
    for (plane, ((x, dy), dx)) in planes.enumerate() {
        let mut terms = vec![Vec::new(); elements];
        for (window, gradient) in dy.iter().enumerate() {
            let places = shape.places(window);
            match (shape.is_max, inputs.get(2)) {
                // An index outside the range of its window has no effect.
                (true, Some(indices)) => match indices[plane * count + window] {
                    index if index >= 0.0 && shape.spans(window, index as usize) => {
                        terms[index as usize].push(*gradient);
                    }
                    _ => {}
                },
                (true, None) => terms[shape.best(x, &places)].push(*gradient),
                (false, _) => {
                    let share = gradient / shape.divisor(places.len());
                    places.iter().for_each(|&place| terms[place].push(share));
                }
            }
        }
        for (dx, terms) in dx.iter_mut().zip(terms) {
            *dx = Function::Sum.of(&terms);
            let of_share = |term: &f64| 2.0 * precision.unit() * term.abs() + precision.smallest();
            let radii = if shape.is_max { Vec::new() } else { terms.iter().map(of_share).collect() };
            allowed.push(Group { terms, radii, compute }.radius(Function::Sum, *dx));
        }
    }
    allowed
}
