//! Uses of attention in an image, and the engines of the vendor's library that can compute them.

use std::sync::Arc;

use crate::ops::{FusedAttention, Kernel};

/// An engine of the vendor's library for attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    /// Index of the form of the graph by which the library computes attention, among the vendor's forms.
    pub form: u32,
    /// The library's number of the engine.
    pub number: u32,
}

/// An attention of an image, with all uses that differ in the operands' addresses only.
#[derive(Debug)]
pub struct ImageAttention {
    pub attention: Arc<FusedAttention>,
    /// Kernels that compute the same, with the operands of the first use.
    pub kernels: Vec<Kernel>,
    /// The first use on each lane that has one.
    pub uses: Vec<AttentionUse>,
}

/// A use of an attention on one lane.
#[derive(Debug)]
pub struct AttentionUse {
    /// Addresses of the operands, in the order of [`FusedAttention::operands`].
    pub operands: Arc<[u64]>,
    pub lane: u32,
    /// First and end index in [`super::lower::Calls::alternatives`] of the kernels that compute this use.
    pub kernels: (u32, u32),
}
