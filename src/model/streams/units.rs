//! The part of a device's compute units (SMs) that a stream is restricted to.

/// Compute units of a stream. A stream without a restriction uses all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Units {
    /// A number of compute units.
    Count(u32),
    /// A fraction of the device's compute units, in millionths.
    Share(u32),
}

impl Units {
    /// The share that is the whole device, in millionths of its compute units.
    const WHOLE: u32 = 1_000_000;

    /// Interprets a plain number: a fraction if below 1, a count if at least 2. Otherwise `None`, since 1 would be
    /// ambiguous.
    pub fn parse(value: f64) -> Option<Units> {
        let is_count = value >= 2.0 && value.fract() == 0.0 && value <= f64::from(u16::MAX);
        if is_count { Some(Units::Count(value as u32)) } else { Units::share(value) }
    }

    /// Interprets a fraction of the device; `None` unless it is between 0 and 1.
    pub fn share(value: f64) -> Option<Units> {
        let share = (value * f64::from(Self::WHOLE)).round();
        let fits = value < 1.0 && share >= 1.0 && share < f64::from(Self::WHOLE);
        fits.then_some(Units::Share(share as u32))
    }

    /// The number of compute units on a device with `all` of them on `chips` chips: at least one, and at most `all`. Each
    /// chip contributes equally many, so that the number is rounded up to a multiple of `chips`, or down if there are no more.
    pub fn of(self, all: u32, chips: u32) -> u32 {
        let wanted = match self {
            Units::Count(count) => count,
            Units::Share(share) => (u64::from(all) * u64::from(share)).div_ceil(u64::from(Self::WHOLE)) as u32,
        };
        let chips = chips.clamp(1, all.max(1));
        let most = (all / chips * chips).max(1);
        wanted.clamp(1, most).next_multiple_of(chips).min(most)
    }

    /// The number or the share in words, such as `64 units` or `25 % of the units`.
    pub fn text(self) -> String {
        match self {
            Units::Count(count) => format!("{count} units"),
            Units::Share(share) => format!("{} % of the units", f64::from(share) * 100.0 / f64::from(Self::WHOLE)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_count_or_a_share() {
        assert_eq!(Units::parse(64.0), Some(Units::Count(64)));
        assert_eq!(Units::parse(0.25), Some(Units::Share(250_000)));
        assert_eq!((Units::share(0.25), Units::share(2.0)), (Some(Units::Share(250_000)), None));
        for wrong in [1.0, 0.0, -2.0, 2.5, 1.5, 1e9, 0.999_999_9, f64::NAN, f64::INFINITY] {
            assert_eq!(Units::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_share_refers_to_the_units_of_the_device() {
        assert_eq!(Units::Share(250_000).of(304, 1), 76);
        assert_eq!(Units::Share(250_000).of(304, 8), 80, "10 of each of 8 chips");
        assert_eq!(Units::Share(1).of(304, 1), 1, "one at least");
        assert_eq!(Units::Count(400).of(304, 1), 304, "all at most");
        assert_eq!(Units::Count(2).of(132, 8), 8);
        assert_eq!(Units::Count(999).of(132, 8), 128, "whole multiples");
        assert_eq!(Units::Count(2).of(0, 8), 1, "a device that says nothing");
        assert_eq!(Units::Share(125_000).text(), "12.5 % of the units");
    }
}
