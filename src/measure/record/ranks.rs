//! The part of a record that is of each rank: its times, its operations, what its iterations went into, and how the ranks
//! wait for each other.

use serde::{Deserialize, Serialize};

use crate::base::Nanos;

use super::Times;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RankRecord {
    pub rank: u32,
    pub time: Times,
    /// The slot that all below is of, except for `observer_effect`: that with the longest time, the same on all ranks.
    #[serde(default)]
    pub slot: usize,
    /// What its time went into; nothing where no operation was observed.
    #[serde(default)]
    pub analysis: Option<AnalysisRecord>,
    /// Operation by operation, from iterations in which each was timed.
    pub operations: Vec<OperationRecord>,
    /// What timing operations cost: the median times of observed slots over their median times unobserved, less 1.
    pub observer_effect: Option<f64>,
    /// One iteration, operation by operation.
    pub trace: Vec<SpanRecord>,
    /// When the observed iterations of the slot began, on the host's clock. The last is that of `trace`.
    /// None where one rank runs alone, or where the device's clock could not be compared with the host's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<MomentRecord>,
    /// Its part in what several ranks do together, in the same iterations: collectives, sends, receives, and copies to other
    /// ranks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collectives: Vec<ArrivalRecord>,
}

/// A moment on a host's clock, which all processes of that host share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MomentRecord {
    pub at_ns: Nanos,
    /// How far it may be off to either side.
    pub error_ns: Nanos,
    /// Which host's clock: only moments of equal ones can be compared.
    pub clock: u32,
}

/// One rank's part in a collective or a transfer, by observed iteration, from the iteration's beginning. An operation that
/// issues several together has a part in each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ArrivalRecord {
    /// The operation.
    pub id: u32,
    /// The ranks of the group, as the world counts them; of a copy, its two.
    pub ranks: Vec<u32>,
    /// Empty for a copy to another rank: copies meet at their place of the text, whatever streams they are on.
    pub stream: String,
    /// Which of the iteration's collectives of these ranks on this stream it is, from 0; of a transfer, which of those from
    /// `from` to `to`; of a copy, the number of its place in the text.
    pub number: u32,
    /// Of a transfer: the rank that sends, and the rank that receives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<u32>,
    pub starts_ns: Vec<Nanos>,
    pub ends_ns: Vec<Nanos>,
}

/// How far ranks are apart in the observed iterations of one slot; times are medians.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SkewRecord {
    /// From the first rank that begins an iteration to the last; nothing without a common clock.
    pub begin_ns: Option<Nanos>,
    /// How far that may be off: the clocks' errors and the samples' spread.
    pub begin_error_ns: Option<Nanos>,
    /// The rank that others wait for most; nothing where no difference is beyond its error.
    pub straggler: Option<u32>,
    /// Why ranks wait for each other; `None` where they hardly wait, and in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balance: Option<BalanceRecord>,
    pub collectives: Vec<MeetingRecord>,
}

/// Why ranks wait for each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BalanceRecord {
    /// `imbalance` where some ranks work longer than the others, `late rank` where one comes late without working longer,
    /// `pipeline bubble` where ranks hand data on and wait for each other, else `waiting`.
    pub kind: String,
    /// The share of its iteration that a rank spends waiting: the least and the greatest among the ranks.
    pub least_waiting: f64,
    pub most_waiting: f64,
    /// The ranks that the others wait for, of an imbalance or a late rank; else none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<u32>,
    /// How long these ranks work in an iteration, the median; and the median of the other ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_ns: Option<Nanos>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_busy_ns: Option<Nanos>,
    /// Where these ranks lie behind: the operations of one name and place that take them most longer than the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<BehindRecord>,
}

/// Operations of one name and place that take some ranks longer than the others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BehindRecord {
    pub name: String,
    pub place: String,
    pub phase: Option<String>,
    /// The time of all of them on a rank: the median of the ranks that lie behind, and of the others.
    pub time_ns: Nanos,
    pub others_ns: Nanos,
}

/// Operations that meet, as all their ranks have seen them: a collective, both sides of a transfer, or a chain of
/// transfers that are issued together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeetingRecord {
    /// On the first of its ranks.
    pub name: String,
    pub operation: String,
    /// The ranks that take part; a rank that takes part with two operations appears twice.
    pub ranks: Vec<u32>,
    /// The operation on each of them.
    pub ids: Vec<u32>,
    /// What it takes once all have come: the shortest transfer among its operations.
    pub transfer_ns: Nanos,
    /// How long each operation waits for those of other ranks.
    pub wait_ns: Vec<Nanos>,
    /// From the first arrival to the last; nothing without a common clock.
    pub skew_ns: Option<Nanos>,
    pub skew_error_ns: Option<Nanos>,
    /// The rank that comes last, where that is beyond the error.
    pub last: Option<LateRecord>,
}

/// A rank that comes later than all others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LateRecord {
    pub rank: u32,
    /// Behind the last of the others.
    pub late_ns: Nanos,
    pub error_ns: Nanos,
    /// Iterations in which it came last beyond the clocks' error, and all that were observed.
    pub times: usize,
    pub of: usize,
}

/// What the observed iterations of one slot spent their time on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AnalysisRecord {
    /// What the iteration waits for most, in words.
    pub verdict: String,
    /// What usually helps.
    pub help: String,
    pub split: SplitRecord,
    pub critical_path: PathRecord,
    pub categories: Vec<CategoryRecord>,
    /// What bounds the operations on the chain; none in records of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<BoundRecord>,
    /// How long the rank works and waits; `None` in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub totals: Option<TotalsRecord>,
    /// What waiting costs the kernels beside it; `None` where no kernel runs beside an operation that waits, or nothing is
    /// known of it without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside_waiting: Option<BesideRecord>,
    /// The time at the end of the iteration in which only one real stream has work left. `None` in records of older
    /// versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail_ns: Option<Nanos>,
    /// How much of the device's peaks the iteration reaches; nothing of a device that no profile describes.
    pub peak: Option<PeakRecord>,
}

/// One observed iteration, that of the median time; the parts add up to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SplitRecord {
    pub time_ns: Nanos,
    /// The chain's operations, as long as each takes alone, or as it took where none was timed alone.
    pub operations_ns: Nanos,
    /// What running beside others added to them, signed; nothing without a run on one stream.
    pub stretch_ns: Option<Nanos>,
    /// Operations that wait for other ranks before they transfer anything.
    #[serde(default)]
    pub wait_ns: Nanos,
    /// Waiting for the host to issue.
    pub launch_ns: Nanos,
    /// Waiting behind another stream's operation on the same hardware queue.
    pub queue_ns: Nanos,
    /// From the end of what an operation waited for to its start, the rest.
    pub dependency_ns: Nanos,
    /// Before the first operation and behind the last.
    pub idle_ns: Nanos,
    /// The operations that the iteration waited for, from its beginning.
    pub chain: Vec<u32>,
}

/// The longest chain of dependencies in the iteration that the split is of.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PathRecord {
    /// The sum of the durations of its operations.
    pub length_ns: Nanos,
    /// How long any of its operations runs between the beginning of the iteration and its end. `None` in records of older
    /// versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_ns: Option<Nanos>,
    pub operations: Vec<u32>,
}

/// Operations on the chain of one category that the same resource bounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BoundRecord {
    pub category: String,
    /// The resource that they keep busy longest at its peak: `memory`, `bf16`, `h2d`, …; `None` where no profile describes
    /// the device, and for what needs none.
    pub resource: Option<String>,
    /// Whether they use a large part of the resource's peak, so that it is what limits them.
    pub limits: bool,
    /// Their part of the chain.
    pub chain_ns: Nanos,
    /// How long that part would take at the resource's peak.
    pub ideal_ns: Nanos,
}

/// How long a rank works and waits in the iteration that the split is of. Where iterations overlap, each is taken to look
/// like this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TotalsRecord {
    /// How long any operation computes or transfers.
    pub busy_ns: Nanos,
    /// How long any operation transfers data between ranks; contained in `busy_ns`.
    pub transfer_ns: Nanos,
    /// How long operations only wait for other ranks.
    pub wait_ns: Nanos,
    /// How much longer operations take beside others than alone, without waiting. `None` without a run on one stream.
    pub stretch: Option<f64>,
}

/// Kernels that ran beside an operation that waited for another rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BesideRecord {
    /// Kernels of an iteration; the mean over the observed ones.
    pub operations: f64,
    /// How much longer they take than without.
    pub stretch: f64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CategoryRecord {
    pub category: String,
    pub operations: usize,
    /// How long any of them runs, in the iteration that the split is of.
    pub busy_ns: Nanos,
    /// How long any of them runs and no computation does, for copies and collectives.
    pub exposed_ns: Option<Nanos>,
    /// Of operations between ranks: how long any of them transfers, and how long they only wait. Both add up to `busy_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer_ns: Option<Nanos>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ns: Option<Nanos>,
    /// Their part of the chain that the split's iteration waited for, without waiting for other ranks.
    pub chain_ns: Nanos,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeakRecord {
    /// The profile that the peaks are of.
    pub profile: String,
    /// Of the arithmetic, each type by its own peak.
    pub flops: f64,
    /// Of the memory's bandwidth, or the cache's for what the cache serves.
    pub bytes: f64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OperationRecord {
    /// In the order of the text; what `trace` refers to.
    pub id: u32,
    /// The label, or the operation's name.
    pub name: String,
    pub operation: String,
    pub category: String,
    pub phase: Option<String>,
    pub stream: String,
    pub lane: u32,
    /// Where it stands in the file.
    pub place: String,
    /// What it works on: types, shapes and options.
    pub shape: String,
    /// The same in short: `4096×4096×4096 bf16` of a matrix product, else its largest operand. Empty in records of older
    /// versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub size: String,
    /// Of a matrix product: the type in which the matrix unit multiplies, such as `tf32`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arithmetic: Option<String>,
    /// Of a copy that an engine does in one piece: `h2d`, `d2h` or `d2d`; of one to another rank `peer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// Of a copy to or from the host: its memory there is pageable.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pageable: bool,
    /// Of a collective of several ranks, a send, a receive or a copy to another rank: what crosses the network for the rank,
    /// in the direction that has more, as nccl-tests count it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_bytes: Option<f64>,
    /// Of a collective of several ranks: how many there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u32>,
    pub flops: f64,
    pub bytes: u64,
    /// Operations that it waits for, within the iteration.
    pub after: Vec<u32>,
    /// Median of its duration in the observed iterations; nothing where it was not observed.
    pub time_ns: Option<Nanos>,
    /// Of an operation between ranks: how long it transfers once all ranks have come, and how long it waits for them. Both
    /// add up to `time_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer_ns: Option<Nanos>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ns: Option<Nanos>,
    /// Median of its start.
    pub start_ns: Option<Nanos>,
    /// Median of its duration in the run on one stream, without waiting for other ranks.
    #[serde(default)]
    pub alone_ns: Option<Nanos>,
    /// How much later it may end without making the critical path longer.
    #[serde(default)]
    pub slack_ns: Option<Nanos>,
    /// What it takes at the peak of the resource that bounds it.
    #[serde(default)]
    pub ideal_ns: Option<Nanos>,
    /// That resource: `memory`, `cache`, `vector`, the type of matrix units such as `bf16`, `h2d` or `d2h` for the link to
    /// the host, or the name of the link between ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<String>,
    /// Why its time is refused.
    #[serde(default)]
    pub refused: Option<String>,
}

impl OperationRecord {
    /// How long it works: its duration, without waiting for other ranks. `None` where it was not observed.
    pub fn work_ns(&self) -> Option<Nanos> {
        self.transfer_ns.or(self.time_ns)
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SpanRecord {
    pub id: u32,
    pub start_ns: Nanos,
    pub end_ns: Nanos,
}
