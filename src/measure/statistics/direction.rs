//! Decides whether higher or lower values of a metric are better, by its unit, its name or its expression.

use super::effect::Direction;
use crate::model::{Figure, FigureExpr, Metric, Statistic};
use crate::ops::expression::{Binary, Unary};

/// Words in names of ratios that are better when higher.
const HIGHER: [&str; 10] =
    ["overlap", "hidden", "speedup", "gain", "saving", "utilization", "efficiency", "throughput", "at_once", "mfu"];

/// Words in names of ratios that are better when lower.
const LOWER: [&str; 9] =
    ["exposed", "stretch", "idle", "skew", "imbalance", "slowdown", "overhead", "dropped", "memory"];

/// Direction of a metric; `None` if neither unit nor name implies one.
pub fn of(name: &str, unit: &str) -> Option<Direction> {
    if unit.ends_with("/s") || unit.ends_with("FLOPS") {
        return Some(Direction::HigherIsBetter);
    }
    if matches!(unit, "s" | "B") {
        return Some(Direction::LowerIsBetter);
    }
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    match (has(&HIGHER), has(&LOWER)) {
        (true, false) => Some(Direction::HigherIsBetter),
        (false, true) => Some(Direction::LowerIsBetter),
        _ => None,
    }
}

/// Change of a part of an expression as a run gets better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trend {
    /// Stays equal: a constant, the work of the file, or the time of another order of the same operations.
    Stays,
    Better(Direction),
    Unknown,
}

impl Trend {
    fn opposite(self) -> Trend {
        match self {
            Trend::Better(direction) => Trend::Better(direction.opposite()),
            other => other,
        }
    }

    /// The trend of a sum, or of a product of positive values.
    fn with(self, other: Trend) -> Trend {
        match (self, other) {
            (Trend::Stays, trend) | (trend, Trend::Stays) => trend,
            (a, b) if a == b => a,
            _ => Trend::Unknown,
        }
    }
}

/// Directions of a file's metrics by their expressions, such as that of `speedup` or `1 - stretch(a) / 2`; `None` if parts of one point
/// in different directions, as in `time(a) / time(b)`.
pub fn of_expressions(metrics: &[Metric]) -> Vec<Option<Direction>> {
    // A metric uses earlier ones only.
    let mut trends = Vec::with_capacity(metrics.len());
    for metric in metrics {
        trends.push(trend(&metric.value, &trends));
    }
    let direction = |trend| match trend {
        Trend::Better(direction) => Some(direction),
        Trend::Stays | Trend::Unknown => None,
    };
    trends.into_iter().map(direction).collect()
}

/// Trend of an expression; `metrics` has those of the metrics before it.
fn trend(expression: &FigureExpr, metrics: &[Trend]) -> Trend {
    let negative = |value: &FigureExpr| matches!(value, FigureExpr::Constant(constant) if *constant < 0.0);
    match expression {
        FigureExpr::Constant(_) | FigureExpr::BySlot(_) => Trend::Stays,
        FigureExpr::Figure { statistic, .. } | FigureExpr::Metric { statistic, .. }
            if matches!(statistic, Some(Statistic::Std | Statistic::Cv)) =>
        {
            Trend::Better(Direction::LowerIsBetter)
        }
        FigureExpr::Figure { figure, .. } => of_figure(*figure),
        FigureExpr::Metric { metric, .. } => metrics[*metric],
        FigureExpr::Unary(Unary::Negate, value) => trend(value, metrics).opposite(),
        FigureExpr::Unary(Unary::Sqrt | Unary::Log | Unary::Log2 | Unary::Exp | Unary::Round, value) => {
            trend(value, metrics)
        }
        FigureExpr::Unary(_, value) => match trend(value, metrics) {
            Trend::Stays => Trend::Stays,
            _ => Trend::Unknown,
        },
        FigureExpr::Binary(binary, a, b) => {
            let (of_a, of_b) = (trend(a, metrics), trend(b, metrics));
            let flipped = |trend: Trend, flips: bool| if flips { trend.opposite() } else { trend };
            match binary {
                Binary::Add | Binary::Max | Binary::Min => of_a.with(of_b),
                Binary::Subtract => of_a.with(of_b.opposite()),
                Binary::Multiply => flipped(of_a, negative(b)).with(flipped(of_b, negative(a))),
                Binary::Divide => flipped(of_a, negative(b)).with(flipped(of_b.opposite(), negative(a))),
                _ if (of_a, of_b) == (Trend::Stays, Trend::Stays) => Trend::Stays,
                _ => Trend::Unknown,
            }
        }
    }
}

fn of_figure(figure: Figure) -> Trend {
    match figure {
        Figure::Overlap | Figure::Bandwidth | Figure::BusBandwidth | Figure::Speedup | Figure::Utilization => {
            Trend::Better(Direction::HigherIsBetter)
        }
        Figure::Time | Figure::Exposed | Figure::Gap | Figure::Delay | Figure::Stretch | Figure::MemoryPeak => {
            Trend::Better(Direction::LowerIsBetter)
        }
        Figure::Flops
        | Figure::Bytes
        | Figure::CriticalPath
        | Figure::SerialTime
        | Figure::DeviceUnits
        | Figure::DeviceMemory
        | Figure::DeviceBandwidth
        | Figure::DeviceFlops => Trend::Stays,
        Figure::Busy | Figure::Slack => Trend::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::tests::planned;

    #[test]
    fn an_expression_tells() {
        use Direction::{HigherIsBetter, LowerIsBetter};
        let text = "
stream s[2]
buffer x: f32[8]
step { on s[0] { a: map(x + 1) } on s[1] { b: map(x + 2) } }
metric par = speedup
metric lost = 1 - par
metric share = critical_path / time
metric slower = stretch(a) * 100
metric turned = -1 * stretch(a)
metric spread = time.cv
metric ratio = time(a) / time(b)
metric work = flops / bytes
";
        let (program, _) = planned(text);
        let directions = of_expressions(&program.metrics);
        let of = |name: &str| {
            let metric = program.metrics.iter().position(|metric| metric.name == name).expect("a metric of the text");
            directions[metric]
        };
        for (name, better) in [
            ("par", Some(HigherIsBetter)),
            ("lost", Some(LowerIsBetter)),
            ("share", Some(HigherIsBetter)),
            ("slower", Some(LowerIsBetter)),
            ("turned", Some(HigherIsBetter)),
            ("spread", Some(LowerIsBetter)),
            ("ratio", None),
            ("work", None),
        ] {
            assert_eq!(of(name), better, "{name}");
        }
    }

    #[test]
    fn a_unit_or_a_name_tells() {
        use Direction::{HigherIsBetter, LowerIsBetter};
        for (name, unit, better) in [
            ("time.p50", "s", Some(LowerIsBetter)),
            ("memory.device", "B", Some(LowerIsBetter)),
            ("tokens_per_second", "tokens/s", Some(HigherIsBetter)),
            ("rate", "B/s", Some(HigherIsBetter)),
            ("throughput", "GFLOPS", Some(HigherIsBetter)),
            ("comm_hidden", "", Some(HigherIsBetter)),
            ("exposed_share", "", Some(LowerIsBetter)),
            ("draft_share", "", None),
            ("hidden_overhead", "", None),
        ] {
            assert_eq!(of(name, unit), better, "{name}");
        }
    }
}
