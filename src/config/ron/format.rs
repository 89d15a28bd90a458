//! The one form of a RON text: scenarios, suites and other files of settings. Works on tokens and keeps all comments.
//!
//! The outermost brackets hold one item on each line. Other brackets stay on one line if they fit and hold no comment.

use super::tokens::{MAX_NESTING, Token, TokenAfterLines, tokens};

/// Longest line that brackets may fill.
const WIDTH: usize = 100;

/// A value with its key, or a comment on lines of its own.
#[derive(Debug)]
struct FormattedItem<'a> {
    /// True if an empty line is before it.
    apart: bool,
    pieces: Vec<Piece<'a>>,
    /// Comments after the item on the same line.
    trailing: Vec<&'a str>,
}

#[derive(Debug)]
enum Piece<'a> {
    Atom(&'a str),
    Colon,
    Comment(&'a str),
    Group(&'a str, Vec<FormattedItem<'a>>, &'a str),
}

impl FormattedItem<'_> {
    /// True if no colon follows its last value.
    fn ends_with_value(&self) -> bool {
        let last = self.pieces.iter().rev().find(|piece| !matches!(piece, Piece::Comment(_)));
        matches!(last, Some(Piece::Atom(_) | Piece::Group(..)))
    }

    /// True if `next` belongs to a name before it: `measured("here")`, `name: 1`.
    fn is_name_of(&self, next: &Piece) -> bool {
        let last = self.pieces.iter().rev().find(|piece| !matches!(piece, Piece::Comment(_)));
        match next {
            Piece::Group(..) => matches!(last, Some(Piece::Atom(_))),
            next => !matches!(next, Piece::Atom(_)),
        }
    }
}

/// Formats a RON text. `None` if its brackets, texts or comments do not close, if a comma is missing between two
/// values, or if it begins with an attribute, `#`: such a text is not formatted.
pub fn format_ron(text: &str) -> Option<String> {
    let tokens = tokens(text).ok()?;
    let mut at = 0;
    let items = items(&tokens, &mut at, 0)?;
    if at < tokens.len() {
        return None;
    }
    let mut out = String::new();
    for (index, item) in items.iter().enumerate() {
        if item.apart && index > 0 {
            out.push('\n');
        }
        write_item(item, 0, true, &mut out);
        write_trailing_comments(item, &mut out);
        out.push('\n');
    }
    Some(out)
}

/// Items up to a closing bracket or the end; `None` if brackets do not match.
fn items<'a>(tokens: &[TokenAfterLines<'a>], at: &mut usize, depth: usize) -> Option<Vec<FormattedItem<'a>>> {
    if depth > MAX_NESTING {
        return None;
    }
    let mut items: Vec<FormattedItem> = Vec::new();
    // True after a comma and at the start: the next value is a new item.
    let mut fresh = true;
    while let Some(&(token, lines)) = tokens.get(*at) {
        let item = |piece| FormattedItem { apart: lines > 1, pieces: vec![piece], trailing: Vec::new() };
        match token {
            Token::Close(_) => break,
            Token::Comma(_) => fresh = true,
            Token::Comment(text) => match items.last_mut().filter(|_| lines == 0) {
                Some(last) => last.trailing.push(text),
                // A comment before a comma or a bracket becomes an item of its own: as a part of the value, it would hide the
                // comma that is written behind the value.
                None if fresh || ends(&tokens[*at..]) => items.push(item(Piece::Comment(text))),
                None => items.last_mut()?.pieces.push(Piece::Comment(text)),
            },
            Token::Atom(_) | Token::Colon | Token::Open(_) => {
                let piece = match token {
                    Token::Atom(text) => Piece::Atom(text),
                    Token::Open(open) => {
                        *at += 1;
                        let inner = self::items(tokens, at, depth + 1)?;
                        let Some(&(Token::Close(close), _)) = tokens.get(*at) else { return None };
                        if !matches!((open, close), ("(", ")") | ("[", "]") | ("{", "}")) {
                            return None;
                        }
                        Piece::Group(open, inner, close)
                    }
                    _ => Piece::Colon,
                };
                match items.last_mut().filter(|_| !fresh) {
                    // Without a comma between them, two values are a mistake.
                    Some(last) if last.ends_with_value() && !last.is_name_of(&piece) => return None,
                    // A comment between the parts of an item stays between them.
                    Some(last) => {
                        let between = std::mem::take(&mut last.trailing);
                        last.pieces.extend(between.into_iter().map(Piece::Comment));
                        last.pieces.push(piece);
                    }
                    None => items.push(item(piece)),
                }
                fresh = false;
            }
        }
        *at += 1;
    }
    Some(items)
}

/// True if only comments lie before the next comma or closing bracket.
fn ends(tokens: &[TokenAfterLines]) -> bool {
    let next = tokens.iter().find(|(token, _)| !matches!(token, Token::Comment(_)));
    matches!(next, Some((Token::Comma(_) | Token::Close(_), _)))
}

/// Writes an item without a trailing comma or comment. With `outer`, its brackets are broken over lines in any case.
fn write_item(item: &FormattedItem, indent: usize, outer: bool, out: &mut String) {
    for (index, piece) in item.pieces.iter().enumerate() {
        // A named struct has its name before its brackets, without a space.
        let spaced = index > 0
            && !matches!((piece, &item.pieces[index - 1]), (Piece::Colon, _) | (Piece::Group(..), Piece::Atom(_)));
        if spaced && !out.ends_with('\n') {
            out.push(' ');
        }
        match piece {
            Piece::Atom(text) => *out += text,
            Piece::Colon => out.push(':'),
            Piece::Comment(text) => {
                *out += text;
                if text.starts_with("//") && index + 1 < item.pieces.len() {
                    *out += &format!("\n{}", "    ".repeat(indent + 1));
                }
            }
            Piece::Group(open, items, close) => write_group((open, items, close), indent, outer, out),
        }
    }
}

fn write_group((open, items, close): (&str, &[FormattedItem], &str), indent: usize, outer: bool, out: &mut String) {
    *out += open;
    let line = flat(items).filter(|line| {
        let before = out.len() - out.rfind('\n').map_or(0, |at| at + 1);
        (items.is_empty() || !outer) && before + line.chars().count() + 2 <= WIDTH
    });
    match line {
        Some(line) => *out += &line,
        None => {
            for (index, item) in items.iter().enumerate() {
                *out += if item.apart && index > 0 { "\n\n" } else { "\n" };
                *out += &"    ".repeat(indent + 1);
                write_item(item, indent + 1, false, out);
                if !matches!(item.pieces[..], [Piece::Comment(_)]) {
                    out.push(',');
                }
                write_trailing_comments(item, out);
            }
            *out += &format!("\n{}", "    ".repeat(indent));
        }
    }
    *out += close;
}

/// Writes the comments that follow an item on its line.
fn write_trailing_comments(item: &FormattedItem, out: &mut String) {
    item.trailing.iter().for_each(|comment| *out += &format!(" {comment}"));
}

/// Items on one line; `None` if there is a comment.
fn flat(items: &[FormattedItem]) -> Option<String> {
    let mut line = String::new();
    for (index, item) in items.iter().enumerate() {
        let has_comment = |item: &FormattedItem| {
            !item.trailing.is_empty() || item.pieces.iter().any(|piece| matches!(piece, Piece::Comment(_)))
        };
        if has_comment(item) {
            return None;
        }
        for (place, piece) in item.pieces.iter().enumerate() {
            let joined = matches!(piece, Piece::Colon)
                || matches!(
                    (piece, place.checked_sub(1).map(|before| &item.pieces[before])),
                    (Piece::Group(..), Some(Piece::Atom(_)))
                );
            if place > 0 && !joined {
                line.push(' ');
            }
            match piece {
                Piece::Atom(text) => line += text,
                Piece::Colon => line.push(':'),
                Piece::Comment(_) => return None,
                Piece::Group(open, inner, close) => line += &format!("{open}{}{close}", flat(inner)?),
            }
        }
        if index + 1 < items.len() {
            line += ", ";
        }
    }
    // A text with a line end inside stays as it is, and cannot be on one line with others.
    (!line.contains('\n')).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: &str = r##"// What it is.
(workload:"moe", // behind
  params : { "a":"1","b" : "2" , },


  /* a block */ environment: {
     // one
     "X": "1" // two
  }, limits:{"time":(to:"5us")}, axes: [], long: ["aaaaaaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", "cccccccccccccccccccccccc"],
  effort: quick, text: r#"a, "b" ("#, named: Some(3))
// End."##;

    const FORMATTED: &str = r##"// What it is.
(
    workload: "moe", // behind
    params: {"a": "1", "b": "2"},

    /* a block */
    environment: {
        // one
        "X": "1", // two
    },
    limits: {"time": (to: "5us")},
    axes: [],
    long: [
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
        "cccccccccccccccccccccccc",
    ],
    effort: quick,
    text: r#"a, "b" ("#,
    named: Some(3),
) // End.
"##;

    #[test]
    fn a_missing_comma_is_not_formatted() {
        for text in
            ["(a: 1 b: 2)", "(a: \"x\"\n b: 2)", "[1 2]", "(a: [1] b: 2)", "[(1) (2)]", "(a: (1) // one\n b: 2)"]
        {
            assert_eq!(format_ron(text), None, "{text}");
        }
    }

    #[test]
    fn a_text_has_one_form() {
        assert_eq!(format_ron(WRITTEN).unwrap(), FORMATTED);
        assert_eq!(format_ron(FORMATTED).unwrap(), FORMATTED);
        for open in ["(", "(]", ")", "\"", "/*", "(a: r#\"x\")", "#![enable(implicit_some)]\n()"] {
            assert_eq!(format_ron(open), None, "{open}");
        }
        assert_eq!(format_ron("").unwrap(), "");
        let comment = format_ron("(a: // why\n 3)").unwrap();
        assert_eq!(format_ron(&comment).unwrap(), comment);
        let behind = "(\n    a: 3,\n    // why\n    b: 4,\n    // end\n)\n";
        for text in ["(a: 3\n // why\n , b: 4\n // end\n)", "(a: 3,\n // why\n b: 4,\n // end\n)", behind] {
            assert_eq!(format_ron(text).unwrap(), behind, "{text}");
        }
    }

    #[test]
    fn shipped_suites_keep_their_meaning() {
        for name in crate::config::SuiteFile::names() {
            let (name, text) = crate::config::SuiteFile::text(name).unwrap();
            let formatted = format_ron(text).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(format_ron(&formatted).unwrap(), formatted, "{name}");
            let read = |text: &str| crate::config::SuiteFile::parse(name, text).unwrap();
            assert_eq!(format!("{:?}", read(&formatted)), format!("{:?}", read(text)), "{name}");
            let comments = |text: &str| text.matches("//").count();
            assert_eq!(comments(&formatted), comments(text), "{name}");
        }
    }
}
