//! An iteration of each variant as a Chrome trace in Kineto's format, for Perfetto, HTA and TraceLens.
//!
//! Each variant and rank is a process, each lane a thread, and each dependency between lanes an arrow. Ranks of a
//! variant share a time axis if the offsets of their clocks are known, and arrows connect their matching operations.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use crate::base::{Nanos, json};
use crate::measure::record::{LaunchRecord, OperationRecord, RankRecord, RunRecord, SpanRecord, Variant};
use crate::report::variant::marks;

use super::common_clock::{origins, shifts};
use super::rates::rates;

/// The category of arrows from an operation to one that waits for it.
const DEPENDENCY: &str = "dependency";

/// The category of arrows between matching operations of several ranks, and of the moments in which they begin and end.
pub(super) const BETWEEN_RANKS: &str = "between ranks";

/// The events of all variants and ranks.
pub(super) fn events(record: &RunRecord) -> Vec<Value> {
    let mut events = Vec::new();
    let mut flow = 0u64;
    // To Perfetto, process 0 is the idle process.
    let mut pid = 1;
    for variant in &record.variants {
        let (first, shifts) = (pid, shifts(&variant.ranks));
        for (rank, shift) in variant.ranks.iter().zip(&shifts) {
            process(record, variant, rank, pid, &mut events);
            spans(record, rank, *shift, pid, &mut events, &mut flow);
            critical_path(record, rank, *shift, pid, &mut events);
            counter_events(record, rank, *shift, pid, &mut events);
            pid += 1;
        }
        arrows_between_ranks(variant, &shifts, first, &mut events, &mut flow);
    }
    events
}

/// The traces of a record as JSON.
pub fn chrome_trace(record: &RunRecord) -> String {
    let mut trace = head(record);
    trace["traceEvents"] = json!(events(record));
    json::line(&trace)
}

/// Returns a trace without events.
pub(super) fn head(record: &RunRecord) -> Value {
    let mut trace = json!({
        "schemaVersion": 1,
        "deviceProperties": [{
            "id": record.device.index.unwrap_or(0),
            "name": record.device.name,
            "totalGlobalMem": record.device.memory_bytes.unwrap_or(0),
            "numSms": record.device.units.unwrap_or(0),
        }],
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 0,
        "traceName": format!("{}{}", record.workload.name, marked(record)),
        "aorta": {
            "version": record.aorta,
            "simulated": record.simulated,
            "workload": record.workload.name,
            "sha256": record.workload.sha256,
        },
    });
    if let Some(world) = record.emulated {
        trace["aorta"]["emulated"] = json!(world);
    }
    trace
}

/// A suffix for the trace's name, such as ` (simulated)`.
fn marked(record: &RunRecord) -> String {
    match marks(record).strip_prefix(", ") {
        Some(marks) => format!(" ({marks})"),
        None => String::new(),
    }
}

/// Adds the events that name a rank's process and its rows.
pub(super) fn process(record: &RunRecord, variant: &Variant, rank: &RankRecord, pid: usize, events: &mut Vec<Value>) {
    let several = variant.ranks.len() > 1;
    let number = if several { format!(" · rank {}", rank.rank) } else { String::new() };
    let name = format!("{} · {}{number}{}", record.workload.name, variant.launch, marks(record));
    let clock = match rank.origins.last().filter(|_| origins(&variant.ranks).is_some()) {
        Some(origin) if origin.error.0 > 0 => format!(", clock ± {}", origin.error),
        None if several => ", a clock of its own".to_owned(),
        _ => String::new(),
    };
    let mut metadata = |what: &str, tid: Option<usize>, args: Value| {
        let mut event = json!({ "ph": "M", "name": what, "pid": pid, "ts": 0, "args": args });
        if let Some(tid) = tid {
            event["tid"] = json!(tid);
        }
        events.push(event);
    };
    metadata("process_name", None, json!({ "name": name }));
    metadata("process_labels", None, json!({ "labels": format!("{}{clock}", record.device.name) }));
    metadata("process_sort_index", None, json!({ "sort_index": pid }));
    for (lane, info) in record.program.lanes.iter().enumerate() {
        let shared = if info.streams.len() > 1 { format!(" (+{})", info.streams.len() - 1) } else { String::new() };
        let kind = if info.threads.is_some() { "host stream" } else { "stream" };
        let tid = Some(thread(pid, lane));
        metadata("thread_name", tid, json!({ "name": format!("{kind} {lane}: {}{shared}", info.name) }));
        metadata("thread_sort_index", tid, json!({ "sort_index": lane }));
    }
}

/// The number of a process's thread for a lane. Perfetto and other viewers take two threads with one number for the same
/// thread, even in different processes. Process 0, of a trace with a single process, has the lanes' own numbers.
fn thread(pid: usize, lane: usize) -> usize {
    (pid << 16) + lane
}

/// Converts nanoseconds to microseconds with three decimals.
pub(super) fn micros(time: Nanos) -> Value {
    json!(time.0 as f64 / 1e3)
}

/// Adds an event for each operation of a rank, and an arrow for each dependency between streams. Adds `shift` to all
/// times; `flow` counts the arrows.
pub(super) fn spans(
    record: &RunRecord,
    rank: &RankRecord,
    shift: Nanos,
    pid: usize,
    events: &mut Vec<Value>,
    flow: &mut u64,
) {
    let RankRecord { operations, trace, .. } = rank;
    // The span of each operation; `None` for one that launches nothing.
    let mut ran: Vec<Option<SpanRecord>> = vec![None; operations.len()];
    for span in trace {
        ran[span.id as usize] =
            Some(SpanRecord { id: span.id, start_ns: span.start_ns + shift, end_ns: span.end_ns + shift });
    }
    for span in ran.iter().flatten() {
        let operation = &operations[span.id as usize];
        events.push(json!({
            "ph": "X",
            "cat": category(operation),
            "name": operation.name,
            "pid": pid,
            "tid": thread(pid, operation.lane as usize),
            "ts": micros(span.start_ns),
            "dur": micros(span.end_ns - span.start_ns),
            "args": args(record, rank, operation, span),
        }));
    }
    for operation in operations {
        let Some(to) = ran[operation.id as usize] else { continue };
        for &before in &operation.after {
            let source = &operations[before as usize];
            let Some(from) = ran[before as usize].filter(|_| source.lane != operation.lane) else { continue };
            // Viewers attach an arrow to the slice that contains its end point.
            let from = ArrowEnd { pid, lane: source.lane, time: Nanos((from.end_ns.0 - 1).max(from.start_ns.0)) };
            arrow(DEPENDENCY, from, ArrowEnd { pid, lane: operation.lane, time: to.start_ns }, events, flow);
        }
    }
}

/// The critical path as a track of its own.
fn critical_path(record: &RunRecord, rank: &RankRecord, shift: Nanos, pid: usize, events: &mut Vec<Value>) {
    let path: HashSet<u32> =
        rank.analysis.iter().flat_map(|analysis| &analysis.critical_path.operations).copied().collect();
    // The track follows those of the lanes, including lanes without an operation.
    let lane = record.program.lanes.len();
    let tid = thread(pid, lane);
    let mut ran: Vec<&SpanRecord> = rank.trace.iter().filter(|span| path.contains(&span.id)).collect();
    ran.sort_by_key(|span| (span.start_ns, span.id));
    if ran.is_empty() {
        return;
    }
    for (name, args) in
        [("thread_name", json!({ "name": "critical path" })), ("thread_sort_index", json!({ "sort_index": lane }))]
    {
        events.push(json!({ "ph": "M", "name": name, "pid": pid, "ts": 0, "args": args, "tid": tid }));
    }
    // On overlapping streams one of them may begin before the last has ended.
    let mut free = Nanos(i64::MIN);
    for span in ran {
        let begin = span.start_ns.max(free);
        if begin < span.end_ns {
            free = span.end_ns;
            events.push(json!({
                "ph": "X",
                "cat": "critical_path",
                "name": rank.operations[span.id as usize].name,
                "pid": pid,
                "tid": tid,
                "ts": micros(begin + shift),
                "dur": micros(span.end_ns - begin),
                "args": { "operation": rank.operations[span.id as usize].operation },
            }));
        }
    }
}

/// The rates of the iteration, as counters of the format.
fn counter_events(record: &RunRecord, rank: &RankRecord, shift: Nanos, pid: usize, events: &mut Vec<Value>) {
    for rate in rates(rank, shift) {
        let name = format!("{}{}", rate.title(), marks(record));
        for (at, value) in rate.points {
            events.push(json!({ "ph": "C", "name": name, "pid": pid, "ts": micros(at), "args": { "value": value } }));
        }
    }
}

/// Arrows between the matching operations of several ranks, from the one that starts last, which the others wait for.
/// `first` is the process of the variant's first rank. There are none without a common clock, because it is unknown
/// which starts last.
fn arrows_between_ranks(variant: &Variant, shifts: &[Nanos], first: usize, events: &mut Vec<Value>, flow: &mut u64) {
    if origins(&variant.ranks).is_none() {
        return;
    }
    // Start and end of each operation.
    let ran: HashMap<(u32, u32), (ArrowEnd, Nanos)> = (first..)
        .zip(variant.ranks.iter().zip(shifts))
        .flat_map(|(pid, (rank, shift))| {
            rank.trace.iter().map(move |span| {
                let lane = rank.operations[span.id as usize].lane;
                ((rank.rank, span.id), (ArrowEnd { pid, lane, time: span.start_ns + *shift }, span.end_ns + *shift))
            })
        })
        .collect();
    for collective in variant.skew.iter().flat_map(|skew| &skew.collectives) {
        let members = collective.ranks.iter().zip(&collective.ids).filter_map(|(rank, id)| ran.get(&(*rank, *id)));
        let Some((last, _)) = members.clone().max_by_key(|(begin, _)| begin.time) else { continue };
        // Viewers draw no arrows backwards in time, so each ends at the arrival of the last operation.
        let others = members.filter(|(begin, end)| begin.pid != last.pid && *end > last.time);
        let others: Vec<ArrowEnd> = others.map(|(other, _)| ArrowEnd { time: last.time, ..*other }).collect();
        if !others.is_empty() {
            events.push(moment(*last));
        }
        for other in others {
            events.push(moment(other));
            arrow(BETWEEN_RANKS, *last, other, events, flow);
        }
    }
}

/// A slice of length 0 for the ends of arrows within an operation. Perfetto would draw an arrow between two operations from
/// the one that begins first, which here is the one that waits.
fn moment(end: ArrowEnd) -> Value {
    json!({
        "ph": "X",
        "cat": BETWEEN_RANKS,
        "name": BETWEEN_RANKS,
        "pid": end.pid,
        "tid": thread(end.pid, end.lane as usize),
        "ts": micros(end.time),
        "dur": 0,
    })
}

/// An end of an arrow.
#[derive(Clone, Copy)]
struct ArrowEnd {
    pid: usize,
    lane: u32,
    time: Nanos,
}

fn arrow(category: &str, from: ArrowEnd, to: ArrowEnd, events: &mut Vec<Value>, flow: &mut u64) {
    for (phase, end) in [("s", from), ("f", to)] {
        let mut event = json!({
            "ph": phase,
            "id": *flow,
            "cat": category,
            "name": category,
            "pid": end.pid,
            "tid": thread(end.pid, end.lane as usize),
            "ts": micros(end.time),
        });
        if phase == "f" {
            event["bp"] = json!("e");
        }
        events.push(event);
    }
    *flow += 1;
}

fn category(operation: &OperationRecord) -> &'static str {
    match operation.operation.as_str() {
        "copy" => "gpu_memcpy",
        "memset" => "gpu_memset",
        _ => "kernel",
    }
}

fn args(record: &RunRecord, rank: &RankRecord, operation: &OperationRecord, span: &SpanRecord) -> Value {
    let mut args = json!({
        "device": record.device.index.unwrap_or(0),
        "stream": operation.lane,
        "correlation": span.id,
        "rank": rank.rank,
        "operation": operation.operation,
        "place": operation.place,
        "shape": operation.shape,
        "declared stream": operation.stream,
    });
    let seconds = (span.end_ns - span.start_ns).seconds();
    if operation.flops > 0.0 {
        args["flops"] = json!(operation.flops);
    }
    if operation.bytes > 0 {
        args["bytes"] = json!(operation.bytes);
        if seconds > 0.0 {
            args["memory bandwidth (GB/s)"] = json!(operation.bytes as f64 / seconds / 1e9);
        }
    }
    if let Some(launch) = operation.longest_launch() {
        launch_args(launch, operation.launches.len(), &mut args);
    }
    if let Some(phase) = &operation.phase {
        args["phase"] = json!(phase);
    }
    if record.simulated {
        args["simulated"] = json!(true);
    }
    if let Some(world) = record.emulated {
        args["emulated"] = json!(world);
    }
    args
}

/// Adds the vendor's record of the longest of an operation's `count` launches. Arguments have Kineto's names where it
/// has one.
fn launch_args(launch: &LaunchRecord, count: usize, args: &mut Value) {
    let optional = [("hardware queue", launch.queue), ("graph node id", launch.node)];
    for (name, value) in optional.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        args[name] = json!(value);
    }
    if count > 1 {
        args["launches"] = json!(count);
    }
    let Some(kernel) = &launch.kernel else { return };
    args["grid"] = json!(kernel.grid);
    args["block"] = json!(kernel.block);
    args["shared memory"] = json!(kernel.shared_bytes);
    if let Some(registers) = kernel.registers {
        args["registers per thread"] = json!(registers);
    }
    if let Some(occupancy) = kernel.occupancy {
        args["theoretical occupancy %"] = json!(100.0 * occupancy);
    }
    if let Some(name) = &kernel.name {
        args["kernel"] = json!(name);
    }
}
