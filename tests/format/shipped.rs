//! Everything shipped is formatted.

use std::path::Path;

/// The files with this ending below some of the project's folders, by path, and what they hold.
pub fn below(folders: &[&str], ending: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders: Vec<_> = folders.iter().map(|folder| root.join(folder)).collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the folder is part of the project") {
            let path = entry.expect("a folder can be read to its end").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == ending) {
                let text = std::fs::read_to_string(&path).expect("the project's files are text");
                found.push((path.strip_prefix(root).expect("it was found below").display().to_string(), text));
            }
        }
    }
    found.sort();
    found
}

/// Workloads, examples, and those that other tests are made of.
pub fn files() -> Vec<(String, String)> {
    let files = below(&["workloads", "examples", "tests/workloads"], "aorta");
    assert!(files.len() > 11, "files are found");
    files
}
