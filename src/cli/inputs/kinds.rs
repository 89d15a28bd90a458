//! Checks and describes RON files other than scenarios and suites: normal ranges, profiles, topologies, projects.

use std::path::Path;

use crate::base::{counted, visible};
use crate::config::{ConfigError, Expected, Links, Profile, Project, RonKind};

use super::load::{self, FileKind};
use crate::cli::error::InputError;

/// The text and the kind of a file other than a scenario or a suite; `None` for these two.
///
/// # Errors
///
/// The file cannot be read.
pub fn supporting(path: &str) -> Result<Option<(RonKind, String)>, InputError> {
    let text = load::read(Path::new(path), FileKind::Scenario)?;
    let kind = RonKind::of(&text);
    Ok((!matches!(kind, RonKind::Scenario | RonKind::Suite)).then_some((kind, text)))
}

/// Describes a file in one line: `ranges for NVIDIA H200`. Checks every value in it.
///
/// # Errors
///
/// A value is wrong.
pub fn describe(kind: RonKind, file: &str, text: &str) -> Result<String, ConfigError> {
    let line = match kind {
        RonKind::Scenario => "scenario".to_owned(),
        RonKind::Suite => "suite".to_owned(),
        RonKind::Ranges => {
            let expected = Expected::parse(file, text)?;
            format!("{} for {}", counted(expected.ranges.len(), "range"), expected.devices.join(", "))
        }
        RonKind::Profile => format!("device profile of {}", Profile::parse(file, text)?.name),
        RonKind::Topology => format!("topology {}", Links::parse(file, text)?.name),
        RonKind::Project => {
            let project = Project::parse(file, text)?;
            format!("project with the library {}", project.library.join(", "))
        }
    };
    Ok(visible::one_line(&line).into_owned())
}
