//! `map` and similar operations: lowers an expression over tensors to an expression per element.

use crate::base::units::Dimension;
use crate::base::{SrcSpan, ViewId, suggest};
use crate::ops::expression::{Binary, ExprNode, Unary};
use crate::ops::{self, Expression};
use crate::syntax::ast::{BinaryOp, Expr, ExprKind, Name};
use crate::syntax::written;

use crate::model::analyzer::Analyzer;
use crate::model::error::ModelError;
use crate::model::limits::INPUTS;
use crate::model::values::functions::of_tensor;
use crate::model::values::value::Value;

/// A part of the expression.
enum Lowered {
    /// A value known before the run.
    Plain(Value, SrcSpan),
    /// A value that differs between elements: the index of its node.
    Node(u16),
    Failed,
}

/// An elementwise expression under construction, with its tensors in the order of their first use.
#[derive(Debug, Default)]
pub(in crate::model) struct Lowering {
    pub expression: Expression,
    pub views: Vec<ViewId>,
    pub spans: Vec<SrcSpan>,
}

impl Lowering {
    /// Clears all fields for reuse.
    pub(in crate::model) fn clear(&mut self) {
        self.expression.clear();
        self.views.clear();
        self.spans.clear();
    }
}

impl Analyzer<'_> {
    /// Adds an elementwise expression as the next output of `lowering`. `None` after an error, which has been reported.
    pub(in crate::model) fn lower(&mut self, expr: &Expr, op: &str, lowering: &mut Lowering) -> Option<()> {
        let part = self.part(expr, op, lowering);
        let node = self.node(part, lowering)?;
        lowering.expression.finish(node);
        Some(())
    }

    fn part(&mut self, expr: &Expr, op: &str, lowering: &mut Lowering) -> Lowered {
        match &expr.kind {
            ExprKind::Negate(inner) => {
                let part = self.part(inner, op, lowering);
                self.unary_part(Unary::Negate, part, expr, lowering)
            }
            ExprKind::Not(inner) => {
                let part = self.part(inner, op, lowering);
                self.unary_part(Unary::Not, part, expr, lowering)
            }
            ExprKind::Binary { op: operator, left, .. } if self.is_remainder(*operator, left) => {
                self.leaf(expr, op, lowering)
            }
            ExprKind::Binary { op: operator, left, right } if is_order(*operator) && is_comparison_chain(left) => {
                let ExprKind::Binary { right: middle, .. } = &left.kind else { return Lowered::Failed };
                let [first, second, last] = [left, middle, right].map(|expr| written(expr, &self.names));
                self.error(ModelError::UnitsDiffer {
                    op: operator.name(),
                    help: format!("join two comparisons by `and`: `{first} and {second} {} {last}`", operator.name()),
                    left: "a condition".to_owned(),
                    left_at: left.span.into(),
                    right: "a value".to_owned(),
                    right_at: right.span.into(),
                });
                Lowered::Failed
            }
            ExprKind::Binary { op: operator, left, right } => {
                let (a, b) = (self.part(left, op, lowering), self.part(right, op, lowering));
                match (a, b) {
                    (Lowered::Failed, _) | (_, Lowered::Failed) => Lowered::Failed,
                    // The operators evaluate their right side only if needed.
                    (Lowered::Plain(..), Lowered::Plain(..)) if matches!(operator, BinaryOp::And | BinaryOp::Or) => {
                        Lowered::Plain(self.eval(expr), expr.span)
                    }
                    (Lowered::Plain(a, _), Lowered::Plain(b, _)) => {
                        let value = self.binary(*operator, a, b, (left.span, right.span), expr.span);
                        Lowered::Plain(value, expr.span)
                    }
                    (a, b) => self.binary_part(binary(*operator), a, b, expr.span, lowering),
                }
            }
            ExprKind::Call { callee, .. } if self.names.name(callee.symbol) == "view" => self.leaf(expr, op, lowering),
            ExprKind::Call { callee, args } => {
                let parts: Vec<Lowered> = args.iter().map(|arg| self.part(arg, op, lowering)).collect();
                if parts.iter().any(|part| matches!(part, Lowered::Failed)) {
                    return Lowered::Failed;
                }
                if parts.iter().all(|part| matches!(part, Lowered::Plain(..))) {
                    return Lowered::Plain(self.eval(expr), expr.span);
                }
                self.call_part(*callee, parts, expr, lowering)
            }
            ExprKind::If { arms, otherwise } => self.if_part(arms, otherwise, op, lowering),
            _ => self.leaf(expr, op, lowering),
        }
    }

    /// Lowers a name, a slice or a literal: a tensor is an input, everything else a plain value.
    fn leaf(&mut self, expr: &Expr, op: &str, lowering: &mut Lowering) -> Lowered {
        let view = match self.eval(expr) {
            Value::Unknown => return Lowered::Failed,
            Value::Type(dtype, dims) => {
                let name = self.names.intern(op);
                self.bare(dtype, *dims, name, expr.span)
            }
            value @ (Value::Tensor { .. } | Value::Label(_)) => match self.view_of(&value, expr.span) {
                Some(view) => view,
                None => return Lowered::Failed,
            },
            value => return Lowered::Plain(value, expr.span),
        };
        let input = lowering.views.iter().position(|known| *known == view).unwrap_or_else(|| {
            lowering.views.push(view);
            lowering.spans.push(expr.span);
            lowering.views.len() - 1
        });
        if lowering.views.len() > INPUTS {
            let (expected, given) = (format!("at most {INPUTS} tensors"), lowering.views.len());
            self.error(ModelError::argument_count(op, expected, given, expr.span, "make two operations of it"));
            return Lowered::Failed;
        }
        self.part_of_node(lowering.expression.push(ExprNode::Input(input as u8)), expr.span)
    }

    fn part_of_node(&mut self, node: Option<u16>, span: SrcSpan) -> Lowered {
        match node {
            Some(node) => Lowered::Node(node),
            None => {
                self.overflow(span);
                Lowered::Failed
            }
        }
    }

    /// The node of a part; a plain number becomes a constant.
    fn node(&mut self, part: Lowered, lowering: &mut Lowering) -> Option<u16> {
        match part {
            Lowered::Failed => None,
            Lowered::Node(node) => Some(node),
            Lowered::Plain(Value::Number(number), _) if number.dimension == Dimension::NONE => {
                lowering.expression.push_constant(number.value.float())
            }
            Lowered::Plain(Value::Bool(value), _) => lowering.expression.push_constant(f64::from(value)),
            Lowered::Plain(other, span) => self.wrong_type("a tensor or a plain number", &other, span),
        }
    }

    fn unary_part(&mut self, function: Unary, part: Lowered, expr: &Expr, lowering: &mut Lowering) -> Lowered {
        match part {
            Lowered::Failed => Lowered::Failed,
            Lowered::Plain(..) => Lowered::Plain(self.eval(expr), expr.span),
            Lowered::Node(node) => {
                self.part_of_node(lowering.expression.push(ExprNode::Unary(function, node)), expr.span)
            }
        }
    }

    fn binary_part(
        &mut self,
        function: Binary,
        a: Lowered,
        b: Lowered,
        span: SrcSpan,
        lowering: &mut Lowering,
    ) -> Lowered {
        let (Some(a), Some(b)) = (self.node(a, lowering), self.node(b, lowering)) else { return Lowered::Failed };
        self.part_of_node(lowering.expression.push(ExprNode::Binary(function, a, b)), span)
    }

    fn call_part(&mut self, callee: Name, parts: Vec<Lowered>, expr: &Expr, lowering: &mut Lowering) -> Lowered {
        let count = parts.len();
        let mut parts = parts.into_iter();
        let name = self.names.name(callee.symbol);
        match (Unary::from_name(name), Binary::from_name(name), count) {
            (Some(function), _, 1) => {
                let part = parts.next().unwrap_or(Lowered::Failed);
                self.unary_part(function, part, expr, lowering)
            }
            (_, Some(function), 2..) if function != Binary::Pow || count == 2 => {
                let mut best = parts.next().unwrap_or(Lowered::Failed);
                for part in parts {
                    best = self.binary_part(function, best, part, expr.span, lowering);
                }
                best
            }
            (None, None, _) => {
                let known: Vec<&str> = elementwise_functions().collect();
                let help = match suggest::nearest(name, known.iter().copied()) {
                    _ if ["sum", "mean"].contains(&name) => of_tensor(name),
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("for each element there are {}", suggest::listed(&known)),
                };
                let help = Some(help);
                let name = name.to_owned();
                self.error(ModelError::UnknownFunction { name, of: "", at: callee.span.into(), help });
                Lowered::Failed
            }
            (unary, ..) => {
                let expected = if unary.is_some() { "one argument" } else { "two arguments" };
                let help = match unary {
                    Some(_) => format!("write `{name}(x)`"),
                    None if count == 1 && ops::find(name).is_some() => of_tensor(name),
                    None => format!("write `{name}(x, y)`"),
                };
                self.error(ModelError::argument_count(name, expected, count, expr.span, help));
                Lowered::Failed
            }
        }
    }

    /// Lowers `if`: a plain condition selects one side; a condition on elements computes both.
    fn if_part(&mut self, arms: &[(Expr, Expr)], otherwise: &Expr, op: &str, lowering: &mut Lowering) -> Lowered {
        let Some(((condition, yes), rest)) = arms.split_first() else {
            return self.part(otherwise, op, lowering);
        };
        match self.part(condition, op, lowering) {
            Lowered::Failed => Lowered::Failed,
            Lowered::Plain(Value::Bool(true), _) => self.part(yes, op, lowering),
            Lowered::Plain(Value::Bool(false), _) => self.if_part(rest, otherwise, op, lowering),
            Lowered::Plain(other, span) => {
                self.wrong_type::<()>("`true` or `false`", &other, span);
                Lowered::Failed
            }
            Lowered::Node(condition) => {
                let yes_part = self.part(yes, op, lowering);
                let no_part = self.if_part(rest, otherwise, op, lowering);
                let (Some(a), Some(b)) = (self.node(yes_part, lowering), self.node(no_part, lowering)) else {
                    return Lowered::Failed;
                };
                self.part_of_node(lowering.expression.push(ExprNode::Select(condition, a, b)), yes.span)
            }
        }
    }
}

/// The elementwise function of an operator.
pub(in crate::model) fn binary(op: BinaryOp) -> Binary {
    match op {
        BinaryOp::Or => Binary::Or,
        BinaryOp::And => Binary::And,
        BinaryOp::Equal => Binary::Equal,
        BinaryOp::NotEqual => Binary::NotEqual,
        BinaryOp::Less => Binary::Less,
        BinaryOp::LessEqual => Binary::LessEqual,
        BinaryOp::Greater => Binary::Greater,
        BinaryOp::GreaterEqual => Binary::GreaterEqual,
        BinaryOp::Add => Binary::Add,
        BinaryOp::Subtract => Binary::Subtract,
        BinaryOp::Multiply => Binary::Multiply,
        BinaryOp::Divide => Binary::Divide,
        BinaryOp::Remainder => Binary::Remainder,
    }
}

/// True for an operator that compares by size.
fn is_order(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::Less | BinaryOp::LessEqual | BinaryOp::Greater | BinaryOp::GreaterEqual)
}

/// True for a comparison without parentheses around it. The location of an expression includes its parentheses.
fn is_comparison_chain(left: &Expr) -> bool {
    matches!(&left.kind, ExprKind::Binary { op, left: first, .. } if is_order(*op) && first.span.start == left.span.start)
}

/// The functions that `map` supports.
pub fn elementwise_functions() -> impl Iterator<Item = &'static str> {
    let unary = Unary::ALL.iter().filter(|f| Unary::from_name(f.name()).is_some()).map(|f| f.name());
    unary.chain(["max", "min", "pow"])
}
