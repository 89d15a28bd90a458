//! Writes all text that leaves the program, to the terminal and to files. This is the only place that escapes hidden
//! characters.

use std::io::{self, IsTerminal, StdoutLock, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::backend::terminal_columns;
use crate::base::visible;
use crate::render::Style;
use crate::report::page::wrapped;

use super::{files, ownership};
use crate::cli::error::InputError;

/// The first failure to write to standard output or standard error. The program continues, so that a run still writes
/// its record, and reports the loss at its end.
static LOST: OnceLock<String> = OnceLock::new();

/// Prints text for people to standard output, escaped so that it cannot contain commands to a terminal or to GitHub.
pub fn print(text: &str) {
    put(io::stdout().lock(), "standard output", &visible::without_workflow_commands(text));
}

/// Prints data for programs: the text of a file, or intended commands of GitHub's workflows.
pub fn print_data(text: &str) {
    put(io::stdout().lock(), "standard output", &visible::visible(text));
}

/// Streams text to standard output that is too long to be held in memory.
pub fn stream(write: impl FnOnce(&mut VisibleWriter<StdoutLock>) -> io::Result<()>) {
    let mut out = VisibleWriter { inner: io::stdout().lock(), pending: Vec::new() };
    note("standard output", write(&mut out).and_then(|()| out.finish()));
}

/// Prints text for people to standard error.
pub fn eprint(text: &str) {
    put(io::stderr().lock(), "standard error", &visible::without_workflow_commands(text));
}

/// Prints text coloured by [`error_style`] to standard error: colour sequences are kept, everything else is escaped.
pub fn eprint_styled(text: &str) {
    // Only text between escape characters can contain hidden characters that are not intended.
    let parts: Vec<_> = text.split('\x1b').map(visible::visible).collect();
    put(io::stderr().lock(), "standard error", &parts.join("\x1b"));
}

fn put(mut out: impl Write, name: &str, text: &str) {
    note(name, out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// Records a failure. A closed pipe is no failure, since its reader needs no more output.
fn note(name: &str, written: io::Result<()>) {
    if let Err(error) = unless_closed(written) {
        let _ = LOST.set(format!("{name} cannot be written: {error}"));
    }
}

/// The error about lost output; `None` if all text was printed.
pub fn lost_output() -> Option<InputError> {
    LOST.get().map(|why| InputError::OutputLost { why: why.clone() })
}

/// Treats a closed pipe as success.
fn unless_closed(written: io::Result<()>) -> io::Result<()> {
    written.or_else(|error| if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
}

/// Bytes that [`VisibleWriter`] buffers before writing.
const PENDING: usize = 1 << 16;

/// A writer that escapes hidden characters.
pub struct VisibleWriter<W> {
    inner: W,
    /// Bytes not yet written, at least those of an incomplete character.
    pending: Vec<u8>,
}

impl<W: Write> VisibleWriter<W> {
    /// Writes all complete characters.
    fn pass(&mut self) -> io::Result<()> {
        let whole = match std::str::from_utf8(&self.pending) {
            // A carriage return is only escaped if no line feed follows, so it stays until the next character is known.
            Ok(text) => text.strip_suffix('\r').unwrap_or(text).len(),
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no text")),
        };
        let rest = self.pending.split_off(whole);
        let text = std::str::from_utf8(&self.pending).unwrap_or_default();
        self.inner.write_all(visible::visible(text).as_bytes())?;
        self.pending = rest;
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        self.pass()?;
        let rest = String::from_utf8_lossy(&self.pending).into_owned();
        self.inner.write_all(visible::visible(&rest).as_bytes())?;
        self.inner.flush()
    }
}

impl<W: Write> Write for VisibleWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= PENDING {
            self.pass()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pass()?;
        self.inner.flush()
    }
}

/// Width of drawings in letters where the output is no terminal, in characters.
const WIDTH: usize = 80;

/// Number of characters in a line: the variable `COLUMNS`, or the width of the terminal that standard output is; `None`
/// for a file or a pipe.
pub fn columns() -> Option<usize> {
    columns_variable().or_else(|| terminal_columns(io::stdout())).filter(|columns| *columns > 0)
}

/// The number in the variable `COLUMNS`; `None` if it is not set, or not a number.
fn columns_variable() -> Option<usize> {
    std::env::var("COLUMNS").ok().and_then(|text| text.trim().parse().ok())
}

/// Width of drawings in letters, in characters.
pub fn width() -> usize {
    columns().unwrap_or(WIDTH)
}

/// Least width of a diagnostic, in characters.
const MIN_WIDTH: usize = 40;

/// Least room beside a name for the text about it, in characters.
const MIN_ROOM: usize = 24;

/// A line of a list: a name, padded to a width, and a text about it. In a window the text is broken into lines below each
/// other, below the name if the window is narrow or the name is long.
pub fn row(name: &str, width: usize, about: &str) -> String {
    let Some(columns) = columns() else { return format!("  {name:width$}  {about}").trim_end().to_owned() + "\n" };
    let indent = width + 4;
    let beside = columns.saturating_sub(indent) >= MIN_ROOM && name.chars().count() <= width;
    let lines = |text: &str, indent: usize| {
        wrapped(text, columns.saturating_sub(indent).max(1)).join(&format!("\n{:indent$}", ""))
    };
    let text = match beside {
        true => format!("  {name:width$}  {}", lines(about, indent)),
        false => format!("  {}\n      {}", lines(name, 2), lines(about, 6)),
    };
    text.trim_end().to_owned() + "\n"
}

/// Formats a paragraph: on a terminal, lines are wrapped at its width; otherwise, and for lists, they stay as they are.
pub fn paragraph<T: AsRef<str>>(lines: &[T]) -> String {
    let is_list = lines.iter().any(|line| line.as_ref().trim_start().starts_with("- "));
    let joined = || lines.iter().map(|line| line.as_ref().trim()).collect::<Vec<_>>().join(" ");
    let lines = match columns() {
        Some(columns) if !is_list && !lines.is_empty() => wrapped(&joined(), columns),
        _ => lines.iter().map(|line| line.as_ref().to_owned()).collect(),
    };
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Style of diagnostics on standard error.
pub fn error_style() -> Style {
    let color = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let style = Style::default();
    let columns = columns_variable().or_else(|| terminal_columns(io::stderr())).filter(|columns| *columns > 0);
    Style { color, width: columns.map_or(style.width, |columns| columns.clamp(MIN_WIDTH, style.width)) }
}

/// The file that a path to write to refers to.
enum OutputFile {
    /// A regular file, existing or not, and its folder.
    File { folder: PathBuf, path: PathBuf },
    /// A pipe, a terminal, or a file that is open already: written to directly.
    Stream,
}

/// Maximum length of a chain of links.
const MAX_LINKS: u32 = 40;

fn target(path: &Path) -> Result<OutputFile, InputError> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => {
            return Err(InputError::unwritable(path, "it is a folder", Some("name a file in it")));
        }
        Ok(found) if !found.is_file() => return Ok(OutputFile::Stream),
        Err(error) if error.kind() == io::ErrorKind::InvalidFilename => {
            return Err(InputError::unwritable(path, reason(&error), None));
        }
        _ => {}
    }
    let mut existing = path.to_owned();
    for _ in 0..MAX_LINKS {
        let folder = existing_folder(path, files::folder_of(&existing))?;
        let Some(name) = existing.file_name() else {
            return Err(InputError::unwritable(path, "it names no file", None));
        };
        let file = folder.join(name);
        // `/dev/stdout` resolves to a path below `/proc` even if it is a regular file, which must stay open.
        if file.starts_with("/proc") {
            return Ok(OutputFile::Stream);
        }
        match std::fs::read_link(&file) {
            Ok(_) if !ownership::may_follow(&file, &folder) => {
                let why = "it is another user's link in a folder that everybody may write to";
                return Err(InputError::unwritable(path, why, Some("name a file in a folder of your own")));
            }
            Ok(next) => existing = folder.join(next),
            Err(_) => return Ok(OutputFile::File { folder, path: file }),
        }
    }
    Err(InputError::unwritable(path, "its links form a cycle", None))
}

/// The folder with all links resolved. `path` is the file to be written, for errors.
fn existing_folder(path: &Path, folder: &Path) -> Result<PathBuf, InputError> {
    let name = folder.display();
    match std::fs::canonicalize(folder) {
        Ok(folder) if folder.is_dir() => Ok(folder),
        Ok(_) => Err(InputError::unwritable(path, format!("`{name}` is no folder"), None)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(InputError::unwritable(
            path,
            format!("the folder `{name}` does not exist"),
            Some("make the folder first"),
        )),
        Err(error) => Err(InputError::unwritable(path, reason(&error), None)),
    }
}

/// The system's reason, without the name of a temporary file.
fn reason(error: &io::Error) -> String {
    error.get_ref().and_then(|inner| inner.source()).map_or_else(|| error.to_string(), ToString::to_string)
}

/// The error for a file that could be opened but not written; its contents are lost.
fn lost_file(path: &Path, error: &io::Error) -> InputError {
    InputError::OutputLost { why: format!("{} cannot be written: {}", path.display(), reason(error)) }
}

/// Creates a temporary file with the mode of a new file: `mode` without the umask.
fn temporary(folder: &Path, mode: u32) -> io::Result<tempfile::NamedTempFile> {
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
    tempfile::Builder::new().prefix(".aorta-").permissions(permissions).tempfile_in(folder)
}

/// Mode of a file that only its user may read.
const PRIVATE: u32 = 0o600;

/// Mode of a new file before the umask applies.
const ORDINARY: u32 = 0o666;

/// Fails if [`write_file`] would fail, as far as that can be known in advance.
pub fn check_file(path: &Path) -> Result<(), InputError> {
    if let OutputFile::File { folder, path: file } = target(path)? {
        check_not_read(path, &file)?;
        temporary(&folder, PRIVATE).map_err(|error| InputError::unwritable(path, reason(&error), None))?;
    }
    Ok(())
}

/// Fails if the folder cannot be created or written to, as far as that can be known in advance.
pub fn check_folder(path: &Path) -> Result<(), InputError> {
    // Missing folders will be created; the nearest existing path must be a folder.
    let there = path.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("."));
    let folder = existing_folder(path, there)?;
    temporary(&folder, PRIVATE).map_err(|error| InputError::unwritable(path, reason(&error), None))?;
    Ok(())
}

/// Creates a folder and its parents.
pub fn make_folder(path: &Path) -> Result<(), InputError> {
    std::fs::create_dir_all(path).map_err(|error| InputError::unwritable(path, reason(&error), None))
}

/// Writes text as [`write_file`] does, with hidden characters escaped. Fails if the command reads the file.
pub fn write_text(path: &Path, text: &str) -> Result<(), InputError> {
    if let OutputFile::File { path: file, .. } = target(path)? {
        check_not_read(path, &file)?;
    }
    write_file(path, visible::visible(text).as_bytes())
}

/// Appends text to a file, with hidden characters escaped. Creates the file if it does not exist.
pub fn append_text(path: &Path, text: &str) -> Result<(), InputError> {
    let opened = std::fs::OpenOptions::new().append(true).create(true).open(path);
    let mut file = opened.map_err(|error| InputError::unwritable(path, reason(&error), None))?;
    file.write_all(visible::visible(text).as_bytes()).map_err(|error| lost_file(path, &error))
}

/// Replaces a file atomically, by a temporary file in the same folder. A new file gets the mode that the umask leaves;
/// an existing file keeps its mode, and its owner if the system allows it. Anything but a regular file is written to
/// directly.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), InputError> {
    match target(path)? {
        OutputFile::Stream => write_stream(path, bytes),
        OutputFile::File { folder, path: file } => replace(path, &folder, &file, bytes),
    }
}

/// Fails if an output would replace an input of the command.
fn check_not_read(path: &Path, file: &Path) -> Result<(), InputError> {
    match files::was_read(file) {
        true => Err(InputError::unwritable(path, "this command reads it", Some("name another file for the output"))),
        false => Ok(()),
    }
}

/// Writes text to a new file in the folder for temporary files, with hidden characters escaped. Only its user may read
/// it. Returns its path; nothing deletes it.
pub fn write_temporary(suffix: &str, text: &str) -> Result<PathBuf, InputError> {
    let folder = std::env::temp_dir();
    let failed =
        |error: &io::Error| InputError::unwritable(&folder, reason(error), Some("`--output PATH` names another file"));
    let mut file =
        tempfile::Builder::new().prefix("aorta-").suffix(suffix).tempfile().map_err(|error| failed(&error))?;
    file.write_all(visible::visible(text).as_bytes()).map_err(|error| lost_file(file.path(), &error))?;
    Ok(file.keep().map_err(|error| failed(&error.error))?.1)
}

/// Replaces a file that has been read. Fails if the file is read-only.
pub fn rewrite_file(path: &Path, bytes: &[u8]) -> Result<(), InputError> {
    let OutputFile::File { folder, path: file } = target(path)? else {
        return Err(InputError::unwritable(
            path,
            "it is no regular file",
            Some("`-` stands for standard input and output"),
        ));
    };
    let about = std::fs::metadata(&file).map_err(|error| InputError::unwritable(path, reason(&error), None))?;
    if about.permissions().readonly() {
        return Err(InputError::unwritable(path, "it is read-only", None));
    }
    replace(path, &folder, &file, bytes)
}

fn write_stream(path: &Path, bytes: &[u8]) -> Result<(), InputError> {
    // Text already printed to a file that is standard output must be kept.
    let opened = std::fs::OpenOptions::new().append(true).open(path);
    let mut stream = opened.map_err(|error| InputError::unwritable(path, reason(&error), None))?;
    unless_closed(stream.write_all(bytes)).map_err(|error| lost_file(path, &error))
}

/// Replaces `file` in `folder`. `path` is the user's name of the file.
fn replace(path: &Path, folder: &Path, file: &Path, bytes: &[u8]) -> Result<(), InputError> {
    let before = std::fs::metadata(file).ok();
    // Until the file has the mode of the one that it replaces, only its user may read it.
    let mode = if before.is_some() { PRIVATE } else { ORDINARY };
    let mut temporary = temporary(folder, mode).map_err(|error| match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => lost_file(path, &error),
        _ => InputError::unwritable(path, reason(&error), None),
    })?;
    let written = temporary.write_all(bytes).and_then(|()| match &before {
        Some(before) => ownership::take_over(temporary.as_file(), before),
        None => Ok(()),
    });
    // After a crash of the machine, the file is either the old or the new one, and never empty.
    written.and_then(|()| temporary.as_file().sync_data()).map_err(|error| lost_file(path, &error))?;
    temporary.persist(file).map_err(|error| lost_file(path, &error.error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_found_however_the_text_is_cut() {
        let text = "a\u{1b}[31mé\u{202e}漢\r\nb\rc\r";
        for size in 1..=text.len() {
            let mut writer = VisibleWriter { inner: Vec::new(), pending: Vec::new() };
            for piece in text.as_bytes().chunks(size) {
                writer.write_all(piece).unwrap();
                writer.pass().unwrap();
            }
            writer.pass().unwrap();
            let mut out = std::mem::take(&mut writer.inner);
            out.extend(visible::visible(std::str::from_utf8(&writer.pending).unwrap()).as_bytes());
            assert_eq!(String::from_utf8(out).unwrap(), visible::visible(text), "pieces of {size} bytes");
        }
    }
}
