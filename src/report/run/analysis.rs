//! The analysis of an iteration's time: a few lines in every report, and the largest operations on request.

use crate::base::{Nanos, counted};
use crate::measure::record::plain_name;
use crate::measure::record::{AnalysisRecord, OperationRecord, QueueWaitRecord, RankRecord, RunRecord, Variant};
use crate::measure::verdict;
use crate::report::page::{Page, Section, Table, cell};
use crate::report::quantity::share_of as share;
use crate::report::variant::{disturbed, shown, variant_name};

use super::operations::{OperationGroup, groups};

/// Number of categories that are listed.
const MAX_CATEGORIES: usize = 3;

/// Number of phases that are listed.
const MAX_PHASES: usize = 5;

/// Number of operations of a path that are listed.
const MAX_OPERATIONS: usize = 6;

/// Number of operations that hold up a hardware queue and are listed.
const MAX_QUEUE_WAITS: usize = 2;

/// Slowdown by concurrent operations above which it is reported.
const REPORTED_SLOWDOWN: f64 = 1.2;

/// Fraction of the device's peak above which an operation counts as near it.
const NEAR_PEAK: f64 = 0.7;

/// Fraction of an operation's time above which waiting for other ranks counts as its main cost.
const MOSTLY_WAITS: f64 = 0.5;

/// Operations shorter than this take less time than launching them.
const SHORT: Nanos = Nanos(5_000);

/// The analysis of the first variant in a few lines, and the verdict on each other one, for the rank that is shown.
/// `None` if nothing was analyzed.
pub fn section(record: &RunRecord, rank: Option<u32>) -> Option<Section> {
    let mut section = Section::default();
    for variant in &record.variants {
        let Some((rank, analysis)) = analyzed(variant, rank) else { continue };
        let name = variant_name(record, variant);
        if !section.title.is_empty() {
            section.lines.push(format!("{name}: {}", analysis.verdict));
            continue;
        }
        let measured_slots = variant.time.slots.iter().filter(|times| times.p50_ns.is_some()).count();
        let longest = if measured_slots > 1 { ", the longest" } else { "" };
        let slot = super::slots::of(record, rank);
        section.title =
            format!("Where the time goes, in one observed iteration ({name}{slot}{longest}{})", disturbed(rank));
        section.lines.extend([analysis.verdict.clone(), format!("{} = {}", analysis.split.time_ns, split(analysis))]);
        section.lines.extend(phases(analysis));
        section
            .lines
            .extend([format!("busy: {}", categories(analysis)), format!("critical path: {}", path(rank, analysis))]);
        let waits = analysis.queue_waits.iter().take(MAX_QUEUE_WAITS);
        section.lines.extend(waits.enumerate().map(|(place, wait)| queue_wait(rank, wait, place == 0)));
        section.lines.extend(analysis.unusual.clone());
        section.lines.extend(analysis.beside_waiting.map(|beside| {
            format!(
                "beside waiting: kernels that run while a send, a receive or a collective waits take {:.2} times as long \
                 as without ({:.0} in an iteration)",
                beside.stretch, beside.operations
            )
        }));
    }
    (!section.title.is_empty()).then_some(section)
}

fn analyzed(variant: &Variant, rank: Option<u32>) -> Option<(&RankRecord, &AnalysisRecord)> {
    let rank = shown(variant, rank)?;
    Some((rank, rank.analysis.as_ref()?))
}

/// Names the operation that waits longest in a hardware queue and the one that it waits behind, and, with `help`, a remedy.
fn queue_wait(rank: &RankRecord, wait: &QueueWaitRecord, help: bool) -> String {
    let name = |id: u32| rank.operations.get(id as usize).map_or("an operation", |operation| operation.name.as_str());
    let others = match wait.operations {
        1 => String::new(),
        2 => ", as another operation does for up to as long".to_owned(),
        count => format!(", as {} do for up to as long", counted(count - 1, "other operation")),
    };
    format!(
        "hardware queue {}: `{}` waits {} behind `{}`, on which it does not depend{others}{}",
        wait.queue,
        name(wait.operation),
        wait.time_ns,
        name(wait.behind),
        if help { format!("; {}", wait.help) } else { String::new() }
    )
}

/// The nonzero parts of the iteration's time, which add up to it.
fn split(analysis: &AnalysisRecord) -> String {
    let part = |(name, time): (&str, Option<Nanos>)| {
        let name = if name == "wait_ns" { "waiting for other ranks" } else { name.trim_end_matches("_ns") };
        time.filter(|time| time.0 != 0).map(|time| format!("{name} {time}"))
    };
    analysis.split.parts().into_iter().filter_map(part).collect::<Vec<_>>().join(" + ")
}

/// The largest outermost phases, in the order in which the iteration waits for them; `None` without phases.
fn phases(analysis: &AnalysisRecord) -> Option<String> {
    let phases: Vec<_> = analysis.outermost_phases().into_iter().collect();
    let mut times: Vec<Nanos> = phases.iter().map(|(_, split)| split.time_ns).collect();
    times.sort_by_key(|time| std::cmp::Reverse(*time));
    let least = *times.get(MAX_PHASES - 1).or(times.last())?;
    let more = if phases.len() > MAX_PHASES { ", …" } else { "" };
    let text = phases.into_iter().filter(|(_, split)| split.time_ns >= least).take(MAX_PHASES).map(|(phase, split)| {
        let name = phase.unwrap_or("no phase");
        format!("{name} {} ({})", split.time_ns, share(split.time_ns, analysis.split.time_ns))
    });
    Some(format!("by phase: {}{more}", text.collect::<Vec<_>>().join(", ")))
}

fn categories(analysis: &AnalysisRecord) -> String {
    let mut categories: Vec<_> = analysis.categories.iter().collect();
    categories.sort_by_key(|category| (std::cmp::Reverse(category.busy_ns), category.category.clone()));
    let more = if categories.len() > MAX_CATEGORIES { ", …" } else { "" };
    let text = categories.into_iter().take(MAX_CATEGORIES).map(|category| {
        let part = |what: &str, time: Option<Nanos>| time.map(|time| format!(", {what} {time}")).unwrap_or_default();
        let waiting = part("of which waiting", category.wait_ns.filter(|wait| *wait > Nanos(0)));
        let exposed = part("exposed", category.exposed_ns);
        let share = share(category.busy_ns, analysis.split.time_ns);
        format!("{} {} ({share}{waiting}{exposed})", category.category, category.busy_ns)
    });
    text.collect::<Vec<_>>().join(", ") + more
}

/// The critical path: its length and its operations; consecutive operations of one name are listed once.
fn path(rank: &RankRecord, analysis: &AnalysisRecord) -> String {
    let path = &analysis.critical_path;
    let mut names: Vec<(String, usize)> = Vec::new();
    for operation in path.operations.iter().filter_map(|&id| rank.operations.get(id as usize)) {
        let name = plain_name(&operation.name);
        match names.last_mut() {
            Some((last, count)) if *last == name => *count += 1,
            _ => names.push((name, 1)),
        }
    }
    let rest = names.len().saturating_sub(MAX_OPERATIONS);
    let mut shown: Vec<String> = names
        .iter()
        .take(MAX_OPERATIONS)
        .map(|(name, count)| if *count > 1 { format!("{count} × {name}") } else { name.clone() })
        .collect();
    if rest > 0 {
        shown.push("…".to_owned());
    }
    // A chain of overlapping iterations begins before the end of the one before.
    let iteration = analysis.split.time_ns;
    let part = match path.running_ns.filter(|running| *running != path.length_ns) {
        _ if path.length_ns > iteration => "longer than the iteration, since iterations overlap".to_owned(),
        Some(running) => format!("its operations run for {running}, {} of the iteration", share(running, iteration)),
        None => share(path.length_ns, iteration),
    };
    format!("{} ({part}) through {}: {}", path.length_ns, counted(path.operations.len(), "operation"), shown.join(", "))
}

/// The `count` groups of operations with the longest total time, each with a usual remedy, for each variant on the rank
/// that is shown.
pub fn top(record: &RunRecord, rank: Option<u32>, count: usize) -> Page {
    let section = |variant: &Variant| {
        let (rank, analysis) = analyzed(variant, rank)?;
        let mut groups = groups(rank);
        groups.sort_by_key(|group| std::cmp::Reverse(group.work()));
        let total: Nanos = groups.iter().map(OperationGroup::work).sum();
        // Only a run on one stream has times alone.
        let stretched = groups.iter().any(|group| group.stretch().is_some());
        let mut header = vec!["operation", "kind and size", "count", "total", "share"];
        header.extend(stretched.then_some("stretch"));
        header.extend(["slack", "of peak"]);
        let mut table = Table::new(header).left(1);
        for group in groups.iter().take(count) {
            let mut row = vec![
                group.short_name(),
                group.kind(),
                group.members.len().to_string(),
                group.work().to_string(),
                share(group.work(), total),
            ];
            row.extend(stretched.then(|| cell(group.stretch().map(|stretch| format!("{stretch:.2}")))));
            row.extend([cell(group.slack()), group.of_peak_text()]);
            table.row(row);
        }
        let lanes = &record.program.lanes;
        let by_lanes = |group: &OperationGroup| {
            let of =
                |member: &&OperationRecord| verdict::lane_remedy(lanes.get(member.lane as usize)?, &variant.launch);
            let first = group.members.first().and_then(of);
            first.filter(|_| group.members.iter().all(|member| of(member) == first))
        };
        let lines = |group: &OperationGroup| {
            let launched = group.launch_text().map(|text| format!("{} runs as {text}", group.name));
            let advice = advice(group, (rank, analysis), by_lanes(group));
            [format!("{}: {advice}", group.name)].into_iter().chain(launched)
        };
        let waits = groups.iter().take(count).any(|group| group.wait() > Nanos(0));
        let mut notes =
            Vec::from_iter(waits.then(|| {
                "`total` and `share` are without waiting for other ranks, unlike in the table above".to_owned()
            }));
        notes.extend(groups.iter().take(count).flat_map(lines));
        notes.push(format!("the whole: {}; {}", analysis.verdict, analysis.help));
        notes.extend(analysis.unusual.clone());
        let described =
            format!("{}{}{}", variant_name(record, variant), super::slots::of(record, rank), disturbed(rank));
        let title = format!("Longest operations ({described})");
        Some(Section { title, table: Some(table), notes, ..Section::default() })
    };
    Page { sections: record.variants.iter().filter_map(section).collect(), ..Page::default() }
}

/// Returns a line of advice: the change that usually helps a group of operations in its situation. `by_lanes` is their
/// [`lane_remedy`](verdict::lane_remedy).
fn advice(group: &OperationGroup, (rank, analysis): (&RankRecord, &AnalysisRecord), by_lanes: Option<&str>) -> String {
    let each = group.each();
    if group.wait().0 as f64 > MOSTLY_WAITS * group.time().0 as f64 {
        let share = share(group.wait(), group.time());
        return format!(
            "it waits for other ranks for {share} of its time: make the other ranks arrive earlier, or start it later"
        );
    }
    if let Some(slack) = group.slack().filter(|slack| slack.0 > each.0 / 2) {
        let beside = beside_on_chain(group, rank, analysis);
        let slowed = beside.iter().max_by(|a, b| stretch(a).total_cmp(&stretch(b)));
        return match slowed {
            None => format!("it has {slack} of slack: making it faster gains nothing, moving it may"),
            Some(other) if stretch(other) > REPORTED_SLOWDOWN => format!(
                "it has {slack} of slack, but runs beside `{}`, which takes {:.2} times as long as alone: less work in it may make that \
                 one faster, and so may moving it",
                other.name,
                stretch(other)
            ),
            Some(_) => format!("it has {slack} of slack: making it faster gains little, moving it may help"),
        };
    }
    if let Some(stretch) = group.stretch().filter(|stretch| *stretch > REPORTED_SLOWDOWN) {
        return format!(
            "it takes {stretch:.2} times as long as alone: run it concurrently with operations that use other parts \
             of the device"
        );
    }
    if each < SHORT {
        return "each takes less time than its launch: fuse it with its neighbours, or give it more work".to_owned();
    }
    if let Some((near, bound)) = group.of_peak().filter(|(near, _)| *near > NEAR_PEAK) {
        let bound_text = bound.map(|bound| format!(" of {}", verdict::resource(bound))).unwrap_or_default();
        return format!("it reaches {:.0} % of the peak{bound_text}: only less work makes it faster", 100.0 * near);
    }
    let of_peak = group.of_peak().map(|(share, _)| share);
    let facts = verdict::Facts { of_peak, ..verdict::Facts::of(analysis, group.members.iter().copied()) };
    by_lanes.map_or_else(|| verdict::remedy(&group.members[0].category, &facts), str::to_owned)
}

/// Slowdown of an operation compared with running alone; 1 if it was not timed alone.
fn stretch(operation: &OperationRecord) -> f64 {
    let alone = operation.alone_ns.filter(|alone| *alone > Nanos(0));
    operation.work_ns().zip(alone).map_or(1.0, |(work, alone)| work.0 as f64 / alone.0 as f64)
}

/// Operations on the chain that the iteration waits for during which an operation of the group runs, on another stream.
fn beside_on_chain<'a>(
    group: &OperationGroup,
    rank: &'a RankRecord,
    analysis: &AnalysisRecord,
) -> Vec<&'a OperationRecord> {
    let range = |operation: &OperationRecord| {
        let (start, time) = (operation.start_ns?, operation.time_ns?);
        Some((start, start + time))
    };
    let overlap = |a: &OperationRecord, b: &OperationRecord| {
        let ranges = range(a).zip(range(b));
        a.lane != b.lane && ranges.is_some_and(|(a, b)| a.0 < b.1 && b.0 < a.1)
    };
    let chain = analysis.split.chain.iter().filter_map(|&id| rank.operations.get(id as usize));
    chain.filter(|on_chain| group.members.iter().any(|member| overlap(member, on_chain))).collect()
}
