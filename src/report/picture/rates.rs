//! Rates over the traced iteration, for each rank.

use crate::base::Nanos;
use crate::measure::record::{RankRecord, RunRecord};
use crate::report::traces::common_clock::shifts;
use crate::report::traces::rates::rates as of_rank;
use crate::report::variant::{named, rank_name};

use super::chart::{round, time};
use super::scale::{Scale, Spread};
use super::{FILLS, Gallery, Picture, SvgElement, WIDTH};

/// Maximum number of ranks with a picture.
const RANKS: usize = 16;

/// Height of a rate's track, in pixels.
const TRACK: f64 = 54.0;
/// Height of the space below a track, in pixels.
const SPACE: f64 = 22.0;

/// Number of steps of a track. A step has the mean of its time.
const STEPS: usize = 380;

/// The rates of each rank; `None` without any.
pub fn rates(records: &[RunRecord]) -> Option<Gallery> {
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
        "Bytes per second are those of the operations that run: each counts with its mean rate, and between ranks only while \
         it transfers. These are means of operations, not samples of the device's counters. Occupied compute units are \
         known of simulated runs only.",
    ];
    Gallery::of("rates", "Units, rates and copies over the iteration", &notes, "Run", ranks.collect())
}

fn draw(name: &str, rank: &RankRecord, shift: Nanos) -> Option<Picture> {
    let rates = of_rank(rank, shift);
    let ends = rank.trace.iter().map(|span| (span.end_ns + shift).0 as f64);
    let most = ends.fold(0.0, f64::max);
    if rates.is_empty() || most <= 0.0 {
        return None;
    }
    let x = Scale::new(Spread::Linear, (0.0, most), (0.0, WIDTH - 20.0));
    let mut shapes = Vec::new();
    for (index, rate) in rates.iter().enumerate() {
        let top = index as f64 * (TRACK + SPACE) + 16.0;
        let means = rate.means(STEPS, most);
        let highest = means.iter().copied().fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let text = format!("{}, at most {}", rate.name, round(&rate.text(highest)));
        shapes.push(SvgElement::text("ink", (0.0, top - 4.0), text));
        let width = (WIDTH - 20.0) / STEPS as f64;
        let mut path = format!("M0 {:.1}", top + TRACK);
        for (step, mean) in means.iter().enumerate() {
            let y = top + TRACK * (1.0 - mean / highest);
            path += &format!("L{:.1} {y:.1}H{:.1}", step as f64 * width, (step + 1) as f64 * width);
        }
        path += &format!("V{:.1}Z", top + TRACK);
        shapes.push(SvgElement::path(FILLS[index % FILLS.len()], path));
        shapes.push(SvgElement::line("axis", (0.0, top + TRACK), (WIDTH - 20.0, top + TRACK)));
    }
    let bottom = rates.len() as f64 * (TRACK + SPACE) + 8.0;
    for tick in x.ticks(6) {
        let anchor = if tick == 0.0 { "start" } else { "middle" };
        shapes.push(SvgElement::text("faint", (x.at(tick), bottom), round(&time(tick))).anchored(anchor));
    }
    shapes.push(SvgElement::text("faint", (0.0, bottom + 16.0), name));
    let description = format!("Occupied units, rates and copies over one iteration, {name}");
    Some(Picture { width: WIDTH, height: bottom + 22.0, description, shapes, plots: Vec::new() })
}
