//! Access from one device to others: copies, kinds of links.

use std::ffi::{c_int, c_void};

use crate::backend::gpu::runtime::Stream;
use crate::backend::gpu::{Api, Call, PeerAccess, SyncStep};
use crate::base::counted;
use crate::exec::Fault;
use crate::ops::CopyLaunch;

use super::Hip;
use super::driver::number;

impl PeerAccess for Hip {
    fn reaches(&self, other: &Self) -> Call<bool> {
        let mut can = 0;
        let (own, other) = (self.index as c_int, other.index as c_int);
        // SAFETY: the output pointer is valid for the call.
        let code = unsafe { (self.driver.table.can_access_peer)(&mut can, own, other) };
        self.check("hipDeviceCanAccessPeer", code).map(|()| can != 0)
    }

    fn reach(&self, other: &Self) -> Call {
        self.use_device()?;
        // SAFETY: the index is that of a device.
        match unsafe { (self.driver.table.enable_peer_access)(other.index as c_int, 0) } {
            number::PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            code => self.check("hipDeviceEnablePeerAccess", code),
        }
    }

    /// Copies row by row through host memory, to a device that this one cannot access. The runtime's peer copy is not
    /// used because a capture does not record it.
    unsafe fn copy_staged(&self, copy: &CopyLaunch, source: u64, (target, _): (u64, &Self), stream: Stream) -> Call {
        (0..copy.rows).try_for_each(|row| {
            let to = (target + row * copy.target_pitch) as *mut c_void;
            let from = (source + row * copy.source_pitch) as *mut c_void;
            // SAFETY: the caller vouches for memory and stream.
            let code = unsafe { (self.driver.table.copy_on_device)(to, from, copy.row_bytes as usize, stream) };
            self.check("hipMemcpyDtoDAsync", code)
        })
    }

    unsafe fn execute_steps(&self, _: &[SyncStep], _: Stream) -> Call {
        Err(Fault::new("execute_steps", "on HIP, kernels raise and await flags"))
    }

    fn link(&self, other: &Self) -> Option<String> {
        let ask = self.driver.table.link_type?;
        let (mut kind, mut hops) = (0, 0);
        // SAFETY: both output pointers are valid for the call.
        let code = unsafe { ask(self.index as c_int, other.index as c_int, &mut kind, &mut hops) };
        (code == 0).then(|| link_text(kind, hops))
    }
}

/// Describes a link by the HSA runtime's number of its type.
fn link_text(kind: u32, hops: u32) -> String {
    let name = match kind {
        0 => "HyperTransport".to_owned(),
        1 => "QPI".to_owned(),
        2 => "PCIe".to_owned(),
        3 => "InfiniBand".to_owned(),
        4 => "xGMI".to_owned(),
        other => format!("link {other}"),
    };
    format!("{name}, {}", counted(hops as usize, "hop"))
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
