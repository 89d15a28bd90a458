//! Restricts which files a scenario or a suite can name: those beside it, in its project, and below the current folder.

use std::path::{Path, PathBuf};

use super::{container, project};
use crate::cli::error::InputError;

const OUTSIDE: &str = "which is outside of the folders that it may refer to";

/// Checks a file that another file names, and returns its path.
///
/// `by` is the file that names it, and `path` the named file as this process would open it. With links resolved, it
/// must lie in the folder of `by`, in the project of `by` (the nearest parent folder with `.git` or `aorta.ron`), or in
/// the current folder; and not in a hidden folder of these, where programs keep secrets. A part of a bundle or of a
/// record names other parts only.
///
/// # Errors
///
/// The file lies elsewhere. A missing file is no error here; opening it will fail.
pub fn check(by: &Path, path: &Path, what: &'static str) -> Result<(), InputError> {
    let refused = |why: &str| InputError::OutOfReach {
        file: by.display().to_string(),
        what,
        name: path.display().to_string(),
        why: why.to_owned(),
    };
    if let Some(own) = container::inside(by)? {
        let other = container::inside(path)?.filter(|other| other.container == own.container);
        let is_part = other.is_some_and(|other| other.bytes().is_some());
        return if is_part { Ok(()) } else { Err(refused("which is not part of the same file")) };
    }
    let roots = roots(by);
    let Ok(target) = std::fs::canonicalize(path) else {
        // The error must not reveal whether a file exists elsewhere.
        let folder = path.parent().and_then(|folder| std::fs::canonicalize(folder).ok());
        let may_look = folder.is_some_and(|folder| roots.iter().any(|root| folder.starts_with(root)));
        let outside = path.is_absolute() || path.components().any(|part| part == std::path::Component::ParentDir);
        return if outside && !may_look { Err(refused(OUTSIDE)) } else { Ok(()) };
    };
    let Some(inside) = roots.iter().find_map(|root| target.strip_prefix(root).ok()) else {
        return Err(refused(OUTSIDE));
    };
    let hidden = inside.components().any(|part| part.as_os_str().as_encoded_bytes().starts_with(b"."));
    if hidden { Err(refused("which is hidden, or lies in a hidden folder")) } else { Ok(()) }
}

/// The folders that a file can access, with links resolved, the widest first.
fn roots(by: &Path) -> Vec<PathBuf> {
    let folder = by.canonicalize().ok().and_then(|path| Some(path.parent()?.to_owned()));
    let checkout = folder.iter().flat_map(|folder| folder.ancestors()).find(|above| above.join(".git").exists());
    let project = folder.as_ref().and_then(|folder| project::folder(folder)?.canonicalize().ok());
    let current = std::env::current_dir().and_then(|current| current.canonicalize()).ok();
    let mut roots: Vec<PathBuf> =
        checkout.map(Path::to_owned).into_iter().chain(project).chain(current).chain(folder.clone()).collect();
    roots.sort_by_key(|root| root.components().count());
    roots
}
