//! Gates, clocks, queues, restricted streams and caches of one device.

use aorta::base::Nanos;
use aorta::exec::{self, Backend, Control, LaunchMode, Session};
use aorta::schedule;

use crate::{common, folder, gpu, verify};

/// Sixteen streams of tiny kernels: the host is slower than the device.
const TINY: &str = "\
stream s[16]
step { for i in 0..64 { on s[i % 16] { nop() } } }
";

#[test]
fn a_gate_makes_the_time_the_device_s() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpu(&kernels) else { return };
    let (program, plan) = common::planned(TINY);
    let schedule = common::placed(&program, &plan, &gpu, &schedule::ScheduleOptions::default());
    let mut session = common::session(&program, &plan, &schedule, &gpu);
    assert_eq!(session.gate_refused(), None);
    let run = |session: &mut Session| {
        let samples = session.iterate(LaunchMode::Stream, 10, 50, &Control::default());
        samples.unwrap_or_else(|error| panic!("{error}"))
    };
    let held = run(&mut session);
    assert_eq!((held.gated, held.ungated, held.time.len()), (true, 0, 50), "no gate opened by itself");
    session.set_gate(false);
    let issued = run(&mut session);
    assert!(!issued.gated);
    let median = |times: &[Nanos]| {
        let mut times = times.to_vec();
        times.sort_unstable();
        times[times.len() / 2]
    };
    println!("held {}, as issued {}", median(&held.time), median(&issued.time));
    // Times are printed for the reader; tests do not check them.
    assert!(held.time.iter().chain(&issued.time).all(|time| time.0 > 0));
}

#[test]
fn iterations_that_do_not_fit_run_ungated() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpu(&kernels) else { return };
    let (program, plan) = common::planned("stream a\nstep { on a { for i in 0..3000 { nop() } } }\n");
    let schedule = common::placed(&program, &plan, &gpu, &schedule::ScheduleOptions::default());
    let mut session = common::session(&program, &plan, &schedule, &gpu);
    assert!(session.gate_refused().is_some_and(|why| why.contains("3")), "{:?}", session.gate_refused());
    let samples = session.iterate(LaunchMode::Stream, 1, 3, &Control::default());
    let samples = samples.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((samples.gated, samples.time.len()), (false, 3));
}

#[test]
fn a_gate_that_nobody_opens_opens_by_itself() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpu(&kernels) else { return };
    // More than fits into any queue: the host waits for the device, which waits for the gate.
    let (program, plan) = common::planned("stream a\nstep { on a { for i in 0..20000 { nop() } } }\n");
    let schedule = common::placed(&program, &plan, &gpu, &schedule::ScheduleOptions::default());
    let options = exec::SessionOptions { gate_depth: 1 << 20, ..common::exec_options() };
    let mut session = exec::prepare(exec::RankSchedule::new(&program, &plan, &schedule), &gpu, &options)
        .unwrap_or_else(|error| panic!("{error}"));
    let samples = session.iterate(LaunchMode::Stream, 1, 6, &Control::default());
    let samples = samples.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((samples.gated, samples.ungated), (true, 6), "three by themselves, and no more are held");
}

#[test]
fn device_health_is_recorded() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpu(&kernels) else { return };
    let facts = gpu.device().facts;
    println!("{facts:#?}");
    let fact = |name: &str| facts.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    assert!(fact("uuid").is_some_and(|uuid| uuid.starts_with("GPU-") && uuid.len() == 40), "{:?}", fact("uuid"));
    if fact("driver").is_none() {
        println!("skipped: no libnvidia-ml.so.1");
        return;
    }
    for name in ["clock_mhz", "max_clock_mhz", "power_watts", "power_limit_watts", "celsius", "max_pcie_width"] {
        let value = fact(name).and_then(|value| value.parse::<u32>().ok());
        assert!(value.is_some_and(|value| value > 0), "{name}: {:?}", fact(name));
    }
}

#[test]
fn the_timer_s_cost_is_known() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpu(&kernels) else { return };
    let timer =
        gpu.timer(common::exec_options().timeout).unwrap_or_else(|error| panic!("{error}")).expect("a GPU has one");
    println!("{timer:?}");
    assert!(timer.resolution.0 > 0 && timer.resolution <= timer.null_kernel, "{timer:?}");
    assert!(timer.empty <= timer.null_kernel, "a kernel takes longer than none: {timer:?}");
}

/// Streams that share a hardware queue are found by experiment: each stream is in one queue.
#[test]
fn streams_of_a_queue_are_found() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpu(&kernels) else { return };
    for streams in [1, 6, 17] {
        let queues = gpu.queues(Some(streams)).unwrap_or_else(|error| panic!("{error}"));
        println!("{streams} streams: {:?}, {}; at once: {}", queues.probed, queues.verdict(), queues.at_once());
        let mut all = queues.probed.concat();
        all.sort_unstable();
        assert_eq!(all, (0..streams).collect::<Vec<u32>>());
        assert_eq!(queues.predicted.len(), streams.min(8) as usize, "8 connections");
        assert!((1..=streams).contains(&queues.at_once), "{queues:?}");
    }
}

/// A stream restricted to a part of the device gives the same results, and a note says whether the restriction has an
/// effect.
#[test]
fn streams_with_units_agree_with_the_cpu() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpu(&kernels) else { return };
    let text = "stream a(units: 25%)\nstream b(units: 16, priority: high)\nbuffer x: f32[4096]\nstep {\n  on a { p: map(x + 1) \
                }\n  on b { q: map(x + 2) }\n  on a { map(p + q) }\n}\n";
    let planned = common::planned(text);
    verify("units", &planned, &gpu);
    let schedule = common::placed(&planned.0, &planned.1, &gpu, &schedule::ScheduleOptions::default());
    let session = common::session(&planned.0, &planned.1, &schedule, &gpu);
    let notes = session.notes();
    assert!(notes.iter().any(|note| note.contains("stream a") && note.contains("25 % of the units")), "{notes:?}");
}

#[test]
fn caches_can_be_emptied() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpu(&kernels) else { return };
    let text = "stream a\nbuffer x, y: f32[1048576]\nstep { on a { map(x + 1 -> y) } }\n";
    let (program, plan) = common::planned(text);
    let schedule = common::placed(&program, &plan, &gpu, &schedule::ScheduleOptions::default());
    for cold in [false, true] {
        let options = exec::SessionOptions { cold, ..common::exec_options() };
        let mut session = exec::prepare(exec::RankSchedule::new(&program, &plan, &schedule), &gpu, &options)
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(session.is_cold(), cold);
        for mode in [LaunchMode::Stream, LaunchMode::Graph] {
            session.capture().unwrap_or_else(|error| panic!("{error}"));
            let samples = session.iterate(mode, 5, 21, &Control::default());
            let mut times = samples.unwrap_or_else(|error| panic!("{error}")).time;
            times.sort_unstable();
            println!("{} cold {cold}: {}", mode.name(), times[times.len() / 2]);
        }
    }
}

#[test]
fn a_wait_that_is_not_there_is_missed() {
    let kernels = folder();
    let Some((gpu, _alone)) = gpu(&kernels) else { return };
    let text = "\
stream a
stream b
buffer x, y: f32[4]
step {
  on a { spin(20ms) }
  on a { fill(1 -> x) }
  on b { map(x + 1 -> y) }
}
";
    let (program, plan) = common::planned(text);
    let whole = common::placed(&program, &plan, &gpu, &schedule::ScheduleOptions::default());
    let mut broken = common::placed(&program, &plan, &gpu, &schedule::ScheduleOptions::default());
    for step in &mut broken.period {
        step.commands.retain(|command| !matches!(command, schedule::Command::Wait { .. }));
    }
    for (schedule, held) in [(whole, true), (broken, false)] {
        let witness =
            exec::witness(&[exec::RankSchedule::new(&program, &plan, &schedule)], &gpu, &common::exec_options());
        let mut witness = witness.unwrap_or_else(|error| panic!("{error}"));
        witness.ranks.capture(&Control::default()).unwrap_or_else(|error| panic!("{error}"));
        for mode in [LaunchMode::Stream, LaunchMode::Graph] {
            witness.ranks.reset(&Control::default()).unwrap_or_else(|error| panic!("{error}"));
            let samples = witness.ranks.iterate(mode, 0, 3, &Control::default());
            samples.unwrap_or_else(|error| panic!("{error}"));
            let missed = witness.missed(0).unwrap_or_else(|error| panic!("{error}")).expect("a GPU has memory");
            assert_eq!(missed.is_empty(), held, "{}: {missed:?}", mode.name());
        }
    }
}
