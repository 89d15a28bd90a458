//! Evaluates expressions.

use crate::base::units::Dimension;
use crate::base::{DType, SrcSpan, Symbol};
use crate::syntax::ast::{BinaryOp, Expr, ExprKind};
use crate::syntax::written;

use super::value::{LARGEST_WHOLE, Number, NumberOrigin, Scalar, Value};
use crate::model::analyzer::Analyzer;
use crate::model::error::ModelError;
use crate::model::names::unknown::{self, NameRole};

impl Analyzer<'_> {
    /// Evaluates an expression. Returns an unknown value after an error, which has been reported.
    pub(in crate::model) fn eval(&mut self, expr: &Expr) -> Value {
        match &expr.kind {
            ExprKind::Int(value) => Value::int(*value),
            ExprKind::Float(value) => Value::Number(Number::float(*value)),
            ExprKind::Quantity { value, unit } => {
                let scaled = value * unit.factor;
                let whole = unit.dimension != Dimension::NONE && scaled.fract() == 0.0 && scaled.abs() < LARGEST_WHOLE;
                let value = if whole { Scalar::Int(scaled as i64) } else { Scalar::Float(scaled) };
                let origin = if unit.name == "%" { NumberOrigin::Percent } else { NumberOrigin::Plain };
                Value::Number(Number { value, dimension: unit.dimension, origin })
            }
            ExprKind::Text(text) => Value::Text(text.as_str().into()),
            ExprKind::Bool(value) => Value::Bool(*value),
            ExprKind::Name(symbol) => self.name(*symbol, expr.span),
            ExprKind::Whole => Value::Whole,
            ExprKind::Range { from, to, inclusive } => {
                let bounds = (self.eval_whole(from), self.eval_whole(to));
                let (Some(from), Some(to)) = bounds else { return Value::Unknown };
                let to = if *inclusive { to.saturating_add(1) } else { to };
                Value::Range { from, to, reversed: false }
            }
            ExprKind::Negate(inner) => {
                let value = self.eval(inner);
                if !matches!(value, Value::Number(_) | Value::List(_)) {
                    self.wrong_type::<()>("a number", &value, inner.span);
                    return Value::Unknown;
                }
                self.binary(BinaryOp::Multiply, Value::int(-1), value, (expr.span, inner.span), expr.span)
            }
            ExprKind::Not(inner) => match self.eval_bool(inner) {
                Some(value) => Value::Bool(!value),
                None => Value::Unknown,
            },
            ExprKind::Binary { op: op @ (BinaryOp::And | BinaryOp::Or), left, right } => {
                match (self.eval_bool(left), op) {
                    (None, _) => Value::Unknown,
                    (Some(false), BinaryOp::And) => Value::Bool(false),
                    (Some(true), BinaryOp::Or) => Value::Bool(true),
                    _ => self.eval_bool(right).map_or(Value::Unknown, Value::Bool),
                }
            }
            ExprKind::Binary { op, left, right } => {
                if self.is_remainder(*op, left) {
                    return self.iteration_remainder(expr, right);
                }
                let (a, b) = (self.eval(left), self.eval(right));
                if let (Value::Number(x), Value::Number(y)) = (&a, &b)
                    && let (Some(x), Some(y)) = (plain(x), plain(y))
                    && let Some(result) = whole(*op, x, y)
                {
                    return match result {
                        Whole::Number(value) => Value::int(value),
                        Whole::Truth(value) => Value::Bool(value),
                    };
                }
                self.binary(*op, a, b, (left.span, right.span), expr.span)
            }
            ExprKind::Call { callee, args } => self.function(*callee, args, expr.span),
            ExprKind::Index { base, items } => {
                let value = self.eval(base);
                self.index(value, base, items, expr.span)
            }
            ExprKind::Field { base, name } => {
                let value = match self.named_group(base) {
                    Some(group) => Value::Group(group),
                    None => self.eval(base),
                };
                self.field(&value, base, *name)
            }
            ExprKind::List(items) => self.list(items, expr.span),
            ExprKind::If { .. } => match self.chosen(expr) {
                Some(chosen) => self.eval(chosen),
                None => Value::Unknown,
            },
        }
    }

    /// The value that a conditional expression chooses, not evaluated; the expression itself if it is not conditional. `None`
    /// if a condition has a mistake.
    pub(in crate::model) fn chosen<'e>(&mut self, mut expr: &'e Expr) -> Option<&'e Expr> {
        while let ExprKind::If { arms, otherwise } = &expr.kind {
            expr = otherwise;
            for (condition, value) in arms {
                if self.eval_bool(condition)? {
                    expr = value;
                    break;
                }
            }
        }
        Some(expr)
    }

    fn name(&mut self, symbol: Symbol, span: SrcSpan) -> Value {
        if let Some(value) = self.scopes.get(symbol) {
            return match value {
                Value::Draw(draw) => self.drawn(*draw, symbol, span),
                Value::Output(cell) => self.written_output(*cell, symbol, span),
                Value::Group(group) => self.group_value(*group),
                value => value.clone(),
            };
        }
        if symbol == self.builtins.rank {
            self.program.by_rank = true;
            return Value::int(i64::from(self.options.rank));
        }
        if symbol == self.builtins.world {
            return Value::int(i64::from(self.options.world));
        }
        if symbol == self.builtins.iteration {
            return self.iteration(span);
        }
        let text = self.names.name(symbol);
        if let Some(dtype) = DType::from_name(text) {
            return Value::DType(dtype);
        }
        if self.words.contains(&symbol) {
            return Value::Word(symbol);
        }
        // A family of labels without members is known too: its first turn may be guarded by `when`.
        if self.expansion.in_block && self.label_families.contains(&symbol) {
            return Value::Labels(u32::MAX);
        }
        // The name may have been reported in an earlier turn of a loop.
        if self.bad_names.contains(&(span.start as usize)) || !self.has_room_for_errors() {
            return Value::Unknown;
        }
        let name = text.to_owned();
        let help = unknown::help(&name, NameRole::Any, self.known_names().iter().map(String::as_str));
        self.error(ModelError::UnknownName { name, at: span.into(), help: Some(help) });
        self.bad_names.insert(span.start as usize);
        Value::Unknown
    }

    fn iteration(&mut self, span: SrcSpan) -> Value {
        match self.iteration {
            Some(iteration) => {
                self.cycle_use.all = true;
                Value::int(iteration)
            }
            None => {
                self.fail_value(ModelError::OutsideStep { name: "iteration".to_owned(), more: "", at: span.into() })
            }
        }
    }

    /// True for an expression `iteration % …`.
    pub(in crate::model) fn is_remainder(&self, op: BinaryOp, left: &Expr) -> bool {
        op == BinaryOp::Remainder
            && left.as_name() == Some(self.builtins.iteration)
            && self.scopes.get(self.builtins.iteration).is_none()
    }

    /// Evaluates `iteration % n`, which needs a cycle of `n` iterations only.
    fn iteration_remainder(&mut self, expr: &Expr, right: &Expr) -> Value {
        let Some(iteration) = self.iteration else { return self.iteration(expr.span) };
        match self.eval_whole(right) {
            Some(modulus) if (1..=1 << 20).contains(&modulus) => {
                self.cycle_use.add(modulus);
                Value::int(iteration % modulus)
            }
            Some(0) => self.fail_value(ModelError::DivisionByZero { at: right.span.into() }),
            Some(modulus) => {
                self.cycle_use.all = true;
                Value::int(iteration.rem_euclid(modulus))
            }
            None => Value::Unknown,
        }
    }

    // --- Expectations of a type -------------------------------------------------------------------------------

    /// Fast path for expressions of plain whole numbers and variables, as most indices in loops are. `None` if it is
    /// any other expression, or if an error must be reported.
    pub(in crate::model) fn plain_whole(&self, expr: &Expr) -> Option<i64> {
        match &expr.kind {
            ExprKind::Int(value) => Some(*value),
            ExprKind::Name(symbol) => match self.scopes.get(*symbol)? {
                Value::Number(number) => plain(number),
                _ => None,
            },
            ExprKind::Binary { op, left, right } => {
                let (a, b) = (self.plain_whole(left)?, self.plain_whole(right)?);
                match whole(*op, a, b)? {
                    Whole::Number(value) => Some(value),
                    Whole::Truth(_) => None,
                }
            }
            _ => None,
        }
    }

    /// Evaluates an expression that must be a whole number without a unit. `None` after an error, which has been reported.
    pub(in crate::model) fn eval_whole(&mut self, expr: &Expr) -> Option<i64> {
        if let Some(value) = self.plain_whole(expr) {
            return Some(value);
        }
        match self.eval(expr) {
            Value::Unknown => None,
            Value::Number(number) if number.dimension == Dimension::NONE => self.whole(number, expr.span),
            other => self.wrong_type("a whole number", &other, expr.span),
        }
    }

    /// Evaluates a condition. `None` after an error, which has been reported.
    pub(in crate::model) fn eval_bool(&mut self, expr: &Expr) -> Option<bool> {
        match self.eval(expr) {
            Value::Unknown => None,
            Value::Bool(value) => Some(value),
            other => self.wrong_type("`true` or `false`", &other, expr.span),
        }
    }

    /// Converts a number to a whole one. `None` after an error, which points at the division that left a remainder.
    pub(in crate::model) fn whole(&mut self, number: Number, span: SrcSpan) -> Option<i64> {
        let whole = number.whole();
        if whole.is_none() {
            let (division, help) = match number.origin {
                NumberOrigin::Division(at) => (
                    (at != span).then(|| at.into()),
                    "write `floor_div(a, b)` or `ceil_div(a, b)` for a division without a remainder, or change what is \
                     divided",
                ),
                NumberOrigin::Percent => {
                    (None, "a percentage is a share: write a number, or multiply: `floor(n * 25%)`")
                }
                _ if number.value.float().abs() >= LARGEST_WHOLE => (None, "it is too large: write a smaller number"),
                _ => (None, "write a whole number, or `floor(x)` or `ceil(x)` for one near `x`"),
            };
            self.error(ModelError::NotWhole { value: number.exact_text(), at: span.into(), division, help });
        }
        whole
    }

    /// Reports a value of another type than `expected`, unless an error about it has been reported. Always `None`.
    pub(in crate::model) fn wrong_type<T>(&mut self, expected: &str, found: &Value, span: SrcSpan) -> Option<T> {
        if !matches!(found, Value::Unknown) {
            let help = match expected {
                _ if matches!(found, Value::Group(_)) => Some(
                    "a group is not a number: `tp.size` is the number of ranks in the group `tp`, `tp.rank` the \
                     number of this one",
                ),
                "a tensor or a plain number" if matches!(found, Value::Number(_)) => {
                    Some("the elements of a tensor have no unit: leave it out")
                }
                "a range or a list" => Some("allowed values are a range, `in 1..=16`, or a list, `in [1, 4]`"),
                "a label" if matches!(found, Value::Stream { .. }) => {
                    Some("a block waits for operations: label the last one on that stream, `f: …`, and write `after f`")
                }
                "a label" if matches!(found, Value::Tensor { .. }) => {
                    Some("a block waits for operations: label the one that writes it, `f: …`, and write `after f`")
                }
                "a range, such as `0..n`, or a list" if matches!(found, Value::Tensor { .. } | Value::Label(_)) => {
                    Some("the turns of a loop are known before the run: write `0..n`")
                }
                "a tensor type, such as `f32[n]`" if matches!(found, Value::List(_)) => {
                    Some("write the element type before the brackets: `f32[64]`")
                }
                "a tensor type, such as `f32[n]`" => Some("write an element type with its sizes: `f32[4, 8]`"),
                "a stream" => Some("declare one with `stream s`, and write `on s { … }`"),
                "a label" => Some("name an operation above: `f: nop()`, and write `f`"),
                "a range, such as `0..n`, or a list" if matches!(found, Value::Number(_)) => {
                    Some("a number is not a range: write `0..n` for `n` turns")
                }
                "factors of a mesh" => Some(
                    "groups are the factors of a `mesh`: declare `mesh dp = world / 2, tp = 2`, and write `over tp`",
                ),
                "a tensor or a plain number" if matches!(found, Value::List(_)) => Some(unknown::LIST_OF_ELEMENTS),
                "`true` or `false`, or a list with one of them for each output" => {
                    Some("write `true`, or a comparison, such as `n > 0`; for two outputs, `[false, true]`")
                }
                "a number" if matches!(found, Value::Tensor { .. }) => Some(
                    "the elements of a tensor are known only during the run: write a number, a figure or a `param`",
                ),
                "a number without a unit" if matches!(found, Value::Tensor { .. }) => Some(
                    "the kernel declares a number here: for a tensor, write its sizes in the signature, `x: f32[n]`",
                ),
                "an index: a whole number" if matches!(found, Value::List(_)) => {
                    Some("pick one of the list: `d[0]`, or `d[i]` in a loop over `i`")
                }
                "a number of compute units, or a share" => {
                    Some("write how many, `units: 64`, or a share of all, `units: 25%`")
                }
                "a tensor" => Some("write a buffer, a slice of one, the label of an operation, or a type: `f32[4, 8]`"),
                "a buffer" => Some("declare one: `buffer y: f32[4, 8]`"),
                "a list of weights, such as `[3, 1]`" => Some("write a weight for each value or place"),
                "`true` or `false`" => Some("write a comparison, such as `n > 0`"),
                "an index: a whole number" if matches!(found, Value::Tensor { .. } | Value::Label(_)) => Some(
                    "the elements of a tensor are known only during the run: `gather(x, i)` selects rows by a tensor",
                ),
                "a whole number" if matches!(found, Value::Tensor { .. } | Value::Label(_)) => Some(
                    "the elements of a tensor are known only during the run, and this number before it: take a `param`, a `let` \
                     or a `draw`",
                ),
                "a whole number" if matches!(found, Value::Whole) => Some("write each size: `f32[4, 8]`"),
                "a whole number" | "an index: a whole number" if let Value::Number(number) = found => {
                    Some(match number.dimension {
                        Dimension::BYTES => "divide it by the size of an element: `size / sizeof(f32)`",
                        _ => "divide it by a unit for a plain number: `size / 1B`, `time / 1us`",
                    })
                }
                _ if expected.starts_with("one of ") => Some("write one of these words, without quotes"),
                _ => None,
            };
            let named = match (expected, found) {
                ("a stream", Value::Group(group)) => Some(format!(
                    "a group follows its collective: `all_reduce(x -> x) over {}`; a stream is declared, `stream s`",
                    self.program.groups[group.index()].name
                )),
                ("a tensor" | "a tensor or a plain number", Value::Labels(family)) => Some(format!(
                    "pick one of its operations: `{}`; to use all as one tensor, write them to the members of a family of \
                     buffers, which is stacked along a new first dimension",
                    self.first_label(*family)
                )),
                _ => found.parts_help(&self.names),
            };
            let help = unquoted(expected, found).or(named).or(help.map(str::to_owned));
            let (expected, found) = (expected.to_owned(), found.describe(&self.names));
            self.error(ModelError::WrongType { expected, found, at: span.into(), help });
        }
        None
    }

    // --- Operators --------------------------------------------------------------------------------------------

    /// Applies a binary operator to two values. `spans` are the locations of the operands, `span` that of the whole
    /// expression.
    pub(in crate::model) fn binary(
        &mut self,
        op: BinaryOp,
        left: Value,
        right: Value,
        spans: (SrcSpan, SrcSpan),
        span: SrcSpan,
    ) -> Value {
        match (&left, &right) {
            (Value::Unknown, _) | (_, Value::Unknown) => Value::Unknown,
            (Value::Number(a), Value::Number(b)) => self.arithmetic(op, *a, *b, spans, span),
            (Value::List(_), _) | (_, Value::List(_)) => {
                let each = |this: &mut Self, a: &Value, b: &Value| this.binary(op, a.clone(), b.clone(), spans, span);
                self.member_by_member(op.name(), &left, &right, spans, each)
            }
            _ => {
                let equal = match (&left, &right) {
                    (Value::Bool(a), Value::Bool(b)) => Some(a == b),
                    (Value::Text(a), Value::Text(b)) => Some(a == b),
                    (Value::Word(a), Value::Word(b)) => Some(a == b),
                    (Value::DType(a), Value::DType(b)) => Some(a == b),
                    (Value::Word(_), Value::DType(_)) | (Value::DType(_), Value::Word(_)) => Some(false),
                    _ => None,
                };
                match (op, equal) {
                    (BinaryOp::Equal, Some(equal)) => Value::Bool(equal),
                    (BinaryOp::NotEqual, Some(equal)) => Value::Bool(!equal),
                    _ => {
                        let parts = [&left, &right].into_iter().find_map(|value| value.parts_help(&self.names));
                        let help = parts.unwrap_or_else(|| operands_help(op, &left, &right));
                        self.values_differ(op.name(), help, (&left, &right), spans);
                        Value::Unknown
                    }
                }
            }
        }
    }

    /// Reports two operands that an operator cannot combine.
    pub(super) fn values_differ(
        &mut self,
        op: &'static str,
        help: String,
        (left, right): (&Value, &Value),
        spans: (SrcSpan, SrcSpan),
    ) {
        let [left, right] = [left, right].map(|value| value.describe(&self.names));
        self.error(ModelError::UnitsDiffer {
            op,
            help,
            left,
            left_at: spans.0.into(),
            right,
            right_at: spans.1.into(),
        });
    }

    /// Reports an operator whose operands have different units.
    pub(in crate::model) fn units_differ(
        &mut self,
        op: &'static str,
        a: &Number,
        b: &Number,
        spans: (SrcSpan, SrcSpan),
    ) {
        self.error(ModelError::UnitsDiffer {
            op,
            help: units_help(a.dimension, b.dimension),
            left: a.dimension.describe(),
            left_at: spans.0.into(),
            right: b.dimension.describe(),
            right_at: spans.1.into(),
        });
    }

    fn arithmetic(&mut self, op: BinaryOp, a: Number, b: Number, spans: (SrcSpan, SrcSpan), span: SrcSpan) -> Value {
        use BinaryOp::*;
        let alike = !matches!(op, Multiply | Divide);
        if alike && a.dimension != b.dimension {
            self.units_differ(op.name(), &a, &b, spans);
            return Value::Unknown;
        }
        if matches!(op, Divide | Remainder) && b.value.float() == 0.0 {
            return self.fail_value(ModelError::DivisionByZero { at: spans.1.into() });
        }
        let dimension = match op {
            Multiply => a.dimension.times(b.dimension),
            Divide => a.dimension.times(b.dimension.inverse()),
            _ => Some(a.dimension),
        };
        let Some(dimension) = dimension else { return self.overflow(span) };
        let origin = match (a.origin, b.origin) {
            (NumberOrigin::Percent, NumberOrigin::Percent) if matches!(op, Add | Subtract) => NumberOrigin::Percent,
            (NumberOrigin::Division(at), _) | (_, NumberOrigin::Division(at)) => NumberOrigin::Division(at),
            _ => NumberOrigin::Plain,
        };
        let compared = |ordering: fn(&f64, &f64) -> bool, whole: fn(&i64, &i64) -> bool| match (a.value, b.value) {
            (Scalar::Int(a), Scalar::Int(b)) => Value::Bool(whole(&a, &b)),
            _ => Value::Bool(ordering(&a.value.float(), &b.value.float())),
        };
        let value = match op {
            Equal => return compared(f64::eq, i64::eq),
            NotEqual => return compared(f64::ne, i64::ne),
            Less => return compared(f64::lt, i64::lt),
            LessEqual => return compared(f64::le, i64::le),
            Greater => return compared(f64::gt, i64::gt),
            GreaterEqual => return compared(f64::ge, i64::ge),
            And | Or => {
                return self.fail_value(ModelError::UnitsDiffer {
                    op: op.name(),
                    help: "both sides have to be conditions: `a > 0 and b > 0`".to_owned(),
                    left: a.text(),
                    left_at: spans.0.into(),
                    right: b.text(),
                    right_at: spans.1.into(),
                });
            }
            Add | Subtract | Multiply | Divide | Remainder => match (a.value, b.value) {
                (Scalar::Int(x), Scalar::Int(y)) => {
                    let whole = match op {
                        Add => x.checked_add(y),
                        Subtract => x.checked_sub(y),
                        Multiply => x.checked_mul(y),
                        Remainder => x.checked_rem_euclid(y).map(|r| if y < 0 && r != 0 { r + y } else { r }),
                        _ if x.checked_rem(y) == Some(0) => x.checked_div(y),
                        _ => {
                            let value = Scalar::Float(x as f64 / y as f64);
                            return Value::Number(Number { value, dimension, origin: NumberOrigin::Division(span) });
                        }
                    };
                    match whole {
                        Some(value) => Scalar::Int(value),
                        None => return self.overflow(span),
                    }
                }
                (x, y) => {
                    let (x, y) = (x.float(), y.float());
                    let value = match op {
                        Add => x + y,
                        Subtract => x - y,
                        Multiply => x * y,
                        Divide => x / y,
                        _ => x - y * (x / y).floor(),
                    };
                    if !value.is_finite() {
                        return self.overflow(span);
                    }
                    Scalar::Float(value)
                }
            },
        };
        Value::Number(Number { value, dimension, origin })
    }

    /// A short text for an expression in messages: its name if it has one.
    pub(in crate::model) fn text_of(&self, expr: &Expr) -> String {
        match &expr.kind {
            ExprKind::Name(symbol) => self.names.name(*symbol).to_owned(),
            ExprKind::Index { .. } | ExprKind::Field { .. } | ExprKind::Call { .. } | ExprKind::List(_) => {
                written(expr, &self.names)
            }
            _ => "this".to_owned(),
        }
    }
}

/// Returns the value of a whole number without a unit and without a division to report; `None` otherwise.
pub(in crate::model) fn plain(number: &Number) -> Option<i64> {
    match number {
        Number { value: Scalar::Int(value), dimension: Dimension::NONE, origin: NumberOrigin::Plain } => Some(*value),
        _ => None,
    }
}

/// The result of an operator on two plain whole numbers.
enum Whole {
    Number(i64),
    Truth(bool),
}

/// Applies an operator; `None` if the result is not whole, or if an error must be reported.
fn whole(op: BinaryOp, x: i64, y: i64) -> Option<Whole> {
    match op {
        BinaryOp::Add => x.checked_add(y).map(Whole::Number),
        BinaryOp::Subtract => x.checked_sub(y).map(Whole::Number),
        BinaryOp::Multiply => x.checked_mul(y).map(Whole::Number),
        BinaryOp::Remainder if y > 0 => Some(Whole::Number(x.rem_euclid(y))),
        BinaryOp::Equal => Some(Whole::Truth(x == y)),
        BinaryOp::NotEqual => Some(Whole::Truth(x != y)),
        BinaryOp::Less => Some(Whole::Truth(x < y)),
        BinaryOp::LessEqual => Some(Whole::Truth(x <= y)),
        BinaryOp::Greater => Some(Whole::Truth(x > y)),
        BinaryOp::GreaterEqual => Some(Whole::Truth(x >= y)),
        _ => None,
    }
}

/// Help for an operator whose operands are not numbers.
fn operands_help(op: BinaryOp, left: &Value, right: &Value) -> String {
    let computed = |value: &Value| matches!(value, Value::Tensor { .. } | Value::Label(_) | Value::Labels(_));
    match (op, left, right) {
        (_, Value::Group(_), _) | (_, _, Value::Group(_)) => {
            "a group is not a number: `tp.size` is the number of ranks in the group `tp`, `tp.rank` the number of \
             this one"
                .to_owned()
        }
        (_, Value::Labels(_), _) | (_, _, Value::Labels(_)) => {
            "pick a member of the family, `f[0]`; to compute with all members, let each write its part of one buffer, \
             `f[i]: … -> all[i]`, and name that buffer"
                .to_owned()
        }
        _ if op.is_comparison() && (computed(left) || computed(right)) => {
            "an `if` or a `let` is decided before the run, and the elements of a tensor are known only during it: `map` \
             chooses for each element, `map(if x > 3 { x } else { 0 } -> y)`"
                .to_owned()
        }
        _ if computed(left) || computed(right) => {
            "the elements of a tensor are known only during the run, and `map(…)` computes with them: write the expression there, \
             not in a `let` or a `view`, or give it a label, `y: map(…)`"
                .to_owned()
        }
        (BinaryOp::Equal | BinaryOp::NotEqual, Value::Word(_), Value::Text(text))
        | (BinaryOp::Equal | BinaryOp::NotEqual, Value::Text(text), Value::Word(_)) => {
            format!("write the word without quotes: `{text}`")
        }
        (BinaryOp::Equal | BinaryOp::NotEqual, ..) => {
            "both sides have to be of one kind: two numbers, two texts, or two words".to_owned()
        }
        (_, Value::Bool(_), _) if op.is_comparison() => "two comparisons are joined by `and`: `1 < n and n < 3`".to_owned(),
        _ => "it applies to numbers only".to_owned(),
    }
}

/// Help for two numbers whose dimensions do not match.
pub(in crate::model) fn units_help(a: Dimension, b: Dimension) -> String {
    let example = match (a, b) {
        (Dimension::NONE, of) | (of, Dimension::NONE) => of.example(),
        _ => None,
    };
    let rate = Dimension::NONE.times(Dimension::TIME.inverse());
    match example {
        None if [(Some(a), Some(b)), (Some(b), Some(a))].contains(&(Some(Dimension::NONE), rate)) => {
            "a number per second is written `1e3 / 1s`".to_owned()
        }
        Some(unit) => {
            format!("write a unit after the plain number, such as `{unit}`, or divide the other side by `{unit}`")
        }
        None => "both sides need the same dimension; `*` and `/` combine different ones".to_owned(),
    }
}

/// Help for a text where a number, a word, a name or an expression is expected: what it holds, without quotes. `None` for another value.
fn unquoted(expected: &str, found: &Value) -> Option<String> {
    let Value::Text(text) = found else { return None };
    let names = ["a tensor", "a tensor or a plain number", "a buffer", "a stream", "a label"].contains(&expected);
    let is_number = expected.contains("number") && text.parse::<f64>().is_ok();
    let is_word = names || expected.contains(&format!("`{text}`"));
    let fits = !text.is_empty() && !text.contains('\n') && (is_number || is_word);
    fits.then(|| format!("leave out the quotes: `{text}`"))
}
