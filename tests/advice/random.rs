//! Advice about random programs, followed by changing their text: the change is legal, computes the same, and saves as
//! much of the operations' modelled time as the advice says.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::{advice_on, assert_close, modelled, of_code, results, uncached};

/// A statement of a random step. Sources are numbers of earlier values, or of buffers.
#[derive(Clone, Copy, Debug)]
enum Statement {
    Copy(usize),
    Turn(usize),
    Cast(usize, bool),
    Map(usize, usize),
    Product(usize, usize),
    Softmax(usize),
    /// Overwrites a buffer.
    Store(usize, usize),
}

/// Buffers of every random program, with their types. The last one is never written.
const BUFFERS: [(&str, &str); 4] = [("a", "f32"), ("b", "bf16"), ("c", "f32"), ("d", "bf16")];

/// A random step.
#[derive(Clone, Debug)]
struct Steps {
    statements: Vec<(usize, Statement)>,
    streams: usize,
}

fn steps() -> impl Strategy<Value = Steps> {
    let at = 0..64usize;
    let statement = prop_oneof![
        3 => at.clone().prop_map(Statement::Copy),
        1 => at.clone().prop_map(Statement::Turn),
        3 => (at.clone(), any::<bool>()).prop_map(|(from, wide)| Statement::Cast(from, wide)),
        3 => (at.clone(), at.clone()).prop_map(|(a, b)| Statement::Map(a, b)),
        2 => (at.clone(), at.clone()).prop_map(|(a, b)| Statement::Product(a, b)),
        1 => at.clone().prop_map(Statement::Softmax),
        2 => (at.clone(), 0..3usize).prop_map(|(from, to)| Statement::Store(from, to)),
    ];
    (1..3usize).prop_flat_map(move |streams| {
        let statements = prop::collection::vec((0..streams, statement.clone()), 3..14);
        statements.prop_map(move |statements| Steps { statements, streams })
    })
}

/// A statement of a text: the label that it defines, its stream, its source text, and the names of what it reads.
#[derive(Clone, Debug)]
struct Line {
    label: Option<String>,
    stream: usize,
    /// The call, with `$0`, `$1`, … in place of what it reads.
    call: String,
    reads: Vec<String>,
}

impl Steps {
    /// The lines of the text. A value is read by later ones, and each that nobody reads is stored at the end.
    fn lines(&self) -> Vec<Line> {
        let mut values: Vec<(String, &str)> =
            BUFFERS.iter().map(|(name, dtype)| ((*name).to_owned(), *dtype)).collect();
        let mut lines = Vec::new();
        for (number, &(stream, statement)) in self.statements.iter().enumerate() {
            let name = format!("t{number}");
            let pick = |at: usize| values[values.len() - 1 - at % values.len()].clone();
            let (call, reads, made): (String, Vec<String>, Option<&str>) = match statement {
                Statement::Copy(at) => {
                    let (from, dtype) = pick(at);
                    (format!("copy($0 -> {name}_{dtype})"), vec![from], Some(dtype))
                }
                Statement::Turn(at) => {
                    let (from, dtype) = pick(at);
                    ("transpose($0)".to_owned(), vec![from], Some(dtype))
                }
                Statement::Cast(at, wide) => {
                    let (from, _) = pick(at);
                    let to = if wide { "f32" } else { "bf16" };
                    (format!("cast($0, to: {to})"), vec![from], Some(to))
                }
                Statement::Map(a, b) => {
                    let ((a, left), (b, right)) = (pick(a), pick(b));
                    let dtype = if left == right { left } else { "f32" };
                    ("map($0 * 0.5 + $1)".to_owned(), vec![a, b], Some(dtype))
                }
                Statement::Product(a, b) => {
                    let ((a, left), (b, right)) = (pick(a), pick(b));
                    if left != right {
                        continue;
                    }
                    ("gemm($0, $1)".to_owned(), vec![a, b], Some(left))
                }
                Statement::Softmax(at) => {
                    let (from, dtype) = pick(at);
                    ("softmax($0)".to_owned(), vec![from], Some(dtype))
                }
                Statement::Store(at, to) => {
                    let (from, _) = pick(at);
                    let to = BUFFERS[to].0;
                    if from == to {
                        continue;
                    }
                    (format!("map($0 * 0.25 -> {to})"), vec![from], None)
                }
            };
            let label = made.map(|_| name.clone());
            lines.push(Line { label, stream, call, reads });
            if let Some(dtype) = made {
                values.push((name, dtype));
            }
        }
        let unread = |value: &&(String, &str)| {
            value.0.starts_with('t') && !lines.iter().any(|line: &Line| line.reads.contains(&value.0))
        };
        let stored: Vec<String> = values.iter().filter(unread).map(|(name, _)| name.clone()).collect();
        for name in stored {
            lines.push(Line { label: None, stream: 0, call: "map(o * 0.5 + $0 -> o)".to_owned(), reads: vec![name] });
        }
        lines
    }

    /// The text of lines, and the offset of each.
    fn text(&self, lines: &[Line], size: u32) -> (String, Vec<usize>) {
        let mut text = format!("stream s[{}]\nbuffer o: f32[{size}, {size}] = zeros\n", self.streams);
        for (name, dtype) in BUFFERS {
            let _ = writeln!(text, "buffer {name}: {dtype}[{size}, {size}] = random(1, 0.1)");
        }
        for number in 0..self.statements.len() {
            for dtype in ["f32", "bf16"] {
                let _ = writeln!(text, "buffer t{number}_{dtype}: {dtype}[{size}, {size}]");
            }
        }
        text += "step {\n  on s[0] { nop() }\n";
        let mut places = Vec::new();
        for line in lines {
            let _ = write!(text, "  on s[{}] {{ ", line.stream);
            if let Some(label) = &line.label {
                let _ = write!(text, "{label}: ");
            }
            places.push(text.len());
            let reads = line.reads.iter().enumerate();
            text += &reads.fold(line.call.clone(), |call, (at, name)| call.replace(&format!("${at}"), name));
            text += " }\n";
        }
        (text + "}\n", places)
    }
}

/// The lines without the one at `place`, whose readers read `instead`.
fn without(lines: &[Line], place: usize, instead: &str) -> Vec<Line> {
    let removed = lines[place].label.clone().expect("a value has a label");
    let mut changed = lines.to_vec();
    changed.remove(place);
    for read in changed.iter_mut().flat_map(|line| &mut line.reads).filter(|read| **read == removed) {
        instead.clone_into(read);
    }
    changed
}

/// The lines after following advice about the statement at `place`; `None` for advice that needs another text.
fn followed(lines: &[Line], place: usize, message: &str) -> Option<Vec<Line>> {
    let source = lines[place].reads[0].clone();
    if message.contains("casts back to") {
        let first = lines.iter().position(|line| line.label.as_ref() == Some(&source))?;
        let original = lines[first].reads[0].clone();
        let changed = without(lines, place, &original);
        // Without the cast back, nobody may read the first cast any more.
        let read = changed.iter().any(|line| line.reads.contains(&source));
        return Some(if read { changed } else { without(&changed, first, &original) });
    }
    let in_place = ["which is the same type", "can read where they are", "can read as"];
    in_place.iter().any(|part| message.contains(part)).then(|| without(lines, place, &source))
}

proptest! {
    #![proptest_config(crate::common::properties(40))]

    #[test]
    fn advice_about_random_programs_is_right(steps in steps()) {
        let lines = steps.lines();
        let (before, places) = steps.text(&lines, 256);
        let small = steps.text(&lines, 8).0;
        let device = uncached();
        let all = advice_on(&before, &device);
        for one in of_code(&all, "needless_copy").into_iter().chain(of_code(&all, "needless_cast")) {
            let at = one.places[0].0.start as usize;
            let place = places.iter().position(|place| *place == at).expect("advice is about a statement");
            let Some(mut changed) = followed(&lines, place, &one.message) else { continue };
            // Casts of both factors of a product go together.
            for (span, _) in one.places[1..].iter().filter(|_| one.message.contains("can read as")) {
                let other = places.iter().position(|place| *place == span.start as usize).expect("a statement");
                let label = lines[other].label.clone();
                let now = changed.iter().position(|line| line.label == label).expect("another line");
                let source = changed[now].reads[0].clone();
                changed = without(&changed, now, &source);
            }
            let saved = modelled(&before, &device) - modelled(&steps.text(&changed, 256).0, &device);
            let said = one.gain.most_ns.0 as f64;
            // An operation that then reads one value twice moves it once, which the advice does not know.
            let twice = |line: &Line| line.reads.len() == 2 && line.reads[0] == line.reads[1];
            let most = if changed.iter().any(twice) { f64::INFINITY } else { said };
            prop_assert!((said - 2.0..=most + 2.0).contains(&saved), "{}\n{:?}\n{}", before, one, saved);
            let after = steps.text(&changed, 8).0;
            for buffer in ["a", "b", "c", "o"] {
                assert_close(&results(&small, buffer), &results(&after, buffer), 1e-6, &format!("{small}\n{after}\n{one:?}"));
            }
        }
    }
}
