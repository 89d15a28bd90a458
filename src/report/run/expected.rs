//! Figures compared with normal ranges for the device.

use std::collections::BTreeMap;

use crate::base::counted;
use crate::measure::record::{ExpectedRecord, RunRecord};
use crate::report::page::{Page, Section, Table};
use crate::report::variant::variant_of;
use indexmap::IndexSet;

/// The section in a run's report: one line if all figures are normal, otherwise the figures that are not, and the first
/// thing to check. `None` if no ranges are known.
pub(super) fn section(record: &RunRecord) -> Option<Section> {
    let (known, device) = (record.expected.len(), &record.device.name);
    let off: Vec<&ExpectedRecord> = record.expected.iter().filter(|figure| figure.verdict != "normal").collect();
    let (good, figures_known) = (known - off.len(), counted(known, "figure"));
    let is = if good == 1 { "is" } else { "are" };
    let not = match off.len() {
        0 => "",
        1 => ", this is not:",
        _ => ", these are not:",
    };
    (known > 0).then(|| Section {
        lines: vec![format!("Is it normal? {good} of {figures_known} known of {device} {is}{not}")],
        table: (!off.is_empty()).then(|| figures(record, &off)),
        notes: checks(&off),
        ..Section::default()
    })
}

/// Every figure with a known range, its value and the range's source.
pub fn expected(record: &RunRecord) -> Page {
    let all: Vec<&ExpectedRecord> = record.expected.iter().collect();
    let by_name = by_name(&all);
    let seen = by_name
        .values()
        .flat_map(|figure| [format!("{}: {}", figure.name, figure.seen), format!("  {}", figure.source)]);
    let title = format!("Figures and their normal ranges on {}", record.device.name);
    let notes = seen.chain(checks(&all)).collect();
    let section = Section { title, table: Some(figures(record, &all)), notes, ..Section::default() };
    Page { sections: vec![section], ..Page::default() }
}

fn figures(record: &RunRecord, figures: &[&ExpectedRecord]) -> Table {
    let mut table = Table::new(["figure", "of", "launch", "here", "normal", "verdict"]).left(1);
    for figure in figures {
        let count = if figure.count > 1 { format!("{} × ", figure.count) } else { String::new() };
        let rank = figure.rank.map(|rank| format!(", rank {rank}")).unwrap_or_default();
        table.row([
            figure.name.clone(),
            format!("{count}{}{rank}", figure.of),
            variant_of(record, &figure.launch),
            figure.text.clone(),
            figure.normal.clone(),
            figure.verdict.clone(),
        ]);
    }
    table
}

/// The things to check first, without repetitions.
fn checks(figures: &[&ExpectedRecord]) -> Vec<String> {
    let checks: IndexSet<&String> = figures.iter().flat_map(|figure| &figure.check).collect();
    checks.into_iter().map(|check| format!("check first: {check}")).collect()
}

/// The figures by the name of their range; if several have one name, the last.
fn by_name<'a>(figures: &[&'a ExpectedRecord]) -> BTreeMap<&'a str, &'a ExpectedRecord> {
    figures.iter().map(|figure| (figure.name.as_str(), *figure)).collect()
}
