//! The witness of order: every edge of the plan holds in a run, and a removed one is noticed.

use aorta::backend::host::Host;
use aorta::backend::sim::Sim;
use aorta::config::Profile;
use aorta::exec::{self, Backend, CheckedDependency, Control, LaunchMode, RankSchedule, Witness};
use aorta::model::Program;
use aorta::plan::Plan;
use aorta::schedule::{self, Command, Schedule};
use proptest::prelude::*;

use crate::common;
use crate::common::altered::Altered;
use crate::common::{effort, programs, shipped};

fn placed((program, plan): &(Program, Plan), backend: &dyn Backend) -> Schedule {
    common::placed(program, plan, backend, &schedule::ScheduleOptions::default())
}

fn witness(program: &(Program, Plan), schedule: &Schedule) -> Witness {
    witness_on(&Host, program, schedule)
}

fn witness_on(backend: &dyn Backend, (program, plan): &(Program, Plan), schedule: &Schedule) -> Witness {
    exec::witness(&[RankSchedule::new(program, plan, schedule)], backend, &common::exec_options())
        .unwrap_or_else(|error| panic!("{error}"))
}

/// The dependencies violated in some iterations on the CPU.
fn missed(witness: &mut Witness, mode: LaunchMode, iterations: u64) -> Vec<(CheckedDependency, u32)> {
    witness.ranks.reset(&Control::default()).expect("the CPU resets");
    let samples = witness.ranks.iterate(mode, 0, iterations, &Control::default());
    samples.unwrap_or_else(|error| panic!("{error}"));
    witness.missed(0).unwrap_or_else(|error| panic!("{error}")).expect("the CPU has memory")
}

#[test]
fn every_edge_of_every_shipped_file_holds() {
    for file in effort::due(shipped::all()) {
        let program = file.small(&[]);
        let schedule = placed(&program, &Host);
        let mut witness = witness(&program, &schedule);
        let edges: usize = program.1.steps.iter().map(|step| step.edges()).sum();
        assert!(witness.edges() > 0 || edges == 0, "{}: {edges} edges, and none is witnessed", file.path);
        witness.ranks.capture(&Control::default()).unwrap_or_else(|error| panic!("{error}"));
        for mode in [LaunchMode::Stream, LaunchMode::Graph] {
            assert_eq!(missed(&mut witness, mode, 3), [], "{}, {}", file.path, mode.name());
        }
    }
}

/// `b` reads what `a` writes, late.
const LATE: &str = "\
stream a
stream b
buffer x, y: f32[4]
step {
  on a { spin(300ms) }
  on a { fill(1 -> x) }
  on b { map(x + 1 -> y) }
}
";

fn without_waits(mut schedule: Schedule) -> Schedule {
    for step in &mut schedule.period {
        step.commands.retain(|command| !matches!(command, Command::Wait { .. }));
    }
    schedule
}

#[test]
fn a_wait_that_is_not_there_is_missed() {
    let program = common::planned(LATE);
    let whole = placed(&program, &Host);
    assert_eq!(missed(&mut witness(&program, &whole), LaunchMode::Stream, 3), []);
    let broken = without_waits(whole);
    let mut witness = witness(&program, &broken);
    witness.ranks.capture(&Control::default()).expect("the CPU captures");
    for mode in [LaunchMode::Stream, LaunchMode::Graph] {
        let missed = missed(&mut witness, mode, 3);
        let name = |(step, op): (usize, aorta::base::OpId)| program.0.op_name(program.0.cycle[step].op(op)).to_owned();
        let edges: Vec<_> = missed.iter().map(|(edge, count)| (name(edge.from), name(edge.to), *count)).collect();
        assert_eq!(edges, [("fill".to_owned(), "map".to_owned(), 3)], "{}", mode.name());
    }
}

#[test]
fn waits_across_iterations_are_witnessed_too() {
    // `b` writes what the next iteration's `a` reads.
    let text = "\
stream a
stream b
buffer x, y: f32[4]
step(sync: end, depth: 2) {
  on a { map(y + 1 -> x) }
  on b { spin(100ms) }
  on b { map(x * 0.5 -> y) }
}
";
    let program = common::planned(text);
    assert!(!program.1.steps[0].across.is_empty(), "there are edges across iterations");
    let whole = placed(&program, &Host);
    assert_eq!(missed(&mut witness(&program, &whole), LaunchMode::Stream, 6), []);
    let mut broken = whole;
    for step in &mut broken.period {
        step.commands.retain(|command| !matches!(command, Command::Wait { across: true, .. }));
    }
    let missed = missed(&mut witness(&program, &broken), LaunchMode::Stream, 6);
    assert!(!missed.is_empty(), "an iteration began before the one before it had written what it reads");
}

/// Iterations that use different streams.
const TURNS: &str = "\
stream a
stream b
buffer x, y: f32[4]
step {
  if iteration % 3 == 0 { on a { spin(100ms) fill(1 -> x) } }
  if iteration % 3 == 1 { on b { fill(2 -> y) } }
}
";

#[test]
fn an_iteration_that_does_not_wait_for_the_last_is_missed() {
    let program = common::planned(TURNS);
    let whole = placed(&program, &Host);
    let mut ordered = witness(&program, &whole);
    // The last iteration that does anything before the first of the next round is two iterations back.
    assert_eq!(ordered.edges(), 3, "one between two operations, and one from each iteration to the next");
    assert_eq!(missed(&mut ordered, LaunchMode::Stream, 7), []);
    let mut unordered = witness_on(&Altered::unordered(&Host), &program, &whole);
    let missed = missed(&mut unordered, LaunchMode::Stream, 7);
    let steps: Vec<_> = missed.iter().map(|(edge, _)| (edge.from.0, edge.to.0)).collect();
    assert!(steps.contains(&(0, 1)), "{missed:?}");
}

proptest! {
    #![proptest_config(crate::common::properties(40))]

    #[test]
    fn every_edge_of_iterations_in_turns_holds(turns in programs::turns(4, 6), depth in 0..4u32) {
        let options = if depth == 0 { String::new() } else { format!("(sync: end, depth: {depth})") };
        let text = programs::turns_text(&turns, 4, &options);
        let program = common::planned(&text);
        let mut witness = witness(&program, &placed(&program, &Host));
        witness.ranks.capture(&Control::default()).unwrap_or_else(|error| panic!("{error}"));
        for mode in [LaunchMode::Stream, LaunchMode::Graph] {
            prop_assert_eq!(missed(&mut witness, mode, 9), [], "{}, {}", mode.name(), text);
        }
    }
}

#[test]
fn the_simulator_has_no_witness() {
    let program = common::planned(LATE);
    let sim = Sim::new(Profile::named("h200").expect("embedded"));
    let schedule = placed(&program, &sim);
    let witness = exec::witness(&[RankSchedule::new(&program.0, &program.1, &schedule)], &sim, &common::exec_options());
    let mut witness = witness.unwrap_or_else(|error| panic!("{error}"));
    assert!(witness.edges() > 0);
    assert_eq!(witness.missed(0).expect("nothing fails"), None);
}
