//! Times that no device can reach are refused: a figure from them would be worse than none.

use crate::base::Nanos;
use crate::config::Profile;
use crate::cost::floor;
use crate::model::{Program, Step};
use crate::ops::Spec;

/// What is known of the device's limits; nothing of a device that no profile describes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits<'a>(pub Option<&'a Profile>);

impl Limits<'_> {
    /// Refuses a time, in ns, that is less than these operations can take; the error says why.
    pub fn check<'s>(&self, time: f64, specs: impl IntoIterator<Item = &'s Spec>) -> Result<(), String> {
        let Some(profile) = self.0 else { return Ok(()) };
        self.check_least(time, floor::floor(specs, profile), profile)
    }

    fn check_least(&self, time: f64, least: f64, profile: &Profile) -> Result<(), String> {
        // Times are whole nanoseconds.
        if time + 1.0 >= least {
            return Ok(());
        }
        Err(format!(
            "it is refused: {} is less than the {} that the {} needs at its peak",
            Nanos(time.round() as i64),
            Nanos(least.round() as i64),
            profile.name
        ))
    }

    /// Refuses the mean time of an iteration over a round, in ns, that is less than all slots together can take.
    pub fn check_round(&self, program: &Program, time: f64) -> Result<(), String> {
        let Some(profile) = self.0 else { return Ok(()) };
        let floor = |step: &Step| floor::floor(step.ops.iter().filter_map(|op| program.op_spec(op)), profile);
        let floors: f64 = program.cycle.iter().map(floor).sum();
        self.check_least(time, floors / program.cycle.len().max(1) as f64, profile)
    }
}
