//! A parsed text, and the values that the caller sets as expressions.

use sha2::{Digest, Sha256};

use crate::base::{SourceMap, SrcSpan, hex, shell};
use crate::model;
use crate::syntax::{self, Ast, SyntaxError, SyntaxLimits};

use super::CompileOptions;
use super::diagnostics::{BoxedDiagnostic, CompileError, boxed};
use super::modules::{FindModule, Linker, ModuleText};
use super::standard::standard_module;
use super::traces;

/// A text that has been parsed but not checked: names may be unknown and types wrong.
#[derive(Debug)]
pub struct Parsed {
    /// Name of the text, as the caller gave it.
    pub name: String,
    /// SHA-256 of the text, the modules that it uses, the code of its kernels and the files of its traces, in hexadecimal.
    pub sha256: String,
    /// Tree of the text that could be parsed, even if there are errors.
    pub ast: Ast,
    /// Syntax errors in the order of the text, then the errors of modules.
    pub errors: Vec<BoxedDiagnostic>,
    pub sources: SourceMap,
    /// The columns that the file's draws read.
    pub traces: model::Traces,
    /// The data files that operations of the text read.
    pub files: model::DataFiles,
    /// Limits that apply to the expressions of values too.
    limits: SyntaxLimits,
}

/// Parses a text, links the modules that it uses and reads the files of its traces. `find` returns the texts of modules
/// and traces. `name` is the text's name in diagnostics.
///
/// # Errors
/// [`CompileError::TooLarge`] for a text of more than 4 GiB. Syntax errors are part of the result.
pub fn parse(name: &str, text: &str, limits: &SyntaxLimits, find: FindModule) -> Result<Parsed, CompileError> {
    let mut sources = SourceMap::new();
    let base = sources.add(name, text).ok_or_else(|| CompileError::TooLarge { name: name.to_owned() })?;
    let (mut ast, errors) = syntax::parse(text, base, limits);
    let mut linker = Linker::new(find, limits, &mut sources);
    linker.link(&mut ast);
    let mut hash = Sha256::new_with_prefix(text.as_bytes());
    linker.texts.iter().for_each(|module| hash.update(module));
    let traces = traces::read(&ast, find, |text| hash.update(text.as_bytes()));
    let files = traces::data_files(&ast, find);
    let errors = boxed(errors).into_iter().chain(linker.errors).collect();
    Ok(Parsed {
        name: name.to_owned(),
        sha256: hex(hash.finalize()),
        ast,
        errors,
        sources,
        traces,
        files,
        limits: *limits,
    })
}

/// A [`FindModule`] for texts without files: finds shipped modules only.
pub fn no_files(path: &str, _: Option<&str>) -> Result<ModuleText, String> {
    standard_module(path).unwrap_or_else(|| Err("this text has no folder in which to look for it".to_owned()))
}

impl Parsed {
    /// True if the file declares a parameter of that name.
    pub(super) fn has_param(&self, wanted: &str) -> bool {
        self.ast.params().any(|name| self.ast.names.name(name.symbol) == wanted)
    }

    /// Parses the values of parameters that the caller sets. Their syntax errors go to `diagnostics`.
    pub(super) fn values(
        &mut self,
        options: &CompileOptions,
        has_streams: bool,
        diagnostics: &mut Vec<BoxedDiagnostic>,
    ) -> Result<Vec<model::ParamSetting>, CompileError> {
        let streams = options.streams.filter(|_| has_streams).map(|streams| ("streams", streams.to_string()));
        let given = options.set.iter().map(|(name, value)| (name.as_str(), value.clone())).chain(streams);
        let mut set = Vec::new();
        for (name, value) in given {
            let source = format!("--set {name}");
            let base = self.sources.add(&source, value.as_str()).ok_or(CompileError::TooLarge { name: source })?;
            match syntax::parse_expr(&value, base, &self.limits, &mut self.ast.names) {
                Ok(expr) => {
                    let span = SrcSpan::new(base as usize, base as usize + value.len());
                    set.push(model::ParamSetting { name: name.to_owned(), value: expr, span });
                }
                Err(mut errors) => {
                    for error in &mut errors {
                        if let SyntaxError::Expected { found, at, help, .. } = error
                            && found == "`,`"
                            && let Some(list) = several_values(&self.name, name, &value, at.offset() - base as usize)
                        {
                            *help = Some(list);
                        }
                    }
                    diagnostics.extend(boxed(errors));
                }
            }
        }
        Ok(set)
    }
}

/// Help for several values of a parameter, or several parameters, in one `--set`. `None` if the comma at this offset of the value
/// is inside brackets.
fn several_values(file: &str, name: &str, value: &str, comma: usize) -> Option<String> {
    let before = value.get(..comma)?;
    if before.matches(['(', '[', '{']).count() != before.matches([')', ']', '}']).count() {
        return None;
    }
    let pair =
        |name: &str, value: &str| shell::command(["--set".to_owned(), format!("{}={}", name.trim(), value.trim())]);
    if let Some((second, other)) = value[comma + 1..].split_once('=') {
        let each = format!("{} {}", pair(name, before), pair(second, other));
        return Some(format!("each parameter has its own option: `{each}`"));
    }
    let file = if file.starts_with('<') { "FILE" } else { file };
    let sweep = format!("{} {}", shell::command(["aorta", "sweep", file]), pair(name, value));
    Some(format!("a run takes one value of `{name}`, and a sweep runs each: `{sweep}`"))
}
