//! Escapes text for XML.

/// Escapes text for XML, also inside quotes. Characters that XML cannot contain are left out.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(letter),
            _ if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => {}
            _ => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn invalid_xml_characters_are_escaped_or_left_out() {
        assert_eq!(escaped("a < \"b\" & c\u{1b}[0m"), "a &lt; &quot;b&quot; &amp; c[0m");
    }
}
