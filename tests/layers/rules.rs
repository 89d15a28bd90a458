//! The architecture's rules, checked on a file's tokens and paths.

use super::source::{self, Path, Token};

/// The layers, the lowest first. A module uses only lower layers, and not its neighbours.
const LAYERS: [&[&str]; 11] = [
    &["base"],
    &["ops", "syntax", "config"],
    &["model"],
    &["plan", "fuse"],
    &["cost"],
    &["schedule"],
    &["exec", "compile"],
    &["backend"],
    &["measure"],
    &["report", "render"],
    &["main", "cli"],
];

/// The backend's files, each with the siblings that it may use.
const BACKENDS: [(&str, &[&str]); 12] = [
    ("libraries", &[]),
    ("system", &[]),
    ("exhausted", &["system"]),
    ("host", &["system", "exhausted"]),
    ("collective", &["libraries"]),
    ("ranges", &["libraries"]),
    ("rendezvous", &["system"]),
    ("shared", &["system"]),
    ("gpu", &["libraries", "collective", "system", "exhausted", "ranges", "shared"]),
    ("cuda", &["libraries", "collective", "gpu", "system"]),
    ("hip", &["libraries", "collective", "gpu", "system"]),
    ("sim", &[]),
];

/// Crates and words that only some modules may use.
const WORDS: [(&str, &[&str]); 10] = [
    ("petgraph", &["plan"]),
    ("cudarc", &["backend"]),
    ("libloading", &["backend"]),
    ("rustix", &["backend"]),
    ("hmac", &["backend"]),
    ("getrandom", &["backend"]),
    ("unsafe", &["backend"]),
    ("pest", &["syntax"]),
    ("pest_derive", &["syntax"]),
    ("Rule", &["syntax"]),
];

/// Parts of the standard library that access the outside world.
const OUTSIDE: [(&str, &[&str]); 4] =
    [("fs", &["cli", "backend"]), ("env", &["cli"]), ("process", &["cli", "main"]), ("net", &["backend::rendezvous"])];

/// Calls that start a program, or write or open a file, each with the files that may make them. docs/security.md
/// promises that there are no others: a new one must document how it handles a name from an untrusted file.
const GUARDED: [(&str, &str, &[&str]); 10] = [
    // `view` gives the browser the page that it has just written, by a name of its own.
    (
        "Command",
        "new",
        &[
            "src/cli/processes/child.rs",
            "src/cli/commands/profile.rs",
            "src/cli/commands/exec/restart.rs",
            "src/cli/commands/view.rs",
        ],
    ),
    // Files named on the command line or shipped beside the program, and the system's own.
    ("fs", "read", &["src/cli/commands/sweep.rs", "src/cli/commands/suite.rs"]),
    (
        "fs",
        "read_to_string",
        &[
            "src/backend/hip/hints.rs",
            "src/backend/hip/sysfs.rs",
            "src/backend/system.rs",
            "src/cli/processes/cases/run.rs",
            "src/cli/environment.rs",
            "src/cli/processes/cases/journal.rs",
        ],
    ),
    ("fs", "write", &[]),
    ("File", "create", &[]),
    ("File", "create_new", &[]),
    ("fs", "rename", &[]),
    ("fs", "copy", &[]),
    (
        "File",
        "open",
        &[
            "src/backend/gpu/host/file_read.rs",
            "src/backend/gpu/prepare/disk_cache.rs",
            "src/backend/rendezvous/secret.rs",
            "src/cli/io/files.rs",
            "src/cli/inputs/modules.rs",
            "src/cli/io/ownership.rs",
            "src/cli/processes/cases/journal.rs",
        ],
    ),
    (
        "OpenOptions",
        "new",
        &[
            "src/backend/hip/hints.rs",
            "src/backend/shared.rs",
            "src/cli/io/output.rs",
            "src/cli/processes/cases/journal.rs",
        ],
    ),
];

/// Macros and functions that print.
const PRINTING: [&str; 8] = ["print", "println", "eprint", "eprintln", "dbg", "stdout", "stderr", "stdin"];

/// Maximum number of lines between an `unsafe` block and its comment.
const SAFETY_REACH: usize = 4;

/// Every violation in one file of `src`, as `file:line: what`.
pub fn violations(file: &str, text: &str) -> Vec<String> {
    let tokens = source::tokens(text);
    let module = module_of(file);
    let top = module.first().map_or("lib", String::as_str);
    let mut found: Vec<(usize, String)> = Vec::new();

    if !text.starts_with("//!") {
        found.push((1, "a file begins with `//!` and says what it is for".to_owned()));
    }
    // The library's own name is a path only in the binary; elsewhere it occurs in the codes of diagnostics.
    let others: &[&str] = if top == "main" { &["std", "aorta"] } else { &["std"] };
    for path in source::paths(&tokens, &module, others) {
        let breach = match path.segments.first().map(String::as_str) {
            Some("std") if !path.own => outside(&module, &path),
            Some("aorta") if !path.own => layer(&module, &path.segments[1..]),
            _ => layer(&module, &path.segments),
        };
        found.extend(breach.map(|breach| (path.line, breach)));
    }
    for index in 0..tokens.len() {
        let breach = word(top, &tokens, index)
            .or_else(|| printing(top, &tokens, index))
            .or_else(|| guarded(file, &tokens, index))
            .or_else(|| no_reason(&tokens, index))
            .or_else(|| no_safety(text, &tokens, index));
        found.extend(breach.map(|breach| (tokens[index].line, breach)));
    }
    found.sort();
    found.into_iter().map(|(line, what)| format!("{file}:{line}: {what}")).collect()
}

/// The module of a file: `src/cli/commands/exec.rs` is `cli::commands::exec`; the library's root is empty.
pub fn module_of(file: &str) -> Vec<String> {
    let inside = file.trim_start_matches("src/").trim_end_matches(".rs");
    let mut module: Vec<String> = inside.split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|last| last == "mod" || last == "lib") {
        module.pop();
    }
    module
}

/// The layer of a module of the root; `None` if it stands in none.
pub fn row_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|row| row.contains(&module))
}

fn layer(module: &[String], path: &[String]) -> Option<String> {
    // The root declares the modules and may name each.
    let from = module.first()?;
    let to = path.first().map_or("*", String::as_str);
    let Some(own) = row_of(from) else { return Some(format!("`{from}` stands in no layer")) };
    let Some(other) = row_of(to) else { return Some(format!("`crate::{to}` stands in no layer")) };
    if from == to {
        return if from == "backend" { sibling(module, path) } else { None };
    }
    let may = other < own || (from == "main" && to == "cli");
    (!may).then(|| format!("`{from}` (layer {own}) may not use `{to}` (layer {other})"))
}

/// A violation if a backend uses another one.
fn sibling(module: &[String], path: &[String]) -> Option<String> {
    // The folder's own file declares all of them.
    let from = module.get(1)?;
    let to = path.get(1)?;
    let Some((_, may)) = BACKENDS.iter().find(|(name, _)| name == from) else {
        return Some(format!("`backend::{from}` is no known backend"));
    };
    // A name that is not a file of the folder is re-exported by the folder's own file.
    let known = BACKENDS.iter().any(|(name, _)| name == to);
    (from != to && known && !may.contains(&to.as_str()))
        .then(|| format!("`backend::{from}` may not use `backend::{to}`"))
}

fn outside(module: &[String], path: &Path) -> Option<String> {
    let part = path.segments.get(1)?;
    let (_, may) = OUTSIDE.iter().find(|(name, _)| name == part)?;
    let within = |allowed: &&str| allowed.split("::").zip(module).filter(|(a, b)| a == b).count();
    let belongs = may.iter().any(|allowed| within(allowed) == allowed.split("::").count());
    (!belongs).then(|| format!("`std::{part}` belongs to {}", listed(may)))
}

fn word(top: &str, tokens: &[Token], index: usize) -> Option<String> {
    let (word, may) = WORDS.iter().find(|(word, _)| *word == tokens[index].text)?;
    (!may.contains(&top)).then(|| format!("`{word}` belongs to {}", listed(may)))
}

fn listed(modules: &[&str]) -> String {
    modules.join(", ")
}

fn printing(top: &str, tokens: &[Token], index: usize) -> Option<String> {
    let name = tokens[index].text.as_str();
    let next = tokens.get(index + 1).map_or("", |token| token.text.as_str());
    let prints = PRINTING.contains(&name) && matches!((name, next), ("stdout" | "stderr" | "stdin", "(") | (_, "!"));
    (prints && !matches!(top, "cli" | "main"))
        .then(|| format!("`{name}`: only cli reads from and writes to a terminal"))
}

/// A call of [`GUARDED`] in a file that must not make it. Tests may.
fn guarded(file: &str, tokens: &[Token], index: usize) -> Option<String> {
    let text = |index: usize| tokens.get(index).map_or("", |token| token.text.as_str());
    let (of, call) = (text(index), text(index + 2));
    let (_, _, may) = GUARDED.iter().find(|(known, name, _)| *known == of && *name == call)?;
    let clap = index >= 2 && text(index - 1) == "::" && text(index - 2) == "clap";
    if text(index + 1) != "::" || may.contains(&file) || clap || in_tests(&tokens[..index]) {
        return None;
    }
    Some(format!("`{of}::{call}` belongs to {}", if may.is_empty() { "nobody".to_owned() } else { listed(may) }))
}

/// True once the module of a file's own tests has begun.
fn in_tests(before: &[Token]) -> bool {
    before.windows(3).any(|three| three[0].text == "mod" && three[1].text == "tests" && three[2].text == "{")
}

/// `#[allow(…)]` and `#[expect(…)]` must have a reason.
fn no_reason(tokens: &[Token], index: usize) -> Option<String> {
    let text = |index: usize| tokens.get(index).map_or("", |token| token.text.as_str());
    let name = text(index);
    if !matches!(name, "allow" | "expect") || text(index + 1) != "(" || !in_attribute(tokens, index) {
        return None;
    }
    let mut depth = 0;
    for i in index + 1..tokens.len() {
        match text(i) {
            "(" => depth += 1,
            ")" => depth -= 1,
            "reason" if text(i + 1) == "=" && text(i + 2) == "\"" => return None,
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    Some(format!("`{name}` without a reason"))
}

fn in_attribute(tokens: &[Token], index: usize) -> bool {
    let mut depth = 0i32;
    for i in (0..index).rev() {
        match tokens[i].text.as_str() {
            "]" => depth += 1,
            "[" if depth > 0 => depth -= 1,
            "[" => return i > 0 && matches!(tokens[i - 1].text.as_str(), "#" | "!"),
            ";" | "{" | "}" => return false,
            _ => {}
        }
    }
    false
}

/// An `unsafe` block or implementation must have a SAFETY comment directly above.
fn no_safety(text: &str, tokens: &[Token], index: usize) -> Option<String> {
    let next = tokens.get(index + 1).map_or("", |token| token.text.as_str());
    if tokens[index].text != "unsafe" || !matches!(next, "{" | "impl") {
        return None;
    }
    let line = tokens[index].line;
    let above = text.lines().skip(line.saturating_sub(SAFETY_REACH + 1)).take(SAFETY_REACH.min(line - 1) + 1);
    let said = above.filter_map(|line| line.split_once("//")).any(|(_, comment)| comment.contains("SAFETY"));
    (!said).then(|| "`unsafe` without a SAFETY comment above it".to_owned())
}
