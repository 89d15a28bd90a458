//! Limits of untrusted files. Each test enforces a sentence of docs/security.md.

use std::process::{Command, Stdio};

use serde_json::Value;

use super::sandbox::{Output, Sandbox, finish, project};

/// A terminal's title sequence, a colour, a bidirectional mark, and a command of GitHub's workflows.
const HOSTILE: &str = "x\u{1b}]0;owned\u{7}\u{1b}[31m\u{9b}2J\u{202e}\u{2066}\u{200b}\u{0}\r::error::y ##[error]z";

/// Checks that a text contains nothing that a terminal, an editor or a log would execute.
#[track_caller]
fn harmless(what: &str, text: &str) {
    let hidden = |c: char| {
        (c.is_control() && c != '\n' && c != '\t')
            || matches!(c, '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if let Some(at) = text.find(hidden) {
        let context: String = text[..at].chars().rev().take(60).collect::<Vec<_>>().into_iter().rev().collect();
        panic!("{what}: {:?} behind {context:?}", text[at..].chars().next());
    }
}

#[track_caller]
fn no_command(what: &str, text: &str) {
    let is_command = |line: &str| line.trim_start().starts_with("::") || line.contains("##[");
    assert!(!text.lines().any(is_command), "{what}: a workflow's command in {text}");
}

/// Checks that no line begins with text after a line feed in a file, which would look like a line of the program's own.
#[track_caller]
fn no_planted_line(what: &str, text: &str) {
    let is_planted =
        |line: &str| line.trim_start_matches(|letter: char| !letter.is_alphanumeric()).starts_with("PLANTED");
    assert!(!text.lines().any(is_planted), "{what}: a line of the file's own in\n{text}");
}

fn run(sandbox: &Sandbox, command: &str) -> Output {
    sandbox.run(&command.split_whitespace().collect::<Vec<_>>())
}

/// A workload with hostile characters wherever a file may have them.
fn hostile_workload() -> String {
    let text = HOSTILE.replace(['\r', '\0'], "");
    format!(
        "//! About {text}\nmeta {{ category: \"c{text}\", tags: [\"{text}\"] }}\n/// A parameter {text}\nparam n = 8\n\
         // A comment {text}\nbuffer x: f32[n] = ones\n\
         step {{ phase \"p{text}\" {{ \"l{text}\": spin(1us) // {text}\n }} }}\nexpect time > 1ns // {text}\n"
    )
}

#[test]
fn no_command_prints_escape_sequences_of_its_input() {
    let sandbox = Sandbox::new();
    sandbox.write("a.aorta", hostile_workload());
    sandbox.write("bad.aorta", hostile_workload() + &format!("step {{ nothing(\"{HOSTILE}\") \u{1b}[2J }}\n"));
    sandbox.write("a.ron", format!("(workload: \"{}\", description: \"\\u{{1b}}[31m\")", "a\\u{1b}[31m.aorta"));
    let commands = [
        "exec FILE --backend sim --effort quick --top 3 --json r.json --csv r.csv --trace r.trace --html r.html",
        "check FILE",
        "check FILE --diagnostics json",
        "check FILE --diagnostics github",
        "fmt FILE --check",
        "show FILE",
        "show FILE --source",
        "plan FILE",
        "plan FILE --format json",
        "plan FILE --format dot",
        "plan FILE --format mermaid",
        "dump ast FILE",
        "dump model FILE",
        "dump plan FILE",
        "dump schedule FILE",
        "sweep FILE --backend sim --effort quick --set n=8,16 --json s.jsonl --csv s.csv",
        "ab FILE --backend sim --a --launch=stream --b --launch=graph",
        "exec a.ron",
        "check a.ron",
    ];
    for file in ["a.aorta", "bad.aorta"] {
        for command in commands {
            let command = command.replace("FILE", file);
            let output = run(&sandbox, &command);
            for text in [&output.stdout, &output.stderr] {
                harmless(&command, text);
                if !command.ends_with("github") && !command.ends_with("--source") {
                    no_command(&command, text);
                }
            }
        }
        for name in sandbox.listing().iter().filter(|name| !name.ends_with("aorta") && !name.ends_with("ron")) {
            harmless(name, &sandbox.read(name));
        }
    }
    // The formatted text of standard input too.
    let mut child = sandbox.command(&["fmt", "-"]).stdin(Stdio::piped()).spawn().expect("the binary starts");
    let written = std::io::Write::write_all(&mut child.stdin.take().expect("piped"), hostile_workload().as_bytes());
    written.expect("the text is read");
    harmless("fmt -", &finish(child).stdout);
}

#[test]
fn no_text_of_a_file_makes_a_line() {
    let sandbox = Sandbox::new();
    let planted = "x\\n  PLANTED";
    let text = format!(
        "meta {{ category: \"\"\"c\nPLANTED\"\"\", tags: [\"{planted}\"] }}\nparam n = 8\nparam note = \"{planted}\"\n\
         buffer x: f32[n]\nstep {{ if note == \"{planted}y\" {{ nop() }} else {{ t: map(x + 1 -> x) }} }}\n\
         metric rate = 3 / time \"{planted}/s\"\nexpect time > 0s\n"
    );
    sandbox.write("a.aorta", &text);
    sandbox.write("bad.aorta", format!("{text}metric worse = 1 / rates \"{planted}\"\n"));
    let case = r#"workload: "a.aorta", params: {"note": "\"x\\n  PLANTED\""}"#;
    // A line feed that the language does not allow there.
    sandbox.write("bad.ron", format!("(workload: \"a.aorta\", params: {{\"note\": \"\\\"{planted}\\\"\"}})"));
    sandbox.write("a.ron", format!("(description: \"{planted}\", {case}, backend: \"sim\", effort: quick)"));
    sandbox.write("s.ron", format!("(description: \"{planted}\", cases: [(name: \"{planted}\", {case})])"));
    let good = [
        "exec a.aorta --backend sim --effort quick --top 3 --json r.json --csv r.csv --trace r.trace",
        "check a.aorta",
        "show a.aorta",
        "plan a.aorta",
        "plan a.aorta --format json",
        "plan a.aorta --format dot",
        "plan a.aorta --format mermaid",
        "plan --diff p.json q.json",
        "dump ast a.aorta",
        "dump model a.aorta",
        "dump plan a.aorta",
        "dump schedule a.aorta",
        "sweep a.aorta --backend sim --effort quick --set n=8,16 --json s.jsonl --csv s.csv",
        "report r.json --top 3",
        "report s.jsonl",
        "compare r.json r.json --format markdown",
        "ab a.aorta --backend sim --a --launch=stream --b --launch=graph",
        "exec a.ron",
        "check a.ron",
        "suite s.ron --backend sim --effort quick --json t.jsonl",
        "check bad.ron",
        "check bad.aorta",
        "check bad.aorta --diagnostics json",
    ];
    for (file, n) in [("p.json", 8), ("q.json", 16)] {
        sandbox.write(file, run(&sandbox, &format!("plan a.aorta --set n={n} --format json")).stdout);
    }
    for command in good {
        let output = run(&sandbox, command);
        let expected = match command {
            _ if command.contains("bad") => Some(2),
            _ if command.contains("diff") => Some(1),
            _ => Some(0),
        };
        assert_eq!(output.code, expected, "{command}: {output:?}");
        no_planted_line(command, &output.stdout);
        no_planted_line(command, &output.stderr);
    }
    for name in ["r.json", "r.csv", "r.trace", "s.jsonl", "s.csv", "t.jsonl"] {
        no_planted_line(name, &sandbox.read(name));
    }
}

#[test]
fn arguments_are_written_out_too() {
    let sandbox = Sandbox::new();
    let hostile = HOSTILE.replace('\0', "");
    for arguments in [
        vec!["exec", &hostile],
        vec!["exec", "moe", "--set", &hostile],
        vec!["exec", "moe", "--backend", &hostile],
        vec![&hostile],
        vec!["explain", &hostile],
        vec!["suite", &hostile],
        vec!["compare", &hostile, &hostile],
    ] {
        for how in ["text", "json"] {
            let output = sandbox.run(&[&arguments[..], &["--diagnostics", how]].concat());
            assert_eq!(output.code, Some(2), "{arguments:?}: {output:?}");
            for text in [&output.stdout, &output.stderr] {
                harmless(how, text);
                no_command(how, text);
            }
        }
    }
}

/// Replaces every text of a JSON value by a hostile one, except those that identify its type.
fn poisoned(value: &mut Value, key: &str) {
    const MEANT: [&str; 5] = ["schema", "verdict", "launch", "status", "kind"];
    match value {
        Value::String(text) if !MEANT.contains(&key) => *text = format!("{text}{HOSTILE}\n::error::z\n  PLANTED"),
        Value::Array(all) => all.iter_mut().for_each(|value| poisoned(value, key)),
        Value::Object(all) => all.iter_mut().for_each(|(key, value)| poisoned(value, key)),
        _ => {}
    }
}

#[test]
fn no_report_prints_hidden_characters_of_a_record() {
    let sandbox = Sandbox::new();
    sandbox.record(&["moe", "--preset", "tiny", "--launch", "both", "--ranks", "2", "--effort", "quick"]);
    let mut record = sandbox.json("record.json");
    poisoned(&mut record, "");
    sandbox.write("hostile.json", record.to_string());
    run(&sandbox, "sweep moe --preset tiny --backend sim --effort quick --set tokens=16,32 --json s.jsonl");
    let poison = |line: &str| {
        let mut line: Value = serde_json::from_str(line).expect("JSON");
        poisoned(&mut line, "");
        line.to_string() + "\n"
    };
    sandbox.write("hostile.jsonl", sandbox.read("s.jsonl").lines().map(poison).collect::<String>());
    let mut commands = vec![
        "report hostile.json --top 5 --csv r.csv --trace r.trace".to_owned(),
        "view hostile.json --output r.html".to_owned(),
        "report hostile.json --expected=list".to_owned(),
        "report hostile.jsonl --csv s.csv".to_owned(),
        "compare hostile.json record.json".to_owned(),
    ];
    for format in ["table", "json", "markdown", "latex", "junit", "github"] {
        commands.push(format!("compare hostile.json hostile.json --operations --format {format}"));
        commands.push(format!("compare hostile.jsonl s.jsonl --format {format} --output c.{format}"));
    }
    for command in commands {
        let output = run(&sandbox, &command);
        assert!(matches!(output.code, Some(0..=2)), "{command}: {output:?}");
        for text in [&output.stdout, &output.stderr] {
            harmless(&command, text);
            no_planted_line(&command, text);
            if !command.contains("github") {
                no_command(&command, text);
            }
        }
    }
    for name in ["r.csv", "r.trace", "r.html", "s.csv", "c.json", "c.markdown", "c.latex", "c.junit", "c.github"] {
        harmless(name, &sandbox.read(name));
        no_planted_line(name, &sandbox.read(name));
    }
    let commands = sandbox.read("c.github");
    let levels = ["::error ", "::warning ", "::notice "];
    assert!(commands.lines().all(|line| levels.iter().any(|level| line.starts_with(level))), "{commands}");
}

/// Builds a shared library that reports when it is loaded; `None` without a C compiler.
fn telltale(sandbox: &Sandbox) -> Option<()> {
    sandbox.write(
        "x.c",
        "#include <fcntl.h>\n__attribute__((constructor)) void f(void) { open(\"LOADED\", O_CREAT, 0600); }",
    );
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o", "x.so", "x.c"]).current_dir(sandbox.path("")).status();
    built.is_ok_and(|status| status.success()).then_some(())
}

#[test]
fn no_scenario_loads_code() {
    let sandbox = Sandbox::new();
    let compiled = telltale(&sandbox).is_some();
    let library = sandbox.path("x.so").display().to_string();
    for name in [
        "LD_PRELOAD",
        "LD_AUDIT",
        "LD_LIBRARY_PATH",
        "AORTA_LIBRARY_PATH",
        "NVTX_INJECTION64_PATH",
        "CUDA_INJECTION64_PATH",
        "NCCL_NET_PLUGIN",
        "NCCL_TUNER_PLUGIN",
        "NCCL_CONF_FILE",
        "HSA_TOOLS_LIB",
        "PATH",
        "HOME",
        "XDG_CACHE_HOME",
    ] {
        let scenario = format!("(workload: \"moe\", preset: \"tiny\", environment: {{\"{name}\": {library:?}}})");
        sandbox.write("a.ron", scenario);
        sandbox.write("s.ron", "(description: \"d\", cases: [(workload: \"a.ron\")])");
        for command in
            ["exec a.ron", "check a.ron", "sweep a.ron --set tokens=16,32", "suite s.ron", "ab a.ron --b --streams=2"]
        {
            let output = run(&sandbox, command);
            assert_ne!(output.code, Some(0), "{command} with {name}: {output:?}");
            let said = output.stdout + &output.stderr;
            assert!(said.contains(name), "{command}: {said}");
            assert!(!sandbox.listing().contains(&"LOADED".to_owned()), "{command} with {name}");
        }
        let output = run(&sandbox, "exec a.ron");
        let said: String = output.stderr.split_whitespace().filter(|word| *word != "│").collect();
        assert!(said.contains("refused_variable") && said.contains(&format!("--env{name}=")), "{}", output.stderr);
    }
    if !compiled {
        println!("without a C compiler, no library was there to be loaded");
        return;
    }
    // Loaded by hand, which shows that the library reports.
    run(&sandbox, &format!("exec moe --preset tiny --backend sim --effort sanity --env LD_PRELOAD={library}"));
    assert!(sandbox.listing().contains(&"LOADED".to_owned()));
}

#[test]
fn what_a_scenario_sets_is_shown_and_recorded() {
    let sandbox = Sandbox::new();
    let scenario = "(workload: \"moe\", preset: \"tiny\", backend: \"sim\", effort: quick, launch: \"graph\",
        environment: {\"NCCL_DEBUG\": \"WARN\", \"NCCL_SOCKET_IFNAME\": \"^lo,docker0\"})";
    sandbox.write("a.ron", scenario);
    let sets = "NCCL_DEBUG=WARN NCCL_SOCKET_IFNAME=^lo,docker0";
    let output = run(&sandbox, "exec a.ron --json a.json");
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(output.stderr.replace('\'', "").contains(&format!("a.ron sets {sets}.")), "{}", output.stderr);
    assert_eq!(sandbox.json("a.json")["environment"]["variables"]["NCCL_DEBUG"], "WARN");
    let shown = sandbox.good(&["check", "a.ron"]);
    assert!(shown.replace('\'', "").contains(&format!("sets      {sets}")), "{shown}");
    assert!(shown.contains("--preset tiny --backend sim --launch graph --effort quick"), "{shown}");
    // Variables given by hand have no allowlist and are always recorded.
    sandbox.good(&["exec", "a.ron", "--env", "MY_OWN=1", "--json", "a.json"]);
    assert_eq!(sandbox.json("a.json")["environment"]["variables"]["MY_OWN"], "1");
}

#[test]
fn no_file_names_files_outside_its_reach() {
    let sandbox = Sandbox::new();
    let elsewhere = tempfile::tempdir().expect("a folder can be made");
    let secret = elsewhere.path().join("secret.aorta");
    std::fs::write(&secret, "step { spin(1us) } // the secret").expect("a file can be written");
    let profile = elsewhere.path().join("device.ron");
    std::fs::copy(project().join("config/devices/h200.ron"), &profile).expect("the profile is there");
    std::os::unix::fs::symlink(&secret, sandbox.path("link.aorta")).expect("a link can be made");
    sandbox.write(".hidden/a.aorta", "step { spin(1us) } // the secret");
    let up = "../".repeat(20);
    let names = [
        secret.display().to_string(),
        format!("{up}{}", secret.display()),
        "link.aorta".to_owned(),
        ".hidden/a.aorta".to_owned(),
        "/etc/passwd".to_owned(),
        format!("{up}etc/passwd"),
        "/no/such/file".to_owned(),
    ];
    for name in names {
        sandbox.write("a.ron", format!("(workload: {name:?})"));
        sandbox.write("s.ron", format!("(description: \"d\", cases: [(workload: {name:?})])"));
        for command in
            ["exec a.ron --backend sim", "check a.ron", "sweep a.ron --backend sim --streams 1,2", "suite s.ron"]
        {
            let output = run(&sandbox, command);
            assert!(matches!(output.code, Some(2 | 4 | 1)), "{command} with {name}: {output:?}");
            let said = output.stdout + &output.stderr;
            assert!(!said.contains("the secret") && !said.contains("root:"), "{command}: {said}");
        }
    }
    sandbox.write("a.ron", format!("(workload: \"moe\", profile: {:?})", profile.display().to_string()));
    let output = run(&sandbox, "exec a.ron --backend sim");
    assert_eq!(output.code, Some(2));
    assert!(output.stderr.contains("out_of_reach"), "{}", output.stderr);
}

/// The commands that print, each in its formats.
const PRINTING: [&str; 25] = [
    "--help",
    "--version",
    "exec --help",
    "exec moe --preset tiny --backend sim --effort quick",
    "exec moe --preset tiny --backend sim --effort quick --top 2",
    "check moe",
    "fmt -",
    "list",
    "show moe",
    "show moe --source",
    "plan moe",
    "plan moe --format json",
    "plan moe --format dot",
    "plan moe --format mermaid",
    "dump ast moe",
    "devices",
    "explain aorta::cli::no_pair",
    "completions bash",
    "report r.json",
    "compare r.json r.json --format table",
    "compare r.json r.json --format json",
    "compare r.json r.json --format markdown",
    "compare r.json r.json --format latex",
    "compare r.json r.json --format junit",
    "suite --format junit",
];

#[test]
fn lost_output_is_a_failure() {
    if !crate::common::effort::is_due() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.good(&["exec", "moe", "--preset", "tiny", "--backend", "sim", "--effort", "quick", "--json", "r.json"]);
    sandbox.write("in.aorta", "step {\n  spin(1us)\n}\n");
    for command in PRINTING {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device that is full");
        let input = std::fs::File::open(sandbox.path("in.aorta")).expect("the file is there");
        let arguments: Vec<&str> = command.split_whitespace().collect();
        let mut started = sandbox.command(&arguments);
        let output = started.stdin(input).stdout(full).output().expect("the binary starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{command}: {said}");
        assert!(said.contains("standard output cannot be written: No space left"), "{command}: {said}");
        // A closed pipe is no error.
        let (reader, writer) = std::io::pipe().expect("a pipe can be made");
        drop(reader);
        let input = std::fs::File::open(sandbox.path("in.aorta")).expect("the file is there");
        let output = sandbox.command(&arguments).stdin(input).stdout(writer).output().expect("the binary starts");
        assert_eq!(output.status.code(), Some(0), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
    for option in ["--json", "--csv", "--trace", "--html"] {
        let arguments =
            ["exec", "moe", "--preset", "tiny", "--backend", "sim", "--effort", "quick", option, "/dev/full"];
        let output = sandbox.run(&arguments);
        assert_eq!(output.code, Some(4), "{option}: {}", output.stderr);
        assert!(output.stderr.contains("/dev/full cannot be written: No space left"), "{}", output.stderr);
        // The measurement is printed all the same.
        assert!(output.stdout.contains("median"), "{}", output.stdout);
    }
}

mod modes {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(sandbox: &Sandbox, name: &str) -> u32 {
        std::fs::metadata(sandbox.path(name)).expect("the file is there").permissions().mode() & 0o7777
    }

    /// Runs a shell script, in which `$AORTA` is the binary.
    fn shell(sandbox: &Sandbox, script: &str) -> Output {
        let mut command = Command::new("sh");
        let prepared = sandbox.command(&[""; 0]);
        command
            .args(["-c", script])
            .env_clear()
            .envs(prepared.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("AORTA", env!("CARGO_BIN_EXE_aorta")).current_dir(sandbox.path(""));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        finish(command.spawn().expect("there is a shell"))
    }

    #[test]
    fn a_new_file_gets_the_mode_that_the_umask_leaves() {
        if !crate::common::effort::is_due() {
            return;
        }
        let sandbox = Sandbox::new();
        for (umask, expected) in [("077", 0o600), ("022", 0o644), ("002", 0o664), ("027", 0o640)] {
            let run = format!(
                "umask {umask}; $AORTA exec moe --preset tiny --backend sim --effort quick --json j{umask} \
                 --csv c{umask} --trace t{umask} --html h{umask} && $AORTA sweep moe --preset tiny --backend sim --effort quick \
                 --set tokens=16,32 --json s{umask} && $AORTA new n{umask}.aorta"
            );
            let output = shell(&sandbox, &run);
            assert_eq!(output.code, Some(0), "{}", output.stderr);
            for name in ["j", "c", "t", "h", "s"] {
                assert_eq!(mode(&sandbox, &format!("{name}{umask}")), expected, "{name} under {umask}");
            }
            assert_eq!(mode(&sandbox, &format!("n{umask}.aorta")), expected);
        }
    }

    #[test]
    fn a_file_that_is_written_again_keeps_its_mode() {
        let sandbox = Sandbox::new();
        for kept in [0o600, 0o640, 0o664, 0o604] {
            sandbox.write("r.json", "old");
            sandbox.write("a.aorta", "step{spin(1us)}");
            for name in ["r.json", "a.aorta"] {
                let permissions = std::fs::Permissions::from_mode(kept);
                std::fs::set_permissions(sandbox.path(name), permissions).expect("the file is ours");
            }
            sandbox.record(&["moe", "--preset", "tiny", "--effort", "quick"]);
            sandbox.good(&["exec", "moe", "--preset", "tiny", "--backend", "sim", "--json", "r.json"]);
            sandbox.good(&["fmt", "a.aorta"]);
            assert!(sandbox.read("r.json").starts_with('{'));
            assert_eq!((mode(&sandbox, "r.json"), mode(&sandbox, "a.aorta")), (kept, kept));
        }
    }

    #[test]
    fn a_link_of_ones_own_leads_to_its_file() {
        let sandbox = Sandbox::new();
        sandbox.write("real/r.json", "old");
        std::os::unix::fs::symlink("real/r.json", sandbox.path("r.json")).expect("a link can be made");
        sandbox.good(&["exec", "moe", "--preset", "tiny", "--backend", "sim", "--effort", "quick", "--json", "r.json"]);
        assert!(sandbox.read("real/r.json").starts_with('{'));
        assert!(sandbox.path("r.json").symlink_metadata().expect("it is there").is_symlink());
    }

    #[test]
    fn a_home_that_is_no_absolute_path_is_none() {
        if !crate::common::effort::is_due() {
            return;
        }
        let sandbox = Sandbox::new();
        sandbox.write(".config/aorta/config.ron", "(profile: \"mi300x\")");
        sandbox.write("aorta/config.ron", "(profile: \"mi300x\")");
        for set in ["HOME=", "HOME=.", "HOME=./", "XDG_CONFIG_HOME=.", "XDG_CONFIG_HOME= HOME="] {
            let script = format!(
                "unset HOME XDG_CONFIG_HOME XDG_CACHE_HOME; export {set}; \
                 $AORTA exec moe --preset tiny --backend sim --effort quick --json r.json && \
                 $AORTA sweep moe --preset tiny --backend sim --effort quick --set tokens=16,32"
            );
            let before = sandbox.listing();
            let output = shell(&sandbox, &script);
            assert_eq!(output.code, Some(0), "{set}: {}", output.stderr);
            assert_eq!(sandbox.json("r.json")["device"]["name"], "NVIDIA H200 (simulated)", "{set}");
            let new: Vec<String> = sandbox.listing().into_iter().filter(|name| !before.contains(name)).collect();
            assert!(new.is_empty() || new == ["r.json"], "{set}: {new:?}");
        }
    }

    #[test]
    fn two_sweeps_do_not_share_a_file() {
        if !crate::common::effort::is_due() {
            return;
        }
        let sandbox = Sandbox::new();
        let sweep = "sweep moe --preset tiny --backend host --iterations 400 --set tokens=16,32,64 --json s.jsonl";
        let arguments: Vec<&str> = sweep.split_whitespace().collect();
        let first = sandbox.command(&arguments).spawn().expect("the binary starts");
        let process = first.id();
        // Whoever sees the header sees the lock.
        while std::fs::read(sandbox.path("s.jsonl")).map_or(true, |bytes| bytes.is_empty()) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        for resume in [&[][..], &["--resume"]] {
            let second = sandbox.run(&[&arguments[..], resume].concat());
            assert_eq!(second.code, Some(2), "{second:?}");
            let said = &second.stderr;
            assert!(said.contains("cases_busy") && said.contains(&format!("process {process}")), "{said}");
        }
        let first = finish(first);
        assert_eq!(first.code, Some(0), "{}", first.stderr);
        assert_eq!(sandbox.read("s.jsonl").lines().count(), 4);
    }

    #[test]
    fn a_full_temporary_folder_is_reported() {
        let sandbox = Sandbox::new();
        std::fs::create_dir(sandbox.path("small")).expect("a folder can be made");
        let script = "mount -t tmpfs -o size=4k tmpfs small && head -c 4096 /dev/zero > small/x; export TMPDIR=$PWD/small; \
            exec $AORTA sweep moe --preset tiny --backend sim --effort quick --set tokens=16,32 --json s.jsonl";
        if shell(&sandbox, "unshare -rm true").code != Some(0) {
            println!("skipped: this machine permits no namespaces");
            return;
        }
        sandbox.write("script", script);
        let output = shell(&sandbox, "unshare -rm sh script");
        assert_eq!(output.code, Some(4), "{output:?}");
        let said: String = output.stdout + &output.stderr;
        assert!(
            said.contains("small, the folder of temporary files, is full")
                && said.contains("set TMPDIR to another folder"),
            "{said}"
        );
    }
}

#[test]
fn a_duplicate_case_is_refused() {
    let sandbox = Sandbox::new();
    run(&sandbox, "sweep moe --preset tiny --backend sim --effort quick --set tokens=16,32 --json s.jsonl");
    let text = sandbox.read("s.jsonl");
    let last = text.lines().last().expect("a case");
    sandbox.write("s.jsonl", format!("{text}{last}\n"));
    for command in ["report s.jsonl", "compare s.jsonl s.jsonl"] {
        let output = run(&sandbox, command);
        assert_eq!(output.code, Some(2), "{command}");
        assert!(output.stderr.contains("line 4 repeats line 3"), "{}", output.stderr);
    }
}

#[test]
fn the_page_lists_the_variables_that_a_file_may_set() {
    let page = std::fs::read_to_string(project().join("docs/security.md")).expect("the page is there");
    let section = page.split("## Variables that a file may set").nth(1).and_then(|rest| rest.split("\n## ").next());
    let rows = section.expect("the section is there").lines().filter(|line| line.starts_with("| "));
    let names = rows.filter_map(|row| row.rsplit(" | ").next()).flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let mut listed: Vec<&str> = names.collect();
    let mut allowed: Vec<&str> = aorta::config::allowed_variables().collect();
    listed.sort_unstable();
    allowed.sort_unstable();
    assert_eq!(listed, allowed);
}
