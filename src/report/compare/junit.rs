//! A comparison for machines that build and test: each metric of each case is a test.

use std::fmt::Write as _;

use crate::measure::compare::{Against, Comparison, Row};
use crate::measure::effect::Verdict;
use crate::report::xml::escaped;

use super::{difference, sentence, side, summary, word};

/// JUnit's XML. A metric that fails the comparison has failed, one of which nothing can be said was skipped; so it is for
/// cases that are missing.
pub fn junit(comparison: &Comparison) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"aorta compare\">\n");
    for against in &comparison.others {
        suite(comparison, against, &mut out);
    }
    out.push_str("</testsuites>\n");
    out
}

fn suite(comparison: &Comparison, against: &Against, out: &mut String) {
    let rows = || against.pairs.iter().flat_map(|pair| &pair.rows);
    let missing = against.only_base.len();
    let tests = rows().count() + missing;
    let lost = |fails: bool| if comparison.misses() == fails { missing } else { 0 };
    let failed = rows().filter(|row| comparison.fails_on(row)).count() + lost(true);
    let skipped = rows().filter(|row| is_skipped(comparison, row)).count() + lost(false);
    let _ = writeln!(
        out,
        "  <testsuite name=\"{}\" tests=\"{tests}\" failures=\"{failed}\" skipped=\"{skipped}\">",
        escaped(&format!("{} against {}", against.side.name, comparison.base.name))
    );
    for pair in &against.pairs {
        for row in &pair.rows {
            let name = format!("classname=\"{}\" name=\"{}\"", escaped(&pair.case), escaped(&row.metric));
            let said = escaped(&sentence(row));
            let _ = if comparison.fails_on(row) {
                let word = word(row.verdict);
                writeln!(out, "    <testcase {name}><failure type=\"{word}\" message=\"{said}\"/></testcase>")
            } else if is_skipped(comparison, row) {
                writeln!(out, "    <testcase {name}><skipped message=\"{said}\"/></testcase>")
            } else {
                writeln!(out, "    <testcase {name}><system-out>{said}</system-out></testcase>")
            };
        }
    }
    for lone in &against.only_base {
        let why = lone.why.as_deref().unwrap_or("the other side has no such case");
        let (element, kind) = if comparison.misses() { ("failure", " type=\"missing\"") } else { ("skipped", "") };
        let (case, why) = (escaped(&lone.case), escaped(why));
        let _ = writeln!(
            out,
            "    <testcase classname=\"{case}\" name=\"present\"><{element}{kind} message=\"{why}\"/></testcase>"
        );
    }
    let differs = against.environment.iter().map(|what| format!("differs: {}", difference(what)));
    let heads =
        [format!("base {}", side(&comparison.base)), format!("other {}", side(&against.side)), summary(against)];
    let notes = against
        .pairs
        .iter()
        .flat_map(|pair| pair.refused.iter().chain(&pair.doubts).map(|note| format!("{}: {note}", pair.case)));
    let warnings = against.warnings.iter().map(|warning| format!("warning: {warning}"));
    let lines: Vec<String> =
        heads.into_iter().chain(differs).chain(notes).chain(warnings).map(|line| escaped(&line)).collect();
    let _ = writeln!(out, "    <system-out>{}</system-out>\n  </testsuite>", lines.join("\n"));
}

fn is_skipped(comparison: &Comparison, row: &Row) -> bool {
    row.verdict == Verdict::CannotTell && !comparison.fails_on(row)
}
