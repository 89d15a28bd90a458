//! Files that a test makes.

use std::path::{Path, PathBuf};

/// A temporary folder.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a temporary folder"))
    }

    /// The path of a name in the folder.
    pub fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("a plain path").to_owned()
    }

    /// Writes a file, and creates its folders. Returns its path.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(Path::new(&path).parent().expect("inside the folder")).expect("a folder of our own");
        std::fs::write(&path, contents).expect("a file of our own");
        path
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

/// Every file below a folder, sorted. Skips the subfolders for which `enters` is false.
pub fn files_below(folder: &Path, enters: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.expect("a folder can be read to its end").path();
            match path.is_dir() {
                true => folders.extend(Some(path).filter(|path| enters(path))),
                false => files.push(path),
            }
        }
    }
    files.sort();
    files
}

/// True if the name of a file ends in a dot and `ending`.
pub fn ends_in(path: &Path, ending: &str) -> bool {
    path.extension().is_some_and(|extension| extension == ending)
}
