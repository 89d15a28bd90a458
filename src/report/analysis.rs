//! What an iteration's time went into, for people: a few lines in every report, and the largest operations on demand.

use std::fmt::Write as _;

use crate::base::{Nanos, counted};
use crate::measure::record::{AnalysisRecord, OperationRecord, RankRecord, RunRecord, Variant};
use crate::measure::verdict;

use super::table::{new_table, plain_name, push, variant_name};

/// Categories that are named.
const CATEGORIES: usize = 3;

/// Operations of a chain that are named.
const NAMED: usize = 6;

/// Stretch from which on an operation is said to suffer from what runs beside it.
const STRETCHED: f64 = 1.2;

/// The share of what it takes at the device's peaks from which on an operation is said to be near them.
const NEAR_PEAK: f64 = 0.7;

/// The share of an iteration from which on waiting for other ranks is told.
const WORTH_TELLING: f64 = 0.01;

/// Operations shorter than this cost less than launching them.
const SHORT: Nanos = Nanos(5_000);

/// The analysis of the first variant in a few lines, and the verdict of each other.
pub fn section(record: &RunRecord, out: &mut String) {
    let mut first = true;
    for variant in &record.variants {
        let Some((rank, analysis)) = analyzed(variant) else { continue };
        let name = variant_name(record, variant);
        if !first {
            let _ = writeln!(out, "{name}: {}", analysis.verdict);
            continue;
        }
        first = false;
        let longest = if record.program.cycle > 1 { ", the longest" } else { "" };
        let of = super::slots::of(record, rank);
        let _ = writeln!(out, "Where the time goes, in one observed iteration ({name}{of}{longest})");
        let _ = writeln!(out, "{}", analysis.verdict);
        let _ = writeln!(out, "of {}: {}", analysis.split.time_ns, split(analysis));
        if let Some(waiting) = waiting(variant, rank, analysis) {
            let _ = writeln!(out, "{waiting}");
        }
        let _ = writeln!(out, "busy: {}", categories(analysis));
        let _ = writeln!(out, "critical path: {}", path(rank, analysis));
    }
    if !first {
        out.push('\n');
    }
}

fn analyzed(variant: &Variant) -> Option<(&RankRecord, &AnalysisRecord)> {
    variant.ranks.iter().find_map(|rank| Some((rank, rank.analysis.as_ref()?)))
}

fn share(part: Nanos, whole: Nanos) -> String {
    format!("{:.0} %", 100.0 * part.0 as f64 / whole.0.max(1) as f64)
}

/// The parts of the iteration that are not nothing; they add up to it.
fn split(analysis: &AnalysisRecord) -> String {
    let split = &analysis.split;
    let parts = [
        ("operations", split.operations_ns),
        ("stretch", split.stretch_ns.unwrap_or(Nanos(0))),
        ("launch", split.launch_ns),
        ("queue", split.queue_ns),
        ("dependency", split.dependency_ns),
        ("idle", split.idle_ns),
    ];
    let parts = parts.iter().filter(|(_, time)| time.0 != 0).map(|(name, time)| format!("{name} {time}"));
    parts.collect::<Vec<_>>().join(" + ")
}

/// What of the chain is waiting for other ranks, where that is worth a line.
fn waiting(variant: &Variant, rank: &RankRecord, analysis: &AnalysisRecord) -> Option<String> {
    let waits = variant.skew.as_ref()?.collectives.iter().filter_map(|meeting| {
        let place = meeting.ranks.iter().position(|number| *number == rank.rank)?;
        analysis.split.chain.contains(&meeting.ids[place]).then(|| meeting.wait_ns[place])
    });
    let (time, whole) = (waits.sum::<Nanos>(), analysis.split.time_ns);
    (time.0 as f64 > WORTH_TELLING * whole.0 as f64)
        .then(|| format!("of the operations, waiting for other ranks in collectives: {time} ({})", share(time, whole)))
}

fn categories(analysis: &AnalysisRecord) -> String {
    let mut categories: Vec<_> = analysis.categories.iter().collect();
    categories.sort_by_key(|category| (std::cmp::Reverse(category.busy_ns), category.category.clone()));
    let more = if categories.len() > CATEGORIES { ", …" } else { "" };
    let text = categories.into_iter().take(CATEGORIES).map(|category| {
        let exposed = category.exposed_ns.map(|exposed| format!(", exposed {exposed}")).unwrap_or_default();
        let share = share(category.busy_ns, analysis.split.time_ns);
        format!("{} {} ({share}{exposed})", category.category, category.busy_ns)
    });
    text.collect::<Vec<_>>().join(", ") + more
}

/// Its length and its operations, those of one name in a row once.
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
    let rest = names.len().saturating_sub(NAMED);
    let mut shown: Vec<String> = names
        .iter()
        .take(NAMED)
        .map(|(name, count)| if *count > 1 { format!("{count} × {name}") } else { name.clone() })
        .collect();
    if rest > 0 {
        shown.push("…".to_owned());
    }
    format!(
        "{} ({}) through {}: {}",
        path.length_ns,
        share(path.length_ns, analysis.split.time_ns),
        counted(path.operations.len(), "operation"),
        shown.join(", ")
    )
}

/// The `count` groups of operations with the most own time, each with what usually helps it; of each variant.
pub fn top(record: &RunRecord, count: usize) -> String {
    let mut out = String::new();
    for variant in &record.variants {
        let Some((rank, analysis)) = analyzed(variant) else { continue };
        let name = variant_name(record, variant);
        let of = super::slots::of(record, rank);
        let _ = writeln!(out, "Operations with the most time of their own ({name}{of})");
        let groups = groups(rank);
        let total: i64 = groups.iter().map(Group::time).sum();
        let header = ["operation", "category", "count", "in all", "share", "stretch", "slack", "of peak"];
        let mut table = new_table(&header.map(str::to_owned));
        for group in groups.iter().take(count) {
            let absent = || "–".to_owned();
            table.add_row([
                group.name.clone(),
                group.members[0].category.clone(),
                group.members.len().to_string(),
                Nanos(group.time()).to_string(),
                share(Nanos(group.time()), Nanos(total)),
                group.stretch().map_or_else(absent, |stretch| format!("{stretch:.2}")),
                group.slack().map_or_else(absent, |slack| slack.to_string()),
                group.of_peak().map_or_else(absent, |share| format!("{:.0} %", 100.0 * share)),
            ]);
        }
        push(&mut out, &table);
        for group in groups.iter().take(count) {
            let _ = writeln!(out, "{}: {}", group.name, advice(group));
        }
        let _ = writeln!(out, "the whole: {}; {}\n", analysis.verdict, analysis.help);
    }
    out
}

/// Operations of one name, whatever their indices.
struct Group<'a> {
    name: String,
    members: Vec<&'a OperationRecord>,
}

/// Groups by their time, the largest first; those that were refused or not observed have none.
fn groups(rank: &RankRecord) -> Vec<Group<'_>> {
    let mut groups: indexmap::IndexMap<(String, &str), Vec<&OperationRecord>> = indexmap::IndexMap::new();
    for operation in rank.operations.iter().filter(|operation| operation.time_ns.is_some()) {
        groups.entry((plain_name(&operation.name), operation.operation.as_str())).or_default().push(operation);
    }
    let mut groups: Vec<Group> = groups.into_iter().map(|((name, _), members)| Group { name, members }).collect();
    groups.sort_by(|a, b| b.time().cmp(&a.time()).then_with(|| a.name.cmp(&b.name)));
    groups
}

impl Group<'_> {
    fn sum(&self, value: impl Fn(&OperationRecord) -> Option<Nanos>) -> Option<i64> {
        self.members.iter().map(|operation| value(operation).map(|time| time.0)).sum()
    }

    fn time(&self) -> i64 {
        self.sum(|operation| operation.time_ns).unwrap_or(0)
    }

    fn stretch(&self) -> Option<f64> {
        let alone = self.sum(|operation| operation.alone_ns).filter(|alone| *alone > 0)?;
        Some(self.time() as f64 / alone as f64)
    }

    /// The least of its members.
    fn slack(&self) -> Option<Nanos> {
        self.members.iter().filter_map(|operation| operation.slack_ns).min()
    }

    /// What it takes at the device's peaks, over what it took.
    fn of_peak(&self) -> Option<f64> {
        let ideal = self.sum(|operation| operation.ideal_ns)?;
        (self.time() > 0).then(|| ideal as f64 / self.time() as f64)
    }
}

/// What usually helps an operation in this situation, in one line.
fn advice(group: &Group) -> String {
    let each = Nanos(group.time() / group.members.len() as i64);
    if let Some(slack) = group.slack().filter(|slack| slack.0 > each.0 / 2) {
        return format!("it has {slack} of slack: making it faster gains nothing, moving it may");
    }
    if let Some(stretch) = group.stretch().filter(|stretch| *stretch > STRETCHED) {
        return format!(
            "it takes {stretch:.2} times as long as alone: let it run beside something that needs other parts of the \
             device"
        );
    }
    if each < SHORT {
        return "each is shorter than what launching it costs: fuse it with its neighbours, or give it more to do"
            .to_owned();
    }
    if let Some(near) = group.of_peak().filter(|near| *near > NEAR_PEAK) {
        return format!("it reaches {:.0} % of what the device can do: only doing less of it helps", 100.0 * near);
    }
    verdict::help(&group.members[0].category).to_owned()
}
