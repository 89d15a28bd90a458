//! Judges a record by the limits of a scenario or of a case of a suite, and checks what a scenario says beside its run.

use std::collections::BTreeMap;
use std::path::Path;

use super::args::ExecArgs;
use crate::base::{suggest, units};
use crate::cli::commands::{ab, sweep};
use crate::cli::error::{CliError, InputError};
use crate::cli::inputs::load::{self, FileKind, Loaded};
use crate::config::{Expected, Mistakes, QuantityRange, Scenario};
use crate::measure::record::{ExpectationRecord, Variant, launched};
use crate::measure::{RunRecord, metric_unit};
use crate::render::DiagnosticFormat;

/// Adds an expectation for each limit of a scenario to each variant of a record. Limits apply to measurements only.
pub(super) fn judged(mut record: RunRecord, scenario: Option<&Scenario>) -> RunRecord {
    let none = BTreeMap::new();
    let limits = scenario.map_or(&none, |scenario| &scenario.limits);
    let applies = record.measurement && record.complete;
    for variant in &mut record.variants {
        for (name, span) in limits {
            let verdict = match broken(variant, name, span) {
                _ if !applies => "skipped",
                Some(_) => "failed",
                None => "held",
            };
            let text = format!("limit {name}: {span}");
            variant.expectations.push(ExpectationRecord {
                text,
                place: "scenario".to_owned(),
                verdict: verdict.to_owned(),
                why: None,
                found: match verdict {
                    "failed" => limited(variant, name).map(|(_, text)| format!("`{name}` is {text}")),
                    "skipped" => Some("the run is no measurement".to_owned()),
                    _ => None,
                },
            });
        }
    }
    record
}

/// Fails if a part of a scenario that its run does not use is wrong: ranges that cannot be read, limits and ranges on
/// metrics that the workload lacks or that have another unit, and axes and sides that cannot run. `file` is the
/// argument that names the scenario.
pub fn check_scenario(file: &str, args: &ExecArgs, loaded: &Loaded) -> Result<(), CliError> {
    let (Some(scenario), Some(path)) = (&args.scenario, &args.scenario_file) else { return Ok(()) };
    if let Some(path) = args.expected.path() {
        check_ranges(path, loaded)?;
    }
    let (_, mut mistakes) = Scenario::read(&path.display().to_string(), &load::read(path, FileKind::Scenario)?);
    add_limits(scenario, loaded, &mut mistakes);
    sweep::check_program(scenario, &loaded.compiled.ast, &mut mistakes);
    ab::check_program(file, scenario, &mut mistakes);
    if mistakes.count() == 0 && !scenario.axes.is_empty() {
        match sweep::check(file, DiagnosticFormat::default()) {
            Err(CliError::Input(error)) => mistakes.add(&["axes"], error),
            result => result?,
        }
    }
    Ok(mistakes.finish()?)
}

/// Fails if the ranges at `path` cannot be read, or one of them is on a metric that the loaded workload does not have, or in
/// another unit.
pub fn check_ranges(path: &str, loaded: &Loaded) -> Result<(), CliError> {
    let (expected, mut mistakes) = Expected::read(path, &load::read(Path::new(path), FileKind::Expected)?);
    let name = loaded.workload().name;
    let file = name.rsplit('/').next().unwrap_or(&name);
    let stem = file.strip_suffix(".aorta").unwrap_or(file);
    for (index, range) in expected.iter().flat_map(|expected| &expected.ranges).enumerate() {
        let Some(metric) = range.metric.as_ref().filter(|_| range.workload.as_deref() == Some(stem)) else { continue };
        if let Err(error) = check_span("range", metric, &range.normal, loaded) {
            mistakes.add(&["ranges", &index.to_string(), "metric"], error);
        }
    }
    Ok(mistakes.finish()?)
}

/// Fails if a limit of the run's scenario is on no metric of the workload, or in another unit.
pub(super) fn check(args: &ExecArgs, loaded: &Loaded) -> Result<(), CliError> {
    let (Some(scenario), Some(path)) = (&args.scenario, &args.scenario_file) else { return Ok(()) };
    if scenario.limits.iter().all(|(limit, span)| check_span("limit", limit, span, loaded).is_ok()) {
        return Ok(());
    }
    let (_, mut mistakes) = Scenario::read(&path.display().to_string(), &load::read(path, FileKind::Scenario)?);
    add_limits(scenario, loaded, &mut mistakes);
    Ok(mistakes.finish()?)
}

/// Adds the limits of a scenario that are on no metric of the workload, or in another unit.
fn add_limits(scenario: &Scenario, loaded: &Loaded, mistakes: &mut Mistakes) {
    for (limit, span) in &scenario.limits {
        if let Err(error) = check_span("limit", limit, span, loaded) {
            mistakes.add(&["limits", limit], error);
        }
    }
}

/// Fails if a limit or a range, `what`, is on a metric that the workload does not have, or in another unit.
pub fn check_span(what: &str, name: &str, span: &QuantityRange, loaded: &Loaded) -> Result<(), InputError> {
    let metrics = &loaded.compiled.program().metrics;
    let is_limit = what == "limit";
    let names = metrics.iter().map(|metric| metric.name.as_str()).chain(is_limit.then_some("time"));
    let metric = metrics.iter().find(|metric| metric.name == *name);
    let (unit, example) = match metric {
        // `metric_unit` returns the unit in records, where shares are plain numbers, so `%` is restored here.
        Some(metric) if metric.unit.as_deref() == Some("%") => ("%".to_owned(), "5%"),
        Some(metric) => (metric_unit(metric), metric.dimension.example().unwrap_or("1")),
        None if is_limit && name == "time" => ("s".to_owned(), "1ms"),
        None => {
            let why = format!("{} has no such metric", loaded.compiled.name);
            let help = suggest::did_you_mean(name, names);
            let help = help.unwrap_or_else(|| format!("`aorta show {}` lists its metrics", loaded.compiled.name));
            return Err(InputError::bad_value(&format!("a {what}"), name, &why, &help));
        }
    };
    if span.fits(&unit) {
        return Ok(());
    }
    let why = if unit.is_empty() { "it is a plain number".to_owned() } else { format!("it is in {unit}") };
    let help = match units::unit(&unit) {
        Some(_) => format!("write a number with its unit, such as \"{example}\""),
        None if unit.is_empty() || unit == "1/s" => "write a plain number, such as \"1e6\"".to_owned(),
        None => format!("write a number with its unit, such as \"1M {unit}\""),
    };
    Err(InputError::bad_value(&format!("the {what} `{name}`"), &span.to_string(), &why, &help))
}

/// The value of a metric, or of `time`, the median, in SI units with its text; `None` if it is not there.
fn limited(variant: &Variant, name: &str) -> Option<(Option<f64>, String)> {
    if name == "time" {
        let median = variant.time.p50_ns?;
        return Some((Some(median.seconds()), median.to_string()));
    }
    let metric = variant.metrics.iter().find(|metric| metric.name == *name)?;
    Some((metric.value, metric.text.clone()))
}

/// Describes how a variant violates the limit on a metric, or on `time`, its median; `None` if it does not.
pub fn broken(variant: &Variant, name: &str, span: &QuantityRange) -> Option<String> {
    let (value, text) = match variant.metrics.iter().find(|metric| metric.name == *name) {
        Some(metric) if name != "time" && !span.fits(&metric.unit) => {
            return Some(format!("limit on {name}: {span} is in another unit than {}", metric.text));
        }
        None if name != "time" => return Some(format!("limit on {name}: the workload has no such metric")),
        _ => limited(variant, name)?,
    };
    let is_in_range = value.is_some_and(|value| span.holds(value));
    let launch = launched(&variant.launch);
    (!is_in_range).then(|| format!("limit on {name}, {launch}: {text} is not {}", words(span)))
}

/// Formats a range: `within 50 GB/s to 57 GB/s`, `at most 5 µs`.
fn words(span: &QuantityRange) -> String {
    if span.from.is_some() && span.to.is_some() { format!("within {span}") } else { span.to_string() }
}
