//! Measures iterations in blocks, and reads the devices' clocks and throttling state between them.
//!
//! Short throttling would be invisible before and after a run. A reading takes about a millisecond, during which the
//! device is idle; a few discarded iterations then let the host get ahead again. Every measured sample is kept.

use crate::base::{Nanos, counted, stage};
use crate::exec::{Control, ExecError, Health, LaunchMode, RankSamples, Ranks};

use crate::measure::record::BlockRecord;

/// Maximum number of blocks.
const BLOCKS: u64 = 8;

/// Minimum iterations of a block, which keeps the overhead of discarded iterations and pauses small.
const MIN_PER_BLOCK: u64 = 10;

/// Measured iterations with readings of the devices.
#[derive(Debug)]
pub struct MeasuredBlocks {
    pub samples: RankSamples,
    /// Readings of each device before the first block and after each block. Devices that report nothing are left out.
    pub readings: Vec<Vec<Health>>,
    /// Number of samples of each block.
    pub counts: Vec<usize>,
    /// The error that ended the last block, whose earlier samples are kept; `None` if no block failed.
    pub failure: Option<ExecError>,
}

/// Measures `iterations` iterations, in blocks if some device reports its state. Discards `first` iterations before the
/// first block, and at least `lead` before each other one. Fails if no iteration could be measured.
pub fn iterate(
    session: &mut Ranks,
    mode: LaunchMode,
    (first, lead): (u64, u64),
    iterations: u64,
    control: &Control,
) -> Result<MeasuredBlocks, ExecError> {
    let _stage = stage::enter("measuring");
    let before = session.health()?;
    let slots = session.slots() as u64;
    let ends = if before.is_empty() { vec![iterations] } else { ends(iterations, slots) };
    // A sample's slot follows from its number, so each block must begin with the same slot.
    let later = lead + (first + slots - lead % slots) % slots;
    let mut blocks =
        MeasuredBlocks { samples: RankSamples::default(), readings: vec![before], counts: Vec::new(), failure: None };
    let mut begin = 0;
    for end in ends {
        let ahead = if begin == 0 { first } else { later };
        let (samples, ended) = match session.iterate(mode, ahead, end - begin, control) {
            Ok(samples) => (Some(samples), Ok(())),
            Err(error) => (session.samples_before_failure(), Err(error)),
        };
        // A device that has failed must not be queried.
        let (reading, failure) = match ended.and_then(|()| session.health()) {
            Ok(reading) => (reading, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        if let Some(samples) = samples {
            blocks.counts.push(samples.slowest.time.len());
            blocks.samples.append(samples);
            blocks.readings.push(reading);
        }
        blocks.samples.slowest.stopped |= failure.is_some();
        blocks.failure = failure;
        begin = end;
        if blocks.samples.slowest.stopped {
            break;
        }
    }
    match blocks.failure {
        Some(error) if blocks.samples.slowest.time.is_empty() => Err(error),
        _ => Ok(blocks),
    }
}

/// Ends of the blocks, in iterations. Each block but the last consists of complete rounds.
fn ends(iterations: u64, slots: u64) -> Vec<u64> {
    let count = (iterations / MIN_PER_BLOCK.max(slots)).clamp(1, BLOCKS);
    let mut ends: Vec<u64> = (1..count).map(|block| iterations * block / count / slots * slots).collect();
    ends.push(iterations);
    ends
}

impl MeasuredBlocks {
    /// First and last reading of each device.
    pub fn edges(&self) -> impl Iterator<Item = &Health> {
        self.readings.iter().take(1).chain(self.readings.last()).flatten()
    }

    /// Total device time of the samples of some blocks.
    fn window(&self, blocks: std::ops::Range<usize>) -> Nanos {
        let first: usize = self.counts[..blocks.start].iter().sum();
        let count: usize = self.counts[blocks].iter().sum();
        self.samples.slowest.time[first..first + count].iter().copied().sum()
    }

    /// Blocks for the record; empty if devices report nothing.
    pub fn records(&self) -> Vec<BlockRecord> {
        if self.counts.len() < 2 {
            return Vec::new();
        }
        let mut first = 0;
        let block = |(index, &count): (usize, &usize)| {
            let throttled = throttled(&self.readings[index], &self.readings[index + 1], self.window(index..index + 1));
            first += count;
            BlockRecord {
                first: first - count,
                iterations: count,
                health: self.readings[index + 1].iter().map(|health| health.sensors.clone()).collect(),
                throttled: (!throttled.is_empty()).then(|| throttled.join("; ")),
            }
        };
        self.counts.iter().enumerate().map(block).collect()
    }

    /// Returns a warning per cause of throttling, with the number of samples that it affects.
    pub fn warnings(&self, mode: LaunchMode) -> Vec<String> {
        let records = self.records();
        let throttled_blocks: Vec<&BlockRecord> = records.iter().filter(|block| block.throttled.is_some()).collect();
        let mut reasons =
            throttled(&self.readings[0], &self.readings[self.counts.len()], self.window(0..self.counts.len()));
        // A cause that had ended before the end of the run shows only in its block.
        if reasons.is_empty() {
            reasons.extend(throttled_blocks.iter().filter_map(|block| block.throttled.clone()).take(1));
        }
        let samples: usize = throttled_blocks.iter().map(|block| block.iterations).sum();
        let all: usize = self.counts.iter().sum();
        let share = match throttled_blocks.len() {
            0 => String::new(),
            _ => format!("; that was while {samples} of {} were measured", counted(all, "iteration")),
        };
        reasons.iter().map(|why| format!("{}: throttled: {why}{share}", mode.phrase())).collect()
    }
}

/// Describes the reasons that throttled devices between two readings, each distinct description once. `window` is the
/// devices' time between the readings.
pub fn throttled(before: &[Health], after: &[Health], window: Nanos) -> Vec<String> {
    let mut causes: Vec<String> = Vec::new();
    for (before, after) in before.iter().zip(after) {
        causes.extend(after.throttled(before, window).filter(|why| !causes.contains(why)));
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_whole_rounds() {
        assert_eq!(ends(100, 1), [12, 25, 37, 50, 62, 75, 87, 100]);
        assert_eq!(ends(100, 4), [12, 24, 36, 48, 60, 72, 84, 100]);
        assert_eq!(ends(100, 64), [100]);
        assert_eq!(ends(45, 1), [11, 22, 33, 45]);
        assert_eq!(ends(19, 1), [19]);
        assert_eq!(ends(1, 1), [1]);
    }
}
