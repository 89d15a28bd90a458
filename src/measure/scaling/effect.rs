//! Whether an axis changed anything: the program that ran, or its times.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use super::Point;
use crate::measure::cases::{Axis, Case};
use crate::measure::record::RunRecord;

/// What an axis changed, all other axes held, anywhere in the sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Fewer than two cases can be set beside each other.
    Unknown,
    /// Neither the program nor, beyond noise, a time: what should have changed did not.
    None,
    /// The program is the same for all values, and times differ beyond noise.
    TimeOnly,
    /// The program differs, and no time beyond noise.
    ProgramOnly,
    /// Both. With them, values that run the same program, in groups of two and more: between those nothing but noise
    /// can differ.
    Both { same: Vec<Vec<String>> },
}

impl Effect {
    pub fn of(axes: &[&Axis], cases: &[&Case]) -> Effect {
        // Cases that differ along these axes alone.
        let mut groups: BTreeMap<Vec<&str>, Vec<&Case>> = BTreeMap::new();
        let along = |name: &str| axes.iter().any(|axis| axis.name == name);
        for case in cases.iter().filter(|case| Point::of(case, "").is_some()) {
            let others = case.values.iter().filter(|(name, _)| !along(name)).map(|(_, value)| value.as_str());
            groups.entry(others.collect()).or_default().push(case);
        }
        groups.retain(|_, group| group.len() > 1);
        if groups.is_empty() {
            return Effect::Unknown;
        }
        let program = |case: &Case| case.record.as_ref().map(|record| program(record)).unwrap_or_default();
        let one_program = |group: &Vec<&Case>| group.iter().all(|case| program(case) == program(group[0]));
        match (groups.values().all(one_program), groups.values().all(|group| one_time(group))) {
            (true, true) => Effect::None,
            (true, false) => Effect::TimeOnly,
            (false, true) => Effect::ProgramOnly,
            (false, false) => Effect::Both { same: same(axes, &groups, program) },
        }
    }
}

/// Whether times are within their noise: any two intervals have a part in common.
fn one_time(group: &[&Case]) -> bool {
    let times: Vec<_> = group.iter().filter_map(|case| Point::of(case, "")).map(|point| point.time).collect();
    let low = times.iter().map(|time| time.low).fold(0.0, f64::max);
    times.iter().all(|time| low <= time.high)
}

/// What ran, as far as a record tells it: operations, work, streams with their queues, memory, and how it was run.
fn program(record: &RunRecord) -> String {
    let launches: Vec<&str> = record.variants.iter().map(|variant| variant.launch.as_str()).collect();
    let settings = &record.settings;
    let how = (&settings.backend, settings.ranks, record.emulated, &settings.sync, settings.depth);
    let conditions = (&settings.gate, &settings.cache, &settings.data, settings.in_flight);
    let device = (&record.device.name, record.device.index);
    serde_json::to_string(&(&record.program, launches, how, conditions, device)).unwrap_or_default()
}

/// Values that run the same program wherever both were measured.
fn same(
    axes: &[&Axis],
    groups: &BTreeMap<Vec<&str>, Vec<&Case>>,
    program: impl Fn(&Case) -> String,
) -> Vec<Vec<String>> {
    let mut programs: IndexMap<String, Vec<(usize, String)>> = IndexMap::new();
    for (place, group) in groups.values().enumerate() {
        for case in group {
            programs.entry(super::label(axes, case)).or_default().push((place, program(case)));
        }
    }
    let mut values: IndexMap<Vec<(usize, String)>, Vec<String>> = IndexMap::new();
    for (value, programs) in programs {
        values.entry(programs).or_default().push(value);
    }
    values.into_values().filter(|values| values.len() > 1).collect()
}
