//! Convolutions on the CPU, in double precision, as matrix products with one column per window (im2col).

use ndarray::{Array2, ArrayView2};

use super::super::matrix::{Added, Factors, product_radii};
use super::*;

/// Computes the output. Returns the tolerance of each element if `encloses`, otherwise an empty list.
pub fn compute(spec: &Spec, inputs: &[&[f64]], output: &mut [f64], encloses: bool) -> Vec<f64> {
    let shape = Shape::of(spec);
    let (rows, columns, _) = match shape.form {
        Form::Weights => shape.product(),
        _ => Shape { samples: 1, ..shape }.product(),
    };
    let slab = (rows * columns) as usize;
    let gather = Gather::of(&shape);
    let dtype = spec.outputs[0].dtype;
    let mut radii = Vec::with_capacity(if encloses { output.len() } else { 0 });
    for (index, c) in output.chunks_mut(slab.max(1)).enumerate() {
        let (sample, group) = (index / shape.groups as usize, index % shape.groups as usize);
        let own = factor(&shape, inputs, group);
        let samples = if shape.form == Form::Weights { 0..shape.samples as usize } else { sample..sample + 1 };
        let windows = gather.windows(inputs[0], group, samples);
        let b = if shape.form == Form::Weights { windows.t() } else { windows.view() };
        let factors = Factors { a: own.view(), b };
        factors.multiply(c);
        let added = inputs.get(2).map(|bias| {
            let of_row = |row: usize| bias[group * rows as usize + row];
            let sums: Vec<f64> = (0..slab).map(|place| of_row(place / columns as usize)).collect();
            Added { sizes: sums.iter().map(|sum| sum.abs()).collect(), sums }
        });
        for (sum, added) in c.iter_mut().zip(added.iter().flat_map(|added| &added.sums)) {
            *sum += added;
        }
        if encloses {
            // A library rounds the sums to the output's type before it adds the bias.
            let early = if added.is_some() { dtype.epsilon() } else { 0.0 };
            radii.extend(product_radii(factors, (added, early), c, (dtype, arithmetic(spec))));
        }
    }
    radii
}

/// The first matrix of a group's product: the weights, or the gradient of the result when computing the weights'
/// gradient.
fn factor(shape: &Shape, inputs: &[&[f64]], group: usize) -> Array2<f64> {
    let (elements, outputs, channels) = (shape.elements() as usize, shape.outputs as usize, shape.inputs as usize);
    let own = |count: usize| group * outputs * count;
    match shape.form {
        Form::Forward => {
            let depth = channels * elements;
            let values = &inputs[1][own(depth)..][..outputs * depth];
            ArrayView2::from_shape((outputs, depth), values).expect("as many as a group has").to_owned()
        }
        Form::Transposed => {
            let weights = &inputs[1][own(channels * elements)..];
            Array2::from_shape_fn((channels, outputs * elements), |(channel, tap)| {
                weights[(tap / elements * channels + channel) * elements + tap % elements]
            })
        }
        Form::Weights => {
            let positions = shape.y.iter().product::<u64>() as usize;
            let all = shape.groups as usize * outputs;
            Array2::from_shape_fn((outputs, shape.samples as usize * positions), |(row, place)| {
                let (sample, position) = (place / positions, place % positions);
                inputs[1][(sample * all + group * outputs + row) * positions + position]
            })
        }
    }
}

/// For each window, the offsets of the elements that it covers.
struct Gather {
    /// Offset in a channel of each kernel element at each position, elements first; `None` for padding.
    sources: Vec<Option<usize>>,
    elements: usize,
    positions: usize,
    /// Number of channels of all groups.
    all: usize,
    /// Number of channels of a group.
    channels: usize,
    /// Number of elements of a channel.
    channel: usize,
}

impl Gather {
    fn of(shape: &Shape) -> Gather {
        let (positions, sizes) = (shape.position_dims(), shape.sources());
        let strides = sizes.contiguous_strides();
        let (count, elements) = (positions.iter().product::<u64>() as usize, shape.elements() as usize);
        let place = |(element, position): (u64, u64)| {
            let (mut element, mut position, mut offset) = (element, position, 0);
            for axis in (0..sizes.len()).rev() {
                let (kernel, size) = (shape.kernel[axis], positions[axis]);
                offset += strides[axis] * shape.source(axis, position % size, element % kernel)?;
                (element, position) = (element / kernel, position / size);
            }
            Some(offset as usize)
        };
        let pairs = (0..elements as u64).flat_map(|element| (0..count as u64).map(move |position| (element, position)));
        Gather {
            sources: pairs.map(place).collect(),
            elements,
            positions: count,
            all: (shape.groups * shape.gathered()) as usize,
            channels: shape.gathered() as usize,
            channel: sizes.iter().product::<u64>() as usize,
        }
    }

    /// Returns the elements of all windows of some samples: a row per tap of a group, a column per position.
    fn windows(&self, values: &[f64], group: usize, samples: std::ops::Range<usize>) -> Array2<f64> {
        let taps = self.channels * self.elements;
        let mut windows = Array2::zeros((taps, samples.len() * self.positions));
        for (tap, mut row) in windows.rows_mut().into_iter().enumerate() {
            let channel = group * self.channels + tap / self.elements;
            let sources = &self.sources[tap % self.elements * self.positions..][..self.positions];
            let row = row.as_slice_mut().expect("rows lie side by side");
            for (sample, row) in samples.clone().zip(row.chunks_mut(self.positions)) {
                let own = &values[(sample * self.all + channel) * self.channel..][..self.channel];
                for (to, source) in row.iter_mut().zip(sources) {
                    *to = source.map_or(0.0, |source| own[source]);
                }
            }
        }
        windows
    }
}
