//! Loads shared libraries, and resolves tables of their functions once.
//!
//! Nothing is linked: the program runs on machines without these libraries. A loaded library is never closed.

use std::ffi::{OsStr, c_char, c_int};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::exec::ExecError;

/// Folders to search besides the loader's.
#[derive(Clone, Debug, Default)]
pub struct SearchPaths {
    /// Folders that are searched first, before the loader's.
    pub first: Vec<PathBuf>,
    /// Library folders of toolkits.
    pub toolkits: Vec<PathBuf>,
    /// Python's `site-packages` folders: wheels have libraries in `nvidia/<package>/lib`.
    pub packages: Vec<PathBuf>,
}

/// A loaded library, with the path or name under which it was found.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    pub library: &'static Library,
    pub path: &'static str,
}

/// Why a library could not be loaded.
#[derive(Clone, Debug)]
pub enum NotOpened {
    /// No file of any of its names was found.
    Absent,
    /// A file was found that the loader refuses; the text is its message.
    Broken(String),
}

impl NotOpened {
    /// The error for a library that is needed for that purpose, such as `to compile kernels`; `install` names what brings
    /// the library.
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

/// The text that a function writes into a buffer of so many bytes; `None` where the function fails or the text is empty.
pub fn text(write: impl FnOnce(*mut c_char, c_int) -> i32) -> Option<String> {
    let mut buffer = [0u8; 256];
    // The last byte stays 0, whatever is written.
    let code = write(buffer.as_mut_ptr().cast(), buffer.len() as c_int - 1);
    let end = buffer.iter().position(|byte| *byte == 0)?;
    (code == 0 && end > 0).then(|| String::from_utf8_lossy(&buffer[..end]).into_owned())
}

/// Returns the value of a cell, which `open` makes where the cell is empty.
pub fn once<T>(cell: &OnceLock<T>, open: impl FnOnce() -> Result<T, ExecError>) -> Result<&T, ExecError> {
    if cell.get().is_none() {
        let _ = cell.set(open()?);
    }
    Ok(cell.get().expect("set above"))
}

impl SearchPaths {
    /// Loads the first of the names that is available.
    pub fn open(&self, names: &[String]) -> Result<Opened, NotOpened> {
        let mut broken = None;
        let mut attempt = |path: &Path| match load(path.as_os_str()) {
            Ok(library) => Some(Opened { library, path: leak(path) }),
            Err(why) => {
                // A plain name fails if the loader does not know it; an existing file must load.
                if path.is_file() {
                    broken.get_or_insert(why);
                }
                None
            }
        };
        // A folder given explicitly has priority over every name elsewhere.
        let before = names.iter().flat_map(|name| self.first.iter().map(move |folder| folder.join(name)));
        let elsewhere = names.iter().flat_map(|name| {
            let loader = std::iter::once(PathBuf::from(name));
            let toolkits = self.toolkits.iter().map(move |folder| folder.join(name));
            let packages = self.packages.iter().flat_map(|site| package_folders(site));
            loader.chain(toolkits).chain(packages.map(move |folder| folder.join(name)))
        });
        for path in before.chain(elsewhere) {
            // Loading a path that does not exist is slow.
            if (path.components().count() == 1 || path.is_file())
                && let Some(opened) = attempt(&path)
            {
                return Ok(opened);
            }
        }
        Err(broken.map_or(NotOpened::Absent, NotOpened::Broken))
    }
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
            // The outer error only says that loading failed.
            let source = std::error::Error::source(&error).map(ToString::to_string);
            Err(source.unwrap_or_else(|| error.to_string()))
        }
    }
}

fn leak(path: &Path) -> &'static str {
    Box::leak(path.display().to_string().into_boxed_str())
}

impl Opened {
    /// Loads the libraries in the same folder whose names have this prefix, for a library that loads them by name
    /// without a path.
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

    /// Address of a function; `None` if the library has none of that name.
    ///
    /// # Safety
    ///
    /// `T` must be the function's type as the vendor declares it.
    pub unsafe fn find<T: Copy>(&self, symbol: &str) -> Option<T> {
        // SAFETY: the caller vouches for the type, and the library stays open.
        unsafe { self.library.get::<T>(symbol.as_bytes()) }.ok().map(|found| *found)
    }

    /// Error for a missing function that is required.
    pub fn lacks(&self, symbol: &str) -> ExecError {
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
        optional {
            $($maybe:ident ( $($maybe_arg:ty),* $(,)? );)*
        }
    ) => {
        /// The names of these functions in a vendor's library.
        pub struct $names {
            $(pub $field: &'static str,)*
            $(pub $maybe: &'static str,)*
        }

        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name {
            pub names: &'static $names,
            $(pub $field: unsafe extern "C" fn($($arg),*) -> i32,)*
            $(pub $maybe: Option<unsafe extern "C" fn($($maybe_arg),*) -> i32>,)*
        }

        impl $name {
            /// Resolves every function, or says which one is missing.
            pub fn load(
                opened: &$crate::backend::libraries::Opened,
                names: &'static $names,
            ) -> Result<Self, $crate::exec::ExecError> {
                Ok($name {
                    names,
                    $(
                        // SAFETY: the types are those of the vendors' headers.
                        $field: unsafe { opened.find(names.$field) }.ok_or_else(|| opened.lacks(names.$field))?,
                    )*
                    $(
                        // SAFETY: the types are those of the vendors' headers.
                        $maybe: unsafe { opened.find(names.$maybe) },
                    )*
                })
            }
        }
    };
    (
        $(#[$doc:meta])*
        $name:ident {
            $($field:ident = $symbol:literal ( $($arg:ty),* $(,)? );)*
        }
        optional {
            $($maybe:ident = $maybe_symbol:literal ( $($maybe_arg:ty),* $(,)? );)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name {
            $(pub $field: unsafe extern "C" fn($($arg),*) -> i32,)*
            $(pub $maybe: Option<unsafe extern "C" fn($($maybe_arg),*) -> i32>,)*
        }

        impl $name {
            /// Resolves every function; the error names a missing one.
            pub fn load(opened: &$crate::backend::libraries::Opened) -> Result<Self, $crate::exec::ExecError> {
                Ok($name {
                    $(
                        // SAFETY: the types are those of the vendor's header.
                        $field: unsafe { opened.find($symbol) }.ok_or_else(|| opened.lacks($symbol))?,
                    )*
                    $(
                        // SAFETY: the types are those of the vendor's header.
                        $maybe: unsafe { opened.find($maybe_symbol) },
                    )*
                })
            }
        }
    };
}

pub(crate) use functions;
