//! Searches of synthetic spaces with a known best point. The book quotes these figures.

use super::*;
use crate::measure::effort;

/// The page that has these figures.
const BOOK: &str = include_str!("../../../../docs/search.md");

/// Cost at a position on each axis, from 0 to 1 for ordered axes; 100 at the best point. `None` where a run fails.
type Landscape = fn(&[f64]) -> Option<f64>;

struct Made {
    axes: Vec<SearchAxis>,
    landscape: Landscape,
    noise: f64,
    draws: u64,
    seed: u64,
    runs: usize,
}

impl Made {
    fn at(&self, point: &[usize]) -> Option<f64> {
        let place = |(axis, place): (&SearchAxis, &usize)| match axis.ordered {
            true => *place as f64 / (axis.values - 1) as f64,
            false => *place as f64,
        };
        (self.landscape)(&self.axes.iter().zip(point).map(place).collect::<Vec<_>>())
    }

    fn uniform(&mut self) -> f64 {
        self.draws += 1;
        ((random::hash(self.seed ^ 0x5eed, self.draws) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }
}

impl Objective for Made {
    type End = ();

    fn fits(&mut self, _: &[usize]) -> bool {
        true
    }

    fn run(&mut self, point: &[usize]) -> Result<Option<f64>, ()> {
        self.runs += 1;
        let (a, b) = (self.uniform(), self.uniform());
        let noise = (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos();
        Ok(self.at(point).map(|value| value * (1.0 + self.noise * noise)))
    }
}

const fn ordered(values: usize) -> SearchAxis {
    SearchAxis { values, ordered: true }
}

const fn unordered(values: usize) -> SearchAxis {
    SearchAxis { values, ordered: false }
}

fn bowl(x: &[f64], center: &[f64]) -> f64 {
    100.0 * (1.0 + x.iter().zip(center).map(|(x, c)| (x - c).powi(2)).sum::<f64>())
}

/// Spaces, each with a sufficient number of runs.
fn spaces() -> Vec<(&'static str, Vec<SearchAxis>, usize, Landscape)> {
    vec![
        ("one axis of 64", vec![ordered(64)], 24, |x| Some(bowl(x, &[0.3]))),
        ("three axes of 8", vec![ordered(8); 3], 48, |x| Some(bowl(x, &[0.2, 0.7, 0.45]))),
        ("four axes of 8", vec![ordered(8); 4], 64, |x| Some(bowl(x, &[0.1, 0.9, 0.5, 0.3]))),
        ("a valley across two axes of 16", vec![ordered(16); 2], 48, |x| {
            let (along, across) = (x[0] + x[1] - 1.4, x[0] - x[1] - 0.2);
            Some(100.0 * (1.0 + 0.2 * along * along + 2.0 * across * across))
        }),
        ("two axes of words, two of 8 numbers", vec![unordered(2), unordered(4), ordered(8), ordered(8)], 64, |x| {
            let kind = [0.0, 0.08, 0.15, 0.3][(x[1] as usize + 2) % 4] + if x[0] == 0.0 { 0.0 } else { 0.1 };
            Some(bowl(&x[2..], &[0.6, 0.2]) + 100.0 * kind)
        }),
        ("two basins, the other 8 % worse, two axes of 16", vec![ordered(16); 2], 64, |x| {
            Some(bowl(x, &[0.2, 0.2]).min(1.08 * bowl(x, &[0.85, 0.8])))
        }),
        ("two axes of 12, where a third of the points fails", vec![ordered(12); 2], 48, |x| {
            (x[0] + x[1] < 1.25).then(|| bowl(x, &[0.7, 0.5]))
        }),
    ]
}

const SEEDS: u64 = 200;

/// Share of searches that find a point within 3 % of the best.
fn share(axes: &[SearchAxis], budget: usize, landscape: Landscape, noise: f64) -> f64 {
    let search = |seed| SearchOptions { axes: axes.to_vec(), budget, seed };
    let blank = Made { axes: axes.to_vec(), landscape, noise, draws: 0, seed: 0, runs: 0 };
    let mut best = f64::INFINITY;
    let mut point = vec![0; axes.len()];
    loop {
        best = best.min(blank.at(&point).unwrap_or(f64::INFINITY));
        let Some(axis) = (0..axes.len()).find(|&axis| point[axis] + 1 < axes[axis].values) else { break };
        point[axis] += 1;
        point[..axis].iter_mut().for_each(|place| *place = 0);
    }
    let held = (0..SEEDS).filter(|&seed| {
        let mut made = Made { axes: axes.to_vec(), landscape, noise, draws: 0, seed, runs: 0 };
        let (found, ended) = search(seed).run(&mut made);
        assert!(ended.is_none() && made.runs <= budget && found.runs == made.runs, "{} runs", made.runs);
        let value = found.best().and_then(|best| made.at(&best.point));
        value.is_some_and(|value| value <= 1.03 * best)
    });
    held.count() as f64 / SEEDS as f64
}

/// Noise of a run, and minimum share of searches that must find the best point.
const NOISES: [(f64, f64); 3] = [(0.0, 0.95), (0.01, 0.95), (0.02, 0.85)];

#[test]
fn the_best_is_found_within_the_budget() {
    for (name, axes, budget, landscape) in effort::chosen(spaces()) {
        let points: usize = axes.iter().map(|axis| axis.values).product();
        let shares = NOISES.map(|(noise, least)| {
            let held = share(&axes, budget, landscape, noise);
            assert!(held >= least, "{name}, noise {noise}: found by {held}");
            format!("{} %", (1000.0 * held).round() / 10.0)
        });
        let row = format!("| {name} | {points} | {budget} | {} |", shares.join(" | "));
        assert!(BOOK.contains(&row), "the book does not have: {row}");
    }
}

fn searched(axes: &[SearchAxis], budget: usize, landscape: Landscape, noise: f64) -> (SearchResult, Made) {
    let mut made = Made { axes: axes.to_vec(), landscape, noise, draws: 0, seed: 5, runs: 0 };
    let (found, _) = SearchOptions { axes: axes.to_vec(), budget, seed: 5 }.run(&mut made);
    (found, made)
}

#[test]
fn a_seed_makes_one_search() {
    let (_, axes, budget, landscape) = spaces().remove(4);
    let one = searched(&axes, budget, landscape, 0.01).0;
    assert_eq!(one, searched(&axes, budget, landscape, 0.01).0);
    assert_eq!(one.runs, budget);
}

/// A small space is searched completely, and points are not repeated if there is no noise.
#[test]
fn a_small_space_is_searched_completely() {
    let (found, made) = searched(&[ordered(3), unordered(2)], 60, |x| Some(100.0 + x[0] + x[1]), 0.0);
    assert_eq!(found.tried.len(), 6);
    assert!(made.runs < 60, "{}", made.runs);
    assert_eq!(found.best().map(|best| best.point.clone()), Some(vec![0, 0]));
    assert_eq!(found.within_noise().len(), 1);
}

#[test]
fn a_search_without_successful_runs_finds_no_point() {
    let (found, made) = searched(&[ordered(8)], 20, |_| None, 0.0);
    assert_eq!(found.best(), None);
    assert!(found.tried.iter().all(|tried| tried.lost && tried.runs() == 0));
    assert!(found.within_noise().is_empty() && made.runs <= 8, "{}", made.runs);
}

/// Points that do not fit cost no run; if the objective ends the search, results so far are kept.
#[test]
fn a_search_can_be_ended() {
    struct Ends(usize);
    impl Objective for Ends {
        type End = &'static str;
        fn fits(&mut self, point: &[usize]) -> bool {
            point[0].is_multiple_of(2)
        }
        fn run(&mut self, point: &[usize]) -> Result<Option<f64>, &'static str> {
            assert!(point[0].is_multiple_of(2), "it does not fit");
            self.0 += 1;
            if self.0 > 3 { Err("stopped") } else { Ok(Some(1.0 + point[0] as f64)) }
        }
    }
    let search = SearchOptions { axes: vec![ordered(64)], budget: 40, seed: 1 };
    let (found, ended) = search.run(&mut Ends(0));
    assert_eq!((found.runs, ended), (3, Some("stopped")));
    assert!(found.best().is_some());
}

/// If all points are equal, nearly all are reported as within the noise, and each interval contains 1.
#[test]
fn equal_points_are_not_distinguished() {
    let (found, _) = searched(&[ordered(8), ordered(8)], 48, |_| Some(100.0), 0.01);
    let near = found.within_noise().len();
    assert!(near * 10 >= found.tried.len() * 6, "{near} of {}", found.tried.len());
    let runner_up = found.relative_to_best(&found.tried[1]).and_then(|(_, interval)| interval).unwrap();
    assert!(runner_up.0 <= 1.0 && runner_up.1 >= 1.0, "{runner_up:?}");
}

/// The best point is selected among noisy ones, so intervals relative to it cover the truth slightly less often than 95
/// %.
#[test]
fn intervals_relative_to_the_best_contain_the_truth() {
    let (_, axes, budget, landscape) = spaces().remove(1);
    let (mut held, mut of) = (0, 0);
    for seed in 0..SEEDS {
        let mut made = Made { axes: axes.clone(), landscape, noise: 0.01, draws: 0, seed, runs: 0 };
        let (found, _) = SearchOptions { axes: axes.clone(), budget, seed }.run(&mut made);
        let best = made.at(&found.best().unwrap().point).unwrap();
        for tried in &found.tried[1..] {
            let (_, interval) = found.relative_to_best(tried).unwrap();
            let (low, high) = interval.expect("points had several runs");
            let truth = made.at(&tried.point).unwrap() / best;
            held += i32::from((low..=high).contains(&truth));
            of += 1;
        }
    }
    let share = f64::from(held) / f64::from(of);
    assert!(share >= 0.9, "{share}");
}
