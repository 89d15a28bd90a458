//! Memory, copies and fills.

use std::ffi::{c_int, c_uint, c_void};

use crate::capture;
use crate::device;
use crate::fault;
use crate::memory::{self, Place};
use crate::profiler::Work;
use crate::status::{Done, INVALID_DIRECTION, INVALID_PITCH, INVALID_VALUE, OUT_OF_MEMORY};
use crate::stream::{STREAMS, Stream, Task};

use super::{hip, unsupported};

type Handle = *mut c_void;

/// Rows of bytes that are copied.
#[derive(Clone, Copy)]
struct Rows {
    target: usize,
    source: usize,
    width: usize,
    height: usize,
    target_pitch: usize,
    source_pitch: usize,
}

impl Rows {
    fn one(target: *mut c_void, source: *const c_void, width: usize) -> Rows {
        let (target, source) = (target as usize, source as usize);
        Rows { target, source, width, height: 1, target_pitch: width, source_pitch: width }
    }

    /// Checks both sides against what is allocated; `kind` is `hipMemcpyKind`.
    fn check(&self, kind: c_int) -> Done {
        if self.width == 0 || self.height == 0 {
            return Ok(());
        }
        if self.height > 1 && (self.target_pitch < self.width || self.source_pitch < self.width) {
            return Err(INVALID_PITCH);
        }
        let reach = |pitch: usize| pitch * (self.height - 1) + self.width;
        let (target, source) = (reach(self.target_pitch), reach(self.source_pitch));
        let any = |address, bytes| memory::on_device(address, bytes).or_else(|_| memory::on_host(address, bytes));
        match kind {
            0 => memory::on_host(self.target, target).and(memory::on_host(self.source, source)),
            1 => memory::on_device(self.target, target).and(memory::on_host(self.source, source)),
            2 => memory::on_host(self.target, target).and(memory::on_device(self.source, source)),
            // The second asks for an engine, of which there is none: a stream copies by itself.
            3 | 1024 => memory::on_device(self.target, target).and(memory::on_device(self.source, source)),
            4 => any(self.target, target).and(any(self.source, source)),
            _ => Err(INVALID_DIRECTION),
        }
    }

    fn copy(&self) {
        for row in 0..self.height {
            let (to, from) = (self.target + row * self.target_pitch, self.source + row * self.source_pitch);
            // SAFETY: device memory was checked when the copy was issued; the caller vouches for the host's.
            unsafe { std::ptr::copy(from as *const u8, to as *mut u8, self.width) };
        }
    }
}

fn copy_async(rows: Rows, kind: c_int, stream: Handle) -> Done {
    let stream = STREAMS.get(stream)?;
    device::get(stream.device)?.check()?;
    rows.check(kind)?;
    // Ordinary memory is read at once, before earlier work of the stream is done, but not where a graph reads it at each
    // launch.
    let pageable = memory::place(rows.source, 0).is_none();
    if pageable && stream.capture().is_none() {
        let mut staged = vec![0u8; rows.width * rows.height];
        let staging = Rows { target: staged.as_mut_ptr() as usize, target_pitch: rows.width, ..rows };
        staging.copy();
        return stream.issue(Task::of(Work::Copy, move || {
            Rows { source: staged.as_ptr() as usize, source_pitch: rows.width, ..rows }.copy();
            Ok(())
        }));
    }
    let copied = stream.issue(Task::of(Work::Copy, move || {
        rows.copy();
        Ok(())
    }));
    copied.and_then(|()| finish_pageable(&stream, rows.target))
}

/// A copy into ordinary memory is done when the call returns.
fn finish_pageable(stream: &Stream, target: usize) -> Done {
    match stream.capture() {
        None if memory::place(target, 0).is_none() => stream.synchronize(),
        _ => Ok(()),
    }
}

fn copy_now(rows: Rows, kind: c_int) -> Done {
    capture::forbid()?;
    device::get(device::current())?.check()?;
    rows.check(kind)?;
    rows.copy();
    Ok(())
}

/// Writes `count` values of `N` bytes.
fn set<const N: usize>(target: usize, value: [u8; N], count: usize, stream: Handle) -> Done {
    let stream = STREAMS.get(stream)?;
    device::get(stream.device)?.check()?;
    if count > 0 && memory::place(target, count * N).is_none() {
        return Err(INVALID_VALUE);
    }
    stream.issue(Task::new(move || {
        for index in 0..count {
            // SAFETY: the range lies in an allocation, as was checked when the call was issued.
            unsafe { (target as *mut [u8; N]).add(index).write_unaligned(value) };
        }
        Ok(())
    }))
}

fn allocate(to: *mut *mut c_void, bytes: usize, place: Place) -> Done {
    if to.is_null() {
        return Err(INVALID_VALUE);
    }
    capture::forbid()?;
    device::get(device::current())?.check()?;
    let kind = if place == Place::Pinned { "pinned" } else { "alloc" };
    if fault::strikes(kind, "") {
        return Err(OUT_OF_MEMORY);
    }
    let address = if bytes == 0 { 0 } else { memory::allocate(bytes, place)? };
    // SAFETY: the output pointer is valid for the call.
    unsafe { to.write(address as *mut c_void) };
    Ok(())
}

fn free(address: *mut c_void, pinned: bool) -> Done {
    if address.is_null() {
        return Ok(());
    }
    capture::forbid()?;
    // Freeing waits for what may use the memory, unless the device failed.
    for stream in STREAMS.all() {
        if memory::place(address as usize, 0) == Some(Place::Device(stream.device)) && stream.capture().is_none() {
            let _ = stream.synchronize();
        }
    }
    memory::free(address as usize, pinned)
}

hip! {
    fn hipMalloc(to: *mut *mut c_void, bytes: usize) { allocate(to, bytes, Place::Device(device::current())) }
    fn hipMallocManaged(to: *mut *mut c_void, bytes: usize, flags: c_uint) {
        // Reached by all devices, or by the host alone at first.
        if !matches!(flags, 1 | 2) {
            return Err(INVALID_VALUE);
        }
        allocate(to, bytes, Place::Managed)
    }
    fn hipFree(address: *mut c_void) { free(address, false) }
    fn hipHostMalloc(to: *mut *mut c_void, bytes: usize, _flags: c_uint) { allocate(to, bytes, Place::Pinned) }
    fn hipHostFree(address: *mut c_void) { free(address, true) }
    fn hipMemcpyAsync(to: *mut c_void, from: *const c_void, bytes: usize, kind: c_int, stream: Handle) {
        copy_async(Rows::one(to, from, bytes), kind, stream)
    }
    fn hipMemcpyHtoDAsync(to: *mut c_void, from: *const c_void, bytes: usize, stream: Handle) {
        copy_async(Rows::one(to, from, bytes), 1, stream)
    }
    fn hipMemcpyDtoHAsync(to: *mut c_void, from: *const c_void, bytes: usize, stream: Handle) {
        copy_async(Rows::one(to, from, bytes), 2, stream)
    }
    fn hipMemcpyDtoDAsync(to: *mut c_void, from: *const c_void, bytes: usize, stream: Handle) {
        copy_async(Rows::one(to, from, bytes), 3, stream)
    }
    fn hipMemcpyPeerAsync(
        to: *mut c_void, _target: c_int, from: *const c_void, _source: c_int, bytes: usize, stream: Handle,
    ) {
        copy_async(Rows::one(to, from, bytes), 3, stream)
    }
    fn hipMemcpy2DAsync(
        to: *mut c_void, target_pitch: usize, from: *const c_void, source_pitch: usize, width: usize, height: usize,
        kind: c_int, stream: Handle,
    ) {
        let (target, source) = (to as usize, from as usize);
        copy_async(Rows { target, source, width, height, target_pitch, source_pitch }, kind, stream)
    }
    fn hipMemcpy(to: *mut c_void, from: *const c_void, bytes: usize, kind: c_int) {
        copy_now(Rows::one(to, from, bytes), kind)
    }
    fn hipMemcpyHtoD(to: *mut c_void, from: *const c_void, bytes: usize) { copy_now(Rows::one(to, from, bytes), 1) }
    fn hipMemcpyDtoH(to: *mut c_void, from: *const c_void, bytes: usize) { copy_now(Rows::one(to, from, bytes), 2) }
    fn hipMemcpyDtoD(to: *mut c_void, from: *const c_void, bytes: usize) { copy_now(Rows::one(to, from, bytes), 3) }
    fn hipMemsetAsync(to: *mut c_void, value: c_int, bytes: usize, stream: Handle) {
        set(to as usize, [value as u8], bytes, stream)
    }
    fn hipMemsetD8Async(to: *mut c_void, value: u8, count: usize, stream: Handle) {
        set(to as usize, [value], count, stream)
    }
    fn hipMemsetD16Async(to: *mut c_void, value: u16, count: usize, stream: Handle) {
        set(to as usize, value.to_le_bytes(), count, stream)
    }
    fn hipMemsetD32Async(to: *mut c_void, value: c_int, count: usize, stream: Handle) {
        set(to as usize, value.to_le_bytes(), count, stream)
    }
}

/// `hipIpcMemHandle_t`, of which this double uses the first bytes.
#[repr(C)]
pub struct IpcHandle([u64; 8]);

hip! {
    fn hipIpcGetMemHandle(handle: *mut IpcHandle, address: *mut c_void) {
        let [process, file, bytes] = memory::export(address as usize)?;
        handle.write(IpcHandle([process, file, bytes, 0, 0, 0, 0, 0]));
        Ok(())
    }
    fn hipIpcOpenMemHandle(to: *mut *mut c_void, handle: IpcHandle, _flags: c_uint) {
        let [process, file, bytes, ..] = handle.0;
        device::get(device::current())?.check()?;
        if fault::strikes("import", "") { return Err(INVALID_VALUE) }
        to.write(memory::import([process, file, bytes], device::current())? as *mut c_void);
        Ok(())
    }
    fn hipIpcCloseMemHandle(address: *mut c_void) { memory::close(address as usize) }
    fn hipHostRegister(address: *mut c_void, bytes: usize, _flags: c_uint) { memory::lend(address as usize, bytes) }
    fn hipHostUnregister(address: *mut c_void) { memory::take_back(address as usize) }
    fn hipHostGetDevicePointer(to: *mut *mut c_void, address: *mut c_void, _flags: c_uint) {
        match memory::place(address as usize, 0) {
            Some(Place::Pinned | Place::Lent) => to.write(address),
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    }
}

unsupported! {
    hipMallocAsync hipFreeAsync hipMallocFromPoolAsync hipMemPoolCreate
    hipMemPoolDestroy hipMemPoolSetAttribute hipMemPoolGetAttribute hipMemPoolSetAccess hipMemPoolTrimTo
    hipDeviceGetDefaultMemPool
}
