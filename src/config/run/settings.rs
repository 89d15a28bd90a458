//! Settings of a run, in layers: the defaults, the user's file, `--config key=value`.
//!
//! The table at the end of this file defines each setting once. Reader, checks, messages, completions of shells and the
//! table in docs/settings.md follow from it.

use std::ops::RangeInclusive;

use serde::Deserialize;

use crate::base::{Bytes, Nanos, suggest};
use crate::config::ron::bad_ron::explain;
use crate::config::ron::ron_file::{self, options};
use crate::config::values::value::{InvalidValue, SettingValue};
use crate::config::{
    CacheSetting, ConfigError, DataSetting, Effort, EffortPlan, GateSetting, LaunchSetting, ObserveSetting,
};

use super::scenario::FIELDS;

/// Largest number of iterations that can be expanded.
pub const MAX_CYCLE: u64 = 4096;

/// The definition of a setting.
#[derive(Debug)]
pub struct Setting {
    pub name: &'static str,
    /// The default, as `--config` takes it.
    pub default: &'static str,
    /// Says what the setting is for, in Markdown with links relative to `docs`.
    pub help: &'static str,
    /// Allowed numbers; `None` if the value is not a number, or has no limit.
    pub range: Option<RangeInclusive<u64>>,
    /// Allowed words; empty if the value is a number or a name.
    pub words: &'static [&'static str],
    /// True if a scenario may set it: it affects only the measurement, and neither raises a limit nor grants a
    /// permission.
    pub shared: bool,
}

/// Defines the settings, each with its help, type, default and range, and `yours` for one that only the user may set.
macro_rules! settings {
    ($($(#[doc = $help:literal])+ $name:ident: $type:ty = $default:literal $(in $low:literal, $high:expr)?
        $(=> $yours:ident)?;)+) => {
        /// Settings with every layer applied.
        #[derive(Clone, Debug)]
        pub struct Settings {
            $($(#[doc = $help])+ pub $name: $type,)+
        }

        /// Every setting, in the order of the documentation.
        pub static SETTINGS: &[Setting] = &[$(Setting {
            name: stringify!($name),
            default: $default,
            help: concat!($($help),+),
            range: settings!(@range $($low, $high)?),
            words: <$type as SettingValue>::WORDS,
            shared: concat!($(stringify!($yours))?).is_empty(),
        }),+];

        impl Settings {
            /// Each setting with its value, as `--config` takes it.
            fn pairs(&self) -> Vec<(&'static Setting, String)> {
                SETTINGS.iter().zip([$(self.$name.text()),+]).collect()
            }
        }

        /// A layer of settings; `None` keeps the value of the layer below.
        #[derive(Default, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        struct Layer {
            $($name: Option<<$type as SettingValue>::Repr>,)+
        }

        impl Layer {
            fn over(self, below: Layer) -> Layer {
                Layer { $($name: self.$name.or(below.$name),)+ }
            }

            /// Returns the errors of this layer's values, each with its setting.
            fn mistakes(&self) -> Vec<(&'static str, ConfigError)> {
                let mut all = Vec::new();
                $(if let Some(value) = self.$name.clone()
                    && let Err(error) = read::<$type>(stringify!($name), Some(value), ValueForm::InFile)
                {
                    all.push((stringify!($name), error));
                })+
                all
            }

            /// Checks the merged values. Some layer must name every setting.
            fn finish(self) -> Result<Settings, ConfigError> {
                Ok(Settings { $($name: read(stringify!($name), self.$name, ValueForm::AsOption)?,)+ })
            }
        }
    };
    (@range) => { None };
    (@range $low:literal, $high:expr) => { Some(RangeInclusive::new($low, $high)) };
}

impl Settings {
    /// Merges the defaults, the user's file, and `key=value` pairs of the command line.
    pub fn layered(file: Option<(&str, &str)>, pairs: &[String]) -> Result<Settings, ConfigError> {
        let mut all = Layer::default();
        for Setting { name, default, .. } in SETTINGS {
            all = value_layer(name, default, ValueForm::AsOption)?.over(all);
        }
        if let Some((name, text)) = file {
            all = parse(name, text)?.over(all);
        }
        for pair in pairs {
            all = pair_layer(pair, ValueForm::AsOption)?.over(all);
        }
        all.finish()
    }

    /// Checks a value that a file gives to a setting, as `--config` takes it.
    pub(in crate::config) fn check(name: &str, value: &str) -> Result<(), ConfigError> {
        let layer = pair_layer(&format!("{name}={value}"), ValueForm::InFile)?;
        layer.mistakes().pop().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// The settings that differ from the defaults and that a scenario may set, with their values as `--config` takes
    /// them.
    pub fn changed(&self) -> Vec<(&'static str, String)> {
        let defaults = Settings::default().pairs();
        let own = self.pairs().into_iter().zip(defaults);
        let changed = own.filter(|((setting, own), (_, default))| setting.shared && own != default);
        changed.map(|((setting, own), _)| (setting.name, own)).collect()
    }

    /// True if a scenario may set the setting with this name.
    pub fn is_shared(name: &str) -> bool {
        definition(name).is_some_and(|setting| setting.shared)
    }

    /// The numbers of iterations of an effort.
    pub fn plan(&self, effort: Effort) -> EffortPlan {
        match effort {
            Effort::Sanity => self.sanity,
            Effort::Quick => self.quick,
            Effort::Full => self.full,
        }
    }

    /// The numbers of iterations of an effort, mutable.
    pub fn plan_mut(&mut self, effort: Effort) -> &mut EffortPlan {
        match effort {
            Effort::Sanity => &mut self.sanity,
            Effort::Quick => &mut self.quick,
            Effort::Full => &mut self.full,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings::layered(None, &[]).expect("a test reads the defaults")
    }
}

/// Parses a file of settings, and checks their values.
fn parse(file: &str, text: &str) -> Result<Layer, ConfigError> {
    let (layer, mut mistakes): (Option<Layer>, _) = ron_file::read(file, text, "docs/settings.md lists every setting");
    for (name, error) in layer.iter().flat_map(Layer::mistakes) {
        mistakes.add(&[name], error);
    }
    ron_file::strict((layer, mistakes))
}

/// Parses `key=value` as a layer.
fn pair_layer(pair: &str, written: ValueForm) -> Result<Layer, ConfigError> {
    let Some((key, value)) = pair.split_once('=') else {
        return Err(ConfigError::NoPair { given: pair.to_owned() });
    };
    let (key, value) = (key.trim(), value.trim());
    if definition(key).is_none() {
        let option = format!("--{}", key.replace('_', "-"));
        let is_option = FIELDS.iter().any(|field| field.option.split('=').next() == Some(option.as_str()));
        let names = || SETTINGS.iter().map(|setting| setting.name);
        let similar = || {
            let near: Vec<&str> = suggest::similar(key, names()).into_iter().take(3).collect();
            format!("docs/settings.md lists the settings; the most similar are {}", suggest::listed(&near))
        };
        let help = match key.starts_with(char::is_uppercase) {
            true => Some(format!("`--env {key}={value}` sets a variable of the environment")),
            false if is_option => Some(format!("it is an option of its own: `{option}={value}`")),
            false => suggest::did_you_mean(key, names()).or_else(|| Some(similar())),
        };
        return Err(ConfigError::UnknownSetting { name: key.to_owned(), help });
    }
    value_layer(key, value, written)
}

/// Parses one value as a layer: a number, a word, or a quantity with its unit, which RON takes as text.
fn value_layer(key: &str, value: &str, written: ValueForm) -> Result<Layer, ConfigError> {
    let quoted = format!("{value:?}");
    // More than one value could set further settings.
    let is_one = options().from_str::<serde::de::IgnoredAny>(value).is_ok();
    let candidates = [value, quoted.as_str()];
    let candidates = &candidates[usize::from(!is_one)..];
    let layers = candidates.iter().map(|value| options().from_str::<Layer>(&format!("({key}: {value})")));
    let mut first = None;
    for layer in layers {
        match layer {
            Ok(layer) => return Ok(layer),
            Err(error) => first = first.or(Some(error)),
        }
    }
    let why = first.map_or_else(String::new, |error| explain(&error.code));
    Err(bad_value(key, InvalidValue { part: "", value: value.to_owned(), why }, written))
}

fn definition(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

/// The form in which a user gave the value of a setting, which the help of an error repeats.
#[derive(Clone, Copy)]
enum ValueForm {
    /// `--config name=value`.
    AsOption,
    /// A field of the settings file.
    InFile,
}

/// Converts and checks the value of a setting.
fn read<T: SettingValue>(name: &str, value: Option<T::Repr>, written: ValueForm) -> Result<T, ConfigError> {
    let range = definition(name).and_then(|setting| setting.range.clone());
    let value = T::read(value.expect("the defaults name every setting"), range);
    value.map_err(|wrong| bad_value(name, wrong, written))
}

fn bad_value(setting: &str, wrong: InvalidValue, written: ValueForm) -> ConfigError {
    let default = definition(setting).map_or("", |setting| setting.default);
    let InvalidValue { part, value, why } = wrong;
    let unit = default.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let lacks_unit = !unit.is_empty() && unit.len() < default.len() && value.parse::<f64>().is_ok_and(|n| n >= 1.0);
    let quote = if default.contains('(') { "'" } else { "" };
    let help = match written {
        ValueForm::AsOption if lacks_unit => format!("write `{value}{unit}`"),
        ValueForm::InFile if lacks_unit => format!("write `\"{value}{unit}\"`"),
        ValueForm::AsOption => format!("write it so: `--config {quote}{setting}={default}{quote}`"),
        ValueForm::InFile => format!("write a value such as `{default}`, the default"),
    };
    ConfigError::BadValue { name: format!("{setting}{part}"), value, why, help }
}

settings! {
    /// Which of the next three efforts a run uses
    effort: Effort = "full";
    /// Only shows that a file runs
    sanity: EffortPlan = "(warmup: 0, iterations: 1)";
    /// A first look
    quick: EffortPlan = "(warmup: 10, iterations: 5)";
    /// A measurement
    full: EffortPlan = "(warmup: 10, iterations: 100)";
    /// How operations are launched
    launch: LaunchSetting = "stream";
    /// Iterations [of each slot](method.md#operation-by-operation) in which each operation is timed, in addition to the
    /// measured ones, since timing disturbs them
    observed_iterations: u32 = "5" in 0, 1000;
    /// [How each operation is timed](method.md#the-vendors-records) in these iterations
    observe: ObserveSetting = "auto";
    /// Largest number of operations of an iteration for which each operation is timed
    observed_operations: usize = "100000";
    /// Number of iterations by which the host can be ahead of the device
    in_flight: u32 = "2" in 1, 16;
    /// Whether iterations are [held until the host has launched them](method.md#the-gate): `auto` means whenever possible
    gate: GateSetting = "auto";
    /// Number of commands that fit into every hardware queue
    gate_depth: u32 = "512" in 1, 4096;
    /// State of the device's [caches](method.md#caches) at the start of an iteration: `hot`, as the one before left
    /// them, or `cold`, flushed
    cache: CacheSetting = "hot";
    /// Initial values of [floats](method.md#data) where a file says `random`
    data: DataSetting = "normal";
    /// Longest time that an iteration, or a call without progress, may take before [the run is
    /// ended](method.md#when-something-hangs-or-fails)
    timeout: Nanos = "60s";
    /// Time for which processes that a [launcher](start/07-several-nodes.md) starts wait for each other
    rendezvous: Nanos = "60s" => yours;
    /// Longest time that the process of a rank may [make no
    /// progress](start/07-several-nodes.md#what-is-checked-and-what-ends-a-run) while others wait for it
    stall: Nanos = "600s" => yours;
    /// Number of the vendor library's algorithms that are timed for each matrix product and each
    /// convolution, and of its engines for each use of attention (at most 2); 1 also keeps the model's tiling of each grouped
    /// product
    gemm_candidates: u32 = "8" in 1, 64;
    /// Whether the choice of an algorithm for a matrix product, of an engine for attention, or of tiles for a grouped product, is kept on disk, beside the
    /// compiled kernels, and taken from there where device, driver, library, operation and streams are the same
    keep_algorithms: bool = "true";
    /// The simulated device: `h100`, `h200`, `mi300x`, `mi325x`, `mi355x`, a partition such as `mi300x-cpx`, or a path that
    /// ends in `.ron`
    profile: String = "h200";
    /// Links between simulated devices, within and between nodes: `auto` for the profile's, `hgx_h200`, `mi300x`, or a
    /// path that ends in `.ron`
    topology: Option<String> = "auto";
    /// Number of iterations planned in advance if a step uses the iteration's number
    cycle: u64 = "64" in 1, MAX_CYCLE;
    /// Maximum size of a workload file in bytes
    max_file_bytes: usize = "4194304" in 1, 1 << 30 => yours;
    /// Maximum nesting of brackets
    max_nesting: usize = "64" in 1, 256 => yours;
    /// Maximum number of operations of an iteration, or of all slots of a cycle
    max_operations: usize = "1048576" in 1, 1 << 28 => yours;
    /// Maximum memory of the declared buffers and bare inputs
    max_memory: Bytes = "1TiB" => yours;
    /// Whether [kernels of a file](security.md#kernels-of-a-file) may run on a GPU, which runs their code
    allow_kernels: bool = "false" => yours;
    /// Whether a record holds [the text](record.md#source) of its workload, so that it can run again
    record_text: bool = "true" => yours;
    /// Maximum size of the output of `aorta plan`
    max_output: Bytes = "256MiB" => yours;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_settings_are_read_again() {
        let pairs =
            ["timeout=1500ms", "quick=(warmup: 3, iterations: 7)", "gate=off", "topology=mi300x", "max_memory=1KiB"];
        let settings = Settings::layered(None, &pairs.map(str::to_owned)).unwrap();
        let changed: Vec<String> = settings.changed().iter().map(|(name, value)| format!("{name}={value}")).collect();
        let expected = ["quick=(warmup: 3, iterations: 7)", "gate=off", "timeout=1500000000ns", "topology=mi300x"];
        assert_eq!(changed, expected);
        assert_eq!(Settings::layered(None, &changed).unwrap().changed(), settings.changed());
    }

    #[test]
    fn mistakes_are_reported() {
        let error = |pair: &str| Settings::layered(None, &[pair.to_owned()]).unwrap_err().to_string();
        assert_eq!(error("in_flihgt=4"), "there is no setting `in_flihgt`");
        assert_eq!(error("in_flight"), "`in_flight` is no `key=value`");
        assert!(error("timeout=5").starts_with("`timeout` cannot be 5"));
        assert!(error("in_flight=99").starts_with("`in_flight` cannot be 99"));
        assert!(error("effort=hasty").starts_with("`effort` cannot be hasty"));
        assert_eq!(error("in_flight=two"), "`in_flight` cannot be two: a whole number is expected");
        assert!(error("launch=graph, max_nesting: 3").starts_with("`launch` cannot be graph, max_nesting: 3"));
        assert!(error("quick=(warmup: 1)").starts_with("`quick` cannot be (warmup: 1): the field"));
    }
}
