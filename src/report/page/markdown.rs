//! A page as Markdown.

use super::{Page, Table};

/// Cells that are emphasized.
const EMPHASIZED: [&str; 5] = ["better", "worse", "failed", "not held", "out of memory"];

/// Formats pages as Markdown: first the result, then the sections, with lines as lists.
pub fn markdown(pages: &[Page]) -> String {
    pages.iter().map(page_text).collect::<Vec<_>>().join("\n")
}

fn page_text(page: &Page) -> String {
    let bold = |text: &str| format!("**{}**\n", escaped(text));
    let list = |lines: &[String]| lines.iter().map(|line| format!("- {}\n", escaped(line))).collect::<String>();
    let warning_lines: Vec<String> = page.warning_lines().collect();
    let mut parts = vec![bold(&page.summary), list(&warning_lines)];
    for section in &page.sections {
        parts.extend((!section.title.is_empty()).then(|| bold(&section.title)));
        parts.extend([
            list(&section.lines),
            section.table.as_ref().map(table).unwrap_or_default(),
            list(&section.notes),
        ]);
    }
    parts.retain(|part| !part.is_empty() && part != "****\n");
    parts.join("\n")
}

fn table(table: &Table) -> String {
    let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let cell = |text: &String| match EMPHASIZED.contains(&text.as_str()) {
        true => format!("**{text}**"),
        false => escaped(text),
    };
    let ruler = table.columns.iter().map(|column| if column.left { "---" } else { "---:" }.to_owned());
    let mut text = row(table.columns.iter().map(|column| escaped(&column.name)).collect()) + &row(ruler.collect());
    text.extend(table.rows.iter().map(|cells| row(cells.iter().map(cell).collect())));
    text
}

/// Escapes text so that it stays in its cell and contains no markup: no links, images or HTML, and on GitHub no
/// mentions, references to issues or automatic links.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for (at, letter) in text.char_indices() {
        let (before, behind) = (&text[..at], &text[at + letter.len_utf8()..]);
        match letter {
            '|' | '*' | '_' | '[' | ']' | '<' | '`' | '\\' | '~' | '!' | '$' => escaped.extend(['\\', letter]),
            '&' => escaped.push_str("&amp;"),
            // GitHub recognizes these even after a backslash, but not in an element of their own.
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

/// Appends a character in an HTML element of its own.
fn alone(letter: char, out: &mut String) {
    out.push_str("<span>");
    out.push(letter);
    out.push_str("</span>");
}

/// True if the text ends with `end`, ignoring case.
fn ends_with(text: &str, end: &str) -> bool {
    let begin = text.len().checked_sub(end.len());
    begin.and_then(|begin| text.get(begin..)).is_some_and(|last| last.eq_ignore_ascii_case(end))
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn cells_are_escaped() {
        assert_eq!(escaped("a|b_c[2]\n`d` -> <e>"), "a\\|b\\_c\\[2\\] \\`d\\` -> \\<e>");
    }

    #[test]
    fn markdown_contains_no_links_or_mentions() {
        assert_eq!(escaped("![a](b) <img src=x>"), "\\!\\[a\\](b) \\<img src=x>");
        assert_eq!(escaped("@team #1 a/b#2"), "<span>@</span>team <span>#</span>1 a/b<span>#</span>2");
        assert_eq!(
            escaped("https://a.b WWW.a.b GH-1"),
            "https<span>:</span>//a.b WWW<span>.</span>a.b GH<span>-</span>1"
        );
        assert_eq!(escaped("base: a.json, 3.5 µs - x"), "base: a.json, 3.5 µs - x");
    }
}
