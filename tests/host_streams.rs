//! Host streams: results do not depend on them, every dependency between threads of the CPU and the device holds, and the
//! simulator gives their work the time of the host's memory.

use aorta::backend::host::Host;
use aorta::backend::sim::Sim;
use aorta::config::Profile;
use aorta::exec::{Control, LaunchMode, Observation, Trace};
use aorta::schedule;
use proptest::prelude::*;

use crate::common;
use crate::common::programs::{self, Statement};

/// Number of streams of a random program; those from `FIRST_ON_HOST` on are host streams.
pub const STREAMS: usize = 5;
const FIRST_ON_HOST: usize = 3;

/// The text of a random program with host streams. All buffers are in pinned or in managed memory, and what runs on a host
/// stream writes one of them.
pub fn text(statements: &[Statement], options: &str) -> String {
    let fitted = statements.iter().map(|statement| match statement.clone() {
        Statement::Op { stream, shape, inputs, output: None, after } if stream >= FIRST_ON_HOST => {
            let read = |buffer: &usize| inputs.iter().any(|(input, _)| input % 4 == *buffer);
            let free = (0..4).find(|buffer| !read(buffer)).expect("at most two are read");
            Statement::Op { stream, shape, output: Some((free, stream)), inputs, after }
        }
        // `Use` reads a scratch buffer, which lies in device memory, so it stays on a device stream.
        Statement::Use { stream, source, output } => Statement::Use { stream: stream % FIRST_ON_HOST, source, output },
        other => other,
    });
    let text = programs::text(&fitted.collect::<Vec<_>>(), STREAMS, options);
    let declared =
        format!("stream s[{FIRST_ON_HOST}]\nstream h[{}](kind: host, threads: 2)\n", STREAMS - FIRST_ON_HOST);
    let text = text.replacen(&format!("stream s[{STREAMS}]\n"), &declared, 1);
    let space = if text.len().is_multiple_of(2) { "pinned" } else { "managed" };
    let text = text.replacen("f32[8, 16]\n", &format!("f32[8, 16] in {space}\n"), 1);
    (FIRST_ON_HOST..STREAMS).fold(text, |text, stream| {
        text.replace(&format!("on s[{stream}]"), &format!("on h[{}]", stream - FIRST_ON_HOST))
    })
}

fn traces(text: &str, profile: Profile) -> Vec<Trace> {
    let (program, plan) = common::planned(text);
    let sim = Sim::new(profile);
    let schedule = common::placed(&program, &plan, &sim, &schedule::ScheduleOptions::default());
    let mut session = common::session(&program, &plan, &schedule, &sim);
    let observation = Observation::once(LaunchMode::Stream, program.cycle.len());
    session.observe(observation, &Control::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn h200() -> Profile {
    Profile::named("h200").expect("embedded")
}

proptest! {
    #![proptest_config(crate::common::properties(40))]

    #[test]
    fn results_are_those_of_one_stream(statements in programs::statements(STREAMS, 24), overlap in 0..3u32) {
        let options = if overlap == 0 { String::new() } else { format!("(sync: end, depth: {overlap})") };
        let results = |text: &str, streams, mode| {
            let (program, plan) = common::planned(text);
            common::results(&program, &plan, &Host, streams, mode, 5)
        };
        let text = text(&statements, &options);
        let without = text.replace("(kind: host, threads: 2)", "");
        let expected = results(&without, Some(1), LaunchMode::Stream);
        prop_assert_eq!(&results(&text, None, LaunchMode::Stream), &expected, "host streams\n{}", text);
        prop_assert_eq!(&results(&text, None, LaunchMode::Graph), &expected, "as a graph\n{}", text);
        let beside_one = results(&text, Some(1), LaunchMode::Stream);
        prop_assert_eq!(&beside_one, &expected, "host streams beside one of the device\n{}", text);
    }

    #[test]
    fn the_simulator_keeps_the_plan(statements in programs::statements(STREAMS, 24)) {
        let text = text(&statements, "");
        let (_, plan) = common::planned(&text);
        for trace in traces(&text, h200()) {
            let span = |op| trace.spans.iter().find(|span| span.op == op);
            for later in &trace.spans {
                for edge in plan.steps[trace.step].incoming(later.op) {
                    let early = span(edge.from).is_none_or(|earlier| earlier.end <= later.start);
                    prop_assert!(early, "{:?} before {:?}\n{}", edge.from, later.op, text);
                }
            }
        }
    }
}

/// The time of work on the host follows from its bytes and threads, up to the bandwidth of the memory, which streams share;
/// compute units have no part in it.
#[test]
fn the_simulator_charges_the_memory_of_the_host() {
    let timed = |streams: u32, threads: u32, units: f64, value: f64| {
        let mut profile = h200();
        profile.units.0 = units;
        profile.host_memory.thread.0 = 10e9;
        profile.host_memory.bandwidth.0 = 40e9;
        profile.host_memory.value.0 = value;
        let text = format!(
            "stream h[{streams}](kind: host, threads: {threads})\nbuffer x[{streams}]: f32[1000000] in pinned\n\
             step {{ for i in 0..{streams} {{ on h[i] {{ map(x[i] * 2 -> x[i]) }} }} }}"
        );
        let longest = |trace: &Trace| trace.spans.iter().map(|span| (span.end - span.start).0).max();
        traces(&text, profile).iter().filter_map(longest).max().expect("it runs")
    };
    let time = |streams: u32, threads: u32, units: f64| timed(streams, threads, units, 0.0);
    // Four megabytes are read and written.
    assert_eq!(time(1, 1, 132.0), 800_000);
    assert_eq!(time(1, 2, 132.0), 400_000);
    assert_eq!(time(1, 4, 132.0), 200_000);
    assert_eq!(time(1, 64, 132.0), 200_000, "the memory is the limit");
    assert_eq!(time(1, 2, 1.0), 400_000, "no compute unit takes part");
    assert_eq!(time(2, 2, 132.0), 400_000, "two streams fill the memory");
    let four = time(4, 2, 132.0);
    assert!((799_000..=801_000).contains(&four), "four streams share it: {four}");
    // Each element is a value that is read and one that is written.
    assert_eq!(timed(1, 1, 132.0, 2.0), 4_800_000);
    assert_eq!(timed(1, 64, 132.0, 2.0), 262_500, "threads divide the values, and share the memory");
}

/// `--streams` limits streams of the device only.
#[test]
fn a_host_stream_stands_apart() {
    let text = "stream s[3]\nstream loader(kind: host)\nbuffer x: f32[64] in pinned\nbuffer y: f32[64]\n\
                step {\n  on loader { map(x + 1 -> x) }\n  for i in 0..3 { on s[i] { map(x * 2 -> y) } }\n}";
    let (program, plan) = common::planned(text);
    let options = schedule::ScheduleOptions { streams: Some(1), ..schedule::ScheduleOptions::default() };
    let schedule = common::placed(&program, &plan, &Host, &options);
    let lanes: Vec<_> = schedule.lanes.iter().map(|lane| (lane.streams.len(), lane.threads.is_some())).collect();
    assert_eq!(lanes, [(3, false), (1, true)]);
    let text = aorta::report::dump::schedule(&program, &schedule);
    assert!(text.contains("lane loader: on the host, threads 1, for loader\n"), "{text}");
}
