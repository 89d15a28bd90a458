//! Scenarios: a workload with all options of its run, as one team hands it to another.
//!
//! The table at the end of this file defines each field once, with the commands and the argument that it stands for. The
//! reader, the merge with the command line, the writer and the table in the documentation follow from it.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use serde::Deserialize;

use crate::base::shell;
use crate::config::ron::ron_file;
use crate::config::values::field::{self, FieldValue};
use crate::config::{
    BackendSetting, CacheSetting, CaseOrder, ConfigError, DataSetting, Effort, GateSetting, LaunchSetting, Mistakes,
    ObserveSetting, QuantityRange, SyncSetting,
};

use super::settings::Settings;
use super::variables;

/// Help on where all fields are explained.
const FIELDS_PAGE: &str = "docs/start/05-sharing-a-scenario.md lists the fields of a scenario";

/// Options of `aorta exec`, `aorta sweep` and `aorta ab` that no field has, each with the reason.
pub static OPTIONS_WITHOUT_FIELD: [(&str, &str); 17] = [
    ("a", "`sides` has it"),
    ("b", "`sides` has it"),
    ("allow-kernels", "only you allow code on a GPU"),
    ("config-file", "your own settings stay yours"),
    ("top", "how a report is shown is up to its reader"),
    ("timeline", "how a report is shown is up to its reader"),
    ("format", "how a report is shown is up to its reader"),
    ("diagnostics", "how messages are shown is up to their reader"),
    ("output", "a scenario writes no files"),
    ("html", "a scenario writes no files"),
    ("json", "a scenario writes no files"),
    ("csv", "a scenario writes no files"),
    ("trace", "a scenario writes no files"),
    ("outputs", "a scenario writes no files"),
    ("partition", "each machine has its own part"),
    ("resume", "it is about an earlier sweep of yours"),
    ("retry", "it is about an earlier sweep of yours"),
];

/// The definition of a field of a scenario.
#[derive(Debug)]
pub struct Field {
    pub name: &'static str,
    /// The type of the field's value, in words.
    pub form: &'static str,
    /// Allowed words; empty if the value is none of a few words.
    pub words: &'static [&'static str],
    /// Commands of which the value completes an argument. What `exec` is given also applies to the runs that `sweep` and
    /// `ab` start.
    pub commands: &'static [&'static str],
    /// Beginning of the argument that the value completes, such as `--preset=`; empty if it has none.
    pub option: &'static str,
    /// Says what the field is for, in Markdown with links relative to `docs/start`.
    pub help: &'static str,
}

/// The commands whose argument a field completes, `exec` if none is named.
macro_rules! commands {
    () => {
        &["exec"]
    };
    ($($command:literal),+) => {
        &[$($command),+]
    };
}

/// Defines the fields, each with its help, type, argument and the commands that take it.
macro_rules! scenario {
    ($($(#[doc = $help:literal])+ $name:ident: $type:ty $(= $option:literal $(of $($command:literal),+)?)?;)+) => {
        /// The contents of a scenario file. Flags on the command line take precedence.
        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct Scenario {
            $($(#[doc = $help])+ #[serde(deserialize_with = "field::read")] pub $name: $type,)+
        }

        /// Every field, in the order of the documentation.
        pub static FIELDS: &[Field] = &[$(Field {
            name: stringify!($name),
            form: <$type as FieldValue>::FORM,
            words: <$type as FieldValue>::WORDS,
            commands: commands!($($($($command),+)?)?),
            option: concat!($($option)?),
            help: concat!($($help),+),
        }),+];

        impl Scenario {
            /// The arguments of a command, such as `exec`, that each field stands for, in the order of [`FIELDS`].
            pub fn arguments(&self, command: &str) -> Vec<(&'static Field, Vec<String>)> {
                let values = [$(FieldValue::values(&self.$name)),+];
                let arguments = |(field, values): (&'static Field, Vec<String>)| {
                    let is_of_command = !field.option.is_empty() && field.commands.contains(&command);
                    let values = values.into_iter().filter(|_| is_of_command);
                    (field, values.map(|value| format!("{}{value}", field.option)).collect())
                };
                FIELDS.iter().zip(values).map(arguments).collect()
            }

            /// The scenario as a text that [`Scenario::parse`] reads, without fields that have their defaults.
            pub fn to_ron(&self) -> String {
                let values = [$(FieldValue::ron(&self.$name)),+];
                let lines = FIELDS.iter().zip(values).filter_map(|(field, value)| Some((field.name, value?)));
                format!("(\n{})\n", lines.map(|(name, value)| format!("    {name}: {value},\n")).collect::<String>())
            }
        }
    };
}

impl Scenario {
    /// Parses a scenario. `file` is its name in messages.
    pub fn parse(file: &str, text: &str) -> Result<Scenario, ConfigError> {
        ron_file::strict(Scenario::read(file, text))
    }

    /// Reads a scenario, without the fields that cannot be read, and all its mistakes. `None` if its text has no form.
    /// `file` is its name in messages.
    pub fn read(file: &str, text: &str) -> (Option<Scenario>, Mistakes) {
        let (scenario, mut mistakes) = ron_file::read::<Scenario>(file, text, FIELDS_PAGE);
        if let Some(scenario) = &scenario {
            scenario.check(file, &mut mistakes);
        }
        (scenario, mistakes)
    }

    /// Reports values that a scenario cannot have.
    fn check(&self, file: &str, mistakes: &mut Mistakes) {
        if self.workload.is_empty() {
            mistakes.add(&["workload"], ConfigError::NoWorkload { file: file.to_owned() });
        }
        let mut of_field = |path: [&str; 2], result: Result<(), ConfigError>| {
            if let Err(error) = result {
                mistakes.add(&path, error);
            }
        };
        for (name, value) in &self.environment {
            of_field(["environment", name], check_variable(file, name, value));
        }
        for (name, value) in &self.settings {
            of_field(["settings", name], check_setting(file, name, value));
        }
        for (metric, span) in &self.limits {
            of_field(["limits", metric], span.check(&format!("limits[{metric:?}]"), metric == "time"));
        }
        if let Some(Err(error)) = self.timeout.as_ref().map(|timeout| Settings::check("timeout", timeout)) {
            mistakes.add(&["timeout"], error);
        }
    }
}

/// Fails unless a file may set the variable.
pub fn check_variable(file: &str, name: &str, value: &str) -> Result<(), ConfigError> {
    if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
        return Err(ConfigError::BadVariable { file: file.to_owned(), name: name.escape_debug().to_string() });
    }
    variables::check(name, value).map_err(|why| ConfigError::RefusedVariable {
        file: file.to_owned(),
        name: name.to_owned(),
        why,
        pair: shell::command([format!("{name}={value}")]),
    })
}

/// Fails unless a file may set the setting, and to this value.
pub fn check_setting(file: &str, name: &str, value: &str) -> Result<(), ConfigError> {
    let pair = format!("{name}={value}");
    Settings::check(name, value)?;
    // Only the fields of these names check where a path leads.
    if matches!(name.trim(), "profile" | "topology") && value.trim().trim_matches('"').ends_with(".ron") {
        return Err(ConfigError::BadValue {
            name: name.trim().to_owned(),
            value: value.to_owned(),
            why: "a path has a field of its own".to_owned(),
            help: format!("write `{}: \"own.ron\"` beside `workload`", name.trim()),
        });
    }
    match Settings::is_shared(name.trim()) {
        true => Ok(()),
        false => Err(ConfigError::RefusedSetting {
            file: file.to_owned(),
            name: name.trim().to_owned(),
            pair: shell::command([pair]),
        }),
    }
}

scenario! {
    /// A line for readers
    description: Option<String>;
    /// Contacts for questions
    authors: Vec<String>;
    /// Terms under which others may use it, such as `MIT`
    licence: Option<String>;
    /// A name of the [project's library](../sharing.md#a-project) or of the shipped one, or a path relative to the
    /// scenario, which [may not leave its folder or project](../security.md#what-an-untrusted-file-cannot-do)
    workload: String;
    /// The name of a preset
    preset: Option<String> = "--preset=";
    /// Parameters: `{tokens: 4096, dtype: bf16}`. An expression stands in quotes: `{n: "4 * 1024"}`
    params: BTreeMap<String, String> = "--set=";
    /// Value of the parameter `streams` if the file has one, otherwise the maximum number of real streams
    streams: Option<u32> = "--streams=";
    /// How iterations follow each other, instead of what the step says
    sync: Option<SyncSetting> = "--sync=";
    /// Number of iterations planned in advance if the step depends on their number
    cycle: Option<u64> = "--cycle=";
    /// True to merge [chains of operations](../fuse.md) into one kernel each
    fuse: bool = "--fuse";
    /// Variables for the vendor's driver and libraries, [of those that cannot load
    /// code](../security.md#variables-that-a-file-may-set)
    environment: BTreeMap<String, String> = "--env=";
    /// Backend of the run
    backend: Option<BackendSetting> = "--backend=";
    /// The simulated device; a path is relative to the scenario
    profile: Option<String> = "--config=profile=";
    /// Links between simulated devices; a path is relative to the scenario
    topology: Option<String> = "--config=topology=";
    /// Number of the GPU; ignored with `--backend sim` and `host`
    device: Option<u32> = "--device=";
    /// Number of ranks
    ranks: Option<u32> = "--ranks=";
    /// Size of the world of which one rank runs, beside kernels that stand for the others
    emulate: Option<u32> = "--emulate=";
    /// The rank that runs with `emulate`
    rank: Option<u32> = "--rank=";
    /// How the operations are launched
    launch: Option<LaunchSetting> = "--launch=";
    /// Whether iterations are [held until the host has launched them](../method.md#the-gate)
    gate: Option<GateSetting> = "--gate=";
    /// How each operation is [timed](../method.md#the-vendors-records) in observed iterations
    observe: Option<ObserveSetting> = "--observe=";
    /// State of the device's [caches](../method.md#caches) at the start of an iteration
    cache: Option<CacheSetting> = "--cache=";
    /// Initial values of [floats](../method.md#data) where a file says `random`
    data: Option<DataSetting> = "--data=";
    /// How long to measure
    effort: Option<Effort> = "--effort=";
    /// Warm-up iterations, instead of the effort's
    warmup: Option<u32> = "--warmup=";
    /// Measured iterations, instead of the effort's
    iterations: Option<u32> = "--iterations=";
    /// Longest duration of an iteration before the run counts as hung, such as `"10s"`
    timeout: Option<String> = "--timeout=";
    /// True to compare every output with the CPU's
    verify: bool = "--verify";
    /// Name or label of operations whose [hardware counters](../method.md#hardware-counters) are read
    counters: Option<String> = "--counters=";
    /// Other [settings](../settings.md#all-settings): `{in_flight: 3}`; not those that [only you may
    /// set](../security.md#settings-that-a-file-may-set)
    settings: BTreeMap<String, String> = "--config=";
    /// Path of a file with [normal ranges](../suites.md#is-it-normal), relative to the scenario
    expected: Option<String> = "--expected=";
    /// Allowed ranges of metrics, or of `time` for the median of an iteration: `{time: (to: "5us")}`, or
    /// `{rate: (from: "1M tokens/s")}` in the unit of a metric. A measurement outside of them ends with exit code 1
    limits: BTreeMap<String, QuantityRange>;
    /// Options of `aorta sweep` with their lists: `{streams: [1, 2, 4], "set tokens": [1024, 2048]}`
    axes: IndexMap<String, String>;
    /// True to combine the first values of all axes, the second values, and so on
    zip: bool = "--zip" of "sweep";
    /// True to skip the cases of a value that the workload refuses, instead of refusing the sweep
    skip_invalid: bool = "--skip-invalid" of "sweep";
    /// The order in which the cases of a sweep run
    order: Option<CaseOrder> = "--order=" of "sweep";
    /// How the table of a sweep is sorted: by an axis, `median`, `rate` or a metric
    sort: Option<String> = "--sort=" of "sweep";
    /// True to [search for the best case](../search.md) instead of running all
    search: bool = "--search" of "sweep";
    /// Runs that a search may make
    budget: Option<u32> = "--budget=" of "sweep";
    /// Options of the sides `a` and `b` of `aorta ab`: `{b: "--launch graph"}`
    sides: BTreeMap<String, String>;
    /// Rounds of four blocks that `aorta ab` measures
    rounds: Option<u32> = "--rounds=" of "ab";
    /// Iterations of a block of `aorta ab`
    block_iterations: Option<u32> = "--iterations=" of "ab";
    /// Smallest difference between the sides that matters, such as `"3%"`
    threshold: Option<String> = "--threshold=" of "ab";
    /// True to run each block of `aorta ab` in a process of its own
    fresh: bool = "--fresh" of "ab";
    /// True to skip the runs of each side alone
    no_apart: bool = "--no-apart" of "ab";
    /// With which verdicts `aorta ab` ends with exit code 1: `"worse"`, `"cannot-tell"`
    fail_on: Vec<String> = "--fail-on=" of "ab";
    /// Seed of a search, and of the order of blocks
    seed: Option<u64> = "--seed=" of "sweep", "ab";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_scenario() {
        let text = r#"(workload: "moe", preset: "tiny", params: {streams: 8, "dtype": bf16, n: "4 * 2", l: [1, 2], b: true}, backend: "sim", launch: graph, effort: "quick")"#;
        let scenario = Scenario::parse("a.ron", text).unwrap();
        assert_eq!(scenario.workload, "moe");
        assert_eq!((scenario.effort, scenario.launch), (Some(Effort::Quick), Some(LaunchSetting::Graph)));
        let params: Vec<(&str, &str)> = scenario.params.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(params, [("b", "true"), ("dtype", "bf16"), ("l", "[1, 2]"), ("n", "4 * 2"), ("streams", "8")]);
        assert!(Scenario::parse("a.ron", "()").is_err());
        assert!(Scenario::parse("a.ron", "(workload: \"moe\", colour: 3)").is_err());
    }

    #[test]
    fn written_scenarios_are_read_back() {
        let text = r#"(
    description: "a \"b\" \u{202e}",
    authors: [
        "A",
        "B",
    ],
    workload: "moe",
    params: {
        "tokens": "4 * 1024",
    },
    sync: end,
    ranks: 2,
    effort: quick,
    verify: true,
    settings: {
        "in_flight": "3",
    },
    limits: {
        "gain": (from: 1.5),
        "time": (from: "1ns", to: "5000ns"),
    },
    axes: {
        "streams": "1,2",
        "set n": "3,4",
    },
    zip: true,
    order: given,
    fail_on: [
        "worse",
    ],
    seed: 7,
)
"#;
        let scenario = Scenario::parse("a.ron", text).unwrap();
        assert_eq!(scenario.to_ron(), text);
        let words: Vec<String> = scenario.arguments("exec").into_iter().flat_map(|(_, words)| words).collect();
        let expected = ["--set=tokens=4 * 1024", "--sync=end", "--ranks=2", "--effort=quick", "--verify"];
        assert_eq!(words[..5], expected);
        assert_eq!(words[5..], ["--config=in_flight=3"]);
        let of =
            |command| -> Vec<String> { scenario.arguments(command).into_iter().flat_map(|(_, words)| words).collect() };
        assert_eq!(of("sweep"), ["--zip", "--order=given", "--seed=7"]);
        assert_eq!(of("ab"), ["--fail-on=worse", "--seed=7"]);
    }

    #[test]
    fn a_scenario_changes_no_limit() {
        for (setting, value) in [("allow_kernels", "true"), ("max_memory", "2TiB"), ("stall", "9s")] {
            let text = format!("(workload: \"moe\", settings: {{\"{setting}\": \"{value}\"}})");
            let error = Scenario::parse("a.ron", &text).unwrap_err();
            assert!(error.to_string().contains("which only you may set"), "{error}");
        }
    }
}
