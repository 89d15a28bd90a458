//! Attention on the CPU in double precision, and the error bounds of a device.

use std::borrow::Cow;

use crate::base::parallel;

use super::shape::Bias;
use super::*;
use crate::ops::expression::ball::{FUNCTION, Precision};

/// Results of the queries of a head, with their error bounds if requested.
#[derive(Default)]
struct Rows {
    o: Vec<f64>,
    lse: Vec<f64>,
    o_radii: Vec<f64>,
    lse_radii: Vec<f64>,
}

/// Writes `o` and `lse`. Returns the error bound of each element if `encloses`, otherwise empty lists.
pub fn attend(spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>], encloses: bool) -> [Vec<f64>; 2] {
    let shape = Shape::of(spec);
    let heads = (shape.batch * shape.heads) as usize;
    let seen = shape.page.is_none().then(|| shape.all_seen(ends_of(spec, inputs)));
    let bias = Bias::of(spec, inputs);
    let found =
        parallel::map(heads, |head| of_a_head(spec, (&shape, seen.as_deref(), bias.as_ref()), inputs, head, encloses));
    let mut radii = [Vec::new(), Vec::new()];
    if encloses {
        radii = [0, 1].map(|output: usize| vec![0.0; outputs[output].len()]);
    }
    let rows = shape.queries as usize;
    for (head, found) in found.into_iter().enumerate() {
        shape.put(&found.o, &mut outputs[0], head, shape.of_results());
        outputs[1][head * rows..][..rows].copy_from_slice(&found.lse);
        if encloses {
            shape.put(&found.o_radii, &mut radii[0], head, shape.of_results());
            radii[1][head * rows..][..rows].copy_from_slice(&found.lse_radii);
        }
    }
    radii
}

/// Returns the ends of the packed sequences of queries and of keys; `None` if the inputs are not packed.
pub fn ends_of<'a>(spec: &Spec, inputs: &[&'a [f64]]) -> Option<[&'a [f64]; 2]> {
    Some([inputs[input(spec, ENDS)?], inputs[input(spec, KEY_ENDS)?]])
}

/// Returns the keys and values of a head of queries, and the shape with their number.
fn keys_of<'a>(shape: &Shape, inputs: &[&'a [f64]], head: usize) -> (Shape, Cow<'a, [f64]>, Cow<'a, [f64]>) {
    let Some(page) = shape.page else {
        let shared = head / shape.group as usize;
        let k = shape.head(inputs[1], shared, shape.of_keys());
        return (shape.clone(), k, shape.head(inputs[2], shared, shape.of_values()));
    };
    let (heads, shared_heads) = (shape.heads as usize, shape.heads / shape.group);
    let (sequence, shared) = (head / heads, head % heads / shape.group as usize);
    let columns = (shape.keys / page.max(1)) as usize;
    let length = inputs[4][sequence].clamp(0.0, shape.keys as f64);
    let mut own = Shape { keys: length as u64, ..shape.clone() };
    own.page = None;
    let gathered = |pool: &[f64], size: u64| {
        let of_block = (page * shared_heads * size) as usize;
        let blocks = pool.len().checked_div(of_block).unwrap_or(0);
        let mut all = Vec::new();
        for column in 0..length.div_euclid(page as f64).ceil() as usize + 1 {
            let block = inputs[3].get(sequence * columns + column).copied().unwrap_or(-1.0);
            match (0.0..blocks as f64).contains(&block) {
                true => {
                    let number = block as usize * shared_heads as usize + shared;
                    all.extend_from_slice(&shape.head(pool, number, (shared_heads, page, size)));
                }
                false => all.resize(all.len() + (page * size) as usize, 0.0),
            }
        }
        all.truncate(length as usize * size as usize);
        all
    };
    let (k, v) = (gathered(inputs[1], shape.size), gathered(inputs[2], shape.value_size));
    (own, Cow::Owned(k), Cow::Owned(v))
}

/// Computes the queries of one head. `seen` is the range of keys of each query; `None` if the number of keys differs
/// between sequences.
fn of_a_head(
    spec: &Spec,
    (shape, seen, bias): (&Shape, Option<&[std::ops::Range<usize>]>, Option<&Bias>),
    inputs: &[&[f64]],
    head: usize,
    encloses: bool,
) -> Rows {
    let (own, k, v) = keys_of(shape, inputs, head);
    let of_sequence;
    let all_seen = match seen {
        Some(seen) => seen,
        None => {
            of_sequence = own.all_seen(None);
            &of_sequence
        }
    };
    let (queries, keys) = (shape.queries as usize, own.keys as usize);
    let (size, value_size) = (shape.size as usize, shape.value_size as usize);
    let q = shape.head(inputs[0], head, shape.of_queries());
    let shape = &own;
    let errors = encloses.then(|| Errors::of(spec, shape, &k, &v));
    let mut rows = Rows::default();
    let mut scores = Vec::with_capacity(keys);
    for query in 0..queries {
        let own = &q[query * size..][..size];
        let seen = all_seen[query].clone();
        scores.clear();
        let of_score = |key: usize| bias.map_or(0.0, |bias| bias.of_score(head, query, key));
        let product = |key: usize| shape.scale * dot(own, &k[key * size..][..size]);
        scores.extend(seen.clone().map(|key| shape.capped(product(key))[0] + of_score(key)));
        let top = scores
            .iter()
            .fold(f64::NEG_INFINITY, |top, score| if *score > top || score.is_nan() { *score } else { top });
        // A bias of -inf masks a key. A query without keys has the result zero.
        let seen = if bias.is_some() && top == f64::NEG_INFINITY { 0..0 } else { seen };
        let mut o = vec![0.0; value_size];
        let mut sum = 0.0;
        for (score, key) in scores.iter().zip(seen.clone()) {
            let weight = (score - top).exp();
            sum += weight;
            o.iter_mut().zip(&v[key * value_size..]).for_each(|(o, v)| *o += weight * v);
        }
        let lse = if seen.is_empty() { f64::NEG_INFINITY } else { top + sum.ln() };
        if !seen.is_empty() {
            o.iter_mut().for_each(|o| *o /= sum);
        }
        if let Some(errors) = &errors {
            let (o_radii, lse_radius) = errors.radii(own, seen, &scores, (&o, lse), &v, &of_score);
            rows.o_radii.extend(o_radii);
            rows.lse_radii.push(lse_radius);
        }
        rows.o.extend(o);
        rows.lse.push(lse);
    }
    rows
}

pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// Magnitude from which splitting an `f32` number into `bf16` parts changes it by less than rounding a product, even if matrix units
/// replace subnormal parts by zero.
const MIN_OF_PARTS: f64 = 1.0 / (1u128 << 102) as f64;

/// Rounding errors of a device for the queries of a head.
pub struct Errors<'a> {
    shape: &'a Shape,
    dtype: DType,
    pub precision: Precision,
    pub unit: f64,
    /// Relative and absolute error of a weight that is rounded to 16 bits for the second product. The largest weight is 1.
    pub rounded: [f64; 2],
    /// Smallest magnitude that a factor's element is counted with: matrix units align `f16` products by the exponents
    /// of normal numbers, and `bf16` parts of smaller `f32` numbers are inexact.
    pub least: f64,
    /// Euclidean lengths of the keys.
    pub lengths: Vec<f64>,
    /// True if all values are finite. A device multiplies the values of masked keys by zero, and infinity times zero is NaN.
    pub finite: bool,
}

impl Errors<'_> {
    pub fn of<'a>(spec: &Spec, shape: &'a Shape, k: &[f64], v: &[f64]) -> Errors<'a> {
        let dtype = spec.inputs[0].dtype;
        let precision = Precision::of(dtype.compute());
        let narrow = dtype.size() == 2;
        let least = match dtype {
            DType::F16 => dtype.smallest(),
            DType::F32 => MIN_OF_PARTS,
            _ => 0.0,
        };
        Errors {
            shape,
            dtype,
            precision,
            unit: precision.unit(),
            rounded: if narrow { [dtype.epsilon(), dtype.epsilon() * dtype.smallest()] } else { [0.0; 2] },
            least,
            lengths: k.chunks((shape.size as usize).max(1)).map(|key| length(key, least)).collect(),
            finite: v.iter().all(|v| v.is_finite()),
        }
    }

    /// Returns the largest error of the argument of an exponential, `score - less`. `size` is the product of the lengths of query and key
    /// and the scale, plus the magnitude of the bias. A soft cap does not increase the error of its argument, and adds its own.
    pub fn of_argument(&self, size: f64, score: f64, less: f64) -> f64 {
        // A matrix unit sums a few products before it rounds, and truncates sums.
        let terms = self.shape.size as f64 / 2.0 + 8.0;
        let cap = self.shape.softcap;
        let is_fast = self.rounded[0] > 0.0 && softcap_text::is_fast(cap);
        let of_cap = FUNCTION * self.unit * if is_fast { cap } else { cap.min(size) };
        terms * self.unit * size + 4.0 * self.unit * (score.abs() + less.abs()) + of_cap
    }

    /// Returns the largest error of a soft cap's derivative. A device may compute it from the logarithm of the weight, whose error is that of the
    /// exponential and of its argument, `off`.
    pub fn of_cap_slope(&self, off: f64) -> f64 {
        match self.shape.softcap {
            0.0 => 0.0,
            cap => (4.0 * (off + FUNCTION * self.unit) / cap).min(1.0) + FUNCTION * self.unit,
        }
    }

    /// Returns the largest error of a weight that results from rounding its exponential and the argument of the
    /// exponential, `off`. `logarithm` is the logarithm of the weight.
    pub fn of_weight(&self, logarithm: f64, off: f64) -> f64 {
        let weight = logarithm.exp();
        // A large error of the argument is applied inside the exponential, because multiplying it by a weight of zero
        // would give NaN.
        let moved = if off < 1.0 { weight * off * (1.0 + off) } else { (logarithm + off).exp() };
        moved + weight * FUNCTION * self.unit
    }

    /// True if a factor of the second product is finite in its type.
    pub fn fits(&self, value: f64) -> bool {
        self.dtype.round(value).is_finite() && self.precision.holds(value)
    }

    /// Error bounds of the elements of `o` for a query, and of its `lse`.
    fn radii(
        &self,
        query: &[f64],
        seen: std::ops::Range<usize>,
        scores: &[f64],
        (o, lse): (&[f64], f64),
        v: &[f64],
        bias: &dyn Fn(usize) -> f64,
    ) -> (Vec<f64>, f64) {
        if seen.is_empty() {
            return (vec![if self.finite { 0.0 } else { f64::INFINITY }; o.len()], 0.0);
        }
        let unknown = || (vec![f64::INFINITY; o.len()], f64::INFINITY);
        let own = length(query, self.least) * self.shape.scale;
        let longest = self.lengths[seen.clone()]
            .iter()
            .fold(0.0, |top: f64, length| if *length > top || length.is_nan() { *length } else { top });
        if !(self.finite && lse.is_finite() && self.precision.holds(own * longest * std::f64::consts::LOG2_E)) {
            return unknown();
        }
        let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (mut moved, mut all) = (0.0, vec![0.0; o.len()]);
        // Roundings of a sum over keys, and of the rescaling after each tile.
        let count = seen.len() as f64 / 4.0 + 16.0;
        for (score, key) in scores.iter().zip(seen) {
            let (bias, weight) = (bias(key), (score - lse).exp());
            if !self.precision.holds(bias * std::f64::consts::LOG2_E) {
                // If the bias is infinite on the device, the weight is either zero, which is correct, or unknown.
                if bias < 0.0 && weight == 0.0 {
                    continue;
                }
                return unknown();
            }
            let off = self.of_argument(own * self.lengths[key] + bias.abs(), *score, top);
            let off = self.of_weight(score - lse, off);
            moved += off;
            // Before the division by the sum, the largest weight is 1.
            let each =
                off + weight * (self.rounded[0] + count * self.unit) + self.rounded[1] + self.precision.smallest();
            all.iter_mut().zip(&v[key * o.len()..]).for_each(|(all, v)| *all += each * v.abs());
        }
        let sum = moved + count * self.unit;
        let radii =
            all.iter().zip(o).map(|(all, o)| all + o.abs() * (sum + 8.0 * self.unit) + self.precision.smallest());
        (radii.collect(), sum + self.unit * (8.0 + 4.0 * lse.abs() + 4.0 * top.abs()))
    }
}

/// Euclidean length of a vector. Each element counts with a magnitude of at least `least`.
pub fn length(values: &[f64], least: f64) -> f64 {
    values
        .iter()
        .map(|value| if value.abs() < least { least } else { value.abs() })
        .map(|value| value * value)
        .sum::<f64>()
        .sqrt()
}
