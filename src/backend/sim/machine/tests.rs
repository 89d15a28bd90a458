//! Launches by several hardware queues, against closed formulas.

use super::*;
use crate::config::SourcedFigure;
use crate::cost::Busy;

/// Number of streams and of hardware queues of the machines here.
const STREAMS: u32 = 4;

/// Chains of kernels of `time` ns on these streams, in turn. A launch occupies the front end for 100 ns, and a change to another queue
/// for 200 ns. Returns when the last kernel ends.
fn chains(streams: u32, rounds: u32, queues: u32, time: f64) -> Time {
    let mut profile = Profile::named("h200").expect("embedded");
    let set = |figure: &mut SourcedFigure, value: f64| *figure = SourcedFigure(value, "test".to_owned());
    set(&mut profile.queues.dispatch, 100.0);
    set(&mut profile.queues.switch, 200.0);
    let lanes: Vec<(u32, i32)> = (0..streams).map(|_| (0, 0)).collect();
    let mut machine = SimMachine::new(&profile, &lanes, vec![0], queues as usize, false);
    let kernel = Task::Kernel { blocks: 1, share: 1, block_time: time, busy: Busy::default(), floor: 0.0 };
    // Holds all kernels until all of them are submitted, as the gate does.
    let gate = machine.hold(0);
    let mut last = vec![gate; streams as usize];
    for lane in (0..rounds).flat_map(|_| 0..streams) {
        let placing = Placing { lane, queue: Some(lane % queues), priority: 0, stamps_before: 0 };
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
        let mut machine = SimMachine::new(&profile, &[(0, 0), (0, 0)], vec![0], 2, false);
        let kernel = |time| {
            Action::Run(Task::Kernel { blocks: 1, share: 1, block_time: time, busy: Busy::default(), floor: 0.0 })
        };
        let lane = |lane| Placing { lane, queue: Some(lane), priority: 0, stamps_before: 0 };
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
    assert_eq!(chains(1, 5, STREAMS, 10.0), 4 * 100 + 10);
    // The gate releases the heads of several queues together, and the front end polls the three other queues before it launches one.
    let polls = 3 * 100;
    // Queues of their own do not help, since the front end changes the queue for each kernel.
    assert_eq!(chains(STREAMS, 5, STREAMS, 10.0), polls + (4 * 5 - 1) * 300 + 10);
    // With short kernels, a queue of several streams does not block: each queue is served to its end.
    assert_eq!(chains(4 * STREAMS, 5, STREAMS, 10.0), polls + (4 * 4 * 5 - 1) * 100 + 3 * 200 + 10);
    // With longer ones, the front end launches one kernel of each stream of a queue before that queue blocks. Each further round begins
    // with polls once the first kernel of the round before has ended.
    let round = 7 * 100 + 3 * 200;
    assert_eq!(chains(2 * STREAMS, 5, STREAMS, 1500.0), polls + 4 * (1500 + polls) + round + 1500);
}

/// A graph of chains of `nodes` kernels of `time` ns each, whose ends the front end handles if `joined`. The launch of a node or the end of
/// a branch occupies the front end for 100 ns. Nodes are submitted chain by chain. Returns when the last task ends.
fn branches(chains: u32, nodes: u32, time: f64, joined: bool) -> Time {
    let mut profile = Profile::named("h200").expect("embedded");
    profile.graph.dispatch = SourcedFigure(100.0, "test".to_owned());
    let mut machine = SimMachine::new(&profile, &[(0, 0)], vec![0], 1, false);
    let kernel = Task::Kernel { blocks: 1, share: 1, block_time: time, busy: Busy::default(), floor: 0.0 };
    let placing = Placing { lane: 0, queue: None, priority: 0, stamps_before: 0 };
    for _ in 0..chains {
        let mut last: Option<TaskId> = None;
        for _ in 0..nodes {
            let before = last.map(|task| (task, 0));
            last = Some(machine.submit(Action::Run(kernel), placing, 0, before));
        }
        if joined {
            machine.submit(Action::BranchEnd, placing, 0, last.map(|task| (task, 0)));
        }
    }
    while machine.step() {}
    machine.now()
}

#[test]
fn nodes_of_graphs_start_when_they_are_ready() {
    // A chain waits for each kernel.
    assert_eq!(branches(1, 5, 1000.0, false), 5 * 1000);
    // Chains run side by side, although the text has one after the other: the last one starts 300 ns after the first.
    assert_eq!(branches(4, 5, 1000.0, false), 5 * 1000 + 3 * 100);
    // Short kernels wait for the front end. It is still busy with the last launch when that kernel has ended.
    assert_eq!(branches(4, 5, 10.0, false), 4 * 5 * 100);
    // Ends of branches follow when no node is ready.
    assert_eq!(branches(4, 5, 10.0, true), (4 * 5 + 4) * 100);
    // The last three branches end in turn, each 100 ns after the one before, and so do their ends.
    assert_eq!(branches(4, 5, 1000.0, true), 5 * 1000 + 3 * 100 + 100);
}

#[test]
fn waiting_queues_delay_a_queue_that_has_waited() {
    let mut profile = Profile::named("h200").expect("embedded");
    profile.queues.dispatch = SourcedFigure(100.0, "test".to_owned());
    profile.queues.switch = SourcedFigure(0.0, "test".to_owned());
    let mut machine = SimMachine::new(&profile, &[(0, 0); 3], vec![0], 3, false);
    let kernel =
        Action::Run(Task::Kernel { blocks: 1, share: 1, block_time: 1000.0, busy: Busy::default(), floor: 0.0 });
    let placing = |lane| Placing { lane, queue: Some(lane), priority: 0, stamps_before: 0 };
    let mut last = None;
    for _ in 0..4 {
        last = Some(machine.submit(kernel, placing(0), 0, last.map(|task| (task, 0))));
    }
    for lane in 1..3 {
        machine.submit(kernel, placing(lane), 0, last.map(|task| (task, 0)));
    }
    while machine.step() {}
    // Each kernel of the chain starts after polls of the two other queues. Their heads then become ready together, and each starts after
    // a poll of the other.
    assert_eq!(machine.now(), 4 * (1000 + 2 * 100) + 100 + 100 + 1000);
}

#[test]
fn heads_that_the_device_does_not_see_are_not_polled() {
    let ends = |visible: Time| {
        let mut profile = Profile::named("h200").expect("embedded");
        profile.queues.dispatch = SourcedFigure(100.0, "test".to_owned());
        profile.queues.switch = SourcedFigure(0.0, "test".to_owned());
        let mut machine = SimMachine::new(&profile, &[(0, 0); 2], vec![0], 2, false);
        let kernel =
            Action::Run(Task::Kernel { blocks: 1, share: 1, block_time: 1000.0, busy: Busy::default(), floor: 0.0 });
        let placing = |lane| Placing { lane, queue: Some(lane), priority: 0, stamps_before: 0 };
        let first = machine.submit(kernel, placing(0), 0, []);
        let second = machine.submit(kernel, placing(0), 0, [(first, 0)]);
        machine.submit(kernel, placing(1), visible, [(second, 0)]);
        while !machine.has_ended(second) {
            machine.step();
        }
        machine.now()
    };
    // Kernels of the first queue wait for a poll of the second one if the device sees its head by then: two, one and none.
    assert_eq!([0, 500, 10_000].map(ends), [2 * (1000 + 100), 2 * 1000 + 100, 2 * 1000]);
}
