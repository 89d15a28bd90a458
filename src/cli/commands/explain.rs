//! `aorta explain`: prints the page of a diagnostic, an operation or a metric, or the cost of a model.

mod model;
mod operation;

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use include_dir::{Dir, include_dir};

use crate::base::suggest;
use crate::measure::definitions::{self, DEFINITIONS, Definition};
use crate::model::figure_elsewhere;
use crate::ops;
use crate::report::page::wrapped;

use crate::cli::error::InputError;
use crate::cli::io::output;
use crate::cli::{CliResult, DONE};

/// The book's pages about diagnostics: `PHASE/NAME.md` for the code `aorta::PHASE::NAME`.
static PAGES: Dir = include_dir!("$CARGO_MANIFEST_DIR/docs/errors");

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub struct ExplainArgs {
    #[command(subcommand)]
    of: Option<Explained>,
    /// The code of an error or a warning, such as `aorta::plan::race` or just `race`; or `operation` or `metric`; without it,
    /// all codes and metrics
    code: Option<String>,
    /// After `operation` or `metric`, the name of one; without it, all of them
    name: Option<String>,
    /// Further words, which are refused
    #[arg(hide = true)]
    more: Vec<String>,
}

/// Subjects that take options, unlike codes and metrics.
#[derive(Debug, Subcommand)]
enum Explained {
    /// Count the arithmetic and the bytes of a transformer by part
    Model(model::ModelArgs),
}

pub fn run(args: ExplainArgs) -> CliResult {
    if let Some(Explained::Model(args)) = &args.of {
        return model::run(args);
    }
    if let Some(word) = args.more.first() {
        let what = format!("`aorta explain` explains one thing at a time: `{word}` is too much");
        let help =
            "`aorta explain operation gemm` shows an operation, `aorta explain metric overlap` a metric".to_owned();
        return Err(InputError::UnknownCode { what, help }.into());
    }
    let pages = pages();
    let text = match (args.code.as_deref(), args.name.as_deref()) {
        (None, _) => index(&pages) + "\n" + &figures(),
        (Some(METRIC), None) => figures(),
        (Some(METRIC), Some(name)) => definition(figure(name)?),
        (Some(OPERATION), None) => operation::list(),
        (Some(OPERATION), Some(name)) => operation::described(name)?,
        (Some(code), None) => shown(find(&pages, code)?.text),
        (Some(code), Some(name)) => {
            let meant = match () {
                () if definitions::find(name).is_some() => format!(": `aorta explain metric {name}`"),
                () if ops::find(name).is_some() => format!(": `aorta explain operation {name}`"),
                () => "; docs/settings.md explains the settings".to_owned(),
            };
            let help = format!("only `operation` and `metric` take a name{meant}");
            return Err(unknown_code(&format!("{code} {name}"), help).into());
        }
    };
    output::print(&text);
    Ok(DONE)
}

/// The words before the name of a metric and of an operation.
const METRIC: &str = "metric";
const OPERATION: &str = "operation";

/// The definition of the metric of that name.
fn figure(name: &str) -> Result<&'static Definition, InputError> {
    definitions::find(name).ok_or_else(|| {
        let near = suggest::nearest(name, DEFINITIONS.iter().map(|definition| definition.name));
        let elsewhere = figure_elsewhere(name).map(|help| format!("{help}; "));
        let near = elsewhere.or(near.map(|near| format!("did you mean `metric {near}`? "))).unwrap_or_default();
        let help = format!(
            "{near}`aorta explain metric` lists all metrics; the page *Reading the figures* explains the columns of a \
             report"
        );
        InputError::UnknownCode { what: format!("there is no metric `{name}`"), help }
    })
}

fn unknown_code(code: &str, help: String) -> InputError {
    InputError::UnknownCode { what: format!("no error and no warning has the code `{code}`"), help }
}

/// Lists every metric in one line.
fn figures() -> String {
    let width = DEFINITIONS.iter().map(|definition| definition.name.len()).max().unwrap_or(0);
    let mut text = "metric\n".to_owned();
    for definition in DEFINITIONS {
        text += &output::row(definition.name, width, definition.summary);
    }
    let more = "`aorta explain metric NAME` shows the formula, the unit, the use and the pitfalls.";
    format!("{text}\n{}", output::paragraph(&[more]))
}

/// Formats a definition for a terminal.
fn definition(definition: &Definition) -> String {
    let usage = match definition.usage {
        "" => "in reports alone".to_owned(),
        usage => usage.replace('`', ""),
    };
    let unit = if definition.unit == "1" { "none, a ratio" } else { definition.unit };
    let mut text = output::paragraph(&[format!("{}: {}", definition.name, definition.summary)]) + "\n";
    for (name, value) in [
        ("written", usage.as_str()),
        ("formula", definition.formula),
        ("unit", unit),
        ("samples", definition.samples),
        ("good for", definition.good_for),
        ("traps", definition.traps),
    ] {
        let room = output::columns().map_or(COLUMNS, |columns| columns.saturating_sub(NAMES).clamp(1, COLUMNS));
        for (index, line) in wrapped(value, room).iter().enumerate() {
            let _ = writeln!(text, "  {:10}{line}", if index == 0 { name } else { "" });
        }
    }
    text
}

/// Line width of a definition, without its names, where the window is wider.
const COLUMNS: usize = 100;

/// Width of the names of a definition's lines, with the spaces around them.
const NAMES: usize = 12;

#[derive(Clone, Copy, Debug)]
struct DiagnosticPage {
    /// The phase, such as `plan`.
    phase: &'static str,
    /// The name, such as `race`.
    name: &'static str,
    text: &'static str,
}

/// Every page, by phase and name.
fn pages() -> Vec<DiagnosticPage> {
    let files = PAGES.dirs().flat_map(|folder| folder.files());
    let page = |file: &'static include_dir::File| {
        let path = file.path();
        let phase = path.parent()?.file_name()?.to_str()?;
        let name = path.file_stem()?.to_str()?;
        (path.extension()? == "md").then_some(DiagnosticPage { phase, name, text: file.contents_utf8()? })
    };
    let mut pages: Vec<DiagnosticPage> = files.filter_map(page).collect();
    pages.sort_by_key(|page| (page.phase, page.name));
    pages
}

/// Finds the page of `aorta::plan::race`, `plan::race` or `race`.
fn find(pages: &[DiagnosticPage], code: &str) -> Result<DiagnosticPage, InputError> {
    let wanted = code.trim().trim_start_matches("aorta::");
    let full = |page: &DiagnosticPage| format!("{}::{}", page.phase, page.name);
    let found: Vec<&DiagnosticPage> = pages.iter().filter(|page| full(page) == wanted || page.name == wanted).collect();
    let unknown = |help: String| unknown_code(code, help);
    match found.as_slice() {
        [page] => Ok(**page),
        [] => {
            let all: Vec<String> = pages.iter().flat_map(|page| [full(page), page.name.to_owned()]).collect();
            let near = suggest::nearest(wanted, all.iter().map(String::as_str));
            Err(unknown(match near {
                _ if ops::find(wanted).is_some() => format!("it is an operation: `aorta explain operation {wanted}`"),
                _ if definitions::find(wanted).is_some() => format!("it is a metric: `aorta explain metric {wanted}`"),
                Some(near) => format!("did you mean `{near}`?"),
                None => {
                    "`aorta explain` lists all codes and metrics, `aorta explain operation` all operations".to_owned()
                }
            }))
        }
        several => {
            let codes: Vec<String> = several.iter().map(|page| full(page)).collect();
            let codes: Vec<&str> = codes.iter().map(String::as_str).collect();
            Err(unknown(format!("there are {}: take one of them", suggest::listed(&codes))))
        }
    }
}

/// Lists every code with the first sentence of its page.
fn index(pages: &[DiagnosticPage]) -> String {
    let width = pages.iter().map(|page| page.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for phase in pages.chunk_by(|a, b| a.phase == b.phase) {
        let _ = writeln!(text, "aorta::{}", phase[0].phase);
        for page in phase {
            text += &output::row(page.name, width, &first_sentence(page.text));
        }
        text.push('\n');
    }
    for more in [
        "`aorta explain CODE` shows a wrong file, the message, the reason, and a corrected file.",
        "`aorta explain operation` lists the operations; `aorta explain operation NAME` shows one.",
        "`aorta explain model --layers N --hidden N --seq N` counts what a transformer costs.",
    ] {
        text += &output::paragraph(&[more]);
    }
    text
}

fn first_sentence(page: &str) -> String {
    let paragraph: Vec<&str> =
        page.lines().skip(1).skip_while(|line| line.is_empty()).take_while(|line| !line.is_empty()).collect();
    let text = paragraph.join(" ");
    let text = without_links(&text);
    text.split_inclusive(". ").next().unwrap_or("").trim_end().to_owned()
}

/// Replaces links by their texts, since a terminal cannot follow them.
fn without_links(page: &str) -> String {
    let mut text = String::new();
    let mut rest = page;
    while let Some(middle) = rest.find("](") {
        let (before, behind) = (&rest[..middle], &rest[middle + 2..]);
        // Code can contain `](` too, but the target of a link contains neither a space nor a backquote.
        let open = before.rfind('[').filter(|&open| !before[open..].contains("\n\n"));
        let close = behind.find(')').filter(|&close| !behind[..close].contains([' ', '\n', '`']));
        let (Some(open), Some(close)) = (open, close) else {
            text += &rest[..middle + 2];
            rest = behind;
            continue;
        };
        text += &before[..open];
        text += &before[open + 1..];
        rest = &behind[close + 1..];
    }
    text + rest
}

/// Formats a page for a terminal: code blocks are indented, fences and heading marks removed.
fn shown(page: &str) -> String {
    let page = without_links(page);
    let mut text = String::new();
    let mut in_block = false;
    let mut paragraph = Vec::new();
    for line in page.lines() {
        let is_prose = !in_block
            && line.starts_with(|letter: char| letter.is_alphabetic() || letter == '`')
            && !line.starts_with("```");
        if is_prose {
            paragraph.push(line);
            continue;
        }
        text += &output::paragraph(&std::mem::take(&mut paragraph));
        if line.starts_with("```") {
            in_block = !in_block;
        } else if in_block && !line.is_empty() {
            let _ = writeln!(text, "    {line}");
        } else {
            let _ = writeln!(text, "{}", line.trim_start_matches("# "));
        }
    }
    text + &output::paragraph(&paragraph)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_page_shows_a_link() {
        for page in pages() {
            let shown = shown(page.text);
            assert!(!shown.contains(".md)"), "{}: {shown}", page.name);
        }
        assert!(!index(&pages()).contains("]("));
        assert_eq!(without_links("a `x[0](y z)` [b\nc](d.md#e) f"), "a `x[0](y z)` b\nc f");
    }
}
