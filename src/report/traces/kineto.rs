//! Traces of single ranks as PyTorch's profiler writes them, for tools that analyse such files.
//!
//! HolisticTraceAnalysis reads a folder with one file for each rank, and distinguishes kinds of operations by their names:
//! communication begins with `nccl` and contains `Kernel`, and copies begin with `Memcpy`.

use std::path::PathBuf;

use serde_json::json;

use crate::base::Nanos;
use crate::measure::record::{OperationRecord, RankRecord, RunRecord, Variant};

use super::chrome_trace::{head, process, spans};
use super::common_clock::shifts;

/// The trace of each rank that has one, with its path in the folder: `stream/rank0.json`.
pub fn kineto(record: &RunRecord) -> Vec<(PathBuf, String)> {
    let of_variant = |variant: &Variant| {
        let ranks = variant.ranks.iter().zip(shifts(&variant.ranks)).filter(|(rank, _)| !rank.trace.is_empty());
        let file = |rank: &RankRecord| PathBuf::from(&variant.launch).join(format!("rank{}.json", rank.rank));
        ranks.map(|(rank, shift)| (file(rank), trace(record, variant, rank, shift))).collect::<Vec<_>>()
    };
    record.variants.iter().flat_map(of_variant).collect()
}

fn trace(record: &RunRecord, variant: &Variant, rank: &RankRecord, shift: Nanos) -> String {
    let mut events = Vec::new();
    process(record, variant, rank, 0, &mut events);
    spans(record, rank, shift, 0, &mut events, &mut 0);
    for event in events.iter_mut().filter(|event| event["ph"] == "X") {
        let operation = event["args"]["correlation"].as_u64().and_then(|id| rank.operations.get(id as usize));
        event["name"] = json!(operation.map(name));
    }
    let mut trace = head(record);
    trace["traceEvents"] = json!(events);
    let text = serde_json::to_string(&trace).expect("a trace holds nothing that JSON cannot");
    // HolisticTraceAnalysis searches the first lines for the rank, and expects a space after the colon.
    let place = format!(
        "\"distributedInfo\": {{\"backend\": \"nccl\", \"rank\": {}, \"world_size\": {}}}",
        rank.rank, record.settings.ranks
    );
    format!("{{{place},\n{}\n", &text[1..])
}

/// The name of an operation, with the words by which its kind is recognized.
fn name(operation: &OperationRecord) -> String {
    let OperationRecord { name, operation: kind, direction, category, .. } = operation;
    match (category.as_str(), kind.as_str()) {
        ("collective", _) => format!("ncclDevKernel_{kind}: {name}"),
        (_, "copy") => {
            let way = match direction.as_deref() {
                Some("h2d") => "HtoD",
                Some("d2h") => "DtoH",
                Some("peer") => "PtoP",
                _ => "DtoD",
            };
            format!("Memcpy {way}: {name}")
        }
        (_, "memset") => format!("Memset: {name}"),
        _ => name.clone(),
    }
}
