//! Small records as runs write them, with figures that a test chooses.

use aorta::base::random::bell;
use serde_json::{Value, json};

/// A record of one variant.
#[derive(Clone, Debug)]
pub struct Fixture {
    pub workload: &'static str,
    pub params: Vec<(&'static str, &'static str)>,
    pub launch: &'static str,
    pub simulated: bool,
    pub measurement: bool,
    pub complete: bool,
    pub sha256: &'static str,
    pub backend: &'static str,
    pub device: &'static str,
    pub driver: &'static str,
    pub variables: Vec<(&'static str, &'static str)>,
    /// Nanoseconds.
    pub samples: Vec<i64>,
    /// Samples without the gate, where those above are with it.
    pub ungated: Option<Vec<i64>>,
    /// Iterations after which the program repeats.
    pub slots: usize,
    pub memory: u64,
    /// Tokens of an iteration: the file's own metric is how many a second.
    pub tokens: f64,
    /// The share of communication that computation hides.
    pub hidden: f64,
    pub throttled: Option<&'static str>,
    /// How long each operation takes, and at its device's peaks, in nanoseconds.
    pub operations: Vec<(&'static str, i64, Option<i64>)>,
}

impl Default for Fixture {
    fn default() -> Self {
        Fixture {
            workload: "moe.aorta",
            params: vec![("streams", "4"), ("dtype", "bf16")],
            launch: "stream",
            simulated: false,
            measurement: true,
            complete: true,
            sha256: "b2ea3c1ddc97eae89e214e6b133c11cb3188d6a8a282a566c7a932a5f107f5f6",
            backend: "cuda",
            device: "NVIDIA H200",
            driver: "550.54",
            variables: Vec::new(),
            samples: samples(1, 200, 178_700.0, 0.01),
            ungated: None,
            slots: 1,
            memory: 64 << 20,
            tokens: 2048.0,
            hidden: 0.75,
            throttled: None,
            operations: Vec::new(),
        }
    }
}

/// Times around a median, in nanoseconds, the same on every machine.
pub fn samples(seed: u64, n: u64, median: f64, noise: f64) -> Vec<i64> {
    (0..n).map(|index| (median * (noise * f64::from(bell(seed, index))).exp()).round() as i64).collect()
}

fn map(pairs: &[(&str, &str)]) -> Value {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), Value::from(*value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// The mean of the middle two, as a report has it.
fn median(samples: &[i64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    let n = sorted.len();
    (sorted[(n - 1) / 2] + sorted[n / 2]) as f64 / 2.0
}

impl Fixture {
    pub fn with_time(seed: u64, median: f64) -> Fixture {
        Fixture { samples: samples(seed, 200, median, 0.01), ..Fixture::default() }
    }

    pub fn value(&self) -> Value {
        let times = json!({"n": self.samples.len(), "samples_ns": self.samples});
        let ungated = self.ungated.as_ref().map(|samples| json!({"n": samples.len(), "samples_ns": samples}));
        let rate = self.tokens / (median(&self.samples) * 1e-9);
        let busy = 40_000.0;
        let block = json!({"first": 0, "iterations": self.samples.len(), "health": [], "throttled": self.throttled});
        let operations: Vec<Value> =
            (0..).zip(&self.operations).map(|(id, operation)| of_operation(id, operation)).collect();
        json!({
            "schema": "aorta.run/1", "aorta": "0.1.0", "started": "2026-01-01T00:00:00Z",
            "simulated": self.simulated, "measurement": self.measurement, "complete": self.complete,
            "workload": {
                "name": self.workload, "summary": "", "origin": "library", "sha256": self.sha256,
                "params": map(&self.params),
            },
            "settings": {
                "backend": self.backend, "launch": self.launch, "effort": "full", "warmup": 10, "iterations": 100,
                "sync": "iteration", "depth": 1, "in_flight": 2, "ranks": 1, "gate": "auto", "cache": "hot",
                "data": "normal",
            },
            "device": {"name": self.device, "facts": {"driver": self.driver}},
            "environment": {
                "host": "lab", "os": "linux", "cpu": "a CPU", "cpus": 16, "variables": map(&self.variables),
            },
            "program": {
                "operations": 2, "cycle": self.slots, "cycle_operations": 2, "flops": 1e9, "bytes": 1 << 20, "streams": 4,
                "lanes": [], "waits": 0, "events": 0,
                "memory": {"device": self.memory, "pinned": 0, "host": 0, "scratch": 0},
            },
            "variants": [{
                "launch": self.launch, "time": times, "ungated": ungated, "issue": {"n": 0, "samples_ns": []}, "expectations": [],
                "blocks": [block], "notes": [],
                "metrics": [
                    {"name": "tokens_per_second", "value": rate, "unit": "tokens/s", "text": ""},
                    {"name": "draft_share", "value": 0.25, "unit": "", "text": ""},
                ],
                "ranks": [{
                    "rank": 0, "time": times, "operations": operations, "trace": [],
                    "analysis": {
                        "verdict": "", "help": "",
                        "split": {
                            "time_ns": 0, "operations_ns": 0, "launch_ns": 0, "queue_ns": 0, "dependency_ns": 0,
                            "idle_ns": 0, "chain": [],
                        },
                        "critical_path": {"length_ns": 0, "operations": []},
                        "categories": [{
                            "category": "collective", "operations": 1, "busy_ns": busy as i64,
                            "exposed_ns": (busy * (1.0 - self.hidden)).round() as i64, "chain_ns": 0,
                        }],
                    },
                }],
            }],
            "warnings": [],
        })
    }

    pub fn text(&self) -> String {
        self.value().to_string()
    }
}

fn of_operation(id: u32, (name, time, ideal): &(&str, i64, Option<i64>)) -> Value {
    json!({
        "id": id, "name": name, "operation": "gemm", "category": "matrix", "stream": "a", "lane": 0,
        "place": format!("moe.aorta:{}:3", 40 + name.len()), "shape": "", "flops": 1e9, "bytes": 1024, "after": [],
        "time_ns": time, "ideal_ns": ideal,
    })
}

/// A file of cases with one axis, `streams`: a record, or why there is none.
pub fn cases(cases: &[(&'static str, Result<Fixture, &str>)]) -> String {
    let values: Vec<&str> = cases.iter().map(|(streams, _)| *streams).collect();
    let header = json!({
        "schema": "aorta.cases/1", "kind": "sweep", "aorta": "0.1.0", "name": "moe.aorta", "sha256": "00",
        "started": "2026-01-01T00:00:00Z", "arguments": ["moe"],
        "axes": [{"option": "streams", "name": "streams", "values": values}],
    });
    let mut text = header.to_string() + "\n";
    for (streams, outcome) in cases {
        let name = format!("streams={streams}");
        let values = json!({"streams": streams});
        let case = match outcome {
            Ok(fixture) => json!({
                "name": name, "values": values, "status": "done", "reason": null, "seconds": 1.0,
                "record": Fixture { params: vec![("streams", *streams), ("dtype", "bf16")], ..fixture.clone() }.value(),
            }),
            Err(why) => json!({
                "name": name, "values": values, "status": "out of memory", "reason": why, "seconds": 1.0, "record": null,
            }),
        };
        text += &(case.to_string() + "\n");
    }
    text
}

/// A run as AORTA's Python harness writes it.
pub fn harness(streams: u32, times_ms: &[f64]) -> Value {
    let total: f64 = times_ms.iter().sum();
    json!({
        "workload_name": "moe", "stream_count": streams, "throughput": 2048.0 * times_ms.len() as f64 / (total * 1e-3),
        "throughput_unit": "tokens/sec", "latency_ms": {"p50": 1.0, "p95": 1.0, "p99": 1.0}, "total_time_ms": total,
        "iteration_times_ms": times_ms, "memory": {"peak_allocated_gb": 1.5},
        "metadata": {
            "config": {"stream_count": streams, "sync_mode": "per_iteration"},
            "device_info": {"name": "AMD Instinct MI300X"}, "rocm_info": {"torch_version": "2.6.0"},
        },
    })
}
