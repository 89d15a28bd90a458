//! `aorta report`: shows a record, an A/B comparison, a sweep or a suite again, without a device.

use std::path::PathBuf;

use clap::Args;
use indexmap::IndexSet;

use crate::base::suggest;
use crate::measure::RunRecord;
use crate::measure::ab::AbRecord;
use crate::measure::cases::{Case, Cases, CasesHeader, CasesKind};
use crate::measure::order::CaseOrder;
use crate::report::page::Page;
use crate::report::{self, PageContent, SuiteReport};

use crate::cli::error::InputError;
use crate::cli::inputs::expected::{self, ExpectedArgs};
use crate::cli::inputs::stored::{self, Stored};
use crate::cli::io::output;
use crate::cli::io::outputs::{RunOutputs, write_pictures};
use crate::cli::{CliResult, DONE};

/// Maximum number of column names listed by a message.
const MAX_LISTED: usize = 12;

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// A record written by `exec --json`, a bundle with one, an A/B comparison, or the cases of a sweep or a suite; several files
    /// are partitions of one sweep or suite
    #[arg(required = true, value_name = "RECORD")]
    records: Vec<PathBuf>,
    /// Show the operations, streams and analysis of this rank instead of the first
    #[arg(long, value_name = "RANK")]
    rank: Option<u32>,
    #[command(flatten)]
    expected: ExpectedArgs,
    /// Sort the cases of a sweep by an axis, `median`, `rate` or a metric, the best first; `-NAME` reverses the order
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    sort: Option<String>,
    #[command(flatten)]
    output: RunOutputs,
    /// Write each picture as an SVG file, `NAME-split.svg` and so on: timeline, split, phases, times, roofline, curves, blocks
    #[arg(long, value_name = "NAME")]
    svg: Option<String>,
}

pub fn run(args: ReportArgs) -> CliResult {
    args.output.check()?;
    if args.records.len() > 1 {
        let read = |path: &PathBuf| Ok((path.display().to_string(), stored::cases(path)?));
        return cases(&args, args.records.iter().map(read).collect::<Result<_, InputError>>()?);
    }
    let file = &args.records[0];
    let mut record = match stored::read(file)? {
        Stored::Cases(read) => return cases(&args, vec![(file.display().to_string(), *read)]),
        Stored::Ab(record) => return comparison(&args, &record),
        Stored::Run(record) => *record,
    };
    if let Some(name) = &args.sort {
        return Err(unsorted(name, "this is the record of one run", "`--sort` is for the cases of a sweep").into());
    }
    let own = args.expected.own()?;
    // Records of older versions have no verdicts yet.
    if args.expected.given() {
        expected::judge(&mut record, own.as_ref());
    }
    if let Some(rank) = args.rank {
        check_rank(&record, rank)?;
    }
    args.output.show(&record, args.rank, args.expected.page(&record, own.as_ref()))?;
    let records = std::slice::from_ref(&record);
    let timeline = report::picture::iterations(records);
    write_pictures(args.svg.as_ref(), || {
        timeline.iter().chain(PageContent::runs(records).galleries()).cloned().collect()
    })?;
    Ok(DONE)
}

/// Shows an A/B comparison.
fn comparison(args: &ReportArgs, record: &AbRecord) -> CliResult {
    check_cases(args)?;
    args.output.page.show(&[report::ab(record)], || record.to_json())?;
    args.output.page.write_html(|| PageContent::ab(record))?;
    write_pictures(args.svg.as_ref(), || PageContent::ab(record).galleries().to_vec())?;
    Ok(DONE)
}

/// Fails if an option was given that needs the record of a single run.
fn check_cases(args: &ReportArgs) -> Result<(), InputError> {
    let given = [
        (args.rank.is_some(), "--rank"),
        (args.output.top.is_some(), "--top"),
        (args.output.trace.is_some(), "--trace"),
        (args.output.timeline, "--timeline"),
        (args.output.files.json.is_some(), "--json"),
    ];
    let Some((_, option)) = given.into_iter().find(|(is_given, _)| *is_given) else { return Ok(()) };
    let (what, file) = (format!("the file of `{option}`"), args.records[0].display().to_string());
    let help = "name the record of one run, that `aorta exec --json` writes";
    Err(InputError::bad_value(&what, &file, "it has several runs", help))
}

/// Fails if the record has no rank of that number.
fn check_rank(record: &RunRecord, rank: u32) -> Result<(), InputError> {
    let ranks: Vec<String> = record
        .variants
        .first()
        .into_iter()
        .flat_map(|variant| &variant.ranks)
        .map(|rank| rank.rank.to_string())
        .collect();
    if ranks.contains(&rank.to_string()) {
        return Ok(());
    }
    let help = match ranks.as_slice() {
        [] => "the record is of no rank".to_owned(),
        [only] => format!("the only rank is {only}"),
        [first, .., last] => format!("the ranks are {first} to {last}"),
    };
    Err(InputError::bad_value("`--rank`", &rank.to_string(), "the record has no such rank", &help))
}

/// Shows the cases of a file, or of the files of several partitions, the last result of each.
fn cases(args: &ReportArgs, files: Vec<(String, Cases)>) -> CliResult {
    check_cases(args)?;
    let no_cases = |why| InputError::NoCases { name: args.records[0].display().to_string(), why, is_record: false };
    let mut read = Cases::merge(files).map_err(no_cases)?;
    if let Some(note) = missing(&read) {
        output::eprint(&note);
    }
    if args.expected.given() {
        let own = args.expected.own()?;
        let records = read.cases.iter_mut().filter_map(|case| case.record.as_deref_mut());
        records.for_each(|record| expected::judge(record, own.as_ref()));
    }
    if read.torn {
        output::eprint("The last line of the file is incomplete, and its case is left out.\n");
    }
    let (header, latest) = (&read.header, read.latest());
    if let (CasesKind::Suite, Some(name)) = (header.kind, &args.sort) {
        return Err(unsorted(name, "a suite's cases are those of different workloads", "leave `--sort` out").into());
    }
    let metrics =
        latest.iter().filter_map(|case| case.record.as_ref()?.variants.first()).flat_map(|variant| &variant.metrics);
    let order = order(args.sort.as_deref(), header, metrics.map(|metric| metric.name.as_str()))?;
    let page = page_of_cases(header, &latest, order.as_ref());
    write_pictures(args.svg.as_ref(), || PageContent::cases(header, &latest, page.clone()).galleries().to_vec())?;
    crate::cli::processes::cases::show(
        (header, &latest),
        &page,
        order.as_ref(),
        (&args.output.page, &args.output.files),
    )?;
    Ok(DONE)
}

/// The report of the cases of a sweep or a suite.
pub fn page_of_cases(header: &CasesHeader, cases: &[&Case], order: Option<&CaseOrder>) -> Page {
    match header.kind {
        CasesKind::Sweep => report::sweep(header, cases, order),
        CasesKind::Suite => {
            report::suite(&SuiteReport { header, description: "", cases: cases.to_vec(), planned: cases.len() })
        }
    }
}

/// A note on the cases of a partitioned sweep or suite that its files lack; `None` if they lack none.
pub fn missing(cases: &Cases) -> Option<String> {
    let missing = cases.missing();
    let listed: Vec<&str> = missing.iter().copied().take(MAX_LISTED).collect();
    let more = if missing.len() > MAX_LISTED { ", …" } else { "" };
    let (lacks, all) = (missing.len(), cases.header.cases.len());
    (lacks > 0).then(|| format!("Missing: {lacks} of {all} cases: {}{more}\n", listed.join("; ")))
}

/// Returns the order given by `--sort`; `None` without this option. `metrics` are the names of the cases' metrics.
///
/// # Errors
///
/// No column has that name.
pub fn order<'a>(
    sort: Option<&str>,
    header: &'a CasesHeader,
    metrics: impl Iterator<Item = &'a str>,
) -> Result<Option<CaseOrder>, InputError> {
    let Some(text) = sort else { return Ok(None) };
    let order = CaseOrder::new(text);
    let names: IndexSet<&str> = CaseOrder::names(header, metrics).into_iter().collect();
    if names.contains(order.name()) {
        return Ok(Some(order));
    }
    let names: Vec<&str> = names.into_iter().collect();
    let listed = || format!("there are {}", suggest::listed(&names[..names.len().min(MAX_LISTED)]));
    let help = suggest::did_you_mean(order.name(), names.iter().copied()).unwrap_or_else(listed);
    Err(unsorted(text, "no column has this name", &help))
}

fn unsorted(name: &str, why: &str, help: &str) -> InputError {
    InputError::bad_value("`--sort`", name, why, help)
}
