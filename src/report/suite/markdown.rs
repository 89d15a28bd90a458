//! A suite for pages, mails and comments.

use std::fmt::Write as _;

use crate::report::markdown::escaped;

use super::{Page, columns, doubts, names, pace, reasons, summary, title, word};

/// A table between its title and what there is to know.
pub fn markdown(page: &Page) -> String {
    let (names, pace) = (names(page), pace(page));
    let mut out = format!("{}\n\n| case | status | {} |\n", escaped(&title(page)), names.join(" | "));
    let times = " ---: |".repeat(names.len() - 2);
    let _ = writeln!(out, "| --- | --- |{times} --- | --- |");
    for case in &page.cases {
        let columns: Vec<String> = columns(case, pace).iter().map(|text| escaped(text)).collect();
        let _ = writeln!(out, "| {} | {} | {} |", escaped(&case.name), word(case), columns.join(" | "));
    }
    out.push('\n');
    for line in reasons(page).into_iter().chain(doubts(page)) {
        let _ = writeln!(out, "- {}", escaped(&line));
    }
    let _ = writeln!(out, "- **{}**", escaped(&summary(page)));
    out
}
