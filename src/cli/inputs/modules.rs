//! Finds the files of modules, traces and data: in the folder of the workload that uses them or below it, or in its project.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

use crate::compile::{COMPILED, DATA, METADATA, ModuleText, SOURCES, standard_module};
use crate::ops::DataFile;

use super::{container, project};
use crate::cli::io::files::folder_of;

/// The workload that uses modules.
pub struct User<'a> {
    /// Name of the workload in messages.
    pub name: &'a str,
    /// File that the workload was read from; `None` for standard input and shipped workloads.
    pub file: Option<&'a Path>,
}

/// Returns the text of the module or trace at `path`, the code of a kernel, or the location of a data file. `by` is the
/// module that uses it; `None` for the workload itself. `read` returns the text of a file, and `read_code` the bytes of
/// compiled code.
///
/// # Errors
///
/// The reason why the file cannot be used. With links resolved, the file lies in the folder of the workload or of its
/// project, or below, so that an untrusted workload cannot read other files.
pub fn find(
    user: &User,
    path: &str,
    by: Option<&str>,
    read: impl Fn(&Path) -> Result<String, String>,
    read_code: impl Fn(&Path) -> Result<Vec<u8>, String>,
) -> Result<ModuleText, String> {
    if let Some(found) = standard_module(path) {
        return found;
    }
    let is_compiled = COMPILED.iter().any(|ending| path.ends_with(ending));
    let is_source = SOURCES.iter().chain([&METADATA]).any(|ending| path.ends_with(ending));
    let is_data = path.ends_with(DATA);
    // A module, and the source of draws, kernels and operations, is checked where it is used; other files are rejected
    // here.
    if !path.ends_with(".aorta") && !path.ends_with(".csv") && !is_compiled && !is_source && !is_data {
        return Err("the name of a module's file ends in `.aorta`".to_owned());
    }
    let Some(file) = user.file else {
        return Err(format!("{} has no folder in which to look for it", user.name));
    };
    if by.is_some_and(|by| by.starts_with("std/")) {
        return Err("a shipped module uses shipped ones only".to_owned());
    }
    let own = folder_of(file);
    let wanted = by.map_or(own, |by| folder_of(Path::new(by))).join(path);
    if Path::new(path).is_absolute() {
        return Err(OUTSIDE.to_owned());
    }
    let inside = container::inside(file).map_err(|error| error.to_string())?;
    let locate = |root: &Path| match inside {
        Some(_) => in_container(root, &wanted),
        None => on_disk(root, &wanted, path),
    };
    let shown = match locate(own) {
        Err(why) if why == OUTSIDE => {
            // A bundle or a record has all its files in one place, as a project does.
            let project = inside.as_ref().map(|inside| inside.container.clone()).or_else(|| project::folder(own));
            let project = project.ok_or(why)?;
            let project = if project.as_os_str().is_empty() { Path::new(".") } else { &project };
            locate(project).map_err(|why| if why == OUTSIDE { OUTSIDE_PROJECT.to_owned() } else { why })?
        }
        found => found?,
    };
    let name = shown.display().to_string();
    let found = ModuleText::text(name, String::new());
    Ok(match () {
        () if is_data => ModuleText { data: Some(data_file(&shown)?.into()), ..found },
        () if is_compiled => ModuleText { code: Some(read_code(&shown)?.into()), ..found },
        () => ModuleText { text: read(&shown)?, ..found },
    })
}

/// Reasons for not reading a file: without a project, and within one.
const OUTSIDE: &str = "it is outside of the workload's folder";
const OUTSIDE_PROJECT: &str = "it is outside of the workload's project";

const MISSING: &str = "there is no such file";

/// The path of a part in the folder `root` of a bundle or a record.
fn in_container(root: &Path, wanted: &Path) -> Result<PathBuf, String> {
    let below = wanted.strip_prefix(root).ok().and_then(container::normal).ok_or(OUTSIDE)?;
    let path = root.join(below);
    if container::is_file(&path) { Ok(path) } else { Err(MISSING.to_owned()) }
}

/// The path of a file in the folder `root` of a workload, which names it `written`.
fn on_disk(root: &Path, wanted: &Path, written: &str) -> Result<PathBuf, String> {
    let real_root = root.canonicalize().map_err(|error| error.to_string())?;
    let Ok(real) = wanted.canonicalize() else {
        // The message must not reveal whether a file exists elsewhere.
        let leaves = Path::new(written).components().any(|part| part == Component::ParentDir);
        let folder = wanted.parent().and_then(|folder| folder.canonicalize().ok());
        let is_here = folder.is_some_and(|folder| folder.starts_with(&real_root));
        return Err(if leaves && !is_here { OUTSIDE } else { MISSING }.to_owned());
    };
    let Ok(inside) = real.strip_prefix(&real_root) else { return Err(OUTSIDE.to_owned()) };
    if inside.components().any(|part| part.as_os_str().as_encoded_bytes().starts_with(b".")) {
        return Err("it is hidden, or lies in a hidden folder".to_owned());
    }
    Ok(if root == Path::new(".") { inside.to_owned() } else { root.join(inside) })
}

/// A file with data, which is read only when the workload runs.
fn data_file(shown: &Path) -> Result<DataFile, String> {
    if let Some(inside) = container::inside(shown).map_err(|error| error.to_string())? {
        let bytes = inside.bytes().map_or(0, <[u8]>::len) as u64;
        return Ok(DataFile { path: shown.to_owned(), bytes, read: read_part });
    }
    let path = shown.canonicalize().map_err(|error| error.to_string())?;
    let about = path.metadata().map_err(|error| error.to_string())?;
    match about.is_file() {
        true => Ok(DataFile { path, bytes: about.len(), read: read_part }),
        false => Err("it is no ordinary file".to_owned()),
    }
}

fn read_part(path: &Path, offset: u64, bytes: &mut [u8]) -> Result<(), String> {
    if let Some(inside) = container::inside(path).map_err(|error| error.to_string())? {
        let from = usize::try_from(offset).ok().and_then(|from| inside.bytes()?.get(from..)?.get(..bytes.len()));
        bytes.copy_from_slice(from.ok_or("it is too short")?);
        return Ok(());
    }
    let mut file = File::open(path).map_err(|error| error.to_string())?;
    let read = file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_exact(bytes));
    read.map_err(|error| error.to_string())
}
