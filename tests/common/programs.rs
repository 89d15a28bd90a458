//! Random programs, as text.

use proptest::prelude::*;

/// Copies to other ranks of every kind: strided, one way only, by a kernel, to the same rank, beside computation, both
/// ways at once on two streams. `VIA` is the option of one of them.
pub const PEERS: &str = "\
stream s
stream t
buffer x: f32[64, 32]
buffer y: f32[64, 32] = zeros
buffer z: f32[4, 64, 32] = zeros
buffer w: f32[64, 32] = zeros
step {
  on s { map(x * 0.5 + rank -> x) }
  on t { copy(x -> y at (rank + 1) % world) }
  on s { map(x + 1 -> w) }
  on t { copy(x[.., 0..16] -> z[3, .., 16..32] at (rank + 1) % world) }
  on s { copy(w -> z[0] at rank + 1 when rank + 1 < world) }
  on t { copy(y -> z[1] at (rank + 1) % world, via: VIA) }
  on s { copy(w -> z[2] at rank) }
  on s { map(y + z[2] -> x) }
}
";

/// Consecutive copies to other ranks, some of which can share a synchronization: on rank 1 the second, third and fifth
/// of the received ones, on rank 0 the second and fifth. The fourth sends what the third has received.
pub const ROWS: &str = "\
stream s
stream t
buffer x: f32[4, 64, 32]
buffer y: f32[4, 64, 32] = zeros
buffer z: f32[2, 64, 32] = zeros
step {
  on s { map(x * 0.5 + rank -> x) }
  on t {
    copy(x[0] -> y[0] at (rank + 1) % world)
    copy(x[1] -> y[1] at (rank + 1) % world, via: kernel)
  }
  if rank == 0 { on t { spin(2ms) } }
  on t {
    copy(x[2] -> y[2] at (rank + 1) % world)
    copy(y[2] -> z[0] at (rank + 1) % world)
    copy(x[3] -> y[3] at (rank + 1) % world)
    copy(y[1] -> z[1] at rank)
  }
  on s { map(y[0] + y[1] + y[2] + y[3] + z[0] -> x[0]) }
}
";

/// One statement of a random step.
#[derive(Clone, Debug)]
pub enum Statement {
    /// An operation on a stream: its shape, the inputs' buffers and indices, the output's (a buffer, or scratch).
    Op {
        stream: usize,
        shape: Shape,
        inputs: Vec<(usize, usize)>,
        output: Option<(usize, usize)>,
        /// Dependencies of its block, and of a nested block, as indices of earlier labels.
        after: [Vec<usize>; 2],
    },
    /// An operation on the scratch output of an earlier one, both with one row.
    Use {
        stream: usize,
        source: usize,
        output: (usize, usize),
    },
    Signal {
        stream: usize,
    },
    Wait {
        stream: usize,
        on: usize,
    },
    Sync {
        stream: usize,
    },
}

/// Which part of an 8 × 16 buffer an operation works on.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    Row,
    TwoRows,
    Columns,
    Whole,
}

impl Shape {
    /// The `place`-th part of this shape.
    fn slice(self, buffer: usize, place: usize) -> String {
        let name = ["a", "b", "c", "d"][buffer % 4];
        match self {
            Shape::Row => format!("{name}[{}]", place % 8),
            Shape::TwoRows => format!("{name}[{}..{}]", place % 7, place % 7 + 2),
            Shape::Columns => format!("{name}[.., {}..{}]", place % 13, place % 13 + 4),
            Shape::Whole => name.to_owned(),
        }
    }
}

fn statement(streams: usize, markers: bool) -> impl Strategy<Value = Statement> {
    let shape = prop_oneof![
        4 => Just(Shape::Row),
        2 => Just(Shape::TwoRows),
        2 => Just(Shape::Columns),
        1 => Just(Shape::Whole)
    ];
    let part = (0..4usize, 0..16usize);
    let op = (
        0..streams,
        shape,
        prop::collection::vec(part.clone(), 1..3),
        prop::option::weighted(0.7, part.clone()),
        prop_oneof![
            8 => Just([vec![], vec![]]),
            2 => (0..64usize).prop_map(|label| [vec![label], vec![]]),
            // Some repeat a dependency.
            1 => (prop::collection::vec(0..4usize, 1..3), prop::collection::vec(0..4usize, 0..2)).prop_map(<[_; 2]>::from)
        ],
    )
        .prop_map(|(stream, shape, inputs, output, after)| Statement::Op { stream, shape, inputs, output, after });
    let user =
        (0..streams, 0..64usize, part).prop_map(|(stream, source, output)| Statement::Use { stream, source, output });
    let marker = prop_oneof![
        (0..streams).prop_map(|stream| Statement::Signal { stream }),
        (0..streams, 0..64usize).prop_map(|(stream, on)| Statement::Wait { stream, on }),
        (0..streams).prop_map(|stream| Statement::Sync { stream }),
    ];
    prop_oneof![8 => op, 3 => user, u32::from(markers) => marker]
}

/// Steps of up to `most` statements on up to `streams` streams, including `signal`, `wait` and `sync`.
pub fn statements(streams: usize, most: usize) -> impl Strategy<Value = Vec<Statement>> {
    prop::collection::vec(statement(streams, true), 1..most)
}

/// Steps with operations only.
pub fn operations(streams: usize, most: usize) -> impl Strategy<Value = Vec<Statement>> {
    prop::collection::vec(statement(streams, false), 1..most)
}

/// Cycles of iterations with up to `most` statements each, which use different streams; some are empty.
pub fn turns(streams: usize, most: usize) -> impl Strategy<Value = Vec<Vec<Statement>>> {
    prop::collection::vec(prop::collection::vec(statement(streams, true), 0..most), 1..5)
}

/// The text of a program. `options` follow `step`. Invalid operations are left out.
pub fn text(statements: &[Statement], streams: usize, options: &str) -> String {
    // The step must contain something.
    format!("{}step{options} {{\n  on s[0] {{ nop() }}\n{}}}\n", declarations(streams), body(statements))
}

/// The text of a program with a cycle: each of `turns` is one iteration. The first is never empty, so that the program
/// does something.
pub fn turns_text(turns: &[Vec<Statement>], streams: usize, options: &str) -> String {
    let mut text = format!("{}step{options} {{\n", declarations(streams));
    for (turn, statements) in turns.iter().enumerate() {
        let nop = if turn == 0 { format!("  on s[{}] {{ nop() }}\n", streams - 1) } else { String::new() };
        text += &format!("  if iteration % {} == {turn} {{\n{nop}{}  }}\n", turns.len(), body(statements));
    }
    text + "}\n"
}

fn declarations(streams: usize) -> String {
    format!("stream s[{streams}]\nbuffer a, b, c, d: f32[8, 16]\n")
}

/// The statements of a step. Invalid operations are left out.
fn body(statements: &[Statement]) -> String {
    let mut text = String::new();
    // Earlier labels: all of them, and those with one row of scratch.
    let mut labels: Vec<usize> = Vec::new();
    let mut rows: Vec<usize> = Vec::new();
    for (number, statement) in statements.iter().enumerate() {
        match statement {
            Statement::Op { stream, shape, inputs, output, after } => {
                // An output in a buffer that is read too would have to be the same slice.
                if output.is_some_and(|(buffer, _)| inputs.iter().any(|(input, _)| input % 4 == buffer % 4)) {
                    continue;
                }
                let inputs: Vec<String> =
                    inputs.iter().map(|(buffer, place)| format!("0.5 * {}", shape.slice(*buffer, *place))).collect();
                let output = output.map(|(buffer, place)| format!(" -> {}", shape.slice(buffer, place)));
                let edges = |picks: &[usize]| {
                    let of = |pick: &usize| format!("t[{}]", labels[pick % labels.len()]);
                    match picks.is_empty() || labels.is_empty() {
                        true => String::new(),
                        false => format!(" after {}", picks.iter().map(of).collect::<Vec<_>>().join(", ")),
                    }
                };
                let operation =
                    format!("t[{number}]: map({} + 0.25{})", inputs.join(" + "), output.clone().unwrap_or_default());
                let [outer, inner] = after.each_ref().map(|picks| edges(picks));
                text += &match inner.is_empty() {
                    true => format!("  on s[{stream}]{outer} {{ {operation} }}\n"),
                    false => format!("  on s[{stream}]{outer} {{ on s[{stream}]{inner} {{ {operation} }} }}\n"),
                };
                if output.is_none() && matches!(shape, Shape::Row) {
                    rows.push(number);
                }
                labels.push(number);
            }
            Statement::Use { stream, source, output } => {
                if rows.is_empty() {
                    continue;
                }
                let source = rows[source % rows.len()];
                let output = Shape::Row.slice(output.0, output.1);
                text += &format!("  on s[{stream}] {{ t[{number}]: map(t[{source}] * 0.5 -> {output}) }}\n");
                labels.push(number);
            }
            Statement::Signal { stream } => {
                text += &format!("  on s[{stream}] {{ t[{number}]: signal() }}\n");
                labels.push(number);
            }
            Statement::Wait { stream, on } => {
                if !labels.is_empty() {
                    text += &format!("  on s[{stream}] {{ wait(t[{}]) }}\n", labels[on % labels.len()]);
                }
            }
            Statement::Sync { stream } => {
                let name = if stream % 2 == 0 { "sync" } else { "host_sync" };
                text += &format!("  on s[{stream}] {{ {name}() }}\n");
            }
        }
    }
    text
}

/// The same text with a different row of the buffers `a` and `b` in each iteration of the cycle.
pub fn turning(text: String, cycle: usize) -> String {
    if cycle == 1 {
        return text;
    }
    let rows = ["a", "b"].into_iter().flat_map(|buffer| (0..8).map(move |row| (buffer, row)));
    rows.fold(text, |text, (buffer, row)| {
        text.replace(&format!("{buffer}[{row}]"), &format!("{buffer}[{} + iteration % {cycle}]", row % 6))
    })
}

/// An operation of a step with declared order, which waits for most operations that it conflicts with.
#[derive(Clone, Debug)]
struct Waiting {
    stream: usize,
    shape: Shape,
    /// It reads from one buffer and writes to the next.
    reads: usize,
    place: usize,
    /// Bit `k` is set if it waits for the operation `k`.
    waits: u64,
}

impl Waiting {
    fn touches(&self, buffer: usize) -> bool {
        buffer == self.reads || buffer == self.writes()
    }

    fn writes(&self) -> usize {
        (self.reads + 1) % 3
    }

    /// True if they may conflict: one of them writes a buffer that both access.
    fn meets(&self, other: &Waiting) -> bool {
        self.stream != other.stream && (other.touches(self.writes()) || self.touches(other.writes()))
    }
}

/// Texts of steps with declared order: random markers and waits, or most of the necessary waits, for operations of this
/// iteration and of the previous one.
pub fn declared(streams: usize, most: usize, options: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let shape = prop_oneof![3 => Just(Shape::Row), 1 => Just(Shape::TwoRows), 1 => Just(Shape::Columns)];
    let waits = prop_oneof![8 => Just(u64::MAX), 1 => any::<u64>()];
    let op = (0..streams, shape, 0..3usize, 0..6usize, waits)
        .prop_map(|(stream, shape, reads, place, waits)| Waiting { stream, shape, reads, place, waits });
    let waiting = prop::collection::vec(op, 2..most).prop_map(move |ops| waiting_text(&ops, streams));
    let random = statements(streams, most).prop_map(move |statements| text(&statements, streams, ""));
    let texts = prop_oneof![2 => waiting, 1 => random];
    (texts, options).prop_map(|(text, options)| text.replacen("step {", &format!("step{options} {{"), 1))
}

fn waiting_text(ops: &[Waiting], streams: usize) -> String {
    let mut text = format!("stream s[{streams}]\nbuffer a, b, c: f32[8, 16]\nstep {{\n");
    for (number, op) in ops.iter().enumerate() {
        let others = ops.iter().enumerate().filter(|(other, _)| op.waits >> (other % 64) & 1 == 1);
        let labels = others.filter(|(_, other)| op.meets(other)).map(|(other, _)| match other < number {
            true => format!("t{other}"),
            false => format!("prev(t{other})"),
        });
        let labels: Vec<String> = labels.collect();
        let after = if labels.is_empty() { String::new() } else { format!(" after {}", labels.join(", ")) };
        let (from, to) = (op.shape.slice(op.reads, op.place), op.shape.slice(op.writes(), op.place / 2));
        text += &format!("  on s[{}]{after} {{ t{number}: map({from} + 1 -> {to}) }}\n", op.stream);
    }
    text + "}\n"
}
