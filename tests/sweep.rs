//! Sweeps: what they print and write, how cases end, and the effects of a crash, Ctrl-C and another command on their
//! files.

use std::collections::BTreeMap;
use std::ops::Range;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cli::sandbox::{Output, Sandbox, finish};
use crate::common::effort::draws;

/// Products on any number of streams.
const PRODUCTS: &str = "\
//! Eight products, on as many streams as one wants.
param n = 1024 in 16..=8192
param streams = 1 in 1..=8
preset sizes { streams = 4, n = [256, 1024] }
stream s[streams]
buffer x[8], w[8]: bf16[n, n]
step { for i in 0..8 { on s[i % streams] { gemm(x[i], w[i]) } } }
";

/// A file whose cases end with different statuses.
const ENDS: &str = "\
param n = 1024
buffer x: f32[n]
step { map(x + 1 -> x) }
expect flops < 1MFLOP
";

/// Time allowed for an expected event. None comes near it, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(600);

fn words(arguments: &str) -> Vec<&str> {
    arguments.split_whitespace().collect()
}

/// A sweep on the simulator.
fn sweep(sandbox: &Sandbox, arguments: &str) -> Output {
    sandbox.run(&[words("sweep"), words(arguments), words("--backend sim --effort quick")].concat())
}

/// All output of a command.
fn said(output: &Output) -> String {
    format!("code {:?}\n{}---\n{}", output.code.unwrap_or(-1), output.stdout, output.stderr)
}

/// The lines of a file of cases.
fn lines(sandbox: &Sandbox, name: &str) -> Vec<Value> {
    let parsed = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{name}: {error} in {line:?}"));
    sandbox.read(name).lines().map(parsed).collect()
}

/// The status of each case, in the order of the file.
fn statuses(sandbox: &Sandbox, name: &str) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    lines(sandbox, name)[1..].iter().map(|case| (text(&case["name"]), text(&case["status"]))).collect()
}

#[test]
fn a_product_of_axes() {
    let sandbox = Sandbox::new();
    sandbox.write("products.aorta", PRODUCTS);
    let output = sweep(
        &sandbox,
        "products.aorta --streams 1,2,4,8,16 --set n=256,4096 --json a.jsonl --csv a.csv --skip-invalid",
    );
    insta::assert_snapshot!("product", said(&output));
    insta::assert_snapshot!("product_csv", without_times(&sandbox.read("a.csv")));
    let cases = lines(&sandbox, "a.jsonl");
    assert_eq!((&cases[0]["schema"], &cases[0]["kind"]), (&"aorta.cases/1".into(), &"sweep".into()));
    let measured = cases[1..].iter().filter(|case| case["status"] == "done");
    for case in measured {
        assert_eq!(case["record"]["schema"], "aorta.run/1", "a case has its whole record");
        assert_eq!(case["record"]["workload"]["params"]["streams"], case["values"]["streams"]);
        assert!(case["record"]["variants"][0]["ranks"][0]["trace"].as_array().is_some_and(|trace| trace.len() == 8));
    }
    // The same output from the file.
    assert_eq!(sandbox.good(&["report", "a.jsonl", "--csv", "b.csv"]), {
        // In the order in which cases ended.
        let again = sandbox.good(&["report", "a.jsonl"]);
        assert!(again.contains("best rate: n = 4096"), "{again}");
        again
    });
}

/// A table without the column of durations.
fn without_times(text: &str) -> String {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().expect("a header").clone();
    let clock = header.iter().position(|name| name == "seconds").expect("the host's clock");
    let kept = |row: &csv::StringRecord| {
        let values = row.iter().enumerate().filter(|(index, _)| *index != clock).map(|(_, value)| value.to_owned());
        values.collect::<Vec<_>>().join(",")
    };
    let rows = reader.records().map(|row| kept(&row.expect("as long as the header")));
    let rows: Vec<String> = rows.collect();
    [vec![kept(&header)], rows].concat().join("\n")
}

#[test]
fn axes_go_together_and_work_grows_with_ranks() {
    let sandbox = Sandbox::new();
    sandbox.write("weak.aorta", "param n = 1024\nbuffer x: f32[n]\nstep { map(x * 2 -> x)  all_reduce(x) }");
    let output = sweep(&sandbox, "weak.aorta --ranks 1,2,4 --json a.jsonl");
    insta::assert_snapshot!("weak", said(&output));
    let zipped = sweep(&sandbox, "weak.aorta --ranks 1,2,4 --set n=4096,2048,1024 --zip --json b.jsonl");
    insta::assert_snapshot!("zip", said(&zipped));
}

#[test]
fn a_preset_with_a_list_is_an_axis() {
    let sandbox = Sandbox::new();
    sandbox.write("products.aorta", PRODUCTS);
    let output = sweep(&sandbox, "products.aorta --preset sizes --env CUDA_DEVICE_MAX_CONNECTIONS=8,32 --json a.jsonl");
    insta::assert_snapshot!("preset", said(&output));
    // The command line takes precedence over the preset.
    let output = sweep(&sandbox, "products.aorta --preset sizes --set n=512 --launch stream,graph --json b.jsonl");
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let cases = lines(&sandbox, "b.jsonl");
    assert_eq!(cases.len(), 3);
    assert!(cases[1..].iter().all(|case| case["record"]["workload"]["params"]["n"] == "512"));
    // A single run cannot use a list of values.
    let single = sandbox.run(&words("exec products.aorta --preset sizes --backend sim"));
    assert!(single.stderr.contains("aorta::model::list_of_values"), "{}", single.stderr);
}

#[test]
fn no_case_ends_a_sweep() {
    let sandbox = Sandbox::new();
    sandbox.write("ends.aorta", ENDS);
    let output = sweep(&sandbox, "ends.aorta --set n=1,1024,1048576,1e12,0,100000000000 --json a.jsonl");
    insta::assert_snapshot!("ends", said(&output));
    // A hung run is ended, and the next one starts.
    sandbox.write("slow.aorta", "param t = 1us\nbuffer x: f32[4]\nstep { spin(t)  map(x + 1 -> x) }");
    let arguments = words("sweep slow.aorta --backend host --effort sanity --timeout 2s --order given");
    let output = sandbox.run(&[&arguments[..], &["--set", "t=1us,10s,2us", "--json", "b.jsonl"]].concat());
    assert_eq!(output.code, Some(4), "{}", output.stderr);
    let ended: Vec<String> = statuses(&sandbox, "b.jsonl").into_iter().map(|(_, status)| status).collect();
    assert_eq!(ended, ["done", "failed", "done"]);
    assert!(output.stdout.contains("did not end within 2.000 s"), "{}", output.stdout);
}

#[test]
fn a_sweep_in_which_nothing_can_run_is_an_error() {
    let sandbox = Sandbox::new();
    sandbox.write("products.aorta", PRODUCTS);
    let cases = [
        ("products.aorta --streams 0,9", "the error of the first one, streams=0, is shown above"),
        ("products.aorta --set m=1,2", "there is no parameter `m`"),
        ("products.aorta --streams 4", "nothing varies"),
        ("products.aorta --streams 1,,2", "a value of `--streams` is empty"),
        ("products.aorta --streams 1,2,1", "has the value `1` twice"),
        ("products.aorta --streams 1,2 --set streams=4,8", "`--streams 1,2` sets the same"),
        ("products.aorta --set streams=1,2 --streams 4", "`--set streams=1,2` sets the same"),
        ("products.aorta --set n=1,2 --set n=4", "leave one of them out; `aorta sweep` runs both: `--set n=1,2,4`"),
        ("products.aorta --config launch=stream,graph --launch graph", "`--config launch=stream,graph` sets the same"),
        ("products.aorta --config profile=h100,h200 --config profile=mi300x", "`--config profile=h100,h200` sets"),
        ("products.aorta --env A=1,2 --env A=3", "`--env A=1,2` sets the same"),
        ("products.aorta --streams 1,2 --set n=16,32,64 --zip", "`n` has 3 values, `streams` 2"),
        ("products.aorta --launch stream,grpah", "no case of the sweep can have `--launch=grpah`"),
        ("products.aorta --config profile=h300,mi300x", "no case of the sweep can have `--config=profile=h300`"),
        ("products.aorta --config topology=nope,hgx_h200", "no case of the sweep can have `--config=topology=nope`"),
        ("products.aorta --set n=16:18", "such as `16,18`"),
        ("products.aorta --set n=16:18:1", "such as `16,17,18`"),
        ("products.aorta --set n=[16,32]", "without brackets: `--set n=16,32`"),
        ("products.aorta --streams 1,2 --warmup many", "invalid value 'many'"),
        ("- --streams 1,2", "standard input can be read once"),
        ("nowhere.aorta --streams 1,2", "there is no file and no shipped workload"),
    ];
    for (arguments, says) in cases {
        let output = sweep(&sandbox, arguments);
        assert_eq!((output.code, output.stdout.as_str()), (Some(2), ""), "{arguments}");
        let plain = output.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(plain.contains(says), "{arguments}: {}", output.stderr);
    }
    let launched = sandbox
        .command(&words("sweep products.aorta --streams 1,2"))
        .envs([
            ("RANK", "0"),
            ("WORLD_SIZE", "2"),
            ("LOCAL_RANK", "0"),
            ("MASTER_ADDR", "localhost"),
            ("MASTER_PORT", "1"),
        ])
        .spawn()
        .expect("the binary starts");
    let launched = finish(launched);
    assert_eq!(launched.code, Some(2), "{}", launched.stdout);
    assert!(launched.stderr.contains("starts a process for each case itself"), "{}", launched.stderr);
}

#[test]
fn a_sweep_goes_on_where_it_was() {
    let sandbox = Sandbox::new();
    sandbox.write("ends.aorta", ENDS);
    let command = "ends.aorta --set n=1,2,1e12,100000000000 --json a.jsonl";
    let first = sweep(&sandbox, command);
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    let text = sandbox.read("a.jsonl");
    let again = sweep(&sandbox, &format!("{command} --resume"));
    assert_eq!((again.code, again.stdout, again.stderr), (Some(0), first.stdout.clone(), String::new()));
    assert_eq!(sandbox.read("a.jsonl"), text, "nothing is written of what is done");
    // Failed cases are repeated on request, and the last result counts.
    let retried = sweep(&sandbox, &format!("{command} --resume --retry"));
    assert_eq!((retried.code, retried.stdout), (Some(0), first.stdout.clone()));
    assert_eq!(retried.stderr.lines().count(), 1, "{}", retried.stderr);
    let names: Vec<String> = statuses(&sandbox, "a.jsonl").into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.iter().filter(|name| *name == "n=100000000000").count(), 2);
    // A truncated line belongs to a case that runs again.
    let whole: Vec<&str> = text.split_inclusive('\n').collect();
    let last = whole[whole.len() - 1];
    sandbox.write("a.jsonl", &text.as_bytes()[..text.len() - last.len() / 2]);
    let mended = sweep(&sandbox, &format!("{command} --resume"));
    assert_eq!((mended.code, mended.stdout), (Some(0), first.stdout));
    assert!(mended.stderr.starts_with("The last line of the file is incomplete"), "{}", mended.stderr);
    assert_eq!(lines(&sandbox, "a.jsonl").len(), whole.len());
}

#[test]
fn a_file_of_another_sweep_is_left_alone() {
    let sandbox = Sandbox::new();
    sandbox.write("ends.aorta", ENDS);
    sandbox.write("other.aorta", ENDS);
    assert_eq!(sweep(&sandbox, "ends.aorta --set n=1,2 --json a.jsonl").code, Some(0));
    let text = sandbox.read("a.jsonl");
    let refused = |arguments: &str, says: &str| {
        let output = sweep(&sandbox, arguments);
        assert_eq!((output.code, output.stdout.as_str()), (Some(2), ""), "{arguments}");
        let plain = output.stderr.replace('│', " ").split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(plain.contains(says), "{arguments}: {}", output.stderr);
        assert_eq!(sandbox.read("a.jsonl"), text);
    };
    refused("ends.aorta --set n=1,2 --json a.jsonl", "already exists, with 2 cases");
    refused("ends.aorta --set n=1,2,4 --json a.jsonl --resume", "what varies was `--set n=1,2` and is `--set n=1,2,4`");
    refused("ends.aorta --set n=1,2 --launch graph --json a.jsonl --resume", "the command was `--backend=sim");
    refused("ends.aorta --set n=1,2 --zip --json a.jsonl --resume", "was `each with each` and is `--zip`");
    refused(
        "other.aorta --set n=1,2 --json a.jsonl --resume",
        "the workload or suite was `ends.aorta` and is `other.aorta`",
    );
    sandbox.write("ends.aorta", format!("{ENDS}// another text\n"));
    refused("ends.aorta --set n=1,2 --json a.jsonl --resume", "the text of ends.aorta has changed");
    // A file that does not contain cases is never written to.
    for wrong in ["hello\n", "hello", "{\"schema\":\"aorta.run/1\"}\n"] {
        sandbox.write("b.jsonl", wrong);
        for resume in ["", "--resume"] {
            let output = sweep(&sandbox, &format!("ends.aorta --set n=1,2 --json b.jsonl {resume}"));
            assert_eq!(output.code, Some(2), "{}", output.stdout);
            assert!(output.stderr.contains("aorta::cli::no_cases"), "{}", output.stderr);
            assert_eq!(sandbox.read("b.jsonl"), wrong);
        }
    }
}

#[test]
fn a_sweep_without_a_file_is_kept_at_home() {
    let sandbox = Sandbox::new();
    sandbox.write("ends.aorta", ENDS);
    let first = sweep(&sandbox, "ends.aorta --set n=1,2");
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    assert_eq!(sandbox.listing(), ["ends.aorta"]);
    assert!(first.stderr.contains("/.local/state/aorta/sweeps/ends-"), "{}", first.stderr);
    let cases = |output: &Output| output.stderr.lines().filter(|line| line.contains(" of 2: ")).count();
    assert_eq!(cases(&first), 2);
    assert_eq!(cases(&sweep(&sandbox, "ends.aorta --set n=1,2 --resume")), 0);
    assert_eq!(cases(&sweep(&sandbox, "ends.aorta --set n=1,2")), 2, "without `--resume` it is measured anew");
}

/// Starts a sweep whose cases have their temporary files in the sandbox.
fn start(sandbox: &Sandbox, arguments: &str) -> Child {
    let mut command = sandbox.command(&words(&format!("sweep {arguments}")));
    std::fs::create_dir_all(sandbox.path("tmp")).expect("a folder can be made");
    command.env("TMPDIR", sandbox.path("tmp")).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("the binary starts")
}

#[track_caller]
fn wait_for(what: &str, mut come: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !come() {
        assert!(begun.elapsed() < PATIENCE, "{what} did not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn whole_lines(sandbox: &Sandbox, name: &str) -> usize {
    let bytes = std::fs::read(sandbox.path(name)).unwrap_or_default();
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

/// Returns a function that counts the lines of a file as [`whole_lines`] does, and reads it only if its length has changed.
fn line_counter(sandbox: &Sandbox, name: &str) -> impl FnMut() -> usize {
    let (mut length, mut lines) = (0, 0);
    move || {
        let now = std::fs::metadata(sandbox.path(name)).map_or(0, |file| file.len());
        if now != length {
            (length, lines) = (now, whole_lines(sandbox, name));
        }
        lines
    }
}

/// Kills sweeps sixty times, or fewer times without `AORTA_LONG`: mostly when they have just written another case, sometimes anywhere.
#[test]
fn kills_lose_nothing_but_the_case_under_way() {
    if !crate::common::effort::is_due() {
        return;
    }
    let half = draws(30) as usize;
    std::thread::scope(|scope| {
        scope.spawn(|| kill_again_and_again(0..half));
        scope.spawn(|| kill_again_and_again(half..2 * half));
    });
}

fn kill_again_and_again(kills: Range<usize>) {
    let sandbox = Sandbox::new();
    sandbox.write("tiny.aorta", "param n = 4\nbuffer x: f32[n]\nstep { map(x + 1 -> x) }");
    let values: Vec<String> = (1..=120).map(|value| value.to_string()).collect();
    let command =
        format!("tiny.aorta --set n={} --backend sim --effort quick --json a.jsonl --resume", values.join(","));
    let mut before = Vec::new();
    let (mut killed, wanted_kills) = (0, kills.len());
    for kill in kills {
        // A fixed pseudo-random sequence.
        let chance = (kill * 7919 + 13) % 97;
        let mut child = start(&sandbox, &command);
        let (more, delay) = if kill % 4 == 0 { (0, 300 * chance) } else { (1, 30 * chance) };
        let mut lines = line_counter(&sandbox, "a.jsonl");
        let wanted = lines() + more;
        let mut ended = false;
        wait_for("a case", || {
            ended = child.try_wait().expect("a child can be waited for").is_some();
            ended || lines() >= wanted
        });
        // On a busy machine, a kill can come so late that few cases are left.
        if ended {
            break;
        }
        std::thread::sleep(Duration::from_micros(delay as u64));
        child.kill().expect("SIGKILL reaches it");
        child.wait().expect("a child can be waited for");
        let now = std::fs::read(sandbox.path("a.jsonl")).unwrap_or_default();
        assert!(now.starts_with(&before), "what was written before kill {kill} has changed");
        let whole = now.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        before = now[..whole].to_vec();
        killed += 1;
    }
    assert!(2 * killed > wanted_kills, "the sweep ended after {killed} kills");
    let output = sandbox.run(&words(&format!("sweep {command}")));
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(output.stdout.contains("120 done"), "{}", output.stdout);
    assert!(sandbox.read("a.jsonl").as_bytes().starts_with(&before));
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for (name, status) in statuses(&sandbox, "a.jsonl") {
        assert_eq!(status, "done", "{name}");
        *times.entry(name).or_default() += 1;
    }
    assert_eq!(times.len(), values.len(), "every case is there");
    assert!(times.values().all(|times| *times == 1), "none that was written was run again");
}

/// The process that was given a path in this folder: a case.
fn case_of(sandbox: &Sandbox) -> Option<u32> {
    let folder = sandbox.path("tmp").display().to_string();
    let mut processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.find_map(|process| {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let number = process.file_name().to_str()?.parse().ok()?;
        String::from_utf8_lossy(&line).contains(&folder).then_some(number)
    })
}

/// Starts a sweep and waits until its second case is running, which takes longer than [`PATIENCE`]. The third is short.
fn long_sweep(sandbox: &Sandbox) -> Option<Child> {
    if !std::path::Path::new("/proc/self/cmdline").exists() {
        println!("skipped: this system does not tell which processes run");
        return None;
    }
    sandbox.write("long.aorta", "param t = 1us\nstep { spin(t) }");
    let options = "--effort quick --config observed_iterations=100 --timeout 2000s --order given --json a.jsonl";
    let child = start(sandbox, &format!("long.aorta --set t=1us,10s,2us --backend host {options}"));
    wait_for("the second case", || whole_lines(sandbox, "a.jsonl") == 2 && case_of(sandbox).is_some());
    Some(child)
}

fn signal(which: &str, process: u32) {
    let kill = Command::new("kill").args([which, &process.to_string()]).status().expect("`kill` is there");
    assert!(kill.success());
}

#[test]
fn a_case_that_is_killed_has_failed() {
    let sandbox = Sandbox::new();
    let Some(mut child) = long_sweep(&sandbox) else { return };
    signal("-KILL", case_of(&sandbox).expect("it is under way"));
    assert_eq!(child.wait().expect("a child can be waited for").code(), Some(4));
    let cases = lines(&sandbox, "a.jsonl");
    assert!(cases[2]["reason"].as_str().is_some_and(|reason| reason.contains("SIGKILL")), "{}", cases[2]["reason"]);
    let ended: Vec<String> = statuses(&sandbox, "a.jsonl").into_iter().map(|(_, status)| status).collect();
    assert_eq!([&ended[0], &ended[1]], ["done", "failed"]);
    assert_eq!(ended.len(), 3, "the next case has run: {ended:?}");
}

#[test]
fn ctrl_c_ends_the_case_too() {
    let sandbox = Sandbox::new();
    let Some(mut child) = long_sweep(&sandbox) else { return };
    // Signals the sweep only; a terminal would signal both.
    signal("-INT", child.id());
    let status = child.wait().expect("a child can be waited for");
    assert_eq!(status.code(), Some(130));
    assert!(case_of(&sandbox).is_none(), "the case is gone before the sweep is");
    assert_eq!(std::fs::read_dir(sandbox.path("tmp")).expect("listed").count(), 0, "temporary files are gone");
    // The case did not go on to its end or to its time limit, whose results would be here.
    assert_eq!(statuses(&sandbox, "a.jsonl"), [("t=1us".to_owned(), "done".to_owned())]);
    assert!(!sandbox.good(&["report", "a.jsonl"]).is_empty());
}

#[test]
fn a_case_does_not_outlive_a_sweep_that_is_killed() {
    let sandbox = Sandbox::new();
    let Some(mut child) = long_sweep(&sandbox) else { return };
    child.kill().expect("SIGKILL reaches it");
    child.wait().expect("a child can be waited for");
    wait_for("the end of the case", || case_of(&sandbox).is_none());
}

#[test]
fn a_file_that_somebody_else_writes_to_ends_a_sweep() {
    let sandbox = Sandbox::new();
    sandbox.write("slow.aorta", "param t = 1us\nstep { spin(t) }");
    let arguments =
        words("sweep slow.aorta --set t=1us,500ms,2us --backend host --effort sanity --order given --json a.jsonl");
    let child = sandbox.command(&arguments).spawn().expect("the binary starts");
    wait_for("the first case", || whole_lines(&sandbox, "a.jsonl") == 2);
    let text = sandbox.read("a.jsonl") + "another\n";
    sandbox.write("a.jsonl", &text);
    let output = finish(child);
    assert_eq!(output.code, Some(2), "{}", output.stdout);
    assert!(output.stderr.contains("another program has written to it meanwhile"), "{}", output.stderr);
    assert_eq!(sandbox.read("a.jsonl"), text);
}

/// Twelve tiny kernels: with a small `gate_depth` an iteration cannot be gated.
const TINY: &str = "\
stream s[2]
buffer x[2]: f32[64]
step { for i in 0..12 { on s[i % 2] { map(x[i % 2] + 1 -> x[i % 2]) } } }
metric each = time / 12
";

/// Gated and ungated times are not compared.
#[test]
fn like_is_compared_with_like() {
    let sandbox = Sandbox::new();
    sandbox.write("tiny.aorta", TINY);
    let output = sweep(&sandbox, "tiny.aorta --config gate_depth=4,256,512 --json a.jsonl");
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    insta::assert_snapshot!("like_with_like", output.stdout);
    // Gated, two of them take a fraction of the time; host-paced, all three are equal.
    assert!(output.stdout.contains("gate_depth had no effect"), "{}", output.stdout);
    // If all cases could be gated, the headline counts.
    let output = sweep(&sandbox, "tiny.aorta --config gate_depth=256,512 --json b.jsonl");
    assert!(!output.stdout.contains("host-paced") && output.stdout.contains("each"), "{}", output.stdout);
}

/// Iterations of synthetic work do not say how much they do, and more of it takes longer.
#[test]
fn unequal_iterations_have_no_best_value() {
    let sandbox = Sandbox::new();
    let text = "param n = 1\nstream s[n]\nstep { for i in 0..4 { for j in 0..n { on s[j] { spin(20us) } } } }\n";
    sandbox.write("spins.aorta", text);
    let output = sweep(&sandbox, "spins.aorta --set n=1,2,4 --json a.jsonl");
    insta::assert_snapshot!("unequal_iterations", output.stdout);
    let text = sandbox.read("a.jsonl");
    sandbox.write("part.jsonl", text.lines().take(2).map(|line| format!("{line}\n")).collect::<String>());
    let told = sandbox.good(&["report", "part.jsonl"]);
    assert!(told.contains("spins.aorta: 1 of 3 cases over n (3 values)"), "{told}");
    let output = sweep(&sandbox, "spins.aorta --set n=1 --gate auto,off --json b.jsonl");
    assert!(output.stdout.contains("1 of 2 cases ran without the gate (`--gate off`)."), "{}", output.stdout);
}

/// Equal numbers of operations, streams and waits do not imply the same program.
#[test]
fn plans_are_distinguished() {
    let sandbox = Sandbox::new();
    let text = "param apart = true\nparam unused = 1\nstream s[2]\nstep {\n\
                on s[0] { spin(30us) }  on s[if apart { 1 } else { 0 }] { spin(30us) }\n\
                on s[if apart { 0 } else { 1 }] { spin(10us) }  on s[1] { spin(10us) }\n}\n";
    sandbox.write("plans.aorta", text);
    let output = sweep(&sandbox, "plans.aorta --set apart=true,false --set unused=1,2 --json a.jsonl");
    assert!(!output.stdout.contains("apart leaves the program"), "{}", output.stdout);
    assert!(output.stdout.contains("unused had no effect"), "{}", output.stdout);
    let plans: Vec<Value> = lines(&sandbox, "a.jsonl")[1..]
        .iter()
        .map(|case| (case["values"]["apart"].clone(), case["record"]["program"]["plan"].clone()))
        .map(|(apart, plan)| Value::from(vec![apart, plan]))
        .collect();
    let different: std::collections::BTreeSet<String> = plans.iter().map(Value::to_string).collect();
    assert_eq!(different.len(), 2, "{plans:?}");
    // Records of older versions do not contain what ran, so nothing is reported about it.
    let old: String = sandbox
        .read("a.jsonl")
        .lines()
        .map(|line| {
            let mut case: Value = serde_json::from_str(line).expect("a line is JSON");
            if let Some(program) = case.pointer_mut("/record/program").and_then(Value::as_object_mut) {
                program.remove("plan");
            }
            format!("{case}\n")
        })
        .collect();
    sandbox.write("old.jsonl", &old);
    let told = sandbox.good(&["report", "old.jsonl"]);
    assert!(told.contains("best: ") && !told.contains("no effect") && !told.contains(" plan"), "{told}");
}

#[test]
fn a_table_has_metrics_and_is_sorted() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "work.aorta",
        "param n = 1\nstep { f: work(flops: 1GFLOP * n) }\nmetric rate = flops / time\nmetric busy_time = busy(f)\n",
    );
    let order = |sort: &str| -> Vec<String> {
        let arguments = format!("work.aorta --set n=4,1,16,2 --json a.jsonl --resume {sort} --csv a.csv");
        let output = sweep(&sandbox, &arguments);
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        let rows = output.stdout.lines().skip_while(|line| !line.starts_with("n ")).skip(1);
        let rows: Vec<String> = rows.take_while(|line| !line.is_empty()).map(|row| words(row)[0].to_owned()).collect();
        let csv = sandbox.read("a.csv");
        let in_csv: Vec<String> =
            csv.lines().skip(1).filter_map(|row| row.split(',').nth(1).map(str::to_owned)).collect();
        assert_eq!(rows, in_csv, "{sort}");
        rows
    };
    assert_eq!(order(""), ["4", "1", "16", "2"]);
    assert_eq!(order("--sort n"), ["1", "2", "4", "16"]);
    assert_eq!(order("--sort -n"), ["16", "4", "2", "1"]);
    assert_eq!(order("--sort median"), ["1", "2", "4", "16"]);
    assert_eq!(order("--sort busy_time"), ["1", "2", "4", "16"]);
    // The highest rate is the best one.
    assert_eq!(order("--sort rate"), ["16", "4", "2", "1"]);
    assert_eq!(order("--sort -rate"), ["1", "2", "4", "16"]);
    let table = sandbox.good(&["report", "a.jsonl", "--sort", "-busy_time"]);
    let header = table.lines().find(|line| line.starts_with("n ")).expect("a table has a header");
    assert!(header.contains("rate") && header.contains("busy_time"), "{table}");
    for command in ["sweep work.aorta --backend sim --set n=1,2 --sort rte", "report a.jsonl --sort rte"] {
        let output = sandbox.run(&words(command));
        assert_eq!(output.code, Some(2), "{}", output.stderr);
        assert!(output.stderr.contains("did you mean `rate`?"), "{}", output.stderr);
    }
}

/// A single sample does not show the noise, so there is no conclusion.
#[test]
fn single_samples_conclude_nothing() {
    let sandbox = Sandbox::new();
    sandbox.write("slow.aorta", "param n = 1\nstep { spin(200us * n) }");
    let run = |arguments: &str| {
        // Times so different that no noise of this machine makes them similar.
        let arguments = format!("sweep slow.aorta --backend host --set n=1,20,400 {arguments}");
        let output = sandbox.run(&words(&arguments));
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        output.stdout
    };
    for arguments in ["--warmup 0 --iterations 1", "--warmup 5 --iterations 1", "--effort sanity"] {
        let told = run(arguments);
        assert!(told.contains("no measurement") && told.contains("no conclusion: "), "{arguments}: {told}");
        assert!(!told.contains("best: ") && !told.contains("knee: "), "{arguments}: {told}");
    }
    assert!(run("--warmup 1 --iterations 8").contains("best: n = "));
}
