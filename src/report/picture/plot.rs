//! Charts of points as data. The page draws them with uPlot, which zooms and reads out values; `Plot::chart` makes
//! the shapes of the SVG file.

use serde::Serialize;

use crate::report::quantity::quantity;

use super::chart::{Area, Chart, round};
use super::scale::{Scale, Spread};
use super::{FILLS, STROKES, SvgElement};

/// Room in pixels between the ends of a horizontal axis and the first and last point.
const ROOM: f64 = 24.0;

/// Maximum number of texts below a horizontal axis.
const TEXTS: usize = 12;

/// A chart with two axes.
#[derive(Clone, Debug, Serialize)]
pub struct Plot {
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<PlotSeries>,
    /// Dashed vertical lines: the place on the horizontal axis, and the meaning.
    pub marks: Vec<(f64, String)>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Axis {
    pub name: String,
    /// The unit of the values, as `quantity` takes it.
    pub unit: String,
    pub spread: Spread,
    /// The least and the greatest value.
    pub range: (f64, f64),
    /// Values of the axis with the texts shown there; empty if round numbers are shown.
    pub ticks: Vec<(f64, String)>,
}

/// Points of one kind, in the order of the horizontal axis.
#[derive(Clone, Debug, Serialize)]
pub struct PlotSeries {
    /// The meaning; empty for the only series of a chart.
    pub name: String,
    /// Index of the colour in `FILLS` and `STROKES`.
    pub color: usize,
    pub style: LineStyle,
    pub x: Vec<f64>,
    pub y: Vec<f64>,
    /// The ends of the interval of each point; empty without intervals.
    pub low: Vec<f64>,
    pub high: Vec<f64>,
    /// Index of the best point.
    pub best: Option<usize>,
}

/// Appearance of a series of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LineStyle {
    /// Points on a line.
    Line,
    /// A dashed line without points.
    Dashed,
    Points,
    /// Columns from 0, each around its value of the horizontal axis.
    Columns,
}

impl Axis {
    /// A linear axis with round numbers.
    pub fn linear(name: &str, unit: &str, range: (f64, f64)) -> Axis {
        Axis { name: name.to_owned(), unit: unit.to_owned(), spread: Spread::Linear, range, ticks: Vec::new() }
    }

    /// A value of the axis as text.
    fn text(&self, value: f64) -> String {
        let tick = self.ticks.iter().find(|(at, _)| *at == value);
        tick.map_or_else(|| quantity(value, &self.unit), |(_, text)| text.clone())
    }
}

impl PlotSeries {
    /// A series without intervals.
    pub fn new(name: &str, color: usize, style: LineStyle, points: impl IntoIterator<Item = (f64, f64)>) -> PlotSeries {
        let (x, y) = points.into_iter().unzip();
        PlotSeries { name: name.to_owned(), color, style, x, y, low: Vec::new(), high: Vec::new(), best: None }
    }
}

impl Plot {
    /// The chart as shapes.
    pub fn chart(&self, area: Area) -> Chart {
        let Area { left, right, top, bottom } = area;
        let mut chart = Chart::within(area, &self.x.name, &self.y.name);
        let x = Scale::new(self.x.spread, self.x.range, (left + ROOM, right - ROOM));
        let y = Scale::new(self.y.spread, self.y.range, (bottom, top));
        y.ticks(6).into_iter().for_each(|tick| chart.tick_y(y.at(tick), &quantity(tick, &self.y.unit)));
        if self.x.ticks.is_empty() {
            let texts = ((right - left) / 75.0) as usize;
            x.ticks(texts).into_iter().for_each(|tick| chart.tick_x(x.at(tick), round(&quantity(tick, &self.x.unit))));
        }
        for (at, text) in self.x.ticks.iter().step_by(self.x.ticks.len().div_ceil(TEXTS).max(1)) {
            chart.tick_x(x.at(*at), text.clone());
        }
        for series in &self.series {
            self.draw(series, &mut chart, &x, &y);
            if !series.name.is_empty() {
                let class = if series.style == LineStyle::Dashed { "dashed" } else { FILLS[series.color] };
                chart.legend(class, &series.name);
            }
        }
        for (index, (at, meaning)) in self.marks.iter().enumerate() {
            let at = x.at(*at);
            chart.shapes.push(SvgElement::line("dashed", (at, top), (at, bottom)).titled(meaning));
            // The text lies on the side with more room.
            let (anchor, side) = if at > f64::midpoint(left, right) { ("end", -4.0) } else { ("start", 4.0) };
            let place = (at + side, top + 8.0 + 12.0 * index as f64);
            chart.shapes.push(SvgElement::text("mark", place, meaning).anchored(anchor));
        }
        chart
    }

    fn draw(&self, series: &PlotSeries, chart: &mut Chart, x: &Scale, y: &Scale) {
        let at = |index: usize| (x.at(series.x[index]), y.at(series.y[index]));
        let all: Vec<(f64, f64)> = (0..series.x.len()).map(at).collect();
        match series.style {
            LineStyle::Line => chart.shapes.push(SvgElement::through(STROKES[series.color], &all)),
            LineStyle::Dashed => {
                chart.shapes.push(SvgElement::through("dashed", &all));
                return;
            }
            LineStyle::Columns => return columns(series, &all, chart),
            LineStyle::Points => {}
        }
        let dense = all.len() > DENSE;
        for (index, point) in all.iter().enumerate() {
            if let (Some(low), Some(high)) = (series.low.get(index), series.high.get(index)) {
                let (low, high) = (y.at(*low), y.at(*high));
                if low - high > 1.0 {
                    let class = if dense { STROKES[series.color] } else { "whisker" };
                    chart.shapes.push(SvgElement::line(class, (point.0, low), (point.0, high)));
                }
            }
            let name = if series.name.is_empty() { String::new() } else { format!("{}, ", series.name) };
            let title = format!("{name}{}: {}", self.x.text(series.x[index]), quantity(series.y[index], &self.y.unit));
            let radius = if dense { 1.2 } else { 4.0 };
            chart.shapes.push(SvgElement::circle(FILLS[series.color], *point, radius).titled(title));
        }
        if let Some(best) = series.best {
            let title = format!("best: {} ({})", self.x.text(series.x[best]), quantity(series.y[best], &self.y.unit));
            chart.shapes.push(SvgElement::circle("outline", all[best], 8.0).titled(title));
        }
    }
}

/// Number of points above which they are drawn small.
const DENSE: usize = 60;

fn columns(series: &PlotSeries, all: &[(f64, f64)], chart: &mut Chart) {
    let bottom = chart.area.bottom;
    let width = all.windows(2).map(|pair| pair[1].0 - pair[0].0).fold(f64::INFINITY, f64::min);
    for (index, (x, y)) in all.iter().enumerate().filter(|(index, _)| series.y[*index] > 0.0) {
        let column = SvgElement::rect(FILLS[series.color], x - width / 2.0, *y, width - 0.5, bottom - y);
        chart.shapes.push(column.titled(quantity(series.y[index], "")));
    }
}
