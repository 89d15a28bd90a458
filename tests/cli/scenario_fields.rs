//! Each option of `exec`, `sweep` and `ab` has a field of a scenario or a reason why it has none, and each field has the effect of
//! its option in the command that takes it.

use aorta::cli;
use aorta::config::{FIELDS, OPTIONS_WITHOUT_FIELD};
use serde_json::Value;

use super::sandbox::Sandbox;
use crate::common::effort;

/// Options that users do not see, or that run nothing.
const WITHOUT: [&str; 6] = ["help", "ranges", "env-is-set", "until-input-ends", "blocks", "diagnose"];

#[test]
fn each_option_has_a_field_or_a_reason() {
    let mut aorta = cli::definition();
    aorta.build();
    let (mut missing, mut unused) = (Vec::new(), OPTIONS_WITHOUT_FIELD.map(|(option, _)| option).to_vec());
    for name in ["exec", "sweep", "ab"] {
        let command = aorta.find_subcommand(name).expect("the command exists");
        for option in command.get_arguments().filter_map(|argument| argument.get_long()) {
            unused.retain(|without| *without != option);
            let is_field = FIELDS.iter().any(|field| {
                let long = field.option.trim_start_matches("--").split('=').next();
                // What `exec` is given applies to the runs that the others start.
                long == Some(option) && (field.commands.contains(&name) || field.commands == ["exec"])
            });
            let has_reason = OPTIONS_WITHOUT_FIELD.iter().any(|(without, _)| *without == option);
            if !is_field && !has_reason && !WITHOUT.contains(&option) {
                missing.push(format!("aorta {name} --{option}"));
            }
        }
    }
    assert!(unused.is_empty(), "reasons for options that do not exist: {unused:?}");
    assert!(missing.is_empty(), "neither a field nor a reason: {missing:?}");
}

/// A workload on which every option of a run has an effect.
const LAYER: &str = "\
param n = 64 in [32, 64]
param streams = 2
preset small { n = 32 }
draw d ~ uniform(1, 4)
stream s[streams]
buffer r, x, y, z: f32[n, n] = random(1)
step {
  on s[0] { spin(1us * d) map(x * 2 -> y) map(y + 1 -> z) }
  on s[1 % streams] { all_reduce(r) }
}
";

/// A field of a run, the options that say the same, and true if the record of a simulated run says that it has had an effect.
/// The simulator computes nothing and has no device to choose, no hang and no driver; other tests cover these.
const OF_EXEC: [(&str, &str, bool); 27] = [
    ("preset: \"small\"", "--preset small", true),
    ("params: {n: 32}", "--set n=32", true),
    ("streams: 1", "--streams 1", true),
    ("sync: end", "--sync end", true),
    ("cycle: 4", "--cycle 4", true),
    ("fuse: true", "--fuse", true),
    ("environment: {\"CUDA_DEVICE_MAX_CONNECTIONS\": \"1\"}", "--env CUDA_DEVICE_MAX_CONNECTIONS=1", true),
    ("backend: \"sim\"", "--backend sim", false),
    ("profile: \"mi300x\"", "--config profile=mi300x", true),
    ("topology: \"mi300x\"", "--config topology=mi300x", false),
    ("device: 1", "--device 1", false),
    ("ranks: 2", "--ranks 2", true),
    ("emulate: 4", "--emulate 4", false),
    ("emulate: 4, rank: 1", "--emulate 4 --rank 1", false),
    ("launch: \"graph\"", "--launch graph", true),
    ("gate: off", "--gate off", true),
    ("observe: off", "--observe off", true),
    ("cache: cold", "--cache cold", true),
    ("data: ones", "--data ones", true),
    ("effort: sanity", "--effort sanity", true),
    ("warmup: 3", "--warmup 3", true),
    ("iterations: 7", "--iterations 7", true),
    ("timeout: \"9s\"", "--config timeout=9s", false),
    ("verify: true", "--verify", false),
    ("counters: \"map\"", "--counters map", true),
    ("settings: {in_flight: 3}", "--config in_flight=3", true),
    ("expected: \"mine.ron\"", "--expected=mine.ron", false),
];

/// The name of the first field in a line of them.
fn name(field: &str) -> &str {
    field.split(':').next().expect("a field has a name")
}

/// Writes a scenario of the workload with these fields.
fn write(sandbox: &Sandbox, fields: &str) {
    sandbox.write("with.ron", format!("(workload: \"work.aorta\", {fields})"));
}

/// What the record says of a run, without the time at which it ran and the files that it read.
fn said(sandbox: &Sandbox, file: &str, options: &str) -> Value {
    let words = format!("exec {file} --backend sim --json run.json {options}");
    sandbox.good(&words.split_whitespace().collect::<Vec<_>>());
    let mut record = sandbox.json("run.json");
    let parts = record.as_object_mut().expect("a record has fields");
    for own in ["started", "source", "workload"] {
        parts.remove(own);
    }
    record
}

#[test]
fn fields_of_a_run_do_what_their_options_do() {
    for field in FIELDS.iter().filter(|field| field.commands == ["exec"] && !field.option.is_empty()) {
        let is_there = OF_EXEC.iter().any(|(fields, ..)| fields.split(", ").any(|one| name(one) == field.name));
        assert!(is_there, "no case for the field {}", field.name);
    }
    let sandbox = Sandbox::new();
    sandbox.write("work.aorta", LAYER);
    sandbox.write("mine.ron", "(devices: [\"any\"], sources: {}, ranges: [])");
    let plain = said(&sandbox, "work.aorta", "");
    for (field, options, is_seen) in effort::chosen(OF_EXEC) {
        write(&sandbox, field);
        let shown = sandbox.good(&["check", "with.ron"]);
        assert!(shown.contains(options), "{field} is not in\n{shown}");
        if is_seen {
            let with = said(&sandbox, "with.ron", "");
            assert!(with == said(&sandbox, "work.aorta", options), "{field} is not {options}");
            assert!(with != plain, "{field} has no effect");
        }
    }
}

/// Parts whose number decides how long they take: the best number lies in the middle.
const PARTS: &str = "\
param streams = 1
param parts = 1
stream s[streams]
step { for i in 0..parts { on s[i % streams] { spin((40us / parts) + 2us * parts / streams) } } }
";

/// Runs a command with options; returns its exit code, and what it prints without the times of processes.
fn printed(sandbox: &Sandbox, command: &str, file: &str, options: &str) -> (Option<i32>, String) {
    let words = format!("{command} {file} --json out.json {options}");
    let output = sandbox.run(&words.split_whitespace().collect::<Vec<_>>());
    if output.code == Some(2) {
        return (output.code, output.stderr);
    }
    let written = match command {
        "ab" => {
            let record = sandbox.json("out.json");
            ["seed", "rounds", "iterations", "way", "result"].map(|part| format!("{part} {}\n", record[part])).concat()
        }
        _ => sandbox
            .read("out.json")
            .lines()
            .skip(1)
            .map(|line| {
                let case: Value = serde_json::from_str(line).expect("a line is JSON");
                format!("{}\n", case["name"])
            })
            .collect(),
    };
    std::fs::remove_file(sandbox.path("out.json")).expect("it was written");
    (output.code, output.stdout + &written)
}

#[test]
fn fields_of_a_sweep_and_a_comparison_do_what_their_options_do() {
    const SWEEP: &str = "backend: \"sim\", effort: quick, axes: {streams: [1, 2, 4], \"set parts\": \"4,2,8\"}";
    const AB: &str = "backend: \"sim\", sides: {\"b\": \"--set parts=2\"}";
    // The second text is what the command has in both runs.
    let cases = [
        ("sweep", "zip: true", "", "--zip"),
        ("sweep", "skip_invalid: true", "--streams 1,0", "--skip-invalid"),
        ("sweep", "order: given", "", "--order given"),
        ("sweep", "sort: \"median\"", "", "--sort median"),
        ("sweep", "search: true", "", "--search"),
        ("sweep", "budget: 5", "--search", "--budget 5"),
        ("sweep", "seed: 9", "--search --budget 5", "--seed 9"),
        ("ab", "rounds: 6", "", "--rounds 6"),
        ("ab", "block_iterations: 12", "", "--iterations 12"),
        ("ab", "threshold: \"99%\"", "", "--threshold 99%"),
        ("ab", "fresh: true", "--rounds 6", "--fresh"),
        ("ab", "no_apart: true", "", "--no-apart"),
        ("ab", "seed: 9", "", "--seed 9"),
        ("ab", "fail_on: [\"worse\", \"cannot-tell\"]", "--threshold 0.1%", "--fail-on worse,cannot-tell"),
    ];
    for field in FIELDS.iter().filter(|field| field.commands != ["exec"]) {
        for command in field.commands {
            let is_there = cases.iter().any(|(of, fields, ..)| of == command && name(fields) == field.name);
            assert!(is_there, "no case for the field {} of {command}", field.name);
        }
    }
    let sandbox = Sandbox::new();
    sandbox.write("work.aorta", PARTS);
    for (command, field, both, option) in effort::chosen(cases) {
        let base = if command == "sweep" { SWEEP } else { AB };
        write(&sandbox, base);
        let plain = printed(&sandbox, command, "with.ron", both);
        let typed = printed(&sandbox, command, "with.ron", &format!("{both} {option}"));
        write(&sandbox, &format!("{base}, {field}"));
        let with = printed(&sandbox, command, "with.ron", both);
        assert_eq!(with, typed, "{command}: {field}");
        assert_ne!(with, plain, "{command}: {field} has no effect");
        let shown = sandbox.good(&["check", "with.ron"]);
        let row = if command == "sweep" { "  sweeps " } else { "  compares " };
        let row = shown.lines().find(|line| line.starts_with(row)).expect("`check` shows it").to_owned();
        let long = option.split_whitespace().next().expect("an option has a name");
        assert!(row.contains(long), "{field}: {row}");
    }
}

#[test]
fn options_of_a_search_need_one() {
    let sandbox = Sandbox::new();
    sandbox.write("work.aorta", PARTS);
    let fails = |fields: &str, options: &str| {
        write(&sandbox, &format!("backend: \"sim\", axes: {{\"streams\": \"1,2\"}}, {fields}"));
        let words = format!("sweep with.ron {options}");
        let output = sandbox.run(&words.split_whitespace().collect::<Vec<_>>());
        assert_eq!(output.code, Some(2), "{}", output.stderr);
        output.stderr
    };
    assert!(fails("", "--budget 8").contains("`--budget` is an option of a search"));
    assert!(fails("search: true", "--zip").contains("the scenario searches for the best case"));
    assert!(fails("search: true, zip: true", "").contains("cannot be used with"));
    assert!(fails("budget: 1", "").contains("the value of `budget`"));
}
