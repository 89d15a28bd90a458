//! What a device has, and what it can do at most: the figures of a file that are of the machine.

use crate::base::Nanos;
use crate::config::Profile;
use crate::cost::Ideal;
use crate::exec::DeviceInfo;
use crate::model::Program;

use super::evidence::totals;

/// What is known of a device; absent where nobody says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Device<'a> {
    pub units: Option<u32>,
    pub memory: Option<u64>,
    /// What describes its peaks.
    pub profile: Option<&'a Profile>,
}

impl<'a> Device<'a> {
    pub fn new(info: &DeviceInfo, profile: Option<&'a Profile>) -> Device<'a> {
        Device { units: info.units, memory: info.memory_bytes, profile }
    }

    fn profile(&self) -> Result<&'a Profile, String> {
        self.profile.ok_or_else(|| "no profile describes this device".to_owned())
    }

    /// Compute units.
    pub fn units(&self) -> Result<f64, String> {
        self.units.map(f64::from).ok_or_else(|| "the device does not say how many units it has".to_owned())
    }

    /// Bytes of its own memory.
    pub fn memory(&self) -> Result<f64, String> {
        self.memory.map(|bytes| bytes as f64).ok_or_else(|| "the device has no memory of its own".to_owned())
    }

    /// The peak of its memory, in bytes for each nanosecond.
    pub fn bandwidth(&self) -> Result<f64, String> {
        Ok(self.profile()?.bandwidth.value() * Nanos(1).seconds())
    }

    /// The rate at which it would do the program's arithmetic, each type at its own peak, in operations for each
    /// nanosecond.
    pub fn flops(&self, program: &Program) -> Result<f64, String> {
        let time = arithmetic(program, self.profile()?);
        let flops = totals(program).0;
        if time > 0.0 { Ok(flops / time) } else { Err("the file has no arithmetic whose peak to tell".to_owned()) }
    }
}

/// How long an iteration's arithmetic takes at its peaks, in ns: the mean over the cycle.
fn arithmetic(program: &Program, profile: &Profile) -> f64 {
    let specs = program.cycle.iter().flat_map(|step| &step.ops).filter_map(|op| program.op_spec(op));
    let sum: f64 = specs.map(|spec| Ideal::of(spec, &[], 0.0, profile).arithmetic).sum();
    sum / program.cycle.len().max(1) as f64
}
