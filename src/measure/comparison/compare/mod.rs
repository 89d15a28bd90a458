//! Compares two sets of runs case by case: how much metrics differ, how certain that is, and whether it matters.
//!
//! Sides consist of records, files of cases, and results of AORTA's Python harness. The result is plain data that every
//! report is made from.

mod differences;
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

use crate::measure::RunRecord;
use crate::measure::statistics::effect::{Basis, Direction, Effect, Verdict};

pub use rows::Thresholds;
pub use side::RunSet;

/// Name and version of the schema.
pub const SCHEMA: &str = "aorta.compare/1";

/// Options of a comparison.
#[derive(Clone, Debug, Default)]
pub struct CompareOptions {
    pub thresholds: Thresholds,
    /// Metrics to compare, by name or by the prefix before the dot. An empty list selects every metric.
    pub metrics: Vec<String>,
    /// Direction of metrics, by name, in place of the one that the unit implies.
    pub better: IndexMap<String, Direction>,
    pub fail_on: Vec<FailOn>,
    /// Standard deviation between runs of the same program, as a share, used if a side has only one run. `None` selects
    /// a default by launch mode.
    pub between_runs: Option<f64>,
    /// Compare operations even if both sides ran on the same device.
    pub operations: bool,
}

/// Condition under which a comparison fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailOn {
    /// A metric is worse.
    Worse,
    /// A metric has no verdict.
    CannotTell,
    /// A side lacks a case of the base.
    Missing,
}

/// The result of comparing each side with the base.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Comparison {
    pub schema: String,
    /// Version of aorta that compared.
    pub aorta: String,
    pub base: SideSummary,
    pub others: Vec<SideComparison>,
    pub fail_on: Vec<FailOn>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SideSummary {
    /// Name of the side as given.
    pub name: String,
    pub files: Vec<String>,
    pub cases: usize,
    /// Number of runs of all cases.
    pub runs: usize,
}

/// A side compared with the base.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SideComparison {
    pub side: SideSummary,
    /// Differences in machine and settings.
    pub environment: Vec<Difference>,
    pub pairs: Vec<CaseComparison>,
    /// Cases with results on the base side only.
    pub only_base: Vec<UnmatchedCase>,
    pub only_other: Vec<UnmatchedCase>,
    /// Warnings that a reader must know before trusting a verdict.
    pub warnings: Vec<String>,
}

/// A value that differs between the sides; `None` on a side that lacks it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    pub what: String,
    pub base: Option<String>,
    pub other: Option<String>,
}

/// A case without a match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnmatchedCase {
    pub case: String,
    /// Reason why there is no match: the outcome of the case on the other side if the case was tried there, or its outcome on this
    /// side if it has no results; otherwise `None`.
    pub why: Option<String>,
}

/// A case that both sides have.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CaseComparison {
    /// Label that distinguishes the case from others.
    pub case: String,
    /// Values that identify the case, from the base.
    pub key: IndexMap<String, String>,
    /// Number of runs.
    pub base_runs: usize,
    pub other_runs: usize,
    /// Kind of results: `measured`, `simulated`, `emulated`.
    pub base_figures: String,
    pub other_figures: String,
    /// Reasons that prevent a verdict.
    pub refused: Vec<String>,
    /// Reasons that make a verdict doubtful.
    pub doubts: Vec<String>,
    pub rows: Vec<MetricRow>,
    /// Operations, if devices differ or if it was requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<OperationRow>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MetricRow {
    pub metric: String,
    /// SI unit of the values: seconds, bytes, per second; `%`; empty for a plain number.
    pub unit: String,
    /// Direction in which the metric improves; `None` if it is unknown.
    pub better: Option<Direction>,
    /// Value of each side, in `unit`.
    pub base: f64,
    pub other: f64,
    /// The ratio with its interval; `None` if the values have no ratio.
    pub effect: Option<Effect>,
    /// Share above which a difference matters.
    pub threshold: f64,
    pub verdict: Verdict,
    /// Reason why there is no verdict, in words; `None` if there is one.
    pub why: Option<String>,
}

/// Operations of one name, on both sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationRow {
    /// Name without indices.
    pub name: String,
    pub operation: String,
    /// Source location; empty if the sides ran different texts.
    pub place: String,
    pub count: usize,
    /// Number of operations on the other side; `None` if it is the same, or if one side has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_count: Option<usize>,
    /// Sum of the operations' durations on the base's side in seconds, without waiting for other ranks; `None` if the side was
    /// not observed.
    pub base: Option<f64>,
    /// Sum of the operations' durations on the other side in seconds; `None` if the side was not observed.
    pub other: Option<f64>,
    /// Achieved share of the device's peak; `None` without a device profile.
    pub base_share: Option<f64>,
    pub other_share: Option<f64>,
    /// Resource whose peak `base_share` refers to: `memory`, `bf16`, … `None` without a share, and in files of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_bound: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_bound: Option<String>,
}

/// Number of metrics with each verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerdictCounts {
    pub better: usize,
    pub same: usize,
    pub worse: usize,
    pub cannot_tell: usize,
}

/// True if `name` is the metric's name or its prefix before the dot.
pub fn is_of(metric: &str, name: &str) -> bool {
    metric == name || metric.split_once('.').is_some_and(|(family, _)| family == name)
}

/// Compares each side with the base.
pub fn compare(base: &RunSet, others: &[RunSet], options: &CompareOptions) -> Comparison {
    Comparison {
        schema: SCHEMA.to_owned(),
        aorta: env!("CARGO_PKG_VERSION").to_owned(),
        base: base.record(),
        others: others.iter().map(|other| against(base, other, options)).collect(),
        fail_on: options.fail_on.clone(),
    }
}

/// Returns the differences between the machines and the settings of two runs.
pub fn environment(base: &RunRecord, other: &RunRecord) -> Vec<Difference> {
    let side = |record: &RunRecord| RunSet::of_record("", record);
    differences::between(&side(base), &side(other))
}

fn against(base: &RunSet, other: &RunSet, options: &CompareOptions) -> SideComparison {
    let matched = matching::matched(base, other);
    let pairs: Vec<CaseComparison> =
        matched.pairs.iter().map(|case| rows::pair(case, &matched.names, options)).collect();
    let warnings = warnings(&pairs, &matched);
    SideComparison {
        side: other.record(),
        environment: differences::between(base, other),
        pairs,
        only_base: matched.only_base,
        only_other: matched.only_other,
        warnings,
    }
}

fn warnings(pairs: &[CaseComparison], matched: &matching::MatchedSides) -> Vec<String> {
    let rows = || pairs.iter().filter(|pair| pair.refused.is_empty()).flat_map(|pair| &pair.rows);
    let mut warnings = Vec::new();
    for basis in [Basis::Iterations, Basis::Single] {
        let measured = matched.pairs.iter().any(|case| !case.is_simulated());
        let of_basis = || rows().filter_map(|row| row.effect.filter(|effect| effect.basis == basis));
        warnings.extend(of_basis().find_map(|effect| effect.caution()).filter(|_| measured));
    }
    let intervals = rows().filter(|row| row.effect.is_some_and(|effect| effect.is_uncertain())).count();
    if intervals > MANY {
        let most = (0.05 * intervals as f64).ceil();
        warnings.push(format!(
            "{intervals} intervals are shown: each misses the true value in up to 5 % of all comparisons, so about \
             {most} of them may miss it by chance; measure again where a result looks wrong",
        ));
    }
    warnings
}

/// Number of intervals above which the report mentions that some miss the truth by chance.
const MANY: usize = 20;

impl Comparison {
    /// True if the condition of [`FailOn`] holds.
    pub fn fails(&self) -> bool {
        self.others.iter().any(|against| {
            let rows = against.pairs.iter().flat_map(|pair| &pair.rows);
            rows.into_iter().any(|row| self.fails_on(row)) || (self.misses() && !against.only_base.is_empty())
        })
    }

    /// True if a metric meets the condition.
    pub fn fails_on(&self, row: &MetricRow) -> bool {
        match row.verdict {
            Verdict::Worse => self.fail_on.contains(&FailOn::Worse),
            Verdict::CannotTell => self.fail_on.contains(&FailOn::CannotTell),
            Verdict::Better | Verdict::Same => false,
        }
    }

    /// True if a missing case meets the condition.
    pub fn misses(&self) -> bool {
        self.fail_on.contains(&FailOn::Missing)
    }
}

impl SideComparison {
    /// Counts the metrics of all sides by verdict.
    pub fn counts(&self) -> VerdictCounts {
        let mut counts = VerdictCounts::default();
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
