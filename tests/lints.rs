//! What is called needless is needless: warnings on random programs, against definitions.

mod common;

use std::collections::BTreeSet;

use aorta::base::{SourceMap, SrcSpan};
use aorta::model::Program;
use aorta::plan::{self, PlanWarning};
use common::oracle::{Set, Unrolled};
use common::programs;
use miette::Diagnostic;
use proptest::prelude::*;

/// Everything that has to come before each launch, by definition.
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

/// The places of all `after` in a text, each with the text without it.
fn without_each(text: &str) -> Vec<(usize, String)> {
    let afters = text.match_indices(" after ").map(|(at, word)| {
        let end = at + text[at..].find(" {").expect("a block follows");
        (at + word.len(), format!("{}{}", &text[..at], &text[end..]))
    });
    afters.collect()
}

/// Where the warnings of a text point.
fn warned(text: &str) -> BTreeSet<usize> {
    let program = common::analyze(text).unwrap_or_else(|errors| panic!("{errors}"));
    let mut sources = SourceMap::new();
    sources.add("test.aorta", text).expect("a test is small");
    let warnings = plan::lint(&program, |span: SrcSpan| sources.text(span).to_owned());
    let place = |warning: &PlanWarning| warning.labels()?.next().map(|label| label.offset());
    warnings.iter().map(|warning| place(warning).expect("each has a place")).collect()
}

fn needless(text: &str) -> BTreeSet<usize> {
    let whole = order(&common::analyze(text).unwrap_or_else(|errors| panic!("{errors}")));
    let same = |shorter: &str| order(&common::analyze(shorter).unwrap_or_else(|errors| panic!("{errors}"))) == whole;
    without_each(text).into_iter().filter(|(_, shorter)| same(shorter)).map(|(at, _)| at).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Without markers, every needless `after` is found and no other.
    #[test]
    fn needless_waits_are_found(statements in programs::operations(4, 20)) {
        let text = programs::text(&statements, 4, "");
        prop_assert_eq!(warned(&text), needless(&text), "{}", text);
    }

    /// A `signal` stands for what is before it, and may be waited for in vain: none is wrong, though some stay silent.
    #[test]
    fn needed_waits_are_not_blamed(statements in programs::statements(4, 20)) {
        let text = programs::text(&statements, 4, "");
        let (warned, needless) = (warned(&text), needless(&text));
        prop_assert!(warned.is_subset(&needless), "{:?} {:?}\n{}", warned, needless, text);
    }
}
