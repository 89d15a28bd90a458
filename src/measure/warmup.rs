//! Warm-up: iterations that are thrown away, until their times show no trend.

use crate::base::Nanos;
use crate::exec::{Control, ExecError, LaunchMode, RankSamples, Ranks};

use super::record::WarmupRecord;
use super::series;

/// Fewest iterations to warm up of which a trend is told; fewer are run as they are asked for.
const JUDGED: u64 = series::TREND_SAMPLES as u64;

/// Rounds of warm-up at most.
const ROUNDS: u64 = 10;

/// What iterating gave, and how it was warmed up.
#[derive(Debug)]
pub struct Warmed {
    pub samples: RankSamples,
    pub warmup: WarmupRecord,
}

/// Warms up and measures. Rounds of `warmup` iterations are run until one shows no trend, ten at most; `lead` more let
/// the host get ahead again. Fewer than ten show no trend: then they are run once.
pub fn iterate(
    session: &mut Ranks,
    mode: LaunchMode,
    (warmup, iterations): (u64, u64),
    lead: u64,
    control: &Control,
) -> Result<Warmed, ExecError> {
    if warmup < JUDGED {
        let samples = session.iterate(mode, warmup, iterations, control)?;
        return Ok(Warmed { samples, warmup: WarmupRecord { iterations: warmup, trend: None, settled: None } });
    }
    let mut rounds = 0;
    let mut trend = None;
    while rounds < ROUNDS && !control.stopped() {
        let samples = session.iterate(mode, 0, warmup, control)?.slowest;
        rounds += 1;
        trend = series::trend(&in_phase(&samples.time, session.period()));
        if trend.is_none() {
            break;
        }
    }
    let warmup = WarmupRecord { iterations: rounds * warmup + lead, trend, settled: Some(trend.is_none()) };
    Ok(Warmed { samples: session.iterate(mode, lead, iterations, control)?, warmup })
}

/// Times without what follows from the work of their place in the cycle.
pub fn in_phase(times: &[Nanos], period: usize) -> Vec<f64> {
    series::in_phase(&times.iter().map(|time| time.0 as f64).collect::<Vec<_>>(), period)
}
