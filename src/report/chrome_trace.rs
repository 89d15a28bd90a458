//! One iteration of each variant as a Chrome trace in Kineto's format, for Perfetto, HTA and TraceLens.
//!
//! Each variant and rank is a process, each lane a thread, and each dependency between lanes an arrow. Ranks of a
//! variant share a time axis if the offsets of their clocks are known.

use serde_json::{Value, json};

use crate::base::Nanos;
use crate::measure::record::{MomentRecord, OperationRecord, RankRecord, RunRecord, SpanRecord, Variant};

use super::variant::marks;

/// The traces of a record as JSON.
pub fn chrome_trace(record: &RunRecord) -> String {
    let mut events = Vec::new();
    let mut flow = 0u64;
    let mut pid = 0;
    for variant in &record.variants {
        for (rank, shift) in variant.ranks.iter().zip(shifts(&variant.ranks)) {
            process(record, variant, rank, pid, &mut events);
            spans(record, rank, shift, pid, &mut events, &mut flow);
            pid += 1;
        }
    }
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
        "traceEvents": events,
    });
    if let Some(world) = record.emulated {
        trace["aorta"]["emulated"] = json!(world);
    }
    let mut text = serde_json::to_string(&trace).expect("a trace holds nothing that JSON cannot");
    text.push('\n');
    text
}

/// A suffix for the trace's name, such as ` (simulated)`.
fn marked(record: &RunRecord) -> String {
    match marks(record).strip_prefix(", ") {
        Some(marks) => format!(" ({marks})"),
        None => String::new(),
    }
}

/// When each rank's iteration began on a common clock; `None` unless known for all ranks.
fn origins(ranks: &[RankRecord]) -> Option<Vec<&MomentRecord>> {
    let origins: Option<Vec<&MomentRecord>> = ranks.iter().map(|rank| rank.origins.last()).collect();
    origins.filter(|all| all.iter().all(|origin| origin.clock == all[0].clock))
}

/// Offsets that convert each rank's times, which count from the begin of its own iteration, to a common clock that
/// starts with the earliest span.
fn shifts(ranks: &[RankRecord]) -> Vec<Nanos> {
    let origins = origins(ranks);
    let zero = origins.iter().flatten().map(|origin| origin.at_ns).min().unwrap_or(Nanos(0));
    let begins = match origins {
        Some(origins) => origins.iter().map(|origin| origin.at_ns - zero).collect(),
        None => vec![Nanos(0); ranks.len()],
    };
    // With overlapping iterations, a span may begin before its own iteration.
    let first = |(rank, begin): (&RankRecord, &Nanos)| rank.trace.iter().map(|span| span.start_ns + *begin).min();
    let earliest = ranks.iter().zip(&begins).filter_map(first).min().unwrap_or(Nanos(0)).min(Nanos(0));
    begins.into_iter().map(|begin| begin - earliest).collect()
}

fn process(record: &RunRecord, variant: &Variant, rank: &RankRecord, pid: usize, events: &mut Vec<Value>) {
    let several = variant.ranks.len() > 1;
    let number = if several { format!(" · rank {}", rank.rank) } else { String::new() };
    let name = format!("{} · {}{number}{}", record.workload.name, variant.launch, marks(record));
    let clock = match rank.origins.last().filter(|_| origins(&variant.ranks).is_some()) {
        Some(origin) if origin.error_ns.0 > 0 => format!(", clock ± {}", origin.error_ns),
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
        metadata("thread_name", Some(lane), json!({ "name": format!("{kind} {lane}: {}{shared}", info.name) }));
        metadata("thread_sort_index", Some(lane), json!({ "sort_index": lane }));
    }
}

/// Converts nanoseconds to microseconds with three decimals.
fn micros(time: Nanos) -> Value {
    json!(time.0 as f64 / 1e3)
}

fn spans(record: &RunRecord, rank: &RankRecord, shift: Nanos, pid: usize, events: &mut Vec<Value>, flow: &mut u64) {
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
            "tid": operation.lane,
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
            let mut end = |phase: &str, lane: u32, time: Nanos| {
                let mut event = json!({
                    "ph": phase,
                    "id": *flow,
                    "cat": "dependency",
                    "name": "dependency",
                    "pid": pid,
                    "tid": lane,
                    "ts": micros(time),
                });
                if phase == "f" {
                    event["bp"] = json!("e");
                }
                events.push(event);
            };
            // Viewers attach an arrow to the slice that contains its end point.
            end("s", source.lane, Nanos((from.end_ns.0 - 1).max(from.start_ns.0)));
            end("f", operation.lane, to.start_ns);
            *flow += 1;
        }
    }
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
