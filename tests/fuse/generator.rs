//! Random programs for `--fuse`, as text: operations that could be merged beside those that must not be.

use aorta::base::random::hash;

/// The rules by which two runs of a program are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Everything is computed in `f64`, in one order: all bits are equal.
    Exact,
    /// Also products, whose functions have several forms. No operation has jumps.
    Close,
    /// Lower types, whose rounding fusion leaves out. No operation has jumps.
    Rounded,
}

/// A random program: statements, each a line, that can be left out one by one.
#[derive(Clone, Debug)]
pub struct Chains {
    pub rule: Rule,
    pub ranks: u32,
    header: String,
    pub statements: Vec<String>,
}

impl Chains {
    pub fn text(&self) -> String {
        self.with(&self.statements)
    }

    /// The text with other statements.
    pub fn with(&self, statements: &[String]) -> String {
        format!("{}step {{\n  on s[0] {{ nop() }}\n{}}}\n", self.header, statements.concat())
    }
}

/// Shapes of operands.
const FULL: usize = 0;
const ROW: usize = 1;
const COLUMN: usize = 2;
const TALL: usize = 3;
const SUMS: usize = 4;
const ONE: usize = 5;

struct Draw {
    seed: u64,
    count: u64,
}

impl Draw {
    fn below(&mut self, limit: usize) -> usize {
        self.count += 1;
        (hash(self.seed, self.count) % limit as u64) as usize
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }

    fn is(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

struct Generator {
    draw: Draw,
    rule: Rule,
    dtype: &'static str,
    streams: usize,
    /// Values by shape: buffers, slices and labels.
    values: [Vec<String>; 6],
    labels: Vec<String>,
}

/// The program of a seed. Some of its statements may be invalid where they stand.
pub fn chains(seed: u64) -> Chains {
    let mut draw = Draw { seed, count: 0 };
    let rule = [Rule::Exact, Rule::Exact, Rule::Close, Rule::Rounded][draw.below(4)];
    let dtype = if rule == Rule::Rounded { draw.of(&["f32", "bf16", "f16"]) } else { "f64" };
    let streams = 1 + draw.below(3);
    let ranks = if draw.is(30) { 2 } else { 1 };
    // Half of the files have one row: a matrix of one row has places where others have none.
    let rows = if draw.is(15) { 1 } else { 4 };
    let header = format!(
        "stream s[{streams}]\nbuffer a, b, c, d: {dtype}[{rows}, 6]\nbuffer wide: {dtype}[{rows}, 12]\n\
         buffer pool: {dtype}[{}, 6]\nbuffer f, g: {dtype}[6, {rows}]\nbuffer v, v2: {dtype}[6]\nbuffer u: {dtype}[{rows}, 1]\n\
         buffer w: {dtype}[6, 6]\nbuffer r: {dtype}[{rows}]\nbuffer total: {dtype}\n\
         buffer host: {dtype}[{rows}, 6] in pinned\nbuffer places: i32[{rows}]\n",
        2 * rows
    );
    let list = |all: &[&str]| all.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
    let slices = [format!("pool[0..{rows}]"), format!("pool[{rows}..{}]", 2 * rows)];
    let mut full = list(&["a", "b", "c", "d", "a", "b", "wide[.., 0..6]", "wide[.., 3..9]", "wide[.., 6..12]", "host"]);
    full.extend(slices);
    if rows > 1 {
        full.extend(list(&["pool[1..5]", "pool[2..6]"]));
    }
    full.push(format!("view(f, [{rows}, 6])"));
    let values = [
        full,
        list(&["v", "v2", "w[0]", "w[3]", "a[0]"]),
        list(&["u", "a[.., 0..1]", "wide[.., 5..6]", "u"]),
        list(&["f", "g"]),
        list(&["r", "f[0]"]),
        list(&["total"]),
    ];
    let count = 3 + draw.below(14);
    let mut generator = Generator { draw, rule, dtype, streams, values, labels: Vec::new() };
    let statements = (0..count).map(|number| generator.statement(number, ranks)).collect();
    Chains { rule, ranks, header, statements }
}

impl Generator {
    /// A value of a shape, most often one of the last.
    fn value(&mut self, shape: usize) -> String {
        let all = self.values[shape].len();
        let from = if self.draw.is(65) { all.saturating_sub(3) } else { 0 };
        let place = from + self.draw.below(all - from);
        self.values[shape][place].clone()
    }

    /// A value that broadcasts to the full shape.
    fn small(&mut self) -> String {
        match self.draw.below(6) {
            0 => self.value(ROW),
            1 => self.value(COLUMN),
            2 => self.value(ONE),
            3 => "0.5".to_owned(),
            _ => self.value(FULL),
        }
    }

    /// An expression over values of a shape, whose values stay small.
    fn expression(&mut self, shape: usize) -> String {
        let x = self.value(shape);
        let y = if shape == FULL { self.small() } else { self.value(shape) };
        let kinds = if self.rule == Rule::Exact { 13 } else { 10 };
        match self.draw.below(kinds) {
            0 => format!("tanh({x}) + {y}"),
            1 => format!("0.5 * {x} - 0.25 * {y}"),
            2 => format!("max({x}, {y})"),
            3 => format!("{x} + {y}"),
            4 => format!("tanh({x}) * {y}"),
            5 => format!("relu({x})"),
            6 => format!("sigmoid({x})"),
            7 => format!("0.5 * {x}"),
            8 => format!("min({x}, 1) * 0.5 + tanh({y}) * {x}"),
            9 => format!("{x} * 0.5 + 0.125"),
            10 => format!("if {x} > {y} {{ {x} }} else {{ 0.5 }}"),
            11 => format!("({x} < {y}) * 2"),
            _ => format!("abs({x}) + {y}"),
        }
    }

    /// Where a result of a shape goes: ` -> slice`, or nothing for scratch.
    fn target(&mut self, shape: usize, percent: usize) -> String {
        if !self.draw.is(percent) {
            return String::new();
        }
        // A buffer or a slice: labels are scratch of others.
        let named: Vec<String> = self.values[shape].iter().filter(|value| !value.starts_with('o')).cloned().collect();
        format!(" -> {}", named[self.draw.below(named.len())])
    }

    fn statement(&mut self, number: usize, ranks: u32) -> String {
        let stream = self.draw.below(self.streams);
        let label = format!("o{number}");
        let kind = self.draw.below(if ranks > 1 { 31 } else { 27 });
        // The operation, and the shape of its result where that may be scratch.
        let (operation, shape): (String, Option<usize>) = match kind {
            0..=6 => {
                let (expression, target) = (self.expression(FULL), self.target(FULL, 35));
                (format!("map({expression}{target})"), target.is_empty().then_some(FULL))
            }
            7 => {
                // In place.
                let x = self.target(FULL, 100);
                let y = self.small();
                (format!("map(0.5 * {} + tanh({y}){x})", &x[4..]), None)
            }
            8 => {
                let (one, two) = (self.expression(FULL), self.expression(FULL));
                let (first, second) = (self.target(FULL, 100), self.target(FULL, 100));
                (format!("map({one}, {two}{first},{})", &second[3..]), None)
            }
            9 => {
                let shape = [ROW, COLUMN, TALL, SUMS][self.draw.below(4)];
                let (expression, target) = (self.expression(shape), self.target(shape, 40));
                (format!("map({expression}{target})"), target.is_empty().then_some(shape))
            }
            10 => {
                let shape = [FULL, FULL, ROW, COLUMN, ONE][self.draw.below(5)];
                (format!("fill({}{})", self.draw.of(&["0.5", "0", "-0.25"]), self.target(shape, 100)), None)
            }
            11 | 12 => {
                let x = self.value(FULL);
                let target = self.target(FULL, 50);
                let via = if self.draw.is(15) { self.draw.of(&[", via: dma", ", via: kernel"]) } else { "" };
                (format!("copy({x}{via}{target})"), target.is_empty().then_some(FULL))
            }
            13 => {
                // Other dimensions.
                let (from, to) = if self.draw.is(50) { (FULL, TALL) } else { (TALL, FULL) };
                let (x, target) = (self.value(from), self.target(to, 100));
                (format!("copy({x}{target})"), None)
            }
            14 => {
                let rows = self.draw.below(2);
                let target = self.target(FULL, 40);
                let list = [["1", "0", "1", "1"], ["0", "1", "0", "0"]][rows].join(", ");
                let from = self.draw.of(&["pool", "a", "w"]);
                (format!("copy({from}, indices: [{list}]{target})"), target.is_empty().then_some(FULL))
            }
            15..=17 => {
                let expression = if self.draw.is(60) { self.value(FULL) } else { self.expression(FULL) };
                let names: &[&str] = match self.rule {
                    Rule::Exact => &["sum", "mean", "max", "min", "logsumexp", "argmax", "argmin"],
                    _ => &["sum", "mean", "max", "logsumexp"],
                };
                let name = self.draw.of(names);
                if name.starts_with("arg") {
                    (format!("{name}({expression}, dims: [1] -> places)"), None)
                } else {
                    let (dims, shape) = [
                        (", dims: [0]", ROW),
                        (", dims: [1]", SUMS),
                        (", dims: [1], keepdim: true", COLUMN),
                        ("", ONE),
                    ][self.draw.below(4)];
                    let target = self.target(shape, 60);
                    (format!("{name}(0.125 * ({expression}){dims}{target})"), target.is_empty().then_some(shape))
                }
            }
            18 | 19 => {
                let (x, weight) = (self.value(FULL), self.value(ROW));
                let target = self.target(FULL, 40);
                let call = match self.draw.below(3) {
                    0 => format!("rms_norm({x}, {weight}{target})"),
                    1 => format!("layer_norm({x}, {weight}, v2{target})"),
                    _ => format!("softmax({x}{target})"),
                };
                (call, target.is_empty().then_some(FULL))
            }
            20 => {
                let to = match self.rule {
                    Rule::Exact => self.draw.of(&["f64", "f64", "i32", "i64", "u8"]),
                    Rule::Close => "f64",
                    Rule::Rounded => self.draw.of(&["f32", "bf16", "f16", self.dtype]),
                };
                (format!("cast({}, to: {to})", self.value(FULL)), Some(FULL))
            }
            21 if self.rule != Rule::Exact => {
                let target = self.target(FULL, 40);
                let (x, matrix) =
                    (self.value(FULL), if self.draw.is(70) { "w".to_owned() } else { format!("q{number}") });
                let transposed = if matrix == "w" { "" } else { &format!("q{number}: transpose(w) ") };
                return self.finish(
                    stream,
                    &label,
                    &format!("gemm({x}, {matrix}{target})"),
                    transposed,
                    target.is_empty().then_some(FULL),
                );
            }
            22 => {
                // The sum in front of a norm.
                let (x, y) = (self.value(FULL), self.value(FULL));
                let (sum, result) = (self.target(FULL, 50), self.target(FULL, 50));
                let value = if sum.is_empty() { format!("n{number}") } else { sum[4..].to_owned() };
                let before = format!("n{number}: map({x} + {y}{sum}) ");
                return self.finish(
                    stream,
                    &label,
                    &format!("rms_norm({value}, v{result})"),
                    &before,
                    result.is_empty().then_some(FULL),
                );
            }
            23 => {
                let (g, v) = (self.value(FULL), self.target(FULL, 100));
                (format!("sgd({g}{v}, lr: 0.125)"), None)
            }
            24 => {
                let marker = self.draw.of(&["sync()", "signal()", "nop()"]);
                (marker.to_owned(), None)
            }
            25 => {
                let (x, to) = (self.value(SUMS), self.target(SUMS, 100));
                let places = if self.rule == Rule::Exact { "0.25 * places + " } else { "" };
                (format!("map({places}{x}{to})"), None)
            }
            26 => {
                // A value of the smaller shape spreads.
                let (row, column) = (self.value(ROW), self.value(COLUMN));
                let target = self.target(FULL, 50);
                (format!("map({row} * 0.5 + {column}{target})"), target.is_empty().then_some(FULL))
            }
            27 => {
                let (x, to) = (self.target(FULL, 100), self.target(FULL, 100));
                let (x, to) = (x[4..].to_owned(), &to[4..]);
                (format!("copy({x} -> {to} at (rank + 1) % world)"), None)
            }
            28 => {
                let (x, to) = (self.value(FULL), self.target(FULL, 100));
                let from = "(rank + world - 1) % world";
                let pair = format!("group {{ send({x}, to: (rank + 1) % world) recv({}, from: {from}) }}", &to[1..]);
                return format!("  on s[{stream}] {{ {pair} }}\n");
            }
            29 => {
                // One way. Another such statement may be the answer.
                let (x, to) = (self.value(FULL), self.target(FULL, 100));
                let ranks = if self.draw.is(50) { [0, 1] } else { [1, 0] };
                return format!(
                    "  if rank == {} {{ on s[{stream}] {{ send({x}, to: {}) }} }} else {{ on s[{stream}] {{ recv({}, from: {}) }} }}\n",
                    ranks[0],
                    ranks[1],
                    &to[1..],
                    ranks[0]
                );
            }
            30 => {
                let (x, to) = (self.value(FULL), self.target(FULL, 100));
                (format!("all_reduce({x}{to})"), None)
            }
            _ => {
                let (expression, target) = (self.expression(FULL), self.target(FULL, 20));
                (format!("map({expression}{target})"), target.is_empty().then_some(FULL))
            }
        };
        self.finish(stream, &label, &operation, "", shape)
    }

    /// The statement of an operation, which some others follow.
    fn finish(&mut self, stream: usize, label: &str, operation: &str, before: &str, shape: Option<usize>) -> String {
        let after = match self.draw.below(12) {
            0 if !self.labels.is_empty() => format!(" after {}", self.labels[self.draw.below(self.labels.len())]),
            1 if !self.labels.is_empty() => format!(" after prev({})", self.labels[self.draw.below(self.labels.len())]),
            _ => String::new(),
        };
        self.labels.push(label.to_owned());
        if let Some(shape) = shape {
            self.values[shape].push(label.to_owned());
        }
        format!("  on s[{stream}]{after} {{ {before}{label}: {operation} }}\n")
    }
}
