//! Memory spaces.

/// A memory space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// The GPU's own memory.
    Device,
    /// Page-locked host memory, which copy engines and kernels access directly.
    Pinned,
    /// Memory whose pages the driver moves between the device and the host on access.
    Managed,
    /// Pageable host memory. A copy to or from it uses a staging buffer and blocks the host.
    Host,
}

impl Space {
    /// Number of spaces.
    pub const COUNT: usize = Space::ALL.len();

    /// Every space, in the order of [`Space::index`].
    pub const ALL: [Space; 4] = [Space::Device, Space::Pinned, Space::Managed, Space::Host];

    /// Position of this space in a list with an entry for each.
    pub fn index(self) -> usize {
        self as usize
    }

    /// Name in the language.
    pub fn name(self) -> &'static str {
        match self {
            Space::Device => "device",
            Space::Pinned => "pinned",
            Space::Managed => "managed",
            Space::Host => "host",
        }
    }

    /// The space of that name; `None` if there is none.
    pub fn from_name(name: &str) -> Option<Space> {
        Self::ALL.into_iter().find(|space| space.name() == name)
    }

    /// True for the spaces whose memory is always in the host: pinned and pageable memory, not managed memory.
    pub fn in_host(self) -> bool {
        matches!(self, Space::Pinned | Space::Host)
    }

    /// Whether kernels can access it.
    pub fn on_device(self) -> bool {
        self != Space::Host
    }
}
