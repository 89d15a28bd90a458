//! Gradients of attention on the CPU in double precision, and the error bounds of a device.

use crate::base::parallel;

use super::reference::{Errors, dot, ends_of, length};
use super::shape::Bias;
use super::*;

/// Gradients of the queries, keys and values of heads that share keys, and of their biased scores. The last list is
/// empty if it is not requested.
type Gradients = [Vec<f64>; 4];

/// Writes the gradients, and returns the error bound of each element if `encloses`; empty lists otherwise.
pub fn gradients(spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>], encloses: bool) -> Vec<Vec<f64>> {
    let shape = Shape::of(spec);
    let (batch, group) = ((shape.batch * shape.heads / shape.group) as usize, shape.group as usize);
    let (seen, bias) = (shape.all_seen(ends_of(spec, inputs)), Bias::of(spec, inputs));
    let given = (&shape, seen.as_slice(), bias.as_ref());
    let found = parallel::map(batch, |shared| of_shared(spec, given, inputs, (shared, group), encloses));
    let mut radii: Vec<Vec<f64>> = vec![Vec::new(); outputs.len()];
    if encloses {
        radii.iter_mut().zip(outputs.iter()).for_each(|(radii, output)| radii.resize(output.len(), 0.0));
    }
    let heads = shape.queries as usize * shape.size as usize;
    let put = |of: &Gradients, to: &mut [Vec<f64>], shared: usize| {
        for (head, values) in of[0].chunks(heads.max(1)).enumerate() {
            shape.put(values, &mut to[0], shared * group + head, shape.of_queries());
        }
        shape.put(&of[1], &mut to[1], shared, shape.of_keys());
        shape.put(&of[2], &mut to[2], shared, shape.of_values());
        if let Some(slopes) = to.get_mut(3) {
            slopes[shared * of[3].len()..][..of[3].len()].copy_from_slice(&of[3]);
        }
    };
    for (shared, (values, own)) in found.iter().enumerate() {
        put(values, outputs, shared);
        if encloses {
            put(own, &mut radii, shared);
        }
    }
    radii
}

/// Gradients of the heads that share keys, and their error bounds.
fn of_shared(
    spec: &Spec,
    (shape, seen, bias): (&Shape, &[std::ops::Range<usize>], Option<&Bias>),
    inputs: &[&[f64]],
    (shared, group): (usize, usize),
    encloses: bool,
) -> (Gradients, Gradients) {
    let (queries, keys) = (shape.queries as usize, shape.keys as usize);
    let (size, value_size) = (shape.size as usize, shape.value_size as usize);
    let k = shape.head(inputs[1], shared, shape.of_keys());
    let v = shape.head(inputs[2], shared, shape.of_values());
    let all_q: Vec<_> =
        (0..group).map(|head| shape.head(inputs[0], shared * group + head, shape.of_queries())).collect();
    let of_results = |input: usize, head: usize| shape.head(inputs[input], shared * group + head, shape.of_results());
    let all_o: Vec<_> = (0..group).map(|head| of_results(3, head)).collect();
    let all_dy: Vec<_> = (0..group).map(|head| of_results(5, head)).collect();
    let scores = if spec.outputs.len() > 3 { group * queries * keys } else { 0 };
    let sizes = [group * queries * size, keys * size, keys * value_size, scores];
    let zeros = || sizes.map(|size| vec![0.0; size]);
    let (mut values, mut radii) = (zeros(), if encloses { zeros() } else { Gradients::default() });
    let dlse = input(spec, DLSE).map(|place| inputs[place]);
    let errors = Errors::of(spec, shape, &k, &v);
    let lengths: Vec<f64> = v.chunks(value_size.max(1)).map(|v| length(v, errors.least)).collect();
    let mut finite = errors.finite && k.iter().all(|k| k.is_finite());
    // Sums over the previous heads of the gradients of keys and of values.
    let mut before = [values[1].clone(), values[2].clone()];
    for row in 0..group * queries {
        let number = shared * group * queries + row;
        let q = &all_q[row / queries][row % queries * size..][..size];
        let dy = &all_dy[row / queries][row % queries * value_size..][..value_size];
        let o = &all_o[row / queries][row % queries * value_size..][..value_size];
        let (lse, dlse) = (inputs[4][number], dlse.map_or(0.0, |dlse| dlse[number]));
        let delta = dot(dy, o) - dlse;
        // Rounding error of `delta`.
        let terms = shape.value_size as f64 / 2.0 + 8.0;
        let sizes: f64 = dy.iter().zip(o).map(|(dy, o)| (dy * o).abs()).sum();
        let off_delta = errors.unit * (terms * sizes + dlse.abs());
        finite &= dy.iter().chain(q).all(|value| value.is_finite());
        let (own_q, own_dy) = (length(q, errors.least) * shape.scale, length(dy, errors.least));
        for key in seen[row % queries].clone() {
            let (of_k, of_v) = (&k[key * size..][..size], &v[key * value_size..][..value_size]);
            let bias = bias.map_or(0.0, |bias| bias.of_score(shared * group + row / queries, row % queries, key));
            // A bias of -inf masks the key.
            if bias == f64::NEG_INFINITY {
                continue;
            }
            let [without_bias, of_product] = shape.capped(shape.scale * dot(q, of_k));
            let score = without_bias + bias;
            let weight = (score - lse).exp();
            let product = dot(dy, of_v);
            let slope = if weight == 0.0 { 0.0 } else { weight * (product - delta) };
            let factor = shape.scale * of_product;
            add(&mut values[0][row * size..], of_k, factor * slope);
            add(&mut values[1][key * size..], q, factor * slope);
            add(&mut values[2][key * value_size..], dy, weight);
            if let Some(of_score) = values[3].get_mut(row * keys + key) {
                *of_score = slope;
            }
            if !encloses {
                continue;
            }
            let unit = errors.unit;
            let of_argument = errors.of_argument(own_q * errors.lengths[key] + bias.abs(), score, lse);
            let moved = errors.of_weight(score - lse, of_argument);
            let off = terms * unit * own_dy * lengths[key] + 2.0 * unit * (product.abs() + delta.abs()) + off_delta;
            // Roundings of a sum over rows, and of the 16-bit factor.
            let count = (keys.max(group * queries)) as f64 / 4.0 + 16.0;
            let rounded = errors.rounded[0] + count * unit;
            let least = errors.rounded[1] + errors.precision.smallest();
            let of_weight = moved + weight * rounded + least;
            let exact = moved * (product - delta).abs() + off * (weight + moved);
            let off_cap = errors.of_cap_slope(of_argument);
            let change = (slope * of_product).abs();
            let of_slope = exact * (of_product + off_cap) + slope.abs() * off_cap + change * rounded + least;
            let fits = errors.fits(weight + of_weight) && errors.fits(change + of_slope);
            let [of_weight, of_slope] = [of_weight, of_slope].map(|error| if fits { error } else { f64::INFINITY });
            add_sizes(&mut radii[0][row * size..], of_k, shape.scale * of_slope);
            add_sizes(&mut radii[1][key * size..], q, shape.scale * of_slope);
            add_sizes(&mut radii[2][key * value_size..], dy, of_weight);
            if let Some(radius) = radii[3].get_mut(row * keys + key) {
                *radius = exact;
            }
        }
        // The library stores the gradients of each head in the operands' type before it sums over heads (`of_keys` in
        // `cudnn_attention.rs`), so each head's part is rounded once. Our kernels sum all heads in registers.
        if encloses && group > 1 && (row + 1).is_multiple_of(queries) {
            for (place, before) in before.iter_mut().enumerate() {
                let all = values[place + 1].iter().zip(before.iter_mut()).zip(&mut radii[place + 1]);
                for ((value, before), radius) in all {
                    *radius += (value - *before).abs() * errors.rounded[0] + errors.rounded[1];
                    *before = *value;
                }
            }
        }
    }
    if encloses {
        for (values, radii) in values.iter().zip(&mut radii) {
            for (value, radius) in values.iter().zip(radii) {
                *radius += value.abs() * 4.0 * errors.unit + errors.precision.smallest();
                let known = finite && value.is_finite() && errors.precision.holds(value.abs() + *radius);
                *radius = if known { *radius } else { f64::INFINITY };
            }
        }
    }
    (values, radii)
}

fn add(to: &mut [f64], values: &[f64], factor: f64) {
    to.iter_mut().zip(values).for_each(|(to, value)| *to += factor * value);
}

fn add_sizes(to: &mut [f64], values: &[f64], factor: f64) {
    to.iter_mut().zip(values).for_each(|(to, value)| *to += factor * value.abs());
}
