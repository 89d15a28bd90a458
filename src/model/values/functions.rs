//! Functions of plain values.

use std::sync::Arc;

use crate::base::units::Dimension;
use crate::base::{DType, Interner, SrcSpan, suggest};
use crate::ops;
use crate::ops::expression::{Binary, Unary};
use crate::syntax::ast::{BinaryOp, Expr, ExprKind, Name};
use crate::syntax::{loop_with_step, written};

use super::value::{LARGEST_WHOLE, Number, NumberOrigin, Scalar, Value};
use crate::model::analyzer::Analyzer;
use crate::model::error::ModelError;
use crate::model::names::shipped;

/// Every function of plain values. `map` has the elementwise ones too.
pub const FUNCTIONS: &[&str] = &[
    "abs",
    "ceil",
    "ceil_div",
    "cos",
    "erf",
    "exp",
    "floor",
    "floor_div",
    "gelu",
    "len",
    "log",
    "log2",
    "max",
    "mean",
    "min",
    "pow",
    "relu",
    "rev",
    "round",
    "rsqrt",
    "sigmoid",
    "silu",
    "sin",
    "sizeof",
    "sqrt",
    "sum",
    "tanh",
    "view",
];

impl Analyzer<'_> {
    /// Evaluates a call of a function such as `min` or `floor_div`. Returns an unknown value after an error, which has
    /// been reported.
    pub(in crate::model) fn function(&mut self, callee: Name, args: &[Expr], span: SrcSpan) -> Value {
        let wanted = self.names.name(callee.symbol);
        let Some(name) = FUNCTIONS.iter().find(|known| **known == wanted) else {
            let (name, help) = (wanted.to_owned(), Some(unknown_function_help(wanted, false, args, &self.names)));
            return self.fail_value(ModelError::UnknownFunction { name, of: "", at: callee.span.into(), help });
        };
        let values: Vec<Value> = args.iter().map(|arg| self.eval(arg)).collect();
        if values.iter().any(|value| matches!(value, Value::Unknown)) {
            return Value::Unknown;
        }
        let members = values.iter().map(|value| if let Value::List(items) = value { items.len() } else { 0 }).sum();
        if !self.room_for_members(members, span) {
            return Value::Unknown;
        }
        self.apply(name, &values, args, span)
    }

    fn apply(&mut self, name: &str, values: &[Value], args: &[Expr], span: SrcSpan) -> Value {
        match (name, values) {
            ("min" | "max", [Value::List(items)]) if !items.is_empty() => {
                let pick = |a: Value, b: &Value| self.extreme(name, a, b.clone(), (span, span));
                items[1..].iter().fold(items[0].clone(), pick)
            }
            ("min" | "max", [first, rest @ ..]) if !rest.is_empty() => {
                let mut best = first.clone();
                for (value, arg) in rest.iter().zip(&args[1..]) {
                    best = self.extreme(name, best, value.clone(), (args[0].span, arg.span));
                }
                best
            }
            // A sum of nothing is 0; the others have no value.
            ("min" | "max" | "mean", [Value::List(items)]) if items.is_empty() => {
                self.wrong_arguments(name, values, span)
            }
            ("sum" | "mean", [Value::List(items)]) => {
                let mut total = Value::int(0);
                for (index, item) in items.iter().enumerate() {
                    total = match index {
                        0 => item.clone(),
                        _ if !self.alike(if name == "sum" { "sum" } else { "mean" }, &total, item, (span, span)) => {
                            return Value::Unknown;
                        }
                        _ => self.binary(BinaryOp::Add, total, item.clone(), (span, span), span),
                    };
                }
                if name == "sum" || items.is_empty() {
                    return total;
                }
                self.binary(BinaryOp::Divide, total, Value::int(items.len() as i64), (span, span), span)
            }
            ("sum", [Value::Range { from, to, .. }]) => {
                let (from, to) = (i128::from(*from), i128::from(*to));
                let sum = if to > from { (from + to - 1) * (to - from) / 2 } else { 0 };
                i64::try_from(sum).map_or_else(|_| self.overflow(span), Value::int)
            }
            ("len", [Value::List(items)]) => Value::int(items.len() as i64),
            ("len", [Value::Range { from, to, .. }]) if to <= from => Value::int(0),
            ("len", [Value::Range { from, to, .. }]) => {
                to.checked_sub(*from).map_or_else(|| self.overflow(span), Value::int)
            }
            ("rev", [Value::Range { from, to, reversed }]) => {
                Value::Range { from: *from, to: *to, reversed: !reversed }
            }
            ("rev", [Value::List(items)]) => Value::List(Arc::new(items.iter().rev().cloned().collect())),
            ("sizeof", [Value::DType(dtype)]) => {
                let value = Scalar::Int(dtype.size() as i64);
                Value::Number(Number { value, dimension: Dimension::BYTES, origin: NumberOrigin::Plain })
            }
            ("sizeof", [Value::Type(dtype, dims)]) => {
                let bytes = dims.elements().and_then(|n| n.checked_mul(dtype.size())).unwrap_or(0);
                let value = Scalar::Int(bytes as i64);
                Value::Number(Number { value, dimension: Dimension::BYTES, origin: NumberOrigin::Plain })
            }
            ("view", [tensor @ (Value::Tensor { .. } | Value::Label(_)), Value::List(sizes)]) => {
                self.reshape(tensor, sizes, args, span)
            }
            ("floor_div" | "ceil_div", [a, b]) => self.division(name, a, b, args),
            ("floor" | "ceil" | "round" | "abs", [Value::Number(number)]) => {
                if let (Scalar::Int(value), "floor" | "ceil" | "round") = (number.value, name) {
                    return Value::Number(Number { value: Scalar::Int(value), origin: NumberOrigin::Plain, ..*number });
                }
                let float = number.value.float();
                let value = match (name, number.value) {
                    ("abs", Scalar::Int(value)) => value.checked_abs().map_or(Scalar::Float(float.abs()), Scalar::Int),
                    ("abs", _) => Scalar::Float(float.abs()),
                    ("floor", _) => whole_or_float(float.floor()),
                    ("ceil", _) => whole_or_float(float.ceil()),
                    _ => whole_or_float(float.round_ties_even()),
                };
                Value::Number(Number { value, origin: NumberOrigin::Plain, ..*number })
            }
            (_, [Value::List(items)]) => {
                let results = items.iter().map(|item| self.apply(name, std::slice::from_ref(item), args, span));
                Value::List(Arc::new(results.collect()))
            }
            (_, [Value::Number(number)]) if number.dimension == Dimension::NONE => match Unary::from_name(name) {
                Some(function) => self.finite(name, function.apply(number.value.float()), span),
                None => self.wrong_arguments(name, values, span),
            },
            ("pow", [Value::Number(a), Value::Number(b)])
                if a.dimension == Dimension::NONE && b.dimension == Dimension::NONE =>
            {
                if let (Scalar::Int(base), Scalar::Int(power)) = (a.value, b.value)
                    && let Ok(power) = u32::try_from(power)
                {
                    return base.checked_pow(power).map_or_else(|| self.overflow(span), Value::int);
                }
                self.finite(name, Binary::Pow.apply(a.value.float(), b.value.float()), span)
            }
            _ => self.wrong_arguments(name, values, span),
        }
    }

    fn extreme(&mut self, name: &str, a: Value, b: Value, spans: (SrcSpan, SrcSpan)) -> Value {
        let op = if name == "min" { BinaryOp::Less } else { BinaryOp::Greater };
        if !self.alike(if name == "min" { "min" } else { "max" }, &a, &b, spans) {
            return Value::Unknown;
        }
        if let (Value::List(_), _) | (_, Value::List(_)) = (&a, &b) {
            let called = if name == "min" { "min" } else { "max" };
            let each = |this: &mut Self, a: &Value, b: &Value| this.extreme(name, a.clone(), b.clone(), spans);
            return self.member_by_member(called, &a, &b, spans, each);
        }
        match self.binary(op, a.clone(), b.clone(), spans, spans.0.to(spans.1)) {
            Value::Bool(true) => a,
            Value::Bool(false) => b,
            _ => Value::Unknown,
        }
    }

    /// True if two numbers have the same dimension, as the function `called` requires; reports an error otherwise.
    fn alike(&mut self, called: &'static str, a: &Value, b: &Value, spans: (SrcSpan, SrcSpan)) -> bool {
        match (a, b) {
            (Value::Number(x), Value::Number(y)) if x.dimension != y.dimension => {
                self.units_differ(called, x, y, spans);
                false
            }
            _ => true,
        }
    }

    /// Evaluates `floor_div` and `ceil_div` of whole numbers, or of two quantities with the same dimension.
    fn division(&mut self, name: &str, a: &Value, b: &Value, args: &[Expr]) -> Value {
        let (Value::Number(x), Value::Number(y)) = (a, b) else {
            return self.wrong_arguments(name, &[a.clone(), b.clone()], args[0].span.to(args[1].span));
        };
        if x.dimension != y.dimension && y.dimension != Dimension::NONE {
            let called = if name == "ceil_div" { "ceil_div" } else { "floor_div" };
            self.units_differ(called, x, y, (args[0].span, args[1].span));
            return Value::Unknown;
        }
        let (Some(dividend), Some(divisor)) = (self.whole(*x, args[0].span), self.whole(*y, args[1].span)) else {
            return Value::Unknown;
        };
        if divisor == 0 {
            return self.fail_value(ModelError::DivisionByZero { at: args[1].span.into() });
        }
        let (dividend, divisor) = (i128::from(dividend), i128::from(divisor));
        let floor = dividend.div_euclid(divisor) - i128::from(divisor < 0 && dividend.rem_euclid(divisor) != 0);
        let exact = floor * divisor == dividend;
        let value = if name == "ceil_div" && !exact { floor + 1 } else { floor };
        let dimension = if y.dimension == Dimension::NONE { x.dimension } else { Dimension::NONE };
        match i64::try_from(value) {
            Ok(value) => Value::Number(Number { value: Scalar::Int(value), dimension, origin: NumberOrigin::Plain }),
            Err(_) => self.overflow(args[0].span.to(args[1].span)),
        }
    }

    fn finite(&mut self, name: &str, value: f64, span: SrcSpan) -> Value {
        if value.is_finite() {
            return Value::Number(Number::float(value));
        }
        if value.is_infinite() && ["exp", "pow"].contains(&name) {
            return self.overflow(span);
        }
        let expected = format!("a number for which `{name}` has a value");
        let help = Some(match value.is_infinite() {
            true => format!(
                "infinity has no literal: `map({name}(m) -> x)` writes it where a tensor `m` is 0, and a large number such as \
                 `-1e30` often serves as well"
            ),
            false => format!("`{name}` of this number is not defined: choose another one"),
        });
        let found = "one for which it has none".to_owned();
        self.fail_value(ModelError::WrongType { expected, found, at: span.into(), help })
    }

    /// Reports a number that is too large, and returns an unknown value.
    pub(in crate::model) fn overflow(&mut self, span: SrcSpan) -> Value {
        self.fail_value(ModelError::Overflow { at: span.into() })
    }

    fn wrong_arguments(&mut self, name: &str, values: &[Value], span: SrcSpan) -> Value {
        let (expected, usage) = match name {
            "floor_div" | "ceil_div" | "pow" => ("two numbers", "a, b"),
            "min" | "max" => ("several numbers, or a list", "a, b"),
            "sum" | "mean" | "len" => ("a list", "[1, 2, 3]"),
            "rev" => ("a range or a list", "0..n"),
            "sizeof" => ("a type", "bf16"),
            "view" => ("a tensor and a list of its new sizes", "x, [4, 8]"),
            _ => ("one number", "x"),
        };
        let found: Vec<String> = values.iter().map(|value| value.describe(&self.names)).collect();
        let found = match found.as_slice() {
            [] => "nothing is".to_owned(),
            found => format!("{} {}", found.join(", "), if found.len() == 1 { "is" } else { "are" }),
        };
        let computed =
            name != "view" && values.iter().any(|value| matches!(value, Value::Tensor { .. } | Value::Label(_)));
        let help = match (name, values) {
            _ if computed => of_tensor(name),
            ("min" | "max" | "mean", [Value::List(_)]) => {
                format!(
                    "an empty list has no `{name}`: choose another value for it, `if len(list) > 0 {{ {name}(list) }} else {{ 0 }}`"
                )
            }
            ("sum" | "mean", [Value::Number(_)]) => {
                format!("a single number needs no `{name}`: write it alone")
            }
            _ => format!("write `{name}({usage})`"),
        };
        self.fail_value(ModelError::ArgumentCount {
            function: name.to_owned(),
            expected: expected.to_owned(),
            found,
            at: span.into(),
            help: Some(help),
        })
    }
}

/// Help for a function of plain values that is called with a tensor.
pub(in crate::model) fn of_tensor(name: &str) -> String {
    if Binary::from_name(name).is_some() && ops::find(name).is_some() {
        return format!(
            "over a tensor, `{name}` is an operation of the step: `m: {name}(x)`; for each element of two, write `map({name}(x, y) -> z)`"
        );
    }
    match Unary::from_name(name).is_some() || Binary::from_name(name).is_some() {
        true => format!("for each element of a tensor, write an operation: `map({name}(x) -> y)`"),
        false if ops::find(name).is_some() => {
            format!("over a tensor, `{name}` is an operation: write it above, and use its label: `s: {name}(x)`")
        }
        false => "dimensions are known before the run: name the number by a `param` or `let`".to_owned(),
    }
}

/// Names of functions in other languages.
const OTHER_NAMES: [(&[&str], &str); 22] = [
    (&["div_ceil", "ceildiv", "cdiv", "divup", "div_up"], "write `ceil_div(a, b)`"),
    (&["div", "floordiv", "idiv"], "write `floor_div(a, b)`"),
    (&["mod", "fmod", "rem"], "write `a % b`"),
    (&["int", "trunc"], "write `floor(x)`"),
    (&["where", "select", "masked_fill"], "write `if condition { a } else { b }`"),
    (&["clamp", "clip"], "write `min(max(x, lowest), highest)`"),
    (&["square", "sqr"], "write `pow(x, 2)`"),
    (&["exp2"], "write `pow(2, x)`"),
    (&["log10"], "write `log(x) / log(10)`"),
    (&["log1p"], "write `log(1 + x)`"),
    (&["expm1"], "write `exp(x) - 1`"),
    (&["isnan", "is_nan"], "NaN differs from itself: write `x != x`"),
    (
        &["log_softmax", "logsoftmax"],
        "write `l: logsumexp(x, dims: [-1], keepdim: true)` above, in the step, and `x - l` here",
    ),
    (
        &["tril", "triu"],
        "compare positions, which a buffer holds: `buffer i: i32[n, 1] = iota`, `buffer j: i32[n] = iota`, and `if j <= i { x } else { 0 }` here",
    ),
    (
        &["var", "std", "variance", "stddev"],
        "write `m: mean(x, dims: [-1], keepdim: true)` above, in the step, and the mean of `(x - m) * (x - m)` below it",
    ),
    (&["tan"], "write `sin(x) / cos(x)`"),
    (&["sign", "sgn"], "write `if x > 0 { 1 } else if x < 0 { -1 } else { 0 }`"),
    (
        &["get_rank", "get_world_size", "world_size", "device_count"],
        "the number of this rank is `rank`, that of all `world`",
    ),
    (&["env", "getenv", "environ"], "a value from outside is a parameter: `param n = 4`, which `--set n=8` changes"),
    (&["reversed", "reverse"], "write `rev(0..n)`"),
    (
        &["reshape", "unsqueeze", "squeeze", "flatten"],
        "other dimensions of the same elements are `view(x, [4, 8])`, where `x` is a tensor or a slice",
    ),
    (
        &["rand", "randn", "random", "normal", "uniform"],
        "a buffer holds random values before the run: `buffer x: f32[1024] = random(1)`",
    ),
];

/// Help for a range with a step for which no loop is written.
const NO_STEP: &str =
    "a range has no step: write `for i in 0..4 { … }`, and compute the index inside, such as `8 - 2 * i`";

/// Help for an unknown function: the one that was probably meant, or a list of all. `is_def` if the file defines the name as a
/// `def` or a `kernel`.
pub(in crate::model) fn unknown_function_help(name: &str, is_def: bool, args: &[Expr], names: &Interner) -> String {
    if !is_def && ops::find(name).is_some() && args.iter().any(|arg| matches!(arg.kind, ExprKind::List(_))) {
        return format!("lists have no `{name}`: they have `len`, `sum`, `mean`, `min`, `max` and `rev`");
    }
    if is_def || ops::find(name).is_some() {
        let args: Vec<String> = args.iter().map(|arg| written(arg, names)).collect();
        let call = format!("r: {name}({})", args.join(", "));
        let what = if is_def { "is called as a statement" } else { "is an operation" };
        return format!("`{name}` {what}: write `{call}` above, in the step, and `r` here");
    }
    if ["range", "arange"].contains(&name) {
        let args: Vec<String> = args.iter().map(|arg| written(arg, names)).collect();
        return match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            [] => "write `0..n`".to_owned(),
            [to] => format!("write `0..{to}`"),
            [from, to] | [from, to, "1"] => format!("write `{from}..{to}`"),
            [from, to, step, ..] => loop_with_step("i", from, to, step)
                .map_or_else(|| NO_STEP.to_owned(), |help| format!("a range has no step: {help}")),
        };
    }
    if let Some((_, help)) = OTHER_NAMES.iter().find(|(names, _)| names.contains(&name)) {
        return (*help).to_owned();
    }
    if let Some(module) = shipped::defining(name) {
        return format!(
            "it is an operation of `std.{module}`: write `use std.{module}` at the top of the file, a call with a label, \
             `r: {module}.{name}(…)`, above, and `r` here"
        );
    }
    if let Some(dtype) = DType::from_name(name) {
        let sizes: Vec<String> = args.iter().map(|arg| written(arg, names)).collect();
        return format!("write the sizes of a tensor in brackets: `{dtype}[{}]`", sizes.join(", "));
    }
    suggest::did_you_mean(name, FUNCTIONS.iter().copied())
        .unwrap_or_else(|| format!("there are {}", suggest::listed(FUNCTIONS)))
}

fn whole_or_float(value: f64) -> Scalar {
    if value.abs() < LARGEST_WHOLE { Scalar::Int(value as i64) } else { Scalar::Float(value) }
}
