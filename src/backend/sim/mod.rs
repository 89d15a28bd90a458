//! The simulator: a deterministic model of a GPU, from a profile.
//!
//! A host call takes the time that the profile states, and reaches the device after a latency. The work then runs on
//! the simulated machine. Nothing is computed, and there is no memory. Results are marked as simulated.

mod costs;
mod digest;
mod driver;
mod exchange;
mod flows;
mod graphs;
mod kernels;
mod machine;
mod numbers;
mod parts;
mod slots;
mod world;

use crate::base::Space;
use crate::config::{Links, Profile};
use crate::exec::{Backend, DeviceInfo, Driver, ExecError, Image, LoweredSpec, check_peers};
use crate::model::Units;
use crate::ops::{Launch, Peer};
use crate::schedule::{self, Lane, Topology};

pub use kernels::Compile;

/// The simulator as a backend.
pub struct Sim {
    profile: Profile,
    /// Compiles the kernels that a file declares, to learn their resources; `None` if they are not compiled.
    compile: Option<Compile>,
    /// True if every iteration is simulated, even one that equals an earlier one.
    each: bool,
}

impl Sim {
    /// Creates a simulator with devices of one kind, connected as their profile says.
    pub fn new(profile: Profile) -> Self {
        Sim { profile, compile: None, each: false }
    }

    /// Sets the compiler for kernels that a file declares. They are simulated with the registers and shared memory that
    /// their compiled code takes.
    pub fn compiling(self, compile: Option<Compile>) -> Self {
        Sim { compile, ..self }
    }

    /// Simulates every iteration instead of reusing equal ones: slower, with the same results. For tests.
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

    fn open(&self, mut images: Vec<Image>) -> Result<Vec<Box<dyn Driver>>, ExecError> {
        check_peers(&images)?;
        let mut notes = kernels::resources(&mut images, self.compile.as_ref(), &self.profile)?;
        if images.iter().any(|image| image.bytes[Space::Managed.index()] > 0) {
            notes.push("the time in which pages of `managed` memory move is not modelled".to_owned());
        }
        notes.extend(other_units(&images[0], &self.profile));
        notes.extend(of_links(&images, &self.profile.topology, &self.profile.name));
        let lacks = |work: &LoweredSpec| schedule::lacks_format(&work.spec, &self.profile);
        if images.iter().flat_map(|image| &image.works).any(lacks) {
            notes.push(format!(
                "products of `e4m3` and `e5m2` are simulated at the rate of AMD's `fnuz` formats, the only 8-bit floats that \
                 {} multiplies: `--backend hip` has no product of them there",
                self.profile.architecture
            ));
        }
        Ok(driver::open(&self.profile, &images, &notes, self.each))
    }
}

/// Notes on the links of several ranks: those of another device, and copies that a run on GPUs refuses.
fn of_links(images: &[Image], links: &Links, device: &str) -> Vec<String> {
    let other = links.device.as_ref().filter(|own| images.len() > 1 && !device.contains(own.as_str()));
    let other = other.map(|_| {
        format!(
            "the links between ranks are those of {}, since {device} has no topology of its own: \
             `--config topology=PATH.ron` takes yours",
            links.name
        )
    });
    let mut launches = images.iter().flat_map(|image| &image.works).flat_map(|work| work.launches.iter());
    let between_nodes = launches.find_map(|launch| match launch {
        Launch::Peer(Peer { rank, sends: Some(sent), .. }) if links.node(*rank) != links.node(sent.to) => {
            Some((rank, sent.to))
        }
        _ => None,
    });
    let refused = between_nodes.map(|(from, to)| {
        format!(
            "rank {from} copies to rank {to} of another node, which a run on GPUs refuses: `send` and `recv`, or a \
             collective, reach other nodes"
        )
    });
    other.into_iter().chain(refused).collect()
}

/// Notes on the streams of a rank that get another number of compute units than they request.
fn other_units(image: &Image, profile: &Profile) -> Vec<String> {
    let (all, chips) = (profile.units.value(), profile.chips.value() as u32);
    let of_chips = if chips > 1 { format!(", as many of each of {chips} chips") } else { String::new() };
    let note = |lane: &Lane| {
        let (name, units) = (&lane.name, lane.units?);
        let asked = units.text();
        match (lane.unit_limit(profile), units) {
            (None, _) => Some(format!(
                "stream {name} requests {asked} but may use all of them, as with `--backend cuda`, which cannot restrict streams"
            )),
            (Some(given), Units::Count(count)) if count != given => {
                Some(format!("stream {name}, which requests {asked}, is restricted to {given} of {all}{of_chips}"))
            }
            _ => None,
        }
    };
    image.lanes.iter().filter_map(note).collect()
}
