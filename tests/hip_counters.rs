//! `--counters` on the double of AMD's libraries: generated kernels report the compute units that run their blocks, other
//! operations do not, and the run says why there are no hardware counters.

use aorta::base::random::hash;
use aorta::measure::record::RunRecord;

use crate::common::doubles;
use crate::common::folder::Folder;
use crate::hip::{Output, run_with};

/// Number of compute units of the double, whose blocks take turns on them.
const UNITS: u64 = 4;

/// Runs a text with `--counters` for its operations called `name`. Returns what the run printed, and its record.
fn counted(text: &str, name: &str, arguments: &[&str]) -> Option<(String, RunRecord)> {
    let libraries = doubles::cpu()?;
    let folder = Folder::new();
    let (file, json) = (folder.write("work.aorta", text), folder.path("record.json"));
    let words = [&[&file, "--observe", "vendor", "--json", &json, "--counters", name], arguments].concat();
    let Output { code, printed } = run_with(libraries, &[], &words);
    assert_eq!(code, Some(0), "{text}\n{printed}");
    Some((printed, serde_json::from_str(&folder.read("record.json")).expect("a record")))
}

/// Number of blocks that each launch of an operation had, by the vendor's records.
fn launched(record: &RunRecord, id: u32) -> u64 {
    let operation = record.variants[0].ranks[0].operations.iter().find(|operation| operation.id == id);
    let kernels = operation.expect("it ran").launches.iter().filter_map(|launch| launch.kernel.as_ref());
    kernels.map(|kernel| kernel.grid.iter().map(|&size| u64::from(size)).product::<u64>()).sum()
}

/// Operations of one and of several kernels, in drawn sizes, alone and beside others: all blocks of one iteration are reported.
#[test]
fn every_block_reports_its_compute_unit() {
    if !crate::common::effort::is_due() {
        return;
    }
    for case in 0..3 {
        let (rows, columns) = (1 + hash(24, 2 * case) % 200, 1 + hash(24, 2 * case + 1) % 3000);
        let text = format!(
            "stream a\nstream b\nbuffer x, y, z, v: f32[{rows}, {columns}] = random(1)\nbuffer s: f32[1]\n\
             step {{\n  on a {{ work[0]: map(x * 2 -> y) work[1]: softmax(y -> v) work[2]: sum(v -> s[0]) }}\n  \
             on b {{ work[3]: map(x + 1 -> z) }}\n}}\n"
        );
        let Some((printed, record)) = counted(&text, "work", &[]) else { return };
        assert_eq!(record.counters.len(), 4, "{printed}");
        for operation in &record.counters {
            let blocks: u64 = operation.units.iter().map(|unit| u64::from(unit.blocks)).sum();
            assert_eq!(blocks, launched(&record, operation.id), "{} of {text}", operation.name);
            assert!(operation.counts.is_empty() && operation.passes == 0);
            assert!(operation.units.iter().all(|unit| u64::from(unit.unit) < UNITS));
        }
        // The double's blocks take turns: a kernel of several blocks uses as many units as it has blocks, or all.
        let first = &record.counters[0];
        assert_eq!(first.units.len() as u64, launched(&record, first.id).min(UNITS));
        assert!(printed.contains("Compute units that ran the blocks") && printed.contains(" of 4"), "{printed}");
        assert!(printed.contains("no hardware counters of `work`: aorta reads counters of NVIDIA's GPUs"), "{printed}");
    }
}

/// In a program whose iterations differ, the first one is reported.
#[test]
fn the_first_iteration_of_a_cycle_is_reported() {
    let text = "stream a\nbuffer x: f32[4096] = random(1)\n\
                step {\n  on a { if iteration % 2 == 0 { work: map(x * 2 -> x) } else { map(x + 1 -> x) } }\n}\n";
    let Some((printed, record)) = counted(text, "work", &[]) else { return };
    let blocks: u64 = record.counters[0].units.iter().map(|unit| u64::from(unit.blocks)).sum();
    assert_eq!(blocks, launched(&record, record.counters[0].id), "{printed}");
}

/// Products of the library, copies and the kernels of a file.
#[test]
fn other_operations_do_not_report() {
    let text = r#"
        kernel twice(x: f32[n] -> y: f32[n]) {
          grid: 16,
          block: 64,
          source: """
        extern "C" __global__ void twice(const float* x, float* y, long long n) {
          for (long long i = blockIdx.x * 64 + threadIdx.x; i < n; i += 1024) y[i] = 2 * x[i];
        }
        """,
          reference: map(2 * x),
        }
        buffer a, b, c: f32[64, 64] = random(1)
        buffer x, y: f32[1000] = random(1)
        stream s
        step { on s { o[0]: gemm(a, b -> c) o[1]: copy(c -> a, via: dma) o[2]: twice(x -> y) o[3]: map(x + 1 -> x) } }"#;
    let Some((printed, record)) = counted(text, "o", &[]) else { return };
    let reports: Vec<bool> = record.counters.iter().map(|operation| !operation.units.is_empty()).collect();
    assert_eq!(reports, [false, false, false, true], "{printed}");
    assert!(printed.contains("libraries, copies and the kernels of a file do not report"), "{printed}");
}

/// A collective of one rank whose result is in place launches nothing, which is known before any run.
#[test]
fn what_launches_nothing_has_no_counters() {
    let text = "stream a\nbuffer x, y: f32[4096] = random(1)\nstep {\n  on a {\n    inside: all_reduce(x -> x)\n    \
                apart: all_reduce(x -> y)\n    work[0]: map(x * 2 -> y)\n    work[1]: all_reduce(y -> y)\n  }\n}\n";
    let ranks = ["--ranks", "1"];
    let nothing = "it launches nothing on the device, as a collective of one rank whose result is in place";
    let Some((printed, record)) = counted(text, "inside", &ranks) else { return };
    assert!(printed.contains(&format!("no hardware counters of `inside`: {nothing}")), "{printed}");
    assert!(record.counters.is_empty());
    for (name, operations) in [("apart", 1), ("work", 2)] {
        let Some((printed, record)) = counted(text, name, &ranks) else { return };
        assert!(!printed.contains(nothing) && record.counters.len() == operations, "{printed}");
    }
    let (_, record) = counted(text, "work", &ranks).expect("the double ran before");
    let units: Vec<bool> = record.counters.iter().map(|operation| operation.units.is_empty()).collect();
    assert_eq!(units, [false, true], "the map reports its compute units");
}
