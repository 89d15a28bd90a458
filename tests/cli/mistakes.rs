//! Broken files and arguments: each is an error with a code, never a panic, a hang or a folder full of leftovers.

use std::process::{Command, Stdio};

use super::sandbox::{Output, Sandbox, finish};

/// The command fails as bad input does, and says all of this.
#[track_caller]
pub fn refused(output: &Output, says: &[&str]) {
    assert_eq!(output.code, Some(2), "{output:?}");
    // Lines are broken where the terminal would: messages are looked for without.
    let said = output.stderr.replace("\n  │ ", " ").replace("\n        ", " ");
    for internal in ["struct", "enum", "`Layer`", "`Scenario`", "`Effort`"] {
        assert!(!said.contains(internal), "{internal} is in\n{}", output.stderr);
    }
    for part in says {
        assert!(said.contains(part), "{part:?} is not in\n{}", output.stderr);
    }
}

#[test]
fn files_that_cannot_be_read() {
    let sandbox = Sandbox::new();
    sandbox.write("bytes.aorta", b"step {\n  nop() \xff\n}");
    sandbox.write("empty.aorta", "");
    sandbox.write("blank.aorta", "\n \t// nothing\n");
    sandbox.write("zero.aorta", "step { \0 }");
    sandbox.write("folder/inside", "");
    let large = std::fs::File::create(sandbox.path("large.aorta")).expect("a file can be made");
    large.set_len((4 << 20) + 1).expect("a file can be made longer");
    // The file is sparse and reads as zeros.
    let huge = std::fs::File::create(sandbox.path("huge.aorta")).expect("a file can be made");
    huge.set_len(100_000_000).expect("a file can be made longer");
    let cases: [(&str, &[&str]); 7] = [
        ("bytes.aorta", &["aorta::cli::unreadable", "it is not text: line 2 is not UTF-8", "help: save it as UTF-8"]),
        ("empty.aorta", &["aorta::model::no_step", "help: `step { … }`"]),
        ("blank.aorta", &["aorta::model::no_step"]),
        ("zero.aorta", &["aorta::syntax::unexpected_character"]),
        ("folder", &["aorta::cli::unreadable", "it is a folder", "help: name a file in it"]),
        ("large.aorta", &["aorta::cli::unreadable", "larger than 4194304 bytes", "--config max_file_bytes="]),
        ("huge.aorta", &["aorta::cli::unreadable", "larger than 4194304 bytes"]),
    ];
    for (file, says) in cases {
        for command in ["exec", "check", "plan"] {
            refused(&sandbox.run(&[command, file]), says);
        }
    }
    refused(&sandbox.run(&["show", "bytes.aorta"]), &["aorta::cli::unreadable"]);
    sandbox.good(&["show", "empty.aorta"]);
    sandbox.write("small.aorta", "step { nop() }");
    let limited = sandbox.run(&["exec", "small.aorta", "--config", "max_file_bytes=13"]);
    refused(&limited, &["larger than 13 bytes"]);
}

/// Results of earlier commands in the place of a workload.
#[test]
fn results_are_no_workloads() {
    let sandbox = Sandbox::new();
    sandbox.write("a.aorta", "param n = 1\nstep { spin(n * 1us) }");
    sandbox.good(&[
        "sweep",
        "a.aorta",
        "--backend",
        "sim",
        "--set",
        "n=1,2",
        "--effort",
        "sanity",
        "--json",
        "a.jsonl",
    ]);
    for command in ["exec", "plan", "show"] {
        refused(&sandbox.run(&[command, "a.jsonl"]), &["results of several runs", "`aorta report a.jsonl` shows them"]);
    }
    let timeline = sandbox.run(&["report", "a.jsonl", "--timeline"]);
    refused(&timeline, &["the file of `--timeline` cannot be `a.jsonl`: it has several runs"]);
}

/// Options without an effect, of other tools, or for another backend.
#[test]
fn options_that_do_not_apply() {
    let sandbox = Sandbox::new();
    sandbox.write("a.aorta", "step { nop() }");
    for (arguments, says) in [
        ("exec a.aorta --stream 2", "did you mean `--streams 2`?"),
        ("exec a.aorta --quiet", "`> /dev/null` drops what is printed"),
        ("exec a.aorta --backend sim --device 3", "`--backend cuda` and `--backend hip`"),
        ("suite --only x", "required arguments were not provided"),
        ("sweep a.aorta --streams 1,2 --budget 5", "`--budget` is an option of a search"),
    ] {
        refused(&sandbox.run(&arguments.split_whitespace().collect::<Vec<_>>()), &[says]);
    }
}

/// Files that may block forever are not opened: nobody writes to these.
#[test]
fn paths_that_are_not_files() {
    let sandbox = Sandbox::new();
    let made = Command::new("mkfifo").arg(sandbox.path("pipe.aorta")).status();
    assert!(made.expect("`mkfifo` is there").success());
    std::os::unix::fs::symlink("pipe.aorta", sandbox.path("link.aorta")).expect("a link can be made");
    std::os::unix::fs::symlink("round.aorta", sandbox.path("round.aorta")).expect("a link can be made");
    std::os::unix::fs::symlink("nowhere.aorta", sandbox.path("broken.aorta")).expect("a link can be made");
    let _socket = std::os::unix::net::UnixListener::bind(sandbox.path("socket.aorta")).expect("a socket can be made");
    let instead = "help: give the text on standard input, with `-` in place of the file";
    let cases: [(&str, &[&str]); 7] = [
        ("pipe.aorta", &["aorta::cli::unreadable", "it is a pipe, and no file", instead]),
        ("link.aorta", &["it is a pipe, and no file"]),
        ("socket.aorta", &["it is a socket, and no file", instead]),
        ("/dev/zero", &["it is a device, and no file", instead]),
        ("/dev/null", &["it is a device, and no file"]),
        ("round.aorta", &["aorta::cli::unreadable", "round.aorta cannot be read: "]),
        ("broken.aorta", &["aorta::cli::unknown_workload"]),
    ];
    for (file, says) in cases {
        for command in ["exec", "check", "plan", "show"] {
            refused(&sandbox.run(&[command, file]), says);
        }
    }
    for arguments in [
        &["report", "pipe.aorta"][..],
        &["check", "moe", "--config-file", "pipe.aorta"],
        &["exec", "moe", "--config", "profile=pipe.ron"],
        &["exec", "pipe.ron"],
    ] {
        let _ = std::os::unix::fs::symlink("pipe.aorta", sandbox.path("pipe.ron"));
        refused(&sandbox.run(arguments), &["it is a pipe, and no file", "help: name a file"]);
    }
}

/// Runs with a text on standard input.
fn run_with_input(sandbox: &Sandbox, arguments: &[&str], text: &[u8]) -> Output {
    let mut child = sandbox.command(arguments).stdin(Stdio::piped()).spawn().expect("the binary starts");
    let mut input = child.stdin.take().expect("piped");
    // The command may close its input early.
    let _ = std::io::Write::write_all(&mut input, text);
    drop(input);
    finish(child)
}

#[test]
fn standard_input() {
    let sandbox = Sandbox::new();
    for command in ["check", "plan", "show", "exec"] {
        let output = run_with_input(&sandbox, &[command, "-"], b"//! From a pipe.\nstep { nop() }");
        assert_eq!(output.code, Some(0), "{command}: {}", output.stderr);
    }
    let output = run_with_input(&sandbox, &["check", "-"], b"step { nop() }");
    assert_eq!(output.stdout, "<stdin>: good: 1 operation on 1 stream\n");
    refused(&run_with_input(&sandbox, &["check", "-"], b"step {\n  nop( }"), &["aorta::syntax::", "<stdin>:2:"]);
    refused(&run_with_input(&sandbox, &["check", "-"], b""), &["aorta::model::no_step", "<stdin>:1:1"]);
    refused(&run_with_input(&sandbox, &["check", "-"], b"\xff"), &["standard input cannot be read", "is not UTF-8"]);
    let endless = vec![b'\n'; 5 << 20];
    refused(&run_with_input(&sandbox, &["check", "-"], &endless), &["larger than 4194304 bytes"]);
}

#[test]
fn programs_without_measure() {
    let sandbox = Sandbox::new();
    let nested = |open: &str, close: &str, depth| format!("{}nop(){}", open.repeat(depth), close.repeat(depth));
    let cases: [(&str, String, &[&str]); 8] = [
        ("brackets", format!("step {{ fill({} -> f32[1]) }}", nested("(", ")", 100_000)), &["aorta::syntax::too_deep"]),
        ("blocks", format!("step {{ {} }}", nested("if true {\n", "}", 5_000)), &["aorta::syntax::too_deep", "64"]),
        ("open", "step {\n".repeat(50_000), &["aorta::syntax::"]),
        ("signs", format!("let x = {}1\nstep {{ nop() }}", "-".repeat(200_000)), &["aorta::syntax::"]),
        (
            "turns",
            "step { for i in 0..1_000_000_000 { } }".to_owned(),
            &["aorta::model::range_too_long", "turns.aorta:1:17"],
        ),
        ("itself", "def f() { f() }\nstep { f() }".to_owned(), &["aorta::model::recursion"]),
        ("streams", "stream s[1_000_000_000]\nstep { on s[0] { nop() } }".to_owned(), &["aorta::model::bad_size"]),
        ("bytes", "buffer x: f32[1 << 62]\nstep { fill(1 -> x) }".to_owned(), &["aorta::"]),
    ];
    for (name, text, says) in cases {
        sandbox.write(&format!("{name}.aorta"), text);
        refused(&sandbox.run(&["exec", &format!("{name}.aorta"), "--backend", "sim"]), says);
    }
    // The limit of operations is lowered, so that the test does not take as long as four million of them.
    sandbox.write("loop.aorta", "step { for i in 0..1000 { for j in 0..1000 { nop() } } }");
    let output = sandbox.run(&["exec", "loop.aorta", "--backend", "sim", "--config", "max_operations=1000"]);
    refused(&output, &["aorta::model::too_many_operations", "more than 1000 operations", "--config max_operations="]);
}

#[test]
fn arguments() {
    let sandbox = Sandbox::new();
    sandbox.write("number.aorta", "step { if iteration == 3 { nop() } nop() }");
    let cases: [(&[&str], &[&str]); 41] = [
        (&["--set", "tokens"], &["aorta::cli::no_pair", "help: write `--set tokens=4096`"]),
        (&["--set", "=1"], &["aorta::model::unknown_parameter"]),
        (&["--set", "tokens="], &["aorta::syntax::unexpected_token", "found the end of the value"]),
        (&["--set", "tokens=((("], &["aorta::syntax::"]),
        (
            &["--set", "tokens=many"],
            &["aorta::model::not_allowed", "`tokens` cannot be many", "allowed: a plain number"],
        ),
        (&["--set", "tokens=-4"], &["aorta::"]),
        (&["--set", "dtype=f33"], &["aorta::"]),
        (
            &["--preset", "huge"],
            &[
                "aorta::model::unknown_preset",
                "help: known here: `skewed`, `grouped`, `deepseek_v3`, `small`, `aorta` and `tiny`",
            ],
        ),
        (&["--streams", "0"], &["aorta::cli::bad_value", "a run needs a stream"]),
        (&["--streams", "65"], &["aorta::model::not_allowed", "allowed: 3..=64"]),
        (&["--streams", "100000"], &["aorta::model::not_allowed"]),
        (&["--streams", "many"], &["invalid value 'many'", "a whole number is expected"]),
        (&["--streams", "99999999999999999999"], &["the number is too large"]),
        (&["--config", "in_flihgt=4"], &["aorta::config::unknown_setting", "help: did you mean `in_flight`?"]),
        (&["--config", "in_flight"], &["aorta::config::no_pair", "help: write the name"]),
        (&["--config", "in_flight=99"], &["aorta::config::bad_value", "it lies between 1 and 16"]),
        (&["--config", "timeout=5"], &["aorta::config::bad_value", "write `5s`"]),
        (
            &["--config", "profile=gaudi3"],
            &["aorta::config::unknown_profile", "help: known here: `h100`, `h200`, `mi300x`, `mi325x` and `mi355x`"],
        ),
        (&["--config", "profile=a100.ron"], &["aorta::cli::unreadable", "help: a device profile is expected"]),
        (&["--config-file", "nothing.ron"], &["there is no such file", "help: a settings file is expected"]),
        (&["--config", "effort=hasty"], &["`hasty` is none of `sanity`, `quick` and `full`"]),
        (&["--config", "quick=(warmup:3,iterations:0)"], &["`quick.iterations`", "it lies between 1 and 1048576"]),
        (&["--config", "full=(warmup:1048577,iterations:1)"], &["`full.warmup`", "it lies between 0 and 1048576"]),
        (&["--config", "timeout=99999999999999999999999s"], &["aorta::config::bad_value", "it is too large"]),
        (&["--config", "timeout=1e3s"], &["aorta::config::bad_value", "in digits and its unit, such as 60s or 1.5ms"]),
        (&["--set", "tokens=2^10"], &["found `^`", "help: a power is `pow(x, 2)`"]),
        (&["--config", "timeout=0.1ns"], &["aorta::config::bad_value", "it is too small"]),
        (&["--config", "max_memory=999999999999TiB"], &["aorta::config::bad_value", "it is too large"]),
        (&["--env", "CUDA_DEVICE_ORDER"], &["aorta::cli::no_variable", "help: write `--env "]),
        (&["--env", "=5"], &["aorta::cli::no_variable"]),
        (&["--iterations", "-1"], &["unexpected argument '-1'"]),
        (&["--iterations", "0"], &["'--iterations <N>'", "0 is not in 1..=1048576"]),
        (&["--iterations", "1048577"], &["'--iterations <N>'", "1048577 is not in 1..=1048576"]),
        (&["--warmup", "1048577"], &["'--warmup <N>'", "1048577 is not in 0..=1048576"]),
        (&["--cycle", "0"], &["'--cycle <N>'", "0 is not in 1..=4096"]),
        (&["--cycle", "1000000000"], &["'--cycle <N>'", "1000000000 is not in 1..=4096"]),
        (&["--device", "0"], &["aorta::cli::no_devices", "the simulator has no devices", "`--backend cuda`"]),
        (&["--backend", "host", "--device", "0"], &["aorta::cli::no_devices", "the CPU has no devices"]),
        (&["--verify"], &["aorta::cli::no_results", "`--verify` needs results", "`--backend host`"]),
        (&["--outputs", "folder"], &["aorta::cli::no_results", "`--outputs` needs results"]),
        (&["--counters", "gem"], &["aorta::cli::no_operation", "no operation of moe.aorta is called `gem`", "`gemm`"]),
    ];
    for (arguments, says) in cases {
        let simulated: &[&str] = if arguments.contains(&"--backend") { &[] } else { &["--backend", "sim"] };
        refused(&sandbox.run(&[&["exec", "moe"], simulated, arguments].concat()), says);
    }
    sandbox.good(&["exec", "number.aorta", "--backend", "sim", "--effort", "sanity", "--cycle", "4096"]);
    // There is nothing that it could be the number of.
    sandbox.good(&["exec", "moe", "--preset", "tiny", "--backend", "sim", "--effort", "sanity", "--cycle", "4096"]);
    use std::os::unix::ffi::OsStrExt;
    let name = std::ffi::OsStr::from_bytes(b"\xff.aorta");
    refused(&sandbox.run(&["check".as_ref(), name]), &["invalid UTF-8"]);
    assert_eq!(sandbox.listing(), ["number.aorta"]);
}

/// Mistakes in the arguments have the format that the command line names.
#[test]
fn formats_of_mistakes_in_arguments() {
    let sandbox = Sandbox::new();
    let cases: [(&str, &str, &str); 5] = [
        ("exec moe --backend simu", "invalid value 'simu' for '--backend <BACKEND>'", "a similar value exists: 'sim'"),
        ("exec moe --iterations 0", "0 is not in 1..=1048576", "write a number from 1 to 1048576"),
        ("exce moe", "unrecognized subcommand 'exce'", "'exec'"),
        ("exec moe --gpus 4", "unexpected argument '--gpus' found", "did you mean `--ranks 4`?"),
        ("exec", "the following required arguments were not provided: <FILE>", "`aorta exec --help`"),
    ];
    for (typed, message, help) in cases {
        let words: Vec<&str> = typed.split(' ').collect();
        let output = sandbox.run(&[&words[..], &["--diagnostics", "json"]].concat());
        assert_eq!((output.code, output.stderr.as_str()), (Some(2), ""), "{typed}");
        let told: serde_json::Value = serde_json::from_str(&output.stdout).expect("one line of JSON");
        assert_eq!((&told["severity"], &told["code"]), (&"error".into(), &serde_json::Value::Null), "{typed}");
        assert!(told["message"].as_str().is_some_and(|text| text.contains(message)), "{typed}: {told}");
        assert!(told["help"].as_str().is_some_and(|text| text.contains(help)), "{typed}: {told}");
        let output = sandbox.run(&[&["--diagnostics=github"], &words[..]].concat());
        assert_eq!(output.code, Some(2), "{typed}");
        assert!(output.stdout.starts_with("::error::") && output.stderr.is_empty(), "{typed}: {}", output.stdout);
        assert!(output.stdout.contains("%0Ahelp: "), "{typed}: {}", output.stdout);
    }
}

#[test]
fn records() {
    let sandbox = Sandbox::new();
    sandbox.record(&["moe", "--preset", "tiny", "--effort", "sanity"]);
    let text = sandbox.read("record.json");
    sandbox.write("cut.json", &text[..text.len() / 2]);
    sandbox.write("other.json", text.replace("aorta.run/1", "aorta.run/99"));
    sandbox.write("without.json", text.replacen("\"complete\"", "\"completed\"", 1));
    sandbox.write("nothing.json", "");
    sandbox.write("list.json", "[]");
    sandbox.write("deep.json", "[".repeat(200_000));
    sandbox.write("foreign.json", "{\"traceEvents\": []}");
    sandbox.write("bytes.json", b"{\"schema\": \"\xff\"}");
    let cases: [(&str, &[&str]); 8] = [
        ("cut.json", &["it is no JSON of a run", "help: `aorta exec FILE --json PATH` writes one"]),
        ("other.json", &["it has the schema `aorta.run/99`, and this version reads `aorta.run/1`"]),
        ("without.json", &["it is damaged: line ", "missing field"]),
        ("nothing.json", &["it is empty"]),
        ("list.json", &["it is no JSON of a run"]),
        ("deep.json", &["it is no JSON of a run"]),
        ("foreign.json", &["it has no `schema`"]),
        ("bytes.json", &["it is not text"]),
    ];
    for (file, says) in cases {
        let output = sandbox.run(&["report", file, "--csv", "a.csv"]);
        assert_eq!(output.stdout, "");
        refused(&output, says);
    }
    refused(&sandbox.run(&["report", "missing.json"]), &["aorta::cli::unreadable"]);
    refused(&sandbox.run(&["report", "."]), &["it is a folder"]);
    assert!(!sandbox.path("a.csv").exists());
}

#[test]
fn scenarios() {
    let sandbox = Sandbox::new();
    let cases: [(&str, &[&str]); 27] = [
        ("(workload: \"moe\", presett: \"tiny\")", &["aorta::config::bad_ron", "a.ron:1:19", "did you mean `preset`?"]),
        ("(workload: 3)", &["aorta::config::bad_ron", "a.ron:1:12", "a text in quotes is expected"]),
        (
            "(workload: \"moe\", colour: 3)",
            &["there is no field `colour`", "; the most similar are ", "docs/start/05-sharing-a-scenario.md"],
        ),
        ("(workload: \"moe\", effort: hasty)", &["a.ron:1:27", "`hasty` is none of `sanity`, `quick` and `full`"]),
        (
            "(workload: \"moe\",\n streams: \"2\")",
            &[
                "╭─[a.ron:2:11]",
                "streams: \"2\")",
                "the value of `streams`",
                "help: leave out the quotes: `streams: 2`",
            ],
        ),
        (
            "(workload: \"moe\", set: {tokens: 8})",
            &["there is no field `set`", "help: write `params` instead of `set`"],
        ),
        ("(workload: \"moe\", fail-on: [])", &["there is no field `fail-on`", "help: did you mean `fail_on`?"]),
        (
            "(workload: \"moe\", params: {tokens: 4 * 2})",
            &["`4 * 2` is not one value", "help: add quotes: `tokens: \"4 * 2\"`"],
        ),
        ("(workload: \"moe\", params: {tokens: 8, \"tokens\": 9})", &["`tokens` is there twice"]),
        (
            "(workload: \"moe\", timeout: 10s)",
            &["a text in quotes is expected", "help: add quotes: `timeout: \"10s\"`"],
        ),
        ("(workload: \"moe\", timeout: 10)", &["a text in quotes is expected", "help: write it as `timeout: \"10s\"`"]),
        ("(workload: \"moe\", streams: 1.5)", &["a whole number is expected"]),
        (
            "(workload: \"moe\", backend: sim, limits: {tokens: (from: \"1\")})",
            &["a limit cannot be `tokens`", "has no such metric"],
        ),
        ("(workload: \"µ\", effort: hasty)", &["a.ron:1:25", "the value of `effort`"]),
        (
            "(workload: \"moe\"\n timeout: \"9s\")",
            &["a.ron:1:12", "a `,` is missing behind `\"moe\"`", "help: write `workload: \"moe\",`"],
        ),
        ("workload = 3", &["aorta::config::bad_ron", "a.ron:1:1", "fields between `(` and `)` are expected"]),
        ("(workload: \"moe\", environment: {\"\": \"1\"})", &["aorta::config::bad_variable", "the variable ``"]),
        ("(workload: \"moe\", environment: {\"A=B\": \"1\"})", &["aorta::config::bad_variable", "`A=B`"]),
        ("(workload: \"moe\", environment: {\"A\": \"\\u{0}\"})", &["aorta::config::bad_variable", "`A`"]),
        ("(workload: \"moe\", streams: -1)", &["aorta::config::bad_ron", "a whole number is expected"]),
        ("(workload: \"moe\"", &["aorta::config::bad_ron"]),
        ("()", &["aorta::config::no_workload", "a.ron names no workload", "`workload: \"moe\"`"]),
        ("(workload: \"moee\")", &["aorta::cli::unknown_workload", "help: did you mean `moe`?"]),
        (
            "(workload: \"moe\", backend: \"opencl\")",
            &["`opencl` is none of `auto`, `cuda`, `hip`, `host` and `sim`", "the value of `backend`"],
        ),
        ("(workload: \"moe\", launch: \"twice\")", &["`twice` is none of `stream`, `graph` and `both`"]),
        ("(workload: \"moe\", ranks: 4096)", &["`ranks` cannot be `4096`", "1..=1024", "the value of `ranks`"]),
        ("(workload: \"moe\", params: {\"tokns\": \"8\"}, backend: \"sim\")", &["help: did you mean `tokens`?"]),
    ];
    for (text, says) in cases {
        sandbox.write("a.ron", text);
        refused(&sandbox.run(&["exec", "a.ron"]), says);
    }
    refused(&sandbox.run(&["exec", "missing.ron"]), &["aorta::cli::unreadable", "help: a scenario is expected"]);
}

/// Every mistake of a file is reported at once, in the order of its lines, each with its line.
#[test]
fn all_mistakes_of_a_file() {
    let sandbox = Sandbox::new();
    let reported = |command: &str, says: &[(&str, usize, &str)]| {
        let output = sandbox.run(&command.split_whitespace().collect::<Vec<_>>());
        assert_eq!(output.code, Some(2), "{output:?}");
        let found = output.stdout.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
        let found: Vec<(String, u64, String)> = found
            .map(|one| {
                let label = &one["labels"][0];
                let text =
                    format!("{} / {}", one["message"].as_str().expect("a text"), one["help"].as_str().unwrap_or(""));
                (label["file"].as_str().expect("a file").to_owned(), label["line"].as_u64().expect("a line"), text)
            })
            .collect();
        assert_eq!(found.len(), says.len(), "{command}: {found:#?}");
        for ((file, line, text), (of, at, says)) in found.iter().zip(says) {
            assert!(file == of && *line == *at as u64 && text.contains(says), "{says} at {of}:{at}, not {found:#?}");
        }
    };
    sandbox.write(
        "a.ron",
        "(\n  workload: \"moe\",\n  efort: quick,\n  streams: \"2\",\n  set: {tokens: 8},\n  gate: of,\n  warmup: 9999999,\n  \
         environment: {LD_PRELOAD: x, NCCL_DEBUG: WARN},\n  settings: {in_flihgt: 3, in_flight: 99, max_memory: \"2TiB\"},\n  \
         timeout: \"5\", profile: \"/etc/x.ron\",\n  limits: {time: (), rate: (form: 3)},\n  axes: {strams: [1, 2]},\n  \
         sides: {c: \"\"},\n)\n",
    );
    let of_scenario: [(&str, usize, &str); 15] = [
        ("a.ron", 3, "did you mean `effort`?"),
        ("a.ron", 4, "leave out the quotes: `streams: 2`"),
        ("a.ron", 5, "write `params`"),
        ("a.ron", 6, "`of` is none of `auto` and `off` / did you mean `off`?"),
        ("a.ron", 7, "`warmup` cannot be `9999999`"),
        ("a.ron", 8, "LD_PRELOAD"),
        ("a.ron", 9, "did you mean `in_flight`?"),
        ("a.ron", 9, "`in_flight` cannot be 99: it lies between 1 and 16 / write a value such as `2`"),
        ("a.ron", 9, "a.ron sets `max_memory`, which only you may set"),
        ("a.ron", 10, "write `\"5s\"`"),
        ("a.ron", 10, "/etc/x.ron"),
        ("a.ron", 11, "neither a beginning nor an end"),
        ("a.ron", 11, "did you mean `from`?"),
        ("a.ron", 12, "did you mean `streams`?"),
        ("a.ron", 13, "the sides are `a` and `b`"),
    ];
    for command in ["exec", "check", "sweep", "ab", "plan", "show", "bundle"] {
        reported(&format!("{command} a.ron --diagnostics json"), &of_scenario);
    }
    sandbox.write(
        "s.ron",
        "(\n  descripton: \"d\",\n  cases: [\n    (wrkload: \"moe\"),\n    (workload: \"moe\", ranks: 0, streams: [\"2\"]),\n    \
         (workload: \"moe\", set: {n: 3}, settings: {stall: \"9s\"}),\n    (preset: tiny),\n    (workload: \"moe\", launch: grap),\n  ],\n)\n",
    );
    let of_suite: [(&str, usize, &str); 9] = [
        ("s.ron", 2, "did you mean `description`?"),
        ("s.ron", 4, "did you mean `workload`?"),
        ("s.ron", 5, "cannot be 0: it is 1 at least"),
        ("s.ron", 5, "a whole number is expected"),
        ("s.ron", 6, "write `params`"),
        ("s.ron", 6, "s.ron sets `stall`"),
        ("s.ron", 7, "a case names one"),
        ("s.ron", 7, "add quotes: `preset: \"tiny\"`"),
        ("s.ron", 8, "did you mean `graph`?"),
    ];
    for command in ["suite", "check", "show"] {
        reported(&format!("{command} s.ron --diagnostics json"), &of_suite);
    }
    sandbox.write("aorta.ron", "(\n  librry: [\"x\"],\n  library: [\"..\", \".\", \"/etc\"],\n  description: 3,\n)\n");
    let of_project: [(&str, usize, &str); 4] = [
        ("aorta.ron", 2, "did you mean `library`?"),
        ("aorta.ron", 3, "a library has to be below the project's folder"),
        ("aorta.ron", 3, "cannot be \"/etc\""),
        ("aorta.ron", 4, "a text in quotes is expected"),
    ];
    reported("list --diagnostics json", &of_project);
    reported("check aorta.ron --diagnostics json", &of_project);
    std::fs::remove_file(sandbox.path("aorta.ron")).expect("it was written");
    let settings = "(\n  in_flihgt: 3,\n  in_flight: 99,\n  timeout: \"5\",\n  effort: hasty,\n  quick: (warmup: 3, iterations: 0),\n)\n";
    sandbox.write("own.ron", settings);
    let of_settings: [(&str, usize, &str); 5] = [
        ("own.ron", 2, "did you mean `in_flight`?"),
        ("own.ron", 3, "`in_flight` cannot be 99"),
        ("own.ron", 4, "write `\"5s\"`"),
        ("own.ron", 5, "`hasty` is none of"),
        ("own.ron", 6, "`quick.iterations` cannot be 0"),
    ];
    reported("exec moe --config-file own.ron --diagnostics json", &of_settings);
    // A missing comma hides nothing.
    sandbox.write("b.ron", "(\n  workload: \"moe\",\n  streams: \"2\",\n  effort: quick\n  launch: both,\n)\n");
    let of_broken = [("b.ron", 3, "leave out the quotes"), ("b.ron", 4, "a `,` is missing behind `quick`")];
    reported("check b.ron --diagnostics json", &of_broken);
}

/// Commands and options of other tools get a tip.
#[test]
fn habits() {
    let sandbox = Sandbox::new();
    sandbox.write("own.aorta", "step { nop() }");
    for (words, says) in [
        (&["run"][..], "tip: did you mean `aorta exec FILE`?"),
        (&["run", "moe", "--streams", "4"], "tip: did you mean `aorta exec moe --streams 4`?"),
        (&["moe", "--streams", "4"], "tip: a command comes before the file: `aorta exec moe --streams 4`"),
        (&["own"], "tip: a command comes before the file: `aorta exec own.aorta`"),
        (&["diff", "a.json", "b.json"], "tip: did you mean `aorta compare RECORD.json NEW.json`?"),
        (&["exce", "moe"], "'exec'"),
        (&["exec", "moe", "--profile", "mi300x"], "tip: `--config profile=NAME`"),
        (&["exec", "moe", "--simulate"], "tip: did you mean `--backend sim`?"),
        (&["exec", "moe", "--gpu", "1"], "tip: did you mean `--device 1`?"),
        (&["exec", "moe", "-np", "4"], "tip: did you mean `--ranks 4`?"),
        (&["check", "moe", "--nproc_per_node=4"], "tip: did you mean `--ranks 4`?"),
        (&["exec", "moe", "--iters", "20"], "tip: did you mean `--iterations 20`?"),
        (&["exec", "moe", "--cuda-graph"], "tip: did you mean `--launch graph`?"),
        (&["exec", "moe", "--svg", "x"], "tip: `--svg` is an option of `aorta plan`"),
        (&["view", "a.json", "--html", "a.html"], "tip: did you mean `--output a.html`?"),
        (&["exec", "moe", "--top", "-1"], "tip: it takes a whole number, such as `--top 5`"),
        (&["exec", "moe", "--streams", "-1"], "tip: it takes a whole number, such as `--streams 4`"),
        (&["baseline", "--problem", "x"], "invalid value 'x' for '--problem <N>': a whole number is expected"),
        (&["report", "a.json", "--markdown"], "tip: did you mean `--format markdown`?"),
        (&["exec", "moe", "-b", "8", "-e", "128M"], "tip: sizes are parameters of the file"),
        (&["exec", "moe", "--top-k", "4"], "tip: `top_k` is a parameter of the file: `--set top_k=4`"),
        (&["exec", "moe", "tokens=64"], "tip: did you mean `--set tokens=64`?"),
        (&["exec", "moe", "NCCL_ALGO=Ring"], "tip: did you mean `--env NCCL_ALGO=Ring`?"),
        (&["exec", "moe", "--set", "tokens", "=", "64"], "tip: write it without spaces: `--set tokens=64`"),
        (&["sweep", "moe", "--streams", "4", "8", "16"], "tip: values have commas between them: `--streams 4,8,16`"),
        (&["exec", "moe", "--iterations", "many"], "tip: it takes a whole number, such as `--iterations 100`"),
        (&["exec", "moe", "--json"], "tip: it names the file to write: `--json run.json`"),
        (&["exec", "moe", "--backend", "cpu"], "tip: `--backend host` runs on the CPU"),
        (&["exec", "moe", "--backend", "gpu"], "tip: `--backend cuda` is an NVIDIA GPU"),
        (&["exec", "moe", "--timeout", "10"], "help: write `10s`"),
        (
            &["exec", "moe", "--streams", "1,2", "--preset", "small"],
            "tip: a run takes one value, and a sweep runs each: `aorta sweep moe --streams 1,2 --preset small`",
        ),
        // A sweep has no `--trace`.
        (&["exec", "moe", "--trace", "t.json", "--ranks=1..3"], "sweep runs each: `aorta sweep moe --ranks 1,2,3`"),
        (&["exec", "moe", "--set", "experts=4,8"], "a sweep runs each: `aorta sweep moe.aorta --set experts=4,8`"),
        (&["check", "moe", "--set", "experts=4,top_k=1"], "its own option: `--set experts=4 --set top_k=1`"),
        (&["exec", "moe", "--config", "max_memory=2"], "help: write `2TiB`"),
        (&["exec", "moe", "--config", "warmup=5"], "help: it is an option of its own: `--warmup=5`"),
        (&["exec", "moe", "--config", "NCCL_ALGO=Ring"], "help: `--env NCCL_ALGO=Ring` sets a variable"),
        (&["suite", "own.aorta"], "help: it is a workload: `aorta exec own.aorta` runs it"),
        (&["report", "own.aorta"], "help: it is a workload: `aorta exec own.aorta --json own.json` runs it"),
    ] {
        refused(&sandbox.run(words), &[says]);
    }
}

#[test]
fn settings_of_the_user() {
    let sandbox = Sandbox::new();
    for (text, says) in [
        ("(in_flihgt: 3)", "did you mean `in_flight`?"),
        ("(in_flight: \"three\")", "a whole number is expected"),
        ("(in_flight: 0)", "it lies between 1 and 16"),
        ("in_flight = 3", "config.ron:1:1"),
        ("(colour: 3)", "docs/settings.md lists every setting"),
        ("(quick: (warmup: 3, iterations: 0))", "`quick.iterations` cannot be 0: it lies between 1 and 1048576"),
    ] {
        sandbox.write_config(text);
        refused(&sandbox.run(&["exec", "moe", "--backend", "sim"]), &["aorta::config::", says]);
    }
}

#[test]
fn plans_to_compare() {
    let sandbox = Sandbox::new();
    sandbox.write("plan.json", sandbox.good(&["plan", "moe", "--preset", "tiny", "--format", "json"]));
    sandbox.write("record.json", "{\"schema\": \"aorta.run/1\"}");
    sandbox.write("newer.json", sandbox.read("plan.json").replacen("aorta.plan/1", "aorta.plan/2", 1));
    sandbox.write("none.json", "step { nop() }");
    let cases: [(&[&str], &[&str]); 8] = [
        (
            &["plan.json", "record.json"],
            &["aorta::cli::no_plan", "record.json is not a plan: it is the record of a run"],
        ),
        (&["newer.json", "plan.json"], &["it has the schema `aorta.plan/2`, and this version reads `aorta.plan/1`"]),
        (&["plan.json", "none.json"], &["it is no JSON of a plan", "--format json > none.json` writes one"]),
        (&["plan.json", "missing.json"], &["aorta::cli::unreadable", "help: a plan is expected"]),
        (&["plan.json", "plan.json", "--set", "tokens=8"], &["aorta::cli::planned_already", "leave `--set`"]),
        (&["plan.json", "moee"], &["aorta::cli::unknown_workload", "did you mean `moe`?"]),
        (&["plan.json"], &["2 values required for '--diff <A> <B>'"]),
        (&["plan.json", "plan.json", "--format", "dot"], &["'--diff <A> <B>' cannot be used with"]),
    ];
    for (arguments, says) in cases {
        let output = sandbox.run(&[&["plan", "--diff"], arguments].concat());
        assert_eq!(output.stdout, "");
        refused(&output, says);
    }
    refused(&sandbox.run(&["plan"]), &["required", "<FILE>"]);
    refused(&sandbox.run(&["dump", "colour", "moe"]), &["invalid value 'colour'", "ast, model, plan, schedule, trace"]);
    let few = ["dump", "trace", "moe", "--preset", "tiny", "--config", "observed_operations=3"];
    refused(&sandbox.run(&few), &["aorta::cli::too_many_to_observe", "more than 3 operations"]);
    sandbox.write("a.aorta", "param n = 3 step { nop(m) }");
    let tree = sandbox.run(&["dump", "ast", "a.aorta"]);
    assert_eq!(
        (tree.code, tree.stdout.as_str()),
        (Some(0), "param n\n  default: 3\nstep\n  do\n    nop()\n      input m\n"),
        "names are not its matter"
    );
}
