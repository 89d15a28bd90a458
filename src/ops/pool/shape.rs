//! The windows of a pool.

use super::*;
use crate::ops::call::windows::{self, spatial};

/// The sizes of a pool.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Number of planes: samples times channels.
    pub planes: u64,
    /// Number of channels.
    pub channels: u64,
    /// Spatial sizes of `x`.
    pub x: Dims,
    /// Number of windows along each dimension.
    pub y: Dims,
    /// Size, stride, padding and dilation of windows; `None` if they are adaptive.
    pub steps: Option<[Dims; 4]>,
    pub is_max: bool,
    /// True if a mean divides by the whole size of a window, including its padding.
    pub counts_padding: bool,
}

impl Shape {
    /// Returns the shape of a `pool`, or of a `pool_backward`, whose second input has one element per window.
    pub fn of(spec: &Spec) -> Shape {
        let (x, y) = (spec.operand(0), spec.operand(1));
        let (attrs, rank) = (&spec.attrs, x.dims.len() - 2);
        let [padding, dilation] =
            ["padding", "dilation"].map(|name| attrs.spatial(name, rank).expect("it has a default"));
        let mut size = attrs.spatial("size", rank);
        let mut stride = attrs.spatial("stride", rank).or(size);
        let (sizes, windows) = (spatial(x), spatial(y));
        // Adaptive windows of equal sizes are adjacent.
        if size.is_none() && sizes.iter().zip(windows.iter()).all(|(size, windows)| size.is_multiple_of(*windows)) {
            let mut each = sizes;
            (0..rank).for_each(|axis| each.set(axis, sizes[axis] / windows[axis]));
            (size, stride) = (Some(each), Some(each));
        }
        let steps = size.zip(stride).map(|(size, stride)| [size, stride, padding, dilation]);
        Shape {
            planes: x.dims[0] * x.dims[1],
            channels: x.dims[1],
            x: sizes,
            y: windows,
            steps,
            is_max: attrs.word("mode") == "max",
            counts_padding: attrs.bool("count_padding") && steps.is_some(),
        }
    }

    /// Number of elements of one channel of one sample of `x`.
    pub fn elements(&self) -> usize {
        self.x.iter().product::<u64>() as usize
    }

    /// Number of windows of one channel of one sample, which is the number of its elements in `y`.
    pub fn windows(&self) -> usize {
        self.y.iter().product::<u64>() as usize
    }

    /// Indices along a dimension of the elements of a window that are inside the tensor.
    fn range(&self, axis: usize, window: u64) -> std::iter::StepBy<std::ops::Range<u64>> {
        let (elements, windows) = (self.x[axis], self.y[axis]);
        match self.steps {
            None => (window * elements / windows..((window + 1) * elements).div_ceil(windows)).step_by(1),
            Some([size, stride, padding, dilation]) => {
                let (begin, step) = (window * stride[axis], dilation[axis]);
                // Number of window elements before the start of `x`.
                let outside = padding[axis].saturating_sub(begin).div_ceil(step);
                let end = begin + windows::span(size[axis], step);
                (begin + outside * step - padding[axis]..end.saturating_sub(padding[axis]).min(elements))
                    .step_by(step as usize)
            }
        }
    }

    /// Indices in a plane of the elements of a window, in ascending order.
    pub fn places(&self, window: usize) -> Vec<usize> {
        let (mut places, mut rest, mut stride) = (vec![0], window as u64, 1);
        for axis in (0..self.x.len()).rev() {
            let range = self.range(axis, rest % self.y[axis]);
            rest /= self.y[axis];
            places = range.flat_map(|at| places.iter().map(move |place| at as usize * stride + place)).collect();
            stride *= self.x[axis] as usize;
        }
        places
    }

    /// True if an element of a plane is in a window, or between two of its elements that `dilation` separates.
    pub fn spans(&self, window: usize, place: usize) -> bool {
        let (mut rest, mut place) = (window as u64, place as u64);
        let is_within = (0..self.x.len()).rev().all(|axis| {
            let (own, at) = (rest % self.y[axis], place % self.x[axis]);
            (rest, place) = (rest / self.y[axis], place / self.x[axis]);
            match self.steps {
                None => self.range(axis, own).any(|other| other == at),
                Some([size, stride, padding, dilation]) => {
                    let begin = own * stride[axis];
                    (begin..begin + windows::span(size[axis], dilation[axis])).contains(&(at + padding[axis]))
                }
            }
        });
        is_within && place == 0
    }

    /// Divisor of a mean of a window with this many elements inside the tensor.
    pub fn divisor(&self, inside: usize) -> f64 {
        match self.steps {
            Some([size, ..]) if self.counts_padding => size.iter().product::<u64>() as f64,
            _ => inside as f64,
        }
    }

    /// Index of the first maximum, or of the first NaN.
    pub fn best(&self, plane: &[f64], places: &[usize]) -> usize {
        let better = |value: f64, best: f64| value > best || value.is_nan() && !best.is_nan();
        places
            .iter()
            .copied()
            .fold(places[0], |best, place| if better(plane[place], plane[best]) { place } else { best })
    }
}
