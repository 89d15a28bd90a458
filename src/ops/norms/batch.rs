//! `batch_norm`: normalizes each channel by its statistics over all samples.
//!
//! A reduction computes the mean and variance of each channel, which are also outputs; a second kernel normalizes each
//! element. If a channel fits into the registers of a block, one kernel does both. Large tensors of many samples are divided
//! into columns. Sums are of differences to the channel's first element, which preserves precision if the mean is large.

use super::super::reductions::{self, Extent, Finish, Function, Terms};
use super::channel::HeldChannels;
use super::columns::{Columns, cost_of_rereading};
use super::flat::FlatChannels;
use super::*;
use crate::ops::expression::ball::{Ball, Precision};
use crate::ops::expression::formula::{Formula, formula};
use crate::ops::kernels::kernel::{c_type, param, u64_param};
use crate::ops::kernels::walk::{self, Operand, Task};

/// `batch_norm(x)`, as `torch.nn.functional.batch_norm` in training. The channels are dimension 1.
pub struct BatchNorm;

/// Means and variances of channels, as a reduction of its own.
struct StatisticsReduction {
    /// Spec that reads `x` and the first element of each channel, and writes mean and variance.
    spec: Spec,
    extent: Extent,
}

/// Returns the operand of the operation for each operand of [`StatisticsReduction::spec`]. `inputs` is the operation's number of
/// inputs.
fn operands(inputs: usize) -> [u8; 4] {
    let mean = inputs as u8 + 1;
    [0, 0, mean, mean + 1]
}

/// Returns the terms of the two sums over a channel: differences to its first element, and their squares.
fn terms() -> Expression {
    formula(|[x, first]| [x - first, (x - first).square()])
}

/// Returns mean and variance as expressions of both sums over `count` elements and the first element.
fn moments(count: u64) -> Expression {
    formula(|[sum, squares, first]| {
        let [count, zero] = [count as f64, 0.0].map(|value| sum.constant(value));
        let shift = sum / count;
        [first + shift, (squares / count - shift.square()).max(zero)]
    })
}

/// Numbers of arithmetic operations: of both sums of each channel, and of the normalization.
fn operations(spec: &Spec) -> [f64; 2] {
    let each = [f64::from(terms().flops()) + 2.0, f64::from(normalized(spec).flops())];
    each.map(|each| each * spec.inputs[0].elements() as f64)
}

/// Returns a normalized element as an expression of `x`, mean, variance, and weight and bias if present.
fn normalized(spec: &Spec) -> Expression {
    let formula = Formula::default();
    let [x, mean, variance] = formula.inputs();
    let eps = formula.constant(spec.attrs.number("eps"));
    let mut y = (x - mean) * (variance + eps).rsqrt();
    if spec.inputs.len() > 1 {
        y = y * formula.input(3);
    }
    if spec.inputs.len() > 2 {
        y = y + formula.input(4);
    }
    formula.with_outputs([y])
}

/// Returns the task of evaluating [`normalized`] for each element.
fn task<'a>(spec: &Spec, expression: &'a Expression) -> Task<'a> {
    let (inputs, dims) = (spec.inputs.len(), spec.outputs[0].dims);
    let whole = |operand: usize, tensor: &Tensor| Operand::of(operand, tensor, tensor.strides);
    // Broadcasts one element per channel.
    let of_channels = |operand: usize, tensor: &Tensor| {
        let strides = (0..dims.len()).map(|axis| if axis == 1 { tensor.strides[0] } else { 0 }).collect();
        Operand::of(operand, tensor, strides)
    };
    let mut read = vec![whole(0, &spec.inputs[0])];
    read.extend((1..3).map(|output| of_channels(inputs + output, &spec.outputs[output])));
    read.extend((1..inputs).map(|input| of_channels(input, &spec.inputs[input])));
    Task { expression, dims, outputs: vec![whole(inputs, &spec.outputs[0])], inputs: read }
}

impl StatisticsReduction {
    fn of(spec: &Spec) -> StatisticsReduction {
        let x = spec.inputs[0];
        let mut first = x;
        let mut reduced = [false; Dims::MAX];
        for axis in (0..x.dims.len()).filter(|&axis| axis != 1) {
            reduced[axis] = true;
            first.dims.set(axis, 1);
        }
        let spec = Spec { inputs: vec![x, first], outputs: spec.outputs[1..].to_vec(), ..spec.clone() };
        StatisticsReduction { spec, extent: Extent { dims: x.dims, reduced } }
    }

    /// Returns the mean and variance of each channel, with error bounds.
    fn enclose(&self, x: &[f64]) -> Vec<[Ball; 2]> {
        let compute = compute_type(&self.spec);
        let firsts = self.firsts(x);
        let terms = Terms::of_each(&terms(), &self.spec, &self.extent, &[x, &firsts], compute);
        let moments = moments(self.extent.terms());
        let mut values = Vec::new();
        let channel = |(places, &first): (Vec<u64>, &f64)| {
            let [sum, squares] = [0, 1].map(|sum: usize| terms[sum].sum(places.iter().copied()));
            let inputs = [sum, squares, Ball::exact(first)];
            moments.propagate(Precision::of(compute), |input| inputs[input], &mut values);
            let output = |output: usize| values[usize::from(moments.outputs()[output])];
            [output(0), output(1)]
        };
        self.extent.groups().map(Iterator::collect).zip(&firsts).map(channel).collect()
    }

    /// Returns the first element of each channel.
    fn firsts(&self, x: &[f64]) -> Vec<f64> {
        self.extent.groups().map(|mut places| places.next().map_or(0.0, |place| x[place as usize])).collect()
    }

    fn launch_costs(&self) -> Vec<Cost> {
        let split = reductions::Split::of(&self.spec, &self.extent, compute_type(&self.spec), Function::Sums(2));
        split.launch_costs(&self.spec, &terms(), Function::Sums(2))
    }

    fn launches(&self, inputs: usize) -> Vec<Launch> {
        let compute = compute_type(&self.spec);
        let sums = ["total.v[0]", "total.v[1]", "load<C>(first[kept.offset(which, 1)])"].map(str::to_owned);
        let places = ["TO", "variance[(u64)which * variance_step]"];
        let mut finish = Finish::expression(&moments(self.extent.terms()), &sums, &places, compute);
        finish.params.extend([
            param(format!("const {}* first", c_type(self.spec.inputs[0].dtype)), Arg::Operand(0)),
            param(format!("{}* variance", c_type(self.spec.outputs[1].dtype)), Arg::Operand(3)),
            u64_param("variance_step", self.spec.outputs[1].strides[0]),
        ]);
        let name = "batch_norm_statistics";
        let launches =
            reductions::launches(name, Function::Sums(2), &terms(), &self.spec, &self.extent, compute, finish);
        launches.into_iter().map(|launch| launch.with_operands(&operands(inputs))).collect()
    }
}

impl Operation for BatchNorm {
    signature! {
        name: "batch_norm",
        summary: "batch normalization of each channel over all samples, with the statistics of the batch; also returns the means and the \
     variances",
        category: Category::RowWise,
        inputs: &[X, WEIGHT, BIAS],
        outputs: &["y", "mean", "variance"],
        options: LAYER_OPTIONS,
    }

    fn properties(&self) -> &'static [Property] {
        &[Property::InPlace]
    }

    fn infer(&self, call: &Call) -> Result<Vec<(DType, Dims)>, OpError> {
        call.needs_channels()?;
        let x = &call.inputs[0].tensor;
        let channels = x.dims.part(1..2);
        let y = call.float_output(0, x.dtype, x.dims)?;
        let statistics =
            call.inputs.iter().map(|input| input.tensor.dtype.compute()).fold(y.0.compute(), DType::promote);
        Ok(vec![y, call.output(1, statistics, channels)?, call.output(2, statistics, channels)?])
    }

    fn launch_costs(&self, spec: &Spec) -> Vec<Cost> {
        if let Some(held) = HeldChannels::of(spec) {
            return vec![Cost { flops: operations(spec).iter().sum(), ..held.cost(spec) }];
        }
        if let Some(columns) = Columns::of(spec) {
            let [sums, normalization] = operations(spec);
            let [adds, combines, normalizes] = columns.launch_costs(spec);
            return vec![Cost { flops: sums, ..adds }, combines, Cost { flops: normalization, ..normalizes }];
        }
        let (x, expression) = (&spec.inputs[0], normalized(spec));
        let elements = x.elements() as f64;
        let plain = spec.streaming_cost(f64::from(expression.flops()) * elements, 1024);
        let again = Traffic::of(x.space, x.bytes());
        let work = match FlatChannels::of(spec) {
            Some(flat) => flat.work(),
            None => walk::work(&[task(spec, &expression)]),
        };
        let normalizes = Cost {
            instructions: f64::from(expression.instructions()) * elements + work.instructions,
            sectors: work.sectors,
            blocks: work.blocks,
            special: f64::from(expression.special()) * elements,
            read: Spec::bytes_of(&spec.inputs[1..]),
            ..cost_of_rereading(x, plain)
        };
        let mut costs = StatisticsReduction::of(spec).launch_costs();
        // The first element of each channel is read twice.
        costs.iter_mut().take(1).for_each(|cost| cost.read = again);
        costs.into_iter().chain([normalizes]).collect()
    }

    fn enclose(&self, spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> Vec<Tolerance> {
        let statistics = StatisticsReduction::of(spec).enclose(inputs[0]);
        let (expression, precision) = (normalized(spec), Precision::of(compute_type(spec)));
        let [y, means, variances] = outputs else { unreachable!("the signature has three outputs") };
        let alike = spec.inputs[0].dims[2..].iter().product::<u64>() as usize;
        let mut values = Vec::new();
        let mut radii = Vec::with_capacity(y.len());
        for (place, (y, &x)) in y.iter_mut().zip(inputs[0]).enumerate() {
            let channel = place / alike % statistics.len();
            let [mean, variance] = statistics[channel];
            let input = |input: usize| match input {
                0 => Ball::exact(x),
                1 => mean,
                2 => variance,
                _ => Ball::exact(inputs[input - 2][channel]),
            };
            let ball = expression.propagate(precision, input, &mut values);
            *y = ball.value;
            radii.push(ball.radius);
        }
        let mut tolerances = vec![Tolerance::Within(radii)];
        for (output, which) in [means, variances].into_iter().zip(0..) {
            output.iter_mut().zip(&statistics).for_each(|(output, balls)| *output = balls[which].value);
            tolerances.push(Tolerance::Within(statistics.iter().map(|balls| balls[which].radius).collect()));
        }
        tolerances
    }

    fn launch(&self, spec: &Spec) -> Vec<Launch> {
        if let Some(held) = HeldChannels::of(spec) {
            return vec![held.launch(spec)];
        }
        if let Some(columns) = Columns::of(spec) {
            return columns.launches(spec);
        }
        let expression = normalized(spec);
        let mut launches = StatisticsReduction::of(spec).launches(spec.inputs.len());
        launches.push(match FlatChannels::of(spec) {
            Some(flat) => flat.launch(spec),
            None => walk::launch_all("batch_norm", &[task(spec, &expression)], compute_type(spec)),
        });
        launches
    }

    fn backward(&self, rule: &mut Backward) -> Result<(), NoRule> {
        backward::batch_norm(rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with a two-pass computation, for data whose mean is a million times its standard deviation.
    #[test]
    fn channels_have_their_own_statistics() {
        let (samples, channels, inner) = (4, 3, 5);
        let tensor = |sizes: &[u64]| Tensor::packed(DType::F64, sizes);
        let (whole, each) = (tensor(&[samples, channels, inner]), tensor(&[channels]));
        let attrs = Attrs::of([("eps", Attr::number(1e-3))]);
        let spec = Spec::new(&BatchNorm, attrs, vec![whole, each, each], vec![whole, each, each]);
        let x: Vec<f64> = (0..60).map(|index| 1e6 + f64::from(index * index % 17)).collect();
        let (weight, bias) = ([0.5, -2.0, 3.0], [1.0, 0.0, -4.0]);
        let mut outputs = vec![vec![0.0; 60], vec![0.0; 3], vec![0.0; 3]];
        BatchNorm.reference(&spec, &[&x, &weight, &bias], &mut outputs);
        for channel in 0..3 {
            let places = (0..60).filter(|place| place / 5 % 3 == channel);
            let own: Vec<f64> = places.clone().map(|place| x[place]).collect();
            let mean = own.iter().sum::<f64>() / 20.0;
            let variance = own.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 20.0;
            assert!((outputs[1][channel] - mean).abs() < 1e-9 && (outputs[2][channel] / variance - 1.0).abs() < 1e-12);
            for place in places {
                let expected = (x[place] - mean) / (variance + 1e-3).sqrt() * weight[channel] + bias[channel];
                assert!((outputs[0][place] - expected).abs() < 1e-8, "element {place}");
            }
        }
    }
}
