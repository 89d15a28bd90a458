//! Splits the time of an observed iteration along the chain of operations that it waited for.
//!
//! The chain is followed backwards: from the operation that ended last, to the last of those that it waited for, and so
//! on. Each moment of the iteration belongs to one link or to the gap before one, so the parts always add up to the
//! iteration's time.

use crate::base::{Nanos, OpId};
use crate::exec::{Span, Trace};
use crate::plan::StepPlan;

use super::alone::Alone;
use super::record::TimeSplitRecord;
use super::waiting::Iteration;

/// Context of the split besides the trace.
pub struct TimeSplitContext<'a> {
    pub step: &'a StepPlan,
    /// Durations of operations that run alone; `None` without a run on one stream.
    pub alone: Option<&'a Alone>,
    /// True if the host issues too slowly: unexplained gaps are then attributed to the host.
    pub host_bound: bool,
    /// Hardware queue of an operation; `None` if it uses none.
    pub queue: &'a dyn Fn(&Span) -> Option<u32>,
}

/// A link of the chain.
#[derive(Clone, Debug)]
pub struct Link {
    pub op: OpId,
    /// Time in which the operation works, in ns.
    pub time: i64,
    /// The parts of the iteration's time that belong to the link: its operation, and the gap before it. The first link
    /// has the start of the iteration as well, the last one its end. Parts of all links add up to those of the iteration.
    pub parts: TimeSplitRecord,
}

/// Splits an iteration. Returns the links from its start to its end.
pub fn split(iteration: &Iteration, around: &TimeSplitContext) -> (TimeSplitRecord, Vec<Link>) {
    let trace = iteration.trace;
    let mut links: Vec<Link> = Vec::new();
    let held_up = held_up(trace, around);
    let places = places(trace, around.step.operations());
    // Everything after the cursor is attributed.
    let mut cursor = trace.time.0.max(0);
    let last = (0..trace.spans.len()).max_by_key(|&at| (trace.spans[at].end, std::cmp::Reverse(at)));
    let mut next: Option<usize> = None;
    let mut current = last;
    while let Some(at) = current {
        let span = &trace.spans[at];
        let end = span.end.0.clamp(0, cursor);
        let mut parts = TimeSplitRecord { stretch_ns: around.alone.map(|_| Nanos(0)), ..TimeSplitRecord::default() };
        match (next, links.last_mut()) {
            (Some(next), Some(link)) => wait(&mut link.parts, (end, cursor), held_up[next], around),
            _ => parts.idle_ns.0 += cursor - end,
        }
        let start = span.start.0.clamp(0, end);
        let whole = iteration.work(span).0;
        // An operation first waits for other ranks, then works.
        let works = (span.end.0 - whole).clamp(start, end);
        parts.wait_ns.0 += works - start;
        let time = end - works;
        let alone = around.alone.and_then(|alone| alone.of(trace.step, span.op));
        let own = match (alone, &mut parts.stretch_ns) {
            // If only a part of an operation is on the chain, the same part of its time alone counts.
            (Some(alone), Some(stretch)) if whole > 0 => {
                let own = (alone * time as f64 / whole as f64).round() as i64;
                stretch.0 += time - own;
                own
            }
            _ => time,
        };
        parts.operations_ns.0 += own;
        links.push(Link { op: span.op, time, parts });
        cursor = start;
        next = Some(at);
        let before = around.step.incoming(span.op).filter_map(|edge| places[edge.from.index()]);
        current = before.max_by_key(|&at| (trace.spans[at].end, std::cmp::Reverse(at)));
    }
    let mut split = TimeSplitRecord { stretch_ns: around.alone.map(|_| Nanos(0)), ..TimeSplitRecord::default() };
    let first = links.last_mut().map_or(&mut split, |link| &mut link.parts);
    let rest = if around.host_bound { &mut first.launch_ns } else { &mut first.idle_ns };
    rest.0 += cursor;
    for link in links.iter_mut().rev() {
        link.parts.time_ns = link.parts.sum();
        link.parts.chain = vec![link.op.0];
        split.add(&link.parts);
    }
    split.time_ns = trace.time;
    links.reverse();
    (split, links)
}

/// Attributes the gap between the end of the last dependency of an operation and its start.
fn wait(split: &mut TimeSplitRecord, (from, to): (i64, i64), held_up: Option<i64>, around: &TimeSplitContext) {
    // If the host limits, the operation that held the queue started late for the same reason.
    if around.host_bound {
        split.launch_ns.0 += to - from;
        return;
    }
    let queued = held_up.map_or(from, |until| until.clamp(from, to));
    split.queue_ns.0 += queued - from;
    split.dependency_ns.0 += to - queued;
}

/// Index of each operation's span in the trace.
fn places(trace: &Trace, operations: usize) -> Vec<Option<usize>> {
    let mut places = vec![None; operations];
    for (at, span) in trace.spans.iter().enumerate() {
        places[span.op.index()] = Some(at);
    }
    places
}

/// For each span, the start of the operation issued last before it on the same hardware queue for another stream, since
/// a queue advances when its head has started.
fn held_up(trace: &Trace, around: &TimeSplitContext) -> Vec<Option<i64>> {
    // Last span of each queue, and last one of another stream.
    let mut last: Vec<(Option<Span>, Option<Span>)> = Vec::new();
    let mut starts = Vec::with_capacity(trace.spans.len());
    for span in &trace.spans {
        let Some(queue) = (around.queue)(span) else {
            starts.push(None);
            continue;
        };
        if last.len() <= queue as usize {
            last.resize(queue as usize + 1, (None, None));
        }
        let (newest, other) = &mut last[queue as usize];
        if newest.is_some_and(|newest| newest.lane != span.lane) {
            *other = *newest;
        }
        *newest = Some(*span);
        starts.push(other.map(|other| other.start.0));
    }
    starts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{planned, trace};
    use super::*;

    /// Two streams that wait for each other twice.
    const MEETING: &str = "
stream a
stream b
buffer x: f32[4]
buffer y: f32[4]
step {
  on a { map(x + 1 -> x) }
  on b { map(y + 1 -> y) }
  on a { map(x + y -> x)  map(x * 2 -> x) }
  on b { map(x + y -> y)  map(y * 2 -> y) }
}
";

    fn parts(split: &TimeSplitRecord) -> [i64; 6] {
        let stretch = split.stretch_ns.map_or(0, |stretch| stretch.0);
        let Nanos(operations) = split.operations_ns;
        assert_eq!(split.wait_ns, Nanos(0), "there is one rank");
        [operations, stretch, split.launch_ns.0, split.queue_ns.0, split.dependency_ns.0, split.idle_ns.0]
    }

    fn split(trace: &Trace, around: &TimeSplitContext) -> (TimeSplitRecord, Vec<Link>) {
        super::split(&Iteration::alone(trace), around)
    }

    #[test]
    fn gaps_are_assigned_to_their_causes() {
        let (_, plan) = planned(MEETING);
        let observed =
            trace(1000, &[(0, 100, 200), (1, 100, 300), (0, 340, 440), (0, 450, 500), (1, 520, 700), (1, 710, 950)]);
        let alone =
            trace(900, &[(0, 0, 100), (0, 100, 250), (0, 250, 350), (0, 350, 400), (0, 400, 580), (0, 580, 780)]);
        let alone = Alone::of_serial(&[Iteration::alone(&alone)]);
        let mut around = TimeSplitContext { step: &plan.steps[0], alone: None, host_bound: false, queue: &|_| None };
        let (whole, _) = split(&observed, &around);
        // Operation 1 ends at 300 and operation 3 starts 40 later; the next gaps are 10, 20 and 10. 100 are idle before
        // the first operation and 50 after the last.
        assert_eq!(whole.chain, [1, 2, 3, 4, 5]);
        assert_eq!(parts(&whole), [770, 0, 0, 0, 80, 150]);
        around.host_bound = true;
        assert_eq!(parts(&split(&observed, &around).0), [770, 0, 180, 0, 0, 50]);
        around.alone = Some(&alone);
        assert_eq!(parts(&split(&observed, &around).0), [680, 90, 180, 0, 0, 50]);
    }

    #[test]
    fn a_shared_queue_delays_later_operations() {
        let (_, plan) = planned(
            "stream a
             stream b
             buffer x: f32[4]
             buffer y: f32[4]
             step {
               on a { map(x + 1 -> x) }
               on b { map(y + 1 -> y) }
               on a { map(x * 2 -> x) }
               on b { map(y * 2 -> y) }
             }",
        );
        // The second operation of b was issued behind the second one of a, which started at 600; the first of b ended
        // at 150.
        let observed = trace(1000, &[(0, 0, 590), (1, 10, 150), (0, 600, 700), (1, 620, 990)]);
        let around = TimeSplitContext { step: &plan.steps[0], alone: None, host_bound: false, queue: &|_| Some(3) };
        let (split, links) = split(&observed, &around);
        assert_eq!(links.iter().map(|link| (link.op.0, link.time)).collect::<Vec<_>>(), [(1, 140), (3, 370)]);
        assert_eq!(parts(&split), [510, 0, 0, 450, 20, 20]);
    }

    proptest! {
        #[test]
        fn the_parts_add_up(
            time in 0i64..2000,
            spans in prop::collection::vec((0u32..2, -300i64..2000, 0i64..600), 6),
            alone in prop::collection::vec(0i64..600, 6),
            host_bound: bool,
            timed_alone: bool,
            queues in prop::option::of(1u32..3),
        ) {
            let (_, plan) = planned(MEETING);
            let spans: Vec<_> = spans.iter().map(|&(lane, start, long)| (lane, start, start + long)).collect();
            let alone: Vec<_> = alone.iter().map(|&long| (0, 0, long)).collect();
            let alone = trace(0, &alone);
            let alone = Alone::of_serial(&[Iteration::alone(&alone)]);
            let around = TimeSplitContext {
                step: &plan.steps[0],
                alone: timed_alone.then_some(&alone),
                host_bound,
                queue: &|span| queues.map(|queues| span.lane.0 % queues),
            };
            let (split, links) = split(&trace(time, &spans), &around);
            prop_assert_eq!(parts(&split).iter().sum::<i64>(), time);
            // The links share out each part.
            let mut sum = TimeSplitRecord { stretch_ns: timed_alone.then_some(Nanos(0)), ..TimeSplitRecord::default() };
            links.iter().for_each(|link| sum.add(&link.parts));
            prop_assert_eq!(&sum, &split);
            // Only stretch has a sign.
            let [operations, _, rest @ ..] = parts(&split);
            prop_assert!(operations >= 0 && rest.iter().all(|part| *part >= 0), "{:?}", split);
            prop_assert!(links.iter().all(|link| link.time >= 0));
        }
    }
}
