//! Files that teams hand to each other: complete scenarios, projects, bundles, and records that run again.

use serde_json::Value;

use super::sandbox::{Output, Sandbox};

const NET: &str = "//! A net of two layers.\nuse \"lib/blocks.aorta\"\nparam n = 64 in [16, 32, 64]\n\
    draw rows[1] ~ trace(\"rows.csv\", column: \"rows\")\nbuffer x, z: f32[n, n] = random(1)\nstream a\nstream b\n\
    step { on a { y: blocks.twice(x -> z) } on b after y { spin(1us * rows[0]) } }\n";
const BLOCKS: &str = "use \"deep/scale.aorta\"\n/// Twice.\ndef twice(x -> y) { map(x * scale.factor -> y) }\n";
const SCALE: &str = "let factor = 2";
const ROWS: &str = "rows\n1\n2\n3\n";

/// A folder with a scenario, its workload, modules and a trace.
fn project() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("nets/net.aorta", NET);
    sandbox.write("nets/lib/blocks.aorta", BLOCKS);
    sandbox.write("nets/lib/deep/scale.aorta", SCALE);
    sandbox.write("nets/rows.csv", ROWS);
    sandbox
}

fn run(sandbox: &Sandbox, command: &str) -> Output {
    sandbox.run(&command.split_whitespace().collect::<Vec<_>>())
}

#[track_caller]
fn good(sandbox: &Sandbox, command: &str) -> String {
    sandbox.good(&command.split_whitespace().collect::<Vec<_>>())
}

#[track_caller]
fn refused(sandbox: &Sandbox, command: &str, says: &[&str]) {
    let output = run(sandbox, command);
    assert_eq!(output.code, Some(2), "{command}: {output:?}");
    let flat = output.stderr.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
    for says in says {
        assert!(flat.contains(says), "{command}: `{says}` is not in {flat}");
    }
}

fn plan(record: &Value) -> &str {
    record["program"]["plan"].as_str().expect("a record has the plan's hash")
}

#[test]
fn a_scenario_says_all_that_a_run_can() {
    let sandbox = project();
    sandbox.write(
        "all.ron",
        r#"(description: "All", authors: ["A team"], licence: "MIT", workload: "nets/net.aorta", params: {"n": "32"},
            sync: end, cycle: 3, environment: {"CUDA_DEVICE_MAX_CONNECTIONS": "4"}, backend: "sim", profile: "mi300x",
            launch: "both", gate: off, cache: cold, data: ones, effort: quick, warmup: 3, iterations: 7,
            timeout: "9s", settings: {"in_flight": "3"}, limits: {"time": (to: "1s")})"#,
    );
    good(&sandbox, "exec all.ron --json all.json");
    let record = sandbox.json("all.json");
    let settings = &record["settings"];
    for (name, value) in [("launch", "both"), ("gate", "off"), ("cache", "cold"), ("data", "ones"), ("sync", "end")] {
        assert_eq!(settings[name], value, "{name}");
    }
    for (name, value) in [("warmup", 3), ("iterations", 7), ("in_flight", 3)] {
        assert_eq!(settings[name], value, "{name}");
    }
    assert_eq!(record["program"]["cycle"], 3);
    assert_eq!(record["device"]["name"], "AMD Instinct MI300X (simulated)");
    // Flags and `--config` come first.
    let flags = "exec all.ron --json all.json --config gate=auto --cache hot --iterations 2 --config in_flight=1 --config profile=h200";
    good(&sandbox, flags);
    let record = sandbox.json("all.json");
    let settings = &record["settings"];
    assert_eq!(
        (&settings["gate"], &settings["cache"], &settings["data"]),
        (&"auto".into(), &"hot".into(), &"ones".into())
    );
    assert_eq!(
        (&settings["iterations"], &settings["in_flight"], &settings["warmup"]),
        (&2.into(), &1.into(), &3.into())
    );
    assert_eq!(record["device"]["name"], "NVIDIA H200 (simulated)");
    // An emulated world, and a number of ranks in its place.
    sandbox
        .write("wide.ron", r#"(workload: "moe", preset: "tiny", backend: "sim", emulate: 4, rank: 2, effort: quick)"#);
    good(&sandbox, "exec wide.ron --json wide.json");
    assert_eq!(sandbox.json("wide.json")["emulated"], 4);
    good(&sandbox, "exec wide.ron --ranks 2 --json wide.json");
    assert_eq!(sandbox.json("wide.json")["settings"]["ranks"], 2);
}

#[test]
fn a_mistake_names_the_field() {
    let sandbox = project();
    let wrong = [
        ("gate: of", &["`of` is none of `auto` and `off`"][..]),
        ("backend: \"gpu\"", &["`gpu` is none of", "the value of `backend`"]),
        ("timeout: \"5\"", &["`timeout` cannot be 5", "write `\"5s\"`"]),
        ("warmup: 9999999", &["`warmup` cannot be `9999999`"]),
        ("settings: {\"in_flihgt\": \"3\"}", &["did you mean `in_flight`?"]),
        ("settings: {\"allow_kernels\": \"true\"}", &["aorta::config::refused_setting", "a.ron sets `allow_kernels`"]),
        ("settings: {\"max_memory\": \"2TiB\"}", &["aorta::config::refused_setting"]),
        ("environment: {\"LD_PRELOAD\": \"x\"}", &["aorta::config::refused_variable"]),
        ("settings: {\"profile\": \"/etc/own.ron\"}", &["a path has a field of its own"]),
        ("settings: {\"topology\": \"\\\"/etc/own.ron\\\"\"}", &["a path has a field of its own"]),
        ("expected: \"/etc/ranges.ron\"", &["aorta::cli::out_of_reach"]),
        ("topology: \"../x.ron\"", &["aorta::cli::out_of_reach"]),
        ("limits: {\"time\": ()}", &["limits[\"time\"]", "neither a beginning nor an end"]),
        ("efort: quick", &["did you mean `effort`?"]),
    ];
    for (field, says) in wrong {
        sandbox.write("a.ron", format!("(workload: \"nets/net.aorta\", {field})"));
        refused(&sandbox, "exec a.ron --backend sim", says);
    }
}

#[test]
fn a_limit_fails_a_measurement() {
    let sandbox = project();
    let run = |limit: &str, effort: &str| {
        sandbox.write("a.ron", format!("(workload: \"nets/net.aorta\", backend: \"sim\", limits: {{{limit}}})"));
        let output = run(&sandbox, &format!("exec a.ron --effort {effort} --json a.json"));
        (output.code, sandbox.json("a.json")["variants"][0]["expectations"][0]["verdict"].clone())
    };
    assert_eq!(run("\"time\": (to: \"1ns\")", "full"), (Some(1), "failed".into()));
    assert_eq!(run("\"time\": (from: \"1ns\")", "full"), (Some(0), "held".into()));
    assert_eq!(run("\"nothing\": (from: 1)", "full").0, Some(2), "it is refused before the run");
    assert_eq!(run("\"time\": (to: \"1ns\")", "sanity"), (Some(0), "skipped".into()));
    // In the unit of a metric, with a decimal prefix.
    sandbox.write("nets/net.aorta", format!("{NET}metric rate = n / time \"rows/s\""));
    assert_eq!(run("\"rate\": (from: \"0.001k rows/s\", to: \"1T rows/s\")", "full"), (Some(0), "held".into()));
    assert_eq!(run("\"rate\": (from: \"1T rows/s\")", "full"), (Some(1), "failed".into()));
    assert_eq!(run("\"rate\": (from: 1)", "full").0, Some(2), "the metric has a unit");
    sandbox.write("a.ron", "(workload: \"nets/net.aorta\", limits: {\"rate\": (from: \"1M row/s\")})");
    refused(&sandbox, "check a.ron", &["the limit `rate`", "it is in rows/s", "\"1M rows/s\""]);
}

#[test]
fn axes_of_a_scenario_make_a_sweep() {
    let sandbox = project();
    sandbox.write(
        "a.ron",
        r#"(workload: "nets/net.aorta", backend: "sim", axes: {"set n": "16,32", "config in_flight": "1,2"})"#,
    );
    good(&sandbox, "sweep a.ron --effort quick --json a.jsonl");
    assert_eq!(sandbox.read("a.jsonl").lines().count(), 5);
    good(&sandbox, "sweep a.ron --effort quick --set n=16,32,64 --json b.jsonl");
    assert_eq!(sandbox.read("b.jsonl").lines().count(), 7);
    for (axes, says) in [
        ("\"sett n\": \"1,2\"", "it is not an option of `aorta sweep`"),
        ("\"config max_memory\": \"1GiB,2GiB\"", "aorta::config::refused_setting"),
        ("\"env LD_PRELOAD\": \"a,b\"", "aorta::config::refused_variable"),
    ] {
        sandbox.write("a.ron", format!("(workload: \"nets/net.aorta\", backend: \"sim\", axes: {{{axes}}})"));
        refused(&sandbox, "sweep a.ron --effort quick", &[says]);
    }
}

#[test]
fn sides_of_a_scenario_are_compared() {
    let sandbox = project();
    let scenario = |sides: &str| format!("(workload: \"nets/net.aorta\", backend: \"sim\", sides: {{{sides}}})");
    sandbox.write("a.ron", scenario("\"b\": \"--launch graph --set n=16\""));
    good(&sandbox, "ab a.ron --rounds 8 --json ab.json");
    assert!(sandbox.read("ab.json").contains("--launch"), "the sides are the scenario's");
    for (sides, says) in [
        ("\"c\": \"\"", "the sides are `a` and `b`"),
        ("\"b\": \"--allow-kernels\"", "a scenario cannot give `--allow-kernels`"),
        ("\"b\": \"--json=results/x\"", "a scenario cannot give `--json`"),
        ("\"b\": \"--expected=/etc/x.ron\"", "a scenario cannot give `--expected`"),
        ("\"b\": \"/etc/passwd\"", "unexpected argument"),
        ("\"b\": \"--env LD_PRELOAD=x\"", "aorta::config::refused_variable"),
        ("\"b\": \"--config allow_kernels=true\"", "aorta::config::refused_setting"),
        ("\"b\": \"--config profile=/etc/x.ron\"", "a path has a field of its own"),
    ] {
        sandbox.write("a.ron", scenario(sides));
        refused(&sandbox, "ab a.ron", &[says]);
    }
}

/// A bundle, the folder of it and a bundle of that are the same, and all run by the same plan; whatever the scenario
/// names its workload by.
#[test]
fn bundles_of_folders_of_bundles_are_identical() {
    let scenarios = [
        ("team.ron", r#"(workload: "nets/net.aorta", params: {"n": "16"}, backend: "sim", effort: quick)"#),
        ("deep/team.ron", r#"(workload: "../nets/net.aorta", backend: "sim", effort: quick, streams: 1)"#),
        (
            "nets/team.ron",
            r#"(workload: "net.aorta", backend: "sim", effort: quick, profile: "mi300x", licence: "MIT")"#,
        ),
        (
            "team.ron",
            r#"(workload: "net", backend: "sim", effort: quick, environment: {"CUDA_DEVICE_MAX_CONNECTIONS": "2"})"#,
        ),
        ("team.ron", r#"(workload: "moe", preset: "tiny", backend: "sim", effort: quick, ranks: 2)"#),
        (
            "team.ron",
            r#"(workload: "gemm", backend: "sim", effort: quick, profile: "devices/own.ron", expected: "own.ron")"#,
        ),
    ];
    for (file, scenario) in crate::common::effort::due(scenarios) {
        let sandbox = project();
        sandbox.write("aorta.ron", "(library: [\"nets\"])");
        let own = super::sandbox::project().join("config/devices/h200.ron");
        sandbox.write("devices/own.ron", std::fs::read(own).expect("the profile is there"));
        sandbox.write("own.ron", "(description: \"own\", device: \"NVIDIA H200 (simulated)\", ranges: [])");
        if scenario.contains("\"gemm\"") {
            sandbox.write("nets/gemm.aorta", NET);
            sandbox.write(
                "own.ron",
                std::fs::read(super::sandbox::project().join("config/expected/h200.ron")).expect("there"),
            );
        }
        sandbox.write(file, scenario);
        good(&sandbox, &format!("exec {file} --json before.json"));
        good(&sandbox, &format!("bundle {file} --record before.json -o a.aortab"));
        let name = file.rsplit('/').next().expect("a name");
        good(&sandbox, "unbundle a.aortab -o far/copy");
        let runs = sandbox.read("a.aortab").lines().find_map(|line| Some(line.strip_prefix("runs: ")?.to_owned()));
        let runs = runs.expect("a bundle runs something");
        assert!(runs.ends_with(name), "{runs}");
        good(&sandbox, &format!("bundle far/copy/{runs} --record far/copy/record.json -o b.aortab"));
        assert_eq!(sandbox.read("a.aortab"), sandbox.read("b.aortab"), "{scenario}");
        good(&sandbox, "bundle a.aortab --record before.json -o c.aortab");
        assert_eq!(sandbox.read("a.aortab"), sandbox.read("c.aortab"), "{scenario}");
        // Elsewhere, the bundle is enough.
        let other = Sandbox::new();
        other.write("a.aortab", sandbox.read("a.aortab"));
        good(&other, "exec a.aortab --json after.json");
        let (before, after) = (sandbox.json("before.json"), other.json("after.json"));
        assert_eq!(plan(&before), plan(&after), "{scenario}");
        assert_eq!(before["workload"]["sha256"], after["workload"]["sha256"]);
        for command in [
            "check a.aortab",
            "show a.aortab",
            "plan a.aortab",
            "plan --diff a.aortab a.aortab",
            "report a.aortab",
            "dump plan a.aortab",
        ] {
            good(&other, command);
        }
        let compared = run(&other, "compare a.aortab after.json");
        assert!(compared.code == Some(0) && !compared.stdout.contains("doubtful"), "{scenario}: {compared:?}");
        // The same operations, although one side names them by the bundle: each row has a change, and none a single side.
        let rows = compared.stdout.split("Operations, timed").skip(1).flat_map(|table| table.lines().skip(2));
        let single = rows.take_while(|row| !row.is_empty()).find(|row| row.ends_with('–'));
        assert_eq!(single, None, "{scenario}: {}", compared.stdout);
    }
}

/// The record of a run repeats it, without any other file.
#[test]
fn a_record_runs_again_by_the_same_plan() {
    let commands = [
        "team.ron",
        "nets/net.aorta --backend sim --effort quick --set n=16 --sync end --config in_flight=3",
        "nets/net.aorta --backend sim --effort quick --config profile=own.ron --launch both --gate off",
        "moe --preset tiny --backend sim --ranks 2 --effort quick --streams 4",
        "moe --preset tiny --backend sim --emulate 4 --rank 1 --effort quick",
        "hetero_kernels --preset tiny --backend sim --effort quick --warmup 2 --iterations 4",
        "team.aortab --set n=16 --timeout 7s",
    ];
    for command in commands {
        let sandbox = project();
        sandbox.write("team.ron", r#"(workload: "nets/net.aorta", params: {"n": "32"}, backend: "sim", effort: quick, limits: {"time": (to: "1s")})"#);
        let own = super::sandbox::project().join("config/devices/mi300x.ron");
        sandbox.write("own.ron", std::fs::read(own).expect("the profile is there"));
        good(&sandbox, "bundle team.ron");
        let first = run(&sandbox, &format!("exec {command} --json first.json"));
        assert_eq!(first.code, Some(0), "{command}: {first:?}");
        let other = Sandbox::new();
        other.write("first.json", sandbox.read("first.json"));
        let printed = good(&other, "exec first.json --json second.json");
        assert!(printed.contains("Repeats first.json of ") && printed.contains("the plan is the same"), "{printed}");
        let (first, second) = (other.json("first.json"), other.json("second.json"));
        assert_eq!(plan(&first), plan(&second), "{command}");
        assert_eq!(first["settings"], second["settings"], "{command}");
        assert_eq!(first["workload"]["params"], second["workload"]["params"], "{command}");
        assert_eq!(first["device"]["name"], second["device"]["name"], "{command}");
        assert_eq!(first["variants"][0]["time"]["p50_ns"], second["variants"][0]["time"]["p50_ns"], "{command}");
        // A record of a record holds the same text.
        assert_eq!(first["source"], second["source"], "{command}");
        let compared = good(&other, "compare first.json second.json");
        assert!(!compared.contains("doubtful"), "{compared}");
    }
}

#[test]
fn what_differs_here_is_listed() {
    let sandbox = project();
    good(&sandbox, "exec nets/net.aorta --backend sim --effort quick --json a.json");
    let printed = good(&sandbox, "exec a.json --config profile=mi300x");
    assert!(printed.contains("  device: NVIDIA H200 (simulated) → AMD Instinct MI300X (simulated)"), "{printed}");
}

#[test]
fn a_record_without_text_says_what_is_missing() {
    let sandbox = project();
    good(&sandbox, "exec moe --preset tiny --backend sim --effort quick --config record_text=false --json a.json");
    assert!(sandbox.json("a.json")["source"].is_null());
    refused(&sandbox, "exec a.json", &["aorta::cli::no_source", "a.json does not contain the text of moe.aorta"]);
    good(&sandbox, "report a.json");
    // Cases hold no text: the header names the command.
    good(&sandbox, "sweep moe --preset tiny --backend sim --effort quick --set tokens=16,32 --json s.jsonl");
    assert!(!sandbox.read("s.jsonl").contains("\"source\""));
}

#[test]
fn a_changed_part_is_named() {
    let sandbox = project();
    sandbox.write("team.ron", r#"(workload: "nets/net.aorta", backend: "sim", effort: quick)"#);
    good(&sandbox, "bundle team.ron");
    sandbox.write("b.aortab", sandbox.read("team.aortab").replace("|let factor = 2", "|let factor = 3"));
    for command in ["exec", "check", "plan"] {
        refused(
            &sandbox,
            &format!("{command} b.aortab"),
            &["aorta::config::changed_part", "`nets/lib/deep/scale.aorta`"],
        );
    }
    let shown = run(&sandbox, "show b.aortab").stdout;
    assert!(
        shown.lines().any(|line| line.contains("scale.aorta") && line.ends_with("changed after it was bundled")),
        "{shown}"
    );
    good(&sandbox, "unbundle b.aortab -o b");
    assert_eq!(sandbox.read("b/nets/lib/deep/scale.aorta"), "let factor = 3");
    refused(&sandbox, "unbundle b.aortab -o b", &["aorta::cli::unwritable"]);
    sandbox.write("new.aortab", sandbox.read("team.aortab").replace("language: 1", "language: 99"));
    refused(&sandbox, "exec new.aortab", &["aorta::cli::newer_bundle", "version 99 of the language"]);
}

/// Nothing in a bundle or a record leaves it, or permits anything.
#[test]
fn a_bundle_reaches_its_parts_only() {
    let sandbox = project();
    sandbox.write("secret.aorta", "step { nop() }");
    sandbox.write("k.aorta", "//! A kernel.\nbuffer x: f32[64]\nkernel fill(-> y: f32[64]) { source: \"extern \\\"C\\\" __global__ void fill(float* y) { y[threadIdx.x] = 1.0f; }\", grid: [1], block: [64] }\nstep { fill(-> x) }\n");
    let text = |runs: &str, scenario: &str| {
        format!("aorta bundle 1\nlanguage: 1\nruns: {runs}\n== {runs} text HASH\n|{scenario}\n")
    };
    let hashed = |text: String| {
        use sha2::{Digest, Sha256};
        let contents: String =
            text.lines().filter_map(|line| line.strip_prefix('|')).map(|line| format!("{line}\n")).collect();
        let hash: String = Sha256::digest(contents).iter().map(|byte| format!("{byte:02x}")).collect();
        text.replace("HASH", &hash)
    };
    let outside = [
        ("a.ron", "(workload: \"../secret.aorta\")", "aorta::cli::out_of_reach"),
        ("a.ron", "(workload: \"secret.aorta\")", "aorta::cli::out_of_reach"),
        ("a.ron", "(workload: \"/etc/passwd\")", "aorta::cli::out_of_reach"),
        ("a.ron", "(workload: \"moe\", profile: \"../own.ron\")", "aorta::cli::out_of_reach"),
        ("a.ron", "(workload: \"moe\", settings: {\"allow_kernels\": \"true\"})", "aorta::config::refused_setting"),
        ("a.ron", "(workload: \"moe\", environment: {\"LD_PRELOAD\": \"x\"})", "aorta::config::refused_variable"),
        ("a.aorta", "use \"../secret.aorta\"", "aorta::model::unknown_module"),
        ("a.aorta", "use \"secret.aorta\"", "aorta::model::unknown_module"),
        ("n/a.aorta", "use \"../../secret.aorta\"", "aorta::model::unknown_module"),
    ];
    for (runs, scenario, code) in outside {
        sandbox.write("x/b.aortab", hashed(text(runs, scenario)));
        for command in ["exec x/b.aortab --backend sim", "check x/b.aortab", "plan x/b.aortab", "show x/b.aortab"] {
            refused(&sandbox, command, &[code]);
        }
    }
    for name in ["../a.ron", "/a.ron", ".hidden/a.ron", "a/../b.ron", "a//b.ron"] {
        sandbox.write("b.aortab", text(name, "()"));
        refused(&sandbox, "exec b.aortab", &["aorta::config::bad_bundle"]);
        refused(&sandbox, "unbundle b.aortab -o out", &["aorta::config::bad_bundle"]);
        let record = serde_json::json!({ "runs": name, "parts": { (name): "()" } });
        good(&sandbox, "exec moe --preset tiny --backend sim --effort quick --json r.json");
        let mut edited = sandbox.json("r.json");
        edited["source"] = record;
        sandbox.write("r.json", edited.to_string());
        refused(&sandbox, "exec r.json", &["aorta::cli::no_record", "`source`"]);
    }
    // What a bundle would set is shown before it runs.
    sandbox.write(
        "b.aortab",
        hashed(text("a.ron", "(workload: \"moe\", preset: \"tiny\", environment: {\"NCCL_DEBUG\": \"WARN\"})")),
    );
    assert!(good(&sandbox, "show b.aortab").contains("  sets      NCCL_DEBUG=WARN\n"));
}

#[test]
fn a_project_has_a_library() {
    let sandbox = project();
    sandbox.write("aorta.ron", "(description: \"Our nets\", library: [\"nets\", \"runs\"])");
    sandbox.write("runs/quick.ron", r#"(description: "A first look", workload: "net", backend: "sim", effort: quick)"#);
    sandbox.write(
        "runs/gate.ron",
        r#"(description: "What must hold", cases: [(workload: "net"), (workload: "moe", preset: "tiny")])"#,
    );
    let listed = good(&sandbox, "list");
    for row in [
        "project .: Our nets",
        "  nets/net.aorta             A net of two layers.",
        "  runs/quick.ron             A first look",
    ] {
        assert!(listed.lines().any(|line| line == row), "{row} is not in {listed}");
    }
    assert!(listed.contains("What must hold (2 cases)") && listed.contains("\n  moe "), "{listed}");
    assert!(good(&sandbox, "check net").starts_with("nets/net.aorta: good"));
    // A note names the other files that a bare name could mean; a path has no other meaning.
    sandbox.write("runs/net.ron", "(workload: \"net\")");
    let note = "note: `net` means nets/net.aorta here; for another file, write `runs/net.ron`";
    let said = run(&sandbox, "exec net --backend sim --effort sanity").stderr;
    assert_eq!(said.matches(note).count(), 1, "{said}");
    assert!(!run(&sandbox, "exec nets/net.aorta --backend sim --effort sanity").stderr.contains("note: `net`"));
    std::fs::remove_file(sandbox.path("runs/net.ron")).expect("it was written");
    good(&sandbox, "exec quick --json q.json");
    assert_eq!(sandbox.json("q.json")["workload"]["name"], "nets/net.aorta");
    for command in [
        "show quick",
        "show net",
        "show gate",
        "plan quick",
        "check quick gate",
        "suite gate --backend sim --effort quick",
        "new mine --from net",
    ] {
        good(&sandbox, command);
    }
    assert!(good(&sandbox, "suite").lines().any(|line| line.starts_with("gate ") && line.ends_with("What must hold")));
    assert_eq!(sandbox.read("mine.aorta"), NET);
    // A project's file comes before a shipped one, and two of one name are ambiguous.
    sandbox.write("nets/moe.aorta", "step { nop() }");
    assert!(good(&sandbox, "check moe").starts_with("nets/moe.aorta: good: 1 operation"));
    sandbox.write("runs/net.aorta", NET);
    refused(&sandbox, "check net", &["aorta::cli::several_files", "nets/net.aorta and runs/net.aorta"]);
    for library in ["..", "/etc", "a/../.."] {
        sandbox.write("aorta.ron", format!("(library: [{library:?}])"));
        refused(&sandbox, "check net", &["aorta::config::bad_value", "a library has to be below the project's folder"]);
    }
}

#[test]
fn suites_are_checked_shown_and_formatted() {
    let sandbox = project();
    sandbox.write("s.ron", "(description:\"d\",cases:[(workload:\"nets/net.aorta\", // why\n launch: graph)])");
    assert!(good(&sandbox, "check s.ron").starts_with("s.ron: good: 1 case\n"));
    good(&sandbox, "show s.ron");
    assert_eq!(run(&sandbox, "fmt --check s.ron").code, Some(1));
    good(&sandbox, "fmt s.ron");
    let expected = "(\n    description: \"d\",\n    cases: [\n        (\n            workload: \"nets/net.aorta\", // why\n            launch: graph,\n        ),\n    ],\n)\n";
    assert_eq!(sandbox.read("s.ron"), expected);
    good(&sandbox, "fmt --check s.ron");
    sandbox.write("s.ron", "(description: \"d\", cases: [(workload: \"nets/nothing.aorta\")])");
    refused(&sandbox, "check s.ron", &["no shipped workload `nets/nothing.aorta`"]);
    sandbox.write("bad.ron", "(a: [)");
    refused(&sandbox, "fmt bad.ron", &["aorta::cli::unreadable"]);
}

/// Commands that take no bundle, or another file than it runs, leave it as it is and say what to type.
#[test]
fn commands_for_other_files_keep_a_bundle() {
    let sandbox = project();
    sandbox.write("a.ron", "(workload: \"nets/net.aorta\", authors: [\"A\"], backend: \"sim\", effort: quick)");
    good(&sandbox, "exec a.ron --json a.json");
    good(&sandbox, "bundle a.ron --record a.json -o a.aortab");
    let text = sandbox.read("a.aortab");
    refused(&sandbox, "fmt a.aortab", &["a bundle or a record has one form", "`aorta unbundle a.aortab`"]);
    refused(&sandbox, "suite a.aortab", &["it is a scenario", "aorta exec a.aortab/a.ron"]);
    good(&sandbox, "view a.aortab -o page.html");
    assert_eq!(sandbox.read("a.aortab"), text);
    assert!(sandbox.read("page.html").contains("nets/net.aorta"));
}

#[test]
fn a_bundle_says_that_it_replaced_one_with_a_record() {
    let sandbox = project();
    good(&sandbox, "exec nets/net.aorta --backend sim --effort quick --json net.json");
    good(&sandbox, "bundle nets/net.aorta --record net.json");
    let said = "Replaced net.aortab, which held a record; add `--record RECORD` to keep one.";
    let replaced = run(&sandbox, "bundle nets/net.aorta");
    assert!(replaced.code == Some(0) && replaced.stderr.contains(said), "{replaced:?}");
    let again = run(&sandbox, "bundle nets/net.aorta");
    assert!(!again.stderr.contains("Replaced"), "{again:?}");
}

#[test]
fn parts_that_cannot_run_are_shown_as_texts() {
    let sandbox = project();
    good(&sandbox, "bundle nets/net.aorta -o net.aortab");
    assert_eq!(good(&sandbox, "show net.aortab/lib/blocks.aorta"), BLOCKS);
    assert_eq!(good(&sandbox, "show net.aortab/rows.csv"), ROWS);
    assert!(good(&sandbox, "show net.aortab/net.aorta").contains("net.aorta: good"));
}

#[test]
fn modules_ranges_and_projects_are_checked_as_what_they_are() {
    let sandbox = project();
    let ranges = r#"(devices: ["NVIDIA H200"], sources: {"us": measured("our wiki")}, ranges: [(name: "a copy",
        figure: bandwidth, operation: "copy", normal: (from: "40GB/s"), seen: "50 GB/s", source: "us")])"#;
    sandbox.write("normal.ron", ranges);
    sandbox.write("aorta.ron", r#"(library: ["."])"#);
    assert_eq!(good(&sandbox, "check normal.ron"), "normal.ron: good: 1 range for NVIDIA H200\n");
    assert_eq!(good(&sandbox, "check aorta.ron"), "aorta.ron: good: project with the library .\n");
    assert!(good(&sandbox, "list").contains("normal.ron                 1 range for NVIDIA H200\n"));
    assert_eq!(good(&sandbox, "show normal.ron"), ranges);
    let checked = good(&sandbox, "check nets/lib/blocks.aorta");
    assert_eq!(checked, "nets/lib/blocks.aorta: good: a module, which uses 1 other file\n");
    sandbox.write("bad.aorta", "def twice(x -> y) { map(z * 2 -> y) }\n");
    refused(&sandbox, "check bad.aorta", &["`z`", "bad.aorta:1:"]);
}

#[test]
fn a_check_reads_ranges_and_limits() {
    let sandbox = project();
    let net = format!("{NET}metric rate = n / time \"rows/s\"\nmetric hidden = overlap(y, y)\n");
    sandbox.write("nets/net.aorta", net);
    sandbox.write(
        "broken.ron",
        r#"(devices: ["A"], sources: {"us": measured("a")}, ranges: [(name: "a",
        figure: bandwidth, bytes: (from: "1 Foo"), normal: (from: "1GB/s"), seen: "a", source: "us")])"#,
    );
    let wrong: [(&str, &[&str]); 4] = [
        ("expected: \"nosuch.ron\"", &["nosuch.ron cannot be read"]),
        ("expected: \"broken.ron\"", &["broken.ron", "1 Foo"]),
        ("limits: {\"hiden\": (from: 1)}", &["a limit cannot be `hiden`", "did you mean `hidden`?"]),
        ("limits: {\"rate\": (from: \"5us\")}", &["the limit `rate`", "rows/s", "1M rows/s"]),
    ];
    for (field, says) in wrong {
        sandbox.write("a.ron", format!("(workload: \"nets/net.aorta\", backend: \"sim\", {field})"));
        refused(&sandbox, "check a.ron", says);
        refused(&sandbox, "bundle a.ron", &says[..1]);
    }
}
