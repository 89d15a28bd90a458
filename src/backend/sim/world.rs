//! The simulated machine that all ranks of a process share by turns.
//!
//! Each rank has its own thread and host clock, but only one thread runs at a time: until it must wait for the machine,
//! or for the other ranks to issue the same number of iterations. Simulated time advances when all ranks wait.
//! Therefore nothing is issued in the past, and every run has the same result.
//!
//! Iterations soon repeat. If the whole state equals that of some iterations ago, the same iterations follow, and the
//! ranks are told how many of them they can reuse.

use std::sync::{Condvar, Mutex, MutexGuard};

use rustc_hash::FxHashMap;

use crate::base::threads::{lock, unpoisoned};
use crate::exec::{Issued, Repeat};

use super::digest::{Digest, StampBase};
use super::machine::{SimMachine, TaskId, Time};

/// The event that a rank waits for.
#[derive(Clone, Copy, Debug)]
pub enum Awaited {
    End(TaskId),
    /// Less than `limit` outstanding calls on a lane.
    Room {
        lane: u32,
        limit: u32,
    },
    /// Every rank has issued this number of iterations.
    Issued(u64),
}

/// Number of iterations whose times of issue are kept. It exceeds the number that a rank may have under way.
const RING: u64 = 64;

/// The number of iterations that a rank has issued since it entered, with the times of the last ones.
#[derive(Clone, Debug)]
struct IssuedCount {
    /// Number of iterations.
    count: u64,
    /// Times in ns at which the last iterations were issued, as a ring.
    times: [Time; RING as usize],
}

impl IssuedCount {
    const NONE: IssuedCount = IssuedCount { count: 0, times: [0; RING as usize] };

    fn add(&mut self, time: Time) {
        self.count += 1;
        self.times[(self.count % RING) as usize] = time;
    }

    /// Time at which the rank had issued `count` iterations; 0 if that time is no longer kept, in which case no rank
    /// waits for it.
    fn time(&self, count: u64) -> Time {
        match self.count.checked_sub(count) {
            Some(since) if since < RING => self.times[(count % RING) as usize],
            _ => 0,
        }
    }
}

/// The state of a driver that determines what it does next, as of the moment at which it lets other ranks run.
#[derive(Clone, Debug, Default)]
pub struct DriverView {
    pub clock: Time,
    /// Number of calls since the last iteration was issued.
    pub calls: u64,
    /// Lists of tasks: for each lane the last one and the dependencies of the next one; events; stamps; gates.
    pub tasks: Vec<Vec<Option<TaskId>>>,
}

/// State of a rank that the other ranks access.
#[derive(Debug)]
struct SharedRank {
    present: bool,
    /// The event that the rank waits for; `None` if it can run.
    waiting: Option<Awaited>,
    issued: IssuedCount,
    /// The rank's last iteration; `None` if no later iteration can equal it.
    last: Option<Issued>,
    view: DriverView,
    /// Numbers of the rank's stamps.
    stamps: StampBase,
    /// Number of iterations that the rank can reuse; `None` if there are none, or once the rank has read it.
    repeat: Option<Repeat>,
}

/// The machine, and the state that all ranks share.
#[derive(Debug)]
pub struct SharedState {
    pub machine: SimMachine,
    /// For each stamp, the time in ns at which it was last reached; `None` before that, and after the stamp was
    /// cleared.
    pub times: Vec<Option<Time>>,
    ranks: Vec<SharedRank>,
    /// Number of ranks that have entered.
    entered: u32,
    /// True from the moment when all ranks have entered until the last one leaves.
    together: bool,
    /// Index of the rank whose thread may run.
    turn: usize,
    /// True if some rank waits although no event is left.
    stuck: bool,
    /// Digests of earlier states, each with the number of iterations that the first rank had issued then.
    seen: FxHashMap<u64, u64>,
}

impl SharedState {
    /// True if some rank waits for something that never happens.
    pub fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// True if the event that a rank waits for has happened.
    fn is_there(&self, awaited: Awaited) -> bool {
        match awaited {
            Awaited::End(task) => self.machine.has_ended(task),
            Awaited::Room { lane, limit } => self.machine.outstanding(lane) < limit,
            Awaited::Issued(count) => self.ranks.iter().all(|rank| !rank.present || rank.issued.count >= count),
        }
    }

    /// Takes over from the machine the times of stamps that were reached.
    pub fn take_stamps(&mut self) {
        for (stamp, time) in self.machine.take_stamps() {
            self.times[stamp as usize] = Some(time);
        }
    }

    /// The ranks whose threads run: those that have entered; or the only rank of a process, which never enters.
    fn under_way(&self) -> impl Iterator<Item = &SharedRank> {
        self.ranks.iter().filter(|rank| rank.present || self.ranks.len() == 1)
    }

    /// Looks for iterations that all ranks can reuse, when the first rank under way has issued one.
    fn find_repeat(&mut self, rank: usize) {
        let first = self.ranks.iter().position(|rank| rank.present).unwrap_or(0);
        let left = self.under_way().map(|rank| rank.last.and_then(|last| last.left)).min();
        let Some(left) = left.flatten().filter(|_| rank == first) else { return };
        let digest = self.digest();
        let now = self.ranks[rank].issued.count;
        let Some(before) = self.seen.insert(digest, now) else { return };
        let period = now - before;
        // A rank issues the iteration itself that it has begun to issue.
        let iterations = left.saturating_sub(1) / period * period;
        if iterations == 0 {
            return;
        }
        // The end of the run follows, which equals nothing before.
        self.seen.clear();
        let repeat = Repeat { period, iterations };
        let alone = self.ranks.len() == 1;
        for rank in self.ranks.iter_mut().filter(|rank| rank.present || alone) {
            rank.repeat = Some(repeat);
            rank.last = None;
        }
    }

    fn digest(&self) -> u64 {
        let bases: Vec<StampBase> = self.ranks.iter().map(|rank| rank.stamps).collect();
        let mut digest = Digest::new(self.machine.now(), self.machine.oldest(), &bases);
        self.machine.digest(&mut digest);
        let first = self.under_way().next().map_or(0, |rank| rank.issued.count);
        for (rank, base) in self.ranks.iter().zip(&bases) {
            let SharedRank { present, waiting, issued, last, view, stamps: _, repeat: _ } = rank;
            digest.word(*present);
            match *waiting {
                None => digest.word(0u64),
                Some(Awaited::End(task)) => digest.task(task),
                Some(Awaited::Room { lane, limit }) => digest.words([lane, limit]),
                Some(Awaited::Issued(count)) => digest.word(count.wrapping_sub(first)),
            }
            digest.word(issued.count.wrapping_sub(first));
            (0..4).for_each(|ago| digest.moment(issued.time(issued.count.saturating_sub(ago))));
            let Some(Issued { under_way, period_index, .. }) = *last else {
                digest.word(0u64);
                continue;
            };
            digest.words([under_way, period_index]);
            let DriverView { clock, calls, tasks } = view;
            digest.moment(*clock);
            digest.word(*calls);
            for list in tasks {
                digest.size(list.len());
                list.iter().for_each(|&task| digest.maybe_task(task));
            }
            // Stamps of the iterations under way, of the one before them, and of the one being issued.
            let since = issued.time(issued.count);
            for ago in 0..2 * (under_way as u32 + 2) {
                let stamp = (base.next + 1 + base.ring - ago) % base.ring;
                let time = self.times[(base.first + stamp) as usize];
                // Stamps of the one being issued may still hold old times.
                match time.filter(|&time| ago > 1 || time >= since) {
                    None => digest.word(0u64),
                    Some(time) => {
                        digest.word(1u64);
                        digest.moment(time);
                    }
                }
            }
        }
        digest.finish()
    }
}

/// State shared by the drivers of all ranks.
#[derive(Debug)]
pub struct World {
    state: Mutex<SharedState>,
    /// For each rank, the condition on which it waits for its turn.
    turns: Vec<Condvar>,
    /// True if every iteration is simulated, even one that equals an earlier one.
    each: bool,
}

impl World {
    /// Creates the world. `stamps` has the number of stamps of each rank.
    pub fn new(machine: SimMachine, stamps: &[u32], each: bool) -> World {
        let mut first = 0;
        let mut rank = |&all: &u32| {
            first += all;
            SharedRank {
                present: false,
                waiting: None,
                issued: IssuedCount::NONE,
                last: None,
                view: DriverView::default(),
                stamps: StampBase { first: first - all, ring: 1, next: 0 },
                repeat: None,
            }
        };
        let ranks: Vec<SharedRank> = stamps.iter().map(&mut rank).collect();
        let turns = ranks.iter().map(|_| Condvar::new()).collect();
        let state = SharedState {
            machine,
            times: vec![None; first as usize],
            ranks,
            entered: 0,
            together: false,
            turn: 0,
            stuck: false,
            seen: FxHashMap::default(),
        };
        World { state: Mutex::new(state), turns, each }
    }

    /// Locks the shared state.
    pub fn lock(&self) -> MutexGuard<'_, SharedState> {
        lock(&self.state)
    }

    /// Registers the thread of a rank. Blocks until all ranks have entered and it is this rank's turn.
    pub fn enter(&self, rank: usize) {
        let mut state = self.lock();
        state.entered += 1;
        let own = &mut state.ranks[rank];
        own.present = true;
        own.waiting = None;
        own.issued = IssuedCount::NONE;
        own.last = None;
        own.repeat = None;
        if state.entered as usize == self.turns.len() {
            state.together = true;
            state.stuck = false;
            state.seen.clear();
            self.pass(&mut state);
        }
        drop(self.wait_for_turn(state, rank));
    }

    /// Removes a rank whose thread ends.
    pub fn leave(&self, rank: usize) {
        let mut state = self.lock();
        state.ranks[rank].present = false;
        state.entered -= 1;
        if state.entered == 0 {
            state.together = false;
        } else {
            self.pass(&mut state);
        }
    }

    fn wait_for_turn<'a>(&self, state: MutexGuard<'a, SharedState>, rank: usize) -> MutexGuard<'a, SharedState> {
        let waited = self.turns[rank].wait_while(state, |state| !state.together || state.turn != rank);
        unpoisoned(waited)
    }

    /// Gives the turn to the rank with the lowest number that can run. Advances the simulation until there is one.
    fn pass(&self, state: &mut SharedState) {
        loop {
            let can = |rank: &usize| {
                let SharedRank { present, waiting, .. } = &state.ranks[*rank];
                *present && (state.stuck || waiting.is_none_or(|awaited| state.is_there(awaited)))
            };
            if let Some(next) = (0..self.turns.len()).find(can) {
                state.turn = next;
                self.turns[next].notify_one();
                return;
            }
            if state.entered == 0 {
                return;
            }
            while !state.machine.moved() {
                if !state.machine.step() {
                    // No event is left. Release a rank that waits for others to issue: they may wait for it.
                    let waits = |rank: &&mut SharedRank| matches!(rank.waiting, Some(Awaited::Issued(_)));
                    match state.ranks.iter_mut().find(waits) {
                        Some(rank) => rank.waiting = None,
                        None => state.stuck = true,
                    }
                    break;
                }
            }
        }
    }

    /// Notes that a rank has issued an iteration. Returns the time in ns at which it continues. With `wait`, that is
    /// when all other ranks have issued as many iterations, as far as they can before this rank continues.
    pub fn issued(&self, rank: usize, wait: bool, issued: Issued, view: impl Fn() -> DriverView) -> Time {
        let mut state = self.lock();
        let own = &mut state.ranks[rank];
        own.view = view();
        let mut time = own.view.clock;
        own.issued.add(time);
        (own.stamps.next, own.stamps.ring) = (issued.next_stamp, issued.stamps);
        own.last = Some(issued).filter(|issued| issued.left.is_some());
        if issued.left.is_none() {
            // Earlier states belong to other iterations.
            state.seen.clear();
        }
        let own = &mut state.ranks[rank];
        let count = own.issued.count;
        if wait && state.together {
            if !state.is_there(Awaited::Issued(count)) {
                state.ranks[rank].waiting = Some(Awaited::Issued(count));
                self.pass(&mut state);
                state = self.wait_for_turn(state, rank);
                state.ranks[rank].waiting = None;
                time = time.max(state.machine.now());
            }
            let others = state.ranks.iter().filter(|rank| rank.present);
            time = others.map(|rank| rank.issued.time(count)).fold(time, Time::max);
            state.ranks[rank].view.clock = time;
        }
        state.take_stamps();
        if !self.each {
            state.find_repeat(rank);
        }
        time
    }

    /// The iterations that a rank can reuse; `None` if there are none, and after the first call that has returned them.
    pub fn repeats(&self, rank: usize) -> Option<Repeat> {
        self.lock().ranks[rank].repeat.take()
    }

    /// Advances the simulation until the condition that a rank waits for holds; `None` if it can never hold.
    pub fn wait<'a>(
        &self,
        mut state: MutexGuard<'a, SharedState>,
        rank: usize,
        awaited: Awaited,
        view: impl Fn() -> DriverView,
    ) -> Option<MutexGuard<'a, SharedState>> {
        if state.is_there(awaited) {
            return Some(state);
        }
        if state.together {
            if state.ranks[rank].last.is_some() {
                state.ranks[rank].view = view();
            }
            state.ranks[rank].waiting = Some(awaited);
            match awaited {
                Awaited::End(task) => state.machine.await_end(task),
                Awaited::Room { lane, .. } => state.machine.await_room(lane),
                Awaited::Issued(_) => {}
            }
            self.pass(&mut state);
            state = self.wait_for_turn(state, rank);
            state.ranks[rank].waiting = None;
            if let Awaited::Room { lane, .. } = awaited {
                state.machine.has_room(lane);
            }
        } else {
            while !state.is_there(awaited) && state.machine.step() {}
        }
        state.stuck |= !state.is_there(awaited);
        (!state.stuck).then_some(state)
    }
}
