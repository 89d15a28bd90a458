//! The pages of docs/errors are complete: one for each diagnostic's code, in the form that `aorta explain` prints.
//! `tests/docs` checks their contents.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every file in a folder and its subfolders with this extension.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.flatten().map(|entry| entry.path());
    let nested = paths.map(|path| match path.is_dir() {
        true => files(&path, extension),
        false if path.extension().is_some_and(|found| found == extension) => vec![path],
        false => Vec::new(),
    });
    nested.flatten().collect()
}

/// True for a code of the form `aorta::<phase>::<name>`.
fn is_code(text: &str) -> bool {
    let parts: Vec<&str> = text.split("::").collect();
    let word = |part: &&str| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    parts.len() == 3 && parts[0] == "aorta" && parts.iter().all(word)
}

/// The codes that the sources declare.
fn declared() -> BTreeSet<String> {
    let texts = files(&root().join("src"), "rs").into_iter().map(|path| read(&path));
    let codes = texts.flat_map(|text| {
        let codes = text.split("code(").skip(1).filter_map(|rest| rest.split_once(')'));
        codes.map(|(code, _)| code.to_owned()).filter(|code| is_code(code)).collect::<Vec<_>>()
    });
    codes.collect()
}

/// The pages, each with the code of its path.
fn pages() -> Vec<(String, String)> {
    let folder = root().join("docs/errors");
    let pages = files(&folder, "md").into_iter().filter_map(|path| {
        let inside = path.strip_prefix(&folder).expect("the path was found there").with_extension("");
        let (phase, name) = inside.to_str()?.split_once('/')?;
        Some((format!("aorta::{phase}::{name}"), read(&path)))
    });
    pages.collect()
}

#[test]
fn each_code_has_its_page() {
    let pages = pages();
    let described: BTreeSet<String> = pages.iter().map(|(code, _)| code.clone()).collect();
    assert!(described.len() > 50, "{described:?}");
    assert_eq!(described, declared());
    let index = read(&root().join("docs/errors/README.md"));
    for code in described {
        let path = code["aorta::".len()..].replace("::", "/");
        assert!(index.contains(&format!("]({path}.md): ")), "docs/errors/README.md does not name {code}");
    }
}

#[test]
fn each_page_shows_its_code() {
    for (code, text) in pages() {
        assert!(text.starts_with(&format!("# `{code}`\n\n")), "{code}: the title");
        let shown: BTreeSet<&str> = text.lines().filter(|line| is_code(line)).collect();
        assert_eq!(shown, BTreeSet::from([code.as_str()]), "what the page of {code} shows");
        let has = |line: &str| text.lines().any(|found| found == line);
        let fixed = has("```aorta file=fixed.aorta") && has("$ aorta check fixed.aorta");
        let wrong = has("```aorta wrong file=wrong.aorta") && has("$ aorta check wrong.aorta");
        // A warning's file passes the check. A mistake in a command, or a limit that an option lowers, shows commands
        // instead. A page about a fault that no test machine can reproduce says so.
        let commands = text.lines().filter(|line| line.starts_with("$ ") && line.contains(" aorta ")).count() >= 2;
        let told = text.contains("The example is not executed");
        assert!((wrong && fixed) || (!wrong && (commands || told)), "{code}: a mistake, and the same corrected");
        assert!(!code.contains("::exec::") || text.contains("The exit code is "), "{code}: the exit code");
    }
}
