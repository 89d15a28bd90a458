//! A page as commands of GitHub's workflows, which GitHub shows on the page of a run.

use super::{Check, Outcome, Page};
use crate::base::workflow;

/// An error for each failed check, a warning for each doubtful or missing figure, and a notice for everything else.
pub fn github(pages: &[Page]) -> String {
    let mut out = String::new();
    let mut say = |level: &str, title: &str, text: &str, place: Option<&str>| {
        let mut properties = vec![("title", title.to_owned())];
        // GitHub shows the message beside this line.
        let parts: Vec<&str> = place.map_or_else(Vec::new, |place| place.rsplitn(3, ':').collect());
        if let [column, line, file] = parts[..] {
            properties.extend([("file", file.to_owned()), ("line", line.to_owned()), ("col", column.to_owned())]);
        }
        out += &workflow::command(level, &properties, text);
    };
    for page in pages {
        for check in &page.checks {
            let text = if check.why.is_empty() { &check.figures } else { &check.why };
            if let Some(level) = level(check) {
                say(level, &format!("{}: {}", check.class, check.kind), text, check.place.as_deref());
            }
        }
        // A section with a table is about one case.
        for section in page.sections.iter().filter(|section| section.table.is_some()) {
            let title = if section.title.is_empty() { &page.name } else { &section.title };
            section.lines.iter().for_each(|line| say("warning", title, line, None));
        }
        page.warnings.iter().for_each(|warning| say("warning", &page.name, warning, None));
        if !page.summary.is_empty() {
            say("notice", &page.name, &page.summary, None);
        }
    }
    out
}

/// The command for a check; `None` if it passed, and for a case without a verdict, which is reported once for all.
fn level(check: &Check) -> Option<&'static str> {
    match (check.outcome, check.kind) {
        (Outcome::Failed | Outcome::Error, _) => Some("error"),
        (_, "worse" | "missing") => Some("warning"),
        (_, "refused") => None,
        (Outcome::Skipped, _) | (_, "better") => Some("notice"),
        (Outcome::Passed, _) => None,
    }
}
