//! The result of `route`: scores, the selected experts of each row, and which selections rounding can change.

use crate::ops::expression::ball::{Ball, Precision};
use crate::ops::expression::{Binary, Unary};
use crate::ops::sorting::top_k::ahead;
use crate::ops::{Spec, check};

/// The rules by which a row chooses its experts.
#[derive(Clone, Copy, Debug)]
pub struct SelectionRules {
    /// Number of groups of experts; 1 without groups.
    pub groups: usize,
    /// Number of groups from which a row selects.
    pub group_k: usize,
    /// True if groups are ranked by the sum of their two best scores; otherwise by the best.
    pub by_best_two: bool,
    /// True if experts are ranked by computed scores; otherwise by the first input, which has the same order.
    pub by_score: bool,
}

impl SelectionRules {
    /// Returns the rules that the options and operands of a `route` define.
    pub fn of(spec: &Spec) -> SelectionRules {
        let [groups, group_k] = ["groups", "group_k"].map(|name| spec.attrs.int(name) as usize);
        let limited = group_k > 0 && group_k < groups;
        let by_best_two = limited && spec.attrs.word("group_score") == "best_two";
        SelectionRules {
            groups: if limited { groups } else { 1 },
            group_k: if limited { group_k } else { 1 },
            by_best_two,
            by_score: by_best_two || spec.inputs.len() > 1,
        }
    }
}

/// The selected experts of a row.
struct SelectedExperts {
    /// Indices in ascending order.
    experts: Vec<usize>,
    /// For each expert, whether rounding can change its selection.
    open: Vec<bool>,
}

/// Routes each row. Returns the tolerance of each output: zero, or infinite for slots that depend on a selection that
/// rounding can change.
pub fn routed(spec: &Spec, inputs: &[&[f64]], outputs: &mut [Vec<f64>]) -> [Vec<f64>; 3] {
    let experts = spec.inputs[0].dims[1] as usize;
    let (k, capacity) = (spec.attrs.int("k") as usize, spec.attrs.int("capacity") as usize);
    let normalize = spec.attrs.bool("normalize");
    let precision = Precision::of(spec.inputs[0].dtype.compute());
    let choice = SelectionRules::of(spec);
    let mut radii = [0, 1, 2].map(|index| vec![0.0; outputs[index].len()]);
    let [slots, weights, dropped] = outputs else { unreachable!("the signature has three outputs") };
    slots.fill(-1.0);
    weights.fill(0.0);
    let mut taken = vec![0usize; experts];
    for (token, row) in inputs[0].chunks(experts).enumerate() {
        let scores = scores(spec, precision, row);
        let SelectedExperts { experts: chosen, open } =
            chosen(&choice, precision, k, row, &scores, inputs.get(1).copied());
        let total = if normalize { sum(spec, precision, chosen.iter().map(|&e| scores[e])) } else { Ball::exact(1.0) };
        let is_open = open.contains(&true);
        for e in (0..experts).filter(|&e| open[e]) {
            // An uncertain selection affects the positions of all later rows of the expert.
            let behind = e * capacity + taken[e].min(capacity)..(e + 1) * capacity;
            radii[0][behind.clone()].fill(f64::INFINITY);
            radii[1][behind].fill(f64::INFINITY);
            radii[2][e] = f64::INFINITY;
        }
        for e in chosen {
            if taken[e] < capacity {
                let slot = e * capacity + taken[e];
                let weight = if normalize { precision.binary(Binary::Divide, scores[e], total) } else { scores[e] };
                (slots[slot], weights[slot]) = (token as f64, weight.value);
                radii[1][slot] = radii[1][slot].max(if is_open && normalize { f64::INFINITY } else { weight.radius });
            }
            taken[e] += 1;
        }
    }
    for (dropped, taken) in dropped.iter_mut().zip(taken) {
        *dropped = taken.saturating_sub(capacity) as f64;
    }
    radii
}

/// Sum of values that a device may add in any order.
fn sum(spec: &Spec, precision: Precision, terms: impl Iterator<Item = Ball> + Clone) -> Ball {
    let values: Vec<f64> = terms.clone().map(|term| term.value).collect();
    let moved: f64 = terms.map(|term| term.radius).sum();
    let lost = match values.iter().all(|value| *value >= 0.0) {
        true => check::sum_error(spec.inputs[0].dtype.compute(), &values),
        // Terms of different signs can cancel, so that rounding errors dominate.
        false => {
            let sizes: f64 = values.iter().map(|value| value.abs()).sum();
            values.len().saturating_sub(1) as f64 * precision.unit() * sizes
        }
    };
    Ball { value: values.iter().sum(), radius: moved + lost }
}

/// The scores of a row's experts.
fn scores(spec: &Spec, precision: Precision, row: &[f64]) -> Vec<Ball> {
    let given = row.iter().map(|&x| Ball::exact(x));
    match spec.attrs.word("scores") {
        "sigmoid" => given.map(|x| precision.unary(Unary::Sigmoid, x)).collect(),
        "softmax" => {
            let top = Ball::exact(row.iter().copied().fold(f64::NEG_INFINITY, f64::max));
            let of = |x| precision.unary(Unary::Exp, precision.binary(Binary::Subtract, x, top));
            let terms: Vec<Ball> = given.map(of).collect();
            let total = sum(spec, precision, terms.iter().copied());
            terms.into_iter().map(|term| precision.binary(Binary::Divide, term, total)).collect()
        }
        _ => given.collect(),
    }
}

/// Selects the `k` experts of a row with the best scores, within the best groups.
fn chosen(
    choice: &SelectionRules,
    precision: Precision,
    k: usize,
    row: &[f64],
    scores: &[Ball],
    bias: Option<&[f64]>,
) -> SelectedExperts {
    let add = |(score, bias): (&Ball, &f64)| precision.binary(Binary::Add, *score, Ball::exact(*bias));
    let ranked: Vec<Ball> = match bias {
        Some(bias) => scores.iter().zip(bias).map(add).collect(),
        None if choice.by_score => scores.to_vec(),
        None => row.iter().map(|&x| Ball::exact(x)).collect(),
    };
    // A device computes equal results from equal inputs, so that rounding cannot change their order.
    let are_same = |a: usize, b: usize| row[a] == row[b] && bias.is_none_or(|bias| bias[a] == bias[b]);
    let size = row.len() / choice.groups;
    let of_group = |group: usize| {
        let mut best: Vec<Ball> = ranked[group * size..][..size].to_vec();
        best.sort_by(|a, b| b.value.total_cmp(&a.value));
        match choice.by_best_two {
            // Rounding may exchange the best two with others of nearly the same score.
            true => {
                let moved = best.iter().map(|ball| ball.radius).fold(0.0, f64::max);
                let spread = |ball: &Ball| Ball { radius: moved, ..*ball };
                precision.binary(Binary::Add, spread(&best[0]), spread(&best[1]))
            }
            false => Ball { radius: best.iter().map(|ball| ball.radius).fold(0.0, f64::max), ..best[0] },
        }
    };
    let groups: Vec<Ball> = (0..choice.groups).map(of_group).collect();
    let same_groups = |a: usize, b: usize| (0..size).all(|at| are_same(a * size + at, b * size + at));
    let (of_groups, open_groups) = largest(&groups, choice.group_k, same_groups);
    let eligible: Vec<usize> = (0..row.len()).filter(|e| of_groups.contains(&(e / size))).collect();
    let (places, open_places) =
        largest(&eligible.iter().map(|&e| ranked[e]).collect::<Vec<_>>(), k, |a, b| are_same(eligible[a], eligible[b]));
    let mut open = vec![open_groups.contains(&true); row.len()];
    eligible.iter().zip(open_places).for_each(|(&e, is_open)| open[e] |= is_open);
    SelectedExperts { experts: places.into_iter().map(|place| eligible[place]).collect(), open }
}

/// Indices of the `k` largest values, in ascending order; of equal values, the earlier ones. Also returns, for each
/// value, whether rounding can change its selection.
fn largest(values: &[Ball], k: usize, are_same: impl Fn(usize, usize) -> bool) -> (Vec<usize>, Vec<bool>) {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| match ahead(values[a].value, a, values[b].value, b) {
        true => std::cmp::Ordering::Less,
        false => std::cmp::Ordering::Greater,
    });
    let (inside, outside) = order.split_at(k);
    let close = |a: usize, b: usize| {
        let reach = values[a].radius + values[b].radius;
        let apart = (values[a].value - values[b].value).abs();
        reach > 0.0 && !are_same(a, b) && (apart.is_nan() || apart <= reach)
    };
    let mut open = vec![false; values.len()];
    for &a in inside {
        for &b in outside.iter().filter(|&&b| close(a, b)) {
            (open[a], open[b]) = (true, true);
        }
    }
    let mut places = inside.to_vec();
    places.sort_unstable();
    (places, open)
}
