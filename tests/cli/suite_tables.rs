//! Tables that a suite declares: on the page, as CSV, from a file of cases, and for cases that cannot fit.

use aorta::config::{ConfigError, SuiteFile};
use miette::Diagnostic;

use super::sandbox::{Sandbox, project};

/// Two sizes of a vector, two ways to launch, and the speed-up between them.
const SUITE: &str = r#"(
    description: "what a graph saves",
    effort: quick,
    cases: [
        (
            workload: "chain.aorta",
            ranks: 1,
            axes: [
                (name: "size", param: "n", values: ["1024", "1048576"]),
                (name: "mode", cases: {
                    "eager": (launch: stream, settings: {"gate": "off"}),
                    "graph": (launch: graph),
                }),
            ],
        ),
    ],
    table: (
        rows: ["size"],
        columns: [
            ("size", axis("size")),
            ("eager", figure(of: "time", unit: "us", at: {"mode": "eager"})),
            ("graph", figure(of: "time", unit: "us", at: {"mode": "graph"})),
            ("speed-up", ratio("eager", "graph")),
            ("status", status({"out of memory": "OOM"})),
        ],
    ),
    csv: (
        rows: ["size", "mode"],
        columns: [
            ("n", axis("size")),
            ("mode", axis("mode")),
            ("mean_us", figure(of: "time.mean", unit: "us")),
            ("p95_us", figure(of: "time.p95", unit: "us")),
            ("moved_mb", figure(of: "moved", unit: "MiB")),
            ("thousands", figure(of: "elements", factor: 1e-3)),
            ("absent", figure(of: "nothing")),
            ("status", status({"done": "success", "out of memory": "OOM"})),
        ],
    ),
)"#;

const CHAIN: &str = "param n = 1024\nbuffer x: f32[n] = random(1)\nstep { for i in 0..32 { map(x + 1 -> x) } }\n\
    metric moved = bytes\nmetric elements = n\n";

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("own.ron", SUITE);
    sandbox.write("chain.aorta", CHAIN);
    sandbox
}

/// The cells of a CSV text without quotes, row by row.
fn cells(csv: &str) -> Vec<Vec<&str>> {
    csv.lines().map(|line| line.split(',').collect()).collect()
}

#[test]
fn a_table_is_shown_written_and_read_again() {
    let sandbox = sandbox();
    let output = sandbox.run(&["suite", "own.ron", "--backend", "sim", "--csv", "own.csv", "--json", "own.jsonl"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(output.stderr.contains("own.csv: every figure is simulated."), "{}", output.stderr);
    let csv = sandbox.read("own.csv");
    let rows = cells(&csv);
    assert_eq!(rows[0], ["n", "mode", "mean_us", "p95_us", "moved_mb", "thousands", "absent", "status"]);
    let places: Vec<[&str; 2]> = rows[1..].iter().map(|row| [row[0], row[1]]).collect();
    assert_eq!(places, [["1024", "eager"], ["1024", "graph"], ["1048576", "eager"], ["1048576", "graph"]]);
    for row in &rows[1..] {
        let (n, time): (f64, f64) = (row[0].parse().unwrap(), row[2].parse().unwrap());
        assert!(time > 0.0 && time < 1e6, "{row:?}");
        assert_eq!(row[3], "", "{row:?}: few samples have no p95");
        assert_eq!(row[4].parse::<f64>().unwrap(), n * 32.0 * 8.0 / 1048576.0, "{row:?}");
        assert_eq!(row[5].parse::<f64>().unwrap(), n / 1e3, "{row:?}");
        assert_eq!(row[6..], ["", "success"], "{row:?}");
    }
    // The page has the medians and their ratio, with the mark of simulated figures.
    assert!(output.stdout.contains("Every figure is simulated."), "{}", output.stdout);
    let table: Vec<Vec<&str>> = output.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    let head = table.iter().position(|line| line[..] == ["size", "eager", "graph", "speed-up", "status"]).unwrap();
    for (line, size) in table[head + 1..head + 3].iter().zip(["1024", "1048576"]) {
        let [name, eager, "us", graph, "us", ratio, "done"] = line[..] else { panic!("{line:?}") };
        assert_eq!(name, size);
        let number = |text: &str| text.trim_end_matches('×').parse::<f64>().unwrap();
        assert!((number(eager) / number(graph) - number(ratio)).abs() < 0.01, "{line:?}");
        assert!(number(ratio) > 1.0, "launches of many small kernels cost more than their graph: {line:?}");
    }
    let again = sandbox.good(&["report", "own.jsonl", "--csv", "again.csv"]);
    assert_eq!(sandbox.read("again.csv"), csv);
    assert!(again.contains("speed-up"), "{again}");
}

/// The H200's profile with other memory.
fn small_device(sandbox: &Sandbox, memory: &str) {
    let text = std::fs::read_to_string(project().join("config/devices/h200.ron")).expect("a shipped profile");
    let small = text.replace("150.754e9", memory);
    assert_ne!(small, text);
    sandbox.write("small.ron", small);
}

#[test]
fn a_case_that_cannot_fit_is_marked_without_a_run() {
    let sandbox = sandbox();
    small_device(&sandbox, "2e6");
    let run = |more: &[&str]| {
        let fixed = ["suite", "own.ron", "--backend", "sim", "--config", "profile=small.ron", "--csv", "own.csv"];
        sandbox.run(&[&fixed, more].concat())
    };
    let output = run(&[]);
    assert_eq!(output.code, Some(0), "out of memory is a result of the table: {}", output.stderr);
    let csv = sandbox.read("own.csv");
    for row in &cells(&csv)[1..] {
        let fits = row[0] == "1024";
        assert_eq!(row[7], if fits { "success" } else { "OOM" }, "{row:?}");
        assert_eq!(row[2].is_empty(), !fits, "{row:?}");
    }
    assert!(
        output.stdout.contains("the program takes 4 MiB of device memory, and the device has 1.907 MiB"),
        "{}",
        output.stdout
    );
    assert!(output.stdout.lines().any(|line| line.split_whitespace().eq(["1048576", "–", "–", "–", "OOM"])));
    let planned = run(&["--dry-run"]).stdout;
    assert!(planned.contains("size=1048576, mode=eager: out of memory: the program takes"), "{planned}");
    // Nothing has run at all.
    assert_eq!(run(&["--only", "size=1048576"]).code, Some(4));
}

#[test]
fn a_suite_runs_on_the_cpu() {
    let sandbox = sandbox();
    let output = sandbox.run(&["suite", "own.ron", "--backend", "host", "--only", "size=1024", "--csv", "own.csv"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(!output.stderr.contains("simulated"), "{}", output.stderr);
    let csv = sandbox.read("own.csv");
    assert_eq!(cells(&csv).len(), 3, "{csv}");
    assert!(cells(&csv)[1..].iter().all(|row| row[2].parse::<f64>().unwrap() > 0.0), "{csv}");
}

#[test]
fn values_for_all_cases_leave_axes_alone() {
    let sandbox = sandbox();
    let run = |set: &str| sandbox.run(&["suite", "own.ron", "--backend", "sim", "--dry-run", "--set", set]);
    assert_eq!(run("n=7").code, Some(2));
    assert!(run("n=7").stderr.contains("the axis `size` gives it values"), "{}", run("n=7").stderr);
    assert!(run("m=7").stdout.contains("bad input"), "{}", run("m=7").stdout);
}

#[test]
fn mistakes_of_tables_are_explained() {
    for (from, to, why) in [
        (r#"rows: ["size"]"#, r#"rows: ["sise"]"#, "did you mean `size`?"),
        (r#"ratio("eager", "graph")"#, r#"ratio("eager", "grap")"#, "did you mean `graph`?"),
        (r#"at: {"mode": "graph"}"#, r#"at: {"mode": "grahp"}"#, "did you mean `graph`?"),
        (r#"unit: "us", at"#, r#"unit: "uss", at"#, "did you mean `us`?"),
        (r#"("mode", axis("mode"))"#, r#"("mode", axis("modes"))"#, "did you mean `mode`?"),
        (r#"("mode", axis("mode"))"#, r#"("n", axis("mode"))"#, "a name of its own"),
        (r#"param: "n", "#, "", "come together"),
        (r#"settings: {"gate": "off"}"#, r#"settings: {"gat": "off"}"#, "did you mean `gate`?"),
    ] {
        let text = SUITE.replacen(from, to, 1);
        assert_ne!(text, SUITE, "{from}");
        let ConfigError::File(mistakes) = SuiteFile::parse("own.ron", &text).expect_err(to) else { panic!("{to}") };
        let help = |mistake: &dyn Diagnostic| mistake.help().map(|help| help.to_string()).unwrap_or_default();
        let told: String = mistakes.all().map(|mistake| format!("{mistake} {}", help(mistake))).collect();
        assert!(told.contains(why), "{to}: {told}");
    }
}

/// The columns that other tools' scripts read.
#[test]
fn shipped_sweeps_write_these_columns() {
    if !crate::common::effort::is_due() {
        return;
    }
    let sandbox = Sandbox::new();
    let row = |suite: &str, only: &str| {
        sandbox.good(&["suite", suite, "--backend", "sim", "--effort", "quick", "--only", only, "--csv", "own.csv"]);
        let text = sandbox.read("own.csv");
        let (head, rest) = text.split_once('\n').expect("a header");
        let rows: Vec<Vec<String>> = rest.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect();
        (head.to_owned(), rows)
    };
    let (head, rows) = row("attention-sweep", "d_model=16, seq_len=256,");
    assert_eq!(
        head,
        "batch_size,seq_len,d_model,compiled,forward_mean_ms,forward_std_ms,backward_mean_ms,backward_std_ms,\
         total_mean_ms,peak_memory_mb,status"
    );
    assert_eq!(rows.len(), 2);
    for (row, compiled) in rows.iter().zip(["False", "True"]) {
        assert_eq!(row[..4], ["8", "256", "16", compiled]);
        let number = |index: usize| row[index].parse::<f64>().unwrap_or_else(|error| panic!("{row:?}: {error}"));
        assert!((number(4) + number(6) - number(8)).abs() < 1e-5 && number(4) > 0.0, "{row:?}");
        assert!(number(9) > 1.0 && number(5) == 0.0, "{row:?}");
        assert_eq!(row[10], "success");
    }
    let (head, rows) = row("transformer-sweep", "model_size=small, context_length=128,");
    assert_eq!(
        head,
        "model_size,context_length,num_params,num_params_millions,forward_vanilla_ms,forward_compiled_ms,\
         forward_speedup,fwd_bwd_vanilla_ms,fwd_bwd_compiled_ms,fwd_bwd_speedup,full_step_vanilla_ms,\
         full_step_compiled_ms,full_step_speedup"
    );
    assert_eq!(rows.len(), 1);
    let (row, number) = (&rows[0], |index: usize| rows[0][index].parse::<f64>().expect("a number"));
    assert_eq!(row[..4], ["small", "128", "128625408", "128.625408"]);
    for first in [4, 7, 10] {
        assert!((number(first) / number(first + 1) - number(first + 2)).abs() < 1e-9, "{row:?}");
    }
    assert!(number(4) < number(7) && number(7) < number(10), "{row:?}");
}
