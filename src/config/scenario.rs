//! A scenario: a workload with everything that says how it is run, as one team hands it to another.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::base::shell;

use super::choices::Effort;
use super::error::{ConfigError, bad_ron};
use super::variables;

/// Where all fields are explained.
const FIELDS: &str = "docs/start/05-sharing-a-scenario.md lists the fields of a scenario";

/// The contents of a scenario file. Flags of the command line come before it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// A line for people.
    pub description: Option<String>,
    /// A name of the library, or a path relative to the scenario.
    pub workload: String,
    pub preset: Option<String>,
    /// Parameters, as they would be written behind `--set name=`.
    pub params: BTreeMap<String, String>,
    pub streams: Option<u32>,
    /// Variables for the vendor's driver and libraries, of those in the allowlist.
    pub environment: BTreeMap<String, String>,
    pub backend: Option<String>,
    pub profile: Option<String>,
    pub device: Option<u32>,
    pub ranks: Option<u32>,
    pub launch: Option<String>,
    pub effort: Option<Effort>,
}

impl Scenario {
    /// Reads a scenario; `file` names it in messages.
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
