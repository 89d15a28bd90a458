//! The simulator: a deterministic model of a GPU, from a profile.
//!
//! Host calls take the profile's time and reach the device after its latency; the work then runs on the simulated
//! machine. Nothing is computed, and there is no memory. All results are marked as simulated.

mod digest;
mod driver;
mod exchange;
mod flows;
mod machine;
mod numbers;
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
    /// True to simulate every iteration, even those that equal earlier ones.
    each: bool,
}

impl Sim {
    /// Creates a simulator with devices of one kind, connected as their profile says.
    pub fn new(profile: Profile) -> Self {
        Sim { profile, each: false }
    }

    /// Simulates every iteration instead of reusing equal ones: slower, with the same results. Used by tests.
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
