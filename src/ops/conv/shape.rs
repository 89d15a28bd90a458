//! Sizes of a convolution, for each of the three tensors that can be computed.
//!
//! A convolution relates `x` of [samples, groups × inputs, spatial…], `w` of [groups × outputs, inputs, kernel…] and `y` of
//! [samples, groups × outputs, windows…]. A window of `y` covers elements of `x`, one for each element of the kernel. Each
//! tensor is a sum of products of the other two, so that the three forms are the gradients of each other.

use super::*;
use crate::ops::call::windows::{self, spatial};
use crate::ops::kernels::occupancy::{MOVED_AT_ONCE, WARP, lines_of};

/// Sizes and options of a convolution.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Form of the convolution, which determines the tensor that is computed.
    pub form: Form,
    /// Number of samples.
    pub samples: u64,
    /// Number of groups of channels.
    pub groups: u64,
    /// Number of channels of `x` per group.
    pub inputs: u64,
    /// Number of channels of `y` per group.
    pub outputs: u64,
    /// Spatial sizes of `x`.
    pub x: Dims,
    /// Spatial sizes of the kernel.
    pub kernel: Dims,
    /// Spatial sizes of `y`: the numbers of windows.
    pub y: Dims,
    /// Distance of neighbouring windows in each spatial dimension.
    pub stride: Dims,
    /// Number of zeros that each side of a spatial dimension of `x` is extended by.
    pub padding: Dims,
    /// Distance in `x` of neighbouring kernel elements, in each spatial dimension.
    pub dilation: Dims,
}

impl Form {
    /// Returns the form that an operation computes.
    pub fn of(spec: &Spec) -> Form {
        match spec.operation.name() {
            CONV_WEIGHTS => Form::Weights,
            _ if spec.attrs.bool("transposed") => Form::Transposed,
            _ => Form::Forward,
        }
    }

    /// Returns the numbers of `x`, `w` and `y` in a call, inputs first.
    pub fn operands(self, spec: &Spec) -> [usize; 3] {
        let output = spec.inputs.len();
        match self {
            Form::Forward => [0, 1, output],
            Form::Transposed => [output, 1, 0],
            Form::Weights => [0, output, 1],
        }
    }
}

impl Shape {
    /// Returns the sizes of a call.
    pub fn of(spec: &Spec) -> Shape {
        let form = Form::of(spec);
        let [x, w, y] = form.operands(spec).map(|operand| spec.operand(operand));
        let groups = spec.attrs.int("groups") as u64;
        let kernel = spatial(w);
        let option = |name| spec.attrs.spatial(name, kernel.len()).expect("checked by `infer`");
        Shape {
            form,
            samples: x.dims[0],
            groups,
            inputs: w.dims[1],
            outputs: w.dims[0] / groups,
            x: spatial(x),
            kernel,
            y: spatial(y),
            stride: option("stride"),
            padding: option("padding"),
            dilation: option("dilation"),
        }
    }

    /// Number of elements of the kernel.
    pub fn elements(&self) -> u64 {
        self.kernel.iter().product()
    }

    /// Returns the number of channels per group of the gathered tensor, and the number of rows of the product of a
    /// group.
    fn channels(&self) -> (u64, u64) {
        match self.form {
            Form::Forward | Form::Weights => (self.inputs, self.outputs),
            Form::Transposed => (self.outputs, self.inputs),
        }
    }

    /// Number of channels per group of the gathered tensor: `x`, or `y` for a transposed convolution.
    pub fn gathered(&self) -> u64 {
        self.channels().0
    }

    /// Number of taps per position: gathered elements, one for each channel and kernel element.
    pub fn taps(&self) -> u64 {
        self.gathered() * self.elements()
    }

    /// Spatial sizes of positions: the windows or, for a transposed convolution, the elements of `x`.
    pub fn position_dims(&self) -> Dims {
        if self.form == Form::Transposed { self.x } else { self.y }
    }

    /// Spatial sizes of the gathered tensor.
    pub fn sources(&self) -> Dims {
        if self.form == Form::Transposed { self.y } else { self.x }
    }

    /// Number of positions in all samples.
    pub fn positions(&self) -> u64 {
        self.samples * self.position_dims().iter().product::<u64>()
    }

    /// Returns the numbers of rows and columns and the depth of the matrix product of a group.
    pub fn product(&self) -> (u64, u64, u64) {
        let rows = self.channels().1;
        match self.form {
            Form::Forward | Form::Transposed => (rows, self.positions(), self.taps()),
            Form::Weights => (rows, self.taps(), self.positions()),
        }
    }

    /// Number of multiplications of all groups, including those with padding and with gaps between windows.
    pub fn multiplications(&self) -> f64 {
        let (rows, columns, depth) = self.product();
        (self.groups * rows * columns) as f64 * depth as f64
    }

    /// Number of multiplications and additions of all windows, padding included.
    pub fn flops(&self) -> f64 {
        let windows = self.samples * self.y.iter().product::<u64>();
        2.0 * windows as f64 * (self.groups * self.outputs) as f64 * (self.inputs * self.elements()) as f64
    }

    /// Average number of cache lines from which a warp loads one gathered element for each thread, if its threads have neighbouring positions in
    /// rows of `length` positions, and `apart` rows of positions lie between those of neighbouring threads.
    pub fn lines_of_warp(&self, length: u64, apart: u64, size: u64) -> f64 {
        let last = self.x.len() - 1;
        let stride = |axis: usize| if self.form == Form::Transposed { 1 } else { self.stride[axis] };
        let run = length.clamp(1, WARP);
        let rows = WARP as f64 / run as f64;
        let of_rows = rows * lines_of((run - 1) * stride(last) * size);
        // Neighbouring rows can share lines.
        let pitch = if last > 0 { self.sources()[last] * stride(last - 1) * apart * size } else { 0 };
        let of_all = lines_of((rows.ceil() as u64 - 1) * pitch + (run - 1) * stride(last) * size);
        of_rows.min(if last > 0 { of_all } else { of_rows }).min(WARP as f64)
    }

    /// Part of the gathered tensor that the device's memory moves for the windows: not the elements between windows that lie apart.
    pub fn moved(&self, size: u64) -> f64 {
        if self.form == Form::Transposed {
            return 1.0;
        }
        let last = self.x.len() - 1;
        let along = |axis: usize| {
            let piece = if axis == last { (MOVED_AT_ONCE / size).max(1) } else { 1 };
            let (count, dilation) = (self.kernel[axis], self.dilation[axis]);
            let window = if dilation <= piece { windows::span(count, dilation) + piece - 1 } else { count * piece };
            let moved = (self.y[axis] - 1) * window.min(self.stride[axis]) + window;
            (moved as f64 / self.x[axis] as f64).min(1.0)
        };
        (0..=last).map(along).product()
    }

    /// Returns the index in the gathered tensor, along one dimension, of the element for a position and a kernel
    /// element; `None` if it lies outside the tensor or between windows.
    pub fn source(&self, axis: usize, position: u64, element: u64) -> Option<u64> {
        let (stride, padding) = (self.stride[axis], self.padding[axis]);
        let shift = element * self.dilation[axis];
        let source = match self.form {
            Form::Transposed => {
                let start = (position + padding).checked_sub(shift)?;
                start.is_multiple_of(stride).then(|| start / stride)?
            }
            Form::Forward | Form::Weights => (position * stride + shift).checked_sub(padding)?,
        };
        (source < self.sources()[axis]).then_some(source)
    }
}

/// Returns the number of windows along a dimension; `None` if the kernel is larger than the padded tensor.
pub fn windows(size: u64, kernel: u64, [stride, padding, dilation]: [u64; 3]) -> Option<u64> {
    Some((size + 2 * padding).checked_sub(windows::span(kernel, dilation))? / stride + 1)
}

/// Returns the number of elements along a dimension that this many windows cover without padding, plus `added` elements
/// at the end; `None` if all of them are padding.
pub fn elements_of(windows: u64, kernel: u64, added: u64, [stride, padding, dilation]: [u64; 3]) -> Option<u64> {
    let spanned = (windows - 1) * stride + crate::ops::call::windows::span(kernel, dilation) + added;
    spanned.checked_sub(2 * padding).filter(|&size| size > 0)
}

#[cfg(test)]
impl Shape {
    /// A convolution of one sample and channel.
    pub fn of_one_channel(form: Form, [x, kernel, y, stride, padding, dilation]: [Dims; 6]) -> Shape {
        Shape { form, samples: 1, groups: 1, inputs: 1, outputs: 1, x, kernel, y, stride, padding, dilation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A forward convolution of one sample and channel without padding and dilation.
    fn shape(x: &[u64], kernel: u64, stride: u64) -> Shape {
        let each = |value: u64| std::iter::repeat_n(value, x.len()).collect::<Dims>();
        let y = x.iter().map(|size| (size - kernel) / stride + 1).collect();
        let x = x.iter().copied().collect();
        let [kernel, stride, padding, dilation] = [kernel, stride, 0, 1].map(each);
        Shape::of_one_channel(Form::Forward, [x, kernel, y, stride, padding, dilation])
    }

    /// Memory moves whole sectors, so that gaps along the last dimension save nothing unless they are large.
    #[test]
    fn elements_between_windows_are_not_moved() {
        let moved = |x: &[u64], kernel, stride, size| (100.0 * shape(x, kernel, stride).moved(size)).round();
        assert_eq!(moved(&[64, 64, 64], 1, 2, 4), 25.0);
        assert_eq!(moved(&[64, 64], 3, 2, 4), 98.0);
        assert_eq!(moved(&[100, 6400], 1, 100, 4), 0.0);
        assert_eq!(moved(&[64], 1, 2, 2), 100.0);
    }

    /// Neighbouring rows that are short share lines.
    #[test]
    fn short_rows_share_lines() {
        let lines = |x: &[u64], stride, size| {
            let shape = shape(x, 1, stride);
            shape.lines_of_warp(*shape.y.last().expect("a dimension"), 1, size)
        };
        assert_eq!(lines(&[4096], 1, 4), 1.0 + 31.0 / 32.0);
        assert_eq!(lines(&[4096], 2, 4), 1.0 + 62.0 / 32.0);
        assert_eq!(lines(&[8, 4096], 64, 4), 32.0);
        assert!(lines(&[64, 4], 1, 2) < 2.0);
        assert!(lines(&[64, 4096], 1024, 4) > 8.0);
    }
}
