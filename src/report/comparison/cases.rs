//! Tables of the cases of a sweep or a suite: a row for each, counts by status, and reasons.

use indexmap::{IndexMap, IndexSet};

use crate::base::{Nanos, counted};
use crate::measure::cases::{Case, CasesHeader, Status};
use crate::measure::order::CaseOrder;
use crate::measure::pace::{self, Pace};
use crate::measure::record::{RunRecord, Times, Variant};
use crate::measure::scaling::{self, CurvePoint, RateUnit};
use crate::report::page::{ABSENT, BarChart, Check, Outcome, cell};
use crate::report::variant::{launched, marks};

use super::curve::rate_text;

/// Maximum number of metric columns.
const MAX_METRICS: usize = 6;

/// The records of the cases that were measured.
pub fn records<'a>(cases: &[&'a Case]) -> impl Iterator<Item = &'a RunRecord> {
    cases.iter().filter_map(|case| case.record.as_deref())
}

/// Counts the cases by status, such as `3 done, 1 failed`.
pub fn tally(cases: &[&Case]) -> String {
    let count = |status: &Status| cases.iter().filter(|case| case.status == *status).count();
    let counts = Status::ALL.iter().map(|status| (count(status), status.name())).filter(|(count, _)| *count > 0);
    counts.map(|(count, word)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
}

/// The worst of several statuses; `None` if there are none.
pub fn worst(statuses: impl Iterator<Item = Status>) -> Option<Status> {
    statuses.max_by_key(|&status| status as usize)
}

/// Reason why cases have another status than done. Cases with the same reason share a line.
pub fn reasons(cases: &[&Case]) -> Vec<String> {
    let mut by_reason: IndexMap<(Status, &str), Vec<&str>> = IndexMap::new();
    for case in cases {
        if let Some(reason) = &case.reason {
            by_reason.entry((case.status, reason)).or_default().push(&case.name);
        }
    }
    let line = |((status, reason), names): ((Status, &str), Vec<&str>)| {
        let others = match names.len() {
            1 => String::new(),
            more => format!(" and {}", counted(more - 1, "other")),
        };
        format!("{}: {}{others}: {reason}", status.name(), names[0])
    };
    by_reason.into_iter().map(line).collect()
}

/// Returns the outcome of a case as a check of a page.
pub fn check(header: &CasesHeader, case: &Case, figures: String) -> Check {
    let outcome = match case.status {
        Status::Done | Status::Unstable => Outcome::Passed,
        Status::NotHeld => Outcome::Failed,
        Status::Failed | Status::OutOfMemory => Outcome::Error,
        Status::Skipped | Status::Missing => Outcome::Skipped,
    };
    Check {
        class: header.name.clone(),
        name: case.name.clone(),
        outcome,
        kind: case.status.name(),
        why: case.reason.clone().unwrap_or_default(),
        place: None,
        figures,
        seconds: Some(case.seconds),
    }
}

/// Each variant of the measured cases, with the ending of its name: `, as a graph` if the case has several.
pub(in crate::report) fn variants<'a>(
    cases: &[&'a Case],
) -> impl Iterator<Item = (&'a Case, String, &'a RunRecord, &'a Variant)> {
    let measured = cases.iter().filter_map(|case| Some((*case, case.record.as_deref()?)));
    measured.flat_map(|(case, record)| {
        let several = record.variants.len() > 1;
        record.variants.iter().map(move |variant| {
            let launch = if several { format!(", {}", launched(&variant.launch)) } else { String::new() };
            (case, launch, record, variant)
        })
    })
}

/// The medians of the cases as bars, in the unit of the longest; `None` if no case has one.
pub fn chart(cases: &[&Case]) -> Option<BarChart> {
    let pace = scaling::pace(cases);
    let median = |(case, launch, _, variant): (&Case, String, _, &Variant)| {
        Some((format!("{}{launch}", case.name), pace.times(variant).p50_ns?))
    };
    let medians: Vec<(String, Nanos)> = variants(cases).filter_map(median).collect();
    let most = medians.iter().map(|(_, median)| *median).max()?;
    let (axis, unit) = TIME_UNITS.into_iter().find(|(_, unit)| most.0 as f64 >= *unit).unwrap_or(("ns", 1.0));
    let mark = records(cases).map(marks).find(|mark| !mark.is_empty()).unwrap_or("");
    Some(BarChart {
        title: format!("Median time of an iteration in {axis}{mark}"),
        axis: axis.to_owned(),
        bars: medians.into_iter().map(|(name, median)| (name, median.0 as f64 / unit)).collect(),
        reference: None,
    })
}

/// Units of time with their nanoseconds, the largest first.
const TIME_UNITS: [(&str, f64); 3] = [("s", 1e9), ("ms", 1e6), ("µs", 1e3)];

/// The columns of a table of cases besides the axes.
pub struct CaseColumns<'a> {
    unit: RateUnit,
    pub pace: Pace,
    launch: bool,
    intervals: bool,
    /// Names of metrics.
    metrics: Vec<&'a str>,
    /// Number of metrics that are left out.
    pub hidden: usize,
    /// Mark after every time: `simulated` or `emulated`; empty for measured times.
    mark: &'static str,
}

impl<'a> CaseColumns<'a> {
    /// Chooses the columns that have values. The metric by which the cases are sorted is among them.
    pub fn of(header: &CasesHeader, cases: &[&'a Case], order: Option<&CaseOrder>) -> CaseColumns<'a> {
        let variants = || records(cases).flat_map(|record| &record.variants);
        let pace = scaling::pace(cases);
        // Metrics come from gated iterations if possible, so they cannot be compared between gated and ungated cases.
        let alike = pace == Pace::Headline;
        let names = variants().filter(|_| alike).flat_map(|variant| &variant.metrics);
        let names: IndexSet<&str> = names.map(|metric| metric.name.as_str()).collect();
        let sorted_by = order.filter(|order| order.is_metric(header)).map(CaseOrder::name);
        let (by, others): (Vec<&str>, Vec<&str>) = names.into_iter().partition(|name| sorted_by == Some(*name));
        CaseColumns {
            unit: scaling::unit(cases),
            pace,
            launch: records(cases).any(|record| record.variants.len() > 1),
            intervals: variants().any(|variant| interval(pace.times(variant)).is_some()),
            hidden: (by.len() + others.len()).saturating_sub(MAX_METRICS),
            metrics: by.into_iter().chain(others).take(MAX_METRICS).collect(),
            mark: records(cases).map(marks).find(|mark| !mark.is_empty()).unwrap_or(""),
        }
    }

    /// Names of the columns.
    pub fn names(&self) -> Vec<String> {
        let marked = |name: &str| match self.mark.trim_start_matches(", ") {
            "" => name.to_owned(),
            mark => format!("{name} ({mark})"),
        };
        let mut names: Vec<String> = Vec::from_iter(self.launch.then(|| "launch".to_owned()));
        match self.pace {
            Pace::Headline => names.push(marked("median")),
            Pace::Host => names.extend([marked("median at the gate"), marked("median host-paced")]),
        }
        names.extend(self.intervals.then(|| "95 % interval".to_owned()));
        names.push(self.unit.per_second().to_owned());
        names.extend(self.metrics.iter().map(|name| (*name).to_owned()));
        names.push("status".to_owned());
        names
    }

    /// Returns a row for each launch mode of the case, without its values on the axes.
    pub fn rows(&self, case: &Case) -> Vec<Vec<String>> {
        match &case.record {
            Some(record) => record.variants.iter().map(|variant| self.row(case, record, variant)).collect(),
            None => {
                let mut row = vec![ABSENT.to_owned(); self.names().len() - 1];
                row.push(case.status.name().to_owned());
                vec![row]
            }
        }
    }

    fn row(&self, case: &Case, record: &RunRecord, variant: &Variant) -> Vec<String> {
        let times = self.pace.times(variant);
        let seconds = scaling::seconds(times, record.simulated);
        let point = CurvePoint::of(case, "", self.pace).zip(seconds);
        let rate = point.map(|(point, time)| CurvePoint { time, ..point }.rate(self.unit).value);
        let mut row: Vec<String> = Vec::from_iter(self.launch.then(|| variant.launch.clone()));
        if self.pace == Pace::Host {
            let host_paced = pace::gated(variant) != Some(false);
            row.push(cell(variant.time.p50_ns.filter(|_| host_paced)));
        }
        row.push(cell(times.p50_ns));
        row.extend(self.intervals.then(|| cell(interval(times))));
        row.push(cell(rate.map(|rate| rate_text(self.unit, rate))));
        let metric = |name: &str| variant.metrics.iter().find(|metric| metric.name == name);
        row.extend(self.metrics.iter().map(|name| cell(metric(name).map(|metric| &metric.text))));
        row.push(case.status.name().to_owned());
        row
    }
}

/// The confidence interval of the median; `None` if all samples are equal, as on the simulator.
fn interval(times: &Times) -> Option<String> {
    let (low, high) = (times.p50_low_ns?.to_string(), times.p50_high_ns?.to_string());
    (low != high).then(|| format!("{low} to {high}"))
}
