//! Invariants of measurements: shares, sums and rates that hold for every program and device.

use std::fmt::Write as _;

use aorta::config::{Profile, Wiring};
use aorta::cost::{self, floor};
use aorta::measure::record::{OperationRecord, RankRecord, Variant};
use aorta::model::{OpKind, Program};
use aorta::ops::{self, Category, Direction, Spec};

/// Time that an operation needs on each resource of a device at its peak, in ns.
#[derive(Clone, Copy, Debug, Default)]
struct Needs {
    arithmetic: f64,
    /// Memory traffic, served by the fastest of cache and memory.
    memory: f64,
    to_device: f64,
    to_host: f64,
}

impl Needs {
    fn of(spec: &Spec, profile: &Profile) -> Needs {
        let cost = spec.cost();
        let ns = |amount: f64, rate: f64| amount / rate * 1e9;
        let engines = |direction| cost::engines(direction, profile).peak();
        let mut needs = Needs::default();
        if let Some((direction, bytes)) = floor::link_bytes(spec) {
            let link = if direction == Direction::HostToDevice { &mut needs.to_device } else { &mut needs.to_host };
            *link = ns(bytes, engines(direction));
            return needs;
        }
        // Other tests check links between ranks.
        if spec.operation.category() == Category::Collective || ops::crossing(spec).is_some() {
            return needs;
        }
        needs.arithmetic = match cost.matrix {
            Some(arithmetic) => ns(cost.flops, cost::matrix_peak(arithmetic, profile)),
            None => ns(cost.flops, profile.peak["vector"].value()),
        };
        let fastest = profile.cache_bandwidth.value().max(profile.bandwidth.value());
        needs.memory = ns((cost.read + cost.written).device as f64, fastest);
        needs.to_device = ns(cost.read.host as f64, engines(Direction::HostToDevice));
        needs.to_host = ns(cost.written.host as f64, engines(Direction::DeviceToHost));
        needs
    }

    fn each(self) -> [f64; 4] {
        [self.arithmetic, self.memory, self.to_device, self.to_host]
    }

    fn most(self) -> f64 {
        self.each().into_iter().fold(0.0, f64::max)
    }
}

/// Collects violated invariants.
#[derive(Default)]
pub struct Broken(pub String);

impl Broken {
    pub fn unless(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            let _ = writeln!(self.0, "{}", what());
        }
    }

    fn share(&mut self, part: i64, whole: i64, what: &str) {
        self.unless(0 <= part && part <= whole, || format!("{what}: {part} of {whole} ns"));
    }
}

/// All violated invariants of a variant, one per line. `programs` are those of its ranks.
pub fn check<'a>(programs: impl Iterator<Item = &'a Program>, profile: &Profile, variant: &Variant) -> String {
    let mut broken = Broken::default();
    for (rank, program) in variant.ranks.iter().zip(programs) {
        parts(rank, &mut broken);
        operations(rank, program, profile, &mut broken);
    }
    for metric in &variant.metrics {
        let share = metric.name.starts_with("share_");
        let over = |value: &f64| *value > 1.0 + 1e-9 || *value < 0.0;
        let values = metric.value.iter().chain(metric.slots.iter().flatten());
        let wrong: Vec<&f64> = values.filter(|value| share && over(value)).collect();
        broken.unless(wrong.is_empty(), || format!("{} is a share: {wrong:?}", metric.name));
    }
    broken.0
}

/// Checks that parts add up to their whole, and that none is larger.
fn parts(rank: &RankRecord, broken: &mut Broken) {
    let Some(analysis) = &rank.analysis else { return };
    let split = &analysis.split;
    let whole = split.time_ns.0;
    let stretch = split.stretch_ns.unwrap_or_default();
    let own = [split.operations_ns, stretch, split.wait_ns];
    let between = [split.engine_ns, split.launch_ns, split.queue_ns, split.dependency_ns, split.idle_ns];
    let sum: i64 = own.iter().chain(&between).map(|part| part.0).sum();
    broken.unless(sum == whole, || format!("rank {}: the split's parts are {sum} of {whole} ns", rank.rank));
    let chain: i64 = analysis.categories.iter().map(|category| category.chain_ns.0).sum();
    let added: i64 = analysis.categories.iter().map(|category| category.stretch_ns.unwrap_or_default().0).sum();
    broken.unless(added == stretch.0, || format!("rank {}: categories stretch by {added} of {stretch}", rank.rank));
    for busy in &analysis.lanes_busy_ns {
        broken.share(busy.0, whole, "a stream");
    }
    let works = split.operations_ns.0 + stretch.0;
    broken.unless(chain == works, || format!("rank {}: categories have {chain} of {works} ns", rank.rank));
    for part in between.iter().chain([&split.operations_ns, &split.wait_ns]) {
        broken.share(part.0, whole.max(split.operations_ns.0), "a part of the split");
    }
    for category in &analysis.categories {
        let name = &category.category;
        broken.share(category.busy_ns.0, whole, &format!("{name} is busy"));
        broken.share(category.exposed_ns.unwrap_or_default().0, category.busy_ns.0, &format!("{name} is exposed"));
        broken.share(category.chain_ns.0, whole, &format!("{name} of the chain"));
        if let (Some(transfer), Some(wait)) = (category.transfer_ns, category.wait_ns) {
            let busy = category.busy_ns;
            broken.unless(transfer + wait == busy, || format!("{name}: {transfer} and {wait} are {busy}"));
        }
    }
    let path = &analysis.critical_path;
    broken.share(path.running_ns.unwrap_or_default().0, whole, "the critical path");
    broken.share(analysis.tail_ns.unwrap_or_default().0, whole, "the tail");
    if let Some(totals) = &analysis.totals {
        broken.share((totals.busy_ns + totals.wait_ns).0, whole, "working and waiting");
        broken.share(totals.transfer_ns.0, totals.busy_ns.0, "transferring");
    }
    if let Some(peak) = &analysis.peak {
        broken.unless(peak.flops <= 1.0, || format!("{} of peak arithmetic", peak.flops));
        broken.unless(peak.bytes <= 1.0, || format!("{} of peak bandwidth", peak.bytes));
    }
}

/// Highest possible bus bandwidth of an operation between ranks, in bytes per second.
fn bus_peak(operation: &OperationRecord, profile: &Profile) -> f64 {
    let links = &profile.topology;
    let ranks = f64::from(operation.ranks.unwrap_or(2));
    // In a mesh, a rank has a link to each of the others.
    let paths = if links.wiring == Wiring::Mesh { ranks - 1.0 } else { 1.0 };
    // A switch that adds up data in transit receives half of the bytes that nccl-tests count.
    let adds_up = operation.operation == "all_reduce" && links.wiring == Wiring::Switch;
    links.peak_within().max(links.peak_across()) * paths * if adds_up { 2.0 } else { 1.0 }
}

/// Checks that no operation, and no set of operations, is faster than its device.
fn operations(rank: &RankRecord, program: &Program, profile: &Profile, broken: &mut Broken) {
    let step = &program.cycle[rank.slot % program.cycle.len()];
    let mut together = [0.0; 4];
    for operation in &rank.operations {
        let OpKind::Run(spec) = step.op(aorta::base::OpId(operation.id)).kind else { continue };
        let spec = program.spec(spec);
        // The profile's peaks are those of a device, and threads of the CPU run this one.
        if spec.threads.is_some() {
            continue;
        }
        let needs = Needs::of(spec, profile);
        let Some(time) = operation.time_ns else { continue };
        let name = format!("rank {}: {} {} {}", rank.rank, operation.name, operation.operation, operation.shape);
        for (sum, need) in together.iter_mut().zip(needs.each()) {
            *sum += need;
        }
        // Times are whole nanoseconds.
        let least = needs.most();
        broken.unless(time.0 as f64 + 1.0 >= least, || format!("{name}: {time}, at its peak {least:.1} ns, {needs:?}"));
        if let (Some(transfer), Some(wait)) = (operation.transfer_ns, operation.wait_ns) {
            broken.unless(transfer + wait == time, || format!("{name}: {transfer} and {wait} are {time}"));
            broken.unless(transfer.0 >= 0 && wait.0 >= 0, || format!("{name}: {transfer} and {wait}"));
        }
        if let (Some(work), Some(ideal)) = (operation.work_ns(), operation.ideal_ns) {
            broken.unless(work.0 + 1 >= ideal.0, || format!("{name}: {work} for what ideally takes {ideal}"));
        }
        if let (Some(bytes), Some(work)) = (operation.bus_bytes, operation.work_ns()) {
            let most = bus_peak(operation, profile) * work.seconds();
            broken.unless(bytes <= most, || format!("{name}: {bytes} bytes on the bus, of at most {most}"));
            // A group or a copy may also move data within the rank.
            let crosses_only = !["group", "copy"].contains(&operation.operation.as_str());
            broken.unless(!crosses_only || (operation.bytes as f64 - bytes).abs() <= 0.5, || {
                format!("{name}: {} bytes, and {bytes} on the bus", operation.bytes)
            });
        }
        let refused = operation.refused.as_deref();
        broken.unless(refused.is_none(), || format!("{name} {}", refused.unwrap_or_default()));
    }
    let spans = &rank.trace;
    let (Some(first), Some(last)) =
        (spans.iter().map(|span| span.start_ns).min(), spans.iter().map(|span| span.end_ns).max())
    else {
        return;
    };
    let took = (last - first).0 as f64;
    let needed = together.iter().copied().fold(0.0, f64::max);
    broken.unless(took + spans.len() as f64 >= needed, || {
        format!("rank {}: all operations take {took} ns, and their device needs {together:?}", rank.rank)
    });
}
