//! Reparsing an edited text gives the tree, locations and errors of parsing it as a whole, and parses only what the
//! edit touches.

use aorta::syntax::{self, SyntaxLimits, walk};
use proptest::prelude::*;

use crate::common::reparsed::{edit, reparse};
use crate::common::shipped;
use crate::format::{soup, trees, written};

/// Typical edits: a character, a part of a line, or the end of a text.
fn typed() -> impl Strategy<Value = String> {
    const SIGNS: [&str; 17] =
        ["", "", "\n", " ", "{", "}", "(", ")", "\"", "// ", "/", "x", "7", "if c { nop() }", "on s {", "-1", "]"];
    prop_oneof![
        2 => prop::sample::select(&SIGNS[..]).prop_map(str::to_owned),
        1 => soup::fragment(),
    ]
}

proptest! {
    #![proptest_config(crate::common::properties(100))]

    #[test]
    fn equals_a_full_parse(
        ast in trees::files(),
        seed in any::<u64>(),
        base in prop::sample::select(&[0u32, 1000][..]),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..12usize, typed()), 1..8),
    ) {
        let limits = SyntaxLimits::default();
        let mut text = written::written(&ast, seed);
        let mut ast = syntax::parse(&text, base, &limits).0;
        for (place, taken, new) in edits {
            let at = place.index(text.len() + 1);
            let before = text.clone();
            let edit = edit(&mut text, at, taken, &new);
            let again = reparse(ast, &edit, &text, base);
            prop_assert!(again.is_ok(), "{:?} of\n{}\ngives\n{}\n{:?}", edit, before, text, again.err());
            ast = again.unwrap_or_default();
        }
    }
}

/// Typing a character in a statement parses only that statement.
#[test]
fn an_edit_costs_one_piece() {
    let limits = SyntaxLimits::default();
    for file in shipped::all() {
        let (mut ast, errors) = syntax::parse(&file.text, 0, &limits);
        assert!(errors.is_empty(), "{}", file.path);
        let mut ends = Vec::new();
        walk::stmts(&ast, &mut |stmt| ends.push(stmt.span.end() as usize));
        ends.retain(|end| file.text[..*end].ends_with(')'));
        let mut text = file.text.clone();
        for end in ends.into_iter().rev().step_by(7) {
            let edit = edit(&mut text, end - 1, 0, " ");
            let again = syntax::reparse(ast, &edit, &text, 0, &limits);
            assert_eq!((again.errors.len(), again.parsed), (0, 1), "{} at {end}", file.path);
            ast = again.ast;
        }
    }
}

/// The text of a piece stays, but its block is removed, which makes it another piece.
#[test]
fn a_head_without_its_block_is_parsed_again() {
    let limits = SyntaxLimits::default();
    let mut text = "step { group { } }".to_owned();
    let before = syntax::parse(&text, 0, &limits).0;
    let edit = edit(&mut text, 13, 0, "]");
    reparse(before, &edit, &text, 0).expect("the same as parsing the whole");
}

#[test]
fn an_example_for_an_editor() {
    let limits = SyntaxLimits::default();
    let mut text = "step {\n  nop()\n  f: gemm(a, b) // a product\n}\n".to_owned();
    let (ast, _) = syntax::parse(&text, 0, &limits);
    assert_eq!(
        ast.comments.iter().map(|span| &text[span.start as usize..span.end() as usize]).collect::<Vec<_>>(),
        ["// a product"]
    );
    let at = text.find("a, b").expect("in the text");
    let edit = edit(&mut text, at, 1, "x[0]");
    let again = syntax::reparse(ast, &edit, &text, 0, &limits);
    assert_eq!(again.parsed, 1);
    assert_eq!(syntax::tree(&again.ast), syntax::tree(&syntax::parse(&text, 0, &limits).0));
}
