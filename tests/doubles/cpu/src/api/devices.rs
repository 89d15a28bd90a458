//! Devices, versions and errors.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::capture;
use crate::device::{self, NAME};
use crate::memory;
use crate::number::{attribute, property};
use crate::status::{self, Done, INVALID_DEVICE, INVALID_VALUE, NO_DEVICE, PEER_ALREADY, Status};
use crate::stream::STREAMS;

use super::{hip, put, unsupported};

/// HIP 6.4, whose header this was written after. The last digits grow with each change of the prelude, since caches know
/// compiled kernels by the version.
const VERSION: c_int = 60_443_484;

fn present() -> Done {
    if device::all().is_empty() { Err(NO_DEVICE) } else { Ok(()) }
}

/// True if a device can access the memory of another, unless `HIP_DOUBLE_APART` is set.
fn reaches(index: c_int, peer: c_int) -> bool {
    index != peer && std::env::var_os("HIP_DOUBLE_APART").is_none()
}

hip! {
    fn hipInit(flags: c_uint) {
        if flags != 0 { return Err(INVALID_VALUE) }
        present()
    }
    fn hipRuntimeGetVersion(version: *mut c_int) {
        version.write(VERSION);
        Ok(())
    }
    fn hipDriverGetVersion(version: *mut c_int) {
        version.write(VERSION);
        Ok(())
    }
    fn hipGetDeviceCount(count: *mut c_int) {
        count.write(device::all().len() as c_int);
        present()
    }
    fn hipSetDevice(index: c_int) { device::set_current(index) }
    fn hipGetDevice(index: *mut c_int) {
        index.write(device::current());
        present()
    }
    fn hipDeviceGet(to: *mut c_int, index: c_int) {
        device::get(index)?;
        to.write(index);
        Ok(())
    }
    fn hipDeviceGetAttribute(value: *mut c_int, number: c_int, index: c_int) {
        device::get(index)?;
        value.write(attribute(number, index).ok_or(INVALID_VALUE)?);
        Ok(())
    }
    fn hipDeviceGetName(name: *mut c_char, size: c_int, index: c_int) {
        device::get(index)?;
        put(NAME, name, size.max(0) as usize);
        Ok(())
    }
    fn hipDeviceGetUuid(uuid: *mut [u8; 16], index: c_int) {
        device::get(index)?;
        let mut bytes = *b"HIP double CPU 0";
        bytes[15] += index as u8;
        uuid.write(bytes);
        Ok(())
    }
    fn hipDeviceGetPCIBusId(to: *mut c_char, size: c_int, index: c_int) {
        device::get(index)?;
        put(&format!("ffff:{index:02x}:00.0"), to, size.max(0) as usize);
        Ok(())
    }
    fn hipDeviceTotalMem(bytes: *mut usize, index: c_int) {
        device::get(index)?;
        bytes.write(device::memory_bytes() as usize);
        Ok(())
    }
    fn hipMemGetInfo(free: *mut usize, total: *mut usize) {
        device::get(device::current())?.check()?;
        free.write(memory::free_bytes(device::current()) as usize);
        total.write(device::memory_bytes() as usize);
        Ok(())
    }
    fn hipDeviceSynchronize() {
        capture::forbid()?;
        let own = device::current();
        // Asynchronous failures are returned after all work has completed.
        let streams = STREAMS.all().into_iter().filter(|stream| stream.device == own);
        let waited: Vec<Done> = streams.map(|stream| stream.synchronize()).collect();
        waited.into_iter().collect::<Done>()?;
        device::get(own)?.check()
    }
    fn hipDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        // Threads of the system have no priorities here: none is claimed.
        least.write(0);
        greatest.write(0);
        Ok(())
    }
    fn hipDeviceCanAccessPeer(can: *mut c_int, index: c_int, peer: c_int) {
        device::get(index)?;
        device::get(peer)?;
        can.write(c_int::from(reaches(index, peer)));
        Ok(())
    }
    fn hipDeviceEnablePeerAccess(peer: c_int, flags: c_uint) {
        device::get(peer)?;
        if flags != 0 { return Err(INVALID_VALUE) }
        if !reaches(device::current(), peer) { return Err(INVALID_DEVICE) }
        static ENABLED: std::sync::Mutex<Vec<(i32, i32)>> = std::sync::Mutex::new(Vec::new());
        let pair = (device::current(), peer);
        let mut enabled = ENABLED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if enabled.contains(&pair) { return Err(PEER_ALREADY) }
        enabled.push(pair);
        Ok(())
    }
    fn hipGetDevicePropertiesR0600(to: *mut u8, index: c_int) {
        device::get(index)?;
        property::fill(to, &property::R0600, index);
        Ok(())
    }
    fn hipGetDeviceProperties(to: *mut u8, index: c_int) {
        device::get(index)?;
        property::fill(to, &property::OLD, index);
        Ok(())
    }
}

unsupported! { hipExtGetLinkTypeAndHopCount hipDeviceGetP2PAttribute }

#[unsafe(no_mangle)]
pub extern "C" fn hipGetLastError() -> Status {
    device::take_last()
}

#[unsafe(no_mangle)]
pub extern "C" fn hipPeekAtLastError() -> Status {
    device::peek_last()
}

#[unsafe(no_mangle)]
pub extern "C" fn hipGetErrorName(status: Status) -> *const c_char {
    status::name(status).as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn hipGetErrorString(status: Status) -> *const c_char {
    status::text(status).as_ptr()
}

hip! {
    fn hipDrvGetErrorString(status: Status, to: *mut *const c_char) {
        to.write(status::text(status).as_ptr());
        Ok(())
    }
    fn hipDrvGetErrorName(status: Status, to: *mut *const c_char) {
        to.write(status::name(status).as_ptr());
        Ok(())
    }
    fn hipDevicePrimaryCtxRetain(context: *mut *mut c_void, index: c_int) {
        device::get(index)?;
        context.write((index as usize + 1) as *mut c_void);
        Ok(())
    }
    fn hipDevicePrimaryCtxRelease(index: c_int) { device::get(index).map(|_| ()) }
    fn hipCtxSetCurrent(context: *mut c_void) { device::set_current(context as usize as c_int - 1) }
    fn hipCtxSynchronize() {
        if hipDeviceSynchronize() == 0 { Ok(()) } else { Err(device::peek_last()) }
    }
}
