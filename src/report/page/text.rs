//! A page for the terminal.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement};

use super::{ABSENT, Page, Table};

/// Number of spaces between two columns.
const SPACE: usize = 2;

/// Minimum width in characters of a column of words; longer cells are broken into lines.
const WORDS: usize = 14;

/// Returns the sections separated by empty lines, then the summary and warnings.
pub fn text(pages: &[Page]) -> String {
    text_within(pages, None)
}

/// Returns the page as [`text`] does, in lines of at most `width` characters. A table that is wider breaks lines in its
/// columns of words, or becomes a list with a line for each cell.
pub fn text_within(pages: &[Page], width: Option<usize>) -> String {
    pages.iter().map(|page| page_text(page, width)).collect::<Vec<_>>().join("\n")
}

fn page_text(page: &Page, width: Option<usize>) -> String {
    let mut out = String::new();
    for section in &page.sections {
        let title = Some(&section.title).filter(|title| !title.is_empty());
        write(title.into_iter().chain(&section.lines), width, &mut out);
        match &section.table {
            Some(table) => write_table(table, width, &mut out),
            None => out.push('\n'),
        }
        if !section.notes.is_empty() {
            write(&section.notes, width, &mut out);
            out.push('\n');
        }
    }
    let result = Some(&page.summary).filter(|summary| !summary.is_empty()).cloned();
    write(&result.into_iter().chain(page.warning_lines()).collect::<Vec<_>>(), width, &mut out);
    out.trim_end().to_owned() + "\n"
}

fn write<'a>(lines: impl IntoIterator<Item = &'a String>, width: Option<usize>, out: &mut String) {
    for line in lines {
        for part in wrapped(line, width.unwrap_or(usize::MAX)) {
            out.extend([part.as_str(), "\n"]);
        }
    }
}

/// Breaks a text into lines of at most `width` characters, unless a word is longer. All lines are indented like the text.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    if text.chars().count() <= width {
        return vec![text.to_owned()];
    }
    let words = text.trim_start_matches(' ');
    let indent = &text[..text.len() - words.len()];
    let mut lines = vec![indent.to_owned()];
    for word in words.split(' ') {
        let line = lines.last_mut().expect("there is one from the beginning");
        let is_first = line.len() == indent.len();
        if !is_first && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(format!("{indent}{word}"));
        } else {
            let space = if is_first { "" } else { " " };
            *line += &format!("{space}{word}");
        }
    }
    lines
}

fn write_table(table: &Table, width: Option<usize>, out: &mut String) {
    let mut text = comfy_table::Table::new();
    text.load_style(NOTHING).set_header(table.columns.iter().map(|column| &column.name)).add_rows(&table.rows);
    for (column, of) in text.column_iter_mut().zip(&table.columns) {
        column.set_padding((0, SPACE as u16));
        column.set_cell_alignment(if of.left { CellAlignment::Left } else { CellAlignment::Right });
    }
    let widths = text.column_max_content_widths();
    match width.map(|width| fit(table, &widths, width)) {
        None | Some(Fit::Whole) => {}
        Some(Fit::Broken(width)) => {
            text.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
            for (column, _) in text.column_iter_mut().zip(&table.columns).filter(|(_, of)| !of.left) {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        Some(Fit::List) => return write_list(table, out),
    }
    for line in text.to_string().lines() {
        out.extend([line.trim_end(), "\n"]);
    }
    out.push('\n');
}

/// Form of a table in a given width.
enum Fit {
    /// Writes the table as it is.
    Whole,
    /// Wraps the text in columns of words, which get this width in characters.
    Broken(u16),
    /// Writes a list, because the columns of numbers alone are too wide.
    List,
}

/// Decides how to write a table. `widths` are the widths of the longest cells in each column.
fn fit(table: &Table, widths: &[u16], width: usize) -> Fit {
    // The spaces after the last column are not written.
    let room = width + SPACE;
    let needed = |least: usize| -> usize {
        let column = |(of, width): (&super::Column, &u16)| {
            let width = usize::from(*width);
            SPACE + if of.left { width.min(least) } else { width }
        };
        table.columns.iter().zip(widths).map(column).sum()
    };
    match u16::try_from(room) {
        _ if needed(usize::MAX) <= room => Fit::Whole,
        Ok(room) if needed(WORDS) <= usize::from(room) => Fit::Broken(room),
        _ => Fit::List,
    }
}

/// Writes each row as its first cell, and a line for each other cell that has a value.
fn write_list(table: &Table, out: &mut String) {
    let names = table.columns.iter().map(|column| column.name.chars().count());
    let longest = names.skip(1).max().unwrap_or(0);
    for row in &table.rows {
        out.extend([row.first().map_or("", String::as_str), "\n"]);
        for (column, cell) in table.columns.iter().zip(row).skip(1) {
            if !cell.is_empty() && cell != ABSENT {
                out.push_str(&format!("  {:longest$}  {cell}\n", column.name));
            }
        }
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::page::Section;

    fn page() -> Page {
        let mut table = Table::new(["case", "status", "median", "rate"]).left(1);
        table.row(["streams = 3", "not held, since the limit is 1 ms", "362.1 µs", "12.1 GB/s"].map(str::to_owned));
        table.row(["streams = 8", "done", "98 µs", ABSENT].map(str::to_owned));
        Page { sections: vec![Section { table: Some(table), ..Section::default() }], ..Page::default() }
    }

    fn longest(text: &str) -> usize {
        text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
    }

    #[test]
    fn a_table_fits_its_window() {
        let whole = text(&[page()]);
        assert_eq!(longest(&whole), 67, "{whole}");
        assert_eq!(text_within(&[page()], Some(67)), whole);
        for width in [66, 54, 50] {
            let broken = text_within(&[page()], Some(width));
            assert!(longest(&broken) <= width && broken.lines().count() > 3, "{broken}");
            assert!(broken.contains("362.1 µs") && broken.contains("12.1 GB/s"), "{broken}");
        }
        let list = text_within(&[page()], Some(30));
        let expected = "streams = 3\n  status  not held, since the limit is 1 ms\n  median  362.1 µs\n  rate    12.1 GB/s\n\
                        streams = 8\n  status  done\n  median  98 µs\n";
        assert_eq!(list, expected);
    }
}
