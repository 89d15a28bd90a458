//! Bounds of matrix products: devices that round as vendors' do, at every place where they may, have to pass, and those that
//! lose a term must not.

use aorta::base::random::{bell, hash};
use aorta::base::{DType, Dims, Space};
use aorta::ops::{Attr, Spec, Tensor};

fn tensor(dtype: DType, sizes: &[u64]) -> Tensor {
    let dims = Dims::from_slice(sizes).expect("few dimensions");
    Tensor { dtype, dims, strides: dims.contiguous_strides(), space: Space::Device, align: 16 }
}

/// A product with drawn types, sizes, terms and function.
#[derive(Debug)]
struct Product {
    spec: Spec,
    inputs: Vec<Vec<f64>>,
    bias: bool,
    accumulates: bool,
    function: &'static str,
}

fn pick<T: Copy>(seed: u64, place: u64, all: &[T]) -> T {
    all[(hash(seed, place) % all.len() as u64) as usize]
}

impl Product {
    fn drawn(seed: u64) -> Product {
        let factor = pick(seed, 0, &[DType::BF16, DType::F16, DType::F32, DType::E4M3]);
        let output = match factor {
            DType::F32 => DType::F32,
            DType::E4M3 => pick(seed, 1, &[DType::BF16, DType::F32]),
            _ => pick(seed, 1, &[factor, factor, DType::F32]),
        };
        let (m, n) = (pick(seed, 2, &[1, 3, 40]), pick(seed, 3, &[16, 48, 96]));
        let k = pick(seed, 4, &[16, 48, 512, 4096]);
        let (bias, accumulates) = (hash(seed, 5).is_multiple_of(2), hash(seed, 6).is_multiple_of(2));
        let function = pick(seed, 7, &["none", "none", "relu", "gelu", "silu"]);
        let options = [
            ("transpose_b", Attr::Bool(true)),
            ("accumulate", Attr::Bool(accumulates)),
            ("epilogue", Attr::Word(function)),
        ];
        let mut tensors = vec![tensor(factor, &[m, k]), tensor(factor, &[n, k])];
        tensors.extend(bias.then(|| tensor(output, &[n])));
        tensors.extend(accumulates.then(|| tensor(output, &[m, n])));
        let spec =
            Spec::of_use("gemm", &options, tensors.clone(), &[Some(tensor(output, &[m, n]))]).expect("a product");
        // What is added is small, as large as the products, or larger.
        let size = pick(seed, 8, &[0.3, 1.0, 10.0]) * (k as f64).sqrt();
        let one_sign = hash(seed, 9).is_multiple_of(3);
        let values = |(place, tensor): (usize, &Tensor)| -> Vec<f64> {
            let scale = if place < 2 { 1.0 } else { size };
            let of = |index: u64| {
                let value = scale * f64::from(bell(seed + 31 * place as u64, index));
                tensor.dtype.round(if one_sign { value.abs() } else { value })
            };
            (0..tensor.elements()).map(of).collect()
        };
        let inputs = tensors.iter().enumerate().map(values).collect();
        Product { spec, inputs, bias, accumulates, function }
    }

    /// What a device computes: sums of products in `f32`, by so many blocks that share the depth; a rounding before the addition of
    /// what the output held; and a kernel of its own for bias and function, which reads what the product has stored. `loses`
    /// leaves out the last term of a sum.
    fn computed(&self, splits: usize, loses: bool) -> Vec<f64> {
        let [a, b] = [0, 1].map(|input| &self.spec.inputs[input].dims);
        let (m, n, k) = (a[0] as usize, b[0] as usize, a[1] as usize);
        let (dtype, narrow) = (self.spec.outputs[0].dtype, |value: f64| f64::from(value as f32));
        let own = self.bias.then(|| &self.inputs[2]);
        let before = self.accumulates.then(|| &self.inputs[2 + usize::from(self.bias)]);
        let one = |place: usize| {
            let (row, column) = (&self.inputs[0][place / n * k..][..k], &self.inputs[1][place % n * k..][..k]);
            let depth = if loses { k - 1 } else { k };
            let part = |split: usize| {
                let range = split * depth / splits..(split + 1) * depth / splits;
                range.fold(0.0f32, |sum, index| sum + row[index] as f32 * column[index] as f32)
            };
            let mut sum = f64::from((0..splits).map(part).sum::<f32>());
            if let Some(before) = before {
                sum = narrow(dtype.round(sum) + before[place]);
            }
            if own.is_some() || self.function != "none" {
                sum = narrow(dtype.round(sum) + own.map_or(0.0, |own| own[place % n]));
            }
            dtype.round(match self.function {
                "relu" => sum.max(0.0),
                "gelu" => 0.5 * sum * (1.0 + erf(sum / std::f64::consts::SQRT_2)),
                "silu" => sum / (1.0 + (-sum).exp()),
                _ => sum,
            })
        };
        (0..m * n).map(one).collect()
    }

    fn passes(&self, found: Vec<f64>) -> bool {
        let inputs: Vec<&[f64]> = self.inputs.iter().map(Vec::as_slice).collect();
        let before = || vec![vec![0.0; found.len()]];
        self.spec
            .operation
            .check(&self.spec, &inputs, &before, std::slice::from_ref(&found))
            .iter()
            .all(|check| check.held())
    }
}

/// The error function, by its series or its continued fraction.
fn erf(x: f64) -> f64 {
    let size = x.abs();
    if size < 3.0 {
        let (mut term, mut sum) = (size, size);
        for n in 1..80 {
            term *= -size * size / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return x.signum() * sum * std::f64::consts::FRAC_2_SQRT_PI;
    }
    let fraction = (1..60).rev().fold(0.0, |tail, n| f64::from(n) / 2.0 / (size + tail));
    x.signum() * (1.0 - (-size * size).exp() / (size + fraction) / std::f64::consts::PI.sqrt())
}

#[test]
fn devices_that_round_wherever_they_may_pass() {
    let count = if crate::common::effort::is_long() { 1200 } else { u64::from(crate::common::effort::draws(150)) };
    for seed in 0..count {
        let product = Product::drawn(seed);
        for splits in [1, 4] {
            assert!(
                product.passes(product.computed(splits, false)),
                "seed {seed}, {splits} splits: {:?}",
                product.spec
            );
        }
    }
}

#[test]
fn a_lost_term_is_found() {
    let found = (0..60).map(Product::drawn).filter(|product| !product.passes(product.computed(1, true))).count();
    // Rounding to 16 bits hides one term of thousands, and `relu` hides negative sums.
    assert!(found >= 25, "{found} of 60");
}

/// The backend of the CPU stores what the reference computes, rounded: that agrees with the check, which reads sums back.
#[test]
fn the_stored_reference_passes_the_check() {
    for seed in 0..60 {
        let dtype = pick(seed, 0, &[DType::BF16, DType::F16, DType::F32]);
        let function = pick(seed, 1, &["none", "silu", "swiglu", "geglu", "geglu_tanh", "reglu"]);
        let (m, k, n) = (pick(seed, 2, &[1, 5, 37]), pick(seed, 3, &[8, 40, 129]), pick(seed, 4, &[2, 30, 112]));
        let tensors = [tensor(dtype, &[m, k]), tensor(dtype, &[k, n])];
        let options = [("epilogue", Attr::Word(function))];
        let outputs = if function.ends_with("glu") || function == "geglu_tanh" { 2 } else { 1 };
        let spec = Spec::of_use("gemm", &options, tensors.to_vec(), &vec![None; outputs]).expect("a product");
        let values = |(place, tensor): (u64, &Tensor)| -> Vec<f64> {
            (0..tensor.elements()).map(|index| tensor.dtype.round(f64::from(bell(seed + 31 * place, index)))).collect()
        };
        let inputs: Vec<Vec<f64>> = (0..).zip(&spec.inputs).map(values).collect();
        let inputs: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
        let zeros = || spec.outputs.iter().map(|output| vec![0.0; output.elements() as usize]).collect::<Vec<_>>();
        let mut found = zeros();
        spec.operation.reference(&spec, &inputs, &mut found);
        for (values, output) in found.iter_mut().zip(&spec.outputs) {
            values.iter_mut().for_each(|value| *value = output.dtype.round(*value));
        }
        let checks = spec.operation.check(&spec, &inputs, &zeros, &found);
        assert!(checks.iter().all(|check| check.held()), "seed {seed}: {function}, {spec:?}");
    }
}
