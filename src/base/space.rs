//! Memory spaces.

use super::named::named;

named! {
    /// A memory space, in the order of [`Space::index`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Space {
        /// The GPU's own memory.
        Device = "device",
        /// Page-locked host memory, which copy engines and kernels access directly.
        Pinned = "pinned",
        /// Memory whose pages the driver moves between the device and the host on access.
        Managed = "managed",
        /// Pageable host memory. A copy to or from it uses a staging buffer and blocks the host.
        Host = "host",
    }
}

impl Space {
    /// Number of spaces.
    pub const COUNT: usize = Space::ALL.len();

    /// Position of this space in a list with an entry for each.
    pub fn index(self) -> usize {
        self as usize
    }

    /// True for the spaces whose memory is always in the host: pinned and pageable memory, not managed memory.
    pub fn in_host(self) -> bool {
        matches!(self, Space::Pinned | Space::Host)
    }

    /// True for the spaces that kernels can access.
    pub fn on_device(self) -> bool {
        self != Space::Host
    }
}
