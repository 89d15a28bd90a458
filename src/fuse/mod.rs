//! Fusion: replaces operations that pass values to each other by a single operation.
//!
//! The pass goes over the program of one rank. It replaces two operations of a stream, of which the second reads a
//! result of the first, if the catalogue has an operation that computes both ([`crate::ops::fused`]) and if executing
//! them together changes no result. It tries pairs in the order of the text, so that a chain grows by one operation at
//! a time.

mod between;
mod node;
mod pass;
mod producers;
mod reason;

use crate::base::{OpId, SrcSpan};
use crate::model::{Program, Rewritten};
use crate::ops::Spec;

pub use reason::Obstacle;

/// Number of the latest results that a new one is compared with, to count equal ones instead of listing them.
const COMPARED: usize = 256;

/// The result of fusion for a program.
#[derive(Clone, Debug, Default)]
pub struct Fusion {
    /// Fused operations, in the order of the text.
    pub merged: Vec<FusedOperation>,
    /// Pairs of operations that are not fused: the second reads a result of the first, and at least one of the two is
    /// elementwise, or both are row-wise.
    pub unfused: Vec<UnfusedPair>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct FusedOperation {
    /// Labels of the replaced operations, joined by `+` within their common label, such as `f[3].up+act` for `f[3].up` and
    /// `f[3].act`.
    pub name: String,
    /// The kind of the operation, such as `map` or `gemm`.
    pub operation: &'static str,
    /// The operations that the merged one replaces.
    pub members: Vec<FusionMember>,
    /// Bytes that an iteration no longer moves, for one of the `count` fused operations.
    pub bytes_saved: u64,
    /// Number of equal fused operations: this one, and those of other iterations of a loop or other slots.
    pub count: usize,
}

/// An operation of the program before fusion.
#[derive(Clone, Debug, PartialEq)]
pub struct FusionMember {
    /// The label, or the kind of an operation without one.
    pub name: String,
    pub operation: String,
    pub span: SrcSpan,
}

/// A pair of operations that is not fused.
#[derive(Clone, Debug, PartialEq)]
pub struct UnfusedPair {
    pub first: FusionMember,
    pub second: FusionMember,
    pub why: Obstacle,
    /// Number of equal pairs, itself included.
    pub count: usize,
}

/// Operations of a step that are fused, in the order of the text, and the spec of the fused operation.
pub type Chain = (Vec<OpId>, Spec);

/// The chains of each slot of the cycle. The program is not changed.
pub fn chains(program: &Program) -> Vec<Vec<Chain>> {
    let chain = |one: Rewritten| one.replacement.map(|replacement| (one.members, replacement.spec));
    pass::slots(program).1.into_iter().map(|slot| slot.into_iter().filter_map(chain).collect()).collect()
}

/// Fuses the operations of each slot of the cycle. Blocks that run once, before or after the iterations, are not changed.
pub fn fuse(program: Program) -> (Program, Fusion) {
    pass::run(program)
}

impl Fusion {
    /// Adds a fused operation, or counts it if it equals one of another iteration of the same loop.
    fn add(&mut self, one: FusedOperation) {
        let spans = |one: &FusedOperation| one.members.iter().map(|member| member.span).collect::<Vec<_>>();
        let same = |known: &&mut FusedOperation| known.bytes_saved == one.bytes_saved && spans(known) == spans(&one);
        match self.merged.iter_mut().rev().take(COMPARED).find(same) {
            Some(known) => known.count += 1,
            None => self.merged.push(one),
        }
    }

    /// Adds a pair that is not fused, or counts it if it equals one of another iteration of the same loop.
    fn add_unfused(&mut self, one: UnfusedPair) {
        let same = |known: &&mut UnfusedPair| {
            (known.first.span, known.second.span) == (one.first.span, one.second.span)
                && std::mem::discriminant(&known.why) == std::mem::discriminant(&one.why)
        };
        match self.unfused.iter_mut().rev().take(COMPARED).find(same) {
            Some(known) => known.count += 1,
            None => self.unfused.push(one),
        }
    }
}
