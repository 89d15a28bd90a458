//! Which backend a run uses.

use clap::ValueEnum;

use crate::backend::host::Host;
use crate::backend::sim::Sim;
use crate::config::{Profile, Settings};
use crate::exec::{Backend, ExecError};

use super::error::CliError;
use super::load;

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
pub fn choose(wanted: BackendArg, settings: &Settings, device: Option<u32>) -> Result<Chosen, CliError> {
    let _ = device;
    match wanted {
        BackendArg::Sim => Ok(Chosen { backend: Box::new(Sim::new(profile(settings)?)), why: None }),
        BackendArg::Host => Ok(Chosen { backend: Box::new(Host), why: None }),
        BackendArg::Auto => {
            let profile = profile(settings)?;
            let why = format!("No GPU found: simulating an {}; every figure below is simulated.", profile.name);
            Ok(Chosen { backend: Box::new(Sim::new(profile)), why: Some(why) })
        }
        _ => Err(no_device(ExecError::NoDevice {
            backend: "HIP",
            why: "this version runs on CUDA only; AMD GPUs come with a later one".to_owned(),
            help: Some("`--backend sim --config profile=mi300x` simulates one".to_owned()),
        })),
    }
}

fn no_device(error: ExecError) -> CliError {
    CliError::Exec { error, sources: std::sync::Arc::new(crate::base::SourceMap::new()) }
}

/// The profile that the simulator takes for its device: an embedded one, or a file.
pub fn profile(settings: &Settings) -> Result<Profile, CliError> {
    let name = &settings.profile;
    if name.ends_with(".ron") {
        let text = load::read_limited(std::path::Path::new(name), 1 << 20)?;
        return Ok(Profile::parse(name, &text)?);
    }
    Ok(Profile::named(name)?)
}
