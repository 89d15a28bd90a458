//! The split of an iteration that adds up to its time, as a bar for each rank and each phase.

use crate::base::Nanos;
use crate::measure::record::{AnalysisRecord, RunRecord, TimeSplitRecord};
use crate::report::run::percent;
use crate::report::variant::{named, rank_name};

use super::chart::BarRows;
use super::{Gallery, Picture};

/// Maximum number of bars.
const BARS: usize = 64;

/// The names and classes of the parts, in the order of [`TimeSplitRecord::parts`].
const PARTS: [(&str, &str); TimeSplitRecord::PARTS] = [
    ("operations", "fill-part-1"),
    ("stretch", "fill-part-2"),
    ("other ranks", "fill-part-3"),
    ("copy engine", "fill-part-8"),
    ("launch", "fill-part-4"),
    ("queue", "fill-part-5"),
    ("dependency", "fill-part-6"),
    ("start and end", "fill-part-7"),
];

/// The splits of all ranks of all variants; `None` if no operation was observed.
pub fn splits(records: &[RunRecord]) -> Option<Gallery> {
    let all: Vec<(String, &TimeSplitRecord)> =
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
        let splits: Vec<(String, &TimeSplitRecord)> = splits.iter().map(named).collect();
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
fn bars(all: &[(String, &TimeSplitRecord)], most: Nanos, description: String) -> Picture {
    let shown = &all[..all.len().min(BARS)];
    let mut rows = BarRows::new(&shown.iter().map(|(name, _)| name).collect::<Vec<_>>(), most.0 as f64);
    for (row, (_, split)) in shown.iter().enumerate() {
        // If operations were faster than alone, their part is smaller than their time alone.
        let sooner = split.stretch_ns.unwrap_or_default().min(Nanos(0));
        let mut at = 0.0;
        for ((part, class), (_, time)) in PARTS.into_iter().zip(split.parts()) {
            let time = time.unwrap_or_default();
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
    rows.picture(description).with_legend(PARTS.map(|(part, class)| (class, part)), PARTS.len())
}
