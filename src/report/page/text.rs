//! A page for the terminal.

use comfy_table::CellAlignment;

use super::{Page, Table};
use crate::report::table::{new_table, push};

/// Sections with an empty line between them, then the result and what there is to know about it.
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
    write(&result.into_iter().chain(page.cautions()).collect::<Vec<_>>(), &mut out);
    out
}

fn write<'a>(lines: impl IntoIterator<Item = &'a String>, out: &mut String) {
    for line in lines {
        out.extend([line.as_str(), "\n"]);
    }
}

fn write_table(table: &Table, out: &mut String) {
    let names: Vec<String> = table.columns.iter().map(|column| column.name.clone()).collect();
    let mut text = new_table(&names);
    let columns = text.column_iter_mut().zip(&table.columns);
    columns.filter(|(_, of)| of.left).for_each(|(column, _)| column.set_cell_alignment(CellAlignment::Left));
    text.add_rows(&table.rows);
    push(out, &text);
}
