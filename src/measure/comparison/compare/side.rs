//! A side of a comparison: the runs that were given for it, from any number of files.

use std::collections::BTreeSet;

use rustc_hash::FxHashSet;

use crate::measure::RunRecord;
use crate::measure::comparison::cases::Cases;

use super::point::{self, ComparedRun};
use super::{SideSummary, harness};

/// The runs of one side.
#[derive(Clone, Debug)]
pub struct RunSet {
    name: String,
    files: Vec<String>,
    pub(super) points: Vec<ComparedRun>,
    /// Cases that partitioned sweeps and suites planned.
    planned: BTreeSet<String>,
}

impl RunSet {
    /// Returns an empty side; `name` as the user gave it.
    pub fn new(name: &str) -> RunSet {
        RunSet { name: name.to_owned(), files: Vec::new(), points: Vec::new(), planned: BTreeSet::new() }
    }

    /// Returns a side with the single run of a record.
    pub fn of_record(name: &str, record: &RunRecord) -> RunSet {
        RunSet { points: point::of_record(record), ..RunSet::new(name) }
    }

    /// Adds a record, a file of cases, or results of AORTA's Python harness. The error describes what is wrong with the
    /// file.
    pub fn add(&mut self, file: &str, text: &str) -> Result<(), String> {
        let points = if Cases::recognizes(text.as_bytes()) {
            self.of_cases(text)?
        } else if harness::recognizes(text) {
            harness::points(text)?
        } else {
            point::of_record(&RunRecord::from_json(text)?)
        };
        self.files.push(file.to_owned());
        self.points.extend(points);
        Ok(())
    }

    fn of_cases(&mut self, text: &str) -> Result<Vec<ComparedRun>, String> {
        let cases = Cases::parse(text.as_bytes())?.ok_or("it has no complete line yet")?;
        let header = &cases.header;
        self.planned.extend(header.cases.iter().cloned());
        Ok(cases.latest().into_iter().flat_map(|case| point::of_case(case, &header.axes, &header.name)).collect())
    }

    /// Names of cases that partitioned sweeps and suites planned, and that no file has.
    pub fn missing(&self) -> Vec<&str> {
        let known: FxHashSet<&str> = self.points.iter().filter_map(|point| point.case.as_deref()).collect();
        self.planned.iter().map(String::as_str).filter(|name| !known.contains(name)).collect()
    }

    /// True if no run has results.
    pub fn is_empty(&self) -> bool {
        self.points.iter().all(|point| point.failed.is_some())
    }

    /// Summary of the side for the record.
    pub(super) fn record(&self) -> SideSummary {
        let measured = || self.points.iter().filter(|point| point.failed.is_none());
        let cases: FxHashSet<Vec<(&String, &String)>> = measured().map(|point| point::sorted(&point.key)).collect();
        SideSummary { name: self.name.clone(), files: self.files.clone(), cases: cases.len(), runs: measured().count() }
    }
}
