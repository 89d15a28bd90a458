//! Which backend a run uses.

use std::path::PathBuf;
use std::sync::Arc;

use clap::ValueEnum;

use crate::backend::cuda::{self, Cuda};
use crate::backend::gpu::Gpu;
use crate::backend::hip::{self, Hip};
use crate::backend::host::Host;
use crate::backend::ranges::Ranges;
use crate::backend::sim::Sim;
use crate::config::{Figure, Links, Profile, Settings};
use crate::exec::{Backend, DeviceInfo, ExecError, Peers};

use super::error::{CliError, InputError};
use super::{environment, load, output, own};

/// What a process runs that a launcher has started: one rank of the world.
#[derive(Clone)]
pub struct OneOf {
    /// Its number on this host.
    pub local_rank: u32,
    /// The processes of the other ranks.
    pub peers: Arc<dyn Peers>,
}

/// What `--backend` may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BackendArg {
    /// CUDA or HIP where its driver is there, else the simulator
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

/// GPUs that a file with collectives takes when nobody says how many: all that there are, or the one that was named.
/// Nothing where there are none to count.
pub fn gpus(wanted: BackendArg, device: Option<u32>) -> Option<u32> {
    match (wanted, device) {
        (_, Some(_)) => Some(1),
        (BackendArg::Cuda, None) => cuda_devices(),
        (BackendArg::Hip, None) => hip_devices(),
        (BackendArg::Auto, None) => cuda_devices().or_else(hip_devices),
        (BackendArg::Host | BackendArg::Sim, None) => None,
    }
}

fn cuda_devices() -> Option<u32> {
    match cuda::find(&environment::library_paths()) {
        cuda::Found::Devices(count) => Some(count),
        _ => None,
    }
}

fn hip_devices() -> Option<u32> {
    match hip::find(&environment::rocm_paths()) {
        hip::Found::Devices(count) => Some(count),
        _ => None,
    }
}

/// Opens the backend that was asked for, with as many devices as there are ranks, or with the one of this process's rank.
/// The CPU and the simulator know nothing of processes: one of them runs all ranks.
pub fn choose(
    wanted: BackendArg,
    settings: &Settings,
    device: Option<u32>,
    ranks: u32,
    ranges: Option<Ranges>,
    one_of: Option<&OneOf>,
) -> Result<Chosen, CliError> {
    match (wanted, device) {
        (BackendArg::Sim, Some(device)) => return Err(InputError::NoDevices { device, backend: "simulator" }.into()),
        (BackendArg::Host, Some(device)) => return Err(InputError::NoDevices { device, backend: "CPU" }.into()),
        _ => {}
    }
    match wanted {
        BackendArg::Sim => Ok(Chosen { backend: Box::new(Sim::new(profile(settings)?)), why: None }),
        BackendArg::Host => Ok(Chosen { backend: Box::new(Host), why: None }),
        BackendArg::Cuda => open_cuda(device, ranks, ranges, one_of),
        BackendArg::Hip => open_hip(device, ranks, ranges, one_of),
        BackendArg::Auto => match cuda::find(&environment::library_paths()) {
            // A driver that is there and does not work is not passed over in silence.
            cuda::Found::Broken(error) => Err(failed(error)),
            cuda::Found::Devices(_) => open_cuda(device, ranks, ranges, one_of),
            cuda::Found::Nothing(no_cuda) => match hip::find(&environment::rocm_paths()) {
                hip::Found::Broken(error) => Err(failed(error)),
                hip::Found::Devices(_) => open_hip(device, ranks, ranges, one_of),
                hip::Found::Absent(_) => simulate(settings, no_cuda),
                hip::Found::Nothing(no_hip) => simulate(settings, &format!("{no_cuda}; {no_hip}")),
            },
        },
    }
}

/// The simulator, since there is no GPU.
fn simulate(settings: &Settings, reason: &str) -> Result<Chosen, CliError> {
    let profile = profile(settings)?;
    let why = format!("No GPU found ({reason}): simulating an {}; every figure is simulated.", profile.name);
    Ok(Chosen { backend: Box::new(Sim::new(profile)), why: Some(why) })
}

/// The devices from the one that was named on, one for each rank; that of this process's rank where others run the rest.
fn open_cuda(
    device: Option<u32>,
    ranks: u32,
    ranges: Option<Ranges>,
    one_of: Option<&OneOf>,
) -> Result<Chosen, CliError> {
    let (first, ranks) = places("CUDA", cuda_devices(), device, ranks, one_of)?;
    let queues = environment::queues("nvidia").map(|(_, count)| count);
    let open = |index| Cuda::open(environment::library_paths(), index, queues);
    let devices: Result<Vec<Cuda>, ExecError> = (first..first.saturating_add(ranks)).map(open).collect();
    let backend = Gpu::new(devices.map_err(failed)?, kernel_cache()).with_ranges(ranges);
    let backend = backend.with_peers(one_of.map(|one_of| one_of.peers.clone()));
    Ok(Chosen { backend: Box::new(backend), why: None })
}

/// The same of AMD's.
fn open_hip(
    device: Option<u32>,
    ranks: u32,
    ranges: Option<Ranges>,
    one_of: Option<&OneOf>,
) -> Result<Chosen, CliError> {
    let (first, ranks) = places("HIP", hip_devices(), device, ranks, one_of)?;
    let queues = environment::queues("amd").map(|(_, count)| count);
    let open = |index| Hip::open(environment::rocm_paths(), index, queues);
    let devices: Result<Vec<Hip>, ExecError> = (first..first.saturating_add(ranks)).map(open).collect();
    let backend = Gpu::new(devices.map_err(failed)?, kernel_cache()).with_ranges(ranges);
    let backend = backend.with_peers(one_of.map(|one_of| one_of.peers.clone()));
    Ok(Chosen { backend: Box::new(backend), why: None })
}

/// The first GPU of this process, and how many it takes: one for each rank from the one that was named on, or, where
/// others run the rest, that of its own rank.
fn places(
    backend: &'static str,
    visible: Option<u32>,
    device: Option<u32>,
    ranks: u32,
    one_of: Option<&OneOf>,
) -> Result<(u32, u32), CliError> {
    Ok(match (device, one_of) {
        (Some(device), Some(_)) => (device, 1),
        (None, Some(one_of)) => (local_device(backend, visible, one_of.local_rank)?, 1),
        (device, None) => (device.unwrap_or(0), ranks),
    })
}

/// The GPU of a process: that of its number on the host. Where it sees one alone, the launcher has chosen it.
fn local_device(backend: &'static str, visible: Option<u32>, local_rank: u32) -> Result<u32, CliError> {
    match visible {
        Some(1) => Ok(0),
        Some(count) if local_rank >= count => Err(failed(ExecError::NoDevice {
            backend,
            why: format!("this is process {local_rank} of its host, counted from 0, and {count} GPUs are visible"),
            help: Some("start as many processes on a host as it has GPUs".to_owned()),
        })),
        _ => Ok(local_rank),
    }
}

/// The folder of compiled kernels. `None` where there is no home, and, with a note, where the folder is not the user's alone:
/// what lies there is loaded as code.
pub fn kernel_cache() -> Option<PathBuf> {
    let folder = environment::cache_folder()?;
    match own::private_folder(&folder) {
        Ok(()) => Some(folder),
        Err(why) => {
            output::eprint(&format!("Compiled kernels are not kept: {} cannot be used: {why}.\n", folder.display()));
            None
        }
    }
}

fn failed(error: ExecError) -> CliError {
    CliError::Exec { error, sources: std::sync::Arc::new(crate::base::SourceMap::new()) }
}

/// The profile that the simulator takes for its device, with its topology: embedded ones, or files. The variables that set a real
/// device's hardware queues set the simulated one's too.
pub fn profile(settings: &Settings) -> Result<Profile, CliError> {
    let name = &settings.profile;
    let mut profile = if name.ends_with(".ron") {
        let text = load::read(std::path::Path::new(name), load::FileKind::Profile)?;
        Profile::parse(name, &text)?
    } else {
        Profile::named(name)?
    };
    if let Some(name) = &settings.topology {
        profile.topology = if name.ends_with(".ron") {
            Links::parse(name, &load::read(std::path::Path::new(name), load::FileKind::Topology)?)?
        } else {
            Links::named(name)?
        };
    }
    if let Some((variable, count)) = environment::queues(&profile.vendor) {
        profile.queues.count = Figure(f64::from(count), variable.to_owned());
    }
    Ok(profile)
}

/// What is known of a device's limits: the simulator's own profile, or the embedded one of a device of that very name, or
/// of one of its partitions.
pub fn known(device: &DeviceInfo, settings: &Settings) -> Result<Option<Profile>, CliError> {
    if device.simulated {
        return profile(settings).map(Some);
    }
    let found =
        Profile::names().filter_map(|name| Profile::named(name).ok()).find(|profile| profile.name == device.name);
    // A partition has the name of the whole.
    Ok(found.map(|profile| match device.units {
        Some(units) => profile.with_units(units),
        None => profile,
    }))
}
