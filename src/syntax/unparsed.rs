//! Finds names that unparsable text would have declared, so that their uses are not reported as errors.

use super::lex::{Slashes, lex};
use super::token::{Token, TokenKind};
use super::words::{WordRole, continues, role};

/// Returns the words of `text` at positions where a name is declared, labels a call, or is an output.
pub fn declared(text: &str) -> Vec<&str> {
    let tokens = lex(text, 0, Slashes::Comment, &mut Vec::new()).tokens;
    let is_word = |index: usize| tokens.get(index).is_some_and(|token| token.kind == TokenKind::Word);
    let says = |index: usize, what: &[&str]| tokens.get(index).is_some_and(|token| what.contains(&token.text(text, 0)));
    // A word after a value, or directly before one, is a use and not a declaration.
    let before_value = |index: usize| {
        let word = tokens[index].text(text, 0);
        continues(word) || role(word) == Some(WordRole::Before)
    };
    let mut declared = Vec::new();
    let mut depth = 0usize;
    let mut behind_arrow = false;
    for (index, token) in tokens.iter().enumerate() {
        match token.kind {
            TokenKind::Open(_) => depth += 1,
            TokenKind::Close(_) => (depth, behind_arrow) = (depth.saturating_sub(1), false),
            _ if says(index, &["->"]) => behind_arrow = true,
            TokenKind::Word => {
                let behind_word = index > 0 && is_word(index - 1) && !before_value(index - 1) && !before_value(index);
                // Names in `buffer a, b: f32[4]`, and outputs of an operation.
                let listed = index > 0 && says(index - 1, &["->", ","]) && (depth == 0 || behind_arrow);
                if behind_word || listed || says(past_indices(&tokens, index + 1), &[":", "="]) {
                    declared.push(token.text(text, 0));
                }
            }
            _ => {}
        }
    }
    declared
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
    fn names_are_recognized_by_position() {
        assert_eq!(declared("prm n = m * 2 or k"), ["n"]);
        assert_eq!(declared("buffer a, b[2]: f32[n, k]"), ["a", "b"]);
        assert_eq!(declared("for i in 0..n { f[i]: copy(x -> y, _)"), ["i", "f", "y", "_"]);
        assert_eq!(declared("on s after f { step"), [""; 0]);
        assert_eq!(declared("map(a, b, c"), [""; 0]);
    }
}
