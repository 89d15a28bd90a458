//! The data of a page: the fields of records by their own names, with operations and spans as columns.
//!
//! A column is a list with an entry for each operation or span. Columns of similar numbers compress well, and a browser
//! reads them faster than an object for each operation. A text column holds indices into [`RunData::texts`].

use indexmap::IndexSet;
use serde::Serialize;

use crate::base::Nanos;
use crate::measure::record::{
    AnalysisRecord, DeviceRecord, ExpectationRecord, MetricRecord, ProgramRecord, RankRecord, RunRecord,
    SettingsRecord, SkewRecord, SourceFiles, SpanRecord, Times, Variant, Workload,
};
use crate::report::page::{Page, Section};
use crate::report::picture::Gallery;
use crate::report::traces::common_clock::{origins, shifts};
use crate::report::traces::rates::{Rate, rates};

use super::PageContent;

/// Largest total size of sources in bytes, so that a page stays small. A file that would exceed it is left out.
const MAX_SOURCES: usize = 256 << 10;

/// Maximum number of values of a rate. Of more, each is the mean of an equal step of time.
const VALUES: usize = 1000;

/// Name and version of the schema.
const SCHEMA: &str = "aorta.view/1";

/// The data that a page shows.
#[derive(Serialize)]
pub struct Data<'a> {
    schema: &'static str,
    title: &'a str,
    runs: Vec<RunData<'a>>,
    pages: Vec<PageData<'a>>,
    galleries: &'a [Gallery],
}

/// A report without its checks.
#[derive(Serialize)]
struct PageData<'a> {
    sections: &'a [Section],
    summary: &'a str,
    warnings: &'a [String],
}

/// A record without the host's environment and the verification.
#[derive(Serialize)]
struct RunData<'a> {
    aorta: &'a str,
    started: &'a str,
    simulated: bool,
    emulated: Option<u32>,
    measurement: bool,
    complete: bool,
    workload: &'a Workload,
    settings: &'a SettingsRecord,
    device: &'a DeviceRecord,
    program: &'a ProgramRecord,
    warnings: &'a [String],
    /// The files that operations come from, as far as the record has their texts; at most [`MAX_SOURCES`] bytes together.
    sources: Vec<SourceData<'a>>,
    variants: Vec<ViewVariant<'a>>,
    /// The texts of all operations, each once.
    texts: IndexSet<&'a str>,
}

/// The text of a file.
#[derive(Serialize)]
struct SourceData<'a> {
    /// Name of the file in the places of operations.
    name: &'a str,
    lines: Vec<String>,
}

#[derive(Serialize)]
struct ViewVariant<'a> {
    launch: &'a str,
    refused: &'a Option<String>,
    time: &'a Times,
    issue: &'a Times,
    ungated: &'a Option<Times>,
    serial: &'a Option<Times>,
    metrics: &'a [MetricRecord],
    expectations: &'a [ExpectationRecord],
    skew: &'a Option<SkewRecord>,
    notes: &'a [String],
    ranks: Vec<RankData<'a>>,
}

#[derive(Serialize)]
struct RankData<'a> {
    rank: u32,
    slot: usize,
    p50_ns: Option<Nanos>,
    observer_effect: Option<f64>,
    /// Nanoseconds to add to the times of spans, which gives times on the clock that all ranks of the variant share.
    shift_ns: Nanos,
    /// Maximum error of the shift in either direction; `None` without a common clock.
    clock_error_ns: Option<Nanos>,
    analysis: &'a Option<AnalysisRecord>,
    operations: OperationColumns,
    trace: SpanColumns,
    counters: Vec<RateData>,
}

/// A rate of the traced iteration.
#[derive(Serialize)]
struct RateData {
    name: String,
    /// Unit of the values: `B/s`, or empty for a number.
    unit: &'static str,
    /// Start of each value on the clock of all ranks, as the difference to the start of the value before.
    at_ns: Vec<Nanos>,
    /// Values with four significant digits.
    values: Vec<f64>,
}

impl RateData {
    fn of(rate: &Rate) -> RateData {
        let end = rate.points.last().map_or(0, |(at, _)| at.0).max(1) as f64;
        let points: Vec<(Nanos, f64)> = if rate.points.len() <= VALUES {
            rate.points.clone()
        } else {
            let at = |index: usize| Nanos::rounded(index as f64 * end / VALUES as f64);
            let means = rate.means(VALUES, end).into_iter().enumerate().map(|(index, mean)| (at(index), mean));
            means.chain([(Nanos(end as i64), 0.0)]).collect()
        };
        let before = std::iter::once(Nanos(0)).chain(points.iter().map(|(at, _)| *at));
        RateData {
            name: rate.name.to_owned(),
            unit: rate.unit,
            at_ns: points.iter().zip(before).map(|((at, _), before)| *at - before).collect(),
            values: points.iter().map(|(_, value)| format!("{value:.3e}").parse().unwrap_or(*value)).collect(),
        }
    }
}

/// Index of a text; `None` where the record has none.
type TextIndex = Option<usize>;

/// Columns of the operations, by their numbers.
#[derive(Default, Serialize)]
struct OperationColumns {
    /// Index of the name, as the difference to that of the operation before: names often count up.
    name: Vec<i64>,
    operation: Vec<TextIndex>,
    category: Vec<TextIndex>,
    phase: Vec<TextIndex>,
    stream: Vec<TextIndex>,
    lane: Vec<u32>,
    place: Vec<TextIndex>,
    shape: Vec<TextIndex>,
    flops: Vec<f64>,
    bytes: Vec<u64>,
    bus_bytes: Vec<Option<f64>>,
    /// Number of operations that each waits for.
    after_count: Vec<usize>,
    /// Numbers of these operations, those of the first operation first, each as the difference to the number of the
    /// operation that waits.
    after_distance: Vec<i64>,
    time_ns: Vec<Option<Nanos>>,
    transfer_ns: Vec<Option<Nanos>>,
    alone_ns: Vec<Option<Nanos>>,
    slack_ns: Vec<Option<Nanos>>,
    ideal_ns: Vec<Option<Nanos>>,
    bound: Vec<TextIndex>,
    refused: Vec<TextIndex>,
}

/// Columns of the spans of the traced iteration, by their start.
#[derive(Default, Serialize)]
struct SpanColumns {
    /// Number of the operation, as the difference to that of the span before.
    id: Vec<i64>,
    /// Start, as the difference to that of the span before.
    start_ns: Vec<Nanos>,
    time_ns: Vec<Nanos>,
}

impl<'a> Data<'a> {
    pub fn of(view: &'a PageContent) -> Data<'a> {
        let page =
            |page: &'a Page| PageData { sections: &page.sections, summary: &page.summary, warnings: &page.warnings };
        Data {
            schema: SCHEMA,
            title: &view.title,
            runs: view.runs.iter().map(RunData::of).collect(),
            pages: view.pages.iter().map(page).collect(),
            galleries: &view.galleries,
        }
    }
}

impl<'a> RunData<'a> {
    fn of(record: &'a RunRecord) -> RunData<'a> {
        let mut texts = IndexSet::new();
        RunData {
            aorta: &record.aorta,
            started: &record.started,
            simulated: record.simulated,
            emulated: record.emulated,
            measurement: record.measurement,
            complete: record.complete,
            workload: &record.workload,
            settings: &record.settings,
            device: &record.device,
            program: &record.program,
            warnings: &record.warnings,
            sources: sources(record),
            variants: record.variants.iter().map(|variant| ViewVariant::of(variant, &mut texts)).collect(),
            texts,
        }
    }
}

/// The files that operations come from. The record stores a file's path relative to the folder of all its files, but
/// operations name it as the user gave it.
fn sources(record: &RunRecord) -> Vec<SourceData<'_>> {
    let texts: Vec<(&str, String)> = record.source.iter().flat_map(SourceFiles::texts).collect();
    let ranks = record.variants.iter().flat_map(|variant| &variant.ranks);
    let places = ranks.flat_map(|rank| &rank.operations).map(|operation| operation.place.as_str());
    // A place is `file:line:column`.
    let files: IndexSet<&str> = places.filter_map(|place| place.rsplitn(3, ':').nth(2)).collect();
    let mut bytes = 0;
    let mut lines = |file: &str| {
        let ends = |path: &str, end: &str| {
            path.strip_suffix(end).is_some_and(|folder| folder.is_empty() || folder.ends_with('/'))
        };
        let is_end = |part: &str| ends(file, part) || ends(part, file);
        let (_, text) = texts.iter().filter(|(part, _)| is_end(part)).max_by_key(|(part, _)| part.len())?;
        bytes += text.len();
        Some(text.lines().map(str::to_owned).collect()).filter(|_| bytes <= MAX_SOURCES)
    };
    files.into_iter().filter_map(|file| Some(SourceData { name: file, lines: lines(file)? })).collect()
}

impl<'a> ViewVariant<'a> {
    fn of(variant: &'a Variant, texts: &mut IndexSet<&'a str>) -> ViewVariant<'a> {
        let common = origins(&variant.ranks).is_some();
        let ranks = variant.ranks.iter().zip(shifts(&variant.ranks)).map(|(rank, shift_ns)| RankData {
            rank: rank.rank,
            slot: rank.slot,
            p50_ns: rank.time.p50_ns,
            observer_effect: rank.observer_effect,
            shift_ns,
            clock_error_ns: rank.origins.last().filter(|_| common).map(|origin| origin.error),
            analysis: &rank.analysis,
            operations: OperationColumns::of(rank, texts),
            trace: SpanColumns::of(&rank.trace),
            counters: rates(rank, shift_ns).iter().map(RateData::of).collect(),
        });
        ViewVariant {
            launch: &variant.launch,
            refused: &variant.refused,
            time: &variant.time,
            issue: &variant.issue,
            ungated: &variant.ungated,
            serial: &variant.serial,
            metrics: &variant.metrics,
            expectations: &variant.expectations,
            skew: &variant.skew,
            notes: &variant.notes,
            ranks: ranks.collect(),
        }
    }
}

impl OperationColumns {
    fn of<'a>(rank: &'a RankRecord, texts: &mut IndexSet<&'a str>) -> OperationColumns {
        let mut columns = OperationColumns::default();
        let mut text = |text: &'a str| texts.insert_full(text).0;
        let mut before = 0;
        for operation in &rank.operations {
            let name = text(&operation.name) as i64;
            columns.name.push(name - before);
            before = name;
            columns.operation.push(Some(text(&operation.operation)));
            columns.category.push(Some(text(&operation.category)));
            columns.phase.push(operation.phase.as_deref().map(&mut text));
            columns.stream.push(Some(text(&operation.stream)));
            columns.lane.push(operation.lane);
            columns.place.push(Some(text(&operation.place)));
            columns.shape.push(Some(text(&operation.shape)));
            columns.flops.push(operation.flops);
            columns.bytes.push(operation.bytes);
            columns.bus_bytes.push(operation.bus_bytes);
            columns.after_count.push(operation.after.len());
            let distance = |before: &u32| i64::from(operation.id) - i64::from(*before);
            columns.after_distance.extend(operation.after.iter().map(distance));
            columns.time_ns.push(operation.time_ns);
            columns.transfer_ns.push(operation.transfer_ns);
            columns.alone_ns.push(operation.alone_ns);
            columns.slack_ns.push(operation.slack_ns);
            columns.ideal_ns.push(operation.ideal_ns);
            columns.bound.push(operation.bound.as_deref().map(&mut text));
            columns.refused.push(operation.refused.as_deref().map(&mut text));
        }
        columns
    }
}

impl SpanColumns {
    fn of(trace: &[SpanRecord]) -> SpanColumns {
        let mut sorted: Vec<&SpanRecord> = trace.iter().collect();
        sorted.sort_by_key(|span| (span.start_ns, span.id));
        let mut columns = SpanColumns::default();
        let (mut id, mut start) = (0, Nanos(0));
        for span in sorted {
            columns.id.push(i64::from(span.id) - id);
            columns.start_ns.push(span.start_ns - start);
            columns.time_ns.push(span.end_ns - span.start_ns);
            (id, start) = (i64::from(span.id), span.start_ns);
        }
        columns
    }
}
