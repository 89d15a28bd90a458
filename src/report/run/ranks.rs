//! The report of several ranks: their times side by side, why they wait for each other, and which rank is last.

use crate::base::Nanos;
use crate::measure::record::plain_name;
use crate::measure::record::{BalanceRecord, CollectiveRecord, LateRecord, RankRecord, RunRecord, SkewRecord, Variant};
use crate::report::page::{ABSENT, Section, Table, cell};
use crate::report::quantity::{share_of, whole_percent};
use crate::report::variant::{shown, variant_name};

use super::operations::{groups, shortened};

/// Maximum number of rows of collectives and transfers.
const MATCHED_ROWS: usize = 8;

/// Maximum number of rows of ranks.
const RANKS: usize = 16;

/// Maximum length of an operation's name.
const NAME: usize = 24;

/// Sections that compare the ranks of each variant, and name the rank that the tables below show.
pub fn sections(record: &RunRecord, rank: Option<u32>) -> Vec<Section> {
    let several = || record.variants.iter().filter(|variant| variant.ranks.len() > 1);
    let Some(first) = several().next() else { return Vec::new() };
    let times = several().flat_map(|variant| times(record, variant)).collect();
    let mut sections = vec![Section { lines: times, ..Section::default() }];
    for variant in several() {
        sections.extend(side_by_side(record, variant));
        sections.extend(variant.skew.as_ref().map(|skew| matched_operations(record, variant, skew)));
    }
    sections.extend(shown(first, rank).map(|rank| Section {
        lines: vec![format!("The rest of this report is about rank {}.", rank.rank)],
        ..Section::default()
    }));
    sections
}

/// The slowest and the fastest rank, why ranks wait, and the straggler.
fn times(record: &RunRecord, variant: &Variant) -> Vec<String> {
    let mut lines = Vec::new();
    let medians = || variant.ranks.iter().filter_map(|rank| Some((rank.time.p50_ns?, rank.rank)));
    if let (Some((slow, slowest)), Some((fast, fastest))) = (medians().max(), medians().min()) {
        lines.push(match slow == fast {
            true => format!("every rank takes {slow}"),
            false => format!("rank {slowest} takes longest, {slow}; rank {fastest} least, {fast}"),
        });
    }
    if let Some(skew) = &variant.skew {
        lines.extend(skew.balance.as_ref().map(reason));
        let begin = skew.begin_ns.zip(skew.begin_error_ns).filter(|begin| *begin != (Nanos(0), Nanos(0)));
        lines.extend(begin.map(|(begin, error)| format!("ranks begin an iteration within {}", within(begin, error))));
        let last_of_straggler =
            |collective: &CollectiveRecord| collective.last.filter(|last| Some(last.rank) == skew.straggler);
        let worst = skew.collectives.iter().filter_map(|collective| Some((last_of_straggler(collective)?, collective)));
        lines.extend(worst.max_by_key(|(last, _)| last.late_ns).map(|(last, collective)| {
            let LateRecord { rank, late_ns, error_ns, times, of } = last;
            let late = within(late_ns, error_ns);
            let name = &collective.name;
            format!(
                "rank {rank} arrives last: {late} after the others at `{name}`, in {times} of {of} observed iterations"
            )
        }));
    }
    let how = variant_name(record, variant);
    lines.into_iter().map(|line| format!("{how}: {line}")).collect()
}

/// Reason why ranks wait for each other, in a sentence.
fn reason(balance: &BalanceRecord) -> String {
    let (least, most) = (whole_percent(balance.least_waiting), whole_percent(balance.most_waiting));
    let waiting = match least == most {
        true => format!("every rank does nothing but wait for others in {least} of its iteration"),
        false => format!("ranks do nothing but wait for each other in {least} to {most} of their iteration"),
    };
    let mut reason = format!("{}: {waiting}", balance.kind);
    let who = match balance.ranks.as_slice() {
        [rank] => format!("rank {rank} is"),
        ranks => format!("ranks {} are", ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
    };
    if let (Some(busy), Some(others)) = (balance.busy_ns, balance.others_busy_ns) {
        reason += &match balance.kind.as_str() {
            "imbalance" => format!("; {who} busy for {busy}, the others for {others}"),
            _ => format!("; {who} late, and not busy for longer ({busy}, the others {others})"),
        };
    }
    if let Some(behind) = &balance.behind {
        let phase = behind.phase.as_ref().map(|phase| format!(" of phase {phase}")).unwrap_or_default();
        reason += &format!(
            ", mostly in `{}`{phase} ({}): {}, the others {}",
            behind.name, behind.place, behind.time_ns, behind.others_ns
        );
    }
    reason
}

/// A time with its uncertainty, which is left out if the clock is exact and all samples are equal.
fn within(time: Nanos, error: Nanos) -> String {
    if error.0 == 0 { time.to_string() } else { format!("{time} ± {error}") }
}

/// A row for each rank; `None` if none was analyzed.
fn side_by_side(record: &RunRecord, variant: &Variant) -> Option<Section> {
    let analyzed = |rank: &RankRecord| rank.analysis.as_ref().and_then(|analysis| analysis.totals);
    if variant.ranks.iter().all(|rank| analyzed(rank).is_none()) {
        return None;
    }
    let stretched = variant.ranks.iter().filter_map(analyzed).any(|totals| totals.stretch.is_some());
    let mut header = vec!["rank", "iteration", "busy", "transferring", "waiting"];
    header.extend(stretched.then_some("stretch"));
    header.push("longest operation (sum)");
    let last = header.len() - 1;
    let mut table = Table::new(header).left(last);
    for rank in variant.ranks.iter().take(RANKS) {
        let Some((analysis, totals)) = rank.analysis.as_ref().zip(analyzed(rank)) else { continue };
        let time = analysis.split.time_ns;
        let part = |part: Nanos| format!("{part} ({})", share_of(part, time));
        let mut row = vec![
            rank.rank.to_string(),
            time.to_string(),
            part(totals.busy_ns),
            part(totals.transfer_ns),
            part(totals.wait_ns),
        ];
        row.extend(stretched.then(|| cell(totals.stretch.map(|stretch| format!("{stretch:.2}")))));
        let slowest = groups(rank).into_iter().max_by_key(|group| group.work());
        row.push(cell(slowest.map(|group| match group.members.len() {
            1 => format!("{} {}", group.short_name(), group.work()),
            count => format!("{} {} ({count} ×)", group.short_name(), group.work()),
        })));
        table.row(row);
    }
    let hidden = variant.ranks.len().saturating_sub(RANKS);
    Some(Section {
        title: format!("Ranks, each in one observed iteration ({})", variant_name(record, variant)),
        table: Some(table),
        notes: Vec::from_iter((hidden > 0).then(|| format!("{hidden} more ranks; --json has all of them"))),
        ..Section::default()
    })
}

/// Collectives and transfers of one label between the same ranks.
struct RankRow<'a> {
    name: String,
    operation: &'a str,
    ranks: Vec<u32>,
    records: Vec<&'a CollectiveRecord>,
}

impl RankRow<'_> {
    /// Mean duration once all ranks have arrived.
    fn transfer(&self) -> Nanos {
        let sum: Nanos = self.records.iter().map(|collective| collective.transfer_ns).sum();
        Nanos(sum.0 / self.records.len() as i64)
    }

    /// The longest wait of a rank, and that rank.
    fn longest_wait(&self) -> (Nanos, u32) {
        let waits = self.records.iter().flat_map(|collective| collective.wait_ns.iter().zip(&collective.ranks));
        let waits = waits.map(|(wait, rank)| (*wait, *rank));
        waits.max_by_key(|&(wait, rank)| (wait, std::cmp::Reverse(rank))).unwrap_or_default()
    }

    /// The latest rank; `None` if no rank is later than all others.
    fn last(&self) -> Option<LateRecord> {
        self.records.iter().filter_map(|collective| collective.last).max_by_key(|last| last.late_ns)
    }
}

/// Durations of operations between ranks without waiting, sorted by the longest wait.
fn matched_operations(record: &RunRecord, variant: &Variant, skew: &SkewRecord) -> Section {
    let mut rows: Vec<RankRow> = Vec::new();
    for collective in &skew.collectives {
        let name = plain_name(&collective.name);
        let mut ranks = collective.ranks.clone();
        ranks.sort_unstable();
        ranks.dedup();
        let same = |row: &&mut RankRow| row.name == name && row.operation == collective.operation && row.ranks == ranks;
        match rows.iter_mut().find(same) {
            Some(row) => row.records.push(collective),
            None => rows.push(RankRow { name, operation: &collective.operation, ranks, records: vec![collective] }),
        }
    }
    // A stable sort: ties stay in the order of the text.
    rows.sort_by_key(|row| std::cmp::Reverse(row.longest_wait().0));
    let header =
        ["operation", "kind", "ranks", "count", "transfer", "longest wait", "last to arrive", "after the others"];
    let mut table = Table::new(header);
    for row in rows.iter().take(MATCHED_ROWS) {
        let (wait, rank) = row.longest_wait();
        let (last, late) = match row.last() {
            Some(last) => (format!("rank {}", last.rank), within(last.late_ns, last.error_ns)),
            None => (ABSENT.to_owned(), ABSENT.to_owned()),
        };
        table.row([
            shortened(&row.name, NAME),
            row.operation.to_owned(),
            match row.ranks[..] {
                [first, second] => format!("{first}, {second}"),
                _ => row.ranks.len().to_string(),
            },
            row.records.len().to_string(),
            row.transfer().to_string(),
            if wait.0 > 0 { format!("{wait} (rank {rank})") } else { wait.to_string() },
            last,
            late,
        ]);
    }
    let hidden = rows.len().saturating_sub(MATCHED_ROWS);
    Section {
        title: format!("Collectives and transfers between ranks ({})", variant_name(record, variant)),
        table: Some(table),
        notes: Vec::from_iter((hidden > 0).then(|| format!("{hidden} more wait less; --json has all of them"))),
        ..Section::default()
    }
}
