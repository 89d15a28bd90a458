//! The file that a sweep writes its cases to, one after the other, each on the disk before the next begins.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

use crate::backend;
use crate::base::{counted, shell, visible};
use crate::cli::error::InputError;
use crate::cli::{environment, output, own};
use crate::measure::cases::{self, Axis, Case, Cases, Header};

use super::axes::typed;

/// An open file of cases. Without a path, nothing is kept.
pub struct Journal {
    pub path: Option<PathBuf>,
    file: Option<File>,
    /// Lines reach the disk. A pipe has none.
    on_disk: bool,
    /// The bytes that the file has, by what this program knows of it.
    length: u64,
}

/// What a file has before a sweep begins.
pub struct Opened {
    pub journal: Journal,
    /// The cases that it has.
    pub cases: Vec<Case>,
    /// Its last line was not whole, and is gone.
    pub torn: bool,
}

/// Where a sweep is kept for which nobody has said where: the same place for the same sweep. Nothing where there is no
/// home.
pub fn own_path(header: &Header) -> Option<PathBuf> {
    let same = Header { started: String::new(), ..header.clone() };
    let digest = super::sha256(cases::line(&same).as_bytes());
    let stem = Path::new(&header.name).file_stem()?.to_str()?.to_owned();
    Some(environment::state_folder()?.join("sweeps").join(format!("{stem}-{}.jsonl", &digest[..12])))
}

/// Opens a file for a sweep.
///
/// With `resume`, what it has is kept, and has to be of the same sweep; a line that was not ended is cut off. Without,
/// the file begins anew: one that somebody has `named` must not be there yet.
pub fn open(path: Option<PathBuf>, named: bool, header: &Header, resume: bool) -> Result<Opened, InputError> {
    let Some(path) = path else {
        let journal = Journal { path: None, file: None, on_disk: false, length: 0 };
        return Ok(Opened { journal, cases: Vec::new(), torn: false });
    };
    let failed = |why: std::io::Error| InputError::Unwritable {
        name: path.display().to_string(),
        why: why.to_string(),
        help: None,
    };
    match (named, path.parent()) {
        (true, _) => output::check_file(&path)?,
        (false, Some(folder)) => own::private_folder(folder).map_err(|why| failed(io::Error::other(why)))?,
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
    let torn = read.as_ref().is_some_and(|read| read.torn);
    let mut journal = Journal { path: Some(path), file: Some(file), on_disk, length };
    if read.is_none() {
        journal.line(&cases::line(header))?;
    }
    Ok(Opened { journal, cases: read.map_or_else(Vec::new, |read| read.cases), torn })
}

impl Journal {
    /// Appends a case. When this comes back, a crash can no longer take it away.
    pub fn append(&mut self, case: &Case) -> Result<(), InputError> {
        self.line(&cases::line(case))
    }

    /// One write for a line: it is there whole, or its end is missing.
    fn line(&mut self, line: &str) -> Result<(), InputError> {
        let line = &*visible::visible(line);
        let (Some(path), Some(file)) = (&self.path, &mut self.file) else { return Ok(()) };
        let unwritable = |why: String, help: &str| InputError::Unwritable {
            name: path.display().to_string(),
            why,
            help: Some(help.to_owned()),
        };
        let full = |error: io::Error| InputError::OutputLost {
            why: format!("{} cannot be written: {error}; its cases stay, and `--resume` goes on", path.display()),
        };
        if !self.on_disk {
            return file.write_all(line.as_bytes()).and_then(|()| file.flush()).map_err(full);
        }
        if file.metadata().map_err(full)?.len() != self.length {
            let help = "let each sweep write a file of its own, and end this one's other run";
            return Err(unwritable("another program has written to it meanwhile".to_owned(), help));
        }
        file.write_all(line.as_bytes()).and_then(|()| file.sync_data()).map_err(full)?;
        self.length += line.len() as u64;
        Ok(())
    }
}

/// Takes the file for this process until it ends, so that two runs never write to one file. Where the file system knows
/// no locks, a foreign line is found when the next one is written.
///
/// # Errors
/// Another process has it.
fn lock(path: &Path, file: &File) -> Result<(), InputError> {
    if backend::lock(file) {
        return Ok(());
    }
    let holder = holder(file).map_or("another process".to_owned(), |process| format!("process {process}"));
    Err(InputError::CasesBusy { name: path.display().to_string(), holder })
}

/// The process that has locked the file, as the system lists it; `None` where it does not.
#[cfg(unix)]
fn holder(file: &File) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let inode = file.metadata().ok()?.ino().to_string();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    // `1: FLOCK  ADVISORY  WRITE 4711 08:02:1234 0 EOF`: the process, and the device and the inode of the file.
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let same = words.get(1) == Some(&"FLOCK") && words.get(5)?.rsplit(':').next() == Some(inode.as_str());
        words.get(4).filter(|_| same)?.parse().ok().filter(|process| *process > 0)
    })
}

#[cfg(not(unix))]
fn holder(_file: &File) -> Option<u32> {
    None
}

/// Reads a file of cases. Nothing where it has no whole line.
fn read(path: &Path) -> Result<Option<Cases>, InputError> {
    let unreadable = |why: std::io::Error| InputError::Unreadable {
        name: path.display().to_string(),
        why: why.to_string(),
        help: None,
    };
    let file = File::open(path).map_err(unreadable)?;
    Cases::read(BufReader::new(file), Case::light)
        .map_err(|why| InputError::NoCases { name: path.display().to_string(), why })
}

fn is_there(path: &Path, cases: &[Case]) -> InputError {
    let name = path.display();
    InputError::CasesThere { name: name.to_string(), has: counted(cases.len(), "case") }
}

/// Fails where a file is of another sweep, and says what differs.
fn same(path: &Path, there: &Header, now: &Header) -> Result<(), InputError> {
    let mut differences = Vec::new();
    let mut differ = |what: &str, there: &str, now: &str| {
        if there != now {
            differences.push(format!("{what} was `{there}` and is `{now}`"));
        }
    };
    let kind = |header: &Header| format!("{:?}", header.kind).to_lowercase();
    let axes = |axes: &[Axis]| axes.iter().map(typed).collect::<Vec<_>>().join(" ");
    let zip = |header: &Header| if header.zip { "--zip" } else { "each with each" };
    differ("the kind of file", &kind(there), &kind(now));
    differ("the workload", &there.name, &now.name);
    differ("the version of aorta", &there.aorta, &now.aorta);
    differ("the command", &shell::command(&there.arguments), &shell::command(&now.arguments));
    differ("what varies", &axes(&there.axes), &axes(&now.axes));
    differ("the way through the axes", zip(there), zip(now));
    if there.sha256 != now.sha256 && there.name == now.name {
        differences.push(format!("the text of {} has changed", now.name));
    }
    match differences.is_empty() {
        true => Ok(()),
        false => Err(InputError::OtherSweep { name: path.display().to_string(), differences: differences.join("; ") }),
    }
}
