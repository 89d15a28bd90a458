//! Checks the rules of the architecture in the source code: which module may use which, which may access the outside
//! world, and how long a file is.

mod cycles;
mod rules;
mod source;

use std::path::{Path, PathBuf};

use cycles::Uses;
use rules::{module_of, row_of, violations};

use crate::common::folder::{ends_in, files_below};

/// Every Rust file in a folder and its subfolders, sorted.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    files(folder, &["rs"])
}

/// Every file in a folder and its subfolders with one of these extensions, sorted. Skips what a build has left.
fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut files = files_below(folder, |folder| !folder.ends_with("target"));
    files.retain(|path| extensions.iter().any(|wanted| ends_in(path, wanted)));
    files
}

#[test]
fn sources_keep_the_rules() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = rust_files(&root.join("src"));
    assert!(files.len() > 50, "only {} files were found", files.len());
    let mut found = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).expect("sources are text");
        let name = path.strip_prefix(root).expect("below the root").display().to_string();
        found.extend(violations(&name, &text));
    }
    assert!(found.is_empty(), "{} breaches of the architecture:\n{}", found.len(), found.join("\n"));
}

/// The rules recognize the imports of this project: if every file were in the lowest layer, all that use others would
/// be violations.
#[test]
fn sources_are_understood() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for path in rust_files(&root.join("src")) {
        let text = std::fs::read_to_string(&path).expect("sources are text");
        let used = |line: &str| line.starts_with("use crate::") && !line.starts_with("use crate::base");
        let expected = text.lines().filter(|line| used(line)).count();
        let said = violations("src/base/pretended.rs", &text);
        let layers = said.iter().filter(|line| line.contains("may not use")).count();
        assert!(layers >= expected, "{} has {expected} imports, and {layers} were seen: {said:#?}", path.display());
    }
}

/// The files of a folder use each other in no circle, except where a reason is given.
#[test]
fn files_of_a_folder_use_each_other_one_way() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files: Vec<(Vec<String>, String)> = rust_files(&root.join("src"))
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(root).expect("below the root").display().to_string();
            (module_of(&name), std::fs::read_to_string(&path).expect("sources are text"))
        })
        .collect();
    let found = Uses::of(files.iter().map(|(module, text)| (module.clone(), text.as_str()))).cycles();
    let known = cycles::known();
    let new: Vec<_> = found.difference(&known).collect();
    assert!(new.is_empty(), "cycles of files: {new:#?}\nMove what both need to a file of its own.");
    let gone: Vec<_> = known.difference(&found).collect();
    assert!(gone.is_empty(), "no cycles any more: {gone:#?}\nRemove them from tests/layers/cycles.rs.");
}

#[test]
fn cycles_are_found() {
    let cycles = |files: &[(&str, &str)]| -> Vec<(String, String)> {
        Uses::of(files.iter().map(|(file, text)| (module_of(file), *text))).cycles().into_iter().collect()
    };
    let one_way = [
        ("src/a/mod.rs", "mod b;\nmod c;\npub use b::One;"),
        ("src/a/b.rs", "pub struct One;"),
        ("src/a/c.rs", "use super::One;"),
    ];
    assert_eq!(cycles(&one_way), []);
    let circle = |folder: &str, files: &str| vec![(folder.to_owned(), files.to_owned())];
    let both = [one_way[0], ("src/a/b.rs", "fn f() { super::c::g() }"), one_way[2]];
    assert_eq!(cycles(&both), circle("a", "b c"));
    let behind_glob = [one_way[0], ("src/a/b.rs", "use super::*;\nfn f() { c::g() }"), one_way[2]];
    assert_eq!(cycles(&behind_glob), circle("a", "b c"));
    // A module of tests may use what uses its file.
    let tested = [one_way[0], ("src/a/b.rs", "#[cfg(test)]\nmod tests {\n use crate::a::c::g;\n}"), one_way[2]];
    assert_eq!(cycles(&tested), []);
    let folders = [
        ("src/a/b.rs", "use super::c::One;"),
        ("src/a/c/d.rs", "use crate::a::e;"),
        ("src/a/c/mod.rs", "mod d;"),
        ("src/a/e.rs", "use crate::a::b::Two;"),
    ];
    assert_eq!(cycles(&folders), circle("a", "b c e"));
}

/// The walks of the book name files and functions that exist, in layers that are those of the files.
#[test]
fn walks_name_what_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/walks.md")).expect("the page is there");
    let mut steps = 0;
    for row in page.lines().filter(|line| line.contains("| `src/")) {
        let cells: Vec<&str> = row.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        let [_, layer, file, function, ..] = cells[..] else { panic!("a row with too few cells: {row}") };
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let defines = |rest: &str| rest.strip_prefix(function).is_some_and(|rest| rest.starts_with(['(', '<']));
        assert!(text.split("fn ").skip(1).any(defines), "{file} has no function `{function}`");
        let own = row_of(&module_of(file)[0]).map(|row| row.to_string());
        assert_eq!(own.as_deref(), Some(layer), "the layer of {file}");
        steps += 1;
    }
    assert!(steps > 30, "only {steps} steps were found");
}

/// The greatest number of lines of a file.
const LONGEST: usize = 600;

/// Every file of code is short enough for one subject.
#[test]
fn no_file_is_long() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["src", "tests", "benches", "fuzz/src", "fuzz/targets", "fuzz/examples"];
    let files = folders.iter().flat_map(|folder| files(&root.join(folder), &["rs", "py"]));
    let lines = |path: &PathBuf| std::fs::read_to_string(path).expect("sources are text").lines().count();
    let long: Vec<(PathBuf, usize)> = files
        .map(|path| (lines(&path), path))
        .filter(|(lines, _)| *lines > LONGEST)
        .map(|(n, path)| (path, n))
        .collect();
    assert!(long.is_empty(), "more than {LONGEST} lines: {long:#?}");
}

/// The violations of a file with this code.
fn said(file: &str, code: &str) -> Vec<String> {
    violations(file, &format!("//! About.\n{code}\n"))
}

#[track_caller]
fn breaks(file: &str, code: &str, what: &str) {
    let said = said(file, code);
    assert!(said.iter().any(|line| line.contains(what)), "expected {what:?} of\n{code}\nin {file}, and got {said:#?}");
}

#[track_caller]
fn keeps(file: &str, code: &str) {
    let said = said(file, code);
    assert!(said.is_empty(), "{code}\nin {file} breaks no rule: {said:#?}");
}

#[test]
fn upward_uses_are_found() {
    breaks(
        "src/base/span.rs",
        "use crate::model::Program;",
        "src/base/span.rs:2: `base` (layer 0) may not use `model`",
    );
    breaks("src/model/values/eval.rs", "fn f() { crate::plan::build(); }", "may not use `plan`");
    breaks("src/measure/run.rs", "fn f(record: &crate::report::Table) {}", "may not use `report`");
    breaks("src/exec/mod.rs", "use super::backend::sim::Sim;", "may not use `backend`");
    breaks("src/exec/session.rs", "use super::super::cli;", "may not use `cli`");
    breaks(
        "src/exec/mod.rs",
        "mod tests {\n use super::super::measure::Times;\n}",
        "src/exec/mod.rs:3: `exec` (layer 6)",
    );
    keeps("src/model/values/eval.rs", "use crate::base::Bytes;\nuse crate::ops;\nuse super::value::Value;");
    keeps("src/exec/mod.rs", "mod tests {\n use super::*;\n fn f() { super::session::start(); }\n}");
}

#[test]
fn neighbours_are_found() {
    breaks("src/syntax/mod.rs", "use crate::config::Settings;", "may not use `config`");
    breaks("src/report/table.rs", "use crate::render::Style;", "may not use `render`");
    breaks("src/cli/mod.rs", "fn f() { crate::main::run(); }", "may not use `main`");
    keeps("src/main.rs", "fn main() { aorta::cli::run(); }");
    keeps("src/main.rs", "use aorta::cli;");
    breaks("src/base/mod.rs", "use crate::helpers::join;", "`crate::helpers` stands in no layer");
    breaks("src/helpers.rs", "use crate::base::Bytes;", "`helpers` stands in no layer");
    breaks("src/base/mod.rs", "use crate::*;", "`crate::*` stands in no layer");
}

#[test]
fn groups_are_read() {
    let code = "use crate::{\n    base::{Bytes, Nanos as Time},\n    measure::{self, record::{RunRecord, Times}},\n    plan,\n};";
    let said = said("src/model/mod.rs", code);
    let lines: Vec<&str> = said.iter().filter_map(|line| line.split(": ").next()).collect();
    // `measure` occurs three times: the module itself, and two of its names.
    let file = "src/model/mod.rs";
    assert_eq!(lines, [4, 4, 4, 5].map(|line| format!("{file}:{line}")), "{said:#?}");
    breaks("src/plan/mod.rs", "use crate::base::Bytes; pub(crate) use crate::{exec as run};", "may not use `exec`");
}

#[test]
fn backends_are_kept_apart() {
    breaks("src/backend/host/mod.rs", "use crate::backend::sim::Sim;", "`backend::host` may not use `backend::sim`");
    breaks("src/backend/sim/fluid.rs", "use super::super::gpu::Gpu;", "`backend::sim` may not use `backend::gpu`");
    breaks("src/backend/gpu/mod.rs", "use super::cuda::Cuda;", "`backend::gpu` may not use `backend::cuda`");
    breaks("src/backend/hip/mod.rs", "use super::cuda::Cuda;", "`backend::hip` may not use `backend::cuda`");
    breaks("src/backend/host/mod.rs", "use super::collective::Table;", "may not use `backend::collective`");
    breaks("src/backend/vulkan.rs", "use super::gpu::Api;", "`backend::vulkan` is no known backend");
    keeps("src/backend/cuda/mod.rs", "use crate::backend::{SearchPaths, collective, gpu::Api, libraries};");
    keeps("src/backend/hip/driver.rs", "use super::super::gpu::Api;\nuse super::Hip;");
    keeps("src/backend/gpu/mod.rs", "use super::collective;");
}

#[test]
fn words_are_kept_in_their_modules() {
    breaks("src/schedule/mod.rs", "use petgraph::Graph;", "`petgraph` belongs to plan");
    breaks("src/cli/commands/devices.rs", "fn f() { cudarc::driver::init(); }", "`cudarc` belongs to backend");
    breaks("src/cli/commands/devices.rs", "use libloading as l;", "`libloading` belongs to backend");
    breaks("src/model/mod.rs", "use pest::Parser;", "`pest` belongs to syntax");
    breaks("src/model/mod.rs", "fn f(rule: syntax::Rule) {}", "`Rule` belongs to syntax");
    breaks("src/base/mod.rs", "// SAFETY: none.\nfn f() { unsafe { g() } }", "`unsafe` belongs to backend");
    keeps("src/base/mod.rs", "#![deny(unsafe_code)]\n// unsafe, petgraph and pest are words here");
    keeps(
        "src/base/mod.rs",
        "const A: &str = \"unsafe \\\" pest\"; const B: &str = r#\"a \" unsafe\"#; const C: char = '\"';",
    );
    keeps("src/base/mod.rs", "/* unsafe /* cudarc */ pest */ fn f<'a>(x: &'a str) -> char { '\\'' }");
    // Ending a literal too early would hide the code after it.
    breaks(
        "src/base/mod.rs",
        "const Q: char = '\\'';\nfn f<'a>() { '\"'; unsafe {} }",
        ":3: `unsafe` belongs to backend",
    );
}

#[test]
fn the_outside_world_is_kept_out() {
    breaks("src/measure/run.rs", "fn f() { println!(\"a\"); }", "`println`");
    breaks("src/cost/mod.rs", "fn f() { dbg!(1); }", "`dbg`");
    breaks("src/report/table.rs", "use std::io; fn f() { io::stdout(); }", "`stdout`");
    breaks("src/config/settings.rs", "fn f() { std::env::var(\"HOME\"); }", "`std::env` belongs to cli");
    breaks("src/config/settings.rs", "use std::{fs, io::Read};", "`std::fs` belongs to cli, backend");
    breaks("src/exec/session.rs", "fn f() { ::std::process::exit(1) }", "`std::process` belongs to cli, main");
    breaks("src/backend/gpu/mod.rs", "use std::net::TcpStream;", "`std::net` belongs to backend::rendezvous");
    breaks("src/cli/processes/launcher.rs", "use std::net::TcpStream;", "`std::net` belongs to backend::rendezvous");
    keeps("src/backend/rendezvous/join.rs", "use std::net::TcpStream;");
    keeps("src/cli/io/output.rs", "use std::{env, fs}; fn f() { std::process::exit(2); eprintln!(\"a\"); }");
    keeps("src/backend/gpu/kernels.rs", "use std::fs::File;");
    keeps("src/main.rs", "use std::process::ExitCode;");
    keeps("src/ops/mod.rs", "const VERSION: &str = env!(\"CARGO_PKG_VERSION\"); // println!(\"a\")");
}

#[test]
fn exceptions_say_why() {
    breaks("src/ops/mod.rs", "#[allow(dead_code)]\nfn f() {}", ":2: `allow` without a reason");
    breaks("src/ops/mod.rs", "#![expect(clippy::all)]", "`expect` without a reason");
    breaks("src/ops/mod.rs", "#[cfg_attr(test, allow(dead_code))]\nfn f() {}", "`allow` without a reason");
    keeps(
        "src/ops/mod.rs",
        "#[expect(dead_code, reason = \"why\")]\nfn f() { g().expect(\"never\"); [h.expect(\"never\")]; }",
    );
    breaks("src/backend/cuda/mod.rs", "fn f() { unsafe { g() } }", "`unsafe` without a SAFETY comment");
    breaks("src/backend/cuda/mod.rs", "unsafe impl Send for A {}", "`unsafe` without a SAFETY comment");
    breaks(
        "src/backend/cuda/mod.rs",
        "// SAFETY: far.\n\n\n\n\n\nfn f() { unsafe { g() } }",
        "without a SAFETY comment",
    );
    keeps("src/backend/cuda/mod.rs", "// SAFETY: fine.\nunsafe impl Send for A {}\nunsafe fn f();");
    keeps(
        "src/backend/cuda/mod.rs",
        "fn f() {\n    // SAFETY: the handle lives.\n    let code =\n        unsafe { g() };\n}",
    );
}

#[test]
fn a_file_says_what_it_is_for() {
    assert_eq!(violations("src/base/a.rs", "use std::fmt;\n").len(), 1);
    assert_eq!(violations("src/base/a.rs", "//! Names.\nuse std::fmt;\n").len(), 0);
}

#[test]
fn doors_to_the_outside_are_known() {
    breaks("src/cli/commands/check.rs", "fn f() { std::process::Command::new(name); }", "`Command::new` belongs to");
    breaks(
        "src/cli/commands/report.rs",
        "use std::fs;\nfn f() { fs::write(path, text); }",
        "`fs::write` belongs to nobody",
    );
    breaks("src/cli/commands/report.rs", "fn f() { std::fs::File::create(path); }", "`File::create` belongs to nobody");
    breaks("src/backend/gpu/mod.rs", "fn f() { std::fs::read(path); }", "`fs::read` belongs to");
    keeps("src/cli/mod.rs", "fn f() { clap::Command::new(\"exec\"); }");
    keeps("src/cli/case.rs", "mod tests {\n fn f() { std::fs::write(path, text); }\n}");
}
