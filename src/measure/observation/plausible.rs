//! Refuses times that no device can reach, or no link of an emulated world.

use crate::base::Nanos;
use crate::config::Profile;
use crate::cost::{OccupiedLinks, floor};
use crate::exec::RankSchedule;
use crate::measure::request::Request;
use crate::model::Program;
use crate::ops::Spec;

/// Limits of the times of a rank.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceLimits<'a> {
    /// The device's profile; without one, nothing is refused.
    pub profile: Option<&'a Profile>,
    /// Program and number of a rank whose world is emulated; otherwise `None`. The kernels that stand for its operations with other
    /// ranks do not share links, so that concurrent ones may take less time than their bytes.
    pub emulated: Option<(&'a Program, u32)>,
}

impl<'a> DeviceLimits<'a> {
    /// Limits of a rank of a run. A world with ranks that do not run is emulated.
    pub fn of(request: &Request<'a>, rank: &RankSchedule<'a>) -> DeviceLimits<'a> {
        let emulated = rank.program.world as usize > request.ranks.len();
        DeviceLimits { profile: request.profile, emulated: emulated.then_some((rank.program, rank.number)) }
    }

    /// Fails if a time in ns is shorter than these operations need at the device's peaks. The error explains why.
    pub fn check<'s>(&self, time: f64, specs: impl IntoIterator<Item = &'s Spec>) -> Result<(), String> {
        let Some(profile) = self.profile else { return Ok(()) };
        let specs: Vec<&Spec> = specs.into_iter().collect();
        self.check_least(time, floor::floor(specs.iter().copied(), profile), profile)?;
        self.check_links(time, self.links(&specs, profile))
    }

    /// Time in ns for which these operations occupy their busiest link; 0 unless the world is emulated.
    fn links(&self, specs: &[&Spec], profile: &Profile) -> f64 {
        let Some((program, rank)) = self.emulated else { return 0.0 };
        let mut links = OccupiedLinks::default();
        for spec in specs {
            let ranks: Vec<u32> = program.groups[spec.team.group.index()].members_with(rank).collect();
            links.add(spec, &ranks, profile);
        }
        links.busiest()
    }

    fn check_least(&self, time: f64, least: f64, profile: &Profile) -> Result<(), String> {
        // Times are rounded to whole nanoseconds.
        if time + 1.0 >= least {
            return Ok(());
        }
        Err(format!(
            "it is refused: {} is less than the {} that the {} needs at its peak",
            Nanos::rounded(time),
            Nanos::rounded(least),
            profile.name
        ))
    }

    fn check_links(&self, time: f64, least: f64) -> Result<(), String> {
        if time + 1.0 >= least {
            return Ok(());
        }
        Err(format!(
            "it is refused: {} is less than the {} for which the operations occupy a link, and kernels that stand for \
             concurrent operations do not share it: run all ranks by `--ranks`",
            Nanos::rounded(time),
            Nanos::rounded(least)
        ))
    }

    /// Fails if the mean iteration time of a round, in ns, is shorter than its slots need at the device's peaks, or on links
    /// of an emulated world.
    pub fn check_round(&self, program: &Program, time: f64) -> Result<(), String> {
        let Some(profile) = self.profile else { return Ok(()) };
        let (mut floors, mut links) = (0.0, 0.0);
        for step in &program.cycle {
            let specs: Vec<&Spec> = step.ops.iter().filter_map(|op| program.op_spec(op)).collect();
            floors += floor::floor(specs.iter().copied(), profile);
            links += self.links(&specs, profile);
        }
        let slots = program.cycle.len().max(1) as f64;
        self.check_least(time, floors / slots, profile)?;
        self.check_links(time, links / slots)
    }
}
