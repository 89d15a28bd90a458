//! Comparisons, sweeps and suites, by the program.

use aorta::exec::Backend;

use crate::{folder, gpu};

/// Runs `aorta ab` on the first GPU. Returns its output and its exit code.
fn ab(folder: &tempfile::TempDir, text: &str, arguments: &[&str]) -> (String, Option<i32>) {
    let file = folder.path().join("ab.aorta");
    std::fs::write(&file, text).expect("a file can be written");
    let output = std::process::Command::new(crate::common::program())
        .args(["ab", "ab.aorta", "--backend", "cuda", "--device", "0"])
        .args(arguments)
        .current_dir(folder.path())
        .output()
        .expect("the binary starts");
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    println!("{}", said.concat());
    (said.concat(), output.status.code())
}

/// A run compared with itself is the same, and one whose chains overlap is better. Both sides are on the device at
/// once.
#[test]
fn variants_take_turns_on_the_device() {
    let folder = folder();
    let Some((gpu, _alone)) = gpu(&folder) else { return };
    drop(gpu);
    let chains = "param streams = 2\nstream s[streams]\nstep { for i in 0..4 { on s[i % streams] { spin(50us) } } }";
    let (itself, code) = ab(&folder, chains, &["--launch", "graph", "--fail-on", "worse,cannot-tell"]);
    assert!(code == Some(0) && itself.contains("Same: "), "{itself}");
    assert!(itself.contains("Interleaved and separate measurements agree."), "{itself}");
    let (overlapped, _) = ab(&folder, chains, &["--a", "--streams 1"]);
    assert!(overlapped.contains("b is better: an iteration takes 5"), "{overlapped}");
    let graphs = ab(&folder, chains, &["--a", "--launch stream", "--b", "--launch graph", "--rounds", "6"]).0;
    assert!(graphs.contains("\na on ") && graphs.contains("as a graph"), "{graphs}");
    // One side has another environment variable for the driver.
    let (queues, code) = ab(&folder, chains, &["--b", "--env CUDA_DEVICE_MAX_CONNECTIONS=1", "--rounds", "6"]);
    assert_eq!(code, Some(0), "{queues}");
}

/// Two sides that do not fit on the device at once alternate as separate processes.
#[test]
fn sides_that_do_not_fit_at_once_alternate_as_separate_processes() {
    let folder = folder();
    let Some((gpu, _alone)) = gpu(&folder) else { return };
    let memory = gpu.device().memory_bytes.expect("a GPU says how much it has");
    drop(gpu);
    // Each needs six tenths of the memory.
    let rows = memory * 6 / 10 / (4 << 20);
    let text =
        format!("buffer x: f32[{rows}, 1048576]\nbuffer y: f32[4096]\nstep {{ map(y + 1 -> y)  map(x[0] -> x[1]) }}");
    let (said, code) = ab(&folder, &text, &["--rounds", "6", "--config", "max_memory=1TiB"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("since b did not start while a was running: "), "{said}");
}

/// Runs `aorta sweep` on the GPU, prints its output, and returns the lines of its file after the header.
fn sweep(folder: &tempfile::TempDir, arguments: &[&str]) -> Vec<serde_json::Value> {
    let file = folder.path().join("chains.aorta");
    std::fs::write(&file, CHAINS).expect("a file can be written");
    let cases = folder.path().join("cases.jsonl");
    let output = std::process::Command::new(crate::common::program())
        .args(["sweep", &file.display().to_string(), "--backend", "cuda", "--json", &cases.display().to_string()])
        .args(arguments)
        .stdin(std::process::Stdio::null())
        .output()
        .expect("the binary starts");
    let (printed, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{printed}{said}");
    assert_eq!(output.status.code(), Some(0), "{said}");
    let text = std::fs::read_to_string(cases).expect("the sweep has a file");
    let lines = text.lines().skip(1).map(|line| serde_json::from_str(line).expect("each line is JSON"));
    let cases: Vec<serde_json::Value> = lines.collect();
    for case in &cases {
        assert!(["done", "unstable"].contains(&case["status"].as_str().expect("a word")), "{}", case["reason"]);
        let record = &case["record"];
        assert_eq!((&record["simulated"], &record["complete"]), (&false.into(), &true.into()));
        assert!(record["variants"][0]["time"]["p50_ns"].as_u64().is_some_and(|median| median > 1000));
    }
    cases
}

/// Eight chains of small kernels that use little of the device, on any number of streams.
const CHAINS: &str = "\
param streams = 8 in 1..=8
stream s[streams]
step { for i in 0..8 { on s[i % streams] { for turn in 0..4 { spin(20us, units: 1) } } } }
";

#[test]
fn a_sweep_over_streams_finds_that_chains_go_side_by_side() {
    let folder = folder();
    let Some((gpu, _alone)) = gpu(&folder) else { return };
    drop(gpu);
    let cases = sweep(&folder, &["--streams", "1,2,4,8", "--env", "CUDA_DEVICE_MAX_CONNECTIONS=8"]);
    let median = |streams: &str| {
        let case = cases.iter().find(|case| case["values"]["streams"] == streams).expect("each value is a case");
        case["record"]["variants"][0]["time"]["p50_ns"].as_f64().expect("a time")
    };
    assert_eq!(cases.len(), 4);
    // One stream takes 640 µs, eight 80 µs.
    assert!(median("1") > 1.5 * median("2"), "{} {}", median("1"), median("2"));
    assert!(median("1") > 4.0 * median("8"), "{} {}", median("1"), median("8"));
}

#[test]
fn a_sweep_over_a_variable_gives_each_process_its_own() {
    let folder = folder();
    let Some((gpu, _alone)) = gpu(&folder) else { return };
    drop(gpu);
    let cases = sweep(&folder, &["--env", "CUDA_DEVICE_MAX_CONNECTIONS=1,8,32", "--launch", "stream"]);
    assert_eq!(cases.len(), 3);
    for case in &cases {
        let value = case["values"]["CUDA_DEVICE_MAX_CONNECTIONS"].as_str().expect("a value");
        assert_eq!(case["record"]["environment"]["variables"]["CUDA_DEVICE_MAX_CONNECTIONS"], value);
        let lanes = case["record"]["program"]["lanes"].as_array().expect("a list");
        let queues: std::collections::BTreeSet<u64> = lanes.iter().filter_map(|lane| lane["queue"].as_u64()).collect();
        let expected: usize = if value == "1" { 1 } else { 8 };
        assert_eq!(queues.len(), expected, "{value} connections");
    }
}

/// Runs a suite on the first GPU, prints its page, and returns its cases.
fn suite(arguments: &[&str]) -> Vec<aorta::measure::cases::Case> {
    let folder = folder();
    let file = folder.path().join("cases.jsonl");
    let mut command = std::process::Command::new(crate::common::program());
    command.arg("suite").args(arguments).args(["--backend", "cuda", "--device", "0", "--json"]).arg(&file);
    let output = command.output().expect("the program starts");
    println!("{}{}", String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    assert_eq!(output.status.code(), Some(0), "aorta suite {arguments:?}");
    let bytes = std::fs::read(&file).expect("a file of cases");
    aorta::measure::cases::Cases::parse(&bytes).expect("whole lines").expect("a header").cases
}

/// Whether figures are normal is only printed, since a machine may be slow. An H200 must have known ranges.
#[test]
fn suites_run_and_report_normal_figures() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpu(&kernels) else { return };
    let h200 = gpu.device().name == "NVIDIA H200";
    // The cases are separate processes and need the memory.
    drop(gpu);
    let all = suite(&["P0", "--effort", "sanity"]);
    assert!(all.len() >= 18 && all.iter().all(|case| case.status.is_measured()), "all of them ran");
    suite(&["smoke"]);
    let quick = [
        suite(&["P0", "--effort", "quick", "--only", "8 streams"]),
        suite(&["copies", "--effort", "quick", "--only", "size_sweep"]),
    ];
    for case in quick.iter().flatten() {
        let record = case.record.as_ref().expect("it was measured");
        for figure in &record.expected {
            let (value, normal) = (&figure.text, &figure.normal);
            println!(
                "{}: {}, {}: {value}, normal is {normal}: {}",
                case.name, figure.name, figure.launch, figure.verdict
            );
            figure.check.iter().for_each(|check| println!("  check first: {check}"));
        }
        assert!(!h200 || !record.expected.is_empty(), "{}: nothing is known of it", case.name);
    }
}
