//! Whether a run's times are steady enough to be set beside those of other runs.

use super::record::{RunRecord, Variant};
use super::series;
use super::warmup::in_phase;

/// How wide the interval of the median may be, as a share of the median.
const WIDTH: f64 = 0.10;

/// How far times may drift from the first third to the last, as a share of the median.
const DRIFT: f64 = 0.05;

/// How far two groups of times may lie apart, as a share of the median.
const APART: f64 = 0.05;

/// Why figures of a run say little, of the first of its variants of which that is so. Nothing where nothing was measured
/// that could say so: a simulator has no noise, and one iteration no spread.
pub fn doubt(record: &RunRecord) -> Option<String> {
    if record.simulated || !record.measurement {
        return None;
    }
    let period = record.program.cycle;
    record.variants.iter().find_map(|variant| unsteady(variant, period))
}

fn unsteady(variant: &Variant, period: usize) -> Option<String> {
    let (time, launch) = (&variant.time, &variant.launch);
    let median = time.p50_ns.filter(|median| median.0 > 0)?.0 as f64;
    let samples = in_phase(&time.samples_ns, period);
    if let Some(trend) = series::trend(&samples).filter(|trend| trend.abs() > DRIFT) {
        let moved = if trend > 0.0 { "rose" } else { "fell" };
        return Some(format!("{launch}: the times {moved} by {:.0} % while measuring", trend.abs() * 100.0));
    }
    if let Some(modes) = series::modes(&samples).filter(|modes| modes.high - modes.low > APART) {
        let apart = (modes.high - modes.low) * 100.0;
        return Some(format!("{launch}: the times fall into two groups, {apart:.0} % apart"));
    }
    let width = (time.p50_high_ns?.0 - time.p50_low_ns?.0) as f64 / median;
    (width > WIDTH).then(|| format!("{launch}: the median is known to {:.0} % only", width * 100.0))
}
