//! What one device does with another: reach its memory, copy to it, and say by what they are joined.

use std::ffi::{c_int, c_void};

use crate::backend::gpu::Call;
use crate::ops::Copy as CopyLaunch;

use super::Hip;
use super::driver::number;
use super::table::Stream;

impl Hip {
    /// Whether this device can read and write the memory of another.
    pub(super) fn can_access(&self, other: &Self) -> Call<bool> {
        let mut can = 0;
        let (own, other) = (self.index as c_int, other.index as c_int);
        // SAFETY: the place is valid for the call.
        let code = unsafe { (self.driver.table.can_access_peer)(&mut can, own, other) };
        self.check("hipDeviceCanAccessPeer", code).map(|()| can != 0)
    }

    /// From now on it may.
    pub(super) fn enable_access(&self, other: &Self) -> Call {
        self.use_device()?;
        // SAFETY: the index is that of a device.
        match unsafe { (self.driver.table.enable_peer_access)(other.index as c_int, 0) } {
            number::PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            code => self.check("hipDeviceEnablePeerAccess", code),
        }
    }

    /// A copy row by row to a device that this one does not reach: the runtime goes by way of the host. The function that
    /// is named after peers is not for this: no capture sees it.
    ///
    /// # Safety
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

    /// The link to another device, as the runtime knows it: `xGMI, 1 hop`.
    pub(super) fn link_to(&self, other: &Self) -> Option<String> {
        let ask = self.driver.table.link_type?;
        let (mut kind, mut hops) = (0, 0);
        // SAFETY: both places are valid for the call.
        let code = unsafe { ask(self.index as c_int, other.index as c_int, &mut kind, &mut hops) };
        (code == 0).then(|| link_text(kind, hops))
    }
}

/// A link in words; the numbers are those of the HSA runtime.
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
