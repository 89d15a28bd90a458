//! One simulated machine for all ranks of a process, and whose turn it is.
//!
//! Each rank has a thread and a host's clock of its own, but only one of them runs at a time: until it has to wait for
//! the machine, or for the others to issue as much, when the next goes on. Time passes on the machine when all of them
//! wait. So nothing is issued later than time has got, and every run is the same.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::machine::{Machine, TaskId, Time};

/// What a rank waits for.
#[derive(Clone, Copy, Debug)]
pub enum Awaited {
    /// The end of a task.
    End(TaskId),
    /// Fewer tasks than that on a lane.
    Room { lane: u32, limit: u32 },
    /// So many iterations issued by every rank.
    Issued(u64),
}

/// Iterations of a rank whose time of issue is kept: more than it may have under way.
const RING: u64 = 64;

/// The iterations that a rank has issued since it entered.
#[derive(Clone, Debug)]
struct Issued {
    count: u64,
    /// When the last of them were issued, by their number.
    times: [Time; RING as usize],
}

impl Issued {
    const NONE: Issued = Issued { count: 0, times: [0; RING as usize] };

    fn add(&mut self, time: Time) {
        self.count += 1;
        self.times[(self.count % RING) as usize] = time;
    }

    /// When the rank had issued that many; the beginning of time, where that is so long ago that nobody waits for it.
    fn time(&self, count: u64) -> Time {
        match self.count.checked_sub(count) {
            Some(since) if since < RING => self.times[(count % RING) as usize],
            _ => 0,
        }
    }
}

/// The machine with everything that ranks share.
#[derive(Debug)]
pub struct State {
    pub machine: Machine,
    /// When each stamp was reached; None while it has not been.
    pub times: Vec<Option<Time>>,
    /// Ranks that have entered, where they run side by side.
    entered: u32,
    together: bool,
    /// For each rank what it waits for; nothing when it can go on.
    waiting: Vec<Option<Awaited>>,
    issued: Vec<Issued>,
    present: Vec<bool>,
    turn: usize,
    /// Nothing is left to happen, and somebody waits.
    stuck: bool,
}

impl State {
    /// Whether it has shown that somebody waits for what never happens.
    pub fn is_stuck(&self) -> bool {
        self.stuck
    }

    fn is_there(&self, awaited: Awaited) -> bool {
        match awaited {
            Awaited::End(task) => self.machine.has_ended(task),
            Awaited::Room { lane, limit } => self.machine.outstanding(lane) < limit,
            Awaited::Issued(count) => {
                let mut ranks = self.issued.iter().zip(&self.present);
                ranks.all(|(issued, &present)| !present || issued.count >= count)
            }
        }
    }

    /// Takes over what has been reached.
    pub fn take_stamps(&mut self) {
        for (stamp, time) in self.machine.take_stamps() {
            self.times[stamp as usize] = Some(time);
        }
    }
}

/// What the drivers of all ranks hold on to.
#[derive(Debug)]
pub struct World {
    state: Mutex<State>,
    turns: Vec<Condvar>,
}

impl World {
    pub fn new(machine: Machine, ranks: usize, stamps: usize) -> World {
        let state = State {
            machine,
            times: vec![None; stamps],
            entered: 0,
            together: false,
            waiting: vec![None; ranks],
            issued: vec![Issued::NONE; ranks],
            present: vec![false; ranks],
            turn: 0,
            stuck: false,
        };
        World { state: Mutex::new(state), turns: (0..ranks).map(|_| Condvar::new()).collect() }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A rank's thread begins; it goes on when all have, and it is its turn.
    pub fn enter(&self, rank: usize) {
        let mut state = self.lock();
        state.entered += 1;
        state.present[rank] = true;
        state.waiting[rank] = None;
        state.issued[rank] = Issued::NONE;
        if state.entered as usize == self.turns.len() {
            state.together = true;
            state.stuck = false;
            self.pass(&mut state);
        }
        drop(self.until_turn(state, rank));
    }

    /// A rank's thread ends.
    pub fn leave(&self, rank: usize) {
        let mut state = self.lock();
        state.present[rank] = false;
        state.entered -= 1;
        if state.entered == 0 {
            state.together = false;
        } else {
            self.pass(&mut state);
        }
    }

    fn until_turn<'a>(&self, state: MutexGuard<'a, State>, rank: usize) -> MutexGuard<'a, State> {
        let waited = self.turns[rank].wait_while(state, |state| !state.together || state.turn != rank);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the next rank go on that can: the one of the lowest number.
    fn pass(&self, state: &mut State) {
        loop {
            let can = |rank: &usize| {
                state.present[*rank]
                    && (state.stuck || state.waiting[*rank].is_none_or(|awaited| state.is_there(awaited)))
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
                    // Whoever waits for the others to issue may be what they wait for.
                    let waits = |awaited: &&mut Option<Awaited>| matches!(awaited, Some(Awaited::Issued(_)));
                    match state.waiting.iter_mut().find(waits) {
                        Some(rank) => *rank = None,
                        None => state.stuck = true,
                    }
                    break;
                }
            }
        }
    }

    /// A rank has issued one more iteration, at that time. Gives the time at which it goes on: with `wait`, when all
    /// that run beside it have issued as many, in so far as they can before this one goes on.
    pub fn issued(&self, rank: usize, mut time: Time, wait: bool) -> Time {
        let mut state = self.lock();
        state.issued[rank].add(time);
        if !wait || !state.together {
            return time;
        }
        let count = state.issued[rank].count;
        if !state.is_there(Awaited::Issued(count)) {
            state.waiting[rank] = Some(Awaited::Issued(count));
            self.pass(&mut state);
            state = self.until_turn(state, rank);
            state.waiting[rank] = None;
            time = time.max(state.machine.now());
        }
        let others = state.issued.iter().zip(&state.present).filter(|(_, present)| **present);
        others.map(|(issued, _)| issued.time(count)).fold(time, Time::max)
    }

    /// Lets time pass until a rank has what it waits for. Gives nothing when it never will.
    pub fn wait<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        rank: usize,
        awaited: Awaited,
    ) -> Option<MutexGuard<'a, State>> {
        if state.is_there(awaited) {
            return Some(state);
        }
        if state.together {
            state.waiting[rank] = Some(awaited);
            match awaited {
                Awaited::End(task) => state.machine.await_end(task),
                Awaited::Room { lane, .. } => state.machine.await_room(lane),
                Awaited::Issued(_) => {}
            }
            self.pass(&mut state);
            state = self.until_turn(state, rank);
            state.waiting[rank] = None;
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
