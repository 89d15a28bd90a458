//! Attention on the CPU, in double precision, and how far a device may be from it.

use std::borrow::Cow;

use crate::base::parallel;

use super::super::ball::{FUNCTION, Precision};
use super::*;

/// The result of some rows, with radii if they are asked for.
#[derive(Default)]
struct Rows {
    o: Vec<f64>,
    lse: Vec<f64>,
    o_radii: Vec<f64>,
    lse_radii: Vec<f64>,
}

/// Writes both outputs, and returns how far a device may be from each element of them; nothing unless `encloses`.
pub fn attend(spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>], encloses: bool) -> [Vec<f64>; 2] {
    let shape = Shape::of(spec);
    let heads = (shape.batch * shape.heads) as usize;
    let ends = RaggedAttention::ends(spec).map(|ends| [inputs[ends], inputs[ends + 1]]);
    let seen = shape.page.is_none().then(|| shape.all_seen(ends));
    let found = parallel::map(heads, |head| of_a_head(spec, (&shape, seen.as_deref()), inputs, head, encloses));
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

/// The keys and values that a head of queries has, and the shape with their number.
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

/// The rows of a head. `seen` has the keys of each query; `None` where sequences have different numbers of keys.
fn of_a_head(
    spec: &Spec,
    (shape, seen): (&Shape, Option<&[std::ops::Range<usize>]>),
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
        scores.extend(seen.clone().map(|key| shape.scale * dot(own, &k[key * size..][..size])));
        let top = scores
            .iter()
            .fold(f64::NEG_INFINITY, |top, score| if *score > top || score.is_nan() { *score } else { top });
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
            let (o_radii, lse_radius) = errors.radii(own, seen, &scores, (&o, lse), &v);
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

/// The rounding errors of a device for the queries of a head.
pub struct Errors<'a> {
    shape: &'a Shape,
    dtype: DType,
    pub precision: Precision,
    pub unit: f64,
    /// The relative and the absolute error of a weight that is rounded for the second product. The largest weight is 1.
    pub rounded: [f64; 2],
    /// Elements of a factor count as this at least: `f16` products are lined up by the exponents of normal numbers.
    pub least: f64,
    /// The lengths of the keys.
    pub lengths: Vec<f64>,
    /// Whether all values are numbers. A device multiplies those that a query does not see with zero.
    pub finite: bool,
}

impl Errors<'_> {
    pub fn of<'a>(spec: &Spec, shape: &'a Shape, k: &[f64], v: &[f64]) -> Errors<'a> {
        let dtype = spec.inputs[0].dtype;
        let precision = Precision::of(dtype.compute());
        let narrow = dtype.size() == 2;
        let least = if dtype == DType::F16 { dtype.smallest() } else { 0.0 };
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

    /// How far the exponential of a score less another number may be off, relative, by the roundings of its argument. `size`
    /// is the product of the lengths of a query and a key, and of the scale.
    pub fn moved(&self, size: f64, score: f64, less: f64) -> f64 {
        // A unit adds up some products before it rounds, and cuts sums off.
        let terms = self.shape.size as f64 / 2.0 + 8.0;
        let off = terms * self.unit * size + 4.0 * self.unit * (score.abs() + less.abs());
        if off < 1.0 { off * (1.0 + off) } else { off.exp_m1() }
    }

    /// Whether a factor of the second product is not too large for its type.
    pub fn fits(&self, value: f64) -> bool {
        self.dtype.round(value).is_finite() && self.precision.holds(value)
    }

    /// How far the elements of an output row and its logarithm may be off.
    fn radii(
        &self,
        query: &[f64],
        seen: std::ops::Range<usize>,
        scores: &[f64],
        (o, lse): (&[f64], f64),
        v: &[f64],
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
        // Roundings of a sum over keys, and of what it is multiplied with for each of its tiles.
        let count = seen.len() as f64 / 4.0 + 16.0;
        for (score, key) in scores.iter().zip(seen) {
            let off = self.moved(own * self.lengths[key], *score, top) + FUNCTION * self.unit;
            let weight = (score - lse).exp();
            moved += weight * off;
            // The largest weight is 1 before the division by the sum.
            let each =
                weight * (off + self.rounded[0] + count * self.unit) + self.rounded[1] + self.precision.smallest();
            all.iter_mut().zip(&v[key * o.len()..]).for_each(|(all, v)| *all += each * v.abs());
        }
        let sum = moved + count * self.unit;
        let radii =
            all.iter().zip(o).map(|(all, o)| all + o.abs() * (sum + 8.0 * self.unit) + self.precision.smallest());
        (radii.collect(), sum + self.unit * (8.0 + 4.0 * lse.abs() + 4.0 * top.abs()))
    }
}

/// The root of the sum of squares of elements that count as `least` at least.
pub fn length(values: &[f64], least: f64) -> f64 {
    values
        .iter()
        .map(|value| if value.abs() < least { least } else { value.abs() })
        .map(|value| value * value)
        .sum::<f64>()
        .sqrt()
}
