//! `aorta view`: results of earlier commands as one HTML page, and the browser that shows it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;

use crate::measure::RunRecord;
use crate::report::PageContent;

use super::report::page_of_cases;
use crate::cli::error::InputError;
use crate::cli::inputs::stored::{self, Stored};
use crate::cli::io::output;
use crate::cli::{CliResult, DONE};

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
            let runs = files.iter().map(|path| record(path)).collect::<Result<Vec<RunRecord>, _>>()?;
            PageContent::runs(&runs).html()
        }
    };
    match &args.output {
        Some(path) => output::write_text(path, &page)?,
        None => open(&output::write_temporary(".html", &page)?),
    }
    Ok(DONE)
}

/// The page of one file: the cases of a sweep or a suite, an A/B comparison, or a run.
fn single(path: &Path) -> Result<String, InputError> {
    Ok(match stored::read(path)? {
        Stored::Cases(cases) => {
            let (header, latest) = (&cases.header, cases.latest());
            PageContent::cases(header, &latest, page_of_cases(header, &latest, None)).html()
        }
        Stored::Ab(record) => PageContent::ab(&record).html(),
        Stored::Run(record) => PageContent::runs(&[*record]).html(),
    })
}

/// The record of a run, one of several on a page.
fn record(path: &Path) -> Result<RunRecord, InputError> {
    match stored::read(path)? {
        Stored::Run(record) => Ok(*record),
        Stored::Cases(_) | Stored::Ab(_) => {
            let help = "`aorta view` shows it alone; `aorta exec --json` writes the record of one run";
            let name = path.display().to_string();
            Err(InputError::bad_value("a record", &name, "this is a file of several runs", help))
        }
    }
}

/// Opens a page in the browser. Prints its path first, for machines without a browser.
fn open(page: &Path) {
    output::print(&format!("{}\n", page.display()));
    let null = Stdio::null;
    let opened = Command::new(OPENER).arg(page).stdin(null()).stdout(null()).stderr(null()).status();
    if !opened.is_ok_and(|status| status.success()) {
        output::eprint(&format!("`{OPENER}` opens no browser here: copy the file to a machine with one.\n"));
    }
}
