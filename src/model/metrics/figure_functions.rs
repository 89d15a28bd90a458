//! Functions and conditionals in the expressions of `metric` and `expect`.

use crate::base::units::Dimension;
use crate::base::{SrcSpan, suggest};
use crate::ops::expression::{Binary, Unary};
use crate::syntax::ast::*;
use crate::syntax::written;

use super::figures::{FigureExpr, LoweredFigure, Type};
use super::statistic::Statistic;
use crate::model::analyzer::Analyzer;
use crate::model::error::ModelError;
use crate::model::values::functions::FUNCTIONS;

/// Describes the arguments of a function in messages.
const OF_FIGURES: &str = " of figures";

impl Analyzer<'_> {
    /// Lowers a call of a function with a metric among its arguments.
    pub(super) fn figure_function(&mut self, callee: Name, args: &[Expr], expr: &Expr) -> LoweredFigure {
        let name = self.names.name(callee.symbol).to_owned();
        let (unary, binary) = (Unary::from_name(&name), Binary::from_name(&name));
        if let (Some(statistic), None, [of]) = (statistic_of(&name), binary, args) {
            let help = format!("a statistic follows its figure: `{}.{statistic}`", written(of, &self.names));
            return self.fail(ModelError::UnknownFunction {
                name,
                of: OF_FIGURES,
                at: callee.span.into(),
                help: Some(help),
            });
        }
        if unary.is_none() && binary.is_none() {
            self.no_figure_function(name, args, callee.span);
            return None;
        }
        let lowered: Vec<LoweredFigure> = args.iter().map(|arg| self.figure(arg)).collect();
        let mut values = Vec::new();
        for (value, arg) in lowered.into_iter().collect::<Option<Vec<_>>>()?.into_iter().zip(args) {
            match value {
                (value, Type::Number(dimension)) => values.push((value, dimension, arg.span)),
                (_, found) => return self.no_number("a number", found, arg.span),
            }
        }
        match (unary, binary, values.as_slice()) {
            (Some(function), _, [(value, dimension, at)]) => {
                if let (Unary::Floor | Unary::Ceil | Unary::Round, Some(unit)) = (function, dimension.example()) {
                    let found = Type::Number(*dimension).describe();
                    let value = written(&args[0], &self.names);
                    let value = if value.contains(' ') { format!("({value})") } else { value };
                    let whole = format!("{name}({value} / {unit}) * {unit}");
                    return self.fail(ModelError::WrongType {
                        expected: "a plain number".to_owned(),
                        found,
                        at: (*at).into(),
                        help: Some(format!("say of which unit it is a whole number: `{whole}`")),
                    });
                }
                if !matches!(function, Unary::Abs) && *dimension != Dimension::NONE {
                    return self.no_number("a plain number", Type::Number(*dimension), *at);
                }
                Some((FigureExpr::Unary(function, Box::new(value.clone())), Type::Number(*dimension)))
            }
            (_, Some(Binary::Pow), [(base, of, at), (power, to, to_at)]) => match (*of, *to) {
                (Dimension::NONE, Dimension::NONE) => Some(joined(Binary::Pow, base, power, Dimension::NONE)),
                (Dimension::NONE, _) => self.no_number("a plain number", Type::Number(*to), *to_at),
                _ => self.no_number("a plain number", Type::Number(*of), *at),
            },
            (_, Some(function @ (Binary::Max | Binary::Min)), [(first, dimension, at), rest @ ..])
                if !rest.is_empty() =>
            {
                if let Some((_, other, other_at)) = rest.iter().find(|(_, other, _)| other != dimension) {
                    let (one, two) = (Type::Number(*dimension), Type::Number(*other));
                    let help = crate::model::values::eval::units_help(*dimension, *other);
                    self.types_differ(function.name(), (one, *at), (two, *other_at), help);
                    return None;
                }
                let best =
                    rest.iter().fold(first.clone(), |best, (value, ..)| joined(function, &best, value, *dimension).0);
                Some((best, Type::Number(*dimension)))
            }
            _ => {
                let (expected, help) = match (binary, args) {
                    (None, _) => ("one number", format!("write `{name}(x)`")),
                    (Some(Binary::Pow), _) => ("two numbers", format!("write `{name}(x, 2)`")),
                    (Some(_), [of]) => {
                        let of = written(of, &self.names);
                        ("several numbers", format!("for the {name} of its samples, write `{of}.{name}`"))
                    }
                    (Some(_), _) => ("several numbers", format!("write `{name}(time(a), time(b))`")),
                };
                let given = args.len();
                self.fail(ModelError::argument_count(name, expected, given, expr.span, help))
            }
        }
    }

    /// Lowers `if c { a } else { b }`, where `c` must be known before the run.
    pub(super) fn figure_choice(&mut self, arms: &[(Expr, Expr)], otherwise: &Expr) -> LoweredFigure {
        for (condition, value) in arms {
            if self.mentions_figure(condition) {
                return self.fail(ModelError::WrongType {
                    expected: "a condition that is known before the run".to_owned(),
                    found: "a figure".to_owned(),
                    at: condition.span.into(),
                    help: Some(
                        "`min` and `max` choose between figures; a condition on figures is an `expect`: \
                         `expect time < 1ms`"
                            .to_owned(),
                    ),
                });
            }
            if self.eval_bool(condition)? {
                return self.figure(value);
            }
        }
        self.figure(otherwise)
    }

    /// Reports operands of different types.
    pub(super) fn types_differ(
        &mut self,
        op: &'static str,
        (left, left_at): (Type, SrcSpan),
        (right, right_at): (Type, SrcSpan),
        help: String,
    ) {
        let (left, right) = (left.describe(), right.describe());
        let (left_at, right_at) = (left_at.into(), right_at.into());
        self.error(ModelError::UnitsDiffer { op, help, left, left_at, right, right_at });
    }

    fn no_number(&mut self, expected: &str, found: Type, at: SrcSpan) -> LoweredFigure {
        let help = match found {
            Type::Number(dimension) => {
                dimension.example().map(|unit| format!("divide it by `{unit}` for a plain number"))
            }
            Type::Bool => Some("a condition is allowed only in `expect`, or in the `if` of a choice".to_owned()),
        };
        let (expected, found) = (expected.to_owned(), found.describe());
        self.fail(ModelError::WrongType { expected, found, at: at.into(), help })
    }

    /// Reports an unknown function of metrics.
    fn no_figure_function(&mut self, name: String, args: &[Expr], at: SrcSpan) {
        let listed = |operator: &str| {
            let args: Vec<String> = args.iter().map(|arg| written(arg, &self.names)).collect();
            args.join(operator)
        };
        let of_figures: Vec<&str> = FUNCTIONS
            .iter()
            .copied()
            .filter(|name| Unary::from_name(name).is_some() || Binary::from_name(name).is_some())
            .collect();
        let help = match name.as_str() {
            "percentile" | "quantile" => {
                format!("a statistic follows its figure: `{}.p99`", written(&args[0], &self.names))
            }
            "sum" => format!("figures are added by `+`: `{}`", listed(" + ")),
            "mean" => format!("write `({}) / {}`", listed(" + "), args.len()),
            _ if self.program.metrics.iter().any(|metric| metric.name == name) => {
                format!("a metric of the file covers what its expression covers: write `{name}` alone")
            }
            _ => suggest::did_you_mean(&name, of_figures.iter().copied()).unwrap_or_else(|| {
                format!(
                    "of figures there are {}; all but `abs`, `min` and `max` take plain numbers",
                    suggest::listed(&of_figures)
                )
            }),
        };
        self.error(ModelError::UnknownFunction { name, of: OF_FIGURES, at: at.into(), help: Some(help) });
    }
}

/// The statistic with this name, or with this name in other tools; `None` if no statistic has it.
fn statistic_of(name: &str) -> Option<&'static str> {
    let known = Statistic::from_name(name).map(Statistic::name);
    known.or(match name {
        "median" => Some("p50"),
        "avg" | "average" => Some("mean"),
        "stddev" | "stdev" => Some("std"),
        _ => None,
    })
}

fn joined(function: Binary, a: &FigureExpr, b: &FigureExpr, dimension: Dimension) -> (FigureExpr, Type) {
    (FigureExpr::Binary(function, Box::new(a.clone()), Box::new(b.clone())), Type::Number(dimension))
}
