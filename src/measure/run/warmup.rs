//! Warm-up: iterations are discarded until their times show no trend.

use crate::base::{Nanos, stage};
use crate::exec::{Control, ExecError, LaunchMode, Ranks};

use crate::measure::record::WarmupRecord;
use crate::measure::statistics::series;

/// Minimum number of warm-up iterations for a trend test. Shorter warm-ups are run as requested.
const JUDGED: u64 = series::TREND_SAMPLES as u64;

/// Maximum number of warm-up rounds.
const ROUNDS: u64 = 10;

/// Warms up, and returns the number of iterations to discard directly before the measured ones. Launches each of several
/// slots once if iterations are launched as streams, then runs rounds of `warmup` iterations until one shows no trend, ten
/// at most; then `lead` more let the host get ahead. Fewer than ten iterations, or than two rounds of the program's slots,
/// cannot show a trend and are run once, directly before the measurement.
pub fn warm_up(
    session: &mut Ranks,
    mode: LaunchMode,
    warmup: u64,
    lead: u64,
    control: &Control,
) -> Result<(WarmupRecord, u64), ExecError> {
    let slots = session.slots();
    if warmup < JUDGED.max(2 * slots as u64) {
        return Ok((WarmupRecord { iterations: warmup, ..WarmupRecord::default() }, warmup));
    }
    let _stage = stage::enter("warming up");
    let first_round = if slots > 1 && mode == LaunchMode::Stream { slots as u64 } else { 0 };
    if first_round > 0 {
        // Libraries load code in the first launch of a slot, which waits for the device. Discarded iterations of the first
        // round are not held at the gate.
        session.iterate(mode, first_round, 0, control)?;
    }
    let mut rounds = 0;
    let (mut trend, mut first_ns) = (None, None);
    while rounds < ROUNDS && !control.stopped() {
        let samples = session.iterate(mode, 0, warmup, control)?.slowest;
        rounds += 1;
        first_ns = first_ns.or(samples.time.first().copied());
        trend = series::trend(&relative_to_slot(&samples.time, slots));
        if trend.is_none() {
            break;
        }
    }
    let record = WarmupRecord {
        iterations: first_round + rounds * warmup + lead,
        trend,
        settled: Some(trend.is_none()),
        first_ns,
    };
    Ok((record, lead))
}

/// Times relative to their slot's median.
pub fn relative_to_slot(times: &[Nanos], slots: usize) -> Vec<f64> {
    series::relative_to_slot(&times.iter().map(|time| time.0 as f64).collect::<Vec<_>>(), slots)
}
