//! The samples of a series: their distribution, and their order in time.

use crate::base::{Nanos, counted};
use crate::measure::record::{RunRecord, Times};

use super::chart::Area;
use super::plot::{Axis, LineStyle, Plot, PlotSeries};
use super::times::series;
use super::{Gallery, Picture, SvgElement, WIDTH};

/// Number of columns of the distribution.
const BINS: usize = 60;

/// Maximum number of points in the order of the samples; of more samples, neighbours share a point.
const POINTS: usize = 300;

/// Top and bottom of the two charts, and their areas, in pixels.
const TOP: f64 = 42.0;
const BOTTOM: f64 = 182.0;
const DISTRIBUTION: Area = Area { left: 56.0, right: 356.0, top: TOP, bottom: BOTTOM };
const ORDER: Area = Area { left: 446.0, right: WIDTH - 4.0, top: TOP, bottom: BOTTOM };

/// A picture for each series whose samples differ; `None` if there are none.
pub fn samples(records: &[RunRecord]) -> Option<Gallery> {
    let all = series(records).into_iter().filter_map(|(name, _, times)| Some((name.clone(), draw(&name, times)?)));
    let notes =
        ["The distribution, and the samples in the order in which they were taken. Where several samples share a \
                  point, it is their median, and the line goes from the least to the greatest of them."];
    Gallery::of("samples", "Distribution, drift and modes of samples", &notes, "Series", all.collect())
}

fn draw(name: &str, times: &Times) -> Option<Picture> {
    let samples = &times.samples_ns;
    let (least, most) = (*samples.iter().min()?, *samples.iter().max()?);
    if least == most {
        return None;
    }
    let plots = [distribution(samples, least, most), order(samples, least, most)];
    let mut shapes = vec![SvgElement::text("ink", (0.0, 12.0), name)];
    for (plot, area) in plots.iter().zip([DISTRIBUTION, ORDER]) {
        shapes.extend(plot.chart(area).shapes);
    }
    let description = format!("{name}: {} from {least} to {most}", counted(samples.len(), "sample"));
    Some(Picture { width: WIDTH, height: BOTTOM + 42.0, description, shapes, plots: plots.into() })
}

/// Plots the number of samples in each of equal parts of the range.
fn distribution(samples: &[Nanos], least: Nanos, most: Nanos) -> Plot {
    let range = (most - least).0 as f64;
    let mut counts = [0usize; BINS];
    for sample in samples {
        let share = (*sample - least).0 as f64 / range;
        counts[((share * BINS as f64) as usize).min(BINS - 1)] += 1;
    }
    let middle = |bin: usize| (least.0 as f64 + range * (bin as f64 + 0.5) / BINS as f64) / 1e9;
    let columns = counts.iter().enumerate().map(|(bin, count)| (middle(bin), *count as f64));
    let highest = counts.iter().copied().max().unwrap_or_default().max(1) as f64;
    Plot {
        x: Axis::linear("time of an iteration", "s", (least.seconds(), most.seconds())),
        y: Axis::linear("samples", "", (0.0, highest * 1.05)),
        series: vec![PlotSeries::new("", 0, LineStyle::Columns, columns)],
        marks: Vec::new(),
    }
}

/// The samples in the order in which they were taken.
fn order(samples: &[Nanos], least: Nanos, most: Nanos) -> Plot {
    let points = samples.len().min(POINTS);
    let mut series = PlotSeries::new("", 0, LineStyle::Points, []);
    for point in 0..points {
        let (from, to) = (point * samples.len() / points, (point + 1) * samples.len() / points);
        let mut part = samples[from..to].to_vec();
        part.sort_unstable();
        series.x.push((from + to + 1) as f64 / 2.0);
        series.y.push(part[part.len() / 2].seconds());
        if points < samples.len() {
            series.low.push(part[0].seconds());
            series.high.push(part[part.len() - 1].seconds());
        }
    }
    let room = (most - least).seconds() * 0.05;
    Plot {
        x: Axis::linear("samples in order", "", (1.0, samples.len() as f64)),
        y: Axis::linear("time of an iteration", "s", ((least.seconds() - room).max(0.0), most.seconds() + room)),
        series: vec![series],
        marks: Vec::new(),
    }
}
