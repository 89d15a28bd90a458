//! Random programs with known records, in any order, some of which are lost.

use proptest::prelude::*;

use super::*;

/// A program of some streams: operations in the order of launch, each with its stream, an operation that it waits for,
/// and the gap before and the duration of each of its parts.
#[derive(Clone, Debug)]
struct Planned {
    stream: usize,
    waits: prop::sample::Index,
    parts: Vec<(u64, u64)>,
}

fn programs() -> impl Strategy<Value = Vec<Planned>> {
    let part = (0u64..50, 1u64..5_000);
    let planned = (0usize..4, any::<prop::sample::Index>(), prop::collection::vec(part, 1..4))
        .prop_map(|(stream, waits, parts)| Planned { stream, waits, parts });
    prop::collection::vec(planned, 1..24)
}

/// Start and end of each part of each operation.
type Run = Vec<Vec<(u64, u64)>>;

/// Simulates a device: returns the time of each part of each operation. Streams run in order; an operation waits for an
/// earlier one.
fn run(program: &[Planned], begin: u64) -> Run {
    let mut streams = [begin; 4];
    let mut done: Run = Vec::new();
    for (number, op) in program.iter().enumerate() {
        let waited = if number > 0 { done[op.waits.index(number)].last().expect("it has parts").1 } else { begin };
        let mut now = streams[op.stream].max(waited);
        let part = |&(gap, duration): &(u64, u64)| {
            let start = now + gap;
            now = start + duration;
            (start, now)
        };
        done.push(op.parts.iter().map(part).collect());
        streams[op.stream] = now;
    }
    done
}

/// Records of `iterations` iterations in the order of launch, with foreign records in between.
fn recorded(program: &[Planned], iterations: u32, graph: bool) -> (ActivityLog, Vec<Run>) {
    let mut recorded =
        ActivityLog { least: program.iter().map(|op| op.parts.len() as u32).collect(), ..ActivityLog::default() };
    let mut truth = Vec::new();
    let (mut correlation, mut begin) = (7, 1_000_000_000_000_000);
    let node = |op: usize, part: usize| 1 + (op * 8 + part) as u64;
    if graph {
        let nodes =
            program.iter().enumerate().flat_map(|(op, planned)| (0..planned.parts.len()).map(move |part| (op, part)));
        recorded.nodes = nodes.map(|(op, part)| GraphNode { id: node(op, part), op: op as u32 }).collect();
    }
    for iteration in 0..iterations {
        let times = run(program, begin);
        correlation += 1;
        recorded.activities.push(Activity { correlation, start: begin - 500, end: begin - 100, ..Activity::default() });
        if graph {
            correlation += 1;
            recorded.launches.push(LaunchCall { correlation, purpose: CallPurpose::Graph { iteration } });
        } else {
            recorded.launches.push(LaunchCall { correlation, purpose: CallPurpose::Gate { iteration } });
        }
        for (op, parts) in times.iter().enumerate() {
            for (part, &(start, end)) in parts.iter().enumerate() {
                if !graph {
                    correlation += 1;
                    recorded
                        .launches
                        .push(LaunchCall { correlation, purpose: CallPurpose::Operation { iteration, op: op as u32 } });
                }
                let node = if graph { node(op, part) } else { 0 };
                recorded.activities.push(Activity { correlation, node, start, end, ..Activity::default() });
            }
        }
        // Records of other work: of an iteration that is not observed, or of another rank.
        recorded.activities.push(Activity { correlation: 1 << 30, node: 1, ..Activity::default() });
        begin = times.iter().flatten().map(|time| time.1).max().expect("it has operations") + 10_000;
        truth.push(times);
    }
    (recorded, truth)
}

fn ops(program: &[Planned], iterations: u32) -> Vec<Vec<u32>> {
    (0..iterations).map(|_| (0..program.len() as u32).collect()).collect()
}

proptest! {
    /// Records in any order give each operation its own times: from the first start to the last end of its parts.
    #[test]
    fn each_operation_gets_its_own_times(
        program in programs(),
        iterations in 1u32..4,
        graph in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let (mut recorded, truth) = recorded(&program, iterations, graph);
        let mut state = seed | 1;
        recorded.activities.sort_by_cached_key(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 20
        });
        let times = correlate(&recorded, &ops(&program, iterations)).expect("nothing is missing");
        for (times, truth) in times.iter().zip(&truth) {
            for (op, parts) in (0..).zip(truth) {
                let (first, last) = (parts[0].0, parts[parts.len() - 1].1);
                prop_assert_eq!(times.ops[&op], (first, last));
                // Operations of one stream do not overlap, and no operation starts before the one it waits for.
                let planned = &program[op as usize];
                let before = (0..op).filter(|&other| program[other as usize].stream == planned.stream);
                prop_assert!(before.map(|other| times.ops[&other].1).all(|end| end <= first));
                if op > 0 {
                    prop_assert!(times.ops[&(planned.waits.index(op as usize) as u32)].1 <= first);
                }
            }
            prop_assert_eq!(times.gate.is_some(), !graph);
        }
    }

    /// A record that is missing or has no time is always detected.
    #[test]
    fn a_lost_record_is_noticed(
        program in programs(),
        graph in any::<bool>(),
        lost in any::<prop::sample::Index>(),
        empty in any::<bool>(),
    ) {
        let (mut recorded, _) = recorded(&program, 2, graph);
        let known: Vec<usize> = (0..recorded.activities.len())
            .filter(|&index| recorded.activities[index].node > 0 || !graph)
            .filter(|&index| {
                let correlation = recorded.activities[index].correlation;
                recorded.launches.iter().any(|call| call.correlation == correlation && !matches!(call.purpose, CallPurpose::Gate { .. }))
            })
            .collect();
        let index = known[lost.index(known.len())];
        if empty {
            recorded.activities[index].start = 0;
            recorded.activities[index].end = 0;
        } else {
            recorded.activities.remove(index);
        }
        prop_assert!(correlate(&recorded, &ops(&program, 2)).is_err());
    }

    /// No operation lies outside of its iteration, and the true begin is within the error.
    #[test]
    fn operations_lie_within_their_iteration(
        program in programs(),
        (before, after) in (0u64..4_000, 0u64..4_000),
        gate in prop::option::of(0u64..2_000),
    ) {
        let begin = 1_000_000;
        let times = run(&program, begin + before);
        let last = times.iter().flatten().map(|time| time.1).max().expect("it has operations");
        let first = times.iter().flatten().map(|time| time.0).min().expect("it has operations");
        let all = (0..).zip(&times).map(|(op, parts)| (op, (parts[0].0, parts[parts.len() - 1].1))).collect();
        let times = IterationTimes { ops: all, gate: gate.map(|gap| begin - gap), ..IterationTimes::default() };
        let time = Nanos((last + after - begin) as i64);
        let placed = times.place(time, false).expect("it has operations");
        prop_assert!(placed.begin <= first as i64);
        prop_assert!(placed.begin + placed.time.0 >= last as i64);
        prop_assert!((placed.begin - begin as i64).abs() <= placed.error.0, "{placed:?}");
        prop_assert!(placed.error.0 <= (first - begin + after) as i64);
        // If the stamps are too close together because their clock is coarser, the iteration becomes as long as its
        // operations.
        let short = times.place(Nanos((last - first) as i64 / 2), false).expect("it has operations");
        prop_assert_eq!((short.begin, short.time), (first as i64, Nanos((last - first) as i64)));
    }
}

#[test]
fn dropped_records_are_named() {
    let recorded = ActivityLog { dropped: 3, ..ActivityLog::default() };
    assert_eq!(correlate(&recorded, &[]).unwrap_err(), "3 records were dropped, since its buffers were full");
}
