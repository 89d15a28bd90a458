//! HIP: an [`Api`] for `backend::gpu`, over AMD's runtime, hipRTC, hipBLASLt or rocBLAS, and RCCL, all
//! opened when they are needed.
//!
//! What differs between versions of ROCm is kept in `table` and `driver`. What AMD's runtime does not do, and CUDA's
//! does, is told where it is missed: `docs/rocm.md` lists it.

mod api;
mod driver;
pub mod hints;
mod hipblaslt;
mod hiprtc;
mod limits;
mod masks;
mod peers;
mod products;
#[cfg(feature = "hip-sys")]
mod prototypes;
mod rocblas;
mod smi;
mod sysfs;
mod table;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::backend::collective::Collectives;
use crate::backend::gpu::{Api, no_such};
use crate::backend::libraries::{NotOpened, SearchPaths, once};
use crate::exec::{ExecError, Fault};

use driver::{HipDriver, NoDriver, no_device, number};
use hipblaslt::HipblasLt;
pub use hiprtc::Hiprtc;
use limits::Limits;
use rocblas::RocBlas;
use smi::Smi;
use sysfs::Sysfs;

/// Why nothing is found where there is no library.
const NO_LIBRARY: &str = "no libamdhip64.so on this machine";

/// The error for a library that could not be opened; `package` is AMD's name for what brings it.
fn missing(library: &str, purpose: &str, package: &str, why: NotOpened) -> ExecError {
    why.missing(library, purpose, &format!("AMD's package `{package}`, or set ROCM_PATH"))
}

/// What there is on this machine.
pub enum Found {
    /// No runtime.
    Absent(&'static str),
    /// A runtime that sees no AMD GPU, in its words.
    Nothing(String),
    /// A runtime that does not work.
    Broken(ExecError),
    Devices(u32),
}

/// Looks for a runtime and its devices.
pub fn find(paths: &SearchPaths) -> Found {
    match HipDriver::open(paths) {
        Err(NoDriver::Absent) => Found::Absent(NO_LIBRARY),
        Err(NoDriver::NoDevice(why)) => Found::Nothing(why),
        Err(NoDriver::Fails(error)) => Found::Broken(error),
        Ok(driver) => match driver.count() {
            Ok(0) => Found::Nothing(driver.none_seen()),
            Ok(count) => Found::Devices(count),
            Err(fault) => Found::Broken(no_device(fault.to_string())),
        },
    }
}

/// Where the management library is, whose functions are all there.
pub fn smi_library(paths: &SearchPaths) -> Result<String, ExecError> {
    smi::open(paths).map(|(_, path)| path.to_owned())
}

/// One device.
pub struct Hip {
    driver: HipDriver,
    paths: SearchPaths,
    index: u32,
    /// With its features: `gfx942:sramecc+:xnack-`.
    architecture: String,
    shared_limit: u32,
    /// Ticks per second of the device's clock that never changes its pace.
    clock_rate: u64,
    queues: u32,
    /// What this version of the runtime does.
    limits: Limits,
    /// The stream that reads go through, made by the first. It is a `hipStream_t`.
    reads: OnceLock<usize>,
    hiprtc: OnceLock<Hiprtc>,
    hipblaslt: OnceLock<Result<Arc<HipblasLt>, ExecError>>,
    rocblas: OnceLock<Result<Arc<RocBlas>, ExecError>>,
    collectives: OnceLock<(Collectives, &'static str)>,
    smi: OnceLock<Option<Smi>>,
    /// Streams that are open for work.
    streams: AtomicU32,
    /// One of them has been made with a mask of compute units.
    masked: AtomicBool,
    notes: Mutex<Vec<String>>,
}

impl Hip {
    /// Opens device `index`. `queues` is what GPU_MAX_HW_QUEUES says, if it says anything.
    pub fn open(paths: SearchPaths, index: u32, queues: Option<u32>) -> Result<Hip, ExecError> {
        let driver = HipDriver::open(&paths).map_err(|why| match why {
            NoDriver::Absent => no_device(NO_LIBRARY.to_owned()),
            NoDriver::NoDevice(why) => no_device(why),
            NoDriver::Fails(error) => error,
        })?;
        let count = driver.count().map_err(|fault| no_device(fault.to_string()))?;
        if index >= count {
            let why = match count {
                0 => driver.none_seen(),
                count => no_such(index, count),
            };
            return Err(no_device(why));
        }
        let architecture = driver
            .architecture(index)
            .ok_or_else(|| no_device("the runtime does not say which architecture the device has".to_owned()))?;
        let attribute = |number| driver.attribute(index, number).filter(|value| *value > 0).map(|value| value as u32);
        let hip = Hip {
            // The attribute counts thousands. Without it: what every CDNA device has.
            clock_rate: attribute(number::ATTRIBUTE_WALL_CLOCK_RATE).map_or(100_000_000, |rate| u64::from(rate) * 1000),
            shared_limit: attribute(number::ATTRIBUTE_SHARED_PER_BLOCK).unwrap_or(64 << 10),
            // The documented default.
            queues: queues.unwrap_or(4).max(1),
            limits: Limits::of((driver.version().0, driver.version().1)),
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

    /// Compute units; 0 where the runtime does not say.
    fn units(&self) -> u32 {
        self.driver.attribute(self.index, number::ATTRIBUTE_MULTIPROCESSORS).unwrap_or(0).max(0) as u32
    }

    /// What the kernel's driver says of the device.
    fn sysfs(&self) -> Option<Sysfs> {
        Some(Sysfs::new(Path::new("/sys"), &self.driver.bus(self.index)?))
    }

    /// What the management library says of it.
    fn smi(&self) -> Option<&Smi> {
        self.smi.get_or_init(|| Smi::open(&self.paths, &self.driver.bus(self.index)?)).as_ref()
    }

    /// The chips that compute. Where the driver does not say: by AMD's documents, those of gfx942 have 38 units and those
    /// of gfx950 have 32.
    fn xcds(&self) -> u32 {
        let each = match self.architecture.split(':').next() {
            Some("gfx942") => 38,
            Some("gfx950") => 32,
            _ => self.units().max(1),
        };
        let told = self.sysfs().and_then(|sysfs| sysfs.xcds());
        told.unwrap_or(if self.units().is_multiple_of(each) { (self.units() / each).max(1) } else { 1 })
    }

    fn hiprtc(&self) -> Result<&Hiprtc, ExecError> {
        once(&self.hiprtc, || Hiprtc::open(&self.paths, self.driver.major(), Some(&self.architecture)))
    }

    fn open_collectives(&self) -> Result<&(Collectives, &'static str), ExecError> {
        once(&self.collectives, || {
            let names = ["librccl.so.1", "librccl.so"].map(str::to_owned);
            let missing = |why| missing("RCCL (librccl)", "for collectives", "rccl", why);
            let opened = self.paths.open(&names).map_err(missing)?;
            Ok((Collectives::load(&opened)?, opened.path))
        })
    }

    /// Each library that a run may need, with where it was found, or why not.
    pub fn libraries(&self) -> Vec<(&'static str, Result<String, ExecError>)> {
        let at = |version: String, path: &str| format!("{version}, {path}");
        vec![
            ("runtime", Ok(at(format!("HIP {}", self.driver.version_text()), self.driver.path))),
            ("hipRTC", self.hiprtc().map(|hiprtc| at(hiprtc.version(), hiprtc.path()))),
            ("hipBLASLt", self.hipblaslt().map(|library| at(library.version.clone(), library.path))),
            ("rocBLAS", self.rocblas().map(|library| library.path.to_owned())),
            (
                "RCCL",
                self.open_collectives()
                    .map(|(library, path)| at(library.version().unwrap_or_else(|| "unknown".to_owned()), path)),
            ),
            ("ROCm SMI", smi_library(&self.paths)),
        ]
    }

    /// Keeps a line for the run's notes, once.
    fn note(&self, line: String) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if !notes.contains(&line) {
            notes.push(line);
        }
    }
}
