//! Tokens of a RON text.

/// Deepest nesting of brackets.
pub(super) const MAX_NESTING: usize = 64;

/// A token of RON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    Open(&'a str),
    Close(&'a str),
    Comma(&'a str),
    Colon,
    /// `// …` or `/* … */`.
    Comment(&'a str),
    /// A text, a number or a word.
    Atom(&'a str),
}

/// A token with the number of line ends before it, up to two.
pub(super) type TokenAfterLines<'a> = (Token<'a>, usize);

/// The tokens of a text.
///
/// # Errors
///
/// The offset of a text or a comment that does not close, or of an attribute, `#`.
pub(super) fn tokens<'a>(text: &'a str) -> Result<Vec<TokenAfterLines<'a>>, usize> {
    let mut tokens = Vec::new();
    let (mut rest, mut lines) = (text.strip_prefix('\u{feff}').unwrap_or(text), 0);
    while let Some(first) = rest.chars().next() {
        if first.is_whitespace() {
            lines += usize::from(first == '\n');
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let here = text.len() - rest.len();
        let (length, token): (usize, fn(&'a str) -> Token<'a>) = match first {
            '(' | '[' | '{' => (1, Token::Open),
            ')' | ']' | '}' => (1, Token::Close),
            ',' => (1, Token::Comma),
            ':' => (1, |_| Token::Colon),
            '#' => return Err(here),
            '/' if rest.starts_with("//") => {
                (rest.find('\n').unwrap_or(rest.len()), |text| Token::Comment(text.trim_end()))
            }
            '/' if rest.starts_with("/*") => (block_comment(rest).ok_or(here)?, Token::Comment),
            '"' => (quoted(rest, '"').ok_or(here)?, Token::Atom),
            '\'' => (quoted(rest, '\'').ok_or(here)?, Token::Atom),
            'r' if raw(rest).is_some() => (raw(rest).flatten().ok_or(here)?, Token::Atom),
            _ => (
                rest.find(|c: char| c.is_whitespace() || "()[]{},:\"'/#".contains(c))
                    .filter(|end| *end > 0)
                    .unwrap_or_else(|| if "/".contains(first) { first.len_utf8() } else { rest.len() }),
                Token::Atom,
            ),
        };
        let (own, behind) = rest.split_at(length);
        tokens.push((token(own), lines.min(2)));
        (rest, lines) = (behind, 0);
    }
    Ok(tokens)
}

/// The length of a text in quotes with escapes; `None` if it does not end.
fn quoted(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            letter if letter == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// The length of a raw text, `r#"…"#`: `None` if the word does not begin a raw text, `Some(None)` if it does not end.
fn raw(text: &str) -> Option<Option<usize>> {
    let hashes = text[1..].len() - text[1..].trim_start_matches('#').len();
    let inner = text[1 + hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(inner.find(&end).map(|at| 2 + hashes + at + end.len()))
}

/// The length of a block comment, which can be nested; `None` if it does not end.
fn block_comment(text: &str) -> Option<usize> {
    let (mut depth, mut at) = (0usize, 0);
    loop {
        let rest = text.get(at..)?;
        match () {
            () if rest.starts_with("/*") => (depth, at) = (depth + 1, at + 2),
            () if rest.starts_with("*/") => (depth, at) = (depth - 1, at + 2),
            () => at += rest.chars().next()?.len_utf8(),
        }
        if depth == 0 {
            return Some(at);
        }
    }
}
