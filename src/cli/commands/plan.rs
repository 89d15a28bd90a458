//! `aorta plan`: shows dependencies between operations.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use miette::{Diagnostic, Severity};

use crate::base::MAX_RANKS;
use crate::compile::RankCount;
use crate::config::Profile;
use crate::measure::record::FusionRecord;
use crate::plan::ranks::pairs;
use crate::report::plan::PlanDocument;
use crate::report::{PageContent, page, picture, plan as report};
use crate::schedule::{self, Schedule, Topology};

use super::forwarded_options::exec_args;
use super::{exec, suite};
use crate::cli::error::{CliError, InputError};
use crate::cli::inputs::{container, load};
use crate::cli::io::{diagnostics, output, outputs};
use crate::cli::{CliResult, ConfigArgs, DIFFERENT, DONE, WorkloadArgs, backends};
use crate::render::DiagnosticFormat;

/// Largest number of operations that Graphviz draws within seconds.
const DOT_OPERATIONS: usize = 2000;

/// Largest number of edges that Mermaid draws by default.
const MERMAID_EDGES: usize = 500;

#[derive(Debug, Default, Args)]
#[command(override_usage = "aorta plan [OPTIONS] <FILE>\n       aorta plan [OPTIONS] --diff <A> <B>")]
pub struct PlanArgs {
    /// A workload, a scenario (`.ron`), a bundle (`.aortab`), the record of a run (`.json`), or a suite, of which each case has
    /// a line
    #[arg(required_unless_present = "diff")]
    file: Option<String>,
    /// The format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: PlanFormat,
    /// Plan a world of this many ranks, 1 to 16384, all of which are checked together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_RANKS))]
    ranks: Option<u32>,
    /// Show the plan of this rank
    #[arg(long, value_name = "R", default_value = "0", hide_default_value = true)]
    rank: u32,
    /// Write an HTML page with the graph by streams, slack, memory by buffer, and what belongs together over ranks
    #[arg(long, value_name = "PATH", conflicts_with = "diff")]
    html: Option<PathBuf>,
    /// Write each picture of that page as an SVG file, `NAME-plan.svg` and so on
    #[arg(long, value_name = "NAME", conflicts_with = "diff")]
    svg: Option<String>,
    /// Compare two plans: files, names, or JSON written by `--format json` (`.json`). Exit with code 1 if they differ
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["file", "format"])]
    diff: Option<Vec<String>>,
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Values of `--format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum PlanFormat {
    /// For people
    #[default]
    Text,
    /// For programs, and for `--diff`
    Json,
    /// For Graphviz
    Dot,
    /// For pages of Markdown
    Mermaid,
}

pub fn run(args: PlanArgs) -> CliResult {
    let settings = load::settings(&args.config)?;
    if let [a, b] = args.diff.as_deref().unwrap_or_default() {
        return compare(a, b, &args);
    }
    let file = args.file.as_deref().unwrap_or_default();
    if suite::is_named(file)? {
        return suite_of_plans(file, &args);
    }
    args.html.iter().try_for_each(|path| output::check_file(path))?;
    let planned = planned(file, &args)?;
    let document = planned.document();
    warn_of_size(&document, args.format);
    // A dry run, so that an output that is too long is refused before any of it is printed.
    if write(args.format, &document, &mut LimitedSink(settings.max_output.0)).is_err() {
        let (operations, most) = (document.operations(), settings.max_output.to_string());
        return Err(InputError::TooMuchOutput { operations, most }.into());
    }
    output::stream(|out| write(args.format, &document, out));
    planned.warn();
    if let Some(path) = &args.html {
        output::write_text(path, &planned.view(&document).html())?;
    }
    outputs::write_pictures(args.svg.as_ref(), || planned.view(&document).galleries().to_vec())?;
    Ok(DONE)
}

fn write(format: PlanFormat, document: &PlanDocument, out: &mut impl Write) -> io::Result<()> {
    match format {
        PlanFormat::Text => report::text(document, out),
        PlanFormat::Json => report::json(document, out),
        PlanFormat::Dot => report::dot(document, out),
        PlanFormat::Mermaid => report::mermaid(document, out),
    }
}

/// A writer that discards its input and fails after this many bytes.
struct LimitedSink(u64);

impl Write for LimitedSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len() as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Warns about a drawing that is larger than its tools can handle.
fn warn_of_size(document: &PlanDocument, format: PlanFormat) {
    let (what, count, most, help) = match format {
        PlanFormat::Dot => ("operations", document.operations(), DOT_OPERATIONS, "Graphviz may take very long"),
        PlanFormat::Mermaid => {
            ("edges", document.edges(), MERMAID_EDGES, "Mermaid draws no more, unless its `maxEdges` is raised")
        }
        PlanFormat::Text | PlanFormat::Json => return,
    };
    if count > most {
        output::eprint(&format!(
            "warning: the plan has {count} {what}, and {help}: give smaller parameters with `--set` or `--preset`\n"
        ));
    }
}

fn compare(a: &str, b: &str, args: &PlanArgs) -> CliResult {
    let is_json = |name: &str| name.ends_with(".json") && !container::is_record(Path::new(name));
    let asks = args.workload != WorkloadArgs::default() || args.ranks.is_some_and(|ranks| ranks > 1);
    if is_json(a) && is_json(b) && asks {
        return Err(InputError::PlannedAlready.into());
    }
    let read = |name: &str| match is_json(name) {
        true => read(name),
        false => Ok(planned(name, args)?.document()),
    };
    match report::diff(&read(a)?, &read(b)?) {
        None => {
            output::print("the plans are the same\n");
            Ok(DONE)
        }
        Some(text) => {
            output::print(&text);
            Ok(DIFFERENT)
        }
    }
}

/// Prints a line for the plan of each case of a suite.
fn suite_of_plans(name: &str, args: &PlanArgs) -> CliResult {
    if args.format != PlanFormat::Text {
        let why = "a suite has a plan for each case";
        let help = format!("`aorta suite {name} --dry-run` lists the cases: plan one of them");
        return Err(InputError::bad_value("`--format`", "of a suite", why, &help).into());
    }
    let pictures =
        [("`--html`", args.html.as_ref().map(|path| path.display().to_string())), ("`--svg`", args.svg.clone())];
    for (option, value) in pictures {
        let Some(value) = value else { continue };
        let help = format!("`aorta suite {name} --html PATH` makes a page of its runs");
        return Err(InputError::bad_value(option, &value, "a suite has a plan for each case", &help).into());
    }
    let mut cases = Vec::new();
    for (case, command) in suite::commands_of(name, &args.config)? {
        let planned = command.and_then(|words| {
            let exec = exec_args(&words).map_err(|mistake| mistake.why)?;
            let (ranks, workload, config) = (exec.ranks, exec.workload, exec.config);
            let args = PlanArgs { ranks, workload, config, ..PlanArgs::default() };
            planned(&exec.file, &args).map(|planned| planned.document()).map_err(|error| error.text())
        });
        cases.push((case, planned));
    }
    output::print(&page::text(&[report::cases(name, &cases)]));
    Ok(DONE)
}

/// Reads a plan that was written as JSON.
fn read(name: &str) -> Result<PlanDocument, CliError> {
    let text = load::read(Path::new(name), load::FileKind::Plan)?;
    report::parse(&text).map_err(|why| InputError::NoPlan { name: name.to_owned(), why }.into())
}

/// A compiled file with the schedule of one rank.
struct PlannedFile {
    loaded: load::Loaded,
    rank: u32,
    profile: Profile,
    schedule: Schedule,
}

impl PlannedFile {
    /// Shows the warnings about the schedule on the device of the profile, as `aorta check --profile` does.
    fn warn(&self) {
        let own = &self.loaded.compiled.ranks[self.rank as usize];
        for found in schedule::lint(&own.program, &own.plan, &self.schedule, &self.profile) {
            if found.severity() == Some(Severity::Warning) {
                diagnostics::show_one(&found, &self.loaded.compiled.sources, DiagnosticFormat::Text);
            }
        }
    }

    fn document(&self) -> PlanDocument {
        let PlannedFile { loaded, rank, profile, schedule } = self;
        let own = &loaded.compiled.ranks[*rank as usize];
        report::build(report::DocumentInputs {
            workload: loaded.workload(),
            program: &own.program,
            plan: &own.plan,
            schedule,
            fusion: FusionRecord::of_rank(&loaded.compiled, *rank as usize),
            rank: *rank,
            profile,
            places: &|span| loaded.compiled.sources.place(span),
        })
    }

    fn view(&self, document: &PlanDocument) -> PageContent<'static> {
        let ranks = &self.loaded.compiled.ranks;
        let memory = picture::memory(&ranks[self.rank as usize].program, &self.schedule, document);
        PageContent::plan(document, memory, report::page(document, ranks, &pairs(ranks)))
    }
}

fn planned(file: &str, args: &PlanArgs) -> Result<PlannedFile, CliError> {
    let (settled, settings) = exec::target(file, &args.workload, &args.config)?;
    let text = load::find(&settled.file, &settings)?;
    let ranks = args.ranks.or(settled.ranks).or(settled.emulate).unwrap_or(1);
    if args.rank >= ranks {
        return Err(no_rank(args.rank, ranks).into());
    }
    let loaded = load::load(&text, &settled.workload, &settings, RankCount::Exactly(ranks))?;
    let profile = backends::profile(&settings)?;
    let rank = &loaded.compiled.ranks[args.rank as usize];
    let schedule = loaded.compiled.place(rank, Topology::of(&profile));
    Ok(PlannedFile { rank: args.rank, schedule, profile, loaded })
}

/// The error for a rank that the plan does not have.
fn no_rank(rank: u32, ranks: u32) -> InputError {
    let why = match ranks {
        1 => "there is one rank, 0: `--ranks N` plans for more".to_owned(),
        ranks => format!("ranks go from 0 to {}", ranks - 1),
    };
    InputError::bad_value("`--rank`", &rank.to_string(), &why, "write `--rank 0`, or a larger `--ranks`")
}
