//! The report of a sweep: a row for each case, and a curve for each axis.

use indexmap::IndexSet;

use crate::base::counted;
use crate::measure::cases::{Case, CasesHeader};
use crate::measure::order::CaseOrder;
use crate::measure::pace::{self, Pace};
use crate::measure::scaling;
use crate::report::page::{Page, Section, Table, named_cells};

use super::cases::{CaseColumns, chart, check, reasons, records, tally};
use super::curve;

/// Maximum number of rows; the file of cases has all cases.
const ROWS: usize = 200;

/// The page of a sweep, with rows sorted by `order`, or in the order of the axes.
pub fn sweep(header: &CasesHeader, cases: &[&Case], order: Option<&CaseOrder>) -> Page {
    let mut page = Page { command: "aorta sweep", name: header.name.clone(), ..Page::default() };
    page.lines("", heading(header, cases));
    let columns = CaseColumns::of(header, cases, order);
    page.sections.push(table(header, cases, order, &columns));
    page.lines("", reasons(cases));
    page.sections.extend(scaling::along(header, cases).iter().map(curve::section));
    let names = columns.names();
    let figures =
        |case: &Case| columns.rows(case).iter().map(|row| named_cells(&names, row)).collect::<Vec<_>>().join("; ");
    page.charts.extend(chart(cases));
    page.checks = cases.iter().map(|case| check(header, case, figures(case))).collect();
    page
}

/// The axes in words, such as `streams (3 values) × n (2 values)`.
pub fn axes(header: &CasesHeader) -> String {
    let axes = header.axes.iter().map(|axis| format!("{} ({})", axis.name, counted(axis.values.len(), "value")));
    axes.collect::<Vec<_>>().join(if header.zip { " with " } else { " × " })
}

fn heading(header: &CasesHeader, cases: &[&Case]) -> Vec<String> {
    let lengths = header.axes.iter().map(|axis| axis.values.len());
    let all = if header.zip { lengths.max().unwrap_or(0) } else { lengths.fold(1, usize::saturating_mul) };
    let present = if cases.len() < all { format!("{} of ", cases.len()) } else { String::new() };
    let count = counted(all.max(cases.len()), "case");
    let mut lines = vec![format!("{}: {present}{count} over {}", header.name, axes(header))];
    if let Some(record) = records(cases).next() {
        let devices: IndexSet<&str> = records(cases).map(|record| record.device.name.as_str()).collect();
        let devices: Vec<&str> = devices.into_iter().collect();
        let iterations = record.variants.first().map_or(0, |variant| variant.time.n);
        let no = if record.measurement { "" } else { ", no measurement" };
        lines.push(format!("{}, {}{no}", devices.join(", "), counted(iterations, "iteration")));
    }
    lines.push(tally(cases));
    lines
}

fn table(header: &CasesHeader, cases: &[&Case], order: Option<&CaseOrder>, columns: &CaseColumns) -> Section {
    let axes = header.axes.iter().map(|axis| axis.name.clone());
    let mut table = Table::new(axes.chain(columns.names()));
    let sorted = order.map_or_else(|| cases.to_vec(), |order| order.sorted(header, cases));
    for case in sorted.iter().take(ROWS) {
        let values = || header.axes.iter().map(|axis| case.values.get(&axis.name).cloned().unwrap_or_default());
        columns.rows(case).into_iter().for_each(|row| table.row(values().chain(row)));
    }
    let more = cases.len().saturating_sub(ROWS);
    let mut notes =
        Vec::from_iter((more > 0).then(|| format!("{more} more cases; --csv and the file of cases have all of them")));
    notes.extend((columns.hidden > 0).then(|| {
        format!("{}; --csv has all of them, and `--sort NAME` shows one here", counted(columns.hidden, "more metric"))
    }));
    if columns.pace == Pace::Host {
        notes.extend(mixed_gating(cases));
    }
    Section { table: Some(table), notes, ..Section::default() }
}

/// Explains that some cases were not gated, and which times are compared for this reason.
fn mixed_gating(cases: &[&Case]) -> Vec<String> {
    let measured = || cases.iter().filter_map(|case| Some((case, case.record.as_ref()?)));
    let variants = || measured().filter_map(|(case, record)| Some((case, record, record.variants.first()?)));
    let free = variants().filter(|(.., variant)| pace::gated(variant) == Some(false));
    let (asked, refused): (Vec<_>, Vec<_>) = free.partition(|(_, record, _)| record.settings.gate == "off");
    let all = counted(variants().count(), "case");
    let mut lines = Vec::new();
    if let Some((first, ..)) = refused.first() {
        let mut notes = refused.iter().flat_map(|(.., variant)| &variant.notes);
        let why = notes.find_map(|note| pace::why_not_gated(note));
        let why = why.map(|why| format!(" ({}: {why})", first.name)).unwrap_or_default();
        lines.push(format!("{} of {all} could not be held at the gate{why}.", refused.len()));
    }
    if !asked.is_empty() {
        lines.push(format!("{} of {all} ran without the gate (`--gate off`).", asked.len()));
    }
    lines.push(
        "At the gate a time is the device's; without it, it may be the host's. So rates, best values and knees compare \
         host-paced times, which every case has. Metrics are left out: they may be of either."
            .to_owned(),
    );
    lines
}
