//! The records of ranks: times, operations, analysis, and waiting between ranks.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::base::Nanos;
use crate::exec::counters::{CounterValue, UnitBlocks};
use crate::exec::{KernelLaunch, Moment};

use super::Times;

/// Results of one rank.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RankRecord {
    pub rank: u32,
    pub time: Times,
    /// The slot that the following fields describe, except for `observer_effect`: the one with the longest time, the
    /// same on all ranks.
    #[serde(default)]
    pub slot: usize,
    /// Analysis of the slot's time; `None` if no operation was observed.
    pub analysis: Option<AnalysisRecord>,
    /// Operations, from observed iterations.
    pub operations: Vec<OperationRecord>,
    /// Overhead of observation: median times of observed slots over their median unobserved times, minus 1. `None`
    /// without these times.
    pub observer_effect: Option<f64>,
    /// Spans of one observed iteration.
    pub trace: Vec<SpanRecord>,
    /// Occupied compute units during that iteration. Empty unless the run was simulated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub occupied: Vec<OccupiedRecord>,
    /// Start of each observed iteration of the slot on the host's clock. The last is that of `trace`. Empty if one rank
    /// runs alone, or if the clocks could not be aligned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<Moment>,
    /// Arrivals at collectives, sends, receives, and copies to other ranks, in the same iterations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collectives: Vec<ArrivalRecord>,
}

/// The number of compute units that are occupied from a moment on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OccupiedRecord {
    /// Time from the start of the iteration.
    pub at_ns: Nanos,
    /// Number of occupied compute units; a unit that several kernels share counts by its occupied part.
    pub units: f64,
}

/// Arrivals of one rank at a collective or transfer, by observed iteration, from the start of the iteration. An
/// operation that issues several has a record for each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ArrivalRecord {
    /// Number of the operation in the rank's iteration.
    pub id: u32,
    /// The ranks of the group, as numbers in the world; for a copy, its sender and its receiver.
    pub ranks: Vec<u32>,
    /// Name of the stream; empty for a copy between ranks, since copies match by their statement, independent of their streams.
    pub stream: String,
    /// Number of the collective among those of the same ranks and stream in the iteration, from 0; of a transfer, among
    /// those from `from` to `to`; of a copy, the number of its statement.
    pub number: u32,
    /// Sending and receiving rank of a transfer; `None` for a collective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u32>,
    pub starts_ns: Vec<Nanos>,
    pub ends_ns: Vec<Nanos>,
}

/// Skew between ranks in the observed iterations of one slot. Times are medians.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SkewRecord {
    /// Time from the first to the last rank that begins an iteration; `None` without a common clock.
    pub begin_ns: Option<Nanos>,
    /// Error of `begin_ns`: the clocks' errors and the samples' spread. `None` without that time.
    pub begin_error_ns: Option<Nanos>,
    /// The rank that others wait for most; `None` if no difference exceeds its error.
    pub straggler: Option<u32>,
    /// Reason why ranks wait for each other; `None` if they hardly wait, and in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balance: Option<BalanceRecord>,
    pub collectives: Vec<CollectiveRecord>,
}

/// Reason why ranks wait for each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BalanceRecord {
    /// `imbalance` if some ranks work longer than the others, `late rank` if one arrives late without working longer,
    /// `pipeline bubble` if ranks pass data on and wait for each other, otherwise `waiting`.
    pub kind: String,
    /// Minimum, over all ranks, of the share of an iteration that a rank waits.
    pub least_waiting: f64,
    /// Maximum, over all ranks, of the share of an iteration that a rank waits.
    pub most_waiting: f64,
    /// The ranks that the others wait for, if there is an imbalance or a late rank; otherwise empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<u32>,
    /// Median working time in an iteration of the ranks in `ranks`; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_ns: Option<Nanos>,
    /// Median working time in an iteration of the other ranks; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_busy_ns: Option<Nanos>,
    /// The operations that take the ranks in `ranks` longer than the others by the largest total, by name and source location;
    /// `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<BehindRecord>,
}

/// Operations of one name and source location that take some ranks longer than the others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BehindRecord {
    pub name: String,
    pub place: String,
    /// Phase of the operations; `None` outside of phases.
    pub phase: Option<String>,
    /// Median, over the slower ranks, of the operations' total time in an iteration.
    pub time_ns: Nanos,
    /// Median, over the other ranks, of the operations' total time in an iteration.
    pub others_ns: Nanos,
}

/// Matching operations of several ranks: a collective, both sides of a transfer, or a chain of transfers that are
/// issued together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CollectiveRecord {
    /// Name of the operation on the first of the ranks.
    pub name: String,
    pub operation: String,
    /// The participating ranks. A rank with two operations appears twice.
    pub ranks: Vec<u32>,
    /// The operation's number on each rank of `ranks`.
    pub ids: Vec<u32>,
    /// Time once all ranks have arrived: the shortest transfer among its operations.
    pub transfer_ns: Nanos,
    /// Time that each operation waits for those of other ranks.
    pub wait_ns: Vec<Nanos>,
    /// Time from the first to the last arrival; `None` without a common clock.
    pub skew_ns: Option<Nanos>,
    pub skew_error_ns: Option<Nanos>,
    /// The rank that arrives last; `None` if that does not exceed the error.
    pub last: Option<LateRecord>,
}

/// A rank that arrives later than all others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LateRecord {
    pub rank: u32,
    /// Delay after the last of the others.
    pub late_ns: Nanos,
    /// Uncertainty of `late_ns`, which the alignment of the clocks of all ranks leaves.
    pub error_ns: Nanos,
    /// Number of iterations in which the rank arrived last beyond the clocks' error.
    pub times: usize,
    /// Number of observed iterations.
    pub of: usize,
}

/// Breakdown of the time of one slot's observed iterations.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AnalysisRecord {
    /// Description of the largest part of the time that the iteration waits for.
    pub verdict: String,
    /// The remedy that usually helps.
    pub help: String,
    pub split: TimeSplitRecord,
    /// The split of each phase, in the order in which the iteration waits for them. Empty without phases, and in records of
    /// older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseRecord>,
    pub critical_path: PathRecord,
    pub categories: Vec<CategoryRecord>,
    /// Resources that bound the chain's operations; empty in records of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<BoundRecord>,
    /// Total working and waiting time of the rank; `None` in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub totals: Option<TotalsRecord>,
    /// Time of the split's iteration in which each real stream runs an operation, by the number of the stream; empty in records
    /// of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lanes_busy_ns: Vec<Nanos>,
    /// Slowdown of kernels beside waiting operations; `None` if there are none, or without a reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside_waiting: Option<BesideRecord>,
    /// Time at the end of the iteration during which only one real stream has work. `None` if iterations overlap, and in records
    /// of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail_ns: Option<Nanos>,
    /// Achieved share of the device's peaks; `None` without a device profile, or if a tensor determines how much work an operation does.
    pub peak: Option<PeakRecord>,
    /// Waits in hardware queues behind operations of other streams, the longest first; empty if there are none, as a graph, and in
    /// records of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queue_waits: Vec<QueueWaitRecord>,
    /// A sentence about a share of products below the usual one, with a place to look; `None` if it is as usual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unusual: Option<String>,
}

/// Split of one observed iteration, the one with the median time. The parts add up to its time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeSplitRecord {
    pub time_ns: Nanos,
    /// The chain's operations, with their times alone, or their actual times without a run on one stream.
    pub operations_ns: Nanos,
    /// The time that concurrency added to them, signed; `None` without a run on one stream.
    pub stretch_ns: Option<Nanos>,
    /// Time in which operations wait for other ranks before they transfer anything.
    #[serde(default)]
    pub wait_ns: Nanos,
    /// Waiting for a copy engine that copies of other streams occupy.
    #[serde(default)]
    pub engine_ns: Nanos,
    /// Waiting for the host's launch.
    pub launch_ns: Nanos,
    /// Waiting behind another stream's operation on the same hardware queue.
    pub queue_ns: Nanos,
    /// Other time from the end of a dependency to the start of the operation.
    pub dependency_ns: Nanos,
    /// Before the first operation and after the last one.
    pub idle_ns: Nanos,
    /// The operations that the iteration waited for, from its start.
    pub chain: Vec<u32>,
}

impl AnalysisRecord {
    /// The splits of [`AnalysisRecord::phases`], summed by the first name of their paths; `None` for operations without a
    /// phase.
    pub fn outermost_phases(&self) -> IndexMap<Option<&str>, TimeSplitRecord> {
        let mut splits: IndexMap<Option<&str>, TimeSplitRecord> = IndexMap::new();
        for phase in &self.phases {
            let first = phase.phase.as_deref().and_then(|path| path.split('.').next());
            splits.entry(first).or_default().add(&phase.split);
        }
        splits
    }
}

impl TimeSplitRecord {
    /// Number of parts.
    pub const PARTS: usize = 8;

    /// The parts, which add up to the time, with the names of their fields. `None` for an unknown stretch.
    pub fn parts(&self) -> [(&'static str, Option<Nanos>); TimeSplitRecord::PARTS] {
        [
            ("operations_ns", Some(self.operations_ns)),
            ("stretch_ns", self.stretch_ns),
            ("wait_ns", Some(self.wait_ns)),
            ("engine_ns", Some(self.engine_ns)),
            ("launch_ns", Some(self.launch_ns)),
            ("queue_ns", Some(self.queue_ns)),
            ("dependency_ns", Some(self.dependency_ns)),
            ("idle_ns", Some(self.idle_ns)),
        ]
    }

    /// Sum of the parts.
    pub fn sum(&self) -> Nanos {
        self.parts().into_iter().filter_map(|(_, time)| time).sum()
    }

    /// Adds the parts, the time and the chain of a later piece of the same iteration.
    pub fn add(&mut self, later: &TimeSplitRecord) {
        self.time_ns += later.time_ns;
        self.operations_ns += later.operations_ns;
        if let Some(stretch) = later.stretch_ns {
            *self.stretch_ns.get_or_insert_default() += stretch;
        }
        self.wait_ns += later.wait_ns;
        self.engine_ns += later.engine_ns;
        self.launch_ns += later.launch_ns;
        self.queue_ns += later.queue_ns;
        self.dependency_ns += later.dependency_ns;
        self.idle_ns += later.idle_ns;
        self.chain.extend_from_slice(&later.chain);
    }
}

/// Operations that wait in a hardware queue behind an operation of another stream, on which they do not depend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueWaitRecord {
    /// The operation that waits longest.
    pub operation: u32,
    /// The operation that the queue waits for.
    pub behind: u32,
    /// The predicted hardware queue.
    pub queue: u32,
    /// Number of operations that wait so.
    pub operations: usize,
    /// The longest wait.
    pub time_ns: Nanos,
    /// Text to type, or setting to change.
    pub help: String,
}

/// The time that an iteration spends on the operations of one phase: those that it waits for, and the gaps before them.
/// The times of all phases add up to that of the iteration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseRecord {
    /// Path of the phase, such as `forward.layer[3]`; `None` for operations without one.
    pub phase: Option<String>,
    pub split: TimeSplitRecord,
}

/// The critical path of the iteration that the split describes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PathRecord {
    /// Sum of the durations of the path's operations.
    pub length_ns: Nanos,
    /// Time within the iteration in which any operation of the path runs. `None` in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_ns: Option<Nanos>,
    pub operations: Vec<u32>,
}

/// Operations on the chain of one category and bounding resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BoundRecord {
    pub category: String,
    /// The resource that the operations would occupy longest at its peak: `memory`, `bf16`, `h2d`, …; `None` without a device
    /// profile, and for operations that need none.
    pub resource: Option<String>,
    /// True if the operations use a large share of the resource's peak, so that it limits them.
    pub limits: bool,
    /// Time of the operations on the chain.
    pub chain_ns: Nanos,
    /// Time that the operations on the chain would take at the resource's peak.
    pub ideal_ns: Nanos,
}

/// Working and waiting time of a rank in the iteration that the split describes. If iterations overlap, all are assumed
/// to look like this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TotalsRecord {
    /// Time in which any operation computes or transfers.
    pub busy_ns: Nanos,
    /// Time in which any operation transfers data between ranks; contained in `busy_ns`.
    pub transfer_ns: Nanos,
    /// Time in which operations only wait for other ranks.
    pub wait_ns: Nanos,
    /// Slowdown of operations by concurrency, without waiting. `None` without a run on one stream.
    pub stretch: Option<f64>,
}

/// Kernels that ran beside an operation that waited for another rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BesideRecord {
    /// Number of kernels beside a waiting operation per iteration, averaged over the observed iterations.
    pub operations: f64,
    /// Slowdown of the kernels: their time beside a waiting operation over their time without one.
    pub stretch: f64,
}

/// Time of the operations of one category.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CategoryRecord {
    pub category: String,
    pub operations: usize,
    /// Time in which any operation of the category runs, in the iteration that the split describes.
    pub busy_ns: Nanos,
    /// Exposed time of copies and collectives: some of them run and no computation does. `None` for other categories.
    pub exposed_ns: Option<Nanos>,
    /// For operations between ranks: time in which any transfers, and time in which they only wait. The two add up to
    /// `busy_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer_ns: Option<Nanos>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ns: Option<Nanos>,
    /// The operations' part of the chain, without waiting for other ranks.
    pub chain_ns: Nanos,
    /// The part of `chain_ns` that concurrency added, signed; `None` without a run on one stream, and in records of older
    /// versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stretch_ns: Option<Nanos>,
}

/// Achieved shares of the device's peaks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeakRecord {
    /// Name of the device profile whose peaks the shares refer to.
    pub profile: String,
    /// Share of the peak arithmetic rate, each type by its own peak.
    pub flops: f64,
    /// Share of the memory's peak bandwidth, or the cache's for bytes that the cache serves.
    pub bytes: f64,
    /// The busiest link, and the share of its peak; `None` without any traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<(String, f64)>,
}

/// An operation with its observed times.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OperationRecord {
    /// Number of the operation in the order of the text, which `trace` refers to.
    pub id: u32,
    /// The label, or the operation's name.
    pub name: String,
    pub operation: String,
    pub category: String,
    /// Phase of the operation; `None` outside of phases.
    pub phase: Option<String>,
    pub stream: String,
    pub lane: u32,
    /// Source location of the operation.
    pub place: String,
    /// Types, shapes and options.
    pub shape: String,
    /// Short shape: `4096×4096×4096 bf16` of a matrix product; work such as `20 GFLOP` of a synthetic kernel; otherwise its largest
    /// operand, or the smaller one of a copy. Empty in records of older versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub size: String,
    /// Multiplication type of a matrix product, such as `tf32`; `None` for other operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arithmetic: Option<String>,
    /// Direction of a contiguous copy by a copy engine: `h2d`, `d2h` or `d2d`; `peer` for a copy to another rank.
    /// `None` for other operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// True for a copy between the device and pageable host memory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pageable: bool,
    /// Number of pieces that copy engines move one by one, of a copy that a kernel could do too (`via: kernel`); otherwise `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pieces: Option<u64>,
    /// True if a tensor determines how many rows or keys hold data, so that the size, `flops` and `bytes` are assumptions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub assumed: bool,
    /// Bytes over the network for this rank in the larger direction, as nccl-tests count them, of a collective of
    /// several ranks, a send, a receive or a copy to another rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_bytes: Option<f64>,
    /// Number of ranks of a collective of several ranks; `None` for other operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u32>,
    /// Arithmetic operations.
    pub flops: f64,
    /// Bytes that the operation must move.
    pub bytes: u64,
    /// Operations of the iteration that this one depends on.
    pub after: Vec<u32>,
    /// Median of the observed durations; `None` if the operation was not observed.
    pub time_ns: Option<Nanos>,
    /// For an operation between ranks: time of the transfer once all ranks have arrived, and time of waiting for them.
    /// The two add up to `time_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer_ns: Option<Nanos>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ns: Option<Nanos>,
    /// Median of the observed starts, from the start of the iteration; `None` if the operation was not observed.
    pub start_ns: Option<Nanos>,
    /// Median duration of the operation in the run on one stream, without waiting for other ranks; `None` without such a run.
    pub alone_ns: Option<Nanos>,
    /// Time by which the operation could end later without lengthening the critical path; `None` if unknown.
    pub slack_ns: Option<Nanos>,
    /// Time of the operation at the peak of the resource that bounds it; `None` without a device profile.
    pub ideal_ns: Option<Nanos>,
    /// The resource that bounds it: `memory`, `cache`, `vector`, the type of matrix units such as `bf16`, `h2d` or
    /// `d2h` for the link to the host, or the name of the link between ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<String>,
    /// True if the cache serves a part of the operation's bytes, by the model of the cache. `ideal_ns` counts these bytes at the
    /// cache's rate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
    /// Reason why the time is refused; `None` if it is accepted.
    pub refused: Option<String>,
    /// Kernels, copies and fills of the operation in one observed iteration, from the vendor's records; empty if stamps timed it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub launches: Vec<LaunchRecord>,
}

/// A kernel, copy or fill of an operation, from the vendor's records.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LaunchRecord {
    /// Time from the start of the operation to the start of this part.
    pub after_ns: Nanos,
    pub time_ns: Nanos,
    /// Number of the hardware queue, as the vendor counts them; `None` if the vendor's records do not tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<u64>,
    /// Number of the graph's node, as the vendor counts them; `None` outside of graphs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u64>,
    /// Grid, block, registers, shared memory and occupancy; `None` for a copy or a fill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelLaunch>,
}

impl OperationRecord {
    /// The part that takes longest; `None` without the vendor's records.
    pub fn longest_launch(&self) -> Option<&LaunchRecord> {
        self.launches.iter().max_by_key(|launch| launch.time_ns)
    }

    /// Working time: its duration without waiting for other ranks. `None` if it was not observed.
    pub fn work_ns(&self) -> Option<Nanos> {
        self.transfer_ns.or(self.time_ns)
    }
}

/// Hardware counters of an operation, and the compute units that its kernels reported, in runs of their own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CountersRecord {
    /// The operation's number.
    pub id: u32,
    /// The label, or the operation's name.
    pub name: String,
    /// Number of times that the operation ran until all counts were complete; 0 if nothing was counted.
    pub passes: u64,
    /// Counts while the operation ran alone; empty if the device cannot count.
    pub counts: Vec<CounterValue>,
    /// Blocks of the operation's generated kernels in one iteration, by compute unit; empty if none ran.
    pub units: Vec<UnitBlocks>,
}

/// A span of the traced iteration.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SpanRecord {
    pub id: u32,
    pub start_ns: Nanos,
    pub end_ns: Nanos,
}
