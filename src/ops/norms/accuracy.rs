//! Rounding error bounds of normalized elements.

use super::super::check::sum_error;
use super::*;
use crate::ops::expression::ball::{FUNCTION, Precision};

/// Tolerance of each element of `y`, computed from these rows and inputs.
pub fn tolerance(
    norm: &Norm,
    spec: &Spec,
    channels: &Channels,
    (rows, inputs): (&[f64], &[&[f64]]),
    y: &[f64],
) -> Tolerance {
    let (length, eps) = (row_length(spec), spec.attrs.number("eps"));
    let compute = norm.compute(spec);
    let precision = Precision::of(compute);
    let unit = precision.unit();
    let mut radii = Vec::with_capacity(y.len());
    for (number, (row, y)) in rows.chunks(length).zip(y.chunks(length)).enumerate() {
        let Statistics { mean, variance, scale } = norm.statistics(row, eps);
        let row_is_finite = row.iter().all(|x| x.is_finite());
        let squares: Vec<f64> = row.iter().map(|x| (x - mean) * (x - mean)).collect();
        let total: f64 = squares.iter().sum();
        // The sum of squares of finite elements may overflow.
        if row_is_finite && !(precision.holds(2.0 * total) && precision.holds(row.iter().map(|x| x.abs()).sum())) {
            radii.extend(row.iter().map(|_| f64::INFINITY));
            continue;
        }
        if !row_is_finite {
            // An infinite element or a NaN affects the whole row; every device produces NaN in the same elements.
            let known = row.iter().any(|x| x.is_nan()) || norm.centred;
            radii.extend(row.iter().map(|_| if known { 0.0 } else { f64::INFINITY }));
            continue;
        }
        let count = length as f64;
        let sizes: Vec<f64> = row.iter().map(|x| x.abs()).collect();
        let size = sizes.iter().sum::<f64>() / count;
        // Errors of the mean: from its sum, and from merging the means of parts.
        let off = if norm.centred { sum_error(compute, &sizes) / count + 8.0 * unit * size } else { 0.0 };
        let spread = row.iter().map(|x| (x - mean).abs()).sum::<f64>() / count;
        let moved = sum_error(compute, &squares) / count + 12.0 * unit * variance + 2.0 * off * spread + off * off;
        let share = moved / (variance + eps);
        let scaled = if share < 0.5 { share } else { f64::INFINITY } + (FUNCTION + 4.0) * unit;
        radii.extend(row.iter().zip(y).enumerate().map(|(column, (x, y))| {
            let place = channels.place(number, column);
            let weight = inputs.get(norm.rows()).map_or(1.0, |weight| weight[place].abs());
            let difference = (x - mean).abs();
            let product = scale * weight * (off + unit * (x.abs() + difference) + difference * (scaled + 4.0 * unit));
            // A zero difference stays zero for any scale.
            let product = if product.is_nan() { f64::INFINITY } else { product };
            match y.is_finite() {
                true => product + 2.0 * unit * (y.abs() + product) + 4.0 * precision.smallest(),
                false => f64::INFINITY,
            }
        }));
    }
    Tolerance::Within(radii)
}
