//! Matches the cases of two sides by the values of their axes, not by their order in a file.
//!
//! First, cases whose values are all equal match. Then cases match that agree in every value that both have, if there
//! is only one choice: first among workloads with the same path, then among those with the same file name, such as a
//! bundle and the folder that it was made from. Finally the only case of a workload on each side matches, and
//! differences are reported. Other text under the same name is another version of a workload.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use indexmap::{IndexMap, IndexSet};

use crate::exec::LaunchMode;
use crate::measure::record::pace::Pace;
use crate::measure::statistics::effect;

use super::point::{CaseKey, ComparedRun, sorted};
use super::side::RunSet;
use super::{Difference, UnmatchedCase};

/// The runs of a matched case on both sides.
#[derive(Debug)]
pub struct MatchedCase<'a> {
    pub key: CaseKey,
    pub base: Vec<&'a ComparedRun>,
    pub other: Vec<&'a ComparedRun>,
    /// Differences between the keys.
    pub differs: Vec<Difference>,
}

/// Cases of two sides of a comparison: those that both have, and those of one side only.
#[derive(Debug, Default)]
pub struct MatchedSides<'a> {
    pub pairs: Vec<MatchedCase<'a>>,
    pub only_base: Vec<UnmatchedCase>,
    pub only_other: Vec<UnmatchedCase>,
    /// Names of the values that distinguish cases. Others are omitted from labels.
    pub names: BTreeSet<String>,
}

/// The runs of a case on one side.
#[derive(Debug)]
struct RunGroup<'a> {
    key: CaseKey,
    runs: Vec<&'a ComparedRun>,
    /// True once the group is matched with one of the other side.
    taken: bool,
}

/// True if two of the values are not equal.
pub(super) fn differ<T: PartialEq>(mut values: impl Iterator<Item = T>) -> bool {
    values.next().is_some_and(|first| values.any(|value| value != first))
}

impl MatchedCase<'_> {
    /// True if every run is simulated.
    pub fn is_simulated(&self) -> bool {
        self.points().all(|point| point.simulated)
    }

    /// The kind of times that all runs of the case have.
    pub fn pace(&self) -> Pace {
        Pace::of(self.points().map(|point| point.gated))
    }

    /// True if all runs observed operations in the same slot.
    pub fn is_one_slot(&self) -> bool {
        let observed = self.points().filter(|point| !point.operations.is_empty());
        !differ(observed.map(|point| point.slot))
    }

    /// Assumed standard deviation between runs of this case, as a share, if a side has only one run.
    pub fn between_runs(&self) -> f64 {
        let graph =
            |point: &ComparedRun| point.key.get("launch").is_some_and(|launch| launch == LaunchMode::Graph.name());
        effect::between_runs(self.points().all(graph))
    }

    /// True if both sides ran the same text, as far as known.
    pub fn is_same_text(&self) -> bool {
        !differ(self.points().filter_map(|point| point.sha256.as_ref()))
    }

    /// The runs of both sides.
    pub fn points(&self) -> impl Iterator<Item = &ComparedRun> {
        self.base.iter().chain(&self.other).copied()
    }
}

/// Matches the cases of two sides.
pub fn matched<'a>(base: &'a RunSet, other: &'a RunSet) -> MatchedSides<'a> {
    let split = places(&[base, other]);
    let mut bases = groups(base, &split);
    let mut others = groups(other, &split);
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    for is_same in [same_path, same_file] {
        for same in [same_key, same_case, agree] {
            unique(&mut bases, &mut others, |a, b| is_same(a, b) && same(a, b), &mut pairs);
        }
    }
    let (in_base, in_other) = (kinds(&bases), kinds(&others));
    let single = |a: &RunGroup, b: &RunGroup| {
        kind(a) == kind(b) && in_base.get(&kind(a)) == Some(&1) && in_other.get(&kind(b)) == Some(&1)
    };
    unique(&mut bases, &mut others, single, &mut pairs);
    pairs.sort_unstable();
    settle(&bases, &others, &pairs)
}

/// The workload's file name without its folder, and the launch mode.
type CaseGroupKind = (Option<String>, Option<String>);

fn kind(group: &RunGroup) -> CaseGroupKind {
    (file_name(group).map(str::to_owned), group.key.get("launch").cloned())
}

/// The workload's file name without its folder; `None` if the group has no workload.
fn file_name<'a>(group: &'a RunGroup) -> Option<&'a str> {
    group.key.get("workload")?.rsplit('/').next()
}

/// True if two groups have the same workload in the same folder.
fn same_path(a: &RunGroup, b: &RunGroup) -> bool {
    a.key.get("workload") == b.key.get("workload")
}

/// True if the workloads of two groups have the same name, in any folder, bundle or record.
fn same_file(a: &RunGroup, b: &RunGroup) -> bool {
    file_name(a) == file_name(b)
}

/// The values of a group without its workload.
fn values<'a>(group: &'a RunGroup) -> impl Iterator<Item = (&'a String, &'a String)> {
    group.key.iter().filter(|(name, _)| *name != "workload")
}

/// Counts the cases of each kind.
fn kinds(groups: &[RunGroup]) -> BTreeMap<CaseGroupKind, usize> {
    let mut counts = BTreeMap::new();
    groups.iter().for_each(|group| *counts.entry(kind(group)).or_default() += 1);
    counts
}

/// Properties that may distinguish cases of one side in addition to their keys.
const PLACES: [&str; 2] = ["backend", "device"];

fn place<'a>(point: &'a ComparedRun, name: &str) -> &'a String {
    if name == "backend" { &point.backend } else { &point.device }
}

/// The properties by which runs of a side differ in several values within one case.
fn places(sides: &[&RunSet]) -> Vec<&'static str> {
    let several = |side: &RunSet, name: &str| {
        let mut seen = BTreeMap::new();
        let mut measured = side.points.iter().filter(|point| point.failed.is_none());
        measured.any(|point| *seen.entry(sorted(&point.key)).or_insert(place(point, name)) != place(point, name))
    };
    PLACES.into_iter().filter(|name| sides.iter().any(|side| several(side, name))).collect()
}

/// Groups a side's runs by case: workloads in the order of appearance, cases of a workload by their values, since a
/// sweep's file has them in any order.
fn groups<'a>(side: &'a RunSet, split: &[&'static str]) -> Vec<RunGroup<'a>> {
    let mut groups: IndexMap<Vec<(String, String)>, RunGroup> = IndexMap::new();
    for point in &side.points {
        let mut key = point.key.clone();
        for name in split.iter().filter(|_| point.failed.is_none()) {
            key.insert((*name).to_owned(), place(point, name).clone());
        }
        let name: Vec<(String, String)> =
            sorted(&key).into_iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        groups.entry(name).or_insert(RunGroup { key, runs: Vec::new(), taken: false }).runs.push(point);
    }
    let mut groups: Vec<RunGroup> = groups.into_values().collect();
    let workloads: IndexSet<String> = groups.iter().map(workload).collect();
    groups.sort_by(|a, b| {
        let order_of = |group: &RunGroup| workloads.get_index_of(&workload(group));
        order_of(a).cmp(&order_of(b)).then_with(|| by_values(&a.key, &b.key))
    });
    groups
}

fn workload(group: &RunGroup) -> String {
    group.key.get("workload").cloned().unwrap_or_default()
}

/// Compares keys: numbers by value, other values as text. The launch mode does not affect the order.
fn by_values(a: &CaseKey, b: &CaseKey) -> Ordering {
    let values = a.iter().filter(|(name, _)| *name != "launch").filter_map(|(name, a)| Some((a, b.get(name)?)));
    let number = |text: &String| text.parse::<f64>().ok();
    let ordered = values.map(|(a, b)| match (number(a), number(b)) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        _ => a.cmp(b),
    });
    ordered.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

/// Pairs groups by a rule wherever it leaves no choice on either side.
fn unique(
    bases: &mut [RunGroup],
    others: &mut [RunGroup],
    same: impl Fn(&RunGroup, &RunGroup) -> bool,
    pairs: &mut Vec<(usize, usize)>,
) {
    let free = |groups: &[RunGroup]| -> Vec<usize> {
        (0..groups.len()).filter(|&index| !groups[index].taken && measured(&groups[index])).collect()
    };
    let mut choices: Vec<(usize, usize)> = Vec::new();
    for a in free(bases) {
        choices.extend(free(others).into_iter().filter(|&b| same(&bases[a], &others[b])).map(|b| (a, b)));
    }
    let (mut of_base, mut of_other) = (BTreeMap::<usize, usize>::new(), BTreeMap::<usize, usize>::new());
    for &(a, b) in &choices {
        *of_base.entry(a).or_default() += 1;
        *of_other.entry(b).or_default() += 1;
    }
    for (a, b) in choices.into_iter().filter(|(a, b)| of_base[a] == 1 && of_other[b] == 1) {
        (bases[a].taken, others[b].taken) = (true, true);
        pairs.push((a, b));
    }
}

/// True if all values of two groups are equal, except the workload's.
fn same_key(a: &RunGroup, b: &RunGroup) -> bool {
    a.key.len() == b.key.len() && values(a).all(|(name, value)| b.key.get(name) == Some(value))
}

fn same_case(a: &RunGroup, b: &RunGroup) -> bool {
    let name = |group: &RunGroup| group.runs.iter().find_map(|run| run.case.clone());
    name(a).is_some_and(|case| name(b) == Some(case)) && launch(a, b)
}

/// True if the launch modes of two groups are compatible.
fn launch(a: &RunGroup, b: &RunGroup) -> bool {
    a.key.get("launch").zip(b.key.get("launch")).is_none_or(|(a, b)| a == b)
}

/// True if all values that both groups have are equal, except the workload's.
fn agree(a: &RunGroup, b: &RunGroup) -> bool {
    let has_workload = a.key.contains_key("workload");
    has_workload && values(a).all(|(name, value)| b.key.get(name).is_none_or(|other| other == value))
}

fn settle<'a>(bases: &[RunGroup<'a>], others: &[RunGroup<'a>], pairs: &[(usize, usize)]) -> MatchedSides<'a> {
    let names = varying(bases.iter().chain(others));
    let case = |&(a, b): &(usize, usize)| {
        let (a, b) = (&bases[a], &others[b]);
        let mut case = MatchedCase {
            differs: differences(&a.key, &b.key),
            key: a.key.clone(),
            base: figures(a),
            other: figures(b),
        };
        // The same text is the same workload, even in another folder, bundle or record.
        if case.points().all(|point| point.sha256.is_some()) && case.is_same_text() {
            case.differs.retain(|difference| difference.what != "workload");
        }
        case
    };
    MatchedSides {
        pairs: pairs.iter().map(case).collect(),
        only_base: alone(bases, others, &names),
        only_other: alone(others, bases, &names),
        names,
    }
}

/// The cases of one side without a match, with their outcome on the other side. A case without results is reported only
/// if the other side has not tried it.
fn alone(own: &[RunGroup], others: &[RunGroup], names: &BTreeSet<String>) -> Vec<UnmatchedCase> {
    let failed = |group: &RunGroup| group.runs.iter().find_map(|run| run.failed.clone());
    let same = |a: &RunGroup, b: &RunGroup| same_file(a, b) && (same_case(a, b) || agree(a, b));
    let lone = |group: &RunGroup| {
        let why = match measured(group) {
            true => others.iter().filter(|other| !measured(other) && same(group, other)).find_map(failed),
            false if others.iter().any(|other| same(group, other)) => return None,
            false => failed(group),
        };
        Some(UnmatchedCase { case: label(&group.key, names), why })
    };
    own.iter().filter(|group| !group.taken).filter_map(lone).collect()
}

fn measured(group: &RunGroup) -> bool {
    group.runs.iter().any(|run| run.failed.is_none())
}

/// The runs of a group that have results.
fn figures<'a>(group: &RunGroup<'a>) -> Vec<&'a ComparedRun> {
    group.runs.iter().copied().filter(|run| run.failed.is_none()).collect()
}

fn differences(base: &CaseKey, other: &CaseKey) -> Vec<Difference> {
    let names = base.keys().chain(other.keys().filter(|name| !base.contains_key(*name)));
    let differing = names.filter(|name| base.get(*name) != other.get(*name));
    let difference = |name: &String| Difference {
        what: name.clone(),
        base: base.get(name).cloned(),
        other: other.get(name).cloned(),
    };
    differing.map(difference).collect()
}

/// The names whose values differ between cases.
fn varying<'a>(groups: impl Iterator<Item = &'a RunGroup<'a>>) -> BTreeSet<String> {
    let mut values: BTreeMap<&String, BTreeSet<&String>> = BTreeMap::new();
    for (name, value) in groups.flat_map(|group| &group.key) {
        values.entry(name).or_default().insert(value);
    }
    values.into_iter().filter(|(_, values)| values.len() > 1).map(|(name, _)| name.clone()).collect()
}

/// Label of a case: the workload, the values that distinguish it, and the launch mode, as in `moe streams=4, as a
/// graph`.
pub fn label(key: &CaseKey, names: &BTreeSet<String>) -> String {
    let mut label = key.get("workload").cloned().unwrap_or_default();
    let shown = key.iter().filter(|(name, _)| !matches!(name.as_str(), "workload" | "launch") && names.contains(*name));
    for (name, value) in shown {
        label += &format!(" {name}={value}");
    }
    match key.get("launch").map(String::as_str) {
        Some("graph") => label + ", as a graph",
        Some(_) => label + ", as streams",
        None => label,
    }
}
