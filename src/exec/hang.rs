//! What is told of an iteration that does not end: where each lane stands, what it waits for, and which ranks have come
//! to a collective.
//!
//! All of it is worked out after the fact, from how far lanes have come: the measured loop does nothing for it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use miette::LabeledSpan;

use crate::base::{Nanos, SrcSpan, counted};

use super::driver::Progress;
use super::error::ExecError;
use super::image::{Comm, NO_COMM, Step, StepCommands};
use super::prepare::Outline;

/// Places that a message shows at most.
const PLACES: usize = 12;

/// Where a lane stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stand {
    pub lane: u32,
    /// The operation that it is in, or that it has to begin next.
    pub op: u32,
    pub begun: bool,
    /// An operation that has to end before, and has not.
    pub awaits: Option<u32>,
}

/// Where a rank was when it was given up.
#[derive(Clone, Debug)]
pub(super) struct HangSnapshot {
    /// The oldest iteration that is not complete.
    pub iteration: u64,
    /// Lanes that have something left to do.
    pub busy: Vec<u32>,
    /// Where lanes stand, as far as the device says so.
    pub stands: Vec<Stand>,
    /// It is certain that nothing goes on; otherwise its time was over.
    pub stuck: bool,
}

/// How far a lane has come: an iteration, and the command in it that is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    iteration: u64,
    command: usize,
    begun: bool,
}

impl Outline {
    pub(super) fn step(&self, iteration: u64) -> &StepCommands {
        &self.period[(iteration % self.period.len() as u64) as usize]
    }

    /// The launches of a lane in an iteration: their places among its commands, and their operations.
    fn launches_of(&self, iteration: u64, lane: u32) -> impl Iterator<Item = (usize, u32)> {
        self.step(iteration).commands.iter().enumerate().filter_map(move |(index, command)| match *command {
            Step::Launch { op, lane: its } if its == lane => Some((index, op)),
            _ => None,
        })
    }

    /// The position of a lane that has ended so many operations since the first iteration.
    fn by_count(&self, lane: u32, progress: Progress) -> Option<Position> {
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
        Some(Position { iteration: round * steps + step as u64, command, begun: progress.running })
    }

    /// Where all lanes stand. `progress` is counted from the first iteration.
    pub(super) fn stands(&self, issued: u64, progress: &[Option<Progress>]) -> Vec<Stand> {
        let positions: Vec<Option<Position>> = (0..)
            .zip(progress)
            .map(|(lane, progress)| self.by_count(lane, (*progress)?).filter(|position| position.iteration < issued))
            .collect();
        self.standing_at(&positions)
    }

    /// Where all lanes stand in an iteration with a stamp before and behind each operation: `reached` asks for them, by
    /// the operation's turn.
    pub(super) fn stands_by_stamps(
        &self,
        iteration: u64,
        mut reached: impl FnMut(usize) -> (bool, bool),
    ) -> Vec<Stand> {
        let mut positions: Vec<Option<Position>> = vec![None; self.lanes.len()];
        let launches = self.step(iteration).commands.iter().enumerate();
        let launches = launches.filter_map(|(index, command)| match *command {
            Step::Launch { lane, .. } => Some((index, lane)),
            _ => None,
        });
        for (turn, (command, lane)) in launches.enumerate() {
            let position = &mut positions[lane as usize];
            if position.is_none()
                && let (begun, false) = reached(turn)
            {
                *position = Some(Position { iteration, command, begun });
            }
        }
        self.standing_at(&positions)
    }

    fn standing_at(&self, positions: &[Option<Position>]) -> Vec<Stand> {
        let Some(oldest) = positions.iter().flatten().map(|position| position.iteration).min() else {
            return Vec::new();
        };
        let stand = |(lane, position): (u32, &Option<Position>)| {
            let position = (*position)?;
            let Step::Launch { op, .. } = self.step(position.iteration).commands[position.command] else { return None };
            let awaits = if position.begun { None } else { self.awaited(lane, position, positions) };
            // A lane that is through with the oldest iteration waits for that alone, unless something else holds it.
            let tells = position.begun || awaits.is_some() || position.iteration == oldest;
            tells.then_some(Stand { lane, op, begun: position.begun, awaits })
        };
        (0..).zip(positions).filter_map(stand).collect()
    }

    /// What a lane waits for before a launch: the first operation behind one of its waits that has not ended.
    fn awaited(&self, lane: u32, position: Position, positions: &[Option<Position>]) -> Option<u32> {
        let commands = &self.step(position.iteration).commands;
        let own = |command: &Step| matches!(*command, Step::Launch { lane: its, .. } if its == lane);
        let from = commands[..position.command].iter().rposition(own).map_or(0, |index| index + 1);
        let waits = (from..position.command).filter_map(|index| match commands[index] {
            Step::Wait { lane: its, event, .. } if its == lane => Some((index, event)),
            _ => None,
        });
        let mut unmet = waits.filter_map(|(index, event)| {
            let (producer, at) = self.producer(position.iteration, index, event)?;
            let ended = positions[producer.0 as usize].is_none_or(|place| (place.iteration, place.command) > at);
            (!ended).then_some(producer.1)
        });
        unmet.next()
    }

    /// The operation behind the record that a wait refers to: its lane and number, and where it stands.
    fn producer(&self, iteration: u64, wait: usize, event: u32) -> Option<((u32, u32), (u64, usize))> {
        let mut recorder = None;
        let mut end = wait;
        // The record may be of an iteration before; further back than a round there is nothing new.
        for back in 0..=self.period.len() as u64 {
            let iteration = iteration.checked_sub(back)?;
            let commands = &self.step(iteration).commands;
            for (index, command) in commands[..end.min(commands.len())].iter().enumerate().rev() {
                match (*command, recorder) {
                    (Step::Record { event: its, lane }, None) if its == event => recorder = Some(lane),
                    (Step::Launch { op, lane }, Some(recorder)) if lane == recorder => {
                        return Some(((lane, op), (iteration, index)));
                    }
                    _ => {}
                }
            }
            end = usize::MAX;
        }
        None
    }

    /// The error of a fault that may be of anything under way: the operations of these iterations.
    pub(super) fn late(&self, fault: String, mut at: Vec<LabeledSpan>, iterations: Range<u64>) -> ExecError {
        let mut seen: BTreeMap<SrcSpan, &'static str> = BTreeMap::new();
        let mut count = 0;
        for iteration in iterations.clone() {
            for command in &self.step(iteration).commands {
                if let Step::Launch { op, .. } = *command {
                    let (name, span) = self.launches[op as usize];
                    seen.insert(span, name);
                    count += 1;
                }
            }
        }
        let noticed = |span: &SrcSpan| at.iter().any(|label| label.offset() == span.start as usize);
        let others: Vec<(SrcSpan, &'static str)> = seen.into_iter().filter(|(span, _)| !noticed(span)).collect();
        let label = |(span, name)| LabeledSpan::new_with_span(Some(format!("this {name} was under way")), span);
        at.extend(others.into_iter().take(PLACES).map(label));
        let last = iterations.end.saturating_sub(1);
        let outstanding = match count {
            0 => "nothing was under way".to_owned(),
            _ if iterations.start == last => format!("under way: {} of iteration {last}", counted(count, "operation")),
            _ => format!("under way: {} of iterations {} to {last}", counted(count, "operation"), iterations.start),
        };
        ExecError::Late { fault, outstanding, at }
    }

    /// The communicator of a collective of several ranks.
    fn comm(&self, op: u32) -> Option<&Comm> {
        let number = self.comm_of[op as usize];
        if number == NO_COMM {
            return None;
        }
        self.comms.get(number as usize).filter(|comm| comm.ranks.len() > 1)
    }
}

/// What is known of one rank when a run is given up.
pub(super) struct Witnessed {
    pub rank: u32,
    pub outline: Outline,
    /// Nothing of a rank that was through, or that did not answer.
    pub stood: Option<HangSnapshot>,
    /// It has come to the end of its iterations.
    pub through: bool,
}

/// The error of an iteration that does not end, by what is known of all ranks of this process.
pub(super) fn error(ranks: &[Witnessed]) -> ExecError {
    let several = ranks.len() > 1;
    let stood = ranks.iter().filter_map(|rank| rank.stood.as_ref());
    let iteration = stood.clone().map(|stood| stood.iteration).min().unwrap_or(0);
    let stuck = stood.clone().any(|stood| stood.stuck);
    let timeout = ranks.first().map_or(Nanos(0), |rank| rank.outline.timeout);
    let at = labels(ranks);
    let mut help: Vec<String> = ranks.iter().filter_map(|rank| missing(rank, ranks)).collect();
    help.extend(mismatches(ranks));
    let exact = !at.is_empty();
    if !exact {
        help.extend(ranks.iter().filter_map(|rank| {
            let busy = names(rank.outline.lanes.as_ref(), &rank.stood.as_ref()?.busy);
            Some(if several {
                format!("busy on rank {}: {busy}", rank.rank)
            } else {
                format!("streams that are still busy: {busy}")
            })
        }));
    }
    match stuck {
        true => help.push("nothing is left to happen: each waits for another".to_owned()),
        false => help.push("raise the limit for long iterations: --timeout …".to_owned()),
    }
    let how = if stuck { "never ends".to_owned() } else { format!("did not end within {timeout}") };
    ExecError::Hang { iteration, how, exact, help: help.join("; "), at }
}

fn names(lanes: &[String], busy: &[u32]) -> String {
    match busy {
        [] => "none".to_owned(),
        _ => busy.iter().map(|&lane| lanes[lane as usize].as_str()).collect::<Vec<_>>().join(", "),
    }
}

/// What is said at an operation, and of which ranks.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Said {
    span: SrcSpan,
    begins: String,
    ends: String,
}

/// A label for each operation at which ranks stand.
fn labels(ranks: &[Witnessed]) -> Vec<LabeledSpan> {
    let several = ranks.len() > 1;
    let mut said: BTreeMap<Said, BTreeSet<u32>> = BTreeMap::new();
    for rank in ranks {
        for stand in rank.stood.iter().flat_map(|stood| &stood.stands) {
            said.entry(of_stand(rank, *stand, ranks)).or_default().insert(rank.rank);
            let stood = rank.stood.iter().flat_map(|stood| &stood.stands);
            let unseen = stand.awaits.filter(|&awaited| stood.clone().all(|other| other.op != awaited));
            if let Some((name, span)) = unseen.map(|op| rank.outline.launches[op as usize]) {
                let said_so = Said { span, begins: format!("this {name} has not ended"), ends: String::new() };
                said.entry(said_so).or_default().insert(rank.rank);
            }
        }
    }
    let mut places: BTreeMap<SrcSpan, Vec<(Vec<u32>, String)>> = BTreeMap::new();
    for (said, on) in said {
        let on: Vec<u32> = on.into_iter().collect();
        let who = if several { format!("{}: ", listed(&on)) } else { String::new() };
        places.entry(said.span).or_default().push((on, format!("{who}{}{}", said.begins, said.ends)));
    }
    let label = |(span, mut texts): (SrcSpan, Vec<(Vec<u32>, String)>)| {
        texts.sort();
        let texts: Vec<String> = texts.into_iter().map(|(_, text)| text).collect();
        LabeledSpan::new_with_span(Some(texts.join("; ")), span)
    };
    places.into_iter().take(PLACES).map(label).collect()
}

fn of_stand(rank: &Witnessed, stand: Stand, ranks: &[Witnessed]) -> Said {
    let outline = &rank.outline;
    let (name, span) = outline.launches[stand.op as usize];
    let lane = &outline.lanes[stand.lane as usize];
    let ends = match (stand.begun, stand.awaits) {
        (true, _) => match (outline.comm(stand.op), outline.transfers.get(&stand.op)) {
            (Some(comm), Some(sides)) => others(rank.rank, comm, sides, ranks),
            (Some(comm), None) => arrived(comm, ranks),
            (None, _) => String::new(),
        },
        (false, Some(awaited)) => {
            let (name, _) = outline.launches[awaited as usize];
            let on = outline.period.iter().flat_map(|step| &step.commands).find_map(|command| match *command {
                Step::Launch { op, lane } if op == awaited => Some(outline.lanes[lane as usize].as_str()),
                _ => None,
            });
            format!(", and waits for a {name} on {}", on.unwrap_or("another stream"))
        }
        (false, None) => String::new(),
    };
    let begins = match stand.begun {
        true => format!("{lane} is in this {name}"),
        false => format!("{lane} has not begun this {name}"),
    };
    Said { span, begins, ends }
}

/// Which ranks of a communicator stand in one of its collectives, and which do not.
fn arrived(comm: &Comm, ranks: &[Witnessed]) -> String {
    let has_come = |rank: &&u32| {
        ranks.iter().any(|known| known.rank == **rank && known.in_collectives().any(|(its, _)| its == comm))
    };
    let (come, missing): (Vec<u32>, Vec<u32>) = comm.ranks.iter().partition(has_come);
    match missing.is_empty() {
        true => format!(" over {}, who have all come", listed(&come)),
        false => format!(" over {}: {} not come to it", listed(&comm.ranks), has(&missing)),
    }
}

/// What a rank that sends or receives waits for.
fn others(own: u32, comm: &Comm, sides: &[(bool, u32)], ranks: &[Witnessed]) -> String {
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
        let come = if has_come(sends, peer) { "has come" } else { "has not come" };
        format!(" {way} rank {peer}, which {come} to its {other}")
    };
    sides.iter().map(side).collect::<Vec<_>>().join(", and")
}

impl Witnessed {
    /// The collectives that the rank is in, with their operations.
    fn in_collectives(&self) -> impl Iterator<Item = (&Comm, u32)> {
        let stands = self.stood.iter().flat_map(|stood| &stood.stands).filter(|stand| stand.begun);
        stands.filter_map(|stand| Some((self.outline.comm(stand.op)?, stand.op)))
    }
}

/// What a rank does that others wait for and that stands nowhere.
fn missing(rank: &Witnessed, ranks: &[Witnessed]) -> Option<String> {
    let stands = rank.stood.as_ref().is_some_and(|stood| !stood.stands.is_empty());
    let awaited = ranks.iter().any(|other| other.in_collectives().any(|(comm, _)| comm.ranks.contains(&rank.rank)));
    let told = match (&rank.stood, rank.through) {
        _ if stands || !awaited => return None,
        (_, true) => "has come to the end of its iterations",
        (Some(stood), _) if stood.busy.is_empty() => "has nothing left to do",
        _ => return None,
    };
    Some(format!("rank {} {told}", rank.rank))
}

/// Ranks that have come to different collectives of one communicator.
fn mismatches(ranks: &[Witnessed]) -> Option<String> {
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
    Some(format!("what meets has to be the same call on all ranks, and here it is not: {}", each.join(", ")))
}

/// `rank 3`, `ranks 0, 1 and 2`, `ranks 0 to 7`.
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
