//! Maps the program's streams to real streams, and these to hardware queues.

use std::collections::BTreeMap;

use crate::base::{LaneId, StreamId};
use crate::model::{Priority, Program, Units};

use super::{Lane, Topology};

/// Maps each declared stream to a real one, up to the limit. Beyond it, single streams keep their own while possible,
/// and members of families share the rest round-robin. Streams of different priority, units or queues share only if there are
/// fewer lanes than classes.
pub fn assign(program: &Program, topology: Topology, ceiling: Option<u32>) -> (Vec<Lane>, Vec<LaneId>) {
    let streams = &program.streams;
    // A host stream is not a stream of the device, so the limit does not apply to it.
    let (on_host, on_device): (Vec<usize>, Vec<usize>) =
        (0..streams.len()).partition(|&stream| streams[stream].threads.is_some());
    let ceiling = ceiling.map_or(on_device.len(), |ceiling| ceiling.max(1) as usize);
    let mut groups: Vec<Vec<usize>> = Vec::new();
    if on_device.len() <= ceiling {
        groups.extend(on_device.into_iter().map(|stream| vec![stream]));
    } else {
        let (single, member): (Vec<usize>, Vec<usize>) =
            on_device.iter().partition(|&&stream| streams[stream].member.is_none());
        // Family members need at least one lane.
        let singles_fit = single.len() + usize::from(!member.is_empty()) <= ceiling;
        if singles_fit {
            groups.extend(single.iter().map(|&stream| vec![stream]));
            share(program, &member, ceiling - single.len(), &mut groups);
        } else {
            share(program, &on_device, ceiling, &mut groups);
        }
    }
    groups.extend(on_host.into_iter().map(|stream| vec![stream]));
    groups.sort_by_key(|group| group[0]);
    let mut lane_of = vec![LaneId(0); streams.len()];
    let mut next_queues: BTreeMap<Option<Priority>, u32> = BTreeMap::new();
    let mut lanes = Vec::with_capacity(groups.len());
    let (queues, mut apart) = (topology.queues.max(1), 0);
    for group in groups {
        let lane = LaneId::from(lanes.len());
        group.iter().for_each(|&stream| lane_of[stream] = lane);
        let LaneClass { priority, units, queue: asked } = kind(program, group[0]);
        let threads = streams[group[0]].threads;
        let queue = if threads.is_some() {
            u32::MAX - lane.0
        } else if topology.limits_units && units.is_some() {
            apart += 1;
            queues.saturating_add(apart - 1)
        } else {
            // A device assigns queues to streams round-robin. If a stream requests a queue, streams without work are
            // created before it until that queue is next.
            let next_queue = next_queues.entry(topology.by_priority.then_some(priority)).or_insert(0);
            let queue = asked.map_or(*next_queue, |asked| asked % queues);
            *next_queue = (queue + 1) % queues;
            queue
        };
        lanes.push(Lane {
            name: streams[group[0]].name.clone(),
            streams: group.into_iter().map(StreamId::from).collect(),
            priority,
            units,
            queue,
            queue_asked: asked.is_some(),
            threads,
        });
    }
    (lanes, lane_of)
}

/// Properties that streams should have in common to share a lane.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct LaneClass {
    priority: Priority,
    units: Option<Units>,
    queue: Option<u32>,
}

fn kind(program: &Program, stream: usize) -> LaneClass {
    let stream = &program.streams[stream];
    LaneClass { priority: stream.priority, units: stream.units, queue: stream.queue }
}

/// Distributes streams over `count` lanes: each class gets a proportional share of lanes, and assigns its streams
/// round-robin.
fn share(program: &Program, streams: &[usize], count: usize, groups: &mut Vec<Vec<usize>>) {
    let mut by_kind: BTreeMap<LaneClass, Vec<usize>> = BTreeMap::new();
    for &stream in streams {
        by_kind.entry(kind(program, stream)).or_default().push(stream);
    }
    if by_kind.len() > count {
        deal(streams, count, groups);
        return;
    }
    // Each class gets a lane; the other lanes go to the classes with the most streams for a lane.
    let mut lanes: Vec<(LaneClass, usize)> = by_kind.keys().map(|&kind| (kind, 1)).collect();
    for _ in by_kind.len()..count {
        let crowded = lanes
            .iter_mut()
            .filter(|(kind, own)| by_kind[kind].len() > *own)
            .max_by_key(|(kind, own)| (by_kind[kind].len() * 1000 / *own, std::cmp::Reverse(*kind)));
        match crowded {
            Some((_, own)) => *own += 1,
            None => break,
        }
    }
    for (kind, own) in lanes {
        deal(&by_kind[&kind], own, groups);
    }
}

fn deal(streams: &[usize], count: usize, groups: &mut Vec<Vec<usize>>) {
    let first = groups.len();
    groups.extend((0..count.min(streams.len())).map(|_| Vec::new()));
    for (index, &stream) in streams.iter().enumerate() {
        groups[first + index % count].push(stream);
    }
}
