//! The sizes of a convolution, for each of the three tensors that can be computed.
//!
//! A convolution relates `x` of [samples, groups × inputs, spatial…], `w` of [groups × outputs, inputs, kernel…] and `y` of
//! [samples, groups × outputs, windows…]. A window of `y` covers elements of `x`, one for each element of the kernel. Each
//! tensor is a sum of products of the other two, so that the three forms are the gradients of each other.

use super::super::windows::spatial;
use super::*;

/// The sizes of a convolution.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub form: Form,
    pub samples: u64,
    pub groups: u64,
    /// Channels of `x` and of `y` per group.
    pub inputs: u64,
    pub outputs: u64,
    /// Spatial sizes of `x`, of the kernel, and of `y`.
    pub x: Dims,
    pub kernel: Dims,
    pub y: Dims,
    pub stride: Dims,
    pub padding: Dims,
    pub dilation: Dims,
}

impl Form {
    pub fn of(spec: &Spec) -> Form {
        match spec.operation.name() {
            CONV_WEIGHTS => Form::Weights,
            _ if spec.attrs.bool("transposed") => Form::Transposed,
            _ => Form::Forward,
        }
    }

    /// Operand numbers of `x`, `w` and `y` in a call.
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

    /// Number of kernel elements.
    pub fn elements(&self) -> u64 {
        self.kernel.iter().product()
    }

    /// Channels per group of the gathered tensor and of the computed tensor.
    fn channels(&self) -> (u64, u64) {
        match self.form {
            Form::Forward | Form::Weights => (self.inputs, self.outputs),
            Form::Transposed => (self.outputs, self.inputs),
        }
    }

    /// Channels per group of the tensor whose elements are gathered.
    pub fn gathered(&self) -> u64 {
        self.channels().0
    }

    /// Taps per position: the gathered elements, one for each channel and kernel element.
    pub fn taps(&self) -> u64 {
        self.gathered() * self.elements()
    }

    /// Spatial sizes of positions: those of windows; for a transposed convolution, those of `x`.
    pub fn positions(&self) -> Dims {
        if self.form == Form::Transposed { self.x } else { self.y }
    }

    /// Spatial sizes of the gathered tensor.
    pub fn sources(&self) -> Dims {
        if self.form == Form::Transposed { self.y } else { self.x }
    }

    /// Number of positions in all samples.
    pub fn places(&self) -> u64 {
        self.samples * self.positions().iter().product::<u64>()
    }

    /// Rows, columns and depth of the matrix product of a group.
    pub fn product(&self) -> (u64, u64, u64) {
        let rows = self.channels().1;
        match self.form {
            Form::Forward | Form::Transposed => (rows, self.places(), self.taps()),
            Form::Weights => (rows, self.taps(), self.places()),
        }
    }

    /// Number of multiplications, including those with padding.
    pub fn multiplications(&self) -> f64 {
        let (rows, columns, depth) = self.product();
        (self.groups * rows * columns) as f64 * depth as f64
    }

    /// Multiplications and additions.
    pub fn flops(&self) -> f64 {
        let windows = self.samples * self.y.iter().product::<u64>();
        2.0 * windows as f64 * (self.groups * self.outputs) as f64 * (self.inputs * self.elements()) as f64
    }

    /// Index in the gathered tensor, along one dimension, of the element for a position and a kernel element; `None`
    /// if it is outside or between windows.
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

/// Number of windows along a dimension; `None` if the kernel is larger than the padded tensor.
pub fn windows(size: u64, kernel: u64, [stride, padding, dilation]: [u64; 3]) -> Option<u64> {
    Some((size + 2 * padding).checked_sub(super::super::windows::span(kernel, dilation))? / stride + 1)
}

/// Number of elements along a dimension that this many windows cover, plus `added` elements at the end; `None` if all
/// are padding.
pub fn elements_of(windows: u64, kernel: u64, added: u64, [stride, padding, dilation]: [u64; 3]) -> Option<u64> {
    let spanned = (windows - 1) * stride + super::super::windows::span(kernel, dilation) + added;
    spanned.checked_sub(2 * padding).filter(|&size| size > 0)
}
