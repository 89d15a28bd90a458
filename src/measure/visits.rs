//! One rank's side of what ranks do together: when its iterations began, when it came to each collective and left it.

use std::collections::BTreeMap;

use crate::base::{Nanos, OpId};
use crate::exec::{Span, Trace};
use crate::model::{OpKind, Program};
use crate::ops::{Category, CollectiveKind, Launch, Spec};

use super::record::{MomentRecord, VisitRecord};

/// When each observed iteration began; none unless all are known.
pub fn origins(traces: &[&Trace]) -> Vec<MomentRecord> {
    let moment = |trace: &&Trace| {
        let origin = trace.origin?;
        Some(MomentRecord { at_ns: origin.at, error_ns: origin.error, clock: origin.clock })
    };
    traces.iter().map(moment).collect::<Option<_>>().unwrap_or_default()
}

/// The rank's part in each collective of several ranks, in the order of the text, in a slot of its own cycle that
/// `traces` are of.
pub fn visits(program: &Program, number: usize, traces: &[&Trace]) -> Vec<VisitRecord> {
    let step = &program.cycle[number];
    let mut counts: BTreeMap<(Vec<u32>, &str), u32> = BTreeMap::new();
    let mut visits = Vec::new();
    // Where the visit of an operation stands; nothing for one that is no collective.
    let mut places: Vec<Option<usize>> = vec![None; step.ops.len()];
    for op in step.ids() {
        let OpKind::Run(spec) = step.op(op).kind else { continue };
        let Some(ranks) = members(program, program.spec(spec)) else { continue };
        let stream = &program.streams[step.op(op).stream.index()].name;
        let number = counts.entry((ranks.clone(), stream)).or_default();
        places[op.index()] = Some(visits.len());
        visits.push(VisitRecord {
            id: op.0,
            ranks,
            stream: stream.clone(),
            number: *number,
            starts_ns: Vec::new(),
            ends_ns: Vec::new(),
        });
        *number += 1;
    }
    let mut note = |op: OpId, start: Nanos, end: Nanos| {
        if let Some(place) = places[op.index()] {
            visits[place].starts_ns.push(start);
            visits[place].ends_ns.push(end);
        }
    };
    for Span { op, start, end, .. } in traces.iter().flat_map(|trace| &trace.spans) {
        note(*op, *start, *end);
    }
    visits
}

/// The ranks that come together in an operation: all of one group. Nothing for what is no collective of several ranks;
/// sends and receives go from one to one, and are none.
fn members(program: &Program, spec: &Spec) -> Option<Vec<u32>> {
    if spec.operation.category() != Category::Collective {
        return None;
    }
    let launches = spec.launch();
    let entries = launches.iter().flat_map(|launch| match launch {
        Launch::Collective(entries) => &entries[..],
        _ => &[],
    });
    let mut groups = entries.map(|entry| match entry.kind {
        CollectiveKind::Send | CollectiveKind::Recv => None,
        _ => Some(entry.group),
    });
    let group = groups.next()??;
    let ranks: Vec<u32> = program.groups[group.index()].members_with(program.rank).collect();
    (ranks.len() > 1 && groups.all(|other| other == Some(group))).then_some(ranks)
}
