//! A comparison as commands of GitHub's workflows, which shows them on the page of a run.

use crate::base::workflow;
use crate::measure::compare::{Comparison, Row};
use crate::measure::effect::Verdict;

use super::{lone, sentence, summary};

/// An error for what fails the comparison, a warning for what is doubtful or missing, a notice for the rest that is told.
pub fn github(comparison: &Comparison) -> String {
    let mut out = String::new();
    let mut say = |level: &str, title: &str, text: &str| {
        out += &workflow::command(level, &[("title", title.to_owned())], text);
    };
    for against in &comparison.others {
        for pair in &against.pairs {
            for row in &pair.rows {
                if let Some(level) = level(comparison, row, pair.refused.is_empty()) {
                    say(level, &format!("{}: {}", pair.case, super::word(row.verdict)), &sentence(row));
                }
            }
            let refused = pair.refused.iter().map(|why| format!("no verdict: {why}"));
            for note in refused.chain(pair.doubts.iter().cloned()) {
                say("warning", &pair.case, &note);
            }
        }
        for one in &against.only_base {
            let level = if comparison.misses() { "error" } else { "warning" };
            say(level, "missing case", &lone(&comparison.base.name, one));
        }
        let title = format!("{} against {}", against.side.name, comparison.base.name);
        for warning in &against.warnings {
            say("warning", &title, warning);
        }
        say("notice", &title, &summary(against));
    }
    out
}

/// How loud a metric is told; what is the same goes without saying, and so does what a case is refused for.
fn level(comparison: &Comparison, row: &Row, told: bool) -> Option<&'static str> {
    match row.verdict {
        _ if comparison.fails_on(row) => Some("error"),
        Verdict::Worse => Some("warning"),
        Verdict::Better => Some("notice"),
        Verdict::CannotTell if told => Some("notice"),
        Verdict::Same | Verdict::CannotTell => None,
    }
}
