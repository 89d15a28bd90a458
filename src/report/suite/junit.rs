//! A suite for machines that build and test: each case is a test.

use std::fmt::Write as _;

use crate::measure::cases::{Case, Status};
use crate::report::xml::escaped;

use super::{Page, columns, doubts, names, pace, summary, title, word};

/// JUnit's XML. What did not hold has failed; a run that failed is an error; what was skipped or is missing was skipped.
pub fn junit(page: &Page) -> String {
    let count = |statuses: &[Status]| page.cases.iter().filter(|case| statuses.contains(&case.status)).count();
    let (failures, errors) = (count(&[Status::NotHeld]), count(&[Status::Failed, Status::OutOfMemory]));
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"aorta suite\">\n");
    let _ = writeln!(
        out,
        "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{}\">",
        escaped(&page.header.name),
        page.cases.len(),
        count(&[Status::Skipped, Status::Missing])
    );
    for case in &page.cases {
        test(page, case, &mut out);
    }
    let lines: Vec<String> = [title(page)].into_iter().chain(doubts(page)).chain([summary(page)]).collect();
    let _ = writeln!(out, "    <system-out>{}</system-out>", escaped(&lines.join("\n")));
    out + "  </testsuite>\n</testsuites>\n"
}

fn test(page: &Page, case: &Case, out: &mut String) {
    let why = escaped(case.reason.as_deref().unwrap_or_default());
    let element = match case.status {
        Status::Done | Status::Unstable => String::new(),
        Status::NotHeld => format!("<failure message=\"{why}\"/>"),
        Status::Failed | Status::OutOfMemory => format!("<error type=\"{}\" message=\"{why}\"/>", word(case)),
        Status::Skipped | Status::Missing => format!("<skipped message=\"{}: {why}\"/>", word(case)),
    };
    let columns = columns(case, pace(page));
    let said = match (&case.record, columns.as_slice()) {
        (Some(_), [times @ .., figure, normal]) => {
            let times: Vec<String> =
                names(page).iter().zip(times).map(|(name, time)| format!("{name} {time}")).collect();
            let said = format!("{}; {figure}; normal: {normal}", times.join(", "));
            format!("<system-out>{}</system-out>", escaped(&said))
        }
        _ => String::new(),
    };
    let (suite, name) = (escaped(&page.header.name), escaped(&case.name));
    let _ = writeln!(
        out,
        "    <testcase classname=\"{suite}\" name=\"{name}\" time=\"{:.3}\">{element}{said}</testcase>",
        case.seconds
    );
}
