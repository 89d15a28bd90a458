//! Selects the errors to report: leaves out follow-up errors, and adds help to those of the splitter, which does not
//! know the grammar.

use std::collections::HashSet;
use std::ops::Range;

use crate::base::{DType, suggest};

use super::super::error::SyntaxError;
use super::super::other_languages;
use super::super::words::{self, DECLARATIONS, STATEMENTS, is_word};
use super::failure_point::leading_word;
use super::names::{NUMBERED, numbered_name};

/// Part of the help for a reserved word in the place of a name.
pub(super) const NO_NAME: &str = "is a reserved word and cannot be a name";

const INSIDE_STEP: &str = "operations and their blocks belong inside `step { … }`";

const COMMENT: &str = "a comment begins with `//` and ends with its line";

/// Descriptions of what the splitter expects.
const SPLITTER: [&str; 3] = ["a declaration", "a statement", "`{` or `if`"];

/// The first `limit` errors worth reporting. `errors` are sorted, and the text is at `base` in the source map.
pub(super) fn select(errors: Vec<SyntaxError>, text: &str, base: u32, limit: usize) -> Vec<SyntaxError> {
    // A file that is too large is not parsed, so it has only this error.
    if errors.is_empty() || errors.iter().any(|error| matches!(error, SyntaxError::FileTooLarge { .. })) {
        return errors;
    }
    let offset_of = |error: &SyntaxError| error.offset() - base as usize;
    let foreign = foreign(text);
    let texts = errors.iter().filter(|error| matches!(error, SyntaxError::UnclosedText { .. }));
    let texts: Vec<Unclosed> = texts.map(|error| Unclosed::new(text, offset_of(error))).collect();
    let several_lines = several_lines(text, &texts);
    let unclosed = errors.iter().filter(|error| matches!(error, SyntaxError::Unclosed { .. }));
    let unclosed: Vec<usize> = unclosed.map(offset_of).collect();
    // Names that begin with a digit: each use has the form of a number with an unknown unit.
    let mut numbered: HashSet<&str> = HashSet::new();
    // Helps for reserved words that have been reported: each use of such a name is the same mistake.
    let mut reserved: HashSet<String> = HashSet::new();
    // Number of blocks without a `{` whose `}` has not been found.
    let mut unopened = 0;
    // Offset of the last error if it is about a statement outside of all blocks.
    let mut outside: Option<usize> = None;
    let mut reported: Vec<SyntaxError> = Vec::new();
    for error in errors {
        if reported.len() == limit {
            break;
        }
        let at = offset_of(&error);
        // Errors in a comment or text of another language count as one, reported at its mark.
        let range = foreign.partition_point(|range| range.end <= at);
        let range = foreign.get(range).filter(|range| range.contains(&at));
        let is_mark = matches!(error, SyntaxError::UnexpectedCharacter { .. });
        if range.is_some_and(|range| at > range.start || !is_mark) || closes_in_unterminated_text(&error, at, &texts) {
            continue;
        }
        let range = several_lines.partition_point(|range| range.end < at);
        if several_lines.get(range).is_some_and(|range| range.start < at) {
            continue;
        }
        match &error {
            SyntaxError::Expected { help: Some(help), .. }
                if help.contains(NO_NAME) && !reserved.insert(help.clone()) =>
            {
                continue;
            }
            // The unclosed bracket contains the block.
            SyntaxError::MissingBlock { at: head, .. }
                if unclosed
                    .get(unclosed.partition_point(|open| *open < at))
                    .is_some_and(|open| *open < at + head.len()) =>
            {
                continue;
            }
            SyntaxError::MissingBlock { .. } => unopened += 1,
            SyntaxError::Expected { expected, help, .. }
                if help.as_ref().is_some_and(|help| help.starts_with(NUMBERED))
                    || SPLITTER.contains(&expected.as_str()) =>
            {
                numbered.insert(leading_word(&text[at..]));
            }
            SyntaxError::UnknownUnit { unit, .. } => {
                let digits = text[..at].len() - text[..at].trim_end_matches(is_word).len();
                if numbered.contains(&text[at - digits..at + unit.len()]) {
                    continue;
                }
            }
            SyntaxError::UnmatchedClose { bracket: '}', .. } if unopened > 0 => {
                unopened -= 1;
                continue;
            }
            _ => {}
        }
        // A mistake ends a piece too early: the splitter finds no beginning of another one, or a bracket without its partner.
        let is_consequence = match &error {
            SyntaxError::UnmatchedClose { .. } | SyntaxError::UnknownKeyword { .. } => true,
            SyntaxError::Expected { expected, .. } => SPLITTER.contains(&expected.as_str()),
            _ => false,
        };
        // The block of a `step` is missing or ends too early: the statements behind it, up to the next declaration, are the same
        // mistake.
        let is_outside = matches!(&error, SyntaxError::UnknownKeyword { word, what: "declaration", .. }
            if keyword_help(word, "declaration", at, text) == INSIDE_STEP);
        let declared = |from: usize| text[from..at].lines().any(|line| DECLARATIONS.contains(&leading_word(line)));
        let is_repeated = unopened > 0 || outside.is_some_and(|from| !declared(from));
        outside = is_outside.then_some(at);
        if is_outside && is_repeated {
            continue;
        }
        let last = reported.last().map(offset_of);
        if is_consequence
            && last.is_some_and(|last| {
                (last < at && !first_on_line(text, at) && same_line(text, last, at))
                    || (last == at && matches!(reported.last(), Some(SyntaxError::UnexpectedCharacter { .. })))
            })
        {
            continue;
        }
        // Several brackets without their partners on one line are one mistake.
        if let (
            Some(SyntaxError::Unclosed { help, at: outer, end: last, .. }),
            SyntaxError::Unclosed { close, end, .. },
        ) = (reported.last_mut(), &error)
            && last == end
            && same_line(text, outer.offset() - base as usize, at)
            && let Some(others) = help.strip_prefix("add `")
        {
            *help = format!("add `{close}{others}");
            continue;
        }
        match (reported.last(), &error) {
            // An unterminated text cannot begin a statement either.
            (Some(SyntaxError::UnclosedText { at: last, .. }), SyntaxError::Expected { at, .. }) if last == at => {}
            // The token that ended a piece too early does not begin another one.
            (Some(SyntaxError::Expected { at: last, .. }), SyntaxError::UnknownKeyword { at, .. }) if last == at => {}
            (Some(SyntaxError::UnknownKeyword { at: last, .. }), SyntaxError::Expected { at, .. }) if last == at => {
                reported.pop();
                reported.push(error);
            }
            // A single error suffices for `else if` without a block.
            (Some(SyntaxError::MissingBlock { word, at, .. }), SyntaxError::MissingBlock { at: next, .. })
                if word == "else" && next.offset() == at.offset() + "else ".len() =>
            {
                reported.pop();
                reported.push(error);
            }
            // An `else` after an `if` without a block.
            (Some(SyntaxError::MissingBlock { word, at: last, .. }), SyntaxError::Expected { .. })
                if word == "if"
                    && text[at..].starts_with("else")
                    && same_line(text, last.offset() - base as usize, at) => {}
            _ => reported.push(helped(error, at, text)),
        }
    }
    let comments = foreign.iter().filter(|range| text[range.start..].starts_with("/*")).take(limit);
    reported.extend(comments.map(|range| comment(range.start, base)));
    reported.sort_by_key(SyntaxError::offset);
    let mut reported = folded(reported);
    reported.truncate(limit);
    reported
}

/// Comments, texts and decorators in the form of other languages: `# …`, `/* … */`, `'…'` and a line with `@…`. Linear time,
/// since a file may be one long line.
fn foreign(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(next) = text[at..].find(['"', '#', '/', '\'', '@']) {
        let start = at + next;
        let rest = &text[start..];
        let past = |end: &str, from: usize| {
            rest.get(from..).and_then(|rest| rest.find(end)).map_or(rest.len(), |length| from + length + end.len())
        };
        let (length, is_foreign) = match rest.as_bytes() {
            [b'/', b'/', ..] => (past("\n", 2), false),
            [b'/', b'*', ..] => (past("*/", 2), true),
            [b'#', ..] => (past("\n", 1), true),
            [b'@', ..] if begins_line(text, at, start) => (past("\n", 1), true),
            [b'\'', ..] => (quoted(rest), true),
            [b'"', b'"', b'"', ..] => (past("\"\"\"", 3), false),
            [b'"', ..] => (quoted(rest), false),
            _ => (1, false),
        };
        at = start + length;
        if is_foreign {
            found.push(start..at);
        }
    }
    found
}

/// True if only white space precedes `start` on its line. The text before `at` is known not to matter, unless it ends a line.
fn begins_line(text: &str, at: usize, start: usize) -> bool {
    let before = text[at..start].rsplit('\n').next().unwrap_or("");
    before.trim().is_empty() && (before.len() < start - at || at == 0 || text.as_bytes()[at - 1] == b'\n')
}

/// Length of a text in quotes, which are the first character of `text`; at most to the end of the line.
fn quoted(text: &str) -> usize {
    let quote = text.chars().next();
    let mut escaped = false;
    let end = text.char_indices().skip(1).find(|&(_, c)| {
        let ends = c == '\n' || (Some(c) == quote && !escaped);
        escaped = c == '\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}

/// An unterminated text, which extends to the end of its line.
struct Unclosed {
    start: usize,
    /// Closing brackets inside the text.
    closes: Vec<char>,
}

impl Unclosed {
    fn new(text: &str, start: usize) -> Self {
        let closing = text[start..].find("\"\"\"");
        let line = if closing == Some(0) { &text[start..] } else { line(text, start) };
        Unclosed { start, closes: [')', ']', '}'].into_iter().filter(|close| line.contains(*close)).collect() }
    }
}

/// Ranges from the quote that opens a text over several lines to the one that closes it. A line cannot hold such a text, so that
/// both quotes are reported as unterminated; only punctuation follows the second, and no declaration begins between them.
fn several_lines(text: &str, texts: &[Unclosed]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut texts = texts.iter().peekable();
    while let Some(first) = texts.next() {
        let closes = |next: &&Unclosed| {
            let declares = |line: &str| DECLARATIONS.iter().any(|word| line.split(' ').next() == Some(word));
            line(text, next.start + 1).chars().all(|c| ", )]};\"".contains(c))
                && !text[first.start..next.start].lines().skip(1).any(declares)
        };
        if let Some(last) = texts.next_if(|next| closes(next)) {
            found.push(first.start..last.start);
        }
    }
    found
}

/// True if a bracket is open only because the unterminated text that follows contains its closing bracket.
fn closes_in_unterminated_text(error: &SyntaxError, at: usize, texts: &[Unclosed]) -> bool {
    let SyntaxError::Unclosed { close, at: open, end, .. } = error else { return false };
    let end = at + end.offset() - open.offset();
    let next = &texts[texts.partition_point(|text| text.start < at)..];
    next.iter().take_while(|text| text.start < end).any(|text| text.closes.contains(close))
}

/// Help for a label that begins with a digit, at the beginning of a text; `None` if there is none.
fn numbered_label(text: &str) -> Option<String> {
    let word = leading_word(text);
    text[word.len()..].trim_start().starts_with([':', '[']).then(|| numbered_name(word)).flatten()
}

/// Help for a label in quotes; `None` for other text.
fn quoted_label(text: &str) -> Option<String> {
    let (name, rest) = text.strip_prefix('"')?.split_once('"')?;
    let is_label = !name.is_empty() && leading_word(name) == name && rest.trim_start().starts_with(':');
    is_label.then(|| format!("a label has no quotes: `{name}: …`"))
}

fn ends_with_word(text: &str, word: &str) -> bool {
    text.strip_suffix(word).is_some_and(|before| !before.ends_with(is_word))
}

/// True if a line begins with this word.
fn declares(text: &str, word: &str) -> bool {
    text.lines().any(|line| leading_word(line) == word)
}

/// True if only white space precedes `at` on its line.
fn first_on_line(text: &str, at: usize) -> bool {
    text[..at].rsplit('\n').next().is_none_or(|before| before.trim().is_empty())
}

fn same_line(text: &str, a: usize, b: usize) -> bool {
    !text[a.min(b)..a.max(b)].contains('\n')
}

/// The module of `use` on the line up to `at`; `None` if there is no `use`.
fn used_module(text: &str, at: usize) -> Option<&str> {
    let line = text[..at].rsplit('\n').next()?;
    line.strip_prefix("use ").map(str::trim)
}

/// The rest of the line from `at` on.
fn line(text: &str, at: usize) -> &str {
    text[at..].lines().next().unwrap_or("")
}

fn comment(begin: usize, base: u32) -> SyntaxError {
    SyntaxError::Expected {
        expected: "`//`".to_owned(),
        found: "`/*`".to_owned(),
        at: (begin + base as usize, 2).into(),
        help: Some(COMMENT.to_owned()),
    }
}

/// Adds a help to an error if there is one for it.
fn helped(mut error: SyntaxError, at: usize, text: &str) -> SyntaxError {
    match &mut error {
        SyntaxError::UnknownKeyword { word, what, help, .. } => *help = Some(keyword_help(word, what, at, text)),
        SyntaxError::MissingBlock { word, help, .. }
            if word == "on" && !first_on_line(text, at) && text[..at].trim_end().ends_with(')') =>
        {
            let name = leading_word(text[at + word.len()..].trim_start());
            let name = if name.is_empty() { "dp" } else { name };
            *help = Some(format!(
                "the ranks of an operation follow `over`: `all_reduce(x -> x) over {name}`; a stream has a block: `on {name} {{ … }}`"
            ));
        }
        SyntaxError::Unclosed { bracket: '(', help, .. } if ends_with_word(text[..at].trim_end(), "for") => {
            *help = "remove it: `for i in 0..4 { … }` has no parentheses".to_owned();
        }
        SyntaxError::Expected { expected, found, help, .. }
            if help.is_none() && SPLITTER.contains(&expected.as_str()) =>
        {
            *help = Some(match (expected.as_str(), found.as_str()) {
                ("a declaration", "`{`") => {
                    "declarations have no braces around them: `param n = 4`, `stream s`, `step { … }`".to_owned()
                }
                _ if text[at..].starts_with("--") || text[at..].starts_with('%') => COMMENT.to_owned(),
                _ => numbered_label(&text[at..]).or_else(|| quoted_label(&text[at..])).unwrap_or_else(|| {
                    format!("remove what begins with {found}, or look for what is missing before it")
                }),
            });
        }
        _ => {}
    }
    error
}

/// Merges errors about the same character at several locations.
fn folded(errors: Vec<SyntaxError>) -> Vec<SyntaxError> {
    let mut kept: Vec<SyntaxError> = Vec::new();
    let mut first: std::collections::HashMap<(char, String), usize> = std::collections::HashMap::new();
    for error in errors {
        if let SyntaxError::UnexpectedCharacter { character, help, .. } = &error {
            let mistake = (*character, help.clone());
            if let Some(&place) = first.get(&mistake) {
                if let SyntaxError::UnexpectedCharacter { others, .. } = &mut kept[place] {
                    *others += 1;
                }
                continue;
            }
            first.insert(mistake, kept.len());
        }
        kept.push(error);
    }
    kept
}

/// Help for a word that begins no declaration or statement.
fn keyword_help(word: &str, what: &str, at: usize, text: &str) -> String {
    let behind = text[at + word.len()..].trim_start();
    let first_on_line = first_on_line(text, at);
    if what == "statement" {
        let on_line = line(text, at + word.len()).trim_start();
        let behind_word = &on_line[leading_word(on_line).len()..];
        return match (other_languages::statement(word), suggest::nearest(word, STATEMENTS)) {
            (Some(help), _) => help.to_owned(),
            (None, _) if word == "group" => "a group has no name: `group { … }`".to_owned(),
            (None, _) if DECLARATIONS.contains(&word) => {
                format!("a `{word}` is declared outside of the step: move it above")
            }
            (None, _) if behind_word.starts_with('(') => {
                format!("a label has a colon: `{word}: {}(…)`", leading_word(behind))
            }
            (None, Some(near)) => format!("did you mean `{near}`?"),
            (None, None) => {
                let rest = line(text, at + word.len()).split("//").next().unwrap_or("").trim();
                let inside = if rest.contains(['{', '}', '(', ')']) { "…" } else { rest };
                format!(
                    "an operation has parentheses, `{word}({inside})`; other statements begin with {}",
                    words::one_of(STATEMENTS)
                )
            }
        };
    }
    let is_field = behind.starts_with(':') && !line(behind, 0).contains('(');
    let operation = STATEMENTS.contains(&word) || (behind.starts_with(['(', '.', ':', '[']) && !is_field);
    if let Some(help) = (!first_on_line).then(|| after_declaration(word, at, text)).flatten() {
        return help;
    }
    match other_languages::declaration(word) {
        _ if !first_on_line && word == "on" && leading_word(behind) == "rank" => {
            "remove it: every rank has what the file declares; in the step, `if rank == 0 { … }` is for one of them"
                .to_owned()
        }
        _ if !first_on_line && word == "on" => {
            let words: Vec<&str> = line(text, at).split_whitespace().collect();
            let space = ["pinned", "host", "device"].into_iter().find(|space| words.contains(space));
            format!("a buffer's space stands behind `in`: `buffer x: f32[8] in {}`", space.unwrap_or("device"))
        }
        _ if !first_on_line && word == "as" && used_module(text, at).is_some() => {
            let path = used_module(text, at).unwrap_or_default();
            let (path, module) = match path.strip_prefix('"').and_then(|path| path.strip_suffix('"')) {
                Some(file) => {
                    let name = file.rsplit('/').next().unwrap_or(file);
                    (path.to_owned(), name.strip_suffix(".aorta").unwrap_or(name).to_owned())
                }
                None => {
                    let path = path.replace("::", ".");
                    let module = path.rsplit('.').next().unwrap_or(&path).to_owned();
                    (path, module)
                }
            };
            format!("a module has the name of its file: write `use {path}`, and then `{module}.name(…)`")
        }
        _ if !first_on_line && word == "as" => {
            "write the unit of a metric after it, in quotes: `metric rate = bytes / time \"GB/s\"`".to_owned()
        }
        None if first_on_line && behind.starts_with('=') && !behind.starts_with("==") => format!(
            "write `let {word} = …` for a value, `stream {word}` for a stream, `buffer {word}: f32[1024]` for memory"
        ),
        _ if word == "not" && behind.starts_with("in ") => "a condition has no `in`: write `n != 1`".to_owned(),
        _ if word == "if"
            && !first_on_line
            && text[..at].rsplit('\n').next().is_some_and(|line| line.contains("expect ")) =>
        {
            "the condition of an expectation follows `when`: `expect time < 1ms when n > 4`".to_owned()
        }
        _ if word == "if" && !first_on_line => "a choice is written `if c { a } else { b }`".to_owned(),
        _ if !first_on_line && behind.starts_with(':') => format!("write an option in parentheses: `({word}: …)`"),
        _ if !first_on_line && (!operation || behind.starts_with('[')) => {
            format!("the text before `{word}` is complete: remove the word, or write an operator before it")
        }
        Some(help) if !behind.starts_with(':') || is_field => help.to_owned(),
        None if is_field => {
            "a file has declarations, such as `param n = 4`, `stream s` and `buffer x: f32[1024]`; operations \
                             belong inside `step { … }`"
                .to_owned()
        }
        None if other_languages::statement(word).is_some() => {
            other_languages::statement(word).unwrap_or_default().to_owned()
        }
        _ if word == "for" && behind.contains("{ metric ") => {
            "a figure for each value is a family: `metric rate[i in 0..4] = busy(f[i])`".to_owned()
        }
        _ if ["for", "if"].contains(&word)
            && ["{ stream ", "{ buffer "].iter().any(|inner| line(text, at).contains(inner)) =>
        {
            "declarations have no loops and no conditions: declare a family, `stream s[n]` or `buffer x[n]: f32[4]`"
                .to_owned()
        }
        _ if operation => INSIDE_STEP.to_owned(),
        _ if first_on_line && DECLARATIONS.contains(&leading_word(behind)) => {
            format!("the kind of a declaration is its first word: `{} {word}`", leading_word(behind))
        }
        _ => match suggest::nearest(word, DECLARATIONS) {
            // The word is near both; a file that is no module needs a step.
            Some("setup") if suggest::nearest(word, ["step"]).is_some() && !declares(text, "step") => {
                "did you mean `step`?".to_owned()
            }
            Some(near) => format!("did you mean `{near}`?"),
            None => {
                format!("a declaration begins with {}", words::one_of(words::leads(true).iter().map(|lead| lead.word)))
            }
        },
    }
}

/// Help for a word after a declaration, on the same line, that would be complete without the word; `None` if the word
/// is not known.
fn after_declaration(word: &str, at: usize, text: &str) -> Option<String> {
    let before = text[..at].rsplit('\n').next()?.trim();
    let (lead, _) = before.split_once(' ')?;
    if lead == "require" && line(text, at).trim().contains(' ') {
        return Some(format!("the message has quotes: `{before} \"{}\"`", line(text, at).trim().replace('"', "")));
    }
    let digits = before.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '_');
    let number = &before[digits.len()..];
    if !number.is_empty()
        && digits.ends_with(' ')
        && let Some(unit) = other_languages::unit(number, word)
    {
        return Some(unit);
    }
    match lead {
        "buffer" if ["device", "pinned", "managed", "host"].contains(&word) && before.contains(" in ") => {
            Some(format!("a buffer has one space: remove `{word}`"))
        }
        "buffer" if ["device", "pinned", "managed", "host"].contains(&word) => {
            Some(format!("the space of a buffer follows `in`: `{before} in {word}`"))
        }
        "buffer" if before.ends_with(']') && DType::from_name(word).is_some() => {
            let sizes = &before[before.rfind('[').unwrap_or(0)..];
            Some(format!("sizes follow the element type: `{word}{sizes}`"))
        }
        "stream" if ["priority", "units", "queue", "kind", "threads"].contains(&word) => {
            let value = line(text, at + word.len()).trim_start_matches([' ', ':', '=']).split(' ').next()?;
            Some(format!("write options in parentheses: `{before}({word}: {value})`"))
        }
        "param" if ["choices", "options", "among", "one", "oneof", "from"].contains(&word) => {
            Some("allowed values follow `in`: `param n = 4 in [1, 2, 4]`, or `in 1..=8`".to_owned())
        }
        _ => None,
    }
}
