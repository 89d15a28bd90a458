//! Text as Markdown takes it, for the forms that are Markdown.

/// Text that stays in its cell, and is no markup.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '|' | '*' | '_' | '[' | ']' | '<' | '`' | '\\' => escaped.extend(['\\', letter]),
            '\n' | '\r' => escaped.push(' '),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn a_cell_stays_a_cell() {
        assert_eq!(escaped("a|b_c[2]\n`d` -> <e>"), "a\\|b\\_c\\[2\\] \\`d\\` -> \\<e>");
    }
}
