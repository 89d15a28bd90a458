//! Suites: cases that belong together, on one page.

use super::sandbox::Sandbox;
use crate::common::effort;

macro_rules! snapshot {
    ($name:literal, $text:expr) => {
        insta::with_settings!({ snapshot_path => "../snapshots", omit_expression => true }, {
            insta::assert_snapshot!($name, $text);
        });
    };
}

/// Every suite that is shipped, as the list has it.
fn shipped(sandbox: &Sandbox) -> Vec<String> {
    let list = sandbox.good(&["suite"]);
    let lines = list.lines().take_while(|line| !line.is_empty());
    lines.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn suites_are_listed() {
    let sandbox = Sandbox::new();
    snapshot!("suite_list", sandbox.good(&["suite"]));
}

#[test]
fn smoke_passes_wholly() {
    if !effort::is_due() {
        return;
    }
    let sandbox = Sandbox::new();
    let page = sandbox.good(&["suite", "smoke", "--backend", "sim", "--strict", "--json", "smoke.jsonl"]);
    snapshot!("suite_smoke", page);
    // Every shipped workload is in it.
    let list = sandbox.good(&["list"]);
    let workloads: Vec<&str> = list.lines().filter(|line| line.starts_with("  ")).collect();
    assert!(workloads.len() > 10);
    for workload in workloads.iter().filter_map(|line| line.split_whitespace().next()) {
        assert!(page.lines().any(|line| line.starts_with(&format!("{workload}, "))), "smoke has no {workload}");
    }
    let lines = sandbox.read("smoke.jsonl");
    let lines: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&lines[0]["schema"], &lines[0]["kind"]), (&"aorta.cases/1".into(), &"suite".into()));
    assert_eq!(lines.len(), 1 + workloads.len());
    assert!(lines[1..].iter().all(|line| line["status"] == "done" && line["record"]["complete"] == true));
}

/// Every case of a shipped suite is a valid run of a workload that is shipped.
#[test]
fn every_shipped_suite_names_what_there_is() {
    if !effort::is_due() {
        return;
    }
    let sandbox = Sandbox::new();
    let suites = shipped(&sandbox);
    assert!(suites.len() > 5, "{suites:?}");
    for suite in effort::chosen(&suites) {
        let told = sandbox.good(&["suite", suite, "--backend", "sim", "--dry-run"]);
        assert!(!told.is_empty());
        for line in told.lines() {
            let (_, what) = line.split_once(": ").expect("a case and its command");
            let arguments = what.strip_prefix("aorta exec ").unwrap_or_else(|| panic!("{suite}: {line}"));
            assert!(arguments.ends_with("--backend=sim"), "{suite}: {line}");
        }
    }
}

#[test]
fn missing_workloads_are_listed() {
    let sandbox = Sandbox::new();
    let text =
        r#"(description: "what is not there", cases: [(workload: "absent"), (workload: "gone", preset: "tiny")])"#;
    sandbox.write("absent.ron", text);
    let arguments = ["suite", "absent.ron", "--backend", "sim", "--effort", "sanity"];
    let output = sandbox.run(&arguments);
    assert_eq!(output.code, Some(4), "a suite of which no case ran has shown nothing: {}", output.stderr);
    snapshot!("suite_missing", output.stdout);
}

/// A suite beside a workload of its own, with one case for each way to end.
const OWN: &str = r#"(
    description: "one of each",
    effort: quick,
    cases: [
        (name: "good", workload: "own.aorta", limits: {"time": (to: "1s"), "rate": (from: "1B/s")}),
        (name: "broken expectation", workload: "own.aorta", params: {"most": "1B"}),
        (name: "broken limit", workload: "own.aorta", launch: graph, limits: {"rate": (from: "1TB/s", to: "9TB/s")}),
        (name: "limit in another unit", workload: "own.aorta", limits: {"rate": (to: "1ms")}),
        (name: "limit on nothing", workload: "own.aorta", limits: {"rat": (to: "1ms")}),
        (name: "bad input", workload: "own.aorta", preset: "large"),
        (name: "too large", workload: "own.aorta", needs: (memory: "200GB")),
        (workload: "moee", preset: "tiny"),
        (workload: "moe", preset: "tiny", streams: [3, 4], effort: sanity),
    ],
)"#;

const WORKLOAD: &str = "param most = 1MB\nbuffer x: f32[1024] = random(1)\nstep { map(x + 1 -> x) }\n\
    metric rate = bandwidth\nexpect bytes < most\n";

fn own() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("suites/own.ron", OWN);
    sandbox.write("suites/own.aorta", WORKLOAD);
    sandbox
}

#[test]
fn each_exit_status_is_described() {
    let sandbox = own();
    let run = |more: &[&str]| sandbox.run(&[&["suite", "suites/own.ron", "--backend", "sim"], more].concat());
    let output = run(&[]);
    assert_eq!(output.code, Some(4), "{}", output.stderr);
    snapshot!("suite_own", output.stdout);
    assert!(output.stderr.contains("5 of 10: limit on nothing: "), "{}", output.stderr);
    let output = run(&["--format", "markdown"]);
    snapshot!("suite_own_markdown", output.stdout);
    let output = run(&["--format", "junit"]);
    let seconds = without_times(&output.stdout);
    snapshot!("suite_own_junit", seconds);
    // Without failed cases, a failed expectation determines the exit code; without those, it is 0.
    assert_eq!(run(&["--only", "broken"]).code, Some(1));
    assert_eq!(run(&["--only", "good"]).code, Some(0));
    // Skipped cases do not fail a suite in which a case ran, unless it is strict; a suite with only skipped cases
    // fails.
    assert_eq!(run(&["--only", "oo"]).code, Some(0));
    assert_eq!(run(&["--only", "oo", "--strict"]).code, Some(1));
    assert_eq!(run(&["--only", "too large"]).code, Some(4));
    let output = run(&["--only", "nothing like it"]);
    assert_eq!(output.code, Some(2));
    assert!(output.stderr.contains("no case of suites/own.ron has a name that contains it"), "{}", output.stderr);
}

/// The page without how long its cases took.
fn without_times(page: &str) -> String {
    let line = |line: &str| match line.split_once(" time=\"") {
        Some((before, rest)) => format!("{before} time=\"…{}", &rest[rest.find('"').unwrap_or(0)..]),
        None => line.to_owned(),
    };
    page.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_suite_goes_on_where_it_ended() {
    let sandbox = own();
    let suite = ["suite", "suites/own.ron", "--backend", "sim", "--json", "own.jsonl"];
    let first = sandbox.run(&suite);
    let lines = sandbox.read("own.jsonl").lines().count();
    assert_eq!(lines, 11);
    // A file that is there is not written over.
    let again = sandbox.run(&suite);
    assert_eq!(again.code, Some(2));
    assert!(again.stderr.contains("aorta::cli::cases_there"), "{}", again.stderr);
    // Measured cases do not run again, and the page is the same.
    let resumed = sandbox.run(&[&suite[..], &["--resume"]].concat());
    assert_eq!((resumed.code, &resumed.stdout), (first.code, &first.stdout));
    assert!(!resumed.stderr.contains("good"), "{}", resumed.stderr);
    assert!(resumed.stderr.contains("bad input"), "{}", resumed.stderr);
    // The file alone tells the same of its cases.
    let told = sandbox.good(&["report", "own.jsonl"]);
    let table = |page: &str| page.split_once("\n\n").expect("a title, then a table").1.to_owned();
    assert_eq!(table(&told), table(&first.stdout));
    sandbox.write("suites/own.aorta", WORKLOAD.replace("x + 1", "x + 2"));
    let changed = sandbox.run(&[&suite[..], &["--resume"]].concat());
    assert_eq!(changed.code, Some(2), "{}", changed.stderr);
    assert!(changed.stderr.contains("aorta::cli::other_sweep"), "{}", changed.stderr);
}

#[test]
fn mistakes_in_suites_are_reported() {
    let sandbox = Sandbox::new();
    let cases = [
        "(description: \"d\", cases: [(worklod: \"moe\")])",
        "(description: \"d\" cases: [])",
        "(description: \"d\", cases: [])",
        "(cases: [(workload: \"moe\")])",
        "(description: \"d\", cases: [(preset: \"tiny\")])",
        "(description: \"d\", cases: [(workload: \"moe\", streams: [0])])",
        "(description: \"d\", cases: [(workload: \"moe\"), (workload: \"moe\")])",
        "(description: \"d\", cases: [(workload: \"moe\", effort: hasty)])",
        "(description: \"d\", cases: [\n  (workload: \"moe\", limits: {\"time\": (to: \"5 msec\")}),\n])",
        "(description: \"d\", cases: [(workload: \"moe\", limits: {\"time\": ()})])",
        "(description: \"d\", cases: [(workload: \"moe\", limits: {\"time\": (from: \"5ms\", to: \"1ms\")})])",
        "(description: \"d\", cases: [(workload: \"moe\", needs: (memory: \"40s\"))])",
        "(description: \"d\", cases: [(workload: \"moe\", needs: (gpus: 0))])",
        "(description: \"d\", cases: [(workload: \"-\")])",
        "(description: \"d\", cases: [(workload: \"moe\", params: {\"tokens\": [1024, 2048]})])",
    ];
    let mut told = String::new();
    for text in cases {
        sandbox.write("a.ron", text);
        let output = sandbox.run(&["suite", "a.ron"]);
        assert_eq!(output.code, Some(2), "{text}: {}", output.stderr);
        told += &format!("{text}\n{}\n", output.stderr);
    }
    for name in ["p9", "smok", "nothing_like_it", "./absent.ron"] {
        let output = sandbox.run(&["suite", name]);
        assert_eq!(output.code, Some(2), "{name}: {}", output.stderr);
        told += &format!("aorta suite {name}\n{}\n", output.stderr);
    }
    snapshot!("suite_mistakes", told);
}

/// Normal figures are counted for each measured case.
#[test]
fn normal_figures_are_counted() {
    let sandbox = own();
    let ranges = r#"(devices: ["this CPU"], sources: {"us": measured("here")}, ranges: [
        (name: "any", figure: metric, workload: "own", metric: "rate", normal: (from: "1B/s"), seen: "a", source: "us"),
        (name: "none", figure: metric, workload: "own", metric: "rate", normal: (from: "9TB/s"), seen: "b", source: "us"),
    ])"#;
    sandbox.write("ranges.ron", ranges);
    let suite = ["suite", "suites/own.ron", "--backend", "host", "--only", "good", "--expected=ranges.ron"];
    let page = sandbox.good(&suite);
    assert!(page.lines().any(|line| line.starts_with("good ") && line.ends_with("1 of 2, slower")), "{page}");
    assert!(page.contains("\ngood: slower than normal, as streams: none is "), "{page}");
    assert!(page.contains(", and at least 9 TB/s is normal\ncheck first: "), "{page}");
    assert!(page.ends_with("1 case: 1 done; 1 of 2 known figures are normal\n"), "{page}");
    // A mistake in the ranges is found before anything runs.
    sandbox.write("ranges.ron", "(");
    assert_eq!(sandbox.run(&suite).code, Some(2));
}

/// Times at the gate and without it have columns of their own.
#[test]
fn cases_that_cannot_be_held_have_a_column_of_their_own() {
    let sandbox = Sandbox::new();
    let text = "param n = 4\nbuffer x: f32[64]\nstep { for i in 0..n { map(x + 1 -> x) } }";
    sandbox.write("tiny.aorta", text);
    let suite = r#"(description: "d", effort: quick, cases: [
        (name: "held", workload: "tiny.aorta"),
        (name: "free", workload: "tiny.aorta", params: {"n": "40"}),
    ])"#;
    sandbox.write("a.ron", suite);
    let page = |depth: &str| sandbox.good(&["suite", "a.ron", "--backend", "sim", "--config", depth]);
    let mixed = page("gate_depth=20");
    let columns = |page: &str, row: &str| -> Vec<bool> {
        let line = page.lines().find(|line| line.starts_with(row)).expect("a row for each case").to_owned();
        line.split("  ").filter(|word| !word.is_empty()).skip(2).take(2).map(|word| word.trim() != "–").collect()
    };
    assert!(mixed.contains("as streams, at the gate  host-paced"), "{mixed}");
    assert_eq!((columns(&mixed, "held"), columns(&mixed, "free")), (vec![true, true], vec![false, true]), "{mixed}");
    assert!(!page("gate_depth=512").contains("host-paced"));
}
