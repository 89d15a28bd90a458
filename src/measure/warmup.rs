//! Warm-up: iterations that are thrown away, until their times show no trend.

use crate::base::Nanos;
use crate::exec::{Control, ExecError, LaunchMode, Ranks};

use super::record::WarmupRecord;
use super::series;

/// Fewest iterations to warm up of which a trend is told; fewer are run as they are asked for.
const JUDGED: u64 = series::TREND_SAMPLES as u64;

/// Rounds of warm-up at most.
const ROUNDS: u64 = 10;

/// Warms up, and says how many more iterations go right before the measured ones. Rounds of `warmup` iterations are run
/// until one shows no trend, ten at most; `lead` more let the host get ahead again. Fewer than ten show no trend, nor do
/// fewer than two rounds of the program's slots: then they are run once, right before.
pub fn settle(
    session: &mut Ranks,
    mode: LaunchMode,
    warmup: u64,
    lead: u64,
    control: &Control,
) -> Result<(WarmupRecord, u64), ExecError> {
    let slots = session.slots();
    if warmup < JUDGED.max(2 * slots as u64) {
        return Ok((WarmupRecord { iterations: warmup, trend: None, settled: None }, warmup));
    }
    let mut rounds = 0;
    let mut trend = None;
    while rounds < ROUNDS && !control.stopped() {
        let samples = session.iterate(mode, 0, warmup, control)?.slowest;
        rounds += 1;
        trend = series::trend(&beside_own_slot(&samples.time, slots));
        if trend.is_none() {
            break;
        }
    }
    let record = WarmupRecord { iterations: rounds * warmup + lead, trend, settled: Some(trend.is_none()) };
    Ok((record, lead))
}

/// Times without what follows from the work of their slot.
pub fn beside_own_slot(times: &[Nanos], slots: usize) -> Vec<f64> {
    series::beside_own_slot(&times.iter().map(|time| time.0 as f64).collect::<Vec<_>>(), slots)
}
