//! HIP's runtime library: opening it, and queries about it and its devices.

use std::ffi::{CStr, c_char, c_int};

use crate::backend::gpu::NoDriver;
use crate::backend::gpu::runtime::Runtime;
use crate::backend::libraries::{NotOpened, SearchPaths, text};
use crate::exec::{ExecError, Fault};

use super::table::{NAMES, Table, lacking};

/// Constants of the runtime's header, the same in every version from 5.2 to 7.
pub mod number {
    pub use crate::backend::gpu::runtime::number::*;

    pub const INVALID_DEVICE: i32 = 101;
    pub const NOT_SUPPORTED: i32 = 801;
    /// Status codes of asynchronous failures, which any later call can return: address, timeout, assertion, failed
    /// launch.
    pub const ASYNCHRONOUS_FAILURES: [i32; 4] = [700, 702, 710, 719];
    pub const HOST_PORTABLE: u32 = 1;
    pub const HOST_MAPPED: u32 = 2;
    pub const HOST_COHERENT: u32 = 0x4000_0000;
    pub const HOST_TO_DEVICE: u32 = 1;
    pub const DEVICE_TO_HOST: u32 = 2;
    pub const DEVICE_TO_DEVICE: u32 = 3;
    /// Since 6.1: copy within a device by a copy engine.
    pub const DEVICE_TO_DEVICE_NO_UNITS: u32 = 1024;
    pub const ATTRIBUTE_COPY_ENGINES: u32 = 2;
    pub const ATTRIBUTE_CLOCK_RATE: u32 = 5;
    pub const ATTRIBUTE_CONCURRENT_MANAGED: u32 = 9;
    pub const ATTRIBUTE_L2_BYTES: u32 = 19;
    pub const ATTRIBUTE_MULTIPROCESSORS: u32 = 63;
    pub const ATTRIBUTE_SHARED_PER_BLOCK: u32 = 74;
    pub const ATTRIBUTE_WARP_SIZE: u32 = 87;
    pub const ATTRIBUTE_WALL_CLOCK_RATE: u32 = 10017;
}

/// Compares the constants with those of `hip-sys`.
#[cfg(all(test, target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64")))]
const _: () = {
    use hip_sys::hiprt;
    assert!(number::NOT_READY == hiprt::hipError_t::hipErrorNotReady as i32);
    assert!(number::NO_DEVICE == hiprt::hipError_t::hipErrorNoDevice as i32);
    assert!(number::PEER_ACCESS_ALREADY_ENABLED == hiprt::hipError_t::hipErrorPeerAccessAlreadyEnabled as i32);
    assert!(number::STREAM_NON_BLOCKING == hiprt::hipStreamNonBlocking);
    assert!(number::EVENT_DISABLE_TIMING == hiprt::hipEventDisableTiming);
    assert!(number::HOST_COHERENT == hiprt::hipHostMallocCoherent);
    assert!(number::HOST_PORTABLE == hiprt::hipHostMallocPortable);
    assert!(number::HOST_MAPPED == hiprt::hipHostMallocMapped);
    assert!(number::MEM_ATTACH_GLOBAL == hiprt::hipMemAttachGlobal);
    use hiprt::hipDeviceAttribute_t as Attribute;
    assert!(number::ATTRIBUTE_CONCURRENT_MANAGED == Attribute::hipDeviceAttributeConcurrentManagedAccess as u32);
    assert!(number::ATTRIBUTE_CLOCK_RATE == Attribute::hipDeviceAttributeClockRate as u32);
    assert!(number::ATTRIBUTE_L2_BYTES == Attribute::hipDeviceAttributeL2CacheSize as u32);
    assert!(number::ATTRIBUTE_MULTIPROCESSORS == Attribute::hipDeviceAttributeMultiprocessorCount as u32);
    assert!(number::ATTRIBUTE_SHARED_PER_BLOCK == Attribute::hipDeviceAttributeMaxSharedMemoryPerBlock as u32);
    assert!(number::ATTRIBUTE_WARP_SIZE == Attribute::hipDeviceAttributeWarpSize as u32);
};

/// Major versions in the file name of the library, the newest first. They can differ from the version of ROCm.
const MAJORS: [u32; 4] = [8, 7, 6, 5];

/// File names under which a library may be installed. `first` is the major version to try first: that of a library that
/// is already open.
pub fn versioned(stem: &str, first: Option<u32>) -> Vec<String> {
    let others = MAJORS.into_iter().filter(|&major| Some(major) != first);
    let mut names: Vec<String> = first.into_iter().chain(others).map(|major| format!("{stem}.so.{major}")).collect();
    names.push(format!("{stem}.so"));
    names
}

/// The runtime library, opened and initialized.
#[derive(Clone, Copy)]
pub struct HipDriver {
    pub table: Table,
    pub runtime: Runtime,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    pub path: &'static str,
}

/// Message for a runtime without usable devices.
pub const NONE_SEEN: &str = "the HIP runtime sees no device";

impl HipDriver {
    /// Opens and initializes the runtime.
    pub fn open(paths: &SearchPaths) -> Result<HipDriver, NoDriver> {
        let opened = match paths.open(&versioned("libamdhip64", None)) {
            Ok(opened) => opened,
            Err(NotOpened::Absent) => return Err(NoDriver::Absent("no libamdhip64.so on this machine")),
            Err(NotOpened::Broken(why)) => {
                return Err(NoDriver::Fails(no_device(format!("the runtime's library does not load: {why}"))));
            }
        };
        let table = Table::load(&opened).map_err(NoDriver::Fails)?;
        let runtime = Runtime::load(&opened, &NAMES).map_err(NoDriver::Fails)?;
        let symbol = "hipGetErrorString";
        // SAFETY: the type is that of the vendor's header, with an integer for the enumeration.
        let error_string =
            unsafe { opened.find(symbol) }.ok_or_else(|| NoDriver::Fails(opened.missing_function(symbol)))?;
        let driver = HipDriver { table, runtime, error_string, path: opened.path };
        // SAFETY: the function takes a number that has to be 0.
        let code = unsafe { (table.init)(0) };
        // Without a device, version 6 returns the former and version 5 the latter.
        if matches!(code, number::NO_DEVICE | number::INVALID_DEVICE) {
            return Err(NoDriver::NoDevice(driver.none_seen()));
        }
        driver.check("hipInit", code).map_err(|fault| NoDriver::Fails(no_device(fault.to_string())))?;
        Ok(driver)
    }

    /// The message for a machine without usable devices, with the runtime's version, its path and the functions that it
    /// lacks.
    pub fn none_seen(&self) -> String {
        let lacking = self.lacking();
        let lacks = match lacking.is_empty() {
            true => "all functions of it are there".to_owned(),
            false => format!("without {}", lacking.join(", ")),
        };
        format!("{NONE_SEEN} (HIP {}, {}; {lacks})", self.version_text(), self.path)
    }

    /// Names of the optional functions that this version of the runtime lacks.
    pub fn lacking(&self) -> Vec<&'static str> {
        [self.table.lacking(), lacking(&self.runtime)].concat()
    }

    /// Returns a fault if a call's status is not 0.
    #[inline]
    pub fn check(&self, call: &'static str, code: i32) -> Result<(), Box<Fault>> {
        if code == 0 { Ok(()) } else { Err(self.fault(call, code)) }
    }

    #[cold]
    fn fault(&self, call: &'static str, code: i32) -> Box<Fault> {
        // SAFETY: the function accepts any number, and returns a constant text or null.
        let message = unsafe {
            let text = (self.error_string)(code);
            if text.is_null() { "unknown to this runtime".into() } else { CStr::from_ptr(text).to_string_lossy() }
        };
        Box::new(Fault {
            call,
            code: i64::from(code),
            message: message.into_owned(),
            late: number::ASYNCHRONOUS_FAILURES.contains(&code),
        })
    }

    /// Version of the runtime: major, minor and patch.
    pub fn version(&self) -> (u32, u32, u32) {
        let mut version = 0;
        // SAFETY: the output pointer is valid for the call.
        let code = unsafe { (self.table.runtime_version)(&mut version) };
        let version = if code == 0 { version.max(0) as u32 } else { 0 };
        (version / 10_000_000, version / 100_000 % 100, version % 100_000)
    }

    /// Version of the runtime as text, such as `6.4.1`.
    pub fn version_text(&self) -> String {
        let (major, minor, patch) = self.version();
        format!("{major}.{minor}.{patch}")
    }

    /// Major version in the file name of the open library; `None` if the name contains none.
    pub fn major(&self) -> Option<u32> {
        let (_, version) = self.path.rsplit_once(".so.")?;
        version.split('.').next()?.parse().ok()
    }

    /// Number of devices.
    pub fn count(&self) -> Result<u32, Box<Fault>> {
        let mut count = 0;
        // SAFETY: the output pointer is valid for the call.
        match unsafe { (self.table.device_count)(&mut count) } {
            number::NO_DEVICE | number::INVALID_DEVICE => Ok(0),
            code => self.check("hipGetDeviceCount", code).map(|()| count.max(0) as u32),
        }
    }

    /// Returns an attribute of a device; `None` if the runtime does not know it.
    pub fn attribute(&self, device: u32, attribute: u32) -> Option<i32> {
        let mut value = 0;
        // SAFETY: the output pointer is valid for the call; an unknown attribute makes the call fail.
        let code = unsafe { (self.table.device_attribute)(&mut value, attribute, device as c_int) };
        (code == 0).then_some(value)
    }

    /// Returns the name of a device; `None` if the runtime does not report it.
    pub fn name(&self, device: u32) -> Option<String> {
        // SAFETY: `text` passes a buffer of the size that it states.
        text(|at, room| unsafe { (self.table.device_name)(at, room, device as c_int) })
    }

    /// The device's PCI address, such as `0000:1b:00.0`; `None` if the runtime does not report it.
    pub fn bus(&self, device: u32) -> Option<String> {
        // SAFETY: `text` passes a buffer of the size that it states.
        let bus = text(|at, room| unsafe { (self.table.device_bus)(at, room, device as c_int) });
        bus.map(|bus| bus.to_lowercase())
    }

    /// The architecture to compile for, such as `gfx942:sramecc+:xnack-`; `None` if the runtime does not report it.
    /// Only the structure of device properties contains it, whose layout changed in 6.0. The function without a version
    /// in its name fills the old layout in all versions.
    pub fn architecture(&self, device: u32) -> Option<String> {
        /// Offset in bytes of the text in each layout, and maximum length of the text, by AMD's headers of 5.7 and of
        /// 6.4.
        const OLD: usize = 396;
        const R0600: usize = 1160;
        const LENGTH: usize = 256;
        // Larger than every known layout, and aligned for all of its fields.
        let mut properties = [0u64; 512];
        let (call, at) = match self.table.device_properties_r0600 {
            Some(call) => (call, R0600),
            None => (self.table.device_properties, OLD),
        };
        // SAFETY: the buffer is larger than the structure.
        let code = unsafe { call(properties.as_mut_ptr().cast(), device as c_int) };
        let bytes: Vec<u8> = properties.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let name = bytes[at..at + LENGTH].split(|byte| *byte == 0).next()?;
        (code == 0 && name.starts_with(b"gfx")).then(|| String::from_utf8_lossy(name).into_owned())
    }
}

/// The error for a device that cannot be used, for this reason.
pub fn no_device(why: String) -> ExecError {
    ExecError::NoDevice {
        backend: "HIP",
        why,
        help: Some(
            "`aorta devices` shows why they are hidden, `rocminfo` shows what the driver sees, and you need read \
             access to /dev/kfd; `--backend sim --config profile=mi300x` simulates a device"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_that_is_open_comes_first() {
        assert_eq!(versioned("libhiprtc", Some(6))[..3], ["libhiprtc.so.6", "libhiprtc.so.8", "libhiprtc.so.7"]);
        assert_eq!(versioned("libhiprtc", None).last().map(String::as_str), Some("libhiprtc.so"));
        assert_eq!(versioned("libhiprtc", Some(9)).len(), 6, "one that nobody knows yet is tried as well");
    }
}
