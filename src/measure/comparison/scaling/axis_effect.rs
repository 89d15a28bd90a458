//! Determines whether an axis has an effect: on the executed program, or on its times.

use indexmap::IndexMap;

use super::point::{is_conclusive, slack};
use super::{CurvePoint, Interval};
use crate::measure::comparison::cases::{Axis, Case};
use crate::measure::record::RunRecord;
use crate::measure::record::pace::Pace;

/// Effect of an axis, with all other axes fixed, anywhere in the sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AxisEffect {
    /// No two cases are comparable, or their records cannot be compared: they are no measurements, have one sample, or are of
    /// an older version.
    Unknown,
    /// Neither the program nor, beyond noise, any time changed. The axis probably does not have the intended effect.
    None,
    /// The program is the same for all values, but times differ beyond noise.
    TimeOnly,
    /// The program differs, but no time beyond noise.
    ProgramOnly,
    /// The program and the times differ. `same` has groups of two or more values that run the same program and plan,
    /// whose times can differ by noise only.
    Both { same: Vec<Vec<String>> },
}

/// A measured case among those that differ along the axes only.
#[derive(Clone, Debug)]
struct AxisCase {
    /// Value of the case on each axis.
    value: String,
    program: String,
    /// Median with its interval, in seconds.
    time: Interval,
    simulated: bool,
}

impl AxisEffect {
    /// Computes the effect of `axes` on the cases of a sweep.
    pub fn of(axes: &[&Axis], cases: &[&Case], pace: Pace) -> AxisEffect {
        let mut groups: IndexMap<Vec<(String, String)>, Vec<AxisCase>> = IndexMap::new();
        for case in cases {
            let value = super::label(axes, case);
            if let (Some(point), Some(record)) = (CurvePoint::of(case, &value, pace), &case.record) {
                let Some(program) = program(record).filter(|_| is_conclusive(record, pace)) else {
                    return AxisEffect::Unknown;
                };
                let run = AxisCase { value, program, time: point.time, simulated: record.simulated };
                groups.entry(super::other_values(axes, case)).or_default().push(run);
            }
        }
        AxisEffect::between(&groups.into_values().filter(|group| group.len() > 1).collect::<Vec<_>>())
    }

    /// Effect between the values within groups; in each group only the axes differ.
    fn between(groups: &[Vec<AxisCase>]) -> AxisEffect {
        if groups.is_empty() {
            return AxisEffect::Unknown;
        }
        let one_program = |group: &Vec<AxisCase>| group.iter().all(|run| run.program == group[0].program);
        match (groups.iter().all(one_program), groups.iter().all(|group| one_time(group))) {
            (true, true) => AxisEffect::None,
            (true, false) => AxisEffect::TimeOnly,
            (false, true) => AxisEffect::ProgramOnly,
            (false, false) => AxisEffect::Both { same: same(groups) },
        }
    }
}

/// True if times agree within noise: no interval is further from another than processes differ.
fn one_time(group: &[AxisCase]) -> bool {
    let slack = slack(group.iter().all(|run| run.simulated));
    group.iter().all(|run| group.iter().all(|other| run.time.meets(&other.time, slack)))
}

/// Identity of a run: plan, launch modes, settings, device. `None` for a record without a plan's hash.
fn program(record: &RunRecord) -> Option<String> {
    let plan = record.program.plan.as_ref()?;
    let launches: Vec<&str> = record.variants.iter().map(|variant| variant.launch.as_str()).collect();
    let settings = &record.settings;
    let how = (&settings.backend, settings.ranks, record.emulated, &settings.sync, settings.depth);
    let conditions = (&settings.gate, &settings.cache, &settings.data, settings.in_flight);
    let device = (&record.device.name, record.device.index);
    serde_json::to_string(&(plan, launches, how, conditions, device)).ok()
}

/// Values that run the same program wherever they were measured.
fn same(groups: &[Vec<AxisCase>]) -> Vec<Vec<String>> {
    // Runs of each value, by group.
    let mut programs: IndexMap<&str, Vec<(usize, &str)>> = IndexMap::new();
    for (place, group) in groups.iter().enumerate() {
        for run in group {
            programs.entry(&run.value).or_default().push((place, &run.program));
        }
    }
    let mut values: IndexMap<Vec<(usize, &str)>, Vec<String>> = IndexMap::new();
    for (value, programs) in programs {
        values.entry(programs).or_default().push(value.to_owned());
    }
    values.into_values().filter(|values| values.len() > 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(value: &str, program: &str, low: f64, high: f64) -> AxisCase {
        AxisCase {
            value: value.to_owned(),
            program: program.to_owned(),
            time: Interval { value: low, low, high },
            simulated: true,
        }
    }

    #[test]
    fn axes_of_programs_and_of_times_are_distinguished() {
        let noise = vec![run("1", "p", 1.0, 1.2), run("2", "p", 1.1, 1.3), run("4", "p", 1.15, 1.4)];
        assert_eq!(AxisEffect::between(&[]), AxisEffect::Unknown);
        assert_eq!(AxisEffect::between(std::slice::from_ref(&noise)), AxisEffect::None);
        // The first and the last intervals do not overlap.
        let chain = vec![run("1", "p", 1.0, 1.2), run("2", "p", 1.1, 1.3), run("4", "p", 1.25, 1.4)];
        assert_eq!(AxisEffect::between(&[noise.clone(), chain]), AxisEffect::TimeOnly);
        // Medians of two processes always differ a little.
        let measured = |runs: &[AxisCase]| -> Vec<AxisCase> {
            runs.iter().map(|run| AxisCase { simulated: false, ..run.clone() }).collect()
        };
        let close = vec![run("1", "p", 1.0, 1.001), run("2", "p", 1.008, 1.009)];
        assert_eq!(AxisEffect::between(&[measured(&close)]), AxisEffect::None);
        assert_eq!(AxisEffect::between(&[close]), AxisEffect::TimeOnly);
        let other = vec![run("1", "p", 1.0, 1.2), run("2", "q", 1.1, 1.3)];
        assert_eq!(AxisEffect::between(&[noise, other]), AxisEffect::ProgramOnly);
    }

    #[test]
    fn values_are_the_same_where_they_are_everywhere() {
        let here =
            vec![run("1", "a", 4.0, 4.0), run("2", "b", 2.0, 2.0), run("4", "b", 2.0, 2.0), run("8", "b", 2.0, 2.0)];
        let there =
            vec![run("1", "c", 3.0, 3.0), run("2", "d", 1.0, 1.0), run("4", "d", 1.0, 1.0), run("8", "e", 1.0, 1.0)];
        let same = |groups: &[Vec<AxisCase>]| match AxisEffect::between(groups) {
            AxisEffect::Both { same } => same,
            other => panic!("{other:?}"),
        };
        assert_eq!(same(std::slice::from_ref(&here)), [["2", "4", "8"]]);
        assert_eq!(same(&[here, there]), [["2", "4"]]);
    }
}
