//! A page as JUnit XML for CI systems: each check is a test.

use std::fmt::Write as _;

use super::xml::escaped;
use super::{Check, Outcome, Page};

/// JUnit XML with a test suite for each page, whose output is the page's text.
pub fn junit(pages: &[Page]) -> String {
    let command = pages.first().map_or("aorta", |page| page.command);
    let mut out = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"{command}\">\n");
    pages.iter().for_each(|page| suite(page, &mut out));
    out + "</testsuites>\n"
}

fn suite(page: &Page, out: &mut String) {
    let count = |outcome: Outcome| page.checks.iter().filter(|check| check.outcome == outcome).count();
    let _ = writeln!(
        out,
        "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\">",
        escaped(&page.name),
        page.checks.len(),
        count(Outcome::Failed),
        count(Outcome::Error),
        count(Outcome::Skipped)
    );
    page.checks.iter().for_each(|check| test(check, out));
    let lines: Vec<String> = page.all_text().collect();
    let _ = writeln!(out, "    <system-out>{}</system-out>\n  </testsuite>", escaped(&lines.join("\n")));
}

fn test(check: &Check, out: &mut String) {
    let (kind, why) = (check.kind, escaped(&check.why));
    let element = match check.outcome {
        Outcome::Passed => String::new(),
        Outcome::Failed => format!("<failure type=\"{kind}\" message=\"{why}\"/>"),
        Outcome::Error => format!("<error type=\"{kind}\" message=\"{why}\"/>"),
        Outcome::Skipped => format!("<skipped message=\"{kind}: {why}\"/>"),
    };
    let all_text = match check.figures.is_empty() {
        true => String::new(),
        false => format!("<system-out>{}</system-out>", escaped(&check.figures)),
    };
    let time = check.seconds.map(|seconds| format!(" time=\"{seconds:.3}\"")).unwrap_or_default();
    let (class, name) = (escaped(&check.class), escaped(&check.name));
    let _ = writeln!(out, "    <testcase classname=\"{class}\" name=\"{name}\"{time}>{element}{all_text}</testcase>");
}
