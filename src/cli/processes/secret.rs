//! The secret that authenticates the ranks of several hosts to each other: AORTA_SECRET, or a file of the user.

use std::path::Path;

use crate::backend::rendezvous::{SHORTEST, Secret, SecretFault};

use super::launcher::Launcher;
use crate::cli::environment;
use crate::cli::error::InputError;

/// Name of the variable with the secret.
pub const VARIABLE: &str = "AORTA_SECRET";

/// The shell command that creates a secret.
fn create() -> String {
    let given = environment::variable("XDG_CONFIG_HOME").and_then(|_| environment::secret_file());
    let path = given.map_or("~/.config/aorta/secret".to_owned(), |path| path.display().to_string());
    format!("install -Dm600 <(head -c 24 /dev/urandom | base64) {path}")
}

/// Advice for ranks that do not find each other and have no secret.
pub fn advice() -> String {
    format!(
        "`--config rendezvous=…` changes how long ranks wait; without a secret, ranks meet on one host and as one user: \
         create one for ranks of several hosts, containers or users, and give it to all of them:\n{}",
        create()
    )
}

/// Returns the secret of this user's runs; `None` if there is none.
pub fn find() -> Result<Option<Secret>, InputError> {
    if let Some(text) = environment::variable(VARIABLE).filter(|text| !text.trim().is_empty()) {
        return Secret::new(text.as_bytes()).map(Some).map_err(|fault| wrong(fault, VARIABLE, ""));
    }
    let Some(path) = environment::secret_file() else { return Ok(None) };
    Secret::read(&path).map_err(|fault| in_file(fault, &path))
}

fn in_file(fault: SecretFault, path: &Path) -> InputError {
    let path = path.display();
    let mend = format!("where the file is yours: `chmod 600 {path}`; else remove it");
    wrong(fault, &format!("the secret in {path}"), &mend)
}

/// The error for a secret that cannot be used. `mend` is the command that makes a file private.
fn wrong(fault: SecretFault, name: &str, mend: &str) -> InputError {
    let again = format!("create another one:\n{}", create());
    let (why, help) = match fault {
        SecretFault::TooShort => (format!("has less than {SHORTEST} characters, which can be guessed"), again),
        SecretFault::TooLong => ("is too long".to_owned(), again),
        SecretFault::Open => ("can be read or written by others, or is another user's".to_owned(), mend.to_owned()),
        SecretFault::NoFile => ("is in a link, a folder or something else that is not a file".to_owned(), again),
        SecretFault::Unreadable(why) => (format!("cannot be read: {why}"), mend.to_owned()),
    };
    InputError::Secret { why: format!("{name} {why}"), help }
}

/// The error for a secret in the arguments, where other users could see it.
pub fn on_command_line() -> InputError {
    InputError::Secret {
        why: format!(
            "`--env {VARIABLE}=…` would show the secret to every user of this host, and to its shell's history"
        ),
        help: format!(
            "set the variable itself, as in `export {VARIABLE}=$(cat FILE)`, or write the file:\n{}",
            create()
        ),
    }
}

/// The error for ranks that may be on several hosts without a secret.
pub fn missing(launcher: &Launcher) -> InputError {
    InputError::Secret {
        why: format!("the ranks connect to {}, perhaps from several hosts, and there is no secret", launcher.address),
        help: format!(
            "create one, and give every host that file, or every rank {VARIABLE} with the same text; ranks that are \
             all on this host need none with MASTER_ADDR=127.0.0.1\n{}",
            create()
        ),
    }
}
