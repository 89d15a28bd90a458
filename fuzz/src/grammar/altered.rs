//! Changes a few words or signs of a file, so that most results have one mistake.

use super::choices::Choices;

/// Words and signs to insert, each with a meaning somewhere in the language.
const PIECES: &[&str] = &[
    ";",
    "{",
    "}",
    ")",
    "(",
    "[",
    "]",
    "->",
    "..",
    "..=",
    "=",
    "==",
    ",",
    ":",
    ".",
    "-",
    "*",
    "/",
    "%",
    "~",
    "//",
    "///",
    "//!",
    "\"",
    "\"\"\"",
    "&&",
    "\u{e4}",
    "\u{202e}",
    "\u{1b}[2J",
    "\0",
    "_",
    "after",
    "and",
    "at",
    "else",
    "false",
    "for",
    "if",
    "in",
    "let",
    "not",
    "on",
    "or",
    "over",
    "true",
    "when",
    "step {",
    "setup {",
    "teardown {",
    "stream",
    "buffer",
    "param",
    "mesh",
    "metric",
    "expect",
    "phase",
    "group {",
    "prev(",
    "use common",
    "draw d ~ uniform(0, 1)",
    "stream h[2](kind: host, threads: 2)",
    "draw d[2] ~ trace(\"lengths.csv\", column: \"prompt\", seed: 1)",
    "require rank > 3 \"m\"",
    "kernel k(x: f32[n] -> y: f32[n]) { grid: n, block: 64, source: \"k\", reference: map(2 * x) }",
    "buffer q { up: f32[8], down: f32[8] }",
    "buffer r like x",
    "in managed",
    "grad(x)",
    "grad(t, 1 -> x)",
    "attention(x)",
    "rank",
    "world",
    "iteration",
    "main",
    "auto",
    "dma",
    "sync()",
    "host_sync()",
    "read(\"a.bin\", offset: 4KiB -> x)",
    "wait(x)",
    "signal()",
    "f32",
    "i32",
    "f32[8, 16]",
    "[1, 2]",
    "\"text\"",
    "0..1000000000",
    "if true { 1 } else { 2 }",
    "time",
    "time.p50",
];

/// Numbers at the limits of what is allowed.
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "7",
    "64",
    "65",
    "1025",
    "65536",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "0.5",
    "1e18",
    "1e-300",
    "1e999",
    "1e18s",
    "10us",
    "4KiB",
    "1TiB",
    "80%",
    "4GB/s",
    "-1",
    "5xy",
];

/// Applies up to four changes to `text`.
pub fn altered(text: &str, choices: &mut Choices) -> String {
    let mut tokens = tokens(text);
    for _ in 0..choices.below(4) + 1 {
        let at = (choices.below(256) << 8 | choices.below(256)) % tokens.len().max(1);
        let length = choices.below(8) + 1;
        let end = (at + length).min(tokens.len());
        match choices.below(7) {
            0 => tokens.insert(at.min(tokens.len()), choices.pick(PIECES)),
            1 if at < tokens.len() => tokens[at] = choices.pick(PIECES),
            2 if at < tokens.len() => drop(tokens.remove(at)),
            3 => drop(tokens.drain(at.min(end)..end)),
            4 => {
                let copied = tokens[at.min(end)..end].to_vec();
                tokens.splice(at.min(end)..at.min(end), copied);
            }
            5 if end > at + 1 => tokens.swap(at, end - 1),
            _ => {
                let numbers =
                    || tokens.iter().enumerate().filter(|(_, token)| token.starts_with(|c: char| c.is_ascii_digit()));
                let count = numbers().count();
                let chosen = numbers().nth(at % count.max(1)).map(|(index, _)| index);
                if let Some(index) = chosen {
                    tokens[index] = choices.pick(NUMBERS);
                }
            }
        }
    }
    tokens.concat()
}

/// Splits a text into words with their digits and units, and single other characters.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let (token, behind) = rest.split_at(if word == 0 { first.len_utf8() } else { word });
        tokens.push(token);
        rest = behind;
    }
    tokens
}
