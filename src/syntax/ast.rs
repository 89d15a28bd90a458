//! The syntax tree: names are interned, but nothing is resolved or checked.

use std::sync::Arc;

use crate::base::named::named;
use crate::base::units::Unit;
use crate::base::{Interner, SrcSpan, Symbol, visible};

/// A whole file.
#[derive(Debug, Default)]
pub struct Ast {
    /// The `//!` lines at the beginning, without their mark.
    pub about: Vec<String>,
    pub decls: Vec<Decl>,
    pub names: Interner,
    /// The `//` comments, in order.
    pub comments: Vec<SrcSpan>,
    /// Ranges that could not be parsed, sorted and disjoint: names that they would have declared are unknown.
    pub unparsed: Vec<SrcSpan>,
}

impl Ast {
    /// The first sentence of the `//!` lines, on one line; empty if the file has none.
    pub fn summary(&self) -> String {
        let lines = self.about.iter().map(|line| line.trim());
        let paragraph: Vec<&str> =
            lines.skip_while(|line| line.is_empty()).take_while(|line| !line.is_empty()).collect();
        first_sentence(&paragraph.join(" ")).to_owned()
    }

    /// The text of `category` in `meta`, on one line; `None` if there is none.
    pub fn category(&self) -> Option<String> {
        match &self.fact("category")?.kind {
            ExprKind::Text(text) => Some(visible::one_line(text).into_owned()),
            _ => None,
        }
    }

    /// The language version in `meta` and its location; `None` if there is none, or if it is no whole number.
    pub fn language(&self) -> Option<(i64, SrcSpan)> {
        let value = self.fact("language")?;
        match value.kind {
            ExprKind::Int(version) => Some((version, value.span)),
            _ => None,
        }
    }

    /// The value of a field of `meta`; `None` if the file has no such field.
    fn fact(&self, key: &str) -> Option<&Expr> {
        self.meta().find(|setting| self.names.name(setting.key.symbol) == key).map(|setting| &setting.value)
    }

    /// The fields of `meta`, in order.
    pub fn meta(&self) -> impl Iterator<Item = &Setting> {
        let settings = self.decls.iter().filter_map(|decl| match &decl.kind {
            DeclKind::Meta(settings) => Some(settings),
            _ => None,
        });
        settings.flatten()
    }

    /// The names of all parameters, in order.
    pub fn params(&self) -> impl Iterator<Item = Name> {
        self.decls.iter().filter_map(|decl| match decl.kind {
            DeclKind::Param { name, .. } => Some(name),
            _ => None,
        })
    }

    /// Iterates over the presets with their values, in the order of the text.
    pub fn presets(&self) -> impl Iterator<Item = (Name, &[Binding])> {
        self.decls.iter().filter_map(|decl| match &decl.kind {
            DeclKind::Preset { name, values } => Some((*name, &**values)),
            _ => None,
        })
    }
}

/// The text up to the end of its first sentence: a mark followed by a space and a word that does not begin in lower
/// case. So the dot of an abbreviation such as `e.g.` ends no sentence.
fn first_sentence(text: &str) -> &str {
    let ends = text.match_indices(['.', '?', '!']).map(|(at, _)| at + 1).find(|&end| {
        let word = text[..end - 1].rsplit(' ').next().unwrap_or("");
        let next = text[end..].strip_prefix(' ').and_then(|rest| rest.chars().next());
        !word.contains('.') && next.is_some_and(|first| !first.is_lowercase())
    });
    &text[..ends.unwrap_or(text.len())]
}

/// A name and its location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    pub symbol: Symbol,
    pub span: SrcSpan,
}

/// A declaration.
#[derive(Debug)]
pub struct Decl {
    /// The `///` lines above, without their mark.
    pub docs: Vec<String>,
    /// The text without documentation, up to the block if it has one.
    pub span: SrcSpan,
    pub kind: DeclKind,
}

/// The kinds of declarations.
#[derive(Debug)]
pub enum DeclKind {
    Meta(Vec<Setting>),
    Param {
        name: Name,
        default: Expr,
        allowed: Option<Expr>,
    },
    Let(Binding),
    Preset {
        name: Name,
        values: Vec<Binding>,
    },
    Stream {
        name: Name,
        count: Vec<Expr>,
        options: Vec<Setting>,
    },
    Buffer(Buffer),
    Mesh(Vec<Binding>),
    Kernel {
        name: Name,
        signature: Signature,
        fields: Vec<Setting>,
        /// The reference operation, without a label. There is more than one only by mistake.
        references: Vec<Call>,
        /// The file that the field `file` names, if it could be read. The parser sets `None`; the linker of modules
        /// adds it.
        file: Option<KernelFile>,
    },
    Def {
        name: Name,
        signature: Signature,
        body: Block,
    },
    Use {
        what: Expr,
    },
    Draw {
        name: Name,
        dims: Vec<Expr>,
        distribution: Name,
        args: Vec<Expr>,
        options: Vec<Setting>,
    },
    Require {
        condition: Expr,
        message: Option<String>,
    },
    /// A `use` whose module could not be linked, or a name that a module lacks. The name is known, without a value.
    Unlinked(Name),
    Setup(Block),
    Step {
        options: Vec<Setting>,
        body: Block,
    },
    Teardown(Block),
    /// A metric; with `each`, one for each value of a range or list: `metric rate[i in 0..4] = …`.
    Metric {
        name: Name,
        each: Option<Binding>,
        value: Expr,
        unit: Option<String>,
    },
    Expect {
        condition: Expr,
        when: Option<Expr>,
    },
}

/// A file with the code of a kernel.
#[derive(Debug)]
pub struct KernelFile {
    /// Name in messages.
    pub name: String,
    /// The source; Triton's metadata for an entry of its cache; empty for other compiled code.
    pub text: String,
    /// The bytes of compiled code; `None` for a source.
    pub code: Option<Arc<[u8]>>,
}

/// `name = value`.
#[derive(Debug)]
pub struct Binding {
    pub name: Name,
    pub value: Expr,
}

/// `key: value` in parentheses or braces.
#[derive(Debug)]
pub struct Setting {
    pub key: Name,
    pub value: Expr,
}

/// `buffer a[2], b: f32[n] in pinned = zeros`.
#[derive(Debug)]
pub struct Buffer {
    pub families: Vec<Family>,
    pub layout: Layout,
    /// The memory space after `in`; `None` if it is left out.
    pub space: Option<Name>,
    /// The initial value after `=`; `None` if it is left out.
    pub init: Option<Expr>,
}

/// A name, with its sizes if it is a family.
#[derive(Debug)]
pub struct Family {
    pub name: Name,
    pub count: Vec<Expr>,
}

/// The type after the colon of a buffer, after `like`, or the parts in braces.
#[derive(Debug)]
pub enum Layout {
    Tensor(Expr),
    Like(Expr),
    Parts(Vec<(Name, Expr)>),
}

/// `(x, w -> y)`.
#[derive(Debug)]
pub struct Signature {
    pub inputs: Vec<Param>,
    pub outputs: Vec<Param>,
}

impl Signature {
    /// The sizes that the signature of a kernel binds: names that are a dimension by themselves, in the order of their
    /// first appearance.
    pub fn sizes(&self) -> Vec<Name> {
        let mut sizes: Vec<Name> = Vec::new();
        for param in self.inputs.iter().chain(&self.outputs) {
            let Some(Expr { kind: ExprKind::Index { items, .. }, .. }) = &param.ty else { continue };
            for item in items {
                if let Some(symbol) = item.as_name()
                    && sizes.iter().all(|known| known.symbol != symbol)
                {
                    sizes.push(Name { symbol, span: item.span });
                }
            }
        }
        sizes
    }
}

/// An input or an output of a signature.
#[derive(Debug)]
pub struct Param {
    pub name: Name,
    /// The type after the colon; `None` if it is left out.
    pub ty: Option<Expr>,
}

/// Statements between braces.
#[derive(Debug, Default)]
pub struct Block {
    /// The text with both braces.
    pub span: SrcSpan,
    pub stmts: Vec<Stmt>,
}

/// A statement.
#[derive(Debug)]
pub struct Stmt {
    /// The text, up to the first block if there is one.
    pub span: SrcSpan,
    pub kind: StmtKind,
}

/// The kinds of statements.
#[derive(Debug)]
pub enum StmtKind {
    For {
        variable: Name,
        over: Expr,
        body: Block,
    },
    If {
        arms: Vec<Arm>,
        otherwise: Option<Block>,
    },
    On {
        stream: Expr,
        after: Vec<Edge>,
        body: Block,
    },
    Phase {
        label: LabelName,
        body: Block,
    },
    Group {
        body: Block,
    },
    Let(Binding),
    /// Scratch memory with a name.
    Buffer(Buffer),
    Call(Call),
}

/// `if condition { … }`, the first arm of a statement or one after `else`.
#[derive(Debug)]
pub struct Arm {
    /// The text of `if` and the condition.
    pub span: SrcSpan,
    pub condition: Expr,
    pub body: Block,
}

/// A dependency that `after` names.
#[derive(Debug)]
pub struct Edge {
    /// The path of a label.
    pub label: Expr,
    /// True for `prev(…)`, a label of the previous iteration.
    pub previous: bool,
    /// The condition after `when`; `None` for a dependency without one.
    pub when: Option<Expr>,
}

/// `name` or `name[index]` as a label or phase.
#[derive(Debug)]
pub struct LabelName {
    pub name: Name,
    pub index: Vec<Expr>,
}

/// A call of an operation or of a `def`.
#[derive(Debug)]
pub struct Call {
    /// The label before the colon; `None` for a call without one.
    pub label: Option<LabelName>,
    /// The name that is called, such as `gemm` or `transformer.block`.
    pub callee: Vec<Name>,
    pub inputs: Vec<Arg>,
    pub outputs: Vec<Arg>,
    pub options: Vec<Setting>,
    /// The group of ranks after `over`; `None` if it is left out.
    pub over: Option<Expr>,
    /// The name and the parentheses, without the label.
    pub span: SrcSpan,
}

/// An input or an output of a call.
#[derive(Debug)]
pub struct Arg {
    pub value: Expr,
    /// The rank to which the operand belongs, given by `at`; `None` for the own rank.
    pub at: Option<AtClause>,
}

/// A clause such as `at rank + 1 when rank + 1 < world`.
#[derive(Debug)]
pub struct AtClause {
    pub rank: Expr,
    /// The condition; `None` means always.
    pub when: Option<Expr>,
}

/// An expression.
#[derive(Debug)]
pub struct Expr {
    pub span: SrcSpan,
    pub kind: ExprKind,
}

/// The kinds of expressions.
#[derive(Debug)]
pub enum ExprKind {
    Int(i64),
    Float(f64),
    Quantity {
        value: f64,
        unit: &'static Unit,
    },
    Text(String),
    Bool(bool),
    Name(Symbol),
    /// `..` as an index.
    Whole,
    Range {
        from: Box<Expr>,
        to: Box<Expr>,
        inclusive: bool,
    },
    Negate(Box<Expr>),
    Not(Box<Expr>),
    Binary {
        op: BinaryOp,
        left: Box<Expr>,
        right: Box<Expr>,
    },
    /// The callee is a name, since functions are not values.
    Call {
        callee: Name,
        args: Vec<Expr>,
    },
    Index {
        base: Box<Expr>,
        items: Vec<Expr>,
    },
    Field {
        base: Box<Expr>,
        name: Name,
    },
    List(Vec<Expr>),
    If {
        arms: Vec<(Expr, Expr)>,
        otherwise: Box<Expr>,
    },
}

named! {
    /// Binary operators, by their signs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum BinaryOp {
        Or = "or",
        And = "and",
        Equal = "==",
        NotEqual = "!=",
        Less = "<",
        LessEqual = "<=",
        Greater = ">",
        GreaterEqual = ">=",
        Add = "+",
        Subtract = "-",
        Multiply = "*",
        Divide = "/",
        Remainder = "%",
    }
}

impl BinaryOp {
    /// True if the operator compares two values.
    pub fn is_comparison(self) -> bool {
        use BinaryOp::*;
        matches!(self, Equal | NotEqual | Less | LessEqual | Greater | GreaterEqual)
    }
}

impl Expr {
    /// The name, if the expression consists only of a name; `None` otherwise.
    pub fn as_name(&self) -> Option<Symbol> {
        match self.kind {
            ExprKind::Name(symbol) => Some(symbol),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_the_first_sentence() {
        let summary = |about: &[&str]| {
            Ast { about: about.iter().map(|line| (*line).to_owned()).collect(), ..Ast::default() }.summary()
        };
        assert_eq!(summary(&[]), "");
        assert_eq!(summary(&["One line"]), "One line");
        assert_eq!(summary(&["A file about", "two lines. More of it", "follows."]), "A file about two lines.");
        assert_eq!(summary(&["", "Heading", "", "Text."]), "Heading");
        assert_eq!(summary(&["Is it fast? It is."]), "Is it fast?");
        assert_eq!(summary(&["Sizes, e.g. 1.5 MiB. Then B200 vs. others."]), "Sizes, e.g. 1.5 MiB.");
    }
}
