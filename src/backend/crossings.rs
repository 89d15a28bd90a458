//! Copies between ranks from one rank's view, as plain data that other ranks receive: destination offsets, what the
//! rank sends, and which consecutive copies can share one synchronization.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::exec::{Image, ImageOp};
use crate::ops::{Launch, Peer, Sent};

/// Maximum number of copies that share a synchronization; each is compared with all before it.
const MAX_CROSSINGS: usize = 256;

/// Whether consecutive copies share a synchronization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncSharing {
    Rows,
    /// Each copy synchronizes separately, as in observed iterations: otherwise a receiver's copies would appear to take
    /// no time.
    Nothing,
}

/// A rank's copies to and from other ranks, by number, which is the same on all ranks.
#[derive(Debug, Serialize, Deserialize)]
pub struct Crossings {
    /// Destination offset in bytes in this rank's device memory, by copy and sender.
    targets: BTreeMap<u32, BTreeMap<u32, u64>>,
    sends: BTreeMap<u32, Sending>,
    /// The copy before, by each copy that shares its synchronization with it.
    before: BTreeMap<u32, u32>,
    /// The copy after, by each copy that shares its synchronization with it.
    behind: BTreeMap<u32, u32>,
}

/// A copy that the rank sends.
#[derive(Debug, Serialize, Deserialize)]
struct Sending {
    to: u32,
    lane: u32,
    /// Index of the copy's operation.
    number: usize,
}

impl Crossings {
    /// Collects the copies between ranks of an image.
    pub fn of(image: &Image) -> Crossings {
        let (mut targets, mut sends) = (BTreeMap::new(), BTreeMap::new());
        for (number, op) in image.ops.iter().enumerate() {
            let Some(peer) = peer_of(image, op) else { continue };
            let outputs = &image.operands(op)[peer.sends.as_ref().map_or(0, Sent::inputs)..];
            targets.insert(op.crossing, peer.from.iter().copied().zip(outputs.iter().map(|at| at.offset)).collect());
            sends.extend(peer.sends.iter().map(|sent| (op.crossing, Sending { to: sent.to, lane: op.lane, number })));
        }
        let before = rows(image);
        let behind = before.iter().map(|(&place, &before)| (before, place)).collect();
        Crossings { targets, sends, before, behind }
    }

    /// Destination offset of a rank's copy, in bytes in the receiver's device memory; `None` if there is none.
    pub fn target(&self, crossing: u32, from: u32) -> Option<u64> {
        self.targets.get(&crossing)?.get(&from).copied()
    }

    /// Whether a copy to rank `to` needs each of two flags: that the receiver is ready, and that the data has arrived.
    /// `self` has the receiver's copies, `sender` those of the sender.
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

/// The peers of an operation; `None` if it is not a copy between ranks.
pub fn peer_of<'a>(image: &'a Image, op: &ImageOp) -> Option<&'a Peer> {
    match image.works[op.work as usize].launches.first() {
        Some(Launch::Peer(peer)) => Some(peer),
        _ => None,
    }
}

/// For each copy that a rank receives, the previous copy of its row. Copies form a row if no other operation of the
/// rank is between them, neither accesses the destination of the other, and no two ranks write the same memory.
fn rows(image: &Image) -> BTreeMap<u32, u32> {
    let mut before = BTreeMap::new();
    let mut rows: BTreeMap<u32, CopyBatch> = BTreeMap::new();
    for (number, op) in (0..).zip(&image.ops) {
        let Some(peer) = peer_of(image, op) else {
            rows.remove(&op.lane);
            continue;
        };
        let next = CopyBatch::new(image, (number, op), peer);
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

/// Consecutive copies, from the view of one of their ranks.
struct CopyBatch {
    /// Operation and number of the last copy.
    number: u32,
    last: u32,
    count: usize,
    /// Device memory that the rank itself reads and writes.
    used: Vec<Range<u64>>,
    /// Memory that other ranks write, with the writer.
    written: Vec<(u32, Range<u64>)>,
}

impl CopyBatch {
    fn new(image: &Image, (number, op): (u32, &ImageOp), peer: &Peer) -> Self {
        let mut row = CopyBatch { number, last: op.crossing, count: 1, used: Vec::new(), written: Vec::new() };
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

    /// Whether the copy `next` may follow without synchronization in between. Then data of `next` may arrive before
    /// these copies run, and data of these copies after `next` has run. Writes of the same rank stay in order.
    fn allows(&self, next: &CopyBatch) -> bool {
        let apart = |a: &Range<u64>, b: &Range<u64>| a.end <= b.start || b.end <= a.start;
        let untouched = |written: &CopyBatch, used: &CopyBatch| {
            written.written.iter().all(|(_, written)| used.used.iter().all(|used| apart(written, used)))
        };
        let ordered = self
            .written
            .iter()
            .all(|(from, first)| next.written.iter().all(|(other, second)| from == other || apart(first, second)));
        self.count < MAX_CROSSINGS && untouched(self, next) && untouched(next, self) && ordered
    }

    fn push(&mut self, next: CopyBatch) {
        (self.number, self.last) = (next.number, next.last);
        self.count += 1;
        self.used.extend(next.used);
        self.written.extend(next.written);
    }
}
