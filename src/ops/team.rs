//! The group of ranks in which an operation runs.

use crate::base::GroupId;

/// A group of ranks, and this rank's number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Team {
    pub group: GroupId,
    pub ranks: u32,
    /// This rank's number in the group.
    pub rank: u32,
}

impl Team {
    /// A group of one rank.
    pub const ALONE: Team = Team { group: GroupId(0), ranks: 1, rank: 0 };
}
