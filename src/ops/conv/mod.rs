//! `conv` and `conv_weights`: convolutions, transposed convolutions, and the gradients of their weights.

mod cost;
mod depthwise;
mod few;
mod few_text;
mod fold;
mod kernel;
mod lines;
mod phase;
mod products;
mod reference;
mod shape;
mod spread;
mod text;

use super::ConvForm as Form;
use super::call::windows::{self, MAX_VALUE};
use super::matrix::arithmetic;
use super::*;
use phase::Phase;
pub use shape::Shape;
use shape::{elements_of, windows as windows_of};

/// `conv(x, w -> y)`, as `torch.nn.functional.conv1d` to `conv3d`, and `conv_transpose1d` to `conv_transpose3d`.
///
/// The second form of the operation is `conv_weights(x, dy -> dw)`, the gradient of a convolution's weights.
pub enum Conv {
    Forward,
    Weights,
}

const CONV_WEIGHTS: &str = "conv_weights";

/// Threads of a block of the kernels.
const THREADS: u64 = 256;

/// Maximum size in bytes of partial sums and copies in the workspace.
const MAX_PARTS: u64 = 256 << 20;

const STRIDE: OptionSpec = OptionSpec::spatial("stride", 1, MAX_VALUE, 1, "stride of the window");
const PADDING: OptionSpec =
    OptionSpec::spatial("padding", 0, MAX_VALUE, 0, "zero padding on both sides of each spatial dimension");
const DILATION: OptionSpec = OptionSpec::spatial("dilation", 1, MAX_VALUE, 1, "spacing between kernel elements");
const GROUPS: OptionSpec =
    OptionSpec::int("groups", 1, MAX_VALUE, 1, "number of groups of channels, each convolved separately");
const COMPUTE: OptionSpec = OptionSpec::word(
    "compute",
    &["auto", "f32", "tf32"],
    "`tf32` lets a library round f32 inputs for the matrix units; `auto` never does",
);

const DETERMINISTIC: &str = "deterministic";
const ORDER: OptionSpec = OptionSpec::bool(
    DETERMINISTIC,
    true,
    "whether the results have the same bits in every run; `false` lets a library add the products in any order",
);

static FORWARD: Signature = Signature {
    name: "conv",
    summary: "1-, 2- or 3-dimensional convolution or transposed convolution with an optional bias, accumulated in f32",
    category: Category::Matrix,
    inputs: &[Input::Tensor("x"), Input::Tensor("w"), Input::Optional("bias")],
    outputs: &["y"],
    options: &[
        STRIDE,
        PADDING,
        DILATION,
        GROUPS,
        OptionSpec::bool("transposed", false, "compute the transposed convolution"),
        OptionSpec::spatial(
            "output_padding",
            0,
            MAX_VALUE,
            0,
            "additional size at the end of each dimension of a transposed convolution's output; less than `stride`",
        ),
        COMPUTE,
        ORDER,
    ],
};

static WEIGHTS: Signature = Signature {
    name: CONV_WEIGHTS,
    summary: "the gradient of `conv` with respect to its weights",
    category: Category::Matrix,
    inputs: &[Input::Tensor("x"), Input::Tensor("dy")],
    outputs: &["dw"],
    options: &[
        OptionSpec::required("size", OptionType::Spatial(1, MAX_VALUE), "the kernel size"),
        STRIDE,
        PADDING,
        DILATION,
        GROUPS,
        COMPUTE,
        ORDER,
    ],
};

impl Operation for Conv {
    fn signature(&self) -> &'static Signature {
        match self {
            Conv::Forward => &FORWARD,
            Conv::Weights => &WEIGHTS,
        }
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        let result = match self {
            Conv::Forward => call.result_of_convolution()?,
            Conv::Weights => call.weights_of_convolution()?,
        };
        Ok(vec![result])
    }

    fn cost(&self, spec: &Spec) -> Cost {
        cost::cost(spec)
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        reference::compute(spec, inputs, &mut outputs[0], false);
    }

    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        vec![Tolerance::Within(reference::compute(spec, inputs, &mut outputs[0], true))]
    }

    /// Returns a piece for each sample; `None` for the gradient of weights, which sums over the samples.
    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        let by_sample = || Pieces::Rows((0..spec.inputs.len()).map(|input| input == 0).collect());
        matches!(self, Conv::Forward).then(by_sample)
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        kernel::launches(spec)
    }

    /// Returns the launches without matrix products, whose results and copies lie in the workspace.
    fn sparing_launch(&self, spec: &Spec) -> Option<Vec<Launch>> {
        let mut launches = self.launch(spec);
        let [Launch::Conv(_, kernels, products)] = &mut launches[..] else { return None };
        kernels.truncate(products.take()?.first_kernel);
        Some(launches)
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        match self {
            Conv::Forward => backward::conv(rule),
            Conv::Weights => backward::conv_weights(rule),
        }
    }
}

impl Call<'_> {
    /// Returns the type and shape of the result of `conv`.
    fn result_of_convolution(&self) -> Result<(DType, Dims), OpError> {
        let spatial = self.needs_convolution("a kernel: [output channels, input channels / groups, kernel sizes]")?;
        let [stride, padding, dilation] = self.steps(spatial)?;
        let added = self.each_spatial("output_padding", spatial)?.expect("it has a default");
        let (x, w, groups) = (&self.inputs[0].tensor, &self.inputs[1].tensor, self.attrs.int("groups") as u64);
        let transposed = self.attrs.bool("transposed");
        if !w.dims[0].is_multiple_of(groups) {
            let why = format!("the {} output channels of {w} cannot be divided into {groups} groups", w.dims[0]);
            return Err(self.bad_option("groups", why, format!("write a divisor of {}", w.dims[0])));
        }
        let (wanted, axis) = if transposed { (w.dims[0], 0) } else { (w.dims[1] * groups, 1) };
        if x.dims[1] != wanted {
            let help = match transposed {
                true => "the channels of a transposed convolution's `x` are the first dimension of `w`".to_owned(),
                false => format!(
                    "`x` has as many channels as the second dimension of `w` times `groups`, which is {groups} here"
                ),
            };
            let (left, right) = (format!("{x} has {} channels", x.dims[1]), format!("{w} has {}", w.dims[axis]));
            return Err(self.differs(0, left, 1, right, &help));
        }
        let mut sizes = Dims::new();
        for place in 0..spatial {
            let steps = [stride[place], padding[place], dilation[place]];
            let (size, kernel, added) = (x.dims[2 + place], w.dims[2 + place], added[place]);
            if !transposed && added > 0 {
                let why = "only a transposed convolution's result has elements behind its last".to_owned();
                return Err(self.bad_option("output_padding", why, "add `transposed: true`, or remove it"));
            }
            if added >= stride[place] && added > 0 {
                let why = format!("{added} elements are a whole step of {} or more", stride[place]);
                return Err(self.bad_option("output_padding", why, "write less than `stride`"));
            }
            let result = match transposed {
                true => elements_of(size, kernel, added, steps),
                false => windows_of(size, kernel, steps),
            };
            let Some(result) = result else {
                let help = match transposed {
                    true => "`padding` removes more elements than exist: write a smaller number",
                    false => "the kernel is larger than the padded input: add `padding`, or lower `dilation`",
                };
                let spanned = windows::span(kernel, dilation[place]);
                let left = format!("size {size} with {} of padding on both sides", padding[place]);
                return Err(self.differs(0, left, 1, format!("the kernel spans {spanned} elements"), help));
            };
            sizes.push(result);
        }
        let channels = if transposed { w.dims[1] * groups } else { w.dims[0] };
        let dims = windows::shape(x.dims[0], channels, sizes);
        if let Some(bias) = self.inputs.get(2)
            && (bias.tensor.dtype, &*bias.tensor.dims) != (x.dtype, &[channels][..])
        {
            let help = "the bias has a number for each channel of the result, of its element type";
            let right = format!("this is {}, not {}[{channels}]", bias.tensor, x.dtype);
            return Err(self.differs(0, format!("the result is {}{dims}", x.dtype), 2, right, help));
        }
        let tensor = Tensor { dims, ..*x };
        self.needs_narrow_indices(&super::Operand { tensor, span: self.span }, &[1])?;
        self.output(0, x.dtype, dims)
    }

    /// Returns the type and shape of the result of `conv_weights`.
    fn weights_of_convolution(&self) -> Result<(DType, Dims), OpError> {
        let spatial = self.needs_convolution("the gradient of a result: [samples, channels, spatial sizes]")?;
        let [stride, padding, dilation] = self.steps(spatial)?;
        let size = self.each_spatial("size", spatial)?.expect("it is required");
        let (x, dy, groups) = (&self.inputs[0].tensor, &self.inputs[1].tensor, self.attrs.int("groups") as u64);
        for channels in [x.dims[1], dy.dims[1]] {
            if !channels.is_multiple_of(groups) {
                let why = format!("{channels} channels cannot be divided into {groups} groups");
                return Err(self.bad_option("groups", why, format!("write a divisor of {channels}")));
            }
        }
        let steps = |axis: usize| [stride[axis], padding[axis], dilation[axis]];
        let fits =
            (0..spatial).all(|axis| windows_of(x.dims[2 + axis], size[axis], steps(axis)) == Some(dy.dims[2 + axis]));
        if !fits || x.dims[0] != dy.dims[0] {
            let sizes: Vec<String> = (0..spatial)
                .map(|axis| {
                    windows_of(x.dims[2 + axis], size[axis], steps(axis))
                        .map_or("none".to_owned(), |size| size.to_string())
                })
                .collect();
            let help = format!(
                "a convolution of this `x` has {} samples and windows of [{}]: `size`, `stride`, `padding` and `dilation` are \
                 those of the convolution",
                x.dims[0],
                sizes.join(", ")
            );
            return Err(self.differs(0, format!("this is {x}"), 1, format!("this is {dy}"), &help));
        }
        let dims = windows::shape(dy.dims[1], x.dims[1] / groups, size);
        let tensor = Tensor { dims, ..*x };
        self.needs_narrow_indices(&super::Operand { tensor, span: self.span }, &[0, 1])?;
        self.output(0, x.dtype, dims)
    }

    /// Returns the number of spatial dimensions; fails unless both inputs have the same number and compatible types.
    fn needs_convolution(&self, layout: &str) -> Result<usize, OpError> {
        (0..2).try_for_each(|index| self.needs_wide_float(index))?;
        let spatial = self.needs_spatial(0, "[samples, channels, spatial sizes]")?;
        self.needs_spatial(1, layout)?;
        let [left, right] = [0, 1].map(|index| &self.inputs[index].tensor);
        if left.dtype != right.dtype {
            let cast = self.cast_to(left.dtype.promote(right.dtype));
            let help = format!("both need the same element type: {cast}");
            let [left, right] = [left, right].map(|tensor| format!("this is {}", tensor.dtype));
            return Err(self.differs(0, left, 1, right, &help));
        }
        if left.dims.len() != right.dims.len() {
            let help = format!("both have the same number of spatial dimensions: the second is {layout}");
            return Err(self.differs(0, format!("this is {left}"), 1, format!("this is {right}"), &help));
        }
        if self.attrs.word("compute") == "tf32" && left.dtype != DType::F32 {
            let why = format!("`tf32` is for f32, and these are {}", left.dtype);
            return Err(self.bad_option("compute", why, "remove `compute`"));
        }
        let weights = self.operation.name() != CONV_WEIGHTS;
        self.needs_narrow_indices(&self.inputs[0], &[1])?;
        self.needs_narrow_indices(&self.inputs[1], if weights { &[0, 1] } else { &[1] })?;
        Ok(spatial)
    }

    /// Returns `stride`, `padding` and `dilation` for each spatial dimension.
    fn steps(&self, spatial: usize) -> Result<[Dims; 3], OpError> {
        let option = |name| self.each_spatial(name, spatial).map(|sizes| sizes.expect("it has a default"));
        Ok([option("stride")?, option("padding")?, option("dilation")?])
    }
}
