//! `preset aorta` against the original toolkit, AORTA 0.3.0: the products, convolutions and copies of an iteration with
//! their sizes and streams, the number of operations and that of waits, as the toolkit's source has them at its
//! recommended streams. Its calls were counted by a dispatch mode of PyTorch 2.11 on the CPU, without views.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;

use serde_json::Value;

struct Workload {
    path: &'static str,
    arguments: &'static [&'static str],
    /// Calls of the toolkit in an iteration; `None` where it ends with an error before it is through.
    calls: Option<usize>,
    /// Operations of the file.
    operations: usize,
    /// Waits between streams, where they are the toolkit's.
    waits: Option<u64>,
    /// For each stream, products, convolutions and copies in the order of their first issue: how many, and their size.
    issued: &'static str,
}

const WORKLOADS: &[Workload] = &[
    Workload {
        path: "latency/hetero_kernels",
        arguments: &["--streams", "8"],
        calls: Some(84),
        operations: 84,
        waits: Some(0),
        issued: "large[0]: 1 gemm 4096×4096×4096
large[1]: 1 gemm 4096×4096×4096
large[2]: 1 gemm 4096×4096×4096
large[3]: 1 gemm 4096×4096×4096
",
    },
    Workload {
        path: "latency/large_gemm_only",
        arguments: &["--streams", "2"],
        calls: Some(2),
        operations: 2,
        waits: Some(0),
        issued: "s[0]: 1 gemm 8192×8192×8192
s[1]: 1 gemm 8192×8192×8192
",
    },
    Workload {
        path: "latency/tiny_kernel_stress",
        arguments: &["--streams", "1"],
        calls: Some(400),
        operations: 400,
        waits: Some(0),
        issued: "",
    },
    Workload {
        path: "latency/graph_subgraphs",
        arguments: &["--streams", "4"],
        calls: Some(42),
        operations: 42,
        // Each subgraph for the input, and the join for each stream of subgraphs.
        waits: Some(10),
        issued: "s[1]: 4 gemm 32×2048×1024, 4 gemm 32×2048×2048, 4 gemm 32×512×2048
s[2]: 4 gemm 32×2048×1024, 4 gemm 32×2048×2048, 4 gemm 32×512×2048
s[3]: 1 gemm 32×512×4096
",
    },
    Workload {
        // Attention is 64 × for 8 sequences of 8 heads; its backward has one product of the first form and three of the second.
        // Between the products, PyTorch copies more, and adds the gradients of queries, keys and values by five calls; the
        // gradient of a norm is one call there and two operations here.
        path: "distributed/fsdp_tp",
        arguments: &[],
        calls: Some(176),
        operations: 144,
        waits: Some(4),
        issued: "compute: 4 gemm 4096×1536×512, 8 gemm 64 × 512×512×64, 16 gemm 64 × 512×64×512, 8 gemm 4096×512×512, \
                 8 gemm 4096×2048×512, 8 gemm 4096×512×2048, 4 gemm 4096×512×1536
",
    },
    Workload {
        path: "distributed/moe",
        arguments: &["--streams", "16"],
        calls: Some(110),
        operations: 110,
        waits: Some(16),
        issued: "router: 1 gemm 2048×8×1024
expert[0]: 1 gemm 2048×4096×1024, 1 gemm 2048×1024×4096, 1 copy 2048×1024
expert[1]: 1 gemm 2048×4096×1024, 1 gemm 2048×1024×4096, 1 copy 2048×1024
expert[2]: 1 gemm 2048×4096×1024, 1 gemm 2048×1024×4096, 1 copy 2048×1024
expert[3]: 1 gemm 2048×4096×1024, 1 gemm 2048×1024×4096, 1 copy 2048×1024
expert[4]: 1 gemm 2048×4096×1024, 1 gemm 2048×1024×4096, 1 copy 2048×1024
expert[5]: 1 gemm 2048×4096×1024, 1 gemm 2048×1024×4096, 1 copy 2048×1024
expert[6]: 1 gemm 2048×4096×1024, 1 gemm 2048×1024×4096, 1 copy 2048×1024
expert[7]: 1 gemm 2048×4096×1024, 1 gemm 2048×1024×4096, 1 copy 2048×1024
",
    },
    Workload {
        // The collective that the toolkit simulates, and ten products on each other stream.
        path: "distributed/comms_compute_overlap",
        arguments: &["--streams", "4"],
        calls: Some(32),
        operations: 32,
        waits: Some(0),
        issued: "comm: 1 copy 33554432
worker[0]: 10 gemm 2048×2048×2048
worker[1]: 10 gemm 2048×2048×2048
worker[2]: 10 gemm 2048×2048×2048
",
    },
    Workload {
        path: "distributed/activation_ckpt",
        arguments: &[],
        calls: None,
        operations: 129,
        waits: None,
        issued: "forward: 8 gemm 2048×4096×1024, 8 gemm 2048×1024×4096, 4 copy 2048×1024
recompute: 8 gemm 2048×4096×1024, 8 gemm 2048×1024×4096
gradient: 8 gemm 2048×4096×1024, 8 gemm 2048×1024×4096
",
    },
    Workload {
        // The toolkit waits twice, and races for the buffers. For each micro-batch, the gradient of the loss is written out
        // to its rows, which PyTorch does without a call.
        path: "distributed/grad_accum",
        arguments: &["--streams", "6", "--set", "micro=3"],
        calls: Some(93),
        operations: 96,
        waits: None,
        issued: "compute[0]: 1 gemm 32×2048×1024, 2 gemm 32×2048×2048, 1 gemm 32×1000×2048, 1 gemm 32×2048×1000, \
                 1 gemm 2048×1000×32, 1 gemm 2048×2048×32, 1 gemm 1024×2048×32
compute[1]: 1 gemm 32×2048×1024, 2 gemm 32×2048×2048, 1 gemm 32×1000×2048, 1 gemm 32×2048×1000, \
                 1 gemm 2048×1000×32, 1 gemm 2048×2048×32, 1 gemm 1024×2048×32
compute[2]: 1 gemm 32×2048×1024, 2 gemm 32×2048×2048, 1 gemm 32×1000×2048, 1 gemm 32×2048×1000, \
                 1 gemm 2048×1000×32, 1 gemm 2048×2048×32, 1 gemm 1024×2048×32
",
    },
    Workload {
        path: "inference/continuous_batch",
        arguments: &["--cycle", "1"],
        calls: Some(190),
        operations: 190,
        waits: Some(2),
        issued:
            "prefill: 8 gemm 1024×3072×1024, 8 gemm 16 × 512×512×128, 8 gemm 16 × 512×128×512, 8 gemm 1024×1024×1024
decode: 8 gemm 16×3072×1024, 8 gemm 128 × 1×1×128, 8 gemm 128 × 1×128×1, 8 gemm 16×1024×1024
cache: 2 copy 18×8×128
",
    },
    Workload {
        // Attention is one call in PyTorch 2.11, and four in 1.13, whose 505 calls these are.
        path: "inference/speculative_decode",
        arguments: &[],
        calls: Some(337),
        operations: 505,
        waits: Some(3),
        issued: "draft: 4 gemm 128×768×256, 4 gemm 4 × 128×128×64, 4 gemm 4 × 128×64×128, 4 gemm 128×256×256, \
                 4 gemm 128×1024×256, 4 gemm 128×256×1024, 1 gemm 128×32000×256, 4 copy 1×1, 4 gemm 129×768×256, \
                 4 gemm 4 × 129×129×64, 4 gemm 4 × 129×64×129, 4 gemm 129×256×256, 4 gemm 129×1024×256, \
                 4 gemm 129×256×1024, 1 gemm 129×32000×256, 4 gemm 130×768×256, 4 gemm 4 × 130×130×64, \
                 4 gemm 4 × 130×64×130, 4 gemm 130×256×256, 4 gemm 130×1024×256, 4 gemm 130×256×1024, \
                 1 gemm 130×32000×256, 4 gemm 131×768×256, 4 gemm 4 × 131×131×64, 4 gemm 4 × 131×64×131, \
                 4 gemm 131×256×256, 4 gemm 131×1024×256, 4 gemm 131×256×1024, 1 gemm 131×32000×256, 1 copy 4×1
verify: 1 copy 4×1, 12 gemm 132×3072×1024, 12 gemm 8 × 132×132×128, 12 gemm 8 × 132×128×132, \
                 12 gemm 132×1024×1024, 12 gemm 132×4096×1024, 12 gemm 132×1024×4096, 1 gemm 132×32000×1024
",
    },
    Workload {
        // A norm with its addition is one operation here and two calls there, a product with a bias two calls in attention.
        path: "inference/rag_pipeline",
        arguments: &["--streams", "4"],
        calls: Some(72),
        operations: 62,
        waits: Some(3),
        issued: "s[0]: 1 gemm 4×768×768, 1 gemm 4×256×768
s[1]: 1 gemm 4×100×256
s[2]: 1 copy 4×10×768, 1 gemm 40×768×1536, 1 gemm 40×1×768
s[3]: 1 copy 4×64×768, 4 gemm 268×2304×768, 8 copy 4×67×768, 4 gemm 268×768×768, 4 gemm 268×3072×768, \
                 4 gemm 268×768×3072, 1 gemm 268×32000×768
",
    },
    Workload {
        path: "pipeline/async_dataload",
        arguments: &[],
        calls: Some(40),
        operations: 40,
        waits: None,
        issued: "transfer: 2 copy 32×3×224×224
prepare: 4 copy 1×3×1×1, 2 copy 32×3×224×224
compute: 2 conv 32×64×224×224, 2 conv 32×128×112×112, 2 conv 32×256×56×56, 2 gemm 32×1000×256
",
    },
    Workload {
        path: "pipeline/zero_offload",
        arguments: &[],
        calls: None,
        operations: 77,
        waits: None,
        issued: "fetch: 4 copy 16777216
compute: 16 gemm 16×4096×4096, 8 gemm 4096×4096×16
offload: 8 copy 4096×4096, 8 copy 4096
",
    },
    Workload {
        path: "pipeline/compiled_regions",
        arguments: &[],
        calls: None,
        operations: 17,
        waits: Some(4),
        issued: "a: 1 gemm 4096×4096×1024, 1 gemm 4096×1024×4096
b: 1 gemm 4096×4096×1024, 1 gemm 4096×1024×4096
c: 1 gemm 4096×4096×1024, 1 gemm 4096×1024×4096
merge: 1 gemm 4096×1024×2048
",
    },
];

/// The record of a simulated run by `preset aorta`.
fn record(workload: &Workload) -> Value {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("record.json");
    let output = Command::new(env!("CARGO_BIN_EXE_aorta"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("XDG_CONFIG_HOME", folder.path())
        .args(["exec", &format!("workloads/{}.aorta", workload.path), "--preset", "aorta", "--backend", "sim"])
        .args(["--effort", "sanity", "--config", "observed_iterations=0", "--json"])
        .arg(&path)
        .args(workload.arguments)
        .output()
        .expect("the program starts");
    assert!(output.status.success(), "{}: {}", workload.path, String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&std::fs::read(path).expect("it has written a record")).expect("a record is JSON")
}

/// Products, convolutions and copies by stream, as [`Workload::issued`] has them.
fn issued(operations: &[&Value]) -> String {
    let mut streams: Vec<&str> = Vec::new();
    let mut counts: BTreeMap<(&str, String), usize> = BTreeMap::new();
    let mut order: Vec<(&str, String)> = Vec::new();
    for operation in operations {
        let name = operation["operation"].as_str().unwrap_or_default();
        if !["gemm", "conv", "copy"].contains(&name) {
            continue;
        }
        let stream = operation["stream"].as_str().expect("an operation has a stream");
        let size = operation["size"].as_str().expect("a product has a size");
        let (size, dtype) = size.rsplit_once(' ').expect("a size ends with its type");
        assert!(["f32", "f16", "i32"].contains(&dtype), "the toolkit computes in f32, with caches in f16: {dtype}");
        let key = (stream, format!("{name} {size}"));
        if !streams.contains(&stream) {
            streams.push(stream);
        }
        if !order.contains(&key) {
            order.push(key.clone());
        }
        *counts.entry(key).or_default() += 1;
    }
    let mut text = String::new();
    for stream in streams {
        let of_it = order.iter().filter(|(other, _)| *other == stream);
        let list: Vec<String> = of_it.map(|key| format!("{} {}", counts[key], key.1)).collect();
        writeln!(text, "{stream}: {}", list.join(", ")).expect("a string takes all text");
    }
    text
}

#[test]
fn the_preset_issues_what_the_toolkit_issues() {
    for workload in crate::common::effort::due(WORKLOADS) {
        let record = record(workload);
        let all = record["variants"][0]["ranks"][0]["operations"].as_array().expect("a rank has operations");
        let operations: Vec<&Value> = all.iter().filter(|operation| operation["category"] != "marker").collect();
        assert_eq!(issued(&operations), workload.issued, "{}", workload.path);
        assert_eq!(operations.len(), workload.operations, "{}", workload.path);
        if let Some(calls) = workload.calls {
            println!("{}: {} operations for {calls} calls", workload.path, operations.len());
        }
        if let Some(waits) = workload.waits {
            assert_eq!(record["program"]["waits"], waits, "{}", workload.path);
        }
    }
}
