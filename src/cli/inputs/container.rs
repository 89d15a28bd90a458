//! Bundles and records as folders: `moe.aortab/net.aorta` is the part `net.aorta` of the file `moe.aortab`.
//!
//! Every file that a command reads passes through [`inside`], so that a workload in a bundle or a record is read,
//! linked, run and reported like one in a folder, and no part is ever written to the disk.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::base::suggest;
use crate::base::threads::lock;
use crate::config::{Bundle, ConfigError};
use crate::measure::RunRecord;
use crate::syntax::LANGUAGE;

use crate::cli::error::InputError;
use crate::cli::io::files::{self, FileKind};

/// Extension of bundles.
pub const BUNDLE: &str = "aortab";

/// Extension of records.
const RECORD: &str = "json";

/// A path below a bundle or a record.
#[derive(Clone, Debug)]
pub struct ContainedPath {
    /// The bundle's or the record's file.
    pub container: PathBuf,
    pub bundle: Arc<Bundle>,
    /// Name of the part; empty for the container itself. There may be no such part.
    pub part: String,
}

impl ContainedPath {
    /// The bytes of the part; `None` if there is none.
    pub fn bytes(&self) -> Option<&[u8]> {
        self.bundle.parts.get(&self.part).map(|part| part.bytes.as_slice())
    }
}

/// True if the name is that of a bundle.
pub fn is_bundle(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == BUNDLE)
}

/// True if the path is a file that acts as a folder, by its extension.
pub fn is_container(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == BUNDLE || extension == RECORD) && path.is_file()
}

/// The file above a path that acts as a folder; `None` for an ordinary path.
fn container(path: &Path) -> Option<&Path> {
    path.ancestors().skip(1).find(|above| is_container(above))
}

/// Resolves a path that points into a bundle or a record. Returns `None` for an ordinary path, and for one that leaves the
/// container.
///
/// # Errors
///
/// The container cannot be read, holds no files, or was changed after it was bundled.
pub fn inside(path: &Path) -> Result<Option<ContainedPath>, InputError> {
    let Some(container) = container(path) else { return Ok(None) };
    let below = path.strip_prefix(container).unwrap_or(path);
    let Some(part) = normal(below) else { return Ok(None) };
    let bundle = open(container)?;
    Ok(Some(ContainedPath { container: container.to_owned(), bundle, part }))
}

/// Reads a text file, on the disk or in a container.
pub fn read(path: &Path, kind: FileKind) -> Result<String, InputError> {
    let mut text = files::text(&path.display().to_string(), read_bytes(path, kind)?)?;
    // Some editors write a byte-order mark. In workloads it is part of the text that has a hash.
    if text.starts_with('\u{feff}') && !matches!(kind, FileKind::Workload(_)) {
        text.remove(0);
    }
    Ok(text)
}

/// Reads a file of any contents, on the disk or in a container.
pub fn read_bytes(path: &Path, kind: FileKind) -> Result<Vec<u8>, InputError> {
    let name = path.display().to_string();
    let Some(inside) = inside(path)? else { return files::read_disk(path, kind) };
    match inside.bytes() {
        Some(part) => files::bytes_from(&name, part, kind),
        None => {
            let container = inside.container.display();
            let why = format!("{container} has no part `{}`", inside.part);
            let help = suggest::did_you_mean(&inside.part, inside.bundle.parts.keys().map(String::as_str));
            let help = help.unwrap_or_else(|| format!("`aorta show {container}` lists its parts"));
            Err(InputError::unreadable(name, why, Some(&help)))
        }
    }
}

/// A relative path with `/` between folders and without `.` and `..`; `None` if it leaves its folder.
pub fn normal(path: &Path) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::CurDir => {}
            Component::ParentDir => drop(parts.pop()?),
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(parts.join("/"))
}

/// The location of a file: its canonical path, or the path of a part below its container.
pub fn location(path: &Path) -> Result<PathBuf, String> {
    match inside(path).map_err(|error| error.to_string())? {
        Some(inside) => Ok(inside.container.join(inside.part)),
        None => path.canonicalize().map_err(|error| error.to_string()),
    }
}

/// True if the path is a file, on the disk or in a container.
pub fn is_file(path: &Path) -> bool {
    path.is_file() || inside(path).is_ok_and(|inside| inside.is_some_and(|inside| inside.bytes().is_some()))
}

/// Reads a bundle, or the files in a record. The same file is read once, so that all its parts belong together.
///
/// # Errors
///
/// As for [`inside`].
pub fn open(file: &Path) -> Result<Arc<Bundle>, InputError> {
    static OPENED: Mutex<Option<HashMap<PathBuf, Arc<Bundle>>>> = Mutex::new(None);
    let opened = |bundle: Option<Arc<Bundle>>| {
        let mut opened = lock(&OPENED);
        let opened = opened.get_or_insert_default();
        bundle.map(|bundle| opened.insert(file.to_owned(), bundle));
        opened.get(file).cloned()
    };
    if let Some(bundle) = opened(None) {
        return Ok(bundle);
    }
    let bundle = Arc::new(unchecked(file)?);
    let parts = bundle.changed().into_iter().map(|name| format!("`{name}`"));
    let header = bundle.is_header_changed.then(|| "its header or the names of its files".to_owned());
    let parts: Vec<String> = parts.chain(header).collect();
    if !parts.is_empty() {
        let error = ConfigError::ChangedPart { file: file.display().to_string(), parts: parts.join(", ") };
        return Err(error.into());
    }
    opened(Some(bundle.clone()));
    Ok(bundle)
}

/// Reads a bundle or the files in a record as [`open`] does, also if parts were changed.
pub fn unchecked(file: &Path) -> Result<Bundle, InputError> {
    let name = file.display().to_string();
    if file.extension().is_some_and(|extension| extension == BUNDLE) {
        let bundle = Bundle::parse(&name, &read(file, FileKind::Bundle)?)?;
        return match bundle.language > LANGUAGE {
            false => Ok(bundle),
            true => Err(InputError::NewerBundle { name, language: bundle.language, known: LANGUAGE }),
        };
    }
    let record = record(file)?;
    let Some(source) = &record.source else {
        let (workload, version) = (record.workload.name.clone(), record.aorta.clone());
        return Err(InputError::NoSource { name, workload, sha256: record.workload.sha256, version });
    };
    let no_record = |why| InputError::NoRecord { name, why: format!("in `source`, {why}") };
    source.bundle(&record.aorta).map_err(no_record)
}

/// Reads the record of a run: a file, or that of a bundle.
pub fn record(file: &Path) -> Result<RunRecord, InputError> {
    let no_record = |why: String| InputError::NoRecord { name: file.display().to_string(), why };
    let text = match is_bundle(&file.display().to_string()) {
        false => read(file, FileKind::Record)?,
        true => {
            let bundle = open(file)?;
            let part = bundle.record.as_ref().and_then(|name| bundle.parts.get(name));
            let part = part.ok_or_else(|| no_record("the bundle has no record".to_owned()))?;
            String::from_utf8_lossy(&part.bytes).into_owned()
        }
    };
    RunRecord::from_json(&text).map_err(no_record)
}

/// True if a file is a record that holds the text of its run.
pub fn is_record(file: &Path) -> bool {
    let text = read(file, FileKind::Record).unwrap_or_default();
    RunRecord::from_json(&text).is_ok_and(|record| record.source.is_some())
}

/// The path of the workload that a bundle or a record runs: `moe.aortab/moe.ron`; any other path is returned unchanged.
pub fn entry(file: &str) -> Result<String, InputError> {
    let path = Path::new(file);
    match is_container(path) {
        true => Ok(format!("{file}/{}", open(path)?.runs)),
        false => Ok(file.to_owned()),
    }
}
