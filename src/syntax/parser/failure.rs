//! Explains why a piece could not be parsed.

use std::sync::Mutex;

use pest::Parser as _;

use crate::base::SrcSpan;
use crate::base::threads::lock;

use super::super::ast::BinaryOp;
use super::super::error::SyntaxError;
use super::super::words::{self, SIGNS, WordRole, is_word};
use super::advice::advice;
use super::failure_point::FailurePoint;
use super::{Grammar, Rule};

/// Operators of other languages that are shown as one token.
const FOREIGN: [&str; 11] = ["=>", "=<", "+=", "-=", "*=", "/=", "**", "/*", "++", "::", "??"];

/// The furthest offset that the parser reached in a text that is none of the rule, and the tokens that it expected there.
///
/// Collecting them takes time, so only a second run of the parser does it. pest has one switch for all threads: without the lock, a
/// thread could turn it off while another collects.
fn attempts(rule: Rule, text: &str) -> (usize, Vec<String>) {
    static SWITCH: Mutex<()> = Mutex::new(());
    let _held = lock(&SWITCH);
    pest::set_error_detail(true);
    let attempts = Grammar::parse(rule, text).err().and_then(|error| error.parse_attempts());
    pest::set_error_detail(false);
    attempts.map_or((text.len(), Vec::new()), |attempts| {
        let tokens = attempts.expected_tokens().into_iter().map(|token| token.to_string());
        // White space and comments are allowed everywhere, so they are left out.
        (attempts.max_position, tokens.filter(|token| !token.trim().is_empty() && !token.starts_with("//")).collect())
    })
}

/// The error for the piece at `span`, at the furthest offset that the parser reached, with what it expected there.
/// `file` begins at `base`.
pub(super) fn failure(rule: Rule, file: &str, base: u32, span: SrcSpan, what: &str) -> SyntaxError {
    let begin = (span.start - base) as usize;
    let text = &file[begin..begin + span.len as usize];
    let (position, mut tokens) = attempts(rule, text);
    // A reserved word in place of a name fails after its last letter, because it could continue as another word. After
    // such a word, a new name can only begin with a letter.
    let before = text[..position].trim_end_matches(is_word);
    let has = |token: &str| tokens.iter().any(|candidate| candidate == token);
    let word = &text[before.len()..position];
    let joins = text[position..].trim().is_empty()
        && (BinaryOp::from_name(word).is_some()
            || word == "not"
            || (words::role(word) == Some(WordRole::Clause) && ends_operand(before.trim_end())));
    let reserved = !joins && words::is_reserved(word) && (!has("a..z") || has("0..9"));
    // A reserved word that begins an argument is read as the name of an option, which lacks its colon.
    let start = text[..position].trim_end();
    let start = start.trim_end_matches(is_word).len();
    let option = &text[start..text[..position].trim_end().len()];
    let is_argument = text[..start].trim_end().ends_with(['(', ',']) && words::is_reserved(option);
    let (reserved, before) = if tokens == [":"] && is_argument { (true, &text[..start]) } else { (reserved, before) };
    // The minus of an arrow is not an operator.
    let arrow = text[..position].ends_with('-') && text[position..].starts_with('>');
    let position = if reserved { before.len() } else { position - usize::from(arrow) };
    // The parser fails inside the arrow, so that it expects nothing there: the text before it tells more.
    if arrow && tokens.is_empty() {
        tokens = attempts(rule, &text[..position]).1;
    }
    // If the piece ends too early, the word that follows on the line is the obstacle.
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
    let before = text[..position].trim_end();
    let is_joined = before.len() == position && text[position..].starts_with(rest);
    let place = FailurePoint { rule, before, rest, is_joined, found: &rest[..length], tokens: &tokens };
    let help = advice(&place);
    let expected = match expectation(&tokens, text[..position].ends_with(is_word)) {
        _ if reserved && rule == Rule::on_piece && place.before == "on" => "a stream".to_owned(),
        _ if reserved => "a name".to_owned(),
        None => match place.inside() {
            Some('(') => "`,` or `)`".to_owned(),
            Some('[') => "`,` or `]`".to_owned(),
            _ => format!("the end of {what}"),
        },
        Some(expected) => expected,
    };
    SyntaxError::Expected { expected, found, at: at.into(), help }
}

/// True if an expression can end with this text.
fn ends_operand(text: &str) -> bool {
    let word = &text[text.trim_end_matches(is_word).len()..];
    // The piece's first word is not an operand.
    if word == text {
        return false;
    }
    text.ends_with([')', ']', '}', '"']) || (!word.is_empty() && !words::is_reserved(word))
}

/// The word, number or text that follows on the line; empty if there is none.
fn next_on_line(text: &str) -> &str {
    let line = text.lines().next().unwrap_or("").trim();
    if line.starts_with(|c| is_word(c) || c == '"') { line } else { "" }
}

/// Length of the part of `text` that is shown as what was found.
fn length(text: &str) -> usize {
    let long = SIGNS.iter().filter(|sign| sign.len() == 2 && **sign != "..");
    if long.chain(&FOREIGN).any(|sign| text.starts_with(sign)) {
        return 2;
    }
    text.char_indices()
        .find(|(_, c)| !is_word(*c))
        .map_or(text.len(), |(at, c)| if at == 0 { c.len_utf8() } else { at })
}

/// Describes pest's tokens. Tokens that begin an expression, and those that continue one, get a collective name. `None`
/// if only the end is allowed. `in_word`: the text before ends with a letter or digit.
fn expectation(tokens: &[String], in_word: bool) -> Option<String> {
    /// Tokens that are allowed so often that naming them does not help.
    const LATER: [&str; 3] = ["at", "like", "over"];
    const OPERAND: [&str; 12] = ["-", "not", "if", "(", "[", "\"", "\"\"\"", "true", "false", "0..9", "_", ".."];
    /// Tokens that may follow an operand, besides the tree's operators.
    const OPERATOR: [&str; 5] = ["[", "(", ".", "..", "..="];
    const NAME: [&str; 4] = ["_", "a..z", "A..Z", "0..9"];
    let has = |token: &str| tokens.iter().any(|candidate| candidate == token);
    // A name just read could also continue with a digit, and a new name cannot begin with one.
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
        known.extend(OPERATOR.into_iter().chain(BinaryOp::NAMES));
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
