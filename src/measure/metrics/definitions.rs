//! Definitions of all metrics, the single source of `aorta explain metric` and the book's table.

/// Definition of a metric.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    pub name: &'static str,
    /// Text by which a workload refers to the metric; empty for metrics that appear in reports only.
    pub usage: &'static str,
    /// Summary in one line.
    pub summary: &'static str,
    pub formula: &'static str,
    /// Unit of the metric's value in the record; `1` for a ratio.
    pub unit: &'static str,
    /// The kind of samples that the value is the median of.
    pub samples: &'static str,
    /// The questions that the metric answers.
    pub good_for: &'static str,
    /// Cases in which the metric misleads.
    pub traps: &'static str,
}

/// Returns the definition of a metric; `None` if there is none of that name.
pub fn find(name: &str) -> Option<&'static Definition> {
    DEFINITIONS.iter().find(|definition| definition.name == name)
}

const MEASURED: &str = "each measured iteration, or round";
const OBSERVED: &str = "each observed iteration, or round";
const OF_ONE_SLOT: &str = "each observed iteration, of the slot with the longest time";
const NO_SAMPLES: &str = "none: known before the run";

/// The metrics: first those that a workload may use, then those of reports.
pub const DEFINITIONS: &[Definition] = &[
    Definition {
        name: "time",
        usage: "`time`, `time(set)`",
        summary: "the duration of an iteration, or the span of a set in it",
        formula: "end of the last − start of the iteration; of a set, last end − first start",
        unit: "s",
        samples: "each measured iteration, or round; of a set, or beside a figure of observed iterations, each observed \
                  one",
        good_for: "the headline, which the other figures explain",
        traps: "`time(set)` includes everything that runs in between, also operations outside the set, so the spans of several \
                sets can add up to more than an iteration; `busy` does not. With `sync: end`, the time of an iteration is the distance between two ends: throughput, not \
                latency. In `exposed(net) / time`, both come from observed iterations, which take longer because of \
                the stamps; `time.p50` always comes from measured ones",
    },
    Definition {
        name: "busy",
        usage: "`busy`, `busy(set)`",
        summary: "the time in which at least one operation of a set runs",
        formula: "|U(set)|, the length of the union of its spans; if iterations overlap, spans count modulo the iteration's \
                  time, as if all iterations were equal",
        unit: "s",
        samples: OBSERVED,
        good_for: "the time of a set whose operations overlap",
        traps: "an operation counts from its start to its end, also while it waits for compute units, memory or \
                another rank",
    },
    Definition {
        name: "overlap",
        usage: "`overlap(a, b)`",
        summary: "the share of a's busy time in which b is busy too",
        formula: "|U(a) ∩ U(b)| / |U(a)|; if iterations overlap, spans count as those of `busy`",
        unit: "1",
        samples: OBSERVED,
        good_for: "whether computation hides communication or a copy: `overlap(comm, compute)`",
        traps: "not symmetric: other tools divide by either side. It also rises when both sides only slow each other \
                down: read it with `stretch` and `speedup`",
    },
    Definition {
        name: "exposed",
        usage: "`exposed`, `exposed(set)`",
        summary: "the time in which a set runs and no computation does",
        formula: "|U(set) \\ U(computation)|; without a set, of all copies and collectives; if iterations overlap, spans count as \
                  those of `busy`",
        unit: "s",
        samples: OBSERVED,
        good_for: "the upper limit of the gain from hiding communication better",
        traps: "exposed time need not be on the critical path: the iteration may wait for something else meanwhile, \
                which the split of the iteration shows. Copies and collectives are not computation; computation in the \
                set hides itself",
    },
    Definition {
        name: "gap",
        usage: "`gap`, `gap(set)`",
        summary: "the time between the end of the previous operation on a stream and the start of the next",
        formula: "start − end of the previous operation on the same stream of the device",
        unit: "s",
        samples: "each operation of each observed iteration that has a previous one on its stream",
        good_for: "the cost of launching on a stream, and whether the host keeps up",
        traps: "it includes waits for other streams; `delay` does not. It is negative if the two operations overlap. \
                Stamps around each operation widen it",
    },
    Definition {
        name: "delay",
        usage: "`delay`, `delay(set)`",
        summary: "the time between the end of an operation's last dependency and its start",
        formula: "start − max(end of each dependency in the same iteration)",
        unit: "s",
        samples: "each operation of each observed iteration that has a dependency in it",
        good_for: "the cost of an edge between streams, and how long a ready operation waits for the host, a queue or \
                   compute units",
        traps: "it does not include waits for earlier iterations. It can be negative. Stamps around each operation \
                widen it",
    },
    Definition {
        name: "stretch",
        usage: "`stretch`, `stretch(set)`",
        summary: "the duration of operations beside others, relative to their duration alone",
        formula: "Σ duration / Σ duration alone, both without waiting for other ranks; the duration alone is observed \
                  in the run on one stream",
        unit: "1",
        samples: OBSERVED,
        good_for: "the cost of sharing the device: 1 means none",
        traps: "it may be below 1, because alone an operation finds other data in the cache than beside others. Operations of \
                streams with `units` have none where the device limits them, since alone they may use all units",
    },
    Definition {
        name: "flops",
        usage: "`flops`, `flops(set)`",
        summary: "the arithmetic of an iteration, or of a set in it",
        formula: "Σ of the operations' costs; a multiply-add counts as two; the mean over slots",
        unit: "FLOP",
        samples: NO_SAMPLES,
        good_for: "rates: `flops / time`",
        traps: "it counts the arithmetic of the definition, not that of the library's algorithm",
    },
    Definition {
        name: "bytes",
        usage: "`bytes`, `bytes(set)`",
        summary: "the bytes that an iteration, or a set in it, must move",
        formula: "Σ of the operations' costs: each input read once, each output written once. Between ranks, also of a \
                  collective, the larger of the bytes that a rank sends to and receives from others, counted as those of \
                  `bus_bandwidth`. The mean over slots",
        unit: "B",
        samples: NO_SAMPLES,
        good_for: "rates: `bytes / time`",
        traps: "bytes that the cache serves count too, and operands that are parts of one buffer count each; intermediate \
                results of the algorithm do not. If a tensor determines how many rows an operation moves between ranks, \
                the model assumes equal parts that fill the smaller tensor",
    },
    Definition {
        name: "bandwidth",
        usage: "`bandwidth`, `bandwidth(set)`",
        summary: "bytes divided by time",
        formula: "bytes / time; of a set, bytes(set) / |U(set)|, without the time in which operations of the set only \
                  wait for other ranks",
        unit: "B/s",
        samples: "each measured iteration, or round; of a set, or beside a figure of observed iterations, each observed \
                  one",
        good_for: "how close a copy or a kernel comes to the rate of its link or memory",
        traps: "for data in the cache it exceeds the memory's peak. No value if a tensor determines how many rows an operation \
                moves between ranks",
    },
    Definition {
        name: "bus_bandwidth",
        usage: "`bus_bandwidth`, `bus_bandwidth(set)`",
        summary: "the rate of a rank's link in one direction, counted as nccl-tests do",
        formula: "max(Σ sent, Σ received) / |U(operations between ranks)|, without the time in which they only wait. A \
                  send counts its bytes as sent, a recv as received, `copy … at` on each side its own. A collective \
                  counts S·f in both directions: among n ranks f is 2(n−1)/n for all_reduce, (n−1)/n for all_gather, \
                  reduce_scatter and all_to_all, 1 for broadcast and reduce; S is the larger of its input and its \
                  output, in bytes. Collectives with uneven parts count the bytes that go to other ranks and come from \
                  them",
        unit: "B/s",
        samples: OBSERVED,
        good_for: "comparing collectives, transfers and copies between ranks with the link's rate in one direction",
        traps: "no value on one rank, where nothing crosses a link, or if a tensor determines how many rows cross one. An exchange counts one direction, since a link \
                carries both at once. Only an all_reduce that a switch adds can exceed the link's peak",
    },
    Definition {
        name: "critical_path",
        usage: "`critical_path`",
        summary: "the longest chain of dependencies, including the order on each stream, by observed durations",
        formula: "max over chains of Σ duration",
        unit: "s",
        samples: OBSERVED,
        good_for: "the shortest time of this order on each stream. Moving independent operations to other streams can \
                   shorten it",
        traps: "durations are those beside other operations, so they include `stretch` and waiting for other ranks, \
                but not launching. If iterations overlap, it may exceed the time between two ends",
    },
    Definition {
        name: "serial_time",
        usage: "`serial_time`",
        summary: "the time of the same operations on one stream",
        formula: "time, on one stream, in the same mode",
        unit: "s",
        samples: "each iteration, or round, of the run on one stream",
        good_for: "the reference of `speedup`",
        traps: "the host may be the limit on one stream too",
    },
    Definition {
        name: "speedup",
        usage: "`speedup`",
        summary: "the gain from several streams",
        formula: "median of serial_time / time",
        unit: "1",
        samples: MEASURED,
        good_for: "whether streams help: below 1 they cost more than they hide",
        traps: "the reference is the same file on one stream, not the best possible file for one stream. If the run on one stream \
                cannot be gated, ungated times of both are compared, and a note says so",
    },
    Definition {
        name: "slack",
        usage: "`slack`, `slack(set)`",
        summary: "how much later an operation may end without extending the critical path",
        formula: "latest end − earliest end, by the observed durations of the iteration; in the table of operations, \
                  by their medians",
        unit: "s",
        samples: "each operation of each observed iteration",
        good_for: "which operations need not be faster: `slack(set).min` is that of the most urgent one",
        traps: "it ignores launching, and uses durations beside other operations",
    },
    Definition {
        name: "utilization",
        usage: "`utilization`, `utilization(set)`",
        summary: "the share of an iteration in which at least one operation of a set runs",
        formula: "busy(set) / time of the observed iteration",
        unit: "1",
        samples: OBSERVED,
        good_for: "whether a stream or the device always has work: the rest of the time it is idle",
        traps: "busy does not mean efficient: a kernel of one block counts like one that fills the device. `flops / \
                time / device.flops` is the share of the peak",
    },
    Definition {
        name: "memory.peak",
        usage: "`memory.peak`",
        summary: "the bytes of device memory that the run allocates",
        formula: "everything placed on the device: buffers, and scratch for every iteration in flight",
        unit: "B",
        samples: NO_SAMPLES,
        good_for: "the largest size that fits",
        traps: "it does not include what the driver and the vendor's libraries allocate",
    },
    Definition {
        name: "device.units",
        usage: "`device.units`",
        summary: "the compute units of the device",
        formula: "as the device reports: SMs or compute units; processors of a CPU",
        unit: "none, a count",
        samples: NO_SAMPLES,
        good_for: "figures for one unit, and guards: `when device.units >= 132`",
        traps: "no value if the device does not report it",
    },
    Definition {
        name: "device.memory",
        usage: "`device.memory`",
        summary: "the bytes of the device's own memory",
        formula: "as the device reports, all of it",
        unit: "B",
        samples: NO_SAMPLES,
        good_for: "the share that a run needs: `memory.peak / device.memory`",
        traps: "no value on the CPU, which uses the host's memory. Other processes may use part of it",
    },
    Definition {
        name: "device.bandwidth",
        usage: "`device.bandwidth`",
        summary: "the peak bandwidth of the device's memory",
        formula: "from the device's profile, which has it from the datasheet",
        unit: "B/s",
        samples: NO_SAMPLES,
        good_for: "the share of the peak bandwidth: `bytes / time / device.bandwidth`",
        traps: "`bytes` also counts what the cache serves. No value for a device without a profile",
    },
    Definition {
        name: "device.flops",
        usage: "`device.flops`",
        summary: "the rate of the file's arithmetic if each type ran at its peak",
        formula: "Σ flops / Σ (flops / peak of their type), without collectives and copies between host and device",
        unit: "FLOP/s",
        samples: NO_SAMPLES,
        good_for: "the model's utilization of arithmetic (MFU): `flops / time / device.flops`",
        traps: "for one type it is the datasheet's peak; for several, it lies between their peaks. No value for a \
                device without a profile, or a file without arithmetic",
    },
    Definition {
        name: "share_of_peak",
        usage: "",
        summary: "the share of the device's peak rate that an iteration or an operation reaches",
        formula: "of the iteration: Σ flops / peak of their type, over time; and bytes / bandwidth, over time, without \
                  copies from and to the host and between ranks. For bytes that the model of the cache finds there, \
                  the bandwidth is the cache's. For several slots, both are sums over a round. Of an operation: its \
                  time at the peak of the resource that bounds it, over its time without waiting for other ranks",
        unit: "1",
        samples: "the median of the measured iterations, or rounds",
        good_for: "the upper limit of the gain from a better kernel, or from more kernels at the same time",
        traps: "the share of an iteration includes its gaps. If the cache serves more than the model assumes, the \
                share of memory is too large. No value for a device without a profile",
    },
    Definition {
        name: "split",
        usage: "",
        summary: "the parts of an observed iteration's time, along its chain of dependencies",
        formula: "time = operations + stretch + waiting for other ranks + launch + queue + dependency + idle, exactly",
        unit: "s",
        samples: "the observed iteration with the median time, of the slot with the longest time",
        good_for: "what to change first",
        traps: "it is of one observed iteration and includes stamps. Without a run on one stream, `operations` \
                includes the stretch",
    },
    Definition {
        name: "transfer",
        usage: "",
        summary: "the time of an operation between ranks after the last rank has arrived",
        formula: "duration − wait",
        unit: "s",
        samples: OF_ONE_SLOT,
        good_for: "the time on the network without waiting, which a faster link reduces",
        traps: "it includes stamps. It is too short for a rank that can leave before the others arrive: the root of a \
                small broadcast, or a sender whose message is buffered",
    },
    Definition {
        name: "wait",
        usage: "",
        summary: "the time that a send, a receive, a copy to another rank or a collective waits for the last rank to \
                  arrive",
        formula: "max over the matching operations of (duration − their duration), since they end together; if the \
                  ranks' clocks can be compared, limited to (their start − start) within the clocks' error",
        unit: "s",
        samples: OF_ONE_SLOT,
        good_for: "the cost of uneven ranks, and the bubble of a pipeline, which no faster link reduces",
        traps: "a waiting operation may occupy compute units and slow down kernels beside it; the report says by how \
                much. No value if a rank was not observed, or if an iteration has more sends than receives",
    },
    Definition {
        name: "skew",
        usage: "",
        summary: "the time between the first and the last rank's arrival at an operation, or start of an iteration",
        formula: "max over ranks of start − min over ranks of start, on one clock",
        unit: "s",
        samples: OF_ONE_SLOT,
        good_for: "whether ranks run in step",
        traps: "it is never negative, so even equal ranks have some: compare it with its error",
    },
    Definition {
        name: "lateness",
        usage: "",
        summary: "how long after all others a rank arrives at an operation",
        formula: "start − max over the other ranks of start, on one clock",
        unit: "s",
        samples: OF_ONE_SLOT,
        good_for: "the straggler, if its median exceeds its error: that of both clocks and of the median",
        traps: "a rank that is late for one collective made the others wait in the previous one, and may itself have \
                waited. No value if it may be chance, or if hosts do not share a clock",
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
        assert_eq!(asked, Figure::NAMES);
        for definition in DEFINITIONS {
            let texts =
                [definition.summary, definition.formula, definition.unit, definition.good_for, definition.traps];
            assert!(texts.iter().all(|text| !text.is_empty() && !text.contains("  ")), "{}", definition.name);
        }
    }
}
