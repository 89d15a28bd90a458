//! Values of expressions.

use std::sync::Arc;

use crate::base::units::{Dimension, UNITS, plain};
use crate::base::{DType, Dims, GroupId, Interner, LabelId, SrcSpan, Symbol, ViewId};

/// A number with its dimension.
#[derive(Clone, Copy, Debug)]
pub struct Number {
    pub value: Scalar,
    pub dimension: Dimension,
    pub origin: NumberOrigin,
}

/// The expression that a number comes from, where messages or units depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberOrigin {
    Plain,
    /// The division at this location made the number fractional.
    Division(SrcSpan),
    /// A percentage, such as `25%`, or a sum of such: a share, never a count.
    Percent,
}

/// A number: whole, or floating-point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    Int(i64),
    Float(f64),
}

impl Scalar {
    /// Converts the number to floating point; whole numbers beyond 2⁵³ are rounded.
    pub fn float(self) -> f64 {
        match self {
            Scalar::Int(value) => value as f64,
            Scalar::Float(value) => value,
        }
    }
}

/// Numbers from this one on are not whole ones: a float that large may have lost its last digits.
pub(in crate::model) const LARGEST_WHOLE: f64 = 9e15;

impl Number {
    /// Returns a whole number without a unit.
    pub fn int(value: i64) -> Number {
        Number { value: Scalar::Int(value), dimension: Dimension::NONE, origin: NumberOrigin::Plain }
    }

    /// Returns a floating-point number without a unit.
    pub fn float(value: f64) -> Number {
        Number { value: Scalar::Float(value), dimension: Dimension::NONE, origin: NumberOrigin::Plain }
    }

    /// Returns the value if it is whole, in any dimension; `None` otherwise, and for a percentage.
    pub fn whole(self) -> Option<i64> {
        match self.value {
            _ if self.origin == NumberOrigin::Percent => None,
            Scalar::Int(value) => Some(value),
            Scalar::Float(value) if value.fract() == 0.0 && value.abs() < LARGEST_WHOLE => Some(value as i64),
            Scalar::Float(_) => None,
        }
    }

    /// Formats the number with its unit, for messages.
    pub fn text(self) -> String {
        match (self.value, self.dimension) {
            (value, _) if self.origin == NumberOrigin::Percent => Dimension::NONE.display_in(value.float(), "%"),
            (Scalar::Int(value), Dimension::NONE) => value.to_string(),
            (Scalar::Float(value), Dimension::NONE) => {
                let text = plain(value);
                if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
            }
            (value, dimension) => dimension.display(value.float()),
        }
    }

    /// The value as [`text`](Self::text), but without a prefix such as `M`, and with as many digits after the point as
    /// show that the number is not whole.
    pub fn exact_text(self) -> String {
        let text = self.text();
        match self.value {
            Scalar::Float(value)
                if value.fract() != 0.0
                    && (text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
                        || self.dimension == Dimension::NONE && text.ends_with(char::is_alphabetic)) =>
            {
                let short = format!("{value:.3}");
                if short.ends_with(".000") { format!("{value:?}") } else { short.trim_end_matches('0').to_owned() }
            }
            _ => text,
        }
    }

    /// Source form, with the largest unit that divides the number.
    pub fn literal(self) -> String {
        let value = self.value.float();
        match self.value {
            Scalar::Int(value) if self.dimension == Dimension::NONE => return value.to_string(),
            Scalar::Float(value) if self.dimension == Dimension::NONE => return format!("{value:?}"),
            _ => {}
        }
        UNITS
            .iter()
            .filter(|unit| unit.dimension == self.dimension && (value / unit.factor).fract() == 0.0)
            .max_by(|a, b| a.factor.total_cmp(&b.factor))
            .map_or_else(|| self.text(), |unit| format!("{}{}", value / unit.factor, unit.name))
    }
}

/// The value of an expression.
#[derive(Clone, Debug)]
pub enum Value {
    Number(Number),
    Bool(bool),
    Text(Arc<str>),
    /// A word that is its own value, such as `alternating`.
    Word(Symbol),
    DType(DType),
    /// A tensor type: `bf16[4, 8]`. Boxed, since values are moved often.
    Type(DType, Box<Dims>),
    List(Arc<Vec<Value>>),
    /// Whole numbers from `from` up to `to`, which is excluded; in descending order if `reversed`.
    Range {
        from: i64,
        to: i64,
        reversed: bool,
    },
    /// A stream, or a family of `count` streams from `first` on.
    Stream {
        first: u32,
        count: Option<u32>,
        family: Symbol,
    },
    /// A slice. Its first `family` dimensions are indices of its family; the first bracket selects from them.
    Tensor {
        view: ViewId,
        family: u8,
    },
    /// A buffer or a family of buffers with parts of several types: the name and the tensor of each part.
    Parts(Arc<Vec<(Symbol, Value)>>),
    /// A group of ranks: a factor of the mesh.
    Group(GroupId),
    /// An operation or a call.
    Label(LabelId),
    /// A family of labels, by its number. A family without members has a number beyond all others.
    Labels(u32),
    /// An output of a `def` that nothing has written yet, by its number.
    Output(u32),
    /// The name of a file whose definitions are used.
    Module,
    /// Values that differ from iteration to iteration, by the number of the `draw`.
    Draw(u32),
    /// `..` as an index.
    Whole,
    /// The value of an expression with an error, which suppresses follow-up errors.
    Unknown,
}

impl Value {
    /// Returns a whole number without a unit.
    pub fn int(value: i64) -> Value {
        Value::Number(Number::int(value))
    }

    /// True if the value, or a value in its lists, has been reported as an error.
    pub fn has_unknown(&self) -> bool {
        match self {
            Value::Unknown => true,
            Value::List(items) => items.iter().any(Value::has_unknown),
            _ => false,
        }
    }

    /// Number of values in a list and its nested lists, up to `limit`; 1 for everything else.
    pub fn leaves(&self, limit: usize) -> usize {
        let Value::List(items) = self else { return 1 };
        let mut count = 0;
        for item in items.iter() {
            if count >= limit {
                break;
            }
            count += item.leaves(limit - count);
        }
        count
    }

    /// Nesting of lists; 0 for everything else.
    pub fn depth(&self) -> usize {
        match self {
            Value::List(items) => 1 + items.iter().map(Value::depth).max().unwrap_or(0),
            _ => 0,
        }
    }

    /// Describes the value for a message.
    pub fn describe(&self, names: &Interner) -> String {
        match self {
            Value::Number(number) if number.dimension == Dimension::NONE && number.origin != NumberOrigin::Percent => {
                format!("the number {}", number.text())
            }
            Value::Number(number) => number.text(),
            Value::Bool(value) => format!("`{value}`"),
            Value::Text(_) => "a text".to_owned(),
            Value::Word(word) => format!("the word `{}`", names.name(*word)),
            Value::DType(dtype) => format!("the type {dtype}"),
            Value::Type(dtype, dims) => format!("the type {dtype}{dims}"),
            Value::List(items) => format!("a list of {}", items.len()),
            Value::Range { .. } => "a range".to_owned(),
            Value::Stream { count: None, .. } => "a stream".to_owned(),
            Value::Stream { .. } => "a family of streams".to_owned(),
            Value::Tensor { family: 0, .. } => "a tensor".to_owned(),
            Value::Tensor { .. } => "a family of buffers".to_owned(),
            Value::Parts(_) => "a buffer with parts of several types".to_owned(),
            Value::Group(_) => "a group of ranks".to_owned(),
            Value::Label(_) => "a label".to_owned(),
            Value::Labels(_) => "a family of labels".to_owned(),
            Value::Output(_) => "an output".to_owned(),
            Value::Module => "a module".to_owned(),
            Value::Draw(_) => "a draw".to_owned(),
            Value::Whole => "`..`".to_owned(),
            Value::Unknown => "something unknown".to_owned(),
        }
    }

    /// Help for a buffer with parts of several types that is used as one tensor; `None` for any other value.
    pub fn parts_help(&self, names: &Interner) -> Option<String> {
        let Value::Parts(parts) = self else { return None };
        let parts: Vec<String> = parts.iter().map(|(name, _)| format!("`.{}`", names.name(*name))).collect();
        Some(format!("it is no single tensor: write the part after its name, {}", parts.join(" or ")))
    }

    /// Source form, for parameters.
    pub fn text(&self, names: &Interner) -> String {
        match self {
            Value::Number(number) => number.literal(),
            Value::Bool(value) => value.to_string(),
            Value::Text(text) => format!("{text:?}"),
            Value::Word(word) => names.name(*word).to_owned(),
            Value::DType(dtype) => dtype.to_string(),
            Value::List(items) => {
                let items: Vec<String> = items.iter().map(|item| item.text(names)).collect();
                format!("[{}]", items.join(", "))
            }
            other => other.describe(names),
        }
    }
}
