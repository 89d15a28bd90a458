//! A sweep or a suite on several machines: each runs a partition, and their files of cases are joined.

use std::collections::BTreeSet;

use super::sandbox::Sandbox;

const SWEEP: &str = "sweep moe --preset tiny --backend sim --effort quick --set tokens=16,32,64 --launch stream,graph";

fn words(command: &str) -> Vec<&str> {
    command.split_whitespace().collect()
}

/// The names of the cases in a file, without the header.
fn names(sandbox: &Sandbox, file: &str) -> BTreeSet<String> {
    let text = sandbox.read(file);
    let cases = text.lines().skip(1).map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a case"));
    cases.map(|case| case["name"].as_str().expect("a name").to_owned()).collect()
}

/// The table of a page, without what varies from run to run.
fn report(sandbox: &Sandbox, files: &str) -> String {
    sandbox
        .good(&words(&format!("report {files} --format json")))
        .lines()
        .skip(1)
        .map(|line| {
            let case: serde_json::Value = serde_json::from_str(line).expect("a case");
            format!("{} {} {}\n", case["name"], case["status"], case["record"]["variants"][0]["time"]["p50_ns"])
        })
        .collect()
}

#[test]
fn partitions_of_a_sweep_are_the_whole() {
    if !crate::common::effort::is_due() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.good(&words(&format!("{SWEEP} --json whole.jsonl")));
    for count in [1, 2, 4, 7] {
        let files: Vec<String> = (1..=count).map(|index| format!("p{index}of{count}.jsonl")).collect();
        for (index, file) in (1..).zip(&files) {
            sandbox.good(&words(&format!("{SWEEP} --partition {index}/{count} --json {file}")));
        }
        let all: Vec<String> = files.iter().flat_map(|file| names(&sandbox, file)).collect();
        assert_eq!(all.len(), 6, "each case ran once");
        assert_eq!(BTreeSet::from_iter(all), names(&sandbox, "whole.jsonl"));
        let joined = files.join(" ");
        let order = |text: String| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
        assert_eq!(order(report(&sandbox, &joined)), order(report(&sandbox, "whole.jsonl")));
        let output = sandbox.run(&words(&format!("compare whole.jsonl {}", files.join(","))));
        assert_eq!(output.code, Some(0), "{output:?}");
        assert!(!output.stderr.contains("lacks"), "{output:?}");
    }
}

#[test]
fn missing_cases_are_named() {
    let sandbox = Sandbox::new();
    for index in [1, 3] {
        sandbox.good(&words(&format!("{SWEEP} --partition {index}/3 --json p{index}.jsonl")));
    }
    let output = sandbox.run(&words("report p1.jsonl p3.jsonl"));
    assert_eq!(output.code, Some(0));
    assert!(
        output.stderr.contains("Missing: 2 of 6 cases: tokens=16, launch=graph; tokens=64, launch=stream"),
        "{}",
        output.stderr
    );
    let output = sandbox.run(&words("compare p1.jsonl,p3.jsonl p1.jsonl,p3.jsonl"));
    assert!(output.stderr.contains("lacks 2 cases of its partitions"), "{}", output.stderr);
    // A partition goes on, and is never another one.
    sandbox.good(&words(&format!("{SWEEP} --partition 1/3 --json p1.jsonl --resume")));
    let other = sandbox.run(&words(&format!("{SWEEP} --partition 2/3 --json p1.jsonl --resume")));
    assert!(other.code == Some(2) && other.stderr.contains("the partition was `1/3` and is `2/3`"), "{other:?}");
    // Files of different sweeps are not joined.
    sandbox.good(&words(
        "sweep moe --preset tiny --backend sim --effort quick --set tokens=16,32 --partition 1/3 --json q.jsonl",
    ));
    let mixed = sandbox.run(&words("report p1.jsonl q.jsonl"));
    assert!(mixed.code == Some(2) && mixed.stderr.contains("in p1.jsonl, what varies is"), "{mixed:?}");
    for wrong in ["0/3", "4/3", "3", "a/b"] {
        assert_eq!(sandbox.run(&words(&format!("{SWEEP} --partition {wrong}"))).code, Some(2), "{wrong}");
    }
}

#[test]
fn partitions_of_a_suite_are_the_whole() {
    let sandbox = Sandbox::new();
    let cases: String = [16, 32, 64, 128]
        .iter()
        .map(|tokens| format!("(workload: \"moe\", preset: \"tiny\", params: {{\"tokens\": \"{tokens}\"}}),"))
        .collect();
    sandbox.write("s.ron", format!("(description: \"d\", effort: quick, cases: [{cases}])"));
    for index in 1..=3 {
        sandbox.good(&words(&format!("suite s.ron --backend sim --partition {index}/3 --json p{index}.jsonl")));
    }
    let output = sandbox.run(&words("report p3.jsonl p1.jsonl p2.jsonl"));
    assert!(
        output.code == Some(0) && output.stdout.contains("4 cases: 4 done") && output.stderr.is_empty(),
        "{output:?}"
    );
    let output = sandbox.run(&words("suite s.ron --backend sim --partition 5/5 --json p5.jsonl"));
    assert!(output.code == Some(0) && output.stderr.contains("this one has none"), "{output:?}");
}
