//! Kinds of RON files, recognized by their fields.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::ron_file::options;

/// The kind of a RON file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RonKind {
    Scenario,
    Suite,
    /// Normal ranges of a device.
    Ranges,
    /// A device profile.
    Profile,
    /// Links between devices.
    Topology,
    Project,
}

/// Fields that distinguish the kinds of files, in the order in which they are tested.
const FIELDS: [(&str, RonKind); 7] = [
    ("cases", RonKind::Suite),
    ("workload", RonKind::Scenario),
    ("ranges", RonKind::Ranges),
    ("sources", RonKind::Ranges),
    ("wiring", RonKind::Topology),
    ("vendor", RonKind::Profile),
    ("library", RonKind::Project),
];

impl RonKind {
    /// The kind that a text is meant as: by its fields, or, if it cannot be read, by the words in it. A text with none
    /// of the fields is a scenario.
    pub fn of(text: &str) -> RonKind {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Head {
            cases: Option<IgnoredAny>,
            workload: Option<IgnoredAny>,
            ranges: Option<IgnoredAny>,
            sources: Option<IgnoredAny>,
            wiring: Option<IgnoredAny>,
            vendor: Option<IgnoredAny>,
            library: Option<IgnoredAny>,
        }
        let head = options().from_str::<Head>(text).map(|head| {
            [head.cases, head.workload, head.ranges, head.sources, head.wiring, head.vendor, head.library]
                .map(|field| field.is_some())
        });
        let has = head.unwrap_or_else(|_| FIELDS.map(|(name, _)| text.contains(&format!("{name}:"))));
        let found = FIELDS.iter().zip(has).find(|(_, has)| *has);
        found.map_or(RonKind::Scenario, |((_, kind), _)| *kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_tell_the_kind() {
        let files = [
            (include_str!("../../config/devices/h200.ron"), RonKind::Profile),
            (include_str!("../../config/topologies/mi300x.ron"), RonKind::Topology),
            (include_str!("../../config/expected/h200.ron"), RonKind::Ranges),
            (include_str!("../../config/suites/smoke.ron"), RonKind::Suite),
            (include_str!("../../config/scenarios/moe_h200.ron"), RonKind::Scenario),
            ("(library: [\".\"])", RonKind::Project),
            ("(devices: [\"A\"], ranges: [(bytes: 1 2)])", RonKind::Ranges),
            ("(efort: quick)", RonKind::Scenario),
        ];
        for (text, kind) in files {
            assert_eq!(RonKind::of(text), kind, "{}", text.lines().next().unwrap_or_default());
        }
    }
}
