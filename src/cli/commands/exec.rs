//! `aorta exec`: runs a workload and reports its times.

mod args;
mod blocks;
mod emulate;
mod failure;
mod interrupt;
mod limits;
mod measuring;
mod multi_process;
mod prepare;
mod record;
mod repeat;
mod restart;
mod results;
mod scenario;
mod source;

use std::sync::Arc;

use crate::base::{counted, shell, stage};
use crate::exec::Control;
use crate::measure::RunRecord;

use crate::cli::error::CliError;
use crate::cli::inputs::load;
use crate::cli::io::{diagnostics, output};
use crate::cli::processes::{child, launcher};
use crate::cli::{CHECK_FAILED, CliResult, DONE, INTERRUPTED};
use crate::render::DiagnosticFormat;

pub use args::{ArgumentError, ExecArgs, exec_args, parsed};
pub use blocks::launch_of_side;
pub use limits::{broken as broken_limit, check_ranges, check_scenario, check_span};
pub use prepare::{compile, examine, resolve_args, target};

use interrupt::Interrupts;
use measuring::RunContext;
use prepare::{PreparedRun, prepare};
use results::ResultOutputs;

/// Note on a file with transfers between ranks that runs as one rank by default.
const ONE_RANK: &str = "No GPUs to count, so the file runs as one rank: `--ranks N` gives more.\n";

/// The role of this process in a run.
struct ProcessRole {
    /// True if this process prints and writes files.
    leads: bool,
    facts: Vec<(String, String)>,
    /// The actions when the run fails.
    on_failure: failure::OnFailure,
    control: Arc<Control>,
    interrupts: Arc<Interrupts>,
}

pub fn run(args: ExecArgs, how: DiagnosticFormat) -> CliResult {
    if args.until_input_ends {
        child::until_input_ends()?;
    }
    let on_failure = failure::OnFailure::of(&args, how);
    let (file, typed, blocks) = (args.file.clone(), args.env.len(), args.blocks);
    let settled = resolve_args(args);
    if let Ok((args, _)) = &settled
        && !args.env.is_empty()
        && !args.env_is_set
    {
        let others = args.env.get(typed..).unwrap_or_default();
        if !others.is_empty() && launcher::detect()?.is_none_or(|launcher| launcher.rank == 0) {
            output::eprint(&format!("{file} sets {}.\n", shell::command(others)));
        }
        return restart::restart(&["--env-is-set"], &args.env);
    }
    match launcher::detect()? {
        Some(launcher) => multi_process::run(launcher, settled, how),
        None => {
            let control = Arc::default();
            let planning = stage::enter("planning");
            let interrupts = Interrupts::watch(&control, true, false);
            let alone = ProcessRole { leads: true, facts: Vec::new(), on_failure, control, interrupts };
            let done = settled.and_then(|(args, settings)| {
                let ready = prepare(args, settings, None)?;
                drop(planning);
                finish(&ready, &alone, how)
            });
            done.inspect_err(|error| {
                if blocks {
                    blocks::failed(error);
                }
                on_failure.rerun(error);
            })
        }
    }
}

/// Prints on standard error why operations were not merged in spite of `--fuse`.
fn note_unfused(why: &str) {
    output::eprint(&format!("The run continues without merged operations: {why}.\n"));
}

/// Runs a prepared workload, then prints and writes the results.
fn finish(ready: &PreparedRun, role: &ProcessRole, how: DiagnosticFormat) -> CliResult {
    let PreparedRun { args, loaded, chosen, .. } = ready;
    if role.leads {
        if let Some(why) = &chosen.why {
            output::eprint(&format!("{why}\n"));
        }
        if ready.one_rank {
            output::eprint(ONE_RANK);
        }
        note_warnings(loaded, how);
        if let Some(why) = &loaded.compiled.refused {
            note_unfused(why);
        }
    }
    let results = Arc::new(ResultOutputs::of(ready, role.leads));
    let unfused;
    let mut run = RunContext::new(ready, role, &results);
    let (sources, on_failure, kept) = (loaded.compiled.sources.clone(), role.on_failure, results.clone());
    run.control.on_unresponsive(move |error| {
        let warning = format!("the run ended early, so the figures cover only what was measured before: {error}");
        if kept.report_partial(&warning, "") {
            on_failure.leave(CliError::Exec { error: error.clone(), sources: sources.clone() });
        }
    });
    if let Some(what) = args.diagnose {
        return run.diagnose(what);
    }
    if args.blocks {
        return run.measure_blocks();
    }
    let mut recorded = run.record();
    if let Some((loaded, why)) = recorded.as_ref().err().and_then(|error| run.unfused(error)) {
        if role.leads {
            note_unfused(&why);
        }
        unfused = loaded;
        run = run.with(&unfused);
        recorded = run.record();
    }
    let (mut record, failure) = recorded?;
    let outputs = match &args.outputs {
        Some(folder) if record.complete => run.write_outputs(folder, &mut record),
        _ => Ok(()),
    };
    let reported = results.report(&mut record);
    if let Some(before) = args.repeats.as_ref().filter(|_| role.leads) {
        output::print(&repeat::differences(before, &record)?);
    }
    failure.map_or(outputs, Err)?;
    reported?;
    Ok(exit_code(&record))
}

/// Prints that the file has warnings, for users who run it without checking it.
fn note_warnings(loaded: &load::Loaded, how: DiagnosticFormat) {
    let warnings = diagnostics::warnings(&loaded.compiled.lint());
    if warnings > 0 && how == DiagnosticFormat::Text {
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
        true => CHECK_FAILED,
    }
}
