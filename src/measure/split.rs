//! Splits the time of an observed iteration along the chain of operations that it waited for.
//!
//! The chain is followed backwards: from the operation that ended last, to the last of those that it waited for, and so
//! on. If iterations overlap, it continues in earlier iterations, which are assumed to look like the observed ones of their
//! slots, until it has covered the time of one iteration. Each moment of the iteration belongs to one link or to the gap
//! before one, so the parts always add up to the iteration's time.

use crate::base::{Nanos, OpId};
use crate::exec::Trace;
use crate::plan::Plan;

use super::alone::Alone;
use super::queue_waits::{QueueWaits, places};
use super::record::TimeSplitRecord;
use super::waiting::Iteration;

/// Context of the split besides the trace.
pub struct TimeSplitContext<'a> {
    pub plan: &'a Plan,
    /// The iterations before this one, the nearest first; empty if iterations do not overlap.
    pub earlier: &'a [&'a Iteration<'a>],
    /// Durations of operations that run alone; `None` without a run on one stream.
    pub alone: Option<&'a Alone>,
    /// True if the host issues too slowly: unexplained gaps are then attributed to the host.
    pub host_bound: bool,
    /// Waiting in hardware queues, of the observed iteration of each slot of this rank's cycle.
    pub queues: &'a dyn Fn(&Trace) -> QueueWaits,
}

/// A link of the chain.
#[derive(Clone, Debug)]
pub struct Link {
    /// Slot of the operation in this rank's own cycle.
    pub step: usize,
    pub op: OpId,
    /// Time in which the operation works within the iteration, in ns.
    pub time: i64,
    /// Time in which the operation works, also in other iterations, in ns.
    pub whole: i64,
    /// The parts of the iteration's time that belong to the link: its operation, and the gap before it. The first link
    /// has the start of the iteration as well, the last one its end. Parts of all links add up to those of the iteration.
    pub parts: TimeSplitRecord,
}

/// An iteration on the time axis of the iteration that is split.
struct Placed<'a> {
    iteration: &'a Iteration<'a>,
    /// Time from the begin of the iteration that is split to the begin of this one, in ns; at most 0.
    begin: i64,
    /// Index of each operation's span in the trace.
    places: Vec<Option<usize>>,
    queues: QueueWaits,
}

/// An operation of one of several iterations: the number of iterations by which it is earlier, and the index of its span.
type Occurrence = (usize, usize);

impl<'a> Placed<'a> {
    fn of(iteration: &'a Iteration<'a>, begin: i64, around: &TimeSplitContext) -> Placed<'a> {
        let trace = iteration.trace;
        let places = places(trace, around.plan.steps[trace.step].operations());
        Placed { iteration, begin, places, queues: (around.queues)(trace) }
    }

    /// Start and end of a span.
    fn times(&self, at: usize) -> (i64, i64) {
        let span = &self.iteration.trace.spans[at];
        (span.start.0 + self.begin, span.end.0 + self.begin)
    }
}

/// The iteration and those before it that reach into it, each placed before the one that follows it.
fn placed<'a>(iteration: &'a Iteration<'a>, around: &TimeSplitContext<'a>) -> Vec<Placed<'a>> {
    let mut placed = vec![Placed::of(iteration, 0, around)];
    let mut begin = 0;
    for earlier in around.earlier {
        begin -= earlier.trace.time.0.max(0);
        let last = earlier.trace.spans.iter().map(|span| span.end.0 + begin).max();
        if last.is_none_or(|last| last <= 0) {
            break;
        }
        placed.push(Placed::of(earlier, begin, around));
    }
    placed
}

/// The last of the operations that an operation waited for; `None` if it waited for none in these iterations.
fn predecessor(placed: &[Placed], (age, at): Occurrence, plan: &Plan) -> Option<Occurrence> {
    let trace = placed[age].iteration.trace;
    let (step, op) = (&plan.steps[trace.step], trace.spans[at].op);
    let within = step.incoming(op).map(|edge| (age, edge.from));
    let first = step.across.partition_point(|edge| edge.to < op);
    let across = step.across[first..].iter().take_while(|edge| edge.to == op);
    let across = across.map(|edge| (age + edge.distance as usize, edge.from));
    let occurrence = |(age, from): (usize, OpId)| Some((age, (*placed.get(age)?.places.get(from.index())?)?));
    let ended = |&(age, at): &Occurrence| (placed[age].times(at).1, std::cmp::Reverse((age, at)));
    within.chain(across).filter_map(occurrence).max_by_key(ended)
}

/// Splits an iteration. Returns the links from its start to its end.
pub fn split<'a>(iteration: &'a Iteration<'a>, around: &TimeSplitContext<'a>) -> (TimeSplitRecord, Vec<Link>) {
    let trace = iteration.trace;
    let placed = placed(iteration, around);
    let mut links: Vec<Link> = Vec::new();
    // Everything after the cursor is attributed.
    let mut cursor = trace.time.0.max(0);
    let last = (0..trace.spans.len()).max_by_key(|&at| (trace.spans[at].end, std::cmp::Reverse(at)));
    let mut next: Option<Occurrence> = None;
    let mut current = last.map(|at| (0, at));
    // Until when the queue of an operation held it up.
    let held = |(age, at): Occurrence| Some(placed[age].queues.until(at)? + placed[age].begin);
    while let Some((age, at)) = current {
        let Placed { iteration, .. } = placed[age];
        let span = &iteration.trace.spans[at];
        let (began, ended) = placed[age].times(at);
        let end = ended.clamp(0, cursor);
        let mut parts = TimeSplitRecord { stretch_ns: around.alone.map(|_| Nanos(0)), ..TimeSplitRecord::default() };
        match (next, links.last_mut()) {
            (Some(next), Some(link)) => wait(&mut link.parts, (end, cursor), held(next), around),
            _ => parts.idle_ns.0 += cursor - end,
        }
        let start = began.clamp(0, end);
        let whole = iteration.work(span).0;
        // An operation first waits for other ranks, then works.
        let works = (ended - whole).clamp(start, end);
        parts.wait_ns.0 += works - start;
        let time = end - works;
        let alone = around.alone.and_then(|alone| alone.of(iteration.trace.step, span.op));
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
        links.push(Link { step: iteration.trace.step, op: span.op, time, whole, parts });
        cursor = start;
        next = Some((age, at));
        current = if cursor > 0 { predecessor(&placed, (age, at), around.plan) } else { None };
    }
    let mut split = TimeSplitRecord { stretch_ns: around.alone.map(|_| Nanos(0)), ..TimeSplitRecord::default() };
    let first = links.last_mut().map_or(&mut split, |link| &mut link.parts);
    if around.host_bound {
        first.launch_ns.0 += cursor;
    } else {
        let queued = next.and_then(held).map_or(0, |until| until.clamp(0, cursor));
        first.queue_ns.0 += queued;
        first.idle_ns.0 += cursor - queued;
    }
    for link in links.iter_mut().rev() {
        link.parts.time_ns = link.parts.sum();
        // Operations of other slots have numbers of their own.
        link.parts.chain = if link.step == trace.step { vec![link.op.0] } else { Vec::new() };
        split.add(&link.parts);
    }
    split.time_ns = trace.time;
    links.reverse();
    (split, links)
}

/// Attributes the gap between the end of the last dependency of an operation and its start. `held` is the moment until which
/// the operation's queue held it up; `None` if it did not.
fn wait(split: &mut TimeSplitRecord, (from, to): (i64, i64), held: Option<i64>, around: &TimeSplitContext) {
    // If the host limits, the operation that held the queue started late for the same reason.
    if around.host_bound {
        split.launch_ns.0 += to - from;
        return;
    }
    let queued = held.map_or(from, |until| until.clamp(from, to));
    split.queue_ns.0 += queued - from;
    split.dependency_ns.0 += to - queued;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{planned, trace};
    use super::*;
    use crate::config::QueueRule;
    use crate::exec::Span;

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
        let mut around = TimeSplitContext { plan: &plan, earlier: &[], alone: None, host_bound: false, queues: &|_| QueueWaits::default() };
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
        let queue = |trace: &Trace| QueueWaits::of(trace, &plan.steps[0], &|_| Some(3), QueueRule::HeadOfLine);
        let around = TimeSplitContext { plan: &plan, earlier: &[], alone: None, host_bound: false, queues: &queue };
        let (split, links) = split(&observed, &around);
        assert_eq!(links.iter().map(|link| (link.op.0, link.time)).collect::<Vec<_>>(), [(1, 140), (3, 370)]);
        assert_eq!(parts(&split), [510, 0, 0, 450, 20, 20]);
    }

    /// The chain of an overlapping iteration continues in the iteration before it: the map of an iteration waits for that of the
    /// one before, not for its own copy, which ended long ago.
    #[test]
    fn the_chain_continues_in_earlier_iterations() {
        let (_, plan) = planned(
            "stream h
             stream c
             buffer host: f32[4] in pinned
             buffer x[2]: f32[4]
             buffer y: f32[4]
             step(sync: end, depth: 3) {
               on h { copy(host -> x[0]) }
               on c { map(y + x[0] -> x[1])  map(x[1] + 1 -> y) }
             }",
        );
        // The maps take 990 of 1000 ns; the copy of this iteration ran during the iteration before.
        let observed = trace(1000, &[(0, -900, -800), (1, 5, 400), (1, 405, 1000)]);
        let iteration = Iteration::alone(&observed);
        let mut around = TimeSplitContext {
            plan: &plan,
            earlier: &[&iteration, &iteration],
            alone: None,
            host_bound: false,
            queues: &|_| QueueWaits::default(),
        };
        let (whole, links) = super::split(&iteration, &around);
        assert_eq!(whole.chain, [2, 1, 2]);
        assert_eq!(parts(&whole), [990, 0, 0, 0, 10, 0]);
        assert_eq!(links.iter().map(|link| link.time).collect::<Vec<_>>(), [0, 395, 595]);
        // A copy that is always under way takes all of the time, most of it in the iteration before.
        let observed = trace(1000, &[(0, -100, 890), (1, 900, 940), (1, 950, 1000)]);
        let iteration = Iteration::alone(&observed);
        let earlier = [&iteration];
        around.earlier = &earlier;
        let (whole, links) = super::split(&iteration, &around);
        assert_eq!(links.iter().map(|link| (link.op.0, link.time)).collect::<Vec<_>>(), [(0, 890), (1, 40), (2, 50)]);
        assert_eq!(parts(&whole), [980, 0, 0, 0, 20, 0]);
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
            overlapping in 0usize..4,
        ) {
            let (_, plan) = planned(&if overlapping > 0 { MEETING.replace("step", "step(sync: end)") } else { MEETING.to_owned() });
            let spans: Vec<_> = spans.iter().map(|&(lane, start, long)| (lane, start, start + long)).collect();
            let alone: Vec<_> = alone.iter().map(|&long| (0, 0, long)).collect();
            let alone = trace(0, &alone);
            let alone = Alone::of_serial(&[Iteration::alone(&alone)]);
            let queue = |trace: &Trace| {
                let queue = |span: &Span| queues.map(|queues| span.lane.0 % queues);
                QueueWaits::of(trace, &plan.steps[0], &queue, QueueRule::HeadOfLine)
            };
            let observed = trace(time, &spans);
            let iteration = Iteration::alone(&observed);
            let earlier = vec![&iteration; overlapping];
            let around = TimeSplitContext {
                plan: &plan,
                earlier: &earlier,
                alone: timed_alone.then_some(&alone),
                host_bound,
                queues: &queue,
            };
            let (split, links) = super::split(&iteration, &around);
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
