//! A simulated device: a deterministic stand-in for a GPU, from a profile.
//!
//! The host's calls cost what the profile says and are visible to the device after its latency; what they launch runs
//! on the machine. Nothing is computed: there is no memory. Every figure from here is simulated.

mod digest;
mod driver;
mod exchange;
mod flows;
mod machine;
mod parts;
mod slots;
mod world;

use crate::config::Profile;
use crate::exec::{Backend, DeviceInfo, Driver, ExecError, Image, check_peers};
use crate::schedule::Topology;

/// The simulator as a backend.
#[derive(Debug)]
pub struct Sim {
    profile: Profile,
    /// Every iteration is simulated, also those that are equal to earlier ones.
    each: bool,
}

impl Sim {
    /// Devices of one kind, connected as their profile says.
    pub fn new(profile: Profile) -> Self {
        Sim { profile, each: false }
    }

    /// The same without taking iterations from earlier ones that were equal: slower, and with the same figures, which tests
    /// hold it to.
    pub fn each_iteration(self) -> Self {
        Sim { each: true, ..self }
    }
}

impl Backend for Sim {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn device(&self) -> DeviceInfo {
        DeviceInfo {
            name: format!("{} (simulated)", self.profile.name),
            simulated: true,
            index: None,
            units: Some(self.profile.units.value() as u32),
            memory_bytes: Some(self.profile.memory.value() as u64),
            host_memory_bytes: None,
            facts: vec![("architecture".to_owned(), self.profile.architecture.clone())],
        }
    }

    fn topology(&self) -> Topology {
        Topology::of(&self.profile)
    }

    fn open(&self, images: Vec<Image>) -> Result<Vec<Box<dyn Driver>>, ExecError> {
        check_peers(&images)?;
        Ok(driver::open(&self.profile, &images, self.each))
    }
}
