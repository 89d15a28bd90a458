//! A page for the terminal.

use comfy_table::CellAlignment;
use comfy_table::presets::NOTHING;

use super::{Page, Table};

/// Sections separated by empty lines, then the summary and warnings.
pub fn text(pages: &[Page]) -> String {
    pages.iter().map(one).collect::<Vec<_>>().join("\n")
}

fn one(page: &Page) -> String {
    let mut out = String::new();
    for section in &page.sections {
        let title = Some(&section.title).filter(|title| !title.is_empty());
        write(title.into_iter().chain(&section.lines), &mut out);
        match &section.table {
            Some(table) => write_table(table, &mut out),
            None => out.push('\n'),
        }
        if !section.notes.is_empty() {
            write(&section.notes, &mut out);
            out.push('\n');
        }
    }
    let result = Some(&page.summary).filter(|summary| !summary.is_empty()).cloned();
    write(&result.into_iter().chain(page.warning_lines()).collect::<Vec<_>>(), &mut out);
    out.trim_end().to_owned() + "\n"
}

fn write<'a>(lines: impl IntoIterator<Item = &'a String>, out: &mut String) {
    for line in lines {
        out.extend([line.as_str(), "\n"]);
    }
}

fn write_table(table: &Table, out: &mut String) {
    let mut text = comfy_table::Table::new();
    text.load_style(NOTHING).set_header(table.columns.iter().map(|column| &column.name)).add_rows(&table.rows);
    for (column, of) in text.column_iter_mut().zip(&table.columns) {
        column.set_padding((0, 2));
        column.set_cell_alignment(if of.left { CellAlignment::Left } else { CellAlignment::Right });
    }
    for line in text.to_string().lines() {
        out.extend([line.trim_end(), "\n"]);
    }
    out.push('\n');
}
