//! Chooses and opens the backend of a run.

use std::path::PathBuf;
use std::sync::Arc;

use crate::backend::cuda::{self, Cuda};
use crate::backend::gpu::{Api, Gpu, NoDriver};
use crate::backend::hip::{self, Hip};
use crate::backend::host::Host;
use crate::backend::ranges::Ranges;
use crate::backend::sim::{Compile, Sim};
use crate::config::{BackendSetting, Links, Profile, Settings, SourcedFigure};
use crate::exec::{Backend, DeviceInfo, ExecError, RankProcesses};
use crate::ops::KernelSource;

use super::environment;
use super::error::{CliError, InputError};
use super::inputs::load;
use super::io::{output, ownership};

/// The rank that this process runs, if a launcher has started one process per rank.
#[derive(Clone)]
pub struct LaunchedRank {
    /// Number of this process on its host.
    pub local_rank: u32,
    /// The processes of the other ranks.
    pub processes: Arc<dyn RankProcesses>,
}

/// An opened backend, and a note on why another was not chosen.
pub struct OpenedBackend {
    pub backend: Box<dyn Backend>,
    pub why: Option<String>,
}

/// Attaches the vendor's library that records single operations, if it must be attached before the driver's first call.
/// The run reports whether this succeeded.
pub fn attach_recorder(wanted: BackendSetting) {
    if matches!(wanted, BackendSetting::Hip | BackendSetting::Auto) {
        hip::attach_recorder(&environment::rocm_paths());
    }
}

/// Number of ranks that a file with collectives or copies to other ranks gets by default: one for each GPU, or one if a
/// device is named. `None` if there are no GPUs to count.
pub fn gpus(wanted: BackendSetting, device: Option<u32>) -> Option<u32> {
    match (wanted, device) {
        (_, Some(_)) => Some(1),
        (BackendSetting::Cuda, None) => cuda_devices(),
        (BackendSetting::Hip, None) => hip_devices(),
        (BackendSetting::Auto, None) => cuda_devices().or_else(hip_devices),
        (BackendSetting::Host | BackendSetting::Sim, None) => None,
    }
}

/// True if a run takes the simulator: it is requested, or there is no driver of a GPU.
pub fn simulates(wanted: BackendSetting) -> bool {
    wanted == BackendSetting::Sim || (wanted == BackendSetting::Auto && gpus(wanted, None).is_none())
}

fn cuda_devices() -> Option<u32> {
    cuda::find(&environment::library_paths()).ok()
}

fn hip_devices() -> Option<u32> {
    hip::find(&environment::rocm_paths()).ok()
}

/// The GPUs that a run requests.
pub struct GpuRequest<'a> {
    /// Index of the first GPU; `None` if the user names none.
    pub device: Option<u32>,
    pub ranks: u32,
    pub ranges: Option<Ranges>,
    /// The rank of this process; `None` if this process runs all ranks.
    pub launched_rank: Option<&'a LaunchedRank>,
}

/// Opens the requested backend with a device for each rank, or for this process's rank. The CPU and the simulator do
/// not support several processes: one process runs all ranks.
pub fn choose(wanted: BackendSetting, settings: &Settings, request: GpuRequest) -> Result<OpenedBackend, CliError> {
    let without_devices = match wanted {
        BackendSetting::Sim => Some("simulator"),
        BackendSetting::Host => Some("CPU"),
        _ => None,
    };
    if let Some((device, backend)) = request.device.zip(without_devices) {
        return Err(InputError::NoDevices { device, backend }.into());
    }
    match wanted {
        BackendSetting::Sim => Ok(OpenedBackend { backend: Box::new(simulator(settings)?), why: None }),
        BackendSetting::Host => Ok(OpenedBackend { backend: Box::new(Host), why: None }),
        BackendSetting::Cuda => request.cuda(),
        BackendSetting::Hip => request.hip(),
        BackendSetting::Auto => match cuda::find(&environment::library_paths()) {
            Ok(_) => request.cuda(),
            // An installed driver that does not work is an error and not a reason to simulate.
            Err(NoDriver::Fails(error)) => Err(error.into()),
            Err(no_cuda) => match hip::find(&environment::rocm_paths()) {
                Ok(_) => request.hip(),
                Err(NoDriver::Fails(error)) => Err(error.into()),
                Err(NoDriver::Absent(_)) => simulate(settings, &no_cuda.to_string()),
                Err(NoDriver::NoDevice(no_hip)) => simulate(settings, &format!("{no_cuda}; {no_hip}")),
            },
        },
    }
}

/// Chooses the simulator because no GPU was found.
fn simulate(settings: &Settings, reason: &str) -> Result<OpenedBackend, CliError> {
    let name = profile(settings)?.name;
    let why = format!("No GPU found ({reason}): simulating an {name}; every figure is simulated.");
    Ok(OpenedBackend { backend: Box::new(simulator(settings)?), why: Some(why) })
}

/// The simulator of the profile. With the permission to use the kernels of a file, it compiles them for the profile's device.
fn simulator(settings: &Settings) -> Result<Sim, CliError> {
    let profile = profile(settings)?;
    // A real driver decides itself what to do with such a value.
    environment::queues_in(&profile.vendor, environment::variable)
        .map_err(|(name, value)| InputError::Queues { name, value })?;
    let architecture = profile.architecture.clone();
    let compile = move |source: &KernelSource| match architecture.starts_with("gfx") {
        true => hip::compile(&environment::rocm_paths(), source, &architecture),
        false => cuda::compile(&environment::library_paths(), source, &architecture),
    };
    let compile = settings.allow_kernels.then(|| Arc::new(compile) as Compile);
    Ok(Sim::new(profile).compiling(compile))
}

impl GpuRequest<'_> {
    fn cuda(self) -> Result<OpenedBackend, CliError> {
        let queues = environment::queues("nvidia").map(|(_, count)| count);
        self.open("CUDA", cuda_devices(), |index| Cuda::open(environment::library_paths(), index, queues))
    }

    fn hip(self) -> Result<OpenedBackend, CliError> {
        let queues = environment::queues("amd").map(|(_, count)| count);
        self.open("HIP", hip_devices(), |index| Hip::open(environment::rocm_paths(), index, queues))
    }

    /// Opens one GPU for each rank as one backend, or one GPU if other processes run the other ranks. `visible` is the number
    /// of GPUs that this process sees.
    fn open<A: Api>(
        self,
        backend: &'static str,
        visible: Option<u32>,
        open: impl Fn(u32) -> Result<A, ExecError>,
    ) -> Result<OpenedBackend, CliError> {
        let (first, count) = match (self.device, self.launched_rank) {
            (Some(device), Some(_)) => (device, 1),
            (None, Some(launched_rank)) => (local_device(backend, visible, launched_rank.local_rank)?, 1),
            (device, None) => (device.unwrap_or(0), self.ranks),
        };
        let devices: Result<Vec<A>, ExecError> = (first..first.saturating_add(count)).map(open).collect();
        let backend = Gpu::new(devices?, kernel_cache()).with_ranges(self.ranges);
        let backend = backend.with_processes(self.launched_rank.map(|launched_rank| launched_rank.processes.clone()));
        Ok(OpenedBackend { backend: Box::new(backend), why: None })
    }
}

/// The index of the GPU of a process: its number on the host. If the process sees only one GPU, the launcher has
/// selected it.
fn local_device(backend: &'static str, visible: Option<u32>, local_rank: u32) -> Result<u32, CliError> {
    match visible {
        Some(1) => Ok(0),
        Some(count) if local_rank >= count => Err(CliError::from(ExecError::NoDevice {
            backend,
            why: format!("this is process {local_rank} of its host, counted from 0, and {count} GPUs are visible"),
            help: Some("start as many processes on a host as it has GPUs".to_owned()),
        })),
        _ => Ok(local_rank),
    }
}

/// The folder of compiled kernels. `None` without a home folder, and, with a note, if other users can write to the
/// folder, because its files are loaded as code.
pub fn kernel_cache() -> Option<PathBuf> {
    let folder = environment::cache_folder()?;
    match ownership::private_folder(&folder) {
        Ok(()) => Some(folder),
        Err(why) => {
            output::eprint(&format!("Compiled kernels are not kept: {} cannot be used: {why}.\n", folder.display()));
            None
        }
    }
}

/// The device profile of the simulator, from an embedded or a user's file, with its topology. Environment variables
/// that set the number of hardware queues of a real device apply here too.
pub fn profile(settings: &Settings) -> Result<Profile, CliError> {
    let mut profile = profile_for(settings, &[])?;
    set_queues(&mut profile, environment::variable);
    Ok(profile)
}

/// Sets the number of hardware queues of a profile by the variable of its vendor, if `value` returns a valid one.
fn set_queues(profile: &mut Profile, value: impl Fn(&str) -> Option<String>) {
    if let Ok(Some((variable, count))) = environment::queues_in(&profile.vendor, value) {
        profile.queues.count = SourcedFigure(f64::from(count), variable.to_owned());
    }
}

/// The device profile that [`profile`] returns, with `variables`, each `NAME=VALUE`, in place of the environment.
pub fn profile_for(settings: &Settings, variables: &[String]) -> Result<Profile, CliError> {
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
    let pairs = variables.iter().filter_map(|pair| pair.split_once('='));
    let value = |name: &str| pairs.clone().find(|(given, _)| *given == name).map(|(_, value)| value.to_owned());
    set_queues(&mut profile, value);
    Ok(profile)
}

/// The profile with a device's limits; `None` if it is not known. That is the simulator's own profile, or the embedded
/// one of the device that the driver reports under this name, or of which this is a partition.
pub fn known(device: &DeviceInfo, settings: &Settings) -> Result<Option<Profile>, CliError> {
    if device.simulated {
        return profile(settings).map(Some);
    }
    // A partition is named like the whole device.
    Ok(Profile::of_device(&device.name).map(|profile| match device.units {
        Some(units) => profile.with_units(units),
        None => profile,
    }))
}
