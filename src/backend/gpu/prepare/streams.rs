//! Creates the streams of an image: one for each lane, some restricted to a part of the device.

use std::collections::BTreeMap;

use crate::backend::gpu::api::runtime::Stream;
use crate::backend::gpu::api::unit_ranges;
use crate::backend::gpu::api::{Api, Call};
use crate::model::Priority;
use crate::schedule::Lane;

/// Creates a stream for each lane, and at least one. Additional streams at the end only advance the runtime's
/// round-robin assignment to a requested queue. The stream of a host lane keeps the order of its operations. After an
/// error, `streams` holds those that were created. Returns notes for the report.
pub fn make<A: Api>(api: &A, lanes: &[Lane], streams: &mut Vec<Stream>) -> Call<Vec<String>> {
    let mut idle = Vec::new();
    let notes = make_with(api, lanes, streams, &mut idle);
    streams.append(&mut idle);
    notes
}

fn make_with<A: Api>(api: &A, lanes: &[Lane], streams: &mut Vec<Stream>, idle: &mut Vec<Stream>) -> Call<Vec<String>> {
    let topology = api.topology();
    // The hardware queue that the next stream of each pool gets.
    let mut next_queues: BTreeMap<Option<Priority>, u32> = BTreeMap::new();
    let mut notes = Vec::new();
    let asked = lanes.iter().any(|lane| lane.units.is_some());
    // Querying the device takes time, and most files request no units.
    let all = if asked { api.device().units.unwrap_or(0) } else { 0 };
    let step = if asked { api.unit_step() } else { 1 };
    let ranges = unit_ranges::assign(lanes.iter().map(|lane| lane.units), all, step);
    // The streams of the device come first, so that those of host lanes do not change their hardware queues.
    let mut order: Vec<usize> = (0..lanes.len()).collect();
    order.sort_by_key(|&lane| lanes[lane].threads.is_some());
    for &number in &order {
        let (lane, range) = (&lanes[number], ranges[number]);
        let counts = lane.threads.is_none() && (range.is_none() || !topology.limits_units);
        if counts {
            let next_queue = next_queues.entry(topology.by_priority.then_some(lane.priority)).or_insert(0);
            let before = idle.len();
            while lane.queue_asked && *next_queue != lane.queue && idle.len() < before + topology.queues as usize {
                idle.push(api.stream(lane.priority)?);
                *next_queue = (*next_queue + 1) % topology.queues.max(1);
            }
            *next_queue = (*next_queue + 1) % topology.queues.max(1);
        }
        let (Some(range), Some(units)) = (range, lane.units) else {
            streams.push(api.stream(lane.priority)?);
            continue;
        };
        let (name, asked) = (&lane.name, units.text());
        match api.stream_within(lane.priority, range)? {
            Some(stream) => {
                let (first, end) = (range.first, range.first + range.count);
                let each =
                    if step > 1 { format!(", {} of each of {step} chips", range.count / step) } else { String::new() };
                notes.push(format!(
                    "stream {name}, which requests {asked}, is restricted to units {first} to {} of {all}{each}",
                    end - 1
                ));
                streams.push(stream);
            }
            None => {
                notes.push(format!(
                    "stream {name} requests {asked} but may use all of them: the backend {} cannot restrict streams \
                     here",
                    A::NAME
                ));
                streams.push(api.stream(lane.priority)?);
            }
        }
    }
    let made = streams.clone();
    for (number, stream) in order.into_iter().zip(made) {
        streams[number] = stream;
    }
    if streams.is_empty() {
        streams.push(api.stream(Priority::Normal)?);
    }
    Ok(notes)
}
