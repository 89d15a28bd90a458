//! Finds operations of several ranks that belong together: collectives, sends with their receives, copies between
//! ranks.

use std::collections::HashMap;

use indexmap::IndexMap;

use crate::base::OpId;
use crate::ops::{Collective, CollectiveKind};

use super::RankPlan;
use super::calls::{CallTable, CommunicatorKey, Tables};

/// Operations of several ranks that complete together.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Index of the slot in the cycle.
    pub step: usize,
    /// Each rank with its operation, in the order of ranks.
    pub members: Vec<(u32, OpId)>,
}

/// Key of operations that belong together.
#[derive(PartialEq, Eq, Hash)]
enum PairKey {
    /// A collective, by its communicator and its number on it.
    Collective(CommunicatorKey, usize),
    /// A transfer, by sender, receiver, and its number among the transfers between the two.
    Transfer(u32, u32, usize),
    /// A copy between ranks, by its number.
    Copy(u32),
}

/// Groups of operations of a cycle that belong together, in the order of the first rank that has each. Requires ranks that
/// [`check`](super::check) accepts.
pub fn pairs(ranks: &[RankPlan]) -> Vec<Pair> {
    let tables = Tables::new(ranks);
    let mut pairs: IndexMap<(usize, PairKey), Pair> = IndexMap::new();
    for number in (0..).take(ranks.len()) {
        let table = tables.of(number);
        for (step, operations) in table.program.cycle.iter().enumerate() {
            let mut counts = CallCounts::default();
            for op in operations.ids() {
                for call in table.calls(step, op) {
                    let key = match operations.peer(op) {
                        Some(peer) => PairKey::Copy(peer.crossing),
                        None => counts.key(table, (number, step, op), call),
                    };
                    let pair = pairs.entry((step, key)).or_insert_with(|| Pair { step, members: Vec::new() });
                    if pair.members.last() != Some(&(number, op)) {
                        pair.members.push((number, op));
                    }
                }
            }
        }
    }
    pairs.into_values().collect()
}

/// Number of calls that one rank has made in one slot.
#[derive(Default)]
struct CallCounts {
    /// Number of collectives so far, by communicator.
    collectives: HashMap<CommunicatorKey, usize>,
    /// Number of transfers so far, by sender and receiver.
    transfers: HashMap<(u32, u32), usize>,
}

impl CallCounts {
    /// Returns the key of the next call of a rank in a slot, and counts the call.
    fn key(&mut self, table: &CallTable, (rank, step, op): (u32, usize, OpId), call: &Collective) -> PairKey {
        let other = || {
            let group = &table.program.groups[call.group.index()];
            group.members_with(rank).nth(call.peer as usize).unwrap_or(rank)
        };
        let (from, to) = match call.kind {
            CollectiveKind::Send => (rank, other()),
            CollectiveKind::Recv => (other(), rank),
            _ => {
                let channel = table.channel(step, op, call.group, rank);
                return PairKey::Collective(channel, next(self.collectives.entry(channel).or_default()));
            }
        };
        PairKey::Transfer(from, to, next(self.transfers.entry((from, to)).or_default()))
    }
}

/// Increments a count, and returns its value before that.
fn next(count: &mut usize) -> usize {
    *count += 1;
    *count - 1
}
