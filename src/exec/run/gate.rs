//! The gate holds each iteration on the device until the host has issued all of it, so that the measured time does not
//! include the host's.
//!
//! Hardware queues have a limited depth. An iteration that fills a queue while the gate is shut would block the host
//! before it can open the gate, so only iterations that fit with a margin are held.

use crate::base::Nanos;
use crate::exec::observe::Timing;
use crate::exec::prepare::image::{ImageCommand, StepCommands};
use crate::exec::{ExecError, Image, Issued};
use crate::model::Sync;
use crate::ops::Launch;

use super::session::{LaunchMode, POLLS, RING, Session, device};

/// Number of gates that may open by themselves before gating is turned off for the session: the delay of the host is
/// likely to persist.
const MAX_FORCED_OPENINGS: u32 = 3;

/// Longest time that a gate stays shut for other ranks. Shorter than the time after which a gate opens by itself, and
/// far longer than issuing an iteration takes.
const MAX_SHUT_TIME: Nanos = Nanos(100_000_000);

/// The state of a session's gate.
#[derive(Debug, Default)]
pub struct Gate {
    /// True if iterations are held.
    pub on: bool,
    /// True if iterations of this image can be held; `on` can be true only then.
    able: bool,
    /// Reason why iterations cannot be held, in words; `None` if they can, or if no gate was requested.
    pub refused: Option<String>,
    /// True if the launch of a graph can be held: it takes few commands of a queue, independent of its size.
    pub graphs: bool,
    /// True if observed iterations fit into the hardware queues with their stamps.
    observed_fit: bool,
    /// By index in the ring of iterations in flight: true if the iteration was held.
    held: Vec<bool>,
    /// Number of gates that opened by themselves.
    forced: u32,
}

impl Gate {
    /// Creates the gate of an image whose hardware queues take `depth` commands each; 0 disables gating.
    pub fn new(image: &Image, period: &[StepCommands], depth: u32, ring: u64) -> Gate {
        if depth == 0 {
            return Gate::default();
        }
        let plain = most(image, period, 0);
        let blocks = blocks(image, period);
        let refused = if period.iter().any(|step| step.commands.contains(&ImageCommand::HostSync)) {
            Some("a `host_sync()` makes the host wait for the device".to_owned())
        } else if blocks {
            Some(
                "copies from or to pageable host memory, and row counts that a tensor holds, make the host wait for \
                  the device"
                    .to_owned(),
            )
        } else if plain > depth {
            Some(format!(
                "one hardware queue gets {plain} commands per iteration, and only {depth} (`gate_depth`) are certain to fit"
            ))
        } else {
            None
        };
        let observed_fit = most(image, period, 2) <= depth;
        let able = refused.is_none();
        Gate { on: able, able, refused, graphs: !blocks, observed_fit, held: vec![false; ring as usize], forced: 0 }
    }

    /// Holds observed iterations like measured ones, since their stamps take no room in the queues.
    pub fn fit_observed(&mut self) {
        self.observed_fit = true;
    }

    /// Turns gating on, if the image allows it, or off.
    pub fn set(&mut self, on: bool) {
        self.on = on && self.able;
    }

    /// True if the next iteration will be held. `stamped` is true if it has stamps around its operations.
    pub fn holds(&self, stamped: bool) -> bool {
        self.on && self.forced < MAX_FORCED_OPENINGS && (self.observed_fit || !stamped)
    }

    /// True if the next launch of a graph will be held.
    fn holds_graph(&self) -> bool {
        self.graphs && self.forced < MAX_FORCED_OPENINGS
    }

    /// Records whether the iteration at index `gate` of the ring is held.
    pub fn set_held(&mut self, gate: u32, held: bool) {
        if let Some(place) = self.held.get_mut(gate as usize) {
            *place = held;
        }
    }

    /// True if the iteration at index `gate` of the ring is held.
    pub fn held(&self, gate: u32) -> bool {
        self.held.get(gate as usize).copied().unwrap_or(false)
    }

    /// Counts a gate that opened by itself, and turns gating off after [`MAX_FORCED_OPENINGS`] of them.
    pub fn was_forced(&mut self) {
        self.forced += 1;
    }
}

impl Session {
    /// Issues the commands before an iteration's start stamp, which its time does not include: waits for the end of the
    /// previous iteration, flushes the caches, and holds the device if `hold` is set and the gate is on.
    pub(in crate::exec) fn lead_in(
        &mut self,
        mode: LaunchMode,
        iteration: u64,
        observed: Option<Timing>,
        hold: bool,
    ) -> Result<(), ExecError> {
        let gate = (iteration % RING) as u32;
        let stamp_lane = match mode {
            LaunchMode::Stream => self.stamp_lane(self.index(iteration)),
            LaunchMode::Graph => 0,
        };
        if mode == LaunchMode::Stream && self.lowered.sync == Sync::Iteration {
            self.await_last(iteration, stamp_lane)?;
        }
        if self.lowered.cold {
            self.driver.flush(stamp_lane).map_err(device)?;
        }
        let stamped = observed.is_some_and(|timing| timing.first_stamp().is_some());
        let is_gated = hold
            && match mode {
                LaunchMode::Stream => self.lowered.gate.holds(stamped),
                // The vendor's library makes the launch of a graph take much longer than the graph itself.
                LaunchMode::Graph => observed == Some(Timing::Records) && self.lowered.gate.holds_graph(),
            };
        self.lowered.gate.set_held(gate, is_gated);
        if is_gated {
            self.driver.hold(gate, stamp_lane).map_err(device)?;
        }
        Ok(())
    }

    /// Opens the gate of an issued iteration once every rank of the process has issued it. Otherwise the time of a rank
    /// with fewer commands would include the issue time of the others.
    pub(super) fn release_gate(&mut self, iteration: u64, (under_way, left): (u64, Option<u64>)) {
        let gate = (iteration % RING) as u32;
        let issued = self.progress.count_issued();
        let held = self.lowered.gate.held(gate);
        if self.in_turns {
            self.issued_at = Some(self.driver.now());
        }
        let next = iteration + 1;
        self.driver.issued(
            held && self.in_turns,
            Issued {
                under_way,
                period_index: next % self.lowered.outline.period.len() as u64,
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

    /// Waits until the other ranks have issued `issued` iterations, or until [`MAX_SHUT_TIME`] has passed.
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
                // With fewer cores than ranks, another rank may need this core.
                std::thread::yield_now();
            }
            if self.driver.now() - start > MAX_SHUT_TIME {
                return;
            }
        }
    }

    /// True if a completed iteration was held until it had been issued.
    pub(super) fn was_held(&mut self, iteration: u64) -> bool {
        let gate = (iteration % RING) as u32;
        let held = self.lowered.gate.held(gate);
        let forced = held && self.driver.forced(gate);
        if forced {
            self.lowered.gate.was_forced();
        }
        held && !forced
    }

    /// Turns gating on, as far as the image allows it, or off.
    pub fn set_gate(&mut self, on: bool) {
        self.lowered.gate.set(on);
    }

    /// True if iterations launched as streams are gated.
    pub fn is_gated(&self) -> bool {
        self.lowered.gate.on
    }

    /// Reason why iterations are not gated, in words; `None` if they are, or if gating was not requested.
    pub fn gate_refused(&self) -> Option<&str> {
        self.lowered.gate.refused.as_deref()
    }

    /// True if the data caches are flushed before each iteration.
    pub fn is_cold(&self) -> bool {
        self.lowered.cold
    }
}

/// True if a call of an iteration makes the host wait for the device.
fn blocks(image: &Image, period: &[StepCommands]) -> bool {
    period.iter().flat_map(StepCommands::launches).any(|launch| {
        let work = &image.works[image.ops[launch.op as usize].work as usize];
        work.launches.iter().any(|launch| match launch {
            Launch::Copy(copy) => copy.pageable,
            Launch::Collective(all) => all.iter().any(|one| one.counted.is_some()),
            _ => false,
        })
    })
}

/// Number of queue commands of a launch. A copy between ranks needs three for each flag (raise, wait, lower), for each
/// sending rank, before and after the transfer; an operation of a host stream needs one request and one such flag.
fn commands(launch: &Launch) -> u32 {
    match launch {
        Launch::Peer(peer) => 3 * peer.from.len() as u32 + 4,
        Launch::Host { .. } => 4,
        _ => 1,
    }
}

/// The largest number of commands that an iteration puts on one hardware queue, with `stamps` stamps around each
/// operation.
fn most(image: &Image, period: &[StepCommands], stamps: u32) -> u32 {
    let mut most = 0;
    for step in period {
        let mut queues = std::collections::BTreeMap::<u32, u32>::new();
        let mut add = |lane: u32, count: u32| *queues.entry(image.lanes[lane as usize].queue).or_default() += count;
        for command in &step.commands {
            match *command {
                ImageCommand::Launch { op, lane } => {
                    let work = &image.works[image.ops[op as usize].work as usize];
                    add(lane, work.launches.iter().map(commands).sum::<u32>() + stamps);
                }
                ImageCommand::Record { lane, .. } | ImageCommand::Wait { lane, .. } => add(lane, 1),
                ImageCommand::HostSync => {}
            }
        }
        // The commands that `Session::lead_in` and `Session::issue` add: on the stamp lane the wait for the previous
        // iteration, the cache flush, the gate and both stamps; on each other lane a wait for the start stamp; and the
        // joins at the end.
        let stamp_lane = step.used.first().copied().unwrap_or(0);
        add(stamp_lane, 5);
        step.used.iter().filter(|lane| **lane != stamp_lane).for_each(|&lane| add(lane, 1));
        for &lane in step.leaves.iter().filter(|lane| **lane != stamp_lane) {
            add(lane, 1);
            add(stamp_lane, 1);
        }
        most = most.max(queues.values().copied().max().unwrap_or(0));
    }
    most
}
