//! Lexer for the splitter and the formatter. The parser uses pest instead; both recognize the same words, numbers and
//! operators.
//!
//! Comments are stored apart from tokens: the splitter ignores them, and the formatter keeps them.

use crate::base::SrcSpan;

use super::error::{SyntaxError, note};
use super::other_languages;
use super::slashes;
use super::token::{Token, TokenKind, span};
use super::words::{self, BRACKETS, SIGNS, is_word};

/// A comment, or a `;`, which has been reported.
#[derive(Clone, Copy, Debug)]
pub struct Trivia {
    /// Index of the token after the comment or `;`.
    pub before: u32,
    pub span: SrcSpan,
}

/// Maximum number of tokens before a character that decide its help.
const MAX_BEFORE: usize = 256;

/// Help for a `;` or `@` that belongs to what precedes it: the head of a loop, or the arguments of a call. `tokens` are those
/// before it. `None` for one that stands alone.
fn help_inside(character: char, text: &str, base: u32, tokens: &[Token]) -> Option<&'static str> {
    let (mut closed, mut has_arrow, mut is_behind_block) = (0usize, false, false);
    for (index, token) in tokens.iter().enumerate().rev().take(MAX_BEFORE) {
        match token.kind {
            TokenKind::Close(bracket) => {
                is_behind_block |= bracket == b'}';
                closed += 1;
            }
            TokenKind::Open(_) if closed > 0 => closed -= 1,
            TokenKind::Open(b'{') => return None,
            TokenKind::Open(_) => {
                let is_loop = index > 0 && tokens[index - 1].text(text, base) == "for";
                return match character {
                    ';' if is_loop => Some(other_languages::LOOP),
                    ';' => Some("a comma stands between two values, and `->` before an output: `f(x, w -> y)`"),
                    '@' if has_arrow => Some("the rank of an operand follows `at`: `copy(x -> y at 1)`"),
                    _ => None,
                };
            }
            TokenKind::Word
                if closed == 0 && !is_behind_block && character == ';' && token.text(text, base) == "for" =>
            {
                return Some(other_languages::LOOP);
            }
            _ => has_arrow |= closed == 0 && token.text(text, base) == "->",
        }
    }
    None
}

/// The tokens and comments of a text.
#[derive(Debug, Default)]
pub struct Lexed {
    pub tokens: Vec<Token>,
    pub trivia: Vec<Trivia>,
}

/// Meaning of `//` after a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Slashes {
    /// The slashes begin a comment.
    Comment,
    /// The slashes are a division of another language, if the text after it looks like a divisor. Used if brackets do not
    /// balance, because a comment may have hidden one.
    Division,
}

/// Tokenizes `text`, whose first byte is at `base` in the source map. No token begins or ends with white space.
pub fn lex(text: &str, base: u32, slashes: Slashes, errors: &mut Vec<SyntaxError>) -> Lexed {
    let bytes = text.as_bytes();
    let mut tokens = Vec::with_capacity(text.len() / 4);
    let mut trivia = Vec::new();
    // Skips the byte order mark that some editors write.
    let mut at = text.len() - text.trim_start_matches([' ', '\t', '\r', '\n', '\u{feff}']).len();
    while at < bytes.len() {
        let start = at;
        let rest = &text[at..];
        let kind = match bytes[at] {
            b' ' | b'\t' | b'\r' | b'\n' => {
                at += 1;
                continue;
            }
            b'/' if slashes == Slashes::Division && slashes::divides(text, base, at, &tokens) => {
                at += 2;
                note(errors, 1, slashes::division(text, base, start, &tokens));
                TokenKind::Punct
            }
            b'/' if rest.starts_with("//") => {
                at = line_end(text, at);
                let line = &text[start..at];
                if line.starts_with("//!") {
                    TokenKind::About
                } else if line.starts_with("///") && !line.starts_with("////") {
                    TokenKind::Doc
                } else {
                    trivia.push(Trivia { before: tokens.len() as u32, span: span(base, start, at) });
                    continue;
                }
            }
            b'"' => {
                at = text_end(text, at);
                if at > bytes.len() {
                    at = unclosed_end(text, start);
                    note(
                        errors,
                        1,
                        SyntaxError::UnclosedText {
                            is_long: rest.starts_with("\"\"\""),
                            at: span(base, start, at).into(),
                        },
                    );
                }
                TokenKind::Text
            }
            b'0'..=b'9' => {
                at = number_end(bytes, at);
                TokenKind::Number
            }
            b'_' | b'a'..=b'z' | b'A'..=b'Z' => {
                while at < bytes.len() && is_word(char::from(bytes[at])) {
                    at += 1;
                }
                TokenKind::Word
            }
            bracket if BRACKETS.iter().any(|(open, _)| *open == bracket) => {
                at += 1;
                TokenKind::Open(bracket)
            }
            bracket if BRACKETS.iter().any(|(_, close)| *close == bracket) => {
                at += 1;
                TokenKind::Close(bracket)
            }
            first if SIGNS.iter().any(|sign| sign.as_bytes() == [first]) => {
                at += SIGNS.iter().find(|sign| rest.starts_with(**sign)).map_or(1, |sign| sign.len());
                TokenKind::Punct
            }
            // `&` and `|` are invalid, but count as operators so that they do not cut the piece around them in two.
            mark @ (b'&' | b'|') => {
                at += 1 + usize::from(bytes.get(at + 1) == Some(&mark));
                let meant = if mark == b'&' { "and" } else { "or" };
                note(
                    errors,
                    1,
                    SyntaxError::ForeignOperator {
                        found: text[start..at].to_owned(),
                        means: format!("this is spelled `{meant}` here"),
                        help: "conditions are joined by the words `and`, `or` and `not`".to_owned(),
                        at: span(base, start, at).into(),
                    },
                );
                TokenKind::Punct
            }
            _ => {
                let character = rest.chars().next().unwrap_or('\u{fffd}');
                at += character.len_utf8();
                // The letters of a word are one mistake.
                let foreign = |c: &char| !c.is_ascii() && c.is_alphabetic();
                if foreign(&character) {
                    at += rest.chars().skip(1).take_while(foreign).map(char::len_utf8).sum::<usize>();
                }
                let help = match character {
                    '@' if begins_line(text, base, start, &tokens) => other_languages::DECORATOR.to_owned(),
                    ';' | '@' => help_inside(character, text, base, &tokens)
                        .map_or_else(|| other_languages::character(character), str::to_owned),
                    character => other_languages::character(character),
                };
                note(
                    errors,
                    1,
                    SyntaxError::UnexpectedCharacter { character, help, others: 0, at: span(base, start, at).into() },
                );
                if character == ';' {
                    trivia.push(Trivia { before: tokens.len() as u32, span: span(base, start, at) });
                    continue;
                }
                TokenKind::Punct
            }
        };
        tokens.push(Token { kind, span: span(base, start, at) });
    }
    Lexed { tokens, trivia }
}

/// True if no token precedes `at` on its line. `tokens` are those before it.
fn begins_line(text: &str, base: u32, at: usize, tokens: &[Token]) -> bool {
    tokens.last().is_none_or(|token| text[token.span.end() as usize - base as usize..at].contains('\n'))
}

/// The end of the line at `from`, without trailing white space.
fn line_end(text: &str, from: usize) -> usize {
    let line = text[from..].split('\n').next().unwrap_or("");
    from + line.trim_end_matches([' ', '\t', '\r']).len()
}

/// The end of an unterminated text: that of its line. A text between `"""` has lines of another language, so that it extends to
/// the next declaration.
fn unclosed_end(text: &str, from: usize) -> usize {
    if !text[from..].starts_with("\"\"\"") {
        return line_end(text, from);
    }
    let mut end = from;
    for line in text[from..].split_inclusive('\n') {
        let first = line.split(|c| !is_word(c)).next().unwrap_or("");
        if end > from && words::lead(first, true).is_some() {
            break;
        }
        end += line.len();
    }
    from + text[from..end].trim_end().len()
}

/// The end of the text literal that begins at `at`, or an offset beyond the text if it is unterminated.
fn text_end(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    if text[at..].starts_with("\"\"\"") {
        return text[at + 3..].find("\"\"\"").map_or(text.len() + 1, |length| at + length + 6);
    }
    let mut end = at + 1;
    while end < bytes.len() {
        match bytes[end] {
            b'"' => return end + 1,
            b'\n' => break,
            // A line break ends the text even after a backslash.
            b'\\' if bytes.get(end + 1) != Some(&b'\n') => end += 2,
            _ => end += 1,
        }
    }
    text.len() + 1
}

/// The end of a number with its unit: `4_096`, `1e-4`, `64MiB`, `400GB/s`, `80%`.
fn number_end(bytes: &[u8], mut at: usize) -> usize {
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    while byte(at).is_ascii_digit() || byte(at) == b'_' {
        at += 1;
    }
    if byte(at) == b'.' && byte(at + 1).is_ascii_digit() {
        at += 1;
        while byte(at).is_ascii_digit() {
            at += 1;
        }
    }
    if matches!(byte(at), b'e' | b'E') && matches!(byte(at + 1), b'+' | b'-') && byte(at + 2).is_ascii_digit() {
        at += 2;
    }
    while is_word(char::from(byte(at))) {
        at += 1;
    }
    if byte(at) == b'%' && !byte(at - 1).is_ascii_alphabetic() {
        at += 1;
    }
    if byte(at) == b'/'
        && byte(at + 1) == b's'
        && !is_word(char::from(byte(at + 2)))
        && byte(at - 1).is_ascii_alphabetic()
    {
        at += 2;
    }
    at
}
