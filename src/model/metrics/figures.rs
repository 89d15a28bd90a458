//! `metric` and `expect`: expressions that are evaluated after a run.

use crate::base::units::{self, Dimension};
use crate::base::{DType, SrcSpan, Symbol, suggest, visible};
use crate::ops::expression::{Binary, Unary};
use crate::syntax::ast::*;
use crate::syntax::{walk, written};

use super::figure::{Figure, Sets};
use super::picks::Pick;
use super::statistic::Statistic;
use crate::model::analyzer::Analyzer;
use crate::model::calls::lower::binary;
use crate::model::error::ModelError;
use crate::model::values::functions::FUNCTIONS;
use crate::model::values::value::Value;
use crate::model::{OpSet, figure_elsewhere};

/// A metric that the file declares.
#[derive(Clone, Debug)]
pub struct Metric {
    pub name: String,
    pub value: FigureExpr,
    /// Physical dimension, which determines the unit unless the file names one.
    pub dimension: Dimension,
    /// The unit that the file names; `None` if it names none.
    pub unit: Option<String>,
    /// True if the value can differ between slots of the cycle.
    pub has_slots: bool,
    pub span: SrcSpan,
}

/// A condition on the results.
#[derive(Clone, Debug)]
pub struct Expectation {
    pub condition: FigureExpr,
    /// The expectation is skipped if this condition is false; `None` if it always counts.
    pub when: Option<FigureExpr>,
    pub span: SrcSpan,
}

/// An expression over metrics of the language and of the file. Numbers are in base units; true is 1 and false is 0.
#[derive(Clone, Debug)]
pub enum FigureExpr {
    Constant(f64),
    /// A value for each slot, known before the run.
    BySlot(Vec<f64>),
    Figure {
        figure: Figure,
        set: Option<OpSet>,
        /// The second set, if the metric compares two.
        beside: Option<OpSet>,
        /// The slot; `None` for the slot of the enclosing expression.
        slot: Option<usize>,
        statistic: Option<Statistic>,
        span: SrcSpan,
    },
    /// A metric that the file declares before this one, by its index.
    Metric {
        metric: usize,
        slot: Option<usize>,
        statistic: Option<Statistic>,
    },
    Unary(Unary, Box<FigureExpr>),
    Binary(Binary, Box<FigureExpr>, Box<FigureExpr>),
}

impl FigureExpr {
    /// Returns the constants, figures and metrics of the expression, from left to right.
    pub fn leaves(&self) -> Vec<&FigureExpr> {
        match self {
            FigureExpr::Unary(_, inner) => inner.leaves(),
            FigureExpr::Binary(_, left, right) => [left.leaves(), right.leaves()].concat(),
            leaf => vec![leaf],
        }
    }
}

/// Type of an expression.
#[derive(Clone, Copy, PartialEq)]
pub(in crate::model) enum Type {
    Number(Dimension),
    Bool,
}

/// Prefixes of metrics with an owner: `memory.peak`, `device.units`.
const OWNERS: [&str; 2] = ["memory", "device"];

/// Placeholder for a metric with an error. The analysis has failed, and uses of the metric are not reported.
const FAILED: FigureExpr = FigureExpr::Constant(f64::NAN);

/// An expression of figures with its type; `None` after an error, which has been reported.
pub(super) type LoweredFigure = Option<(FigureExpr, Type)>;

impl<'a> Analyzer<'a> {
    /// Analyzes all metrics and expectations of the file.
    pub(in crate::model) fn figures(&mut self) {
        let ast = self.ast;
        self.sets = crate::model::names::declared::labels_and_phases(ast);
        for decl in &ast.decls {
            match &decl.kind {
                DeclKind::Metric { name, each: None, value, unit } => {
                    let text = self.names.name(name.symbol).to_owned();
                    let metric = self.declared_metric(text, value, unit.as_deref(), decl.span);
                    self.metrics.entry(name.symbol).or_insert(metric);
                }
                DeclKind::Metric { name, each: Some(each), value, unit } => {
                    self.metric_family(*name, each, value, unit.as_deref(), decl.span);
                }
                DeclKind::Expect { condition, when } => {
                    let lowered = self.condition(condition);
                    let guard = when.as_ref().map(|when| self.condition(when));
                    if let (Some(condition), None | Some(Some(_))) = (lowered, &guard) {
                        let when = guard.flatten();
                        self.program.expectations.push(Expectation { condition, when, span: decl.span });
                    }
                }
                _ => {}
            }
        }
    }

    /// Adds a metric and returns its index.
    pub(super) fn declared_metric(&mut self, name: String, value: &Expr, unit: Option<&str>, span: SrcSpan) -> usize {
        let (value, dimension) = match self.figure(value) {
            Some((value, Type::Number(dimension))) => {
                self.check_unit(dimension, unit, span);
                (value, dimension)
            }
            Some((value, Type::Bool)) => (value, Dimension::NONE),
            None => (FAILED, Dimension::NONE),
        };
        let unit = match (&value, unit) {
            (FigureExpr::Figure { figure, .. }, None) if figure.is_share() => Some("%".to_owned()),
            (_, unit) => unit.map(|unit| visible::one_line(unit).into_owned()),
        };
        let has_slots = has_slots(&self.program.metrics, &value);
        self.program.metrics.push(Metric { name, value, dimension, unit, has_slots, span });
        self.program.metrics.len() - 1
    }

    /// Checks that a unit of the language matches the metric's dimension. Any other text is a unit of the user, such as
    /// `tokens`.
    fn check_unit(&mut self, dimension: Dimension, unit: Option<&str>, span: SrcSpan) {
        if let Some(unit) = unit.and_then(units::unit)
            && !dimension.fits(unit.dimension)
        {
            self.error(ModelError::MetricUnit {
                found: dimension.describe(),
                unit: unit.name,
                of: unit.dimension.describe(),
                at: span.into(),
            });
        }
    }

    fn condition(&mut self, expr: &Expr) -> Option<FigureExpr> {
        match self.figure(expr)? {
            (value, Type::Bool) => Some(value),
            (_, Type::Number(dimension)) => self.fail(ModelError::WrongType {
                expected: "a condition".to_owned(),
                found: dimension.describe(),
                at: expr.span.into(),
                help: Some("compare it with something: `speedup > 1`".to_owned()),
            }),
        }
    }

    /// True if a part of the expression is known only after a run.
    pub(super) fn mentions_figure(&self, expr: &Expr) -> bool {
        let is_figure = |symbol: Symbol| {
            let name = self.names.name(symbol);
            let metric = self.metric(symbol).is_some() || self.metric_families.contains_key(&symbol);
            self.scopes.get(symbol).is_none() && (is_name_of_figure(name) || metric)
        };
        let mut found = false;
        walk::expr(expr, &mut |part| {
            found |= match &part.kind {
                ExprKind::Name(symbol) => is_figure(*symbol),
                ExprKind::Call { callee, .. } => is_figure(callee.symbol),
                _ => false,
            }
        });
        found
    }

    fn metric(&self, symbol: Symbol) -> Option<usize> {
        self.metrics.get(&symbol).copied()
    }

    /// Analyzes an expression that may contain figures.
    pub(in crate::model) fn figure(&mut self, expr: &Expr) -> LoweredFigure {
        if !self.mentions_figure(expr) {
            return self.plain_figure(expr);
        }
        match &expr.kind {
            ExprKind::Name(_) => self.picked(expr, Pick::default(), expr.span),
            ExprKind::Call { callee, args } if self.scopes.get(callee.symbol).is_none() => {
                let name = self.names.name(callee.symbol).to_owned();
                if is_name_of_figure(&name) {
                    return self.picked(expr, Pick::default(), expr.span);
                }
                self.figure_function(*callee, args, expr)
            }
            ExprKind::Field { base, name } if self.owner(base).is_some() => {
                let owner = self.owner(base).expect("asked just now").to_owned();
                let member = self.names.name(name.symbol).to_owned();
                let Some(figure) = Figure::from_name(&format!("{owner}.{member}")) else {
                    let help = Some(members_of(&owner));
                    return self.fail(ModelError::UnknownMember { name: owner, member, at: name.span.into(), help });
                };
                Some(whole(figure, expr.span))
            }
            ExprKind::Field { base, name } => {
                let statistic = self.statistic(base, *name)?;
                let (of, slot) = self.split_slot(base)?;
                self.picked(of, Pick { slot, statistic: Some(statistic) }, expr.span)
            }
            ExprKind::Index { base, .. } if self.names_metric_family(base) => {
                self.picked(expr, Pick::default(), expr.span)
            }
            ExprKind::Index { base, .. } if self.names_slot(base) => {
                let (of, slot) = self.split_slot(expr)?;
                self.picked(of, Pick { slot, statistic: None }, expr.span)
            }
            ExprKind::Negate(inner) => match self.figure(inner)? {
                (value, Type::Number(dimension)) => {
                    Some((FigureExpr::Unary(Unary::Negate, Box::new(value)), Type::Number(dimension)))
                }
                (_, Type::Bool) => self.wrong_type("a number", &Value::Bool(true), inner.span),
            },
            ExprKind::Not(inner) => {
                let value = self.condition(inner)?;
                Some((FigureExpr::Unary(Unary::Not, Box::new(value)), Type::Bool))
            }
            ExprKind::Binary { op, left, right } => self.figure_binary(*op, left, right),
            ExprKind::If { arms, otherwise } => self.figure_choice(arms, otherwise),
            ExprKind::Index { base, items } if base.as_name().is_some() && self.mentions_figure(base) => {
                let items: Vec<String> = items.iter().map(|item| written(item, &self.names)).collect();
                let help =
                    format!("a figure has its sets in parentheses: `{}({})`", self.text_of(base), items.join(", "));
                let name = written(expr, &self.names);
                self.fail(ModelError::UnknownFigure { name, at: expr.span.into(), help: Some(help) })
            }
            _ => {
                let found = if let ExprKind::List(_) = expr.kind { "a list" } else { "an expression of figures" };
                self.fail(ModelError::WrongType {
                    expected: "a number".to_owned(),
                    found: found.to_owned(),
                    at: expr.span.into(),
                    help: Some(
                        "figures combine by operators, `abs`, `min` and `max`; several figures under one name are a \
                         family: `metric t[i in 0..4] = time(f[i])`"
                            .to_owned(),
                    ),
                })
            }
        }
    }

    fn plain_figure(&mut self, expr: &Expr) -> LoweredFigure {
        let mut unknown = None;
        walk::expr(expr, &mut |part| {
            if let ExprKind::Call { callee, .. } = part.kind
                && !FUNCTIONS.contains(&self.names.name(callee.symbol))
            {
                unknown.get_or_insert(callee);
            }
        });
        if let Some(callee) = unknown {
            return self.unknown_figure(callee.symbol, callee.span, FUNCTIONS);
        }
        if let ExprKind::Field { base, name } = &expr.kind
            && let Some(figure) = Figure::from_name(self.names.name(name.symbol))
        {
            let help = Some(format!("write `{}({})`", figure.name(), written(base, &self.names)));
            return self.fail(ModelError::UnknownFigure {
                name: written(expr, &self.names),
                at: expr.span.into(),
                help,
            });
        }
        if let Some((set, kind, at)) = self.mentioned_set(expr) {
            // A member of a label is one of its outputs: `r.values`.
            let is_output = kind == "a label" && written(expr, &self.names).contains(&format!("{set}."));
            let help = match is_output || kind == "a tensor" {
                true => "no figure has the elements of a tensor: figures and parameters can be compared; `aorta exec --verify` \
                         checks what operations write, and `--outputs FOLDER` stores buffers"
                    .to_owned(),
                false => {
                    format!("`{set}` is {kind}: write a figure of it, such as `time({set})` or `bandwidth({set})`")
                }
            };
            return self.fail(ModelError::UnknownFigure { name: set, at: at.into(), help: Some(help) });
        }
        if let Some(error) = self.later_metric(expr) {
            return self.fail(error);
        }
        if let Some((symbol, at)) = self.unknown_name(expr) {
            let known = if self.has_room_for_errors() { self.known_names() } else { Vec::new() };
            return self.unknown_figure(symbol, at, &known);
        }
        if !self.differs_by_iteration(expr) {
            let (value, ty) = self.plain_value(expr)?;
            return Some((FigureExpr::Constant(value), ty));
        }
        // Draws that the step does not use differ between iterations too. After errors, one value shows further ones.
        let cycle = self.slots.map_or(1, |_| self.cycle_use.longest_cycle(self.options.cycle));
        let mut values = Vec::new();
        let mut ty = Type::Bool;
        for iteration in 0..cycle {
            self.iteration = Some(iteration as i64);
            let value = self.plain_value(expr);
            self.iteration = None;
            let value = value?;
            values.push(value.0);
            ty = value.1;
        }
        let value = match self.slots {
            // A condition holds if it holds in every iteration.
            _ if ty == Type::Bool => FigureExpr::Constant(f64::from(values.iter().all(|value| *value != 0.0))),
            Some(slots) if slots > 1 && slots as u64 == cycle => FigureExpr::BySlot(values),
            _ => FigureExpr::Constant(values.iter().sum::<f64>() / values.len() as f64),
        };
        Some((value, ty))
    }

    /// The first name in an expression that the file does not declare, and its location; `None` if there is none.
    fn unknown_name(&self, expr: &Expr) -> Option<(Symbol, SrcSpan)> {
        let mut found = None;
        walk::expr(expr, &mut |part| {
            let is_known = |symbol: &Symbol| {
                let builtins = [self.builtins.rank, self.builtins.world, self.builtins.iteration];
                let is_type = DType::from_name(self.names.name(*symbol)).is_some();
                self.scopes.get(*symbol).is_some()
                    || self.words.contains(symbol)
                    || builtins.contains(symbol)
                    || is_type
            };
            found = found.or(part.as_name().filter(|symbol| !is_known(symbol)).map(|symbol| (symbol, part.span)));
        });
        found
    }

    /// The value of an expression without figures, in base units.
    fn plain_value(&mut self, expr: &Expr) -> Option<(f64, Type)> {
        match self.eval(expr) {
            Value::Unknown => None,
            Value::Number(number) => Some((number.value.float(), Type::Number(number.dimension))),
            Value::Bool(value) => Some((f64::from(value), Type::Bool)),
            other => self.wrong_type("a number", &other, expr.span),
        }
    }

    /// True if an expression names a draw.
    fn differs_by_iteration(&self, expr: &Expr) -> bool {
        let mut differs = false;
        walk::expr(expr, &mut |part| {
            let value = part.as_name().and_then(|name| self.scopes.get(name));
            differs |= matches!(value, Some(Value::Draw(_)));
        });
        differs
    }

    /// The first stream, tensor, label or phase that an expression names without a metric: its text, its kind, and its
    /// location. `None` if it names none.
    fn mentioned_set(&self, expr: &Expr) -> Option<(String, &'static str, SrcSpan)> {
        let mut found = None;
        walk::expr(expr, &mut |part| {
            let (name, whole) = match &part.kind {
                ExprKind::Index { base, .. } => (base.as_name(), part),
                _ => (part.as_name(), part),
            };
            let kind = name.and_then(|name| match self.scopes.get(name) {
                Some(Value::Stream { .. }) => Some("a stream"),
                Some(Value::Tensor { .. }) => Some("a tensor"),
                Some(_) => None,
                None if self.sets.0.contains_key(&name) => Some("a label"),
                None if self.sets.1.contains_key(&name) => Some("a phase"),
                None => None,
            });
            if let (None, Some(kind)) = (&found, kind) {
                found = Some((written(whole, &self.names), kind, whole.span));
            }
        });
        found
    }

    fn unknown_figure(&mut self, symbol: Symbol, span: SrcSpan, others: &[impl AsRef<str>]) -> LoweredFigure {
        let name = self.names.name(symbol).to_owned();
        let figures = Figure::NAMES;
        let near = suggest::nearest(&name, figures.into_iter().chain(others.iter().map(AsRef::as_ref)));
        let help = match (figure_elsewhere(&name), near) {
            (Some(help), _) => help.to_owned(),
            (None, _) if Statistic::from_name(&name).is_some() => {
                format!("a statistic follows a figure: `time.{name}`, `time(f).{name}`")
            }
            (None, Some(near)) => format!("did you mean `{near}`?"),
            (None, None) => format!(
                "declare it above: `metric {name} = …`, or `param {name} = 4` for a value of the file; the figures are {}",
                suggest::listed(&figures)
            ),
        };
        self.fail(ModelError::UnknownFigure { name, at: span.into(), help: Some(help) })
    }

    /// Lowers a metric or an earlier metric with its statistic and slot.
    fn picked(&mut self, expr: &Expr, pick: Pick, span: SrcSpan) -> LoweredFigure {
        match &expr.kind {
            ExprKind::Name(symbol) => self.named(*symbol, None, pick, span),
            ExprKind::Call { callee, args } => self.named(callee.symbol, Some(args), pick, span),
            ExprKind::Index { base, items } if self.names_metric_family(base) => {
                let metric = self.family_member(base, items)?;
                self.earlier(metric, pick)
            }
            ExprKind::Field { base, .. } if pick.slot.is_some() && self.owner(base).is_some() => {
                let name = self.text_of(expr);
                self.fail(ModelError::NoSlots { name, at: span.into() })
            }
            kind => {
                let (mut name, mut at) = (self.text_of(expr), expr.span);
                let help = match (kind, pick.statistic) {
                    (ExprKind::Field { .. }, _) if pick.slot.is_some() => {
                        "a slot goes before the statistic: `time.slot[0].p95`".to_owned()
                    }
                    _ if pick.slot.is_some() => "a slot follows a figure or a metric: `time.slot[0]`".to_owned(),
                    (ExprKind::Field { base, .. }, Some(second)) => {
                        let other = format!("{}.{}", self.text_of(base), second.name());
                        let help = format!("a figure has one statistic: write `{name}` or `{other}`");
                        (name, at) = (format!("{name}.{}", second.name()), span);
                        help
                    }
                    _ => "a statistic follows a figure or a metric: `time.p99`".to_owned(),
                };
                self.fail(ModelError::UnknownFigure { name, at: at.into(), help: Some(help) })
            }
        }
    }

    /// Returns `memory` or `device` if the expression is that name and the file does not declare it; `None` for any
    /// other expression.
    fn owner(&self, base: &Expr) -> Option<&str> {
        let symbol = base.as_name().filter(|&symbol| self.scopes.get(symbol).is_none())?;
        Some(self.names.name(symbol)).filter(|name| OWNERS.contains(name) && self.metric(symbol).is_none())
    }

    /// Lowers a name: an earlier metric, or a metric of the sets in parentheses, which is always one of the language.
    fn named(&mut self, symbol: Symbol, args: Option<&[Expr]>, pick: Pick, span: SrcSpan) -> LoweredFigure {
        if let Some(metric) = self.metric(symbol).filter(|_| args.is_none()) {
            return self.earlier(metric, pick);
        }
        if args.is_none()
            && let Some(help) = self.first_member(symbol)
        {
            let name = self.names.name(symbol).to_owned();
            return self.fail(ModelError::UnknownFigure { name, at: span.into(), help: Some(help) });
        }
        let name = self.names.name(symbol).to_owned();
        let Some(figure) = Figure::from_name(&name) else {
            let help = match name.as_str() {
                owner if OWNERS.contains(&owner) => Some(members_of(owner)),
                name => {
                    figure_elsewhere(name).map(str::to_owned).or_else(|| suggest::did_you_mean(name, Figure::NAMES))
                }
            };
            return self.fail(ModelError::UnknownFigure { name, at: span.into(), help });
        };
        let (set, beside) = self.sets_of(figure, args, span)?;
        let slot = self.slot_of(&name, figure.has_slots(), pick)?;
        let statistic = pick.statistic;
        let ty = measured(figure.dimension(), statistic);
        Some((FigureExpr::Figure { figure, set, beside, slot, statistic, span }, ty))
    }

    /// Lowers a reference to an earlier metric by its index.
    fn earlier(&mut self, metric: usize, pick: Pick) -> LoweredFigure {
        let earlier = &self.program.metrics[metric];
        if matches!(earlier.value, FigureExpr::Constant(value) if value.is_nan()) {
            return None;
        }
        let (name, has_slots) = (earlier.name.clone(), earlier.has_slots);
        let ty = measured(earlier.dimension, pick.statistic);
        let slot = self.slot_of(&name, has_slots, pick)?;
        Some((FigureExpr::Metric { metric, slot, statistic: pick.statistic }, ty))
    }

    /// Evaluates as many sets as a metric takes.
    fn sets_of(
        &mut self,
        figure: Figure,
        args: Option<&[Expr]>,
        span: SrcSpan,
    ) -> Option<(Option<OpSet>, Option<OpSet>)> {
        let name = figure.name();
        let (expected, help) = match (figure.sets(), args) {
            (Sets::None | Sets::Optional, None) => return Some((None, None)),
            (Sets::Optional, Some(args)) => return Some((Some(self.set(args)?), None)),
            (Sets::Two, Some([first, second])) => {
                let sets = (self.set(std::slice::from_ref(first)), self.set(std::slice::from_ref(second)));
                return Some((Some(sets.0?), Some(sets.1?)));
            }
            (Sets::None, Some(_)) => (
                "no set of operations",
                format!("`{name}` describes the whole iteration: write it without parentheses"),
            ),
            (Sets::Two, _) => {
                ("two sets of operations", format!("each is a stream, a label or a phase: `{name}(compute, comm)`"))
            }
        };
        self.fail(ModelError::argument_count(name, expected, args.map_or(0, <[Expr]>::len), span, help))
    }

    fn figure_binary(&mut self, op: BinaryOp, left: &Expr, right: &Expr) -> LoweredFigure {
        let (a, b) = (self.figure(left), self.figure(right));
        let ((a, a_type), (b, b_type)) = (a?, b?);
        let function = binary(op);
        let ty = match (op, a_type, b_type) {
            (BinaryOp::Or | BinaryOp::And | BinaryOp::Equal | BinaryOp::NotEqual, Type::Bool, Type::Bool) => {
                Some(Type::Bool)
            }
            (BinaryOp::Multiply, Type::Number(a), Type::Number(b)) => a.times(b).map(Type::Number),
            (BinaryOp::Divide, Type::Number(a), Type::Number(b)) => a.times(b.inverse()).map(Type::Number),
            (BinaryOp::Add | BinaryOp::Subtract | BinaryOp::Remainder, Type::Number(a), Type::Number(b)) if a == b => {
                Some(Type::Number(a))
            }
            (op, Type::Number(a), Type::Number(b)) if a == b && op.is_comparison() => Some(Type::Bool),
            _ => None,
        };
        let Some(ty) = ty else {
            let help = match (a_type, b_type) {
                (Type::Number(Dimension::TIME), _) if op.is_comparison() && is_percent(right) => {
                    format!("a share of the iteration is a time over its time: `{} / time`", written(left, &self.names))
                }
                (Type::Number(a), Type::Number(b)) => crate::model::values::eval::units_help(a, b),
                (Type::Bool, Type::Number(_)) if op.is_comparison() => match &left.kind {
                    ExprKind::Binary { right: middle, .. } => {
                        let [first, middle, last] = [left, middle, right].map(|expr| written(expr, &self.names));
                        format!("join two comparisons by `and`: `{first} and {middle} {} {last}`", op.name())
                    }
                    _ => "compare two numbers".to_owned(),
                },
                _ => "`and`, `or`, `==` and `!=` join conditions, all other operators numbers".to_owned(),
            };
            self.types_differ(op.name(), (a_type, left.span), (b_type, right.span), help);
            return None;
        };
        Some((FigureExpr::Binary(function, Box::new(a), Box::new(b)), ty))
    }
}

impl Type {
    pub(in crate::model) fn describe(self) -> String {
        match self {
            Type::Bool => "a condition".to_owned(),
            Type::Number(dimension) => dimension.describe(),
        }
    }
}

/// The type of a metric or of one of its statistics.
fn measured(dimension: Dimension, statistic: Option<Statistic>) -> Type {
    Type::Number(if statistic == Some(Statistic::Cv) { Dimension::NONE } else { dimension })
}

/// Returns a metric of the whole iteration, with its type.
fn whole(figure: Figure, span: SrcSpan) -> (FigureExpr, Type) {
    let value = FigureExpr::Figure { figure, set: None, beside: None, slot: None, statistic: None, span };
    (value, Type::Number(figure.dimension()))
}

/// True if an expression can differ between slots.
fn has_slots(metrics: &[Metric], expr: &FigureExpr) -> bool {
    expr.leaves().into_iter().any(|leaf| match leaf {
        FigureExpr::BySlot(_) => true,
        FigureExpr::Figure { figure, slot: None, .. } => figure.has_slots(),
        FigureExpr::Metric { metric, slot: None, .. } => metrics[*metric].has_slots,
        _ => false,
    })
}

/// True if a name refers to something whose value is known only after a run.
fn is_name_of_figure(name: &str) -> bool {
    Figure::from_name(name).is_some() || OWNERS.contains(&name)
}

/// Lists the metrics of an owner.
fn members_of(owner: &str) -> String {
    let names = Figure::NAMES.into_iter();
    let of: Vec<&str> = names.filter(|name| name.split('.').next() == Some(owner) && *name != owner).collect();
    let verb = if of.len() == 1 { "is" } else { "are" };
    format!("of `{owner}` there {verb} {}", suggest::listed(&of))
}

/// True for a number with the unit `%`.
fn is_percent(expr: &Expr) -> bool {
    matches!(&expr.kind, ExprKind::Quantity { unit, .. } if unit.name == "%")
}
