//! Launches by several hardware queues, against closed formulas.

use super::*;
use crate::config::SourcedFigure;
use crate::cost::Busy;

/// Number of streams and of hardware queues of the machines here.
const STREAMS: u32 = 4;

/// Chains of kernels of 10 ns on these streams, in turn. Launching one takes 100 ns, or 300 ns if it blocked its queue. Returns when
/// the last one ends.
fn chains(streams: u32, rounds: u32, queues: u32) -> Time {
    let mut profile = Profile::named("h200").expect("embedded");
    let set = |figure: &mut SourcedFigure, value: f64| *figure = SourcedFigure(value, "test".to_owned());
    set(&mut profile.queues.dispatch, 100.0);
    set(&mut profile.queues.unblock, 200.0);
    let lanes: Vec<(u32, i32)> = (0..streams).map(|_| (0, 0)).collect();
    let mut machine = SimMachine::new(&profile, &lanes, vec![0], queues as usize);
    let kernel = Task::Kernel { blocks: 1, share: 1, block_time: 10.0, busy: Busy::default(), floor: 0.0 };
    // Holds all kernels until all of them are submitted, as the gate does.
    let gate = machine.hold(0);
    let mut last = vec![gate; streams as usize];
    for lane in (0..rounds).flat_map(|_| 0..streams) {
        let placing = Placing { lane, queue: Some(lane % queues), priority: 0 };
        let before = [(last[lane as usize], 0)];
        last[lane as usize] = machine.submit(Action::Run(kernel), placing, 0, before);
    }
    machine.release(gate, 0);
    while machine.step() {}
    machine.now()
}

#[test]
fn ends_are_kept_for_tasks_that_begin_long_after_them() {
    let gap = 2_000_000;
    let ends = |kept: bool| {
        let profile = Profile::named("h200").expect("embedded");
        let mut machine = SimMachine::new(&profile, &[(0, 0), (0, 0)], vec![0], 2);
        let kernel = |time| {
            Action::Run(Task::Kernel { blocks: 1, share: 1, block_time: time, busy: Busy::default(), floor: 0.0 })
        };
        let lane = |lane| Placing { lane, queue: Some(lane), priority: 0 };
        if kept {
            machine.keep_ends(gap);
        }
        let first = machine.submit(kernel(10.0), lane(0), 0, []);
        machine.submit(kernel(1_000_000.0), lane(1), 0, []);
        while machine.step() {}
        machine.submit(kernel(10.0), lane(1), 0, [(first, gap)]);
        while machine.step() {}
        machine.now()
    };
    assert!((gap..gap + 100_000).contains(&ends(true)), "{}", ends(true));
    // Without the call, the machine has forgotten the end of the first kernel.
    assert!(ends(false) < gap, "{}", ends(false));
}

#[test]
fn queues_share_a_front_end() {
    // On one stream, each launch after the first waits for the front end, not for the kernel.
    assert_eq!(chains(1, 5, STREAMS), 4 * 300 + 10);
    // Queues of their own do not help, since each kernel blocks its queue until the one before it has ended.
    assert_eq!(chains(STREAMS, 5, STREAMS), (4 * 5 - 1) * 300 + 10);
    // Four streams to a queue: the next kernel of a queue is ready long before its turn.
    let shared = chains(4 * STREAMS, 5, STREAMS);
    let launches = Time::from(4 * STREAMS * 5);
    assert!((launches * 100..launches * 120).contains(&shared), "{shared}");
}
