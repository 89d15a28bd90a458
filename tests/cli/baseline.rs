//! `aorta baseline`, and `aorta compare --fast-p` on what it writes.

use serde_json::{Value, json};

use super::sandbox::Sandbox;

const EAGER: &str = "results/timing/H200/baseline_time_aorta_eager";
const COMPILED: &str = "results/timing/H200/baseline_time_aorta_compiled";

/// The names of a level's problems in a file.
fn names(file: &Value, level: &str) -> Vec<String> {
    file[level].as_object().expect("problems by name").keys().cloned().collect()
}

#[test]
fn a_test_writes_a_file_for_each_mode_and_fast_p_reads_them() {
    let sandbox = Sandbox::new();
    sandbox.good(&["baseline", "--test", "--backend", "sim", "--hardware", "H200", "--json", "cases.jsonl"]);
    let eager = format!("{EAGER}_test.json");
    let compiled = format!("{COMPILED}_test.json");
    for path in [&eager, &compiled] {
        let file = sandbox.json(path);
        assert_eq!(file.as_object().expect("levels").keys().collect::<Vec<_>>(), ["level1", "level2"]);
        assert_eq!(names(&file, "level1").len() + names(&file, "level2").len(), 10, "{path}");
        let first = &file["level1"]["1_Square_matrix_multiplication_.py"];
        assert!(first["mean"].as_f64().is_some_and(|mean| mean > 0.1 && mean < 100.0), "in ms: {first}");
        assert!(["std", "min", "max"].iter().all(|field| first[field].is_number()), "{first}");
        assert_eq!(first["num_trials"], 10);
        // No vendor: nothing was measured on a device.
        assert_eq!((&first["hardware"], first.get("gpu_type")), (&json!("NVIDIA H200 (simulated)"), None));
    }
    // The journal goes on with what there is.
    let again = sandbox.run(&[
        "baseline",
        "--test",
        "--backend",
        "sim",
        "--hardware",
        "H200",
        "--json",
        "cases.jsonl",
        "--resume",
    ]);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    let page = sandbox.good(&["compare", "--fast-p", &eager, &compiled]);
    assert!(page.contains("level 2: 5 problems, 5 with a result") && page.contains("fast_0 100.0 %"), "{page}");
    let scores = sandbox.good(&["compare", "--fast-p", &eager, &compiled, "--format", "json"]);
    let scores: Value = serde_json::from_str(&scores).expect("JSON");
    assert_eq!(scores["levels"]["level1"]["fast_p"]["0.0"], json!(1.0));
}

#[test]
fn one_problem_runs_alone() {
    let sandbox = Sandbox::new();
    let arguments = ["baseline", "--problem", "14", "--problem-level", "2", "--mode", "eager", "--backend", "sim"];
    let told = sandbox.good(&[&arguments[..], &["--dry-run"]].concat());
    assert!(
        told.starts_with("level2/14_Gemm_Divide_Sum_Scaling.py, eager: aorta exec kernelbench/product_chains"),
        "{told}"
    );
    assert_eq!((told.lines().count(), sandbox.listing().len()), (1, 0));
    let all = sandbox.good(&["baseline", "--max-problems", "7", "--backend", "sim", "--dry-run"]);
    assert_eq!(all.lines().count(), 28);
}

#[test]
fn mistakes_are_told() {
    let sandbox = Sandbox::new();
    sandbox.write("own.json", r#"{"level1": {"1_x.py": {"mean": 1.5}}}"#);
    sandbox.write("eval.json", r#"{"1": [{"sample_id": 0, "correctness": true, "runtime": 0.5}]}"#);
    sandbox.write("bad.json", r#"{"level1": {"1_x.py": {"mean": "fast"}}}"#);
    for (arguments, part) in [
        (&["baseline", "--problem", "101"][..], "level 1 has problems 1 to 100"),
        (&["baseline", "--hardware", "../x", "--test"], "not the name of a folder"),
        (&["baseline", "--level", "3"], "3 is not in 1..=2"),
        (&["compare", "--fast-p", "own.json", "bad.json"], "level1, 1_x.py, mean: it is a text"),
        (&["compare", "--fast-p", "own.json", "eval.json"], "--level 1"),
        (&["compare", "--fast-p", "own.json", "eval.json", "--level", "2"], "compare files of the same levels"),
        (&["compare", "--fast-p", "own.json", "absent.json"], "absent.json"),
        (&["compare", "--level", "1", "own.json", "own.json"], "--fast-p"),
    ] {
        let output = sandbox.run(arguments);
        assert_eq!(output.code, Some(2), "{arguments:?}: {}", output.stderr);
        let told: Vec<&str> = output.stderr.split_whitespace().collect();
        assert!(told.join(" ").contains(part), "{arguments:?}: {}", output.stderr);
    }
    let page = sandbox.good(&["compare", "--fast-p", "own.json", "eval.json", "--level", "1"]);
    assert!(page.contains("fast_2 100.0 %"), "{page}");
}
