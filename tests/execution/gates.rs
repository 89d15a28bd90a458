//! Gates hold an iteration until the host has issued it; caches are emptied before it.

use aorta::exec::{self, Control, LaunchMode};

use super::{EffortPlan, MEETING, OVERLAPPING, Prepared};
use crate::common;
use crate::common::mock::{Mock, Script};

/// True if the last of three iterations is gated, and otherwise why none is.
fn held(text: &str, depth: u32, mode: LaunchMode) -> (bool, Option<String>) {
    let mock = Mock::new(Script { has_gates: true, ..Script::default() });
    let prepared = Prepared::of(text);
    let options = exec::SessionOptions { gate_depth: depth, ..common::exec_options() };
    let mut session = exec::prepare(prepared.rank(), &mock, &options).unwrap_or_else(|error| panic!("{error}"));
    session.capture().expect("nothing fails");
    let samples = session.iterate(mode, 1, 2, &Control::default()).expect("nothing fails");
    let holds = mock.take().iter().any(|call| call.starts_with("hold"));
    assert_eq!(samples.gated, holds);
    (holds, session.gate_refused().map(str::to_owned))
}

#[test]
fn only_what_fits_is_held() {
    assert_eq!(held(MEETING, 512, LaunchMode::Stream), (true, None));
    assert_eq!(held(MEETING, 512, LaunchMode::Graph), (false, None), "a graph is one call");
    assert_eq!(held(OVERLAPPING, 512, LaunchMode::Stream), (false, None), "iterations that overlap have no beginning");
    assert_eq!(held(MEETING, 0, LaunchMode::Stream), (false, None), "nobody wants it");
    let (holds, why) = held(MEETING, 6, LaunchMode::Stream);
    assert!(!holds);
    assert_eq!(
        why.unwrap(),
        "one hardware queue gets 8 commands per iteration, and only 6 (`gate_depth`) are certain to fit"
    );
    let copy = "stream a\nbuffer x: f32[4] in host\nbuffer y: f32[4]\nstep { on a { copy(x -> y) } }\n";
    let (holds, why) = held(copy, 512, LaunchMode::Stream);
    assert!(!holds);
    assert_eq!(
        why.unwrap(),
        "copies from or to pageable host memory, and row counts that a tensor holds, make the host wait for the device"
    );
}

#[test]
fn a_gate_that_opens_by_itself_is_counted_and_given_up() {
    let mock = Mock::new(Script { has_gates: true, forces_gates: true, ..Script::default() });
    let prepared = Prepared::of(MEETING);
    let mut session = prepared.session(&mock);
    let samples = session.iterate(LaunchMode::Stream, 1, 8, &Control::default()).expect("nothing fails");
    assert_eq!((samples.gated, samples.ungated), (true, 8));
    let holds = mock.take().iter().filter(|call| call.starts_with("hold")).count();
    assert!((3..=4).contains(&holds), "no more than are under way when the third opens: {holds}");
    let measured = prepared.measure(&mock, &[LaunchMode::Stream], &Control::default()).expect("nothing fails");
    let told = "as streams: 4 of 4 iterations began before the host had launched them completely: their times include host time";
    assert!(measured.warnings.iter().any(|warning| warning == told), "{:?}", measured.warnings);
}

/// A rank that has issued its iteration keeps its gate shut until the others have issued theirs.
#[test]
fn gates_of_ranks_open_when_all_have_issued() {
    const MANY: usize = 400;
    const WARMUP: u64 = 2;
    let text = "stream a\nstream b\nstep {\n  if rank == 0 { on a { for i in 0..400 { nop() } } } else { on b { nop() } }\n}\n";
    // In each run rank 0 starts while rank 1 has not started.
    // The clock is slow: a rank gives up waiting after 100 ms, and the other may not get a core for long.
    let mock = Mock::new(Script { has_gates: true, enters_late: Some(1), tick: Some(1), ..Script::default() });
    let planned = common::planned_ranks(text, 2);
    let schedules = common::world::schedules(&planned, &mock);
    let ranks = common::world::ranks(&planned, &schedules);
    let options = exec::SessionOptions { in_flight: 1, ..common::exec_options() };
    let mut open = exec::prepare_ranks(&ranks, &mock, &options).unwrap_or_else(|error| panic!("{error}"));
    for _ in 0..2 {
        let samples = open.iterate(LaunchMode::Stream, WARMUP, 20, &Control::default()).expect("nothing fails");
        assert!(samples.slowest.gated);
        // The first iteration is not gated. Of many gates that are open at once, one rank has opened at least half.
        let (mut many, mut one, mut opened) = (0, 0, 0);
        for call in mock.take() {
            many += usize::from(call.starts_with("launch") && call.ends_with("on a"));
            one += usize::from(call.starts_with("launch") && call.ends_with("on b"));
            if call.starts_with("open gate") {
                opened += 1;
                let iterations = 1 + (opened as usize).div_ceil(2);
                assert!(
                    one >= iterations && many >= MANY * iterations,
                    "{opened} gates open after {many} and {one} launches"
                );
            }
        }
        assert_eq!(opened, 2 * (WARMUP + 20 - 1));
    }
}

#[test]
fn the_time_without_the_gate_is_kept_beside() {
    let mock = Mock::new(Script { has_gates: true, ..Script::default() });
    let prepared = Prepared::of(MEETING);
    let measured = prepared.measure(&mock, &[LaunchMode::Stream], &Control::default()).expect("nothing fails");
    assert_eq!(measured.variants[0].ungated.as_ref().map(|times| times.n), Some(4));
    let graph = prepared.measure(&mock, &[LaunchMode::Graph], &Control::default()).expect("nothing fails");
    assert!(graph.variants[0].ungated.is_none());
}

#[test]
fn cold_caches_are_emptied_before_an_iteration_begins() {
    let calls = |text: &str, mode: LaunchMode| {
        let mock = Mock::new(Script { has_gates: true, has_caches: true, ..Script::default() });
        let prepared = Prepared::of(text);
        let options = exec::SessionOptions { cold: true, ..common::exec_options() };
        let mut session = exec::prepare(prepared.rank(), &mock, &options).unwrap_or_else(|error| panic!("{error}"));
        session.capture().expect("nothing fails");
        mock.take();
        session.iterate(mode, 1, 1, &Control::default()).expect("nothing fails");
        let calls = mock.take().into_iter();
        let of_interest = |call: &String| ["flush", "hold", "stamp"].iter().any(|word| call.starts_with(word));
        calls.filter(of_interest).collect::<Vec<_>>()
    };
    let flush = "flush on a before [0]";
    let held =
        [flush, "stamp t0 on a", "stamp t1 on a", flush, "hold a at gate 1 of 256", "stamp t2 on a", "stamp t3 on a"];
    assert_eq!(calls(MEETING, LaunchMode::Stream), held);
    let graph = [flush, "stamp t0 on a", "stamp t1 on a", flush, "stamp t2 on a", "stamp t3 on a"];
    assert_eq!(calls(MEETING, LaunchMode::Graph), graph);
    let overlapping = calls(OVERLAPPING, LaunchMode::Stream);
    assert!(!overlapping.iter().any(|call| call.starts_with("flush")), "there is no place for it: {overlapping:?}");
}

/// A library loads code in the first launch of a slot, and waits for the device meanwhile. A gate that is shut then opens only after
/// its time limit.
#[test]
fn the_warm_up_launches_each_slot_before_it_is_held() {
    let slots: String =
        (0..12).map(|slot| format!("  if iteration % 12 == {slot} {{ on a {{ f{slot}: nop() }} }}\n")).collect();
    let prepared = Prepared::of(&format!("stream a\nstep {{\n{slots}}}\n"));
    for warmup in [24, 36] {
        let mock = Mock::new(Script { has_gates: true, ..Script::default() });
        let effort = EffortPlan { warmup, iterations: 12 };
        let measured =
            prepared.measure_for(effort, &mock, &[LaunchMode::Stream], &Control::default()).expect("nothing fails");
        assert!(!measured.warnings.iter().any(|warning| warning.contains("began before")), "{:?}", measured.warnings);
        let (mut is_held, mut launched) = (false, 0);
        for call in mock.take() {
            match call.split(' ').next() {
                Some("hold") => is_held = true,
                Some("open") => is_held = false,
                Some("launch") if launched < 12 => {
                    launched += 1;
                    assert!(!is_held, "warm-up {warmup}: launch {launched} is held");
                }
                _ => {}
            }
        }
        assert_eq!(launched, 12);
    }
}
