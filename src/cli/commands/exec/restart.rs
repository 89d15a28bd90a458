//! Starts the command again with a different environment.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;

use crate::cli::CliResult;
use crate::cli::error::InputError;
use crate::cli::processes::secret;

/// Starts the same command with additional flags and environment variables, since drivers read the environment only
/// once.
pub(super) fn restart(flags: &[&str], variables: &[String]) -> CliResult {
    let failed = |why: std::io::Error| InputError::NoRestart { why: why.to_string() };
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = std::process::Command::new(program);
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    // Flags go directly after `exec`, because `--` may follow. Options of every command may precede it; none has this value.
    let exec = arguments.iter().position(|argument| argument == "exec").map_or(0, |at| at + 1);
    command.args(&arguments[..exec]).args(flags).args(&arguments[exec..]);
    for variable in variables {
        let Some((name, value)) = variable.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(InputError::NoVariable { given: variable.clone() }.into());
        };
        if name == secret::VARIABLE {
            return Err(secret::on_command_line().into());
        }
        command.env(name, value);
    }
    // Replacing this process passes signals on, and makes its exit code the command's.
    Err(failed(command.exec()).into())
}
