//! `draw`: values that differ from iteration to iteration, drawn by seed before the run and equal on all ranks.

use std::sync::Arc;

use crate::base::random::hash;
use crate::base::units::Dimension;
use crate::base::{Dims, SrcSpan, Symbol, counted, suggest};
use crate::syntax::ast::{Expr, Name, Setting};

use super::distribution::{CumulativeTable, RAREST, TRIALS, ZIPF_VALUES};
use super::drawn::{Distribution, Draw};
use super::value::{Number, Scalar, Value};
use crate::model::analyzer::Analyzer;
use crate::model::error::ModelError;
use crate::model::limits::LIST;

/// Each distribution and its arguments.
pub const DISTRIBUTIONS: [(&str, &[&str]); 9] = [
    ("binomial", &["n", "p"]),
    ("choice", &["list", "weights"]),
    ("geometric", &["p"]),
    ("lognormal", &["mu", "sigma"]),
    ("multinomial", &["total", "weights"]),
    ("poisson", &["rate"]),
    ("trace", &["path"]),
    ("uniform", &["lo", "hi"]),
    ("zipf", &["s", "n"]),
];

/// The right side of a `draw`, as written.
pub(in crate::model) struct DrawCall<'a> {
    pub distribution: Name,
    pub args: &'a [Expr],
    pub options: &'a [Setting],
    pub span: SrcSpan,
}

impl Analyzer<'_> {
    /// Analyzes a `draw`.
    pub(in crate::model) fn draw(&mut self, name: Name, dims: &[Expr], call: &DrawCall) {
        let dims = self.draw_dims(dims, name);
        let seed = self.seed(name, call);
        let found = self.distribution(call);
        let value = match (dims, seed, found) {
            (Some(dims), Some(seed), Some(distribution)) if self.rows_fit(&dims, &distribution, name, call) => {
                self.draws.push(Draw { seed, dims, distribution, current: None });
                Value::Draw(self.draws.len() as u32 - 1)
            }
            _ => Value::Unknown,
        };
        self.declare(name, value);
    }

    /// Returns the values of a draw in the iteration that is expanded.
    pub(in crate::model) fn drawn(&mut self, draw: u32, symbol: Symbol, span: SrcSpan) -> Value {
        let Some(iteration) = self.iteration else {
            let name = self.names.name(symbol).to_owned();
            let more = "; declare a buffer with the largest size, and use a slice of it in the step: `x[0..n]`";
            return self.fail_value(ModelError::OutsideStep { name, more, at: span.into() });
        };
        self.cycle_use.all = true;
        let index = draw as usize;
        if let Some((_, value)) = self.draws[index].current.as_ref().filter(|(known, _)| *known == iteration) {
            return value.clone();
        }
        if !self.room_for_members(self.draws[index].members(), span) {
            return Value::Unknown;
        }
        let draw = &mut self.draws[index];
        let mut values = draw.values(iteration);
        for &size in draw.dims.iter().rev() {
            values = values.chunks(size as usize).map(|row| Value::List(Arc::new(row.to_vec()))).collect();
        }
        let value = values.pop().unwrap_or(Value::Unknown);
        draw.current = Some((iteration, value.clone()));
        value
    }

    fn draw_dims(&mut self, sizes: &[Expr], name: Name) -> Option<Dims> {
        let mut dims = Dims::new();
        for size in sizes {
            let count = self.eval_whole(size)?;
            let all = dims.elements().and_then(|all| all.checked_mul(u64::try_from(count).unwrap_or(0)));
            let fits = count >= 1 && all.is_some_and(|all| all <= LIST as u64) && dims.push(count as u64).is_some();
            if !fits {
                return self.fail(ModelError::BadSize {
                    what: format!("the size of `{}`", self.names.name(name.symbol)),
                    value: count.to_string(),
                    at: size.span.into(),
                    help: "a draw has at least one value in each of at most 8 dimensions, and at most 65536 together",
                });
            }
        }
        Some(dims)
    }

    /// The seed of a draw: that of its option, otherwise one that follows from its name.
    fn seed(&mut self, name: Name, call: &DrawCall) -> Option<u64> {
        let bytes = self.names.name(name.symbol).bytes();
        let mut seed = Some(bytes.fold(0, |seed, byte| hash(seed, u64::from(byte))));
        let known: &[&str] = match self.names.name(call.distribution.symbol) {
            "trace" => &["column", "seed"],
            _ => &["seed"],
        };
        self.options_are_known("draw", call.options, known);
        for option in call.options {
            if self.names.name(option.key.symbol) == "seed" {
                seed = self.eval_whole(&option.value).map(|given| hash(1, given as u64));
            }
        }
        seed
    }

    fn distribution(&mut self, call: &DrawCall) -> Option<Distribution> {
        let name = self.names.name(call.distribution.symbol).to_owned();
        let Some((name, wanted)) = DISTRIBUTIONS.iter().find(|(known, _)| *known == name) else {
            let known = DISTRIBUTIONS.map(|(known, _)| known);
            let help = elsewhere(&name).map(str::to_owned).or_else(|| suggest::did_you_mean(&name, known));
            let at = call.distribution.span.into();
            return self.fail(ModelError::UnknownFunction { name, of: " that draws values", at, help });
        };
        if *name == "trace" {
            return self.trace(call);
        }
        let optional = usize::from(*name == "choice");
        if call.args.len() > wanted.len() || call.args.len() + optional < wanted.len() {
            let (expected, help) =
                (counted(wanted.len(), "argument"), format!("write `{name}({})`", wanted.join(", ")));
            return self.fail(ModelError::argument_count(*name, expected, call.args.len(), call.span, help));
        }
        let values: Vec<Value> = call.args.iter().map(|arg| self.eval(arg)).collect();
        if values.iter().any(|value| matches!(value, Value::Unknown)) {
            return None;
        }
        let of = |index: usize| (&values[index], &call.args[index]);
        let what = |argument: usize| format!("`{}` of `{name}`", wanted[argument]);
        const SHARE: &str = "write a probability: a number from 0 to 1";
        Some(match *name {
            "uniform" => self.between(of(0), of(1))?,
            "binomial" => {
                let trials = self.in_range(what(0), of(0), 0.0..=TRIALS as f64, "write 0 to 2147483648")?;
                let trials = self.whole(Number::float(trials), call.args[0].span)?;
                let success = self.in_range(what(1), of(1), 0.0..=1.0, SHARE)?;
                Distribution::Numbers(CumulativeTable::binomial(trials, success))
            }
            "geometric" => {
                let help = "write the probability of a success: a number from 0.000000001 to 1";
                Distribution::Geometric(self.in_range(what(0), of(0), RAREST..=1.0, help)?)
            }
            "poisson" => {
                let help = "write the mean: a number from 0 to 2147483648";
                Distribution::Numbers(CumulativeTable::poisson(self.in_range(
                    what(0),
                    of(0),
                    0.0..=TRIALS as f64,
                    help,
                )?))
            }
            "zipf" => {
                let exponent = self.in_range(what(0), of(0), 0.0..=100.0, "write a number from 0 to 100")?;
                let help = "write the number of values, 1 to 1048576";
                let count = self.in_range(what(1), of(1), 1.0..=ZIPF_VALUES as f64, help)?;
                let count = self.whole(Number::float(count), call.args[1].span)?;
                Distribution::Numbers(CumulativeTable::zipf(exponent, count))
            }
            "lognormal" => {
                let mu =
                    self.in_range(what(0), of(0), -300.0..=300.0, "write the mean of the logarithm, -300 to 300")?;
                let help = "write the standard deviation of the logarithm, 0 to 40";
                Distribution::Lognormal(mu, self.in_range(what(1), of(1), 0.0..=40.0, help)?)
            }
            "choice" => {
                let Value::List(items) = &values[0] else {
                    return self.wrong_type("a list, such as `[128, 512]`", &values[0], call.args[0].span);
                };
                if items.is_empty() {
                    return self.fail(ModelError::BadSize {
                        what: "the list of values".to_owned(),
                        value: "empty".to_owned(),
                        at: call.args[0].span.into(),
                        help: "write the values to choose from: `choice([128, 512])`",
                    });
                }
                let weights = match call.args.get(1) {
                    Some(_) => self.weights(of(1))?,
                    None => vec![1.0; items.len()],
                };
                if weights.len() != items.len() || items.is_empty() {
                    return self.fail(ModelError::BadSize {
                        what: "the number of weights".to_owned(),
                        value: format!("{}, for {} values", weights.len(), items.len()),
                        at: call.args.last().map_or(call.span, |last| last.span).into(),
                        help: "write as many weights as values, at least one: `choice([128, 512], [3, 1])`",
                    });
                }
                Distribution::Choice(CumulativeTable::of(0, weights), items.clone())
            }
            _ => {
                let total = self.in_range(what(0), of(0), 0.0..=TRIALS as f64, "write 0 to 2147483648")?;
                let total = self.whole(Number::float(total), call.args[0].span)?;
                Distribution::Multinomial(total, self.weights(of(1))?)
            }
        })
    }

    /// Bounds of one dimension, the lower one first.
    fn between(&mut self, low: (&Value, &Expr), high: (&Value, &Expr)) -> Option<Distribution> {
        let (Value::Number(a), Value::Number(b)) = (low.0, high.0) else {
            let (value, expr) = if matches!(low.0, Value::Number(_)) { high } else { low };
            return self.wrong_type("a number", value, expr.span);
        };
        if a.dimension != b.dimension {
            self.units_differ("uniform", a, b, (low.1.span, high.1.span));
            return None;
        }
        if a.value.float() > b.value.float() {
            return self.fail(ModelError::BadSize {
                what: "the upper bound".to_owned(),
                value: format!("{}, below the lower one, {}", b.text(), a.text()),
                at: high.1.span.into(),
                help: "write the lower bound first",
            });
        }
        Some(match (a.value, b.value) {
            (Scalar::Int(low), Scalar::Int(high)) => Distribution::Whole(low, high, a.dimension),
            (low, high) => Distribution::Between(low.float(), high.float(), a.dimension),
        })
    }

    /// Weights: numbers of at least 0, not all of them 0.
    fn weights(&mut self, (value, expr): (&Value, &Expr)) -> Option<Vec<f64>> {
        let Value::List(items) = value else {
            return self.wrong_type("a list of weights, such as `[3, 1]`", value, expr.span);
        };
        let weight = |item: &Value| match item {
            Value::Number(number) if number.dimension == Dimension::NONE => Some(number.value.float()),
            _ => None,
        };
        let weights: Option<Vec<f64>> = items.iter().map(weight).collect();
        let sum: f64 = weights.iter().flatten().sum();
        match weights {
            Some(weights) if weights.iter().all(|weight| *weight >= 0.0) && sum > 0.0 && sum.is_finite() => {
                Some(weights)
            }
            _ => self.fail(ModelError::BadSize {
                what: "a weight, or the sum of all weights,".to_owned(),
                value: "negative, zero or no plain number".to_owned(),
                at: expr.span.into(),
                help: "write plain numbers of 0 or more, at least one of them above 0: `[3, 1, 0]`",
            }),
        }
    }

    /// A plain number in a range.
    fn in_range(
        &mut self,
        what: String,
        (value, expr): (&Value, &Expr),
        range: std::ops::RangeInclusive<f64>,
        help: &'static str,
    ) -> Option<f64> {
        match value {
            Value::Number(number) if number.dimension == Dimension::NONE && range.contains(&number.value.float()) => {
                Some(number.value.float())
            }
            Value::Number(number) if number.dimension == Dimension::NONE => {
                self.fail(ModelError::BadSize { what, value: number.text(), at: expr.span.into(), help })
            }
            other => self.wrong_type("a plain number", other, expr.span),
        }
    }

    /// Checks that the last dimension has a place for each weight of a multinomial distribution.
    fn rows_fit(&mut self, dims: &Dims, distribution: &Distribution, name: Name, call: &DrawCall) -> bool {
        let Distribution::Multinomial(_, weights) = distribution else { return true };
        let places = dims.iter().next_back().copied().unwrap_or(0);
        let fits = places == weights.len() as u64;
        if !fits {
            let name = self.names.name(name.symbol);
            self.error(ModelError::BadSize {
                what: format!("the last size of `{name}`"),
                value: format!("{places}, and `multinomial` has {} weights", weights.len()),
                at: call.span.into(),
                help: "give the draw a last dimension with a value for each weight: `draw load[3] ~ multinomial(64, [2, 1, 1])`",
            });
        }
        fits
    }
}

/// Help for a distribution of other tools; `None` if it is not known.
fn elsewhere(name: &str) -> Option<&'static str> {
    const ELSEWHERE: [(&[&str], &str); 3] = [
        (
            &["normal", "gaussian", "gauss", "randn"],
            "`binomial(n, p)` and `poisson(rate)` draw whole numbers around their mean, and `lognormal(mu, sigma)` positive ones",
        ),
        (&["exponential", "expon", "gamma"], "write `geometric(p)` for whole numbers, or `lognormal(mu, sigma)`"),
        (&["bernoulli", "coin", "flip"], "write `binomial(1, p)`"),
    ];
    ELSEWHERE.iter().find(|(names, _)| names.contains(&name)).map(|(_, help)| *help)
}
