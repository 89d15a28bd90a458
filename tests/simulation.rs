//! The simulator compared with closed formulas, on a device without latencies; and its results for a small program.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aorta::backend::sim::Sim;
use aorta::base::Nanos;
use aorta::config::{Profile, QueueRule, SourcedFigure};
use aorta::cost::floor::floor;
use aorta::exec::{self, Control, LaunchMode, Observation, Session, Trace};
use aorta::schedule;
use proptest::prelude::*;

use crate::common::altered::Altered;
use crate::common::world::World;
use crate::common::{self, worlds};

/// An H200 without any latency: only what is asked for takes time.
fn ideal() -> Profile {
    let mut profile = Profile::named("h200").expect("embedded");
    let zero = || SourcedFigure(0.0, "test".to_owned());
    for figure in [
        &mut profile.kernel_floor,
        &mut profile.memory_latency,
        &mut profile.memset_latency,
        &mut profile.instruction_latency,
        &mut profile.memory_wait,
        &mut profile.cache_wait,
        &mut profile.block_exchange,
        &mut profile.block_handoff,
        &mut profile.block_start,
        &mut profile.unit_reads,
        &mut profile.unit_writes,
        &mut profile.matrix_floor,
        &mut profile.gap_same,
        &mut profile.gap_event,
        &mut profile.gap_wait,
        &mut profile.gap_engine,
        &mut profile.gap_stamp,
        &mut profile.launch_latency,
        &mut profile.host.kernel,
        &mut profile.host.matrix,
        &mut profile.host.copy,
        &mut profile.host.copy_on_device,
        &mut profile.host.memset,
        &mut profile.host.collective,
        &mut profile.host.record,
        &mut profile.host.wait,
        &mut profile.host.stamp,
        &mut profile.graph.launch,
        &mut profile.graph.launch_branch,
        &mut profile.graph.gap,
        &mut profile.graph.dispatch,
        &mut profile.graph.start,
        &mut profile.graph.switch,
        &mut profile.graph.branch_wait,
        &mut profile.queues.dispatch,
        &mut profile.queues.switch,
        &mut profile.host_to_device.latency,
        &mut profile.device_to_host.latency,
        &mut profile.host_link.latency,
    ] {
        *figure = zero();
    }
    profile.host_link.both = SourcedFigure(1e15, "test".to_owned());
    profile.bandwidth = SourcedFigure(1e12, "test".to_owned());
    profile.bandwidth_efficiency = SourcedFigure(1.0, "test".to_owned());
    profile.cache = SourcedFigure(0.0, "test".to_owned());
    profile
}

fn set(figure: &mut SourcedFigure, value: f64) {
    *figure = SourcedFigure(value, "test".to_owned());
}

/// A step's body on streams `s[0]` to `s[15]`.
fn session(profile: Profile, body: &str) -> Session {
    session_of(
        profile,
        &format!(
            "stream s[16]\nbuffer x, y: u8[16, 1000000]\nbuffer up, down: u8[16, 1000000] in pinned\nstep {{\n{body}\n}}\n"
        ),
    )
}

/// A whole file.
fn session_of(profile: Profile, text: &str) -> Session {
    let (program, plan) = common::planned(text);
    let sim = Sim::new(profile);
    let schedule = common::placed(&program, &plan, &sim, &schedule::ScheduleOptions::default());
    common::session(&program, &plan, &schedule, &sim)
}

/// Traces one iteration of a step.
fn trace(profile: Profile, body: &str, mode: LaunchMode) -> Trace {
    let mut session = session(profile, body);
    session.capture().unwrap_or_else(|error| panic!("{error}"));
    session.observe(Observation::once(mode, 1), &Control::default()).unwrap_or_else(|error| panic!("{error}")).remove(0)
}

fn time(profile: Profile, body: &str) -> Nanos {
    let streams = trace(profile.clone(), body, LaunchMode::Stream);
    let graph = trace(profile, body, LaunchMode::Graph);
    assert_eq!(streams.time, graph.time, "without latencies a graph takes as long as streams");
    streams.time
}

const US: i64 = 1000;

#[test]
fn blocks_on_units_take_whole_rounds() {
    for (blocks, rounds) in [(1, 1), (131, 1), (132, 1), (133, 2), (264, 2), (1000, 8)] {
        let time = time(ideal(), &format!("on s[0] {{ spin(10us, units: {blocks}) }}"));
        assert_eq!(time, Nanos(rounds * 10 * US), "{blocks} blocks on 132 units");
    }
}

/// A stand-in lasts for its time, and longer where memory cannot serve it in that; it holds its units meanwhile.
#[test]
fn stand_ins_last_for_their_time() {
    let alone = |options: &str| time(ideal(), &format!("on s[0] {{ work({options}) }}")).0;
    assert_eq!(alone("time: 50us, units: 4"), alone("time: 50us, units: 4, bytes: 1MiB"));
    assert_eq!(alone("time: 50us"), time(ideal(), "on s[0] { spin(50us) }").0);
    let free = alone("bytes: 1GiB");
    assert_eq!(alone("time: 50us, units: 4, bytes: 1GiB"), free);
    // Reads that have no neighbours cost a sector of 32 bytes each.
    assert_eq!(alone("bytes: 512MiB, stride: 64B"), free);
    assert_eq!(alone("bytes: 512MiB, access: random"), free);
    let beside = "on s[0] { work(time: 20us, units: 100) }\non s[1] { spin(10us, units: 64) }";
    let spins = "on s[0] { spin(20us, units: 100) }\non s[1] { spin(10us, units: 64) }";
    assert_eq!(time(ideal(), beside), time(ideal(), spins));
}

#[test]
fn kernels_share_units_by_what_is_left() {
    // 100 units are taken, 32 are left: the second kernel's 64 blocks begin in the gap and end with the first.
    let body = "on s[0] { a: spin(20us, units: 100) }\non s[1] { b: spin(10us, units: 64) }";
    let trace = trace(ideal(), body, LaunchMode::Stream);
    assert_eq!(trace.spans[0].duration(), Nanos(20 * US));
    assert_eq!(trace.spans[1].duration(), Nanos(20 * US));
    assert_eq!(trace.time, Nanos(20 * US));
}

/// The stamps around operations take no room in the simulated queues, so that they do not decide whether an iteration is gated.
#[test]
fn observing_many_operations_changes_nothing() {
    let body: String = (0..16).map(|i| format!("for k in 0..100 {{ on s[{i}] {{ spin(1us) }} }}\n")).collect();
    let mut session = session(Profile::named("h200").expect("embedded"), &body);
    let times =
        session.iterate(LaunchMode::Stream, 2, 2, &Control::default()).unwrap_or_else(|error| panic!("{error}")).time;
    let observed = session.observe(Observation::once(LaunchMode::Stream, 1), &Control::default());
    assert_eq!(observed.unwrap_or_else(|error| panic!("{error}"))[0].time, times[1]);
}

/// A stream that keeps to half of the device takes two rounds, and leaves the other half to others; a graph's work keeps
/// to no part. A device without queues for each priority limits no stream.
#[test]
fn streams_keep_to_their_units() {
    let text = "stream half(units: 50%)\nstream few(units: 4)\nstream s\nstep {\n  on half { a: spin(10us, units: 132) }\n  \
                on few { b: spin(1us, units: 16) }\n  on s { c: spin(20us, units: 62) }\n}\n";
    let opened = |limits_units| {
        let mut profile = ideal();
        profile.queues.by_priority = limits_units;
        let mut session = session_of(profile, text);
        session.capture().unwrap_or_else(|error| panic!("{error}"));
        session
    };
    let times = |session: &mut Session, mode| {
        let trace = session.observe(Observation::once(mode, 1), &Control::default()).expect("runs").remove(0);
        trace.spans.iter().map(|span| span.duration().0 / US).collect::<Vec<_>>()
    };
    let mut limited = opened(true);
    assert_eq!(times(&mut limited, LaunchMode::Stream), [20, 4, 20], "66 units, 4 units, and the 62 that are left");
    assert_eq!(times(&mut limited, LaunchMode::Graph)[..1], [10], "all of them");
    assert_eq!(limited.notes(), Vec::<String>::new());
    let mut unlimited = opened(false);
    assert_eq!(times(&mut unlimited, LaunchMode::Stream)[..1], [10], "all of them");
    assert!(unlimited.notes()[0].starts_with("stream half requests 50 % of the units but may use all of them"));
}

#[test]
fn two_operations_share_one_bandwidth() {
    // 1 MB read and written at 1 TB/s: 2 µs alone, and each half as fast beside the other.
    let one = "on s[0] { copy(x[0] -> y[0]) }";
    assert_eq!(time(ideal(), one), Nanos(2 * US));
    let two = "on s[0] { copy(x[0] -> y[0]) }\non s[1] { copy(x[1] -> y[1]) }";
    assert_eq!(time(ideal(), two), Nanos(4 * US));
    // Unequal ones: the short ends when both had its share, the long has the rest to itself.
    let unequal = "on s[0] { copy(x[0] -> y[0]) }\non s[1] { copy(x[1..4] -> y[1..4]) }";
    let trace = trace(ideal(), unequal, LaunchMode::Stream);
    assert_eq!((trace.spans[0].end, trace.spans[1].end), (Nanos(4 * US), Nanos(8 * US)));
}

#[test]
fn copies_on_engines_take_turns() {
    for engines in 1..=4u32 {
        for copies in 1..=8i64 {
            let mut profile = ideal();
            set(&mut profile.host_to_device.engines, f64::from(engines));
            set(&mut profile.host_to_device.bandwidth, 1e11);
            set(&mut profile.host_to_device.link, 1e11 * f64::from(engines));
            let body: String = (0..copies).map(|i| format!("on s[{i}] {{ copy(up[{i}] -> x[{i}]) }}\n")).collect();
            let rounds = (copies as u64).div_ceil(u64::from(engines)) as i64;
            assert_eq!(time(profile, &body), Nanos(rounds * 10 * US), "{copies} copies on {engines} engines");
        }
    }
}

#[test]
fn engines_share_their_link() {
    let mut profile = ideal();
    set(&mut profile.host_to_device.engines, 2.0);
    set(&mut profile.host_to_device.bandwidth, 1e11);
    set(&mut profile.host_to_device.link, 1e11);
    let body = "on s[0] { copy(up[0] -> x[0]) }\non s[1] { copy(up[1] -> x[1]) }";
    assert_eq!(time(profile, body), Nanos(20 * US));
}

/// A device whose link to the host carries 100 GB/s each way by engines, and 50 GB/s by kernels.
fn linked() -> Profile {
    let mut profile = ideal();
    for engines in [&mut profile.host_to_device, &mut profile.device_to_host] {
        set(&mut engines.bandwidth, 1e11);
        set(&mut engines.link, 1e11);
    }
    set(&mut profile.host_link.kernel_reads, 5e10);
    set(&mut profile.host_link.kernel_writes, 5e10);
    set(&mut profile.host_link.kernel_other_way, 0.0);
    profile
}

#[test]
fn both_directions_share_what_the_link_carries_in_all() {
    let both_ways = "on s[0] { copy(up[0] -> x[0]) }\non s[1] { copy(y[1] -> down[1]) }";
    let mut profile = linked();
    assert_eq!(time(profile.clone(), both_ways), Nanos(10 * US));
    set(&mut profile.host_link.both, 1.6e11);
    assert_eq!(time(profile, both_ways), Nanos(12_500), "2 MB at 160 GB/s");
}

/// Each operand takes the time of the memory that holds it: 1 MB read from the host's or written there, by every kind of
/// operation that a kernel does. Device memory, at 1 TB/s, takes 1 µs of the same bytes.
#[test]
fn kernels_move_what_lies_on_the_host_over_its_link() {
    let declared = "stream s[2]\nbuffer x, y: u8[1000000]\nbuffer up, down: u8[1000000] in pinned\n\
                    buffer a: f32[500, 500] in pinned\nbuffer b: f32[500, 1]\nbuffer c: f32[500, 500]\n\
                    buffer i: i32[1000] = iota\nbuffer rows: u8[1000, 1000] in pinned\nbuffer few: u8[1000, 1000]\n";
    let time = |profile: Profile, body: &str| {
        let mut session = session_of(profile, &format!("{declared}step {{ {body} }}\n"));
        session.observe(Observation::once(LaunchMode::Stream, 1), &Control::default()).expect("runs").remove(0).time
    };
    for (body, microseconds) in [
        ("on s[0] { map(x + 1 -> y) }", 2),
        ("on s[0] { map(up + 1 -> y) }", 20),
        ("on s[0] { map(x + 1 -> down) }", 20),
        ("on s[0] { map(up + 1 -> down) }", 20),
        ("on s[0] { copy(up -> x, via: kernel) }", 20),
        ("on s[0] { copy(x -> down, via: kernel) }", 20),
        ("on s[0] { copy(up -> x, via: dma) }", 10),
        ("on s[0] { memset(0 -> down) }", 20),
        ("on s[0] { fill(0 -> down) }", 20),
        ("on s[0] { gather(rows, i -> few) }", 20),
        ("on s[0] { transpose(a -> c) }", 20),
        ("on s[0] { softmax(a -> c) }", 20),
        // A column of 1: its matrix is read once.
        ("on s[0] { gemm(a, b) }", 20),
        // An engine beside a kernel has half of the link, then the kernel all that it can use.
        ("on s[0] { copy(up -> x, via: kernel) }\non s[1] { copy(up -> y, via: dma) }", 30),
    ] {
        assert_eq!((time(linked(), body).0 as f64 / 1e3).round() as i64, microseconds, "{body}");
    }
    let mut profile = linked();
    set(&mut profile.host_link.kernel_other_way, 1.0);
    let beside = "on s[0] { copy(up -> x, via: kernel) }\non s[1] { copy(y -> down, via: dma) }";
    assert_eq!(time(linked(), beside), Nanos(20 * US), "each has its own direction");
    assert_eq!(time(profile, beside), Nanos(30 * US), "a kernel takes up both");
}

#[test]
fn streams_on_serial_queues_take_turns() {
    for queues in [1, 2, 4, 8] {
        for streams in [1, 2, 4, 6, 8, 16i64] {
            let mut profile = ideal();
            profile.queues.rule = QueueRule::Serial;
            set(&mut profile.queues.count, f64::from(queues));
            let body: String = (0..streams).map(|i| format!("on s[{i}] {{ spin(10us) }}\n")).collect();
            let trace = trace(profile, &body, LaunchMode::Stream);
            let rounds = (streams as u64).div_ceil(queues as u64) as i64;
            assert_eq!(trace.time, Nanos(rounds * 10 * US), "{streams} streams on {queues} queues");
        }
    }
}

#[test]
fn a_waiting_head_holds_back_its_queue() {
    // s[1] waits for s[0]; s[2] waits for nothing, but stands behind s[1] where there is one queue.
    let body = "on s[0] { a: spin(10us) }\non s[1] after a { spin(10us) }\non s[2] { c: spin(10us) }";
    let mut one = ideal();
    set(&mut one.queues.count, 1.0);
    let spans = |profile| trace(profile, body, LaunchMode::Stream).spans;
    assert_eq!(spans(one)[2].start, Nanos(10 * US));
    assert_eq!(spans(ideal())[2].start, Nanos(0));
}

#[test]
fn a_chain_is_the_sum_with_its_gaps() {
    let mut profile = ideal();
    set(&mut profile.gap_same, 700.0);
    let body = "on s[0] { for i in 0..10 { spin(10us) } }";
    let trace = trace(profile, body, LaunchMode::Stream);
    // The first operation has a gap behind the mark before it as well.
    assert_eq!(trace.time, Nanos(10 * 10 * US + 10 * 700));
}

#[test]
fn fork_and_join_is_the_longest_way() {
    let mut profile = ideal();
    set(&mut profile.gap_event, 1500.0);
    let body = "
        on s[0] { first: spin(10us) }
        on s[1] after first { a: spin(20us) }
        on s[2] after first { b: spin(50us) }
        on s[0] after a, b { last: spin(10us) }";
    let trace = trace(profile, body, LaunchMode::Stream);
    let start = trace.spans[0].start;
    assert_eq!(trace.spans[3].end - start, Nanos((10 + 50 + 10) * US + 2 * 1500));
}

#[test]
fn the_host_limits_what_is_launched_unless_a_gate_holds_it() {
    let mut profile = ideal();
    set(&mut profile.host.kernel, 3000.0);
    let body = "for i in 0..100 { on s[i % 16] { nop() } }";
    let apart = |gate: bool| -> Vec<i64> {
        let mut session = session(profile.clone(), body);
        session.set_gate(gate);
        let trace =
            session.observe(Observation::once(LaunchMode::Stream, 1), &Control::default()).expect("runs").remove(0);
        trace.spans.windows(2).map(|pair| (pair[1].start - pair[0].start).0).collect()
    };
    assert!(apart(false).iter().all(|&time| time == 3000), "a kernel every 3 µs: {:?}", apart(false));
    assert!(apart(true).iter().all(|&time| time == 0), "all at once: {:?}", apart(true));
}

#[test]
fn a_held_iteration_takes_no_more_of_the_host() {
    let mut profile = ideal();
    set(&mut profile.host.kernel, 3000.0);
    let mut session = session(profile, "for i in 0..10 { on s[0] { spin(1us) } }");
    let median = |session: &mut Session| {
        let samples = session.iterate(LaunchMode::Stream, 1, 5, &Control::default()).expect("runs");
        (samples.time[2], samples.issue[2])
    };
    let held = median(&mut session);
    session.set_gate(false);
    let issued = median(&mut session);
    assert_eq!(held.0, Nanos(10 * US), "what the device needs");
    assert!(issued.0 > Nanos(27 * US), "what the host needs: {}", issued.0);
    assert_eq!(held.1, issued.1, "issuing takes the same");
}

#[test]
fn urgent_kernels_go_first() {
    let text = "
        stream low(priority: low)
        stream high(priority: high)
        step {
          on low  { big: spin(10us, units: 1320) }
          on high { small: spin(1us, units: 10) }
        }";
    let (program, plan) = common::planned(text);
    let sim = Sim::new(ideal());
    let schedule = common::placed(&program, &plan, &sim, &schedule::ScheduleOptions::default());
    let mut session = common::session(&program, &plan, &schedule, &sim);
    let trace = session.observe(Observation::once(LaunchMode::Stream, 1), &Control::default()).expect("runs").remove(0);
    // Units that the first kernel has are not taken from it, but the next that come free go to the urgent one.
    assert_eq!(trace.spans[1].end, Nanos(11 * US));
}

#[test]
fn pageable_copies_hold_the_host_and_are_observed() {
    let mut profile = ideal();
    set(&mut profile.pageable_bandwidth, 1e9);
    // 1 MiB at 1 GB/s; the kernel behind it is launched when the copy is complete.
    let text = "
        stream s[2]
        buffer far: u8[1048576] in host
        buffer near: u8[1048576]
        step {
          on s[0] { copy(far -> near) }
          on s[1] { spin(1us) }
        }";
    let (program, plan) = common::planned(text);
    let sim = Sim::new(profile);
    let schedule = common::placed(&program, &plan, &sim, &schedule::ScheduleOptions::default());
    let mut session = common::session(&program, &plan, &schedule, &sim);
    let trace = session.observe(Observation::once(LaunchMode::Stream, 1), &Control::default()).expect("runs").remove(0);
    let spans: Vec<(i64, i64)> = trace.spans.iter().map(|span| (span.start.0, span.end.0)).collect();
    assert_eq!(spans, [(0, 1_048_576), (1_048_576, 1_049_576)]);
}

#[test]
fn pageable_copies_of_a_graph_share_a_staging_buffer() {
    let mut profile = ideal();
    set(&mut profile.pageable_bandwidth, 1e9);
    let text = "
        stream s[2]
        buffer far, back: u8[1000000] in host
        buffer near, here: u8[1000000]
        step {
          on s[0] { copy(far -> near) }
          on s[1] { copy(here -> back) }
        }";
    let mut session = session_of(profile, text);
    session.capture().unwrap_or_else(|error| panic!("{error}"));
    let trace = session.observe(Observation::once(LaunchMode::Graph, 1), &Control::default()).expect("runs").remove(0);
    assert_eq!(trace.time, Nanos(2 * 1_000_000));
}

/// The order of the text does not matter: a node is launched when it is ready.
#[test]
fn nodes_of_a_graph_share_a_front_end() {
    let mut profile = ideal();
    set(&mut profile.graph.dispatch, 100.0);
    let chain: String = (0..4).map(|i| format!("on s[{i}] {{ for k in 0..5 {{ spin(1us) }} }}\n")).collect();
    let turn = "for k in 0..5 { for i in 0..4 { on s[i] { spin(1us) } } }";
    for body in [chain.as_str(), turn] {
        // The fourth branch begins after three launches, and its end takes as long as one.
        assert_eq!(trace(profile.clone(), body, LaunchMode::Graph).time, Nanos(5 * 1000 + 3 * 100 + 100));
    }
}

#[test]
fn repeated_runs_are_equal() {
    let body = "
        on s[0] { a: spin(3us, units: 70) }
        for i in 1..8 { on s[i] after a { copy(x[i] -> y[i]) } }
        on s[9] { copy(up[0] -> x[0]) }
        sync()
        on s[3] { spin(2us, units: 500) }";
    let run = || trace(Profile::named("h200").expect("embedded"), body, LaunchMode::Stream);
    assert_eq!(run(), run());
}

/// Only a few of a thousand equal iterations are launched.
#[test]
fn equal_iterations_are_not_launched() {
    let text = "stream s[4]\nbuffer x[4]: f32[1048576]\n\
                step { for i in 0..8 { for k in 0..4 { on s[k] { map(x[k] * 2 -> x[k]) } } } }";
    let (program, plan) = common::planned(text);
    let sim = Sim::new(Profile::named("h200").expect("embedded"));
    let launches = Arc::<AtomicU64>::default();
    let counting = Altered::counting(&sim, launches.clone());
    let schedule = common::placed(&program, &plan, &counting, &schedule::ScheduleOptions::default());
    let mut session = common::session(&program, &plan, &schedule, &counting);
    let samples = session.iterate(LaunchMode::Stream, 5, 1000, &Control::default()).expect("runs");
    assert_eq!(samples.time.len(), 1000);
    let iterations = launches.load(Ordering::Relaxed) / 32;
    assert!(iterations < 20, "{iterations} of 1005 iterations were launched");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::common::effort::due_draws(80)))]

    /// Iterations that are equal to earlier ones are taken from these: the samples are those of simulating each.
    #[test]
    fn equal_iterations_are_simulated_once(
        world in worlds::world(4),
        gate: bool,
        graph: bool,
        warmup in 0u64..6,
        iterations in 1u64..60,
    ) {
        let text = world.text();
        let samples = |sim: Sim| {
            let opened = World::new(&text, world.ranks, &sim);
            let mut ranks = opened.open(&sim, Nanos(60_000_000_000)).unwrap_or_else(|error| panic!("{error}"));
            ranks.set_gate(gate);
            let mut mode = LaunchMode::Stream;
            if graph && ranks.capture(&Control::default()).is_ok() {
                mode = LaunchMode::Graph;
            }
            let samples = ranks.iterate(mode, warmup, iterations, &Control::default());
            samples.unwrap_or_else(|error| panic!("{error}")).ranks
        };
        let profile = || Profile::named("h200").expect("embedded");
        let once = samples(Sim::new(profile()));
        let each = samples(Sim::new(profile()).each_iteration());
        for (once, each) in once.iter().zip(&each) {
            prop_assert_eq!(&once.time, &each.time, "{}", text);
            prop_assert_eq!(&once.issue, &each.issue, "{}", text);
        }
    }
}

#[test]
fn cold_caches_cost_what_they_would_have_saved() {
    let text = "stream a\nbuffer x, y: f32[1048576]\nstep { on a { map(x + 1 -> y) } }\n";
    let (program, plan) = common::planned(text);
    let sim = Sim::new(Profile::named("h200").expect("embedded"));
    let schedule = common::placed(&program, &plan, &sim, &schedule::ScheduleOptions::default());
    let time = |cold: bool| {
        let options = exec::SessionOptions { cold, ..common::exec_options() };
        let mut session = exec::prepare(exec::RankSchedule::new(&program, &plan, &schedule), &sim, &options)
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(session.is_cold(), cold);
        let samples = session.iterate(LaunchMode::Stream, 1, 3, &Control::default()).expect("runs");
        samples.time[1]
    };
    assert!(time(true) > time(false), "{} and {}", time(true), time(false));
}

/// A device on which only arithmetic takes time: so many operations a second by vector units, and by special-function
/// units.
fn arithmetic(vector: f64, special: f64) -> Profile {
    let mut profile = ideal();
    set(&mut profile.bandwidth, 1e21);
    set(profile.peak.get_mut("vector").expect("it has one"), vector);
    set(profile.peak.get_mut("special").expect("it has one"), special);
    set(&mut profile.vector_efficiency, 0.5);
    profile
}

/// Duration of an operation over this many elements.
fn over(elements: u64, profile: Profile, operation: &str) -> Nanos {
    let text = format!("stream a\nbuffer x, y: f32[{elements}]\nstep {{ on a {{ {operation} }} }}\n");
    let mut session = session_of(profile, &text);
    let traces = session.observe(Observation::once(LaunchMode::Stream, 1), &Control::default());
    traces.unwrap_or_else(|error| panic!("{error}"))[0].time
}

#[test]
fn special_functions_take_the_rate_of_their_units() {
    // As many blocks as run at once, eight on each unit.
    let elements = 132 * 8 * 1024;
    let times = |count: f64, rate: f64| Nanos((count * elements as f64 / rate * 1e9).round() as i64);
    // A sigmoid is an exponential and a reciprocal, and 13 instructions, each of which counts as two operations. The place, the load and the
    // store of four elements are 30 more.
    let sigmoids = "map(sigmoid(sigmoid(sigmoid(x))) -> y)";
    let sums = "map(x + 1 + x + 2 + x + 3 -> y)";
    for rate in [1e12, 2e12] {
        assert_eq!(over(elements, arithmetic(1e15, rate), sigmoids), times(6.0, rate));
        assert!(over(elements, arithmetic(1e15, rate), sums) < Nanos(100));
    }
    assert_eq!(over(elements, arithmetic(1e12, 1e15), sigmoids), times(46.5, 0.25e12));
    assert_eq!(over(elements, arithmetic(1e12, 1e15), sums), times(12.5, 0.25e12));
}

#[test]
fn few_blocks_share_no_unit() {
    // A block has its unit to itself until there are more blocks than units; two take as long as one alone, twice.
    // A thread has an element, as long as there are few.
    let time = |blocks: u64| over(blocks * 256, arithmetic(1e12, 1e15), "map(exp(x) -> y)").0;
    assert_eq!(time(1), time(132));
    assert!((time(264) - 2 * time(132)).abs() <= 1);
}

#[test]
fn long_rows_are_read_again() {
    let time = |shape: &str, cache: f64| {
        let mut profile = arithmetic(1e21, 1e21);
        set(&mut profile.bandwidth, 1e12);
        set(&mut profile.cache_bandwidth, 4e12);
        set(&mut profile.cache, cache);
        let text = format!("stream a\nbuffer x, y: f32{shape}\nstep {{ on a {{ softmax(x -> y) }} }}\n");
        let once = Observation::once(LaunchMode::Stream, 1);
        session_of(profile, &text).observe(once, &Control::default()).expect("runs")[0].time
    };
    let passes = |bytes: u64, memory: f64, cache: f64| {
        Nanos((bytes as f64 * (memory / 1e12 + cache / 4e12) * 1e9).round() as i64)
    };
    // The registers of 1024 threads hold a row of 32768 elements; a longer one is read again, out of the cache where that
    // holds the rows of all blocks that run.
    assert_eq!(time("[128, 32768]", 0.0), passes(4 << 22, 2.0, 0.0));
    assert_eq!(time("[180, 65536]", 0.0), passes(180 << 18, 3.0, 0.0));
    assert_eq!(time("[180, 65536]", 96e6), passes(180 << 18, 2.0, 1.0));
}

#[test]
fn measured_times_are_above_the_lower_bound() {
    // From docs/measurements/2026-11-21-beside-others.md, in ns.
    let chain = "map(gelu(x * 1.5 + 0.5) * sigmoid(x) - x -> y)";
    for (operation, shape, measured) in [
        ("softmax(x -> y)", "f32[4096, 128]", 2010.0),
        ("softmax(x -> y)", "bf16[4096, 1024]", 4510.0),
        ("softmax(x -> y)", "f32[512, 131072]", 199_970.0),
        (chain, "f32[1024, 1024]", 2950.0),
        (chain, "bf16[8192, 8192]", 118_160.0),
    ] {
        let text = format!("stream a\nbuffer x, y: {shape}\nstep {{ on a {{ {operation} }} }}\n");
        let (program, _) = common::planned(&text);
        let least = |profile: &Profile| floor(&program.specs, profile);
        let profile = Profile::named("h200").expect("embedded");
        assert!(least(&profile) < measured, "{operation} of {shape}: {} and {measured}", least(&profile));
        // A compiler may leave out what it can do without, so no rate of arithmetic has a part in it.
        let mut slow = profile.clone();
        set(slow.peak.get_mut("special").expect("it has one"), 1.0);
        assert_eq!(least(&slow), least(&profile));
    }
}
