//! The shipped workloads, embedded in the binary.

use std::path::Path;

use include_dir::{Dir, include_dir};

use crate::base::suggest;
use crate::config::SuiteFile;

use crate::cli::error::InputError;
use crate::cli::io::files;

static WORKLOADS: Dir = include_dir!("$CARGO_MANIFEST_DIR/workloads");

/// A shipped workload.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// Name without folder and extension, such as `moe`.
    pub stem: &'static str,
    /// Path in the library, such as `distributed/moe.aorta`.
    pub path: &'static str,
    pub text: &'static str,
}

/// Every shipped workload, by path.
pub fn all() -> Vec<Shipped> {
    let mut found = Vec::new();
    let mut folders = vec![&WORKLOADS];
    while let Some(folder) = folders.pop() {
        folders.extend(folder.dirs());
        for file in folder.files() {
            let path = file.path();
            if path.extension().is_some_and(|extension| extension == "aorta")
                && let (Some(stem), Some(text)) =
                    (path.file_stem().and_then(|stem| stem.to_str()), file.contents_utf8())
                && let Some(path) = path.to_str()
            {
                found.push(Shipped { stem, path, text });
            }
        }
    }
    found.sort_by_key(|shipped| shipped.path);
    found
}

/// The workload with a bare name: `moe`, `moe.aorta` or `distributed/moe`. `None` if there is none.
pub fn find(name: &str) -> Option<Shipped> {
    let name = name.strip_suffix(".aorta").unwrap_or(name);
    all().into_iter().find(|shipped| shipped.stem == name || shipped.path.strip_suffix(".aorta") == Some(name))
}

/// The shipped workload whose name is nearest to an unknown one; `None` if none is near.
pub fn nearest(name: &str) -> Option<&'static str> {
    let wanted = Path::new(name).file_stem().and_then(|stem| stem.to_str()).unwrap_or(name);
    suggest::nearest(wanted, all().iter().map(|shipped| shipped.stem))
}

/// The error for an unknown workload.
pub fn unknown(name: &str) -> InputError {
    unknown_in(Path::new(""), name)
}

/// The error for an unknown workload that a file in `folder` names.
pub fn unknown_in(folder: &Path, name: &str) -> InputError {
    let beside = files::nearest(&folder.join(name));
    let beside = beside
        .map(|file| Path::new(&file).strip_prefix(folder).map_or(file.clone(), |file| file.display().to_string()));
    let near = beside.or_else(|| nearest(name).map(str::to_owned));
    let help = near
        .map(|near| format!("did you mean `{near}`?"))
        .or_else(|| {
            let is_suite = SuiteFile::names().any(|suite| suite.eq_ignore_ascii_case(name));
            is_suite.then(|| format!("it is a suite: `aorta suite {name}` runs its cases"))
        })
        .or_else(|| name.contains('=').then(|| format!("a parameter is set by `--set {name}`")))
        .or_else(|| Some("`aorta list` shows the shipped workloads".to_owned()));
    InputError::UnknownWorkload { name: name.to_owned(), help }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stems_are_unique() {
        let mut stems: Vec<&str> = all().iter().map(|shipped| shipped.stem).collect();
        let count = stems.len();
        stems.sort_unstable();
        stems.dedup();
        assert_eq!(stems.len(), count);
        assert!(find("moe").is_some() && find("moe.aorta").is_some() && find("distributed/moe").is_some());
        assert!(find("nothing").is_none());
    }
}
