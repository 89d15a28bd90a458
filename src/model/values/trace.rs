//! `trace`: the values of a draw are a column of a CSV file, in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::random::hash;
use crate::base::{SrcSpan, suggest};
use crate::syntax::ast::{Expr, ExprKind, Setting};

use super::drawn::Distribution;
use super::draws::DrawCall;
use crate::model::analyzer::Analyzer;
use crate::model::error::TraceError;

/// Columns of files, by the path and the name of the column as written.
pub type Traces = BTreeMap<(String, String), Result<Arc<[i64]>, TraceFault>>;

/// The reason why a column cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceFault {
    /// The file cannot be read.
    File(String),
    /// The first line lacks the column. Holds the columns that it names.
    Column(Vec<String>),
    /// The first line names the column more than once.
    Ambiguous,
    /// A cell is not a whole number. Holds the number of its line, from 1, and its text.
    Cell(usize, String),
    /// A line has more cells than the first one names columns. Holds its number, from 1.
    TooManyCells(usize),
    /// No line follows the first one.
    Empty,
}

/// The literal path and column of `trace(path, column: …)`; `None` if one is missing or computed.
pub fn source<'a>(args: &'a [Expr], column: Option<&'a Expr>) -> Option<(&'a str, &'a str)> {
    match (args, &column?.kind) {
        ([Expr { kind: ExprKind::Text(path), .. }], ExprKind::Text(column)) => Some((path, column)),
        _ => None,
    }
}

/// Reads a column of whole numbers from a CSV text (RFC 4180) whose first line names the columns. Ignores blanks around
/// a cell and empty lines.
///
/// # Errors
///
/// Fails if the text has no such column, several or no row, if a row has more cells than there are columns, or if a cell is
/// not a whole number.
pub fn column(text: &str, name: &str) -> Result<Arc<[i64]>, TraceFault> {
    let mut rows = rows(text.strip_prefix('\u{feff}').unwrap_or(text));
    let (_, names) = rows.next().unwrap_or_default();
    let Some(index) = names.iter().position(|known| known == name) else {
        return Err(TraceFault::Column(names));
    };
    if names[index + 1..].iter().any(|other| other == name) {
        return Err(TraceFault::Ambiguous);
    }
    let value = |(line, mut cells): (usize, Vec<String>)| {
        if cells.iter().skip(names.len()).any(|cell| !cell.is_empty()) {
            return Err(TraceFault::TooManyCells(line));
        }
        let cell = if index < cells.len() { cells.swap_remove(index) } else { String::new() };
        cell.parse().map_err(|_| TraceFault::Cell(line, cell))
    };
    let values: Arc<[i64]> = rows.map(value).collect::<Result<_, _>>()?;
    if values.is_empty() { Err(TraceFault::Empty) } else { Ok(values) }
}

/// Returns the rows of a CSV text, each with the number of the line on which it begins, counted from 1. A quoted cell
/// may contain commas and line feeds; two quotes in it stand for one.
fn rows(text: &str) -> impl Iterator<Item = (usize, Vec<String>)> {
    let (mut rest, mut line) = (text, 1);
    std::iter::from_fn(move || {
        loop {
            if rest.is_empty() {
                return None;
            }
            let (first, mut cells, mut cell, mut quoted) = (line, Vec::new(), String::new(), false);
            let mut end = rest.len();
            let mut chars = rest.char_indices().peekable();
            while let Some((at, c)) = chars.next() {
                match c {
                    '"' if quoted && chars.next_if(|(_, next)| *next == '"').is_some() => cell.push('"'),
                    '"' => quoted = !quoted,
                    ',' if !quoted => cells.push(std::mem::take(&mut cell).trim().to_owned()),
                    '\n' if !quoted => {
                        end = at + 1;
                        break;
                    }
                    c => cell.push(c),
                }
            }
            line += rest[..end].matches('\n').count();
            rest = &rest[end..];
            cells.push(cell.trim().to_owned());
            if cells.iter().any(|cell| !cell.is_empty()) {
                return Some((first, cells));
            }
        }
    })
}

impl Analyzer<'_> {
    /// Analyzes `trace(path, column: …, seed: …)`. `None` after an error, which has been reported.
    pub(in crate::model) fn trace(&mut self, call: &DrawCall) -> Option<Distribution> {
        let option = |wanted: &str| call.options.iter().find(|option| self.names.name(option.key.symbol) == wanted);
        let (column, seed) = (option("column"), option("seed"));
        let known = |option: &Setting| matches!(self.names.name(option.key.symbol), "column" | "seed");
        // Another option is reported already, and may be a misspelt one of these.
        if !call.options.iter().all(known) {
            return None;
        }
        let path_span = call.args.first().map_or(call.span, |path| path.span);
        let Some((path, name)) = source(call.args, column.map(|option| &option.value)) else {
            return self.fail(TraceError::Source { at: call.span.into() });
        };
        let column_span = column.map_or(call.span, |option| option.value.span);
        let values = match self.options.traces.get(&(path.to_owned(), name.to_owned())) {
            Some(Ok(values)) => values.clone(),
            Some(Err(fault)) => {
                return self.fail(fault.clone().at(path, path_span, name, column_span));
            }
            None => {
                let fault = TraceFault::File("the caller gives no files".to_owned());
                return self.fail(fault.at(path, path_span, name, column_span));
            }
        };
        let start = match seed {
            Some(seed) => hash(1, self.eval_whole(&seed.value)? as u64) % values.len() as u64,
            None => 0,
        };
        Some(Distribution::Trace(start, values))
    }
}

impl TraceFault {
    fn at(self, path: &str, path_at: SrcSpan, column: &str, column_at: SrcSpan) -> TraceError {
        let (path, column) = (path.to_owned(), column.to_owned());
        match self {
            TraceFault::File(why) => TraceError::File { path, why, at: path_at.into() },
            TraceFault::Empty => TraceError::File {
                path,
                why: "it has no row below the names of its columns".to_owned(),
                at: path_at.into(),
            },
            TraceFault::TooManyCells(line) => TraceError::TooManyCells { path, line, at: path_at.into() },
            TraceFault::Column(known) => {
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                let help = match known.as_slice() {
                    [line] if line.split([';', '\t']).any(|name| name.trim() == column) => {
                        "the columns of a trace are separated by commas".to_owned()
                    }
                    _ => suggest::did_you_mean(&column, known.iter().copied())
                        .unwrap_or_else(|| format!("the first line of the file names {}", suggest::listed(&known))),
                };
                TraceError::Column { path, column, help, at: column_at.into() }
            }
            TraceFault::Ambiguous => TraceError::Ambiguous { path, column, at: column_at.into() },
            TraceFault::Cell(line, cell) => {
                let digits = cell.trim_start_matches(['-', '+']);
                let is_large = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
                TraceError::Cell { path, column, line, cell, is_large, at: column_at.into() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_csv() {
        let text = "\u{feff}time, \"prompt\" ,\"a \"\"b\"\", c\"\r\n1,5,-7\r\n\r\n\"x\ny, z\", 6 ,\"8\"\n\"\",7,9";
        assert_eq!(column(text, "prompt").as_deref(), Ok(&[5, 6, 7][..]));
        assert_eq!(column(text, "a \"b\", c").as_deref(), Ok(&[-7, 8, 9][..]));
        assert_eq!(column(text, "time"), Err(TraceFault::Cell(4, "x\ny, z".to_owned())));
        assert_eq!(column("a,b\n1,2\n3\n", "b"), Err(TraceFault::Cell(3, String::new())));
        assert_eq!(column("a,b\n1,2.5\n", "b"), Err(TraceFault::Cell(2, "2.5".to_owned())));
        let names = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(column("a,b\n1,2\n", "c"), Err(TraceFault::Column(names)));
        assert_eq!(column("a,b,a\n1,2,3\n", "a"), Err(TraceFault::Ambiguous));
        assert_eq!(column("a,b,a\n1,2,3\n", "b").as_deref(), Ok(&[2][..]));
        assert_eq!(column("a,b\n1,2,\n1,024,7\n", "a"), Err(TraceFault::TooManyCells(3)));
        assert_eq!(column("a\n\n", "a"), Err(TraceFault::Empty));
        assert_eq!(column("", "a"), Err(TraceFault::Column(Vec::new())));
    }
}
