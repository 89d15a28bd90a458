//! Evaluates and checks options of operations.

use std::slice;

use crate::base::SrcSpan;
use crate::base::units::Dimension;
use crate::ops::{Attr, Attrs, ElementCounts, Operation, OptionSpec, OptionType, Preset, usage};
use crate::syntax::ast::{Call, Expr, ExprKind, Setting};
use crate::syntax::written;

use crate::model::analyzer::Analyzer;
use crate::model::error::ModelError;
use crate::model::names::unknown::{LIST_OF_ELEMENTS, spatial_word_help};
use crate::model::values::value::Value;

impl Analyzer<'_> {
    /// Reports options of `of` that it does not have or that are given twice; false if there are any.
    pub(in crate::model) fn options_are_known(&mut self, of: &str, settings: &[Setting], known: &[&str]) -> bool {
        let mut good = true;
        for (place, setting) in settings.iter().enumerate() {
            let name = self.names.name(setting.key.symbol).to_owned();
            if !known.contains(&name.as_str()) {
                self.unknown_option(of, name, known, setting.key.span);
                good = false;
            } else if let Some(first) = settings[..place].iter().find(|one| one.key.symbol == setting.key.symbol) {
                let first = first.key.span.into();
                self.error(ModelError::GivenTwice { name, at: setting.key.span.into(), first });
                good = false;
            }
        }
        good
    }

    /// Evaluates the options of a call into `attrs`. Returns false after an error, which has been reported.
    pub(super) fn op_options(&mut self, operation: &dyn Operation, call: &Call, attrs: &mut Attrs) -> bool {
        let options = operation.signature().options;
        let known: Vec<&str> = options.iter().map(|option| option.name).collect();
        let mut good = self.options_are_known(operation.name(), &call.options, &known);
        for option in options {
            let setting = call.options.iter().find(|setting| self.names.name(setting.key.symbol) == option.name);
            let value = match (setting, &option.default) {
                (Some(setting), _) => match self.attr(option, &setting.value) {
                    Some(value) => value,
                    None => {
                        good = false;
                        continue;
                    }
                },
                (None, Preset::Required) => {
                    self.error(ModelError::MissingOption {
                        op: operation.name(),
                        option: option.name,
                        kind: option.kind.describe(),
                        doc: option.doc,
                        usage: usage(operation),
                        at: call.span.into(),
                    });
                    good = false;
                    continue;
                }
                (None, default) => default.value(),
            };
            attrs.push(option.name, value, setting.map(|setting| setting.value.span));
        }
        good
    }

    /// Checks the options of a call that are words. The call has another mistake, which has been reported.
    pub(super) fn check_words(&mut self, operation: &dyn Operation, call: &Call) {
        for setting in &call.options {
            let key = self.names.name(setting.key.symbol);
            let option = operation.signature().options.iter().find(|option| option.name == key);
            if let Some(option) = option.filter(|option| matches!(option.kind, OptionType::Word(_))) {
                self.attr(option, &setting.value);
            }
        }
    }

    /// Evaluates an option and checks its value. `None` after an error, which has been reported.
    pub(in crate::model) fn attr(&mut self, option: &'static OptionSpec, expr: &Expr) -> Option<Attr> {
        if let OptionType::Word(words) = &option.kind {
            let help = format!("`{}`: {}", option.name, option.doc);
            return self.word_or_help(expr, words, Some(help)).map(Attr::Word);
        }
        let value = self.eval(expr);
        if let (OptionType::File, Value::Text(path)) = (&option.kind, &value) {
            return self.data_file(path, expr.span);
        }
        let attr = match (&option.kind, &value) {
            _ if value.has_unknown() => return None,
            (OptionType::Int(min, max) | OptionType::Spatial(min, max), Value::Number(number))
                if number.dimension == Dimension::NONE =>
            {
                let whole = self.whole(*number, expr.span)?;
                (*min..=*max).contains(&whole).then_some(Attr::Int(whole))
            }
            (OptionType::Number(dimension), Value::Number(number)) if number.dimension == *dimension => {
                Some(Attr::number(number.value.float()))
            }
            // A number without a unit counts as a number of operations.
            (OptionType::Number(Dimension::FLOPS), Value::Number(number)) if number.dimension == Dimension::NONE => {
                Some(Attr::number(number.value.float()))
            }
            (OptionType::Bool, Value::Bool(value)) => Some(Attr::Bool(*value)),
            (OptionType::DType, Value::DType(dtype)) => Some(Attr::DType(*dtype)),
            (OptionType::Axes | OptionType::Sizes | OptionType::List, Value::List(items)) => {
                whole(items).map(Attr::Axes)
            }
            (OptionType::Spatial(min, max), Value::List(items)) => {
                let fits = |sizes: &Vec<i64>| sizes.iter().all(|size| (*min..=*max).contains(size));
                whole(items).filter(fits).map(Attr::Axes)
            }
            (OptionType::Counts, Value::List(items)) => counts(items).map(|counts| Attr::Counts(counts.into())),
            _ => None,
        };
        match attr {
            Some(attr) => Some(attr),
            None => {
                let plain = matches!(&value, Value::Number(number) if number.dimension == Dimension::NONE);
                let help = match option.kind {
                    OptionType::Bool => Some("write `true` or `false`".to_owned()),
                    OptionType::Spatial(..) if let Value::Text(word) = &value => spatial_word_help(option.name, word),
                    OptionType::DType if let Value::Text(word) = &value => {
                        Some(format!("leave out the quotes: `{}: {word}`", option.name))
                    }
                    OptionType::List if matches!(value, Value::Range { .. }) => {
                        Some("write the numbers in brackets; consecutive ones are a slice: `x[0..4]`".to_owned())
                    }
                    OptionType::Axes if plain => {
                        Some(format!("write it as a list: `{}: [{}]`", option.name, written(expr, &self.names)))
                    }
                    _ if matches!(value, Value::Group(_)) => Some(
                        "`tp.size` is the number of ranks in the group `tp`, `tp.rank` the number of this one"
                            .to_owned(),
                    ),
                    OptionType::Int(..) if plain && matches!(option.name, "to" | "from") => {
                        let text = written(expr, &self.names);
                        Some(format!(
                            "no rank has this number: leave such ranks out by an `if`, or wrap around, `{}: ({text}) % world`",
                            option.name
                        ))
                    }
                    OptionType::Int(..) if matches!(value, Value::Tensor { .. } | Value::Label(_)) => Some(
                        "the elements of a tensor are known only during the run, and an option before it: take a `param`, a \
                         `let` or a `draw`"
                            .to_owned(),
                    ),
                    OptionType::Int(1, _) if plain && written(expr, &self.names) == "iteration" => {
                        Some(format!("iterations count from 0: `{}: iteration + 1`", option.name))
                    }
                    OptionType::Int(0, 255) if plain => Some(format!(
                        "a byte has no other value: `fill({} -> x)` sets every element to a number",
                        written(expr, &self.names)
                    )),
                    OptionType::Number(_) if matches!(value, Value::Tensor { .. } | Value::Label(_)) => Some(
                        "the elements of a tensor are known only during the run: write a number; `copy(x -> y)` copies a \
                         tensor"
                            .to_owned(),
                    ),
                    OptionType::Number(Dimension::NONE) if matches!(value, Value::List(_)) => Some(match option.name {
                        "value" => LIST_OF_ELEMENTS.to_owned(),
                        name => format!("write one number: `{name}: 1`"),
                    }),
                    OptionType::Int(..) | OptionType::Number(Dimension::NONE)
                        if let Value::Text(text) = &value
                            && text.parse::<f64>().is_ok_and(f64::is_finite) =>
                    {
                        Some(format!("leave out the quotes: `{}: {text}`", option.name))
                    }
                    OptionType::Number(Dimension::NONE) if matches!(value, Value::Number(_)) && !plain => {
                        Some("write a plain number, without a unit".to_owned())
                    }
                    OptionType::Number(dimension) => with_unit(dimension, plain),
                    OptionType::Counts => {
                        Some(format!("write a number of rows for each receiver, from 0: `{}: [2, 1]`", option.name))
                    }
                    OptionType::Int(least, most) => match &value {
                        Value::Number(number) if plain => number
                            .whole()
                            .map(|whole| format!("write `{}: {}`", option.name, whole.clamp(least, most))),
                        _ => None,
                    },
                    _ => None,
                };
                let (found, at) = match option.kind {
                    OptionType::Counts => wrong_count(&value, expr),
                    _ => (&value, expr.span),
                };
                let found = found.describe(&self.names);
                let expected = format!("{} for `{}`", option.kind.describe(), option.name);
                self.fail(ModelError::WrongType { expected, found, at: at.into(), help })
            }
        }
    }
}

/// Help for a number of another quantity; `None` if an option needs a plain number.
fn with_unit(needed: Dimension, plain: bool) -> Option<String> {
    let (quantity, example) = match needed {
        Dimension::TIME => ("a time", "10us"),
        Dimension::BYTES => ("a size in bytes", "64MiB"),
        Dimension::FLOPS => ("a number of operations", "2GFLOP"),
        _ => return None,
    };
    Some(match plain {
        true => format!("write its unit after it: `{example}`"),
        false => format!("write {quantity}, such as `{example}`"),
    })
}

/// The whole numbers of a list; `None` if it has other values.
fn whole(items: &[Value]) -> Option<Vec<i64>> {
    let number = |item: &Value| match item {
        Value::Number(number) if number.dimension == Dimension::NONE => number.whole(),
        _ => None,
    };
    items.iter().map(number).collect()
}

/// The innermost value of a list in brackets that is no count, and its location; the whole list if each item alone is one.
fn wrong_count<'a>(value: &'a Value, expr: &Expr) -> (&'a Value, SrcSpan) {
    if let (Value::List(items), ExprKind::List(exprs)) = (value, &expr.kind)
        && items.len() == exprs.len()
        && let Some((item, expr)) = items.iter().zip(exprs).find(|(item, _)| counts(slice::from_ref(item)).is_none())
    {
        return wrong_count(item, expr);
    }
    (value, expr.span)
}

/// Whole numbers from 0, in one list or in a list of lists.
fn counts(items: &[Value]) -> Option<ElementCounts> {
    let numbers = |items: &[Value]| -> Option<Vec<u64>> {
        let number = |item: &Value| match item {
            Value::Number(number) if number.dimension == Dimension::NONE => u64::try_from(number.whole()?).ok(),
            _ => None,
        };
        items.iter().map(number).collect()
    };
    match items.first() {
        Some(Value::List(_)) => {
            let rows = items.iter().map(|row| match row {
                Value::List(row) => numbers(row),
                _ => None,
            });
            rows.collect::<Option<Vec<_>>>().map(ElementCounts::Rows)
        }
        _ => numbers(items).map(ElementCounts::Each),
    }
}
