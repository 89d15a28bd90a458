//! Several ranks in the table: the slowest, how far they are apart, and who lets others wait at which collective.

use std::fmt::Write as _;

use crate::base::Nanos;
use crate::measure::record::{LateRecord, MeetingRecord, RunRecord, SkewRecord, Variant};

use super::table::{new_table, push, variant_name};

/// Rows of collectives at most.
const COLLECTIVES: usize = 8;

/// The ranks of each variant beside each other, and what the tables below are of.
pub fn section(record: &RunRecord, out: &mut String) {
    for variant in record.variants.iter().filter(|variant| variant.ranks.len() > 1) {
        times(record, variant, out);
    }
    if record.variants.iter().any(|variant| variant.skew.is_some()) {
        out.push('\n');
    }
    for variant in &record.variants {
        if let Some(skew) = &variant.skew {
            collectives(record, variant, skew, out);
        }
    }
    if let Some(first) = record.variants.first().filter(|variant| variant.ranks.len() > 1) {
        let _ = writeln!(out, "What follows is of rank {}.\n", first.ranks[0].rank);
    }
}

/// The slowest rank beside the fastest, and the straggler.
fn times(record: &RunRecord, variant: &Variant, out: &mut String) {
    let how = variant_name(record, variant);
    let medians = || variant.ranks.iter().filter_map(|rank| Some((rank.time.p50_ns?, rank.rank)));
    if let (Some((slow, slowest)), Some((fast, fastest))) = (medians().max(), medians().min()) {
        let _ = match slow == fast {
            true => writeln!(out, "{how}: every rank takes {slow}"),
            false => writeln!(out, "{how}: rank {slowest} takes longest, {slow}; rank {fastest} least, {fast}"),
        };
    }
    let Some(skew) = &variant.skew else { return };
    if let (Some(begin), Some(error)) = (skew.begin_ns, skew.begin_error_ns)
        && (begin, error) != (Nanos(0), Nanos(0))
    {
        let _ = writeln!(out, "{how}: ranks begin an iteration within {}", within(begin, error));
    }
    let of = |meeting: &MeetingRecord| meeting.last.filter(|last| Some(last.rank) == skew.straggler);
    let worst = skew.collectives.iter().filter_map(|meeting| Some((of(meeting)?, meeting)));
    if let Some((last, meeting)) = worst.max_by_key(|(last, _)| last.late_ns) {
        let LateRecord { rank, late_ns, error_ns, times, of } = last;
        let _ = writeln!(
            out,
            "{how}: slowest rank: {rank}, which comes {} after the others to `{}`, in {times} of {of} observed \
             iterations",
            within(late_ns, error_ns),
            meeting.name
        );
    }
}

/// A time with its error bar; none where the clock is exact and all samples are equal.
fn within(time: Nanos, error: Nanos) -> String {
    if error.0 == 0 { time.to_string() } else { format!("{time} ± {error}") }
}

/// What each collective takes, apart from waiting: those that wait longest first.
fn collectives(record: &RunRecord, variant: &Variant, skew: &SkewRecord, out: &mut String) {
    let longest = |meeting: &MeetingRecord| {
        let waits = meeting.wait_ns.iter().zip(&meeting.ranks).map(|(wait, rank)| (*wait, *rank));
        waits.max_by_key(|&(wait, rank)| (wait, std::cmp::Reverse(rank))).unwrap_or_default()
    };
    let mut rows: Vec<&MeetingRecord> = skew.collectives.iter().collect();
    // Stable: of equal ones, the first in the text.
    rows.sort_by_key(|meeting| std::cmp::Reverse(longest(meeting).0));
    let _ = writeln!(out, "Collectives, over ranks ({})", variant_name(record, variant));
    let header = ["collective", "kind", "ranks", "transfer", "longest wait", "last to come", "after the others"];
    let mut table = new_table(&header.map(str::to_owned));
    for meeting in rows.iter().take(COLLECTIVES) {
        let (wait, rank) = longest(meeting);
        let (last, late) = match meeting.last {
            Some(last) => (format!("rank {}", last.rank), within(last.late_ns, last.error_ns)),
            None => ("–".to_owned(), "–".to_owned()),
        };
        table.add_row([
            meeting.name.clone(),
            meeting.operation.clone(),
            meeting.ranks.len().to_string(),
            meeting.transfer_ns.to_string(),
            if wait.0 > 0 { format!("{wait} (rank {rank})") } else { wait.to_string() },
            last,
            late,
        ]);
    }
    push(out, &table);
    let hidden = rows.len().saturating_sub(COLLECTIVES);
    if hidden > 0 {
        let _ = writeln!(out, "{hidden} more collectives wait less; --json has all of them\n");
    }
}
