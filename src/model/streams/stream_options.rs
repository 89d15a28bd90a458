//! Options of streams: one value for a whole family, or a list with a value for each member.

use crate::base::SrcSpan;
use crate::base::units::Dimension;
use crate::syntax::ast::{Expr, ExprKind, Name, Setting};

use super::units::Units;
use crate::model::analyzer::Analyzer;
use crate::model::error::{ModelError, StructureError};
use crate::model::names::unknown;
use crate::model::program::Priority;
use crate::model::values::value::{NumberOrigin, Value};

const PRIORITIES: [&str; 3] = ["high", "normal", "low"];

/// The largest number of a hardware queue. No device has more queues that streams share.
const QUEUES: u32 = 127;

/// A stream or a family of streams that is being declared.
#[derive(Clone, Copy)]
pub(in crate::model) struct Streams {
    pub name: Name,
    /// Number of members; `None` for a single stream.
    pub members: Option<u64>,
}

/// The value of an option for each member of a family.
pub(in crate::model) enum ByMember<T> {
    All(T),
    Each(Vec<T>),
}

impl<T: Copy> ByMember<T> {
    /// The value for the member with this number.
    pub fn get(&self, member: u32) -> T {
        match self {
            ByMember::All(value) => *value,
            ByMember::Each(values) => values[member as usize],
        }
    }
}

impl Analyzer<'_> {
    /// Evaluates the option `priority` of one or several streams.
    pub(in crate::model) fn priorities(&mut self, setting: &Setting, streams: Streams) -> ByMember<Priority> {
        self.by_member(setting, streams, Priority::Normal, Self::word_or_value, Self::priority)
    }

    /// Evaluates the option `units`; `None` for members that can use the whole device.
    pub(in crate::model) fn units_by_member(&mut self, setting: &Setting, streams: Streams) -> ByMember<Option<Units>> {
        self.by_member(setting, streams, None, Self::eval, Self::units)
    }

    /// Evaluates the option `queue`; `None` for members that request no hardware queue.
    pub(in crate::model) fn queues(&mut self, setting: &Setting, streams: Streams) -> ByMember<Option<u32>> {
        self.by_member(setting, streams, None, Self::eval, Self::queue)
    }

    /// Evaluates an option by `read`, and each of its values by `check`. Returns `default` for all members if a list
    /// has another length than the family.
    fn by_member<T>(
        &mut self,
        setting: &Setting,
        streams: Streams,
        default: T,
        read: fn(&mut Self, &Expr) -> Value,
        check: fn(&mut Self, &Value, SrcSpan) -> T,
    ) -> ByMember<T> {
        let expr = &setting.value;
        let values: Vec<(Value, SrcSpan)> = match &expr.kind {
            ExprKind::List(items) => items.iter().map(|item| (read(self, item), item.span)).collect(),
            _ => match read(self, expr) {
                Value::List(items) => items.iter().map(|item| (item.clone(), expr.span)).collect(),
                value => return ByMember::All(check(self, &value, expr.span)),
            },
        };
        let checked: Vec<T> = values.iter().map(|(value, span)| check(self, value, *span)).collect();
        if streams.members == Some(checked.len() as u64) {
            return ByMember::Each(checked);
        }
        let option = self.names.name(setting.key.symbol).to_owned();
        let name = self.names.name(streams.name.symbol).to_owned();
        let at = expr.span.into();
        let given = checked.len();
        self.error(match streams.members {
            Some(members) => StructureError::MemberCount { option, name, given, members, at },
            None => StructureError::MembersOfOne { option, name, given, at },
        });
        ByMember::All(default)
    }

    /// Evaluates an expression in which a name is a word if it is a priority, is undeclared, or belongs to a stream.
    fn word_or_value(&mut self, expr: &Expr) -> Value {
        let Some(expr) = self.chosen(expr) else { return Value::Unknown };
        match expr.as_name() {
            Some(symbol)
                if match self.scopes.get(symbol) {
                    None | Some(Value::Stream { .. }) => true,
                    // A parameter with this name may have another word as its value.
                    Some(Value::Word(_)) => false,
                    Some(_) => PRIORITIES.contains(&self.names.name(symbol)),
                } =>
            {
                Value::Word(symbol)
            }
            _ => self.eval(expr),
        }
    }

    fn priority(&mut self, value: &Value, at: SrcSpan) -> Priority {
        let expected = "`high`, `normal`, `low` or a number";
        match value {
            Value::Word(word) => match self.names.name(*word) {
                "high" => return Priority::High,
                "low" => return Priority::Low,
                "normal" => {}
                text => {
                    let (found, help) = (format!("`{text}`"), unknown::word_help(text, &PRIORITIES));
                    let expected = expected.to_owned();
                    self.error(ModelError::WrongType { expected, found, at: at.into(), help });
                }
            },
            Value::Number(number) if number.dimension == Dimension::NONE => {
                let level = self.whole(*number, at).unwrap_or(0);
                return Priority::Level(level.clamp(-1000, 1000) as i32);
            }
            other => drop(self.wrong_type::<()>(expected, other, at)),
        }
        Priority::Normal
    }

    fn queue(&mut self, value: &Value, at: SrcSpan) -> Option<u32> {
        let number = match value {
            Value::Number(number) if number.dimension == Dimension::NONE => self.whole(*number, at)?,
            other => return self.wrong_type("the number of a hardware queue", other, at),
        };
        let queue = u32::try_from(number).ok().filter(|queue| *queue <= QUEUES);
        if queue.is_none() {
            self.error(ModelError::BadSize {
                what: "the number of a hardware queue".to_owned(),
                value: number.to_string(),
                at: at.into(),
                help: "write a number from 0 to 127: streams with one number share a queue",
            });
        }
        queue
    }

    fn units(&mut self, value: &Value, at: SrcSpan) -> Option<Units> {
        let number = match value {
            Value::Number(number) if number.dimension == Dimension::NONE => *number,
            other => return self.wrong_type("a number of compute units, or a share", other, at),
        };
        let value = number.value.float();
        let units = if number.origin == NumberOrigin::Percent { Units::share(value) } else { Units::parse(value) };
        if units.is_none() {
            self.error(ModelError::BadSize {
                what: "the part of the device that a stream keeps to".to_owned(),
                value: number.text(),
                at: at.into(),
                help: "write 2 to 65535 compute units, `units: 64`, or a share below 100 %, `units: 25%`; leave the \
                       option out for the whole device",
            });
        }
        units
    }
}
