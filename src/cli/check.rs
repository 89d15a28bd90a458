//! `aorta check`.

use clap::Args;

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
                let operations: usize = loaded.program.cycle.first().map_or(0, |step| step.ops.len());
                let streams = loaded.program.streams.len();
                output::print(&format!("{}: good: {operations} operations on {streams} streams\n", loaded.parsed.name));
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
