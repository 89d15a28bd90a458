//! Reads `results.json` of AORTA's Python harness, written by its `run` or `sweep`.
//!
//! A run is one object; a sweep has a list of them in `results`. Percentiles are recomputed from the iterations' times,
//! if present, by this program's definitions.

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::Value as Json;

use crate::base::json;

use super::point::{self, CaseKey, ComparedMetric, ComparedRun, MetricValues};

/// The fields of the file that are read.
#[derive(Debug, Deserialize)]
struct HarnessFile {
    schema: Option<Json>,
    latency_ms: Option<Json>,
    throughput: Option<Json>,
    results: Option<Json>,
}

#[derive(Debug, Deserialize)]
struct HarnessSweep {
    workload: Option<String>,
    results: Vec<HarnessRun>,
    #[serde(default)]
    environment: Json,
}

#[derive(Debug, Deserialize)]
struct HarnessRun {
    workload_name: Option<String>,
    stream_count: Option<u64>,
    throughput: Option<Throughput>,
    throughput_unit: Option<String>,
    #[serde(default)]
    latency_ms: IndexMap<String, f64>,
    #[serde(default)]
    iteration_times_ms: Vec<f64>,
    memory: Option<IndexMap<String, Json>>,
    #[serde(default)]
    metadata: Json,
}

/// A number, or an object that contains one.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Throughput {
    Plain(f64),
    Object { value: f64, unit: Option<String> },
}

/// Keys of metadata about the machine and the way of measuring.
const METADATA: [&str; 5] = ["config", "device_info", "rocm_info", "driver_info", "system_info"];

/// Configuration values that identify the case, and are part of the key.
const IN_KEY: [&str; 1] = ["config stream count"];

/// True if a text looks like a result file of the Python harness.
pub fn recognizes(text: &str) -> bool {
    serde_json::from_slice::<HarnessFile>(text.as_bytes()).is_ok_and(|head| {
        head.schema.is_none() && (head.results.is_some() || (head.latency_ms.is_some() && head.throughput.is_some()))
    })
}

/// Returns a point for each run of the file.
pub fn points(text: &str) -> Result<Vec<ComparedRun>, String> {
    let damaged = |error: serde_json::Error| format!("it looks like AORTA's results, and is damaged: {error}");
    let head: HarnessFile = json::read(text.as_bytes()).map_err(damaged)?;
    if head.results.is_none() {
        let run: HarnessRun = json::read(text.as_bytes()).map_err(damaged)?;
        return Ok(vec![of_run(&run, None, &Json::Null)]);
    }
    let sweep: HarnessSweep = json::read(text.as_bytes()).map_err(damaged)?;
    Ok(sweep.results.iter().map(|run| of_run(run, sweep.workload.as_deref(), &sweep.environment)).collect())
}

fn of_run(run: &HarnessRun, workload: Option<&str>, machine: &Json) -> ComparedRun {
    let mut key = CaseKey::new();
    let name = run.workload_name.as_deref().or(workload).unwrap_or("unnamed");
    key.insert("workload".to_owned(), name.to_owned());
    key.extend(run.stream_count.map(|streams| ("streams".to_owned(), streams.to_string())));
    let mut environment = IndexMap::new();
    for part in METADATA {
        let name = part.trim_end_matches("_info");
        flat(name, run.metadata.get(part).unwrap_or(&Json::Null), &mut environment);
    }
    flat("machine", machine, &mut environment);
    environment.retain(|name, _| !IN_KEY.contains(&name.as_str()));
    let device = environment.get("device name").cloned().unwrap_or_default();
    let doubts = match environment.get("config sync mode").map(String::as_str) {
        Some("end_only" | "none") => {
            vec!["without a synchronization, its times are those of the host alone".to_owned()]
        }
        _ => Vec::new(),
    };
    // The harness only measures host times.
    let figures = figures(run);
    ComparedRun {
        key,
        device,
        host_paced: figures.clone(),
        figures,
        gated: Some(false),
        environment,
        harness: true,
        doubts,
        ..ComparedRun::default()
    }
}

fn figures(run: &HarnessRun) -> Vec<ComparedMetric> {
    let seconds = |ms: &f64| ms * 1e-3;
    let times: Vec<f64> = run.iteration_times_ms.iter().map(seconds).filter(|time| *time > 0.0).collect();
    let mean = times.iter().sum::<f64>() / times.len().max(1) as f64;
    let mut figures = point::of_times(&times, 1);
    if times.is_empty() {
        let latency = |name: &str| run.latency_ms.get(name).or_else(|| run.latency_ms.get(&format!("{name}_ms")));
        let latencies = ["p50", "p95", "p99"].map(|name| latency(name).map(|ms| (name, seconds(ms))));
        figures.extend(
            latencies
                .into_iter()
                .flatten()
                .map(|(name, time)| ComparedMetric::new(&format!("time.{name}"), "s", MetricValues::Single(time))),
        );
    }
    // The harness defines throughput as a constant amount of work over the sum of all times.
    if let Some((value, unit)) = throughput(run) {
        figures.retain(|figure| figure.name != "throughput");
        let work = value * mean;
        let samples: Vec<f64> = times.iter().map(|time| time / work).collect();
        let value = match samples.is_empty() {
            true => MetricValues::Single(value),
            false => MetricValues::Series { samples: samples.into(), percentile: 50.0, inverse: true },
        };
        figures.push(ComparedMetric::new("throughput", &unit, value));
    }
    let peak = run.memory.as_ref().and_then(|memory| memory.get("peak_allocated_gb")?.as_f64());
    figures.extend(peak.filter(|peak| *peak > 0.0).map(|peak| {
        ComparedMetric::new("memory.device", "B", MetricValues::Exact((peak * (1u64 << 30) as f64).round()))
    }));
    figures
}

fn throughput(run: &HarnessRun) -> Option<(f64, String)> {
    let (value, unit) = match run.throughput.clone()? {
        Throughput::Plain(value) => (value, None),
        Throughput::Object { value, unit } => (value, unit),
    };
    let unit = unit.or_else(|| run.throughput_unit.clone()).unwrap_or_else(|| "iterations/s".to_owned());
    Some((value, unit.replace("/sec", "/s")))
}

/// Flattens a JSON value: collects texts, numbers and booleans by their path.
fn flat(name: &str, value: &Json, into: &mut IndexMap<String, String>) {
    match value {
        Json::Object(fields) => {
            fields.iter().for_each(|(field, value)| flat(&format!("{name} {}", field.replace('_', " ")), value, into));
        }
        Json::String(text) => drop(into.insert(name.to_owned(), text.clone())),
        Json::Number(number) => drop(into.insert(name.to_owned(), number.to_string())),
        Json::Bool(truth) => drop(into.insert(name.to_owned(), truth.to_string())),
        // Lists describe devices and measurements, not the machine.
        Json::Null | Json::Array(_) => {}
    }
}
