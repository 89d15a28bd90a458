//! Explains a hang: where each lane stopped, what it waits for, and which ranks have arrived at a collective.
//!
//! Everything is derived from the lanes' progress after the fact; the measured loop does no extra work.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use miette::LabeledSpan;

use crate::base::{Nanos, OnceBlock, SrcSpan, counted};
use crate::exec::prepare::CommandOutline;
use crate::exec::prepare::image::{ImageCommand, StepCommands, StepLaunch};
use crate::exec::{Comm, LaneCompletion, NO_COMM};

use super::error::ExecError;

/// Maximum number of operations that a message labels.
const MAX_LABELS: usize = 12;

/// State of one lane of a hung rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exec) struct LaneState {
    pub lane: u32,
    /// The operation that the lane runs, or must begin next.
    pub op: u32,
    /// True if `op` has begun.
    pub begun: bool,
    /// The incomplete operation that `op` waits for; `None` if `op` has begun or waits for none.
    pub awaits: Option<u32>,
}

/// Snapshot of a rank at the moment its hang was detected.
#[derive(Clone, Debug)]
pub(in crate::exec) struct HangSnapshot {
    /// The oldest incomplete iteration.
    pub iteration: u64,
    /// The block around the iterations that is running; `None` in an iteration.
    pub block: Option<OnceBlock>,
    /// Lanes that still have work.
    pub busy: Vec<u32>,
    /// States of the lanes whose progress the device reports.
    pub lane_states: Vec<LaneState>,
    /// True if the driver is certain that the work never completes; false if the timeout expired.
    pub stuck: bool,
}

/// Position of a lane: an iteration, and the index of its next command there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LanePosition {
    iteration: u64,
    command: usize,
    begun: bool,
}

impl CommandOutline {
    /// Commands of an iteration.
    pub(in crate::exec) fn step(&self, iteration: u64) -> &StepCommands {
        &self.period[(iteration % self.period.len() as u64) as usize]
    }

    /// The launches of a lane in an iteration: index of the command, and operation.
    fn launches_of(&self, iteration: u64, lane: u32) -> impl Iterator<Item = (usize, u32)> {
        let launches = self.step(iteration).launches().filter(move |launch| launch.lane == lane);
        launches.map(|launch| (launch.command, launch.op))
    }

    /// Position of a lane from the number of operations that it has completed since the first iteration; `None` if it
    /// has none.
    fn by_count(&self, lane: u32, progress: LaneCompletion) -> Option<LanePosition> {
        let steps = self.period.len() as u64;
        let each: Vec<u64> = (0..steps).map(|step| self.launches_of(step, lane).count() as u64).collect();
        let all: u64 = each.iter().sum();
        let mut left = progress.ended % all.max(1);
        let round = progress.ended.checked_div(all)?;
        let step = each.iter().position(|&count| {
            let here = left < count;
            left -= if here { 0 } else { count };
            here
        })?;
        let (command, _) = self.launches_of(step as u64, lane).nth(left as usize)?;
        Some(LanePosition { iteration: round * steps + step as u64, command, begun: progress.running })
    }

    /// Returns the states of lanes by the progress that the device reports, counted from the first iteration.
    pub(super) fn lane_states(&self, issued: u64, progress: &[Option<LaneCompletion>]) -> Vec<LaneState> {
        let positions: Vec<Option<LanePosition>> = (0..)
            .zip(progress)
            .map(|(lane, progress)| self.by_count(lane, (*progress)?).filter(|position| position.iteration < issued))
            .collect();
        self.lane_states_at(&positions)
    }

    /// Returns the states of lanes in an iteration with a stamp before and after each operation. `reached` returns for
    /// the n-th launch whether each of its two stamps was reached.
    pub(super) fn lane_states_by_stamps(
        &self,
        iteration: u64,
        mut reached: impl FnMut(usize) -> (bool, bool),
    ) -> Vec<LaneState> {
        let mut positions: Vec<Option<LanePosition>> = vec![None; self.lanes.len()];
        for (index, StepLaunch { command, lane, .. }) in self.step(iteration).launches().enumerate() {
            let position = &mut positions[lane as usize];
            if position.is_none()
                && let (begun, false) = reached(index)
            {
                *position = Some(LanePosition { iteration, command, begun });
            }
        }
        self.lane_states_at(&positions)
    }

    fn lane_states_at(&self, positions: &[Option<LanePosition>]) -> Vec<LaneState> {
        let Some(oldest) = positions.iter().flatten().map(|position| position.iteration).min() else {
            return Vec::new();
        };
        let state = |(lane, position): (u32, &Option<LanePosition>)| {
            let position = (*position)?;
            let ImageCommand::Launch { op, .. } = self.step(position.iteration).commands[position.command] else {
                return None;
            };
            let awaits = if position.begun { None } else { self.awaited(lane, position, positions) };
            // A lane that has completed the oldest iteration normally waits for that iteration only, so it is left out.
            let is_relevant = position.begun || awaits.is_some() || position.iteration == oldest;
            is_relevant.then_some(LaneState { lane, op, begun: position.begun, awaits })
        };
        (0..).zip(positions).filter_map(state).collect()
    }

    /// Returns the operation that a launch waits for: the first incomplete one among the events that its lane waits
    /// for. `None` if all of these events have completed.
    fn awaited(&self, lane: u32, position: LanePosition, positions: &[Option<LanePosition>]) -> Option<u32> {
        let commands = &self.step(position.iteration).commands;
        let is_on_lane =
            |command: &ImageCommand| matches!(*command, ImageCommand::Launch { lane: its, .. } if its == lane);
        let from = commands[..position.command].iter().rposition(is_on_lane).map_or(0, |index| index + 1);
        let waits = (from..position.command).filter_map(|index| match commands[index] {
            ImageCommand::Wait { lane: its, event, .. } if its == lane => Some((index, event)),
            _ => None,
        });
        let mut unmet = waits.filter_map(|(index, event)| {
            let (producer, at) = self.producer(position.iteration, index, event)?;
            let ended = positions[producer.0 as usize].is_none_or(|place| (place.iteration, place.command) > at);
            (!ended).then_some(producer.1)
        });
        unmet.next()
    }

    /// Returns the operation before the record that a wait refers to, as (lane, operation) and (iteration, command);
    /// `None` without such an operation.
    fn producer(&self, iteration: u64, wait: usize, event: u32) -> Option<((u32, u32), (u64, usize))> {
        let mut recorder = None;
        let mut end = wait;
        // The record may belong to an earlier iteration, one full period back at most.
        for back in 0..=self.period.len() as u64 {
            let iteration = iteration.checked_sub(back)?;
            let commands = &self.step(iteration).commands;
            for (index, command) in commands[..end.min(commands.len())].iter().enumerate().rev() {
                match (*command, recorder) {
                    (ImageCommand::Record { event: its, lane }, None) if its == event => recorder = Some(lane),
                    (ImageCommand::Launch { op, lane }, Some(recorder)) if lane == recorder => {
                        return Some(((lane, op), (iteration, index)));
                    }
                    _ => {}
                }
            }
            end = usize::MAX;
        }
        None
    }

    /// Returns the error for a fault that any operation of these iterations may have caused.
    pub(in crate::exec) fn late(&self, fault: String, mut at: Vec<LabeledSpan>, iterations: Range<u64>) -> ExecError {
        let mut seen: BTreeMap<SrcSpan, &'static str> = BTreeMap::new();
        let mut count = 0;
        for iteration in iterations.clone() {
            for launch in self.step(iteration).launches() {
                let (name, span) = self.launches[launch.op as usize];
                seen.insert(span, name);
                count += 1;
            }
        }
        let noticed = |span: &SrcSpan| at.iter().any(|label| label.offset() == span.start as usize);
        let others: Vec<(SrcSpan, &'static str)> = seen.into_iter().filter(|(span, _)| !noticed(span)).collect();
        let label = |(span, name)| LabeledSpan::new_with_span(Some(format!("this {name} was under way")), span);
        at.extend(others.into_iter().take(MAX_LABELS).map(label));
        let last = iterations.end.saturating_sub(1);
        let outstanding = match count {
            0 => "nothing was under way".to_owned(),
            _ if iterations.start == last => format!("under way: {} of iteration {last}", counted(count, "operation")),
            _ => format!("under way: {} of iterations {} to {last}", counted(count, "operation"), iterations.start),
        };
        ExecError::Late { fault, outstanding, at }
    }

    /// Returns the communicator of a collective; `None` for other operations and for groups of one rank.
    fn comm(&self, op: u32) -> Option<&Comm> {
        let number = self.comm_of[op as usize];
        if number == NO_COMM {
            return None;
        }
        self.comms.get(number as usize).filter(|comm| comm.ranks.len() > 1)
    }
}

/// The part of the error of a hang that one rank of this process reports.
pub(in crate::exec) struct RankReport {
    pub rank: u32,
    pub outline: CommandOutline,
    /// Snapshot of the rank; `None` if the rank completed its iterations or did not answer.
    pub snapshot: Option<HangSnapshot>,
    /// True if the rank completed all its iterations.
    pub completed: bool,
}

/// Builds the error of a hang from the reports of all ranks of this process.
pub(in crate::exec) fn error(ranks: &[RankReport]) -> ExecError {
    let several = ranks.len() > 1;
    let snapshots = ranks.iter().filter_map(|rank| rank.snapshot.as_ref());
    let iteration = snapshots.clone().map(|snapshot| snapshot.iteration).min().unwrap_or(0);
    let stuck = snapshots.clone().any(|snapshot| snapshot.stuck);
    let timeout = ranks.first().map_or(Nanos(0), |rank| rank.outline.timeout);
    let at = labels(ranks);
    let mut help: Vec<String> = ranks.iter().filter_map(|rank| missing(rank, ranks)).collect();
    help.extend(mismatches(ranks));
    let exact = !at.is_empty();
    if !exact {
        help.extend(ranks.iter().filter_map(|rank| {
            let busy = names(rank.outline.lanes.as_ref(), &rank.snapshot.as_ref()?.busy);
            Some(if several {
                format!("busy on rank {}: {busy}", rank.rank)
            } else {
                format!("streams that are still busy: {busy}")
            })
        }));
    }
    match stuck {
        true => help.push("no event is left: each operation waits for another one".to_owned()),
        false => help.push("raise the limit for long iterations: --timeout …".to_owned()),
    }
    let how = if stuck { "never ends".to_owned() } else { format!("did not end within {timeout}") };
    let block = snapshots.clone().find_map(|snapshot| snapshot.block);
    ExecError::Hang { iteration, block, how, exact, help: help.join("; "), at }
}

fn names(lanes: &[String], busy: &[u32]) -> String {
    match busy {
        [] => "none".to_owned(),
        _ => busy.iter().map(|&lane| lanes[lane as usize].as_str()).collect::<Vec<_>>().join(", "),
    }
}

/// Text of a label at an operation. Ranks with equal text share the label.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct LabelText {
    span: SrcSpan,
    begins: String,
    ends: String,
}

/// Returns a label for each operation at which ranks stopped.
fn labels(ranks: &[RankReport]) -> Vec<LabeledSpan> {
    let several = ranks.len() > 1;
    let mut texts: BTreeMap<LabelText, BTreeSet<u32>> = BTreeMap::new();
    for rank in ranks {
        for state in rank.snapshot.iter().flat_map(|snapshot| &snapshot.lane_states) {
            texts.entry(lane_label(rank, *state, ranks)).or_default().insert(rank.rank);
            let mut states = rank.snapshot.iter().flat_map(|snapshot| &snapshot.lane_states);
            let unseen = state.awaits.filter(|&awaited| states.all(|other| other.op != awaited));
            if let Some((name, span)) = unseen.map(|op| rank.outline.launches[op as usize]) {
                let text = LabelText { span, begins: format!("this {name} has not ended"), ends: String::new() };
                texts.entry(text).or_default().insert(rank.rank);
            }
        }
    }
    let mut places: BTreeMap<SrcSpan, Vec<(Vec<u32>, String)>> = BTreeMap::new();
    for (text, on) in texts {
        let on: Vec<u32> = on.into_iter().collect();
        let who = if several { format!("{}: ", listed(&on)) } else { String::new() };
        places.entry(text.span).or_default().push((on, format!("{who}{}{}", text.begins, text.ends)));
    }
    let label = |(span, mut texts): (SrcSpan, Vec<(Vec<u32>, String)>)| {
        texts.sort();
        let texts: Vec<String> = texts.into_iter().map(|(_, text)| text).collect();
        LabeledSpan::new_with_span(Some(texts.join("; ")), span)
    };
    places.into_iter().take(MAX_LABELS).map(label).collect()
}

fn lane_label(rank: &RankReport, state: LaneState, ranks: &[RankReport]) -> LabelText {
    let outline = &rank.outline;
    let (name, span) = outline.launches[state.op as usize];
    let lane = &outline.lanes[state.lane as usize];
    let ends = match (state.begun, state.awaits) {
        (true, _) => match (outline.comm(state.op), outline.transfers.get(&state.op)) {
            (Some(comm), Some(sides)) => awaited_peers(rank.rank, comm, sides, ranks),
            (Some(comm), None) => arrived(comm, ranks),
            (None, _) => String::new(),
        },
        (false, Some(awaited)) => {
            let (name, _) = outline.launches[awaited as usize];
            let launch = outline.period.iter().flat_map(StepCommands::launches).find(|launch| launch.op == awaited);
            let on = launch.map_or("another stream", |launch| outline.lanes[launch.lane as usize].as_str());
            format!(", and waits for a {name} on {on}")
        }
        (false, None) => String::new(),
    };
    let begins = match state.begun {
        true => format!("{lane} is in this {name}"),
        false => format!("{lane} has not begun this {name}"),
    };
    LabelText { span, begins, ends }
}

/// Describes which ranks of a communicator have arrived at one of its collectives.
fn arrived(comm: &Comm, ranks: &[RankReport]) -> String {
    let has_come = |rank: &&u32| {
        ranks.iter().any(|known| known.rank == **rank && known.in_collectives().any(|(its, _)| its == comm))
    };
    let (come, missing): (Vec<u32>, Vec<u32>) = comm.ranks.iter().partition(has_come);
    match missing.is_empty() {
        true => format!(" over {}, which have all arrived", listed(&come)),
        false => format!(" over {}: {} not arrived", listed(&comm.ranks), has(&missing)),
    }
}

/// Describes which peers a send or receive waits for.
fn awaited_peers(own: u32, comm: &Comm, sides: &[(bool, u32)], ranks: &[RankReport]) -> String {
    let has_come = |sends: bool, peer: u32| {
        let of_peer = ranks.iter().filter(|known| known.rank == peer);
        let mut sides = of_peer.flat_map(|known| {
            let transfers = known.in_collectives().filter(|(its, _)| *its == comm);
            transfers.filter_map(|(_, op)| known.outline.transfers.get(&op)).flatten()
        });
        sides.any(|&side| side == (!sends, own))
    };
    let side = |&(sends, peer): &(bool, u32)| {
        let (way, other) = if sends { ("to", "recv") } else { ("from", "send") };
        let come = if has_come(sends, peer) { "has arrived" } else { "has not arrived" };
        format!(" {way} rank {peer}, which {come} at its {other}")
    };
    sides.iter().map(side).collect::<Vec<_>>().join(", and")
}

impl RankReport {
    /// The collectives that the rank is inside of, with their operations.
    fn in_collectives(&self) -> impl Iterator<Item = (&Comm, u32)> {
        let lane_states = self.snapshot.iter().flat_map(|snapshot| &snapshot.lane_states).filter(|state| state.begun);
        lane_states.filter_map(|state| Some((self.outline.comm(state.op)?, state.op)))
    }
}

/// Text about a rank that others wait for but that is at no operation; `None` otherwise.
fn missing(rank: &RankReport, ranks: &[RankReport]) -> Option<String> {
    let stopped = rank.snapshot.as_ref().is_some_and(|snapshot| !snapshot.lane_states.is_empty());
    let awaited = ranks.iter().any(|other| other.in_collectives().any(|(comm, _)| comm.ranks.contains(&rank.rank)));
    let state = match (&rank.snapshot, rank.completed) {
        _ if stopped || !awaited => return None,
        (_, true) => "has completed its iterations",
        (Some(snapshot), _) if snapshot.busy.is_empty() => "has nothing left to do",
        _ => return None,
    };
    Some(format!("rank {} {state}", rank.rank))
}

/// Text about ranks that are in different collectives of one communicator; `None` if there are none.
fn mismatches(ranks: &[RankReport]) -> Option<String> {
    let mut kinds: BTreeMap<&Comm, BTreeMap<&'static str, u32>> = BTreeMap::new();
    for rank in ranks {
        let collectives = rank.in_collectives().filter(|(_, op)| !rank.outline.transfers.contains_key(op));
        for (comm, op) in collectives {
            let name = rank.outline.launches[op as usize].0;
            kinds.entry(comm).or_default().entry(name).or_insert(rank.rank);
        }
    }
    let differing = kinds.into_values().find(|kinds| kinds.len() > 1)?;
    let each: Vec<String> = differing.iter().map(|(name, rank)| format!("rank {rank} the {name}")).collect();
    Some(format!("all ranks must make the same call here, and they do not: {}", each.join(", ")))
}

/// Formats ranks as `rank 3`, `ranks 0, 1 and 2` or `ranks 0 to 7`.
pub(super) fn listed(ranks: &[u32]) -> String {
    let run = ranks.windows(2).all(|pair| pair[1] == pair[0] + 1);
    match ranks {
        [] => "no rank".to_owned(),
        [one] => format!("rank {one}"),
        [first, .., last] if run && ranks.len() > 2 => format!("ranks {first} to {last}"),
        [others @ .., last] => {
            let others: Vec<String> = others.iter().map(u32::to_string).collect();
            format!("ranks {} and {last}", others.join(", "))
        }
    }
}

fn has(ranks: &[u32]) -> String {
    format!("{} {}", listed(ranks), if ranks.len() == 1 { "has" } else { "have" })
}
