//! Extracts the metrics of a record that a range applies to.

use std::collections::HashSet;

use indexmap::IndexMap;

use crate::base::Nanos;
use crate::base::units::Dimension;
use crate::config::expected::{ExpectedFigure, NormalRange};
use crate::measure::record::{ExpectedRecord, OperationRecord, RankRecord, RunRecord, Variant};
use crate::measure::statistics::summary::Summary;

/// Share of an operation's time that a neighbour may overlap. Stamps of two streams are not more exact.
const OVERLAP_ALLOWANCE: f64 = 0.02;

/// Minimum operations of an iteration for a host time per operation: its start and end then hardly count.
const MANY: usize = 16;

/// The metrics of one variant to which a normal range applies; their records have no range and no verdict yet.
pub fn seen(record: &RunRecord, variant: &Variant, range: &NormalRange, shipped: bool) -> Vec<ExpectedRecord> {
    let launch = range.launch.as_ref().is_none_or(|launch| *launch == variant.launch);
    if !launch || !range.streams.holds(record.program.lanes.len() as f64) {
        return Vec::new();
    }
    match range.figure {
        ExpectedFigure::FlopRate | ExpectedFigure::Bandwidth | ExpectedFigure::BusBandwidth => {
            rates(record, variant, range)
        }
        ExpectedFigure::Issue => issue(record, variant).into_iter().collect(),
        ExpectedFigure::GraphLaunch => graph_launch(record, variant).into_iter().collect(),
        ExpectedFigure::Metric => metric(record, variant, range, shipped).into_iter().collect(),
    }
}

/// Rates of operations, grouped by name and shape, in the order of the text. With several ranks, of the slowest one.
fn rates(record: &RunRecord, variant: &Variant, range: &NormalRange) -> Vec<ExpectedRecord> {
    let mut slowest: IndexMap<String, ExpectedRecord> = IndexMap::new();
    for rank in &variant.ranks {
        let beside = beside(rank);
        let mut samples: IndexMap<String, Vec<f64>> = IndexMap::new();
        for operation in rank.operations.iter().filter(|operation| matches(range, operation)) {
            let time = time_alone(variant, rank, operation, &beside);
            let amount = amount(range.figure, operation);
            if let (Some(time), Some(amount)) = (time.filter(|time| time.0 > 0), amount) {
                let of = format!("{} {}", operation.operation, operation.shape);
                samples.entry(of).or_default().push(amount / time.seconds());
            }
        }
        for (of, samples) in samples {
            let Some(summary) = Summary::of(&samples) else { continue };
            let value = summary.p50;
            if slowest.get(&of).is_none_or(|known| value < known.value) {
                let dimension = range.figure.dimension().unwrap_or(Dimension::NONE);
                let text = dimension.display(value / dimension.to_si());
                let rank = (record.settings.ranks > 1).then_some(rank.rank);
                let found = ExpectedRecord { of, rank, count: summary.n, value, text, ..Default::default() };
                slowest.insert(found.of.clone(), found);
            }
        }
    }
    slowest.into_values().collect()
}

/// True if the range applies to an operation.
fn matches(range: &NormalRange, operation: &OperationRecord) -> bool {
    let is = |wanted: &Option<String>, found: Option<&str>| wanted.as_deref().is_none_or(|word| found == Some(word));
    let bytes = match range.figure {
        ExpectedFigure::BusBandwidth => operation.bus_bytes.unwrap_or(0.0),
        _ => operation.bytes as f64,
    };
    is(&range.operation, Some(&operation.operation))
        && is(&range.arithmetic, operation.arithmetic.as_deref())
        && range.direction.is_none_or(|way| operation.direction.as_deref() == Some(way.name()))
        && range.pageable.is_none_or(|pageable| operation.pageable == pageable)
        && range.ranks.is_none_or(|ranks| operation.ranks == Some(ranks))
        && range.bytes.holds(bytes)
        && range.flops.holds(operation.flops)
        && range.intensity.holds(operation.flops / operation.bytes.max(1) as f64)
}

/// The amount of work that a rate counts; `None` if it is 0 or the figure is no rate.
fn amount(figure: ExpectedFigure, operation: &OperationRecord) -> Option<f64> {
    let amount = match figure {
        ExpectedFigure::FlopRate => Some(operation.flops),
        ExpectedFigure::Bandwidth => Some(operation.bytes as f64),
        ExpectedFigure::BusBandwidth => operation.bus_bytes,
        _ => None,
    };
    amount.filter(|amount| *amount > 0.0)
}

/// Duration of an operation without concurrent ones, in this run or in that on one stream; `None` if it is unknown. A
/// collective counts from the arrival of its last rank.
fn time_alone(
    variant: &Variant,
    rank: &RankRecord,
    operation: &OperationRecord,
    beside: &HashSet<u32>,
) -> Option<Nanos> {
    if beside.contains(&operation.id) {
        return operation.alone_ns;
    }
    let collectives = variant.skew.iter().flat_map(|skew| &skew.collectives);
    let mut of_operation = collectives.filter(|collective| {
        let index = collective.ranks.iter().position(|number| *number == rank.rank);
        index.is_some_and(|index| collective.ids.get(index) == Some(&operation.id))
    });
    of_operation.next().map(|collective| collective.transfer_ns).or(operation.alone_ns).or(operation.work_ns())
}

/// Operations that overlapped others in the traced iteration, or do not appear in it.
fn beside(rank: &RankRecord) -> HashSet<u32> {
    let mut spans: Vec<_> = rank.trace.iter().filter(|span| span.end_ns > span.start_ns).collect();
    spans.sort_by_key(|span| (span.start_ns, span.id));
    let mut beside: HashSet<u32> = rank.operations.iter().map(|operation| operation.id).collect();
    for span in &spans {
        beside.remove(&span.id);
    }
    // Among operations that began earlier, the one that ends last.
    let mut last: Option<(Nanos, u32, Nanos)> = None;
    for span in spans {
        let duration = span.end_ns - span.start_ns;
        if let Some((end, id, length)) = last {
            let common = (end.0.min(span.end_ns.0) - span.start_ns.0) as f64;
            if common > OVERLAP_ALLOWANCE * duration.0 as f64 {
                beside.insert(span.id);
            }
            if common > OVERLAP_ALLOWANCE * length.0 as f64 {
                beside.insert(id);
            }
        }
        if last.is_none_or(|(end, ..)| span.end_ns > end) {
            last = Some((span.end_ns, span.id, duration));
        }
    }
    beside
}

/// Host time per operation, if all are kernels and few wait for another stream; otherwise `None`.
fn issue(record: &RunRecord, variant: &Variant) -> Option<ExpectedRecord> {
    let program = &record.program;
    let fits = program.operations >= MANY
        && program.waits * 10 <= program.operations
        && all_of(record, variant, &["elementwise", "row-wise", "synthetic"]);
    let time = variant.issue.p50_ns.filter(|_| fits && variant.launch == "stream")?;
    let value = time.seconds() / program.operations as f64;
    let of = format!("{} operations issued one by one", program.operations);
    Some(ExpectedRecord {
        of,
        count: program.operations,
        value,
        text: Dimension::TIME.display(value * 1e9),
        ..Default::default()
    })
}

/// Launch time of a graph of kernels. `None` for graphs with copies or collectives, for which there are no ranges.
fn graph_launch(record: &RunRecord, variant: &Variant) -> Option<ExpectedRecord> {
    let fits = all_of(record, variant, &["elementwise", "row-wise", "synthetic", "movement", "matrix"]);
    let time = variant.issue.p50_ns.filter(|_| fits && variant.launch == "graph")?;
    let of = "the graph of an iteration".to_owned();
    Some(ExpectedRecord { of, count: 1, value: time.seconds(), text: time.to_string(), ..Default::default() })
}

/// True if all operations of the iteration are known and of these categories.
fn all_of(record: &RunRecord, variant: &Variant, categories: &[&str]) -> bool {
    let Some(rank) = variant.ranks.first() else { return false };
    record.program.cycle == 1
        && rank.operations.len() == record.program.operations
        && rank.operations.iter().all(|operation| categories.contains(&operation.category.as_str()))
}

/// The metric of the workload that the range names. A shipped range applies to the shipped workload only, since other
/// files may use its name. `None` if the range is not for this workload, or if the record lacks the metric.
fn metric(record: &RunRecord, variant: &Variant, range: &NormalRange, shipped: bool) -> Option<ExpectedRecord> {
    let workload = &record.workload;
    let name = workload.name.rsplit('/').next().unwrap_or(&workload.name);
    let stem = name.strip_suffix(".aorta").unwrap_or(name);
    let fits = range.workload.as_deref() == Some(stem)
        && (workload.origin == "library" || !shipped)
        && range.ranks.is_none_or(|ranks| record.settings.ranks == ranks)
        && range.params.iter().all(|(name, value)| workload.params.get(name) == Some(value));
    let wanted = range.metric.as_ref().filter(|_| fits)?;
    let found = variant.metrics.iter().find(|metric| metric.name == *wanted && range.normal.fits(&metric.unit))?;
    let of = format!("{stem}: {}", found.name);
    Some(ExpectedRecord { of, count: 1, value: found.value?, text: found.text.clone(), ..Default::default() })
}
