//! Memory spaces.

/// A memory space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// The GPU's own memory.
    Device,
    /// Page-locked host memory, which copy engines and kernels access directly.
    Pinned,
    /// Pageable host memory. A copy to or from it uses a staging buffer and blocks the host.
    Host,
}

impl Space {
    /// Every space.
    pub const ALL: [Space; 3] = [Space::Device, Space::Pinned, Space::Host];

    /// Name in the language.
    pub fn name(self) -> &'static str {
        match self {
            Space::Device => "device",
            Space::Pinned => "pinned",
            Space::Host => "host",
        }
    }

    /// The space of that name; `None` if there is none.
    pub fn from_name(name: &str) -> Option<Space> {
        Self::ALL.into_iter().find(|space| space.name() == name)
    }

    /// Whether kernels can access it.
    pub fn on_device(self) -> bool {
        self != Space::Host
    }
}
