//! Where tasks of several devices meet: an exchange holds units of its device from where it begins, and goes on when all
//! that take part have come.

use rustc_hash::FxHashMap;

use crate::ops::{Collective, Cost};

use super::{Action, Blocks, Machine, TaskId, What};

/// A meeting place of ranks: a communicator, or one direction between two of its ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Channel {
    pub comm: u32,
    /// From whom to whom, of a transfer.
    pub pair: Option<(u32, u32)>,
}

/// What a rank does in an exchange.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// What it calls.
    pub calls: Vec<Collective>,
    /// Where it meets others, how many there are with itself, and whether it is a receiver.
    pub channels: Vec<(Channel, u32, bool)>,
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
    /// Channels on which not all have come.
    open: u32,
    groups: Vec<u32>,
}

/// All exchanges, and those under way.
#[derive(Debug, Default)]
pub(super) struct Meetings {
    pub(super) exchanges: Vec<Exchange>,
    under_way: FxHashMap<TaskId, Meeting>,
    /// Who has come to a channel, by the turn there.
    arrived: FxHashMap<(Channel, u64), Vec<TaskId>>,
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
        let channels = &self.meetings.exchanges[exchange as usize].channels;
        let turns = channels.iter().map(|&(channel, _, receives)| {
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
    fn come(&mut self, task: TaskId) {
        let Action::Exchange(exchange) = self.state(task).action else { unreachable!("only exchanges meet") };
        let channels = self.meetings.exchanges[exchange as usize].channels.clone();
        let turns = self.meetings.turns_of.remove(&task).unwrap_or_default();
        let meeting = self.meetings.under_way.entry(task).or_insert_with(|| Meeting { open: 0, groups: Vec::new() });
        meeting.open = channels.len() as u32;
        if channels.is_empty() {
            self.go_on(task);
        }
        for (&(channel, needed, _), turn) in channels.iter().zip(turns) {
            let first = self.meetings.arrived.get(&(channel, turn)).and_then(|there| there.first().copied());
            if channel.pair.is_none() && first.is_some_and(|first| !self.alike(first, exchange)) {
                // It is never complete, and neither is the other.
                continue;
            }
            let there = self.meetings.arrived.entry((channel, turn)).or_default();
            there.push(task);
            if there.len() as u32 == needed {
                for task in self.meetings.arrived.remove(&(channel, turn)).unwrap_or_default() {
                    let meeting = self.meetings.under_way.get_mut(&task).expect("who has come has one");
                    meeting.open -= 1;
                    if meeting.open == 0 {
                        self.go_on(task);
                    }
                }
            }
        }
    }

    /// Whether a task that has come calls the same as another exchange.
    fn alike(&mut self, task: TaskId, other: u32) -> bool {
        let Action::Exchange(exchange) = self.state(task).action else { unreachable!("only exchanges meet") };
        let exchanges = &self.meetings.exchanges;
        let (mine, theirs) = (&exchanges[exchange as usize].calls, &exchanges[other as usize].calls);
        exchange == other
            || (mine.len() == theirs.len() && mine.iter().zip(theirs).all(|(mine, theirs)| mine.meets(theirs)))
    }

    fn go_on(&mut self, task: TaskId) {
        let Action::Exchange(exchange) = self.state(task).action else { unreachable!("only exchanges meet") };
        let time = self.meetings.exchanges[exchange as usize].time;
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
