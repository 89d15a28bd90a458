//! Options that set the same thing.

use super::mistakes::refused;
use super::sandbox::Sandbox;

/// Two options that set the same to different values: one of them would be ignored.
#[test]
fn options_that_set_the_same() {
    let sandbox = Sandbox::new();
    sandbox.write("a.aorta", "param n = 1\nparam streams = 2\nstream s[streams]\nstep { on s[0] { spin(n * 1us) } }");
    sandbox.write(
        "a.ron",
        "(workload: \"a.aorta\", streams: 2, params: {n: 3}, launch: graph, axes: {\"config cache\": \"hot,cold\"})",
    );
    sandbox.write("both.ron", "(workload: \"a.aorta\", streams: 2, params: {streams: 3})");
    sandbox.write("s.ron", "(description: \"d\", cases: [(workload: \"a.aorta\", params: {n: 2})])");
    let run = |arguments: &str| sandbox.run(&arguments.split_whitespace().collect::<Vec<_>>());
    for (arguments, says) in [
        ("exec a.aorta --streams 4 --set streams=1", "`--set` cannot be `streams=1`: `--streams 4` sets the same"),
        ("exec a.aorta --set streams=1 --streams 4", "`--streams` cannot be `4`: `--set streams=1` sets the same"),
        ("check a.aorta --set n=1 --set n=2", "leave one of them out; `aorta sweep` runs both: `--set n=1,2`"),
        ("plan a.aorta --config launch=graph --config launch=stream", "`--config launch=graph` sets the same"),
        ("exec a.ron --env A=1 --env A=2", "`--env A=1` sets the same"),
        ("exec a.aorta --config effort=quick --effort full", "`--config effort=quick` sets the same"),
        ("ab a.aorta --a --streams=2 --b --streams=3 --set=n=1 --set=n=2", "`--set n=1` sets the same"),
        ("suite P0 --config gate=off --config gate=on --dry-run", "`--config gate=off` sets the same"),
        ("exec a.aorta --json z --csv ./z", "`--csv` cannot be `./z`: `--json` writes the same file"),
        ("sweep a.aorta --set n=1,2 --json z --html z", "`--html` cannot be `z`: `--json` writes the same file"),
        ("suite s.ron --set n=4 --backend sim", "a case of `a.aorta` has a value of its own, which its name shows"),
    ] {
        refused(&run(arguments), &["aorta::cli::bad_value", says]);
    }
    refused(&run("exec both.ron"), &["sets the same to another value"]);
    // The same value twice is no contradiction, and a command line replaces what a scenario or both sides set.
    for arguments in [
        "check a.aorta --set n=2 --set n=2 --set streams=4 --streams 4",
        "exec a.ron --backend sim --effort sanity --set streams=1 --set n=5 --config launch=stream",
        "sweep a.ron --backend sim --effort sanity --cache cold --set streams=1,2 --json swept.jsonl",
        "ab a.aorta --backend sim --set n=3 --config gate=off --rounds 6 --no-apart --a --set n=4 --b --gate=auto",
    ] {
        let output = run(arguments);
        assert_eq!(output.code, Some(0), "{arguments}: {output:?}");
    }
    let cases = sandbox.read("swept.jsonl");
    for streams in ["1", "2"] {
        let ran = format!("\"params\":{{\"n\":\"3\",\"streams\":\"{streams}\"}}");
        assert!(cases.contains(&ran), "{ran} is not in\n{cases}");
    }
}
