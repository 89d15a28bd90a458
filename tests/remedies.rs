//! Applying the suggestion of a race's message: no race is left, nothing else is wrong, and operations that could
//! overlap still do.

use aorta::base::SrcSpan;
use aorta::plan::{self, PlanError};
use proptest::prelude::*;

use crate::common;

/// A statement of the innermost loop, on a stream of its own.
#[derive(Clone, Debug)]
struct Stage {
    /// `c` or `c[i]`; empty where it has none.
    label: String,
    /// Its streams, which it takes in turn.
    streams: usize,
    /// Dependencies of its block.
    edges: Vec<String>,
}

/// A chain of stages over slices, each of which passes its results on through alternating buffers.
#[derive(Clone, Debug)]
struct Chain {
    /// Buffers between two stages.
    buffers: usize,
    /// Turns of the outer loop; 0 where there is none.
    outer: usize,
    inner: usize,
    /// The first value of the inner loop's variable.
    start: usize,
    reversed: bool,
    /// Whether iterations overlap.
    overlapping: bool,
    stages: Vec<Stage>,
}

impl Chain {
    fn text(&self, order: &str) -> String {
        let Chain { buffers, outer, inner, start, .. } = self;
        let slices = inner * outer.max(&1);
        // Index of the turn, from 0, that selects the data.
        let turn = match outer {
            0 => format!("i - {start}"),
            _ => format!("l * {inner} + i - {start}"),
        };
        let mut text = format!("buffer x, y: f32[{slices}, 8]\n");
        for (stage, about) in self.stages.iter().enumerate() {
            text += &format!("stream s{stage}[{}]\nbuffer b{stage}: f32[{buffers}, 8]\n", about.streams);
        }
        let sync = if self.overlapping { "end" } else { "iteration" };
        text += &format!("step(order: {order}, sync: {sync}) {{\n");
        if *outer > 0 {
            text += &format!("for l in 0..{outer} {{\n");
        }
        let range = format!("{start}..{}", start + inner);
        text += &match self.reversed {
            true => format!("for i in rev({range}) {{\n"),
            false => format!("for i in {range} {{\n"),
        };
        for (stage, about) in self.stages.iter().enumerate() {
            let after =
                if about.edges.is_empty() { String::new() } else { format!(" after {}", about.edges.join(", ")) };
            let label = if about.label.is_empty() { String::new() } else { format!("{}: ", about.label) };
            let input = if stage == 0 { format!("x[{turn}]") } else { format!("b{}[({turn}) % {buffers}]", stage - 1) };
            let output = if stage + 1 == self.stages.len() {
                format!("y[{turn}]")
            } else {
                format!("b{stage}[({turn}) % {buffers}]")
            };
            let streams = about.streams;
            text += &format!(
                "on s{stage}[i % {streams}]{after} {{ {label}map({input} + 1 -> {output}) }} // stage {stage}\n"
            );
        }
        text + if *outer > 0 { "}}}\n" } else { "}}\n" }
    }

    /// The stage on the line of a place.
    fn stage(&self, text: &str, at: SrcSpan) -> usize {
        let line = text[at.start as usize..].lines().next().expect("the place is in the text");
        line.rsplit_once("// stage ").and_then(|(_, number)| number.parse().ok()).expect("each line says its stage")
    }

    /// Applies the suggestion of a race's message.
    fn mend(&mut self, text: &str, first: SrcSpan, second: SrcSpan, missing: &str) {
        let (first, second) = (self.stage(text, first), self.stage(text, second));
        let quoted: Vec<&str> = missing.split('`').skip(1).step_by(2).collect();
        let label = quoted.iter().find_map(|quoted| quoted.strip_suffix(": map(…)"));
        if let Some(label) = label {
            self.stages[first].label = label.to_owned();
        }
        let edges = quoted.iter().find_map(|quoted| quoted.split_once("after ")).expect("something is waited for").1;
        let edges = edges.trim_end_matches(" { … }").to_owned();
        if !self.stages[second].edges.contains(&edges) {
            self.stages[second].edges.push(edges);
        }
    }

    /// Applies all suggestions. Returns true if there were any.
    fn mended(&mut self) -> bool {
        let text = self.text("declared");
        let program = common::analyze(&text).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        let Err(errors) = plan::build(&program) else { return false };
        for error in errors {
            let PlanError::Race { missing, first_at, second_at, .. } = &error else { panic!("{error:?}") };
            let span = |at: &miette::SourceSpan| SrcSpan::new(at.offset(), at.offset() + at.len());
            self.mend(&text, span(first_at), span(second_at), missing);
        }
        true
    }

    /// The longest chain of operations that wait for each other, in operations.
    fn longest(&self, order: &str) -> f64 {
        let (program, plan) = common::planned(&self.text(order));
        plan.steps[0].critical_path(&vec![1.0; program.cycle[0].ops.len()]).length
    }
}

fn chain() -> impl Strategy<Value = Chain> {
    let label = prop_oneof![Just(String::new()), Just("plain".to_owned()), Just("member".to_owned())];
    let stage = (label, 1usize..3);
    let stages = prop::collection::vec(stage, 2..4);
    let sizes = (1usize..6, 0usize..4, 1usize..9, 0usize..3);
    (sizes, any::<bool>(), any::<bool>(), stages).prop_map(|(sizes, reversed, overlapping, stages)| {
        let (buffers, outer, inner, start) = sizes;
        let stages = stages.into_iter().enumerate().map(|(stage, (label, streams))| Stage {
            label: match (label.as_str(), outer) {
                ("", _) => String::new(),
                ("plain", _) => format!("c{stage}"),
                (_, 0) => format!("c{stage}[i]"),
                _ => format!("c{stage}[l, i]"),
            },
            streams,
            edges: Vec::new(),
        });
        let stages = stages.collect();
        // Reversed loops are only supported without an enclosing loop.
        Chain { buffers, outer, inner, start, reversed: reversed && outer == 0, overlapping, stages }
    })
}

proptest! {
    #![proptest_config(crate::common::properties(150))]

    #[test]
    fn suggested_waits_remove_the_races(chain in chain()) {
        let mut mended = chain.clone();
        prop_assert!(mended.mended(), "nothing orders what hands data on\n{}", chain.text("declared"));
        prop_assert!(!mended.mended(), "one round of messages tells everything\n{}", mended.text("declared"));
        if !chain.overlapping {
            let text = mended.text("declared");
            prop_assert_eq!(mended.longest("declared"), mended.longest("data"), "it waits for too much\n{}", text);
        }
    }
}

/// The suggestions in a text's messages.
fn told(text: &str) -> Vec<String> {
    let program = common::analyze(text).unwrap_or_else(|errors| panic!("{errors}"));
    let errors = plan::build(&program).expect_err("it has races");
    let missing = errors.iter().map(|error| match error {
        PlanError::Race { missing, .. } => missing.to_string(),
        other => panic!("{other:?}"),
    });
    missing.collect()
}

#[test]
fn a_buffer_is_free_when_its_last_user_is_through() {
    for buffers in 2..6 {
        let text = format!(
            "stream load\nstream work\nbuffer x: f32[8, 64] in pinned\nbuffer b: f32[{buffers}, 64]\n\
             step(order: declared) {{ for i in 0..8 {{\n\
             on load {{ l: copy(x[i] -> b[i % {buffers}]) }}\n\
             on work after l {{ c[i]: map(b[i % {buffers}] * 2) }}\n}} }}"
        );
        let wait = format!("write `on load after c[i - {buffers}] when i > {} {{ … }}`", buffers - 1);
        assert_eq!(told(&text), [wait]);
    }
}

/// If the operations are in calls of their own, the suggestion waits for the other call.
#[test]
fn operations_of_calls_wait_for_calls() {
    let text = "stream load\nstream work\nbuffer x: f32[8, 64]\nbuffer b: f32[2, 64]\n\
                def load_one(x, b) { on load { copy(x -> b) } }\n\
                def use_one(b) { on work { map(b * 2) } }\n\
                step(order: declared) { for i in 0..8 {\n load_one(x[i], b[i % 2])\n use_one(b[i % 2])\n} }";
    assert_eq!(
        told(text),
        [
            "name the call, `done: load_one(…)`, and write `on work after done { … }` around `use_one(…)`",
            "name the call, `done_2[i]: use_one(…)`, and write `on load after done_2[i - 2] when i > 1 { … }` around \
             `load_one(…)`",
        ]
    );
    let mended = text
        .replace("load_one(x[i]", "on load after done_2[i - 2] when i > 1 { done: load_one(x[i]")
        .replace("use_one(b[i", "on work after done { done_2[i]: use_one(b[i")
        .replace("% 2])\n", "% 2]) }\n");
    common::planned(&mended);
}

/// Operations of one definition belong to several calls, of which only some are in a loop: each call has its own wait.
#[test]
fn each_call_of_a_definition_has_its_wait() {
    let text = |first: &str| {
        format!(
            "stream a\nstream b\nstream c\nbuffer x[3], z: f32[8]\ndef f(x -> y) {{ map(x * 2 -> y) }}\n\
             step(order: declared) {{\non {first} {{ f(x[0] -> z) }}\nfor i in 0..3 {{ on a {{ f(x[i] -> x[i]) }} }}\n\
             for i in 0..3 {{ on b {{ map(x[i] + z -> x[i]) }} }}\n}}"
        )
    };
    // On one stream, the wait for the last call is enough.
    let one = "name the call, `done[i]: f(…)`, and write `on b after done[i] { … }`";
    assert_eq!(told(&text("a")), [one]);
    let each = "name the call, `done: f(…)`, and write `on b after done { … }`; name the call, `done_2[i]: f(…)`, and \
                write `on b after done_2[i] { … }`";
    assert_eq!(told(&text("c")).last().map(String::as_str), Some(each));
    common::planned(&text("a").replace("f(x[i] ->", "done[i]: f(x[i] ->").replace("on b {", "on b after done[i] {"));
}

/// If no rule fits, the suggestion is to wait for all members.
#[test]
fn irregular_turns_wait_for_the_family() {
    let text = "stream load\nstream work\nbuffer x: f32[8, 64]\nbuffer b: f32[3, 64]\n\
                step(order: declared) { for i in 0..8 {\n\
                on load { l: copy(x[i] -> b[(i * i + i / 2 * (1 - i % 2)) % 3]) }\n\
                on work after l { c[i]: map(b[(i * i + i / 2 * (1 - i % 2)) % 3] * 2) }\n} }";
    assert_eq!(told(text), ["write `on load after c { … }`"]);
    common::planned(&text.replace("on load {", "on load after c {"));
}
