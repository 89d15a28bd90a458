//! Projects: a folder with a file `aorta.ron`, which names the folders of its library.

use std::path::{Component, Path};

use serde::Deserialize;

use crate::config::ConfigError;
use crate::config::ron::ron_file;

/// Name of the file that makes a folder a project.
pub const PROJECT_FILE: &str = "aorta.ron";

/// Help on where the fields are explained.
const FIELDS: &str = "docs/sharing.md lists the fields of a project";

/// The contents of a project's file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Project {
    /// A description in one line; `None` without one.
    pub description: Option<String>,
    /// Folders below the project's, whose files can be named without a path.
    pub library: Vec<String>,
}

impl Project {
    /// Parses a project's file. `file` is its name in messages.
    pub fn parse(file: &str, text: &str) -> Result<Project, ConfigError> {
        let (project, mut mistakes) = ron_file::read::<Project>(file, text, FIELDS);
        let is_below = |folder: &str| {
            let mut parts = Path::new(folder).components();
            !folder.is_empty() && parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
        };
        for (index, folder) in project.iter().flat_map(|project| &project.library).enumerate() {
            if !is_below(folder) {
                let error = ConfigError::BadValue {
                    name: "library".to_owned(),
                    value: format!("{folder:?}"),
                    why: "a library has to be below the project's folder".to_owned(),
                    help: "write `library: [\"workloads\"]`, or `[\".\"]` for the whole project".to_owned(),
                };
                mistakes.add(&["library", &index.to_string()], error);
            }
        }
        ron_file::strict((project, mistakes))
    }

    /// The text of a project with one library.
    pub fn with_library(folder: &str) -> String {
        Project { description: None, library: vec![folder.to_owned()] }.to_ron()
    }

    /// The text of the project's file. A library without a name is the project's folder.
    pub fn to_ron(&self) -> String {
        let named = |folder: &String| if folder.is_empty() { ".".to_owned() } else { folder.clone() };
        let library: Vec<String> = self.library.iter().map(named).collect();
        match &self.description {
            Some(description) => format!("(description: {description:?}, library: {library:?})\n"),
            None => format!("(library: {library:?})\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_lies_in_its_project() {
        let read = |folder: &str| Project::parse("aorta.ron", &format!("(library: [{folder:?}])"));
        for good in ["a", "a/b", ".", "./a"] {
            assert_eq!(read(good).unwrap().library, [good]);
        }
        for bad in ["", "..", "a/../b", "/a", "a/.."] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert_eq!(Project::parse("aorta.ron", &Project::with_library("a b")).unwrap().library, ["a b"]);
        let described =
            Project { description: Some("a \"b\" \u{e9}".to_owned()), library: vec!["a".to_owned(), "b".to_owned()] };
        assert_eq!(Project::parse("aorta.ron", &described.to_ron()).unwrap(), described);
    }
}
