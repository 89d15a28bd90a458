//! Where text goes.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::path::{Path, PathBuf};

use crate::render::Style;

use super::error::InputError;

/// Writes to standard output. A reader that has gone away is no mistake.
pub fn print(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Writes to standard output what is too long to be held as one text.
pub fn stream(write: impl FnOnce(&mut BufWriter<StdoutLock>) -> io::Result<()>) {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let _ = write(&mut out).and_then(|()| out.flush());
}

/// Writes to standard error.
pub fn eprint(text: &str) {
    let mut out = io::stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// How diagnostics look on standard error.
pub fn error_style() -> Style {
    let color = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    Style { color, ..Style::default() }
}

/// What a path to write to stands for.
enum Target {
    /// A regular file, there or not yet, and the folder that it lies in.
    File { folder: PathBuf, path: PathBuf },
    /// A pipe, a terminal, a file that is open already: it takes what it is given.
    Stream,
}

/// Links that may follow each other.
const MAX_LINKS: u32 = 40;

fn target(path: &Path) -> Result<Target, InputError> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => return Err(unwritable(path, "it is a folder", Some("name a file in it"))),
        Ok(found) if !found.is_file() => return Ok(Target::Stream),
        Err(error) if error.kind() == io::ErrorKind::InvalidFilename => {
            return Err(unwritable(path, &reason(&error), None));
        }
        _ => {}
    }
    let mut place = path.to_owned();
    for _ in 0..MAX_LINKS {
        let folder = existing_folder(path, &folder_of(&place))?;
        let Some(name) = place.file_name() else { return Err(unwritable(path, "it names no file", None)) };
        let file = folder.join(name);
        // `/dev/stdout` leads here, also where it is a file: that file stays open.
        if file.starts_with("/proc") {
            return Ok(Target::Stream);
        }
        match std::fs::read_link(&file) {
            Ok(next) => place = folder.join(next),
            Err(_) => return Ok(Target::File { folder, path: file }),
        }
    }
    Err(unwritable(path, "its links lead in a circle", None))
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// The folder without links on the way. `path` is what should be written into it.
fn existing_folder(path: &Path, folder: &Path) -> Result<PathBuf, InputError> {
    let name = folder.display();
    match std::fs::canonicalize(folder) {
        Ok(folder) if folder.is_dir() => Ok(folder),
        Ok(_) => Err(unwritable(path, &format!("`{name}` is no folder"), None)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(unwritable(path, &format!("the folder `{name}` does not exist"), Some("make the folder first")))
        }
        Err(error) => Err(unwritable(path, &reason(&error), None)),
    }
}

fn unwritable(path: &Path, why: &str, help: Option<&str>) -> InputError {
    InputError::Unwritable { name: path.display().to_string(), why: why.to_owned(), help: help.map(str::to_owned) }
}

/// The system's reason, without the name of a temporary file.
fn reason(error: &io::Error) -> String {
    error.get_ref().and_then(|inner| inner.source()).map_or_else(|| error.to_string(), ToString::to_string)
}

fn temporary(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    tempfile::Builder::new().prefix(".aorta-").tempfile_in(folder)
}

/// Fails where [`write_file`] would, as far as that can be known before.
pub fn check_file(path: &Path) -> Result<(), InputError> {
    if let Target::File { folder, .. } = target(path)? {
        temporary(&folder).map_err(|error| unwritable(path, &reason(&error), None))?;
    }
    Ok(())
}

/// Fails where the folder is none, or cannot be made or written into, as far as that can be known before.
pub fn check_folder(path: &Path) -> Result<(), InputError> {
    // What is missing is made; what is there has to be a folder.
    let there = path.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("."));
    let folder = existing_folder(path, there)?;
    temporary(&folder).map_err(|error| unwritable(path, &reason(&error), None))?;
    Ok(())
}

/// Makes a folder and those that it lies in.
pub fn make_folder(path: &Path) -> Result<(), InputError> {
    std::fs::create_dir_all(path).map_err(|error| unwritable(path, &reason(&error), None))
}

/// Writes a whole file or nothing: to a temporary one beside it, which then takes its place. What is no regular file
/// is written to as it is.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), InputError> {
    let written = match target(path)? {
        Target::Stream => write_stream(path, bytes),
        Target::File { folder, path } => replace(&folder, &path, bytes, None),
    };
    written.map_err(|error| unwritable(path, &reason(&error), None))
}

/// The same for a file that has been read: who may do what with it stays, and one that nobody may write is not
/// written.
pub fn rewrite_file(path: &Path, bytes: &[u8]) -> Result<(), InputError> {
    let failed = |error: io::Error| unwritable(path, &reason(&error), None);
    let Target::File { folder, path: file } = target(path)? else {
        return Err(unwritable(path, "it is no regular file", Some("`-` stands for standard input and output")));
    };
    let permissions = std::fs::metadata(&file).map_err(failed)?.permissions();
    if permissions.readonly() {
        return Err(unwritable(path, "it is read-only", None));
    }
    replace(&folder, &file, bytes, Some(permissions)).map_err(failed)
}

fn write_stream(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // What has been printed to a file that is standard output stays.
    let mut stream = std::fs::OpenOptions::new().append(true).open(path)?;
    match stream.write_all(bytes) {
        // As on standard output: the reader may have seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

fn replace(folder: &Path, path: &Path, bytes: &[u8], permissions: Option<std::fs::Permissions>) -> io::Result<()> {
    let mut file = temporary(folder)?;
    file.write_all(bytes)?;
    // Temporary files are private; the result is an ordinary one.
    #[cfg(unix)]
    let permissions = permissions.or_else(|| Some(std::os::unix::fs::PermissionsExt::from_mode(0o644)));
    if let Some(permissions) = permissions {
        file.as_file().set_permissions(permissions)?;
    }
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
