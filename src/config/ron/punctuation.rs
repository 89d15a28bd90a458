//! Mistakes in the commas, colons, brackets and quotes of a RON text, each with what to type.
//!
//! The reader of RON names what it expects, and stops. This module finds such a mistake by the tokens around it, and corrects
//! it in a copy of the text, if no other place moves. So the mistakes behind it are found as well.

use std::ops::Range;

use super::tokens::{MAX_NESTING, Token, tokens};

/// Longest text that a message repeats, in bytes.
const MAX_SHOWN: usize = 40;

#[derive(Debug)]
pub(super) struct PunctuationMistake {
    /// Bytes that the message shows.
    pub at: Range<usize>,
    pub message: String,
    pub help: String,
    /// Ranges of the text and their replacements of the same length, or a text to add at the end; empty if the correction
    /// would change the length.
    pub fixes: Vec<(Range<usize>, String)>,
    /// Name of the field that the fixes remove; `None` if they remove none.
    pub lost: Option<String>,
}

impl PunctuationMistake {
    fn new(at: Range<usize>, message: impl Into<String>, help: impl Into<String>) -> PunctuationMistake {
        PunctuationMistake { at, message: message.into(), help: help.into(), fixes: Vec::new(), lost: None }
    }

    fn fixed(self, at: Range<usize>, by: &str) -> PunctuationMistake {
        PunctuationMistake { fixes: [self.fixes, vec![(at, by.to_owned())]].concat(), ..self }
    }
}

/// A value with its name, as far as it has been read.
#[derive(Debug, Default)]
struct OpenItem {
    /// Bytes of the name; `None` before a colon.
    name: Option<Range<usize>>,
    /// Bytes of the last part of the value; `None` without a value.
    last: Option<Range<usize>>,
    /// True if the last part of the value is a pair of brackets with their content.
    is_group: bool,
    /// Number of parts of the value.
    parts: usize,
}

/// Brackets that are open.
#[derive(Debug)]
struct OpenBracket<'a> {
    bracket: &'a str,
    at: usize,
    item: OpenItem,
}

/// Finds the mistakes in the punctuation of a text, in its order.
pub(super) fn punctuation_mistakes(text: &str) -> Vec<PunctuationMistake> {
    let tokens = match tokens(text) {
        Ok(tokens) => tokens,
        Err(at) => return unclosed(text, at).into_iter().collect(),
    };
    let tokens =
        tokens.into_iter().map(|(token, _)| token).filter(|token| !matches!(token, Token::Comment(_))).collect();
    let file = OpenBracket { bracket: "", at: 0, item: OpenItem::default() };
    let mut walker = Walker { text, tokens, levels: vec![file], mistakes: Vec::new() };
    walker.walk();
    walker.mistakes
}

/// The mistake at a text or a comment that does not close; `None` for an attribute.
fn unclosed(text: &str, at: usize) -> Option<PunctuationMistake> {
    let rest = &text[at..];
    let line = at..at + rest.lines().next().map_or(0, |line| line.trim_end().len());
    if rest.starts_with("#!") {
        return None;
    }
    if rest.starts_with('#') {
        let by = " ".repeat(line.len());
        return Some(
            PunctuationMistake::new(at..at + 1, "`#` begins no comment", "a comment begins with `//`").fixed(line, &by),
        );
    }
    if rest.starts_with("/*") {
        return Some(PunctuationMistake::new(at..at + 2, "the comment has no end", "write `*/` behind it"));
    }
    // A text on several lines before it has probably lost its own quote.
    let before = tokens(&text[..at]).unwrap_or_default();
    let opened = before.into_iter().find_map(|(token, _)| match token {
        Token::Atom(atom) if atom.starts_with('"') && atom.contains('\n') => Some(range(text, atom).start),
        _ => None,
    });
    let start = opened.unwrap_or(at);
    let line = text[start..].lines().next().unwrap_or_default();
    let words = line.trim_end().trim_end_matches([',', ')', ']', '}']);
    let help = format!("write `{words}\"`");
    Some(PunctuationMistake::new(start..start + line.trim_end().len(), "the text has no closing quote", help))
}

/// Bytes of a part of a text.
fn range(text: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - text.as_ptr() as usize;
    start..start + part.len()
}

/// The line of an offset, counted from 1.
fn line_of(text: &str, at: usize) -> usize {
    1 + text[..at].matches('\n').count()
}

/// The bracket that closes another.
fn closing(open: &str) -> &'static str {
    match open {
        "(" => ")",
        "[" => "]",
        _ => "}",
    }
}

/// True for the name of a field.
fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

struct Walker<'a> {
    text: &'a str,
    tokens: Vec<Token<'a>>,
    /// Open brackets, the innermost last. The first is the file.
    levels: Vec<OpenBracket<'a>>,
    mistakes: Vec<PunctuationMistake>,
}

impl<'a> Walker<'a> {
    fn walk(&mut self) {
        for at in 0..self.tokens.len() {
            if self.levels.len() > MAX_NESTING {
                return;
            }
            let next = self.tokens.get(at + 1).copied();
            if self.levels.len() == 1 && self.item().is_group && self.behind_end(self.tokens[at]) {
                return;
            }
            match self.tokens[at] {
                Token::Comma(comma) => self.comma(range(self.text, comma)),
                Token::Open(open) => self.open(open),
                Token::Close(close) => self.close(close),
                Token::Atom(atom) if self.levels.len() == 1 && matches!(next, Some(Token::Colon)) => {
                    let help = format!("write `(` before `{atom}`, and `)` at the end of the file");
                    let message = "the fields of a file need `(` and `)` around them";
                    self.mistakes.push(PunctuationMistake::new(range(self.text, atom), message, help));
                    return;
                }
                Token::Atom(atom) => self.atom(atom, matches!(next, Some(Token::Colon))),
                Token::Colon => {
                    let item = self.item();
                    if item.name.is_none() && item.parts == 1 {
                        (item.name, item.parts) = (item.last.take(), 0);
                    }
                }
                Token::Comment(_) => {}
            }
        }
        self.finish();
    }

    /// Reports text behind the bracket that closes the file's fields, from this token on. False for a comma or a surplus bracket,
    /// which have messages of their own.
    fn behind_end(&mut self, token: Token) -> bool {
        let (Token::Atom(text) | Token::Open(text)) = token else { return false };
        let start = range(self.text, text).start;
        let rest = &self.text[start..];
        let line = rest.lines().next().unwrap_or_default().trim_end();
        let blank: String = rest.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect();
        let message = "text follows the bracket that ends the file";
        let help = "remove it, or move the bracket behind it";
        let slip = PunctuationMistake::new(start..start + line.len(), message, help);
        self.mistakes.push(slip.fixed(start..self.text.len(), &blank));
        true
    }

    fn item(&mut self) -> &mut OpenItem {
        &mut self.levels.last_mut().expect("the file stays open").item
    }

    /// A text that messages repeat, or `this value` if it is long.
    fn shown(&self, at: &Range<usize>) -> String {
        match &self.text[at.clone()] {
            text if text.len() <= MAX_SHOWN && !text.contains('\n') => format!("`{text}`"),
            _ => "this value".to_owned(),
        }
    }

    /// A blank between two places, next to one of them, which a sign can replace; `None` if neither is beside a blank.
    fn room(&self, before: usize, behind: usize) -> Option<Range<usize>> {
        let is_blank = |at: &usize| matches!(self.text.as_bytes().get(*at), Some(b' ' | b'\t'));
        let at =
            [before, behind.saturating_sub(1)].into_iter().find(|at| (before..behind).contains(at) && is_blank(at))?;
        Some(at..at + 1)
    }

    fn comma(&mut self, at: Range<usize>) {
        if self.levels.len() == 1 {
            self.mistakes.push(
                PunctuationMistake::new(at.clone(), "a file has no `,` behind its fields", "remove it").fixed(at, " "),
            );
            return;
        }
        let item = std::mem::take(self.item());
        if item.name.is_some() && item.parts == 0 {
            self.without_value(item, at.end);
        } else if item.parts == 0 {
            self.mistakes.push(
                PunctuationMistake::new(at.clone(), "there is no value before this `,`", "remove it").fixed(at, " "),
            );
        }
    }

    /// Reports a name without a value. `end` is where it ends.
    fn without_value(&mut self, item: OpenItem, end: usize) {
        let Some(name) = item.name else { return };
        let text = self.text[name.clone()].trim_matches('"');
        let help = format!("write a value behind `{text}:`, or remove `{text}`");
        let slip = PunctuationMistake::new(name.clone(), format!("`{text}` has no value"), help);
        let by: String =
            self.text[name.start..end].bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect();
        self.mistakes.push(PunctuationMistake { lost: Some(text.to_owned()), ..slip.fixed(name.start..end, &by) });
    }

    /// Reports that a comma is missing after the last value.
    fn missing_comma(&mut self, next: usize) {
        let item = std::mem::take(self.item());
        let Some(last) = item.last else { return };
        let at = if item.is_group { last.end - 1..last.end } else { last.clone() };
        let value = self.shown(&last);
        let name = item.name.map(|name| format!("{}: ", &self.text[name])).unwrap_or_default();
        let help = match value.as_str() {
            "this value" => "write `,` behind it".to_owned(),
            value => format!("write `{name}{},`", value.trim_matches('`')),
        };
        let slip = PunctuationMistake::new(at, format!("a `,` is missing behind {value}"), help);
        let room = self.room(last.end, next);
        self.mistakes.push(room.into_iter().fold(slip, |slip, room| slip.fixed(room, ",")));
    }

    /// Reports that a colon is missing between a name and the value after it, and goes on as if it were there. `sign` is the
    /// text in its place; `None` if there is none.
    fn missing_colon(&mut self, sign: Option<Range<usize>>, value: &str) {
        let item = std::mem::take(self.item());
        let Some(name) = item.last else { return };
        let text = self.text[name.clone()].trim_end_matches('=');
        let at = sign.clone().unwrap_or(name.start..name.start + text.len());
        let room = sign.or_else(|| self.room(name.end, range(self.text, value).start));
        let value = if "=([{".contains(value) { "…" } else { value };
        let message = format!("a `:` is missing between `{text}` and its value");
        let slip = PunctuationMistake::new(at, message, format!("write `{text}: {value}`"));
        self.mistakes.push(room.into_iter().fold(slip, |slip, room| slip.fixed(room, ":")));
        *self.item() = OpenItem { name: Some(name.start..name.start + text.len()), ..OpenItem::default() };
    }

    /// The last token if it is a name without a colon, otherwise `None`.
    fn lone_name(&mut self) -> Option<Range<usize>> {
        let bracket = self.levels.last().map_or("", |level| level.bracket);
        let item = self.item();
        let last = item.last.clone().filter(|_| item.name.is_none() && item.parts == 1 && !item.is_group)?;
        let text = &self.text[last.clone()];
        let is_name = is_word(text) || (bracket == "{" && text.starts_with('"'));
        (matches!(bracket, "(" | "{") && is_name).then_some(last)
    }

    fn atom(&mut self, atom: &'a str, is_name: bool) {
        let at = range(self.text, atom);
        if let Some(inner) = atom.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
            let slip =
                PunctuationMistake::new(at.clone(), "a text needs double quotes", format!("write `\"{inner}\"`"));
            let fix = (!inner.contains(['"', '\\'])).then(|| format!("\"{inner}\""));
            self.mistakes.push(fix.iter().fold(slip, |slip, by| slip.fixed(at.clone(), by)));
        }
        if let Some(name) = self.lone_name() {
            let ends = name.end - usize::from(self.text[name.clone()].ends_with('='));
            match atom {
                "=" => return self.missing_colon(Some(at), atom),
                _ if ends < name.end => self.missing_colon(Some(ends..name.end), atom),
                _ if !is_name && (is_word(atom) || atom.starts_with(['"', '\'']) || atom.parse::<f64>().is_ok()) => {
                    self.missing_colon(None, atom);
                }
                _ => {}
            }
        }
        let is_text = atom.starts_with(['"', '\'']);
        let item = self.item();
        let follows_text = item.last.clone().is_some_and(|last| self.text[last].ends_with('"'));
        let item = self.item();
        let is_sign = atom.starts_with(|c: char| "+-*/%<>=!&|.".contains(c));
        if item.parts > 0 && (is_name || (item.is_group && !is_sign) || (is_text && follows_text)) {
            self.missing_comma(at.start);
        }
        let bracket = self.levels.last().map_or("", |level| level.bracket);
        if is_name
            && bracket == "("
            && let Some(name) = atom.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'))
        {
            let slip =
                PunctuationMistake::new(at.clone(), "the name of a field has no quotes", format!("write `{name}`"));
            self.mistakes.push(slip.fixed(at.clone(), &format!(" {name} ")));
        }
        let item = self.item();
        (item.last, item.is_group, item.parts) = (Some(at), false, item.parts + 1);
    }

    fn open(&mut self, open: &'a str) {
        let at = range(self.text, open);
        let item = self.item();
        let (last, is_group, parts) = (item.last.clone(), item.is_group, item.parts);
        let is_named = open == "(" && !is_group && last.is_some_and(|last| is_word(&self.text[last]));
        if parts > 0 && !is_named && self.levels.len() > 1 {
            match self.lone_name() {
                Some(_) => self.missing_colon(None, open),
                None => self.missing_comma(at.start),
            }
        }
        if self.levels.len() == 1 && open == "{" {
            let help = "write `(` and `)` instead of `{` and `}`";
            let slip = PunctuationMistake::new(at.clone(), "the fields of a file need `(` and `)` around them", help);
            self.mistakes.push(slip.fixed(at.clone(), "("));
            self.levels.push(OpenBracket { bracket: "(", at: at.start, item: OpenItem::default() });
            return;
        }
        self.levels.push(OpenBracket { bracket: open, at: at.start, item: OpenItem::default() });
    }

    fn close(&mut self, close: &'a str) {
        let at = range(self.text, close);
        if self.levels.len() == 1 {
            let message = format!("`{close}` closes nothing");
            self.mistakes.push(PunctuationMistake::new(at.clone(), message, "remove it").fixed(at, " "));
            return;
        }
        let is_closed_by = |level: &OpenBracket| closing(level.bracket) == close;
        let matching = self.levels[1..].iter().rposition(is_closed_by).map(|index| index + 1);
        let last = self.levels.len() - 1;
        match matching {
            Some(index) if index == last => {}
            Some(index) => {
                let name = self.levels[index].item.name.clone();
                let unclosed: Vec<OpenBracket> = self.levels.drain(index + 1..).rev().collect();
                self.unclosed(&unclosed, name, at.start);
                *self.item() = OpenItem::default();
            }
            None => {
                let level = &self.levels[last];
                let (open, line) = (level.bracket, line_of(self.text, level.at));
                let (start, has_message) = (level.at, last == 1 && self.text[level.at..].starts_with('{'));
                match self.mistakes.iter_mut().find(|slip| has_message && slip.at.start == start) {
                    // The opening bracket of the file is wrong too: its message covers both.
                    Some(opening) => opening.fixes.push((at.clone(), ")".to_owned())),
                    None => {
                        let message = format!("`{close}` does not close the `{open}` of line {line}");
                        let slip = PunctuationMistake::new(at.clone(), message, format!("write `{}`", closing(open)));
                        self.mistakes.push(slip.fixed(at.clone(), closing(open)));
                    }
                }
            }
        }
        let level = self.levels.pop().expect("an open bracket");
        if level.item.name.is_some() && level.item.parts == 0 {
            self.without_value(level.item, at.start);
        }
        let item = self.item();
        let start = if item.parts > 0 && !item.is_group { item.last.as_ref().map(|last| last.start) } else { None };
        (item.last, item.is_group, item.parts) = (Some(start.unwrap_or(level.at)..at.end), true, item.parts + 1);
    }

    /// Reports brackets that are open at the closing bracket of another pair, the innermost first. `name` is the name of the
    /// value that they belong to, `close` the offset of the closing bracket. The fix removes that value.
    fn unclosed(&mut self, levels: &[OpenBracket], name: Option<Range<usize>>, close: usize) {
        let Some(outermost) = levels.last() else { return };
        let end = self.next_entry(outermost.at, close);
        let start = name.as_ref().map_or(outermost.at, |name| name.start);
        let lost = name.map(|name| self.text[name].trim_matches('"').to_owned());
        let by: String = self.text[start..end].bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect();
        let next = self.text[end..].split(|c: char| c.is_whitespace() || ":,".contains(c)).next().unwrap_or_default();
        let next = if end == close { &self.text[close..close + 1] } else { next };
        let line = line_of(self.text, end);
        for level in levels {
            let help = format!("write `{}` before the `{next}` of line {line}", closing(level.bracket));
            let message = format!("this `{}` is not closed", level.bracket);
            let slip = PunctuationMistake::new(level.at..level.at + 1, message, help);
            self.mistakes.push(PunctuationMistake { lost: lost.clone(), ..slip.fixed(start..end, &by) });
        }
    }

    /// Offset of the first name at the start of a line that is indented no deeper than the line of the bracket at `open`;
    /// `close` if there is none before it. The value with this bracket probably ends there.
    fn next_entry(&self, open: usize, close: usize) -> usize {
        let indentation = |at: usize| {
            let line = self.text[..at].rfind('\n').map_or(0, |end| end + 1);
            self.text[line..].len() - self.text[line..].trim_start_matches([' ', '\t']).len()
        };
        let is_first = |at: usize| self.text[..at].trim_end_matches([' ', '\t']).ends_with('\n');
        let names = self.tokens.windows(2).filter_map(|pair| match pair {
            [Token::Atom(name), Token::Colon] => Some(range(self.text, name).start),
            _ => None,
        });
        names
            .filter(|at| (open..close).contains(at))
            .find(|at| is_first(*at) && indentation(*at) <= indentation(open))
            .unwrap_or(close)
    }

    /// Reports the brackets that are open at the end.
    fn finish(&mut self) {
        let closers: String = self.levels[1..].iter().rev().map(|level| closing(level.bracket)).collect();
        let Some(level) = self.levels[1..].last() else { return };
        let message = format!("this `{}` is not closed", level.bracket);
        let help = format!("write `{closers}` at the end of the file");
        let end = self.text.len();
        self.mistakes.push(
            PunctuationMistake::new(level.at..level.at + 1, message, help).fixed(end..end, &format!("\n{closers}")),
        );
    }
}
