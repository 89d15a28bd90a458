//! Numbers with units in RON texts: `"640TFLOP/s"`, `"16MiB"`, `"2.5us"`.

use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};

use crate::base::units::{self, Dimension};
use crate::config::ConfigError;

/// Unit of a share.
const PERCENT: &str = "%";

/// A number with its dimension, in base units: nanoseconds, bytes, operations, and their rates.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantity {
    pub value: f64,
    pub dimension: Dimension,
    /// Unit that a metric defines, such as `tokens/s`, or `%`; `None` for other units of the language.
    pub counted: Option<String>,
}

impl Quantity {
    /// Parses a number with or without a unit: `50GB/s`, or `1M tokens/s` in a unit that a metric defines. The error says
    /// what is expected.
    pub fn parse(text: &str) -> Result<Quantity, String> {
        let text = text.trim();
        let plain = |value: f64| Quantity { value, dimension: Dimension::NONE, counted: None };
        let wrong = || format!("`{text}` is no number with a unit, such as \"50GB/s\", \"16MiB\" or \"2.5us\"");
        // Also accepts `6.2e6`, but no special values such as `inf`, nor numbers beyond `f64` such as `1e999`.
        if let Ok(value) = text.parse::<f64>()
            && text.starts_with(|c: char| c.is_ascii_digit() || c == '-')
        {
            return Some(value).filter(|value| value.is_finite()).map(plain).ok_or_else(wrong);
        }
        let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-')).unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let value = number.parse().ok().filter(|value: &f64| value.is_finite()).ok_or_else(wrong)?;
        let (factor, dimension, counted) = match unit.trim() {
            "" => return Err(wrong()),
            name => match units::unit(name) {
                Some(unit) => (unit.factor, unit.dimension, (name == PERCENT).then(|| name.to_owned())),
                None => match nearest_unit(name) {
                    Some(nearest) => return Err(format!("there is no unit `{name}`, did you mean `{nearest}`?")),
                    None => {
                        let (factor, name) = prefixed(name);
                        (factor, Dimension::NONE, Some(name.to_owned()))
                    }
                },
            },
        };
        let value = Some(value * factor).filter(|value| value.is_finite()).ok_or_else(wrong)?;
        Ok(Quantity { value, dimension, counted })
    }

    /// The value in SI units: seconds, bytes per second.
    pub fn si(&self) -> f64 {
        self.value * 1e9f64.powi(-i32::from(self.dimension.time))
    }

    /// The quantity in RON, without loss.
    fn ron(&self) -> String {
        match self.counted.as_deref() {
            Some(PERCENT) => return format!("\"{}%\"", percent(self.value)),
            Some(counted) => return format!("{:?}", format!("{} {counted}", self.value)),
            None => {}
        }
        let fits = units::UNITS.iter().filter(|unit| unit.dimension == self.dimension);
        // A unit with factor 1 preserves every bit of the value.
        match fits.min_by_key(|unit| unit.factor != 1.0) {
            Some(unit) if self.dimension != Dimension::NONE => format!("\"{}{}\"", self.value / unit.factor, unit.name),
            _ => self.value.to_string(),
        }
    }
}

/// Splits a unit that a metric defines into the factor of its decimal prefix and its name: `M tokens/s`, as
/// [`units::NamedCount`] prints it.
fn prefixed(unit: &str) -> (f64, &str) {
    let prefix = |word: &str| units::PREFIXES.iter().find(|(_, prefix)| *prefix == word).map(|(factor, _)| *factor);
    let split = unit.split_once(char::is_whitespace).and_then(|(word, name)| Some((prefix(word)?, name.trim_start())));
    split.unwrap_or((1.0, unit))
}

/// True if a unit that a metric defines can be written after a number. `1/s` cannot, and neither can units that the
/// parser takes for misspelt units of the language.
fn is_written(unit: &str) -> bool {
    Quantity::parse(&format!("1 {unit}")).is_ok_and(|one| one.counted.as_deref() == Some(unit))
}

/// The unit that was probably meant; `None` if none is similar.
fn nearest_unit(name: &str) -> Option<&'static str> {
    crate::base::suggest::nearest(name, units::UNITS.iter().map(|unit| unit.name))
}

/// The number before `%` from which a share is read.
fn percent(share: f64) -> f64 {
    let near = share * 100.0;
    // Rounding leaves the result next to the number in question.
    let read = |number: &f64| Quantity::parse(&format!("{number}%")).is_ok_and(|read| read.value == share);
    [near, near.next_up(), near.next_down()].into_iter().find(read).unwrap_or(near)
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.counted.as_deref() {
            Some(PERCENT) => f.write_str(&self.dimension.display_in(self.value, PERCENT)),
            Some(counted) => units::NamedCount(self.value, counted).fmt(f),
            None => f.write_str(&self.dimension.display(self.value)),
        }
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Quantity, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number with a unit in quotes, such as \"50GB/s\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                Quantity::parse(text).map_err(E::custom)
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Quantity, E> {
                match value.is_finite() {
                    true => Ok(Quantity { value, dimension: Dimension::NONE, counted: None }),
                    false => Err(E::custom(format!("a finite number is expected, not {value}"))),
                }
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Quantity, E> {
                self.visit_f64(value as f64)
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Quantity, E> {
                self.visit_f64(value as f64)
            }
        }
        deserializer.deserialize_any(Text)
    }
}

/// A range with both ends included; an end is `None` if the range is open there.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default, rename = "Span")]
pub struct QuantityRange {
    pub from: Option<Quantity>,
    pub to: Option<Quantity>,
}

impl QuantityRange {
    /// True if the range contains a value, given in SI units.
    pub fn holds(&self, value: f64) -> bool {
        self.from.as_ref().is_none_or(|from| value >= from.si()) && self.to.as_ref().is_none_or(|to| value <= to.si())
    }

    /// True if the range has the dimension of `unit`. A unit that a metric defines has the same name. Plain numbers fit
    /// a figure without a unit, and one whose unit cannot be written after a number. Shares in `%` fit a plain figure
    /// too.
    pub fn fits(&self, unit: &str) -> bool {
        match self.unit() {
            Some(counted) => return counted == unit || (counted == PERCENT && unit.is_empty()),
            // A plain number does not fit a figure in `%`, since `5` could mean 5 % or 500 %.
            None if unit == PERCENT => return self.dimension().is_ok_and(|dimension| dimension.is_none()),
            None => {}
        }
        match (self.dimension(), units::unit(unit)) {
            (Ok(Some(dimension)), Some(unit)) => dimension == unit.dimension,
            (Ok(Some(dimension)), None) => dimension == Dimension::NONE && !is_written(unit),
            _ => true,
        }
    }

    /// The unit of both ends, if only a metric defines it; `None` otherwise.
    pub fn counted(&self) -> Option<&str> {
        self.unit().filter(|unit| *unit != PERCENT)
    }

    /// The unit of both ends, if a metric defines it or if it is `%`; `None` otherwise.
    fn unit(&self) -> Option<&str> {
        self.from.as_ref().or(self.to.as_ref())?.counted.as_deref()
    }

    /// Fails unless the range has an end, and two ends that fit. `name` is the range in messages. A range of times has a
    /// unit of time.
    pub(in crate::config) fn check(&self, name: &str, is_time: bool) -> Result<(), ConfigError> {
        let (value, why, help) = match self.dimension() {
            Ok(Some(dimension)) if is_time && (dimension != Dimension::TIME || self.counted().is_some()) => {
                (self.to_string(), "it is a time".to_owned(), "write a time with its unit, such as \"5ms\"")
            }
            Ok(Some(_)) => return Ok(()),
            Ok(None) => {
                let help = "write `(to: \"5us\")`, or `from`, or both";
                ("()".to_owned(), "it has neither a beginning nor an end".to_owned(), help)
            }
            Err(why) => (self.to_string(), why, "correct `from` or `to`"),
        };
        Err(ConfigError::BadValue { name: name.to_owned(), value, why, help: help.to_owned() })
    }

    /// The range in RON, without loss.
    pub(in crate::config) fn ron(&self) -> String {
        let ends = [("from", &self.from), ("to", &self.to)];
        let ends = ends.into_iter().filter_map(|(name, end)| Some(format!("{name}: {}", end.as_ref()?.ron())));
        format!("({})", ends.collect::<Vec<_>>().join(", "))
    }

    /// Returns the dimension of both ends; `None` if both are absent. The error says why they do not match.
    pub fn dimension(&self) -> Result<Option<Dimension>, String> {
        match (&self.from, &self.to) {
            (Some(from), Some(to)) if (from.dimension, &from.counted) != (to.dimension, &to.counted) => {
                Err(format!("{from} and {to} have different dimensions"))
            }
            (Some(from), Some(to)) if from.value > to.value => Err(format!("it begins at {from} and ends at {to}")),
            (from, to) => Ok(from.as_ref().or(to.as_ref()).map(|end| end.dimension)),
        }
    }
}

impl fmt::Display for QuantityRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.from, &self.to) {
            (Some(from), Some(to)) => write!(f, "{from} to {to}"),
            (Some(from), None) => write!(f, "at least {from}"),
            (None, Some(to)) => write!(f, "at most {to}"),
            (None, None) => f.write_str("anything"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_carry_units() {
        let rate = Quantity::parse("50 GB/s").unwrap();
        assert_eq!((rate.si(), rate.to_string()), (50e9, "50 GB/s".to_owned()));
        assert_eq!(Quantity::parse("2.5us").unwrap().value, 2500.0);
        assert_eq!(Quantity::parse("-3").unwrap().si(), -3.0);
        assert_eq!(Quantity::parse("16mib").unwrap_err(), "there is no unit `mib`, did you mean `MiB`?");
        assert_eq!(Quantity::parse("6.2e6").unwrap().si(), 6.2e6);
        let vast = format!("1{}GB/s", "0".repeat(400));
        let nearly = format!("1{}GiB", "0".repeat(305));
        let rate = Quantity::parse("1.5M tokens/s").unwrap();
        assert_eq!(
            (rate.si(), rate.to_string().as_str(), rate.counted.as_deref()),
            (1.5e6, "1.500M tokens/s", Some("tokens/s"))
        );
        assert_eq!(Quantity::parse(rate.ron().trim_matches('"')).unwrap(), rate);
        assert_eq!(Quantity::parse("250 rows").unwrap().si(), 250.0);
        for wrong in ["", "fast", "inf", "-inf", "1e999", "-", "1.2.3GB/s", "GB/s", "tokens/s", &vast, &nearly] {
            assert!(Quantity::parse(wrong).unwrap_err().contains("is no number with a unit"), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn shares_are_written_without_loss(percent in -1e4..1e4f64) {
            let share = Quantity::parse(&format!("{percent}%")).unwrap();
            prop_assert_eq!(Quantity::parse(share.ron().trim_matches('"')).unwrap(), share);
        }
    }

    #[test]
    fn spans_contain_values_between_their_ends() {
        let span: QuantityRange = ron::Options::default()
            .with_default_extension(ron::extensions::Extensions::IMPLICIT_SOME)
            .from_str(r#"(from: "1MiB", to: "2MiB")"#)
            .unwrap();
        assert!(span.holds(1048576.0) && span.holds(2e6) && !span.holds(1e6) && !span.holds(3e6));
        assert_eq!(span.to_string(), "1 MiB to 2 MiB");
        assert!(QuantityRange::default().holds(f64::MAX));
        let turned = QuantityRange { from: span.to.clone(), to: span.from };
        assert_eq!(turned.dimension().unwrap_err(), "it begins at 2 MiB and ends at 1 MiB");
    }

    #[test]
    fn ranges_fit_figures_of_their_unit() {
        let fits = |end: &str, unit: &str| QuantityRange { from: Quantity::parse(end).ok(), to: None }.fits(unit);
        let good = [
            ("1", ""),
            ("5%", ""),
            ("1e6", "1/s"),
            ("1ms", "s"),
            ("5GB/s", "B/s"),
            ("1M tokens/s", "tokens/s"),
            ("50%", "%"),
            ("3", "Gb/s"),
        ];
        for (end, unit) in good {
            assert!(fits(end, unit), "{end} of {unit}");
        }
        for (end, unit) in [
            ("1", "s"),
            ("5", "B/s"),
            ("3", "tokens/s"),
            ("1ms", ""),
            ("1ms", "tokens/s"),
            ("1 a", "b"),
            ("0.5", "%"),
            ("5", "%"),
            ("5%", "s"),
        ] {
            assert!(!fits(end, unit), "{end} of {unit}");
        }
    }
}
