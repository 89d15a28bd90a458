//! Initial contents of buffers: `= random(1, 0.02)`, `= zeros`, `= 3`, `= [1, 2, 3]`.

use crate::base::units::Dimension;
use crate::base::{DType, Dims, SrcSpan, suggest};
use crate::ops::init::Init;
use crate::syntax::ast::{Expr, ExprKind};
use crate::syntax::written;

use super::parts::BufferType;
use crate::model::analyzer::Analyzer;
use crate::model::error::ModelError;
use crate::model::limits::LIST;
use crate::model::values::functions::FUNCTIONS;
use crate::model::values::value::{LARGEST_WHOLE, Value};

/// Longest list that a help writes out.
const SHORT: u64 = 12;

impl Analyzer<'_> {
    /// Evaluates the initial contents of a buffer of a type. `None` after an error, which has been reported.
    pub(in crate::model) fn init(&mut self, expr: &Expr, ty: &BufferType) -> Option<Init> {
        let (symbol, args) = match &expr.kind {
            ExprKind::Name(symbol) => (*symbol, None),
            ExprKind::Call { callee, args } => (callee.symbol, Some(args.as_slice())),
            _ => return self.listed(expr, ty),
        };
        let word = self.names.name(symbol).to_owned();
        match (word.as_str(), args) {
            ("zeros", None) => Some(Init::Zeros),
            ("ones", None) => Some(Init::Ones),
            ("iota", None) => Some(Init::Iota),
            ("random", args) => self.random(args.unwrap_or_default(), expr.span),
            (word, Some(args)) if Init::WORDS.contains(&word) => {
                let help = match (word, args) {
                    (_, []) => format!("write `{word}` without parentheses"),
                    ("iota", _) => {
                        "write `iota` for 0, 1, 2, …, and compute other values from it: `setup { map(x * 2 + 1 -> x) }`"
                            .to_owned()
                    }
                    _ => format!("the type has the sizes: write `{word}`"),
                };
                self.fail(match args {
                    [] => {
                        let (expected, found) = (format!("`{word}`"), format!("`{word}()`"));
                        ModelError::WrongType { expected, found, at: expr.span.into(), help: Some(help) }
                    }
                    _ => ModelError::argument_count(word, "nothing", args.len(), expr.span, help),
                })
            }
            (_, None)
                if self.scopes.get(symbol).is_some() || [self.builtins.rank, self.builtins.world].contains(&symbol) =>
            {
                self.listed(expr, ty)
            }
            (word, Some(_)) if FUNCTIONS.contains(&word) => self.listed(expr, ty),
            (word, _) => self.fail(ModelError::WrongType {
                expected: "`random(seed)`, `zeros`, `ones`, `iota`, a number or a list".to_owned(),
                found: format!("`{word}`"),
                at: expr.span.into(),
                help: Some(init_help(word)),
            }),
        }
    }

    /// Evaluates a number for all elements, or a list with a number for each element.
    fn listed(&mut self, expr: &Expr, ty: &BufferType) -> Option<Init> {
        let value = self.eval(expr);
        let (dtypes, dims): (Vec<DType>, _) = match ty {
            BufferType::Tensor(dtype, dims) => (vec![*dtype], Some(*dims)),
            BufferType::Parts(parts) => (parts.iter().map(|(_, dtype, _)| *dtype).collect(), None),
        };
        let mut numbers = Vec::new();
        match (&value, dims) {
            (Value::List(_) | Value::Range { .. }, Some(dims)) => {
                if dims.elements().is_none_or(|elements| elements > LIST as u64) {
                    return self.fail(ModelError::WrongType {
                        expected: format!("at most {LIST} elements in a buffer whose contents are listed"),
                        found: format!("{} elements", dims.iter().map(u64::to_string).collect::<Vec<_>>().join(" × ")),
                        at: expr.span.into(),
                        help: Some(
                            "write one number for all, or `iota`, and compute the values: `setup { map(x * 2 -> x) }`"
                                .to_owned(),
                        ),
                    });
                }
                self.members(&value, &dims, (0, expr), (dtypes[0], &mut numbers))?;
            }
            (Value::List(_) | Value::Range { .. }, None) => {
                return self.fail(ModelError::WrongType {
                    expected: "one number for all parts of the buffer".to_owned(),
                    found: value.describe(&self.names),
                    at: expr.span.into(),
                    help: Some("declare a buffer of its own for each part, and give it its list".to_owned()),
                });
            }
            _ => {
                for dtype in dtypes {
                    numbers.truncate(0);
                    numbers.push(self.element(&value, dtype, expr.span)?);
                }
            }
        }
        Some(Init::Listed(numbers.into()))
    }

    /// Appends the numbers of a value that is nested like the dimensions from `level` on.
    fn members(
        &mut self,
        value: &Value,
        dims: &Dims,
        (level, expr): (usize, &Expr),
        (dtype, numbers): (DType, &mut Vec<f64>),
    ) -> Option<()> {
        let range;
        let members: &[Value] = match *value {
            _ if level == dims.len() => {
                if matches!(value, Value::List(_) | Value::Range { .. }) {
                    return self.not_nested(value, dims, level, expr);
                }
                numbers.push(self.element(value, dtype, expr.span)?);
                return Some(());
            }
            Value::List(ref members) => members,
            Value::Range { from, to, reversed } if to.saturating_sub(from) == dims[level] as i64 => {
                range = (0..to - from).map(|at| Value::int(if reversed { to - 1 - at } else { from + at }));
                &range.collect::<Vec<_>>()
            }
            Value::Unknown => return None,
            _ => return self.not_nested(value, dims, level, expr),
        };
        if members.len() as u64 != dims[level] {
            return self.not_nested(value, dims, level, expr);
        }
        for (index, member) in members.iter().enumerate() {
            let at = match &expr.kind {
                ExprKind::List(items) => items.get(index).unwrap_or(expr),
                _ => expr,
            };
            self.members(member, dims, (level + 1, at), (dtype, numbers))?;
        }
        Some(())
    }

    /// Reports a list that is not nested like the dimensions of the buffer.
    fn not_nested<T>(&mut self, value: &Value, dims: &Dims, level: usize, expr: &Expr) -> Option<T> {
        let expected = match (dims.get(level), level + 1 == dims.len()) {
            (None, _) => "a number".to_owned(),
            (Some(size), true) => format!("a list of {size}"),
            (Some(size), false) => format!("a list of {size} lists"),
        };
        let all = dims.iter().product::<u64>();
        let help = match (dims.is_empty(), all <= SHORT) {
            (true, _) => "a single value has no list: write the number alone".to_owned(),
            (false, true) => {
                format!("write a number for each element, such as `{}`, or one number for all", nested(dims, &mut 0))
            }
            (false, false) => {
                "write a number for each element, with a list for each dimension, or one number for all".to_owned()
            }
        };
        let found = match value {
            Value::Range { from, to, .. } => format!("a range of {}", to.saturating_sub(*from).max(0)),
            _ => value.describe(&self.names),
        };
        self.fail(ModelError::WrongType { expected, found, at: expr.span.into(), help: Some(help) })
    }

    /// Returns a number that an element of this type holds.
    fn element(&mut self, value: &Value, dtype: DType, at: SrcSpan) -> Option<f64> {
        let number = match *value {
            Value::Number(number) if number.dimension == Dimension::NONE => number,
            Value::Unknown => return None,
            _ => {
                let help = match value {
                    Value::Text(_) => {
                        "no file has initial contents: write a list, compute the values in `setup { … }`, or `read` them on a host stream"
                    }
                    Value::Number(_) => {
                        "elements have no unit: write the number alone, or divide it by a unit, `t / 1us`"
                    }
                    _ => "write a number, or a list of numbers",
                };
                let (expected, found) = ("a plain number".to_owned(), value.describe(&self.names));
                return self.fail(ModelError::WrongType {
                    expected,
                    found,
                    at: at.into(),
                    help: Some(help.to_owned()),
                });
            }
        };
        let float = number.value.float();
        let rounded = dtype.round(float);
        let (expected, help) = match dtype.is_float() {
            true if rounded.is_finite() => return Some(float),
            true => (
                format!("a number that {dtype} holds"),
                "the type has smaller numbers only: divide by a scale".to_owned(),
            ),
            false if rounded == float && float.abs() < LARGEST_WHOLE => return Some(float),
            false if float.fract() != 0.0 => (
                format!("a whole number, since the elements are {dtype}"),
                "declare the buffer as `f32`, or round the number".to_owned(),
            ),
            false if float.abs() >= LARGEST_WHOLE => (
                "a whole number between -9e15 and 9e15".to_owned(),
                "write a smaller number, or compute it: `setup { map(x * 1024 -> x) }`".to_owned(),
            ),
            false if float < 0.0 && dtype == DType::U8 => (
                "a whole number that u8 holds".to_owned(),
                "declare the buffer with a signed type, such as `i32`".to_owned(),
            ),
            false => (
                format!("a whole number that {dtype} holds"),
                "declare the buffer with a wider type, such as `i64`".to_owned(),
            ),
        };
        let found = Value::Number(number).describe(&self.names);
        self.fail(ModelError::WrongType { expected, found, at: at.into(), help: Some(help) })
    }

    /// Evaluates `random(seed)` or `random(seed, deviation)`.
    fn random(&mut self, args: &[Expr], span: SrcSpan) -> Option<Init> {
        let (seed, deviation) = match args {
            [seed] => {
                if let Value::Number(number) = self.eval(seed)
                    && number.dimension == Dimension::NONE
                    && number.whole().is_none()
                {
                    let found = Value::Number(number).describe(&self.names);
                    let help = format!("the seed is first: `random(1, {})`", written(seed, &self.names));
                    return self.fail(ModelError::WrongType {
                        expected: "a seed: a whole number".to_owned(),
                        found,
                        at: seed.span.into(),
                        help: Some(help),
                    });
                }
                (self.eval_whole(seed)?, 1.0)
            }
            [seed, deviation] => {
                let seed = self.eval_whole(seed)?;
                match self.eval(deviation) {
                    Value::Number(number) if number.dimension == Dimension::NONE && number.value.float() < 0.0 => {
                        return self.fail(ModelError::BadSize {
                            what: "the standard deviation".to_owned(),
                            value: number.text(),
                            at: deviation.span.into(),
                            help: "write a number of 0 or more: `random(1, 0.02)`",
                        });
                    }
                    Value::Number(number) if number.dimension == Dimension::NONE => (seed, number.value.float()),
                    other => return self.wrong_type("a plain number", &other, deviation.span),
                }
            }
            _ => {
                let expected = "a seed, with a standard deviation or without";
                let help = "write `random(1)` or `random(1, 0.02)`";
                return self.fail(ModelError::argument_count("random", expected, args.len(), span, help));
            }
        };
        Some(Init::Random { seed: seed as u64, deviation })
    }
}

/// A list that is nested like these dimensions, of the numbers from `next` on.
fn nested(dims: &[u64], next: &mut u64) -> String {
    let Some((size, rest)) = dims.split_first() else {
        *next += 1;
        return (*next - 1).to_string();
    };
    let members: Vec<String> = (0..*size).map(|_| nested(rest, next)).collect();
    format!("[{}]", members.join(", "))
}

/// Help for a word that names no initial contents.
fn init_help(word: &str) -> String {
    let instead = match word {
        "arange" | "range" | "linspace" => Some("iota"),
        "normal" | "gaussian" | "xavier" | "kaiming" | "randn" => Some("random(1, 0.02)"),
        "uniform" | "rand" => {
            return "declare a buffer `r: f32[n] = random(1)`, which is normally distributed, and compute uniform values from 0 to \
                    1 from it: `setup { map(0.5 + 0.5 * erf(r / sqrt(2)) -> x) }`"
                .to_owned();
        }
        "randint" | "zipf" | "poisson" | "geometric" | "binomial" | "multinomial" => {
            return "declare a buffer `r: f32[n] = random(1)`, and compute whole numbers from it, such as uniform ones from 0 to \
                    999: `setup { \
                    map(floor(999.99 * (0.5 + 0.5 * erf(r / sqrt(2)))) -> x) }`"
                .to_owned();
        }
        "empty" => Some("zeros"),
        _ => None,
    };
    match (instead, suggest::nearest(word, ["random", "zeros", "ones", "iota"])) {
        (Some(instead), _) => format!("write `{instead}`"),
        (None, Some(near)) => format!("did you mean `{near}`?"),
        _ => "write `zeros`, `random(1)`, a number for all elements, such as `3`, or a list of numbers".to_owned(),
    }
}
