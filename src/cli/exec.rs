//! `aorta exec`.

mod args;
mod emulate;
mod failure;
mod interrupt;
mod measuring;
mod prepare;
mod record;
mod restart;
mod scenario;
mod standing;
mod together;

use crate::base::counted;
use crate::measure::RunRecord;
use crate::report;

use super::diagnostics::{self, DiagnosticsArg};
use super::error::CliError;
use super::{CliResult, DONE, INTERRUPTED, NOT_HELD, case, expected, launcher, load, output};

pub use args::{EffortArg, ExecArgs};
pub use prepare::{examine, settle};

use measuring::Run;
use prepare::{Ready, prepare};

/// What is said of a file with collectives that runs as one rank without having been asked to.
const ONE_RANK: &str = "No GPUs to count, so the file's collectives have one rank: `--ranks N` gives more.\n";

/// What a process does of a run, and what there is to note of how it was launched.
struct Part {
    /// It prints and writes files.
    leads: bool,
    /// A launcher has started it.
    launched: bool,
    facts: Vec<(String, String)>,
    /// What is done when it fails.
    aftermath: failure::Aftermath,
}

pub fn run(args: ExecArgs, how: DiagnosticsArg) -> CliResult {
    if args.until_input_ends {
        case::until_input_ends();
    }
    let aftermath = failure::Aftermath::of(&args, how);
    let settled = settle(args);
    if let Ok((args, _)) = &settled
        && !args.env.is_empty()
        && !args.env_is_set
    {
        return restart::restart(&["--env-is-set"], &args.env);
    }
    match launcher::here()? {
        Some(launcher) => together::run(launcher, settled, how),
        None => {
            let alone = Part { leads: true, launched: false, facts: Vec::new(), aftermath };
            let done = settled.and_then(|(args, settings)| finish(&prepare(args, settings, None)?, &alone, how));
            done.inspect_err(|error| aftermath.look_again(error))
        }
    }
}

/// Runs what is ready, prints and writes what there is to say.
fn finish(ready: &Ready, part: &Part, how: DiagnosticsArg) -> CliResult {
    let Ready { args, loaded, chosen, .. } = ready;
    if part.leads {
        if let Some(why) = &chosen.why {
            output::eprint(&format!("{why}\n"));
        }
        if ready.one_rank {
            output::eprint(ONE_RANK);
        }
        remind(loaded, how);
    }
    let run = Run::new(ready, part);
    let (sources, aftermath) = (loaded.sources.clone(), part.aftermath);
    run.control
        .when_stuck(move |error| aftermath.leave(CliError::Exec { error: error.clone(), sources: sources.clone() }));
    if let Some(what) = args.diagnose {
        return run.diagnose(what);
    }
    if args.blocks {
        return run.stand();
    }
    let (mut record, failure) = run.record()?;
    expected::judge(&mut record, ready.expected.as_ref());
    let outputs = match &args.outputs {
        Some(folder) if record.complete => run.write_outputs(folder, &mut record),
        _ => Ok(()),
    };
    if !part.leads {
        failure.map_or(outputs, Err)?;
        return Ok(exit_code(&record));
    }
    output::print(&report::table(&record));
    args.expected.list(&record, ready.expected.as_ref());
    if let Some(top) = args.top {
        output::print(&report::top(&record, top as usize));
    }
    // What cannot be written does not keep the rest from it.
    let json = args.json.as_ref().map_or(Ok(()), |path| output::write_file(path, record.to_json().as_bytes()));
    let others = super::report::write(&record, args.csv.as_ref(), args.trace.as_ref());
    failure.map_or(outputs, Err)?;
    json.and(others)?;
    Ok(exit_code(&record))
}

/// Says that the file has warnings, to whoever runs it without having checked it.
fn remind(loaded: &load::Loaded, how: DiagnosticsArg) {
    let warnings = diagnostics::warnings(&diagnostics::lint(loaded));
    if warnings > 0 && how == DiagnosticsArg::Text {
        let them = if warnings == 1 { "it" } else { "them" };
        let command = loaded.check.as_deref().unwrap_or("aorta check");
        output::eprint(&format!("{}: `{command}` shows {them}.\n", counted(warnings, "warning")));
    }
}

fn exit_code(record: &RunRecord) -> u8 {
    let expected = record
        .variants
        .iter()
        .flat_map(|variant| &variant.expectations)
        .all(|expectation| expectation.verdict != "failed");
    let verified = record.verification.as_ref().is_none_or(|verification| verification.held);
    match record.complete {
        false => INTERRUPTED,
        true if expected && verified => DONE,
        true => NOT_HELD,
    }
}
