//! Properties of every record: random programs on random devices and topologies.
//!
//! A program that violates one is shrunk and written to a file, whose path is printed.

use std::fmt::Write as _;

use aorta::backend::sim::Sim;
use aorta::base::SourceMap;
use aorta::config::{EffortPlan, Profile, SourcedFigure, Wiring};
use aorta::exec::{self, Control, LaunchMode, RankSchedule};
use aorta::measure::{self, Measured, Request};
use aorta::model::Program;
use aorta::plan::Plan;
use aorta::schedule::{self, Schedule};
use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};

use crate::common::invariants::{Broken, check};
use crate::common::worlds::World;
use crate::common::{self, worlds};

/// A program, and what it runs on.
#[derive(Clone, Debug)]
struct Case {
    world: World,
    machine: Machine,
    mode: LaunchMode,
}

/// A shipped device profile and a topology, both modified.
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

fn scale(figure: &mut SourcedFigure, factor: f64) {
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
            // Times measured on other links do not apply to these.
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

    /// The program, with metrics of the labels that every rank has.
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
        let options = schedule::ScheduleOptions { streams, ..schedule::ScheduleOptions::default() };
        let schedules = planned.iter().map(|(program, plan)| common::placed(program, plan, sim, &options)).collect();
        Ranks { planned, schedules }
    }

    fn programs(&self) -> impl Iterator<Item = &Program> {
        self.planned.iter().map(|(program, _)| program)
    }

    fn measure(&self, sim: &Sim, profile: &Profile, mode: LaunchMode, cold: bool) -> Measured {
        let sides = self.planned.iter().zip(&self.schedules);
        let ranks: Vec<RankSchedule> =
            sides.map(|((program, plan), schedule)| RankSchedule::new(program, plan, schedule)).collect();
        let measured = measure::measure(&Request {
            plans: &[],
            ranks: &ranks,
            backend: sim,
            modes: &[mode],
            effort: EffortPlan { warmup: 3, iterations: 5 },
            observed_iterations: 2,
            exec: exec::SessionOptions { cold, timeout: aorta::base::Nanos(600_000_000_000), ..common::exec_options() },
            control: &Control::default(),
            profile: Some(profile),
            keep: &|_| {},
            shares: std::cell::OnceCell::new(),
            sources: &SourceMap::new(),
        });
        measured.unwrap_or_else(|error| panic!("{error}"))
    }
}

/// Checks a property for fixed and new cases. A failing case is shrunk and written to a file.
fn hold<S: Strategy<Value = Case>>(name: &str, cases: u32, strategy: S, property: impl Fn(&Case) -> String) {
    for fresh in [false, true] {
        let config = common::properties(cases);
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
    hold("shares_rates_and_sums_hold", 30, cases(8), |case| {
        let profile = case.machine.profile();
        let sim = Sim::new(profile.clone());
        let ranks = Ranks::of(&case.text(), case.world.ranks, &sim, None);
        let measured = ranks.measure(&sim, &profile, case.mode, false);
        measured.variants.iter().map(|variant| check(ranks.programs(), &profile, variant)).collect()
    });
}

/// On one stream nothing overlaps: each operation takes the plan's time, and the critical path is the same.
#[test]
fn plan_and_simulation_agree_where_nothing_contends() {
    hold("plan_and_simulation_agree_where_nothing_contends", 30, cases(1), |case| {
        let mut profile = case.machine.profile();
        // Kernels of one operation follow each other at once only if the host is ahead.
        [&mut profile.host.kernel, &mut profile.host.matrix].into_iter().for_each(|time| scale(time, 0.0));
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
            // The simulator's times are whole nanoseconds.
            broken.unless((time.0 as f64 - planned).abs() <= 2.0, || {
                format!("{name}: {time}, and by the plan {planned}")
            });
        }
        if let Some(analysis) = &rank.analysis {
            let path = plan.steps[rank.slot].critical_path(&durations);
            let chain = &analysis.critical_path;
            // If several chains are equally long, each method may choose another.
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

/// The metric of a set does not depend on the order of slots: here the cycle runs backwards, from another slot on.
#[test]
fn the_order_of_slots_changes_no_metric() {
    let cases = cases(1).prop_filter("iterations that overlap meet others", |case| !case.text().contains("sync: end"));
    hold("the_order_of_slots_changes_no_metric", 20, cases, |case| {
        let profile = case.machine.profile();
        let sim = Sim::new(profile.clone());
        let metrics = |iteration: &str| {
            let ranks = Ranks::of(&case.text_at(iteration), 1, &sim, None);
            // The cache's contents after a slot depend on the slot before. As a graph, an iteration waits for the host,
            // whose lead depends on earlier iterations.
            ranks.measure(&sim, &profile, LaunchMode::Stream, true).variants.remove(0).metrics
        };
        let cycle = case.world.cycle();
        let (there, back) = (metrics("iteration"), metrics(&format!("({} - iteration % {cycle})", 2 * cycle - 2)));
        let mut broken = Broken::default();
        for (one, other) in there.iter().zip(&back) {
            // The simulator's times are whole nanoseconds. The order in which operations reach a shared resource may
            // cost one, a thousandth of the shortest kernel.
            let lost = if one.unit.is_empty() { 3e-3 } else { 3e-9 };
            let same = match (one.value, other.value) {
                (Some(one), Some(other)) => (one - other).abs() <= 1e-3 * one.abs().max(other.abs()) + lost,
                (one, other) => one == other,
            };
            broken.unless(same, || format!("{}: {} and {}", one.name, one.text, other.text));
        }
        broken.0
    });
}
