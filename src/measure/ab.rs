//! Two variants of a run beside each other: the record, and what it says. Knows neither processes nor devices.

use serde::{Deserialize, Serialize};

use crate::base::Nanos;
use crate::exec::LaunchMode;

use super::effect::{self, Direction, Effect, Verdict};
use super::paired::{self, AbSide, Paired};
use super::record::{RunRecord, WarmupRecord};
use super::series;
use super::slots;
use super::stats::Summary;
use super::warm_session::Block;

/// The name and version of the schema.
pub const SCHEMA: &str = "aorta.ab/1";

/// Everything that a comparison of two variants can say.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AbRecord {
    pub schema: String,
    /// The version of the program that made the record.
    pub aorta: String,
    /// When it began, UTC, RFC 3339.
    pub started: String,
    /// It went to its end.
    pub complete: bool,
    /// What the order of blocks was drawn from.
    pub seed: u64,
    /// Rounds that were asked for.
    pub rounds: usize,
    /// Iterations of a block.
    pub iterations: u64,
    pub way: Way,
    /// Why the sides took turns as fresh processes, where they did.
    pub why_fresh: Option<String>,
    pub a: SideRecord,
    pub b: SideRecord,
    /// In the order of time.
    pub blocks: Vec<BlockRecord>,
    pub result: Option<Judged>,
    pub warnings: Vec<String>,
}

/// How the sides took turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Both stayed on the device, and measured blocks in turn.
    Interleaved,
    /// Each block had a process of its own, since the device did not take both at once.
    Fresh,
}

/// One of the two.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SideRecord {
    /// What it was given, as `aorta exec` takes it.
    pub arguments: Vec<String>,
    /// `stream` or `graph`.
    pub launch: String,
    /// Iterations after which the program repeats.
    pub period: usize,
    pub warmup: WarmupRecord,
    /// A record without figures: what ran, where, with which settings.
    pub run: RunRecord,
    pub notes: Vec<String>,
}

/// One block of iterations.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BlockRecord {
    pub side: AbSide,
    /// The round that it belongs to; nothing of a side by itself.
    pub round: Option<usize>,
    #[serde(flatten)]
    pub block: Block,
}

/// What the blocks say.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Judged {
    /// That of the turns, with what processes of one program differ by.
    pub verdict: Verdict,
    /// In turn.
    pub turns: Paired,
    /// How much processes of one program are taken to differ, a standard deviation as a share, where each side is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between_runs: Option<f64>,
    /// Each by itself, one after the other.
    pub apart: Option<Effect>,
    /// Whether both ways say the same; nothing where there is one alone.
    pub agree: Option<bool>,
    /// For each side, what its blocks take right behind the other's, over what they take behind its own.
    pub carried: [Option<Effect>; 2],
}

/// What a block says: the median time of its iterations; of a program with several slots, the median over rounds of the
/// mean time of an iteration. `None` without a whole round.
pub fn level(times: &[Nanos], slots: usize) -> Option<f64> {
    let times: Vec<f64> = times.iter().map(|time| time.0 as f64).collect();
    Summary::of(&slots::rounds(&times, slots)).map(|summary| summary.p50)
}

impl AbRecord {
    /// As JSON, indented.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("plain data is always JSON");
        text.push('\n');
        text
    }

    pub fn side(&self, side: AbSide) -> &SideRecord {
        match side {
            AbSide::A => &self.a,
            AbSide::B => &self.b,
        }
    }

    /// The levels of a side's blocks, in turn or by itself.
    pub fn levels(&self, side: AbSide, in_turn: bool) -> Vec<f64> {
        let period = self.side(side).period;
        let of = self.blocks.iter().filter(|block| block.side == side && block.round.is_some() == in_turn);
        of.filter_map(|block| level(&block.block.time_ns, period)).collect()
    }

    /// Works out what the blocks say, and what there is to doubt.
    pub fn judge(&mut self, threshold: f64) {
        self.result = self.judged(threshold);
        let doubts = self.doubts();
        self.warnings.extend(doubts);
    }

    fn judged(&self, threshold: f64) -> Option<Judged> {
        let turns = paired::paired(&self.levels(AbSide::A, true), &self.levels(AbSide::B, true), threshold, self.seed)?;
        let (a, b) = (self.levels(AbSide::A, false), self.levels(AbSide::B, false));
        let mut apart = Effect::of_values(&a, &b, Direction::LowerIsBetter, threshold);
        let agree = apart.as_ref().and_then(|apart| agree(&turns, apart));
        let carried = [AbSide::A, AbSide::B].map(|side| self.carried(side, threshold));
        let between_runs = self.between_runs();
        let verdict = between_runs.map_or(turns.verdict, |deviation| turns.verdict_of_processes(deviation));
        if let (Some(apart), Some(deviation)) = (&mut apart, between_runs) {
            let wider = apart.interval.map(|interval| effect::allow_for_runs(apart.ratio, interval, deviation));
            apart.verdict = effect::judge(apart.ratio, wider, Direction::LowerIsBetter, threshold);
        }
        Some(Judged { verdict, turns, between_runs, apart, agree, carried })
    }

    /// How much processes of one program are taken to differ; nothing where that is measured, or nothing is left to chance.
    fn between_runs(&self) -> Option<f64> {
        let sides = [&self.a, &self.b];
        let one_process = self.way == Way::Interleaved && !sides.iter().all(|side| side.run.simulated);
        let graphs = sides.iter().all(|side| side.launch == LaunchMode::Graph.name());
        one_process.then(|| effect::between_runs(graphs))
    }

    /// What a side's blocks take right behind the other's, in comparison with those behind its own.
    fn carried(&self, side: AbSide, threshold: f64) -> Option<Effect> {
        if self.way == Way::Fresh {
            return None;
        }
        let turns: Vec<&BlockRecord> = self.blocks.iter().filter(|block| block.round.is_some()).collect();
        let behind = |other: bool| -> Vec<f64> {
            let pairs = turns.windows(2).filter(|pair| pair[1].side == side && (pair[0].side != side) == other);
            pairs.filter_map(|pair| level(&pair[1].block.time_ns, self.side(side).period)).collect()
        };
        Effect::of_values(&behind(false), &behind(true), Direction::LowerIsBetter, threshold)
    }

    /// What a reader has to know before believing the result.
    fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        if let Some(judged) = &self.result {
            for (side, carried) in [AbSide::A, AbSide::B].into_iter().zip(&judged.carried) {
                let moved = carried.filter(|effect| matches!(effect.verdict, Verdict::Better | Verdict::Worse));
                doubts.extend(moved.map(|effect| {
                    format!(
                        "{} takes {:.1} % {} right behind the other side than behind itself: caches, clocks or power are \
                         carried over",
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
                    "{} drifted by {:+.1} % while the sides took turns; what is steady of it is gone from their difference",
                    side.name(),
                    100.0 * drift
                ));
            }
            let blocks = || self.blocks.iter().filter(move |block| block.side == side);
            let throttled: Vec<&String> = blocks().flat_map(|block| &block.block.throttled).collect();
            if let Some(why) = throttled.first() {
                let held = blocks().filter(|block| !block.block.throttled.is_empty()).count();
                doubts.push(format!("{} was throttled in {held} of {} blocks: {why}", side.name(), blocks().count()));
            }
            let (early, all) = blocks()
                .fold((0, 0), |(early, all), block| (early + block.block.ungated, all + block.block.time_ns.len()));
            if early > 0 {
                doubts.push(format!(
                    "{}: {early} of {all} iterations began before the host had issued them: their times contain the \
                     host's",
                    side.name()
                ));
            }
        }
        doubts
    }
}

/// Whether two ways say the same: they do not, where they lie further apart than the uncertainty of both explains, and than
/// matters.
fn agree(turns: &Paired, apart: &Effect) -> Option<bool> {
    let half = |(low, high): (f64, f64)| (high / low).ln() / 2.0;
    let uncertain = half(turns.interval?).hypot(half(apart.interval?));
    let between = (apart.ratio / turns.ratio).ln().abs();
    Some(between <= uncertain.max(turns.threshold.ln_1p()))
}
