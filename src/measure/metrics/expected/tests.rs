//! Verdicts on records with known answers.

use super::*;
use crate::base::Nanos;
use crate::measure::record::{
    BlockRecord, CollectiveRecord, DeviceRecord, Environment, LaneRecord, MetricRecord, OperationRecord, ProgramRecord,
    RankRecord, SCHEMA, SettingsRecord, SkewRecord, SpanRecord, Times, Workload,
};

const GIB: u64 = 1 << 30;

/// An operation that takes `micros` µs.
fn op(operation: &str, micros: i64) -> OperationRecord {
    OperationRecord {
        operation: operation.to_owned(),
        category: "elementwise".to_owned(),
        shape: "x".to_owned(),
        time_ns: Some(Nanos(micros * 1000)),
        ..OperationRecord::default()
    }
}

fn product(micros: i64) -> OperationRecord {
    let flops = 2.0 * 8192f64.powi(3);
    OperationRecord { category: "matrix".into(), arithmetic: Some("bf16".into()), flops, ..op("gemm", micros) }
}

fn copy(direction: &str, bytes: u64, micros: i64) -> OperationRecord {
    OperationRecord { category: "copy".into(), direction: Some(direction.into()), bytes, ..op("copy", micros) }
}

/// A rank that runs these operations one after another.
fn rank(number: u32, mut operations: Vec<OperationRecord>) -> RankRecord {
    let (mut trace, mut at) = (Vec::new(), Nanos(0));
    for (id, operation) in (0..).zip(&mut operations) {
        operation.id = id;
        let end_ns = at + operation.time_ns.unwrap();
        trace.push(SpanRecord { id, start_ns: at, end_ns });
        at = end_ns + Nanos(1000);
    }
    RankRecord { rank: number, operations, trace, ..RankRecord::default() }
}

fn variant(launch: &str, issue: i64, ranks: Vec<RankRecord>) -> Variant {
    Variant {
        launch: launch.to_owned(),
        time: Times::of(&[Nanos(1000)]),
        issue: Times::of(&[Nanos(issue)]),
        ranks,
        ..Variant::default()
    }
}

/// A measurement of one H200.
fn record(variants: Vec<Variant>) -> RunRecord {
    let ranks = variants[0].ranks.len() as u32;
    let operations = variants[0].ranks[0].operations.len();
    RunRecord {
        schema: SCHEMA.to_owned(),
        measurement: true,
        complete: true,
        workload: Workload { name: "moe.aorta".to_owned(), origin: "library".to_owned(), ..Workload::default() },
        settings: SettingsRecord {
            backend: "cuda".to_owned(),
            launch: "stream".to_owned(),
            effort: "full".to_owned(),
            warmup: 10,
            iterations: 100,
            sync: "iteration".to_owned(),
            depth: 1,
            in_flight: 2,
            ranks,
            gate: "auto".to_owned(),
            cache: "hot".to_owned(),
            data: "normal".to_owned(),
            ..SettingsRecord::default()
        },
        device: DeviceRecord {
            name: "NVIDIA H200".to_owned(),
            index: Some(0),
            units: Some(132),
            memory_bytes: Some(140 * GIB),
            ..DeviceRecord::default()
        },
        environment: Environment { cpus: 16, ..Environment::default() },
        program: ProgramRecord {
            operations,
            cycle: 1,
            cycle_operations: operations,
            streams: 1,
            lanes: vec![LaneRecord::default()],
            ..ProgramRecord::default()
        },
        variants,
        ..RunRecord::default()
    }
}

fn one(operations: Vec<OperationRecord>) -> RunRecord {
    record(vec![variant("stream", 100_000, vec![rank(0, operations)])])
}

fn fact(record: &mut RunRecord, name: &str, value: &str) {
    record.device.facts.insert(name.to_owned(), value.to_owned());
}

/// Returns `name: verdict` for every metric with a range.
fn verdicts(record: &RunRecord) -> Vec<String> {
    let known = Expected::of("NVIDIA H200").unwrap();
    judge(record, &known).iter().map(|figure| format!("{}: {}", figure.name, figure.verdict)).collect()
}

/// Returns the first check of the only metric.
fn first(record: &RunRecord) -> Vec<String> {
    let found = judge(record, &Expected::of("NVIDIA H200").unwrap());
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].check.clone()
}

#[test]
fn rates_are_set_beside_their_ranges() {
    // 1.0995 TFLOP in 1.5 ms are 733 TFLOP/s, in 2 ms 550, in 1.2 ms 916.
    assert_eq!(verdicts(&one(vec![product(1500)])), ["large product in bf16: normal"]);
    assert_eq!(verdicts(&one(vec![product(2000)])), ["large product in bf16: slower"]);
    assert_eq!(verdicts(&one(vec![product(1200)])), ["large product in bf16: faster"]);
    // 256 MiB at 55 GB/s take 4.88 ms.
    assert_eq!(verdicts(&one(vec![copy("h2d", GIB / 4, 4880)])), ["copy from pinned memory: normal"]);
    assert_eq!(verdicts(&one(vec![copy("d2h", GIB / 4, 10_000)])), ["copy to pinned memory: slower"]);
    let found = judge(&one(vec![copy("h2d", GIB / 4, 4880)]), &Expected::of("NVIDIA H200").unwrap());
    assert_eq!((found[0].text.as_str(), found[0].normal.as_str()), ("55.01 GB/s", "50 GB/s to 57 GB/s"));
    assert!(found[0].source.starts_with("measured: docs/measurements/"), "{}", found[0].source);
}

#[test]
fn the_median_of_equal_operations_counts() {
    let found = judge(&one(vec![product(1500), product(1510), product(9000)]), &Expected::of("NVIDIA H200").unwrap());
    assert_eq!((found.len(), found[0].count, found[0].verdict.as_str()), (1, 3, "normal"));
}

#[test]
fn records_without_known_ranges_get_no_verdict() {
    let small = OperationRecord { flops: 1e9, ..product(10) };
    assert_eq!(verdicts(&one(vec![small])), Vec::<String>::new());
    let good = one(vec![product(2000)]);
    let changed = |change: fn(&mut RunRecord)| {
        let mut record = good.clone();
        change(&mut record);
        verdicts(&record)
    };
    assert_eq!(verdicts(&good).len(), 1);
    for change in [
        |record: &mut RunRecord| record.simulated = true,
        |record: &mut RunRecord| record.emulated = Some(8),
        |record: &mut RunRecord| record.measurement = false,
        |record: &mut RunRecord| record.complete = false,
        |record: &mut RunRecord| record.device.name = "NVIDIA H200 NVL".to_owned(),
        |record: &mut RunRecord| record.variants[0].ranks[0].operations[0].time_ns = None,
    ] {
        assert_eq!(changed(change), Vec::<String>::new());
    }
}

#[test]
fn concurrent_operations_get_no_verdict() {
    let mut run = one(vec![product(1500), product(1500)]);
    run.variants[0].ranks[0].trace[1].start_ns = Nanos(700_000);
    assert_eq!(verdicts(&run), Vec::<String>::new());
    // Operations that overlap others are excluded, unless their time alone is known from the run on one stream.
    for operation in &mut run.variants[0].ranks[0].operations {
        operation.alone_ns = Some(Nanos(2_000_000));
    }
    assert_eq!(verdicts(&run), ["large product in bf16: slower"]);
    // Stamps of two streams may overlap by a little.
    let mut run = one(vec![product(1500), product(1500)]);
    run.variants[0].ranks[0].trace[1].start_ns = Nanos(1_490_000);
    assert_eq!(verdicts(&run), ["large product in bf16: normal"]);
}

#[test]
fn collectives_count_from_when_all_have_come() {
    let reduce = |micros| OperationRecord {
        category: "collective".into(),
        bus_bytes: Some(GIB as f64),
        ranks: Some(2),
        ..op("all_reduce", micros)
    };
    // The first rank waits 5 ms for the second: 1 GiB in 3.25 ms are 330 GB/s.
    let mut run = record(vec![variant("stream", 1, vec![rank(0, vec![reduce(8250)]), rank(1, vec![reduce(3250)])])]);
    let meeting = CollectiveRecord {
        name: "all_reduce".into(),
        operation: "all_reduce".into(),
        ranks: vec![0, 1],
        ids: vec![0, 0],
        transfer_ns: Nanos(3_250_000),
        wait_ns: vec![Nanos(5_000_000), Nanos(0)],
        skew_ns: None,
        skew_error_ns: None,
        last: None,
    };
    run.variants[0].skew = Some(SkewRecord { collectives: vec![meeting], ..SkewRecord::default() });
    assert_eq!(verdicts(&run), ["all_reduce of two ranks, 256 MiB and more: normal"]);
    // Without skew data, the slowest rank counts.
    run.variants[0].skew = None;
    let found = judge(&run, &Expected::of("NVIDIA H200").unwrap());
    assert_eq!((found[0].rank, found[0].verdict.as_str()), (Some(0), "slower"));
    let mut restricted = run.clone();
    restricted.environment.variables.insert("NCCL_P2P_DISABLE".to_owned(), "1".to_owned());
    assert_eq!(first(&restricted), ["the environment says NCCL_P2P_DISABLE=1: run once without"]);
}

#[test]
fn the_hosts_calls_are_counted_where_all_are_kernels() {
    let kernels = || vec![rank(0, (0..20).map(|_| op("map", 5)).collect())];
    let issued = |micros: i64| record(vec![variant("stream", micros * 1000, kernels())]);
    assert_eq!(verdicts(&issued(60)), ["issuing a small kernel: normal"]);
    assert_eq!(verdicts(&issued(300)), ["issuing a small kernel: slower"]);
    let mut slow = issued(300);
    slow.environment.facts.insert("governor".to_owned(), "powersave".to_owned());
    assert_eq!(first(&slow), ["the processor's governor is `powersave`, not `performance`"]);
    let mut waits = issued(300);
    waits.program.waits = 10;
    assert_eq!(verdicts(&waits), Vec::<String>::new());
    let graph = |nanos| record(vec![variant("graph", nanos, kernels())]);
    assert_eq!(verdicts(&graph(3000)), ["launching a graph of one stream: normal"]);
    assert_eq!(verdicts(&graph(30_000)), ["launching a graph of one stream: slower"]);
}

#[test]
fn metrics_are_those_of_the_shipped_file_with_those_parameters() {
    let mut run = one(vec![op("map", 5)]);
    run.workload.name = "large_gemm_only.aorta".to_owned();
    let params = [("streams", "4"), ("size", "8192"), ("dtype", "f32"), ("compute", "auto")];
    run.workload.params = params.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    run.variants[0].metrics.push(MetricRecord {
        name: "flop_rate".to_owned(),
        value: Some(25e12),
        unit: "FLOP/s".to_owned(),
        text: "25 TFLOP/s".to_owned(),
        ..MetricRecord::default()
    });
    assert_eq!(verdicts(&run), ["large_gemm_only in f32: slower"]);
    let mut other = run.clone();
    other.workload.params.insert("size".to_owned(), "64".to_owned());
    assert_eq!(verdicts(&other), Vec::<String>::new());
    let mut own = run.clone();
    own.workload.origin = "large_gemm_only.aorta".to_owned();
    assert_eq!(verdicts(&own), Vec::<String>::new());
}

#[test]
fn the_record_says_what_to_check_first() {
    let mut slow = one(vec![product(2000)]);
    assert!(first(&slow)[0].starts_with("nothing in the record explains it: the clock and the power under load"));
    fact(&mut slow, "power_limit_watts", "500");
    fact(&mut slow, "default_power_limit_watts", "700");
    fact(&mut slow, "other_processes", "2");
    let throttled = Some("power cap for 93 % of the time, clock 1410 of 1980 MHz".to_owned());
    slow.variants[0].blocks.push(BlockRecord { throttled, ..BlockRecord::default() });
    assert_eq!(
        first(&slow),
        [
            "the power limit is 500 W, and 700 W by default: `nvidia-smi -q -d POWER`",
            "the clock was throttled during the run: power cap for 93 % of the time, clock 1410 of 1980 MHz",
            "2 other processes use the device: `nvidia-smi` names them",
        ]
    );
    let mut link = one(vec![copy("h2d", GIB, 80_000)]);
    for (name, value) in [("pcie_width", "8"), ("max_pcie_width", "16"), ("numa_node", "1"), ("mig", "on")] {
        fact(&mut link, name, value);
    }
    link.environment.facts.insert("numa_nodes".to_owned(), "2".to_owned());
    assert_eq!(
        first(&link),
        [
            "the PCIe link has 8 of 16 lanes",
            "the host has 2 memory nodes, and the device is at node 1: `numactl --cpunodebind=1 --membind=1 aorta …`",
            "the device is split (MIG is on): a part of it has a part of its rates",
        ]
    );
    let mut fast = one(vec![product(1200)]);
    fast.settings.data = "zeros".to_owned();
    assert!(first(&fast)[0].starts_with("floats began as zeros"));
}
