//! KernelBench's problems: each a shipped workload with parameters, and the shape of its result.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::config::ron::ron_file;
use crate::config::{ConfigError, LaunchSetting};

use super::SuiteCase;

/// Folder of the workloads in the library.
const FOLDER: &str = "kernelbench";

/// A level: problems of one kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// A description in one line.
    pub description: String,
    /// Problems of the level, in the order of their numbers.
    pub problems: Vec<Problem>,
    /// Number of the level, from 1.
    #[serde(skip)]
    pub number: u32,
}

/// A problem of a level.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Problem {
    /// KernelBench's name, which begins with the problem's number: `19_ReLU.py`.
    pub name: String,
    /// Name of the shipped workload, without its folder.
    pub workload: String,
    /// Parameters that determine the computation.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// Parameters that determine the problem's size. The workload's `preset tiny` replaces them for runs that only check results.
    #[serde(default)]
    pub sizes: BTreeMap<String, String>,
    /// The shape of the result of KernelBench's module.
    pub output: Vec<u64>,
}

/// The levels embedded in the program.
const EMBEDDED: [&str; 2] =
    [include_str!("../../../config/kernelbench/level1.ron"), include_str!("../../../config/kernelbench/level2.ron")];

impl Level {
    /// Number of levels.
    pub const COUNT: u32 = EMBEDDED.len() as u32;

    /// The level of that number, from 1 to [`Level::COUNT`].
    pub fn of(number: u32) -> Result<Level, ConfigError> {
        let file = format!("config/kernelbench/level{number}.ron");
        let text = number.checked_sub(1).and_then(|index| EMBEDDED.get(index as usize)).copied().unwrap_or_default();
        let level: Level = ron_file::strict(ron_file::read(&file, text, "docs/baselines.md"))?;
        Ok(Level { number, ..level })
    }
}

/// The number at the beginning of a problem's name; `None` if it has none.
pub fn problem_number(name: &str) -> Option<u32> {
    name.split('_').next()?.parse().ok()
}

impl Problem {
    /// The number at the beginning of its name.
    pub fn number(&self) -> u32 {
        problem_number(&self.name).unwrap_or(0)
    }

    /// The workload's name in the library.
    pub fn file(&self) -> String {
        format!("{FOLDER}/{}", self.workload)
    }

    /// The case that runs it in its own size, launched in this way.
    pub fn case(&self, name: String, launch: LaunchSetting) -> SuiteCase {
        let params = self.set.iter().chain(&self.sizes);
        SuiteCase {
            name: Some(name),
            workload: self.file(),
            params: params.map(|(name, value)| (name.clone(), value.clone())).collect(),
            launch: Some(launch),
            ..SuiteCase::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_has_a_hundred_problems() {
        for number in 1..=Level::COUNT {
            let level = Level::of(number).unwrap_or_else(|error| panic!("{error}"));
            let numbers: Vec<u32> = level.problems.iter().map(Problem::number).collect();
            assert_eq!(numbers, (1..=100).collect::<Vec<u32>>());
            assert!(level.problems.iter().all(|problem| problem.name.ends_with(".py")));
        }
        assert!(Level::of(0).is_err() && Level::of(3).is_err());
    }
}
