//! The document as text: a line for each operation, the operations that it waits for, and totals.

use std::io::{self, Write};

use indexmap::IndexMap;

use crate::base::{Bytes, Flops, Nanos, counted};
use crate::measure::record::FusionRecord;

use super::advice;
use super::{Iteration, KeptMemory, PlanDocument, PlannedDependency, PlannedOperation, RankCopy, Slice, SlotPlan};

/// Maximum width of the column of streams; a longer name shifts the rest of its line.
const STREAM: usize = 20;

pub fn text(document: &PlanDocument, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", document.title())?;
    writeln!(out, "times are modelled on an {}: nothing was measured", document.modelled_on)?;
    let several = document.slots().len() > 1;
    for (slot, iteration) in document.parts() {
        writeln!(out)?;
        if several {
            writeln!(out, "{}", document.heading(slot))?;
        }
        operations(document, (slot, iteration), out)?;
        totals(iteration, out)?;
        kept(iteration, out)?;
        implementations(iteration, out)?;
    }
    streams(document, out)?;
    let lines = document.fusion.iter().flat_map(FusionRecord::lines);
    lines.enumerate().try_for_each(|(number, line)| writeln!(out, "{}{line}", if number == 0 { "\n" } else { "" }))?;
    for (number, found) in document.advice.iter().enumerate() {
        if number == 0 {
            writeln!(out, "\nadvice from the plan, before anything was measured:")?;
        }
        for line in advice::lines(found) {
            writeln!(out, "  {line}")?;
        }
        writeln!(out, "    aorta explain {}", found.code)?;
    }
    Ok(())
}

/// Widths of the columns.
struct Widths {
    number: usize,
    stream: usize,
}

fn operations(
    document: &PlanDocument,
    (slot, iteration): (SlotPlan, &Iteration),
    out: &mut impl Write,
) -> io::Result<()> {
    let names = iteration.operations.iter().map(|operation| operation.stream.chars().count());
    let widths = Widths {
        number: iteration.operations.len().to_string().len().max(2) + 1,
        stream: names.max().unwrap_or(0).clamp("stream".len(), STREAM),
    };
    writeln!(
        out,
        "{:<number$}  {:<stream$}  {:<before$}  {:>9}  {:>9}  {:>9}  operation",
        "",
        "stream",
        "behind",
        "start",
        "takes",
        "slack",
        number = widths.number,
        stream = widths.stream,
        before = widths.number.max("behind".len()),
    )?;
    let mut phase = None;
    for (operation, edges) in iteration.with_edges() {
        if operation.phase != phase {
            if let Some(name) = &operation.phase {
                writeln!(out, "phase {name}")?;
            }
            phase.clone_from(&operation.phase);
        }
        line(operation, edges.iter().find(|edge| edge.is_stream()), &widths, out)?;
        for edge in edges.iter().filter(|edge| !edge.is_stream()) {
            wait(document, slot, edge, out)?;
        }
    }
    Ok(())
}

fn line(
    operation: &PlannedOperation,
    behind: Option<&PlannedDependency>,
    widths: &Widths,
    out: &mut impl Write,
) -> io::Result<()> {
    let behind = behind.map(|edge| format!("#{}", edge.from)).unwrap_or_default();
    let slack = if operation.critical { "critical".to_owned() } else { operation.slack_ns.to_string() };
    write!(
        out,
        "#{:<number$} {:<stream$}  {behind:<before$}  {:>9}  {:>9}  {slack:>9}  ",
        operation.id,
        operation.stream,
        operation.start_ns,
        operation.duration_ns,
        number = widths.number,
        stream = widths.stream,
        before = widths.number.max("behind".len()),
    )?;
    if let Some(label) = &operation.label {
        write!(out, "{label}: ")?;
    }
    write!(out, "{}", operation.operation)?;
    operands(operation, out)?;
    let mut gap = "  ";
    if operation.flops > 0.0 {
        write!(out, "{gap}{}", Flops(operation.flops))?;
        gap = ", ";
    }
    if operation.bytes > 0 {
        write!(out, "{gap}{}", Bytes(operation.bytes))?;
    }
    writeln!(out)
}

/// The operands, such as `(x[0..4], w -> y)`; nothing for a marker.
fn operands(operation: &PlannedOperation, out: &mut impl Write) -> io::Result<()> {
    if operation.is_marker() {
        return Ok(());
    }
    if let Some(peer) = &operation.peer {
        return crossing(operation, peer, out);
    }
    write!(out, "(")?;
    list(&operation.inputs, out)?;
    if !operation.outputs.is_empty() {
        write!(out, "{}-> ", if operation.inputs.is_empty() { "" } else { " " })?;
        list(&operation.outputs, out)?;
    }
    write!(out, ")")
}

/// The operands that a copy between ranks sends and receives, such as `(x -> y at 1; rank 3 -> y)`.
fn crossing(operation: &PlannedOperation, peer: &RankCopy, out: &mut impl Write) -> io::Result<()> {
    let mut parts = Vec::new();
    if let (Some((rank, target)), Some(source)) = (&peer.to, operation.inputs.first()) {
        parts.push(format!("{} -> {} at {rank}", source.slice, target.slice));
    }
    let arrives = peer.from.iter().zip(&operation.outputs);
    parts.extend(arrives.map(|(rank, slice)| format!("rank {rank} -> {}", slice.slice)));
    write!(out, "({})", parts.join("; "))
}

fn list(slices: &[Slice], out: &mut impl Write) -> io::Result<()> {
    for (index, slice) in slices.iter().enumerate() {
        write!(out, "{}{}", if index == 0 { "" } else { ", " }, slice.slice)?;
    }
    Ok(())
}

fn wait(document: &PlanDocument, slot: SlotPlan, edge: &PlannedDependency, out: &mut impl Write) -> io::Result<()> {
    let Some(source) = document.source(slot, edge) else { return Ok(()) };
    write!(out, "      waits for #{} {} on {}", source.id, source.name(), source.stream)?;
    writeln!(out, "{}: {}", edge.distance_suffix(), edge.why())
}

fn totals(iteration: &Iteration, out: &mut impl Write) -> io::Result<()> {
    let operations = counted(iteration.operations.len(), "operation");
    writeln!(out, "\n{operations}, {}, {} moved", Flops(iteration.flops), Bytes(iteration.bytes))?;
    let path = &iteration.critical_path;
    let share = match path.sum_ns.0 {
        0 => 0.0,
        sum => 100.0 * path.length_ns.0 as f64 / sum as f64,
    };
    writeln!(
        out,
        "critical path, {}, {share:.0} % of the serial time, {}:\n  {}",
        path.length_ns,
        path.sum_ns,
        iteration.path_names()
    )
}

/// The values that gradients read, with the operations between which they are kept.
fn kept(iteration: &Iteration, out: &mut impl Write) -> io::Result<()> {
    let Some(most) = iteration.most_kept() else { return Ok(()) };
    writeln!(out, "kept for gradients, at most {} at a time:", Bytes(most))?;
    let rows = iteration.kept.iter().map(|kept| (&*kept.memory, Bytes(kept.bytes).to_string(), kept));
    let rows: Vec<(&str, String, &KeptMemory)> = rows.collect();
    let value = rows.iter().map(|(value, ..)| value.chars().count()).max().unwrap_or(0);
    let size = rows.iter().map(|(_, size, _)| size.chars().count()).max().unwrap_or(0);
    for (name, bytes, kept) in rows {
        let time = Nanos(kept.to_ns.0 - kept.from_ns.0);
        let [from, to] = [kept.from, kept.to].map(|op| iteration.operations[op as usize].name());
        writeln!(out, "  {name:<value$}  {bytes:>size$}  for {time}, from #{} {from} to #{} {to}", kept.from, kept.to)?;
    }
    Ok(())
}

/// Lists operations whose implementation does not follow from their kind.
fn implementations(iteration: &Iteration, out: &mut impl Write) -> io::Result<()> {
    /// Maximum number of operations that a line names.
    const NAMED: usize = 8;
    let mut ways: IndexMap<&str, Vec<u32>> = IndexMap::new();
    for operation in &iteration.operations {
        if let Some(way) = &operation.implementation {
            ways.entry(way).or_default().push(operation.id);
        }
    }
    for (number, (way, operations)) in ways.iter().enumerate() {
        if number == 0 {
            writeln!(out, "carried out:")?;
        }
        let named: Vec<String> = operations.iter().take(NAMED).map(|id| format!("#{id}")).collect();
        let more = match operations.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        writeln!(out, "  {}{more}: {way}", named.join(", "))?;
    }
    Ok(())
}

/// The real stream of each declared stream, and which ones share a real stream.
fn streams(document: &PlanDocument, out: &mut impl Write) -> io::Result<()> {
    let mut counts = vec![0usize; document.lanes.len()];
    for operation in document.parts().flat_map(|(_, iteration)| &iteration.operations) {
        counts[operation.lane as usize] += 1;
    }
    let names = document.lanes.iter().map(|lane| lane.name.chars().count());
    let width = names.max().unwrap_or(0).clamp("real stream".len(), STREAM);
    writeln!(
        out,
        "\n{:<width$}  {:>8}  {:>5}  {:>10}  declared streams on it",
        "real stream", "priority", "queue", "operations"
    )?;
    for (lane, operations) in document.lanes.iter().zip(&counts) {
        let declared = lane.streams.join(", ") + &lane.limits_text();
        let queue = lane.queue_text();
        writeln!(out, "{:<width$}  {:>8}  {queue:>5}  {operations:>10}  {declared}", lane.name, lane.priority)?;
    }
    let lanes = document.lanes.len();
    let declared =
        if document.streams == lanes { String::new() } else { format!(" for {} declared", document.streams) };
    writeln!(
        out,
        "\n{}{declared}, {} between them, {}; {}",
        counted(lanes, "stream"),
        counted(document.waits, "wait"),
        counted(document.events as usize, "event"),
        match document.sync.as_str() {
            "end" => format!("up to {} iterations are under way", document.depth),
            _ => "each iteration starts after the previous one has completed".to_owned(),
        }
    )?;
    let idle = counts.iter().filter(|count| **count == 0).count();
    if idle > 0 {
        writeln!(out, "{} without an operation", counted(idle, "stream"))?;
    }
    queues(document, out)?;
    memory(document, out)
}

fn queues(document: &PlanDocument, out: &mut impl Write) -> io::Result<()> {
    let queues = &document.queues;
    let each = if queues.by_priority { " for each priority" } else { "" };
    write!(out, "{}{each}, {} used", counted(queues.count as usize, "hardware queue"), queues.used)?;
    match queues.shared {
        0 => writeln!(out, ", none shared"),
        shared => writeln!(out, ", {shared} shared: what waits at the head of a queue holds up all streams on it"),
    }
}

fn memory(document: &PlanDocument, out: &mut impl Write) -> io::Result<()> {
    let memory = &document.memory;
    write!(out, "{} of device memory, {} of it scratch", memory.device, memory.scratch)?;
    if memory.workspace.0 > 0 {
        write!(out, ", and {} of workspace", memory.workspace)?;
    }
    for (bytes, space) in [(memory.pinned, "pinned"), (memory.managed, "managed"), (memory.host, "host")] {
        if bytes.0 > 0 {
            write!(out, "; {bytes} of {space} memory")?;
        }
    }
    writeln!(out)
}
