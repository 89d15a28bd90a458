//! Types of the fields of a scenario: the texts that complete an argument, and the representation in RON.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use serde::Deserializer;
use serde::de::DeserializeOwned;

use super::quantity::QuantityRange;
use super::words;

/// The type of a field.
pub(in crate::config) trait FieldValue: DeserializeOwned {
    /// Name of the type in messages and documentation.
    const FORM: &str;

    /// Words that a value can be; empty for other values.
    const WORDS: &[&str] = &[];

    /// Reads the value from RON.
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::deserialize(deserializer)
    }

    /// Texts that each complete an argument; none for the default. A flag has an empty text.
    fn values(&self) -> Vec<String>;

    /// The value in RON; `None` for the default.
    fn ron(&self) -> Option<String>;
}

/// Deserializes the value of a field.
pub(in crate::config) fn read<'de, T: FieldValue, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    T::read(deserializer)
}

/// A text in RON's quotes.
fn quoted(text: &str) -> String {
    // RON has the escapes of Rust.
    format!("{text:?}")
}

/// Lines between brackets, each indented; `None` without any.
fn lines(brackets: [&str; 2], lines: Vec<String>) -> Option<String> {
    let inner: String = lines.iter().map(|line| format!("        {line},\n")).collect();
    (!lines.is_empty()).then(|| format!("{}\n{inner}    {}", brackets[0], brackets[1]))
}

impl FieldValue for String {
    const FORM: &str = "text";

    fn values(&self) -> Vec<String> {
        vec![self.clone()]
    }

    fn ron(&self) -> Option<String> {
        Some(quoted(self))
    }
}

impl FieldValue for Option<String> {
    const FORM: &str = "text";

    fn values(&self) -> Vec<String> {
        self.iter().cloned().collect()
    }

    fn ron(&self) -> Option<String> {
        self.as_deref().map(quoted)
    }
}

impl FieldValue for Vec<String> {
    const FORM: &str = "list of texts";

    fn values(&self) -> Vec<String> {
        self.clone()
    }

    fn ron(&self) -> Option<String> {
        lines(["[", "]"], self.iter().map(|text| quoted(text)).collect())
    }
}

impl FieldValue for bool {
    const FORM: &str = "word";
    const WORDS: &[&str] = &["true", "false"];

    fn values(&self) -> Vec<String> {
        self.then(String::new).into_iter().collect()
    }

    fn ron(&self) -> Option<String> {
        self.then(|| "true".to_owned())
    }
}

/// An optional field whose type is that of a setting too.
macro_rules! optional {
    ($type:ty, $form:literal) => {
        impl $crate::config::values::field::FieldValue for Option<$type> {
            const FORM: &str = $form;
            const WORDS: &[&str] = <$type as $crate::config::values::value::SettingValue>::WORDS;

            fn values(&self) -> Vec<String> {
                self.iter().map($crate::config::values::value::SettingValue::text).collect()
            }

            fn ron(&self) -> Option<String> {
                self.as_ref().map($crate::config::values::value::SettingValue::text)
            }
        }
    };
}

optional!(u32, "number");
optional!(u64, "number");

pub(in crate::config) use optional;

macro_rules! values_by_name {
    ($($type:ty, $form:literal, $read:path;)+) => {$(
        impl FieldValue for $type {
            const FORM: &str = $form;

            fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $read(deserializer)
            }

            fn values(&self) -> Vec<String> {
                self.iter().map(|(name, value)| format!("{name}={value}")).collect()
            }

            fn ron(&self) -> Option<String> {
                let pair = |(name, value): (&String, &String)| format!("{}: {}", quoted(name), quoted(value));
                lines(["{", "}"], self.iter().map(pair).collect())
            }
        }
    )+};
}

values_by_name! {
    BTreeMap<String, String>, "values by name", words::by_name;
    IndexMap<String, String>, "lists by name", words::lists_by_name;
}

impl FieldValue for BTreeMap<String, QuantityRange> {
    const FORM: &str = "ranges by name";

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        words::ranges_by_name(deserializer)
    }

    fn values(&self) -> Vec<String> {
        self.iter().map(|(name, span)| format!("{name}={span}")).collect()
    }

    fn ron(&self) -> Option<String> {
        lines(["{", "}"], self.iter().map(|(name, span)| format!("{}: {}", quoted(name), span.ron())).collect())
    }
}
