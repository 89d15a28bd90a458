//! The group of ranks in which an operation runs.

use crate::base::GroupId;

/// A group of ranks, and this rank's number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Team {
    pub group: GroupId,
    /// Number of ranks in the group.
    pub ranks: u32,
    /// Number of this rank in the group, from 0.
    pub rank: u32,
}

impl Team {
    /// A group of one rank.
    pub const ALONE: Team = Team { group: GroupId(0), ranks: 1, rank: 0 };
}
