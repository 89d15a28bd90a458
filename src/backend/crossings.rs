//! Copies between ranks from the view of one rank, as plain data that other ranks receive: offsets of destinations, the
//! data that the rank sends, and the consecutive copies that can share one synchronization.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::exec::{Image, ImageOp};
use crate::ops::{Launch, Peer, Sent};

/// Maximum number of copies that share a synchronization. Each copy is compared with all earlier ones of its batch.
const MAX_CROSSINGS: usize = 256;

/// Rule by which consecutive copies synchronize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncSharing {
    /// Consecutive copies share a synchronization where [`Crossings::needs`] permits it.
    Batched,
    /// Each copy synchronizes separately, as in observed iterations: otherwise a receiver's copies would appear to take
    /// no time.
    Unshared,
}

/// A rank's copies to and from other ranks, by the copy's number, which is the same on all ranks.
#[derive(Debug, Serialize, Deserialize)]
pub struct Crossings {
    /// For each copy and each sender, the offset in bytes of the destination in this rank's device memory.
    targets: BTreeMap<u32, BTreeMap<u32, u64>>,
    sends: BTreeMap<u32, Sending>,
    /// For each copy that shares the synchronization of the copy before it, the number of that earlier copy.
    before: BTreeMap<u32, u32>,
    /// For each copy whose synchronization the next copy shares, the number of that next copy.
    behind: BTreeMap<u32, u32>,
}

/// A copy that the rank sends.
#[derive(Debug, Serialize, Deserialize)]
struct Sending {
    to: u32,
    lane: u32,
    /// Index of the copy's operation in the image, in the order of issue.
    number: usize,
}

impl Crossings {
    /// Collects the copies between ranks that an image contains.
    pub fn of(image: &Image) -> Crossings {
        let (mut targets, mut sends) = (BTreeMap::new(), BTreeMap::new());
        for (number, op) in image.ops.iter().enumerate() {
            let Some(peer) = peer_of(image, op) else { continue };
            let outputs = &image.operands(op)[peer.sends.as_ref().map_or(0, Sent::inputs)..];
            targets.insert(op.crossing, peer.from.iter().copied().zip(outputs.iter().map(|at| at.offset)).collect());
            sends.extend(peer.sends.iter().map(|sent| (op.crossing, Sending { to: sent.to, lane: op.lane, number })));
        }
        let before = batches(image);
        let behind = before.iter().map(|(&place, &before)| (before, place)).collect();
        Crossings { targets, sends, before, behind }
    }

    /// Offset in bytes of the destination of copy `crossing` from rank `from`, in this rank's device memory; `None` if
    /// there is no such copy.
    pub fn target(&self, crossing: u32, from: u32) -> Option<u64> {
        self.targets.get(&crossing)?.get(&from).copied()
    }

    /// Returns whether a copy to rank `to` needs each of its two flags: "receiver ready", and "data arrived". A flag is
    /// not needed if the copy before or after, between the same two ranks, stands for it. `self` has the copies of the
    /// receiver.
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

/// The part of this rank in a copy between ranks; `None` for any other operation.
pub fn peer_of<'a>(image: &'a Image, op: &ImageOp) -> Option<&'a Peer> {
    match image.works[op.work as usize].launches.first() {
        Some(Launch::Peer(peer)) => Some(peer),
        _ => None,
    }
}

/// For each copy that a rank receives and that continues a batch, the number of the copy before it in the batch. Copies
/// of a lane form a batch if no other operation of the rank is between them, none accesses the destination of another,
/// and no two ranks write the same memory.
fn batches(image: &Image) -> BTreeMap<u32, u32> {
    let mut before = BTreeMap::new();
    let mut open: BTreeMap<u32, CopyBatch> = BTreeMap::new();
    for (number, op) in (0..).zip(&image.ops) {
        let Some(peer) = peer_of(image, op) else {
            open.remove(&op.lane);
            continue;
        };
        let next = CopyBatch::new(image, (number, op), peer);
        match open.get_mut(&op.lane).filter(|batch| op.behind == Some(batch.number) && batch.allows(&next)) {
            Some(batch) => {
                before.insert(op.crossing, batch.last);
                batch.push(next);
            }
            None => {
                open.insert(op.lane, next);
            }
        }
    }
    before
}

/// Consecutive copies that can share a synchronization, from the view of one of their ranks.
struct CopyBatch {
    /// Index of the last copy's operation in the image.
    number: u32,
    /// Number of the last copy.
    last: u32,
    /// Number of copies.
    count: usize,
    /// Ranges of this rank's device memory that its own operations read and write, in bytes.
    used: Vec<Range<u64>>,
    /// Ranges of this rank's device memory that other ranks write, in bytes, each with the rank that writes it.
    written: Vec<(u32, Range<u64>)>,
}

impl CopyBatch {
    fn new(image: &Image, (number, op): (u32, &ImageOp), peer: &Peer) -> Self {
        let mut batch = CopyBatch { number, last: op.crossing, count: 1, used: Vec::new(), written: Vec::new() };
        let spec = &image.works[op.work as usize].spec;
        let tensors = spec.inputs.iter().chain(&spec.outputs).zip(image.operands(op));
        let mut ranges = tensors.map(|(tensor, at)| at.offset..at.offset + tensor.reach());
        batch.used.extend(ranges.by_ref().take(spec.inputs.len()));
        for (&from, range) in peer.from.iter().zip(ranges) {
            match from == peer.rank {
                true => batch.used.push(range),
                false => batch.written.push((from, range)),
            }
        }
        batch
    }

    /// True if the copy `next` may join the batch without synchronization in between. Its data may then arrive before
    /// earlier copies run, and theirs after it has run. Writes of one rank stay in order.
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
