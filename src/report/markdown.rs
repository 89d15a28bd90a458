//! Text as Markdown takes it, for the forms that are Markdown.

/// Text that stays in its cell, and is no markup: no links, images or HTML, and on GitHub no mention of a person, no
/// reference to an issue and no address that becomes a link by itself.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for (at, letter) in text.char_indices() {
        let (before, behind) = (&text[..at], &text[at + letter.len_utf8()..]);
        match letter {
            '|' | '*' | '_' | '[' | ']' | '<' | '`' | '\\' | '~' | '!' | '$' => escaped.extend(['\\', letter]),
            '&' => escaped.push_str("&amp;"),
            // GitHub finds these behind a backslash too, but not in an element of their own.
            '@' | '#' => alone(letter, &mut escaped),
            ':' if behind.starts_with("//") => alone(letter, &mut escaped),
            '.' if ends_with(before, "www") => alone(letter, &mut escaped),
            '-' if ends_with(before, "gh") => alone(letter, &mut escaped),
            '\n' | '\r' => escaped.push(' '),
            letter => escaped.push(letter),
        }
    }
    escaped
}

fn alone(letter: char, out: &mut String) {
    out.push_str("<span>");
    out.push(letter);
    out.push_str("</span>");
}

/// Whether the text ends so, in any case.
fn ends_with(text: &str, end: &str) -> bool {
    let begin = text.len().checked_sub(end.len());
    begin.and_then(|begin| text.get(begin..)).is_some_and(|last| last.eq_ignore_ascii_case(end))
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn a_cell_stays_a_cell() {
        assert_eq!(escaped("a|b_c[2]\n`d` -> <e>"), "a\\|b\\_c\\[2\\] \\`d\\` -> \\<e>");
    }

    #[test]
    fn nothing_becomes_a_link_or_calls_somebody() {
        assert_eq!(escaped("![a](b) <img src=x>"), "\\!\\[a\\](b) \\<img src=x>");
        assert_eq!(escaped("@team #1 a/b#2"), "<span>@</span>team <span>#</span>1 a/b<span>#</span>2");
        assert_eq!(
            escaped("https://a.b WWW.a.b GH-1"),
            "https<span>:</span>//a.b WWW<span>.</span>a.b GH<span>-</span>1"
        );
        assert_eq!(escaped("base: a.json, 3.5 µs - x"), "base: a.json, 3.5 µs - x");
    }
}
