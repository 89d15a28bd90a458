//! Which backend a run uses.

use clap::ValueEnum;

use crate::backend::cuda::{self, Cuda};
use crate::backend::gpu::Gpu;
use crate::backend::host::Host;
use crate::backend::ranges::Ranges;
use crate::backend::sim::Sim;
use crate::config::{Figure, Profile, Settings};
use crate::exec::{Backend, ExecError};

use super::error::{CliError, InputError};
use super::{environment, load};

/// What `--backend` may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BackendArg {
    /// CUDA where its driver is there, else the simulator
    Auto,
    /// An NVIDIA GPU
    Cuda,
    /// An AMD GPU
    Hip,
    /// The CPU: the reference result of every operation
    Host,
    /// A simulated GPU
    Sim,
}

/// A backend, and the line that says why it is not another.
pub struct Chosen {
    pub backend: Box<dyn Backend>,
    pub why: Option<String>,
}

/// Opens the backend that was asked for.
pub fn choose(
    wanted: BackendArg,
    settings: &Settings,
    device: Option<u32>,
    ranges: Option<Ranges>,
) -> Result<Chosen, CliError> {
    match (wanted, device) {
        (BackendArg::Sim, Some(device)) => return Err(InputError::NoDevices { device, backend: "simulator" }.into()),
        (BackendArg::Host, Some(device)) => return Err(InputError::NoDevices { device, backend: "CPU" }.into()),
        _ => {}
    }
    match wanted {
        BackendArg::Sim => Ok(Chosen { backend: Box::new(Sim::new(profile(settings)?)), why: None }),
        BackendArg::Host => Ok(Chosen { backend: Box::new(Host), why: None }),
        BackendArg::Cuda => open_cuda(device, ranges),
        BackendArg::Hip => Err(failed(ExecError::NoDevice {
            backend: "HIP",
            why: "this version runs on CUDA only; AMD GPUs come with a later one".to_owned(),
            help: Some("`--backend sim --config profile=mi300x` simulates one".to_owned()),
        })),
        BackendArg::Auto => match cuda::find(&environment::library_paths()) {
            cuda::Found::Nothing(reason) => {
                let profile = profile(settings)?;
                let why =
                    format!("No GPU found ({reason}): simulating an {}; every figure is simulated.", profile.name);
                Ok(Chosen { backend: Box::new(Sim::new(profile)), why: Some(why) })
            }
            // A driver that is there and does not work is not passed over in silence.
            cuda::Found::Broken(error) => Err(failed(error)),
            cuda::Found::Devices(_) => open_cuda(device, ranges),
        },
    }
}

fn open_cuda(device: Option<u32>, ranges: Option<Ranges>) -> Result<Chosen, CliError> {
    let paths = environment::library_paths();
    let cuda = Cuda::open(paths, device.unwrap_or(0), environment::queues("nvidia").map(|(_, count)| count))
        .map_err(failed)?;
    Ok(Chosen { backend: Box::new(Gpu::new(cuda, environment::cache_folder()).with_ranges(ranges)), why: None })
}

fn failed(error: ExecError) -> CliError {
    CliError::Exec { error, sources: std::sync::Arc::new(crate::base::SourceMap::new()) }
}

/// The profile that the simulator takes for its device: an embedded one, or a file. The variables that set a real
/// device's hardware queues set the simulated one's too.
pub fn profile(settings: &Settings) -> Result<Profile, CliError> {
    let name = &settings.profile;
    let mut profile = if name.ends_with(".ron") {
        let text = load::read(std::path::Path::new(name), load::Kind::Profile)?;
        Profile::parse(name, &text)?
    } else {
        Profile::named(name)?
    };
    if let Some((variable, count)) = environment::queues(&profile.vendor) {
        profile.queues.count = Figure(f64::from(count), variable.to_owned());
    }
    Ok(profile)
}
