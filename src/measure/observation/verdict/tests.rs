//! Verdicts on made-up analyses.

use super::*;
use crate::measure::record::TotalsRecord;

fn category(name: &str, chain: i64) -> CategoryRecord {
    CategoryRecord { category: name.to_owned(), chain_ns: Nanos(chain), ..CategoryRecord::default() }
}

fn analysis(split: TimeSplitRecord, categories: &[CategoryRecord]) -> AnalysisRecord {
    AnalysisRecord { split, categories: categories.to_vec(), ..AnalysisRecord::default() }
}

/// The verdict and the help for the only rank.
fn told(analysis: &AnalysisRecord) -> (String, String) {
    verdict(analysis, 0, None, &[], &[], Nanos(0))
}

fn half_busy() -> TimeSplitRecord {
    TimeSplitRecord {
        time_ns: Nanos(1000),
        operations_ns: Nanos(700),
        dependency_ns: Nanos(200),
        idle_ns: Nanos(100),
        ..TimeSplitRecord::default()
    }
}

#[test]
fn the_largest_part_of_the_chain_decides() {
    let said = |categories: &[CategoryRecord], tail| {
        told(&AnalysisRecord { tail_ns: Some(Nanos(tail)), ..analysis(half_busy(), categories) }).0
    };
    assert_eq!(
        said(&[category("matrix", 600), category("copy", 100)], 0),
        "bound by matrix multiplication: 60 % of the critical chain is matrix multiplication (600 ns of 1.000 µs)"
    );
    assert!(said(&[category("copy", 400), category("matrix", 300)], 0).starts_with("bound by copies"));
    assert!(said(&[category("collective", 700)], 0).starts_with("bound by exposed communication"));
    assert!(said(&[category("matrix", 150)], 0).contains("large: 20 % of the critical chain is the time between"));
    let tail = said(&[category("matrix", 700)], 300);
    assert!(tail.ends_with("; only one stream has work during the last 30 % of the iteration (a tail)"));
    let host = TimeSplitRecord { time_ns: Nanos(100), launch_ns: Nanos(80), ..TimeSplitRecord::default() };
    let (host, _) = told(&analysis(host, &[category("copy", 20)]));
    assert!(host.starts_with("host-bound: 80 % of the critical chain is waiting for the host"));
    assert_eq!(told(&analysis(TimeSplitRecord::default(), &[])).0, "nothing ran");
}

/// In the sum of the split, `stretch` is as much a part as the operations of a category.
#[test]
fn stretch_is_a_part_of_its_own() {
    let said = |time: i64, stretch: i64| {
        let split = TimeSplitRecord {
            time_ns: Nanos(1000),
            operations_ns: Nanos(900 - stretch),
            stretch_ns: Some(Nanos(stretch)),
            idle_ns: Nanos(100),
            ..TimeSplitRecord::default()
        };
        let stretched = |name, chain, added| CategoryRecord { stretch_ns: Some(Nanos(added)), ..category(name, chain) };
        told(&analysis(split, &[stretched("movement", time, stretch), stretched("matrix", 900 - time, 0)])).0
    };
    assert_eq!(
        said(700, 500),
        "bound by contention: 50 % of the critical chain is stretch, time that operations take longer beside others than \
         alone (500 ns of 1.000 µs)"
    );
    assert_eq!(
        said(700, 200),
        "bound by data movement: 50 % of the critical chain is moving data within the device (500 ns of 1.000 µs)"
    );
    // Beside others, an operation may find its data in the cache.
    assert!(said(700, -300).contains("70 % of the critical chain is moving data"));
}

/// A receive that is launched early waits on its own stream while the rank computes.
#[test]
fn a_rank_that_works_while_its_chain_waits_is_not_all_bubble() {
    let split = TimeSplitRecord { time_ns: Nanos(1000), wait_ns: Nanos(900), ..TimeSplitRecord::default() };
    let busy = |name: &str, busy, wait| CategoryRecord { busy_ns: Nanos(busy), wait_ns: wait, ..category(name, 50) };
    let said = |idle| {
        let totals = TotalsRecord { wait_ns: Nanos(idle), ..TotalsRecord::default() };
        let categories = [busy("collective", 950, Some(Nanos(900))), busy("matrix", 700, None)];
        let balance = BalanceRecord { kind: "pipeline bubble".to_owned(), ..BalanceRecord::default() };
        let analysis = AnalysisRecord { totals: Some(totals), ..analysis(split.clone(), &categories) };
        verdict(&analysis, 0, Some(&balance), &[], &[], Nanos(0))
    };
    let (verdict, help) = said(110);
    assert_eq!(
        verdict,
        "bound by matrix multiplication: matrix multiplication runs during 70 % of the iteration (700 ns of 1.000 µs), and the \
         rank only waits for others during 11 % (110 ns); the critical chain waits for them during 90 %, mostly while the rank \
         does other work"
    );
    assert!(help.contains("microbatches"), "{help}");
    assert!(said(20).1.starts_with("shapes that fill"), "a short wait needs no remedy");
    assert!(said(800).0.starts_with("pipeline bubble: 90 % of the critical chain is waiting for other ranks"));
}

#[test]
fn operations_of_host_streams_are_bound_by_the_cpu() {
    let analysis = analysis(half_busy(), &[category("elementwise", 700)]);
    let of_lanes = |remedy| verdict(&analysis, 0, None, &[("elementwise", remedy)], &[], Nanos(0));
    let (verdict, help) = of_lanes(ON_CPU);
    assert!(verdict.starts_with("bound by the CPU: 70 % of the critical chain is elementwise work of host streams"));
    assert_eq!(help, ON_CPU);
    assert!(of_lanes(FEW_UNITS).0.starts_with("bound by the `units` of streams: 70 % of the critical chain"));
}

#[test]
fn gaps_during_which_other_streams_work_are_told_from_idle_ones() {
    let said = |busy: i64, links: u32| {
        let split = TimeSplitRecord {
            time_ns: Nanos(1_000_000),
            operations_ns: Nanos(400_000),
            dependency_ns: Nanos(550_000),
            idle_ns: Nanos(50_000),
            chain: (0..links).collect(),
            ..TimeSplitRecord::default()
        };
        let totals = TotalsRecord { busy_ns: Nanos(1000 * busy), ..TotalsRecord::default() };
        told(&AnalysisRecord { totals: Some(totals), ..analysis(split, &[category("matrix", 400_000)]) }).0
    };
    let others = "bound by operations of other streams: 55 % of the critical chain is the time between";
    let gaps = "bound by gaps between operations: ";
    assert!(said(950, 100).starts_with(others));
    assert!(said(700, 100).starts_with(gaps), "less than half of the gaps is known to be busy");
    assert!(said(950, 500).starts_with(gaps), "1.1 µs is an ordinary gap");
}

#[test]
fn tiny_operations_on_many_streams_are_bound_by_the_rate_of_starts() {
    let started = |operations, busy, start| {
        let split = TimeSplitRecord {
            time_ns: Nanos(650_000),
            operations_ns: Nanos(40_000),
            dependency_ns: Nanos(590_000),
            idle_ns: Nanos(20_000),
            chain: (0..50).collect(),
            ..TimeSplitRecord::default()
        };
        let totals = TotalsRecord { busy_ns: Nanos(busy), ..TotalsRecord::default() };
        let categories = [CategoryRecord { operations, ..category("elementwise", 40_000) }];
        let analysis = AnalysisRecord { totals: Some(totals), ..analysis(split, &categories) };
        verdict(&analysis, 0, None, &[], &[], Nanos(start))
    };
    let said = |operations, busy| started(operations, busy, 0);
    let (rate, help) = said(1600, 645_000);
    assert_eq!(
        rate,
        "bound by the rate at which the device starts operations, one every 406 ns: 91 % of the critical chain is the time between one operation and \
         the next, mostly while other streams run operations (590.0 µs of 650.0 µs)"
    );
    assert_eq!(help, FEWER_STARTS);
    let (slow, _) = said(400, 645_000);
    assert!(slow.starts_with("bound by operations of other streams: "), "1.6 µs is no limit of the device");
    let (alone, _) = said(1600, 50_000);
    assert!(alone.starts_with("bound by gaps between operations: "), "no other stream runs operations meanwhile");
    let (queues, _) = started(400, 300_000, 1600);
    let rate = "bound by the rate at which the device starts operations, one every 1.625 µs: ";
    assert!(queues.starts_with(rate), "{queues}");
    assert!(queues.contains("while the device starts operations of other streams"), "{queues}");
}

#[test]
fn a_late_start_while_other_streams_work_is_no_idle_time() {
    let reaching = |busy: i64, bytes: f64, start: i64| {
        let split = TimeSplitRecord {
            time_ns: Nanos(70_000),
            operations_ns: Nanos(30_000),
            dependency_ns: Nanos(7_000),
            idle_ns: Nanos(33_000),
            chain: (0..6).collect(),
            ..TimeSplitRecord::default()
        };
        let totals = TotalsRecord { busy_ns: Nanos(1000 * busy), ..TotalsRecord::default() };
        let analysis = analysis(split, &[category("movement", 30_000)]);
        let peak = Some(PeakRecord { profile: String::new(), flops: 0.0, bytes, link: None });
        verdict(&AnalysisRecord { totals: Some(totals), peak, ..analysis }, 0, None, &[], &[], Nanos(start))
    };
    let said = |busy| reaching(busy, 0.0, 0);
    let (late, help) = said(68);
    assert_eq!(
        late,
        "bound by operations of other streams: 47 % of the critical chain is the time before its first and after its last \
         operation, mostly while other streams run operations (33.00 µs of 70.00 µs)"
    );
    assert_eq!(help, NO_FREE_UNITS);
    // A resource at its limit is named also if the device could hardly start the operations faster.
    let (full, _) = reaching(68, 0.8, 70_000);
    assert!(reaching(68, 0.0, 70_000).0.starts_with("bound by the rate at which"));
    assert!(full.starts_with("bound by memory bandwidth: 47 % of the critical chain is the time before"), "{full}");
    assert!(full.ends_with("and all operations of the iteration together reach 80 % of its peak"), "{full}");
    let (idle, _) = said(37);
    assert!(idle.starts_with("bound by the start and end of the iteration: 47 %"), "{idle}");
}

#[test]
fn the_resource_that_bounds_most_of_the_largest_part_is_named() {
    let bound = |resource: &str, chain, ideal, limits| BoundRecord {
        category: "matrix".to_owned(),
        resource: Some(resource.to_owned()),
        limits,
        chain_ns: Nanos(chain),
        ideal_ns: Nanos(ideal),
    };
    let said = |bounds: &[BoundRecord]| {
        let bare = analysis(half_busy(), &[category("matrix", 600)]);
        told(&AnalysisRecord { bounds: bounds.to_vec(), ..bare }).0
    };
    assert_eq!(
        said(&[bound("memory", 400, 356, true), bound("bf16", 200, 190, true)]),
        "bound by memory bandwidth: 40 % of the critical chain is matrix multiplication that memory bandwidth bounds (400 ns of \
         1.000 µs), at 89 % of its peak"
    );
    assert!(
        said(&[bound("memory", 300, 290, true), bound("bf16", 200, 190, true), bound("h2d", 100, 90, true)])
            .starts_with("bound by matrix multiplication: 60 %"),
        "no resource bounds most of it"
    );
    assert!(said(&[bound("bf16", 600, 300, true)]).starts_with("bound by bf16 matrix arithmetic: "));
    assert!(said(&[bound("NVLink", 600, 300, true)]).starts_with("bound by NVLink: "));
    // Concurrent operations share the peak.
    let peak = PeakRecord { profile: String::new(), flops: 0.01, bytes: 0.92, link: None };
    let bare = AnalysisRecord { peak: Some(peak), ..analysis(half_busy(), &[category("matrix", 600)]) };
    let (together, _) = told(&AnalysisRecord { bounds: vec![bound("memory", 600, 60, false)], ..bare });
    assert!(
        together.starts_with("bound by memory bandwidth: ")
            && together.ends_with("and all operations of the iteration together reach 92 % of its peak"),
        "{together}"
    );
    // A busy link does not hold up kernels.
    let link = PeakRecord { profile: String::new(), flops: 0.1, bytes: 0.2, link: Some(("h2d".to_owned(), 0.9)) };
    let bare = AnalysisRecord { peak: Some(link), ..analysis(half_busy(), &[category("matrix", 600)]) };
    let (beside, _) = told(&AnalysisRecord { bounds: vec![bound("bf16", 600, 60, false)], ..bare });
    assert!(beside.starts_with("bound by matrix multiplication: "), "{beside}");
    let far = said(&[bound("bf16", 600, 60, false)]);
    assert!(
        far.starts_with("bound by matrix multiplication: ")
            && far.ends_with("at 10 % of the peak of bf16 matrix arithmetic")
    );
}

#[test]
fn waiting_says_why_ranks_wait() {
    let waits = TimeSplitRecord { time_ns: Nanos(1000), wait_ns: Nanos(900), ..TimeSplitRecord::default() };
    let said = |rank, kind: &str, late| {
        let balance = BalanceRecord { kind: kind.to_owned(), ranks: late, ..BalanceRecord::default() };
        verdict(&analysis(waits.clone(), &[category("collective", 99)]), rank, Some(&balance), &[], &[], Nanos(0)).0
    };
    assert_eq!(
        said(0, "pipeline bubble", vec![]),
        "pipeline bubble: 90 % of the critical chain is waiting for other ranks (900 ns of 1.000 µs)"
    );
    assert!(
        said(0, "imbalance", vec![3])
            .starts_with("imbalance: 90 % of the critical chain is waiting for other ranks, mostly for rank 3")
    );
    assert!(said(0, "waiting", vec![]).starts_with("bound by waiting for other ranks: "));
    let totals = Some(TotalsRecord { wait_ns: Nanos(600), ..TotalsRecord::default() });
    let beside = AnalysisRecord { totals, ..analysis(waits, &[category("collective", 99)]) };
    assert_eq!(
        told(&beside).0,
        "bound by waiting for other ranks: 90 % of the critical chain is waiting for other ranks (900 ns of 1.000 µs); \
         other operations of this rank run during at least 300 ns of it"
    );
}

#[test]
fn a_link_that_operations_share_is_named() {
    let split = TimeSplitRecord {
        time_ns: Nanos(1000),
        operations_ns: Nanos(400),
        engine_ns: Nanos(600),
        ..TimeSplitRecord::default()
    };
    let said = |share, pageable| {
        let peak = PeakRecord { profile: String::new(), flops: 0.1, bytes: 0.2, link: Some(("h2d".to_owned(), share)) };
        let analysis = AnalysisRecord { peak: Some(peak), ..analysis(split.clone(), &[category("copy", 400)]) };
        let (category, time_ns) = ("copy".to_owned(), Some(Nanos(400)));
        let copy = OperationRecord { category, time_ns, pageable, ..OperationRecord::default() };
        verdict(&analysis, 0, None, &[], &[copy], Nanos(0))
    };
    assert_eq!(
        said(0.9, true).0,
        "bound by the host link (host to device): 60 % of the critical chain is waiting for a copy engine that copies of other \
         streams occupy (600 ns of 1.000 µs), and all operations of the iteration together reach 90 % of its peak"
    );
    let (verdict, help) = said(0.5, true);
    assert!(verdict.starts_with("bound by a copy engine: 60 %") && help == PINNED, "{verdict}");
    assert!(said(0.5, false).1.starts_with("copies of one direction follow"));
}

/// Pieces repeat a collective's latency, so that they only help if its bytes take most of its time.
#[test]
fn remedies_follow_the_share_of_the_peak() {
    let collective = |share| remedy("collective", &Facts { of_peak: Some(share), ..Facts::default() });
    assert_eq!(collective(0.6), EARLIER);
    assert_eq!(collective(0.02), FEWER_CALLS);
    let copy =
        |share, pageable, pieces| remedy("copy", &Facts { of_peak: Some(share), pageable, pieces, ..Facts::default() });
    assert!(copy(0.35, false, 64).starts_with("a copy engine moves 64 pieces one by one: `via: kernel`"));
    assert!(copy(0.35, true, 0).starts_with("pinned instead of pageable"));
    assert!(copy(0.1, false, 1).starts_with("fewer and larger copies"));
    assert_eq!(copy(0.6, false, 64), EARLIER);
}

#[test]
fn copies_of_both_directions_can_hide_each_other() {
    let bound = |link: &str| BoundRecord {
        category: "copy".to_owned(),
        resource: Some(link.to_owned()),
        chain_ns: Nanos(480),
        ideal_ns: Nanos(400),
        ..BoundRecord::default()
    };
    let help = |links: &[&str]| {
        let split = TimeSplitRecord { time_ns: Nanos(1000), operations_ns: Nanos(960), ..TimeSplitRecord::default() };
        let bounds = links.iter().map(|link| bound(link)).collect();
        told(&AnalysisRecord { bounds, ..analysis(split, &[category("copy", 960)]) }).1
    };
    assert_eq!(help(&["h2d"]), LESS);
    assert_eq!(help(&["h2d", "d2h"]), BOTH_DIRECTIONS);
}

#[test]
fn remedies_of_products_follow_their_type_and_what_runs_beside_them() {
    let operation = |name: &str, size: &str| {
        let (operation, category) = (name.to_owned(), "matrix".to_owned());
        OperationRecord { operation, category, size: size.to_owned(), ..OperationRecord::default() }
    };
    let said = |operation: OperationRecord, lanes: &[i64]| {
        let lanes_busy_ns = lanes.iter().map(|busy| Nanos(*busy)).collect();
        let analysis = AnalysisRecord { lanes_busy_ns, ..analysis(half_busy(), &[]) };
        remedy("matrix", &Facts::of(&analysis, [&operation].into_iter()))
    };
    assert!(said(operation("conv", "1×2×3 f32"), &[5]).starts_with("`compute: tf32`"));
    assert!(said(operation("gemm", "1×2×3 f32"), &[5]).starts_with("`compute: tf32`"));
    assert_eq!(said(operation("gemm", "1×2×3 tf32"), &[5, 0]), MATRIX);
    assert!(
        said(operation("attention", "1×2×3 f32"), &[5, 5]).ends_with("fewer concurrent operations that occupy units")
    );
}
