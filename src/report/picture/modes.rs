//! Launch modes and runs aligned by operation: the time of the operations of each name in each of them.

use indexmap::{IndexMap, IndexSet};

use crate::base::Nanos;
use crate::measure::record::plain_name;
use crate::measure::record::{OperationRecord, RunRecord, Variant};
use crate::report::variant::{named, rank_name};

use super::chart::{BarRows, ROW};
use super::{FILLS, Gallery, Picture, SvgElement};

/// Maximum number of operations, those that differ most.
const ROWS: usize = 24;

/// Number of bars that fit a row.
const BARS: usize = 3;

/// Identity of an operation in all series: the name without indices, which is shown, and the kind or the place.
type Key = (String, String);

/// The time of all operations of each name in one launch mode or on one side, in ns.
pub(super) struct ModeTimes {
    pub name: String,
    /// Class of the bars.
    pub fill: &'static str,
    pub times: IndexMap<Key, f64>,
}

/// Reads a time of an operation.
type Time = fn(&OperationRecord) -> Option<Nanos>;

/// The picture of all launch modes of all records, and of their runs on one stream; `None` for fewer than two series.
pub fn modes(records: &[RunRecord]) -> Option<Gallery> {
    let of_variant = |(name, variant): (String, &Variant)| {
        let rank = variant.ranks.first()?;
        let name = rank_name(variant, &name, rank);
        let of = |name: String, time: Time| ModeTimes { name, fill: "", times: sums(&rank.operations, time) };
        Some([of(format!("{name}, one stream"), |one| one.alone_ns), of(name, OperationRecord::work_ns)])
    };
    let all = named(records).filter_map(of_variant).flat_map(|[alone, own]| [own, alone]);
    let mut all: Vec<ModeTimes> = all.filter(|series| !series.times.is_empty()).collect();
    all.truncate(FILLS.len());
    all.iter_mut().zip(FILLS).for_each(|(series, fill)| series.fill = fill);
    if all.len() < 2 {
        return None;
    }
    let notes =
        ["Operations of one name, with the time of all of them in an iteration, without waiting for other ranks. The \
         operations that differ most come first; the text is the greatest difference from the first bar."];
    let picture = draw(&all, &format!("Times of operations in {} launch modes and runs", all.len()));
    Gallery::of("modes", "Operations in each launch mode and run", &notes, "Run", vec![(String::new(), picture)])
}

fn sums(operations: &[OperationRecord], time: Time) -> IndexMap<Key, f64> {
    let mut sums = IndexMap::new();
    for operation in operations {
        if let Some(time) = time(operation) {
            *sums.entry((plain_name(&operation.name), operation.operation.clone())).or_default() += time.0 as f64;
        }
    }
    sums
}

/// The greatest difference of a series from the first that has the operation, in ns.
fn difference(all: &[ModeTimes], key: &Key) -> f64 {
    let times: Vec<f64> = all.iter().filter_map(|series| series.times.get(key).copied()).collect();
    let differences = times.iter().map(|time| time - times[0]);
    differences.max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap_or_default()
}

/// The operations of all series as bars, those that differ most first.
pub(super) fn draw(all: &[ModeTimes], description: &str) -> Picture {
    let keys: IndexSet<&Key> = all.iter().flat_map(|series| series.times.keys()).collect();
    let mut keys: Vec<(&Key, f64)> = keys.into_iter().map(|key| (key, difference(all, key))).collect();
    keys.sort_by(|(_, a), (_, b)| b.abs().total_cmp(&a.abs()));
    let hidden = keys.len().saturating_sub(ROWS);
    keys.truncate(ROWS);
    let times = all.iter().flat_map(|series| keys.iter().filter_map(|(key, _)| series.times.get(*key).copied()));
    let most = times.fold(1.0, f64::max);
    // A name takes as many rows as its bars need.
    let height = all.len().div_ceil(BARS);
    let names = keys
        .iter()
        .flat_map(|((name, _), _)| std::iter::once(name.as_str()).chain(std::iter::repeat_n("", height - 1)));
    let mut rows = BarRows::new(&names.collect::<Vec<_>>(), most);
    let bar = (height as f64 * ROW - 6.0) / all.len() as f64;
    for (row, (key, difference)) in keys.iter().enumerate() {
        let top = (row * height) as f64 * ROW + 2.0;
        let mut longest = 0.0f64;
        for (index, series) in all.iter().enumerate() {
            let Some(time) = series.times.get(*key).copied() else { continue };
            longest = longest.max(time);
            let (from, to) = (rows.x(0.0), rows.x(time));
            let shape = SvgElement::rect(series.fill, from, top + index as f64 * bar, to - from, bar);
            rows.shapes.push(shape.titled(format!("{}: {}", series.name, Nanos::rounded(time))));
        }
        let sign = if *difference > 0.0 { "+" } else { "" };
        rows.value(row * height, longest, format!("{sign}{}", Nanos::rounded(*difference)));
    }
    let more = if hidden > 0 { format!("; {hidden} that differ less are left out") } else { String::new() };
    let legend = all.iter().map(|series| (series.fill, series.name.as_str()));
    rows.picture(format!("{description}{more}")).with_legend(legend, 1)
}
