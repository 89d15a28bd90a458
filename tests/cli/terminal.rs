//! Sweeps and suites on a terminal: figures appear as cases end, above a line that is redrawn, in any width.

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
            assert!(output.status.success(), "{text}");
            Some(text)
        }
        Err(error) => {
            println!("skipped: `script` makes no terminal here: {error}");
            None
        }
    }
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
        let is_color =
            |part: &str| part.split_once('m').is_some_and(|(code, _)| code.parse::<u8>().is_ok_and(|code| code >= 30));
        assert!(!no_color || !text.split("\u{1b}[").skip(1).any(is_color), "colours at {columns}: {text:?}");
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
    let suite = ["suite", "smoke", "--backend", "sim"];
    let Some(text) = on_terminal(&sandbox, 80, true, &suite) else { return };
    places(&text, &["1 of ", ": ", "2 of ", "3 of "]);
}
