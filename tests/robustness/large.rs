//! Short texts that stand for something large are refused, or done with little memory and time.

use std::process::{Command, Stdio};

use crate::common;

/// Short texts that stand for something large, by what they show. Each is refused, or done without much ado.
fn large_cases() -> Vec<(&'static str, String)> {
    let doubled = |first: &str, next: &dyn Fn(usize) -> String, last: &str| {
        format!("{first}\n{}{last}\n", (1..60).map(next).collect::<String>())
    };
    let lines = |count: usize, line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<String>();
    let spaces = " ".repeat(70_000);
    vec![
        ("a mistake far to the right", format!("step {{ nop() {spaces} ) }}")),
        ("many mistakes on one line", ") ".repeat(20_000)),
        ("many unfinished declarations on one line", "let a = ".repeat(20_000)),
        ("many unknown operations on one line", format!("step {{ {} }}", "gemmm(x) ".repeat(20_000))),
        ("many mistakes", ")\n".repeat(100_000)),
        (
            "lists of lists",
            doubled(
                "let a0 = [1, 1]",
                &|i| format!("let a{i} = [a{0}, a{0}]\n", i - 1),
                "let z = sum(a59)\nstep { nop() }",
            ),
        ),
        (
            "definitions that call the one before twice",
            doubled("def a0() { }", &|i| format!("def a{i}() {{ a{0}() a{0}() }}\n", i - 1), "step { a20() a30() }"),
        ),
        (
            "figures that use the one before twice",
            doubled("step { nop() } metric a0 = time", &|i| format!("metric a{i} = a{0} + a{0}\n", i - 1), ""),
        ),
        (
            "many slices that overlap",
            "stream s[8]\nbuffer x: f32[200000]\n\
             step { for i in 0..50000 { on s[i % 8] { map(x[i..200000 - i] * 2 -> x[i..200000 - i]) } } }"
                .to_owned(),
        ),
        ("one token", "a".repeat(4_000_000)),
        ("one number", "1".repeat(4_000_000)),
        ("one text", format!("\"\"\"{}", "a".repeat(4_000_000))),
        ("one name", format!("let {} = 1\nstep {{ nop() }}", "a".repeat(1_000_000))),
        ("a long name that is nearly another", {
            let name = "a".repeat(500_000);
            format!("let {name} = 1\nlet b = {name}a\nstep {{ nop() }}")
        }),
        ("nothing but lines", "\n".repeat(4_000_000)),
        ("nothing but opening braces", "{".repeat(4_000_000)),
        ("nothing but quotes", "\"\n".repeat(1_000_000)),
        ("a mistake in each of many declarations", "let a = @\n".repeat(100_000)),
        ("many declarations", lines(50_000, &|i| format!("let a{i} = {i}\n")) + "step { nop() }"),
        ("many unknown names", lines(60_000, &|i| format!("let a{i} = b{i}x\n")) + "step { nop() }"),
        ("many words of parameters", {
            lines(30_000, &|i| format!("param a{i} = u{i} in [u{i}, v{i}]\n")) + "step { nop() }"
        }),
        ("many metrics", lines(15_000, &|i| format!("metric m{i} = time\n")) + "step { nop() }"),
        ("many labels", format!("step {{ {} }}", lines(50_000, &|i| format!("t{i}: nop()\n")))),
        ("lists added to each other", {
            let first = format!("let a0 = [{}]\n", "1, ".repeat(1000));
            first + &lines(20_000, &|i| format!("let a{} = a{i} + a{i}\n", i + 1)) + "step { nop() }"
        }),
        ("lists inside lists", {
            "let a0 = [1]\n".to_owned() + &lines(50_000, &|i| format!("let a{} = [a{i}]\n", i + 1)) + "step { nop() }"
        }),
        ("the larger of lists of lists, again and again", {
            let first = "let a0 = [[1, 2], [3, 4]]\n".to_owned();
            first + &lines(30, &|i| format!("let a{} = max(a{i}, a{i})\n", i + 1)) + "step { nop() }"
        }),
        ("a long cycle of long iterations", {
            "step { for i in 0..100000 { if i == iteration % 4096 { nop() } } nop() }".to_owned()
        }),
        ("many waits for many labels", {
            "stream a stream b step { for i in 0..50000 { on a { t[i]: nop() } } \
             for i in 0..40000 { on b after t { nop() } } }"
                .to_owned()
        }),
        ("many streams that are joined again and again", {
            "stream s[1024] step { for i in 0..50000 { on s[i % 1024] { sync() } } }".to_owned()
        }),
        ("an unknown name in a long loop", {
            let names = lines(20_000, &|i| format!("let a{i} = {i}\n"));
            names + "step { for i in 0..90000 { let b = a7000x + f[i] } nop() }"
        }),
        ("loops without end", "step { for i in 0..9223372036854775807 { } }".to_owned()),
        ("loops in loops", "step { for i in 0..1000000 { for j in 0..1000000 { let k = i * j } } }".to_owned()),
        ("deep brackets", "(".repeat(100_000)),
        ("deep blocks", format!("step {{ {}", "if true { ".repeat(100_000))),
        ("a long sum", format!("param n = {}1\nstep {{ nop() }}", "1 + ".repeat(100_000))),
        ("a long negation", format!("param n = {}1\nstep {{ nop() }}", "-".repeat(100_000))),
        ("a long index", format!("buffer x: f32[4]\nstep {{ map(x{} + 1) }}", "[0]".repeat(100_000))),
        (
            "a long chain of conditions",
            format!("param n = {}{{ 1 }}\nstep {{ nop() }}", "if true { 1 } else ".repeat(50_000)),
        ),
        ("a long chain of definitions", {
            let calls = (1..10_000).map(|i| format!("def a{i}() {{ a{}() }}\n", i - 1));
            format!("def a0() {{ nop() }}\n{}step {{ a9999() }}", calls.collect::<String>())
        }),
    ]
}

/// Runs the program on a text with little memory and time; says what went wrong.
fn run_limited(name: &str, text: &str) -> Option<String> {
    use std::io::Write as _;
    let mut file = tempfile::Builder::new().suffix(".aorta").tempfile().expect("a temporary file can be made");
    file.write_all(text.as_bytes()).expect("it can be written");
    // The limits only keep what has none from taking the machine down: 4 GiB, and seconds of the CPU's time: a debug
    // build on a slow machine takes 12 for the longest.
    let limited = "ulimit -v 4194304; ulimit -t 40; exec \"$0\" \"$@\"";
    let output = Command::new("sh")
        .args(["-c", limited, env!("CARGO_BIN_EXE_aorta"), "exec"])
        .arg(file.path())
        .args(["--backend", "sim", "--effort", "sanity", "--config", "max_operations=100000"])
        .env("XDG_CONFIG_HOME", env!("CARGO_TARGET_TMPDIR"))
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .output()
        .expect("a shell starts");
    let said = output.stdout.len() + output.stderr.len();
    let last: String = String::from_utf8_lossy(&output.stderr[output.stderr.len().saturating_sub(200)..]).into_owned();
    match output.status.code() {
        Some(0 | 2) if said <= 1 << 20 => None,
        Some(0 | 2) => Some(format!("{name}: says {said} bytes")),
        _ => Some(format!("{name}: {}: {last}", output.status)),
    }
}

#[test]
fn large_cases_are_refused_or_done() {
    let cases: Vec<_> = common::effort::chosen(large_cases()).collect();
    let failed = common::parallel::map(&cases, |(name, text)| run_limited(name, text));
    let failed: Vec<String> = failed.into_iter().flatten().collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
