//! Values that RON texts may hold with or without quotes: names, words, numbers, and lists of them.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::marker::PhantomData;

use ron::value::RawValue;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::quantity::QuantityRange;

/// A name, a word, a number or a list as the command line takes it: `n`, `bf16`, `4096`, `[1, 2]`; or a text in quotes,
/// without them.
#[derive(Debug)]
struct Word(String);

/// A list of words as options of a sweep take it, `1,2,4`: a text in quotes, or words between brackets.
#[derive(Debug)]
struct WordList(String);

impl Word {
    /// The word that a value in RON means; `None` for fields and maps.
    fn of(value: &RawValue) -> Option<Word> {
        let value = value.trim().get_ron();
        let text = ron::from_str::<String>(value).ok();
        text.or_else(|| (!value.starts_with(['(', '{', '\''])).then(|| value.to_owned())).map(Word)
    }
}

/// The error for fields or a map in place of a word.
fn no_word<E: Error>() -> E {
    E::custom("a number, a word, a list or a text in quotes is expected")
}

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Word, D::Error> {
        Word::of(&Box::<RawValue>::deserialize(deserializer)?).ok_or_else(no_word)
    }
}

/// A value as an element of a list with commas: in quotes if it has a comma outside of brackets.
fn listed(word: Word) -> String {
    if word.0.contains(',') && !word.0.starts_with(['[', '(']) { format!("{:?}", word.0) } else { word.0 }
}

impl<'de> Deserialize<'de> for WordList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WordList, D::Error> {
        let value = Box::<RawValue>::deserialize(deserializer)?;
        match ron::from_str::<Vec<Word>>(value.trim().get_ron()) {
            Ok(words) => Ok(WordList(words.into_iter().map(listed).collect::<Vec<_>>().join(","))),
            Err(_) => Word::of(&value).map(|word| WordList(word.0)).ok_or_else(no_word),
        }
    }
}

/// Reads names and their values.
pub(in crate::config) fn by_name<'de, D: Deserializer<'de>, T: FromIterator<(String, String)>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let pairs = deserializer.deserialize_map(Pairs(PhantomData::<Word>))?;
    Ok(pairs.into_iter().map(|(name, value)| (name, value.0)).collect())
}

/// Reads names and their lists of values.
pub(super) fn lists_by_name<'de, D: Deserializer<'de>, T: FromIterator<(String, String)>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let pairs = deserializer.deserialize_map(Pairs(PhantomData::<WordList>))?;
    Ok(pairs.into_iter().map(|(name, value)| (name, value.0)).collect())
}

/// Reads names and their ranges.
pub(in crate::config) fn ranges_by_name<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, QuantityRange>, D::Error> {
    deserializer.deserialize_map(Pairs(PhantomData)).map(BTreeMap::from_iter)
}

/// Deserializes a list of words or numbers as texts.
pub(in crate::config) fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(Vec::<Word>::deserialize(deserializer)?.into_iter().map(|word| word.0).collect())
}

/// Deserializes a word or a number as text.
pub(super) fn one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Word::deserialize(deserializer)?.0)
}

/// Names with values of a type, each name once.
struct Pairs<W>(PhantomData<W>);

impl<'de, W: Deserialize<'de>> Visitor<'de> for Pairs<W> {
    type Value = Vec<(String, W)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("names and their values between `{` and `}`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut pairs, mut names) = (Vec::new(), HashSet::new());
        while let Some(Word(name)) = map.next_key()? {
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(format!("`{name}` is there twice")));
            }
            pairs.push((name, map.next_value()?));
        }
        Ok(pairs)
    }
}
