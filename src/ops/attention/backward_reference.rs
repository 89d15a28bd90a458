//! The gradients of attention on the CPU, in double precision, and how far a device may be from them.

use crate::base::parallel;

use super::super::ball::FUNCTION;
use super::reference::{Errors, dot, length};
use super::*;

/// Sums of three gradients, those of the queries of a head and of its keys and values.
type Three = [Vec<f64>; 3];

/// Writes the gradients, and returns how far a device may be from each element of them; nothing unless `encloses`.
pub fn gradients(spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>], encloses: bool) -> Three {
    let shape = Shape::of(spec);
    let (batch, group) = ((shape.batch * shape.heads / shape.group) as usize, shape.group as usize);
    let ends = RaggedAttention::ends(spec);
    let seen = shape.all_seen(ends.map(|ends| [inputs[ends], inputs[ends + 1]]));
    let found = parallel::map(batch, |shared| of_shared(spec, (&shape, &seen), inputs, (shared, group), encloses));
    let mut radii: Three = Default::default();
    if encloses {
        radii = [0, 1, 2].map(|output: usize| vec![0.0; outputs[output].len()]);
    }
    let heads = shape.queries as usize * shape.size as usize;
    let put = |of: &Three, to: &mut [Vec<f64>], shared: usize| {
        for (head, values) in of[0].chunks(heads.max(1)).enumerate() {
            shape.put(values, &mut to[0], shared * group + head, shape.of_queries());
        }
        shape.put(&of[1], &mut to[1], shared, shape.of_keys());
        shape.put(&of[2], &mut to[2], shared, shape.of_values());
    };
    for (shared, (values, own)) in found.iter().enumerate() {
        put(values, outputs, shared);
        if encloses {
            put(own, &mut radii, shared);
        }
    }
    radii
}

/// The gradients of the heads that share keys, and their radii.
fn of_shared(
    spec: &Spec,
    (shape, seen): (&Shape, &[std::ops::Range<usize>]),
    inputs: &[&[f64]],
    (shared, group): (usize, usize),
    encloses: bool,
) -> (Three, Three) {
    let (queries, keys) = (shape.queries as usize, shape.keys as usize);
    let (size, value_size) = (shape.size as usize, shape.value_size as usize);
    let k = shape.head(inputs[1], shared, shape.of_keys());
    let v = shape.head(inputs[2], shared, shape.of_values());
    let all_q: Vec<_> =
        (0..group).map(|head| shape.head(inputs[0], shared * group + head, shape.of_queries())).collect();
    let of_results = |input: usize, head: usize| shape.head(inputs[input], shared * group + head, shape.of_results());
    let all_o: Vec<_> = (0..group).map(|head| of_results(3, head)).collect();
    let all_dy: Vec<_> = (0..group).map(|head| of_results(5, head)).collect();
    let zeros = || [vec![0.0; group * queries * size], vec![0.0; keys * size], vec![0.0; keys * value_size]];
    let (mut values, mut radii) = (zeros(), if encloses { zeros() } else { Three::default() });
    let errors = Errors::of(spec, shape, &k, &v);
    let lengths: Vec<f64> = v.chunks(value_size.max(1)).map(|v| length(v, errors.least)).collect();
    let mut finite = errors.finite && k.iter().all(|k| k.is_finite());
    // Gradients of the keys and values from earlier heads.
    let mut before = [values[1].clone(), values[2].clone()];
    for row in 0..group * queries {
        let number = shared * group * queries + row;
        let q = &all_q[row / queries][row % queries * size..][..size];
        let dy = &all_dy[row / queries][row % queries * value_size..][..value_size];
        let o = &all_o[row / queries][row % queries * value_size..][..value_size];
        let dlse = inputs.get(if RaggedAttention::ends(spec).is_some() { 8 } else { 6 });
        let (lse, dlse) = (inputs[4][number], dlse.map_or(0.0, |dlse| dlse[number]));
        let delta = dot(dy, o) - dlse;
        // Roundings of its sum.
        let terms = shape.value_size as f64 / 2.0 + 8.0;
        let sizes: f64 = dy.iter().zip(o).map(|(dy, o)| (dy * o).abs()).sum();
        let off_delta = errors.unit * (terms * sizes + dlse.abs());
        finite &= dy.iter().chain(q).all(|value| value.is_finite());
        let (own_q, own_dy) = (length(q, errors.least) * shape.scale, length(dy, errors.least));
        for key in seen[row % queries].clone() {
            let (of_k, of_v) = (&k[key * size..][..size], &v[key * value_size..][..value_size]);
            let score = shape.scale * dot(q, of_k);
            let weight = (score - lse).exp();
            let product = dot(dy, of_v);
            let slope = if weight == 0.0 { 0.0 } else { weight * (product - delta) };
            add(&mut values[0][row * size..], of_k, shape.scale * slope);
            add(&mut values[1][key * size..], q, shape.scale * slope);
            add(&mut values[2][key * value_size..], dy, weight);
            if !encloses {
                continue;
            }
            let unit = errors.unit;
            let moved = errors.moved(own_q * errors.lengths[key], score, lse) + FUNCTION * unit;
            let off = terms * unit * own_dy * lengths[key] + 2.0 * unit * (product.abs() + delta.abs()) + off_delta;
            // Roundings of a sum over rows, and of the 16-bit factor.
            let count = (keys.max(group * queries)) as f64 / 4.0 + 16.0;
            let rounded = errors.rounded[0] + count * unit;
            let least = errors.rounded[1] + errors.precision.smallest();
            let of_weight = weight * (moved + rounded) + least;
            let of_slope =
                weight * (moved * (product - delta).abs() + off * (1.0 + moved)) + slope.abs() * rounded + least;
            let fits = errors.fits(weight + of_weight) && errors.fits(slope.abs() + of_slope);
            let [of_weight, of_slope] = [of_weight, of_slope].map(|error| if fits { error } else { f64::INFINITY });
            add_sizes(&mut radii[0][row * size..], of_k, shape.scale * of_slope);
            add_sizes(&mut radii[1][key * size..], q, shape.scale * of_slope);
            add_sizes(&mut radii[2][key * value_size..], dy, of_weight);
        }
        // A library stores the gradients of each head in the operands' type before it adds them up.
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
