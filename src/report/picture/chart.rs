//! Frames of pictures: rows with bars along a time axis, and charts with two axes.

use crate::base::Nanos;

use super::scale::{Scale, Spread};
use super::{LETTER, Picture, SvgElement, WIDTH};

/// Height of a row.
pub const ROW: f64 = 24.0;

/// Minimum and maximum width in pixels of the row names on the left.
const NAMES: (f64, f64) = (200.0, 330.0);

/// Room for values on the right.
const VALUES: f64 = 70.0;

/// Height of the axis below rows.
const AXIS: f64 = 20.0;

/// Rows of bars from time 0, in ns.
pub struct BarRows {
    scale: Scale,
    rows: usize,
    pub shapes: Vec<SvgElement>,
}

impl BarRows {
    /// Rows with their names for times up to `most` ns, with lines at round times.
    pub fn new<T: AsRef<str>>(names: &[T], most: f64) -> BarRows {
        let letters = names.iter().map(|name| name.as_ref().chars().count()).max().unwrap_or_default();
        let left = (letters as f64 * LETTER).clamp(NAMES.0, NAMES.1);
        let scale = Scale::new(Spread::Linear, (0.0, most.max(1.0)), (left, WIDTH - VALUES));
        let (rows, bottom) = (names.len(), names.len() as f64 * ROW);
        let label = |(row, name): (usize, &T)| {
            SvgElement::label_within((left / LETTER) as usize, (0.0, row as f64 * ROW + 15.0), name.as_ref())
        };
        let mut shapes: Vec<SvgElement> = names.iter().enumerate().map(label).collect();
        for tick in scale.ticks(7) {
            let x = scale.at(tick);
            shapes.push(SvgElement::line("grid", (x, 0.0), (x, bottom + 4.0)));
            shapes.push(SvgElement::text("faint", (x, bottom + 17.0), round(&time(tick))).anchored("middle"));
        }
        BarRows { scale, rows, shapes }
    }

    /// Returns the horizontal position of a time in the picture, in pixels.
    pub fn x(&self, time: f64) -> f64 {
        self.scale.at(time)
    }

    /// Draws a bar in a row, from one time to another.
    pub fn bar(&mut self, class: &'static str, row: usize, (from, to): (f64, f64), title: String) {
        let (from, to) = (self.x(from), self.x(to));
        self.shapes.push(SvgElement::rect(class, from, row as f64 * ROW + 3.0, to - from, ROW - 8.0).titled(title));
    }

    /// Writes a text after the time `behind` in a row.
    pub fn value(&mut self, row: usize, behind: f64, text: String) {
        self.shapes.push(SvgElement::text("ink", (self.x(behind) + 4.0, row as f64 * ROW + 15.0), text));
    }

    pub fn picture(self, description: String) -> Picture {
        Picture {
            width: WIDTH,
            height: self.rows as f64 * ROW + AXIS,
            description,
            shapes: self.shapes,
            plots: Vec::new(),
        }
    }
}

/// A time in ns as text.
pub fn time(ns: f64) -> String {
    Nanos::rounded(ns).to_string()
}

/// The text of a round number at a tick, without redundant zeros: `20 µs` for `20.00 µs`, `0` for `0 ns`.
pub fn round(text: &str) -> String {
    let (number, unit) =
        text.split_once(' ').map_or((text, String::new()), |(number, unit)| (number, format!(" {unit}")));
    match number.contains('.') {
        _ if number.parse() == Ok(0.0) => "0".to_owned(),
        true => format!("{}{unit}", number.trim_end_matches('0').trim_end_matches('.')),
        false => text.to_owned(),
    }
}

/// A chart's area in pixels.
#[derive(Clone, Copy)]
pub struct Area {
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
}

/// The area of the only chart of a picture.
pub const AREA: Area = Area { left: 76.0, right: WIDTH - 16.0, top: 20.0, bottom: 270.0 };

/// Room below a chart for its axis.
const BELOW: f64 = 42.0;

/// A chart with two axes.
pub struct Chart {
    pub area: Area,
    pub shapes: Vec<SvgElement>,
    legend: Vec<(&'static str, String)>,
}

impl Chart {
    /// A chart with the names of its axes.
    pub fn new(x: &str, y: &str) -> Chart {
        Chart::within(AREA, x, y)
    }

    /// A chart in an area, with the names of its axes.
    pub fn within(area: Area, x: &str, y: &str) -> Chart {
        let Area { left, right, top, bottom } = area;
        let shapes = vec![
            SvgElement::line("axis", (left, bottom), (right, bottom)),
            SvgElement::line("axis", (left, top), (left, bottom)),
            SvgElement::text("faint", (f64::midpoint(left, right), bottom + 36.0), x).anchored("middle"),
            SvgElement::text("faint", ((left - 70.0).max(0.0), top - 8.0), y),
        ];
        Chart { area, shapes, legend: Vec::new() }
    }

    /// A tick of the axis at the bottom.
    pub fn tick_x(&mut self, x: f64, text: String) {
        let bottom = self.area.bottom;
        self.shapes.push(SvgElement::line("axis", (x, bottom), (x, bottom + 4.0)));
        self.shapes.push(SvgElement::text("faint", (x, bottom + 18.0), text).anchored("middle"));
    }

    /// A tick of the axis on the left, with a line across.
    pub fn tick_y(&mut self, y: f64, text: &str) {
        let Area { left, right, .. } = self.area;
        self.shapes.push(SvgElement::line("grid", (left, y), (right, y)));
        self.shapes.push(SvgElement::text("faint", (left - 6.0, y + 4.0), round(text)).anchored("end"));
    }

    /// An entry of the legend: a class that fills, and its meaning.
    pub fn legend(&mut self, class: &'static str, meaning: impl Into<String>) {
        self.legend.push((class, meaning.into()));
    }

    pub fn picture(self, description: String) -> Picture {
        let Chart { area, shapes, legend } = self;
        let height = area.bottom + BELOW - 4.0;
        Picture { width: WIDTH, height, description, shapes, plots: Vec::new() }.with_legend(legend, 3)
    }
}
