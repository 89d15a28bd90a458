//! Texts in diagrams of Mermaid.

/// The text in quotation marks.
pub(in crate::report) fn quoted(text: &str) -> String {
    format!("\"{}\"", escaped(text))
}

/// Writes characters with a meaning in Mermaid or HTML as character codes.
pub(in crate::report) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // `%%{` would begin a directive.
            '"' | '#' | '%' | '&' | ';' | '<' | '>' | '\\' | '`' => out += &format!("#{};", c as u32),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn texts_are_escaped() {
        assert_eq!(quoted("#1 a[\"b\"]\n"), "\"#35;1 a[#34;b#34;] \"");
        assert_eq!(quoted("%%{init}%%"), "\"#37;#37;{init}#37;#37;\"");
    }
}
