//! `pool`: maximum or mean of sliding windows; and `pool_backward`, its gradient.

mod bands;
mod cluster;
mod columns;
mod cost;
mod division;
mod elements_text;
mod fill;
mod gradient;
mod grid;
mod held;
mod kernel;
mod shape;
mod text;

use super::call::windows::{self, MAX_VALUE};
use super::expression::ball::Precision;
use super::reductions::{Function, Group, parts};
use super::*;
pub use gradient::PoolBackward;
use kernel::{Kernels, Task};
use shape::Shape;

/// `pool(x -> y, indices)`, as `torch.nn.functional.max_pool1d` to `max_pool3d`, `avg_pool…` and `adaptive_…_pool…`.
pub struct Pool;

const LAYOUT: &str = "[samples, channels, spatial sizes]";

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::word("mode", &["max", "mean"], "maximum or average of each window"),
    OptionSpec::absent("size", OptionType::Spatial(1, MAX_VALUE), "the window size"),
    OptionSpec::absent("stride", OptionType::Spatial(1, MAX_VALUE), "stride of the window; `size` by default"),
    OptionSpec::spatial(
        "padding",
        0,
        MAX_VALUE,
        0,
        "padding on both sides, at most half of `size`: negative infinity for `max`, zeros for `mean`",
    ),
    OptionSpec::spatial("dilation", 1, MAX_VALUE, 1, "spacing between window elements; for `mode: max` only"),
    OptionSpec::bool("adaptive", false, "adaptive pooling: the size of the output determines the windows"),
    OptionSpec::bool("count_padding", true, "include the padding in the divisor of an average"),
];

impl Operation for Pool {
    signature! {
        name: "pool",
        summary: "1-, 2- or 3-dimensional max or average pooling; also returns the indices of maxima",
        category: Category::RowWise,
        inputs: &[Input::Tensor("x")],
        outputs: &["y", "indices"],
        options: OPTIONS,
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_wide_float(0)?;
        call.needs_spatial(0, LAYOUT)?;
        call.needs_narrow_indices(&call.inputs[0], &[1])?;
        let x = &call.inputs[0].tensor;
        let given = call.outputs.iter().flatten().next().map(|output| output.tensor.dims);
        if call.attrs.bool("adaptive") && given.is_none() {
            return Err(
                call.no_output("the output's shape sets the number of adaptive windows: write the output, `-> y`")
            );
        }
        let sizes = call.pooled(given)?;
        let dims = windows::shape(x.dims[0], x.dims[1], sizes);
        let mut results = vec![call.output(0, x.dtype, dims)?];
        if call.outputs.len() > 1 {
            call.needs_maxima()?;
            results.push(call.output(1, DType::I32, dims)?);
            if let Some(indices) = call.outputs[1].filter(|indices| !indices.tensor.contiguous()) {
                return Err(call.gaps(&indices, CONTIGUOUS));
            }
        }
        Ok(results)
    }

    fn outputs(&self, _: &Attrs, _: usize, given: usize) -> usize {
        given.clamp(1, 2)
    }

    fn outputs_with_gradients(&self, _: &Spec) -> usize {
        1
    }

    fn cost(&self, spec: &Spec) -> Cost {
        let kernels = Kernels::of(spec);
        kernels.cost(&[kernels.forward()])
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        pool(spec, inputs[0], outputs);
    }

    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        let tolerance = pool(spec, inputs[0], outputs);
        std::iter::once(tolerance).chain(outputs.iter().skip(1).map(|_| Tolerance::Exact)).collect()
    }

    /// Returns a piece for each sample, since results depend on a single sample.
    fn pieces(&self, _: &Spec) -> Option<Pieces> {
        Some(Pieces::Rows(vec![true]))
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let kernels = Kernels::of(spec);
        kernels.launches(kernels.forward())
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::pool(rule)
    }
}

/// Computes the results and the indices, and returns the tolerance of the results.
fn pool(spec: &Spec, x: &[f64], outputs: &mut [Vec<f64>]) -> Tolerance {
    let [y, indices @ ..] = outputs else { unreachable!("the signature has results") };
    let shape = Shape::of(spec);
    let precision = Precision::of(spec.inputs[0].dtype.compute());
    let (elements, count) = (shape.elements(), shape.windows());
    let mut allowed = Vec::with_capacity(y.len());
    let mut group = Group { terms: Vec::new(), radii: Vec::new(), compute: spec.inputs[0].dtype.compute() };
    for (index, y) in y.iter_mut().enumerate() {
        let plane = &x[index / count * elements..][..elements];
        let places = shape.places(index % count);
        if shape.is_max {
            let best = shape.best(plane, &places);
            *y = plane[best];
            indices.iter_mut().for_each(|indices| indices[index] = best as f64);
            continue;
        }
        group.terms.clear();
        group.terms.extend(places.iter().map(|&place| plane[place]));
        let sum = Function::Sum.of(&group.terms);
        let divisor = shape.divisor(places.len());
        *y = sum / divisor;
        let radius = group.radius(Function::Sum, sum) / divisor;
        allowed.push(radius + 2.0 * precision.unit() * y.abs() + 2.0 * precision.smallest());
    }
    if shape.is_max { Tolerance::Exact } else { Tolerance::Within(allowed) }
}

/// Help for indices with gaps.
const CONTIGUOUS: &str = "kernels address indices by the numbers of windows: store them in a buffer of their own";

impl Call<'_> {
    /// Returns an error if a mean has indices.
    fn needs_maxima(&self) -> Result<(), OpError> {
        if self.attrs.word("mode") == "max" {
            return Ok(());
        }
        Err(self.bad_option(
            "mode",
            "an average has no indices".to_owned(),
            "leave out the indices, or write `mode: max`",
        ))
    }

    /// Number of windows along each spatial dimension of the first input. `given` is the shape of the result, if
    /// known.
    fn pooled(&self, given: Option<Dims>) -> Result<Dims, OpError> {
        let x = &self.inputs[0].tensor;
        let count = x.dims.len() - 2;
        let [size, stride, padding, dilation] =
            ["size", "stride", "padding", "dilation"].map(|name| self.each_spatial(name, count));
        let (size, stride, padding) = (size?, stride?, padding?.expect("it has a default"));
        let dilation = dilation?.expect("it has a default");
        let is_dilated = dilation.iter().any(|&distance| distance > 1);
        if is_dilated && self.attrs.word("mode") != "max" {
            let why = "an average pools adjacent elements".to_owned();
            return Err(self.bad_option("dilation", why, "remove `dilation`, or write `mode: max`"));
        }
        if self.attrs.bool("adaptive") {
            for (name, is_given) in [
                ("size", size.is_some()),
                ("stride", stride.is_some()),
                ("padding", padding.iter().any(|&size| size > 0)),
                ("dilation", is_dilated),
            ] {
                if is_given {
                    let why = "adaptive windows follow from the output's shape".to_owned();
                    return Err(self.bad_option(name, why, format!("remove `{name}`, or `adaptive`")));
                }
            }
            // A result of another rank is rejected when it is compared with the expected shape.
            let given = given.filter(|dims| dims.len() == x.dims.len()).unwrap_or(x.dims);
            return Ok(Dims::from_slice(&given[2..]).expect("fewer dimensions than the tensor has"));
        }
        let Some(size) = size else {
            let help = "write `size: 2`, or `adaptive: true` for as many windows as the output has";
            return Err(self.bad_option("size", "a window needs a size".to_owned(), help));
        };
        let stride = stride.unwrap_or(size);
        let mut sizes = Dims::new();
        for axis in 0..count {
            if padding[axis] > size[axis] / 2 {
                let why = format!("a padding of {} is more than half of a window of {}", padding[axis], size[axis]);
                return Err(self.bad_option(
                    "padding",
                    why,
                    "write half of `size` or less: windows outside have no elements",
                ));
            }
            // With more padding, a dilated window could skip all of `x`.
            if padding[axis] > 0 && dilation[axis] > x.dims[2 + axis] {
                let why = format!("elements are {} apart, and there are {}", dilation[axis], x.dims[2 + axis]);
                return Err(self.bad_option("dilation", why, "write a smaller `dilation`, or remove `padding`"));
            }
            let padded = x.dims[2 + axis] + 2 * padding[axis];
            let span = windows::span(size[axis], dilation[axis]);
            let Some(rest) = padded.checked_sub(span) else {
                let why = format!("a window of {span} is larger than the {padded} elements that it goes over");
                return Err(self.bad_option("size", why, "write a smaller `size`, or add `padding`"));
            };
            sizes.push(rest / stride[axis] + 1);
        }
        Ok(sizes)
    }
}
