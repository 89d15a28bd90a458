//! The file of cases. Each case is written to disk before the next one starts.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::backend;
use crate::base::{counted, hex, json, visible};
use crate::cli::environment;
use crate::cli::error::InputError;
use crate::cli::io::{output, ownership};
use crate::measure::cases::{Case, Cases, CasesHeader, TEXT_HASH};

/// An open file of cases; writes nothing if it has no path.
pub struct Journal {
    pub path: Option<PathBuf>,
    file: Option<File>,
    /// True if lines are synced to disk; false for a pipe.
    on_disk: bool,
    /// Expected length of the file in bytes, to detect other writers.
    length: u64,
}

/// An opened file of cases and its contents.
pub struct Opened {
    pub journal: Journal,
    /// Cases in the file.
    pub cases: Vec<Case>,
    /// True if the last line was truncated and has been discarded.
    pub truncated: bool,
}

/// Default path of a sweep's cases, the same for the same sweep. `None` without a home folder.
pub fn own_path(header: &CasesHeader) -> Option<PathBuf> {
    let same = CasesHeader { started: String::new(), ..header.clone() };
    let digest = hex(Sha256::digest(json::line(&same)));
    let stem = Path::new(&header.name).file_stem()?.to_str()?.to_owned();
    Some(environment::state_folder()?.join("sweeps").join(format!("{stem}-{}.jsonl", &digest[..12])))
}

/// Opens the file of a sweep.
///
/// With `resume`, the file must belong to the same sweep; its cases are kept, and an incomplete last line is cut off.
/// Otherwise the file starts empty, and a `named` file must not exist yet.
pub fn open(path: Option<PathBuf>, named: bool, header: &CasesHeader, resume: bool) -> Result<Opened, InputError> {
    let Some(path) = path else {
        let journal = Journal { path: None, file: None, on_disk: false, length: 0 };
        return Ok(Opened { journal, cases: Vec::new(), truncated: false });
    };
    let failed = |why: io::Error| InputError::unwritable(&path, why, None);
    match (named, path.parent()) {
        (true, _) => output::check_file(&path)?,
        (false, Some(folder)) => ownership::private_folder(folder).map_err(|why| failed(io::Error::other(why)))?,
        (false, None) => {}
    }
    let file = OpenOptions::new().append(true).create(true).open(&path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    let on_disk = about.is_file();
    if on_disk {
        lock(&path, &file)?;
    }
    let there = on_disk && file.metadata().map_err(failed)?.len() > 0;
    let read = if there && (resume || named) { read(&path)? } else { None };
    match &read {
        Some(read) if resume => same(&path, &read.header, header)?,
        Some(read) => return Err(is_there(&path, &read.cases)),
        None => {}
    }
    let length = read.as_ref().map_or(0, |read| read.whole as u64);
    if on_disk {
        file.set_len(length).map_err(failed)?;
    }
    let truncated = read.as_ref().is_some_and(|read| read.torn);
    let mut journal = Journal { path: Some(path), file: Some(file), on_disk, length };
    if read.is_none() {
        journal.line(&json::line(header))?;
    }
    Ok(Opened { journal, cases: read.map_or_else(Vec::new, |read| read.cases), truncated })
}

impl Journal {
    /// Appends a case. After this returns, the case survives a crash.
    pub fn append(&mut self, case: &Case) -> Result<(), InputError> {
        self.line(&json::line(case))
    }

    /// Writes a line by one call, so that after a crash the line is either complete or truncated.
    fn line(&mut self, line: &str) -> Result<(), InputError> {
        let line = &*visible::visible(line);
        let (Some(path), Some(file)) = (&self.path, &mut self.file) else { return Ok(()) };
        let full = |error: io::Error| InputError::OutputLost {
            why: format!("{} cannot be written: {error}; its cases are kept, and `--resume` continues", path.display()),
        };
        if !self.on_disk {
            return file.write_all(line.as_bytes()).and_then(|()| file.flush()).map_err(full);
        }
        if file.metadata().map_err(full)?.len() != self.length {
            let help = "let each sweep write its own file, and end the other run of this sweep";
            return Err(InputError::unwritable(path, "another program has written to it meanwhile", Some(help)));
        }
        file.write_all(line.as_bytes()).and_then(|()| file.sync_data()).map_err(full)?;
        self.length += line.len() as u64;
        Ok(())
    }
}

/// Locks the file for this process until it ends, so that two runs never write to one file. On a file system without
/// locks, `line` detects another writer.
///
/// # Errors
///
/// Another process has locked the file.
fn lock(path: &Path, file: &File) -> Result<(), InputError> {
    if backend::lock(file) {
        return Ok(());
    }
    let holder = holder(file).map_or("another process".to_owned(), |process| format!("process {process}"));
    Err(InputError::CasesBusy { name: path.display().to_string(), holder })
}

/// The id of the process that has locked the file; `None` if the system does not list it.
fn holder(file: &File) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let inode = file.metadata().ok()?.ino().to_string();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    // `1: FLOCK  ADVISORY  WRITE 4711 08:02:1234 0 EOF`: process id, and device and inode of the file.
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let same = words.get(1) == Some(&"FLOCK") && words.get(5)?.rsplit(':').next() == Some(inode.as_str());
        words.get(4).filter(|_| same)?.parse().ok().filter(|process| *process > 0)
    })
}

/// Reads a file of cases; `None` if it has no complete line.
fn read(path: &Path) -> Result<Option<Cases>, InputError> {
    let file = File::open(path).map_err(|why| InputError::unreadable(path, why, None))?;
    Cases::read(BufReader::new(file), Case::light).map_err(|why| InputError::NoCases {
        name: path.display().to_string(),
        why,
        is_record: false,
    })
}

fn is_there(path: &Path, cases: &[Case]) -> InputError {
    let name = path.display();
    InputError::CasesThere { name: name.to_string(), has: counted(cases.len(), "case") }
}

/// Fails if a file belongs to another sweep. The error names the difference.
fn same(path: &Path, there: &CasesHeader, now: &CasesHeader) -> Result<(), InputError> {
    let differences = there.differences(now);
    let said = differences.iter().map(|(what, was, is)| match *what {
        TEXT_HASH => format!("the text of {} has changed", now.name),
        what => format!("{what} was `{was}` and is `{is}`"),
    });
    let differences: Vec<String> = said.collect();
    match differences.is_empty() {
        true => Ok(()),
        false => Err(InputError::OtherSweep { name: path.display().to_string(), differences: differences.join("; ") }),
    }
}
