//! A session that is opened and warmed up once, then measured in blocks on request.
//!
//! A session is idle between blocks, so several sessions, each in its own process, can take turns on one device.

use serde::{Deserialize, Serialize};

use crate::base::Nanos;
use crate::exec::{self, Backend, Control, ExecError, LaunchMode, RankSchedule, Ranks};

use super::{blocks, warmup};
use crate::measure::record::WarmupRecord;

/// Minimum number of discarded iterations at the start of a block, since another session has changed caches and clocks.
const LEAD: u64 = 4;

/// The run whose session stays open. `warmup` is the number of warm-up iterations of a round.
pub struct WarmSessionOptions<'a> {
    pub ranks: &'a [RankSchedule<'a>],
    pub backend: &'a dyn Backend,
    pub mode: LaunchMode,
    pub options: exec::SessionOptions,
    pub warmup: u32,
    pub control: &'a Control,
}

/// An open session after its warm-up.
pub struct WarmSession<'a> {
    session: Ranks,
    mode: LaunchMode,
    /// Number of discarded iterations before each block.
    lead: u64,
    control: &'a Control,
    pub warmup: WarmupRecord,
}

/// Results of a block.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BlockResult {
    /// Times of the iterations, each of the slowest rank.
    pub time_ns: Vec<Nanos>,
    /// Number of iterations that began before they had been issued although they were gated.
    pub ungated: u64,
    /// True if the run was stopped before all iterations were measured.
    pub stopped: bool,
    /// The reasons of throttling during the block, in words.
    pub throttled: Vec<String>,
}

impl<'a> WarmSessionOptions<'a> {
    /// Opens the session, captures graphs if it launches graphs, and warms up. Fails if a graph is refused; there is no
    /// fallback to streams, since the comparison asks for graphs.
    pub fn open(&self) -> Result<WarmSession<'a>, ExecError> {
        let mut session = exec::prepare_ranks(self.ranks, self.backend, &self.options)?;
        if self.mode == LaunchMode::Graph {
            session.capture(self.control)?;
        }
        let depth = self.ranks.iter().map(|rank| rank.schedule.depth).max().unwrap_or(0);
        let least = u64::from(self.options.in_flight.max(depth)).max(LEAD);
        let warmup = u64::from(self.warmup);
        let (warmup, first) = warmup::warm_up(&mut session, self.mode, warmup, least, self.control)?;
        // A sample's slot follows from its number, so each block begins with slot 0.
        let slots = session.slots() as u64;
        let (least, lead) = (least.next_multiple_of(slots), first.max(least).next_multiple_of(slots));
        let mut session = WarmSession { session, mode: self.mode, lead, control: self.control, warmup };
        // The first block discards the rest of the warm-up; all others use the shorter lead.
        session.session.iterate(self.mode, lead, slots, self.control)?;
        session.lead = least;
        Ok(session)
    }
}

impl WarmSession<'_> {
    /// Number of iterations after which the program repeats.
    pub fn slots(&self) -> usize {
        self.session.slots()
    }

    /// True if iterations are gated; `None` for a graph, which one call launches.
    pub fn gated(&self) -> Option<bool> {
        (self.mode == LaunchMode::Stream).then(|| self.session.is_gated())
    }

    /// Notes of the drivers.
    pub fn notes(&self) -> Vec<String> {
        self.session.notes().unwrap_or_default()
    }

    /// Measures a block of at least `iterations` iterations, rounded up to complete rounds.
    pub fn block(&mut self, iterations: u64) -> Result<BlockResult, ExecError> {
        let iterations = iterations.max(1).next_multiple_of(self.session.slots() as u64);
        let before = self.session.health()?;
        let samples = self.session.iterate(self.mode, self.lead, iterations, self.control)?.slowest;
        let after = self.session.health()?;
        let throttled = blocks::throttled(&before, &after, samples.time.iter().copied().sum());
        Ok(BlockResult { time_ns: samples.time, ungated: samples.ungated, stopped: samples.stopped, throttled })
    }

    /// Runs the `teardown` after the last block, unless the run was stopped.
    pub fn tear_down(&mut self) -> Result<(), ExecError> {
        if self.control.stopped() { Ok(()) } else { self.session.tear_down(self.control) }
    }
}
