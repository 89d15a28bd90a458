//! The project of a file or of the current folder, and the library that it names.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::config::{PROJECT_FILE, Project};

use super::container;
use crate::cli::error::InputError;
use crate::cli::io::files::FileKind;
use crate::cli::io::{output, ownership};

/// Largest number of files of a project's library.
const MAX_FILES: usize = 4096;

/// Largest number of entries in the folders of a library, including those that are not part of it.
const MAX_ENTRIES: usize = 1 << 16;

/// Largest depth of a folder below one that the project names.
const MAX_DEPTH: usize = 32;

/// Extensions of files that a name can mean, in the order in which they are tried.
const ENDINGS: [&str; 3] = ["aorta", "ron", container::BUNDLE];

/// A project and the files of its library.
pub struct Library {
    /// The project's folder.
    pub folder: PathBuf,
    pub project: Project,
    /// Workloads, scenarios, suites and bundles, sorted by path.
    pub files: Vec<PathBuf>,
}

/// The folder of the nearest project at or above a folder; `None` without one. Another user's file in a folder to which
/// everybody can write makes no project.
pub fn folder(from: &Path) -> Option<PathBuf> {
    if let Ok(Some(inside)) = container::inside(&from.join(PROJECT_FILE)) {
        return Some(inside.container).filter(|_| inside.bundle.parts.contains_key(PROJECT_FILE));
    }
    let from = from.canonicalize().ok()?;
    let is_project = |folder: &&Path| {
        let file = folder.join(PROJECT_FILE);
        file.is_file() && ownership::may_follow(&file, folder)
    };
    let found = from.ancestors().find(is_project)?;
    // Paths in messages and records are relative where they can be.
    let current = std::env::current_dir().ok()?.canonicalize().ok()?;
    Some(found.strip_prefix(&current).map(Path::to_owned).unwrap_or_else(|_| found.to_owned()))
}

/// The project of the current folder; `None` without one.
///
/// # Errors
///
/// The project's file or its folders cannot be read.
pub fn here() -> Result<Option<Library>, InputError> {
    of(Path::new("."))
}

/// The contents of the file of the nearest project at or above a folder; `None` without one.
pub fn read(from: &Path) -> Result<Option<Project>, InputError> {
    folder(from).map(|folder| parse(&folder)).transpose()
}

fn parse(folder: &Path) -> Result<Project, InputError> {
    let file = folder.join(PROJECT_FILE);
    Ok(Project::parse(&file.display().to_string(), &container::read(&file, FileKind::Project)?)?)
}

/// The project of a folder; `None` without one.
fn of(from: &Path) -> Result<Option<Library>, InputError> {
    let Some(folder) = folder(from) else { return Ok(None) };
    let project = parse(&folder)?;
    let (mut files, mut entries) = (Vec::new(), 0);
    for library in &project.library {
        let library = folder.join(container::normal(Path::new(library)).unwrap_or_default());
        // A container is its own folder, so the project's file shows whether the folder lies in a container.
        match container::inside(&library.join(PROJECT_FILE))? {
            Some(inside) => files.extend(parts(&inside)),
            None => walk(&library, MAX_DEPTH, &mut entries, &mut files)?,
        }
    }
    files.sort();
    files.dedup();
    Ok(Some(Library { folder, project, files }))
}

/// The parts of a container in the folder of a path, and below it.
fn parts(inside: &container::ContainedPath) -> Vec<PathBuf> {
    let folder = inside.part.rfind('/').map_or("", |end| &inside.part[..=end]);
    let is_below = |name: &&String| name.starts_with(folder);
    let names = inside.bundle.parts.keys().filter(is_below);
    names.map(|name| inside.container.join(name)).filter(|path| is_of_library(path)).collect()
}

/// True if a name can mean the file.
fn is_of_library(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| ENDINGS.contains(&extension))
        && path.file_name().is_some_and(|name| name != PROJECT_FILE)
}

/// Adds the files of a folder and its subfolders. Hidden ones and links are left out, so that a project has only its
/// own files. `entries` counts the entries that were visited.
fn walk(folder: &Path, depth: usize, entries: &mut usize, files: &mut Vec<PathBuf>) -> Result<(), InputError> {
    let help = format!("`library` in {PROJECT_FILE} names folders of the project");
    let failed = |why: String| InputError::unreadable(folder, why, Some(&help));
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    for entry in std::fs::read_dir(folder).map_err(|error| failed(error.to_string()))? {
        let entry = entry.map_err(|error| failed(error.to_string()))?;
        let kind = entry.file_type().map_err(|error| failed(error.to_string()))?;
        *entries += 1;
        if *entries > MAX_ENTRIES {
            return Err(failed(format!("the library's folders have more than {MAX_ENTRIES} entries")));
        }
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = if folder == Path::new(".") { PathBuf::from(name) } else { folder.join(name) };
        if kind.is_dir() {
            if depth == 0 {
                return Err(failed(format!("{} is more than {MAX_DEPTH} folders deep", path.display())));
            }
            walk(&path, depth - 1, entries, files)?;
        } else if kind.is_file() && is_of_library(&path) {
            files.push(path);
        }
        if files.len() > MAX_FILES {
            return Err(failed(format!("the library has more than {MAX_FILES} files")));
        }
    }
    Ok(())
}

/// The file of a project's library that a bare name means, for a user in the folder `from`: `attn` is `attn.aorta`, the
/// scenario `attn.ron`, or the bundle `attn.aortab`, in this order. `None` if there is no such file.
///
/// # Errors
///
/// The project cannot be read, or two files have that name.
pub fn find(name: &str, from: &Path) -> Result<Option<PathBuf>, InputError> {
    if name.is_empty() || name.starts_with(['-', '.', '/']) {
        return Ok(None);
    }
    let Some(library) = of(from)? else { return Ok(None) };
    for ending in ENDINGS {
        match library.named(name, ending)[..] {
            [] => {}
            [file] => return Ok(Some(file.clone())),
            [first, second, ..] => {
                let (first, second) = (first.display().to_string(), second.display().to_string());
                return Err(InputError::SeveralFiles { name: name.to_owned(), first, second });
            }
        }
    }
    Ok(None)
}

impl Library {
    /// The files with this extension that a bare name can mean.
    fn named(&self, name: &str, ending: &str) -> Vec<&PathBuf> {
        let wanted = Path::new(name.strip_suffix(&format!(".{ending}")).unwrap_or(name));
        let recognizes = |file: &&PathBuf| {
            file.extension().is_some_and(|extension| extension == ending) && file.with_extension("").ends_with(wanted)
        };
        self.files.iter().filter(recognizes).collect()
    }
}

/// Prints a note with the other files of the library that have the same bare name as `found`.
fn note_others(name: &str, found: &Path) -> Result<(), InputError> {
    static NOTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let Some(library) = here()? else { return Ok(()) };
    let others = ENDINGS.into_iter().flat_map(|ending| library.named(name, ending)).filter(|file| *file != found);
    let others: Vec<String> = others.map(|file| format!("`{}`", file.display())).collect();
    // A command may look a name up more than once.
    if !others.is_empty() && NOTED.lock().is_ok_and(|mut noted| noted.insert(name.to_owned())) {
        let found = found.display();
        output::eprint(&format!(
            "note: `{name}` means {found} here; for another file, write {}\n",
            others.join(" or ")
        ));
    }
    Ok(())
}

/// Resolves an argument to a path. A bare name that is no file here becomes a file of the project's library; a bundle
/// or a record becomes the workload that it runs. Any other argument is returned unchanged. Prints a note if other
/// files have the same name.
///
/// # Errors
///
/// As for [`meaning`].
pub fn resolve(name: &str) -> Result<String, InputError> {
    if !is_there(name)
        && let Some(found) = find(name, Path::new("."))?
    {
        note_others(name, &found)?;
    }
    meaning(name)
}

/// Resolves an argument to a path as [`resolve`] does, without a note.
///
/// # Errors
///
/// As for [`find`] and [`container::entry`].
pub fn meaning(name: &str) -> Result<String, InputError> {
    match is_there(name) {
        true => container::entry(name),
        false => match find(name, Path::new("."))? {
            Some(path) => container::entry(&path.display().to_string()),
            None => Ok(name.to_owned()),
        },
    }
}

/// True for a path that exists, also if it cannot be inspected: a cycle of links, a folder without permission.
pub fn is_there(path: &str) -> bool {
    !matches!(std::fs::metadata(path), Err(error) if error.kind() == std::io::ErrorKind::NotFound)
}
