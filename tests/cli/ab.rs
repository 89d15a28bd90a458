//! `aorta ab`: comparisons of two variants of a run.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::sandbox::{Output, Sandbox, finish};

/// Two chains: on two streams they overlap, on one they do not.
const CHAINS: &str = "\
// Two chains of work.
param streams = 2
param long = 20
stream s[streams]
step {
  for i in 0..4 {
    on s[i % streams] { spin(long * 1us) }
  }
}
";

/// Compares a command's output with a snapshot.
#[track_caller]
fn snapshot(name: &str, text: &str) {
    insta::with_settings!({ snapshot_path => "../snapshots", omit_expression => true }, {
        insta::assert_snapshot!(name, text);
    });
}

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("chains.aorta", CHAINS);
    sandbox
}

fn ab(sandbox: &Sandbox, arguments: &[&str]) -> Output {
    sandbox.run(&[&["ab", "chains.aorta"], arguments].concat())
}

/// The simulator takes the time of a kernel from its operands, so that two versions of one take equally long.
#[test]
fn the_simulator_does_not_judge_the_code_of_kernels() {
    let sandbox = Sandbox::new();
    let kernel = |name: &str| {
        format!(
            "kernel {name}(x: f32[256] -> y: f32[256]) {{ grid: 1, block: 256, source: \"\"\"\nextern \"C\" __global__ void {name}(const \
             float* x, float* y) {{ y[threadIdx.x] = x[threadIdx.x]; }}\n\"\"\" }}\n"
        )
    };
    let step = "param second = false\nparam more = false\nbuffer x: f32[256] = 1\nbuffer y: f32[256]\n\
                step { if second { two(x -> y) } else { one(x -> y) }  if more { map(x + 1 -> y) } }\n";
    sandbox.write("versions.aorta", [&kernel("one"), &kernel("two"), step].concat());
    let ab = |a: &str, b: &str| {
        sandbox.good(&["ab", "versions.aorta", "--backend", "sim", "--a", a, "--b", b, "--rounds", "8"])
    };
    let told = ab("", "--set second=true");
    assert!(told.contains("Cannot tell: the simulator does not read the code of `one` and `two`"), "{told}");
    // Other differences have a verdict.
    assert!(ab("", "--set more=true").contains("b is worse"));
}

#[test]
fn sides_are_compared_in_turn_and_apart() {
    let sandbox = sandbox();
    let output = ab(&sandbox, &["--backend", "sim", "--a", "--streams 1", "--b", "--streams 2", "--json", "ab.json"]);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    snapshot("ab", &output.stdout);
    let record = sandbox.json("ab.json");
    assert_eq!(record["schema"], "aorta.ab/1");
    assert_eq!(record["blocks"].as_array().map(Vec::len), Some(128));
    let blocks = record["blocks"].as_array().expect("a list");
    assert!(blocks.iter().all(|block| block["time_ns"].as_array().is_some_and(|times| times.len() == 10)));
    let in_turn: Vec<&Value> = blocks.iter().filter(|block| !block["round"].is_null()).collect();
    for round in in_turn.chunks(4) {
        let order: Vec<&str> = round.iter().filter_map(|block| block["side"].as_str()).collect();
        assert!(order == ["a", "b", "b", "a"] || order == ["b", "a", "a", "b"], "{order:?}");
    }
    assert_eq!(record["result"]["verdict"], "better");
    assert_eq!(record["a"]["run"]["workload"]["params"]["streams"], "1");
    assert_eq!(record["b"]["run"]["workload"]["params"]["streams"], "2");
    // A repeated comparison, and one without quotes, give the same result.
    let again = ab(&sandbox, &["--backend", "sim", "--a", "--streams", "1", "--b", "--streams", "2"]);
    assert_eq!(again.stdout, output.stdout);
}

#[test]
fn the_exit_code_says_what_was_asked() {
    let sandbox = sandbox();
    let worse = ["--backend", "sim", "--b", "--streams 1", "--no-apart", "--rounds", "6"];
    assert_eq!(ab(&sandbox, &worse).code, Some(0));
    assert_eq!(ab(&sandbox, &[&worse[..], &["--fail-on", "worse"]].concat()).code, Some(1));
    assert_eq!(ab(&sandbox, &[&worse[..], &["--fail-on", "cannot-tell"]].concat()).code, Some(0));
    let better = ["--backend", "sim", "--a", "--streams 1", "--no-apart", "--rounds", "6", "--fail-on", "worse"];
    assert_eq!(ab(&sandbox, &better).code, Some(0));
    let equal = ab(&sandbox, &["--backend", "sim", "--no-apart", "--rounds", "6"]);
    let told = equal.stdout + &equal.stderr;
    assert!(told.contains("a and b are the same run") && told.contains("Same: "), "{told}");
}

/// A side's options override those of both sides; a side may have its own file and variables.
#[test]
fn a_side_has_the_last_word() {
    let sandbox = sandbox();
    sandbox.write("other.aorta", CHAINS.replace("= 20", "= 40"));
    let b = "other.aorta --streams 1 --set 'long=10' --env CUDA_ONLY_B=1";
    let output = ab(
        &sandbox,
        &["--backend=sim", "--streams=2", "--set=long=30", "--b", b, "--no-apart", "--rounds=6", "--json=ab.json"],
    );
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let record = sandbox.json("ab.json");
    let of = |side: &str, what: &str| record[side]["run"]["workload"]["params"][what].as_str().map(str::to_owned);
    assert_eq!((of("a", "streams"), of("a", "long")), (Some("2".into()), Some("30".into())));
    assert_eq!((of("b", "streams"), of("b", "long")), (Some("1".into()), Some("10".into())));
    assert_eq!(record["b"]["run"]["workload"]["name"], "other.aorta");
    let variables = |side: &str| record[side]["run"]["environment"]["variables"]["CUDA_ONLY_B"].clone();
    assert_eq!((variables("a"), variables("b")), (Value::Null, "1".into()));
}

#[test]
fn a_block_may_have_a_process_of_its_own() {
    let sandbox = sandbox();
    let output = ab(&sandbox, &["--backend", "sim", "--b", "--streams 1", "--fresh", "--rounds", "6"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    snapshot("ab_fresh", &output.stdout);
}

/// Times on the CPU are not checked, only that the comparison completes.
#[test]
fn processes_of_the_cpu_take_turns() {
    let sandbox = Sandbox::new();
    sandbox.write("map.aorta", "buffer x: f32[4096]\nstep { map(x + 1 -> x) }");
    let output = sandbox.run(&["ab", "map.aorta", "--backend", "host", "--rounds", "6", "--iterations", "3"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    for part in
        ["on this CPU, as streams\n6 of 6 rounds", "\ninterleaved ", "\nseparate ", "A against A and B against B: "]
    {
        assert!(output.stdout.contains(part), "{part:?} is not in\n{}", output.stdout);
    }
}

#[test]
fn mistakes_in_a_side_point_at_it() {
    let sandbox = sandbox();
    let mut told = String::new();
    for given in [
        &["--a", "--stream 8"][..],
        &["--a", "--streams 1,2"],
        &["--b", "--streams 2 'open"],
        &["--b", "--json x.json"],
        &["--a", "--iterations 5"],
        &["--b", "--launch both"],
        &["--b", "--set wide=3"],
        &["--b", "missing.aorta"],
        &["--a", "-"],
    ] {
        let output = ab(&sandbox, &[given, &["--backend", "sim"]].concat());
        assert_eq!((output.code, output.stdout.as_str()), (Some(2), ""), "{given:?}");
        told += &format!("aorta ab chains.aorta {} '{}'\n{}\n", given[0], given[1], output.stderr);
    }
    // The mistake of a scenario that is both sides is reported once.
    sandbox.write("both.ron", "(workload: \"chains.aorta\", launch: both, backend: \"sim\")");
    let output = sandbox.run(&["ab", "both.ron"]);
    assert_eq!((output.code, output.stderr.matches("aorta::").count()), (Some(2), 1), "{}", output.stderr);
    assert!(output.stderr.contains("a side of a comparison is measured in one way"), "{}", output.stderr);
    snapshot("ab_mistakes", &told);
}

/// A run that `ab` has started sends its error as data and prints it for people.
#[test]
fn a_side_sends_its_error() {
    let sandbox = sandbox();
    for (arguments, error) in [("--set wide=3", "wide"), ("--device 0", "device 0")] {
        let words = ["exec", "chains.aorta", "--backend", "sim", "--blocks"];
        let output = sandbox.run(&words.into_iter().chain(arguments.split(' ')).collect::<Vec<_>>());
        let line = output.stdout.lines().last().expect("a message");
        let message: Value = serde_json::from_str(line).expect("JSON");
        let told = message["failed"]["message"].as_str().expect("a text");
        assert!(told.contains(error) && output.stderr.contains(error), "{line}\n{}", output.stderr);
    }
}

/// A process's parent, and its processor time in ticks.
fn stat(process: u32) -> Option<(u32, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name may contain anything; after it follow the state and the parent, and eleven fields later the times.
    let words: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let time = |at: usize| words.get(at)?.parse::<u64>().ok();
    Some((words.get(1)?.parse().ok()?, time(11)? + time(12)?))
}

/// The children of a process.
fn children(of: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.filter(|&process| stat(process).is_some_and(|(parent, _)| parent == of)).collect()
}

fn signal(name: &str, process: u32) {
    let sent = Command::new("kill").args([name, &process.to_string()]).status().expect("`kill` is there");
    assert!(sent.success());
}

/// Ticks that are many times what a side needs to get ready.
const TICKS: u64 = 40;

/// A long comparison.
const LONG: [&str; 9] =
    ["ab", "chains.aorta", "--backend", "host", "--set", "long=1000", "--rounds", "1000", "--no-apart"];

/// Waits until both sides of a comparison alternate, and returns their processes.
fn under_way(comparison: u32) -> Vec<u32> {
    let begun = Instant::now();
    loop {
        let sides = children(comparison);
        let busy = sides.iter().filter_map(|&side| stat(side)).filter(|(_, ticks)| *ticks > TICKS).count();
        if busy == 2 || begun.elapsed() > Duration::from_secs(600) {
            assert_eq!(busy, 2, "both sides run");
            return sides;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_side_that_dies_is_reported() {
    if !super::exit_codes::times_are_told() {
        return;
    }
    let sandbox = sandbox();
    let child = sandbox.command(&LONG).spawn().expect("the binary starts");
    let sides = under_way(child.id());
    signal("-KILL", *sides.iter().max().expect("two"));
    let output = finish(child);
    assert_eq!((output.code, output.stdout.as_str()), (Some(4), ""), "{}", output.stderr);
    assert!(output.stderr.contains("side b failed") || output.stderr.contains("side a failed"), "{}", output.stderr);
    assert!(output.stderr.contains("(SIGKILL)"), "{}", output.stderr);
    assert!(sides.iter().all(|&side| !std::path::Path::new(&format!("/proc/{side}")).exists()), "no side is left");
}

#[test]
fn a_comparison_can_be_interrupted() {
    if !super::exit_codes::times_are_told() {
        return;
    }
    let sandbox = sandbox();
    let child = sandbox.command(&LONG).spawn().expect("the binary starts");
    let sides = under_way(child.id());
    signal("-INT", child.id());
    let output = finish(child);
    assert_eq!(output.code, Some(130), "{}", output.stderr);
    let told = format!("{}{}", output.stdout, output.stderr).to_lowercase();
    assert!(told.contains("interrupted"), "{told}");
    assert!(sides.iter().all(|&side| !std::path::Path::new(&format!("/proc/{side}")).exists()), "no side is left");
}

#[test]
fn a_launcher_starts_no_comparison() {
    let sandbox = sandbox();
    let mut command = sandbox.command(&["ab", "chains.aorta"]);
    for (name, value) in [("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0"), ("MASTER_ADDR", "localhost")] {
        command.env(name, value);
    }
    let output = finish(command.env("MASTER_PORT", "29500").spawn().expect("the binary starts"));
    assert_eq!(output.code, Some(2), "{}", output.stderr);
    assert!(output.stderr.contains("start `aorta ab` without a launcher"), "{}", output.stderr);
}

/// If one side cannot be gated, the other is not gated either.
#[test]
fn sides_are_measured_alike() {
    let sandbox = Sandbox::new();
    let text = "buffer x: f32[64]\nstep { for i in 0..12 { map(x + 1 -> x) } }";
    sandbox.write("tiny.aorta", text);
    let run = |a: &str, b: &str| {
        let output = sandbox.run(&[
            "ab",
            "tiny.aorta",
            "--backend",
            "sim",
            "--rounds",
            "8",
            "--no-apart",
            "--json",
            "ab.json",
            "--a",
            a,
            "--b",
            b,
        ]);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        (output.stdout, sandbox.json("ab.json"))
    };
    for (a, b) in [("--config gate_depth=4", ""), ("--gate auto", "--config gate_depth=4"), ("--gate=off", "")] {
        let (told, record) = run(a, b);
        assert_eq!(record["result"]["verdict"], "same", "{a}, {b}: {told}");
        assert!(told.contains("cannot be gated, so"), "{told}");
        assert_eq!(record["a"]["run"]["settings"]["gate"], "off");
    }
    let (told, record) = run("--config in_flight=3", "");
    assert!(!told.contains("at the gate"), "{told}");
    assert_eq!(record["a"]["run"]["settings"]["gate"], "auto");
}
