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
