//! The output of each command.

use super::sandbox::{Sandbox, project, workloads};

/// Compares with a snapshot.
macro_rules! snapshot {
    ($name:literal, $text:expr) => {
        insta::with_settings!({ snapshot_path => "../snapshots", omit_expression => true }, {
            insta::assert_snapshot!($name, $text);
        })
    };
}

#[test]
fn list_names_every_shipped_file() {
    let listed = Sandbox::new().good(&["list"]);
    for path in workloads("workloads") {
        let stem = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        assert!(listed.contains(&format!("\n  {stem}  ")), "{stem} is not in\n{listed}");
    }
    snapshot!("list", listed);
}

#[test]
fn show_describes_every_shipped_file() {
    let sandbox = Sandbox::new();
    for path in workloads("workloads") {
        let stem = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("a workload is text");
        let shown = sandbox.good(&["show", &stem]);
        let about = text.lines().next().and_then(|line| line.strip_prefix("//! ")).expect("a file has a description");
        assert!(shown.starts_with(&format!("{stem}.aorta (")) && shown.contains(about), "{shown}");
        assert_eq!(sandbox.good(&["show", &stem, "--source"]), text, "the library's {stem} is another");
    }
}

#[test]
fn show_moe() {
    snapshot!("show_moe", Sandbox::new().good(&["show", "moe"]));
}

#[test]
fn check_accepts_every_file() {
    let sandbox = Sandbox::new();
    for folder in ["workloads", "examples"] {
        for path in crate::common::effort::due(workloads(folder)) {
            let checked = sandbox.good(&["check".as_ref(), path.as_os_str()]);
            assert!(checked.contains(": good: "), "{checked}");
        }
    }
}

#[test]
fn check_goes_on_after_a_mistake() {
    let sandbox = Sandbox::new();
    sandbox.write("good.aorta", "step { nop() }");
    sandbox.write("first.aorta", "step { nopp() }");
    sandbox.write("second.aorta", "step { spin(3) }");
    let output = sandbox.run(&["check", "first.aorta", "good.aorta", "second.aorta"]);
    assert_eq!(output.code, Some(2));
    assert!(output.stdout.starts_with("good.aorta: good: "), "{}", output.stdout);
    let [first, second] = ["first.aorta:1:8", "second.aorta:1:"].map(|place| output.stderr.find(place));
    assert!(first.is_some() && first < second, "{}", output.stderr);
    assert_eq!(sandbox.run::<&str>(&["check"]).code, Some(2), "no file was named");
}

#[test]
fn plan_gives_reasons() {
    let text = std::fs::read(project().join("examples/03-dependencies.aorta")).expect("it is there");
    let sandbox = Sandbox::new();
    sandbox.write("a.aorta", text);
    snapshot!("plan_dependencies", sandbox.good(&["plan", "a.aorta"]));
}

#[test]
fn plan_takes_parameters() {
    let sandbox = Sandbox::new();
    let streams = |text: &str| text.lines().find(|line| line.contains(" streams, ")).map(str::to_owned);
    let four = streams(&sandbox.good(&["plan", "moe", "--preset", "tiny"]));
    let eight = streams(&sandbox.good(&["plan", "moe", "--preset", "tiny", "--streams", "8"]));
    assert!(four.as_ref().is_some_and(|line| line.starts_with("4 streams, ")), "{four:?}");
    assert!(eight.as_ref().is_some_and(|line| line.starts_with("8 streams, ")), "{eight:?}");
}

/// Each form of a plan and each stage is printed; the forms have tests of their own.
#[test]
fn plans_and_stages_are_printed() {
    let sandbox = Sandbox::new();
    for (format, beginning) in
        [("text", "moe.aorta (preset tiny): "), ("json", "{"), ("dot", "digraph"), ("mermaid", "---")]
    {
        let printed = sandbox.good(&["plan", "moe", "--preset", "tiny", "--format", format]);
        assert!(printed.starts_with(beginning) && printed.contains("scores"), "{printed}");
        assert!(printed.contains("NVIDIA H200") && printed.ends_with('\n'), "{printed}");
    }
    for stage in ["ast", "model", "plan", "schedule", "trace"] {
        let printed = sandbox.good(&["dump", stage, "moe", "--preset", "tiny"]);
        assert!(printed.contains("scores") && printed.ends_with('\n'), "{printed}");
        assert_eq!(printed.contains("(simulated)"), stage == "trace", "{printed}");
    }
    // Parameters affect every stage except the first.
    let streams = |n: &str| sandbox.good(&["dump", "schedule", "moe", "--preset", "tiny", "--streams", n]);
    assert_eq!([streams("3"), streams("5")].map(|text| text.matches("\nlane ").count() + 1), [3, 5]);
    let mi300x = sandbox.good(&["dump", "trace", "moe", "--preset", "tiny", "--config", "profile=mi300x"]);
    assert!(mi300x.starts_with("AMD Instinct MI300X"), "{mi300x}");
}

#[test]
fn plans_are_compared() {
    let sandbox = Sandbox::new();
    let plan = |more: &[&str]| sandbox.good(&[&["plan", "moe", "--preset", "tiny", "--format", "json"], more].concat());
    sandbox.write("four.json", plan(&[]));
    sandbox.write("three.json", plan(&["--streams", "3"]));
    let same = sandbox.run(&["plan", "--diff", "moe", "four.json", "--preset", "tiny"]);
    assert_eq!((same.code, same.stdout.as_str()), (Some(0), "the plans are the same\n"), "{}", same.stderr);
    let other = sandbox.run(&["plan", "--diff", "four.json", "three.json"]);
    assert_eq!((other.code, other.stderr.as_str()), (Some(1), ""));
    assert!(other.stdout.contains("\n~ #9 gate: gemm moved from expert[1] to expert[0]\n"), "{}", other.stdout);

    // The size of the world changes no operation that works on one rank.
    sandbox.write("one.aorta", "buffer x, y: f32[64, 64]\nstep { g: gemm(x, x) map(g * 2 -> y) }");
    for ranks in ["1", "2"] {
        let plan = sandbox.good(&["plan", "one.aorta", "--ranks", ranks, "--format", "json"]);
        sandbox.write(&format!("ranks{ranks}.json"), plan);
    }
    let other = sandbox.run(&["plan", "--diff", "ranks1.json", "ranks2.json"]);
    assert_eq!(other.code, Some(1));
    assert_eq!(other.stdout, "- one.aorta\n+ one.aorta\n\nfigures\n~ ranks: 1 -> 2\n");

    // What an operation computes and what a buffer holds count too.
    sandbox.write("a.aorta", "buffer x: f32[64] = ones\nstep { m: map(x * 2 -> x) map(x + 1 -> x) }");
    sandbox.write("b.aorta", "buffer x: f32[64]\nstep { m: map(x * 3 -> x) map(x + 1 -> x) }");
    let other = sandbox.run(&["plan", "--diff", "a.aorta", "b.aorta"]);
    assert_eq!(other.code, Some(1), "{other:?}");
    let differences: Vec<&str> = other.stdout.lines().filter(|line| line.starts_with('~')).collect();
    let changed = "~ #0 m: map has other options or another expression: a.aorta:2:11 -> b.aorta:2:11";
    assert_eq!(differences, [changed, "~ initial values of buffers differ"]);
}

/// A drawing that is too large is written with a warning.
#[test]
fn large_drawings_come_with_a_warning() {
    let sandbox = Sandbox::new();
    sandbox.write("a.aorta", "param n = 100\nstep { for i in 0..n { nop() } }");
    for (format, n, warned) in [
        ("dot", "2000", false),
        ("dot", "2001", true),
        ("mermaid", "501", false),
        ("mermaid", "502", true),
        ("text", "3000", false),
    ] {
        let output = sandbox.run(&["plan", "a.aorta", "--set", &format!("n={n}"), "--format", format]);
        assert_eq!((output.code, output.stdout.is_empty()), (Some(0), false), "{}", output.stderr);
        assert_eq!(output.stderr.starts_with("warning: the plan has "), warned, "{format} {n}: {}", output.stderr);
    }
}

#[test]
fn devices_names_what_a_run_can_use() {
    let shown = Sandbox::new().good(&["devices"]);
    for part in ["CUDA devices", "HIP devices", "--backend host", "h200      NVIDIA H200", "mi300x    AMD"] {
        assert!(shown.contains(part), "{part:?} is not in\n{shown}");
    }
}

#[test]
fn exec_moe() {
    let arguments = ["exec", "moe", "--preset", "tiny", "--backend", "sim"];
    snapshot!("exec_moe", Sandbox::new().good(&arguments));
}

#[test]
fn exec_both_ways() {
    let arguments = ["exec", "moe", "--preset", "tiny", "--backend", "sim", "--launch", "both", "--effort", "quick"];
    let printed = Sandbox::new().good(&arguments);
    assert!(printed.contains("  as streams, simulated  as a graph, simulated\n"), "{printed}");
    snapshot!("exec_both", printed);
}

/// Singular forms, and a file without a description.
#[test]
fn a_small_file_is_summarized_correctly() {
    let sandbox = Sandbox::new();
    sandbox.write("one.aorta", "step { spin(1us) }");
    assert_eq!(sandbox.good(&["check", "one.aorta"]), "one.aorta: good: 1 operation on 1 stream\n");
    let planned = sandbox.good(&["plan", "one.aorta"]);
    assert!(planned.contains("\n1 operation, ") && planned.contains("\n1 stream, 0 waits between them, "), "{planned}");
    let printed = sandbox.good(&["exec", "one.aorta", "--backend", "sim"]);
    assert!(printed.starts_with("one.aorta\n1 operation on 1 stream of "), "{printed}");
}

/// Iterations that differ are summarized by their mean.
#[test]
fn a_cycle_is_summarized_by_its_mean() {
    let sandbox = Sandbox::new();
    sandbox.write("a.aorta", "buffer x: f32[1024]\nstep { if iteration % 4 == 1 { fill(1 -> x) fill(2 -> x) } nop() }");
    let checked = sandbox.good(&["check", "a.aorta"]);
    assert_eq!(checked, "a.aorta: good: 6 operations on 1 stream in a cycle of 4 iterations\n");
    let printed = sandbox.good(&["exec", "a.aorta", "--backend", "sim", "--json", "a.json"]);
    let said = "An iteration has 1.5 operations, 0 FLOP and 2 KiB moved, on average over the 4 slots of a round; \
        on 1 stream of NVIDIA H200 (simulated), 4 KiB of device memory\n";
    assert!(printed.contains(said), "{printed}");
    assert_eq!(sandbox.good(&["report", "a.json"]), printed);
}

#[test]
fn unknown_name() {
    let output = Sandbox::new().run(&["exec", "sdma_overlop"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(2), ""));
    snapshot!("unknown_name", output.stderr);
}

/// Results go to standard output, everything else to standard error.
#[test]
fn notes_stay_off_standard_output() {
    let sandbox = Sandbox::new();
    let simulated = sandbox.run(&["exec", "moe", "--preset", "tiny", "--backend", "sim", "--ranks", "1"]);
    assert_eq!(simulated.stderr, "");
    if !super::sandbox::no_cuda(&sandbox) {
        println!("skipped: this machine has a CUDA driver, so nothing is said of the simulator");
        return;
    }
    let chosen = sandbox.run(&["exec", "moe", "--preset", "tiny", "--ranks", "1"]);
    assert_eq!(chosen.stdout, simulated.stdout);
    assert!(chosen.stderr.starts_with("No GPU found") && chosen.stderr.lines().count() == 1, "{}", chosen.stderr);
}

#[test]
fn help_and_version_are_no_failure() {
    let sandbox = Sandbox::new();
    let help = sandbox.good(&["--help"]);
    for command in ["exec", "check", "fmt", "list", "show", "plan", "dump", "devices", "report", "Exit codes: "] {
        assert!(help.contains(command), "{command:?} is not in\n{help}");
    }
    assert_eq!(sandbox.good(&["--version"]), concat!("aorta ", env!("CARGO_PKG_VERSION"), "\n"));
}

/// A run on one stream that does not fit behind the gate is compared with ungated times: the host paces both.
#[test]
fn a_speedup_compares_times_of_one_pace() {
    let sandbox = Sandbox::new();
    let text = "stream s[16]\nbuffer x[16]: f32[64]\n\
                step { for k in 0..40 { for i in 0..16 { on s[i] { map(x[i] + 1 -> x[i]) } } } }\n\
                metric gain = speedup\n";
    sandbox.write("many.aorta", text);
    let run = ["many.aorta", "--effort", "quick"];
    let paced = |depth: &str| {
        let record = sandbox.record(&[&run[..], &["--config", &format!("gate_depth={depth}")]].concat());
        let variant = &record["variants"][0];
        let median = |of: &str| variant[of]["p50_ns"].as_f64().unwrap_or_else(|| panic!("{of} is missing: {variant}"));
        let gain = variant["metrics"][0]["value"].as_f64().expect("a speedup");
        let noted = variant["notes"].to_string().contains("the run on one stream was not gated");
        let serial = median("serial");
        (gain, serial / median("time"), serial / median("ungated"), noted)
    };
    let (gain, _, ungated, noted) = paced("512");
    assert!(noted && (gain / ungated - 1.0).abs() < 0.01, "{gain} instead of {ungated}");
    let (gain, gated, _, noted) = paced("4096");
    assert!(!noted && (gain / gated - 1.0).abs() < 0.01, "{gain} instead of {gated}");
}

/// The run on one stream may use all compute units, also those that limits give to other streams.
#[test]
fn a_speedup_of_limited_streams_refers_to_the_whole_device() {
    let sandbox = Sandbox::new();
    let gain = |units: &str| {
        let text = format!(
            "stream a{units}\nstream b{units}\nbuffer x, y, o1, o2: bf16[4096, 4096]\n\
             step {{ on a {{ gemm(x, y -> o1) }} on b {{ gemm(y, x -> o2) }} }}\nmetric gain = speedup\n"
        );
        sandbox.write("halves.aorta", &text);
        let record = sandbox.record(&["halves.aorta", "--effort", "quick", "--config", "profile=mi300x"]);
        record["variants"][0]["metrics"][0]["value"].as_f64().expect("a speedup")
    };
    let (limited, free) = (gain("(units: 50%)"), gain(""));
    assert!((0.8..1.2).contains(&(limited / free)), "{limited} and {free}");
}

/// The vendors' libraries launch nothing for it.
#[test]
fn a_collective_of_one_rank_in_place_takes_no_time() {
    let sandbox = Sandbox::new();
    sandbox.write("one.aorta", "buffer x, y: f32[1048576]\nstep { all_reduce(x -> x) all_reduce(x -> y) }\n");
    let record = sandbox.record(&["one.aorta", "--effort", "quick"]);
    let operations = &record["variants"][0]["ranks"][0]["operations"];
    let time = |number: usize| operations[number]["time_ns"].as_f64().expect("a time");
    assert!(time(0) == 0.0 && time(1) > 1000.0, "{operations}");
    let plan: serde_json::Value =
        serde_json::from_str(&sandbox.good(&["plan", "one.aorta", "--format", "json"])).expect("JSON");
    let planned = &plan["iterations"][0]["operations"];
    assert!(planned[0]["duration_ns"] == 0 && planned[1]["duration_ns"] != 0, "{planned}");
}

/// A graph takes the host one call, which is longer with more branches.
#[test]
fn a_graph_of_many_branches_waits_for_the_host() {
    let sandbox = Sandbox::new();
    let text = "stream s[128]\nbuffer x[128]: f32[1024]\n\
                step { for i in 0..128 { on s[i] { map(x[i] + 1 -> x[i]) } } }\n";
    sandbox.write("many.aorta", text);
    let record = sandbox.record(&["many.aorta", "--effort", "quick", "--launch", "graph"]);
    let verdict = record["variants"][0]["ranks"][0]["analysis"]["verdict"].as_str().expect("a verdict");
    assert!(verdict.starts_with("host-bound: "), "{verdict}");
    let warnings = record["warnings"].to_string();
    assert!(warnings.contains("as a graph: host launch time ") && warnings.contains("to launch a graph"), "{warnings}");
}

/// Copies of one direction share an engine, so that one from pageable memory delays those of other streams.
#[test]
fn copies_wait_for_their_engine_and_not_for_the_host() {
    let sandbox = Sandbox::new();
    let text = "stream s[4]\nbuffer h[4]: f32[4194304] in pinned\nbuffer d[4]: f32[4194304]\nbuffer p: f32[4194304] in SPACE\n\
                step { for i in 0..4 { on s[i] { copy(h[i] -> d[i]) } } on s[0] { copy(p -> d[0]) } }\n";
    let analysis = |space: &str| {
        sandbox.write("engine.aorta", text.replace("SPACE", space));
        let record = sandbox.record(&["engine.aorta", "--effort", "quick"]);
        let analysis = record["variants"][0]["ranks"][0]["analysis"].clone();
        let part = |name: &str| analysis["split"][name].as_f64().expect("a part");
        let gaps = part("dependency_ns") + part("launch_ns") + part("queue_ns");
        assert!(part("engine_ns") > 10.0 * gaps, "{analysis}");
        (analysis["verdict"].to_string(), record["warnings"].to_string())
    };
    let (verdict, _) = analysis("pinned");
    assert!(verdict.contains("bound by the host link (host to device)"), "{verdict}");
    let (verdict, warnings) = analysis("host");
    assert!(!verdict.contains("host-bound") && !warnings.contains("waits for the host"), "{verdict} {warnings}");
}

/// Iterations of this file overlap, so a part of the critical path runs in the iteration before.
const OVERLAPPING: &str = "\
stream compute
stream out
stream back
stream cpu(kind: host)
buffer w[3], g[3]: f32[4096]
buffer hw[3], hg[3]: f32[4096] in pinned
step(sync: end) {
  let factor = iteration % 4 + 1
  for l in 0..3 {
    on compute { map(w[l] * factor -> g[l]) }
    on out { copy(g[l] -> hg[l]) }
    on cpu { map(hg[l] * 0.5 -> hw[l]) }
    on back { copy(hw[l] -> w[l]) }
  }
}
";

/// A share stands beside the time that it is the share of; one measured slot is not called the longest.
#[test]
fn shares_and_slots_are_of_what_was_measured() {
    let sandbox = Sandbox::new();
    sandbox.write("overlapping.aorta", OVERLAPPING);
    let quick = sandbox.good(&["exec", "overlapping.aorta", "--backend", "sim", "--effort", "quick"]);
    assert!(quick.contains("of 4, the longest"), "{quick}");
    let sanity = sandbox.good(&["exec", "overlapping.aorta", "--backend", "sim", "--effort", "sanity"]);
    assert!(sanity.contains("slot 0 of 4") && !sanity.contains("the longest"), "{sanity}");
    for page in [quick, sanity] {
        let path = page.lines().find(|line| line.starts_with("critical path: ")).expect("the path is listed");
        assert!(path.contains(" (its operations run for ") || path.contains("since iterations overlap"), "{path}");
    }
}
