//! Norms of rows (`rms_norm`, `layer_norm`), of rows of a sum that is also an output (`add_rms_norm`,
//! `add_layer_norm`), and of channels (`group_norm`, `instance_norm`, `batch_norm`).

mod accuracy;
mod batch;
mod channel;
mod columns;
mod flat;
mod groups;
mod kernel;
mod long;
pub(super) mod softmax;
mod text;

use super::kernels::kernel::compute_type;
use super::kernels::rows::row_length;
use super::*;

pub use batch::BatchNorm;
pub use groups::GroupNorm;
use kernel::NormPartition;
pub(super) use text::HELPERS;

/// A norm of rows; with `adds`, of the sum of two inputs.
pub struct Norm {
    /// True if the mean of a row is subtracted before scaling: a layer norm instead of an RMS norm.
    pub centred: bool,
    /// True if the norm is that of the sum of two inputs, which is then a second output.
    pub adds: bool,
}

const EPS: &str = "term added to the variance (or mean square) for numerical stability";

const RMS_OPTIONS: &[OptionSpec] = &[OptionSpec::number("eps", 1e-6, EPS)];

const LAYER_OPTIONS: &[OptionSpec] = &[OptionSpec::number("eps", 1e-5, EPS)];

const X: Input = Input::Tensor("x");
const RESIDUAL: Input = Input::Tensor("residual");
const WEIGHT: Input = Input::Optional("weight");
const BIAS: Input = Input::Optional("bias");

impl Operation for Norm {
    fn signature(&self) -> &'static Signature {
        const fn of(
            name: &'static str,
            summary: &'static str,
            inputs: &'static [Input],
            outputs: &'static [&'static str],
            options: &'static [OptionSpec],
        ) -> Signature {
            Signature { name, summary, category: Category::RowWise, inputs, outputs, options }
        }
        static RMS: Signature = of(
            "rms_norm",
            "root mean square normalization over the last dimension, with an optional weight",
            &[X, WEIGHT],
            &["y"],
            RMS_OPTIONS,
        );
        static LAYER: Signature = of(
            "layer_norm",
            "layer normalization over the last dimension, with an optional weight and bias",
            &[X, WEIGHT, BIAS],
            &["y"],
            LAYER_OPTIONS,
        );
        static ADD_RMS: Signature = of(
            "add_rms_norm",
            "fused residual addition and `rms_norm`: returns the norm of `x + residual`, and the sum",
            &[X, RESIDUAL, WEIGHT],
            &["y", "total"],
            RMS_OPTIONS,
        );
        static ADD_LAYER: Signature = of(
            "add_layer_norm",
            "fused residual addition and `layer_norm`: returns the norm of `x + residual`, and the sum",
            &[X, RESIDUAL, WEIGHT, BIAS],
            &["y", "total"],
            LAYER_OPTIONS,
        );
        match (self.centred, self.adds) {
            (false, false) => &RMS,
            (true, false) => &LAYER,
            (false, true) => &ADD_RMS,
            (true, true) => &ADD_LAYER,
        }
    }

    fn properties(&self) -> &'static [Property] {
        &[Property::InPlace]
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_rows()?;
        call.needs_floats()?;
        let x = &call.inputs[0].tensor;
        let columns = x.dims.part(x.dims.len() - 1..);
        if self.adds {
            let residual = &call.inputs[1].tensor;
            if (residual.dtype, residual.dims) != (x.dtype, x.dims) {
                let help = "`residual` needs the type and the shape of `x`";
                return Err(call.differs(0, format!("this is {x}"), 1, format!("this is {residual}"), help));
            }
        }
        for (index, input) in call.inputs.iter().enumerate().skip(self.rows()) {
            if input.tensor.dims != columns {
                let has = format!("this has rows of {}", columns[0]);
                let help = "a weight or a bias has one dimension, with an element for each column";
                return Err(call.differs(0, has, index, format!("this is {}", input.tensor.dims), help));
            }
        }
        let mut types = vec![call.float_output(0, x.dtype, x.dims)?];
        if self.adds {
            types.push(call.output(1, x.dtype, x.dims)?);
        }
        Ok(types)
    }

    fn cost(&self, spec: &Spec) -> Cost {
        self.cost_of_rows(spec)
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        self.normalize(spec, &Channels::of(spec), inputs, outputs);
    }

    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        self.tolerances(spec, &Channels::of(spec), inputs, outputs)
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        let cut = (0..spec.inputs.len()).map(|input| input < self.rows());
        (spec.inputs[0].dims.len() > 1).then(|| Pieces::Rows(cut.collect()))
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        self.launches(self.name(), spec, &Channels::of(spec))
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        let (dims, last) = (rule.spec.inputs[0].dims, rule.spec.inputs[0].dims.len() - 1);
        let weight = dims.part(last..);
        let parts = backward::NormParts { dims, axes: vec![last], weight, centred: self.centred, adds: self.adds };
        backward::norm(rule, &parts)
    }
}

impl Call<'_> {
    /// Fails unless inputs are floating-point tensors, and weight and bias have one element for each
    /// channel, which is dimension 1 of the first input.
    fn needs_channels(&self) -> Result<(), OpError> {
        self.needs_rank(0, 2, "samples and channels")?;
        self.needs_floats()?;
        let channels = self.inputs[0].tensor.dims[1];
        for (index, input) in self.inputs.iter().enumerate().skip(1) {
            if *input.tensor.dims != [channels] {
                let help = "a weight or a bias has one dimension, with an element for each channel";
                let has = format!("this has {channels} channels");
                return Err(self.differs(0, has, index, format!("this is {}", input.tensor.dims), help));
            }
        }
        Ok(())
    }
}

/// Mapping from the elements of a row to their weights and biases.
struct Channels {
    /// Number of consecutive rows with different weights; the next rows have the same weights again.
    groups: u64,
    /// Number of weights of a row.
    each: u64,
    /// Number of neighbouring elements of a row that have the same weight.
    alike: u64,
}

impl Channels {
    /// Returns the mapping with one weight per column, the same for all rows.
    fn of(spec: &Spec) -> Channels {
        Channels { groups: 1, each: row_length(spec) as u64, alike: 1 }
    }

    /// Returns the index of the weight of an element.
    fn place(&self, row: usize, column: usize) -> usize {
        row % self.groups as usize * self.each as usize + column / self.alike as usize
    }
}

/// Statistics of a row.
struct Statistics {
    /// Mean of the row; 0 for a norm that does not subtract it.
    mean: f64,
    /// Mean of the squared differences to `mean`.
    variance: f64,
    /// Factor of each difference to the mean: 1 / √(variance + eps).
    scale: f64,
}

impl Norm {
    /// Returns the number of first inputs that have a row for each row of the output. The other inputs have one element
    /// per column.
    fn rows(&self) -> usize {
        1 + usize::from(self.adds)
    }

    fn cost_of_rows(&self, spec: &Spec) -> Cost {
        match long::split(spec, self) {
            Some(split) => long::cost(spec, &split, self),
            None => NormPartition::of(spec, self).cost(spec, self),
        }
    }

    fn launches(&self, name: &str, spec: &Spec, channels: &Channels) -> Vec<Launch> {
        match long::split(spec, self) {
            Some(split) => long::launches(name, spec, &split, self, channels),
            None => vec![NormPartition::of(spec, self).launch(name, spec, self, channels)],
        }
    }

    /// Computes the reference result.
    fn normalize(&self, spec: &Spec, channels: &Channels, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        let (length, eps) = (row_length(spec), spec.attrs.number("eps"));
        let (y, total) = outputs.split_at_mut(1);
        if self.adds {
            let dtype = spec.inputs[0].dtype;
            total[0].iter_mut().zip(inputs[0]).zip(inputs[1]).for_each(|((sum, x), r)| *sum = dtype.round(x + r));
        }
        let rows = if self.adds { &total[0] } else { inputs[0] };
        for (number, (row, y)) in rows.chunks(length).zip(y[0].chunks_mut(length)).enumerate() {
            let Statistics { mean, scale, .. } = self.statistics(row, eps);
            for (column, (y, x)) in y.iter_mut().zip(row).enumerate() {
                let place = channels.place(number, column);
                let at = |input: usize, default: f64| inputs.get(input).map_or(default, |values| values[place]);
                *y = (x - mean) * scale * at(self.rows(), 1.0) + at(self.rows() + 1, 0.0);
            }
        }
    }

    /// Computes the reference result, and returns its tolerances.
    fn tolerances(
        &self,
        spec: &Spec,
        channels: &Channels,
        inputs: &[&[f64]],
        outputs: &mut [Vec<f64>],
    ) -> Vec<Tolerance> {
        self.normalize(spec, channels, inputs, outputs);
        let rows = if self.adds { &outputs[1] } else { inputs[0] };
        let mut tolerances = vec![accuracy::tolerance(self, spec, channels, (rows, inputs), &outputs[0])];
        if self.adds {
            tolerances.push(Tolerance::Exact);
        }
        tolerances
    }

    fn statistics(&self, row: &[f64], eps: f64) -> Statistics {
        let count = row.len() as f64;
        let mean = if self.centred { row.iter().sum::<f64>() / count } else { 0.0 };
        let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count;
        Statistics { mean, variance, scale: 1.0 / (variance + eps).sqrt() }
    }

    /// Returns the type in which the kernel computes.
    fn compute(&self, spec: &Spec) -> DType {
        compute_type(spec)
    }
}
