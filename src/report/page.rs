//! A report as data: sections of lines and tables, and checks that passed or failed. Each output form is made from it.

mod github;
mod job_summary;
mod junit;
mod latex;
mod markdown;
pub(super) mod mermaid;
mod text;
mod xml;

pub use github::github;
pub use job_summary::job_summary;
pub use junit::junit;
pub use latex::latex;
pub use markdown::markdown;
pub use text::{text, text_within, wrapped};
pub use xml::escaped;

use serde::Serialize;

/// Text of a table cell without a value.
pub const ABSENT: &str = "–";

/// A report.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The command, for programs: `aorta suite`.
    pub command: &'static str,
    /// The subject, for programs: a suite, or two sides of a comparison.
    pub name: String,
    pub sections: Vec<Section>,
    /// The result in a line; may be empty.
    pub summary: String,
    /// Warnings about the summary.
    pub warnings: Vec<String>,
    pub checks: Vec<Check>,
    /// Bar charts of the most important figures, for forms that can draw.
    pub charts: Vec<BarChart>,
}

/// A part of a page: a title, lines, a table and notes, each optional.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Section {
    pub title: String,
    pub lines: Vec<String>,
    pub table: Option<Table>,
    /// Lines below the table.
    pub notes: Vec<String>,
}

/// Column names and rows of text.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Column {
    pub name: String,
    /// True if the column is aligned left, as words are; numbers are aligned right.
    pub left: bool,
}

/// A bar chart whose values begin at 0.
#[derive(Clone, Debug)]
pub struct BarChart {
    /// The figures in words, with a mark such as `simulated`.
    pub title: String,
    /// The unit of the values, or their meaning.
    pub axis: String,
    /// Name and value of each bar.
    pub bars: Vec<(String, f64)>,
    /// A value that bars are compared with, drawn as a line; `None` for no line.
    pub reference: Option<f64>,
}

/// A result that programs evaluate: a case, or a metric of a case.
#[derive(Clone, Debug)]
pub struct Check {
    pub class: String,
    pub name: String,
    pub outcome: Outcome,
    /// The result in a word, such as `worse` or `out of memory`.
    pub kind: &'static str,
    /// The reason why the check did not pass; empty if it passed.
    pub why: String,
    /// The source location that the check is about, as `FILE:LINE:COLUMN`; `None` if there is none.
    pub place: Option<String>,
    /// The figures of the result in one line.
    pub figures: String,
    /// The duration of the check's run; `None` if it is not known.
    pub seconds: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    Failed,
    /// The run ended before a result could be judged.
    Error,
    /// No verdict is possible.
    Skipped,
}

impl Page {
    /// Adds a section of lines, unless there are none.
    pub fn lines(&mut self, title: &str, lines: impl IntoIterator<Item = String>) {
        let lines: Vec<String> = lines.into_iter().collect();
        if !lines.is_empty() {
            self.sections.push(Section { title: title.to_owned(), lines, ..Section::default() });
        }
    }

    /// Returns the text outside of tables: sections with their titles, the summary, and the warnings.
    fn all_text(&self) -> impl Iterator<Item = String> {
        let lines_of = |section: &Section| -> Vec<String> {
            let title = if section.title.is_empty() { String::new() } else { format!("{}: ", section.title) };
            section.lines.iter().chain(&section.notes).map(|line| format!("{title}{line}")).collect()
        };
        let summary = Some(self.summary.clone()).filter(|summary| !summary.is_empty());
        self.sections.iter().flat_map(lines_of).chain(summary).chain(self.warning_lines())
    }

    /// The warnings as lines.
    fn warning_lines(&self) -> impl Iterator<Item = String> {
        self.warnings.iter().map(|warning| format!("warning: {warning}"))
    }
}

impl Table {
    /// Creates a table without rows. Its first column is aligned left.
    pub fn new<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Table {
        let column = |(index, name): (usize, S)| Column { name: name.into(), left: index == 0 };
        Table { columns: names.into_iter().enumerate().map(column).collect(), rows: Vec::new() }
    }

    /// Aligns another column left.
    pub fn left(mut self, index: usize) -> Table {
        self.columns[index].left = true;
        self
    }

    /// Appends a row with one cell for each column.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

/// The text of a value, or [`ABSENT`].
pub fn cell<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| ABSENT.to_owned(), |value| value.to_string())
}

/// The cells of a row that have a value, each after the name of its column.
pub fn named_cells<S: AsRef<str>>(names: &[S], row: &[String]) -> String {
    let cells = names.iter().zip(row).filter(|(_, cell)| *cell != ABSENT);
    cells.map(|(name, cell)| format!("{} {cell}", name.as_ref())).collect::<Vec<_>>().join(", ")
}
