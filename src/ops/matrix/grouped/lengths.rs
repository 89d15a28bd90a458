//! Lengths of groups for which the time of a grouped product is estimated.

use super::{Shape, Spec, Tensor, Traffic, groups};

/// Lengths of groups, the longest first: each length with the number of groups that have it.
pub(super) type Lengths = Vec<(u64, u64)>;

/// Returns the lengths of groups of equal sizes.
pub(super) fn equal_lengths(shape: &Shape) -> Lengths {
    let (length, groups) = (shape.length(), shape.groups.max(1));
    if length < groups { vec![(1, length), (0, groups - length)] } else { vec![(length / groups, groups)] }
}

/// Returns the expected lengths of groups that divide the dimension at random, all divisions being equally likely.
pub(super) fn random_lengths(shape: &Shape) -> Lengths {
    let groups = shape.groups.max(1);
    let mean = shape.length() as f64 / groups as f64;
    // The group at place `p` has the mean times 1 / p + 1 / (p + 1) + … + 1 / groups (order statistics of uniform spacings).
    let (mut sum, mut lengths) = (0.0, Lengths::new());
    for place in (1..=groups).rev() {
        sum += 1.0 / place as f64;
        let length = (mean * sum).round() as u64;
        match lengths.last_mut() {
            Some((last, count)) if *last == length => *count += 1,
            _ => lengths.push((length, 1)),
        }
    }
    lengths.reverse();
    lengths
}

/// Returns the lengths of the groups if the text determines their ends.
pub(super) fn known_lengths(spec: &Spec, shape: &Shape) -> Option<Lengths> {
    let ends: Vec<f64> = spec.sizes.as_ref()?.first()?.iter().map(|&end| end as f64).collect();
    let mut lengths: Lengths = groups(&ends, shape.length()).map(|group| (group.len() as u64, 1)).collect();
    lengths.sort_unstable_by(|a, b| b.cmp(a));
    Some(lengths)
}

/// Returns the sizes with the number of rows, or of terms of the depth, that belong to groups, and the lengths of the groups: those of equal
/// groups if the text does not determine them.
pub(super) fn live_lengths(spec: &Spec, shape: Shape) -> (Shape, Lengths) {
    let known = known_lengths(spec, &shape);
    let live = match &known {
        Some(lengths) => Some(lengths.iter().map(|(length, count)| length * count).sum()),
        None => spec.live.map(|live| live.rows),
    };
    let shape = match live {
        Some(depth) if shape.in_depth => Shape { depth, ..shape },
        Some(rows) => Shape { rows, ..shape },
        None => shape,
    };
    (shape, known.filter(|known| !known.is_empty()).unwrap_or_else(|| equal_lengths(&shape)))
}

/// Returns the bytes that blocks read for groups of these lengths. Blocks read nothing that belongs to no group.
pub(super) fn read(spec: &Spec, shape: &Shape, lengths: &Lengths) -> Traffic {
    let [a, b, ends] = [0, 1, 2].map(|input| &spec.inputs[input]);
    let read_of = |tensor: &Tensor, elements: u64| Traffic::of(tensor.space, elements * tensor.dtype.size());
    let used: u64 = lengths.iter().filter(|(length, _)| *length > 0).map(|(_, groups)| groups).sum();
    let Shape { in_depth, groups, rows, columns, depth } = *shape;
    let b_elements = if in_depth { depth * columns } else { b.elements() / groups.max(1) * used };
    read_of(a, rows * depth) + read_of(b, b_elements) + read_of(ends, ends.elements())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each division has all groups, the longest first, and nearly the whole dimension.
    #[test]
    fn divisions_have_all_groups() {
        for (groups, rows) in [(1, 5), (3, 3906), (63, 9000), (100, 40), (1024, 131_072)] {
            let shape = Shape { in_depth: false, groups, rows, columns: 64, depth: 64 };
            for lengths in [equal_lengths(&shape), random_lengths(&shape)] {
                assert_eq!(lengths.iter().map(|(_, count)| count).sum::<u64>(), groups, "{lengths:?}");
                assert!(lengths.is_sorted_by(|a, b| a.0 > b.0), "{lengths:?}");
                let sum: u64 = lengths.iter().map(|(length, count)| length * count).sum();
                assert!(sum.abs_diff(rows) <= groups, "{sum} of {rows}");
            }
        }
    }
}
