//! The report of a search.

use crate::base::counted;
use crate::measure::cases::{Case, CasesHeader};
use crate::measure::pace::Pace;
use crate::measure::scaling;
use crate::measure::search::{SearchResult, TriedPoint};
use crate::report::page::{Page, Section, Table, cell};
use crate::report::quantity::{change, changes};

use super::cases::CaseColumns;
use super::sweep::axes;

/// Number of points that are shown.
const SHOWN: usize = 10;

/// A search with the data that its report needs.
pub struct Searched<'a> {
    pub header: &'a CasesHeader,
    /// Number of points in the space.
    pub points: usize,
    /// Number of points that were examined and cannot run.
    pub unfit: usize,
    pub found: &'a SearchResult,
    /// The last run of a point; `None` if it was not run.
    pub last: &'a dyn Fn(&[usize]) -> Option<&'a Case>,
    /// Kind of times that were compared.
    pub pace: Pace,
}

/// Page with the best points, the certainty of their order, and the points that were not tried.
pub fn search(searched: &Searched) -> Page {
    let Searched { header, points, found, .. } = searched;
    let mut page = Page { command: "aorta sweep --search", name: header.name.clone(), ..Page::default() };
    let tried = found.tried.len();
    let (points, runs) = (counted(*points, "point"), counted(found.runs, "run"));
    let mut heading =
        vec![format!("{}: searched {points} over {}: {tried} of them in {runs}", header.name, axes(header))];
    let record = found.best().and_then(|best| (searched.last)(&best.point)).and_then(|case| case.record.as_ref());
    heading.extend(record.map(|record| {
        let no = if record.measurement { "" } else { ", no measurement" };
        format!("{}, {}{no}", record.device.name, counted(record.settings.iterations as usize, "iteration"))
    }));
    page.lines("", heading);
    page.sections.push(table(searched));
    page
}

fn table(searched: &Searched) -> Section {
    let Searched { header, found, .. } = searched;
    let measured: Vec<(&TriedPoint, &Case)> = found
        .tried
        .iter()
        .filter(|tried| tried.value().is_some())
        .filter_map(|tried| Some((tried, (searched.last)(&tried.point)?)))
        .collect();
    let cases: Vec<&Case> = measured.iter().map(|(_, case)| *case).collect();
    let mut columns = CaseColumns::of(header, &cases, None);
    columns.pace = searched.pace;
    let axes = header.axes.iter().map(|axis| axis.name.clone());
    let beside = ["against the best", "its 95 % interval"].map(str::to_owned);
    let mut table = Table::new(axes.chain(["runs".to_owned()]).chain(columns.names()).chain(beside));
    for (tried, case) in measured.iter().take(SHOWN) {
        let best = found.best().is_some_and(|best| best.point == tried.point);
        let beside = found.relative_to_best(tried).filter(|_| !best);
        let beside = [
            beside.map_or_else(|| "best".to_owned(), |(ratio, _)| change(ratio)),
            cell(beside.and_then(|(_, interval)| interval).map(changes)),
        ];
        // A search compares the first launch mode of each point.
        let row = columns.rows(case).into_iter().next().unwrap_or_default();
        table.row(case.values.values().cloned().chain([tried.runs().to_string()]).chain(row).chain(beside));
    }
    let more = measured.len().saturating_sub(SHOWN);
    let mut notes = Vec::new();
    if measured.is_empty() {
        notes.push("Nothing could be measured.".to_owned());
    }
    if searched.pace == Pace::Host {
        notes.push("Some points were not held at the gate: all are compared by their host-paced times.".to_owned());
    }
    if scaling::unequal_iterations(scaling::unit(&cases), &cases) {
        notes.push(
            "The work is not known, and iterations differ: the best point has the shortest iteration, whatever it does.".to_owned(),
        );
    }
    notes.extend((more > 0).then(|| format!("{more} more were measured; the file of cases has all of them")));
    notes.extend(certainty(searched));
    Section { table: Some(table).filter(|table| !table.rows.is_empty()), notes, ..Section::default() }
}

/// Describes how certain it is that the best point is the best.
fn certainty(searched: &Searched) -> Vec<String> {
    let found = searched.found;
    let mut lines = Vec::new();
    if let (Some((noise, _)), Some(next)) = (found.noise, found.tried.get(1)) {
        let near = found.within_noise().len().saturating_sub(1);
        let who = match near {
            0 => "No other point is".to_owned(),
            1 => "1 other point is".to_owned(),
            near => format!("{near} other points are"),
        };
        lines.push(format!(
            "{who} within the noise of the best: runs of a point differ by {:.2} % (standard deviation).",
            100.0 * noise
        ));
        if let Some((ratio, Some(interval))) = found.relative_to_best(next) {
            lines.push(format!(
                "The second-best relative to the best: {}, 95 % interval {}.",
                change(ratio),
                changes(interval)
            ));
        }
    } else if found.best().is_some() {
        let repeated = found.tried.iter().any(|tried| tried.runs() > 1);
        let which = if repeated { "Too few runs were repeated" } else { "No point had several runs" };
        lines.push(format!("{which}, so it is not known how much runs differ."));
    }
    let lost = found.tried.iter().filter(|tried| tried.lost).count();
    lines.extend((lost > 0).then(|| format!("{} failed, and went on to be left out.", counted(lost, "point"))));
    let unfit = searched.unfit;
    lines.extend(
        (unfit > 0).then(|| format!("{} cannot run, and did not count against the budget.", counted(unfit, "point"))),
    );
    lines
}
