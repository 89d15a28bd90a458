//! The table that a suite declares: its cells from the cases, for the page and as CSV.

use indexmap::IndexMap;

use crate::base::units;
use crate::config::{SuiteTable, TableCell, TableColumn};
use crate::measure::cases::{Case, Status};
use crate::measure::record::{RunRecord, Times};
use crate::report::page::{Table, cell};
use crate::report::tables::csv;

use super::cases::worst;

#[derive(Clone, Debug, PartialEq)]
enum CellValue {
    Text(String),
    /// A number, and its unit if it has one.
    Number(f64, Option<String>),
    Ratio(f64),
}

impl CellValue {
    fn number(&self) -> Option<f64> {
        match self {
            CellValue::Number(number, _) => Some(*number),
            CellValue::Text(_) | CellValue::Ratio(_) => None,
        }
    }

    /// Text for people: four digits and the unit.
    fn text(&self) -> String {
        match self {
            CellValue::Text(text) => text.clone(),
            CellValue::Number(number, None) => units::plain(*number),
            CellValue::Number(number, Some(unit)) => format!("{} {unit}", units::plain(*number)),
            CellValue::Ratio(ratio) => format!("{ratio:.2}×"),
        }
    }

    /// Text for programs: all digits that a time has, and no unit.
    fn exact(&self) -> String {
        match self {
            CellValue::Text(text) => text.clone(),
            // Twelve digits hide rounding errors of unit conversions.
            CellValue::Number(number, _) | CellValue::Ratio(number) => {
                format!("{number:.11e}").parse::<f64>().unwrap_or(*number).to_string()
            }
        }
    }
}

/// Returns the table for a page. A column is aligned as numbers if its cells are numbers.
pub fn table(declared: &SuiteTable, cases: &[&Case]) -> Table {
    let names = declared.columns.iter().map(|column| column.0.as_str());
    let is_text = |cell: &TableCell| matches!(cell, TableCell::Axis(_) | TableCell::Status(_));
    let words = (0..).zip(&declared.columns).filter(|(_, column)| is_text(&column.1)).map(|(index, _)| index);
    let mut table = words.fold(Table::new(names), Table::left);
    for row in rows(declared, cases) {
        table.row(row.iter().map(|value| cell(value.as_ref().map(CellValue::text))));
    }
    table
}

/// The table as CSV with the declared names as header. A missing value is an empty cell.
pub fn table_csv(declared: &SuiteTable, cases: &[&Case]) -> String {
    let names: Vec<&str> = declared.columns.iter().map(|column| column.0.as_str()).collect();
    let rows: Vec<Vec<String>> = rows(declared, cases)
        .iter()
        .map(|row| row.iter().map(|value| value.as_ref().map(CellValue::exact).unwrap_or_default()).collect())
        .collect();
    csv::written(&names, rows.iter().map(|row| row.iter().map(String::as_str).collect()))
}

/// The cells of each row, in the order of the cases; `None` for a cell without a value.
fn rows(declared: &SuiteTable, cases: &[&Case]) -> Vec<Vec<Option<CellValue>>> {
    let mut rows: IndexMap<Vec<&str>, Vec<&Case>> = IndexMap::new();
    for case in cases {
        let place: Option<Vec<&str>> =
            declared.rows.iter().map(|axis| case.values.get(axis).map(String::as_str)).collect();
        rows.entry(place.unwrap_or_default()).or_default().push(case);
    }
    rows.retain(|place, _| place.len() == declared.rows.len());
    rows.values().map(|cases| row(declared, cases)).collect()
}

fn row(declared: &SuiteTable, cases: &[&Case]) -> Vec<Option<CellValue>> {
    let mut cells: IndexMap<&str, Option<CellValue>> = IndexMap::new();
    for TableColumn(name, column) in &declared.columns {
        let value = match column {
            TableCell::Axis(axis) => cases.first().and_then(|case| case.values.get(axis)).cloned().map(CellValue::Text),
            TableCell::Figure { of, unit, factor, at } => {
                let is_at = |case: &&&Case| at.iter().all(|(axis, value)| case.values.get(axis) == Some(value));
                let records = cases.iter().filter(is_at).filter_map(|case| case.record.as_deref());
                let si = unit.as_deref().and_then(units::unit).map_or(1.0, |unit| unit.factor * unit.dimension.to_si());
                let value = records.into_iter().find_map(|record| figure(record, of));
                value.map(|value| CellValue::Number(value / si * factor, unit.clone()))
            }
            TableCell::Ratio(of, to) => {
                let number = |name: &String| cells.get(name.as_str())?.as_ref()?.number();
                number(of)
                    .zip(number(to))
                    .map(|(of, to)| of / to)
                    .filter(|ratio| ratio.is_finite())
                    .map(CellValue::Ratio)
            }
            TableCell::Status(words) => {
                let status = worst(cases.iter().map(|case| case.status)).map(Status::name);
                status.map(|word| CellValue::Text(words.get(word).cloned().unwrap_or_else(|| word.to_owned())))
            }
        };
        cells.insert(name, value);
    }
    cells.into_values().collect()
}

/// A metric, or a statistic of the time of an iteration, in SI units, from the last variant that has it; `None` if
/// none has.
fn figure(record: &RunRecord, name: &str) -> Option<f64> {
    let variants = || record.variants.iter().rev();
    match name.strip_prefix("time") {
        Some("") => variants().find_map(|variant| statistic(&variant.time, "p50")),
        Some(rest) if rest.starts_with('.') => {
            variants().find_map(|variant| statistic(&variant.time, rest.trim_start_matches('.')))
        }
        _ => variants().find_map(|variant| variant.metrics.iter().find(|metric| metric.name == name)?.value),
    }
}

/// A statistic by its name in the language, in seconds; `None` if it is unknown or has no value.
fn statistic(times: &Times, name: &str) -> Option<f64> {
    let named = |(field, value): (&str, _)| (field.strip_suffix("_ns") == Some(name)).then_some(value);
    times.statistics().into_iter().find_map(named).flatten().map(|time| time.seconds())
}
