//! A record for people, as text.

use std::fmt::Write as _;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

use crate::base::{Bytes, Flops, Nanos, counted};
use crate::measure::record::{OperationRecord, PeakRecord, RankRecord, RunRecord, Times, Variant};
use crate::measure::spans;

use super::{analysis, operations, ranks, slots, verification};

/// Rows of streams at most.
const LANES: usize = 20;

/// The record as tables that somebody understands who sees one for the first time. What is of a single rank is of the one
/// with that number, or of the first.
pub fn table(record: &RunRecord, rank: Option<u32>) -> String {
    let mut out = String::new();
    header(record, &mut out);
    times(record, &mut out);
    slots::section(record, &mut out);
    ranks::section(record, rank, &mut out);
    analysis::section(record, rank, &mut out);
    if let Some(variant) = record.variants.first()
        && let Some(rank) = shown(variant, rank)
    {
        operations::section(record, variant, rank, &mut out);
        lanes(record, variant, rank, &mut out);
    }
    super::expected::section(record, &mut out);
    verification::write(record, &mut out);
    expectations(record, &mut out);
    for warning in &record.warnings {
        let _ = writeln!(out, "warning: {warning}");
    }
    for variant in &record.variants {
        for note in &variant.notes {
            let _ = writeln!(out, "note: {}: {note}", variant.launch);
        }
    }
    out
}

/// The rank that is shown of a variant: the one with that number, or the first.
pub(super) fn shown(variant: &Variant, rank: Option<u32>) -> Option<&RankRecord> {
    variant.ranks.iter().find(|of| rank.is_none_or(|rank| of.rank == rank))
}

fn header(record: &RunRecord, out: &mut String) {
    let workload = &record.workload;
    let summary = if workload.summary.is_empty() { String::new() } else { format!(": {}", workload.summary) };
    let _ = writeln!(out, "{}{summary}", workload.name);
    let program = &record.program;
    let place = match record.device.index {
        Some(index) => format!("{} (device {index})", record.device.name),
        None => record.device.name.clone(),
    };
    let rank = record.variants.first().and_then(|variant| variant.ranks.first()).map_or(0, |rank| rank.rank);
    let place = match (record.settings.ranks, record.emulated) {
        (_, Some(world)) => format!("rank {rank} of {world}, emulated: {place}"),
        (1, _) => place,
        (ranks, _) => format!("each of {ranks} ranks: {place}"),
    };
    let streams = counted(program.lanes.len(), "stream");
    let (flops, bytes, memory) = (Flops(program.flops), Bytes(program.bytes), program.memory.device);
    let _ = if program.cycle == 1 {
        let operations = counted(program.operations, "operation");
        writeln!(out, "{operations} on {streams} of {place}: {flops}, {bytes} moved, {memory} of device memory")
    } else {
        let operations = (100.0 * program.cycle_operations as f64 / program.cycle as f64).round() / 100.0;
        let noun = if operations == 1.0 { "operation" } else { "operations" };
        writeln!(
            out,
            "An iteration has {operations} {noun}, {flops} and {bytes} moved, on average over the {} slots of a round; \
             on {streams} of {place}, {memory} of device memory",
            program.cycle
        )
    };
    let shown: Vec<String> = workload.params.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if !shown.is_empty() {
        let preset = workload.preset.as_ref().map(|preset| format!("preset {preset}: ")).unwrap_or_default();
        let _ = writeln!(out, "{preset}{}", shown.join(" "));
    }
    out.push('\n');
}

pub(super) fn new_table(header: &[String]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(header);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if index > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

pub(super) fn push(out: &mut String, table: &Table) {
    for line in table.to_string().lines() {
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out.push('\n');
}

/// What has to stand beside every figure: `, simulated`, `, emulated`, both or nothing.
pub(super) fn marks(record: &RunRecord) -> &'static str {
    match (record.simulated, record.emulated.is_some()) {
        (false, false) => "",
        (true, false) => ", simulated",
        (false, true) => ", emulated",
        (true, true) => ", simulated, emulated",
    }
}

/// `as streams`, or `as a graph, simulated`.
pub(super) fn variant_name(record: &RunRecord, variant: &Variant) -> String {
    let mark = marks(record);
    let launch = if variant.launch == "graph" { "as a graph" } else { "as streams" };
    format!("{launch}{mark}")
}

fn text(time: Option<Nanos>) -> String {
    time.map_or_else(|| "–".to_owned(), |time| time.to_string())
}

/// The columns of all variants, side by side.
fn times(record: &RunRecord, out: &mut String) {
    let names: Vec<String> = record.variants.iter().map(|variant| variant_name(record, variant)).collect();
    let mut table = new_table(&[vec![iteration_title(record)], names].concat());
    let mut row = |name: &str, value: &dyn Fn(&Variant) -> String| {
        let values: Vec<String> = record.variants.iter().map(value).collect();
        if values.iter().any(|value| value != "–") {
            table.add_row([vec![name.to_owned()], values].concat());
        }
    };
    let spread = |times: &Times| match (times.mean_ns, times.std_ns) {
        (Some(mean), Some(std)) => format!("{mean} ± {std}"),
        _ => "–".to_owned(),
    };
    row("median", &|variant| text(variant.time.p50_ns));
    row("95 % interval", &|variant| match (variant.time.p50_low_ns, variant.time.p50_high_ns) {
        // Of equal samples, as the simulator's are, it says nothing more than the median.
        (Some(low), Some(high)) if low.to_string() != high.to_string() => format!("{low} to {high}"),
        _ => "–".to_owned(),
    });
    row("mean ± std", &|variant| spread(&variant.time));
    row("min", &|variant| text(variant.time.min_ns));
    row("p95", &|variant| text(variant.time.p95_ns));
    row("p99", &|variant| text(variant.time.p99_ns));
    row("max", &|variant| text(variant.time.max_ns));
    row("host launch time", &|variant| text(variant.issue.p50_ns));
    row("ungated (host-paced)", &|variant| text(variant.ungated.as_ref().and_then(|times| times.p50_ns)));
    row("on one stream", &|variant| text(variant.serial.as_ref().and_then(|serial| serial.p50_ns)));
    let of_peak = |variant: &Variant, share: fn(&PeakRecord) -> f64| {
        let peak = variant.ranks.iter().find_map(|rank| rank.analysis.as_ref()?.peak.as_ref());
        peak.map(share).filter(|share| *share > 0.0).map_or_else(|| "–".to_owned(), percent)
    };
    row("clock", &clocks);
    row("of peak arithmetic", &|variant| of_peak(variant, |peak| peak.flops));
    row("of peak bandwidth", &|variant| of_peak(variant, |peak| peak.bytes));
    let metrics = record.variants.first().map_or(&[][..], |variant| &variant.metrics);
    for (index, metric) in metrics.iter().enumerate() {
        row(&metric.name, &|variant| {
            variant.metrics.get(index).map_or_else(|| "–".to_owned(), |metric| metric.text.clone())
        });
    }
    push(out, &table);
    for metric in metrics {
        if let Some(note) = &metric.note {
            let _ = writeln!(out, "{}: no value, since {note}\n", metric.name);
        }
    }
}

/// The lowest and the highest clock that was read behind a block of measured iterations.
fn clocks(variant: &Variant) -> String {
    let read = || variant.blocks.iter().flat_map(|block| &block.health).filter_map(|health| health.clock_mhz);
    match (read().min(), read().max()) {
        (Some(low), Some(high)) if low < high => format!("{low} to {high} MHz"),
        (Some(low), _) => format!("{low} MHz"),
        _ => "–".to_owned(),
    }
}

/// A share with two digits that say something.
pub(super) fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    let digits = if percent >= 10.0 {
        0
    } else if percent >= 1.0 {
        1
    } else {
        2
    };
    if percent < 0.01 { "< 0.01 %".to_owned() } else { format!("{percent:.digits$} %") }
}

fn iteration_title(record: &RunRecord) -> String {
    let n = record.variants.first().map_or(0, |variant| variant.time.n);
    let iterations = if n == 1 { "1 iteration".to_owned() } else { format!("{n} iterations") };
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

fn lanes(record: &RunRecord, variant: &Variant, rank: &RankRecord, out: &mut String) {
    let observed = rank.trace.iter().map(|span| span.end_ns).max();
    let Some(end) = observed.filter(|end| end.0 > 0) else { return };
    let by_id = |id: u32| -> &OperationRecord { &rank.operations[id as usize] };
    let of = slots::of(record, rank);
    let _ = writeln!(out, "Streams, in one iteration ({}{of})", variant_name(record, variant));
    let mut table = new_table(&["stream", "operations", "busy", "share of time", "queue"].map(str::to_owned));
    for (index, lane) in record.program.lanes.iter().enumerate().take(LANES) {
        let spans: Vec<_> = rank.trace.iter().filter(|span| by_id(span.id).lane as usize == index).collect();
        let within = |time: Nanos| time.clamp(Nanos(0), end).0 as f64;
        let stretches = spans.iter().map(|span| (within(span.start_ns), within(span.end_ns))).collect();
        let busy = spans::length(&spans::union(stretches)).round() as i64;
        let name = match lane.streams.as_slice() {
            [_, others @ ..] if !others.is_empty() => format!("{} shared with {}", lane.name, others.join(", ")),
            _ => lane.name.clone(),
        };
        let units = lane.units.as_ref().map(|units| format!(" ({units})")).unwrap_or_default();
        table.add_row([
            name + &units,
            spans.len().to_string(),
            Nanos(busy).to_string(),
            format!("{:.0} %", 100.0 * busy as f64 / end.0 as f64),
            lane.queue.to_string(),
        ]);
    }
    push(out, &table);
    let hidden = record.program.lanes.len().saturating_sub(LANES);
    if hidden > 0 {
        let _ = writeln!(out, "{hidden} more streams; --json has all of them\n");
    }
}

fn expectations(record: &RunRecord, out: &mut String) {
    for variant in &record.variants {
        for expectation in &variant.expectations {
            let _ = writeln!(
                out,
                "{} ({}): {} ({})",
                if expectation.verdict == "held" { "passed" } else { &expectation.verdict },
                variant_name(record, variant),
                expectation.text,
                expectation.place
            );
        }
    }
    if record.variants.iter().any(|variant| !variant.expectations.is_empty()) {
        out.push('\n');
    }
}
