//! Two sides aligned by operation: the time of the operations of each name on both sides.

use crate::measure::compare::{CaseComparison, Comparison, OperationRow};
use crate::report::comparison::compare::figures;

use super::modes::{ModeTimes, draw};
use super::{Gallery, Picture};

/// A picture for each pair of cases; `None` if no operation was timed on both sides.
pub fn differences(comparison: &Comparison) -> Option<Gallery> {
    let several = comparison.others.len() > 1;
    let pairs = comparison.others.iter().flat_map(|against| {
        let side = if several { format!("{}, ", against.side.name) } else { String::new() };
        against.pairs.iter().filter_map(move |pair| Some((format!("{side}{}", pair.case), picture(pair)?)))
    });
    let notes = [
        "Operations of one name, with the time of all of them in an iteration on each side, without waiting for other \
         ranks. Those that differ most come first.",
    ];
    Gallery::of("difference", "Operations of both sides", &notes, "Case", pairs.collect())
}

fn picture(pair: &CaseComparison) -> Option<Picture> {
    let known = || pair.operations.iter().filter(|row| row.base.is_some() && row.other.is_some());
    known().next()?;
    let side = |name: String, fill, time: fn(&OperationRow) -> Option<f64>| {
        let key = |row: &OperationRow| (format!("{} × {}", row.count, row.name), row.place.clone());
        ModeTimes { name, fill, times: known().filter_map(|row| Some((key(row), time(row)? * 1e9))).collect() }
    };
    let sides = [
        side(format!("base, {}", pair.base_figures), "fill-part-7", |row| row.base),
        side(format!("other, {}", pair.other_figures), "fill-part-1", |row| row.other),
    ];
    let mark = figures(pair).map(|figures| format!(", {figures}")).unwrap_or_default();
    Some(draw(&sides, &format!("{}: operations of both sides{mark}", pair.case)))
}
