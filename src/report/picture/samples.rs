//! The samples of a series: how they are distributed, and one after the other.

use crate::base::{Nanos, counted};
use crate::measure::record::{RunRecord, Times};

use super::times::series;
use super::{Gallery, Picture, Shape, WIDTH};

/// Number of columns of the distribution.
const BINS: usize = 60;

/// Number of samples up to which each is a point.
const FEW: usize = 60;

/// Width and height of each half in pixels.
const HALF: f64 = WIDTH / 2.0 - 20.0;
const HEIGHT: f64 = 110.0;

/// A picture for each series whose samples differ; `None` if there are none.
pub fn samples(records: &[RunRecord]) -> Option<Gallery> {
    let all = series(records).into_iter().filter_map(|(name, _, times)| Some((name.clone(), draw(&name, times)?)));
    let notes = ["On the left the distribution, on the right the samples in the order in which they were taken."];
    Gallery::of("samples", "Distribution, drift and modes of samples", &notes, "Series", all.collect())
}

fn draw(name: &str, times: &Times) -> Option<Picture> {
    let samples = &times.samples_ns;
    let (least, most) = (*samples.iter().min()?, *samples.iter().max()?);
    let range = (most - least).0 as f64;
    if range <= 0.0 {
        return None;
    }
    let share = |sample: Nanos| (sample - least).0 as f64 / range;
    let mut counts = [0usize; BINS];
    for sample in samples {
        counts[((share(*sample) * BINS as f64) as usize).min(BINS - 1)] += 1;
    }
    let highest = counts.iter().copied().max()?.max(1) as f64;
    let width = HALF / BINS as f64;
    let column = |(index, count): (usize, &usize)| {
        let height = HEIGHT * *count as f64 / highest;
        let bar = Shape::rect("fill-part-1", index as f64 * width, HEIGHT - height, width - 0.5, height);
        (*count > 0).then(|| bar.titled(counted(*count, "sample")))
    };
    let mut shapes: Vec<Shape> = counts.iter().enumerate().filter_map(column).collect();
    if samples.len() <= FEW {
        let step = HALF / samples.len() as f64;
        let place = |(index, sample): (usize, &Nanos)| {
            (HALF + 40.0 + (index as f64 + 0.5) * step, 3.0 + (HEIGHT - 6.0) * (1.0 - share(*sample)))
        };
        let point = |(index, sample): (usize, &Nanos)| {
            Shape::circle("fill-part-1", place((index, sample)), 2.5).titled(sample.to_string())
        };
        shapes.extend(samples.iter().enumerate().map(point));
    } else {
        shapes.push(Shape::path("stroke-part-1", in_order(samples, &share)));
    }
    for (x, text, anchor) in [
        (0.0, least.to_string(), "start"),
        (HALF, most.to_string(), "end"),
        (HALF + 40.0, "first".to_owned(), "start"),
        (WIDTH, "last".to_owned(), "end"),
    ] {
        shapes.push(Shape::text("faint", (x, HEIGHT + 14.0), text).anchored(anchor));
    }
    shapes.push(Shape::text("faint", (0.0, HEIGHT + 28.0), name));
    let description = format!("{name}: {} from {least} to {most}", counted(samples.len(), "sample"));
    Some(Picture { width: WIDTH, height: HEIGHT + 34.0, description, shapes })
}

/// A line from the least to the greatest of the samples that share a column of pixels.
fn in_order(samples: &[Nanos], share: &dyn Fn(Nanos) -> f64) -> String {
    let columns = samples.len().min(HALF as usize);
    let y = |sample: Nanos| HEIGHT * (1.0 - share(sample));
    let mut path = String::new();
    for column in 0..columns {
        let part = &samples[column * samples.len() / columns..(column + 1) * samples.len() / columns];
        let (Some(least), Some(most)) = (part.iter().min(), part.iter().max()) else { continue };
        let x = HALF + 40.0 + column as f64 * HALF / columns as f64;
        path += &format!("M{x:.1} {:.1}V{:.1}", y(*least) + 1.0, y(*most) - 1.0);
    }
    path
}
