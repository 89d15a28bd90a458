//! Why a piece could not be parsed, in words.

use pest::Parser as _;

use crate::base::SrcSpan;

use super::super::ast::BinaryOp;
use super::super::error::SyntaxError;
use super::super::words::{self, Role, SIGNS, is_word};
use super::advice::{FailurePoint, advice};
use super::{Grammar, Rule};

/// Signs of other languages that are shown as one, as those of two characters are here.
const FOREIGN: [&str; 11] = ["=>", "=<", "+=", "-=", "*=", "/=", "**", "/*", "++", "::", "??"];

/// Why the piece at `span` of `file`, which begins at `base`, could not be parsed: the furthest place that was reached,
/// and what could have stood there.
pub(super) fn failure(rule: Rule, file: &str, base: u32, span: SrcSpan, what: &str) -> SyntaxError {
    let begin = (span.start - base) as usize;
    let text = &file[begin..begin + span.len as usize];
    // The details cost time, so they are collected in a second run only.
    pest::set_error_detail(true);
    let attempts = Grammar::parse(rule, text).err().and_then(|error| error.parse_attempts());
    pest::set_error_detail(false);
    let (position, tokens): (usize, Vec<String>) = attempts.map_or((text.len(), Vec::new()), |attempts| {
        let tokens = attempts.expected_tokens().into_iter().map(|token| token.to_string());
        // Space and comments may stand anywhere.
        (attempts.max_position, tokens.filter(|token| !token.trim().is_empty() && !token.starts_with("//")).collect())
    });
    // A reserved word in the place of a name fails behind its last letter: it could go on to be another word. Where a
    // new name is expected behind one, it may begin with a letter alone.
    let before = text[..position].trim_end_matches(is_word);
    let has = |token: &str| tokens.iter().any(|candidate| candidate == token);
    let word = &text[before.len()..position];
    let joins = text[position..].trim().is_empty()
        && (BinaryOp::of(word).is_some()
            || word == "not"
            || (words::role(word) == Some(Role::Clause) && ends_operand(before.trim_end())));
    let reserved = !joins && words::is_reserved(word) && (!has("a..z") || has("0..9"));
    // A minus is no operator where an arrow begins.
    let arrow = text[..position].ends_with('-') && text[position..].starts_with('>');
    let position = if reserved { before.len() } else { position - usize::from(arrow) };
    // Where the piece ends too early, a word that follows on its line is what stands in the way.
    let behind = &file[begin + position..];
    let rest = match text[position..].trim_start() {
        "" => next_on_line(behind),
        rest => rest,
    };
    let length = length(rest);
    let found = match &rest[..length] {
        "" => format!("the end of {what}"),
        word => format!("`{word}`"),
    };
    let at = if length == 0 {
        SrcSpan::new(span.end() as usize - usize::from(span.len > 0), span.end() as usize)
    } else {
        let start = span.start as usize + position + (behind.len() - behind.trim_start().len());
        SrcSpan::new(start, start + length)
    };
    let place =
        FailurePoint { rule, before: text[..position].trim_end(), rest, found: &rest[..length], tokens: &tokens };
    let help = advice(&place);
    let expected = match expectation(&tokens, text[..position].ends_with(is_word)) {
        _ if reserved && rule == Rule::on_piece && place.before == "on" => "a stream".to_owned(),
        _ if reserved => "a name".to_owned(),
        None => format!("the end of {what}"),
        Some(expected) => expected,
    };
    SyntaxError::Expected { expected, found, at: at.into(), help }
}

/// Whether an expression may end with a text.
fn ends_operand(text: &str) -> bool {
    let word = &text[text.trim_end_matches(is_word).len()..];
    // The word that begins the piece is none.
    if word == text {
        return false;
    }
    text.ends_with([')', ']', '}', '"']) || (!word.is_empty() && !words::is_reserved(word))
}

/// What follows on the line, if that is a word, a number or a text.
fn next_on_line(text: &str) -> &str {
    let line = text.lines().next().unwrap_or("").trim();
    if line.starts_with(|c| is_word(c) || c == '"') { line } else { "" }
}

/// How much of `text` is shown as what was found.
fn length(text: &str) -> usize {
    let long = SIGNS.iter().filter(|sign| sign.len() == 2 && **sign != "..");
    if long.chain(&FOREIGN).any(|sign| text.starts_with(sign)) {
        return 2;
    }
    text.char_indices()
        .find(|(_, c)| !is_word(*c))
        .map_or(text.len(), |(at, c)| if at == 0 { c.len_utf8() } else { at })
}

/// Pest's tokens, told in words: what an expression may begin with, and what may follow one, go by a collective name.
/// Nothing where only the end may follow. `in_word`: the text up to there ends with a letter or digit.
fn expectation(tokens: &[String], in_word: bool) -> Option<String> {
    /// What may follow so often that naming it would say nothing.
    const LATER: [&str; 3] = ["at", "like", "over"];
    const OPERAND: [&str; 12] = ["-", "not", "if", "(", "[", "\"", "\"\"\"", "true", "false", "0..9", "_", ".."];
    /// What may follow an operand, besides the operators of the tree.
    const OPERATOR: [&str; 5] = ["[", "(", ".", "..", "..="];
    const NAME: [&str; 4] = ["_", "a..z", "A..Z", "0..9"];
    let has = |token: &str| tokens.iter().any(|candidate| candidate == token);
    // A name that has just been read could go on with a digit too; a new one begins with none.
    let name = (has("a..z") || has("_")) && !(in_word && has("0..9"));
    let mut groups = Vec::new();
    let mut known: Vec<&str> = NAME.to_vec();
    if has("a..z") && has("\"") {
        groups.push("an expression");
        known.extend(OPERAND);
    } else if name && !has("*") {
        groups.push("a name");
    }
    if has("*") {
        groups.push("an operator");
        known.extend(OPERATOR.into_iter().chain(BinaryOp::ALL.map(BinaryOp::text)));
    }
    let mut literal: Vec<String> = tokens
        .iter()
        .map(String::as_str)
        .filter(|token| !known.contains(token) && !LATER.contains(token))
        .filter(|token| !matches!(*token, "e" | "E" | "/s" | "\"\"\""))
        .map(|token| match token {
            "EOI" => "the end".to_owned(),
            "\"" => "a text in quotes".to_owned(),
            token => format!("`{token}`"),
        })
        .collect();
    literal.dedup();
    literal.truncate(6);
    literal.extend(groups.into_iter().map(str::to_owned));
    match literal.split_last()? {
        (last, []) => Some(last.clone()),
        (last, most) => Some(format!("{} or {last}", most.join(", "))),
    }
}
