//! Events, memory and races on random programs, against oracles that know nothing but definitions.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use aorta::base::{LaneId, MemoryId, OpId};
use aorta::model::{MemoryKind, OpKind, Program, Sync};
use aorta::plan::{self, Plan};
use aorta::schedule::{self, Command, Options, Schedule, Topology};
use common::programs;
use proptest::prelude::*;

/// An operation of an iteration, counted over all of them.
type Node = (usize, OpId);

const TOPOLOGY: Topology = Topology { queues: 8, by_priority: false };

/// For each node, everything that surely comes before it. `order` is one in which everything comes after its predecessors.
fn closure(order: &[Node], edges: &BTreeMap<Node, BTreeSet<Node>>) -> BTreeMap<Node, BTreeSet<Node>> {
    let mut before: BTreeMap<Node, BTreeSet<Node>> = BTreeMap::new();
    for node in order {
        let mut all = BTreeSet::new();
        for direct in edges.get(node).into_iter().flatten() {
            all.insert(*direct);
            all.extend(before.get(direct).into_iter().flatten());
        }
        before.insert(*node, all);
    }
    before
}

/// What the plan and the lanes' own order say, by definition.
fn expected(program: &Program, plan: &Plan, schedule: &Schedule, iterations: usize) -> BTreeMap<Node, BTreeSet<Node>> {
    let cycle = program.cycle.len();
    let mut order = Vec::new();
    let mut edges: BTreeMap<Node, BTreeSet<Node>> = BTreeMap::new();
    let mut last: BTreeMap<LaneId, Node> = BTreeMap::new();
    for iteration in 0..iterations {
        let step = &program.cycle[iteration % cycle];
        let graph = &plan.steps[iteration % cycle];
        for op in step.ids() {
            let node = (iteration, op);
            let direct = edges.entry(node).or_default();
            for edge in graph.before(op) {
                direct.insert((iteration, edge.from));
            }
            for across in graph.across.iter().filter(|across| across.to == op) {
                if let Some(earlier) = iteration.checked_sub(across.distance as usize) {
                    direct.insert((earlier, across.from));
                }
            }
            // Iterations that are not under way together are in order.
            if let Some(done) = iteration.checked_sub(schedule.depth as usize) {
                let step = &program.cycle[done % cycle];
                direct.extend(step.ids().map(|op| (done, op)));
            }
            let lane = schedule.lane_of[step.op(op).stream.index()];
            direct.extend(last.insert(lane, node));
            order.push(node);
        }
    }
    closure(&order, &edges)
}

/// What the commands guarantee: the order of each lane, and events.
fn guaranteed(schedule: &Schedule, iterations: usize, without: Option<usize>) -> BTreeMap<Node, BTreeSet<Node>> {
    let period = schedule.period.len();
    let mut order = Vec::new();
    let mut edges: BTreeMap<Node, BTreeSet<Node>> = BTreeMap::new();
    // What each lane has gone through, by everything that its next operation follows.
    let mut lanes: BTreeMap<LaneId, BTreeSet<Node>> = BTreeMap::new();
    let mut events: BTreeMap<u32, BTreeSet<Node>> = BTreeMap::new();
    let mut issued: Vec<Vec<Node>> = Vec::new();
    for iteration in 0..iterations {
        let planned = &schedule.period[iteration % period];
        issued.push(Vec::new());
        let done: Vec<Node> = match iteration.checked_sub(schedule.depth as usize) {
            Some(done) => issued[done].clone(),
            None => Vec::new(),
        };
        for (place, command) in planned.commands.iter().enumerate() {
            match *command {
                Command::Launch { op, lane } => {
                    let node = (iteration, op);
                    let direct = edges.entry(node).or_default();
                    direct.extend(done.iter().copied());
                    direct.extend(lanes.entry(lane).or_default().iter().copied());
                    lanes.insert(lane, BTreeSet::from([node]));
                    issued[iteration].push(node);
                    order.push(node);
                }
                Command::Record { event, lane } => {
                    let passed = lanes.entry(lane).or_default().clone();
                    events.insert(event.0, passed);
                }
                Command::Wait { event, lane, .. } => {
                    if without == Some(place) {
                        continue;
                    }
                    let passed = events.get(&event.0).cloned().unwrap_or_default();
                    lanes.entry(lane).or_default().extend(passed);
                }
            }
        }
    }
    closure(&order, &edges)
}

/// Only what launches something, and only iterations that are far enough from the beginning.
fn launched(
    program: &Program,
    closure: &BTreeMap<Node, BTreeSet<Node>>,
    from: usize,
) -> BTreeMap<Node, BTreeSet<Node>> {
    let cycle = program.cycle.len();
    let runs = |node: &Node| matches!(program.cycle[node.0 % cycle].op(node.1).kind, OpKind::Run(_));
    closure
        .iter()
        .filter(|(node, _)| runs(node) && node.0 >= from)
        .map(|(node, before)| (*node, before.iter().copied().filter(runs).collect()))
        .collect()
}

fn check_events(text: &str, ceiling: Option<u32>) -> Result<(), TestCaseError> {
    let (program, plan) = common::planned(text);
    let options = Options { streams: ceiling, ..Options::default() };
    let schedule = schedule::place(&program, &plan, TOPOLOGY, &options);
    let overlapping = program.step.sync == Sync::End;
    let iterations = if overlapping { 3 * schedule.period.len().max(schedule.depth as usize) } else { 1 };
    let from = if overlapping { iterations - schedule.period.len() } else { 0 };
    let expected = launched(&program, &expected(&program, &plan, &schedule, iterations), from);
    let all = launched(&program, &guaranteed(&schedule, iterations, None), from);
    prop_assert_eq!(all, expected, "events and lanes guarantee the plan and nothing else\n{}", text);
    Ok(())
}

/// Taking any one wait away loses something.
fn check_fewest(text: &str, ceiling: Option<u32>) -> Result<(), TestCaseError> {
    let (program, plan) = common::planned(text);
    let options = Options { streams: ceiling, ..Options::default() };
    let schedule = schedule::place(&program, &plan, TOPOLOGY, &options);
    let all = guaranteed(&schedule, 1, None);
    for (place, command) in schedule.period[0].commands.iter().enumerate() {
        if matches!(command, Command::Wait { .. }) {
            let fewer = guaranteed(&schedule, 1, Some(place));
            prop_assert_ne!(&fewer, &all, "every wait is needed: {:?}\n{}", command, text);
        }
    }
    let recorded = schedule.period[0].commands.iter().filter(|command| matches!(command, Command::Record { .. }));
    prop_assert_eq!(recorded.count(), schedule.events as usize, "every event is recorded once\n{}", text);
    Ok(())
}

/// Scratch memories that share a place are never alive together.
fn check_memory(text: &str) -> Result<(), TestCaseError> {
    let (program, plan) = common::planned(text);
    let schedule = schedule::place(&program, &plan, TOPOLOGY, &Options::default());
    let before = expected(&program, &plan, &schedule, 1);
    let step = &program.cycle[0];
    let mut users: BTreeMap<MemoryId, Vec<OpId>> = BTreeMap::new();
    for op in step.ids() {
        for &view in step.inputs(op).iter().chain(step.outputs(op)) {
            let memory = program.views.memory(view);
            if program.memory(memory).kind == MemoryKind::Scratch {
                users.entry(memory).or_default().push(op);
            }
        }
    }
    let ordered = |first: &[OpId], second: &[OpId]| {
        second.iter().all(|late| first.iter().all(|early| before[&(0, *late)].contains(&(0, *early))))
    };
    for (a, a_users) in &users {
        for (b, b_users) in users.iter().filter(|(b, _)| *b > a) {
            let (pa, pb) = (schedule.memory.placement(*a), schedule.memory.placement(*b));
            let apart = pa.offset + pa.bytes <= pb.offset || pb.offset + pb.bytes <= pa.offset;
            prop_assert!(
                apart || ordered(a_users, b_users) || ordered(b_users, a_users),
                "{:?} and {:?} share memory and may be alive together\n{}",
                a,
                b,
                text
            );
        }
    }
    Ok(())
}

/// Two operations that touch the same memory, one writing, with no order between them: by definition.
fn has_race(program: &Program, plan: &Plan) -> bool {
    let schedule = schedule::place(program, plan, TOPOLOGY, &Options::default());
    let before = expected(program, plan, &schedule, 1);
    let step = &program.cycle[0];
    let conflict = |a: OpId, b: OpId| {
        let overlaps = |x: &[aorta::base::ViewId], y: &[aorta::base::ViewId]| {
            x.iter().any(|x| y.iter().any(|y| program.views.overlap(*x, *y)))
        };
        let (a_in, a_out, b_in, b_out) = (step.inputs(a), step.outputs(a), step.inputs(b), step.outputs(b));
        overlaps(a_out, b_out) || overlaps(a_out, b_in) || overlaps(a_in, b_out)
    };
    step.ids().any(|b| step.ids().take(b.index()).any(|a| conflict(a, b) && !before[&(0, b)].contains(&(0, a))))
}

/// Whether two operations touch the same memory, one of them writing.
fn conflict(program: &Program, (a, b): (Node, Node)) -> bool {
    let step = |node: Node| &program.cycle[node.0 % program.cycle.len()];
    let touched = |node: Node| {
        let (inputs, outputs) = (step(node).inputs(node.1), step(node).outputs(node.1));
        inputs.iter().map(|view| (*view, false)).chain(outputs.iter().map(|view| (*view, true))).collect::<Vec<_>>()
    };
    let (a_touched, b_touched) = (touched(a), touched(b));
    a_touched.iter().any(|(x, x_written)| {
        b_touched.iter().any(|(y, y_written)| {
            // Each iteration has scratch memory of its own.
            let shared = a.0 == b.0 || program.memory(program.views.memory(*x)).kind != MemoryKind::Scratch;
            (*x_written || *y_written) && shared && program.views.overlap(*x, *y)
        })
    })
}

/// The plan orders what the language's definition orders, and nothing else: each stream, each pair of operations that
/// touch the same memory, each `after`, each `sync()`.
fn check_plan(text: &str, iterations: usize) -> Result<(), TestCaseError> {
    let (program, plan) = common::planned(text);
    let schedule = schedule::place(&program, &plan, TOPOLOGY, &Options::default());
    let planned = expected(&program, &plan, &schedule, iterations);
    let order: Vec<Node> = planned.keys().copied().collect();
    let op = |node: Node| program.cycle[node.0 % program.cycle.len()].op(node.1);
    let mut edges: BTreeMap<Node, BTreeSet<Node>> = BTreeMap::new();
    for (place, &late) in order.iter().enumerate() {
        for &early in &order[..place] {
            let is_sync = |node| op(node).kind == OpKind::Sync;
            let synced = early.0 == late.0 && (is_sync(early) || is_sync(late));
            let complete = early.0 + schedule.depth as usize <= late.0;
            let step = &program.cycle[late.0 % program.cycle.len()];
            let declared = early.0 == late.0 && step.after(late.1).iter().any(|after| after.op == early.1);
            let stream = op(early).stream == op(late).stream;
            if stream || synced || complete || declared || conflict(&program, (early, late)) {
                edges.entry(late).or_default().insert(early);
            }
        }
    }
    prop_assert_eq!(planned, closure(&order, &edges), "{}", text);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_plan_is_what_the_language_says(statements in programs::statements(5, 40)) {
        check_plan(&programs::text(&statements, 5, ""), 1)?;
    }

    #[test]
    fn the_plan_is_what_the_language_says_across_iterations(statements in programs::statements(4, 14), depth in 1..4u32) {
        check_plan(&programs::text(&statements, 4, &format!("(sync: end, depth: {depth})")), 4)?;
    }

    #[test]
    fn events_keep_the_plan(statements in programs::statements(5, 24)) {
        check_events(&programs::text(&statements, 5, ""), None)?;
    }

    #[test]
    fn events_keep_the_plan_on_fewer_streams(statements in programs::statements(6, 20), ceiling in 1..5u32) {
        check_events(&programs::text(&statements, 6, ""), Some(ceiling))?;
    }

    #[test]
    fn no_wait_too_many(statements in programs::operations(5, 24), ceiling in prop::option::of(1..5u32)) {
        check_fewest(&programs::text(&statements, 5, ""), ceiling)?;
    }

    #[test]
    fn events_keep_the_plan_across_iterations(statements in programs::statements(4, 12), depth in 2..4u32) {
        check_events(&programs::text(&statements, 4, &format!("(sync: end, depth: {depth})")), None)?;
    }

    #[test]
    fn shared_memory_is_never_alive_twice(statements in programs::statements(5, 30)) {
        check_memory(&programs::text(&statements, 5, ""))?;
    }

    #[test]
    fn races_are_found_and_nothing_else(statements in programs::statements(4, 14)) {
        let allowed = programs::text(&statements, 4, "(order: declared, races: allow)");
        let program = common::analyze(&allowed).unwrap_or_else(|errors| panic!("{errors}"));
        let unchecked = plan::build(&program).expect("races are allowed");
        let forbidden = programs::text(&statements, 4, "(order: declared)");
        let program = common::analyze(&forbidden).unwrap_or_else(|errors| panic!("{errors}"));
        let found = plan::build(&program).is_err();
        prop_assert_eq!(found, has_race(&program, &unchecked), "{}", forbidden);
    }
}
