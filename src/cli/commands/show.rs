//! `aorta show`: shows a file's description, parameters and metrics.

use std::path::Path;

use clap::Args;

use crate::base::{SourceMap, visible};
use crate::compile::Parsed;
use crate::config::Settings;
use crate::syntax::Ast;
use crate::syntax::ast::{DeclKind, Expr, Family, Layout, Name, Param, Setting, Signature};

use super::{bundle, check, suite};
use crate::cli::error::CliError;
use crate::cli::inputs::load::{self, FileKind};
use crate::cli::inputs::{container, kinds, project};
use crate::cli::io::{diagnostics, output};
use crate::cli::{CliResult, ConfigArgs, DONE, WorkloadArgs};
use crate::render::DiagnosticFormat;

#[derive(Debug, Args)]
pub struct ShowArgs {
    /// A workload, a shipped module (`std.ring`), a scenario or a suite (`.ron`), a bundle (`.aortab`) or the record of
    /// a run (`.json`)
    file: String,
    /// Show the text itself
    #[arg(long)]
    source: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

pub fn run(args: ShowArgs) -> CliResult {
    let settings = load::settings(&args.config)?;
    if container::is_container(Path::new(&args.file)) && !args.source {
        output::print(&format!("{}\n", bundle::describe(&args.file)?));
    }
    let resolved = project::resolve(&args.file)?;
    if resolved.ends_with(".ron") || container::inside(Path::new(&resolved))?.is_some() {
        return page(&args, &resolved);
    }
    let text = match load::standard(&args.file) {
        Some(module) => module?,
        None => load::find(&resolved, &settings)?,
    };
    if args.source {
        output::print_data(&text.text);
        return Ok(DONE);
    }
    let parsed = load::parse(&text, &settings)?;
    // The valid part of a broken file is shown before its errors.
    if !parsed.ast.decls.is_empty() || parsed.errors.is_empty() {
        output::print(&describe(&parsed));
    }
    diagnostics::syntax_errors(parsed).map(|()| DONE)
}

/// Shows a scenario, a suite, a bundle or a record: its contents, settings and the run that it describes.
fn page(args: &ShowArgs, resolved: &str) -> CliResult {
    if args.source {
        output::print_data(&match container::is_bundle(&args.file) {
            true => load::read(Path::new(&args.file), FileKind::Bundle)?,
            false => load::read(Path::new(resolved), FileKind::Scenario)?,
        });
        return Ok(DONE);
    }
    if is_text(resolved)? {
        output::print_data(&load::read(Path::new(resolved), FileKind::Scenario)?);
        return Ok(DONE);
    }
    if resolved.ends_with(".ron") && suite::is_suite(resolved)? {
        output::print(&suite::check(resolved, &args.config, DiagnosticFormat::default())?);
        return Ok(DONE);
    }
    output::print(&check::scenario(&args.file, &WorkloadArgs::default(), &args.config)?);
    Ok(DONE)
}

/// True for a file that is neither run nor described, such as a part of a bundle with a module or with ranges: its text
/// is shown instead.
fn is_text(resolved: &str) -> Result<bool, CliError> {
    if resolved.ends_with(".ron") {
        return Ok(kinds::supporting(resolved)?.is_some());
    }
    if !resolved.ends_with(".aorta") {
        return Ok(true);
    }
    let settings = Settings::default();
    Ok(load::user_of_module(&load::find(resolved, &settings)?, &settings)?.is_some())
}

fn describe(parsed: &Parsed) -> String {
    let (ast, sources) = (&parsed.ast, &parsed.sources);
    let category = ast.category().map(|category| format!(" ({category})")).unwrap_or_default();
    let mut text = format!("{}{category}\n\n", parsed.name);
    for (index, lines) in ast.about.split(|line| line.trim().is_empty()).enumerate() {
        text += if index > 0 { "\n" } else { "" };
        text += &output::paragraph(lines);
    }
    let facts = facts(ast, sources);
    if !facts.is_empty() {
        text += &output::paragraph(&[facts]);
    }
    let mut params = Vec::new();
    let mut presets = Vec::new();
    let mut draws = Vec::new();
    let mut meshes = Vec::new();
    let mut requirements = Vec::new();
    let mut streams = Vec::new();
    let mut definitions = Vec::new();
    let mut figures = Vec::new();
    for decl in &ast.decls {
        let doc = decl.docs.join(" ");
        match &decl.kind {
            DeclKind::Param { name, default, allowed } => {
                let allowed = allowed.as_ref().map(|allowed| format!(" in {}", source(sources, allowed)));
                let name = ast.names.name(name.symbol);
                params.push((format!("{name} = {}{}", source(sources, default), allowed.unwrap_or_default()), doc));
            }
            DeclKind::Preset { name, values } => {
                let values = values.iter().map(|binding| {
                    format!("{} = {}", ast.names.name(binding.name.symbol), source(sources, &binding.value))
                });
                let all: Vec<String> = values.collect();
                let values = all.join(", ");
                let about = if doc.is_empty() { values } else { format!("{doc}: {values}") };
                presets.push((ast.names.name(name.symbol).to_owned(), about));
            }
            DeclKind::Draw { .. } => {
                let text = sources.one_line(decl.span);
                draws.push((text.trim_start_matches("draw").trim_start().to_owned(), doc));
            }
            DeclKind::Mesh(_) => {
                let text = sources.one_line(decl.span);
                meshes.push((text.trim_start_matches("mesh").trim_start().to_owned(), doc));
            }
            DeclKind::Require { condition, message } => {
                let message = message.as_deref().map(visible::one_line).unwrap_or_default();
                requirements.push((source(sources, condition), message.into_owned()));
            }
            DeclKind::Stream { name, count, options } => {
                let count: Vec<String> = count.iter().map(|count| source(sources, count)).collect();
                let family = if count.is_empty() { String::new() } else { format!("[{}]", count.join(", ")) };
                let options = setting_texts(ast, sources, options);
                let name = ast.names.name(name.symbol);
                streams.push((format!("{name}{family}"), [options, doc].join(" ").trim().to_owned()));
            }
            DeclKind::Def { name, signature, .. } | DeclKind::Kernel { name, signature, .. } => {
                definitions.push((signature_text(ast, sources, *name, signature), doc));
            }
            DeclKind::Metric { name, each, value, unit } => {
                let unit = unit.as_ref().map(|unit| format!(" ({})", visible::one_line(unit))).unwrap_or_default();
                let name = ast.names.name(name.symbol);
                let each = each
                    .as_ref()
                    .map(|each| format!("[{} in {}]", ast.names.name(each.name.symbol), source(sources, &each.value)));
                let each = each.unwrap_or_default();
                figures.push((
                    format!("{name}{each}{unit}"),
                    format!("{} {doc}", source(sources, value)).trim().to_owned(),
                ));
            }
            DeclKind::Expect { condition, when } => {
                let when = when.as_ref().map(|when| format!(" when {}", source(sources, when))).unwrap_or_default();
                figures.push(("expects".to_owned(), format!("{}{when}", source(sources, condition))));
            }
            _ => {}
        }
    }
    section(&mut text, "Parameters (--set NAME=VALUE)", &params);
    section(&mut text, "Presets (--preset NAME)", &presets);
    section(&mut text, "Draws", &draws);
    section(&mut text, "Meshes of ranks", &meshes);
    section(&mut text, "Requirements", &requirements);
    section(&mut text, "Streams", &streams);
    section(&mut text, "Buffers", &buffers(ast, sources));
    section(&mut text, "Definitions", &definitions);
    section(&mut text, "Metrics", &figures);
    text
}

/// The fields of `meta` except the category: `tags: ["moe"], authors: ["…"]`.
fn facts(ast: &Ast, sources: &SourceMap) -> String {
    let other = ast.meta().filter(|setting| ast.names.name(setting.key.symbol) != "category");
    setting_texts(ast, sources, other)
}

/// Formats fields or options: `key: value, key: value`.
fn setting_texts<'a>(ast: &Ast, sources: &SourceMap, settings: impl IntoIterator<Item = &'a Setting>) -> String {
    let text =
        |setting: &Setting| format!("{}: {}", ast.names.name(setting.key.symbol), source(sources, &setting.value));
    settings.into_iter().map(text).collect::<Vec<_>>().join(", ")
}

/// Formats a definition's signature: `layer(x, w: f32[n] -> y)`.
fn signature_text(ast: &Ast, sources: &SourceMap, name: Name, signature: &Signature) -> String {
    let list = |params: &[Param]| {
        let one = |param: &Param| {
            let ty = param.ty.as_ref().map(|ty| format!(": {}", source(sources, ty))).unwrap_or_default();
            format!("{}{ty}", ast.names.name(param.name.symbol))
        };
        params.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let (inputs, outputs) = (list(&signature.inputs), list(&signature.outputs));
    let arrow = match (inputs.is_empty(), outputs.is_empty()) {
        (_, true) => "",
        (true, false) => "-> ",
        (false, false) => " -> ",
    };
    format!("{}({inputs}{arrow}{outputs})", ast.names.name(name.symbol))
}

fn section(text: &mut String, title: &str, rows: &[(String, String)]) {
    if rows.is_empty() {
        return;
    }
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).min(44);
    *text += &format!("\n{title}\n");
    for (name, about) in rows {
        *text += &output::row(name, width, about);
    }
}

fn buffers(ast: &Ast, sources: &SourceMap) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    for decl in &ast.decls {
        let DeclKind::Buffer(buffer) = &decl.kind else { continue };
        let names: Vec<String> = buffer.families.iter().map(|family| family_text(ast, sources, family)).collect();
        let layout = match &buffer.layout {
            Layout::Tensor(ty) => source(sources, ty),
            Layout::Like(other) => format!("like {}", source(sources, other)),
            Layout::Parts(parts) => {
                let part =
                    |(name, ty): &(Name, Expr)| format!("{}: {}", ast.names.name(name.symbol), source(sources, ty));
                format!("{{ {} }}", parts.iter().map(part).collect::<Vec<_>>().join(", "))
            }
        };
        let space = buffer.space.map(|space| format!(" in {}", ast.names.name(space.symbol))).unwrap_or_default();
        let init = buffer.init.as_ref().map(|init| format!(" = {}", source(sources, init))).unwrap_or_default();
        rows.push((names.join(", "), format!("{layout}{space}{init} {}", decl.docs.join(" ")).trim().to_owned()));
    }
    rows
}

fn family_text(ast: &Ast, sources: &SourceMap, family: &Family) -> String {
    let name = ast.names.name(family.name.symbol);
    let count: Vec<String> = family.count.iter().map(|count| source(sources, count)).collect();
    if count.is_empty() { name.to_owned() } else { format!("{name}[{}]", count.join(", ")) }
}

/// The source text of an expression, on one line.
fn source(sources: &SourceMap, expr: &Expr) -> String {
    sources.one_line(expr.span)
}
