//! Synthetic samples with known effects: how often a verdict is wrong, and how often there is one.
//!
//! Series are seeded, so the shares are the same on every machine. The book quotes them.

use super::*;
use crate::measure::effort;
use crate::measure::statistics::noise::Random;

use Direction::{HigherIsBetter, LowerIsBetter};

impl Random {
    /// Lognormal times around `median`. Neighbours have the correlation `memory`.
    fn times(&mut self, n: usize, median: f64, noise: f64, memory: f64) -> Vec<f64> {
        let mut last = self.normal();
        let sample = |_| {
            last = memory * last + (1.0 - memory * memory).sqrt() * self.normal();
            median * (noise * last).exp()
        };
        (0..n).map(sample).collect()
    }

    /// Times of which half of the variance is between periods of about 20 iterations, and half between neighbours.
    fn drifting(&mut self, n: usize, median: f64, noise: f64) -> Vec<f64> {
        let slow = self.times(n, median, noise / std::f64::consts::SQRT_2, 0.95);
        slow.into_iter().map(|time| time * (noise / std::f64::consts::SQRT_2 * self.normal()).exp()).collect()
    }
}

fn one(samples: &[f64]) -> [&[f64]; 1] {
    [samples]
}

/// Compares one run per side with the assumed variation between runs, for streams and for graphs.
fn of(base: &[f64], other: &[f64]) -> Effect {
    alone(base, other).between_runs(BETWEEN_RUNS, LowerIsBetter)
}

fn of_graphs(base: &[f64], other: &[f64]) -> Effect {
    alone(base, other).between_runs(BETWEEN_RUNS_OF_GRAPHS, LowerIsBetter)
}

/// Compares one run per side without variation between runs.
fn alone(base: &[f64], other: &[f64]) -> Effect {
    Effect::of(&one(base), &one(other), 50.0, LowerIsBetter, THRESHOLD).unwrap()
}

/// Verdicts of many comparisons on a known effect.
#[derive(Debug, Default)]
struct Tally {
    effects: f64,
    intervals: f64,
    held: f64,
    better: f64,
    same: f64,
    worse: f64,
}

impl Tally {
    fn of(times: usize, ratio: f64, mut compare: impl FnMut() -> Option<Effect>) -> Tally {
        let mut tally = Tally::default();
        for effect in (0..times).filter_map(|_| compare()) {
            tally.effects += 1.0;
            if let Some((low, high)) = effect.interval {
                tally.intervals += 1.0;
                tally.held += f64::from(u8::from(low <= ratio && ratio <= high));
            }
            match effect.verdict {
                Verdict::Better => tally.better += 1.0,
                Verdict::Same => tally.same += 1.0,
                Verdict::Worse => tally.worse += 1.0,
                Verdict::CannotTell => {}
            }
        }
        tally
    }

    fn coverage(&self) -> f64 {
        self.held / self.intervals
    }

    fn alarms(&self) -> f64 {
        (self.better + self.worse) / self.effects
    }
}

const TIMES: usize = 400;

#[test]
fn a_run_against_itself_raises_few_false_alarms() {
    // Noise of the simulator, of a quiet GPU, of a shared GPU, and of a very noisy one; without and with
    // autocorrelation.
    for noise in effort::chosen([0.005, 0.02, 0.2, 0.5]) {
        for (n, memory) in [(30, 0.0), (100, 0.0), (100, 0.5), (200, 0.8)] {
            let mut random = Random(n as u64);
            let tally = Tally::of(TIMES, 1.0, || {
                let (a, b) = (random.times(n, 1e6, noise, memory), random.times(n, 1e6, noise, memory));
                Some(alone(&a, &b))
            });
            assert!(tally.alarms() <= 0.05, "noise {noise}, memory {memory}, {n} samples: {tally:?}");
            assert!(tally.intervals > 0.9 * TIMES as f64, "noise {noise}, memory {memory}, {n} samples: {tally:?}");
            assert!(tally.coverage() >= 0.95, "noise {noise}, memory {memory}, {n} samples: {tally:?}");
        }
    }
}

#[test]
fn other_percentiles_raise_few_false_alarms_too() {
    for (percentile, n, memory) in [(95.0, 150, 0.0), (95.0, 500, 0.5), (99.0, 500, 0.0)] {
        let mut random = Random(3);
        let tally = Tally::of(200, 1.0, || {
            let (a, b) = (random.times(n, 1.0, 0.2, memory), random.times(n, 1.0, 0.2, memory));
            Effect::of(&one(&a), &one(&b), percentile, LowerIsBetter, THRESHOLD)
        });
        assert!(tally.alarms() <= 0.05 && tally.coverage() >= 0.95, "{percentile}: {tally:?}");
        assert!(tally.intervals >= 100.0, "{percentile}: {tally:?}");
    }
}

#[test]
fn an_effect_of_five_percent_is_seen() {
    // Each side is one run, with a noise of 2 %. Then 50 samples show the effect, and 100 with autocorrelation.
    for (n, memory, power) in [(20, 0.0, 0.9), (50, 0.0, 0.99), (100, 0.5, 0.99)] {
        let mut random = Random(5);
        let tally = Tally::of(TIMES, 1.05, || {
            Some(of_graphs(&random.times(n, 1.0, 0.02, memory), &random.times(n, 1.05, 0.02, memory)))
        });
        assert!(tally.worse / tally.effects >= power, "{n} samples, memory {memory}: {tally:?}");
        assert!(tally.better == 0.0 && tally.same == 0.0, "{tally:?}");
        assert!(tally.coverage() >= 0.95, "{tally:?}");
    }
}

#[test]
fn equal_sides_are_reported_as_same() {
    let mut random = Random(6);
    let mut tally = |compare: fn(&[f64], &[f64]) -> Effect| {
        let mut times = || random.times(100, 1.0, 0.02, 0.0);
        Tally::of(TIMES, 1.0, || Some(compare(&times(), &times())))
    };
    let graphs = tally(of_graphs);
    assert!(graphs.same / graphs.effects >= 0.95, "{graphs:?}");
    // Runs as streams vary by more than the threshold, so one run per side cannot show that they are equal.
    let streams = tally(of);
    assert!(streams.same == 0.0 && streams.alarms() == 0.0, "{streams:?}");
}

/// Runs whose medians differ by 2 %, far more than the uncertainty of each median.
fn runs(random: &mut Random, count: usize, median: f64) -> Vec<Vec<f64>> {
    runs_apart(random, count, median, 0.02)
}

fn runs_apart(random: &mut Random, count: usize, median: f64, deviation: f64) -> Vec<Vec<f64>> {
    let run = |_| {
        let own = median * (deviation * random.normal()).exp();
        random.times(7, own, 0.002, 0.0)
    };
    (0..count).map(run).collect()
}

fn groups(runs: &[Vec<f64>]) -> Vec<&[f64]> {
    runs.iter().map(Vec::as_slice).collect()
}

/// Number of comparisons of several short runs.
const MANY_TIMES: usize = 2000;

fn of_runs(random: &mut Random, counts: (usize, usize), ratio: f64) -> Tally {
    Tally::of(MANY_TIMES, ratio, || {
        let (base, other) = (runs(random, counts.0, 1.0), runs(random, counts.1, ratio));
        Effect::of(&groups(&base), &groups(&other), 50.0, LowerIsBetter, THRESHOLD)
    })
}

#[test]
fn runs_that_differ_raise_few_false_alarms() {
    for counts in [(2, 2), (3, 3), (5, 5), (1, 5), (3, 8)] {
        let tally = of_runs(&mut Random(8), counts, 1.0);
        assert!(tally.alarms() <= 0.05, "{counts:?}: {tally:?}");
        assert!(tally.coverage() >= 0.93, "{counts:?}: {tally:?}");
    }
}

#[test]
fn single_runs_do_not_show_variation_between_runs() {
    // Each side is one run, so samples do not show how much runs differ. If no difference between runs is assumed, false
    // alarms are far more frequent than 5 %; the report cautions against that.
    let tally = |compare: fn(&[f64], &[f64]) -> Effect, deviation: f64| {
        let mut random = Random(9);
        let mut run = || runs_apart(&mut random, 1, 1.0, deviation).remove(0);
        Tally::of(MANY_TIMES, 1.0, || Some(compare(&run(), &run())))
    };
    let unknown = tally(alone, 0.02);
    assert!(unknown.alarms() > 0.2, "{unknown:?}");
    // With the assumed variation between runs, false alarms stay below the limit.
    for (compare, deviation) in
        [(of as fn(&[f64], &[f64]) -> Effect, BETWEEN_RUNS), (of_graphs, BETWEEN_RUNS_OF_GRAPHS)]
    {
        let known = tally(compare, deviation);
        assert!(known.alarms() <= 0.055 && known.coverage() >= 0.94, "{deviation}: {known:?}");
    }
    let effect = of(&[1.0; 10], &[1.0; 10]);
    assert!(effect.basis == Basis::Iterations && effect.caution().is_some_and(|text| text.contains("one run")));
    assert!(effect.caution().is_some_and(|text| text.contains("of 1.5 % is assumed")), "{:?}", effect.caution());
    // Several runs show the variation between runs themselves.
    let several = Effect::of_values(&[1.0, 1.1], &[1.0, 1.1], LowerIsBetter, THRESHOLD).unwrap();
    assert_eq!(several.between_runs(0.5, LowerIsBetter), several);
}

#[test]
fn more_runs_see_more() {
    let power =
        [3, 5, 10].map(|count| of_runs(&mut Random(10), (count, count), 1.05)).map(|tally| tally.worse / tally.effects);
    assert!(power[0] > 0.3 && power[1] > 0.8 && power[2] > 0.95, "{power:?}");
}

/// Formats a line of the book's table: share of false alarms, coverage of the interval, and share of runs that are 5 %
/// slower and called worse.
fn line(name: &str, noise: &str, alike: &Tally, slower: &Tally) -> String {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let power = format!("{:.0} %", 100.0 * slower.worse / slower.effects);
    format!("| {name} | {noise} | {} | {} | {power} |", percent(alike.alarms()), percent(alike.coverage()))
}

#[test]
fn the_book_says_what_is_found_here() {
    let book = include_str!("../../../../docs/compare.md");
    let mut missing = Vec::new();
    for (n, noise, memory) in
        [(20, 0.02, 0.0), (30, 0.02, 0.0), (100, 0.02, 0.0), (100, 0.02, 0.5), (200, 0.02, 0.8), (100, 0.2, 0.0)]
    {
        let tally = |seed, ratio: f64| {
            let mut random = Random(seed);
            Tally::of(TIMES, ratio, || {
                Some(of(&random.times(n, 1.0, noise, memory), &random.times(n, ratio, noise, memory)))
            })
        };
        let remembers = if memory > 0.0 { format!(", {memory} of it from the neighbour") } else { String::new() };
        let noise = format!("{:.0} % in a run{remembers}", 100.0 * noise);
        missing.push(line(&format!("1 and 1, of {n} iterations"), &noise, &tally(20, 1.0), &tally(21, 1.05)));
    }
    let drifts = |seed, ratio: f64| {
        let mut random = Random(seed);
        Tally::of(TIMES, ratio, || Some(of(&random.drifting(100, 1.0, 0.02), &random.drifting(100, ratio, 0.02))))
    };
    for n in [20, 100] {
        let tally = |seed, ratio: f64| {
            let mut random = Random(seed);
            let mut pair = || (random.times(n, 1.0, 0.02, 0.0), random.times(n, ratio, 0.02, 0.0));
            Tally::of(TIMES, ratio, || Some(pair()).map(|(base, other)| of_graphs(&base, &other)))
        };
        let name = format!("1 and 1, of {n} iterations, as a graph");
        missing.push(line(&name, "2 % in a run", &tally(26, 1.0), &tally(27, 1.05)));
    }
    let noise = "2 % in a run, half of its variance a slow drift";
    missing.push(line("1 and 1, of 100 iterations", noise, &drifts(24, 1.0), &drifts(25, 1.05)));
    for deviation in [0.015, 0.02] {
        let tally = |seed, ratio: f64| {
            let mut random = Random(seed);
            let mut run = |median| runs_apart(&mut random, 1, median, deviation).remove(0);
            Tally::of(MANY_TIMES, ratio, || Some(of(&run(1.0), &run(ratio))))
        };
        let noise = format!("{} % between runs", 100.0 * deviation);
        missing.push(line("1 and 1", &noise, &tally(28, 1.0), &tally(29, 1.05)));
    }
    for (base, other) in [(2, 2), (3, 3), (5, 5), (10, 10), (5, 1)] {
        let tally = |seed, ratio: f64| of_runs(&mut Random(seed), (base, other), ratio);
        let name = format!("{base} and {other}");
        missing.push(line(&name, "2 % between runs", &tally(22, 1.0), &tally(23, 1.05)));
    }
    missing.retain(|line| !book.contains(line.as_str()));
    assert!(missing.is_empty(), "docs/compare.md lacks\n{}", missing.join("\n"));
}

#[test]
fn the_verdict_goes_by_interval_and_threshold() {
    let said = |ratio: f64, low: f64, high: f64| verdict(ratio.ln(), Some((low.ln(), high.ln())), LowerIsBetter, 0.03);
    assert_eq!(said(1.0, 0.98, 1.02), Verdict::Same);
    // The difference is certain, but too small to matter.
    assert_eq!(said(1.02, 1.015, 1.025), Verdict::Same);
    assert_eq!(said(1.05, 1.04, 1.06), Verdict::Worse);
    assert_eq!(said(1.05, 1.001, 1.1), Verdict::Worse);
    assert_eq!(said(0.95, 0.94, 0.96), Verdict::Better);
    // The difference is large, but not certain.
    assert_eq!(said(1.05, 0.99, 1.11), Verdict::CannotTell);
    // The difference is certain, but may be too small to matter.
    assert_eq!(said(1.029, 1.01, 1.05), Verdict::CannotTell);
    assert_eq!(said(1.0, 0.9, 1.1), Verdict::CannotTell);
    assert_eq!(verdict(0.5, None, LowerIsBetter, 0.03), Verdict::CannotTell);
    let higher = |ratio: f64| verdict(ratio.ln(), Some((ratio.ln(), ratio.ln())), HigherIsBetter, 0.03);
    assert_eq!((higher(1.1), higher(0.9), higher(1.01)), (Verdict::Better, Verdict::Worse, Verdict::Same));
}

#[test]
fn known_answers() {
    let samples: Vec<f64> = (0..100).map(|index| f64::from(index * 37 % 100 + 1)).collect();
    let doubled: Vec<f64> = samples.iter().map(|sample| 2.0 * sample).collect();
    let effect = alone(&samples, &doubled);
    assert_eq!(((100.0 * effect.ratio).round(), effect.verdict), (200.0, Verdict::Worse));
    // The intervals of the medians are 40 to 61 and 80 to 122.
    let (low, high) = effect.interval.unwrap();
    let (below, above) = ((50.5f64 / 40.0).ln(), (61.0f64 / 50.5).ln());
    assert!((low - 2.0 * (-below.hypot(above)).exp()).abs() < 1e-12, "{low}");
    assert!((high - 2.0 * above.hypot(below).exp()).abs() < 1e-12, "{high}");
    // Student's interval of 3 and 3 runs, with t for 4 degrees of freedom from a table.
    let effect = Effect::of_values(&[0.98, 1.0, 1.02], &[1.08, 1.1, 1.12], HigherIsBetter, 0.03).unwrap();
    assert_eq!((effect.basis, effect.verdict), (Basis::Groups, Verdict::Better));
    let (low, high) = effect.interval.unwrap();
    assert!((low - 1.0532).abs() < 0.001 && (high - 1.1489).abs() < 0.001, "{low} {high}");
}

#[test]
fn values_without_a_ratio_have_no_effect() {
    assert_eq!(Effect::of(&[], &one(&[1.0]), 50.0, LowerIsBetter, 0.03), None);
    assert_eq!(Effect::of(&one(&[0.0; 20]), &one(&[1.0; 20]), 50.0, LowerIsBetter, 0.03), None);
    assert_eq!(Effect::of(&one(&[1.0; 19]), &one(&[1.0; 20]), 95.0, LowerIsBetter, 0.03), None);
    assert_eq!(Effect::of_values(&[1.0, -1.0], &[1.0], LowerIsBetter, 0.03), None);
    assert_eq!(Effect::exact(f64::INFINITY, 1.0, LowerIsBetter, 0.03), None);
    // A single value for each side gives a ratio without an interval.
    let single = Effect::of_values(&[1.0], &[1.5], LowerIsBetter, 0.03).unwrap();
    assert_eq!((single.ratio, single.interval, single.verdict), (1.5, None, Verdict::CannotTell));
    let exact = Effect::exact(2.0, 3.0, LowerIsBetter, 0.03).unwrap();
    assert_eq!((exact.ratio.round(), exact.verdict, exact.caution()), (2.0, Verdict::Worse, None));
}

#[test]
fn a_side_against_itself_is_never_worse_and_sides_mirror() {
    let mut random = Random(11);
    for n in [1, 2, 5, 6, 20, 100] {
        let (a, b) = (random.times(n, 1.0, 0.1, 0.3), random.times(n, 1.1, 0.1, 0.3));
        assert_eq!(of(&a, &a).ratio, 1.0);
        assert!(!matches!(of(&a, &a).verdict, Verdict::Better | Verdict::Worse));
        let (there, back) = (of(&a, &b), of(&b, &a));
        assert!((there.ratio * back.ratio - 1.0).abs() < 1e-12);
        let mirrored = match there.verdict {
            Verdict::Better => Verdict::Worse,
            Verdict::Worse => Verdict::Better,
            other => other,
        };
        assert_eq!(back.verdict, mirrored);
        let inverse = there.inverse();
        assert_eq!(
            (inverse.verdict, inverse.inverse().base.to_bits()),
            (there.verdict, (1.0 / (1.0 / there.base)).to_bits())
        );
        assert!((inverse.ratio - back.ratio).abs() < 1e-12);
    }
}
