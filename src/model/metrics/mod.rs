//! `metric` and `expect`: expressions over measured figures.

pub mod figure;
pub(super) mod figure_functions;
pub mod figures;
pub(super) mod metric_families;
pub(super) mod picks;
pub(super) mod statistic;
