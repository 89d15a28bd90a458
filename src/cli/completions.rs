//! `aorta completions`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, CliResult, DONE, output};

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell that is to complete
    shell: Shell,
}

/// Prints a script that the shell reads.
pub fn run(args: CompletionsArgs) -> CliResult {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "aorta", &mut script);
    output::print(&String::from_utf8_lossy(&script));
    Ok(DONE)
}
