//! The calls of a session compared with the plan: whatever streams iterations use, the device keeps every dependency of
//! the plan, and with `sync: iteration` no iteration begins before the last is complete.

use aorta::backend::sim::Sim;
use aorta::base::Nanos;
use aorta::config::Profile;
use aorta::exec::{self, Control, LaunchMode, Observation};
use aorta::schedule;
use proptest::prelude::*;

use crate::common;
use crate::common::mock::{Mock, Script};
use crate::common::{calls, programs};

/// More than can be under way, over several rounds of every cycle.
const ITERATIONS: u64 = 13;

/// Options of a session.
#[derive(Clone, Copy, Debug)]
struct Way {
    mode: LaunchMode,
    in_flight: u32,
    gates: bool,
    caches: bool,
}

fn ways() -> impl Strategy<Value = Way> {
    let mode = prop_oneof![3 => Just(LaunchMode::Stream), 1 => Just(LaunchMode::Graph)];
    (mode, 1..5u32, any::<bool>(), any::<bool>()).prop_map(|(mode, in_flight, gates, caches)| Way {
        mode,
        in_flight,
        gates,
        caches,
    })
}

fn judge(text: &str, way: Way, ceiling: Option<u32>) -> Result<(), TestCaseError> {
    let (program, plan) = common::planned(text);
    let mock = Mock::new(Script { has_gates: way.gates, has_caches: way.caches, ..Script::default() });
    let schedule =
        common::placed(&program, &plan, &mock, &schedule::ScheduleOptions { streams: ceiling, ..Default::default() });
    let options = exec::SessionOptions { in_flight: way.in_flight, cold: way.caches, ..common::exec_options() };
    let mut session = exec::prepare(exec::RankSchedule::new(&program, &plan, &schedule), &mock, &options)
        .unwrap_or_else(|error| panic!("{error}"));
    if way.mode == LaunchMode::Graph {
        session.capture().unwrap_or_else(|error| panic!("{error}"));
    }
    let judge = |noted: &[String], exact| {
        let judged = calls::judge((&program, &plan), &schedule, noted, exact);
        judged.map_err(|why| TestCaseError::fail(format!("{why}\n{text}\n{}", noted.join("\n"))))
    };
    let captured = mock.take();
    let run = |calls: Vec<String>| [&captured[..], &calls].concat();
    session.iterate(way.mode, 2, ITERATIONS - 2, &Control::default()).unwrap_or_else(|error| panic!("{error}"));
    prop_assert_eq!(judge(&run(mock.take()), true)?, ITERATIONS as usize);
    session.observe(Observation::once(way.mode, 1), &Control::default()).unwrap_or_else(|error| panic!("{error}"));
    judge(&run(mock.take()), false)?;
    Ok(())
}

proptest! {
    #![proptest_config(crate::common::properties(300))]

    #[test]
    fn iterations_that_wait_for_each_other_do(
        turns in programs::turns(5, 6),
        way in ways(),
        ceiling in prop::option::of(1..5u32),
    ) {
        judge(&programs::turns_text(&turns, 5, ""), way, ceiling)?;
    }

    #[test]
    fn iterations_that_overlap_are_in_the_plans_order(
        turns in programs::turns(4, 6),
        depth in 1..4u32,
        way in ways(),
        ceiling in prop::option::of(1..4u32),
    ) {
        judge(&programs::turns_text(&turns, 4, &format!("(sync: end, depth: {depth})")), way, ceiling)?;
    }

    /// The commands of an iteration on a hardware queue are at most as many as the gate expects, and hardly fewer.
    #[test]
    fn a_queue_gets_as_many_commands_as_the_gate_expects(turns in programs::turns(10, 12), caches in any::<bool>()) {
        // An iteration in which the host waits is not gated.
        let text = programs::turns_text(&turns, 10, "").replace("host_sync()", "sync()");
        let (program, plan) = common::planned(&text);
        let mock = Mock::new(Script { has_gates: true, has_caches: caches, ..Script::default() });
        let schedule = common::placed(&program, &plan, &mock, &schedule::ScheduleOptions::default());
        let open = |gate_depth| {
            let options = exec::SessionOptions { gate_depth, cold: caches, ..common::exec_options() };
            exec::prepare(exec::RankSchedule::new(&program, &plan, &schedule), &mock, &options).unwrap_or_else(|error| panic!("{error}"))
        };
        let expected = open(1);
        let mut words = expected.gate_refused().expect("one command is too few").split(' ');
        let expected: usize = words.find_map(|word| word.parse().ok()).expect("it says how many");
        let mut session = open(4096);
        session.iterate(LaunchMode::Stream, 2, ITERATIONS - 2, &Control::default()).unwrap_or_else(|error| panic!("{error}"));
        let most = calls::most_of_a_queue(&schedule, &mock.take());
        prop_assert!((most..=most + 2).contains(&expected), "{} expected, {} issued\n{}", expected, most, text);
    }

    /// An iteration that runs alone takes as long as one that others follow. Its operations take longer than the host
    /// needs to issue them.
    #[test]
    fn an_iteration_takes_the_same_time_alone(turns in programs::turns(5, 6)) {
        // An iteration in which the host waits takes the host's time too.
        let text = programs::turns_text(&turns, 5, "").replace("host_sync()", "sync()");
        let text = text.replace("f32[8, 16]", "f32[8, 8000000]");
        let (program, plan) = common::planned(&text);
        let sim = Sim::new(Profile::named("h200").expect("embedded"));
        let schedule = common::placed(&program, &plan, &sim, &schedule::ScheduleOptions::default());
        let times = |in_flight| -> Vec<Nanos> {
            let options = exec::SessionOptions { in_flight, ..common::exec_options() };
            let mut session = exec::prepare(exec::RankSchedule::new(&program, &plan, &schedule), &sim, &options).unwrap_or_else(|error| panic!("{error}"));
            let samples = session.iterate(LaunchMode::Stream, 1, ITERATIONS - 1, &Control::default());
            samples.unwrap_or_else(|error| panic!("{error}")).time
        };
        prop_assert_eq!(times(1), times(4), "{}", text);
    }
}
