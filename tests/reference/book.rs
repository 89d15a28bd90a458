//! The summary of the book follows from its index, `docs/README.md`, and the words that the book highlights are those of the
//! language.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use aorta::base::DType;
use aorta::syntax::{DECLARATIONS, RESERVED, STATEMENTS};

/// A link of a page: its text and its target.
type Link = (String, String);

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs")
}

fn read(path: &str) -> String {
    fs::read_to_string(docs().join(path)).unwrap_or_else(|error| panic!("docs/{path}: {error}"))
}

/// The links of a line to pages without an anchor.
fn links(line: &str) -> impl Iterator<Item = Link> + '_ {
    line.split('[').skip(1).filter_map(|rest| {
        let (text, rest) = rest.split_once("](")?;
        let (target, _) = rest.split_once(')')?;
        target.ends_with(".md").then(|| (text.to_owned(), target.to_owned()))
    })
}

/// The first link of a list's item; `None` for other lines.
fn item(line: &str) -> Option<Link> {
    let (mark, rest) = line.split_once(' ')?;
    let is_item = mark == "-" || mark.strip_suffix('.').is_some_and(|number| number.parse::<u32>().is_ok());
    rest.starts_with('[').then(|| links(rest).next())?.filter(|_| is_item)
}

/// The pages below an index: those of its folder that it links to, in the order of the links.
fn below(index: &str) -> Vec<Link> {
    let Some(folder) = index.strip_suffix("README.md") else { return Vec::new() };
    let mut found: Vec<Link> = Vec::new();
    for (text, target) in read(index).lines().flat_map(links) {
        let target = format!("{folder}{target}");
        if !target.contains("..") && found.iter().all(|(_, known)| *known != target) {
            found.push((text, target));
        }
    }
    found
}

/// The summary that mdBook reads: a part for each section of the index, and the pages of an index below it.
fn summary() -> String {
    let mut text = "# Summary\n\n[The book](README.md)\n".to_owned();
    for line in read("README.md").lines() {
        if let Some(part) = line.strip_prefix("## ") {
            text += &format!("\n# {part}\n\n");
        } else if let Some((title, target)) = item(line) {
            text += &format!("- [{title}]({target})\n");
            below(&target).into_iter().for_each(|(title, target)| text += &format!("  - [{title}]({target})\n"));
        }
    }
    text
}

/// Every page of the folder and of those inside it, relative to `docs`.
fn pages(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("the book is a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let name = path.strip_prefix(docs()).expect("pages lie in docs").display().to_string();
            found.insert(name);
        }
    }
}

#[test]
fn the_summary_is_that_of_the_index() {
    let summary = summary();
    let path = docs().join("SUMMARY.md");
    if std::env::var("AORTA_DOCS").is_ok_and(|mode| mode == "write") {
        fs::write(&path, &summary).expect("the pages are the repository's own");
    }
    assert!(
        read("SUMMARY.md") == summary,
        "docs/README.md and docs/SUMMARY.md differ: AORTA_DOCS=write cargo test --test suite reference:: writes the second"
    );
    let mut wanted = BTreeSet::new();
    pages(&docs(), &mut wanted);
    wanted.remove("SUMMARY.md");
    let listed: Vec<Link> = summary.lines().flat_map(links).collect();
    let mut once = BTreeSet::new();
    for (_, target) in &listed {
        assert!(once.insert(target.clone()), "docs/README.md lists {target} twice");
    }
    let differ: Vec<_> = wanted.symmetric_difference(&once).collect();
    assert!(differ.is_empty(), "pages that docs/README.md does not list, or that do not exist: {differ:?}");
}

#[test]
fn the_book_highlights_the_words_of_the_language() {
    const LITERALS: [&str; 2] = ["false", "true"];
    let script = fs::read_to_string(docs().join("../assets/book/aorta.js")).expect("the book has a script");
    let words: BTreeSet<&str> = DECLARATIONS.into_iter().chain(STATEMENTS).chain(RESERVED).collect();
    let keywords: Vec<&str> = words.into_iter().filter(|word| !LITERALS.contains(word)).collect();
    let expected = [("keyword", keywords), ("type", DType::NAMES.to_vec()), ("literal", LITERALS.to_vec())];
    for (class, words) in expected {
        let line = format!("    {class}: '{}',", words.join(" "));
        assert!(script.lines().any(|found| found == line), "assets/book/aorta.js lacks this line:\n{line}");
    }
}
