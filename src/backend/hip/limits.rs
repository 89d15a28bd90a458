//! Behaviour of HIP's runtime that depends on its version and cannot be queried. Read from AMD's source of the runtime
//! (CLR), by release; not observed on a device.

use crate::base::Bytes;
use crate::config::PEER_KERNEL_BYTES;

/// Behaviour of the runtime from a version on, which is given as major and minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionBehavior {
    from: (u32, u32),
    /// Number of branches of a graph that run concurrently, unless DEBUG_HIP_FORCE_GRAPH_QUEUES is set; `None` if each
    /// branch runs on a stream of its own.
    pub branches: Option<u32>,
    /// True if a copy within a device can be requested from a copy engine.
    pub copies_without_units: bool,
    /// Largest copy to or from the host, in bytes, for which the runtime uses a kernel, unless GPU_FORCE_BLIT_COPY_SIZE
    /// is set.
    pub host_kernel_bytes: u64,
}

/// Sources: CLR at the tags 5.6.0 to 6.2.2, a branch of 6.3, its main line of October 2024 (the fixed number of
/// branches; assumed up to 6.4, which came next) and a state of 2025 (small copies by a kernel).
const VERSIONS: [VersionBehavior; 4] = [
    VersionBehavior { from: (7, 0), branches: Some(4), copies_without_units: true, host_kernel_bytes: 16 << 10 },
    VersionBehavior { from: (6, 4), branches: Some(4), copies_without_units: true, host_kernel_bytes: 0 },
    VersionBehavior { from: (6, 1), branches: None, copies_without_units: true, host_kernel_bytes: 0 },
    VersionBehavior { from: (0, 0), branches: None, copies_without_units: false, host_kernel_bytes: 0 },
];

impl VersionBehavior {
    /// Returns the behaviour of this version of the runtime.
    pub fn of((major, minor): (u32, u32)) -> VersionBehavior {
        let known = VERSIONS.into_iter().find(|limits| (major, minor) >= limits.from);
        known.expect("the last begins with 0.0")
    }

    /// Describes for the report which copies the runtime makes by a kernel.
    pub fn copies(&self) -> String {
        let host = match self.host_kernel_bytes {
            0 => "to and from the host never".to_owned(),
            bytes => format!("to and from the host up to {} (GPU_FORCE_BLIT_COPY_SIZE)", Bytes(bytes)),
        };
        let within = if self.copies_without_units { "within a device unless `via: dma`" } else { "within a device" };
        format!(
            "a kernel makes those {within}, between devices up to {} (ROC_P2P_SDMA_SIZE), {host}; HSA_ENABLE_SDMA=0 \
             lets kernels make all (by AMD's source, not measured)",
            Bytes(PEER_KERNEL_BYTES)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_the_limits_of_the_last_change_before_it() {
        let of = |major, minor| VersionBehavior::of((major, minor));
        assert!(!of(5, 7).copies_without_units && of(6, 1).copies_without_units);
        assert_eq!([of(6, 3).branches, of(6, 4).branches, of(9, 9).branches], [None, Some(4), Some(4)]);
        assert_eq!([of(6, 4).host_kernel_bytes, of(7, 0).host_kernel_bytes], [0, 16 << 10]);
    }
}
