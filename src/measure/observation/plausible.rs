//! Refuses times that no device can reach.

use crate::base::Nanos;
use crate::config::Profile;
use crate::cost::floor;
use crate::model::{Program, Step};
use crate::ops::Spec;

/// Limits of a device; `None` without a profile.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceLimits<'a>(pub Option<&'a Profile>);

impl DeviceLimits<'_> {
    /// Fails if a time in ns is shorter than these operations need at the device's peaks. The error explains why.
    pub fn check<'s>(&self, time: f64, specs: impl IntoIterator<Item = &'s Spec>) -> Result<(), String> {
        let Some(profile) = self.0 else { return Ok(()) };
        self.check_least(time, floor::floor(specs, profile), profile)
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

    /// Fails if the mean iteration time of a round, in ns, is shorter than its slots need at the device's peaks.
    pub fn check_round(&self, program: &Program, time: f64) -> Result<(), String> {
        let Some(profile) = self.0 else { return Ok(()) };
        let floor = |step: &Step| floor::floor(step.ops.iter().filter_map(|op| program.op_spec(op)), profile);
        let floors: f64 = program.cycle.iter().map(floor).sum();
        self.check_least(time, floors / program.cycle.len().max(1) as f64, profile)
    }
}
