//! The calls that a session makes, and how a run ends when something goes wrong, on a mock backend that records every
//! call and fails on request.

mod gates;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use aorta::backend::host::Host;
use aorta::base::{Nanos, SourceMap};
use aorta::config::{DataSetting, EffortPlan};
use aorta::exec::{self, Control, ExecError, Health, LaunchMode, Observation, Sensors, Session};
use aorta::measure::{self, Measured, Request};
use aorta::model::Program;
use aorta::plan::Plan;
use aorta::schedule::{self, Schedule};

use crate::common::mock::{ELAPSED, Mock, Script};
use crate::common::{self, shipped, shown};

/// Two streams that wait for each other, and one that is unused.
const MEETING: &str = "\
stream a
stream b
stream unused
buffer x, y, z: f32[4]
step {
  on a { fill(1 -> x) }
  on b { fill(2 -> y) }
  on a { sum: map(x + y -> z) }
}
metric gain = speedup
";

/// Overlapping iterations: the next iteration's `a` writes what `b` reads.
const OVERLAPPING: &str = "\
stream a
stream b
buffer x, y: f32[4]
step(sync: end, depth: 2) {
  on a { map(x * 0.5 -> x) }
  on b { map(x + 1 -> y) }
}
";

/// A program with its schedule for the mock.
struct Prepared {
    program: Program,
    plan: Plan,
    schedule: Schedule,
}

impl Prepared {
    fn new((program, plan): (Program, Plan)) -> Prepared {
        let options = schedule::ScheduleOptions::default();
        let schedule = common::placed(&program, &plan, &Mock::silent(), &options);
        Prepared { program, plan, schedule }
    }

    fn of(text: &str) -> Prepared {
        Prepared::new(common::planned(text))
    }

    fn rank(&self) -> exec::RankSchedule<'_> {
        exec::RankSchedule::new(&self.program, &self.plan, &self.schedule)
    }

    fn session(&self, mock: &Mock) -> Session {
        exec::prepare(self.rank(), mock, &common::exec_options()).unwrap_or_else(|error| panic!("{error}"))
    }

    fn measure(&self, mock: &Mock, modes: &[LaunchMode], control: &Control) -> Result<Measured, ExecError> {
        self.measure_for(EffortPlan { warmup: 2, iterations: 4 }, mock, modes, control)
    }

    fn measure_for(
        &self,
        effort: EffortPlan,
        mock: &Mock,
        modes: &[LaunchMode],
        control: &Control,
    ) -> Result<Measured, ExecError> {
        measure::measure(&Request {
            plans: &[],
            ranks: &[self.rank()],
            backend: mock,
            modes,
            effort,
            observed_iterations: 2,
            exec: common::exec_options(),
            control,
            profile: None,
            sources: &SourceMap::new(),
            keep: &|_| {},
            shares: std::cell::OnceCell::new(),
        })
    }
}

/// A short summary of the measurements.
fn summary(measured: &Measured) -> String {
    let mut text = format!("complete: {}\n", measured.is_complete());
    text.extend(measured.failure.iter().map(|error| format!("failure: {error}\n")));
    for variant in &measured.variants {
        let serial = variant.serial.as_ref().map_or(0, |serial| serial.n);
        let observed = !variant.ranks[0].trace.is_empty();
        text +=
            &format!("{}: {} samples, {serial} on one stream, observed: {observed}\n", variant.launch, variant.time.n);
        text.extend(variant.notes.iter().map(|note| format!("note: {note}\n")));
    }
    // Warnings about figures invented by the mock are not relevant here.
    let warnings = measured.warnings.iter().filter(|warning| !warning.contains("host launch time"));
    text.extend(
        warnings
            .filter(|warning| !warning.contains("observed iterations take"))
            .map(|warning| format!("warning: {warning}\n")),
    );
    text
}

// --- The calls of a run ---------------------------------------------------------------------------------------------

#[test]
fn calls_of_streams() {
    let mock = Mock::new(Script::default());
    let mut session = Prepared::of(MEETING).session(&mock);
    session.iterate(LaunchMode::Stream, 1, 2, &Control::default()).expect("nothing fails");
    insta::assert_snapshot!(mock.take().join("\n"));
}

#[test]
fn calls_of_a_graph() {
    let mock = Mock::new(Script::default());
    let mut session = Prepared::of(MEETING).session(&mock);
    session.capture().expect("nothing fails");
    session.iterate(LaunchMode::Graph, 0, 2, &Control::default()).expect("nothing fails");
    insta::assert_snapshot!(mock.take().join("\n"));
}

/// A capture records the events of an iteration, and no stream can wait for an event that was last recorded in one.
#[test]
fn streams_can_follow_a_graph() {
    let mock = Mock::new(Script::default());
    for text in [MEETING, OVERLAPPING] {
        let mut session = Prepared::of(text).session(&mock);
        for mode in [LaunchMode::Stream, LaunchMode::Graph, LaunchMode::Stream] {
            session.capture().expect("nothing fails");
            session.iterate(mode, 1, 3, &Control::default()).unwrap_or_else(|error| panic!("{mode:?}: {error}"));
        }
    }
    let script = Script { refuses_capture: true, ..Script::default() };
    let mut session = Prepared::of(OVERLAPPING).session(&Mock::new(script));
    assert!(session.capture().is_err(), "the mock refuses");
    session.iterate(LaunchMode::Stream, 1, 3, &Control::default()).expect("streams are possible");
}

#[test]
fn calls_of_overlapping_iterations() {
    let mock = Mock::new(Script::default());
    let mut session = Prepared::of(OVERLAPPING).session(&mock);
    session.iterate(LaunchMode::Stream, 0, 3, &Control::default()).expect("nothing fails");
    insta::assert_snapshot!(mock.take().join("\n"));
}

#[test]
fn calls_of_an_observed_iteration() {
    let mock = Mock::new(Script::default());
    let mut session = Prepared::of(MEETING).session(&mock);
    let traces = session.observe(Observation::once(LaunchMode::Stream, 1), &Control::default()).expect("nothing fails");
    assert_eq!(traces[0].spans.len(), 3);
    insta::assert_snapshot!(mock.take().join("\n"));
}

#[test]
fn a_second_capture_asks_for_nothing() {
    let mock = Mock::new(Script::default());
    let mut session = Prepared::of(MEETING).session(&mock);
    session.capture().expect("nothing fails");
    mock.take();
    session.capture().expect("nothing fails");
    assert_eq!(mock.take(), Vec::<String>::new());
}

/// The calls of a run by iteration, without the numbers of stamps. From the start of one iteration to that of the next
/// are all calls for it: its launches, and the polling for an earlier one.
fn iterations(calls: &[String]) -> Vec<Vec<String>> {
    let is_stamp = |word: &str| word.strip_prefix('t').is_some_and(|number| number.parse::<u32>().is_ok());
    let plain = |call: &str| {
        let words = call.split(' ').filter(|word| !is_stamp(word.trim_end_matches('?')));
        words.collect::<Vec<_>>().join(" ")
    };
    let mut found: Vec<Vec<String>> = Vec::new();
    for (call, next) in calls.iter().zip(&calls[1..]) {
        // The clock is read before and after an iteration is launched, and before waiting for it.
        if call == "now?" && next != "now?" && !next.starts_with("is ") {
            found.push(Vec::new());
        }
        if let Some(last) = found.last_mut() {
            last.push(plain(call));
        }
    }
    found
}

#[test]
fn every_iteration_asks_for_the_same() {
    let moe = || Prepared::new(shipped::named("moe").small(&[]));
    let cases: [(Prepared, LaunchMode); 5] = [
        (Prepared::of(MEETING), LaunchMode::Stream),
        (Prepared::of(MEETING), LaunchMode::Graph),
        (Prepared::of(OVERLAPPING), LaunchMode::Stream),
        (moe(), LaunchMode::Stream),
        (moe(), LaunchMode::Graph),
    ];
    for (prepared, mode) in cases {
        let mock = Mock::new(Script::default());
        let mut session = prepared.session(&mock);
        session.capture().expect("nothing fails");
        mock.take();
        // More iterations than there are stamps.
        session.iterate(mode, 0, 600, &Control::default()).expect("nothing fails");
        let iterations = iterations(&mock.take());
        assert_eq!(iterations.len(), 600, "{mode:?}");
        // At the start the host runs ahead; at the end nothing is left to issue. If iterations overlap, every second
        // one uses the same events and memory.
        let period = prepared.schedule.period.len();
        let typical = &iterations[2..][..period];
        for (turn, iteration) in iterations[2..598].iter().enumerate() {
            assert_eq!(iteration, &typical[turn % period], "{mode:?}, iteration {turn}");
            assert_eq!(iteration.len(), typical[0].len(), "{mode:?}, iteration {turn}");
        }
        let launches = typical[0].iter().filter(|call| call.starts_with("launch")).count();
        let stamps = typical[0].iter().filter(|call| call.starts_with("stamp")).count();
        let overlapping = prepared.schedule.depth > 1;
        match mode {
            LaunchMode::Stream => assert_eq!(launches, prepared.program.cycle[0].ops.len()),
            LaunchMode::Graph => assert_eq!(launches, 1),
        }
        assert_eq!(stamps, if overlapping { 1 } else { 2 }, "no operation is timed while the whole is measured");
    }
}

// --- What goes wrong ------------------------------------------------------------------------------------------------

#[test]
fn a_refused_capture_goes_on_as_streams() {
    let prepared = Prepared::of(MEETING);
    let refusals = [
        ("refused at its end", Script { refuses_capture: true, ..Script::default() }),
        ("refused at its beginning", Script { knows_no_capture: true, ..Script::default() }),
    ];
    let mut text = String::new();
    for (what, script) in refusals {
        for modes in [&[LaunchMode::Graph][..], &[LaunchMode::Stream, LaunchMode::Graph]] {
            let mock = Mock::new(script.clone());
            let measured = prepared.measure(&mock, modes, &Control::default()).expect("it goes on");
            text += &format!("--- {what}, {modes:?}\n{}", summary(&measured));
            let calls = mock.take();
            assert!(!calls.iter().any(|call| call.starts_with("launch graph")), "nothing runs as a graph");
        }
    }
    insta::assert_snapshot!(text);
}

#[test]
fn a_refused_capture_leaves_a_session_that_works() {
    let mock = Mock::new(Script { refuses_capture: true, ..Script::default() });
    let mut session = Prepared::of(MEETING).session(&mock);
    let error = session.capture().expect_err("the mock refuses");
    assert!(error.to_string().contains("endCapture"), "{error}");
    mock.take();
    let samples = session.iterate(LaunchMode::Stream, 0, 3, &Control::default()).expect("streams work");
    assert_eq!(samples.time, [ELAPSED; 3]);
}

#[test]
fn a_fault_points_at_its_operation() {
    let text = "\
stream a
buffer x: f32[4]
step {
  for i in 0..2 {
    on a { map(x + 1 -> x) }
  }
  on a { second: map(x + 1 -> x) }
}
";
    // All three share one kernel and shape; the reported location is that of the failing launch.
    let prepared = Prepared::of(text);
    let mut shown_all = String::new();
    for faulty in [1, 2] {
        let mock = Mock::new(Script { faulty: Some(faulty), ..Script::default() });
        for modes in [&[LaunchMode::Stream][..], &[LaunchMode::Graph]] {
            let error = prepared.measure(&mock, modes, &Control::default()).expect_err("the mock fails");
            shown_all += &format!("--- launch {faulty}, {modes:?}\n{}", shown(text, &error));
        }
    }
    insta::assert_snapshot!(shown_all);
}

/// A run in both modes in which the `turn`-th call of a kind fails.
fn failing(call: &'static str, turn: u32) -> Result<Measured, ExecError> {
    let mock = Mock::new(Script { fails: Some((call, turn)), ..Script::default() });
    Prepared::of(MEETING).measure(&mock, &[LaunchMode::Stream, LaunchMode::Graph], &Control::default())
}

#[test]
fn a_fault_keeps_what_was_measured() {
    // As streams, operation 0 is launched in six iterations, and in two observed ones with one unobserved before each;
    // then in two captures; then in the serial run.
    let mut text = String::new();
    for (when, call, turn) in [
        ("while observing", "launch #0 fill on a", 7),
        ("while the graph is measured", "launch graph 0 on a", 3),
        ("while the graph to be observed is captured", "end capture on a", 1),
        ("in the serial run", "launch #0 fill on a", 13),
        ("in the serial run as a graph", "launch graph 0 on a", 9),
    ] {
        let measured = failing(call, turn).unwrap_or_else(|error| panic!("{when}: {error}"));
        assert!(measured.failure.is_some() && !measured.is_complete(), "{when}");
        text += &format!("--- a fault {when}\n{}", summary(&measured));
    }
    insta::assert_snapshot!(text);
}

#[test]
fn a_fault_before_the_first_headline_is_all_there_is() {
    for turn in [0, 1] {
        let error = failing("launch #0 fill on a", turn).expect_err("nothing was measured");
        assert!(matches!(error, ExecError::Operation { .. }), "{error}");
    }
}

#[test]
fn a_refused_capture_of_the_serial_run_is_told() {
    let measured = failing("end capture on a", 2).expect("it goes on");
    insta::assert_snapshot!(summary(&measured));
}

#[test]
fn a_backend_without_memory_is_not_verified() {
    let prepared = Prepared::of(MEETING);
    let verification = measure::verify(&measure::VerifyRequest {
        ranks: &[(0, &prepared.program, &prepared.plan)],
        backend: &Mock::silent(),
        streams: None,
        modes: &[LaunchMode::Stream, LaunchMode::Graph],
        options: common::exec_options(),
        control: &Control::default(),
    });
    let verification = verification.expect("nothing fails").expect("nobody stopped it");
    assert!(!verification.record.held);
    assert!(verification.record.variants.is_empty());
    let nothing = |mode| format!("{mode}: nothing was verified: there was nothing to compare");
    assert_eq!(verification.warnings, [nothing("as streams"), nothing("as a graph")]);
}

#[test]
fn a_hang_names_what_is_busy() {
    let prepared = Prepared::of(MEETING);
    for (mode, iteration) in [(LaunchMode::Stream, 0), (LaunchMode::Graph, 0)] {
        let mock = Mock::new(Script { hangs: true, ..Script::default() });
        let options = exec::SessionOptions { timeout: Nanos(50_000), ..common::exec_options() };
        let mut session = exec::prepare(prepared.rank(), &mock, &options).expect("it opens");
        session.capture().expect("the mock captures");
        let error = session.iterate(mode, 1, 2, &Control::default()).expect_err("the mock hangs");
        let ExecError::Hang { iteration: hung, .. } = error else { panic!("{error}") };
        assert_eq!(hung, iteration);
        insta::assert_snapshot!(format!("hang_{}", mode.name()), shown(MEETING, &error));
    }
}

#[test]
fn a_program_that_does_not_fit_is_refused() {
    let mock = Mock::new(Script { memory_bytes: Some(1024), ..Script::default() });
    let prepared = Prepared::of(MEETING);
    let opened = exec::prepare(prepared.rank(), &mock, &common::exec_options());
    let error = opened.err().expect("three buffers do not fit");
    insta::assert_snapshot!(shown(MEETING, &error));
}

// --- Interruptions --------------------------------------------------------------------------------------------------

/// A run that is interrupted at the `turn`-th call of a kind.
fn interrupted(modes: &[LaunchMode], call: &'static str, turn: u32) -> Measured {
    let control = Arc::new(Control::default());
    let script = Script { interrupt: Some((control.clone(), call, turn)), ..Script::default() };
    let mock = Mock::new(script);
    let measured = Prepared::of(MEETING).measure(&mock, modes, &control).expect("an interruption is no error");
    assert!(control.stop.load(Ordering::Relaxed), "the call was made: {call}");
    measured
}

#[test]
fn an_interrupted_run_keeps_its_samples() {
    // Two of six iterations are warm-up; each launches operation 0 once.
    let mut text = String::new();
    for (when, call, turn) in [
        ("while warming up", "launch #0 fill on a", 0),
        ("in the second measured iteration", "launch #0 fill on a", 3),
        ("in the last", "launch #0 fill on a", 5),
        ("in the graph's third measured iteration", "launch graph 0 on a", 4),
    ] {
        text += &format!(
            "--- interrupted {when}\n{}",
            summary(&interrupted(&[LaunchMode::Stream, LaunchMode::Graph], call, turn))
        );
    }
    insta::assert_snapshot!(text);
}

#[test]
fn an_iteration_under_way_is_finished() {
    let control = Arc::new(Control::default());
    let script = Script { interrupt: Some((control.clone(), "launch #1 fill on b", 2)), ..Script::default() };
    let mock = Mock::new(script);
    let mut session = Prepared::of(MEETING).session(&mock);
    let samples = session.iterate(LaunchMode::Stream, 0, 100, &control).expect("an interruption is no error");
    assert!(samples.stopped);
    assert_eq!((samples.time.len(), samples.issue.len()), (3, 3));
    assert_eq!(control.done.load(Ordering::Relaxed), 3);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for call in mock.take() {
        *counts.entry(call).or_default() += 1;
    }
    assert_eq!(counts["launch #0 fill on a"], 3);
    assert_eq!(counts["launch #2 map on a"], 3);
    assert_eq!(counts["synchronize"], 1);
}

#[test]
fn an_interruption_after_the_headline_leaves_an_incomplete_run() {
    // The headline has six iterations, two observed ones have one unobserved before each, and the serial run has as
    // many again.
    for (when, turn) in [("in the last iteration", 5), ("while observing", 6), ("while observing again", 9)] {
        let measured = interrupted(&[LaunchMode::Stream], "launch #0 fill on a", turn);
        assert!(!measured.is_complete(), "interrupted {when}:\n{}", summary(&measured));
    }
    let serial = interrupted(&[LaunchMode::Stream], "launch #0 fill on a", 12);
    assert!(!serial.is_complete(), "interrupted in the serial run:\n{}", summary(&serial));
}

// --- The device's state ---------------------------------------------------------------------------------------------

fn health(clock: u32, reasons: &[&str]) -> Health {
    let reasons = reasons.iter().map(ToString::to_string).collect();
    let sensors = Sensors { clock_mhz: Some(clock), max_clock_mhz: Some(1980), reasons, ..Sensors::default() };
    Health { sensors, ..Health::default() }
}

#[test]
fn throttling_is_reported() {
    let script = Script { health: vec![health(345, &[]), health(1410, &["power cap"])], ..Script::default() };
    let prepared = Prepared::of(OVERLAPPING);
    let measured = prepared.measure(&Mock::new(script), &[LaunchMode::Stream], &Control::default());
    let measured = measured.expect("nothing fails");
    let told = "as streams: throttled: power cap, clock 1410 of 1980 MHz";
    assert!(measured.warnings.iter().any(|warning| warning == told), "{:?}", measured.warnings);
    let clocks: Vec<_> = measured.variants[0].health.iter().map(|health| health.clock_mhz).collect();
    assert_eq!(clocks, [Some(345), Some(1410)]);
}

/// The state is read before the first block and after each; throttling begins in the third of four.
#[test]
fn device_state_is_read_between_blocks() {
    let (fine, held) = (health(1980, &[]), health(1500, &["temperature"]));
    let script = Script { health: vec![fine.clone(), fine.clone(), fine.clone(), held, fine], ..Script::default() };
    let mock = Mock::new(script);
    let prepared = Prepared::of(MEETING.split("metric").next().expect("a text"));
    let effort = EffortPlan { warmup: 3, iterations: 45 };
    let measured = prepared.measure_for(effort, &mock, &[LaunchMode::Stream], &Control::default());
    let measured = measured.expect("nothing fails");
    let told =
        "as streams: throttled: temperature, clock 1500 of 1980 MHz; that was while 23 of 45 iterations were measured";
    assert!(measured.warnings.iter().any(|warning| warning == told), "{:?}", measured.warnings);
    let variant = &measured.variants[0];
    let blocks: Vec<_> = variant.blocks.iter().map(|block| (block.first, block.throttled.is_some())).collect();
    // Throttling was active when the last block began.
    assert_eq!(blocks, [(0, false), (11, false), (22, true), (33, true)]);
    assert_eq!(variant.time.n, 45, "no sample is thrown away");
    // Three warm-up iterations and two to get ahead, three times; 45 measured ones; and two observed ones with one
    // before each.
    let launches = mock.take().iter().filter(|call| *call == "launch #0 fill on a").count();
    assert_eq!(launches, 3 + 3 * 2 + 45 + 4);
}

#[test]
fn a_device_without_throttle_data_gets_no_warning() {
    let prepared = Prepared::of(OVERLAPPING);
    let measured = prepared.measure(&Mock::new(Script::default()), &[LaunchMode::Stream], &Control::default());
    let measured = measured.expect("nothing fails");
    assert!(!measured.warnings.iter().any(|warning| warning.contains("throttled")), "{:?}", measured.warnings);
    assert!(measured.variants[0].health.is_empty());
}

// --- The gate -------------------------------------------------------------------------------------------------------

#[test]
fn calls_of_held_iterations() {
    let mock = Mock::new(Script { has_gates: true, ..Script::default() });
    let mut session = Prepared::of(MEETING).session(&mock);
    let samples = session.iterate(LaunchMode::Stream, 1, 1, &Control::default()).expect("nothing fails");
    assert!(samples.gated);
    assert_eq!(samples.ungated, 0);
    insta::assert_snapshot!(mock.take().join("\n"));
}

// --- Data -----------------------------------------------------------------------------------------------------------

#[test]
fn other_contents_take_the_place_of_random_floats_alone() {
    let text = "\
stream a
buffer x: f32[8] = random(1)
buffer i: i32[8] = random(2)
buffer one: f32[8] = ones
buffer sum: f32[8]
step { on a { map(x + one -> sum) } }
";
    let Prepared { program, .. } = Prepared::of(text);
    let (_, plan) = common::planned(text);
    let schedule = common::placed(&program, &plan, &Host, &schedule::ScheduleOptions::default());
    let read = |contents: DataSetting| -> Vec<Vec<u8>> {
        let options = exec::SessionOptions { contents, ..common::exec_options() };
        let mut session = exec::prepare(exec::RankSchedule::new(&program, &plan, &schedule), &Host, &options)
            .unwrap_or_else(|error| panic!("{error}"));
        session.iterate(LaunchMode::Stream, 0, 1, &Control::default()).expect("the CPU runs");
        let memories = (0..program.memories.len()).map(aorta::base::MemoryId::from);
        memories.map(|memory| session.read(memory).expect("reads").expect("has memory")).collect()
    };
    let (random, zeros) = (read(DataSetting::Normal), read(DataSetting::Zeros));
    assert_ne!(random[0], zeros[0]);
    assert_eq!(zeros[0], [0; 32]);
    assert_eq!(random[1], zeros[1], "integers may be indices");
    let ones: Vec<u8> = std::iter::repeat_n(1.0f32.to_le_bytes(), 8).flatten().collect();
    assert_eq!([&zeros[2], &zeros[3]], [&ones, &ones]);
}
