//! Statistics of series and of differences. They know neither operations nor devices.

pub mod direction;
pub mod effect;
#[cfg(test)]
pub(super) mod noise;
pub mod paired;
pub(super) mod quantile;
pub mod series;
pub mod stats;
pub(super) mod summary;
