//! Diagnostics on their way out: in which format, to where.

use std::fmt;

use clap::ValueEnum;
use miette::{Diagnostic, LabeledSpan, Severity};

use crate::base::{SourceMap, counted};
use crate::config::Profile;
use crate::render::{self, Format};
use crate::schedule::{self, Schedule};
use crate::{model, plan, syntax};

use super::load::Loaded;
use super::output;

/// What `--diagnostics` may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DiagnosticsArg {
    /// For people, on standard error
    #[default]
    Text,
    /// One JSON object on a line for each, on standard output
    Json,
    /// Commands that GitHub's workflows show beside the lines, on standard output
    Github,
}

impl DiagnosticsArg {
    fn format(self) -> Format {
        match self {
            DiagnosticsArg::Text => Format::Text,
            DiagnosticsArg::Json => Format::Json,
            DiagnosticsArg::Github => Format::GitHub,
        }
    }
}

/// Any diagnostic.
pub type Boxed = Box<dyn Diagnostic + Send + Sync>;

/// Diagnostics of one kind as those of any.
pub fn boxed<D: Diagnostic + Send + Sync + 'static>(all: impl IntoIterator<Item = D>) -> Vec<Boxed> {
    all.into_iter().map(|one| Box::new(one) as Boxed).collect()
}

/// A mistake that another rank than the first has.
#[derive(Debug)]
struct OnRank {
    what: Boxed,
    rank: u32,
    world: u32,
}

/// The same diagnostic, told of one rank.
pub fn on_rank(what: Boxed, rank: u32, world: u32) -> Boxed {
    Box::new(OnRank { what, rank, world })
}

impl fmt::Display for OnRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, on rank {} of {}", self.what, self.rank, self.world)
    }
}

impl std::error::Error for OnRank {}

impl Diagnostic for OnRank {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.what.code()
    }

    fn severity(&self) -> Option<Severity> {
        self.what.severity()
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.what.help()
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        self.what.labels()
    }
}

/// Shows diagnostics, and their number where people read them.
pub fn show<'a>(all: impl IntoIterator<Item = &'a dyn Diagnostic>, sources: &SourceMap, how: DiagnosticsArg) {
    show_noted(all, sources, how, "");
}

/// Shows diagnostics, and where people read them their number with a note behind it.
pub fn show_noted<'a>(
    all: impl IntoIterator<Item = &'a dyn Diagnostic>,
    sources: &SourceMap,
    how: DiagnosticsArg,
    note: &str,
) {
    let mut text = String::new();
    let mut counts = [0; 3];
    for one in all {
        if how == DiagnosticsArg::Text && !text.is_empty() {
            text.push('\n');
        }
        text += &render::diagnostic(one, sources, how.format(), output::error_style());
        counts[level(one)] += 1;
    }
    match how {
        DiagnosticsArg::Text => print_text(&format!("{text}{}{note}\n", numbers(counts))),
        DiagnosticsArg::Json => output::print(&text),
        DiagnosticsArg::Github => output::print_data(&text),
    }
}

/// Shows what needs no count.
pub fn show_one(one: &dyn Diagnostic, sources: &SourceMap, how: DiagnosticsArg) {
    let text = render::diagnostic(one, sources, how.format(), output::error_style());
    match how {
        DiagnosticsArg::Text => print_text(&text),
        DiagnosticsArg::Json => output::print(&text),
        DiagnosticsArg::Github => output::print_data(&text),
    }
}

fn print_text(text: &str) {
    if output::error_style().color { output::eprint_styled(text) } else { output::eprint(text) }
}

fn level(diagnostic: &dyn Diagnostic) -> usize {
    match diagnostic.severity() {
        None | Some(Severity::Error) => 0,
        Some(Severity::Warning) => 1,
        Some(Severity::Advice) => 2,
    }
}

/// `1 error, 2 warnings`.
fn numbers([errors, warnings, advice]: [usize; 3]) -> String {
    let pieces = match advice {
        1 => "1 piece of advice".to_owned(),
        _ => format!("{advice} pieces of advice"),
    };
    let parts = [(errors, counted(errors, "error")), (warnings, counted(warnings, "warning")), (advice, pieces)];
    let parts: Vec<String> = parts.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text).collect();
    parts.join(", ")
}

/// How many of them are warnings, not just advice.
pub fn warnings(all: &[Boxed]) -> usize {
    all.iter().filter(|one| level(one.as_ref()) == 1).count()
}

/// What can be said of a program that is right, knowing no device.
pub fn lint(loaded: &Loaded) -> Vec<Boxed> {
    let label = |span| loaded.sources.text(span).to_owned();
    let mut all = boxed(model::lint(&loaded.parsed.ast, &loaded.program));
    all.extend(boxed(plan::lint(&loaded.program, label)));
    all.extend(boxed(syntax::lint(&loaded.parsed.ast, |place| loaded.sources.rest_of_line(place))));
    all.sort_by_key(|one| first_offset(one.as_ref()));
    all
}

/// What the device of a profile makes of it.
pub fn lint_on(loaded: &Loaded, schedule: &Schedule, profile: &Profile) -> Vec<Boxed> {
    boxed(schedule::lint(&loaded.program, &loaded.plan, schedule, profile))
}

/// Where a diagnostic begins, for sorting.
pub fn first_offset(diagnostic: &dyn Diagnostic) -> usize {
    diagnostic.labels().and_then(|mut labels| labels.next()).map_or(0, |label| label.offset())
}
