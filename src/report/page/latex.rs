//! A page as LaTeX tables, which need the package `booktabs`.

use std::fmt::Write as _;

use super::{ABSENT, Column, Page};
use crate::base::visible;

/// The tables of all pages, with lines as comments. Tables with the same columns are joined into one `tabular`.
pub fn latex(pages: &[Page]) -> String {
    pages.iter().map(page_text).collect::<Vec<_>>().join("\n")
}

fn page_text(page: &Page) -> String {
    let mut out = String::from("% needs \\usepackage{booktabs}\n");
    for line in page.all_text() {
        let _ = writeln!(out, "% {}", line.replace(['\n', '\r'], " "));
    }
    let tables = page.sections.iter().filter_map(|section| Some((section.title.as_str(), section.table.as_ref()?)));
    let tables: Vec<_> = tables.collect();
    for group in tables.chunk_by(|(_, a), (_, b)| a.columns == b.columns) {
        begin(&group[0].1.columns, &mut out);
        for (title, table) in group {
            let _ = match title.is_empty() {
                true => writeln!(out, "\\midrule"),
                false => {
                    writeln!(out, "\\midrule\n\\multicolumn{{{}}}{{l}}{{{}}} \\\\", table.columns.len(), escaped(title))
                }
            };
            table.rows.iter().for_each(|cells| row(cells, &mut out));
        }
        out.push_str("\\bottomrule\n\\end{tabular}\n");
    }
    out
}

fn begin(columns: &[Column], out: &mut String) {
    let places: String = columns.iter().map(|column| if column.left { 'l' } else { 'r' }).collect();
    let _ = writeln!(out, "\\begin{{tabular}}{{{places}}}\n\\toprule");
    row(&columns.iter().map(|column| column.name.clone()).collect::<Vec<_>>(), out);
}

fn row(cells: &[String], out: &mut String) {
    let cells: Vec<String> =
        cells.iter().map(|cell| if cell == ABSENT { "--".to_owned() } else { escaped(cell) }).collect();
    let _ = writeln!(out, "{} \\\\", cells.join(" & "));
}

/// Escapes text for LaTeX.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    // Hidden characters are escaped first, since their escapes contain a backslash.
    for letter in visible::visible(text).chars() {
        match letter {
            '%' | '&' | '_' | '#' | '$' | '{' | '}' => escaped.extend(['\\', letter]),
            '\\' => escaped.push_str("\\textbackslash{}"),
            '~' => escaped.push_str("\\textasciitilde{}"),
            '^' => escaped.push_str("\\textasciicircum{}"),
            'µ' => escaped.push_str("\\textmu{}"),
            '×' => escaped.push_str("$\\times$"),
            '\n' | '\r' => escaped.push(' '),
            _ => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn special_characters_are_escaped() {
        assert_eq!(
            escaped("5 % of a_b & 3 µs, × 2\\"),
            "5 \\% of a\\_b \\& 3 \\textmu{}s, $\\times$ 2\\textbackslash{}"
        );
    }
}
