//! `aorta list`: lists the workloads, scenarios, suites and bundles of the project, and the shipped workloads.

use std::path::Path;

use crate::base::{counted, visible};
use crate::config::{ConfigError, RonKind, Scenario, Settings, SuiteFile};
use crate::syntax;

use crate::cli::error::InputError;
use crate::cli::inputs::load::{self, FileKind};
use crate::cli::inputs::project::{self, Library};
use crate::cli::inputs::{container, kinds, library};
use crate::cli::io::output;
use crate::cli::{CliResult, DONE};

pub fn run() -> CliResult {
    let mut text = String::new();
    if let Some(library) = project::here()? {
        text += &of_project(&library);
        text.push('\n');
    }
    let shipped = library::all();
    let width = shipped.iter().map(|shipped| shipped.stem.len()).max().unwrap_or(0);
    let mut category = String::new();
    for shipped in &shipped {
        let (ast, _) = syntax::parse(shipped.text, 0, &syntax::SyntaxLimits::default());
        let own_category = ast.category().unwrap_or_else(|| "other".to_owned());
        if own_category != category {
            if !category.is_empty() {
                text.push('\n');
            }
            text += &format!("{own_category}\n");
            category = own_category;
        }
        text += &output::row(shipped.stem, width, &ast.summary());
    }
    text.push('\n');
    text += &output::paragraph(&["`aorta show NAME` shows details of one, `aorta exec NAME` runs it."]);
    output::print(&text);
    Ok(DONE)
}

/// The files of a project's library, each with a line about it.
fn of_project(library: &Library) -> String {
    let about = library.project.description.as_deref().map(visible::one_line);
    let about = about.map(|about| format!(": {about}")).unwrap_or_default();
    let folder = if library.folder.as_os_str().is_empty() { Path::new(".") } else { &library.folder };
    let mut text = format!("project {}{about}\n", folder.display());
    let rows: Vec<(String, String)> = library
        .files
        .iter()
        .map(|file| {
            let name = file.strip_prefix(folder).unwrap_or(file).display().to_string();
            let about = about_file(file).unwrap_or_else(|error| error.to_string());
            (name, visible::one_line(&about).into_owned())
        })
        .collect();
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    for (name, about) in rows {
        text += &output::row(&name, width, &about);
    }
    text
}

/// A line about a file: the first line of a workload, the description of a scenario or a suite.
fn about_file(file: &Path) -> Result<String, InputError> {
    let name = file.display().to_string();
    if container::is_bundle(&name) {
        return Ok(format!("bundle of {}", container::unchecked(file)?.runs));
    }
    if name.ends_with(".ron") {
        let text = load::read(file, FileKind::Scenario)?;
        return Ok(match RonKind::of(&text) {
            RonKind::Suite => suite(&name, &text)?,
            RonKind::Scenario => scenario(&name, &text)?,
            kind => kinds::describe(kind, &name, &text)?,
        });
    }
    let text = load::read(file, FileKind::Workload(Settings::default().max_file_bytes))?;
    Ok(syntax::parse(&text, 0, &syntax::SyntaxLimits::default()).0.summary())
}

fn suite(name: &str, text: &str) -> Result<String, ConfigError> {
    let suite = SuiteFile::parse(name, text)?;
    Ok(format!("{} ({})", suite.description, counted(suite.expanded().len(), "case")))
}

fn scenario(name: &str, text: &str) -> Result<String, ConfigError> {
    let scenario = Scenario::parse(name, text)?;
    Ok(scenario.description.unwrap_or_else(|| format!("scenario of {}", scenario.workload)))
}
