//! Suites: cases that belong together, each a workload with all options of its run.

pub(super) mod kernelbench;
pub(super) mod table;

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;
use serde::Deserialize;

use crate::base::Bytes;
use crate::base::units::Dimension;
use crate::base::{suggest, visible};

use super::ron::ron_file;
use super::values::words;
use super::{ConfigError, Effort, LaunchSetting, Mistakes, Quantity, QuantityRange, RonKind, check_setting};
use table::{SuiteTable, TableMistake};

/// Help on where all fields are explained.
const FIELDS: &str = "docs/suites.md lists the fields, and config/suites/p0.ron is a whole suite";

/// Maximum number of cases of a suite.
const MAX_CASES: usize = 1024;

/// The contents of a suite file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuiteFile {
    /// A description in one line.
    #[serde(deserialize_with = "visible::read_line", default)]
    pub description: String,
    /// Default effort of the cases; `None` for the settings' default.
    pub effort: Option<Effort>,
    /// Default launch mode of the cases; `None` for the settings' default.
    pub launch: Option<LaunchSetting>,
    #[serde(default)]
    pub cases: Vec<SuiteCase>,
    /// The table of the suite's page; `None` for a row per case.
    pub table: Option<SuiteTable>,
    /// The table that `--csv` writes; `None` for a row per case and launch mode.
    pub csv: Option<SuiteTable>,
    /// The suite's name, or its file.
    #[serde(skip)]
    pub name: String,
}

/// A case, or several that differ in the number of streams or along axes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SuiteCase {
    /// The case's name; `None` to derive it from the fields below.
    pub name: Option<String>,
    /// The name of a shipped workload, or a path relative to the suite.
    pub workload: String,
    pub preset: Option<String>,
    /// Values of parameters, as after `--set name=`.
    #[serde(deserialize_with = "words::by_name")]
    pub params: BTreeMap<String, String>,
    /// Numbers of streams, each a case of its own; empty for the file's own number.
    pub streams: Vec<u32>,
    /// Axes: each combination of their values is a case of its own, the last axis running fastest.
    pub axes: Vec<SuiteAxis>,
    pub ranks: Option<u32>,
    pub launch: Option<LaunchSetting>,
    pub effort: Option<Effort>,
    /// Values of settings, as after `--config name=`.
    #[serde(deserialize_with = "words::by_name")]
    pub settings: BTreeMap<String, String>,
    /// True to merge chains of operations into one kernel each.
    pub fuse: bool,
    /// True to compare outputs with the CPU's, if the backend computes any.
    pub verify: bool,
    pub needs: Needs,
    /// Allowed ranges of metrics, or of `time` for the median of an iteration.
    #[serde(deserialize_with = "words::ranges_by_name")]
    pub limits: BTreeMap<String, QuantityRange>,
    /// The value on each axis; empty until the case is expanded, and without axes.
    #[serde(skip)]
    pub values: IndexMap<String, String>,
    /// Index in the suite's `cases` of the case that it was expanded from.
    #[serde(skip)]
    pub declared: usize,
}

/// An axis along which a case is repeated: values of a parameter, or cases that differ in any field.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SuiteAxis {
    /// Name of the axis, by which the names of cases and the columns of tables refer to it.
    pub name: String,
    /// The parameter that takes the values; `None` if `cases` defines the values.
    pub param: Option<String>,
    /// Values of the parameter.
    #[serde(deserialize_with = "words::list")]
    pub values: Vec<String>,
    /// For each value the fields that it changes.
    pub cases: IndexMap<String, SuiteCase>,
}

impl SuiteAxis {
    /// Number of values.
    fn len(&self) -> usize {
        self.values.len() + self.cases.len()
    }

    /// Returns a message, the name of the first invalid field, its value and the reason; `None` if the axis is valid.
    fn mistake(&self) -> Option<(String, &'static str, String, &'static str)> {
        let field = |field: &'static str| (format!("{field} of the axis {:?}", self.name), field);
        let mistake =
            |(name, field): (String, &'static str), value: &str, why| Some((name, field, value.to_owned(), why));
        if self.name.is_empty() {
            return mistake(("name of an axis".to_owned(), "name"), "absent", "tables refer to it by its name");
        }
        if self.len() == 0 {
            return mistake(field("values"), "[]", "an axis has one value at least");
        }
        if self.cases.values().any(|case| !case.axes.is_empty() || case.streams.len() > 1) {
            return mistake(field("cases"), "several", "each value of an axis stands for one case");
        }
        let why = "a parameter and its `values` come together";
        match (self.param.is_some(), self.values.is_empty()) {
            (false, false) => mistake(field("param"), "absent", why),
            (true, true) => mistake(field("values"), "absent", why),
            _ => None,
        }
    }

    /// The case at each value of the axis.
    fn along(&self, case: &SuiteCase) -> Vec<SuiteCase> {
        let of_param = |value: &String| {
            let params = self.param.iter().map(|param| (param.clone(), value.clone())).collect();
            (value.clone(), SuiteCase { params, ..SuiteCase::default() })
        };
        let changes = self.values.iter().map(of_param).chain(self.cases.clone());
        let along = |(value, change): (String, SuiteCase)| {
            let mut case = change.over(case);
            case.values.insert(self.name.clone(), value);
            case
        };
        changes.map(along).collect()
    }
}

/// Requirements of a case. It is skipped on a machine without them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Needs {
    /// Minimum number of GPUs; `None` for any number. The case runs on all that exist, or on as many simulated ones.
    pub gpus: Option<u32>,
    /// Minimum memory of each device; `None` for any.
    pub memory: Option<Quantity>,
}

impl Needs {
    /// Returns the device memory that a case needs; `None` if the suite does not state it.
    pub fn memory(&self) -> Option<Bytes> {
        self.memory.as_ref().map(|memory| Bytes(memory.value as u64))
    }
}

/// Suites embedded in the program.
static EMBEDDED: [(&str, &str); 13] = [
    ("P0", include_str!("../../../config/suites/p0.ron")),
    ("P1", include_str!("../../../config/suites/p1.ron")),
    ("P2", include_str!("../../../config/suites/p2.ron")),
    ("P3", include_str!("../../../config/suites/p3.ron")),
    ("all", include_str!("../../../config/suites/all.ron")),
    ("smoke", include_str!("../../../config/suites/smoke.ron")),
    ("latency", include_str!("../../../config/suites/latency.ron")),
    ("copies", include_str!("../../../config/suites/copies.ron")),
    ("collectives", include_str!("../../../config/suites/collectives.ron")),
    ("training", include_str!("../../../config/suites/training.ron")),
    ("inference", include_str!("../../../config/suites/inference.ron")),
    ("attention-sweep", include_str!("../../../config/suites/attention-sweep.ron")),
    ("transformer-sweep", include_str!("../../../config/suites/transformer-sweep.ron")),
];

impl SuiteFile {
    /// Parses a suite. `file` is its name in messages.
    pub fn parse(file: &str, text: &str) -> Result<SuiteFile, ConfigError> {
        ron_file::strict(SuiteFile::read(file, text))
    }

    /// Reads a suite, without the fields that cannot be read, and all its mistakes. `None` if its text has no form.
    /// `file` is its name in messages.
    pub fn read(file: &str, text: &str) -> (Option<SuiteFile>, Mistakes) {
        let (mut suite, mut mistakes) = ron_file::read::<SuiteFile>(file, text, FIELDS);
        if let Some(suite) = &mut suite {
            suite.name = file.to_owned();
            suite.check(&mut mistakes);
        }
        (suite, mistakes)
    }

    /// True if a RON text has the fields of a suite.
    pub fn recognizes(text: &str) -> bool {
        RonKind::of(text) == RonKind::Suite
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
            help: (name.ends_with(".aorta").then(|| format!("it is a workload: `aorta exec {name}` runs it")))
                .or_else(|| suggest::nearest(name, SuiteFile::names()).map(|near| format!("did you mean `{near}`?")))
                .or_else(|| Some("`aorta suite` lists them; a suite of your own is named by its path".to_owned())),
        })
    }

    /// Every case separately: one for each combination of values of its axes, and for each number of streams.
    pub fn expanded(&self) -> Vec<SuiteCase> {
        let numbered = self.cases.iter().enumerate();
        let expanded =
            |(declared, case)| self.expanded_case(case).into_iter().map(move |case| SuiteCase { declared, ..case });
        numbered.flat_map(expanded).collect()
    }

    /// The cases that a declared case expands to.
    fn expanded_case(&self, case: &SuiteCase) -> Vec<SuiteCase> {
        let mut cases = Vec::new();
        let mut case = case.clone();
        case.effort = case.effort.or(self.effort);
        case.launch = case.launch.or(self.launch);
        let axes = std::mem::take(&mut case.axes);
        let along = |all: Vec<SuiteCase>, axis: &SuiteAxis| all.iter().flat_map(|case| axis.along(case)).collect();
        for mut case in axes.iter().fold(vec![case], along) {
            let streams = std::mem::take(&mut case.streams);
            for one in streams.iter().map(|&one| vec![one]).chain(streams.is_empty().then(Vec::new)) {
                let mut case = SuiteCase { streams: one, ..case.clone() };
                case.name = Some(visible::one_line(&case.title()).into_owned());
                cases.push(case);
            }
        }
        cases
    }

    /// Reports values that a case cannot have. Skips cases whose axes are invalid.
    fn check(&self, mistakes: &mut Mistakes) {
        let example = "write `(name: \"n\", param: \"n\", values: [\"1\", \"2\"])`";
        if !mistakes.has(&["description"]) {
            let help = "write `description: \"…\"`, a line for people".to_owned();
            mistakes.add(
                &["description"],
                ConfigError::BadRon { message: "the field `description` is missing".to_owned(), help },
            );
        }
        let mut is_expandable = true;
        for (case, index) in self.cases.iter().zip(0usize..) {
            let index = index.to_string();
            for (axis, number) in case.axes.iter().zip(0usize..) {
                let Some((name, field, value, why)) = axis.mistake() else { continue };
                let path = ["cases", &index, "axes", &number.to_string(), field];
                mistakes.add(&path, bad_value(name, &value, why, example));
                is_expandable = false;
            }
            let names: BTreeSet<&str> = case.axes.iter().map(|axis| axis.name.as_str()).collect();
            if names.len() < case.axes.len() {
                let why = "each axis of a case has a name of its own";
                let error = bad_value("axes".to_owned(), &format!("{names:?}"), why, "rename one of them");
                mistakes.add(&["cases", &index, "axes"], error);
                is_expandable = false;
            }
        }
        // Counted before they are created, since a list of streams may be long.
        let lengths = |case: &SuiteCase| {
            case.axes.iter().map(SuiteAxis::len).fold(case.streams.len().max(1), usize::saturating_mul)
        };
        let count = self.cases.iter().map(lengths).fold(0, usize::saturating_add);
        if !(1..=MAX_CASES).contains(&count) {
            let why = format!("a suite has 1 to {MAX_CASES} cases");
            let help = "write `cases: [(workload: \"moe\")]`";
            mistakes.add(&["cases"], bad_value("cases".to_owned(), &count.to_string(), &why, help));
            is_expandable = false;
        }
        if !is_expandable {
            return;
        }
        let mut titles = BTreeSet::new();
        // Paths of the values that have been reported: several cases may share one.
        let mut reported = BTreeSet::new();
        for (case, number) in self.expanded().iter().zip(1usize..) {
            let title = case.name.clone().unwrap_or_default();
            for (field, error) in self.wrong_values(case, &format!("of case {number} ({title})")) {
                let path = self.path(case, &field, mistakes);
                if reported.insert(path.clone()) {
                    mistakes.add(&path.iter().map(String::as_str).collect::<Vec<_>>(), error);
                }
            }
            // A name may be incomplete if a part of it could not be read.
            if !titles.insert(title.clone()) && mistakes.count() == 0 {
                let help = "give one of them a `name` of its own";
                let name = format!("name of case {number}");
                let error = bad_value(name, &format!("{title:?}"), "another case is called so", help);
                mistakes.add(&["cases", &case.declared.to_string(), "name"], error);
            }
        }
        let cases: Vec<_> = self.expanded().into_iter().map(|case| case.values).collect();
        for (field, table) in [("table", &self.table), ("csv", &self.csv)] {
            if let Some(Err(mistake)) = table.as_ref().map(|table| table.check(&cases)) {
                let TableMistake { place, value, why, help } = mistake;
                mistakes.add(&[field], bad_value(format!("{place} of {field}"), &value, &why, &help));
            }
        }
    }

    /// The wrong values of an expanded case, each with the names that lead to it within the case.
    fn wrong_values<'c>(&self, case: &'c SuiteCase, place: &str) -> Vec<(Vec<&'c str>, ConfigError)> {
        let mut wrong = Vec::new();
        let named = |field: &str| format!("{field} {place}");
        if case.workload.is_empty() {
            let error = bad_value(named("workload"), "absent", "a case names one", "write `workload: \"moe\"`");
            wrong.push((vec!["workload"], error));
        }
        if case.workload.starts_with('-') {
            let help = "write the text to a file, and name that file";
            let error =
                bad_value(named("workload"), &case.workload, "a case reads a file, or a shipped workload", help);
            wrong.push((vec!["workload"], error));
        }
        let counts =
            [("ranks", case.ranks), ("needs.gpus", case.needs.gpus), ("streams", case.streams.first().copied())];
        for (name, _) in counts.into_iter().filter(|(_, count)| *count == Some(0)) {
            let error = bad_value(named(name), "0", "it is 1 at least", "leave it out where any number will do");
            wrong.push((name.split('.').collect(), error));
        }
        let memory = case.needs.memory.as_ref();
        if let Some(memory) = memory.filter(|memory| memory.dimension != Dimension::BYTES || memory.value < 0.0) {
            let help = "write `needs: (memory: \"40GiB\")`";
            let error = bad_value(named("needs.memory"), &memory.to_string(), "it is no size in bytes", help);
            wrong.push((vec!["needs", "memory"], error));
        }
        // Another bracket chooses an element: `[1, 2][n]`.
        let is_list = |value: &str| value.starts_with('[') && value.ends_with(']') && value.matches('[').count() == 1;
        for (name, value) in case.params.iter().filter(|(_, value)| is_list(value)) {
            let axis = format!("axes: [(name: {name:?}, param: {name:?}, values: {value})]");
            let help = format!("write an axis in its place: `{axis}`");
            let what = named(&format!("params[{name:?}]"));
            let error = bad_value(what, value, "it is a list, and a case has one value", &help);
            wrong.push((vec!["params", name], error));
        }
        for (name, value) in &case.settings {
            let error = check_setting(&self.name, name, value).err();
            wrong.extend(error.map(|error| (vec!["settings", name], error)));
        }
        for (metric, span) in &case.limits {
            let error = span.check(&named(&format!("limits[{metric:?}]")), metric == "time").err();
            wrong.extend(error.map(|error| (vec!["limits", metric], error)));
        }
        wrong
    }

    /// Paths at which a field of an expanded case can stand, the one that takes precedence first.
    pub fn paths(&self, case: &SuiteCase, field: &[&str]) -> Vec<Vec<String>> {
        let declared = case.declared.to_string();
        let within = |names: &[&str]| -> Vec<String> {
            [&["cases", &declared], names].concat().into_iter().map(str::to_owned).collect()
        };
        let mut paths = Vec::new();
        let axes = self.cases.get(case.declared).map(|declared| &declared.axes[..]).unwrap_or_default();
        for (number, axis) in axes.iter().enumerate().rev() {
            let Some(value) = case.values.get(&axis.name) else { continue };
            let number = number.to_string();
            if let (["params", name], Some(param)) = (field, &axis.param)
                && name == param
                && let Some(index) = axis.values.iter().position(|known| known == value)
            {
                paths.push(within(&["axes", &number, "values", &index.to_string()]));
            }
            paths.push(within(&[&["axes", &number, "cases", value], field].concat()));
        }
        paths.push(within(field));
        paths
    }

    /// The path of a field of an expanded case in the suite's text, or the one that it would have in the declared case.
    pub fn path(&self, case: &SuiteCase, field: &[&str], mistakes: &Mistakes) -> Vec<String> {
        let mut paths = self.paths(case, field);
        let found = paths.iter().position(|path| mistakes.has(&path.iter().map(String::as_str).collect::<Vec<_>>()));
        paths.swap_remove(found.unwrap_or(paths.len() - 1))
    }
}

/// The error for a value that a suite cannot have.
fn bad_value(name: String, value: &str, why: &str, help: &str) -> ConfigError {
    let (value, why, help) = (value.to_owned(), why.to_owned(), help.to_owned());
    ConfigError::BadValue { name, value, why, help }
}

impl SuiteCase {
    /// The case with the fields that this one has, and those of `base` that it does not have.
    fn over(self, base: &SuiteCase) -> SuiteCase {
        let base = base.clone();
        let merged = |own: BTreeMap<String, String>, mut below: BTreeMap<String, String>| {
            below.extend(own);
            below
        };
        SuiteCase {
            name: self.name.or(base.name),
            workload: if self.workload.is_empty() { base.workload } else { self.workload },
            preset: self.preset.or(base.preset),
            params: merged(self.params, base.params),
            streams: if self.streams.is_empty() { base.streams } else { self.streams },
            axes: base.axes,
            ranks: self.ranks.or(base.ranks),
            launch: self.launch.or(base.launch),
            effort: self.effort.or(base.effort),
            settings: merged(self.settings, base.settings),
            fuse: self.fuse || base.fuse,
            verify: self.verify || base.verify,
            needs: Needs { gpus: self.needs.gpus.or(base.needs.gpus), memory: self.needs.memory.or(base.needs.memory) },
            limits: base.limits.into_iter().chain(self.limits).collect(),
            values: base.values,
            declared: base.declared,
        }
    }

    /// The case's name with the number of streams, or the fields that distinguish it from others.
    fn title(&self) -> String {
        if let (Some(name), [], true) = (&self.name, &self.streams[..], self.values.is_empty()) {
            return name.clone();
        }
        let stem = self.workload.rsplit('/').next().unwrap_or(&self.workload);
        let stem = stem.strip_suffix(".aorta").unwrap_or(stem);
        let mut parts = vec![self.name.clone().unwrap_or_else(|| stem.to_owned())];
        parts.extend(self.values.iter().map(|(axis, value)| format!("{axis}={value}")));
        if self.name.is_none() && self.values.is_empty() {
            parts.extend(self.preset.iter().map(|preset| format!("preset {preset}")));
            parts.extend(self.params.iter().map(|(name, value)| format!("{name}={value}")));
            parts.extend(self.fuse.then(|| "fused".to_owned()));
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
        for name in SuiteFile::names() {
            let (name, text) = SuiteFile::text(name).unwrap();
            let suite = SuiteFile::parse(name, text).unwrap_or_else(|error| panic!("{error}"));
            assert!(!suite.description.is_empty() && !suite.cases.is_empty(), "{name}");
        }
        assert_eq!(SuiteFile::text("p0").unwrap().0, "P0");
    }

    #[test]
    fn streams_make_cases() {
        let text = r#"(description: "d", effort: quick, cases: [
            (workload: "moe", preset: "tiny", streams: [2, 4], launch: graph),
            (name: "mine", workload: "own/net.aorta", effort: full, streams: [1]),
            (workload: "own/net.aorta", ranks: 2, params: {"n": "3"}),
        ])"#;
        let cases = SuiteFile::parse("a.ron", text).unwrap().expanded();
        let names: Vec<&str> = cases.iter().map(|case| case.name.as_deref().unwrap()).collect();
        assert_eq!(
            names,
            ["moe, preset tiny, 2 streams", "moe, preset tiny, 4 streams", "mine, 1 stream", "net, n=3, 2 ranks"]
        );
        assert_eq!((cases[0].effort, cases[2].effort), (Some(Effort::Quick), Some(Effort::Full)));
        assert_eq!(cases[1].streams, [4]);
    }
}
