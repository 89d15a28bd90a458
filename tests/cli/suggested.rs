//! Commands that a message suggests work as they are printed.

use aorta::base::shell;

use super::sandbox::Sandbox;

/// Valid with its defaults, and invalid for some parameters and numbers of streams and ranks.
const FILE: &str = "\
param n = 64
param streams = 2 in 1..=4
param parts = [1, 2, 4][n % 3]
preset small { n = 7 }
preset sparse { n = 30 }
preset warned { n = 128, streams = 4 }
mesh dp = world / 2 + world % 2 * (1 - world / 2), tp = 2 - world % 2
stream s[streams]
buffer x: f32[n]
buffer y: f32[n / 4]
step(sync: end, depth: 2) {
  on s[0] {
    map(x[0..32] + 1 -> x[0..32])
    copy(x[iteration % 2] -> y[n % 4])
  }
  on s[1] { all_reduce(y -> y) over tp }
  if rank == 1 { on s[0] { broadcast(y -> y) over tp } }
}
";

/// The command in backquotes that begins in this way.
fn suggested(text: &str, begins: &str) -> Option<Vec<String>> {
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let command = joined.split('`').find(|part| part.starts_with(begins))?.to_owned();
    let words = shell::words(&command).expect("its quotes are closed");
    Some(words[1..].to_vec())
}

#[test]
fn errors_of_a_run_are_those_of_the_suggested_check() {
    let sandbox = Sandbox::new();
    sandbox.write("w.aorta", FILE);
    sandbox
        .write("scenarios/one.ron", "(workload: \"../w.aorta\", preset: \"small\", params: {\"n\": \"9\"}, ranks: 2)");
    sandbox.write("own.ron", "(max_operations: 2)");
    let failing: [&[&str]; 13] = [
        &["w.aorta", "--preset", "small"],
        &["w.aorta", "--preset", "sparse"],
        &["w.aorta", "--set", "n = 2 + 4 * 3"],
        &["w.aorta", "--set", "n=128", "--streams", "1"],
        &["w.aorta", "--set", "n=128", "--streams", "9"],
        &["w.aorta", "--set", "nn=3", "--set", "n=[1, 2]"],
        &["w.aorta", "--set", "n=\"it's\""],
        &["w.aorta", "--ranks", "2"],
        &["w.aorta", "--ranks", "3", "--backend", "sim"],
        &["w.aorta", "--emulate", "5"],
        &["w.aorta", "--config", "max_operations=1", "--timeout", "5s"],
        &["w.aorta", "--config-file", "own.ron", "--cycle", "6", "--sync", "iteration", "--preset", "none"],
        &["scenarios/one.ron"],
    ];
    for arguments in failing {
        let exec = [&["exec"], arguments].concat();
        let output = sandbox.run(&exec);
        assert_eq!(output.code, Some(2), "{arguments:?}: {output:?}");
        let check = suggested(&output.stderr, "aorta check");
        let check = check.unwrap_or_else(|| panic!("{arguments:?} suggests nothing:\n{}", output.stderr));
        let json = ["--diagnostics", "json"].map(str::to_owned);
        let of_check = sandbox.run(&[&check[..], &json].concat());
        let of_exec = sandbox.run(&[&exec[..], &["--diagnostics", "json"]].concat());
        assert!(of_exec.stdout.contains("\"code\""), "{of_exec:?}");
        assert_eq!(of_check.stdout, of_exec.stdout, "{arguments:?}, {check:?}");
    }
}

#[test]
fn warnings_of_a_run_are_those_of_the_check_that_it_suggests() {
    let sandbox = Sandbox::new();
    // With four streams, half of them are idle.
    sandbox.write(
        "w.aorta",
        FILE.replace("on s[1]", "on s[0] { map(x[0..4] + 2) }\non s[1]").replace("streams = 2", "streams = 4"),
    );
    let output = sandbox.run(&["exec", "w.aorta", "--preset", "warned", "--backend", "sim", "--iterations", "5"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let check = suggested(&output.stderr, "aorta check").expect("there is a warning");
    assert!(check.contains(&"warned".to_owned()), "{check:?}");
    let said = sandbox.run(&check);
    let count = |text: &str, of: &str| text.matches(of).count();
    let warnings = count(&said.stderr, "aorta::");
    assert!(warnings > 0 && said.code == Some(0), "{said:?}");
}

#[test]
fn a_sweep_without_a_case_suggests_a_run_of_the_first() {
    let sandbox = Sandbox::new();
    sandbox.write("w.aorta", FILE);
    let output = sandbox.run(&["sweep", "w.aorta", "--set", "n=7,8", "--set", "streams=2", "--backend", "sim"]);
    assert_eq!(output.code, Some(2), "{output:?}");
    let (before, after) = output.stderr.split_once("aorta::cli::no_valid_case").expect("no case can run");
    let exec = suggested(after, "aorta exec").unwrap_or_else(|| panic!("{after}"));
    let alone = sandbox.run(&exec);
    assert_eq!((alone.code, alone.stderr.trim()), (Some(2), before.trim()), "{exec:?}");
}
