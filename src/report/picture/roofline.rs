//! The roofline of the operations: arithmetic per byte, rate, and the peaks that limit them.

use indexmap::IndexMap;

use crate::base::units::Rate;
use crate::base::{Nanos, counted};
use crate::measure::record::plain_name;
use crate::measure::record::{OperationRecord, RankRecord, RunRecord};
use crate::report::run::percent;
use crate::report::variant::{named, rank_name};

use super::chart::{AREA, Area, Chart, round};
use super::scale::{Scale, Spread};
use super::{Gallery, Picture, SvgElement, kind_fill, shortened};

/// Maximum number of points, those with the most time.
const POINTS: usize = 200;

/// Maximum number of points with a name.
const NAMED: usize = 24;
/// Maximum number of letters in a name.
const LETTERS: usize = 24;
/// Width of a letter in pixels.
const LETTER: f64 = 6.2;

/// Operations of one statement with one shape.
struct RooflinePoint<'a> {
    first: &'a OperationRecord,
    count: usize,
    time: Nanos,
    flops: f64,
    bytes: f64,
    ideal: Nanos,
}

impl RooflinePoint<'_> {
    fn rate(&self) -> f64 {
        self.flops / self.time.seconds()
    }

    /// Arithmetic operations per byte.
    fn intensity(&self) -> f64 {
        self.flops / self.bytes
    }
}

/// The roofline of the first rank of each variant; `None` without operations that compute and move bytes.
pub fn rooflines(records: &[RunRecord]) -> Option<Gallery> {
    let pictures = named(records).filter_map(|(name, variant)| {
        let rank = variant.ranks.first()?;
        let name = rank_name(variant, &name, rank);
        Some((name.clone(), draw(&name, rank)?))
    });
    let notes = [
        "A point is a statement with one shape: its arithmetic per byte that it must move, and the rate that it reaches. \
         Larger points take more time. Lines are the peaks of the resources that limit an operation of the run; a point \
         close to its line cannot become much faster without less work.",
    ];
    Gallery::of("roofline", "Roofline of the operations", &notes, "Run", pictures.collect())
}

fn draw(name: &str, rank: &RankRecord) -> Option<Picture> {
    let mut points: IndexMap<(&str, &str, &str), RooflinePoint> = IndexMap::new();
    for operation in &rank.operations {
        let Some(time) = operation.work_ns().filter(|time| time.0 > 0) else { continue };
        if operation.flops <= 0.0 || operation.bytes == 0 {
            continue;
        }
        let key = (operation.place.as_str(), operation.operation.as_str(), operation.shape.as_str());
        let empty =
            RooflinePoint { first: operation, count: 0, time: Nanos(0), flops: 0.0, bytes: 0.0, ideal: Nanos(0) };
        let point = points.entry(key).or_insert(empty);
        point.count += 1;
        point.time += time;
        point.flops += operation.flops;
        point.bytes += operation.bytes as f64;
        point.ideal += operation.ideal_ns.unwrap_or_default();
    }
    let is_shown = |point: &RooflinePoint| [point.rate(), point.intensity()].into_iter().all(is_possible);
    let mut points: Vec<RooflinePoint> = points.into_values().filter(is_shown).collect();
    points.sort_by_key(|point| std::cmp::Reverse(point.time));
    let hidden = points.len().saturating_sub(POINTS);
    points.truncate(POINTS);
    let roofs = roofs(&rank.operations);
    let ends = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::MAX, 0.0), |(least, most): (f64, f64), value| (least.min(value), most.max(value)))
    };
    if points.is_empty() {
        return None;
    }
    let (least, most) = ends(&mut points.iter().map(RooflinePoint::intensity));
    // Room for the corner between a slope and a flat roof.
    let corners = roofs.compute.values().filter_map(|peak| Some(peak / roofs.memory?));
    let most = most.max(corners.fold(0.0, f64::max));
    let (slowest, fastest) = ends(&mut points.iter().map(RooflinePoint::rate).chain(roofs.compute.values().copied()));
    let Area { left, right, top, bottom } = AREA;
    let x = Scale::new(Spread::Log, (least / 2.0, most * 4.0), (left, right));
    let y = Scale::new(Spread::Log, (slowest / 2.0, fastest * 2.0), (bottom, top));
    let mut chart = Chart::new("arithmetic operations per byte", &format!("FLOP/s, {name}"));
    x.ticks(8).into_iter().for_each(|tick| chart.tick_x(x.at(tick), round(&Rate(tick, "").to_string())));
    y.ticks(6).into_iter().for_each(|tick| chart.tick_y(y.at(tick), &Rate(tick, "").to_string()));
    draw_roofs(&mut chart, &roofs, x, y);
    let total = points.iter().map(|point| point.time).max().unwrap_or_default().0.max(1) as f64;
    let mut labels = Labels::default();
    let circle = |point: &RooflinePoint| {
        let radius = 3.0 + 7.0 * (point.time.0 as f64 / total).sqrt();
        ((x.at(point.intensity()), y.at(point.rate())), radius)
    };
    for point in &points {
        let (at, radius) = circle(point);
        chart.shapes.push(SvgElement::circle(kind_fill(&point.first.category), at, radius).titled(title(point)));
        labels.taken.push((at.0 - radius, at.1 - radius, at.0 + radius, at.1 + radius));
    }
    for point in points.iter().take(NAMED) {
        let (at, radius) = circle(point);
        chart.shapes.extend(labels.beside(at, radius, &plain_name(&point.first.name)));
    }
    let more = if hidden > 0 { format!("; {hidden} more are left out") } else { String::new() };
    Some(chart.picture(format!("Roofline, {name}: {}{more}", counted(points.len(), "statement"))))
}

/// Names of points. A name is left out where it would cover another or a point.
#[derive(Default)]
struct Labels {
    /// Rectangles that are taken: left, top, right and bottom.
    taken: Vec<(f64, f64, f64, f64)>,
}

impl Labels {
    /// A name beside a point, on the side that has room; `None` if no side has.
    fn beside(&mut self, (x, y): (f64, f64), radius: f64, name: &str) -> Option<SvgElement> {
        let name = shortened(name, LETTERS);
        let width = name.chars().count() as f64 * LETTER;
        let Area { left, right, top, bottom } = AREA;
        let sides = [x + radius + 3.0, x - radius - 3.0 - width].map(|begin| (begin, y + 4.0));
        let above_below = [y - radius - 4.0, y + radius + 12.0].map(|base| (x - width / 2.0, base));
        let free = |(begin, base): &(f64, f64)| {
            let own = (*begin, base - 9.0, begin + width, base + 3.0);
            let inside = own.0 >= left && own.2 <= right && own.1 >= top && own.3 <= bottom;
            let meets =
                |other: &(f64, f64, f64, f64)| own.0 < other.2 && other.0 < own.2 && own.1 < other.3 && other.1 < own.3;
            inside && !self.taken.iter().any(meets)
        };
        let (begin, base) = sides.into_iter().chain(above_below).find(free)?;
        self.taken.push((begin, base - 9.0, begin + width, base + 3.0));
        Some(SvgElement::text("ink", (begin, base), name))
    }
}

fn title(point: &RooflinePoint) -> String {
    let OperationRecord { name, shape, bound, .. } = point.first;
    let share = point.ideal.0 as f64 / point.time.0 as f64;
    let limit = bound.as_ref().filter(|_| point.ideal.0 > 0).map(|bound| format!(", {} of {bound}", percent(share)));
    let count = if point.count > 1 { format!(", {} times", point.count) } else { String::new() };
    format!("{name} {shape}: {}{}{count}, {}", Rate(point.rate(), "FLOP/s"), limit.unwrap_or_default(), point.time)
}

/// True if a device can have this value. An edited record may contain any number.
fn is_possible(value: f64) -> bool {
    (1e-30..1e30).contains(&value)
}

/// Peaks that limit operations.
struct Roofs {
    /// Bytes per second of the memory; `None` if it limits none.
    memory: Option<f64>,
    /// Arithmetic operations per second, by the name of the units.
    compute: IndexMap<String, f64>,
}

/// The peak of each resource that limits an operation, from the operation whose time at the peak is the longest, since
/// that time is rounded to nanoseconds.
fn roofs(operations: &[OperationRecord]) -> Roofs {
    let mut roofs = Roofs { memory: None, compute: IndexMap::new() };
    let mut sorted: Vec<(&OperationRecord, Nanos, &str)> = operations
        .iter()
        .filter_map(|operation| Some((operation, operation.ideal_ns?, operation.bound.as_deref()?)))
        .filter(|(_, ideal, _)| ideal.0 > 0)
        .collect();
    sorted.sort_by_key(|(_, ideal, _)| std::cmp::Reverse(*ideal));
    for (operation, ideal, bound) in sorted {
        let peak = operation.flops / ideal.seconds();
        match bound {
            "memory" if operation.bytes > 0 && !operation.cached => {
                roofs.memory = roofs.memory.or(Some(operation.bytes as f64 / ideal.seconds()));
            }
            // Links are left out, and so is the cache: its share of an operation's bytes is not in the record.
            "memory" => {}
            _ if operation.category == "copy" || operation.category == "collective" || bound == "cache" => {}
            _ if is_possible(peak) => {
                roofs.compute.entry(bound.to_owned()).or_insert(peak);
            }
            _ => {}
        }
    }
    roofs
}

fn draw_roofs(chart: &mut Chart, roofs: &Roofs, x: Scale, y: Scale) {
    let Area { left, right, top, .. } = AREA;
    for (name, peak) in &roofs.compute {
        // The flat roof begins at the slope.
        let from = roofs.memory.map_or(left, |memory| x.at((peak / memory).max(x.least)));
        let text = format!("{name}: {}", Rate(*peak, "FLOP/s"));
        chart.shapes.push(SvgElement::line("whisker", (from, y.at(*peak)), (right, y.at(*peak))));
        chart.shapes.push(SvgElement::text("ink", (right, y.at(*peak) - 5.0), text).anchored("end"));
    }
    let Some(memory) = roofs.memory else { return };
    // The slope goes from the left or the bottom edge up to the highest roof.
    let highest = roofs.compute.values().copied().fold(0.0, f64::max);
    let end = if highest > 0.0 { (highest / memory).min(x.most) } else { (y.most / memory).min(x.most) };
    let begin = (y.least / memory).max(x.least);
    if begin < end {
        let points = [(x.at(begin), y.at(begin * memory)), (x.at(end), y.at(end * memory))];
        let text = format!("memory: {}", Rate(memory, "B/s"));
        chart.shapes.push(SvgElement::line("whisker", points[0], points[1]));
        chart.shapes.push(SvgElement::text("ink", (points[0].0 + 8.0, (points[0].1 - 14.0).max(top + 10.0)), text));
    }
}
