//! Plans, events, memory and races of random programs, compared with an oracle that uses only definitions.

use std::cell::RefCell;

use aorta::model::Program;
use aorta::plan::{self, Plan};
use aorta::schedule::{self, Schedule, Topology};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::common;
use crate::common::effort::draws;
use crate::common::{oracle, programs};

const TOPOLOGY: Topology = Topology { queues: 8, by_priority: false, limits_units: false };

fn scheduled(text: &str, ceiling: Option<u32>) -> (Program, Plan, Schedule) {
    let (program, plan) = common::planned(text);
    let options = schedule::ScheduleOptions { streams: ceiling, ..schedule::ScheduleOptions::default() };
    let schedule = schedule::place(&program, &plan, TOPOLOGY, &options);
    (program, plan, schedule)
}

fn holds(judged: Result<(), String>, text: &str) -> Result<(), TestCaseError> {
    judged.map_err(|why| TestCaseError::fail(format!("{why}\n{text}")))
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// Slices of 64 iterations that overlap in 13 million pairs, but in few within an iteration.
#[test]
fn slices_of_other_iterations_do_not_tangle() {
    let text = "stream s[2]\nbuffer x: f32[1000001]\nbuffer y: f32[80]\ndraw n[80] ~ uniform(1, 1000000)\nstep {\n  \
                for i in 0..80 { on s[0] { fill(0 -> x[n[i]..n[i] + 1]) } }\n  \
                for i in 0..80 { on s[1] { sum(x[0..n[i]] -> y[i]) } }\n}\n";
    let (program, plan) = common::planned(text);
    assert_eq!((program.cycle.len(), plan.steps.len()), (64, 64));
    // A sum waits for the last fill of an element that it reads; that of the smallest number reads none.
    for (step, plan) in program.cycle.iter().zip(&plan.steps) {
        let across = plan.all().filter(|edge| step.op(edge.from).stream != step.op(edge.to).stream).count();
        assert_eq!(across, 79);
    }
}

/// An inferred wait beside an explicit one is issued only if it is needed.
#[test]
fn an_explicit_wait_adds_nothing_else() {
    let text = "stream s[6]\nbuffer a: f32[8, 16]\nstep {\n  on s[0] { nop() }\n  on s[5] { sync() }\n  \
                on s[0] { t: map(0.5 * a[0] + 0.25) }\n  on s[2] { wait(t) }\n  on s[0] { map(0.5 * a[0]) }\n}\n";
    for ceiling in [None, Some(1), Some(2), Some(3), Some(4)] {
        let (program, _, schedule) = scheduled(text, ceiling);
        oracle::judge_waits(&program, &schedule).unwrap_or_else(|why| panic!("{ceiling:?}: {why}"));
    }
}

/// The step's options for iterations that overlap.
fn overlapping() -> impl Strategy<Value = String> {
    (1..5u32).prop_map(|depth| format!("(sync: end, depth: {depth})"))
}

/// Iterations after which a step repeats.
fn cycles() -> impl Strategy<Value = usize> {
    prop_oneof![2 => Just(1usize), 1 => Just(2), 1 => Just(3)]
}

proptest! {
    #![proptest_config(crate::common::properties(400))]

    #[test]
    fn the_plan_orders_what_the_definitions_order(statements in programs::statements(5, 24)) {
        let text = programs::text(&statements, 5, "");
        let (program, plan) = common::planned(&text);
        holds(oracle::judge_plan(&program, &plan), &text)?;
    }

    #[test]
    fn the_plan_orders_iterations(
        statements in programs::statements(4, 12),
        options in overlapping(),
        cycle in cycles(),
    ) {
        let text = programs::turning(programs::text(&statements, 4, &options), cycle);
        let (program, plan) = common::planned(&text);
        holds(oracle::judge_plan(&program, &plan), &text)?;
    }

    #[test]
    fn events_keep_the_plan(statements in programs::statements(6, 24), ceiling in prop::option::of(1..5u32)) {
        let text = programs::text(&statements, 6, "");
        let (program, plan, schedule) = scheduled(&text, ceiling);
        holds(oracle::judge_events(&program, &plan, &schedule), &text)?;
        holds(oracle::judge_waits(&program, &schedule), &text)?;
    }

    #[test]
    fn events_keep_the_plan_across_iterations(
        statements in programs::statements(4, 10),
        options in overlapping(),
        ceiling in prop::option::of(1..4u32),
        cycle in cycles(),
    ) {
        let text = programs::turning(programs::text(&statements, 4, &options), cycle);
        let (program, plan, schedule) = scheduled(&text, ceiling);
        holds(oracle::judge_events(&program, &plan, &schedule), &text)?;
        holds(oracle::judge_waits(&program, &schedule), &text)?;
    }

    #[test]
    fn events_keep_the_plan_of_iterations_in_turns(
        turns in programs::turns(4, 8),
        options in prop_oneof![Just(String::new()), overlapping()],
        ceiling in prop::option::of(1..4u32),
    ) {
        let text = programs::turns_text(&turns, 4, &options);
        let (program, plan, schedule) = scheduled(&text, ceiling);
        holds(oracle::judge_plan(&program, &plan), &text)?;
        holds(oracle::judge_events(&program, &plan, &schedule), &text)?;
        holds(oracle::judge_waits(&program, &schedule), &text)?;
    }

    #[test]
    fn shared_memory_is_never_alive_twice(statements in programs::statements(5, 30)) {
        let text = programs::text(&statements, 5, "");
        let (program, _, schedule) = scheduled(&text, None);
        holds(oracle::judge_memory(&program, &schedule), &text)?;
    }
}

/// Two streams can write a memory in any order: its parts, or all of it if races are allowed. Then the first of them to
/// be issued does not determine when the others start, so the memory cannot share addresses with another.
#[test]
fn memory_whose_uses_are_in_no_order_has_a_place_of_its_own() {
    for (options, [first, second]) in [("", ["l[0]", "l[1]"]), ("(order: declared, races: allow)", ["l", "l"])] {
        let text = format!(
            "stream a\nstream b\nbuffer x, y: f32[2, 16]\nstep{options} {{\n  on a {{\n    t: map(x[0] * 2)\n    \
             map(t + 1 -> y[0])\n  }}\n  buffer l: f32[2, 8]\n  on a {{ fill(1 -> {first}) }}\n  on b {{ fill(2 -> \
             {second}) }}\n  on a {{ map(l[0] + l[1] -> y[1, 0..8]) }}\n}}\n"
        );
        let (program, _, schedule) = scheduled(&text, None);
        holds(oracle::judge_memory(&program, &schedule), &text).unwrap_or_else(|why| panic!("{why}"));
    }
}

/// Streams restricted to a part of the device share a lane only with streams of the same kind, and have queues of their
/// own if the device provides them.
#[test]
fn streams_with_units_stand_apart() {
    let text = "stream a\nstream f[4]\nstream p[4](units: 25%)\nstream q(units: 64)\nstep {\n  for i in 0..4 {\n    on f[i] { \
                nop() }\n    on p[i] { nop() }\n  }\n  on a { nop() }\n  on q { nop() }\n}\n";
    let (program, plan) = common::planned(text);
    let place = |limits_units, streams| {
        let topology = Topology { queues: 4, by_priority: limits_units, limits_units };
        let schedule = schedule::place(
            &program,
            &plan,
            topology,
            &schedule::ScheduleOptions { streams, ..schedule::ScheduleOptions::default() },
        );
        let line = |lane: &schedule::Lane| {
            let streams: Vec<&str> =
                lane.streams.iter().map(|stream| program.streams[stream.index()].name.as_str()).collect();
            format!("{}: {}", streams.join(" "), lane.queue)
        };
        schedule.lanes.iter().map(line).collect::<Vec<_>>().join(", ")
    };
    let apart = "a: 0, f[0]: 1, f[1]: 2, f[2]: 3, f[3]: 0, p[0]: 4, p[1]: 5, p[2]: 6, p[3]: 7, q: 8";
    assert_eq!(place(true, None), apart);
    let together = "a: 0, f[0]: 1, f[1]: 2, f[2]: 3, f[3]: 0, p[0]: 1, p[1]: 2, p[2]: 3, p[3]: 0, q: 1";
    assert_eq!(place(false, None), together);
    assert_eq!(place(true, Some(5)), "a: 0, f[0] f[2]: 1, f[1] f[3]: 2, p[0] p[1] p[2] p[3]: 4, q: 5");
}

/// Counts of programs with declared order, by result.
#[derive(Debug, Default)]
struct Judged {
    /// Programs with races.
    racing: usize,
    /// Programs in which operations of different streams conflict, and each two are ordered.
    ordered: usize,
    /// Programs without conflicts between streams.
    apart: usize,
}

/// Judges the races found in 5 000 programs, or fewer in CI. They are other ones each time.
fn judge_races(texts: impl Strategy<Value = String>) {
    let judged = RefCell::new(Judged::default());
    let outcome = TestRunner::new(config(draws(5_000))).run(&texts, |text| {
        let program = common::analyze(&text).unwrap_or_else(|errors| panic!("{errors}"));
        let reported = plan::build(&program).err().unwrap_or_default();
        holds(oracle::judge_races(&program, &reported), &text)?;
        let mut judged = judged.borrow_mut();
        match oracle::Unrolled::enough(&program).has_conflict_between_streams() {
            _ if !reported.is_empty() => judged.racing += 1,
            true => judged.ordered += 1,
            false => judged.apart += 1,
        }
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    let judged = judged.into_inner();
    println!("{judged:?}");
    let enough = draws(500) as usize;
    assert!(judged.racing > enough && judged.ordered > enough, "there are enough of either kind: {judged:?}");
}

#[test]
fn races_are_found_and_nothing_else() {
    judge_races(programs::declared(3, 12, Just("(order: declared)".to_owned())));
}

#[test]
fn races_between_iterations_are_found_and_nothing_else() {
    let options = (1..4u32).prop_map(|depth| format!("(order: declared, sync: end, depth: {depth})"));
    let texts = programs::declared(3, 8, options);
    judge_races((texts, cycles()).prop_map(|(text, cycle)| programs::turning(text, cycle)));
}
