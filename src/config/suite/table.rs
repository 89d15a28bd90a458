//! Tables that a suite declares: rows by the values of axes, columns by the metrics of the cases.

use std::collections::BTreeMap;

use indexmap::{IndexMap, IndexSet};
use serde::{Deserialize, Serialize};

use crate::base::{suggest, units};

/// A table of the cases of a suite. Cases with equal values on the axes of its rows share a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuiteTable {
    /// Axes whose values make a row. Cases without one of them are not in the table.
    pub rows: Vec<String>,
    pub columns: Vec<TableColumn>,
}

/// Name of a column, and the source of its cells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableColumn(pub String, pub TableCell);

/// Source of a column's cells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TableCell {
    /// The row's value on an axis.
    Axis(String),
    /// A metric of a case of the row, or a statistic of its iterations, such as `time` or `time.mean`.
    Figure {
        of: String,
        /// The unit of the cell; `None` for SI units.
        unit: Option<String>,
        /// Factor that the figure is multiplied by before it is shown.
        #[serde(default = "one")]
        factor: f64,
        /// Values on further axes that choose the case. The first case of the row that has the figure counts.
        #[serde(default)]
        at: BTreeMap<String, String>,
    },
    /// The cell of one column divided by that of another. Both columns precede this one.
    Ratio(String, String),
    /// The row's status: that of its worst case, by the words for each status. A status without one is its own word.
    Status(IndexMap<String, String>),
}

fn one() -> f64 {
    1.0
}

/// A wrong field of a table, and how to mend it.
pub(super) struct TableMistake {
    pub place: String,
    pub value: String,
    pub why: String,
    pub help: String,
}

impl TableMistake {
    fn new(place: &str, value: &str, why: &str, help: String) -> TableMistake {
        TableMistake { place: place.to_owned(), value: format!("{value:?}"), why: why.to_owned(), help }
    }
}

impl SuiteTable {
    /// Fails if the table names an axis, a value, a column or a unit that does not exist. `cases` has the values of each
    /// case on its axes.
    pub(super) fn check(&self, cases: &[IndexMap<String, String>]) -> Result<(), TableMistake> {
        let axes: IndexSet<&str> = cases.iter().flat_map(IndexMap::keys).map(String::as_str).collect();
        let has_no = "no case has such an axis";
        let example = "write `axes: [(name: \"n\", param: \"n\", values: [\"1\", \"2\"])]` in a case";
        if let Some(name) = self.rows.iter().find(|name| !axes.contains(name.as_str())) {
            return Err(TableMistake::new("rows", name, has_no, near(name, &axes, example)));
        }
        let mut before = IndexSet::new();
        for TableColumn(name, cell) in &self.columns {
            let place = format!("column {name:?}");
            if name.is_empty() || before.contains(name.as_str()) {
                let help = "choose another name".to_owned();
                return Err(TableMistake::new(&place, name, "each column has a name of its own", help));
            }
            match cell {
                TableCell::Axis(name) if !self.rows.contains(name) => {
                    let rows = self.rows.iter().map(String::as_str).collect();
                    let help = near(name, &rows, "add it to `rows`");
                    return Err(TableMistake::new(&place, name, "the rows have no such axis", help));
                }
                TableCell::Axis(_) | TableCell::Status(_) => {}
                TableCell::Figure { unit, factor, at, .. } => {
                    check_number(&place, unit.as_deref(), *factor)?;
                    at.iter().try_for_each(|(axis, value)| check_place(&place, axis, value, cases))?;
                }
                TableCell::Ratio(of, to) => {
                    if let Some(name) = [of, to].into_iter().find(|name| !before.contains(name.as_str())) {
                        let help = near(name, &before, "a ratio is of two columns that stand before it");
                        return Err(TableMistake::new(&place, name, "no column before this one is called so", help));
                    }
                }
            }
            before.insert(name.as_str());
        }
        if before.is_empty() {
            let help = "write `columns: [(\"n\", axis(\"n\"))]`".to_owned();
            return Err(TableMistake::new("columns", "", "a table has one column at least", help));
        }
        Ok(())
    }
}

/// Fails if there is no such unit, or if the factor is no number.
fn check_number(place: &str, unit: Option<&str>, factor: f64) -> Result<(), TableMistake> {
    if let Some(name) = unit.filter(|name| units::unit(name).is_none()) {
        let help = near(name, &units::UNITS.iter().map(|unit| unit.name).collect(), "write a unit such as \"ms\"");
        return Err(TableMistake::new(place, name, "there is no such unit", help));
    }
    match factor.is_finite() {
        true => Ok(()),
        false => {
            let help = "leave it out".to_owned();
            Err(TableMistake::new(place, &factor.to_string(), "a factor is a finite number", help))
        }
    }
}

/// Fails if no case has that value on that axis.
fn check_place(place: &str, axis: &str, value: &str, cases: &[IndexMap<String, String>]) -> Result<(), TableMistake> {
    let values: IndexSet<&str> = cases.iter().filter_map(|values| values.get(axis)).map(String::as_str).collect();
    if values.is_empty() {
        let axes = cases.iter().flat_map(IndexMap::keys).map(String::as_str).collect();
        let help = near(axis, &axes, "a case lists its `axes`");
        return Err(TableMistake::new(place, axis, "no case has such an axis", help));
    }
    if !values.contains(value) {
        let help = near(value, &values, &format!("the axis `{axis}` lists its values"));
        return Err(TableMistake::new(place, value, &format!("no case has that value of `{axis}`"), help));
    }
    Ok(())
}

/// The known name that was probably meant, or else `other`.
fn near(name: &str, known: &IndexSet<&str>, other: &str) -> String {
    suggest::did_you_mean(name, known.iter().copied()).unwrap_or_else(|| other.to_owned())
}
