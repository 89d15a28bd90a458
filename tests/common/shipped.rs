//! Shipped files: workloads and examples, with their presets.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aorta::compile::{CompileOptions, Compiled, ModuleText, RankCount, standard_module};
use aorta::model::Program;
use aorta::ops::DataFile;
use aorta::plan::Plan;
use aorta::syntax::ast::{DeclKind, Expr, ExprKind};
use aorta::syntax::{self, Ast, SyntaxLimits};

use super::folder::{ends_in, files_below};
use super::take_rank;

/// A shipped file.
#[derive(Debug)]
pub struct Shipped {
    /// `workloads/distributed/moe.aorta`.
    pub path: String,
    pub text: String,
}

/// The folder of the repository. A test copied to another machine uses the current folder.
fn root() -> &'static Path {
    let built = Path::new(env!("CARGO_MANIFEST_DIR"));
    if built.join("workloads").is_dir() { built } else { Path::new(".") }
}

/// The file at a path of the repository.
pub fn at(path: &str) -> Shipped {
    let text = std::fs::read_to_string(root().join(path)).expect("the file is part of the repository");
    Shipped { path: path.to_owned(), text }
}

/// Every shipped file, sorted by path. Modules are not files of their own.
pub fn all() -> Vec<Shipped> {
    let root = root();
    let below = |folder| files_below(&root.join(folder), |folder| !folder.ends_with("parts"));
    let paths = ["workloads", "examples"].into_iter().flat_map(below).filter(|path| ends_in(path, "aorta"));
    let relative = |path: PathBuf| path.strip_prefix(root).expect("it was found below").display().to_string();
    let mut found: Vec<Shipped> = paths.map(|path| at(&relative(path))).collect();
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.len() >= 11, "files are found");
    found
}

/// The file of that name.
pub fn named(stem: &str) -> Shipped {
    all().into_iter().find(|file| file.stem() == stem).unwrap_or_else(|| panic!("no file is called {stem}"))
}

impl Shipped {
    /// The name without extension, such as `moe`.
    pub fn stem(&self) -> &str {
        Path::new(&self.path).file_stem().and_then(|stem| stem.to_str()).expect("files have plain names")
    }

    pub fn ast(&self) -> Ast {
        let (ast, errors) = syntax::parse(&self.text, 0, &SyntaxLimits::default());
        assert!(errors.is_empty(), "{}: {errors:?}", self.path);
        ast
    }

    pub fn presets(&self) -> Vec<String> {
        let ast = self.ast();
        let presets = ast.decls.iter().filter_map(|decl| match &decl.kind {
            DeclKind::Preset { name, .. } => Some(ast.names.name(name.symbol).to_owned()),
            _ => None,
        });
        presets.collect()
    }

    /// The allowed range of `param streams`; `None` if the file has no such parameter.
    pub fn streams(&self) -> Option<RangeInclusive<i64>> {
        let ast = self.ast();
        ast.decls.iter().find_map(|decl| match &decl.kind {
            DeclKind::Param { name, allowed, .. } if ast.names.name(name.symbol) == "streams" => {
                Some(range(allowed.as_ref().expect("a number of streams has its range")))
            }
            _ => None,
        })
    }

    /// The program with a preset and parameter values, or its diagnostics.
    pub fn analyze(&self, preset: Option<&str>, set: &[(&str, &str)]) -> Result<(Program, Plan), String> {
        analyze(&self.path, &self.text, preset, set)
    }

    pub fn program(&self, preset: Option<&str>, set: &[(&str, &str)]) -> (Program, Plan) {
        self.analyze(preset, set).unwrap_or_else(|errors| panic!("{}, {preset:?}, {set:?}:\n{errors}", self.path))
    }

    /// The program at a size that the CPU computes quickly.
    pub fn small(&self, set: &[(&str, &str)]) -> (Program, Plan) {
        self.program(Some("tiny"), set)
    }
}

fn range(expr: &Expr) -> RangeInclusive<i64> {
    let ExprKind::Range { from, to, inclusive } = &expr.kind else { panic!("`in` has no range") };
    match (&from.kind, &to.kind) {
        (ExprKind::Int(from), ExprKind::Int(to)) => *from..=*to - i64::from(!inclusive),
        _ => panic!("the ends of the range are no plain numbers"),
    }
}

/// The program of a text with a preset and parameter values, or its diagnostics.
pub fn analyze(name: &str, text: &str, preset: Option<&str>, set: &[(&str, &str)]) -> Result<(Program, Plan), String> {
    Ok(take_rank(compile(name, text, preset, set, 1)?))
}

/// The programs of all ranks of a text with a preset and parameter values, or their diagnostics. Draws have two iterations.
pub fn compile(
    name: &str,
    text: &str,
    preset: Option<&str>,
    set: &[(&str, &str)],
    ranks: u32,
) -> Result<Compiled, String> {
    let set = set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let preset = preset.map(str::to_owned);
    let find = &|path: &str, by: Option<&str>| find(by.unwrap_or(name), path);
    let options =
        CompileOptions { preset, set, ranks: RankCount::Exactly(ranks), cycle: 2, find, ..CompileOptions::default() };
    super::compile(name, text, &options)
}

/// The file at `path` from the folder of the file `by`, or a shipped module.
fn find(by: &str, path: &str) -> Result<ModuleText, String> {
    if let Some(found) = standard_module(path) {
        return found;
    }
    let file = root().join(Path::new(by).with_file_name(path));
    let bytes = std::fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let data = path.ends_with(".bin").then(|| Arc::new(DataFile { path: file, bytes: bytes.len() as u64, read }));
    let text = if data.is_some() { String::new() } else { String::from_utf8_lossy(&bytes).into_owned() };
    Ok(ModuleText { data, ..ModuleText::text(path.to_owned(), text) })
}

fn read(path: &Path, offset: u64, bytes: &mut [u8]) -> Result<(), String> {
    let whole = std::fs::read(path).map_err(|error| error.to_string())?;
    bytes.copy_from_slice(&whole[offset as usize..offset as usize + bytes.len()]);
    Ok(())
}
