//! Which files a scenario or a suite may name: those that came with it, and those of the folder in which the user works.

use std::path::{Path, PathBuf};

use super::error::InputError;

/// Checks a file that another file names, and returns its path.
///
/// `by` is the file that names it, and `path` the named file as this process would open it. It must lie, links followed, in
/// the folder of `by`, in the project that `by` belongs to (the nearest folder above that holds `.git`), or in the current
/// folder; and not in a hidden folder of those, where programs keep their secrets.
///
/// # Errors
/// It lies elsewhere. A file that does not exist is left to whoever opens it.
pub fn check(by: &Path, path: &Path, what: &'static str) -> Result<(), InputError> {
    let refused = |why: &str| InputError::OutOfReach {
        file: by.display().to_string(),
        what,
        name: path.display().to_string(),
        why: why.to_owned(),
    };
    let Ok(target) = std::fs::canonicalize(path) else {
        // Whether there is such a file elsewhere is nothing that a file may find out.
        let outside = path.is_absolute() || path.components().any(|part| part == std::path::Component::ParentDir);
        return if outside { Err(refused("which is no file within its reach")) } else { Ok(()) };
    };
    let roots = roots(by);
    let Some(inside) = roots.iter().find_map(|root| target.strip_prefix(root).ok()) else {
        return Err(refused("which is no file within its reach"));
    };
    let hidden = inside.components().any(|part| part.as_os_str().as_encoded_bytes().starts_with(b"."));
    if hidden { Err(refused("which is hidden, or lies in a hidden folder")) } else { Ok(()) }
}

/// The folders that a file reaches, without links on the way; the widest first.
fn roots(by: &Path) -> Vec<PathBuf> {
    let folder = by.canonicalize().ok().and_then(|path| Some(path.parent()?.to_owned()));
    let project = folder.iter().flat_map(|folder| folder.ancestors()).find(|above| above.join(".git").exists());
    let current = std::env::current_dir().and_then(|current| current.canonicalize()).ok();
    project.map(Path::to_owned).into_iter().chain(current).chain(folder.clone()).collect()
}
