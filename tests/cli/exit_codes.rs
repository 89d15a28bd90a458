//! The exit codes: 0 done, 1 an expectation did not hold, 2 bad input, 3 no device, 130 interrupted.

use std::process::{Child, Command};

use super::sandbox::{Output, Sandbox, finish, no_cuda};

/// Processor time in ticks of 10 ms after which a run is certainly executing iterations.
const UNDER_WAY: u64 = 60;

#[test]
fn a_run_completes() {
    let sandbox = Sandbox::new();
    sandbox.write("a.aorta", "step { spin(2us) }\nexpect time < 1s\nexpect time > 1us");
    let printed = sandbox.good(&["exec", "a.aorta", "--backend", "sim"]);
    assert_eq!(printed.matches("passed (as streams, simulated): expect time ").count(), 2, "{printed}");
}

#[test]
fn an_expectation_does_not_hold() {
    let sandbox = Sandbox::new();
    sandbox.write("a.aorta", "step { spin(2us) }\nexpect time > 1us\nexpect time > 1s\n");
    let output = sandbox.run(&["exec", "a.aorta", "--backend", "sim", "--json", "a.json"]);
    assert_eq!((output.code, output.stderr.as_str()), (Some(1), ""));
    assert!(
        output.stdout.contains("failed (as streams, simulated): expect time > 1s (a.aorta:3:1)"),
        "{}",
        output.stdout
    );
    let record = sandbox.json("a.json");
    let verdicts = record["variants"][0]["expectations"].as_array().expect("a list");
    let verdicts: Vec<_> = verdicts.iter().map(|expectation| expectation["verdict"].as_str()).collect();
    assert_eq!(verdicts, [Some("held"), Some("failed")]);
    // It is sufficient that one of the two launch modes fails.
    let both = sandbox.run(&["exec", "a.aorta", "--backend", "sim", "--launch", "both"]);
    assert_eq!(both.code, Some(1));
}

#[test]
fn input_is_bad() {
    let sandbox = Sandbox::new();
    sandbox.write("a.aorta", "step { nop( }");
    let cases: [(&[&str], &str); 6] = [
        (&["exec", "a.aorta"], "aorta::syntax::"),
        (&["check", "a.aorta"], "a.aorta:1:"),
        (&["exec", "moe", "--set", "tokns=3"], "did you mean `tokens`?"),
        (&["exec", "moe", "--nothing"], "unexpected argument '--nothing'"),
        (&["run", "moe"], "unrecognized subcommand 'run'"),
        (&[], "Usage: "),
    ];
    for (arguments, says) in cases {
        let output = sandbox.run(arguments);
        assert_eq!((output.code, output.stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(output.stderr.contains(says), "{arguments:?}: {}", output.stderr);
    }
}

#[test]
fn there_is_no_hip() {
    let sandbox = Sandbox::new();
    let shown = sandbox.good(&["devices"]);
    if !shown.contains("HIP devices (--backend hip --device N)\n  none:") {
        println!("skipped: this machine has an AMD GPU");
        return;
    }
    let output = sandbox.run(&["exec", "moe", "--backend", "hip"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(3), ""));
    assert!(output.stderr.contains("aorta::exec::no_device"), "{}", output.stderr);
    assert!(output.stderr.contains("--backend sim --config profile=mi300x"), "{}", output.stderr);
}

#[test]
fn there_is_no_cuda() {
    let sandbox = Sandbox::new();
    if !no_cuda(&sandbox) {
        println!("skipped: this machine has a CUDA driver");
        return;
    }
    let output = sandbox.run(&["exec", "moe", "--backend", "cuda"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(3), ""));
    assert!(output.stderr.contains("no CUDA device: "), "{}", output.stderr);
    assert!(output.stderr.contains("help: "), "{}", output.stderr);
}

#[test]
fn an_unknown_gpu_is_an_error() {
    let sandbox = Sandbox::new();
    if no_cuda(&sandbox) {
        println!("skipped: this machine has no CUDA driver");
        return;
    }
    let output = sandbox.run(&["exec", "moe", "--backend", "cuda", "--device", "99"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(3), ""), "{}", output.stderr);
}

/// Waits until the process has used some processor time. It prints nothing at that point, so the system is queried.
pub fn wait_until_under_way(child: &mut Child) {
    wait_until_used(child, UNDER_WAY);
}

/// Waits until the process has used this many ticks of processor time.
fn wait_until_used(child: &mut Child, ticks: u64) {
    let file = format!("/proc/{}/stat", child.id());
    loop {
        let text = std::fs::read_to_string(&file).expect("a child that was not waited for is listed");
        // The name may contain anything; after it, fields 12 and 13 are the times.
        let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let time: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().expect("a number")).sum();
        if time >= ticks {
            return;
        }
        assert!(child.try_wait().expect("waited for").is_none(), "the run ended before it could be interrupted");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn interrupt(child: &Child) {
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("`kill` is there");
    assert!(kill.success());
}

/// Starts a run, sends Ctrl-C while it is executing iterations, and checks that one message names the stage.
#[track_caller]
fn interrupted(sandbox: &Sandbox, arguments: &str, stage: &str) -> Output {
    interrupted_after(sandbox, arguments, UNDER_WAY, stage)
}

/// Sends Ctrl-C after this many ticks of processor time.
#[track_caller]
fn interrupted_after(sandbox: &Sandbox, arguments: &str, ticks: u64, stage: &str) -> Output {
    let before = sandbox.listing();
    let always = ["--json", "a.json", "--csv", "a.csv", "--ranks", "1"];
    let arguments: Vec<&str> = ["exec"].into_iter().chain(arguments.split_whitespace()).chain(always).collect();
    let mut child = sandbox.command(&arguments).spawn().expect("the binary starts");
    wait_until_used(&mut child, ticks);
    interrupt(&child);
    let output = finish(child);
    assert_eq!((output.code, output.stderr.as_str()), (Some(130), ""), "{arguments:?}");
    let is_measured = !stage.contains("before its first measured iteration");
    assert_eq!(output.stdout.contains(", incomplete "), is_measured, "{}", output.stdout);
    assert_eq!(output.stdout.matches("interrupted").count(), 1, "{}", output.stdout);
    let warning = format!("warning: the run was interrupted while {stage}");
    assert!(output.stdout.contains(&warning), "{warning}: {}", output.stdout);
    assert_eq!(sandbox.json("a.json")["complete"], false);
    assert_eq!(sandbox.good(&["report", "a.json"]), output.stdout);
    let mut expected = [before, vec!["a.csv".into(), "a.json".into()]].concat();
    expected.sort();
    expected.dedup();
    assert_eq!(sandbox.listing(), expected);
    output
}

/// True if the system reports how long a process has run.
pub fn times_are_told() -> bool {
    let told = std::path::Path::new("/proc/self/stat").exists();
    if !told {
        println!("skipped: this system does not tell how long a process has run");
    }
    told
}

#[test]
fn an_interrupted_run_keeps_what_it_has() {
    if !times_are_told() {
        return;
    }
    // With `--env` the run replaces the command's process, so the signal reaches it too.
    for arguments in ["--backend host", "--backend host --env CUDA_A=1"] {
        let sandbox = Sandbox::new();
        interrupted(&sandbox, &format!("moe --preset tiny --warmup 0 --iterations 1000000 {arguments}"), "measuring: ");
        let record = sandbox.json("a.json");
        let time = &record["variants"][0]["time"];
        let samples = time["samples_ns"].as_array().expect("a list").len();
        assert!((1..1_000_000).contains(&samples), "{samples} samples were kept");
        assert_eq!(time["n"], samples);
        assert!(time["p50_ns"].is_u64());
        assert!(record["warnings"][0].as_str().is_some_and(|warning| warning.contains("interrupted")));
        assert!(sandbox.read("a.csv").lines().nth(1).is_some_and(|row| row.contains(",false,stream,")));
    }
}

#[test]
fn a_run_can_be_interrupted_before_its_first_sample() {
    if !times_are_told() {
        return;
    }
    let sandbox = Sandbox::new();
    let stage = "warming up, before its first measured iteration: it has no figures\n";
    let output = interrupted(&sandbox, "moe --preset tiny --backend host --warmup 1048576", stage);
    assert!(!output.stdout.contains("\n0 iterations") && !output.stdout.contains("median"), "{}", output.stdout);
    let time = &sandbox.json("a.json")["variants"][0]["time"];
    assert_eq!((&time["n"], &time["p50_ns"]), (&0.into(), &serde_json::Value::Null));
}

/// The first iteration, the only measured one, does nothing. The whole cycle takes long, and is prepared in less than [`UNDER_WAY`] by a
/// program that is not optimised.
const LATER: &str = "buffer a: f32[256, 256] = ones\nbuffer b: f32[256, 256]
    step { if iteration % 400 == 0 { nop() } else { gemm(a, a -> b) } }";

#[test]
fn an_interrupted_verification_gives_no_verdict() {
    if !times_are_told() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.write("later.aorta", LATER);
    let output = interrupted(
        &sandbox,
        "later.aorta --backend host --effort sanity --config observed_iterations=0 --verify",
        "verifying 401 iterations, of which ",
    );
    let record = sandbox.json("a.json");
    assert_eq!(record["variants"][0]["time"]["n"], 1, "what was measured is kept");
    assert_eq!(record["verification"], serde_json::Value::Null);
    assert!(output.stdout.contains(" done: its outputs were not compared with the CPU's"), "{}", output.stdout);
    assert!(!output.stdout.contains("verified"), "{}", output.stdout);
}

#[test]
fn a_verification_that_fails_keeps_the_figures() {
    let sandbox = Sandbox::new();
    // Only the first iteration is measured; the second exceeds the timeout.
    sandbox.write("a.aorta", "step { if iteration % 2 == 0 { nop() } else { spin(10s) } }");
    let output = sandbox.run(&[
        "exec",
        "a.aorta",
        "--backend",
        "host",
        "--effort",
        "sanity",
        "--config",
        "observed_iterations=0",
        "--config",
        "timeout=2s",
        "--verify",
        "--json",
        "a.json",
    ]);
    assert_eq!(output.code, Some(4), "{}", output.stderr);
    assert!(output.stderr.contains("iteration 1 did not end within 2.000 s"), "{}", output.stderr);
    assert!(output.stdout.contains("its outputs could not be compared with the CPU's"), "{}", output.stdout);
    assert!(!output.stdout.contains("interrupted"), "{}", output.stdout);
    let record = sandbox.json("a.json");
    assert_eq!((&record["complete"], &record["variants"][0]["time"]["n"]), (&false.into(), &1.into()));
    assert_eq!(record["verification"], serde_json::Value::Null);
}

#[test]
fn comparing_nothing_is_not_agreement() {
    let sandbox = Sandbox::new();
    sandbox.write("a.aorta", "step { nop() }");
    let output = sandbox.run(&["exec", "a.aorta", "--backend", "host", "--effort", "sanity", "--verify"]);
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(output.stdout.contains("there was nothing to compare"), "{}", output.stdout);
    assert!(!output.stdout.contains("verified against"), "{}", output.stdout);
}

#[test]
fn an_interrupted_run_writes_no_outputs() {
    if !times_are_told() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.write("later.aorta", LATER);
    let output = interrupted(
        &sandbox,
        "later.aorta --backend host --effort sanity --config observed_iterations=0 --outputs out",
        "computing the outputs: ",
    );
    assert_eq!(sandbox.json("a.json")["variants"][0]["time"]["n"], 1, "what was measured is kept");
    assert!(output.stdout.contains(": its outputs were not written"), "{}", output.stdout);
    interrupted(
        &sandbox,
        "moe --preset tiny --backend host --warmup 0 --iterations 1000000 --outputs out",
        "measuring: ",
    );
}

/// An iteration that takes very long is abandoned, in whichever phase.
#[test]
fn ctrl_c_does_not_wait_for_the_iteration_under_way() {
    if !times_are_told() {
        return;
    }
    let sandbox = Sandbox::new();
    // The first iteration, which is all that is measured, does nothing.
    sandbox.write(
        "large.aorta",
        "buffer a: f32[256, 256] = ones\nbuffer b: f32[256, 256]
         step { if iteration % 2 == 0 { nop() } else { for i in 0..2000 { gemm(a, a -> b) } } }",
    );
    for (ranks, more) in [("1", ""), ("2", ""), ("1", "--verify")] {
        let effort = if more.is_empty() { "--iterations 1000" } else { "--effort sanity" };
        let command =
            format!("exec large.aorta --backend host --timeout 100000s --warmup 0 {effort} --json a.json {more}");
        let arguments: Vec<&str> = command.split_whitespace().chain(["--ranks", ranks]).collect();
        let mut child = sandbox.command(&arguments).spawn().expect("the binary starts");
        wait_until_under_way(&mut child);
        interrupt(&child);
        let output = finish(child);
        assert_eq!(output.code, Some(130), "{arguments:?}: {}", output.stderr);
        let stage = if more.is_empty() { "measuring" } else { "observing single operations" };
        let warning = format!("warning: the run was interrupted while {stage}: ");
        assert!(output.stdout.contains(&warning), "{warning}: {}", output.stdout);
        assert_eq!(sandbox.json("a.json")["variants"][0]["time"]["n"], 1, "{arguments:?}: what was measured is kept");
    }
}

/// A pipe without room for another byte, so that whoever writes to it blocks.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    use rustix::fs::{OFlags, fcntl_setfl};
    use std::io::Write;
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    fcntl_setfl(&writer, OFlags::NONBLOCK).expect("a pipe of our own");
    for size in [4096, 1] {
        while writer.write(&vec![b'.'; size]).is_ok() {}
    }
    fcntl_setfl(&writer, OFlags::empty()).expect("a pipe of our own");
    (reader, writer)
}

/// Waits until the process has installed its handler, which has a thread of its own.
fn wait_for_handler(child: &Child) {
    let threads = format!("/proc/{}/task", child.id());
    while std::fs::read_dir(&threads).map_or(0, Iterator::count) < 2 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// While the file is being read, the first signal ends the run, also if its message cannot be written.
#[test]
fn a_run_can_be_interrupted_while_it_is_planned() {
    if !times_are_told() {
        return;
    }
    let sandbox = Sandbox::new();
    let (_reader, full) = full_pipe();
    for signal in ["-INT", "-TERM"] {
        for full in [None, Some(&full)] {
            let mut command = sandbox.command(&["exec", "-", "--backend", "host", "--json", "a.json"]);
            command.stdin(std::process::Stdio::piped());
            if let Some(full) = full {
                command.stderr(full.try_clone().expect("a pipe of our own"));
            }
            let mut child = command.spawn().expect("the binary starts");
            // The file does not end.
            let input = child.stdin.take();
            wait_for_handler(&child);
            let kill = Command::new("kill").args([signal, &child.id().to_string()]).status().expect("`kill` is there");
            assert!(kill.success());
            let output = finish(child);
            let message = if full.is_some() { "" } else { "interrupted while planning; nothing was measured\n" };
            assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (Some(130), "", message));
            assert!(sandbox.listing().is_empty(), "no record without figures");
            drop(input);
        }
    }
}

/// A run that cannot write its report ends at the second signal.
#[test]
fn a_second_interrupt_ends_the_run_at_once() {
    if !times_are_told() {
        return;
    }
    let sandbox = Sandbox::new();
    let (_reader, full) = full_pipe();
    let mut command =
        sandbox.command(&["exec", "moe", "--preset", "tiny", "--backend", "host", "--iterations", "1000000"]);
    let mut child = command.stdout(full).spawn().expect("the binary starts");
    wait_until_under_way(&mut child);
    interrupt(&child);
    // Two signals that are pending at the same time are one.
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(child.try_wait().expect("a child of our own").is_none(), "its report cannot be written");
    interrupt(&child);
    assert_eq!(finish(child).code, Some(130));
}

/// After Ctrl-C the user does not wait for a long list without figures.
#[test]
fn an_interrupted_run_lists_no_operation_of_very_many() {
    if !crate::common::effort::is_due() {
        return;
    }
    if !times_are_told() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.write("many.aorta", "step { for i in 0..60000 { nop() } }");
    // Preparing so many operations takes a while.
    let arguments = "many.aorta --backend host --launch stream --warmup 0 --iterations 1000000";
    let output = interrupted_after(&sandbox, arguments, 10 * UNDER_WAY, "measuring: ");
    assert!(output.stdout.contains("its 60000 operations are not listed"), "{}", output.stdout);
    let variant = &sandbox.json("a.json")["variants"][0];
    assert!(variant["time"]["n"].as_u64() > Some(0), "what was measured is kept");
    assert_eq!(variant["ranks"][0]["operations"].as_array().map(Vec::len), Some(0));
}

/// The reader of the output may close the pipe.
#[test]
fn a_reader_may_go_away() {
    let sandbox = Sandbox::new();
    for arguments in
        [&["plan", "tiny_kernel_stress"][..], &["exec", "tiny_kernel_stress", "--backend", "sim"], &["list"]]
    {
        let mut child = sandbox.command(arguments).spawn().expect("the binary starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("a child can be waited for");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.as_ref()), (Some(0), ""), "{arguments:?}");
    }
}

/// A stream that sleeps, and one that waits for it.
const SLOW: &str = "\
stream a
stream b
buffer x, y: f32[4]
step {
  on a { spin(10s) }
  on a { fill(1 -> x) }
  on b { map(x + 1 -> y) }
}
";

#[test]
fn a_run_that_hangs_is_ended() {
    let sandbox = Sandbox::new();
    sandbox.write("slow.aorta", SLOW);
    for launch in ["stream", "graph"] {
        let arguments = ["exec", "slow.aorta", "--backend", "host", "--effort", "sanity", "--launch", launch];
        let output = sandbox.run(&[&arguments[..], &["--timeout", "400ms"]].concat());
        assert_eq!((output.code, output.stdout.as_str()), (Some(4), ""), "{}", output.stderr);
        assert!(output.stderr.contains("iteration 0 did not end within 400.0 ms"), "{}", output.stderr);
        assert!(output.stderr.contains("a is in this spin"), "{}", output.stderr);
        assert!(output.stderr.contains("b has not begun this map, and waits for a fill on a"), "{}", output.stderr);
        assert!(!output.stderr.contains("once more"), "it is known at once: {}", output.stderr);
    }
}

#[test]
fn a_time_without_a_unit_is_no_timeout() {
    let sandbox = Sandbox::new();
    sandbox.write("a.aorta", "step { nop() }");
    let output = sandbox.run(&["exec", "a.aorta", "--backend", "sim", "--timeout", "5"]);
    assert_eq!(output.code, Some(2));
    assert!(output.stderr.contains("`timeout` cannot be 5: a time has its unit"), "{}", output.stderr);
}

/// The second run of a failed command, which looks for the failing operation.
#[test]
fn a_run_that_looks_for_a_failure_says_what_it_finds() {
    if !crate::common::effort::is_due() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.write("slow.aorta", SLOW);
    sandbox.write("good.aorta", "buffer x: f32[4]\nstep { map(x + 1 -> x) }");
    let always = ["--backend", "host", "--effort", "sanity", "--diagnose"];
    for (file, timeout, diagnosis, says) in [
        ("slow.aorta", "400ms", "hang", "a is in this spin"),
        ("slow.aorta", "400ms", "fault", "a is in this spin"),
        ("good.aorta", "2s", "hang", "It did not hang again"),
        ("good.aorta", "2s", "fault", "It did not fail again"),
    ] {
        let output = sandbox.run(&[&["exec", file], &always[..], &[diagnosis, "--timeout", timeout]].concat());
        assert_eq!((output.code, output.stdout.as_str()), (Some(4), ""), "{file}, {diagnosis}: {}", output.stderr);
        assert!(output.stderr.contains(says), "{file}, {diagnosis}: {}", output.stderr);
    }
}
