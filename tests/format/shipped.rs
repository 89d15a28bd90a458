//! Everything shipped is formatted.

use std::path::{Path, PathBuf};

use crate::common::folder::{ends_in, files_below};

/// The files with this ending below some of the project's folders, by path, and what they hold.
pub fn below(folders: &[&str], ending: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let paths = folders.iter().flat_map(|folder| files_below(&root.join(folder), |_| true));
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("the project's files are text");
        (path.strip_prefix(root).expect("it was found below").display().to_string(), text)
    };
    let mut found: Vec<_> = paths.filter(|path| ends_in(path, ending)).map(read).collect();
    found.sort();
    found
}

/// Workloads, examples, and those that other tests are made of.
pub fn files() -> Vec<(String, String)> {
    let files = below(&["workloads", "examples", "assets", "tests/workloads"], "aorta");
    assert!(files.len() > 11, "files are found");
    files
}

/// The blocks of a page that are files of the language or pieces of them, each with its line.
fn blocks(page: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(info) = line.strip_prefix("```") else { continue };
        let text: String =
            lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect::<Vec<_>>().join("\n");
        if info.split_whitespace().next() == Some("aorta") {
            blocks.push((number + 1, text + "\n"));
        }
    }
    blocks
}

#[test]
fn files_are_formatted() {
    for (path, text) in files() {
        assert_eq!(text, super::formatted(&text), "{path}: format it with `aorta fmt {path}`");
    }
}

#[test]
fn pages_are_formatted() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = std::fs::read_to_string(readme).expect("the project has a README");
    let pages = below(&["docs"], "md").into_iter().chain([("README.md".to_owned(), readme)]);
    let mut formatted = 0;
    for (path, page) in pages {
        for (line, text) in blocks(&page) {
            let form = super::format(&text);
            // Blocks that show invalid code are not formatted.
            if form.errors.is_empty() {
                assert_eq!(text, form.text, "{path}:{line} is not in the form of `aorta fmt`");
                formatted += 1;
            }
        }
    }
    assert!(formatted > 8, "only {formatted} blocks were found");
}
