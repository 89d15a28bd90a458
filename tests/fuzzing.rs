//! The generator of the fuzz targets: most of its files are valid, and together they use the whole language. A sample
//! of its files is checked with the properties of the fuzz targets too.

use std::collections::BTreeSet;

use aorta::base::random::hash;
use aorta::base::{DType, Space, units};
use aorta::compile::{self, Ranks};
use aorta::model::{self, Figure, OpKind, Options, Program, Statistic};
use aorta::ops::CATALOGUE;
use aorta::syntax::ast::{BinaryOp, ExprKind};
use aorta::syntax::{self, Ast, DECLARATIONS, Limits, RESERVED, STATEMENTS, walk};

use crate::common::{invariants, oracle};

#[path = "../fuzz/src/grammar/mod.rs"]
mod grammar;
#[path = "../fuzz/src/properties.rs"]
#[allow(dead_code, reason = "the fuzz targets use the rest")]
mod properties;
#[path = "../fuzz/src/wire.rs"]
#[allow(dead_code, reason = "the program uses the rest")]
mod wire;

/// Number of generated files.
const FILES: u64 = 1000;

/// Bytes of choices, determined by the number.
fn choices(number: u64) -> Vec<u8> {
    let length = 40 + hash(1, number) % 600;
    (0..length).map(|index| hash(number + 2, index) as u8).collect()
}

/// The program of one rank; `None` if the text has mistakes.
fn program(ast: &Ast) -> Option<Program> {
    model::analyze(ast, &Options { cycle: 4, max_operations: 4000, ..Options::default() }).ok()
}

fn parsed(text: &str) -> Option<Ast> {
    let (ast, errors) = syntax::parse(text, 0, &Limits::default());
    errors.is_empty().then_some(ast)
}

/// True if three ranks of the program match.
fn fits_together(text: &str) -> bool {
    let (ranks, default) = (Ranks::Exactly(3), compile::Options::default());
    let options = compile::Options { ranks, cycle: 4, max_operations: 4000, ..default };
    aorta::compile("generated.aorta", text, &options).is_ok()
}

/// Half of the generated files are meant to be valid. Nearly all of them are, on one rank and on three; most of the
/// other half, which was changed, are not.
#[test]
fn more_than_half_of_the_generated_files_are_accepted() {
    let (mut valid, mut together, mut any) = (0, 0, 0);
    for number in 0..FILES {
        let is_accepted = |text: &str| parsed(text).is_some_and(|ast| program(&ast).is_some());
        let text = grammar::valid(&choices(number));
        let accepted = is_accepted(&text);
        valid += u64::from(accepted);
        together += u64::from(accepted && fits_together(&text));
        any += u64::from(is_accepted(&grammar::text(&choices(number))));
    }
    println!("of {FILES}: {valid} valid, {together} on three ranks; {any} of all inputs");
    assert!(valid * 100 >= FILES * 98, "{valid} of {FILES} are valid");
    assert!(together * 100 >= FILES * 85, "{together} of {FILES} are good for three ranks");
    assert!(any * 2 >= FILES, "{any} of {FILES} inputs are accepted");
}

/// The words of a text outside of comments; what follows a dot or a slash of a unit is a word of its own.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    code.flat_map(|line| line.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_')))
}

#[test]
fn generated_files_use_the_whole_language() {
    let (mut found, mut operations, mut quantities) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let (mut signs, mut syntax) = (BTreeSet::new(), BTreeSet::new());
    for number in 0..FILES {
        let text = grammar::valid(&choices(number));
        let Some((program, ast)) = parsed(&text).and_then(|ast| Some((program(&ast)?, ast))) else { continue };
        found.extend(words(&text).map(str::to_owned));
        let specs = program.cycle.iter().flat_map(|step| step.ids().map(move |op| step.op(op).kind));
        operations.extend(specs.filter_map(|kind| match kind {
            OpKind::Run(spec) => Some(program.spec(spec).operation.name()),
            _ => None,
        }));
        walk::exprs(&ast, &mut |expr| {
            match &expr.kind {
                ExprKind::Quantity { unit, .. } => drop(quantities.insert(unit.name)),
                ExprKind::Binary { op, .. } => drop(signs.insert(op.text())),
                _ => {}
            }
            let shown = format!("{:?}", expr.kind);
            syntax.insert(shown.split(['(', ' ', '{']).next().unwrap_or_default().to_owned());
        });
    }
    let missing = |all: &[&str], found: &dyn Fn(&str) -> bool| -> Vec<String> {
        all.iter().filter(|name| !found(name)).map(|name| (*name).to_owned()).collect()
    };
    let in_text = |all: &[&str]| missing(all, &|name| name.split('.').all(|part| found.contains(part)));
    let none: [String; 0] = [];

    let names: Vec<&str> = CATALOGUE.iter().map(|operation| operation.name()).collect();
    // These are inside groups, which are operations of their own.
    operations.extend(["send", "recv"].into_iter().filter(|name| found.contains(*name)));
    assert_eq!(missing(&names, &|name| operations.contains(name)), none, "operations");
    let options = CATALOGUE.iter().flat_map(|operation| operation.signature().options);
    assert_eq!(in_text(&options.map(|option| option.name).collect::<Vec<_>>()), none, "options");
    let units: Vec<&str> = units::UNITS.iter().map(|unit| unit.name).collect();
    assert_eq!(missing(&units, &|name| quantities.contains(name)), none, "units");
    assert_eq!(in_text(&Figure::ALL.map(Figure::name)), none, "figures");
    assert_eq!(in_text(&Statistic::ALL.map(Statistic::name)), none, "statistics");
    assert_eq!(in_text(&DType::ALL.map(DType::name)), none, "element types");
    assert_eq!(in_text(&Space::ALL.map(Space::name)), none, "spaces");
    assert_eq!(in_text(model::FUNCTIONS), none, "functions");
    assert_eq!(in_text(&RESERVED), none, "reserved words");
    assert_eq!(in_text(&STATEMENTS), none, "statements");
    // The others are not supported by this version.
    let later = ["kernel", "use", "draw", "setup", "teardown"];
    let declared: Vec<&str> = DECLARATIONS.into_iter().filter(|word| !later.contains(word)).collect();
    assert_eq!(in_text(&declared), none, "declarations");
    let others = [
        "signal",
        "grad",
        "accumulate",
        "wait",
        "sync",
        "prev",
        "iteration",
        "end",
        "depth",
        "order",
        "races",
        "allow",
        "forbid",
        "data",
        "declared",
        "priority",
        "units",
        "high",
        "normal",
        "low",
        "zeros",
        "ones",
        "iota",
        "random",
        "category",
        "tags",
        "version",
        "authors",
        "licence",
        "rank",
        "world",
        "size",
        "slot",
    ];
    assert_eq!(in_text(&others), none, "other words");
    let all = [
        BinaryOp::Or,
        BinaryOp::And,
        BinaryOp::Equal,
        BinaryOp::NotEqual,
        BinaryOp::Less,
        BinaryOp::LessEqual,
        BinaryOp::Greater,
        BinaryOp::GreaterEqual,
        BinaryOp::Add,
        BinaryOp::Subtract,
        BinaryOp::Multiply,
        BinaryOp::Divide,
        BinaryOp::Remainder,
    ];
    assert_eq!(missing(&all.map(BinaryOp::text), &|name| signs.contains(name)), none, "operators");
    let all = [
        "Int", "Float", "Quantity", "Text", "Bool", "Name", "Whole", "Range", "Negate", "Not", "Binary", "Call",
        "Index", "Field", "List", "If",
    ];
    assert_eq!(missing(&all, &|name| syntax.contains(name)), none, "expressions");
}

#[test]
fn generated_files_keep_the_properties_of_the_fuzz_targets() {
    for number in 0..150 {
        let text = grammar::text(&choices(FILES + number));
        properties::text(&text);
        properties::plan(&text);
    }
}

#[test]
fn frames_of_any_bytes_keep_their_property() {
    for number in 0..FILES {
        properties::frames(&choices(number));
    }
}
