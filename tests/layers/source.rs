//! Splits Rust source into tokens and paths. Enough to read imports and calls; not a parser.

/// A token: a word, `::`, one other character, or `"` for a literal. Comments are left out.
#[derive(Clone, Debug)]
pub struct Token {
    pub text: String,
    /// Line of its first character, from 1.
    pub line: usize,
}

/// A path in the code, from the crate's root or from an external crate's name.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// False if it begins with another crate's name.
    pub own: bool,
    pub segments: Vec<String>,
    pub line: usize,
}

/// Words after which `::std` begins a path.
const KEYWORDS: [&str; 7] = ["as", "dyn", "impl", "in", "mut", "return", "use"];

fn in_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_word(text: &str) -> bool {
    text.starts_with(in_word)
}

/// The tokens of a text.
pub fn tokens(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let at = |index: usize| chars.get(index).copied().unwrap_or('\0');
    let mut tokens = Vec::new();
    let (mut i, mut line) = (0, 1);
    while i < chars.len() {
        let start = i;
        let mut token = None;
        if at(i) == '/' && at(i + 1) == '/' {
            while i < chars.len() && at(i) != '\n' {
                i += 1;
            }
        } else if at(i) == '/' && at(i + 1) == '*' {
            i = comment_end(&chars, i);
        } else if let Some(end) = text_end(&chars, i) {
            token = Some("\"".to_owned());
            i = end;
        } else if at(i) == '\'' {
            i = quote_end(&chars, i);
        } else if at(i) == 'r' && at(i + 1) == '#' && in_word(at(i + 2)) {
            // A raw identifier: `r#type`.
            i += 2;
        } else if in_word(at(i)) {
            while in_word(at(i)) {
                i += 1;
            }
            token = Some(chars[start..i].iter().collect());
        } else if at(i) == ':' && at(i + 1) == ':' {
            token = Some("::".to_owned());
            i += 2;
        } else {
            token = Some(at(i).to_string()).filter(|_| !at(i).is_whitespace());
            i += 1;
        }
        tokens.extend(token.map(|text| Token { text, line }));
        line += chars[start..i].iter().filter(|c| **c == '\n').count();
    }
    tokens
}

/// The index after a block comment, which may be nested.
fn comment_end(chars: &[char], start: usize) -> usize {
    let (mut i, mut depth) = (start, 0);
    while i < chars.len() {
        match chars[i..] {
            ['/', '*', ..] => (i, depth) = (i + 2, depth + 1),
            ['*', '/', ..] => (i, depth) = (i + 2, depth - 1),
            _ => i += 1,
        }
        if depth == 0 {
            break;
        }
    }
    i
}

/// The index after a string literal of any kind, `"…"`, `b"…"`, `r#"…"#`; `None` if none begins here.
fn text_end(chars: &[char], start: usize) -> Option<usize> {
    let at = |index: usize| chars.get(index).copied().unwrap_or('\0');
    let mut i = start;
    if matches!(at(i), 'b' | 'c') && matches!(at(i + 1), '"' | 'r') {
        i += 1;
    }
    let raw = at(i) == 'r' && matches!(at(i + 1), '"' | '#');
    let mut hashes = 0;
    if raw {
        i += 1;
        while at(i) == '#' {
            (i, hashes) = (i + 1, hashes + 1);
        }
    }
    if at(i) != '"' {
        return None;
    }
    i += 1;
    while i < chars.len() {
        if !raw && at(i) == '\\' {
            i += 2;
        } else if at(i) == '"' && (0..hashes).all(|hash| at(i + 1 + hash) == '#') {
            return Some(i + 1 + hashes);
        } else {
            i += 1;
        }
    }
    Some(chars.len())
}

/// The index after a character literal, or after the quote of a lifetime.
fn quote_end(chars: &[char], start: usize) -> usize {
    match chars[start + 1..] {
        ['\\', _, ..] => {
            let rest = &chars[start + 3..];
            start + 3 + rest.iter().position(|c| *c == '\'').map_or(rest.len(), |end| end + 1)
        }
        [_, '\'', ..] => start + 3,
        _ => start + 1,
    }
}

/// Every path in the code that begins at a root: `crate`, `self` and `super` resolved in `module`, or the name of one
/// of the `others`. Groups (`use a::{b, c::d}`) give a path for each member.
pub fn paths(tokens: &[Token], module: &[String], others: &[&str]) -> Vec<Path> {
    let text = |index: usize| tokens.get(index).map_or("", |token| token.text.as_str());
    // Inline modules, each with the depth of braces at which it ends.
    let mut inner: Vec<(String, usize)> = Vec::new();
    let mut depth = 0;
    let mut found = Vec::new();
    for i in 0..tokens.len() {
        match text(i) {
            "{" => depth += 1,
            "}" => {
                depth = usize::saturating_sub(depth, 1);
                inner.retain(|(_, end)| *end <= depth);
            }
            "mod" if text(i + 2) == "{" => inner.push((text(i + 1).to_owned(), depth + 1)),
            _ => {}
        }
        let own = matches!(text(i), "crate" | "self" | "super");
        let continues = i > 1 && text(i - 1) == "::" && is_word(text(i - 2)) && !KEYWORDS.contains(&text(i - 2));
        if text(i + 1) != "::" || continues || !(own || others.contains(&text(i))) {
            continue;
        }
        let here: Vec<String> = module.iter().cloned().chain(inner.iter().map(|(name, _)| name.clone())).collect();
        let mut leaves = Vec::new();
        tree(tokens, i, &mut Vec::new(), &mut leaves);
        for (segments, line) in leaves {
            let segments = if own { resolve(&segments, &here) } else { segments };
            found.push(Path { own, segments, line });
        }
    }
    found
}

/// Every path that a module exports again with `pub use`, from the crate's root.
pub fn exports(tokens: &[Token], module: &[String]) -> Vec<Vec<String>> {
    let text = |index: usize| tokens.get(index).map_or("", |token| token.text.as_str());
    let mut leaves = Vec::new();
    for i in 1..tokens.len() {
        // `pub use` or `pub(super) use`.
        if text(i) == "use" && matches!(text(i - 1), "pub" | ")") {
            tree(tokens, i + 1, &mut Vec::new(), &mut leaves);
        }
    }
    leaves.into_iter().map(|(segments, _)| resolve(&segments, module)).collect()
}

/// The tokens without inline modules of tests.
pub fn without_tests(tokens: Vec<Token>) -> Vec<Token> {
    let begins = |at: usize| {
        let texts = tokens[at..].iter().map(|token| token.text.as_str());
        texts.take(8).eq(["#", "[", "cfg", "(", "test", ")", "]", "mod"])
            && tokens.get(at + 9).is_some_and(|token| token.text == "{")
    };
    let mut kept = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        if begins(at) {
            let mut depth = 0;
            at += 9;
            while let Some(token) = tokens.get(at) {
                at += 1;
                depth += i32::from(token.text == "{") - i32::from(token.text == "}");
                if depth == 0 {
                    break;
                }
            }
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    kept
}

/// Reads a path or a tree of paths, and returns the index after it.
fn tree(tokens: &[Token], start: usize, before: &mut Vec<String>, leaves: &mut Vec<(Vec<String>, usize)>) -> usize {
    let text = |index: usize| tokens.get(index).map_or("", |token| token.text.as_str());
    let is_segment = |text: &str| is_word(text) || text == "*";
    let depth = before.len();
    let mut i = start;
    let mut grouped = false;
    while is_segment(text(i)) {
        before.push(text(i).to_owned());
        i += 1;
        if text(i) != "::" || !(is_segment(text(i + 1)) || text(i + 1) == "{") {
            break;
        }
        i += 1;
        if text(i) == "{" {
            grouped = true;
            i += 1;
            while i < tokens.len() && text(i) != "}" {
                let end = tree(tokens, i, before, leaves);
                // Skips `as name` and commas between the members.
                i = end.max(i + 1);
                if text(i) == "as" {
                    i += 2;
                }
                if text(i) == "," {
                    i += 1;
                }
            }
            i += 1;
        }
    }
    if !grouped && before.len() > depth {
        let mut leaf = before.clone();
        // `a::{self}` names `a`.
        if leaf.len() > 1 && leaf.last().is_some_and(|last| last == "self") {
            leaf.pop();
        }
        leaves.push((leaf, tokens[start].line));
    }
    before.truncate(depth);
    i
}

/// Resolves a path from the crate's root.
fn resolve(segments: &[String], module: &[String]) -> Vec<String> {
    let mut absolute = if segments[0] == "crate" { Vec::new() } else { module.to_vec() };
    for segment in segments {
        match segment.as_str() {
            "crate" | "self" => {}
            "super" => {
                absolute.pop();
            }
            _ => absolute.push(segment.clone()),
        }
    }
    absolute
}
