//! Options for output formats and files, with their checks.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::output;
use crate::cli::environment;
use crate::cli::error::InputError;
use crate::measure::RunRecord;
use crate::report::page::{self, Page};
use crate::report::picture::{self, Gallery};
use crate::report::{self, PageContent, chrome_trace, csv, kineto, pftrace};

/// Options for the files of a run, or of the cases of a sweep or a suite.
#[derive(Clone, Debug, Default, Args)]
pub struct FileOptions {
    /// Write the record of the run, with every sample; for a sweep or a suite, append each case as it completes
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,
    /// Write a row for each launch mode; for a sweep or a suite, for each launch mode of each case
    #[arg(long, value_name = "PATH")]
    pub csv: Option<PathBuf>,
}

impl FileOptions {
    /// Fails if a file that is written at the end cannot be written.
    pub fn check(&self) -> Result<(), InputError> {
        self.json.iter().chain(&self.csv).try_for_each(|path| output::check_file(path))
    }

    /// Writes a record in all requested forms. If one fails, the others are still written.
    pub fn write(&self, record: &RunRecord, trace: Option<&PathBuf>) -> Result<(), InputError> {
        let write = |path: Option<&PathBuf>, form: fn(&RunRecord) -> String| {
            path.map_or(Ok(()), |path| output::write_text(path, &form(record)))
        };
        let json = write(self.json.as_ref(), RunRecord::to_json);
        let csv = write(self.csv.as_ref(), csv);
        json.and(csv).and(trace.map_or(Ok(()), |path| write_trace(path, record)))
    }
}

/// The forms of a trace, which the end of its path chooses.
enum TraceForm {
    /// Chrome's JSON, for Perfetto.
    Json,
    /// Perfetto's own format.
    Packets,
    /// A folder with a file for each launch mode and rank, for HolisticTraceAnalysis.
    Folder,
}

impl TraceForm {
    /// The form for a path. A path without an ending, such as a pipe, gets JSON.
    fn of(path: &Path) -> Result<TraceForm, InputError> {
        if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Ok(TraceForm::Folder);
        }
        match path.extension().map(OsStr::as_encoded_bytes) {
            Some(b"pftrace") => Ok(TraceForm::Packets),
            Some(b"json" | b"trace") | None => Ok(TraceForm::Json),
            Some(_) => Err(InputError::Unwritable {
                name: path.display().to_string(),
                why: "a trace has no form with this ending".to_owned(),
                help: Some("end it with `.json`, `.pftrace`, or `/` for a folder of traces".to_owned()),
            }),
        }
    }
}

/// Fails if a trace cannot be written to this path.
fn check_trace(path: &Path) -> Result<(), InputError> {
    match TraceForm::of(path)? {
        TraceForm::Folder => output::check_folder(path),
        TraceForm::Json | TraceForm::Packets => output::check_file(path),
    }
}

fn write_trace(path: &Path, record: &RunRecord) -> Result<(), InputError> {
    let ranks = || record.variants.iter().flat_map(|variant| &variant.ranks);
    if ranks().all(|rank| rank.trace.is_empty()) {
        let why = "the run timed no single operation, as with `--observe off`";
        output::eprint(&format!("{} has no operation: {why}\n", path.display()));
    }
    match TraceForm::of(path)? {
        TraceForm::Json => output::write_text(path, &chrome_trace(record)),
        TraceForm::Packets => output::write_file(path, &pftrace(record)),
        TraceForm::Folder => kineto(record).into_iter().try_for_each(|(file, text)| {
            let file = path.join(file);
            output::make_folder(file.parent().unwrap_or(path))?;
            output::write_text(&file, &text)
        }),
    }
}

/// Options for what `exec` and `report` show and write of a run.
#[derive(Clone, Debug, Default, Args)]
pub struct RunOutputs {
    /// Show the N operations with the longest total time, with their stretch, their slack and a usual remedy
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub top: Option<u32>,
    /// Draw a timeline of one iteration in the terminal, with a line for each stream
    #[arg(long)]
    pub timeline: bool,
    #[command(flatten)]
    pub page: PageArgs,
    #[command(flatten)]
    pub files: FileOptions,
    /// Write one traced iteration for Perfetto: as JSON, as `.pftrace` in its own format, or as a folder with a `/` at
    /// the end, with a file for each launch mode and rank as HolisticTraceAnalysis reads them
    #[arg(long, value_name = "PATH")]
    pub trace: Option<PathBuf>,
}

impl RunOutputs {
    /// Fails if a file that is written at the end cannot be written.
    pub fn check(&self) -> Result<(), InputError> {
        self.page.check()?;
        self.files.check()?;
        self.trace.iter().try_for_each(|path| check_trace(path))
    }

    /// Prints and writes a record, with the operations of `rank`, or of the first rank if that is `None`, and with a page
    /// of normal ranges. If one output fails, the others are still written, and the first error is returned.
    pub fn show(&self, record: &RunRecord, rank: Option<u32>, ranges: Option<Page>) -> Result<(), InputError> {
        let mut pages = vec![report::run(record, rank)];
        pages.extend(ranges);
        pages.extend(self.top.map(|top| report::top(record, rank, top as usize)));
        pages.extend(self.timeline.then(|| report::timeline(record, output::width())));
        let shown = self.page.show(&pages, || record.to_json());
        let written = self.files.write(record, self.trace.as_ref());
        let viewed = self.page.write_html(|| PageContent::runs(std::slice::from_ref(record)));
        shown.and(written).and(viewed)
    }
}

/// Options for the form of a page.
#[derive(Clone, Debug, Default, Args)]
pub struct PageArgs {
    /// The form of the page
    #[arg(long, value_name = "FORMAT", default_value = "table", hide_default_value = true)]
    format: ReportFormat,
    /// Write the page to this file, and the table to the terminal
    #[arg(long, value_name = "PATH")]
    output: Option<PathBuf>,
    /// Write an HTML page with pictures, such as timelines or curves, and sortable tables
    #[arg(long, value_name = "PATH")]
    pub html: Option<PathBuf>,
}

/// Values of `--format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ReportFormat {
    /// For the terminal
    #[default]
    Table,
    /// For programs
    Json,
    /// For pages, mails and comments on a change
    Markdown,
    /// For papers; needs the LaTeX package booktabs
    Latex,
    /// For CI systems
    Junit,
    /// For GitHub's workflows: annotations, and a summary of the job with pictures
    Github,
}

impl PageArgs {
    /// True if the user chose another form than the table, or a file.
    pub fn is_given(&self) -> bool {
        self.format != ReportFormat::Table || self.output.is_some()
    }

    /// Fails if the page cannot be written.
    pub fn check(&self) -> Result<(), InputError> {
        self.output.iter().chain(&self.html).try_for_each(|path| output::check_file(path))
    }

    /// Writes the HTML page, if the user asked for one.
    pub fn write_html<'a>(&self, view: impl FnOnce() -> PageContent<'a>) -> Result<(), InputError> {
        self.html.as_ref().map_or(Ok(()), |path| output::write_text(path, &view().html()))
    }

    /// Prints or writes pages. `json` makes the JSON document that they are made from.
    pub fn show(&self, pages: &[Page], json: impl FnOnce() -> String) -> Result<(), InputError> {
        let text = match self.format {
            ReportFormat::Table => page::text_within(pages, output::columns()),
            ReportFormat::Json => json(),
            ReportFormat::Markdown => page::markdown(pages),
            ReportFormat::Latex => page::latex(pages),
            ReportFormat::Junit => page::junit(pages),
            ReportFormat::Github => page::github(pages),
        };
        match &self.output {
            None if self.format == ReportFormat::Github => output::print_data(&text),
            None => output::print(&text),
            Some(path) => {
                output::write_text(path, &text)?;
                output::print(&page::text_within(pages, output::columns()));
            }
        }
        match environment::job_summary().filter(|_| self.format == ReportFormat::Github) {
            Some(path) => output::append_text(&path, &page::job_summary(pages)),
            None => Ok(()),
        }
    }
}

/// Writes each picture of a view as an SVG file whose name begins with the prefix, and prints the names of the files.
pub fn write_pictures(prefix: Option<&String>, galleries: impl FnOnce() -> Vec<Gallery>) -> Result<(), InputError> {
    let Some(prefix) = prefix else { return Ok(()) };
    // Options that differ in signs only have the same name.
    let mut numbers: HashMap<String, usize> = HashMap::new();
    for (name, picture) in galleries().iter().flat_map(Gallery::files) {
        let number = numbers.entry(name.clone()).or_default();
        *number += 1;
        let file = if *number == 1 { format!("{prefix}-{name}.svg") } else { format!("{prefix}-{name}-{number}.svg") };
        output::write_text(Path::new(&file), &picture::svg(picture))?;
        output::print(&format!("{file}\n"));
    }
    Ok(())
}

/// Parses a relative value: `3%`, `3 %` or `0.03`.
pub fn share(text: &str) -> Result<f64, String> {
    let parsed = match text.trim().strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
        None => text.trim().parse::<f64>(),
    };
    let share = parsed.ok().filter(|share| (0.0..1.0).contains(share));
    share.ok_or_else(|| "a share is between 0 and 1, such as `3%` or `0.03`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn relative_values_are_parsed() {
        for (text, value) in [("3%", 0.03), (" 2.5 % ", 0.025), ("0.03", 0.03), ("0", 0.0)] {
            assert!((share(text).unwrap() - value).abs() < 1e-12, "{text}");
        }
        for wrong in ["3", "-1%", "100%", "x", "", "NaN", "%"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }
}
