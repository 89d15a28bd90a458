//! Where text goes.

use std::io::{IsTerminal, Write};
use std::path::Path;

use crate::render::Style;

use super::error::InputError;

/// Writes to standard output. A reader that has gone away is no mistake.
pub fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Writes to standard error.
pub fn eprint(text: &str) {
    let mut out = std::io::stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// How diagnostics look on standard error.
pub fn error_style() -> Style {
    let color = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    Style { color, ..Style::default() }
}

/// Writes a whole file or nothing: to a temporary one beside it, which then takes its place.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), InputError> {
    let unwritable =
        |why: std::io::Error| InputError::Unwritable { name: path.display().to_string(), why: why.to_string() };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut file = tempfile::Builder::new().prefix(".aorta-").tempfile_in(folder).map_err(unwritable)?;
    file.write_all(bytes).map_err(unwritable)?;
    // Temporary files are private; the result is an ordinary one.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644)).map_err(unwritable)?;
    }
    file.persist(path).map_err(|error| unwritable(error.error))?;
    Ok(())
}
