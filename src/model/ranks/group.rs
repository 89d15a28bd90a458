//! Groups of ranks, which take part in collectives together.

use std::sync::Arc;

use crate::base::SrcSpan;

/// Ranks that take part in collectives together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// `world`, the name of a mesh factor, or a list of such names: `[dp, tp]`.
    pub name: String,
    /// Ranks of the group in group order; this program's rank is one of them.
    pub ranks: Vec<u32>,
    /// Factors of the group, the outermost first.
    pub factors: Arc<[Factor]>,
    /// Location of the declaration; empty for the world.
    pub span: SrcSpan,
}

/// Ranks that differ in one coordinate of a mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factor {
    pub size: u32,
    /// Distance between consecutive members, in ranks of the world.
    pub stride: u32,
}

impl Factor {
    /// Coordinate of a world rank along this factor.
    fn coordinate(self, rank: u32) -> u32 {
        rank / self.stride % self.size
    }
}

impl Group {
    /// The group of these factors, the outermost first, that contains `rank` of the world.
    pub(in crate::model) fn new(name: String, factors: &[Factor], rank: u32, span: SrcSpan) -> Group {
        let mut group = Group { name, ranks: Vec::new(), factors: factors.into(), span };
        group.ranks = group.members_with(rank).collect();
        group
    }

    /// Number of ranks of the group.
    pub fn size(&self) -> u32 {
        self.factors.iter().map(|factor| factor.size).product()
    }

    /// The index of a world rank in its group of this name; other ranks' groups may have other members.
    pub fn number_of(&self, rank: u32) -> u32 {
        self.factors.iter().fold(0, |number, factor| number * factor.size + factor.coordinate(rank))
    }

    /// The members of the group of this name that contains `rank` of the world, in group order.
    pub fn members_with(&self, rank: u32) -> impl Iterator<Item = u32> + use<> {
        let factors = self.factors.clone();
        let first = rank - factors.iter().map(|factor| factor.coordinate(rank) * factor.stride).sum::<u32>();
        (0..self.size()).map(move |member| {
            let (mut rest, mut found) = (member, first);
            for factor in factors.iter().rev() {
                found += rest % factor.size * factor.stride;
                rest /= factor.size;
            }
            found
        })
    }
}
