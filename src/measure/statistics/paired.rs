//! Interleaved comparison of two sides, in rounds of four blocks: A B B A or B A A B. Independent of units.
//!
//! Each round is one observation: the mean logarithm of its B blocks minus that of its A blocks. Drift of the machine
//! affects both sides: linear drift cancels within a round, slow drift nearly does. The order of each round is random,
//! so that without a difference the sign of its effect is a fair coin, whatever the noise.
//!
//! The interval is Student's over rounds. Its validity for the actual noise is checked on the data: each side is
//! compared with itself, in every order that it could have had. If more than one in twenty of these comparisons finds a
//! difference, the interval is widened until no more do; if more than twice the width is needed, there is no verdict.

use serde::{Deserialize, Serialize};

use super::effect::{self, Direction, Verdict};
use super::stats::{Moments, logs};
use crate::base::named::named;
use crate::base::random;

pub const BLOCKS_PER_ROUND: usize = 4;
/// Blocks of each side in a round.
pub const BLOCKS_PER_SIDE: usize = 2;

/// Minimum rounds for comparing a side with itself.
pub const MIN_ROUNDS: usize = 6;

/// Maximum share of comparisons of a side with itself that may find a difference.
pub const ALARMS: f64 = 0.05;

/// Maximum factor by which the interval is widened.
const WIDEST: f64 = 2.0;

/// Maximum number of orders in which a side is compared with itself.
const ORDERS: u64 = 512;

named! {
    /// The sides that `aorta ab` compares: a is the reference, b the change.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum AbSide {
        A = "a",
        B = "b",
    }
}

/// Order of a round's blocks.
pub fn order(seed: u64, round: usize) -> [AbSide; BLOCKS_PER_ROUND] {
    match random::hash(seed, round as u64) & 1 {
        0 => [AbSide::A, AbSide::B, AbSide::B, AbSide::A],
        _ => [AbSide::B, AbSide::A, AbSide::A, AbSide::B],
    }
}

/// Result of comparing a side with itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Alarms {
    pub comparisons: usize,
    /// Comparisons that would have found a difference.
    pub alarms: usize,
    /// Factor by which the interval was widened; 1 if it was not.
    pub widened: f64,
}

impl Alarms {
    /// Share of comparisons with a false alarm; 0 without comparisons.
    pub fn rate(&self) -> f64 {
        self.alarms as f64 / self.comparisons.max(1) as f64
    }

    /// True if false alarms stay too frequent even with the widest interval.
    pub fn too_many(&self) -> bool {
        self.rate() > ALARMS
    }
}

/// Result of an interleaved comparison: the time of B relative to A.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Paired {
    /// Geometric mean of each side's blocks.
    pub a: f64,
    pub b: f64,
    pub rounds: usize,
    /// B over A.
    pub ratio: f64,
    /// Interval that contains the true ratio with 95 % confidence; `None` if there is no interval.
    pub interval: Option<(f64, f64)>,
    /// Share above which a difference matters.
    pub threshold: f64,
    /// Comparisons of each side with itself.
    pub itself: Alarms,
    pub verdict: Verdict,
}

/// Compares the blocks of two sides, two of each per round, in the order of time. Lower is better. `None` without a
/// complete round, or if a value is not positive.
pub fn paired(a: &[f64], b: &[f64], threshold: f64, seed: u64) -> Option<Paired> {
    let (a, b) = (logs(a)?, logs(b)?);
    let pairs = a.chunks_exact(BLOCKS_PER_SIDE).zip(b.chunks_exact(BLOCKS_PER_SIDE));
    let effects: Vec<f64> = pairs.map(|(a, b)| mean(b) - mean(a)).collect();
    let rounds = effects.len();
    let (a, b) = (&a[..rounds * BLOCKS_PER_SIDE], &b[..rounds * BLOCKS_PER_SIDE]);
    let effects = Moments::of(&effects)?;
    let change = effects.mean;
    let itself = with_itself([a, b], seed);
    let interval = effects.half_width().map(|reach| (change - itself.widened * reach, change + itself.widened * reach));
    let believed = interval.filter(|_| rounds >= MIN_ROUNDS && !itself.too_many());
    Some(Paired {
        a: mean(a).exp(),
        b: mean(b).exp(),
        rounds,
        ratio: change.exp(),
        interval: interval.map(|(low, high)| (low.exp(), high.exp())),
        threshold,
        itself,
        verdict: effect::verdict(change, believed, Direction::LowerIsBetter, threshold),
    })
}

impl Paired {
    /// Verdict if each side is one process and processes of the same program differ by this standard deviation, a
    /// share. That difference is the same in every round, so the interval over rounds does not contain it.
    pub fn verdict_of_processes(&self, deviation: f64) -> Verdict {
        if self.verdict == Verdict::CannotTell {
            return Verdict::CannotTell;
        }
        let rule = (Direction::LowerIsBetter, self.threshold);
        effect::allow_for_runs(self.ratio, self.interval, deviation, rule).1
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Compares each side with itself: four consecutive blocks form a round, in each of the possible orders.
fn with_itself(sides: [&[f64]; 2], seed: u64) -> Alarms {
    // Factor by which the interval of each comparison would have to be widened to contain no difference.
    let mut needed: Vec<f64> = Vec::new();
    for (side, blocks) in (0..).zip(sides) {
        let effects: Vec<f64> = blocks
            .chunks_exact(BLOCKS_PER_ROUND)
            .map(|x| f64::midpoint(x[1], x[2]) - f64::midpoint(x[0], x[3]))
            .collect();
        if effects.len() < 2 {
            continue;
        }
        let turned = |order: &RoundOrder| {
            let turned: Vec<f64> = (0..).zip(&effects).map(|(at, effect)| order.sign(at) * effect).collect();
            let turned = Moments::of(&turned).expect("there are two effects at least");
            // Equal blocks need no interval.
            if turned.mean == 0.0 { 0.0 } else { turned.mean.abs() / turned.half_width().unwrap_or(0.0) }
        };
        needed.extend(orders(effects.len(), random::hash(seed, side)).iter().map(turned));
    }
    needed.sort_by(f64::total_cmp);
    let comparisons = needed.len();
    let allowed = (ALARMS * comparisons as f64) as usize;
    let widened = match needed.iter().rev().nth(allowed) {
        Some(&factor) => factor.clamp(1.0, WIDEST),
        None => 1.0,
    };
    let alarms = needed.iter().filter(|&&factor| factor > widened).count();
    Alarms { comparisons, alarms, widened }
}

/// An order of rounds: which of them begin with the other side.
enum RoundOrder {
    /// A bit per round, when all orders are enumerated.
    Listed(u64),
    /// A random order with this seed.
    Drawn(u64),
}

impl RoundOrder {
    fn sign(&self, round: u64) -> f64 {
        let turned = match self {
            RoundOrder::Listed(bits) => bits >> round & 1,
            RoundOrder::Drawn(seed) => random::hash(*seed, round) & 1,
        };
        if turned == 0 { 1.0 } else { -1.0 }
    }
}

/// Returns every order of that many rounds, or a random selection. The first round is fixed: reversing all rounds changes
/// nothing.
fn orders(rounds: usize, seed: u64) -> Vec<RoundOrder> {
    match 1u64.checked_shl(rounds as u32 - 1).filter(|&all| all <= ORDERS) {
        Some(all) => (0..all).map(|order| RoundOrder::Listed(order << 1)).collect(),
        None => (0..ORDERS).map(|draw| RoundOrder::Drawn(random::hash(seed, draw))).collect(),
    }
}

#[cfg(test)]
mod tests;
