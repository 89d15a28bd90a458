//! Reads records and files of cases, and formats them in every form. The tests define what must hold.

use serde_json::Value;

use super::reports;
use super::targets::CHOICES_MARK;

/// Records written by runs: of two ranks, and of a program whose iterations differ.
pub const RECORDS: [&str; 2] = [include_str!("../seeds/ranks.json"), include_str!("../seeds/slots.json")];

/// Files of cases: of a sweep, and of a suite.
pub const JOURNALS: [&str; 2] = [include_str!("../seeds/sweep.jsonl"), include_str!("../seeds/suite.jsonl")];

/// The text of an input: its bytes, or one of `seeds` with the edits that the bytes choose.
pub fn text(data: &[u8], seeds: &[&str]) -> String {
    let [CHOICES_MARK, seed, choices @ ..] = data else { return String::from_utf8_lossy(data).into_owned() };
    let lines: Vec<&str> = seeds[usize::from(*seed) % seeds.len()].lines().collect();
    let edited = |(index, line): (usize, &&str)| {
        let value: Value = serde_json::from_str(line).expect("seeds are JSON, a value on each line");
        // Distributes the choices over the lines, so that each edit changes one line.
        let own: Vec<u8> = choices.chunks_exact(4).skip(index).step_by(lines.len()).flatten().copied().collect();
        reports::edited(value, &own).to_string() + "\n"
    };
    lines.iter().enumerate().map(edited).collect()
}
