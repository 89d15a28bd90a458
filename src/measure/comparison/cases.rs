//! The file of cases of a sweep or a suite.
//!
//! The file of cases has JSON lines: first a [`CasesHeader`], then one [`Case`] per line, appended when the case has ended. The file
//! is readable at any time; if the writer is killed, only the current case is missing.

mod merge;

use std::collections::HashMap;
use std::io::BufRead;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::base::named::named;
use crate::base::{json, shell};
use crate::config::SuiteTable;

use super::valid;
use crate::measure::record::{self, RunRecord};
use crate::measure::run::doubts;

pub use merge::Partition;

/// Name and version of the schema.
pub const SCHEMA: &str = "aorta.cases/1";

/// First bytes of every file.
const BEGINNING: &[u8] = b"{\"schema\":\"aorta.cases/";

const NO_HEADER: &str = "it does not begin with a line of JSON that names its schema";

/// The command that wrote the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CasesKind {
    #[default]
    Sweep,
    Suite,
}

/// The first line of the file: the properties that all cases share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CasesHeader {
    pub schema: String,
    pub kind: CasesKind,
    /// Version of aorta that created the file.
    pub aorta: String,
    /// Name of the workload or of the suite.
    pub name: String,
    /// SHA-256 of the text of the workload or suite, in hexadecimal.
    pub sha256: String,
    /// Start time, UTC, RFC 3339.
    pub started: String,
    /// Arguments for `aorta exec` that every case has.
    pub arguments: Vec<String>,
    /// Axes along which cases differ; empty for a suite.
    pub axes: Vec<Axis>,
    /// True if axes are combined value by value instead of as a product.
    #[serde(default)]
    pub zip: bool,
    /// The partition that the file has; `None` for all cases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<Partition>,
    /// Names of the cases of all partitions; empty without partitions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cases: Vec<String>,
    /// The table of a suite's page; `None` for a row per case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<SuiteTable>,
    /// The table that a suite writes as CSV; `None` for a row per case and launch mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csv: Option<SuiteTable>,
}

/// The name of a property of headers, and its value in words.
type Property<'a> = (&'static str, &'a dyn Fn(&CasesHeader) -> String);

/// The property of a header that tells whether its text was changed.
pub const TEXT_HASH: &str = "the SHA-256 of its text";

impl CasesHeader {
    /// Returns the header of a new file without axes.
    pub fn new(kind: CasesKind, name: &str, sha256: String, arguments: Vec<String>) -> CasesHeader {
        CasesHeader {
            schema: SCHEMA.to_owned(),
            kind,
            aorta: env!("CARGO_PKG_VERSION").to_owned(),
            name: name.to_owned(),
            sha256,
            started: jiff::Timestamp::now().to_string(),
            arguments,
            ..CasesHeader::default()
        }
    }

    /// The index of a case's value on each axis, for the order of the axes. Unknown values come last.
    fn place(&self, case: &Case) -> Vec<usize> {
        let index = |axis: &Axis| {
            let own = case.values.get(&axis.name);
            axis.values.iter().position(|value| Some(value) == own).unwrap_or(axis.values.len())
        };
        self.axes.iter().map(index).collect()
    }

    /// Returns the properties by which two files belong to different sweeps or suites, each with both values. The folder or
    /// the bundle of a text does not matter: its hash says that it is the same.
    pub fn differences(&self, other: &CasesHeader) -> Vec<(&'static str, String, String)> {
        let file = usize::from(self.kind == CasesKind::Sweep);
        let partition = |header: &CasesHeader| header.partition.map(|partition| partition.to_string());
        let zip = |header: &CasesHeader| if header.zip { "--zip" } else { "each with each" };
        let properties: [Property; 8] = [
            ("the kind of file", &|header| format!("{:?}", header.kind).to_lowercase()),
            ("the workload or suite", &|header| header.name.rsplit('/').next().unwrap_or_default().to_owned()),
            (TEXT_HASH, &|header| header.sha256.clone()),
            ("the version of aorta", &|header| header.aorta.clone()),
            ("the command", &|header| shell::command(header.arguments.iter().skip(file))),
            ("what varies", &|header| header.axes.iter().map(Axis::typed).collect::<Vec<_>>().join(" ")),
            ("the way through the axes", &|header| zip(header).to_owned()),
            ("the partition", &|header| partition(header).unwrap_or_else(|| "all cases".to_owned())),
        ];
        let both = properties.into_iter().map(|(what, of)| (what, of(self), of(other)));
        both.filter(|(_, own, other)| own != other).collect()
    }

    /// Keeps the cases of a partition, if one is given, and notes the names of all.
    pub fn divide<T>(&mut self, partition: Option<Partition>, cases: &mut Vec<T>, name: impl Fn(&T) -> &str) {
        let Some(partition) = partition else { return };
        self.partition = Some(partition);
        self.cases = cases.iter().map(|case| name(case).to_owned()).collect();
        let mut numbers = 0..;
        cases.retain(|_| numbers.next().is_some_and(|number| partition.has(number)));
    }
}

/// An axis of a sweep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    /// The option that the axis sets: `streams`, `ranks`, `launch`, `preset`, `set`, `env` or `config`.
    pub option: String,
    /// Name of the parameter, variable or setting; otherwise the option again.
    pub name: String,
    /// The distinct values of the axis, as given.
    pub values: Vec<String>,
}

/// Options with the value `NAME=VALUE`, where each name is an axis of its own.
pub const NAMED_OPTIONS: [&str; 3] = ["set", "env", "config"];

impl Axis {
    /// The argument of `aorta exec` that gives a case a value of the axis.
    pub fn argument(&self, value: &str) -> String {
        match NAMED_OPTIONS.contains(&self.option.as_str()) {
            true => format!("--{}={}={value}", self.option, self.name),
            false => format!("--{}={value}", self.option),
        }
    }

    /// The axis as the user types it.
    pub fn typed(&self) -> String {
        self.argument(&self.values.join(",")).replacen('=', " ", 1)
    }
}

named! {
    /// Outcome of a case, the best first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Status {
        Done = "done",
        /// Completed, but its times are too unsteady for conclusions.
        Unstable = "unstable",
        /// An expectation or the verification failed. The case has a record.
        #[serde(rename = "not held")]
        NotHeld = "not held",
        Failed = "failed",
        #[serde(rename = "out of memory")]
        OutOfMemory = "out of memory",
        /// Not run: its values do not give a valid program, or this machine has no backend for it.
        Skipped = "skipped",
        /// The suite names a workload that does not exist.
        Missing = "missing",
    }
}

impl Status {
    /// True if the case was measured completely, so that it has a record.
    pub fn is_measured(self) -> bool {
        matches!(self, Status::Done | Status::Unstable | Status::NotHeld)
    }
}

/// A completed case, one line of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Case {
    /// Unique name of the case within the file. Equal names in other files of the same kind denote the same case.
    pub name: String,
    /// The value that this case runs with on each axis, by the axis's name. In a suite, each entry has axes of its own.
    pub values: IndexMap<String, String>,
    pub status: Status,
    /// Reason of an outcome other than `Done`, otherwise `None`.
    pub reason: Option<String>,
    /// Wall-clock time of the case's process in seconds; 0 if none was started.
    pub seconds: f64,
    /// Record of the case; `None` unless it was measured.
    pub record: Option<Box<RunRecord>>,
}

impl Case {
    /// Returns a measured case. Its status follows from the record.
    pub fn measured(name: &str, values: &IndexMap<String, String>, seconds: f64, record: Box<RunRecord>) -> Case {
        let (status, reason) = match (broken(&record), doubts::unsteady(&record)) {
            (Some(reason), _) => (Status::NotHeld, Some(reason)),
            (None, Some(reason)) => (Status::Unstable, Some(reason)),
            (None, None) => (Status::Done, None),
        };
        Case { name: name.to_owned(), values: values.clone(), status, reason, seconds, record: Some(record) }
    }

    /// Returns a case without a record.
    pub fn without(
        name: &str,
        values: &IndexMap<String, String>,
        seconds: f64,
        status: Status,
        reason: String,
    ) -> Case {
        Case { name: name.to_owned(), values: values.clone(), status, reason: Some(reason), seconds, record: None }
    }

    /// Removes samples, operations and the trace, which tables do not need, so that thousands of cases fit into memory.
    pub fn light(mut self) -> Case {
        for variant in self.record.iter_mut().flat_map(|record| &mut record.variants) {
            for times in
                [Some(&mut variant.time), Some(&mut variant.issue), variant.ungated.as_mut(), variant.serial.as_mut()]
            {
                times.into_iter().for_each(|times| times.samples_ns = Vec::new());
            }
            for rank in &mut variant.ranks {
                rank.time.samples_ns = Vec::new();
                rank.operations = Vec::new();
                rank.trace = Vec::new();
                rank.origins = Vec::new();
                rank.collectives = Vec::new();
            }
        }
        self
    }
}

/// Describes the expectations and verifications of a record that failed; `None` if all passed.
fn broken(record: &RunRecord) -> Option<String> {
    if record.verification.as_ref().is_some_and(|verification| !verification.held) {
        return Some("the results differ from those of the CPU".to_owned());
    }
    let mut expectations = record.variants.iter().flat_map(|variant| &variant.expectations);
    let failed = expectations.find(|expectation| expectation.verdict == "failed")?;
    Some(match &failed.why {
        Some(why) => format!("{}: no value, since {why}", failed.text),
        None => failed.text.clone(),
    })
}

/// The contents of a file of cases.
#[derive(Clone, Debug)]
pub struct Cases {
    pub header: CasesHeader,
    /// Cases in the order of the file.
    pub cases: Vec<Case>,
    /// Bytes of all complete lines. Anything after them is an incomplete line.
    pub whole: usize,
    /// True if the last line was incomplete and was ignored.
    pub torn: bool,
}

impl Cases {
    /// True if a text begins like a file of cases.
    pub fn recognizes(bytes: &[u8]) -> bool {
        let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        serde_json::from_slice::<CasesHead>(first).is_ok_and(|head| head.schema.starts_with("aorta.cases/"))
    }

    /// Parses a file; `None` if it has no complete line yet. The error describes the problem and its line.
    pub fn parse(bytes: &[u8]) -> Result<Option<Cases>, String> {
        Cases::read(bytes, |case| case)
    }

    /// Parses a file as [`Cases::parse`] does, from a reader of any size. `keep` may drop parts of a case that are not
    /// needed. `None` if there is no complete line yet.
    pub fn read(mut from: impl BufRead, keep: impl Fn(Case) -> Case) -> Result<Option<Cases>, String> {
        let mut line = Vec::new();
        let mut next = |line: &mut Vec<u8>| {
            line.clear();
            from.read_until(b'\n', line).map_err(|why| why.to_string())?;
            Ok::<bool, String>(line.ends_with(b"\n"))
        };
        if !next(&mut line)? {
            // An interrupted run leaves part of a header. Another program wrote any other content.
            let same = line.iter().zip(BEGINNING).all(|(a, b)| a == b);
            return if same { Ok(None) } else { Err(NO_HEADER.to_owned()) };
        }
        let header = header(&line)?;
        let mut read = Cases { header, cases: Vec::new(), whole: line.len(), torn: false };
        // Lines of measured runs by digest, to find duplicates.
        let mut measured = HashMap::new();
        for number in 2.. {
            if !next(&mut line)? {
                break;
            }
            let case: Case = json::read(&line).map_err(|why| damaged(number, &why))?;
            if let Some(record) = case.record.as_ref().filter(|record| record.schema != record::SCHEMA) {
                let (other, own) = (&record.schema, record::SCHEMA);
                return Err(format!(
                    "line {number} has a record of the schema `{other}`, and this version reads `{own}`"
                ));
            }
            if let Some(Err(why)) = case.record.as_deref().map(valid::check) {
                return Err(format!("line {number} is damaged: in `record`, {why}"));
            }
            if case.record.is_some()
                && let Some(first) = measured.insert(Sha256::digest(&line), number)
            {
                return Err(format!("line {number} repeats line {first}: no run is measured twice to the nanosecond"));
            }
            read.whole += line.len();
            read.cases.push(keep(case));
        }
        read.torn = !line.is_empty();
        Ok(Some(read))
    }

    /// The last case of each name: a repeated case has several lines. The cases of a sweep, which run in a random order,
    /// are in the order of its axes; others in the order of first appearance.
    pub fn latest(&self) -> Vec<&Case> {
        let mut latest: IndexMap<&str, &Case> = IndexMap::new();
        for case in &self.cases {
            latest.insert(&case.name, case);
        }
        let mut cases: Vec<&Case> = latest.into_values().collect();
        cases.sort_by_cached_key(|case| self.header.place(case));
        cases
    }
}

fn header(line: &[u8]) -> Result<CasesHeader, String> {
    let head: CasesHead = json::read(line).map_err(|_| NO_HEADER)?;
    if head.schema != SCHEMA {
        return Err(format!("it has the schema `{}`, and this version reads `{SCHEMA}`", head.schema));
    }
    json::read(line).map_err(|why| damaged(1, &why))
}

fn damaged(line: usize, why: &serde_json::Error) -> String {
    format!("line {line} is damaged: {}", json::why(why))
}

/// The field that identifies a file of cases.
#[derive(Deserialize)]
struct CasesHead {
    schema: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::json::line;

    fn header() -> CasesHeader {
        let axis = Axis { option: "streams".into(), name: "streams".into(), values: vec!["1".into(), "2".into()] };
        let header = CasesHeader::new(CasesKind::Sweep, "moe", "00".to_owned(), vec!["moe".to_owned()]);
        CasesHeader { started: "2026-01-01T00:00:00Z".to_owned(), axes: vec![axis], ..header }
    }

    fn failed(streams: &str, reason: &str) -> Case {
        let values = IndexMap::from([("streams".to_owned(), streams.to_owned())]);
        Case::without(&format!("streams={streams}"), &values, 0.5, Status::OutOfMemory, reason.to_owned())
    }

    #[test]
    fn written_cases_are_read_back() {
        let text = line(&header()) + &line(&failed("2", "b")) + &line(&failed("1", "a")) + &line(&failed("1", "c"));
        let read = Cases::parse(text.as_bytes()).unwrap().unwrap();
        assert_eq!((&read.header, read.whole, read.torn), (&header(), text.len(), false));
        let latest: Vec<_> = read.latest().iter().map(|case| case.reason.clone().unwrap()).collect();
        assert_eq!(latest, ["c", "b"]);
        assert!(text.contains(r#""status":"out of memory""#), "{text}");
        assert!(Cases::recognizes(text.as_bytes()));
    }

    #[test]
    fn a_truncated_file_keeps_all_complete_cases() {
        let lines = [line(&header()), line(&failed("1", "α")), line(&failed("2", "β"))];
        let text = lines.concat();
        for cut in 0..=text.len() {
            let read = Cases::parse(&text.as_bytes()[..cut]).unwrap();
            let ends = [lines[0].len(), lines[0].len() + lines[1].len(), text.len()];
            match ends.iter().filter(|end| **end <= cut).count() {
                0 => assert!(read.is_none()),
                whole => {
                    let read = read.unwrap();
                    assert_eq!((read.cases.len(), read.whole), (whole - 1, ends[whole - 1]));
                    assert_eq!(read.torn, !ends.contains(&cut));
                }
            }
        }
    }

    #[test]
    fn other_files_are_rejected() {
        let wrong = |text: &str| Cases::parse(text.as_bytes()).unwrap_err();
        assert!(wrong("hello\n").starts_with("it does not begin"));
        assert!(wrong("hello").starts_with("it does not begin"));
        assert!(wrong("{\"schema\":\"aorta.cases/9\"}\n").contains("this version reads `aorta.cases/1`"));
        assert!(wrong(&(line(&header()) + "{}\n")).starts_with("line 2 is damaged: missing field"));
        assert!(!Cases::recognizes(b"{\"schema\":\"aorta.run/1\"}"));
    }
}
