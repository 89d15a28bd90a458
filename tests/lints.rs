//! Warnings about unnecessary waits, checked on random programs against definitions.

use std::collections::BTreeSet;

use aorta::base::{SourceMap, SrcSpan};
use aorta::model::Program;
use aorta::plan::{self, PlanWarning};
use miette::Diagnostic;
use proptest::prelude::*;

use crate::common;
use crate::common::oracle::{Set, Unrolled};
use crate::common::programs;

/// Everything that must precede each launch, by definition.
fn order(program: &Program) -> Vec<Set> {
    let unrolled = Unrolled::new(program, 1);
    let mut direct = unrolled.declared(None);
    for (direct, conflicts) in direct.iter_mut().zip(unrolled.conflicts()) {
        direct.extend(&conflicts);
    }
    let launched = unrolled.launched(0);
    let closed = unrolled.closed(&direct);
    closed.iter().enumerate().filter(|(node, _)| launched.contains(*node)).map(|(_, set)| set.only(&launched)).collect()
}

/// The text without some dependencies of its blocks, given by their offsets.
fn without(text: &str, removed: &BTreeSet<usize>) -> String {
    let mut shorter = String::new();
    let mut at = 0;
    for (word, _) in text.match_indices(" after ") {
        let first = word + " after ".len();
        let end = word + text[word..].find(" {").expect("a block follows");
        let kept: Vec<&str> =
            places(text, first).filter(|(at, _)| !removed.contains(at)).map(|(_, edge)| edge).collect();
        shorter += &text[at..word];
        if !kept.is_empty() {
            shorter += &format!(" after {}", kept.join(", "));
        }
        at = end;
    }
    shorter + &text[at..]
}

/// Dependencies of a block, each with its offset, from `first` on.
fn places(text: &str, first: usize) -> impl Iterator<Item = (usize, &str)> {
    let end = first + text[first..].find(" {").expect("a block follows");
    let mut at = first;
    text[first..end].split(", ").map(move |edge| {
        let place = at;
        at += edge.len() + ", ".len();
        (place, edge)
    })
}

/// The offsets of a text's warnings.
fn warned(text: &str) -> BTreeSet<usize> {
    let program = common::analyze(text).unwrap_or_else(|errors| panic!("{errors}"));
    let mut sources = SourceMap::new();
    sources.add("test.aorta", text).expect("a test is small");
    let warnings = plan::lint(&program, |span: SrcSpan| sources.text(span).to_owned());
    let place = |warning: &PlanWarning| warning.labels()?.next().map(|label| label.offset());
    warnings.iter().map(|warning| place(warning).expect("each has a place")).collect()
}

/// The offsets of all dependencies that can be removed one at a time without an effect.
fn needless(text: &str) -> BTreeSet<usize> {
    let whole = order_of(text);
    let all = text.match_indices(" after ").flat_map(|(word, after)| places(text, word + after.len()));
    let places = all.map(|(at, _)| at);
    places.filter(|&at| order_of(&without(text, &BTreeSet::from([at]))) == whole).collect()
}

fn order_of(text: &str) -> Vec<Set> {
    order(&common::analyze(text).unwrap_or_else(|errors| panic!("{errors}")))
}

/// A text whose streams are not members of a family, so that no member is chosen.
fn on_single_streams(statements: &[programs::Statement]) -> String {
    let text = programs::text(statements, 4, "").replacen("stream s[4]", "stream s0 stream s1 stream s2 stream s3", 1);
    (0..4).fold(text, |text, stream| text.replace(&format!("s[{stream}]"), &format!("s{stream}")))
}

proptest! {
    #![proptest_config(crate::common::properties(200))]

    /// Without markers, every unnecessary `after` is found: all reported ones can be removed at once, and no others.
    #[test]
    fn needless_waits_are_found(statements in programs::operations(4, 20)) {
        let text = on_single_streams(&statements);
        let warned = warned(&text);
        let shorter = without(&text, &warned);
        prop_assert!(order_of(&shorter) == order_of(&text), "{:?} {}", warned, text);
        prop_assert_eq!(needless(&shorter), BTreeSet::new(), "{}", text);
    }

    /// A `signal` stands for what is before it, and may be waited for unnecessarily: no report is wrong, though some
    /// are missing.
    #[test]
    fn needed_waits_are_not_blamed(statements in programs::statements(4, 20)) {
        let text = on_single_streams(&statements);
        let warned = warned(&text);
        prop_assert!(order_of(&without(&text, &warned)) == order_of(&text), "{:?} {}", warned, text);
    }

    /// A wait is not reported if only the choice of a family's member makes it unnecessary.
    #[test]
    fn waits_between_members_are_not_blamed(statements in programs::operations(4, 20)) {
        let text = programs::text(&statements, 4, "");
        prop_assert!(warned(&text).is_subset(&needless(&text)), "{}", text);
    }
}
