//! `aorta sweep --search`: the best of a large space, without trying each.

use serde_json::Value;

use super::sandbox::Sandbox;

/// A long chain in parts: more of them overlap, and each costs something of its own. Streams help as long as there are parts.
const PARTS: &str = "\
param streams = 1
param parts = 1
param way = 0
stream s[streams]
step {
  for i in 0..parts {
    on s[i % streams] { spin((40us / parts) + 2us * parts / streams + way * 8us) }
  }
}
";

const AXES: [&str; 10] = [
    "--backend",
    "sim",
    "--effort",
    "quick",
    "--streams",
    "1,2,3,4,6,8",
    "--set",
    "parts=1,2,3,4,5,6,8,10,12,16,24,32",
    "--set",
    "way=0,1",
];

#[test]
fn the_best_of_a_space_is_found() {
    if !crate::common::effort::is_due() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.write("parts.aorta", PARTS);
    let axes: &[&str] = &AXES;
    let search = [&["sweep", "parts.aorta"], axes, &["--search", "--budget", "40", "--json", "found.jsonl"]].concat();
    let output = sandbox.run(&search);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    insta::with_settings!({ snapshot_path => "../snapshots", omit_expression => true }, {
        insta::assert_snapshot!("search", output.stdout);
    });
    let lines = |name: &str| -> Vec<Value> {
        sandbox.read(name).lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
    };
    assert!(lines("found.jsonl").len() <= 41);
    // The best case of a full sweep.
    sandbox.good(&[&["sweep", "parts.aorta"], axes, &["--json", "all.jsonl"]].concat());
    let time = |case: &Value| case["record"]["variants"][0]["time"]["p50_ns"].as_i64();
    let best = |name: &str| lines(name)[1..].iter().filter_map(time).min().expect("one was measured");
    assert_eq!(lines("all.jsonl").len(), 145);
    assert_eq!(best("found.jsonl"), best("all.jsonl"));
}

/// A search that goes on takes what it has, and ends where it would have.
#[test]
fn a_search_goes_on_where_it_was() {
    let sandbox = Sandbox::new();
    sandbox.write("parts.aorta", PARTS);
    let search = [&["sweep", "parts.aorta"][..], &AXES, &["--search", "--budget", "12", "--json", "a.jsonl"]].concat();
    let whole = sandbox.good(&search);
    let text = sandbox.read("a.jsonl");
    let cut: String = text.split_inclusive('\n').take(6).collect();
    sandbox.write("a.jsonl", &cut);
    let resumed = sandbox.good(&[&search[..], &["--resume"]].concat());
    assert_eq!(resumed, whole);
    let names = |text: &str| -> Vec<Value> {
        let case = |line: &str| serde_json::from_str::<Value>(line).expect("a line is JSON")["name"].clone();
        text.lines().skip(1).map(case).collect()
    };
    assert_eq!(names(&sandbox.read("a.jsonl")), names(&text));
}

#[test]
fn mistakes_in_a_search_are_reported() {
    let sandbox = Sandbox::new();
    sandbox.write("parts.aorta", PARTS);
    for (given, told) in [
        (&["--search", "--zip"][..], "cannot be used with"),
        (&["--budget", "9"], "--search"),
        (&["--search", "--budget", "1"], "4..=4096"),
        (&["--search", "--set", "none=1,2"], "none of"),
    ] {
        let output = sandbox.run(&[&["sweep", "parts.aorta", "--streams", "1,2", "--backend", "sim"], given].concat());
        assert_eq!(output.code, Some(2), "{given:?}: {}", output.stderr);
        assert!(output.stderr.contains(told), "{given:?}: {}", output.stderr);
    }
}

/// A search meets a point that cannot be held at the gate: all are compared by their host-paced times then, and no run is made
/// twice for it.
#[test]
fn a_search_compares_like_with_like() {
    let sandbox = Sandbox::new();
    let text = "param n = 4\nbuffer x: f32[64]\nstep { for i in 0..n { map(x + 1 -> x) } }";
    sandbox.write("tiny.aorta", text);
    let search = "sweep tiny.aorta --search --budget 8 --backend sim --effort quick --json a.jsonl \
                  --set n=12,24 --config gate_depth=20,512";
    let told = sandbox.good(&search.split_whitespace().collect::<Vec<_>>());
    assert!(told.contains("median host-paced (simulated)"), "{told}");
    assert!(told.contains("all are compared by their host-paced times"), "{told}");
    assert!(sandbox.read("a.jsonl").lines().count() <= 9, "a budget of eight runs");
}

/// The last comparison takes the times of the same work, by which the search has chosen.
#[test]
fn the_best_point_is_compared_by_what_the_search_maximizes() {
    let sandbox = Sandbox::new();
    sandbox.write("product.aorta", "param n = 256\nbuffer a, b, c: bf16[n, n]\nstep { gemm(a, b -> c) }\n");
    let search = "sweep product.aorta --search --budget 5 --backend sim --effort quick --set n=256,2048";
    let told = sandbox.good(&search.split_whitespace().collect::<Vec<_>>());
    assert!(told.contains("\n33.55 MFLOP, simulated "), "{told}");
    assert!(told.contains("\nb is better: the same work takes "), "{told}");
    assert!(!told.contains("their times are of different work"), "{told}");
}

/// With one repeated run, a search does not know how much runs differ, and says why.
#[test]
fn a_small_budget_says_nothing_false_of_its_runs() {
    let sandbox = Sandbox::new();
    sandbox.write("parts.aorta", PARTS);
    let search = [&["sweep", "parts.aorta"][..], &AXES, &["--search", "--budget", "6"]].concat();
    let told = sandbox.good(&search);
    let repeated = told.lines().any(|line| line.split_whitespace().nth(3) == Some("2") && line.contains(" done "));
    assert!(repeated, "a point ran twice: {told}");
    assert!(told.contains("Too few runs were repeated, so it is not known how much runs differ."), "{told}");
}
