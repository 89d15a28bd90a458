//! Uses of attention in an image, and the engines of the vendor's library that compute them.

use std::sync::Arc;

use crate::ops::{FusedAttention, Kernel};

/// An engine of the vendor's library for attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    /// Index of the form of attention's graph.
    pub form: u32,
    /// The library's number of the engine.
    pub number: u32,
}

/// Attention of an image: calls that differ only in their addresses.
#[derive(Debug)]
pub struct ImageAttention {
    pub attention: Arc<FusedAttention>,
    /// Kernels of the first use.
    pub kernels: Vec<Kernel>,
    /// The first use on each lane.
    pub uses: Vec<AttentionUse>,
}

#[derive(Debug)]
pub struct AttentionUse {
    /// Addresses of the operands.
    pub operands: Arc<[u64]>,
    pub lane: u32,
    /// Range of the kernels that compute it, in [`super::lower::Calls::alternatives`].
    pub kernels: (u32, u32),
}
