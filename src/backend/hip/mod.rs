//! HIP: implements [`Api`] for `backend::gpu` with AMD's runtime, hipRTC, hipBLASLt or rocBLAS, and RCCL, each opened
//! when needed.
//!
//! Differences between versions of ROCm are in `table` and `driver`. `docs/rocm.md` lists what AMD's runtime does not
//! support and CUDA's does; a run notes it when it matters.

mod api;
mod driver;
pub mod hints;
mod hipblaslt;
mod hiprtc;
mod limits;
mod masks;
mod peers;
mod products;
#[cfg(all(test, target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod prototypes;
mod rocblas;
mod rocprofiler;
mod smi;
mod sysfs;
mod table;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, OnceLock};

use crate::backend::collective::Collectives;
use crate::backend::gpu::{Api, NoDriver, check_index};
use crate::backend::libraries::{NotOpened, SearchPaths, once};
use crate::base::threads::lock;
use crate::exec::{ExecError, Fault};
use crate::ops::{KernelSource, NotCompiled};

use driver::{HipDriver, no_device, number};
use hipblaslt::HipblasLt;
pub use hiprtc::Hiprtc;
use limits::VersionBehavior;
use rocblas::RocBlas;
pub use rocprofiler::attach as attach_recorder;
use smi::Smi;
use sysfs::Sysfs;

/// The error for a library that could not be opened. `package` is AMD's package that contains it.
fn missing(library: &str, purpose: &str, package: &str, why: NotOpened) -> ExecError {
    why.missing(library, purpose, &format!("AMD's package `{package}`, or set ROCM_PATH"))
}

/// Number of AMD GPUs that the runtime reports, at least 1, or why there are none.
pub fn find(paths: &SearchPaths) -> Result<u32, NoDriver> {
    let driver = HipDriver::open(paths)?;
    match driver.count() {
        Ok(0) => Err(NoDriver::NoDevice(driver.none_seen())),
        Ok(count) => Ok(count),
        Err(fault) => Err(NoDriver::Fails(no_device(fault.to_string()))),
    }
}

/// Compiles a kernel to machine code for `architecture`, such as `gfx942`, without a device.
///
/// # Errors
///
/// The machine has no compiler, or the compiler refuses the code.
pub fn compile(paths: &SearchPaths, source: &KernelSource, architecture: &str) -> Result<Vec<u8>, NotCompiled> {
    let hiprtc = Hiprtc::open(paths, None, None).map_err(|error| NotCompiled::NoCompiler(error.to_string()))?;
    hiprtc.compile(source, architecture)
}

/// Path of the management library; an error if it lacks a function.
pub fn smi_library(paths: &SearchPaths) -> Result<String, ExecError> {
    smi::open(paths).map(|(_, path)| path.to_owned())
}

/// An AMD device, driven through the HIP runtime.
pub struct Hip {
    driver: HipDriver,
    paths: SearchPaths,
    index: u32,
    /// The architecture with its features: `gfx942:sramecc+:xnack-`.
    architecture: String,
    shared_limit: u32,
    /// Frequency of the device's constant-rate clock in Hz.
    clock_rate: u64,
    /// Number of hardware queues that the runtime uses for streams.
    queues: u32,
    /// Behaviour of this version of the runtime.
    limits: VersionBehavior,
    /// The stream by which device memory is read, a `hipStream_t`; created by the first read.
    reads: OnceLock<usize>,
    hiprtc: OnceLock<Hiprtc>,
    hipblaslt: OnceLock<Result<Arc<HipblasLt>, ExecError>>,
    rocblas: OnceLock<Result<Arc<RocBlas>, ExecError>>,
    collectives: OnceLock<Collectives>,
    smi: OnceLock<Option<Smi>>,
    /// Number of open streams.
    streams: AtomicU32,
    /// True once a stream has been made with a CU mask.
    masked: AtomicBool,
    notes: Mutex<Vec<String>>,
}

impl Hip {
    /// Opens device `index`. `queues` is the value of GPU_MAX_HW_QUEUES; `None` if it is not set.
    pub fn open(paths: SearchPaths, index: u32, queues: Option<u32>) -> Result<Hip, ExecError> {
        let driver = HipDriver::open(&paths).map_err(|why| why.error(no_device))?;
        let count = driver.count().map_err(|fault| no_device(fault.to_string()))?;
        check_index(index, count, || driver.none_seen()).map_err(no_device)?;
        let architecture = driver
            .architecture(index)
            .ok_or_else(|| no_device("the runtime does not say which architecture the device has".to_owned()))?;
        let attribute = |number| driver.attribute(index, number).filter(|value| *value > 0).map(|value| value as u32);
        let hip = Hip {
            // The attribute is in kHz. The fallback is the rate of every CDNA device.
            clock_rate: attribute(number::ATTRIBUTE_WALL_CLOCK_RATE).map_or(100_000_000, |rate| u64::from(rate) * 1000),
            shared_limit: attribute(number::ATTRIBUTE_SHARED_PER_BLOCK).unwrap_or(64 << 10),
            // 4 is the documented default.
            queues: queues.unwrap_or(4).max(1),
            limits: VersionBehavior::of((driver.version().0, driver.version().1)),
            architecture,
            driver,
            paths,
            index,
            reads: OnceLock::new(),
            hiprtc: OnceLock::new(),
            hipblaslt: OnceLock::new(),
            rocblas: OnceLock::new(),
            collectives: OnceLock::new(),
            smi: OnceLock::new(),
            streams: AtomicU32::new(0),
            masked: AtomicBool::new(false),
            notes: Mutex::default(),
        };
        hip.use_device().map_err(|fault| no_device(fault.to_string()))?;
        Ok(hip)
    }

    fn use_device(&self) -> Result<(), Box<Fault>> {
        // SAFETY: the index is that of a device.
        self.check("hipSetDevice", unsafe { (self.driver.table.set_device)(self.index as i32) })
    }

    /// Number of compute units; 0 if the runtime does not report it.
    fn units(&self) -> u32 {
        self.driver.attribute(self.index, number::ATTRIBUTE_MULTIPROCESSORS).unwrap_or(0).max(0) as u32
    }

    /// The device in the kernel driver's files; `None` if the runtime does not report its PCI address.
    fn sysfs(&self) -> Option<Sysfs> {
        Some(Sysfs::new(Path::new("/sys"), &self.driver.bus(self.index)?))
    }

    /// The device in the management library; `None` if the library is not available or does not know the device.
    fn smi(&self) -> Option<&Smi> {
        self.smi.get_or_init(|| Smi::open(&self.paths, &self.driver.bus(self.index)?)).as_ref()
    }

    /// Number of XCDs. If the driver does not report it, it is derived from the number of compute units: by AMD's
    /// documents, an XCD of gfx942 has 38 and one of gfx950 has 32.
    fn xcds(&self) -> u32 {
        let each = match self.architecture.split(':').next() {
            Some("gfx942") => 38,
            Some("gfx950") => 32,
            _ => self.units().max(1),
        };
        let reported = self.sysfs().and_then(|sysfs| sysfs.xcds());
        reported.unwrap_or(if self.units().is_multiple_of(each) { (self.units() / each).max(1) } else { 1 })
    }

    fn hiprtc(&self) -> Result<&Hiprtc, ExecError> {
        once(&self.hiprtc, || Hiprtc::open(&self.paths, self.driver.major(), Some(&self.architecture)))
    }

    fn rccl(&self) -> Result<&Collectives, ExecError> {
        let missing = |why| missing("RCCL (librccl)", "for collectives", "rccl", why);
        once(&self.collectives, || Collectives::open(&self.paths, ["librccl.so.1", "librccl.so"], missing))
    }

    /// Each library that a run may need, with its path or the reason why it was not found.
    pub fn libraries(&self) -> Vec<(&'static str, Result<String, ExecError>)> {
        let at = |version: String, path: &str| format!("{version}, {path}");
        vec![
            ("runtime", Ok(at(format!("HIP {}", self.driver.version_text()), self.driver.path))),
            ("hipRTC", self.hiprtc().map(|hiprtc| at(hiprtc.version(), hiprtc.path()))),
            ("hipBLASLt", self.hipblaslt().map(|library| at(library.version.clone(), library.path))),
            ("rocBLAS", self.rocblas().map(|library| library.path.to_owned())),
            ("RCCL", self.rccl().map(Collectives::version_and_path)),
            ("ROCm SMI", smi_library(&self.paths)),
        ]
    }

    /// Adds a line to the run's notes unless it is there already.
    fn note(&self, line: String) {
        let mut notes = lock(&self.notes);
        if !notes.contains(&line) {
            notes.push(line);
        }
    }
}
