//! Texts that are nearly programs, made by choices from a grammar: they come deeper than changed bytes do.
//!
//! In a production `$X` stands for one of the productions of `X`, `$*X` for any number of them, `$#` for a number that
//! no label has yet and `$@` for one that some label above has. Bytes choose; when they are used up, the first
//! production is taken, which is short.

/// Productions inside one another.
const MAX_DEPTH: usize = 24;

/// Bytes after which nothing is repeated any more.
const MAX_TEXT: usize = 4096;

const GRAMMAR: &[(u8, &[&str])] = &[
    (b'F', &["$D$*dstep$O {\n  nop()\n$*s}\n$*m"]),
    // Declarations that most texts use, then others.
    (
        b'D',
        &[
            "stream a\nstream s[4]\nbuffer x, y, z: f32[8, 16]\nbuffer v[2]: f32[16]\n",
            "stream a(priority: high)\nstream s[4]\nbuffer x, y, z: f16[8, 16]\nbuffer v[2]: f16[16] = iota\n",
            "param n = 4 in 1..=64\nstream a\nstream s[n]\nbuffer x, y, z: f32[8, n * 4]\nbuffer v[n]: f32[16]\n",
            "stream s[4]\nstream a\nbuffer x, y: i32[16, 16]\nbuffer z: i32[16, 16] in pinned\nbuffer v[2]: i32[16]\n",
        ],
    ),
    (
        b'd',
        &[
            "let c = $e\n",
            "param p = $e in $r\n",
            "buffer w: f32[$e, $e]\n",
            "buffer h: i32[8] = iota\n",
            "buffer q { up: f32[8, 16], down: f32[8, 16] }\n",
            "buffer far: f32[8, 16] in pinned\n",
            "stream t[$e](priority: low)\n",
            "def two(i -> o) {\n$*s map(i + 1 -> o) }\n",
            "def one(i) {\n$*s}\n",
            "preset tiny { n = $e }\n",
            "meta { category: \"latency\", tags: [\"fuzz\"] }\n",
            "/// About the next\n",
            "$T\n",
            "mesh dp = world\n",
            "mesh dp = $e, tp = $e\n",
        ],
    ),
    (
        b'O',
        &[
            "",
            "(sync: end)",
            "(sync: end, depth: 3)",
            "(sync: end, depth: $n)",
            "(order: declared)",
            "(order: declared, races: allow)",
            "(order: declared, sync: end)",
            "(order: declared, sync: end, depth: 3)",
        ],
    ),
    // Statements.
    (
        b's',
        &[
            "$o\n",
            "on $S {\n$*s}\n",
            "on $S { t$#: $o }\n",
            "on $S after $l { t$#: $o }\n",
            "on $S after $l, prev($l) { t$#: $o }\n",
            "on $S after prev($l) {\n$*s}\n",
            "on $S after $l when $c { $o }\n",
            "on $S { t$#: signal() }\n",
            "on $S { wait($l) }\n",
            "on $S { sync() }\n",
            "t$#: $o\n",
            "u[$i]: $o\n",
            "for i in $r {\n$*s}\n",
            "if $c {\n$*s}\n",
            "if $c {\n$*s} else {\n$*s}\n",
            "if $c { t$#: $o } else { t$@: $o }\n",
            "phase p {\n$*s}\n",
            "phase p[$i] {\n$*s}\n",
            "let c = $e\n",
            "buffer b: f32[8, 16]\n",
            "two($f -> $f)\n",
            "group {\n$*s}\n",
            "group { send($f, to: $e) recv(-> $f, from: $e) }\n",
            "if rank == 0 {\n$*s}\n",
            "t$#: two($f)\n",
            "one($f)\n",
            "$T\n",
        ],
    ),
    // Operations.
    (
        b'o',
        &[
            "map($f * 2 -> $f)",
            "map($f + $f)",
            "map($f + $f -> $f)",
            "map(if $f > 0 { gelu($f) } else { $k } -> $f)",
            "map($f * $e)",
            "fill($k -> $f)",
            "memset(0 -> $f)",
            "copy($f -> $f)",
            "copy($f -> $f, via: $w)",
            "softmax($f -> $f)",
            "gemm($f, $f, transpose_b: true)",
            "gemm(f32[$n, $n], f32[$n, $n])",
            "transpose($f)",
            "cast($f, to: $t)",
            "top_k($f, k: $n)",
            "gather($f, h)",
            "scatter($f, h -> $f, combine: add)",
            "t$#: route(softmax, k: 1, capacity: $n)",
            "all_to_all($f -> $f)",
            "spin($q)",
            "work(flops: $k, bytes: $q)",
            "nop()",
            "grad(t$@, $f -> $f)",
            "all_reduce($f -> $f)",
            "all_gather($f -> $f) over dp",
            "reduce_scatter($f)",
            "all_to_all($f -> $f, counts: [[$e, 1], [2, $e]])",
            "broadcast($f -> $f, root: $e)",
            "send($f, to: $e)",
            "recv(-> $f, from: $e)",
            "barrier()",
        ],
    ),
    // Operands, streams, labels.
    (
        b'f',
        &[
            "x",
            "y",
            "z",
            "x[$i]",
            "y[$i]",
            "z[$i..$i]",
            "x[$i..$i + 2]",
            "y[.., $i]",
            "z[.., $i..$i + 4]",
            "t$@",
            "v[$i]",
            "v",
            "b",
            "w",
            "q.up",
            "q",
            "far",
            "t$@.o",
            "f32[8, 16]",
            "if $c { $f } else { $f }",
            "u[$i]",
            "o",
        ],
    ),
    (b'S', &["s[0]", "s[1]", "s[2]", "s[3]", "a", "s[$i]", "s[$i % 4]", "main", "t[0]"]),
    (b'l', &["t$@", "t$@", "t$@", "u[$i]", "u"]),
    (b'w', &["auto", "dma", "kernel", "p"]),
    (b't', &["f32", "f16", "bf16", "i32", "i8", "u8", "f64", "dtype"]),
    // Values.
    (b'i', &["0", "1", "2", "3", "i", "iteration % 2", "iteration % 3", "$e"]),
    (b'r', &["0..2", "0..3", "0..$e", "$e..=$e", "rev(0..3)", "[1, 2, $e]", "[$t, $t]", "0..1000000000"]),
    (b'c', &["true", "i > 0", "$e == $e", "$e < $e", "not $c", "$c and $c", "$c or $c", "iteration > 2"]),
    (
        b'e',
        &[
            "1",
            "$n",
            "n",
            "c",
            "p",
            "i",
            "iteration",
            "$e + $e",
            "$e - $e",
            "$e * $e",
            "$e / $e",
            "$e % $e",
            "-$e",
            "($e)",
            "ceil_div($e, $e)",
            "floor_div($e, $e)",
            "max($e, $e)",
            "min($e, $e)",
            "sum([$e, $e])",
            "len([$e, $e])",
            "[$e, $e]",
            "if $c { $e } else { $e }",
            "log2($e)",
            "pow($e, $e)",
            "sizeof($t)",
            "$q",
            "world",
            "$k",
            "[$e, $e][$i]",
            "\"text\"",
        ],
    ),
    (b'n', &["1", "2", "4", "8", "16", "3", "0", "64", "65", "4294967296", "9223372036854775807", "1e18"]),
    (b'k', &["0", "0.5", "1e30", "-1", "80%", "4GB/s", "1MFLOP"]),
    (b'q', &["10us", "1ns", "4KiB", "64MiB", "0us", "3s"]),
    // Figures.
    (
        b'm',
        &[
            "metric m$# = $g\n",
            "metric m$# = $g \"$u\"\n",
            "expect $g > $q\n",
            "expect $g < $g when $c\n",
            "metric m$# = m$@ + $g\n",
            "metric m$#[v in 0..$n] = $g + v * m$@\n",
        ],
    ),
    (
        b'g',
        &[
            "time",
            "time(t$@)",
            "time(a)",
            "bandwidth(t$@, s)",
            "flops",
            "bytes(s[0])",
            "speedup",
            "serial_time",
            "time.p50",
            "time.max",
            "time.slot[$n]",
            "busy(t$@).slot[0].p95",
            "overlap(a, s)",
            "$g / $g",
            "$g + $g",
            "$e",
            "critical_path",
            "memory.peak",
            "max($g, $g)",
            "gap(s[1])",
            "delay(t$@)",
        ],
    ),
    (b'u', &["us", "tokens/s", "GB/s", "%", "rows"]),
    // What fits nowhere.
    (
        b'T',
        &[
            ";", "{", "}", ")", "(", "]", "->", "..", "step {", "on", "else", "after", "let", "\"", "\"\"\"", "///",
            "//!", "&&", "\u{e4}", "5xy", "1..", "for", "in", "if", "prev(", "buffer", "def", "metric", "t$#:",
        ],
    ),
];

/// A text from choices.
pub fn text(choices: &[u8]) -> String {
    let mut maker = Maker { choices, text: String::new(), labels: 0 };
    maker.add(b'F', 0);
    maker.text
}

struct Maker<'a> {
    choices: &'a [u8],
    text: String,
    /// How many labels there are.
    labels: usize,
}

impl Maker<'_> {
    fn choice(&mut self) -> Option<usize> {
        let (&first, rest) = self.choices.split_first()?;
        self.choices = rest;
        Some(usize::from(first))
    }

    fn add(&mut self, symbol: u8, depth: usize) {
        let productions = GRAMMAR.iter().find(|(name, _)| *name == symbol).map_or(&[""][..], |(_, all)| all);
        let choice = if productions.len() > 1 && depth < MAX_DEPTH { self.choice().unwrap_or(0) } else { 0 };
        let mut rest = productions[choice % productions.len()];
        while let Some(at) = rest.find('$') {
            self.text += &rest[..at];
            let code = rest.as_bytes()[at + 1];
            rest = &rest[at + 2..];
            match code {
                b'#' => {
                    self.labels += 1;
                    self.text += &self.labels.to_string();
                }
                b'@' => {
                    let back = self.choice().unwrap_or(0) % self.labels.max(1);
                    self.text += &(self.labels - back.min(self.labels)).to_string();
                }
                b'*' => {
                    let repeated = rest.as_bytes()[0];
                    rest = &rest[1..];
                    while self.text.len() < MAX_TEXT && self.choice().is_some_and(|choice| choice % 8 != 0) {
                        self.add(repeated, depth + 1);
                    }
                }
                symbol => self.add(symbol, depth + 1),
            }
        }
        self.text += rest;
    }
}
