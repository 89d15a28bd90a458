//! Constructs that texts use, for tests that ask whether some files use the whole language.

use std::collections::BTreeSet;

use aorta::model::{OpKind, Program};
use aorta::ops::Operation;
use aorta::syntax::ast::{BinaryOp, ExprKind};
use aorta::syntax::{Ast, DECLARATIONS, RESERVED, STATEMENTS, walk};

/// `use`, which is replaced by what it brings before the analysis.
const LATER: [&str; 1] = ["use"];

/// Variants of `ExprKind`, by their names.
const EXPRESSIONS: [&str; 16] = [
    "Int", "Float", "Quantity", "Text", "Bool", "Name", "Whole", "Range", "Negate", "Not", "Binary", "Call", "Index",
    "Field", "List", "If",
];

/// Constructs that some texts use.
#[derive(Debug, Default)]
pub struct Constructs {
    /// Words of the code.
    pub words: BTreeSet<String>,
    /// Units of quantities.
    pub units: BTreeSet<&'static str>,
    declarations: BTreeSet<String>,
    statements: BTreeSet<String>,
    expressions: BTreeSet<String>,
    operators: BTreeSet<&'static str>,
}

impl Constructs {
    /// Adds the constructs of a text and its tree.
    pub fn add(&mut self, text: &str, ast: &Ast) {
        self.words.extend(words(text).map(str::to_owned));
        let first = |start: u32| words(&text[start as usize..]).next().unwrap_or_default().to_owned();
        self.declarations.extend(ast.decls.iter().map(|decl| first(decl.span.start)));
        walk::stmts(ast, &mut |stmt| {
            self.statements.insert(first(stmt.span.start));
        });
        walk::exprs(ast, &mut |expr| {
            match &expr.kind {
                ExprKind::Quantity { unit, .. } => drop(self.units.insert(unit.name)),
                ExprKind::Binary { op, .. } => drop(self.operators.insert(op.name())),
                _ => {}
            }
            let shown = format!("{:?}", expr.kind);
            self.expressions.insert(shown.split(['(', ' ', '{']).next().unwrap_or_default().to_owned());
        });
    }

    /// Supported declarations, statements, reserved words, kinds of expressions and operators that no text uses.
    pub fn missing(&self) -> Vec<&'static str> {
        let lacking = |all: &[&'static str], has: &dyn Fn(&str) -> bool| -> Vec<&'static str> {
            all.iter().copied().filter(|name| !has(name) && !LATER.contains(name)).collect()
        };
        [
            lacking(&DECLARATIONS, &|word| self.declarations.contains(word)),
            lacking(&STATEMENTS, &|word| self.statements.contains(word)),
            lacking(&RESERVED, &|word| self.words.contains(word)),
            lacking(&EXPRESSIONS, &|kind| self.expressions.contains(kind)),
            lacking(&BinaryOp::NAMES, &|sign| self.operators.contains(sign)),
        ]
        .concat()
    }
}

/// The words of a text outside of comments; a name with dots or a unit with a slash gives several.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    code.flat_map(|line| line.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_')))
        .filter(|word| !word.is_empty())
}

/// The operations of a program with an entry in the catalogue; members of a group are inside of it.
pub fn operations(program: &Program) -> impl Iterator<Item = &'static dyn Operation> {
    let kinds = program.cycle.iter().flat_map(|step| step.ids().map(move |op| step.op(op).kind));
    kinds.filter_map(|kind| match kind {
        OpKind::Run(spec) => Some(program.spec(spec).operation),
        _ => None,
    })
}
