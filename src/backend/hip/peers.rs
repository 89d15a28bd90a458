//! Access from one device to others, of this process or of other processes: memory, copies, kinds of links.

use std::ffi::{c_int, c_void};

use crate::backend::gpu::runtime::Stream;
use crate::backend::gpu::{Api, Call, Handle};
use crate::exec::Fault;
use crate::ops::Copy as CopyLaunch;

use super::Hip;
use super::driver::number;
use super::table::IpcHandle;

/// The error for an old runtime that lacks a function for memory of other processes.
fn no_function(symbol: &'static str) -> Box<Fault> {
    Fault::new(symbol, "this runtime lacks the function, so it cannot open memory of other processes")
}

impl Hip {
    /// The handle under which another process opens memory of this device.
    ///
    /// # Safety
    ///
    /// As for [`Api`](crate::backend::gpu::Api).
    pub(super) unsafe fn export_memory(&self, address: u64) -> Call<Handle> {
        let export = self.driver.table.ipc_get_mem_handle.ok_or_else(|| no_function("hipIpcGetMemHandle"))?;
        let mut handle = IpcHandle([0; 64]);
        // SAFETY: the output pointer is valid for the call, and the caller vouches for the address.
        let code = unsafe { export(&mut handle, address as *mut c_void) };
        self.check("hipIpcGetMemHandle", code).map(|()| handle.0)
    }

    /// Opens memory of another process and returns its address.
    pub(super) fn import_memory(&self, handle: &Handle) -> Call<u64> {
        let import = self.driver.table.ipc_open_mem_handle.ok_or_else(|| no_function("hipIpcOpenMemHandle"))?;
        let mut address = std::ptr::null_mut();
        // SAFETY: the output pointer is valid for the call; an invalid handle makes the call fail.
        let code = unsafe { import(&mut address, IpcHandle(*handle), number::IPC_LAZY_PEER_ACCESS) };
        self.check("hipIpcOpenMemHandle", code).map(|()| address as u64)
    }

    /// Closes memory of another process.
    ///
    /// # Safety
    ///
    /// As for [`Api`](crate::backend::gpu::Api).
    pub(super) unsafe fn close_memory(&self, address: u64) {
        if let Some(close) = self.driver.table.ipc_close_mem_handle {
            // SAFETY: the caller vouches for the address.
            unsafe { close(address as *mut c_void) };
        }
    }

    /// Makes host memory accessible to devices and returns its address there.
    ///
    /// # Safety
    ///
    /// As for [`Api`](crate::backend::gpu::Api).
    pub(super) unsafe fn register_host(&self, address: u64, bytes: u64) -> Call<u64> {
        let table = &self.driver.table;
        let register = table.host_register.ok_or_else(|| no_function("hipHostRegister"))?;
        let find = table.host_device_pointer.ok_or_else(|| no_function("hipHostGetDevicePointer"))?;
        let flags = number::HOST_REGISTER_PORTABLE | number::HOST_REGISTER_MAPPED;
        // SAFETY: the caller vouches for the memory.
        self.check("hipHostRegister", unsafe { register(address as *mut c_void, bytes as usize, flags) })?;
        let mut there = std::ptr::null_mut();
        // SAFETY: the output pointer is valid for the call, and the memory is registered.
        let code = unsafe { find(&mut there, address as *mut c_void, 0) };
        self.check("hipHostGetDevicePointer", code).map(|()| there as u64)
    }

    /// Undoes `register_host`.
    ///
    /// # Safety
    ///
    /// As for [`Api`](crate::backend::gpu::Api).
    pub(super) unsafe fn unregister_host(&self, address: u64) {
        if let Some(unregister) = self.driver.table.host_unregister {
            // SAFETY: the caller vouches for the address.
            unsafe { unregister(address as *mut c_void) };
        }
    }

    /// True if this device can access the memory of another directly.
    pub(super) fn can_access(&self, other: &Self) -> Call<bool> {
        let mut can = 0;
        let (own, other) = (self.index as c_int, other.index as c_int);
        // SAFETY: the output pointer is valid for the call.
        let code = unsafe { (self.driver.table.can_access_peer)(&mut can, own, other) };
        self.check("hipDeviceCanAccessPeer", code).map(|()| can != 0)
    }

    /// Enables access to the memory of another device.
    pub(super) fn enable_access(&self, other: &Self) -> Call {
        self.use_device()?;
        // SAFETY: the index is that of a device.
        match unsafe { (self.driver.table.enable_peer_access)(other.index as c_int, 0) } {
            number::PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            code => self.check("hipDeviceEnablePeerAccess", code),
        }
    }

    /// Copies row by row through host memory, to a device that this one cannot access. The runtime's peer copy is not
    /// used because a capture does not record it.
    ///
    /// # Safety
    ///
    /// As for [`Api`](crate::backend::gpu::Api).
    pub(super) unsafe fn copy_by_host(&self, copy: &CopyLaunch, source: u64, target: u64, stream: Stream) -> Call {
        (0..copy.rows).try_for_each(|row| {
            let to = (target + row * copy.target_pitch) as *mut c_void;
            let from = (source + row * copy.source_pitch) as *mut c_void;
            // SAFETY: the caller vouches for memory and stream.
            let code = unsafe { (self.driver.table.copy_on_device)(to, from, copy.row_bytes as usize, stream) };
            self.check("hipMemcpyDtoDAsync", code)
        })
    }

    /// The link to another device as the runtime reports it, such as `xGMI, 1 hop`; `None` if it does not.
    pub(super) fn link_to(&self, other: &Self) -> Option<String> {
        let ask = self.driver.table.link_type?;
        let (mut kind, mut hops) = (0, 0);
        // SAFETY: both output pointers are valid for the call.
        let code = unsafe { ask(self.index as c_int, other.index as c_int, &mut kind, &mut hops) };
        (code == 0).then(|| link_text(kind, hops))
    }
}

/// Describes a link. The numbers are those of the HSA runtime.
fn link_text(kind: u32, hops: u32) -> String {
    let name = match kind {
        0 => "HyperTransport".to_owned(),
        1 => "QPI".to_owned(),
        2 => "PCIe".to_owned(),
        3 => "InfiniBand".to_owned(),
        4 => "xGMI".to_owned(),
        other => format!("link {other}"),
    };
    format!("{name}, {hops} hop{}", if hops == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_a_name() {
        assert_eq!(link_text(4, 1), "xGMI, 1 hop");
        assert_eq!(link_text(2, 2), "PCIe, 2 hops");
        assert_eq!(link_text(9, 0), "link 9, 0 hops");
    }
}
