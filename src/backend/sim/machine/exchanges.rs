//! Exchanges between devices. A rank's part occupies units of its device from its start on. Once all participants have
//! arrived, their transfer begins, which shares links with other transfers. A part ends with the last of its transfers.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::cost::Load;
use crate::ops::{Collective, Cost};

use super::super::digest::Digest;
use super::super::slots::Slots;
use super::units::Blocks;
use super::{Action, EventKind, Owner, SimMachine, TaskId, Time, TransferId, whole};

/// A communicator, or one direction between two of its ranks, on which exchanges follow each other in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Channel {
    pub comm: u32,
    /// Sender and receiver of a transfer; `None` for a collective.
    pub pair: Option<(u32, u32)>,
}

/// A rank's part in an exchange, on one channel.
#[derive(Clone, Debug)]
pub struct ChannelSide {
    pub channel: Channel,
    /// Number of participants, including this rank.
    pub needed: u32,
    /// True if this is the receiving side of a transfer.
    pub receives: bool,
    /// True if the rank waits until all participants have arrived and the transfer is over. Otherwise it only signals
    /// its arrival.
    pub waits: bool,
    /// Duration of the transfer in ns, without contention and from the arrival of the last participant. The longest
    /// time of all sides counts.
    pub time: f64,
    /// Use of links by this side of the transfer.
    pub loads: Vec<Load>,
}

/// A rank's part in an exchange: in a group of collectives, or in one step of a copy between ranks.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The collectives that the exchange calls.
    pub calls: Vec<Collective>,
    /// The sides of the exchange, one per channel.
    pub sides: Vec<ChannelSide>,
    /// Number of compute units that the exchange occupies.
    pub units: u64,
    /// Time in ns from the start of the exchange until it occupies compute units.
    pub floor: Time,
}

/// A rank's part that has started and not ended.
#[derive(Debug)]
struct ActiveExchange {
    /// Number of channels on which the part waits for other ranks or for a transfer.
    open: u32,
    groups: Vec<u32>,
}

/// Arrival of a part at a channel. A part that does not wait may have ended before the others arrive.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    task: TaskId,
    exchange: usize,
    /// Index of the channel's side in the exchange.
    side: usize,
}

/// The registered exchanges by number, and the state of those that are in progress.
#[derive(Debug, Default)]
pub(super) struct ExchangeState {
    pub(super) exchanges: Vec<Exchange>,
    under_way: FxHashMap<TaskId, ActiveExchange>,
    /// Arrivals of incomplete exchanges, by channel and by turn on that channel.
    arrived: FxHashMap<(Channel, u64), Vec<Arrival>>,
    /// For each transfer in progress, the tasks that wait for it.
    transfers: Slots<Vec<TaskId>>,
    /// Number of exchanges of each device on a channel so far; transfers are counted separately for senders and for
    /// receivers.
    turns: FxHashMap<(u32, Channel, bool), u64>,
    /// For each submitted task, its channels with its turn on each.
    turns_of: FxHashMap<TaskId, Vec<(Channel, u64)>>,
}

impl ExchangeState {
    /// Adds arrivals to a digest. Turns on a channel are relative to the least turn of any device there.
    pub(super) fn digest(&self, digest: &mut Digest) {
        let ExchangeState { exchanges: _, under_way, arrived, transfers, turns, turns_of } = self;
        let mut least: BTreeMap<Channel, u64> = BTreeMap::new();
        for (&(_, channel, _), &turn) in turns {
            least.entry(channel).and_modify(|least| *least = turn.min(*least)).or_insert(turn);
        }
        let channel_of = |digest: &mut Digest, channel: Channel| {
            let (from, to) = channel.pair.unwrap_or((u32::MAX, u32::MAX));
            digest.words([channel.comm, from, to]);
        };
        let relative = |channel: &Channel, turn: u64| turn.wrapping_sub(least.get(channel).copied().unwrap_or(0));
        let mut sorted: Vec<_> = turns.iter().collect();
        sorted.sort_unstable_by_key(|(key, _)| **key);
        for (&(device, channel, receives), &turn) in sorted {
            channel_of(digest, channel);
            digest.words([u64::from(device), receives.into(), relative(&channel, turn)]);
        }
        let mut sorted: Vec<_> = arrived.iter().collect();
        sorted.sort_unstable_by_key(|(key, _)| **key);
        digest.size(sorted.len());
        for (&(channel, turn), there) in sorted {
            channel_of(digest, channel);
            digest.word(relative(&channel, turn));
            digest.size(there.len());
            for &Arrival { task, exchange, side } in there {
                digest.task(task);
                digest.size(exchange);
                digest.size(side);
            }
        }
        let mut sorted: Vec<_> = under_way.iter().collect();
        sorted.sort_unstable_by_key(|(task, _)| **task);
        digest.size(sorted.len());
        for (&task, ActiveExchange { open, groups }) in sorted {
            digest.task(task);
            digest.word(*open);
            digest.size(groups.len());
            groups.iter().for_each(|&group| digest.word(group));
        }
        digest.size(transfers.iter().count());
        for (number, waiting) in transfers.iter() {
            digest.word(number);
            digest.tasks(waiting.iter().copied());
        }
        // The channels follow from the task's exchange.
        let mut sorted: Vec<_> = turns_of.iter().collect();
        sorted.sort_unstable_by_key(|(task, _)| **task);
        digest.size(sorted.len());
        for (&task, turns) in sorted {
            digest.task(task);
            for &(channel, turn) in turns {
                digest.word(relative(&channel, turn));
            }
        }
    }
}

impl SimMachine {
    /// Registers an exchange and returns its number.
    pub fn exchange(&mut self, exchange: Exchange) -> u32 {
        self.meetings.exchanges.push(exchange);
        self.meetings.exchanges.len() as u32 - 1
    }

    /// Gives an exchange its turn on each of its channels when it is issued. The n-th exchange of one participant
    /// matches the n-th of the others.
    pub(super) fn number_on_channels(&mut self, task: TaskId, lane: u32, exchange: u32) {
        let device = self.device_of[lane as usize];
        let sides = &self.meetings.exchanges[exchange as usize].sides;
        let turns = sides.iter().map(|side| {
            let turn = self.meetings.turns.entry((device, side.channel, side.receives)).or_default();
            *turn += 1;
            (side.channel, *turn)
        });
        self.meetings.turns_of.insert(task, turns.collect());
    }

    /// Assigns free units to an exchange. Once it has all that it needs, it arrives at its channels; returns whether it
    /// has.
    pub(super) fn assign_exchange_units(&mut self, device: usize, task: TaskId) -> bool {
        let unit = u64::from(Cost::WHOLE_UNIT);
        let free = self.devices[device].free / unit;
        let most = self.capacity / unit;
        let state = self.state(task);
        let wanted = state.waiting.min(most);
        if free < wanted {
            // An exchange keeps partial assignments, so that later kernels do not starve it.
            if free > 0 {
                state.waiting = wanted - free;
                self.occupy(device, task, free * unit);
            }
            return false;
        }
        state.waiting = 0;
        self.occupy(device, task, wanted * unit);
        self.arrive(task);
        true
    }

    fn occupy(&mut self, device: usize, task: TaskId, held: u64) {
        self.devices[device].free -= held;
        self.note_units(device);
        if !self.meetings.under_way.contains_key(&task) {
            let action = self.state(task).action;
            self.started(task, self.now - self.floor(action));
        }
        let group = self.blocks.add(Blocks { task, count: 0, held });
        self.meetings
            .under_way
            .entry(task)
            .or_insert_with(|| ActiveExchange { open: 0, groups: Vec::new() })
            .groups
            .push(group);
    }

    /// Notes the arrival of an exchange at all of its channels, and begins the transfers whose participants are
    /// complete.
    pub(super) fn arrive(&mut self, task: TaskId) {
        let exchange = self.exchange_of(task);
        let turns = self.meetings.turns_of.remove(&task).unwrap_or_default();
        let sides = &self.meetings.exchanges[exchange].sides;
        let open = sides.iter().filter(|side| side.waits).count() as u32;
        self.meetings.under_way.entry(task).or_insert_with(|| ActiveExchange { open: 0, groups: Vec::new() }).open =
            open;
        for (place, (channel, turn)) in turns.into_iter().enumerate() {
            let needed = self.meetings.exchanges[exchange].sides[place].needed;
            let first = self.meetings.arrived.get(&(channel, turn)).and_then(|there| there.first().copied());
            if channel.pair.is_none() && first.is_some_and(|first| !self.alike(first.exchange, exchange)) {
                // Two different collectives meet on the channel, so neither ever completes.
                continue;
            }
            let there = self.meetings.arrived.entry((channel, turn)).or_default();
            there.push(Arrival { task, exchange, side: place });
            if there.len() as u32 == needed {
                let all = self.meetings.arrived.remove(&(channel, turn)).unwrap_or_default();
                self.transfer(&all);
            }
        }
        if open == 0 {
            self.exchanged(task);
        }
    }

    /// Begins the transfer of participants, all of which have arrived.
    fn transfer(&mut self, all: &[Arrival]) {
        let (mut time, mut loads, mut waiting) = (0.0f64, Vec::new(), Vec::new());
        for &Arrival { task, exchange, side } in all {
            let side = &self.meetings.exchanges[exchange].sides[side];
            time = time.max(side.time);
            loads.extend_from_slice(&side.loads);
            waiting.extend(side.waits.then_some(task));
        }
        let number = self.meetings.transfers.add(waiting);
        let demands = self.paths.between(&loads, time, &mut self.flows);
        if demands.is_empty() {
            self.at(self.now + whole(time), EventKind::Transferred(number));
        } else {
            self.flows.add(self.now, Owner::Transfer(number), time, demands);
        }
    }

    /// Ends a transfer, and the tasks that wait for no other transfer.
    pub(super) fn transferred(&mut self, transfer: TransferId) {
        for task in self.meetings.transfers.remove(transfer).unwrap_or_default() {
            let meeting = self.meetings.under_way.get_mut(&task).expect("who waits has one");
            meeting.open -= 1;
            if meeting.open == 0 {
                self.exchanged(task);
            }
        }
    }

    fn exchange_of(&mut self, task: TaskId) -> usize {
        let (Action::Exchange(exchange) | Action::Meet(exchange)) = self.state(task).action else {
            unreachable!("only exchanges meet")
        };
        exchange as usize
    }

    /// True if two exchanges call the same collectives.
    fn alike(&self, exchange: usize, other: usize) -> bool {
        let exchanges = &self.meetings.exchanges;
        exchange == other || Collective::meet(&exchanges[exchange].calls, &exchanges[other].calls)
    }

    /// Ends an exchange on its device.
    fn exchanged(&mut self, task: TaskId) {
        let device = self.device(task);
        let meeting = self.meetings.under_way.remove(&task);
        for group in meeting.into_iter().flat_map(|meeting| meeting.groups) {
            self.devices[device].free += self.blocks.remove(group).map_or(0, |blocks| blocks.held);
        }
        self.note_units(device);
        self.ended(task);
        self.assign_units(device);
    }
}
