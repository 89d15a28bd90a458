//! Parses expressions: precedence by pest's Pratt parser, with limited height.

use std::sync::LazyLock;

use pest::pratt_parser::{Assoc, Op, PrattParser};

use crate::base::suggest;
use crate::base::units::{self, UNITS};

use super::super::other_languages;
use super::*;

/// Maximum height of an expression's tree, which limits recursion in later passes.
const MAX_DEPTH: usize = 256;

/// Maximum depth of recursion while building a tree, which takes several calls per level of brackets.
const MAX_RECURSION: usize = 6 * MAX_DEPTH;

static PRATT: LazyLock<PrattParser<Rule>> = LazyLock::new(|| {
    PrattParser::new()
        .op(Op::infix(Rule::or, Assoc::Left))
        .op(Op::infix(Rule::and, Assoc::Left))
        .op(Op::prefix(Rule::not))
        .op(Op::infix(Rule::compare, Assoc::Left))
        .op(Op::infix(Rule::sum, Assoc::Left))
        .op(Op::infix(Rule::product, Assoc::Left))
        .op(Op::prefix(Rule::negate))
});

/// An expression and the height of its tree.
struct MeasuredExpr {
    expr: Expr,
    depth: usize,
}

impl MeasuredExpr {
    pub(super) fn leaf(span: SrcSpan, kind: ExprKind) -> MeasuredExpr {
        MeasuredExpr { expr: Expr { span, kind }, depth: 1 }
    }
}

impl<'a> Builder<'a> {
    pub(super) fn name(&mut self, at: &mut InnerPairs<'a>) -> Option<Name> {
        let item = at.next()?;
        Some(Name { symbol: self.names.intern(item.pair.as_str()), span: item.span() })
    }

    /// Parses a name, with the expressions in brackets after it.
    pub(super) fn name_and_index(&mut self, at: &mut InnerPairs<'a>) -> Option<Family> {
        let name = self.name(at)?;
        let count = match at.take(Rule::index) {
            Some(index) => self.exprs(index)?,
            None => Vec::new(),
        };
        Some(Family { name, count })
    }

    /// Parses the next expression of a rule.
    pub(super) fn next_expr(&mut self, at: &mut InnerPairs<'a>) -> Option<Expr> {
        let item = at.next()?;
        self.expr(item)
    }

    /// Parses a list of expressions.
    pub(super) fn exprs(&mut self, list: PlacedPair<'a>) -> Option<Vec<Expr>> {
        let mut at = list.inner();
        let mut exprs = Vec::new();
        while let Some(item) = at.next() {
            exprs.push(self.expr(item)?);
        }
        Some(exprs)
    }

    /// Parses an expression; `None` after an error, which has been reported.
    pub(super) fn expr(&mut self, item: PlacedPair<'a>) -> Option<Expr> {
        self.sized(item).map(|sized| sized.expr)
    }

    fn sized_list(&mut self, at: &mut InnerPairs<'a>) -> Option<(Vec<Expr>, usize)> {
        let mut exprs = Vec::new();
        let mut depth = 0;
        while let Some(item) = at.next() {
            let sized = self.sized(item)?;
            depth = depth.max(sized.depth);
            exprs.push(sized.expr);
        }
        Some((exprs, depth))
    }

    /// Builds an expression. Checks the height of its tree at each step.
    fn sized(&mut self, item: PlacedPair<'a>) -> Option<MeasuredExpr> {
        let span = item.span();
        if self.level > MAX_RECURSION {
            self.too_long(span);
            return None;
        }
        self.level += 1;
        let sized = self.sized_inner(item, span);
        self.level -= 1;
        sized
    }

    fn sized_inner(&mut self, item: PlacedPair<'a>, span: SrcSpan) -> Option<MeasuredExpr> {
        match item.pair.as_rule() {
            Rule::expr => {
                let inner = item.inner().next()?;
                self.sized(inner)
            }
            Rule::whole => Some(MeasuredExpr::leaf(span, ExprKind::Whole)),
            Rule::range => {
                let mut at = item.inner();
                let from = at.next()?;
                let from = self.sized(from)?;
                let Some(operator) = at.next() else { return Some(from) };
                let to = at.next()?;
                let to = self.sized(to)?;
                let depth = 1 + from.depth.max(to.depth);
                let kind = ExprKind::Range {
                    from: Box::new(from.expr),
                    to: Box::new(to.expr),
                    inclusive: operator.pair.as_str() == "..=",
                };
                self.limited(span, kind, depth)
            }
            Rule::term => self.term(item),
            Rule::postfix => self.postfix(item),
            // The location of an expression in parentheses includes them.
            Rule::primary => {
                let inner = item.inner().next()?;
                let mut sized = self.sized(inner)?;
                sized.expr.span = span;
                Some(sized)
            }
            Rule::cond => self.cond(item),
            Rule::quantity => self.quantity(item),
            Rule::string => Some(MeasuredExpr::leaf(span, ExprKind::Text(unquote(item.pair.as_str())))),
            Rule::boolean => Some(MeasuredExpr::leaf(span, ExprKind::Bool(item.pair.as_str() == "true"))),
            Rule::list => {
                let (items, depth) = self.sized_list(&mut item.inner())?;
                self.limited(span, ExprKind::List(items), depth + 1)
            }
            _ => {
                let symbol = self.names.intern(item.pair.as_str());
                Some(MeasuredExpr::leaf(span, ExprKind::Name(symbol)))
            }
        }
    }

    fn limited(&mut self, span: SrcSpan, kind: ExprKind, depth: usize) -> Option<MeasuredExpr> {
        if depth > MAX_DEPTH {
            self.too_long(span);
            return None;
        }
        Some(MeasuredExpr { expr: Expr { span, kind }, depth })
    }

    pub(super) fn too_long(&mut self, span: SrcSpan) {
        self.errors.push(SyntaxError::ExpressionTooLong { limit: MAX_DEPTH, at: span.into() });
    }

    fn term(&mut self, item: PlacedPair<'a>) -> Option<MeasuredExpr> {
        let span = item.span();
        let base = item.base;
        let pairs = item.pair.into_inner();
        if pairs.len() == 1 {
            let only = pairs.into_iter().next()?;
            return self.sized(PlacedPair { pair: only, base });
        }
        // Checked before pest's parser recurses over prefixes, and before a tree is built that is too deep to drop.
        if pairs.len() > 2 * MAX_DEPTH {
            self.too_long(span);
            return None;
        }
        let builder = std::cell::RefCell::new(self);
        PRATT
            .map_primary(|pair| builder.borrow_mut().sized(PlacedPair { pair, base }))
            .map_prefix(|operator, operand| {
                let operand = operand?;
                let span = item_span(&operator, base).to(operand.expr.span);
                let inner = Box::new(operand.expr);
                let kind = match operator.as_rule() {
                    Rule::not => ExprKind::Not(inner),
                    _ => ExprKind::Negate(inner),
                };
                builder.borrow_mut().limited(span, kind, operand.depth + 1)
            })
            .map_infix(|left, operator, right| {
                let (left, right) = (left?, right?);
                let span = left.expr.span.to(right.expr.span);
                let depth = 1 + left.depth.max(right.depth);
                let kind = ExprKind::Binary {
                    op: BinaryOp::from_name(operator.as_str())
                        .expect("the operators of the grammar are those of the tree"),
                    left: Box::new(left.expr),
                    right: Box::new(right.expr),
                };
                builder.borrow_mut().limited(span, kind, depth)
            })
            .parse(pairs)
    }

    fn postfix(&mut self, item: PlacedPair<'a>) -> Option<MeasuredExpr> {
        let mut at = item.inner();
        let first = at.next()?;
        let mut sized = self.sized(first)?;
        while let Some(suffix) = at.next() {
            sized = self.suffix(sized, suffix)?;
        }
        Some(sized)
    }

    fn suffix(&mut self, base: MeasuredExpr, suffix: PlacedPair<'a>) -> Option<MeasuredExpr> {
        let span = base.expr.span.to(suffix.span());
        match suffix.pair.as_rule() {
            Rule::call => {
                let ExprKind::Name(symbol) = base.expr.kind else {
                    let help = self.called_value(&base.expr.kind);
                    self.errors.push(SyntaxError::CallOfValue { help, at: base.expr.span.into() });
                    return None;
                };
                let callee = Name { symbol, span: base.expr.span };
                let (args, depth) = self.sized_list(&mut suffix.inner())?;
                self.limited(span, ExprKind::Call { callee, args }, depth + 1)
            }
            Rule::index => {
                let (items, depth) = self.sized_list(&mut suffix.inner())?;
                let base_expr = Box::new(base.expr);
                let kind = ExprKind::Index { base: base_expr, items };
                self.limited(span, kind, 1 + depth.max(base.depth))
            }
            _ => {
                let name = self.name(&mut suffix.inner())?;
                let kind = ExprKind::Field { base: Box::new(base.expr), name };
                self.limited(span, kind, base.depth + 1)
            }
        }
    }

    /// Help for a call of something that has no name, such as a method of a tensor.
    fn called_value(&self, callee: &ExprKind) -> String {
        let ExprKind::Field { name, .. } = callee else {
            return "functions are not values: write the function's name before the parentheses".to_owned();
        };
        match self.names.name(name.symbol) {
            "view" | "reshape" | "unsqueeze" | "squeeze" | "flatten" => {
                "values have no methods: other dimensions of the same elements are `view(x, [4, 8])`".to_owned()
            }
            "get_rank" | "get_world_size" | "device_count" => {
                "the number of this rank is `rank`, that of all `world`".to_owned()
            }
            name => format!("values have no methods: write `{name}(x)` with the value as its argument"),
        }
    }

    /// Parses the path of a stream, a label or a group: a name with fields and indices. `None` after an error.
    pub(super) fn path(&mut self, item: PlacedPair<'a>) -> Option<Expr> {
        let mut at = item.inner();
        let name = self.name(&mut at)?;
        let mut sized = MeasuredExpr::leaf(name.span, ExprKind::Name(name.symbol));
        while let Some(suffix) = at.next() {
            sized = self.suffix(sized, suffix)?;
        }
        Some(sized.expr)
    }

    fn cond(&mut self, item: PlacedPair<'a>) -> Option<MeasuredExpr> {
        let span = item.span();
        let mut at = item.inner();
        let mut values = Vec::new();
        let mut depth = 0;
        while let Some(inner) = at.next() {
            if matches!(inner.pair.as_rule(), Rule::kw_if | Rule::kw_else) {
                continue;
            }
            let sized = self.sized(inner)?;
            depth = depth.max(sized.depth);
            values.push(sized.expr);
        }
        if values.len() > 2 * MAX_DEPTH {
            self.too_long(span);
            return None;
        }
        let otherwise = Box::new(values.pop()?);
        let mut arms = Vec::new();
        let mut values = values.into_iter();
        while let (Some(condition), Some(value)) = (values.next(), values.next()) {
            arms.push((condition, value));
        }
        self.limited(span, ExprKind::If { arms, otherwise }, depth + 1)
    }

    fn quantity(&mut self, item: PlacedPair<'a>) -> Option<MeasuredExpr> {
        let span = item.span();
        let mut at = item.inner();
        let digits = at.next()?;
        let digits_text: String = digits.pair.as_str().chars().filter(|&c| c != '_').collect();
        let unit = match at.next() {
            None => None,
            Some(name) => {
                let text = name.pair.as_str();
                let Some(unit) = units::unit(text) else {
                    let is_last = self.errors.len() >= MAX_ERRORS;
                    self.errors.push(SyntaxError::UnknownUnit {
                        unit: text.to_owned(),
                        at: name.span().into(),
                        help: Some(unit_help(&digits_text, text)),
                    });
                    self.has_placeholder = true;
                    return (!is_last).then(|| MeasuredExpr::leaf(span, ExprKind::Int(0)));
                };
                Some(unit)
            }
        };
        let kind = match unit {
            None if digits_text.bytes().all(|byte| byte.is_ascii_digit()) => match digits_text.parse() {
                Ok(value) => ExprKind::Int(value),
                Err(_) => {
                    let help =
                        "integers go up to 9223372036854775807; write 1e20 for a larger number that need not be exact";
                    self.errors.push(SyntaxError::NumberTooLarge { help, at: span.into() });
                    return None;
                }
            },
            unit => match (digits_text.parse::<f64>(), unit) {
                (Ok(value), None) if value.is_finite() => ExprKind::Float(value),
                (Ok(value), Some(unit)) if (value * unit.factor).is_finite() => ExprKind::Quantity { value, unit },
                _ => {
                    let help = "the largest float is 1.7976931348623157e308";
                    self.errors.push(SyntaxError::NumberTooLarge { help, at: span.into() });
                    return None;
                }
            },
        };
        Some(MeasuredExpr::leaf(span, kind))
    }
}

/// The contents of a text literal. Escapes (`\n`, `\t`, `\"`, `\\`) are resolved in literals on one line.
pub(super) fn unquote(text: &str) -> String {
    if let Some(long) = text.strip_prefix("\"\"\"").and_then(|text| text.strip_suffix("\"\"\"")) {
        return long.to_owned();
    }
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    let mut out = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => match chars.next() {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some(other) => out.push(other),
                None => {}
            },
            (c, false) => out.push(c),
        }
    }
    out
}

/// Help for an unknown unit: the unit that was probably meant, or where all units are listed.
fn unit_help(number: &str, text: &str) -> String {
    let meant = other_languages::unit(number, text);
    let near =
        || suggest::nearest(text, UNITS.iter().map(|unit| unit.name)).map(|near| format!("did you mean `{near}`?"));
    meant.or_else(near).unwrap_or_else(|| {
        "units are `%`, `ns` to `s`, `B` to `TiB` and `TB`, `FLOP` to `TFLOP`, and rates such as `GB/s`".to_owned()
    })
}
