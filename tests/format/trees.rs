//! Random trees of every construct of the language, without regard to meaning.

use aorta::base::units::UNITS;
use aorta::base::{Interner, SrcSpan, Symbol};
use aorta::syntax::Ast;
use aorta::syntax::ast::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// Names that a tree may have. The last eight are reserved, and may only name options.
const NAMES: [&str; 20] = [
    "a",
    "b",
    "x",
    "y1",
    "_z",
    "w_gate",
    "f32",
    "bf16",
    "rank",
    "random",
    "copy",
    "very_long_name_of_something",
    "in",
    "if",
    "at",
    "not",
    "or",
    "when",
    "else",
    "true",
];

const RESERVED: u32 = 8;

fn interner() -> Interner {
    named(NAMES)
}

fn named(all: impl IntoIterator<Item = &'static str>) -> Interner {
    let mut names = Interner::default();
    for name in all {
        names.intern(name);
    }
    names
}

fn symbol() -> impl Strategy<Value = Symbol> {
    (0..NAMES.len() as u32 - RESERVED).prop_map(Symbol)
}

fn name() -> impl Strategy<Value = Name> {
    symbol().prop_map(|symbol| Name { symbol, span: SrcSpan::default() })
}

fn key() -> impl Strategy<Value = Name> {
    (0..NAMES.len() as u32).prop_map(|symbol| Name { symbol: Symbol(symbol), span: SrcSpan::default() })
}

fn node(kind: ExprKind) -> Expr {
    Expr { span: SrcSpan::default(), kind }
}

// --- Expressions ------------------------------------------------------------------------------------------------

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-z ,{}()\"\\\\#é-]{0,12}", "[a-z ,\n\t\"]{0,20}"]
}

fn leaf() -> impl Strategy<Value = Expr> {
    let number = prop_oneof![0..100i64, Just(4096), Just(i64::MAX), any::<i64>().prop_map(|value| value.max(0))];
    let float = prop_oneof![Just(0.5), Just(1.0), Just(1e-3), Just(1e300), 0.0..1000.0];
    let quantity = (prop_oneof![Just(1.0), Just(64.0), Just(0.5), Just(2e9)], 0..UNITS.len());
    prop_oneof![
        3 => symbol().prop_map(ExprKind::Name),
        2 => number.prop_map(ExprKind::Int),
        1 => float.prop_map(ExprKind::Float),
        1 => quantity.prop_map(|(value, unit)| ExprKind::Quantity { value, unit: &UNITS[unit] }),
        1 => text().prop_map(ExprKind::Text),
        1 => any::<bool>().prop_map(ExprKind::Bool),
    ]
    .prop_map(node)
}

fn op() -> impl Strategy<Value = BinaryOp> {
    use BinaryOp::*;
    prop::sample::select(vec![
        Or,
        And,
        Equal,
        NotEqual,
        Less,
        LessEqual,
        Greater,
        GreaterEqual,
        Add,
        Subtract,
        Multiply,
        Divide,
        Remainder,
    ])
}

fn range(end: BoxedStrategy<Expr>) -> impl Strategy<Value = ExprKind> {
    (end.clone(), end, any::<bool>()).prop_map(|(from, to, inclusive)| ExprKind::Range {
        from: Box::new(from),
        to: Box::new(to),
        inclusive,
    })
}

/// An index in brackets, including `..`.
fn index(inner: BoxedStrategy<Expr>) -> impl Strategy<Value = Vec<Expr>> {
    let item = prop_oneof![4 => inner, 1 => Just(()).prop_map(|()| node(ExprKind::Whole))];
    vec(item, 1..3)
}

fn expr() -> BoxedStrategy<Expr> {
    leaf()
        .prop_recursive(4, 24, 4, |inner| {
            let boxed = || inner.clone().prop_map(Box::new);
            let arms = vec((inner.clone(), inner.clone()), 1..3);
            prop_oneof![
                2 => (op(), boxed(), boxed()).prop_map(|(op, left, right)| ExprKind::Binary { op, left, right }),
                1 => boxed().prop_map(ExprKind::Negate),
                1 => boxed().prop_map(ExprKind::Not),
                1 => range(inner.clone()),
                1 => (name(), vec(inner.clone(), 0..4)).prop_map(|(callee, args)| ExprKind::Call { callee, args }),
                1 => (boxed(), index(inner.clone())).prop_map(|(base, items)| ExprKind::Index { base, items }),
                1 => (boxed(), name()).prop_map(|(base, name)| ExprKind::Field { base, name }),
                1 => vec(inner.clone(), 0..5).prop_map(ExprKind::List),
                1 => (arms, boxed()).prop_map(|(arms, otherwise)| ExprKind::If { arms, otherwise }),
            ]
            .prop_map(node)
        })
        .boxed()
}

/// A name with fields and indices.
fn path() -> BoxedStrategy<Expr> {
    let start = symbol().prop_map(|symbol| node(ExprKind::Name(symbol)));
    start
        .prop_recursive(2, 4, 1, |inner| {
            let base = || inner.clone().prop_map(Box::new);
            prop_oneof![
                (base(), index(expr())).prop_map(|(base, items)| ExprKind::Index { base, items }),
                (base(), name()).prop_map(|(base, name)| ExprKind::Field { base, name }),
            ]
            .prop_map(node)
        })
        .boxed()
}

/// A path, or one of several by conditions.
fn chosen(path: BoxedStrategy<Expr>) -> impl Strategy<Value = Expr> {
    let arms = vec((expr(), path.clone()), 1..3);
    let cond = (arms, path.clone().prop_map(Box::new)).prop_map(|(arms, otherwise)| ExprKind::If { arms, otherwise });
    prop_oneof![3 => path, 1 => cond.prop_map(node)]
}

/// A group of ranks, or a list of them.
fn group() -> impl Strategy<Value = Expr> {
    prop_oneof![2 => path(), 1 => vec(expr(), 0..3).prop_map(ExprKind::List).prop_map(node)]
}

// --- Statements -------------------------------------------------------------------------------------------------

fn settings() -> impl Strategy<Value = Vec<Setting>> {
    vec((key(), expr()).prop_map(|(key, value)| Setting { key, value }), 0..4)
}

fn binding() -> impl Strategy<Value = Binding> {
    (name(), expr()).prop_map(|(name, value)| Binding { name, value })
}

/// Sizes or indices behind a name, or none.
fn count() -> impl Strategy<Value = Vec<Expr>> {
    prop_oneof![3 => Just(()).prop_map(|()| Vec::new()), 1 => vec(expr(), 1..3)]
}

fn family() -> impl Strategy<Value = Family> {
    (name(), count()).prop_map(|(name, count)| Family { name, count })
}

fn label() -> impl Strategy<Value = LabelName> {
    (name(), count()).prop_map(|(name, index)| LabelName { name, index })
}

fn call() -> impl Strategy<Value = Call> {
    let at = || (expr(), option::weighted(0.3, expr())).prop_map(|(rank, when)| AtClause { rank, when });
    let arg = move || (expr(), option::weighted(0.1, at())).prop_map(|(value, at)| Arg { value, at });
    let head = (option::of(label()), vec(name(), 1..3));
    (head, vec(arg(), 0..4), vec(arg(), 0..3), settings(), option::weighted(0.1, group())).prop_map(
        |((label, callee), inputs, outputs, options, over)| Call {
            label,
            callee,
            inputs,
            outputs,
            options,
            over,
            span: SrcSpan::default(),
        },
    )
}

fn edge() -> impl Strategy<Value = Edge> {
    (path(), any::<bool>(), option::of(expr())).prop_map(|(label, previous, when)| Edge { label, previous, when })
}

fn simple() -> impl Strategy<Value = StmtKind> {
    prop_oneof![
        4 => call().prop_map(StmtKind::Call),
        1 => binding().prop_map(StmtKind::Let),
        1 => buffer().prop_map(StmtKind::Buffer),
    ]
}

fn stmt(kind: StmtKind) -> Stmt {
    Stmt { span: SrcSpan::default(), kind }
}

fn of_stmts(stmts: Vec<Stmt>) -> Block {
    Block { stmts, ..Block::default() }
}

fn block() -> BoxedStrategy<Block> {
    let stmts = simple().prop_map(stmt).prop_recursive(3, 12, 3, |inner| {
        let body = || vec(inner.clone(), 0..3).prop_map(of_stmts);
        let arm = (expr(), body()).prop_map(|(condition, body)| Arm { span: SrcSpan::default(), condition, body });
        let arms = vec(arm, 1..3);
        prop_oneof![
            2 => simple(),
            1 => (name(), expr(), body()).prop_map(|(variable, over, body)| StmtKind::For { variable, over, body }),
            1 => (arms, option::of(body())).prop_map(|(arms, otherwise)| StmtKind::If { arms, otherwise }),
            1 => (chosen(path()), vec(edge(), 0..3), body())
                .prop_map(|(stream, after, body)| StmtKind::On { stream, after, body }),
            1 => (label(), body()).prop_map(|(label, body)| StmtKind::Phase { label, body }),
            1 => body().prop_map(|body| StmtKind::Group { body }),
        ]
        .prop_map(stmt)
    });
    vec(stmts, 0..4).prop_map(of_stmts).boxed()
}

/// The reference of a kernel.
fn reference() -> impl Strategy<Value = Call> {
    call().prop_map(|call| Call { label: None, over: None, ..call })
}

// --- Declarations -----------------------------------------------------------------------------------------------

fn signature() -> impl Strategy<Value = Signature> {
    let side = || vec((name(), option::of(expr())).prop_map(|(name, ty)| Param { name, ty }), 0..3);
    (side(), side()).prop_map(|(inputs, outputs)| Signature { inputs, outputs })
}

fn buffer() -> impl Strategy<Value = Buffer> {
    let layout = prop_oneof![
        3 => expr().prop_map(Layout::Tensor),
        1 => path().prop_map(Layout::Like),
        1 => vec((name(), expr()), 1..3).prop_map(Layout::Parts),
    ];
    (vec(family(), 1..4), layout, option::of(name()), option::of(expr()))
        .prop_map(|(families, layout, space, init)| Buffer { families, layout, space, init })
}

fn decl() -> impl Strategy<Value = Decl> {
    let used = prop_oneof![path(), text().prop_map(|text| node(ExprKind::Text(text)))];
    let kind = prop_oneof![
        settings().prop_map(DeclKind::Meta),
        (name(), expr(), option::of(expr())).prop_map(|(name, default, allowed)| DeclKind::Param {
            name,
            default,
            allowed
        }),
        binding().prop_map(DeclKind::Let),
        (name(), vec(binding(), 0..4)).prop_map(|(name, values)| DeclKind::Preset { name, values }),
        (name(), count(), settings()).prop_map(|(name, count, options)| DeclKind::Stream { name, count, options }),
        buffer().prop_map(DeclKind::Buffer),
        vec(binding(), 1..3).prop_map(DeclKind::Mesh),
        (name(), signature(), settings(), vec(reference(), 0..2)).prop_map(|(name, signature, fields, references)| {
            DeclKind::Kernel { name, signature, fields, references, file: None }
        }),
        (name(), signature(), block()).prop_map(|(name, signature, body)| DeclKind::Def { name, signature, body }),
        used.prop_map(|what| DeclKind::Use { what }),
        (name(), count(), name(), vec(expr(), 0..3), settings()).prop_map(
            |(name, dims, distribution, args, options)| { DeclKind::Draw { name, dims, distribution, args, options } }
        ),
        (expr(), option::of(text())).prop_map(|(condition, message)| DeclKind::Require { condition, message }),
        block().prop_map(DeclKind::Setup),
        (settings(), block()).prop_map(|(options, body)| DeclKind::Step { options, body }),
        block().prop_map(DeclKind::Teardown),
        (name(), option::of(binding()), expr(), option::of(text()))
            .prop_map(|(name, each, value, unit)| DeclKind::Metric { name, each, value, unit }),
        (expr(), option::of(expr())).prop_map(|(condition, when)| DeclKind::Expect { condition, when }),
    ];
    (docs(), kind).prop_map(|(docs, kind)| Decl { docs, span: SrcSpan::default(), kind })
}

fn docs() -> impl Strategy<Value = Vec<String>> {
    vec("[a-z({][a-z ,.]{0,20}[a-z]", 0..2)
}

/// A file with one block, in which twelve of these words are the names.
pub fn blocks(words: Vec<&'static str>) -> impl Strategy<Value = Ast> {
    let decl = |body| Decl { docs: Vec::new(), span: SrcSpan::default(), kind: DeclKind::Setup(body) };
    let count = NAMES.len() - RESERVED as usize;
    let names = Just(words)
        .prop_shuffle()
        .prop_map(move |words| words.into_iter().take(count).chain(NAMES[count..].iter().copied()).collect::<Vec<_>>());
    (names, block()).prop_map(move |(names, body)| Ast {
        decls: vec![decl(body)],
        names: named(names),
        ..Ast::default()
    })
}

/// A whole file.
pub fn files() -> impl Strategy<Value = Ast> {
    (docs(), vec(decl(), 0..6)).prop_map(|(about, decls)| Ast { about, decls, names: interner(), ..Ast::default() })
}
