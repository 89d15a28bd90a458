//! The formatter: it loses nothing of any text, keeps the meaning of a valid one, and is idempotent; and everything
//! shipped is formatted.

mod shipped;
pub mod soup;
pub mod trees;
pub mod written;

use aorta::syntax::{self, Formatted, SyntaxLimits};
use proptest::prelude::*;

fn format(text: &str) -> Formatted {
    syntax::format(text, &SyntaxLimits::default())
}

/// The parts of a text that a formatter must not change: everything except white space, commas, and the byte order mark.
fn essence(text: &str) -> String {
    let text = text.trim_start_matches([' ', '\t', '\r', '\n', '\u{feff}']);
    text.chars().filter(|c| !matches!(c, ' ' | '\t' | '\r' | '\n' | ',')).collect()
}

/// Formats a text and checks the properties of every result.
#[track_caller]
fn formatted(text: &str) -> String {
    let once = format(text).text;
    assert_eq!(essence(text), essence(&once), "something was lost\n--- text\n{text}\n--- formatted\n{once}");
    let twice = format(&once).text;
    assert_eq!(once, twice, "formatting twice is not the same as once\n--- text\n{text}\n--- formatted\n{once}");
    once
}

/// Each case is a badly written text; its snapshot shows it beside its formatted form.
#[test]
fn cases() {
    let cases = shipped::below(&["tests/format/cases"], "aorta");
    assert!(!cases.is_empty());
    for (path, text) in cases {
        let errors = format(&text).errors.len();
        let says = if errors == 0 { String::new() } else { format!(" ({errors} errors)") };
        let shown = format!("{text}\n--- formatted{says} ---\n\n{}", formatted(&text));
        let suffix = path.rsplit('/').next().expect("a path has a name");
        insta::with_settings!({
            snapshot_path => "../snapshots", omit_expression => true, snapshot_suffix => suffix, input_file => &path
        }, { insta::assert_snapshot!(shown) });
    }
}

fn tree(text: &str) -> String {
    let (ast, errors) = syntax::parse(text, 0, &SyntaxLimits::default());
    assert!(errors.is_empty(), "{errors:#?}\n{text}");
    syntax::tree(&ast)
}

proptest! {
    #![proptest_config(crate::common::properties(400))]

    /// A tree that is written in a random style and formatted is the same tree, with every comment.
    #[test]
    fn trees_stay(ast in trees::files(), seed in any::<u64>()) {
        let text = written::written(&ast, seed);
        let wanted = syntax::tree(&ast);
        prop_assert_eq!(&wanted, &tree(&text), "the text does not say what it should:\n{}", text);
        let formatted = formatted(&text);
        prop_assert_eq!(wanted, tree(&formatted), "--- text\n{}\n--- formatted\n{}", text, formatted);
        prop_assert_eq!(written::comments(&text), written::comments(&formatted));
    }

    /// The values of a buffer or a draw move to a line of their own before they are broken.
    #[test]
    fn values_that_fit_on_a_line_stay_on_one(
        sizes in prop::collection::vec("n_[a-z]{1,24}", 1..8),
        values in prop::collection::vec("n_[a-z]{1,24}", 1..4),
        form in 0..4,
    ) {
        let (sizes, values) = (sizes.join(", "), format!("random({})", values.join(", ")));
        let text = match form {
            0 => format!("buffer w[layers], v: f32[{sizes}]={values}"),
            1 => format!("buffer w[{sizes}] {{ up: f32[4], down: f32[{sizes}] }} in pinned={values}"),
            2 => format!("step {{ buffer w: f32[{sizes}]={values} nop() }}"),
            _ => format!("draw w[{sizes}]~{values}"),
        };
        prop_assert!(formatted(&text).contains(&values), "{}", formatted(&text));
    }
}

#[test]
fn lines_end_in_one_way() {
    assert_eq!(formatted(""), "");
    assert_eq!(formatted(" \r\n\t\n"), "");
    assert_eq!(formatted("let a = 1"), "let a = 1\n");
    assert_eq!(
        formatted("let a = 1  // x  \r\n\r\n\r\n// y\t\r\nlet b = 2\r\n\r\n"),
        "let a = 1  // x\n\n// y\nlet b = 2\n"
    );
    assert_eq!(formatted("let a = 4 $\r\n  5 // x\r\n"), "let a = 4 $\n  5  // x\n");
    let text = "meta { about: \"\"\"a  \r\n b\"\"\" }\r\n";
    assert_eq!(formatted(text), "meta {\n  about: \"\"\"a  \r\n b\"\"\"\n}\n", "text is left as it is");
    assert_eq!(formatted("\u{feff}let  a=1"), "let a = 1\n");
}

/// Texts found by random tests.
#[test]
fn texts_without_an_end() {
    assert_eq!(formatted("def t( ) {if\"\n{a( )}}"), "def t() {\n  if\"\n  {\n    a()\n  }\n}\n");
    assert_eq!(formatted("\"\\ \r\n\"\"\"a\n  b\"\"\"a\n\n\n\ta"), "\"\\\n\"\"\"a\n  b\"\"\"a\n\n\n\ta\n");
    // A comment of another language stays on its line.
    let comment = "step {\n  /* no */ nop()\n}\n";
    assert_eq!(formatted("step{ /* no */ nop() }"), comment);
    assert_eq!(formatted(comment), comment);
    // To the parser these are two texts.
    assert_eq!(formatted("metric  m=\"\"\" \"\nlet  a=1"), "metric  m=\"\"\" \"\nlet a = 1\n");
}

#[test]
fn lines_of_a_block_may_move() {
    let once = format("step { a: n\n  metr\nbuffer spread :ddu\n}\n").text;
    assert_eq!(format(&once).text, once);
}

#[test]
fn the_indentation_of_a_lost_brace_moves_nothing() {
    formatted("def t(a -> b) {def t(a -> b) {((\n}a(} else {");
    let text = "step {\n  on s {\n    nop()\n  for i in 0..4 {\n    nop()\n  }\n}\n";
    let (_, errors) = syntax::parse(text, 0, &SyntaxLimits::default());
    assert_eq!(format!("{:?}", format(text).errors), format!("{errors:?}"));
}

#[test]
fn too_deep_nesting_has_the_parser_s_error() {
    let deep = format!("a{}'%{}\n}}\nstep {{ nop()", "[".repeat(70), "[".repeat(4));
    // This one nests too deep only once the brackets that do not fit have been left out.
    let left_out = format!("[\nstep{{]}}{{\nbuffer{}}}stream{}\n", "(".repeat(35), "(".repeat(30));
    for text in [deep, left_out] {
        let (_, errors) = syntax::parse(&text, 0, &SyntaxLimits::default());
        let refused = format(&text);
        assert_eq!(refused.text, text);
        assert_eq!(format!("{:?}", refused.errors), format!("{errors:?}"));
    }
}

#[test]
fn texts_over_the_limits_are_not_formatted() {
    let text = "let  a=((1))\n\n\n";
    let limits = |file_bytes, nesting| syntax::format(text, &SyntaxLimits { file_bytes, nesting });
    for refused in [limits(4, 64), limits(100, 1)] {
        assert_eq!((refused.text.as_str(), refused.errors.len()), (text, 1));
    }
    assert_eq!(limits(100, 2).text, "let a = ((1))\n");
}

/// The tree of a file that has everything.
#[test]
fn every_construct() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/format/cases/every_construct.aorta");
    let text = std::fs::read_to_string(path).expect("the case is a readable file");
    insta::with_settings!({ snapshot_path => "../snapshots", omit_expression => true }, {
        insta::assert_snapshot!("tree", tree(&text));
    });
}
