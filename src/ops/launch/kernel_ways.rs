//! Several ways to compute an operation by generated kernels, between which a backend can choose by their times.

use std::sync::Arc;

/// The ways of a launch that has kernels of several ways.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelWays {
    /// Description of the operation, for notes.
    pub what: String,
    /// Number of floating-point operations of one run.
    pub flops: f64,
    /// The ways in the order of their kernels. The first one is the fastest by estimate.
    pub ways: Vec<KernelWay>,
    /// Contents of an operand on which the time depends: the number of the operand, and its bytes in a trial.
    pub contents: (u8, Arc<[u8]>),
}

/// A way to compute an operation by kernels.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelWay {
    /// Description of the way, for notes.
    pub name: String,
    /// Number of its kernels.
    pub kernels: usize,
}
