//! Commands of GitHub's workflows: lines of output that GitHub shows next to the code or on the page of a run.
//!
//! Source: GitHub's documentation, "Workflow commands for GitHub Actions".

/// Formats a line `::LEVEL NAME=VALUE,…::TEXT`. A level is `error`, `warning` or `notice`. The text may have several
/// lines.
pub fn command(level: &str, properties: &[(&str, String)], text: &str) -> String {
    let properties: Vec<String> =
        properties.iter().map(|(name, value)| format!("{name}={}", property(value))).collect();
    let space = if properties.is_empty() { "" } else { " " };
    format!("::{level}{space}{}::{}\n", properties.join(","), data(text))
}

/// Escapes the text after the last `::`.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Escapes the value of a property.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::command;

    #[test]
    fn separators_are_escaped() {
        assert_eq!(command("notice", &[], "50 %\nof it: a, b"), "::notice::50 %25%0Aof it: a, b\n");
        let properties = [("title", "a:b,c".to_owned()), ("line", 3.to_string())];
        assert_eq!(command("error", &properties, "it fails"), "::error title=a%3Ab%2Cc,line=3::it fails\n");
    }
}
