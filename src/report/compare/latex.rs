//! A comparison for papers: a table that needs the package `booktabs`.

use std::fmt::Write as _;

use crate::base::visible;
use crate::measure::compare::{Against, Comparison, Pair, Row, SideRecord};

use super::{changed, difference, figures, interval, lones, side, summary, value, word};

/// One `tabular` for each side beside the base; what differs stands above it, as comments.
pub fn latex(comparison: &Comparison) -> String {
    let parts: Vec<String> = comparison.others.iter().map(|against| one(&comparison.base, against)).collect();
    parts.join("\n")
}

fn one(base: &SideRecord, against: &Against) -> String {
    let mut out = String::from("% needs \\usepackage{booktabs}\n");
    let heads = [format!("base: {}", side(base)), format!("other: {}", side(&against.side)), summary(against)];
    let differs = against.environment.iter().map(|what| format!("differs: {}", difference(what)));
    let doubts = against.pairs.iter().flat_map(|pair| {
        let notes = pair.refused.iter().chain(&pair.doubts);
        notes.map(|note| format!("{}: {note}", pair.case))
    });
    let warnings = against.warnings.iter().map(|warning| format!("warning: {warning}"));
    for line in heads.into_iter().chain(differs).chain(doubts).chain(lones(base, against)).chain(warnings) {
        let _ = writeln!(out, "% {}", line.replace(['\n', '\r'], " "));
    }
    out.push_str("\\begin{tabular}{llrrrrl}\n\\toprule\n");
    out.push_str("case & metric & base & other & change & 95\\,\\% interval & verdict \\\\\n\\midrule\n");
    for pair in &against.pairs {
        for (index, row) in pair.rows.iter().enumerate() {
            let _ = writeln!(out, "{} \\\\", cells(pair, row, index == 0).join(" & "));
        }
    }
    out.push_str("\\bottomrule\n\\end{tabular}\n");
    out
}

/// The case stands in its first row.
fn cells(pair: &Pair, row: &Row, first: bool) -> [String; 7] {
    let case = match (first, figures(pair)) {
        (false, _) => String::new(),
        (true, None) => escaped(&pair.case),
        (true, Some(figures)) => escaped(&format!("{} ({figures})", pair.case)),
    };
    let absent = || "--".to_owned();
    [
        case,
        escaped(&row.metric),
        escaped(&value(row.base, &row.unit)),
        escaped(&value(row.other, &row.unit)),
        changed(row).map_or_else(absent, |change| escaped(&change)),
        interval(row).map_or_else(absent, |interval| escaped(&interval)),
        word(row.verdict).to_owned(),
    ]
}

/// Text that LaTeX prints as it is.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    // Written out before the backslash of that is escaped.
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
    fn what_means_something_is_escaped() {
        assert_eq!(
            escaped("5 % of a_b & 3 µs, × 2\\"),
            "5 \\% of a\\_b \\& 3 \\textmu{}s, $\\times$ 2\\textbackslash{}"
        );
    }
}
