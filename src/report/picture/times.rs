//! Medians of all series of times on one axis, with their intervals.

use crate::base::Nanos;
use crate::measure::cases::Case;
use crate::measure::record::{RunRecord, Times};
use crate::measure::scaling;
use crate::report::comparison::cases::variants;
use crate::report::variant::{marks, named};

use super::chart::{BarRows, ROW};
use super::{Gallery, Picture, SvgElement, shortened};

/// The series of all variants that have statistics: name, class, times.
pub(super) fn series(records: &[RunRecord]) -> Vec<(String, &'static str, &Times)> {
    let all = named(records).flat_map(|(name, variant)| {
        [
            (name.clone(), "fill-part-1", Some(&variant.time)),
            (format!("{name}, ungated"), "fill-part-4", variant.ungated.as_ref()),
            (format!("{name}, one stream"), "fill-part-2", variant.serial.as_ref()),
            (format!("{name}, launching"), "fill-part-7", Some(&variant.issue)),
        ]
    });
    let known = all.filter_map(|(name, class, times)| Some((name, class, times?)));
    known.filter(|(_, _, times)| times.n > 0 && times.p50_ns.is_some()).collect()
}

/// The picture of all series; `None` if no series has statistics.
pub fn times(records: &[RunRecord]) -> Option<Gallery> {
    let picture = bars("Median times of an iteration on one axis", &series(records))?;
    Gallery::of("times", "Times", &[NOTE], "Run", vec![(String::new(), picture)])
}

/// The medians of measured cases; `None` if no case has one.
pub fn cases(cases: &[&Case]) -> Option<Gallery> {
    let pace = scaling::pace(cases);
    let series = variants(cases).map(|(case, launch, record, variant)| {
        // The beginning of a name is cut, because its end has the launch mode and the marks.
        let end = format!("{launch}{}", marks(record));
        let room = LETTERS.saturating_sub(end.chars().count());
        (format!("{}{end}", shortened(&case.name, room)), "fill-part-1", pace.times(variant))
    });
    let series: Vec<_> = series.filter(|(_, _, times)| times.p50_ns.is_some()).collect();
    let shown = &series[..series.len().min(CASES)];
    let more = series.len() - shown.len();
    let more = if more > 0 { format!("; {more} more are in the table") } else { String::new() };
    let picture = bars(&format!("Median times of the cases{more}"), shown)?;
    Gallery::of("cases", "Times of the cases", &[NOTE], "Case", vec![(String::new(), picture)])
}

/// Maximum number of cases in a picture.
const CASES: usize = 64;
/// Maximum number of letters beside a bar.
const LETTERS: usize = 52;

const NOTE: &str = "Bars are medians. A box is the interval that contains the true median with 95 % confidence; a line \
                    goes from the 5th to the 95th percentile.";

fn bars(description: &str, all: &[(String, &'static str, &Times)]) -> Option<Picture> {
    let far = |times: &Times| [times.p50_ns, times.p50_high_ns, times.p95_ns].into_iter().flatten().max();
    let most = all.iter().filter_map(|(_, _, times)| far(times)).max()?;
    let mut rows = BarRows::new(&all.iter().map(|(name, ..)| name).collect::<Vec<_>>(), most.0 as f64);
    for (row, (name, class, times)) in all.iter().enumerate() {
        let Some(median) = times.p50_ns else { continue };
        let y = row as f64 * ROW;
        rows.bar(class, row, (0.0, median.0 as f64), format!("{name}: {median}"));
        let pair = |low: Option<Nanos>, high: Option<Nanos>| Some((rows.x(low?.0 as f64), rows.x(high?.0 as f64)));
        let (whisker, interval) = (pair(times.p5_ns, times.p95_ns), pair(times.p50_low_ns, times.p50_high_ns));
        let whisker = whisker.map(|(from, to)| SvgElement::line("whisker", (from, y + 11.0), (to, y + 11.0)));
        let interval =
            interval.map(|(from, to)| SvgElement::rect("outline", from, y + 6.0, (to - from).max(1.0), 10.0));
        rows.shapes.extend(whisker.into_iter().chain(interval));
        rows.value(row, far(times).unwrap_or_default().0 as f64, median.to_string());
    }
    Some(rows.picture(description.to_owned()))
}
