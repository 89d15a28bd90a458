//! Definitions of all metrics, the single source of `aorta explain metric` and the book's table.

/// Definition of a metric.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    pub name: &'static str,
    /// How a workload refers to it; empty for metrics that appear in reports only.
    pub usage: &'static str,
    /// Summary in one line.
    pub summary: &'static str,
    pub formula: &'static str,
    /// Unit of its value in the record.
    pub unit: &'static str,
    /// The samples whose median is the value.
    pub samples: &'static str,
    /// Its purpose.
    pub good_for: &'static str,
    /// How it can mislead.
    pub traps: &'static str,
}

/// Returns the definition of a metric; `None` if there is none of that name.
pub fn find(name: &str) -> Option<&'static Definition> {
    DEFINITIONS.iter().find(|definition| definition.name == name)
}

const MEASURED: &str = "each measured iteration, or round";
const OBSERVED: &str = "each observed iteration, or round";
const OF_ONE_SLOT: &str = "each observed iteration, of the slot that takes longest";
const NO_SAMPLES: &str = "none: it is known before the run";

/// All metrics: first those that a workload may use, then those of reports.
pub const DEFINITIONS: &[Definition] = &[
    Definition {
        name: "time",
        usage: "`time`, `time(set)`",
        summary: "how long an iteration takes, or a set in it",
        formula: "end of the last − begin; of a set, last end − first start",
        unit: "s",
        samples: "each measured iteration, or round; of a set, or beside a figure of observed iterations, each observed \
                  one",
        good_for: "the headline: the time that everything else explains",
        traps: "`time(set)` holds what runs between, whether it belongs to the set or not; `busy` does not. With \
                `sync: end`, the time of an iteration is from one end to the next: throughput, not latency. In \
                `exposed(net) / time`, both are of observed iterations, which timing makes longer; `time.p50` is of \
                the measured ones everywhere",
    },
    Definition {
        name: "busy",
        usage: "`busy`, `busy(set)`",
        summary: "how long any operation of a set runs",
        formula: "|U(set)|, the length of the union of its spans",
        unit: "s",
        samples: OBSERVED,
        good_for: "what a set costs where its operations overlap",
        traps: "an operation counts from its start to its end, also while it waits for units, memory or another rank",
    },
    Definition {
        name: "overlap",
        usage: "`overlap(a, b)`",
        summary: "the share of a's busy time in which b is busy too",
        formula: "|U(a) ∩ U(b)| / |U(a)|",
        unit: "1",
        samples: OBSERVED,
        good_for: "whether communication, or a copy, hides behind computation: `overlap(comm, compute)`",
        traps: "not symmetric: tools divide by either side. It rises when both sides slow each other down, and nothing \
                is gained: read it beside `stretch` and `speedup`",
    },
    Definition {
        name: "exposed",
        usage: "`exposed`, `exposed(set)`",
        summary: "how long a set runs while no computation does",
        formula: "|U(set) \\ U(computation)|; without a set, of all copies and collectives",
        unit: "s",
        samples: OBSERVED,
        good_for: "the most that hiding communication better could gain",
        traps: "exposed is not blocking: an iteration may wait for something else meanwhile; the split of the iteration \
                tells. Copies and collectives are no computation; computation in the set hides itself",
    },
    Definition {
        name: "gap",
        usage: "`gap`, `gap(set)`",
        summary: "from the end of an operation's neighbour on its real stream to its start",
        formula: "start − end of the operation before it on its real stream",
        unit: "s",
        samples: "each operation of each observed iteration that has a neighbour before it",
        good_for: "what launching costs on a stream, and whether the host keeps up",
        traps: "it holds waits for other streams; `delay` does not. Signs are kept: it is negative where neighbours \
                overlap. Stamps around each operation widen it",
    },
    Definition {
        name: "delay",
        usage: "`delay`, `delay(set)`",
        summary: "from the end of the last thing that an operation waits for to its start",
        formula: "start − max(end of everything that it waits for in its iteration)",
        unit: "s",
        samples: "each operation of each observed iteration that waits for something in it",
        good_for: "what an edge between streams costs, and how long what is ready waits for the host, a queue or units",
        traps: "waits for earlier iterations are not seen. Signs are kept. Stamps around each operation widen it",
    },
    Definition {
        name: "stretch",
        usage: "`stretch`, `stretch(set)`",
        summary: "how much longer operations take beside others than alone",
        formula: "Σ duration / Σ duration alone, both without waiting for other ranks; alone as observed in the run on \
                  one stream",
        unit: "1",
        samples: OBSERVED,
        good_for: "what sharing the device costs: 1 where nothing is lost",
        traps: "alone, an operation finds other data in the cache than beside others: it may be below 1",
    },
    Definition {
        name: "flops",
        usage: "`flops`, `flops(set)`",
        summary: "arithmetic of an iteration, or of a set in it",
        formula: "Σ of the operations' costs; a multiply-add counts as two; of several slots the mean",
        unit: "FLOP",
        samples: NO_SAMPLES,
        good_for: "rates: `flops / time`",
        traps: "it counts what the operation means, not what a library does for it",
    },
    Definition {
        name: "bytes",
        usage: "`bytes`, `bytes(set)`",
        summary: "bytes that an iteration, or a set in it, has to move",
        formula: "Σ of the operations' costs: each input read once, each output written once. Between ranks, the larger \
                  of what a rank sends and what it receives, once. Of several slots the mean",
        unit: "B",
        samples: NO_SAMPLES,
        good_for: "rates: `bytes / time`",
        traps: "what the cache serves counts too",
    },
    Definition {
        name: "bandwidth",
        usage: "`bandwidth`, `bandwidth(set)`",
        summary: "bytes over time",
        formula: "bytes / time; of a set, bytes(set) / |U(set)|, without the time in which operations of the set only \
                  wait for other ranks",
        unit: "B/s",
        samples: "each measured iteration, or round; of a set, or beside a figure of observed iterations, each observed \
                  one",
        good_for: "how near a copy or a kernel comes to its link or memory",
        traps: "of the memory only where the data does not fit the cache: in the cache it exceeds the memory's peak",
    },
    Definition {
        name: "bus_bandwidth",
        usage: "`bus_bandwidth`, `bus_bandwidth(set)`",
        summary: "the rate of a rank's link in one direction, as nccl-tests count it",
        formula: "max(Σ sent, Σ received) / |U(operations between ranks)|, without the time in which they only wait. A \
                  send counts its bytes as sent, a recv as received, `copy … at` on each side its own. A collective \
                  counts S·f both ways: among n ranks f is 2(n−1)/n for all_reduce, (n−1)/n for all_gather, \
                  reduce_scatter and all_to_all, 1 for broadcast and reduce; S is the larger side's bytes. Uneven parts \
                  count what goes to other ranks, and what comes from them",
        unit: "B/s",
        samples: OBSERVED,
        good_for: "comparing collectives, transfers and copies between ranks with the link's rate in one direction",
        traps: "absent on one rank, where nothing crosses a link. An exchange counts one direction, since a link carries \
                both at once. Only where a switch adds up what ranks send, an all_reduce exceeds the link's peak",
    },
    Definition {
        name: "critical_path",
        usage: "`critical_path`",
        summary: "the longest chain of dependencies, by observed durations",
        formula: "max over chains of Σ duration",
        unit: "s",
        samples: OBSERVED,
        good_for: "what no further stream can shorten",
        traps: "durations are those beside others, so it holds their `stretch`, and waiting for other ranks. Launching \
                counts for nothing. Where iterations overlap, it may be longer than the time from one end to the next",
    },
    Definition {
        name: "serial_time",
        usage: "`serial_time`",
        summary: "the time of the same operations on one stream",
        formula: "time, on one stream, in the same mode",
        unit: "s",
        samples: "each iteration, or round, of the run on one stream",
        good_for: "the other side of `speedup`",
        traps: "on one stream too, the host may be what limits",
    },
    Definition {
        name: "speedup",
        usage: "`speedup`",
        summary: "what several streams gain",
        formula: "median of serial_time / time",
        unit: "1",
        samples: MEASURED,
        good_for: "whether streams are worth it: below 1 they cost more than they hide",
        traps: "it compares with the same file on one stream, not with the best that one stream could do",
    },
    Definition {
        name: "slack",
        usage: "`slack`, `slack(set)`",
        summary: "how much later an operation may end without making the critical path longer",
        formula: "latest end − earliest end, by the observed durations of the iteration; in the table of operations, by \
                  their medians",
        unit: "s",
        samples: "each operation of each observed iteration",
        good_for: "which operations are not worth making faster: `slack(set).min` is that of the most urgent",
        traps: "launching counts for nothing, and durations are those beside others",
    },
    Definition {
        name: "utilization",
        usage: "`utilization`, `utilization(set)`",
        summary: "the share of an iteration in which any operation of a set runs",
        formula: "|U(set)| / time of the observed iteration; where iterations overlap, operations count modulo that time, \
                  as if each iteration were like this one",
        unit: "1",
        samples: OBSERVED,
        good_for: "whether a stream, or the device, has work all the time: the rest is idle, for this set",
        traps: "busy is not efficient: a kernel of one block counts as one that fills the device. `flops / time / \
                device.flops` tells how much of its peak the device gives",
    },
    Definition {
        name: "memory.peak",
        usage: "`memory.peak`",
        summary: "bytes of the device's memory that the run holds",
        formula: "everything laid out on the device: buffers, and scratch for every iteration under way",
        unit: "B",
        samples: NO_SAMPLES,
        good_for: "how large a size still fits",
        traps: "what the driver and the vendor's libraries take themselves is not in it",
    },
    Definition {
        name: "device.units",
        usage: "`device.units`",
        summary: "compute units of the device",
        formula: "as the device says: multiprocessors; processors of a CPU",
        unit: "1",
        samples: NO_SAMPLES,
        good_for: "figures for one unit, and guards: `when device.units >= 132`",
        traps: "absent where the device does not say",
    },
    Definition {
        name: "device.memory",
        usage: "`device.memory`",
        summary: "bytes of the device's own memory",
        formula: "as the device says, all of it",
        unit: "B",
        samples: NO_SAMPLES,
        good_for: "how much of it a run holds: `memory.peak / device.memory`",
        traps: "absent on the CPU, whose memory is the host's. Others may hold some of it",
    },
    Definition {
        name: "device.bandwidth",
        usage: "`device.bandwidth`",
        summary: "the peak bandwidth of the device's memory",
        formula: "as its profile has it, from the datasheet",
        unit: "B/s",
        samples: NO_SAMPLES,
        good_for: "the share of it that is reached: `bytes / time / device.bandwidth`",
        traps: "what the cache serves counts in `bytes` too. Absent for a device that no profile describes",
    },
    Definition {
        name: "device.flops",
        usage: "`device.flops`",
        summary: "the rate at which the device would do the file's arithmetic at its peaks",
        formula: "Σ flops / Σ (flops / peak of their type), without collectives and copies between host and device",
        unit: "FLOP/s",
        samples: NO_SAMPLES,
        good_for: "the model's utilization of arithmetic (MFU): `flops / time / device.flops`",
        traps: "of one type, it is the datasheet's peak; of several, it lies between theirs. Absent for a device that no \
                profile describes, and for a file without arithmetic",
    },
    Definition {
        name: "share_of_peak",
        usage: "",
        summary: "which part of the device's peak rate an iteration reaches",
        formula: "of the iteration: Σ flops / peak of their type, over time; and bytes / bandwidth of memory or, for \
                  bytes that the model of the cache finds there, of the cache, over time, without copies to and from \
                  the host and between ranks; of several slots, sums over a round. Of an operation: its time at the \
                  peak of the resource that it keeps busy longest, over its time without waiting for other ranks",
        unit: "1",
        samples: "the median of the measured iterations, or rounds",
        good_for: "how much a better kernel, or more of them, could gain at most",
        traps: "that of the iteration contains its gaps. A cache that serves more than the model says makes the share of \
                memory too large. Absent for a device that no profile describes",
    },
    Definition {
        name: "split",
        usage: "",
        summary: "what an observed iteration spent its time on, along the chain that it waited for",
        formula: "time = operations + stretch + waiting for other ranks + launch + queue + dependency + idle, exactly",
        unit: "s",
        samples: "the observed iteration of the median time, of the slot that takes longest",
        good_for: "what to change first",
        traps: "of one observed iteration, stamps included. Without a run on one stream, operations hold their stretch",
    },
    Definition {
        name: "transfer",
        usage: "",
        summary: "what an operation between ranks takes once all have come that it meets",
        formula: "duration − wait",
        unit: "s",
        samples: OF_ONE_SLOT,
        good_for: "what the network takes, apart from waiting: the part that a faster link shortens",
        traps: "stamps included. A rank that may leave before the others have come, as the root of a small broadcast, or \
                the sender of a message that a buffer takes, has a transfer that is too short",
    },
    Definition {
        name: "wait",
        usage: "",
        summary: "how long a send, a receive, a copy to another rank or a collective waits for the last that it meets",
        formula: "max over the operations that it meets of (duration − their duration), which holds as they end \
                  together; but within the clocks' error of (their start − start), where the ranks' clocks can be compared",
        unit: "s",
        samples: OF_ONE_SLOT,
        good_for: "what uneven ranks cost, and the bubble of a pipeline: no faster link helps",
        traps: "an operation that waits may hold units of the device and slow down kernels beside it; the report says by \
                how much. Unknown where a rank was not observed, or where an iteration has more sends than receives",
    },
    Definition {
        name: "skew",
        usage: "",
        summary: "how far apart ranks come to what they do together, or begin an iteration",
        formula: "max over ranks of start − min over ranks of start, on one clock",
        unit: "s",
        samples: OF_ONE_SLOT,
        good_for: "whether ranks go together",
        traps: "it is never negative, so that equal ranks have some too: read it with its error",
    },
    Definition {
        name: "lateness",
        usage: "",
        summary: "how long after all others a rank comes to what they do together",
        formula: "start − max over the other ranks of start, on one clock",
        unit: "s",
        samples: OF_ONE_SLOT,
        good_for: "the straggler, where its median is beyond its error: that of both clocks and of the median",
        traps: "who is late for one collective made the others wait in the one before, and may itself have waited. Absent \
                where it may be chance, and from hosts that do not share a clock",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Figure;

    #[test]
    fn every_figure_of_the_language_is_defined() {
        let asked: Vec<&str> = DEFINITIONS
            .iter()
            .filter(|definition| !definition.usage.is_empty())
            .map(|definition| definition.name)
            .collect();
        assert_eq!(asked, Figure::ALL.map(Figure::name));
        for definition in DEFINITIONS {
            let texts =
                [definition.summary, definition.formula, definition.unit, definition.good_for, definition.traps];
            assert!(texts.iter().all(|text| !text.is_empty() && !text.contains("  ")), "{}", definition.name);
        }
    }
}
