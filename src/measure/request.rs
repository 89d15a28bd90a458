//! The request of a measurement, and its results.

use std::cell::OnceCell;

use crate::base::SourceMap;
use crate::config::{Effort, EffortPlan, LaunchSetting, Profile, Settings};
use crate::exec::{self, Backend, Control, ExecError, LaunchMode, Observation, RankSchedule, Ranks, Samples};
use crate::model;
use crate::plan::ranks::RankPlan;
use crate::schedule::{self, Schedule, Topology};

use super::record::{Times, Variant};

/// Maximum number of observed iterations, unless a single round has more.
const OBSERVED: u64 = 64;

/// A measurement to make: the ranks, the backend, and how many iterations in which launch modes.
pub struct Request<'a> {
    /// The ranks of the world, at least one. With other processes, this one runs only its own.
    pub ranks: &'a [RankSchedule<'a>],
    /// The plans of all ranks, by which a run on one stream that would never end is left out; empty if they are not known.
    pub plans: &'a [RankPlan],
    pub backend: &'a dyn Backend,
    pub modes: &'a [LaunchMode],
    pub effort: EffortPlan,
    pub observed_iterations: u32,
    pub exec: exec::SessionOptions,
    pub control: &'a Control,
    /// Profile with the device's limits; `None` if there is none.
    pub profile: Option<&'a Profile>,
    /// Texts that the spans of the programs point into. Without them, expectations and operations have no source location.
    pub sources: &'a SourceMap,
    /// Called with the incomplete results before each further phase. A phase may never return; results that were not
    /// saved would be lost with the process.
    pub keep: &'a dyn Fn(Measured),
    /// Result of `Request::cached`, which several records of one run need.
    pub shares: OnceCell<Vec<CachedShares>>,
}

/// Result of [`schedule::cached`] for one rank.
pub type CachedShares = Vec<Vec<f64>>;

impl<'a> Request<'a> {
    /// Request with these settings, and without a profile.
    pub fn new(
        ranks: &'a [RankSchedule<'a>],
        backend: &'a dyn Backend,
        sources: &'a SourceMap,
        settings: &Settings,
        control: &'a Control,
    ) -> Request<'a> {
        Request {
            ranks,
            plans: &[],
            backend,
            modes: match settings.launch {
                LaunchSetting::Stream => &[LaunchMode::Stream],
                LaunchSetting::Graph => &[LaunchMode::Graph],
                LaunchSetting::Both => &[LaunchMode::Stream, LaunchMode::Graph],
            },
            effort: settings.plan(settings.effort),
            observed_iterations: match settings.effort {
                Effort::Sanity => settings.observed_iterations.min(1),
                Effort::Quick | Effort::Full => settings.observed_iterations,
            },
            exec: exec::SessionOptions::of(settings),
            control,
            profile: None,
            sources,
            keep: &|_| {},
            shares: OnceCell::new(),
        }
    }

    /// Shares of a rank's bytes that the cache serves by the model; empty without a profile.
    pub(super) fn cached(&self, index: usize) -> &CachedShares {
        let of_rank = |rank: &RankSchedule| {
            let cold = self.exec.flushes(rank.schedule);
            let shares = |profile| schedule::cached(rank.program, rank.schedule, rank.number, cold, profile);
            self.profile.map(shares).unwrap_or_default()
        };
        &self.shares.get_or_init(|| self.ranks.iter().map(of_rank).collect())[index]
    }

    /// The first rank, for properties that all ranks share.
    pub(super) fn first(&self) -> &RankSchedule<'a> {
        &self.ranks[0]
    }

    /// Number of slots of the world: iterations after which the programs of all ranks repeat.
    pub(super) fn slots(&self) -> usize {
        model::slots(self.ranks.iter().map(|rank| rank.program))
    }

    /// Statistics of samples, by the slots of the world.
    pub(super) fn times(&self, samples: &Samples) -> Times {
        Times::of_slots(&samples.time, self.slots(), samples.first)
    }

    /// True if a single iteration is requested, which tests the file and measures nothing.
    pub(super) fn is_single_iteration(&self) -> bool {
        self.effort.iterations == 1
    }

    /// Number of measured iterations, rounded up to complete rounds so that each slot is measured equally often.
    pub(super) fn whole_rounds(&self) -> u64 {
        let slots = if self.is_single_iteration() { 1 } else { self.slots() as u64 };
        u64::from(self.effort.iterations).next_multiple_of(slots)
    }

    /// Returns the iterations to observe: each slot as often as an iteration should be observed, or less often in a long
    /// cycle.
    pub(super) fn observation(&self, mode: LaunchMode) -> Observation {
        let slots = self.slots() as u64;
        let times = u64::from(self.observed_iterations).min((OBSERVED / slots).max(1));
        let most = if self.is_single_iteration() { u64::from(self.observed_iterations) } else { u64::MAX };
        Observation { mode, slots, times, most }
    }

    /// Opens the sessions of all ranks.
    pub(super) fn open(&self) -> Result<Ranks, ExecError> {
        exec::prepare_ranks(self.ranks, self.backend, &self.exec)
    }

    /// Opens a session with each rank on one stream, which may use all compute units.
    pub(super) fn open_serial(&self) -> Result<Ranks, ExecError> {
        let options = schedule::ScheduleOptions { streams: Some(1), ..schedule::ScheduleOptions::default() };
        let topology = Topology { limits_units: false, ..self.backend.topology() };
        let place = |rank: &RankSchedule| {
            let mut schedule = schedule::place(rank.program, rank.plan, topology, &options);
            schedule.lanes.iter_mut().for_each(|lane| lane.units = None);
            schedule
        };
        let schedules: Vec<Schedule> = self.ranks.iter().map(place).collect();
        let both = self.ranks.iter().zip(&schedules);
        let ranks: Vec<RankSchedule> = both.map(|(rank, schedule)| RankSchedule { schedule, ..*rank }).collect();
        exec::prepare_ranks(&ranks, self.backend, &self.exec)
    }
}

/// Results of a measurement.
#[derive(Debug)]
pub struct Measured {
    pub variants: Vec<Variant>,
    pub warnings: Vec<String>,
    /// Reason why the measurement ended early, such as `interrupted while measuring`; `None` if none did.
    pub interruption: Option<String>,
    /// The error that ended the measurement early; `None` if none did.
    pub failure: Option<ExecError>,
}

impl Measured {
    /// True if nothing was cut short.
    pub fn is_complete(&self) -> bool {
        self.interruption.is_none() && self.failure.is_none()
    }
}
