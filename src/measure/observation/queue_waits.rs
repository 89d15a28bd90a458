//! Head-of-line blocking: operations that wait in a hardware queue behind an operation of another stream, on which they do
//! not depend.

use indexmap::IndexSet;

use crate::base::{Nanos, OpId, counted};
use crate::config::{MAX_QUEUES, Profile, QueueRule, queues_variable};
use crate::exec::{LaunchMode, Span, Trace};
use crate::plan::StepPlan;
use crate::schedule::Lane;

use crate::measure::record::QueueWaitRecord;

/// Share of an iteration above which a wait is reported.
const REPORTED: f64 = 0.05;

/// Share of an iteration that the device spends on starting operations, above which more queues shorten it little.
pub const STARTS: f64 = 0.9;

/// Hardware queues of a launch as streams.
#[derive(Clone, Debug)]
pub struct LaneQueues {
    /// Queue of each real stream as an index of `numbers`; `None` for a host stream.
    pub of_lane: Vec<Option<u32>>,
    /// The vendor's number of each queue. Queues of different priorities may have equal numbers.
    pub numbers: Vec<u32>,
    pub rule: QueueRule,
    /// The vendor of the device, as its profile says; `None` without a profile.
    pub vendor: Option<String>,
    /// Time that the device takes to start an operation that has waited at the head of its queue; 0 without a profile.
    pub start: Nanos,
}

impl LaneQueues {
    /// Queues of real streams on a device with this profile.
    pub fn new(lanes: &[Lane], profile: Option<&Profile>) -> LaneQueues {
        let by_priority = profile.is_some_and(|profile| profile.queues.by_priority);
        let mut queues = IndexSet::new();
        let mut index = |lane: &Lane| queues.insert_full((by_priority.then_some(lane.priority), lane.queue)).0 as u32;
        let of_lane = lanes.iter().map(|lane| lane.threads.is_none().then(|| index(lane))).collect();
        LaneQueues {
            of_lane,
            numbers: queues.into_iter().map(|(_, number)| number).collect(),
            rule: profile.map_or(QueueRule::HeadOfLine, |profile| profile.queues.rule),
            vendor: profile.map(|profile| profile.vendor.clone()),
            start: profile.map_or(Nanos(0), |profile| start(LaunchMode::Stream, profile)),
        }
    }
}

/// Time that a device takes to start an operation that is ready: as streams, one at the head of another queue than the last.
pub fn start(mode: LaunchMode, profile: &Profile) -> Nanos {
    let time = match mode {
        LaunchMode::Stream => profile.queues.dispatch.value() + profile.queues.switch.value(),
        LaunchMode::Graph => profile.graph.dispatch.value(),
    };
    Nanos(time as i64)
}

/// A wait of an operation in its queue.
#[derive(Clone, Copy, Debug)]
struct QueueWait {
    /// Index of the span of the operation that the queue waited for.
    behind: usize,
    /// End of the last dependency of the operation, or the start of the iteration.
    ready: i64,
    /// Moment at which the operation before it left the queue.
    until: i64,
}

/// Waits in hardware queues during an iteration, by the index of the span.
#[derive(Clone, Debug, Default)]
pub struct QueueWaits(Vec<Option<QueueWait>>);

impl QueueWaits {
    /// Finds the waits of an iteration. `queue` returns the hardware queue of an operation, and `None` if it uses none.
    ///
    /// An operation waits behind another one if that one precedes it in the queue, belongs to another stream, and blocks. An
    /// operation blocks while its dependencies are incomplete, or while it waits behind another one itself; with
    /// [`QueueRule::Serial`], until it is complete.
    pub fn of(trace: &Trace, step: &StepPlan, queue: &dyn Fn(&Span) -> Option<u32>, rule: QueueRule) -> QueueWaits {
        let places = places(trace, step.operations());
        let ready = |at: usize| {
            let before = step.incoming(trace.spans[at].op).filter_map(|edge| places[edge.from.index()]);
            before.map(|from| trace.spans[from].end.0).max().unwrap_or(0).max(0)
        };
        // For each queue the last span, and the last one of another stream than its own.
        let mut last: Vec<(Option<usize>, Option<usize>)> = Vec::new();
        let mut waits: Vec<Option<QueueWait>> = vec![None; trace.spans.len()];
        for (at, span) in trace.spans.iter().enumerate() {
            let Some(queue) = queue(span).map(|queue| queue as usize) else { continue };
            if last.len() <= queue {
                last.resize(queue + 1, (None, None));
            }
            let (newest, other) = &mut last[queue];
            if newest.is_some_and(|newest| trace.spans[newest].lane != span.lane) {
                *other = *newest;
            }
            *newest = Some(at);
            let Some(other) = *other else { continue };
            let behind = waits[other].map_or(other, |wait| wait.behind);
            let own = ready(at);
            let (until, holds_up) = match rule {
                QueueRule::HeadOfLine => (trace.spans[other].start.0, ready(behind) > own),
                QueueRule::Serial => (trace.spans[other].end.0, true),
            };
            if holds_up && until > own {
                waits[at] = Some(QueueWait { behind, ready: own, until });
            }
        }
        QueueWaits(waits)
    }

    /// Moment until which an operation was held up; `None` if it was not.
    pub fn until(&self, at: usize) -> Option<i64> {
        Some((*self.0.get(at)?)?.until)
    }

    /// Records of the operations behind which others wait for a large share of the iteration, the longest wait first.
    /// `on_chain` is the part of the iteration for which its critical chain waits in queues.
    pub fn records(&self, trace: &Trace, queues: &LaneQueues, on_chain: Nanos) -> Vec<QueueWaitRecord> {
        let mut records: Vec<QueueWaitRecord> = Vec::new();
        let delay = |at: usize, wait: &QueueWait| wait.until.min(trace.spans[at].start.0) - wait.ready;
        for (at, wait) in self.0.iter().enumerate().filter_map(|(at, wait)| Some((at, wait.as_ref()?))) {
            let time = Nanos(delay(at, wait));
            if (time.0 as f64) < REPORTED * trace.time.0 as f64 {
                continue;
            }
            let (OpId(operation), OpId(behind)) = (trace.spans[at].op, trace.spans[wait.behind].op);
            let queue = queues.of_lane[trace.spans[at].lane.index()];
            let queue = queue.map_or(0, |queue| queues.numbers[queue as usize]);
            match records.iter_mut().find(|record| record.behind == behind) {
                Some(record) => {
                    record.operations += 1;
                    if time > record.time_ns {
                        (record.operation, record.time_ns) = (operation, time);
                    }
                }
                None => {
                    let help = help(queues, trace.spans.len(), trace.time, on_chain);
                    records.push(QueueWaitRecord { operation, behind, queue, operations: 1, time_ns: time, help });
                }
            }
        }
        records.sort_by_key(|record| std::cmp::Reverse(record.time_ns));
        records
    }
}

/// Advice against waits in queues: the number of queues with which no streams share one, as far as the vendor allows it. If starting
/// the operations of an iteration takes nearly all of its `time`, or its critical chain waits in no queue, separate queues would not
/// shorten it.
fn help(queues: &LaneQueues, operations: usize, time: Nanos, on_chain: Nanos) -> String {
    let streams = queues.of_lane.iter().flatten().count();
    let share = format!("{streams} streams share {}", counted(queues.numbers.len(), "queue"));
    let otherwise = "`--launch graph` uses no queues; or launch what can start at once before what waits";
    if (on_chain.0 as f64) < REPORTED * time.0 as f64 {
        return format!(
            "{share}; the critical chain hardly waits in a queue, so that more queues would not shorten the iteration"
        );
    }
    // Changing the queue takes time before each start.
    let slower = match queues.start {
        Nanos(0) => String::new(),
        start => format!(", which helps operations that are long beside the {start} of a start from another queue"),
    };
    if (queues.start.0 * operations as i64) as f64 >= STARTS * time.0 as f64 {
        return format!(
            "{share}: {otherwise}; more queues would help little, since the device needs {} to start each of {operations} \
             operations after it has waited",
            queues.start
        );
    }
    let variable = queues_variable(queues.vendor.as_deref().unwrap_or_default());
    match streams <= MAX_QUEUES {
        true => format!("{share}: {otherwise}; or `--env {variable}={streams}` gives each its own{slower}"),
        false if queues.numbers.len() < MAX_QUEUES => format!(
            "{share}, and `--env {variable}={MAX_QUEUES}` gives the most that a device has{slower}: use at most as many \
             streams; or {otherwise}"
        ),
        false => format!("{share}, the most that a device has: use at most as many streams; or {otherwise}"),
    }
}

/// Index of each operation's span in the trace.
pub fn places(trace: &Trace, operations: usize) -> Vec<Option<usize>> {
    let mut places = vec![None; operations];
    for (at, span) in trace.spans.iter().enumerate() {
        places[span.op.index()] = Some(at);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::tests::{planned, trace};

    /// `waits` needs `long`; `free` and `behind` need nothing of the other streams.
    const BLOCKED: &str = "
        stream s[4]
        buffer x[4]: f32[8]
        step {
          on s[0] { long: map(x[0] + 1 -> x[0]) }
          on s[1] { waits: map(x[0] + x[1] -> x[1]) }
          on s[2] { free: map(x[2] + 1 -> x[2]) }
          on s[3] { behind: map(x[3] + 1 -> x[3]) }
        }";

    /// A record: the operation that waits, the one it waits behind, the number of operations that wait so, and the longest wait in ns.
    type Short = (u32, u32, usize, i64);

    fn found(spans: &[(u32, i64, i64)], rule: QueueRule) -> (Vec<Option<i64>>, Vec<Short>) {
        let (_, plan) = planned(BLOCKED);
        let observed = trace(1000, spans);
        let queues = LaneQueues {
            of_lane: vec![Some(0), Some(1), Some(1), Some(1)],
            numbers: vec![0, 1],
            rule,
            vendor: None,
            start: Nanos(0),
        };
        let queue = |span: &Span| queues.of_lane[span.lane.index()];
        let waits = QueueWaits::of(&observed, &plan.steps[0], &queue, rule);
        let records = waits.records(&observed, &queues, observed.time);
        let short = |record: &QueueWaitRecord| (record.operation, record.behind, record.operations, record.time_ns.0);
        ((0..4).map(|at| waits.until(at)).collect(), records.iter().map(short).collect())
    }

    #[test]
    fn an_operation_that_waits_holds_up_those_behind_it() {
        // `free` and `behind` need nothing, and start once `waits` has started.
        let blocked = [(0, 0, 600), (1, 610, 800), (2, 612, 700), (3, 615, 700)];
        let (until, records) = found(&blocked, QueueRule::HeadOfLine);
        assert_eq!(until, [None, None, Some(610), Some(612)]);
        assert_eq!(records, [(3, 1, 2, 612)]);
        // Nothing waits for a dependency that ends later than its own, so no queue holds anything up.
        let (until, records) = found(&[(0, 0, 5), (1, 10, 800), (2, 12, 700), (3, 15, 700)], QueueRule::HeadOfLine);
        assert_eq!(until, [None, None, Some(10), Some(12)]);
        assert_eq!(records, []);
    }

    #[test]
    fn a_serial_queue_runs_one_after_the_other() {
        let (until, records) = found(&[(0, 0, 5), (1, 10, 400), (2, 400, 700), (3, 700, 990)], QueueRule::Serial);
        assert_eq!(until, [None, None, Some(400), Some(700)]);
        assert_eq!(records, [(3, 1, 2, 700)]);
    }

    #[test]
    fn the_help_gives_the_number_of_queues() {
        let queues = |streams: u32, vendor: &str| LaneQueues {
            of_lane: (0..streams).map(|stream| Some(stream % 8)).chain([None]).collect(),
            numbers: (0..8).collect(),
            rule: QueueRule::HeadOfLine,
            vendor: Some(vendor.to_owned()),
            start: Nanos(1_050),
        };
        let long = Nanos(10_000_000);
        let help = |queues: &LaneQueues| help(queues, 1600, long, long);
        assert!(
            help(&queues(12, "nvidia")).ends_with(
                "`--env CUDA_DEVICE_MAX_CONNECTIONS=12` gives each its own, which helps operations that are long beside the 1.050 µs of a \
                 start from another queue"
            )
        );
        assert!(
            help(&queues(64, "nvidia")).contains("CUDA_DEVICE_MAX_CONNECTIONS=32` gives the most that a device has")
        );
        let most = LaneQueues { numbers: (0..32).collect(), ..queues(64, "nvidia") };
        assert!(help(&most).starts_with("64 streams share 32 queues, the most that a device has: use at most"));
        assert!(help(&queues(12, "amd")).contains("GPU_MAX_HW_QUEUES=12"));
        assert!(help(&queues(48, "amd")).contains("GPU_MAX_HW_QUEUES=32` gives the most"));
    }

    #[test]
    fn more_queues_do_not_help_if_starting_the_operations_takes_all_of_the_time() {
        let queues = LaneQueues {
            of_lane: (0..32).map(|stream| Some(stream % 8)).collect(),
            numbers: (0..8).collect(),
            rule: QueueRule::HeadOfLine,
            vendor: Some("nvidia".to_owned()),
            start: Nanos(1_050),
        };
        assert_eq!(
            help(&queues, 1600, Nanos(1_588_000), Nanos(1_000_000)),
            "32 streams share 8 queues: `--launch graph` uses no queues; or launch what can start at once before what waits; more queues \
             would help little, since the device needs 1.050 µs to start each of 1600 operations after it has waited"
        );
        let beyond = |on_chain| help(&queues, 1600, Nanos(1_900_000), Nanos(on_chain));
        assert!(beyond(1_000_000).contains("CUDA_DEVICE_MAX_CONNECTIONS=32"));
        assert!(
            beyond(10_000).ends_with("so that more queues would not shorten the iteration"),
            "others wait beside the chain"
        );
    }
}
