//! Suites: cases that belong together, each a workload with all options of its run.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::base::Bytes;
use crate::base::units::Dimension;
use crate::base::{suggest, visible};

use super::choices::{Effort, LaunchSetting};
use super::error::{ConfigError, bad_ron};
use super::quantity::{Quantity, Span};

/// Help on where all fields are explained.
const FIELDS: &str = "docs/suites.md lists the fields, and config/suites/p0.ron is a whole suite";

/// Maximum number of cases of a suite.
const MAX_CASES: usize = 1024;

/// The contents of a suite file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// A description in one line.
    #[serde(deserialize_with = "visible::read_line")]
    pub description: String,
    /// Default effort of the cases; `None` for the settings' default.
    #[serde(default)]
    pub effort: Option<Effort>,
    /// Default launch mode of the cases; `None` for the settings' default.
    #[serde(default)]
    pub launch: Option<LaunchSetting>,
    pub cases: Vec<SuiteCase>,
    /// The suite's name, or its file.
    #[serde(skip)]
    pub name: String,
}

/// A case, or several that differ in the number of streams.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SuiteCase {
    /// The case's name; `None` to derive it from the fields below.
    pub name: Option<String>,
    /// The name of a shipped workload, or a path relative to the suite.
    pub workload: String,
    pub preset: Option<String>,
    /// Values of parameters, as after `--set name=`.
    pub params: BTreeMap<String, String>,
    /// Numbers of streams, each a case of its own; empty for the file's own number.
    pub streams: Vec<u32>,
    pub ranks: Option<u32>,
    pub launch: Option<LaunchSetting>,
    pub effort: Option<Effort>,
    /// True to compare outputs with the CPU's, if the backend computes any.
    pub verify: bool,
    pub needs: Needs,
    /// Allowed ranges of metrics, or of `time` for the median of an iteration.
    pub limits: BTreeMap<String, Span>,
}

/// Requirements of a case. It is skipped on a machine without them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Needs {
    /// Minimum number of GPUs. The case runs on all that exist, or on as many simulated ones.
    pub gpus: Option<u32>,
    /// Minimum memory of each device.
    pub memory: Option<Quantity>,
}

impl Needs {
    pub fn memory(&self) -> Option<Bytes> {
        self.memory.map(|memory| Bytes(memory.value as u64))
    }
}

/// Suites embedded in the program.
static EMBEDDED: [(&str, &str); 10] = [
    ("P0", include_str!("../../config/suites/p0.ron")),
    ("P1", include_str!("../../config/suites/p1.ron")),
    ("P2", include_str!("../../config/suites/p2.ron")),
    ("P3", include_str!("../../config/suites/p3.ron")),
    ("smoke", include_str!("../../config/suites/smoke.ron")),
    ("latency", include_str!("../../config/suites/latency.ron")),
    ("copies", include_str!("../../config/suites/copies.ron")),
    ("collectives", include_str!("../../config/suites/collectives.ron")),
    ("training", include_str!("../../config/suites/training.ron")),
    ("inference", include_str!("../../config/suites/inference.ron")),
];

impl Suite {
    /// Parses a suite. `file` is its name in messages.
    pub fn parse(file: &str, text: &str) -> Result<Suite, ConfigError> {
        let options = ron::Options::default().with_default_extension(ron::extensions::Extensions::IMPLICIT_SOME);
        let mut suite: Suite = options.from_str(text).map_err(|error| bad_ron(file, &error, FIELDS))?;
        suite.name = file.to_owned();
        suite.check()?;
        Ok(suite)
    }

    /// Names of the embedded suites.
    pub fn names() -> impl Iterator<Item = &'static str> {
        EMBEDDED.iter().map(|(name, _)| *name)
    }

    /// The name and the text of an embedded suite; case does not matter.
    pub fn text(name: &str) -> Result<(&'static str, &'static str), ConfigError> {
        let found = EMBEDDED.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.copied().ok_or_else(|| ConfigError::UnknownSuite {
            name: name.to_owned(),
            help: suggest::nearest(name, Suite::names())
                .map(|near| format!("did you mean `{near}`?"))
                .or_else(|| Some("`aorta suite` lists them; a suite of your own is named by its path".to_owned())),
        })
    }

    /// Every case separately: one for each number of streams.
    pub fn expanded(&self) -> Vec<SuiteCase> {
        let mut cases = Vec::new();
        for case in &self.cases {
            let mut case = case.clone();
            case.effort = case.effort.or(self.effort);
            case.launch = case.launch.or(self.launch);
            let streams = std::mem::take(&mut case.streams);
            for one in streams.iter().map(|&one| vec![one]).chain(streams.is_empty().then(Vec::new)) {
                let mut case = SuiteCase { streams: one, ..case.clone() };
                case.name = Some(visible::one_line(&case.title()).into_owned());
                cases.push(case);
            }
        }
        cases
    }

    fn check(&self) -> Result<(), ConfigError> {
        // Counted before they are created, since a list of streams may be long.
        let count = self.cases.iter().map(|case| case.streams.len().max(1)).sum::<usize>();
        if !(1..=MAX_CASES).contains(&count) {
            let why = format!("a suite has 1 to {MAX_CASES} cases");
            return self.bad("cases".to_owned(), &count.to_string(), &why, "write `cases: [(workload: \"moe\")]`");
        }
        let mut titles = BTreeSet::new();
        for (number, case) in (1..).zip(&self.expanded()) {
            if case.workload.is_empty() {
                let name = format!("workload of case {number}");
                return self.bad(name, "absent", "a case names one", "write `workload: \"moe\"`");
            }
            let title = case.name.clone().unwrap_or_default();
            self.check_case(case, &format!("of case {number} ({title})"))?;
            if !titles.insert(title.clone()) {
                let name = format!("name of case {number}");
                let help = "give one of them a `name` of its own";
                return self.bad(name, &format!("{title:?}"), "another case is called so", help);
            }
        }
        Ok(())
    }

    fn check_case(&self, case: &SuiteCase, place: &str) -> Result<(), ConfigError> {
        let field = |field: &str| format!("{field} {place}");
        if case.workload.starts_with('-') {
            let help = "write the text to a file, and name that";
            return self.bad(field("workload"), &case.workload, "a case reads a file, or a shipped workload", help);
        }
        let counts =
            [("ranks", case.ranks), ("needs.gpus", case.needs.gpus), ("streams", case.streams.first().copied())];
        if let Some((name, _)) = counts.into_iter().find(|(_, count)| *count == Some(0)) {
            return self.bad(field(name), "0", "it is 1 at least", "leave it out where any number will do");
        }
        let memory = case.needs.memory;
        if let Some(memory) = memory.filter(|memory| memory.dimension != Dimension::BYTES || memory.value < 0.0) {
            let help = "write `needs: (memory: \"40GiB\")`";
            return self.bad(field("needs.memory"), &memory.to_string(), "it is no size in bytes", help);
        }
        for (metric, span) in &case.limits {
            let name = field(&format!("limits[{metric:?}]"));
            let help = "write `(to: \"5us\")`, or `from`, or both";
            match span.dimension() {
                Ok(Some(_)) => {}
                Ok(None) => return self.bad(name, "()", "it has neither a beginning nor an end", help),
                Err(why) => return self.bad(name, &span.to_string(), &why, "correct `from` or `to`"),
            }
        }
        Ok(())
    }

    fn bad(&self, name: String, value: &str, why: &str, help: &str) -> Result<(), ConfigError> {
        let (value, why, help) = (value.to_owned(), why.to_owned(), help.to_owned());
        Err(ConfigError::BadValue { name: format!("{name} in {}", self.name), value, why, help })
    }
}

impl SuiteCase {
    /// The case's name with the number of streams, or the fields that distinguish it from others.
    fn title(&self) -> String {
        if let (Some(name), []) = (&self.name, &self.streams[..]) {
            return name.clone();
        }
        let stem = self.workload.rsplit('/').next().unwrap_or(&self.workload);
        let stem = stem.strip_suffix(".aorta").unwrap_or(stem);
        let mut parts = vec![self.name.clone().unwrap_or_else(|| stem.to_owned())];
        if self.name.is_none() {
            parts.extend(self.preset.iter().map(|preset| format!("preset {preset}")));
            parts.extend(self.params.iter().map(|(name, value)| format!("{name}={value}")));
            parts.extend(self.ranks.map(|ranks| crate::base::counted(ranks as usize, "rank")));
        }
        parts.extend(self.streams.iter().map(|streams| crate::base::counted(*streams as usize, "stream")));
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_suites_are_good() {
        for name in Suite::names() {
            let (name, text) = Suite::text(name).unwrap();
            let suite = Suite::parse(name, text).unwrap_or_else(|error| panic!("{error}"));
            assert!(!suite.description.is_empty() && !suite.cases.is_empty(), "{name}");
        }
        assert_eq!(Suite::text("p0").unwrap().0, "P0");
    }

    #[test]
    fn streams_make_cases() {
        let text = r#"(description: "d", effort: quick, cases: [
            (workload: "moe", preset: "tiny", streams: [2, 4], launch: graph),
            (name: "mine", workload: "own/net.aorta", effort: full, streams: [1]),
            (workload: "own/net.aorta", ranks: 2, params: {"n": "3"}),
        ])"#;
        let cases = Suite::parse("a.ron", text).unwrap().expanded();
        let names: Vec<&str> = cases.iter().map(|case| case.name.as_deref().unwrap()).collect();
        assert_eq!(
            names,
            ["moe, preset tiny, 2 streams", "moe, preset tiny, 4 streams", "mine, 1 stream", "net, n=3, 2 ranks"]
        );
        assert_eq!((cases[0].effort, cases[2].effort), (Some(Effort::Quick), Some(Effort::Full)));
        assert_eq!(cases[1].streams, [4]);
    }
}
