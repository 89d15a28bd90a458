//! Advice for metrics outside of their normal range. Causes that the record itself shows come first.

use crate::config::expected::{CopyDirection, ExpectedFigure, NormalRange};
use crate::measure::record::{RunRecord, Variant};

/// Environment variables that keep NCCL and RCCL from using the fastest path.
const RESTRICTING: [&str; 12] = [
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_SHM_DISABLE",
    "NCCL_NVLS_ENABLE",
    "NCCL_NTHREADS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MAX_CTAS",
    "NCCL_CUMEM_ENABLE",
    "NCCL_BUFFSIZE",
    "RCCL_MSCCL_ENABLE",
];

/// The resource that limits a metric.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Limit {
    /// Arithmetic or device memory.
    Device,
    /// The link between host and device.
    Link,
    /// The links between devices.
    Network,
    /// The host's calls.
    Host,
}

fn limit(range: &NormalRange) -> Limit {
    match (range.figure, range.direction) {
        (ExpectedFigure::Issue | ExpectedFigure::GraphLaunch, _) => Limit::Host,
        (ExpectedFigure::BusBandwidth, _) | (_, Some(CopyDirection::Peer)) => Limit::Network,
        (_, Some(CopyDirection::H2d | CopyDirection::D2h)) => Limit::Link,
        // Any resource may limit a metric. A metric of streams alone is limited by the host.
        _ => Limit::Device,
    }
}

/// Advice for a metric that is slower than normal.
pub fn slower(record: &RunRecord, variant: &Variant, range: &NormalRange) -> Vec<String> {
    let limit = limit(range);
    let mut found = match limit {
        Limit::Device => throttled(record, variant),
        Limit::Link => link(record),
        Limit::Network => network(record, variant),
        Limit::Host => host(record),
    };
    if range.figure == ExpectedFigure::Metric {
        found.extend(host(record));
    }
    found.extend(shared(record));
    if found.is_empty() {
        found.push(format!("nothing in the record explains it: {}", general(limit, record)));
    }
    found
}

/// Advice for a metric that is faster than normal.
pub fn faster(record: &RunRecord) -> Vec<String> {
    let data = &record.settings.data;
    vec![match data.as_str() {
        "normal" | "" => {
            "what it computes, `--verify`, and whether the range is too old: a newer library may be faster".to_owned()
        }
        _ => format!("floats began as {data}: data that change few bits take less power, and the clock stays higher"),
    }]
}

fn fact<'a>(record: &'a RunRecord, name: &str) -> Option<&'a str> {
    record.device.facts.get(name).map(String::as_str)
}

fn number(record: &RunRecord, name: &str) -> Option<f64> {
    fact(record, name)?.parse().ok()
}

/// Two facts, a value and its maximum, if the value is lower; otherwise `None`.
fn less(record: &RunRecord, name: &str, most: &str) -> Option<(f64, f64)> {
    let (found, most) = (number(record, name)?, number(record, most)?);
    (found < most).then_some((found, most))
}

/// Throttling of the device's clocks.
fn throttled(record: &RunRecord, variant: &Variant) -> Vec<String> {
    let mut found = Vec::new();
    if let Some((limit, usual)) = less(record, "power_limit_watts", "default_power_limit_watts") {
        found.push(format!("the power limit is {limit} W, and {usual} W by default: `nvidia-smi -q -d POWER`"));
    }
    if let Some(why) = variant.blocks.iter().find_map(|block| block.throttled.as_ref()) {
        found.push(format!("the clock was throttled during the run: {why}"));
    } else if let Some(why) = fact(record, "held_down_by").filter(|why| *why != "nothing") {
        found.push(format!("the clock was throttled after the run: {why}"));
    }
    if let Some((clock, most)) = less(record, "memory_clock_mhz", "max_memory_clock_mhz") {
        found.push(format!("the memory's clock is {clock} of {most} MHz"));
    }
    found
}

/// The link to the host, and the device's NUMA node.
fn link(record: &RunRecord) -> Vec<String> {
    let mut found = Vec::new();
    if let Some((width, most)) = less(record, "pcie_width", "max_pcie_width") {
        found.push(format!("the PCIe link has {width} of {most} lanes"));
    }
    if let Some((generation, most)) = less(record, "pcie_generation", "max_pcie_generation") {
        found.push(format!(
            "the PCIe link was of generation {generation} of {most} after the run: check again under load, since an \
             idle link may be slower"
        ));
    }
    let nodes: u32 = record.environment.facts.get("numa_nodes").and_then(|nodes| nodes.parse().ok()).unwrap_or(1);
    if let (true, Some(node)) = (nodes > 1, fact(record, "numa_node")) {
        found.push(format!(
            "the host has {nodes} memory nodes, and the device is at node {node}: \
             `numactl --cpunodebind={node} --membind={node} aorta …`"
        ));
    }
    found
}

/// The network between ranks.
fn network(record: &RunRecord, variant: &Variant) -> Vec<String> {
    let variables = &record.environment.variables;
    let set: Vec<String> =
        RESTRICTING.iter().filter_map(|name| variables.get(*name).map(|value| format!("{name}={value}"))).collect();
    let mut found = Vec::new();
    if !set.is_empty() {
        found.push(format!("the environment says {}: run once without", set.join(", ")));
    }
    if let Some(note) = variant.notes.iter().find(|note| note.contains("through the host")) {
        found.push(format!("copies take a detour: {note}"));
    }
    if let Some(rank) = variant.skew.as_ref().and_then(|skew| skew.straggler) {
        found.push(format!("the others wait for rank {rank}: look at its device first"));
    }
    found.extend(throttled(record, variant));
    found
}

/// Causes of slow host calls.
fn host(record: &RunRecord) -> Vec<String> {
    let facts = &record.environment.facts;
    let mut found = Vec::new();
    if let Some(governor) = facts.get("governor").filter(|governor| *governor != "performance") {
        found.push(format!("the processor's governor is `{governor}`, not `performance`"));
    }
    if record.environment.cpus <= record.settings.ranks {
        found.push(format!("the program may use {} processors only", record.environment.cpus));
    }
    let blocking = ["CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL"];
    for name in blocking {
        if record.environment.variables.get(name).is_some_and(|value| !matches!(value.as_str(), "" | "0")) {
            found.push(format!("{name} is set, so that every call waits"));
        }
    }
    if record.warnings.iter().any(|warning| warning.contains("under a profiler")) {
        found.push("the run was profiled".to_owned());
    }
    found
}

/// Other users of the device.
fn shared(record: &RunRecord) -> Vec<String> {
    let mut found = Vec::new();
    if fact(record, "mig") == Some("on") {
        found.push("the device is split (MIG is on): a part of it has a part of its rates".to_owned());
    }
    if let Some(others) = number(record, "other_processes").filter(|others| *others > 0.0) {
        found.push(format!("{others} other processes use the device: `nvidia-smi` names them"));
    }
    found
}

/// First steps if the record shows no cause.
fn general(limit: Limit, record: &RunRecord) -> &'static str {
    let amd = record.settings.backend == "hip";
    match limit {
        Limit::Device if amd => {
            "the clock and the power under load, `amd-smi monitor`; other processes; the partition mode"
        }
        Limit::Device => {
            "the clock and the power under load, `nvidia-smi -q -d CLOCK,POWER,PERFORMANCE`; other processes"
        }
        Limit::Link => {
            "the link under load, `aorta devices --long`; other copies of the host; the processors' memory node"
        }
        Limit::Network => "the way that the library takes, `--env NCCL_DEBUG=INFO`; the links, `nvidia-smi nvlink -s`",
        Limit::Host => "other work on the host; its clock; whether it is a virtual machine",
    }
}
