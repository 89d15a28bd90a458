//! Curves of a sweep: time, rate, efficiency and every metric over each axis, with a line for each value of another axis.

use indexmap::{IndexMap, IndexSet};

use crate::measure::cases::{Case, CasesHeader};
use crate::measure::direction;
use crate::measure::effect::Direction;
use crate::measure::pace::Pace;
use crate::measure::record::MetricRecord;
use crate::measure::scaling::{self, AxisResults, Baseline, Curve, Growth, Interval, number};

use super::chart::AREA;
use super::plot::{Axis, LineStyle, Plot, PlotSeries};
use super::scale::Spread;
use super::{FILLS, Gallery, Picture, ReaderChoice};

/// Maximum number of lines in a picture.
const LINES: usize = FILLS.len();
/// Maximum number of pictures in a gallery.
const PICTURES: usize = 400;

/// Ratio of the greatest to the least value at and above which an axis is logarithmic.
const WIDE: f64 = 8.0;

/// The value that a curve shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CurveValue<'a> {
    Median,
    Rate,
    Efficiency,
    /// A metric, by its name.
    Metric(&'a str),
}

/// A point: its place along the axis as text, and its value.
struct PlottedPoint {
    label: String,
    value: Interval,
}

/// A line of a picture.
struct CurveLine<'a> {
    name: String,
    curve: &'a Curve,
    points: Vec<PlottedPoint>,
}

/// The curves of a sweep; `None` if no axis has two results.
pub fn curves(header: &CasesHeader, cases: &[&Case]) -> Option<Gallery> {
    let along = scaling::along(header, cases);
    let names: IndexSet<&str> = metrics(cases).map(|metric| metric.name.as_str()).collect();
    let shown: Vec<CurveValue> = [CurveValue::Median, CurveValue::Rate, CurveValue::Efficiency]
        .into_iter()
        .chain(names.iter().map(|name| CurveValue::Metric(name)))
        .collect();
    // `None` for a single line, otherwise the axis with a line for each of its values.
    let mut others: IndexSet<Option<&str>> = IndexSet::from([None]);
    others.extend(along.iter().flat_map(|along| along.curve.fixed.iter().map(|(name, _)| Some(name.as_str()))));
    let mut pictures = Vec::new();
    for (x, along) in along.iter().enumerate() {
        for (by, other) in others.iter().enumerate() {
            for (what, shown) in shown.iter().enumerate() {
                let lines = lines(along, *other, *shown, cases);
                if lines.iter().any(|line| line.points.len() > 1) && pictures.len() < PICTURES {
                    pictures.push((vec![what, x, by], draw(along, *shown, &lines, cases)));
                }
            }
        }
    }
    let words = |shown: &CurveValue| match shown {
        CurveValue::Median => "median time".to_owned(),
        CurveValue::Rate => "rate".to_owned(),
        CurveValue::Efficiency => "efficiency".to_owned(),
        CurveValue::Metric(name) => (*name).to_owned(),
    };
    let choices = vec![
        ReaderChoice { label: "Figure", options: shown.iter().map(words).collect() },
        ReaderChoice { label: "Over", options: along.iter().map(|along| along.axes.join(", ")).collect() },
        ReaderChoice {
            label: "A line for each",
            options: others.iter().map(|other| other.map_or("no other axis", |name| name).to_owned()).collect(),
        },
    ];
    let notes = [
        "Vertical lines are 95 % intervals. A ring marks the best value of a line; a dashed vertical line marks the knee, the \
         smallest value that reaches 95 % of the best rate; the dashed curve is ideal scaling from the smallest value. Times \
         of different amounts of work have no best value: see their rate.",
    ];
    (!pictures.is_empty()).then(|| Gallery {
        name: "curve",
        title: "Curves".to_owned(),
        notes: notes.map(str::to_owned).to_vec(),
        choices,
        pictures,
    })
}

fn metrics<'a>(cases: &[&'a Case]) -> impl Iterator<Item = &'a MetricRecord> {
    // Metrics come from gated iterations if possible, so they cannot be compared between gated and ungated cases.
    let alike = scaling::pace(cases) == Pace::Headline;
    let variants = cases.iter().filter_map(|case| case.record.as_ref()?.variants.first()).filter(move |_| alike);
    variants.flat_map(|variant| &variant.metrics).filter(|metric| metric.value.is_some())
}

/// The lines of a picture: the curve through the best case, or the curves that differ from it in one other axis only.
fn lines<'a>(along: &'a AxisResults, other: Option<&str>, shown: CurveValue, cases: &[&Case]) -> Vec<CurveLine<'a>> {
    let rest = |curve: &Curve| -> Vec<(String, String)> {
        curve.fixed.iter().filter(|(name, _)| Some(name.as_str()) != other).cloned().collect()
    };
    let curves: Vec<&Curve> = match other {
        None => vec![&along.curve],
        Some(other) if along.curve.fixed.iter().all(|(name, _)| name != other) => Vec::new(),
        Some(_) => std::iter::once(&along.curve).chain(&along.elsewhere).collect(),
    };
    let mut lines: Vec<CurveLine> = curves
        .into_iter()
        .filter(|curve| rest(curve) == rest(&along.curve))
        .map(|curve| CurveLine {
            name: curve
                .fixed
                .iter()
                .find(|(name, _)| Some(name.as_str()) == other)
                .map_or(String::new(), |fixed| format!("{} = {}", fixed.0, fixed.1)),
            points: points(along, curve, shown, cases),
            curve,
        })
        .collect();
    lines.sort_by(|a, b| sort_key(&a.name).total_cmp(&sort_key(&b.name)));
    lines.truncate(LINES);
    lines
}

/// Orders lines by the number in their name; words keep the order of the cases.
fn sort_key(name: &str) -> f64 {
    name.split_once(" = ").and_then(|(_, value)| number(value)).unwrap_or(f64::MAX)
}

fn points(along: &AxisResults, curve: &Curve, shown: CurveValue, cases: &[&Case]) -> Vec<PlottedPoint> {
    let exact = |value: f64| Interval { value, low: value, high: value };
    let value = |index: usize| match shown {
        CurveValue::Median => Some(curve.points[index].time),
        CurveValue::Rate => Some(curve.points[index].rate(curve.unit)),
        CurveValue::Efficiency => curve.efficiency.get(index).copied().map(exact),
        CurveValue::Metric(name) => {
            let case = cases.iter().find(|case| is_at(case, along, curve, &curve.points[index].value))?;
            let metrics = &case.record.as_ref()?.variants.first()?.metrics;
            metrics.iter().find(|metric| metric.name == name)?.value.map(exact)
        }
    };
    let points = curve.points.iter().enumerate();
    points
        .filter_map(|(index, point)| {
            let value = value(index).filter(|value| value.value.is_finite())?;
            Some(PlottedPoint { label: point.value.clone(), value })
        })
        .collect()
}

/// True if a case has `value` along the axes of the curve, and the curve's values on all other axes.
fn is_at(case: &Case, along: &AxisResults, curve: &Curve, value: &str) -> bool {
    let own: Vec<&str> = along.axes.iter().filter_map(|axis| case.values.get(axis)).map(String::as_str).collect();
    own.join(", ") == value && curve.fixed.iter().all(|(name, fixed)| case.values.get(name) == Some(fixed))
}

/// The unit of the values, as `quantity` takes it.
fn unit<'a>(along: &AxisResults, shown: CurveValue, cases: &[&'a Case]) -> &'a str {
    match shown {
        CurveValue::Median => "s",
        CurveValue::Rate => along.curve.unit.per_second(),
        CurveValue::Efficiency => "",
        CurveValue::Metric(name) => {
            metrics(cases).find(|metric| metric.name == name).map_or("", |metric| metric.unit.as_str())
        }
    }
}

fn draw(along: &AxisResults, shown: CurveValue, lines: &[CurveLine], cases: &[&Case]) -> Picture {
    let axis = along.axes.join(", ");
    let unit = unit(along, shown, cases);
    let what = match shown {
        CurveValue::Median => "median time",
        CurveValue::Rate => unit,
        CurveValue::Efficiency => "efficiency",
        CurveValue::Metric(name) => name,
    };
    let mark = match (along.curve.simulated, along.curve.emulated) {
        (true, _) => ", simulated",
        (false, true) => ", emulated",
        (false, false) => "",
    };
    let places = AxisPlaces::new(lines);
    let ideals = lines.first().map(|line| ideal(line, shown)).unwrap_or_default();
    let ends = lines.iter().flat_map(|line| &line.points).flat_map(|point| [point.value.low, point.value.high]);
    let most = ends.chain(ideals.iter().map(|(_, value)| *value)).fold(f64::MIN_POSITIVE, f64::max);
    let ideals = (ideals.len() > 1).then(|| {
        let points = ideals.iter().map(|(label, value)| (places.at(label), *value));
        PlotSeries::new("ideal scaling", 0, LineStyle::Dashed, points)
    });
    let own = lines.iter().enumerate().map(|(color, line)| series(line, color, shown, &places, unit));
    let marks = knees(lines, shown, &places, unit);
    // Texts of marks lie above the curves.
    let room = 1.05 + 0.06 * marks.len() as f64;
    let plot = Plot {
        series: ideals.into_iter().chain(own).collect(),
        marks,
        y: Axis::linear(&format!("{what}{mark}"), unit, (0.0, most * room)),
        x: places.axis(&axis),
    };
    let fixed: Vec<String> = match lines {
        [line] => line.curve.fixed.iter().map(|(name, value)| format!(", {name} = {value}")).collect(),
        _ => Vec::new(),
    };
    let picture = plot.chart(AREA).picture(format!("{what} over {axis}{}{mark}", fixed.concat()));
    Picture { plots: vec![plot], ..picture }
}

fn series(line: &CurveLine, color: usize, shown: CurveValue, places: &AxisPlaces, unit: &str) -> PlotSeries {
    let mut sorted: Vec<&PlottedPoint> = line.points.iter().collect();
    sorted.sort_by(|a, b| places.at(&a.label).total_cmp(&places.at(&b.label)));
    let best = best(line, shown, unit).map(|best| best.label.as_str());
    let points = sorted.iter().map(|point| (places.at(&point.label), point.value.value));
    PlotSeries {
        low: sorted.iter().map(|point| point.value.low).collect(),
        high: sorted.iter().map(|point| point.value.high).collect(),
        best: sorted.iter().position(|point| Some(point.label.as_str()) == best),
        ..PlotSeries::new(&line.name, color, LineStyle::Line, points)
    }
}

/// The knees of the lines; lines with the same knee share a mark.
fn knees(lines: &[CurveLine], shown: CurveValue, places: &AxisPlaces, unit: &str) -> Vec<(f64, String)> {
    let mut knees: IndexMap<&str, Vec<&str>> = IndexMap::new();
    for line in lines {
        let judged = best(line, shown, unit).is_some() && !matches!(shown, CurveValue::Metric(_));
        if let Some(knee) = line.curve.knee.filter(|_| judged) {
            knees.entry(&line.curve.points[knee].value).or_default().push(&line.name);
        }
    }
    let alone = knees.len() == 1;
    let text = |knee: &str, names: &[&str]| match alone {
        true => format!("knee: {knee}"),
        false => format!("knee of {}: {knee}", names.join(", ")),
    };
    knees.iter().map(|(knee, names)| (places.at(knee), text(knee, names))).collect()
}

/// The best point of a line; `None` without a conclusion, or if it is unknown which direction is better.
fn best<'a>(line: &'a CurveLine, shown: CurveValue, unit: &str) -> Option<&'a PlottedPoint> {
    if !line.curve.conclusive {
        return None;
    }
    let direction = match shown {
        // The best case is the one with the best rate, whose time need not be the shortest if the work differs.
        CurveValue::Median if line.curve.growth != Growth::Stays => return None,
        CurveValue::Median | CurveValue::Rate | CurveValue::Efficiency => {
            let best = &line.curve.points[line.curve.best].value;
            return line.points.iter().find(|point| point.label == *best);
        }
        CurveValue::Metric(name) => direction::of(name, unit)?,
    };
    let order = |a: &&PlottedPoint, b: &&PlottedPoint| a.value.value.total_cmp(&b.value.value);
    match direction {
        Direction::LowerIsBetter => line.points.iter().min_by(order),
        Direction::HigherIsBetter => line.points.iter().max_by(order),
    }
}

/// Values of ideal scaling from the smallest amount of a resource; empty where the axis is no resource.
fn ideal<'a>(line: &CurveLine<'a>, shown: CurveValue) -> Vec<(&'a str, f64)> {
    let curve = line.curve;
    let numbers: Option<Vec<f64>> = curve.points.iter().map(|point| number(&point.value)).collect();
    let Some(numbers) = numbers.filter(|_| curve.baseline == Baseline::First) else { return Vec::new() };
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    order.sort_by(|a, b| numbers[*a].total_cmp(&numbers[*b]));
    let first = order[0];
    let rate = curve.points[first].rate(curve.unit).value;
    let ideal = |index: usize| {
        let rate = rate * numbers[index] / numbers[first];
        match shown {
            CurveValue::Median => Some(curve.unit.amount(curve.points[index].flops, curve.points[index].bytes) / rate),
            CurveValue::Rate => Some(rate),
            CurveValue::Efficiency => Some(1.0),
            CurveValue::Metric(_) => None,
        }
    };
    order.into_iter().filter_map(|index| Some((curve.points[index].value.as_str(), ideal(index)?))).collect()
}

/// Places of the values of an axis: by number if all are numbers, otherwise at equal distances.
struct AxisPlaces {
    labels: IndexSet<String>,
    by_number: bool,
}

impl AxisPlaces {
    fn new(lines: &[CurveLine]) -> AxisPlaces {
        let mut labels: IndexSet<String> =
            lines.iter().flat_map(|line| &line.points).map(|point| point.label.clone()).collect();
        let by_number = labels.iter().all(|label| number(label).is_some());
        if by_number {
            labels.sort_by(|a, b| number(a).unwrap_or_default().total_cmp(&number(b).unwrap_or_default()));
        }
        AxisPlaces { labels, by_number }
    }

    fn at(&self, label: &str) -> f64 {
        match self.by_number {
            true => number(label).unwrap_or_default(),
            false => self.labels.get_index_of(label).unwrap_or(0) as f64,
        }
    }

    fn axis(&self, name: &str) -> Axis {
        let ticks: Vec<(f64, String)> = self.labels.iter().map(|label| (self.at(label), label.clone())).collect();
        let range = match (ticks.first(), ticks.last()) {
            (Some((least, _)), Some((most, _))) => (*least, *most),
            _ => (0.0, 1.0),
        };
        let wide = self.by_number && range.0 > 0.0 && range.1 >= range.0 * WIDE;
        let spread = if wide { Spread::Log } else { Spread::Linear };
        Axis { name: name.to_owned(), unit: String::new(), spread, range, ticks }
    }
}
