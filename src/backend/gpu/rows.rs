//! Which copies from other ranks stand in a row, so that they can share a meeting: see [`super::peers`]. It looks at an
//! image alone; whether the sender has them in the same order on one stream is not its matter.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::exec::{Image, ImageOp};
use crate::ops::Peer;

use super::peers::peer_of;

/// Copies that share a meeting, at most: each is compared with all before it.
const MOST: usize = 256;

/// For each place of the text at which a rank receives, the one before it in a row: nothing of the rank stands between
/// them, neither touches what arrives at the other, and no two ranks write the same memory.
pub fn rows(image: &Image) -> BTreeMap<u32, u32> {
    let mut before = BTreeMap::new();
    let mut rows: BTreeMap<u32, Row> = BTreeMap::new();
    for (number, op) in (0..).zip(&image.ops) {
        let Some(peer) = peer_of(image, op) else {
            rows.remove(&op.lane);
            continue;
        };
        let next = Row::new(image, (number, op), peer);
        match rows.get_mut(&op.lane).filter(|row| op.behind == Some(row.number) && row.allows(&next)) {
            Some(row) => {
                before.insert(op.crossing, row.last);
                row.push(next);
            }
            None => {
                rows.insert(op.lane, next);
            }
        }
    }
    before
}

/// Copies in a row, as one of their ranks comes by them.
struct Row {
    /// The last of them, as an operation and as a place of the text.
    number: u32,
    last: u32,
    count: usize,
    /// Device memory that the rank reads and writes itself.
    used: Vec<Range<u64>>,
    /// What others write, and who.
    written: Vec<(u32, Range<u64>)>,
}

impl Row {
    fn new(image: &Image, (number, op): (u32, &ImageOp), peer: &Peer) -> Self {
        let mut row = Row { number, last: op.crossing, count: 1, used: Vec::new(), written: Vec::new() };
        let spec = &image.works[op.work as usize].spec;
        let tensors = spec.inputs.iter().chain(&spec.outputs).zip(image.operands(op));
        let mut ranges = tensors.map(|(tensor, at)| at.offset..at.offset + tensor.reach());
        row.used.extend(ranges.by_ref().take(spec.inputs.len()));
        for (&from, range) in peer.from.iter().zip(ranges) {
            match from == peer.rank {
                true => row.used.push(range),
                false => row.written.push((from, range)),
            }
        }
        row
    }

    /// Whether another copy may follow, although what arrives there may come before what these do, and what arrives here
    /// behind what that one does. One rank writes in its order.
    fn allows(&self, next: &Row) -> bool {
        let apart = |a: &Range<u64>, b: &Range<u64>| a.end <= b.start || b.end <= a.start;
        let untouched = |written: &Row, used: &Row| {
            written.written.iter().all(|(_, written)| used.used.iter().all(|used| apart(written, used)))
        };
        let ordered = self
            .written
            .iter()
            .all(|(from, first)| next.written.iter().all(|(other, second)| from == other || apart(first, second)));
        self.count < MOST && untouched(self, next) && untouched(next, self) && ordered
    }

    fn push(&mut self, next: Row) {
        (self.number, self.last) = (next.number, next.last);
        self.count += 1;
        self.used.extend(next.used);
        self.written.extend(next.written);
    }
}
