//! What holds of every record, whatever ran on whatever machine: random programs on random devices and topologies.
//!
//! A program that breaks one is shrunk and written to a file, whose path is printed.

use std::fmt::Write as _;

use aorta::backend::sim::Sim;
use aorta::config::{EffortPlan, Figure, Profile, Wiring};
use aorta::cost::{self, floor};
use aorta::exec::{self, Control, LaunchMode};
use aorta::measure::record::{OperationRecord, RankRecord, Variant};
use aorta::measure::{self, Measured, RankRequest, Request};
use aorta::model::{OpKind, Program};
use aorta::ops::{self, Category, Direction, Spec};
use aorta::plan::Plan;
use aorta::schedule::{self, Schedule};
use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};

use crate::common::worlds::World;
use crate::common::{self, worlds};

/// A program, and what it runs on.
#[derive(Clone, Debug)]
struct Case {
    world: World,
    machine: Machine,
    mode: LaunchMode,
}

/// A device of the shipped ones and a topology, each changed.
#[derive(Clone, Debug)]
struct Machine {
    profile: &'static str,
    topology: &'static str,
    mesh: bool,
    ranks_per_node: u32,
    cards_per_node: u32,
    /// Factors on memory, cache, its size, matrix units, and the rates between devices and nodes.
    factors: [f64; 6],
}

fn machine() -> impl Strategy<Value = Machine> {
    let profile = prop_oneof![2 => Just("h200"), 1 => Just("mi300x"), 1 => Just("mi355x")];
    let topology = prop_oneof![2 => Just("hgx_h200"), 1 => Just("mi300x")];
    let nodes = prop_oneof![3 => Just((8, 8)), 1 => Just((2, 1)), 1 => Just((1, 1)), 1 => Just((4, 2))];
    let factor = prop_oneof![3 => Just(1.0), 1 => 0.25f64..4.0];
    let factors = [factor.clone(), factor.clone(), factor.clone(), factor.clone(), factor.clone(), factor];
    (profile, topology, any::<bool>(), nodes, factors).prop_map(
        |(profile, topology, mesh, (ranks_per_node, cards_per_node), factors)| Machine {
            profile,
            topology,
            mesh,
            ranks_per_node,
            cards_per_node,
            factors,
        },
    )
}

fn scale(figure: &mut Figure, factor: f64) {
    figure.0 *= factor;
}

impl Machine {
    fn profile(&self) -> Profile {
        let mut profile = Profile::named(self.profile).expect("embedded");
        profile.topology = aorta::config::Links::named(self.topology).expect("embedded");
        let links = &mut profile.topology;
        if self.mesh {
            links.wiring = Wiring::Mesh;
        }
        links.ranks_per_node.0 = f64::from(self.ranks_per_node);
        links.cards_per_node.0 = f64::from(self.cards_per_node);
        let [memory, cache, size, matrix, within, across] = self.factors;
        if self.mesh || within != 1.0 {
            // What was measured on other links says nothing of these.
            links.tables.clear();
        }
        [&mut links.within.bandwidth, &mut links.port.copies, &mut links.port.collectives]
            .into_iter()
            .chain(&mut links.within.peak)
            .for_each(|figure| scale(figure, within));
        scale(&mut links.across.bandwidth, across);
        links.across.peak.iter_mut().for_each(|figure| scale(figure, across));
        scale(&mut profile.bandwidth, memory);
        scale(&mut profile.cache_bandwidth, cache);
        scale(&mut profile.cache, size);
        profile.peak.values_mut().for_each(|figure| scale(figure, matrix));
        profile
    }
}

impl Case {
    fn text(&self) -> String {
        self.text_at("iteration")
    }

    /// The program, with metrics of what it labels on every rank.
    fn text_at(&self, iteration: &str) -> String {
        let mut text = self.world.text_at(iteration);
        let labels = self.world.labels();
        for (index, label) in labels.iter().enumerate() {
            let next = &labels[(index + 1) % labels.len()];
            let _ = writeln!(
                text,
                "metric rate_{label} = bandwidth({label})\n\
                 metric time_{label} = time({label})\n\
                 metric exposed_{label} = exposed({label})\n\
                 metric share_used_{label} = utilization({label})\n\
                 metric share_beside_{label} = overlap({label}, {next})"
            );
        }
        text + "metric path = critical_path\nmetric longest = path.max\nmetric share_flops = flops / time / device.flops\n"
    }

    fn describe(&self) -> String {
        let Machine { profile, topology, mesh, ranks_per_node, cards_per_node, factors } = &self.machine;
        format!(
            "// --ranks {} --launch {}, on {profile} with links of {topology}{}, {ranks_per_node} ranks and {cards_per_node} \
             network cards in a node.\n// Factors on memory, cache, its size, peaks, links within and across nodes: {factors:?}\n",
            self.world.ranks,
            self.mode.name(),
            if *mesh { " as a mesh" } else { "" }
        )
    }
}

/// The ranks' programs, plans and schedules.
struct Ranks {
    planned: Vec<(Program, Plan)>,
    schedules: Vec<Schedule>,
}

impl Ranks {
    fn of(text: &str, ranks: u32, sim: &Sim, streams: Option<u32>) -> Ranks {
        let planned = common::planned_ranks(text, ranks);
        let options = schedule::Options { streams, ..schedule::Options::default() };
        let schedules = planned.iter().map(|(program, plan)| common::placed(program, plan, sim, &options)).collect();
        Ranks { planned, schedules }
    }

    fn measure(&self, sim: &Sim, profile: &Profile, mode: LaunchMode, cold: bool) -> Measured {
        let sides = self.planned.iter().zip(&self.schedules);
        let ranks: Vec<RankRequest> = sides
            .map(|((program, plan), schedule)| RankRequest { number: program.rank, program, plan, schedule })
            .collect();
        let measured = measure::measure(&Request {
            ranks: &ranks,
            backend: sim,
            modes: &[mode],
            effort: EffortPlan { warmup: 3, iterations: 5 },
            observed_iterations: 2,
            exec: exec::Options { cold, timeout: aorta::base::Nanos(600_000_000_000), ..common::exec_options() },
            control: &Control::default(),
            profile: Some(profile),
            keep: &|_| {},
            expectations: Vec::new(),
            places: &|_| String::new(),
        });
        measured.unwrap_or_else(|error| panic!("{error}"))
    }
}

/// What an operation asks of each part of a device, in ns at that part's peak.
#[derive(Clone, Copy, Debug, Default)]
struct Needs {
    arithmetic: f64,
    /// Of whatever serves the device's memory fastest.
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
        // Between ranks, other tests know what the links carry.
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

/// Collects what does not hold.
#[derive(Default)]
struct Broken(String);

impl Broken {
    fn unless(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            let _ = writeln!(self.0, "{}", what());
        }
    }

    fn share(&mut self, part: i64, whole: i64, what: &str) {
        self.unless(0 <= part && part <= whole, || format!("{what}: {part} of {whole} ns"));
    }
}

/// What has to hold of a record.
fn check(ranks: &Ranks, profile: &Profile, variant: &Variant) -> String {
    let mut broken = Broken::default();
    for (rank, (program, _)) in variant.ranks.iter().zip(&ranks.planned) {
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

/// Parts add up to their whole, and none is larger.
fn parts(rank: &RankRecord, broken: &mut Broken) {
    let Some(analysis) = &rank.analysis else { return };
    let split = &analysis.split;
    let whole = split.time_ns.0;
    let stretch = split.stretch_ns.unwrap_or_default();
    let own = [split.operations_ns, stretch, split.wait_ns];
    let between = [split.launch_ns, split.queue_ns, split.dependency_ns, split.idle_ns];
    let sum: i64 = own.iter().chain(&between).map(|part| part.0).sum();
    broken.unless(sum == whole, || format!("rank {}: the split's parts are {sum} of {whole} ns", rank.rank));
    let chain: i64 = analysis.categories.iter().map(|category| category.chain_ns.0).sum();
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

/// The highest bus bandwidth of an operation between ranks, in bytes per second.
fn bus_peak(operation: &OperationRecord, profile: &Profile) -> f64 {
    let links = &profile.topology;
    let ranks = f64::from(operation.ranks.unwrap_or(2));
    // In a mesh a rank has a link to each other.
    let paths = if links.wiring == Wiring::Mesh { ranks - 1.0 } else { 1.0 };
    // A switch that adds up takes in half of what nccl-tests count.
    let adds_up = operation.operation == "all_reduce" && links.wiring == Wiring::Switch;
    links.peak_within().max(links.peak_across()) * paths * if adds_up { 2.0 } else { 1.0 }
}

/// No operation is faster than its device, and what is observed together is not either.
fn operations(rank: &RankRecord, program: &Program, profile: &Profile, broken: &mut Broken) {
    let step = &program.cycle[rank.slot % program.cycle.len()];
    let mut together = [0.0; 4];
    for operation in &rank.operations {
        let OpKind::Run(spec) = step.op(aorta::base::OpId(operation.id)).kind else { continue };
        let needs = Needs::of(program.spec(spec), profile);
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

/// Runs a property over fixed and fresh cases; what breaks it is shrunk, and written to a file.
fn hold<S: Strategy<Value = Case>>(name: &str, cases: u32, strategy: S, property: impl Fn(&Case) -> String) {
    for fresh in [false, true] {
        let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
        let mut runner = match fresh {
            true => TestRunner::new(config),
            false => TestRunner::new_with_rng(
                config,
                proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
            ),
        };
        let outcome = runner.run(&strategy, |case| {
            let broken = property(&case);
            if broken.is_empty() { Ok(()) } else { Err(TestCaseError::fail(broken)) }
        });
        if let Err(TestError::Fail(reason, case)) = outcome {
            let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.aorta"));
            let text = format!("{}{}", case.describe(), case.text());
            std::fs::write(&file, &text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            panic!("{}\n{reason}\n{text}", file.display());
        }
    }
}

fn cases(ranks: u32) -> impl Strategy<Value = Case> {
    let mode = prop_oneof![Just(LaunchMode::Stream), Just(LaunchMode::Graph)];
    (worlds::world(ranks), machine(), mode).prop_map(|(world, machine, mode)| Case { world, machine, mode })
}

#[test]
fn shares_rates_and_sums_hold() {
    hold("shares_rates_and_sums_hold", 60, cases(8), |case| {
        let profile = case.machine.profile();
        let sim = Sim::new(profile.clone());
        let ranks = Ranks::of(&case.text(), case.world.ranks, &sim, None);
        let measured = ranks.measure(&sim, &profile, case.mode, false);
        measured.variants.iter().map(|variant| check(&ranks, &profile, variant)).collect()
    });
}

/// On one stream nothing runs beside anything else: each operation takes what the plan says, and the longest chain of
/// dependencies is the same.
#[test]
fn plan_and_simulation_agree_where_nothing_contends() {
    hold("plan_and_simulation_agree_where_nothing_contends", 60, cases(1), |case| {
        let profile = case.machine.profile();
        let sim = Sim::new(profile.clone());
        let ranks = Ranks::of(&case.text(), 1, &sim, Some(1));
        let measured = ranks.measure(&sim, &profile, LaunchMode::Stream, false);
        let (program, plan) = &ranks.planned[0];
        let durations = schedule::durations(program, &ranks.schedules[0], 0, &profile);
        let mut broken = Broken::default();
        let rank = &measured.variants[0].ranks[0];
        let durations: Vec<f64> = durations[rank.slot].iter().map(|time| time.round()).collect();
        for operation in &rank.operations {
            let Some(time) = operation.time_ns.filter(|_| operation.category != "marker") else { continue };
            let planned = durations[operation.id as usize];
            let name = &operation.name;
            // The moments of the simulator are whole nanoseconds.
            broken.unless((time.0 as f64 - planned).abs() <= 2.0, || {
                format!("{name}: {time}, and by the plan {planned}")
            });
        }
        if let Some(analysis) = &rank.analysis {
            let path = plan.steps[rank.slot].critical_path(&durations);
            let chain = &analysis.critical_path;
            // Of chains that are equally long, each may take another.
            let same = path.ops.iter().map(|op| op.0).eq(chain.operations.iter().copied());
            let slop = 2.0 * rank.operations.len() as f64;
            let near = (path.length - chain.length_ns.0 as f64).abs() <= slop;
            let sum: f64 = chain.operations.iter().map(|op| durations[*op as usize]).sum();
            let tie = (sum - path.length).abs() <= slop;
            broken.unless(near && (same || tie), || format!("the plan's path is {path:?}, the simulation's {chain:?}"));
        }
        broken.0
    });
}

/// A metric of a set says the same whatever the order of the slots: here the cycle runs backwards, from another slot on.
#[test]
fn the_order_of_slots_changes_no_metric() {
    let cases = cases(1).prop_filter("iterations that overlap meet others", |case| !case.text().contains("sync: end"));
    hold("the_order_of_slots_changes_no_metric", 40, cases, |case| {
        let profile = case.machine.profile();
        let sim = Sim::new(profile.clone());
        let metrics = |iteration: &str| {
            let ranks = Ranks::of(&case.text_at(iteration), 1, &sim, None);
            // What a slot leaves in the cache depends on the slot before.
            // As a graph, an iteration waits for the host, which is ahead as far as the iterations before let it be.
            ranks.measure(&sim, &profile, LaunchMode::Stream, true).variants.remove(0).metrics
        };
        let cycle = case.world.cycle();
        let (there, back) = (metrics("iteration"), metrics(&format!("({} - iteration % {cycle})", 2 * cycle - 2)));
        let mut broken = Broken::default();
        for (one, other) in there.iter().zip(&back) {
            let same = match (one.value, other.value) {
                // The moments of the simulator are whole nanoseconds: who comes first to what several share may lose one.
                (Some(one), Some(other)) => (one - other).abs() <= 1e-3 * one.abs().max(other.abs()) + 3e-9,
                (one, other) => one == other,
            };
            broken.unless(same, || format!("{}: {} and {}", one.name, one.text, other.text));
        }
        broken.0
    });
}
