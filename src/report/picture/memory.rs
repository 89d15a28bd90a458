//! The memory of an iteration, by buffer: when each is alive, written and read.

use crate::base::{Bytes, MemoryId};
use crate::model::{MemoryKind, Program};
use crate::report::plan::{Iteration, PlanDocument};
use crate::schedule::Schedule;

use super::chart::{BarRows, ROW};
use super::{Gallery, Picture, SvgElement};

/// Maximum number of buffers, the largest.
const BUFFERS: usize = 48;

/// Maximum number of operations.
const OPERATIONS: usize = 4000;

/// An access of an operation.
struct OperationAccess {
    op: usize,
    writes: bool,
}

/// The memory of each slot of the cycle; `None` without operations that access memory.
pub fn memory(program: &Program, schedule: &Schedule, document: &PlanDocument) -> Option<Gallery> {
    let slots = document.iterations.iter().enumerate().take(program.cycle.len());
    let pictures =
        slots.filter(|(_, iteration)| iteration.operations.len() <= OPERATIONS).filter_map(|(slot, iteration)| {
            let name = if document.iterations.len() > 1 { format!("slot {slot}") } else { "iteration".to_owned() };
            let picture = draw(&name, program, schedule, (slot, iteration))?;
            Some((name, picture))
        });
    let notes = [
        "A row is a buffer, the largest first. A grey line is the time in which it holds memory: all of the iteration for \
         what the file declares, and from its first write to its last use for scratch. Orange: an operation writes it; \
         blue: one reads it. Operations are at their earliest start, in modelled time.",
    ];
    Gallery::of("memory", "Memory over the iteration", &notes, "Part", pictures.collect())
}

fn draw(name: &str, program: &Program, schedule: &Schedule, (slot, iteration): (usize, &Iteration)) -> Option<Picture> {
    let step = &program.cycle[slot];
    let mut accesses: Vec<Vec<OperationAccess>> = (0..program.memories.len()).map(|_| Vec::new()).collect();
    for op in step.ids() {
        let views = step.inputs(op).iter().map(|view| (view, false));
        for (view, writes) in views.chain(step.outputs(op).iter().map(|view| (view, true))) {
            accesses[program.views.memory(*view).index()].push(OperationAccess { op: op.index(), writes });
        }
    }
    let placement = |index: usize| schedule.memory.placement(MemoryId(index as u32));
    let mut shown: Vec<usize> = (0..accesses.len()).filter(|index| !accesses[*index].is_empty()).collect();
    shown.sort_by_key(|index| std::cmp::Reverse(placement(*index).bytes));
    let hidden = shown.len().saturating_sub(BUFFERS);
    shown.truncate(BUFFERS);
    if shown.is_empty() {
        return None;
    }
    let span = |op: usize| {
        let operation = &iteration.operations[op];
        let start = operation.start_ns.0 as f64;
        (start, start + operation.duration_ns.0 as f64)
    };
    let most = (0..iteration.operations.len()).map(|op| span(op).1).fold(0.0, f64::max);
    let names = shown.iter().map(|index| program.names.name(program.memories[*index].name));
    let mut rows = BarRows::new(&names.collect::<Vec<_>>(), most);
    for (row, index) in shown.iter().enumerate() {
        let memory = &program.memories[*index];
        let bytes = Bytes(placement(*index).bytes);
        let title = program.names.name(memory.name).to_owned();
        let used = &accesses[*index];
        let life = match memory.kind {
            MemoryKind::Scratch => {
                let ends = used.iter().map(|access| span(access.op));
                ends.fold((f64::MAX, 0.0), |(from, to): (f64, f64), (start, end)| (from.min(start), to.max(end)))
            }
            _ => (0.0, most),
        };
        let y = row as f64 * ROW + 9.0;
        let (from, to) = (rows.x(life.0), rows.x(life.1));
        let kind = format!("{title}: {bytes} of {}", placement(*index).space.name());
        rows.shapes.push(SvgElement::rect("fill-part-7", from, y, (to - from).max(1.0), 4.0).titled(kind));
        for access in used {
            let (class, verb) = if access.writes { ("fill-part-2", "writes") } else { ("fill-part-1", "reads") };
            let (from, to) = span(access.op);
            let (from, to) = (rows.x(from), rows.x(to));
            let y = if access.writes { y - 6.0 } else { y + 4.0 };
            let text = format!("{} {verb} {title}", iteration.operations[access.op].name());
            rows.shapes.push(SvgElement::rect(class, from, y, (to - from).max(1.0), 6.0).titled(text));
        }
        rows.value(row, most, bytes.to_string());
    }
    let more = if hidden > 0 { format!("; {hidden} smaller ones are left out") } else { String::new() };
    Some(rows.picture(format!("{name}: when buffers are alive, written and read{more}")))
}
