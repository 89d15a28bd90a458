//! The timeline of one traced iteration in letters, for terminals.

use crate::base::Nanos;
use crate::measure::record::{OperationRecord, RankRecord, RunRecord, Variant};
use crate::report::page::{Page, Section};
use crate::report::variant::{rank_name, variant_name};

use super::common_clock::shifts;

/// Letters of kinds of operations.
const LETTERS: [(&str, char); 9] = [
    ("matrix", 'M'),
    ("elementwise", 'e'),
    ("row-wise", 'r'),
    ("movement", 'm'),
    ("copy", 'c'),
    ("collective", 'C'),
    ("synthetic", 's'),
    ("kernel", 'k'),
    ("marker", '|'),
];

/// Letter for waiting for other ranks.
const WAITING: char = '~';

/// Room for the name of a stream in a wide window, and the least room for it and for its operations.
const NAME: usize = 16;
const SHORT_NAME: usize = 6;
const MIN_COLUMNS: usize = 20;

/// Maximum number of ranks that are drawn.
const RANKS: usize = 8;

/// The timelines of all variants, in lines of at most `width` characters. A line is a stream; a letter is the kind that
/// takes most of its part of the time.
pub fn timeline(record: &RunRecord, width: usize) -> Page {
    let name = (width / 5).clamp(SHORT_NAME, NAME);
    let room = LineRoom { name, columns: width.saturating_sub(name + 3).max(MIN_COLUMNS) };
    let mut page = Page { command: "aorta exec", name: record.workload.name.clone(), ..Page::default() };
    for variant in &record.variants {
        page.sections.extend(section(&variant_name(record, variant), variant, room));
    }
    page
}

/// Room in a line, in characters.
#[derive(Clone, Copy)]
struct LineRoom {
    /// Width of the column with stream names, in characters.
    name: usize,
    /// Width of the column with operations, in characters.
    columns: usize,
}

fn section(name: &str, variant: &Variant, room: LineRoom) -> Option<Section> {
    let shifts = shifts(&variant.ranks);
    let ranks: Vec<(&RankRecord, Nanos)> = variant.ranks.iter().zip(shifts).collect();
    let ends = ranks.iter().flat_map(|(rank, shift)| rank.trace.iter().map(|span| span.end_ns + *shift));
    let most = ends.max().filter(|most| most.0 > 0)?;
    let mut lines = Vec::new();
    let mut seen = Vec::new();
    for (rank, shift) in ranks.iter().take(RANKS) {
        if ranks.len() > 1 {
            lines.push(rank_name(variant, "", rank).trim_start_matches(", ").to_owned());
        }
        lines.extend(rows(rank, *shift, most, room, &mut seen));
    }
    let end = most.to_string();
    let begin = format!("{} 0", " ".repeat(room.name));
    let between = (room.name + 2 + room.columns).saturating_sub(begin.chars().count() + end.chars().count());
    lines.push(format!("{begin}{}{end}", " ".repeat(between)));
    let kinds =
        LETTERS.iter().filter(|(_, letter)| seen.contains(letter)).map(|(kind, letter)| format!("{letter} {kind}"));
    let waits = seen.contains(&WAITING).then(|| format!("{WAITING} waits for other ranks"));
    let mut notes = vec![kinds.chain(waits).collect::<Vec<_>>().join(", ")];
    let hidden = ranks.len().saturating_sub(RANKS);
    notes.extend((hidden > 0).then(|| format!("{hidden} more ranks are in the page that --html writes")));
    Some(Section { title: format!("One iteration {name}"), lines, table: None, notes })
}

/// A line for each real stream of a rank.
fn rows(rank: &RankRecord, shift: Nanos, most: Nanos, room: LineRoom, seen: &mut Vec<char>) -> Vec<String> {
    let LineRoom { name: letters_of_name, columns } = room;
    let mut lanes: Vec<u32> = rank.trace.iter().map(|span| rank.operations[span.id as usize].lane).collect();
    lanes.sort_unstable();
    lanes.dedup();
    let width = most.0 as f64 / columns as f64;
    let mut lines = Vec::new();
    for lane in lanes {
        // For each column, the time that each letter takes in it.
        let mut times = vec![[0.0f64; LETTERS.len() + 1]; columns];
        let mut stream = "";
        for span in &rank.trace {
            let operation = &rank.operations[span.id as usize];
            if operation.lane != lane {
                continue;
            }
            stream = &operation.stream;
            let (from, to) = ((span.start_ns + shift).0 as f64 / width, (span.end_ns + shift).0 as f64 / width);
            let transfer = operation.transfer_ns.map_or(from, |time| (to - time.0 as f64 / width).max(from));
            for (from, to, kind) in [(from, transfer, LETTERS.len()), (transfer, to, kind(operation))] {
                let first = from.max(0.0) as usize;
                let columns = times.iter_mut().enumerate().skip(first).take_while(|(column, _)| (*column as f64) < to);
                columns
                    .for_each(|(column, times)| times[kind] += to.min(column as f64 + 1.0) - from.max(column as f64));
            }
        }
        let letters: String = times.iter().map(letter).collect();
        seen.extend(letters.chars());
        let name: String = stream.chars().take(letters_of_name).collect();
        lines.push(format!("{name:letters_of_name$} {letters}").trim_end().to_owned());
    }
    lines
}

fn kind(operation: &OperationRecord) -> usize {
    LETTERS.iter().position(|(kind, _)| *kind == operation.category).unwrap_or(LETTERS.len() - 1)
}

/// The letter of a column; `·` if nothing runs in half of it or more.
fn letter(times: &[f64; LETTERS.len() + 1]) -> char {
    let most = (0..times.len()).max_by(|a, b| times[*a].total_cmp(&times[*b])).unwrap_or(0);
    match times.iter().sum::<f64>() {
        busy if busy < 0.5 => '·',
        _ => LETTERS.get(most).map_or(WAITING, |(_, letter)| *letter),
    }
}
