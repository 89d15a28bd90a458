//! `aorta view`: results of earlier commands as one HTML page, and the browser that shows it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;

use crate::measure::RunRecord;
use crate::measure::ab::AbRecord;
use crate::measure::cases::Cases;
use crate::report::View;

use super::error::InputError;
use super::report::page_of_cases;
use super::{CliResult, DONE, container, load, output};

/// The system's command that opens a file with the program that is chosen for its type.
const OPENER: &str = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };

#[derive(Debug, Args)]
pub struct ViewArgs {
    /// Records written by `exec --json` or bundles with one, of which several are shown on one page; or one file of `sweep`,
    /// `suite` or `ab`
    #[arg(required = true, value_name = "RECORD")]
    records: Vec<PathBuf>,
    /// Write the page to this file, and open no browser
    #[arg(long, short, value_name = "PATH")]
    output: Option<PathBuf>,
}

pub fn run(args: &ViewArgs) -> CliResult {
    args.output.iter().try_for_each(|path| output::check_file(path))?;
    let page = match &args.records[..] {
        [file] => single(file)?,
        files => {
            let runs = files.iter().map(|path| record(path, &read(path)?)).collect::<Result<Vec<RunRecord>, _>>()?;
            View::runs(&runs).html()
        }
    };
    match &args.output {
        Some(path) => output::write_text(path, &page)?,
        None => open(&output::write_temporary(".html", &page)?),
    }
    Ok(DONE)
}

/// The text of a record, of a file of cases, or of the record in a bundle.
fn read(path: &Path) -> Result<String, InputError> {
    match container::is_bundle(&path.display().to_string()) {
        true => Ok(container::record(path)?.to_json()),
        false => load::read(path, load::FileKind::Record),
    }
}

/// The page of one file: the cases of a sweep or a suite, an A/B comparison, or a run.
fn single(path: &Path) -> Result<String, InputError> {
    let (text, name) = (read(path)?, path.display().to_string());
    if Cases::is_meant(text.as_bytes()) {
        let cases =
            Cases::parse(text.as_bytes()).and_then(|read| read.ok_or("its first line is incomplete".to_owned()));
        let cases = cases.map_err(|why| InputError::NoCases { name, why })?;
        let (header, latest) = (&cases.header, cases.latest());
        return Ok(View::cases(header, &latest, page_of_cases(header, &latest, None)).html());
    }
    if AbRecord::is_meant(&text) {
        let record = AbRecord::from_json(&text).map_err(|why| InputError::NoRecord { name, why })?;
        return Ok(View::ab(&record).html());
    }
    Ok(View::runs(&[record(path, &text)?]).html())
}

fn record(path: &Path, text: &str) -> Result<RunRecord, InputError> {
    let name = path.display().to_string();
    if Cases::is_meant(text.as_bytes()) {
        let help = "`aorta view` shows it alone; `aorta exec --json` writes the record of one run";
        return Err(InputError::bad_value("a record", &name, "this is a file of several runs", help));
    }
    RunRecord::from_json(text).map_err(|why| InputError::NoRecord { name, why })
}

/// Opens a page in the browser. Its path is printed first, for a machine without one.
fn open(page: &Path) {
    output::print(&format!("{}\n", page.display()));
    let null = Stdio::null;
    let opened = Command::new(OPENER).arg(page).stdin(null()).stdout(null()).stderr(null()).status();
    if !opened.is_ok_and(|status| status.success()) {
        output::eprint(&format!("`{OPENER}` opens no browser here: copy the file to a machine with one.\n"));
    }
}
