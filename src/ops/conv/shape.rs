//! The sizes of a convolution, whichever of its three tensors is computed.
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
    /// Channels of `x` and of `y` in a group.
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

    /// The operands `x`, `w` and `y` of a use, by their numbers.
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

    /// Elements of the kernel.
    pub fn elements(&self) -> u64 {
        self.kernel.iter().product()
    }

    /// The channels of the tensor that windows are gathered from, and of the one that is computed, in a group.
    fn channels(&self) -> (u64, u64) {
        match self.form {
            Form::Forward | Form::Weights => (self.inputs, self.outputs),
            Form::Transposed => (self.outputs, self.inputs),
        }
    }

    /// Channels in a group of the tensor whose elements are gathered by places and taps.
    pub fn gathered(&self) -> u64 {
        self.channels().0
    }

    /// Taps of a place: the elements that are gathered for it, one for each channel and each element of the kernel.
    pub fn taps(&self) -> u64 {
        self.gathered() * self.elements()
    }

    /// The spatial sizes of places: windows, or elements of `x` in a transposed convolution.
    pub fn positions(&self) -> Dims {
        if self.form == Form::Transposed { self.x } else { self.y }
    }

    /// The spatial sizes of the tensor that is gathered.
    pub fn sources(&self) -> Dims {
        if self.form == Form::Transposed { self.y } else { self.x }
    }

    /// Places of all samples.
    pub fn places(&self) -> u64 {
        self.samples * self.positions().iter().product::<u64>()
    }

    /// Rows, columns and depth of the matrix product that each group is.
    pub fn product(&self) -> (u64, u64, u64) {
        let rows = self.channels().1;
        match self.form {
            Form::Forward | Form::Transposed => (rows, self.places(), self.taps()),
            Form::Weights => (rows, self.taps(), self.places()),
        }
    }

    /// Multiplications of the product, those with elements that no window covers included.
    pub fn multiplications(&self) -> f64 {
        let (rows, columns, depth) = self.product();
        (self.groups * rows * columns) as f64 * depth as f64
    }

    /// Multiplications and additions.
    pub fn flops(&self) -> f64 {
        let windows = self.samples * self.y.iter().product::<u64>();
        2.0 * windows as f64 * (self.groups * self.outputs) as f64 * (self.inputs * self.elements()) as f64
    }

    /// The spatial place of the element that a place and an element of the kernel meet at in the gathered tensor, for one
    /// dimension; `None` outside of it or between windows.
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

/// Windows of a kernel along a dimension; `None` if the kernel is larger than the padded tensor.
pub fn windows(size: u64, kernel: u64, [stride, padding, dilation]: [u64; 3]) -> Option<u64> {
    Some((size + 2 * padding).checked_sub(super::super::windows::span(kernel, dilation))? / stride + 1)
}

/// Elements along a dimension that so many windows come from, with `added` ones behind them; `None` if all are padding.
pub fn elements_of(windows: u64, kernel: u64, added: u64, [stride, padding, dilation]: [u64; 3]) -> Option<u64> {
    let spanned = (windows - 1) * stride + super::super::windows::span(kernel, dilation) + added;
    spanned.checked_sub(2 * padding).filter(|&size| size > 0)
}
