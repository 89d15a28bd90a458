//! The indices after the name of a label or a phase.

use std::borrow::Borrow;
use std::ops::Deref;

use crate::base::equal_by::equal_by;

/// `[l]`, `[l, e]`, or none. A single number, as most labels in loops have, needs no allocation.
#[derive(Clone, Debug, Default)]
pub enum Index {
    #[default]
    None,
    One([i64; 1]),
    Many(Box<[i64]>),
}

impl Deref for Index {
    type Target = [i64];

    fn deref(&self) -> &[i64] {
        match self {
            Index::None => &[],
            Index::One(one) => one,
            Index::Many(many) => many,
        }
    }
}

impl FromIterator<i64> for Index {
    fn from_iter<I: IntoIterator<Item = i64>>(numbers: I) -> Self {
        let mut numbers = numbers.into_iter();
        match (numbers.next(), numbers.next()) {
            (None, _) => Index::None,
            (Some(one), None) => Index::One([one]),
            (Some(first), Some(second)) => Index::Many([first, second].into_iter().chain(numbers).collect()),
        }
    }
}

impl Borrow<[i64]> for Index {
    fn borrow(&self) -> &[i64] {
        self
    }
}

equal_by!(Index, |index| &**index);
