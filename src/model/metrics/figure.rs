//! Metrics of the language, by name. `measure::definitions` has their formulas.

use crate::base::named::named;
use crate::base::units::Dimension;

named! {
    /// A metric of the language: a quantity that a run measures or that is derived from a plan. Metrics that a file declares are
    /// [`Metric`](crate::model::Metric)s.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Figure {
        /// Time from the start of an iteration, or of the first operation of a set, to the end of the last.
        Time = "time",
        /// Time during which any operation of a set runs.
        Busy = "busy",
        /// Fraction of one set's busy time during which another set is busy too.
        Overlap = "overlap",
        /// The time in which a set runs and no computation does.
        Exposed = "exposed",
        /// Time from the end of the previous operation on the same real stream to an operation's start; can be negative.
        Gap = "gap",
        /// Time from the completion of an operation's last dependency to its start; can be negative.
        Delay = "delay",
        /// Duration divided by the duration when running alone.
        Stretch = "stretch",
        /// Arithmetic of an iteration or of a set.
        Flops = "flops",
        /// Bytes that an iteration or a set has to move.
        Bytes = "bytes",
        /// Bytes divided by time; for a set, divided by its busy time.
        Bandwidth = "bandwidth",
        /// Network bytes of collectives, divided by the time during which any of them runs.
        BusBandwidth = "bus_bandwidth",
        /// The longest chain of dependencies, with observed durations.
        CriticalPath = "critical_path",
        /// The time of the same operations on one stream.
        SerialTime = "serial_time",
        /// Serial time divided by time.
        Speedup = "speedup",
        /// Time by which an operation may end later without lengthening the critical path.
        Slack = "slack",
        /// Fraction of an iteration during which any operation of a set runs.
        Utilization = "utilization",
        /// Device memory that the run allocates, in bytes.
        MemoryPeak = "memory.peak",
        /// Number of compute units (SMs) of the device.
        DeviceUnits = "device.units",
        /// Size of the device's memory, in bytes.
        DeviceMemory = "device.memory",
        /// Peak bandwidth of the device's memory.
        DeviceBandwidth = "device.bandwidth",
        /// Peak arithmetic rate of the device for the file's mix of element types.
        DeviceFlops = "device.flops",
    }
}

/// Number of sets that a metric takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sets {
    /// The metric takes no set, and describes the whole iteration.
    None,
    /// Zero or one set; without a set, the metric describes the whole iteration.
    Optional,
    /// Two, which are compared.
    Two,
}

/// Condition under which the value of a metric comes from iterations in which each operation was timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObservedWhen {
    Never,
    /// The metric is of a set of operations.
    OfSet,
    Always,
}

impl Figure {
    /// Returns the properties that distinguish metrics: the dimension of the value, the sets of operations, and where the value
    /// comes from.
    fn properties(self) -> (Dimension, Sets, ObservedWhen) {
        const RATE: Dimension = Dimension { time: -1, bytes: 1, flops: 0 };
        match self {
            Figure::Time => (Dimension::TIME, Sets::Optional, ObservedWhen::OfSet),
            Figure::Busy | Figure::Exposed | Figure::Gap | Figure::Delay | Figure::Slack => {
                (Dimension::TIME, Sets::Optional, ObservedWhen::Always)
            }
            Figure::CriticalPath => (Dimension::TIME, Sets::None, ObservedWhen::Always),
            Figure::SerialTime => (Dimension::TIME, Sets::None, ObservedWhen::Never),
            Figure::Flops => (Dimension::FLOPS, Sets::Optional, ObservedWhen::Never),
            Figure::Bytes => (Dimension::BYTES, Sets::Optional, ObservedWhen::Never),
            Figure::Bandwidth => (RATE, Sets::Optional, ObservedWhen::OfSet),
            Figure::BusBandwidth => (RATE, Sets::Optional, ObservedWhen::Always),
            Figure::Overlap => (Dimension::NONE, Sets::Two, ObservedWhen::Always),
            Figure::Stretch | Figure::Utilization => (Dimension::NONE, Sets::Optional, ObservedWhen::Always),
            Figure::Speedup | Figure::DeviceUnits => (Dimension::NONE, Sets::None, ObservedWhen::Never),
            Figure::MemoryPeak | Figure::DeviceMemory => (Dimension::BYTES, Sets::None, ObservedWhen::Never),
            Figure::DeviceBandwidth => (RATE, Sets::None, ObservedWhen::Never),
            Figure::DeviceFlops => (Dimension { time: -1, bytes: 0, flops: 1 }, Sets::None, ObservedWhen::Never),
        }
    }

    /// True if the value comes from iterations in which each operation was timed. `of_set` is true if the metric has a
    /// set of operations as its argument.
    pub fn is_observed(self, of_set: bool) -> bool {
        match self.properties().2 {
            ObservedWhen::Never => false,
            ObservedWhen::OfSet => of_set,
            ObservedWhen::Always => true,
        }
    }

    /// True if the value is a share of a time, which a metric without a unit shows in percent.
    pub(super) fn is_share(self) -> bool {
        matches!(self, Figure::Overlap | Figure::Utilization)
    }

    /// Dimension of the figure's values.
    pub fn dimension(self) -> Dimension {
        self.properties().0
    }

    /// Returns how many sets of operations the figure takes.
    pub fn sets(self) -> Sets {
        self.properties().1
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
