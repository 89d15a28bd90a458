//! Metrics and expectations as text: a function followed by its arguments in parentheses.

use crate::model::{FigureExpr, Program, Statistic};

/// An expression of a metric. Its depth is limited by the parser.
pub fn figure(program: &Program, expr: &FigureExpr) -> String {
    let of = |slot: &Option<usize>, statistic: &Option<Statistic>| {
        let slot = slot.map(|slot| format!(".slot[{slot}]")).unwrap_or_default();
        slot + &statistic.map(|of| format!(".{}", of.name())).unwrap_or_default()
    };
    match expr {
        FigureExpr::Constant(value) => value.to_string(),
        FigureExpr::BySlot(values) => format!("by slot {values:?}"),
        FigureExpr::Figure { figure, set, beside, slot, statistic, .. } => {
            let sets: Vec<&str> = set.iter().chain(beside).map(|set| set.text.as_str()).collect();
            let sets = if sets.is_empty() { String::new() } else { format!("({})", sets.join(", ")) };
            format!("{}{sets}{}", figure.name(), of(slot, statistic))
        }
        FigureExpr::Metric { metric, slot, statistic } => {
            let name = program.metrics.get(*metric).map_or("?", |metric| metric.name.as_str());
            format!("metric {name}{}", of(slot, statistic))
        }
        FigureExpr::Unary(function, inner) => format!("({} {})", function.name(), figure(program, inner)),
        FigureExpr::Binary(function, left, right) => {
            format!("({} {} {})", function.name(), figure(program, left), figure(program, right))
        }
    }
}
