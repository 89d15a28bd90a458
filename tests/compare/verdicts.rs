//! Verdicts on figures whose answer is known.

use aorta::measure::compare::{Comparison, FailOn, compare};
use aorta::measure::effect::{Basis, Direction, Verdict};
use proptest::prelude::*;

use super::fixtures::{Fixture, samples};
use super::{compared, options, row, side};

fn verdict(comparison: &Comparison, metric: &str) -> Verdict {
    row(comparison, metric).verdict
}

#[test]
fn a_slower_run_is_worse_and_a_faster_one_better() {
    let (slow, fast) = (Fixture::with_time(1, 110_000.0).text(), Fixture::with_time(2, 100_000.0).text());
    let worse = compared(std::slice::from_ref(&fast), std::slice::from_ref(&slow));
    for metric in ["time.p50", "time.p95", "throughput", "tokens_per_second"] {
        assert_eq!(verdict(&worse, metric), Verdict::Worse, "{metric}");
    }
    assert!((row(&worse, "time.p50").effect.unwrap().ratio - 1.1).abs() < 0.01);
    assert!(worse.fails());
    let better = compared(&[slow], &[fast]);
    assert_eq!((verdict(&better, "time.p50"), verdict(&better, "throughput")), (Verdict::Better, Verdict::Better));
    assert!(!better.fails());
}

#[test]
fn one_run_per_side_assumes_a_typical_variance() {
    let files = [Fixture::with_time(1, 1e5).text(), Fixture::with_time(2, 1.037e5).text()];
    let verdicts = |launch: &str, between_runs: Option<f64>| {
        let [base, other] = files.each_ref().map(|text| text.replace("\"stream\"", &format!("\"{launch}\"")));
        let options = aorta::measure::compare::CompareOptions { between_runs, ..options() };
        let comparison = compare(&side("before", &[base]), &[side("after", &[other])], &options);
        let effect = row(&comparison, "time.p50").effect.unwrap();
        assert_eq!(row(&comparison, "throughput").verdict, effect.verdict);
        (effect.between_runs.unwrap(), effect.verdict)
    };
    // Streams by more than graphs, unless somebody knows.
    assert_eq!(verdicts("stream", None), (0.015, Verdict::CannotTell));
    assert_eq!(verdicts("graph", None), (0.005, Verdict::Worse));
    assert_eq!(verdicts("stream", Some(0.003)), (0.003, Verdict::Worse));
}

#[test]
fn percentiles_that_one_side_does_not_carry_are_not_compared() {
    let short = Fixture { samples: samples(3, 30, 1e5, 0.01), ..Fixture::default() };
    let comparison = compared(&[Fixture::default().text()], &[short.text()]);
    let metrics: Vec<&str> = comparison.others[0].pairs[0].rows.iter().map(|row| row.metric.as_str()).collect();
    assert!(metrics.contains(&"time.p95") && !metrics.contains(&"time.p99"), "{metrics:?}");
    // The value exists, but there are too few samples for an interval.
    let why = row(&comparison, "time.p95").why.as_deref();
    assert!(why.is_some_and(|why| why.starts_with("too few independent samples")), "{why:?}");
}

#[test]
fn a_metric_that_follows_the_time_is_as_certain_as_the_time() {
    let comparison = compared(&[Fixture::with_time(1, 1e5).text()], &[Fixture::with_time(2, 1.1e5).text()]);
    let (time, own) =
        (row(&comparison, "time.p50").effect.unwrap(), row(&comparison, "tokens_per_second").effect.unwrap());
    assert_eq!(own.basis, Basis::Iterations);
    assert!((own.ratio * time.ratio - 1.0).abs() < 1e-3);
    // A value that does not follow the time, since the work differs, has no estimate of its variance.
    let other = Fixture { tokens: 4096.0, ..Fixture::with_time(2, 1.1e5) };
    let comparison = compared(&[Fixture::with_time(1, 1e5).text()], &[other.text()]);
    let own = row(&comparison, "tokens_per_second");
    assert_eq!((own.effect.unwrap().basis, own.verdict), (Basis::Single, Verdict::CannotTell));
    assert!(own.why.as_ref().is_some_and(|why| why.contains("one value per side")));
}

#[test]
fn one_value_per_side_gives_no_verdict_and_several_runs_do() {
    let hidden = |share: f64| Fixture { hidden: share, ..Fixture::default() }.text();
    let single = compared(&[hidden(0.75)], &[hidden(0.5)]);
    assert_eq!(verdict(&single, "overlap.collective"), Verdict::CannotTell);
    assert!(single.others[0].warnings.iter().any(|warning| warning.contains("each side is one run")));
    assert!(single.others[0].warnings.iter().any(|warning| warning.contains("one value of this figure")));
    let several = compared(&[0.75, 0.752, 0.748, 0.751].map(hidden), &[0.5, 0.502, 0.498, 0.501].map(hidden));
    let row = row(&several, "overlap.collective");
    assert_eq!((row.verdict, row.effect.unwrap().basis), (Verdict::Worse, Basis::Groups));
    assert_eq!(several.others[0].warnings, Vec::<String>::new());
}

#[test]
fn memory_is_what_it_is() {
    let larger = Fixture { memory: 80 << 20, ..Fixture::default() };
    let comparison = compared(&[Fixture::default().text()], &[larger.text()]);
    let row = row(&comparison, "memory.device");
    assert_eq!((row.verdict, row.effect.unwrap().basis), (Verdict::Worse, Basis::Exact));
}

#[test]
fn nobody_knows_which_way_a_share_is_better() {
    let changed = |share: f64| {
        let mut value = Fixture::default().value();
        value["variants"][0]["metrics"][1]["value"] = share.into();
        value.to_string()
    };
    let bases = [0.25, 0.251, 0.249].map(changed);
    let others = [0.5, 0.501, 0.499].map(changed);
    let told = compared(&bases, &others);
    let share = row(&told, "draft_share");
    assert_eq!((share.verdict, share.better), (Verdict::CannotTell, None));
    assert!(share.why.as_ref().is_some_and(|why| why.contains("--better")));
    let mut options = options();
    options.better.insert("draft_share".to_owned(), Direction::LowerIsBetter);
    let told = compare(&side("a", &bases), &[side("b", &others)], &options);
    assert_eq!(verdict(&told, "draft_share"), Verdict::Worse);
}

/// Older versions wrote shares without a unit.
#[test]
fn shares_of_old_and_new_records_are_compared_in_percent() {
    let text = |share: f64, text: &str| {
        let mut value = Fixture::default().value();
        value["variants"][0]["metrics"][1]["value"] = share.into();
        value["variants"][0]["metrics"][1]["text"] = text.into();
        value.to_string()
    };
    let told = compared(&[text(0.25, "0.25")], &[text(0.5, "50 %")]);
    let share = row(&told, "draft_share");
    assert_eq!([share.base, share.other].map(|percent| (percent * 1e9).round() / 1e9), [25.0, 50.0]);
    assert_eq!(share.unit, "%");
}

#[test]
fn thresholds_are_of_all_of_a_family_or_of_one() {
    let sides =
        || (side("a", &[Fixture::with_time(1, 1e5).text()]), [side("b", &[Fixture::with_time(2, 1.1e5).text()])]);
    let mut options = options();
    options.thresholds.of.insert("time".to_owned(), 0.2);
    options.thresholds.of.insert("time.p95".to_owned(), 0.01);
    let (base, others) = sides();
    let comparison = compare(&base, &others, &options);
    assert_eq!(verdict(&comparison, "time.p50"), Verdict::Same);
    assert_eq!(verdict(&comparison, "time.p95"), Verdict::Worse);
    assert_eq!(verdict(&comparison, "throughput"), Verdict::Worse);
    options.metrics = vec!["time.p50".to_owned(), "memory".to_owned()];
    let comparison = compare(&base, &others, &options);
    let metrics: Vec<&str> = comparison.others[0].pairs[0].rows.iter().map(|row| row.metric.as_str()).collect();
    assert_eq!(metrics, ["time.p50", "memory.device"]);
}

#[test]
fn incomparable_runs_have_no_verdict() {
    let slow = |fixture: Fixture| Fixture { samples: samples(2, 100, 5e5, 0.01), ..fixture }.text();
    let cases: [(Fixture, &str); 3] = [
        (Fixture { simulated: true, ..Fixture::default() }, "measured against simulated"),
        (Fixture { complete: false, ..Fixture::default() }, "other side: the run was interrupted before its end"),
        (Fixture { measurement: false, ..Fixture::default() }, "other side: it ran too few iterations"),
    ];
    for (fixture, why) in cases {
        let comparison = compared(&[Fixture::default().text()], &[slow(fixture)]);
        let pair = &comparison.others[0].pairs[0];
        assert!(pair.refused[0].starts_with(why), "{:?}", pair.refused);
        assert!(pair.rows.iter().all(|row| row.verdict == Verdict::CannotTell) && !comparison.fails());
        // Asked for, it is a failure all the same.
        assert!(Comparison { fail_on: vec![FailOn::CannotTell], ..comparison }.fails());
    }
}

#[test]
fn doubtful_results_have_warnings() {
    let other = Fixture {
        sha256: "ffff",
        throttled: Some("power cap for 40 % of the time"),
        params: vec![("streams", "8"), ("dtype", "bf16")],
        ..Fixture::default()
    };
    let comparison = compared(&[Fixture::default().text()], &[other.text()]);
    let doubts = &comparison.others[0].pairs[0].doubts;
    for told in ["not the same case: streams 4 and 8", "SHA-256 b2ea3c1ddc97… and ffff…", "throttled: power cap"] {
        assert!(doubts.iter().any(|doubt| doubt.contains(told)), "{told}: {doubts:?}");
    }
}

#[test]
fn copies_of_a_run_are_no_runs() {
    let [a, b] = [1, 2].map(|seed| Fixture::with_time(seed, 1e5).text());
    let told = |base: &[String]| compared(base, std::slice::from_ref(&b)).others[0].pairs[0].doubts.clone();
    assert_eq!(told(&[a.clone(), b.clone()]), Vec::<String>::new());
    assert!(told(&[a.clone(), b.clone(), a.clone()])[0].starts_with("base: the same run was given more than once"));
}

/// Samples of a run as nanoseconds.
fn series() -> impl Strategy<Value = Vec<i64>> {
    (1u64..1000, 1u64..150, 1_000.0..1e7, prop_oneof![Just(0.0), 0.001..0.5])
        .prop_map(|(seed, n, median, noise)| samples(seed, n, median, noise))
}

/// The runs of a side.
fn runs() -> impl Strategy<Value = Vec<Fixture>> {
    let fixture =
        (series(), 0.0..1.0, 1u64..1 << 30, any::<bool>()).prop_map(|(samples, hidden, memory, simulated)| Fixture {
            samples,
            hidden,
            memory,
            simulated,
            ..Fixture::default()
        });
    proptest::collection::vec(fixture, 1..4)
}

fn texts(runs: &[Fixture]) -> Vec<String> {
    runs.iter().map(Fixture::text).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::common::effort::due_draws(64)))]

    #[test]
    fn a_side_against_itself_is_neither_worse_nor_better(runs in runs()) {
        let comparison = compared(&texts(&runs), &texts(&runs));
        for row in &comparison.others[0].pairs[0].rows {
            prop_assert!(!matches!(row.verdict, Verdict::Worse | Verdict::Better), "{row:?}");
            prop_assert!(row.effect.is_none_or(|effect| effect.ratio == 1.0), "{row:?}");
        }
        prop_assert!(!comparison.fails());
    }

    #[test]
    fn swapping_the_sides_inverts_each_verdict(a in runs(), b in runs()) {
        let (there, back) = (compared(&texts(&a), &texts(&b)), compared(&texts(&b), &texts(&a)));
        for one in &there.others[0].pairs[0].rows {
            let other = row(&back, &one.metric);
            let turned = match one.verdict {
                Verdict::Worse => Verdict::Better,
                Verdict::Better => Verdict::Worse,
                verdict => verdict,
            };
            prop_assert_eq!(other.verdict, turned, "{:?} {:?}", one, other);
            // A metric that follows the time is worked out from it on either side.
            let alike = |a: f64, b: f64| a == b || (a / b - 1.0).abs() < 1e-9;
            prop_assert!(alike(other.base, one.other) && alike(other.other, one.base), "{one:?} {other:?}");
        }
    }

    #[test]
    fn the_order_of_files_and_cases_changes_nothing(a in runs(), b in runs()) {
        let reversed = |runs: &[Fixture]| texts(runs).into_iter().rev().collect::<Vec<_>>();
        let (plain, turned) = (compared(&texts(&a), &texts(&b)), compared(&reversed(&a), &reversed(&b)));
        for one in &plain.others[0].pairs[0].rows {
            let other = row(&turned, &one.metric);
            prop_assert_eq!(one.verdict, other.verdict);
            prop_assert!((one.base / other.base - 1.0).abs() < 1e-9 || one.base == other.base);
        }
    }
}
