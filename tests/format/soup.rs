//! Arbitrary texts: words and signs in any order, shipped files with changes, random characters.

use aorta::syntax::{DECLARATIONS, RESERVED, STATEMENTS};
use proptest::prelude::*;

use super::formatted;

/// Signs, numbers, texts, comments, and characters without a meaning.
const SIGNS: [&str; 62] = [
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "(",
    ")",
    "{",
    "}",
    ",",
    ",",
    ":",
    ":",
    ";",
    ".",
    "..",
    "..=",
    "->",
    "=",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "+",
    "-",
    "-",
    "*",
    "/",
    "%",
    "~",
    "!",
    "&&",
    "|",
    "1",
    "4_096",
    "1e-4",
    "64MiB",
    "400GB/s",
    "80%",
    "2x",
    "\"a, b\"",
    "\"",
    "\"\"\"",
    "\"\"\"a\n  b\"\"\"",
    "\"\\",
    "// comment, one\n",
    "// another  \r\n",
    "/// documentation\n",
    "//! about\n",
    "////\n",
    "//",
    "$",
    "é",
    "\u{feff}",
    "\u{a0}",
    "\u{2028}",
    "\u{c}",
    "\\",
    "'",
];

const NAMES: [&str; 12] = ["a", "b", "x", "f32", "like", "prev", "time", "pinned", "gemm", "map", "if", "else"];

/// Stretches that are whole.
const STRETCHES: [&str; 26] = [
    "stream s[4](priority: high)",
    "buffer x, y: f32[8, 16] in pinned = zeros",
    "param n = 8 in 1..=64",
    "let c = n * 2",
    "preset tiny { n = 4, m = 5 }",
    "meta { category: \"test\", tags: [\"a\"] }",
    "def t(a -> b) {",
    "step {",
    "step(sync: end) {",
    "\nlet a",
    "on a {",
    "on s[0] after i when c, prev(j) {",
    "for i in 0..3 {",
    "if n > 4 {",
    "} else {",
    "} else if a {",
    "j: map(x[0] + v[1] -> y,)",
    "gemm(f32[4, 8], f32[8, 4])",
    "if a { b } else { c }",
    "not a and b or - c % 2",
    "nop()",
    "on a { nop() }",
    "metric z = time(i) / time \"s\"",
    "expect (a) < b when c",
    "kernel k(x: f32 -> y) { /// doc\n a: \"\"\"\n\n\"\"\", b: 3 }",
    "buffer z { a: f32, b: f32[4] }",
];

/// Separators between two pieces.
const GAPS: [&str; 14] = ["", "", " ", " ", " ", "  ", "\n", "\n", "\n  ", "\n\n", " \r\n", "\r", "\t", "\n\n\n\t"];

pub fn fragment() -> impl Strategy<Value = String> {
    let of = |words: &'static [&'static str]| prop::sample::select(words).prop_map(str::to_owned);
    prop_oneof![
        6 => of(&SIGNS),
        3 => of(&NAMES),
        1 => of(&RESERVED),
        1 => of(&STATEMENTS),
        1 => of(&DECLARATIONS),
        5 => of(&STRETCHES),
    ]
}

fn soup(most: usize) -> impl Strategy<Value = String> {
    let gap = prop::sample::select(&GAPS[..]);
    prop::collection::vec((fragment(), gap), 0..most)
        .prop_map(|parts| parts.into_iter().flat_map(|(part, gap)| [part, gap.to_owned()]).collect())
}

/// A shipped file with some of its characters taken out, exchanged for a fragment, or one put between.
fn changed() -> impl Strategy<Value = String> {
    let files = super::shipped::files();
    let change = (any::<prop::sample::Index>(), 0..3usize, fragment());
    (prop::sample::select(files), prop::collection::vec(change, 1..6)).prop_map(|((_, mut text), changes)| {
        for (place, taken, fragment) in changes {
            let places: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            let at = place.index(places.len());
            let end = places[(at + taken).min(places.len() - 1)];
            text.replace_range(places[at]..end, if taken == 1 { "" } else { &fragment });
        }
        text
    })
}

proptest! {
    #![proptest_config(crate::common::properties(2000))]

    #[test]
    fn words_in_any_order(text in soup(40)) {
        formatted(&text);
    }

    #[test]
    fn characters_in_any_order(text in "(?s).{0,40}") {
        formatted(&text);
    }
}

proptest! {
    #![proptest_config(crate::common::properties(200))]

    #[test]
    fn changed_files(text in changed()) {
        formatted(&text);
    }
}

/// Documentation that ends the head of a branch: the brace behind it stays on a line of its own.
#[test]
fn documentation_before_a_block() {
    formatted("step {\n  if a == b {\n    nop()\n  } else if c == d/// documentation\n{\n    nop()\n  }\n}\n");
}
