//! `aorta ab`: compares two variants of a run, measured in alternating blocks.

mod args;
mod process;
mod run;
mod scenario;
mod side;
mod unquoted;

use crate::base::shell;
use crate::measure::ab::{AbBasis, AbRecord};
use crate::measure::effect::{THRESHOLD, Verdict};
use crate::measure::paired::AbSide;
use crate::report::{self, PageContent, page};

use super::exec;
use crate::cli::error::CliError;
use crate::cli::io::output;
use crate::cli::processes::cases;
use crate::cli::processes::child::Interrupt;
use crate::cli::{CHECK_FAILED, CliResult, DONE, INTERRUPTED};

pub use args::AbArgs;
pub use scenario::{check as check_sides, check_program, words as scenario_words};
pub use side::SideArgs;
pub use unquoted::quoted;

use args::{FailOnArg, ROUNDS, SEED};
use process::Failure;
use run::{AbPlan, CompletedAb};

pub fn run(args: AbArgs) -> CliResult {
    cases::alone("ab")?;
    args.page.check()?;
    if let Some(path) = &args.json {
        output::check_file(path)?;
    }
    let args = match scenario::arguments(&args.file)? {
        Some(below) => args.over(below),
        None => args,
    };
    let plan = AbPlan {
        sides: [side(AbSide::A, &args, &args.a)?, side(AbSide::B, &args, &args.b)?],
        rounds: args.rounds.unwrap_or(ROUNDS) as usize,
        iterations: args.iterations.map(u64::from),
        seed: args.seed.unwrap_or(SEED),
        fresh: args.fresh,
        apart: !args.no_apart,
    };
    match measured(&plan, &Interrupt::watch())? {
        Some(done) => finish(&args, done),
        None => {
            output::eprint("Interrupted before anything was compared.\n");
            Ok(INTERRUPTED)
        }
    }
}

/// Compares the times that two sides take for the same work, with the default options of `aorta ab`, and shows the result.
/// Returns false if it was interrupted.
pub fn compare(sides: [SideArgs; 2], interrupt: &Interrupt) -> Result<bool, CliError> {
    let plan = AbPlan { sides, rounds: ROUNDS as usize, iterations: None, seed: SEED, fresh: false, apart: false };
    let Some(mut done) = measured(&plan, interrupt)? else { return Ok(false) };
    done.record.judge(THRESHOLD, AbBasis::Work);
    output::print(&page::text(&[report::ab(&done.record)]));
    Ok(done.record.complete)
}

/// Runs a comparison; `None` if it was interrupted before the first result.
fn measured(plan: &AbPlan, interrupt: &Interrupt) -> Result<Option<CompletedAb>, CliError> {
    match run::run(plan, interrupt) {
        Ok(done) => Ok(Some(done)),
        Err(Failure::Interrupted) => Ok(None),
        Err(Failure::Ended { stderr, error, .. }) => {
            output::eprint(&stderr);
            Err((*error).into())
        }
    }
}

/// Reads a side's options and compiles its workload, before anything runs.
fn side(side: AbSide, args: &AbArgs, given: &str) -> Result<SideArgs, CliError> {
    let (read, exec) = SideArgs::read(side, &args.file, given, &args.both.words())?;
    let examined = exec::resolve_args(exec).and_then(|(settled, settings)| {
        exec::launch_of_side(settings.launch)?;
        exec::compile(&settled, &settings)
    });
    match examined {
        Ok(_) => Ok(read),
        Err(error) => {
            output::eprint(&format!("Side {}, `aorta exec {}`:\n", side.name(), shell::command(&read.arguments)));
            Err(error)
        }
    }
}

fn finish(args: &AbArgs, done: CompletedAb) -> CliResult {
    let CompletedAb { mut record, stderr } = done;
    output::eprint(&notes(&stderr));
    record.judge(args.threshold(), AbBasis::Iteration);
    args.page.show(&[report::ab(&record)], || record.to_json())?;
    args.page.write_html(|| PageContent::ab(&record))?;
    if let Some(path) = &args.json {
        output::write_text(path, &record.to_json())?;
    }
    Ok(code(args, &record))
}

fn code(args: &AbArgs, record: &AbRecord) -> u8 {
    let verdict = record.result.as_ref().map_or(Verdict::CannotTell, |result| result.verdict);
    let fails = args.fail_on.iter().any(|what| match what {
        FailOnArg::Worse => verdict == Verdict::Worse,
        FailOnArg::CannotTell => verdict == Verdict::CannotTell,
    });
    match record.complete {
        false => INTERRUPTED,
        true if fails => CHECK_FAILED,
        true => DONE,
    }
}

/// Joins the notes of both sides: once if both printed the same line, otherwise with the side's name.
fn notes([a, b]: &[String; 2]) -> String {
    let mut text = String::new();
    for line in a.lines() {
        let name = if b.lines().any(|other| other == line) { "" } else { "a: " };
        text += &format!("{name}{line}\n");
    }
    for line in b.lines().filter(|line| a.lines().all(|other| other != *line)) {
        text += &format!("b: {line}\n");
    }
    text
}
