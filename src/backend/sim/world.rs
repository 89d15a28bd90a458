//! One simulated machine for all ranks of a process, and whose turn it is.
//!
//! Each rank has a thread and a host's clock of its own, but only one of them runs at a time: until it has to wait for
//! the machine, when the next goes on. Time passes on the machine when all of them wait. So nothing is issued later
//! than time has got, and every run is the same.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::machine::{Machine, TaskId};

/// What a rank waits for.
#[derive(Clone, Copy, Debug)]
pub enum Awaited {
    /// The end of a task.
    End(TaskId),
    /// Fewer tasks than that on a lane.
    Room { lane: u32, limit: u32 },
}

impl Awaited {
    fn is_there(self, machine: &Machine) -> bool {
        match self {
            Awaited::End(task) => machine.has_ended(task),
            Awaited::Room { lane, limit } => machine.outstanding(lane) < limit,
        }
    }
}

/// The machine with everything that ranks share.
#[derive(Debug)]
pub struct State {
    pub machine: Machine,
    /// When each stamp was reached, in ns; NaN while it has not been.
    pub times: Vec<f64>,
    /// Ranks that have entered, where they run side by side.
    entered: u32,
    together: bool,
    /// For each rank what it waits for; nothing when it can go on.
    waiting: Vec<Option<Awaited>>,
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

    /// Takes over what has been reached.
    pub fn take_stamps(&mut self) {
        for (stamp, time) in self.machine.take_stamps() {
            self.times[stamp as usize] = time;
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
            times: vec![f64::NAN; stamps],
            entered: 0,
            together: false,
            waiting: vec![None; ranks],
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
                    && (state.stuck || state.waiting[*rank].is_none_or(|awaited| awaited.is_there(&state.machine)))
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
                    state.stuck = true;
                    break;
                }
            }
        }
    }

    /// Lets time pass until a rank has what it waits for. Gives nothing when it never will.
    pub fn wait<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        rank: usize,
        awaited: Awaited,
    ) -> Option<MutexGuard<'a, State>> {
        if awaited.is_there(&state.machine) {
            return Some(state);
        }
        if state.together {
            state.waiting[rank] = Some(awaited);
            match awaited {
                Awaited::End(task) => state.machine.await_end(task),
                Awaited::Room { lane, .. } => state.machine.await_room(lane),
            }
            self.pass(&mut state);
            state = self.until_turn(state, rank);
            state.waiting[rank] = None;
            if let Awaited::Room { lane, .. } = awaited {
                state.machine.has_room(lane);
            }
        } else {
            while !awaited.is_there(&state.machine) && state.machine.step() {}
        }
        state.stuck |= !awaited.is_there(&state.machine);
        (!state.stuck).then_some(state)
    }
}
