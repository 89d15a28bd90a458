//! The schedule as text: lanes, the order of launches, events, and memory layout.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::base::{Bytes, LaneId, MemoryId};
use crate::model::{MemoryKind, Program, Units};
use crate::schedule::{Command, Schedule};

use super::operation;

/// The schedule as text.
pub fn schedule(program: &Program, schedule: &Schedule) -> String {
    let mut text = String::new();
    for lane in &schedule.lanes {
        let streams: Vec<&str> =
            lane.streams.iter().map(|stream| program.streams[stream.index()].name.as_str()).collect();
        if let Some(threads) = lane.threads {
            let _ = writeln!(text, "lane {}: on the host, threads {threads}, for {}", lane.name, streams.join(", "));
            continue;
        }
        let _ = writeln!(
            text,
            "lane {}: priority {}{}, queue {}, for {}",
            lane.name,
            lane.priority.name(),
            units(lane.units),
            lane.queue,
            streams.join(", ")
        );
    }
    let period = schedule.period.len();
    text += &commands(program, schedule, |turn| format!("iteration {turn} of a period of {period}"));
    for (which, (block, schedule)) in program.around.as_ref().zip(schedule.around.as_ref()).iter() {
        text += &commands(block, schedule, |_| which.name().to_owned());
    }
    text + &memory(program, schedule)
}

/// The commands of each iteration of a period.
fn commands(program: &Program, schedule: &Schedule, title: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    let name = |lane: LaneId| &schedule.lanes[lane.index()].name;
    for (turn, step) in schedule.period.iter().enumerate() {
        let ops = &program.cycle[step.step];
        let _ = writeln!(text, "\n{}", title(turn));
        for command in &step.commands {
            let _ = match *command {
                Command::Launch { op, lane } => {
                    writeln!(text, "{:<10} launch {}", name(lane), operation(program, ops, op))
                }
                Command::Record { event, lane } => writeln!(text, "{:<10} record e{}", name(lane), event.0),
                Command::Wait { event, lane, across: false } => writeln!(text, "{:<10} wait e{}", name(lane), event.0),
                Command::HostSync => writeln!(text, "{:<10} waits for all", "host"),
                Command::Wait { event, lane, across: true } => {
                    writeln!(text, "{:<10} wait e{} of an earlier iteration", name(lane), event.0)
                }
            };
        }
        let ends: Vec<&str> = step.leaves.iter().map(|&lane| name(lane).as_str()).collect();
        let _ = writeln!(text, "it ends with {}", ends.join(", "));
    }
    text
}

fn units(units: Option<Units>) -> String {
    units.map(|units| format!(", {}", units.text())).unwrap_or_default()
}

/// The memory layout. Scratch memories that share an address are on one line.
fn memory(program: &Program, schedule: &Schedule) -> String {
    let mut text = "\nmemory\n".to_owned();
    let mut scratch: BTreeMap<u64, (u64, Vec<&str>)> = BTreeMap::new();
    let views = program.cycle.iter().flat_map(|step| step.ids().flat_map(|op| step.operands(op)));
    let touched: BTreeSet<MemoryId> = views.map(|(view, _)| program.views.memory(view)).collect();
    for id in (0..program.memories.len()).map(MemoryId::from) {
        // A block around the iterations has scratch memory of its own.
        if program.memory(id).kind == MemoryKind::Scratch && !touched.contains(&id) {
            continue;
        }
        let memory = program.memory(id);
        let placement = schedule.memory.placement(id);
        let name = program.names.name(memory.name);
        match &memory.kind {
            MemoryKind::Scratch => {
                let (bytes, users) = scratch.entry(placement.offset).or_default();
                *bytes = placement.bytes.max(*bytes);
                users.push(name);
            }
            kind => {
                let input = if matches!(kind, MemoryKind::Bare(_)) { "input of " } else { "" };
                let (space, bytes) = (placement.space.name(), Bytes(placement.bytes));
                let _ = writeln!(text, "{space} {}: {input}{name}, {bytes}", placement.offset);
            }
        }
    }
    for (offset, (bytes, users)) in scratch {
        let _ = writeln!(text, "scratch {offset}: outputs of {}, {}", users.join(", "), Bytes(bytes));
    }
    text
}
