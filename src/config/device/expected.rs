//! Normal ranges of figures on a device, each with its source.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;

use crate::base::named::named;
use crate::base::units::{self, Dimension};
use crate::base::{suggest, visible};
use crate::config::ron::ron_file;
use crate::config::{ConfigError, Mistakes, QuantityRange};

/// Help on where all fields are explained.
const FIELDS: &str = "docs/suites.md lists the fields, and config/expected/h200.ron is a whole file";

/// The normal ranges of one kind of device.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// Names under which drivers report the device.
    pub devices: Vec<String>,
    pub sources: BTreeMap<String, FigureSource>,
    pub ranges: Vec<NormalRange>,
    /// The file that contains the ranges.
    #[serde(skip)]
    pub file: String,
    /// True if the file is embedded in the program.
    #[serde(skip)]
    pub shipped: bool,
}

/// The source of a figure.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FigureSource {
    /// Measured by this project or by the file's author: a page with a date.
    Measured(#[serde(deserialize_with = "visible::read_line")] String),
    /// Published elsewhere: the title or address of the publication.
    Published(#[serde(deserialize_with = "visible::read_line")] String),
}

impl FigureSource {
    /// The source in words, such as `measured: docs/…`.
    pub fn text(&self) -> String {
        match self {
            FigureSource::Measured(page) => format!("measured: {page}"),
            FigureSource::Published(address) => format!("published: {address}"),
        }
    }
}

/// The figure that a range applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpectedFigure {
    /// Floating-point operations per second of an operation that runs alone.
    FlopRate,
    /// Bytes per second of an operation that runs alone.
    Bandwidth,
    /// Bus bandwidth of a collective, as nccl-tests define it.
    BusBandwidth,
    /// Host time to launch one operation of an iteration of small kernels.
    Issue,
    /// Host time to launch a graph.
    GraphLaunch,
    /// A metric of a workload.
    Metric,
}

impl ExpectedFigure {
    /// The figure's dimension; `None` for a metric, which has its own unit.
    pub fn dimension(self) -> Option<Dimension> {
        let unit = match self {
            ExpectedFigure::FlopRate => "FLOP/s",
            ExpectedFigure::Bandwidth | ExpectedFigure::BusBandwidth => "B/s",
            ExpectedFigure::Issue | ExpectedFigure::GraphLaunch => "ns",
            ExpectedFigure::Metric => return None,
        };
        units::unit(unit).map(|unit| unit.dimension)
    }
}

named! {
    /// Source and destination of a copy.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum CopyDirection {
        H2d = "h2d",
        D2h = "d2h",
        D2d = "d2d",
        /// A copy to another rank's device.
        Peer = "peer",
    }
}

/// A normal range of a figure, with the conditions under which it applies. A condition that is `None` always holds.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NormalRange {
    /// The range's name in reports.
    #[serde(deserialize_with = "visible::read_line")]
    pub name: String,
    pub figure: ExpectedFigure,
    pub normal: QuantityRange,
    /// The figures that the source states.
    #[serde(deserialize_with = "visible::read_line")]
    pub seen: String,
    /// Key in the file's `sources`.
    pub source: String,

    /// The operation's name in the language.
    pub operation: Option<String>,
    /// Arithmetic of a matrix product: `f64`, `f32`, `tf32`, `f16`, `bf16`, `f8`, `i8`.
    pub arithmetic: Option<String>,
    pub direction: Option<CopyDirection>,
    /// True if a copy's host memory is pageable.
    pub pageable: Option<bool>,
    /// Bytes that the operation moves.
    #[serde(default)]
    pub bytes: QuantityRange,
    /// Floating-point operations of the operation.
    #[serde(default)]
    pub flops: QuantityRange,
    /// Arithmetic intensity: floating-point operations per byte.
    #[serde(default)]
    pub intensity: QuantityRange,
    /// Number of ranks of a collective.
    pub ranks: Option<u32>,
    /// Number of real streams of the program.
    #[serde(default)]
    pub streams: QuantityRange,
    /// Launch mode: `stream` or `graph`.
    pub launch: Option<String>,
    /// File name of the workload that declares the metric; `None` for figures of operations.
    pub workload: Option<String>,
    pub metric: Option<String>,
    /// Values of the workload's parameters.
    #[serde(default)]
    pub params: BTreeMap<String, String>,
}

/// Files embedded in the program: name, text, and the ranges as soon as the text was read. Each case of a sweep needs them.
static EMBEDDED: [(&str, &str, OnceLock<Expected>); 2] = [
    ("h200.ron", include_str!("../../../config/expected/h200.ron"), OnceLock::new()),
    ("mi300x.ron", include_str!("../../../config/expected/mi300x.ron"), OnceLock::new()),
];

impl Expected {
    /// Parses a file. `file` is its name in messages.
    pub fn parse(file: &str, text: &str) -> Result<Expected, ConfigError> {
        ron_file::strict(Expected::read(file, text))
    }

    /// Reads a file, without the fields that cannot be read, and all its mistakes. `None` if its text has no form. `file` is
    /// its name in messages.
    pub fn read(file: &str, text: &str) -> (Option<Expected>, Mistakes) {
        let (mut expected, mut mistakes) = ron_file::read::<Expected>(file, text, FIELDS);
        if let Some(expected) = &mut expected {
            expected.file = file.to_owned();
            for (index, range) in expected.ranges.iter().enumerate() {
                expected.check(range, &mut |field, value, why, help| {
                    let name = format!("{field} of the range \"{}\"", range.name);
                    let (value, why) = (value.to_owned(), why.to_owned());
                    let error = ConfigError::BadValue { name, value, why, help };
                    mistakes.add(&["ranges", &index.to_string(), field], error);
                });
            }
        }
        (expected, mistakes)
    }

    /// The embedded file for a device of that name; `None` if there is none.
    pub fn of(device: &str) -> Option<Expected> {
        EMBEDDED.iter().find_map(|(file, text, read)| {
            let parse = || Expected::parse(file, text).expect("a test reads every embedded file");
            let expected = read.get_or_init(|| Expected { shipped: true, ..parse() });
            expected.is_about(device).then(|| expected.clone())
        })
    }

    /// True if the ranges are for devices of this name.
    pub fn is_about(&self, device: &str) -> bool {
        self.devices.iter().any(|name| name == device)
    }

    /// The measurement that a range comes from.
    pub fn source(&self, range: &NormalRange) -> &FigureSource {
        &self.sources[&range.source]
    }

    /// Reports the wrong fields of a range, each with its value, the reason and a help.
    fn check(&self, range: &NormalRange, bad: &mut dyn FnMut(&str, &str, &str, String)) {
        if !self.sources.contains_key(&range.source) {
            let near = suggest::nearest(&range.source, self.sources.keys().map(String::as_str));
            let known = near.map(|near| format!("did you mean \"{near}\"?"));
            let help = known.unwrap_or_else(|| "name it under `sources`, with a page or an address".to_owned());
            bad("source", &format!("{:?}", range.source), "there is no source of that name", help);
        }
        let normal = range.normal.to_string();
        match range.normal.dimension() {
            Ok(None) => {
                let help = "write `normal: (from: \"50GB/s\", to: \"57GB/s\")`, or one of the two".to_owned();
                bad("normal", "()", "it has neither a beginning nor an end", help);
            }
            Err(why) => bad("normal", &normal, &why, "correct `from` or `to`".to_owned()),
            Ok(Some(dimension)) => {
                let counted = range.normal.counted().filter(|_| range.figure != ExpectedFigure::Metric);
                let wanted = range.figure.dimension().filter(|wanted| *wanted != dimension);
                if let Some(counted) = counted {
                    let why = format!("there is no unit `{counted}`, except of a metric");
                    bad("normal", &normal, &why, "give it another unit".to_owned());
                } else if let Some(wanted) = wanted {
                    let why = format!("its figure is {}, and this is {}", wanted.describe(), dimension.describe());
                    bad("normal", &normal, &why, "give it another unit".to_owned());
                }
            }
        }
        for (field, span, unit) in [
            ("bytes", &range.bytes, Dimension::BYTES),
            ("flops", &range.flops, Dimension::FLOPS),
            ("intensity", &range.intensity, Dimension::NONE),
            ("streams", &range.streams, Dimension::NONE),
        ] {
            match span.dimension() {
                Ok(dimension) if span.counted().is_none() && dimension.is_none_or(|dimension| dimension == unit) => {}
                Ok(_) => bad(field, &span.to_string(), &format!("it is {}", unit.describe()), unit_help(unit)),
                Err(why) => bad(field, &span.to_string(), &why, "correct `from` or `to`".to_owned()),
            }
        }
        if range.figure == ExpectedFigure::Metric && (range.workload.is_none() || range.metric.is_none()) {
            let help = "write `workload: \"moe\", metric: \"tokens_per_second\"`".to_owned();
            bad("metric", "absent", "a range of a metric names it, and its workload", help);
        }
    }
}

fn unit_help(dimension: Dimension) -> String {
    let example = match dimension {
        Dimension::BYTES => "\"16MiB\"",
        Dimension::FLOPS => "\"100GFLOP\"",
        _ => "\"4\"",
    };
    format!("write it as {example}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_files_are_good_and_sourced() {
        let mut devices = Vec::new();
        for (file, text, _) in &EMBEDDED {
            let expected = Expected::parse(file, text).unwrap_or_else(|error| panic!("{error}"));
            assert!(!expected.ranges.is_empty(), "{file}");
            for (name, source) in &expected.sources {
                assert!(expected.ranges.iter().any(|range| range.source == *name), "{file}: nobody needs {name}");
                match source {
                    FigureSource::Measured(page) => {
                        let page = format!("{}/{page}", env!("CARGO_MANIFEST_DIR"));
                        assert!(std::path::Path::new(&page).is_file(), "{page}");
                    }
                    FigureSource::Published(address) => assert!(address.starts_with("https://"), "{address}"),
                }
            }
            assert!(expected.ranges.iter().all(|range| !range.seen.is_empty()), "{file}");
            devices.extend(expected.devices);
        }
        let count = devices.len();
        devices.sort();
        devices.dedup();
        assert_eq!(devices.len(), count, "two files about one device");
        assert!(Expected::of("NVIDIA H200").is_some() && Expected::of("NVIDIA H200 NVL").is_none());
    }

    #[test]
    fn amd_figures_are_not_marked_as_measured() {
        let expected = Expected::of("AMD Instinct MI300X").unwrap();
        assert!(expected.sources.values().all(|source| matches!(source, FigureSource::Published(_))));
    }
}
