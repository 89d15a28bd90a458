//! Constant texts in messages between processes.

use std::collections::BTreeSet;
use std::sync::Mutex;

use crate::base::threads::lock;

use serde::{Deserialize, Deserializer};

/// A string constant of the program.
pub type Constant = &'static str;

/// Deserializes a string constant that another process sent. Each distinct text is leaked once; there are few.
pub(super) fn constant<'de, D: Deserializer<'de>>(from: D) -> Result<Constant, D::Error> {
    let text = String::deserialize(from)?;
    static KNOWN: Mutex<BTreeSet<Constant>> = Mutex::new(BTreeSet::new());
    let mut known = lock(&KNOWN);
    Ok(match known.get(text.as_str()) {
        Some(constant) => constant,
        None => {
            let constant: Constant = Box::leak(text.into_boxed_str());
            known.insert(constant);
            constant
        }
    })
}
