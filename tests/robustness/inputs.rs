//! Random texts: words of the language in any order, pieces that fit together, and shipped files with changes.

use aorta::ops::CATALOGUE;
use aorta::syntax::{DECLARATIONS, RESERVED, STATEMENTS};
use proptest::prelude::*;

use crate::common::shipped;

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
const WORDS: [&str; 46] = [
    "e4m3",
    "e5m2",
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
pub fn token() -> impl Strategy<Value = String> {
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
pub fn soup_of_pieces() -> impl Strategy<Value = String> {
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
pub fn changed_files() -> impl Strategy<Value = String> {
    let mut files: Vec<String> = shipped::all().iter().map(|file| file.text.clone()).collect();
    files.push(include_str!("../workloads/operations.aorta").to_owned());
    (prop::sample::select(files), prop::collection::vec(change(), 1..5))
        .prop_map(|(text, changes)| changes.iter().fold(text, |text, change| changed(&text, change)))
}
