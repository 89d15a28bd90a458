//! `aorta explain operation`: lists the operations, and shows the section of one in the book with its options.

use crate::base::suggest;
use crate::model::operation_elsewhere;
use crate::ops::{self, CATALOGUE, OptionSpec, Preset, usage};

use super::shown;
use crate::cli::error::InputError;
use crate::cli::io::output;

/// The book's page with a section for each operation.
const PAGE: &str = include_str!("../../../../docs/operations.md");

/// The line of the page after which the table of an operation follows.
const TABLE: &str = "<!-- generated";

/// Lists every operation in one line.
pub fn list() -> String {
    let width = CATALOGUE.iter().map(|operation| operation.name().len()).max().unwrap_or(0);
    let row = |operation: &&dyn ops::Operation| output::row(operation.name(), width, operation.signature().summary);
    let rows: String = CATALOGUE.iter().map(row).collect();
    let more = "`aorta explain operation NAME` shows its inputs, outputs and options.";
    format!("operation\n{rows}\n{}", output::paragraph(&[more]))
}

/// Returns the description of the operation of that name.
///
/// # Errors
///
/// Fails if there is no such operation, and names a similar one.
pub fn described(name: &str) -> Result<String, InputError> {
    let Some(operation) = ops::find(name) else {
        let similar = || suggest::nearest(name, CATALOGUE.iter().map(|operation| operation.name()));
        let near = operation_elsewhere(name).or_else(similar);
        let near = near.map(|near| format!("did you mean `operation {near}`? ")).unwrap_or_default();
        let help = format!("{near}`aorta explain operation` lists all operations");
        return Err(InputError::UnknownCode { what: format!("there is no operation `{name}`"), help });
    };
    let options = operation.signature().options;
    let mut text = output::paragraph(&[usage(operation)]) + "\n" + shown(section(name)).trim_end() + "\n";
    if !options.is_empty() {
        text += "\nOptions\n";
        let width = options.iter().map(|option| option.name.len()).max().unwrap_or(0);
        options.iter().for_each(|option| text += &output::row(option.name, width, &about(option)));
    }
    Ok(text)
}

/// The text of an operation's section, without its heading and its table.
fn section(name: &str) -> &'static str {
    let heading = format!("\n## `{name}`\n");
    let behind = PAGE.split_once(&heading).map_or("", |(_, behind)| behind);
    let section = behind.split("\n## ").next().unwrap_or_default();
    section.split(TABLE).next().unwrap_or_default().trim()
}

/// Describes an option: its meaning, type and default.
fn about(option: &OptionSpec) -> String {
    let default = match option.default {
        Preset::Required => "required".to_owned(),
        Preset::Absent => return format!("{}: {}", option.doc, option.kind.describe()).replace('`', ""),
        Preset::Int(value) => format!("default {value}"),
        Preset::Number(value) => format!("default {value}"),
        Preset::Bool(value) => format!("default {value}"),
        Preset::Word(word) => format!("default {word}"),
    };
    format!("{}: {}; {default}", option.doc, option.kind.describe()).replace('`', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_section() {
        for operation in CATALOGUE {
            assert!(section(operation.name()).len() > 20, "{}", operation.name());
            let text = described(operation.name()).expect("it is in the catalogue");
            assert!(!text.contains("](") && !text.contains("<!--"), "{text}");
        }
    }
}
