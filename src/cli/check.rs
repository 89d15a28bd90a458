//! `aorta check`.

use clap::Args;

use crate::base::counted;
use crate::model::Program;

use super::{CliResult, ConfigArgs, DONE, WorkloadArgs, load, output};

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Files to check
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    config: ConfigArgs,
}

pub fn run(args: CheckArgs) -> CliResult {
    let settings = load::settings(&args.config)?;
    let mut last_error = None;
    for file in &args.files {
        let loaded = load::find(file, &settings).and_then(|text| load::load(text, &args.workload, &settings));
        match loaded {
            Ok(loaded) => {
                output::print(&format!("{}: good: {}\n", loaded.parsed.name, summary(&loaded.program)));
            }
            Err(error) => {
                // Every file is checked; the errors of all but the last are shown here.
                if let Some(before) = last_error.replace(error) {
                    let before: super::CliError = before;
                    before.print();
                }
            }
        }
    }
    match last_error {
        Some(error) => Err(error),
        None => Ok(DONE),
    }
}

/// `3 operations on 2 streams`.
fn summary(program: &Program) -> String {
    let operations = program.cycle.iter().map(|step| step.ops.len()).sum();
    let on = format!("{} on {}", counted(operations, "operation"), counted(program.streams.len(), "stream"));
    match program.cycle.len() {
        1 => on,
        cycle => format!("{on} in a cycle of {cycle} iterations"),
    }
}
