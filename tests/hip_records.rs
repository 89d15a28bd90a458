//! Times of single operations by rocprofiler-sdk, end to end on the double of AMD's libraries: the records give each
//! operation a time and its launches, the times keep the order of the program, and what is wrong with the library is
//! said, with a run by events.

use std::collections::BTreeMap;
use std::path::Path;

use aorta::measure::record::{RunRecord, Variant};
use proptest::strategy::{Strategy, ValueTree};

use crate::common::folder::Folder;
use crate::common::{doubles, effort, programs};
use crate::hip::{Output, run_with};

/// Runs a file as `launch`, observed by the vendor's records where they can be used. Returns what the run printed, and its
/// record.
fn observed(libraries: &Path, environment: &[(&str, &str)], launch: &str, arguments: &[&str]) -> (String, RunRecord) {
    let folder = Folder::new();
    let path = folder.path("record.json");
    // With one observed iteration, the trace and the analysis are of the same.
    let observe = ["--observe", "vendor", "--config", "observed_iterations=1"];
    let words = [&observe[..], &["--launch", launch, "--top", "3", "--json", &path], arguments].concat();
    let Output { code, printed } = run_with(libraries, environment, &words);
    assert!(code.is_some_and(|code| code <= 1), "{arguments:?}:\n{printed}");
    (printed, serde_json::from_str(&folder.read("record.json")).expect("a record"))
}

/// The note about how single operations were timed.
fn method(variant: &Variant) -> &str {
    let note = variant.notes.iter().find_map(|note| note.strip_prefix("single operations are timed by "));
    note.unwrap_or_else(|| panic!("no note says how operations were timed: {:?}", variant.notes))
}

/// Checks what the times of a real iteration satisfy: operations of one stream do not overlap, nothing starts before what
/// it waits for has ended, and no stream is busy for longer than the iteration.
fn assert_possible(file: &str, variant: &Variant, overlapping: bool) {
    for rank in &variant.ranks {
        let times: BTreeMap<u32, (i64, i64)> =
            rank.trace.iter().map(|span| (span.id, (span.start_ns.0, span.end_ns.0))).collect();
        let mut lanes: BTreeMap<u32, Vec<(i64, i64)>> = BTreeMap::new();
        for operation in &rank.operations {
            let Some(&(start, end)) = times.get(&operation.id) else { continue };
            assert!(start <= end, "{file}: {} ends before it starts", operation.name);
            for before in operation.after.iter().filter_map(|before| times.get(before)) {
                assert!(before.1 <= start, "{file}: {} starts at {start}, before {}", operation.name, before.1);
            }
            let lane = lanes.entry(operation.lane).or_default();
            let free = lane.last().map_or(i64::MIN, |last| last.1);
            assert!(free <= start, "{file}: {} starts at {start}, its stream is busy until {free}", operation.name);
            lane.push((start, end));
        }
        let Some(analysis) = rank.analysis.as_ref().filter(|_| !overlapping) else { continue };
        let time = analysis.split.time_ns.0;
        for lane in lanes.values() {
            let busy: i64 = lane.iter().map(|(start, end)| end - start).sum();
            assert!(busy <= time, "{file}: a stream is busy for {busy} ns of {time} ns");
        }
    }
}

/// Every operation of these files has its records: kernels, copies, fills, products, collectives, and copies between ranks.
#[test]
fn operations_of_streams_are_timed_by_records() {
    let Some(libraries) = doubles::cpu_in_turn() else { return };
    let files = [
        ("workloads/models/attention.aorta", &[][..]),
        ("workloads/latency/hetero_kernels.aorta", &[]),
        ("workloads/copies/sdma_overlap.aorta", &[]),
        ("workloads/copies/sdma_overlap.aorta", &["--set", "direction=peer", "--ranks", "2"]),
        ("workloads/distributed/moe.aorta", &["--ranks", "2"]),
        ("workloads/training/context_parallel.aorta", &[]),
        ("workloads/training/pipeline_1f1b.aorta", &["--ranks", "2"]),
    ];
    for (file, arguments) in effort::chosen(files) {
        let words = [&[file, "--preset", "tiny"], arguments].concat();
        let (printed, record) = observed(libraries, &[("HIP_DOUBLE_DEVICES", "2")], "stream", &words);
        let variant = &record.variants[0];
        assert!(method(variant).starts_with("rocprofiler-sdk 1.0"), "{file}: {}\n{printed}", method(variant));
        assert_possible(file, variant, false);
        for rank in &variant.ranks {
            let timed = rank.operations.iter().filter(|operation| operation.time_ns.is_some());
            let lacking: Vec<&str> =
                timed.filter(|operation| operation.launches.is_empty()).map(|operation| &*operation.name).collect();
            // Collectives of one rank in place do nothing.
            let alone = variant.ranks.len() == 1 && lacking.iter().all(|name| name.contains("all_reduce"));
            assert!(lacking.is_empty() || alone, "{file}: {lacking:?}");
        }
    }
}

/// The launch of a kernel that the test declares, in the record, in the trace, and in the lines of `--top`.
#[test]
fn launches_are_shown() {
    let Some(libraries) = doubles::cpu() else { return };
    let folder = Folder::new();
    let text = r#"
        kernel twice(x: f32[n] -> y: f32[n]) {
          grid: 16,
          block: 64,
          shared: 512,
          source: """
        extern "C" __global__ void twice(const float* x, float* y, long long n) {
          long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
          if (i < n) y[i] = 2 * x[i];
        }
        """,
          reference: map(2 * x),
        }
        buffer x, y: f32[1000]
        stream s
        step { on s { twice(x -> y) copy(y -> x, via: dma) } }"#;
    let (file, trace) = (folder.write("one.aorta", text), folder.path("trace.json"));
    let (printed, record) = observed(libraries, &[], "stream", &[&file, "--trace", &trace]);
    let operations = &record.variants[0].ranks[0].operations;
    let kernel = operations[0].longest_launch().and_then(|launch| launch.kernel.clone()).expect("a kernel");
    assert_eq!((kernel.grid, kernel.block, kernel.shared_bytes), ([16, 1, 1], [64, 1, 1], 512));
    assert_eq!((kernel.registers, kernel.occupancy), (None, None), "the library does not say");
    assert!(operations[0].launches[0].queue.is_some() && operations[1].launches[0].kernel.is_none());
    assert!(printed.contains("16 × 64 threads, 512 B of shared memory a block"), "{printed}");
    let trace = folder.read("trace.json");
    assert!(trace.contains("\"grid\":[16,1,1]") && trace.contains("\"shared memory\":512"), "{trace}");
}

/// Random programs: iterations one by one, and several under way.
#[test]
fn times_of_random_programs_are_possible() {
    let Some(libraries) = doubles::cpu() else { return };
    let folder = Folder::new();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for options in ["", "", "", "(sync: end, depth: 2)"] {
        let drawn = programs::statements(4, 16).new_tree(&mut runner).expect("a program can be drawn").current();
        let text = programs::text(&drawn, 4, options);
        let (_, record) = observed(libraries, &[], "stream", &[&folder.write("random.aorta", &text)]);
        let variant = &record.variants[0];
        assert!(method(variant).starts_with("rocprofiler-sdk 1.0"), "{}\n{text}", method(variant));
        assert_possible(&text, variant, !options.is_empty());
    }
}

/// Each failure is a note with its reason, and the run times operations by events.
#[test]
fn failures_of_the_library_fall_back_to_events() {
    let Some(libraries) = doubles::cpu() else { return };
    let file = "workloads/copies/sdma_overlap.aorta";
    let cases = [
        (("HIP_DOUBLE_ROCPROFILER", "old"), "rocprofiler-sdk 0.6 is older than that of ROCm 7"),
        (("HIP_DOUBLE_ROCPROFILER", "locked"), "another profiler configured rocprofiler-sdk in this process"),
        (("HIP_DOUBLE_ROCPROFILER", "denied"), "the system does not permit rocprofiler-sdk to trace"),
        (("HIP_DOUBLE_ROCPROFILER", "full"), "records were dropped, since its buffers were full"),
        (("HIP_DOUBLE_ROCPROFILER", "lost"), "observed operations lack a record"),
        (("HIP_DOUBLE_FAULT", "call:rocprofiler_create_buffer"), "`rocprofiler_create_buffer` returned 2"),
        (("HIP_DOUBLE_FAULT", "call:rocprofiler_start_context"), "`rocprofiler_start_context` returned 2"),
        (("HIP_DOUBLE_FAULT", "call:rocprofiler_flush_buffer"), "`rocprofiler_flush_buffer` returned 2"),
    ];
    for (fault, why) in cases {
        let (printed, record) = observed(libraries, &[fault], "stream", &[file, "--preset", "tiny"]);
        let variant = &record.variants[0];
        assert!(
            method(variant).starts_with("events, since ") && method(variant).contains(why),
            "{fault:?}:\n{printed}"
        );
        assert!(variant.ranks[0].operations.iter().all(|operation| operation.time_ns.is_some()), "{fault:?}");
    }
}

/// The library names no nodes of graphs.
#[test]
fn graphs_are_timed_by_events() {
    let Some(libraries) = doubles::cpu() else { return };
    let words = ["workloads/copies/sdma_overlap.aorta", "--preset", "tiny"];
    let (_, record) = observed(libraries, &[], "graph", &words);
    let why = "events, since rocprofiler-sdk 1.0 does not say which node of a graph a record belongs to";
    assert!(method(&record.variants[0]).starts_with(why), "{}", method(&record.variants[0]));
}
