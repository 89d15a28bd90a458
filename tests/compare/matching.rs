//! Cases are matched by their contents, never by their position.

use aorta::measure::compare::{Comparison, FailOn, UnmatchedCase, compare};
use aorta::measure::effect::Verdict;
use serde_json::json;

use super::fixtures::{Fixture, cases, harness, samples};
use super::{compared, options, row, side};

fn labels(comparison: &Comparison) -> Vec<&str> {
    comparison.others[0].pairs.iter().map(|pair| pair.case.as_str()).collect()
}

fn lone(case: &str, why: Option<&str>) -> UnmatchedCase {
    UnmatchedCase { case: case.to_owned(), why: why.map(str::to_owned) }
}

fn at(median: f64) -> Result<Fixture, &'static str> {
    Ok(Fixture::with_time(median as u64, median))
}

#[test]
fn a_sweep_in_another_order_is_the_same_sweep() {
    let base = cases(&[("1", at(4e5)), ("2", at(2e5)), ("4", at(1e5))]);
    let other = cases(&[("4", at(1e5)), ("1", at(4e5)), ("2", at(2.4e5))]);
    let comparison = compared(&[base], &[other]);
    assert_eq!(
        labels(&comparison),
        ["moe streams=1, as streams", "moe streams=2, as streams", "moe streams=4, as streams"]
    );
    let verdicts: Vec<Verdict> = comparison.others[0].pairs.iter().map(|pair| pair.rows[0].verdict).collect();
    assert_eq!(verdicts, [Verdict::Same, Verdict::Worse, Verdict::Same]);
}

#[test]
fn cases_are_identified_by_their_values() {
    let sweep = cases(&[("16", at(1e5)), ("2", at(2e5)), ("1", at(4e5))]);
    let comparison = compared(std::slice::from_ref(&sweep), std::slice::from_ref(&sweep));
    let streams: Vec<&str> = comparison.others[0].pairs.iter().map(|pair| pair.key["streams"].as_str()).collect();
    assert_eq!(streams, ["1", "2", "16"]);
}

#[test]
fn unmatched_cases_are_listed() {
    let base = cases(&[("1", at(4e5)), ("2", at(2e5)), ("4", at(1e5))]);
    let other = cases(&[("1", at(4e5)), ("2", Err("it needs 200 GiB")), ("8", at(1e5))]);
    let comparison = compared(std::slice::from_ref(&base), std::slice::from_ref(&other));
    let against = &comparison.others[0];
    assert_eq!(labels(&comparison), ["moe streams=1, as streams"]);
    assert_eq!(
        against.only_base,
        [
            lone("moe streams=2, as streams", Some("out of memory: it needs 200 GiB")),
            lone("moe streams=4, as streams", None)
        ]
    );
    assert_eq!(against.only_other, [lone("moe streams=8, as streams", None)]);
    let back = compared(std::slice::from_ref(&other), std::slice::from_ref(&base));
    assert_eq!((&back.others[0].only_base, &back.others[0].only_other), (&against.only_other, &against.only_base));
    // A case that failed on both sides is no loss; a case that only one side has tried is listed.
    assert_eq!(compared(std::slice::from_ref(&other), std::slice::from_ref(&other)).others[0].only_base, []);
    let tried = compared(&[other], &[cases(&[("1", at(4e5)), ("8", at(1e5))])]);
    assert_eq!(tried.others[0].only_base, [lone("moe streams=2", Some("out of memory: it needs 200 GiB"))]);
    assert!(!comparison.fails());
    assert!(Comparison { fail_on: vec![FailOn::Missing], ..comparison }.fails());
}

#[test]
fn equal_cases_of_one_side_are_its_runs() {
    let files: Vec<String> = (1..=3).map(|seed| Fixture::with_time(seed, 1e5).text()).collect();
    let comparison = compared(&files, &files[..1]);
    let pair = &comparison.others[0].pairs[0];
    assert_eq!((pair.base_runs, pair.other_runs), (3, 1));
    assert_eq!((comparison.base.cases, comparison.base.runs), (1, 3));
}

#[test]
fn backends_distinguish_cases_if_one_side_has_both() {
    let on = |backend: &'static str, median: f64| {
        Fixture { backend, device: backend, ..Fixture::with_time(1, median) }.text()
    };
    // Alone on each side, they are compared: that is how vendors are.
    let comparison = compared(&[on("cuda", 1e5)], &[on("hip", 1.2e5)]);
    assert_eq!(row(&comparison, "time.p50").verdict, Verdict::Worse);
    let both = [on("cuda", 1e5), on("hip", 1.2e5)];
    let comparison = compared(&both, &both);
    assert_eq!(comparison.others[0].pairs.len(), 2);
    assert_eq!(row(&comparison, "time.p50").verdict, Verdict::Same);
}

#[test]
fn the_one_case_of_a_workload_is_compared_whatever_differs() {
    let of = |workload, chunks| Fixture { workload, params: vec![("chunks", chunks)], ..Fixture::default() }.text();
    let base = [of("moe.aorta", "2"), of("fsdp.aorta", "1")];
    let comparison = compared(&base, &[of("fsdp.aorta", "1"), of("moe.aorta", "4")]);
    assert_eq!(labels(&comparison), ["moe chunks=2, as streams", "fsdp chunks=1, as streams"]);
    assert_eq!(comparison.others[0].pairs[0].doubts, ["not the same case: chunks 2 and 4"]);
    // With several cases on a side, the match would be ambiguous.
    let comparison =
        compared(&[of("moe.aorta", "1"), of("moe.aorta", "2")], &[of("moe.aorta", "1"), of("moe.aorta", "4")]);
    assert_eq!(labels(&comparison), ["moe chunks=1, as streams"]);
}

#[test]
fn launches_are_never_mixed() {
    let graph = Fixture { launch: "graph", ..Fixture::default() }.text();
    let comparison = compared(&[Fixture::default().text()], std::slice::from_ref(&graph));
    assert_eq!(labels(&comparison), Vec::<&str>::new());
    assert_eq!(comparison.others[0].only_base, [lone("moe, as streams", None)]);
    assert_eq!(comparison.others[0].only_other, [lone("moe, as a graph", None)]);
}

#[test]
fn the_first_side_is_the_base_of_all_others() {
    let file = |median: f64| [Fixture::with_time(1, median).text()];
    let others = [side("b", &file(1e5)), side("c", &file(2e5))];
    let comparison = compare(&side("a", &file(1e5)), &others, &options());
    let verdicts: Vec<Verdict> = comparison.others.iter().map(|against| against.pairs[0].rows[0].verdict).collect();
    assert_eq!(verdicts, [Verdict::Same, Verdict::Worse]);
}

/// Milliseconds around a median.
fn ms(seed: u64, median: f64) -> Vec<f64> {
    samples(seed, 100, median * 1e6, 0.01).into_iter().map(|ns| ns as f64 * 1e-6).collect()
}

#[test]
fn results_of_the_python_harness_are_read_as_they_are() {
    let sweep = |streams: &[(u32, f64)]| {
        let results: Vec<_> =
            streams.iter().map(|(count, median)| harness(*count, &ms(u64::from(*count), *median))).collect();
        json!({"timestamp": "t", "workload": "moe", "results": results, "analysis": {}}).to_string()
    };
    // Cases match by the number of streams, where the harness itself uses positions.
    let comparison = compared(&[sweep(&[(1, 4.0), (2, 2.0), (8, 1.0)])], &[sweep(&[(2, 2.5), (8, 1.0)])]);
    assert_eq!(labels(&comparison), ["moe streams=2", "moe streams=8"]);
    assert_eq!(comparison.others[0].only_base, [lone("moe streams=1", None)]);
    assert_eq!(row(&comparison, "time.p50").verdict, Verdict::Worse);
    let rate = row(&comparison, "throughput");
    assert_eq!((rate.verdict, rate.unit.as_str()), (Verdict::Worse, "tokens/s"));
    assert!((rate.base - 2048.0 / 2e-3).abs() < 0.01 * rate.base, "{}", rate.base);
    assert_eq!(row(&comparison, "memory.device").base.round(), 1.5 * f64::from(1 << 30));
    // A single run, and a single run compared with a sweep.
    let comparison = compared(&[harness(2, &ms(1, 2.0)).to_string()], &[sweep(&[(2, 2.0), (8, 1.0)])]);
    assert_eq!((labels(&comparison), row(&comparison, "time.p50").verdict), (vec!["moe streams=2"], Verdict::Same));
}

#[test]
fn a_record_beside_the_harness_s_result_is_matched_and_doubted() {
    let record = Fixture { device: "AMD Instinct MI300X", backend: "hip", ..Fixture::with_time(1, 1e6) };
    let comparison = compared(&[harness(4, &ms(2, 2.0)).to_string()], &[record.text()]);
    let pair = &comparison.others[0].pairs[0];
    assert!(pair.doubts.iter().any(|doubt| doubt.contains("different programs")), "{:?}", pair.doubts);
    assert_eq!(row(&comparison, "time.p50").verdict, Verdict::Better);
}

#[test]
fn differences_between_machines_are_reported() {
    let other =
        Fixture { driver: "560.10", variables: vec![("CUDA_DEVICE_MAX_CONNECTIONS", "32")], ..Fixture::default() };
    let mut other = other.value();
    // Facts that always differ are not reported.
    other["device"]["facts"]["celsius"] = "71".into();
    other["device"]["facts"]["timer_empty_ns"] = "2016".into();
    let comparison = compared(&[Fixture::default().text()], &[other.to_string()]);
    let told: Vec<_> = comparison.others[0]
        .environment
        .iter()
        .map(|one| (one.what.as_str(), one.base.as_deref(), one.other.as_deref()))
        .collect();
    assert_eq!(told, [("driver", Some("550.54"), Some("560.10")), ("CUDA_DEVICE_MAX_CONNECTIONS", None, Some("32"))]);
}

fn ratio(comparison: &Comparison) -> f64 {
    let time = row(comparison, "time.p50");
    time.other / time.base
}

/// A time at the gate is the device's, one without may be the host's: a record has both where it was held.
#[test]
fn runs_at_the_gate_are_compared_with_others_by_their_host_paced_times() {
    let of = |seed, time: f64, ungated: Option<f64>| Fixture {
        samples: samples(seed, 200, time, 0.01),
        ungated: ungated.map(|median| samples(seed + 7, 200, median, 0.01)),
        ..Fixture::default()
    };
    // Held, it takes a tenth; host-paced, both are the same.
    let comparison = compared(&[of(1, 1e5, Some(1e6)).text()], &[of(2, 1e6, None).text()]);
    let rows: Vec<&str> = comparison.others[0].pairs[0].rows.iter().map(|row| row.metric.as_str()).collect();
    assert_eq!(rows, ["time.p50", "time.p95", "time.p99", "throughput", "memory.device"], "no other is alike");
    let time = row(&comparison, "time.p50");
    assert!((time.base - 1e-3).abs() < 2e-5 && ((time.other / time.base) - 1.0).abs() < 0.02, "{time:?}");
    let doubts = &comparison.others[0].pairs[0].doubts;
    assert!(doubts.iter().any(|doubt| doubt.contains("host-paced times are compared")), "{doubts:?}");
    // Both held: the device's times. Neither: what there is.
    for (base, other) in [(Some(1e6), Some(2e6)), (None, None)] {
        let comparison = compared(&[of(1, 1e5, base).text()], &[of(2, 1e5, other).text()]);
        assert!((row(&comparison, "time.p50").base - 1e-4).abs() < 2e-6);
        assert!(comparison.others[0].pairs[0].doubts.is_empty());
        assert!(comparison.others[0].pairs[0].rows.iter().any(|row| row.metric == "tokens_per_second"));
    }
    // The Python harness never holds anything.
    let held = Fixture { device: "AMD Instinct MI300X", backend: "hip", ..of(1, 1e5, Some(2e6)) };
    let comparison = compared(&[harness(4, &ms(2, 2.0)).to_string()], &[held.text()]);
    assert!((ratio(&comparison) - 1.0).abs() < 0.02);
}

/// A workload is known by the name of its file. Another name is another workload, and a text without a name is known by
/// itself alone.
#[test]
fn different_workloads_are_never_compared() {
    let of = |workload, sha256| [Fixture { workload, sha256, ..Fixture::default() }.text()];
    let (one, two) = ("1111111111111111", "2222222222222222");
    for (base, other) in [
        (of("moe.aorta", one), of("fsdp.aorta", two)),
        (of("moe.aorta", one), of("fsdp.aorta", one)),
        (of("<stdin>", one), of("<stdin>", two)),
    ] {
        assert_eq!(labels(&compared(&base, &other)), Vec::<&str>::new());
    }
    // An edited version has the same name, in this folder or in another one.
    for other in ["moe.aorta", "edited/moe.aorta"] {
        let comparison = compared(&of("moe.aorta", one), &of(other, two));
        assert_eq!(comparison.others[0].pairs.len(), 1, "{other}");
        let doubts = &comparison.others[0].pairs[0].doubts;
        assert!(doubts.iter().any(|doubt| doubt.contains("the text of the workload is not the same")), "{doubts:?}");
    }
    assert_eq!(compared(&of("<stdin>", one), &of("<stdin>", one)).others[0].pairs.len(), 1);
}

/// Rounds are compared where iterations differ: what the file does makes no difference and no noise.
#[test]
fn rounds_are_compared_where_iterations_differ() {
    let of = |seed, slots: [f64; 3]| {
        let noise = samples(seed, 300, 1e6, 0.01);
        let samples =
            noise.iter().enumerate().map(|(index, noise)| (*noise as f64 * slots[index % 3]) as i64).collect();
        [Fixture { samples, slots: 3, ..Fixture::default() }.text()]
    };
    let comparison = compared(&of(1, [0.1, 0.4, 2.0]), &of(2, [2.0, 0.1, 0.4]));
    let time = row(&comparison, "time.p50");
    assert_eq!(time.verdict, Verdict::Same, "{time:?}");
    assert!((time.base / (2.5e-3 / 3.0) - 1.0).abs() < 0.01, "{time:?}");
    let slower = compared(&of(1, [0.1, 0.4, 2.0]), &of(2, [0.1, 0.4, 2.3]));
    assert_eq!(row(&slower, "time.p50").verdict, Verdict::Worse);
    // Less than a round says nothing.
    let short = Fixture { samples: samples(1, 2, 1e6, 0.01), slots: 3, ..Fixture::default() }.text();
    let comparison = compared(&of(1, [0.1, 0.4, 2.0]), &[short]);
    let refused = &comparison.others[0].pairs[0].refused;
    assert!(refused.iter().any(|why| why.contains("less than a round of its 3 slots")), "{refused:?}");
}
