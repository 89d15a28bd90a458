//! `aorta compare`: compares the records of earlier runs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use indexmap::IndexMap;

use crate::base::{counted, json, shell};
use crate::measure::ab::AbRecord;
use crate::measure::compare::{self, CompareOptions, FailOn, RunSet, Thresholds};
use crate::measure::effect::Direction;
use crate::report::{PageContent, compare as report};

use super::fast_p;
use crate::cli::error::{CliError, InputError};
use crate::cli::inputs::{container, load};
use crate::cli::io::output;
use crate::cli::io::outputs::{self, PageArgs};
use crate::cli::{CliResult, DONE, REGRESSED};

/// Maximum number of metric names listed by a message.
const MAX_LISTED: usize = 12;

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct CompareArgs {
    /// The baseline: a file, a folder of files, or several with commas between
    base: String,
    /// The runs to compare with the baseline
    #[arg(required = true)]
    others: Vec<String>,
    #[command(flatten)]
    page: PageArgs,
    /// Write each picture as an SVG file, `NAME-difference.svg` and so on
    #[arg(long, value_name = "NAME", conflicts_with = "fast_p")]
    svg: Option<String>,
    /// Smallest difference that matters, 3% by default; `time=2%` applies to one metric, or to all of `time.…`
    #[arg(long, value_name = "[METRIC=]SHARE", allow_hyphen_values = true)]
    threshold: Vec<String>,
    /// Compare only these metrics, such as `time` or `time.p50`
    #[arg(long, value_name = "METRIC", value_delimiter = ',')]
    metric: Vec<String>,
    /// Define whether `higher` or `lower` is better for a metric
    #[arg(long, value_name = "METRIC=WAY")]
    better: Vec<String>,
    /// Exit with code 1 in this case
    #[arg(long, value_name = "WHAT", value_delimiter = ',', default_value = "worse")]
    fail_on: Vec<FailOnArg>,
    /// Relative standard deviation between runs of the same program, for a side with one run; 1.5% by default, 0.5% as
    /// a graph
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    between_runs: Option<String>,
    /// Compare operation by operation, also on the same device
    #[arg(long)]
    operations: bool,
    /// Compare times of KernelBench's problems: a baseline with another, or with the results of an evaluation
    #[arg(long, conflicts_with_all = ["threshold", "metric", "better", "between_runs", "operations"])]
    fast_p: bool,
    /// With `--fast-p`: the level of files that do not name it
    #[arg(long, value_name = "N", requires = "fast_p")]
    level: Option<u32>,
}

const AFTER_HELP: &str = "\
A file is a record (`exec --json`), a file of cases (a sweep's or a suite's), or the results.json of \
AORTA's Python harness. Several runs of the same case on one side show how much runs differ.";

/// Values of `--fail-on`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FailOnArg {
    /// A metric is worse
    Worse,
    /// The difference of a metric is too uncertain for a verdict
    CannotTell,
    /// A side lacks a case of the baseline
    Missing,
    /// Never
    Never,
}

pub fn run(args: CompareArgs) -> CliResult {
    if args.fast_p {
        return fast_p::run(&args.base, &args.others, args.level, &args.page);
    }
    let options = options(&args)?;
    args.page.check()?;
    let base = side(&args.base)?;
    let others = args.others.iter().map(|name| side(name)).collect::<Result<Vec<RunSet>, CliError>>()?;
    let comparison = compare::compare(&base, &others, &options);
    args.page.show(&report::compare(&comparison), || json::document(&comparison))?;
    args.page.write_html(|| PageContent::comparison(&comparison))?;
    outputs::write_pictures(args.svg.as_ref(), || PageContent::comparison(&comparison).galleries().to_vec())?;
    if let Some(against) = comparison.others.iter().find(|against| against.pairs.is_empty()) {
        let (base, other) = (comparison.base.name.clone(), against.side.name.clone());
        return Err(InputError::NoCommonCase { base, other }.into());
    }
    check_names(&args, &base, &others, &options)?;
    Ok(if comparison.fails() { REGRESSED } else { DONE })
}

/// Fails if a named metric does not exist: a misspelled name must not make a comparison pass.
fn check_names(
    args: &CompareArgs,
    base: &RunSet,
    others: &[RunSet],
    options: &CompareOptions,
) -> Result<(), InputError> {
    let asked = args.metric.iter().map(|name| ("--metric", name.as_str()));
    let thresholds = options.thresholds.of.keys().map(|name| ("--threshold", name.as_str()));
    let better = options.better.keys().map(|name| ("--better", name.as_str()));
    let named: Vec<(&str, &str)> = asked.chain(thresholds).chain(better).collect();
    if named.is_empty() {
        return Ok(());
    }
    let all = compare::compare(base, others, &CompareOptions { metrics: Vec::new(), ..options.clone() });
    let rows = all.others.iter().flat_map(|against| &against.pairs).flat_map(|pair| &pair.rows);
    let metrics: BTreeSet<&str> = rows.map(|row| row.metric.as_str()).collect();
    let unknown = |(_, name): &(&str, &str)| !metrics.iter().any(|metric| compare::is_of(metric, name));
    let Some((flag, name)) = named.into_iter().find(unknown) else { return Ok(()) };
    let listed: Vec<&str> = metrics.into_iter().take(MAX_LISTED).collect();
    Err(bad_option(
        flag,
        name,
        "no metric of this name exists on both sides",
        &format!("there are {}", listed.join(", ")),
    ))
}

fn bad_option(what: &str, value: &str, why: &str, help: &str) -> InputError {
    InputError::bad_value(&format!("`{what}`"), value, why, help)
}

fn options(args: &CompareArgs) -> Result<CompareOptions, InputError> {
    let mut thresholds = Thresholds::default();
    for given in &args.threshold {
        match given.rsplit_once('=') {
            None => thresholds.all = share("--threshold", given)?,
            Some((metric, text)) => {
                thresholds.of.insert(metric.trim().to_owned(), share("--threshold", text)?);
            }
        }
    }
    let mut better = IndexMap::new();
    for given in &args.better {
        let (metric, way) = given.rsplit_once('=').unwrap_or((given, ""));
        let way = match way.trim() {
            "higher" => Direction::HigherIsBetter,
            "lower" => Direction::LowerIsBetter,
            _ => {
                return Err(bad_option(
                    "--better",
                    given,
                    "it is not of the form `METRIC=higher` or `METRIC=lower`",
                    "write `--better gain=higher`",
                ));
            }
        };
        better.insert(metric.trim().to_owned(), way);
    }
    let fail_on = args.fail_on.iter().filter_map(|what| match what {
        FailOnArg::Worse => Some(FailOn::Worse),
        FailOnArg::CannotTell => Some(FailOn::CannotTell),
        FailOnArg::Missing => Some(FailOn::Missing),
        FailOnArg::Never => None,
    });
    let fail_on: Vec<FailOn> = fail_on.collect();
    if args.fail_on.contains(&FailOnArg::Never) && !fail_on.is_empty() {
        return Err(bad_option(
            "--fail-on",
            "never",
            "it cannot be combined with other conditions",
            "write `--fail-on never` alone",
        ));
    }
    let metrics = args.metric.iter().map(|name| name.trim().to_owned()).collect();
    let between_runs = args.between_runs.as_deref().map(|text| share("--between-runs", text)).transpose()?;
    Ok(CompareOptions { thresholds, metrics, better, fail_on, between_runs, operations: args.operations })
}

/// Parses a relative value such as `3%` that an option was given.
fn share(option: &str, text: &str) -> Result<f64, InputError> {
    outputs::share(text)
        .map_err(|why| bad_option(option, text.trim(), &why, &format!("write `{option} 3%`, or `{option} 0.03`")))
}

/// Reads all records given for one side.
fn side(given: &str) -> Result<RunSet, CliError> {
    let mut side = RunSet::new(given);
    for path in paths(given)? {
        let name = path.display().to_string();
        let text = match container::is_bundle(&name) {
            true => container::record(&path)?.to_json(),
            false => load::read(&path, load::FileKind::Runs)?,
        };
        if AbRecord::recognizes(&text) {
            let why = format!("it is an A/B comparison, which `{}` shows", shell::command(["aorta", "report", &name]));
            return Err(InputError::NoRuns { name, why }.into());
        }
        side.add(&name, &text).map_err(|why| InputError::NoRuns { name, why })?;
    }
    if side.is_empty() {
        let why = "no case in it was measured".to_owned();
        return Err(InputError::NoRuns { name: given.to_owned(), why }.into());
    }
    let missing = side.missing();
    if !missing.is_empty() {
        let listed = missing.iter().copied().take(MAX_LISTED).collect::<Vec<_>>().join("; ");
        let more = if missing.len() > MAX_LISTED { ", …" } else { "" };
        output::eprint(&format!(
            "{given} lacks {} of its partitions: {listed}{more}\n",
            counted(missing.len(), "case")
        ));
    }
    Ok(side)
}

/// The paths of a list with commas. A path that itself contains a comma is used if it exists.
fn paths(given: &str) -> Result<Vec<PathBuf>, InputError> {
    let pieces: Vec<&str> = match Path::new(given).exists() {
        true => vec![given],
        false => given.split(',').filter(|piece| !piece.is_empty()).collect(),
    };
    if pieces.is_empty() {
        return Err(InputError::NoRuns { name: format!("`{given}`"), why: "it names no file".to_owned() });
    }
    let mut paths = Vec::new();
    for piece in pieces {
        let path = Path::new(piece);
        if path.is_dir() { paths.extend(inside(path)?) } else { paths.push(path.to_owned()) }
    }
    Ok(paths)
}

/// The files of a folder whose names end in `.json` or `.jsonl`, sorted by name.
fn inside(folder: &Path) -> Result<Vec<PathBuf>, InputError> {
    let name = || folder.display().to_string();
    let failed = |error: std::io::Error| InputError::unreadable(folder, error, None);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let wanted = path.extension().is_some_and(|end| end == "json" || end == "jsonl");
        if wanted && path.is_file() {
            found.push(path);
        }
    }
    found.sort();
    if found.is_empty() {
        let why = "the folder has no file that ends in .json or .jsonl".to_owned();
        return Err(InputError::NoRuns { name: name(), why });
    }
    Ok(found)
}
