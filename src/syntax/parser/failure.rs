//! Why a piece could not be parsed, in words.

use pest::Parser as _;

use crate::base::SrcSpan;

use super::super::error::SyntaxError;
use super::super::split;
use super::{Grammar, Rule};

/// Why a piece could not be parsed: the furthest place that was reached, and what could have stood there.
pub(super) fn failure(rule: Rule, text: &str, span: SrcSpan, what: &str) -> SyntaxError {
    // The details cost time, so they are collected in a second run only.
    pest::set_error_detail(true);
    let attempts = Grammar::parse(rule, text).err().and_then(|error| error.parse_attempts());
    pest::set_error_detail(false);
    let (position, tokens) = attempts.map_or((text.len(), Vec::new()), |attempts| {
        let tokens = attempts.expected_tokens();
        (attempts.max_position, tokens.iter().map(ToString::to_string).collect())
    });
    // A reserved word in the place of a name fails behind its last letter.
    let before = text[..position].trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let position = if split::RESERVED.contains(&&text[before.len()..position]) && !tokens.iter().any(|t| t == "a..z") {
        before.len()
    } else {
        position
    };
    let rest = &text[position..];
    let skipped = rest.len() - rest.trim_start().len();
    let rest = rest.trim_start();
    let start = span.start as usize + position + skipped;
    let found_length = rest
        .char_indices()
        .find(|(_, c)| !(c.is_ascii_alphanumeric() || *c == '_'))
        .map_or(rest.len(), |(at, c)| if at == 0 { c.len_utf8() } else { at });
    let found = match &rest[..found_length] {
        "" => format!("the end of {what}"),
        word => format!("`{word}`"),
    };
    let word = &rest[..found_length];
    let help = split::RESERVED.contains(&word).then(|| format!("`{word}` is a reserved word and cannot be a name"));
    let at = if rest.is_empty() {
        SrcSpan::new(span.end() as usize - usize::from(span.len > 0), span.end() as usize)
    } else {
        SrcSpan::new(start, start + found_length)
    };
    SyntaxError::Expected { expected: expectation(&tokens), found, at: at.into(), help }
}

/// Pest's tokens, told in words: what an expression may begin with, and what may follow one, go by a collective name.
fn expectation(tokens: &[String]) -> String {
    const OPERAND: [&str; 12] = ["-", "not", "if", "(", "[", "\"", "\"\"\"", "true", "false", "0..9", "_", ".."];
    const OPERATOR: [&str; 18] =
        ["==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "%", "and", "or", "[", "(", ".", "..", "..="];
    const NAME: [&str; 4] = ["_", "a..z", "A..Z", "0..9"];
    let has = |token: &str| tokens.iter().any(|candidate| candidate == token);
    let mut groups = Vec::new();
    let mut known: Vec<&str> = Vec::new();
    if has("a..z") && has("\"") {
        groups.push("an expression");
        known.extend(OPERAND);
        known.extend(NAME);
    } else if has("a..z") && !has("*") {
        groups.push("a name");
        known.extend(NAME);
    }
    if has("*") {
        groups.push("an operator");
        known.extend(OPERATOR);
        known.extend(NAME);
    }
    if !has("a..z") && has("_") && !has("*") {
        groups.push("a name");
        known.extend(NAME);
    }
    let mut literal: Vec<String> = tokens
        .iter()
        .map(String::as_str)
        .filter(|token| !token.trim().is_empty() && !token.starts_with("//") && !known.contains(token))
        .filter(|token| !matches!(*token, "e" | "E" | "\"\"\"" | "_" | "0..9" | "A..Z" | "a..z"))
        .map(|token| match token {
            "EOI" => "the end".to_owned(),
            "\"" => "a text in quotes".to_owned(),
            token => format!("`{token}`"),
        })
        .collect();
    literal.dedup();
    literal.truncate(6);
    literal.extend(groups.into_iter().map(str::to_owned));
    match literal.split_last() {
        None => "something else".to_owned(),
        Some((last, [])) => last.clone(),
        Some((last, most)) => format!("{} or {last}", most.join(", ")),
    }
}
