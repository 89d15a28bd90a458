//! What a search has found, as text.

use std::fmt::Write as _;

use indexmap::IndexMap;

use crate::base::{Nanos, Rate, counted};
use crate::measure::cases::{Case, Header};
use crate::measure::pace::Pace;
use crate::measure::search::{Found, Tried};

use super::ab::{between, change};
use super::table::{new_table, push};

/// Points that are shown.
const SHOWN: usize = 10;

/// A search, and what is needed to show it.
pub struct Searched<'a> {
    pub header: &'a Header,
    /// How many points there are.
    pub points: usize,
    /// Points that were looked at and cannot run.
    pub unfit: usize,
    pub found: &'a Found,
    /// The values of a point, by the names of the axes.
    pub case: &'a dyn Fn(&[usize]) -> IndexMap<String, String>,
    /// The last run of a point.
    pub last: &'a dyn Fn(&[usize]) -> Option<&'a Case>,
    /// Which times of the points were compared.
    pub pace: Pace,
}

/// What is made small: the time of a unit of work, nanoseconds. The work is an iteration's arithmetic, or its bytes where it
/// computes nothing; where it has neither, the iteration itself. `None` of a case without figures.
pub fn cost(case: &Case, pace: Pace) -> Option<f64> {
    let record = case.record.as_ref()?;
    Some(median(case, pace)?.0 as f64 / work(record.program.flops, record.program.bytes).0)
}

fn median(case: &Case, pace: Pace) -> Option<Nanos> {
    pace.times(case.record.as_ref()?.variants.first()?).p50_ns.filter(|median| median.0 > 0)
}

fn work(flops: f64, bytes: u64) -> (f64, &'static str) {
    match (flops > 0.0, bytes > 0) {
        (true, _) => (flops, "FLOP/s"),
        (false, true) => (bytes as f64, "B/s"),
        (false, false) => (1.0, "iterations/s"),
    }
}

/// The best points, how sure their order is, and what was left out.
pub fn search(searched: &Searched) -> String {
    let Searched { header, found, .. } = searched;
    let mut out = String::new();
    let axes: Vec<String> =
        header.axes.iter().map(|axis| format!("{} ({})", axis.name, counted(axis.values.len(), "value"))).collect();
    let _ = writeln!(
        out,
        "{}: searched {} over {}: {} of them in {}",
        header.name,
        counted(searched.points, "point"),
        axes.join(" × "),
        found.tried.len(),
        counted(found.runs, "run"),
    );
    let record = found.best().and_then(|best| (searched.last)(&best.point)).and_then(|case| case.record.as_ref());
    if let Some(record) = record {
        let no = if record.measurement { "" } else { ", no measurement" };
        let iterations = counted(record.settings.iterations as usize, "iteration");
        let _ = writeln!(out, "{}, {iterations}{no}", record.device.name);
    }
    out.push('\n');
    table(searched, record.is_some_and(|record| record.simulated), &mut out);
    certainty(searched, &mut out);
    out
}

fn table(searched: &Searched, simulated: bool, out: &mut String) {
    let Searched { header, found, .. } = searched;
    let measured: Vec<&Tried> = found.tried.iter().filter(|tried| tried.value().is_some()).collect();
    if measured.is_empty() {
        out.push_str("Nothing could be measured.\n");
        return;
    }
    let mut names: Vec<String> = header.axes.iter().map(|axis| axis.name.clone()).collect();
    let mark = match (simulated, searched.pace) {
        (false, Pace::Headline) => "",
        (true, Pace::Headline) => " (simulated)",
        (false, Pace::Host) => " (host-paced)",
        (true, Pace::Host) => " (simulated, host-paced)",
    };
    let varies = varies(searched, &measured);
    names.extend(["runs".to_owned(), format!("median{mark}")]);
    names.extend(varies.then(|| "rate".to_owned()));
    names.extend([if varies { "time per work" } else { "beside the best" }, "95 % interval"].map(str::to_owned));
    let mut table = new_table(&names);
    for tried in measured.iter().take(SHOWN) {
        let mut row: Vec<String> = (searched.case)(&tried.point).into_values().collect();
        let last = (searched.last)(&tried.point);
        row.push(tried.runs().to_string());
        row.push(
            last.and_then(|case| median(case, searched.pace)).map_or_else(|| "–".to_owned(), |time| time.to_string()),
        );
        if varies {
            row.push(tried.value().zip(last).map_or_else(|| "–".to_owned(), |(cost, case)| rate(cost, case)));
        }
        let best = found.best().is_some_and(|best| best.point == tried.point);
        let (ratio, interval) = found.beside_best(tried).filter(|_| !best).unwrap_or((1.0, None));
        row.push(if best { "best".to_owned() } else { change(ratio) });
        row.push(interval.map_or_else(|| "–".to_owned(), between));
        table.add_row(row);
    }
    push(out, &table);
    if searched.pace == Pace::Host {
        out.push_str("Some points could not be held at the gate: all are compared by their host-paced times.\n\n");
    }
    let more = measured.len().saturating_sub(SHOWN);
    if more > 0 {
        let _ = writeln!(out, "{more} more were measured; the file of cases has all of them\n");
    }
}

/// Whether points do different work, so that their times alone say nothing.
fn varies(searched: &Searched, measured: &[&Tried]) -> bool {
    let mut works = measured.iter().filter_map(|tried| {
        let record = (searched.last)(&tried.point)?.record.as_ref()?;
        Some(work(record.program.flops, record.program.bytes).0)
    });
    let first = works.next();
    works.any(|work| Some(work) != first)
}

/// The rate that a cost stands for.
fn rate(cost: f64, case: &Case) -> String {
    let unit = case.record.as_ref().map_or("", |record| work(record.program.flops, record.program.bytes).1);
    Rate(1e9 / cost, unit).to_string()
}

/// How sure it is that the best is the best.
fn certainty(searched: &Searched, out: &mut String) {
    let found = searched.found;
    if let (Some((noise, _)), Some(next)) = (found.noise, found.tried.get(1)) {
        let near = found.within_noise().len().saturating_sub(1);
        let _ = match near {
            0 => writeln!(
                out,
                "No other point is within the noise of the best: runs of a point differ by {}.",
                of(noise)
            ),
            _ => writeln!(
                out,
                "{} within the noise of the best: runs of a point differ by {} (standard deviation).",
                if near == 1 { "1 other point is".to_owned() } else { format!("{near} other points are") },
                of(noise)
            ),
        };
        if let Some((ratio, Some(interval))) = found.beside_best(next) {
            let _ = writeln!(out, "The next beside the best: {}, 95 % interval {}.", change(ratio), between(interval));
        }
    } else if found.best().is_some() {
        out.push_str("No point had several runs, so that nothing says how much they differ.\n");
    }
    let lost = found.tried.iter().filter(|tried| tried.lost).count();
    if lost > 0 {
        let _ = writeln!(out, "{} failed, and went on to be left out.", counted(lost, "point"));
    }
    if searched.unfit > 0 {
        let _ =
            writeln!(out, "{} that the search came by cannot run, and cost nothing.", counted(searched.unfit, "point"));
    }
    out.push('\n');
}

fn of(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}
