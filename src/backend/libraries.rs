//! Loads shared libraries, and resolves tables of their functions once.
//!
//! Nothing is linked: the program runs on machines without these libraries. A loaded library is never closed.

use std::ffi::{OsStr, c_char, c_int};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::exec::ExecError;

/// Folders in which libraries are searched, besides those of the loader.
#[derive(Clone, Debug, Default)]
pub struct SearchPaths {
    /// Folders that are searched before all others.
    pub first: Vec<PathBuf>,
    /// Library folders of toolkits.
    pub toolkits: Vec<PathBuf>,
    /// Python's `site-packages` folders, whose wheels have libraries in `nvidia/<package>/lib`.
    pub packages: Vec<PathBuf>,
}

/// A loaded library, with the path or name under which it was found.
#[derive(Clone, Copy, Debug)]
pub struct OpenedLibrary {
    pub library: &'static Library,
    pub path: &'static str,
}

/// Reason why a library could not be loaded.
#[derive(Clone, Debug)]
pub enum NotOpened {
    /// No file with any of the library's names was found.
    Absent,
    /// A file was found, but the loader rejected it; the text is its message.
    Broken(String),
}

impl NotOpened {
    /// The error for a missing library. `purpose` is the use of the library, such as `to compile kernels`; `install` is
    /// the package that contains it.
    pub fn missing(self, library: &str, purpose: &str, install: &str) -> ExecError {
        let (library, help) = match self {
            NotOpened::Absent => {
                (library.to_owned(), format!("install {install}; AORTA_LIBRARY_PATH names a folder to look in first"))
            }
            NotOpened::Broken(why) => (format!("a working {library}"), format!("it does not load: {why}")),
        };
        ExecError::MissingLibrary { library, purpose: purpose.to_owned(), help: Some(help) }
    }
}

/// Returns the text that `write` stores in a buffer, given the buffer's address and size; `None` if `write` returns an
/// error or the text is empty.
pub fn text(write: impl FnOnce(*mut c_char, c_int) -> i32) -> Option<String> {
    let mut buffer = [0u8; 256];
    // The last byte stays 0, so the text always ends.
    let code = write(buffer.as_mut_ptr().cast(), buffer.len() as c_int - 1);
    let end = buffer.iter().position(|byte| *byte == 0)?;
    (code == 0 && end > 0).then(|| String::from_utf8_lossy(&buffer[..end]).into_owned())
}

/// Returns the value of a cell, which `open` creates if the cell is empty.
pub fn once<T>(cell: &OnceLock<T>, open: impl FnOnce() -> Result<T, ExecError>) -> Result<&T, ExecError> {
    if cell.get().is_none() {
        let _ = cell.set(open()?);
    }
    Ok(cell.get().expect("set above"))
}

impl SearchPaths {
    /// Loads the first of these file names that is found, in the order of the search paths.
    pub fn open(&self, names: &[String]) -> Result<OpenedLibrary, NotOpened> {
        first_that_loads(self.candidates(names))
    }

    /// Loads the newest library among these file names. A library in a folder that was given explicitly comes first,
    /// then one that the loader finds outside of its usual folders, then the one with the highest version. Files of
    /// unknown version come last, in the order of [`SearchPaths::open`].
    pub fn open_newest(&self, names: &[String]) -> Result<OpenedLibrary, NotOpened> {
        first_that_loads(self.newest_first(names))
    }

    fn newest_first(&self, names: &[String]) -> Vec<PathBuf> {
        let mut all = self.candidates(names);
        // The sort is stable, so among equal versions the first stays first.
        all.sort_by_cached_key(|path| {
            let given = path.parent().is_some_and(|folder| self.first.iter().any(|first| first == folder));
            let version = if given { None } else { self.version(path) };
            // The loader follows `LD_LIBRARY_PATH`, which the user has set.
            let loaders = version.is_none() && path.components().count() == 1;
            std::cmp::Reverse((given, loaders, version))
        });
        all
    }

    /// Paths of these file names, in the order in which they are tried. The loader searches a name without a folder.
    fn candidates(&self, names: &[String]) -> Vec<PathBuf> {
        // A folder given explicitly has priority over every name elsewhere.
        let before = names.iter().flat_map(|name| self.first.iter().map(move |folder| folder.join(name)));
        let elsewhere = names.iter().flat_map(|name| {
            let loader = std::iter::once(PathBuf::from(name));
            let toolkits = self.toolkits.iter().map(move |folder| folder.join(name));
            let packages = self.packages.iter().flat_map(|site| package_folders(site));
            loader.chain(toolkits).chain(packages.map(move |folder| folder.join(name)))
        });
        before.chain(elsewhere).collect()
    }

    /// Version of a library file, found without loading it, since a process can load only one version of a library.
    /// Returns the numbers at the end of the name to which its links lead, otherwise those of the Python wheel that
    /// contains it. `None` if neither has more than one number, and for a name without a folder that is not in the
    /// loader's usual folders.
    fn version(&self, path: &Path) -> Option<Vec<u64>> {
        let path = match path.components().count() {
            1 => LOADER_FOLDERS.iter().map(|folder| Path::new(folder).join(path)).find(|path| path.is_file())?,
            _ => path.to_owned(),
        };
        let file = path.canonicalize().ok()?;
        let of_name = file.file_name()?.to_str()?.split_once(".so.").and_then(|(_, end)| numbers(end));
        of_name.or_else(|| {
            let package = path.parent()?.parent()?;
            let site = self.packages.iter().find(|site| package.parent() == Some(site.join("nvidia").as_path()))?;
            let prefix = format!("nvidia_{}", package.file_name()?.to_str()?);
            let entries = std::fs::read_dir(site).ok()?;
            // A wheel `nvidia_cudnn_cu13` has the folder `nvidia/cudnn`.
            let of_wheel = |name: &str| {
                let (wheel, version) = name.strip_suffix(".dist-info")?.split_once('-')?;
                (wheel == prefix || wheel.strip_prefix(&prefix)?.starts_with("_cu")).then(|| numbers(version))?
            };
            entries.flatten().filter_map(|entry| of_wheel(entry.file_name().to_str()?)).max()
        })
    }
}

/// Folders in which the loaders of common distributions search for a name without a folder.
const LOADER_FOLDERS: &[&str] =
    &["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib"];

/// Returns the numbers of a version such as `9.14.0`; `None` if there are fewer than two, or for other text.
fn numbers(text: &str) -> Option<Vec<u64>> {
    let all: Vec<u64> = text.split('.').map(|number| number.parse().ok()).collect::<Option<_>>()?;
    (all.len() > 1).then_some(all)
}

/// Loads the first of these files that the loader accepts.
fn first_that_loads(paths: Vec<PathBuf>) -> Result<OpenedLibrary, NotOpened> {
    let mut broken = None;
    for path in paths {
        // Loading a path that does not exist is slow.
        if path.components().count() > 1 && !path.is_file() {
            continue;
        }
        match load(path.as_os_str()) {
            Ok(library) => return Ok(OpenedLibrary { library, path: leak(&path) }),
            // A plain name fails if the loader does not know it; an existing file must load.
            Err(why) if path.is_file() => drop(broken.get_or_insert(why)),
            Err(_) => {}
        }
    }
    Err(broken.map_or(NotOpened::Absent, NotOpened::Broken))
}

/// Folders of a `site-packages` in which NVIDIA's wheels have libraries.
fn package_folders(site: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(site.join("nvidia")) else { return Vec::new() };
    let mut folders: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path().join("lib")).filter(|folder| folder.is_dir()).collect();
    folders.sort();
    folders
}

fn load(name: &OsStr) -> Result<&'static Library, String> {
    // SAFETY: the libraries that are named here (the vendors' own) have initialisers that any program may run, and no
    // finalisers run, since the library is never closed.
    match unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) } {
        Ok(library) => Ok(Box::leak(Box::new(library))),
        Err(error) => {
            // The outer error has no reason; its source has.
            let source = std::error::Error::source(&error).map(ToString::to_string);
            Err(source.unwrap_or_else(|| error.to_string()))
        }
    }
}

fn leak(path: &Path) -> &'static str {
    Box::leak(path.display().to_string().into_boxed_str())
}

impl OpenedLibrary {
    /// Loads the libraries in the same folder whose names have this prefix, for a library that later loads them by name
    /// without a folder.
    pub fn open_beside(&self, prefix: &str) {
        let Some(folder) = Path::new(self.path).parent().filter(|folder| !folder.as_os_str().is_empty()) else {
            return;
        };
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(prefix)) {
                // If it was needed, a missing function will show that.
                let _ = load(path.as_os_str());
            }
        }
    }

    /// Address of a function; `None` if the library has no function of that name.
    ///
    /// # Safety
    ///
    /// `T` must be the function's type as the vendor declares it.
    pub unsafe fn find<T: Copy>(&self, symbol: &str) -> Option<T> {
        // SAFETY: the caller vouches for the type, and the library stays open.
        unsafe { self.library.get::<T>(symbol.as_bytes()) }.ok().map(|found| *found)
    }

    /// The error for a required function that the library lacks.
    pub fn missing_function(&self, symbol: &str) -> ExecError {
        ExecError::MissingLibrary {
            library: format!("`{symbol}` of {}", self.path),
            purpose: "by this version".to_owned(),
            help: Some("the library is too old, or not the vendor's: install a newer one".to_owned()),
        }
    }
}

/// Declares a table of a library's functions. Status codes are integers, since a newer library may return unknown ones.
///
/// `Table named by Names` declares one table for libraries of several vendors that have the same functions; each vendor
/// gives the names of its own functions.
macro_rules! functions {
    (
        $(#[$doc:meta])*
        $name:ident named by $names:ident {
            $($field:ident ( $($arg:ty),* $(,)? );)*
        }
        $(optional {
            $($maybe:ident ( $($maybe_arg:ty),* $(,)? );)*
        })?
    ) => {
        /// The names of these functions in a vendor's library.
        pub struct $names {
            $(pub $field: &'static str,)*
            $($(pub $maybe: &'static str,)*)?
        }

        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name {
            pub names: &'static $names,
            $(pub $field: unsafe extern "C" fn($($arg),*) -> i32,)*
            $($(pub $maybe: Option<unsafe extern "C" fn($($maybe_arg),*) -> i32>,)*)?
        }

        impl $name {
            /// Resolves every function; the error names a missing one.
            pub fn load(
                opened: &$crate::backend::libraries::OpenedLibrary,
                names: &'static $names,
            ) -> Result<Self, $crate::exec::ExecError> {
                Ok($name {
                    names,
                    $(
                        // SAFETY: the types are those of the vendors' headers.
                        $field: unsafe { opened.find(names.$field) }.ok_or_else(|| opened.missing_function(names.$field))?,
                    )*
                    $($(
                        // SAFETY: the types are those of the vendors' headers.
                        $maybe: unsafe { opened.find(names.$maybe) },
                    )*)?
                })
            }
        }
    };
    (
        $(#[$doc:meta])*
        $name:ident {
            $($field:ident = $symbol:ident ( $($arg:ty),* $(,)? );)*
        }
        $(optional {
            $($maybe:ident = $maybe_symbol:ident ( $($maybe_arg:ty),* $(,)? );)*
        })?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name {
            $(pub $field: unsafe extern "C" fn($($arg),*) -> i32,)*
            $($(pub $maybe: Option<unsafe extern "C" fn($($maybe_arg),*) -> i32>,)*)?
        }

        impl $name {
            /// Resolves every function; the error names a missing one.
            pub fn load(opened: &$crate::backend::libraries::OpenedLibrary) -> Result<Self, $crate::exec::ExecError> {
                Ok($name {
                    $(
                        // SAFETY: the types are those of the vendor's header.
                        $field: unsafe { opened.find(stringify!($symbol)) }
                            .ok_or_else(|| opened.missing_function(stringify!($symbol)))?,
                    )*
                    $($(
                        // SAFETY: the types are those of the vendor's header.
                        $maybe: unsafe { opened.find(stringify!($maybe_symbol)) },
                    )*)?
                })
            }
        }
    };
}

pub(crate) use functions;

#[cfg(test)]
mod tests {
    use super::*;

    /// Versions come from the names that links lead to, and from the wheels' records; they are compared as numbers.
    #[test]
    fn the_newest_candidate_comes_first() {
        let root = tempfile::tempdir().expect("a folder");
        let at = |path: &str| root.path().join(path);
        let folders =
            ["given", "toolkit", "other", "site/nvidia/cudnn/lib", "site/nvidia_cudnn_cu13-9.19.0.56.dist-info"];
        for folder in folders {
            std::fs::create_dir_all(at(folder)).expect("a folder");
        }
        for file in ["toolkit/liba.so.9.9.1", "other/liba.so.9", "given/liba.so.9", "site/nvidia/cudnn/lib/liba.so.9"] {
            std::fs::write(at(file), "no library").expect("a file");
        }
        std::os::unix::fs::symlink("liba.so.9.9.1", at("toolkit/liba.so.9")).expect("a link");
        let mut paths =
            SearchPaths { first: Vec::new(), toolkits: vec![at("other"), at("toolkit")], packages: vec![at("site")] };
        let names = ["liba.so.9".to_owned()];
        let order = |paths: &SearchPaths| -> Vec<PathBuf> { paths.newest_first(&names) };
        let wheel = at("site/nvidia/cudnn/lib/liba.so.9");
        let newest = [PathBuf::from("liba.so.9"), wheel.clone(), at("toolkit/liba.so.9"), at("other/liba.so.9")];
        assert_eq!(order(&paths), newest, "9.19 is newer than 9.9, and the loader may have been told a folder");
        std::fs::rename(at(folders[4]), at("site/nvidia_cudnn_cu13-9.8.0.1.dist-info")).expect("renamed");
        assert_eq!(order(&paths)[1..3], [at("toolkit/liba.so.9"), wheel]);
        paths.first.push(at("given"));
        assert_eq!(order(&paths)[0], at("given/liba.so.9"), "a folder given explicitly has priority");
    }
}
