//! The traces of a record in Perfetto's own format: a list of packets in the encoding of protocol buffers.
//!
//! The events are those of the Chrome trace. Numbers of fields are those of Perfetto's `trace_packet.proto`,
//! `track_descriptor.proto` and `track_event.proto`.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use crate::measure::record::RunRecord;

use super::chrome_trace::{BETWEEN_RANKS, events};

/// A message of protocol buffers: fields, each with its number.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Adds an integer.
    fn number(mut self, field: u32, value: u64) -> Message {
        self.varint(u64::from(field) << 3);
        self.varint(value);
        self
    }

    /// Adds 64 bits.
    fn fixed(mut self, field: u32, value: u64) -> Message {
        self.varint(u64::from(field) << 3 | 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(mut self, field: u32, bytes: &[u8]) -> Message {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    fn text(self, field: u32, text: &str) -> Message {
        self.bytes(field, text.as_bytes())
    }

    fn message(self, field: u32, message: &Message) -> Message {
        self.bytes(field, &message.0)
    }
}

/// The only writer of packets.
const SEQUENCE: u64 = 1;

/// Kinds of events.
const BEGIN: u64 = 1;
const END: u64 = 2;
const COUNTER: u64 = 4;

/// Identifies a track: a process, a thread of it, or a counter of it by its name.
#[derive(Clone, Copy)]
enum Track<'a> {
    Process(u64),
    Thread(u64, u64),
    Counter(u64, &'a str),
}

impl Track<'_> {
    /// The number of the track, unique within the trace.
    fn id(self) -> u64 {
        match self {
            Track::Process(process) => (process + 1) << 32,
            Track::Thread(process, thread) => ((process + 1) << 32) + 1 + thread,
            Track::Counter(process, name) => {
                let hash = name.bytes().fold(0u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
                ((process + 1) << 32) + (1 << 31) + (hash & 0x7fff_ffff)
            }
        }
    }
}

/// The trace as bytes.
pub fn pftrace(record: &RunRecord) -> Vec<u8> {
    let events = events(record);
    let mut trace = Message::default();
    let mut write = |packet: Message| {
        trace = std::mem::take(&mut trace).message(1, &packet.number(10, SEQUENCE));
    };
    tracks(&events).into_iter().for_each(&mut write);
    let flows = flows(&events);
    let ends = |index: usize| flows.get(&index).map_or(&[][..], |ends| ends);
    let mut packets: Vec<(u64, u8, Message)> =
        events.iter().enumerate().flat_map(|(index, event)| packets(event, ends(index))).collect();
    // At one moment slices end before others begin.
    packets.sort_by_key(|(at, order, _)| (*at, *order));
    for (at, _, event) in packets {
        write(Message::default().number(8, at).message(11, &event));
    }
    trace.0
}

fn number(event: &Value, name: &str) -> u64 {
    event[name].as_u64().unwrap_or(0)
}

/// A time in nanoseconds; events have microseconds.
fn moment(value: &Value) -> u64 {
    (value.as_f64().unwrap_or(0.0) * 1e3).round().max(0.0) as u64
}

/// Descriptions of all processes, threads and counters.
fn tracks(events: &[Value]) -> Vec<Message> {
    let mut packets = Vec::new();
    let mut known = BTreeSet::new();
    for event in events {
        let process = number(event, "pid");
        let name = event["args"]["name"].as_str().unwrap_or_default();
        let track = match (event["ph"].as_str(), event["name"].as_str()) {
            (Some("M"), Some("process_name")) => {
                let process_of = Message::default().number(1, process).text(6, name);
                Message::default().number(1, Track::Process(process).id()).message(3, &process_of)
            }
            (Some("M"), Some("thread_name")) => {
                let thread = number(event, "tid");
                let thread_of = Message::default().number(1, process).number(2, thread).text(5, name);
                let id = Track::Thread(process, thread).id();
                Message::default().number(1, id).number(5, Track::Process(process).id()).message(4, &thread_of)
            }
            (Some("C"), Some(name)) => {
                let id = Track::Counter(process, name).id();
                if !known.insert(id) {
                    continue;
                }
                let unit = if name.contains("(B/s)") { "B/s" } else { "count" };
                let counter = Message::default().text(6, unit);
                let parent = Track::Process(process).id();
                Message::default().number(1, id).text(2, name).number(5, parent).message(8, &counter)
            }
            _ => continue,
        };
        packets.push(Message::default().message(60, &track));
    }
    packets
}

/// The end of an arrow at an event: field of the event, and number of the arrow.
type FlowEnd = (u32, u64);

/// Ends of arrows, by the index of the slice in which each lies: an operation, or a moment for arrows between ranks.
fn flows(events: &[Value]) -> HashMap<usize, Vec<FlowEnd>> {
    let mut slices: HashMap<(bool, u64), Vec<(u64, usize)>> = HashMap::new();
    let track = |event: &Value| (event["cat"] == BETWEEN_RANKS, number(event, "tid"));
    for (index, event) in events.iter().enumerate().filter(|(_, event)| event["ph"] == "X") {
        slices.entry(track(event)).or_default().push((moment(&event["ts"]), index));
    }
    slices.values_mut().for_each(|slices| slices.sort_unstable());
    let mut flows: HashMap<usize, Vec<FlowEnd>> = HashMap::new();
    for event in events.iter().filter(|event| event["ph"] == "s" || event["ph"] == "f") {
        let at = moment(&event["ts"]);
        let Some(slices) = slices.get(&track(event)) else { continue };
        let before = slices.partition_point(|(start, _)| *start <= at);
        if let Some((_, index)) = before.checked_sub(1).map(|last| slices[last]) {
            flows.entry(index).or_default().push(flow_end(event));
        }
    }
    flows
}

fn flow_end(event: &Value) -> FlowEnd {
    (if event["ph"] == "s" { 47 } else { 48 }, number(event, "id") + 1)
}

/// An argument of an event.
fn annotation(name: &str, value: &Value) -> Message {
    let message = Message::default().text(10, name);
    match value {
        Value::Bool(value) => message.number(2, u64::from(*value)),
        Value::Number(value) => match value.as_u64() {
            Some(value) => message.number(3, value),
            None => message.fixed(5, value.as_f64().unwrap_or(0.0).to_bits()),
        },
        Value::String(value) => message.text(6, value),
        other => message.text(6, &other.to_string()),
    }
}

/// The packets of an event, each with its time and its order among those of the same time. `flows` are the ends of arrows
/// at it.
fn packets(event: &Value, flows: &[FlowEnd]) -> Vec<(u64, u8, Message)> {
    let process = number(event, "pid");
    let at = moment(&event["ts"]);
    let thread = Track::Thread(process, number(event, "tid")).id();
    let event_of = |kind: u64, track: u64| Message::default().number(9, kind).number(11, track);
    let name = event["name"].as_str().unwrap_or_default();
    match event["ph"].as_str() {
        Some("X") => {
            let begin = event_of(BEGIN, thread).text(22, event["cat"].as_str().unwrap_or_default()).text(23, name);
            let arguments = event["args"].as_object().into_iter().flatten();
            let begin = arguments.fold(begin, |begin, (name, value)| begin.message(4, &annotation(name, value)));
            let begin = flows.iter().fold(begin, |begin, (field, flow)| begin.fixed(*field, *flow));
            let end = at + moment(&event["dur"]);
            // An empty slice ends after it begins, and a slice for the end of an arrow lies within an operation.
            let order = if event["cat"] == BETWEEN_RANKS { 3 } else { 1 };
            vec![(at, order, begin), (end, if end > at { 0 } else { order + 1 }, event_of(END, thread))]
        }
        Some("C") => {
            let value = event["args"]["value"].as_f64().unwrap_or(0.0);
            let track = Track::Counter(process, name).id();
            vec![(at, 5, event_of(COUNTER, track).fixed(44, value.to_bits()))]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_the_encoding_of_protocol_buffers() {
        // Examples from the documentation of the encoding.
        assert_eq!(Message::default().number(1, 150).0, [0x08, 0x96, 0x01]);
        assert_eq!(Message::default().text(2, "testing").0, b"\x12\x07testing");
        let inner = Message::default().number(1, 150);
        assert_eq!(Message::default().message(3, &inner).0, [0x1a, 0x03, 0x08, 0x96, 0x01]);
        assert_eq!(Message::default().fixed(44, 1).0, [0xe1, 0x02, 1, 0, 0, 0, 0, 0, 0, 0]);
    }
}
