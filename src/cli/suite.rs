//! `aorta suite`: runs the cases of a suite, each in a process of its own, and reports them on one page.

mod args;
mod plan;

use sha2::{Digest, Sha256};

use crate::base::{Bytes, counted, hex, shell};
use crate::config::{Suite, SuiteCase};
use crate::measure::RunRecord;
use crate::measure::cases::{Case, CasesKind, Header, Status};
use crate::report;

use super::cases::{self, Runner};
use super::error::CliError;
use super::passed::exec_args;
use super::report::cases_json;
use super::{CHECK_FAILED, CliResult, DONE, FAILED, INTERRUPTED, load, output};

pub use args::SuiteArgs;
use plan::{Machine, SuitePlan};

/// Exit code of a suite with a case that is invalid on any machine.
const BAD_INPUT: u8 = 2;

pub fn run(args: SuiteArgs) -> CliResult {
    let Some(name) = &args.name else {
        output::print(&list()?);
        return Ok(DONE);
    };
    cases::alone("suite")?;
    args.page.check()?;
    args.files.check()?;
    let (suite, text) = plan::find(name)?;
    let same = args.same.words();
    // A mistake in these options, or in the normal ranges, would fail every case.
    let exec = exec_args(&[std::slice::from_ref(name), &same[..]].concat())
        .map_err(|mistake| mistake.of("what all cases have", &shell::command(&same)))?;
    exec.expected.own()?;
    let mut machine = Machine::here(&exec, &load::settings(&exec.config)?)?;
    let planned = plan::plan(&suite, &args, &machine)?;
    if args.dry_run {
        output::print(&commands(&planned));
        let bad = planned.iter().any(|case| matches!(case.planned.command, Err((Status::Failed, _))));
        return Ok(if bad { BAD_INPUT } else { DONE });
    }
    let header = header(&suite, &text, &planned, same);
    let mut runner = Runner::open(args.files.json.as_ref(), None, &header, args.resume, planned.len())?;
    // Cases that were skipped or failed may succeed now.
    let is_planned = |case: &Case| planned.iter().any(|plan| plan.planned.name == case.name);
    runner.keep(|case| case.status.is_measured() && is_planned(case));
    let mut cases = Vec::with_capacity(planned.len());
    for of in &planned {
        let case = runner.case(&of.planned.name, |interrupt| {
            if let (Ok(_), Some(why)) = (&of.planned.command, machine.too_small(&of.case)) {
                return Ok(Some(of.planned.without(Status::Skipped, &why)));
            }
            Ok(of.planned.run(interrupt)?.map(|case| limited(case, &of.case)))
        });
        let Some(case) = case? else { break };
        // The device's memory is known once a case has opened it.
        let memory = case.record.as_ref().and_then(|record| record.device.memory_bytes);
        machine.memory = machine.memory.or(memory.map(Bytes));
        cases.push(case);
    }
    let complete = cases.len() == planned.len();
    runner.print_location();
    let ended = cases.iter().collect();
    let page = report::suite(&report::Suite {
        header: &header,
        description: &suite.description,
        cases: ended,
        planned: planned.len(),
    });
    let ended: Vec<&Case> = cases.iter().collect();
    args.page.show(&[page], || cases_json(&header, &ended))?;
    let csv = args.files.csv.as_ref().map(|path| output::write_text(path, &report::cases_csv(&header, &ended)));
    csv.transpose()?;
    Ok(if complete { exit_code(&cases, args.strict) } else { INTERRUPTED })
}

/// Lists all shipped suites.
fn list() -> Result<String, CliError> {
    let mut text = String::new();
    for name in Suite::names() {
        let (name, suite) = Suite::text(name)?;
        let suite = Suite::parse(name, suite)?;
        let cases = counted(suite.expanded().len(), "case");
        text += &format!("{name:12}  {cases:>9}  {}\n", suite.description);
    }
    text += "\n`aorta suite NAME` runs one; a suite of your own is named by its path.\n";
    Ok(text)
}

/// The command of each case, or why it has none.
fn commands(planned: &[SuitePlan]) -> String {
    let line = |SuitePlan { planned, .. }: &SuitePlan| match &planned.command {
        Ok(arguments) => format!("{}: aorta exec {}\n", planned.name, shell::command(arguments)),
        Err((status, why)) => format!("{}: {}: {why}\n", planned.name, status.word()),
    };
    planned.iter().map(line).collect()
}

/// The header of a file of cases. Its hash covers the suite and all files that its cases name.
fn header(suite: &Suite, text: &str, planned: &[SuitePlan], same: Vec<String>) -> Header {
    let mut digest = Sha256::new();
    digest.update(text);
    for arguments in planned.iter().filter_map(|case| case.planned.command.as_ref().ok()) {
        // Shipped workloads change only with aorta's version, which the header contains.
        digest.update(std::fs::read(&arguments[0]).unwrap_or_default());
    }
    Header::new(CasesKind::Suite, &suite.name, hex(digest.finalize()), same)
}

/// Applies a case's limits to its result. They apply only to measurements.
fn limited(mut case: Case, planned: &SuiteCase) -> Case {
    let record = case.record.as_deref().filter(|record| record.measurement);
    let broken = record.and_then(|record| planned.limits.iter().find_map(|limit| over(record, limit)));
    if let Some(why) = broken.filter(|_| case.status != Status::NotHeld) {
        (case.status, case.reason) = (Status::NotHeld, Some(why));
    }
    case
}

/// Describes how a record violates a limit; `None` if it does not.
fn over(record: &RunRecord, (name, span): (&String, &crate::config::Span)) -> Option<String> {
    record.variants.iter().find_map(|variant| {
        let (value, text) = match name.as_str() {
            "time" => {
                let median = variant.time.p50_ns?;
                (Some(median.seconds()), median.to_string())
            }
            name => match variant.metrics.iter().find(|metric| metric.name == *name) {
                Some(metric) if !span.fits(&metric.unit) => {
                    return Some(format!("limit on {name}: {span} is in another unit than {}", metric.text));
                }
                Some(metric) => (metric.value, metric.text.clone()),
                None => return Some(format!("limit on {name}: the workload has no such metric")),
            },
        };
        let is_in_range = value.is_some_and(|value| span.holds(value));
        (!is_in_range)
            .then(|| format!("limit on {name}, as {}: {text} is not {}", launched(&variant.launch), words(span)))
    })
}

fn launched(launch: &str) -> &'static str {
    if launch == "graph" { "a graph" } else { "streams" }
}

/// Formats a range: `50 GB/s to 57 GB/s`, `at most 5 µs`.
fn words(span: &crate::config::Span) -> String {
    if span.from.is_some() && span.to.is_some() { format!("within {span}") } else { span.to_string() }
}

/// The exit code. A suite in which no case ran is a failure, whatever the reason. Otherwise skipped and missing cases
/// count only if `strict`.
fn exit_code(cases: &[Case], strict: bool) -> u8 {
    let any = |status: &[Status]| cases.iter().any(|case| status.contains(&case.status));
    let ran = cases.iter().any(|case| !matches!(case.status, Status::Skipped | Status::Missing));
    match () {
        () if any(&[Status::Failed, Status::OutOfMemory]) || !ran => FAILED,
        () if any(&[Status::NotHeld]) || (strict && any(&[Status::Skipped, Status::Missing])) => CHECK_FAILED,
        () => DONE,
    }
}
