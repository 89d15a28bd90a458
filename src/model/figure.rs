//! Metrics of the language by name. `measure::definitions` has their formulas.

use crate::base::units::Dimension;

/// A quantity that a run measures or that is derived from a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Figure {
    /// Time from the begin of an iteration, or of the first operation of a set, to the end of the last.
    Time,
    /// Time during which any operation of a set runs.
    Busy,
    /// Fraction of one set's busy time during which another set is busy too.
    Overlap,
    /// The time in which a set runs and no computation does.
    Exposed,
    /// Time from the end of the previous operation on the same real stream to an operation's start; can be negative.
    Gap,
    /// Time from the completion of an operation's last dependency to its start; can be negative.
    Delay,
    /// Duration divided by the duration when running alone.
    Stretch,
    /// Arithmetic of an iteration or of a set.
    Flops,
    /// Bytes that an iteration or a set has to move.
    Bytes,
    /// Bytes divided by time; for a set, divided by its busy time.
    Bandwidth,
    /// Network bytes of collectives, divided by the time during which any of them runs.
    BusBandwidth,
    /// The longest chain of dependencies, with observed durations.
    CriticalPath,
    /// The time of the same operations on one stream.
    SerialTime,
    /// Serial time divided by time.
    Speedup,
    /// How much later an operation may end without making the critical path longer.
    Slack,
    /// Fraction of an iteration during which any operation of a set runs.
    Utilization,
    /// Device memory that the run allocates, in bytes.
    MemoryPeak,
    /// Properties of the device: compute units, memory, and peak rates.
    DeviceUnits,
    DeviceMemory,
    DeviceBandwidth,
    DeviceFlops,
}

/// Number of sets that a metric takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sets {
    /// None: the metric describes the whole iteration.
    None,
    /// Zero or one set; without a set, the metric describes the whole iteration.
    Optional,
    /// Two, which are compared.
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

    /// True if the value comes from iterations in which each operation was timed. `of_set`: the metric is asked of a
    /// set.
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

    /// True if the value can differ between slots of the cycle.
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

    /// True if the value needs a run of the same operations on one stream.
    pub fn needs_single_stream_run(self) -> bool {
        matches!(self, Figure::SerialTime | Figure::Speedup | Figure::Stretch)
    }
}
