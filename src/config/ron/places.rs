//! Places of the values of a RON text, found by the names of the fields that lead to them.

use std::ops::Range;

use super::tokens::{MAX_NESTING, Token, TokenAfterLines, tokens};

/// A value of a RON text with its name, and the values between its brackets.
#[derive(Clone, Debug)]
pub(super) struct PlacedValue {
    /// The name before the `:`, without its quotes; `None` for an element of a list or a tuple.
    pub key: Option<String>,
    /// Bytes of the name, or of the value if it has none.
    pub name: Range<usize>,
    /// Bytes of the value; empty if it is absent.
    pub value: Range<usize>,
    /// Offset after the comma that ends the entry; `None` if no comma does.
    comma: Option<usize>,
    /// True if the entry's value consists of words, numbers and signs alone, such as `4 * 1024`.
    pub is_plain: bool,
    /// True for an element of a list, `[…]`.
    is_element: bool,
    inner: Vec<PlacedValue>,
}

impl PlacedValue {
    /// Byte range of the name, the value and the comma after it.
    pub fn whole(&self) -> Range<usize> {
        self.name.start..self.comma.unwrap_or(self.value.end)
    }

    /// True if the text is still complete without this entry: tuples need all of their elements.
    pub fn is_removable(&self) -> bool {
        self.key.is_some() || self.is_element
    }
}

/// The values of a RON text with their places.
#[derive(Clone, Debug)]
pub(super) struct Places(PlacedValue);

impl Places {
    /// The places in a text; `None` if its brackets do not match, or if it is not one value.
    pub fn of(text: &str) -> Option<Places> {
        let tokens: Vec<TokenAfterLines> = tokens(text).ok()?;
        let tokens: Vec<Token> = tokens.into_iter().map(|(token, _)| token).collect();
        let tokens: Vec<Token> = tokens.into_iter().filter(|token| !matches!(token, Token::Comment(_))).collect();
        let mut reader = Reader { text, tokens: &tokens, at: 0 };
        let mut root = reader.entries(false, 0)?;
        (reader.at == tokens.len() && root.len() == 1).then(|| Places(root.remove(0)))
    }

    /// Names of the outermost fields.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.inner.iter().filter_map(|entry| entry.key.as_deref())
    }

    /// The entries from the outermost to the innermost one that contains an offset, or ends before it and is followed by no
    /// other.
    pub fn around(&self, offset: usize) -> Vec<&PlacedValue> {
        let mut path = vec![&self.0];
        while let Some(last) = path.last()
            && offset < last.value.end
            && let Some(next) = last.inner.iter().rev().find(|entry| entry.name.start <= offset)
        {
            path.push(next);
        }
        path
    }

    /// The entry at a path of names, in which the index of an element is written in decimal digits; `None` if there is
    /// none.
    pub fn find(&self, names: &[&str]) -> Option<&PlacedValue> {
        names.iter().try_fold(&self.0, |entry, name| match entry.inner.first()?.key {
            Some(_) => entry.inner.iter().find(|inner| inner.key.as_deref() == Some(*name)),
            None => entry.inner.get(name.parse::<usize>().ok()?),
        })
    }
}

struct Reader<'a> {
    text: &'a str,
    tokens: &'a [Token<'a>],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Bytes of a token's text.
    fn range(&self, token: &str) -> Range<usize> {
        let start = token.as_ptr() as usize - self.text.as_ptr() as usize;
        start..start + token.len()
    }

    /// Entries up to a closing bracket or the end; `None` if brackets do not match or nest too deeply.
    fn entries(&mut self, is_list: bool, depth: usize) -> Option<Vec<PlacedValue>> {
        // Checked before the inner brackets are read, to limit the use of the stack.
        if depth > MAX_NESTING {
            return None;
        }
        let mut entries = Vec::new();
        while let Some(token) = self.tokens.get(self.at) {
            match token {
                Token::Close(_) => break,
                Token::Open(_) | Token::Atom(_) => entries.push(self.entry(is_list, depth)?),
                Token::Comma(_) | Token::Colon | Token::Comment(_) => self.at += 1,
            }
        }
        Some(entries)
    }

    /// The entry that begins at the current token and ends before the next comma; `None` at the end of the text.
    fn entry(&mut self, is_element: bool, depth: usize) -> Option<PlacedValue> {
        let (first, second) = (*self.tokens.get(self.at)?, self.tokens.get(self.at + 1));
        let key = match (first, second) {
            (Token::Atom(name), Some(Token::Colon)) => Some(name),
            _ => None,
        };
        if key.is_some() {
            self.at += 2;
        }
        let mut value: Option<Range<usize>> = None;
        let (mut is_plain, mut inner) = (true, Vec::new());
        while let Some(token) = self.tokens.get(self.at) {
            let range = match token {
                Token::Comma(_) | Token::Close(_) => break,
                Token::Colon | Token::Comment(_) => None,
                Token::Atom(text) => Some(self.range(text)),
                Token::Open(open) => {
                    self.at += 1;
                    inner = self.entries(*open == "[", depth + 1)?;
                    match self.tokens.get(self.at) {
                        Some(Token::Close(close))
                            if matches!((*open, *close), ("(", ")") | ("[", "]") | ("{", "}")) =>
                        {
                            Some(self.range(open).start..self.range(close).end)
                        }
                        _ => return None,
                    }
                }
            };
            is_plain &= matches!(token, Token::Atom(_));
            self.at += 1;
            if let Some(range) = range {
                value = Some(value.map_or(range.start, |value| value.start)..range.end);
            }
        }
        let name = key.map(|name| self.range(name));
        let value = value.or_else(|| name.clone().map(|name| name.end..name.end))?;
        let key = key.map(|name| name.trim_matches('"').to_owned());
        let name = name.unwrap_or_else(|| value.clone());
        let comma = match self.tokens.get(self.at) {
            Some(Token::Comma(comma)) => Some(self.range(comma).end),
            _ => None,
        };
        Some(PlacedValue { key, name, value, comma, is_plain, is_element, inner })
    }
}
