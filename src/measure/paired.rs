//! Two sides that are measured in turn, in rounds of four blocks: A B B A, or B A A B. Knows no unit.
//!
//! The round is the unit: what it says is the mean logarithm of its blocks of B less that of its blocks of A. A machine that
//! drifts slows both sides alike: a drift on a straight line is gone from every round, a slower one nearly. Which of the
//! two orders a round has is drawn, so that under no difference the sign of its effect is a fair coin, whatever the noise.
//!
//! The interval is Student's, of the rounds. Whether it holds for the noise that there was is looked up in the data: each
//! side is compared with itself, in every order that it could have had. Where more than one in twenty of these
//! comparisons finds a difference, the interval is widened until no more do; beyond twice its width nothing is said.

use serde::{Deserialize, Serialize};

use super::effect::{self, Direction, Verdict};
use super::stats::{Moments, logs};
use crate::base::random;

/// Blocks of a round, and those of one side in it.
pub const ROUND: usize = 4;
pub const OF_A_SIDE: usize = 2;

/// Rounds below which a side cannot be compared with itself.
pub const FEWEST: usize = 6;

/// False alarms at most, as a share.
pub const ALARMS: f64 = 0.05;

/// The interval is widened to that many times its width at most.
const WIDEST: f64 = 2.0;

/// Orders in which a side is compared with itself, at most: all there are where they are fewer.
const ORDERS: u64 = 512;

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AbSide {
    A,
    B,
}

impl AbSide {
    pub fn name(self) -> &'static str {
        match self {
            AbSide::A => "a",
            AbSide::B => "b",
        }
    }
}

/// The order of a round's blocks.
pub fn order(seed: u64, round: usize) -> [AbSide; ROUND] {
    match random::hash(seed, round as u64) & 1 {
        0 => [AbSide::A, AbSide::B, AbSide::B, AbSide::A],
        _ => [AbSide::B, AbSide::A, AbSide::A, AbSide::B],
    }
}

/// How often a side, compared with itself, differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Alarms {
    pub comparisons: usize,
    /// Those that would have found a difference.
    pub alarms: usize,
    /// How much wider than Student's the interval had to be for that: 1 where it did not.
    pub widened: f64,
}

impl Alarms {
    pub fn rate(&self) -> f64 {
        self.alarms as f64 / self.comparisons.max(1) as f64
    }

    /// No interval of a width that says anything keeps false alarms rare.
    pub fn too_many(&self) -> bool {
        self.rate() > ALARMS
    }
}

/// How much B takes in comparison with A.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Paired {
    /// Of each side: the geometric mean of its blocks.
    pub a: f64,
    pub b: f64,
    pub rounds: usize,
    /// B's over A's.
    pub ratio: f64,
    /// Holds the true ratio with 95 % confidence.
    pub interval: Option<(f64, f64)>,
    /// The share beyond which a difference matters.
    pub threshold: f64,
    /// Each side with itself.
    pub itself: Alarms,
    pub verdict: Verdict,
}

/// Compares the blocks of two sides, two of each in a round, in the order of time. Less is better. Nothing where there is no
/// whole round, or a value is not positive.
pub fn paired(a: &[f64], b: &[f64], threshold: f64, seed: u64) -> Option<Paired> {
    let (a, b) = (logs(a)?, logs(b)?);
    let pairs = a.chunks_exact(OF_A_SIDE).zip(b.chunks_exact(OF_A_SIDE));
    let effects: Vec<f64> = pairs.map(|(a, b)| mean(b) - mean(a)).collect();
    let rounds = effects.len();
    let (a, b) = (&a[..rounds * OF_A_SIDE], &b[..rounds * OF_A_SIDE]);
    let effects = Moments::of(&effects)?;
    let change = effects.mean;
    let itself = with_itself([a, b], seed);
    let interval = effects.reach().map(|reach| (change - itself.widened * reach, change + itself.widened * reach));
    let believed = interval.filter(|_| rounds >= FEWEST && !itself.too_many());
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
    /// What can still be said where each side is one process, and processes of one program differ by this standard
    /// deviation, a share: that is in every round alike, and no interval of rounds shows it.
    pub fn verdict_of_processes(&self, deviation: f64) -> Verdict {
        if self.verdict == Verdict::CannotTell {
            return Verdict::CannotTell;
        }
        let wider = self.interval.map(|interval| effect::allow_for_runs(self.ratio, interval, deviation));
        effect::judge(self.ratio, wider, Direction::LowerIsBetter, self.threshold)
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Compares each side with itself: four of its blocks in a row are a round, in each of the orders that they could have.
fn with_itself(sides: [&[f64]; 2], seed: u64) -> Alarms {
    // By how much an interval would have to be wider to hold no difference, of each comparison.
    let mut needed: Vec<f64> = Vec::new();
    for (side, blocks) in (0..).zip(sides) {
        let effects: Vec<f64> =
            blocks.chunks_exact(ROUND).map(|x| f64::midpoint(x[1], x[2]) - f64::midpoint(x[0], x[3])).collect();
        if effects.len() < 2 {
            continue;
        }
        let turned = |order: &Order| {
            let turned: Vec<f64> = (0..).zip(&effects).map(|(at, effect)| order.sign(at) * effect).collect();
            let turned = Moments::of(&turned).expect("there are two effects at least");
            // What does not differ at all needs no width.
            if turned.mean == 0.0 { 0.0 } else { turned.mean.abs() / turned.reach().unwrap_or(0.0) }
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

/// The orders that rounds have: which of them begin with the other side.
enum Order {
    /// The bits of a number, for all there are.
    Listed(u64),
    /// Drawn.
    Drawn(u64),
}

impl Order {
    fn sign(&self, round: u64) -> f64 {
        let turned = match self {
            Order::Listed(bits) => bits >> round & 1,
            Order::Drawn(seed) => random::hash(*seed, round) & 1,
        };
        if turned == 0 { 1.0 } else { -1.0 }
    }
}

/// All orders of that many rounds, or some. The first round has always the same: to turn all changes nothing.
fn orders(rounds: usize, seed: u64) -> Vec<Order> {
    match 1u64.checked_shl(rounds as u32 - 1).filter(|&all| all <= ORDERS) {
        Some(all) => (0..all).map(|order| Order::Listed(order << 1)).collect(),
        None => (0..ORDERS).map(|draw| Order::Drawn(random::hash(seed, draw))).collect(),
    }
}

#[cfg(test)]
mod tests;
