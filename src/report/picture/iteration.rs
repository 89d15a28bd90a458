//! The timeline of one observed iteration: a row for each real stream of each rank.

use std::collections::HashSet;

use crate::base::Nanos;
use crate::measure::record::{OperationRecord, RankRecord, RunRecord, Variant};
use crate::report::traces::common_clock::shifts;
use crate::report::variant::{named, rank_name};

use super::chart::{BarRows, ROW};
use super::{Gallery, Picture, SvgElement, kind_fill, shortened};

/// Maximum number of ranks in a picture.
const RANKS: usize = 16;

/// Width in pixels below which bars of a row are drawn as one.
const NARROW: f64 = 0.5;

/// Width of a letter in pixels, on average.
const LETTER: f64 = 6.5;

/// The bar of an operation in pixels.
struct Bar<'a> {
    operation: &'a OperationRecord,
    from: f64,
    to: f64,
    /// Number of operations that the bar represents.
    count: usize,
}

/// The traced iteration of each variant; `None` if no record has one.
pub fn iterations(records: &[RunRecord]) -> Option<Gallery> {
    let pictures = named(records).filter_map(|(name, variant)| Some((name.clone(), draw(&name, variant)?)));
    let notes = ["A row is a real stream; a line below a bar is the critical path; pale is waiting for other ranks."];
    Gallery::of("timeline", "Timeline of one iteration", &notes, "Run", pictures.collect())
}

fn draw(name: &str, variant: &Variant) -> Option<Picture> {
    let shifts = shifts(&variant.ranks);
    let ranks: Vec<(&RankRecord, Nanos)> =
        variant.ranks.iter().zip(shifts).filter(|(rank, _)| !rank.trace.is_empty()).take(RANKS).collect();
    let ends = ranks.iter().flat_map(|(rank, shift)| rank.trace.iter().map(|span| span.end_ns + *shift));
    let most = ends.max()?;
    let mut streams: Vec<(usize, u32)> = Vec::new();
    for (index, (rank, _)) in ranks.iter().enumerate() {
        let lanes = rank.trace.iter().map(|span| rank.operations[span.id as usize].lane);
        let mut lanes: Vec<u32> = lanes.collect();
        lanes.sort_unstable();
        lanes.dedup();
        streams.extend(lanes.into_iter().map(|lane| (index, lane)));
    }
    let names = streams.iter().map(|(index, lane)| {
        let rank = ranks[*index].0;
        let first = rank.trace.iter().map(|span| &rank.operations[span.id as usize]).find(|one| one.lane == *lane);
        rank_name(variant, &format!("{lane}: {}", first.map_or("", |operation| &operation.stream)), rank)
    });
    let mut rows = BarRows::new(&names.collect::<Vec<_>>(), most.0 as f64);
    for (row, (index, lane)) in streams.iter().enumerate() {
        let (rank, shift) = ranks[*index];
        let bars = bars(&rows, rank, shift, *lane);
        let path: HashSet<u32> =
            rank.analysis.iter().flat_map(|analysis| &analysis.critical_path.operations).copied().collect();
        bars.iter().for_each(|bar| draw_bar(&mut rows.shapes, bar, row, path.contains(&bar.operation.id)));
    }
    // A picture that is shown alone must state whether it is simulated.
    rows.shapes.push(SvgElement::label((0.0, streams.len() as f64 * ROW + 17.0), name));
    Some(rows.picture(format!("One iteration, {name}")))
}

/// The bars of a stream. Neighbours that are narrower than a pixel become one bar of the first one's kind.
fn bars<'a>(rows: &BarRows, rank: &'a RankRecord, shift: Nanos, lane: u32) -> Vec<Bar<'a>> {
    let mut spans: Vec<_> = rank
        .trace
        .iter()
        .map(|span| (&rank.operations[span.id as usize], span.start_ns + shift, span.end_ns + shift))
        .filter(|(operation, ..)| operation.lane == lane)
        .collect();
    spans.sort_by_key(|(operation, start, _)| (*start, operation.id));
    let mut bars: Vec<Bar> = Vec::new();
    for (operation, start, end) in spans {
        let (from, to) = (rows.x(start.0 as f64), rows.x(end.0 as f64));
        match bars.last_mut() {
            Some(last) if to - from < NARROW && last.to - last.from < 2.0 * NARROW && from - last.to < NARROW => {
                last.to = to;
                last.count += 1;
            }
            _ => bars.push(Bar { operation, from, to, count: 1 }),
        }
    }
    bars
}

fn draw_bar(shapes: &mut Vec<SvgElement>, bar: &Bar, row: usize, critical: bool) {
    let Bar { operation, from, to, count } = bar;
    let (y, width) = (row as f64 * ROW + 3.0, (to - from).max(0.4));
    let OperationRecord { name, category, .. } = operation;
    let time = operation.time_ns.map(|time| format!(", {time}")).unwrap_or_default();
    let title = if *count > 1 { format!("{name} and {} more", count - 1) } else { format!("{name}{time}") };
    shapes.push(SvgElement::rect(kind_fill(category), *from, y, width, ROW - 8.0).titled(title));
    let waiting = operation.wait_ns.zip(operation.time_ns).filter(|(wait, time)| wait.0 > 0 && time.0 > 0);
    if let Some((wait, time)) = waiting.filter(|_| *count == 1) {
        let share = (wait.0 as f64 / time.0 as f64).min(1.0);
        shapes.push(SvgElement::rect("waiting", *from, y, width * share, ROW - 8.0));
    }
    if critical {
        shapes.push(SvgElement::rect("fill-path", *from, y + ROW - 7.0, width, 3.0));
    }
    let letters = (width / LETTER) as usize;
    if letters >= 4 && *count == 1 {
        let class = if category == "matrix" { "on-dark" } else { "on-light" };
        shapes.push(SvgElement::text(class, (from + 3.0, y + 12.0), shortened(name, letters)));
    }
}
