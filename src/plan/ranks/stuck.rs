//! Errors for mismatched or deadlocked ranks, which show the operations of two of them.

use miette::LabeledSpan;
use rustc_hash::FxHashMap;

use crate::base::{OpId, SrcSpan};
use crate::ops::{Collective, CollectiveKind};
use crate::plan::PlanError;
use crate::plan::callers::call_labels;

use super::calls::CommunicatorKey;
use super::progress::{CollectiveCall, OperationRun, RankSimulation};

/// Maximum number of ranks of a cycle that a message names.
const NAMED: usize = 4;

/// A blocked operation, its call, and the rank that it waits for.
struct Wait {
    side: CollectiveCall,
    for_rank: u32,
}

/// Reason for which an operation cannot complete.
enum Missing {
    /// The other rank has not arrived at its matching operation, which is given.
    Later(Wait, OperationRun),
    /// The other rank makes fewer such calls than this one. Its last one is given; `None` if it makes none.
    Never(Wait, Option<OperationRun>),
}

/// The error for two ranks whose calls meet although they differ.
pub fn differ(progress: &RankSimulation, first: CollectiveCall, second: CollectiveCall) -> PlanError {
    let (a, b) = (progress.call(first), progress.call(second));
    let (group, stream) = place(progress, first);
    let alike = || "all ranks of a group must make the same call; only the values in its tensors may differ".to_owned();
    let (what, help) = if a.kind != b.kind && !a.is_transfer() {
        let help = format!(
            "every rank of `{group}` has to make the same calls in the same order on stream `{stream}`: if a branch \
             on `rank` skips a call on one rank, the others wait for it"
        );
        ("which collective comes next", help)
    } else if a.dtype != b.dtype {
        ("the element type", alike())
    } else if a.count != b.count {
        let help = match a.is_transfer() {
            true => "receive as many elements as are sent: change the slice on one side".to_owned(),
            false => alike(),
        };
        ("the number of elements", help)
    } else if a.reduction != b.reduction {
        ("the reduction", alike())
    } else if a.peer != b.peer && !a.is_transfer() {
        ("the root", alike())
    } else {
        let help = "give every rank the same `counts`: the sender's count must equal the receiver's".to_owned();
        ("the counts", help)
    };
    let (ranks, spans) = ([first.0.rank, second.0.rank], [span(progress, first.0), span(progress, second.0)]);
    let texts = uneven(progress, first, second).unwrap_or_else(|| {
        [format!("rank {}: {}", ranks[0], describe(a)), format!("rank {}: {}", ranks[1], describe(b))]
    });
    let (here, second_at, there) = labels_at(spans, texts);
    let calls = calls(progress, &[first.0, second.0]);
    let (first, second) = (ranks[0], ranks[1]);
    PlanError::Differ { first, second, what, at: spans[0].into(), here, second_at, there, help, calls }
}

/// Texts about the number of elements that one rank sends and the other one expects; `None` if the numbers are equal.
fn uneven(progress: &RankSimulation, first: CollectiveCall, second: CollectiveCall) -> Option<[String; 2]> {
    let (a, b) = (progress.call(first), progress.call(second));
    let group = &progress.tables.of(first.0.rank).program.groups[a.group.index()];
    let (here, there) = (group.number_of(first.0.rank) as usize, group.number_of(second.0.rank) as usize);
    let (left, right) = (a.parts.as_ref()?, b.parts.as_ref()?);
    let (mine, theirs) = (first.0.rank, second.0.rank);
    let (sends, gets) = (
        |rank, to, count| format!("rank {rank} sends {count} {} to rank {to}", a.dtype),
        |rank, count| format!("rank {rank} waits for {count}"),
    );
    if left.sent[there] != right.received[here] {
        return Some([sends(mine, theirs, left.sent[there]), gets(theirs, right.received[here])]);
    }
    Some([gets(mine, left.received[there]), sends(theirs, mine, right.sent[here])])
}

/// Explains a deadlock by those operations that block all others; `None` if all ranks have completed.
pub fn explain(progress: &RankSimulation) -> Option<PlanError> {
    let mut node = *progress.under_way().first()?;
    let mut chain: Vec<Wait> = Vec::new();
    let mut seen: FxHashMap<OperationRun, usize> = FxHashMap::default();
    loop {
        if let Some(&start) = seen.get(&node) {
            return Some(circle(progress, &chain[start..]));
        }
        seen.insert(node, chain.len());
        match missing(progress, node)? {
            Missing::Never(wait, last) => return Some(unmatched(progress, &wait, last)),
            Missing::Later(wait, other) => {
                chain.push(wait);
                node = holds_up(progress, other)?;
            }
        }
    }
}

/// The first reason for which an operation cannot complete; `None` if nothing blocks it.
fn missing(progress: &RankSimulation, node: OperationRun) -> Option<Missing> {
    let table = progress.tables.of(node.rank);
    let step = node.iteration as usize % table.program.cycle.len();
    let calls = table.calls(step, node.op);
    calls.iter().enumerate().find_map(|(position, call)| {
        let side = (node, position as u32);
        let channel = table.channel(step, node.op, call.group, node.rank);
        let group = &table.program.groups[call.group.index()];
        if call.is_transfer() {
            let for_rank = group.members_with(node.rank).nth(call.peer as usize)?;
            let sends = call.kind == CollectiveKind::Send;
            let (from, to) = if sends { (node.rank, for_rank) } else { (for_rank, node.rank) };
            let position = progress.transfer_position(channel, from, to, side)?;
            let fits = |other: &Collective| {
                other.is_transfer()
                    && other.kind != call.kind
                    && group.members_with(for_rank).nth(other.peer as usize) == Some(node.rank)
            };
            return Some(found(progress, Wait { side, for_rank }, channel, position, fits));
        }
        let position = progress.call_position(channel, side)?;
        let for_rank = group.members_with(node.rank).find(|rank| progress.arrived(channel, *rank) <= position)?;
        Some(found(progress, Wait { side, for_rank }, channel, position, |other| !other.is_transfer()))
    })
}

/// Looks for the call at a position among those calls of the other rank that fit.
fn found(
    progress: &RankSimulation,
    wait: Wait,
    channel: CommunicatorKey,
    place: usize,
    fits: impl Fn(&Collective) -> bool,
) -> Missing {
    let (rank, table) = (wait.for_rank, progress.tables.of(wait.for_rank));
    let (mut count, mut last) = (0, None);
    for iteration in 0..progress.iterations {
        let step = iteration as usize % table.program.cycle.len();
        for op in table.program.cycle[step].ids() {
            let calls = table.calls(step, op).iter();
            let here = calls.filter(|call| table.channel(step, op, call.group, rank) == channel && fits(call)).count();
            let node = OperationRun { rank, iteration, op };
            if here > 0 {
                last = Some(node);
            }
            count += here;
            if count > place {
                return Missing::Later(wait, node);
            }
        }
    }
    Missing::Never(wait, last)
}

/// The operation that keeps a rank from arriving at `node`; `None` if there is none.
fn holds_up(progress: &RankSimulation, node: OperationRun) -> Option<OperationRun> {
    let stuck: Vec<OperationRun> = progress.under_way().into_iter().filter(|other| other.rank == node.rank).collect();
    let plan = progress.plan(node);
    let mut seen = vec![false; plan.operations()];
    let mut open = vec![node.op];
    let mut before: Vec<OpId> = Vec::new();
    while let Some(op) = open.pop() {
        let on_lane = progress.previous_on_lane(OperationRun { op, ..node });
        for from in plan.incoming(op).map(|edge| edge.from).chain(on_lane) {
            if !std::mem::replace(&mut seen[from.index()], true) {
                open.push(from);
                before.push(from);
            }
        }
    }
    before.sort_unstable();
    let here = before.into_iter().map(|op| OperationRun { op, ..node }).find(|node| stuck.binary_search(node).is_ok());
    // If no operation of this iteration does, an operation of an earlier iteration keeps the rank from arriving.
    here.or_else(|| stuck.first().copied())
}

// --- Words ----------------------------------------------------------------------------------------------------

fn unmatched(progress: &RankSimulation, wait: &Wait, last: Option<OperationRun>) -> PlanError {
    let (rank, other) = (wait.side.0.rank, wait.for_rank);
    let call = progress.call(wait.side);
    let (group, stream) = place(progress, wait.side);
    let on_another_stream = on_another_stream(progress, wait);
    let verb = match (call.kind, &on_another_stream) {
        (CollectiveKind::Send, None) => "never receives it",
        (CollectiveKind::Send, Some(_)) => "receives it on another stream",
        (CollectiveKind::Recv, None) => "never sends it",
        (CollectiveKind::Recv, Some(_)) => "sends it on another stream",
        (_, None) => "never makes the same call",
        (_, Some(_)) => "makes the same call on another stream",
    };
    let elsewhere =
        on_another_stream.or_else(|| last.is_none().then(|| transfer_with_another(progress, wait)).flatten());
    let help = elsewhere.as_ref().map(|(_, help)| help.clone()).unwrap_or_else(|| match call.kind {
        CollectiveKind::Send => {
            format!("write `recv(-> y, from: …)` for rank {other}, on stream `{stream}` too, or leave the `send` out")
        }
        CollectiveKind::Recv => {
            format!("write `send(x, to: …)` for rank {other}, on stream `{stream}` too, or leave the `recv` out")
        }
        _ => format!(
            "every rank of `{group}` has to make the same calls in the same order on stream `{stream}`: move \
             the call out of the branch or loop that depends on the rank"
        ),
    });
    let at = span(progress, wait.side.0);
    let last = elsewhere.map(|(node, _)| node).or(last).map(|node| span(progress, node)).filter(|span| *span != at);
    PlanError::Unmatched {
        rank,
        other,
        call: describe(call),
        verb,
        at: at.into(),
        last: last.map(Into::into),
        help,
        calls: calls(progress, &[wait.side.0]),
    }
}

/// The last matching call of the other rank on a stream of another name, where this rank lacks it; and a help text that
/// names both streams. `None` if there is no such call.
fn on_another_stream(progress: &RankSimulation, wait: &Wait) -> Option<(OperationRun, String)> {
    let (call, rank, other) = (progress.call(wait.side), wait.side.0.rank, wait.for_rank);
    let (group, stream) = place(progress, wait.side);
    let number = |of: u32| {
        let groups = &progress.tables.of(other).program.groups;
        groups.iter().find(|one| one.name == group)?.members_with(other).position(|member| member == of)
    };
    let (own_place, other_place) = (number(rank)?, number(other)?);
    let alike = |found: &Collective, is_own: bool| match call.is_transfer() {
        true => {
            let peer = if is_own { other_place } else { own_place };
            found.is_transfer() && (found.kind == call.kind) == is_own && found.peer as usize == peer
        }
        false => describe(found) == describe(call),
    };
    let on_streams = |of: u32, is_own: bool| -> Vec<(OperationRun, String)> {
        calls_of(progress, of)
            .filter(|(_, found)| (found.dtype, found.count) == (call.dtype, call.count) && alike(found, is_own))
            .map(|(side, _)| (side.0, place(progress, side)))
            .filter_map(|(node, (of_group, name))| (of_group == group).then_some((node, name)))
            .collect()
    };
    let theirs = on_streams(other, false);
    let mut lacking: FxHashMap<&str, isize> = FxHashMap::default();
    let ours = on_streams(rank, true);
    ours.iter().for_each(|(_, name)| *lacking.entry(name).or_default() -= 1);
    theirs.iter().for_each(|(_, name)| *lacking.entry(name).or_default() += 1);
    let (node, there) = theirs.iter().rev().find(|(_, name)| *name != stream && lacking[name.as_str()] > 0)?;
    let (does, own) = match call.kind {
        CollectiveKind::Send => ("receives it", "sends it"),
        CollectiveKind::Recv => ("sends it", "receives it"),
        _ => ("makes this call", "makes it"),
    };
    let help = format!("rank {other} {does} on `{there}`, rank {rank} {own} on `{stream}`: write both on one stream");
    Some((*node, help))
}

/// The calls of a rank in all iterations, in the order of the text.
fn calls_of<'a>(progress: &'a RankSimulation, rank: u32) -> impl Iterator<Item = (CollectiveCall, &'a Collective)> {
    let table = progress.tables.of(rank);
    (0..progress.iterations).flat_map(move |iteration| {
        let step = iteration as usize % table.program.cycle.len();
        table.program.cycle[step].ids().flat_map(move |op| {
            let node = OperationRun { rank, iteration, op };
            (0..).zip(table.calls(step, op)).map(move |(position, call)| ((node, position), call))
        })
    })
}

/// The last transfer of the other rank in the opposite direction whose partner is a third rank, or the rank itself; and
/// a help text about the right partner. `None` if there is no such transfer.
fn transfer_with_another(progress: &RankSimulation, wait: &Wait) -> Option<(OperationRun, String)> {
    let call = progress.call(wait.side);
    if !call.is_transfer() {
        return None;
    }
    let (other, table) = (wait.for_rank, progress.tables.of(wait.for_rank));
    let name = &progress.tables.of(wait.side.0.rank).program.groups[call.group.index()].name;
    let own = table.program.groups.iter().find(|group| group.name == *name)?;
    let own_place = own.members_with(other).position(|rank| rank == wait.side.0.rank)?;
    let ((node, _), found) = calls_of(progress, other)
        .filter(|(_, found)| found.is_transfer() && found.kind != call.kind && found.peer as usize != own_place)
        .last()?;
    let (kind, option) = if found.kind == CollectiveKind::Recv { ("recv", "from") } else { ("send", "to") };
    let peer = found.peer;
    Some((
        node,
        format!(
            "rank {other} has a `{kind}` with `{option}: {peer}`: write `{option}: {own_place}` there, or add a `{kind}`"
        ),
    ))
}

fn circle(progress: &RankSimulation, waits: &[Wait]) -> PlanError {
    let ranks: Vec<u32> = waits.iter().map(|wait| wait.side.0.rank).collect();
    let mut who = match ranks.as_slice() {
        [one] => format!("rank {one} waits for itself"),
        [a, b] => format!("rank {a} and rank {b} wait for each other"),
        many => {
            let named: Vec<String> = many.iter().take(NAMED).map(u32::to_string).collect();
            let rest = many.len().saturating_sub(NAMED);
            let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
            format!("ranks {}{more} wait for each other in a cycle", named.join(", "))
        }
    };
    let text = |wait: &Wait| {
        let (call, (_, stream)) = (progress.call(wait.side), place(progress, wait.side));
        let call = if is_copy(progress, wait.side) { "copy" } else { call.kind.name() };
        format!("rank {} waits in `{call}` on `{stream}` for rank {}", wait.side.0.rank, wait.for_rank)
    };
    let transfers = waits.iter().any(|wait| progress.call(wait.side).is_transfer());
    if progress.is_shared() {
        who += ", since streams share a real stream";
    }
    let help = match transfers {
        _ if progress.is_shared() => {
            "a real stream runs the operations of all streams on it in the order of the text: raise `--streams`, or leave it out"
        }
        _ if waits.iter().any(|wait| is_copy(progress, wait.side)) => {
            "let every rank execute its copies to others in the same order, or put independent copies on separate streams"
        }
        true => {
            "issue them together, `group { send(…) recv(…) }`, so that none waits for another; let one rank receive \
             before it sends; or send in each direction on a stream of its own"
        }
        false => {
            "let every rank execute its collectives in the same order, or put independent collectives on separate streams"
        }
    };
    let at = span(progress, waits[0].side.0);
    let (here, second_at, there) = match waits.get(1) {
        Some(second) => labels_at([at, span(progress, second.side.0)], [text(&waits[0]), text(second)]),
        None => (text(&waits[0]), None, String::new()),
    };
    let shown: Vec<OperationRun> = waits.iter().take(2).map(|wait| wait.side.0).collect();
    PlanError::Deadlock { who, at: at.into(), here, second_at, there, help, calls: calls(progress, &shown) }
}

/// True if a call is a copy to another rank.
fn is_copy(progress: &RankSimulation, (node, _): CollectiveCall) -> bool {
    progress.step(node).peer(node.op).is_some()
}

/// Returns the labels for two source locations, or one label with both texts for a common location.
fn labels_at(spans: [SrcSpan; 2], texts: [String; 2]) -> (String, Option<miette::SourceSpan>, String) {
    let [here, there] = texts;
    match spans[0] == spans[1] {
        true => (format!("{here}; {there}"), None, String::new()),
        false => (here, Some(spans[1].into()), there),
    }
}

fn calls(progress: &RankSimulation, nodes: &[OperationRun]) -> Vec<LabeledSpan> {
    let ops = nodes.iter().map(|&node| {
        let program = progress.tables.of(node.rank).program;
        (node.rank, program, progress.step(node), node.op)
    });
    call_labels(ops)
}

fn span(progress: &RankSimulation, node: OperationRun) -> SrcSpan {
    progress.step(node).op(node.op).span
}

/// Names of a call's group and of its stream.
fn place(progress: &RankSimulation, side: CollectiveCall) -> (String, String) {
    let program = progress.tables.of(side.0.rank).program;
    let stream = progress.step(side.0).op(side.0.op).stream;
    let group = &program.groups[progress.call(side).group.index()];
    (group.name.clone(), program.streams[stream.index()].name.clone())
}

/// Formats a call, such as `all_reduce` of 8 f32, `op: mean`.
fn describe(call: &Collective) -> String {
    use CollectiveKind::*;
    let mut text = format!("`{}`", call.kind.name());
    if call.parts.is_some() {
        text += &format!(" of {} by `counts`", call.dtype);
    } else if call.kind != Barrier {
        text += &format!(" of {} {}", call.count, call.dtype);
    }
    if matches!(call.kind, AllReduce | ReduceScatter | Reduce) {
        text += &format!(", `op: {}`", call.reduction.name());
    }
    match call.kind {
        Broadcast | Reduce => text += &format!(", `root: {}`", call.peer),
        Send => text += &format!(", `to: {}`", call.peer),
        Recv => text += &format!(", `from: {}`", call.peer),
        _ => {}
    }
    text
}
