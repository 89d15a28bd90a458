//! What becomes of every shipped file, stage by stage, as text: its plan, its schedule, a simulated iteration, and the
//! table of a run. The files are taken at their tiny presets, where they have one.

mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command as Process;

use aorta::backend::sim::Sim;
use aorta::base::{Bytes, LaneId, MemoryId, OpId};
use aorta::config::Profile;
use aorta::exec::{Control, LaunchMode, Trace};
use aorta::model::{MemoryKind, Program};
use aorta::schedule::{Command, Options, Schedule};
use common::shipped::{self, Shipped};

/// What the program prints for a file.
fn printed(command: &[&str], file: &Shipped) -> String {
    let tiny = file.presets().iter().any(|preset| preset == "tiny");
    let output = Process::new(env!("CARGO_BIN_EXE_aorta"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        // Settings of whoever runs the tests have no part in them.
        .env("XDG_CONFIG_HOME", env!("CARGO_TARGET_TMPDIR"))
        .arg(command[0])
        .arg(&file.path)
        .args(&command[1..])
        .args(if tiny { &["--preset", "tiny"][..] } else { &[] })
        .output()
        .expect("the program starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {}\n{errors}", file.path, output.status);
    String::from_utf8(output.stdout).expect("it prints text")
}

/// A file with its program at the same size.
fn program(file: &Shipped) -> (Program, aorta::plan::Plan) {
    let tiny = file.presets().into_iter().find(|preset| preset == "tiny");
    file.program(tiny.as_deref(), &[])
}

/// `#3 map act`.
fn op_text(program: &Program, op: OpId) -> String {
    let info = program.cycle[0].op(op);
    let (name, label) = (program.op_name(info), program.op_text(info));
    if name == label { format!("#{} {name}", op.0) } else { format!("#{} {name} {label}", op.0) }
}

/// Lanes, what the host issues in its order, and where memory lies.
fn schedule_text(program: &Program, schedule: &Schedule) -> String {
    let mut text = String::new();
    let name = |lane: LaneId| &schedule.lanes[lane.index()].name;
    for lane in &schedule.lanes {
        let streams: Vec<&str> =
            lane.streams.iter().map(|stream| program.streams[stream.index()].name.as_str()).collect();
        let _ = writeln!(
            text,
            "lane {}: priority {}, queue {}, for {}",
            lane.name,
            lane.priority.name(),
            lane.queue,
            streams.join(", ")
        );
    }
    for (turn, step) in schedule.period.iter().enumerate() {
        let _ = writeln!(text, "\niteration {turn} of a period of {}", schedule.period.len());
        for command in &step.commands {
            let _ = match *command {
                Command::Launch { op, lane } => writeln!(text, "{:<10} launch {}", name(lane), op_text(program, op)),
                Command::Record { event, lane } => writeln!(text, "{:<10} record e{}", name(lane), event.0),
                Command::Wait { event, lane, across: false } => writeln!(text, "{:<10} wait e{}", name(lane), event.0),
                Command::Wait { event, lane, across: true } => {
                    writeln!(text, "{:<10} wait e{} of an earlier iteration", name(lane), event.0)
                }
            };
        }
        let ends: Vec<&str> = step.leaves.iter().map(|&lane| name(lane).as_str()).collect();
        let _ = writeln!(text, "it ends with {}", ends.join(", "));
    }
    text + &memory_text(program, schedule)
}

/// Where memory lies; scratch that shares a place stands in one line.
fn memory_text(program: &Program, schedule: &Schedule) -> String {
    let mut text = "\nmemory\n".to_owned();
    let mut scratch: BTreeMap<u64, (u64, Vec<&str>)> = BTreeMap::new();
    for id in (0..program.memories.len()).map(MemoryId::from) {
        let memory = program.memory(id);
        let placement = schedule.memory.placement(id);
        let name = program.names.name(memory.name);
        match memory.kind {
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

/// A simulated iteration, operation by operation, as streams and as a graph.
fn trace_text(program: &Program, schedule: &Schedule, traces: &[Trace; 2]) -> String {
    let mut text = format!("{:<28} {:<10} {:>17} {:>17}\n", "in ns", "", "as streams", "as a graph");
    for (span, as_graph) in traces[0].spans.iter().zip(&traces[1].spans) {
        assert_eq!((span.op, span.lane), (as_graph.op, as_graph.lane), "both have one order");
        let _ = writeln!(
            text,
            "{:<28} {:<10} {:>8} {:>8} {:>8} {:>8}",
            op_text(program, span.op),
            schedule.lanes[span.lane.index()].name,
            span.start.0,
            span.end.0,
            as_graph.start.0,
            as_graph.end.0
        );
    }
    let _ = writeln!(text, "{:<39} {:>17} {:>17}", "all", traces[0].time.0, traces[1].time.0);
    text
}

#[test]
fn plans() {
    for file in shipped::all() {
        insta::assert_snapshot!(format!("plan_{}", file.stem()), printed(&["plan"], &file));
    }
}

#[test]
fn schedules() {
    for file in shipped::all() {
        let (program, plan) = program(&file);
        let sim = Sim::new(Profile::named("h200").expect("embedded"));
        let schedule = common::placed(&program, &plan, &sim, &Options::default());
        insta::assert_snapshot!(format!("schedule_{}", file.stem()), schedule_text(&program, &schedule));
    }
}

#[test]
fn traces() {
    for file in shipped::all() {
        let (program, plan) = program(&file);
        let sim = Sim::new(Profile::named("h200").expect("embedded"));
        let schedule = common::placed(&program, &plan, &sim, &Options::default());
        let mut session = common::session(&program, &schedule, &sim);
        session.capture().expect("the simulator captures");
        let traces = [LaunchMode::Stream, LaunchMode::Graph].map(|mode| {
            let traces = session.observe(mode, 1, &Control::default()).expect("the simulator does not fail");
            traces.into_iter().next().expect("one was asked for")
        });
        insta::assert_snapshot!(format!("trace_{}", file.stem()), trace_text(&program, &schedule, &traces));
    }
}

#[test]
fn tables() {
    for file in shipped::all() {
        let command = ["exec", "--backend", "sim", "--effort", "quick", "--launch", "both"];
        insta::assert_snapshot!(format!("table_{}", file.stem()), printed(&command, &file));
    }
}
