//! Times that no device can reach are refused: a figure from them would be worse than none.

use crate::base::Nanos;
use crate::config::Profile;
use crate::cost::floor;
use crate::model::Program;
use crate::ops::Spec;

use super::stats::Summary;

/// What is known of the device's limits; nothing of a device that no profile describes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits<'a>(pub Option<&'a Profile>);

impl Limits<'_> {
    /// Refuses a time, in ns, that is less than these operations can take; the error says why.
    pub fn check<'s>(&self, time: f64, specs: impl IntoIterator<Item = &'s Spec>) -> Result<(), String> {
        let Some(profile) = self.0 else { return Ok(()) };
        let least = floor::floor(specs, profile);
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

    /// Refuses the times of iterations whose median no iteration of the cycle can have.
    pub fn check_iteration(&self, program: &Program, times: &[Nanos]) -> Result<(), String> {
        let Some(profile) = self.0 else { return Ok(()) };
        let samples: Vec<f64> = times.iter().map(|time| time.0 as f64).collect();
        let Some(summary) = Summary::of(&samples) else { return Ok(()) };
        let specs = |step: usize| {
            let step = &program.cycle[step];
            step.ops.iter().filter_map(|op| program.op_spec(op))
        };
        let shortest = (0..program.cycle.len())
            .min_by(|&a, &b| floor::floor(specs(a), profile).total_cmp(&floor::floor(specs(b), profile)));
        shortest.map_or(Ok(()), |step| self.check(summary.p50, specs(step)))
    }
}
