//! `aorta fmt`: formats files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use similar::TextDiff;

use crate::config::{Settings, format_ron};
use crate::render::DiagnosticFormat;
use crate::syntax;

use crate::cli::error::{CliError, InputError};
use crate::cli::inputs::{container, load};
use crate::cli::io::diagnostics::{self, FileResults};
use crate::cli::io::output;
use crate::cli::{CliResult, ConfigArgs};

/// Time after which the printed difference need not be minimal.
const DIFF_TIMEOUT: Duration = Duration::from_secs(5);

/// File name extension of workloads.
const ENDING: &str = "aorta";

#[derive(Debug, Args)]
#[command(after_help = "\
There is one format, without options. Parts with syntax errors stay unchanged, and the rest of their file is \
formatted; the errors are reported, and the exit code is 2.")]
pub struct FmtArgs {
    /// Files (.aorta, and .ron of scenarios and suites); folders, for every .aorta file in them; or `-`, from standard input to
    /// standard output
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Change nothing, print the differences, and exit with code 1 if there are any
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

pub fn run(args: FmtArgs, how: DiagnosticFormat) -> CliResult {
    let settings = load::settings(&args.config)?;
    if args.files.iter().any(|file| file.as_os_str() == "-") {
        return standard_input(&args, &settings, how);
    }
    let mut results = FileResults::new(how);
    for path in &args.files {
        match files_of(path) {
            Ok(files) => files.iter().for_each(|file| results.add(file_in_form(file, args.check, &settings))),
            Err(error) => results.add(Err(error.into())),
        }
    }
    results.end(args.check)
}

/// The file itself, or all workloads in a folder and its subfolders, sorted by path.
fn files_of(path: &Path) -> Result<Vec<PathBuf>, InputError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        let unreadable = |error: std::io::Error| InputError::unreadable(&folder, error, None);
        for entry in std::fs::read_dir(&folder).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            // The file type of a link is neither a file nor a folder.
            let kind = entry.file_type().map_err(unreadable)?;
            let path = entry.path();
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() && path.extension().is_some_and(|ending| ending == ENDING) {
                files.push(path);
            }
        }
    }
    if files.is_empty() {
        return Err(InputError::unreadable(path, "the folder holds no file that ends in `.aorta`", None));
    }
    files.sort();
    Ok(files)
}

/// Formats a file, or with `check` only prints the differences. Returns true if there is something to change.
fn file_in_form(path: &Path, check: bool, settings: &Settings) -> Result<bool, CliError> {
    let name = path.display().to_string();
    if path.extension().is_some_and(|extension| extension == "ron") {
        return ron_in_form(path, check);
    }
    if container::is_container(path) {
        let help = format!("`aorta unbundle {name}` makes a folder of it, whose files can be formatted");
        return Err(InputError::bad_value("a file to format", &name, "a bundle or a record has one form", &help).into());
    }
    let text = load::read(path, load::FileKind::Workload(settings.max_file_bytes))?;
    let formatted = syntax::format(&text, &load::limits(settings));
    let changes = apply(path, check, &text, &formatted.text)?;
    if !formatted.errors.is_empty() {
        // Locations refer to the file as it is now on disk.
        check_syntax(&name, if check { text } else { formatted.text }, settings)?;
    }
    Ok(changes)
}

/// Formats a scenario, a suite or another file of settings as [`file_in_form`] does a workload. `aorta check` reports
/// the mistakes of such a file.
fn ron_in_form(path: &Path, check: bool) -> Result<bool, CliError> {
    let name = path.display().to_string();
    let text = load::read(path, load::FileKind::Scenario)?;
    let Some(formatted) = format_ron(&text) else {
        let why = "a comma is missing, a bracket, a text or a comment does not close, or it begins with `#`";
        return Err(InputError::unreadable(name, why, Some("`aorta check` says where")).into());
    };
    apply(path, check, &text, &formatted)
}

/// Replaces the text of a file by the formatted one, or with `check` only prints the difference. Returns true if they differ.
fn apply(path: &Path, check: bool, text: &str, formatted: &str) -> Result<bool, CliError> {
    let name = path.display();
    let changes = formatted != text;
    if check {
        output::print(&difference(&name.to_string(), text, formatted));
    } else if changes {
        output::rewrite_file(path, formatted.as_bytes())?;
        output::print(&format!("{name}\n"));
    }
    Ok(changes)
}

fn standard_input(args: &FmtArgs, settings: &Settings, how: DiagnosticFormat) -> CliResult {
    if args.files.len() > 1 {
        let (why, help) = ("standard input must be the only file", "leave `-` out, or give it alone");
        return Err(InputError::bad_value("one FILE of several", "-", why, help).into());
    }
    let name = "standard input";
    let text = load::read_from(name, std::io::stdin().lock(), load::FileKind::Workload(settings.max_file_bytes))?;
    let formatted = syntax::format(&text, &load::limits(settings));
    match args.check {
        true => output::print(&difference(name, &text, &formatted.text)),
        false => output::print_data(&formatted.text),
    }
    let mut results = FileResults::new(how);
    let changes = formatted.text != text;
    results.add(match formatted.errors.is_empty() {
        true => Ok(changes),
        false => check_syntax(name, text, settings).map(|()| changes),
    });
    results.end(args.check)
}

/// Fails with the syntax errors of a text.
fn check_syntax(name: &str, text: String, settings: &Settings) -> Result<(), CliError> {
    diagnostics::syntax_errors(load::parse(&load::WorkloadText::new(name, name, text), settings)?)
}

/// The difference between two texts in the format of `diff -u`; empty if they are equal.
fn difference(name: &str, before: &str, behind: &str) -> String {
    let diff = TextDiff::configure().timeout(DIFF_TIMEOUT).diff_lines(before, behind);
    diff.unified_diff().header(name, &format!("{name} (formatted)")).to_string()
}
