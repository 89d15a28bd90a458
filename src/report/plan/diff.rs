//! Differences between two plans.
//!
//! Operations are matched by iteration, label with its path, kind, and index among operations that agree in these.
//! Operation numbers are not used, since they depend on the position in the file.

use std::fmt::Write as _;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::{Bytes, Flops, OnceBlock, counted};

use super::{Iteration, PlanDocument, PlannedDependency, PlannedOperation, Reason, Slice, SlotPlan, Text};

/// The differences as text; lines begin with `-` for the first plan, `+` for the second and `~` for both. `None` if the
/// plans are the same; names of files and values of parameters do not count.
pub fn diff(a: &PlanDocument, b: &PlanDocument) -> Option<String> {
    let mut text = String::new();
    let sides = [a, b].map(KeyedDocument::new);
    let longer = if a.iterations.len() >= b.iterations.len() { a } else { b };
    let mut slots = OnceBlock::ALL.map(SlotPlan::Block).to_vec();
    slots.splice(1..1, (0..longer.iterations.len()).map(SlotPlan::Iteration));
    for slot in slots {
        let mut part = String::new();
        operations(&sides, slot, &mut part);
        edges(&sides, slot, &mut part);
        critical_path(&sides, slot, &mut part);
        let title = match slot {
            SlotPlan::Iteration(index) if longer.iterations.len() > 1 => format!("\niteration {index}\n"),
            SlotPlan::Iteration(_) => String::new(),
            SlotPlan::Block(which) => format!("\n{}\n", which.name()),
        };
        if !part.is_empty() {
            text += &title;
        }
        text += &part;
    }
    streams(a, b, &mut text);
    figures(a, b, &mut text);
    (!text.is_empty()).then(|| format!("- {}\n+ {}\n{text}", a.title(), b.title()))
}

/// Differences between the plans as a whole.
fn figures(a: &PlanDocument, b: &PlanDocument, text: &mut String) {
    let both_have_ranks = a.ranks.is_some() && b.ranks.is_some();
    let figures = |document: &PlanDocument| {
        let memory = document.memory;
        [
            // Plans of earlier versions do not have it.
            ("ranks", document.ranks.filter(|_| both_have_ranks).map_or_else(String::new, |ranks| ranks.to_string())),
            ("modelled on", document.modelled_on.clone()),
            ("slots", document.iterations.len().to_string()),
            ("iterations follow each other by", document.sync.clone()),
            ("iterations under way", document.depth.to_string()),
            ("waits between streams", document.waits.to_string()),
            ("events", document.events.to_string()),
            ("hardware queues with several streams", document.queues.shared.to_string()),
            ("device memory", memory.device.to_string()),
            ("of it scratch", memory.scratch.to_string()),
            ("workspace", memory.workspace.to_string()),
            ("pinned memory", memory.pinned.to_string()),
            ("managed memory", memory.managed.to_string()),
            ("host memory", memory.host.to_string()),
        ]
    };
    let mut part = String::new();
    for ((what, before), (_, after)) in figures(a).into_iter().zip(figures(b)) {
        if before != after {
            let _ = writeln!(part, "~ {what}: {before} -> {after}");
        }
    }
    if differ(a.initial_values.as_ref(), b.initial_values.as_ref()) {
        part += "~ initial values of buffers differ\n";
    }
    section(text, "figures", &part);
}

fn section(text: &mut String, title: &str, lines: &str) {
    if !lines.is_empty() {
        let _ = write!(text, "\n{title}\n{lines}");
    }
}

/// Kind, label and index that identify an operation.
type Key<'a> = (&'a str, Option<&'a str>, u32);

/// A document with the keys of each iteration's operations.
struct KeyedDocument<'a> {
    document: &'a PlanDocument,
    keys: FxHashMap<SlotPlan, Vec<Key<'a>>>,
}

impl<'a> KeyedDocument<'a> {
    fn new(document: &'a PlanDocument) -> Self {
        KeyedDocument { document, keys: document.parts().map(|(slot, part)| (slot, keys_of(part))).collect() }
    }

    /// The operations of a part; none if the document has no such part.
    fn operations(&self, slot: SlotPlan) -> impl Iterator<Item = (Key<'a>, &'a PlannedOperation)> {
        let iteration = self.document.at(slot).into_iter();
        iteration.flat_map(move |iteration| self.keys[&slot].iter().copied().zip(&iteration.operations))
    }

    /// The edges of an iteration by their ends and distance.
    fn edges(&self, slot: SlotPlan) -> impl Iterator<Item = ((Key<'a>, Key<'a>, u32), &'a PlannedDependency)> {
        let edges = self.document.at(slot).into_iter().flat_map(|iteration| &iteration.edges);
        edges.map(move |edge| {
            let source = self.document.earlier(slot, edge.distance);
            ((self.keys[&source][edge.from as usize], self.keys[&slot][edge.to as usize], edge.distance), edge)
        })
    }

    /// The declared stream, and the real one if it has another name.
    fn place(&self, operation: &PlannedOperation) -> String {
        let lane = &self.document.lanes[operation.lane as usize].name;
        match *lane == *operation.stream {
            true => lane.clone(),
            false => format!("{} (on real stream {lane})", operation.stream),
        }
    }
}

fn keys_of(iteration: &Iteration) -> Vec<Key<'_>> {
    let mut counts: FxHashMap<(&str, Option<&str>), u32> = FxHashMap::default();
    let keys = iteration.operations.iter().map(|operation| {
        let (kind, label) = (&*operation.operation, operation.label.as_deref());
        let count = counts.entry((kind, label)).or_default();
        *count += 1;
        (kind, label, *count)
    });
    keys.collect()
}

fn operations([a, b]: &[KeyedDocument; 2], slot: SlotPlan, text: &mut String) {
    let [in_a, in_b] = [a, b].map(|side| side.operations(slot).collect::<FxHashMap<_, _>>());
    let mut lines = String::new();
    for (key, before) in a.operations(slot) {
        match in_b.get(&key) {
            None => only("-", a, before, &mut lines),
            Some(after) => both(a, b, before, after, &mut lines),
        }
    }
    for (_, after) in b.operations(slot).filter(|(key, _)| !in_a.contains_key(key)) {
        only("+", b, after, &mut lines);
    }
    section(text, "operations", &lines);
}

fn only(sign: &str, side: &KeyedDocument, operation: &PlannedOperation, lines: &mut String) {
    let _ = writeln!(lines, "{sign} {} on {}", described(operation), side.place(operation));
}

/// Describes the changes of an operation that both plans have.
fn both(a: &KeyedDocument, b: &KeyedDocument, before: &PlannedOperation, after: &PlannedOperation, lines: &mut String) {
    let (from, to) = (a.place(before), b.place(after));
    if from != to {
        let _ = writeln!(lines, "~ {} moved from {from} to {to}", heading(before, after));
    }
    let work = |operation: &PlannedOperation| {
        let PlannedOperation { flops, bytes, duration_ns, .. } = *operation;
        (flops, bytes, duration_ns)
    };
    if work(before) != work(after)
        || before.inputs != after.inputs
        || before.outputs != after.outputs
        || before.peer != after.peer
    {
        let _ = writeln!(lines, "- {}\n+ {}", described(before), described(after));
    }
    // Plans without the number of ranks are of earlier versions, which hashed it.
    let is_comparable = a.document.ranks.is_some() == b.document.ranks.is_some();
    if is_comparable && differ(before.computes.as_ref(), after.computes.as_ref()) {
        let (heading, from, to) = (heading(before, after), &before.place, &after.place);
        let _ = writeln!(lines, "~ {heading} has other options or another expression: {from} -> {to}");
    }
}

/// True if both texts are known and differ.
fn differ(a: Option<&Text>, b: Option<&Text>) -> bool {
    a.zip(b).is_some_and(|(a, b)| a != b)
}

/// The heading of a changed operation, such as `#3/#5 probs: softmax`, with both numbers if they differ.
fn heading(before: &PlannedOperation, after: &PlannedOperation) -> String {
    match before.id == after.id {
        true => before.heading(),
        false => format!("#{}/{}", before.id, after.heading()),
    }
}

/// An operation in one line, such as `#3 probs: softmax(x bf16[8, 2] -> y bf16[8, 2]), 80 FLOP, 64 B, 951 ns`.
fn described(operation: &PlannedOperation) -> String {
    let list = |slices: &[Slice]| {
        slices.iter().map(|slice| format!("{} {}", slice.slice, slice.shape)).collect::<Vec<_>>().join(", ")
    };
    let mut text = operation.heading();
    if operation.is_marker() {
        return text;
    }
    let (inputs, outputs) = (list(&operation.inputs), list(&operation.outputs));
    text += &match (inputs.is_empty(), outputs.is_empty()) {
        (_, true) => format!("({inputs})"),
        (true, false) => format!("(-> {outputs})"),
        (false, false) => format!("({inputs} -> {outputs})"),
    };
    if operation.flops > 0.0 {
        text += &format!(", {}", Flops(operation.flops));
    }
    if operation.bytes > 0 {
        text += &format!(", {}", Bytes(operation.bytes));
    }
    text + &format!(", {}", operation.duration_ns)
}

fn edges(sides: &[KeyedDocument; 2], slot: SlotPlan, text: &mut String) {
    let [in_a, in_b] = sides.each_ref().map(|side| side.edges(slot).collect::<FxHashMap<_, _>>());
    let mut lines = String::new();
    for (sign, side, others) in [("-", &sides[0], &in_b), ("+", &sides[1], &in_a)] {
        for (ends, edge) in side.edges(slot) {
            if others.get(&ends).is_some_and(|other| same_reason(other, edge)) {
                continue;
            }
            let to = side.document.at(slot).and_then(|part| part.operations.get(edge.to as usize));
            let Some((from, to)) = side.document.source(slot, edge).zip(to) else { continue };
            let distance_suffix = edge.distance_suffix();
            let _ = writeln!(
                lines,
                "{sign} {} waits for {}{distance_suffix}: {}",
                to.heading(),
                from.heading(),
                edge.why()
            );
        }
    }
    section(text, "edges", &lines);
}

/// True if two edges have the same reason. A line that moved in the file does not count as a difference.
fn same_reason(a: &PlannedDependency, b: &PlannedDependency) -> bool {
    let same = match (&a.reason, &b.reason) {
        (Reason::After { .. }, Reason::After { .. }) | (Reason::Wait { .. }, Reason::Wait { .. }) => true,
        (a, b) => a == b,
    };
    same && a.declared.is_some() == b.declared.is_some()
}

fn critical_path(sides: &[KeyedDocument; 2], slot: SlotPlan, text: &mut String) {
    let paths = sides.each_ref().map(|side| {
        let path = &side.document.at(slot)?.critical_path;
        Some((path.length_ns, path.operations.iter().map(|&op| side.keys[&slot][op as usize]).collect::<Vec<_>>()))
    });
    if paths[0] == paths[1] {
        return;
    }
    let mut lines = String::new();
    for (sign, side) in ["-", "+"].into_iter().zip(sides) {
        if let Some(iteration) = side.document.at(slot) {
            let length = iteration.critical_path.length_ns;
            let _ = writeln!(lines, "{sign} {length}: {}", iteration.path_names());
        }
    }
    section(text, "critical path", &lines);
}

/// Differences between real streams, compared by the declared streams that they carry.
fn streams(a: &PlanDocument, b: &PlanDocument, text: &mut String) {
    let lanes = |document: &PlanDocument| -> Vec<String> {
        let lanes = document.lanes.iter().map(|lane| {
            let shared = match lane.streams.as_slice() {
                [_] => String::new(),
                streams => format!(" for {} ({})", counted(streams.len(), "stream"), streams.join(", ")),
            };
            let units = lane.units.as_ref().map(|units| format!(", {units}")).unwrap_or_default();
            match lane.threads {
                Some(threads) => format!("{}{shared}, on the host, {}", lane.name, counted(threads as usize, "thread")),
                None => format!("{}{shared}, priority {}{units}, queue {}", lane.name, lane.priority, lane.queue),
            }
        });
        lanes.collect()
    };
    let (before, after) = (lanes(a), lanes(b));
    let mut lines = String::new();
    for (sign, own, other) in [("-", &before, &after), ("+", &after, &before)] {
        let other: FxHashSet<&String> = other.iter().collect();
        own.iter().filter(|lane| !other.contains(lane)).for_each(|lane| {
            let _ = writeln!(lines, "{sign} {lane}");
        });
    }
    section(text, "real streams", &lines);
}
