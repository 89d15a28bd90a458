//! The verdict of an analysis: the largest part of an iteration in words, and a usual remedy.

use crate::base::Nanos;
use crate::exec::LaunchMode;
use crate::ops::Arithmetic;

use super::queue_waits::STARTS;
use crate::measure::record::{
    AnalysisRecord, BalanceRecord, BoundRecord, CategoryRecord, LaneRecord, OperationRecord, PeakRecord,
    TimeSplitRecord, observer_effect_text,
};

/// Share of an iteration above which a tail is mentioned.
const TAIL: f64 = 0.25;

/// Share of an iteration below which a part is no verdict.
const LITTLE: f64 = 0.25;

/// Percentage of a resource's peak below which the peak is not mentioned.
const WORTH_TELLING: f64 = 1.0;

/// Share of an iteration above which operations beside a wait on the critical chain are mentioned.
const BESIDE_WAITING: f64 = 0.05;

/// Observer effect above which there is no verdict: most of an observed iteration is then time that a measured one lacks.
const DISTURBED: f64 = 1.0;

/// Share of a peak of the device above which all operations of an iteration together are considered to be at it.
const TOGETHER: f64 = 0.7;

/// Share of an iteration above which a part is too long to hide behind the rest.
const NEARLY_ALL: f64 = 0.9;

/// Remedies for traffic over a link: if the rest of the iteration can hide it, if only traffic in the other direction can, if nothing
/// can, and if the link waits for most of the time, so that each piece would add to it.
const EARLIER: &str = "start it earlier, in pieces, on a separate stream, during computation that needs other data";
const BOTH_DIRECTIONS: &str = "copies in both directions follow one another, and the link carries both at once: give each direction a \
                               stream of its own, in pieces if one needs the data of the other";
const LESS: &str =
    "move fewer bytes over the link: the traffic takes nearly the whole iteration, so nothing can hide it";
const FEWER_CALLS: &str = "at the link's peak its bytes take less than half of its time, and pieces would take longer: fewer and larger \
                           calls, `group { … }`, or the data of several iterations in one call";

/// Remedy for copies that wait for one from or to pageable memory.
const PINNED: &str = "a copy from or to pageable memory occupies its engine for longer: declare the memory `in pinned`";

/// Remedies for operations that memory bounds, and for products.
const FEWER_BYTES: &str =
    "move fewer bytes: a smaller type, fewer passes over the data, operations fused with their neighbours";
const MATRIX: &str = "shapes that fill all units, and larger products";

/// Share of an iteration above which waiting for other ranks is worth a remedy.
const WAITS: f64 = 0.05;

/// Share above which a part is the main one: of the gaps between operations, those during which other streams work; of the time of
/// traffic, that of its bytes at the link's peak.
const MOSTLY: f64 = 0.5;

/// Mean gap on the chain up to which a gap is an ordinary one between dependent operations: on an H100, `queue_switch` observes 2.8 µs
/// on a stream and 3.4 µs between streams, and 4 µs is above both. Operations that find no free units wait longer.
const ORDINARY_GAP: Nanos = Nanos(4_000);

/// Number of starts of operations up to which a gap is ordinary, if the profile has their time and that is less than [`ORDINARY_GAP`]: a
/// start takes 1.0 µs on the streams of an H100, and 0.18 µs in a graph, where 0.34 µs pass between dependent operations.
const ORDINARY_STARTS: i64 = 4;

/// Mean time from the start of one operation to that of the next, over all streams, up to which the device's front end limits them: an
/// H100 starts a tiny kernel every 0.4 µs on 32 streams, and every 1.05 µs on 8.
const START_INTERVAL: Nanos = Nanos(1_100);

/// Descriptions of gaps of the chain.
const BETWEEN: &str = "the time between one operation and the next";
const AT_ENDS: &str = "the time before its first and after its last operation";

/// Remedy for gaps during which other streams run operations.
const NO_FREE_UNITS: &str = "an operation that finds no free units starts when others end: give its stream a higher `priority`, \
                             launch it before the others, or give each fewer blocks; if operations are short, the device starts \
                             them one after the other: `--fuse` merges them; `--launch graph` shortens the gaps";

/// Remedy for operations that are so short that the device cannot start them fast enough.
const FEWER_STARTS: &str = "more streams do not help, and fewer can be faster: fewer and larger operations start less often, and `--fuse` merges chains of \
                            them; `--launch graph` shortens the gaps";

/// Remedy for a host that launches too slowly.
const HOST_CALLS: &str =
    "`--launch graph` issues an iteration by one call; fewer and larger operations need fewer calls";

/// Remedy for a host that launches a graph too slowly.
const GRAPH_CALL: &str =
    "more work in an iteration, or fewer branches of the graph, with each of which its call takes longer";

/// End of the remedies that a run as a graph has followed already.
const BY_GRAPH: &str = "; `--launch graph` shortens the gaps";

/// Remedies for operations of host streams, and of streams that are limited to some compute units.
const ON_CPU: &str = "the CPU limits it: more `threads` on the host stream, up to the cores of the machine, several host streams, \
                      or the same operation on a stream of the device";
const FEW_UNITS: &str = "its stream may use only some compute units: more `units`";

/// The remedy for operations of a lane that keeps to a part of the machine in this launch mode; `None` of others.
pub fn lane_remedy(lane: &LaneRecord, launch: &str) -> Option<&'static str> {
    match (lane.threads, &lane.units) {
        (Some(_), _) => Some(ON_CPU),
        // A graph's operations may use all units, and so may those of a device without queues for each priority. Old records have
        // `units` there too.
        (None, Some(_)) if lane.queues_by_priority && launch == LaunchMode::Stream.name() => Some(FEW_UNITS),
        _ => None,
    }
}

/// Verdict on a rank's iteration, and a usual remedy. `balance` explains why ranks wait for each other; `by_lanes` has the
/// [`lane_remedy`] of categories whose part of the chain mostly has one; `operations` are those of the rank. `start` is the time that
/// the device takes to start an operation, by its profile; 0 if it is not known.
pub fn verdict(
    analysis: &AnalysisRecord,
    rank: u32,
    balance: Option<&BalanceRecord>,
    by_lanes: &[(&str, &'static str)],
    operations: &[OperationRecord],
    start: Nanos,
) -> (String, String) {
    let split = &analysis.split;
    let categories = &analysis.categories;
    // The time that concurrency adds is a part of its own.
    let own = |category: &CategoryRecord| category.chain_ns - category.stretch_ns.unwrap_or_default().max(Nanos(0));
    let mut parts: Vec<(&str, Nanos)> =
        categories.iter().map(|category| (category.category.as_str(), own(category))).collect();
    parts.push(("stretch", split.stretch_ns.unwrap_or_default().max(Nanos(0))));
    let waits = split.parts().into_iter().filter(|(name, _)| !matches!(*name, "operations_ns" | "stretch_ns"));
    parts.extend(waits.map(|(name, time)| (name.trim_end_matches("_ns"), time.unwrap_or_default())));
    let whole = split.time_ns.0.max(1) as f64;
    // The first of equal parts.
    let largest = parts.iter().rev().max_by_key(|(_, time)| *time).copied();
    let Some((part, time)) = largest.filter(|(_, time)| time.0 > 0) else {
        return ("nothing ran".to_owned(), String::new());
    };
    if part == "wait"
        && let Some(verdict) = works_meanwhile(analysis, rank, balance, operations)
    {
        return verdict;
    }
    let share = time.0 as f64 / whole;
    let PartTexts { name, what, .. } = words(part);
    let facts = Facts::of_chain(analysis, operations, part);
    let (mut name, mut help) = (name.to_owned(), remedy(part, &facts));
    let (mut of_peak, mut what, mut bounded) = (String::new(), what.to_owned(), time);
    if let Some((bound, by, all)) = bound(analysis, part) {
        let reached = 100.0 * share_of_peak(bound);
        if reached >= WORTH_TELLING {
            of_peak = match bound.limits {
                true => format!(", at {reached:.0} % of its peak"),
                false => format!(", at {reached:.0} % of the peak of {}", resource(by)),
            };
        }
        if bound.limits {
            let by_name = resource(by);
            if bound.chain_ns < all {
                // Without the time that concurrency adds, as in the part.
                let of_part = bound.chain_ns.0 as f64 / all.0.max(1) as f64;
                (bounded, what) = (Nanos((time.0 as f64 * of_part) as i64), format!("{what} that {by_name} bounds"));
            }
            name = format!("bound by {by_name}");
            help = resource_remedy(by, &facts).unwrap_or(help);
        } else if let Some((shared, share)) = together(analysis, part) {
            // Each of several concurrent operations has a part of the resource only.
            (name, help) = shared;
            of_peak = all_reach(share);
        }
    }
    let at_limit = bound(analysis, part).is_some_and(|(bound, ..)| bound.limits) || together(analysis, part).is_some();
    let by_lane = by_lanes.iter().find(|(category, remedy)| *category == part && (*remedy == ON_CPU || !at_limit));
    if let Some((_, remedy)) = by_lane {
        let (limited, streams) = match *remedy {
            ON_CPU => ("bound by the CPU", "host streams"),
            _ => ("bound by the `units` of streams", "streams with `units`"),
        };
        (name, what) = (limited.to_owned(), format!("{} of {streams}", words(part).what));
        (bounded, help) = (time, (*remedy).to_owned());
    }
    if part == "wait" {
        (name, what, help) = waiting(rank, balance);
    }
    if part == "engine" {
        if let Some((shared, share)) = together(analysis, part) {
            (name, help) = shared;
            of_peak = all_reach(share);
        } else if mostly_pageable(operations) {
            help = PINNED.to_owned();
        }
    }
    if part == "copy" && split.engine_ns.0 as f64 > LITTLE * whole && mostly_pageable(operations) {
        help = PINNED.to_owned();
    }
    let gap = match part {
        "dependency" => Some((mean_gap(analysis), BETWEEN)),
        "idle" => Some((split.idle_ns, AT_ENDS)),
        _ => None,
    };
    let ordinary = if start.0 > 0 { ORDINARY_GAP.min(Nanos(ORDINARY_STARTS * start.0)) } else { ORDINARY_GAP };
    if let Some((_, when)) = gap.filter(|(gap, _)| *gap > ordinary) {
        let operations: usize = categories.iter().map(|category| category.operations).sum();
        let interval = Nanos(split.time_ns.0 / operations.max(1) as i64);
        let others_run = beside_others(analysis, time) > MOSTLY;
        let starts = start.0 as f64 >= STARTS * interval.0 as f64;
        if others_run {
            what = format!("{when}, mostly while other streams run operations");
        } else if starts {
            what = format!("{when}, while the device starts operations of other streams");
        }
        if let Some((shared, share)) = together(analysis, part).filter(|_| others_run) {
            (name, help) = shared;
            of_peak = all_reach(share);
        } else if starts || others_run && interval <= START_INTERVAL {
            name = format!("bound by the rate at which the device starts operations, one every {interval}");
            help = FEWER_STARTS.to_owned();
        } else if others_run {
            (name, help) = ("bound by operations of other streams".to_owned(), NO_FREE_UNITS.to_owned());
        }
    }
    if share > NEARLY_ALL && help == EARLIER {
        let over = |link| -> i64 {
            let bounds = analysis.bounds.iter().filter(|bound| bound.resource.as_deref() == Some(link));
            bounds.map(|bound| bound.chain_ns.0).sum()
        };
        let hidden = over("h2d").min(over("d2h"));
        help = if hidden as f64 > (1.0 - NEARLY_ALL) * whole { BOTH_DIRECTIONS } else { LESS }.to_owned();
    }
    if (bounded.0 as f64) < LITTLE * whole {
        name = "balanced, no part is large".to_owned();
    }
    let mut verdict = format!(
        "{name}: {:.0} % of the critical chain is {what} ({bounded} of {}){of_peak}",
        100.0 * bounded.0 as f64 / whole,
        split.time_ns
    );
    let beside = time - analysis.totals.map_or(time, |totals| totals.wait_ns);
    if part == "wait" && beside.0 as f64 > BESIDE_WAITING * whole {
        verdict += &format!("; other operations of this rank run during at least {beside} of it");
    }
    // If waiting dominates, the tail consists of waiting too.
    let works = categories.iter().any(|category| category.category == part);
    let tail = analysis.tail_ns.unwrap_or_default().0 as f64 / whole;
    if works && tail > TAIL {
        verdict +=
            &format!("; only one stream has work during the last {:.0} % of the iteration (a tail)", 100.0 * tail);
    }
    let help = match analysis.queue_waits.first() {
        Some(wait) if part == "queue" => wait.help.clone(),
        _ => help,
    };
    (verdict, help)
}

/// A remedy for an iteration that is launched as a graph.
pub fn help_for_graph(help: &str) -> String {
    let help = if help == HOST_CALLS { GRAPH_CALL } else { help };
    help.strip_suffix(BY_GRAPH).unwrap_or(help).to_owned()
}

/// The text in place of a verdict if observing changes the iteration too much for one; `None` otherwise.
pub fn without_verdict(observer_effect: Option<f64>) -> Option<(String, String)> {
    let effect = observer_effect.filter(|effect| *effect > DISTURBED)?;
    Some((
        format!(
            "no verdict: an observed iteration takes {} than a measured one, so its parts are not those of a measured one",
            observer_effect_text(effect)
        ),
        "fewer operations in an iteration disturb it less; the headline and metrics of whole iterations are not disturbed"
            .to_owned(),
    ))
}

/// Verdict for a rank that does other work during most of the time for which its chain waits for other ranks; `None` if it does not,
/// or if this is not known. A receive that is launched early waits on its own stream, while others compute.
fn works_meanwhile(
    analysis: &AnalysisRecord,
    rank: u32,
    balance: Option<&BalanceRecord>,
    operations: &[OperationRecord],
) -> Option<(String, String)> {
    let (split, idle) = (&analysis.split, analysis.totals?.wait_ns);
    let computes = |category: &&CategoryRecord| category.wait_ns.is_none() && category.category != "collective";
    let busiest = analysis.categories.iter().filter(computes).max_by_key(|category| category.busy_ns)?;
    if idle.0 as f64 >= MOSTLY * split.wait_ns.0 as f64 || busiest.busy_ns <= idle {
        return None;
    }
    let share = |time: Nanos| time.0 as f64 / split.time_ns.0.max(1) as f64;
    let texts = words(&busiest.category);
    let help = match share(idle) < WAITS {
        true => remedy(&busiest.category, &Facts::of_chain(analysis, operations, &busiest.category)),
        false => waiting(rank, balance).2,
    };
    let verdict = format!(
        "{}: {} runs during {:.0} % of the iteration ({} of {}), and the rank only waits for others during {:.0} % ({idle}); the \
         critical chain waits for them during {:.0} %, mostly while the rank does other work",
        texts.name,
        texts.what,
        100.0 * share(busiest.busy_ns),
        busiest.busy_ns,
        split.time_ns,
        100.0 * share(idle),
        100.0 * share(split.wait_ns)
    );
    Some((verdict, help))
}

/// Mean gap between two operations of the chain.
fn mean_gap(analysis: &AnalysisRecord) -> Nanos {
    let TimeSplitRecord { dependency_ns, chain, .. } = &analysis.split;
    Nanos(dependency_ns.0 / chain.len().saturating_sub(1).max(1) as i64)
}

/// Share of the gaps of a part of the chain, `gaps` in all, during which, at least, operations of other streams run; 0 if it is not
/// known.
fn beside_others(analysis: &AnalysisRecord, gaps: Nanos) -> f64 {
    let busy = analysis.totals.map_or(0, |totals| totals.busy_ns.0);
    let beside = busy + gaps.0 - analysis.split.time_ns.0;
    beside.max(0) as f64 / gaps.0.max(1) as f64
}

/// The resource that bounds most of a category's part of the chain, with its name, and the time of that part; `None` if none is known.
fn bound<'a>(analysis: &'a AnalysisRecord, category: &str) -> Option<(&'a BoundRecord, &'a str, Nanos)> {
    let bounds = || analysis.bounds.iter().filter(|bound| bound.category == category);
    let all: Nanos = bounds().map(|bound| bound.chain_ns).sum();
    let most = bounds().find(|bound| 2 * bound.chain_ns.0 > all.0)?;
    Some((most, most.resource.as_deref()?, all))
}

/// Share of their time that operations would take at the peak of the resource that bounds them.
fn share_of_peak(bound: &BoundRecord) -> f64 {
    bound.ideal_ns.0 as f64 / bound.chain_ns.0.max(1) as f64
}

/// True if copies of pageable memory take most of the time of all copies.
fn mostly_pageable(operations: &[OperationRecord]) -> bool {
    let copies = operations.iter().filter(|operation| operation.category == "copy");
    let time = |pageable: bool| -> i64 {
        copies.clone().filter(|copy| copy.pageable == pageable).filter_map(|copy| copy.time_ns).map(|time| time.0).sum()
    };
    time(true) > time(false)
}

/// Returns the verdict's name with a remedy, and the share of a peak, if an iteration's operations together reach a large share of the peak
/// of a resource that can hold up a part of the chain; otherwise `None`. Copies and waits for their engines use links, kernels use memory and
/// arithmetic, and a gap may wait for either.
fn together(analysis: &AnalysisRecord, part: &str) -> Option<((String, String), f64)> {
    let PeakRecord { flops, bytes, link, .. } = analysis.peak.as_ref()?;
    let is_gap = matches!(part, "dependency" | "idle");
    let over_link = part == "engine" || bound(analysis, part).is_some_and(|(_, by, _)| is_link(by));
    let link = link.iter().map(|(name, share)| (resource(name), LESS, *share)).filter(|_| over_link || is_gap);
    let own = [("memory bandwidth".to_owned(), FEWER_BYTES, *bytes), ("arithmetic".to_owned(), MATRIX, *flops)];
    let all = own.into_iter().filter(|_| !over_link).chain(link);
    let (resource, remedy, share) =
        all.max_by(|a, b| a.2.total_cmp(&b.2)).filter(|(_, _, share)| *share >= TOGETHER)?;
    Some(((format!("bound by {resource}"), remedy.to_owned()), share))
}

/// Share of a resource's peak that [`together`] returns, at the end of a verdict.
fn all_reach(share: f64) -> String {
    format!(", and all operations of the iteration together reach {:.0} % of its peak", 100.0 * share)
}

/// Verdict for a rank that mostly waits for others: its name, the reason, and a usual remedy.
fn waiting(rank: u32, balance: Option<&BalanceRecord>) -> (String, String, String) {
    let kind = balance.map_or("waiting", |balance| balance.kind.as_str());
    let late = balance.map_or(&[][..], |balance| &balance.ranks);
    let what = match late {
        [late] if *late != rank => format!("waiting for other ranks, mostly for rank {late}"),
        _ => "waiting for other ranks".to_owned(),
    };
    let help = match kind {
        "imbalance" => "give each rank equal work; the table of the ranks names the operation that takes longest",
        "late rank" => "check the late rank's host and device for what delays it before this iteration",
        "pipeline bubble" => {
            "more and smaller microbatches, and stages that take equally long, make the bubble smaller"
        }
        _ => "the trace of all ranks (`--trace`) shows what each waits for",
    };
    let name = if kind == "waiting" { "bound by waiting for other ranks" } else { kind };
    (name.to_owned(), what, help.to_owned())
}

/// Name of a resource in a sentence: `memory bandwidth`.
pub fn resource(name: &str) -> String {
    match name {
        "memory" | "cache" => format!("{name} bandwidth"),
        "vector" => "vector arithmetic".to_owned(),
        "h2d" => "the host link (host to device)".to_owned(),
        "d2h" => "the host link (device to host)".to_owned(),
        _ if Arithmetic::from_name(name).is_some() => format!("{name} matrix arithmetic"),
        link => link.to_owned(),
    }
}

/// True for the name of a link, as opposed to a device's memory or arithmetic.
fn is_link(name: &str) -> bool {
    !matches!(name, "memory" | "cache" | "vector") && Arithmetic::from_name(name).is_none()
}

/// Facts about operations that decide which remedies help them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// Share of their time that they would take at the peak of the resource that bounds them; `None` without a profile.
    pub of_peak: Option<f64>,
    /// True if operations of other streams run during the iteration.
    pub concurrent: bool,
    /// True if all copies are from or to pageable memory.
    pub pageable: bool,
    /// Number of pieces that copy engines move for each copy, if a kernel could copy them too; otherwise 0.
    pub pieces: u64,
    /// True if all are products or convolutions of `f32`, without `compute: tf32`.
    pub f32_products: bool,
}

impl Facts {
    /// Facts about some operations of an iteration, except for their share of a peak.
    pub fn of<'a>(analysis: &AnalysisRecord, operations: impl Iterator<Item = &'a OperationRecord> + Clone) -> Facts {
        let any = operations.clone().next().is_some();
        let all = |is: fn(&OperationRecord) -> bool| any && operations.clone().all(is);
        Facts {
            of_peak: None,
            concurrent: analysis.lanes_busy_ns.iter().filter(|busy| **busy > Nanos(0)).count() > 1,
            pageable: all(|operation| operation.pageable),
            pieces: operations.clone().map(|operation| operation.pieces.unwrap_or(0)).min().unwrap_or(0),
            f32_products: all(|operation| {
                matches!(operation.operation.as_str(), "gemm" | "conv") && operation.size.ends_with(" f32")
            }),
        }
    }

    /// Facts about the operations of a category on the chain.
    fn of_chain(analysis: &AnalysisRecord, operations: &[OperationRecord], category: &str) -> Facts {
        let chain = analysis.split.chain.iter().filter_map(|&id| operations.get(id as usize));
        let of_category = chain.filter(|operation| operation.category == category);
        let of_peak = bound(analysis, category).map(|(bound, ..)| share_of_peak(bound));
        Facts { of_peak, ..Facts::of(analysis, of_category) }
    }
}

/// A usual remedy for operations that use a large share of a resource's peak; `None` if it depends on their category.
fn resource_remedy(resource: &str, facts: &Facts) -> Option<String> {
    match resource {
        "memory" | "cache" => Some(FEWER_BYTES.to_owned()),
        "vector" if !facts.f32_products => Some("less arithmetic for each element, or a smaller type".to_owned()),
        "vector" => None,
        _ if Arithmetic::from_name(resource).is_some() && !facts.f32_products => {
            Some(format!("a smaller type, {}", remedy("matrix", facts)))
        }
        _ => None,
    }
}

/// The remedy that usually helps operations of a category about which these facts are known.
pub fn remedy(category: &str, facts: &Facts) -> String {
    let link_waits = facts.of_peak.is_some_and(|share| share < MOSTLY);
    let text = match category {
        "matrix" if facts.f32_products => {
            "`compute: tf32` or a 16-bit type, which matrix units multiply faster than `f32`, and larger products"
        }
        "matrix" if facts.concurrent => return format!("{MATRIX}, and fewer concurrent operations that occupy units"),
        "copy" if facts.pageable => "pinned instead of pageable host memory, and larger pieces",
        "copy" if facts.pieces > 1 && link_waits => {
            return format!(
                "a copy engine moves {} pieces one by one: `via: kernel` copies them in one launch, and larger pieces take less \
                 time for each byte",
                facts.pieces
            );
        }
        "copy" if link_waits => {
            "fewer and larger copies: at the peak of what bounds them, their bytes take less than half of their time"
        }
        "collective" if link_waits => FEWER_CALLS,
        _ => words(category).help,
    };
    text.to_owned()
}

/// True if the resource computes: vector units, or matrix units, which are named after the type of arithmetic.
pub fn is_arithmetic(resource: &str) -> bool {
    resource == "vector" || Arithmetic::from_name(resource).is_some()
}

/// Texts about a part of an iteration.
struct PartTexts {
    /// Name of the verdict, if no resource is at its limit.
    name: &'static str,
    what: &'static str,
    /// The remedy that usually helps.
    help: &'static str,
}

fn words(part: &str) -> PartTexts {
    let (name, what, help) = match part {
        "wait" => ("bound by waiting for other ranks", "waiting for other ranks", "balance the ranks"),
        "engine" => (
            "bound by a copy engine",
            "waiting for a copy engine that copies of other streams occupy",
            "copies of one direction follow each other, on any number of streams: move fewer bytes over the link, or start them earlier",
        ),
        "launch" => ("host-bound", "waiting for the host", HOST_CALLS),
        "stretch" => (
            "bound by contention",
            "stretch, time that operations take longer beside others than alone",
            "run the operations with the largest `stretch` one after the other, or beside others that use different parts of \
             the device",
        ),
        "queue" => (
            "queue-bound",
            "waiting behind other streams on a hardware queue",
            "fewer streams, or more queues: `--env CUDA_DEVICE_MAX_CONNECTIONS=32`; issue independent operations first",
        ),
        "dependency" => (
            "bound by gaps between operations",
            BETWEEN,
            "operations are short compared with the gaps between them: fuse them, or give each more work; `--launch graph` \
             shortens the gaps",
        ),
        "idle" => (
            "bound by the start and end of the iteration",
            AT_ENDS,
            "the iteration is short compared with its timestamps: give it more work, or overlap iterations with \
             `sync: end`",
        ),
        "matrix" => ("bound by matrix multiplication", "matrix multiplication", MATRIX),
        "copy" => ("bound by copies", "copying", EARLIER),
        "collective" => ("bound by exposed communication", "communication", EARLIER),
        "movement" => (
            "bound by data movement",
            "moving data within the device",
            "let the previous operation write in the order in which the next one reads, so that the move is not needed",
        ),
        "kernel" => (
            "bound by the file's kernels",
            "kernels of the file",
            "a profiler shows what limits one: `aorta profile --with ncu FILE`",
        ),
        "synthetic" => ("bound by synthetic work", "synthetic work", "the file sets its work or its duration"),
        "row-wise" => (
            "bound by row-wise operations",
            "row-wise work",
            "each element is read and written again: a smaller type, and fewer passes over the data",
        ),
        _ => (
            "bound by elementwise operations",
            "elementwise work",
            "each element is read and written again: fuse neighbouring `map`s into one, or use a smaller type",
        ),
    };
    PartTexts { name, what, help }
}

#[cfg(test)]
mod tests;
