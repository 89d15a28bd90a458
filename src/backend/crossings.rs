//! What a rank does where ranks copy to each other, as plain data that other ranks can be told: where what arrives is
//! written, what it sends, and which copies stand in a row, so that they can share a meeting.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::exec::{Image, ImageOp};
use crate::ops::{Launch, Peer};

/// Copies that share a meeting, at most: each is compared with all before it.
const MOST: usize = 256;

/// Whether copies in a row share a meeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    Rows,
    /// Each has its own, as where operations are observed: those of a receiver would seem to take no time.
    Nothing,
}

/// A rank's copies from and to others, each by its place in the text, which is the same number on all ranks.
#[derive(Debug, Serialize, Deserialize)]
pub struct Crossings {
    /// For each sender, where what arrives is written, in bytes from where the device's memory begins.
    targets: BTreeMap<u32, BTreeMap<u32, u64>>,
    sends: BTreeMap<u32, Sending>,
    /// The place before, where both stand in a row, and the place behind.
    before: BTreeMap<u32, u32>,
    behind: BTreeMap<u32, u32>,
}

/// Where a rank sends something.
#[derive(Debug, Serialize, Deserialize)]
struct Sending {
    to: u32,
    lane: u32,
    /// Its place among the operations.
    number: usize,
}

impl Crossings {
    pub fn of(image: &Image) -> Crossings {
        let (mut targets, mut sends) = (BTreeMap::new(), BTreeMap::new());
        for (number, op) in image.ops.iter().enumerate() {
            let Some(peer) = peer_of(image, op) else { continue };
            let outputs = &image.operands(op)[usize::from(peer.sends.is_some())..];
            targets.insert(op.crossing, peer.from.iter().copied().zip(outputs.iter().map(|at| at.offset)).collect());
            sends.extend(peer.sends.iter().map(|sent| (op.crossing, Sending { to: sent.to, lane: op.lane, number })));
        }
        let before = rows(image);
        let behind = before.iter().map(|(&place, &before)| (before, place)).collect();
        Crossings { targets, sends, before, behind }
    }

    /// Where what a rank sends at that place is written, in bytes from where the device's memory begins.
    pub fn target(&self, crossing: u32, from: u32) -> Option<u64> {
        self.targets.get(&crossing)?.get(&from).copied()
    }

    /// Which flags a copy to the rank `to` needs, these being its own crossings and `sender` those of who sends: that the
    /// receiver is ready, that the copy has arrived.
    pub fn needs(&self, to: u32, sender: &Crossings, crossing: u32) -> [bool; 2] {
        let joined = |first: u32, second: u32| {
            let sends = [first, second].map(|crossing| sender.sends.get(&crossing).filter(|sends| sends.to == to));
            matches!(sends, [Some(first), Some(second)] if first.lane == second.lane && first.number < second.number)
        };
        let before = self.before.get(&crossing).is_some_and(|&before| joined(before, crossing));
        let behind = self.behind.get(&crossing).is_some_and(|&behind| joined(crossing, behind));
        [!before, !behind]
    }
}

/// What a rank does at an operation, where it is a copy between ranks.
pub fn peer_of<'a>(image: &'a Image, op: &ImageOp) -> Option<&'a Peer> {
    match image.works[op.work as usize].launches.first() {
        Some(Launch::Peer(peer)) => Some(peer),
        _ => None,
    }
}

/// For each place of the text at which a rank receives, the one before it in a row: nothing of the rank stands between
/// them, neither touches what arrives at the other, and no two ranks write the same memory.
fn rows(image: &Image) -> BTreeMap<u32, u32> {
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
