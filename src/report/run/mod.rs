//! The report of a run.

pub(super) mod analysis;
pub(super) mod expected;
pub(super) mod hardware_counters;
pub(super) mod operations;
pub(super) mod ranks;
pub(super) mod slots;
pub(super) mod verification;

use std::cmp::Ordering;
use std::fmt::Display;

use indexmap::IndexMap;

use crate::base::{Bytes, Flops, counted};
use crate::measure::record::{
    ExpectationRecord, FusionRecord, PeakRecord, RankRecord, RankWork, RunRecord, Times, Variant,
};

use super::page::{ABSENT, Check, Outcome, Page, Section, Table, cell};
use super::plan::advice;
use super::quantity::share_of;
use super::variant::{disturbed, launched, shown, variant_name};

/// Maximum number of rows of streams.
const LANES: usize = 20;

/// The page of a run. Tables of a single rank show rank `rank`, or the first.
pub fn run(record: &RunRecord, rank: Option<u32>) -> Page {
    let mut page = Page { command: "aorta exec", name: record.workload.name.clone(), ..Page::default() };
    page.lines("", header(record));
    page.sections.extend(times(record));
    page.sections.extend(slots::sections(record));
    page.sections.extend(ranks::sections(record, rank));
    page.sections.extend(analysis::section(record, rank));
    page.sections.extend(advice::section(record));
    if let Some(variant) = record.variants.first()
        && let Some(rank) = shown(variant, rank)
    {
        page.sections.extend(operations::section(record, variant, rank));
        page.sections.extend(lanes(record, variant, rank));
    }
    page.sections.extend(hardware_counters::sections(record));
    page.sections.extend(expected::section(record));
    page.sections.extend(verification::section(record));
    let expectations = || {
        record.variants.iter().flat_map(|variant| variant.expectations.iter().map(move |expects| (variant, expects)))
    };
    page.lines("", expectations().map(|(variant, expects)| expectation(record, variant, expects)));
    page.lines("", notes(record));
    page.warnings.clone_from(&record.warnings);
    page.checks = expectations().map(|(variant, expects)| check(record, variant, expects)).collect();
    page
}

/// The notes of all variants, each once, with the ways of launching to which it applies.
fn notes(record: &RunRecord) -> Vec<String> {
    let mut launches: IndexMap<&str, Vec<&str>> = IndexMap::new();
    for variant in &record.variants {
        for note in &variant.notes {
            launches.entry(note).or_default().push(launched(&variant.launch));
        }
    }
    launches.into_iter().map(|(note, launches)| format!("note: {}: {note}", launches.join(" and "))).collect()
}

/// The verdict on an expectation, in a word.
fn word(expectation: &ExpectationRecord) -> &'static str {
    match expectation.verdict.as_str() {
        "held" => "passed",
        "failed" => "failed",
        _ => "skipped",
    }
}

fn expectation(record: &RunRecord, variant: &Variant, expected: &ExpectationRecord) -> String {
    let reason = reason(expected).map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{} ({}): {} ({}){reason}", word(expected), variant_name(record, variant), expected.text, expected.place)
}

/// Why an expectation failed: the figure without a value, or the values; `None` if it did not fail.
fn reason(expected: &ExpectationRecord) -> Option<String> {
    let missing = expected.why.as_ref().map(|why| format!("no value, since {why}"));
    missing.or_else(|| expected.found.clone())
}

fn check(record: &RunRecord, variant: &Variant, expected: &ExpectationRecord) -> Check {
    let kind = word(expected);
    let reason = reason(expected).map(|reason| format!("{}: {reason}", expected.text));
    Check {
        class: record.workload.name.clone(),
        name: format!("{}, {}", expected.text, variant_name(record, variant)),
        outcome: match kind {
            "passed" => Outcome::Passed,
            "failed" => Outcome::Failed,
            _ => Outcome::Skipped,
        },
        kind,
        why: match reason {
            _ if kind == "passed" => String::new(),
            Some(reason) => format!("{reason} ({})", expected.place),
            None => format!("{} ({})", expected.text, expected.place),
        },
        place: Some(expected.place.clone()),
        figures: String::new(),
        seconds: None,
    }
}

fn header(record: &RunRecord) -> Vec<String> {
    let workload = &record.workload;
    let summary = if workload.summary.is_empty() { String::new() } else { format!(": {}", workload.summary) };
    let mut lines = vec![format!("{}{summary}", workload.name)];
    let program = &record.program;
    let place = device(record);
    let first = record.first_rank();
    let place = match (record.settings.ranks, record.emulated) {
        (_, Some(world)) => format!("rank {first} of {world}, emulated: {place}"),
        (1, _) => place,
        (ranks, _) if program.ranks.is_empty() => format!("rank {first} of {ranks}: {place}"),
        (ranks, _) => format!("each of {ranks} ranks: {place}"),
    };
    let streams = counted(program.lanes.len(), "stream");
    let works = match record.emulated {
        None if !program.ranks.is_empty() => program.ranks.clone(),
        _ => Vec::from_iter(record.work(first)),
    };
    let flops = range(works.iter().map(|work| Flops(work.flops)));
    let bytes = range(works.iter().map(|work| Bytes(work.bytes)));
    let memory = program.memory.device;
    let mean = |work: &RankWork| (100.0 * work.cycle_operations as f64 / program.cycle as f64).round() / 100.0;
    let operations = range(works.iter().map(mean));
    let noun = if operations == "1" { "operation" } else { "operations" };
    lines.push(if program.cycle == 1 {
        format!("{operations} {noun} on {streams} of {place}: {flops}, {bytes} moved, {memory} of device memory")
    } else {
        format!(
            "An iteration has {operations} {noun}, {flops} and {bytes} moved, on average over the {} slots of a round; \
             on {streams} of {place}, {memory} of device memory",
            program.cycle
        )
    });
    let shown: Vec<String> = workload.params.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let preset = workload.preset.as_ref().map(|preset| format!("preset {preset}: ")).unwrap_or_default();
    lines.extend((!shown.is_empty()).then(|| format!("{preset}{}", shown.join(" "))));
    lines.extend(record.fusion.as_ref().map(FusionRecord::summary));
    lines
}

/// The least and the greatest of some values, or their common text.
fn range<T: PartialOrd + Display>(values: impl Iterator<Item = T> + Clone) -> String {
    let by = |a: &T, b: &T| a.partial_cmp(b).unwrap_or(Ordering::Equal);
    let ends = [values.clone().min_by(by), values.max_by(by)];
    let mut texts: Vec<String> = ends.into_iter().flatten().map(|end| end.to_string()).collect();
    texts.dedup();
    texts.join(" to ")
}

/// The device's name, such as `NVIDIA H200 (device 0)`.
pub(super) fn device(record: &RunRecord) -> String {
    match record.device.index {
        Some(index) => format!("{} (device {index})", record.device.name),
        None => record.device.name.clone(),
    }
}

/// The times of all variants, side by side; `None` if the run was interrupted before the first measured iteration.
fn times(record: &RunRecord) -> Option<Section> {
    if record.has_no_iteration() {
        return None;
    }
    let names: Vec<String> = record.variants.iter().map(|variant| variant_name(record, variant)).collect();
    let mut table = Table::new([vec![iteration_title(record)], names].concat());
    let mut row = |name: &str, value: &dyn Fn(&Variant) -> String| {
        let values: Vec<String> = record.variants.iter().map(value).collect();
        if values.iter().any(|value| value != ABSENT) {
            table.row([vec![name.to_owned()], values].concat());
        }
    };
    let spread = |times: &Times| match (times.mean_ns, times.std_ns) {
        (Some(mean), Some(std)) => format!("{mean} ± {std}"),
        _ => ABSENT.to_owned(),
    };
    row("median", &|variant| cell(variant.time.p50_ns));
    row("95 % interval", &|variant| match (variant.time.p50_low_ns, variant.time.p50_high_ns) {
        // If both ends are equal, as often on the simulator, the interval adds nothing to the median.
        (Some(low), Some(high)) if low.to_string() != high.to_string() => format!("{low} to {high}"),
        _ => ABSENT.to_owned(),
    });
    row("mean ± std", &|variant| spread(&variant.time));
    row("min", &|variant| cell(variant.time.min_ns));
    row("p95", &|variant| cell(variant.time.p95_ns));
    row("p99", &|variant| cell(variant.time.p99_ns));
    row("max", &|variant| cell(variant.time.max_ns));
    row("host launch time", &|variant| cell(variant.issue.p50_ns));
    row("ungated (host-paced)", &|variant| cell(variant.ungated.as_ref().and_then(|times| times.p50_ns)));
    row("on one stream", &|variant| cell(variant.serial.as_ref().and_then(|serial| serial.p50_ns)));
    if record.fusion.is_some() {
        row("first iteration", &|variant| cell(variant.warmup.first_ns));
        row("compiler", &|variant| cell(variant.compile_ns));
    }
    let of_peak = |variant: &Variant, share: fn(&PeakRecord) -> f64| {
        let peak = variant.slowest_rank().and_then(|rank| rank.analysis.as_ref()?.peak.as_ref());
        cell(peak.map(share).filter(|share| *share > 0.0).map(percent))
    };
    row("clock", &clocks);
    row("of peak arithmetic", &|variant| of_peak(variant, |peak| peak.flops));
    row("of peak bandwidth", &|variant| of_peak(variant, |peak| peak.bytes));
    let metrics = record.variants.first().map_or(&[][..], |variant| &variant.metrics);
    for (index, metric) in metrics.iter().enumerate() {
        row(&metric.name, &|variant| cell(variant.metrics.get(index).map(|metric| &metric.text)));
    }
    let absent =
        metrics.iter().filter_map(|metric| Some(format!("{}: no value, since {}", metric.name, metric.note.as_ref()?)));
    let of_some = metrics.iter().filter_map(|metric| {
        let all = record.variants.first()?.ranks.len();
        Some(format!(
            "{}: from {} of {all} ranks, since the others have none of its operations",
            metric.name, metric.ranks?
        ))
    });
    Some(Section { table: Some(table), notes: absent.chain(of_some).collect(), ..Section::default() })
}

/// The lowest and the highest clock that was read after a block of measured iterations.
fn clocks(variant: &Variant) -> String {
    let read = || variant.blocks.iter().flat_map(|block| &block.health).filter_map(|health| health.clock_mhz);
    match (read().min(), read().max()) {
        (Some(low), Some(high)) if low < high => format!("{low} to {high} MHz"),
        (Some(low), _) => format!("{low} MHz"),
        _ => ABSENT.to_owned(),
    }
}

/// Formats a share in percent: whole from 10 % on, with two significant digits below.
pub(super) fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    let digits = match percent {
        10.0.. => 0,
        1.0.. => 1,
        _ => 2,
    };
    if percent < 0.01 { "< 0.01 %".to_owned() } else { format!("{percent:.digits$} %") }
}

fn iteration_title(record: &RunRecord) -> String {
    let n = record.variants.first().map_or(0, |variant| variant.time.n);
    let iterations = counted(n, "iteration");
    let iterations = match record.variants.first().map_or(0, |variant| variant.time.slots.len()) {
        0 => iterations,
        slots => format!("{iterations}, {} of {slots} slots", counted(n / slots, "round")),
    };
    match (record.measurement, record.complete) {
        (_, false) => format!("{iterations}, incomplete"),
        (false, true) => format!("{iterations}, no measurement"),
        (true, true) => iterations,
    }
}

/// The streams of the iteration that the split describes; `None` if none was observed.
fn lanes(record: &RunRecord, variant: &Variant, rank: &RankRecord) -> Option<Section> {
    let analysis = rank.analysis.as_ref().filter(|analysis| !analysis.lanes_busy_ns.is_empty())?;
    let whole = analysis.split.time_ns;
    let mut table = Table::new(["stream", "operations", "busy", "share of time", "queue"]);
    let runs = |index: usize| {
        variant.ranks.iter().flat_map(|rank| &rank.operations).any(|operation| operation.lane as usize == index)
    };
    let (used, idle): (Vec<_>, Vec<_>) = record.program.lanes.iter().enumerate().partition(|(index, _)| runs(*index));
    for &(index, lane) in used.iter().take(LANES) {
        let busy = analysis.lanes_busy_ns.get(index).copied().unwrap_or_default();
        let operations = rank.operations.iter().filter(|one| one.lane as usize == index && one.start_ns.is_some());
        let name = match lane.streams.as_slice() {
            [_, others @ ..] if !others.is_empty() => format!("{} shared with {}", lane.name, others.join(", ")),
            _ => lane.name.clone(),
        };
        table.row([
            name + &lane.limits_text(),
            operations.count().to_string(),
            busy.to_string(),
            share_of(busy, whole),
            lane.queue_text(),
        ]);
    }
    let hidden = used.len().saturating_sub(LANES);
    let mut notes = Vec::from_iter((hidden > 0).then(|| format!("{hidden} more streams; --json has all of them")));
    let idle: Vec<String> = idle.iter().map(|(_, lane)| format!("`{}`", lane.name)).collect();
    notes.extend((!idle.is_empty()).then(|| format!("no operation in this iteration: {}", idle.join(", "))));
    let slot = slots::of(record, rank);
    Some(Section {
        title: format!("Streams, in one iteration ({}{slot}{})", variant_name(record, variant), disturbed(rank)),
        table: Some(table),
        notes,
        ..Section::default()
    })
}
