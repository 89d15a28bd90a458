//! Where memory lies.

/// The space of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// The GPU's own memory.
    Device,
    /// Host memory that copy engines and kernels reach by themselves.
    Pinned,
    /// Ordinary host memory: a copy to or from it goes through a staging buffer and holds the host.
    Host,
}

impl Space {
    pub const ALL: [Space; 3] = [Space::Device, Space::Pinned, Space::Host];

    pub fn name(self) -> &'static str {
        match self {
            Space::Device => "device",
            Space::Pinned => "pinned",
            Space::Host => "host",
        }
    }

    pub fn from_name(name: &str) -> Option<Space> {
        Self::ALL.into_iter().find(|space| space.name() == name)
    }

    /// Whether a kernel can read and write it.
    pub fn on_device(self) -> bool {
        self != Space::Host
    }
}
