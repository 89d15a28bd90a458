//! Scenarios: a workload with all options of its run, as one team hands it to another.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::base::shell;

use super::choices::Effort;
use super::error::{ConfigError, bad_ron};
use super::variables;

/// Help on where all fields are explained.
const FIELDS: &str = "docs/start/05-sharing-a-scenario.md lists the fields of a scenario";

/// The contents of a scenario file. Flags on the command line take precedence.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// A description in one line.
    pub description: Option<String>,
    /// The name of a shipped workload, or a path relative to the scenario.
    pub workload: String,
    pub preset: Option<String>,
    /// Values of parameters, as after `--set name=`.
    pub params: BTreeMap<String, String>,
    pub streams: Option<u32>,
    /// Environment variables for the vendor's driver and libraries; only those on the list in `variables` are allowed.
    pub environment: BTreeMap<String, String>,
    pub backend: Option<String>,
    pub profile: Option<String>,
    pub device: Option<u32>,
    pub ranks: Option<u32>,
    pub launch: Option<String>,
    pub effort: Option<Effort>,
}

impl Scenario {
    /// Parses a scenario. `file` is its name in messages.
    pub fn parse(file: &str, text: &str) -> Result<Scenario, ConfigError> {
        let options = ron::Options::default().with_default_extension(ron::extensions::Extensions::IMPLICIT_SOME);
        let scenario: Scenario = options.from_str(text).map_err(|error| bad_ron(file, &error, FIELDS))?;
        if scenario.workload.is_empty() {
            return Err(ConfigError::NoWorkload { file: file.to_owned() });
        }
        for (name, value) in &scenario.environment {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return Err(ConfigError::BadVariable { file: file.to_owned(), name: name.escape_debug().to_string() });
            }
            variables::check(name, value).map_err(|why| ConfigError::RefusedVariable {
                file: file.to_owned(),
                name: name.clone(),
                why,
                pair: shell::command([format!("{name}={value}")]),
            })?;
        }
        Ok(scenario)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_scenario() {
        let text = r#"(workload: "moe", preset: "tiny", params: {"streams": "8"}, backend: "sim", effort: quick)"#;
        let scenario = Scenario::parse("a.ron", text).unwrap();
        assert_eq!(scenario.workload, "moe");
        assert_eq!(scenario.effort, Some(Effort::Quick));
        assert!(Scenario::parse("a.ron", "()").is_err());
        assert!(Scenario::parse("a.ron", "(workload: \"moe\", colour: 3)").is_err());
    }
}
