//! Finds names that unparsable text would have declared, so that their uses are not reported as errors.

use super::lex::{Slashes, lex};
use super::token::{Token, TokenKind};
use super::words::{WordRole, closing, continues, is_reserved, lead, role};

/// Declarations whose second word is a name.
const NAMING: [&str; 10] = ["param", "let", "preset", "stream", "buffer", "mesh", "kernel", "def", "draw", "metric"];

/// Returns the words of `text` at positions where a name is declared, labels a call, or is an output. An empty word stands for a
/// declaration or a label that lacks its name.
pub fn declared(text: &str) -> Vec<&str> {
    let tokens = lex(text, 0, Slashes::Comment, &mut Vec::new()).tokens;
    let text_of = |index: usize| tokens.get(index).map_or("", |token| token.text(text, 0));
    let is_word = |index: usize| tokens.get(index).is_some_and(|token| token.kind == TokenKind::Word);
    let says = |index: usize, what: &[&str]| tokens.get(index).is_some_and(|token| what.contains(&token.text(text, 0)));
    // A word after a value, or directly before one, is a use and not a declaration.
    let before_value = |index: usize| {
        let word = tokens[index].text(text, 0);
        continues(word) || role(word) == Some(WordRole::Before)
    };
    let begins_line = |index: usize| {
        let end = |index: usize| tokens[index].span.end() as usize;
        index == 0 || text[end(index - 1)..tokens[index].span.start as usize].contains('\n')
    };
    let closed = closed(&tokens);
    let mut declared = Vec::new();
    let mut open = Vec::new();
    let mut behind_arrow = false;
    // True between parentheses that begin a line: the outputs of `(a, b): f(x)`.
    let mut in_tuple = false;
    for (index, token) in tokens.iter().enumerate() {
        let in_block = open.last().is_none_or(|bracket| *bracket == b'{');
        match token.kind {
            // The names behind a `[` that nothing closes are not its sizes.
            TokenKind::Open(b'[') if !closed[index] => {}
            TokenKind::Open(bracket) => {
                in_tuple = bracket == b'(' && begins_line(index);
                open.push(bracket);
            }
            TokenKind::Close(_) => {
                open.pop();
                (behind_arrow, in_tuple) = (false, false);
            }
            _ if says(index, &["->"]) => behind_arrow = true,
            // A label without a name. One that is no name, such as `3a:`, `a-b:` or `on:`, is no name in its uses either.
            _ if in_block && says(index, &[":"]) && (index == 0 || says(index - 1, &["{", "}", ")"])) => {
                declared.push("");
            }
            // A label in quotes is no label, but its uses say so no better.
            TokenKind::Text if in_block && says(index + 1, &[":"]) => {
                declared.push(token.text(text, 0).trim_matches('"'));
            }
            TokenKind::Word => {
                let word = token.text(text, 0);
                let is_first = in_block && begins_line(index);
                let is_lead = [true, false].into_iter().any(|top| lead(word, top).is_some());
                let lacks_name = !is_word(index + 1) || is_reserved(text_of(index + 1)) || begins_line(index + 1);
                if is_first && NAMING.contains(&word) && lacks_name {
                    declared.push("");
                }
                // The label of `last map(x)`, or the name of a declaration without its kind.
                let behind_brace = index > 0 && says(index - 1, &["{", "}"]) && is_word(index + 1);
                let behind_brace = behind_brace && !before_value(index + 1);
                let alone = (is_first || (in_block && behind_brace))
                    && !is_lead
                    && !is_reserved(word)
                    && !says(index + 1, &["(", "."]);
                // A word after one of these is used, not declared.
                let uses = index > 0 && says(index - 1, &["expect", "require", "on", "after"]);
                let behind_word =
                    index > 0 && is_word(index - 1) && !uses && !before_value(index - 1) && !before_value(index);
                // Names in `buffer a, b: f32[4]`, and outputs of an operation.
                let listed = index > 0 && says(index - 1, &["->", ",", "["]) && (open.is_empty() || behind_arrow);
                let in_tuple = in_tuple && says(index - 1, &["(", ","]) && says(index + 1, &[")", ","]);
                if alone || behind_word || listed || in_tuple || says(past_indices(&tokens, index + 1), &[":", "="]) {
                    declared.push(word);
                }
            }
            _ => {}
        }
    }
    declared
}

/// For each token, true if it is an opening bracket that is closed.
fn closed(tokens: &[Token]) -> Vec<bool> {
    let (mut closed, mut open) = (vec![false; tokens.len()], Vec::new());
    for (index, token) in tokens.iter().enumerate() {
        match token.kind {
            TokenKind::Open(bracket) => open.push((index, closing(bracket))),
            TokenKind::Close(bracket) => {
                if let Some(place) = open.iter().rposition(|(_, close)| *close == bracket) {
                    closed[open[place].0] = true;
                    open.truncate(place);
                }
            }
            _ => {}
        }
    }
    closed
}

/// The index after the brackets that open at `index`, or `index` itself if none open there.
fn past_indices(tokens: &[Token], index: usize) -> usize {
    /// Maximum number of tokens of an index; anything longer does not name a family.
    const MAX_TOKENS: usize = 64;
    if tokens.get(index).is_none_or(|token| token.kind != TokenKind::Open(b'[')) {
        return index;
    }
    let behind = tokens[index..].iter().take(MAX_TOKENS);
    behind.clone().position(|token| token.kind == TokenKind::Close(b']')).map_or(index, |length| index + length + 1)
}

#[cfg(test)]
mod tests {
    use super::declared;

    #[test]
    fn a_declaration_without_a_name_may_declare_any() {
        for text in ["stream", "buffer : f32[n]", "param = n", ": f(x)", "f(x) : g(x)"] {
            assert!(declared(text).contains(&""), "{text}");
        }
        for text in [
            "stream s",
            "buffer x: f32[n]",
            "f[i]: f(x)",
            "f(x, by: 2)",
            "param n = m",
            "3a: f(x)",
            "a-b: f(x)",
            "on: f(x)",
        ] {
            assert!(!declared(text).contains(&""), "{text}");
        }
    }

    #[test]
    fn names_are_recognized_by_position() {
        assert_eq!(declared("prm n = m * 2 or k"), ["prm", "n"]);
        assert_eq!(declared("buffer a, b[2]: f32[n, k]"), ["a", "b"]);
        assert_eq!(declared("for i in 0..n { f[i]: copy(x -> y, _)"), ["i", "f", "y", "_"]);
        assert_eq!(declared("on s after f { step"), [""; 0]);
        assert_eq!(declared("map(a, b, c"), [""; 0]);
        assert_eq!(declared("compute stream"), ["compute", "stream"]);
        assert_eq!(declared("s[streams]"), ["s"]);
        assert_eq!(declared("step { last map(x -> y) }"), ["last", "map", "y"]);
        assert_eq!(declared("[ v, w: f32[n, k]"), ["v", "w"]);
        assert_eq!(declared("(v, w) = f(x, y)"), ["v", "w"]);
        assert_eq!(declared("if n { m } else { k }"), [""; 0]);
    }
}
