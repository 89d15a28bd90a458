//! Messages of runs that hang, fail or die, provoked on mock backends, on the CPU and on the simulator. Each test also
//! shows that such a run ends.

use std::sync::{Arc, Mutex};

use aorta::backend::host::Host;
use aorta::backend::sim::Sim;
use aorta::base::Nanos;
use aorta::config::Profile;
use aorta::exec::{Backend, Control, Diagnosis, ExecError, LaunchMode, Ranks};

use crate::common::altered::Altered;
use crate::common::mock::{Mock, Script};
use crate::common::world::World;
use crate::common::{parallel, shown};

fn open(world: &World, backend: &dyn Backend, timeout: Nanos) -> Ranks {
    world.open(backend, timeout).unwrap_or_else(|error| panic!("{error}"))
}

/// The message of a run that fails.
fn told(text: &str, world: u32, backend: &dyn Backend, mode: LaunchMode, control: &Control) -> String {
    let ranks = World::new(text, world, backend);
    let mut open = open(&ranks, backend, Nanos(300_000_000));
    if mode == LaunchMode::Graph {
        open.capture(control).unwrap_or_else(|error| panic!("{error}"));
    }
    let error = open.iterate(mode, 0, 3, control).expect_err("it cannot end");
    shown(text, &error)
}

fn sim() -> Sim {
    Sim::new(Profile::named("h200").expect("embedded"))
}

/// The message of a failing run on the CPU, with enough time.
fn told_by_host(text: &str, world: u32, mode: LaunchMode) -> String {
    told(text, world, &Altered::patient(&Host), mode, &Control::default())
}

/// The message on the CPU and on the simulator, as streams and as graphs.
fn everywhere(text: &str, world: u32) -> String {
    let modes = [LaunchMode::Stream, LaunchMode::Graph];
    let host = parallel::map(&modes, |&mode| told_by_host(text, world, mode));
    let sim = modes.map(|mode| told(text, world, &sim(), mode, &Control::default()));
    let mut all = String::new();
    for (backend, said) in [("host", host), ("sim", sim.to_vec())] {
        for (mode, said) in modes.iter().zip(said) {
            all += &format!("--- {backend}, {}\n{said}", mode.name());
        }
    }
    all
}

#[test]
fn a_collective_to_which_a_rank_never_comes() {
    let text = "\
stream a
stream b
buffer x: f32[1024]
step {
  on a { scale: map(x * 2 -> x) }
  on b {
    if rank == 0 { all_reduce(x -> x) }
    map(x + 1 -> x)
  }
}
";
    insta::assert_snapshot!(everywhere(text, 2));
}

#[test]
fn collectives_that_differ() {
    let text = "\
buffer x: f32[1024]
step {
  nop()
  if rank == 2 { broadcast(x -> x, root: 0) } else { all_reduce(x -> x) }
}
";
    insta::assert_snapshot!(everywhere(text, 3));
}

#[test]
fn ranks_that_wait_for_each_other_in_a_circle() {
    let text = "\
mesh pairs = world
stream a
buffer x, y: f32[1024]
step {
  on a {
    recv(-> x, from: (rank + 1) % world)
    send(x, to: (rank + 1) % world)
  }
  map(x + 1 -> y)
}
";
    insta::assert_snapshot!(everywhere(text, 2));
}

#[test]
fn a_lane_that_waits_names_what_it_waits_for() {
    let text = "\
stream a
stream b
buffer x, y: f32[4]
step {
  on a { nop() nop() spin(10s) scale: map(x * 2 -> x) }
  on b { nop() map(x + 1 -> y) }
}
";
    let modes = [LaunchMode::Stream, LaunchMode::Graph];
    insta::assert_snapshot!(parallel::map(&modes, |&mode| told_by_host(text, 1, mode)).concat());
}

const TWO: &str = "\
buffer x, y: f32[8]
step {
  map(x + 1 -> x)
  all_reduce(x -> y)
}
";

#[test]
fn a_call_that_does_not_come_back_is_ended_from_outside() {
    if !crate::common::effort::is_due() {
        return;
    }
    let mock = Mock::new(Script { stays: Some((1, "launch #1 all_reduce on main")), ..Script::default() });
    let said = told(TWO, 2, &mock, LaunchMode::Stream, &Control::default());
    insta::assert_snapshot!(said);
    assert_eq!(mock.take().iter().filter(|call| *call == "abort").count(), 2, "once for each rank");
}

#[test]
fn a_call_that_never_returns_is_reported_to_the_caller_that_can_exit() {
    if !crate::common::effort::is_due() {
        return;
    }
    let script = Script { stays: Some((0, "synchronize")), stays_for_good: true, ..Script::default() };
    let mock = Mock::new(script);
    let (control, heard, let_go) = (Control::default(), Arc::new(Mutex::new(None)), mock.let_go());
    let hear = heard.clone();
    control.on_unresponsive(move |error| {
        *hear.lock().expect("no test panics with it") = Some(error.clone());
        // A real process would end here.
        let_go();
    });
    told(TWO, 2, &mock, LaunchMode::Stream, &control);
    let heard = heard.lock().expect("no test panics with it").take().expect("it was told");
    assert!(matches!(heard, ExecError::NoReturn { rank: 0, iteration: 3, .. }), "{heard}");
    assert!(mock.take().contains(&"abort".to_owned()));
}

#[test]
fn a_communicator_that_fails_is_told_with_its_ranks_and_collectives() {
    let mock = Mock::new(Script { comm_fails: true, hangs: true, ..Script::default() });
    let ranks = World::new(TWO, 2, &mock);
    // The mock's clock advances with each query, so this timeout is not reached.
    let mut open = open(&ranks, &mock, Nanos(i64::MAX));
    let error = open.iterate(LaunchMode::Stream, 0, 3, &Control::default()).expect_err("its communicator fails");
    insta::assert_snapshot!(shown(TWO, &error));
}

#[test]
fn a_rank_that_dies_ends_the_others() {
    // The other rank never reaches a stamp and would wait forever if it were not stopped.
    let mock =
        Mock::new(Script { panics: Some((1, "launch #1 all_reduce on main")), hangs: true, ..Script::default() });
    let ranks = World::new(TWO, 2, &mock);
    let mut open = open(&ranks, &mock, Nanos(i64::MAX));
    let error = open.iterate(LaunchMode::Stream, 0, 3, &Control::default()).expect_err("a rank dies");
    insta::assert_snapshot!(shown(TWO, &error));
}

#[test]
fn a_rank_that_fails_ends_the_others_wherever_they_wait() {
    let sim = sim();
    let backends: [&dyn Backend; 2] = [&Host, &sim];
    for backend in backends {
        let text = "buffer x: f32[8]\nstep { if rank == 1 { nop() } all_reduce(x -> x) }\n";
        let ranks = World::new(text, 3, backend);
        let mut open = open(&ranks, &Altered::failing(backend), Nanos(60_000_000_000));
        let error = open.iterate(LaunchMode::Stream, 0, 3, &Control::default()).expect_err("a rank fails");
        assert!(error.to_string().starts_with("rank 1: `launch`: told to"), "{}: {error}", backend.name());
    }
}

/// The result of a run that looks for the failing operation.
fn diagnosed(script: Script, diagnosis: Diagnosis, text: &str, world: u32) -> String {
    let mock = Mock::new(script);
    let ranks = World::new(text, world, &mock);
    // Measured with the mock's clock, which advances with each query.
    let mut open = open(&ranks, &mock, Nanos(100_000));
    match open.diagnose(diagnosis, &Control::default()) {
        Ok(()) => "nothing".to_owned(),
        Err(error) => shown(text, &error),
    }
}

const LATE: &str = "\
stream a
stream b
buffer x, y, z: f32[8]
step {
  on a { map(x + 1 -> y) }
  on b { fill(1 -> z) }
  on a { map(y + z -> x) }
}
";

#[test]
fn a_late_fault_is_told_with_what_was_under_way() {
    let mock = Mock::new(Script { fails: Some(("is t3 reached?", 0)), late: true, ..Script::default() });
    let said = told(LATE, 1, &mock, LaunchMode::Stream, &Control::default());
    let launch = Mock::new(Script { fails: Some(("launch #2 map on a", 1)), late: true, ..Script::default() });
    insta::assert_snapshot!(said + &told(LATE, 1, &launch, LaunchMode::Stream, &Control::default()));
}

#[test]
fn a_late_fault_is_found_one_operation_after_the_other() {
    // Stamp 511 follows each operation here: the second one's completes, and the third one's fails.
    let script = || Script { fails: Some(("is t511 reached?", 2)), late: true, ..Script::default() };
    insta::assert_snapshot!(diagnosed(script(), Diagnosis::Fault, LATE, 1));
    let nothing = diagnosed(Script::default(), Diagnosis::Fault, LATE, 1);
    assert_eq!(nothing, "nothing");
}

#[test]
fn a_fault_beside_a_collective_is_of_either() {
    let text = "\
stream a
stream b
buffer x, y: f32[8]
step {
  on a { all_reduce(x -> x) }
  on b { map(y + 1 -> y) }
}
";
    let script = Script { fails: Some(("is t511 reached?", 0)), late: true, ..Script::default() };
    insta::assert_snapshot!(diagnosed(script, Diagnosis::Fault, text, 1));
}

#[test]
fn stamps_find_where_a_device_hangs_that_says_nothing() {
    // The stamp after the second operation, those around the third, and the iteration's last never complete.
    let script = Script { never: vec![515, 516, 517, 1], ..Script::default() };
    insta::assert_snapshot!(diagnosed(script, Diagnosis::Hang, LATE, 1));
}
