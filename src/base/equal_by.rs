//! Equality and hashing by a key.

/// Implements `PartialEq`, `Eq` and `Hash` of a type by a key: `equal_by!(DataFile, |file| (&file.path, file.bytes))`.
macro_rules! equal_by {
    ($type:ty, |$value:ident| $key:expr) => {
        impl PartialEq for $type {
            fn eq(&self, other: &Self) -> bool {
                let own = {
                    let $value = self;
                    $key
                };
                let $value = other;
                own == $key
            }
        }

        impl Eq for $type {}

        impl std::hash::Hash for $type {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                let $value = self;
                $key.hash(state);
            }
        }
    };
}

pub(crate) use equal_by;
