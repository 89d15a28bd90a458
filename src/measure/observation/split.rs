//! Splits the time of an observed iteration along the chain of operations that it waited for.
//!
//! The chain is followed backwards: from the operation that ended last, to the last of those that it waited for, and so
//! on. Each moment of the iteration belongs to one link or to the gap before one, so the parts always add up to the
//! iteration's time.
//!
//! If iterations overlap, the chain continues in earlier ones, which are assumed to look like the observed ones of their slots. The
//! last operations of an iteration only add to its latency, so the parts are those of the chain during earlier iterations of the
//! same slot, on average: what follows there determines the rate.

use std::collections::BTreeMap;
use std::rc::Rc;

use indexmap::IndexMap;
use indexmap::map::Entry;

use crate::base::{LaneId, Nanos, OpId};
use crate::exec::{LaunchMode, Trace};
use crate::plan::Plan;

use super::queue_waits::{QueueWaits, places};
use super::solo_durations::SoloDurations;
use super::waiting::Iteration;
use crate::measure::record::TimeSplitRecord;

/// Maximum number of earlier iterations of the slot over which the parts are averaged. A chain may take several iterations to repeat;
/// this number is a multiple of the usual ones.
pub const AVERAGED: usize = 12;

/// Context of the split besides the trace.
pub struct TimeSplitContext<'a> {
    pub plan: &'a Plan,
    /// The iterations before this one, the nearest first; empty if iterations do not overlap.
    pub earlier: &'a [&'a Iteration<'a>],
    /// Number of iterations under way at once.
    pub depth: usize,
    /// Durations of operations that run alone; `None` without a run on one stream.
    pub alone: Option<&'a SoloDurations>,
    /// The launch mode if the host issues too slowly. As streams, gaps between operations are then attributed to the host; in any
    /// mode, the time before the first one.
    pub host_bound: Option<LaunchMode>,
    /// Waiting in hardware queues during an iteration of this rank.
    pub queues: &'a dyn Fn(&Trace) -> QueueWaits,
    /// For each span of an iteration, the moment until which copies of other streams occupy the engine of its copy; `None` of other
    /// operations.
    pub engines: &'a dyn Fn(&Trace) -> Vec<Option<i64>>,
}

impl TimeSplitContext<'_> {
    /// Returns a split of no time. Its stretch is 0, or `None` without a run on one stream.
    fn no_time(&self) -> TimeSplitRecord {
        TimeSplitRecord { stretch_ns: self.alone.map(|_| Nanos(0)), ..TimeSplitRecord::default() }
    }
}

/// A link of the chain.
#[derive(Clone, Debug)]
pub struct ChainLink {
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
struct PlacedIteration<'a> {
    iteration: &'a Iteration<'a>,
    /// Time from the start of the iteration that is split to the start of this one, in ns; at most 0.
    begin: i64,
    order: Rc<TraceOrder>,
}

/// Positions of a trace's operations.
struct TraceOrder {
    /// Index of each operation's span.
    places: Vec<Option<usize>>,
    /// For each span, the index of the one before on its real stream.
    before_on_lane: Vec<Option<usize>>,
    /// Index of the last span of each real stream.
    last_of_lane: BTreeMap<LaneId, usize>,
    queues: QueueWaits,
    engines: Vec<Option<i64>>,
}

impl TraceOrder {
    fn of(trace: &Trace, around: &TimeSplitContext) -> TraceOrder {
        let mut last_of_lane = BTreeMap::new();
        let before_on_lane =
            trace.spans.iter().enumerate().map(|(at, span)| last_of_lane.insert(span.lane, at)).collect();
        let places = places(trace, around.plan.steps[trace.step].operations());
        let (queues, engines) = ((around.queues)(trace), (around.engines)(trace));
        TraceOrder { places, before_on_lane, last_of_lane, queues, engines }
    }
}

/// An operation of one of several iterations: the number of iterations by which it is earlier, and the index of its span.
type Occurrence = (usize, usize);

impl PlacedIteration<'_> {
    /// Start and end of a span.
    fn times(&self, at: usize) -> (i64, i64) {
        let span = &self.iteration.trace.spans[at];
        (span.start.0 + self.begin, span.end.0 + self.begin)
    }

    /// Start and end of the iteration.
    fn range(&self) -> (i64, i64) {
        (self.begin, self.begin + self.iteration.trace.time.0.max(0))
    }
}

/// The iteration and those before it, each placed before the one that follows it.
fn placed<'a>(iteration: &'a Iteration<'a>, around: &TimeSplitContext<'a>) -> Vec<PlacedIteration<'a>> {
    let mut known: BTreeMap<usize, Rc<_>> = BTreeMap::new();
    let mut begin = 0;
    let all = std::iter::once(&iteration).chain(around.earlier).enumerate();
    let place = |(age, &iteration): (usize, &&'a Iteration<'a>)| {
        let trace = iteration.trace;
        if age > 0 {
            begin -= trace.time.0.max(0);
        }
        let order = || Rc::new(TraceOrder::of(trace, around));
        // Iterations of one slot have the same trace, except for the one that is split.
        let order = if age == 0 { order() } else { known.entry(trace.slot).or_insert_with(order).clone() };
        PlacedIteration { iteration, begin, order }
    };
    all.map(place).collect()
}

/// The last of the operations that an operation waited for; `None` if it waited for none in these iterations.
fn predecessor(placed: &[PlacedIteration], (age, at): Occurrence, plan: &Plan) -> Option<Occurrence> {
    let trace = placed[age].iteration.trace;
    let (step, op) = (&plan.steps[trace.step], trace.spans[at].op);
    let within = step.incoming(op).map(|edge| (age, edge.from));
    let first = step.across.partition_point(|edge| edge.to < op);
    let across = step.across[first..].iter().take_while(|edge| edge.to == op);
    let across = across.map(|edge| (age + edge.distance as usize, edge.from));
    let occurrence =
        |(age, from): (usize, OpId)| Some((age, placed.get(age)?.order.places.get(from.index()).copied().flatten()?));
    // A stream executes its operations and its iterations in order, also where the plan needs no edge for it.
    let lane = trace.spans[at].lane;
    let before = placed[age].order.before_on_lane[at].map(|at| (age, at));
    let on_lane = before
        .or_else(|| (age + 1..placed.len()).find_map(|age| Some((age, *placed[age].order.last_of_lane.get(&lane)?))));
    let ended = |&(age, at): &Occurrence| (placed[age].times(at).1, std::cmp::Reverse((age, at)));
    within.chain(across).filter_map(occurrence).chain(on_lane).max_by_key(ended)
}

/// Time ranges along the chain that are split, the latest first. Each is as long as the iteration.
struct Windows(Vec<(i64, i64)>);

impl Windows {
    /// Earlier iterations of the same slot that are at least as far back as iterations overlap; empty if there are none.
    fn steady(placed: &[PlacedIteration], depth: usize) -> Windows {
        let own = placed[0].iteration.trace;
        let same = |age: &usize| placed[*age].iteration.trace.slot == own.slot;
        let ages = (depth.max(1)..placed.len().saturating_sub(depth.max(1))).filter(same).take(AVERAGED);
        Windows(ages.map(|age| placed[age].range()).filter(|(from, to)| to - from == own.time.0.max(0)).collect())
    }

    /// Start of the earliest window.
    fn floor(&self) -> i64 {
        self.0.last().map_or(0, |(from, _)| *from)
    }

    /// Time from `from` to `to` within the windows.
    fn inside(&self, from: i64, to: i64) -> i64 {
        let common = |(begin, end): &(i64, i64)| (to.min(*end) - from.max(*begin)).max(0);
        self.0.iter().map(common).sum()
    }
}

/// Splits an iteration. Returns the links from its start to its end.
pub fn split<'a>(iteration: &'a Iteration<'a>, around: &TimeSplitContext<'a>) -> (TimeSplitRecord, Vec<ChainLink>) {
    let placed = placed(iteration, around);
    let steady = Windows::steady(&placed, around.depth);
    let plain = Windows(vec![placed[0].range()]);
    let repeated = Some(steady).filter(|windows| !windows.0.is_empty()).and_then(|windows| {
        let (links, reached) = chain(&placed, &windows, around);
        reached.then_some((links, windows.0.len() as i64))
    });
    let (mut links, count) = repeated.unwrap_or_else(|| (chain(&placed, &plain, around).0, 1));
    let trace = iteration.trace;
    let mut split = around.no_time();
    if count > 1 {
        links = averaged(links, count);
    }
    // Rounding down leaves a few ns.
    let left = trace.time.0.max(0) - links.iter().map(|link| link.parts.sum().0).sum::<i64>();
    match links.first_mut() {
        Some(first) if count > 1 => first.parts.dependency_ns.0 += left,
        Some(_) => {}
        None if around.host_bound.is_some() => split.launch_ns.0 += left,
        None => split.idle_ns.0 += left,
    }
    for link in &mut links {
        link.parts.time_ns = link.parts.sum();
        // Operations of other slots have numbers of their own.
        link.parts.chain = if link.step == trace.step { vec![link.op.0] } else { Vec::new() };
        split.add(&link.parts);
    }
    split.time_ns = trace.time;
    (split, links)
}

/// Joins the links of each operation in this many iterations, with the mean of their times, rounded down.
fn averaged(links: Vec<ChainLink>, count: i64) -> Vec<ChainLink> {
    let mut joined: IndexMap<(usize, OpId), ChainLink> = IndexMap::new();
    for link in links {
        match joined.entry((link.step, link.op)) {
            Entry::Occupied(mut all) => {
                all.get_mut().time += link.time;
                all.get_mut().parts.add(&link.parts);
            }
            Entry::Vacant(place) => _ = place.insert(link),
        }
    }
    let mut links: Vec<ChainLink> = joined.into_values().collect();
    for link in &mut links {
        link.time = link.time.div_euclid(count);
        divide(&mut link.parts, count);
    }
    links
}

/// Divides all parts, rounding down.
fn divide(parts: &mut TimeSplitRecord, count: i64) {
    let TimeSplitRecord {
        operations_ns,
        stretch_ns,
        wait_ns,
        engine_ns,
        launch_ns,
        queue_ns,
        dependency_ns,
        idle_ns,
        ..
    } = parts;
    let all = [operations_ns, wait_ns, engine_ns, launch_ns, queue_ns, dependency_ns, idle_ns];
    all.into_iter().chain(stretch_ns.as_mut()).for_each(|part| part.0 = part.0.div_euclid(count));
}

/// The links of the chain that have a part of the windows, from the first to the last, and whether the chain reaches the start of the
/// earliest window.
fn chain(placed: &[PlacedIteration], windows: &Windows, around: &TimeSplitContext) -> (Vec<ChainLink>, bool) {
    let (own, floor) = (placed[0].iteration.trace, windows.floor());
    let mut links: Vec<ChainLink> = Vec::new();
    // Everything after the cursor is attributed.
    let mut cursor = own.time.0.max(0);
    let last = (0..own.spans.len()).max_by_key(|&at| (own.spans[at].end, std::cmp::Reverse(at)));
    let mut next: Option<Occurrence> = None;
    let mut current = last.map(|at| (0, at));
    let as_streams = around.host_bound == Some(LaunchMode::Stream);
    let causes = |(age, at): Occurrence| {
        let PlacedIteration { begin, order, .. } = &placed[age];
        let moment = |until: Option<i64>| until.map_or(i64::MIN, |until| until + begin);
        GapCauses { engine: moment(order.engines.get(at).copied().flatten()), queue: moment(order.queues.until(at)) }
    };
    while let Some((age, at)) = current {
        let iteration = placed[age].iteration;
        let span = &iteration.trace.spans[at];
        let (began, ended) = placed[age].times(at);
        let end = ended.clamp(floor, cursor);
        let mut parts = around.no_time();
        match (next, links.last_mut()) {
            (Some(next), Some(link)) => {
                let rest = wait(&mut link.parts, (end, cursor), causes(next), (windows, as_streams));
                link.parts.dependency_ns.0 += rest;
            }
            _ => parts.idle_ns.0 += windows.inside(end, cursor),
        }
        let start = began.clamp(floor, end);
        let whole = iteration.work(span).0;
        // An operation first waits for other ranks, then works.
        let works = (ended - whole).clamp(start, end);
        parts.wait_ns.0 += windows.inside(start, works);
        let time = windows.inside(works, end);
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
        links.push(ChainLink { step: iteration.trace.step, op: span.op, time, whole, parts });
        cursor = start;
        next = Some((age, at));
        current = if cursor > floor { predecessor(placed, (age, at), around.plan) } else { None };
    }
    if let Some(first) = links.last_mut() {
        let causes = next.map_or(GapCauses::NONE, causes);
        let rest = wait(&mut first.parts, (floor, cursor), causes, (windows, around.host_bound.is_some()));
        first.parts.idle_ns.0 += rest;
    }
    if windows.0.len() > 1 || floor < 0 {
        links.retain(|link| link.parts.sum() > Nanos(0));
    }
    links.reverse();
    (links, cursor <= floor)
}

/// Moments until which the engine of a copy was occupied, and until which the queue of an operation held it up.
#[derive(Clone, Copy)]
struct GapCauses {
    engine: i64,
    queue: i64,
}

impl GapCauses {
    const NONE: GapCauses = GapCauses { engine: i64::MIN, queue: i64::MIN };
}

/// Attributes the gap before an operation, from the end of its last dependency to its start, and returns the part without a cause.
fn wait(
    split: &mut TimeSplitRecord,
    (from, to): (i64, i64),
    causes: GapCauses,
    (windows, host_bound): (&Windows, bool),
) -> i64 {
    let engine = causes.engine.clamp(from, to);
    split.engine_ns.0 += windows.inside(from, engine);
    // If the host limits, the operation that held the queue started late for the same reason.
    if host_bound {
        split.launch_ns.0 += windows.inside(engine, to);
        return 0;
    }
    let queued = causes.queue.clamp(engine, to);
    split.queue_ns.0 += windows.inside(engine, queued);
    windows.inside(queued, to)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::QueueRule;
    use crate::exec::Span;
    use crate::measure::tests::{planned, trace};

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

    fn split(trace: &Trace, around: &TimeSplitContext) -> (TimeSplitRecord, Vec<ChainLink>) {
        super::split(&Iteration::alone(trace), around)
    }

    #[test]
    fn gaps_are_assigned_to_their_causes() {
        let (_, plan) = planned(MEETING);
        let observed =
            trace(1000, &[(0, 100, 200), (1, 100, 300), (0, 340, 440), (0, 450, 500), (1, 520, 700), (1, 710, 950)]);
        let alone =
            trace(900, &[(0, 0, 100), (0, 100, 250), (0, 250, 350), (0, 350, 400), (0, 400, 580), (0, 580, 780)]);
        let alone = SoloDurations::of_serial(&[Iteration::alone(&alone)]);
        let mut around = TimeSplitContext {
            plan: &plan,
            earlier: &[],
            depth: 1,
            alone: None,
            host_bound: None,
            queues: &|_| QueueWaits::default(),
            engines: &|_| Vec::new(),
        };
        let (whole, _) = split(&observed, &around);
        // Operation 1 ends at 300 and operation 3 starts 40 later; the next gaps are 10, 20 and 10. 100 are idle before
        // the first operation and 50 after the last.
        assert_eq!(whole.chain, [1, 2, 3, 4, 5]);
        assert_eq!(parts(&whole), [770, 0, 0, 0, 80, 150]);
        around.host_bound = Some(LaunchMode::Graph);
        assert_eq!(parts(&split(&observed, &around).0), [770, 0, 100, 0, 80, 50]);
        around.host_bound = Some(LaunchMode::Stream);
        assert_eq!(parts(&split(&observed, &around).0), [770, 0, 180, 0, 0, 50]);
        let busy = |_: &Trace| vec![None, None, Some(335), None, None, None];
        around.engines = &busy;
        let held = split(&observed, &around).0;
        assert_eq!(
            (held.engine_ns, held.launch_ns),
            (Nanos(35), Nanos(145)),
            "the host did not delay what an engine did"
        );
        around.engines = &|_| Vec::new();
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
        let around = TimeSplitContext {
            plan: &plan,
            earlier: &[],
            depth: 1,
            alone: None,
            host_bound: None,
            queues: &queue,
            engines: &|_| Vec::new(),
        };
        let (split, links) = split(&observed, &around);
        assert_eq!(links.iter().map(|link| (link.op.0, link.time)).collect::<Vec<_>>(), [(1, 140), (3, 370)]);
        assert_eq!(parts(&split), [510, 0, 0, 450, 20, 20]);
    }

    /// The chain of overlapping iterations continues in earlier ones, where the latency of the last iteration is no part of it.
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
        let parts_of = |spans: &[(u32, i64, i64)], earlier: usize| {
            let observed = trace(1000, spans);
            let iteration = Iteration::alone(&observed);
            let earlier = vec![&iteration; earlier];
            let around = TimeSplitContext {
                plan: &plan,
                earlier: &earlier,
                depth: 2,
                alone: None,
                host_bound: None,
                queues: &|_| QueueWaits::default(),
                engines: &|_| Vec::new(),
            };
            let (whole, links) = super::split(&iteration, &around);
            let mut times = BTreeMap::new();
            links.iter().for_each(|link| *times.entry(link.op.0).or_default() += link.time);
            times.retain(|_, time| *time > 0);
            (parts(&whole), times.into_iter().collect::<Vec<(u32, i64)>>())
        };
        // The maps take 990 of 1000 ns; the copy of an iteration runs during the one before.
        let maps = [(0, -900, -800), (1, 5, 400), (1, 405, 1000)];
        assert_eq!(parts_of(&maps, 9), ([990, 0, 0, 0, 10, 0], vec![(1, 395), (2, 595)]));
        // The copies follow each other without a gap; the maps after one of them are beside the next.
        let copies = [(0, -300, 690), (1, 700, 800), (1, 805, 1000)];
        assert_eq!(parts_of(&copies, 9), ([990, 0, 0, 0, 10, 0], vec![(0, 990)]));
        // Without earlier iterations, only the last one is known.
        assert_eq!(parts_of(&copies, 0), ([985, 0, 0, 0, 15, 0], vec![(0, 690), (1, 100), (2, 195)]));
    }

    proptest! {
        #[test]
        fn the_parts_add_up(
            time in 0i64..2000,
            spans in prop::collection::vec((0u32..2, -300i64..2000, 0i64..600), 6),
            alone in prop::collection::vec(0i64..600, 6),
            host_bound in prop::option::of(prop::sample::select(LaunchMode::ALL.to_vec())),
            timed_alone: bool,
            queues in prop::option::of(1u32..3),
            overlapping in 0usize..4,
            engine in -300i64..2000,
        ) {
            let (_, plan) = planned(&if overlapping > 0 { MEETING.replace("step", "step(sync: end)") } else { MEETING.to_owned() });
            let spans: Vec<_> = spans.iter().map(|&(lane, start, long)| (lane, start, start + long)).collect();
            let alone: Vec<_> = alone.iter().map(|&long| (0, 0, long)).collect();
            let alone = trace(0, &alone);
            let alone = SoloDurations::of_serial(&[Iteration::alone(&alone)]);
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
                depth: 1,
                alone: timed_alone.then_some(&alone),
                host_bound,
                queues: &queue,
                engines: &|trace| trace.spans.iter().map(|span| (span.op.0 % 2 > 0).then_some(engine)).collect(),
            };
            let (split, links) = super::split(&iteration, &around);
            prop_assert_eq!(split.sum(), Nanos(time));
            // The links share out each part.
            let mut sum = TimeSplitRecord { stretch_ns: timed_alone.then_some(Nanos(0)), ..TimeSplitRecord::default() };
            links.iter().for_each(|link| sum.add(&link.parts));
            prop_assert_eq!(&sum, &split);
            // Only stretch has a sign.
            let [operations, _, rest @ ..] = parts(&split);
            prop_assert!(operations >= 0 && split.engine_ns.0 >= 0 && rest.iter().all(|part| *part >= 0), "{:?}", split);
            prop_assert!(links.iter().all(|link| link.time >= 0));
        }
    }
}
