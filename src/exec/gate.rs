//! The gate: an iteration is held back until the host has issued all of it, so that its time does not depend on how
//! fast the host is.
//!
//! A device takes so many commands and no more: an iteration that does not fit would wait for the gate, and the gate for
//! it. So what does not fit with room to spare is not held.

use crate::base::Nanos;
use crate::model::Sync;
use crate::ops::Launch;

use super::driver::Issued;
use super::error::ExecError;
use super::image::{Image, Step, StepCommands};
use super::session::{LaunchMode, POLLS, RING, Session, device};

/// Gates that opened by themselves before no more iterations are held: what has kept the host waiting goes on doing so.
const ENOUGH: u32 = 3;

/// How long a gate stays shut for other ranks: less than it takes to open by itself, and far more than any takes to issue
/// what can be held.
const LONGEST: Nanos = Nanos(100_000_000);

/// What a session knows of its gate.
#[derive(Debug, Default)]
pub struct Gate {
    /// Iterations are held now.
    pub on: bool,
    /// They can be.
    able: bool,
    /// Why none can be held, in words.
    pub refused: Option<String>,
    /// Observed iterations fit too, with their stamps.
    observed_fit: bool,
    /// Of the iterations under way, those that are held.
    held: Vec<bool>,
    /// Gates that opened by themselves.
    forced: u32,
}

impl Gate {
    /// A gate for an image whose hardware queues take `depth` commands each; none where that is 0.
    pub fn new(image: &Image, period: &[StepCommands], depth: u32, ring: u64) -> Gate {
        if depth == 0 {
            return Gate::default();
        }
        let plain = most(image, period, 0);
        let refused = if blocks(image) {
            Some("a copy from or to ordinary host memory makes the host wait for the device".to_owned())
        } else if plain > depth {
            Some(format!("a hardware queue gets {plain} commands, and {depth} are sure to fit (`gate_depth`)"))
        } else {
            None
        };
        let observed_fit = most(image, period, 2) <= depth;
        let able = refused.is_none();
        Gate { on: able, able, refused, observed_fit, held: vec![false; ring as usize], forced: 0 }
    }

    /// Holds iterations from now on, if they can be held, or no longer.
    pub fn set(&mut self, on: bool) {
        self.on = on && self.able;
    }

    /// Whether the next iteration is to be held.
    pub fn holds(&self, observed: bool) -> bool {
        self.on && self.forced < ENOUGH && (self.observed_fit || !observed)
    }

    pub fn set_held(&mut self, gate: u32, held: bool) {
        if let Some(place) = self.held.get_mut(gate as usize) {
            *place = held;
        }
    }

    pub fn held(&self, gate: u32) -> bool {
        self.held.get(gate as usize).copied().unwrap_or(false)
    }

    /// Notes that a gate opened by itself.
    pub fn was_forced(&mut self) {
        self.forced += 1;
    }
}

impl Session {
    /// Issues what comes before an iteration's first stamp, outside of its time: waits for the end of the iteration before,
    /// empties the caches, and holds the device until `issue` has returned, where `hold` asks for it and the gate allows it.
    pub(super) fn lead_in(
        &mut self,
        mode: LaunchMode,
        iteration: u64,
        observe: bool,
        hold: bool,
    ) -> Result<(), ExecError> {
        let gate = (iteration % RING) as u32;
        let origin = match mode {
            LaunchMode::Stream => self.origin(self.index(iteration)),
            LaunchMode::Graph => 0,
        };
        if mode == LaunchMode::Stream && self.lowered.sync == Sync::Iteration {
            self.await_last(iteration, origin)?;
        }
        if self.lowered.cold {
            self.driver.flush(origin).map_err(device)?;
        }
        let held = hold && mode == LaunchMode::Stream && self.lowered.gate.holds(observe);
        self.lowered.gate.set_held(gate, held);
        if held {
            self.driver.hold(gate, origin).map_err(device)?;
        }
        Ok(())
    }

    /// Opens the gate of an iteration that has been issued, when every rank of the process has issued it: the time of a
    /// rank that has less to issue would contain how long the others take.
    pub(super) fn let_go(&mut self, iteration: u64, (under_way, left): (u64, Option<u64>)) {
        let gate = (iteration % RING) as u32;
        let issued = self.beat.issued_one();
        let held = self.lowered.gate.held(gate);
        if self.in_turns {
            self.issued_at = Some(self.driver.now());
        }
        let next = iteration + 1;
        self.driver.issued(
            held && self.in_turns,
            Issued {
                under_way,
                slot: next % self.lowered.outline.period.len() as u64,
                next_stamp: Self::begin_stamp(next),
                stamps: 2 * RING as u32,
                left,
            },
        );
        if held {
            self.wait_for_others(issued);
            self.driver.release(gate);
        }
    }

    /// Waits until the other ranks have issued as many iterations, or have taken too long.
    fn wait_for_others(&mut self, issued: u64) {
        if self.others.is_empty() {
            return;
        }
        let start = self.driver.now();
        self.issued_at = Some(start);
        let mut polls = 0;
        while !self.others.iter().all(|other| other.has_issued(issued)) {
            polls += 1;
            if polls % POLLS == 0 {
                // Where there are fewer cores than ranks, another may wait for this one.
                std::thread::yield_now();
            }
            if self.driver.now() - start > LONGEST {
                return;
            }
        }
    }

    /// Whether an iteration that is complete was held until it had been issued.
    pub(super) fn was_held(&mut self, iteration: u64) -> bool {
        let gate = (iteration % RING) as u32;
        let held = self.lowered.gate.held(gate);
        let forced = held && self.driver.forced(gate);
        if forced {
            self.lowered.gate.was_forced();
        }
        held && !forced
    }

    /// Holds iterations until they are issued, as far as that can be, or no longer.
    pub fn set_gate(&mut self, on: bool) {
        self.lowered.gate.set(on);
    }

    /// Whether iterations are held, as streams.
    pub fn is_gated(&self) -> bool {
        self.lowered.gate.on
    }

    /// Why iterations are not held, where they might be.
    pub fn gate_refused(&self) -> Option<&str> {
        self.lowered.gate.refused.as_deref()
    }

    /// Whether the caches of data are emptied before each iteration.
    pub fn is_cold(&self) -> bool {
        self.lowered.cold
    }
}

/// Whether a call of the image makes the host wait for the device.
fn blocks(image: &Image) -> bool {
    image.works.iter().flat_map(|work| work.launches.iter()).any(|launch| match launch {
        Launch::Copy(copy) => copy.pageable,
        _ => false,
    })
}

/// How many commands a launch is: a copy between ranks raises a flag, waits for one and lowers it, for each rank that
/// sends here and before and after what is sent.
fn commands(launch: &Launch) -> u32 {
    match launch {
        Launch::Peer(peer) => 3 * peer.from.len() as u32 + 4,
        _ => 1,
    }
}

/// The most commands that an iteration gives one hardware queue, with `stamps` around each operation.
fn most(image: &Image, period: &[StepCommands], stamps: u32) -> u32 {
    let mut most = 0;
    for step in period {
        let mut queues = std::collections::BTreeMap::<u32, u32>::new();
        let mut add = |lane: u32, count: u32| *queues.entry(image.lanes[lane as usize].queue).or_default() += count;
        for command in &step.commands {
            match *command {
                Step::Launch { op, lane } => {
                    let work = &image.works[image.ops[op as usize].work as usize];
                    add(lane, work.launches.iter().map(commands).sum::<u32>() + stamps);
                }
                Step::Record { lane, .. } | Step::Wait { lane, .. } => add(lane, 1),
            }
        }
        // What `Session::lead_in` and `Session::issue` add: on the origin the wait for the iteration before, the emptying of
        // the caches, the gate and both stamps; on each other lane a wait for the first stamp; and the joins at the end.
        let origin = step.used.first().copied().unwrap_or(0);
        add(origin, 5);
        step.used.iter().filter(|lane| **lane != origin).for_each(|&lane| add(lane, 1));
        for &lane in step.leaves.iter().filter(|lane| **lane != origin) {
            add(lane, 1);
            add(origin, 1);
        }
        most = most.max(queues.values().copied().max().unwrap_or(0));
    }
    most
}
