//! Reads files of the disk, each with the limits of its kind.

use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::base::suggest;
use crate::base::threads::lock;

use crate::cli::error::InputError;

/// Extensions of files that a command runs or shows.
const ENDINGS: [&str; 4] = ["aorta", "ron", "aortab", "json"];

/// Maximum number of files that are compared with the name of a missing one.
const MAX_BESIDE: usize = 4096;

/// The purpose of a file that is read, which determines its limits and messages.
#[derive(Clone, Copy, Debug)]
pub enum FileKind {
    /// A workload of at most this many bytes.
    Workload(usize),
    Settings,
    Scenario,
    Profile,
    Topology,
    Expected,
    Suite,
    Record,
    /// Runs for `compare`.
    Runs,
    Plan,
    Bundle,
    Project,
}

impl FileKind {
    fn limit(self) -> usize {
        match self {
            FileKind::Workload(limit) => limit,
            FileKind::Bundle => 1 << 26,
            FileKind::Record | FileKind::Runs | FileKind::Plan => 1 << 30,
            _ => 1 << 20,
        }
    }

    /// Description of the expected file, for the error if it does not exist.
    fn wanted(self) -> &'static str {
        match self {
            FileKind::Workload(_) => "a workload file is expected",
            FileKind::Settings => "a settings file is expected",
            FileKind::Scenario => "a scenario is expected, since the name ends in `.ron`",
            FileKind::Suite => "a suite is expected, since the name is a path; `aorta suite` lists the shipped ones",
            FileKind::Expected => "a file with normal ranges is expected after `--expected=`",
            FileKind::Profile => "a device profile is expected, since the name ends in `.ron`",
            FileKind::Topology => "a topology is expected, since the name ends in `.ron`",
            FileKind::Bundle => "a bundle is expected: `aorta bundle FILE -o PATH` writes one",
            FileKind::Project => "the file of a project is expected",
            FileKind::Plan => {
                "a plan is expected, since the name ends in `.json`: `aorta plan FILE --format json` writes one"
            }
            FileKind::Runs => {
                "a record, a file of cases or a folder of them is expected: `aorta exec FILE --json PATH` writes one"
            }
            FileKind::Record => "a record is expected: `aorta exec FILE --json PATH` writes one",
        }
    }
}

/// Canonical paths of the files that this process has read, which it must not overwrite by its outputs.
static READ: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Reads a file of the disk, of any contents.
pub fn read_disk(path: &Path, kind: FileKind) -> Result<Vec<u8>, InputError> {
    let bytes = bytes_from(&path.display().to_string(), open(path, kind)?, kind)?;
    if let Ok(path) = path.canonicalize() {
        lock(&READ).insert(path);
    }
    Ok(bytes)
}

/// True if this process has read the file.
pub fn was_read(path: &Path) -> bool {
    let is_known = |path: PathBuf| lock(&READ).contains(&path);
    path.canonicalize().is_ok_and(is_known)
}

/// The file beside a missing one that was probably meant: one with its name and another extension, or with a similar name.
/// `None` if there is none.
pub fn nearest(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let entries = std::fs::read_dir(folder_of(path)).ok()?.flatten().take(MAX_BESIDE);
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| Path::new(name).extension().is_some_and(|end| ENDINGS.iter().any(|known| end == *known)));
    names.sort();
    let stem = |file: &str| Path::new(file).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
    let (stems, wanted): (Vec<String>, String) = (names.iter().map(|file| stem(file)).collect(), stem(name));
    let known = stems.iter().find(|stem| *stem == name || **stem == wanted).map(String::as_str);
    let meant = known.or_else(|| suggest::nearest(&wanted, stems.iter().map(String::as_str)))?;
    let of_stem = || names.iter().zip(&stems).filter(|(_, stem)| *stem == meant).map(|(file, _)| file);
    let ending = Path::new(name).extension();
    let near = of_stem().find(|file| Path::new(file).extension() == ending).or_else(|| of_stem().next())?;
    Some(path.with_file_name(near).display().to_string())
}

/// The folder of a file; `.` for a bare name.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Opens a file; fails for a path to anything else, such as a folder or a pipe.
fn open(path: &Path, kind: FileKind) -> Result<std::fs::File, InputError> {
    let unreadable = |why: String, help: Option<&str>| InputError::unreadable(path, why, help);
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            // Only for files named on the command line: a file must not reveal its surroundings to other files.
            let is_argument = matches!(
                kind,
                FileKind::Scenario
                    | FileKind::Suite
                    | FileKind::Bundle
                    | FileKind::Record
                    | FileKind::Runs
                    | FileKind::Plan
            );
            let near = nearest(path).filter(|_| is_argument);
            let near = near.map(|near| format!("did you mean `{near}`?"));
            unreadable("there is no such file".to_owned(), Some(near.as_deref().unwrap_or(kind.wanted())))
        }
        _ => unreadable(error.to_string(), None),
    };
    let about = std::fs::metadata(path).map_err(failed)?;
    if about.is_dir() {
        return Err(unreadable("it is a folder".to_owned(), Some("name a file in it")));
    }
    if !about.is_file() {
        // Opening a pipe without a writer, or reading a device, may block forever.
        let help = match kind {
            FileKind::Workload(_) => "give the text on standard input, with `-` in place of the file",
            _ => "name a file",
        };
        return Err(unreadable(format!("it is {}, and no file", file_type_name(&about)), Some(help)));
    }
    let is_ron = matches!(kind, FileKind::Settings | FileKind::Profile | FileKind::Topology | FileKind::Expected);
    if is_ron && path.extension().is_some_and(|ending| ending == "aorta") {
        return Err(unreadable("it is a workload".to_owned(), Some(kind.wanted())));
    }
    std::fs::File::open(path).map_err(failed)
}

/// Names the type of a path that is neither a file nor a folder.
fn file_type_name(about: &std::fs::Metadata) -> &'static str {
    let kind = about.file_type();
    match kind.is_fifo() {
        true => "a pipe",
        false if kind.is_socket() => "a socket",
        false => "a device",
    }
}

/// Reads a text; `name` identifies it in errors.
pub fn read_from(name: &str, reader: impl Read, kind: FileKind) -> Result<String, InputError> {
    text(name, bytes_from(name, reader, kind)?)
}

/// Reads bytes, as many as a file of this kind may have; `name` identifies it in errors.
pub fn bytes_from(name: &str, reader: impl Read, kind: FileKind) -> Result<Vec<u8>, InputError> {
    let unreadable = |why: String, help: Option<&str>| InputError::unreadable(name, why, help);
    let limit = kind.limit();
    let mut bytes = Vec::new();
    // Reads one byte more than allowed, which detects large files also if they have no size or are growing.
    let read = reader.take(limit as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(error.to_string(), None))?;
    if bytes.len() > limit {
        let help = "write repetition as a `for` loop, or raise the limit: `--config max_file_bytes=…`";
        let help = matches!(kind, FileKind::Workload(_)).then_some(help);
        return Err(unreadable(format!("it is larger than {limit} bytes"), help));
    }
    Ok(bytes)
}

/// First bytes of files that are no texts in UTF-8, with what they are and what to do.
const FOREIGN: [(&[u8], &str, &str); 6] = [
    (b"\x1f\x8b", "it is compressed by gzip", "unpack it with `gunzip` first"),
    (b"\x28\xb5\x2f\xfd", "it is compressed by zstd", "unpack it with `unzstd` first"),
    (b"\xfd7zXZ", "it is compressed by xz", "unpack it with `unxz` first"),
    (b"PK\x03\x04", "it is a ZIP archive", "unpack it with `unzip` first"),
    (b"\xff\xfe", "its text is in UTF-16", "save it as UTF-8"),
    (b"\xfe\xff", "its text is in UTF-16", "save it as UTF-8"),
];

/// The text of a file with these bytes.
pub fn text(name: &str, bytes: Vec<u8>) -> Result<String, InputError> {
    if let Some((_, why, help)) = FOREIGN.iter().find(|(begin, ..)| bytes.starts_with(begin)) {
        return Err(InputError::unreadable(name, why, Some(help)));
    }
    String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        let why = format!("it is not text: line {} is not UTF-8", line + 1);
        InputError::unreadable(name, why, Some("save it as UTF-8"))
    })
}
