//! CUDA: implements [`Api`] for `backend::gpu` with the driver, NVRTC, cuBLASLt, cuDNN and NCCL, each opened when needed.

mod api;
mod counters;
mod cublaslt;
mod cudnn;
mod cudnn_api;
mod cudnn_attention;
mod cudnn_convolution;
mod cudnn_engine;
mod cudnn_graph;
mod cupti;
mod driver;
mod nvml;
mod nvrtc;
mod occupancy;
mod peers;

use std::ffi::c_int;
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys::{CUcontext, CUdevice};

use crate::backend::collective::Collectives;
use crate::backend::gpu::tracer::Tracer;
use crate::backend::gpu::{Api, NoDriver, check_index};
use crate::backend::libraries::{NotOpened, SearchPaths, once, text};
use crate::exec::ExecError;
use crate::ops::{KernelSource, NotCompiled};

use counters::RangeProfiler;
use cublaslt::CublasLt;
use cudnn::Cudnn;
use cupti::Cupti;
use driver::{CudaDriver, NONE_SEEN, no_device, number};
use nvml::Nvml;
pub use nvrtc::Nvrtc;
use occupancy::UnitLimits;

/// Newest major version of the toolkit whose libraries are looked for.
const NEWEST: i32 = 13;

/// File names of a library for all supported major versions, the driver's version first.
fn versioned(stem: &str, driver_major: i32) -> Vec<String> {
    let mut majors = vec![driver_major];
    majors.extend([NEWEST, 12, 11].into_iter().filter(|major| *major != driver_major));
    let mut names: Vec<String> = majors.into_iter().map(|major| format!("{stem}.{major}")).collect();
    names.push(stem.to_owned());
    names
}

/// Compiles a kernel to machine code for `architecture`, such as `sm_90`, without a device.
///
/// # Errors
///
/// The machine has no compiler, or the compiler refuses the code.
pub fn compile(paths: &SearchPaths, source: &KernelSource, architecture: &str) -> Result<Vec<u8>, NotCompiled> {
    let nvrtc = Nvrtc::open(paths, NEWEST).map_err(|error| NotCompiled::NoCompiler(error.to_string()))?;
    nvrtc.compile(source, architecture)
}

/// The error for a library that could not be opened. `install` is a shell command.
fn missing(library: &str, purpose: &str, why: NotOpened, install: &str) -> ExecError {
    why.missing(library, purpose, &format!("the CUDA toolkit, or `{install}`"))
}

/// Number of NVIDIA GPUs that the driver reports, at least 1, or why there are none.
pub fn find(paths: &SearchPaths) -> Result<u32, NoDriver> {
    match CudaDriver::open(paths)?.count() {
        Ok(0) => Err(NoDriver::NoDevice(NONE_SEEN.to_owned())),
        Ok(count) => Ok(count),
        Err(fault) => Err(NoDriver::Fails(no_device(fault.to_string()))),
    }
}

/// A device with its context.
pub struct Cuda {
    driver: CudaDriver,
    paths: SearchPaths,
    index: u32,
    device: CUdevice,
    context: CUcontext,
    architecture: String,
    has_clusters: bool,
    shared_limit: u32,
    /// Limits of an SM; `None` if the driver does not report all of them.
    unit_limits: Option<UnitLimits>,
    connections: u32,
    nvrtc: OnceLock<Nvrtc>,
    cublaslt: OnceLock<Arc<CublasLt>>,
    /// cuDNN and its name with its version, or why it was not found.
    cudnn: OnceLock<Result<(Arc<Cudnn>, String), ExecError>>,
    collectives: OnceLock<Collectives>,
    nvml: OnceLock<Option<Nvml>>,
}

// SAFETY: a context may be used from any thread that makes it current; the rest are numbers and function addresses.
unsafe impl Send for Cuda {}
// SAFETY: as above.
unsafe impl Sync for Cuda {}

impl Cuda {
    /// Opens device `index`. `connections` is the value of CUDA_DEVICE_MAX_CONNECTIONS; `None` if it is not set.
    pub fn open(paths: SearchPaths, index: u32, connections: Option<u32>) -> Result<Cuda, ExecError> {
        let driver = CudaDriver::open(&paths).map_err(|why| why.error(no_device))?;
        let failed = |fault: Box<crate::exec::Fault>| no_device(fault.to_string());
        let count = driver.count().map_err(failed)?;
        check_index(index, count, || NONE_SEEN.to_owned()).map_err(no_device)?;
        let mut device: CUdevice = 0;
        let mut context: CUcontext = std::ptr::null_mut();
        // SAFETY: both output pointers are valid for the calls, and the index is that of a device.
        unsafe {
            driver.check("cuDeviceGet", (driver.table.device_get)(&mut device, index as c_int)).map_err(failed)?;
            let code = (driver.table.primary_ctx_retain)(&mut context, device);
            driver.check("cuDevicePrimaryCtxRetain", code).map_err(failed)?;
        }
        let attribute = |number: i32| driver.attribute(device, number).unwrap_or(0);
        let (major, minor) = (attribute(number::ATTRIBUTE_MAJOR), attribute(number::ATTRIBUTE_MINOR));
        let cuda = Cuda {
            architecture: architecture(major, minor),
            has_clusters: major >= 9,
            shared_limit: attribute(number::ATTRIBUTE_SHARED_OPTIN).max(0) as u32,
            unit_limits: unit_limits(|number| driver.attribute(device, number)),
            // 8 is the documented default.
            connections: connections.unwrap_or(8).clamp(1, 32),
            driver,
            paths,
            index,
            device,
            context,
            nvrtc: OnceLock::new(),
            cublaslt: OnceLock::new(),
            cudnn: OnceLock::new(),
            collectives: OnceLock::new(),
            nvml: OnceLock::new(),
        };
        cuda.make_current().map_err(failed)?;
        Ok(cuda)
    }

    fn name(&self) -> String {
        // SAFETY: `text` passes a buffer of the size that it states.
        let name = text(|at, room| unsafe { (self.driver.table.device_get_name)(at, room, self.device) });
        name.unwrap_or_else(|| "NVIDIA GPU".to_owned())
    }

    fn nvml(&self) -> Option<&Nvml> {
        self.nvml.get_or_init(|| Nvml::open(&self.paths, &self.driver.bus(self.device)?)).as_ref()
    }

    /// Major version of CUDA that the driver supports.
    fn major(&self) -> i32 {
        self.driver.version() / 1000
    }

    fn nvrtc(&self) -> Result<&Nvrtc, ExecError> {
        once(&self.nvrtc, || Nvrtc::open(&self.paths, self.major()))
    }

    fn cublaslt(&self) -> Result<&Arc<CublasLt>, ExecError> {
        once(&self.cublaslt, || cublaslt::open(&self.paths, self.major()).map(Arc::new))
    }

    /// cuDNN, with its name and version. If it is missing, generated kernels replace it.
    fn cudnn(&self) -> Result<&(Arc<Cudnn>, String), &ExecError> {
        let named = |library: Cudnn| (format!("cuDNN {}", library.version), library);
        let opened = self
            .cudnn
            .get_or_init(|| Cudnn::open(&self.paths).map(named).map(|(name, library)| (Arc::new(library), name)));
        opened.as_ref()
    }

    /// CUPTI, which records when kernels and copies run.
    fn cupti(&self) -> Result<Arc<Cupti>, String> {
        Cupti::open(&self.paths, &versioned("libcupti.so", self.major()))
    }

    /// CUPTI's range profiler, enabled on this device. Counting ends when the value is dropped.
    fn range_profiler(&self) -> Result<RangeProfiler, String> {
        let table = counters::Table::open(&self.paths, &versioned("libcupti.so", self.major()))?;
        RangeProfiler::enable(table, self.index, self.context)
    }

    fn nccl(&self) -> Result<&Collectives, ExecError> {
        let missing = |why| missing("NCCL (libnccl)", "for collectives", why, "pip install nvidia-nccl-cu13");
        once(&self.collectives, || Collectives::open(&self.paths, ["libnccl.so.2", "libnccl.so"], missing))
    }

    /// Each library that a run may need, with its path or the reason why it was not found.
    pub fn libraries(&self) -> Vec<(&'static str, Result<String, ExecError>)> {
        let driver = self.driver.version();
        let at = |version: String, path: &str| format!("{version}, {path}");
        vec![
            ("driver", Ok(at(format!("CUDA {}.{}", driver / 1000, driver % 1000 / 10), self.driver.path))),
            ("NVRTC", self.nvrtc().map(|nvrtc| at(nvrtc.version(), nvrtc.path()))),
            ("cuBLASLt", self.cublaslt().map(|library| at(library.version.clone(), library.path))),
            (
                "cuDNN",
                self.cudnn().map(|(library, _)| at(library.version.clone(), library.path)).map_err(ExecError::clone),
            ),
            ("NCCL", self.nccl().map(Collectives::version_and_path)),
            ("CUPTI", self.cupti().map(|library| at(library.name(), library.path)).map_err(no_tracer)),
        ]
    }
}

/// The error for a missing CUPTI, with the reason.
fn no_tracer(why: String) -> ExecError {
    ExecError::MissingLibrary {
        library: "CUPTI (libcupti)".to_owned(),
        purpose: "to time single operations by the device's records".to_owned(),
        help: Some(why),
    }
}

/// Resources of an SM of the device; `None` if the driver does not report one of them.
fn unit_limits(attribute: impl Fn(c_int) -> Option<c_int>) -> Option<UnitLimits> {
    let positive = |number| attribute(number).and_then(|value| u32::try_from(value).ok());
    Some(UnitLimits {
        threads: positive(number::ATTRIBUTE_UNIT_THREADS)?,
        blocks: positive(number::ATTRIBUTE_UNIT_BLOCKS)?,
        registers: positive(number::ATTRIBUTE_UNIT_REGISTERS)?,
        shared_bytes: positive(number::ATTRIBUTE_UNIT_SHARED)?,
        reserved_bytes: positive(number::ATTRIBUTE_RESERVED_SHARED)?,
    })
}

/// The compiler's name of a compute capability, such as `sm_90a`. Hopper's warpgroup instructions exist in `sm_90a`
/// only. That code runs on no other device, but kernels are always compiled for the device of the run.
fn architecture(major: i32, minor: i32) -> String {
    let suffix = if (major, minor) == (9, 0) { "a" } else { "" };
    format!("sm_{major}{minor}{suffix}")
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // SAFETY: retained once, when the device was opened. The process's end frees cuBLASLt's handle.
        unsafe { (self.driver.table.primary_ctx_release)(self.device) };
    }
}
