//! Places at which a text is split, and the location of each expression of the tree.

use std::collections::BTreeSet;
use std::thread;

use aorta::base::SourceMap;
use aorta::syntax::ast::ExprKind;
use aorta::syntax::{self, DECLARATIONS, RESERVED, STATEMENTS, SyntaxLimits, walk, written};
use proptest::prelude::*;

use crate::common::shipped;
use crate::format::{trees, written};

/// The tree of a text, or its errors.
fn tree(text: &str) -> Result<String, String> {
    let (ast, errors) = syntax::parse(text, 0, &SyntaxLimits::default());
    if errors.is_empty() { Ok(syntax::tree(&ast)) } else { Err(format!("{errors:?} in\n{text}")) }
}

/// The grammar's parser has one switch for all threads.
#[test]
fn errors_do_not_depend_on_other_threads() {
    let errors = || tree("step { map(x y -> z)  gemm(a, b c)  copy(a -> ) }").expect_err("it has mistakes");
    let alone = errors();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..200).for_each(|_| assert_eq!(errors(), alone)));
        }
    });
}

/// Words with a meaning that are not reserved.
fn words_for_names() -> Vec<&'static str> {
    let words = DECLARATIONS.into_iter().chain(STATEMENTS).chain(["like", "prev"]);
    let words: BTreeSet<&str> = words.filter(|word| !RESERVED.contains(word)).collect();
    words.into_iter().collect()
}

/// Checks that a text in which the word takes the place of `NAME` has the tree of one with an ordinary name.
fn assert_is_name(word: &str, text: &str) {
    let with = |name: &str| tree(&text.replace("NAME", name)).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(with(word), with("name_1").replace("name_1", word), "{text}");
}

/// Any word of the language used as a name ends the statement before the next one like any other name.
#[test]
fn words_of_statements_may_be_names() {
    let next = [
        "map(x + 1)",
        "f: map(x + 1)",
        "f[0]: map(x + 1)",
        "group { send(x, to: 1) }",
        "phase p { nop() }",
        "phase p[i] { nop() }",
        "buffer t: f32[n]",
        "buffer t[2]: f32[n]",
        "let k = 1",
        "for i in 0..n { nop() }",
        "if n > 1 { nop() }",
        "on s { nop() }",
        "d(x)",
        "d.e(x)",
        "NAME: map(x + 1)",
        "let k = NAME",
        "and n > 2",
        "",
    ];
    for word in words_for_names() {
        for next in next {
            for operand in ["let m = NAME", "let m = 2 * NAME", "map(x -> NAME)\nlet m = -NAME"] {
                assert_is_name(word, &format!("step {{\n{operand}\n{next}\n}}"));
            }
        }
    }
}

/// The same for declarations.
#[test]
fn words_of_declarations_may_be_names() {
    let next = [
        "param k = 2",
        "let k = NAME",
        "preset p { n = 1 }",
        "stream s",
        "buffer b: f32[8]",
        "mesh dp = 2",
        "def d(x) { nop() }",
        "step { nop() }",
        "metric m = time",
        "expect NAME > 1 when NAME < 2",
        "meta { tags: [] }",
        "in 1..=4",
        "",
    ];
    for word in words_for_names() {
        for next in next {
            for line in [" ", "\n"] {
                assert_is_name(word, &format!("param NAME = 1\nparam m = 2 * NAME{line}{next}\nstream e"));
            }
        }
    }
}

/// Parsing the source range of each expression again gives the same expression.
fn places_hold_their_expressions(text: &str) {
    let mut sources = SourceMap::new();
    let base = sources.add("test.aorta", text).expect("a test is small");
    let (ast, errors) = syntax::parse(text, base, &SyntaxLimits::default());
    assert!(errors.is_empty(), "{errors:?} in\n{text}");
    walk::exprs(&ast, &mut |expr| {
        let part = sources.text(expr.span);
        let mut names = ast.names.clone();
        // `..` is an expression in brackets alone.
        let again = match expr.kind {
            ExprKind::Whole => return,
            _ => syntax::parse_expr(part, 0, &SyntaxLimits::default(), &mut names),
        };
        let again = again.unwrap_or_else(|errors| panic!("`{part}` of `{text}`: {errors:?}"));
        assert_eq!(written(&again, &names), written(expr, &ast.names), "`{part}` of `{text}`");
    });
}

#[test]
fn places_of_shipped_files_hold_their_expressions() {
    shipped::all().iter().for_each(|file| places_hold_their_expressions(&file.text));
}

/// Expressions with parentheses wherever they may stand.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec!["n", "3", "2.5us", "x", "true"]).prop_map(str::to_owned);
    leaf.prop_recursive(5, 40, 3, |inner| {
        let two = (inner.clone(), inner.clone());
        prop_oneof![
            3 => inner.clone().prop_map(|a| format!("({a})")),
            2 => (two.clone(), prop::sample::select(vec!["+", "-", "*", "/", "%", "and", "or", "==", "<"]))
                .prop_map(|((a, b), operator)| format!("{a} {operator} {b}")),
            1 => inner.clone().prop_map(|a| format!("-{a}")),
            1 => inner.clone().prop_map(|a| format!("not {a}")),
            1 => two.clone().prop_map(|(a, b)| format!("max({a}, {b})")),
            1 => two.clone().prop_map(|(a, b)| format!("({a})[{b}]")),
            1 => two.clone().prop_map(|(a, b)| format!("[{a}, ({b})..n]")),
            1 => (two, inner).prop_map(|((a, b), c)| format!("if {a} {{ {b} }} else {{ {c} }}")),
        ]
    })
}

proptest! {
    #![proptest_config(crate::common::properties(300))]

    /// A block's meaning does not depend on which words of the language its names are.
    #[test]
    fn words_may_be_names_in_random_blocks(ast in trees::blocks(words_for_names()), seed in any::<u64>()) {
        let text = written::written(&ast, seed);
        prop_assert_eq!(tree(&text), Ok(syntax::tree(&ast)), "{}", text);
    }

    #[test]
    fn places_hold_random_expressions(a in expression(), b in expression()) {
        places_hold_their_expressions(&format!("param p = {a}\nlet l = ({a}) * {b}\nmetric m = {b} \"us\"\nstep {{ f({a} -> {b}) }}"));
    }
}
