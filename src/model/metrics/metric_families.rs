//! Families of metrics: one metric for each value of a range or list, `metric rate[i in 0..4] = bandwidth(f[i])`; metrics that are
//! used above their declaration.

use crate::base::{SrcSpan, Symbol, suggest};
use crate::syntax::ast::*;
use crate::syntax::{walk, written};

use crate::model::analyzer::Analyzer;
use crate::model::error::ModelError;
use crate::model::limits::FIGURES;
use crate::model::values::value::Value;

/// Maximum number of members listed by a message.
const SHOWN: usize = 8;

impl Analyzer<'_> {
    /// Adds a metric for each value.
    pub(super) fn metric_family(
        &mut self,
        name: Name,
        each: &Binding,
        value: &Expr,
        unit: Option<&str>,
        span: SrcSpan,
    ) {
        let members = self.values_of(&each.value);
        let family = self.names.name(name.symbol).to_owned();
        let mut known = Vec::new();
        for member in members {
            let text = member.text(&self.names);
            self.scopes.enter();
            self.declare(each.name, member);
            let metric = self.declared_metric(format!("{family}[{text}]"), value, unit, span);
            self.scopes.close();
            known.push((text, metric));
        }
        self.metric_families.entry(name.symbol).or_insert(known);
    }

    /// The values of a range or list; one unknown value if it has an error, to find errors in the expression.
    fn values_of(&mut self, over: &Expr) -> Vec<Value> {
        let over_value = self.eval(over);
        let count = match &over_value {
            Value::Range { from, to, .. } => to.saturating_sub(*from).max(0) as u64,
            Value::List(items) => items.len() as u64,
            Value::Unknown => return vec![Value::Unknown],
            other => {
                self.wrong_type::<()>("a range, such as `0..n`, or a list", other, over.span);
                return vec![Value::Unknown];
            }
        };
        let others: usize = self.metric_families.values().map(Vec::len).sum();
        if count > FIGURES.saturating_sub(others) as u64 {
            self.error(ModelError::BadSize {
                what: "the number of figures in this family".to_owned(),
                value: count.to_string(),
                at: over.span.into(),
                help: "all families of a file have 4096 figures at most",
            });
            return vec![Value::Unknown];
        }
        match over_value {
            Value::Range { from, to, reversed: true } => (from..to).rev().map(Value::int).collect(),
            Value::Range { from, to, .. } => (from..to).map(Value::int).collect(),
            Value::List(items) => items.to_vec(),
            _ => Vec::new(),
        }
    }

    /// True if an expression is the name of a family of metrics.
    pub(super) fn names_metric_family(&self, expr: &Expr) -> bool {
        let family = |symbol| self.scopes.get(symbol).is_none() && self.metric_families.contains_key(&symbol);
        expr.as_name().is_some_and(family)
    }

    /// Returns the index of the metric `family[item]`. `None` after an error, which has been reported.
    pub(super) fn family_member(&mut self, family: &Expr, items: &[Expr]) -> Option<usize> {
        let name = family.as_name()?;
        let [item] = items else { return self.no_member(name, items, family.span) };
        let value = self.eval(item);
        if matches!(value, Value::Unknown) {
            return None;
        }
        // The members are unknown because of an error that has been reported.
        let unknown = Value::Unknown.text(&self.names);
        if self.metric_families[&name].iter().any(|(member, _)| *member == unknown) {
            return None;
        }
        let text = value.text(&self.names);
        let member = self.metric_families[&name].iter().find(|(member, _)| *member == text).map(|(_, metric)| *metric);
        match member {
            Some(metric) => Some(metric),
            None => self.no_member(name, items, item.span),
        }
    }

    fn no_member(&mut self, family: Symbol, items: &[Expr], span: SrcSpan) -> Option<usize> {
        let items: Vec<String> = items.iter().map(|item| written(item, &self.names)).collect();
        let name = format!("{}[{}]", self.names.name(family), items.join(", "));
        let members: Vec<&str> = self.metric_families[&family].iter().map(|(text, _)| text.as_str()).collect();
        let help = match members.as_slice() {
            [] => "this family has no figure".to_owned(),
            [first, .., last] if members.len() > SHOWN => {
                format!("this family has {} figures, from `{first}` to `{last}`", members.len())
            }
            members => format!("this family has figures for {}", suggest::listed(members)),
        };
        self.fail(ModelError::UnknownFigure { name, at: span.into(), help: Some(help) })
    }

    /// Help for a family without an index; `None` if the name is not a family of metrics.
    pub(super) fn first_member(&self, symbol: Symbol) -> Option<String> {
        let members = self.metric_families.get(&symbol)?;
        let name = self.names.name(symbol);
        Some(match members.first() {
            Some((text, _)) => format!("it has a figure for each of several values: write `{name}[{text}]`"),
            None => "it has a figure for each of several values, of which there are none".to_owned(),
        })
    }

    /// The error for an expression that names a metric declared below, or the one that it defines; `None` for another expression.
    pub(super) fn later_metric(&self, expr: &Expr) -> Option<ModelError> {
        let mut found = None;
        walk::expr(expr, &mut |part| {
            let symbol = part
                .as_name()
                .filter(|symbol| found.is_none() && self.scopes.get(*symbol).is_none() && !self.words.contains(symbol));
            let declared = symbol.and_then(|symbol| {
                self.ast.decls.iter().find_map(|decl| match &decl.kind {
                    DeclKind::Metric { name, .. } if name.symbol == symbol => Some((*name, decl.span)),
                    _ => None,
                })
            });
            found = found.or(declared.map(|declared| (part.span, declared)));
        });
        let (at, (Name { symbol, span }, whole)) = found?;
        let name = self.names.name(symbol).to_owned();
        if (whole.start..whole.end()).contains(&at.start) {
            let help = Some(format!("`{name}` refers to itself: name the figure that it is computed from"));
            return Some(ModelError::UnknownFigure { name, at: at.into(), help });
        }
        let help = "figures are declared above their use: move the declaration up".to_owned();
        Some(ModelError::DeclaredBelow { name, at: at.into(), declared: span.into(), help })
    }
}
