//! The figures of the language, by name. What each is, by a formula, stands in `measure::definitions`.

use crate::base::units::Dimension;

/// What a run measures or a plan knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Figure {
    /// From the beginning of an iteration, or of the first operation of a set, to the end of the last.
    Time,
    /// The time in which any of a set runs.
    Busy,
    /// The share of one set's busy time in which another is busy too.
    Overlap,
    /// The time in which a set runs and no computation does.
    Exposed,
    /// From the end of an operation's neighbour on its real stream to its start; signed.
    Gap,
    /// From the end of the last thing that an operation waits for to its start; signed.
    Delay,
    /// Duration over duration alone.
    Stretch,
    /// Operations of an iteration, or of a set.
    Flops,
    /// Bytes that an iteration, or a set, has to move.
    Bytes,
    /// Bytes over time; of a set, over the time in which any of it runs.
    Bandwidth,
    /// What collectives move over the network, over the time in which any of them runs.
    BusBandwidth,
    /// The longest chain of dependencies, by observed durations.
    CriticalPath,
    /// The time of the same operations on one stream.
    SerialTime,
    /// Serial time over time.
    Speedup,
    /// How much later an operation may end without making the longest chain longer.
    Slack,
    /// The share of an iteration in which any of a set runs.
    Utilization,
    /// Bytes of the device's memory that the run holds.
    MemoryPeak,
    /// Of the device: its compute units, its memory, and its peak rates.
    DeviceUnits,
    DeviceMemory,
    DeviceBandwidth,
    DeviceFlops,
}

/// How many sets a figure may be asked of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sets {
    /// It is of the whole iteration.
    None,
    /// Without a set, it is of the whole iteration.
    Optional,
    /// It compares two.
    Two,
}

impl Figure {
    pub const ALL: [Figure; 21] = [
        Figure::Time,
        Figure::Busy,
        Figure::Overlap,
        Figure::Exposed,
        Figure::Gap,
        Figure::Delay,
        Figure::Stretch,
        Figure::Flops,
        Figure::Bytes,
        Figure::Bandwidth,
        Figure::BusBandwidth,
        Figure::CriticalPath,
        Figure::SerialTime,
        Figure::Speedup,
        Figure::Slack,
        Figure::Utilization,
        Figure::MemoryPeak,
        Figure::DeviceUnits,
        Figure::DeviceMemory,
        Figure::DeviceBandwidth,
        Figure::DeviceFlops,
    ];

    /// Whether it comes from iterations in which each operation was timed; `of_set` says that it is of a set.
    pub fn is_observed(self, of_set: bool) -> bool {
        match self {
            Figure::Time | Figure::Bandwidth => of_set,
            Figure::Busy
            | Figure::Overlap
            | Figure::Exposed
            | Figure::Gap
            | Figure::Delay
            | Figure::Stretch
            | Figure::BusBandwidth
            | Figure::CriticalPath
            | Figure::Slack
            | Figure::Utilization => true,
            Figure::Flops
            | Figure::Bytes
            | Figure::SerialTime
            | Figure::Speedup
            | Figure::MemoryPeak
            | Figure::DeviceUnits
            | Figure::DeviceMemory
            | Figure::DeviceBandwidth
            | Figure::DeviceFlops => false,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Figure::Time => "time",
            Figure::Busy => "busy",
            Figure::Overlap => "overlap",
            Figure::Exposed => "exposed",
            Figure::Gap => "gap",
            Figure::Delay => "delay",
            Figure::Stretch => "stretch",
            Figure::Flops => "flops",
            Figure::Bytes => "bytes",
            Figure::Bandwidth => "bandwidth",
            Figure::BusBandwidth => "bus_bandwidth",
            Figure::CriticalPath => "critical_path",
            Figure::SerialTime => "serial_time",
            Figure::Speedup => "speedup",
            Figure::Slack => "slack",
            Figure::Utilization => "utilization",
            Figure::MemoryPeak => "memory.peak",
            Figure::DeviceUnits => "device.units",
            Figure::DeviceMemory => "device.memory",
            Figure::DeviceBandwidth => "device.bandwidth",
            Figure::DeviceFlops => "device.flops",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Figure> {
        Self::ALL.into_iter().find(|figure| figure.name() == name)
    }

    pub(super) fn dimension(self) -> Dimension {
        match self {
            Figure::Time
            | Figure::Busy
            | Figure::Exposed
            | Figure::Gap
            | Figure::Delay
            | Figure::CriticalPath
            | Figure::SerialTime
            | Figure::Slack => Dimension::TIME,
            Figure::Flops => Dimension::FLOPS,
            Figure::Bytes | Figure::MemoryPeak | Figure::DeviceMemory => Dimension::BYTES,
            Figure::Bandwidth | Figure::BusBandwidth | Figure::DeviceBandwidth => {
                Dimension { time: -1, bytes: 1, flops: 0 }
            }
            Figure::DeviceFlops => Dimension { time: -1, bytes: 0, flops: 1 },
            Figure::Overlap | Figure::Stretch | Figure::Speedup | Figure::Utilization | Figure::DeviceUnits => {
                Dimension::NONE
            }
        }
    }

    pub fn sets(self) -> Sets {
        match self {
            Figure::CriticalPath
            | Figure::SerialTime
            | Figure::Speedup
            | Figure::MemoryPeak
            | Figure::DeviceUnits
            | Figure::DeviceMemory
            | Figure::DeviceBandwidth
            | Figure::DeviceFlops => Sets::None,
            Figure::Overlap => Sets::Two,
            _ => Sets::Optional,
        }
    }

    /// Whether it may differ from one slot of the cycle to the next; else it has nothing to do with iterations.
    pub fn has_slots(self) -> bool {
        !matches!(
            self,
            Figure::MemoryPeak
                | Figure::DeviceUnits
                | Figure::DeviceMemory
                | Figure::DeviceBandwidth
                | Figure::DeviceFlops
        )
    }

    /// Whether it compares with the same operations on one stream, which have to be run for it.
    pub fn wants_serial(self) -> bool {
        matches!(self, Figure::SerialTime | Figure::Speedup | Figure::Stretch)
    }
}
