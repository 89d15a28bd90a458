//! The same program gives the same results however it runs: with any number of streams, as streams or as a graph; and
//! the simulator keeps every dependency of the plan.

use aorta::backend::host::Host;
use aorta::backend::sim::Sim;
use aorta::config::Profile;
use aorta::exec::{Control, LaunchMode, Observation};
use aorta::schedule;
use proptest::prelude::*;

use crate::common;
use crate::common::programs;

fn check_results(text: &str, iterations: u64) -> Result<(), TestCaseError> {
    let (program, plan) = common::planned(text);
    let results = |streams, mode| common::results(&program, &plan, &Host, streams, mode, iterations);
    let serial = results(Some(1), LaunchMode::Stream);
    prop_assert_eq!(&results(None, LaunchMode::Stream), &serial, "all streams\n{}", text);
    prop_assert_eq!(&results(Some(2), LaunchMode::Stream), &serial, "two streams\n{}", text);
    prop_assert_eq!(&results(None, LaunchMode::Graph), &serial, "as a graph\n{}", text);
    Ok(())
}

/// Checks that every operation starts after all of its dependencies have ended, as streams and as a graph.
fn check_simulated_order(text: &str, profile: &str) -> Result<(), TestCaseError> {
    let (program, plan) = common::planned(text);
    let sim = Sim::new(Profile::named(profile).expect("embedded"));
    let schedule = common::placed(&program, &plan, &sim, &schedule::ScheduleOptions::default());
    let mut session = common::session(&program, &plan, &schedule, &sim);
    session.capture().unwrap_or_else(|error| panic!("{error}"));
    for mode in [LaunchMode::Stream, LaunchMode::Graph] {
        let traces = session
            .observe(Observation::once(mode, program.cycle.len()), &Control::default())
            .unwrap_or_else(|error| panic!("{error}"));
        for trace in &traces {
            let graph = &plan.steps[trace.step];
            let span = |op| trace.spans.iter().find(|span| span.op == op);
            for later in &trace.spans {
                for edge in graph.incoming(later.op) {
                    if let Some(earlier) = span(edge.from) {
                        prop_assert!(
                            earlier.end <= later.start,
                            "{:?}: {:?} ends at {}, {:?} starts at {}\n{}",
                            mode,
                            edge.from,
                            earlier.end,
                            later.op,
                            later.start,
                            text
                        );
                    }
                }
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(crate::common::properties(40))]

    #[test]
    fn streams_and_graphs_change_nothing(statements in programs::statements(5, 24)) {
        check_results(&programs::text(&statements, 5, ""), 3)?;
    }

    #[test]
    fn overlapping_iterations_change_nothing(statements in programs::statements(4, 16), depth in 1..4u32) {
        check_results(&programs::text(&statements, 4, &format!("(sync: end, depth: {depth})")), 6)?;
    }

    #[test]
    fn iterations_in_turns_change_nothing(turns in programs::turns(4, 8)) {
        check_results(&programs::turns_text(&turns, 4, ""), 9)?;
    }

    #[test]
    fn the_simulator_keeps_the_plan(statements in programs::statements(5, 24)) {
        let text = programs::text(&statements, 5, "");
        check_simulated_order(&text, "h200")?;
        check_simulated_order(&text, "mi300x")?;
    }
}

#[test]
fn an_iteration_may_use_its_number() {
    let text = "
        stream a
        stream b
        buffer x[2]: f32[4] = zeros
        buffer y: f32[4] = zeros
        step(sync: end, depth: 3) {
          let s = iteration % 2
          on a { map(x[s] + 1 -> x[s]) }
          on b { map(y * 0.5 + x[s] -> y) }
        }";
    check_results(text, 7).unwrap_or_else(|error| panic!("{error}"));
}
