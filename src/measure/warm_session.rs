//! A session that stays: opened and warmed up once, then measured in blocks whenever somebody asks.
//!
//! Between two blocks the device does nothing for it. So several of them, each in a process of its own, take turns on one
//! device. Knows no other session.

use serde::{Deserialize, Serialize};

use crate::base::Nanos;
use crate::exec::{self, Backend, Control, ExecError, LaunchMode, Rank, Ranks};

use super::record::WarmupRecord;
use super::warmup;

/// Iterations that are thrown away at the beginning of a block, at least: they find the caches and the clock as others
/// have left them.
const LEAD: u64 = 4;

/// How a session that stays is opened.
pub struct WarmSessionOptions<'a> {
    pub ranks: &'a [Rank<'a>],
    pub backend: &'a dyn Backend,
    pub mode: LaunchMode,
    pub options: exec::Options,
    pub warmup: u32,
    pub control: &'a Control,
}

/// A session that has warmed up.
pub struct WarmSession<'a> {
    session: Ranks,
    mode: LaunchMode,
    /// Iterations before each block that are not measured.
    lead: u64,
    control: &'a Control,
    pub warmup: WarmupRecord,
}

/// What a block gave.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Block {
    /// Of each iteration, on the rank that took longest.
    pub time_ns: Vec<Nanos>,
    /// Iterations that began before the host had issued them, although they should have been held.
    pub ungated: u64,
    /// Fewer than asked for: the run was stopped.
    pub stopped: bool,
    /// What held a device back meanwhile, in words.
    pub throttled: Vec<String>,
}

impl<'a> WarmSessionOptions<'a> {
    /// Opens the session, makes its graphs where it launches graphs, and warms up. A graph that is refused is an error: what
    /// is to be compared is never exchanged for something else.
    pub fn open(&self) -> Result<WarmSession<'a>, ExecError> {
        let mut session = exec::prepare_ranks(self.ranks, self.backend, &self.options)?;
        if self.mode == LaunchMode::Graph {
            session.capture(self.control)?;
        }
        let depth = self.ranks.iter().map(|rank| rank.schedule.depth).max().unwrap_or(0);
        let least = u64::from(self.options.in_flight.max(depth)).max(LEAD);
        let warmup = u64::from(self.warmup);
        let (warmup, first) = warmup::settle(&mut session, self.mode, warmup, least, self.control)?;
        // A sample's slot follows from its number: each block begins with slot 0.
        let slots = session.slots() as u64;
        let (least, lead) = (least.next_multiple_of(slots), first.max(least).next_multiple_of(slots));
        let mut session = WarmSession { session, mode: self.mode, lead, control: self.control, warmup };
        // The first block throws away what is left of the warm-up; all others the same, shorter lead.
        session.session.iterate(self.mode, lead, slots, self.control)?;
        session.lead = least;
        Ok(session)
    }
}

impl WarmSession<'_> {
    /// Iterations after which the program repeats.
    pub fn slots(&self) -> usize {
        self.session.slots()
    }

    /// Whether iterations are held until the host has issued them; `None` of a graph, which is issued by one call.
    pub fn held(&self) -> Option<bool> {
        (self.mode == LaunchMode::Stream).then(|| self.session.is_gated())
    }

    /// What the drivers have to say.
    pub fn notes(&self) -> Vec<String> {
        self.session.notes().unwrap_or_default()
    }

    /// Measures that many iterations, or up to a whole number of rounds more.
    pub fn block(&mut self, iterations: u64) -> Result<Block, ExecError> {
        let iterations = iterations.max(1).next_multiple_of(self.session.slots() as u64);
        let before = self.session.health()?;
        let samples = self.session.iterate(self.mode, self.lead, iterations, self.control)?.slowest;
        let after = self.session.health()?;
        let window: Nanos = samples.time.iter().copied().sum();
        let mut throttled: Vec<String> = Vec::new();
        for why in before.iter().zip(&after).filter_map(|(before, after)| after.throttled(before, window)) {
            if !throttled.contains(&why) {
                throttled.push(why);
            }
        }
        Ok(Block { time_ns: samples.time, ungated: samples.ungated, stopped: samples.stopped, throttled })
    }
}
