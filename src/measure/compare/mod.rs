//! Two sets of runs beside each other, case by case: what differs, how sure that is, and whether it matters.
//!
//! Sides are made of records, files of cases, and results of AORTA's Python harness. Cases are matched by what they are
//! cases of, never by where they stand in a file. The result is plain data, from which every form is made.

mod doubts;
mod environment;
mod harness;
mod matching;
mod operations;
mod point;
mod rows;
mod side;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::effect::{Basis, Direction, Effect, Verdict};

pub use operations::plain_name;
pub use rows::Thresholds;
pub use side::RunSet;

/// The name and version of the schema.
pub const SCHEMA: &str = "aorta.compare/1";

/// How sides are compared.
#[derive(Clone, Debug)]
pub struct Options {
    pub thresholds: Thresholds,
    /// The metrics that are compared, by name or by what stands before its dot; all where there are none.
    pub metrics: Vec<String>,
    /// Which way is better, by the name of a metric, where its unit does not tell.
    pub better: IndexMap<String, Direction>,
    pub fail_on: Vec<FailOn>,
    /// How much runs of the same program differ, where each side has one: a standard deviation, as a share. By how they
    /// were launched, where nobody says.
    pub between_runs: Option<f64>,
    /// Operations are compared also where both sides ran on the same device.
    pub operations: bool,
}

/// What makes a comparison fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailOn {
    /// A metric is worse.
    Worse,
    /// Of a metric nothing can be said.
    CannotTell,
    /// The base has a case that a side lacks.
    Missing,
}

/// Each side beside the base.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Comparison {
    pub schema: String,
    /// The version of the program that compared.
    pub aorta: String,
    pub base: SideRecord,
    pub others: Vec<Against>,
    pub fail_on: Vec<FailOn>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SideRecord {
    /// As it was given.
    pub name: String,
    pub files: Vec<String>,
    pub cases: usize,
    /// Cases, each as often as it was run.
    pub runs: usize,
}

/// One side beside the base.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Against {
    pub side: SideRecord,
    /// What of machines and settings differs.
    pub environment: Vec<Difference>,
    pub pairs: Vec<Pair>,
    /// Cases that the base alone has figures of.
    pub only_base: Vec<Lone>,
    pub only_other: Vec<Lone>,
    /// What a reader has to know before believing a verdict.
    pub warnings: Vec<String>,
}

/// Something that is not the same on both sides; nothing where a side does not have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    pub what: String,
    pub base: Option<String>,
    pub other: Option<String>,
}

/// A case that has no counterpart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lone {
    pub case: String,
    /// What became of it on the other side, where that was tried; of its own, where it has no figures.
    pub why: Option<String>,
}

/// A case that both sides have.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pair {
    /// What tells it from other cases, in words.
    pub case: String,
    /// All that says which case it is, on the base's side.
    pub key: IndexMap<String, String>,
    /// How often it was run.
    pub base_runs: usize,
    pub other_runs: usize,
    /// What figures are: `measured`, `simulated`, `emulated`.
    pub base_figures: String,
    pub other_figures: String,
    /// Why no verdict is given, whatever the figures are.
    pub refused: Vec<String>,
    /// What makes a verdict doubtful.
    pub doubts: Vec<String>,
    pub rows: Vec<Row>,
    /// Operation by operation, where devices differ or it was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<OperationRow>,
}

/// A metric of a case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    pub metric: String,
    /// Of the values, SI: seconds, bytes, per second; empty for a plain number.
    pub unit: String,
    /// Nothing where nobody knows.
    pub better: Option<Direction>,
    pub base: f64,
    pub other: f64,
    /// Nothing where there is no ratio.
    pub effect: Option<Effect>,
    pub threshold: f64,
    pub verdict: Verdict,
    /// Why nothing can be said, in words.
    pub why: Option<String>,
}

/// Operations of one name, on both sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationRow {
    /// Without indices.
    pub name: String,
    pub operation: String,
    /// Where it stands in the file; empty where the sides ran different texts.
    pub place: String,
    pub count: usize,
    /// Seconds, of all of them one after the other, without waiting for other ranks.
    pub base: Option<f64>,
    pub other: Option<f64>,
    /// The part of a peak of its device that it reaches. `None` for a device that no profile describes.
    pub base_share: Option<f64>,
    pub other_share: Option<f64>,
    /// The resource of that peak: `memory`, `bf16`, … `None` where there is no share, and in files of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_bound: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_bound: Option<String>,
}

/// How many metrics have each verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub better: usize,
    pub same: usize,
    pub worse: usize,
    pub cannot_tell: usize,
}

/// Whether a metric is called so, or what stands before its dot is.
pub fn is_of(metric: &str, name: &str) -> bool {
    metric == name || metric.split_once('.').is_some_and(|(family, _)| family == name)
}

/// Compares each side with the base.
pub fn compare(base: &RunSet, others: &[RunSet], options: &Options) -> Comparison {
    Comparison {
        schema: SCHEMA.to_owned(),
        aorta: env!("CARGO_PKG_VERSION").to_owned(),
        base: base.record(),
        others: others.iter().map(|other| against(base, other, options)).collect(),
        fail_on: options.fail_on.clone(),
    }
}

fn against(base: &RunSet, other: &RunSet, options: &Options) -> Against {
    let matched = matching::matched(base, other);
    let pairs: Vec<Pair> = matched.pairs.iter().map(|twins| rows::pair(twins, &matched.names, options)).collect();
    let warnings = warnings(&pairs, &matched);
    Against {
        side: other.record(),
        environment: environment::differences(base, other),
        pairs,
        only_base: matched.only_base,
        only_other: matched.only_other,
        warnings,
    }
}

fn warnings(pairs: &[Pair], matched: &matching::Matched) -> Vec<String> {
    let rows = || pairs.iter().filter(|pair| pair.refused.is_empty()).flat_map(|pair| &pair.rows);
    let mut warnings = Vec::new();
    for basis in [Basis::Iterations, Basis::Single] {
        let measured = matched.pairs.iter().any(|twins| !twins.is_simulated());
        let of_basis = || rows().filter_map(|row| row.effect.filter(|effect| effect.basis == basis));
        warnings.extend(of_basis().find_map(|effect| effect.caution()).filter(|_| measured));
    }
    let intervals = rows().filter(|row| row.effect.is_some_and(|effect| effect.is_uncertain())).count();
    if intervals > MANY {
        let most = (0.05 * intervals as f64).ceil();
        warnings.push(format!(
            "{intervals} intervals are told: each misses the truth in up to 5 % of all comparisons, so that about {most} \
             of them may by chance; measure again what looks wrong",
        ));
    }
    warnings
}

/// Intervals from which on it is told that some are wrong by chance.
const MANY: usize = 20;

impl Comparison {
    /// Whether what was to make it fail is there.
    pub fn fails(&self) -> bool {
        self.others.iter().any(|against| {
            let rows = against.pairs.iter().flat_map(|pair| &pair.rows);
            rows.into_iter().any(|row| self.fails_on(row)) || (self.misses() && !against.only_base.is_empty())
        })
    }

    /// Whether a metric makes it fail.
    pub fn fails_on(&self, row: &Row) -> bool {
        match row.verdict {
            Verdict::Worse => self.fail_on.contains(&FailOn::Worse),
            Verdict::CannotTell => self.fail_on.contains(&FailOn::CannotTell),
            Verdict::Better | Verdict::Same => false,
        }
    }

    /// Whether a case that only the base has makes it fail.
    pub fn misses(&self) -> bool {
        self.fail_on.contains(&FailOn::Missing)
    }
}

impl Against {
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for row in self.pairs.iter().flat_map(|pair| &pair.rows) {
            let count = match row.verdict {
                Verdict::Better => &mut counts.better,
                Verdict::Same => &mut counts.same,
                Verdict::Worse => &mut counts.worse,
                Verdict::CannotTell => &mut counts.cannot_tell,
            };
            *count += 1;
        }
        counts
    }
}
