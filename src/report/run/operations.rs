//! Groups operations for the tables of reports: operations with the same label, kind and location are one row.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use rustc_hash::FxHashSet;

use crate::base::{Bytes, Nanos, Rate};
use crate::measure::record::plain_name;
use crate::measure::record::{OperationRecord, RankRecord, RunRecord, Variant};
use crate::measure::verdict;
use crate::report::page::{ABSENT, Section, Table};
use crate::report::quantity::{share_of, whole_percent};
use crate::report::variant::{disturbed, variant_name};

use super::slots;

/// Maximum number of rows.
const ROWS: usize = 16;

/// Maximum number of characters of a name.
const NAME: usize = 24;
/// Maximum number of characters of a kind with its size.
const KIND: usize = 40;

/// Maximum length in characters of the name of a kernel's function.
const FUNCTION: usize = 60;

/// Label without indices, kind and source location.
type Key<'a> = (String, &'a str, &'a str);

/// Operations with the same label, kind and location.
pub(super) struct OperationGroup<'a> {
    /// The label, or the kind if there is no label; with its place if several rows would have the same name.
    pub name: String,
    pub members: Vec<&'a OperationRecord>,
}

fn key(operation: &OperationRecord) -> Key<'_> {
    (plain_name(&operation.name), &operation.operation, &operation.place)
}

/// The groups of a rank by total time, the largest first. Operations that were refused or not observed are left out.
pub(super) fn groups(rank: &RankRecord) -> Vec<OperationGroup<'_>> {
    let mut groups: IndexMap<Key, Vec<&OperationRecord>> = IndexMap::new();
    for operation in rank.operations.iter().filter(|operation| operation.time_ns.is_some()) {
        groups.entry(key(operation)).or_default().push(operation);
    }
    let mut places: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, _, place) in groups.keys() {
        places.entry(name.clone()).or_default().push(place);
    }
    let group = |((name, _, place), members): (Key, _)| {
        let (file, line_and_column) = split_place(place);
        let same = &places[&name];
        let elsewhere = file.starts_with(SHIPPED) || same.iter().any(|other| split_place(other).0 != file);
        let at = if elsewhere { place } else { line_and_column };
        let name = if same.len() > 1 { format!("{name} at {at}") } else { name };
        OperationGroup { name, members }
    };
    let mut groups: Vec<OperationGroup> = groups.clone().into_iter().map(group).collect();
    groups.sort_by(|a, b| b.time().cmp(&a.time()).then_with(|| a.name.cmp(&b.name)));
    groups
}

/// Folder of the shipped modules in the places of operations. A module of a user in a folder of this name is shown alike.
const SHIPPED: &str = "std/";

/// The parts `file.aorta` and `12:5` of `file.aorta:12:5`.
fn split_place(place: &str) -> (&str, &str) {
    place.rmatch_indices(':').nth(1).map_or(("", place), |(at, _)| (&place[..at], &place[at + 1..]))
}

/// Returns the text, or its beginning and `…`, in at most this many characters.
pub(in crate::report) fn shortened(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => text.chars().take(most - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

impl OperationGroup<'_> {
    fn sum(&self, value: impl Fn(&OperationRecord) -> Option<Nanos>) -> Option<Nanos> {
        self.members.iter().map(|operation| value(operation)).sum()
    }

    /// Total time of all operations, including waiting for other ranks.
    pub fn time(&self) -> Nanos {
        self.sum(|operation| operation.time_ns).unwrap_or_default()
    }

    /// Total time that the operations wait for other ranks.
    pub fn wait(&self) -> Nanos {
        self.members.iter().filter_map(|operation| operation.wait_ns).sum()
    }

    /// Total time of all operations without waiting.
    pub fn work(&self) -> Nanos {
        self.sum(OperationRecord::work_ns).unwrap_or_default()
    }

    /// Mean time of an operation without waiting.
    pub fn each(&self) -> Nanos {
        Nanos(self.work().0 / self.members.len() as i64)
    }

    /// Slowdown compared with running alone. `None` if an operation was not timed alone.
    pub fn stretch(&self) -> Option<f64> {
        let alone = self.sum(|operation| operation.alone_ns).filter(|alone| *alone > Nanos(0))?;
        Some(self.work().0 as f64 / alone.0 as f64)
    }

    /// The smallest slack of the group's operations; `None` if it is not known.
    pub fn slack(&self) -> Option<Nanos> {
        self.members.iter().filter_map(|operation| operation.slack_ns).min()
    }

    /// The fraction of the peak that the group achieves on its limiting resource, and that resource's name. `None` if
    /// no profile describes the device, or an operation needs no resource.
    pub fn of_peak(&self) -> Option<(f64, Option<&str>)> {
        let ideal = self.sum(|operation| operation.ideal_ns)?;
        let mut bounds: IndexMap<&str, Nanos> = IndexMap::new();
        for operation in &self.members {
            if let (Some(bound), Some(ideal)) = (&operation.bound, operation.ideal_ns) {
                bounds.entry(bound).or_default().0 += ideal.0;
            }
        }
        let bound = bounds.into_iter().rev().max_by_key(|(_, time)| *time).map(|(bound, _)| bound);
        (self.work() > Nanos(0)).then(|| (ideal.0 as f64 / self.work().0 as f64, bound))
    }

    /// The share of the peak as text, such as `89 % memory`; `89 % memory+cache` if the cache serves a part of the bytes.
    pub fn of_peak_text(&self) -> String {
        let cached = self.members.iter().any(|operation| operation.cached);
        match self.of_peak() {
            Some((share, bound)) => {
                let share = whole_percent(share);
                let also = if cached && bound == Some("memory") { "+cache" } else { "" };
                format!("{share} {}{also}", bound.unwrap_or_default()).trim_end().to_owned()
            }
            None => ABSENT.to_owned(),
        }
    }

    /// The kind with its sizes, such as `gemm 4096×4096×1024 bf16`.
    pub fn kind(&self) -> String {
        let first = self.members[0];
        let sizes: FxHashSet<&str> = self.members.iter().map(|member| member.size.as_str()).collect();
        let size = match sizes.len() {
            1 => first.size.clone(),
            sizes => format!("({sizes} sizes)"),
        };
        shortened(format!("{} {size}", first.operation).trim_end(), KIND)
    }

    /// Describes the longest launch of the group, such as `132 × 128 threads, 168 registers a thread, …, hardware queue 3`;
    /// `None` without the vendor's records.
    pub fn launch_text(&self) -> Option<String> {
        let launch =
            self.members.iter().filter_map(|member| member.longest_launch()).max_by_key(|part| part.time_ns)?;
        let count = |sizes: [u32; 3]| sizes.iter().map(|&size| u64::from(size)).fold(1, u64::saturating_mul);
        let mut facts = Vec::new();
        if let Some(kernel) = &launch.kernel {
            facts.push(format!("{} × {} threads", count(kernel.grid), count(kernel.block)));
            facts.extend(kernel.registers.map(|registers| format!("{registers} registers a thread")));
            facts.push(format!("{} of shared memory a block", Bytes(kernel.shared_bytes.into())));
            facts.extend(kernel.occupancy.map(|share| format!("occupancy {:.0} %", 100.0 * share)));
        }
        facts.extend(launch.queue.map(|queue| format!("hardware queue {queue}")));
        facts.extend(launch.node.map(|node| format!("graph node {node}")));
        let name = launch.kernel.as_ref().and_then(|kernel| kernel.name.as_ref());
        facts.extend(name.map(|name| format!("`{}`", shortened(name, FUNCTION))));
        (!facts.is_empty()).then(|| facts.join(", "))
    }

    /// The name, shortened for a table.
    pub fn short_name(&self) -> String {
        shortened(&self.name, NAME)
    }

    /// Bytes over the link between ranks, as `bus_bandwidth` counts them; `None` if a member crosses no link.
    fn bus_bytes(&self) -> Option<f64> {
        self.members.iter().map(|operation| operation.bus_bytes).sum()
    }

    /// True if a tensor determines the size of a member, so that its rate is unknown.
    fn has_unknown_size(&self) -> bool {
        let between_ranks =
            |member: &OperationRecord| member.ranks.is_some() || member.direction.as_deref() == Some("peer");
        self.members.iter().any(|member| member.assumed || between_ranks(member) && member.bus_bytes.is_none())
    }

    /// True if the rate counts arithmetic, false if it counts bytes. The limiting resource decides, so that the rate has the
    /// unit of the peak beside it; without one, the arithmetic per byte does.
    fn counts_arithmetic(&self, flops: f64, bytes: f64) -> bool {
        match self.of_peak().and_then(|(_, bound)| bound) {
            Some(bound) => verdict::is_arithmetic(bound),
            None => flops > 32.0 * bytes,
        }
    }

    /// The rate of arithmetic or of bytes while the operations do not wait; between ranks the bus bandwidth.
    fn rate(&self) -> String {
        let sum = |value: fn(&OperationRecord) -> f64| self.members.iter().map(|member| value(member)).sum::<f64>();
        let (flops, bytes) = (sum(|member| member.flops), sum(|member| member.bytes as f64));
        let seconds = self.work().seconds();
        match self.bus_bytes() {
            _ if seconds <= 0.0 || flops + bytes <= 0.0 || self.has_unknown_size() => ABSENT.to_owned(),
            Some(bus) => Rate(bus / seconds, "B/s").to_string(),
            None if self.counts_arithmetic(flops, bytes) => Rate(flops / seconds, "FLOP/s").to_string(),
            None => Rate(bytes / seconds, "B/s").to_string(),
        }
    }
}

/// A range of times, such as `301.2–310.0 µs`, or one time if both look the same.
pub(super) fn range(least: Nanos, most: Nanos) -> String {
    let (low, high) = (least.to_string(), most.to_string());
    match (low.split_once(' '), high.split_once(' ')) {
        _ if low == high => low,
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number}–{high}"),
        _ => format!("{low}–{high}"),
    }
}

/// The minimum and the maximum time per operation of each group over the ranks that have it.
fn over_ranks(variant: &Variant) -> BTreeMap<Key<'_>, (Nanos, Nanos)> {
    let mut ranges: BTreeMap<Key, (Nanos, Nanos)> = BTreeMap::new();
    for group in variant.ranks.iter().flat_map(groups) {
        let each = group.each();
        let (low, high) = ranges.entry(key(group.members[0])).or_insert((each, each));
        (*low, *high) = (each.min(*low), each.max(*high));
    }
    ranges
}

/// The operations of a rank, the longest first; `None` if none was observed.
pub fn section(record: &RunRecord, variant: &Variant, rank: &RankRecord) -> Option<Section> {
    let groups = groups(rank);
    let total: Nanos = groups.iter().map(OperationGroup::time).sum();
    let waits = groups.iter().any(|group| group.wait() > Nanos(0));
    let peaks = groups.iter().any(|group| group.of_peak().is_some());
    if groups.is_empty() {
        return None;
    }
    let mut header = vec!["operation", "kind and size", "count", "total", "share"];
    header.extend(waits.then_some("waiting"));
    header.extend(["each", "rate"]);
    header.extend(peaks.then_some("of peak"));
    let mut table = Table::new(header).left(1);
    let each = over_ranks(variant);
    let mut ranges = false;
    for group in groups.iter().take(ROWS) {
        let mut row = vec![
            group.short_name(),
            group.kind(),
            group.members.len().to_string(),
            group.time().to_string(),
            share_of(group.time(), total),
        ];
        row.extend(waits.then(|| if group.wait() > Nanos(0) { group.wait().to_string() } else { ABSENT.to_owned() }));
        let (least, most) = each.get(&key(group.members[0])).copied().unwrap_or_else(|| (group.each(), group.each()));
        ranges |= least != most;
        row.extend([range(least, most), group.rate()]);
        row.extend(peaks.then(|| group.of_peak_text()));
        table.row(row);
    }
    let heading = format!("{}{}{}", variant_name(record, variant), slots::of(record, rank), disturbed(rank));
    Some(Section {
        title: format!("Operations, each timed while the iteration runs ({heading})"),
        table: Some(table),
        notes: notes(rank, waits, ranges, &groups),
        ..Section::default()
    })
}

/// Explains the columns, and mentions operations that are not in the table. `waits` if a row has a waiting time, `ranges`
/// if a row has a range of times.
fn notes(rank: &RankRecord, waits: bool, ranges: bool, groups: &[OperationGroup]) -> Vec<String> {
    let across = groups.iter().take(ROWS).any(|group| group.bus_bytes().is_some());
    let explained: Vec<&str> = [
        (waits, "`each` and `rate` are without waiting for other ranks"),
        (ranges, "`each` is a range over ranks where they differ"),
        (across, "the `rate` of an operation between ranks is its bus bandwidth"),
    ]
    .into_iter()
    .filter_map(|(applies, text)| applies.then_some(text))
    .collect();
    let mut notes = Vec::from_iter((!explained.is_empty()).then(|| explained.join("; ")));
    let hidden = groups.len().saturating_sub(ROWS);
    notes.extend((hidden > 0).then(|| hidden_kinds(hidden, "--json")));
    let refused: Vec<&OperationRecord> = rank.operations.iter().filter(|op| op.refused.is_some()).collect();
    notes.extend(refused.first().map(|first| {
        let others = if refused.len() > 1 { format!(", nor have {} others", refused.len() - 1) } else { String::new() };
        let why = first.refused.as_deref().unwrap_or_default();
        format!("{} ({}) has no time{others}, since {why}", first.name, first.place)
    }));
    notes
}

/// The note on kinds of operations below the last row of a table; `option` writes all of them.
pub fn hidden_kinds(hidden: usize, option: &str) -> String {
    let kinds = if hidden == 1 { "kind of operation takes" } else { "kinds of operations take" };
    format!("{hidden} more {kinds} less; {option} has all of them")
}
