//! Parts from which operations make kernels. This folder knows launches, layouts and expressions, but neither calls nor options.

pub(super) mod cluster;
pub(super) mod compiled;
pub(super) mod elementwise_task;
pub mod kernel;
pub(super) mod mma;
pub(super) mod occupancy;
pub(super) mod philox;
pub(super) mod radix;
pub(super) mod ragged;
pub(super) mod row_groups;
pub(super) mod row_stage;
pub(super) mod rows;
pub(super) mod select;
pub(super) mod stream;
pub mod unit_report;
pub(super) mod walk;
pub(super) mod warpgroups;
