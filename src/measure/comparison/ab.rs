//! The record of an A/B comparison of two sides, and its evaluation. Does no input or output.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::base::{Nanos, json};
use crate::exec::LaunchMode;

use crate::measure::record::rate::{self, RateUnit};
use crate::measure::record::{RunRecord, WarmupRecord, slots};
use crate::measure::run::warm_session::BlockResult;
use crate::measure::statistics::effect::{self, Direction, Effect, Verdict};
use crate::measure::statistics::paired::{self, AbSide, Paired};
use crate::measure::statistics::series;
use crate::measure::statistics::summary::Summary;

/// Name and version of the schema.
pub const SCHEMA: &str = "aorta.ab/1";

/// Record of an A/B comparison.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AbRecord {
    pub schema: String,
    /// Version of aorta that made the record.
    pub aorta: String,
    /// Start time, UTC, RFC 3339.
    pub started: String,
    /// True if all rounds were run.
    pub complete: bool,
    /// Seed of the random order of blocks.
    pub seed: u64,
    /// Number of rounds that were requested.
    pub rounds: usize,
    /// Iterations per block.
    pub iterations: u64,
    pub way: BlockMode,
    /// Reason why each block ran in a fresh process; `None` if the sides were interleaved.
    pub why_fresh: Option<String>,
    pub a: AbSideRecord,
    pub b: AbSideRecord,
    /// Measured blocks in the order of time.
    pub blocks: Vec<AbBlockRecord>,
    /// Evaluation; `None` if there were too few blocks.
    pub result: Option<AbResult>,
    pub warnings: Vec<String>,
}

/// The processes in which the blocks of both sides ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockMode {
    /// The sessions of both sides stayed open and measured blocks in turn.
    Interleaved,
    /// Each block ran in its own process, since the device could not hold both sessions at once.
    Fresh,
}

/// A side of the comparison.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AbSideRecord {
    /// Arguments of the side for `aorta exec`.
    pub arguments: Vec<String>,
    /// Launch mode: `stream` or `graph`.
    pub launch: String,
    /// Number of iterations after which the program repeats.
    pub period: usize,
    pub warmup: WarmupRecord,
    /// The record of the side's run without samples: program, device, settings.
    pub run: RunRecord,
    pub notes: Vec<String>,
}

/// A measured block of iterations.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AbBlockRecord {
    pub side: AbSide,
    /// The round of the block; `None` for a block of a side that was measured separately.
    pub round: Option<usize>,
    #[serde(flatten)]
    pub block: BlockResult,
}

/// Times that an A/B comparison compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbBasis {
    /// Times of an iteration of each side.
    Iteration,
    /// Times that each side takes for the work of an iteration of a, as a search compares points.
    Work,
}

/// Evaluation of the blocks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AbResult {
    /// Verdict of the interleaved blocks, including the expected variation between processes.
    pub verdict: Verdict,
    /// Effect of the interleaved blocks.
    pub turns: Paired,
    /// Assumed standard deviation between processes of the same program, as a share of the time. `None` if each side
    /// ran in several processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between_runs: Option<f64>,
    /// Effect of the blocks that were measured separately, one side after the other; `None` if they are missing.
    pub apart: Option<Effect>,
    /// True if the interleaved and the separate blocks agree; `None` if one of them is missing.
    pub agree: Option<bool>,
    /// Carry-over for each side: the time of its blocks directly after a block of the other side, over that directly
    /// after its own.
    pub carried: [Option<Effect>; 2],
    /// Work that both sides do in the compared times: that of an iteration of a. `None` if the times are those of an iteration of
    /// each side.
    #[serde(skip)]
    pub work: Option<(RateUnit, f64)>,
}

/// Value of a block: the median time of its iterations in ns; for a program with several slots, the median over rounds
/// of the mean time of an iteration. `None` without a complete round.
pub fn level(times: &[Nanos], slots: usize) -> Option<f64> {
    let times: Vec<f64> = times.iter().map(|time| time.0 as f64).collect();
    Summary::of(&slots::rounds(&times, slots)).map(|summary| summary.p50)
}

impl AbRecord {
    /// Serializes the record as indented JSON.
    pub fn to_json(&self) -> String {
        json::document(self)
    }

    /// The record of a side.
    pub fn side(&self, side: AbSide) -> &AbSideRecord {
        match side {
            AbSide::A => &self.a,
            AbSide::B => &self.b,
        }
    }

    /// Values of a side's blocks, either interleaved (`in_turn`) or measured separately.
    pub fn levels(&self, side: AbSide, in_turn: bool) -> Vec<f64> {
        let period = self.side(side).period;
        let side_blocks = self.blocks.iter().filter(|block| block.side == side && block.round.is_some() == in_turn);
        side_blocks.filter_map(|block| level(&block.block.time_ns, period)).collect()
    }

    /// Evaluates the blocks, and adds warnings about the result.
    pub fn judge(&mut self, threshold: f64, basis: AbBasis) {
        self.result = self.judged(threshold, basis);
        let doubts = self.doubts();
        self.warnings.extend(doubts);
    }

    fn judged(&self, threshold: f64, basis: AbBasis) -> Option<AbResult> {
        let [a, b] = [&self.a.run, &self.b.run].map(rate::work);
        let is_by_work = |((unit, work), (other_unit, other_work)): &((RateUnit, f64), (RateUnit, f64))| {
            basis == AbBasis::Work && unit == other_unit && work != other_work
        };
        let works = a.zip(b).filter(is_by_work);
        let scale = works.map_or(1.0, |((_, work), (_, other))| work / other);
        let scaled = |in_turn| self.levels(AbSide::B, in_turn).iter().map(|level| level * scale).collect::<Vec<f64>>();
        let turns = paired::paired(&self.levels(AbSide::A, true), &scaled(true), threshold, self.seed)?;
        let (a, b) = (self.levels(AbSide::A, false), scaled(false));
        let mut apart = Effect::of_values(&a, &b, Direction::LowerIsBetter, threshold);
        let agree = apart.as_ref().and_then(|apart| agree(&turns, apart));
        let carried = [AbSide::A, AbSide::B].map(|side| self.carried(side, threshold));
        let between_runs = self.between_runs();
        let mut verdict = between_runs.map_or(turns.verdict, |deviation| turns.verdict_of_processes(deviation));
        if let (Some(apart), Some(deviation)) = (&mut apart, between_runs) {
            let rule = (Direction::LowerIsBetter, threshold);
            (_, apart.verdict) = effect::allow_for_runs(apart.ratio, apart.interval, deviation, rule);
        }
        if !self.unseen_kernels().is_empty() {
            verdict = Verdict::CannotTell;
            apart.iter_mut().for_each(|apart| apart.verdict = Verdict::CannotTell);
        }
        Some(AbResult { verdict, turns, between_runs, apart, agree, carried, work: works.map(|(a, _)| a) })
    }

    /// Names of the kernels in whose code the sides differ, if a simulator, which does not read it, gave the times of both; empty
    /// otherwise.
    pub fn unseen_kernels(&self) -> BTreeSet<&str> {
        let [a, b] = [&self.a.run, &self.b.run];
        let other = |of: &RunRecord, (name, code): (&String, &String)| of.program.kernels.get(name) != Some(code);
        let of_a = a.program.kernels.iter().filter(|kernel| other(b, *kernel));
        let of_b = b.program.kernels.iter().filter(|kernel| other(a, *kernel));
        of_a.chain(of_b).filter(|_| a.simulated && b.simulated).map(|(name, _)| name.as_str()).collect()
    }

    /// Assumed standard deviation between processes of the same program. `None` if several processes measured it, or if
    /// both sides are simulated.
    fn between_runs(&self) -> Option<f64> {
        let sides = [&self.a, &self.b];
        let one_process = self.way == BlockMode::Interleaved && !sides.iter().all(|side| side.run.simulated);
        let graphs = sides.iter().all(|side| side.launch == LaunchMode::Graph.name());
        one_process.then(|| effect::between_runs(graphs))
    }

    /// Carry-over of a side: its blocks after a block of the other side, compared with its blocks after a block of its own. `None` with
    /// fresh processes.
    fn carried(&self, side: AbSide, threshold: f64) -> Option<Effect> {
        if self.way == BlockMode::Fresh {
            return None;
        }
        let turns: Vec<&AbBlockRecord> = self.blocks.iter().filter(|block| block.round.is_some()).collect();
        let behind = |other: bool| -> Vec<f64> {
            let pairs = turns.windows(2).filter(|pair| pair[1].side == side && (pair[0].side != side) == other);
            pairs.filter_map(|pair| level(&pair[1].block.time_ns, self.side(side).period)).collect()
        };
        Effect::of_values(&behind(false), &behind(true), Direction::LowerIsBetter, threshold)
    }

    /// Warnings that a reader must know before trusting the result.
    fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        if let Some(judged) = &self.result {
            for (side, carried) in [AbSide::A, AbSide::B].into_iter().zip(&judged.carried) {
                let moved = carried.filter(|effect| matches!(effect.verdict, Verdict::Better | Verdict::Worse));
                doubts.extend(moved.map(|effect| {
                    format!(
                        "{} takes {:.1} % {} directly after the other side than after itself: caches, clocks or power \
                         are carried over",
                        side.name(),
                        100.0 * (effect.ratio - 1.0).abs(),
                        if effect.ratio > 1.0 { "more" } else { "less" }
                    )
                }));
            }
        }
        for side in [AbSide::A, AbSide::B] {
            if let Some(drift) = series::trend(&self.levels(side, true)) {
                doubts.push(format!(
                    "{} drifted by {:+.1} % while the sides alternated; a steady drift cancels out of their difference",
                    side.name(),
                    100.0 * drift
                ));
            }
            let blocks = || self.blocks.iter().filter(move |block| block.side == side);
            let throttled: Vec<&String> = blocks().flat_map(|block| &block.block.throttled).collect();
            if let Some(why) = throttled.first() {
                let throttled_blocks = blocks().filter(|block| !block.block.throttled.is_empty()).count();
                doubts.push(format!(
                    "{} was throttled in {throttled_blocks} of {} blocks: {why}",
                    side.name(),
                    blocks().count()
                ));
            }
            let (early, all) = blocks()
                .fold((0, 0), |(early, all), block| (early + block.block.ungated, all + block.block.time_ns.len()));
            if early > 0 {
                doubts.push(format!(
                    "{}: {early} of {all} iterations began before the host had launched them completely: their times include \
                     host time",
                    side.name()
                ));
            }
        }
        doubts
    }
}

/// True if the interleaved and the separate effects agree: their difference is within the combined uncertainty or
/// within the threshold. `None` if one of them has no interval.
fn agree(turns: &Paired, apart: &Effect) -> Option<bool> {
    let half = |(low, high): (f64, f64)| (high / low).ln() / 2.0;
    let uncertain = half(turns.interval?).hypot(half(apart.interval?));
    let between = (apart.ratio / turns.ratio).ln().abs();
    Some(between <= uncertain.max(turns.threshold.ln_1p()))
}
