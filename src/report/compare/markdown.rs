//! A comparison for pages, mails and comments on a change.

use std::fmt::Write as _;

use crate::measure::compare::{Against, Comparison, Pair, Row, SideRecord};
use crate::measure::effect::Verdict;
use crate::report::markdown::escaped;

use super::{changed, difference, figures, interval, lones, side, summary, threshold, value, word};

/// One table for each side beside the base, and what there is to know around it.
pub fn markdown(comparison: &Comparison) -> String {
    let parts: Vec<String> = comparison.others.iter().map(|against| one(&comparison.base, against)).collect();
    parts.join("\n")
}

fn one(base: &SideRecord, against: &Against) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "**{}**\n", escaped(&summary(against)));
    let _ = writeln!(out, "- base: {}", escaped(&side(base)));
    let _ = writeln!(out, "- other: {}", escaped(&side(&against.side)));
    for what in &against.environment {
        let _ = writeln!(out, "- differs: {}", escaped(&difference(what)));
    }
    let notes = against.pairs.iter().flat_map(|pair| {
        let refused = pair.refused.iter().map(|why| format!("no verdict of {}: {why}", pair.case));
        refused.chain(pair.doubts.iter().map(|doubt| format!("doubtful: {}: {doubt}", pair.case)))
    });
    for line in notes.chain(lones(base, against)) {
        let _ = writeln!(out, "- {}", escaped(&line));
    }
    for warning in &against.warnings {
        let _ = writeln!(out, "- warning: {}", escaped(warning));
    }
    if against.pairs.is_empty() {
        return out;
    }
    let marked = against.pairs.iter().any(|pair| figures(pair).is_some());
    let (head, line) = if marked { (" figures |", " --- |") } else { ("", "") };
    let _ = writeln!(out, "\n| case | metric | base | other | change | 95 % interval | threshold | verdict |{head}");
    let _ = writeln!(out, "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |{line}");
    for pair in &against.pairs {
        for row in &pair.rows {
            let mut cells = cells(pair, row).to_vec();
            cells.extend(marked.then(|| figures(pair).unwrap_or_else(|| "measured".to_owned())));
            let _ = writeln!(out, "| {} |", cells.join(" | "));
        }
    }
    out
}

fn cells(pair: &Pair, row: &Row) -> [String; 8] {
    let verdict = match row.verdict {
        Verdict::Better | Verdict::Worse => format!("**{}**", word(row.verdict)),
        Verdict::Same | Verdict::CannotTell => word(row.verdict).to_owned(),
    };
    let absent = || "–".to_owned();
    [
        escaped(&pair.case),
        escaped(&row.metric),
        escaped(&value(row.base, &row.unit)),
        escaped(&value(row.other, &row.unit)),
        changed(row).unwrap_or_else(absent),
        interval(row).unwrap_or_else(absent),
        threshold(row),
        verdict,
    ]
}
