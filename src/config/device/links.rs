//! Links between devices: the figures with which the simulator times collectives, each with its source.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::base::{suggest, visible};
use crate::config::ron::ron_file;
use crate::config::{ConfigError, Mistakes};

use super::figure::{FigureUnit, SourcedFigure};

/// The links of devices in nodes of equal size. Times in nanoseconds, rates in bytes per second.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Links {
    #[serde(deserialize_with = "visible::read_line")]
    pub name: String,
    /// The device whose links these are, as a part of its name; `None` for any device. A note says so of other devices.
    #[serde(default)]
    pub device: Option<String>,
    pub ranks_per_node: SourcedFigure,
    /// Number of network cards of a node, which its devices share evenly.
    pub cards_per_node: SourcedFigure,
    /// Number of compute units (SMs) that a collective occupies.
    pub units: SourcedFigure,
    pub wiring: Wiring,
    /// A transfer between two devices of a node.
    pub within: Link,
    /// Maximum rate of a device's port (or, in a mesh, of one link) in one direction, in bytes per second: for copies,
    /// and for the kernels of collectives.
    pub port: Port,
    /// A transfer between two nodes, by one network card on each side.
    pub across: Link,
    /// Time that each additional rank adds to a small collective.
    pub hop: SourcedFigure,
    /// Time from the arrival of both ranks of a copy until the one that waits for the other's flag continues. A copy
    /// needs two flags.
    pub flag: SourcedFigure,
    pub tables: Vec<CollectiveTimes>,
}

/// The link from one device to another.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Name of the link in reports.
    #[serde(default = "Link::unnamed", deserialize_with = "visible::read_line")]
    pub name: String,
    /// Minimum time of a transfer.
    pub latency: SourcedFigure,
    /// Bandwidth that a transfer achieves.
    pub bandwidth: SourcedFigure,
    /// Signalling rate in one direction; `None` if it is not known, and the maximum achieved rate is used.
    pub peak: Option<SourcedFigure>,
}

impl Link {
    fn unnamed() -> String {
        "link".to_owned()
    }
}

/// Connection of the devices of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wiring {
    /// Each device has one port to a switch, through which it accesses all others.
    Switch,
    /// Each pair of devices has a link of its own.
    Mesh,
}

/// Rates that a device's port achieves in one direction, shared by all transfers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Rate of copy engines, and of kernels that copy.
    pub copies: SourcedFigure,
    /// Rate of collectives, sends and receives, whose protocols have more overhead.
    pub collectives: SourcedFigure,
}

/// Measured times of a collective within a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename = "Table")]
pub struct CollectiveTimes {
    /// Name of the collective: `all_reduce`, `all_gather`, `reduce_scatter` or `all_to_all`.
    #[serde(deserialize_with = "visible::read_line")]
    pub collective: String,
    pub ranks: u32,
    #[serde(deserialize_with = "visible::read_line")]
    pub source: String,
    /// Size in bytes as defined by nccl-tests, and time in nanoseconds, sorted by size.
    pub times: Vec<(f64, f64)>,
}

/// Links embedded in the program.
static EMBEDDED: [(&str, &str); 2] = [
    ("hgx_h200", include_str!("../../../config/topologies/hgx_h200.ron")),
    ("mi300x", include_str!("../../../config/topologies/mi300x.ron")),
];

impl Links {
    /// Parses links. `file` is their name in messages.
    pub fn parse(file: &str, text: &str) -> Result<Links, ConfigError> {
        let help = "config/topologies/hgx_h200.ron is a whole one";
        let (links, mut mistakes) = ron_file::read::<Links>(file, text, help);
        links.iter().for_each(|links| links.check(&mut mistakes));
        ron_file::strict((links, mistakes))
    }

    /// Names of the embedded links.
    pub fn names() -> impl Iterator<Item = &'static str> {
        EMBEDDED.iter().map(|(name, _)| *name)
    }

    /// Index of the node that contains a rank.
    pub fn node(&self, rank: u32) -> u32 {
        rank / self.ranks_per_node.value() as u32
    }

    /// Index of the network card that a rank uses in its node.
    pub fn card(&self, rank: u32) -> u32 {
        let (ranks, cards) = (self.ranks_per_node.value() as u64, self.cards_per_node.value() as u64);
        (u64::from(rank) % ranks * cards / ranks) as u32
    }

    /// Peak rate in one direction between two ranks of a node, in bytes per second.
    pub fn peak_within(&self) -> f64 {
        let reached = [&self.within.bandwidth, &self.port.copies, &self.port.collectives];
        let most = || reached.map(SourcedFigure::value).into_iter().fold(0.0, f64::max);
        self.within.peak.as_ref().map_or_else(most, SourcedFigure::value)
    }

    /// Peak rate in one direction of a network card, in bytes per second.
    pub fn peak_across(&self) -> f64 {
        self.across.peak.as_ref().unwrap_or(&self.across.bandwidth).value()
    }

    /// Deserializes links given by the name of embedded ones.
    pub(in crate::config) fn by_name<'de, D: Deserializer<'de>>(from: D) -> Result<Links, D::Error> {
        let name = String::deserialize(from)?;
        Links::named(&name).map_err(D::Error::custom)
    }

    /// The embedded links with this name.
    pub fn named(name: &str) -> Result<Links, ConfigError> {
        match EMBEDDED.iter().find(|(known, _)| *known == name) {
            Some((name, text)) => Links::parse(&format!("{name}.ron"), text),
            None => {
                let near = suggest::nearest(name, Links::names().chain(["auto"]));
                let help = near.map(|near| format!("did you mean `{near}`?")).unwrap_or_else(|| {
                    let names = Links::names().collect::<Vec<_>>().join("`, `");
                    format!("known here: `{names}`, `auto`, or the path of a file of your own, `links.ron`")
                });
                Err(ConfigError::UnknownTopology { name: name.to_owned(), help: Some(help) })
            }
        }
    }

    fn check(&self, mistakes: &mut Mistakes) {
        let mut bad = |path: &[&str], name: &str, value: f64, why: &str| {
            let help = format!("correct `{name}`; config/topologies/hgx_h200.ron is a whole one");
            let (name, value, why) = (name.to_owned(), value.to_string(), why.to_owned());
            mistakes.add(path, ConfigError::BadValue { name, value, why, help });
        };
        use FigureUnit::{Count, Nanoseconds, PerSecond};
        let figures = [
            ("ranks_per_node", &self.ranks_per_node, Count),
            ("cards_per_node", &self.cards_per_node, Count),
            ("units", &self.units, Count),
            ("port.copies", &self.port.copies, PerSecond),
            ("port.collectives", &self.port.collectives, PerSecond),
            ("within.bandwidth", &self.within.bandwidth, PerSecond),
            ("across.bandwidth", &self.across.bandwidth, PerSecond),
            ("within.latency", &self.within.latency, Nanoseconds),
            ("across.latency", &self.across.latency, Nanoseconds),
            ("hop", &self.hop, Nanoseconds),
            ("flag", &self.flag, Nanoseconds),
        ];
        let peaks = [("within.peak", &self.within.peak), ("across.peak", &self.across.peak)];
        let peaks = peaks.into_iter().filter_map(|(name, peak)| Some((name, peak.as_ref()?, PerSecond)));
        for (name, figure, unit) in figures.into_iter().chain(peaks) {
            if let Some(why) = unit.refusal(figure.value()) {
                bad(&name.split('.').collect::<Vec<_>>(), name, figure.value(), why);
            }
        }
        for (name, link) in [("within", &self.within), ("across", &self.across)] {
            if let Some(peak) = link.peak.as_ref().filter(|peak| link.bandwidth.value() > peak.value()) {
                bad(&[name, "peak"], &format!("{name}.peak"), peak.value(), "no transfer exceeds the peak of its link");
            }
        }
        for (index, table) in self.tables.iter().enumerate() {
            let name = format!("tables: {} of {} ranks", table.collective, table.ranks);
            let rising = table.times.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
            let positive = table.times.iter().all(|&(bytes, time)| bytes > 0.0 && time > 0.0 && time <= 1e12);
            if table.ranks < 2 || table.times.len() < 2 || !rising || !positive {
                let why = "at least two sizes, which rise as their times do, and times up to 1e12 ns";
                bad(&["tables", &index.to_string()], &name, table.times.len() as f64, why);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_links_are_good() {
        for name in Links::names() {
            Links::named(name).unwrap();
        }
        let text = EMBEDDED[0].1.replace("(65536, 15200)", "(512, 15200)");
        assert!(matches!(Links::parse("x.ron", &text), Err(ConfigError::File(_))));
    }
}
