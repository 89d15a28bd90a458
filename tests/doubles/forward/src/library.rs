//! NVIDIA's libraries: opened once, their functions resolved once.

use std::path::PathBuf;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// Opens the first of the names that can be had; nothing of it is ever closed.
pub fn open(names: &[&str]) -> Option<&'static Library> {
    let given = ["HIP_DOUBLE_CUDA", "AORTA_LIBRARY_PATH"].map(|name| std::env::var_os(name).unwrap_or_default());
    let mut folders: Vec<PathBuf> = given.iter().flat_map(std::env::split_paths).collect();
    folders.extend([PathBuf::new(), PathBuf::from("/usr/local/cuda/lib64")]);
    // NVRTC opens this one by its name alone, and does not say where it is.
    for folder in folders.iter().filter(|folder| folder.is_dir() && names[0].contains("nvrtc")) {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        for path in entries.filter(|path| path.to_string_lossy().contains("/libnvrtc-builtins.so")) {
            // SAFETY: as below.
            if let Ok(library) = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) } {
                std::mem::forget(library);
            }
        }
    }
    let paths = folders.iter().flat_map(|folder| names.iter().map(move |name| folder.join(name)));
    for path in paths {
        // SAFETY: the vendor's libraries have initialisers that any program may run.
        if let Ok(library) = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) } {
            return Some(Box::leak(Box::new(library)));
        }
    }
    eprintln!("HIP double: none of {names:?} can be opened; HIP_DOUBLE_CUDA names folders to look in");
    None
}

/// Declares a table of a library's functions. One that the library lacks makes the whole table missing.
macro_rules! table {
    ($(#[$doc:meta])* $table:ident, $names:expr, { $($field:ident = $symbol:literal ( $($arg:ty),* $(,)? );)* }) => {
        $(#[$doc])*
        pub struct $table {
            $(pub $field: unsafe extern "C" fn($($arg),*) -> i32,)*
        }

        impl $table {
            fn load() -> Option<Self> {
                let library = crate::library::open(&$names)?;
                Some($table {
                    $(
                        // SAFETY: the types are those of the vendor's header.
                        $field: match unsafe { library.get($symbol.as_bytes()) } {
                            Ok(found) => *found,
                            Err(_) => {
                                eprintln!("HIP double: {} has no {}", $names[0], $symbol);
                                return None;
                            }
                        },
                    )*
                })
            }

            /// The library; nothing where it is not there.
            #[inline]
            pub fn get() -> Option<&'static Self> {
                static TABLE: std::sync::OnceLock<Option<$table>> = std::sync::OnceLock::new();
                TABLE.get_or_init(Self::load).as_ref()
            }
        }
    };
}

pub(crate) use table;
