//! The value of an expression.

use std::sync::Arc;

use crate::base::units::Dimension;
use crate::base::{DType, Dims, SrcSpan, Symbol, ViewId, suggest};
use crate::syntax::ast::{BinaryOp, Expr, ExprKind, Name};

use super::analyzer::Analyzer;
use super::error::ModelError;
use super::value::{Number, Scalar, Value};
use super::views::Extent;

impl Analyzer<'_> {
    pub(super) fn eval(&mut self, expr: &Expr) -> Value {
        match &expr.kind {
            ExprKind::Int(value) => Value::int(*value),
            ExprKind::Float(value) => Value::Number(Number::float(*value)),
            ExprKind::Quantity { value, unit } => {
                let scaled = value * unit.factor;
                let whole = unit.dimension != Dimension::NONE && scaled.fract() == 0.0 && scaled.abs() < 9e15;
                let value = if whole { Scalar::Int(scaled as i64) } else { Scalar::Float(scaled) };
                Value::Number(Number { value, dimension: unit.dimension, rest: None })
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
                if let (BinaryOp::Remainder, Some(symbol)) = (op, left.as_name())
                    && symbol == self.builtins.iteration
                    && self.scopes.get(symbol).is_none()
                {
                    return self.iteration_remainder(expr, right);
                }
                let (a, b) = (self.eval(left), self.eval(right));
                self.binary(*op, a, b, (left.span, right.span), expr.span)
            }
            ExprKind::Call { callee, args } => self.function(*callee, args, expr.span),
            ExprKind::Index { base, items } => {
                let value = self.eval(base);
                self.index(value, base, items, expr.span)
            }
            ExprKind::Field { base, name } => {
                let value = self.eval(base);
                self.field(&value, base, *name)
            }
            ExprKind::List(items) => self.list(items, expr.span),
            ExprKind::If { arms, otherwise } => {
                for (condition, value) in arms {
                    match self.eval_bool(condition) {
                        Some(true) => return self.eval(value),
                        Some(false) => {}
                        None => return Value::Unknown,
                    }
                }
                self.eval(otherwise)
            }
        }
    }

    fn name(&mut self, symbol: Symbol, span: SrcSpan) -> Value {
        if let Some(value) = self.scopes.get(symbol) {
            return match value {
                Value::Output(cell) => self.written_output(*cell, symbol, span),
                value => value.clone(),
            };
        }
        if symbol == self.builtins.rank {
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
        // A family of labels that has no member yet is known all the same: its first turn may be guarded by `when`.
        if self.iteration.is_some() && self.label_families.contains(&symbol) {
            return Value::Labels(u32::MAX);
        }
        // A loop meets it in every turn.
        if self.bad_names.contains(&(span.start as usize)) || !self.listens() {
            return Value::Unknown;
        }
        let name = text.to_owned();
        let help = suggest::did_you_mean(&name, self.known_names().iter().map(String::as_str));
        self.error(ModelError::UnknownName { name, at: span.into(), help });
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
                self.error(ModelError::NotYet {
                    what: "`iteration` outside of the step".to_owned(),
                    help: "declarations are the same in every iteration; use it inside `step { … }`".to_owned(),
                    at: span.into(),
                });
                Value::Unknown
            }
        }
    }

    /// `iteration % n`, which needs a cycle of `n` iterations only.
    fn iteration_remainder(&mut self, expr: &Expr, right: &Expr) -> Value {
        let Some(iteration) = self.iteration else { return self.iteration(expr.span) };
        match self.eval_whole(right) {
            Some(modulus) if (1..=1 << 20).contains(&modulus) => {
                self.cycle_use.add(modulus);
                Value::int(iteration % modulus)
            }
            Some(0) => {
                self.error(ModelError::DivisionByZero { at: right.span.into() });
                Value::Unknown
            }
            Some(modulus) => {
                self.cycle_use.all = true;
                Value::int(iteration.rem_euclid(modulus))
            }
            None => Value::Unknown,
        }
    }

    // --- Expectations of a type -------------------------------------------------------------------------------

    /// The expression's value as a whole number without a unit.
    pub(super) fn eval_whole(&mut self, expr: &Expr) -> Option<i64> {
        match self.eval(expr) {
            Value::Unknown => None,
            Value::Number(number) if number.dimension == Dimension::NONE => self.whole(number, expr.span),
            other => self.wrong_type("a whole number", &other, expr.span),
        }
    }

    pub(super) fn eval_bool(&mut self, expr: &Expr) -> Option<bool> {
        match self.eval(expr) {
            Value::Unknown => None,
            Value::Bool(value) => Some(value),
            other => self.wrong_type("`true` or `false`", &other, expr.span),
        }
    }

    /// The number when it is whole, or an error that points at the division that left a rest.
    pub(super) fn whole(&mut self, number: Number, span: SrcSpan) -> Option<i64> {
        let whole = number.whole();
        if whole.is_none() {
            let division = number.rest.filter(|rest| *rest != span).map(Into::into);
            self.error(ModelError::NotWhole { value: number.text(), at: span.into(), division });
        }
        whole
    }

    pub(super) fn wrong_type<T>(&mut self, expected: &str, found: &Value, span: SrcSpan) -> Option<T> {
        if !matches!(found, Value::Unknown) {
            let help = match expected {
                "a stream" => Some("declare one with `stream s`, and write `on s { … }`"),
                "a label" => Some("name an operation that stands above: `f: nop()`, and write `f`"),
                "a tensor" => Some("write a buffer, a slice of one, the label of an operation, or a type: `f32[4, 8]`"),
                "a buffer" => Some("declare one: `buffer y: f32[4, 8]`"),
                "`true` or `false`" => Some("write a comparison, such as `n > 0`"),
                "a whole number" if matches!(found, Value::Number(_)) => {
                    Some("divide it by its unit for a plain number: `size / 1B`, `time / 1us`")
                }
                _ => None,
            };
            let (expected, found) = (expected.to_owned(), found.describe(&self.names));
            self.error(ModelError::WrongType { expected, found, at: span.into(), help: help.map(str::to_owned) });
        }
        None
    }

    // --- Operators --------------------------------------------------------------------------------------------

    pub(super) fn binary(
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
                self.member_by_member(op.text(), &left, &right, spans, each)
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
                        self.error(ModelError::UnitsDiffer {
                            op: op.text(),
                            help: "both sides have to be of one kind: two numbers, two texts, or two words",
                            left: left.describe(&self.names),
                            left_at: spans.0.into(),
                            right: right.describe(&self.names),
                            right_at: spans.1.into(),
                        });
                        Value::Unknown
                    }
                }
            }
        }
    }

    pub(super) fn units_differ(&mut self, op: &'static str, a: &Number, b: &Number, spans: (SrcSpan, SrcSpan)) {
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
            self.units_differ(op.text(), &a, &b, spans);
            return Value::Unknown;
        }
        if matches!(op, Divide | Remainder) && b.value.float() == 0.0 {
            self.error(ModelError::DivisionByZero { at: spans.1.into() });
            return Value::Unknown;
        }
        let dimension = match op {
            Multiply => a.dimension.times(b.dimension),
            Divide => a.dimension.times(b.dimension.inverse()),
            _ => Some(a.dimension),
        };
        let Some(dimension) = dimension else { return self.overflow(span) };
        let mut rest = a.rest.or(b.rest);
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
                self.error(ModelError::UnitsDiffer {
                    op: op.text(),
                    help: "both sides have to be conditions: `a > 0 and b > 0`",
                    left: a.text(),
                    left_at: spans.0.into(),
                    right: b.text(),
                    right_at: spans.1.into(),
                });
                return Value::Unknown;
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
                            rest = Some(span);
                            let value = Scalar::Float(x as f64 / y as f64);
                            return Value::Number(Number { value, dimension, rest });
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
        Value::Number(Number { value, dimension, rest })
    }

    // --- Indices and members ----------------------------------------------------------------------------------

    fn index(&mut self, value: Value, base: &Expr, items: &[Expr], span: SrcSpan) -> Value {
        match value {
            Value::Unknown => {
                for item in items {
                    self.eval(item);
                }
                Value::Unknown
            }
            Value::DType(dtype) => match self.sizes(items) {
                Some(dims) => Value::Type(dtype, dims),
                None => Value::Unknown,
            },
            Value::Stream { first, count: Some(count), family } => {
                let [item] = items else { return self.index_count(base, true, 1, items.len(), span) };
                match self.place(base, item, u64::from(count)) {
                    Some(index) => Value::Stream { first: first + index as u32, count: None, family },
                    None => Value::Unknown,
                }
            }
            Value::Tensor { view, family } => self.slice(view, family, base, items, span),
            Value::Label(_) => match self.single_output(&value, base.span) {
                Some(view) => self.slice(view, 0, base, items, span),
                None => Value::Unknown,
            },
            Value::Labels(family) => self.member(family, base, items, span),
            Value::List(list) => {
                let [item] = items else { return self.index_count(base, true, 1, items.len(), span) };
                match self.eval(item) {
                    Value::Range { from, to, .. } => {
                        if from < 0 || to > list.len() as i64 || from > to {
                            self.slice_out_of_range(base, from, to, list.len() as u64, item.span);
                            return Value::Unknown;
                        }
                        match self.room_for_members((to - from) as usize, span) {
                            true => Value::List(Arc::new(list[from as usize..to as usize].to_vec())),
                            false => Value::Unknown,
                        }
                    }
                    Value::Whole => Value::List(list),
                    value => match self.place_of(base, &value, item.span, list.len() as u64) {
                        Some(index) => list[index as usize].clone(),
                        None => Value::Unknown,
                    },
                }
            }
            other => {
                self.wrong_type::<()>(
                    "something with an index: a buffer, a family, a list or a type",
                    &other,
                    base.span,
                );
                Value::Unknown
            }
        }
    }

    /// The sizes of a type: whole numbers from 1 on.
    pub(super) fn sizes(&mut self, items: &[Expr]) -> Option<Dims> {
        let mut dims = Dims::new();
        let mut good = true;
        for item in items {
            let Some(size) = self.eval_whole(item) else {
                good = false;
                continue;
            };
            if size < 1 {
                self.error(ModelError::BadSize {
                    what: "a dimension".to_owned(),
                    value: size.to_string(),
                    at: item.span.into(),
                    help: "sizes begin at 1",
                });
                good = false;
            } else if dims.push(size as u64).is_none() {
                self.error(ModelError::BadSize {
                    what: "the number of dimensions".to_owned(),
                    value: items.len().to_string(),
                    at: item.span.into(),
                    help: "a tensor has at most 8, those of its family included",
                });
                return None;
            }
        }
        if good && dims.elements().and_then(|n| n.checked_mul(8)).is_none_or(|bytes| bytes > 1 << 60) {
            let at = items[0].span.to(items[items.len() - 1].span);
            self.error(ModelError::BadSize {
                what: "the number of elements".to_owned(),
                value: "past 2^57".to_owned(),
                at: at.into(),
                help: "lower a dimension",
            });
            good = false;
        }
        good.then_some(dims)
    }

    /// Says that something, a family or not, has another number of indices.
    fn index_count(&mut self, base: &Expr, family: bool, has: usize, given: usize, span: SrcSpan) -> Value {
        let name = self.text_of(base);
        let help = match (family, has) {
            (true, 1) => {
                format!("write one index: `{name}[0]`; a slice of the member stands behind: `{name}[0][0..4]`")
            }
            (true, _) => {
                let index: Vec<&str> = ["i", "j", "k", "l"].into_iter().cycle().take(has).collect();
                format!("write {has} indices: `{name}[{}]`", index.join(", "))
            }
            (false, 0) => format!("it is a single number: write `{name}`"),
            (false, _) => "write at most one index for each dimension; `..` stands for all of one".to_owned(),
        };
        let has = match (family, has) {
            (true, 1) => "one index".to_owned(),
            (true, has) => format!("{has} indices"),
            (false, 1) => "one dimension".to_owned(),
            (false, 0) => "no dimensions".to_owned(),
            (false, has) => format!("{has} dimensions"),
        };
        let given = format!("{given} {}", if given == 1 { "index" } else { "indices" });
        self.error(ModelError::IndexCount { name, has, given, at: span.into(), help: Some(help) });
        Value::Unknown
    }

    /// An index into `size` places.
    fn place(&mut self, base: &Expr, item: &Expr, size: u64) -> Option<u64> {
        let value = self.eval(item);
        self.place_of(base, &value, item.span, size)
    }

    fn place_of(&mut self, base: &Expr, value: &Value, at: SrcSpan, size: u64) -> Option<u64> {
        let index = match value {
            Value::Unknown => return None,
            Value::Number(number) if number.dimension == Dimension::NONE => self.whole(*number, at)?,
            other => return self.wrong_type("an index: a whole number", other, at),
        };
        if index >= 0 && (index as u64) < size {
            return Some(index as u64);
        }
        let name = self.text_of(base);
        self.error(ModelError::IndexOutOfRange { name, index, size, last: size as i64 - 1, at: at.into() });
        None
    }

    fn slice_out_of_range(&mut self, base: &Expr, from: i64, to: i64, size: u64, at: SrcSpan) {
        let name = self.text_of(base);
        self.error(ModelError::SliceOutOfRange { name, from, to, size, at: at.into() });
    }

    /// A slice of a tensor. The first bracket behind a family picks from the family's dimensions.
    fn slice(&mut self, view: ViewId, family: u8, base: &Expr, items: &[Expr], span: SrcSpan) -> Value {
        let kept: Vec<usize> = self.program.views.kept(view).collect();
        let open = if family > 0 { usize::from(family) } else { kept.len() };
        if items.len() > open || (family > 0 && items.len() != open) {
            return self.index_count(base, family > 0, open, items.len(), span);
        }
        let memory = self.program.views.memory(view);
        let mut extents = [Extent { start: 0, len: 0 }; Dims::MAX];
        let rank = self.program.views.extents(view).len();
        extents[..rank].copy_from_slice(self.program.views.extents(view));
        let mut mask = self.program.views.kept_mask(view);
        let mut good = true;
        for (item, &axis) in items.iter().zip(&kept) {
            let extent = extents[axis];
            match self.eval(item) {
                Value::Whole => {}
                Value::Range { from, to, reversed: false } => {
                    if from >= to && from >= 0 && to >= 0 && from <= extent.len as i64 {
                        self.error(ModelError::EmptySlice { at: item.span.into(), from, to });
                        good = false;
                    } else if from < 0 || from >= to || to > extent.len as i64 {
                        self.slice_out_of_range(base, from, to, extent.len, item.span);
                        good = false;
                    } else {
                        extents[axis] = Extent { start: extent.start + from as u64, len: (to - from) as u64 };
                    }
                }
                value => match self.place_of(base, &value, item.span, extent.len) {
                    Some(index) => {
                        extents[axis] = Extent { start: extent.start + index, len: 1 };
                        mask &= !(1 << axis);
                    }
                    None => good = false,
                },
            }
        }
        if !good {
            return Value::Unknown;
        }
        let layout = self.program.layout(memory);
        let view = self.program.views.intern(memory, &extents[..rank], mask, &layout);
        Value::Tensor { view, family: 0 }
    }

    pub(super) fn field(&mut self, value: &Value, base: &Expr, member: Name) -> Value {
        match value {
            Value::Unknown => Value::Unknown,
            Value::Label(label) => self.label_member(*label, base, member),
            other => {
                let name = self.text_of(base);
                let found = other.describe(&self.names);
                let help = format!("`{name}` is {found}; only labels have members");
                let member_text = self.names.name(member.symbol).to_owned();
                self.error(ModelError::UnknownMember {
                    name,
                    member: member_text,
                    at: member.span.into(),
                    help: Some(help),
                });
                Value::Unknown
            }
        }
    }

    /// A short text for an expression in messages: its name, as far as it has one.
    pub(super) fn text_of(&self, expr: &Expr) -> String {
        match &expr.kind {
            ExprKind::Name(symbol) => self.names.name(*symbol).to_owned(),
            ExprKind::Index { base, .. } => format!("{}[…]", self.text_of(base)),
            ExprKind::Field { base, name } => format!("{}.{}", self.text_of(base), self.names.name(name.symbol)),
            _ => "this".to_owned(),
        }
    }
}

/// What to write where the dimensions of two numbers do not go together.
pub(super) fn units_help(a: Dimension, b: Dimension) -> &'static str {
    match (a, b) {
        (Dimension::NONE, Dimension::TIME) | (Dimension::TIME, Dimension::NONE) => {
            "write a unit behind the plain number: `10us`"
        }
        (Dimension::NONE, Dimension::BYTES) | (Dimension::BYTES, Dimension::NONE) => {
            "write a unit behind the plain number: `64MiB`"
        }
        _ => "both sides have to measure the same; `*` and `/` combine what differs",
    }
}
