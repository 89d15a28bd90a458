//! The split of an iteration that adds up to its time, as a bar for each rank and each phase.

use crate::base::Nanos;
use crate::measure::record::{AnalysisRecord, RunRecord, SplitRecord};
use crate::report::run::percent;
use crate::report::variant::{named, rank_name};

use super::chart::{ROW, Rows};
use super::{Gallery, Picture, Shape};

/// Maximum number of bars.
const BARS: usize = 64;

/// The parts in the order in which they are drawn: name, class, time.
fn parts(split: &SplitRecord) -> [(&'static str, &'static str, Nanos); 7] {
    [
        ("operations", "fill-part-1", split.operations_ns),
        ("stretch", "fill-part-2", split.stretch_ns.unwrap_or_default()),
        ("other ranks", "fill-part-3", split.wait_ns),
        ("launch", "fill-part-4", split.launch_ns),
        ("queue", "fill-part-5", split.queue_ns),
        ("dependency", "fill-part-6", split.dependency_ns),
        ("begin and end", "fill-part-7", split.idle_ns),
    ]
}

/// The splits of all ranks of all variants; `None` if no operation was observed.
pub fn splits(records: &[RunRecord]) -> Option<Gallery> {
    let all: Vec<(String, &SplitRecord)> =
        analyses(records).into_iter().map(|(name, analysis)| (name, &analysis.split)).collect();
    let most = all.iter().take(BARS).map(|(_, split)| split.time_ns).max()?;
    let picture = bars(&all, most, "The split of each iteration, whose parts add up to its time".to_owned());
    Gallery::of("split", "Where the time goes", &[], "Run", vec![(String::new(), picture)])
}

/// The splits of the outermost phases, a picture for each rank; `None` without phases.
pub fn phases(records: &[RunRecord]) -> Option<Gallery> {
    let pictures = analyses(records).into_iter().filter(|(_, analysis)| !analysis.phases.is_empty());
    let picture = |(name, analysis): (String, &AnalysisRecord)| {
        let splits = analysis.outermost_phases();
        let named = |(phase, split): (&Option<&str>, _)| (phase.unwrap_or("no phase").to_owned(), split);
        let splits: Vec<(String, &SplitRecord)> = splits.iter().map(named).collect();
        let description = format!("{name}: the split of each phase, whose times add up to the iteration");
        let picture = bars(&splits, analysis.split.time_ns, description);
        (name, picture)
    };
    let note = "A phase has the operations that the iteration waits for, and the gaps before them. What runs beside these does not count.";
    Gallery::of("phases", "By phase", &[note], "Run", pictures.map(picture).collect())
}

/// The analysis of each rank of each variant, with its name.
fn analyses(records: &[RunRecord]) -> Vec<(String, &AnalysisRecord)> {
    named(records)
        .flat_map(|(name, variant)| {
            let ranks = variant.ranks.iter().filter_map(|rank| Some((rank, rank.analysis.as_ref()?)));
            ranks.map(|(rank, analysis)| (rank_name(variant, &name, rank), analysis)).collect::<Vec<_>>()
        })
        .collect()
}

/// Bars of splits, at most [`BARS`], along an axis up to `most`.
fn bars(all: &[(String, &SplitRecord)], most: Nanos, description: String) -> Picture {
    let shown = &all[..all.len().min(BARS)];
    let mut rows = Rows::new(&shown.iter().map(|(name, _)| name).collect::<Vec<_>>(), most.0 as f64);
    for (row, (_, split)) in shown.iter().enumerate() {
        // If operations were faster than alone, their part is smaller than their time alone.
        let sooner = split.stretch_ns.unwrap_or_default().min(Nanos(0));
        let mut at = 0.0;
        for (part, class, time) in parts(split) {
            let shown = if part == "operations" { time + sooner } else { time };
            let drawn = shown.0.max(0) as f64;
            let share = time.0 as f64 / split.time_ns.0.max(1) as f64;
            if drawn > 0.0 {
                rows.bar(class, row, (at, at + drawn), format!("{part}: {time}, {}", percent(share)));
            }
            at += drawn;
        }
        rows.value(row, at, split.time_ns.to_string());
    }
    let mut picture = rows.picture(description);
    for (index, (part, class, _)) in parts(&SplitRecord::default()).into_iter().enumerate() {
        let at = (index as f64 * 106.0, picture.height + 6.0);
        picture.shapes.push(Shape::rect(class, at.0, at.1, 12.0, 12.0));
        picture.shapes.push(Shape::text("ink", (at.0 + 16.0, at.1 + 10.0), part));
    }
    picture.height += ROW;
    picture
}
