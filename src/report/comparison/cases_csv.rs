//! Cases as CSV for pandas and spreadsheets: one row for each case and variant.

use indexmap::IndexMap;

use crate::measure::cases::{Case, CasesHeader};
use crate::measure::record::{MetricRecord, RunRecord, Variant};
use crate::report::tables::csv;

use super::suite_table;

/// The cases as CSV with a header: the suite's own table if it declares one. Otherwise, a case without results has one
/// row. The columns of the axes come first. A column's name contains its unit, and a missing value is an empty cell.
pub fn cases_csv(header: &CasesHeader, cases: &[&Case]) -> String {
    if let Some(declared) = header.csv.as_ref() {
        return suite_table::table_csv(declared, cases);
    }
    let rows: Vec<IndexMap<String, String>> = cases.iter().flat_map(|case| rows(header, case)).collect();
    csv::united(&rows)
}

fn rows(header: &CasesHeader, case: &Case) -> Vec<IndexMap<String, String>> {
    let mut first = IndexMap::from([("case".to_owned(), case.name.clone())]);
    for axis in &header.axes {
        first.insert(axis.name.clone(), case.values.get(&axis.name).cloned().unwrap_or_default());
    }
    let fixed_columns = [
        ("status", case.status.name().to_owned()),
        ("reason", case.reason.clone().unwrap_or_default()),
        ("seconds", case.seconds.to_string()),
    ];
    first.extend(fixed_columns.map(|(name, value)| (name.to_owned(), value)));
    let Some(record) = &case.record else { return vec![first] };
    let with = |variant| {
        let mut row = first.clone();
        for (name, value) in figures(record, variant) {
            // An axis keeps its column. The exception is `launch`, where the variant's own value counts.
            if name == "launch" || !row.contains_key(&name) {
                row.insert(name, value);
            }
        }
        row
    };
    record.variants.iter().map(with).collect()
}

/// The columns of a run's own CSV with metrics named by their units, and without parameters that are axes.
fn figures(record: &RunRecord, variant: &Variant) -> Vec<(String, String)> {
    let unit = |name: &str| {
        let is_wanted = |metric: &&MetricRecord| {
            name.strip_prefix(&metric.name).is_some_and(|rest| rest.is_empty() || rest.starts_with(".slot["))
        };
        variant.metrics.iter().find(is_wanted).map(|metric| metric.unit.as_str())
    };
    let named = |(name, value): (String, String)| {
        let unit = name.strip_prefix("metric.").and_then(unit).filter(|unit| !unit.is_empty());
        (unit.map_or_else(|| name.clone(), |unit| format!("{name} ({unit})")), value)
    };
    csv::row(record, variant).into_iter().map(named).collect()
}
