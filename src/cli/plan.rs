//! `aorta plan`: shows dependencies between operations.

use std::io::{self, Write};
use std::path::Path;

use clap::{Args, ValueEnum};

use crate::compile::Ranks;
use crate::config::Settings;
use crate::report::plan::{self as report, PlanDocument};
use crate::schedule::Topology;

use super::error::{CliError, InputError};
use super::{CliResult, ConfigArgs, DIFFERENT, DONE, MAX_RANKS, WorkloadArgs, backends, load, output};

/// Largest number of operations that Graphviz draws within seconds.
const DOT_OPERATIONS: usize = 2000;

/// Largest number of edges that Mermaid draws by default.
const MERMAID_EDGES: usize = 500;

#[derive(Debug, Args)]
pub struct PlanArgs {
    /// The file, or the name of a shipped workload
    #[arg(required_unless_present = "diff")]
    file: Option<String>,
    /// The format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Format,
    /// Plan a world of this many ranks, all of which are checked together
    #[arg(long, value_name = "N", default_value = "1", hide_default_value = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MAX_RANKS))]
    ranks: u32,
    /// Show the plan of this rank
    #[arg(long, value_name = "R", default_value = "0", hide_default_value = true)]
    rank: u32,
    /// Compare two plans: files, names, or JSON written by `--format json` (`.json`). Exit with code 1 if they differ
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["file", "format"])]
    diff: Option<Vec<String>>,
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Values of `--format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
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
    if args.rank >= args.ranks {
        return Err(InputError::BadValue {
            what: "`--rank`".to_owned(),
            value: args.rank.to_string(),
            why: match args.ranks {
                1 => "there is one rank, 0: `--ranks N` plans for more".to_owned(),
                ranks => format!("ranks go from 0 to {}", ranks - 1),
            },
            help: "write `--rank 0`, or a larger `--ranks`".to_owned(),
        }
        .into());
    }
    if let [a, b] = args.diff.as_deref().unwrap_or_default() {
        return compare(a, b, &args, &settings);
    }
    let file = args.file.as_deref().unwrap_or_default();
    let document = document(file, &args, &settings)?;
    warn_of_size(&document, args.format);
    // A dry run, so that an output that is too long is refused before any of it is printed.
    if write(args.format, &document, &mut Room(settings.max_output.0)).is_err() {
        let (operations, most) = (document.operations(), settings.max_output.to_string());
        return Err(InputError::TooMuchOutput { operations, most }.into());
    }
    output::stream(|out| write(args.format, &document, out));
    Ok(DONE)
}

fn write(format: Format, document: &PlanDocument, out: &mut impl Write) -> io::Result<()> {
    match format {
        Format::Text => report::text(document, out),
        Format::Json => report::json(document, out),
        Format::Dot => report::dot(document, out),
        Format::Mermaid => report::mermaid(document, out),
    }
}

/// A writer that discards its input and fails after this many bytes.
struct Room(u64);

impl Write for Room {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len() as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Warns about a drawing that is larger than its tools can handle.
fn warn_of_size(document: &PlanDocument, format: Format) {
    let (what, count, most, help) = match format {
        Format::Dot => ("operations", document.operations(), DOT_OPERATIONS, "Graphviz may take very long"),
        Format::Mermaid => {
            ("edges", document.edges(), MERMAID_EDGES, "Mermaid draws no more, unless its `maxEdges` is raised")
        }
        Format::Text | Format::Json => return,
    };
    if count > most {
        output::eprint(&format!(
            "warning: the plan has {count} {what}, and {help}: give smaller parameters with `--set` or `--preset`\n"
        ));
    }
}

fn compare(a: &str, b: &str, args: &PlanArgs, settings: &Settings) -> CliResult {
    let is_json = |name: &str| name.ends_with(".json");
    let asks = args.workload != WorkloadArgs::default() || args.ranks > 1;
    if is_json(a) && is_json(b) && asks {
        return Err(InputError::PlannedAlready.into());
    }
    let read = |name: &str| match is_json(name) {
        true => read(name),
        false => document(name, args, settings),
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

/// Reads a plan that was written as JSON.
fn read(name: &str) -> Result<PlanDocument, CliError> {
    let text = load::read(Path::new(name), load::FileKind::Plan)?;
    report::parse(&text).map_err(|why| InputError::NoPlan { name: name.to_owned(), why }.into())
}

fn document(file: &str, args: &PlanArgs, settings: &Settings) -> Result<PlanDocument, CliError> {
    let text = load::find(file, settings)?;
    let loaded = load::load(&text, &args.workload, settings, Ranks::Exactly(args.ranks))?;
    let profile = backends::profile(settings)?;
    let rank = &loaded.compiled.ranks[args.rank as usize];
    let schedule = loaded.compiled.place(rank, Topology::of(&profile));
    Ok(report::build(report::Request {
        workload: loaded.workload(),
        program: &rank.program,
        plan: &rank.plan,
        schedule: &schedule,
        rank: args.rank,
        profile: &profile,
        places: &|span| loaded.compiled.sources.place(span),
    }))
}
