//! Commands on a terminal: figures of sweeps and suites appear as cases end, above a line that is redrawn; text fits the
//! window, and has no colours with `NO_COLOR` or in a pipe.

use std::process::Command;

use super::sandbox::Sandbox;

/// What a terminal of so many columns receives; `None` without util-linux's `script`, which makes one.
fn on_terminal(sandbox: &Sandbox, columns: usize, no_color: bool, arguments: &[&str]) -> Option<String> {
    let inner = sandbox.command(arguments);
    let words = inner.get_args().map(|word| word.to_str().expect("text"));
    let line = std::iter::once(env!("CARGO_BIN_EXE_aorta")).chain(words).collect::<Vec<_>>().join(" ");
    let line = format!("stty cols {columns} rows 24; {line}");
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]).current_dir(sandbox.path("")).env_clear();
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.envs(no_color.then_some(("NO_COLOR", "1"))).stdin(std::process::Stdio::null());
    match command.output() {
        Ok(output) => {
            let text = String::from_utf8(output.stdout).expect("text");
            assert!(matches!(output.status.code(), Some(0..=2)), "{text}");
            Some(text)
        }
        Err(error) => {
            println!("skipped: `script` makes no terminal here: {error}");
            None
        }
    }
}

/// True if a text has an escape sequence that sets a colour.
fn has_color(text: &str) -> bool {
    let is_color = |part: &str| {
        part.split_once('m')
            .is_some_and(|(code, _)| code.split(';').any(|code| code.parse::<u8>().is_ok_and(|code| code >= 30)))
    };
    text.split("\u{1b}[").skip(1).any(is_color)
}

/// Places of texts, each behind the one before.
#[track_caller]
fn places(text: &str, wanted: &[&str]) {
    let mut rest = text;
    for part in wanted {
        let (_, after) =
            rest.split_once(part).unwrap_or_else(|| panic!("`{part}` is missing or too early in {text:?}"));
        rest = after;
    }
}

const FILE: &str = "param size = 64\nstream a\nstep { on a { gemm(bf16[size, size], bf16[size, size]) } }\n";

#[test]
fn figures_of_a_sweep_come_as_cases_end() {
    let sandbox = Sandbox::new();
    sandbox.write("product.aorta", FILE);
    let sweep = ["sweep", "product.aorta", "--backend", "sim", "--effort", "sanity", "--set", "size=64,128,256"];
    for (columns, no_color) in [(100, false), (80, true), (40, true)] {
        let Some(text) = on_terminal(&sandbox, columns, no_color, &sweep) else { return };
        // The bar of a case is drawn before its figure, and the table comes last.
        places(&text, &["0/3 ", "1 of 3: ", "2 of 3: ", "3 of 3: ", "3 done"]);
        assert!(!no_color || !has_color(&text), "colours at {columns}: {text:?}");
        // The redrawn line fits the window, so that the next one covers it. `ESC[2K` clears a line.
        let lines = text.split("\u{1b}[2K").flat_map(|text| text.split(['\r', '\n', '\u{1b}']));
        for line in lines.filter(|line| line.contains("/3 ") && line.contains(['░', '█'])) {
            assert!(line.chars().count() <= columns, "at {columns}: {line:?}");
        }
    }
}

#[test]
fn figures_of_a_suite_come_as_cases_end() {
    let sandbox = Sandbox::new();
    let cases = ["moe", "attention", "all_reduce"].map(|name| format!("(workload: \"{name}\", preset: \"tiny\")"));
    sandbox.write("three.ron", format!("(description: \"three workloads\", cases: [{}])", cases.join(", ")));
    let suite = ["suite", "three.ron", "--backend", "sim"];
    let Some(text) = on_terminal(&sandbox, 80, true, &suite) else { return };
    places(&text, &["1 of ", ": ", "2 of ", "3 of "]);
}

/// Commands that end at once, one for each form of output, with one that fails.
const COMMANDS: [&[&str]; 16] = [
    &["list"],
    &["show", "moe"],
    &["explain"],
    &["explain", "metric"],
    &["explain", "metric", "overlap"],
    &["explain", "race"],
    &["check", "product.aorta"],
    &["check", "wrong.aorta"],
    &["exec", "product.aorta", "--backend", "sim", "--effort", "sanity", "--timeline"],
    &["report", "a.json", "--top", "3"],
    &["compare", "a.json", "b.json"],
    &["ab", "product.aorta", "--backend", "sim", "--a", "--set size=64", "--b", "--set size=128", "--rounds", "2"],
    &["suite", "smoke", "--backend", "sim", "--dry-run"],
    &["devices", "--backend", "sim"],
    &["exec", "no-such-workload"],
    &["exec", "--no-such-option"],
];

/// Lines that are not broken: code, drawings, commands to copy, messages about options, and words that are hardly shorter than
/// the window.
fn is_kept(line: &str, columns: usize) -> bool {
    let is_code = line.starts_with("    ") || line.contains(['│', '╭', '╰']) || line.contains("aorta exec ");
    let is_message = line.starts_with("error: ") || line.trim_start().starts_with("tip: ");
    is_code || is_message || line.split_whitespace().any(|word| word.len() + 16 > columns)
}

#[test]
fn text_fits_the_window_and_has_no_colours() {
    if !crate::common::effort::is_due() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.write("product.aorta", FILE);
    sandbox.write("wrong.aorta", FILE.replace("gemm", "gemn"));
    for (size, file) in [("64", "a.json"), ("128", "b.json")] {
        sandbox.good(&[
            "exec",
            "product.aorta",
            "--backend",
            "sim",
            "--effort",
            "sanity",
            "--set",
            &format!("size={size}"),
            "--json",
            file,
        ]);
    }
    let mut wide = Vec::new();
    for arguments in COMMANDS.into_iter().map(<[&str]>::to_vec).chain(COMMANDS.map(|words| vec![words[0], "--help"])) {
        // In a pipe nothing is coloured, and `Sandbox` finds escape sequences.
        sandbox.run(&arguments);
        for columns in [80, 50] {
            let quoted: Vec<String> = arguments.iter().map(|word| format!("'{word}'")).collect();
            let quoted: Vec<&str> = quoted.iter().map(String::as_str).collect();
            let Some(text) = on_terminal(&sandbox, columns, true, &quoted) else { return };
            assert!(!has_color(&text), "{arguments:?}: {text:?}");
            let long = text.lines().filter(|line| line.trim_end().chars().count() > columns && !is_kept(line, columns));
            wide.extend(long.map(|line| format!("{} at {columns}: {line}", arguments.join(" "))));
        }
    }
    assert!(wide.is_empty(), "{} lines are wider than the window:\n{}", wide.len(), wide.join("\n"));
}

/// Without `NO_COLOR`, a terminal gets colours, so that the test above can fail.
#[test]
fn a_diagnostic_is_coloured_on_a_terminal() {
    let sandbox = Sandbox::new();
    sandbox.write("wrong.aorta", FILE.replace("gemm", "gemn"));
    let Some(text) = on_terminal(&sandbox, 80, false, &["check", "wrong.aorta"]) else { return };
    assert!(has_color(&text), "{text:?}");
}
