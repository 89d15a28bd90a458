//! The forms of a plan: each has all of the document, and a difference of two plans shows what changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use aorta::config::Profile;
use aorta::measure::record::Workload;
use aorta::model::Program;
use aorta::plan::{self, Plan};
use aorta::report::plan::{self as report, Hazard, Iteration, PlanDocument, PlannedDependency, Reason};
use aorta::schedule::{self, ScheduleOptions, Topology};
use proptest::prelude::*;

use crate::common::shipped::{self, Shipped};
use crate::common::{self, effort};

/// Every kind of edge, in a cycle of two iterations that overlap.
const EVERYTHING: &str = r#"
    param n = 1024
    stream a
    stream b(priority: high)
    stream c[2]
    buffer x, y: f32[n]
    buffer z[2]: f32[n]
    step(sync: end, depth: 2) {
      on a { first: map(x + 1 -> x)  e: signal() }
      phase reading { on b { wait(e)  read: map(x[0..512] * 2 -> y[0..512]) } }
      on c[0] after read { alone: spin(2us)  carried: map(z[0] + 1 -> z[1]) }
      on c[1] after prev(last) { nop()  map(y + z[iteration % 2] -> z[iteration % 2]) }
      on a { sync()  last: fill(0 -> x) }
    }
"#;

/// The document of a text, with at most so many real streams.
fn document_of(text: &str, streams: Option<u32>) -> PlanDocument {
    document_of_plan(&common::planned(text), streams)
}

fn document_of_plan((program, plan): &(Program, Plan), streams: Option<u32>) -> PlanDocument {
    let profile = Profile::named("h200").expect("embedded");
    let topology = Topology::of(&profile);
    let schedule = schedule::place(program, plan, topology, &ScheduleOptions { streams, ..ScheduleOptions::default() });
    let workload = Workload {
        name: "test.aorta".to_owned(),
        summary: String::new(),
        origin: "test.aorta".to_owned(),
        sha256: String::new(),
        category: None,
        preset: None,
        params: program.params.iter().cloned().collect(),
    };
    // The offset in the text stands for line and column.
    let places = |span: aorta::base::SrcSpan| format!("test.aorta:{}", span.start);
    let schedule = &schedule;
    report::build(report::DocumentInputs {
        fusion: None,
        workload,
        program,
        plan,
        schedule,
        rank: program.rank,
        profile: &profile,
        places: &places,
    })
}

fn document(text: &str) -> PlanDocument {
    document_of(text, None)
}

/// The text and the plan of the shipped files that are due and of [`EVERYTHING`], made once for all tests of this file.
fn shipped_plans() -> &'static [(String, (Program, Plan))] {
    static ALL: OnceLock<Vec<(String, (Program, Plan))>> = OnceLock::new();
    ALL.get_or_init(|| {
        let of_file = |file: Shipped| {
            let planned = file.program(None, &[]);
            (file.text, planned)
        };
        let everything = (EVERYTHING.to_owned(), common::planned(EVERYTHING));
        effort::due(shipped::all()).map(of_file).chain([everything]).collect()
    })
}

/// The text and the document of each of [`shipped_plans`].
fn shipped_documents() -> &'static [(String, PlanDocument)] {
    static ALL: OnceLock<Vec<(String, PlanDocument)>> = OnceLock::new();
    ALL.get_or_init(|| {
        let of_plan = |(text, planned): &(String, _)| (text.clone(), document_of_plan(planned, None));
        shipped_plans().iter().map(of_plan).collect()
    })
}

fn text(document: &PlanDocument) -> String {
    let mut out = Vec::new();
    report::text(document, &mut out).expect("memory takes everything");
    String::from_utf8(out).expect("it is text")
}

fn json(document: &PlanDocument) -> String {
    let mut out = Vec::new();
    report::json(document, &mut out).expect("memory takes everything");
    String::from_utf8(out).expect("it is text")
}

fn dot(document: &PlanDocument) -> String {
    let mut out = Vec::new();
    report::dot(document, &mut out).expect("memory takes everything");
    String::from_utf8(out).expect("it is text")
}

fn mermaid(document: &PlanDocument) -> String {
    let mut out = Vec::new();
    report::mermaid(document, &mut out).expect("memory takes everything");
    String::from_utf8(out).expect("it is text")
}

#[test]
fn every_form_of_every_kind_of_edge() {
    let document = document(EVERYTHING);
    insta::assert_snapshot!("everything_text", text(&document));
    insta::assert_snapshot!("everything_json", json(&document).replace(env!("CARGO_PKG_VERSION"), "[version]"));
    insta::assert_snapshot!("everything_dot", dot(&document));
    insta::assert_snapshot!("everything_mermaid", mermaid(&document));
    let kinds: BTreeSet<&str> = document.iterations.iter().flat_map(|iteration| &iteration.edges).map(kind).collect();
    assert_eq!(kinds, BTreeSet::from(["after", "after before", "data", "data before", "stream", "sync", "wait"]));
}

fn kind(edge: &PlannedDependency) -> &'static str {
    match (&edge.reason, edge.distance) {
        (Reason::Stream, _) => "stream",
        (Reason::Sync, _) => "sync",
        (Reason::Wait { .. }, _) => "wait",
        (Reason::After { .. }, 0) => "after",
        (Reason::After { .. }, _) => "after before",
        (Reason::Data { .. }, 0) => "data",
        (Reason::Data { .. }, _) => "data before",
    }
}

/// Declared streams on fewer real ones, and 12 streams on 8 queues.
#[test]
fn streams_show_their_real_stream_and_queue() {
    let families = "stream own  stream s[4]  buffer x[4]: f32[64]
        step { on own { nop() }  for i in 0..4 { on s[i] { map(x[i] + 1 -> x[i]) } } }";
    let document = document_of(families, Some(2));
    let said = text(&document);
    assert!(said.contains("\ns[0]           normal      1           4  s[0], s[1], s[2], s[3]\n"), "{said}");
    assert!(said.contains("\n2 streams for 5 declared, "), "{said}");
    assert!(said.contains("\n8 hardware queues, 2 used, none shared\n"), "{said}");
    let many = "stream s[12]  step { for i in 0..12 { on s[i] { nop() } } }";
    let said = text(&self::document(many));
    assert!(said.contains("\n8 hardware queues, 8 used, 4 shared: "), "{said}");
}

/// An edge of the plan.
type Known = (u32, u32, u32, String);

fn known(program: &aorta::model::Program, plan: &plan::StepPlan, op: aorta::base::OpId) -> Vec<Known> {
    let why = |reason: plan::Reason| match reason {
        plan::Reason::Data { hazard, view, source } => {
            format!("{hazard:?} {} {}", program.view_text(view), program.view_text(source))
        }
        plan::Reason::Stream => "stream".to_owned(),
        plan::Reason::Sync => "sync".to_owned(),
        plan::Reason::After { .. } => "after".to_owned(),
    };
    let own = plan.incoming(op).map(|edge| (0, edge.from.0, op.0, why(edge.reason)));
    let across = plan.across.iter().filter(|edge| edge.to == op);
    own.chain(across.map(|edge| (edge.distance, edge.from.0, op.0, why(edge.reason)))).collect()
}

#[test]
fn the_document_has_every_edge() {
    for ((_, (program, plan)), (_, document)) in shipped_plans().iter().zip(shipped_documents()) {
        for ((step, graph), iteration) in program.cycle.iter().zip(&plan.steps).zip(&document.iterations) {
            let expected: BTreeSet<Known> = step.ids().flat_map(|op| known(program, graph, op)).collect();
            let why = |reason: &Reason| match reason {
                Reason::Data { hazard, slice, from_slice } => {
                    let hazard = match hazard {
                        Hazard::ReadAfterWrite => "ReadAfterWrite",
                        Hazard::WriteAfterRead => "WriteAfterRead",
                        Hazard::WriteAfterWrite => "WriteAfterWrite",
                    };
                    format!("{hazard} {slice} {from_slice}")
                }
                Reason::Stream => "stream".to_owned(),
                Reason::Sync => "sync".to_owned(),
                Reason::After { .. } | Reason::Wait { .. } => "after".to_owned(),
            };
            let found = iteration.edges.iter().map(|edge| (edge.distance, edge.from, edge.to, why(&edge.reason)));
            assert_eq!(found.collect::<BTreeSet<_>>(), expected);
        }
    }
}

/// A data dependency shows slices that its two operations access themselves.
#[test]
fn slices_of_an_edge_are_those_of_its_ends() {
    for (_, document) in shipped_documents() {
        let cycle = document.iterations.len();
        for (index, iteration) in document.iterations.iter().enumerate() {
            for edge in &iteration.edges {
                let Reason::Data { hazard, slice, from_slice } = &edge.reason else { continue };
                let source = (index + cycle - edge.distance as usize % cycle) % cycle;
                let from = &document.iterations[source].operations[edge.from as usize];
                let to = &iteration.operations[edge.to as usize];
                let (earlier, later) = match hazard {
                    Hazard::ReadAfterWrite => (&from.outputs, &to.inputs),
                    Hazard::WriteAfterRead => (&from.inputs, &to.outputs),
                    Hazard::WriteAfterWrite => (&from.outputs, &to.outputs),
                };
                assert!(earlier.iter().any(|operand| operand.slice == *from_slice), "{from:?}\n{edge:?}");
                assert!(later.iter().any(|operand| operand.slice == *slice), "{to:?}\n{edge:?}");
            }
        }
    }
}

/// The slots, and the blocks around them.
fn parts(document: &PlanDocument) -> impl Iterator<Item = &Iteration> {
    document.setup.iter().chain(&document.iterations).chain(&document.teardown)
}

#[test]
fn text_has_a_line_for_every_edge() {
    for (source, document) in shipped_documents() {
        let said = text(document);
        let edges = parts(document).flat_map(|part| &part.edges);
        let (stream, others): (Vec<&PlannedDependency>, Vec<&PlannedDependency>) =
            edges.partition(|edge| edge.reason == Reason::Stream);
        assert_eq!(said.matches("\n      waits for #").count(), others.len(), "{source}");
        let behind = |line: &&str| {
            line.starts_with('#') && line.split_whitespace().nth(2).is_some_and(|word| word.starts_with('#'))
        };
        assert_eq!(said.lines().filter(behind).count(), stream.len(), "{source}");
    }
}

#[test]
fn json_says_everything() {
    for (_, document) in effort::chosen(shipped_documents()) {
        let written = json(document);
        let read = report::parse(&written).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(json(&read), written);
        assert_eq!(text(&read), text(document));
        assert_eq!(report::diff(&read, document), None);
    }
}

#[test]
fn json_that_is_not_a_plan_is_refused() {
    let good =
        json(&document("stream a stream b buffer x: f32[4] step { on a { fill(1 -> x) } on b { fill(2 -> x) } }"));
    let refused = |from: &str, to: &str| {
        let broken = good.replacen(from, to, 1);
        assert_ne!(broken, good, "{from} is not in it");
        report::parse(&broken).expect_err("it is broken")
    };
    assert_eq!(
        refused("aorta.plan/1", "aorta.plan/2"),
        "it has the schema `aorta.plan/2`, and this version reads `aorta.plan/1`"
    );
    assert_eq!(refused("aorta.plan/1", "aorta.run/1"), "it is the record of a run");
    assert!(refused("\"schema\"", "\"scheme\"").starts_with("it has no `schema`"));
    assert!(refused("{", "").starts_with("it is no JSON of a plan: "));
    let without = refused("\"waits\"", "\"wants\"");
    assert!(without.starts_with("it is damaged: line ") && without.ends_with("missing field `waits`"), "{without}");
    assert_eq!(refused("\"id\": 1", "\"id\": 7"), "it is damaged: operation 1 has the number 7");
    assert_eq!(refused("\"lane\": 1", "\"lane\": 2"), "it is damaged: operation 1 is on stream 2, which is not there");
    let edge = "it is damaged: no operation is at an end of the edge from 9 to 1";
    assert_eq!(refused("\"from\": 0", "\"from\": 9"), edge);
    let path = refused("\"operations\": [\n          0", "\"operations\": [\n          9");
    assert_eq!(path, "it is damaged: the critical path has operation 9, which is not there");
}

/// Statements of a DOT file with a line of their own: nodes, edges and subgraphs, with their labels.
struct Drawing {
    nodes: BTreeMap<String, String>,
    edges: Vec<(String, String, String)>,
    groups: usize,
}

fn parse_dot(text: &str) -> Drawing {
    let mut drawing = Drawing { nodes: BTreeMap::new(), edges: Vec::new(), groups: 0 };
    let mut open = 0i32;
    for line in text.lines().map(str::trim) {
        open += line.matches(" {").count() as i32 - i32::from(line == "}");
        let attributes = || line.split_once(" [").expect("it has attributes").1.trim_end_matches("];").to_owned();
        let first = line.split(' ').next().unwrap_or("");
        if line.starts_with("subgraph ") {
            drawing.groups += 1;
        } else if let Some((from, to)) = line.split_once(" [").and_then(|(ends, _)| ends.split_once(" -> ")) {
            drawing.edges.push((from.to_owned(), to.to_owned(), attributes()));
        } else if first.rsplit_once('n').is_some_and(|(_, number)| number.parse::<u32>().is_ok()) {
            assert!(drawing.nodes.insert(first.to_owned(), attributes()).is_none(), "{first} stands there twice");
        }
    }
    assert_eq!(open, 0, "braces pair up");
    drawing
}

fn parse_mermaid(text: &str) -> Drawing {
    let mut drawing = Drawing { nodes: BTreeMap::new(), edges: Vec::new(), groups: 0 };
    let mut open = 0;
    for line in text.lines().map(str::trim) {
        let words: Vec<&str> = line.split(' ').collect();
        if line.starts_with("subgraph ") {
            (drawing.groups, open) = (drawing.groups + 1, open + 1);
        } else if line == "end" {
            open -= 1;
        } else if words.get(1).is_some_and(|word| word.starts_with("-->") || word.starts_with("-.->")) {
            drawing.edges.push((words[0].to_owned(), words[words.len() - 1].to_owned(), line.to_owned()));
        } else if let Some((node, label)) = line.split_once("[\"") {
            assert!(drawing.nodes.insert(node.to_owned(), label.to_owned()).is_none(), "{node} stands there twice");
        }
    }
    assert_eq!(open, 0, "groups are closed");
    drawing
}

#[test]
fn drawings_have_every_operation_and_edge() {
    for (_, document) in effort::chosen(shipped_documents()) {
        let count = parts(document).count();
        let used = parts(document)
            .map(|part| part.operations.iter().map(|operation| &*operation.stream).collect::<BTreeSet<_>>().len());
        let groups = used.sum::<usize>() + if count > 1 { count } else { 0 };
        let critical: usize = parts(document).map(|part| part.critical_path.operations.len().saturating_sub(1)).sum();
        let dot = parse_dot(&dot(document));
        let drawn = mermaid(document);
        let mermaid = parse_mermaid(&drawn);
        for drawing in [&dot, &mermaid] {
            assert_eq!(drawing.nodes.len(), parts(document).map(|part| part.operations.len()).sum::<usize>());
            assert_eq!(drawing.edges.len(), parts(document).map(|part| part.edges.len()).sum::<usize>());
            assert_eq!(drawing.groups, groups);
            for (from, to, _) in &drawing.edges {
                assert!(drawing.nodes.contains_key(from) && drawing.nodes.contains_key(to), "{from} -> {to}");
            }
        }
        assert_eq!(dot.edges.iter().filter(|(.., attributes)| attributes.contains("penwidth")).count(), critical);
        let styled = drawn.lines().find_map(|line| line.strip_prefix("  linkStyle "));
        let styled = styled.map_or(0, |line| line.split(' ').next().expect("numbers").split(',').count());
        assert_eq!(styled, critical);
    }
}

#[test]
fn labels_cannot_break_a_drawing() {
    let mut document = document("step { a: nop() }");
    document.workload.name = "\"quoted\" \\back;slash\\ <b>#1</b>\n.aorta".to_owned();
    let dot = dot(&document);
    assert!(dot.contains(r#"label="\"quoted\" \\back;slash\\ <b>#1</b>\n.aorta\ntimes"#), "{dot}");
    let drawn = mermaid(&document);
    assert!(drawn.starts_with("---\ntitle: \"\\\"quoted\\\" \\\\back;slash\\\\ <b>#1</b>\\n.aorta, times"), "{drawn}");
    document.iterations[0].operations[0].label = Some("x\"]; <script> `a` #quot;".into());
    let drawn = mermaid(&document);
    assert!(drawn.contains("n0[\"#35;0 x#34;]#59; #60;script#62; #96;a#96; #35;quot#59;: nop<br/>"), "{drawn}");
}

fn difference(a: &str, b: &str) -> String {
    report::diff(&document(a), &document(b)).unwrap_or_else(|| panic!("{a}\nand\n{b}\nare said to be the same"))
}

#[test]
fn equal_plans_do_not_differ() {
    // A comment that moves every line, other names, and an unused parameter are not differences.
    let moved = EVERYTHING.replace("param n = 1024", "// a comment\n    param n = 1024\n    param unused = 3");
    let [a, mut b] = [EVERYTHING, &moved].map(document);
    b.workload.name = "other.aorta".to_owned();
    assert_eq!(report::diff(&a, &b), None);
}

#[test]
fn differences_are_reported() {
    let base = "stream a stream b buffer x, y: f32[64]
        step { on a { first: fill(1 -> x) nop() } on b { last: map(x + 1 -> y) } }";
    insta::assert_snapshot!("diff_added", difference(base, &base.replace("nop()", "nop() fill(3 -> y)")));
    insta::assert_snapshot!("diff_moved", difference(base, &base.replace("on b { last", "on a { last")));
    insta::assert_snapshot!("diff_shape", difference(base, &base.replace("f32[64]", "f32[128]")));
    insta::assert_snapshot!("diff_after", difference(base, &base.replace("on b {", "on b after first {")));
    insta::assert_snapshot!("diff_iterations", difference(base, &base.replace("step", "step(sync: end, depth: 2)")));
    let cycle = base.replace("nop()", "nop() if iteration % 2 == 1 { spin(1us) }");
    insta::assert_snapshot!("diff_cycle", difference(base, &cycle));
    let folded = [None, Some(1)].map(|streams| document_of(base, streams));
    insta::assert_snapshot!("diff_folded", report::diff(&folded[0], &folded[1]).expect("another stream"));
}

#[test]
fn operations_are_matched_by_name_and_not_by_number() {
    let a = "stream s buffer x: f32[64] step { on s { a: fill(1 -> x) b: fill(2 -> x) } }";
    let told = difference(a, &a.replace("a: fill", "new: nop() a: fill"));
    let operations: Vec<&str> = told.lines().skip_while(|line| *line != "operations").skip(1).collect();
    assert!(operations.starts_with(&["+ #0 new: nop(), 400 ns on s", ""]), "{told}");
}

proptest! {
    #![proptest_config(crate::common::properties(100))]

    /// A document is unchanged by writing and reading it, and differences are symmetric.
    #[test]
    fn differences_go_both_ways(
        a in common::programs::statements(4, 12),
        b in common::programs::statements(4, 12),
        depth in 1..3u32,
    ) {
        let options = format!("(sync: end, depth: {depth})");
        let [a, b] = [a, b].map(|statements| document(&common::programs::text(&statements, 4, &options)));
        let read = report::parse(&json(&a)).map_err(TestCaseError::fail)?;
        prop_assert_eq!(report::diff(&a, &read), None);
        let sorted = |text: Option<String>, plus: char| {
            let text = text?;
            let mut lines: Vec<String> = text.lines().filter(|line| line.starts_with(plus)).map(|line| line[1..].to_owned()).collect();
            lines.sort();
            Some(lines)
        };
        prop_assert_eq!(sorted(report::diff(&a, &b), '-'), sorted(report::diff(&b, &a), '+'));
        prop_assert_eq!(sorted(report::diff(&a, &b), '+'), sorted(report::diff(&b, &a), '-'));
    }
}
