//! Parts of a product's time besides its operations.

use crate::config::Profile;
use crate::ops::Cost;

use super::{cache_time, memory_time};

/// Time in ns of the kernels that run before and after a product.
pub(super) fn further_time(cost: &Cost, cached: f64, profile: &Profile) -> f64 {
    // Each reads its description, and then its operands.
    let launch = profile.graph.gap.value() + profile.kernel_floor.value() + 2.0 * profile.memory_latency.value();
    cost.tiling.further as f64 * launch + memory_time(2.0 * cost.tiling.converted as f64, cached, profile)
}

/// Time in ns by which the stores of a product's results lengthen each of its waves of blocks. Returns 0 without matrix units, or if the
/// product's operations already contain these stores. Blocks of a wave store together after they have multiplied; the next wave's products
/// hide that.
pub(super) fn last_stores(cost: &Cost, waves: f64, profile: &Profile) -> f64 {
    let written = if cost.matrix.is_some() && !cost.tiling.stores { cost.written.device } else { 0 };
    cache_time([0.0, written as f64 / waves], false, 1.0, profile) / waves
}
