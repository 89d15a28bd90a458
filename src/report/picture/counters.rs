//! Rates over the traced iteration: what operations move each second, for each rank.

use crate::base::Nanos;
use crate::base::units::Rate;
use crate::measure::record::{RankRecord, RunRecord};
use crate::report::common_clock::shifts;
use crate::report::counters::{Counter, counters as of_rank};
use crate::report::variant::{named, rank_name};

use super::chart::time;
use super::scale::{Scale, Spread};
use super::{FILLS, Gallery, Picture, Shape, WIDTH};

/// Maximum number of ranks with a picture.
const RANKS: usize = 16;

/// Height of a counter's track, and of the space below it.
const TRACK: f64 = 54.0;
const SPACE: f64 = 22.0;

/// Number of steps of a track. A step has the mean of its time.
const STEPS: usize = 380;

/// The counters of each rank; `None` if no operation moves bytes.
pub fn counters(records: &[RunRecord]) -> Option<Gallery> {
    let ranks = named(records).flat_map(|(name, variant)| {
        let ranks = variant.ranks.iter().zip(shifts(&variant.ranks)).take(RANKS);
        ranks
            .filter_map(|(rank, shift)| {
                let name = rank_name(variant, &name, rank);
                Some((name.clone(), draw(&name, rank, shift)?))
            })
            .collect::<Vec<_>>()
    });
    let notes = [
        "Bytes per second of the operations that run: each counts with its mean rate, and between ranks only while it \
         transfers. These are means of operations, not samples of the device's counters.",
    ];
    Gallery::of("rates", "Rates over the iteration", &notes, "Run", ranks.collect())
}

fn draw(name: &str, rank: &RankRecord, shift: Nanos) -> Option<Picture> {
    let counters = of_rank(rank, shift);
    let ends = rank.trace.iter().map(|span| (span.end_ns + shift).0 as f64);
    let most = ends.fold(0.0, f64::max);
    if counters.is_empty() || most <= 0.0 {
        return None;
    }
    let x = Scale::new(Spread::Linear, (0.0, most), (0.0, WIDTH - 20.0));
    let mut shapes = Vec::new();
    for (index, counter) in counters.iter().enumerate() {
        let top = index as f64 * (TRACK + SPACE) + 16.0;
        let means = means(counter, most);
        let highest = means.iter().copied().fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let text = format!("{}, at most {}", counter.name, Rate(highest, "B/s"));
        shapes.push(Shape::text("ink", (0.0, top - 4.0), text));
        let width = (WIDTH - 20.0) / STEPS as f64;
        let mut path = format!("M0 {:.1}", top + TRACK);
        for (step, mean) in means.iter().enumerate() {
            let y = top + TRACK * (1.0 - mean / highest);
            path += &format!("L{:.1} {y:.1}H{:.1}", step as f64 * width, (step + 1) as f64 * width);
        }
        path += &format!("V{:.1}Z", top + TRACK);
        shapes.push(Shape::path(FILLS[index % FILLS.len()], path));
        shapes.push(Shape::line("axis", (0.0, top + TRACK), (WIDTH - 20.0, top + TRACK)));
    }
    let bottom = counters.len() as f64 * (TRACK + SPACE) + 8.0;
    for tick in x.ticks(6) {
        let anchor = if tick == 0.0 { "start" } else { "middle" };
        shapes.push(Shape::text("faint", (x.at(tick), bottom), time(tick)).anchored(anchor));
    }
    let description = format!("What operations move each second over one iteration, {name}");
    Some(Picture { width: WIDTH, height: bottom + 8.0, description, shapes })
}

/// The mean of a counter in each of equal steps of time up to `most` ns.
fn means(counter: &Counter, most: f64) -> Vec<f64> {
    let step = most / STEPS as f64;
    let mut sums = vec![0.0; STEPS];
    let ends = counter.points.iter().skip(1).map(|(at, _)| at.0 as f64).chain([most]);
    for ((from, value), to) in counter.points.iter().zip(ends) {
        let from = (from.0 as f64).max(0.0);
        let mut index = (from / step) as usize;
        while *value > 0.0 && index < STEPS && (index as f64) * step < to {
            let overlap = to.min((index + 1) as f64 * step) - from.max(index as f64 * step);
            sums[index] += value * overlap.max(0.0);
            index += 1;
        }
    }
    sums.into_iter().map(|sum| sum / step).collect()
}
