//! No input makes the program panic: random bytes, random sequences of the language's words, and shipped files with
//! pieces removed, duplicated, exchanged or replaced, through every stage that they reach.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::process::{Command, Stdio};

use aorta::backend::sim::Sim;
use aorta::base::{Interner, SourceMap};
use aorta::config::{EffortPlan, Profile, Scenario, Settings};
use aorta::exec::{Control, LaunchMode};
use aorta::measure::{self, RankRequest, Request};
use aorta::model::{self, Options};
use aorta::ops::CATALOGUE;
use aorta::plan;
use aorta::render::{self, Style};
use aorta::schedule;
use aorta::syntax::ast::DeclKind;
use aorta::syntax::{self, DECLARATIONS, Limits, RESERVED, STATEMENTS};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::common;
use crate::common::shipped;

/// Number of operations of an iteration up to which it is simulated.
const SIMULATED: usize = 200;

/// The stage that a text reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Syntax errors.
    Syntax,
    /// Errors in its meaning.
    Model,
    /// A race.
    Plan,
    /// Scheduled, but too long to be simulated here.
    Schedule,
    /// It could not be run.
    Refused,
    Simulated,
}

/// Takes a text as far as possible. All of its diagnostics are formatted.
fn take_through(text: &str) -> Stage {
    let mut sources = SourceMap::new();
    let base = sources.add("test.aorta", text).expect("a test is small");
    let (ast, syntax_errors) = syntax::parse(text, base, &Limits::default());
    let show = |error: &dyn miette::Diagnostic| {
        assert!(!render::text(error, &sources, Style::default()).is_empty());
    };
    syntax_errors.iter().for_each(|error| show(error));
    let tiny = ast.decls.iter().any(|decl| match &decl.kind {
        DeclKind::Preset { name, .. } => ast.names.name(name.symbol) == "tiny",
        _ => false,
    });
    let options = Options {
        preset: tiny.then(|| "tiny".to_owned()),
        cycle: 8,
        max_operations: 1000,
        max_memory: 1 << 26,
        ..Options::default()
    };
    // A text with syntax errors is analyzed too, as the program does, but goes no further.
    let analyzed = model::analyze(&ast, &options);
    if let Err(errors) = &analyzed {
        errors.iter().for_each(|error| show(error));
    }
    let program = match analyzed {
        _ if !syntax_errors.is_empty() => return Stage::Syntax,
        Ok(program) => program,
        Err(_) => return Stage::Model,
    };
    let plan = match plan::build(&program) {
        Ok(plan) => plan,
        Err(errors) => {
            errors.iter().for_each(|error| show(error));
            return Stage::Plan;
        }
    };
    if ["all_", "send", "recv", "barrier", " at "].iter().any(|word| text.contains(word)) {
        let rank =
            |rank| model::analyze(&ast, &Options { rank, world: 2, preset: None, set: Vec::new(), ..options }).ok();
        let planned = |program| {
            let plan = plan::build(&program).ok()?;
            Some(plan::Rank { program: program.into(), plan: plan.into() })
        };
        let programs: Option<Vec<model::Program>> = [0, 1].into_iter().map(rank).collect();
        let linked = programs.and_then(|mut programs| match model::link(&mut programs) {
            Ok(()) => Some(programs),
            Err(errors) => {
                errors.iter().for_each(|error| show(error));
                None
            }
        });
        let ranks: Option<Vec<plan::Rank>> = linked.and_then(|programs| programs.into_iter().map(planned).collect());
        let judged = ranks.map_or(Ok(()), |ranks| plan::ranks::check(&ranks));
        judged.err().iter().flatten().for_each(|error| show(error));
    }
    let sim = Sim::new(Profile::named("h200").expect("embedded"));
    let options = schedule::Options { streams: Some(12), ..schedule::Options::default() };
    let schedule = common::placed(&program, &plan, &sim, &options);
    if program.cycle.iter().map(|step| step.ops.len()).sum::<usize>() > SIMULATED {
        return Stage::Schedule;
    }
    let profile = Profile::named("h200").expect("embedded");
    let measured = measure::measure(&Request {
        ranks: &[RankRequest { number: 0, program: &program, plan: &plan, schedule: &schedule }],
        backend: &sim,
        modes: &[LaunchMode::Stream, LaunchMode::Graph],
        effort: EffortPlan { warmup: 0, iterations: 2 },
        observed_iterations: 1,
        exec: common::exec_options(),
        control: &Control::default(),
        profile: Some(&profile),
        sources: &sources,
        keep: &|_| {},
    });
    match measured {
        Ok(_) => Stage::Simulated,
        Err(error) => {
            show(&error);
            Stage::Refused
        }
    }
}

/// Takes many texts through the stages, and counts which stage they reached.
fn take_many(cases: u32, texts: impl Strategy<Value = String>) -> BTreeMap<Stage, u32> {
    let reached = RefCell::new(BTreeMap::new());
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let outcome = TestRunner::new(config).run(&texts, |text| {
        *reached.borrow_mut().entry(take_through(&text)).or_default() += 1;
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    println!("{:?}", reached.borrow());
    reached.into_inner()
}

/// Numbers at the edges of what can be said.
const NUMBERS: [&str; 30] = [
    "1e18s",
    "1e12TFLOP",
    "1e15B",
    "0us",
    "2.5KiB",
    "4GB/s",
    "0",
    "1",
    "2",
    "3",
    "7",
    "8",
    "64",
    "255",
    "256",
    "1000",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "0.5",
    "1.5",
    "1e-300",
    "1e300",
    "1e999",
    "4KiB",
    "4GiB",
    "10us",
    "3s",
    "80%",
];

const NAMES: [&str; 16] =
    ["a", "b", "c", "i", "j", "n", "s", "t", "u", "v", "w", "x", "y", "z", "streams", "iteration"];

const SIGNS: [&str; 33] = [
    "(", ")", "[", "]", "{", "}", ",", ":", ";", ".", "..", "..=", "->", "=", "==", "!=", "<", "<=", ">", ">=", "+",
    "-", "*", "/", "%", "~", "\"", "\"\"\"", "//", "///", "//!", "_", "\\",
];

/// Words that mean something in their place.
const WORDS: [&str; 44] = [
    "f64",
    "f32",
    "f16",
    "bf16",
    "i32",
    "i8",
    "u8",
    "device",
    "pinned",
    "host",
    "managed",
    "zeros",
    "ones",
    "iota",
    "random",
    "priority",
    "high",
    "normal",
    "low",
    "sync",
    "order",
    "declared",
    "races",
    "allow",
    "depth",
    "signal",
    "wait",
    "prev",
    "rank",
    "world",
    "category",
    "tags",
    "time",
    "flops",
    "bytes",
    "bandwidth",
    "speedup",
    "serial_time",
    "p50",
    "k",
    "capacity",
    "to",
    "via",
    "units",
];

/// Functions of plain values.
const FUNCTIONS: [&str; 14] = [
    "ceil_div",
    "floor_div",
    "len",
    "log2",
    "max",
    "min",
    "mean",
    "sum",
    "rev",
    "sizeof",
    "pow",
    "sqrt",
    "abs",
    "gelu",
];

/// Pieces that fit together more often than single words do.
const PIECES: [&str; 40] = [
    "stream s[4]\n",
    "stream a(priority: high)\n",
    "stream b\n",
    "buffer x, y: f32[8, 16]\n",
    "buffer u: bf16[16, 16]\n",
    "buffer v[2]: f32[16]\n",
    "buffer w: i32[8] = iota\n",
    "buffer z: f32[8, 16] in pinned\n",
    "param n = 8 in 1..=64\n",
    "let c = n * 2\n",
    "preset tiny { n = 4 }\n",
    "meta { category: \"test\", tags: [\"a\"] }\n",
    "def t(a -> b) { map(a + 1 -> b) }\n",
    "step {",
    "step(sync: end, depth: 2) {",
    "step(order: declared) {",
    "}",
    "on a {",
    "on s[i % 4] {",
    "on s[0] after i {",
    "for i in 0..3 {",
    "if n > 4 {",
    "} else {",
    "phase i {",
    "map(x * 2 -> y)",
    "j: map(x[0] + v[1])",
    "gemm(f32[4, 8], f32[8, 4])",
    "copy(x -> z)",
    "copy(z -> y, via: dma)",
    "fill(1 -> x)",
    "softmax(x)",
    "i: top_k(x, k: 2)",
    "gather(x, w)",
    "transpose(u)",
    "spin(10us)",
    "j: signal()",
    "wait(j)",
    "sync()",
    "t(x[0] -> y[0])",
    "metric z = time(i) / time\n",
];

/// A word, sign, number or piece.
fn token() -> impl Strategy<Value = String> {
    let of = |words: &'static [&'static str]| prop::sample::select(words).prop_map(str::to_owned);
    let operations: Vec<String> = CATALOGUE.iter().map(|operation| operation.name().to_owned()).collect();
    prop_oneof![
        4 => of(&SIGNS),
        3 => of(&NAMES),
        3 => of(&NUMBERS),
        1 => of(&RESERVED),
        1 => of(&STATEMENTS),
        1 => of(&DECLARATIONS),
        1 => of(&FUNCTIONS),
        1 => of(&WORDS),
        2 => prop::sample::select(operations),
        2 => of(&PIECES),
        1 => "\\PC".prop_map(|sign| sign),
    ]
}

/// Pieces in any order, with single tokens between them now and then.
fn soup_of_pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![12 => prop::sample::select(&PIECES[..]).prop_map(str::to_owned), 1 => token()];
    // The declarations come first, so that something stands behind most names.
    prop::collection::vec(piece, 0..40).prop_map(|pieces| {
        let declarations = "stream a stream b stream s[4] buffer x, y: f32[8, 16] buffer z: f32[8, 16] in pinned \
                            buffer v[2]: f32[16] buffer w: i32[8] = iota buffer u: bf16[16, 16] let n = 8 \
                            def t(a -> b) { map(a + 1 -> b) } step {\n";
        let statements = pieces.iter().filter(|piece| !piece.ends_with('\n') && !piece.starts_with("step"));
        let mut text = declarations.to_owned();
        let mut depth = 1;
        for piece in statements {
            depth += piece.matches('{').count() as i32 - piece.matches('}').count() as i32;
            text += piece;
            text += "\n";
            if depth == 0 {
                // The step is not to end before its text does.
                text += "} step {\n";
                depth = 1;
            }
        }
        text + &"}\n".repeat(depth.max(0) as usize)
    })
}

/// One change of a text.
#[derive(Clone, Debug)]
enum Change {
    DeleteLine(usize),
    RepeatLine(usize),
    SwapLines(usize, usize),
    DeleteToken(usize),
    RepeatToken(usize),
    SwapTokens(usize, usize),
    ReplaceToken(usize, String),
    ReplaceNumber(usize, String),
    CutOff(usize),
}

fn change() -> impl Strategy<Value = Change> {
    let place = 0..100_000usize;
    let number = prop::sample::select(&NUMBERS[..]).prop_map(str::to_owned);
    prop_oneof![
        1 => place.clone().prop_map(Change::DeleteLine),
        1 => place.clone().prop_map(Change::RepeatLine),
        1 => (place.clone(), place.clone()).prop_map(|(a, b)| Change::SwapLines(a, b)),
        1 => place.clone().prop_map(Change::DeleteToken),
        1 => place.clone().prop_map(Change::RepeatToken),
        1 => (place.clone(), place.clone()).prop_map(|(a, b)| Change::SwapTokens(a, b)),
        1 => (place.clone(), token()).prop_map(|(at, token)| Change::ReplaceToken(at, token)),
        3 => (place.clone(), number).prop_map(|(at, number)| Change::ReplaceNumber(at, number)),
        1 => place.prop_map(Change::CutOff),
    ]
}

/// Words and numbers, single signs, and the space between them.
fn tokens(text: &str) -> Vec<String> {
    let kind = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => 0,
        ' ' | '\n' => 1,
        _ => 2,
    };
    let mut tokens: Vec<String> = Vec::new();
    let mut last = 2;
    for c in text.chars() {
        match tokens.last_mut() {
            Some(token) if kind(c) == last && last != 2 => token.push(c),
            _ => tokens.push(c.to_string()),
        }
        last = kind(c);
    }
    tokens
}

fn changed(text: &str, change: &Change) -> String {
    let lines = || text.lines().map(|line| format!("{line}\n")).collect::<Vec<String>>();
    let apply = |mut parts: Vec<String>, edit: &dyn Fn(&mut Vec<String>)| {
        if !parts.is_empty() {
            edit(&mut parts);
        }
        parts.concat()
    };
    match change {
        Change::DeleteLine(at) => apply(lines(), &|lines| {
            lines.remove(at % lines.len());
        }),
        Change::RepeatLine(at) => apply(lines(), &|lines| {
            let at = at % lines.len();
            lines.insert(at, lines[at].clone());
        }),
        Change::SwapLines(a, b) => apply(lines(), &|lines| {
            let count = lines.len();
            lines.swap(a % count, b % count);
        }),
        Change::DeleteToken(at) => apply(tokens(text), &|tokens| {
            tokens.remove(at % tokens.len());
        }),
        Change::RepeatToken(at) => apply(tokens(text), &|tokens| {
            let at = at % tokens.len();
            tokens.insert(at, tokens[at].clone());
        }),
        Change::SwapTokens(a, b) => apply(tokens(text), &|tokens| {
            let count = tokens.len();
            tokens.swap(a % count, b % count);
        }),
        Change::ReplaceToken(at, token) => apply(tokens(text), &|tokens| {
            let at = at % tokens.len();
            tokens[at] = token.clone();
        }),
        Change::ReplaceNumber(at, number) => apply(tokens(text), &|tokens| {
            let numbers: Vec<usize> =
                (0..tokens.len()).filter(|&at| tokens[at].starts_with(|c: char| c.is_ascii_digit())).collect();
            if let Some(&place) = numbers.get(at % numbers.len().max(1)) {
                tokens[place] = number.clone();
            }
        }),
        Change::CutOff(at) => text.chars().take(at % (text.chars().count() + 1)).collect(),
    }
}

/// Shipped files, and the one with all operations, with some changes.
fn changed_files() -> impl Strategy<Value = String> {
    let mut files: Vec<String> = shipped::all().iter().map(|file| file.text.clone()).collect();
    files.push(include_str!("workloads/operations.aorta").to_owned());
    (prop::sample::select(files), prop::collection::vec(change(), 1..5))
        .prop_map(|(text, changes)| changes.iter().fold(text, |text, change| changed(&text, change)))
}

#[test]
fn any_bytes() {
    let bytes = prop::collection::vec(any::<u8>(), 0..200);
    take_many(256, bytes.prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned()));
}

#[test]
fn any_text() {
    take_many(256, ".{0,60}(\n.{0,60}){0,6}");
}

#[test]
fn any_words() {
    let separator = prop::sample::select(&[" ", "", "\n"][..]);
    let tokens = prop::collection::vec((token(), separator), 0..80);
    take_many(512, tokens.prop_map(|tokens| tokens.iter().flat_map(|(token, after)| [token, *after]).collect()));
}

#[test]
fn any_pieces() {
    let reached = take_many(512, soup_of_pieces());
    assert!(reached.contains_key(&Stage::Simulated), "some are programs: {reached:?}");
}

#[test]
fn files_with_changes() {
    let reached = take_many(512, changed_files());
    assert!(reached.contains_key(&Stage::Simulated), "some are still programs: {reached:?}");
    assert!(reached.contains_key(&Stage::Model) && reached.contains_key(&Stage::Syntax), "others not: {reached:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Values of `--set name=`.
    #[test]
    fn any_value(tokens in prop::collection::vec(token(), 0..12)) {
        let text = tokens.concat();
        let mut sources = SourceMap::new();
        let base = sources.add("--set n", text.as_str()).expect("a test is small");
        if let Err(errors) = syntax::parse_expr(&text, base, &Limits::default(), &mut Interner::default()) {
            prop_assert!(!errors.is_empty());
            for error in errors {
                prop_assert!(!render::text(&error, &sources, Style::default()).is_empty());
            }
        }
    }

    /// Values of `--config`, in a settings file, and in a scenario.
    #[test]
    fn any_settings(
        key in "[a-z_]{0,8}|in_flight|timeout|effort|profile|max_memory|full",
        tokens in prop::collection::vec(token(), 0..6),
    ) {
        let text = tokens.concat();
        let _ = Settings::layered(None, &[format!("{key}={text}")]);
        let _ = Settings::layered(Some(("own.ron", &format!("({key}: {text})"))), &[]);
        let _ = Scenario::parse("own.ron", &format!("(workload: \"moe\", {key}: {text})"));
    }
}

/// Short texts that once made a stage panic, by what they show.
const CASES: [(&str, &str); 9] = [
    ("a step may be empty", "step { }"),
    ("a step may come to be empty", "step { if false { nop() } }"),
    ("a phase may be empty", "step { phase a { } }"),
    ("a slice backwards that begins outside", "buffer x: f32[4]\nstep { map(x[7..3] + 1) }"),
    ("a slice backwards that ends outside", "buffer x: f32[4]\nstep { map(x[2..-1] + 1) }"),
    ("a slice backwards in the middle", "buffer x: f32[8, 4, 96]\nstep { map(x[.., 7..3, ..] + 1) }"),
    ("an output larger than any memory", "step { gemm(f32[4294967296, 1], f32[1, 4294967296]) }"),
    ("the least number divided by -1", "param n = floor_div(-9223372036854775807 - 1, -1)\nstep { nop() }"),
    ("the least duration in a message", "let t = -9223372036854775807 * 1ns - 1ns\nlet r = sqrt(t, 1)\nstep { nop() }"),
];

#[test]
fn cases() {
    let panicked: Vec<&str> =
        CASES.iter().filter(|(_, text)| catch_unwind(|| take_through(text)).is_err()).map(|(name, _)| *name).collect();
    assert!(panicked.is_empty(), "panics: {panicked:#?}");
}

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
#[cfg(unix)]
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
#[cfg(unix)]
fn large_cases_are_refused_or_done() {
    let failed = common::parallel::map(&large_cases(), |(name, text)| run_limited(name, text));
    let failed: Vec<String> = failed.into_iter().flatten().collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
