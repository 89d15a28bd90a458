//! Where tasks of several devices meet: an exchange holds units of its device from where it begins, and goes on when all
//! that take part have come.

use rustc_hash::FxHashMap;

use crate::ops::{Collective, Cost};

use super::units::Blocks;
use super::{Action, Machine, TaskId, What};

/// A meeting place of ranks: a communicator, or one direction between two of its ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Channel {
    pub comm: u32,
    /// From whom to whom, of a transfer.
    pub pair: Option<(u32, u32)>,
}

/// One rank's side of a meeting.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    pub channel: Channel,
    /// How many meet there, with itself.
    pub needed: u32,
    pub receives: bool,
    /// Whether it goes on only when all have come; else it only says that it has.
    pub waits: bool,
}

/// What a rank does in an exchange.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// What it calls.
    pub calls: Vec<Collective>,
    /// Where it meets others.
    pub sides: Vec<Side>,
    /// Compute units that it holds.
    pub units: u64,
    /// From its start until it holds them, in ns.
    pub floor: f64,
    /// How long it takes once all have come, in ns.
    pub time: f64,
}

/// An exchange under way on one device.
#[derive(Debug)]
struct Meeting {
    /// Channels on which it waits, and not all have come.
    open: u32,
    groups: Vec<u32>,
}

/// All exchanges, and those under way.
#[derive(Debug, Default)]
pub(super) struct Meetings {
    pub(super) exchanges: Vec<Exchange>,
    under_way: FxHashMap<TaskId, Meeting>,
    /// Who has come to a channel, by the turn there, and whether it waits.
    arrived: FxHashMap<(Channel, u64), Vec<(TaskId, bool)>>,
    /// How often each device has used a channel, on each side of it.
    turns: FxHashMap<(u32, Channel, bool), u64>,
    /// The turn of each exchange that was submitted, for each of its channels.
    turns_of: FxHashMap<TaskId, Vec<u64>>,
}

impl Machine {
    /// Adds something that ranks can exchange.
    pub fn exchange(&mut self, exchange: Exchange) -> u32 {
        self.meetings.exchanges.push(exchange);
        self.meetings.exchanges.len() as u32 - 1
    }

    /// An exchange takes its turn on each of its channels when it is issued: the n-th of one side meets the n-th of the
    /// other.
    pub(super) fn take_turns(&mut self, task: TaskId, lane: u32, exchange: u32) {
        let device = self.device_of[lane as usize];
        let sides = &self.meetings.exchanges[exchange as usize].sides;
        let turns = sides.iter().map(|&Side { channel, receives, .. }| {
            let turn = self.meetings.turns.entry((device, channel, receives)).or_default();
            *turn += 1;
            *turn
        });
        self.meetings.turns_of.insert(task, turns.collect());
    }

    /// Gives an exchange units to hold; with all that it needs, it has come to its channels.
    pub(super) fn deal_units(&mut self, device: usize, task: TaskId) -> bool {
        let unit = u64::from(Cost::WHOLE_UNIT);
        let free = self.devices[device].free / unit;
        let most = self.capacity / unit;
        let state = self.state(task);
        let wanted = state.waiting.min(most);
        if free < wanted {
            // What it gets it keeps, so that kernels behind it do not hold it up for ever.
            if free > 0 {
                state.waiting = wanted - free;
                self.occupy(device, task, free * unit);
            }
            return false;
        }
        state.waiting = 0;
        self.occupy(device, task, wanted * unit);
        self.come(task);
        true
    }

    fn occupy(&mut self, device: usize, task: TaskId, held: u64) {
        self.devices[device].free -= held;
        let group = self.group(Blocks { task, count: 0, held });
        self.meetings
            .under_way
            .entry(task)
            .or_insert_with(|| Meeting { open: 0, groups: Vec::new() })
            .groups
            .push(group);
    }

    /// An exchange has come to all of its channels: whoever is complete with it goes on.
    pub(super) fn come(&mut self, task: TaskId) {
        let exchange = self.exchange_of(task);
        let sides = self.meetings.exchanges[exchange].sides.clone();
        let turns = self.meetings.turns_of.remove(&task).unwrap_or_default();
        let meeting = self.meetings.under_way.entry(task).or_insert_with(|| Meeting { open: 0, groups: Vec::new() });
        meeting.open = sides.iter().filter(|side| side.waits).count() as u32;
        if meeting.open == 0 {
            self.go_on(task);
        }
        for (side, turn) in sides.iter().zip(turns) {
            let first = self.meetings.arrived.get(&(side.channel, turn)).and_then(|there| there.first().copied());
            if side.channel.pair.is_none() && first.is_some_and(|(first, _)| !self.alike(first, exchange)) {
                // It is never complete, and neither is the other.
                continue;
            }
            let there = self.meetings.arrived.entry((side.channel, turn)).or_default();
            there.push((task, side.waits));
            if there.len() as u32 == side.needed {
                let all = self.meetings.arrived.remove(&(side.channel, turn)).unwrap_or_default();
                for (task, _) in all.into_iter().filter(|(_, waits)| *waits) {
                    let meeting = self.meetings.under_way.get_mut(&task).expect("who waits has one");
                    meeting.open -= 1;
                    if meeting.open == 0 {
                        self.go_on(task);
                    }
                }
            }
        }
    }

    fn exchange_of(&mut self, task: TaskId) -> usize {
        let (Action::Exchange(exchange) | Action::Meet(exchange)) = self.state(task).action else {
            unreachable!("only exchanges meet")
        };
        exchange as usize
    }

    /// Whether a task that has come calls the same as another exchange.
    fn alike(&mut self, task: TaskId, other: usize) -> bool {
        let exchange = self.exchange_of(task);
        let exchanges = &self.meetings.exchanges;
        let (mine, theirs) = (&exchanges[exchange].calls, &exchanges[other].calls);
        exchange == other
            || (mine.len() == theirs.len() && mine.iter().zip(theirs).all(|(mine, theirs)| mine.meets(theirs)))
    }

    fn go_on(&mut self, task: TaskId) {
        let exchange = self.exchange_of(task);
        let time = self.meetings.exchanges[exchange].time;
        self.at(self.now + time, What::Exchanged(task));
    }

    pub(super) fn exchanged(&mut self, task: TaskId) {
        let device = self.device(task);
        let meeting = self.meetings.under_way.remove(&task);
        for group in meeting.into_iter().flat_map(|meeting| meeting.groups) {
            self.devices[device].free += self.blocks[group as usize].held;
            self.unused_blocks.push(group);
        }
        self.ended(task);
        self.deal(device);
    }
}
