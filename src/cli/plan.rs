//! `aorta plan`.

use std::fmt::Write as _;

use clap::Args;

use crate::base::{Bytes, Flops, Nanos, counted};
use crate::cost;
use crate::model::{OpKind, Sync};
use crate::plan::Reason;
use crate::schedule;

use super::{CliResult, ConfigArgs, DONE, WorkloadArgs, backends, diagnostics, load, output};

#[derive(Debug, Args)]
pub struct PlanArgs {
    /// The file, or the name of a shipped workload
    file: String,
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    config: ConfigArgs,
}

pub fn run(args: PlanArgs) -> CliResult {
    let settings = load::settings(&args.config)?;
    let text = load::find(&args.file, &settings)?;
    let loaded = load::load(text, &args.workload, &settings)?;
    let profile = backends::profile(&settings)?;
    let schedule = diagnostics::placed(&loaded, &profile);
    output::print(&describe(&loaded, &schedule, &profile));
    Ok(DONE)
}

fn describe(loaded: &load::Loaded, schedule: &schedule::Schedule, profile: &crate::config::Profile) -> String {
    let (program, plan) = (&loaded.program, &loaded.plan);
    let mut out = String::new();
    for (index, (step, graph)) in program.cycle.iter().zip(&plan.steps).enumerate() {
        if program.cycle.len() > 1 {
            let _ = writeln!(out, "iteration {index} of a cycle of {}", program.cycle.len());
        }
        let mut durations = vec![0.0; step.ops.len()];
        let (mut flops, mut bytes) = (0.0, 0);
        let mut phase = None;
        for op in step.ids() {
            let info = step.op(op);
            let here = program.phase_text(info.phase);
            if here != phase {
                if let Some(name) = &here {
                    let _ = writeln!(out, "phase {name}");
                }
                phase = here;
            }
            let mut what = program.op_name(info).to_owned();
            if let OpKind::Run(spec) = info.kind {
                let spec = program.spec(spec);
                let cost = spec.cost();
                durations[op.index()] = cost::duration(spec, profile);
                flops += cost.flops;
                bytes += cost.bytes();
                let operands = |views: &[crate::base::ViewId]| {
                    views.iter().map(|view| program.view_text(*view)).collect::<Vec<_>>().join(", ")
                };
                let (inputs, outputs) = (operands(step.inputs(op)), operands(step.outputs(op)));
                what += &match (inputs.is_empty(), outputs.is_empty()) {
                    (_, true) => format!("({inputs})"),
                    (true, false) => format!("(-> {outputs})"),
                    (false, false) => format!("({inputs} -> {outputs})"),
                };
                let mut costs = Vec::new();
                if cost.flops > 0.0 {
                    costs.push(Flops(cost.flops).to_string());
                }
                if cost.bytes() > 0 {
                    costs.push(Bytes(cost.bytes()).to_string());
                }
                if !costs.is_empty() {
                    what += &format!("  {}", costs.join(", "));
                }
            }
            let label = program.label_text(info.label).map(|label| format!("{label}: ")).unwrap_or_default();
            let stream = &program.streams[info.stream.index()].name;
            let _ = writeln!(out, "#{:<4} {stream:<12} {label}{what}", op.0);
            for edge in graph.before(op) {
                if edge.reason != Reason::Stream {
                    let from = program.op_text(step.op(edge.from));
                    let _ = writeln!(out, "      waits for #{} {from}: {}", edge.from.0, edge.reason.text(program));
                }
            }
            for edge in graph.across.iter().filter(|edge| edge.to == op) {
                let ago = match edge.distance {
                    1 => "the iteration before".to_owned(),
                    distance => format!("{distance} iterations before"),
                };
                let _ = writeln!(out, "      waits for #{} of {ago}: {}", edge.from.0, edge.reason.text(program));
            }
        }
        let path = graph.critical_path(&durations);
        let names: Vec<String> =
            path.ops.iter().map(|op| format!("#{} {}", op.0, program.op_text(step.op(*op)))).collect();
        let _ = writeln!(out, "\n{}, {}, {} moved", counted(step.ops.len(), "operation"), Flops(flops), Bytes(bytes));
        let _ = writeln!(
            out,
            "critical path, {} (modelled on an {}): {}\n",
            Nanos(path.length.round() as i64),
            profile.name,
            names.join(" > ")
        );
    }
    streams(loaded, schedule, &mut out);
    out
}

fn streams(loaded: &load::Loaded, schedule: &schedule::Schedule, out: &mut String) {
    let program = &loaded.program;
    let iterations = match program.step.sync {
        Sync::Iteration => "an iteration begins when the last is complete".to_owned(),
        Sync::End => format!("up to {} iterations are under way", schedule.depth),
    };
    let _ = writeln!(
        out,
        "{}, {} between them, {}; {iterations}",
        counted(schedule.lanes.len(), "stream"),
        counted(schedule.waits(), "wait"),
        counted(schedule.events as usize, "event")
    );
    for lane in schedule.lanes.iter().filter(|lane| lane.streams.len() > 1) {
        let names: Vec<&str> =
            lane.streams.iter().map(|stream| program.streams[stream.index()].name.as_str()).collect();
        let _ = writeln!(out, "one stream for {}", names.join(", "));
    }
    let memory = &schedule.memory;
    let _ = writeln!(
        out,
        "{} of device memory, {} of it scratch",
        Bytes(schedule.bytes(crate::base::Space::Device)),
        Bytes(memory.scratch * u64::from(memory.slots))
    );
}
