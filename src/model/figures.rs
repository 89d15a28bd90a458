//! `metric` and `expect`: expressions over figures that only a run gives.

use crate::base::units::{self, Dimension};
use crate::base::{SrcSpan, StreamId, Symbol, suggest};
use crate::ops::expression::{Binary, Unary};
use crate::syntax::ast::*;
use crate::syntax::written;

use super::analyzer::Analyzer;
use super::error::ModelError;
use super::functions::FUNCTIONS;
use super::lower::binary;
use super::program::{Op, Program};
pub use super::statistic::Statistic;
use super::value::Value;

/// A figure of the result.
#[derive(Clone, Debug)]
pub struct Metric {
    pub name: String,
    pub value: FigureExpr,
    /// What it measures; its unit follows, unless the file names one.
    pub dimension: Dimension,
    pub unit: Option<String>,
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
        statistic: Option<Statistic>,
        span: SrcSpan,
    },
    /// An earlier metric, by its place.
    Metric {
        metric: usize,
        statistic: Option<Statistic>,
    },
    Unary(Unary, Box<FigureExpr>),
    Binary(Binary, Box<FigureExpr>, Box<FigureExpr>),
}

/// What a run measures or a plan knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Figure {
    /// From the beginning of an iteration, or of the first operation of a set, to the end of the last.
    Time,
    /// Operations of an iteration, or of a set.
    Flops,
    /// Bytes that an iteration, or a set, has to move.
    Bytes,
    /// Bytes over time; of a set, over the time in which any of it runs.
    Bandwidth,
    /// The time of the same operations on one stream.
    SerialTime,
    /// Serial time over time.
    Speedup,
}

impl Figure {
    pub const ALL: [Figure; 6] =
        [Figure::Time, Figure::Flops, Figure::Bytes, Figure::Bandwidth, Figure::SerialTime, Figure::Speedup];

    pub fn name(self) -> &'static str {
        match self {
            Figure::Time => "time",
            Figure::Flops => "flops",
            Figure::Bytes => "bytes",
            Figure::Bandwidth => "bandwidth",
            Figure::SerialTime => "serial_time",
            Figure::Speedup => "speedup",
        }
    }

    fn from_name(name: &str) -> Option<Figure> {
        Self::ALL.into_iter().find(|figure| figure.name() == name)
    }

    fn dimension(self) -> Dimension {
        match self {
            Figure::Time | Figure::SerialTime => Dimension::TIME,
            Figure::Flops => Dimension::FLOPS,
            Figure::Bytes => Dimension::BYTES,
            Figure::Bandwidth => Dimension { time: -1, bytes: 1, flops: 0 },
            Figure::Speedup => Dimension::NONE,
        }
    }

    /// Whether it may be asked of some operations alone.
    fn of_sets(self) -> bool {
        !matches!(self, Figure::SerialTime | Figure::Speedup)
    }
}

/// Figures of the language that this version does not have.
const LATER: [&str; 12] = [
    "busy",
    "bus_bandwidth",
    "critical_path",
    "delay",
    "device",
    "exposed",
    "gap",
    "memory",
    "overlap",
    "slack",
    "stretch",
    "utilization",
];

/// Operations by what they belong to: the union of its parts.
#[derive(Clone, Debug, PartialEq)]
pub struct OpSet {
    pub parts: Vec<SetPart>,
    /// As it is written.
    pub text: String,
}

#[derive(Clone, Debug, PartialEq)]
pub enum SetPart {
    /// Streams from the first on.
    Streams {
        first: u32,
        count: u32,
    },
    /// A label, or a member of a family of labels.
    Label {
        name: Symbol,
        index: Option<Box<[i64]>>,
    },
    Phase {
        name: Symbol,
        index: Option<Box<[i64]>>,
    },
}

impl OpSet {
    pub fn contains(&self, program: &Program, op: &Op) -> bool {
        self.parts.iter().any(|part| match part {
            SetPart::Streams { first, count } => (*first..first + count).contains(&op.stream.0),
            SetPart::Label { name, index } => bears(&program.labels, op.label.index(), *name, index.as_deref()),
            SetPart::Phase { name, index } => bears(&program.phases, op.phase.index(), *name, index.as_deref()),
        })
    }
}

/// Whether a label, or one around it, has that name and index.
fn bears(labels: &[super::program::Label], mut at: usize, name: Symbol, index: Option<&[i64]>) -> bool {
    while let Some(own) = labels[at].name {
        if own == name && index.is_none_or(|index| *index == *labels[at].index) {
            return true;
        }
        at = labels[at].parent.index();
    }
    false
}

/// What kind of value a part of an expression has.
#[derive(Clone, Copy, PartialEq)]
enum Type {
    Number(Dimension),
    Bool,
}

/// What stands for a metric with a mistake: it leaves no analysis, and what uses it stays silent.
const FAILED: FigureExpr = FigureExpr::Constant(f64::NAN);

type Lowered = Option<(FigureExpr, Type)>;

impl<'a> Analyzer<'a> {
    pub(super) fn figures(&mut self) {
        let ast = self.ast;
        self.sets = super::check::labels_and_phases(ast);
        for decl in &ast.decls {
            match &decl.kind {
                DeclKind::Metric { name, value, unit } => {
                    let (value, dimension) = match self.figure(value) {
                        Some((value, Type::Number(dimension))) => {
                            self.check_unit(dimension, unit.as_deref(), decl.span);
                            (value, dimension)
                        }
                        Some((value, Type::Bool)) => (value, Dimension::NONE),
                        None => (FAILED, Dimension::NONE),
                    };
                    let name_text = self.names.name(name.symbol).to_owned();
                    let unit = unit.clone();
                    self.metrics.entry(name.symbol).or_insert(self.program.metrics.len());
                    self.program.metrics.push(Metric { name: name_text, value, dimension, unit, span: decl.span });
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
            self.scopes.get(symbol).is_none()
                && (Figure::from_name(name).is_some() || LATER.contains(&name) || self.metric(symbol).is_some())
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
            ExprKind::Name(symbol) => self.named(*symbol, None, None, expr.span),
            ExprKind::Call { callee, args } if self.scopes.get(callee.symbol).is_none() => {
                let name = self.names.name(callee.symbol).to_owned();
                if Figure::from_name(&name).is_some() || LATER.contains(&name.as_str()) {
                    let set = self.set(args)?;
                    return self.named(callee.symbol, Some(set), None, expr.span);
                }
                self.figure_function(&name, args, expr)
            }
            ExprKind::Field { base, name } => {
                let text = self.names.name(name.symbol).to_owned();
                let Some(statistic) = Statistic::ALL.into_iter().find(|statistic| statistic.name() == text) else {
                    let known = Statistic::ALL.map(Statistic::name);
                    let meant = match text.as_str() {
                        "median" => Some("write `p50`: half of the samples lie below it".to_owned()),
                        "avg" | "average" => Some("write `mean`".to_owned()),
                        "stddev" | "stdev" | "sigma" => Some("write `std`".to_owned()),
                        _ => suggest::did_you_mean(&text, known),
                    };
                    let help =
                        meant.or_else(|| Some(format!("of a figure's samples there are {}", suggest::listed(&known))));
                    let of = self.text_of(base);
                    self.error(ModelError::UnknownMember { name: of, member: text, at: name.span.into(), help });
                    return None;
                };
                match &base.kind {
                    ExprKind::Name(symbol) => self.named(*symbol, None, Some(statistic), expr.span),
                    ExprKind::Call { callee, args } => {
                        let set = self.set(args)?;
                        self.named(callee.symbol, Some(set), Some(statistic), expr.span)
                    }
                    _ => {
                        self.error(ModelError::UnknownFigure {
                            name: self.text_of(base),
                            at: base.span.into(),
                            help: Some("a statistic stands behind a figure or a metric: `time.p99`".to_owned()),
                        });
                        None
                    }
                }
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

    fn named(&mut self, symbol: Symbol, set: Option<OpSet>, statistic: Option<Statistic>, span: SrcSpan) -> Lowered {
        let dimensionless = statistic == Some(Statistic::Cv);
        let measured = |dimension| Type::Number(if dimensionless { Dimension::NONE } else { dimension });
        if let Some(metric) = self.metric(symbol) {
            if matches!(self.program.metrics[metric].value, FigureExpr::Constant(value) if value.is_nan()) {
                return None;
            }
            let dimension = self.program.metrics[metric].dimension;
            return Some((FigureExpr::Metric { metric, statistic }, measured(dimension)));
        }
        let name = self.names.name(symbol).to_owned();
        let Some(figure) = Figure::from_name(&name) else {
            let help = match LATER.contains(&name.as_str()) {
                true => Some(format!("`{name}` comes with a later version")),
                false => suggest::did_you_mean(&name, Figure::ALL.map(Figure::name)),
            };
            self.error(ModelError::UnknownFigure { name, at: span.into(), help });
            return None;
        };
        if set.is_some() && !figure.of_sets() {
            self.error(ModelError::UnknownFigure {
                name: format!("{name}(…)"),
                at: span.into(),
                help: Some(format!("`{name}` is of the whole iteration: write it without parentheses")),
            });
            return None;
        }
        Some((FigureExpr::Figure { figure, set, statistic, span }, measured(figure.dimension())))
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

    /// A set of operations: streams, families, labels, phases.
    fn set(&mut self, args: &[Expr]) -> Option<OpSet> {
        let mut parts = Vec::new();
        let mut texts = Vec::new();
        let mut good = true;
        for arg in args {
            let (name, index) = match &arg.kind {
                ExprKind::Name(symbol) => (Some(*symbol), None),
                ExprKind::Index { base, items } => {
                    let index: Option<Vec<i64>> = items.iter().map(|item| self.eval_whole(item)).collect();
                    (base.as_name(), Some(index?))
                }
                _ => (None, None),
            };
            let Some(name) = name else {
                let (name, help) = match &arg.kind {
                    ExprKind::Text(text) => (text.clone(), format!("write the name without quotes: `{text}`")),
                    _ => (written(arg, &self.names), "write a name, or a member: `time(f)`, `time(f[0])`".to_owned()),
                };
                let help = Some(help);
                self.error(ModelError::UnknownSet { name, at: arg.span.into(), help });
                good = false;
                continue;
            };
            let mut text = self.names.name(name).to_owned();
            if let Some(index) = &index {
                let items: Vec<String> = index.iter().map(i64::to_string).collect();
                text += &format!("[{}]", items.join(", "));
            }
            match self.set_part(name, index, arg) {
                Some(part) => parts.push(part),
                None => good = false,
            }
            texts.push(text);
        }
        good.then(|| OpSet { parts, text: texts.join(", ") })
    }

    fn set_part(&mut self, name: Symbol, index: Option<Vec<i64>>, arg: &Expr) -> Option<SetPart> {
        if let Some(&Value::Stream { first, count, .. }) = self.scopes.get(name) {
            return match (index.as_deref(), count) {
                (None, count) => Some(SetPart::Streams { first, count: count.unwrap_or(1) }),
                (Some(&[member]), Some(count)) if (0..i64::from(count)).contains(&member) => {
                    Some(SetPart::Streams { first: first + member as u32, count: 1 })
                }
                (Some(_), count) => {
                    let size = u64::from(count.unwrap_or(0));
                    let name = self.text_of(arg);
                    let index = index.and_then(|index| index.first().copied()).unwrap_or(0);
                    self.error(ModelError::IndexOutOfRange {
                        name,
                        index,
                        size,
                        last: size as i64 - 1,
                        at: arg.span.into(),
                    });
                    None
                }
            };
        }
        if name == self.builtins.main
            && let Some(main) = self.program.streams.iter().position(|stream| stream.family == name)
        {
            return Some(SetPart::Streams { first: StreamId::from(main).0, count: 1 });
        }
        if matches!(self.scopes.get(name), Some(Value::Unknown)) {
            return None;
        }
        let index = index.map(Vec::into_boxed_slice);
        let (labels, phases) = &self.sets;
        if labels.contains(&name) {
            return Some(SetPart::Label { name, index });
        }
        if phases.contains(&name) {
            return Some(SetPart::Phase { name, index });
        }
        if !self.listens() {
            return None;
        }
        let text = self.names.name(name).to_owned();
        let streams = self.ast.decls.iter().filter_map(|decl| match &decl.kind {
            DeclKind::Stream { name, .. } => Some(name.symbol),
            _ => None,
        });
        let known: Vec<Symbol> = labels.iter().chain(phases).copied().chain(streams).collect();
        let known: Vec<&str> = known.iter().map(|symbol| self.names.name(*symbol)).collect();
        let help = suggest::did_you_mean(&text, known.iter().copied());
        self.error(ModelError::UnknownSet { name: text, at: arg.span.into(), help });
        None
    }
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
