//! `aorta report`: a record, a sweep or a suite again, without a device.

use std::path::PathBuf;

use clap::Args;

use crate::measure::RunRecord;
use crate::measure::cases::{Cases, Kind};
use crate::report;
use crate::report::suite::Page;

use super::error::InputError;
use super::expected::{self, ExpectedArgs};
use super::{CliResult, DONE, load, output};

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// A record that `exec --json` wrote, or the cases of a sweep or a suite
    record: PathBuf,
    /// Show the N operations with the most time of their own, and what usually helps each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    top: Option<u32>,
    #[command(flatten)]
    expected: ExpectedArgs,
    /// Write the record as CSV
    #[arg(long, value_name = "PATH")]
    csv: Option<PathBuf>,
    /// Write the traced iteration for Perfetto
    #[arg(long, value_name = "PATH")]
    trace: Option<PathBuf>,
}

pub fn run(args: ReportArgs) -> CliResult {
    for path in args.csv.iter().chain(&args.trace) {
        output::check_file(path)?;
    }
    let text = load::read(&args.record, load::Kind::Record)?;
    if Cases::is_meant(text.as_bytes()) {
        return cases(&args, &text);
    }
    let own = args.expected.own()?;
    let mut record = RunRecord::from_json(&text)
        .map_err(|why| InputError::NoRecord { name: args.record.display().to_string(), why })?;
    // A record of an older version has no verdicts yet.
    if args.expected.given() {
        expected::judge(&mut record, own.as_ref());
    }
    output::print(&report::table(&record));
    args.expected.list(&record, own.as_ref());
    if let Some(top) = args.top {
        output::print(&report::top(&record, top as usize));
    }
    write(&record, args.csv.as_ref(), args.trace.as_ref())?;
    Ok(DONE)
}

/// Shows a file of cases: each case as it ended last.
fn cases(args: &ReportArgs, text: &str) -> CliResult {
    let name = args.record.display().to_string();
    let read = Cases::parse(text.as_bytes()).map_err(|why| InputError::NoCases { name: name.clone(), why })?;
    let none = || InputError::NoCases { name, why: "its first line is not whole".to_owned() };
    let mut read = read.ok_or_else(none)?;
    if args.expected.given() {
        let own = args.expected.own()?;
        let records = read.cases.iter_mut().filter_map(|case| case.record.as_deref_mut());
        records.for_each(|record| expected::judge(record, own.as_ref()));
    }
    if read.torn {
        output::eprint("The file ends in the middle of a line, of a case that was cut short.\n");
    }
    let (header, latest) = (&read.header, read.latest());
    output::print(&match header.kind {
        Kind::Sweep => report::sweep(header, &latest),
        Kind::Suite => {
            let planned = latest.len();
            report::suite::table(&Page { header, description: "", cases: latest, planned })
        }
    });
    let csv = args.csv.as_ref().map(|path| (path, report::cases_csv(&read.header, &read.latest())));
    csv.map_or(Ok(()), |(path, csv)| output::write_file(path, csv.as_bytes()))?;
    Ok(DONE)
}

/// Writes the forms of a record that were asked for. One that cannot be written does not keep the other from it.
pub fn write(record: &RunRecord, csv: Option<&PathBuf>, trace: Option<&PathBuf>) -> Result<(), InputError> {
    let csv = csv.map_or(Ok(()), |path| output::write_file(path, report::csv(record).as_bytes()));
    let trace = trace.map_or(Ok(()), |path| output::write_file(path, report::chrome_trace(record).as_bytes()));
    csv.and(trace)
}
