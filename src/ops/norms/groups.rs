//! `group_norm` and `instance_norm`: each group of channels of a sample is a row, normalized like `layer_norm`.

use super::*;

/// `group_norm(x, groups: n)`; or `instance_norm(x)`, with one channel per group.
pub struct GroupNorm {
    /// True if each channel is a group of its own: `instance_norm`.
    pub instances: bool,
}

/// The norm of rows that is applied to groups.
const ROWS: Norm = Norm { centred: true, adds: false };

const EPS_OPTION: OptionSpec = OptionSpec::number("eps", 1e-5, EPS);

impl Operation for GroupNorm {
    fn signature(&self) -> &'static Signature {
        const INSTANCES: Signature = Signature {
            name: "instance_norm",
            summary: "instance normalization: normalizes each channel of each sample, with an optional weight and bias per channel",
            category: Category::RowWise,
            inputs: &[X, WEIGHT, BIAS],
            outputs: &["y"],
            options: &[EPS_OPTION],
        };
        const GROUPS: Signature = Signature {
            name: "group_norm",
            summary: "group normalization: normalizes each group of channels of each sample, with an optional weight and bias per \
                      channel",
            options: &[
                OptionSpec::required("groups", OptionType::Int(1, i32::MAX as i64), "number of groups of channels"),
                EPS_OPTION,
            ],
            ..INSTANCES
        };
        if self.instances { &INSTANCES } else { &GROUPS }
    }

    fn properties(&self) -> &'static [Property] {
        &[Property::InPlace]
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_channels()?;
        let x = &call.inputs[0].tensor;
        let channels = x.dims[1];
        if !self.instances && !channels.is_multiple_of(call.attrs.int("groups") as u64) {
            let why = format!("{channels} channels cannot be divided into {} groups", call.attrs.int("groups"));
            return Err(call.bad_option("groups", why, format!("write a divisor of {channels}")));
        }
        call.needs_row_length(x.dims[1..].iter().product::<u64>() / self.groups(&x.dims, call.attrs))?;
        let outputs = call.outputs.iter().flatten();
        if let Some(operand) = call.inputs[..1].iter().chain(outputs).find(|operand| !is_whole(&operand.tensor)) {
            return Err(call.gaps(operand, "the channels of a sample have to be contiguous: `copy` the slice first"));
        }
        Ok(vec![call.float_output(0, x.dtype, x.dims)?])
    }

    fn cost(&self, spec: &Spec) -> Cost {
        let (spec, _) = self.rows(spec);
        ROWS.cost_of_rows(&spec)
    }

    fn reference(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) {
        let (spec, channels) = self.rows(spec);
        ROWS.normalize(&spec, &channels, inputs, outputs);
    }

    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        let (spec, channels) = self.rows(spec);
        ROWS.tolerances(&spec, &channels, inputs, outputs)
    }

    fn pieces(&self, spec: &Spec) -> Option<Pieces> {
        let cut = (0..spec.inputs.len()).map(|input| input == 0);
        (spec.inputs[0].dims[0] > 1).then(|| Pieces::Rows(cut.collect()))
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        let (spec, channels) = self.rows(spec);
        ROWS.launches(self.name(), &spec, &channels)
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        let dims = rule.spec.inputs[0].dims;
        let groups = self.groups(&dims, &rule.spec.attrs);
        let (each, alike) = (dims[1] / groups, dims[2..].iter().product());
        let (dims, weight) = (Dims::from([dims[0], groups, each, alike]), Dims::from([1, groups, each, 1]));
        backward::norm(rule, &backward::NormParts { dims, axes: vec![2, 3], weight, centred: true, adds: false })
    }
}

/// True if the elements of all channels of a sample are contiguous.
fn is_whole(tensor: &Tensor) -> bool {
    Tensor { dims: tensor.dims.part(1..), strides: tensor.strides.part(1..), ..*tensor }.contiguous()
}

impl GroupNorm {
    /// Returns the number of groups per sample in a tensor with these dimensions.
    fn groups(&self, dims: &Dims, attrs: &Attrs) -> u64 {
        if self.instances { dims[1] } else { attrs.int("groups") as u64 }
    }

    /// Returns the spec in which each group is a row, and the mapping from elements to weights.
    fn rows(&self, spec: &Spec) -> (Spec, Channels) {
        let dims = spec.inputs[0].dims;
        let groups = self.groups(&dims, &spec.attrs);
        let (each, alike) = (dims[1] / groups, dims[2..].iter().product::<u64>());
        let length = each * alike;
        let row = |tensor: &Tensor| {
            let dims = [dims[0], groups, length].into();
            Tensor { dims, strides: [tensor.strides[0], length, 1].into(), ..*tensor }
        };
        let mut rows = spec.clone();
        rows.inputs[0] = row(&spec.inputs[0]);
        rows.outputs[0] = row(&spec.outputs[0]);
        (rows, Channels { groups, each, alike })
    }
}
