//! Settings of a run, in layers: the defaults, the user's file, `--config key=value`.

use serde::Deserialize;

use crate::base::units::{self, Dimension};
use crate::base::{Bytes, Nanos, suggest};

use super::error::{ConfigError, bad_ron, explain};

/// Iterations of a run at most, and as many to warm up.
pub const MAX_ITERATIONS: u32 = 1 << 20;

/// Iterations that are worked out ahead at most.
pub const MAX_CYCLE: u64 = 4096;

/// How long a run measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// Shows that the file runs; no measurement.
    Sanity,
    Quick,
    Full,
}

impl Effort {
    pub fn name(self) -> &'static str {
        match self {
            Effort::Sanity => "sanity",
            Effort::Quick => "quick",
            Effort::Full => "full",
        }
    }
}

/// Iterations of an effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EffortPlan {
    pub warmup: u32,
    pub iterations: u32,
}

/// How operations reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaunchSetting {
    Stream,
    Graph,
    Both,
}

/// Whether iterations are held until the host has issued them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateSetting {
    /// Where they can be.
    Auto,
    Off,
}

impl GateSetting {
    pub fn name(self) -> &'static str {
        match self {
            GateSetting::Auto => "auto",
            GateSetting::Off => "off",
        }
    }
}

/// In which state iterations find the device's caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheSetting {
    /// As the iteration before left them.
    Hot,
    /// Emptied before each.
    Cold,
}

impl CacheSetting {
    pub fn name(self) -> &'static str {
        match self {
            CacheSetting::Hot => "hot",
            CacheSetting::Cold => "cold",
        }
    }
}

/// What floats hold at the beginning where a file says `random`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataSetting {
    /// Bell-shaped values, as the file says.
    Normal,
    Zeros,
    Ones,
    /// 0, 1, 2, …
    Iota,
}

impl DataSetting {
    pub fn name(self) -> &'static str {
        match self {
            DataSetting::Normal => "normal",
            DataSetting::Zeros => "zeros",
            DataSetting::Ones => "ones",
            DataSetting::Iota => "iota",
        }
    }
}

/// Settings with every layer applied.
#[derive(Clone, Debug)]
pub struct Settings {
    pub sanity: EffortPlan,
    pub quick: EffortPlan,
    pub full: EffortPlan,
    pub effort: Effort,
    pub launch: LaunchSetting,
    pub observed_iterations: u32,
    pub observed_operations: usize,
    pub in_flight: u32,
    pub gate: GateSetting,
    pub gate_depth: u32,
    pub cache: CacheSetting,
    pub data: DataSetting,
    pub timeout: Nanos,
    pub rendezvous: Nanos,
    pub stall: Nanos,
    pub gemm_candidates: u32,
    pub profile: String,
    /// Name or path of the topology; None for the one that the profile names.
    pub topology: Option<String>,
    pub cycle: u64,
    pub max_file_bytes: usize,
    pub max_nesting: usize,
    pub max_operations: usize,
    pub max_memory: Bytes,
    /// Of what `aorta plan` prints.
    pub max_output: Bytes,
}

/// One layer: what it does not name, it leaves alone.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Layer {
    sanity: Option<EffortPlan>,
    quick: Option<EffortPlan>,
    full: Option<EffortPlan>,
    effort: Option<Effort>,
    launch: Option<LaunchSetting>,
    observed_iterations: Option<u32>,
    observed_operations: Option<usize>,
    in_flight: Option<u32>,
    gate: Option<GateSetting>,
    gate_depth: Option<u32>,
    cache: Option<CacheSetting>,
    data: Option<DataSetting>,
    timeout: Option<String>,
    rendezvous: Option<String>,
    stall: Option<String>,
    gemm_candidates: Option<u32>,
    profile: Option<String>,
    topology: Option<String>,
    cycle: Option<u64>,
    max_file_bytes: Option<usize>,
    max_nesting: Option<usize>,
    max_operations: Option<usize>,
    max_memory: Option<String>,
    max_output: Option<String>,
}

const KEYS: [&str; 24] = [
    "sanity",
    "quick",
    "full",
    "effort",
    "launch",
    "observed_iterations",
    "observed_operations",
    "in_flight",
    "gate",
    "gate_depth",
    "cache",
    "data",
    "timeout",
    "rendezvous",
    "stall",
    "gemm_candidates",
    "profile",
    "topology",
    "cycle",
    "max_file_bytes",
    "max_nesting",
    "max_operations",
    "max_memory",
    "max_output",
];

static DEFAULTS: &str = include_str!("../../config/defaults.ron");

impl Settings {
    /// The defaults with what the user's file and the command line's `key=value` say.
    pub fn layered(file: Option<(&str, &str)>, pairs: &[String]) -> Result<Settings, ConfigError> {
        let mut layers = vec![parse("defaults.ron", DEFAULTS)?];
        if let Some((name, text)) = file {
            layers.push(parse(name, text)?);
        }
        for pair in pairs {
            layers.push(pair_layer(pair)?);
        }
        let mut all = Layer::default();
        for layer in layers {
            all = layer.over(all);
        }
        all.finish()
    }

    pub fn plan(&self, effort: Effort) -> EffortPlan {
        match effort {
            Effort::Sanity => self.sanity,
            Effort::Quick => self.quick,
            Effort::Full => self.full,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings::layered(None, &[]).expect("the embedded defaults are tested")
    }
}

/// How files of settings and of devices are read: `Some` need not be written.
pub(super) fn options() -> ron::Options {
    ron::Options::default().with_default_extension(ron::extensions::Extensions::IMPLICIT_SOME)
}

fn parse(file: &str, text: &str) -> Result<Layer, ConfigError> {
    options().from_str(text).map_err(|error| bad_ron(file, &error, "docs/settings.md lists every setting"))
}

/// `key=value`: a number, a word, or a quantity with its unit, which RON takes as text.
fn pair_layer(pair: &str) -> Result<Layer, ConfigError> {
    let Some((key, value)) = pair.split_once('=') else {
        return Err(ConfigError::NoPair { given: pair.to_owned() });
    };
    let (key, value) = (key.trim(), value.trim());
    if !KEYS.contains(&key) {
        let help =
            suggest::did_you_mean(key, KEYS).or_else(|| Some(format!("settings are {}", suggest::listed(&KEYS))));
        return Err(ConfigError::UnknownSetting { name: key.to_owned(), help });
    }
    let quoted = format!("{value:?}");
    // What is more than one value would be further settings.
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
    Err(ConfigError::BadValue { name: key.to_owned(), value: value.to_owned(), why, help: example(key) })
}

/// A value that a setting may have, as it is written on the command line.
fn example(key: &str) -> String {
    let value = match key {
        "sanity" | "quick" | "full" => "(warmup: 3, iterations: 5)",
        "effort" => "quick",
        "launch" => "graph",
        "timeout" | "rendezvous" | "stall" => "60s",
        "max_memory" | "max_output" => "64GiB",
        "profile" => "h200",
        "topology" => "hgx_h200",
        "observed_operations" | "max_operations" => "100000",
        "max_file_bytes" => "4194304",
        "cycle" | "max_nesting" => "64",
        _ => "4",
    };
    let quote = if value.contains('(') { "'" } else { "" };
    format!("write it so: `--config {quote}{key}={value}{quote}`")
}

impl Layer {
    fn over(self, below: Layer) -> Layer {
        Layer {
            sanity: self.sanity.or(below.sanity),
            quick: self.quick.or(below.quick),
            full: self.full.or(below.full),
            effort: self.effort.or(below.effort),
            launch: self.launch.or(below.launch),
            observed_iterations: self.observed_iterations.or(below.observed_iterations),
            observed_operations: self.observed_operations.or(below.observed_operations),
            in_flight: self.in_flight.or(below.in_flight),
            gate: self.gate.or(below.gate),
            gate_depth: self.gate_depth.or(below.gate_depth),
            cache: self.cache.or(below.cache),
            data: self.data.or(below.data),
            timeout: self.timeout.or(below.timeout),
            rendezvous: self.rendezvous.or(below.rendezvous),
            stall: self.stall.or(below.stall),
            gemm_candidates: self.gemm_candidates.or(below.gemm_candidates),
            profile: self.profile.or(below.profile),
            topology: self.topology.or(below.topology),
            cycle: self.cycle.or(below.cycle),
            max_file_bytes: self.max_file_bytes.or(below.max_file_bytes),
            max_nesting: self.max_nesting.or(below.max_nesting),
            max_operations: self.max_operations.or(below.max_operations),
            max_memory: self.max_memory.or(below.max_memory),
            max_output: self.max_output.or(below.max_output),
        }
    }

    fn finish(self) -> Result<Settings, ConfigError> {
        let missing = "the embedded defaults set every key";
        let bad = |name: &str, value: String, why: &str| ConfigError::BadValue {
            name: name.to_owned(),
            value,
            why: why.to_owned(),
            help: example(name.split('.').next().unwrap_or(name)),
        };
        let measured = |name: &str, text: String, dimension, most: f64, example: &str| {
            let value = quantity(&text, dimension).ok_or_else(|| bad(name, text.clone(), example))?;
            match value {
                _ if value < 1.0 => Err(bad(name, text, "it is too small")),
                _ if value >= most => Err(bad(name, text, "it is too large")),
                _ => Ok(value),
            }
        };
        let timeout = self.timeout.expect(missing);
        let time = measured("timeout", timeout, Dimension::TIME, i64::MAX as f64, "a time has its unit")?;
        let rendezvous = self.rendezvous.expect(missing);
        let wait = measured("rendezvous", rendezvous, Dimension::TIME, i64::MAX as f64, "a time has its unit")?;
        let stall = self.stall.expect(missing);
        let stall = measured("stall", stall, Dimension::TIME, i64::MAX as f64, "a time has its unit")?;
        let memory = self.max_memory.expect(missing);
        let bytes = measured("max_memory", memory, Dimension::BYTES, u64::MAX as f64, "a size has its unit")?;
        let output = self.max_output.expect(missing);
        let output = measured("max_output", output, Dimension::BYTES, u64::MAX as f64, "a size has its unit")?;
        let settings = Settings {
            sanity: self.sanity.expect(missing),
            quick: self.quick.expect(missing),
            full: self.full.expect(missing),
            effort: self.effort.expect(missing),
            launch: self.launch.expect(missing),
            observed_iterations: self.observed_iterations.expect(missing),
            observed_operations: self.observed_operations.expect(missing),
            in_flight: self.in_flight.expect(missing),
            gate: self.gate.expect(missing),
            gate_depth: self.gate_depth.expect(missing),
            cache: self.cache.expect(missing),
            data: self.data.expect(missing),
            timeout: Nanos(time as i64),
            rendezvous: Nanos(wait as i64),
            stall: Nanos(stall as i64),
            gemm_candidates: self.gemm_candidates.expect(missing),
            profile: self.profile.expect(missing),
            topology: self.topology.filter(|name| name != "auto"),
            cycle: self.cycle.expect(missing),
            max_file_bytes: self.max_file_bytes.expect(missing),
            max_nesting: self.max_nesting.expect(missing),
            max_operations: self.max_operations.expect(missing),
            max_memory: Bytes(bytes as u64),
            max_output: Bytes(output as u64),
        };
        let iterations = u64::from(MAX_ITERATIONS);
        let ranges = [
            ("in_flight", u64::from(settings.in_flight), 1, 16),
            ("gate_depth", u64::from(settings.gate_depth), 1, 4096),
            ("observed_iterations", u64::from(settings.observed_iterations), 0, 1000),
            ("gemm_candidates", u64::from(settings.gemm_candidates), 1, 64),
            ("cycle", settings.cycle, 1, MAX_CYCLE),
            ("max_nesting", settings.max_nesting as u64, 1, 256),
            ("max_file_bytes", settings.max_file_bytes as u64, 1, 1 << 30),
            ("max_operations", settings.max_operations as u64, 1, 1 << 28),
            ("sanity.warmup", u64::from(settings.sanity.warmup), 0, iterations),
            ("quick.warmup", u64::from(settings.quick.warmup), 0, iterations),
            ("full.warmup", u64::from(settings.full.warmup), 0, iterations),
            ("sanity.iterations", u64::from(settings.sanity.iterations), 1, iterations),
            ("quick.iterations", u64::from(settings.quick.iterations), 1, iterations),
            ("full.iterations", u64::from(settings.full.iterations), 1, iterations),
        ];
        for (name, value, low, high) in ranges {
            if !(low..=high).contains(&value) {
                return Err(bad(name, value.to_string(), &format!("it lies between {low} and {high}")));
            }
        }
        Ok(settings)
    }
}

/// `60s`, `1.5TiB`: a number with a unit, in base units.
fn quantity(text: &str, dimension: Dimension) -> Option<f64> {
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
    let (number, unit) = text.split_at(split);
    let unit = units::unit(unit.trim()).filter(|unit| unit.dimension == dimension)?;
    Some(number.parse::<f64>().ok()? * unit.factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_override() {
        let file = ("own.ron", "(in_flight: 3, profile: \"mi300x\")");
        let pairs = ["in_flight=4".to_owned(), "timeout=5s".to_owned(), "effort=quick".to_owned()];
        let settings = Settings::layered(Some(file), &pairs).unwrap();
        assert_eq!((settings.in_flight, settings.profile.as_str()), (4, "mi300x"));
        assert_eq!((settings.timeout, settings.effort), (Nanos(5_000_000_000), Effort::Quick));
        assert_eq!(settings.max_memory, Bytes(1 << 40));
    }

    #[test]
    fn mistakes_are_told() {
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
