//! Metrics that describe the device: units, memory and peaks.

use crate::base::Nanos;
use crate::config::Profile;
use crate::cost::Ideal;
use crate::exec::DeviceInfo;
use crate::model::Program;

use super::work::totals;

/// Properties of a device. A field is `None` if it is unknown.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceProperties<'a> {
    pub units: Option<u32>,
    pub memory: Option<u64>,
    /// The profile with the device's peaks; `None` if it is not known.
    pub profile: Option<&'a Profile>,
}

impl<'a> DeviceProperties<'a> {
    /// Combines the backend's report on the device with a profile.
    pub fn new(info: &DeviceInfo, profile: Option<&'a Profile>) -> DeviceProperties<'a> {
        DeviceProperties { units: info.units, memory: info.memory_bytes, profile }
    }

    fn profile(&self) -> Result<&'a Profile, String> {
        self.profile.ok_or_else(|| "no profile describes this device".to_owned())
    }

    /// Number of compute units.
    pub fn units(&self) -> Result<f64, String> {
        self.units.map(f64::from).ok_or_else(|| "the device does not say how many units it has".to_owned())
    }

    /// Bytes of the device's own memory.
    pub fn memory(&self) -> Result<f64, String> {
        self.memory.map(|bytes| bytes as f64).ok_or_else(|| "the device has no memory of its own".to_owned())
    }

    /// Peak memory bandwidth in bytes per ns.
    pub fn bandwidth(&self) -> Result<f64, String> {
        Ok(self.profile()?.bandwidth.value() * Nanos(1).seconds())
    }

    /// Peak rate for the program's mix of arithmetic types, in operations per ns.
    pub fn flops(&self, program: &Program) -> Result<f64, String> {
        let time = arithmetic(program, self.profile()?);
        let flops = totals(program).0;
        if time > 0.0 { Ok(flops / time) } else { Err("the file has no arithmetic whose peak to tell".to_owned()) }
    }
}

/// Ideal time of an iteration's arithmetic in ns, averaged over the cycle.
fn arithmetic(program: &Program, profile: &Profile) -> f64 {
    let specs = program.cycle.iter().flat_map(|step| &step.ops).filter_map(|op| program.op_spec(op));
    let sum: f64 = specs.map(|spec| Ideal::of(spec, &[], 0.0, profile).arithmetic).sum();
    sum / program.cycle.len().max(1) as f64
}
