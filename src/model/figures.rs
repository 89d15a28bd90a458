//! `metric` and `expect`: expressions over figures that only a run gives.

use crate::base::units::{self, Dimension};
use crate::base::{SrcSpan, Symbol, counted, suggest};
use crate::ops::expression::{Binary, Unary};
use crate::syntax::ast::*;
use crate::syntax::written;

use super::analyzer::Analyzer;
use super::error::ModelError;
use super::figure::{Figure, Sets};
use super::functions::FUNCTIONS;
use super::lower::binary;
use super::sets::OpSet;
use super::statistic::Statistic;
use super::value::Value;

/// A figure of the result.
#[derive(Clone, Debug)]
pub struct Metric {
    pub name: String,
    pub value: FigureExpr,
    /// What it measures; its unit follows, unless the file names one.
    pub dimension: Dimension,
    pub unit: Option<String>,
    /// Whether it may differ from one slot of the cycle to the next.
    pub has_slots: bool,
    pub span: SrcSpan,
}

/// A condition on the result.
#[derive(Clone, Debug)]
pub struct Expectation {
    pub condition: FigureExpr,
    pub when: Option<FigureExpr>,
    pub span: SrcSpan,
}

/// An expression over figures, numbers in base units; truth is 1 and 0.
#[derive(Clone, Debug)]
pub enum FigureExpr {
    Constant(f64),
    Figure {
        figure: Figure,
        set: Option<OpSet>,
        /// The second set, where the figure compares two.
        beside: Option<OpSet>,
        /// The slot that it is of; `None` for what its surroundings are of.
        slot: Option<usize>,
        statistic: Option<Statistic>,
        span: SrcSpan,
    },
    /// An earlier metric, by its place.
    Metric {
        metric: usize,
        slot: Option<usize>,
        statistic: Option<Statistic>,
    },
    Unary(Unary, Box<FigureExpr>),
    Binary(Binary, Box<FigureExpr>, Box<FigureExpr>),
}

/// What kind of value a part of an expression has.
#[derive(Clone, Copy, PartialEq)]
enum Type {
    Number(Dimension),
    Bool,
}

/// What is taken of a figure: `.slot[0].p95`.
#[derive(Clone, Copy, Default)]
struct Pick {
    /// The slot with its place in the text.
    slot: Option<(i64, SrcSpan)>,
    statistic: Option<Statistic>,
}

/// What picks a slot of a figure.
const SLOT: &str = "slot";

/// What figures begin with that are of something: `memory.peak`, `device.units`.
const OWNERS: [&str; 2] = ["memory", "device"];

/// What stands for a metric with a mistake: it leaves no analysis, and what uses it stays silent.
const FAILED: FigureExpr = FigureExpr::Constant(f64::NAN);

type Lowered = Option<(FigureExpr, Type)>;

impl<'a> Analyzer<'a> {
    pub(super) fn figures(&mut self) {
        let ast = self.ast;
        self.sets = super::check::labels_and_phases(ast);
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
                    let lowered = self.truth(condition);
                    let guard = when.as_ref().map(|when| self.truth(when));
                    if let (Some(condition), None | Some(Some(_))) = (lowered, &guard) {
                        let when = guard.flatten();
                        self.program.expectations.push(Expectation { condition, when, span: decl.span });
                    }
                }
                _ => {}
            }
        }
    }

    /// Adds a metric, and says which it is.
    pub(super) fn declared_metric(&mut self, name: String, value: &Expr, unit: Option<&str>, span: SrcSpan) -> usize {
        let (value, dimension) = match self.figure(value) {
            Some((value, Type::Number(dimension))) => {
                self.check_unit(dimension, unit, span);
                (value, dimension)
            }
            Some((value, Type::Bool)) => (value, Dimension::NONE),
            None => (FAILED, Dimension::NONE),
        };
        let unit = unit.map(str::to_owned);
        let has_slots = has_slots(&self.program.metrics, &value);
        self.program.metrics.push(Metric { name, value, dimension, unit, has_slots, span });
        self.program.metrics.len() - 1
    }

    /// A unit of the language has to measure what the metric does; any other text names what is counted.
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

    fn truth(&mut self, expr: &Expr) -> Option<FigureExpr> {
        match self.figure(expr)? {
            (value, Type::Bool) => Some(value),
            (_, Type::Number(dimension)) => {
                self.error(ModelError::WrongType {
                    expected: "a condition".to_owned(),
                    found: dimension.describe(),
                    at: expr.span.into(),
                    help: Some("compare it with something: `speedup > 1`".to_owned()),
                });
                None
            }
        }
    }

    /// Whether a part of the expression is known only after a run.
    fn mentions_figure(&self, expr: &Expr) -> bool {
        let is_figure = |symbol: Symbol| {
            let name = self.names.name(symbol);
            let metric = self.metric(symbol).is_some() || self.metric_families.contains_key(&symbol);
            self.scopes.get(symbol).is_none() && (is_name_of_figure(name) || metric)
        };
        match &expr.kind {
            ExprKind::Name(symbol) => is_figure(*symbol),
            ExprKind::Call { callee, args } => {
                is_figure(callee.symbol) || args.iter().any(|arg| self.mentions_figure(arg))
            }
            ExprKind::Field { base, .. } | ExprKind::Negate(base) | ExprKind::Not(base) => self.mentions_figure(base),
            ExprKind::Binary { left, right, .. } => self.mentions_figure(left) || self.mentions_figure(right),
            ExprKind::Index { base, items } => {
                self.mentions_figure(base) || items.iter().any(|item| self.mentions_figure(item))
            }
            _ => false,
        }
    }

    fn metric(&self, symbol: Symbol) -> Option<usize> {
        self.metrics.get(&symbol).copied()
    }

    fn figure(&mut self, expr: &Expr) -> Lowered {
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
                self.figure_function(&name, args, expr)
            }
            ExprKind::Field { base, name } if self.owner(base).is_some() => {
                let owner = self.owner(base).expect("asked just now").to_owned();
                let member = self.names.name(name.symbol).to_owned();
                let Some(figure) = Figure::from_name(&format!("{owner}.{member}")) else {
                    let help = Some(members_of(&owner));
                    self.error(ModelError::UnknownMember { name: owner, member, at: name.span.into(), help });
                    return None;
                };
                Some(whole(figure, expr.span))
            }
            ExprKind::Field { base, name } => {
                let statistic = self.statistic(base, *name)?;
                let (of, slot) = self.slot_behind(base)?;
                self.picked(of, Pick { slot, statistic: Some(statistic) }, expr.span)
            }
            ExprKind::Index { base, .. } if self.names_metric_family(base) => {
                self.picked(expr, Pick::default(), expr.span)
            }
            ExprKind::Index { base, .. } if self.names_slot(base) => {
                let (of, slot) = self.slot_behind(expr)?;
                self.picked(of, Pick { slot, statistic: None }, expr.span)
            }
            ExprKind::Negate(inner) => match self.figure(inner)? {
                (value, Type::Number(dimension)) => {
                    Some((FigureExpr::Unary(Unary::Negate, Box::new(value)), Type::Number(dimension)))
                }
                (_, Type::Bool) => self.wrong_type("a number", &Value::Bool(true), inner.span),
            },
            ExprKind::Not(inner) => {
                let value = self.truth(inner)?;
                Some((FigureExpr::Unary(Unary::Not, Box::new(value)), Type::Bool))
            }
            ExprKind::Binary { op, left, right } => self.figure_binary(*op, left, right),
            _ => {
                self.error(ModelError::UnknownFigure {
                    name: self.text_of(expr),
                    at: expr.span.into(),
                    help: Some("figures combine by operators and functions".to_owned()),
                });
                None
            }
        }
    }

    fn plain_figure(&mut self, expr: &Expr) -> Lowered {
        if let Some(symbol) = expr.as_name()
            && self.scopes.get(symbol).is_none()
            && !self.words.contains(&symbol)
            && ![self.builtins.rank, self.builtins.world].contains(&symbol)
        {
            let known = if self.listens() { self.known_names() } else { Vec::new() };
            return self.unknown_figure(symbol, expr.span, &known);
        }
        if let ExprKind::Call { callee, .. } = &expr.kind
            && !FUNCTIONS.contains(&self.names.name(callee.symbol))
        {
            return self.unknown_figure(callee.symbol, callee.span, FUNCTIONS);
        }
        match self.eval(expr) {
            Value::Unknown => None,
            Value::Number(number) => Some((FigureExpr::Constant(number.value.float()), Type::Number(number.dimension))),
            Value::Bool(value) => Some((FigureExpr::Constant(f64::from(value)), Type::Bool)),
            other => self.wrong_type("a number", &other, expr.span),
        }
    }

    fn unknown_figure(&mut self, symbol: Symbol, span: SrcSpan, others: &[impl AsRef<str>]) -> Lowered {
        let name = self.names.name(symbol).to_owned();
        let figures = Figure::ALL.map(Figure::name);
        let help = suggest::nearest(&name, figures.into_iter().chain(others.iter().map(AsRef::as_ref))).map_or_else(
            || format!("the figures are {}", suggest::listed(&figures)),
            |near| format!("did you mean `{near}`?"),
        );
        self.error(ModelError::UnknownFigure { name, at: span.into(), help: Some(help) });
        None
    }

    /// The statistic that stands behind a figure.
    fn statistic(&mut self, of: &Expr, name: Name) -> Option<Statistic> {
        let text = self.names.name(name.symbol).to_owned();
        if let Some(statistic) = Statistic::ALL.into_iter().find(|statistic| statistic.name() == text) {
            return Some(statistic);
        }
        let known = Statistic::ALL.map(Statistic::name);
        let help = match text.as_str() {
            "median" => Some("write `p50`: half of the samples lie below it".to_owned()),
            "avg" | "average" => Some("write `mean`".to_owned()),
            "stddev" | "stdev" | "sigma" => Some("write `std`".to_owned()),
            SLOT => Some(format!("say which: `{}.slot[0]`", written(of, &self.names))),
            _ => suggest::did_you_mean(&text, known),
        };
        let help = help.or_else(|| Some(format!("of a figure's samples there are {}", suggest::listed(&known))));
        let name_of = self.text_of(of);
        self.error(ModelError::UnknownMember { name: name_of, member: text, at: name.span.into(), help });
        None
    }

    /// Whether an expression is something `.slot`.
    fn names_slot(&self, expr: &Expr) -> bool {
        matches!(&expr.kind, ExprKind::Field { name, .. } if self.names.name(name.symbol) == SLOT)
    }

    /// What stands before `.slot[…]`, with the slot; the expression itself where there is none.
    fn slot_behind<'e>(&mut self, expr: &'e Expr) -> Option<(&'e Expr, Option<(i64, SrcSpan)>)> {
        let ExprKind::Index { base, items } = &expr.kind else { return Some((expr, None)) };
        let ExprKind::Field { base: of, .. } = &base.kind else { return Some((expr, None)) };
        if !self.names_slot(base) {
            return Some((expr, None));
        }
        let [item] = items.as_slice() else {
            let help = Some(format!("a slot has one number: `{}.slot[0]`", written(of, &self.names)));
            let name = written(expr, &self.names);
            self.error(ModelError::UnknownFigure { name, at: expr.span.into(), help });
            return None;
        };
        Some((of, Some((self.eval_whole(item)?, item.span))))
    }

    /// A figure or an earlier metric with what is taken of it.
    fn picked(&mut self, expr: &Expr, pick: Pick, span: SrcSpan) -> Lowered {
        match &expr.kind {
            ExprKind::Name(symbol) => self.named(*symbol, None, pick, span),
            ExprKind::Call { callee, args } => self.named(callee.symbol, Some(args), pick, span),
            ExprKind::Index { base, items } if self.names_metric_family(base) => {
                let metric = self.family_member(base, items)?;
                self.earlier(metric, pick)
            }
            ExprKind::Field { base, .. } if pick.slot.is_some() && self.owner(base).is_some() => {
                let name = self.text_of(expr);
                self.error(ModelError::NoSlots { name, at: span.into() });
                None
            }
            kind => {
                let help = match kind {
                    ExprKind::Field { .. } if pick.slot.is_some() => {
                        "a slot stands before the statistic: `time.slot[0].p95`"
                    }
                    _ if pick.slot.is_some() => "a slot stands behind a figure or a metric: `time.slot[0]`",
                    _ => "a statistic stands behind a figure or a metric: `time.p99`",
                };
                self.error(ModelError::UnknownFigure {
                    name: self.text_of(expr),
                    at: expr.span.into(),
                    help: Some(help.to_owned()),
                });
                None
            }
        }
    }

    /// The slot that is picked of a figure, which has to have slots and that one.
    fn slot_of(&mut self, name: &str, has_slots: bool, pick: Pick) -> Option<Option<usize>> {
        let Some((slot, at)) = pick.slot else { return Some(None) };
        if !has_slots {
            self.error(ModelError::NoSlots { name: name.to_owned(), at: at.into() });
            return None;
        }
        // How many there are is not known where the step has mistakes.
        let slots = self.slots?;
        if (0..slots as i64).contains(&slot) {
            return Some(Some(slot as usize));
        }
        let (told, help) = match slots {
            1 => (
                "all iterations are alike, and there is slot 0 alone".to_owned(),
                "iterations differ where the step uses `iteration`, as in `x[iteration % 2]`".to_owned(),
            ),
            _ => (
                format!("the step repeats after {slots} iterations: slots 0 to {}", slots - 1),
                format!("slots are counted from 0: the last is `{name}.slot[{}]`", slots - 1),
            ),
        };
        self.error(ModelError::SlotOutOfRange { name: name.to_owned(), slot, slots: told, help, at: at.into() });
        None
    }

    /// `memory` or `device`, unless the file calls something so.
    fn owner(&self, base: &Expr) -> Option<&str> {
        let symbol = base.as_name().filter(|&symbol| self.scopes.get(symbol).is_none())?;
        Some(self.names.name(symbol)).filter(|name| OWNERS.contains(name) && self.metric(symbol).is_none())
    }

    /// A metric, or a figure of the sets in the parentheses behind it.
    fn named(&mut self, symbol: Symbol, args: Option<&[Expr]>, pick: Pick, span: SrcSpan) -> Lowered {
        if let Some(metric) = self.metric(symbol) {
            return self.earlier(metric, pick);
        }
        if let Some(help) = self.first_member(symbol) {
            let name = self.names.name(symbol).to_owned();
            self.error(ModelError::UnknownFigure { name, at: span.into(), help: Some(help) });
            return None;
        }
        let name = self.names.name(symbol).to_owned();
        let Some(figure) = Figure::from_name(&name) else {
            let help = match name.as_str() {
                owner if OWNERS.contains(&owner) => Some(members_of(owner)),
                name => suggest::did_you_mean(name, Figure::ALL.map(Figure::name)),
            };
            self.error(ModelError::UnknownFigure { name, at: span.into(), help });
            return None;
        };
        let (set, beside) = self.sets_of(figure, args, span)?;
        let slot = self.slot_of(&name, figure.has_slots(), pick)?;
        let statistic = pick.statistic;
        let ty = measured(figure.dimension(), statistic);
        Some((FigureExpr::Figure { figure, set, beside, slot, statistic, span }, ty))
    }

    /// A metric that stands above, by its place.
    fn earlier(&mut self, metric: usize, pick: Pick) -> Lowered {
        let earlier = &self.program.metrics[metric];
        if matches!(earlier.value, FigureExpr::Constant(value) if value.is_nan()) {
            return None;
        }
        let (name, has_slots) = (earlier.name.clone(), earlier.has_slots);
        let ty = measured(earlier.dimension, pick.statistic);
        let slot = self.slot_of(&name, has_slots, pick)?;
        Some((FigureExpr::Metric { metric, slot, statistic: pick.statistic }, ty))
    }

    /// The sets that a figure is asked of, as many as it takes.
    fn sets_of(
        &mut self,
        figure: Figure,
        args: Option<&[Expr]>,
        span: SrcSpan,
    ) -> Option<(Option<OpSet>, Option<OpSet>)> {
        let name = figure.name();
        let (shown, help) = match (figure.sets(), args) {
            (Sets::None | Sets::Optional, None) => return Some((None, None)),
            (Sets::Optional, Some(args)) => return Some((Some(self.set(args)?), None)),
            (Sets::Two, Some([first, second])) => {
                let sets = (self.set(std::slice::from_ref(first)), self.set(std::slice::from_ref(second)));
                return Some((Some(sets.0?), Some(sets.1?)));
            }
            (Sets::None, Some(_)) => {
                (format!("{name}(…)"), format!("`{name}` is of the whole iteration: write it without parentheses"))
            }
            (Sets::Two, None) => (name.to_owned(), format!("`{name}` compares two sets: `{name}(first, second)`")),
            (Sets::Two, Some(args)) => (
                format!("{name} of {}", counted(args.len(), "set")),
                format!("`{name}` compares two sets: `{name}(first, second)`"),
            ),
        };
        self.error(ModelError::UnknownFigure { name: shown, at: span.into(), help: Some(help) });
        None
    }

    fn figure_binary(&mut self, op: BinaryOp, left: &Expr, right: &Expr) -> Lowered {
        let (a, b) = (self.figure(left), self.figure(right));
        let ((a, a_type), (b, b_type)) = (a?, b?);
        let function = binary(op);
        let ty = match (op, a_type, b_type) {
            (BinaryOp::Or | BinaryOp::And, Type::Bool, Type::Bool) => Some(Type::Bool),
            (BinaryOp::Multiply, Type::Number(a), Type::Number(b)) => a.times(b).map(Type::Number),
            (BinaryOp::Divide, Type::Number(a), Type::Number(b)) => a.times(b.inverse()).map(Type::Number),
            (BinaryOp::Add | BinaryOp::Subtract | BinaryOp::Remainder, Type::Number(a), Type::Number(b)) if a == b => {
                Some(Type::Number(a))
            }
            (op, Type::Number(a), Type::Number(b)) if a == b && is_comparison(op) => Some(Type::Bool),
            _ => None,
        };
        let Some(ty) = ty else {
            let describe = |ty: Type| match ty {
                Type::Bool => "a condition".to_owned(),
                Type::Number(dimension) => dimension.describe(),
            };
            let help = match (a_type, b_type) {
                (Type::Number(a), Type::Number(b)) => super::eval::units_help(a, b),
                _ => "`and` and `or` join conditions, all other operators numbers",
            };
            self.error(ModelError::UnitsDiffer {
                op: op.text(),
                help,
                left: describe(a_type),
                left_at: left.span.into(),
                right: describe(b_type),
                right_at: right.span.into(),
            });
            return None;
        };
        Some((FigureExpr::Binary(function, Box::new(a), Box::new(b)), ty))
    }

    fn figure_function(&mut self, name: &str, args: &[Expr], expr: &Expr) -> Lowered {
        let lowered: Vec<Lowered> = args.iter().map(|arg| self.figure(arg)).collect();
        let lowered: Vec<(FigureExpr, Type)> = lowered.into_iter().collect::<Option<_>>()?;
        let first = lowered.first().map(|(_, ty)| *ty);
        let alike = lowered.iter().all(|(_, ty)| Some(*ty) == first);
        match (Unary::from_name(name), Binary::from_name(name), first) {
            (Some(function), _, Some(Type::Number(dimension))) if lowered.len() == 1 => {
                let keeps = matches!(function, Unary::Abs);
                if keeps || dimension == Dimension::NONE {
                    let value = lowered.into_iter().next()?.0;
                    return Some((FigureExpr::Unary(function, Box::new(value)), Type::Number(dimension)));
                }
            }
            (_, Some(function @ (Binary::Max | Binary::Min)), Some(ty @ Type::Number(_))) if alike => {
                let values = lowered.into_iter().map(|(value, _)| value);
                let value = values.reduce(|a, b| FigureExpr::Binary(function, Box::new(a), Box::new(b)))?;
                return Some((value, ty));
            }
            _ => {}
        }
        let statistic = Statistic::ALL.into_iter().find(|statistic| statistic.name() == name);
        if let (Some(statistic), [of]) = (statistic.map(Statistic::name).or((name == "median").then_some("p50")), args)
        {
            let help =
                Some(format!("a statistic stands behind its figure: `{}.{statistic}`", written(of, &self.names)));
            self.error(ModelError::UnknownFunction { name: name.to_owned(), at: expr.span.into(), help });
            return None;
        }
        self.error(ModelError::UnknownFunction {
            name: name.to_owned(),
            at: expr.span.into(),
            help: Some("of figures there are `abs`, `min` and `max`, and functions of plain numbers".to_owned()),
        });
        None
    }
}

/// What a figure, or a statistic of it, measures.
fn measured(dimension: Dimension, statistic: Option<Statistic>) -> Type {
    Type::Number(if statistic == Some(Statistic::Cv) { Dimension::NONE } else { dimension })
}

/// A figure of the whole iteration.
fn whole(figure: Figure, span: SrcSpan) -> (FigureExpr, Type) {
    let value = FigureExpr::Figure { figure, set: None, beside: None, slot: None, statistic: None, span };
    (value, Type::Number(figure.dimension()))
}

/// Whether an expression may differ from one slot to the next.
fn has_slots(metrics: &[Metric], expr: &FigureExpr) -> bool {
    match expr {
        FigureExpr::Constant(_)
        | FigureExpr::Figure { slot: Some(_), .. }
        | FigureExpr::Metric { slot: Some(_), .. } => false,
        FigureExpr::Figure { figure, .. } => figure.has_slots(),
        FigureExpr::Metric { metric, .. } => metrics[*metric].has_slots,
        FigureExpr::Unary(_, inner) => has_slots(metrics, inner),
        FigureExpr::Binary(_, left, right) => has_slots(metrics, left) || has_slots(metrics, right),
    }
}

/// Whether a name means something that only a run knows.
fn is_name_of_figure(name: &str) -> bool {
    Figure::from_name(name).is_some() || OWNERS.contains(&name)
}

/// What there is of an owner, in words.
fn members_of(owner: &str) -> String {
    let names = Figure::ALL.map(Figure::name).into_iter();
    let of: Vec<&str> = names.filter(|name| name.split('.').next() == Some(owner) && *name != owner).collect();
    let verb = if of.len() == 1 { "is" } else { "are" };
    format!("of `{owner}` there {verb} {}", suggest::listed(&of))
}

fn is_comparison(op: BinaryOp) -> bool {
    matches!(
        op,
        BinaryOp::Equal
            | BinaryOp::NotEqual
            | BinaryOp::Less
            | BinaryOp::LessEqual
            | BinaryOp::Greater
            | BinaryOp::GreaterEqual
    )
}
