//! `aorta suite`: cases that belong together, each run in a process of its own, told on one page.

mod args;
mod plan;

use indexmap::IndexMap;
use sha2::{Digest, Sha256};

use crate::base::{Bytes, counted};
use crate::config::{Suite, SuiteCase};
use crate::measure::RunRecord;
use crate::measure::cases::{Case, Header, Kind, SCHEMA, Status};
use crate::report::suite::{self as report, Page};

use super::case::{self, Interrupt};
use super::error::CliError;
use super::sweep::journal::{self, Opened};
use super::sweep::progress::Progress;
use super::{CliResult, DONE, FAILED, INTERRUPTED, NOT_HELD, expected, load, output};

use args::FormatArg;
pub use args::SuiteArgs;
use plan::{Fate, Machine, Planned};

/// A case makes no run, whatever the machine.
const BAD_INPUT: u8 = 2;

pub fn run(args: SuiteArgs) -> CliResult {
    let Some(name) = &args.name else {
        output::print(&list()?);
        return Ok(DONE);
    };
    case::alone("suite")?;
    let (suite, text) = plan::find(name)?;
    let mut machine = Machine::here(&args, &load::settings(&args.config)?)?;
    // A mistake in them would end every case.
    args.expected.as_deref().map(expected::read).transpose()?;
    let planned = plan::plan(&suite, &args, &machine)?;
    if args.dry_run {
        output::print(&commands(&planned));
        let bad = planned.iter().any(|planned| matches!(planned.fate, Fate::Bad(_)));
        return Ok(if bad { BAD_INPUT } else { DONE });
    }
    let header = header(&suite, &text, &planned, &args);
    let opened = journal::open(args.json.clone(), true, &header, args.resume)?;
    let interrupt = Interrupt::watch();
    let cases = run_cases(&planned, &mut machine, opened, &interrupt)?;
    if interrupt.stopped() && args.json.is_some() {
        output::eprint("Interrupted: the same command with `--resume` goes on.\n");
    }
    let ended = cases.iter().collect();
    let page = Page { header: &header, description: &suite.description, cases: ended, planned: planned.len() };
    output::print(&match args.format {
        FormatArg::Table => report::table(&page),
        FormatArg::Markdown => report::markdown(&page),
        FormatArg::Junit => report::junit(&page),
    });
    Ok(if interrupt.stopped() { INTERRUPTED } else { exit_code(&cases, args.strict) })
}

/// All suites that are shipped.
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
fn commands(planned: &[Planned]) -> String {
    let line = |planned: &Planned| match &planned.fate {
        Fate::Run(arguments) => {
            let typed: Vec<String> = arguments.iter().map(|word| typed(word)).collect();
            format!("{}: aorta exec {}\n", planned.name, typed.join(" "))
        }
        Fate::Skip(why) => format!("{}: skipped: {why}\n", planned.name),
        Fate::Missing(why) => format!("{}: missing: {why}\n", planned.name),
        Fate::Bad(why) => format!("{}: failed: {why}\n", planned.name),
    };
    planned.iter().map(line).collect()
}

/// A word as a shell takes it.
fn typed(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_=./,:+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// What a file of its cases begins with. Its hash is of the suite and of all files that its cases name.
fn header(suite: &Suite, text: &str, planned: &[Planned], args: &SuiteArgs) -> Header {
    let mut digest = Sha256::new();
    digest.update(text);
    for planned in planned {
        if let Fate::Run(arguments) = &planned.fate {
            // A shipped workload changes with the version alone.
            digest.update(std::fs::read(&arguments[0]).unwrap_or_default());
        }
    }
    Header {
        schema: SCHEMA.to_owned(),
        kind: Kind::Suite,
        aorta: env!("CARGO_PKG_VERSION").to_owned(),
        name: suite.name.clone(),
        sha256: digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect(),
        started: jiff::Timestamp::now().to_string(),
        arguments: args.shared(),
        axes: Vec::new(),
        zip: false,
    }
}

/// Runs every case that a file does not have yet: all, unless the suite is interrupted.
fn run_cases(
    planned: &[Planned],
    machine: &mut Machine,
    mut opened: Opened,
    interrupt: &Interrupt,
) -> Result<Vec<Case>, CliError> {
    let mut known: IndexMap<String, Case> = IndexMap::new();
    // What was skipped or has failed may go now.
    for case in opened.cases.drain(..).filter(|case| case.status.is_measured()) {
        known.insert(case.name.clone(), case);
    }
    known.retain(|name, _| planned.iter().any(|planned| planned.name == *name));
    let progress = Progress::start(planned.len(), known.len(), known.values().map(|case| case.seconds).collect());
    let mut ended = Vec::with_capacity(planned.len());
    for planned in planned {
        let case = match known.shift_remove(&planned.name) {
            Some(case) => case,
            None => {
                progress.begin(&planned.name);
                let Some(case) = one(planned, machine, interrupt)? else { break };
                opened.journal.append(&case)?;
                progress.end(&case);
                case.light()
            }
        };
        // What a device has is known when it has been opened, which a case does.
        let memory = case.record.as_ref().and_then(|record| record.device.memory_bytes);
        machine.memory = machine.memory.or(memory.map(Bytes));
        ended.push(case);
    }
    Ok(ended)
}

/// Runs a case, or says why not. Nothing where the suite was interrupted.
fn one(planned: &Planned, machine: &Machine, interrupt: &Interrupt) -> Result<Option<Case>, CliError> {
    let (name, none) = (&planned.name, IndexMap::new());
    let without = |status, why: &str| Ok(Some(Case::without(name, &none, 0.0, status, why.to_owned())));
    let arguments = match &planned.fate {
        Fate::Missing(why) => return without(Status::Missing, why),
        Fate::Skip(why) => return without(Status::Skipped, why),
        Fate::Bad(why) => return without(Status::Failed, why),
        Fate::Run(arguments) => arguments,
    };
    if let Some(why) = machine.too_small(&planned.case) {
        return without(Status::Skipped, &why);
    }
    let (outcome, took) = case::run(arguments, interrupt)?;
    Ok(outcome.case(name, &none, took).map(|case| limited(case, &planned.case)))
}

/// The case with what its limits say. Of what is no measurement they say nothing.
fn limited(mut case: Case, planned: &SuiteCase) -> Case {
    let record = case.record.as_deref().filter(|record| record.measurement);
    let broken = record.and_then(|record| planned.limits.iter().find_map(|limit| over(record, limit)));
    if let Some(why) = broken.filter(|_| case.status != Status::NotHeld) {
        (case.status, case.reason) = (Status::NotHeld, Some(why));
    }
    case
}

/// How a record breaks a limit, if it does.
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
        let held = value.is_some_and(|value| span.holds(value));
        (!held).then(|| format!("limit on {name}, as {}: {text} is not {}", launched(&variant.launch), words(span)))
    })
}

fn launched(launch: &str) -> &'static str {
    if launch == "graph" { "a graph" } else { "streams" }
}

/// `50 GB/s to 57 GB/s`, `at most 5 µs`.
fn words(span: &crate::config::Span) -> String {
    if span.from.is_some() && span.to.is_some() { format!("within {span}") } else { span.to_string() }
}

/// A suite of which no case ran has shown nothing, whatever the reason is: that is a failure. Else skipped and missing cases
/// count only where the suite is strict.
fn exit_code(cases: &[Case], strict: bool) -> u8 {
    let any = |status: &[Status]| cases.iter().any(|case| status.contains(&case.status));
    let ran = cases.iter().any(|case| !matches!(case.status, Status::Skipped | Status::Missing));
    match () {
        () if any(&[Status::Failed, Status::OutOfMemory]) || !ran => FAILED,
        () if any(&[Status::NotHeld]) || (strict && any(&[Status::Skipped, Status::Missing])) => NOT_HELD,
        () => DONE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_typed_as_a_shell_takes_them() {
        assert_eq!(typed("--set=n=4"), "--set=n=4");
        assert_eq!(typed("--set=n=[1, 2]"), "'--set=n=[1, 2]'");
        assert_eq!(typed("it's"), "'it'\\''s'");
        assert_eq!(typed(""), "''");
    }
}
