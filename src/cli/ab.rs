//! `aorta ab`: two variants of a run beside each other, measured in turn.

mod args;
mod child;
mod course;
mod side;
mod unquoted;

use crate::base::shell;
use crate::measure::ab::AbRecord;
use crate::measure::effect::{THRESHOLD, Verdict};
use crate::measure::paired::Side;
use crate::report;

use super::case::{self, Interrupt};
use super::error::CliError;
use super::{CliResult, DONE, INTERRUPTED, NOT_HELD, exec, output};

pub use args::AbArgs;
pub use side::SideArgs;
pub use unquoted::quoted;

use args::{FailOnArg, ROUNDS};
use child::Failure;
use course::{Done, Plan};

pub fn run(args: &AbArgs) -> CliResult {
    case::alone("ab")?;
    if let Some(path) = &args.json {
        output::check_file(path)?;
    }
    let plan = Plan {
        sides: [side(Side::A, args, &args.a)?, side(Side::B, args, &args.b)?],
        rounds: args.rounds as usize,
        iterations: args.iterations.map(u64::from),
        seed: args.seed,
        fresh: args.fresh,
        apart: !args.no_apart,
    };
    let interrupt = Interrupt::watch();
    match course::run(&plan, &interrupt) {
        Ok(done) => finish(args, done),
        Err(Failure::Interrupted) => {
            output::eprint("Interrupted before anything was compared.\n");
            Ok(INTERRUPTED)
        }
        Err(Failure::Ended { said, error }) => {
            output::eprint(&said);
            Err(error.into())
        }
    }
}

/// Compares two sides as `aorta ab` does by itself, shows the result, and says whether it went to its end.
pub fn compare(sides: [SideArgs; 2], interrupt: &Interrupt) -> Result<bool, CliError> {
    let plan = Plan { sides, rounds: ROUNDS as usize, iterations: None, seed: 1, fresh: false, apart: false };
    match course::run(&plan, interrupt) {
        Ok(mut done) => {
            done.record.judge(THRESHOLD);
            output::print(&report::ab(&done.record));
            Ok(done.record.complete)
        }
        Err(Failure::Interrupted) => Ok(false),
        Err(Failure::Ended { said, error }) => {
            output::eprint(&said);
            Err(error.into())
        }
    }
}

/// Reads a side's options, and looks at what they would run: before anything runs.
fn side(side: Side, args: &AbArgs, given: &str) -> Result<SideArgs, CliError> {
    let (read, exec) = SideArgs::read(side, &args.file, given, &args.both.words())?;
    match exec::examine(exec) {
        Ok(_) => Ok(read),
        Err(error) => {
            output::eprint(&format!("Side {}, `aorta exec {}`:\n", side.name(), shell::command(&read.arguments)));
            Err(error)
        }
    }
}

fn finish(args: &AbArgs, done: Done) -> CliResult {
    let Done { mut record, said } = done;
    output::eprint(&told(&said));
    record.judge(args.threshold());
    output::print(&report::ab(&record));
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
        true if fails => NOT_HELD,
        true => DONE,
    }
}

/// What the sides have said to people: once what both have, and with its side's name what one has.
fn told([a, b]: &[String; 2]) -> String {
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
