//! Kinds of RON files, recognized by their fields.

use super::places::Places;

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
    /// Returns the kind of a text, recognized by its fields or, if its brackets do not match, by the words in it. A text with
    /// none of the fields is a scenario.
    pub fn of(text: &str) -> RonKind {
        let places = Places::of(text);
        let has = |name: &str| match &places {
            Some(places) => places.names().any(|known| known == name),
            None => text.contains(&format!("{name}:")),
        };
        FIELDS.iter().find(|(name, _)| has(name)).map_or(RonKind::Scenario, |(_, kind)| *kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_tell_the_kind() {
        let files = [
            (include_str!("../../../config/devices/h200.ron"), RonKind::Profile),
            (include_str!("../../../config/topologies/mi300x.ron"), RonKind::Topology),
            (include_str!("../../../config/expected/h200.ron"), RonKind::Ranges),
            (include_str!("../../../config/suites/smoke.ron"), RonKind::Suite),
            (include_str!("../../../config/scenarios/moe_h200.ron"), RonKind::Scenario),
            ("(library: [\".\"])", RonKind::Project),
            ("(devices: [\"A\"], ranges: [(bytes: 1 2)])", RonKind::Ranges),
            ("(efort: quick)", RonKind::Scenario),
            ("(description: \"cases: many\", workload: 3)", RonKind::Scenario),
        ];
        for (text, kind) in files {
            assert_eq!(RonKind::of(text), kind, "{}", text.lines().next().unwrap_or_default());
        }
    }
}
