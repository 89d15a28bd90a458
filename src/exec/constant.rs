//! Constant texts in messages between processes.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Deserializer};

/// A string constant of the program.
pub type Constant = &'static str;

/// Deserializes a string constant that another process sent. Each distinct text is leaked once; there are few.
pub(super) fn constant<'de, D: Deserializer<'de>>(from: D) -> Result<Constant, D::Error> {
    String::deserialize(from).map(kept)
}

/// Deserializes several string constants.
pub(super) fn constants<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Constant>, D::Error> {
    Vec::<String>::deserialize(from).map(|texts| texts.into_iter().map(kept).collect())
}

fn kept(text: String) -> Constant {
    static KNOWN: Mutex<BTreeSet<Constant>> = Mutex::new(BTreeSet::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    match known.get(text.as_str()) {
        Some(constant) => constant,
        None => {
            let constant: Constant = Box::leak(text.into_boxed_str());
            known.insert(constant);
            constant
        }
    }
}
