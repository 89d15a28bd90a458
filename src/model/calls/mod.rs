//! Calls of operations, definitions and declared kernels.

pub(super) mod batch;
pub(super) mod call;
pub(super) mod call_def;
pub(super) mod call_kernel;
pub(super) mod kernel;
pub(super) mod kernel_fields;
pub(super) mod lower;
pub(super) mod options;
pub(super) mod specs;
pub(super) mod suggested_call;
pub(super) mod triton;
